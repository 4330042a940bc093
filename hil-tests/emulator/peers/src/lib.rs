//! Messages between the devices of processes that meet in a directory.
//!
//! Each process has a [`Fabric`]: a slot of the directory, and connections to the processes of other slots.
//! The preloaded stand-in for the kernel and the emulated PCI function both reach their peers through a
//! fabric. [`codec`] encodes and decodes messages, and uses [`connection`] for messages of connection
//! management. [`copy`] copies bytes that others may change meanwhile. A gateway (`mlx5-fabric`) joins the
//! directories of several machines; both have the files of [`place`].

mod address;
mod backlog;
pub mod codec;
pub mod connection;
pub mod copy;
mod fabric;
mod patience;
pub mod place;
mod reader;
mod ring;

pub use address::{Gid, Mac};
pub use fabric::{Fabric, Host, News, SLOT_SHIFT, send, slot_of};
pub use patience::Waiting;
