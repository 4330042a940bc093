//! The host in tests of the software device: memory, two queue pairs that are connected to each other, and a
//! small encoder of requests. The encoder uses the structures of `mlx5_mkey::wire`, but no part of the
//! library's encoder.
#![allow(missing_docs, clippy::new_without_default)]

use mlx5_mkey::types::Key;
use mlx5_mkey::wire::bsf::*;
use mlx5_mkey::wire::cqe::*;
use mlx5_mkey::wire::ctrl::*;
use mlx5_mkey::wire::data::*;
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wire::mkey_context::*;
use mlx5_mkey::wire::psv::SetPsvSegment;
use mlx5_mkey::wire::strided::*;
use mlx5_mkey::wire::umr::*;
use mlx5_softdev::*;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use zerocopy::{FromBytes, IntoBytes};

pub const BASE: u64 = 0x7f00_0000_0000;
pub const SIZE: usize = 16 << 20;
pub const LOG_SQ: u8 = 6;
pub const LOG_RQ: u8 = 4;
pub const RQ_STRIDE: u16 = 64;
pub const LOG_CQ: u8 = 6;

#[derive(Clone, Copy, Debug)]
pub struct Ring {
    pub cqn: u32,
    pub address: u64,
    pub record: u64,
    pub consumer: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Queue {
    pub qpn: u32,
    pub attributes: QpAttributes,
    pub producer: u16,
    pub receives: u16,
    pub send_cq: Ring,
    pub recv_cq: Ring,
}

impl Queue {
    /// Returns the address of the receive ring.
    pub fn receives_at(&self) -> u64 {
        match self.attributes.receive {
            ReceiveQueue::Own(ring) => ring.address,
            other => panic!("{other:?}"),
        }
    }
}

/// The host's memory. It counts the bytes that the device reads.
#[derive(Clone, Debug)]
pub struct Counted {
    arena: Arena,
    pub read: Cell<usize>,
}

impl Counted {
    fn new() -> Self {
        Self { arena: Arena::new(BASE, SIZE), read: Cell::new(0) }
    }

    pub fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.arena.bytes(address, length)
    }
}

impl Memory for Counted {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.read.set(self.read.get() + out.len());
        self.arena.read(address, out)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.arena.write(address, bytes)
    }
}

/// The causes of each completion queue's errors, oldest first.
type Causes = Arc<Mutex<BTreeMap<u32, VecDeque<Cause>>>>;

pub struct Host {
    pub device: Device<Counted>,
    causes: Causes,
    pub pd: u32,
    pub q: [Queue; 2],
    next: u64,
}

/// A completion entry of any kind. If the entry reports a failed request, the cause of the failure is with
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Seen(pub Cqe, pub Option<Cause>);

impl Seen {
    pub fn opcode(&self) -> CqeOpcode {
        self.0.opcode()
    }
    pub fn syndrome(&self) -> Syndrome {
        Syndrome(self.0.as_error().syndrome)
    }
    pub fn vendor(&self) -> u8 {
        self.0.as_error().vendor_syndrome
    }
    /// Returns the kind of reason for which the request failed.
    pub fn why(&self) -> Refusal {
        self.1.expect("an error has a cause").refusal()
    }
    /// Returns the reason for which the request failed.
    pub fn reason(&self) -> Reason {
        self.1.expect("an error has a cause").reason
    }
    pub fn sig(&self) -> SignatureErrorCqe {
        assert_eq!(self.opcode(), CqeOpcode::SIGNATURE_ERROR);
        self.0.as_signature_error()
    }
    pub fn counter(&self) -> u16 {
        self.0.wqe_counter.get()
    }
}

pub const A: usize = 0;
pub const B: usize = 1;

impl Host {
    pub fn new() -> Self {
        Self::with(DeviceProfile::default(), |_| {})
    }

    pub fn with_faults(set: impl Fn(&mut Faults)) -> Self {
        let mut host = Self::new();
        let mut faults = Faults::default();
        set(&mut faults);
        host.device.set_faults(faults);
        host
    }

    pub fn with(profile: DeviceProfile, change: impl Fn(&mut QpAttributes)) -> Self {
        let mut device = Device::new(Counted::new(), profile);
        let pd = device.alloc_pd().unwrap();
        let mut next = BASE + 4096;
        let mut take = |bytes: u64| {
            let at = next;
            next += (bytes + 4095) & !4095;
            at
        };
        let cq = |device: &mut Device<Counted>, address: u64, record: u64| {
            for at in 0..1u64 << LOG_CQ {
                device.memory_mut().write(address + at * 64, Cqe::UNWRITTEN.as_bytes()).unwrap();
            }
            let attributes = CqAttributes {
                ring: address,
                log_entries: LOG_CQ,
                entry_bytes: 64,
                doorbell_record: record,
                ignore_overrun: false,
            };
            Ring { cqn: device.create_cq(attributes).unwrap(), address, record, consumer: 0 }
        };
        let mut queue = |user_index: u32| {
            let (ring, record) = (take(64 << LOG_CQ), take(8));
            let send_cq = cq(&mut device, ring, record);
            let (ring, record) = (take(64 << LOG_CQ), take(8));
            let recv_cq = cq(&mut device, ring, record);
            let mut attributes = QpAttributes {
                transport: Transport::ReliableConnection,
                pd,
                sq: take(64 << LOG_SQ),
                log_sq_blocks: LOG_SQ,
                receive: ReceiveQueue::Own(ReceiveRing {
                    address: take(u64::from(RQ_STRIDE) << LOG_RQ),
                    log_slots: LOG_RQ,
                    stride: RQ_STRIDE,
                }),
                doorbell_record: take(8),
                send_cqn: send_cq.cqn,
                recv_cqn: Some(recv_cq.cqn),
                user_index,
                drain_sigerr: false,
                rnr_retry: Retries::Infinite,
            };
            change(&mut attributes);
            let qpn = device.create_qp(attributes).unwrap();
            Queue { qpn, attributes, producer: 0, receives: 0, send_cq, recv_cq }
        };
        let q = [queue(0x111), queue(0x222)];
        device.connect(q[A].qpn, Peer::Local(q[B].qpn)).unwrap();
        device.connect(q[B].qpn, Peer::Local(q[A].qpn)).unwrap();
        device.activate(q[A].qpn).unwrap();
        device.activate(q[B].qpn).unwrap();
        let mut host = Self { device, causes: Causes::default(), pd, q, next };
        host.watch(|_| {});
        host
    }

    /// Makes the device call `look` for each event: messages, posted requests, completions, commands and
    /// packets. The host still records the causes of errors, which [`Seen`] contains.
    pub fn watch(&mut self, mut look: impl FnMut(mlx5_softdev::Seen<'_>) + Send + 'static) {
        let causes = Arc::clone(&self.causes);
        self.device.set_tap(move |seen| {
            if let mlx5_softdev::Seen::Completion { cqn, cause: Some(cause), .. } = seen {
                causes.lock().unwrap().entry(cqn).or_default().push_back(cause);
            }
            look(seen);
        });
    }

    pub fn alloc(&mut self, bytes: usize) -> u64 {
        let at = self.next;
        self.next += (bytes as u64 + 4095) & !4095;
        assert!(self.next <= BASE + SIZE as u64);
        at
    }

    pub fn region(&mut self, bytes: usize, access: Access) -> (u64, Key) {
        let at = self.alloc(bytes);
        let key = self.device.register(self.pd, at, bytes as u64, access).unwrap();
        (at, key)
    }

    pub fn filled(&mut self, data: &[u8]) -> (u64, Key) {
        let (at, key) = self.region(data.len(), Access::ALL);
        self.put(at, data);
        (at, key)
    }

    pub fn put(&mut self, at: u64, data: &[u8]) {
        self.device.memory_mut().write(at, data).unwrap();
    }

    pub fn get(&self, at: u64, bytes: usize) -> Vec<u8> {
        self.device.memory().bytes(at, bytes).unwrap().to_vec()
    }

    pub fn mkey(&mut self, signature: bool, crypto: bool) -> Mkey {
        let attributes = MkeyAttributes { signature, crypto, ..MkeyAttributes::new(self.pd, 16) };
        let key = self.device.create_mkey(attributes).unwrap();
        let psvs = self.device.create_psvs(self.pd, 2).unwrap();
        Mkey { key, memory_psv: psvs[0], wire_psv: psvs[1], errors: true, signature, crypto }
    }

    pub fn dek(&mut self, key: &[u8]) -> u32 {
        let size = if key.len() >= 64 { KeySize::Bits256 } else { KeySize::Bits128 };
        let has_keytag = matches!(key.len(), 40 | 72);
        let attributes = DekAttributes { pd: self.pd, size, has_keytag, key: KeyMaterial::Plaintext(key) };
        self.device.create_dek(attributes).unwrap()
    }

    /// Writes a request into the send ring of queue pair `at`, without ringing its doorbell. Returns the
    /// number of the first block.
    pub fn post(&mut self, at: usize, wqe: Wqe) -> u16 {
        let queue = &mut self.q[at];
        let counter = queue.producer;
        let mut bytes = wqe.0;
        let ds = bytes.len().div_ceil(16);
        let mut control = ControlSegment::read_from_bytes(&bytes[..16]).unwrap();
        let word = OpcodeWord::from_bits(control.opmod_idx_opcode.get()).with_wqe_index(counter);
        control.opmod_idx_opcode = word.into_bits().into();
        control.qpn_ds = QpnDs::new().with_qpn(queue.qpn).with_ds(ds as u8).into_bits().into();
        bytes[..16].copy_from_slice(control.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        let mask = (1u16 << queue.attributes.log_sq_blocks) - 1;
        let sq = queue.attributes.sq;
        for (number, block) in bytes.chunks(64).enumerate() {
            let slot = u64::from(counter.wrapping_add(number as u16) & mask);
            self.device.memory_mut().write(sq + slot * 64, block).unwrap();
        }
        queue.producer = counter.wrapping_add((bytes.len() / 64) as u16);
        counter
    }

    pub fn ring(&mut self, at: usize) {
        let queue = self.q[at];
        self.put(queue.attributes.doorbell_record + 4, &u32::from(queue.producer).to_be_bytes());
        self.device.doorbell(queue.qpn).unwrap();
    }

    /// Posts a request and rings the doorbell. Returns the number of the first block.
    pub fn execute(&mut self, at: usize, wqe: Wqe) -> u16 {
        let counter = self.post(at, wqe);
        self.ring(at);
        counter
    }

    /// Executes a request, which must succeed. Returns its completion, which must be the only one.
    pub fn succeeds(&mut self, at: usize, wqe: Wqe) -> Seen {
        self.execute(at, wqe);
        self.good(at)
    }

    /// Executes a request, which must fail. Returns its completion.
    pub fn fails(&mut self, at: usize, wqe: Wqe) -> Seen {
        self.execute(at, wqe);
        self.bad(at)
    }

    pub fn post_receive(&mut self, at: usize, segments: &[DataSegment]) {
        let queue = &mut self.q[at];
        let slot = u64::from(queue.receives & ((1 << LOG_RQ) - 1));
        queue.receives = queue.receives.wrapping_add(1);
        let queue = *queue;
        let mut bytes: Vec<u8> = segments.iter().flat_map(|segment| segment.as_bytes().to_vec()).collect();
        if bytes.len() < usize::from(RQ_STRIDE) {
            bytes.extend_from_slice(DataSegment::END_OF_LIST.as_bytes());
        }
        self.put(queue.receives_at() + slot * u64::from(RQ_STRIDE), &bytes);
        self.put(queue.attributes.doorbell_record, &u32::from(queue.receives).to_be_bytes());
    }

    fn poll(&mut self, pick: impl Fn(&mut [Queue; 2]) -> &mut Ring) -> Option<Seen> {
        let ring = pick(&mut self.q);
        let slot = u64::from(ring.consumer & ((1 << LOG_CQ) - 1));
        let bytes = self.device.memory().bytes(ring.address + slot * 64, 64).unwrap();
        let cqe: Cqe = zerocopy::transmute!(<[u8; 64]>::try_from(bytes).unwrap());
        let lap = ring.consumer >> LOG_CQ & 1 == 1;
        if cqe.opcode() == CqeOpcode::INVALID || cqe.op_own_bits().owner() != lap {
            return None;
        }
        ring.consumer += 1;
        let (cqn, record, consumer) = (ring.cqn, ring.record, ring.consumer & 0x00ff_ffff);
        self.device.memory_mut().write(record, &consumer.to_be_bytes()).unwrap();
        let failed = matches!(cqe.opcode(), CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR);
        let mut causes = self.causes.lock().unwrap();
        let cause = failed.then(|| causes.get_mut(&cqn).and_then(VecDeque::pop_front)).flatten();
        Some(Seen(cqe, cause))
    }

    pub fn poll_send(&mut self, at: usize) -> Option<Seen> {
        self.poll(|q| &mut q[at].send_cq)
    }

    pub fn poll_recv(&mut self, at: usize) -> Option<Seen> {
        self.poll(|q| &mut q[at].recv_cq)
    }

    /// Takes the next completion of send queue `at`, which must be a success and the only completion.
    pub fn good(&mut self, at: usize) -> Seen {
        let seen = self.poll_send(at).expect("a completion");
        assert_eq!(
            seen.opcode(),
            CqeOpcode::REQUESTER,
            "syndrome {} vendor {:#x}",
            seen.syndrome(),
            seen.vendor()
        );
        assert!(self.poll_send(at).is_none(), "one completion only");
        seen
    }

    /// Takes the next completion of send queue `at`, which must be an error.
    pub fn bad(&mut self, at: usize) -> Seen {
        let seen = self.poll_send(at).expect("a completion");
        assert_eq!(seen.opcode(), CqeOpcode::REQUESTER_ERROR);
        seen
    }

    /// Makes both queue pairs usable again after an error, with empty rings.
    pub fn recover(&mut self) {
        for at in [A, B] {
            self.device.modify(self.q[at].qpn, QpState::Reset).unwrap();
            self.q[at].producer = 0;
            self.q[at].receives = 0;
            self.put(self.q[at].attributes.doorbell_record, &[0; 8]);
            self.device.activate(self.q[at].qpn).unwrap();
            while self.poll_send(at).is_some() || self.poll_recv(at).is_some() {}
        }
        self.device.take_events();
    }

    /// Configures an mkey and its PSVs by requests of queue pair A.
    pub fn configure(&mut self, config: Config) {
        self.post_config(A, config);
        self.ring(A);
        assert_eq!(self.device.query(self.q[A].qpn).unwrap().state, QpState::ReadyToSend, "configure failed");
    }

    pub fn post_config(&mut self, at: usize, config: Config) {
        let psvs = config.psvs.clone();
        self.post(at, config.umr());
        for (psv, transient) in psvs {
            self.post(at, set_psv(psv, transient));
        }
    }

    /// Sends `length` bytes from queue pair A to B, out of the mkey with this local key, from `offset` on.
    /// Returns the bytes on the wire.
    pub fn send_from(&mut self, key: Key, offset: u64, length: u32) -> Vec<u8> {
        let (at, plain) = self.region(length as usize, Access::ALL);
        self.post_receive(B, &[segment(at, length, plain)]);
        self.post(A, send(Opcode::SEND, 0, &[segment(offset, length, key)]));
        self.ring(A);
        self.get(at, length as usize)
    }

    /// Sends the bytes `wire` from queue pair B to A. A receives them into the mkey with this local key, from
    /// `offset` on.
    pub fn receive_into(&mut self, key: Key, offset: u64, wire: &[u8]) {
        let (at, plain) = self.filled(wire);
        self.post_receive(A, &[segment(offset, wire.len() as u32, key)]);
        self.post(B, send(Opcode::SEND, 0, &[segment(at, wire.len() as u32, plain)]));
        self.ring(B);
    }

    /// Reads `length` bytes by RDMA READ of queue pair B, out of the mkey with this remote key, from `offset`
    /// on. Returns the bytes on the wire.
    pub fn read_from(&mut self, key: Key, offset: u64, length: u32) -> Vec<u8> {
        let (at, plain) = self.region(length as usize, Access::ALL);
        self.post(B, rdma(Opcode::RDMA_READ, 0, offset, key, &[segment(at, length, plain)]));
        self.ring(B);
        self.get(at, length as usize)
    }

    /// Writes the bytes `wire` by RDMA WRITE of queue pair B, into the mkey with this remote key, from
    /// `offset` on.
    pub fn write_into(&mut self, key: Key, offset: u64, wire: &[u8]) {
        let (at, plain) = self.filled(wire);
        self.post(B, rdma(Opcode::RDMA_WRITE, 0, offset, key, &[segment(at, wire.len() as u32, plain)]));
        self.ring(B);
    }

    /// Takes all completions, and returns the signature errors of all queues.
    pub fn signature_errors(&mut self) -> Vec<SignatureErrorCqe> {
        let mut errors = Vec::new();
        for at in [A, B] {
            while let Some(seen) = self.poll_send(at).or_else(|| self.poll_recv(at)) {
                match seen.opcode() {
                    CqeOpcode::SIGNATURE_ERROR => errors.push(seen.sig()),
                    CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR => {
                        panic!("failed: {} vendor {:#x}", seen.syndrome(), seen.vendor())
                    }
                    _ => {}
                }
            }
        }
        errors
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Mkey {
    pub key: Key,
    pub memory_psv: u32,
    pub wire_psv: u32,
    pub errors: bool,
    pub signature: bool,
    pub crypto: bool,
}

/// The bytes of a request, beginning with its control segment. [`Host::post`] fills in block number and queue
/// pair number.
#[derive(Clone, Debug)]
pub struct Wqe(pub Vec<u8>);

impl Wqe {
    pub fn new(opcode: Opcode, imm: u32) -> Self {
        let control = ControlSegment {
            opmod_idx_opcode: OpcodeWord::new().with_opcode(opcode.0).into_bits().into(),
            fm_ce_se: FmCeSe::new().with_ce(FmCeSe::CE_ALWAYS).into_bits(),
            imm: imm.into(),
            ..Default::default()
        };
        Self(control.as_bytes().to_vec())
    }

    pub fn with(mut self, segment: &(impl IntoBytes + zerocopy::Immutable + ?Sized)) -> Self {
        self.0.extend_from_slice(segment.as_bytes());
        self
    }

    /// Sets the opcode modifier.
    pub fn with_modifier(mut self, opmod: u8) -> Self {
        self.0[0] = opmod;
        self
    }

    pub fn ce(mut self, ce: u8) -> Self {
        self.0[11] = FmCeSe::from_bits(self.0[11]).with_ce(ce).into_bits();
        self
    }

    pub fn silent(self) -> Self {
        self.ce(FmCeSe::CE_ERROR_ONLY)
    }
}

pub fn segment(address: u64, length: u32, key: Key) -> DataSegment {
    DataSegment { byte_count: length.into(), lkey: key.get().into(), address: address.into() }
}

pub fn send(opcode: Opcode, imm: u32, segments: &[DataSegment]) -> Wqe {
    segments.iter().fold(Wqe::new(opcode, imm), |wqe, segment| wqe.with(segment))
}

pub fn remote(address: u64, key: Key) -> RemoteAddressSegment {
    RemoteAddressSegment { address: address.into(), rkey: key.get().into(), reserved: 0.into() }
}

pub fn rdma(opcode: Opcode, imm: u32, address: u64, key: Key, segments: &[DataSegment]) -> Wqe {
    let wqe = Wqe::new(opcode, imm).with(&remote(address, key));
    segments.iter().fold(wqe, |wqe, segment| wqe.with(segment))
}

pub fn set_psv(psv: u32, transient: u64) -> Wqe {
    let segment =
        SetPsvSegment { psv_index: psv.into(), transient_signature: transient.into(), ..Default::default() };
    Wqe::new(Opcode::SET_PSV, 0).silent().with(&segment)
}

pub fn local_inv(key: Key) -> Wqe {
    let control = UmrControlSegment {
        flags: 0x98,
        mkey_mask: (1u64 << 29 | 1 << 13 | 1 << 14).into(),
        ..Default::default()
    };
    let context = MkeyContext { free: 0x40, qpn_mkey: (QpnMkey::ANY << 8).into(), ..Default::default() };
    Wqe::new(Opcode::UMR, key.get()).silent().with(&control).with(&context)
}

pub fn klm(address: u64, bytes: u32, key: Key) -> Klm {
    Klm { byte_count: bytes.into(), mkey: key.get().into(), address: address.into() }
}

/// Returns a UMR that writes entries from number `first` on, and the length of the mkey if there is one.
pub fn replace(key: Key, first: u64, length: Option<u64>, entries: &[(u64, u32, Key)]) -> Wqe {
    let octowords = entries.len().next_multiple_of(4);
    let control = UmrControlSegment {
        flags: 0x90,
        klm_octowords: (octowords as u16).into(),
        bsf_octowords: (first as u16).into(),
        translation_offset_47_16: ((first >> 16) as u32).into(),
        mkey_mask: u64::from(length.is_some()).into(),
        ..Default::default()
    };
    let context = MkeyContext { len: length.unwrap_or_default().into(), ..Default::default() };
    let wqe = Wqe::new(Opcode::UMR, key.get()).with(&control).with(&context);
    let wqe = entries.iter().fold(wqe, |wqe, (address, bytes, key)| wqe.with(&klm(*address, *bytes, *key)));
    wqe.with(&vec![0_u8; (octowords - entries.len()) * 16][..])
}

/// The signature of one domain (memory or wire) for [`Config::signature`]: none, T10-DIF or a CRC.
#[derive(Clone, Copy, Debug)]
pub enum Sig {
    None,
    T10 { selector: u8, kind: u8, ones: bool, app: u16, reference: u32, flags: u8 },
    Crc { selector: u8, base: u8, ones: bool },
}

pub const REMAP: u8 = 0x40;

impl Sig {
    pub const fn t10(app: u16, reference: u32) -> Self {
        Self::T10 { selector: 1, kind: 1, ones: false, app, reference, flags: REMAP }
    }
    pub const fn crc(base: u8) -> Self {
        Self::Crc { selector: 1, base, ones: false }
    }
    fn selector(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::T10 { selector, .. } | Self::Crc { selector, .. } => *selector,
        }
    }
    fn bfs(&self) -> u8 {
        match self {
            Self::Crc { base, ones, .. } => base | 2 | u8::from(!ones),
            _ => 0,
        }
    }
    fn inline(&self) -> InlineDif {
        match *self {
            Self::T10 { kind, ones, app, reference, flags, .. } => InlineDif {
                vld_refresh: 0xc000.into(),
                app_tag: app.into(),
                ref_tag: reference.into(),
                sig_type: kind,
                rp_inv_seed: 0x80 | if ones { 0x08 } else { 0 },
                reserved: [0; 3],
                dif_flags: flags,
                app_bitmask_check: 0xffff.into(),
            },
            _ => InlineDif::default(),
        }
    }
    fn transient(&self) -> u64 {
        match *self {
            Self::None => 0,
            Self::T10 { ones, app, reference, .. } => {
                (if ones { 0xffff << 48 } else { 0 }) | u64::from(app) << 32 | u64::from(reference)
            }
            Self::Crc { ones: false, .. } => 0,
            Self::Crc { base: 0x50, .. } => u64::MAX,
            Self::Crc { .. } => 0xffff_ffff << 32,
        }
    }
}

/// Builds a UMR. Each builder function sets the masks for its fields.
#[derive(Clone, Debug)]
pub struct Config {
    pub mkey: Mkey,
    pub mask: u64,
    pub context: MkeyContext,
    pub entries: Vec<[u8; 16]>,
    pub signature: Option<SignatureBsf>,
    pub crypto: Option<CryptoBsf>,
    pub psvs: Vec<(u32, u64)>,
}

impl Config {
    pub fn new(mkey: &Mkey) -> Self {
        let mut context = MkeyContext {
            qpn_mkey: (QpnMkey::ANY << 8 | u32::from(mkey.key.tag())).into(),
            ..Default::default()
        };
        let mut mask = 1 << 29 | 1 << 13;
        if mkey.signature {
            // The mask always includes the error count. Writing the error count makes the device report
            // signature errors again.
            mask |= 1 << 9 | 1 << 12;
            context.flags_pd = FlagsPd::new().with_sig_err_count(mkey.errors).into_bits().into();
        }
        Self { mkey: *mkey, mask, context, entries: vec![], signature: None, crypto: None, psvs: vec![] }
    }

    pub fn access(mut self, byte: u8) -> Self {
        self.mask |= 0xf << 18;
        self.context.access = byte;
        self
    }

    pub fn list(mut self, entries: &[(u64, u32, Key)]) -> Self {
        self.mask |= 1;
        self.context.len = entries.iter().map(|entry| u64::from(entry.1)).sum::<u64>().into();
        let entry =
            |(address, bytes, key): &(u64, u32, Key)| zerocopy::transmute!(klm(*address, *bytes, *key));
        self.entries = entries.iter().map(entry).collect();
        self
    }

    /// Sets an interleaved layout. Each entry is address, bytes, skipped bytes, key.
    pub fn strided(mut self, repeat: u32, entries: &[(u64, u16, u16, Key)]) -> Self {
        let cycle: u32 = entries.iter().map(|entry| u32::from(entry.1)).sum();
        self.mask |= 1;
        self.context.len = (u64::from(cycle) * u64::from(repeat)).into();
        let header = StridedHeader {
            bytes_per_cycle: cycle.into(),
            op: StridedHeader::OPCODE.into(),
            repeat_count: repeat.into(),
            reserved: 0.into(),
            num_entries: (entries.len() as u16).into(),
        };
        self.entries = vec![zerocopy::transmute!(header)];
        for (address, bytes, skip, key) in entries {
            let entry = StridedEntry {
                stride: (bytes + skip).into(),
                byte_count: (*bytes).into(),
                mkey: key.get().into(),
                address: (*address).into(),
            };
            self.entries.push(zerocopy::transmute!(entry));
        }
        self
    }

    fn enable(&mut self) {
        self.mask |= 1 << 12;
        let flags = self.context.flags_pd_word().with_bsf_enable(true);
        self.context.flags_pd = flags.into_bits().into();
    }

    pub fn signature(self, memory: Sig, wire: Sig, check: u8) -> Self {
        self.signature_copy(memory, wire, check, None)
    }

    pub fn signature_copy(mut self, memory: Sig, wire: Sig, check: u8, copy: Option<u8>) -> Self {
        self.enable();
        let m = self.mkey;
        let domain = |sig: &Sig, psv: u32| BfsPsv::new().with_psv(psv).with_bfs(sig.bfs()).into_bits().into();
        self.signature = Some(SignatureBsf {
            bsf_size_sbs: BsfSize::new().with_same_block_structure(copy.is_some()).into_bits(),
            check_byte_mask: check,
            wire: copy.unwrap_or(wire.selector()),
            memory: memory.selector(),
            raw_data_size: u32::MAX.into(),
            memory_bfs_psv: domain(&memory, m.memory_psv),
            wire_bfs_psv: domain(&wire, m.wire_psv),
            memory_inline: memory.inline(),
            wire_inline: wire.inline(),
            ..Default::default()
        });
        if memory.selector() != 0 {
            self.psvs.push((m.memory_psv, memory.transient()));
        }
        if wire.selector() != 0 {
            self.psvs.push((m.wire_psv, wire.transient()));
        }
        self
    }

    /// Sets a signature over a whole transaction, as SPDK's `lib/mlx5` writes it.
    pub fn transaction(mut self, bits: TransactionBits, wire: u32, memory: u32, length: u32) -> Self {
        self.enable();
        self.signature = Some(SignatureBsf {
            check_byte_mask: 0xff,
            raw_data_size: length.into(),
            ext_init_gen_pro_size: bits.into_bits().into(),
            ext_wire_tfs_psv: wire.into(),
            ext_memory_tfs_psv: memory.into(),
            ..Default::default()
        });
        self
    }

    pub fn crypto(mut self, order: u8, selector: u8, tweak: [u8; 16], dek: u32) -> Self {
        self.enable();
        self.crypto = Some(CryptoBsf {
            bsf_size_type: 1,
            enc_order: order,
            raw_data_size: u32::MAX.into(),
            data_unit_selector: selector,
            xts_initial_tweak: tweak,
            dek: dek.into(),
            ..Default::default()
        });
        self
    }

    pub fn keytag(mut self, tag: [u8; 8]) -> Self {
        self.crypto.as_mut().unwrap().keytag = tag;
        self
    }

    pub fn umr(mut self) -> Wqe {
        // The UMR of an mkey with signature and crypto must contain a BSF for each, even if the test sets
        // only the crypto BSF.
        if self.mkey.signature && self.mkey.crypto && self.crypto.is_some() && self.signature.is_none() {
            self.signature = Some(SignatureBsf::default());
        }
        let both = self.signature.is_some() && self.crypto.is_some();
        let transaction = self.signature.is_some_and(|bsf| bsf.ext_init_gen_pro_size.get() != 0);
        let size = match (both, transaction) {
            (true, _) => 0xc0,
            (false, true) => 0x40,
            (false, false) => 0x80,
        };
        let control = UmrControlSegment {
            flags: 0x80,
            klm_octowords: (self.entries.len().next_multiple_of(4) as u16).into(),
            bsf_octowords: (4 * (u16::from(self.signature.is_some()) + u16::from(self.crypto.is_some())))
                .into(),
            mkey_mask: self.mask.into(),
            ..Default::default()
        };
        let mut wqe = Wqe::new(Opcode::UMR, self.mkey.key.get()).silent().with(&control).with(&self.context);
        self.entries.resize(self.entries.len().next_multiple_of(4), [0; 16]);
        for entry in &self.entries {
            wqe = wqe.with(entry);
        }
        if let Some(mut bsf) = self.signature {
            bsf.bsf_size_sbs |= size;
            wqe = wqe.with(&bsf);
        }
        if let Some(mut bsf) = self.crypto {
            bsf.bsf_size_type |= size;
            wqe = wqe.with(&bsf);
        }
        wqe
    }
}

/// Bits of the access byte of an mkey context: local write, remote read, remote write, atomic.
pub const LW: u8 = 0x08;
pub const RR: u8 = 0x10;
pub const RW: u8 = 0x20;
pub const AT: u8 = 0x40;

/// Returns pseudo-random bytes.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed).wrapping_mul(2_654_435_761) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

pub const XTS_KEY: [u8; 32] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
    33, 34, 35, 36,
];
