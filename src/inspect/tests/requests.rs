//! Valid and unusual requests, which tests damage and print.

use super::std::vec::Vec;
use super::*;
use crate::mkey::*;
use crate::types::*;

pub(super) fn dif(app_tag: u16, ref_tag: u32) -> Domain {
    let (guard, seed, escape) = (Guard::Crc, Seed::Ones, Escape::Never);
    let dif = T10Dif { guard, seed, app_tag, ref_tag, ref_remap: true, escape };
    Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 }
}

pub(super) const CRC32C: Domain =
    Domain { signature: Signature::Crc32c(Seed::Ones), block_size: BlockSize::B512 };

pub(super) const CRYPTO: Crypto = Crypto {
    direction: Direction::EncryptOnTx,
    order: SignatureOrder::BeforeCryptoOnTx,
    data_unit: BlockSize::B520,
    tweak: Tweak::from_lba(7),
    dek: DekId::from_low_bits(0x99),
    keytag: Keytag([0; 8]),
};

/// The offsets of the parts of the request [`full`], in bytes.
pub(super) const UMR: usize = 16;
pub(super) const CONTEXT: usize = 64;
pub(super) const ENTRIES: usize = 128;
pub(super) const SIGNATURE: usize = 192;
pub(super) const CRYPTO_AT: usize = 256;

/// Returns a UMR of 320 bytes and two SET_PSVs. The UMR has two entries, T10-DIF in both domains, and crypto
/// around the signature of the wire.
pub(super) fn full() -> Vec<u8> {
    full_with(BlockSignature::both(dif(1, 2), dif(3, 2)), CRYPTO)
}

pub(super) fn full_with(block: BlockSignature, crypto: Crypto) -> Vec<u8> {
    let entries = [0x1000, 0x9000].map(|address| KlmEntry { address, length: 520, key: REGION });
    let config = MkeyConfig {
        access: Some(Access::REMOTE_READ | Access::REMOTE_WRITE),
        signature: SignatureChange::Set(block),
        crypto: Some(crypto),
    };
    let posted = configured(attributes(true, Some(XtsEngine::MultiBlock)), &config, &entries);
    posted.unwrap()
}

/// Returns a UMR with a layout of three streams of 512, 8 and 4 bytes, in two cycles.
pub(super) fn interleaved() -> Vec<u8> {
    let entries = [(0x1000, 512, 4), (0x9000, 8, 0), (0xa000, 4, 4)]
        .map(|(address, bytes, skip)| InterleavedEntry { address, bytes, skip, key: REGION });
    let layout = Layout::Interleaved { repeat: 2, entries: &entries };
    configured(attributes(false, None), &MkeyConfig::UNCHANGED, layout).unwrap()
}

/// Returns the request of [`full`], with a mask that leaves out queue pair and tag, although the mkey context
/// contains both.
pub(super) fn unmasked() -> Vec<u8> {
    patched(full(), UMR + 14, &[0x12])
}

/// Returns the request of [`full`], which also binds the mkey to a queue pair.
pub(super) fn bound() -> Vec<u8> {
    patched(patched(full(), UMR + 14, &[0x72]), CONTEXT + 4, &[0, 1, 0x23])
}

/// Returns the request of [`full`], with a start address other than 0.
pub(super) fn moved() -> Vec<u8> {
    patched(patched(full(), UMR + 15, &[0x41]), CONTEXT + 22, &[0x10])
}

/// Returns a UMR with a layout without entries. The mkey context enables BSFs, but the mask does not select
/// this bit.
pub(super) fn empty() -> Vec<u8> {
    let bytes = configured(attributes(false, None), &MkeyConfig::UNCHANGED, Layout::List(&[]));
    patched(bytes.unwrap(), CONTEXT + 12, &[0x40])
}

/// Returns the request of [`full`], with a signature only on the wire.
pub(super) fn wire_only() -> Vec<u8> {
    full_with(BlockSignature::wire(dif(1, 2)), CRYPTO)
}

/// Returns the request of [`full`], with the same signature in both domains.
pub(super) fn alike() -> Vec<u8> {
    full_with(BlockSignature::both(dif(1, 2), dif(1, 2)), CRYPTO)
}

/// Returns a request that copies 64 bytes, as rdma-core writes it (`mlx5_wr_memcpy`). The key of its opaque
/// buffer is 0x5200.
pub(super) fn memcpy() -> Vec<u8> {
    let control = [1, 0, 5, 0x2f, 0, 1, 0x23, 4, 0, 0, 0, 8, 0, 0, 0, 0];
    let metadata = [0, 0, 0, 0, 0, 0, 0x52, 0, 0, 0, 0, 0, 0, 0, 0x70, 0];
    let segment = |key: u8, address: u8| [0, 0, 0, 64, 0, 0, key, 0, 0, 0, 0, 0, 0, 0, address, 0];
    [control, metadata, segment(0x53, 0x10), segment(0x54, 0x20)].concat()
}
