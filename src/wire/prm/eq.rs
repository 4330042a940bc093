//! CREATE_EQ: the context of an event queue (PRM `eqc`).

use super::command::RequestHeader;
use crate::wire::low::{low8, low32};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size and UAR page of an event queue.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct EqcSize {
    /// Number of the UAR page with the queue's doorbell.
    #[bits(24, into = low32::<24>)]
    pub uar_page: u32,
    /// Base-2 logarithm of the number of entries.
    #[bits(5, into = low8::<5>)]
    pub log_eq_size: u8,
    #[bits(3)]
    __: u8,
}

/// The context of an event queue, 64 bytes (PRM `eqc`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Eqc {
    /// Status and state, which the device sets. With bit 17, the device ignores an overrun of the queue.
    pub flags: U32,
    /// Reserved.
    pub reserved0: U32,
    /// Offset of the entries in their first page, in units of 64 bytes, from bit 6 on; unused by this
    /// library.
    pub page_offset: U32,
    /// Size and UAR page, see [`EqcSize`].
    pub size: U32,
    /// Reserved.
    pub reserved1: U32,
    /// Interrupt vector, in the low 8 bits.
    pub intr: U32,
    /// Base-2 logarithm of the page size of the entries, less 12, in the low 5 bits.
    pub log_page_size: u8,
    /// Reserved.
    pub reserved2: [u8; 3],
    /// Reserved.
    pub reserved3: [U32; 3],
    /// Consumer counter and producer counter, which the device sets.
    pub counters: [U32; 2],
    /// Reserved.
    pub reserved4: [U32; 4],
}

/// The request CREATE_EQ, 272 bytes without the list of pages (PRM `create_eq_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CreateEqRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// Reserved.
    pub reserved0: [U32; 2],
    /// The context of the new event queue.
    pub eqc: Eqc,
    /// Reserved.
    pub reserved1: [U32; 2],
    /// The events that the queue gets: bit n of word m stands for type 64 m + n. Completion events need no
    /// bit: each completion queue names the event queue that gets its completion events.
    pub event_bitmask: [U64; 4],
    /// Reserved.
    pub reserved2: [U32; 38],
}

crate::fmt::defmt_as_bytes!(Eqc, CreateEqRequest);

const _: () = assert!(size_of::<Eqc>() == 64);
const _: () = assert!(core::mem::offset_of!(Eqc, size) == 0xc);
const _: () = assert!(core::mem::offset_of!(Eqc, intr) == 0x14);
const _: () = assert!(core::mem::offset_of!(Eqc, log_page_size) == 0x18);
const _: () = assert!(core::mem::offset_of!(Eqc, counters) == 0x28);
const _: () = assert!(size_of::<CreateEqRequest>() == 272);
const _: () = assert!(core::mem::offset_of!(CreateEqRequest, eqc) == 0x10);
const _: () = assert!(core::mem::offset_of!(CreateEqRequest, event_bitmask) == 0x58);
