//! Code that the tests of several packages share: a host with two queue pairs, programs that run with the
//! kernel's stand-in preloaded, the commands that connect a queue pair to itself, and a search for secrets in
//! memory.

// A test stops at the first error. The library's strict lints do not apply to tests.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod host;
pub mod loopback;
pub mod preload;
pub mod secrets;
