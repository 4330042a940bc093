//! Requests to 64-byte blocks: native values are checked while they are written. Pure functions; no I/O, no state.
//!
//! The number of blocks is known before the first byte is written. Whoever posts reserves them and hands them over as a
//! slice.

pub(crate) mod bsf;
pub(crate) mod control;
pub(crate) mod data_path;
pub(crate) mod layout;
pub(crate) mod prepared;
pub(crate) mod size;
pub(crate) mod umr;

pub use data_path::{Payload, Remote, Sge};
pub use prepared::PreparedConfig;
pub use size::RequestSize;
