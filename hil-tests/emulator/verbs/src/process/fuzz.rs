//! The entries of the fuzz targets `standin` and `rdma-cm` (`connections.rs`). They make the calls of the
//! kernel's interface that arbitrary bytes encode. The calls go directly to the device, without an open file.
//!
//! All memory that a call can name is one arena at a fixed address. All other addresses count as unmapped.
#![allow(unsafe_code, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

pub(crate) mod connections;

use crate::command::commands::{COMMANDS, Command};
use crate::command::dispatch;
use crate::command::methods::{METHODS, Method};
use crate::command::numbers::{COMMAND, DEVICE, DEVX, DEVX_COMMANDS, DEVX_OBJECT, INVOKE_WRITE, QP, UHW_IN};
use crate::command::request::{Kind, Spec};
use crate::fabric::News;
use crate::fabric::codec::{Packet, decode, encode, encode_notice};
use crate::ground::owner;
use crate::ground::port::Port;
use crate::ground::process_memory::{ProcessMemory, set_window};
use crate::ground::settings::Settings;
use crate::process::life;
use crate::state::{Counts, Pace, State};
use mlx5_softdev::{CryptoMode, DeviceProfile, Memory};
use std::cell::RefCell;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use tempfile::TempDir;

/// Address and length of the arena.
const ARENA: u64 = 0x10_0000_0000;
const ARENA_BYTES: u64 = 1 << 16;

/// Places in the arena: for a call, for its inputs, for its outputs, and for queues.
const CALL: u64 = ARENA;
const INPUTS: u64 = ARENA + 0x1000;
const OUTPUTS: u64 = ARENA + 0x5000;
const QUEUES: u64 = ARENA + 0x8000;

/// The descriptor of the device. No file has this number.
const DESCRIPTOR: RawFd = 1_000_000;

/// Object and number of the method that opens a context.
const GET_CONTEXT: (u16, u16) = (DEVICE, 3);

/// Opcodes of commands of the device, and types of general objects. Seven of eight commands that the input
/// makes have one of these opcodes or types.
const OPCODES: [u16; 23] = [
    0x100, 0x200, 0x400, 0x500, 0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a, 0x50b, 0x50c, 0x50e, 0x600,
    0x754, 0x842, 0x90c, 0x90d, 0xa00, 0xa01, 0xa02, 0xb12,
];
const TYPES: [u16; 3] = [0x0c, 0x1f, 0];

/// The opcode in [`OPCODES`] of the command that Linux never passes to a device.
#[cfg(test)]
const SQD_RTS_QP: u16 = 0x50c;

/// The most calls of a sequence.
const CALLS: usize = 64;

/// The sizes of `struct ib_uverbs_ioctl_hdr` and `struct ib_uverbs_attr`, in bytes.
const HEADER: u64 = 24;
const ATTRIBUTE: u64 = 16;

/// The remaining input bytes. Reads after their end return zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (taken, rest) = self.0.split_at(N.min(self.0.len()));
        bytes.iter_mut().zip(taken).for_each(|(byte, taken)| *byte = *taken);
        self.0 = rest;
        bytes
    }

    fn byte(&mut self) -> u8 {
        u8::from_le_bytes(self.bytes())
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        *choices.get(self.below(choices.len())).expect("a choice")
    }

    /// Returns a number from the input: mostly one that is likely to be valid, such as a small number or an
    /// address.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0..3 => self.byte().into(),
            3 => QUEUES + u64::from(self.byte()) * 64,
            4 => ARENA + u64::from(u16::from_le_bytes(self.bytes())),
            5 => 1 << self.below(64),
            6 => self.pick(&[u64::MAX, 1 << 12, 1 << 16, 0xffff_ffff, 0x00ff_ffff, 0x8000_0000, 4096, 64]),
            _ => u64::from_le_bytes(self.bytes()),
        }
    }
}

/// The devices of this thread. They live as long as the thread, because a new device takes time to join the
/// fabric.
struct Standin {
    states: [State; 2],
    /// The directory of the fabric through which these two devices, and no others, exchange messages.
    _directory: TempDir,
}

impl Standin {
    fn new() -> Self {
        life::prepare();
        // SAFETY: the call asks the kernel for memory at an address that must be free.
        let arena = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let wanted = std::ptr::without_provenance_mut(ARENA as usize);
            libc::mmap(wanted, ARENA_BYTES as usize, rights, flags, -1, 0)
        };
        assert_eq!(arena.addr() as u64, ARENA, "the arena is free");
        set_window(ARENA..ARENA + ARENA_BYTES);
        let directory = tempfile::tempdir().expect("a directory");
        let state = |crypto| {
            let profile = DeviceProfile { crypto, max_message_bytes: 1 << 16, ..DeviceProfile::default() };
            let settings = Settings {
                directory: directory.path().into(),
                profile,
                ports: vec![Port::alone()],
                view: None,
                write_combining: true,
                executes: true,
                log: false,
                log_json: None,
                pcap: None,
                faults: None,
            };
            let mut state = State::new(&settings, 0).expect("a device");
            // Object numbers are reused, so that an input does not depend on earlier inputs.
            state.device.reuse_numbers();
            state
        };
        let states = [CryptoMode::Plaintext, CryptoMode::Wrapped].map(state);
        Self { states, _directory: directory }
    }
}

thread_local! {
    static STANDIN: RefCell<Option<Standin>> = const { RefCell::new(None) };
}

/// Makes the calls that `bytes` encode, and closes the device. Panics if an object is left afterwards.
pub fn run(bytes: &[u8]) {
    with_devices(|[plaintext, wrapped]| {
        let mut input = Input(bytes);
        let state = if input.below(4) == 0 { wrapped } else { plaintext };
        session(state, &mut input);
    });
}

/// Calls `body` with the devices of this thread.
fn with_devices(body: impl FnOnce(&mut [State; 2])) {
    STANDIN.with_borrow_mut(|standin| {
        let Standin { states, .. } = standin.get_or_insert_with(Standin::new);
        owner::as_device(|| body(states));
    });
}

/// Returns the numbers of contexts, objects and channels.
fn held(state: &State) -> [u64; 3] {
    let Counts { contexts, objects, channels, .. } = state.counts();
    [contexts, objects, channels]
}

fn session(state: &mut State, input: &mut Input<'_>) {
    ProcessMemory.write(ARENA, &[0; ARENA_BYTES as usize]).expect("the arena is memory");
    state.open(DESCRIPTOR);
    let mut made = Vec::new();
    // Most sequences begin with GET_CONTEXT, because almost all other calls need an open context.
    if input.below(16) != 0 {
        call(state, get_context(), &mut Input(&[]), &mut made);
    }
    for _ in 0..CALLS {
        if input.0.is_empty() {
            break;
        }
        match input.below(8) {
            0 => {
                let (address, value) =
                    (QUEUES + u64::from(u16::from_le_bytes(input.bytes())) % 0x8000, input.number());
                // A write that crosses the arena's end fails, which is no fault of the device.
                let _ = ProcessMemory.write(address, &value.to_be_bytes());
            }
            1 => {
                state.work(Pace::Clock, false);
            }
            2 => message(state, input),
            _ => {
                let method = &METHODS[input.below(METHODS.len())];
                call(state, method, input, &mut made);
            }
        }
    }
    state.work(Pace::Clock, false);
    for descriptor in made {
        state.close(descriptor);
        // SAFETY: the descriptor was made for the program. This function plays the program, and nobody else
        // closes the descriptor.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    state.close(DESCRIPTOR);
    state.work(Pace::Clock, false);
    assert_eq!(held(state), [0; 3], "contexts, objects and channels are left");
}

/// Sends bytes as another process would. Most of them resemble a message: they have correct lengths, a
/// plausible number of fields, and a known kind. A message that decodes must stay the same when it is encoded
/// and decoded again.
fn message(state: &mut State, input: &mut Input<'_>) {
    // The counts of fields of all messages.
    const FIELDS: [usize; 19] = [1, 10, 11, 17, 18, 20, 27, 29, 30, 32, 40, 41, 44, 57, 60, 61, 71, 73, 101];
    let count = if input.below(2) == 0 { input.pick(&FIELDS) } else { input.below(64) };
    let data = if input.below(2) == 0 { 0 } else { input.below(64) };
    let mut body = input.bytes::<192>();
    if input.below(4) != 0 {
        // The mask makes kinds, flags and queue pair numbers small. The bytes for kinds of responses and
        // requests keep more bits, since there are more kinds.
        for (at, byte) in body[..16].iter_mut().enumerate() {
            *byte &= if matches!(at, 0 | 9 | 10 | 13) { 7 } else { 3 };
        }
    }
    let told = if input.below(16) == 0 { input.number() as u32 } else { data as u32 };
    let bytes = [&told.to_le_bytes(), &[count as u8][..], &body[..count + data]].concat();
    let Ok(Some(packet)) = decode(&bytes) else { return };
    match packet {
        Packet::Connection(notice) => {
            let again = encode_notice(&notice).bytes();
            assert_eq!(decode(&again), Ok(Some(Packet::Connection(notice.clone()))));
            state.manage(News::Notice(notice));
        }
        Packet::Device(message) => {
            let again = encode(message.clone()).bytes();
            assert_eq!(decode(&again), Ok(Some(Packet::Device(message.clone()))));
            state.device.deliver(message);
        }
        Packet::Frame(_) => {}
    }
}

/// Returns the method that opens a context.
fn get_context() -> &'static Method {
    let method = METHODS.iter().find(|method| (method.object, method.method) == GET_CONTEXT);
    method.expect("a context can be opened")
}

/// Makes a call of a method with mostly valid attributes.
fn call(state: &mut State, method: &Method, input: &mut Input<'_>, made: &mut Vec<RawFd>) {
    let mut call = Vec::new();
    let (mut inputs, mut outputs, mut count) = (INPUTS, OUTPUTS, 0_u16);
    let number = (method.object, method.method);
    let is_write = number == INVOKE_WRITE;
    let command = is_write.then(|| &COMMANDS[input.below(COMMANDS.len())]);
    let is_devx = matches!(method.object, DEVX | DEVX_OBJECT | DEVX_COMMANDS);
    let opens = number == GET_CONTEXT;
    let (makes_qp, mut limits) = (number == (QP, 0), INPUTS);
    for spec in method.attributes {
        if !spec.required && !is_write && input.below(3) == 0 {
            continue;
        }
        let flaw = input.below(64);
        let kind = CallKind { command, is_devx, opens };
        let (length, data) = attribute(spec, kind, input, &mut inputs, &mut outputs);
        match spec.id {
            CAPABILITIES if makes_qp => limits = data,
            UHW_IN if makes_qp => match_receives(limits, data),
            _ => {}
        }
        let length = if flaw == 1 { u16::from_le_bytes(input.bytes()) } else { length };
        let data = if flaw == 2 { input.number() } else { data };
        let (id, flags) = (if flaw == 3 { u16::from(input.byte()) } else { spec.id }, u16::from(flaw != 4));
        call.extend([id, length, flags, u16::from(flaw == 5)].iter().flat_map(|word| word.to_ne_bytes()));
        call.extend(data.to_ne_bytes());
        count += 1;
    }
    let length = HEADER + u64::from(count) * ATTRIBUTE;
    let header = [length as u16, method.object, method.method, count];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend([0; 8]);
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(call);
    ProcessMemory.write(CALL, &bytes).expect("room for a call");
    let address = if input.below(64) == 1 { input.number() } else { CALL };
    let context = state.context_of(DESCRIPTOR).expect("the context is open");
    made.extend(dispatch(state, context, address).ok().flatten());
}

/// The attribute of QP_CREATE with the limits of the queue pair.
const CAPABILITIES: u16 = 8;

/// Makes the number of receive requests in the limits of a queue pair equal to the slots of its ring, since a
/// call with different numbers is refused. `driver` is the address of the driver's input, which has the
/// slots.
fn match_receives(limits: u64, driver: u64) {
    let mut slots = [0; 4];
    ProcessMemory.read(driver + 20, &mut slots).expect("inputs are memory");
    ProcessMemory.write(limits + 4, &slots).expect("inputs are memory");
}

/// The properties of a call on which the call's inputs depend.
#[derive(Clone, Copy)]
struct CallKind<'a> {
    /// The command, if the call is of the older `write` interface.
    command: Option<&'a Command>,
    /// Whether the call carries a command of the device.
    is_devx: bool,
    /// Whether the call opens a context.
    opens: bool,
}

/// Returns length and data of an attribute. Bytes that do not fit into the data are put into the arena.
fn attribute(
    spec: &Spec,
    CallKind { command, is_devx, opens }: CallKind<'_>,
    input: &mut Input<'_>,
    inputs: &mut u64,
    outputs: &mut u64,
) -> (u16, u64) {
    match spec.kind {
        Kind::In(..)
            if spec.id == COMMAND
                && let Some(command) = command =>
        {
            (8, command.number)
        }
        Kind::Object => (0, input.byte().into()),
        Kind::NewObject => (0, 0),
        Kind::Flags => (8, input.number()),
        Kind::In(least, ..=8) => (least, input.number()),
        // Only one input has a minimum of 2 bytes: the list of events of DEVX_SUBSCRIBE_EVENT.
        Kind::In(2, _) => events(input, inputs),
        Kind::In(least, _) => {
            let least = match command {
                _ if is_devx => 16 << input.below(6),
                Some(command) => command.input,
                None => least.into(),
            };
            let extra = if input.below(4) == 0 { input.byte().into() } else { 0 };
            let mut bytes = structure(input, least + extra);
            if opens {
                // The context is opened with DEVX, with two doorbell registers, and for completion entries of
                // version 1.
                bytes.resize(bytes.len().max(32), 0);
                bytes[..4].copy_from_slice(&2_u32.to_ne_bytes());
                bytes[8..12].copy_from_slice(&1_u32.to_ne_bytes());
                bytes[16] = 1;
            }
            if is_devx {
                // In one of eight cases, the opcode or type comes from the input and is arbitrary.
                if input.below(8) != 0 {
                    bytes[..2].copy_from_slice(&input.pick(&OPCODES).to_be_bytes());
                }
                if input.below(8) != 0 {
                    bytes[6..8].copy_from_slice(&input.pick(&TYPES).to_be_bytes());
                }
            }
            put(&bytes, inputs)
        }
        Kind::Out(least, most) => {
            let least = match (command, least) {
                (Some(command), _) => command.output,
                (None, 0) => 64,
                (None, least) => least.into(),
            };
            let is_long = input.below(4) == 0 || is_devx;
            let length = if is_long { usize::from(most).min(512) } else { least };
            let at = *outputs;
            *outputs = at + 512;
            (length as u16, at)
        }
    }
}

/// Returns a list of event numbers to subscribe to, mostly one or two valid numbers.
fn events(input: &mut Input<'_>, inputs: &mut u64) -> (u16, u64) {
    let count = if input.below(8) == 0 { input.below(32) } else { input.below(3) };
    let numbers: Vec<u8> = (0..count).flat_map(|_| u16::from(input.byte() % 0x18).to_ne_bytes()).collect();
    match numbers.len() {
        // A list of at most 8 bytes is in the data itself.
        length @ ..=8 => {
            let mut data = [0; 8];
            data[..length].copy_from_slice(&numbers);
            (length as u16, u64::from_ne_bytes(data))
        }
        _ => put(&numbers, inputs),
    }
}

/// Puts an input into the arena. Returns its length and its address.
fn put(bytes: &[u8], inputs: &mut u64) -> (u16, u64) {
    let at = if *inputs + bytes.len() as u64 > OUTPUTS { INPUTS } else { *inputs };
    *inputs = (at + bytes.len() as u64).next_multiple_of(8);
    ProcessMemory.write(at, bytes).expect("room for inputs");
    (bytes.len() as u16, at)
}

/// Returns a structure of numbers of 4 or 8 bytes. Some numbers are big endian, as in commands to the device.
fn structure(input: &mut Input<'_>, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let value = input.number();
        match input.below(4) {
            0 => bytes.extend(value.to_ne_bytes()),
            1 => bytes.extend((value as u32).to_be_bytes()),
            2 => bytes.extend([0; 4]),
            _ => bytes.extend((value as u32).to_ne_bytes()),
        }
    }
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_softdev::commands::steps;
    use std::collections::BTreeSet;

    /// Returns the values of the constants in `source` whose names begin with `start`.
    fn numbers(source: &str, start: &str) -> BTreeSet<u16> {
        let number = |line: &str| {
            let (_, named) = line.split_once("const ").filter(|(_, named)| named.starts_with(start))?;
            let (_, number) = named.split_once(": u16 = 0x")?;
            u16::from_str_radix(number.strip_suffix(';')?, 16).ok()
        };
        source.lines().filter_map(number).collect()
    }

    /// [`OPCODES`] has all opcodes that `frame.rs` names, and all commands that change the state of a queue
    /// pair. [`TYPES`] has all types of general objects that `frame.rs` names.
    #[test]
    fn all_commands_of_the_device_are_made() {
        let source = include_str!("../command/devx/frame.rs");
        let (_, opcodes) = source.split_once("mod opcode {").expect("opcodes have a module");
        let (opcodes, _) = opcodes.split_once("\n}").expect("it ends");
        let mut known = numbers(opcodes, "");
        assert_eq!(known.len(), opcodes.matches("const ").count(), "all are understood");
        known.extend((0..=u16::MAX).filter(|opcode| steps(*opcode)));
        // [`OPCODES`] also has a command that Linux passes to no device.
        assert!(known.insert(SQD_RTS_QP));
        assert_eq!(known, BTreeSet::from(OPCODES));
        let mut types = numbers(include_str!("../command/devx/frame.rs"), "TYPE_");
        assert!(types.insert(0), "what is no general object");
        assert_eq!(types, BTreeSet::from(TYPES));
    }

    /// [`attribute`] recognizes the list of events by its minimum of 2 bytes.
    #[test]
    fn one_input_has_a_minimum_of_two_bytes() {
        let specs = METHODS.iter().flat_map(|method| method.attributes);
        assert_eq!(specs.filter(|spec| matches!(spec.kind, Kind::In(2, 9..))).count(), 1);
    }

    // One test makes all these calls, since the process has only one arena.
    #[test]
    fn calls_of_any_kind_leave_nothing_behind() {
        for seed in 1..200_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut byte = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 24) as u8
            };
            let bytes: Vec<u8> = (0..512).map(|_| byte()).collect();
            run(&bytes);
            connections::run(&bytes);
        }
        inputs_that_fuzzing_found("standin", run);
        inputs_that_fuzzing_found("rdma-cm", connections::run);
        an_untold_channel_is_closed();
        events_are_asked_for();
    }

    /// Runs the corpus of a fuzz target.
    fn inputs_that_fuzzing_found(target: &str, run: fn(&[u8])) {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
        let corpus = std::path::Path::new(corpus).join(target);
        let files: Vec<_> = std::fs::read_dir(corpus).expect("there is a corpus").collect();
        assert!(!files.is_empty());
        for file in files {
            let path = file.expect("the folder is read").path();
            eprintln!("{}", path.display());
            run(&std::fs::read(path).expect("the file is read"));
        }
    }

    /// Checks that lists of events reach the call that takes them: a list of one number in the data, a longer
    /// list in the arena.
    fn events_are_asked_for() {
        let length = |bytes: &[u8]| {
            let mut inputs = INPUTS;
            let (length, data) = events(&mut Input(bytes), &mut inputs);
            (length, data, inputs)
        };
        assert_eq!(length(&[1, 1, 0x13]), (2, u64::from_ne_bytes([0x13, 0, 0, 0, 0, 0, 0, 0]), INPUTS));
        assert_eq!(length(&[8, 20, 0x14]), (40, INPUTS, INPUTS + 40));
        let mut written = [0; 4];
        ProcessMemory.read(INPUTS, &mut written).expect("the arena is memory");
        assert_eq!(written, [0x14, 0, 0, 0]);
    }

    /// Checks that a channel is closed if its descriptor cannot be written to the program. Fuzzing found that
    /// the channel stayed open, although nobody knew its descriptor.
    fn an_untold_channel_is_closed() {
        STANDIN.with_borrow_mut(|standin| {
            let [state, _] = &mut standin.as_mut().expect("it was made").states;
            state.open(DESCRIPTOR);
            call(state, get_context(), &mut Input(&[]), &mut Vec::new());
            // The call is CREATE_COMP_CHANNEL, with an unmapped address for the answer.
            let attributes = [[0_u64, 8, 0], [1, 4, 0x10], [2, 8, 17]];
            let mut bytes: Vec<u8> = [72_u16, 0, 0, 3].iter().flat_map(|word| word.to_ne_bytes()).collect();
            bytes.extend([0; 8]);
            bytes.extend(1_u64.to_ne_bytes());
            for [id, length, data] in attributes {
                bytes.extend([(id | length << 16 | 1 << 32).to_ne_bytes(), data.to_ne_bytes()].concat());
            }
            ProcessMemory.write(CALL, &bytes).expect("room for a call");
            let context = state.context_of(DESCRIPTOR).expect("the context is open");
            assert_eq!(dispatch(state, context, CALL).map_err(|errno| errno.0), Err(libc::EFAULT));
            assert_eq!(held(state), [1, 0, 0]);
            state.close(DESCRIPTOR);
        });
    }
}
