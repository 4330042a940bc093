//! The completion queue: takes entries from the device and says what they mean.

use super::doorbell::{Doorbell, DoorbellRecord};
use super::in_flight::RequestKind;
use super::receive::ReceiveQueue;
use super::ring::{Cursor, Ring, Slot};
use super::send::SendQueue;
use super::{MAX_COMPLETIONS, barrier};
use crate::error::{CompletionError, QueueError};
use crate::mkey::{Mkey, SignatureFault};
use crate::types::{Key, Qpn};
use crate::wire::cqe::{Cqe, CqeOpcode, OpOwn, Syndrome};
use crate::wire::ctrl::Opcode;
use embedded_hal::delay::DelayNs;
use zerocopy::transmute;

/// Consumer indices have 24 bits in the doorbell record.
const CONSUMER_MASK: u32 = 0x00ff_ffff;

/// Words of an entry that are read alone: the one with the byte count in its low half, and the last, see [`EntryWord`].
const CQE_COUNT_WORD: usize = 40;
const CQE_LAST_WORD: usize = 56;

const _: () = assert!(core::mem::offset_of!(Cqe, byte_count) == CQE_COUNT_WORD + 4);
const _: () = assert!(core::mem::offset_of!(Cqe, sop_qpn) == CQE_LAST_WORD);

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
    /// The request failed. The queue pair is in error, and what is posted behind it will be flushed: also the SET_PSVs of a
    /// configuration, so that its name may come up to three times.
    Failed(Failure),
}

/// The next entries of a completion queue, for a send queue to take those of its successes
/// ([`SendQueue::complete_successes`]).
pub struct Entries<'q>(Cursor<'q, Cqe>);

impl<'q> Entries<'q> {
    /// Returns the queue pair of the next one, if it is there. For one that is not, this may be any.
    #[inline]
    pub fn qpn(&self) -> Option<Qpn> {
        self.0.slot().map(|slot| EntryWord::new(slot).qpn())
    }

    /// Returns the next one, if there can be any.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<Slot<'q, Cqe>> {
        self.0.slot()
    }

    /// Takes it.
    #[inline(always)]
    pub(super) fn take(&mut self) {
        self.0.advance();
    }
}

crate::fmt::format_counters!(['q] Entries ['q] { });

/// The last eight bytes of an entry: the queue pair, the block of the request, and whether there is an entry at all and a
/// success. All of it is looked at with one comparison.
#[derive(Clone, Copy)]
pub(super) struct EntryWord(u64);

impl EntryWord {
    /// The queue pair, the counter, and the bits of the last byte that are 0 for a send request that succeeded.
    const MASK: u64 = {
        let op_own = OpOwn::new().with_opcode(0xf).with_format(0b11).with_owner(true);
        assert!(CqeOpcode::REQUESTER.0 == 0);
        Self::qpn_bits(Qpn::from_low_bits(u32::MAX)) | 0xffff << 16 | op_own.into_bits() as u64
    };

    /// Reads the word of an entry. The owner bit is the last: the device writes 0 in the first lap, 1 in the second. Here it is 0
    /// for an entry that is there.
    #[inline(always)]
    pub(super) fn new(slot: Slot<'_, Cqe>) -> Self {
        Self(u64::from_be_bytes(slot.read_u64::<CQE_LAST_WORD>()) ^ slot.lap())
    }

    /// Returns the bits of a queue pair.
    #[inline(always)]
    pub(super) const fn qpn_bits(qpn: Qpn) -> u64 {
        (qpn.get() as u64) << 32
    }

    /// Returns the queue pair, if there is an entry.
    #[inline(always)]
    pub(super) const fn qpn(self) -> Qpn {
        Qpn::from_low_bits((self.0 >> 32) as u32)
    }

    /// Returns whether it says that the request of this queue pair at block `counter`, of which the low 16 bits count, was a
    /// success.
    #[inline(always)]
    pub(super) const fn is_success_of(self, qpn_bits: u64, counter: u32) -> bool {
        (self.0 ^ qpn_bits ^ (counter << 16) as u64) & Self::MASK == 0
    }
}

/// Returns the bytes of an entry that is there, behind the barrier.
#[inline(always)]
pub(super) fn byte_count(slot: Slot<'_, Cqe>) -> u32 {
    u64::from_be_bytes(slot.read_u64_if_used::<CQE_COUNT_WORD>()) as u32
}

/// Finds whom a completion belongs to. [`Endpoint`] does it for one queue pair; a program with many has a table of its own.
///
/// ```
/// use mlx5_mkey::mkey::{Mkey, SignatureFault};
/// use mlx5_mkey::queue::{Doorbell, Entries, RequestKind, Route, SendQueue, WorkCompletion};
/// use mlx5_mkey::types::Qpn;
///
/// /// Queue pairs that only send.
/// struct Table<'q, 'r, D> {
///     queues: &'q mut [SendQueue<'r, D, 64>],
///     mkeys: &'q mut [Mkey],
/// }
///
/// impl<'r, D: Doorbell> Table<'_, 'r, D> {
///     fn queue(&mut self, qpn: Qpn) -> Option<&mut SendQueue<'r, D, 64>> {
///         self.queues.iter_mut().find(|queue| queue.qpn() == qpn)
///     }
/// }
///
/// impl<D: Doorbell> Route for Table<'_, '_, D> {
///     fn sender(&mut self, qpn: Qpn, counter: u16) -> Option<(u64, RequestKind)> {
///         self.queue(qpn)?.complete(counter)
///     }
///     fn successes(&mut self, entries: &mut Entries<'_>, each: impl FnMut(WorkCompletion)) {
///         if let Some(queue) = entries.qpn().and_then(|qpn| self.queue(qpn)) {
///             queue.complete_successes(entries, each);
///         }
///     }
///     fn receiver(&mut self, _qpn: Qpn, _counter: u16) -> Option<u64> {
///         None
///     }
///     fn signature_error(&mut self, fault: &SignatureFault) -> bool {
///         self.mkeys.iter_mut().any(|mkey| mkey.record(fault))
///     }
/// }
/// ```
pub trait Route {
    /// Retires the send request of `qpn` at block `counter` and returns its name and kind ([`SendQueue::complete`]).
    fn sender(&mut self, qpn: Qpn, counter: u16) -> Option<(u64, RequestKind)>;

    /// Does the same where it is quick: has the send queue of the next entry take as many as it can
    /// ([`SendQueue::complete_successes`]), which hands what each of them completes to `each`. It must get just that. Whatever is
    /// not taken goes the other way.
    #[inline(always)]
    fn successes(&mut self, _entries: &mut Entries<'_>, _each: impl FnMut(WorkCompletion)) {}

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
    #[inline]
    fn sender(&mut self, qpn: Qpn, counter: u16) -> Option<(u64, RequestKind)> {
        if self.send.qpn() == qpn { self.send.complete(counter) } else { None }
    }

    #[inline(always)]
    fn successes(&mut self, entries: &mut Entries<'_>, each: impl FnMut(WorkCompletion)) {
        self.send.complete_successes(entries, each);
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
    consumer: u64,
}

impl<'r> CompletionQueue<'r> {
    /// Makes a completion queue over `ring`, which must hold [`Cqe::UNWRITTEN`] entries, or what the device wrote since.
    ///
    /// # Errors
    /// [`QueueError::Size`] unless the ring has a power of two of entries, at most 2^23.
    pub fn new(ring: &'r mut [Cqe], record: &'r DoorbellRecord) -> Result<Self, QueueError> {
        Ok(Self { ring: Ring::new(ring, MAX_COMPLETIONS)?, record, consumer: 0 })
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
        let entry = entry(self.ring.peek(self.consumer))?;
        self.consumer += 1;
        Some(entry)
    }

    /// Gives the slots of all entries taken back to the device.
    #[inline]
    pub fn release(&mut self) {
        barrier::entries_before_record();
        self.record.set_first(self.consumer as u32 & CONSUMER_MASK);
    }

    /// Returns the next completion with its identity. Signature errors are handed to their mkeys on the way (R182).
    ///
    /// # Errors
    /// [`CompletionError`] for an entry that makes no sense or that nobody owns. It is consumed; polling may go on.
    #[inline]
    pub fn poll(&mut self, route: &mut impl Route) -> Option<Result<WorkCompletion, CompletionError>> {
        let mut found = None;
        let mut entries = Entries(Cursor::one(self.ring.peek(self.consumer)));
        route.successes(&mut entries, |completion| found = Some(completion));
        if entries.0.passed() != 0 {
            self.take_one();
            if let Some(completion) = found {
                return Some(Ok(completion));
            }
        }
        self.poll_any(route)
    }

    /// As [`CompletionQueue::poll`], for entries of any kind.
    #[cold]
    #[inline(never)]
    fn poll_any(&mut self, route: &mut impl Route) -> Option<Result<WorkCompletion, CompletionError>> {
        // A device that never stops writing what the user does not see must not keep the caller here.
        for _ in 0..self.ring.len() {
            let other = other(&self.ring.peek(self.consumer), route);
            if let Other::NotThere = other {
                break;
            }
            self.take_one();
            if let Other::Completion(completion) = other {
                return Some(completion);
            }
        }
        None
    }

    #[inline(always)]
    fn take_one(&mut self) {
        self.consumer += 1;
        self.release();
    }

    /// Hands up to `max` completions to `each` and gives their slots back at once; returns how many there were.
    #[inline]
    pub fn poll_batch(
        &mut self,
        max: usize,
        route: &mut impl Route,
        mut each: impl FnMut(Result<WorkCompletion, CompletionError>),
    ) -> usize {
        let mut taken = self.stretch(max);
        route.successes(&mut taken.entries, |completion| each(Ok(completion)));
        let passed = taken.entries.0.passed();
        drop(taken);
        if passed == max && max != 0 {
            self.release();
            return max;
        }
        self.poll_rest(max, passed, route, each)
    }

    /// Goes on with entries of any kind, behind so many completions.
    #[inline(never)]
    fn poll_rest<R: Route>(
        &mut self,
        max: usize,
        before: usize,
        route: &mut R,
        mut each: impl FnMut(Result<WorkCompletion, CompletionError>),
    ) -> usize {
        let (mut count, mut unseen, slots) = (before, 0, self.ring.len() as usize);
        // For the second see `poll_any`.
        while count < max && unseen < slots {
            let mut taken = self.stretch(max - count);
            route.successes(&mut taken.entries, |completion| each(Ok(completion)));
            let passed = taken.entries.0.passed();
            count += passed;
            if passed != 0 {
                continue;
            }
            let Some(slot) = taken.entries.next() else { break };
            match other(&slot, route) {
                Other::NotThere => break,
                Other::NotForTheUser => {
                    taken.entries.take();
                    unseen += 1;
                }
                Other::Completion(completion) => {
                    taken.entries.take();
                    count += 1;
                    each(completion);
                }
            }
        }
        if count + unseen != 0 {
            self.release();
        }
        count
    }

    /// Begins to take entries, at most so many.
    #[inline(always)]
    fn stretch(&mut self, most: usize) -> Taken<'_> {
        let entries = Entries(Cursor::new(&self.ring, self.consumer, most));
        Taken { consumer: &mut self.consumer, entries }
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
            if let Some(completion) = self.poll_any(route) {
                return completion;
            }
        }
        Err(CompletionError::TimedOut)
    }
}

/// Entries that are being taken: noted also where the user's function panics.
struct Taken<'q> {
    consumer: &'q mut u64,
    entries: Entries<'q>,
}

impl Drop for Taken<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.consumer += self.entries.0.passed() as u64;
    }
}

/// Copies an entry, if the device has written it. By words: byte by byte, which the type of an entry would have, takes eight
/// times as many loads.
fn entry(slot: Slot<'_, Cqe>) -> Option<Cqe> {
    let [.., last] = slot.read_u64::<CQE_LAST_WORD>();
    let op_own = OpOwn::from_bits(last);
    if u64::from(op_own.owner()) != slot.lap() || op_own.opcode() == CqeOpcode::INVALID.0 {
        return None;
    }
    barrier::owner_before_entry();
    Some(transmute!([
        slot.read_u64::<0>(),
        slot.read_u64::<8>(),
        slot.read_u64::<16>(),
        slot.read_u64::<24>(),
        slot.read_u64::<32>(),
        slot.read_u64::<40>(),
        slot.read_u64::<48>(),
        slot.read_u64::<56>(),
    ]))
}

/// What an entry has for the user.
enum Other {
    NotThere,
    NotForTheUser,
    Completion(Result<WorkCompletion, CompletionError>),
}

/// Takes an entry of any kind, in one call, so that the way of most entries keeps its registers.
#[cold]
#[inline(never)]
fn other(slot: &Slot<'_, Cqe>, route: &mut impl Route) -> Other {
    match entry(*slot).map(|entry| identify(&entry, route)) {
        None => Other::NotThere,
        Some(None) => Other::NotForTheUser,
        Some(Some(completion)) => Other::Completion(completion),
    }
}

/// Gives an entry of any kind its identity; returns nothing for one that the user does not see.
fn identify(entry: &Cqe, route: &mut impl Route) -> Option<Result<WorkCompletion, CompletionError>> {
    let completion = match Completion::from_wire(entry) {
        Ok(completion) => completion,
        Err(error) => return Some(Err(error)),
    };
    let (qpn, counter, identity) = match completion {
        Completion::SignatureError(fault) if route.signature_error(&fault) => return None,
        Completion::SignatureError(fault) => {
            return Some(Err(CompletionError::UnknownMkey { index: fault.mkey.get() }));
        }
        Completion::Requester { qpn, counter, bytes, .. } => {
            let sent = route.sender(qpn, counter);
            if matches!(sent, Some((_, RequestKind::MkeyConfigurePart))) {
                return None;
            }
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
    Some(identity.map(|(id, outcome)| WorkCompletion { id, qpn, outcome }).ok_or(unknown))
}

crate::fmt::format_counters!(['r] CompletionQueue ['r] { consumer });
crate::fmt::format_counters!(['q, 'r, D, const S: usize, const R: usize] Endpoint ['q, 'r, D, S, R] { send, receive, mkeys });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkey::{
        BlockSignature, DomainKind, MkeyAttributes, MkeyConfig, Signature, SignatureAttributes,
        SignatureChange, SignatureError, SignatureErrorKind,
    };
    use crate::queue::{ReceiveQueueConfig, SendQueueConfig};
    use crate::types::{BlockSize, PsvIndex, Seed};
    use crate::wire::Wqebb;
    use crate::wire::cqe::SignatureErrorCqe;
    use crate::wire::data::DataSegment;
    use embedded_hal_mock::eh1::delay::{CheckedDelay, Transaction};
    use std::vec;
    use std::vec::Vec;
    use zerocopy::big_endian::{U16, U32, U64};

    struct Silent;

    impl Doorbell for Silent {
        fn ring(&mut self, _: [u8; 8]) {}
    }

    /// Knows nobody.
    struct Nobody;

    impl Route for Nobody {
        fn sender(&mut self, _: Qpn, _: u16) -> Option<(u64, RequestKind)> {
            None
        }
        fn receiver(&mut self, _: Qpn, _: u16) -> Option<u64> {
            None
        }
        fn signature_error(&mut self, _: &SignatureFault) -> bool {
            false
        }
    }

    const QPN: Qpn = Qpn::from_low_bits(0x42);

    fn cqe(opcode: CqeOpcode, counter: u16, lap: u8) -> Cqe {
        Cqe {
            sop_qpn: U32::new(u32::from(Opcode::SEND.0) << 24 | QPN.get()),
            wqe_counter: U16::new(counter),
            op_own: opcode.0 << 4 | lap,
            ..Cqe::UNWRITTEN
        }
    }

    fn queue(entries: &[Cqe]) -> (Vec<Cqe>, DoorbellRecord) {
        (entries.to_vec(), DoorbellRecord::new())
    }

    #[test]
    fn m56_entries_of_the_other_lap_are_not_there_yet() {
        let (mut ring, record) = queue(&[cqe(CqeOpcode::REQUESTER, 1, 0), cqe(CqeOpcode::REQUESTER, 2, 1)]);
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
        assert!(completions.take().is_some());
        assert_eq!(completions.take(), None, "owner bit of the second lap");
        let (mut ring, record) = queue(&[cqe(CqeOpcode::REQUESTER, 1, 0); 2]);
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
        assert!(completions.take().is_some() && completions.take().is_some());
        assert_eq!(completions.take(), None, "the first entry is of the first lap");
        assert_eq!(record.bytes()[0], [0; 4]);
        completions.release();
        assert_eq!(record.bytes()[0], [0, 0, 0, 2]);
        let (mut ring, record) = queue(&[Cqe::UNWRITTEN; 2]);
        assert_eq!(CompletionQueue::new(&mut ring, &record).unwrap().take(), None);
    }

    #[test]
    fn m60_every_opcode_is_told_apart() {
        let decode = |opcode: u8| Completion::from_wire(&cqe(CqeOpcode(opcode), 5, 0));
        assert!(matches!(decode(0), Ok(Completion::Requester { counter: 5, opcode: Opcode::SEND, .. })));
        assert!(matches!(decode(1), Ok(Completion::Responder { message: Message::WriteImm(0), .. })));
        assert!(matches!(decode(2), Ok(Completion::Responder { message: Message::Send, .. })));
        assert!(matches!(decode(3), Ok(Completion::Responder { message: Message::SendImm(0), .. })));
        assert!(matches!(decode(4), Ok(Completion::Responder { message: Message::SendInvalidate(_), .. })));
        assert!(matches!(decode(12), Ok(Completion::SignatureError(_))));
        assert!(matches!(decode(13), Ok(Completion::Failed { responder: false, .. })));
        assert!(matches!(decode(14), Ok(Completion::Failed { responder: true, .. })));
        for opcode in [5, 6, 7, 8, 9, 10, 11, 15] {
            assert_eq!(decode(opcode), Err(CompletionError::UnknownOpcode(CqeOpcode(opcode))));
        }
        let inline = Cqe { op_own: 1 << 2, ..Cqe::UNWRITTEN };
        assert_eq!(Completion::from_wire(&inline), Err(CompletionError::UnsupportedFormat { format: 1 }));
    }

    #[test]
    fn m61_syndromes_keep_every_vendor_byte() {
        let mut bytes: [u8; 64] = transmute!(cqe(CqeOpcode::REQUESTER_ERROR, 9, 0));
        bytes[52..56].copy_from_slice(&[0x11, 0x22, 0x33, 0x04]);
        let Ok(Completion::Failed { counter: 9, responder: false, failure, qpn: QPN }) =
            Completion::from_wire(&transmute!(bytes))
        else {
            panic!("an error entry")
        };
        let expected = Failure {
            syndrome: Syndrome::LOCAL_PROTECTION,
            vendor: 0x33,
            hardware: 0x11,
            hardware_type: 0x22,
        };
        assert_eq!(failure, expected);
        for code in 0..=u8::MAX {
            // Known or not, a syndrome has something to print.
            assert!(!std::format!("{}", Syndrome(code)).is_empty());
        }
    }

    #[test]
    fn m62_a_signature_error_goes_to_its_mkey_and_nowhere_else() {
        let psv = PsvIndex::from_low_bits;
        let key = Key::from_raw(0x0012_3400);
        let signature = Some(SignatureAttributes::new(psv(1), psv(2)));
        let mkey = Mkey::new(MkeyAttributes { signature, ..MkeyAttributes::plain(key, 4) });
        let mut mkeys = [mkey];
        let domain =
            crate::mkey::Domain { signature: Signature::Crc32(Seed::Zeros), block_size: BlockSize::B512 };
        let error = SignatureErrorCqe {
            expected_trans_sig: U32::new(0x699a_ca21),
            actual_trans_sig: U32::new(0x969a_ca21),
            syndrome: U16::new(SignatureErrorCqe::SYNDROME_GUARD),
            // Only three bits of type and domain count.
            sig_type: 0xf8,
            domain: 0xf8 | SignatureErrorCqe::DOMAIN_MEMORY,
            mkey: U32::new(0x0012_34ff),
            offset: U64::new(3 * 516 - 1),
            ..transmute!(cqe(CqeOpcode::SIGNATURE_ERROR, 0, 0))
        };
        let second = SignatureErrorCqe { offset: U64::new(515), ..error };
        let stranger = SignatureErrorCqe { mkey: U32::new(0x9900), ..error };
        let (mut ring, record) = queue(&[
            transmute!(error),
            transmute!(second),
            cqe(CqeOpcode::REQUESTER, 3, 0),
            transmute!(stranger),
        ]);
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
        let (mut sq_ring, sq_record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
        let mut send =
            SendQueue::<_, 16>::new(SendQueueConfig::new(QPN), &mut sq_ring, &sq_record, Silent).unwrap();
        let config = MkeyConfig {
            signature: SignatureChange::Set(&BlockSignature::memory(domain)),
            ..MkeyConfig::KEEP
        };
        send.request(1).signaled().configure_mkey(&mut mkeys[0], &config).unwrap();
        send.ring_doorbell();
        let mut endpoint = Endpoint::<_, 16, 1> { send: &mut send, receive: None, mkeys: &mut mkeys };
        let completion = completions.poll(&mut endpoint);
        let outcome = Outcome::Sent { kind: RequestKind::MkeyConfigure, bytes: 0 };
        assert_eq!(
            completion,
            Some(Ok(WorkCompletion { id: 1, qpn: QPN, outcome })),
            "R177: the SET_PSV completes"
        );
        let unknown = CompletionError::UnknownMkey { index: 0x99 };
        assert_eq!(completions.poll(&mut endpoint), Some(Err(unknown)));
        assert_eq!(completions.poll(&mut endpoint), None);
        assert_eq!(record.bytes()[0], [0, 0, 0, 4]);
        let expected = SignatureError {
            kind: SignatureErrorKind::Guard,
            domain: DomainKind::Memory,
            found: 0x969a_ca21,
            computed: 0x699a_ca21,
            offset: 1547,
            stride: 516,
        };
        assert_eq!(expected.block_index(), 2);
        assert_eq!(mkeys[0].check(), Ok(Some(expected)), "R183: the first is kept");
        assert_eq!(mkeys[0].check(), Ok(None), "M10: and given once");
        assert!(mkeys[0].error_count().is_some_and(|count| count.pending && count.seen == 3));
    }

    #[test]
    fn a_batch_gives_its_slots_back_at_once() {
        let (mut ring, record) = queue(&[cqe(CqeOpcode::RESPONDER_SEND, 0, 0); 4]);
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
        let mut seen = Vec::new();
        let count = completions.poll_batch(3, &mut Nobody, |completion| seen.push(completion));
        let unknown = CompletionError::UnknownRequest { qpn: QPN.get(), counter: 0 };
        assert_eq!((count, seen), (3, vec![Err(unknown); 3]));
        assert_eq!(record.bytes()[0], [0, 0, 0, 3]);
        assert_eq!(completions.poll_batch(3, &mut Nobody, |_| ()), 1);
        assert_eq!(completions.poll_batch(3, &mut Nobody, |_| ()), 0);
    }

    /// Two queue pairs, whose successes are taken the quick way or not.
    struct Two<'r> {
        queues: [SendQueue<'r, Silent, 16>; 2],
        quick: bool,
    }

    impl<'r> Two<'r> {
        fn queue(&mut self, qpn: Qpn) -> Option<&mut SendQueue<'r, Silent, 16>> {
            self.queues.iter_mut().find(|queue| queue.qpn() == qpn)
        }
    }

    impl Route for Two<'_> {
        fn sender(&mut self, qpn: Qpn, counter: u16) -> Option<(u64, RequestKind)> {
            self.queue(qpn)?.complete(counter)
        }
        fn successes(&mut self, entries: &mut Entries<'_>, each: impl FnMut(WorkCompletion)) {
            let Some(qpn) = entries.qpn().filter(|_| self.quick) else { return };
            if let Some(queue) = self.queue(qpn) {
                queue.complete_successes(entries, each);
            }
        }
        fn receiver(&mut self, _: Qpn, _: u16) -> Option<u64> {
            None
        }
        fn signature_error(&mut self, _: &SignatureFault) -> bool {
            false
        }
    }

    #[test]
    fn the_quick_way_says_what_the_other_says() {
        // Two queue pairs that complete to one queue of eight entries, over many laps: each request for itself or with some
        // before it, now and then one that nobody has posted, taken by so many at a time as chance has it.
        let run = |quick| {
            let mut rings = [[Wqebb::ZERO; 16]; 2];
            let records = [const { DoorbellRecord::new() }; 3];
            let [one, two] = &mut rings;
            let [first, second, cq_record] = &records;
            let queue = |qpn, ring, record| {
                SendQueue::new(SendQueueConfig::new(Qpn::from_low_bits(qpn)), ring, record, Silent).unwrap()
            };
            let mut two = Two { queues: [queue(0x42, one, first), queue(0x43, two, second)], quick };
            let mut ring = [Cqe::UNWRITTEN; 8];
            let (mut written, mut seen, mut dice) = (0_u64, Vec::new(), 7_u32);
            let mut consumer = 0;
            for round in 0..3000_u64 {
                dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let queue = &mut two.queues[(dice >> 31) as usize];
                let counter = queue.producer() as u16;
                let signaled = dice >> 16 & 3 != 0;
                if queue.request(round).nop().is_ok() {
                    queue.ring_doorbell();
                }
                if signaled && written - consumer < 8 {
                    let stranger = u16::from(dice >> 10 & 31 == 0);
                    ring[written as usize % 8] = Cqe {
                        sop_qpn: U32::new(queue.qpn().get()),
                        ..cqe(CqeOpcode::REQUESTER, counter.wrapping_add(stranger), (written / 8 % 2) as u8)
                    };
                    written += 1;
                }
                if dice >> 20 & 3 == 0 {
                    let mut completions = CompletionQueue::new(&mut ring, cq_record).unwrap();
                    completions.consumer = consumer;
                    let max = (dice >> 24) as usize % 5;
                    let count = if max == 1 {
                        let completion = completions.poll(&mut two);
                        seen.extend(completion);
                        usize::from(completion.is_some())
                    } else {
                        completions.poll_batch(max, &mut two, |completion| seen.push(completion))
                    };
                    assert!(count <= max);
                    consumer = completions.consumer;
                    seen.push(Err(CompletionError::UnknownMkey { index: count as u32 }));
                }
            }
            let outstanding = two.queues.each_ref().map(SendQueue::outstanding);
            (seen, outstanding, cq_record.bytes()[0])
        };
        let (quick, other) = (run(true), run(false));
        assert_eq!(quick, other);
        assert!(quick.0.iter().filter(|completion| completion.is_ok()).count() > 500);
    }

    #[test]
    fn a_panic_of_the_user_loses_no_completion_and_takes_none_twice() {
        let (mut sq_ring, sq_record) = ([Wqebb::ZERO; 16], DoorbellRecord::new());
        let mut send =
            SendQueue::<_, 16>::new(SendQueueConfig::new(QPN), &mut sq_ring, &sq_record, Silent).unwrap();
        for id in 0..4 {
            send.request(id).nop().unwrap();
        }
        send.ring_doorbell();
        let (mut ring, record) = queue(&[0, 1, 2, 3].map(|counter| cqe(CqeOpcode::REQUESTER, counter, 0)));
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
        let mut seen = Vec::new();
        let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            let mut endpoint = Endpoint::<_, 16, 1> { send: &mut send, receive: None, mkeys: &mut [] };
            completions.poll_batch(4, &mut endpoint, |completion| {
                seen.push(completion.unwrap().id);
                assert!(seen.len() != 2, "enough");
            })
        }));
        assert!(result.is_err());
        assert_eq!((send.outstanding(), completions.consumer), (2, 2));
        let mut endpoint = Endpoint::<_, 16, 1> { send: &mut send, receive: None, mkeys: &mut [] };
        completions.poll_batch(4, &mut endpoint, |completion| seen.push(completion.unwrap().id));
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    #[test]
    fn waiting_ends_with_a_completion_or_at_the_limit() {
        let (mut ring, record) = queue(&[cqe(CqeOpcode::RESPONDER_SEND, 0, 0), Cqe::UNWRITTEN]);
        let (mut rq_ring, rq_record) = (vec![DataSegment::default(); 2], DoorbellRecord::new());
        let (mut sq_ring, sq_record) = (vec![Wqebb::ZERO; 2], DoorbellRecord::new());
        let config = ReceiveQueueConfig { qpn: QPN, entries_per_slot: 1 };
        let mut receive = ReceiveQueue::<2>::new(config, &mut rq_ring, &rq_record).unwrap();
        receive.post(21, &[]).unwrap();
        receive.publish();
        let mut send =
            SendQueue::<_, 2>::new(SendQueueConfig::new(QPN), &mut sq_ring, &sq_record, Silent).unwrap();
        let mut endpoint = Endpoint { send: &mut send, receive: Some(&mut receive), mkeys: &mut [] };
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
        let mut no_delay = CheckedDelay::new(&[]);
        let completion = completions.wait(&mut endpoint, &mut no_delay, 3, 50).unwrap();
        assert_eq!(completion.id, 21);
        no_delay.done();
        let mut delay = CheckedDelay::new(&[Transaction::delay_us(50), Transaction::delay_us(50)]);
        let timed_out = completions.wait(&mut endpoint, &mut delay, 3, 50);
        assert_eq!(timed_out, Err(CompletionError::TimedOut));
        delay.done();
    }
}
