//! Queue pairs of reliable connections, and their way from reset to ready.
//!
//! No command takes a queue pair to the drained state (SQD): the device does, when a signature error hits one
//! that [`Init2Init`] told to drain. [`QueryQp`] shows it, [`Sqd2Rts`] leaves it.

mod access;
mod change;
mod connect;
mod create;
mod end;
mod path;
mod query;

pub use access::QpAccess;
pub use change::{Init2Init, QpChange, Rts2Rts, SqErr2Rts, Sqd2Rts};
pub use connect::{Init2Rtr, Rst2Init, Rtr2Rts};
pub use create::{CreateQp, CreateQpOnPages, ReceiveRing, TimestampFormat};
pub use end::{DestroyQp, QpToError, QpToReset};
pub use path::{InfinibandPath, Path, PathMtu, RocePath};
pub use query::{QpInfo, QpState, QueryQp};
