//! Chooses values of all types that users pass to the library, from the bytes of a fuzz input.

use crate::input::Input;
use hil_scenarios::request::OwnedLayout;
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, ErrorCount, Escape, Guard, InterleavedEntry, Keytag,
    KlmEntry, MkeyAttributes, MkeyConfig, Signature, SignatureAttributes, SignatureCapabilities,
    SignatureChange, SignatureOrder, T10Dif, UmrForm, XtsEngine,
};
use mlx5_mkey::types::{BlockSize, DekId, Key, KsmEntrySize, PsvIndex, Seed, Tweak};
use mlx5_mkey::wire::mkey_context::AccessByte;
use mlx5_mkey::wqe::{Remote, Sge};

/// A valid AES-XTS key.
pub(crate) const KEY: [u8; 64] = {
    let mut key = [7; 64];
    key[0] = 8;
    key
};

/// Returns a number, often one next to a limit.
pub(crate) fn edge(input: &mut Input<'_>) -> u64 {
    match input.below(4) {
        0 => input.pick(&[0, 1, 2, 15, 16, 17, 512, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, 0x8000_0001]),
        1 => input.pick(&[u64::MAX, u64::MAX - 1, u32::MAX.into(), 1 << 32, 1 << 31, (1 << 24) - 1, 1 << 24]),
        2 => input.any::<u8>().into(),
        _ => input.any(),
    }
}

/// Returns a length in bytes, mostly a valid one.
fn length(input: &mut Input<'_>) -> u32 {
    if input.one_in(8) { edge(input) as u32 } else { 1 + u32::from(input.any::<u16>()) }
}

pub(crate) fn key(input: &mut Input<'_>) -> Key {
    Key::from_raw(edge(input) as u32)
}

pub(crate) fn klm(input: &mut Input<'_>) -> KlmEntry {
    KlmEntry { address: edge(input), length: length(input), key: key(input) }
}

pub(crate) fn sge(input: &mut Input<'_>) -> Sge {
    Sge { address: edge(input), length: length(input), lkey: key(input) }
}

pub(crate) fn sges(input: &mut Input<'_>) -> Vec<Sge> {
    let count = if input.one_in(6) { input.below(70) } else { input.below(6) };
    (0..count).map(|_| sge(input)).collect()
}

pub(crate) fn remote(input: &mut Input<'_>) -> Remote {
    Remote { address: edge(input), rkey: key(input) }
}

fn seed(input: &mut Input<'_>) -> Seed {
    input.pick(&[Seed::Zeros, Seed::Ones])
}

/// Chooses a T10-DIF. Its tags are among few values, so that two domains often agree.
fn dif(input: &mut Input<'_>) -> T10Dif {
    T10Dif {
        guard: input.pick(&[Guard::Crc, Guard::IpChecksum]),
        seed: seed(input),
        app_tag: input.pick(&[0, 1, 0xffff]),
        ref_tag: input.pick(&[0, 1, u32::MAX]),
        ref_remap: input.any(),
        escape: input.pick(&[Escape::Never, Escape::AppTag, Escape::AppAndRefTag]),
    }
}

fn domain(input: &mut Input<'_>) -> Domain {
    let signature = match input.below(4) {
        0 => Signature::T10Dif(dif(input)),
        1 => Signature::Crc32(seed(input)),
        2 => Signature::Crc32c(seed(input)),
        _ => Signature::Crc64Xp10(seed(input)),
    };
    Domain { signature, block_size: input.pick(&BlockSize::ALL) }
}

fn signature(input: &mut Input<'_>) -> BlockSignature {
    let memory = domain(input);
    let signature = match input.below(4) {
        0 => BlockSignature::memory(memory),
        1 => BlockSignature::wire(memory),
        2 => BlockSignature::both(memory, memory),
        _ => BlockSignature::both(memory, domain(input)),
    };
    let signature = if input.one_in(3) { signature.with_check_mask(input.any()) } else { signature };
    let copied = input.one_in(4).then(|| signature.with_copy_mask(input.any()).ok()).flatten();
    copied.unwrap_or(signature)
}

fn crypto(input: &mut Input<'_>) -> Crypto {
    Crypto {
        direction: input.pick(&[Direction::EncryptOnTx, Direction::DecryptOnTx]),
        order: input.pick(&[SignatureOrder::AfterCryptoOnTx, SignatureOrder::BeforeCryptoOnTx]),
        data_unit: input.pick(&BlockSize::ALL),
        tweak: Tweak::new(u128::from(edge(input)) << 64 | u128::from(edge(input))),
        dek: DekId::from_low_bits(input.any()),
        keytag: Keytag(input.any::<u64>().to_be_bytes()),
    }
}

pub(crate) fn access(input: &mut Input<'_>) -> Access {
    Access::from_wire(AccessByte::from_bits(input.any::<u8>() << 3))
}

pub(crate) fn config(input: &mut Input<'_>) -> MkeyConfig {
    MkeyConfig {
        access: input.maybe(access),
        signature: match input.below(4) {
            0 => SignatureChange::Keep,
            1 => SignatureChange::Reset,
            _ => SignatureChange::Set(signature(input)),
        },
        crypto: input.maybe(crypto),
    }
}

/// Chooses an AES-XTS engine. New engines come last, so that inputs of the corpus keep their meaning.
pub(crate) fn engine(input: &mut Input<'_>) -> XtsEngine {
    use XtsEngine::{MultiBlock, MultiBlockLittleEndian, SingleBlock, Unspecified};
    input.pick(&[SingleBlock, Unspecified, MultiBlockLittleEndian, MultiBlock])
}

/// Chooses the attributes of an mkey. There are few kinds, so that two mkeys often share one.
pub(crate) fn attributes(input: &mut Input<'_>, index: u32) -> MkeyAttributes {
    let capabilities = |input: &mut Input<'_>| match input.below(3) {
        0 => SignatureCapabilities {
            block_4048: false,
            crc32c: input.any(),
            crc64_xp10: false,
            ..SignatureCapabilities::ALL
        },
        _ => SignatureCapabilities::ALL,
    };
    let mut attributes = MkeyAttributes {
        key: Key::from_raw(index << 8 | u32::from(input.pick(&[0_u8, 0, 0, 0x56]))),
        max_entries: input.pick(&[4, 16, 64, 0, 1, 5, u32::MAX]),
        signature: input.maybe(|input| SignatureAttributes {
            memory_psv: PsvIndex::from_low_bits(0x1000 + index),
            wire_psv: PsvIndex::from_low_bits(0x2000 + index),
            error_count: ErrorCount { seen: input.pick(&[1, 0, 2, u32::MAX]), pending: input.any() },
            capabilities: capabilities(input),
        }),
        crypto: input.maybe(engine),
        tag_update: input.any(),
        form: UmrForm::Complete,
        entry_size: None,
    };
    // This choice takes no byte of the input, so that inputs of the corpus keep their meaning.
    if attributes.max_entries == 5 && attributes.signature.is_none() && attributes.crypto.is_none() {
        attributes.entry_size = KsmEntrySize::new(4096).ok();
    }
    attributes
}

pub(crate) fn layout(input: &mut Input<'_>) -> OwnedLayout {
    let kind = input.below(8);
    let count = match input.below(8) {
        0 => input.below(70),
        1 => input.pick(&[0, 4, 5, 16, 17, 52, 53]),
        _ => 1 + input.below(5),
    };
    match kind {
        0 => OwnedLayout::Unchanged,
        1 | 2 => {
            let mut entry = || InterleavedEntry {
                address: edge(input),
                bytes: length(input) as u16,
                skip: if input.one_in(4) { input.any() } else { 0 },
                key: key(input),
            };
            let entries = (0..count).map(|_| entry()).collect();
            OwnedLayout::Interleaved(edge(input) as u32, entries)
        }
        _ => OwnedLayout::List((0..count).map(|_| klm(input)).collect()),
    }
}
