//! Hardware-in-the-loop tests of mlx5-mkey: comparisons with recorded bytes of other drivers, scenarios, and
//! the boards on which scenarios run.

// A test stops at the first failed check. The library's rules against panics do not apply to tests.
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
    assumption, cases, doorbell, ensure, ensure_eq, expected, history, protocol, qp_pair, request, scenarios,
    way,
};
