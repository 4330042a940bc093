//! Decodes the bytes of a work request or of a completion entry, describes them in words, and finds faults
//! that a device would refuse.
//!
//! The bytes may come from a ring, a trace, another library or an attacker. This module does not trust them,
//! never panics, and never reads past their end. Malformed bytes become a [`Finding`].
//!
//! ```
//! use mlx5_mkey::inspect::{Body, DeviceContext, Severity, WorkRequest};
//! // A request of queue pair 0x40 that takes mkey index 0x12 out of service, with a completion.
//! let mut bytes = [0; 128];
//! bytes[..16].copy_from_slice(&[0, 0, 0, 0x25, 0, 0, 0x40, 8, 0, 0, 0, 8, 0, 0, 0x12, 0]);
//! bytes[16] = 0x98;
//! bytes[24..32].copy_from_slice(&0x2000_6000_u64.to_be_bytes());
//! bytes[64..72].copy_from_slice(&[0x40, 0, 0, 0, 0xff, 0xff, 0xff, 0]);
//!
//! let request = WorkRequest::parse(&bytes)?;
//! let Body::Invalidate(umr) = request.body() else { panic!("{request}") };
//! assert_eq!(umr.key().index().get(), 0x12);
//! assert!(request.worst(&DeviceContext::UNKNOWN) < Some(Severity::Refused));
//! # Ok::<(), mlx5_mkey::inspect::ParseError>(())
//! ```

mod check;
mod columns;
pub mod cqe;
mod cqe_table;
mod crypto;
mod data_path;
mod device_context;
mod error;
mod field;
mod field_table;
mod finding;
mod foreign_table;
mod heads;
mod print;
mod queue_kind;
mod request;
mod segment;
mod segment_kind;
mod sequence;
mod spec;
mod summary;
mod transaction;
mod tweak;
mod umr;

#[cfg(test)]
mod tests;

pub use columns::Style;
pub use data_path::{DataPath, DataSegmentView, Memcpy};
pub use device_context::DeviceContext;
pub use error::ParseError;
pub use field::Field;
pub use finding::{Finding, Problem, Severity};
pub use print::Pretty;
pub use queue_kind::QueueKind;
pub use request::{Body, Requests, WorkRequest};
pub use segment::Segment;
pub use segment_kind::SegmentKind;
pub use summary::Summary;
pub use transaction::TransactionCrc;
pub use umr::{LayoutView, Umr};
