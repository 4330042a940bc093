//! A software mlx5 device. The device reads rings in memory and executes the requests in them.
//!
//! The device uses the wire structs and value types of `mlx5-mkey`, but not its encoder. A request is
//! therefore decoded independently of the code that wrote it.
//!
//! ```text
//! doorbell ─▶ fetch (ring ─▶ Operation) ─▶ execute ─┬─▶ umr, PSV: objects change
//!                                                   └─▶ data: translate ─▶ gather ─▶ pipeline ─▶ Request
//! peer's Request ─▶ respond (receive ring, remote keys) ─▶ pipeline ─▶ translate ─▶ scatter ─▶ Response
//! both ─▶ cqe (entries) ─▶ completion ring
//! ```
//!
//! Requester and responder share no state: a [`Message`] carries wire bytes from one to the other, inside one
//! [`Device`] or, through [`Device::take_message`] and [`Device::deliver`], between two.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bus;
pub mod capabilities;
mod clock;
pub mod commands;
mod completion;
mod cqe;
pub mod crypto;
mod data_path;
mod datagram;
mod device;
mod execute;
pub mod factory;
mod faults;
mod fetch;
mod gate;
mod gids;
mod interface;
mod interface_state;
mod keys;
mod memory;
mod message;
mod object;
mod outbound;
pub mod pipeline;
mod profile;
mod queue_pair;
mod receive;
mod refusal;
mod region;
mod respond;
mod ruling;
mod run;
pub mod signature;
mod tap;
pub mod transaction;
mod transfer;
mod transform;
mod translate;
mod unreliable;
mod wiped;

pub use datagram::Datagram;
pub use device::{Device, Error, Event, Numbered};
pub use faults::Faults;
pub use gate::{Course, Passage};
pub use interface::{announced, transport_checksum};
pub use interface_state::Phase;
pub use keys::DekError;
pub use memory::{Arena, Fault, Memory};
pub use message::{Change, Message, Payload, Request, Response, Width, is_first};
pub use object::cq::CqAttributes;
pub use object::dek::{DekAttributes, KeyMaterial, KeySize, LoginState};
pub use object::mkey::{Access, MkeyAttributes, MkeySpace, MkeyView};
pub use object::psv::{PsvState, PsvView};
pub use object::qp::{Peer, QpAttributes, QpState, QpView, ReceiveQueue, ReceiveRing, Retries, Transport};
pub use object::srq::{SrqAttributes, Topology};
pub use profile::{CryptoMode, DeviceProfile, PSID, PartialBlocks, Port, Timestamps, UmrFence, XtsEngine};
pub use refusal::{Cause, Reason, Refusal};
pub use region::{Placement, RegionChange};
pub use ruling::{Ruling, Side};
pub use tap::{Seen, Written};
pub use wiped::Wiped;
