//! Commands for queue pairs of reliable connections, from their creation to their end.
//!
//! No command of this module takes a queue pair to the drained state (SQD). The device drains a queue pair by
//! itself, at a signature error, if [`Init2Init`] has enabled draining. [`QueryQp`] returns the state of a
//! queue pair, and [`Sqd2Rts`] ends the drained state.

mod access;
mod change;
mod connect;
mod create;
mod end;
mod path;
mod query;

pub use access::{PeerAtomics, QpAccess};
pub use change::{Init2Init, QpChange, Rts2Rts, SqErr2Rts, Sqd2Rts};
pub use connect::{Init2Rtr, Rst2Init, Rtr2Rts};
pub use create::{CreateQp, CreateQpOnPages, ReceiveRing, TimestampFormat};
pub use end::{DestroyQp, QpToError, QpToReset};
pub use path::{InfinibandPath, Path, PathMtu, RocePath};
pub use query::{QpInfo, QpState, QueryQp};
