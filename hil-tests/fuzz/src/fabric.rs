//! Fuzz target for the fabric, by which the emulated devices of several machines form one network: a hub
//! forwards bytes between its members, one per machine. A member that sends arbitrary bytes to the hub must
//! not harm the other members.

use crate::input::Input;
use mlx5_fabric::{Channel, Effect, Frame, MEMBERS, Node, Role, SLOTS, Secret, Table, WINDOW};

/// The most frames of an input.
const FRAMES: usize = 64;

/// The hub's link to the hostile member. The links 0 and 1 lead to two well-behaved members.
const HOSTILE: u32 = 2;

struct World {
    hub: Node,
    members: [Node; 3],
}

impl World {
    fn new() -> Self {
        let secret = Secret::new(b"a secret of 24 letters..").unwrap();
        let member = || Node::new(Role::Member, secret.clone());
        let mut world =
            Self { hub: Node::new(Role::Hub, secret.clone()), members: [member(), member(), member()] };
        for number in 0..3 {
            world.hub.connect(number, [number as u8; 32]);
        }
        world
    }

    /// Carries bytes between the hub and its members until none are left. Returns the bytes that the second
    /// member writes to its processes, with their channels.
    fn settle(&mut self) -> Vec<(Channel, Vec<u8>)> {
        let mut written = Vec::new();
        loop {
            let mut moved = false;
            for number in 0..3 {
                while let Some(effect) = self.members[number as usize].effect() {
                    moved = true;
                    match effect {
                        Effect::Send(_, bytes) => self.hub.receive(number, &bytes),
                        Effect::Write(channel, bytes) if number == 1 => written.push((channel, bytes)),
                        Effect::Drop(..) => assert_eq!(number, HOSTILE, "a sound member drops the hub"),
                        _ => {}
                    }
                }
            }
            while let Some(effect) = self.hub.effect() {
                moved = true;
                match effect {
                    Effect::Send(link, bytes) => self.members[link as usize].receive(0, &bytes),
                    Effect::Drop(link, _) => assert_eq!(link, HOSTILE, "the hub drops a sound member"),
                    _ => {}
                }
            }
            if !moved {
                return written;
            }
        }
    }
}

fn frame(input: &mut Input<'_>) -> Frame {
    let byte = |input: &mut Input<'_>| input.any::<u8>();
    let channel = Channel { member: byte(input) % (MEMBERS + 1), number: u32::from(byte(input) % 4) };
    let slot = (byte(input) % 5).wrapping_mul(SLOTS).wrapping_add(byte(input) % 2);
    match byte(input) % 9 {
        0 => Frame::Hello([1; 32]),
        1 => Frame::Proof([2; 32]),
        2 => Frame::Welcome(byte(input)),
        3 => Frame::Process(slot, Table { addresses: vec![byte(input)], services: Vec::new() }),
        4 => Frame::Gone(slot),
        5 => Frame::Open(channel, slot),
        6 => Frame::Data(channel, vec![byte(input); usize::from(byte(input)) << 8]),
        7 => Frame::Credit(channel, u32::from(byte(input)) << 12),
        _ => Frame::Close(channel),
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new();
    let proves = !input.one_in(4);
    for number in 0..if proves { 3 } else { 2 } {
        world.members[number].connect(0, [0x80 + number as u8; 32]);
    }
    world.settle();
    // Member 1 has the numbers of processes from `SLOTS` on, and member 2 those from `2 * SLOTS` on. Each of
    // these two well-behaved members has one process, with its first number.
    world.members[0].process(SLOTS, Some(Table { addresses: vec![1], services: Vec::new() }));
    world.members[1].process(2 * SLOTS, Some(Table { addresses: vec![2], services: Vec::new() }));
    world.settle();
    let channel = world.members[0].open(2 * SLOTS).expect("the process is shown");
    world.settle();
    for _ in 0..FRAMES {
        if input.is_empty() {
            break;
        }
        let mut bytes = Vec::new();
        match input.any::<u8>() % 8 {
            0 => bytes = input.bytes(16),
            1 => {
                // The hostile member announces or withdraws a process of its own.
                let slot = 3 * SLOTS + input.any::<u8>() % 2;
                let table = Table { addresses: vec![input.any::<u8>()], services: Vec::new() };
                world.members[2].process(slot, (input.below(2) == 0).then_some(table));
            }
            2 => drop(world.members[0].open(3 * SLOTS + input.any::<u8>() % 2)),
            _ => frame(&mut input).encode(&mut bytes),
        }
        world.hub.receive(HOSTILE, &bytes);
        world.settle();
    }
    // The channel between the two well-behaved members still carries bytes, and its whole window is free.
    assert_eq!(world.members[0].room(channel), WINDOW as usize);
    world.members[0].write(channel, b"sound");
    assert_eq!(world.settle(), [(channel, b"sound".to_vec())]);
}
