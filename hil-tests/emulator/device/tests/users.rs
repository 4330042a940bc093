//! Users of the device: memory that they register for their rings (umems), and objects that no other user can
//! name (`devx.c` of Linux's mlx5_ib; DEVICE.md, "User contexts").

use crate::commands::*;
use crate::common::*;

const READ: u64 = 1;
const WRITE: u64 = 2;
const DEK: u16 = 0xc;

/// Returns a command as the user context `uid` gives it.
fn by(uid: u32, words: Words) -> Words {
    words.u16(2, uid as u16)
}

/// Returns CREATE_UMEM over pages of 4 KiB with these rights. The umem begins `offset` bytes into the first
/// page.
fn umem(uid: u32, offset: u32, pages: &[u64], rights: u64) -> Words {
    let words = Words::new(0xa08, 0x30).u32(0x24, offset).u64(0x28, pages.len() as u64);
    let mut words = by(uid, words);
    pages.iter().for_each(|page| words.0.extend((page | rights).to_be_bytes()));
    words
}

fn context(setup: &mut Setup) -> u32 {
    setup.good(Words::new(0xa04, 0x40))
}

/// The objects of a user: its context, a protection domain, a doorbell page, and a umem on four pages of
/// which none follows another.
struct User {
    uid: u32,
    pd: u32,
    uar: u32,
    umem: u32,
    pages: [u64; 4],
}

impl User {
    fn new(setup: &mut Setup) -> Self {
        let uid = context(setup);
        let memory = setup.host.alloc(8 << 12);
        let pages = [6, 0, 4, 2].map(|page: u64| memory + (page << 12));
        let pd = setup.good(by(uid, Words::new(0x800, 16)));
        let uar = setup.good(by(uid, Words::new(0x802, 16)));
        let umem = setup.good(umem(uid, 0x40, &pages, READ | WRITE));
        Self { uid, pd, uar, umem, pages }
    }

    /// Returns the address in memory of the byte at an offset of the umem.
    fn at(&self, offset: u64) -> u64 {
        let place = offset + 0x40;
        self.pages[(place >> 12) as usize] + (place & 0xfff)
    }

    /// Returns CREATE_CQ for a queue in the umem: 64 entries from `offset` on, and the doorbell record right
    /// behind them.
    fn cq(&self, eq: u32, offset: u64) -> Words {
        let words = Words::new(0x400, 0x110)
            .u8(0x10, 0x02)
            .u32(0x14, self.umem)
            .u8(0x1c, 6)
            .u24(0x1d, self.uar)
            .u32(0x24, eq)
            .u64(0x48, offset + 0x1000)
            .u64(0x50, offset)
            .u32(0x58, self.umem)
            .u8(0x5c, 0x80);
        by(self.uid, words)
    }

    /// Returns CREATE_QP with a send ring of 16 blocks from `offset` of the umem on, and no receives.
    fn qp(&self, cq: u32, offset: u64) -> Words {
        let words = Words::new(0x500, 0x110)
            .u24(QPC + 5, self.pd)
            .u8(QPC + 0xa, 4 << 3)
            .u24(QPC + 0xd, self.uar)
            .u24(QPC + 0x7d, cq)
            .u64(QPC + 0xa0, offset + 0x400)
            .u8(QPC + 0xac, 3)
            .u8(QPC + 0xd0, 0x10)
            .u32(QPC + 0xe4, self.umem)
            .u64(0x100, offset)
            .u32(0x108, self.umem)
            .u8(0x10c, 0x80);
        by(self.uid, words)
    }

    /// Makes the device the owner of all entries of a completion queue.
    fn clear(&self, host: &mut Host, offset: u64) {
        (0..64).for_each(|entry| host.put(self.at(offset + entry * 64) + 63, &[0xf1]));
    }
}

/// Returns CREATE_SQ with a cyclic queue of one block.
fn packets(cq: u32, uar: u32) -> Words {
    Words::new(0x904, 0x110).u24(0x29, cq).u8(0x50, 0x10).u24(0x5d, uar).u8(0x71, 6)
}

/// A queue pair and its completion queue work in the memory of a user, on pages that do not follow each
/// other.
#[test]
fn queues_are_in_the_memory_of_their_user() {
    let mut setup = Setup::new();
    let user = User::new(&mut setup);
    let eq = setup.eq;
    // The entries cross the end of the first page.
    user.clear(&mut setup.host, 0x800);
    let cq = setup.good(user.cq(eq, 0x800));
    let qp = setup.good(user.qp(cq, 0x2e00));
    for step in [to_init(qp, 0xe0), to_receive(qp, qp), to_send(qp, 0)] {
        setup.good(by(user.uid, step));
    }
    let host = &mut setup.host;
    for index in 0..40_u16 {
        let block = nop(qp, index);
        host.put(user.at(0x2e00 + u64::from(index % 16) * 64), &block);
        host.put(user.at(0x3200 + 4), &u32::from(index + 1).to_be_bytes());
        host.device.doorbell(qp).unwrap();
        host.device.run();
        let entry = host.get(user.at(0x800 + u64::from(index) * 64), 64);
        assert_eq!((entry[60..62].to_vec(), entry[63]), (index.to_be_bytes().to_vec(), 0), "{index}");
    }
    // QUERY_QP counts the executed blocks.
    let context = told(&mut setup, by(user.uid, named(0x50b, qp)), 8 + 0xe8);
    assert_eq!(context[8 + 0xb4..8 + 0xb6], 40_u16.to_be_bytes());
    // The umem can be destroyed only after the queues in it.
    let destroy = |opcode, number| by(user.uid, named(opcode, number));
    setup.refused(destroy(0xa0a, user.umem), IN_USE, "a ring is in it");
    setup.good(destroy(0x501, qp));
    setup.refused(destroy(0xa0a, user.umem), IN_USE, "another ring is in it");
    setup.good(destroy(0x401, cq));
    let again = setup.good(user.cq(eq, 0x800));
    setup.good(destroy(0x401, again));
    setup.good(destroy(0xa0a, user.umem));
    setup.refused(user.cq(eq, 0x800), BAD_RESOURCE, "the umem is gone");
}

#[test]
fn shared_receives_are_in_the_memory_of_their_user() {
    let mut setup = Setup::new();
    let user = User::new(&mut setup);
    const WQ: usize = 0x50;
    let words = Words::new(0x90c, 0x110)
        .u24(WQ + 9, user.pd)
        .u64(WQ + 0x10, 0x1000)
        .u8(WQ + 0x21, 5)
        .u8(WQ + 0x23, 4)
        .u8(WQ + 0x24, 0xc0)
        .u32(WQ + 0x28, user.umem)
        .u32(WQ + 0x2c, user.umem)
        .u64(WQ + 0x30, 0x2000);
    let words = by(user.uid, words);
    setup.refused(words.clone().u64(WQ + 0x30, 0x3fc0), BAD_PARAMETER, "behind the end of the umem");
    let rmp = setup.good(words);
    setup.refused(by(user.uid, named(0xa0a, user.umem)), IN_USE, "receives are in it");
    setup.good(by(user.uid, named(0x90e, rmp)));
    setup.good(by(user.uid, named(0xa0a, user.umem)));
}

/// Returns the block of a NOP that asks for a completion.
fn nop(qp: u32, index: u16) -> [u8; 64] {
    let mut block = [0; 64];
    block[1..3].copy_from_slice(&index.to_be_bytes());
    block[4..8].copy_from_slice(&(qp << 8 | 1).to_be_bytes());
    block[11] = 2 << 2;
    block
}

#[test]
fn a_umem_has_good_fields() {
    let mut setup = Setup::new();
    let uid = context(&mut setup);
    let page = setup.host.alloc(8192).next_multiple_of(4096);
    let good = umem(uid, 0, &[page], READ | WRITE);
    for (words, status, why) in [
        (umem(0, 0, &[page], READ | WRITE), BAD_PARAMETER, "of the host itself"),
        (umem(uid + 1, 0, &[page], READ | WRITE), BAD_RESOURCE, "no such context"),
        (umem(uid, 0x1000, &[page], READ | WRITE), BAD_PARAMETER, "begins behind its first page"),
        (umem(uid, 0, &[page + 8], READ | WRITE), BAD_PARAMETER, "no page begins there"),
        (umem(uid, 0, &[page], WRITE), BAD_PARAMETER, "not to be read"),
        (umem(uid, 0, &[], 0), BAD_PARAMETER, "no page"),
        (good.clone().u64(0x28, 2), 0x50, "a page too few"),
        (good.clone().u64(0x28, u64::MAX), 0x50, "too many pages"),
        (good.clone().u8(0x23, 31).u64(0x28, 1), BAD_PARAMETER, "a large page"),
    ] {
        setup.refused(words, status, why);
    }
    let one = setup.good(good);
    let user = User::new(&mut setup);
    let eq = setup.eq;
    user.clear(&mut setup.host, 0);
    // The device writes completion entries, so their pages have to permit writes.
    let pages = user.pages;
    let readable = setup.good(umem(user.uid, 0x40, &pages, READ));
    setup.refused(user.cq(eq, 0).u32(0x58, readable), BAD_PARAMETER, "entries on pages to be read");
    setup.refused(user.cq(eq, 0).u32(0x58, one), BAD_RESOURCE, "the umem of another");
    setup.refused(user.cq(eq, 0).u32(0x14, one), BAD_RESOURCE, "the record in the umem of another");
    setup.refused(user.cq(eq, 0x3000), BAD_PARAMETER, "behind the end");
    setup.refused(user.cq(eq, 0).u64(0x50, u64::MAX), BAD_PARAMETER, "far behind the end");
    setup.refused(user.cq(eq, 0).u64(0x48, 0x3fc0), BAD_PARAMETER, "the record behind the end");
    setup.good(user.cq(eq, 0));
}

/// Each command that names an object is refused to another user, and has no effect. The host's own commands
/// may name all objects.
#[test]
fn an_object_of_one_user_is_not_anothers() {
    let mut setup = Setup::new();
    let (one, other) = (User::new(&mut setup), User::new(&mut setup));
    let eq = setup.eq;
    one.clear(&mut setup.host, 0);
    other.clear(&mut setup.host, 0);
    let cq = setup.good(one.cq(eq, 0));
    let qp = setup.good(one.qp(cq, 0x2000));
    let key = setup.good(by(one.uid, umr_mkey(one.pd, 0x40, 0x82, 0, 0)));
    let psv = told(&mut setup, by(one.uid, Words::new(0x600, 16).u8(8, 1 << 4).u24(9, one.pd)), 16);
    assert_eq!(psv[..4], [0, 0, 0, 1]);
    let dek = Words::new(0xa00, 0x150).u16(6, DEK).u8(0x1b, 3).u24(0x1d, one.pd);
    let dek = setup.good(by(one.uid, dek));
    let of_dek = |opcode, length| Words::new(opcode, length).u16(6, DEK).u32(8, dek);
    let others_cq = setup.good(other.cq(eq, 0));
    let commands = [
        ("DEALLOC_PD", named(0x801, one.pd)),
        ("DEALLOC_UAR", named(0x803, one.uar)),
        ("DESTROY_CQ", named(0x401, cq)),
        ("DESTROY_QP", named(0x501, qp)),
        ("QUERY_QP", named(0x50b, qp)),
        ("RST2INIT_QP", to_init(qp, 0)),
        ("2ERR_QP", named(0x507, qp)),
        ("DESTROY_MKEY", named(0x202, key)),
        ("DESTROY_UMEM", named(0xa0a, one.umem)),
        ("DESTROY_PSV", named(0x601, 1)),
        ("a DEK's end", of_dek(0xa03, 16)),
        ("a DEK's query", of_dek(0xa02, 16)),
        ("a DEK's value", of_dek(0xa01, 0x150).u64(0x10, 1).u8(0x1b, 3).u24(0x1d, one.pd)),
        ("CREATE_MKEY in its domain", umr_mkey(one.pd, 0x40, 0x82, 0, 0)),
        ("CREATE_PSV in its domain", Words::new(0x600, 16).u8(8, 1 << 4).u24(9, one.pd)),
        ("CREATE_QP in its domain", other.qp(others_cq, 0x2000).u24(QPC + 5, one.pd)),
        ("CREATE_QP with its completions", other.qp(cq, 0x2000)),
        ("CREATE_QP on its doorbells", other.qp(others_cq, 0x2000).u24(QPC + 0xd, one.uar)),
        ("CREATE_QP in the host's domain", other.qp(others_cq, 0x2000).u24(QPC + 5, 0)),
        ("CREATE_SQ with its completions", packets(cq, other.uar)),
        ("CREATE_SQ on its doorbells", packets(others_cq, one.uar)),
    ];
    for (what, words) in &commands {
        setup.refused(by(other.uid, words.clone()), BAD_RESOURCE, what);
        // The context 0x777 does not exist.
        setup.refused(by(0x777, words.clone()), BAD_RESOURCE, what);
    }
    // The owner and the host may name the objects.
    setup.good(by(one.uid, to_init(qp, 0)));
    setup.good(by(one.uid, of_dek(0xa01, 0x150).u64(0x10, 1).u8(0x1b, 3).u24(0x1d, one.pd)));
    setup.refused(named(0xa06, 0).u16(0xa, one.uid as u16), IN_USE, "a context with objects");
    for (opcode, number) in [(0x501, qp), (0x401, cq), (0x202, key), (0xa0a, one.umem), (0x601, 1)] {
        setup.good(named(opcode, number));
    }
    setup.good(of_dek(0xa03, 16));
    setup.good(named(0x801, one.pd));
    setup.good(named(0x803, one.uar));
    setup.good(named(0xa06, 0).u16(0xa, one.uid as u16));
    setup.refused(named(0xa06, 0).u16(0xa, one.uid as u16), BAD_RESOURCE, "it is gone");
    setup.refused(by(one.uid, Words::new(0x800, 16)), BAD_RESOURCE, "no domain for a context that is gone");
}

/// All users may name an event queue that the host has created for all contexts (`MLX5_SHARED_RESOURCE_UID`).
#[test]
fn an_event_queue_may_be_of_all() {
    let mut setup = Setup::new();
    let user = User::new(&mut setup);
    user.clear(&mut setup.host, 0);
    let shared = setup.eq;
    setup.good(user.cq(shared, 0));
    let own = setup.eq(4).u16(2, 0);
    let own = setup.good(own);
    setup.refused(user.cq(own, 0), BAD_RESOURCE, "the host's own");
}

/// A queue pair and its completion queue are rung and armed through the page that their creation named.
#[test]
fn a_page_of_doorbells_rings_the_queues_of_its_own() {
    let mut setup = Setup::new();
    let (user, other) = (User::new(&mut setup), User::new(&mut setup));
    let eq = setup.eq;
    user.clear(&mut setup.host, 0x800);
    let cq = setup.good(user.cq(eq, 0x800));
    let qp = setup.good(user.qp(cq, 0x2e00));
    for step in [to_init(qp, 0xe0), to_receive(qp, qp), to_send(qp, 0)] {
        setup.good(by(user.uid, step));
    }
    setup.host.put(user.at(0x2e00), &nop(qp, 0));
    setup.host.put(user.at(0x3200 + 4), &1_u32.to_be_bytes());
    let host = &mut setup.host;
    let register = |page: u32, at: u64| u64::from(page) * 4096 + at;
    let arm = |host: &mut Host, page: u32, at: u64, number: u32| {
        host.device.write_uar(register(page, at), &[[0; 4], number.to_be_bytes()].concat());
    };
    let ring = |host: &mut Host, page: u32| {
        host.device.write_uar(register(page, 0x800), &nop(qp, 0)[..8]);
        host.device.settle_doorbells();
    };
    let owner = |host: &mut Host| host.get(user.at(0x800 + 63), 1)[0] & 1;
    let raised = |host: &mut Host| host.device.take_interrupts().len();
    for page in [other.uar, setup.uar] {
        ring(host, page);
        assert_eq!(owner(host), 1, "page {page:#x} is another's");
    }
    ring(host, user.uar);
    assert_eq!(owner(host), 0);
    // The word of an event queue has the queue's number in its upper byte.
    host.device.write_uar(register(setup.uar, 0x40), &(eq << 24).to_be_bytes());
    arm(host, other.uar, 0x20, cq);
    assert_eq!(raised(host), 0, "the completion queue is not armed");
    arm(host, user.uar, 0x20, cq);
    assert_eq!(raised(host), 1);
    // The host has not taken the event, so that arming would raise an interrupt.
    host.device.write_uar(register(user.uar, 0x40), &(eq << 24).to_be_bytes());
    assert_eq!(raised(host), 0, "the event queue is not armed");
    host.device.write_uar(register(setup.uar, 0x40), &(eq << 24).to_be_bytes());
    assert_eq!(raised(host), 1);
}

/// INIT2INIT_QP sets the properties that its masks select, and refuses masks that select any other.
#[test]
fn properties_of_a_queue_pair_are_selected() {
    let mut setup = Setup::new();
    let Queue { qpn, .. } = setup.made_qp();
    let words = || Words::new(0x50e, 0x120).u24(9, qpn);
    setup.refused(words().u32(0x10, 1 << 11), 0x10, "not in INIT");
    setup.good(to_init(qpn, 0));
    setup.refused(words().u32(0x10, 1 << 12), BAD_PARAMETER, "a property that is none");
    let extended = |selected: u64| words().u8(8, 0x80).u64(0x108, selected).u8(0x110, 0x20);
    setup.refused(extended(1), BAD_PARAMETER, "an extension that is none");
    setup.good(words().u32(0x10, 1 << 11).u8(QPC + 4, 0x04));
    // Linux selects the rights, the P_Key's index and the port when a connection is accepted.
    setup.good(words().u32(0x10, 1 << 16 | 1 << 4 | 1 << 3 | 1 << 2 | 1 << 1).u8(QPC + 0x92, 0xc0));
    setup.good(extended(1 << 3));
}
