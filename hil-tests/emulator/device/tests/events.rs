//! Tests of event queues: the entries that events become, and the doorbells of event and completion queues
//! (`eq.c` of Linux's mlx5_core).

use crate::commands::*;
use crate::common::*;
use mlx5_mkey::wire::ctrl::Opcode;

/// Types of events.
const COMPLETION: u8 = 0x00;
const CQ_ERROR: u8 = 0x04;
const COMMAND: u8 = 0x0a;
const PAGE_REQUEST: u8 = 0x0b;
const SRQ_LIMIT: u8 = 0x14;

/// The vector of the tests' event queues.
const VECTOR: u16 = 5;

/// An event queue with a ring of four entries.
struct Events {
    number: u32,
    ring: u64,
    uar: u64,
}

impl Events {
    /// Creates an event queue that gets events of these types.
    fn new(setup: &mut Setup, types: &[u8]) -> Self {
        let words = setup.eq(2).u16(0x26, VECTOR);
        let ring = u64::from_be_bytes(words.0[PAGES..PAGES + 8].try_into().unwrap());
        let types = types.iter().fold(0, |all, kind| all | 1_u64 << kind);
        Self { number: setup.good(words.u64(0x58, types)), ring, uar: u64::from(setup.uar) * 4096 }
    }

    /// Writes the doorbell of the event queue: the host has taken `taken` entries.
    fn take(&self, setup: &mut Setup, taken: u32) {
        setup.host.device.write_uar(self.uar + 0x48, &(self.number << 24 | taken).to_be_bytes());
    }

    /// The same as `take`, and the next entry raises an interrupt.
    fn arm(&self, setup: &mut Setup, taken: u32) {
        setup.host.device.write_uar(self.uar + 0x40, &(self.number << 24 | taken).to_be_bytes());
    }

    fn entry(&self, setup: &Setup, index: u64) -> Vec<u8> {
        setup.host.get(self.ring + 64 * (index % 4), 64)
    }
}

/// Creates a shared receive queue. Returns its number, and the command that arms its limit. The queue already
/// has fewer receive requests than the limit, so the command raises the event.
fn limited(setup: &mut Setup) -> (u32, Words) {
    let (ring, record) = (setup.host.alloc(4096), setup.host.alloc(8));
    let words = Words::new(0x90c, PAGES).u24(0x59, setup.host.pd).u64(0x60, record).u8(0x71, 5).u8(0x73, 4);
    let rmp = setup.good(with_pages(words, ring, 512));
    (rmp, Words::new(0x90d, 0x110).u24(9, rmp).u8(0x17, 1).u16(0x56, 3))
}

/// Events fill the ring entry by entry, and the owner bit changes in each lap. Once the ring is full, an
/// event is lost. An entry raises an interrupt only if the queue is armed, and disarms the queue.
#[test]
fn events_follow_each_other_in_their_ring() {
    let mut setup = Setup::new();
    let events = Events::new(&mut setup, &[SRQ_LIMIT]);
    let (rmp, limit) = limited(&mut setup);
    let raise = |setup: &mut Setup| {
        setup.good(limit.clone());
        setup.host.device.take_interrupts()
    };
    for index in 0..12 {
        let lap = (index / 4) as u8;
        assert_eq!(raise(&mut setup), [], "{index}");
        let entry = events.entry(&setup, index);
        assert_eq!((entry[1], &entry[0x38..0x3c]), (SRQ_LIMIT, &rmp.to_be_bytes()[..]), "{index}");
        assert_eq!(entry[63], lap & 1, "{index}");
        if index % 4 == 3 {
            let full = setup.host.get(events.ring, 256);
            raise(&mut setup);
            assert_eq!(setup.host.get(events.ring, 256), full, "lap {lap}");
            events.take(&mut setup, index as u32 + 1);
        }
    }
    events.arm(&mut setup, 12);
    assert_eq!(raise(&mut setup), [VECTOR]);
    assert_eq!(raise(&mut setup), [], "the interrupt has disarmed the queue");
}

/// An event has its type, and fields of this type.
#[test]
fn an_event_has_the_fields_of_its_type() {
    let mut setup = Setup::new();
    let [pages, errors, commands] =
        [PAGE_REQUEST, CQ_ERROR, COMMAND].map(|kind| Events::new(&mut setup, &[kind]));
    let fields = |setup: &mut Setup, events: &Events, index: u64| {
        setup.host.device.take_interrupts();
        let entry = events.entry(setup, index);
        let word = |at: usize| u32::from_be_bytes(entry[at..at + 4].try_into().unwrap());
        (entry[1], [0x20, 0x24, 0x28].map(word))
    };
    setup.host.device.take_interrupts();
    assert_eq!(setup.host.get(commands.ring + 63, 1), [1], "no command was given since the queue is there");
    setup.good(Words::new(0x800, 16));
    assert_eq!(fields(&mut setup, &commands, 0), (COMMAND, [1 << ENTRY, 0, 0]));
    assert_eq!(setup.host.get(commands.ring + 127, 1), [0xf1], "no command was given since");
    // The first queue pair makes the firmware ask for eight pages, for the function 7.
    let (words, ring) = setup.cq(1);
    let cqn = setup.good(words.u24(0x1d, setup.uar));
    let (words, queue) = setup.qp();
    let qpn = setup.good(words.u24(QPC + 0x7d, cqn));
    assert_eq!(fields(&mut setup, &pages, 0), (PAGE_REQUEST, [7, 8, 0]));
    // Three completions are too many for a queue of two entries.
    setup.ready(0, qpn, qpn);
    setup.host.q[A] = Queue { qpn, send_cq: Ring { cqn, ..ring }, ..queue };
    (0..3).for_each(|_| _ = setup.host.post(A, Wqe::new(Opcode::NOP, 0)));
    setup.host.ring(A);
    assert_eq!(fields(&mut setup, &errors, 0), (CQ_ERROR, [cqn, 0, 1]));
}

/// A completion queue raises an event for entries that the host has not taken, if the host has armed it.
#[test]
fn a_completion_queue_tells_of_entries_behind_those_taken() {
    let mut setup = Setup::new();
    let events = Events::new(&mut setup, &[]);
    let (words, ring) = setup.cq(LOG_CQ);
    let cqn = setup.good(words.u32(0x24, events.number));
    let (words, queue) = setup.qp();
    let qpn = setup.good(words.u24(QPC + 0x7d, cqn));
    setup.ready(0, qpn, qpn);
    setup.host.q[A] = Queue { qpn, send_cq: Ring { cqn, ..ring }, ..queue };
    let complete = |setup: &mut Setup, count: u32| {
        (0..count).for_each(|_| _ = setup.host.post(A, Wqe::new(Opcode::NOP, 0)));
        setup.host.ring(A);
    };
    // The upper byte of the doorbell has a count of the host, and whether only solicited entries matter.
    const SOLICITED: u32 = 1 << 24;
    let arm = |setup: &mut Setup, taken: u32| {
        let words = [0x3000_0000 | taken, cqn].map(u32::to_be_bytes);
        setup.host.device.write_uar(events.uar + 0x20, words.as_flattened());
    };
    let mut told = 0;
    let mut tells = |setup: &mut Setup| {
        events.arm(setup, told);
        let raised = setup.host.device.take_interrupts();
        if raised.is_empty() {
            return false;
        }
        let entry = events.entry(setup, told.into());
        assert_eq!(
            (raised, entry[1], &entry[0x38..0x3c]),
            (vec![VECTOR], COMPLETION, &cqn.to_be_bytes()[..])
        );
        told += 1;
        true
    };
    arm(&mut setup, 0);
    assert!(!tells(&mut setup), "no entry yet");
    complete(&mut setup, 2);
    assert!(tells(&mut setup), "two entries");
    complete(&mut setup, 1);
    assert!(!tells(&mut setup), "the event has disarmed the queue");
    arm(&mut setup, 5);
    assert!(!tells(&mut setup), "the host counts more entries than there are");
    arm(&mut setup, 3);
    assert!(!tells(&mut setup), "all entries are taken");
    arm(&mut setup, SOLICITED | 2);
    assert!(!tells(&mut setup), "no entry is solicited");
    arm(&mut setup, 2);
    assert!(tells(&mut setup));
}

/// A doorbell whose request is the next of its queue, announced, and a NOP without completion, waits for the
/// rest of its block. All other requests are executed at once.
#[test]
fn only_the_next_nop_without_completion_waits_for_its_block() {
    let mut setup = Setup::new();
    setup.connect(0x40, 7);
    let page = u64::from(setup.uar) * 4096;
    let (at, key) = setup.host.region(8, mlx5_softdev::Access::ALL);
    let (nop, silent) = (Wqe::new(Opcode::NOP, 0), Wqe::new(Opcode::NOP, 0).silent());
    let write = Wqe::new(Opcode::RDMA_WRITE, 0).silent().with(&remote(at, key));
    // Posts a request, and writes the first bytes of its doorbell. Returns whether the device waits for more.
    let waits = |setup: &mut Setup, wqe: &Wqe, is_announced: bool| {
        let index = setup.host.post(A, wqe.clone());
        let queue = setup.host.q[A];
        if is_announced {
            let producer = u32::from(queue.producer).to_be_bytes();
            setup.host.put(queue.attributes.doorbell_record + 4, &producer);
        }
        let block = setup.host.get(queue.attributes.sq + 64 * u64::from(index), 64);
        setup.host.device.write_uar(page + 0x800, &block[..8]);
        let waits = setup.host.device.has_open_doorbell();
        setup.host.device.settle_doorbells();
        waits
    };
    assert!(!waits(&mut setup, &write, true), "another request");
    assert!(waits(&mut setup, &silent, true));
    assert!(!waits(&mut setup, &nop, true), "its completion is asked for");
    assert!(!waits(&mut setup, &silent, false), "not announced");
    assert!(!waits(&mut setup, &silent, true), "not the next");
    // Both NOPs were executed after the second was announced. The block arrives in eight writes.
    let index = setup.host.post(A, silent);
    let queue = setup.host.q[A];
    setup.host.put(queue.attributes.doorbell_record + 4, &u32::from(queue.producer).to_be_bytes());
    let mut block = setup.host.get(queue.attributes.sq + 64 * u64::from(index), 64);
    block[11] = nop.0[11];
    for (number, part) in block.chunks(8).enumerate() {
        setup.host.device.write_uar(page + 0x900 + 8 * number as u64, part);
        assert_eq!(setup.host.device.has_open_doorbell(), number < 7, "{number}");
    }
    assert_eq!(setup.host.poll_send(A).unwrap().counter(), 2, "the NOP with a completion");
    assert_eq!(setup.host.good(A).counter(), index, "the block of the doorbell, not the one in the ring");
}
