//! The completion queue: takes entries from the device, and gives each to the request or the mkey that it is
//! about.
//!
//! Nearly all entries are successes of send requests. `CompletionQueue::next_success` finds them by one
//! comparison of an entry's last byte ([`CqeEnd::is_send_success`]); the router finds the queue pair, whose
//! number is verified, and the queue pair retires the request that the entry's counter names, with all that
//! were silent before it. Any other entry is taken by `CompletionQueue::next_of_any_kind`: failures,
//! receives, signature errors, and entries that are refused; so is the entry after the success of a part of a
//! configuration, which the user does not see. What was taken is given back to the device by the doorbell
//! record, once for each call.

use super::completed::{CompletedReceive, CompletedSend, CqIdentity};
use super::completion::{Completion, CqeEvent, Outcome, WorkCompletion, WorkEvent};
use super::doorbell::CqDoorbellRecord;
use super::in_flight::{RequestKind, Retired};
use super::ring::{Ring, Slot};
use super::router::{CompletionRouter, CqeOrigin, QpQueues};
#[cfg(feature = "devx")]
use super::unclaimed::SharedFaults;
use super::unclaimed::Unclaimed;
use super::{MAX_COMPLETIONS, barrier};
use crate::error::{CheckError, CompletionError, QueueError};
use crate::mkey::{Mkey, SignatureError};
use crate::types::{MkeyIndex, Qpn};
use crate::wire::cqe::{Cqe, CqeEnd, CqeOpcode, CqeSlot, OpOwn};
use embedded_hal::delay::DelayNs;
use zerocopy::transmute;

/// Consumer indices have 24 bits in the doorbell record.
pub(super) const CONSUMER_MASK: u32 = 0x00ff_ffff;

/// Where 8 bytes of an entry begin that have the user index as their first 4, and those that have the byte
/// count as their last 4.
const USER_INDEX_WORD: usize = core::mem::offset_of!(Cqe, user_index);
const BYTE_COUNT_WORD: usize = core::mem::offset_of!(Cqe, byte_count) - 4;

/// The bits of a user index.
const USER_INDEX_MASK: u32 = 0x00ff_ffff;

/// A completion queue over the caller's ring, of entries of 64 bytes, or of 128 bytes
/// ([`Cqe128`](crate::wire::cqe::Cqe128)).
///
/// # Events
/// Instead of polling all the time, a program can wait for an event of the device. One
/// [`CompletionQueue::arm`] asks for one event:
///
/// ```
/// use mlx5_mkey::error::CompletionError;
/// use mlx5_mkey::queue::{Completion, CompletionQueue, CompletionRouter, CqDoorbell};
///
/// /// Sleeps until there is a completion. `sleep` returns when the event queue has an event of this
/// /// completion queue.
/// fn next(
///     completions: &mut CompletionQueue<'_>,
///     router: &mut impl CompletionRouter,
///     doorbell: &mut impl CqDoorbell, // on a device, `queue::UarCqDoorbell`
///     mut sleep: impl FnMut(),
/// ) -> Result<Completion, CompletionError> {
///     loop {
///         if let Some(completion) = completions.poll_or_arm(router, doorbell) {
///             return completion;
///         }
///         sleep();
///         completions.event_received();
///     }
/// }
/// ```
///
/// No completion is slept over. The arm word carries the consumer index, and the device, which knows how many
/// entries it has written, raises the event at once where there are more. It raises one event for each
/// sequence number of the arm word. That number advances with each event received
/// ([`CompletionQueue::event_received`]), and only then: a queue that is armed again before its event has
/// come asks for the same event, not for a second one.
pub struct CompletionQueue<'r, E = Cqe> {
    pub(super) ring: Ring<'r, E>,
    pub(super) record: &'r CqDoorbellRecord,
    /// Entries taken, counted from the queue's start.
    pub(super) consumer: u64,
    /// Events received; their low bits are the arm word's sequence number.
    pub(super) events: u8,
    unclaimed: Unclaimed,
}

impl<'r, E: CqeSlot> CompletionQueue<'r, E> {
    /// Makes a completion queue over `ring`, whose entries are [`Cqe::UNWRITTEN`] but for what the device
    /// wrote since it was created. It begins at the first entry; where another has taken entries before, see
    /// [`CompletionQueue::starting_at`].
    ///
    /// # What is trusted
    /// An entry in the ring retires requests, whoever wrote it: their blocks are written anew, also where a
    /// device has not read them yet. So the ring of a queue pair on a device is the one that the device
    /// writes that queue pair's completions to. Who makes the queue pair's doorbell vouches for it
    /// ([`UarDoorbell::new`](super::UarDoorbell::new)); `devx` makes doorbells, rings and queues, keeps them
    /// together, and hands none of them out. Nothing else that is safe retires requests of a queue pair on a
    /// device.
    ///
    /// # Errors
    /// [`QueueError::Size`] unless the ring has a power of two of entries, at most 2^23.
    pub fn new(ring: &'r mut [E], record: &'r CqDoorbellRecord) -> Result<Self, QueueError> {
        let ring = Ring::new(ring, MAX_COMPLETIONS)?;
        Ok(Self { ring, record, consumer: 0, events: 0, unclaimed: Unclaimed::default() })
    }

    /// Returns what tells it from other completion queues: no two of them have one ring.
    #[inline]
    pub(crate) fn identity(&self) -> CqIdentity {
        CqIdentity(self.ring.address())
    }

    /// Returns whether the device has written no entry that was not taken.
    pub fn is_empty(&self) -> bool {
        entry(self.ring.peek(self.consumer).cqe()).is_none()
    }

    /// Returns the first signature error of an mkey since the last call, if any (`mlx5dv_mkey_check`): an
    /// error that polling has recorded in the mkey, or has kept here because the router lacked the mkey
    /// ([`CompletionError::UnknownMkey`]).
    ///
    /// Ask after the completion of the data was taken from this queue, or after the peer's message that the
    /// data is there. Of a queue pair with two completion queues, errors in sent data arrive at the queue of
    /// the send queue, errors in received data at the other one: ask the queue that has the completion of the
    /// data.
    ///
    /// # Errors
    /// [`CheckError::NotASignatureMkey`]. [`CheckError::Unintelligible`] for an error that no domain of this
    /// mkey has; it is told once, too. [`CheckError::ErrorsLost`] where routers lacked more than 8 mkeys with
    /// errors: the data may be wrong.
    pub fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        self.unclaimed.check(mkey)
    }

    /// Drops the signature error that is kept for [`CompletionQueue::check`], of an mkey that was destroyed:
    /// another one may get its number.
    pub fn forget_mkey(&mut self, mkey: MkeyIndex) {
        self.unclaimed.forget(mkey);
    }

    /// Keeps errors of mkeys that no router has together with other queues.
    #[cfg(feature = "devx")]
    pub(crate) fn share_unclaimed(&mut self, shared: &alloc::sync::Arc<SharedFaults>) {
        self.unclaimed = Unclaimed::Shared(shared.clone());
    }

    /// Takes the next entry as it is, for [`crate::inspect`] or a decoder of one's own, if the device has
    /// written one. It retires nothing, and polling will not see the entry. Its slot stays taken until
    /// [`CompletionQueue::release`].
    #[inline]
    pub fn take_entry(&mut self) -> Option<Cqe> {
        let entry = entry(self.ring.peek(self.consumer).cqe())?;
        self.consumer = self.consumer.wrapping_add(1);
        Some(entry)
    }

    /// Gives the slots of all entries taken back to the device (consumer index of the doorbell record).
    #[inline]
    pub fn release(&mut self) {
        let consumed = self.consumer as u32 & CONSUMER_MASK;
        barrier::entries_before_record();
        self.record.set_consumer(consumed);
    }

    /// Returns the next completion, if there is one. A signature error is recorded in its
    /// [`Mkey`](crate::mkey::Mkey).
    ///
    /// Entries that the user does not see are taken on the way, as many as the ring has at most: `None` also
    /// where more wait after those.
    ///
    /// # Errors
    /// [`CompletionError`] for an entry that makes no sense or that is about no request and no mkey of the
    /// router's. It is consumed, nothing is retired, and polling may go on.
    // With `#[inline]`, a whole I/O takes 3 to 6 % more instructions on x86-64, and 6 % on A72.
    #[inline(always)]
    pub fn poll(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<Result<Completion, CompletionError>> {
        let before = self.consumer;
        if let Some(work) = self.next_success(router) {
            self.release();
            return Some(Ok(Completion::Work(work)));
        }
        let completion = self.next_of_any_kind(router);
        if self.consumer != before {
            self.release();
        }
        completion
    }

    /// Returns the next completion as [`CompletionQueue::poll`] does, and its entry, for what else is in
    /// that: when the request was done ([`Cqe::timestamp`], see [`ClockInfo`](super::ClockInfo)), for
    /// example. It takes longer than polling without it.
    ///
    /// ```
    /// use mlx5_mkey::error::CompletionError;
    /// use mlx5_mkey::queue::{ClockInfo, Completion, CompletionQueue, CompletionRouter};
    /// /// Takes a completion, and returns when its request was done, in nanoseconds.
    /// fn take(
    ///     completions: &mut CompletionQueue<'_>,
    ///     router: &mut impl CompletionRouter,
    ///     clock: &ClockInfo,
    /// ) -> Result<Option<(Completion, u64)>, CompletionError> {
    ///     let Some((entry, completion)) = completions.poll_with_entry(router) else { return Ok(None) };
    ///     Ok(Some((completion?, clock.nanoseconds(entry.timestamp.get()))))
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn poll_with_entry(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<(Cqe, Result<Completion, CompletionError>)> {
        let before = self.consumer;
        let completion = self.next_with_entry(router);
        if self.consumer != before {
            self.release();
        }
        completion
    }

    /// Hands up to `max` completions and errors to `each`, gives the slots of all back after the last, and
    /// returns how many there were. It takes them as [`CompletionQueue::poll`] does.
    #[inline]
    pub fn poll_batch(
        &mut self,
        max: usize,
        router: &mut impl CompletionRouter,
        mut each: impl FnMut(Result<Completion, CompletionError>),
    ) -> usize {
        let before = self.consumer;
        let mut count = 0;
        while count < max {
            if let Some(work) = self.next_success(router) {
                each(Ok(Completion::Work(work)));
            } else if let Some(completion) = self.next_of_any_kind(router) {
                each(completion);
            } else {
                break;
            }
            count += 1;
        }
        if self.consumer != before {
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
        router: &mut impl CompletionRouter,
        delay: &mut impl DelayNs,
        attempts: u32,
        pause_us: u32,
    ) -> Result<Completion, CompletionError> {
        for attempt in 0..attempts {
            if attempt > 0 {
                delay.delay_us(pause_us);
            }
            if let Some(completion) = self.poll(router) {
                return completion;
            }
        }
        Err(CompletionError::TimedOut)
    }

    /// Takes the next entry if it is the success of a send request that is outstanding, and returns what the
    /// user sees of it. `None` where it is none, which was not taken, or that of a part of a configuration,
    /// which was. The device gets no slot back.
    // As a call, a whole I/O takes 14 % more instructions and half as much time again (x86-64).
    #[inline(always)]
    fn next_success(&mut self, router: &mut impl CompletionRouter) -> Option<WorkCompletion> {
        let slot = self.ring.peek(self.consumer).cqe();
        let end = CqeEnd::from_bytes(slot.read_u64::<{ CqeEnd::OFFSET }>());
        if !end.is_send_success(slot.owner()) {
            return None;
        }
        barrier::owner_before_entry();
        let bytes = u64::from_be_bytes(slot.read_u64::<BYTE_COUNT_WORD>()) as u32;
        let user_index = (u64::from_be_bytes(slot.read_u64::<USER_INDEX_WORD>()) >> 32) as u32;
        let qpn = end.qpn();
        let identity = self.identity();
        let queues = verified(router, CqeOrigin { qpn, user_index: user_index & USER_INDEX_MASK })?;
        let Retired { id, kind } = queues.retire_send(CompletedSend::new(qpn, end.counter(), identity))?;
        self.consumer = self.consumer.wrapping_add(1);
        let outcome = Outcome::Sent { kind, bytes };
        (kind != RequestKind::MkeyConfigurePart).then_some(WorkCompletion { id, qpn, outcome })
    }

    /// Takes entries of any kind up to the first that is a completion for the user.
    #[cold]
    #[inline(never)]
    fn next_of_any_kind(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<Result<Completion, CompletionError>> {
        self.next_with_entry(router).map(|(_, completion)| completion)
    }

    /// As [`CompletionQueue::next_of_any_kind`], with the entry.
    #[inline]
    fn next_with_entry(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<(Cqe, Result<Completion, CompletionError>)> {
        // A device that never stops writing what the user does not see must not keep the caller here.
        for _ in 0..self.ring.len() {
            let entry = self.take_entry()?;
            if let Some(completion) = complete(&entry, self.identity(), router, &mut self.unclaimed) {
                return Some((entry, completion));
            }
        }
        None
    }
}

/// Copies an entry, if the device has written it.
pub(super) fn entry(slot: Slot<'_, Cqe>) -> Option<Cqe> {
    let [.., last] = slot.read_u64::<{ CqeEnd::OFFSET }>();
    let op_own = OpOwn::from_bits(last);
    if u64::from(op_own.owner()) != slot.owner() || op_own.opcode() == CqeOpcode::INVALID.0 {
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

/// Finds the queues of the queue pair that an entry names.
#[inline]
fn verified<R: CompletionRouter>(router: &mut R, origin: CqeOrigin) -> Option<&mut R::Queues> {
    router.queues(origin).filter(|queues| queues.qpn() == origin.qpn)
}

/// Retires or records what an entry of any kind reports; returns nothing for one that the user does not see.
fn complete(
    entry: &Cqe,
    identity: CqIdentity,
    router: &mut impl CompletionRouter,
    unclaimed: &mut Unclaimed,
) -> Option<Result<Completion, CompletionError>> {
    match CqeEvent::from_wire(entry) {
        Ok(CqeEvent::Work(event)) => complete_work(entry, event, identity, router).transpose(),
        Ok(CqeEvent::SignatureError(fault)) => {
            let mkey = fault.mkey;
            let position = router.signature_error(&fault);
            if position.is_none() {
                unclaimed.keep(&fault);
            }
            let error = position.map(|position| Completion::SignatureError { mkey, position });
            Some(error.ok_or(CompletionError::UnknownMkey { index: mkey.get() }))
        }
        Err(error) => Some(Err(error)),
    }
}

/// Retires the request that an entry names.
fn complete_work(
    entry: &Cqe,
    event: WorkEvent,
    identity: CqIdentity,
    router: &mut impl CompletionRouter,
) -> Result<Option<Completion>, CompletionError> {
    let qpn = Qpn::from_low_bits(entry.opcode_qpn().qpn());
    let origin = CqeOrigin { qpn, user_index: entry.user_index.get() & USER_INDEX_MASK };
    let queues = verified(router, origin).ok_or(CompletionError::UnknownQueuePair { qpn: qpn.get() })?;
    let counter = entry.wqe_counter.get();
    let unknown = CompletionError::UnknownRequest { qpn: qpn.get(), counter };
    let sent = CompletedSend::new(qpn, counter, identity);
    let received = CompletedReceive::new(qpn, counter, identity);
    let (id, outcome) = match event {
        WorkEvent::Sent { bytes } => {
            let Retired { id, kind } = queues.retire_send(sent).ok_or(unknown)?;
            if kind == RequestKind::MkeyConfigurePart {
                return Ok(None);
            }
            (id, Outcome::Sent { kind, bytes })
        }
        WorkEvent::Received { message, bytes } => {
            (queues.retire_receive(received).ok_or(unknown)?, Outcome::Received { message, bytes })
        }
        WorkEvent::SendFailed(failure) => {
            (queues.retire_send(sent).ok_or(unknown)?.id, Outcome::Failed(failure))
        }
        WorkEvent::ReceiveFailed(failure) => {
            (queues.retire_receive(received).ok_or(unknown)?, Outcome::Failed(failure))
        }
    };
    Ok(Some(Completion::Work(WorkCompletion { id, qpn, outcome })))
}

crate::fmt::format_counters!(['r, E: CqeSlot] CompletionQueue ['r, E] { consumer, events });

#[cfg(test)]
mod tests;
