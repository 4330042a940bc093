//! Constants and functions that several modules of the demo share.

use crate::qp_pair::{QpPairFixture, Verdict};
use mlx5_mkey::mkey::{Access, Domain, Escape, Guard, MkeyConfig, Signature, SignatureError, T10Dif};
use mlx5_mkey::types::{BlockSize, Seed};

/// A configuration that grants all access rights, and leaves signature and crypto properties unchanged.
pub(super) const OPEN: MkeyConfig = MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED };

/// A 256-bit AES-XTS key whose two halves differ.
pub(super) const KEY: [u8; 64] = {
    let mut key = [0; 64];
    let mut index = 0;
    while index < 64 {
        key[index] = (index as u8).wrapping_mul(0x9d) ^ 0x3c;
        index += 1;
    }
    key
};

/// Returns a T10-DIF whose reference tag increases from block to block.
pub(super) const fn dif(app_tag: u16, ref_tag: u32) -> T10Dif {
    let (guard, seed, escape) = (Guard::Crc, Seed::Zeros, Escape::Never);
    T10Dif { guard, seed, app_tag, ref_tag, ref_remap: true, escape }
}

/// Returns a domain with this signature.
pub(super) const fn domain(signature: Signature, block_size: BlockSize) -> Domain {
    Domain { signature, block_size }
}

/// Returns bytes that differ from block to block.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Compares bytes.
///
/// # Errors
/// The first difference, in words.
pub(super) fn same(what: &str, found: &[u8], expected: &[u8]) -> Verdict {
    if found.len() != expected.len() {
        return Err(format!("{what}: {} bytes, {} expected", found.len(), expected.len()));
    }
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: byte {at} is {:02x}, {:02x} expected", found[at], expected[at])),
    }
}

/// Checks that an mkey with a signature has no signature error.
///
/// # Errors
/// The signature error.
pub(super) fn no_signature_error(pair: &mut QpPairFixture<'_>, mkey: usize) -> Verdict {
    let error = pair.check(mkey).map_err(|error| error.to_string())?;
    error.map_or(Ok(()), |error| Err(format!("signature error without cause: {error}")))
}

/// Returns the signature error of an mkey.
///
/// # Errors
/// If there is no signature error.
pub(super) fn signature_error(pair: &mut QpPairFixture<'_>, mkey: usize) -> Result<SignatureError, String> {
    let error = pair.check(mkey).map_err(|error| error.to_string())?;
    error.ok_or_else(|| "a wrong signature was not reported".into())
}
