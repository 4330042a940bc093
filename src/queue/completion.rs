//! Results of a poll, and the decoding of entries of a completion queue.

use super::in_flight::{RequestKind, RequestNumber};
use crate::mkey::SignatureFault;
use crate::queue::error::CompletionError;
use crate::types::{Key, MkeyIndex, Qpn};
use crate::wire::cqe::{Cqe, CqeOpcode, Syndrome};

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Completion {
    /// A request completed.
    Work(WorkCompletion),
    /// The signature of a block was wrong (`MLX5_CQE_SIG_ERR`). The mkey has recorded the error:
    /// [`crate::mkey::Mkey::take_error`] returns the number of the block, the value found in the data and the
    /// computed value. The error belongs to no request: the request that moved the data completes
    /// successfully.
    SignatureError {
        /// The index of the mkey on the device.
        mkey: MkeyIndex,
        /// The mkey's position in the router, see [`super::CompletionRouter::signature_error`].
        position: usize,
    },
}

impl Completion {
    /// Returns the completed request, or `None` for a signature error.
    #[inline]
    pub const fn work(self) -> Option<WorkCompletion> {
        match self {
            Self::Work(work) => Some(work),
            Self::SignatureError { .. } => None,
        }
    }
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct WorkCompletion {
    /// The user's name of the request (`wr_id`).
    pub id: u64,
    /// The number of the queue pair.
    pub qpn: Qpn,
    /// The number of a send request, by which a pool recognizes its requests ([`super::MkeyPool::put`]);
    /// [`RequestNumber::NONE`] for a receive request.
    pub number: RequestNumber,
    /// The result of the request.
    pub outcome: Outcome,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Outcome {
    /// A send request succeeded.
    Sent {
        /// The kind of the request.
        kind: RequestKind,
        /// Bytes that an RDMA READ or an atomic delivered, as the device counts them. Meaningless for other
        /// kinds.
        bytes: u32,
    },
    /// A receive request succeeded.
    Received {
        /// The kind of the message.
        message: Message,
        /// Bytes of the message.
        bytes: u32,
    },
    /// The request failed. The queue pair is in error, and the device flushes all later requests. The
    /// SET_PSVs of a configuration are flushed too, so the configuration's `wr_id` may come up to three
    /// times.
    Failed(Failure),
}

/// The kind of a message, with the value that came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Message {
    /// A send.
    Send,
    /// A send with 32 bits of immediate data, as a number (`imm_data` of libibverbs is big endian).
    SendImm(u32),
    /// A send that invalidated this key.
    SendInvalidate(Key),
    /// An RDMA WRITE with 32 bits of immediate data, as a number (`imm_data` of libibverbs is big endian).
    WriteImm(u32),
}

/// The reason of a failure: all error codes of the completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Failure {
    /// The error code, see [`Syndrome`].
    pub syndrome: Syndrome,
    /// Vendor syndrome: the vendor's code for the error.
    pub vendor: u8,
    /// Hardware error syndrome: the hardware's code for the error.
    pub hardware: u8,
    /// Hardware syndrome type: the kind of the code in `hardware`.
    pub hardware_type: u8,
}

/// The meaning of an entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CqeEvent {
    /// A request completed. The entry names its queue pair and counter.
    Work(WorkEvent),
    /// A signature was wrong. The error belongs to an mkey, not to a request.
    SignatureError(SignatureFault),
}

/// The result of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkEvent {
    /// A send request succeeded.
    Sent {
        /// Bytes that an RDMA READ or an atomic delivered, as the device counts them. Meaningless for other
        /// kinds.
        bytes: u32,
    },
    /// A receive request succeeded.
    Received {
        /// The kind of the message.
        message: Message,
        /// Bytes of the message.
        bytes: u32,
    },
    /// A send request failed.
    SendFailed(Failure),
    /// A receive request failed.
    ReceiveFailed(Failure),
}

impl CqeEvent {
    /// Reads an entry that the device has written.
    ///
    /// # Errors
    /// [`CompletionError::UnknownOpcode`], [`CompletionError::UnsupportedFormat`].
    pub(super) fn from_wire(cqe: &Cqe) -> Result<Self, CompletionError> {
        let bytes = cqe.byte_count.get();
        let message = match cqe.opcode() {
            CqeOpcode::REQUESTER => {
                check_format(cqe)?;
                return Ok(Self::Work(WorkEvent::Sent { bytes }));
            }
            CqeOpcode::RESPONDER_SEND => Message::Send,
            CqeOpcode::RESPONDER_SEND_IMM => Message::SendImm(cqe.imm_inval.get()),
            CqeOpcode::RESPONDER_SEND_INV => Message::SendInvalidate(Key::from_raw(cqe.imm_inval.get())),
            CqeOpcode::RESPONDER_WRITE_IMM => Message::WriteImm(cqe.imm_inval.get()),
            CqeOpcode::REQUESTER_ERROR => {
                return Ok(Self::Work(WorkEvent::SendFailed(Failure::from_wire(cqe))));
            }
            CqeOpcode::RESPONDER_ERROR => {
                return Ok(Self::Work(WorkEvent::ReceiveFailed(Failure::from_wire(cqe))));
            }
            CqeOpcode::SIGNATURE_ERROR => {
                return Ok(Self::SignatureError(SignatureFault::from_wire(&cqe.as_signature_error())));
            }
            opcode => return Err(CompletionError::UnknownOpcode(opcode)),
        };
        check_format(cqe)?;
        Ok(Self::Work(WorkEvent::Received { message, bytes }))
    }
}

/// Refuses entries that contain data, and compressed entries. Queue pairs must be created so that the device
/// writes neither.
fn check_format(cqe: &Cqe) -> Result<(), CompletionError> {
    match cqe.op_own_bits().format() {
        0 => Ok(()),
        format => Err(CompletionError::UnsupportedFormat { format }),
    }
}

impl Failure {
    /// Reads an error entry.
    const fn from_wire(cqe: &Cqe) -> Self {
        let error = cqe.as_error();
        Self {
            syndrome: Syndrome(error.syndrome),
            vendor: error.vendor_syndrome,
            hardware: error.hw_error_syndrome,
            hardware_type: error.hw_syndrome_type,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use zerocopy::transmute;

    fn cqe(opcode: u8) -> Cqe {
        Cqe { op_own: opcode << 4, ..Cqe::UNWRITTEN }
    }

    #[test]
    fn m60_every_opcode_is_told_apart() {
        let decode = |opcode| CqeEvent::from_wire(&cqe(opcode));
        let received = |message| Ok(CqeEvent::Work(WorkEvent::Received { message, bytes: 0 }));
        assert_eq!(decode(0), Ok(CqeEvent::Work(WorkEvent::Sent { bytes: 0 })));
        assert_eq!(decode(1), received(Message::WriteImm(0)));
        assert_eq!(decode(2), received(Message::Send));
        assert_eq!(decode(3), received(Message::SendImm(0)));
        assert_eq!(decode(4), received(Message::SendInvalidate(Key::from_raw(0))));
        assert!(matches!(decode(12), Ok(CqeEvent::SignatureError(_))));
        assert!(matches!(decode(13), Ok(CqeEvent::Work(WorkEvent::SendFailed(_)))));
        assert!(matches!(decode(14), Ok(CqeEvent::Work(WorkEvent::ReceiveFailed(_)))));
        for opcode in [5, 6, 7, 8, 9, 10, 11, 15] {
            assert_eq!(decode(opcode), Err(CompletionError::UnknownOpcode(CqeOpcode(opcode))));
        }
        let inline = Cqe { op_own: 1 << 2, ..Cqe::UNWRITTEN };
        assert_eq!(CqeEvent::from_wire(&inline), Err(CompletionError::UnsupportedFormat { format: 1 }));
    }

    #[test]
    fn m61_syndromes_keep_every_vendor_byte() {
        let mut bytes: [u8; 64] = transmute!(cqe(CqeOpcode::REQUESTER_ERROR.0));
        bytes[52..56].copy_from_slice(&[0x11, 0x22, 0x33, 0x04]);
        let expected = Failure {
            syndrome: Syndrome::LOCAL_PROTECTION,
            vendor: 0x33,
            hardware: 0x11,
            hardware_type: 0x22,
        };
        let event = CqeEvent::from_wire(&transmute!(bytes));
        assert_eq!(event, Ok(CqeEvent::Work(WorkEvent::SendFailed(expected))));
        for code in 0..=u8::MAX {
            // A syndrome prints a text, whether it is known or not.
            assert!(!format!("{}", Syndrome(code)).is_empty());
        }
    }
}
