//! Block signatures: computation, order of bytes in memory, and comparison (DEVICE.md, "Signatures").
//!
//! These are pure functions over one block. The crate `crc` computes the CRCs. With `seed_ones`, a CRC starts
//! from all ones, otherwise from 0.

use crc::{Algorithm, CRC_16_T10_DIF, CRC_32_ISCSI, CRC_64_NVME, Crc, Table};

/// The longest signature in bytes.
pub const MAX_SIGNATURE: usize = 8;

// The input is reflected, and the output is not. This bit order sets the device's CRC32 apart from the CRC32
// of zlib.
const CRC32: Algorithm<u32> = Algorithm {
    width: 32,
    poly: 0x04c1_1db7,
    init: 0,
    refin: true,
    refout: false,
    xorout: u32::MAX,
    check: 0,
    residue: 0,
};

static GUARD: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_T10_DIF);
static ENGINE_CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC32);
static ENGINE_CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
static ENGINE_CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

/// Computes the T10-DIF guard of a block (SBC-3).
pub fn t10_guard(block: &[u8], seed_ones: bool) -> u16 {
    let mut digest = GUARD.digest_with_initial(if seed_ones { u16::MAX } else { 0 });
    digest.update(block);
    digest.finalize()
}

/// Computes the IP checksum guard of a block (RFC 1071; DEVICE.md, "IP checksum guard").
///
/// Assumption: a seed of all ones is the sum's start value (measured by `gap01_internet_checksum`).
pub fn ip_checksum(block: &[u8], seed_ones: bool) -> u16 {
    let start = if seed_ones { u64::from(u16::MAX) } else { 0 };
    let mut sum = block.chunks(2).fold(start, |sum, pair| {
        let high = pair.first().copied().unwrap_or(0);
        let low = pair.get(1).copied().unwrap_or(0);
        sum.wrapping_add(u64::from(u16::from_be_bytes([high, low])))
    });
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xffff).wrapping_add(sum >> 16);
    }
    !(sum as u16)
}

/// Computes CRC32 (FC-PH polynomial) of a block.
pub fn crc32(block: &[u8], seed_ones: bool) -> u32 {
    let mut digest = ENGINE_CRC32.digest_with_initial(if seed_ones { u32::MAX } else { 0 });
    digest.update(block);
    digest.finalize()
}

/// Computes CRC32C (iSCSI) of a block.
pub fn crc32c(block: &[u8], seed_ones: bool) -> u32 {
    let mut digest = ENGINE_CRC32C.digest_with_initial(if seed_ones { u32::MAX } else { 0 });
    digest.update(block);
    digest.finalize()
}

/// Continues a CRC32C: `crc` is the CRC32C of the bytes so far, and `bytes` follow. [`crc32c`] of an empty
/// slice is the start value.
pub fn crc32c_continued(crc: u32, bytes: &[u8]) -> u32 {
    // The register of the crate `crc` holds the bits in the other order, before the final inversion.
    let mut digest = ENGINE_CRC32C.digest_with_initial((!crc).reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

/// Computes CRC64-XP10 of a block.
pub fn crc64_xp10(block: &[u8], seed_ones: bool) -> u64 {
    let mut digest = ENGINE_CRC64.digest_with_initial(if seed_ones { u64::MAX } else { 0 });
    digest.update(block);
    digest.finalize()
}

/// The CRCs that are a block signature on their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrcKind {
    /// CRC32 with the FC-PH polynomial: 4 bytes, big endian.
    Crc32,
    /// CRC32C (iSCSI): 4 bytes, little endian.
    Crc32c,
    /// CRC64-XP10: 8 bytes, little endian.
    Crc64Xp10,
}

/// The kind of the T10-DIF guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardKind {
    /// A CRC.
    Crc,
    /// An IP checksum.
    IpChecksum,
}

/// The T10-DIF attributes of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dif {
    /// The kind of guard.
    pub guard: GuardKind,
    /// Whether the guard starts from all ones (otherwise from 0).
    pub seed_ones: bool,
    /// Application tag.
    pub app_tag: u16,
    /// Mask of the bits of the application tag that are compared.
    pub app_mask: u16,
    /// Reference tag of block 0.
    pub ref_tag: u32,
    /// Whether the reference tag grows by one for each block.
    pub increment: bool,
    /// Whether a block with application tag FFFF is left unchecked.
    pub app_escape: bool,
    /// Whether a block whose application and reference tags are all ones is left unchecked.
    pub app_ref_escape: bool,
}

/// The rule for the signatures of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// T10-DIF: guard (2 bytes), application tag (2) and reference tag (4), in big endian.
    T10Dif(Dif),
    /// A CRC alone.
    Crc {
        /// The kind of CRC.
        kind: CrcKind,
        /// Whether the CRC starts from all ones (otherwise from 0).
        seed_ones: bool,
    },
}

/// A signature in the order of memory: up to 8 bytes. Bit 7 of a mask selects byte 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    bytes: [u8; MAX_SIGNATURE],
    len: usize,
}

impl Signature {
    /// Returns the bytes of the signature.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    fn take(bytes: &[u8]) -> Self {
        let mut signature = Self { bytes: [0; MAX_SIGNATURE], len: bytes.len().min(MAX_SIGNATURE) };
        signature.bytes.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        signature
    }

    /// Returns this signature with the bytes that `mask` selects taken from `other`.
    pub fn merged(self, other: &[u8], mask: u8) -> Self {
        let mut merged = self;
        for (index, (to, from)) in merged.bytes.iter_mut().zip(other).enumerate() {
            if selects(mask, index) {
                *to = *from;
            }
        }
        merged
    }
}

/// Returns whether a check or copy mask selects byte `index` of a signature in memory.
///
/// Assumption: bit 7 selects the first byte of little-endian CRCs, too. Public sources show the order for
/// T10-DIF only (measured by `gap02_byte_order_of_the_check_mask`).
pub fn selects(mask: u8, index: usize) -> bool {
    index < MAX_SIGNATURE && mask & (0x80 >> index) != 0
}

/// A part of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The guard, or a CRC.
    Guard,
    /// The application tag.
    AppTag,
    /// The reference tag.
    RefTag,
}

/// A signature that does not match: the found and the computed signature, as 64-bit words (DEVICE.md,
/// "Completion entries").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The first part that is wrong, in the order guard, application tag, reference tag.
    pub part: Part,
    /// The signature in the data ("actual" in a completion, as in tests of hardware).
    pub found: u64,
    /// The signature that the device has computed ("expected" in a completion).
    pub computed: u64,
}

impl Rule {
    /// Returns the length of a signature in bytes.
    pub const fn bytes(&self) -> u32 {
        match self {
            Self::T10Dif(_) | Self::Crc { kind: CrcKind::Crc64Xp10, .. } => 8,
            Self::Crc { .. } => 4,
        }
    }

    /// Converts a mask whose bit 7 selects the highest byte of the value to a mask of bytes in memory.
    pub(crate) const fn mask_of_value(&self, mask: u8) -> u8 {
        match self {
            Self::T10Dif(_) | Self::Crc { kind: CrcKind::Crc32, .. } => mask,
            Self::Crc { kind: CrcKind::Crc32c, .. } => mask.reverse_bits() << 4,
            Self::Crc { kind: CrcKind::Crc64Xp10, .. } => mask.reverse_bits(),
        }
    }

    /// Computes the signature of block number `index`.
    pub fn compute(&self, block: &[u8], index: u64) -> Signature {
        match *self {
            Self::T10Dif(dif) => {
                let guard = match dif.guard {
                    GuardKind::Crc => t10_guard(block, dif.seed_ones),
                    GuardKind::IpChecksum => ip_checksum(block, dif.seed_ones),
                };
                let step = if dif.increment { index as u32 } else { 0 };
                let reference = dif.ref_tag.wrapping_add(step);
                let word = u64::from(guard) << 48 | u64::from(dif.app_tag) << 32 | u64::from(reference);
                Signature::take(&word.to_be_bytes())
            }
            Self::Crc { kind: CrcKind::Crc32, seed_ones } => {
                Signature::take(&crc32(block, seed_ones).to_be_bytes())
            }
            Self::Crc { kind: CrcKind::Crc32c, seed_ones } => {
                Signature::take(&crc32c(block, seed_ones).to_le_bytes())
            }
            Self::Crc { kind: CrcKind::Crc64Xp10, seed_ones } => {
                Signature::take(&crc64_xp10(block, seed_ones).to_le_bytes())
            }
        }
    }

    /// Compares the bytes that `mask` selects of a block's signature, `found`, with the computed bytes.
    /// Returns the mismatch, if there is one. `escapes` says whether escape tags switch checks off.
    pub fn check(&self, block: &[u8], index: u64, found: &[u8], mask: u8, escapes: bool) -> Option<Mismatch> {
        let found = Signature::take(found);
        if escapes && self.escaped(&found) {
            return None;
        }
        let computed = self.compute(block, index);
        let differs = |range: core::ops::Range<usize>| {
            let pairs = found.as_bytes().iter().zip(computed.as_bytes()).enumerate();
            pairs.filter(|(at, _)| range.contains(at)).any(|(at, (a, b))| {
                let bits = match self {
                    Self::T10Dif(dif) if at == 2 => (dif.app_mask >> 8) as u8,
                    Self::T10Dif(dif) if at == 3 => dif.app_mask as u8,
                    _ => 0xff,
                };
                selects(mask, at) && (a ^ b) & bits != 0
            })
        };
        let part = match self {
            Self::T10Dif(_) if differs(0..2) => Part::Guard,
            Self::T10Dif(_) if differs(2..4) => Part::AppTag,
            Self::T10Dif(_) if differs(4..8) => Part::RefTag,
            Self::Crc { .. } if differs(0..8) => Part::Guard,
            _ => return None,
        };
        Some(Mismatch { part, found: self.joined(&found), computed: self.joined(&computed) })
    }

    /// Returns whether the tags of a block switch off all its checks. If the domain has both escapes, only
    /// the APP_REF escape counts.
    fn escaped(&self, found: &Signature) -> bool {
        let Self::T10Dif(dif) = self else { return false };
        let word = u64::from_be_bytes(found.bytes);
        let app = (word >> 32) as u16 == u16::MAX;
        let reference = word as u32 == u32::MAX;
        if dif.app_ref_escape { app && reference } else { dif.app_escape && app }
    }

    /// Returns a signature as the 64-bit word of a completion.
    pub(crate) fn joined_bytes(&self, signature: &[u8]) -> u64 {
        self.joined(&Signature::take(signature))
    }

    fn joined(&self, signature: &Signature) -> u64 {
        match self {
            Self::T10Dif(_) | Self::Crc { kind: CrcKind::Crc32, .. } => u64::from_be_bytes(signature.bytes),
            Self::Crc { kind: CrcKind::Crc32c, .. } => u64::from_le_bytes(signature.bytes) << 32,
            Self::Crc { kind: CrcKind::Crc64Xp10, .. } => u64::from_le_bytes(signature.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const A5: [u8; 512] = [0xa5; 512];
    const DIGITS: &[u8] = b"123456789";

    fn crc(kind: CrcKind, seed_ones: bool) -> Rule {
        Rule::Crc { kind, seed_ones }
    }

    #[test]
    fn golden_values_in_memory_order() {
        // The test block of DEVICE.md, "Golden values", is 512 bytes of A5.
        for (kind, seed_ones, bytes) in [
            (CrcKind::Crc32, false, &[0x69, 0x9a, 0xca, 0x21][..]),
            (CrcKind::Crc32, true, &[0x88, 0xcb, 0x60, 0x93]),
            (CrcKind::Crc32c, false, &[0x42, 0x07, 0xe6, 0xb4]),
            (CrcKind::Crc32c, true, &[0x7d, 0x15, 0xe5, 0x7b]),
            (CrcKind::Crc64Xp10, false, &[0x8c, 0x8a, 0xdb, 0x45, 0x0c, 0xce, 0x85, 0xaa]),
            (CrcKind::Crc64Xp10, true, &[0x9a, 0xf7, 0x83, 0xd2, 0xdb, 0x3f, 0x9c, 0x48]),
        ] {
            assert_eq!(crc(kind, seed_ones).compute(&A5, 7).as_bytes(), bytes, "{kind:?} {seed_ones}");
        }
        assert_eq!((t10_guard(&A5, false), t10_guard(&A5, true)), (0x9ec6, 0xec7d));
        assert_eq!(ip_checksum(&A5, false), 0x5a5a);
        let mut bad = A5;
        bad[0] = 0x5a;
        assert_eq!(crc32(&bad, false), 0xe33c_b35a);
        assert_eq!((t10_guard(&bad, false), t10_guard(&bad, true)), (0xebad, 0x9916));
        assert_eq!((t10_guard(&[0; 512], false), t10_guard(&[0; 512], true)), (0, 0x72bb));
    }

    #[test]
    fn a_crc_goes_on_behind_other_bytes() {
        for seed_ones in [false, true] {
            for cut in 0..=DIGITS.len() {
                let (head, tail) = DIGITS.split_at(cut);
                let crc = crc32c_continued(crc32c_continued(crc32c(&[], seed_ones), head), tail);
                assert_eq!(crc, crc32c(DIGITS, seed_ones));
            }
        }
    }

    #[test]
    fn published_check_values() {
        assert_eq!(crc32(DIGITS, true).reverse_bits(), 0xcbf4_3926);
        assert_eq!(crc32c(DIGITS, true), 0xe306_9283);
        assert_eq!(crc64_xp10(DIGITS, true), 0xae8b_1486_0a79_9888);
        assert_eq!(t10_guard(DIGITS, false), 0xd0db);
        assert_eq!(crc32c(&[0; 32], true), 0x8a91_36aa);
        let up: Vec<u8> = (0..4096).map(|i| i as u8).collect();
        let down: Vec<u8> = (0..4096).map(|i| 255 - i as u8).collect();
        assert_eq!(crc64_xp10(&[0; 4096], true), 0x6482_d367_eb22_b64e);
        assert_eq!(crc64_xp10(&[0xff; 4096], true), 0xc0dd_ba73_02ec_a3ac);
        assert_eq!(crc64_xp10(&up, true), 0x3e72_9f5f_6750_449c);
        assert_eq!(crc64_xp10(&down, true), 0x9a2d_f64b_8e9e_517e);
        assert_eq!(crc64_xp10(&[0; 32], true), 0xcf34_7343_4d4e_cf3b);
    }
}
