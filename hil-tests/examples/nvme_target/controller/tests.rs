#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use crate::capsule::COMMAND;
use mlx5_mkey::types::{BlockSize, DomainKind};
use zerocopy::FromBytes;

const NAME: &str = "nqn.2026-11.test:mkey";
const GEOMETRY: Geometry = Geometry { blocks: 1000, block_size: BlockSize::B512 };

/// Makes a command. `words` are its command dwords from 10 on.
fn command(opcode: u8, namespace: u32, length: usize, words: &[u32]) -> Command {
    let mut bytes = [0; COMMAND];
    bytes[0] = opcode;
    bytes[4..8].copy_from_slice(&namespace.to_le_bytes());
    bytes[32..36].copy_from_slice(&(length as u32).to_le_bytes());
    bytes[39] = 0x40;
    for (place, word) in bytes[40..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    Command::read_from_bytes(&bytes).unwrap()
}

/// Makes the data of Connect: number of the host, controller, and name of the subsystem.
fn data(host: u8, controller: u16, name: &str) -> ConnectData {
    let mut bytes = [0; size_of::<ConnectData>()];
    bytes[0] = host;
    bytes[16..18].copy_from_slice(&controller.to_le_bytes());
    bytes[256..256 + name.len()].copy_from_slice(name.as_bytes());
    ConnectData::read_from_bytes(&bytes).unwrap()
}

fn connect(queue: u32) -> Command {
    command(Command::FABRICS, Command::CONNECT.into(), 1024, &[queue << 16, 31])
}

/// Returns a subsystem with an admin queue and an I/O queue of one host.
fn connected() -> (Subsystem, Queue, Queue) {
    let subsystem = Subsystem::new(NAME, GEOMETRY);
    let admin = subsystem.connect(&connect(0), &data(1, ConnectData::NEW, NAME), 0).unwrap();
    let io = subsystem.connect(&connect(1), &data(1, admin.controller, NAME), 1).unwrap();
    (subsystem, admin, io)
}

fn page(step: Result<Step, Status>) -> Vec<u8> {
    match step {
        Ok(Step::Give(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn queues_belong_to_controllers() {
    let (subsystem, admin, io) = connected();
    assert_eq!((admin, io.controller, io.number), (Queue { controller: 1, number: 0 }, 1, 1));
    let refused = |queue: u32, data: &ConnectData, number| subsystem.connect(&connect(queue), data, number);
    let parameters = Err(Status::CONNECT_PARAMETERS);
    assert_eq!(refused(1, &data(1, 2, NAME), 1), parameters, "no such controller");
    assert_eq!(refused(1, &data(2, 1, NAME), 1), parameters, "the controller of another host");
    assert_eq!(refused(0, &data(1, ConnectData::NEW, "nqn.other"), 0), parameters);
    assert_eq!(refused(1, &data(1, 1, NAME), 0), parameters, "another queue than its private data say");
    assert_eq!(refused(0, &data(1, 7, NAME), 0), parameters, "the target numbers the controllers");
    assert!(subsystem.is_alive(io));
    subsystem.end(io);
    assert!(subsystem.is_alive(admin));
    subsystem.end(admin);
    assert!(!subsystem.is_alive(io));
    assert_eq!(subsystem.decide(io, &command(Command::FLUSH, 1, 0, &[])), Err(Status::SEQUENCE));
}

#[test]
fn a_host_that_is_silent_is_lost() {
    let subsystem = Subsystem::new(NAME, GEOMETRY);
    let limited = command(Command::FABRICS, Command::CONNECT.into(), 1024, &[0, 31, 5000]);
    let queue = subsystem.connect(&limited, &data(1, ConnectData::NEW, NAME), 0).unwrap();
    assert!(subsystem.is_alive(queue));
    let silent = Instant::now().checked_sub(Duration::from_secs(11)).unwrap();
    subsystem.lock().map.get_mut(&queue.controller).unwrap().heard = silent;
    assert!(!subsystem.is_alive(queue), "twice the time of Keep Alive is over");
    assert_eq!(subsystem.decide(queue, &command(Command::KEEP_ALIVE, 0, 0, &[])), Ok(Step::Respond(0)));
    assert!(subsystem.is_alive(queue));
}

#[test]
fn linux_finds_a_volume_with_protection() {
    let (subsystem, admin, _) = connected();
    let identify =
        |namespace, kind| subsystem.decide(admin, &command(Command::IDENTIFY, namespace, 4096, &[kind]));
    let namespace = page(identify(1, 0));
    assert_eq!((&namespace[..8], &namespace[26..30]), (&1000_u64.to_le_bytes()[..], &[0x10, 1, 0x11, 1][..]));
    assert_eq!(namespace[128..132], [8, 0, 9, 0]);
    let controller = page(identify(0, 1));
    assert_eq!((controller.len(), &controller[78..80]), (4096, &[1, 0][..]));
    assert_eq!(&controller[768..768 + NAME.len()], NAME.as_bytes());
    assert_eq!((page(identify(0, 2))[0], page(identify(1, 2))[0]), (1, 0));
    assert_eq!(page(identify(1, 3))[..2], [2, 16]);
    assert_eq!(identify(2, 0), Err(Status::INVALID_NAMESPACE));
    assert_eq!(identify(1, 5), Err(Status::INVALID_FIELD));
}

#[test]
fn a_controller_is_switched_on_and_off() {
    let (subsystem, admin, _) = connected();
    let property =
        |kind: u8, words: &[u32]| subsystem.decide(admin, &command(Command::FABRICS, kind.into(), 0, words));
    let status = || property(Command::PROPERTY_GET, &[0, 0x1c]);
    assert_eq!(status(), Ok(Step::Respond(0)));
    assert_eq!(property(Command::PROPERTY_SET, &[0, 0x14, 0x46_0001]), Ok(Step::Respond(0)));
    assert_eq!(status(), Ok(Step::Respond(1)));
    assert_eq!(property(Command::PROPERTY_SET, &[0, 0x14, 0x46_4001]), Ok(Step::Respond(0)));
    assert_eq!(status(), Ok(Step::Respond(9)), "the shutdown is complete");
    assert_eq!(property(Command::PROPERTY_SET, &[0, 8, 0]), Err(Status::INVALID_FIELD));
    let event = command(Command::ASYNC_EVENT, 0, 0, &[]);
    assert_eq!(subsystem.decide(admin, &event), Ok(Step::Hold));
    assert_eq!(subsystem.decide(admin, &event), Err(Status::TOO_MANY_EVENTS));
}

#[test]
fn blocks_are_checked_as_the_host_asks() {
    let (subsystem, _, io) = connected();
    let read = |length, words: &[u32]| subsystem.decide(io, &command(Command::READ, 1, length, words));
    let all = 1 << 28 | 1 << 27 | 1 << 26;
    let Ok(Step::Read(blocks)) = read(1040, &[9, 0, all | 1, 0, 9, 0xffff_1234]) else { panic!() };
    let signature = blocks.signature(&GEOMETRY);
    assert_eq!((signature.check_mask(), signature.memory_domain()), (0xff, signature.wire_domain()));
    let Some(Domain { signature: Signature::T10Dif(dif), .. }) = signature.domain(DomainKind::Wire) else {
        panic!()
    };
    assert_eq!((dif.app_tag, dif.ref_tag), (0x1234, 9));
    let Ok(Step::Read(blocks)) = read(1024, &[9, 0, 1 << 29 | 1]) else { panic!() };
    let signature = blocks.signature(&GEOMETRY);
    assert_eq!((signature.check_mask(), signature.wire_domain()), (0, None), "inserted and stripped");
    assert_eq!(read(1024, &[9, 0, 1]), Err(Status::SGL_LENGTH));
    assert_eq!(read(520, &[999, 0, 0]).map(drop), Ok(()));
    assert_eq!(read(520, &[1000, 0, 0]), Err(Status::LBA_RANGE));
    assert_eq!(read(520, &[u32::MAX, u32::MAX, 0]), Err(Status::LBA_RANGE));
    assert_eq!(read(520 * 257, &[0, 0, 256]), Err(Status::INVALID_FIELD), "more than the target's limit");
    assert_eq!(read(520, &[9, 0, 1 << 26, 0, 8]), Err(Status::INVALID_PROTECTION));
    assert_eq!(read(520, &[9, 0, 1 << 27, 0, 0, 0xff00_0000]), Err(Status::INVALID_FIELD));
}

#[test]
fn an_error_is_logged_with_its_lba() {
    let (subsystem, admin, io) = connected();
    let read = command(Command::READ, 1, 1040, &[8, 0, 1]);
    let Ok(Step::Read(blocks)) = subsystem.decide(io, &read) else { panic!() };
    let error = SignatureError {
        kind: SignatureErrorKind::RefTag,
        domain: DomainKind::Memory,
        found: 0,
        computed: 9,
        offset: 1039,
        stride: 520,
    };
    assert_eq!(subsystem.report(io, &read, &blocks, &error), Status::REF_TAG);
    let log = page(subsystem.decide(admin, &command(Command::GET_LOG_PAGE, 0, 64, &[1])));
    assert_eq!((log[0], log[8], &log[12..14], log[16]), (1, 1, &[0x08, 0x85][..], 9));
}

#[test]
fn any_command_has_an_answer() {
    let (subsystem, admin, io) = connected();
    let mut state = 1_u64;
    let mut kinds = [0; 2];
    for _ in 0..100_000 {
        let mut bytes = [0; COMMAND];
        for place in bytes.chunks_exact_mut(8) {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            // Each bit is set with a probability of 1/4, because most bytes of valid commands are small.
            place.copy_from_slice(&(state >> 7 & (state << 11)).to_be_bytes());
        }
        bytes[0] &= 0x7f;
        let command = Command::read_from_bytes(&bytes).unwrap();
        for queue in [admin, io] {
            let step = subsystem.decide(queue, &command);
            kinds[usize::from(step.is_ok())] += 1;
            assert!(step != Ok(Step::Give(Vec::new())), "a transfer of nothing");
            if let Ok(Step::Read(blocks) | Step::Write(blocks)) = step {
                assert!(blocks.count * GEOMETRY.data() <= MAX_DATA);
            }
        }
    }
    assert!(kinds.iter().all(|count| *count > 0));
}
