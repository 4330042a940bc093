//! The software mlx5 device as a PCI function over vfio-user: QEMU, or whoever else speaks the protocol, has
//! a BlueField on its bus, and the driver of the machine behind it has a device with registers, interrupts
//! and DMA.
//!
//! ```text
//! client ──▶ server (socket, descriptors) ──▶ function ──┬─▶ config   (configuration space)
//!                                                        ├─▶ device   (registers, doorbells, commands)
//!                                                        └─▶ memory   (what the client has mapped)
//! ```
//!
//! A client, and the machine behind it, may send and hold anything: each access is checked against what is
//! mapped, each message against its length, and whatever makes no sense is refused and changes nothing.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod config;
mod function;
mod memory;
mod message;
mod server;
mod words;

pub use config::Model;
pub use function::{Function, Refusal, Region};
pub use memory::{GuestMemory, MapError, Rights};
pub use mlx5_softdev::Port;
pub use server::{serve, serve_stream};
pub use words::{command, words};
