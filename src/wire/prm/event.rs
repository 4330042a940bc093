//! Events: what the device reports apart from the entries of completion queues (PRM `eqe`).

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An entry of an event queue, 64 bytes, as rdma-core's users get it after their cookie.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct EventEntry {
    /// Reserved.
    pub reserved0: u8,
    /// What happened.
    pub event_type: u8,
    /// Reserved.
    pub reserved1: u8,
    /// More of it, where the kind says so.
    pub sub_type: u8,
    /// Reserved.
    pub reserved2: [U32; 7],
    /// The completion queue, of events of one but a completion's.
    pub cqn: U32,
    /// Reserved.
    pub reserved3: [u8; 7],
    /// Why the completion queue failed.
    pub syndrome: u8,
    /// Reserved.
    pub reserved4: [U32; 3],
    /// The queue pair, of events of one; the completion queue, of a completion's event.
    pub number: U32,
    /// Reserved.
    pub reserved5: [u8; 2],
    /// Checksum.
    pub signature: u8,
    /// Whose turn it is with the entry.
    pub owner: u8,
}

impl EventEntry {
    /// What entries hold before the device learns of them: they are its own in the first lap
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
