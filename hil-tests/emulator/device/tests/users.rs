//! Tests of users of the device: of memory that they register for their rings (umems), and of objects that no
//! other user can name (`devx.c` of Linux's mlx5_ib; DEVICE.md, "User contexts").

use crate::commands::*;
use crate::common::*;

const READ: u64 = 1;
const WRITE: u64 = 2;
const DEK: u16 = 0xc;

/// Returns a command as the user context `uid` gives it.
fn by(uid: u16, words: Words) -> Words {
    words.u16(2, uid)
}

/// Returns CREATE_UMEM over pages of 4 KiB with these rights. The umem begins `offset` bytes into the first
/// page.
fn umem(uid: u16, offset: u32, pages: &[u64], rights: u64) -> Words {
    let words = Words::new(0xa08, 0x30).u32(0x24, offset).u64(0x28, pages.len() as u64);
    let mut words = by(uid, words);
    pages.iter().for_each(|page| words.0.extend((page | rights).to_be_bytes()));
    words
}

fn context(setup: &mut Setup) -> u16 {
    setup.good(Words::new(0xa04, 0x40)) as u16
}

/// The objects of a user: its context, a protection domain, a doorbell page, and a umem on four pages of
/// which none follows another.
struct User {
    uid: u16,
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

    /// Returns CREATE_QP with a send ring of 16 blocks from `offset` of the umem on, and no receive requests.
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
    setup.ready(user.uid, qp, qp);
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

/// The end of a queue, or a refused queue, at the beginning of a umem leaves the umem as it was.
#[test]
fn a_umem_outlives_the_queue_at_its_beginning() {
    let mut setup = Setup::new();
    let user = User::new(&mut setup);
    let eq = setup.eq;
    user.clear(&mut setup.host, 0);
    user.clear(&mut setup.host, 0x2000);
    let cq = setup.good(user.cq(eq, 0x2000));
    for _ in 0..2 {
        let first = setup.good(user.cq(eq, 0));
        setup.good(by(user.uid, named(0x401, first)));
        setup.refused(
            user.qp(cq, 0).u24(QPC + 0x9d, cq).u8(QPC + 9, 7).u8(QPC + 0xac, 0),
            BAD_PARAMETER,
            "slots of 2 KiB",
        );
    }
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

/// A doorbell alone announces the requests of a queue pair without a doorbell record. The doorbell has either
/// the beginning of the last request, or the number of the block after it, with a size of 0.
#[test]
fn a_doorbell_alone_announces_requests() {
    let mut setup = Setup::with(mlx5_softdev::DeviceProfile { doorbell_alone: true, ..Default::default() });
    let (user, eq) = (User::new(&mut setup), setup.eq);
    user.clear(&mut setup.host, 0x800);
    let cq = setup.good(user.cq(eq, 0x800));
    let of_mode = |mode: u8| user.qp(cq, 0x2e00).u8(QPC + 0x10, mode << 6);
    setup.refused(of_mode(3), BAD_PARAMETER, "no mode");
    let qp = setup.good(of_mode(1));
    setup.ready(user.uid, qp, qp);
    for index in 0..4 {
        setup.host.put(user.at(0x2e00 + 64 * u64::from(index)), &nop(qp, index));
    }
    // The record announces all requests. The device does not read it.
    setup.host.put(user.at(0x3200 + 4), &4_u32.to_be_bytes());
    let ring = |setup: &mut Setup, at: u64, doorbell: &[u8]| {
        setup.host.device.write_uar(u64::from(user.uar) * 4096 + at, doorbell);
        setup.host.device.query(qp).unwrap().hw_sq_wqebb_counter
    };
    assert_eq!(ring(&mut setup, 0x600, &nop(qp, 1)[..8]), 2, "the last request, and the one before");
    let next = |index: u16| [&[0][..], &index.to_be_bytes(), &[0], &(qp << 8).to_be_bytes()].concat();
    assert_eq!(ring(&mut setup, 0x800, &next(3)), 3, "the next block");
    for index in [3, 2, 20] {
        assert_eq!(
            ring(&mut setup, 0x600, &next(index)),
            3,
            "nothing new, or more than the ring has: {index}"
        );
    }
    assert_eq!(ring(&mut setup, 0x808, &next(4)), 3, "a later word of a block");
    assert_eq!(ring(&mut setup, 0x600, &next(4)), 4);
    // A device without the capability refuses queue pairs without a doorbell record.
    let mut setup = Setup::new();
    let user = User::new(&mut setup);
    user.clear(&mut setup.host, 0x800);
    let cq = setup.good(user.cq(setup.eq, 0x800));
    setup.refused(user.qp(cq, 0x2e00).u8(QPC + 0x10, 1 << 6), BAD_PARAMETER, "no such queue pairs");
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

/// The device refuses each command that names an object of another user, and the refused command has no
/// effect. The host's own commands may name all objects.
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
    told(&mut setup, by(one.uid, named(0x50b, qp)), 8 + 0xe8);
    let of_host = setup.good(one.cq(eq, 0).u16(2, 0).u24(0x1d, setup.uar));
    setup.good(named(0x401, of_host));
    setup.good(by(one.uid, of_dek(0xa01, 0x150).u64(0x10, 1).u8(0x1b, 3).u24(0x1d, one.pd)));
    setup.refused(named(0xa06, 0).u16(0xa, one.uid), IN_USE, "a context with objects");
    for (opcode, number) in [(0x501, qp), (0x401, cq), (0x202, key), (0xa0a, one.umem), (0x601, 1)] {
        setup.good(named(opcode, number));
    }
    setup.good(of_dek(0xa03, 16));
    setup.good(named(0x801, one.pd));
    setup.good(named(0x803, one.uar));
    setup.good(named(0xa06, 0).u16(0xa, one.uid));
    setup.refused(named(0xa06, 0).u16(0xa, one.uid), BAD_RESOURCE, "it is gone");
    setup.refused(by(one.uid, Words::new(0x800, 16)), BAD_RESOURCE, "no domain for a context that is gone");
}

/// The same as `an_object_of_one_user_is_not_anothers`, for the objects of a network interface and for
/// objects with a number and no other state.
#[test]
fn an_interface_of_one_user_is_not_anothers() {
    let mut setup = Setup::new();
    let (one, other) = (User::new(&mut setup), User::new(&mut setup));
    let eq = setup.eq;
    one.clear(&mut setup.host, 0);
    other.clear(&mut setup.host, 0);
    let (cq, others_cq) = (setup.good(one.cq(eq, 0)), setup.good(other.cq(eq, 0)));
    let made = |setup: &mut Setup, user: &User, words: Words| setup.good(by(user.uid, words));
    let (record, ring) = (setup.host.alloc(8), setup.host.alloc(64));
    let sends = |cq, user: &User| {
        let words = packets(cq, user.uar).u64(0x60, record).u24(0x59, user.pd);
        with_pages(words, ring, 64)
    };
    let receives = |cq, user: &User| Words::new(0x908, 0x110).u24(0x29, cq).u24(0x59, user.pd);
    let direct = |domain, rq| Words::new(0x900, 0x110).u24(0x45, domain).u24(0x3d, rq);
    let spread = |domain, table| Words::new(0x900, 0x110).u8(0x24, 0x10).u24(0x45, domain).u24(0x41, table);
    let list = |opcode, rq| Words::new(opcode, 0x114).u16(0x3a, 1).u24(0x111, rq);
    let xrc = |domain, pd| Words::new(0x705, 0x110).u24(0x15, domain).u24(0x29, pd);
    let group = |table| Words::new(0x933, 0x400).u24(0x15, table);
    let flow = |table, group, kind, to| {
        let words = Words::new(0x936, 0x348).u24(0x15, table).u24(0x45, group).u24(0x51, 1);
        words.u8(0x340, kind).u24(0x341, to)
    };
    let table = |opcode, table| Words::new(opcode, 0x40).u24(0x15, table);
    // The objects of both users, with the same kinds in the same order.
    let objects = [(&one, cq), (&other, others_cq)].map(|(user, cq)| {
        let domain = made(&mut setup, user, Words::new(0x816, 16));
        let sq = made(&mut setup, user, sends(cq, user));
        let rq = made(&mut setup, user, receives(cq, user));
        let rqt = made(&mut setup, user, list(0x916, rq));
        let tir = made(&mut setup, user, direct(domain, rq));
        let tis = made(&mut setup, user, Words::new(0x912, 0xc0).u24(0x45, domain));
        let counter = made(&mut setup, user, Words::new(0x771, 16));
        let xrcd = made(&mut setup, user, Words::new(0x80e, 16));
        let srq = made(&mut setup, user, xrc(xrcd, user.pd));
        let flows = made(&mut setup, user, Words::new(0x930, 0x40));
        let rules = made(&mut setup, user, group(flows));
        [domain, sq, rq, rqt, tir, tis, counter, xrcd, srq, flows, rules]
    });
    let [mine, theirs] = objects;
    let [domain, sq, rq, rqt, tir, tis, counter, xrcd, srq, flows, rules] = mine;
    let [own_domain, _, own_rq, _, own_tir, _, _, own_xrcd, _, own_flows, own_rules] = theirs;
    let with_cq = other.qp(others_cq, 0x2000);
    let commands = [
        ("MODIFY_SQ", named(0x905, sq)),
        ("DESTROY_SQ", named(0x906, sq)),
        ("MODIFY_RQ", Words::new(0x909, 0x110).u24(9, rq)),
        ("DESTROY_RQ", named(0x90a, rq)),
        ("MODIFY_RQT", list(0x917, own_rq).u24(9, rqt)),
        ("DESTROY_RQT", named(0x918, rqt)),
        ("MODIFY_TIR", Words::new(0x901, 0x110).u24(9, tir)),
        ("DESTROY_TIR", named(0x902, tir)),
        ("MODIFY_TIS", named(0x913, tis)),
        ("DESTROY_TIS", named(0x914, tis)),
        ("DEALLOC_TRANSPORT_DOMAIN", named(0x817, domain)),
        ("QUERY_Q_COUNTER", Words::new(0x773, 0x20).u8(0x1f, counter as u8)),
        ("DEALLOC_Q_COUNTER", named(0x772, counter)),
        ("DESTROY_XRC_SRQ", named(0x706, srq)),
        ("DEALLOC_XRCD", named(0x80f, xrcd)),
        ("DESTROY_FLOW_GROUP", table(0x934, flows).u24(0x19, rules)),
        ("DESTROY_FLOW_GROUP in the own table", table(0x934, own_flows).u24(0x19, rules)),
        ("DESTROY_FLOW_TABLE", table(0x931, flows)),
        ("SET_FLOW_TABLE_ROOT", table(0x92f, flows)),
        ("MODIFY_FLOW_TABLE", table(0x93c, flows)),
        ("MODIFY_FLOW_TABLE to another table", table(0x93c, own_flows).u24(0x1d, flows)),
        ("DELETE_FLOW_TABLE_ENTRY", table(0x938, flows)),
        ("SET_FLOW_TABLE_ENTRY", flow(flows, own_rules, 2, own_tir)),
        ("SET_FLOW_TABLE_ENTRY in its group", flow(own_flows, rules, 2, own_tir)),
        ("SET_FLOW_TABLE_ENTRY to its receives", flow(own_flows, own_rules, 2, tir)),
        ("SET_FLOW_TABLE_ENTRY to its table", flow(own_flows, own_rules, 1, flows)),
        ("CREATE_FLOW_GROUP in its table", group(flows)),
        ("CREATE_FLOW_TABLE before its table", Words::new(0x930, 0x40).u24(0x1d, flows)),
        ("CREATE_SQ in its domain", sends(others_cq, &other).u24(0x59, one.pd)),
        ("CREATE_SQ on its TIS", sends(others_cq, &other).u24(0x4d, tis)),
        ("CREATE_RQ in its domain", receives(others_cq, &other).u24(0x59, one.pd)),
        ("CREATE_RQ with its completions", receives(cq, &other)),
        ("CREATE_RQ with its counter", receives(others_cq, &other).u8(0x2c, counter as u8)),
        ("CREATE_RQT of its receives", list(0x916, rq)),
        ("MODIFY_RQT to its receives", list(0x917, rq).u24(9, theirs[3])),
        ("CREATE_TIR in its domain", direct(domain, own_rq)),
        ("CREATE_TIR to its receives", direct(own_domain, rq)),
        ("CREATE_TIR to its table", spread(own_domain, rqt)),
        ("MODIFY_TIR to its table", Words::new(0x901, 0x110).u24(9, own_tir).u24(0x41, rqt)),
        ("CREATE_TIS in its domain", Words::new(0x912, 0xc0).u24(0x45, domain)),
        ("CREATE_XRC_SRQ in its domain", xrc(own_xrcd, one.pd)),
        ("CREATE_XRC_SRQ of its XRC domain", xrc(xrcd, other.pd)),
        ("CREATE_QP with its counter", with_cq.u8(QPC + 0xc, counter as u8)),
        ("CREATE_UCTX", Words::new(0xa04, 0x40)),
        ("DESTROY_UCTX", named(0xa06, 0).u16(0xa, one.uid)),
    ];
    for (what, words) in &commands {
        setup.refused(by(other.uid, words.clone()), BAD_RESOURCE, what);
    }
    // The owner may name its objects, and end them.
    setup.good(by(one.uid, flow(flows, rules, 2, tir)));
    setup.good(by(one.uid, list(0x917, rq).u24(9, rqt)));
    setup.good(by(one.uid, Words::new(0x773, 0x20).u8(0x1f, counter as u8)));
    setup.good(by(one.uid, table(0x934, flows).u24(0x19, rules)));
    setup.good(by(one.uid, table(0x931, flows)));
    for (opcode, number) in [(0x906, sq), (0x902, tir), (0x918, rqt), (0x90a, rq), (0x914, tis), (0x706, srq)]
    {
        setup.good(by(one.uid, named(opcode, number)));
    }
    for (opcode, number) in [(0x817, domain), (0x772, counter), (0x80f, xrcd)] {
        setup.good(by(one.uid, named(opcode, number)));
    }
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

/// The doorbells of a queue pair and of its completion queue work only in the UAR page that the command of
/// their creation named.
#[test]
fn a_page_of_doorbells_rings_the_queues_of_its_own() {
    let mut setup = Setup::new();
    let (user, other) = (User::new(&mut setup), User::new(&mut setup));
    let eq = setup.eq;
    user.clear(&mut setup.host, 0x800);
    let cq = setup.good(user.cq(eq, 0x800));
    let qp = setup.good(user.qp(cq, 0x2e00));
    setup.ready(user.uid, qp, qp);
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
    // The register of an event queue's doorbell has the queue's number in its upper byte.
    host.device.write_uar(register(setup.uar, 0x40), &(eq << 24).to_be_bytes());
    arm(host, other.uar, 0x20, cq);
    assert_eq!(raised(host), 0, "the completion queue is not armed");
    arm(host, user.uar, 0x20, cq);
    assert_eq!(raised(host), 1);
    // The host has not taken the event, so arming the event queue raises an interrupt at once. A doorbell in
    // another UAR page does not arm the queue.
    host.device.write_uar(register(user.uar, 0x40), &(eq << 24).to_be_bytes());
    assert_eq!(raised(host), 0, "the event queue is not armed");
    host.device.write_uar(register(setup.uar, 0x40), &(eq << 24).to_be_bytes());
    assert_eq!(raised(host), 1);
}

/// INIT2INIT_QP sets the properties that its masks select, and refuses masks that select any other property.
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
