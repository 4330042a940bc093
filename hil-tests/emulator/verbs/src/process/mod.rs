//! What there is once in a process: the lock around the state, the thread that works, and the functions that stand before those of the
//! C library.

// What fuzzes it opens files of its own.
#[cfg(not(feature = "fuzz"))]
mod interpose;
pub(crate) mod probe;
pub(crate) mod schedule;
pub(crate) mod shared;
mod worker;
