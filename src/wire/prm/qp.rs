//! Commands about queue pairs: CREATE_QP, the changes of state, QUERY_QP.

use super::command::{ReplyHeader, RequestHeader};
use super::qp_context::Qpc;
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Mask of the optional fields of a context that a command reads (PRM `opt_param_mask`; names of the kernel's
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

/// The request CREATE_QP, 272 bytes without a list of pages (PRM `create_qp_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CreateQpRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// Reserved, or a chosen number for the queue pair.
    pub reserved0: [U32; 2],
    /// Mask of optional fields, see [`QpOptional`].
    pub opt_param_mask: U32,
    /// Reserved.
    pub reserved1: U32,
    /// The context of the new queue pair.
    pub qpc: Qpc,
    /// Offset of the rings in their user memory (kernel and DPDK headers; reserved in rdma-core's).
    pub wq_umem_offset: U64,
    /// Number of the user memory that holds the rings.
    pub wq_umem_id: U32,
    /// [`CreateQpRequest::UMEM_VALID`] if the rings are in user memory, else 0.
    pub wq_umem_valid: U32,
}

impl CreateQpRequest {
    /// `wq_umem_valid`: the rings are in user memory.
    pub const UMEM_VALID: u32 = 1 << 31;
}

/// A request that changes the state of a queue pair, 272 bytes (PRM `rst2init_qp_in`, `init2rtr_qp_in`,
/// `rtr2rts_qp_in`, `sqd2rts_qp_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ModifyQpRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// Number of the queue pair, in the low 24 bits.
    pub qpn: U32,
    /// Reserved.
    pub reserved0: U32,
    /// Mask of optional fields, see [`QpOptional`].
    pub opt_param_mask: U32,
    /// Reserved.
    pub reserved1: U32,
    /// The context. Each command reads its own part of it.
    pub qpc: Qpc,
    /// Reserved.
    pub reserved2: [U32; 4],
}

/// A request that changes a queue pair and keeps its state, 464 bytes, with room for an extension of the
/// context (PRM `init2init_qp_in`, `rts2rts_qp_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AdjustQpRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// Number of the queue pair, in the low 24 bits, and the bit [`AdjustQpRequest::EXTENDED`].
    pub qpn: U32,
    /// Reserved.
    pub reserved0: U32,
    /// Mask of optional fields, see [`QpOptional`].
    pub opt_param_mask: U32,
    /// Reserved.
    pub reserved1: U32,
    /// The new values of the context's fields.
    pub qpc: Qpc,
    /// Reserved.
    pub reserved2: [U32; 2],
    /// Bits 32 to 95 of the mask of optional fields: [`AdjustQpRequest::SELECT_MMO`].
    pub opt_param_mask_95_32: U64,
    /// First word of the context's extension, see [`QpcExtension`].
    pub extension: U32,
    /// The rest of the extension, unused by this library.
    pub extension_rest: [U32; 47],
}

impl AdjustQpRequest {
    /// `qpn`: the context has an extension (PRM `qpc_ext`).
    pub const EXTENDED: u32 = 1 << 31;
    /// `opt_param_mask_95_32`: the command reads [`QpcExtension::mmo`]
    /// (`MLX5_QPC_OPT_MASK_32_INIT2INIT_MMO`).
    pub const SELECT_MMO: u64 = 1 << 3;
}

/// First word of the extension of a context (PRM `qpc_ext`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcExtension {
    #[bits(29)]
    __: u32,
    /// Software may post memory-to-memory operations to the queue pair.
    pub mmo: bool,
    #[bits(2)]
    __: u8,
}

/// Reply to QUERY_QP, 272 bytes without a list of pages (PRM `query_qp_out`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueryQpReply {
    /// Status of the command.
    pub header: ReplyHeader,
    /// Reserved.
    pub reserved0: [U32; 2],
    /// Mask of optional fields, see [`QpOptional`].
    pub opt_param_mask: U32,
    /// Reserved.
    pub reserved1: U32,
    /// The context of the queue pair.
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
