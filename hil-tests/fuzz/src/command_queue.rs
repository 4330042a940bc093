//! Fuzz target for the command queue. The emulated device answers correctly, late, wrongly or never, and
//! leaves arbitrary bytes in the command's entry and mailbox blocks. A model derives the expected result of
//! the command from these bytes.

use crate::input::Input;
use crate::memory::{Page, Shared};
use crate::values::KEY;
use embedded_hal::delay::DelayNs;
use mlx5_mkey::command::{
    AllocPd, Command, CreateDek, DekKey, Function, GivePages, PagePhase, Pdn, QueryCryptoCapabilities,
    QueryGeneralCapabilities, QueryIssi, QueryPages, TakePages, XtsKey,
};
use mlx5_mkey::error::{CommandError, CommandQueueError};
use mlx5_mkey::hca::{CommandMemory, CommandQueue, CommandQueueConfig, PageSource, Register, Registers};
use mlx5_mkey::wire::prm::command::Opcode;
use mlx5_mkey::wire::prm::command_queue::{CommandBlock, CommandEntry, DeliveryStatus};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use zerocopy::IntoBytes;

/// Offset of the mailbox blocks from the start of the command queue's memory.
const BLOCKS_AT: usize = 4096;

/// The number of bytes of a request or reply that a mailbox block holds.
const DATA: usize = 512;

/// The number of bytes of a mailbox block that its signature covers. The bytes from `DATA` on also have a
/// signature of their own.
const SIGNED: usize = 576;

/// The number of doorbells that the device obeys. The device ignores later ones, so the next command times
/// out and the sequence ends.
const HEARD: u32 = 40;

/// The most commands and other calls that one input makes.
const STEPS: usize = 12;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(4) {
        0 => sequence::<4>(input),
        _ => sequence::<16>(input),
    }
}

/// The fields of the device's initialization segment that the command queue reads.
#[derive(Clone, Copy)]
struct Layout {
    /// The number of reads of the register `Initializing` until the device is ready.
    starting: u32,
    embedded_cpu: bool,
    revision: u16,
    log_size: u8,
    log_stride: u8,
}

/// A command as the device has read it from the command queue.
#[derive(Clone)]
struct Seen {
    /// Offset of the command's entry.
    at: usize,
    entry: CommandEntry,
    request: Vec<u8>,
    /// The positions in memory of the mailbox blocks of request (`inputs`) and reply (`outputs`).
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// The emulated device. It implements the registers and the delay that the command queue uses, and accesses
/// the queue's memory by volatile loads and stores.
struct Device<'a> {
    memory: &'a Shared<Page>,
    state: RefCell<State<'a>>,
}

struct State<'a> {
    input: Input<'a>,
    address: u64,
    layout: Layout,
    /// On average, the device misbehaves in one of `calm` cases.
    calm: u32,
    /// The address of the command queue, as written to the device's registers.
    told: [u32; 2],
    doorbells: u32,
    seen: Option<Seen>,
    /// The number of delays before the device answers.
    answers_in: Option<u32>,
    /// The nanoseconds of delays since the last doorbell.
    waited: u64,
    /// The command's entry and the reply blocks as the device has left them. Before the answer there are no
    /// blocks.
    left: Option<(CommandEntry, Vec<CommandBlock>)>,
    /// The addresses of the pages that the device received.
    pages: Vec<u64>,
}

fn xor(bytes: &[u8]) -> u8 {
    // The loop takes words of 8 bytes, because a fuzzer's instrumentation makes a loop over bytes slow.
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word));
    sum.to_ne_bytes().iter().chain(rest).fold(0, |sum, byte| sum ^ byte)
}

/// Returns whether a block has this number and this token, and correct signatures.
fn is_good(block: &CommandBlock, number: usize, token: u8) -> bool {
    let bytes = block.as_bytes();
    let signed = xor(&bytes[..SIGNED]) == 0xff && xor(&bytes[DATA..SIGNED - 1]) == 0xff;
    signed && block.block_number.get() as usize == number && block.token == token
}

fn sign(mut block: CommandBlock) -> CommandBlock {
    (block.control_signature, block.signature) = (0, 0);
    block.control_signature = !xor(&block.as_bytes()[DATA..SIGNED - 1]);
    block.signature = !xor(&block.as_bytes()[..SIGNED]);
    block
}

impl Device<'_> {
    fn block(&self, number: usize) -> CommandBlock {
        self.memory.read_at(BLOCKS_AT + number * size_of::<CommandBlock>())
    }

    fn write_block(&self, number: usize, block: CommandBlock) {
        self.memory.write_at(BLOCKS_AT + number * size_of::<CommandBlock>(), block);
    }

    /// Reads the command that a doorbell announces, and asserts that the command is valid.
    fn hear(&self, doorbells: u32) {
        let mut state = self.state.borrow_mut();
        assert_eq!(doorbells.count_ones(), 1);
        let slot = doorbells.trailing_zeros() as usize;
        let at = slot << state.layout.log_stride;
        let entry: CommandEntry = self.memory.read_at(at);
        assert!(slot == 0 || slot + 1 == 1 << state.layout.log_size, "the first or the last");
        assert_eq!((entry.entry_type, entry.status_own), (CommandEntry::PCI, 1));
        assert!(entry.token != 0 && xor(entry.as_bytes()) == 0xff);
        let chain = |mut next: u64, length: usize| {
            let count = length.saturating_sub(16).div_ceil(DATA);
            let mut blocks = Vec::new();
            for number in 0..count {
                let distance = (next - state.address) as usize - BLOCKS_AT;
                assert!(distance.is_multiple_of(size_of::<CommandBlock>()));
                let place = distance / size_of::<CommandBlock>();
                let block = self.block(place);
                assert!(is_good(&block, number, entry.token), "block {number}");
                next = block.next.get();
                blocks.push(place);
            }
            assert_eq!(next, 0, "behind the last block");
            blocks
        };
        let length = entry.input_length.get() as usize;
        let inputs = chain(entry.input_mailbox.get(), length);
        let outputs = chain(entry.output_mailbox.get(), entry.output_length.get() as usize);
        let all: BTreeSet<_> = inputs.iter().chain(&outputs).collect();
        assert_eq!(all.len(), inputs.len() + outputs.len(), "each block once");
        let mut request = entry.input.to_vec();
        inputs.iter().for_each(|place| request.extend(self.block(*place).data));
        request.truncate(length);
        state.left = Some((entry, Vec::new()));
        state.seen = Some(Seen { at, entry, request, inputs, outputs });
        state.doorbells += 1;
        state.waited = 0;
        state.answers_in = match state.is_odd() {
            _ if state.doorbells > HEARD => None,
            true => state.input.maybe(|input| input.below(300)),
            false => Some(0),
        };
        drop(state);
        self.pass();
    }

    /// Counts a delay of the command queue. The device answers when the chosen number of delays is over.
    fn pass(&self) {
        let mut state = self.state.borrow_mut();
        match state.answers_in {
            Some(0) => {
                state.answers_in = None;
                self.answer(&mut state);
            }
            Some(later) => state.answers_in = Some(later - 1),
            None => {}
        }
    }

    /// Writes the reply. In some cases the device writes wrong values, or overwrites bytes of the entry or of
    /// a block.
    fn answer(&self, state: &mut State<'_>) {
        let Some(Seen { at, mut entry, request, outputs, .. }) = state.seen.clone() else { return };
        let length = entry.output_length.get() as usize;
        let reply = match state.is_odd() {
            false => state.sensible(&request, length),
            true => {
                let mut reply = state.input.bytes(length);
                // Most replies report success.
                reply[0] = if state.input.one_in(4) { reply[0] } else { 0 };
                reply
            }
        };
        let (begin, rest) = reply.split_at(16);
        entry.output.copy_from_slice(begin);
        let mut rest = rest.chunks(DATA);
        for (number, place) in outputs.iter().enumerate() {
            let mut block = CommandBlock { token: entry.token, ..self.block(*place) };
            let chunk = rest.next().unwrap();
            block.data[..chunk.len()].copy_from_slice(chunk);
            block.block_number.set(number as u32);
            // The device writes another token or number, with correct signatures.
            if state.is_odd() {
                match state.input.any() {
                    true => block.token ^= 1 << state.input.below(8),
                    false => block.block_number.set(state.input.below(10)),
                }
            }
            self.write_block(*place, sign(block));
        }
        let status = if state.is_odd() { state.input.any() } else { 0 };
        entry.status_own = status & !1;
        entry.token ^= if state.is_odd() { state.input.any() } else { 0 };
        entry.signature = 0;
        entry.signature = !xor(entry.as_bytes());
        let odd = if state.is_odd() { Some(state.input.below(3)) } else { None };
        match odd {
            // The device flips a bit of the entry or of a block, or replaces the whole entry or block.
            Some(0) => entry.as_mut_bytes()[state.input.below(64) as usize] ^= 1 << state.input.below(8),
            Some(1) => entry.as_mut_bytes().copy_from_slice(&state.input.bytes(64)),
            Some(2) if !outputs.is_empty() => {
                let place = outputs[state.input.below(outputs.len() as u32) as usize];
                let mut block = self.block(place);
                let bytes = block.as_mut_bytes();
                match state.input.below(4) {
                    0 => bytes.copy_from_slice(&state.input.bytes(1024)),
                    // The device flips a bit of the block's number, token or signatures.
                    1 => bytes[SIGNED - 16 + state.input.below(16) as usize] ^= 1 << state.input.below(8),
                    _ => bytes[state.input.below(1024) as usize] ^= 1 << state.input.below(8),
                }
                self.write_block(place, block);
            }
            _ => {}
        }
        self.memory.write_at(at, entry);
        state.left = Some((entry, outputs.iter().map(|place| self.block(*place)).collect()));
    }
}

impl State<'_> {
    fn is_odd(&mut self) -> bool {
        self.input.one_in(self.calm)
    }

    /// Returns the reply of a device whose firmware works.
    fn sensible(&mut self, request: &[u8], length: usize) -> Vec<u8> {
        let mut reply = vec![0; length];
        let word = |at: usize| u32::from_be_bytes(request[at..at + 4].try_into().unwrap());
        match (Opcode((word(0) >> 16) as u16), word(4) & 0xffff) {
            (Opcode::QUERY_ISSI, _) => reply[0x6f] = 2,
            (Opcode::QUERY_PAGES, _) => {
                reply[10..12].copy_from_slice(&self.input.pick(&[0_u16, 7]).to_be_bytes());
                reply[15] = self.input.pick(&[1, 0, 7, 8, 65, 80]);
            }
            (Opcode::MANAGE_PAGES, 1) => {
                let (pages, _) = request[16..].as_chunks::<8>();
                self.pages.extend(pages.iter().map(|page| u64::from_be_bytes(*page)));
            }
            (Opcode::MANAGE_PAGES, _) => {
                let most = self.pages.len().min((length - 16) / 8);
                let count = self.input.pick(&[most, most, 0, 1.min(most)]);
                reply[8..12].copy_from_slice(&(count as u32).to_be_bytes());
                for (slot, page) in
                    reply[16..].as_chunks_mut::<8>().0.iter_mut().zip(self.pages.drain(..count))
                {
                    *slot = page.to_be_bytes();
                }
            }
            _ => {}
        }
        reply
    }
}

impl Registers for &Device<'_> {
    fn read(&mut self, register: Register) -> u32 {
        let state = &mut *self.state.borrow_mut();
        let layout = &mut state.layout;
        match register {
            Register::Initializing if layout.starting > 0 => {
                layout.starting -= 1;
                1 << 31
            }
            Register::Initializing => u32::from(layout.embedded_cpu) << 23,
            Register::InterfaceRevision => {
                u32::from(layout.revision) << 16 | u32::from(state.input.any::<u16>())
            }
            Register::QueueLow => u32::from(layout.log_size) << 4 | u32::from(layout.log_stride),
            _ => state.input.any(),
        }
    }

    fn write(&mut self, register: Register, value: u32) {
        match register {
            Register::QueueHigh => self.state.borrow_mut().told[0] = value,
            Register::QueueLow => self.state.borrow_mut().told[1] = value,
            Register::Doorbell => self.hear(value),
            other => panic!("{other:?} is written"),
        }
    }
}

impl DelayNs for &Device<'_> {
    fn delay_ns(&mut self, time: u32) {
        self.state.borrow_mut().waited += u64::from(time);
        self.pass();
    }
}

/// A source of pages for the firmware.
#[derive(Default)]
struct Pages {
    next: u64,
    taken: BTreeSet<u64>,
}

impl PageSource for Pages {
    fn take(&mut self) -> Option<u64> {
        if self.next == 300 {
            return None;
        }
        self.next += 1;
        self.taken.insert(self.next << 12);
        Some(self.next << 12)
    }

    fn put_back(&mut self, address: u64) -> bool {
        self.taken.remove(&address)
    }
}

/// The command queue with the state that a model of it needs.
struct World<'d, 'm, const BLOCKS: usize> {
    device: &'d Device<'d>,
    queue: CommandQueue<'m, &'d Device<'d>>,
    config: CommandQueueConfig,
    is_lost: bool,
    pages: Pages,
}

/// Makes a queue, and executes commands until the input ends.
fn sequence<const BLOCKS: usize>(mut input: Input<'_>) {
    let is_odd = input.one_in(8);
    let address = if is_odd { input.pick(&[0, 512, 4095, !0xfff, !0x3fff, !0x7fff]) } else { 0x8000_0000 };
    let config = CommandQueueConfig {
        timeout_ms: input.pick(&[1, 0, 2]),
        ready_ms: input.pick(&[4, 0, 3]),
        verify_replies: input.any(),
        ..CommandQueueConfig::new(address)
    };
    let mut layout =
        Layout { starting: 0, embedded_cpu: input.any(), revision: 5, log_size: 5, log_stride: 6 };
    if input.one_in(4) {
        layout = Layout {
            starting: input.below(5),
            revision: input.pick(&[5, 5, 4, 0]),
            log_size: input.below(16) as u8,
            log_stride: input.below(16) as u8,
            ..layout
        };
    }
    let calm = input.pick(&[64, 256, 8]);
    let refused = refusal(address, size_of::<CommandMemory<BLOCKS>>(), &config, &layout);
    let memory = Shared::new(vec![Page::new(); size_of::<CommandMemory<BLOCKS>>() / size_of::<Page>()]);
    let state = State {
        input,
        address,
        layout,
        calm,
        told: [0; 2],
        doorbells: 0,
        seen: None,
        answers_in: None,
        waited: 0,
        left: None,
        pages: Vec::new(),
    };
    let device = Device { memory: &memory, state: RefCell::new(state) };
    let mut clock = &device;
    let queue = CommandQueue::new(&device, memory.commands::<BLOCKS>(), config, &mut clock);
    let queue = match queue {
        Ok(queue) => queue,
        Err(error) => return assert_eq!(Some(error), refused),
    };
    assert_eq!(refused, None);
    assert_eq!(device.state.borrow().told, [(address >> 32) as u32, address as u32]);
    let function = Function { embedded_cpu: layout.embedded_cpu, ..Function::OWN };
    assert_eq!(queue.function(), function);
    let mut world =
        World::<BLOCKS> { device: &device, queue, config, is_lost: false, pages: Pages::default() };
    for _ in 0..STEPS {
        // A lost queue refuses all commands. The sequence therefore ends after one more command.
        let was_lost = world.is_lost;
        if device.state.borrow().input.is_empty() {
            break;
        }
        world.step();
        if was_lost {
            break;
        }
    }
}

/// Returns the error with which the library must refuse to make a command queue, or `None`.
fn refusal(
    address: u64,
    bytes: usize,
    config: &CommandQueueConfig,
    layout: &Layout,
) -> Option<CommandQueueError> {
    let Layout { starting, revision, log_size, log_stride, .. } = *layout;
    // `starting` counts reads of the register `Initializing`: the library reads it at once, then every 2 ms.
    if !address.is_multiple_of(4096) || address.checked_add(bytes as u64).is_none() {
        let what = "command queue";
        Some(CommandError::Misaligned { what, address, alignment: 4096 }.into())
    } else if starting > config.ready_ms.div_ceil(2) {
        Some(CommandQueueError::NotReady { milliseconds: config.ready_ms })
    } else if revision != 5 {
        Some(CommandQueueError::Revision { found: revision, known: 5 })
    } else if log_stride < 6 || log_size + log_stride > 12 || log_size > 5 {
        Some(CommandQueueError::Layout { log_size, log_stride })
    } else {
        None
    }
}

impl<const BLOCKS: usize> World<'_, '_, BLOCKS> {
    fn step(&mut self) {
        let (which, number): (u32, u32) = {
            let input = &mut self.device.state.borrow_mut().input;
            (input.below(12), input.any())
        };
        let function = Function { number: number as u16, embedded_cpu: number >> 16 & 1 != 0 };
        let pd = Pdn::new(number & 0xff_ffff).unwrap();
        match which {
            0 => self.execute(&QueryIssi),
            1 => self.execute(&QueryGeneralCapabilities),
            2 => self.execute(&QueryCryptoCapabilities),
            3 => self.execute(&QueryPages { phase: PagePhase::Init, function }),
            4 => self.execute(&TakePages::<64> { function }),
            5 => self.execute(&TakePages::<1> { function }),
            6 => self.execute(&GivePages { function, pages: [u64::from(number) << (number % 16); 64] }),
            7 => self.execute(&GivePages { function, pages: [u64::from(number) << 12; 500] }),
            8 => {
                let key = DekKey::Plain256 { key: XtsKey::new(&KEY).unwrap(), keytag: None };
                self.execute(&CreateDek { pd, key, opaque: [0; 8] });
            }
            9 => self.execute(&AllocPd),
            10 => self.start(),
            _ => self.stop(),
        }
    }

    fn execute<C: Command<Reply: Debug + PartialEq>>(&mut self, command: &C) {
        self.device.state.borrow_mut().seen = None;
        let mut clock = self.device;
        let done = self.queue.execute(command, &mut clock);
        let state = self.device.state.borrow();
        let (expected, seen) = (self.expect(command, &state), state.seen.as_ref());
        if let Err(error) = &done {
            assert!(!error.to_string().is_empty());
        }
        self.is_lost |= matches!(expected, Err(CommandQueueError::TimedOut { .. }));
        assert_eq!(done, expected);
        if let Some(Seen { at, inputs, .. }) = seen.filter(|_| C::SECRET) {
            let entry: CommandEntry = self.device.memory.read_at(*at);
            assert!(entry.as_bytes().iter().all(|byte| *byte == 0), "a key is left in the entry");
            let wiped = |place: &usize| self.device.block(*place).data.iter().all(|byte| *byte == 0);
            assert!(inputs.iter().all(wiped), "a key is left in a block");
        }
    }

    /// Returns the expected result of a command, from the bytes that the device has left.
    fn expect<C: Command>(&self, command: &C, state: &State<'_>) -> Result<C::Reply, CommandQueueError> {
        let mut mailbox = vec![0; C::INPUT];
        let request = command.encode(&mut mailbox)?;
        let blocks = |length: usize| length.saturating_sub(16).div_ceil(DATA);
        let needed = (blocks(C::INPUT) + blocks(C::OUTPUT)) as u32;
        let (opcode, most) = (C::OPCODE, BLOCKS as u32);
        if self.is_lost || needed > most {
            assert!(state.seen.is_none(), "nothing is asked");
            return Err(match self.is_lost {
                true => CommandQueueError::Lost,
                false => CommandQueueError::TooManyBlocks { command: opcode, needed, blocks: most },
            });
        }
        let seen = state.seen.as_ref().expect("the doorbell was rung");
        assert_eq!((&seen.request[..], seen.entry.output_length.get()), (&request[..], C::OUTPUT as u32));
        let (entry, blocks) = state.left.as_ref().expect("it was heard");
        if entry.status_own & 1 != 0 {
            let milliseconds = self.config.timeout_ms;
            assert_eq!(state.waited, u64::from(milliseconds) * 1_000_000);
            return Err(CommandQueueError::TimedOut { command: opcode, milliseconds });
        }
        if entry.status_own != 0 {
            let status = DeliveryStatus(entry.status_own >> 1);
            return Err(CommandQueueError::Delivery { command: opcode, status });
        }
        let token = seen.entry.token;
        let mut good = xor(entry.as_bytes()) == 0xff && entry.token == token;
        let mut reply = entry.output.to_vec();
        for (number, block) in blocks.iter().enumerate() {
            good &= is_good(block, number, token);
            reply.extend(block.data);
        }
        if self.config.verify_replies && !good {
            return Err(CommandQueueError::Reply { command: opcode });
        }
        reply.truncate(C::OUTPUT);
        Ok(command.decode(&reply)?)
    }

    fn start(&mut self) {
        let mut clock = self.device;
        let started = self.queue.start(&mut self.pages, &mut clock);
        self.note(started.err());
    }

    /// Stops the device, and asserts that it has returned all pages.
    fn stop(&mut self) {
        let mut clock = self.device;
        let stopped = self.queue.stop(&mut self.pages, &mut clock);
        if stopped.is_ok() {
            assert!(self.pages.taken.is_empty(), "{:?}", self.pages.taken);
        }
        self.note(stopped.err());
    }

    /// Records the result of a call that executes several commands.
    fn note(&mut self, error: Option<CommandQueueError>) {
        if self.is_lost {
            assert_eq!(error, Some(CommandQueueError::Lost));
        }
        // Whether the queue is lost depends on the answer to the last command, and `error` may be an earlier
        // one: `stop` continues after some errors and returns the first.
        let left = &self.device.state.borrow().left;
        self.is_lost |= left.as_ref().is_some_and(|(entry, _)| entry.status_own & 1 != 0);
        assert!(self.is_lost || !matches!(error, Some(CommandQueueError::TimedOut { .. })));
        assert!(!self.is_lost || error.is_some());
        assert!(!error.is_some_and(|error| error.to_string().is_empty()));
    }
}
