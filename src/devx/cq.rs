//! Completion queues: their rings, and who may write how many entries to them.

#![allow(unsafe_code)]

use super::{Device, DevxError, carry, sys};
use crate::command::{Command, CqSize, CqeSize, CreateCq, LogPageSize, UarPage};
use crate::error::{CheckError, CommandError, CompletionError};
use crate::mkey::{Mkey, SignatureError};
use crate::queue::unclaimed::SharedFaults;
use crate::queue::{ArmFor, Completion, CompletionQueue, CompletionRouter, CqIdentity, UarCqDoorbell};
use crate::types::{Cqn, MkeyIndex, Qpn};
use crate::wire::cqe::{Cqe, Cqe128, CqeOpcode};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes between a ring and the doorbell record after it, so that they do not share a cache line.
pub(super) const RECORD_BYTES: usize = 64;

/// What a completion queue is to be like. A number of entries alone is one, too.
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
    /// Entries, a power of two.
    ///
    /// Queue pairs and mkeys set entries aside: a queue pair one for each request that may be outstanding,
    /// signalled or not (all of them are completed when the queue pair fails), and one for each receive slot;
    /// an mkey with signatures one. [`CqSpec::entries_for`] adds them up.
    pub entries: u32,
    /// Entries are not counted, and the device overwrites those that were not taken in time (PRM `oi`). No
    /// mkey has its signature errors arrive there ([`DevxError::ErrorsOverwritten`]).
    pub ignore_overrun: bool,
    /// The size of an entry.
    pub cqe_size: CqeSize,
}

impl Default for CqSpec {
    /// One entry of 64 bytes.
    fn default() -> Self {
        Self::from(1)
    }
}

impl CqSpec {
    /// Returns how many entries a completion queue needs for `queue_pairs` queue pairs, each with up to
    /// `sends` outstanding send requests and `receives` receive slots, and for `mkeys` mkeys with signatures.
    ///
    /// ```
    /// use mlx5_mkey::devx::CqSpec;
    /// const ENTRIES: u32 = CqSpec::entries_for(2, 256, 64, 32);
    /// assert_eq!(ENTRIES, 1024);
    /// ```
    pub const fn entries_for(queue_pairs: u32, sends: u32, receives: u32, mkeys: u32) -> u32 {
        let each = sends.saturating_add(receives);
        let all = queue_pairs.saturating_mul(each).saturating_add(mkeys);
        // Where there is no such power of two, creating the queue refuses the number.
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
    /// Signature errors whose mkeys no router had, of all queues of the device.
    unclaimed: Arc<SharedFaults>,
    object: sys::Object<Option<CqMemory>>,
}

/// What the device uses of a completion queue, if it was made here.
pub(super) struct CqMemory {
    _ring: sys::Dma,
    _uar: Arc<sys::Uar>,
}

/// Who may write how many entries.
struct Room {
    /// `u32::MAX` where nobody counts.
    entries: u32,
    set_aside: AtomicU32,
    /// Who has entries set aside, and who is gone while entries of it may still be in the ring.
    writers: Mutex<HashMap<Writer, Held>>,
    any_departed: AtomicBool,
}

/// What is set aside for a writer.
#[derive(Default)]
struct Held {
    entries: u32,
    /// [`SetAside`]s of it. None: it is gone from the device.
    holders: u32,
}

/// What the device writes entries about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Writer {
    Qp(Qpn),
    Mkey(MkeyIndex),
}

impl Writer {
    /// Returns whether an entry is about this.
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

/// Entries that are set aside, until they are given back or their writer is gone and its entries are taken.
pub(super) struct SetAside {
    cq: Cq,
    entries: u32,
    writer: OnceLock<Writer>,
}

impl SetAside {
    /// Says who writes the entries, once it is known.
    pub(super) fn belongs_to(&self, writer: Writer) {
        if self.writer.set(writer).is_ok() {
            if let Writer::Mkey(index) = writer {
                // The mkey is new: what is kept of its number is of another one, which is gone.
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
            // The writer was destroyed: it is dropped after that.
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
}

impl Device {
    /// Makes a completion queue, and its reading end: `create_cq(256)` one of 256 entries.
    ///
    /// # Errors
    /// [`DevxError::Queue`] for a number of entries that is no power of two, [`DevxError::Call`],
    /// [`DevxError::Command`], also for [`CqSpec::ignore_overrun`] where the device has no such queues.
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
        // SAFETY: the reader owns the object that owns the memory, and these are handed out once.
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
        // SAFETY: the page is the one that the queue was created with and keeps, and the number is the
        // queue's. libmlx5 may give one page to several queues: the doorbell is a single store of 8 bytes,
        // which cannot mix on 64-bit hosts.
        let doorbell = unsafe { UarCqDoorbell::new(page, number) };
        let counted = if ignore_overrun { u32::MAX } else { entries };
        Ok(Cq::new(number, counted, object, queue, doorbell, &self.unclaimed))
    }
}

/// Does the same with a queue of either size.
macro_rules! with_queue {
    ($any:expr, $queue:ident => $body:expr) => {
        match $any {
            AnyCq::B64($queue) => $body,
            AnyCq::B128($queue) => $body,
        }
    };
}

impl Cq {
    /// Makes a queue and its reading end of what there is on the device and in memory. Up to `entries` can be
    /// set aside.
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

    /// Returns its number.
    pub fn number(&self) -> Cqn {
        self.0.number
    }

    /// Returns where the ring is in the memory of this process, to look at it from elsewhere, as
    /// [`QpControl::addresses`](super::QpControl::addresses) does of a queue pair.
    pub fn ring_address(&self) -> u64 {
        self.0.identity.address() as u64
    }

    /// Returns what tells it from the queues of other devices as well.
    pub(super) fn identity(&self) -> CqIdentity {
        self.0.identity
    }

    /// Returns how many entries nothing has set aside yet.
    pub fn free_entries(&self) -> u32 {
        self.0.room.entries.saturating_sub(self.0.room.set_aside.load(Ordering::Relaxed))
    }

    /// Sets an entry aside for the signature error of an mkey.
    ///
    /// # Errors
    /// [`DevxError::ErrorsOverwritten`], [`DevxError::CompletionQueueTooSmall`].
    pub(super) fn set_error_aside(&self) -> Result<SetAside, DevxError> {
        if self.0.room.entries == u32::MAX {
            return Err(DevxError::ErrorsOverwritten { cq: self.0.number });
        }
        self.set_aside(1)
    }

    /// Sets entries aside.
    ///
    /// # Errors
    /// [`DevxError::CompletionQueueTooSmall`].
    pub(super) fn set_aside(&self, entries: u32) -> Result<SetAside, DevxError> {
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

    /// Returns whether entries are set aside for one with this number: it is there, or is gone while entries
    /// of it may still be in the ring.
    pub(super) fn knows(&self, writer: Writer) -> bool {
        self.0.room.writers().contains_key(&writer)
    }

    /// Returns whether another library made it.
    pub(super) fn is_of_other(&self) -> bool {
        self.0.object.kept().is_none()
    }

    /// Returns what the kernel knows the queue by.
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

/// The core's completion queue, by the size of its entries.
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

/// Not inlined where [`CqReader::poll`] is: programs have this kind seldom.
#[inline(never)]
fn poll_long(
    queue: &mut CompletionQueue<'static, Cqe128>,
    router: &mut impl CompletionRouter,
) -> Option<Result<Completion, CompletionError>> {
    queue.poll(router)
}

/// The reading end of a completion queue. It keeps the queue alive.
///
/// [`CqReader::poll`] looks whether there is a completion; [`CqReader::wait`] sleeps until there is one. Who
/// waits for other things as well has [`CqReader::channel`] and [`CqReader::poll_or_arm`].
///
/// ```no_run
/// use mlx5_mkey::devx::{CqReader, Mkeys, QueuePair};
/// use mlx5_mkey::error::CompletionError;
/// use mlx5_mkey::queue::{Completion, Outcome, QpRouter};
///
/// /// Takes what has completed.
/// fn drain(
///     completions: &mut CqReader,
///     queue: &mut QueuePair<256, 64>,
///     mkeys: &mut Mkeys,
/// ) -> Result<(), CompletionError> {
///     let mut router = QpRouter { queues: queue, mkeys };
///     while let Some(completion) = completions.poll(&mut router) {
///         match completion? {
///             Completion::Work(work) => match work.outcome {
///                 Outcome::Failed(failure) => println!("request {} failed: {}", work.id, failure.syndrome),
///                 _ => println!("request {} is done", work.id),
///             },
///             // Data that passed through the mkey had a wrong signature. Which block, its check says.
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
    /// Made when it is first needed.
    pub(super) channel: Option<Arc<sys::EventChannel>>,
    cq: Cq,
}

impl CqReader {
    /// Returns the queue that it reads.
    pub const fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Returns the next completion; see [`CompletionQueue::poll`]. A [`super::QueuePair`] is what a router
    /// finds: `QpRouter { queues: &mut queue_pair, mkeys }` for one, a [`crate::queue::QpTable`] for many.
    /// Completions of a queue pair that was dropped are left out.
    ///
    /// # Errors
    /// [`CompletionError`].
    #[inline]
    pub fn poll(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<Result<Completion, CompletionError>> {
        self.forget_departed();
        match &mut self.queue {
            AnyCq::B64(queue) => queue.poll(router),
            AnyCq::B128(queue) => poll_long(queue, router),
        }
    }

    /// Returns the next completion with its entry, for its time stamp say; see
    /// [`CompletionQueue::poll_with_entry`].
    pub fn poll_with_entry(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<(Cqe, Result<Completion, CompletionError>)> {
        self.forget_departed();
        with_queue!(&mut self.queue, queue => queue.poll_with_entry(router))
    }

    /// Hands up to `max` completions to `each`; see [`CompletionQueue::poll_batch`].
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
    /// [`CompletionQueue::check`]. Errors whose mkeys no router had are known to all readers of the
    /// [`Device`]: of a queue pair with two completion queues, either reader tells of them.
    ///
    /// # Errors
    /// As of [`CompletionQueue::check`].
    pub fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        self.forget_departed();
        with_queue!(&mut self.queue, queue => queue.check(mkey))
    }

    /// Takes the next entry as it is, for [`crate::inspect`], and gives its slot back to the device. The
    /// request that it is about stays outstanding.
    pub fn take_entry(&mut self) -> Option<Cqe> {
        self.queue.take_entry()
    }

    /// Drops the entries of a queue pair.
    pub(super) fn discard(&mut self, qpn: Qpn) {
        self.queue.discard(|entry| entry.is_of(qpn));
    }

    /// Drops the entries of whoever is gone, and gives back what was set aside for it.
    #[inline]
    fn forget_departed(&mut self) {
        if self.cq.0.room.any_departed.load(Ordering::Acquire) {
            self.forget_them();
        }
    }

    #[cold]
    fn forget_them(&mut self) {
        let room = &self.cq.0.room;
        let mut writers = room.writers();
        let departed: HashMap<_, _> = writers.extract_if(|_, held| held.holders == 0).collect();
        self.queue.discard(|entry| departed.keys().any(|writer| writer.wrote(entry)));
        let entries = departed.values().map(|held| held.entries).sum();
        room.set_aside.fetch_sub(entries, Ordering::Relaxed);
        room.any_departed.store(false, Ordering::Release);
    }
}
