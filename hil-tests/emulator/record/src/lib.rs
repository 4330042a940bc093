//! Records of a software device's work. Posted requests, completions and requests of peers are written as
//! plain text or as lines of JSON, both for `cargo xtask decode`. Captures for Wireshark contain the packets.
#![forbid(unsafe_code)]

pub mod capture;
mod line;
mod queue;
mod words;

pub use line::{Line, asked, completed, posted};
pub use queue::{Queue, context};
pub use words::request;
