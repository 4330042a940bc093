//! What tests of several packages share.

// A test that finds something wrong stops; the lint wall of the library is not for tests.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod host;
pub mod preload;
pub mod secrets;
