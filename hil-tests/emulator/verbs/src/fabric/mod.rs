//! The fabric of this process (`mlx5-peers`): its descriptors are kept from the program, and its plan of
//! faults decides about messages.

use crate::ground::descriptors;
use crate::ground::fault::{self, Fault, Place};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use mlx5_peers::codec;
#[cfg(not(feature = "fuzz"))]
pub(crate) use mlx5_peers::prepare;
pub(crate) use mlx5_peers::{News, connection, slot_of};
use std::os::fd::AsRawFd;

/// The fabric of this process.
pub(crate) type Fabric = mlx5_peers::Fabric<Preloaded>;

/// A process of which this library is a part.
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
