//! Generators of random configurations for property tests: access rights, block signatures, crypto properties
//! and layouts. They generate no digests.

use super::std::vec::Vec;
use crate::mkey::*;
use crate::types::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

pub(super) fn seeds() -> impl Strategy<Value = Seed> {
    prop_oneof![Just(Seed::Zeros), Just(Seed::Ones)]
}

pub(super) fn sizes() -> impl Strategy<Value = BlockSize> {
    proptest::sample::select(&BlockSize::ALL[..])
}

pub(super) fn signatures() -> impl Strategy<Value = Signature> {
    let guard = prop_oneof![Just(Guard::Crc), Just(Guard::IpChecksum)];
    let escape = prop_oneof![Just(Escape::Never), Just(Escape::AppTag), Just(Escape::AppAndRefTag)];
    // Tags have few different values, so that the tags of two domains often agree.
    let dif = (guard, seeds(), 0..3_u16, 0..3_u32, any::<bool>(), escape).prop_map(
        |(guard, seed, app_tag, ref_tag, ref_remap, escape)| {
            Signature::T10Dif(T10Dif { guard, seed, app_tag, ref_tag, ref_remap, escape })
        },
    );
    prop_oneof![
        3 => dif,
        1 => seeds().prop_map(Signature::Crc32),
        1 => seeds().prop_map(Signature::Crc32c),
        1 => seeds().prop_map(Signature::Crc64Xp10),
    ]
}

pub(super) fn domains() -> impl Strategy<Value = Domain> {
    (signatures(), sizes()).prop_map(|(signature, block_size)| Domain { signature, block_size })
}

pub(super) fn blocks() -> impl Strategy<Value = BlockSignature> {
    let masked = (domains(), domains(), any::<bool>(), any::<u8>(), of(any::<u8>()), 0..3);
    masked.prop_map(|(memory, wire, alike, check, copy, which)| {
        let wire = if alike { Domain { block_size: memory.block_size, ..wire } } else { wire };
        let block = match which {
            0 => BlockSignature::memory(memory),
            1 => BlockSignature::wire(wire),
            _ => BlockSignature::both(memory, wire),
        };
        let block = block.with_check_mask(check);
        copy.and_then(|mask| block.with_copy_mask(mask).ok()).unwrap_or(block)
    })
}

pub(super) fn cryptos() -> impl Strategy<Value = Crypto> {
    let directions = prop_oneof![Just(Direction::EncryptOnTx), Just(Direction::DecryptOnTx)];
    let orders = prop_oneof![Just(SignatureOrder::AfterCryptoOnTx), Just(SignatureOrder::BeforeCryptoOnTx)];
    (directions, orders, sizes(), any::<u128>(), 0..1_u32 << 24, any::<[u8; 8]>()).prop_map(
        |(direction, order, data_unit, tweak, dek, keytag)| Crypto {
            direction,
            order,
            data_unit,
            tweak: Tweak::new(tweak),
            dek: DekId::from_low_bits(dek),
            keytag: Keytag(keytag),
        },
    )
}

pub(super) fn changes() -> impl Strategy<Value = SignatureChange> {
    prop_oneof![
        Just(SignatureChange::Keep),
        Just(SignatureChange::Reset),
        blocks().prop_map(SignatureChange::Set)
    ]
}

#[derive(Clone, Debug)]
pub(super) enum Entries {
    Keep,
    List(Vec<KlmEntry>),
    Interleaved(u32, Vec<InterleavedEntry>),
}

impl Entries {
    pub(super) fn layout(&self) -> Layout<'_> {
        match self {
            Self::Keep => Layout::Unchanged,
            Self::List(entries) => Layout::List(entries),
            Self::Interleaved(repeat, entries) => Layout::Interleaved { repeat: *repeat, entries },
        }
    }

    /// Returns how many bytes the layout maps, `None` for an unchanged layout.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::Keep => None,
            Self::List(entries) => Some(entries.iter().map(|entry| u64::from(entry.length)).sum()),
            Self::Interleaved(repeat, entries) => {
                let cycle: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
                Some(cycle * u64::from(*repeat))
            }
        }
    }
}

/// Returns a generator of all memory keys except 0x400. The decoder would read a list that begins with this
/// key as an interleaved layout.
pub(super) fn keys() -> impl Strategy<Value = Key> {
    any::<u32>().prop_filter("0x400 is ambiguous", |key| *key != 0x400).prop_map(Key::from_raw)
}

pub(super) fn entries() -> impl Strategy<Value = Entries> {
    let length = prop_oneof![1..=0x1_0000_u32, 1..=KlmEntry::MAX_BYTES];
    let entry = (any::<u64>(), length, keys());
    let list = vec(entry.prop_map(|(address, length, key)| KlmEntry { address, length, key }), 0..20);
    let stream = (any::<u64>(), any::<u16>(), any::<u16>(), keys());
    let stream = stream.prop_map(|(address, a, b, key)| InterleavedEntry {
        address,
        bytes: a.min(b),
        skip: a.abs_diff(b),
        key,
    });
    let interleaved = (any::<u32>(), vec(stream, 0..20));
    prop_oneof![
        1 => Just(Entries::Keep),
        3 => list.prop_map(Entries::List),
        3 => interleaved.prop_map(|(repeat, entries)| Entries::Interleaved(repeat, entries)),
    ]
}

pub(super) fn accesses() -> impl Strategy<Value = Access> {
    let rights = [Access::LOCAL_WRITE, Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    proptest::sample::subsequence(rights.to_vec(), 0..=4)
        .prop_map(|rights| rights.into_iter().fold(Access::NONE, Access::union))
}

pub(super) fn engines() -> impl Strategy<Value = XtsEngine> {
    prop_oneof![Just(XtsEngine::MultiBlock), Just(XtsEngine::SingleBlock), Just(XtsEngine::Unspecified)]
}
