//! The boards that scenarios run on: each has an mlx5 device, real or simulated.

mod bare;
mod end;
mod host_memory;
mod interface;
mod softdev;
mod spec;

pub use bare::{Bare, BareRings, NoTime};
pub use end::{CoreQueues, Counters, EndQueues, Posting, QpEnd};
pub use host_memory::HostMemory;
pub use interface::{Board, Commissioned};
pub use softdev::SoftBoard;
pub use spec::{
    COMPLETIONS, Capabilities, DekSpec, EndSpec, Finding, MkeySpec, ProtectionDomain, QpEvent, QueuePairView,
    RECEIVE_SLOTS, SEND_BLOCKS,
};
