//! Executes the rings of libmlx5 (the reference) and of the library, each on a software device of its own.
//!
//! Both devices begin with equal objects and equal memory. After each chain of requests they must still be
//! equal.

use super::case::{INNER, Kind, OUTER, REGION_BYTES, REGION_INDEX, WINDOW_INDEX};
use super::compare::Outcome;
use super::sizes::MAX_BLOCKS;
use mlx5_mkey::types::{DekId, Key, MkeyIndex};
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode};
use mlx5_mkey::wire::data::DataSegment;
use mlx5_softdev::{
    Access, Arena, CqAttributes, DekAttributes, Device, DeviceProfile, Event, KeyMaterial, KeySize, Memory,
    MkeyAttributes, MkeyView, Numbered, Peer, PsvView, QpAttributes, QpState, QpView, ReceiveQueue,
    ReceiveRing, Retries, Transport, XtsEngine,
};
use std::fmt::Debug;
use std::io;
use zerocopy::{FromBytes, IntoBytes};

const BASE: u64 = 0x10_0000;
/// The addresses of the doorbell records: of the queue pair, and of the two completion queues.
const RECORDS: [u64; 3] = [BASE, BASE + 16, BASE + 32];
/// The addresses of the rings of the completion queues, for sends and for receives.
const COMPLETIONS: [u64; 2] = [BASE + 0x1000, BASE + 0x1_1000];
const LOG_COMPLETIONS: u8 = 10;
const RECEIVE_RING: u64 = BASE + 0x2_1000;
const LOG_RECEIVES: u8 = 4;
/// The address of the receive buffer. Each message overwrites the one before.
const RECEIVED: u64 = OUTER + REGION_BYTES as u64;
const SEND_RING: u64 = RECEIVED + REGION_BYTES as u64;
const BYTES: usize = 0x30_0000;
const _: () = assert!(INNER == BASE + 0x2_2000 && OUTER == INNER + REGION_BYTES as u64);
const _: () = assert!(SEND_RING + MAX_BLOCKS as u64 * 64 <= BASE + BYTES as u64);

/// The effects of executing a ring that a driver can observe.
#[derive(Debug, PartialEq, Eq)]
struct Effects {
    sent: Vec<Cqe>,
    received: Vec<Cqe>,
    events: Vec<Event>,
    queue: QpView,
    mkey: MkeyView,
    window: MkeyView,
    psvs: Vec<PsvView>,
}

/// The result of executing a chain of requests. It is equal on both devices.
pub(super) struct Executed {
    /// Completions of the send queue, oldest first.
    pub(super) completions: Vec<Cqe>,
    /// Block number of the first failed request.
    pub(super) failed: Option<u16>,
    /// Number of signature errors.
    pub(super) signature_errors: u64,
    /// Whether the execution changed memory that mkeys map or transfers use.
    pub(super) moved: bool,
}

/// The two software devices: one executes libmlx5's rings, the other the library's.
pub(super) struct Twins {
    theirs: Side,
    ours: Side,
}

impl Twins {
    pub(super) fn new(engine: XtsEngine, dek: DekId, key: &[u8]) -> io::Result<Self> {
        Ok(Self { theirs: Side::new(engine, dek, key)?, ours: Side::new(engine, dek, key)? })
    }

    fn both(&mut self, mut work: impl FnMut(&mut Side) -> io::Result<()>) -> io::Result<()> {
        work(&mut self.theirs)?;
        work(&mut self.ours)
    }

    /// Replaces the queue pair and the memory window of both devices by new ones.
    pub(super) fn set_queue(&mut self, number: u32, blocks: usize) -> io::Result<()> {
        self.both(|side| {
            side.blocks = blocks;
            side.set_queue(number, 0)?;
            side.set_window()
        })
    }

    /// Replaces the mkey of both devices by one with this key and no PSVs.
    pub(super) fn set_mkey(&mut self, key: Key, kind: Kind, max_entries: u16) -> io::Result<()> {
        self.both(|side| side.set_mkey(key, kind, max_entries))
    }

    /// Creates those of the PSVs that do not exist yet, on both devices.
    pub(super) fn add_psvs(&mut self, numbers: &[u32]) -> io::Result<()> {
        self.both(|side| side.add_psvs(numbers))
    }

    /// Executes both rings, each with the counter of its doorbell record.
    pub(super) fn execute(&mut self, theirs: (&[u8], [u8; 4]), ours: (&[u8], [u8; 4])) -> Outcome<Executed> {
        let before = self.theirs.data()?.to_vec();
        let (their_effects, our_effects) =
            (self.theirs.run(theirs.0, theirs.1)?, self.ours.run(ours.0, ours.1)?);
        alike(&our_effects, &their_effects)?;
        let (data, our_data) = (self.theirs.data()?, self.ours.data()?);
        // The memory is compared as two slices first. In builds without optimization, a comparison byte by
        // byte would take long.
        if data != our_data {
            let at = data.iter().zip(our_data).position(|(theirs, ours)| theirs != ours);
            return Err(format!("executed: byte {} of memory differs", at.unwrap_or(data.len())).into());
        }
        let Effects { sent, queue, .. } = their_effects;
        if queue.hw_sq_wqebb_counter != u32::from_be_bytes(theirs.1) as u16 {
            return Err(format!("executed up to block {} only", queue.hw_sq_wqebb_counter).into());
        }
        let moved = data.get(..2 * REGION_BYTES) != before.get(..2 * REGION_BYTES);
        let with = |opcode: CqeOpcode| sent.iter().filter(move |entry| entry.opcode() == opcode);
        let executed = Executed {
            failed: with(CqeOpcode::REQUESTER_ERROR).map(|entry| entry.wqe_counter.get()).next(),
            signature_errors: with(CqeOpcode::SIGNATURE_ERROR).count() as u64,
            moved,
            completions: sent.clone(),
        };
        self.both(|side| side.go_on(queue))?;
        Ok(executed)
    }
}

fn alike(ours: &Effects, theirs: &Effects) -> Result<(), String> {
    fn one<T: PartialEq + Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
        let difference = || format!("executed: {what}: {ours:x?}, the reference's ring leads to {theirs:x?}");
        if ours == theirs { Ok(()) } else { Err(difference()) }
    }
    one("completions", &ours.sent, &theirs.sent)?;
    one("receive completions", &ours.received, &theirs.received)?;
    one("events", &ours.events, &theirs.events)?;
    one("queue pair", &ours.queue, &theirs.queue)?;
    one("mkey", &ours.mkey, &theirs.mkey)?;
    one("memory window", &ours.window, &theirs.window)?;
    one("PSVs", &ours.psvs, &theirs.psvs)
}

/// One of the two software devices, with the numbers of the objects on it.
struct Side {
    device: Device<Arena>,
    pd: u32,
    /// Completion queues for sends and for receives, and the number of entries taken from each.
    cqs: [(u32, u32); 2],
    qpn: Option<u32>,
    blocks: usize,
    mkey: Option<MkeyIndex>,
    window: Option<MkeyIndex>,
    psvs: Vec<u32>,
}

fn refused(error: impl Debug) -> io::Error {
    io::Error::other(format!("software device: {error:?}"))
}

impl Side {
    fn new(engine: XtsEngine, dek: DekId, key: &[u8]) -> io::Result<Self> {
        let profile = DeviceProfile { xts: engine, ..DeviceProfile::default() };
        let mut device = Device::new(Arena::new(BASE, BYTES), profile);
        let pd = device.alloc_pd().map_err(refused)?;
        let mut cqs = [(0, 0); 2];
        for (at, (cq, _)) in cqs.iter_mut().enumerate() {
            let attributes = CqAttributes {
                ring: COMPLETIONS[at],
                log_entries: LOG_COMPLETIONS,
                entry_bytes: 64,
                doorbell_record: RECORDS[1 + at],
                ignore_overrun: false,
            };
            *cq = device.create_cq(attributes).map_err(refused)?;
        }
        device.set_numbers(Numbered::Mkey, REGION_INDEX, REGION_INDEX).map_err(refused)?;
        device.register(pd, INNER, 3 * REGION_BYTES as u64, Access::ALL).map_err(refused)?;
        device.set_numbers(Numbered::Dek, dek.get(), dek.get()).map_err(refused)?;
        let key = KeyMaterial::Plaintext(key);
        let attributes = DekAttributes { pd, size: KeySize::Bits128, has_keytag: false, key };
        device.create_dek(attributes).map_err(refused)?;
        let slot = DataSegment {
            byte_count: (REGION_BYTES as u32).into(),
            lkey: (REGION_INDEX << 8).into(),
            address: RECEIVED.into(),
        };
        for number in 0..1 << LOG_RECEIVES {
            device.memory_mut().write(RECEIVE_RING + number * 16, slot.as_bytes()).map_err(refused)?;
        }
        let mut side =
            Self { device, pd, cqs, qpn: None, blocks: 0, mkey: None, window: None, psvs: Vec::new() };
        for (at, byte) in side.memory(INNER, 2 * REGION_BYTES)?.iter_mut().enumerate() {
            *byte = (at * 7 + (at >> 8)) as u8;
        }
        Ok(side)
    }

    fn memory(&mut self, address: u64, length: usize) -> io::Result<&mut [u8]> {
        self.device.memory_mut().bytes_mut(address, length).ok_or_else(|| refused("no memory"))
    }

    /// Returns all memory that requests can access.
    fn data(&self) -> io::Result<&[u8]> {
        self.device.memory().bytes(INNER, 3 * REGION_BYTES).ok_or_else(|| refused("no memory"))
    }

    fn set_queue(&mut self, number: u32, counter: u16) -> io::Result<()> {
        if let Some(old) = self.qpn.take() {
            self.device.destroy_qp(old).map_err(refused)?;
        }
        self.device.set_numbers(Numbered::Qp, number, number).map_err(refused)?;
        let [(send_cqn, _), (recv_cqn, _)] = self.cqs;
        let attributes = QpAttributes {
            transport: Transport::ReliableConnection,
            pd: self.pd,
            sq: SEND_RING,
            log_sq_blocks: self.blocks.ilog2() as u8,
            receive: ReceiveQueue::Own(ReceiveRing {
                address: RECEIVE_RING,
                log_slots: LOG_RECEIVES,
                stride: 16,
            }),
            doorbell_record: RECORDS[0],
            send_cqn,
            recv_cqn: Some(recv_cqn),
            // The user index must be that of libmlx5's queue pair. libmlx5 numbers its queue pairs from 0,
            // and has only one at a time.
            user_index: 0,
            drain_sigerr: false,
            rnr_retry: Retries::Count(0),
        };
        let qpn = self.device.create_qp(attributes).map_err(refused)?;
        self.qpn = Some(qpn);
        self.device.connect(qpn, Peer::Local(qpn)).map_err(refused)?;
        self.device.set_copies(qpn, true).map_err(refused)?;
        self.device.set_send_counter(qpn, counter).map_err(refused)?;
        self.memory(RECORDS[0], 8)?.copy_from_slice(&[0, 0, 0, 1 << LOG_RECEIVES, 0, 0, 0, 0]);
        let counter = u32::from(counter).to_be_bytes();
        self.memory(RECORDS[0] + 4, 4)?.copy_from_slice(&counter);
        self.device.activate(qpn).map_err(refused)
    }

    fn set_mkey(&mut self, key: Key, kind: Kind, max_entries: u16) -> io::Result<()> {
        for psv in self.psvs.drain(..) {
            self.device.destroy_psv(psv).map_err(refused)?;
        }
        if let Some(old) = self.mkey.take() {
            self.device.destroy_mkey(old).map_err(refused)?;
        }
        self.device.set_numbers(Numbered::Mkey, key.index().get(), key.index().get()).map_err(refused)?;
        let attributes = MkeyAttributes {
            signature: kind.signature,
            crypto: kind.crypto,
            tag: key.tag(),
            ..MkeyAttributes::new(self.pd, max_entries.into())
        };
        self.mkey = Some(self.device.create_mkey(attributes).map_err(refused)?.index());
        Ok(())
    }

    /// Replaces the memory window by a new one of type 2.
    fn set_window(&mut self) -> io::Result<()> {
        if let Some(old) = self.window.take() {
            self.device.destroy_mkey(old).map_err(refused)?;
        }
        self.device.set_numbers(Numbered::Mkey, WINDOW_INDEX, WINDOW_INDEX).map_err(refused)?;
        let attributes = MkeyAttributes { remote_invalidate: true, ..MkeyAttributes::new(self.pd, 4) };
        self.window = Some(self.device.create_mkey(attributes).map_err(refused)?.index());
        Ok(())
    }

    fn add_psvs(&mut self, numbers: &[u32]) -> io::Result<()> {
        for &number in numbers {
            if !self.psvs.contains(&number) {
                self.device.set_numbers(Numbered::Psv, number, number).map_err(refused)?;
                self.device.create_psvs(self.pd, 1).map_err(refused)?;
                self.psvs.push(number);
            }
        }
        Ok(())
    }

    /// Copies a ring and the counter of its doorbell record into the device's memory, and executes the
    /// published requests.
    fn run(&mut self, ring: &[u8], counter: [u8; 4]) -> io::Result<Effects> {
        self.memory(SEND_RING, ring.len())?.copy_from_slice(ring);
        self.memory(RECORDS[0] + 4, 4)?.copy_from_slice(&counter);
        if let Some(qpn) = self.qpn {
            self.device.doorbell(qpn).map_err(refused)?;
        }
        self.device.run();
        let sent = self.take(0)?;
        let received = self.take(1)?;
        let psvs = self.psvs.iter().map(|number| self.device.query_psv(*number));
        let psvs = psvs.collect::<Result<_, _>>().map_err(refused)?;
        let mkey = self.mkey.ok_or_else(|| refused("no mkey"))?;
        let window = self.window.ok_or_else(|| refused("no window"))?;
        Ok(Effects {
            sent,
            received,
            psvs,
            mkey: self.device.query_mkey(mkey).map_err(refused)?,
            window: self.device.query_mkey(window).map_err(refused)?,
            queue: self.device.query(self.qpn.unwrap_or_default()).map_err(refused)?,
            events: self.device.take_events(),
        })
    }

    /// Returns the new entries of a completion queue (0 for sends, 1 for receives), and counts them as taken.
    fn take(&mut self, which: usize) -> io::Result<Vec<Cqe>> {
        let (cqn, taken) = self.cqs[which];
        let producer = self.device.cq_producer(cqn).map_err(refused)?;
        let mut entries = Vec::new();
        for index in taken..producer {
            let slot = u64::from(index & ((1 << LOG_COMPLETIONS) - 1));
            let bytes = self.memory(COMPLETIONS[which] + slot * 64, 64)?;
            entries.push(Cqe::read_from_bytes(bytes).map_err(|_| refused("no entry"))?);
        }
        self.cqs[which].1 = producer;
        self.memory(RECORDS[1 + which], 4)?.copy_from_slice(&(producer & 0xff_ffff).to_be_bytes());
        Ok(entries)
    }

    /// Prepares the device for the next chain of requests: posts receives, and replaces a failed queue pair.
    fn go_on(&mut self, queue: QpView) -> io::Result<()> {
        let number = self.qpn.unwrap_or_default();
        if queue.state != QpState::ReadyToSend {
            return self.set_queue(number, queue.hw_sq_wqebb_counter);
        }
        let posted = u32::from(queue.hw_rq_counter.wrapping_add(1 << LOG_RECEIVES));
        self.memory(RECORDS[0], 4)?.copy_from_slice(&posted.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QPN: u32 = 0x100;

    fn twins() -> Twins {
        let mut twins =
            Twins::new(XtsEngine::MultiBlock, DekId::from_low_bits(1), &libmlx5::DEK_KEY).unwrap();
        twins.set_queue(QPN, 16).unwrap();
        twins.set_mkey(Key::from_raw(0x1200), Kind { signature: false, crypto: false }, 4).unwrap();
        twins
    }

    /// Returns a ring of 16 blocks with an RDMA WRITE of one inline byte to the second region.
    fn write(inline: u8) -> Vec<u8> {
        let mut ring = vec![0; 16 * 64];
        ring[..12].copy_from_slice(&[0, 0, 0, 8, 0, 1, 0, 3, 0, 0, 0, 8]);
        ring[16..24].copy_from_slice(&OUTER.to_be_bytes());
        ring[24..28].copy_from_slice(&(REGION_INDEX << 8).to_be_bytes());
        ring[32..37].copy_from_slice(&[0x80, 0, 0, 1, inline]);
        ring
    }

    #[test]
    fn a_byte_of_memory_that_differs_is_noticed() {
        let (one, counter) = (write(0xa5), [0, 0, 0, 1]);
        let executed = twins().execute((&one, counter), (&one, counter)).unwrap();
        assert!(executed.moved && executed.failed.is_none());
        // The two rings write different inline bytes to memory. The error must name the byte of memory that
        // differs.
        let said = twins().execute((&one, counter), (&write(0xa4), counter)).err().unwrap();
        assert_eq!(said.to_string(), format!("executed: byte {} of memory differs", REGION_BYTES));
        // A difference in any byte of the memory must be found.
        for at in [0, REGION_BYTES - 1, 2 * REGION_BYTES, 3 * REGION_BYTES - 1] {
            let mut twins = twins();
            twins.ours.memory(INNER + at as u64, 1).unwrap()[0] ^= 1;
            let said = twins.execute((&one, counter), (&one, counter)).err().unwrap();
            assert_eq!(said.to_string(), format!("executed: byte {at} of memory differs"));
        }
    }
}
