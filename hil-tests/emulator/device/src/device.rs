//! The device, and the calls that create, query and destroy its objects.

use crate::bus::Bus;
use crate::capabilities::LOG_MAX_ENTRIES;
use crate::clock::Clock;
use crate::faults::Faults;
use crate::gate::Gate;
use crate::gids::Gids;
use crate::interface_state::Interface;
use crate::memory::Memory;
use crate::message::Message;
use crate::object::cq::{Cq, CqAttributes};
use crate::object::mkey::{Mkey, MkeyAttributes, MkeySpace, MkeyView};
use crate::object::psv::{Psv, PsvView};
use crate::object::qp::{Qp, QpState};
use crate::object::{Objects, Pd};
use crate::outbound::Outbound;
use crate::profile::{CryptoMode, DeviceProfile};
use crate::tap::{Seen, Tap, Written};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use mlx5_mkey::types::{Key, MkeyIndex};
use mlx5_mkey::wire::klm::Klm;

/// The reason why a call was refused. A refused call changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No object of the kind has the number.
    NoSuchObject {
        /// The kind of object.
        what: &'static str,
        /// The number of the object.
        number: u32,
    },
    /// An argument is outside of the device's limits.
    BadAttribute(&'static str),
    /// The object is in use: another object refers to it, its number is taken, or its state forbids the call.
    InUse,
    /// The state machine of a queue pair has no transition from the current state to the requested state.
    BadTransition {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// The device has no crypto, or it imports keys by the other method (plaintext or wrapped).
    CryptoMode,
    /// The login of a wrapped key is missing or invalid.
    NoLogin,
    /// The key cannot be unwrapped, or its length is wrong.
    BadKey,
    /// All numbers for objects of this kind are used up.
    Exhausted,
    /// A new mkey allows atomics and has entries of one length, and one of its entries names a region with
    /// relaxed ordering (DEVICE.md, "Atomics over relaxed order").
    AtomicOverRelaxed,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoSuchObject { what, number } => write!(f, "no {what} {number:#x}"),
            Self::BadAttribute(what) => write!(f, "{what} is out of range"),
            Self::InUse => f.write_str("the object is in use"),
            Self::BadTransition { from, to } => write!(f, "no transition from {from:?} to {to:?}"),
            Self::CryptoMode => f.write_str("keys cannot be imported in this way"),
            Self::NoLogin => f.write_str("no valid crypto login"),
            Self::BadKey => f.write_str("the key does not unwrap or has a wrong length"),
            Self::Exhausted => f.write_str("no numbers left"),
            Self::AtomicOverRelaxed => f.write_str("atomics on entries over a region of relaxed order"),
        }
    }
}

impl core::error::Error for Error {}

/// An asynchronous event, with the number of its queue pair, completion queue or shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A send queue has stopped before its next request (SQ_DRAINED).
    SqDrained(u32),
    /// A queue pair has refused an access of its peer, and is in error (QP_ACCESS_ERR).
    QpAccess(u32),
    /// A queue pair has refused a request of its peer as malformed or forbidden, and is in error
    /// (QP_REQ_ERR).
    QpRequest(u32),
    /// A doorbell announced more blocks than the ring has; the queue pair is in error (QP_FATAL).
    QpFatal(u32),
    /// A completion queue was full, or its ring is outside of the memory; the device writes no more entries
    /// to it (CQ_ERR).
    CqError(u32),
    /// A shared receive queue has fewer receive requests than its limit (SRQ_LIMIT_REACHED).
    SrqLimit(u32),
    /// The linked list of a shared receive queue names a slot that does not exist; the device takes no more
    /// receive requests from the queue (SRQ_ERR).
    SrqFatal(u32),
    /// A queue pair in error takes no more receive requests of a shared queue (QP_LAST_WQE_REACHED).
    LastWqe(u32),
}

/// The kinds of objects whose range of numbers can be set ([`Device::set_numbers`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// Mkeys. Their number is the index of their key.
    Mkey,
    /// PSVs.
    Psv,
    /// DEKs.
    Dek,
    /// Queue pairs.
    Qp,
}

/// A software mlx5 device that reads and writes a memory.
#[derive(Debug)]
pub struct Device<M> {
    pub(crate) memory: Bus<M>,
    pub(crate) profile: DeviceProfile,
    pub(crate) faults: Faults,
    pub(crate) objects: Objects,
    /// Numbers of the queue pairs that may have requests to execute or receive requests to flush.
    pub(crate) active: BTreeSet<u32>,
    /// Numbers of the queue pairs whose peer had no receive request for their oldest request. Some may have
    /// been reset since.
    pub(crate) waiting: BTreeSet<u32>,
    /// Numbers of the queue pairs whose next request the gate (a function that tests set) delays. Some of
    /// these queue pairs may have been destroyed since.
    pub(crate) stalled: BTreeSet<u32>,
    /// Numbers of the queue pairs in the error state. The device flushes receive requests that are posted to
    /// them later.
    pub(crate) failed: BTreeSet<u32>,
    pub(crate) events: VecDeque<Event>,
    /// Messages from one queue pair of this device to another.
    pub(crate) local: VecDeque<Message>,
    /// Messages for queue pairs of other devices.
    pub(crate) outbound: Outbound,
    /// Numbers of the queue pairs that wait for room in `outbound`.
    pub(crate) held: BTreeSet<u32>,
    pub(crate) tap: Tap,
    pub(crate) gate: Gate,
    pub(crate) clock: Clock,
    pub(crate) interface: Interface,
    pub(crate) gids: Gids,
    /// The range of the device's queue pair numbers on a network (first and last), after [`Device::join`].
    pub(crate) network: Option<(u32, u32)>,
}

impl<M: Memory> Device<M> {
    /// Makes a device without objects, which reads and writes `memory`.
    pub fn new(memory: M, profile: DeviceProfile) -> Self {
        Self {
            memory: Bus::new(memory),
            profile,
            faults: Faults::default(),
            objects: Objects::new(),
            active: BTreeSet::new(),
            waiting: BTreeSet::new(),
            stalled: BTreeSet::new(),
            failed: BTreeSet::new(),
            events: VecDeque::new(),
            local: VecDeque::new(),
            outbound: Outbound::default(),
            held: BTreeSet::new(),
            tap: Tap::default(),
            gate: Gate::default(),
            clock: Clock::default(),
            interface: Interface::default(),
            gids: Gids::new(profile.port_gid),
            network: None,
        }
    }

    /// Sets the port's table of GIDs. The address vector of a sent datagram selects the GID that is its
    /// source address. Datagrams to any GID of the table reach this port. An empty table changes nothing. A
    /// new device has only the GID of its profile.
    pub fn set_gids(&mut self, table: Vec<[u8; 16]>) {
        self.gids.set(table);
    }

    /// Sets the GIDs of the ports of the InfiniBand subnet: the port at index n has the LID n + 1. Datagrams
    /// without a global route find their port by its LID.
    pub fn set_lids(&mut self, ports: Vec<[u8; 16]>) {
        self.gids.set_lids(ports);
    }

    /// Records that a GID belongs to a port of another device. From now on, datagrams to the GID become
    /// messages for other devices.
    pub fn reach(&mut self, gid: [u8; 16]) {
        self.gids.reach(gid);
    }

    /// Returns the GIDs of the port.
    pub fn gids(&self) -> impl Iterator<Item = [u8; 16]> {
        self.gids.own()
    }

    /// Sets the deliberate faults of the device from now on. DEKs that are already loaded do not change.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Sets the clock: completions are stamped with the ticks that `read` returns. Without a clock, their
    /// time is 0.
    pub fn set_clock(&mut self, read: impl FnMut() -> u64 + Send + 'static) {
        self.clock.set(read);
    }

    /// Sets a function that is called, from now on, for each message, each completion entry, each request of
    /// a send queue, each packet and each command.
    pub fn set_tap(&mut self, look: impl FnMut(Seen<'_>) + Send + 'static) {
        self.tap.set(look);
    }

    /// Keeps the last `limit` completion entries from now on, for tests. Each kept entry has the cause of its
    /// error, if any.
    pub fn keep_completions(&mut self, limit: usize) {
        self.tap.keep(limit);
    }

    /// Returns the completion entries that are kept, oldest first.
    pub fn kept_completions(&self) -> impl Iterator<Item = &Written> {
        self.tap.written()
    }

    /// Returns the memory that the device reads and writes.
    pub fn memory(&self) -> &M {
        &self.memory.host
    }

    /// Returns the memory that the device reads and writes, so that the caller can write to it.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.memory.host
    }

    /// Returns the profile of the device.
    pub fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    /// Makes a protection domain and returns its number (ALLOC_PD).
    ///
    /// # Errors
    /// [`Error::Exhausted`].
    pub fn alloc_pd(&mut self) -> Result<u32, Error> {
        self.objects.pds.insert(Pd).ok_or(Error::Exhausted)
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`]; [`Error::InUse`] while an object is in the domain.
    pub fn dealloc_pd(&mut self, pd: u32) -> Result<(), Error> {
        let objects = &self.objects;
        let used = objects.mkeys.values().any(|mkey| mkey.pd == pd)
            || objects.psvs.values().any(|psv| psv.pd == pd)
            || objects.deks.values().any(|dek| dek.pd == pd)
            || objects.srqs.values().any(|srq| srq.attributes.pd == pd)
            || objects.qps.values().any(|qp| qp.attributes.pd == pd);
        if used {
            return Err(Error::InUse);
        }
        self.objects
            .pds
            .remove(pd)
            .map(drop)
            .ok_or(Error::NoSuchObject { what: "protection domain", number: pd })
    }

    /// Creates an mkey without entries, which UMRs configure (CREATE_MKEY).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain, [`Error::CryptoMode`] for an mkey with crypto on a device
    /// without crypto, [`Error::BadAttribute`] for too many entries, for entries of one length on an mkey
    /// that cannot have them, or for a feature that the device lacks; [`Error::Exhausted`].
    pub fn create_mkey(&mut self, attributes: MkeyAttributes) -> Result<Key, Error> {
        self.known_pd(attributes.pd)?;
        if attributes.crypto && self.profile.crypto == CryptoMode::None {
            return Err(Error::CryptoMode);
        }
        check_entries(&attributes)?;
        self.check_features(&attributes)?;
        self.insert_mkey(Mkey::indirect(attributes))
    }

    /// Checks that the device has the features that a new mkey asks for.
    fn check_features(&self, attributes: &MkeyAttributes) -> Result<(), Error> {
        if attributes.log_entry.is_some() && !self.profile.fixed_entries {
            return Err(Error::BadAttribute("entries of one length"));
        }
        if attributes.access.remote_atomic && !self.profile.atomic {
            return Err(Error::BadAttribute("atomics"));
        }
        Ok(())
    }

    /// Creates an mkey with its entries, which UMRs cannot change (CREATE_MKEY of access mode KLM or KSM
    /// without `umr_en`).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain; [`Error::BadAttribute`] for features that only a UMR
    /// configures or that the device lacks, for more entries than there is room for, or for a space that the
    /// entries do not cover; [`Error::AtomicOverRelaxed`]; [`Error::Exhausted`].
    pub fn create_mkey_over(&mut self, attributes: MkeyAttributes, space: MkeySpace) -> Result<Key, Error> {
        self.known_pd(attributes.pd)?;
        check_entries(&attributes)?;
        self.check_features(&attributes)?;
        if attributes.signature || attributes.crypto || attributes.free {
            return Err(Error::BadAttribute("mkey without UMR"));
        }
        if space.entries.len() as u64 > attributes.translations.into()
            || !space.is_whole(attributes.log_entry)
        {
            return Err(Error::BadAttribute("mkey space"));
        }
        let relaxed = |entry: &Klm| {
            let mkey = self.objects.mkeys.get(Key::from_raw(entry.mkey.get()).index().get());
            mkey.is_some_and(|mkey| mkey.relaxed_ordering != [false; 2])
        };
        let atomic = attributes.log_entry.is_some() && attributes.access.remote_atomic;
        if atomic && space.entries.iter().any(relaxed) {
            return Err(Error::AtomicOverRelaxed);
        }
        self.insert_mkey(Mkey::over(attributes, space))
    }

    /// Destroys an mkey, even if it belongs to a registered region.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn destroy_mkey(&mut self, index: MkeyIndex) -> Result<(), Error> {
        self.release();
        let number = index.get();
        self.objects.mkeys.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "mkey", number })
    }

    /// Returns the state of an mkey.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn query_mkey(&self, index: MkeyIndex) -> Result<MkeyView, Error> {
        let number = index.get();
        let mkey = self.objects.mkeys.get(number).ok_or(Error::NoSuchObject { what: "mkey", number })?;
        Ok(MkeyView(mkey.clone()))
    }

    /// Creates 1 to 4 PSVs and returns their numbers (CREATE_PSV).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain, [`Error::BadAttribute`] for the count; [`Error::Exhausted`].
    pub fn create_psvs(&mut self, pd: u32, count: u32) -> Result<Vec<u32>, Error> {
        self.known_pd(pd)?;
        if !(1..=4).contains(&count) {
            return Err(Error::BadAttribute("PSV count"));
        }
        let psvs = &mut self.objects.psvs;
        if psvs.free() < count {
            return Err(Error::Exhausted);
        }
        (0..count).map(|_| psvs.insert(Psv::new(pd)).ok_or(Error::Exhausted)).collect()
    }

    /// Destroys a PSV.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn destroy_psv(&mut self, number: u32) -> Result<(), Error> {
        self.objects.psvs.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "PSV", number })
    }

    /// Returns the state of a PSV.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn query_psv(&self, number: u32) -> Result<PsvView, Error> {
        let psv = self.objects.psvs.get(number).ok_or(Error::NoSuchObject { what: "PSV", number })?;
        Ok(PsvView { state: psv.state, transient: psv.transient })
    }

    /// Makes the device reuse the numbers of destroyed objects at once from now on.
    pub const fn reuse_numbers(&mut self) {
        let objects = &mut self.objects;
        objects.pds.reuse();
        objects.mkeys.reuse();
        objects.psvs.reuse();
        objects.deks.reuse();
        objects.logins.reuse();
        objects.cqs.reuse();
        objects.srqs.reuse();
        objects.qps.reuse();
    }

    /// Creates a completion queue and returns its number. The caller ensures that the ring is filled with
    /// [`mlx5_mkey::wire::cqe::Cqe::UNWRITTEN`].
    ///
    /// # Errors
    /// [`Error::BadAttribute`] for the number or the size of entries, or for a queue that ignores overruns on
    /// a device without this feature; [`Error::Exhausted`].
    pub fn create_cq(&mut self, attributes: CqAttributes) -> Result<u32, Error> {
        if attributes.log_entries > 22 {
            return Err(Error::BadAttribute("CQ size"));
        }
        if !matches!(attributes.entry_bytes, 64 | 128) {
            return Err(Error::BadAttribute("CQE size"));
        }
        if attributes.ignore_overrun && !self.profile.cq_oi {
            return Err(Error::BadAttribute("CQ that ignores overruns"));
        }
        self.objects.cqs.insert(Cq::new(attributes)).ok_or(Error::Exhausted)
    }

    /// Collapses a completion queue: from now on, the device writes each entry over the first entry (PRM
    /// `cc`). Assumption: the owner bit changes as in a queue that is not collapsed.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn collapse_cq(&mut self, number: u32) -> Result<(), Error> {
        let cq = self.objects.cqs.get_mut(number).ok_or(Error::NoSuchObject { what: "CQ", number })?;
        cq.collapsed = true;
        Ok(())
    }

    /// Returns the number of entries that the device has written to a completion queue so far. The count does
    /// not wrap at the size of the queue.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn cq_producer(&self, number: u32) -> Result<u32, Error> {
        self.objects.cqs.get(number).map(|cq| cq.producer).ok_or(Error::NoSuchObject { what: "CQ", number })
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`]; [`Error::InUse`] while a queue pair uses it.
    pub fn destroy_cq(&mut self, number: u32) -> Result<(), Error> {
        let uses = |qp: &Qp| qp.attributes.send_cqn == number || qp.attributes.recv_cqn == Some(number);
        if self.objects.qps.values().any(uses) {
            return Err(Error::InUse);
        }
        self.release();
        self.objects.cqs.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "CQ", number })
    }

    /// Sets the range of numbers for new objects of a kind, so that the numbers of several devices differ or
    /// are the same.
    ///
    /// # Errors
    /// [`Error::BadAttribute`] for an empty range or numbers of more than 24 bits.
    pub fn set_numbers(&mut self, kind: Numbered, first: u32, last: u32) -> Result<(), Error> {
        if first > last || last > 0x00ff_ffff {
            return Err(Error::BadAttribute("object numbers"));
        }
        let objects = &mut self.objects;
        match kind {
            Numbered::Mkey => objects.mkeys.set_range(first, last),
            Numbered::Psv => objects.psvs.set_range(first, last),
            Numbered::Dek => objects.deks.set_range(first, last),
            Numbered::Qp => objects.qps.set_range(first, last),
        }
        Ok(())
    }

    pub(crate) fn known_pd(&self, pd: u32) -> Result<(), Error> {
        let found = self.objects.pds.get(pd).is_some();
        if found { Ok(()) } else { Err(Error::NoSuchObject { what: "protection domain", number: pd }) }
    }

    pub(crate) fn insert_mkey(&mut self, mkey: Mkey) -> Result<Key, Error> {
        let tag = mkey.tag;
        let index = self.objects.mkeys.insert(mkey).ok_or(Error::Exhausted)?;
        Ok(Key::new(MkeyIndex::from_low_bits(index), tag))
    }
}

/// Refuses entries that no device supports: more than the limit, or entries of one length if this length
/// exceeds 2^31 bytes or the mkey has signatures or crypto. Assumption: the device refuses entries of one
/// length in an mkey with signatures or crypto.
const fn check_entries(attributes: &MkeyAttributes) -> Result<(), Error> {
    if attributes.translations > 1 << LOG_MAX_ENTRIES {
        return Err(Error::BadAttribute("entries of an mkey"));
    }
    match attributes.log_entry {
        Some(32..) => Err(Error::BadAttribute("entry length")),
        Some(_) if attributes.signature || attributes.crypto => {
            Err(Error::BadAttribute("mkey with entry length"))
        }
        _ => Ok(()),
    }
}
