//! The front: objects are made and destroyed here, queues are run, events and messages picked up.

use crate::faults::Faults;
use crate::fetch::ReadAhead;
use crate::memory::Memory;
use crate::message::{self, Message};
use crate::object::cq::{Cq, CqAttributes};
use crate::object::dek::{Dek, DekAttributes, KeyMaterial, Login, LoginState, Secret};
use crate::object::mkey::{Access, Mkey, MkeyAttributes, MkeyView};
use crate::object::psv::{Psv, PsvView};
use crate::object::qp::{Peer, Qp, QpAttributes, QpState, QpView, ReceiveQueue, Retries};
use crate::object::{Objects, Pd};
use crate::profile::{CryptoMode, DeviceProfile};
use crate::tap::{Seen, Tap};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use mlx5_mkey::types::{Key, MkeyIndex};

/// Why a call was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No object of that kind has the number.
    NoSuchObject {
        /// The kind.
        what: &'static str,
        /// The number.
        number: u32,
    },
    /// An argument is outside of what the device can do.
    BadAttribute(&'static str),
    /// The object is used by another.
    InUse,
    /// The state machine has no such step.
    BadTransition {
        /// State now.
        from: QpState,
        /// State that was asked for.
        to: QpState,
    },
    /// The device has no crypto, or imports keys in the other way (M35).
    CryptoMode,
    /// There is no valid login for a wrapped key (M35).
    NoLogin,
    /// The key does not unwrap or does not have the right length (M32).
    BadKey,
    /// Object numbers are used up.
    Exhausted,
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
        }
    }
}

impl core::error::Error for Error {}

/// What happened apart from completions (asynchronous events).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A send queue stands still before its next request (event 5, SQ_DRAINED; M19).
    SqDrained(u32),
    /// A peer was refused access; the queue pair is in error (QP_ACCESS_ERR).
    QpAccess(u32),
    /// A doorbell made no sense; the queue pair is in error (QP_FATAL).
    QpFatal(u32),
    /// A completion queue was full or its ring is no memory; nothing is written to it any more (CQ_ERR).
    CqError(u32),
    /// A shared receive queue has fewer receives than its limit (SRQ_LIMIT_REACHED).
    SrqLimit(u32),
    /// The list of a shared receive queue leads nowhere; nothing is taken from it any more (SRQ_ERR).
    SrqFatal(u32),
    /// A queue pair in error takes no more receives of a shared queue (QP_LAST_WQE_REACHED).
    LastWqe(u32),
}

/// Kinds of objects whose numbers can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// Keys, by their index.
    Mkey,
    /// PSVs.
    Psv,
    /// DEKs.
    Dek,
    /// Queue pairs.
    Qp,
}

/// A software mlx5 device over some memory.
#[derive(Debug)]
pub struct Device<M> {
    pub(crate) memory: M,
    pub(crate) profile: DeviceProfile,
    pub(crate) faults: Faults,
    pub(crate) objects: Objects,
    /// Queue pairs that may have something to do.
    pub(crate) active: BTreeSet<u32>,
    pub(crate) events: VecDeque<Event>,
    /// Messages between queue pairs of this device.
    pub(crate) local: VecDeque<Message>,
    /// Messages for queue pairs of other devices.
    pub(crate) outbound: VecDeque<Message>,
    pub(crate) tap: Tap,
}

impl<M: Memory> Device<M> {
    /// Makes a device without objects.
    pub fn new(memory: M, profile: DeviceProfile) -> Self {
        Self {
            memory,
            profile,
            faults: Faults::default(),
            objects: Objects::new(),
            active: BTreeSet::new(),
            events: VecDeque::new(),
            local: VecDeque::new(),
            outbound: VecDeque::new(),
            tap: Tap::default(),
        }
    }

    /// Breaks or mends the device from now on. DEKs that are loaded stay as they are.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Has `look` called for each message and each completion entry from now on.
    pub fn set_tap(&mut self, look: impl FnMut(Seen<'_>) + Send + 'static) {
        self.tap.set(look);
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the memory, as the host would write it.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Returns what kind of device this is.
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
    /// [`Error::NoSuchObject`]; [`Error::InUse`] while anything is in it.
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

    /// Registers `length` bytes at `address` and returns their key, local and remote in one.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain, [`Error::BadAttribute`] for a range past the end of the address space.
    pub fn register(&mut self, pd: u32, address: u64, length: u64, access: Access) -> Result<Key, Error> {
        self.register_at(pd, address, address, length, access)
    }

    /// Registers `length` bytes at `address`, which requests call `start` (REG_MR with an `iova`).
    ///
    /// # Errors
    /// As [`Device::register`].
    pub fn register_at(
        &mut self,
        pd: u32,
        address: u64,
        start: u64,
        length: u64,
        access: Access,
    ) -> Result<Key, Error> {
        self.known_pd(pd)?;
        address.checked_add(length).ok_or(Error::BadAttribute("region"))?;
        start.checked_add(length).ok_or(Error::BadAttribute("region"))?;
        self.insert_mkey(Mkey::region(pd, address, start, length, access))
    }

    /// Creates an indirect key, which UMRs configure (CREATE_MKEY, M1).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain, [`Error::CryptoMode`] for a crypto key on a device without crypto.
    pub fn create_mkey(&mut self, attributes: MkeyAttributes) -> Result<Key, Error> {
        self.known_pd(attributes.pd)?;
        if attributes.crypto && self.profile.crypto == CryptoMode::None {
            return Err(Error::CryptoMode);
        }
        self.insert_mkey(Mkey::indirect(attributes))
    }

    /// Destroys a key or deregisters a region.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn destroy_mkey(&mut self, index: MkeyIndex) -> Result<(), Error> {
        let number = index.get();
        self.objects.mkeys.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "mkey", number })
    }

    /// Returns what a key holds.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn query_mkey(&self, index: MkeyIndex) -> Result<MkeyView, Error> {
        let number = index.get();
        let mkey = self.objects.mkeys.get(number).ok_or(Error::NoSuchObject { what: "mkey", number })?;
        Ok(MkeyView(mkey.clone()))
    }

    /// Creates 1 to 4 PSVs and returns their numbers (CREATE_PSV, M57).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain, [`Error::BadAttribute`] for the count.
    pub fn create_psvs(&mut self, pd: u32, count: u32) -> Result<Vec<u32>, Error> {
        self.known_pd(pd)?;
        if !(1..=4).contains(&count) {
            return Err(Error::BadAttribute("PSV count"));
        }
        (0..count).map(|_| self.objects.psvs.insert(Psv::new(pd)).ok_or(Error::Exhausted)).collect()
    }

    /// Destroys a PSV.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn destroy_psv(&mut self, number: u32) -> Result<(), Error> {
        self.objects.psvs.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "PSV", number })
    }

    /// Returns what a PSV holds.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn query_psv(&self, number: u32) -> Result<PsvView, Error> {
        let psv = self.objects.psvs.get(number).ok_or(Error::NoSuchObject { what: "PSV", number })?;
        Ok(PsvView { state: psv.state, transient: psv.transient })
    }

    /// Imports a key encryption key of 16 or 32 bytes and returns its number.
    ///
    /// # Errors
    /// [`Error::CryptoMode`] unless the device takes wrapped keys, [`Error::BadAttribute`] for the length.
    pub fn import_kek(&mut self, key: &[u8]) -> Result<u32, Error> {
        self.needs(CryptoMode::Wrapped)?;
        if !matches!(key.len(), 16 | 32) {
            return Err(Error::BadAttribute("KEK length"));
        }
        self.objects.keks.insert(Secret(key.to_vec())).ok_or(Error::Exhausted)
    }

    /// Stores a credential of 40 bytes, which logins have to present, and returns its number (M25).
    ///
    /// # Errors
    /// [`Error::CryptoMode`] unless the device takes wrapped keys.
    pub fn import_credential(&mut self, credential: &[u8; 40]) -> Result<u32, Error> {
        self.needs(CryptoMode::Wrapped)?;
        self.objects.credentials.insert(Secret(credential.to_vec())).ok_or(Error::Exhausted)
    }

    /// Logs in with a credential of 48 bytes, wrapped with the KEK, and returns the login's number (object 0x1f, M25).
    ///
    /// A credential that does not match makes a login that is [`LoginState::Invalid`].
    ///
    /// # Errors
    /// [`Error::CryptoMode`], or [`Error::NoSuchObject`] for KEK or credential.
    pub fn login(&mut self, kek: u32, credential: u32, wrapped: &[u8; 48]) -> Result<u32, Error> {
        self.needs(CryptoMode::Wrapped)?;
        let key = self.objects.keks.get(kek).ok_or(Error::NoSuchObject { what: "KEK", number: kek })?;
        let known = self.objects.credentials.get(credential);
        let known = known.ok_or(Error::NoSuchObject { what: "credential", number: credential })?;
        let shown = Dek::unwrap(key, wrapped, &Faults::default());
        let state = match shown {
            Some(shown) if shown.0 == known.0 => LoginState::Valid,
            _ => LoginState::Invalid,
        };
        self.objects.logins.insert(Login { kek, credential, state }).ok_or(Error::Exhausted)
    }

    /// Returns the state of a login (M27).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn query_login(&self, number: u32) -> Result<LoginState, Error> {
        self.objects
            .logins
            .get(number)
            .map(|login| login.state)
            .ok_or(Error::NoSuchObject { what: "login", number })
    }

    /// Ends a login. DEKs that were loaded under it stay (M29).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn logout(&mut self, number: u32) -> Result<(), Error> {
        self.objects.logins.remove(number).ok_or(Error::NoSuchObject { what: "login", number })?;
        self.login_has_ended(number);
        Ok(())
    }

    /// Gives numbers of queue pairs and mkeys that are gone out again at once from now on.
    pub const fn reuse_numbers(&mut self) {
        self.objects.qps.reuse();
        self.objects.mkeys.reuse();
    }

    /// Makes all logins invalid that showed a credential, as when a crypto officer deletes it and stores it anew (M28). DEKs
    /// that were loaded under them stay (M29).
    pub fn revoke(&mut self, credential: u32) {
        for number in self.objects.logins.numbers() {
            if let Some(login) = self.objects.logins.get_mut(number)
                && login.credential == credential
            {
                login.state = LoginState::Invalid;
                self.login_has_ended(number);
            }
        }
    }

    fn login_has_ended(&mut self, number: u32) {
        if !self.faults.keys_end_with_their_login {
            return;
        }
        let deks = &mut self.objects.deks;
        for dek in deks.numbers() {
            if deks.get(dek).is_some_and(|dek| dek.login == Some(number)) {
                deks.remove(dek);
            }
        }
    }

    /// Loads a data encryption key and returns its number (object 0x0c, M32-M40).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain, [`Error::CryptoMode`] for the other import method, [`Error::NoLogin`],
    /// [`Error::BadKey`].
    pub fn create_dek(&mut self, attributes: DekAttributes<'_>) -> Result<u32, Error> {
        self.known_pd(attributes.pd)?;
        let DekAttributes { pd, size, has_keytag, key } = attributes;
        let dek = match key {
            KeyMaterial::Plaintext(bytes) => {
                self.needs(CryptoMode::Plaintext)?;
                Dek::load(pd, size, has_keytag, bytes, &self.faults)
            }
            KeyMaterial::Wrapped { bytes, login } => {
                self.needs(CryptoMode::Wrapped)?;
                let session = self.objects.logins.get(login).ok_or(Error::NoLogin)?;
                let kek = self.objects.keks.get(session.kek);
                let kek = kek.filter(|_| session.state == LoginState::Valid).ok_or(Error::NoLogin)?;
                let plain = Dek::unwrap(kek, bytes, &self.faults).ok_or(Error::BadKey)?;
                Dek::load(pd, size, has_keytag, &plain.0, &self.faults)
                    .map(|dek| Dek { login: Some(login), ..dek })
            }
        };
        self.objects.deks.insert(dek.ok_or(Error::BadKey)?).ok_or(Error::Exhausted)
    }

    /// Destroys a DEK and wipes its key.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn destroy_dek(&mut self, number: u32) -> Result<(), Error> {
        self.objects.deks.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "DEK", number })
    }

    /// Creates a completion queue and returns its number (M56). The host has filled the ring with
    /// [`mlx5_mkey::wire::cqe::Cqe::UNWRITTEN`].
    ///
    /// # Errors
    /// [`Error::BadAttribute`].
    pub fn create_cq(&mut self, attributes: CqAttributes) -> Result<u32, Error> {
        if attributes.log_entries > 22 {
            return Err(Error::BadAttribute("CQ size"));
        }
        if !matches!(attributes.entry_bytes, 64 | 128) {
            return Err(Error::BadAttribute("CQE size"));
        }
        self.objects.cqs.insert(Cq::new(attributes)).ok_or(Error::Exhausted)
    }

    /// Returns how many entries a completion queue was given so far, without wrap at its size.
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
        self.objects.cqs.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "CQ", number })
    }

    /// Gives new objects of a kind numbers from `first` to `last`, so that those of several devices differ, or are the same.
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

    /// Whether a request waits for its peer to have a receive, so that only [`Device::run`] goes on with it.
    pub fn is_waiting(&self) -> bool {
        self.objects.qps.values().any(Qp::is_not_ready)
    }

    /// Creates a queue pair in [`QpState::Reset`] and returns its number (CREATE_QP).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for domain or queues, [`Error::BadAttribute`] for sizes.
    pub fn create_qp(&mut self, attributes: QpAttributes) -> Result<u32, Error> {
        self.known_pd(attributes.pd)?;
        for number in [attributes.send_cqn].into_iter().chain(attributes.recv_cqn) {
            self.objects.cqs.get(number).ok_or(Error::NoSuchObject { what: "CQ", number })?;
        }
        if attributes.receive != ReceiveQueue::None && attributes.recv_cqn.is_none() {
            return Err(Error::BadAttribute("receive CQ"));
        }
        if attributes.log_sq_blocks > 15 {
            return Err(Error::BadAttribute("ring size"));
        }
        match attributes.receive {
            ReceiveQueue::None => {}
            ReceiveQueue::Shared(number) => {
                self.objects.srqs.get(number).ok_or(Error::NoSuchObject { what: "SRQ", number })?;
            }
            ReceiveQueue::Own(ring) if ring.log_slots > 15 => return Err(Error::BadAttribute("ring size")),
            ReceiveQueue::Own(ring) if !ring.stride.is_multiple_of(16) || ring.stride > 1024 => {
                return Err(Error::BadAttribute("receive slot size"));
            }
            ReceiveQueue::Own(_) => {}
        }
        self.objects.qps.insert(Qp::new(attributes)).ok_or(Error::Exhausted)
    }

    /// Destroys a queue pair.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn destroy_qp(&mut self, number: u32) -> Result<(), Error> {
        self.objects.qps.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "QP", number })
    }

    /// Names the other end of a queue pair. Needed before it is used, in any state.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn connect(&mut self, number: u32, peer: Peer) -> Result<(), Error> {
        self.qp_mut(number)?.peer = Some(peer);
        Ok(())
    }

    /// Limits what the peer of a queue pair may ask for, whatever the keys allow (`qp_access_flags`); all of it at first.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_rights(&mut self, number: u32, rights: Access) -> Result<(), Error> {
        self.qp_mut(number)?.rights = rights;
        Ok(())
    }

    /// Changes what datagrams must show to a queue pair (`q_key`); 0 at first.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_qkey(&mut self, number: u32, qkey: u32) -> Result<(), Error> {
        self.qp_mut(number)?.qkey = qkey;
        Ok(())
    }

    /// Turns `drain_sigerr` on or off (INIT2INIT, M19).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_drain_sigerr(&mut self, number: u32, drain: bool) -> Result<(), Error> {
        self.qp_mut(number)?.attributes.drain_sigerr = drain;
        Ok(())
    }

    /// Changes how often a request is repeated while the peer has no receive (`rnr_retry`, set on the way to RTS).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_rnr_retry(&mut self, number: u32, retries: Retries) -> Result<(), Error> {
        self.qp_mut(number)?.attributes.rnr_retry = retries;
        Ok(())
    }

    /// Changes the state of a queue pair (M55). Going to [`QpState::SendQueueDrained`] ends with [`Event::SqDrained`].
    ///
    /// # Errors
    /// [`Error::NoSuchObject`], [`Error::BadTransition`].
    pub fn modify(&mut self, number: u32, to: QpState) -> Result<(), Error> {
        let qp = self.qp_mut(number)?;
        if !qp.state.may_become(to) {
            return Err(Error::BadTransition { from: qp.state, to });
        }
        let from = qp.state;
        qp.state = to;
        // While it stood still, requests may have been changed.
        qp.read_ahead = ReadAhead::default();
        match to {
            QpState::Reset => {
                (qp.sq_consumer, qp.sq_producer, qp.rq_consumer) = (0, 0, 0);
                (qp.sequence, qp.expected) = (message::after_reset(qp.sequence), None);
                qp.outstanding.clear();
                qp.draining = false;
                qp.last_told = false;
            }
            // What was on its way is flushed with the rest: the counter still stands before it.
            QpState::Error | QpState::SendQueueError => qp.outstanding.clear(),
            QpState::SendQueueDrained if from == QpState::ReadyToSend => {
                qp.draining = !qp.outstanding.is_empty();
                if !qp.draining {
                    self.events.push_back(Event::SqDrained(number));
                }
            }
            _ => {}
        }
        self.active.insert(number);
        Ok(())
    }

    /// Moves a reset queue pair through INIT and RTR to RTS.
    ///
    /// # Errors
    /// As [`Device::modify`].
    pub fn activate(&mut self, number: u32) -> Result<(), Error> {
        for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
            self.modify(number, state)?;
        }
        Ok(())
    }

    /// Has a reset queue pair begin at block `counter`, as one does that moves here from elsewhere (`hw_sq_wqebb_counter`).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`]; [`Error::InUse`] unless it is in [`QpState::Reset`].
    pub fn set_send_counter(&mut self, number: u32, counter: u16) -> Result<(), Error> {
        let qp = self.qp_mut(number)?;
        if qp.state != QpState::Reset {
            return Err(Error::InUse);
        }
        (qp.sq_consumer, qp.sq_producer) = (counter, counter);
        qp.read_ahead = ReadAhead::default();
        Ok(())
    }

    /// Returns state and counters of a queue pair (QUERY_QP).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn query(&self, number: u32) -> Result<QpView, Error> {
        let qp = self.objects.qps.get(number).ok_or(Error::NoSuchObject { what: "QP", number })?;
        Ok(QpView { state: qp.state, hw_sq_wqebb_counter: qp.sq_consumer, hw_rq_counter: qp.rq_consumer })
    }

    pub(crate) fn known_pd(&self, pd: u32) -> Result<(), Error> {
        let found = self.objects.pds.get(pd).is_some();
        if found { Ok(()) } else { Err(Error::NoSuchObject { what: "protection domain", number: pd }) }
    }

    fn needs(&self, mode: CryptoMode) -> Result<(), Error> {
        if self.profile.crypto == mode { Ok(()) } else { Err(Error::CryptoMode) }
    }

    fn insert_mkey(&mut self, mkey: Mkey) -> Result<Key, Error> {
        let tag = mkey.tag;
        let index = self.objects.mkeys.insert(mkey).ok_or(Error::Exhausted)?;
        Ok(Key::new(MkeyIndex::from_low_bits(index), tag))
    }

    pub(crate) fn qp_mut(&mut self, number: u32) -> Result<&mut Qp, Error> {
        self.objects.qps.get_mut(number).ok_or(Error::NoSuchObject { what: "QP", number })
    }
}
