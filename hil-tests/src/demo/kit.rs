//! What examples, rows and the file have in common.

use crate::qp_pair::{QpPairFixture, Verdict};
use mlx5_mkey::mkey::{Access, Domain, Escape, Guard, MkeyConfig, Signature, SignatureError, T10Dif};
use mlx5_mkey::types::{BlockSize, Seed};

/// All rights and nothing else; fill in the rest.
pub(super) const OPEN: MkeyConfig = MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED };

/// A 256-bit AES-XTS key: two halves, neither of which repeats.
pub(super) const KEY: [u8; 64] = {
    let mut key = [0; 64];
    let mut index = 0;
    while index < 64 {
        key[index] = (index as u8).wrapping_mul(0x9d) ^ 0x3c;
        index += 1;
    }
    key
};

/// A T10-DIF whose reference tag grows.
pub(super) const fn dif(app_tag: u16, ref_tag: u32) -> T10Dif {
    let (guard, seed, escape) = (Guard::Crc, Seed::Zeros, Escape::Never);
    T10Dif { guard, seed, app_tag, ref_tag, ref_remap: true, escape }
}

/// A domain with that signature.
pub(super) const fn domain(signature: Signature, block_size: BlockSize) -> Domain {
    Domain { signature, block_size }
}

/// Returns bytes in which no two blocks are alike.
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

/// Compares bytes and says in words where they begin to differ.
///
/// # Errors
/// The first difference.
pub(super) fn same(what: &str, found: &[u8], expected: &[u8]) -> Verdict {
    if found.len() != expected.len() {
        return Err(format!("{what}: {} bytes, {} expected", found.len(), expected.len()));
    }
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: byte {at} is {:02x}, {:02x} expected", found[at], expected[at])),
    }
}

/// Asks an mkey with signature for errors, which there must not be.
///
/// # Errors
/// The signature error.
pub(super) fn no_signature_error(pair: &mut QpPairFixture<'_>, mkey: usize) -> Verdict {
    match pair.mkeys[mkey].check() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(format!("signature error without cause: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Asks an mkey for its signature error, which there must be.
///
/// # Errors
/// There was none.
pub(super) fn signature_error(pair: &mut QpPairFixture<'_>, mkey: usize) -> Result<SignatureError, String> {
    match pair.mkeys[mkey].check() {
        Ok(Some(error)) => Ok(error),
        Ok(None) => Err("a wrong signature was not reported".into()),
        Err(error) => Err(error.to_string()),
    }
}
