//! The errors of the program.

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Result<T = ()> = core::result::Result<T, Error>;
