//! Tests of the commands that start a device, and of the commands that create queues in pages of memory.
//!
//! The expected bytes of ENABLE_HCA's field `embedded_cpu_function`, of DISABLE_HCA and of CREATE_CQ come
//! from the kernel's `mlx5_ifc.h`, because rdma-core's header lacks these.

use super::queues::create_qp;
use super::*;

const ARM: Function = Function { number: 0x1234, embedded_cpu: true };

#[test]
fn the_function_is_enabled_started_stopped_and_disabled() {
    let host = Function { embedded_cpu: false, ..ARM };
    words(&EnableHca(host), &[(0, 0x0104_0000), (8, 0x1234)]);
    fields(&EnableHca(ARM), &[(0, 16, 0x104), (0x40, 1, 1), (0x50, 16, 0x1234)]);
    fields(&DisableHca(ARM), &[(0, 16, 0x105), (0x40, 1, 1), (0x50, 16, 0x1234)]);
    words(&InitHca, &[(0, 0x0102_0000)]);
    words(&TeardownHca, &[(0, 0x0103_0000)]);
    assert_eq!(InitHca.decode(&[0; 16]), Ok(()));
    assert_eq!(EnableHca(ARM).decode(&[0; 16]), Ok(()));
}

#[test]
fn a_version_of_the_interface_is_chosen() {
    words(&QueryIssi, &[(0, 0x010a_0000)]);
    words(&SetIssi(Issi::ONE), &[(0, 0x010b_0000), (8, 1)]);
    let info = QueryIssi.decode(&from_words(112, &[(8, 0x1234), (0x6c, 3)])).unwrap();
    assert_eq!(info, IssiInfo { current: 0x1234, supported: 3 });
    assert!(info.knows(Issi::ONE) && !info.knows(Issi::new(2).unwrap()));
    let field = from_fields(112, &[(0x50, 16, 0x1234), (0x360, 32, 3)]);
    assert_eq!(QueryIssi.decode(&field), Ok(info));
}

#[test]
fn firmware_gets_pages_and_gives_them_back() {
    let query = QueryPages { phase: PagePhase::Init, function: Function { embedded_cpu: false, ..ARM } };
    words(&query, &[(0, 0x0107_0000), (4, 2), (8, 0x1234)]);
    fields(
        &QueryPages { phase: PagePhase::Boot, function: ARM },
        &[(0, 16, 0x107), (0x30, 16, 1), (0x40, 1, 1), (0x50, 16, 0x1234)],
    );
    let reply = from_words(16, &[(8, 0x8000_4321), (0xc, 0x5678_9abc)]);
    let wanted =
        PageRequest { function: Function { number: 0x4321, embedded_cpu: false }, pages: 0x5678_9abc };
    assert_eq!(query.decode(&reply), Ok(wanted));
    assert_eq!(query.decode(&from_words(16, &[(0xc, u32::MAX)])).unwrap().pages, -1);

    let pages = [0x1122_3344_5566_7000, 0x1122_3344_5566_8000, 0x1122_3344_5566_9000];
    let list = [
        (0x10, 0x1122_3344),
        (0x14, 0x5566_7000),
        (0x18, 0x1122_3344),
        (0x1c, 0x5566_8000),
        (0x20, 0x1122_3344),
        (0x24, 0x5566_9000),
    ];
    let head = [(0, 0x0108_0000), (4, 1), (8, 0x8000_1234), (0xc, 3)];
    words(&GivePages { function: ARM, pages }, &[&head[..], &list].concat());
    for (page, error) in [
        (0, CommandError::PageAtZero),
        (0x1800, CommandError::Misaligned { what: "page", address: 0x1800, alignment: 4096 }),
    ] {
        let mut mailbox = [0xa5; 64];
        let give = GivePages { function: ARM, pages: [0x1000, page] };
        assert_eq!(give.encode(&mut mailbox).unwrap_err(), error);
        assert_eq!(mailbox, [0xa5; 64], "nothing is written");
    }

    let take = TakePages::<3> { function: ARM };
    words(&take, &[(0, 0x0108_0000), (4, 2), (8, 0x8000_1234), (0xc, 3)]);
    let reply = from_words(40, &[&[(8, 2)], &list[..4]].concat());
    assert_eq!(take.decode(&reply).unwrap().addresses(), &pages[..2]);
    let reply = from_words(40, &[&[(8, 3)], &list[..]].concat());
    assert_eq!(take.decode(&reply).unwrap().addresses(), pages, "all that were asked for");
    let error = take.decode(&from_words(40, &[(8, 4)])).unwrap_err();
    assert_eq!(error.to_string(), "the device gives 4 pages back, 3 were asked for");
}

fn pages() -> PageList<2> {
    PageList::contiguous(LogPageSize::P64K, 0x1122_3344_5566_0000).unwrap()
}

const PAGES: [Word; 4] =
    [(0x110, 0x1122_3344), (0x114, 0x5566_0000), (0x118, 0x1122_3344), (0x11c, 0x5567_0000)];

#[test]
fn event_queues_are_over_pages() {
    let command = CreateEq {
        size: EqSize::new(128).unwrap(),
        uar: UarPage::new(0x12_3456).unwrap(),
        events: 1 << 0xb | 1 << 0xa,
        interrupt: 0x9a,
        entries: pages(),
    };
    let golden = [(0, 0x0301_0000), (0x1c, 0x0712_3456), (0x24, 0x9a), (0x28, 0x0400_0000), (0x5c, 0x0c00)];
    words(&command, &[&golden[..], &PAGES].concat());
    assert_eq!(command.decode(&from_words(16, &[(8, 0xffff_ff9a)])), Ok(Eqn::new(0x9a).unwrap()));
    words(&DestroyEq(Eqn::new(0x9a).unwrap()), &[(0, 0x0302_0000), (8, 0x9a)]);
    // The pages hold 131072 bytes: 2048 entries of 64 bytes.
    let hold = |entries| {
        let size = EqSize::new(entries).unwrap();
        assert_eq!(size.get(), entries);
        CreateEq { size, ..command }.encode(&mut [0; 0x120]).is_ok()
    };
    assert!(hold(2048) && !hold(4096));
}

#[test]
fn completion_queues_are_over_pages() {
    let command = CreateCqOnPages {
        size: CqSize::new(512).unwrap(),
        uar: UarPage::new(0x12_3456).unwrap(),
        event_queue: Eqn::new(0x9a).unwrap(),
        entries: pages(),
        doorbell: 0x1122_3344_5566_7788,
        ignore_overrun: true,
    };
    const CQC: usize = 0x80;
    fields(
        &command,
        &[
            (0, 16, 0x400),
            (CQC + 0x0e, 1, 1),                       // oi
            (CQC + 0x63, 5, 9),                       // log_cq_size
            (CQC + 0x68, 24, 0x12_3456),              // uar_page
            (CQC + 0xb8, 8, 0x9a),                    // c_eqn
            (CQC + 0xc3, 5, 4),                       // log_page_size
            (CQC + 0x1c0, 64, 0x1122_3344_5566_7788), // dbr_addr
            (0x880, 64, 0x1122_3344_5566_0000),       // pas
            (0x8c0, 64, 0x1122_3344_5567_0000),
        ],
    );
    assert_eq!(command.decode(&from_words(16, &[(8, 0x12_3456)])), Ok(Cqn::new(0x12_3456).unwrap()));
    // The pages hold 131072 bytes: 2048 entries of 64 bytes.
    let full = CreateCqOnPages { size: CqSize::new(2048).unwrap(), ..command };
    assert_eq!(full.verify(), Ok(()));
    let over = CreateCqOnPages { size: CqSize::new(4096).unwrap(), ..command };
    assert_eq!(over.verify(), Err(CommandError::TooFewPages { bytes: 131_072, needed: 262_144 }));
    let odd = CreateCqOnPages { doorbell: 0x1004, ..command };
    let error = odd.verify().unwrap_err().to_string();
    assert_eq!(error, "doorbell record at 0x1004: its address is no multiple of 8");
}

#[test]
fn queue_pairs_are_over_pages_as_over_user_memory() {
    let CreateQp { pd, uar, send_cq, receive_cq, user_index, send_ring, receive_ring, timestamps, .. } =
        create_qp();
    let command = CreateQpOnPages {
        pd,
        uar,
        send_cq,
        receive_cq,
        user_index,
        send_ring,
        receive_ring,
        rings: pages(),
        doorbell: 0x1122_3344_5566_7788,
        timestamps,
    };
    let golden = [
        (0, 0x0500_0000),
        (0x18, 0x0000_1800),
        (0x1c, 0x00ab_cdef),
        (0x20, 0x003a_4880),
        (0x24, 0x0012_3456),
        (0x28, 0x0076_5432),
        (0x2c, 0x0400_0000),
        (0x94, 0x0011_1213),
        (0xb4, 0x0021_2223),
        (0xb8, 0x1122_3344),
        (0xbc, 0x5566_7788),
    ];
    words(&command, &[&golden[..], &PAGES].concat());
    assert_eq!(command.send_ring_offset(), 8192);
    let short = ReceiveRing { slots: SlotCount::new(2).unwrap(), stride: SlotStride::new(16).unwrap() };
    let odd = CreateQpOnPages { receive_ring: Some(short), ..command };
    assert_eq!(odd.send_ring_offset(), 64, "the send ring begins at a whole block");
    assert_eq!(CreateQpOnPages { receive_ring: None, ..command }.send_ring_offset(), 0);
    let large = SendRingSize::new(2048).unwrap();
    let over = CreateQpOnPages { send_ring: large, ..command };
    assert_eq!(over.verify(), Err(CommandError::TooFewPages { bytes: 131_072, needed: 8192 + 131_072 }));
    assert_eq!(CreateQpOnPages { receive_ring: None, ..over }.verify(), Ok(()));
    assert_eq!(command.decode(&from_words(16, &[(8, 0x12_3456)])), Ok(qp()));
}

#[test]
fn one_key_names_all_memory() {
    let command =
        CreatePhysicalRegion { pd: pd(), access: Access::LOCAL_WRITE | Access::REMOTE_READ, tag: 0x55 };
    words(&command, &[(0, 0x0200_0000), (0x10, 0x1c00), (0x14, 0xffff_ff55), (0x1c, 0x80ab_cdef)]);
    let key = command.decode(&from_words(16, &[(8, 0x12_3456)])).unwrap();
    assert_eq!(key, Key::new(MkeyIndex::new(0x12_3456).unwrap(), 0x55));
}

#[test]
fn uar_pages_have_places() {
    assert_eq!(UarPage::new(3).unwrap().offset(), 0x3000);
}
