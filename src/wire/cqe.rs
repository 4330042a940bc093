//! Completion queue entries (PRM `cqe64`). The same 64 bytes are read as one of three structs: [`Cqe`] for a
//! completion, [`ErrorCqe`] for a failed request, [`SignatureErrorCqe`] for a signature error.

use super::codes::codes;
use super::low::{low8, low32};
use crate::types::Qpn;
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

codes! {
    /// The kind of a completion entry (PRM `cqe64.opcode`, 4 bits). The type can also hold codes without a
    /// name, because a ring may contain any code.
    CqeOpcode(u8), "CQE opcode {:#x}";

    /// A request of a send queue succeeded.
    REQUESTER = 0, "REQ";
    /// An RDMA WRITE with immediate data arrived.
    RESPONDER_WRITE_IMM = 1, "RESP_WR_IMM";
    /// A send arrived.
    RESPONDER_SEND = 2, "RESP_SEND";
    /// A send with immediate data arrived.
    RESPONDER_SEND_IMM = 3, "RESP_SEND_IMM";
    /// A send with invalidation arrived.
    RESPONDER_SEND_INV = 4, "RESP_SEND_INV";
    /// The completion queue was resized.
    RESIZE_CQ = 5, "RESIZE_CQ";
    /// A signature was wrong: the signature of a block, or a digest (`MLX5_CQE_SIG_ERR`).
    SIGNATURE_ERROR = 12, "SIG_ERR";
    /// A request of a send queue failed.
    REQUESTER_ERROR = 13, "REQ_ERR";
    /// A receive request failed.
    RESPONDER_ERROR = 14, "RESP_ERR";
    /// The entry was never written.
    INVALID = 15, "INVALID";
}

codes! {
    /// Why a request failed (PRM `cqe_err.syndrome`, `ibv_wc_status`). The type can also hold codes without a
    /// name, because a ring may contain any code.
    Syndrome(u8), "syndrome {:#04x}";

    /// A message is longer than the buffers for it.
    LOCAL_LENGTH = 0x01, "local length error";
    /// The request is malformed or not allowed in this state.
    LOCAL_QP_OPERATION = 0x02, "local QP operation error";
    /// A local key, address or right is wrong.
    LOCAL_PROTECTION = 0x04, "local protection error";
    /// The queue was already in error, so the device did not execute the request.
    FLUSHED = 0x05, "flushed";
    /// A memory window could not be bound.
    MW_BIND = 0x06, "memory window bind error";
    /// The peer sent an invalid response.
    BAD_RESPONSE = 0x10, "bad response";
    /// The responder's own key, address or right is wrong.
    LOCAL_ACCESS = 0x11, "local access error";
    /// The responder could not understand the request.
    REMOTE_INVALID_REQUEST = 0x12, "remote invalid request";
    /// The responder refused a key, an address or a right of the request.
    REMOTE_ACCESS = 0x13, "remote access error";
    /// The responder failed.
    REMOTE_OPERATION = 0x14, "remote operation error";
    /// The peer did not answer, and all retries are used up.
    TRANSPORT_RETRY = 0x15, "transport retries exceeded";
    /// The peer had no receive request, and all retries are used up.
    RNR_RETRY = 0x16, "receiver-not-ready retries exceeded";
    /// The peer aborted.
    REMOTE_ABORTED = 0x22, "remote aborted";
}

/// Last byte of a completion entry (PRM `op_own`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct OpOwn {
    /// Owner bit, which the device changes with each lap through the queue.
    pub owner: bool,
    /// The sender asked for a solicited event.
    pub solicited: bool,
    /// Format of the entry: 0 for a plain one. This library does not ask for other formats
    /// ([`OpOwn::FORMAT_INLINE_32`], [`OpOwn::FORMAT_INLINE_64`], [`OpOwn::FORMAT_COMPRESSED`]).
    #[bits(2, into = low8::<2>)]
    pub format: u8,
    /// Kind of the entry, see [`CqeOpcode`].
    #[bits(4, into = low8::<4>)]
    pub opcode: u8,
}

impl OpOwn {
    /// `format`: 32 bytes of data are in the entry (`MLX5_INLINE_SCATTER_32`).
    pub const FORMAT_INLINE_32: u8 = 1;
    /// `format`: 64 bytes of data are in the first half of an entry of 128 bytes (`MLX5_INLINE_SCATTER_64`).
    pub const FORMAT_INLINE_64: u8 = 2;
    /// `format`: the entry is the first of several that are compressed (DPDK `MLX5_COMPRESSED`).
    pub const FORMAT_COMPRESSED: u8 = 3;
}

/// Word with the opcode of the request and its queue pair (PRM `sop_drop_qpn`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct OpcodeQpn {
    /// Number of the queue pair.
    #[bits(24, into = low32::<24>)]
    pub qpn: u32,
    /// Opcode of the send request, see [`super::ctrl::Opcode`]; not meaningful for receives.
    pub wqe_opcode: u8,
}

/// The last eight bytes of a completion entry, from [`Cqe::sop_qpn`] to [`Cqe::op_own`], as one number: queue
/// pair, position of the request, and state of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct CqeEnd(u64);

impl CqeEnd {
    /// The offset of the last eight bytes in a completion entry.
    pub(crate) const OFFSET: usize = core::mem::offset_of!(Cqe, sop_qpn);

    /// The bits of owner, format and opcode. Format and opcode are 0 in the plain entry of a send request
    /// that succeeded.
    const STATUS: u64 = {
        assert!(CqeOpcode::REQUESTER.0 == 0);
        OpOwn::new().with_opcode(0xf).with_format(0b11).with_owner(true).into_bits() as u64
    };

    /// Creates the number from the last eight bytes of a completion entry.
    #[inline]
    pub(crate) const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    /// Returns whether the device has written the entry for a send request that succeeded. `owner` is the
    /// owner bit of the entries that the device writes in this lap of the queue: 0 in the first lap.
    #[inline]
    pub(crate) const fn is_send_success(self, owner: u64) -> bool {
        (self.0 ^ owner) & Self::STATUS == 0
    }

    /// Returns the number of the request's queue pair.
    #[inline]
    pub(crate) const fn qpn(self) -> Qpn {
        Qpn::from_low_bits((self.0 >> 32) as u32)
    }

    /// Returns the position of the request, see [`Cqe::wqe_counter`].
    #[inline]
    pub(crate) const fn counter(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// A completion entry, 64 bytes (PRM `cqe64`, `struct mlx5_cqe64`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct Cqe {
    /// Fields of packet and tag-matching queues, or received data ([`OpOwn::FORMAT_INLINE_32`]); unused by
    /// this library.
    pub reserved0: [u8; 32],
    /// User index of the queue pair, in the low 24 bits, if the device writes entries of version 1 (PRM
    /// `srqn_user_index`, `cqe_version`). In entries of version 0, the number of the shared receive queue.
    pub user_index: U32,
    /// Immediate data, or the key that was invalidated.
    pub imm_inval: U32,
    /// Application fields, unused by this library.
    pub app: U32,
    /// Length of the message in bytes. In an entry before compressed ones, the number of completions
    /// ([`OpOwn::FORMAT_COMPRESSED`]).
    pub byte_count: U32,
    /// Time stamp, in the format of the queue pair: ticks of the device's clock; or real time, with seconds
    /// in the upper and nanoseconds in the lower 32 bits.
    pub timestamp: U64,
    /// Opcode of the request, and its queue pair, see [`OpcodeQpn`].
    pub sop_qpn: U32,
    /// Number of the send request's first block, or number of the receive request, modulo 2^16.
    pub wqe_counter: U16,
    /// Checksum of the entry (CQE signature), unused by this library.
    pub signature: u8,
    /// Kind, format and owner bit of the entry, see [`OpOwn`].
    pub op_own: u8,
}

impl Cqe {
    /// An entry that the device has not written: opcode [`CqeOpcode::INVALID`], owner bit set.
    ///
    /// Completion queues must be filled with this entry before they are created on the device.
    pub const UNWRITTEN: Self = Self {
        reserved0: [0; 32],
        user_index: U32::ZERO,
        imm_inval: U32::ZERO,
        app: U32::ZERO,
        byte_count: U32::ZERO,
        timestamp: U64::ZERO,
        sop_qpn: U32::ZERO,
        wqe_counter: U16::ZERO,
        signature: 0,
        op_own: 0xf1,
    };

    /// Returns the last byte of the entry as its fields.
    pub const fn op_own_bits(&self) -> OpOwn {
        OpOwn::from_bits(self.op_own)
    }

    /// Returns the kind of the entry.
    pub const fn opcode(&self) -> CqeOpcode {
        CqeOpcode(self.op_own >> 4)
    }

    /// Returns the word with opcode and queue pair as its fields.
    pub const fn opcode_qpn(&self) -> OpcodeQpn {
        OpcodeQpn::from_bits(self.sop_qpn.get())
    }

    /// Returns whether the entry is about a request of this queue pair. A signature error is about an mkey.
    pub const fn is_of(&self, qpn: Qpn) -> bool {
        self.opcode().0 != CqeOpcode::SIGNATURE_ERROR.0 && self.opcode_qpn().qpn() == qpn.get()
    }

    /// Reads the same bytes as an error entry.
    pub const fn as_error(self) -> ErrorCqe {
        zerocopy::transmute!(self)
    }

    /// Reads the same bytes as a signature error entry.
    pub const fn as_signature_error(self) -> SignatureErrorCqe {
        zerocopy::transmute!(self)
    }
}

impl Default for Cqe {
    fn default() -> Self {
        Self::UNWRITTEN
    }
}

/// A completion entry of 128 bytes: 64 bytes that this library does not use, then a [`Cqe`] (`struct
/// mlx5_cqe64` in the second half of a slot, `mlx5_poll_one` in rdma-core's `cq.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct Cqe128 {
    /// Data of a message that was received into the entry (`inline_64`). Only queue pairs of other drivers
    /// are created with this feature.
    pub inline_64: [u8; 64],
    /// The completion entry.
    pub cqe: Cqe,
}

impl Cqe128 {
    /// An entry that the device has not written, as [`Cqe::UNWRITTEN`].
    pub const UNWRITTEN: Self = Self { inline_64: [0; 64], cqe: Cqe::UNWRITTEN };
}

impl Default for Cqe128 {
    fn default() -> Self {
        Self::UNWRITTEN
    }
}

/// A slot of a completion ring: [`Cqe`] or [`Cqe128`].
pub trait CqeSlot:
    Copy + Send + FromBytes + IntoBytes + KnownLayout + Immutable + sealed::Sealed + 'static
{
    /// The offset of the entry in a slot, in bytes.
    const OFFSET: usize;

    /// Returns the completion entry of the slot.
    fn cqe(&self) -> &Cqe;

    /// Creates a slot that holds this completion entry.
    fn of(cqe: Cqe) -> Self;
}

impl CqeSlot for Cqe {
    const OFFSET: usize = 0;

    fn cqe(&self) -> &Cqe {
        self
    }

    fn of(cqe: Cqe) -> Self {
        cqe
    }
}

impl CqeSlot for Cqe128 {
    const OFFSET: usize = core::mem::offset_of!(Self, cqe);

    fn cqe(&self) -> &Cqe {
        &self.cqe
    }

    fn of(cqe: Cqe) -> Self {
        Self { cqe, ..Self::UNWRITTEN }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Cqe {}
    impl Sealed for super::Cqe128 {}
}

/// A completion entry for a failed request, 64 bytes (`struct mlx5_err_cqe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct ErrorCqe {
    /// Reserved.
    pub reserved0: [u8; 32],
    /// User index of the queue pair, in the low 24 bits.
    pub user_index: U32,
    /// Reserved.
    pub reserved1: [u8; 16],
    /// Hardware error syndrome (SPDK, UCX).
    pub hw_error_syndrome: u8,
    /// Hardware syndrome type (SPDK, UCX).
    pub hw_syndrome_type: u8,
    /// Vendor error syndrome.
    pub vendor_syndrome: u8,
    /// Why the request failed, see [`Syndrome`].
    pub syndrome: u8,
    /// Opcode of the request, and its queue pair, see [`OpcodeQpn`].
    pub sop_qpn: U32,
    /// Number of the send request's first block, or number of the receive request, modulo 2^16.
    pub wqe_counter: U16,
    /// Checksum of the entry (CQE signature), unused by this library.
    pub signature: u8,
    /// Kind, format and owner bit of the entry, see [`OpOwn`].
    pub op_own: u8,
}

impl ErrorCqe {
    /// Vendor syndrome of a page fault on on-demand memory. It has this meaning only together with
    /// [`Syndrome::REMOTE_ABORTED`].
    pub const VENDOR_ODP_FAULT: u8 = 0x93;

    /// Returns whether the request failed because of a page fault on on-demand memory (libmlx5
    /// `is_odp_pfault_err`).
    pub const fn is_page_fault(&self) -> bool {
        self.syndrome == Syndrome::REMOTE_ABORTED.0 && self.vendor_syndrome == Self::VENDOR_ODP_FAULT
    }
}

/// A completion entry for a wrong signature, 64 bytes (`struct mlx5_sigerr_cqe` of libmlx5, `struct
/// mlx5_sig_err_cqe` of Linux).
///
/// The entry names the mkey and the queue pair of the transfer, but no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct SignatureErrorCqe {
    /// Reserved.
    pub reserved0: [u8; 16],
    /// The value that the device computed: guard and application tag, or a 32-bit CRC, or the high half of a
    /// 64-bit CRC.
    pub expected_trans_sig: U32,
    /// The value that the device found in the data: guard and application tag, or a 32-bit CRC, or the high
    /// half of a 64-bit CRC.
    pub actual_trans_sig: U32,
    /// The value that the device computed: reference tag, or the low half of a 64-bit CRC.
    pub expected_ref_tag: U32,
    /// The value that the device found in the data: reference tag, or the low half of a 64-bit CRC.
    pub actual_ref_tag: U32,
    /// The part of the signature that was wrong: [`SignatureErrorCqe::SYNDROME_GUARD`],
    /// [`SignatureErrorCqe::SYNDROME_APP_TAG`] or [`SignatureErrorCqe::SYNDROME_REF_TAG`].
    pub syndrome: U16,
    /// [`SignatureErrorCqe::TYPE_BLOCK`] or [`SignatureErrorCqe::TYPE_TRANSACTION`], in the low 3 bits.
    pub sig_type: u8,
    /// [`SignatureErrorCqe::DOMAIN_WIRE`] or [`SignatureErrorCqe::DOMAIN_MEMORY`], in the low 3 bits.
    pub domain: u8,
    /// The mkey whose data has the wrong signature: its index in the high 24 bits, its tag in the low 8.
    pub mkey: U32,
    /// Offset in bytes of the failing block's last byte, signature included.
    pub offset: U64,
    /// Reserved.
    pub reserved1: [u8; 8],
    /// Number of the queue pair of the transfer, in the low 24 bits. Only Linux's structure has this field.
    pub qpn: U32,
    /// Reserved.
    pub reserved2: [u8; 2],
    /// Entry signature, unused by this library.
    pub signature: u8,
    /// Kind, format and owner bit of the entry, see [`OpOwn`].
    pub op_own: u8,
}

impl SignatureErrorCqe {
    /// `syndrome`: the reference tag is wrong.
    pub const SYNDROME_REF_TAG: u16 = 1 << 11;
    /// `syndrome`: the application tag is wrong.
    pub const SYNDROME_APP_TAG: u16 = 1 << 12;
    /// `syndrome`: the guard or CRC is wrong.
    pub const SYNDROME_GUARD: u16 = 1 << 13;
    /// `sig_type`: a block signature.
    pub const TYPE_BLOCK: u8 = 0;
    /// `sig_type`: a transaction signature.
    pub const TYPE_TRANSACTION: u8 = 1;
    /// `domain`: the wire.
    pub const DOMAIN_WIRE: u8 = 0;
    /// `domain`: memory.
    pub const DOMAIN_MEMORY: u8 = 1;
    /// The bits of the bytes `sig_type` and `domain` that hold the value.
    pub const FIELD_MASK: u8 = 7;
}

crate::fmt::defmt_as_bytes!(Cqe, Cqe128, ErrorCqe, SignatureErrorCqe);

const _: () =
    assert!(size_of::<Cqe>() == 64 && size_of::<ErrorCqe>() == 64 && size_of::<SignatureErrorCqe>() == 64);
const _: () = assert!(size_of::<Cqe128>() == 128 && Cqe128::OFFSET == 64);
const _: () = assert!(core::mem::offset_of!(Cqe, byte_count) == 44);
const _: () = assert!(core::mem::offset_of!(Cqe, sop_qpn) == 56);
const _: () = assert!(core::mem::offset_of!(Cqe, user_index) == 32);
const _: () = assert!(core::mem::offset_of!(Cqe, op_own) == 63);
const _: () = assert!(core::mem::offset_of!(ErrorCqe, syndrome) == 55);
const _: () = assert!(core::mem::offset_of!(ErrorCqe, wqe_counter) == 60);
const _: () = assert!(core::mem::offset_of!(SignatureErrorCqe, syndrome) == 32);
const _: () = assert!(core::mem::offset_of!(SignatureErrorCqe, mkey) == 36);
const _: () = assert!(core::mem::offset_of!(SignatureErrorCqe, offset) == 40);
const _: () = assert!(core::mem::offset_of!(SignatureErrorCqe, qpn) == core::mem::offset_of!(Cqe, sop_qpn));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_reads_what_the_fields_have() {
        for op_own in 0..=u8::MAX {
            let (counter, sop_qpn) = (U16::new(0x1234), U32::new(0x0afe_dcba));
            let cqe = Cqe { wqe_counter: counter, sop_qpn, signature: 0xff, op_own, ..Cqe::UNWRITTEN };
            let bytes: [u8; 64] = zerocopy::transmute!(cqe);
            let end = CqeEnd::from_bytes(*bytes.last_chunk().unwrap());
            assert_eq!((end.qpn().get(), end.counter()), (cqe.opcode_qpn().qpn(), 0x1234));
            for owner in [0, 1] {
                let there = u64::from(cqe.op_own_bits().owner()) == owner;
                let success = cqe.opcode() == CqeOpcode::REQUESTER && cqe.op_own_bits().format() == 0;
                assert_eq!(end.is_send_success(owner), there && success);
            }
        }
    }
}
