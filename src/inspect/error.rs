//! Bytes that cannot be read at all.

use core::fmt;

/// Bytes that are too few for any request or entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ParseError {
    /// The given bytes are fewer than those of the shortest request or completion entry.
    TooShort {
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        needed: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { have, needed } => write!(f, "{have} bytes given, {needed} needed"),
        }
    }
}

impl core::error::Error for ParseError {}
