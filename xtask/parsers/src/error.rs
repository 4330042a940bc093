//! Why a dump is not read, and the limit of its size.

use std::fmt;

/// The most bytes of a dump that is text, so that a repeated line cannot fill memory: four of the largest
/// send rings, of 32768 blocks of 64 bytes. In it fits the completion queue of such a ring, too, with entries
/// of 128 bytes. The largest completion queue of all has 1 GiB (2^23 entries of 128 bytes): who dumps that
/// does not print it, and raw bytes have no limit.
pub(super) const MOST: usize = 4 * 32768 * 64;

/// Why a dump is not read.
#[derive(Debug, PartialEq, Eq)]
pub enum HexError {
    /// Something is not hex: what, and in which line.
    Text(String),
    /// There are more bytes than a text may stand for, or a repeated line stands for more.
    Long,
}

impl From<String> for HexError {
    fn from(what: String) -> Self {
        Self::Text(what)
    }
}

impl fmt::Display for HexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(what) => f.write_str(what),
            Self::Long => write!(
                f,
                "the dump is of more than {} MiB, and text is read up to there: cut it, or take raw bytes",
                MOST >> 20
            ),
        }
    }
}
