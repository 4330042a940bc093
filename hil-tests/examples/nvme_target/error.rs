//! The errors of the program.

/// A result with any error.
pub(crate) type Result<T = ()> = core::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
