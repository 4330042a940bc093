//! Completion queues: their rings, and the entries that are set aside for each queue pair and mkey.

#![allow(unsafe_code)]

use super::{Device, DevxError, carry, sys};
use crate::command::error::CommandError;
use crate::command::{Command, CqSize, CqeSize, CreateCq, LogPageSize, UarPage};
use crate::mkey::error::CheckError;
use crate::mkey::{Mkey, SignatureError};
use crate::queue::error::CompletionError;
use crate::queue::unclaimed::SharedFaults;
use crate::queue::{ArmFor, Completion, CompletionQueue, CompletionRouter, CqIdentity, UarCqDoorbell};
use crate::types::{Cqn, MkeyIndex, Qpn};
use crate::wire::cqe::{Cqe, Cqe128, CqeOpcode, CqeSlot};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes that are allocated behind a ring for its doorbell record, so that the record has a cache line of its
/// own.
pub(super) const RECORD_BYTES: usize = 64;

/// The properties of a completion queue. A number of entries converts into this type; the other properties
/// then have their defaults.
///
/// ```
/// use mlx5_mkey::devx::{Cq, CqReader, CqSpec, Device, DevxError};
/// /// For two queue pairs of 256 blocks and 64 slots, and for 32 mkeys with signatures.
/// fn create(device: &Device) -> Result<(Cq, CqReader), DevxError> {
///     let entries = CqSpec::entries_for(2, 256, 64, 32);
///     device.create_cq(CqSpec { entries, ..CqSpec::default() })
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CqSpec {
    /// Number of entries, a power of two.
    ///
    /// Queue pairs and mkeys set entries aside, so that the queue cannot overrun. A queue pair sets aside one
    /// entry for each send request that may be outstanding, signalled or not (if the queue pair fails, the
    /// device writes an entry for each), and one for each receive request. An mkey with signatures sets aside
    /// one entry, for a signature error. [`CqSpec::entries_for`] computes the sum.
    pub entries: u32,
    /// Whether the queue may overrun: the library sets no entries aside, and the device overwrites entries
    /// that were not taken in time (PRM `oi`). Mkeys with signatures cannot use such a queue
    /// ([`DevxError::ErrorsOverwritten`]).
    pub ignore_overrun: bool,
    /// The size of an entry.
    pub cqe_size: CqeSize,
}

impl Default for CqSpec {
    /// Returns the properties of a queue with one entry of 64 bytes.
    fn default() -> Self {
        Self::from(1)
    }
}

impl CqSpec {
    /// Returns how many entries a completion queue needs for `queue_pairs` queue pairs, each with up to
    /// `sends` send requests and `receives` receive requests outstanding, and for `mkeys` mkeys with
    /// signatures (one entry each, for a signature error). The result is a power of two.
    ///
    /// ```
    /// use mlx5_mkey::devx::CqSpec;
    /// const ENTRIES: u32 = CqSpec::entries_for(2, 256, 64, 32);
    /// assert_eq!(ENTRIES, 1024);
    /// ```
    pub const fn entries_for(queue_pairs: u32, sends: u32, receives: u32, mkeys: u32) -> u32 {
        let each = sends.saturating_add(receives);
        let all = queue_pairs.saturating_mul(each).saturating_add(mkeys);
        // If the power of two does not fit into 32 bits, the function returns a number that
        // [`Device::create_cq`] refuses.
        match all.checked_next_power_of_two() {
            Some(entries) => entries,
            None => u32::MAX,
        }
    }
}

impl From<u32> for CqSpec {
    fn from(entries: u32) -> Self {
        Self { entries, ignore_overrun: false, cqe_size: CqeSize::B64 }
    }
}

/// A completion queue on the device.
#[derive(Clone)]
pub struct Cq(Arc<CqObject>);

struct CqObject {
    number: Cqn,
    identity: CqIdentity,
    room: Room,
    /// Signature errors that a poll of any completion queue of the device has taken, but whose mkeys were not
    /// in the router of that poll. [`CqReader::check`] finds them here.
    unclaimed: Arc<SharedFaults>,
    object: sys::Object<Option<CqMemory>>,
}

/// The memory and the doorbell page of a completion queue that [`Device::create_cq`] created.
pub(super) struct CqMemory {
    _ring: sys::Dma,
    _uar: Arc<sys::Uar>,
}

/// The number of entries of a completion queue, and the queue pairs and mkeys for which entries are set
/// aside.
struct Room {
    /// Number of entries, or `u32::MAX` if the queue may overrun and the library does not count its entries.
    entries: u32,
    set_aside: AtomicU32,
    /// The queue pairs and mkeys with entries set aside. A destroyed queue pair or mkey stays in the map
    /// while the ring may still hold entries about it.
    writers: Mutex<HashMap<Writer, Held>>,
    any_departed: AtomicBool,
}

/// The entries that are set aside for one queue pair or mkey.
#[derive(Default)]
struct Held {
    entries: u32,
    /// Number of [`SetAside`]s of this queue pair or mkey. At 0 the queue pair or mkey is gone from the
    /// device.
    holders: u32,
}

/// A queue pair or an mkey, about which the device writes entries into a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    Qp(Qpn),
    Mkey(MkeyIndex),
}

impl Writer {
    /// Returns whether an entry is about this object.
    fn wrote(self, entry: &Cqe) -> bool {
        match (self, entry.opcode()) {
            (Self::Mkey(index), CqeOpcode::SIGNATURE_ERROR) => {
                entry.as_signature_error().mkey.get() >> 8 == index.get()
            }
            (Self::Qp(qpn), _) => entry.is_of(qpn),
            _ => false,
        }
    }
}

/// Entries of a completion queue that are set aside for a queue pair or mkey. They become free when the queue
/// pair or mkey is destroyed and its completions are no longer in the ring. If the value is dropped before a
/// call of [`SetAside::belongs_to`], they become free at once.
pub(super) struct SetAside {
    cq: Cq,
    entries: u32,
    writer: OnceLock<Writer>,
}

impl SetAside {
    /// Records the queue pair or mkey for which the entries are set aside, once its number is known.
    pub(super) fn belongs_to(&self, writer: Writer) {
        if self.writer.set(writer).is_ok() {
            if let Writer::Mkey(index) = writer {
                // The mkey is new. An unclaimed signature error with its number belongs to an earlier mkey,
                // which is destroyed.
                self.cq.0.unclaimed.forget(index);
            }
            let mut writers = self.cq.0.room.writers();
            let held = writers.entry(writer).or_default();
            (held.entries, held.holders) = (held.entries + self.entries, held.holders + 1);
        }
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        let room = &self.cq.0.room;
        match self.writer.get() {
            // The queue pair or mkey is already gone from the device. Its room in the ring becomes free when
            // the reader drops its completions that are still in the ring (`Room::forget_departed`).
            Some(writer) => {
                if let Some(held) = room.writers().get_mut(writer) {
                    held.holders -= 1;
                    room.any_departed.fetch_or(held.holders == 0, Ordering::Release);
                }
            }
            None => drop(room.set_aside.fetch_sub(self.entries, Ordering::Relaxed)),
        }
    }
}

impl Room {
    fn writers(&self) -> MutexGuard<'_, HashMap<Writer, Held>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops completions of destroyed queue pairs and mkeys from the ring. Then frees the entries that were
    /// set aside for these queue pairs and mkeys.
    #[inline]
    fn forget_departed(&self, queue: &mut CompletionQueue<'static, impl CqeSlot>) {
        if self.any_departed.load(Ordering::Acquire) {
            self.forget_them(queue);
        }
    }

    #[cold]
    fn forget_them(&self, queue: &mut CompletionQueue<'static, impl CqeSlot>) {
        let mut writers = self.writers();
        let departed: HashMap<_, _> = writers.extract_if(|_, held| held.holders == 0).collect();
        queue.discard(|entry| departed.keys().any(|writer| writer.wrote(entry)));
        let entries = departed.values().map(|held| held.entries).sum();
        self.set_aside.fetch_sub(entries, Ordering::Relaxed);
        self.any_departed.store(false, Ordering::Release);
    }
}

impl Device {
    /// Creates a completion queue and its reader. `create_cq(256)` creates a queue of 256 entries.
    ///
    /// # Errors
    /// [`DevxError::Queue`] for a number of entries that is no power of two, [`DevxError::Call`],
    /// [`DevxError::Command`], also for [`CqSpec::ignore_overrun`] where the device does not support it.
    pub fn create_cq(&self, spec: impl Into<CqSpec>) -> Result<(Cq, CqReader), DevxError> {
        let CqSpec { entries, ignore_overrun, cqe_size } = spec.into();
        let size = CqSize::new(entries)?;
        if ignore_overrun && !self.report.general.cq_ignore_overrun {
            let (command, what) = (CreateCq::OPCODE, "completion queues that ignore overrun");
            return Err(CommandError::Unsupported { command, what }.into());
        }
        let uar = sys::Uar::alloc(&self.context)?;
        let count = entries as usize;
        let ring_bytes = count * cqe_size.bytes();
        let memory = sys::Dma::alloc(&self.context, ring_bytes + RECORD_BYTES)?;
        // SAFETY: the reader owns the object that owns the memory. `slots` and `record` are called once each.
        let queue = unsafe {
            let record = memory.record(ring_bytes)?;
            match cqe_size {
                CqeSize::B64 => {
                    AnyCq::B64(CompletionQueue::new(memory.slots(0, count, Cqe::UNWRITTEN)?, record)?)
                }
                CqeSize::B128 => {
                    AnyCq::B128(CompletionQueue::new(memory.slots(0, count, Cqe128::UNWRITTEN)?, record)?)
                }
            }
        };
        let command = CreateCq {
            size,
            cqe_size,
            uar: UarPage::new(uar.page())?,
            event_queue: self.context.event_queue(0)?,
            entries: memory.at(0),
            doorbell: memory.at(ring_bytes),
            page_size: LogPageSize::P4K,
            ignore_overrun,
        };
        let page = uar.base()?;
        let kept = Some(CqMemory { _ring: memory, _uar: uar });
        let (object, number) =
            carry(&command, |request, reply| sys::Object::create(&self.context, kept, request, reply))?;
        // SAFETY: the queue was created with this page, and keeps it. `number` is the number of the queue.
        // libmlx5 may give one page to several queues: each doorbell is a single store of 8 bytes, which is
        // atomic on 64-bit hosts.
        let doorbell = unsafe { UarCqDoorbell::new(page, number) };
        let counted = if ignore_overrun { u32::MAX } else { entries };
        Ok(Cq::new(number, counted, object, queue, doorbell, &self.unclaimed))
    }
}

/// Evaluates the same expression for the queue in an `AnyCq`, whether its entries have 64 or 128 bytes.
macro_rules! with_queue {
    ($any:expr, $queue:ident => $body:expr) => {
        match $any {
            AnyCq::B64($queue) => $body,
            AnyCq::B128($queue) => $body,
        }
    };
}

impl Cq {
    /// Creates the handle and the reader of a completion queue that already exists on the device and in
    /// memory. Up to `entries` entries can be set aside.
    pub(super) fn new(
        number: Cqn,
        entries: u32,
        object: sys::Object<Option<CqMemory>>,
        mut queue: AnyCq,
        doorbell: UarCqDoorbell,
        unclaimed: &Arc<SharedFaults>,
    ) -> (Self, CqReader) {
        with_queue!(&mut queue, queue => queue.share_unclaimed(unclaimed));
        let room = Room {
            entries,
            set_aside: AtomicU32::new(0),
            writers: Mutex::new(HashMap::new()),
            any_departed: AtomicBool::new(false),
        };
        let (identity, unclaimed) = (queue.identity(), unclaimed.clone());
        let cq = Self(Arc::new(CqObject { number, identity, room, unclaimed, object }));
        (cq.clone(), CqReader { queue, doorbell, channel: None, cq })
    }

    /// Returns the queue's number.
    pub fn number(&self) -> Cqn {
        self.0.number
    }

    /// Returns the address of the ring in this process, for tools that read the ring from outside, such as a
    /// debugger. [`QpControl::addresses`](super::QpControl::addresses) does the same for a queue pair.
    pub fn ring_address(&self) -> u64 {
        self.0.identity.address() as u64
    }

    /// Returns the queue's identity, which is unique in the process, also among the completion queues of
    /// other devices.
    pub(super) fn identity(&self) -> CqIdentity {
        self.0.identity
    }

    /// Returns how many entries are not set aside yet.
    pub fn free_entries(&self) -> u32 {
        self.0.room.entries.saturating_sub(self.0.room.set_aside.load(Ordering::Relaxed))
    }

    /// Sets an entry aside for the signature error of an mkey of the device `context`.
    ///
    /// # Errors
    /// [`DevxError::ErrorsOverwritten`], and the errors of [`Cq::set_aside`].
    pub(super) fn set_error_aside(&self, context: &sys::Context) -> Result<SetAside, DevxError> {
        if self.0.room.entries == u32::MAX {
            return Err(DevxError::ErrorsOverwritten { cq: self.0.number });
        }
        self.set_aside(context, 1)
    }

    /// Sets entries aside for an object of the device `context`.
    ///
    /// # Errors
    /// [`DevxError::CompletionQueueTooSmall`]. [`AdoptError::OtherDevice`](super::AdoptError::OtherDevice) if
    /// the queue is of another device: commands name a completion queue by its number only, and on this
    /// device the number would name another queue.
    pub(super) fn set_aside(&self, context: &sys::Context, entries: u32) -> Result<SetAside, DevxError> {
        context.expect_own(self.0.object.context())?;
        let room = &self.0.room;
        let add = |set: u32| set.checked_add(entries).filter(|sum| *sum <= room.entries);
        match room.set_aside.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(SetAside { cq: self.clone(), entries, writer: OnceLock::new() }),
            Err(set) => Err(DevxError::CompletionQueueTooSmall {
                cq: self.0.number,
                needed: entries,
                free: room.entries.saturating_sub(set),
            }),
        }
    }

    /// Returns whether entries are set aside for this queue pair or mkey. They are set aside while the object
    /// exists, and after its destruction as long as the ring may still hold entries about it.
    pub(super) fn knows(&self, writer: Writer) -> bool {
        self.0.room.writers().contains_key(&writer)
    }

    /// Returns whether another library created the queue.
    pub(super) fn is_of_other(&self) -> bool {
        self.0.object.kept().is_none()
    }

    /// Returns the object by which the kernel knows the queue.
    pub(super) fn object(&self) -> &sys::Object<impl Sized> {
        &self.0.object
    }
}

impl PartialEq for Cq {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cq {}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cq").field(&self.0.number).finish()
    }
}

/// A completion queue of [`crate::queue`], with entries of 64 or of 128 bytes.
pub(super) enum AnyCq {
    B64(CompletionQueue<'static>),
    B128(CompletionQueue<'static, Cqe128>),
}

impl AnyCq {
    fn identity(&self) -> CqIdentity {
        with_queue!(self, queue => queue.identity())
    }

    pub(super) fn is_empty(&self) -> bool {
        with_queue!(self, queue => queue.is_empty())
    }

    pub(super) fn arm(&mut self, doorbell: &mut UarCqDoorbell, entries: ArmFor) {
        with_queue!(self, queue => queue.arm(doorbell, entries));
    }

    pub(super) const fn event_received(&mut self) {
        with_queue!(self, queue => queue.event_received());
    }

    fn take_entry(&mut self) -> Option<Cqe> {
        with_queue!(self, queue => {
            let entry = queue.take_entry()?;
            queue.release();
            Some(entry)
        })
    }

    fn discard(&mut self, is_stale: impl FnMut(&Cqe) -> bool) {
        with_queue!(self, queue => queue.discard(is_stale));
    }
}

/// Polls a queue of entries of 128 bytes. The function is not inlined into [`CqReader::poll`], because
/// programs rarely use these entries.
#[inline(never)]
fn poll_long(
    queue: &mut CompletionQueue<'static, Cqe128>,
    router: &mut impl CompletionRouter,
    room: &Room,
) -> Option<Result<Completion, CompletionError>> {
    queue.poll_with(router, |queue| room.forget_departed(queue))
}

/// The reader of a completion queue, by which a program takes completions. It keeps the queue alive.
///
/// [`CqReader::poll`] returns at once, with a completion or without; [`CqReader::wait`] sleeps until there is
/// one. Programs that wait for other descriptors as well use [`CqReader::channel`] and
/// [`CqReader::poll_or_arm`].
///
/// ```no_run
/// use mlx5_mkey::devx::{CqReader, Mkeys, QueuePair};
/// use mlx5_mkey::error::CompletionError;
/// use mlx5_mkey::queue::{Completion, Outcome, QpRouter};
///
/// /// Takes all completions that have arrived.
/// fn drain(
///     completions: &mut CqReader,
///     queue: &mut QueuePair,
///     mkeys: &mut Mkeys,
/// ) -> Result<(), CompletionError> {
///     let mut router = QpRouter { queues: queue, mkeys };
///     while let Some(completion) = completions.poll(&mut router) {
///         match completion? {
///             Completion::Work(work) => match work.outcome {
///                 Outcome::Failed(failure) => println!("request {} failed: {}", work.id, failure.syndrome),
///                 _ => println!("request {} is done", work.id),
///             },
///             // Data that passed through the mkey had a wrong signature. The mkey's check names the block.
///             Completion::SignatureError { position, .. } => {
///                 println!("mkey {position}: {:?}", router.mkeys[position].take_error());
///             }
///         }
///     }
///     Ok(())
/// }
/// ```
pub struct CqReader {
    pub(super) queue: AnyCq,
    pub(super) doorbell: UarCqDoorbell,
    /// The channel for the queue's events, which is created when it is first needed.
    pub(super) channel: Option<Arc<sys::EventChannel>>,
    cq: Cq,
}

impl CqReader {
    /// Returns the queue that this reader reads.
    pub const fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Returns the next completion; see [`CompletionQueue::poll`]. The router finds the [`super::QueuePair`]
    /// to which a completion belongs: `QpRouter { queues: &mut queue_pair, mkeys }` for one, a
    /// [`crate::queue::QpTable`] for many. Completions of a dropped queue pair are skipped.
    ///
    /// # Errors
    /// [`CompletionError`].
    #[inline]
    pub fn poll(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<Result<Completion, CompletionError>> {
        // `poll_with` takes the next entry at once if it is the success of a send request of a queue pair
        // that still exists. For any other entry, and if the queue is empty, it first calls the closure,
        // which drops entries about destroyed queue pairs and mkeys.
        let cq = &self.cq;
        match &mut self.queue {
            AnyCq::B64(queue) => queue.poll_with(router, |queue| cq.0.room.forget_departed(queue)),
            AnyCq::B128(queue) => poll_long(queue, router, &cq.0.room),
        }
    }

    /// Returns the next completion with its entry, for example for the time stamp; see
    /// [`CompletionQueue::poll_with_entry`].
    pub fn poll_with_entry(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<(Cqe, Result<Completion, CompletionError>)> {
        self.forget_departed();
        with_queue!(&mut self.queue, queue => queue.poll_with_entry(router))
    }

    /// Takes up to `max` completions and calls `each` with each of them; see [`CompletionQueue::poll_batch`].
    #[inline]
    pub fn poll_batch(
        &mut self,
        max: usize,
        router: &mut impl CompletionRouter,
        each: impl FnMut(Result<Completion, CompletionError>),
    ) -> usize {
        self.forget_departed();
        with_queue!(&mut self.queue, queue => queue.poll_batch(max, router, each))
    }

    /// Returns the first signature error of an mkey since the last call, if any; see
    /// [`CompletionQueue::check`]. A reader may take a signature error of an mkey that its router does not
    /// contain, for example if a queue pair has two completion queues. All readers of a [`Device`] share
    /// these errors, so this function returns the error, whichever reader took it.
    ///
    /// # Errors
    /// The errors of [`CompletionQueue::check`].
    pub fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        self.forget_departed();
        with_queue!(&mut self.queue, queue => queue.check(mkey))
    }

    /// Ends the state in which checks return [`CheckError::ErrorsLost`], for all readers of the device; see
    /// [`CompletionQueue::forget_lost_errors`].
    pub fn forget_lost_errors(&mut self) {
        with_queue!(&mut self.queue, queue => queue.forget_lost_errors());
    }

    /// Takes the next entry without decoding it, for [`crate::inspect`], and frees its place in the ring. The
    /// library does not retire the request of the entry: the request still counts as outstanding.
    pub fn take_entry(&mut self) -> Option<Cqe> {
        self.queue.take_entry()
    }

    /// Drops the entries about this queue pair that are still in the ring.
    pub(super) fn discard(&mut self, qpn: Qpn) {
        self.queue.discard(|entry| entry.is_of(qpn));
    }

    /// Drops entries about destroyed queue pairs and mkeys; see [`Room::forget_departed`].
    #[inline]
    fn forget_departed(&mut self) {
        let room = &self.cq.0.room;
        with_queue!(&mut self.queue, queue => room.forget_departed(queue));
    }
}
