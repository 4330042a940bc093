//! The control segment, with which every send work request begins (PRM `wqe_ctrl_seg`).

use super::codes::codes;
use super::low::{low8, low32};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

codes! {
    /// The operation of a work request (PRM WQE `opcode`). The type can also hold codes without a name,
    /// because a ring may contain any code.
    Opcode(u8), "opcode {:#04x}";

    /// Completes without any other effect.
    NOP = 0x00, "NOP";
    /// Sends a message, and makes the receiver invalidate one of its keys.
    SEND_INVAL = 0x01, "SEND_INVAL";
    /// Writes into the peer's memory (RDMA WRITE).
    RDMA_WRITE = 0x08, "RDMA_WRITE";
    /// Writes into the peer's memory, consumes a receive request of the peer, and delivers 32 bits with the
    /// completion of the receive request.
    RDMA_WRITE_IMM = 0x09, "RDMA_WRITE_IMM";
    /// Sends a message.
    SEND = 0x0a, "SEND";
    /// Sends a message, and delivers 32 bits with the peer's completion.
    SEND_IMM = 0x0b, "SEND_IMM";
    /// Sends one packet in several segments, or several packets, on an Ethernet queue (`MLX5_OPCODE_TSO`).
    TSO = 0x0e, "TSO";
    /// Waits for a completion queue, a value in memory or a time; `opmod` says which (DPDK, UCC).
    WAIT = 0x0f, "WAIT";
    /// Reads the peer's memory (RDMA READ).
    RDMA_READ = 0x10, "RDMA_READ";
    /// Compares and swaps 8 bytes of the peer's memory atomically.
    ATOMIC_CS = 0x11, "ATOMIC_CS";
    /// Adds to 8 bytes of the peer's memory atomically, and returns their old value.
    ATOMIC_FA = 0x12, "ATOMIC_FA";
    /// Compares and swaps atomically under masks; `opmod` gives the number of bytes.
    ATOMIC_MASKED_CS = 0x14, "ATOMIC_MASKED_CS";
    /// Adds atomically in fields with boundaries, and returns the old value; `opmod` gives the number of
    /// bytes.
    ATOMIC_MASKED_FA = 0x15, "ATOMIC_MASKED_FA";
    /// Lets another send queue run up to a request (`MLX5_OPCODE_SEND_EN` of DPDK).
    SEND_ENABLE = 0x17, "SEND_ENABLE";
    /// Binds a memory window (kernel `MLX5_OPCODE_BIND_MW`); libmlx5 binds with a UMR.
    BIND_MW = 0x18, "BIND_MW";
    /// Registers memory (`MLX5_OPCODE_FMR`).
    FMR = 0x19, "FMR";
    /// Invalidates a local key (`MLX5_OPCODE_LOCAL_INVAL`); libmlx5 invalidates with a UMR.
    LOCAL_INVAL = 0x1b, "LOCAL_INVAL";
    /// Carries a configuration command (`MLX5_OPCODE_CONFIG_CMD`).
    CONFIG_CMD = 0x1f, "CONFIG_CMD";
    /// Sets the value of a PSV (protection signature value).
    SET_PSV = 0x20, "SET_PSV";
    /// Reads PSVs.
    GET_PSV = 0x21, "GET_PSV";
    /// Checks PSVs.
    CHECK_PSV = 0x22, "CHECK_PSV";
    /// Reads memory without sending it, which flushes earlier writes (kernel TLS, NVSHMEM).
    DUMP = 0x23, "DUMP";
    /// Changes a memory key (user-mode memory registration).
    UMR = 0x25, "UMR";
    /// Reads PSVs of the peer.
    RGET_PSV = 0x26, "RGET_PSV";
    /// Checks PSVs of the peer.
    RCHECK_PSV = 0x27, "RCHECK_PSV";
    /// Changes the list of a shared receive queue with tag matching (`MLX5_OPCODE_TAG_MATCHING`).
    TAG_MATCHING = 0x28, "TAG_MATCHING";
    /// Sends several packets on an Ethernet queue (kernel, DPDK `MLX5_OPCODE_ENHANCED_MPSW`).
    ENHANCED_MPSW = 0x29, "ENHANCED_MPSW";
    /// Changes a flow table (`MLX5_OPCODE_FLOW_TBL_ACCESS`).
    FLOW_TBL_ACCESS = 0x2c, "FLOW_TBL_ACCESS";
    /// Uses an object of advanced steering (kernel, DPDK `MLX5_OPCODE_ACCESS_ASO`).
    ACCESS_ASO = 0x2d, "ACCESS_ASO";
    /// Executes a memory-to-memory operation; `opmod` says which.
    MMO = 0x2f, "MMO";
    /// Executes a local memory-to-memory operation of another kind: a transposition (UCC, DOCA).
    LOCAL_MMO = 0x32, "LOCAL_MMO";
}

/// First word of the control segment (PRM `opmod_idx_opcode`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct OpcodeWord {
    /// The operation of the request, see [`Opcode`].
    pub opcode: u8,
    /// Number of the request's first block, counted from the creation of the queue, modulo 2^16.
    pub wqe_index: u16,
    /// Opcode modifier: [`OpcodeWord::OPMOD_MEMCPY`] for a copy in memory, [`OpcodeWord::OPMOD_ATOMIC_4`] or
    /// [`OpcodeWord::OPMOD_ATOMIC_8`] for a masked atomic, and 0 for all other requests of this library.
    pub opmod: u8,
}

impl OpcodeWord {
    /// `opmod` of [`Opcode::MMO`]: copies memory (`MLX5_OPC_MOD_MMO_DMA`).
    pub const OPMOD_MEMCPY: u8 = 1;
    /// `opmod` of a masked atomic of 4 bytes (UCX `UCT_IB_MLX5_OPMOD_EXT_ATOMIC`).
    pub const OPMOD_ATOMIC_4: u8 = 8;
    /// `opmod` of a masked atomic of 8 bytes.
    pub const OPMOD_ATOMIC_8: u8 = 9;
}

/// Second word of the control segment (PRM `qpn_ds`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpnDs {
    /// Size of the request in octowords of 16 bytes. The device reads only 6 bits.
    pub ds: u8,
    /// Number of the queue pair that the request is posted to.
    #[bits(24, into = low32::<24>)]
    pub qpn: u32,
}

/// Fences, completion and event flags (PRM `fm_ce_se`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct FmCeSe {
    #[bits(1)]
    __: u8,
    /// The receiver gets a solicited event (PRM `se`).
    pub solicited: bool,
    /// When a completion is written (PRM `ce`): [`FmCeSe::CE_ERROR_ONLY`], [`FmCeSe::CE_NO_FLUSH_ERROR`],
    /// [`FmCeSe::CE_ALWAYS`] or [`FmCeSe::CE_EVENT`].
    #[bits(2, into = low8::<2>)]
    pub ce: u8,
    #[bits(1)]
    __: u8,
    /// Fence mode (PRM `fm`): [`FmCeSe::FM_NONE`], [`FmCeSe::FM_SMALL`], [`FmCeSe::FM_FENCE_ALONE`],
    /// [`FmCeSe::FM_STRONG`] or [`FmCeSe::FM_FENCE`].
    #[bits(3, into = low8::<3>)]
    pub fm: u8,
}

impl FmCeSe {
    /// `ce`: a completion only in case of an error.
    pub const CE_ERROR_ONLY: u8 = 0;
    /// `ce`: a completion if the request fails, but none if the error of another request flushes it.
    pub const CE_NO_FLUSH_ERROR: u8 = 1;
    /// `ce`: a completion always (`MLX5_WQE_CTRL_CQ_UPDATE`).
    pub const CE_ALWAYS: u8 = 2;
    /// `ce`: a completion and an event.
    pub const CE_EVENT: u8 = 3;
    /// `fm`: no fence.
    pub const FM_NONE: u8 = 0;
    /// `fm`: the request waits until earlier mkey changes are done (`MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE`).
    pub const FM_SMALL: u8 = 1;
    /// `fm`: the request waits until all earlier reads and atomics are done, but not for mkey changes (kernel
    /// `MLX5_FENCE_MODE_FENCE`).
    pub const FM_FENCE_ALONE: u8 = 2;
    /// `fm`: the request waits until all earlier requests are done (`SPDK_MLX5_WQE_CTRL_STRONG_ORDERING`).
    pub const FM_STRONG: u8 = 3;
    /// `fm`: the request waits until all earlier reads, atomics and mkey changes are done
    /// (`MLX5_WQE_CTRL_FENCE`).
    pub const FM_FENCE: u8 = 4;
}

/// The control segment, 16 bytes (PRM `wqe_ctrl_seg`, `struct mlx5_wqe_ctrl_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ControlSegment {
    /// Opcode and block number, see [`OpcodeWord`].
    pub opmod_idx_opcode: U32,
    /// Queue pair and size, see [`QpnDs`].
    pub qpn_ds: U32,
    /// Bitwise NOT of the XOR over all bytes of the request, on queues with WQE signatures; 0 on other
    /// queues.
    pub signature: u8,
    /// Channel of a stream of a dynamically connected (DC) queue pair; 0 for connected queue pairs.
    pub dci_stream_channel: U16,
    /// Fences, completion and event flags, see [`FmCeSe`].
    pub fm_ce_se: u8,
    /// Immediate data, the key to invalidate, or the mkey that a UMR changes. In a memory-to-memory request,
    /// the high half of the operation's parameters.
    pub imm: U32,
}

impl ControlSegment {
    /// Returns the first word as its fields.
    pub const fn opcode_word(&self) -> OpcodeWord {
        OpcodeWord::from_bits(self.opmod_idx_opcode.get())
    }

    /// Returns the second word as its fields.
    pub const fn qpn_ds_word(&self) -> QpnDs {
        QpnDs::from_bits(self.qpn_ds.get())
    }

    /// Returns the flags as fields.
    pub const fn flags(&self) -> FmCeSe {
        FmCeSe::from_bits(self.fm_ce_se)
    }
}

crate::fmt::defmt_as_bytes!(ControlSegment);

const _: () = assert!(size_of::<ControlSegment>() == 16);
const _: () = assert!(core::mem::offset_of!(ControlSegment, fm_ce_se) == 11);
const _: () = assert!(core::mem::offset_of!(ControlSegment, imm) == 12);
