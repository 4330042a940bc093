//! Bytes that cannot be read at all.

use core::fmt;

/// Bytes that are too few to be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ParseError {
    /// There are fewer bytes than the shortest request or completion entry has.
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
