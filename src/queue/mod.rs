//! The rings: where work requests go and completions come from.
//!
//! Memory for rings and doorbell records is the caller's, and so is the doorbell. Requests are written into free blocks,
//! and the device learns of them when [`SendQueue::ring_doorbell`] publishes; only cancelling changes blocks that are posted. Rings
//! are shared with the device: nothing read from them is trusted.

mod barrier;
mod completion;
mod completion_queue;
mod doorbell;
mod in_flight;
mod mkey_pool;
mod producer;
mod qp_table;
mod receive;
mod request;
mod retire;
mod ring;
mod router;
mod send;
mod send_config;
mod send_state;
mod shared;
mod transfer;

pub use completion::{Completion, Failure, Message, Outcome, WorkCompletion};
pub use completion_queue::{ArmFor, CompletionQueue};
pub use doorbell::{
    CqDoorbell, CqDoorbellRecord, Doorbell, DoorbellRecord, LastRequest, UarCqDoorbell, UarDoorbell,
};
pub use in_flight::{RequestKind, Retired};
pub use mkey_pool::{MkeyPool, PooledMkey};
pub use qp_table::{QpTable, QpTableRouter};
pub use receive::{ReceiveQueue, ReceiveQueueConfig};
pub use request::SendRequest;
pub use router::{CompletionRouter, CqeOrigin, QpQueues, QpRouter};
pub use send::{Batch, SendQueue};
pub use send_config::SendQueueConfig;
pub use shared::SharedSendQueue;

/// The most slots of a send or receive queue: positions have 16 bits, and half of them tell old from new.
const MAX_SLOTS: usize = 1 << 15;

/// The most entries of a completion queue: positions have 24 bits.
const MAX_COMPLETIONS: usize = 1 << 23;
