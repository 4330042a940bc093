//! Scenarios: tests of the requirements on an mlx5 device. They run on any board, under an operating system,
//! or in a bare-metal image on the cores of a DPU.
#![no_std]
// Scenarios are tests, so the library's rules against panics do not apply to them.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate alloc;

pub mod assumption;
pub mod board;
pub mod cases;
pub mod doorbell;
pub mod expected;
pub mod history;
pub mod options;
pub mod protocol;
pub mod qp_pair;
pub mod request;
pub mod scenarios;
pub mod way;
