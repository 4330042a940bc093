//! The board whose device is the software device, in the same process. It needs no hardware.

#![allow(unsafe_code)]

use super::bare::SoftBare;
use super::{
    Bare, Board, COMPLETIONS, Capabilities, Commissioned, CoreQueues, DekSpec, EndSpec, Finding, HostMemory,
    MkeySpec, ProtectionDomain, QpEnd, QpEvent, QueuePairView, RECEIVE_SLOTS, SEND_BLOCKS,
};
use crate::way::Way;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use mlx5_mkey::command::{Command, CqeSize, CreateListMkey, MkeyEntries, Pdn, QueryGeneralCapabilities};
use mlx5_mkey::mkey::{
    Access, KlmEntry, KsmEntry, Mkey, MkeyAttributes, RelaxedOrdering, SignatureAttributes, XtsEngine,
};
use mlx5_mkey::queue::{
    BlueFlame, ClockInfo, CompletionQueue, Doorbell, LastRequest, ReceiveQueue, ReceiveQueueConfig,
    SendQueue, SendQueueConfig, SendSlot,
};
use mlx5_mkey::types::{DekId, Key, KsmEntrySize, PsvIndex, Qpn, UmrFence};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::{Cqe, Cqe128, CqeSlot};
use mlx5_mkey::wire::data::DataSegment;
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wqe::{Local, MemcpyConfig};
use mlx5_softdev as softdev;
use softdev::capabilities::LOG_MAX_ENTRIES;
use softdev::factory;
use softdev::{
    CryptoMode, Device, DeviceProfile, Event, Faults, KeyMaterial, KeySize, LoginState, Memory, Peer,
    QpState, QpView, Retries,
};

/// Number of completions that the device keeps for the report of a failure.
const KEPT: usize = 16;

/// Number of data segments of a receive request.
const ENTRIES_PER_SLOT: usize = 4;

/// The doorbell of a queue pair. Each call of `ring` adds an element to the list `rung`. The board passes the
/// list to the device when the device runs.
struct Bell {
    qpn: u32,
    rung: Rung,
    register: Option<Register>,
}

/// A BlueFlame register, to which a doorbell can write a whole request.
struct Register {
    doorbell: BlueFlame,
    halves: NonNull<[Wqebb; HALF]>,
    next: usize,
}

/// The list of doorbells that were rung since the device last ran, each with its queue pair number. If the
/// doorbell wrote a whole request to the BlueFlame register, its element has the blocks of the request. If it
/// wrote only 8 bytes, its element has no block. The list is leaked. If a doorbell owned it, code that frees
/// memory would become part of functions of the library, and a check demands that those do not use an
/// allocator.
type Rung = &'static RefCell<Vec<(u32, Vec<[u8; 64]>)>>;

/// Number of blocks in each half of a BlueFlame register. Writes alternate between the two halves.
const HALF: usize = 4;

impl Doorbell for Bell {
    // This function allocates. If it were inlined into functions of the library, the check that those do not
    // use an allocator would fail.
    #[inline(never)]
    fn ring(&mut self, last: &LastRequest<'_>) {
        let mut request = Vec::new();
        if let Some(register) = &mut self.register {
            request = register.write(last);
        }
        self.rung.borrow_mut().push((self.qpn, request));
    }
}

impl Register {
    /// Rings the doorbell. Returns the blocks of the request that the doorbell wrote to the register, or none
    /// if it wrote only 8 bytes.
    fn write(&mut self, last: &LastRequest<'_>) -> Vec<[u8; 64]> {
        let Self { doorbell, halves, next } = self;
        // SAFETY: both halves belong to this register alone.
        let half = unsafe { halves.add(*next) };
        // SAFETY: the half belongs to this register alone.
        unsafe { half.write([Wqebb::ZERO; HALF]) };
        doorbell.ring(last);
        // SAFETY: the half belongs to this register alone.
        let blocks = unsafe { half.read_volatile() }.map(|block| block.0);
        *next ^= 1;
        // After a write of 8 bytes the rest of the half is zeros.
        if blocks[0][8..] == [0; 56] {
            return Vec::new();
        }
        blocks[..usize::from(blocks[0][7] & 0x3f).div_ceil(4)].to_vec()
    }
}

/// A function that makes a device in reset. It is wrapped in a type, because `Box<dyn FnMut>` does not
/// implement `Debug`.
struct MakeBare(Box<dyn FnMut() -> Box<dyn Bare>>);

impl core::fmt::Debug for MakeBare {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("MakeBare")
    }
}

/// The software device, in this process.
pub struct SoftBoard {
    device: Device<HostMemory>,
    /// The number of the current protection domain, which is one of `pds`.
    pd: u32,
    pds: [u32; 2],
    /// For each queue pair number, the address of its send ring.
    rings: Vec<(u32, u64)>,
    rung: Rung,
    /// Events that the device has reported and that no scenario has fetched yet, with their queue pair
    /// numbers.
    events: VecDeque<(u32, QpEvent)>,
    /// The numbers by which the device names its KEKs (key encryption keys) and its credential, if it accepts
    /// wrapped keys.
    factory: Option<factory::Numbers>,
    login: Option<u32>,
    way: Way,
    findings: Vec<Finding>,
    hardware: bool,
    clock: Arc<Clock>,
    /// The function that makes the device of [`Board::bare`]. If `None`, the board makes a software device in
    /// this process.
    bare: Option<MakeBare>,
}

/// A clock that advances by one tick with each read, so that a run always has the same timestamps.
struct Clock(AtomicU64);

impl Clock {
    /// The first time of the clock. It is not 0, because 0 is the timestamp of completion entries without a
    /// time.
    const START: u64 = 0x0123_4567_89ab_0000;

    /// The frequency in kHz that the device reports for the clock.
    const FREQUENCY: u32 = 1_000_000;

    fn ticks(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl SoftBoard {
    /// Makes a device with this profile.
    pub fn new(profile: DeviceProfile) -> Self {
        Self::with_memory(profile, HostMemory::default())
    }

    /// Makes a device with this profile and this memory.
    pub fn with_memory(profile: DeviceProfile, memory: HostMemory) -> Self {
        let mut device = Device::new(memory, profile);
        let pds = [(); 2].map(|()| device.alloc_pd().expect("a new device has numbers left"));
        let factory = (profile.crypto == CryptoMode::Wrapped)
            .then(|| factory::commission(&mut device).expect("a new device can be commissioned"));
        let clock = Arc::new(Clock(AtomicU64::new(Clock::START)));
        let stamps = clock.clone();
        device.set_clock(move || stamps.ticks());
        device.keep_completions(KEPT);
        let mut board = Self {
            device,
            pd: pds[0],
            pds,
            rings: Vec::new(),
            rung: Box::leak(Box::default()),
            events: VecDeque::new(),
            factory,
            login: None,
            way: Way::default(),
            findings: Vec::new(),
            hardware: false,
            clock,
            bare: None,
        };
        if board.factory.is_some() {
            board.log_in().expect("the factory's credential");
        }
        board
    }

    /// Makes the device misbehave as `faults` says, to test that scenarios notice.
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.device.set_faults(faults);
        self
    }

    /// Makes `make` the source of the device in reset ([`Board::bare`]), in place of a software device in
    /// this process.
    pub fn set_bare(&mut self, make: impl FnMut() -> Box<dyn Bare> + 'static) {
        self.bare = Some(MakeBare(Box::new(make)));
    }

    /// Makes the board claim that it is hardware, to test how scenarios behave on hardware.
    #[must_use]
    pub const fn as_hardware(mut self) -> Self {
        self.hardware = true;
        self
    }

    /// Returns the software device, for checks of its state.
    pub fn device(&mut self) -> &mut Device<HostMemory> {
        &mut self.device
    }

    fn create_end(&mut self, spec: EndSpec) -> QpEnd {
        match spec.cqe_size {
            CqeSize::B64 => self.create_end_with(spec, Cqe::UNWRITTEN),
            CqeSize::B128 => self.create_end_with(spec, Cqe128::UNWRITTEN),
        }
    }

    fn create_end_with<E: CqeSlot>(&mut self, spec: EndSpec, unwritten: E) -> QpEnd {
        let (completions, cqn) = self.create_completions(unwritten);
        let (receive_completions, receive_cqn) = if spec.own_receive_completions {
            let (queue, cqn) = self.create_completions(unwritten);
            (Some(queue), cqn)
        } else {
            (None, cqn)
        };
        let memory = self.device.memory_mut();
        // SAFETY: the references to rings and bookkeeping (`slots`, `ids`) go only into the queues that this
        // function creates. The device never gets the addresses of the bookkeeping.
        let ((sq, sq_address), (rq, rq_address), (slots, _), (ids, _)) = unsafe {
            (
                memory.share(Wqebb::ZERO, SEND_BLOCKS),
                memory.share(DataSegment::default(), RECEIVE_SLOTS * ENTRIES_PER_SLOT),
                memory.share(SendSlot::EMPTY, SEND_BLOCKS),
                memory.share(0_u64, RECEIVE_SLOTS),
            )
        };
        // SAFETY: the reference to the record goes only into the queues that this function creates. The
        // device only reads the record.
        let (qp_record, qp_record_address) = unsafe { memory.share_record() };
        let qpn = self
            .device
            .create_qp(softdev::QpAttributes {
                transport: softdev::Transport::ReliableConnection,
                pd: self.pd,
                sq: sq_address,
                log_sq_blocks: SEND_BLOCKS.ilog2() as u8,
                receive: softdev::ReceiveQueue::Own(softdev::ReceiveRing {
                    address: rq_address,
                    log_slots: RECEIVE_SLOTS.ilog2() as u8,
                    stride: (ENTRIES_PER_SLOT * 16) as u16,
                }),
                doorbell_record: qp_record_address,
                send_cqn: cqn,
                recv_cqn: Some(receive_cqn),
                user_index: 0,
                drain_sigerr: spec.drain_on_signature_error,
                rnr_retry: Retries::Infinite,
            })
            .expect("create QP");
        let denied = rights(spec.denied);
        let allowed = softdev::Access {
            remote_read: !denied.remote_read,
            remote_write: !denied.remote_write,
            remote_atomic: !denied.remote_atomic,
            ..softdev::Access::ALL
        };
        self.device.set_rights(qpn, allowed).expect("a new queue pair");
        self.device.set_masked_atomics(qpn, !spec.plain_atomics).expect("a new queue pair");
        self.rings.push((qpn, sq_address));
        let qpn = Qpn::from_low_bits(qpn);
        let register = spec.blue_flame.then(|| {
            let memory = self.device.memory_mut();
            // SAFETY: only the doorbell made here uses this register.
            let (halves, doorbell) = unsafe {
                let (halves, _) = memory.share([Wqebb::ZERO; HALF], 2);
                let halves = NonNull::from(halves).cast::<[Wqebb; HALF]>();
                (halves, BlueFlame::new(halves.cast(), size_of::<[Wqebb; HALF]>()))
            };
            Register { doorbell, halves, next: 0 }
        });
        let bell = Bell { qpn: qpn.get(), rung: self.rung, register };
        let (umr_fence, memcpy) = (self.umr_fence(), self.memcpy(qpn.get()));
        let send = SendQueueConfig { umr_fence, memcpy, ..SendQueueConfig::new(qpn) };
        let receive = ReceiveQueueConfig { qpn, entries_per_slot: ENTRIES_PER_SLOT as u32 };
        QpEnd::new(CoreQueues {
            send: SendQueue::new(send, sq, slots, qp_record, bell).expect("send queue"),
            receive: ReceiveQueue::new(receive, rq, ids, qp_record).expect("receive queue"),
            completions,
            receive_completions,
        })
    }

    /// Creates a completion queue. Returns the queue and its number.
    fn create_completions<E: CqeSlot>(&mut self, unwritten: E) -> (CompletionQueue<'static, E>, u32) {
        let memory = self.device.memory_mut();
        // SAFETY: the references go only into the queue that this function creates.
        let (ring, ring_address) = unsafe { memory.share(unwritten, COMPLETIONS) };
        // SAFETY: the reference goes only into the queue that this function creates. The device only reads
        // the record.
        let (record, record_address) = unsafe { memory.share_record() };
        let attributes = softdev::CqAttributes {
            ring: ring_address,
            log_entries: COMPLETIONS.ilog2() as u8,
            entry_bytes: size_of::<E>() as u8,
            doorbell_record: record_address,
            ignore_overrun: false,
        };
        let number = self.device.create_cq(attributes).expect("create CQ");
        (CompletionQueue::new(ring, record).expect("completion queue"), number)
    }

    /// Enables requests of a queue pair that copy memory, if the device supports them. Returns the
    /// configuration of these copies.
    fn memcpy(&mut self, qpn: u32) -> Option<MemcpyConfig> {
        let log_max_bytes = self.device.profile().log_max_copy?;
        self.device.set_copies(qpn, true).expect("a new queue pair");
        let address = self.alloc(MemcpyConfig::OPAQUE_BYTES);
        let lkey = self.register(address, MemcpyConfig::OPAQUE_BYTES, Access::LOCAL_WRITE);
        Some(MemcpyConfig { opaque: Local { address, lkey }, log_max_bytes })
    }
}

fn klm(entry: &KlmEntry) -> Klm {
    Klm { byte_count: entry.length.into(), mkey: entry.key.get().into(), address: entry.address.into() }
}

/// Returns the base-2 logarithm of the length of the entries.
fn log(size: KsmEntrySize) -> u8 {
    size.bytes().ilog2() as u8
}

fn rights(access: Access) -> softdev::Access {
    softdev::Access {
        local_read: true,
        local_write: access.contains(Access::LOCAL_WRITE),
        remote_read: access.contains(Access::REMOTE_READ),
        remote_write: access.contains(Access::REMOTE_WRITE),
        remote_atomic: access.contains(Access::REMOTE_ATOMIC),
    }
}

impl Board for SoftBoard {
    fn capabilities(&self) -> Capabilities {
        let xts = match self.device.profile().xts {
            softdev::XtsEngine::MultiBlock => Some(XtsEngine::MultiBlock),
            softdev::XtsEngine::SingleBlock => Some(XtsEngine::SingleBlock),
            softdev::XtsEngine::MultiBlockLittleEndian => Some(XtsEngine::MultiBlockLittleEndian),
        };
        let xts = xts.filter(|_| self.device.profile().crypto != CryptoMode::None);
        let login = self.factory.is_some();
        let memcpy = self.device.profile().log_max_copy.is_some();
        let relaxed = RelaxedOrdering { write: true, read: true };
        let relaxed_ordering = self.device.profile().relaxed_ordering.then_some(relaxed);
        Capabilities {
            xts,
            signature: true,
            drain: true,
            login,
            hardware: self.hardware,
            programs: false,
            fixed_entries: true,
            long_lists: self.device.profile().extended_offsets,
            memcpy,
            masked_atomics: self.device.profile().atomic && self.device.profile().masked_atomics,
            relaxed_ordering,
            dek_modify: xts.is_some(),
            // If the device has only timestamps in real time, it has no clock that counts ticks.
            clock: self.device.profile().timestamps != softdev::Timestamps::RealTime,
            bare: true,
        }
    }

    fn way(&mut self) -> &mut Way {
        &mut self.way
    }

    fn findings(&mut self) -> &mut Vec<Finding> {
        &mut self.findings
    }

    fn enter(&mut self, domain: ProtectionDomain) {
        self.pd = self.pds[domain as usize];
    }

    fn alloc(&mut self, length: usize) -> u64 {
        self.device.memory_mut().alloc(length)
    }

    fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.device.memory().read(address, &mut bytes).expect("memory of this board");
        bytes
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.device.memory_mut().write(address, bytes).expect("memory of this board");
    }

    fn register(&mut self, address: u64, length: usize, access: Access) -> Key {
        self.device.register(self.pd, address, length as u64, rights(access)).expect("register")
    }

    fn create_mkey(&mut self, spec: MkeySpec) -> Mkey {
        let attributes = softdev::MkeyAttributes {
            signature: spec.signature,
            crypto: spec.crypto,
            remote_invalidate: spec.remote_invalidate,
            access: rights(spec.first_access()),
            log_entry: spec.entry_size.map(log),
            ..softdev::MkeyAttributes::new(self.pd, spec.entries)
        };
        let key = self.device.create_mkey(attributes).expect("create mkey");
        let signature = spec.signature.then(|| {
            let psvs = self.device.create_psvs(self.pd, 2).expect("create PSVs");
            SignatureAttributes::new(PsvIndex::from_low_bits(psvs[0]), PsvIndex::from_low_bits(psvs[1]))
        });
        let crypto = if spec.crypto { self.capabilities().xts } else { None };
        let attributes = MkeyAttributes {
            signature,
            crypto,
            tag_update: true,
            form: spec.form,
            entry_size: spec.entry_size,
            ..MkeyAttributes::plain(key, spec.entries)
        };
        Mkey::new(attributes)
    }

    fn create_list_mkey(
        &mut self,
        access: Access,
        address: u64,
        entries: MkeyEntries<'_>,
    ) -> Result<Key, String> {
        // The command checks the capabilities of a device. These are capabilities without any feature (from a
        // reply of zeros), plus the three that matter to CREATE_MKEY with a list.
        let mut capabilities = QueryGeneralCapabilities
            .decode(&[0; QueryGeneralCapabilities::OUTPUT])
            .map_err(|error| error.to_string())?;
        (capabilities.log_max_entries, capabilities.fixed_buffer_size) = (LOG_MAX_ENTRIES, true);
        capabilities.atomic = true;
        let pd = Pdn::new(self.pd).map_err(|error| error.to_string())?;
        let command = CreateListMkey::new(pd, access, address, entries, &capabilities)
            .map_err(|error| error.to_string())?;
        let (size, entries): (_, Vec<Klm>) = match entries {
            MkeyEntries::Klm(entries) => (None, entries.iter().map(klm).collect()),
            MkeyEntries::Ksm(size, entries) => {
                let entry = |entry: &KsmEntry| KlmEntry { address: entry.address, length: 0, key: entry.key };
                (Some(size), entries.iter().map(entry).map(|entry| klm(&entry)).collect())
            }
        };
        let attributes = softdev::MkeyAttributes {
            access: rights(access),
            free: false,
            log_entry: size.map(log),
            ..softdev::MkeyAttributes::new(self.pd, entries.len() as u32)
        };
        let space = softdev::MkeySpace { start: address, length: command.length(), entries };
        self.device.create_mkey_over(attributes, space).map_err(|error| error.to_string())
    }

    fn create_dek(&mut self, spec: DekSpec<'_>) -> DekId {
        let bytes = self.key_bytes(spec);
        self.load(self.material(&bytes), spec.bytes().len()).expect("create DEK")
    }

    fn replace_dek(&mut self, dek: DekId, spec: DekSpec<'_>) -> Result<(), String> {
        let bytes = self.key_bytes(spec);
        let attributes = self.dek_attributes(self.material(&bytes), spec.bytes().len())?;
        self.device.modify_dek(dek.get(), attributes).map_err(|error| error.to_string())
    }

    fn sync_crypto(&mut self) -> Result<(), String> {
        self.device.sync_crypto();
        Ok(())
    }

    fn ticks(&self) -> Option<u64> {
        Some(self.clock.ticks())
    }

    fn tick_rate(&self) -> Option<ClockInfo> {
        ClockInfo::of_frequency(Clock::FREQUENCY)
    }

    fn umr_fence(&self) -> UmrFence {
        match self.device.profile().umr_fence {
            softdev::UmrFence::Strong => UmrFence::Strong,
            softdev::UmrFence::Small => UmrFence::Small,
            softdev::UmrFence::None => UmrFence::None,
        }
    }

    fn connect(&mut self, spec: EndSpec) -> (QpEnd, QpEnd) {
        let (near, far) = (self.create_end(spec), self.create_end(EndSpec::default()));
        self.join(&near, &far);
        (near, far)
    }

    fn fail(&mut self, end: &QpEnd) {
        self.device.modify(end.qpn().get(), QpState::Error).expect("queue pair of this board");
    }

    fn recover(&mut self, near: &mut QpEnd, far: &mut QpEnd) -> [Vec<u64>; 2] {
        let mut restart = |end: &mut QpEnd| {
            self.device.modify(end.qpn().get(), QpState::Reset).expect("queue pair of this board");
            end.queues().restart()
        };
        let outstanding = restart(near);
        restart(far);
        self.join(near, far);
        outstanding
    }

    fn run_device(&mut self) -> bool {
        for (qpn, blocks) in self.rung.take() {
            self.device.blue_flame(qpn, &blocks).expect("queue pair of this board");
            self.device.doorbell(qpn).expect("queue pair of this board");
        }
        self.device.run();
        true
    }

    fn drained_at(&mut self, end: &QpEnd) -> Option<u16> {
        let view = self.device.query(end.qpn().get()).expect("queue pair of this board");
        (view.state == QpState::SendQueueDrained).then_some(view.hw_sq_wqebb_counter)
    }

    fn resume(&mut self, end: &QpEnd) {
        let qpn = end.qpn().get();
        self.device.modify(qpn, QpState::ReadyToSend).expect("drained queue pair of this board");
    }

    fn send_ring(&self, end: &QpEnd) -> Option<u64> {
        let mine = |(qpn, _): &&(u32, u64)| *qpn == end.qpn().get();
        self.rings.iter().find(mine).map(|(_, ring)| *ring)
    }

    fn queue_pairs(&self) -> Vec<QueuePairView> {
        let view = |(qpn, send_ring): &(u32, u64)| {
            let QpView { state, hw_sq_wqebb_counter, .. } = self.device.query(*qpn).ok()?;
            let (qpn, send_ring, next_block) = (*qpn, *send_ring, hw_sq_wqebb_counter);
            Some(QueuePairView {
                qpn,
                state: format!("{state:?}"),
                next_block,
                send_ring,
                blocks: SEND_BLOCKS,
            })
        };
        self.rings.iter().filter_map(view).collect()
    }

    fn completions(&self) -> Vec<String> {
        self.device.kept_completions().map(|written| format!("completion: {written}")).collect()
    }

    fn event(&mut self, end: &QpEnd) -> Option<QpEvent> {
        self.events.extend(self.device.take_events().into_iter().filter_map(|event| match event {
            Event::SqDrained(number) => Some((number, QpEvent::Drained)),
            Event::QpAccess(number) => Some((number, QpEvent::AccessViolation)),
            Event::QpRequest(number) => Some((number, QpEvent::InvalidRequest)),
            Event::QpFatal(number) => Some((number, QpEvent::Error)),
            // Scenarios do not ask for events of completion queues, and the board has no shared receive
            // queues.
            Event::CqError(_) | Event::SrqLimit(_) | Event::SrqFatal(_) | Event::LastWqe(_) => None,
        }));
        let number = end.qpn().get();
        let place = self.events.iter().position(|(of, _)| *of == number)?;
        self.events.remove(place).map(|(_, event)| event)
    }

    fn bare(&mut self) -> Option<Box<dyn Bare>> {
        let own = || Box::new(SoftBare::new(self.device.memory().another())) as Box<dyn Bare>;
        Some(self.bare.as_mut().map_or_else(own, |make| (make.0)()))
    }

    fn commissioned(&mut self) -> Option<&mut dyn Commissioned> {
        self.factory.is_some().then_some(self)
    }
}

impl SoftBoard {
    /// Connects two ends and makes them ready to send.
    fn join(&mut self, near: &QpEnd, far: &QpEnd) {
        let (near, far) = (near.qpn().get(), far.qpn().get());
        for (from, to) in [(near, far), (far, near)] {
            self.device.connect(from, Peer::Local(to)).expect("connect");
            self.device.activate(from).expect("activate");
        }
    }

    /// Loads a key as a DEK. `plain_bytes` is the length of key and keytag in plaintext. It shows the key
    /// size, and whether there is a keytag.
    fn load(&mut self, key: KeyMaterial<'_>, plain_bytes: usize) -> Result<DekId, String> {
        let attributes = self.dek_attributes(key, plain_bytes)?;
        let number = self.device.create_dek(attributes).map_err(|error| error.to_string())?;
        Ok(DekId::from_low_bits(number))
    }

    /// Returns the bytes of a key in the form that the device accepts, plain or wrapped.
    fn key_bytes(&self, spec: DekSpec<'_>) -> Vec<u8> {
        if self.factory.is_some() { self.wrap(spec) } else { spec.bytes().to_vec() }
    }

    /// Returns key bytes as the argument of a command: plaintext, or wrapped together with the number of the
    /// login.
    fn material<'k>(&self, bytes: &'k [u8]) -> KeyMaterial<'k> {
        match self.factory {
            // Login numbers begin at 1. Number 0 means "no login", and the device refuses it.
            Some(_) => KeyMaterial::Wrapped { bytes, login: self.login.unwrap_or(0) },
            None => KeyMaterial::Plaintext(bytes),
        }
    }

    fn dek_attributes<'k>(
        &self,
        key: KeyMaterial<'k>,
        plain_bytes: usize,
    ) -> Result<softdev::DekAttributes<'k>, String> {
        let (size, has_keytag) = match plain_bytes {
            32 => (KeySize::Bits128, false),
            40 => (KeySize::Bits128, true),
            64 => (KeySize::Bits256, false),
            72 => (KeySize::Bits256, true),
            other => return Err(format!("no key has {other} bytes")),
        };
        Ok(softdev::DekAttributes { pd: self.pd, size, has_keytag, key })
    }
}

impl Commissioned for SoftBoard {
    fn log_in(&mut self) -> Result<(), String> {
        let factory::Numbers { keks: [kek, _], credential } =
            self.factory.ok_or("the device takes keys in plaintext")?;
        let shown = factory::wrapped(&factory::CREDENTIAL).expect("a credential that can be wrapped");
        let shown = shown.first_chunk().expect("48 bytes");
        let login = self.device.login(kek, credential, shown).map_err(|error| error.to_string())?;
        self.login = Some(login);
        Ok(())
    }

    fn log_out(&mut self) {
        if let Some(login) = self.login.take() {
            self.device.logout(login).expect("a login of this board");
        }
    }

    fn revoke(&mut self) -> Result<(), String> {
        let factory::Numbers { credential, .. } = self.factory.ok_or("the device takes keys in plaintext")?;
        self.device.revoke(credential);
        Ok(())
    }

    fn logged_in(&mut self) -> bool {
        self.login.is_some_and(|login| self.device.query_login(login) == Ok(LoginState::Valid))
    }

    fn wrap(&self, spec: DekSpec<'_>) -> Vec<u8> {
        factory::wrapped(&spec.bytes()).expect("a key that can be wrapped")
    }

    fn load_wrapped(&mut self, wrapped: &[u8]) -> Result<DekId, String> {
        self.load(self.material(wrapped), wrapped.len().saturating_sub(8))
    }
}
