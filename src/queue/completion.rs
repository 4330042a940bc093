//! The completion queue: takes entries from the device and says what they mean.

use super::barrier;
use super::doorbell::{Doorbell, DoorbellRecord};
use super::in_flight::RequestKind;
use super::receive::ReceiveQueue;
use super::ring::Ring;
use super::send::SendQueue;
use crate::error::{CompletionError, QueueError};
use crate::mkey::{Mkey, SignatureFault};
use crate::types::{Key, Qpn};
use crate::wire::cqe::{Cqe, CqeOpcode, OpOwn, Syndrome};
use crate::wire::ctrl::Opcode;
use embedded_hal::delay::DelayNs;

/// Consumer indices have 24 bits in the doorbell record.
const CONSUMER_MASK: u32 = 0x00ff_ffff;

/// What a completion entry says, before a queue gives it an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Completion {
    /// A send request is done.
    Requester {
        /// Queue pair.
        qpn: Qpn,
        /// Block at which the request begins, modulo 2^16.
        counter: u16,
        /// Opcode that the device executed.
        opcode: Opcode,
        /// Bytes that an RDMA READ or atomic delivered.
        bytes: u32,
    },
    /// A message arrived.
    Responder {
        /// Queue pair.
        qpn: Qpn,
        /// Number of the receive request, modulo 2^16.
        counter: u16,
        /// What came with it.
        message: Message,
        /// Bytes of the message.
        bytes: u32,
    },
    /// A request failed.
    Failed {
        /// Queue pair.
        qpn: Qpn,
        /// Block of the send request, or number of the receive request.
        counter: u16,
        /// The receive queue's request failed, not the send queue's.
        responder: bool,
        /// Why.
        failure: Failure,
    },
    /// A signature was wrong. It belongs to an mkey, not to a request (M62).
    SignatureError(SignatureFault),
}

/// How a message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Message {
    /// By a send.
    Send,
    /// By a send with 32 bits.
    SendImm(u32),
    /// By a send that invalidated this key.
    SendInvalidate(Key),
    /// By an RDMA WRITE with 32 bits.
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

impl Completion {
    /// Reads an entry.
    ///
    /// # Errors
    /// [`CompletionError::UnknownOpcode`], [`CompletionError::UnsupportedFormat`].
    #[inline]
    pub fn from_wire(cqe: &Cqe) -> Result<Self, CompletionError> {
        let word = cqe.opcode_qpn();
        let qpn = Qpn::from_low_bits(word.qpn());
        let counter = cqe.wqe_counter.get();
        let message = match cqe.opcode() {
            CqeOpcode::REQUESTER => {
                Self::check_format(cqe)?;
                let (opcode, bytes) = (Opcode(word.wqe_opcode()), cqe.byte_count.get());
                return Ok(Self::Requester { qpn, counter, opcode, bytes });
            }
            CqeOpcode::RESPONDER_SEND => Message::Send,
            CqeOpcode::RESPONDER_SEND_IMM => Message::SendImm(cqe.imm_inval.get()),
            CqeOpcode::RESPONDER_SEND_INV => Message::SendInvalidate(Key::from_raw(cqe.imm_inval.get())),
            CqeOpcode::RESPONDER_WRITE_IMM => Message::WriteImm(cqe.imm_inval.get()),
            opcode @ (CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR) => {
                let error = cqe.as_error();
                let failure = Failure {
                    syndrome: Syndrome(error.syndrome),
                    vendor: error.vendor_syndrome,
                    hardware: error.hw_error_syndrome,
                    hardware_type: error.hw_syndrome_type,
                };
                let responder = opcode == CqeOpcode::RESPONDER_ERROR;
                return Ok(Self::Failed { qpn, counter, responder, failure });
            }
            CqeOpcode::SIGNATURE_ERROR => {
                return Ok(Self::SignatureError(SignatureFault::from_wire(&cqe.as_signature_error())));
            }
            opcode => return Err(CompletionError::UnknownOpcode(opcode)),
        };
        Self::check_format(cqe)?;
        Ok(Self::Responder { qpn, counter, message, bytes: cqe.byte_count.get() })
    }

    /// Refuses data in the entry and compressed entries: queue pairs must be set up without them.
    fn check_format(cqe: &Cqe) -> Result<(), CompletionError> {
        match cqe.op_own_bits().format() {
            0 => Ok(()),
            format => Err(CompletionError::UnsupportedFormat { format }),
        }
    }
}

/// A completion with the identity of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct WorkCompletion {
    /// The name that the user gave the request.
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
        /// Bytes that an RDMA READ or atomic delivered.
        bytes: u32,
    },
    /// A receive request is done.
    Received {
        /// What arrived.
        message: Message,
        /// Bytes of the message.
        bytes: u32,
    },
    /// The request failed. The queue pair is in error, and what is posted behind it will be flushed.
    Failed(Failure),
}

/// Finds whom a completion belongs to. [`Endpoint`] does it for one queue pair; a program with many has a table of its own.
pub trait Route {
    /// Retires the send request of `qpn` at block `counter` and returns its name and kind.
    fn sender(&mut self, qpn: Qpn, counter: u16) -> Option<(u64, RequestKind)>;

    /// Retires the receive request of `qpn` with number `counter` and returns its name.
    fn receiver(&mut self, qpn: Qpn, counter: u16) -> Option<u64>;

    /// Hands a signature error to its mkey ([`Mkey::record`]), and returns whether there is one.
    fn signature_error(&mut self, fault: &SignatureFault) -> bool;
}

/// The queues of one queue pair and the mkeys in use.
pub struct Endpoint<'q, 'r, D, const S: usize, const R: usize> {
    /// Send queue.
    pub send: &'q mut SendQueue<'r, D, S>,
    /// Receive queue.
    pub receive: Option<&'q mut ReceiveQueue<'r, R>>,
    /// Mkeys whose signature errors arrive here.
    pub mkeys: &'q mut [Mkey],
}

impl<D: Doorbell, const S: usize, const R: usize> Route for Endpoint<'_, '_, D, S, R> {
    fn sender(&mut self, qpn: Qpn, counter: u16) -> Option<(u64, RequestKind)> {
        if self.send.qpn() == qpn { self.send.complete(counter) } else { None }
    }

    fn receiver(&mut self, qpn: Qpn, counter: u16) -> Option<u64> {
        let receive = self.receive.as_mut()?;
        if receive.qpn() == qpn { receive.complete(counter) } else { None }
    }

    fn signature_error(&mut self, fault: &SignatureFault) -> bool {
        self.mkeys.iter_mut().any(|mkey| mkey.record(fault))
    }
}

/// A completion queue over the caller's ring of 64-byte entries.
pub struct CompletionQueue<'r> {
    ring: Ring<'r, Cqe>,
    record: &'r DoorbellRecord,
    /// Entries taken, counted from the queue's start.
    consumer: u32,
}

impl<'r> CompletionQueue<'r> {
    /// Makes a completion queue over `ring`, which must hold [`Cqe::UNWRITTEN`] entries, or what the device wrote since.
    ///
    /// # Errors
    /// [`QueueError::Size`] unless the ring has a power of two of entries, at most 32768.
    pub fn new(ring: &'r mut [Cqe], record: &'r DoorbellRecord) -> Result<Self, QueueError> {
        Ok(Self { ring: Ring::new(ring, super::ring::MAX_SLOTS)?, record, consumer: 0 })
    }

    /// Takes the next entry, if the device has written one. Its slot stays taken until [`CompletionQueue::release`].
    #[inline]
    pub fn take(&mut self) -> Option<Result<Completion, CompletionError>> {
        let cqe = self.take_entry()?;
        Some(Completion::from_wire(&cqe))
    }

    /// Takes the next entry as it is, for [`crate::inspect`] or a decoder of one's own.
    #[inline]
    pub fn take_entry(&mut self) -> Option<Cqe> {
        let op_own = OpOwn::from_bits(self.ring.last_byte(self.consumer));
        // The owner bit of a fresh entry is that of the lap: 0 in the first, 1 in the second.
        let lap = self.consumer & self.ring.len() != 0;
        if op_own.owner() != lap || op_own.opcode() == CqeOpcode::INVALID.0 {
            return None;
        }
        barrier::owner_before_entry();
        let cqe = self.ring.read(self.consumer);
        self.consumer = self.consumer.wrapping_add(1);
        Some(cqe)
    }

    /// Gives the slots of all entries taken back to the device.
    #[inline]
    pub fn release(&mut self) {
        barrier::entries_before_record();
        self.record.set_first(self.consumer & CONSUMER_MASK);
    }

    /// Returns the next completion with its identity. Signature errors are handed to their mkeys on the way (R182).
    ///
    /// # Errors
    /// [`CompletionError`] for an entry that makes no sense or that nobody owns. It is consumed; polling may go on.
    #[inline]
    pub fn poll(&mut self, route: &mut impl Route) -> Option<Result<WorkCompletion, CompletionError>> {
        let start = self.consumer;
        let completion = self.next_work(route);
        if self.consumer != start {
            self.release();
        }
        completion
    }

    /// Hands up to `max` completions to `each` and gives their slots back at once; returns how many there were.
    #[inline]
    pub fn poll_batch(
        &mut self,
        max: usize,
        route: &mut impl Route,
        mut each: impl FnMut(Result<WorkCompletion, CompletionError>),
    ) -> usize {
        let start = self.consumer;
        let mut count = 0;
        while count < max {
            let Some(completion) = self.next_work(route) else { break };
            each(completion);
            count += 1;
        }
        if self.consumer != start {
            self.release();
        }
        count
    }

    /// Polls until a completion is there, at most `attempts` times with `pause_us` microseconds between.
    ///
    /// # Errors
    /// [`CompletionError::TimedOut`], and those of [`CompletionQueue::poll`].
    pub fn wait(
        &mut self,
        route: &mut impl Route,
        delay: &mut impl DelayNs,
        attempts: u32,
        pause_us: u32,
    ) -> Result<WorkCompletion, CompletionError> {
        for attempt in 0..attempts {
            if attempt > 0 {
                delay.delay_us(pause_us);
            }
            if let Some(completion) = self.poll(route) {
                return completion;
            }
        }
        Err(CompletionError::TimedOut)
    }

    #[inline(always)]
    fn next_work(&mut self, route: &mut impl Route) -> Option<Result<WorkCompletion, CompletionError>> {
        loop {
            let completion = match self.take()? {
                Ok(completion) => completion,
                Err(error) => return Some(Err(error)),
            };
            let (qpn, counter, identity) = match completion {
                Completion::SignatureError(fault) if route.signature_error(&fault) => continue,
                Completion::SignatureError(fault) => {
                    return Some(Err(CompletionError::UnknownMkey { index: fault.mkey.get() }));
                }
                Completion::Requester { qpn, counter, bytes, .. } => {
                    let sent = route.sender(qpn, counter);
                    (qpn, counter, sent.map(|(id, kind)| (id, Outcome::Sent { kind, bytes })))
                }
                Completion::Responder { qpn, counter, message, bytes } => {
                    let received = route.receiver(qpn, counter);
                    (qpn, counter, received.map(|id| (id, Outcome::Received { message, bytes })))
                }
                Completion::Failed { qpn, counter, responder, failure } => {
                    let id = if responder {
                        route.receiver(qpn, counter)
                    } else {
                        route.sender(qpn, counter).map(|(id, _)| id)
                    };
                    (qpn, counter, id.map(|id| (id, Outcome::Failed(failure))))
                }
            };
            let unknown = CompletionError::UnknownRequest { qpn: qpn.get(), counter };
            return Some(identity.map(|(id, outcome)| WorkCompletion { id, qpn, outcome }).ok_or(unknown));
        }
    }
}
