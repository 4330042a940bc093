//! The rings in memory through which work requests go to the device, and completions come back.
//!
//! The caller provides the memory for rings and doorbell records, and the doorbell. Requests are written into
//! free blocks. The device learns of them when [`SendQueue::ring_doorbell`] publishes them; after that, only
//! cancelling changes blocks. Rings are shared with the device, so the library does not trust their contents.
//!
//! ```
//! use mlx5_mkey::queue::{
//!     CompletionQueue, CqDoorbellRecord, DeviceClock, Doorbell, DoorbellRecord, LastRequest, QpRouter,
//!     SendQueue, SendQueueConfig, SendSlot,
//! };
//! use mlx5_mkey::types::Qpn;
//! use mlx5_mkey::wire::{Wqebb, cqe::Cqe};
//!
//! /// A doorbell without a device. The doorbell of a device is `UarDoorbell`.
//! struct NoDoorbell;
//! impl Doorbell for NoDoorbell {
//!     fn ring(&mut self, _last: &LastRequest<'_>) {}
//! }
//!
//! let (mut ring, mut slots) = ([Wqebb::ZERO; 64], SendSlot::array::<64>());
//! let record = DoorbellRecord::new();
//! let config = SendQueueConfig::new(Qpn::new(0x77)?);
//! let mut queue = SendQueue::new(config, &mut ring, &mut slots, &record, NoDoorbell)?;
//! let (mut entries, cq_record) = ([Cqe::UNWRITTEN; 64], CqDoorbellRecord::new());
//! let mut completions = CompletionQueue::new(&mut entries, &cq_record)?;
//!
//! queue.request(1).signaled().nop()?;
//! queue.ring_doorbell();
//! // A device would execute the request and write an entry for it: `Completion::Work` with id 1.
//! let mut router = QpRouter { queues: &mut queue, mkeys: &mut [] };
//! assert!(completions.poll(&mut router).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Functions have at most 50 lines (.clippy.toml), except in tests.
#![cfg_attr(not(test), deny(clippy::too_many_lines))]

mod arm;
pub(crate) mod barrier;
mod clock;
mod completed;
mod completion;
mod completion_queue;
mod doorbell;
pub(crate) mod error;
mod in_flight;
mod keys;
mod lists;
mod mkey_pool;
mod qp_table;
mod raw;
mod receive;
mod registers;
mod request;
mod retire;
pub(crate) mod ring;
mod room;
mod router;
mod send;
mod send_config;
mod send_ring;
mod shared;
pub(crate) mod slots;
mod transfer;
pub(crate) mod unclaimed;
mod window_pool;

pub use arm::ArmFor;
pub use clock::{ClockInfo, real_time};
#[cfg(feature = "devx")]
pub(crate) use completed::CqIdentity;
pub use completed::{CompletedReceive, CompletedSend};
pub use completion::{Completion, Failure, Message, Outcome, WorkCompletion};
pub use completion_queue::CompletionQueue;
pub use doorbell::{CqDoorbell, CqDoorbellRecord, Doorbell, DoorbellRecord, LastRequest};
pub use in_flight::{RequestKind, RequestNumber, Retired};
pub use mkey_pool::{MkeyPool, PooledMkey};
pub use qp_table::{QpTable, QpTableRouter, TableSlot};
pub use receive::{ReceiveQueue, ReceiveQueueConfig};
pub use registers::{BlueFlame, DeviceClock, UarCqDoorbell, UarDoorbell};
pub use request::SendRequest;
pub use room::Room;
pub use router::{CompletionRouter, CqeOrigin, QpQueues, QpRouter};
pub use send::{Batch, SendQueue};
pub use send_config::SendQueueConfig;
pub use send_ring::SendSlot;
pub use shared::SharedSendQueue;
pub use slots::PoolSlot;
pub use window_pool::{PooledWindow, WindowPool};

/// The most slots of a send or receive queue. Positions have 16 bits. At most half of them are in use, so
/// that old positions are not taken for new ones.
const MAX_SLOTS: usize = 1 << 15;

/// The most entries of a completion queue. Positions have 24 bits, and at most half of them are in use, as
/// with [`MAX_SLOTS`].
const MAX_COMPLETIONS: usize = 1 << 23;
