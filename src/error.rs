//! The error types of the library: of commands, command queues, mkey configurations, pools, queues, posting
//! and completions. This module only re-exports them. Each type is defined in the lowest module that returns
//! it.
//!
//! All error types are small and `Copy`. An error about a value names the value and, unless it is a constant,
//! the limit. A refused request has changed nothing.
//!
//! ```
//! use mlx5_mkey::error::PostError;
//! /// Returns whether the request can be posted after completions were taken. The queue has a ring of
//! /// `blocks` blocks and at most `max_requests` outstanding requests. Other errors are faults of the
//! /// program.
//! fn is_temporary(error: &PostError, blocks: u16, max_requests: u32) -> bool {
//!     match *error {
//!         PostError::SendRingFull { needed, .. } => needed <= blocks,
//!         PostError::TooManyRequests { needed, .. } => u32::from(needed) <= max_requests,
//!         PostError::ReceiveRingFull { .. } => true,
//!         _ => false,
//!     }
//! }
//! assert!(is_temporary(&PostError::SendRingFull { needed: 5, free: 1 }, 64, 64));
//! assert!(!is_temporary(&PostError::SendRingFull { needed: 5, free: 4 }, 4, 64));
//! assert!(!is_temporary(&PostError::SgeEmpty { index: 0 }, 64, 64));
//! ```

pub use crate::command::error::{CommandError, EqualHalves};
pub use crate::hca::error::CommandQueueError;
pub use crate::mkey::error::{CheckError, ConfigError, ConfigPart, PoolError};
pub use crate::queue::error::CompletionError;
pub use crate::types::QueueError;
pub use crate::wqe::error::PostError;
