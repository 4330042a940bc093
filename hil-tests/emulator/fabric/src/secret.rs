//! The secret that all members share, and the proof that a peer knows it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// A random number that makes each proof unique.
pub type Nonce = [u8; 32];

/// The fewest bytes of a secret.
const SHORTEST: usize = 16;

/// The secret that all members share.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The error for a secret that is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort;

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a secret has at least {SHORTEST} bytes")
    }
}

impl std::error::Error for TooShort {}

impl Secret {
    /// Takes a secret from the bytes of its file. White space at the end does not count.
    ///
    /// # Errors
    /// [`TooShort`] for fewer than 16 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, TooShort> {
        let bytes = bytes.trim_ascii_end();
        if bytes.len() < SHORTEST {
            return Err(TooShort);
        }
        Hmac::new_from_slice(bytes).map(Self).map_err(|_| TooShort)
    }

    /// Returns the proof that one side of a link knows the secret (HMAC-SHA256 over the random numbers of
    /// both sides). `side` differs for hub and member, so that no side can send the other side's proof back.
    pub(crate) fn proof(&self, side: u8, member: &Nonce, hub: &Nonce) -> [u8; 32] {
        self.mac(side, member, hub).finalize().into_bytes().into()
    }

    /// Returns whether a proof is right. The comparison takes the same time for all wrong proofs, so that its
    /// time does not help to guess the right one.
    pub(crate) fn proves(&self, side: u8, member: &Nonce, hub: &Nonce, proof: &[u8; 32]) -> bool {
        self.mac(side, member, hub).verify_slice(proof).is_ok()
    }

    fn mac(&self, side: u8, member: &Nonce, hub: &Nonce) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(b"mlx5-fabric 1");
        mac.update(&[side]);
        mac.update(member);
        mac.update(hub);
        mac
    }
}
