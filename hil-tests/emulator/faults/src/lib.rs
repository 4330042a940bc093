//! Plans of faults: what is to go wrong in a device, its kernel and its peers, and when. A plan is a list, or
//! the numbers that a seed gives, or both; `hil-tests/emulator/EMULATOR.md` shows its words.

mod plan;
mod word;

pub use plan::{CallId, Plan, Rule};
pub use word::{Ending, Fault, Place};
