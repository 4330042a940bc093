//! The error of bytes that cannot be decoded at all.

use core::fmt;

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ParseError {
    /// The given bytes are fewer than the shortest request or completion entry has.
    TooShort {
        /// Number of bytes that the caller gave.
        have: usize,
        /// Number of bytes of the shortest request or completion entry.
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
