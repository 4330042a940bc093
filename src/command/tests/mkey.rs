//! Tests of the commands that create mkeys and memory regions.

use super::capabilities::{GENERAL, general};
use super::*;
use crate::mkey::{KlmEntry, KsmEntry, UmrForm};
use crate::types::KsmEntrySize;

#[test]
fn m1_mkeys_are_those_of_rdma_core_for_each_flag() {
    for flags in 0..8u32 {
        let [signature, crypto, invalidate] = [1, 2, 4].map(|flag| u32::from(flags & flag != 0));
        let features = MkeyFeatures {
            block_signature: signature != 0,
            crypto: crypto != 0,
            remote_invalidate: invalidate != 0,
            ..Default::default()
        };
        let bsf = u32::from(signature + crypto != 0);
        let golden = [
            (0, 0x0200_0000),
            (0x10, 0x4000_8600),
            (0x14, 0xffff_ff00),
            (0x1c, 0x00ab_cdef | bsf << 30 | invalidate << 24),
            (0x30, (signature + crypto) * 4),
            (0x44, 20),
            (0x4c, crypto << 27),
        ];
        words(&mkey(features), &golden);
        // `update_tag` does not change the bytes of the command.
        words(&mkey(MkeyFeatures { update_tag: true, ..features }), &golden);
    }
}

#[test]
fn m1_all_creation_flags_by_bit_position() {
    for flags in 0..64u64 {
        let bit = |n: u32| flags >> n & 1;
        let command = CreateMkey {
            pd: pd(),
            max_entries: EntryCount::new(4).unwrap(),
            features: MkeyFeatures {
                block_signature: bit(0) != 0,
                crypto: bit(1) != 0,
                update_tag: bit(2) != 0,
                remote_invalidate: bit(3) != 0,
                relaxed_ordering_write: bit(4) != 0,
                relaxed_ordering_read: bit(5) != 0,
                access: if bit(5) == 0 { Access::NONE } else { Access::LOCAL_WRITE | Access::REMOTE_READ },
                form: UmrForm::Complete,
                entry_size: None,
            },
            tag: 0x5a,
        };
        const MKC: usize = 0x80;
        fields(
            &command,
            &[
                (0, 16, 0x200),
                (MKC + 0x01, 1, 1),                       // free
                (MKC + 0x0d, 1, bit(4)),                  // relaxed_ordering_write
                (MKC + 0x10, 1, 1),                       // umr_en
                (MKC + 0x13, 1, bit(5)),                  // rr
                (MKC + 0x14, 1, bit(5)),                  // lw
                (MKC + 0x15, 1, 1),                       // lr
                (MKC + 0x16, 2, 2),                       // access_mode_1_0
                (MKC + 0x20, 24, 0xff_ffff),              // qpn
                (MKC + 0x38, 8, 0x5a),                    // mkey_7_0
                (MKC + 0x61, 1, bit(0) | bit(1)),         // bsf_en
                (MKC + 0x67, 1, bit(3)),                  // en_rinval
                (MKC + 0x68, 24, 0xab_cdef),              // pd
                (MKC + 0x100, 32, 4 * (bit(0) + bit(1))), // bsf_octword_size
                (MKC + 0x1a0, 32, 4),                     // translations_octword_size
                (MKC + 0x1d9, 1, bit(5)),                 // relaxed_ordering_read
                (MKC + 0x1e3, 2, bit(1)),                 // crypto_en
            ],
        );
    }
}

#[test]
fn m4_entries_are_rounded_up_to_four() {
    let rounded = [(0, 0), (1, 4), (4, 4), (5, 8), (65533, 65536), (1 << 30, 1 << 30)];
    for (asked, given) in rounded {
        assert_eq!(EntryCount::new(asked).unwrap().get(), given);
    }
    assert_eq!(
        EntryCount::new((1 << 30) + 1),
        Err(OutOfRange { what: "mkey entries", value: (1 << 30) + 1, min: 0, max: 1 << 30 })
    );
}

/// The expected bytes come from the kernel's `mlx5e_create_umr_ksm_mkey`: `free` and `umr_en` are set, the
/// access mode is 3, and `log_page_size` holds the length of the entries. The kernel's command also sets the
/// length of the space. This library sets the length later, with the first configuration.
#[test]
fn m83_an_mkey_for_entries_of_one_length() {
    let entry_size = Some(KsmEntrySize::new(1 << 21).unwrap());
    let access = Access::LOCAL_WRITE;
    let features = MkeyFeatures { entry_size, access, ..MkeyFeatures::default() };
    let command = mkey(features);
    const MKC: usize = 0x80;
    fields(
        &command,
        &[
            (0, 16, 0x200),
            (MKC + 0x01, 1, 1),          // free
            (MKC + 0x10, 1, 1),          // umr_en
            (MKC + 0x14, 1, 1),          // lw
            (MKC + 0x15, 1, 1),          // lr
            (MKC + 0x16, 2, 3),          // access_mode_1_0
            (MKC + 0x20, 24, 0xff_ffff), // qpn
            (MKC + 0x68, 24, 0xab_cdef), // pd
            (MKC + 0x1a0, 32, 20),       // translations_octword_size
            (MKC + 0x1db, 5, 21),        // log_page_size
        ],
    );
    let attributes = command.plain_attributes(Key::from_raw(0x1200));
    assert_eq!((attributes.entry_size, attributes.kind().entry_size), (entry_size, entry_size));

    let able = GeneralCapabilities { fixed_buffer_size: true, ..general(GENERAL) };
    let check = |features, device| mkey(features).check(device).map_err(|error| error.to_string());
    assert_eq!(check(features, &able), Ok(()));
    let missing = |what: &str| Err(format!("CREATE_MKEY: the device has no {what}"));
    let unable = GeneralCapabilities { fixed_buffer_size: false, ..able };
    assert_eq!(check(features, &unable), missing("entries of one length"));
    for with_bsf in
        [MkeyFeatures { block_signature: true, ..features }, MkeyFeatures { crypto: true, ..features }]
    {
        let refused = missing("entries of one length with signatures or AES-XTS");
        assert_eq!(check(with_bsf, &able), refused);
    }
}

#[test]
fn mkeys_come_back_as_keys_and_become_shadows() {
    let command = CreateMkey {
        tag: 0x5a,
        ..mkey(MkeyFeatures { block_signature: true, crypto: true, ..Default::default() })
    };
    let key = command.decode(&from_words(16, &[(8, 0xff12_3456)])).unwrap();
    assert_eq!(key, Key::from_raw(0x1234_565a));
    let device = general(GENERAL);
    let psvs = [PsvIndex::new(1).unwrap(), PsvIndex::new(2).unwrap()];
    let attributes = command.attributes(key, &device, psvs).unwrap();
    assert_eq!(attributes.crypto, Some(XtsEngine::MultiBlock));
    let signature = attributes.signature.unwrap();
    assert_eq!((signature.memory_psv, signature.wire_psv), (psvs[0], psvs[1]));
    assert!(signature.capabilities.crc32c && !signature.capabilities.crc64_xp10);
    assert!(!attributes.tag_update, "the kernel's to say");
    assert_eq!(Mkey::new(attributes).key(), key);

    let none = GeneralCapabilities { log_max_entries: 5, ..general(&[]) };
    let missing = |features: MkeyFeatures| mkey(features).check(&none).unwrap_err().to_string();
    assert_eq!(
        missing(MkeyFeatures { block_signature: true, ..Default::default() }),
        "CREATE_MKEY: the device has no block signatures"
    );
    assert_eq!(
        missing(MkeyFeatures { crypto: true, ..Default::default() }),
        "CREATE_MKEY: the device has no AES-XTS"
    );
    for (features, what) in [
        (MkeyFeatures { relaxed_ordering_write: true, ..Default::default() }, "writes"),
        (MkeyFeatures { relaxed_ordering_read: true, ..Default::default() }, "reads"),
    ] {
        assert_eq!(missing(features), format!("CREATE_MKEY: the device has no relaxed ordering of {what}"));
    }
    let by_2_64 = GeneralCapabilities { crypto: true, xts_multi_block: true, xts_tweak_inc_64: true, ..none };
    let refused = mkey(MkeyFeatures { crypto: true, ..MkeyFeatures::default() }).check(&by_2_64);
    assert!(refused.unwrap_err().to_string().contains("aes_xts_tweak_inc_64 is on"));
    for device in [none, by_2_64] {
        assert_eq!(mkey(MkeyFeatures::default()).check(&device), Ok(()));
    }
}

#[test]
fn memory_regions() {
    let command = CreateMemoryRegion {
        pd: pd(),
        access: Access::ALL,
        address: 0x1234_5678_9000,
        length: 0x4001,
        memory: UmemSlice { umem: UmemId(0x89ab_cdef), offset: 0x11_2233_4455 },
        page_size: LogPageSize::P4K,
        tag: 0x5a,
    };
    // The expected words come from rdma-core's macros. The words with the number and the offset of the user
    // memory are exceptions, because rdma-core's header lacks these two fields.
    words(
        &command,
        &[
            (0, 0x0200_0000),
            (0xc, 0xc000_0000),
            (0x10, 0x0000_7d00),
            (0x14, 0xffff_ff5a),
            (0x1c, 0x00ab_cdef),
            (0x20, 0x0000_1234),
            (0x24, 0x5678_9000),
            (0x2c, 0x0000_4001),
            (0x44, 3),
            (0x48, 12),
            (0x60, 3),
            (0x64, 0x89ab_cdef),
            (0x68, 0x0000_0011),
            (0x6c, 0x2233_4455),
        ],
    );
    // The cases are regions of one byte within a page, of two bytes across the border of two pages, and
    // longer ones. The closure returns the number of octowords, and also checks the byte with the rights.
    let octowords = |address, length| {
        let mut mailbox = [0; CreateMemoryRegion::INPUT];
        let command = CreateMemoryRegion { address, length, access: Access::REMOTE_READ, ..command };
        let request = command.encode(&mut mailbox).unwrap();
        assert_eq!(request[0x12], 0x15, "remote and local read, translation by pages");
        u32::from_be_bytes(request[0x60..0x64].try_into().unwrap())
    };
    assert_eq!(octowords(0x1fff, 1), 1);
    assert_eq!(octowords(0x1fff, 2), 1, "two pages of 8 bytes each");
    assert_eq!(octowords(0x1fff, 0x1002), 2, "three pages");
    assert_eq!(octowords(0x0800, 0x1801), 2, "three pages, from the middle of the first");
    assert_eq!(octowords(u64::MAX, u64::MAX), u32::MAX);
    let reply = from_words(16, &[(8, 0xff12_3456)]);
    assert_eq!(command.decode(&reply).map(Key::get), Ok(0x1234_565a));
    words(&DestroyMkey(MkeyIndex::new(0x12_3456).unwrap()), &[(0, 0x0202_0000), (8, 0x12_3456)]);
}

#[test]
fn mkeys_have_no_more_entries_than_the_device_takes() {
    let device = GeneralCapabilities { log_max_entries: 4, ..general(&[]) };
    let refused = mkey(MkeyFeatures::default()).check(&device).unwrap_err();
    assert_eq!(refused.to_string(), "CREATE_MKEY: 20 translation entries, the device takes 16");
    let most = CreateMkey { max_entries: EntryCount::new(16).unwrap(), ..mkey(MkeyFeatures::default()) };
    assert_eq!(most.check(&device), Ok(()));
    let list = [KlmEntry { address: 0, length: 1, key: Key::from_raw(0x5600) }; 17];
    let new =
        |count: usize| CreateListMkey::new(pd(), Access::NONE, 0, MkeyEntries::Klm(&list[..count]), &device);
    assert_eq!(new(16).unwrap().length(), 16);
    assert_eq!(new(17).unwrap_err().to_string(), "CREATE_MKEY: 17 translation entries, the device takes 16");
    assert_eq!(GeneralCapabilities { log_max_entries: 63, ..device }.max_entries(), u32::MAX);
}

/// A UMR must be able to name every entry of the mkey that it configures, so without
/// `extended_translation_offset` the limit is 65,536 entries. For an mkey that is created with its list this
/// limit does not hold, because no UMR changes the list.
#[test]
fn m84_mkeys_have_as_many_entries_as_requests_can_name() {
    let device = |log, bit: u32| general(&[(0x30, bit << 7 | log)]);
    for (log, bit, max) in [(16, 0, 1 << 16), (15, 0, 1 << 15), (18, 0, 1 << 16), (18, 1, 1 << 18)] {
        let device = device(log, bit);
        assert_eq!(device.extended_translation_offset, bit == 1);
        assert_eq!((device.max_entries(), device.max_umr_entries()), (1 << log, max), "{log} {bit}");
        let entries = |count| CreateMkey {
            max_entries: EntryCount::new(count).unwrap(),
            ..mkey(MkeyFeatures::default())
        };
        let most = entries(max);
        assert_eq!(most.check(&device), Ok(()));
        let head = [(0, 0x0200_0000), (0x10, 0x4000_8600), (0x14, 0xffff_ff00), (0x1c, 0x00ab_cdef)];
        words(&most, &[&head[..], &[(0x44, max)]].concat());
        let refused = entries(max + 1).check(&device).unwrap_err();
        let text = std::format!("CREATE_MKEY: {} translation entries, the device takes {max}", max + 4);
        assert_eq!(refused.to_string(), text);
    }
    let list = std::vec![KlmEntry { address: 0, length: 1, key: Key::from_raw(0x5600) }; (1 << 16) + 1];
    let new = |device| CreateListMkey::new(pd(), Access::NONE, 0, MkeyEntries::Klm(&list), &device);
    assert_eq!(new(device(18, 0)).unwrap().length(), (1 << 16) + 1);
    assert!(new(device(16, 1)).is_err());
}

#[test]
fn an_mkey_brings_its_list() {
    let device =
        GeneralCapabilities { fixed_buffer_size: true, relaxed_ordering_read: true, ..general(GENERAL) };
    let keys = [0x0102_0304, 0x1112_1314, 0x2122_2324, 0x3132_3334, 0x4142_4344].map(Key::from_raw);
    let entries = keys.map(|key| KlmEntry { address: 0x1122_3344_5566_7788, length: 0x1000_0001, key });
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let new = |entries| CreateListMkey::new(pd(), access, 0x7000_0000_1234, entries, &device).unwrap();
    // The expected bytes come from DPDK's `mlx5_devx_cmd_mkey_create` for five entries, padded to eight.
    let command = new(MkeyEntries::Klm(&entries)).with_tag(0x5a);
    assert_eq!((command.address(), command.length()), (0x7000_0000_1234, 0x5000_0005));
    let mut golden = vec![
        (0, 0x0200_0000),
        (0x10, 0x0000_1e00),
        (0x14, 0xffff_ff5a),
        (0x1c, 0x00ab_cdef),
        (0x20, 0x0000_7000),
        (0x24, 0x0000_1234),
        (0x2c, 0x5000_0005),
        (0x44, 8),
        (0x60, 8),
    ];
    for (key, at) in keys.iter().zip((0x110..).step_by(16)) {
        golden.extend([
            (at, 0x1000_0001),
            (at + 4, key.get()),
            (at + 8, 0x1122_3344),
            (at + 12, 0x5566_7788),
        ]);
    }
    assert_eq!(command.input_bytes(), 0x110 + 8 * 16);
    assert_encodes(&command, &from_words(command.input_bytes(), &golden));
    assert_eq!(command.decode(&from_words(16, &[(8, 0x12_3456)])), Ok(Key::from_raw(0x1234_565a)));

    // If all entries have one length, the access mode is 3, the length is in `log_page_size`, and the entries
    // have a length of 0 (kernel `mlx5_ksm`).
    let fixed = keys.map(|key| KsmEntry { address: 0x1122_3344_5566_7788, key });
    let command = new(MkeyEntries::Ksm(KsmEntrySize::new(1 << 21).unwrap(), &fixed[..2]))
        .with_length((2 << 21) - 1)
        .unwrap()
        .with_relaxed_ordering(&device)
        .unwrap();
    assert_encodes(
        &command,
        &from_words(
            0x110 + 4 * 16,
            &[
                (0, 0x0200_0000),
                (0x10, 0x0004_1f00),
                (0x14, 0xffff_ff00),
                (0x1c, 0x00ab_cdef),
                (0x20, 0x0000_7000),
                (0x24, 0x0000_1234),
                (0x2c, 0x003f_ffff),
                (0x44, 4),
                (0x48, 0x55),
                (0x60, 4),
                (0x114, keys[0].get()),
                (0x118, 0x1122_3344),
                (0x11c, 0x5566_7788),
                (0x124, keys[1].get()),
                (0x128, 0x1122_3344),
                (0x12c, 0x5566_7788),
            ],
        ),
    );
}

#[test]
fn lists_that_no_mkey_can_have_are_refused() {
    let device = GeneralCapabilities { relaxed_ordering_write: false, ..general(GENERAL) };
    let entry = KlmEntry { address: 0, length: 1 << 31, key: Key::from_raw(0x5600) };
    let new = |address, entries: &[KlmEntry]| {
        CreateListMkey::new(pd(), Access::NONE, address, MkeyEntries::Klm(entries), &device)
            .map(|mkey| mkey.length())
            .map_err(|error| error.to_string())
    };
    let refused = |text: &str| Err(format!("CREATE_MKEY: {text}"));
    assert_eq!(new(0, &[entry; 4]), Ok(4 << 31));
    for length in [0, (1 << 31) + 1] {
        let text = format!("entry 1 has {length} bytes, an entry has 1 to 2147483648");
        assert_eq!(new(0, &[entry, KlmEntry { length, ..entry }]), refused(&text));
    }
    assert_eq!(new(0, &[]), refused("a space of 0 bytes, it can have 0"));
    assert_eq!(new(u64::MAX - (1 << 31) + 1, &[entry]), Ok(1 << 31), "to the last address");
    assert_eq!(new(u64::MAX - 7, &[entry]), refused("a space of 2147483648 bytes, it can have 8"));
    let whole = [entry];
    let list = CreateListMkey::new(pd(), Access::NONE, 0, MkeyEntries::Klm(&whole), &device).unwrap();
    assert_eq!(list.with_length(1).unwrap().length(), 1);
    assert!(list.with_length((1 << 31) + 1).is_err() && list.with_length(0).is_err());
    assert!(list.with_relaxed_ordering(&device).is_err());
    let fixed = [KsmEntry::default()];
    let size = KsmEntrySize::new(4096).unwrap();
    let refused = CreateListMkey::new(pd(), Access::NONE, 0, MkeyEntries::Ksm(size, &fixed), &device);
    assert_eq!(refused.unwrap_err().to_string(), "CREATE_MKEY: the device has no entries of one length");
    assert_eq!((KsmEntrySize::new(KsmEntrySize::MAX).unwrap().bytes(), size.bytes()), (1 << 31, 4096));
    for bytes in [0, 2048, 4097, 3 << 20, u32::MAX] {
        assert!(KsmEntrySize::new(bytes).is_err(), "{bytes}");
    }
}

#[test]
fn a_list_gives_no_right_to_atomics_where_there_are_none() {
    let entries = [KlmEntry { address: 0, length: 4096, key: Key::from_raw(0x100) }];
    let new = |access, atomic| {
        let device = GeneralCapabilities { atomic, ..general(GENERAL) };
        CreateListMkey::new(pd(), access, 0, MkeyEntries::Klm(&entries), &device).map(drop)
    };
    let refused = CommandError::Unsupported { command: Opcode::CREATE_MKEY, what: "atomics" };
    assert_eq!(new(Access::REMOTE_ATOMIC, false), Err(refused));
    assert_eq!((new(Access::REMOTE_ATOMIC, true), new(Access::REMOTE_READ, false)), (Ok(()), Ok(())));
}
