//! Plans of faults in a device, its kernel and its peers. A plan is a list of faults, or a seed for a random
//! choice, or both; `hil-tests/emulator/EMULATOR.md` shows its words.

mod passage;
mod plan;
mod word;

pub use passage::{passage, place};
pub use plan::{CallId, Plan, Rule};
pub use word::{Ending, Fault, Place};
