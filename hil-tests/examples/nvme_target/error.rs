//! The errors of the program.

/// Any error.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// A result with any error.
pub(crate) type Result<T = ()> = core::result::Result<T, Error>;
