//! Tests of commands that create, change and destroy objects. They check the effect of each field, and the
//! statuses of refused commands. Offsets of fields come from the PRM (`mlx5_ifc.h` of Linux).

use crate::common::*;
use mlx5_mkey::types::{Key, MkeyIndex};
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::klm::Klm;
use mlx5_softdev::*;
use zerocopy::IntoBytes;

/// Statuses of refused commands.
const BAD_OPCODE: u8 = 0x2;
pub(crate) const BAD_PARAMETER: u8 = 0x3;
pub(crate) const BAD_RESOURCE: u8 = 0x5;
pub(crate) const IN_USE: u8 = 0x6;
const BAD_QP_STATE: u8 = 0x10;
const NO_RESOURCES: u8 = 0xf;
const BAD_INPUT_LENGTH: u8 = 0x50;

/// Offsets in commands: of the list of pages in CREATE_EQ, CREATE_CQ and CREATE_QP, of the context of a queue
/// pair, and of the context of an mkey.
pub(crate) const PAGES: usize = 0x110;
pub(crate) const QPC: usize = 0x18;
pub(crate) const MKC: usize = 0x10;

/// Logarithm of the number of blocks of a send ring, as for the queue pairs of [`Host`].
const LOG_BLOCKS: u8 = 7;
const REMOTE_READ: u8 = 0x80;
const REMOTE_WRITE: u8 = 0x40;
const REMOTE_ATOMIC: u8 = 0x20;

/// A device whose command interface runs, with an object of each kind that other objects need. `host` also
/// has queue pairs that were created without commands; these tests do not use them.
pub(crate) struct Setup {
    pub(crate) host: Host,
    queue: u64,
    pub(crate) uar: u32,
    pub(crate) eq: u32,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::with(DeviceProfile::default())
    }

    pub(crate) fn with(profile: DeviceProfile) -> Self {
        let mut host = Host::with(profile, |_| {});
        while host.device.read_register(0x1fc) >> 31 != 0 {}
        let queue = host.alloc(0x10000);
        host.device.write_register(0x10, (queue >> 32) as u32);
        host.device.write_register(0x14, queue as u32);
        let mut setup = Self { host, queue, uar: 0, eq: 0 };
        setup.run();
        setup
    }

    /// Takes the interface from reset to the running state, and creates the first objects.
    fn run(&mut self) {
        self.good(Words::new(0x104, 16));
        let pages = self.host.alloc(155 << 12);
        let words = Words::new(0x108, 0x10 + 155 * 8).u16(6, 1).u32(8, 7).u32(0xc, 155);
        self.good((0..155).fold(words, |words, page| words.u64(0x10 + 8 * page, pages + 4096 * page as u64)));
        self.good(Words::new(0x102, 16));
        self.host.pd = self.good(Words::new(0x800, 16));
        self.uar = self.good(Words::new(0x802, 16));
        let eq = self.eq(6);
        self.eq = self.good(eq);
    }

    /// Executes a command, and returns the number of the created object, or the status of a refusal.
    fn give(&mut self, request: Words) -> Result<u32, u8> {
        let entry = Posted::new(self.queue, &request.0, 16).give(&mut self.host.device);
        assert_eq!(entry[0x3f], 0, "delivered");
        match entry[0x20] {
            0 => Ok(u32::from_be_bytes(entry[0x28..0x2c].try_into().unwrap())),
            status => Err(status),
        }
    }

    #[track_caller]
    pub(crate) fn good(&mut self, request: Words) -> u32 {
        let outcome = self.give(request.clone());
        outcome.unwrap_or_else(|status| panic!("status {status:#x} of {request:x?}"))
    }

    /// Executes a command that must be refused with a status.
    #[track_caller]
    pub(crate) fn refused(&mut self, request: Words, status: u8, why: &str) {
        assert_eq!(self.give(request), Err(status), "{why}");
    }

    /// Allocates the memory of an event or completion queue. The device owns every entry.
    fn entries(&mut self, log: u8) -> u64 {
        let at = self.host.alloc(64 << log);
        for entry in 0..1 << log {
            self.host.put(at + 64 * entry + 63, &[0xf1]);
        }
        at
    }

    /// Allocates the ring of an event queue of `1 << log` entries, and returns the CREATE_EQ that names it.
    pub(crate) fn eq(&mut self, log: u8) -> Words {
        let ring = self.entries(log);
        // CREATE_EQ needs the value 1 in the last byte of the first entry: the bit of an entry that is not
        // written yet, with zeros in the other bits.
        self.host.put(ring + 63, &[1]);
        // All user contexts may use the event queue, as Linux sets it up.
        let words = Words::new(0x301, PAGES).u16(2, 0xffff).u8(0x1c, log).u24(0x1d, self.uar);
        with_pages(words, ring, 64 << log)
    }

    /// Allocates the ring and the doorbell record of a completion queue of `1 << log` entries. Returns the
    /// CREATE_CQ that names them, and the ring.
    pub(crate) fn cq(&mut self, log: u8) -> (Words, Ring) {
        let (address, record) = (self.entries(log), self.host.alloc(8));
        let words = Words::new(0x400, PAGES).u8(0x1c, log).u24(0x1d, self.uar).u32(0x24, self.eq);
        let words = with_pages(words.u64(0x48, record), address, 64 << log);
        (words, Ring { cqn: 0, address, record, consumer: 0 })
    }

    pub(crate) fn made_cq(&mut self, log: u8) -> Ring {
        let (words, ring) = self.cq(log);
        Ring { cqn: self.good(words), ..ring }
    }

    /// Returns CREATE_QP with a receive ring of `1 << LOG_RQ` slots, and the queue that it creates.
    pub(crate) fn qp(&mut self) -> (Words, Queue) {
        let (send_cq, recv_cq) = (self.made_cq(LOG_CQ), self.made_cq(LOG_CQ));
        let receives = u64::from(RQ_STRIDE) << LOG_RQ;
        let bytes = receives + (64 << LOG_BLOCKS);
        let (rings, doorbell_record) = (self.host.alloc(bytes as usize), self.host.alloc(8));
        let ring = ReceiveRing { address: rings, log_slots: LOG_RQ, stride: RQ_STRIDE };
        let attributes = QpAttributes {
            transport: Transport::ReliableConnection,
            pd: self.host.pd,
            sq: rings + receives,
            log_sq_blocks: LOG_BLOCKS,
            receive: ReceiveQueue::Own(ring),
            doorbell_record,
            send_cqn: send_cq.cqn,
            recv_cqn: Some(recv_cq.cqn),
            user_index: 0x0012_3456,
            drain_sigerr: false,
            rnr_retry: Retries::Infinite,
        };
        // A `log_rq_stride` of 2 means slots of 16 << 2 bytes.
        let words = Words::new(0x500, PAGES)
            .u24(QPC + 0x5, self.host.pd)
            .u8(QPC + 0x9, LOG_RQ << 3 | 2)
            .u8(QPC + 0xa, LOG_BLOCKS << 3)
            .u24(QPC + 0xd, self.uar)
            .u24(QPC + 0x11, attributes.user_index)
            .u24(QPC + 0x7d, send_cq.cqn)
            .u24(QPC + 0x9d, recv_cq.cqn)
            .u64(QPC + 0xa0, doorbell_record);
        let queue = Queue { qpn: 0, attributes, producer: 0, receives: 0, send_cq, recv_cq };
        (with_pages(words, rings, bytes), queue)
    }

    pub(crate) fn made_qp(&mut self) -> Queue {
        let (words, queue) = self.qp();
        Queue { qpn: self.good(words), ..queue }
    }

    /// Creates two connected queue pairs by commands, and makes the host use them in place of its own. Each
    /// gives its peer the rights `rights`. A SEND for which the peer has no receive request is repeated as
    /// often as `rnr_retry` says.
    pub(crate) fn connect(&mut self, rights: u8, rnr_retry: u8) {
        self.connect_with(1, rights, rnr_retry);
    }

    /// Connects two queue pairs whose peers may use the atomics of this mode (`atomic_mode`).
    fn connect_with(&mut self, atomic_mode: u8, rights: u8, rnr_retry: u8) {
        let [a, b] = [self.made_qp(), self.made_qp()];
        for (at, one, other) in [(A, a, b), (B, b, a)] {
            self.good(to_init(one.qpn, rights).u8(QPC + 0x91, atomic_mode));
            self.good(to_receive(one.qpn, other.qpn));
            self.good(to_send(one.qpn, rnr_retry));
            self.host.q[at] = one;
        }
    }

    /// Brings a queue pair of a user context (0: of the host) to the state RTS. Its peer has all rights.
    pub(crate) fn ready(&mut self, uid: u16, qpn: u32, peer: u32) {
        for step in [to_init(qpn, 0xe0), to_receive(qpn, peer), to_send(qpn, 7)] {
            self.good(step.u16(2, uid));
        }
    }

    fn state(&self, qpn: u32) -> QpState {
        self.host.device.query(qpn).unwrap().state
    }
}

/// Returns the command with a list of the pages that contain `bytes` bytes from `at` on.
pub(crate) fn with_pages(mut words: Words, at: u64, bytes: u64) -> Words {
    for page in 0..bytes.div_ceil(4096) {
        words.0.extend((at + 4096 * page).to_be_bytes());
    }
    words
}

/// Returns the command with one more page in its list.
fn with_page(mut words: Words, at: u64) -> Words {
    words.0.extend(at.to_be_bytes());
    words
}

fn without_page(mut words: Words) -> Words {
    words.0.truncate(words.0.len() - 8);
    words
}

/// Returns a command whose only field is the number of an object.
pub(crate) fn named(opcode: u16, number: u32) -> Words {
    Words::new(opcode, 16).u24(9, number)
}

/// Returns RST2INIT_QP. The next two functions return INIT2RTR_QP with force loopback (`fl`), and RTR2RTS_QP.
pub(crate) fn to_init(qpn: u32, rights: u8) -> Words {
    Words::new(0x502, 0x110).u24(9, qpn).u8(QPC + 0x92, rights)
}

pub(crate) fn to_receive(qpn: u32, peer: u32) -> Words {
    let (mtu, timer) = (1 << 5, 14);
    let words = Words::new(0x503, 0x110).u24(9, qpn).u8(QPC + 8, mtu).u24(QPC + 0x15, peer);
    words.u8(QPC + 0x18, 0x80).u8(QPC + 0x94, timer)
}

pub(crate) fn to_send(qpn: u32, rnr_retry: u8) -> Words {
    Words::new(0x504, 0x110).u24(9, qpn).u8(QPC + 0x72, rnr_retry << 5)
}

/// Returns CREATE_OBJECT of a DEK.
fn dek(pd: u32, size: u8, flags: u8, key: &[u8]) -> Words {
    Words::new(0xa00, 0x150)
        .u16(6, 0xc)
        .u8(0x10 + 0xa, size)
        .u8(0x10 + 0xb, flags)
        .u24(0x10 + 0xd, pd)
        .bytes(0x10 + 0x40, key)
}

#[test]
fn each_object_is_destroyed_once_and_not_while_it_is_used() {
    let mut setup = Setup::new();
    let queue = setup.made_qp();
    let mkey = setup.good(umr_mkey(setup.host.pd, 0, 0x82, 0, 0));
    let psv = Words::new(0x600, 16).u8(8, 1 << 4).u24(9, setup.host.pd);
    let entry = Posted::new(setup.queue, &psv.0, 32).give(&mut setup.host.device);
    assert_eq!(entry[0x20], 0);
    let mut psv = [0; 4];
    setup.host.device.memory().read(setup.queue + 0x4000, &mut psv).unwrap();
    let psv = u32::from_be_bytes(psv);
    assert!(setup.host.device.query_psv(psv).is_ok());
    let dek = setup.good(dek(setup.host.pd, 0, 3, &XTS_KEY));
    setup.refused(named(0x801, setup.host.pd), IN_USE, "a domain with objects in it");
    setup.refused(named(0x401, queue.send_cq.cqn), IN_USE, "a queue pair's CQ");
    let objects = [
        ("DEK", Words::new(0xa03, 16).u16(6, 0xc).u32(8, dek)),
        ("PSV", named(0x601, psv)),
        ("mkey", named(0x202, mkey)),
        ("QP", named(0x501, queue.qpn)),
        ("CQ", named(0x401, queue.recv_cq.cqn)),
        ("EQ", named(0x302, setup.eq)),
        ("UAR", named(0x803, setup.uar)),
        ("PD", named(0x801, setup.host.pd)),
    ];
    for (what, destroy) in objects {
        setup.good(destroy.clone());
        setup.refused(destroy, BAD_RESOURCE, what);
    }
    assert!(setup.host.device.query(queue.qpn).is_err());
    assert!(setup.host.device.query_mkey(MkeyIndex::from_low_bits(mkey)).is_err());
    assert!(setup.host.device.query_psv(psv).is_err());
}

/// The commands on general objects carry the type of their object. This device makes DEKs only, and refuses
/// all other types.
#[test]
fn objects_of_other_types_are_refused() {
    let mut setup = Setup::new();
    let create = dek(setup.host.pd, 0, 3, &XTS_KEY);
    let number = setup.good(create.clone());
    for kind in [0, 0xb, 0xd, 0x1f, 0x100c] {
        setup.refused(create.clone().u16(6, kind), BAD_OPCODE, "made");
        let modify = create.clone().u16(0, 0xa01).u16(6, kind).u32(8, number).u64(0x10, 1);
        setup.refused(modify, BAD_OPCODE, "modified");
        for (opcode, why) in [(0xa02, "queried"), (0xa03, "destroyed")] {
            setup.refused(Words::new(opcode, 16).u16(6, kind).u32(8, number), BAD_OPCODE, why);
        }
    }
    setup.good(Words::new(0xa03, 16).u16(6, 0xc).u32(8, number));
}

/// UAR pages and EQs have separate ranges of numbers. The numbers of UAR pages begin behind the registers.
#[test]
fn numbers_are_used_up_and_given_back() {
    let mut setup = Setup::new();
    assert_eq!((setup.uar, setup.eq), (0x10, 1));
    let mut uars: Vec<u32> = (1..0xf0).map(|_| setup.good(Words::new(0x802, 16))).collect();
    uars.sort_unstable();
    assert_eq!(uars, (0x11..0x100).collect::<Vec<_>>());
    setup.refused(Words::new(0x802, 16), NO_RESOURCES, "no UAR left");
    setup.good(named(0x803, 0x42));
    assert_eq!(setup.good(Words::new(0x802, 16)), 0x42);
    // A byte names a set of counters. The numbers of XRC receive queues are behind those of other shared
    // receive queues.
    let counters: Vec<u32> = (1..0x100).map(|_| setup.good(Words::new(0x771, 16))).collect();
    assert_eq!(counters, (1..0x100).collect::<Vec<_>>());
    setup.refused(Words::new(0x771, 16), NO_RESOURCES, "no set of counters left");
    assert_eq!(setup.good(Words::new(0x705, 0x110)), 0x10_0000);
}

#[test]
fn a_queue_is_on_pages_of_memory_wherever_they_are() {
    let mut setup = Setup::new();
    // Each of these commands creates a queue with a ring of more than one page.
    let eq = setup.eq(7);
    let (cq, _) = setup.cq(7);
    let (qp, _) = setup.qp();
    for (words, log_page) in [(eq, 0x28), (cq, 0x28), (qp, QPC + 0x14)] {
        let first = u64::from_be_bytes(words.0[PAGES..PAGES + 8].try_into().unwrap());
        let count = (words.0.len() - PAGES) / 8;
        assert!(count > 1);
        let last = PAGES + 8 * (count - 1);
        let why = format!("opcode {:x?}", &words.0[..2]);
        setup.refused(without_page(words.clone()), BAD_INPUT_LENGTH, &why);
        setup.good(words.clone().u64(last, first + 4096 * count as u64));
        setup.refused(words.clone().u64(last, first + (1 << 40)), BAD_PARAMETER, &why);
        setup.refused(words.clone().u64(last, first + 1), BAD_PARAMETER, &why);
        // With the shift, all addresses of the list are outside of the memory, or not at the beginning of a
        // page.
        for shift in [1 << 40, 64, 2048] {
            let shifted = (0..count).fold(words.clone(), |words, page| {
                words.u64(PAGES + 8 * page, first + shift + 4096 * page as u64)
            });
            setup.refused(shifted, BAD_PARAMETER, &why);
        }
        // Pages of 8 or 16 KiB replace the pages of 4 KiB. Each begins at a multiple of its size.
        for log in [1, 2] {
            let mut words = words.clone().u8(log_page, log);
            let bytes = 4096 << log;
            let bigger = setup.entries(10).next_multiple_of(bytes);
            setup.host.put(bigger + 63, &[1]);
            words.0.truncate(PAGES);
            let listed = (4096 * count).div_ceil(bytes as usize) as u64;
            let paged = |words: &Words, from: u64| {
                (0..listed).fold(words.clone(), |words, page| with_page(words, from + page * bytes))
            };
            setup.refused(paged(&words, bigger + 4096), BAD_PARAMETER, &why);
            setup.good(paged(&words, bigger));
        }
        // The list has more pages than the ring needs.
        setup.good(with_page(words.clone(), first + 4096 * count as u64));
    }
}

/// A ring may begin inside its first page, at a multiple of a 64th of the page.
#[test]
fn a_ring_begins_inside_its_first_page() {
    for log_page in 0..2 {
        let mut setup = Setup::new();
        let page = 4096 << log_page;
        let [entries, rings] = [(); 2].map(|()| setup.entries(9).next_multiple_of(page));
        let list = |mut words: Words, at: u64| {
            words.0.truncate(PAGES);
            (0..3).fold(words, |words, number| with_page(words, at + number * page))
        };
        let (words, ring) = setup.cq(LOG_CQ);
        let cqn = setup.good(list(words.u8(0x28, log_page).u16(0x1a, 3 << 6), entries));
        let (words, queue) = setup.qp();
        let words = words.u8(QPC + 0x14, log_page).u16(QPC + 0x92, 5 << 6).u24(QPC + 0x7d, cqn);
        let qpn = setup.good(list(words, rings));
        setup.ready(0, qpn, qpn);
        let sq = rings + 5 * page / 64 + (queue.attributes.sq - queue.receives_at());
        let attributes = QpAttributes { sq, ..queue.attributes };
        let send_cq = Ring { cqn, address: entries + 3 * page / 64, ..ring };
        setup.host.q[A] = Queue { qpn, attributes, send_cq, ..queue };
        setup.host.succeeds(A, Wqe::new(Opcode::NOP, 0));
    }
}

#[test]
fn an_event_queue_has_a_uar_and_entries_of_the_device() {
    let mut setup = Setup::new();
    let good = setup.eq(6);
    setup.refused(good.clone().u24(0x1d, setup.uar + 1), BAD_RESOURCE, "no such UAR");
    setup.refused(good.clone().u16(0x1a, 1 << 6), BAD_PARAMETER, "inside its first page");
    setup.refused(good.clone().u8(0x1c, 23), BAD_PARAMETER, "2^23 entries");
    setup.refused(good.clone().u8(0x1c, 22), BAD_INPUT_LENGTH, "too few pages for 2^22 entries");
    let ring = u64::from_be_bytes(good.0[PAGES..PAGES + 8].try_into().unwrap());
    setup.host.put(ring + 63, &[0]);
    setup.refused(good.clone(), BAD_PARAMETER, "an entry that looks like an event");
    setup.host.put(ring + 63, &[1]);
    assert_eq!(setup.give(good), Ok(setup.eq + 1));
}

#[test]
fn a_completion_queue_has_good_fields() {
    let mut setup = Setup::new();
    let (good, ring) = setup.cq(4);
    let cases = [
        ("`dbr_umem_valid`", good.clone().u8(0x10, 2), BAD_RESOURCE),
        ("`cqe_sz` 2", good.clone().u8(0x11, 0x40), BAD_PARAMETER),
        ("`cqe_comp_en`", good.clone().u8(0x12, 0x40), BAD_PARAMETER),
        ("`cqe_sz` 4", good.clone().u8(0x11, 0x80), BAD_PARAMETER),
        ("`cq_umem_valid`", good.clone().u8(0x5c, 0x80), BAD_RESOURCE),
        ("no such UAR", good.clone().u24(0x1d, setup.uar + 1), BAD_RESOURCE),
        ("no such EQ", good.clone().u32(0x24, setup.eq + 1), BAD_RESOURCE),
        ("a record between records", good.clone().u64(0x48, ring.record + 4), BAD_PARAMETER),
        ("a record that is no memory", good.clone().u64(0x48, 0x1000), BAD_PARAMETER),
    ];
    for (why, words, status) in cases {
        setup.refused(words, status, why);
    }
    setup.good(good);
}

/// If the host takes no completions, a queue without the bit `oi` fails, and a queue with this bit continues.
#[test]
fn a_completion_queue_ignores_overruns_if_asked() {
    for ignores in [false, true] {
        let mut setup = Setup::new();
        let (words, ring) = setup.cq(1);
        let cqn = setup.good(words.u8(0x11, if ignores { 2 } else { 0 }));
        let (words, queue) = setup.qp();
        let qpn = setup.good(words.u24(QPC + 0x7d, cqn));
        setup.ready(0, qpn, qpn);
        setup.host.q[A] = Queue { qpn, ..queue };
        (0..5).for_each(|_| _ = setup.host.post(A, Wqe::new(Opcode::NOP, 0)));
        setup.host.ring(A);
        let (events, producer) = (setup.host.device.take_events(), setup.host.device.cq_producer(cqn));
        let expected = if ignores { (vec![], Ok(5)) } else { (vec![Event::CqError(cqn)], Ok(2)) };
        assert_eq!((events, producer), expected);
        // With `oi`, the fifth completion is in the first entry, in the third lap of the ring of two entries.
        let counter = setup.host.get(ring.address + 60, 2);
        assert_eq!(counter, if ignores { [0, 4] } else { [0, 0] });
    }
}

#[test]
fn a_queue_pair_has_good_fields() {
    let mut setup = Setup::new();
    let (good, queue) = setup.qp();
    let record = queue.attributes.doorbell_record;
    let cases = [
        ("`st` XRC", good.clone().u8(QPC + 1, 6), BAD_PARAMETER),
        ("`st` 3", good.clone().u8(QPC + 1, 3), BAD_PARAMETER),
        ("`dbr_umem_valid`", good.clone().u8(QPC + 0xd0, 0x10), BAD_RESOURCE),
        ("`wq_umem_valid`", good.clone().u8(0x10c, 0x80), BAD_RESOURCE),
        ("`rq_type` 2", good.clone().u8(QPC + 0xac, 2), BAD_PARAMETER),
        ("no such SRQ", good.clone().u8(QPC + 0xac, 1), BAD_RESOURCE),
        ("no such domain", good.clone().u24(QPC + 0x5, 0x77), BAD_RESOURCE),
        ("no such UAR", good.clone().u24(QPC + 0xd, setup.uar + 1), BAD_RESOURCE),
        ("no such CQ", good.clone().u24(QPC + 0x7d, 0x77), BAD_RESOURCE),
        ("no such receive CQ", good.clone().u24(QPC + 0x9d, 0x77), BAD_RESOURCE),
        ("receives, and CQ 0", good.clone().u24(QPC + 0x9d, 0), BAD_RESOURCE),
        ("`ts_format` 3", good.clone().u8(QPC + 0xb, 0xc0), BAD_PARAMETER),
        ("a slot of 2 KiB", good.clone().u8(QPC + 0x9, 7), BAD_PARAMETER),
        ("a record between records", good.clone().u64(QPC + 0xa0, record + 4), BAD_PARAMETER),
        ("a record that is no memory", good.clone().u64(QPC + 0xa0, 0x1000), BAD_PARAMETER),
    ];
    for (why, words, status) in cases {
        setup.refused(words, status, why);
    }
    setup.good(good);
}

/// Without a receive queue, the memory of the rings begins with the send ring. The receive CQ is optional,
/// but stored if the command names one.
#[test]
fn a_queue_pair_may_do_without_receives() {
    let mut setup = Setup::new();
    let (words, queue) = setup.qp();
    let words = without_page(words).u8(QPC + 0x9, 0).u8(QPC + 0xac, 3);
    let qpn = setup.good(words.clone());
    setup.refused(named(0x401, queue.recv_cq.cqn), IN_USE, "its receive CQ");
    setup.good(named(0x501, qpn));
    let qpn = setup.good(words.u24(QPC + 0x9d, 0));
    setup.good(named(0x401, queue.recv_cq.cqn));
    setup.ready(0, qpn, qpn);
    let attributes = QpAttributes { sq: queue.receives_at(), ..queue.attributes };
    setup.host.q[A] = Queue { qpn, attributes, ..queue };
    setup.host.succeeds(A, Wqe::new(Opcode::NOP, 0));
}

/// Both rings wrap around, and completions name their requests.
#[test]
fn a_queue_pair_that_a_command_has_made_sends_and_receives() {
    let mut setup = Setup::new();
    setup.connect(0, 7);
    let host = &mut setup.host;
    for round in 0..3 << LOG_BLOCKS {
        let data = pattern(40, round as u8);
        let ((from, source), (to, target)) = (host.filled(&data), host.region(40, Access::ALL));
        host.post_receive(B, &[segment(to, 40, target)]);
        let counter = host.execute(A, send(Opcode::SEND, 0, &[segment(from, 40, source)]));
        let sent = host.good(A);
        let received = host.poll_recv(B).unwrap();
        assert_eq!(received.opcode(), CqeOpcode::RESPONDER_SEND, "round {round}");
        assert_eq!((sent.counter(), received.counter()), (counter, round));
        assert_eq!((sent.0.user_index.get(), received.0.user_index.get()), (0x0012_3456, 0x0012_3456));
        assert_eq!(host.get(to, 40), data);
    }
}

/// INIT, RTR and RTS follow in this order. A command that skips a state is refused, and the state stays.
#[test]
fn states_of_a_queue_pair_follow_each_other() {
    let mut setup = Setup::new();
    let Queue { qpn, .. } = setup.made_qp();
    // 2^4 reads of the peer at once are the most that this device allows.
    let steps = [to_init(qpn, 0), to_receive(qpn, qpn), to_send(qpn, 0).u8(QPC + 0x71, 4 << 5)];
    let states = [QpState::Reset, QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend];
    for (at, state) in states.into_iter().enumerate() {
        for (step, words) in steps.iter().enumerate().filter(|(step, _)| *step != at) {
            setup.refused(words.clone(), BAD_QP_STATE, &format!("step {step} in {state:?}"));
        }
        assert_eq!(setup.state(qpn), state);
        if let Some(step) = steps.get(at) {
            setup.good(step.clone());
        }
    }
    for (opcode, state) in [(0x507, QpState::Error), (0x50a, QpState::Reset)] {
        setup.good(named(opcode, qpn));
        assert_eq!(setup.state(qpn), state);
        setup.refused(named(opcode, qpn + 1), BAD_RESOURCE, "no such queue pair");
    }
}

/// RST2INIT_QP gives the peer the rights to read, to write and to do atomics, each by its own bit (`rre`,
/// `rwe`, `rae`).
#[test]
fn a_peer_has_the_rights_that_rst2init_gives() {
    let mut setup = Setup::new();
    for rights in (0..8).map(|rights| rights << 5) {
        for (right, opcode) in [
            (REMOTE_READ, Opcode::RDMA_READ),
            (REMOTE_WRITE, Opcode::RDMA_WRITE),
            (REMOTE_ATOMIC, Opcode::ATOMIC_FA),
        ] {
            // The other bits of the byte belong to other fields, and do not change the rights.
            setup.connect(rights | 0x1f, 7);
            let host = &mut setup.host;
            let (at, key) = host.region(8, Access::ALL);
            let wqe = match opcode {
                Opcode::ATOMIC_FA => {
                    let atomic = Wqe::new(opcode, 0).with(&remote(at, key)).with(&[0_u8; 16]);
                    atomic.with(&segment(at, 8, key))
                }
                opcode => rdma(opcode, 0, at, key, &[segment(at, 8, key)]),
            };
            host.execute(B, wqe);
            let seen = host.poll_send(B).unwrap();
            let refused = seen.opcode() == CqeOpcode::REQUESTER_ERROR;
            assert_eq!(refused, rights & right == 0, "{opcode:?} with {rights:#x}");
            assert!(!refused || seen.syndrome() == Syndrome::REMOTE_INVALID_REQUEST);
        }
    }
}

/// Masked atomics need the right to atomics, a mode that allows them (`atomic_mode`), and a device that has
/// them.
#[test]
fn a_peer_has_masked_atomics_by_the_mode() {
    let mut setup = Setup::new();
    let masked = |setup: &mut Setup, opmod| {
        let host = &mut setup.host;
        let (at, key) = host.region(8, Access::ALL);
        let atomic = Wqe::new(Opcode::ATOMIC_MASKED_FA, 0).with_modifier(opmod);
        host.execute(B, atomic.with(&remote(at, key)).with(&[0_u8; 16]).with(&segment(at, 4, key)));
        let seen = host.poll_send(B).unwrap();
        (seen.opcode() == CqeOpcode::REQUESTER_ERROR).then(|| seen.syndrome())
    };
    let invalid = Some(Syndrome::REMOTE_INVALID_REQUEST);
    for (mode, rights, refused) in
        [(0, REMOTE_ATOMIC, invalid), (1, REMOTE_ATOMIC, invalid), (3, 0, invalid), (3, REMOTE_ATOMIC, None)]
    {
        setup.connect_with(mode, rights, 7);
        assert_eq!(masked(&mut setup, 8), refused, "{mode} {rights:#x}");
    }
    for opmod in [0, 7, 10] {
        setup.connect_with(3, REMOTE_ATOMIC, 7);
        assert_eq!(masked(&mut setup, opmod), Some(Syndrome::LOCAL_QP_OPERATION), "{opmod}");
    }
}

/// RTR2RTS_QP sets how often a SEND is repeated while the peer has no receive request (`rnr_retry`). 7 means
/// no limit. INIT2RTR_QP of the peer sets the time between two repetitions (`min_rnr_nak`): code 14 is 1.28
/// ms, which are two runs of the device.
#[test]
fn a_request_is_tried_again_as_often_as_rtr2rts_says() {
    for retries in 0..=7 {
        let mut setup = Setup::new();
        setup.connect(0, retries);
        let host = &mut setup.host;
        host.execute(A, send(Opcode::SEND, 0, &[]));
        for round in 0..2 * retries {
            assert!(host.poll_send(A).is_none(), "{retries}: round {round}");
            host.device.run();
        }
        if retries == 7 {
            (0..100).for_each(|_| host.device.run());
            assert!(host.poll_send(A).is_none() && host.device.is_waiting());
        } else {
            assert_eq!(host.bad(A).syndrome(), Syndrome::RNR_RETRY, "{retries}");
        }
    }
}

/// Returns CREATE_MKEY of a key that UMRs fill. The command sets `free`, access, `umr_en`, tag, `bsf_en`,
/// `en_rinval`, domain and octowords.
pub(crate) fn umr_mkey(pd: u32, free: u8, access: u8, tag: u8, flags: u8) -> Words {
    Words::new(0x200, 0x110)
        .u8(MKC, free)
        .u8(MKC + 2, access)
        .u24(MKC + 4, 0x00ff_ffff)
        .u8(MKC + 7, tag)
        .u8(MKC + 0xc, flags)
        .u24(MKC + 0xd, pd)
        .u32(MKC + 0x34, 16)
}

#[test]
fn an_mkey_for_umrs_is_as_its_context_says() {
    const UMR: u8 = 0x80;
    let mut setup = Setup::new();
    let plain = MkeyAttributes {
        access: Access { local_read: false, local_write: false, ..Access::LOCAL },
        free: false,
        ..MkeyAttributes::new(setup.host.pd, 16)
    };
    let words = |free, access, tag, flags| umr_mkey(plain.pd, free, UMR | access | 2, tag, flags);
    let bsf = |flags, octowords| words(0, 0, 0, flags).u32(MKC + 0x20, octowords);
    let crypto = |flags, octowords| bsf(flags, octowords).u8(MKC + 0x3c, 1 << 3);
    let local_write = Access { local_write: true, ..plain.access };
    let both = MkeyAttributes { signature: true, crypto: true, ..plain };
    let cases = [
        ("nothing", words(0, 0, 0, 0), plain),
        ("free", words(0x40, 0, 0, 0), MkeyAttributes { free: true, ..plain }),
        ("not free", words(0x20, 0, 0, 0), plain),
        ("a right", words(0, LW, 0, 0), MkeyAttributes { access: local_write, ..plain }),
        ("all rights", words(0, 0x7c, 0, 0), MkeyAttributes { access: Access::ALL, ..plain }),
        ("a tag", words(0, 0, 0x5a, 0), MkeyAttributes { tag: 0x5a, ..plain }),
        ("invalidable", words(0, 0, 0, 1), MkeyAttributes { remote_invalidate: true, ..plain }),
        ("not invalidable", words(0, 0, 0, 2), plain),
        ("less room", words(0, 0, 0, 0).u32(MKC + 0x34, 4), MkeyAttributes { translations: 4, ..plain }),
        ("a BSF", bsf(0x40, 4), MkeyAttributes { signature: true, ..plain }),
        ("room for no BSF", bsf(0x40, 3), plain),
        ("a BSF that is not enabled", bsf(0, 4), plain),
        ("crypto alone", crypto(0x40, 4), MkeyAttributes { crypto: true, ..plain }),
        ("crypto, room for one BSF", crypto(0x40, 7), MkeyAttributes { crypto: true, ..plain }),
        ("both", crypto(0x40, 8), both),
        ("`crypto_en` 2", bsf(0x40, 8).u8(MKC + 0x3c, 2 << 3), both),
        (
            "one length",
            words(0, 1, 0, 0).u8(MKC + 0x3b, 0xa0 | 21),
            MkeyAttributes { log_entry: Some(21), ..plain },
        ),
        (
            "writes in any order",
            words(0, 0, 0, 0).u8(MKC + 1, 4),
            MkeyAttributes { relaxed_ordering: [true, false], ..plain },
        ),
        (
            "reads in any order",
            words(0, 0, 0, 0).u8(MKC + 0x3b, 0x40),
            MkeyAttributes { relaxed_ordering: [false, true], ..plain },
        ),
        ("what is beside `crypto_en`", bsf(0, 0).u8(MKC + 0x3c, 0xe7), plain),
    ];
    for (what, words, attributes) in cases {
        let made = setup.good(words);
        let expected = setup.host.device.create_mkey(attributes).unwrap();
        let view = |index| setup.host.device.query_mkey(index).unwrap();
        assert_eq!(view(MkeyIndex::from_low_bits(made)), view(expected.index()), "{what}");
    }
    setup.refused(umr_mkey(0x77, 0, UMR | 2, 0, 0), BAD_RESOURCE, "no such domain");
    setup.refused(words(1 << 2, 0, 0, 0), BAD_PARAMETER, "access mode 6");
}

/// Returns CREATE_MKEY of a key over a list, with its entries.
fn list_mkey(pd: u32, tag: u8, flags: u8, start: u64, length: u64, entries: &[Klm]) -> Words {
    let words = umr_mkey(pd, 0, 0x7c | 2, tag, flags)
        .u64(MKC + 0x10, start)
        .u64(MKC + 0x18, length)
        .u32(0x60, entries.len() as u32);
    Words(words.0.into_iter().chain(entries.as_bytes().iter().copied()).collect())
}

#[test]
fn an_mkey_comes_with_its_entries() {
    let mut setup = Setup::new();
    let pd = setup.host.pd;
    let other = Key::from_raw(0x1234_5600);
    let entries = [klm(BASE, 100, other), klm(BASE + 4096, 28, other)];
    let attributes =
        MkeyAttributes { access: Access::ALL, free: false, tag: 0x77, ..MkeyAttributes::new(pd, 16) };
    let space = MkeySpace { start: 0x5000, length: 128, entries: entries.to_vec() };
    let made = setup.good(list_mkey(pd, 0x77, 0, 0x5000, 128, &entries));
    let expected = setup.host.device.create_mkey_over(attributes, space).unwrap();
    let view = |index| setup.host.device.query_mkey(index).unwrap();
    assert_eq!(view(MkeyIndex::from_low_bits(made)), view(expected.index()));
    let good = list_mkey(pd, 0, 0, 0x5000, 128, &entries);
    setup.refused(list_mkey(pd, 0, 0x80, 0x5000, 128, &entries), BAD_PARAMETER, "`length64`");
    setup.refused(list_mkey(pd, 0, 0, 0x5000, 129, &entries), BAD_PARAMETER, "longer than its entries");
    setup.refused(good.clone().u32(0x60, 3), BAD_INPUT_LENGTH, "an entry too few");
    setup.refused(good.clone().u32(MKC + 0x34, 1), BAD_PARAMETER, "no room for them");
    setup.refused(good.u8(MKC, 0x40), BAD_PARAMETER, "free, and no UMR could change that");
}

/// Atomics over memory of relaxed order are refused with the syndrome that a ConnectX returns, whether a
/// registration or a command has relaxed the order.
#[test]
fn atomics_over_relaxed_order_have_their_number() {
    let mut setup = Setup::new();
    let pd = setup.host.pd;
    let (at, key) = setup.host.region(4096, Access::ALL);
    // Entries of one length (mode 3) of 2^12 bytes.
    let atomic = |entry: Klm| list_mkey(pd, 0, 0, 0, 4096, &[entry]).u8(MKC + 2, 0x7c | 3).u8(MKC + 0x3b, 12);
    let is_refused = |setup: &mut Setup, words: &Words| {
        let entry = Posted::new(setup.queue, &words.0, 16).give(&mut setup.host.device);
        assert_eq!((entry[0x20], &entry[0x24..0x28]), (BAD_PARAMETER, &0x0045_d3a4_u32.to_be_bytes()[..]));
    };
    // The command creates mkeys over a list that keep the order of accesses, relax the order of writes, or
    // relax the order of reads.
    for (relaxed, writes, reads) in [(false, 0, 0), (true, 0x04, 0), (true, 0, 0x40)] {
        let list = list_mkey(pd, 0, 0, 0, 4096, &[klm(at, 4096, key)]);
        let list = setup.good(list.u8(MKC + 1, writes).u8(MKC + 0x3b, reads));
        let words = atomic(klm(0, 0, Key::from_raw(list << 8)));
        if relaxed {
            is_refused(&mut setup, &words);
        } else {
            setup.good(words);
        }
    }
    let words = atomic(klm(at, 0, key));
    setup.good(words.clone());
    setup.host.device.set_relaxed_order(key.index(), true).unwrap();
    is_refused(&mut setup, &words);
}

/// A key over all addresses of the bus needs the flag `length64`. The device ignores the length in the
/// command.
#[test]
fn an_mkey_of_physical_addresses_is_of_all_memory() {
    let mut setup = Setup::new();
    let pd = setup.host.pd;
    let words = |flags| Words::new(0x200, 0x110).u8(MKC + 2, 0x7c).u8(MKC + 0xc, flags).u24(MKC + 0xd, pd);
    for flags in [0, 0x40, 0x7f] {
        setup.refused(words(flags), BAD_PARAMETER, "not `length64`");
    }
    // The key has its tag, and may relax the order of writes.
    let keys = [words(0x80), words(0x80).u8(MKC + 7, 0x5a), words(0x80).u8(MKC + 1, 4)];
    let keys = keys.map(|words| MkeyIndex::from_low_bits(setup.good(words)));
    let [plain, tagged, relaxed] = keys.map(|key| setup.host.device.query_mkey(key).unwrap());
    assert!(plain != tagged && plain != relaxed);
}

const TAG: [u8; 8] = *b"key tag!";

/// Sends a block through an mkey that encrypts with a DEK, and whose BSF names a keytag. Returns the wire
/// bytes, or `None` if the request fails.
fn encrypted(setup: &mut Setup, dek: u32, tag: [u8; 8]) -> Option<Vec<u8>> {
    setup.connect(0, 7);
    let host = &mut setup.host;
    let mkey = host.mkey(false, true);
    let (at, key) = host.filled(&pattern(512, 1));
    let config = Config::new(&mkey).access(LW).list(&[(at, 512, key)]).crypto(0, 1, [0; 16], dek).keytag(tag);
    host.configure(config);
    let wire = host.send_from(mkey.key, 0, 512);
    let done = host.poll_send(A).unwrap().opcode() == CqeOpcode::REQUESTER;
    done.then_some(wire)
}

#[test]
fn a_dek_has_its_size_and_keytag() {
    let mut setup = Setup::new();
    let long: [u8; 64] = pattern(64, 9).try_into().unwrap();
    for (size, key) in [(0, &XTS_KEY[..]), (1, &long)] {
        let reference = setup.host.dek(key);
        let wire = encrypted(&mut setup, reference, [0; 8]).unwrap();
        if size == 0 {
            assert_eq!(wire, xts128(&XTS_KEY, &pattern(512, 1), 512, 0));
        }
        let with_tag = [key, &TAG].concat();
        let plain = setup.good(dek(setup.host.pd, size, 3, &with_tag));
        let tagged = setup.good(dek(setup.host.pd, size, 0x83, &with_tag));
        for (number, tag, expected) in [
            (plain, [0; 8], Some(&wire)),
            (plain, TAG, Some(&wire)),
            (tagged, TAG, Some(&wire)),
            (tagged, [0; 8], None),
        ] {
            assert_eq!(encrypted(&mut setup, number, tag).as_ref(), expected, "{size}, {tag:x?}");
        }
    }
    let pd = setup.host.pd;
    setup.refused(dek(pd, 2, 3, &long), BAD_PARAMETER, "no such size");
    setup.refused(dek(pd, 1, 1, &long), BAD_PARAMETER, "of another purpose");
    setup.refused(dek(0x77, 1, 3, &long), BAD_RESOURCE, "no such domain");
    let mut short = dek(pd, 1, 0x83, &long);
    short.0.truncate(0x50 + 64);
    setup.refused(short.clone(), BAD_INPUT_LENGTH, "no keytag");
    setup.good(short.u8(0x10 + 0xb, 3));
}

/// Commands on objects query a DEK and give it another key, which SYNC_CRYPTO puts in force. A query returns
/// the opaque bytes of the DEK's user, and no key.
#[test]
fn a_dek_is_queried_and_gets_another_key() {
    let mut setup = Setup::new();
    let other: [u8; 32] = pattern(32, 7).try_into().unwrap();
    let create = dek(setup.host.pd, 0, 3, &XTS_KEY).bytes(0x10 + 0x30, b"opaque..");
    let number = setup.good(create.clone());
    let query = Words::new(0xa02, 16).u16(6, 0xc).u32(8, number);
    let expected = [&[0; 0x30][..], b"opaque..", &[0; 0x100 - 0x38]].concat();
    assert_eq!(told(&mut setup, query, 0x100), expected);
    let modify = dek(setup.host.pd, 0, 3, &other).u16(0, 0xa01).u32(8, number);
    for fields in [0, 2, 3] {
        setup.refused(modify.clone().u64(0x10, fields), BAD_PARAMETER, "the key is the only field");
    }
    setup.good(modify.u64(0x10, 1));
    let sync = |kind| Words::new(0xb12, 16).u16(0xe, kind);
    for kind in [0, 2] {
        setup.refused(sync(kind), BAD_PARAMETER, "not the kind of all keys");
    }
    setup.good(sync(1));
    assert_eq!(encrypted(&mut setup, number, [0; 8]), Some(xts128(&other, &pattern(512, 1), 512, 0)));
    let mut setup = Setup::with(DeviceProfile { crypto: CryptoMode::None, ..Default::default() });
    setup.refused(sync(1), BAD_PARAMETER, "a device without encryption");
}

/// Returns a setup whose port is of this kind and has a GID.
pub(crate) fn with_port(port: Port) -> Setup {
    let mut setup = Setup::new();
    let profile = DeviceProfile { port, port_gid: GID, ..*setup.host.device.profile() };
    let memory = setup.host.device.memory().clone();
    setup.host.device = Device::new(memory, profile);
    while setup.host.device.read_register(0x1fc) >> 31 != 0 {}
    setup.host.device.write_register(0x10, (setup.queue >> 32) as u32);
    setup.host.device.write_register(0x14, setup.queue as u32);
    setup.run();
    setup
}

pub(crate) const GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 2, 3, 0xff, 0xfe, 6, 7, 8];

/// Executes a command, and returns the `bytes` bytes of its reply behind the first 16.
pub(crate) fn told(setup: &mut Setup, request: Words, bytes: usize) -> Vec<u8> {
    reply(setup, request, bytes).split_off(16)
}

/// Executes a command, and returns the first `16 + bytes` bytes of its reply.
pub(crate) fn reply(setup: &mut Setup, request: Words, bytes: usize) -> Vec<u8> {
    let posted = Posted::new(setup.queue, &request.0, 16 + bytes);
    let entry = posted.give(&mut setup.host.device);
    assert_eq!((entry[0x3f], entry[0x20]), (0, 0), "{request:x?}");
    let replies = posted.blocks.iter().skip(request.0[16..].chunks(512).len());
    let blocks = replies.flat_map(|(at, _)| setup.host.get(*at, 512));
    entry[0x20..0x30].iter().copied().chain(blocks).take(16 + bytes).collect()
}

/// A region may consist of pages anywhere in memory, and begin inside its first page.
#[test]
fn a_region_is_on_pages_wherever_they_are() {
    let mut setup = Setup::new();
    setup.connect(REMOTE_WRITE, 7);
    let pd = setup.host.pd;
    let pages = setup.host.alloc(3 << 12);
    let words = Words::new(0x200, 0x110)
        .u8(MKC + 2, 0x3d)
        .u24(MKC + 0xd, pd)
        .u64(MKC + 0x10, 0x6f00)
        .u64(MKC + 0x18, 0x300)
        .u8(MKC + 0x3b, 12)
        .u64(0x110 - 8, 0);
    // The two lowest bits of a page entry are rights. With 3, the device may read and write the page.
    let words = with_page(with_page(words, pages + 0x2000 + 3), pages + 3);
    setup.refused(without_page(words.clone()), BAD_INPUT_LENGTH, "a page too few");
    setup.refused(words.clone().u8(MKC + 0x3b, 11), BAD_PARAMETER, "pages of 2 KiB");
    setup.refused(words.clone().u64(MKC + 0x10, u64::MAX - 0xff), BAD_PARAMETER, "behind 2^64");
    setup.refused(words.clone().u8(0xc, 0x40), BAD_PARAMETER, "pages of a umem");
    // A region has no room for a BSF, even if the command asks for signatures and encryption.
    let flags = words.clone().u8(MKC + 0xc, 0x40).u32(MKC + 0x20, 8).u8(MKC + 0x3c, 1 << 3);
    let umr = words.clone().u8(MKC + 2, 0xbd);
    let keys = [words.clone(), flags, umr].map(|words| MkeyIndex::from_low_bits(setup.good(words)));
    let [plain, flagged, umr] = keys.map(|key| setup.host.device.query_mkey(key).unwrap());
    assert_eq!(plain, flagged);
    assert_ne!(plain, umr, "UMRs may change the key");
    let key = setup.good(words) << 8;
    let key = Key::from_raw(key);
    let host = &mut setup.host;
    let data = pattern(0x300, 5);
    let (from, source) = host.filled(&data);
    host.succeeds(A, rdma(Opcode::RDMA_WRITE, 0, 0x6f00, key, &[segment(from, 0x300, source)]));
    assert_eq!(host.get(pages + 0x2f00, 0x100), data[..0x100]);
    assert_eq!(host.get(pages, 0x200), data[0x100..]);
    host.execute(A, rdma(Opcode::RDMA_WRITE, 0, 0x7100, key, &[segment(from, 0x101, source)]));
    assert_eq!(host.poll_send(A).unwrap().opcode(), CqeOpcode::REQUESTER_ERROR, "behind its end");
}

/// Management queue pairs have the fixed numbers 0 and 1. Their creation takes no number of the other queue
/// pairs. The queue pair for UMRs is in the driver's own protection domain.
#[test]
fn a_driver_has_queue_pairs_of_its_own() {
    let mut setup = Setup::new();
    let (words, _) = setup.qp();
    let first = setup.good(words);
    for (service, number) in [(7, 0), (8, 1), (12, first + 1), (1, first + 2), (2, first + 3)] {
        let (words, _) = setup.qp();
        let words = words.u8(QPC + 1, service).u24(QPC + 5, if service == 12 { 0 } else { setup.host.pd });
        let made = setup.good(words);
        assert_eq!(made, number, "{service}");
        if matches!(service, 7 | 8) {
            let (again, _) = setup.qp();
            setup.refused(again.u8(QPC + 1, service), IN_USE, "there is one");
        }
        setup.ready(0, made, 0);
        assert_eq!(setup.state(made), QpState::ReadyToSend);
        // QUERY_QP returns the written context, and the state.
        let context = told(&mut setup, named(0x50b, made), 8 + 0xe8);
        assert_eq!((context[8] >> 4, context[9], context[8 + 0x92]), (3, service, 0xe0));
        setup.good(named(0x501, made));
        setup.refused(named(0x50b, made), BAD_RESOURCE, "it is gone");
    }
}

/// The completion of a management datagram has the key of the partition (P_Key) in the low 16 bits of the
/// word at offset 0x24 (`handle_responder` in `cq.c` of Linux's mlx5_ib).
#[test]
fn a_management_datagram_names_its_partition() {
    const GID: [u8; 16] = [7; 16];
    let mut setup = Setup::new();
    setup.host.device.set_gids(vec![GID]);
    for (service, partition) in [(8, 0xffff), (2, 0)] {
        let (words, queue) = setup.qp();
        let qpn = setup.good(words.u8(QPC + 1, service));
        setup.ready(0, qpn, 0);
        setup.host.q[B] = Queue { qpn, ..queue };
        let (to, target) = setup.host.region(128, Access::ALL);
        setup.host.post_receive(B, &[segment(to, 128, target)]);
        let mut address = [0; 48];
        address[8..12].copy_from_slice(&(1 << 31 | qpn).to_be_bytes());
        address[32..].copy_from_slice(&GID);
        setup.host.execute(B, Wqe::new(Opcode::SEND, 0).with(&address));
        let seen = setup.host.poll_recv(B).unwrap();
        assert_eq!((seen.opcode(), seen.0.imm_inval.get()), (CqeOpcode::RESPONDER_SEND, partition));
        setup.good(named(0x501, qpn));
    }
}

/// MODIFY_CQ sets the moderation of events, and nothing else on this device.
#[test]
fn events_of_a_completion_queue_are_moderated() {
    let mut setup = Setup::new();
    let cq = setup.made_cq(4);
    let words = Words::new(0x403, 0x110).u24(9, cq.cqn).u32(0xc, 3).u16(0x22, 16);
    setup.good(words.clone());
    setup.refused(words.clone().u16(6, 1), BAD_PARAMETER, "another size");
    setup.refused(words.clone().u32(0xc, 4), BAD_PARAMETER, "another property");
    setup.refused(words.u24(9, 0x7777), BAD_RESOURCE, "no queue");
}

/// RST2INIT_QP sets the peer's rights. A later transition sets a right or the Q_Key if its mask selects it.
#[test]
fn a_mask_selects_what_a_step_sets_beside() {
    let mut setup = Setup::new();
    let Queue { qpn, .. } = setup.made_qp();
    setup.good(to_init(qpn, 0));
    for (mask, qkey) in [(0, 0), (1 << 5, 0x1234_5678), (0, 0x1234_5678)] {
        let given = if mask == 0 { 0x7777_7777 } else { qkey };
        setup.good(Words::new(0x50e, 0x120).u24(9, qpn).u32(0x10, mask).u32(QPC + 0xa8, given));
        let context = told(&mut setup, named(0x50b, qpn), 8 + 0xe8);
        assert_eq!(context[8 + 0xa8..8 + 0xac], u32::to_be_bytes(qkey));
    }
    let rights = |setup: &mut Setup| told(setup, named(0x50b, qpn), 8 + 0xe8)[8 + 0x92];
    setup.good(to_receive(qpn, qpn).u8(QPC + 0x92, 0xe0).u32(0x10, 1 << 1));
    assert_eq!(rights(&mut setup), 0x80);
    setup.good(to_send(qpn, 0).u8(QPC + 0x92, 0xe0).u32(0x10, 1 << 2 | 1 << 3));
    assert_eq!(rights(&mut setup), 0xe0);
}

/// CREATE_RMP creates a shared receive queue, MODIFY_RMP arms its limit, and DESTROY_RMP destroys it.
#[test]
fn receives_are_shared() {
    let mut setup = Setup::new();
    let (ring, record) = (setup.host.alloc(4096), setup.host.alloc(8));
    const WQ: usize = 0x50;
    let words = Words::new(0x90c, PAGES)
        .u24(WQ + 9, setup.host.pd)
        .u64(WQ + 0x10, record)
        .u8(WQ + 0x21, 5)
        .u8(WQ + 0x23, 4);
    let words = with_page(words, ring);
    setup.refused(words.clone().u8(WQ, 0x20), BAD_PARAMETER, "strides");
    setup.refused(words.clone().u8(WQ + 0x21, 4), BAD_PARAMETER, "slots of 16 bytes");
    setup.refused(words.clone().u24(WQ + 9, 0x77), BAD_RESOURCE, "no such domain");
    let rmp = setup.good(words);
    let (qp, _) = setup.qp();
    let qp = setup.good(qp.u8(QPC + 0xac, 1).u24(QPC + 0xad, rmp));
    setup.good(Words::new(0x90d, 0x110).u24(9, rmp).u8(0x17, 1).u16(WQ + 6, 3));
    // The queue already has fewer receive requests than the limit, so the event is raised at once.
    assert_eq!(setup.host.device.take_events(), [Event::SrqLimit(rmp)]);
    setup.refused(named(0x90e, rmp), IN_USE, "a queue pair takes receives from it");
    setup.good(named(0x501, qp));
    setup.good(named(0x90e, rmp));
    setup.refused(named(0x90e, rmp), BAD_RESOURCE, "it is gone");
}

/// XRC domains, XRC receive queues and user contexts have a number and no other state.
#[test]
fn some_objects_are_numbers() {
    let mut setup = Setup::new();
    for (make, destroy) in [(0x80e, 0x80f), (0x705, 0x706), (0xa04, 0xa06)] {
        let [one, other] = [(); 2].map(|()| setup.good(Words::new(make, 0x110)));
        assert_ne!(one, other);
        setup.good(named(destroy, one));
        setup.refused(named(destroy, one), BAD_RESOURCE, "it is gone");
        assert_eq!(setup.good(Words::new(make, 0x110)), one);
    }
}

/// On InfiniBand, a path leads to a LID, on Ethernet to a GID. A path to another address than the port's own
/// leads to no peer.
#[test]
fn a_path_leads_here_or_to_nobody() {
    for (port, here) in
        [(Port::InfiniBand, true), (Port::InfiniBand, false), (Port::Ethernet, true), (Port::Ethernet, false)]
    {
        let mut setup = with_port(port);
        let [a, b] = [setup.made_qp(), setup.made_qp()];
        for (at, one, other) in [(A, a, b), (B, b, a)] {
            setup.good(to_init(one.qpn, 0));
            let path = QPC + 0x18;
            // On Ethernet the LID has no meaning.
            let lid = if here || port == Port::Ethernet { 1 } else { 2 };
            let words = to_receive(one.qpn, other.qpn).u8(path, 0).u16(path + 6, lid);
            let gid = if here { GID } else { [7; 16] };
            let words = if port == Port::Ethernet { words.bytes(path + 0x10, &gid) } else { words };
            setup.good(words);
            setup.good(to_send(one.qpn, 7));
            setup.host.q[at] = one;
        }
        let host = &mut setup.host;
        let (from, source) = host.filled(&[1; 8]);
        let (to, target) = host.region(8, Access::ALL);
        host.post_receive(B, &[segment(to, 8, target)]);
        host.execute(A, send(Opcode::SEND, 0, &[segment(from, 8, source)]));
        assert_eq!(host.poll_recv(B).is_some(), here, "{port:?}");
        assert_eq!(destination(host.device.take_message()), (!here).then_some(u32::MAX), "{port:?}");
    }
}

#[test]
fn on_a_network_a_path_to_another_address_leads_to_another_device() {
    let mut setup = with_port(Port::Ethernet);
    setup.host.device.join(0x100, 0x1ff).unwrap();
    let queue = setup.made_qp();
    setup.good(to_init(queue.qpn, 0));
    let path = QPC + 0x18;
    setup.good(to_receive(queue.qpn, 0x234).u8(path, 0).bytes(path + 0x10, &[7; 16]));
    setup.good(to_send(queue.qpn, 7));
    setup.host.q[A] = queue;
    let (from, source) = setup.host.filled(&[1; 8]);
    setup.host.execute(A, send(Opcode::SEND, 0, &[segment(from, 8, source)]));
    assert_eq!(destination(setup.host.device.take_message()), Some(0x234));
}

/// Returns the number of the queue pair that a request on the network is for.
fn destination(message: Option<Message>) -> Option<u32> {
    match message? {
        Message::Request { to, .. } => Some(to),
        Message::Unanswered { .. } | Message::Response { .. } => None,
    }
}
