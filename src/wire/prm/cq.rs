//! CREATE_CQ: the context of a completion queue (PRM `cqc`). The sources are the kernel's and DPDK's headers,
//! because rdma-core's header lacks this structure.

use super::command::RequestHeader;
use crate::wire::low::{low8, low32};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of a completion queue context.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CqcFlags {
    #[bits(8)]
    __: u8,
    /// Which events the queue is armed for (kernel `MLX5_CQC_ST_*`): 6 solicited ones, 9 all; 10 if the event
    /// was sent. The device sets this state.
    #[bits(4, into = low8::<4>)]
    pub st: u8,
    #[bits(2)]
    __: u8,
    /// The device may compress entries.
    pub cqe_comp_en: bool,
    #[bits(2)]
    __: u8,
    /// The device ignores an overrun of the queue.
    pub oi: bool,
    #[bits(2)]
    __: u8,
    /// Collapsed: all completions go to the first entry.
    pub cc: bool,
    /// Size of an entry: [`CqcFlags::BYTES_64`] or [`CqcFlags::BYTES_128`].
    #[bits(3, into = low8::<3>)]
    pub cqe_sz: u8,
    #[bits(1)]
    __: u8,
    /// The doorbell record is in user memory.
    pub dbr_umem_valid: bool,
    #[bits(2)]
    __: u8,
    /// Whether the queue works (kernel `MLX5_CQC_STATUS_*`): 0 yes, 9 after an overflow, 10 after a failed
    /// write. The device sets this status.
    #[bits(4, into = low8::<4>)]
    pub status: u8,
}

impl CqcFlags {
    /// `cqe_sz`: entries of 64 bytes.
    pub const BYTES_64: u8 = 0;
    /// `cqe_sz`: entries of 128 bytes.
    pub const BYTES_128: u8 = 1;
}

/// Size and UAR page of a completion queue.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CqcSize {
    /// Number of the UAR page with the doorbell that arms the queue.
    #[bits(24, into = low32::<24>)]
    pub uar_page: u32,
    /// Base-2 logarithm of the number of entries.
    #[bits(5, into = low8::<5>)]
    pub log_cq_size: u8,
    #[bits(3)]
    __: u8,
}

/// The context of a completion queue, 64 bytes (PRM `cqc`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Cqc {
    /// State, entry size and modes, see [`CqcFlags`].
    pub flags: U32,
    /// Number of the user memory that holds the doorbell record.
    pub dbr_umem_id: U32,
    /// Offset of the entries in their first page, in units of 64 bytes, from bit 6 on; unused by this
    /// library.
    pub page_offset: U32,
    /// Size and UAR page, see [`CqcSize`].
    pub size: U32,
    /// Moderation of events: microseconds after which an event is due, in the low 12 bits.
    pub cq_period: U16,
    /// Moderation of events: number of completions after which an event is due.
    pub cq_max_count: U16,
    /// Number of the event queue.
    pub c_eqn: U32,
    /// Base-2 logarithm of the page size of the entries, less 12, in the low 5 bits.
    pub log_page_size: u8,
    /// Reserved.
    pub reserved0: [u8; 3],
    /// Reserved.
    pub reserved1: U32,
    /// Counters, which the device sets: index of the last reported entry, the same for solicited events,
    /// consumer counter, producer counter.
    pub counters: [U32; 4],
    /// Reserved.
    pub reserved2: [U32; 2],
    /// Address of the doorbell record, or its offset in user memory.
    pub dbr_addr: U64,
}

/// The request CREATE_CQ, 272 bytes without a list of pages (PRM `create_cq_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CreateCqRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// Reserved.
    pub reserved0: [U32; 2],
    /// The context of the new completion queue.
    pub cqc: Cqc,
    /// Offset of the entries in their user memory.
    pub cq_umem_offset: U64,
    /// Number of the user memory that holds the entries.
    pub cq_umem_id: U32,
    /// [`CreateCqRequest::UMEM_VALID`] if the entries are in user memory, else 0.
    pub cq_umem_valid: U32,
    /// Reserved.
    pub reserved1: [U32; 44],
}

impl CreateCqRequest {
    /// `cq_umem_valid`: the entries are in user memory.
    pub const UMEM_VALID: u32 = 1 << 31;
}

crate::fmt::defmt_as_bytes!(Cqc, CreateCqRequest);

const _: () = assert!(size_of::<Cqc>() == 64);
const _: () = assert!(core::mem::offset_of!(Cqc, size) == 0xc);
const _: () = assert!(core::mem::offset_of!(Cqc, c_eqn) == 0x14);
const _: () = assert!(core::mem::offset_of!(Cqc, log_page_size) == 0x18);
const _: () = assert!(core::mem::offset_of!(Cqc, dbr_addr) == 0x38);
const _: () = assert!(size_of::<CreateCqRequest>() == 272);
const _: () = assert!(core::mem::offset_of!(CreateCqRequest, cqc) == 0x10);
const _: () = assert!(core::mem::offset_of!(CreateCqRequest, cq_umem_offset) == 0x50);
const _: () = assert!(core::mem::offset_of!(CreateCqRequest, cq_umem_valid) == 0x5c);
const _: () = assert!(CqcFlags::new().with_dbr_umem_valid(true).into_bits() == 1 << 25);
const _: () = assert!(CqcFlags::new().with_cqe_sz(1).into_bits() == 1 << 21);
