//! What a poll returns, and what the entries of a completion queue report.

use super::in_flight::RequestKind;
use crate::error::CompletionError;
use crate::mkey::SignatureFault;
use crate::types::{Key, MkeyIndex, Qpn};
use crate::wire::cqe::{Cqe, CqeOpcode, Syndrome};

/// What a poll returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Completion {
    /// A request completed.
    Work(WorkCompletion),
    /// A block's signature was wrong (`MLX5_CQE_SIG_ERR`). The mkey has recorded it:
    /// [`crate::mkey::Mkey::take_error`] returns block and values. It belongs to no request: the one that
    /// moved the data completes as a success.
    SignatureError {
        /// The mkey, as the device names it.
        mkey: MkeyIndex,
        /// Where the router has it, see [`super::CompletionRouter::signature_error`].
        position: usize,
    },
}

impl Completion {
    /// Returns the request, if one completed.
    #[inline]
    pub const fn work(self) -> Option<WorkCompletion> {
        match self {
            Self::Work(work) => Some(work),
            Self::SignatureError { .. } => None,
        }
    }
}

/// A request that completed, by the name that the user gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct WorkCompletion {
    /// What the user calls the request (`wr_id`).
    pub id: u64,
    /// Queue pair.
    pub qpn: Qpn,
    /// What happened.
    pub outcome: Outcome,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Outcome {
    /// A send request is done.
    Sent {
        /// What it was.
        kind: RequestKind,
        /// Bytes that an RDMA READ or an atomic delivered, as the device counts them; without meaning for
        /// other kinds.
        bytes: u32,
    },
    /// A receive request is done.
    Received {
        /// What arrived.
        message: Message,
        /// Bytes of the message.
        bytes: u32,
    },
    /// The request failed. The queue pair is in error, and what is posted after it will be flushed: also the
    /// SET_PSVs of a configuration, so that its `wr_id` may come up to three times.
    Failed(Failure),
}

/// How a message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Message {
    /// By a send.
    Send,
    /// By a send with 32 bits, as a number (`imm_data` of libibverbs is big endian).
    SendImm(u32),
    /// By a send that invalidated this key.
    SendInvalidate(Key),
    /// By an RDMA WRITE with 32 bits, as a number.
    WriteImm(u32),
}

/// Why a request failed, with every byte that the device gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Failure {
    /// What went wrong, see [`Syndrome`].
    pub syndrome: Syndrome,
    /// Vendor syndrome.
    pub vendor: u8,
    /// Hardware error syndrome.
    pub hardware: u8,
    /// Hardware syndrome type.
    pub hardware_type: u8,
}

/// What an entry reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CqeEvent {
    /// A request completed: that of the entry's queue pair and counter.
    Work(WorkEvent),
    /// A signature was wrong. It belongs to an mkey, not to a request.
    SignatureError(SignatureFault),
}

/// How a request completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkEvent {
    /// A send request is done.
    Sent {
        /// Bytes that an RDMA READ or an atomic delivered, as the device counts them; without meaning for
        /// other kinds.
        bytes: u32,
    },
    /// A receive request is done.
    Received {
        /// What came with the message.
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

/// Refuses data in the entry and compressed entries: queue pairs must be set up without them.
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
            // Known or not, a syndrome has something to print.
            assert!(!format!("{}", Syndrome(code)).is_empty());
        }
    }
}
