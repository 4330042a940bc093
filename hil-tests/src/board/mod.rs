//! The boards of [`hil_scenarios`], and the board whose device is behind libmlx5.

mod about;
mod commands;
mod devx;
mod service;

pub use devx::{DevxBoard, break_stand_in};
pub use hil_scenarios::board::*;
