//! Events: reports of the device in event queues (PRM `eqe`).

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An entry of an event queue, 64 bytes. A program that receives events through rdma-core reads a cookie
/// before each entry: the number that the program gave when it subscribed to the event.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct EventEntry {
    /// Reserved.
    pub reserved0: u8,
    /// The kind of event (kernel `enum mlx5_event`): 0 is a completion.
    pub event_type: u8,
    /// Reserved.
    pub reserved1: u8,
    /// Second part of the kind, for kinds that have one.
    pub sub_type: u8,
    /// Reserved.
    pub reserved2: [U32; 7],
    /// Number of the completion queue, for errors of completion queues.
    pub cqn: U32,
    /// Reserved.
    pub reserved3: [u8; 7],
    /// The reason why the completion queue failed: 1 overrun, 2 access violation (kernel
    /// `MLX5_CQ_ERROR_SYNDROME_*`).
    pub syndrome: u8,
    /// Reserved.
    pub reserved4: [U32; 3],
    /// Number of the object that the event is about: queue pair, shared receive queue, or for completion
    /// events the completion queue.
    pub number: U32,
    /// Reserved.
    pub reserved5: [u8; 2],
    /// Checksum of the entry.
    pub signature: u8,
    /// Owner bit: whether the entry belongs to software or to the device.
    pub owner: u8,
}

impl EventEntry {
    /// An entry as it is before the queue is created. It belongs to the device in the first lap
    /// (`MLX5_EQE_OWNER_INIT_VAL`).
    pub const UNWRITTEN: Self = Self {
        reserved0: 0,
        event_type: 0,
        reserved1: 0,
        sub_type: 0,
        reserved2: [U32::ZERO; 7],
        cqn: U32::ZERO,
        reserved3: [0; 7],
        syndrome: 0,
        reserved4: [U32::ZERO; 3],
        number: U32::ZERO,
        reserved5: [0; 2],
        signature: 0,
        owner: 1,
    };
}

crate::fmt::defmt_as_bytes!(EventEntry);

const _: () = assert!(size_of::<EventEntry>() == 64);
const _: () = assert!(core::mem::offset_of!(EventEntry, cqn) == 32);
const _: () = assert!(core::mem::offset_of!(EventEntry, syndrome) == 43);
const _: () = assert!(core::mem::offset_of!(EventEntry, number) == 56);
