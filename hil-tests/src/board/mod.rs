//! The boards of [`hil_scenarios`], and devices behind libmlx5.

mod devx;
mod service;

pub use devx::DevxBoard;
pub use hil_scenarios::board::*;
