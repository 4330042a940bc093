//! What the scenarios run on: those of [`hil_scenarios`], and devices behind libmlx5.

mod devx;

pub use devx::DevxBoard;
pub use hil_scenarios::board::*;
