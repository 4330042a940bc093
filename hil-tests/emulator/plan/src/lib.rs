//! Plans of faults in a device, its kernel and its peers. A plan is a list of rules (`mlx5-faults`), or a
//! seed for a random choice, or both; `hil-tests/emulator/EMULATOR.md` shows its words.

mod call;
mod passage;
mod plan;

pub use call::CallId;
pub use passage::{passage, ruling, visit};
pub use plan::{Plan, Visit};
