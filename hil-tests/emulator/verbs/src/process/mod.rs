//! The parts that exist once in a process: the lock around the state, the worker thread, and the functions
//! that replace functions of the C library.

mod bell;
mod calls;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
// The fuzzing program needs the C library's own functions for its files.
#[cfg(not(feature = "fuzz"))]
mod interpose;
mod life;
mod lock;
mod probe;
mod schedule;
mod worker;
