//! Builds completion entries (PRM `cqe64`; DEVICE.md, "Completion entries"). These are pure functions. The
//! owner bit is set later, when the slot in the ring is known.

use crate::refusal::Status;
use crate::signature::Part;
use crate::transfer::{BlockError, Side, SignatureType};
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, ErrorCqe, OpOwn, OpcodeQpn, SignatureErrorCqe};
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32, U64};

/// A completion entry without its owner bit.
pub(crate) type Entry = [u8; 64];

/// The request that an entry completes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) qpn: u32,
    pub(crate) user_index: u32,
    /// For a send request, the number of its first block. For a receive request, its number in the order of
    /// posting, or in a shared receive queue with a linked list, the number of its slot.
    pub(crate) counter: u16,
    /// Opcode of a send request, 0 for a receive request.
    pub(crate) wqe_opcode: u8,
}

impl Subject {
    fn opcode_qpn(&self) -> U32 {
        U32::new(OpcodeQpn::new().with_qpn(self.qpn).with_wqe_opcode(self.wqe_opcode).into_bits())
    }
}

fn op_own(opcode: CqeOpcode, solicited: bool) -> u8 {
    OpOwn::new().with_opcode(opcode.0).with_solicited(solicited).into_bits()
}

/// Returns the entry of a request that is done. `imm_inval` is the immediate data of a received message, or
/// the key that the message has invalidated.
pub(crate) fn done(
    subject: Subject,
    opcode: CqeOpcode,
    bytes: u32,
    imm_inval: u32,
    solicited: bool,
) -> Entry {
    let cqe = Cqe {
        user_index: U32::new(subject.user_index & 0x00ff_ffff),
        imm_inval: U32::new(imm_inval),
        byte_count: U32::new(bytes),
        sop_qpn: subject.opcode_qpn(),
        wqe_counter: U16::new(subject.counter),
        op_own: op_own(opcode, solicited),
        ..Cqe::UNWRITTEN
    };
    zerocopy::transmute!(cqe)
}

/// Returns the number of the queue pair that an entry names (`sop_drop_qpn`).
pub(crate) fn queue_pair(entry: &Entry) -> u32 {
    entry.get(57..60).into_iter().flatten().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Writes the time into an entry, unless the entry is an error: errors have no time stamp.
pub(crate) fn stamp(entry: &mut Entry, ticks: u64) {
    const TIMESTAMP: core::ops::Range<usize> = 48..56;
    let [.., last] = *entry;
    if OpOwn::from_bits(last).opcode() <= CqeOpcode::RESPONDER_SEND_INV.0
        && let Some(place) = entry.get_mut(TIMESTAMP)
    {
        place.copy_from_slice(&ticks.to_be_bytes());
    }
}

/// Returns whether an entry raises the event of a queue that is armed for solicited entries: the sender asked
/// for an event, or the entry is an error (InfiniBand 11.4.2.2).
pub(crate) fn asks_for_event(entry: &Entry) -> bool {
    let [.., last] = *entry;
    let word = OpOwn::from_bits(last);
    word.solicited()
        || matches!(CqeOpcode(word.opcode()), CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR)
}

/// Flags in `flags_rqpn`. They say that a global route header stands before the received data, and that it
/// has the form of an IPv6 header.
const ROUTE: u32 = 1 << 28 | 1 << 24;

/// Adds the source of a datagram to its entry: queue pair `source` (`flags_rqpn`; DEVICE.md, "Datagrams").
pub(crate) fn with_source(mut entry: Entry, source: u32) -> Entry {
    const FLAGS_RQPN: core::ops::Range<usize> = 24..28;
    if let Some(place) = entry.get_mut(FLAGS_RQPN) {
        place.copy_from_slice(&(ROUTE | source & 0x00ff_ffff).to_be_bytes());
    }
    entry
}

/// Adds the P_Key of a management datagram to its entry, at the place of immediate data (`pkey` of Linux's
/// `mlx5_cqe64`).
pub(crate) fn with_partition(mut entry: Entry, pkey: u16) -> Entry {
    const PKEY: core::ops::Range<usize> = 38..40;
    if let Some(place) = entry.get_mut(PKEY) {
        place.copy_from_slice(&pkey.to_be_bytes());
    }
    entry
}

/// Adds the checksum of a received frame, the sum of its words, to its entry (`check_sum` of Linux's
/// `mlx5_cqe64`).
pub(crate) fn with_sum(mut entry: Entry, sum: u16) -> Entry {
    const CHECK_SUM: core::ops::Range<usize> = 20..22;
    if let Some(place) = entry.get_mut(CHECK_SUM) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
    entry
}

/// Returns the entry of a request that failed.
pub(crate) fn error(subject: Subject, opcode: CqeOpcode, status: Status) -> Entry {
    let cqe = ErrorCqe {
        reserved0: [0; 32],
        user_index: U32::new(subject.user_index & 0x00ff_ffff),
        reserved1: [0; 16],
        hw_error_syndrome: status.hardware,
        hw_syndrome_type: 0,
        vendor_syndrome: status.vendor,
        syndrome: status.syndrome.0,
        sop_qpn: subject.opcode_qpn(),
        wqe_counter: U16::new(subject.counter),
        signature: 0,
        op_own: op_own(opcode, false),
    };
    zerocopy::transmute!(cqe)
}

/// Returns the entry of a signature error. The fields "actual" hold the signature in the data, and the fields
/// "expected" hold the computed signature, as tests of hardware expect. `qpn` is the queue pair of the
/// transfer, `key` the mkey with its tag. Linux looks up the queue pair by `qpn`, and compares `key` with the
/// key of the memory region.
pub(crate) fn signature_error(qpn: u32, key: u32, error: &BlockError) -> Entry {
    let high = |word: u64| U32::new((word >> 32) as u32);
    let low = |word: u64| U32::new(word as u32);
    let cqe = SignatureErrorCqe {
        reserved0: [0; 16],
        expected_trans_sig: high(error.mismatch.computed),
        actual_trans_sig: high(error.mismatch.found),
        expected_ref_tag: low(error.mismatch.computed),
        actual_ref_tag: low(error.mismatch.found),
        syndrome: U16::new(match error.mismatch.part {
            Part::Guard => SignatureErrorCqe::SYNDROME_GUARD,
            Part::AppTag => SignatureErrorCqe::SYNDROME_APP_TAG,
            Part::RefTag => SignatureErrorCqe::SYNDROME_REF_TAG,
        }),
        sig_type: match error.sig_type {
            SignatureType::Block => SignatureErrorCqe::TYPE_BLOCK,
            SignatureType::Transaction => SignatureErrorCqe::TYPE_TRANSACTION,
        },
        domain: match error.side {
            Side::Wire => SignatureErrorCqe::DOMAIN_WIRE,
            Side::Memory => SignatureErrorCqe::DOMAIN_MEMORY,
        },
        mkey: U32::new(key),
        offset: U64::new(error.offset),
        reserved1: [0; 8],
        qpn: U32::new(qpn),
        reserved2: [0; 2],
        signature: 0,
        op_own: op_own(CqeOpcode::SIGNATURE_ERROR, false),
    };
    let mut entry = [0; 64];
    entry.copy_from_slice(cqe.as_bytes());
    entry
}
