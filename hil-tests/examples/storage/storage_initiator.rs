//! A storage initiator: reads and writes a volume that a `storage_target` serves, and knows the expected
//! value of each byte. The documentation of `storage_target.rs` describes how the two work together.
//!
//! Each command has a slot of memory and an mkey. The data are in up to four pieces of the slot's memory. The
//! mkey maps them to one space, with T10-DIF added on the wire. The target accesses this space by RDMA and
//! never learns an address. The configuration of the mkey and the command are posted together. In each round
//! of its loop, the initiator rings one doorbell per queue pair.
//!
//! The initiator writes the whole volume, then makes reads and writes, then reads the whole volume. It
//! compares all read data with the last written data. Both devices report a block that is corrupt in the
//! volume; the initiator rewrites the block and reads it again.
//!
//! The keys of the mkeys stay the same between commands. So the initiator has to trust that the target does
//! not access the memory of completed commands. Without this trust, mkeys come from a
//! [`mlx5_mkey::queue::MkeyPool`], or the response takes the key out of service (SEND with invalidation).
//!
//! After the target is lost, the initiator resets its queue pairs ([`mlx5_mkey::devx::QueuePair::reset`]).
//! After its own device has failed or was removed, the initiator gives the queue pairs up
//! ([`mlx5_mkey::devx::QueuePair::into_outstanding`]) and opens the device again. It then reconnects and
//! repeats the outstanding commands. It also reconnects and repeats the commands if one of them takes too
//! long, since a message or a completion may be lost.

mod load;
mod storage;

use clap::Parser;
use fastrand::Rng;
use hdrhistogram::Histogram;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use load::{BLOCK, Load, Mix, Part, Phase};
use mlx5_mkey::devx::Buffer;
use mlx5_mkey::mkey::{Access, BlockSignature, KlmEntry, MkeyConfig, SignatureChange};
use mlx5_mkey::types::DomainKind;
use mlx5_mkey::wqe::{Payload, PreparedConfig, RequestSize};
use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use storage::capsule::{CAPSULE, Command, Response};
use storage::control::{Account, Control, Line, Offer, Rotations};
use storage::link::{Event, Link, LinkSpec};
use storage::process::Usage;
use storage::{DIF, DeviceArguments, IDLE, LOOK, Lost, Outcome, PATIENCE, PAUSE, Trouble};
use zerocopy::{FromBytes, IntoBytes};

/// The most pieces of memory of a command.
const PIECES: usize = 4;

/// Reads and writes the volume of a storage target, on this machine or another, and checks every byte.
#[derive(Parser)]
struct Arguments {
    /// Where the target listens
    #[arg(long, default_value = "127.0.0.1:7000")]
    address: SocketAddr,
    /// Reads and writes, besides those that fill the volume and check it at the end
    #[arg(long, default_value_t = 20_000)]
    ios: u64,
    /// Percentage of reads
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: u8,
    /// Seed of the load
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Then does nothing for this time, and prints the processor time that both processes use meanwhile
    #[arg(long, default_value_t = 0)]
    idle_seconds: u64,
    /// How long the target may be away, in seconds
    #[arg(long, default_value_t = 30)]
    patience: u64,
    #[command(flatten)]
    device: DeviceArguments,
}

fn main() -> ExitCode {
    storage::exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Outcome {
    let mut initiator = Initiator::new(arguments)?;
    initiator.perform(Phase::Fill(0))?;
    initiator.tally = Tally::new(arguments.ios)?;
    // The memory of both processes is measured while no command is in progress, so a difference is a leak.
    initiator.perform(Phase::Mix(arguments.ios / 10))?;
    let at_tenth = initiator.usage()?;
    initiator.perform(Phase::Mix(arguments.ios - arguments.ios / 10))?;
    let took = initiator.tally.start.elapsed();
    let at_end = initiator.usage()?;
    initiator.tally.print(took, at_tenth, at_end);
    // The last phase reads every block after all key rotations are complete.
    initiator.settle()?;
    initiator.perform(Phase::Check(0))?;
    if arguments.idle_seconds > 0 {
        initiator.idle(Duration::from_secs(arguments.idle_seconds))?;
    }
    initiator.end()
}

/// The initiator gives up after this number of connections in a row on which no command was answered.
const TRIES: u32 = 10;

/// A read or write in progress.
struct Io {
    part: Part,
    /// When the command was first begun. `begun` is the time when it was begun on the present connection.
    start: Instant,
    begun: Instant,
    /// If this I/O rewrites a corrupt block: the read to repeat afterwards.
    again: Option<Part>,
    /// The pieces of the slot's memory that hold the data, in order.
    pieces: Vec<Range<usize>>,
}

/// The statistics of a run: I/Os, bytes, times, repetitions.
struct Tally {
    ios: u64,
    done: u64,
    bytes: u64,
    start: Instant,
    latencies: Histogram<u64>,
    named: Vec<u64>,
    repeated: u64,
    connections: u64,
    bar: ProgressBar,
}

impl Tally {
    fn new(ios: u64) -> Outcome<Self> {
        // Without a terminal the progress bar hides itself. If there are no I/Os to count, this line creates
        // a hidden bar.
        let bar = if ios > 0 { ProgressBar::new(ios) } else { ProgressBar::hidden() };
        bar.set_style(ProgressStyle::with_template(
            "{wide_bar} {human_pos} of {human_len}, {msg}, {eta} left",
        )?);
        Ok(Self {
            ios,
            done: 0,
            bytes: 0,
            start: Instant::now(),
            latencies: Histogram::new_with_max(3_600_000_000, 3)?,
            named: Vec::new(),
            repeated: 0,
            connections: 1,
            bar,
        })
    }

    fn rate(&self, took: Duration) -> String {
        let seconds = took.as_secs_f64();
        let (iops, megabytes) = (self.done as f64 / seconds, self.bytes as f64 / seconds / 1e6);
        format!("{} IOPS, {megabytes:.1} MB/s", HumanCount(iops as u64))
    }

    /// Counts a completed I/O.
    fn add(&mut self, io: &Io) {
        self.done += 1;
        self.bytes += io.part.bytes() as u64;
        // Times beyond the range of the histogram count as its longest time.
        self.latencies.saturating_record(io.start.elapsed().as_micros() as u64);
        let tenth = (self.ios / 10).max(1);
        if self.done.is_multiple_of(256) && self.done <= self.ios {
            self.bar.set_position(self.done);
            self.bar.set_message(self.rate(self.start.elapsed()));
        }
        if self.done.is_multiple_of(tenth) && self.done <= self.ios {
            let rate = self.rate(self.start.elapsed());
            self.bar.suspend(|| println!("initiator: {} %, {rate}", self.done / tenth * 10));
        }
    }

    fn print(&self, took: Duration, at_tenth: [Usage; 2], at_end: [Usage; 2]) {
        self.bar.finish_and_clear();
        let (ios, megabytes) = (HumanCount(self.done), self.bytes / 1_000_000);
        println!("{ios} I/Os, {megabytes} MB in {:.1} s: {}", took.as_secs_f64(), self.rate(took));
        let at = |quantile| self.latencies.value_at_quantile(quantile);
        let (p50, p99, p999, max) = (at(0.5), at(0.99), at(0.999), self.latencies.max());
        println!("latency in us: p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}");
        for ((name, tenth), end) in ["initiator", "target"].into_iter().zip(at_tenth).zip(at_end) {
            let (tenth, end) = (tenth.resident, end.resident);
            let change = (end as f64 / tenth as f64 - 1.0) * 100.0;
            println!(
                "resident memory of the {name}: {tenth} KiB after a tenth, {end} KiB in the end \
                 ({change:+.2} %)"
            );
        }
    }
}

/// The state of an initiator: its connection to the target, the objects of its device, and the I/Os in
/// progress.
struct Initiator<'a> {
    arguments: &'a Arguments,
    control: Control,
    offer: Offer,
    gear: Gear,
    /// The I/O in each slot. The slots of the first queue pair come first.
    slots: Vec<Option<Io>>,
    /// The slots without an I/O.
    free: VecDeque<usize>,
    /// For each queue pair: the slots whose command waits to be posted.
    due: Vec<VecDeque<usize>>,
    load: Load,
    random: Rng,
    /// Corrupt blocks that were not rewritten yet.
    corrupt: BTreeSet<u64>,
    tally: Tally,
    events: Vec<Event>,
    looked: Instant,
    /// Number of connections since the last answer.
    unanswered: u32,
    /// Two scratch buffers for the data of one command: the data to write or read, and the expected data.
    data: [Vec<u8>; 2],
}

/// All objects that the initiator creates on its device, and its prepared configurations.
struct Gear {
    // This field comes first, so that the link is dropped before the memory that its requests use.
    link: Link,
    /// Memory for the data of each slot.
    memory: Buffer,
    /// Configurations of mkeys for commands that read the volume, and for commands that write it.
    reading: PreparedConfig,
    writing: PreparedConfig,
    /// The space that a command takes in a send queue: a configuration of an mkey and a message.
    command_size: RequestSize,
}

impl Gear {
    /// Opens the device, and creates the queue pairs, mkeys and memory for all commands.
    fn new(arguments: &DeviceArguments, offer: &Offer) -> Outcome<Self> {
        let spec = LinkSpec {
            queues: offer.queues.len(),
            depth: offer.depth,
            mkeys_per_command: 1,
            crypto: false,
            gid_index: arguments.gid_index,
        };
        let device = arguments.open()?;
        let link = Link::new(&device, &device.alloc_pd()?, spec)?;
        let kind = link.mkeys.first().ok_or("no mkeys")?.kind();
        let command_size =
            RequestSize::configure_mkey(&kind, PIECES, 1).and(RequestSize::send_inline(size_of::<Command>()));
        let prepare = |access| {
            let signature = SignatureChange::Set(BlockSignature::wire(DIF));
            let config = MkeyConfig { access: Some(access), signature, crypto: None };
            PreparedConfig::new(kind, &config)
        };
        let (reading, writing) = (prepare(Access::REMOTE_WRITE)?, prepare(Access::REMOTE_READ)?);
        let slot_bytes = offer.max_blocks as usize * BLOCK;
        let mut memory = link.pd.alloc_buffer(spec.slots() * slot_bytes, Access::LOCAL_WRITE)?;
        // All memory is written once, so that the kernel has assigned it before the memory of the process is
        // measured.
        let filler = vec![0xff; slot_bytes];
        for slot in 0..spec.slots() {
            memory.write(slot * slot_bytes, &filler)?;
        }
        Ok(Self { link, memory, reading, writing, command_size })
    }
}

impl<'a> Initiator<'a> {
    fn new(arguments: &'a Arguments) -> Outcome<Self> {
        let (control, offer) = call(arguments)?;
        let gear = Gear::new(&arguments.device, &offer)?;
        let spec = gear.link.spec;
        if offer.blocks_per_mkey == 1 {
            println!(
                "initiator: the target's engine encrypts one data unit for each mkey, so commands are short"
            );
        }
        println!(
            "initiator: {} blocks, commands of up to {}, {} queue pairs, depth {}",
            offer.blocks, offer.max_blocks, spec.queues, spec.depth
        );
        let slot_bytes = offer.max_blocks as usize * BLOCK;
        let data = [vec![0xff; slot_bytes], vec![0xff; slot_bytes]];
        let mix = Mix { ios: arguments.ios, reads: arguments.reads.into() };
        let mut initiator = Self {
            arguments,
            control,
            gear,
            slots: (0..spec.slots()).map(|_| None).collect(),
            // Consecutive free slots belong to different queue pairs, so that the load is spread.
            free: (0..spec.depth)
                .flat_map(|tag| (0..spec.queues).map(move |queue| queue * spec.depth + tag))
                .collect(),
            due: (0..spec.queues).map(|_| VecDeque::new()).collect(),
            load: Load::new(offer.blocks, offer.max_blocks, mix, arguments.seed),
            random: Rng::with_seed(!arguments.seed),
            corrupt: BTreeSet::new(),
            tally: Tally::new(0)?,
            events: Vec::new(),
            looked: Instant::now(),
            unanswered: 0,
            data,
            offer,
        };
        if let Err(error) = initiator.agree() {
            initiator.recover(error)?;
        }
        Ok(initiator)
    }

    /// Connects the queue pairs to those of the target: sends the target their addresses, and waits until it
    /// is ready.
    fn agree(&mut self) -> Outcome {
        self.gear.link.connect(&self.offer.queues)?;
        let (initiator, queues) = (std::process::id().into(), self.gear.link.addresses()?);
        self.control.say(&Line::Accept { initiator, queues, reads: self.load.reads_to_come() })?;
        match self.control.wait(PATIENCE)? {
            Line::Ready => Ok(()),
            other => Err(Lost(format!("it says {other:?}")).into()),
        }
    }

    /// Runs a phase of the load until all its commands are complete.
    fn perform(&mut self, phase: Phase) -> Outcome {
        self.load.phase = phase;
        while !(self.load.is_over() && self.free.len() == self.slots.len()) {
            self.turn()?;
        }
        Ok(())
    }

    /// Does one `round`. After a failure, recovers.
    fn turn(&mut self) -> Outcome {
        self.round().or_else(|error| self.recover(error))
    }

    /// Begins new commands and handles all events. Returns [`Lost`] if the target is gone.
    fn round(&mut self) -> Outcome {
        while let Some(&slot) = self.free.front() {
            let Some(part) = self.load.next() else { break };
            self.free.pop_front();
            self.begin(slot, part, Instant::now(), None)?;
        }
        for queue in 0..self.due.len() {
            self.post(queue)?;
        }
        let mut events = std::mem::take(&mut self.events);
        self.gear.link.take(IDLE, &mut events)?;
        let is_idle = events.is_empty();
        for event in events.drain(..) {
            match event {
                Event::Message { queue, bytes } => self.finish(queue, &bytes)?,
                Event::Sent(_) => {}
                Event::Failed(why) => return Err(Lost(why).into()),
            }
        }
        self.events = events;
        if is_idle || self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.gear.link.look()?;
            self.arguments.device.limit(self.slots.iter().flatten().map(|io| io.begun))?;
            match self.control.heard()? {
                None => {}
                Some(other) => return Err(Lost(format!("it says {other:?}")).into()),
            }
        }
        Ok(())
    }

    /// Begins a read or write in a slot.
    fn begin(&mut self, slot: usize, part: Part, start: Instant, again: Option<Part>) -> Outcome {
        let bytes = part.bytes();
        let base = slot * self.offer.max_blocks as usize * BLOCK;
        // The data are divided into pieces of random lengths, in reverse order: the first piece of the data
        // is the last in memory.
        let mut cuts: [usize; PIECES + 1] = std::array::from_fn(|_| self.random.usize(..bytes));
        (cuts[0], cuts[PIECES]) = (0, bytes);
        cuts.sort_unstable();
        let ends = cuts.iter().skip(1);
        let pieces = cuts.iter().zip(ends).filter(|(from, to)| from < to);
        let pieces: Vec<_> = pieces.map(|(from, to)| base + bytes - to..base + bytes - from).collect();
        if part.opcode == Command::WRITE {
            let [data, _] = &mut self.data;
            let data = data.get_mut(..bytes).ok_or("too long")?;
            self.load.content(part, data);
            let mut rest = &*data;
            for piece in &pieces {
                let (now, later) = rest.split_at_checked(piece.len()).ok_or("pieces are longer than data")?;
                self.gear.memory.write(piece.start, now)?;
                rest = later;
            }
        }
        *self.slots.get_mut(slot).ok_or("no such slot")? =
            Some(Io { part, start, begun: Instant::now(), again, pieces });
        self.due_of(slot)?.push_back(slot);
        Ok(())
    }

    fn due_of(&mut self, slot: usize) -> Outcome<&mut VecDeque<usize>> {
        let queue = slot.checked_div(self.gear.link.spec.depth).and_then(|queue| self.due.get_mut(queue));
        Ok(queue.ok_or("no such queue pair")?)
    }

    /// Posts the waiting commands of a queue pair, as many as fit into its send queue, with one doorbell.
    fn post(&mut self, index: usize) -> Outcome {
        let Self { gear: Gear { link, memory, reading, writing, command_size }, slots, due, .. } = self;
        let depth = link.spec.depth;
        let due = due.get_mut(index).ok_or("no such queue pair")?;
        let (queue, mkeys) = link.queue_and_mkeys(index)?;
        let mut room = queue.free_blocks();
        let mut batch = queue.batch();
        while let Some(&slot) = due.front() {
            let Some(rest) = room.checked_sub(command_size.blocks) else { break };
            room = rest;
            let io = slots.get(slot).and_then(Option::as_ref).ok_or("no such command")?;
            let Part { opcode, lba, blocks } = io.part;
            let mkey = mkeys.get_mut(slot).ok_or("no such mkey")?;
            let prepared = if opcode == Command::READ { &mut *reading } else { &mut *writing };
            prepared.set_ref_tag(DomainKind::Wire, lba as u32)?;
            let entries: Vec<KlmEntry> =
                io.pieces.iter().map(|piece| memory.entry(piece.clone())).collect::<Result<_, _>>()?;
            let id = slot as u64;
            batch.request(id).configure_mkey(mkey, prepared, &entries[..])?;
            let command = Command {
                lba: lba.into(),
                blocks: blocks.into(),
                rkey: mkey.key().get().into(),
                tag: (slot.checked_rem(depth).unwrap_or(0) as u16).into(),
                opcode,
                reserved: 0,
            };
            batch.request(id).signaled().send(Payload::Inline(command.as_bytes()))?;
            due.pop_front();
        }
        Ok(())
    }

    /// Handles the response to a command. If a block is corrupt, rewrites the block and reads it again.
    /// Otherwise compares the data of a read with the expected data, and counts the I/O.
    fn finish(&mut self, queue: usize, message: &[u8; CAPSULE]) -> Outcome {
        let (response, _) = Response::read_from_prefix(message).map_err(|_| "a message is too short")?;
        let slot = queue * self.gear.link.spec.depth + usize::from(response.tag.get());
        let io = self.slots.get_mut(slot).and_then(Option::take);
        let io = io.ok_or_else(|| Lost("a response to no command".into()))?;
        self.unanswered = 0;
        let Part { opcode, lba, .. } = io.part;
        let named = self.gear.link.check(slot)?;
        let named = named.map(|error| (lba + error.block_index(), error));
        match (response.status, named) {
            (Response::DONE, None) if opcode == Command::READ => self.compare(&io)?,
            (Response::DONE, None) => {}
            (Response::CORRUPT, Some((block, error)))
                if opcode == Command::READ && response.lba.get() == block =>
            {
                if self.corrupt.insert(block) {
                    self.tally.bar.suspend(|| println!("initiator: LBA {block}: {error}"));
                    self.tally.named.push(block);
                }
                // The initiator rewrites the block, because it knows the data. A real program would take the
                // data from a mirror of the volume.
                let part = Part { opcode: Command::WRITE, lba: block, blocks: 1 };
                return self.begin(slot, part, io.start, Some(io.part));
            }
            (Response::INVALID, _) => return Err(format!("the target does not take {:?}", io.part).into()),
            (status, named) => {
                return Err(format!("LBA {lba}: the target says {status}, the own device {named:?}").into());
            }
        }
        if let Some(part) = io.again {
            self.corrupt.remove(&lba);
            return self.begin(slot, part, io.start, None);
        }
        self.load.end(io.part);
        self.free.push_back(slot);
        self.tally.add(&io);
        Ok(())
    }

    /// Compares the data of a read with the last written data.
    fn compare(&mut self, io: &Io) -> Outcome {
        let [data, wanted] = &mut self.data;
        let (data, wanted) = (data.get_mut(..io.part.bytes()), wanted.get_mut(..io.part.bytes()));
        let (data, wanted) = data.zip(wanted).ok_or("too long")?;
        let mut rest = &mut *data;
        for piece in &io.pieces {
            let (now, later) = rest.split_at_mut_checked(piece.len()).ok_or("pieces are longer than data")?;
            self.gear.memory.read(piece.start, now)?;
            rest = later;
        }
        match self.load.difference(io.part, data, wanted) {
            None => Ok(()),
            Some(lba) => Err(format!("LBA {lba} is not what was written last, and nobody said so").into()),
        }
    }

    /// Reconnects as soon as target and device are available again, and repeats the outstanding commands.
    fn recover(&mut self, error: Box<dyn Error>) -> Outcome {
        let mut trouble = Trouble::of(error)?;
        self.unanswered += 1;
        if self.unanswered > TRIES {
            return Err(format!("given up, nothing is answered: {trouble}").into());
        }
        let start = Instant::now();
        loop {
            println!("initiator: {trouble}");
            // The old connection is closed first. A target that has not noticed the failure would otherwise
            // still wait on it, and take no new connection.
            self.control.close();
            match self.connect_anew(&trouble).map_err(Trouble::of) {
                Ok(()) => break,
                Err(next) => trouble = next?,
            }
            if start.elapsed() >= Duration::from_secs(self.arguments.patience) {
                return Err(format!("given up: {trouble}").into());
            }
            thread::sleep(PAUSE);
        }
        self.tally.connections += 1;
        self.due.iter_mut().for_each(VecDeque::clear);
        for slot in 0..self.slots.len() {
            if let Some(io) = self.slots.get_mut(slot).and_then(Option::take) {
                self.tally.repeated += 1;
                self.begin(slot, io.part, io.start, io.again)?;
            }
        }
        Ok(())
    }

    /// Resets the queue pairs (or if the device has failed, creates all objects anew), and connects to the
    /// target.
    fn connect_anew(&mut self, trouble: &Trouble) -> Outcome {
        let requests = match trouble {
            Trouble::Peer(_) => self.gear.link.reset()?,
            Trouble::Device(_) => {
                let new = Gear::new(&self.arguments.device, &self.offer)?;
                std::mem::replace(&mut self.gear, new).link.give_up()
            }
        };
        let ios = self.slots.iter().flatten().count();
        println!("initiator: {ios} I/Os are outstanding, {requests} requests had not completed");
        let (control, offer) = call(self.arguments)?;
        let shape = |offer: &Offer| (offer.blocks, offer.max_blocks, offer.depth, offer.queues.len());
        if shape(&offer) != shape(&self.offer) {
            return Err(format!("the target that came back is another: {offer:?}").into());
        }
        (self.control, self.offer) = (control, offer);
        self.agree()
    }

    /// Sends a request on the control connection and waits for the answer.
    fn ask(&mut self, line: &Line) -> Outcome<Line> {
        loop {
            let heard = self.control.say(line).and_then(|()| self.control.wait(PATIENCE));
            match heard {
                Ok(answer) => return Ok(answer),
                Err(lost) => self.recover(lost.into())?,
            }
        }
    }

    /// Returns the resource usage of this process and of the target.
    fn usage(&mut self) -> Outcome<[Usage; 2]> {
        match self.ask(&Line::Ask)? {
            Line::Usage(usage) => Ok([Usage::of_this_process(), usage]),
            other => Err(format!("the target says {other:?}").into()),
        }
    }

    /// Waits until the target has completed the rotations of its keys.
    fn settle(&mut self) -> Outcome {
        match self.ask(&Line::Settle)? {
            Line::Settled => Ok(()),
            other => Err(format!("the target says {other:?}").into()),
        }
    }

    /// Does nothing for a time except checking that the target still exists. Prints the processor time that
    /// both processes use meanwhile.
    fn idle(&mut self, time: Duration) -> Outcome {
        let before = self.usage()?;
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn()?;
        }
        let took = start.elapsed();
        let after = self.usage()?;
        let [here, there] = [0, 1].map(|at| {
            let cpu = |usage: &[Usage; 2]| usage.get(at).map_or(Duration::ZERO, |usage| usage.cpu);
            (cpu(&after) - cpu(&before)).as_secs_f64() / took.as_secs_f64() * 100.0
        });
        let seconds = took.as_secs_f64();
        println!(
            "idle for {seconds:.0} s: initiator {here:.2} % of a core, target {there:.2} %, both {:.2} %",
            here + there
        );
        Ok(())
    }

    /// Ends the connection, and compares the blocks that the devices reported as corrupt with those that the
    /// target has corrupted.
    fn end(mut self) -> Outcome {
        let account: Account = match self.ask(&Line::Bye)? {
            Line::Account(account) => account,
            other => return Err(format!("the target says {other:?}").into()),
        };
        let (mut corrupted, mut named) = (account.corrupted, self.tally.named);
        corrupted.sort_unstable();
        named.sort_unstable();
        println!("connections: {}, I/Os that were repeated: {}", self.tally.connections, self.tally.repeated);
        println!(
            "blocks corrupted in the volume: {}, named by both devices: {}",
            corrupted.len(),
            named.len()
        );
        if account.rotations.done > 0 {
            let Rotations { done, moved, mixed } = account.rotations;
            println!(
                "keys replaced: {done}, blocks moved to the next key: {moved}, reads of blocks with two \
                 keys: {mixed}"
            );
        }
        if corrupted != named {
            return Err(format!("corrupted were {corrupted:?}, named were {named:?}").into());
        }
        if corrupted.len() as u64 != account.asked || !account.unexpected.is_empty() || account.plaintext != 0
        {
            return Err(format!(
                "{} of {} corrupted, {:?} named by the target alone, {} blocks of the file are plaintext",
                corrupted.len(),
                account.asked,
                account.unexpected,
                account.plaintext
            )
            .into());
        }
        println!("no byte lost, every corruption named, no plaintext in the file");
        Ok(())
    }
}

/// Connects to the target, and tries again until it listens. Returns the connection and the target's offer.
fn call(arguments: &Arguments) -> Outcome<(Control, Offer)> {
    let start = Instant::now();
    loop {
        let attempt = TcpStream::connect(arguments.address).map_err(Lost::from);
        let attempt =
            attempt.and_then(Control::new).and_then(|mut control| Ok((control.wait(PATIENCE)?, control)));
        match attempt {
            Ok((Line::Offer(offer), control)) => return Ok((control, offer)),
            Ok((other, _)) => return Err(format!("the target says {other:?}").into()),
            Err(error) if start.elapsed() >= Duration::from_secs(arguments.patience) => {
                return Err(format!("no target at {}: {error}", arguments.address).into());
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}
