//! The content of `cargo xtask demo`: the examples of three man pages, the table of
//! `mlx5dv_wr_set_mkey_crypto`, and the transfer of a file. Each result is compared with an independent
//! computation. This module prints nothing.

pub mod examples;
pub mod faults;
pub mod file;
mod kit;
pub mod rows;
mod scatter;

use crate::board::SoftBoard;
use mlx5_softdev::{DeviceProfile, Faults};

/// Makes a software device with these faults.
pub fn soft_board(faults: Faults) -> SoftBoard {
    SoftBoard::new(DeviceProfile::default()).with_faults(faults)
}
