//! What `cargo xtask demo` runs: the man pages' examples, their table, and a file, each compared with what was computed
//! apart from the device. Nothing is printed here.

pub mod examples;
pub mod faults;
pub mod file;
mod kit;
pub mod rows;
mod scatter;

use crate::board::SoftBoard;
use mlx5_softdev::{DeviceProfile, Faults};

/// Makes a software device, broken as `faults` says.
pub fn soft_board(faults: Faults) -> SoftBoard {
    SoftBoard::new(DeviceProfile::default()).with_faults(faults)
}
