//! Parsers of descriptions of boards, and of dumps and logs of work requests and completion entries. The
//! tasks of `cargo xtask` use them, and fuzzing calls them with arbitrary text.

pub mod boards;
mod digits;
mod error;
pub mod hex;
pub mod limits;
mod log_json;
mod row;
pub mod rows;
