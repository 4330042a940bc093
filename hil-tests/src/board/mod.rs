//! The boards of [`hil_scenarios`], and devices behind libmlx5.

mod devx;
mod service;

pub use devx::{DevxBoard, break_stand_in};
pub use hil_scenarios::board::*;
