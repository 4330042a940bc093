//! What there is once in a process: the lock around the state, the thread that works, and the functions that
//! stand before those of the C library.

mod bell;
mod calls;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
// Fuzzing opens files of its own.
#[cfg(not(feature = "fuzz"))]
mod interpose;
mod life;
mod lock;
mod probe;
mod schedule;
mod worker;
