//! The software mlx5 device as a PCI function over vfio-user. QEMU, or another client of the protocol, has a
//! BlueField on its bus. The driver in the client's machine sees a device with registers, interrupts and DMA.
//!
//! ```text
//! client ──▶ server (socket, descriptors) ──▶ function ──┬─▶ config   (configuration space)
//!                                                        ├─▶ device   (registers, doorbells, commands)
//!                                                        ├─▶ memory   (mappings of the client)
//!                                                        └─▶ network  (other processes)
//! ```
//!
//! A client and its machine may send any message, and may write any bytes to memory. Each access is checked
//! against the mappings, and each message against its length. Invalid messages are refused and change
//! nothing.

mod config;
mod function;
mod json;
mod memory;
mod message;
mod network;
mod planned;
mod server;
mod times;
mod words;

pub use config::Model;
pub use function::{Function, Refusal, Region};
pub use json::json;
pub use memory::{GuestMemory, MapError, Rights};
pub use mlx5_softdev::Port;
pub use network::Network;
pub use planned::check_places;
pub use server::{serve, serve_stream};
pub use words::{Repeats, command, words};
