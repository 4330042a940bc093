//! Executes a recording on the software device.

use super::event::{Engine, Event};
use mlx5_mkey::inspect::Requests;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode};
use mlx5_mkey::wire::mkey_context::QpnMkey;
use mlx5_mkey::wire::prm::encryption_key::{EncryptionKey, KeyFlags};
use mlx5_mkey::wire::prm::mkey::{Mkc, MkcCrypto, MkcFlags, MkcPd};
use mlx5_softdev::{
    Access, Arena, CqAttributes, DekAttributes, Device, DeviceProfile, Faults, KeyMaterial, KeySize, Memory,
    MkeyAttributes, Numbered, Peer, QpAttributes, QpState, ReceiveQueue, Retries, Transport, XtsEngine,
};
use std::fmt::Debug;
use zerocopy::{FromBytes, IntoBytes};

const BLOCK: usize = 64;

/// The number of octowords (16 bytes) of a BSF.
const BSF: u32 = 4;

/// log2 of the number of entries of the completion queue. The recording has several times as many
/// completions, so that the owner bit changes.
const LOG_ENTRIES: u8 = 6;

/// The most blocks that a recorded send ring may have.
const MAX_BLOCKS: u32 = 1 << 15;

/// Numbers of objects and results that a replay has executed or compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of software devices that the recording describes. They exist one after the other.
    pub devices: usize,
    /// Number of executed work requests.
    pub requests: usize,
    /// Number of completions that equal the recorded ones.
    pub completions: usize,
    /// Number of ranges of memory that were compared and have the expected content.
    pub results: usize,
}

/// Executes a recording on a software device with these faults.
///
/// # Errors
/// The first line with another result than the recorded one, and the difference.
pub fn replay(events: &[Event], faults: Faults) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let (mut profile, mut machine) = (DeviceProfile::default(), None);
    for (number, event) in events.iter().enumerate() {
        let at = |what: String| format!("line {}: {what}", number + 1);
        match event {
            Event::Device { engine } => {
                finish(machine.take()).map_err(at)?;
                profile.xts = match engine {
                    Engine::MultiBlock => XtsEngine::MultiBlock,
                    Engine::SingleBlock => XtsEngine::SingleBlock,
                };
                tally.devices += 1;
            }
            Event::Region { key, address, length } if machine.is_none() => {
                machine = Some(Machine::new(profile, faults, *key, *address, *length).map_err(at)?);
            }
            _ => {
                let machine = machine.as_mut().ok_or_else(|| at("there is no memory".into()))?;
                machine.step(event, &mut tally).map_err(at)?;
            }
        }
    }
    finish(machine)?;
    Ok(tally)
}

/// Checks that the device has written no completion after the last recorded one.
fn finish(machine: Option<Machine>) -> Result<(), String> {
    match machine.and_then(|mut machine| machine.poll()) {
        Some(cqe) => Err(format!("one completion too many: {cqe:?}")),
        None => Ok(()),
    }
}

/// The software device, with the queues of the recorded driver: a completion queue and a queue pair.
struct Machine {
    device: Device<Arena>,
    pd: u32,
    cqn: u32,
    /// Addresses in the device's memory, after the recorded region: the completion queue, the doorbell
    /// records, and the send ring.
    cq: u64,
    records: u64,
    sq: u64,
    qp: Option<QpRing>,
    consumer: u32,
}

#[derive(Clone, Copy)]
struct QpRing {
    number: u32,
    blocks: u32,
}

fn said(error: impl Debug) -> String {
    format!("{error:?}")
}

fn same<T: PartialEq + Debug>(what: &str, found: T, recorded: T) -> Result<(), String> {
    if found == recorded { Ok(()) } else { Err(format!("{what}: {found:x?}, recorded is {recorded:x?}")) }
}

impl Machine {
    /// Makes a device over the recorded region of memory, with memory for the completion queue, the doorbell
    /// records and the send ring after the region.
    fn new(
        profile: DeviceProfile,
        faults: Faults,
        key: u32,
        address: u64,
        length: u64,
    ) -> Result<Self, String> {
        let cq = address + length.next_multiple_of(4096);
        let records = cq + (64 << LOG_ENTRIES);
        let sq = records + 4096;
        let bytes = (sq - address) as usize + MAX_BLOCKS as usize * BLOCK;
        let mut device = Device::new(Arena::new(address, bytes), profile);
        device.set_faults(faults);
        let pd = device.alloc_pd().map_err(said)?;
        device.set_numbers(Numbered::Mkey, key >> 8, key >> 8).map_err(said)?;
        let found = device.register(pd, address, length, Access::ALL).map_err(said)?;
        same("the region's key", found, Key::from_raw(key))?;
        for entry in 0..1 << LOG_ENTRIES {
            device.memory_mut().write(cq + entry * 64, Cqe::UNWRITTEN.as_bytes()).map_err(said)?;
        }
        let attributes = CqAttributes {
            ring: cq,
            log_entries: LOG_ENTRIES,
            entry_bytes: 64,
            doorbell_record: records,
            ignore_overrun: true,
        };
        let cqn = device.create_cq(attributes).map_err(said)?;
        Ok(Self { device, pd, cqn, cq, records, sq, qp: None, consumer: 0 })
    }

    fn step(&mut self, event: &Event, tally: &mut Tally) -> Result<(), String> {
        match event {
            Event::Mkey { number, context } => self.mkey(*number, &context.0)?,
            Event::Psv(number) => {
                self.device.set_numbers(Numbered::Psv, *number, *number).map_err(said)?;
                same("PSV", self.device.create_psvs(self.pd, 1).map_err(said)?, vec![*number])?;
            }
            Event::Dek { number, object } => self.dek(*number, &object.0)?,
            Event::Qp { number, blocks } => self.qp(QpRing { number: *number, blocks: *blocks })?,
            Event::QpError(number) => self.device.modify(*number, QpState::Error).map_err(said)?,
            Event::Fill { address, length, seed } => {
                self.device.memory_mut().write(*address, &filled(*length, *seed)).map_err(said)?;
            }
            Event::Write { address, bytes } => {
                self.device.memory_mut().write(*address, &bytes.0).map_err(said)?;
            }
            Event::Ring { qp, from, blocks } => {
                tally.requests += Requests::new(&blocks.0).count();
                self.ring(*qp, *from, &blocks.0)?;
            }
            Event::Completion { opcode, counter, syndrome } => {
                let found = self.poll().map(|cqe| completion(&cqe));
                same("completion", found, Some((*opcode, *counter, *syndrome)))?;
                tally.completions += 1;
            }
            Event::Result { address, length, hash } => {
                let found = self.device.memory().bytes(*address, *length).ok_or("no memory")?;
                same("hash of the memory", hash_of(found).to_be_bytes().to_vec(), hash.0.clone())?;
                tally.results += 1;
            }
            Event::Device { .. } | Event::Region { .. } => return Err("a second region".into()),
        }
        Ok(())
    }

    fn mkey(&mut self, number: u32, context: &[u8]) -> Result<(), String> {
        let mkc = Mkc::read_from_bytes(context).map_err(said)?;
        let flags = MkcFlags::from_bits(mkc.flags.get());
        let crypto = MkcCrypto::from_bits(mkc.crypto.get()).crypto_en() != 0;
        let bsf = mkc.bsf_octword_size.get();
        let [_, _, access, _] = mkc.flags.to_bytes();
        same("access mode", (flags.access_mode_1_0(), flags.umr_en()), (MkcFlags::KLM, true))?;
        self.device.set_numbers(Numbered::Mkey, number, number).map_err(said)?;
        let attributes = MkeyAttributes {
            signature: bsf >= if crypto { 2 * BSF } else { BSF },
            crypto,
            access: Access::from_byte(access),
            tag: QpnMkey::from_bits(mkc.qpn_mkey.get()).tag(),
            remote_invalidate: MkcPd::from_bits(mkc.pd.get()).en_rinval(),
            free: flags.free(),
            ..MkeyAttributes::new(self.pd, mkc.translations_octword_size.get())
        };
        let key = self.device.create_mkey(attributes).map_err(said)?;
        same("mkey", key.index().get(), number)
    }

    fn dek(&mut self, number: u32, object: &[u8]) -> Result<(), String> {
        let object = EncryptionKey::read_from_bytes(object).map_err(said)?;
        let flags = KeyFlags::from_bits(object.flags.get());
        let (size, length) = match flags.key_size() {
            KeyFlags::SIZE_256 => (KeySize::Bits256, 64),
            _ => (KeySize::Bits128, 32),
        };
        let length = length + if flags.has_keytag() { 8 } else { 0 };
        let key = KeyMaterial::Plaintext(object.key.0.get(..length).unwrap_or_default());
        let attributes = DekAttributes { pd: self.pd, size, has_keytag: flags.has_keytag(), key };
        self.device.set_numbers(Numbered::Dek, number, number).map_err(said)?;
        same("DEK", self.device.create_dek(attributes).map_err(said)?, number)
    }

    /// Creates a queue pair connected to itself, in place of the previous one.
    fn qp(&mut self, ring: QpRing) -> Result<(), String> {
        if let Some(old) = self.qp.take() {
            self.device.destroy_qp(old.number).map_err(said)?;
        }
        if !ring.blocks.is_power_of_two() || ring.blocks > MAX_BLOCKS {
            return Err(format!("a ring of {} blocks", ring.blocks));
        }
        self.device.set_numbers(Numbered::Qp, ring.number, ring.number).map_err(said)?;
        let attributes = QpAttributes {
            transport: Transport::ReliableConnection,
            pd: self.pd,
            sq: self.sq,
            log_sq_blocks: ring.blocks.ilog2() as u8,
            receive: ReceiveQueue::None,
            doorbell_record: self.records + 64,
            send_cqn: self.cqn,
            recv_cqn: Some(self.cqn),
            user_index: ring.number,
            drain_sigerr: false,
            rnr_retry: Retries::Infinite,
        };
        self.device.memory_mut().write(attributes.doorbell_record, &[0; 8]).map_err(said)?;
        same("QP", self.device.create_qp(attributes).map_err(said)?, ring.number)?;
        self.device.connect(ring.number, Peer::Local(ring.number)).map_err(said)?;
        self.device.activate(ring.number).map_err(said)?;
        self.qp = Some(ring);
        Ok(())
    }

    fn ring(&mut self, qp: u32, from: u16, blocks: &[u8]) -> Result<(), String> {
        let ring = self.qp.filter(|ring| ring.number == qp).ok_or("no such queue pair")?;
        let mut producer = from;
        for block in blocks.chunks(BLOCK) {
            let slot = u64::from(u32::from(producer) & (ring.blocks - 1));
            self.device.memory_mut().write(self.sq + slot * BLOCK as u64, block).map_err(said)?;
            producer = producer.wrapping_add(1);
        }
        let record = u32::from(producer).to_be_bytes();
        self.device.memory_mut().write(self.records + 64 + 4, &record).map_err(said)?;
        self.device.doorbell(qp).map_err(said)
    }

    /// Takes the next completion entry, if there is one. The consumer index in the doorbell record stays as
    /// it is, because the recorded driver (SPDK) does not update it.
    fn poll(&mut self) -> Option<Cqe> {
        let slot = u64::from(self.consumer & ((1 << LOG_ENTRIES) - 1));
        let bytes = self.device.memory().bytes(self.cq + slot * 64, 64)?;
        let cqe = Cqe::read_from_bytes(bytes).ok()?;
        let lap = self.consumer >> LOG_ENTRIES & 1 == 1;
        if cqe.opcode() == CqeOpcode::INVALID || cqe.op_own_bits().owner() != lap {
            return None;
        }
        self.consumer = self.consumer.wrapping_add(1);
        Some(cqe)
    }
}

/// Returns the values of a completion that the replay compares: opcode, counter and, for an error completion,
/// the syndrome (otherwise 0).
fn completion(cqe: &Cqe) -> (u8, u16, u8) {
    let failed = cqe.opcode() == CqeOpcode::REQUESTER_ERROR;
    (cqe.opcode().0, cqe.wqe_counter.get(), if failed { cqe.as_error().syndrome } else { 0 })
}

/// Returns pseudorandom bytes (splitmix64 from `state`, each number in little endian). A recording describes
/// the initial content of memory by such a state.
fn filled(length: usize, mut state: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend((z ^ z >> 31).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns the FNV-1a hash (64 bits) of these bytes.
fn hash_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
