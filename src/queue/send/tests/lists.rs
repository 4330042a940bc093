//! Tests of lists that the device reads from registered memory, and of requests that replace entries of a
//! list.

use super::*;
use crate::mkey::LayoutKind;
use crate::mkey::{InterleavedEntry, KsmEntry, RegisteredList};
use crate::types::KsmEntrySize;

const LIST: u64 = 0x7f00_0000_1000;

/// Returns an mkey with a list of 1 entry in force.
fn with_list(mut mkey: Mkey) -> Mkey {
    mkey.note(LayoutKind::List, 512, &MkeyConfig::UNCHANGED);
    mkey
}

/// Posts a configuration twice, to queues with equal counters: with the list in the request, and with the
/// list in registered memory. Compares both, and returns the requests of both.
fn both(mkey: &Mkey, prepared: &PreparedConfig, entries: &[KlmEntry]) -> [Vec<Vec<u8>>; 2] {
    let mut requests = [(); 2].map(|()| vec![Wqebb::ZERO; 64]);
    let mut memory = vec![Wqebb::ZERO; 64];
    let [inline, pointer] = &mut requests;
    let record = DoorbellRecord::new();
    let mut queue = queue(inline, &record, 5);
    queue.request(1).signaled().configure_mkey(&mut mkey.clone(), prepared, entries).unwrap();
    let inline_end = queue.producer() as usize;
    let mut queue = super::queue(pointer, &record, 5);
    let mut list = RegisteredList::new(&mut memory, LIST, Key::from_raw(0x8765_4300)).unwrap();
    list.write(entries).unwrap();
    let mut changed = mkey.clone();
    queue.request(1).signaled().configure_mkey_by_pointer(&mut changed, prepared, &mut list).unwrap();
    assert_eq!(changed.length(), entries.iter().map(|entry| u64::from(entry.length)).sum());
    let blocks: Vec<u8> = list.blocks().iter().flat_map(|block| block.0).collect();
    let pointer_end = queue.producer() as usize;
    let split = |ring: &[Wqebb], end: usize| {
        let bytes: Vec<u8> = ring[5..end].iter().flat_map(|block| block.0).collect();
        crate::wqe::control::split_requests(&bytes)
    };
    let [inline_ring, pointer_ring] = requests;
    let (inline, mut pointer) = (split(&inline_ring, inline_end), split(&pointer_ring, pointer_end));
    // The memory contains the same bytes as the inline request after its head.
    let lists = &inline[0][128..];
    assert_eq!(&blocks[..lists.len()], lists);
    assert_eq!(pointer[0].len(), 9 * 16, "as the device wants it");
    let mut expected = inline[0][..128].to_vec();
    (expected[7], expected[16]) = (9, 0);
    let mut at = vec![0, 0, 0, 0, 0x87, 0x65, 0x43, 0, 0, 0, 0x7f, 0, 0, 0, 0x10, 0];
    at[2..4].copy_from_slice(&((entries.len().next_multiple_of(4) * 16) as u16).to_be_bytes());
    expected.extend(at);
    assert_eq!(pointer[0], expected);
    // The SET_PSVs are equal except for their block numbers.
    for (number, request) in pointer.iter_mut().enumerate().skip(1) {
        assert_eq!(request[2], 5 + 3 + number as u8 - 1);
        request[2] = inline[number][2];
        assert_eq!(*request, inline[number]);
    }
    [inline, pointer]
}

#[test]
fn m79_by_pointer_is_inline_but_for_where_the_lists_are() {
    let entries = [ENTRY; 7];
    let plain = Mkey::new(MkeyAttributes::plain(KEY, 16));
    let access = MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED };
    let [_, requests] = both(&plain, &prepare(&plain, &access), &entries);
    assert_eq!(requests.len(), 1);
    let signed = signature_mkey();
    let [_, requests] = both(&signed, &signing(BOTH), &entries);
    assert_eq!(requests.len(), 3, "a UMR and two SET_PSVs");
    both(&signed, &signing(BlockSignature::wire(CRC32)), &entries[..4]);
}

/// A request in the form of DPDK's drivers for regular expressions and AES-GCM (`complete_umr_wqe`,
/// `mlx5_crypto_gcm_build_umr`): 9 octowords, no UMR flags, the octowords of the list, the length of the
/// mkey, and the pointer to the list. Only the length field of the pointer differs: this library writes the
/// bytes of the list, the drivers write 0 or the number of entries.
#[test]
fn m79_a_minimal_umr_by_pointer_is_dpdks_and_frees() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let form = crate::mkey::UmrForm::Minimal;
    let mut mkey = Mkey::new(MkeyAttributes { form, ..MkeyAttributes::plain(KEY, 16) });
    let prepared = prepare(&mkey, &MkeyConfig::UNCHANGED);
    let mut memory = [Wqebb::ZERO; 4];
    let mut list = RegisteredList::new(&mut memory, LIST, Key::from_raw(0x8765_4300)).unwrap();
    list.write(&[ENTRY; 5]).unwrap();
    queue.request(1).configure_mkey_by_pointer(&mut mkey, &prepared, &mut list).unwrap();
    let mut golden = [0; 9 * 16];
    golden[..16].copy_from_slice(&[0, 0, 0, 0x25, 0, 0, 0x77, 9, 0, 0, 0, 0, 0, 0x12, 0x34, 0]);
    golden[20..22].copy_from_slice(&[0, 8]);
    // The mask has length and free: mkeys of this library are created free, as SPDK's are. DPDK creates them
    // in use, and writes only the length.
    golden[28..32].copy_from_slice(&[0x20, 0, 0, 1]);
    golden[64 + 24..64 + 32].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0x0a, 0]);
    golden[128..].copy_from_slice(&[0, 0, 0, 128, 0x87, 0x65, 0x43, 0, 0, 0, 0x7f, 0, 0, 0, 0x10, 0]);
    let bytes: Vec<u8> = (0..3).flat_map(|block| queue.block(block).0).collect();
    assert_eq!(bytes[..144], golden);
}

/// A replacement of entries as the kernel writes it (`mlx5r_umr_update_xlt`): the flag for an offset, the
/// place of the first entry in octowords, and an empty mask.
#[test]
fn m80_entries_are_replaced_as_the_kernel_does() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = with_list(Mkey::new(MkeyAttributes::plain(KEY, 400)));
    queue.request(1).replace_entries(&mut mkey, 0x104, &[ENTRY; 5]).unwrap();
    let mut memory = [Wqebb::ZERO; 4];
    let mut list = RegisteredList::new(&mut memory, LIST, Key::from_raw(0x8765_4300)).unwrap();
    list.write(&[ENTRY; 8]).unwrap();
    queue.request(2).replace_entries_by_pointer(&mut mkey, 8, &list).unwrap();
    let block = |number| queue.block(number).0;
    let head = |index: u8, ds: u8, fence: u8, flags: u8, first: [u8; 2]| {
        let mut head = [0; 64];
        head[..16].copy_from_slice(&[0, 0, index, 0x25, 0, 0, 0x77, ds, 0, 0, 0, fence, 0, 0x12, 0x34, 0]);
        (head[16], head[21]) = (flags, 8);
        head[22..24].copy_from_slice(&first);
        head
    };
    assert_eq!(block(0), head(0, 16, 0, 0x90, [1, 4]));
    assert_eq!(block(1), [0; 64], "the mask selects nothing");
    let entry = [0, 0, 2, 0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!((block(2), block(3)[..16].to_vec()), (zerocopy::transmute!([entry; 4]), entry.to_vec()));
    assert_eq!(block(3)[16..], [0; 48]);
    let fence = queue.block(4).0[11];
    assert_ne!(fence & 0xe0, 0, "it does not overtake the one before");
    assert_eq!(block(4), head(4, 9, fence, 0x10, [0, 8]));
    assert_eq!(block(6)[..16], [0, 0, 0, 128, 0x87, 0x65, 0x43, 0, 0, 0, 0x7f, 0, 0, 0, 0x10, 0]);
    assert_eq!((queue.producer(), queue.outstanding()), (7, 2));
}

#[test]
fn m79_m80_what_cannot_be_is_refused_and_changes_nothing() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 4], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = signature_mkey();
    let before = mkey.clone();
    let mut memory = vec![Wqebb::ZERO; 10];
    let mut list = RegisteredList::new(&mut memory, LIST, KEY).unwrap();
    list.write(&[ENTRY; 17]).unwrap();
    let too_many = |max| Err(PostError::from(ConfigError::TooManyEntries { max }));
    let prepared = signing(BOTH);
    let posted = queue.request(1).configure_mkey_by_pointer(&mut mkey, &prepared, &mut list);
    assert_eq!(posted, too_many(16));
    list.write(&[ENTRY; 16]).unwrap();
    let written = list.blocks().to_vec();
    // A UMR of 3 blocks and two SET_PSVs do not fit a ring of 4 blocks.
    let posted = queue.request(1).configure_mkey_by_pointer(&mut mkey, &prepared, &mut list);
    assert_eq!(posted, Err(PostError::SendRingFull { needed: 5, free: 4 }));
    assert_eq!(list.blocks(), written, "no BSF is written");
    let other = prepare(&Mkey::new(MkeyAttributes::plain(KEY, 16)), &MkeyConfig::UNCHANGED);
    let posted = queue.request(1).configure_mkey_by_pointer(&mut mkey, &other, &mut list);
    assert_eq!(posted, Err(ConfigError::OtherKind.into()));
    list.write(&[KlmEntry { length: 1 << 31, ..ENTRY }; 2]).unwrap();
    let posted = queue.request(1).configure_mkey_by_pointer(&mut mkey, &prepared, &mut list);
    assert_eq!(posted, Err(ConfigError::LengthOver32Bits { mebibytes: 4096 }.into()));
    assert_eq!(mkey, before);
    // With one byte less, the length fits into the 32 bits that a BSF has for it.
    list.write(&[KlmEntry { length: 1 << 31, ..ENTRY }, KlmEntry { length: (1 << 31) - 1, ..ENTRY }])
        .unwrap();
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut longest = mkey.clone();
    super::queue(&mut ring, &record, 0)
        .request(1)
        .configure_mkey_by_pointer(&mut longest, &prepared, &mut list)
        .unwrap();
    assert_eq!(longest.length(), u64::from(u32::MAX));

    let mut mkey = with_list(mkey);
    for first in [1, 2, 3, 6] {
        let posted = queue.request(1).replace_entries(&mut mkey, first, &[ENTRY]);
        assert_eq!(posted, Err(ConfigError::EntryInBlock { first }.into()));
    }
    assert_eq!(queue.request(1).replace_entries(&mut mkey, 12, &[ENTRY; 5]), too_many(16));
    list.write(&[ENTRY; 9]).unwrap();
    assert_eq!(queue.request(1).replace_entries_by_pointer(&mut mkey, 8, &list), too_many(16));
    let mut wide = with_list(Mkey::new(MkeyAttributes::plain(KEY, 400)));
    assert_eq!(queue.request(1).replace_entries(&mut wide, 0, &[ENTRY; 53]), too_many(52));
    let limited =
        SendQueueConfig { max_inline_data: 5 * 16 - 4, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
    let (mut ring, record) = (vec![Wqebb::ZERO; 4], DoorbellRecord::new());
    let mut small = Queue::new(
        limited,
        &mut ring,
        SendSlot::leaked(64),
        &record,
        Witness { record: &record, seen: Vec::new() },
    )
    .unwrap();
    assert_eq!(small.request(1).replace_entries(&mut wide, 0, &[ENTRY; 5]), too_many(4), "padded to 8");
    let posted = queue.request(1).replace_entries(&mut mkey, 0, &[ENTRY, KlmEntry { length: 0, ..ENTRY }]);
    assert_eq!(posted, Err(ConfigError::EntryLength { index: 1, length: 0 }.into()));
    mkey.forget();
    let mut interleaved = with_list(signature_mkey());
    interleaved.note(LayoutKind::Interleaved, 512, &MkeyConfig::UNCHANGED);
    assert_eq!((interleaved.length(), interleaved.wire_length()), (512, Some(512)));
    for mut mkey in [mkey, interleaved, signature_mkey()] {
        let refused = Err(ConfigError::NoList.into());
        assert_eq!(queue.request(1).replace_entries(&mut mkey, 0, &[ENTRY]), refused);
        assert_eq!(queue.request(1).replace_entries_by_pointer(&mut mkey, 0, &list), refused);
    }
    assert_eq!((queue.producer(), queue.outstanding()), (0, 0));
}

/// The number of the first entry as the kernel writes it (`mlx5r_umr_update_offset`): the low 16 bits in the
/// field for the offset, the high bits in a field behind the mask.
#[test]
fn m84_entries_have_numbers_of_more_than_16_bits() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = with_list(Mkey::new(MkeyAttributes::plain(KEY, MkeyAttributes::MAX_ENTRIES)));
    let mut memory = [Wqebb::ZERO; 4];
    let mut list = RegisteredList::new(&mut memory, LIST, KEY).unwrap();
    list.write(&[ENTRY; 4]).unwrap();
    for (first, low, high) in [
        (0xfffc, [0xff, 0xfc], [0, 0, 0, 0]),
        (0x1_0000, [0, 0], [0, 0, 0, 1]),
        (0x10_0000, [0, 0], [0, 0, 0, 0x10]),
        (0x3fff_fffc, [0xff, 0xfc], [0, 0, 0x3f, 0xff]),
    ] {
        let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
        let mut queue = super::queue(&mut ring, &record, 0);
        queue.request(1).replace_entries(&mut mkey, first, &[ENTRY]).unwrap();
        queue.request(2).replace_entries_by_pointer(&mut mkey, first, &list).unwrap();
        for (at, flags) in [(0, 0x90), (3, 0x10)] {
            let block = queue.block(at).0;
            assert_eq!((block[16], &block[20..22], &block[22..24]), (flags, &[0, 4][..], &low[..]));
            assert_eq!(
                (&block[24..32], &block[32..36], &block[36..]),
                (&[0; 8][..], &high[..], &[0; 28][..])
            );
        }
    }
    for (first, refused) in [
        (0xffff, ConfigError::EntryInBlock { first: 0xffff }),
        (0x1_0002, ConfigError::EntryInBlock { first: 0x1_0002 }),
        (0x4000_0000, ConfigError::TooManyEntries { max: 0x4000_0000 }),
        (u32::MAX - 3, ConfigError::TooManyEntries { max: 0x4000_0000 }),
    ] {
        assert_eq!(queue.request(1).replace_entries(&mut mkey, first, &[ENTRY]), Err(refused.into()));
        assert_eq!(queue.request(1).replace_entries_by_pointer(&mut mkey, first, &list), Err(refused.into()));
    }
    assert_eq!(queue.producer(), 0);
}

/// A long list is written in parts, each with an offset, as by the kernel (`mlx5r_umr_update_xlt`). Each part
/// also sets the length of the mkey, as the kernel's last part does (`mlx5r_umr_final_update_xlt`).
#[test]
fn m84_a_list_grows_by_parts() {
    const PART: usize = RegisteredList::MAX_ENTRIES;
    let (mut ring, record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 2 * PART as u32 + 1));
    let prepared = prepare(&mkey, &MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED });
    let mut memory = vec![Wqebb::ZERO; RegisteredList::blocks_for(PART)];
    let mut list = RegisteredList::new(&mut memory, LIST, Key::from_raw(0x8765_4300)).unwrap();
    list.write(&vec![ENTRY; PART]).unwrap();
    queue.request(1).configure_mkey_by_pointer(&mut mkey, &prepared, &mut list).unwrap();
    queue.request(2).append_entries_by_pointer(&mut mkey, &list).unwrap();
    assert_eq!(mkey.length(), 2 * PART as u64 * 512);
    // A request in between changes only the rights, and keeps the list.
    queue.request(3).configure_mkey(&mut mkey, &prepared, Layout::Unchanged).unwrap();
    list.write(&[ENTRY]).unwrap();
    queue.request(4).append_entries_by_pointer(&mut mkey, &list).unwrap();
    assert_eq!(mkey.length(), (2 * PART as u64 + 1) * 512);
    // Offset, mask, length and pointer of the two parts that were appended.
    for (at, octowords, [high, low], length, bytes) in [
        (3, [0xff, 0xfc], [0_u32, 0xfffc], 2 * PART as u64 * 512, 0x000f_ffc0_u32),
        (8, [0, 4], [1, 0xfff8], (2 * PART as u64 + 1) * 512, 64),
    ] {
        let head = queue.block(at).0;
        assert_eq!((head[3], head[7], &head[12..16]), (0x25, 9, &[0, 0x12, 0x34, 0][..]));
        assert_ne!(head[11] & 0xe0, 0, "it does not overtake the one before");
        assert_eq!((head[16], &head[20..22], &head[22..24]), (0x10, &octowords[..], &low.to_be_bytes()[2..]));
        assert_eq!((&head[24..32], &head[32..36]), (&[0, 0, 0, 0, 0, 0, 0, 1][..], &high.to_be_bytes()[..]));
        let mut context = [0; 64];
        context[24..32].copy_from_slice(&length.to_be_bytes());
        assert_eq!(queue.block(at + 1).0, context, "nothing but the length");
        let pointer =
            [&bytes.to_be_bytes()[..], &[0x87, 0x65, 0x43, 0, 0, 0, 0x7f, 0, 0, 0, 0x10, 0]].concat();
        assert_eq!(queue.block(at + 2).0[..16], pointer);
    }
    assert_eq!((queue.producer(), queue.outstanding()), (11, 4));
}

#[test]
fn m84_entries_that_were_replaced_count() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut memory = [Wqebb::ZERO; 4];
    let mut list = RegisteredList::new(&mut memory, LIST, KEY).unwrap();
    // The list has 8 entries. Each row replaces `count` entries from number `first` on, and `end` is the
    // number of entries afterwards. A last block of fewer than 4 entries ends the list.
    for (first, count, end) in
        [(4, 8, 12), (8, 4, 12), (0, 4, 8), (4, 4, 8), (4, 2, 6), (0, 5, 5), (8, 1, 9), (12, 0, 8)]
    {
        list.write(&[ENTRY; 8][..count]).unwrap();
        for by_pointer in [false, true] {
            let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 32));
            mkey.note_list(8, 8 * 512);
            let request = queue.request(1);
            let posted = if by_pointer {
                request.replace_entries_by_pointer(&mut mkey, first, &list)
            } else {
                request.replace_entries(&mut mkey, first, &[ENTRY; 8][..count])
            };
            assert_eq!((posted, mkey.list_entries(), mkey.length()), (Ok(()), Ok(end), 8 * 512));
            let appended = queue.request(2).append_entries_by_pointer(&mut mkey, &list);
            let whole = end % 4 == 0;
            let refused = Err(ConfigError::EntryInBlock { first: end }.into());
            assert_eq!(appended, if whole { Ok(()) } else { refused });
            queue.restart(drop);
        }
    }
}

#[test]
fn m84_what_cannot_be_appended_to_is_refused_and_stays() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 4], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let size = KsmEntrySize::new(1 << 12).unwrap();
    let mut memory = [Wqebb::ZERO; 7];
    let mut list = RegisteredList::new(&mut memory, LIST, KEY).unwrap();
    list.write(&[ENTRY; 5]).unwrap();
    let plain = MkeyAttributes::plain(KEY, 16);
    let counted = |attributes, entries: u32| {
        let mut mkey = Mkey::new(attributes);
        mkey.note_list(entries, 512);
        mkey
    };
    let mut interleaved = counted(plain, 4);
    interleaved.note(LayoutKind::Interleaved, 512, &MkeyConfig::UNCHANGED);
    let mut invalidated = counted(plain, 4);
    invalidated.forget();
    let crypto = MkeyAttributes { crypto: Some(crate::mkey::XtsEngine::MultiBlock), ..plain };
    for (mkey, refused) in [
        (counted(signature_mkey_attributes(), 4), ConfigError::AppendWithBsf),
        (counted(crypto, 4), ConfigError::AppendWithBsf),
        (Mkey::new(plain), ConfigError::NoList),
        (interleaved, ConfigError::NoList),
        (invalidated, ConfigError::NoList),
        // A list in a request has replaced the list from registered memory.
        (with_list(counted(plain, 4)), ConfigError::ListInRequest),
        (counted(plain, 6), ConfigError::EntryInBlock { first: 6 }),
        (counted(plain, 12), ConfigError::TooManyEntries { max: 16 }),
        (
            counted(MkeyAttributes { entry_size: Some(size), ..plain }, 4),
            ConfigError::OtherEntries { layout: None, mkey: Some(size) },
        ),
        (
            counted(MkeyAttributes::plain(KEY, u32::MAX), MkeyAttributes::MAX_ENTRIES),
            ConfigError::TooManyEntries { max: MkeyAttributes::MAX_ENTRIES },
        ),
    ] {
        let mut changed = mkey.clone();
        let posted = queue.request(1).append_entries_by_pointer(&mut changed, &list);
        assert_eq!(posted, Err(refused.into()));
        assert_eq!((changed, queue.producer()), (mkey, 0));
    }
    // Appending an empty list succeeds, and leaves two free blocks. Appending an entry needs three blocks.
    let mut mkey = counted(plain, 8);
    let before = mkey.clone();
    list.write(&[]).unwrap();
    queue.request(1).append_entries_by_pointer(&mut mkey, &list).unwrap();
    list.write(&[ENTRY]).unwrap();
    let posted = queue.request(2).append_entries_by_pointer(&mut mkey, &list);
    assert_eq!(posted, Err(PostError::SendRingFull { needed: 3, free: 2 }));
    assert_eq!((mkey, queue.producer()), (before, 2));
}

/// A list of entries of one length is always in registered memory. As in the kernel, the first word of each
/// entry is 0 (`struct mlx5_ksm`). The mkey holds the length of the entries (`mlx5e_create_umr_ksm_mkey`, PRM
/// `log_entity_size`), and no request writes it. The request sets the length of the space, like the kernel's
/// UMRs from memory (`mlx5r_umr_final_update_xlt`).
#[test]
fn m83_entries_of_one_length_are_a_list_in_memory() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let size = KsmEntrySize::new(1 << 21).unwrap();
    let attributes = MkeyAttributes { entry_size: Some(size), ..MkeyAttributes::plain(KEY, 16) };
    let mut mkey = Mkey::new(attributes);
    let prepared = prepare(&mkey, &MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED });
    let mut memory = [Wqebb([0xa5; 64]); 5];
    let mut list = RegisteredList::new(&mut memory, LIST, Key::from_raw(0x8765_4300)).unwrap();
    let entry = KsmEntry { address: 0x1122_3344_5566_7788, key: Key::from_raw(0x99aa_bb00) };
    list.write_ksm(size, &[entry; 5]).unwrap();
    assert_eq!((list.entries(), list.length(), list.entry_size()), (5, 5 << 21, Some(size)));
    let golden = [0, 0, 0, 0, 0x99, 0xaa, 0xbb, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    assert_eq!(list.blocks()[0].0[..], [golden; 4].concat());
    assert_eq!((&list.blocks()[1].0[..16], &list.blocks()[1].0[16..]), (&golden[..], &[0; 48][..]));
    queue.request(1).configure_mkey_by_pointer(&mut mkey, &prepared, &mut list).unwrap();
    assert_eq!(mkey.length(), 5 << 21);
    let mut golden = [0; 9 * 16];
    golden[..16].copy_from_slice(&[0, 0, 0, 0x25, 0, 0, 0x77, 9, 0, 0, 0, 0, 0, 0x12, 0x34, 0]);
    golden[20..22].copy_from_slice(&[0, 8]);
    // The mask has free, rights, tag and length. It has neither the size of the entries (bit 1) nor the
    // translation (access mode).
    golden[24..32].copy_from_slice(&[0, 0, 0, 0, 0x20, 0x3c, 0x20, 1]);
    golden[66] = 0x78;
    golden[68..71].copy_from_slice(&[0xff; 3]);
    golden[64 + 24..64 + 32].copy_from_slice(&(5_u64 << 21).to_be_bytes());
    golden[128..].copy_from_slice(&[0, 0, 0, 128, 0x87, 0x65, 0x43, 0, 0, 0, 0x7f, 0, 0, 0, 0x10, 0]);
    let bytes: Vec<u8> = (0..3).flat_map(|block| queue.block(block).0).collect();
    assert_eq!(bytes[..144], golden);

    // Entries in the middle are replaced. The offset counts octowords, as for other lists
    // (`mlx5r_umr_update_offset`).
    queue.request(2).replace_entries_by_pointer(&mut mkey, 8, &list).unwrap();
    let block = queue.block(3).0;
    assert_eq!((block[16], &block[20..32]), (0x10, &[0, 8, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0][..]));
    // For an empty list, posting does not check the length of its entries.
    list.write(&[]).unwrap();
    queue.request(3).configure_mkey_by_pointer(&mut mkey, &prepared, &mut list).unwrap();
    assert_eq!((mkey.length(), queue.producer()), (0, 8));
}

#[test]
fn m83_other_entries_than_the_mkey_was_created_for_are_refused() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let [size, other] = [1 << 12, 1 << 13].map(|bytes| KsmEntrySize::new(bytes).unwrap());
    let attributes = MkeyAttributes { entry_size: Some(size), ..MkeyAttributes::plain(KEY, 16) };
    let config = MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED };
    let mut equal = with_list(Mkey::new(attributes));
    let mut plain = with_list(Mkey::new(MkeyAttributes::plain(KEY, 16)));
    let before = [equal.clone(), plain.clone()];
    let [for_equal, for_plain] = [&equal, &plain].map(|mkey| prepare(mkey, &config));
    let mut memory = [Wqebb::ZERO; 7];
    let mut list = RegisteredList::new(&mut memory, LIST, KEY).unwrap();
    let refused = |layout, mkey| Err(PostError::from(ConfigError::OtherEntries { layout, mkey }));

    let streams = [InterleavedEntry::default()];
    for layout in [Layout::List(&[ENTRY]), Layout::Interleaved { repeat: 1, entries: &streams }] {
        let posted = queue.request(1).configure_mkey(&mut equal, &for_equal, layout);
        assert_eq!(posted, refused(None, Some(size)));
    }
    assert_eq!(queue.request(1).replace_entries(&mut equal, 0, &[ENTRY]), refused(None, Some(size)));
    list.write(&[ENTRY]).unwrap();
    let posted = queue.request(1).configure_mkey_by_pointer(&mut equal, &for_equal, &mut list);
    assert_eq!(posted, refused(None, Some(size)));
    assert_eq!(queue.request(1).replace_entries_by_pointer(&mut equal, 0, &list), refused(None, Some(size)));
    list.write_ksm(other, &[KsmEntry::default()]).unwrap();
    let posted = queue.request(1).configure_mkey_by_pointer(&mut equal, &for_equal, &mut list);
    assert_eq!(posted, refused(Some(other), Some(size)));
    let posted = queue.request(1).configure_mkey_by_pointer(&mut plain, &for_plain, &mut list);
    assert_eq!(posted, refused(Some(other), None));
    assert_eq!(queue.request(1).replace_entries_by_pointer(&mut plain, 0, &list), refused(Some(other), None));
    assert_eq!(
        posted.unwrap_err().to_string(),
        "the layout has entries of 8192 bytes each, the mkey is for entries of their own lengths"
    );
    // Mkeys with different lengths of entries are of different kinds.
    let posted = queue.request(1).configure_mkey(&mut plain, &for_equal, Layout::Unchanged);
    assert_eq!(posted, Err(ConfigError::OtherKind.into()));
    assert_eq!(
        list.write_ksm(size, &[KsmEntry::default(); 21]),
        Err(ConfigError::TooManyEntries { max: 20 })
    );
    list.write_ksm(size, &[KsmEntry::default(); 17]).unwrap();
    let posted = queue.request(1).configure_mkey_by_pointer(&mut equal, &for_equal, &mut list);
    assert_eq!(posted, Err(ConfigError::TooManyEntries { max: 16 }.into()));
    let posted = queue.request(1).replace_entries(&mut equal, 20, &[]);
    assert_eq!(posted, Err(ConfigError::TooManyEntries { max: 16 }.into()));
    assert_eq!(([equal, plain], queue.producer()), (before, 0));

    // Neither mkeys with signatures nor mkeys with AES-XTS can have entries of one length.
    for attributes in [
        MkeyAttributes { entry_size: Some(size), ..signature_mkey_attributes() },
        MkeyAttributes { crypto: Some(crate::mkey::XtsEngine::MultiBlock), ..attributes },
    ] {
        let refused = PreparedConfig::new(attributes.kind(), &MkeyConfig::UNCHANGED);
        assert_eq!(refused, Err(ConfigError::EntriesWithBsf));
    }
}

/// The request that UCC posts for its all-to-all (`tl_mlx5_wqe.c`, `ucc_tl_mlx5_post_umr`): header and
/// entries in registered memory, 9 octowords.
const UCC: [u8; 144] = {
    let mut bytes = [0; 144];
    let parts: [(usize, &[u8]); 6] = [
        (0, &[0, 0, 5, 0x25, 0, 0, 0x77, 9, 0, 0, 0, 8, 0, 0x12, 0x34, 0]),
        // Octowords of entries, and the mask: LEN, LR, LW, RR, RW, A, FREE.
        (20, &[0, 4, 0, 0, 0, 0, 0, 0, 0x20, 0x3e, 0, 1]),
        (66, &[0x28, 0, 0xff, 0xff, 0xff, 0]),
        (94, &[0xe0, 0]),
        (132, &[0, 0, 0x56, 0]),
        (136, &[0, 0, 0x7f, 0, 0, 0, 8, 0]),
    ];
    let mut part = 0;
    while part < parts.len() {
        let (at, values) = parts[part];
        let mut index = 0;
        while index < values.len() {
            bytes[at + index] = values[index];
            index += 1;
        }
        part += 1;
    }
    bytes
};

fn streams() -> [InterleavedEntry; 2] {
    [0x1000, 0x9000].map(|address| InterleavedEntry {
        address,
        bytes: 512,
        skip: 512,
        key: Key::from_raw(0x5600),
    })
}

/// With an interleaved layout in registered memory, the memory has the bytes that a request with the layout
/// inside would have, and the request has UCC's form.
#[test]
fn m85_an_interleaved_layout_in_memory_is_uccs() {
    let mkey = Mkey::new(MkeyAttributes::plain(Key::from_raw(0x0012_3400), 16));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let config = MkeyConfig { access: Some(access), ..MkeyConfig::UNCHANGED };
    let prepared = PreparedConfig::new(mkey.kind(), &config).unwrap();
    let streams = streams();
    let mut rings = [(); 2].map(|()| vec![Wqebb::ZERO; 64]);
    let [inline, pointer] = &mut rings;
    let record = DoorbellRecord::new();
    let mut queue = queue(inline, &record, 5);
    let layout = Layout::Interleaved { repeat: 56, entries: &streams };
    queue.request(1).signaled().configure_mkey(&mut mkey.clone(), &prepared, layout).unwrap();
    let mut queue = super::queue(pointer, &record, 5);
    let mut memory = vec![Wqebb::ZERO; RegisteredList::blocks_for(3)];
    let mut list = RegisteredList::new(&mut memory, 0x7f00_0000_0800, Key::from_raw(0x5600)).unwrap();
    list.write_interleaved(56, &streams).unwrap();
    let mut changed = mkey.clone();
    queue.request(1).signaled().configure_mkey_by_pointer(&mut changed, &prepared, &mut list).unwrap();
    assert_eq!(changed.length(), 0xe000);
    assert_eq!(list.blocks()[0].0, rings[0][7].0, "header and entries");
    let ours: Vec<u8> = rings[1][5..8].iter().flat_map(|block| block.0).take(144).collect();
    let differing: Vec<usize> = (0..144).filter(|at| ours[*at] != UCC[*at]).collect();
    // The differences: the number of the queue pair, the mask (no LR, but MKEY, which changes nothing), and
    // the length in the pointer, which the device ignores.
    let qpn = (4..7).filter(|at| ours[*at] != UCC[*at]);
    let expected: Vec<usize> = qpn.chain([29, 30, 131]).collect();
    assert_eq!(differing, expected, "{ours:02x?}");
}

#[test]
fn m85_an_interleaved_layout_in_memory_is_no_list() {
    let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 4));
    let prepared = PreparedConfig::new(mkey.kind(), &MkeyConfig::UNCHANGED).unwrap();
    let mut memory = vec![Wqebb::ZERO; 8];
    let mut list = RegisteredList::new(&mut memory, LIST, KEY).unwrap();
    list.write_interleaved(2, &[streams()[0]; 4]).unwrap();
    let posted = queue.request(1).configure_mkey_by_pointer(&mut mkey, &prepared, &mut list);
    assert_eq!(posted, Err(ConfigError::TooManyEntries { max: 4 }.into()), "the header counts");
    list.write_interleaved(2, &[streams()[0]; 3]).unwrap();
    let producer = queue.producer();
    let mut other = with_list(Mkey::new(MkeyAttributes::plain(KEY, 8)));
    let refused = Err(PostError::Config(ConfigError::InterleavedInList));
    assert_eq!(queue.request(1).replace_entries_by_pointer(&mut other, 0, &list), refused);
    assert_eq!(queue.request(1).append_entries_by_pointer(&mut other, &list), refused);
    assert_eq!(queue.producer(), producer);
    queue.request(1).configure_mkey_by_pointer(&mut mkey, &prepared, &mut list).unwrap();
    assert_eq!(mkey.length(), 2 * 3 * 512);
    let replaced = queue.request(2).replace_entries(&mut mkey, 0, &[ENTRY]);
    assert_eq!(replaced, Err(PostError::Config(ConfigError::NoList)));
}

#[test]
fn a_list_of_own_entries_is_written_as_a_list() {
    // The caller's own entries are pages of a cache, all of whose memory has one key.
    let pages: Vec<u64> = (1..=17).map(|page| page << 12).collect();
    let to_klm = |page: &u64| KlmEntry { address: *page, length: 4096, key: KEY };
    let entries: Vec<KlmEntry> = pages.iter().map(to_klm).collect();
    // The last count is one more than the mkey has room for.
    for count in 0..=pages.len() {
        let posted = [false, true].map(|is_own| {
            let (mut ring, record) = (vec![Wqebb([0xa5; 64]); 64], DoorbellRecord::new());
            let mut queue = queue(&mut ring, &record, 0);
            let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 16));
            let prepared = prepare(&mkey, &MkeyConfig::UNCHANGED);
            let request = queue.request(1);
            let posted = if is_own {
                request.configure_mkey_from(&mut mkey, &prepared, &pages[..count], to_klm)
            } else {
                request.configure_mkey(&mut mkey, &prepared, &entries[..count])
            };
            let blocks: Vec<Wqebb> = (0..queue.producer()).map(|block| queue.block(block)).collect();
            (posted, blocks, mkey)
        });
        assert_eq!(posted[0], posted[1], "{count}");
        assert_eq!(posted[0].0.is_ok(), count <= 16);
    }
}
