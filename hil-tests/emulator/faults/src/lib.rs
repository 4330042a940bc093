//! Plans of faults in a device, its kernel and its peers. A plan is a list of faults, or a seed for a random
//! choice, or both; `hil-tests/emulator/EMULATOR.md` shows its words.

mod plan;
mod word;

pub use plan::{CallId, Plan, Rule};
pub use word::{Ending, Fault, Place};
