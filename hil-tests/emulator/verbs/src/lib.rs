//! Stands in for the kernel's uverbs device: a preload library, behind it a software mlx5 device.
//!
//! ```text
//! program ─ libibverbs ─ libmlx5 ── open, stat, ioctl, close ─▶ interpose ─▶ calls ─▶ command ─▶ state
//!                 │                                                            │          │
//!                 └── rings, doorbell records, data in its own memory ◀─ process_memory ── Device (softdev)
//!                                                                              │
//!                              worker (a thread) ── doorbells, events ─────────┴── fabric ─▶ other processes
//! ```
//!
//! Five folders are layers; each knows those below it, and `cargo xtask tidy` refuses all else:
//!
//! ```text
//! process   the lock around the state, the worker, fork and exit, functions instead of the C library's
//! command   requests of the program, each checked as the kernel checks it
//! state     the device, open contexts and their objects, channels, what is recorded
//! fabric    messages between processes
//! ground    numbers of the kernel, system calls, descriptors, this process's memory, settings, faults
//! ```
//!
//! The worker and the program's own threads are the device in turns. libmlx5 holds a lock while it posts or
//! polls; whoever gives it back looks at the doorbells and at what peers have sent, and so does whoever calls
//! the device. Drivers with queues of their own take no such lock: theirs, and those of a program that
//! sleeps, are the worker's.
//!
//! Preloaded into any verbs program, it makes that program find and open `mlx5_0`. Everything that the
//! program hands to the device is checked as the kernel and the device check it, and refused with their
//! errno.

// Without what calls it, the interface of programs.
#![cfg_attr(feature = "fuzz", allow(dead_code))]

mod command;
mod fabric;
mod ground;
mod process;
mod state;

#[cfg(any(test, feature = "fuzz"))]
pub use process::fuzz::run as fuzz;
