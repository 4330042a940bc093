//! Queue pairs of reliable connections, and their way from reset to ready.
//!
//! No command here takes a queue pair to the drained state (SQD). The device does so on a signature error, if
//! [`Init2Init`] has enabled draining. [`QueryQp`] shows the state, [`Sqd2Rts`] leaves it.

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
