//! Shared code of the tests of several packages: a host with its queue pairs, programs under the kernel's
//! stand-in, the commands of a loopback, a search for secrets in memory.

// A test stops at the first error. The library's strict lints do not apply to tests.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod host;
pub mod loopback;
pub mod preload;
pub mod secrets;
