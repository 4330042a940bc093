//! The completion queue: takes entries from the device, and gives each entry to its request or mkey.
//!
//! Nearly all entries are successes of send requests. `CompletionQueue::next_success` recognizes them by one
//! comparison of an entry's last byte ([`CqeEnd::is_send_success`]). The router finds the queue pair, whose
//! number is verified. The queue pair retires the request that the entry's counter names, and all silent
//! requests before it.
//!
//! `CompletionQueue::next_of_any_kind` takes all other entries: failures, receives, signature errors, and
//! entries that are refused. A configuration of an mkey may consist of several work requests, and the user
//! sees only the success of the last one. If `next_success` has taken the success of another one,
//! `next_of_any_kind` takes the entry after it. Each call of a public polling function gives the slots of its
//! entries back to the device once, by the doorbell record.

use super::completed::{CompletedReceive, CompletedSend, CqIdentity};
use super::completion::{Completion, CqeEvent, Outcome, WorkCompletion, WorkEvent};
use super::doorbell::CqDoorbellRecord;
use super::in_flight::{RequestKind, RequestNumber, Retired};
use super::ring::{Ring, Slot};
use super::router::{CompletionRouter, CqeOrigin, QpQueues};
#[cfg(feature = "devx")]
use super::unclaimed::SharedFaults;
use super::unclaimed::Unclaimed;
use super::{MAX_COMPLETIONS, barrier};
use crate::mkey::error::CheckError;
use crate::mkey::{Mkey, SignatureError};
use crate::queue::error::CompletionError;
use crate::types::QueueError;
use crate::types::{MkeyIndex, Qpn};
use crate::wire::cqe::{Cqe, CqeEnd, CqeOpcode, CqeSlot, OpOwn};
use embedded_hal::delay::DelayNs;
use zerocopy::transmute;

/// Selects the bits of the consumer index that the doorbell record has room for: 24.
pub(super) const CONSUMER_MASK: u32 = 0x00ff_ffff;

/// The offsets of two words of 8 bytes in an entry. The first 4 bytes at `USER_INDEX_WORD` are the user
/// index. The last 4 bytes at `BYTE_COUNT_WORD` are the byte count.
const USER_INDEX_WORD: usize = core::mem::offset_of!(Cqe, user_index);
const BYTE_COUNT_WORD: usize = core::mem::offset_of!(Cqe, byte_count) - 4;

/// Selects the bits of a user index: 24.
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
/// No completion is missed while the program sleeps. The arm word carries the consumer index, and the device
/// knows how many entries it has written. If the device has written more entries than the index says, it
/// raises the event at once.
///
/// The device raises one event for each sequence number of the arm word. The number advances only with each
/// received event ([`CompletionQueue::event_received`]). A queue that is armed again before its event has
/// come therefore asks for the same event, not for a second one.
pub struct CompletionQueue<'r, E = Cqe> {
    pub(super) ring: Ring<'r, E>,
    pub(super) record: &'r CqDoorbellRecord,
    /// Number of entries taken since the queue's start.
    pub(super) consumer: u64,
    /// Number of events received. Its two low bits are the sequence number of the next arm word.
    pub(super) events: u8,
    unclaimed: Unclaimed,
}

impl<'r, E: CqeSlot> CompletionQueue<'r, E> {
    /// Makes a completion queue over `ring`. The entries must be [`Cqe::UNWRITTEN`], except those that the
    /// device has written since the creation of the queue. Taking begins at the first entry. If another
    /// reader has taken entries before, call [`CompletionQueue::starting_at`].
    ///
    /// # What is trusted
    /// An entry in the ring retires requests, whoever wrote it. The send queue then overwrites the blocks of
    /// these requests, even if the device has not read the blocks yet. The ring must therefore be the one to
    /// which the device writes the queue pair's completions. The maker of the queue pair's doorbell vouches
    /// for this ([`UarDoorbell::new`](super::UarDoorbell::new)). `devx` makes doorbells, rings and queues,
    /// keeps them together, and hands out none of them. No other safe code retires requests of a queue pair
    /// on a device.
    ///
    /// # Errors
    /// [`QueueError::Size`] unless the ring has a power of two of entries, at most 2^23.
    pub fn new(ring: &'r mut [E], record: &'r CqDoorbellRecord) -> Result<Self, QueueError> {
        let ring = Ring::new(ring, "entries of a completion queue", MAX_COMPLETIONS)?;
        Ok(Self { ring, record, consumer: 0, events: 0, unclaimed: Unclaimed::default() })
    }

    /// Returns the identity of the queue. Different completion queues have different rings, and therefore
    /// different identities.
    #[inline]
    pub(crate) fn identity(&self) -> CqIdentity {
        CqIdentity(self.ring.address())
    }

    /// Returns whether all entries that the device has written are taken.
    pub fn is_empty(&self) -> bool {
        entry(self.ring.peek(self.consumer).cqe()).is_none()
    }

    /// Returns the first signature error of an mkey since the last call, if any (`mlx5dv_mkey_check`).
    /// Polling has recorded the error in the mkey. If the router lacked the mkey
    /// ([`CompletionError::UnknownMkey`]), the queue has kept the error.
    ///
    /// Call this after you have taken the completion of the data from this queue, or after the peer's message
    /// that the data has arrived. If a queue pair has two completion queues, errors in sent data arrive at
    /// the queue of the send queue, and errors in received data at the other one. Ask the queue that has the
    /// completion of the data.
    ///
    /// # Errors
    /// [`CheckError::NotASignatureMkey`]. [`CheckError::Unintelligible`] for an error that matches no domain
    /// of this mkey; the call returns this error only once. [`CheckError::ErrorsLost`] if routers lacked more
    /// than 8 mkeys with errors: the data of any mkey may be wrong. Every check of an mkey without an error
    /// of its own then returns this error, until [`CompletionQueue::forget_lost_errors`].
    pub fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        self.unclaimed.check(mkey)
    }

    /// Drops the signature error of this mkey that is kept for [`CompletionQueue::check`], if any. Call this
    /// after the destruction of the mkey, because a new mkey may get the same number.
    pub fn forget_mkey(&mut self, mkey: MkeyIndex) {
        self.unclaimed.forget(mkey);
    }

    /// Ends the state in which checks return [`CheckError::ErrorsLost`]. Any data that moved until now may be
    /// wrong, so call this function only after you have discarded this data, or moved it again.
    pub fn forget_lost_errors(&mut self) {
        self.unclaimed.forget_lost();
    }

    /// From now on, keeps unclaimed signature errors in `shared`, where other completion queues keep theirs
    /// too. An error is unclaimed if the router did not have its mkey.
    #[cfg(feature = "devx")]
    pub(crate) fn share_unclaimed(&mut self, shared: &alloc::sync::Arc<SharedFaults>) {
        self.unclaimed = Unclaimed::Shared(shared.clone());
    }

    /// Takes the next entry unchanged, for [`crate::inspect`] or a decoder of your own, if the device has
    /// written one. The entry retires no request, and polling will not see it. Its slot stays taken until
    /// [`CompletionQueue::release`].
    #[inline]
    pub fn take_entry(&mut self) -> Option<Cqe> {
        let entry = entry(self.ring.peek(self.consumer).cqe())?;
        self.consumer = self.consumer.wrapping_add(1);
        Some(entry)
    }

    /// Gives the slots of all taken entries back to the device (consumer index of the doorbell record).
    #[inline]
    pub fn release(&mut self) {
        let consumed = self.consumer as u32 & CONSUMER_MASK;
        barrier::entries_before_record();
        self.record.set_consumer(consumed);
    }

    /// Returns the next completion, if there is one. A signature error is recorded in its
    /// [`Mkey`](crate::mkey::Mkey).
    ///
    /// A configuration of an mkey may consist of several work requests, of which only the last one completes
    /// for the user. The call also takes the entries of the others, without returning them. It takes at most
    /// as many entries as the ring has, so `None` can mean that more entries wait.
    ///
    /// # Errors
    /// [`CompletionError`] for a malformed entry, or an entry that names no request and no mkey of the
    /// router. The entry is taken and retires no request. Polling can continue.
    // With `#[inline]` alone, the benchmark of a whole I/O takes 3 to 6 % more instructions on x86-64, and on
    // Cortex-A72 it takes 6 % more.
    #[inline(always)]
    pub fn poll(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<Result<Completion, CompletionError>> {
        self.poll_with(router, |_| {})
    }

    /// Polls as [`CompletionQueue::poll`] does. Calls `prepare` unless the next entry is the success of a
    /// send request that completes for the user.
    #[inline(always)]
    pub(crate) fn poll_with(
        &mut self,
        router: &mut impl CompletionRouter,
        prepare: impl FnOnce(&mut Self),
    ) -> Option<Result<Completion, CompletionError>> {
        let before = self.consumer;
        if let Some(work) = self.next_success(router) {
            self.release();
            return Some(Ok(Completion::Work(work)));
        }
        prepare(self);
        let completion = self.next_of_any_kind(router);
        if self.consumer != before {
            self.release();
        }
        completion
    }

    /// Returns the next completion, as [`CompletionQueue::poll`] does, together with its entry. The entry has
    /// further fields, such as the time of completion ([`Cqe::timestamp`], see
    /// [`ClockInfo`](super::ClockInfo)). This call takes longer than polling without the entry.
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
    /// The errors of [`CompletionQueue::poll`].
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

    /// Polls up to `max` times, as [`CompletionQueue::poll`] does, and passes each completion or error to
    /// `each`. Gives all slots back after the last one. Returns the number of completions and errors.
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

    /// Polls until a completion is there, at most `attempts` times, with pauses of `pause_us` microseconds.
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

    /// Takes the next entry if it is the success of an outstanding send request, and returns the completion
    /// for the user. Returns `None` in two cases. Either the next entry is not written yet or is no such
    /// success, and was not taken. Or the entry was taken, but completes a work request of a configuration
    /// before the last one, which the user does not see. This call gives no slot back to the device.
    // Inlined: with a call, the benchmark of a whole I/O takes 14 % more instructions and 50 % more time
    // (x86-64).
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
        let Retired { id, kind, number } =
            queues.retire_send(CompletedSend::new(qpn, end.counter(), identity))?;
        self.consumer = self.consumer.wrapping_add(1);
        let outcome = Outcome::Sent { kind, bytes };
        (kind != RequestKind::MkeyConfigurePart).then_some(WorkCompletion { id, qpn, number, outcome })
    }

    /// Takes entries of any kind until an entry has a completion or an error for the user. Returns this
    /// completion or error.
    #[cold]
    #[inline(never)]
    fn next_of_any_kind(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<Result<Completion, CompletionError>> {
        self.next_with_entry(router).map(|(_, completion)| completion)
    }

    /// Does the same as [`CompletionQueue::next_of_any_kind`], and also returns the entry.
    #[inline]
    fn next_with_entry(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<(Cqe, Result<Completion, CompletionError>)> {
        // The limit protects the caller from a device that endlessly writes entries that the user does not
        // see.
        for _ in 0..self.ring.len() {
            let entry = self.take_entry()?;
            if let Some(completion) = complete(&entry, self.identity(), router, &mut self.unclaimed) {
                return Some((entry, completion));
            }
        }
        None
    }
}

/// Removal of entries of a destroyed or reset queue pair.
impl<E: CqeSlot> CompletionQueue<'_, E> {
    /// Drops the entries that were not taken and for which `is_stale` returns true. Returns their number. The
    /// other entries stay in order.
    ///
    /// Call this for entries of a queue pair that was reset or destroyed ([`Cqe::is_of`]). Otherwise an old
    /// entry could be taken for the entry of a later request: on the same queue pair, or on the next queue
    /// pair with the same number.
    pub fn discard(&mut self, mut is_stale: impl FnMut(&Cqe) -> bool) -> usize {
        self.discard_entries(&mut is_stale)
    }

    /// Does the same as [`CompletionQueue::discard`], compiled once for all closures. Additions wrap, so that
    /// no overflow check is compiled in.
    fn discard_entries(&mut self, is_stale: &mut dyn FnMut(&Cqe) -> bool) -> usize {
        let mut index = self.consumer;
        while index.wrapping_sub(self.consumer) < self.ring.len().into()
            && entry(self.ring.peek(index).cqe()).is_some()
        {
            index = index.wrapping_add(1);
        }
        // The loop goes through the entries from the last to the first. Each entry that stays moves towards
        // the end, into the place of a dropped entry.
        let mut target = index;
        while index != self.consumer {
            index = index.wrapping_sub(1);
            let Some(mut found) = entry(self.ring.peek(index).cqe()) else { continue };
            if is_stale(&found) {
                continue;
            }
            target = target.wrapping_sub(1);
            let owner = self.ring.peek(target).owner() as u8;
            found.op_own = found.op_own_bits().with_owner(owner != 0).into_bits();
            self.ring.write(target, E::of(found));
        }
        let discarded = target.wrapping_sub(self.consumer);
        if discarded > 0 {
            self.consumer = target;
            self.release();
        }
        discarded as usize
    }
}

/// Returns a copy of the entry in a slot, or `None` if the device has not written it in this lap.
fn entry(slot: Slot<'_, Cqe>) -> Option<Cqe> {
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

/// Returns the queues of the queue pair that an entry names. Returns `None` if the router finds no queues, or
/// queues with another number.
#[inline]
fn verified<R: CompletionRouter>(router: &mut R, origin: CqeOrigin) -> Option<&mut R::Queues> {
    router.queues(origin).filter(|queues| queues.qpn() == origin.qpn)
}

/// Retires the request, or records the error, that an entry of any kind reports. Returns `None` for an entry
/// that the user does not see: the success of a work request inside a configuration of an mkey.
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

/// Retires the request that an entry names, and returns its completion. Returns `Ok(None)` for the success of
/// a work request of a configuration of an mkey before the last one, which the user does not see.
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
    let receive = |id| (id, RequestNumber::NONE);
    let ((id, number), outcome) = match event {
        WorkEvent::Sent { bytes } => {
            let Retired { id, kind, number } = queues.retire_send(sent).ok_or(unknown)?;
            if kind == RequestKind::MkeyConfigurePart {
                return Ok(None);
            }
            ((id, number), Outcome::Sent { kind, bytes })
        }
        WorkEvent::Received { message, bytes } => {
            let id = queues.retire_receive(received).ok_or(unknown)?;
            (receive(id), Outcome::Received { message, bytes })
        }
        WorkEvent::SendFailed(failure) => {
            let Retired { id, number, .. } = queues.retire_send(sent).ok_or(unknown)?;
            ((id, number), Outcome::Failed(failure))
        }
        WorkEvent::ReceiveFailed(failure) => {
            (receive(queues.retire_receive(received).ok_or(unknown)?), Outcome::Failed(failure))
        }
    };
    Ok(Some(Completion::Work(WorkCompletion { id, qpn, number, outcome })))
}

crate::fmt::format_counters!(['r, E: CqeSlot] CompletionQueue ['r, E] { consumer, events });

#[cfg(test)]
mod tests;
