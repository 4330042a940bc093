//! The board whose device is behind libibverbs and libmlx5: hardware, or a software device behind the kernel
//! or its stand-in.

#![allow(unsafe_code)]

use super::about;
use super::commands;
use super::service::Service;
use super::{
    Board, COMPLETIONS, Capabilities, Commissioned, Counters, DekSpec, EndQueues, EndSpec, Finding, MkeySpec,
    Posting, ProtectionDomain, QpEnd, QpEvent, QueuePairView, RECEIVE_SLOTS, SEND_BLOCKS,
};
use crate::way::Way;
use libloading::os::unix::Library;
use mlx5_mkey::command::{
    Credential, CredentialId, DekKey, ImportKekId, KeyImport, LoginState, MkeyEntries, PeerAtomics, QpAccess,
    QpState, TimestampFormat, XtsKey,
};
use mlx5_mkey::devx::{
    Cq, CqReader, CqSpec, Dek, Device, DevxError, EventKind, Events, ListMkey, Login, MappedClock,
    MemoryRegion, MkeyHandle, MkeyObject, MkeySpec as DevxMkeySpec, Outstanding, ProtectionDomain as Pd,
    QpControl, QueuePair, QueuePairSpec,
};
use mlx5_mkey::error::{CheckError, CompletionError, PostError};
use mlx5_mkey::mkey::{Access, Keytag, Mkey, SignatureError};
use mlx5_mkey::queue::{ClockInfo, Completion, QpRouter, SendRequest, WorkCompletion};
use mlx5_mkey::types::{DekId, Key, Qpn, UmrFence};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::Cqe;
use mlx5_mkey::wqe::Sge;
use mlx5_softdev::factory;
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

/// The name of the device that the stand-in for the kernel provides.
const STAND_IN: &str = "mlx5_0";

/// The longest wait for all queue pairs to execute their published requests. Even a loaded emulated machine
/// needs far less, so a longer wait means that the device no longer works on the requests.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest wait for a completion, after a query of the queue pair has shown that the device executed the
/// request.
const ARRIVAL: Duration = Duration::from_secs(5);

/// Number of completions that are kept for the report of a failed case.
const KEPT: usize = 16;

/// The longest wait for an asynchronous event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// A board with an mlx5 device behind libmlx5.
pub struct DevxBoard {
    name: String,
    /// Whether the device is a software device of this project.
    is_ours: bool,
    begin: Instant,
    device: Device,
    /// The device's clock, if the kernel maps it into this process.
    clock: Option<MappedClock>,
    /// Whether queue pairs can drain at signature errors and resume. Linux's driver refuses to create such
    /// queue pairs by DevX.
    drains: bool,
    /// The two protection domains, and which of them the next objects are created in.
    pds: [Pd; 2],
    domain: ProtectionDomain,
    // The following objects live as long as the board.
    regions: Vec<MemoryRegion>,
    mkeys: Vec<MkeyHandle>,
    lists: Vec<ListMkey>,
    deks: Vec<Dek>,
    queues: Vec<Watched>,
    events: Events,
    /// Events that arrived and that no scenario has fetched yet, with the numbers of their queue pairs.
    told: VecDeque<(u32, QpEvent)>,
    /// Numbers of the credential and of the KEK (key encryption key) with which the device was commissioned,
    /// if this board knows the credential.
    factory: Option<(CredentialId, ImportKekId)>,
    login: Option<Login>,
    way: Way,
    findings: Vec<Finding>,
    /// The last completions that scenarios took, with the numbers of their queue pairs, for the report of a
    /// failed case.
    taken: VecDeque<(u32, WorkCompletion)>,
    service: Option<Service>,
}

/// A queue pair of the board, and its completion queue.
struct Watched {
    control: QpControl,
    /// The completion queue of the queue pair. Signature errors of mkeys also arrive in it.
    cq: Cq,
}

/// The queues of one end of a connection, in the types of [`mlx5_mkey::devx`].
struct ShimQueues {
    queue: QueuePair,
    completions: CqReader,
    receive_completions: Option<CqReader>,
}

/// Posts each request to the queue pair on its own, without a batch.
struct Unbatched<'q>(&'q mut QueuePair);

impl Posting for Unbatched<'_> {
    fn request(&mut self, id: u64) -> SendRequest<'_, 'static> {
        self.0.request(id)
    }

    fn publish(self: Box<Self>) {
        self.0.ring_doorbell();
    }
}

impl EndQueues for ShimQueues {
    fn qpn(&self) -> Qpn {
        self.queue.qpn()
    }

    fn open(&mut self, way: Way) -> Box<dyn Posting + '_> {
        let queue = &mut self.queue;
        if way.batches() { Box::new(queue.batch()) } else { Box::new(Unbatched(queue)) }
    }

    fn ring_doorbell(&mut self) {
        self.queue.ring_doorbell();
    }

    fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        self.queue.cancel(id, hw_counter)
    }

    fn counters(&self) -> Counters {
        Counters {
            producer: self.queue.producer(),
            free_blocks: self.queue.free_blocks(),
            outstanding: self.queue.outstanding(),
            next_fence: self.queue.next_fence(),
        }
    }

    fn block(&self, index: u32) -> Wqebb {
        self.queue.block(index)
    }

    fn post_receive(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.queue.post_receive(id, sges)
    }

    fn publish_receives(&mut self) {
        self.queue.publish_receives();
    }

    fn poll(&mut self, mkeys: &mut [Mkey]) -> Option<Result<Completion, CompletionError>> {
        let mut router = QpRouter { queues: &mut self.queue, mkeys };
        let found = self.completions.poll(&mut router);
        found.or_else(|| self.receive_completions.as_mut()?.poll(&mut router))
    }

    fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        self.completions.check(mkey)
    }

    fn take_entry(&mut self) -> Option<Cqe> {
        self.completions.take_entry()
    }

    fn take_receive_entry(&mut self) -> Option<Cqe> {
        self.receive_completions.as_mut()?.take_entry()
    }

    fn restart(&mut self) -> [Vec<u64>; 2] {
        let readers = [&mut self.completions].into_iter().chain(&mut self.receive_completions);
        let outstanding = self.queue.reset(&mut readers.collect::<Vec<_>>());
        let Outstanding { sends, receives } = outstanding.expect("reset a queue pair of this board");
        [sends, receives]
    }
}

/// Returns whether the device creates queue pairs that drain at signature errors.
fn drains(device: &Device, pd: &Pd) -> Result<bool, DevxError> {
    let (cq, _completions) = device.create_cq(CqSpec::from(COMPLETIONS as u32))?;
    let spec = QueuePairSpec { drain_on_signature_error: true, ..QueuePairSpec::default() };
    match device.create_qp(pd, &cq, &cq, spec) {
        Ok(_) => Ok(true),
        Err(DevxError::Command(_) | DevxError::KernelRefuses { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

impl DevxBoard {
    /// Opens a device by its name. Without a name, opens the device of the stand-in for the kernel. If
    /// `programs` is given, this folder contains the programs of the storage example.
    ///
    /// # Errors
    /// A missing library (libibverbs, libmlx5), device, permission or capability.
    pub fn open(device: Option<&str>, programs: Option<&Path>) -> Result<Self, DevxError> {
        let name = device.unwrap_or(STAND_IN).to_owned();
        let is_ours = device.is_none() || about::is_ours(&name);
        let service = programs.map(|folder| Service::new(folder, device));
        let device = Device::open(device)?;
        let pds = [device.alloc_pd()?, device.alloc_pd()?];
        let events = device.events()?;
        // A software device of this project has one KEK and one credential, both with known values. This
        // board does not know the values of any other device.
        let wrapped = device.crypto().key_import() == KeyImport::Wrapped && is_ours;
        let factory = if wrapped { Some((CredentialId::new(0)?, ImportKekId::new(0)?)) } else { None };
        let mut board = Self {
            name,
            is_ours,
            begin: Instant::now(),
            clock: device.clock().ok(),
            drains: drains(&device, &pds[0])?,
            device,
            pds,
            domain: ProtectionDomain::default(),
            regions: vec![],
            mkeys: vec![],
            lists: vec![],
            deks: vec![],
            queues: vec![],
            events,
            told: VecDeque::new(),
            factory,
            login: None,
            way: Way::default(),
            findings: Vec::new(),
            taken: VecDeque::new(),
            service,
        };
        if board.factory.is_some() {
            board.start_login()?;
        }
        Ok(board)
    }

    fn start_login(&mut self) -> Result<(), DevxError> {
        if let Some((credential_id, kek_id)) = self.factory {
            let shown = factory::wrapped(&factory::CREDENTIAL).expect("a credential that can be wrapped");
            self.login = Some(self.device.login(credential_id, kek_id, Credential::new(&shown)?)?);
        }
        Ok(())
    }

    fn load(&mut self, key: DekKey<'_>) -> Result<DekId, DevxError> {
        let dek = self.pd().create_dek(key, [0; 8])?;
        let id = dek.id();
        self.deks.push(dek);
        Ok(id)
    }

    fn create_end(&mut self, spec: EndSpec) -> Result<QpEnd, DevxError> {
        let EndSpec { drain_on_signature_error, denied, cqe_size, blue_flame, .. } = spec;
        let size = CqSpec { cqe_size, ..CqSpec::from(COMPLETIONS as u32) };
        let (cq, completions) = self.device.create_cq(size)?;
        let own = spec.own_receive_completions.then(|| self.device.create_cq(size)).transpose()?;
        let (receive_cq, receive_completions) = own.unzip();
        let access = QpAccess {
            remote_read: !denied.contains(Access::REMOTE_READ),
            remote_write: !denied.contains(Access::REMOTE_WRITE),
            atomics: match self.capabilities().masked_atomics && !spec.plain_atomics {
                _ if denied.contains(Access::REMOTE_ATOMIC) => PeerAtomics::None,
                false => PeerAtomics::Plain,
                true => PeerAtomics::Masked,
            },
        };
        let memcpy = self.capabilities().memcpy;
        let spec = QueuePairSpec {
            send_blocks: SEND_BLOCKS as u32,
            receive_slots: RECEIVE_SLOTS as u32,
            drain_on_signature_error,
            memcpy,
            access,
            blue_flame,
            ..QueuePairSpec::default()
        };
        let queue = self.device.create_qp(self.pd(), &cq, receive_cq.as_ref().unwrap_or(&cq), spec)?;
        let number = queue.qpn().get().into();
        queue.control().notify(&self.events, &[EventKind::SQ_DRAINED], number)?;
        queue.control().notify(&self.events, &EventKind::QP_ERRORS, number)?;
        self.queues.push(Watched { control: queue.control().clone(), cq });
        Ok(QpEnd::new(ShimQueues { queue, completions, receive_completions }))
    }

    /// Returns the protection domain in which the next objects are created.
    const fn pd(&self) -> &Pd {
        let [first, second] = &self.pds;
        match self.domain {
            ProtectionDomain::First => first,
            ProtectionDomain::Second => second,
        }
    }

    fn control(&self, end: &QpEnd) -> &QpControl {
        let found = self.queues.iter().find(|queue| queue.control.qpn() == end.qpn());
        &found.expect("an end of this board").control
    }

    /// Connects the queue pairs of two ends with each other.
    fn join(&self, near: &QpEnd, far: &QpEnd) {
        self.control(near).connect_local(far.qpn()).expect("connect");
        self.control(far).connect_local(near.qpn()).expect("connect");
    }

    /// Returns whether the device has processed all published send requests of a queue pair, or the queue
    /// pair has stopped. Completions may still arrive later.
    fn is_quiet(queue: &Watched) -> bool {
        let record = queue.control.addresses().record as usize;
        // SAFETY: the pointer is to the second word of the doorbell record, in memory that `control` owns.
        // Only the end's send queue writes the word, in one store.
        let published = unsafe { ptr::with_exposed_provenance::<u32>(record + 4).read_volatile() };
        let announced = u32::from_be(published) as u16;
        let info = queue.control.query().expect("query a queue pair of this board");
        info.state != QpState::RTS || info.next_send_block == announced
    }
}

impl Board for DevxBoard {
    fn capabilities(&self) -> Capabilities {
        let general = self.device.capabilities();
        // A device that takes wrapped keys only, and whose credential is unknown, cannot encrypt.
        let keys = self.factory.is_some() || self.device.crypto().key_import() == KeyImport::Plaintext;
        Capabilities {
            xts: general.xts_engine().filter(|_| keys),
            signature: general.signatures().is_some(),
            drain: self.drains,
            login: self.factory.is_some(),
            hardware: !self.is_ours,
            fixed_entries: general.fixed_buffer_size,
            long_lists: general.max_umr_entries() > 1 << 16,
            bare: false,
            programs: self.service.is_some() && self.device.crypto().key_import() == KeyImport::Plaintext,
            memcpy: general.log_max_memcpy_bytes().is_some(),
            masked_atomics: self.device.atomics().is_some_and(|atomics| atomics.masked),
            relaxed_ordering: general.relaxed_ordering_umr(),
            dek_modify: keys && self.device.crypto().crypto.is_some_and(|crypto| crypto.synchronizes_deks),
            clock: self.clock.is_some()
                && self.tick_rate().is_some()
                && self.device.timestamp_support().supports(TimestampFormat::FreeRunning),
        }
    }

    fn about(&self) -> Vec<Finding> {
        about::device(&self.name, self.is_ours, &self.device)
    }

    fn way(&mut self) -> &mut Way {
        &mut self.way
    }

    fn findings(&mut self) -> &mut Vec<Finding> {
        &mut self.findings
    }

    fn enter(&mut self, domain: ProtectionDomain) {
        self.domain = domain;
    }

    fn alloc(&mut self, length: usize) -> u64 {
        // The region gets whole pages, so that two regions never share a page.
        let words = vec![0_u64; (length.max(1).next_multiple_of(4096) + 4096) / 8].leak();
        (words.as_mut_ptr().expose_provenance() as u64).next_multiple_of(4096)
    }

    fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let first = ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: the address comes from `alloc`, whose leaked memory has no other reference and is
        // initialized. Each byte is read once, because the device may write to it at any time.
        (0..length).map(|at| unsafe { first.add(at).read_volatile() }).collect()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        // SAFETY: the address comes from `alloc`, whose leaked memory has no other reference, so `bytes` does
        // not overlap it.
        unsafe {
            let target = ptr::with_exposed_provenance_mut::<u8>(address as usize);
            ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    fn register(&mut self, address: u64, length: usize, access: Access) -> Key {
        let target = ptr::with_exposed_provenance_mut(address as usize);
        // The kernel requires LOCAL_WRITE for a region with REMOTE_WRITE.
        let access =
            if access.contains(Access::REMOTE_WRITE) { access | Access::LOCAL_WRITE } else { access };
        // SAFETY: memory of `alloc` stays mapped. Rust code accesses it through `read` and `write` only.
        let region = unsafe { self.pd().register(target, length.max(1), access) }.expect("register");
        let key = region.lkey();
        self.regions.push(region);
        key
    }

    fn create_mkey(&mut self, spec: MkeySpec) -> Mkey {
        // The last two queue pairs of the list belong to the connection of the current scenario (`near`, then
        // `far`), because scenarios create mkeys after they connect. Signature errors go to the completion
        // queue of `near`.
        let [.., Watched { cq, .. }, _] = &self.queues[..] else {
            panic!("no ends to report signature errors")
        };
        let spec = DevxMkeySpec {
            max_entries: spec.entries,
            signature: spec.signature.then_some(cq),
            crypto: spec.crypto,
            remote_invalidate: spec.remote_invalidate,
            update_tag: true,
            access: spec.first_access(),
            form: spec.form,
            entry_size: spec.entry_size,
            ..DevxMkeySpec::default()
        };
        let MkeyObject { mkey, handle } = self.pd().create_mkey(spec).expect("create mkey");
        self.mkeys.push(handle);
        mkey
    }

    fn create_list_mkey(
        &mut self,
        access: Access,
        address: u64,
        entries: MkeyEntries<'_>,
    ) -> Result<Key, String> {
        let mkey = self.pd().create_list_mkey(access, address, entries).map_err(|error| error.to_string())?;
        let key = mkey.key();
        self.lists.push(mkey);
        Ok(key)
    }

    fn create_dek(&mut self, spec: DekSpec<'_>) -> DekId {
        if self.factory.is_some() {
            let wrapped = self.wrap(spec);
            return self.load_wrapped(&wrapped).expect("create DEK");
        }
        self.load(plain(&spec)).expect("create DEK")
    }

    fn replace_dek(&mut self, dek: DekId, spec: DekSpec<'_>) -> Result<(), String> {
        let bytes;
        let key = if self.factory.is_some() {
            bytes = self.wrap(spec);
            wrapped(&bytes)?
        } else {
            plain(&spec)
        };
        let dek = self.deks.iter_mut().find(|known| known.id() == dek).ok_or("no key of this board")?;
        dek.replace(key).map_err(|error| error.to_string())
    }

    fn sync_crypto(&mut self) -> Result<(), String> {
        self.device.sync_crypto().map_err(|error| error.to_string())
    }

    fn ticks(&self) -> Option<u64> {
        self.clock.as_ref().map(MappedClock::ticks)
    }

    fn tick_rate(&self) -> Option<ClockInfo> {
        ClockInfo::of_frequency(self.device.capabilities().device_frequency_khz)
    }

    fn umr_fence(&self) -> UmrFence {
        self.device.capabilities().umr_fence
    }

    fn connect(&mut self, spec: EndSpec) -> (QpEnd, QpEnd) {
        let near = self.create_end(spec).expect("make a queue pair");
        let far = self.create_end(EndSpec::default()).expect("make a queue pair");
        self.join(&near, &far);
        (near, far)
    }

    fn fail(&mut self, end: &QpEnd) {
        self.control(end).fail().expect("a queue pair of this board");
    }

    fn recover(&mut self, near: &mut QpEnd, far: &mut QpEnd) -> [Vec<u64>; 2] {
        let outstanding = near.queues().restart();
        far.queues().restart();
        self.join(near, far);
        outstanding
    }

    fn run_device(&mut self) -> bool {
        let end = Instant::now() + TIMEOUT;
        loop {
            let late = Instant::now() >= end;
            if self.queues.iter().all(Self::is_quiet) {
                return true;
            }
            if late {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn timeout(&self) -> u64 {
        u64::try_from(ARRIVAL.as_nanos()).unwrap_or(u64::MAX)
    }

    fn drained_at(&mut self, end: &QpEnd) -> Option<u16> {
        let info = self.control(end).query().expect("query a queue pair of this board");
        (info.state == QpState::SQ_DRAINED).then_some(info.next_send_block)
    }

    fn resume(&mut self, end: &QpEnd) {
        self.control(end).resume().expect("resume a drained queue pair");
    }

    fn send_ring(&self, end: &QpEnd) -> Option<u64> {
        Some(self.control(end).addresses().send_ring)
    }

    fn queue_pairs(&self) -> Vec<QueuePairView> {
        let view = |queue: &Watched| {
            let (info, addresses) = (queue.control.query().ok()?, queue.control.addresses());
            Some(QueuePairView {
                qpn: queue.control.qpn().get(),
                state: format!("{:?}", info.state),
                next_block: info.next_send_block,
                send_ring: addresses.send_ring,
                blocks: SEND_BLOCKS,
            })
        };
        self.queues.iter().filter_map(view).collect()
    }

    fn completions(&self) -> Vec<String> {
        // The stand-in's list of completions is preferred, because it contains the causes of errors.
        if self.is_ours
            && let Some(words) = told_by_stand_in()
        {
            return words.lines().map(str::to_owned).collect();
        }
        self.taken.iter().map(|(qpn, work)| about::completion(*qpn, work)).collect()
    }

    fn taken(&mut self, qpn: u32, completion: &WorkCompletion) {
        if self.taken.len() >= KEPT {
            self.taken.pop_front();
        }
        self.taken.push_back((qpn, *completion));
    }

    fn serve(&mut self, ios: u32, corrupt: u32) -> Result<(), String> {
        let service = self.service.as_ref().ok_or("the board has no programs")?;
        service.run(ios, corrupt).map_err(|error| error.to_string())
    }

    fn nanoseconds(&self) -> Option<u64> {
        u64::try_from(self.begin.elapsed().as_nanos()).ok()
    }

    fn event(&mut self, end: &QpEnd) -> Option<QpEvent> {
        let number = end.qpn().get();
        let end = Instant::now() + EVENT_TIMEOUT;
        loop {
            if let Some(place) = self.told.iter().position(|(of, _)| *of == number) {
                return self.told.remove(place).map(|(_, event)| event);
            }
            let left = end.saturating_duration_since(Instant::now());
            let event = self.events.wait(Some(left)).expect("events of this board")?;
            let what = match event.kind {
                EventKind::SQ_DRAINED => QpEvent::Drained,
                EventKind::QP_ACCESS => QpEvent::AccessViolation,
                EventKind::QP_INVALID_REQUEST => QpEvent::InvalidRequest,
                _ => QpEvent::Error,
            };
            self.told.push_back((event.cookie as u32, what));
        }
    }

    fn ask_by_commands(&mut self) -> Result<Vec<Finding>, String> {
        let other = Device::open(Some(&self.name)).map_err(|error| error.to_string())?;
        commands::answers(&self.device, self.pd(), &other).map_err(|error| error.to_string())
    }

    fn commissioned(&mut self) -> Option<&mut dyn Commissioned> {
        self.factory.is_some().then_some(self)
    }
}

impl Commissioned for DevxBoard {
    fn log_in(&mut self) -> Result<(), String> {
        self.start_login().map_err(|error| error.to_string())
    }

    fn log_out(&mut self) {
        self.login = None;
    }

    fn revoke(&mut self) -> Result<(), String> {
        let this = Library::this();
        // SAFETY: only the stand-in for the kernel, which is loaded into this process, exports this name, and
        // its function has this type.
        unsafe {
            let revoke = this.get::<unsafe extern "C" fn()>(b"mlx5_uverbs_revoke\0");
            revoke.map_err(|error| format!("only the stand-in's device: {error}"))?();
        }
        Ok(())
    }

    fn logged_in(&mut self) -> bool {
        self.login.as_ref().is_some_and(|login| login.state().is_ok_and(|state| state == LoginState::VALID))
    }

    fn wrap(&self, spec: DekSpec<'_>) -> Vec<u8> {
        factory::wrapped(&spec.bytes()).expect("a key that can be wrapped")
    }

    fn load_wrapped(&mut self, wrapped: &[u8]) -> Result<DekId, String> {
        self.load(self::wrapped(wrapped)?).map_err(|error| error.to_string())
    }
}

/// Returns the last completions of the device behind the stand-in for the kernel, one in each line. Returns
/// `None` if the stand-in is not loaded into this process.
fn told_by_stand_in() -> Option<String> {
    type Completions = unsafe extern "C" fn(*mut u8, usize) -> usize;
    let this = Library::this();
    // SAFETY: only the stand-in for the kernel exports this name, and its function has this type.
    let completions = unsafe { this.get::<Completions>(b"mlx5_uverbs_completions\0") }.ok()?;
    let mut words = vec![0; 1 << 14];
    // SAFETY: the buffer has the length that is passed.
    let length = unsafe { completions(words.as_mut_ptr(), words.len()) };
    words.truncate(length.min(words.len() - 1));
    Some(String::from_utf8_lossy(&words).into_owned())
}

/// Plants a fault of [`mlx5_softdev::Faults`], by its name, in the device behind the stand-in for the kernel,
/// to test the report of a failed case.
///
/// # Errors
/// The stand-in is not loaded into this process, or no fault has this name.
pub fn break_stand_in(fault: &str) -> Result<(), String> {
    type Plant = unsafe extern "C" fn(*const c_char) -> c_int;
    let name = CString::new(fault).map_err(|error| error.to_string())?;
    let this = Library::this();
    // SAFETY: only the stand-in for the kernel exports this name, and its function has this type. The name is
    // a C string.
    let planted = unsafe {
        let plant = this.get::<Plant>(b"mlx5_uverbs_break\0");
        plant.map_err(|error| format!("only the stand-in's device has faults: {error}"))?(name.as_ptr())
    };
    if planted == 0 { Ok(()) } else { Err(format!("no fault `{fault}`")) }
}

/// Converts a key in plaintext to the library's type for a new DEK.
fn plain<'k>(spec: &DekSpec<'k>) -> DekKey<'k> {
    let keytag = spec.keytag.map(Keytag);
    match spec.key.len() {
        32 => DekKey::Plain128 { key: xts_key(spec.key), keytag },
        _ => DekKey::Plain256 { key: xts_key(spec.key), keytag },
    }
}

/// Converts a wrapped key to the library's type for a new DEK. The length shows the key size, and whether
/// there is a keytag.
fn wrapped(bytes: &[u8]) -> Result<DekKey<'_>, String> {
    let none = || format!("no wrapped key has {} bytes", bytes.len());
    let key = match bytes.len() {
        40 => bytes.first_chunk().map(DekKey::Wrapped128),
        48 => bytes.first_chunk().map(DekKey::Wrapped128Tagged),
        72 => bytes.first_chunk().map(DekKey::Wrapped256),
        80 => bytes.first_chunk().map(DekKey::Wrapped256Tagged),
        _ => None,
    };
    key.ok_or_else(none)
}

/// Converts an AES-XTS key of `N` bytes. The library requires that its halves differ, and the keys of all
/// scenarios do.
fn xts_key<const N: usize>(key: &[u8]) -> XtsKey<'_, N> {
    XtsKey::new(key.try_into().expect("32 or 64 bytes")).expect("halves that differ")
}
