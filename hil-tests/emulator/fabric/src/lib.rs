//! The fabric between directories: programs on emulated devices meet in a directory (`mlx5-emulate --dir`),
//! and this package joins the directories of several machines, containers or network namespaces over TCP.
//!
//! One gateway serves each directory. One of the gateways, the hub, listens, and all others connect to it.
//! Each gateway is a member of the fabric and has its own range of slots. A slot is the place of one process.
//! A gateway reserves all other slots of its directory, and shows the processes of the other members in these
//! slots: their addresses, their services, and a socket. A connection to the socket becomes a channel through
//! the hub.
//!
//! [`Node`] makes all decisions of a gateway, and does no input or output. The program `mlx5-fabric` reads
//! and writes the sockets.
#![forbid(unsafe_code)]

mod frame;
mod node;
mod secret;

pub use frame::{Channel, Frame, Malformed, Table};
pub use node::{Effect, MEMBERS, Node, Role, SLOTS, WINDOW, member_of};
pub use secret::{Nonce, Secret, TooShort};
