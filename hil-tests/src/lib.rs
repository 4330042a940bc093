//! Hardware-in-the-loop tests of mlx5-mkey: ground truth, scenarios, and the boards they run on.

// A test that finds something wrong stops; the lint wall of the library is not for tests.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod board;
pub mod compile_fail;
#[cfg(feature = "host")]
pub mod demo;
#[cfg(feature = "host")]
pub mod differential;
pub mod model;
#[cfg(feature = "host")]
pub mod recording;
#[cfg(feature = "host")]
pub mod vectors;

pub use hil_scenarios::{
    assumption, cases, ensure, ensure_eq, expected, history, protocol, qp_pair, request, scenarios, way,
};
