//! All calls into libibverbs and libmlx5. This module loads the two libraries at run time and turns each of
//! their objects into a value that owns it.
//!
//! The memory of rings is here too. Unsafe code in the other modules of `devx` only relies on duties of its
//! callers, or gives the memory of rings to the queues. A handle keeps alive the objects that it was made
//! from. An object is therefore destroyed before the objects that it was made from, in whatever order the
//! values are dropped.

mod address;
mod adopt;
mod allocation;
mod context;
mod copy;
mod dma;
mod errno;
mod events;
mod library;
mod memory;
mod object;
mod queries;
mod uar;
mod wait;

pub(super) use address::Route;
pub(super) use adopt::{CqParts, CqSlots, QpParts};
pub(super) use allocation::Allocation;
pub(super) use context::{Context, LoginPlace};
pub(super) use copy::copy_out;
pub(super) use dma::{Dma, Umem};
pub(super) use events::{EventChannel, EventData};
pub(super) use memory::{Mr, Pd};
pub(super) use object::Object;
pub(super) use queries::CommandChannel;
pub(super) use uar::Uar;
pub(super) use wait::Waker;
