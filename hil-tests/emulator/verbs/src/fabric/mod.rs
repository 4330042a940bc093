//! Adapts the fabric (`mlx5-peers`), which carries messages between the devices of several processes, to this
//! library: the program cannot close the fabric's descriptors, and the plan of faults decides about messages.

use crate::ground::descriptors;
use crate::ground::fault::{self, Fault, Place};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use mlx5_peers::codec;
#[cfg(not(feature = "fuzz"))]
pub(crate) use mlx5_peers::place::prepare;
pub(crate) use mlx5_peers::{News, connection, slot_of};
use std::os::fd::AsRawFd;

/// The fabric of this process.
pub(crate) type Fabric = mlx5_peers::Fabric<Preloaded>;

/// The host of the fabric: a program's process that has preloaded this library.
#[derive(Debug)]
pub(crate) struct Preloaded;

impl mlx5_peers::Host for Preloaded {
    fn keep(descriptor: &impl AsRawFd) {
        descriptors::keep(descriptor);
    }

    fn visit(place: Place) -> Option<Fault> {
        fault::at(place)
    }
}
