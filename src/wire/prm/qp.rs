//! Commands about queue pairs: CREATE_QP, the changes of state, QUERY_QP.

use super::command::{ReplyHeader, RequestHeader};
use super::qp_context::Qpc;
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The optional fields of a context that a change of state uses (PRM `opt_param_mask`; names of the kernel's
/// `enum mlx5_qp_optpar`, bit 11 from rdma-core).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpOptional {
    #[bits(1)]
    __: u8,
    /// The peer's right to RDMA READ.
    pub remote_read: bool,
    /// The peer's right to atomics.
    pub atomic: bool,
    /// The peer's right to RDMA WRITE.
    pub remote_write: bool,
    #[bits(2)]
    __: u8,
    /// The receiver-not-ready timer.
    pub rnr_timeout: bool,
    #[bits(4)]
    __: u8,
    /// Whether the send queue stops at a signature error; INIT2INIT only.
    pub drain_sigerr: bool,
    #[bits(20)]
    __: u32,
}

/// CREATE_QP, 272 bytes without a list of pages (PRM `create_qp_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CreateQpRequest {
    /// Command.
    pub header: RequestHeader,
    /// Reserved, or a chosen number for the queue pair.
    pub reserved0: [U32; 2],
    /// See [`QpOptional`].
    pub opt_param_mask: U32,
    /// Reserved.
    pub reserved1: U32,
    /// The context.
    pub qpc: Qpc,
    /// Offset of the rings in their user memory (kernel and DPDK headers; reserved in rdma-core's).
    pub wq_umem_offset: U64,
    /// User memory of the rings.
    pub wq_umem_id: U32,
    /// See [`CreateQpRequest::UMEM_VALID`].
    pub wq_umem_valid: U32,
}

impl CreateQpRequest {
    /// `wq_umem_valid`: the rings are in user memory.
    pub const UMEM_VALID: u32 = 1 << 31;
}

/// A change of state, 272 bytes (PRM `rst2init_qp_in`, `init2rtr_qp_in`, `rtr2rts_qp_in`, `sqd2rts_qp_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ModifyQpRequest {
    /// Command.
    pub header: RequestHeader,
    /// Queue pair, in the low 24 bits.
    pub qpn: U32,
    /// Reserved.
    pub reserved0: U32,
    /// See [`QpOptional`].
    pub opt_param_mask: U32,
    /// Reserved.
    pub reserved1: U32,
    /// The context. Each command reads its own part of it.
    pub qpc: Qpc,
    /// Reserved.
    pub reserved2: [U32; 4],
}

/// A change within a state, 464 bytes, with room for an extension (PRM `init2init_qp_in`, `rts2rts_qp_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AdjustQpRequest {
    /// Command.
    pub header: RequestHeader,
    /// Queue pair, in the low 24 bits, and [`AdjustQpRequest::EXTENDED`].
    pub qpn: U32,
    /// Reserved.
    pub reserved0: U32,
    /// See [`QpOptional`].
    pub opt_param_mask: U32,
    /// Reserved.
    pub reserved1: U32,
    /// The context.
    pub qpc: Qpc,
    /// Reserved.
    pub reserved2: [U32; 2],
    /// Bits 32 to 95 of the optional fields: [`AdjustQpRequest::SELECT_MMO`].
    pub opt_param_mask_95_32: U64,
    /// First word of the context's extension, see [`QpcExtension`].
    pub extension: U32,
    /// The rest of the extension, unused here.
    pub extension_rest: [U32; 47],
}

impl AdjustQpRequest {
    /// `qpn`: the context has an extension (PRM `qpc_ext`).
    pub const EXTENDED: u32 = 1 << 31;
    /// `opt_param_mask_95_32`: [`QpcExtension::mmo`] counts (`MLX5_QPC_OPT_MASK_32_INIT2INIT_MMO`).
    pub const SELECT_MMO: u64 = 1 << 3;
}

/// First word of the extension of a context (PRM `qpc_ext`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcExtension {
    #[bits(29)]
    __: u32,
    /// Memory-to-memory operations may be posted.
    pub mmo: bool,
    #[bits(2)]
    __: u8,
}

/// Reply to QUERY_QP, 272 bytes without a list of pages (PRM `query_qp_out`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueryQpReply {
    /// Status.
    pub header: ReplyHeader,
    /// Reserved.
    pub reserved0: [U32; 2],
    /// See [`QpOptional`].
    pub opt_param_mask: U32,
    /// Reserved.
    pub reserved1: U32,
    /// The context.
    pub qpc: Qpc,
    /// Reserved.
    pub reserved2: [U32; 4],
}

crate::fmt::defmt_as_bytes!(CreateQpRequest, ModifyQpRequest, AdjustQpRequest, QueryQpReply);

const _: () = assert!(size_of::<CreateQpRequest>() == 272);
const _: () = assert!(core::mem::offset_of!(CreateQpRequest, qpc) == 0x18);
const _: () = assert!(core::mem::offset_of!(CreateQpRequest, wq_umem_offset) == 0x100);
const _: () = assert!(core::mem::offset_of!(CreateQpRequest, wq_umem_valid) == 0x10c);
const _: () = assert!(size_of::<ModifyQpRequest>() == 272);
const _: () = assert!(core::mem::offset_of!(ModifyQpRequest, qpc) == 0x18);
const _: () = assert!(size_of::<AdjustQpRequest>() == 464);
const _: () = assert!(core::mem::offset_of!(AdjustQpRequest, opt_param_mask_95_32) == 0x108);
const _: () = assert!(core::mem::offset_of!(AdjustQpRequest, extension) == 0x110);
const _: () = assert!(QpcExtension::new().with_mmo(true).into_bits() == 1 << 29);
const _: () = assert!(size_of::<QueryQpReply>() == 272);
const _: () = assert!(core::mem::offset_of!(QueryQpReply, qpc) == 0x18);
const _: () = assert!(QpOptional::new().with_drain_sigerr(true).into_bits() == 1 << 11);
const _: () = assert!(QpOptional::new().with_rnr_timeout(true).into_bits() == 1 << 6);
