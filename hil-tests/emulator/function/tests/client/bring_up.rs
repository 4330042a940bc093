//! A driver that shares no code with this project and brings the PCI function up. The driver begins with the
//! PCI device number, and ends with an RDMA WRITE to itself and the interrupt of its completion. The steps
//! have the same order as in the kernel's own selftest driver for mlx5 over VFIO
//! (`tools/testing/selftests/vfio/lib/drivers/mlx5`). The driver writes every field at its offset in
//! `mlx5_ifc.h`, and uses no structure of the library.

use crate::machine::{Machine, Served, is_raised, raised};
use mlx5_softdev::DeviceProfile;
use std::os::fd::OwnedFd;

/// Address and length of the client's memory on the bus.
const BASE: u64 = 0x3_0000_0000;
const BYTES: u64 = 16 << 20;

/// Addresses in the client's memory: the command queue, blocks of requests and replies, and the rings of
/// event queues.
const QUEUE: u64 = BASE;
const REQUEST: u64 = BASE + 0x10000;
const REPLY: u64 = BASE + 0x20000;
const PAGES_REQUEST: u64 = BASE + 0x30000;
const PAGES_REPLY: u64 = BASE + 0x40000;
const EVENTS: u64 = BASE + 0x50000;
const MSI_EVENTS: u64 = BASE + 0x51000;
/// Rings that begin inside of a page and end in another page that does not follow it, and their doorbell
/// records.
const SEND_RING: Ring = Ring { pages: [BASE + 0x55000, BASE + 0x52000], offset: 60 };
const COMPLETIONS: Ring = Ring { pages: [BASE + 0x53000, BASE + 0x57000], offset: 57 };
const QP_RECORD: u64 = BASE + 0x54000;
const CQ_RECORD: u64 = BASE + 0x54040;
const SOURCE: u64 = BASE + 0x400000;
const TARGET: u64 = BASE + 0x500000;
const FIRMWARE: u64 = BASE + 0x800000;

const LOG_SEND: u32 = 4;
const LOG_COMPLETIONS: u32 = 4;
const LOG_EVENTS: u32 = 6;
const LOG_MSI_EVENTS: u32 = 4;

/// Distance between two blocks of a mailbox.
const STRIDE: u64 = 1024;
/// The most pages in one command MANAGE_PAGES.
const BATCH: u32 = 512;

/// A ring of entries of 64 bytes on two pages, from entry `offset` of the first page on.
struct Ring {
    pages: [u64; 2],
    offset: u64,
}

impl Ring {
    fn entry(&self, number: u64) -> u64 {
        let at = self.offset + number;
        self.pages[(at / 64) as usize] + at % 64 * 64
    }
}

/// The bytes of a request. Its fields are set by their offsets.
struct Words(Vec<u8>);

impl Words {
    fn new(opcode: u16, op_mod: u16, length: usize) -> Self {
        let words = Self(vec![0; length]);
        words.u16(0, opcode).u16(6, op_mod)
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn u8(self, at: usize, value: u8) -> Self {
        self.put(at, &[value])
    }

    fn u16(self, at: usize, value: u16) -> Self {
        self.put(at, &value.to_be_bytes())
    }

    fn u24(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_be_bytes()[1..])
    }

    fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_be_bytes())
    }

    fn u64(self, at: usize, value: u64) -> Self {
        self.put(at, &value.to_be_bytes())
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// An entry of the command queue, with the addresses of its mailbox blocks.
#[derive(Clone, Copy)]
struct Slot {
    number: u32,
    request: u64,
    reply: u64,
}

#[derive(Default)]
struct Numbers {
    uar: u32,
    eq: u32,
    msi_eq: u32,
    pd: u32,
    mkey: u32,
    cq: u32,
    qp: u32,
}

struct Driver {
    machine: Machine,
    log_stride: u32,
    pages_slot: u32,
    token: u8,
    /// Whether the driver checks that replies are signed.
    verifies: bool,
    /// For each page that the driver may give to the firmware, whether the firmware has it.
    given: Vec<bool>,
    function: u32,
    numbers: Numbers,
    has_events: bool,
    events_taken: u32,
    msi_events_taken: u32,
    /// Whether the command MANAGE_PAGES that the device is executing takes pages back. `None` if it executes
    /// no MANAGE_PAGES.
    reclaims: Option<bool>,
    /// The numbers of pages that events have asked the driver to give, and to take back.
    asked: [u32; 2],
    posted: u16,
    completed: u32,
    arm_number: u32,
    buffer: u64,
    log_max_message: u8,
}

impl Driver {
    /// Finds the device, and gives it the address of the command queue.
    fn probe(mut machine: Machine) -> Self {
        assert_eq!(machine.config::<4>(0), [0xb3, 0x15, 0xdc, 0xa2], "a BlueField-3");
        machine.set_master(true);
        let mut looks = 0;
        while machine.register(0x1fc) >> 31 != 0 {
            looks += 1;
            assert!(looks < 1000, "the firmware is never ready");
        }
        assert_eq!(machine.register(0x4) >> 16, 5, "revision of the command interface");
        let layout = machine.register(0x14);
        let (log_size, log_stride) = (layout >> 4 & 0xf, layout & 0xf);
        assert!(log_size <= 5 && log_stride >= 6 && log_size + log_stride <= 12);
        machine.write_register(0x10, (QUEUE >> 32) as u32);
        machine.write_register(0x14, QUEUE as u32);
        Self {
            machine,
            log_stride,
            pages_slot: (1 << log_size) - 1,
            token: 0,
            verifies: false,
            given: vec![false; ((BASE + BYTES - FIRMWARE) / 4096) as usize],
            function: 0,
            numbers: Numbers::default(),
            has_events: false,
            events_taken: 0,
            msi_events_taken: 0,
            reclaims: None,
            asked: [0; 2],
            posted: 0,
            completed: 0,
            arm_number: 0,
            buffer: 0x800,
            log_max_message: 0,
        }
    }

    const fn slot(&self) -> Slot {
        Slot { number: 0, request: REQUEST, reply: REPLY }
    }

    const fn slot_of_pages(&self) -> Slot {
        Slot { number: self.pages_slot, request: PAGES_REQUEST, reply: PAGES_REPLY }
    }

    fn entry(&self, slot: Slot) -> u64 {
        QUEUE + (u64::from(slot.number) << self.log_stride)
    }

    /// Writes the mailbox blocks of a request, or empty blocks for a reply.
    fn lay(&self, first: u64, bytes: &[u8]) {
        let count = bytes.len().div_ceil(512);
        for (number, data) in bytes.chunks(512).enumerate() {
            let mut block = vec![0; 576];
            block[..data.len()].copy_from_slice(data);
            if number + 1 < count {
                block[0x230..0x238].copy_from_slice(&(first + (number as u64 + 1) * STRIDE).to_be_bytes());
            }
            block[0x238..0x23c].copy_from_slice(&(number as u32).to_be_bytes());
            block[0x23d] = self.token;
            block[0x23e] = !xor(&block[0x200..0x23e]);
            block[0x23f] = !xor(&block[..0x23f]);
            self.machine.write(first + number as u64 * STRIDE, &block);
        }
    }

    /// Gives a command to the device.
    fn post(&mut self, slot: Slot, request: &[u8], room: usize) {
        self.token = self.token.checked_add(1).unwrap_or(1);
        let mut entry = vec![0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(request.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&slot.request.to_be_bytes());
        entry[0x10..0x20].copy_from_slice(&request[..16]);
        entry[0x30..0x38].copy_from_slice(&slot.reply.to_be_bytes());
        entry[0x38..0x3c].copy_from_slice(&(room as u32).to_be_bytes());
        entry[0x3c] = self.token;
        self.lay(slot.request, &request[16..]);
        self.lay(slot.reply, &vec![0; room.saturating_sub(16)]);
        entry[0x3f] = 1;
        entry[0x3d] = !xor(&entry);
        let at = self.entry(slot);
        self.machine.write(at, &entry);
        self.machine.write_register(0x18, 1 << slot.number);
    }

    /// Returns the reply to a completed command.
    fn reply(&self, slot: Slot, room: usize) -> Vec<u8> {
        let entry = self.machine.read(self.entry(slot), 64);
        assert_eq!(entry[0x3f] >> 1, 0, "not delivered");
        let mut reply = entry[0x20..0x30].to_vec();
        if self.verifies {
            assert_eq!(xor(&entry), 0xff, "an entry that is not signed");
        }
        for number in 0..room.saturating_sub(16).div_ceil(512) as u64 {
            let block = self.machine.read(slot.reply + number * STRIDE, 576);
            if self.verifies {
                assert_eq!(
                    (xor(&block), xor(&block[0x200..0x23f])),
                    (0xff, 0xff),
                    "a block that is not signed"
                );
            }
            reply.extend_from_slice(&block[..512]);
        }
        reply.truncate(room);
        reply
    }

    fn is_given_back(&self, slot: Slot) -> bool {
        self.machine.read(self.entry(slot) + 0x3f, 1)[0] & 1 == 0
    }

    /// Carries out a command, and returns its reply.
    fn carry(&mut self, request: Words, room: usize) -> Vec<u8> {
        let slot = self.slot();
        self.post(slot, &request.0, room);
        let mut looks = 0;
        while !self.is_given_back(slot) {
            self.take_events();
            looks += 1;
            assert!(looks < 100_000, "a command is not answered");
        }
        self.reply(slot, room)
    }

    /// Carries out a command that must succeed, and returns its reply.
    fn execute(&mut self, request: Words, room: usize) -> Vec<u8> {
        let opcode = u16::from_be_bytes([request.0[0], request.0[1]]);
        let reply = self.carry(request, room);
        assert_eq!(reply[0], 0, "{opcode:#x}: status {:#x}, syndrome {:#x}", reply[0], be32(&reply, 4));
        self.take_events();
        reply
    }

    fn number(&mut self, request: Words) -> u32 {
        be32(&self.execute(request, 16), 8) & 0x00ff_ffff
    }

    /// Returns the addresses of `count` pages that the firmware does not have, and records them as given to
    /// the firmware.
    fn take_pages(&mut self, count: u32) -> Vec<u64> {
        let free: Vec<usize> = (0..self.given.len()).filter(|page| !self.given[*page]).collect();
        let pages = &free[..count as usize];
        pages.iter().for_each(|page| self.given[*page] = true);
        pages.iter().map(|page| FIRMWARE + *page as u64 * 4096).collect()
    }

    fn put_back(&mut self, reply: &[u8]) -> u32 {
        let count = be32(reply, 8);
        for page in reply[16..16 + count as usize * 8].chunks(8) {
            let page = u64::from_be_bytes(page.try_into().unwrap());
            let given = &mut self.given[((page - FIRMWARE) / 4096) as usize];
            assert!(core::mem::take(given), "a page that the firmware did not have");
        }
        count
    }

    fn give(&self, pages: &[u64]) -> Words {
        let request = Words::new(0x108, 1, 16 + pages.len() * 8);
        let request = request.u32(8, self.function).u32(0xc, pages.len() as u32);
        pages.iter().enumerate().fold(request, |request, (number, page)| request.u64(16 + number * 8, *page))
    }

    /// Gives the firmware the pages that it needs at boot (`phase` 1) or before INIT_HCA (`phase` 2).
    fn satisfy(&mut self, phase: u16) {
        let reply = self.execute(Words::new(0x107, phase, 16), 16);
        let mut left = be32(&reply, 0xc);
        assert!(left > 0, "no pages wanted");
        self.function = be32(&reply, 8) & 0xffff;
        while left > 0 {
            let count = left.min(BATCH);
            let pages = self.take_pages(count);
            let give = self.give(&pages);
            self.execute(give, 16);
            left -= count;
        }
    }

    /// Starts the device, from reset to the state in which objects can be created.
    fn start(&mut self) {
        // The reply to this command (ENABLE_HCA) has 12 bytes, and so has the room for it.
        self.execute(Words::new(0x104, 0, 16), 12);
        self.execute(Words::new(0x10b, 0, 16).u16(0xa, 1), 16);
        self.satisfy(1);
        let most = self.execute(Words::new(0x100, 0, 16), 16 + 0x1000);
        let checksum = most[16 + 0x42] >> 6;
        let now = self.execute(Words::new(0x100, 1, 16), 16 + 0x1000);
        let mut chosen = now[16..].to_vec();
        chosen[0x42] = chosen[0x42] & 0x3f | checksum << 6;
        chosen[0x92..0x94].fill(0);
        self.execute(Words::new(0x109, 0, 16 + 0x1000).put(16, &chosen), 16);
        assert_eq!(checksum, 3, "signatures can be switched on");
        self.verifies = true;
        let now = self.execute(Words::new(0x100, 1, 16), 16 + 0x1000);
        assert_eq!(now[16..], chosen, "what was chosen is in force");
        self.log_max_message = chosen[0x38] & 0x1f;
        self.satisfy(2);
        self.execute(Words::new(0x102, 0, 16), 16);
        self.numbers.uar = self.number(Words::new(0x802, 0, 16));
        // This event queue gets events of completed commands and of page requests.
        self.numbers.eq = self.create_eq(EVENTS, LOG_EVENTS, 1 << 0xa | 1 << 0xb);
        self.ring_events(self.numbers.eq, 0, false);
        self.has_events = true;
    }

    fn create_eq(&mut self, ring: u64, log_entries: u32, events: u64) -> u32 {
        (0..1 << log_entries).for_each(|entry| self.machine.write(ring + entry * 64 + 0x3f, &[1]));
        let request = Words::new(0x301, 0, 0x118)
            .u32(0x1c, log_entries << 24 | self.numbers.uar)
            .u64(0x58, events)
            .u64(0x110, ring);
        self.number(request)
    }

    fn uar(&self) -> u64 {
        u64::from(self.numbers.uar) * 4096
    }

    fn ring_events(&mut self, eq: u32, taken: u32, arms: bool) {
        let at = self.uar() + if arms { 0x40 } else { 0x48 };
        self.machine.write_register(at, eq << 24 | taken & 0x00ff_ffff);
    }

    /// Takes events: requests to give pages or to take pages back, and completed commands.
    fn take_events(&mut self) {
        if !self.has_events {
            return;
        }
        let mut took = false;
        loop {
            let at = EVENTS + u64::from(self.events_taken % (1 << LOG_EVENTS)) * 64;
            let entry = self.machine.read(at, 64);
            if u32::from(entry[0x3f] & 1) != self.events_taken >> LOG_EVENTS & 1 {
                break;
            }
            self.events_taken += 1;
            took = true;
            match entry[1] {
                0x0b => {
                    assert_eq!(be32(&entry, 0x20), self.function);
                    let wanted = be32(&entry, 0x24) as i32;
                    self.asked[usize::from(wanted < 0)] += wanted.unsigned_abs();
                    assert_eq!(self.reclaims, None, "the entry for pages is in use");
                    let slot = self.slot_of_pages();
                    if wanted > 0 {
                        let pages = self.take_pages(wanted as u32);
                        self.reclaims = Some(false);
                        let give = self.give(&pages);
                        self.post(slot, &give.0, 16);
                    } else {
                        let count = wanted.unsigned_abs();
                        let request = Words::new(0x108, 2, 16).u32(8, self.function).u32(0xc, count);
                        self.reclaims = Some(true);
                        self.post(slot, &request.0, 16 + count as usize * 8);
                    }
                }
                0x0a if be32(&entry, 0x20) & 1 << self.pages_slot != 0 => self.end_pages(),
                0x0a => {}
                other => panic!("an event of type {other:#x}"),
            }
        }
        if took {
            self.ring_events(self.numbers.eq, self.events_taken, false);
        }
    }

    fn end_pages(&mut self) {
        let reclaims = self.reclaims.take().expect("a command of pages");
        let reply = self.reply(self.slot_of_pages(), if reclaims { 16 + 8 * 8 } else { 16 });
        assert_eq!(reply[0], 0, "pages: status {:#x}", reply[0]);
        if reclaims {
            assert_eq!(self.put_back(&reply), 8);
        }
    }

    /// Makes a protection domain and a key for all memory, after a check that the device can send to itself.
    fn make_domain(&mut self) {
        let roce = self.execute(Words::new(0x100, 4 << 1 | 1, 16), 16 + 0x1000);
        assert_ne!(roce[16] & 0x06, 0, "queue pairs can be connected to themselves (`fl_rc_qp_when_roce_*`)");
        self.numbers.pd = self.number(Words::new(0x800, 0, 16));
        let request = Words::new(0x200, 0, 0x110)
            // The mkey uses bus addresses, gives local and remote rights to all queue pairs, and has a length
            // of 64 bits.
            .u8(0x12, 0x3c)
            .u24(0x14, 0x00ff_ffff)
            .u8(0x1c, 0x80)
            .u24(0x1d, self.numbers.pd);
        self.numbers.mkey = self.number(request);
        self.numbers.msi_eq = self.create_eq(MSI_EVENTS, LOG_MSI_EVENTS, 0);
        self.drain_msi_events();
    }

    /// Takes all entries of the event queue that raises the interrupt, and arms the queue.
    fn drain_msi_events(&mut self) {
        loop {
            let at = MSI_EVENTS + u64::from(self.msi_events_taken % (1 << LOG_MSI_EVENTS)) * 64;
            let entry = self.machine.read(at, 64);
            if u32::from(entry[0x3f] & 1) != self.msi_events_taken >> LOG_MSI_EVENTS & 1 {
                break;
            }
            assert_eq!(entry[1], 0, "a completion");
            self.msi_events_taken += 1;
        }
        self.ring_events(self.numbers.msi_eq, self.msi_events_taken, true);
    }

    /// Makes a completion queue, and a queue pair that is connected to itself.
    fn make_queues(&mut self) {
        (0..1 << LOG_COMPLETIONS)
            .for_each(|number| self.machine.write(COMPLETIONS.entry(number) + 0x3f, &[0xf1]));
        let request = Words::new(0x400, 0, 0x120)
            .u16(0x1a, (COMPLETIONS.offset as u16) << 6)
            .u32(0x1c, LOG_COMPLETIONS << 24 | self.numbers.uar)
            .u32(0x24, self.numbers.msi_eq)
            .u64(0x48, CQ_RECORD)
            .u64(0x110, COMPLETIONS.pages[0])
            .u64(0x118, COMPLETIONS.pages[1]);
        self.numbers.cq = self.number(request);
        const QPC: usize = 0x18;
        let (number, message) = (&self.numbers, self.log_max_message);
        let request = Words::new(0x500, 0, 0x120)
            .u8(QPC + 2, 3 << 3)
            .u24(QPC + 5, number.pd)
            .u8(QPC + 8, message)
            .u8(QPC + 0xa, (LOG_SEND as u8) << 3)
            .u8(QPC + 0xb, 1 << 6)
            .u24(QPC + 0xd, number.uar)
            .u24(QPC + 0x7d, number.cq)
            .u16(QPC + 0x92, (SEND_RING.offset as u16) << 6)
            .u24(QPC + 0x9d, number.cq)
            .u64(QPC + 0xa0, QP_RECORD)
            .u8(QPC + 0xac, 3)
            .u64(0x110, SEND_RING.pages[0])
            .u64(0x118, SEND_RING.pages[1]);
        self.numbers.qp = self.number(request);
        let qp = self.numbers.qp;
        const PATH: usize = QPC + 0x18;
        let step = |opcode: u16| Words::new(opcode, 0, 0x110).u24(9, qp);
        self.execute(step(0x502).u8(PATH + 0x29, 1).u8(QPC + 2, 3 << 3).u8(QPC + 0x92, 0xc0), 16);
        let to_receive = step(0x503)
            .u8(QPC + 8, 3 << 5 | message)
            .u24(QPC + 0x15, qp)
            .u8(PATH, 0x80)
            .u8(PATH + 0x29, 1)
            .u8(QPC + 0x94, 12);
        self.execute(to_receive, 16);
        self.execute(step(0x504).u8(QPC + 0x71, 7).u8(QPC + 0x72, 7 << 5).u8(PATH + 8, 14 << 3), 16);
    }

    fn destroy_queues(&mut self) {
        let Numbers { qp, cq, .. } = self.numbers;
        self.execute(Words::new(0x501, 0, 16).u24(9, qp), 16);
        self.execute(Words::new(0x401, 0, 16).u24(9, cq), 16);
        (self.posted, self.completed, self.arm_number) = (0, 0, 0);
        self.machine.write(QP_RECORD, &[0; 8]);
        self.machine.write(CQ_RECORD, &[0; 8]);
    }

    /// Posts an RDMA WRITE and rings its doorbell, using the two doorbell registers of the UAR page in turn.
    fn post_write(&mut self, from: u64, to: u64, length: u32, signaled: bool) {
        let mut block = vec![0; 64];
        block[..4].copy_from_slice(&(u32::from(self.posted) << 8 | 0x08).to_be_bytes());
        block[4..8].copy_from_slice(&(self.numbers.qp << 8 | 3).to_be_bytes());
        block[0xb] = if signaled { 8 } else { 0 };
        let key = self.numbers.mkey << 8;
        block[0x10..0x18].copy_from_slice(&to.to_be_bytes());
        block[0x18..0x1c].copy_from_slice(&key.to_be_bytes());
        block[0x20..0x24].copy_from_slice(&length.to_be_bytes());
        block[0x24..0x28].copy_from_slice(&key.to_be_bytes());
        block[0x28..0x30].copy_from_slice(&from.to_be_bytes());
        let slot = u64::from(self.posted % (1 << LOG_SEND));
        self.machine.write(SEND_RING.entry(slot), &block);
        self.posted = self.posted.wrapping_add(1);
        self.machine.write(QP_RECORD + 4, &u32::from(self.posted).to_be_bytes());
        let at = self.uar() + self.buffer;
        self.machine.client.region_write(0, at, &block[..8]).unwrap();
        self.buffer ^= 0x100;
    }

    /// Returns the opcode of the next completion, if the device has written it.
    fn completed(&mut self) -> Option<u8> {
        let at = COMPLETIONS.entry(u64::from(self.completed % (1 << LOG_COMPLETIONS)));
        let owner = self.machine.read(at + 0x3f, 1)[0];
        if u32::from(owner & 1) != self.completed >> LOG_COMPLETIONS & 1 || owner >> 4 == 0xf {
            return None;
        }
        self.completed += 1;
        self.machine.write(CQ_RECORD, &(self.completed & 0x00ff_ffff).to_be_bytes());
        Some(owner >> 4)
    }

    /// Waits for a completion, and returns its opcode.
    fn complete(&mut self) -> u8 {
        let look = |driver: &mut Self| {
            driver.completed().or_else(|| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                None
            })
        };
        (0..1000).find_map(|_| look(self)).expect("no completion")
    }

    fn arm(&mut self) {
        let word = (self.arm_number & 3) << 28 | self.completed & 0x00ff_ffff;
        self.machine.write(CQ_RECORD + 4, &word.to_be_bytes());
        let doorbell = [word.to_be_bytes(), self.numbers.cq.to_be_bytes()].concat();
        let at = self.uar() + 0x20;
        self.machine.client.region_write(0, at, &doorbell).unwrap();
        self.arm_number += 1;
    }

    /// Copies memory by RDMA WRITEs of the queue pair to itself. Only the last RDMA WRITE is signalled.
    fn copy(&mut self, pieces: u64, length: u32) {
        let bytes: Vec<u8> = (0..pieces * u64::from(length)).map(|at| (at * 31 + pieces) as u8).collect();
        self.machine.write(SOURCE, &bytes);
        self.machine.write(TARGET, &vec![0; bytes.len()]);
        for piece in 0..pieces {
            let at = piece * u64::from(length);
            self.post_write(SOURCE + at, TARGET + at, length, piece + 1 == pieces);
        }
        assert_eq!(self.complete(), 0);
        assert_eq!(self.machine.read(TARGET, bytes.len()), bytes, "{pieces} writes of {length} bytes");
    }

    /// Writes a request to the doorbell register (the test of write combining in Linux's mlx5_ib). The
    /// request in the register asks for a completion, and its copy in the ring asks for none. If all 64 bytes
    /// arrive, the device executes the request from the register. Otherwise it executes the copy in the ring.
    fn blue_flame(&mut self) {
        for whole in [true, false] {
            let mut block = vec![0; 64];
            block[..4].copy_from_slice(&(u32::from(self.posted) << 8).to_be_bytes());
            block[4..8].copy_from_slice(&(self.numbers.qp << 8 | 1).to_be_bytes());
            let slot = u64::from(self.posted % (1 << LOG_SEND));
            self.machine.write(SEND_RING.entry(slot), &block);
            self.posted = self.posted.wrapping_add(1);
            self.machine.write(QP_RECORD + 4, &u32::from(self.posted).to_be_bytes());
            block[0xb] = 8;
            let at = self.uar() + self.buffer;
            for (word, bytes) in block.chunks(8).enumerate().take(if whole { 8 } else { 7 }) {
                self.machine.client.region_write(0, at + word as u64 * 8, bytes).unwrap();
            }
            self.buffer ^= 0x100;
            if whole {
                assert_eq!(self.complete(), 0);
            } else {
                // The copy in the ring asks for no completion, so the next completion belongs to the RDMA
                // WRITE of `copy`.
                self.copy(1, 8);
            }
        }
    }

    /// Makes an RDMA WRITE to an unmapped address fail, and replaces the queues by new ones.
    fn fail(&mut self) {
        self.post_write(SOURCE, BASE + BYTES - 8, 16, true);
        assert_eq!(self.complete(), 0xd, "a request that failed");
        self.destroy_queues();
        self.make_queues();
    }

    /// Checks that the receive requests of a failed queue pair are flushed, whether they were posted before
    /// or after the failure. No doorbell announces receive requests.
    fn flush(&mut self) {
        const RING: u64 = BASE + 0x58000;
        const RECORD: u64 = BASE + 0x54080;
        const QPC: usize = 0x18;
        self.machine.write(RECORD, &[0; 8]);
        let number = &self.numbers;
        // The receive ring has room for four requests of 16 bytes each, and the send ring for one block.
        let request = Words::new(0x500, 0, 0x118)
            .u8(QPC + 2, 3 << 3)
            .u24(QPC + 5, number.pd)
            .u8(QPC + 8, self.log_max_message)
            .u8(QPC + 9, 2 << 3)
            .u8(QPC + 0xb, 1 << 6)
            .u24(QPC + 0xd, number.uar)
            .u24(QPC + 0x7d, number.cq)
            .u24(QPC + 0x9d, number.cq)
            .u64(QPC + 0xa0, RECORD)
            .u64(0x110, RING);
        let qp = self.number(request);
        let step = |opcode: u16| Words::new(opcode, 0, 0x110).u24(9, qp);
        self.execute(step(0x502).u8(QPC + 0x18 + 0x29, 1).u8(QPC + 2, 3 << 3), 16);
        self.machine.write(RECORD, &2_u32.to_be_bytes());
        self.execute(step(0x507), 16);
        assert_eq!([self.complete(), self.complete()], [0xe; 2], "flushed by the step");
        self.machine.write(RECORD, &3_u32.to_be_bytes());
        assert_eq!(self.complete(), 0xe, "flushed without a step");
        // The function also flushes a receive request while messages of the client follow each other without
        // a pause.
        self.machine.write(RECORD, &4_u32.to_be_bytes());
        let flushed = (0..100_000).find_map(|_| {
            self.machine.register(4);
            self.completed()
        });
        assert_eq!(flushed, Some(0xe), "flushed beside other messages");
        self.execute(Words::new(0x501, 0, 16).u24(9, qp), 16);
    }

    /// Checks that a completion raises one interrupt.
    fn interrupt(&mut self, descriptor: &OwnedFd) {
        self.drain_msi_events();
        while is_raised(descriptor) {
            raised(descriptor);
        }
        self.arm();
        assert!(!is_raised(descriptor), "nothing has happened yet");
        self.post_write(SOURCE, TARGET, 8, true);
        assert_eq!(raised(descriptor), 1);
        assert_eq!(self.complete(), 0);
        // The completion queue was armed for one interrupt only, so a second completion raises none.
        self.post_write(SOURCE, TARGET, 8, true);
        assert_eq!(self.complete(), 0);
        assert!(!is_raised(descriptor));
    }

    fn stop(&mut self) {
        self.destroy_queues();
        let Numbers { msi_eq, mkey, pd, eq, uar, .. } = self.numbers;
        self.execute(Words::new(0x302, 0, 16).u32(8, msi_eq), 16);
        self.execute(Words::new(0x202, 0, 16).u24(9, mkey), 16);
        self.execute(Words::new(0x801, 0, 16).u24(9, pd), 16);
        assert_eq!(self.reclaims, None, "pages are on their way");
        self.has_events = false;
        self.execute(Words::new(0x302, 0, 16).u32(8, eq), 16);
        self.execute(Words::new(0x803, 0, 16).u24(9, uar), 16);
        self.execute(Words::new(0x103, 0, 16), 16);
        let mut left = self.given.iter().filter(|given| **given).count() as u32;
        while left > 0 {
            let request = Words::new(0x108, 2, 16).u32(8, self.function).u32(0xc, left.min(BATCH));
            let reply = self.execute(request, 16 + left.min(BATCH) as usize * 8);
            let count = self.put_back(&reply);
            assert!(count > 0, "the firmware keeps {left} pages");
            left -= count;
        }
        self.execute(Words::new(0x105, 0, 16), 16);
        self.machine.set_master(false);
    }
}

/// Brings the device up, works with it, and shuts it down.
fn drive(machine: Machine) -> Machine {
    let mut driver = Driver::probe(machine);
    driver.start();
    driver.make_domain();
    driver.make_queues();
    let descriptor = driver.machine.interrupt(0);
    driver.copy(1, 64);
    driver.copy(15, 4096);
    driver.copy(7, 33333);
    driver.blue_flame();
    for _ in 0..3 {
        driver.interrupt(&descriptor);
    }
    driver.fail();
    driver.flush();
    driver.copy(15, 100);
    driver.interrupt(&descriptor);
    // An unknown opcode is refused without any other effect.
    assert_eq!(driver.carry(Words::new(0xfff, 0, 16), 16)[0], 2);
    driver.stop();
    let [wanted, given_back] = driver.asked;
    assert!(wanted >= 8 && wanted == given_back, "pages by events: {wanted} and {given_back}");
    driver.machine
}

#[test]
fn a_driver_of_others_brings_the_device_up_and_writes_to_itself() {
    let served = Served::here(DeviceProfile::default());
    let machine = Machine::new(&served.socket(), BASE, BYTES);
    // A second driver brings the function up again after the first one.
    drive(drive(machine));
}

#[test]
fn a_reset_of_the_function_leaves_nothing_of_a_driver() {
    let served = Served::here(DeviceProfile::default());
    let mut driver = Driver::probe(Machine::new(&served.socket(), BASE, BYTES));
    driver.start();
    driver.make_domain();
    driver.make_queues();
    let Driver { mut machine, .. } = driver;
    // The reset is FLR, by the control register of the PCI Express capability.
    machine.write_config(0x68, &[0, 0x80]);
    assert_eq!(machine.config::<2>(4), [0, 0], "no bus master");
    assert_eq!(machine.register(0x1fc) >> 31, 1, "the firmware starts");
    let mut machine = drive(machine);
    machine.client.reset().unwrap();
    assert_eq!(machine.register(0x1fc) >> 31, 1, "the firmware starts");
    drive(machine);
}

/// This test starts the program and connects to its socket, as users do. `cargo xtask test --rest` runs it.
#[test]
#[ignore = "cargo xtask test function"]
fn the_program_serves_drivers_one_after_the_other() {
    let served = Served::program();
    for _ in 0..20 {
        drive(Machine::new(&served.socket(), BASE, BYTES));
    }
}
