//! Tests of requests that the function refuses, and of random bytes that it survives.

use crate::machine::{BAR, CONFIG, Machine, Served, sealed};
use mlx5_softdev::DeviceProfile;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

const BASE: u64 = 0x1000_0000;

/// Sends a message as bytes, and returns the flags, the error and the body of its reply.
fn ask(stream: &mut UnixStream, command: u16, flags: u32, body: &[u8]) -> (u32, u32, Vec<u8>) {
    let size = 16 + body.len() as u32;
    let header = [7_u16.to_le_bytes().as_slice(), &command.to_le_bytes(), &size.to_le_bytes()].concat();
    stream.write_all(&[header.as_slice(), &flags.to_le_bytes(), &[0; 4], body].concat()).unwrap();
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    assert_eq!(header[..2], 7_u16.to_le_bytes());
    let mut body = vec![0; word(4) as usize - 16];
    stream.read_exact(&mut body).unwrap();
    (word(8), word(12), body)
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

const REPLY: u32 = 1;
const ERROR: u32 = 1 | 1 << 5;
const INVALID: u32 = 22;
const NOT_SUPPORTED: u32 = 95;

#[test]
fn what_makes_no_sense_is_refused_and_the_next_message_is_heard() {
    let served = Served::here(DeviceProfile::default());
    let mut stream = UnixStream::connect(served.socket()).unwrap();
    let refused = |stream: &mut UnixStream, command: u16, body: &[u8], error: u32| {
        assert_eq!(ask(stream, command, 0, body), (ERROR, error, vec![]), "{command}, {body:x?}");
    };
    refused(&mut stream, 0, &[], NOT_SUPPORTED);
    refused(&mut stream, 999, &[0; 100], NOT_SUPPORTED);
    refused(&mut stream, 1, &[1, 0, 0, 0, b'{', b'}', 0], NOT_SUPPORTED);
    for command in [1, 2, 3, 5, 7, 8, 9, 10] {
        refused(&mut stream, command, &[0; 3], INVALID);
    }
    // The function refuses accesses to a region that does not exist, after the end of a region, with more
    // bytes than a message may have, and with missing data.
    let access = |region: u32, offset: u64, count: u32| {
        [offset.to_le_bytes().as_slice(), &region.to_le_bytes(), &count.to_le_bytes()].concat()
    };
    for (region, offset) in [(1, 0), (9, 0), (7, 4093), (7, u64::MAX), (0, (32 << 20) - 3), (u32::MAX, 0)] {
        refused(&mut stream, 9, &access(region, offset, 4), INVALID);
        refused(&mut stream, 10, &[access(region, offset, 4), vec![0; 4]].concat(), INVALID);
    }
    for count in [4097, 2 << 20, u32::MAX] {
        refused(&mut stream, 9, &access(7, 0, count), INVALID);
        refused(&mut stream, 9, &access(0, 0, count.max(2 << 20)), INVALID);
    }
    refused(&mut stream, 10, &[access(7, 0, 5), vec![0; 4]].concat(), INVALID);
    refused(&mut stream, 10, &[access(7, 0, 3), vec![0; 4]].concat(), INVALID);
    // The function refuses interrupts of other kinds, vectors after the last vector, and too few descriptors.
    for set in [
        [20, 1 << 5 | 1, 0, 0, 1],
        [20, 1 << 5 | 1, 2, 64, 1],
        [20, 1 << 5 | 1, 2, u32::MAX, 2],
        [20, 1 << 5 | 1 << 2, 2, 64, 1],
        [20, 1 << 5 | 1 << 2, 2, 0, u32::MAX],
        [20, 0, 2, 0, 1],
        [20, 1 << 5 | 2, 2, 0, 1],
    ] {
        refused(&mut stream, 8, &words(&set), INVALID);
    }
    // The function refuses a mapping of no bytes, a mapping beyond 2^64, and an unmapping of a part of a
    // mapping.
    let range = |flags: u32, offset: u64, address: u64, length: u64| {
        let numbers = [offset, address, length].map(u64::to_le_bytes).concat();
        [words(&[32, flags]), numbers].concat()
    };
    refused(&mut stream, 2, &range(3, 0, 0x1000, 0), INVALID);
    refused(&mut stream, 2, &range(3, 0, u64::MAX, 2), INVALID);
    refused(&mut stream, 2, &range(7, 0, 0x1000, 0x1000), INVALID);
    assert_eq!(ask(&mut stream, 2, 0, &range(3, 0, 0x1000, 0x2000)).0, REPLY);
    refused(&mut stream, 2, &range(3, 0, 0x2000, 0x1000), INVALID);
    let back = |address: u64, length: u64| {
        [words(&[24, 0]), address.to_le_bytes().into(), length.to_le_bytes().into()].concat()
    };
    refused(&mut stream, 3, &back(0x1000, 0x1000), INVALID);
    refused(&mut stream, 3, &back(0x1000, u64::MAX), INVALID);
    assert_eq!(ask(&mut stream, 3, 0, &back(0x1000, 0x2000)).0, REPLY);
    // A message that is marked as a reply is not carried out.
    assert_eq!(ask(&mut stream, 4, 1, &[0; 16]), (ERROR, INVALID, vec![]));
    assert_eq!(ask(&mut stream, 4, 0, &words(&[16, 0, 0, 0])), (REPLY, 0, words(&[16, 3, 9, 5])));
}

#[test]
fn a_length_that_cannot_be_ends_the_connection() {
    for size in [0_u32, 15, 17 + (1 << 20) + 16, u32::MAX] {
        let served = Served::here(DeviceProfile::default());
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        let header = [words(&[4 << 16]), words(&[size, 0, 0])].concat();
        stream.write_all(&header).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{size}");
    }
}

#[test]
fn writes_without_a_reply_are_done_in_order() {
    let served = Served::here(DeviceProfile::default());
    let mut stream = UnixStream::connect(served.socket()).unwrap();
    let body = [0x3c_u64.to_le_bytes().as_slice(), &words(&[7, 1]), &[0x5a]].concat();
    let header = [words(&[10 << 16]), words(&[16 + body.len() as u32, 1 << 4, 0])].concat();
    stream.write_all(&[header, body].concat()).unwrap();
    let read = [0x3c_u64.to_le_bytes().as_slice(), &words(&[7, 1])].concat();
    let (flags, error, reply) = ask(&mut stream, 9, 0, &read);
    assert_eq!((flags, error, reply.last()), (REPLY, 0, Some(&0x5a)));
}

#[test]
fn a_driver_gone_wild_harms_nobody_but_itself() {
    let served = Served::here(DeviceProfile::default());
    let mut machine = Machine::new(&served.socket(), BASE, 1 << 20);
    machine.set_master(true);
    while machine.register(0x1fc) >> 31 != 0 {}
    // The driver puts the command queue at unmapped addresses, at the end of memory, and at an unaligned
    // address. Each time, it rings the doorbell of all commands.
    for queue in [0, BASE - 0x1000, BASE + (1 << 20) - 0x1000, BASE + 0x123, u64::MAX] {
        machine.write_register(0x10, (queue >> 32) as u32);
        machine.write_register(0x14, queue as u32);
        machine.write_register(0x18, u32::MAX);
    }
    // The entries of the command queue get random bytes, except that their owner bit gives them to the
    // device.
    let mut state = 0x1234_5678_9abc_def0_u64;
    machine.write_register(0x10, 0);
    machine.write_register(0x14, BASE as u32);
    for _ in 0..50 {
        let bytes: Vec<u8> = (0..0x2000)
            .map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        machine.write(BASE, &bytes);
        (0..16).for_each(|slot| machine.write(BASE + slot * 128 + 0x3f, &[1]));
        machine.write_register(0x18, u32::MAX);
    }
    // The doorbells of UAR pages that are not allocated get writes of many lengths.
    for at in (0x10000..0x20000).step_by(0x4c) {
        machine.client.region_write(BAR, at, &vec![0xff; (at % 67 + 1) as usize]).unwrap();
    }
    for at in 0..4096 {
        machine.client.region_write(CONFIG, at, &[0xff]).unwrap();
    }
    assert_eq!(machine.config::<2>(0), [0xb3, 0x15]);
    // The function no longer reaches unmapped memory.
    machine.client.dma_unmap(BASE, 1 << 20).unwrap();
    machine.write_register(0x18, u32::MAX);
    let memory = sealed(0x1000);
    machine.client.dma_map(0, BASE, 0x1000, memory.as_raw_fd()).unwrap();
    machine.write_register(0x18, u32::MAX);
    assert_eq!(machine.register(0x4) >> 16, 5);
}
