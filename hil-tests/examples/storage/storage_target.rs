//! A storage target: serves a volume in a file to one initiator at a time (`storage_initiator`). The file
//! holds the blocks as ciphertext with T10-DIF inside.
//!
//! `cargo xtask storage` runs both on the software device. By hand, in two terminals:
//!
//! ```text
//! cargo xtask emulate -- cargo run --package hil-storage --bin storage_target
//! cargo xtask emulate -- cargo run --package hil-storage --bin storage_initiator
//! ```
//!
//! On mlx5 devices with plaintext keys the two programs run unchanged, on one machine or, with `--address`,
//! on two.
//!
//! As in NVMe over Fabrics, the initiator sends a command (opcode, first block, number of blocks, key). The
//! target moves the data by RDMA WRITE and RDMA READ through mkeys of both sides, and sends a response. The
//! devices compute all signatures and ciphers:
//!
//! ```text
//!            initiator                                        target
//!  memory ──▶ mkey ──▶ data + T10-DIF on the wire ──▶ mkey ──▶ encrypted (data + T10-DIF) in memory ──▶ file
//!        adds the DIF, checks               checks the DIF on the wire, encrypts when it writes the volume;
//!        decrypts and strips it                      and checks the DIF of memory when it reads the volume
//! ```
//!
//! Reference tag and AES-XTS tweak are the block's address (LBA), so the devices notice not only a changed
//! block but also one at a wrong place. The target's mkey has the same T10-DIF in memory and on the wire,
//! which the device checks and passes on unchanged, end to end. A block that has changed in the volume is
//! therefore reported twice: by the target's device, in its response, and by the initiator's device. The
//! initiator compares both reports. The target's configuration is the row with "enc(data + SIG)" in memory
//! and "data + SIG" on the wire, in the table of man page `mlx5dv_wr_set_mkey_crypto`. To encrypt the wire as
//! well, the initiator would encrypt (row C of the table) and the target would store the ciphertext.
//!
//! The common part of all commands is prepared once per key and direction ([`keys::VolumeKey`]). A command
//! sets tweak and tags, and configures its mkey. Each round takes all completions and posts the next requests
//! with one doorbell per queue pair. On a device whose AES-XTS engine encrypts only one data unit per mkey,
//! each block needs an mkey: there a command has at most 8 blocks.
//!
//! After the initiator or the device is lost, the target prints the number of incomplete requests and waits
//! for the initiator to come back. It then uses the same queue pairs ([`mlx5_mkey::devx::QueuePair::reset`]),
//! or creates all objects anew on a reopened device. It does the same if the oldest command takes too long,
//! because its completion was lost.
//!
//! With `--rotate N` the target replaces the key of the volume N times, while commands run ([`keys`]).
//!
//! With `--corrupt N` the target flips a bit of N blocks of the file just before they are read. The ledger, a
//! file, records the flipped bits. So a run continues after the target was killed and restarted: the
//! initiator reconnects and repeats the outstanding commands.

mod geometry;
mod keys;
mod ledger;
mod storage;

use clap::Parser;
use fastrand::Rng;
use geometry::Geometry;
use keys::{KeyNumbers, Keys, set_lba};
use ledger::{Ledger, PROTECTED_BLOCK};
use mlx5_mkey::devx::Buffer;
use mlx5_mkey::mkey::Access;
use mlx5_mkey::types::Key;
use mlx5_mkey::wqe::{Payload, Remote, RequestSize, Sge};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use storage::capsule::{Command, Response};
use storage::control::{Account, Control, Line, Offer, Rotations};
use storage::link::{Event, Link, LinkSpec, MAX_DEPTH, MAX_QUEUES};
use storage::process::Usage;
use storage::{DeviceArguments, IDLE, LOOK, Lost, Outcome, PATIENCE, PAUSE, Trouble};
use zerocopy::{FromBytes, IntoBytes};

/// The longest time that the target sleeps without an event while a key rotation copies blocks.
const COPY: Duration = Duration::from_millis(1);

/// The id of each request that sends a response. The id of any other request is the slot of its command.
const RESPONSE: u64 = u64::MAX;

/// Serves a volume, encrypted and protected by T10-DIF, to a storage initiator, on this machine or another.
#[derive(Parser)]
struct Arguments {
    /// Where to listen for the initiator: 0.0.0.0:7000 for one on another machine
    #[arg(long, default_value = "127.0.0.1:7000")]
    address: SocketAddr,
    /// File of the volume. It is removed at the end, with the ledger of corruptions beside it
    #[arg(long, default_value = "storage-volume")]
    volume: PathBuf,
    /// Blocks of 512 bytes of a new volume
    #[arg(long, default_value_t = 1 << 17, value_parser = clap::value_parser!(u64).range(4096..1 << 32))]
    blocks: u64,
    /// Queue pairs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=MAX_QUEUES as i64))]
    queues: u8,
    /// Commands of a queue pair at a time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=MAX_DEPTH as i64))]
    depth: u8,
    /// Blocks to corrupt in the course of the run
    #[arg(long, default_value_t = 0)]
    corrupt: u64,
    /// Keys to replace in the course of the run
    #[arg(long, default_value_t = 0)]
    rotate: u64,
    #[command(flatten)]
    device: DeviceArguments,
}

fn main() -> ExitCode {
    storage::exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Outcome {
    if arguments.rotate > 0 && arguments.volume.exists() {
        return Err(
            "--rotate needs a new volume: the numbers of the keys are not stored with the blocks".into()
        );
    }
    let mut target = Target::new(arguments, KeyNumbers::new(arguments.blocks))?;
    let listener = TcpListener::bind(arguments.address)?;
    println!("target: {} blocks at {}", target.blocks, listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        let control = Control::new(stream).map_err(Into::into);
        let served = control.and_then(|control| target.serve(control, arguments));
        let Err(error) = served else { break };
        let requests = target.recover(arguments, &Trouble::of(error)?)?;
        println!("target: {requests} requests had not completed");
    }
    let unexpected = target.ledger.unexpected.len();
    fs::remove_file(&arguments.volume)?;
    target.ledger.remove()?;
    if unexpected > 0 {
        Err(format!("{unexpected} blocks were named and not corrupt").into())
    } else {
        Ok(())
    }
}

/// A volume, with the objects that serve it.
struct Target {
    link: Link,
    volume: File,
    ledger: Ledger,
    blocks: u64,
    /// Number of corruptions to make in the run. It includes those already made.
    corrupt: u64,
    /// Number of keys to replace in the run. It includes those already replaced.
    rotate: u64,
    rotations: Rotations,
    keys: Keys,
    geometry: Geometry,
    transfer_size: RequestSize,
    /// Memory for the encrypted data of commands between the file and the wire: a part for each slot.
    staging: Buffer,
    /// A buffer for data between file and staging memory. The device may write to the staging memory at any
    /// time, so the program copies data instead of holding references to it.
    scratch: Vec<u8>,
}

impl Target {
    /// Opens the device and the volume. `numbers` gives the number of the key of each block. Creates the
    /// queue pairs, mkeys and memory that serve an initiator.
    fn new(arguments: &Arguments, numbers: KeyNumbers) -> Outcome<Self> {
        let device = arguments.device.open()?;
        let engine = device.capabilities().xts_engine().ok_or("the device has no AES-XTS")?;
        let geometry = Geometry::of(engine);
        let (max_blocks, mkeys_per_command) = (geometry.max_blocks(), geometry.mkeys_per_command);
        if geometry.blocks_per_mkey == 1 {
            println!(
                "target: the engine encrypts one data unit for each mkey, so each block has an mkey of \
                 its own"
            );
            println!("target: commands have up to {max_blocks} blocks");
        }
        let spec = LinkSpec {
            queues: arguments.queues.into(),
            depth: arguments.depth.into(),
            mkeys_per_command,
            crypto: true,
            gid_index: arguments.device.gid_index,
        };
        let pd = device.alloc_pd()?;
        let link = Link::new(&device, &pd, spec)?;
        let kind = link.mkeys.first().ok_or("no mkeys")?.kind();
        let keys = Keys::new(device, &pd, kind, numbers, geometry, arguments.device.gid_index)?;
        let command_bytes = max_blocks as usize * PROTECTED_BLOCK;
        let mut staging = link.pd.alloc_buffer(spec.slots() * command_bytes, Access::LOCAL_WRITE)?;
        let scratch = vec![0xff; command_bytes];
        // Every slot is written once, so that the kernel has assigned the memory before the memory of the
        // process is measured.
        for slot in 0..spec.slots() {
            staging.write(slot * command_bytes, &scratch)?;
        }
        let volume =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&arguments.volume)?;
        let length = arguments.blocks * PROTECTED_BLOCK as u64;
        match volume.metadata()?.len() {
            0 => volume.set_len(length)?,
            other if other == length => println!("target: the volume is there"),
            other => return Err(format!("the volume has {other} bytes, not {length}").into()),
        }
        let ledger = Ledger::open(&arguments.volume.with_extension("corrupted"), &volume)?;
        Ok(Self {
            link,
            volume,
            ledger,
            blocks: arguments.blocks,
            corrupt: arguments.corrupt,
            rotate: arguments.rotate,
            rotations: Rotations::default(),
            keys,
            geometry,
            transfer_size: geometry.transfer_size(&kind),
            staging,
            scratch,
        })
    }

    /// Serves an initiator until it is done. Returns [`Lost`] if the initiator is gone.
    fn serve(&mut self, control: Control, arguments: &Arguments) -> Outcome {
        let spec = self.link.spec;
        let mut session = Session {
            control,
            arguments: &arguments.device,
            slots: (0..spec.slots()).map(|_| None).collect(),
            due: (0..spec.queues).map(|_| VecDeque::new()).collect(),
            reads: 0,
            corrupt_every: u64::MAX,
            rotate_every: u64::MAX,
            is_settling: false,
            target: self,
        };
        session.meet()?;
        session.serve()
    }

    /// Resets the queue pairs (or if the device has failed, creates all objects anew), so that an initiator
    /// can connect. Returns the number of incomplete requests.
    fn recover(&mut self, arguments: &Arguments, trouble: &Trouble) -> Outcome<usize> {
        println!("target: {trouble}");
        if let Trouble::Peer(_) = trouble {
            let reset = self.link.reset().and_then(|requests| self.keys.reset().map(|()| requests));
            match reset.map_err(Trouble::of) {
                Ok(requests) => return Ok(requests),
                Err(trouble) => println!("target: {}", trouble?),
            }
        }
        // The target creates all objects anew, as after a restart of the process. The files of volume and
        // ledger exist already.
        let start = Instant::now();
        let mut new = loop {
            match Self::new(arguments, self.keys.numbers.clone()).map_err(Trouble::of) {
                Ok(new) => break new,
                Err(trouble) if start.elapsed() < PATIENCE => println!("target: {}", trouble?),
                Err(trouble) => return Err(format!("given up: {}", trouble?).into()),
            }
            thread::sleep(PAUSE);
        };
        new.ledger.unexpected.append(&mut self.ledger.unexpected);
        new.rotations = self.rotations;
        Ok(std::mem::replace(self, new).link.give_up())
    }

    /// Reads the blocks of a command from the file into the staging memory.
    fn load(&mut self, slot: usize, command: &Command) -> Outcome {
        let range = self.geometry.staged(slot, 0..command.blocks.get());
        let bytes = self.scratch.get_mut(..range.len()).ok_or("too long")?;
        self.volume.read_exact_at(bytes, command.lba.get() * PROTECTED_BLOCK as u64)?;
        self.staging.write(range.start, bytes)?;
        Ok(())
    }

    /// Writes the blocks of a command from the staging memory to the file.
    fn store(&mut self, slot: usize, command: &Command) -> Outcome {
        let range = self.geometry.staged(slot, 0..command.blocks.get());
        let bytes = self.scratch.get_mut(..range.len()).ok_or("too long")?;
        self.staging.read(range.start, bytes)?;
        Ok(self.volume.write_all_at(bytes, command.lba.get() * PROTECTED_BLOCK as u64)?)
    }

    /// Counts the blocks of the file that begin like the initiator's plaintext.
    fn plaintext(&mut self) -> Outcome<u64> {
        let mut count = 0;
        for first in (0..self.blocks).step_by(self.geometry.max_blocks() as usize) {
            let blocks = (self.blocks - first).min(self.geometry.max_blocks().into()) as usize;
            let bytes = self.scratch.get_mut(..blocks * PROTECTED_BLOCK).ok_or("too long")?;
            self.volume.read_exact_at(bytes, first * PROTECTED_BLOCK as u64)?;
            let plain = |block: &&[u8]| block.starts_with(&storage::MAGIC);
            count += bytes.chunks(PROTECTED_BLOCK).filter(plain).count() as u64;
        }
        Ok(count)
    }
}

/// A request that waits to be posted.
enum Due {
    /// The transfer for the command in this slot.
    Transfer(usize),
    /// A response to the initiator.
    Respond(Response),
}

/// A command in progress.
struct Transfer {
    command: Command,
    begun: Instant,
    /// The parts that are not transferred yet, each with the number of its key. A part is a range of the
    /// command's blocks that have one key. The target transfers one part after the other, because all mkeys
    /// of the command are configured with the same key.
    parts: VecDeque<(Range<u32>, u32)>,
}

/// The connection to an initiator, with its commands.
struct Session<'t> {
    target: &'t mut Target,
    arguments: &'t DeviceArguments,
    control: Control,
    /// The command in each slot. The slots of the first queue pair come first.
    slots: Vec<Option<Transfer>>,
    /// For each queue pair: requests that wait for room in the send queue.
    due: Vec<VecDeque<Due>>,
    reads: u64,
    corrupt_every: u64,
    rotate_every: u64,
    /// Whether the initiator waits for the end of all rotations.
    is_settling: bool,
}

impl Session<'_> {
    /// Connects the queue pairs to those of the initiator: sends the offer, takes the initiator's answer, and
    /// confirms the connection. Computes the number of reads between two corruptions, and between two
    /// rotations of keys.
    fn meet(&mut self) -> Outcome {
        let target = &mut *self.target;
        self.control.say(&Line::Offer(Offer {
            blocks: target.blocks,
            max_blocks: target.geometry.max_blocks(),
            blocks_per_mkey: target.geometry.blocks_per_mkey,
            depth: target.link.spec.depth,
            queues: target.link.addresses()?,
        }))?;
        let Line::Accept { initiator, queues, reads } = self.control.wait(PATIENCE)? else {
            return Err(Lost("it does not accept".into()).into());
        };
        target.ledger.begin(initiator)?;
        target.link.connect(&queues)?;
        // The factor 3/4 makes corruptions and rotations happen somewhat earlier, so that all are done even
        // if there are fewer reads than expected.
        let every = |left| (reads * 3 / 4).checked_div(left).map_or(u64::MAX, |every| every.max(1));
        self.corrupt_every = every(target.corrupt.saturating_sub(target.ledger.corrupted.len() as u64));
        self.rotate_every = every(target.rotate.saturating_sub(target.rotations.done));
        Ok(self.control.say(&Line::Ready)?)
    }

    fn serve(&mut self) -> Outcome {
        let mut events = Vec::new();
        let mut looked = Instant::now();
        loop {
            let limit = if self.target.keys.is_rotating() { COPY } else { IDLE };
            self.target.link.take(limit, &mut events)?;
            let is_idle = events.is_empty();
            for event in events.drain(..) {
                match event {
                    Event::Message { queue, bytes } => self.begin(queue, &bytes)?,
                    Event::Sent(RESPONSE) => {}
                    Event::Sent(slot) => self.finish(slot as usize)?,
                    Event::Failed(why) => return Err(Lost(why).into()),
                }
            }
            for queue in 0..self.due.len() {
                self.post(queue)?;
            }
            self.rotate()?;
            if is_idle || looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.target.link.look()?;
                let begun = self.slots.iter().flatten().map(|transfer| transfer.begun);
                self.arguments.limit(begun.chain(self.target.keys.begun()))?;
                match self.control.heard()? {
                    None => {}
                    Some(Line::Ask) => self.control.say(&Line::Usage(Usage::of_this_process()))?,
                    Some(Line::Settle) => self.is_settling = true,
                    Some(Line::Bye) => return self.account(),
                    Some(other) => return Err(Lost(format!("it says {other:?}")).into()),
                }
            }
        }
    }

    /// Begins a command. For a read, corrupts a block if it is time for a corruption, and loads the data from
    /// the file. Then queues the transfer. Refuses an invalid command.
    fn begin(&mut self, queue: usize, message: &[u8]) -> Outcome {
        let (command, _) = Command::read_from_prefix(message).map_err(|_| "a message is too short")?;
        let target = &mut *self.target;
        let (lba, blocks, tag) = (command.lba.get(), command.blocks.get(), usize::from(command.tag.get()));
        let depth = target.link.spec.depth;
        let slot = queue * depth + tag;
        let entry = self.slots.get_mut(slot).filter(|entry| tag < depth && entry.is_none());
        let entry = entry.ok_or_else(|| Lost(format!("tag {tag} is in use")))?;
        let due = self.due.get_mut(queue).ok_or("no such queue pair")?;
        let is_known = matches!(command.opcode, Command::READ | Command::WRITE);
        let is_there = lba.checked_add(blocks.into()).is_some_and(|end| end <= target.blocks);
        if !is_known || !is_there || blocks == 0 || blocks > target.geometry.max_blocks() {
            due.push_back(Due::Respond(response(&command, Response::INVALID, 0)));
            return Ok(());
        }
        if command.opcode == Command::READ {
            self.reads += 1;
            let is_wanted = (target.ledger.corrupted.len() as u64) < target.corrupt;
            if is_wanted && self.reads.is_multiple_of(self.corrupt_every) {
                let any = Rng::with_seed(self.reads).u64(..u64::from(blocks));
                target.ledger.corrupt(&target.volume, lba + any)?;
            }
            target.load(slot, &command)?;
        }
        let numbers = &target.keys.numbers;
        let mut parts = VecDeque::new();
        if command.opcode == Command::WRITE {
            parts.push_back((0..blocks, numbers.current));
        } else {
            let all = numbers.parts(lba..lba + u64::from(blocks));
            parts.extend(all.map(|(part, key)| ((part.start - lba) as u32..(part.end - lba) as u32, key)));
            target.rotations.mixed += u64::from(parts.len() > 1);
        }
        *entry = Some(Transfer { command, begun: Instant::now(), parts });
        due.push_back(Due::Transfer(slot));
        Ok(())
    }

    /// Continues the rotation of keys: begins the next rotation if there were enough reads since the last
    /// one, or if the initiator waits for the end of all rotations.
    fn rotate(&mut self) -> Outcome {
        let Target { volume, keys, rotations, rotate, .. } = &mut *self.target;
        let is_due = self.is_settling || self.reads >= self.rotate_every;
        if is_due && !keys.is_rotating() && rotations.done < *rotate {
            self.reads = 0;
            let commands = self.slots.iter().flatten().count();
            keys.rotate()?;
            println!(
                "target: key {} encrypts from now on, with {commands} commands in progress",
                keys.numbers.current
            );
        }
        keys.advance(volume, rotations, |number| {
            let mut parts = self.slots.iter().flatten().flat_map(|transfer| &transfer.parts);
            parts.any(|(_, other)| *other == number)
        })?;
        if self.is_settling && rotations.done >= *rotate {
            self.is_settling = false;
            self.control.say(&Line::Settled)?;
        }
        Ok(())
    }

    /// Ends a part of a command whose data has arrived at its destination: checks the mkeys for signature
    /// errors, and queues the next part. After the last part, stores the data of a write and queues the
    /// response. After an error, queues the response at once.
    fn finish(&mut self, slot: usize) -> Outcome {
        let target = &mut *self.target;
        let transfer = self.slots.get_mut(slot).ok_or("no such slot")?;
        let Transfer { command, parts, .. } = transfer.as_mut().ok_or("no such command")?;
        let (part, number) = parts.pop_front().ok_or("no such part")?;
        let (command, is_last) = (*command, parts.is_empty());
        let spec = target.link.spec;
        let (first, mkeys) = (command.lba.get() + u64::from(part.start), slot * spec.mkeys_per_command..);
        let mut wrong = None;
        for (chunk, mkey) in target.geometry.chunks(part.len() as u32).zip(mkeys) {
            // `check` returns the first error of each mkey.
            if let Some(error) = target.link.check(mkey)? {
                let block = first + u64::from(chunk.start) + error.block_index();
                println!("target: LBA {block}: {error}");
                wrong = wrong.or(Some(block));
            }
        }
        let due = slot.checked_div(spec.depth).and_then(|queue| self.due.get_mut(queue));
        let due = due.ok_or("no such queue pair")?;
        if wrong.is_none() && !is_last {
            due.push_back(Due::Transfer(slot));
            return Ok(());
        }
        *transfer = None;
        match (wrong, command.opcode) {
            (None, Command::WRITE) => {
                target.store(slot, &command)?;
                target.keys.stored(first..first + part.len() as u64, number);
            }
            // A write with a signature error is not stored: the data have changed on the way from the
            // initiator. Only errors of reads come from the volume, so only they concern the ledger.
            (Some(wrong), Command::READ) => target.ledger.found(wrong)?,
            _ => {}
        }
        let status = if wrong.is_some() { Response::CORRUPT } else { Response::DONE };
        due.push_back(Due::Respond(response(&command, status, wrong.unwrap_or(0))));
        Ok(())
    }

    /// Posts the waiting requests of a queue pair, as many as fit into its send queue, with one doorbell.
    fn post(&mut self, index: usize) -> Outcome {
        let Target { link, staging, keys, geometry, transfer_size, .. } = &mut *self.target;
        let due = self.due.get_mut(index).ok_or("no such queue pair")?;
        let (queue, mkeys) = link.queue_and_mkeys(index)?;
        let mut room = queue.free_blocks();
        let mut batch = queue.batch();
        let mut sges = Vec::new();
        while let Some(next) = due.front() {
            let needed = match next {
                Due::Transfer(_) => *transfer_size,
                Due::Respond(_) => RequestSize::send_inline(size_of::<Response>()),
            };
            let Some(rest) = room.checked_sub(needed.blocks) else { break };
            room = rest;
            match next {
                Due::Respond(response) => {
                    batch.request(RESPONSE).signaled().send(Payload::Inline(response.as_bytes()))?;
                }
                &Due::Transfer(slot) => {
                    let transfer = self.slots.get(slot).and_then(Option::as_ref);
                    let Transfer { command, parts, .. } = transfer.ok_or("no such command")?;
                    let (part, number) = parts.front().ok_or("no such part")?;
                    let key = keys.get(*number)?;
                    let is_read = command.opcode == Command::READ;
                    let prepared = if is_read { &mut key.outgoing } else { &mut key.incoming };
                    let mkeys = mkeys.iter_mut().skip(slot * geometry.mkeys_per_command);
                    sges.clear();
                    for (chunk, mkey) in geometry.chunks(part.len() as u32).zip(mkeys) {
                        let blocks = part.start + chunk.start..part.start + chunk.end;
                        set_lba(prepared, command.lba.get() + u64::from(blocks.start))?;
                        let entry = staging.entry(geometry.staged(slot, blocks))?;
                        batch.request(slot as u64).configure_mkey(mkey, prepared, &[entry])?;
                        // The data segment covers the whole mkey. With the same T10-DIF in both domains, its
                        // length on the wire is that of the entry in memory.
                        sges.push(Sge { address: 0, length: entry.length, lkey: mkey.key() });
                    }
                    // In the space of the initiator's mkey, a block has 520 bytes as well.
                    let address = u64::from(part.start) * PROTECTED_BLOCK as u64;
                    let remote = Remote { address, rkey: Key::from_raw(command.rkey.get()) };
                    let request = batch.request(slot as u64).signaled();
                    if is_read {
                        request.rdma_write(remote, &sges[..])?;
                    } else {
                        request.rdma_read(remote, &sges)?;
                    }
                }
            }
            due.pop_front();
        }
        Ok(())
    }

    /// Reports to the initiator the corrupted blocks, the blocks that the device reported without a
    /// corruption, and the number of plaintext blocks.
    fn account(&mut self) -> Outcome {
        let plaintext = self.target.plaintext()?;
        let ledger = &self.target.ledger;
        let account = Account {
            asked: self.target.corrupt,
            corrupted: ledger.corrupted.clone(),
            unexpected: ledger.unexpected.clone(),
            plaintext,
            rotations: self.target.rotations,
        };
        Ok(self.control.say(&Line::Account(account))?)
    }
}

fn response(command: &Command, status: u8, lba: u64) -> Response {
    Response { lba: lba.into(), tag: command.tag, status, reserved: [0; 5] }
}
