//! Queue pairs of reliable connections, and their way from reset to ready.
//!
//! No command takes a queue pair to the drained state (SQD): the device does, when a signature error hits one that
//! [`Init2Init`] told to drain. [`QueryQp`] shows it, [`DrainedToSend`] leaves it.

mod change;
mod connect;
mod create;
mod end;
mod path;
mod query;
mod rights;

pub use change::{DrainedToSend, FailedToSend, Init2Init, QpChange, Rts2Rts};
pub use connect::{InitQp, ReadyToReceive, ReadyToSend};
pub use create::{CreateQp, ReceiveRing, SendRingSize, SlotCount, SlotStride, TimestampFormat};
pub use end::{DestroyQp, QpToError, QpToReset};
pub use path::{InfinibandPath, Path, PathMtu, RocePath};
pub use query::{QpInfo, QpState, QueryQp};
pub use rights::QpRights;
