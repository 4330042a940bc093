//! The library as a side of the benchmarks: posts requests and takes completions as a storage service does.

mod parts;
mod requests;

use crate::publish::{blue_flame, doorbell};
use crate::{BATCH, BLOCKS, ENTRIES, Fault, IOS, Io, QUEUES, Side, Work};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::black_box;
use mlx5_mkey::error::PostError;
use mlx5_mkey::queue::{
    BlueFlame, Completion, CompletionQueue, CqDoorbellRecord, Doorbell, DoorbellRecord, QpRouter, QpTable,
    ReceiveQueue, ReceiveQueueConfig, SendQueue, SendQueueConfig, SendSlot, SharedSendQueue, TableSlot,
    UarDoorbell,
};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, OpOwn};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::data::DataSegment;
use mlx5_mkey::wqe::PreparedConfig;
use parts::{OurIo, Queue};
pub use parts::{mkey, use_completion};
use zerocopy::big_endian::{U16, U32};

/// The number of the first queue pair.
const QPN: Qpn = Qpn::from_low_bits(0x77);
/// The most outstanding requests of [`Work::LimitedList4`].
const LIMIT: u32 = BLOCKS as u32 / 2;
/// Number of receive requests that the receive queue holds.
const SLOTS: usize = 64;

/// The rings, doorbell records and completion entries of the queues of [`Ours`].
pub struct OursMemory {
    rings: Vec<[Wqebb; BLOCKS]>,
    slots: Vec<[SendSlot; BLOCKS]>,
    ids: [u64; SLOTS],
    records: Vec<DoorbellRecord>,
    cq_record: CqDoorbellRecord,
    receives: Vec<DataSegment>,
    entries: Vec<Cqe>,
}

/// Number of send queues: one for most work, one that threads share, one with a maximum number of requests,
/// one with BlueFlame, and many on one completion queue.
const SEND_QUEUES: usize = 4 + QUEUES;

impl Default for OursMemory {
    /// Returns memory for all queues.
    fn default() -> Self {
        Self {
            rings: vec![[Wqebb::ZERO; BLOCKS]; SEND_QUEUES],
            slots: vec![SendSlot::array(); SEND_QUEUES],
            ids: [0; SLOTS],
            records: (0..SEND_QUEUES + 1).map(|_| DoorbellRecord::new()).collect(),
            cq_record: CqDoorbellRecord::new(),
            receives: vec![DataSegment::default(); SLOTS],
            entries: vec![Cqe::UNWRITTEN; ENTRIES],
        }
    }
}

/// The library as a side of the benchmarks.
pub struct Ours<'m> {
    /// The kind of work for which the I/Os are prepared.
    work: Option<Work>,
    ios: Vec<OurIo>,
    /// The configuration that all I/Os of a volume have in common.
    volume: PreparedConfig,
    queue: Queue<'m>,
    shared: SharedSendQueue<'m, UarDoorbell>,
    limited: Queue<'m>,
    blue: SendQueue<'m, BlueFlame>,
    many: QpTable<'m, &'m mut Queue<'m>>,
    receive: ReceiveQueue<'m>,
    entries: &'m mut [Cqe],
    cq_record: &'m CqDoorbellRecord,
}

impl<'m> Ours<'m> {
    /// Makes queues in this memory.
    pub fn new(memory: &'m mut OursMemory) -> Self {
        let OursMemory { rings, slots, ids, records, cq_record, receives, entries } = memory;
        let (receive_record, records) = records.split_first().expect("a record");
        let mut rings = rings.iter_mut().zip(slots).zip(records);
        let mut queue = |number: u32, max_requests: u32| {
            let ((ring, slots), record) = rings.next().expect("a ring");
            let qpn = Qpn::from_low_bits(QPN.get() + number);
            let config = SendQueueConfig { max_requests, ..SendQueueConfig::new(qpn) };
            Queue::new(config, ring, slots, record, doorbell()).expect("a queue")
        };
        let config = ReceiveQueueConfig { qpn: QPN, entries_per_slot: 1 };
        let (first, shared, limited) = (queue(0, u32::MAX), queue(0, u32::MAX), queue(0, LIMIT));
        let blue = queue(0, u32::MAX).map_doorbell(|_| blue_flame());
        let mut many = QpTable::new(Box::leak(Box::new([const { TableSlot::EMPTY }; QUEUES])));
        for number in 0..QUEUES as u32 {
            // The table holds references to the queue pairs. If it held the queue pairs themselves, it would
            // be too large for a stack.
            let queue = Box::leak(Box::new(queue(number, u32::MAX)));
            assert!(many.insert(queue).is_ok(), "room for a queue pair");
        }
        Self {
            work: None,
            ios: Vec::new(),
            volume: requests::prepared(Work::List1),
            queue: first,
            shared: SharedSendQueue::new(shared),
            limited,
            blue,
            many,
            receive: ReceiveQueue::new(config, receives, ids, receive_record).expect("a ring"),
            entries,
            cq_record,
        }
    }

    #[inline(never)]
    fn shared_list4<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        let Self { shared, ios, volume, .. } = self;
        for batch in first(ios, requests).as_chunks_mut::<BATCHED>().0 {
            shared.with(|queue| requests::list4_locked(queue, batch, volume))?;
        }
        Ok(())
    }

    #[inline(never)]
    fn rdma_write_blue_flame(&mut self, requests: usize) -> Result<(), PostError> {
        let Self { blue, ios, .. } = self;
        for our in first(ios, requests) {
            requests::write(blue, &our.io)?;
            blue.ring_doorbell();
        }
        Ok(())
    }

    #[inline(never)]
    fn receive<const BATCHED: usize>(&mut self, requests: usize) -> Result<(), PostError> {
        let Self { receive, ios, .. } = self;
        for batch in first(ios, requests).as_chunks_mut::<BATCHED>().0 {
            for io in batch {
                receive.post(io.io.id, &[io.io.data])?;
            }
            receive.publish();
        }
        Ok(())
    }

    /// Posts configurations with lists to a full queue. Depending on the work, the queue refuses each
    /// configuration, or a completion before each one frees space for it.
    fn on_full_queue(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        let Self { queue, limited, ios, volume, entries, cq_record, .. } = self;
        let queue = if work.is_limited() { limited } else { queue };
        let ios = first(ios, requests);
        if work.is_refused() {
            return requests::list4_refused(queue, ios, volume);
        }
        let mut completions = CompletionQueue::new(entries, cq_record).map_err(|_| "completion queue")?;
        let completions = black_box(&mut completions);
        requests::list4_after_completion(queue, completions, ios, volume).map_err(|_| "refused")?
    }

    /// Does whole I/Os, as [`Work::IoList4`] describes. `requests` is the number of I/Os.
    fn io(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        let Self { queue, ios, volume, entries, cq_record, .. } = self;
        let mut completions = CompletionQueue::new(entries, cq_record).map_err(|_| "completion queue")?;
        let completions = black_box(&mut completions);
        let io = match work {
            Work::IoList4 => requests::io_list4,
            Work::IoList4Dyn => requests::io_list4_dyn,
            Work::IoXts4 => requests::io_xts4,
            Work::IoT10Dif1 => requests::io_t10dif1,
            _ => requests::io_t10dif_xts4,
        };
        for _ in 0..requests / IOS {
            io(queue, completions, ios, volume).map_err(|_| "refused")??;
        }
        Ok(())
    }

    /// Takes completions, one for each poll.
    #[inline(never)]
    fn poll(&mut self, completions: usize) -> Result<(), Fault> {
        let mut queue = CompletionQueue::new(self.entries, self.cq_record).map_err(|_| "completion queue")?;
        let queue = black_box(&mut queue);
        let mut router = QpRouter { queues: &mut self.queue, mkeys: &mut [] };
        (0..completions).try_for_each(|_| use_completion(&queue.poll(&mut router)))
    }

    /// Takes completions of many queue pairs, one for each poll.
    #[inline(never)]
    fn poll_many(&mut self, completions: usize) -> Result<(), Fault> {
        let mut queue = CompletionQueue::new(self.entries, self.cq_record).map_err(|_| "completion queue")?;
        let queue = black_box(&mut queue);
        let table = black_box(&mut self.many);
        let mut router = table.router(&mut []);
        (0..completions).try_for_each(|_| use_completion(&queue.poll(&mut router)))
    }

    /// Takes completions, [`BATCH`] for each poll.
    #[inline(never)]
    fn poll_batches(&mut self, completions: usize) -> Result<(), Fault> {
        let mut queue = CompletionQueue::new(self.entries, self.cq_record).map_err(|_| "completion queue")?;
        let queue = black_box(&mut queue);
        let mut router = QpRouter { queues: &mut self.queue, mkeys: &mut [] };
        for _ in 0..completions / BATCH {
            let mut failed = false;
            let count = queue.poll_batch(BATCH, &mut router, |completion| match completion {
                Ok(Completion::Work(completion)) => drop(black_box(&completion)),
                _ => failed = true,
            });
            if failed || count != BATCH {
                return Err("no completion");
            }
        }
        Ok(())
    }

    /// Returns a copy of a block of the ring.
    #[cfg(test)]
    pub(crate) fn block(&self, at: u32) -> [u8; 64] {
        self.queue.block(at).0
    }

    /// Configures an mkey as it must be before a run. The bench does not count the instructions of this
    /// function.
    fn configure(&mut self, work: Work, at: usize) -> Result<(), PostError> {
        let Self { queue, ios, .. } = self;
        let Some(OurIo { io, mkey, .. }) = ios.get_mut(at) else { return Ok(()) };
        let entries = io.entries.get(..work.entries()).unwrap_or_default();
        queue.request(0).configure_mkey(mkey, &requests::complete(work), entries)?;
        queue.ring_doorbell();
        Ok(())
    }

    /// Empties each queue, and brings its next request to `blocks_to_end` blocks before the ring's end.
    fn go_to(&mut self, blocks_to_end: usize) -> Result<(), Fault> {
        go_to(&mut self.queue, blocks_to_end)?;
        go_to(&mut self.limited, blocks_to_end)?;
        go_to(&mut self.blue, blocks_to_end)?;
        self.shared.with(|queue| go_to(queue, blocks_to_end))
    }

    /// Writes the completion entries that a run takes. Also posts the requests that these entries complete,
    /// unless the run posts them.
    fn complete(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        let Self { queue, many, ios, entries, .. } = self;
        entries.fill(Cqe::UNWRITTEN);
        let writes = work.writes_per_completion();
        let blocks = writes.unwrap_or(work.blocks()) as u32;
        for (at, entry) in entries.iter_mut().take(requests).enumerate() {
            let (user_index, queue) = match work {
                Work::Completion64Queues => {
                    let number = (at % QUEUES) as u32;
                    let qpn = Qpn::from_low_bits(QPN.get() + number);
                    (number, &mut **many.get_mut(qpn).ok_or("too few queues")?)
                }
                _ => (0, &mut *queue),
            };
            let io = ios.get(at % IOS).ok_or("too few I/Os")?;
            let mut last = queue.producer() + (at as u32 + 1) * blocks - 1;
            if let Some(writes) = writes {
                requests::writes(queue, &io.io, writes).map_err(|_| "a request to complete")?;
                last = queue.producer() - 1;
            }
            *entry = completion(queue.qpn(), user_index, last as u16);
        }
        Ok(())
    }

    /// Fills a queue with RDMA WRITEs, and writes the completion entries that a run takes. Each completion
    /// makes room for one request.
    fn fill(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        let Self { queue, limited, ios, entries, .. } = self;
        let (queue, freed) = if work.is_limited() { (limited, 1) } else { (queue, work.blocks() as u32) };
        let io = &ios.first().ok_or("too few I/Os")?.io;
        let start = queue.producer();
        while requests::writes(queue, io, 1).is_ok() {}
        entries.fill(Cqe::UNWRITTEN);
        for (at, entry) in (1..).zip(entries.iter_mut().take(requests)) {
            *entry = completion(queue.qpn(), 0, (start + at * freed - 1) as u16);
        }
        Ok(())
    }

    fn post(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), PostError> {
        let Self { queue, limited, ios, volume, .. } = self;
        let ios = first(ios, requests);
        macro_rules! post {
            ($name:ident) => {
                match batch {
                    1 => requests::$name::<1>(queue, ios, volume),
                    _ => requests::$name::<BATCH>(queue, ios, volume),
                }
            };
        }
        match work {
            Work::List1 | Work::FirstList1 | Work::Crc32c1 => post!(list1),
            Work::List4 | Work::ReconfigureList4 => post!(list4),
            Work::LimitedList4 => requests::list4::<1>(limited, ios, volume),
            Work::List16 | Work::List16Wrapped => post!(list_dyn),
            Work::Xts4 => post!(xts4),
            Work::T10Dif1 => post!(t10dif1),
            Work::T10DifXts4 | Work::FirstT10DifXts4 => post!(t10dif_xts4),
            Work::RdmaWrite => post!(rdma_write),
            Work::Interleaved3 => post!(interleaved3),
            Work::ReconfigureTweak => post!(new_tweak),
            Work::ReconfigureRefTag => post!(new_ref_tag),
            // The remaining work posts lists of a length that the compiler does not know. `run` does
            // completions, receives and whole I/Os itself.
            _ => requests::list_dyn::<1>(queue, ios, volume),
        }
    }
}

impl Side for Ours<'_> {
    fn does(&self, work: Work, _batch: usize) -> bool {
        work != Work::IoList4Devx
    }

    fn prepare(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        if self.work != Some(work) || work.is_first() {
            let io = |io: Io| OurIo {
                list: io.entries.iter().take(io.count).copied().collect(),
                io,
                mkey: mkey(work.kind()),
            };
            self.ios = Io::all(work.entries()).into_iter().map(io).collect();
            self.volume = requests::prepared(work);
            for at in (0..IOS).filter(|_| !work.is_first()) {
                self.queue.restart(|_| {});
                self.configure(work, at).map_err(|_| "a first configuration")?;
            }
            self.work = Some(work);
        }
        self.go_to(work.blocks_to_end())?;
        self.receive.restart(|_| {});
        if work.is_io() || work.writes_per_completion().is_some() {
            self.complete(work, requests)?;
        }
        if work.is_on_full_queue() {
            self.fill(work, requests)?;
        }
        Ok(())
    }

    fn run(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), Fault> {
        match work {
            Work::Completion1 | Work::CompletionAfterSilent | Work::CompletionEvery32 => self.poll(requests),
            Work::Completion16 => self.poll_batches(requests),
            Work::Completion64Queues => self.poll_many(requests),
            _ if work.is_io() => self.io(work, requests),
            _ if work.is_on_full_queue() => self.on_full_queue(work, requests),
            Work::RdmaWriteBlueFlame => self.rdma_write_blue_flame(requests).map_err(|_| "refused"),
            Work::SharedList4 if batch == 1 => self.shared_list4::<1>(requests).map_err(|_| "refused"),
            Work::SharedList4 => self.shared_list4::<BATCH>(requests).map_err(|_| "refused"),
            Work::Receive if batch == 1 => self.receive::<1>(requests).map_err(|_| "refused"),
            Work::Receive => self.receive::<BATCH>(requests).map_err(|_| "refused"),
            _ => self.post(work, batch, requests).map_err(|_| "refused"),
        }
    }

    fn blocks(&self) -> u16 {
        let shared = self.shared.with(|queue| queue.producer());
        let others = self.limited.producer().wrapping_add(self.blue.producer());
        self.queue.producer().wrapping_add(shared).wrapping_add(others) as u16
    }
}

/// Returns the completion entry that a device writes for the send request that begins at block `counter`. Its
/// owner bit is that of the first pass through the ring.
pub fn completion(qpn: Qpn, user_index: u32, counter: u16) -> Cqe {
    Cqe {
        user_index: U32::new(user_index),
        sop_qpn: U32::new(u32::from(Opcode::RDMA_WRITE.0) << 24 | qpn.get()),
        wqe_counter: U16::new(counter),
        op_own: OpOwn::new().with_opcode(CqeOpcode::REQUESTER.0).into_bits(),
        ..Cqe::UNWRITTEN
    }
}

/// Empties a queue, as after a reset. Then posts and completes short requests until the next request begins
/// `blocks_to_end` blocks before the ring's end.
fn go_to<D: Doorbell>(queue: &mut SendQueue<'_, D>, blocks_to_end: usize) -> Result<(), Fault> {
    queue.restart(|_| {});
    while BLOCKS - queue.producer() as usize % BLOCKS != blocks_to_end {
        queue.request(0).signaled().nop().map_err(|_| "a short request")?;
        queue.ring_doorbell();
        let mut entries = [completion(queue.qpn(), 0, queue.producer() as u16 - 1)];
        let record = CqDoorbellRecord::new();
        let mut completions = CompletionQueue::new(&mut entries, &record).map_err(|_| "completion queue")?;
        use_completion(&completions.poll(&mut *queue))?;
    }
    Ok(())
}

/// Returns the first `requests` I/Os.
fn first(ios: &mut [OurIo], requests: usize) -> &mut [OurIo] {
    let count = requests.min(ios.len());
    black_box(ios.split_at_mut(count).0)
}
