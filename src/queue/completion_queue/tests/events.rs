//! Tests of arming a completion queue, with a model of a device that follows the PRM: in any order of arming,
//! entries and events, a sleeping reader misses no completion.
#![allow(unsafe_code)]

use super::*;
use crate::queue::{ArmFor, CqDoorbell};

/// The queues of a queue pair that retire every receive request, with the counter as the request's name
/// (`wr_id`).
struct Receives;

impl QpQueues for Receives {
    fn qpn(&self) -> Qpn {
        QPN
    }

    fn retire_send(&mut self, _: CompletedSend<'_>) -> Option<Retired> {
        None
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        Some(done.counter().into())
    }
}

/// The device's side of a completion queue.
struct Device {
    ring: *mut Cqe,
    entries: u64,
    producer: u64,
    /// Number of entries that the device still writes while a doorbell is on its way.
    late: u32,
    /// The last arm word that arrived, and the sequence number of the arm word that the device answered last.
    arm: Option<u32>,
    answered: Option<u32>,
    /// Raised events that were not received yet.
    events: u32,
}

impl Device {
    fn new(ring: &mut [Cqe], producer: u64) -> Self {
        let entries = ring.len() as u64;
        let ring = ring.as_mut_ptr();
        Self { ring, entries, producer, late: 0, arm: None, answered: None, events: 0 }
    }

    fn write(&mut self) {
        let owner = ((self.producer / self.entries) & 1) as u8;
        let entry = cqe(CqeOpcode::RESPONDER_SEND, self.producer as u16, owner);
        // SAFETY: the pointer is inside the ring, which the test keeps alive. The queue reads the ring as
        // memory that a device changes.
        unsafe { self.ring.add((self.producer % self.entries) as usize).write_volatile(entry) };
        self.producer += 1;
        self.raise();
    }

    fn raise(&mut self) {
        let Some(word) = self.arm else { return };
        let pending = (self.producer as u32).wrapping_sub(word) & CONSUMER_MASK;
        if self.answered != Some(word >> 28) && (1..=self.entries).contains(&u64::from(pending)) {
            self.answered = Some(word >> 28);
            self.events += 1;
        }
    }
}

impl CqDoorbell for Device {
    fn ring(&mut self, arm: [u8; 4]) {
        for _ in 0..core::mem::take(&mut self.late) {
            self.write();
        }
        self.arm = Some(u32::from_be_bytes(arm));
        self.raise();
    }
}

fn counter(completion: Option<Result<Completion, CompletionError>>) -> Option<u64> {
    completion.map(|completion| completion.unwrap().work().unwrap().id)
}

#[test]
fn the_arm_word_has_sequence_number_kind_and_consumer_index() {
    struct Last([u8; 4]);
    impl CqDoorbell for Last {
        fn ring(&mut self, arm: [u8; 4]) {
            self.0 = arm;
        }
    }
    let (mut ring, record) = queue(&[Cqe::UNWRITTEN; 4]);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    completions.consumer = 0x0123_4567;
    let mut rung = Last([0xff; 4]);
    for sequence in [0, 0x10, 0x20, 0x30, 0, 0x10] {
        for (entries, kind) in [(ArmFor::Solicited, 1), (ArmFor::Any, 0)] {
            completions.arm(&mut rung, entries);
            assert_eq!(rung.0, [sequence | kind, 0x23, 0x45, 0x67]);
            assert_eq!(record.bytes(), [[0, 0x23, 0x45, 0x67], rung.0]);
        }
        completions.event_received();
    }
}

#[test]
fn an_entry_that_comes_while_the_queue_is_armed_is_returned() {
    let (mut ring, record) = queue(&[Cqe::UNWRITTEN; 4]);
    let mut device = Device::new(&mut ring, 0);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let mut router = QpRouter { queues: &mut Receives, mkeys: &mut [] };
    assert_eq!(counter(completions.poll_or_arm(&mut router, &mut device)), None);
    device.late = 1;
    assert_eq!(counter(completions.poll_or_arm(&mut router, &mut device)), Some(0));
    assert_eq!(device.events, 1, "which the device has told of as well");
}

#[test]
fn no_completion_is_slept_over() {
    let (mut ring, record) = queue(&[Cqe::UNWRITTEN; 4]);
    // The consumer index in the doorbell record has 24 bits, which overflow during the test.
    let start = (1 << 24) - 1000;
    let mut device = Device::new(&mut ring, start);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    completions.consumer = start;
    let mut router = QpRouter { queues: &mut Receives, mkeys: &mut [] };
    let mut dice = Dice(7);
    let (mut next, mut sleeps) = (start, 0_u32);
    while next < start + 4000 {
        // The device may write entries twice in a round: before the poll, and while the doorbell is on its
        // way. Each time, it usually writes none, otherwise any number for which the ring has room.
        let mut some = |room| if dice.below(3) == 0 { dice.below(room + 1) } else { 0 };
        let room = device.entries - (device.producer - next);
        let early = some(room);
        device.late = some(room - early) as u32;
        (0..early).for_each(|_| device.write());
        if let Some(counter) = counter(completions.poll_or_arm(&mut router, &mut device)) {
            assert_eq!(counter, u64::from(next as u16));
            next += 1;
            continue;
        }
        assert_eq!((device.producer, device.late), (next, 0));
        // In two thirds of the rounds, the thread wakes without an event: it polls and arms again.
        if dice.below(3) > 0 {
            continue;
        }
        // The thread sleeps. If no event is on its way, the next entry must raise one.
        if device.events == 0 {
            device.write();
        }
        assert_eq!(device.events, 1, "{next}: one event, neither none nor two");
        device.events = 0;
        completions.event_received();
        sleeps += 1;
    }
    assert!(sleeps > 100, "{sleeps}");
}

#[test]
fn arming_continues_behind_another_reader() {
    let mut armed = [0; 4];
    struct Copy<'a>(&'a mut [u8; 4]);
    impl CqDoorbell for Copy<'_> {
        fn ring(&mut self, arm: [u8; 4]) {
            *self.0 = arm;
        }
    }
    for (sequence, next) in [(0, 0x10), (0x1000_0000, 0x20), (0x2000_0000, 0x30), (0x3000_0000, 0)] {
        let (mut ring, record) = queue(&[Cqe::UNWRITTEN; 4]);
        // The arm word also holds a flag and a consumer index, which `starting_at` must ignore.
        let words = [0x0012_3456, sequence | 0x0112_3456];
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap().starting_at(words);
        // A reference to a doorbell is a doorbell too.
        completions.arm(&mut &mut Copy(&mut armed), ArmFor::Any);
        assert_eq!(armed, [next, 0x12, 0x34, 0x56]);
    }
}
