//! Errors of the reader of dumps, and the largest size of a dump.

use std::fmt;

/// The most bytes of a dump in text form. The limit keeps repeated lines from filling memory. It is four
/// times the largest send ring, which has 32768 blocks of 64 bytes. The completion queue of this ring fits as
/// well, with entries of 128 bytes. The largest possible completion queue has 1 GiB (2^23 entries of 128
/// bytes). Dumps of this size are raw bytes, which have no limit.
pub(super) const MOST: usize = 4 * 32768 * 64;

/// The reason why a dump cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum HexError {
    /// A part is not hex. The text names the part and its line.
    Text(String),
    /// The dump has more bytes than the limit, possibly by a repeated line.
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
