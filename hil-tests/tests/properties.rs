//! Properties for random parameters: transfers restore memory, a single wrong bit is found, and a request
//! has the same bytes at every place of a send ring.

use hil_tests::board::{DekSpec, MkeySpec, SoftBoard};
use hil_tests::doorbell::Silent;
use hil_tests::expected;
use hil_tests::qp_pair::{QpPairFixture, Rx, Tx};
use mlx5_mkey::error::PostError;
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, Escape, Guard, InterleavedEntry, Keytag, KlmEntry,
    Layout, Mkey, MkeyAttributes, MkeyConfig, Signature, SignatureAttributes, SignatureChange,
    SignatureOrder, T10Dif, XtsEngine, check_mask, job_size_can_be_encrypted,
};
use mlx5_mkey::queue::{DoorbellRecord, SendQueue, SendQueueConfig, SendSlot};
use mlx5_mkey::types::{BlockSize, DekId, DomainKind, Key, PsvIndex, Qpn, Seed, Tweak};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::mkey_context::AccessByte;
use mlx5_mkey::wqe::PreparedConfig;
use mlx5_softdev::DeviceProfile;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn seed() -> impl Strategy<Value = Seed> {
    select(vec![Seed::Zeros, Seed::Ones])
}

fn dif() -> impl Strategy<Value = T10Dif> {
    let guard = select(vec![Guard::Crc, Guard::IpChecksum]);
    // Some values are frequent, so that both domains often get the same tag.
    let app_tag = prop_oneof![Just(0x5678), Just(0), any::<u16>()];
    let ref_tag = prop_oneof![Just(7), Just(u32::MAX), any::<u32>()];
    (guard, seed(), app_tag, ref_tag, any::<bool>()).prop_map(|(guard, seed, app_tag, ref_tag, ref_remap)| {
        T10Dif { guard, seed, app_tag, ref_tag, ref_remap, escape: Escape::Never }
    })
}

fn kind() -> impl Strategy<Value = Signature> {
    prop_oneof![
        3 => dif().prop_map(Signature::T10Dif),
        1 => seed().prop_map(Signature::Crc32),
        1 => seed().prop_map(Signature::Crc32c),
        1 => seed().prop_map(Signature::Crc64Xp10),
    ]
}

fn block_size() -> impl Strategy<Value = BlockSize> {
    select(BlockSize::ALL.to_vec())
}

/// Returns random signatures for the memory and the wire domain. Fields that the device copies from one
/// domain to the other have the same value in both.
fn pair() -> impl Strategy<Value = (Signature, Signature)> {
    (kind(), kind()).prop_map(|(memory, wire)| {
        let wire = match (memory, wire) {
            (Signature::T10Dif(memory), Signature::T10Dif(wire)) => {
                Signature::T10Dif(T10Dif { ref_remap: memory.ref_remap, ..wire })
            }
            (Signature::Crc32(_), Signature::Crc32(_))
            | (Signature::Crc32c(_), Signature::Crc32c(_))
            | (Signature::Crc64Xp10(_), Signature::Crc64Xp10(_)) => memory,
            _ => wire,
        };
        (memory, wire)
    })
}

/// Returns a random signature in one domain or in both.
fn signature() -> impl Strategy<Value = BlockSignature> {
    (0..4u8, pair(), block_size(), any::<bool>()).prop_map(|(arrangement, (memory, wire), size, mixed)| {
        let domain = |signature, block_size| Domain { signature, block_size };
        match arrangement {
            0 => BlockSignature::memory(domain(memory, size)),
            1 => BlockSignature::wire(domain(wire, size)),
            2 if mixed => {
                BlockSignature::both(domain(memory, BlockSize::B512), domain(wire, BlockSize::B4096))
            }
            2 => BlockSignature::both(domain(memory, size), domain(memory, size)),
            _ => BlockSignature::both(domain(memory, size), domain(wire, size)),
        }
    })
}

/// Returns the number of data bytes in the larger block of the two domains. A multiple of this number ends at
/// a block's end in both.
fn whole_blocks(signature: Option<&BlockSignature>) -> usize {
    let Some(signature) = signature else { return 512 };
    let domains = signature.memory_domain().into_iter().chain(signature.wire_domain());
    domains.map(|domain| domain.block_size.bytes() as usize).max().unwrap_or(512)
}

fn direction() -> impl Strategy<Value = Direction> {
    select(vec![Direction::EncryptOnTx, Direction::DecryptOnTx])
}

fn order() -> impl Strategy<Value = SignatureOrder> {
    select(vec![SignatureOrder::AfterCryptoOnTx, SignatureOrder::BeforeCryptoOnTx])
}

/// Returns random parameters of a cipher: direction, signature order, tweak, key, and an index that selects
/// the data unit.
fn cipher() -> impl Strategy<Value = (Direction, SignatureOrder, u128, Vec<u8>, Index)> {
    let key = prop_oneof![vec(any::<u8>(), 32), vec(any::<u8>(), 64)];
    let tweak = prop_oneof![any::<u64>().prop_map(u128::from), any::<u128>(), Just(u128::from(u64::MAX))];
    (direction(), order(), tweak, key, any::<Index>())
}

/// Divides bytes into parts at `cuts`, and writes the parts to memory in descending order and with gaps.
/// Returns the layout entries, and the address and length of each part.
fn scatter(pair: &mut QpPairFixture<'_>, bytes: &[u8], cuts: &[Index]) -> (Vec<KlmEntry>, Vec<(u64, usize)>) {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).chain([bytes.len()]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends.retain(|end| *end > 0);
    let room = pair.region(&vec![0x99; bytes.len() + 64 * ends.len()]);
    let mut at = room.address + room.length as u64;
    let (mut entries, mut places, mut start) = (Vec::new(), Vec::new(), 0);
    for end in ends {
        let length = end - start;
        at -= length as u64 + 3;
        pair.board.write(at, &bytes[start..end]);
        entries.push(KlmEntry { address: at, length: length as u32, key: room.key });
        places.push((at, length));
        start = end;
    }
    (entries, places)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// A transfer out of an mkey must put the bytes on the wire that the test computes itself. A transfer of
    /// these bytes into the mkey must restore its memory.
    #[test]
    fn a_transfer_out_and_in_restores_memory(
        signature in proptest::option::weighted(0.8, signature()),
        cipher in proptest::option::weighted(0.7, cipher()),
        blocks in 1..4usize,
        bytes in any::<u64>(),
        cuts in vec(any::<Index>(), 0..8),
        (tx, rx) in (select(Tx::ALL.to_vec()), select(Rx::ALL.to_vec())),
    ) {
        let mut board = SoftBoard::new(DeviceProfile::default());
        let mut pair = QpPairFixture::new(&mut board);
        let length = blocks * whole_blocks(signature.as_ref());
        let byte = |at: u64| ((bytes ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let data: Vec<u8> = (0..length as u64).map(byte).collect();
        let crypto = match &cipher {
            None => None,
            Some((direction, order, tweak, key, unit)) => {
                let plain = expected::images(&data, signature.as_ref(), None);
                let encrypted = match (direction, order) {
                    (Direction::EncryptOnTx, SignatureOrder::BeforeCryptoOnTx) => plain.wire.len(),
                    (Direction::DecryptOnTx, SignatureOrder::AfterCryptoOnTx) => plain.memory.len(),
                    _ => data.len(),
                };
                let fits = |unit: &BlockSize| job_size_can_be_encrypted(encrypted as u64, *unit);
                let units: Vec<BlockSize> = BlockSize::ALL.into_iter().filter(fits).collect();
                prop_assume!(!units.is_empty());
                let dek = pair.board.create_dek(DekSpec { key, keytag: None });
                let (direction, order, tweak) = (*direction, *order, Tweak::new(*tweak));
                let (data_unit, keytag) = (*unit.get(&units), Keytag::default());
                let crypto = Crypto { direction, order, data_unit, tweak, dek, keytag };
                let has_both =
                    |it: BlockSignature| it.memory_domain().is_some() && it.wire_domain().is_some();
                let both = signature.is_some_and(has_both);
                prop_assume!(!(both && crypto.signature_is_outside()));
                Some((crypto, key))
            }
        };
        let cipher = crypto.as_ref().map(|(crypto, key)| (crypto, &key[..]));
        let images = expected::images(&data, signature.as_ref(), cipher);
        let (entries, places) = scatter(&mut pair, &images.memory, &cuts);
        let (signed, encrypted) = (signature.is_some(), crypto.is_some());
        let spec = MkeySpec { entries: 16, signature: signed, crypto: encrypted, ..MkeySpec::default() };
        let mkey = pair.mkey(spec);
        let config = MkeyConfig {
            access: Some(Access::ALL),
            signature: signature.map_or(SignatureChange::Keep, SignatureChange::Set),
            crypto: crypto.map(|(crypto, _)| crypto),
        };
        // The library normally refuses data units that begin inside a block. They are allowed here, because
        // all data move in one transfer.
        let prepared = pair.near.way().prepare_with_any_data_unit(pair.mkeys[mkey].kind(), &config);
        let prepared = prepared.map_err(|error| TestCaseError::fail(error.to_string()))?;
        pair.configure_prepared(mkey, &prepared, entries.as_slice()).map_err(TestCaseError::fail)?;
        let sent = pair.tx(tx, mkey, 0, images.wire.len());
        let wire = sent.and_then(|moved| moved.ok()).map_err(TestCaseError::fail)?;
        prop_assert_eq!(&wire, &images.wire);
        for (address, length) in &places {
            pair.board.write(*address, &vec![0; *length]);
        }
        pair.rx(rx, mkey, 0, &wire).and_then(|moved| moved.ok()).map_err(TestCaseError::fail)?;
        let read = |(address, length): &(u64, usize)| pair.board.read(*address, *length);
        let back: Vec<u8> = places.iter().flat_map(read).collect();
        prop_assert_eq!(&back, &images.memory);
        if signature.is_some() {
            prop_assert_eq!(pair.check(mkey), Ok(None));
        }
    }

    /// A signature error must be reported, with the number of its block, if the check mask covers the byte
    /// with the wrong bit of the signature, and ignored otherwise. A wrong bit of the data must be reported
    /// if the mask covers the whole guard, and ignored if the mask covers no byte of the guard.
    #[test]
    fn a_single_wrong_bit_is_found_where_it_is_looked_for(
        signature in kind(),
        block_size in block_size(),
        mask in prop_oneof![Just(0xffu8), Just(0), any::<u8>()],
        on_the_wire in any::<bool>(),
        blocks in 1..4usize,
        (in_signature, place, block, bit) in (any::<bool>(), any::<Index>(), any::<Index>(), 0..8u32),
    ) {
        let mut board = SoftBoard::new(DeviceProfile::default());
        let mut pair = QpPairFixture::new(&mut board);
        let domain = Domain { signature, block_size };
        let length = blocks * block_size.bytes() as usize;
        let data: Vec<u8> = (0..length).map(|at| (at * 31 + at / 251) as u8).collect();
        let mut stream = expected::sign(&data, Some(&domain));
        let (stride, unsigned) = (domain.stride() as usize, block_size.bytes() as usize);
        let block = block.index(blocks);
        let within = match in_signature {
            true => unsigned + place.index(signature.bytes() as usize),
            false => place.index(unsigned),
        };
        stream[block * stride + within] ^= 1 << bit;
        let guard = match signature {
            Signature::T10Dif(_) => check_mask::T10DIF_GUARD,
            Signature::Crc32(_) | Signature::Crc32c(_) => check_mask::CRC32,
            Signature::Crc64Xp10(_) => check_mask::CRC64,
        };
        let reported = if in_signature {
            Some(mask & 0x80 >> (within - unsigned) != 0)
        } else if mask & guard == guard {
            Some(true)
        } else if mask & guard == 0 {
            Some(false)
        } else {
            None
        };
        let rule = if on_the_wire { BlockSignature::wire(domain) } else { BlockSignature::memory(domain) };
        let memory = pair.region(&stream);
        let entries = [KlmEntry { address: memory.address, length: memory.length as u32, key: memory.key }];
        let mkey = pair.mkey(MkeySpec { entries: 1, signature: true, ..MkeySpec::default() });
        let config = MkeyConfig {
            access: Some(Access::ALL),
            signature: SignatureChange::Set(rule.with_check_mask(mask)),
            ..MkeyConfig::UNCHANGED
        };
        pair.configure(mkey, &config, &entries).map_err(TestCaseError::fail)?;
        let moved = if on_the_wire {
            pair.rx(Rx::PeerWrite, mkey, 0, &stream)
        } else {
            pair.tx(Tx::Send, mkey, 0, data.len())
        };
        moved.and_then(|moved| moved.ok()).map_err(TestCaseError::fail)?;
        let error = pair.check(mkey);
        if let Some(reported) = reported {
            prop_assert_eq!(matches!(error, Ok(Some(_))), reported, "{:?}", error);
        }
        if let Ok(Some(error)) = error {
            prop_assert_eq!(error.block_index(), block as u64);
            prop_assert_eq!(error.domain, if on_the_wire { DomainKind::Wire } else { DomainKind::Memory });
        }
    }
}

/// Number of blocks of the ring in the property `requests_look_alike_at_every_place_of_a_ring`.
const SMALL: usize = 16;

/// Posts a configuration to a ring whose first request begins at block `first`. Returns the blocks of the
/// request in order, with zeros in place of the block numbers.
fn linear(
    attributes: MkeyAttributes,
    config: &MkeyConfig,
    layout: Layout<'_>,
    first: u32,
) -> Result<Vec<u8>, PostError> {
    let (mut ring, record) = ([Wqebb([0xa5; 64]); SMALL], DoorbellRecord::new());
    let start = SendQueueConfig { first_block: first, ..SendQueueConfig::new(Qpn::from_low_bits(0x1234)) };
    let mut slots = SendSlot::array::<SMALL>();
    let mut queue = SendQueue::new(start, &mut ring, &mut slots, &record, Silent).expect("a ring");
    let mut mkey = Mkey::new(attributes);
    let prepared = PreparedConfig::new(mkey.kind(), config)?;
    queue.request(1).signaled().configure_mkey(&mut mkey, &prepared, layout)?;
    let blocks = queue.producer().wrapping_sub(first) as usize;
    let all: Vec<u8> = (0..SMALL as u32).flat_map(|at| queue.block(first.wrapping_add(at)).0).collect();
    let (bytes, rest) = all.split_at(64 * blocks);
    assert!(rest.iter().all(|byte| *byte == 0xa5), "a block too many");
    let (mut bytes, mut at) = (bytes.to_vec(), 0);
    while at < bytes.len() {
        bytes[at + 1..at + 3].fill(0);
        let size = usize::from(bytes[at + 7]) * 16;
        let end = at + size.next_multiple_of(64);
        // The device ignores the bytes after the end of a request in its last block: they become zeros for
        // the comparison.
        bytes[at + size..end].fill(0);
        at = end;
    }
    Ok(bytes)
}

proptest! {
    /// A configuration has the same bytes at every place of the ring (except for block numbers), and leaves
    /// all other blocks unchanged.
    #[test]
    fn requests_look_alike_at_every_place_of_a_ring(
        access in proptest::option::of(any::<u8>()),
        entries in proptest::option::of(vec((any::<u64>(), 1..0x8000u32, any::<u32>()), 0..=24)),
        repeat in proptest::option::of(any::<u16>()),
        block in proptest::option::of(signature()),
        cipher in proptest::option::of(cipher()),
        laps in select(vec![0u32, 1, 0xfff, 0x1000, 0x0fff_fffe]),
    ) {
        let rights = |byte| Access::from_wire(AccessByte::from_bits(byte));
        let entries = entries.unwrap_or_default();
        let key = Key::from_raw;
        let entry = |(address, length, lkey): &(u64, u32, u32)| {
            KlmEntry { address: *address, length: *length, key: key(*lkey) }
        };
        let list: Vec<KlmEntry> = entries.iter().map(entry).collect();
        let stream = |(address, bytes, lkey): &(u64, u32, u32)| {
            let bytes = *bytes as u16;
            InterleavedEntry { address: *address, bytes, skip: bytes - 1, key: key(*lkey) }
        };
        let streams: Vec<InterleavedEntry> = entries.iter().map(stream).collect();
        let layout = match repeat {
            Some(repeat) => Layout::Interleaved { repeat: repeat.into(), entries: &streams },
            None => Layout::List(&list),
        };
        let crypto = cipher.map(|(direction, order, tweak, _, unit)| Crypto {
            direction,
            order,
            data_unit: *unit.get(&BlockSize::ALL),
            tweak: Tweak::new(tweak),
            dek: DekId::from_low_bits(0x00ab_cdef),
            keytag: Keytag([9; 8]),
        });
        let signature = block.map_or(SignatureChange::Reset, SignatureChange::Set);
        let config = MkeyConfig { access: access.map(rights), signature, crypto };
        let psv = PsvIndex::from_low_bits;
        let attributes = MkeyAttributes {
            signature: Some(SignatureAttributes::new(psv(0x11), psv(0x22))),
            crypto: Some(XtsEngine::MultiBlock),
            ..MkeyAttributes::plain(key(0x5600), 32)
        };
        let first = linear(attributes, &config, layout, laps * SMALL as u32);
        for offset in 1..SMALL as u32 {
            let other = linear(attributes, &config, layout, laps * SMALL as u32 + offset);
            prop_assert_eq!(&other, &first, "at block {}", offset);
        }
    }
}
