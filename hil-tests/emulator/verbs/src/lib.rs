//! Stands in for the kernel's uverbs device: a preload library, behind it a software mlx5 device.
//!
//! ```text
//! program ─ libibverbs ─ libmlx5 ── open, stat, ioctl, close ─▶ interpose ─▶ shared ─▶ dispatch ─▶ command/*
//!                 │                                                            │          │
//!                 └── rings, doorbell records, data in its own memory ◀─ process ── Device (softdev)
//!                                                                              │
//!                              worker (a thread) ── doorbells, events ─────────┴── fabric ─▶ other processes
//! ```
//!
//! The worker and the program's own threads are the device in turns. libmlx5 holds a lock while it posts or polls; whoever gives
//! it back looks at the doorbells and at what peers have sent, and so does whoever calls the device. Drivers with queues of their
//! own take no such lock: theirs, and those of a program that sleeps, are the worker's.
//!
//! Preloaded into any verbs program, it makes that program find and open `mlx5_0`. Everything that the program hands to
//! the device is checked as the kernel and the device check it, and refused with their errno.

// Without what calls it, the interface of programs.
#![cfg_attr(feature = "fuzz", allow(dead_code))]

mod abi;
mod allocator;
mod channel;
mod clock;
mod command;
mod descriptors;
mod errno;
mod events;
mod fabric;
mod fate;
mod fault;
// What fuzzes it opens files of its own.
#[cfg(not(feature = "fuzz"))]
mod interpose;
mod journal;
mod log;
mod missing;
mod notice;
mod object;
mod pcap;
mod pipe;
mod probe;
mod process;
mod record;
mod request;
mod settings;
mod shared;
mod state;
mod sys;
mod sysfs;
mod turn;
mod worker;

#[cfg(any(test, feature = "fuzz"))]
pub use command::fuzz::run as fuzz;
