//! A stand-in for the kernel's uverbs device: a preload library with a software mlx5 device behind it.
//!
//! ```text
//! program ─ libibverbs ─ libmlx5 ── open, stat, ioctl, close ─▶ interpose ─▶ calls ─▶ command ─▶ state
//!                 │                                                            │          │
//!                 └── rings, doorbell records, data in its own memory ◀─ process_memory ── Device (softdev)
//!                                                                              │
//!                              worker (a thread) ── doorbells, events ─────────┴── fabric ─▶ other processes
//! ```
//!
//! The five folders are layers. Each knows the layers below it, and `cargo xtask tidy` refuses all other
//! imports:
//!
//! ```text
//! process   the lock around the state, the worker, fork and exit, functions that replace the C library's
//! command   requests of the program, each checked as the kernel checks it
//! state     the device, open contexts and their objects, channels, logs, capture of packets
//! fabric    messages between processes
//! ground    numbers of the kernel, system calls, descriptors, this process's memory, settings, faults
//! ```
//!
//! The worker (a thread of this library) and the program's own threads do the device's work in turns. libmlx5
//! holds a lock while it posts or polls. A thread that releases this lock, or calls the device, looks at the
//! doorbells and at messages of peers. Programs that make queues by commands of the device (DEVX) do not take
//! libmlx5's lock. The worker handles their queues, and the queues of a program that sleeps.
//!
//! A verbs program with this library preloaded finds and opens `mlx5_0`. Everything that the program hands to
//! the device is checked as the kernel and the device check it, and refused with the same errno.

// The fuzzing build exports no functions for programs. Code that only these functions use is then unused.
#![cfg_attr(feature = "fuzz", allow(dead_code))]

mod command;
mod fabric;
mod ground;
mod process;
mod state;

#[cfg(any(test, feature = "fuzz"))]
pub use process::fuzz::{connections::run as fuzz_connections, run as fuzz};
