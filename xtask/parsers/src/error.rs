//! Errors of the reader of dumps, and the largest size of a dump.

use std::fmt;

/// The most bytes of a dump in text form: 8 MiB. Without a limit, a repeated line (`*`) could fill memory.
/// The limit is four times the largest send ring (32,768 blocks of 64 bytes), so that the ring's completion
/// queue with entries of 128 bytes also fits. Larger queues can be read as raw bytes, for which there is no
/// limit.
pub(super) const MOST: usize = 4 * 32768 * 64;

/// The reason why a dump cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum HexError {
    /// A part of the text is not hex. The value names the part and its line.
    Text(String),
    /// The dump has more bytes than the limit, perhaps because a repeated line (`*`) has many repetitions.
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
