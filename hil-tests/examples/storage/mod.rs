//! What storage target and initiator share.

pub(crate) mod capsule;
pub(crate) mod control;
pub(crate) mod link;
pub(crate) mod process;

use mlx5_mkey::mkey::{Domain, Escape, Guard, Signature, T10Dif};
use mlx5_mkey::types::{BlockSize, Seed};
use std::error::Error;
use std::fmt;
use std::io;

/// What can go wrong, in words.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The other side is gone, or breaks the rules: a new connection may help.
#[derive(Debug)]
pub(crate) struct Lost(pub String);

impl Error for Lost {}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// The signature of a block on the wire and in the volume. Its reference tag is set for each command.
pub(crate) const DIF: Domain = Domain {
    signature: Signature::T10Dif(T10Dif {
        guard: Guard::Crc,
        seed: Seed::Zeros,
        app_tag: 0xf11e,
        ref_tag: 0,
        ref_remap: true,
        escape: Escape::Never,
    }),
    block_size: BlockSize::B512,
};

/// What each block of the initiator's data begins with.
pub(crate) const MAGIC: [u8; 8] = *b"mkeydata";

/// Random numbers for a test load (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`; 0 where that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }
}
