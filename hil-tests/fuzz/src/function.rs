//! Fuzz target for the emulated PCI function: BAR 0, configuration space, memory that is mapped and unmapped,
//! and commands. A client (in practice QEMU) and its guest write arbitrary bytes to all of them. The function
//! must not panic or hang, and must leave unmapped memory unchanged. The function joins no network: the
//! target `fabric` tests the messages of other machines.

use crate::input::Input;
use crate::values::edge;
use mlx5_function::{Function, GuestMemory, Model, Region, Rights};
use mlx5_plan::Plan;
use mlx5_softdev::{DeviceProfile, Memory, Phase, Port};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::os::fd::OwnedFd;

/// The guest's memory is a file: first the mapped part of `MAPPED` bytes at address `BASE`, then an unmapped
/// part of `ASIDE` bytes.
const BASE: u64 = 0x1000_0000;
const MAPPED: u64 = 1 << 20;
const ASIDE: u64 = 4096;

/// Addresses in the mapped part: command entries, blocks of requests and replies, rings, pages for the
/// firmware.
const REQUEST: u64 = BASE + 0x4000;
const REPLY: u64 = BASE + 0x8000;
const RINGS: u64 = BASE + 0x10000;
const FIRMWARE: u64 = BASE + 0x40000;
const FIRMWARE_PAGES: u64 = 155;

/// The most steps of a sequence.
const STEPS: usize = 32;

/// The opcodes of the commands that the client sends.
const COMMANDS: &[u16] = &[
    0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x107, 0x108, 0x109, 0x10a, 0x10b, 0x200, 0x202, 0x301, 0x302,
    0x400, 0x401, 0x403, 0x500, 0x501, 0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a, 0x50b, 0x50d, 0x50e,
    0x600, 0x601, 0x705, 0x706, 0x750, 0x754, 0x755, 0x761, 0x762, 0x763, 0x764, 0x765, 0x771, 0x772, 0x800,
    0x801, 0x802, 0x803, 0x805, 0x80e, 0x80f, 0x816, 0x817, 0x900, 0x901, 0x902, 0x904, 0x905, 0x906, 0x908,
    0x909, 0x90a, 0x90c, 0x90d, 0x90e, 0x912, 0x913, 0x914, 0x916, 0x917, 0x918, 0x92f, 0x930, 0x931, 0x933,
    0x934, 0x936, 0x938, 0x93c, 0x770, 0x773, 0x829, 0x82b, 0xa00, 0xa01, 0xa02, 0xa03, 0xa04, 0xa06, 0xa08,
    0xa0a, 0xb12,
];

/// Returns the text of a plan of faults, or `None` for a device without faults. The plan causes no faults in
/// the commands of [`World::start`], which initialize the device.
fn planned(input: &mut Input<'_>) -> Option<String> {
    let (nth, one) = (FIRST_FAULT + input.below(24), 1 + input.below(4));
    let words = input.pick(&[
        None,
        None,
        Some("call@NTH=fatal"),
        Some("call@NTH=removed"),
        Some("call@NTH=unheard,completion@ONE=late"),
        Some("call@NTH+=status:8,end@ONE=status:9"),
        Some("completion@ONE=twice,completion@3=dropped"),
        Some("completion@ONE=stranger,completion@2=overrun"),
    ])?;
    Some(words.replace("NTH", &nth.to_string()).replace("ONE", &one.to_string()))
}

/// The number of the first command after those of [`World::start`], counted from 1.
const FIRST_FAULT: u32 = 8;

struct World {
    function: Function,
    file: OwnedFd,
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let profile = DeviceProfile {
            port: input.pick(&[Port::Ethernet, Port::InfiniBand]),
            max_message_bytes: 1 << 16,
            max_ranges: 1 << 10,
            ..DeviceProfile::default()
        };
        let file = memfd_create("memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, MAPPED + ASIDE).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        pwrite(&file, &[0xa5; ASIDE as usize], MAPPED).unwrap();
        let model = input.pick(&[Model::BlueField3, Model::BlueField2, Model::ConnectX6Dx]);
        let mut function = Function::new(model, model.profile(profile));
        if let Some(words) = planned(input) {
            function.plan(Plan::parse(&words).unwrap(), |_| {});
        }
        let mut world = Self { function, file };
        world.map();
        world
    }

    fn map(&mut self) {
        let rights = Rights { read: true, write: true };
        // If the range is mapped already, the function refuses the call.
        let _ = self.function.map(BASE, MAPPED, rights, Some((&self.file, 0)));
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        if address >= BASE && address - BASE + bytes.len() as u64 <= MAPPED {
            pwrite(&self.file, bytes, address - BASE).unwrap();
        }
    }

    fn register(&mut self, at: u64, value: u32) {
        self.function.write(Region::Bar, at, &value.to_be_bytes()).unwrap();
    }

    /// Writes a command for the device. Its blocks have no signatures, which are optional.
    fn command(&mut self, request: &[u8], room: usize) {
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(request.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&REQUEST.to_be_bytes());
        entry[0x10..0x20].copy_from_slice(&request[..16]);
        entry[0x30..0x38].copy_from_slice(&REPLY.to_be_bytes());
        entry[0x38..0x3c].copy_from_slice(&(room as u32).to_be_bytes());
        for (first, data) in [(REQUEST, &request[16..]), (REPLY, &vec![0; room.saturating_sub(16)][..])] {
            for (number, chunk) in data.chunks(512).enumerate() {
                let (mut block, at) = ([0; 576], first + number as u64 * 1024);
                block[..chunk.len()].copy_from_slice(chunk);
                block[0x230..0x238].copy_from_slice(&(at + 1024).to_be_bytes());
                block[0x238..0x23c].copy_from_slice(&(number as u32).to_be_bytes());
                self.write(at, &block);
            }
        }
        entry[0x3f] = 1;
        entry[0x3d] = entry.iter().fold(0xff, |sum, byte| sum ^ byte);
        self.write(BASE, &entry);
        self.register(0x18, 1);
    }

    /// Takes the device to the state in which it creates objects.
    fn start(&mut self) {
        self.function.write(Region::Config, 4, &[6, 0]).unwrap();
        for _ in 0..4 {
            self.function.read(Region::Bar, 0x1fc, &mut [0; 4]).unwrap();
        }
        self.register(0x10, 0);
        self.register(0x14, BASE as u32);
        let short = |opcode: u16| [&opcode.to_be_bytes()[..], &[0; 14]].concat();
        self.command(&short(0x104), 12);
        let mut give =
            [&[1, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7][..], &(FIRMWARE_PAGES as u32).to_be_bytes()].concat();
        (0..FIRMWARE_PAGES).for_each(|page| give.extend((FIRMWARE + page * 4096).to_be_bytes()));
        self.command(&give, 16);
        self.command(&short(0x102), 16);
        assert_eq!(self.function.device_mut().phase(), Phase::Running);
        self.command(&short(0x802), 16);
        self.command(&short(0x800), 16);
        // The device creates a user context, which commands can name.
        self.command(&short(0xa04), 16);
        // The device creates an event queue for all events, which other objects can name.
        (0..64).for_each(|entry| self.write(RINGS + entry * 64 + 0x3f, &[1]));
        let mut create = short(0x301);
        create.resize(0x118, 0);
        create[0x1c..0x20].copy_from_slice(&(6 << 24 | 0x10_u32).to_be_bytes());
        create[0x58..0x60].fill(0xff);
        create[0x110..].copy_from_slice(&RINGS.to_be_bytes());
        self.command(&create, 16);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(10) {
            0..=3 => {
                let (opcode, length) =
                    (input.pick(COMMANDS), input.pick(&[16, 24, 0x110, 0x118, 0x120, 0x200]));
                let mut request = input.bytes(length.min(64));
                request.resize(length, 0);
                request[..2].copy_from_slice(&opcode.to_be_bytes());
                // The request names objects that may exist, and addresses of memory. It is a command of the
                // host, of a user context that may exist, or of all contexts.
                let uid = input.pick(&[0, 0, 1, 2, 3, 0xffff]);
                request[2..4].copy_from_slice(&u16::to_be_bytes(uid));
                request[4..7].fill(0);
                if input.one_in(2) {
                    request[8..12].copy_from_slice(&input.below(0x48).to_be_bytes());
                }
                for at in (0x10..length.saturating_sub(8)).step_by(8) {
                    if input.one_in(8) {
                        let place = RINGS + u64::from(input.below(64)) * 64;
                        request[at..at + 8].copy_from_slice(&place.to_be_bytes());
                    }
                }
                if length > 0x110 {
                    request[0x110..0x118].copy_from_slice(&(RINGS + 4096).to_be_bytes());
                }
                self.command(&request, input.pick(&[8, 12, 16, 0x110, 16 + 4096]));
            }
            4 => {
                let at = RINGS + u64::from(input.below(0x4000)) * 4;
                let bytes = input.bytes(64);
                self.write(at, &bytes);
            }
            5 => {
                let page = 0x10 + u64::from(input.below(3));
                let at = page * 4096 + input.pick(&[0x20, 0x40, 0x48, 0x800, 0x900, 0x808, 0x7f0]);
                let length = input.pick(&[8, 4, 64, 3]);
                let bytes = input.bytes(length);
                let _ = self.function.write(Region::Bar, at, &bytes);
            }
            6 => {
                let region = input.pick(&[Region::Bar, Region::Config]);
                let (at, length) = (edge(input) % (region.bytes() + 2), input.pick(&[4, 1, 8, 64]));
                let bytes = input.bytes(length);
                let _ = self.function.write(region, at, &bytes);
            }
            7 => {
                let region = input.pick(&[Region::Bar, Region::Config]);
                let (at, length) = (edge(input) % (region.bytes() + 2), input.below(80) as usize);
                let _ = self.function.read(region, at, &mut vec![0; length]);
            }
            8 => {
                self.function.run();
            }
            _ => match input.below(6) {
                0 => self.function.reset(),
                1 => drop(self.function.unmap(Some((BASE, MAPPED)))),
                2 => drop(self.function.unmap(Some((edge(input), edge(input))))),
                3 => self.map(),
                4 => drop(self.function.write(Region::Config, 4, &[6, 0])),
                _ => {
                    let rights = Rights { read: input.any(), write: input.any() };
                    let _ = self.function.map(edge(input), edge(input), rights, None);
                }
            },
        }
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(&mut input);
    if !input.one_in(8) {
        world.start();
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.function.run();
    let mut aside = [0; ASIDE as usize];
    pread(&world.file, &mut aside, MAPPED).unwrap();
    assert!(aside.iter().all(|byte| *byte == 0xa5), "memory that is not mapped was written");
    // After the client is gone, no memory is accessible.
    world.function.disconnect();
    let memory: &GuestMemory = world.function.device_mut().memory();
    assert!(memory.read(BASE, &mut [0]).is_err());
}
