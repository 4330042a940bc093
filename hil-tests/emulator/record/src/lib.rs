//! Records of a software device's work: posted requests, completions and requests of peers, as words and as
//! lines of JSON, which `cargo xtask decode` reads, and captures for Wireshark.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod capture;
mod line;
mod queue;
mod words;

pub use line::{Line, asked, completed, posted};
pub use queue::{Queue, context};
pub use words::request;
