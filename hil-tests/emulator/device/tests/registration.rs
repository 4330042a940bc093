//! Tests of regions of pages that UMRs fill, as Linux's mlx5_ib registers memory (`umr.c`, `wr.c`). The
//! access mode is MTT: an octoword has two entries, and the lowest bits of an entry are rights.

use crate::commands::*;
use crate::common::*;
use mlx5_mkey::types::{Key, MkeyIndex};
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::mkey_context::{FlagsPd, MkeyContext};
use mlx5_mkey::wire::umr::UmrControlSegment;
use mlx5_softdev::*;

/// Flags of a UMR.
const INLINE: u8 = 1 << 7;
const FAIL_IF_FREE: u8 = 2 << 5;
const FAIL_IF_USED: u8 = 1 << 5;
const OFFSET: u8 = 1 << 4;

/// Bits of the mkey mask of a UMR.
const LEN: u64 = 1 << 0;
const PAGE_SIZE: u64 = 1 << 1;
const START: u64 = 1 << 6;
const PD: u64 = 1 << 7;
const TAG: u64 = 1 << 13;
const RIGHTS: u64 = 0b11111 << 17;
const FREE: u64 = 1 << 29;
/// The mask with which mlx5_ib enables a region.
const ENABLE: u64 = LEN | PAGE_SIZE | START | PD | TAG | RIGHTS | FREE;

const READ: u64 = 1;
const WRITE: u64 = 2;
const TAGGED: u8 = 0x5a;
/// First address of the region. With pages of 4 KiB and of 8 KiB, this address is inside a page.
const FIRST: u64 = 0x7000_0000_0f00;

/// A driver with its queue pair for UMRs, which replaces the host's queue pair A. A queue pair of a user
/// replaces B.
struct Driver {
    setup: Setup,
    /// The protection domain of the driver's free regions, and the domain of a user.
    own: u32,
    user: u32,
    queue: Queue,
    /// A queue pair of the user, connected to itself.
    loopback: Queue,
    /// A key over all memory by its bus addresses, in the driver's domain.
    local: Key,
}

impl Driver {
    fn new() -> Self {
        let mut setup = Setup::new();
        let own = setup.host.pd;
        let words = umr_mkey(own, 0, 0x0c, 0, 0x80);
        let local = Key::from_raw(setup.good(words) << 8);
        let (words, mut queue) = setup.qp();
        queue.qpn = setup.good(words.u8(QPC + 1, 12).u24(QPC + 5, 0));
        let user = setup.good(Words::new(0x800, 16));
        setup.host.pd = user;
        let (words, mut loopback) = setup.qp();
        loopback.qpn = setup.good(words);
        for (qpn, peer) in [(queue.qpn, 0), (loopback.qpn, loopback.qpn)] {
            setup.ready(0, qpn, peer);
        }
        setup.host.q = [queue, loopback];
        Self { setup, own, user, queue, loopback, local }
    }

    fn host(&mut self) -> &mut Host {
        &mut self.setup.host
    }

    /// Returns CREATE_MKEY of a free key for pages of 4 KiB, with room for `octowords` octowords of page
    /// entries.
    fn free_key(&self, octowords: u32) -> Words {
        umr_mkey(self.own, 0x40, 0x84 | 1, 0, 0).u32(MKC + 0x34, octowords).u8(MKC + 0x3b, 12)
    }

    fn created(&mut self, octowords: u32) -> Key {
        let words = self.free_key(octowords);
        Key::from_raw(self.setup.good(words) << 8)
    }

    /// Returns the context with which the driver enables a region for the user.
    fn context(&self, log_page: u8, length: u64) -> MkeyContext {
        MkeyContext {
            access: LW | RR | RW | 0x04,
            qpn_mkey: (0xffff_ff00 | u32::from(TAGGED)).into(),
            flags_pd: FlagsPd::new().with_pd(self.user).into_bits().into(),
            start_addr: FIRST.into(),
            len: length.into(),
            page: log_page,
            ..MkeyContext::default()
        }
    }

    /// Executes a UMR on the driver's queue pair. `Err` is the kind of refusal.
    fn umr(&mut self, wqe: Wqe) -> Result<(), Refusal> {
        let seen = {
            self.host().execute(A, wqe);
            self.host().poll_send(A).unwrap()
        };
        if seen.opcode() == CqeOpcode::REQUESTER {
            return Ok(());
        }
        let why = seen.why();
        let qpn = self.queue.qpn;
        self.setup.good(named(0x50a, qpn));
        self.setup.ready(0, qpn, 0);
        self.host().q[A].producer = 0;
        Err(why)
    }

    /// Writes 8 bytes to an address of a key, on the user's queue pair. `Err` is the syndrome of the request.
    fn write(&mut self, key: Key, at: u64) -> Result<(), Syndrome> {
        self.ask(Opcode::RDMA_WRITE, key, at)
    }

    /// Reads 8 bytes, as [`Driver::write`] writes them.
    fn read(&mut self, key: Key, at: u64) -> Result<(), Syndrome> {
        self.ask(Opcode::RDMA_READ, key, at)
    }

    fn ask(&mut self, opcode: Opcode, key: Key, at: u64) -> Result<(), Syndrome> {
        let host = self.host();
        let (local, region) = host.filled(&[9; 8]);
        host.post(B, rdma(opcode, 0, at, key, &[segment(local, 8, region)]));
        self.outcome()
    }

    fn outcome(&mut self) -> Result<(), Syndrome> {
        self.host().ring(B);
        let seen = self.host().poll_send(B).unwrap();
        if seen.opcode() == CqeOpcode::REQUESTER {
            return Ok(());
        }
        let qpn = self.loopback.qpn;
        self.setup.good(named(0x50a, qpn));
        self.setup.ready(0, qpn, qpn);
        self.host().q[B].producer = 0;
        Err(seen.syndrome())
    }
}

/// Returns a UMR with these control fields and context.
fn umr(key: Key, flags: u8, octowords: u16, mask: u64, context: MkeyContext) -> Wqe {
    let control = UmrControlSegment {
        flags,
        klm_octowords: octowords.into(),
        mkey_mask: mask.into(),
        ..UmrControlSegment::default()
    };
    Wqe::new(Opcode::UMR, key.get()).with(&control).with(&context)
}

/// Adds an octoword with the entries of two pages to a request.
fn pair(wqe: Wqe, one: u64, two: u64) -> Wqe {
    let bytes = [one.to_be_bytes(), two.to_be_bytes()].concat();
    let octoword: [u8; 16] = bytes.try_into().unwrap();
    wqe.with(&octoword)
}

fn tagged(key: Key) -> Key {
    Key::new(key.index(), TAGGED)
}

/// A UMR fills a region with page entries that the request contains. They are padded to a block of 64 bytes.
#[test]
fn a_region_is_filled_by_umrs() {
    let mut driver = Driver::new();
    let pages = driver.host().alloc(8 << 12);
    let page = |number: u64| (pages + (number << 12)) | READ | WRITE;
    // Two octowords have room for 4 page entries. The padding of the block needs no room.
    let key = driver.created(2);
    assert_eq!(driver.write(key, FIRST), Err(Syndrome::REMOTE_ACCESS), "free");
    let context = driver.context(12, 0x2000);
    let wqe = [(page(5), page(2)), (page(7), 0), (0, 0), (0, 0)].into_iter();
    let wqe =
        wqe.fold(umr(key, INLINE | FAIL_IF_USED, 4, ENABLE, context), |wqe, (one, two)| pair(wqe, one, two));
    assert_eq!(driver.umr(wqe), Ok(()));
    assert_eq!(driver.write(key, FIRST), Err(Syndrome::REMOTE_ACCESS), "the tag has changed");
    let key = tagged(key);
    for (at, place) in [(0, pages + 0x5f00), (0x100, pages + 0x2000), (0x1100, pages + 0x7000)] {
        assert_eq!((driver.write(key, FIRST + at), driver.read(key, FIRST + at)), (Ok(()), Ok(())));
        assert_eq!(driver.host().get(place, 8), [9; 8], "{at:#x}");
    }
    assert_eq!(driver.write(key, FIRST + 0x1ff9), Err(Syndrome::REMOTE_ACCESS), "behind the end");
    assert_eq!(driver.write(key, FIRST - 1), Err(Syndrome::REMOTE_ACCESS), "before the start");
}

#[test]
fn entries_come_from_memory_and_from_an_offset_on() {
    let mut driver = Driver::new();
    let list = driver.host().alloc(8192).next_multiple_of(2048);
    let pages = driver.host().alloc(12 << 12);
    let page = |number: u64| (pages + (number << 12)) | READ | WRITE;
    let put = |driver: &mut Driver, entries: &[u64]| {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        driver.host().put(list, &bytes);
    };
    let key = driver.created(8);
    let pointer = |driver: &Driver| klm(list, 64, driver.local);
    // mlx5_ib writes a long list by several requests. The first request leaves the region free. The last
    // request has an offset, and enables the region.
    put(&mut driver, &[0, 1, 2, 3, 4, 5, 6, 7].map(page));
    let wqe = umr(key, FAIL_IF_USED, 4, 0, MkeyContext::default()).with(&pointer(&driver));
    assert_eq!(driver.umr(wqe), Ok(()));
    put(&mut driver, &[page(8), page(9), 0, 0, 0, 0, 0, 0]);
    let context = driver.context(12, 0x9000);
    let control = UmrControlSegment {
        flags: FAIL_IF_USED | OFFSET,
        klm_octowords: 4.into(),
        bsf_octowords: 4.into(),
        mkey_mask: ENABLE.into(),
        ..UmrControlSegment::default()
    };
    let with_offset = |control: &UmrControlSegment, driver: &Driver| {
        Wqe::new(Opcode::UMR, key.get()).with(control).with(&context).with(&pointer(driver))
    };
    // Octoword 3 begins no block of 64 bytes. From octoword 8 on, the mkey has no room.
    for (octowords, why) in [(3_u16, Refusal::UmrUnsupported), (8, Refusal::UmrRoom)] {
        let wrong = UmrControlSegment { bsf_octowords: octowords.into(), ..control };
        let wqe = with_offset(&wrong, &driver);
        assert_eq!(driver.umr(wqe), Err(why), "{octowords}");
    }
    let wqe = with_offset(&control, &driver);
    assert_eq!(driver.umr(wqe), Ok(()));
    let key = tagged(key);
    for number in 0..9 {
        assert_eq!(driver.write(key, FIRST + 0x100 + (number << 12)), Ok(()), "page {number}");
        assert_eq!(driver.host().get(pages + ((number + 1) << 12), 8), [9; 8]);
    }
}

/// An entry at a large offset makes the device allocate memory for all entries before it, so the room of a
/// region has a limit.
#[test]
fn the_room_of_a_region_has_a_limit() {
    let mut driver = Driver::new();
    for octowords in [(1 << 22) + 1, u32::MAX] {
        let words = driver.free_key(octowords);
        driver.setup.refused(words, BAD_PARAMETER, "too many entries");
    }
    driver.created(1 << 22);
}

/// A page without rights cannot be accessed, whatever the rights of the key. If a command contains the page
/// entries, they contain rights only with `pg_access`.
#[test]
fn rights_are_those_of_the_key_and_of_the_page() {
    let mut driver = Driver::new();
    let pages = driver.host().alloc(4 << 12);
    let key = driver.created(4);
    let context = MkeyContext { start_addr: 0x10000.into(), ..driver.context(12, 0x4000) };
    let wqe = umr(key, INLINE, 2, ENABLE, context);
    let wqe = pair(pair(wqe, pages | READ, (pages + 0x1000) | WRITE), pages + 0x2000, (pages + 0x3000) | 3);
    assert_eq!(driver.umr(wqe), Ok(()));
    let key = tagged(key);
    let refused = Err(Syndrome::REMOTE_ACCESS);
    for (page, reads, writes) in
        [(0, Ok(()), refused), (1, refused, Ok(())), (2, refused, refused), (3, Ok(()), Ok(()))]
    {
        let at = 0x10000 + (page << 12);
        assert_eq!((driver.read(key, at), driver.write(key, at)), (reads, writes), "page {page}");
    }
    // REREG_MR changes the rights of the key and not its pages.
    let context = MkeyContext { access: RR | 0x04, ..context };
    assert_eq!(driver.umr(umr(key, INLINE | FAIL_IF_FREE, 0, PD | RIGHTS, context)), Ok(()));
    assert_eq!((driver.read(key, 0x13000), driver.write(key, 0x13000)), (Ok(()), refused));
    let user = driver.user;
    let mut words = umr_mkey(user, 0, 0x7c | 1, 0, 0).u64(MKC + 0x18, 0x1000).u8(MKC + 0x3b, 12);
    words.0.extend(pages.to_be_bytes());
    for (pg_access, outcome) in [(0, Ok(())), (0x80, refused)] {
        let key = Key::from_raw(driver.setup.good(words.clone().u8(0xc, pg_access)) << 8);
        assert_eq!((driver.read(key, 0), driver.write(key, 0)), (outcome, outcome), "{pg_access}");
    }
}

/// A region has the page size that the last UMR has written.
#[test]
fn pages_have_the_size_of_the_context() {
    let mut driver = Driver::new();
    let pages = driver.host().alloc(6 << 13).next_multiple_of(1 << 13);
    let key = driver.created(4);
    let context = driver.context(13, 0x3000);
    let wqe = pair(umr(key, INLINE, 1, ENABLE, context), pages + 0x4000 + 3, pages + 3);
    assert_eq!(driver.umr(wqe), Ok(()));
    let key = tagged(key);
    // The region begins at 0xf00 of its first page.
    assert_eq!(driver.write(key, FIRST + 0x1000), Ok(()));
    assert_eq!(driver.host().get(pages + 0x5f00, 8), [9; 8]);
    assert_eq!(driver.write(key, FIRST + 0x1100), Ok(()));
    assert_eq!(driver.host().get(pages, 8), [9; 8]);
    // A UMR changes only the page size: the second page then begins 256 bytes behind the start of the region.
    let context = driver.context(12, 0x3000);
    assert_eq!(driver.umr(umr(key, INLINE, 0, PAGE_SIZE, context)), Ok(()));
    driver.host().put(pages, &[0; 8]);
    assert_eq!(driver.write(key, FIRST + 0x100), Ok(()));
    assert_eq!(driver.host().get(pages, 8), [9; 8]);
}

/// The driver's queue pair changes keys of all domains. A user's queue pair changes only keys of its own
/// domain, and moves no key to another domain. A domain whose regions were revoked can be freed.
#[test]
fn a_revoked_region_leaves_the_domain_of_its_user() {
    let mut driver = Driver::new();
    let page = driver.host().alloc(4096);
    let key = driver.created(4);
    let context = driver.context(12, 8);
    let enable = |context| pair(umr(key, INLINE | FAIL_IF_USED, 1, ENABLE, context), page | 3, 0);
    let nowhere = MkeyContext { flags_pd: FlagsPd::new().with_pd(0x77).into_bits().into(), ..context };
    assert_eq!(driver.umr(enable(nowhere)), Err(Refusal::UmrUnsupported), "no such domain");
    assert_eq!(driver.umr(enable(context)), Ok(()));
    assert_eq!(driver.umr(enable(context)), Err(Refusal::UmrCheck), "in use");
    let dealloc = Words::new(0x801, 16).u24(9, driver.user);
    let destroy = named(0x501, driver.loopback.qpn);
    // A request of the user to move the region into another domain is refused.
    let other = MkeyContext { flags_pd: FlagsPd::new().with_pd(driver.own).into_bits().into(), ..context };
    let host = driver.host();
    host.post(B, umr(tagged(key), INLINE, 0, PD, other));
    assert_eq!(driver.outcome(), Err(Syndrome::LOCAL_QP_OPERATION));
    let revoke = umr(key, INLINE, 0, PD | FREE, MkeyContext { free: 0x40, ..other });
    assert_eq!(driver.umr(revoke), Ok(()));
    assert_eq!(driver.write(tagged(key), FIRST), Err(Syndrome::REMOTE_ACCESS), "revoked");
    // All regions in the user's domain are destroyed. The user's queue pair still uses the domain.
    let user = driver.user;
    for index in 0x10..0x200 {
        let index = MkeyIndex::from_low_bits(index);
        let view = driver.host().device.query_mkey(index);
        if view.is_ok_and(|view| format!("{view:?}").contains(&format!("pd: {user},"))) {
            driver.host().device.destroy_mkey(index).unwrap();
        }
    }
    driver.setup.refused(dealloc.clone(), IN_USE, "a queue pair is in it");
    driver.setup.good(destroy);
    driver.setup.good(dealloc);
}

/// In a fast registration, the user's queue pair fills a key of its own domain, reads with this key, and
/// invalidates it.
#[test]
fn a_user_registers_by_its_own_queue_pair() {
    const FAST: u64 = LEN | PAGE_SIZE | START | 1 << 8 | TAG | 0b1111 << 18 | 1 << 23 | FREE;
    let mut driver = Driver::new();
    let page = driver.host().alloc(4096);
    let words = driver.free_key(4).u24(MKC + 0xd, driver.user);
    let key = Key::from_raw(driver.setup.good(words) << 8);
    let context = driver.context(12, 0x100);
    let host = driver.host();
    host.post(B, pair(umr(key, INLINE | FAIL_IF_USED, 1, FAST, context), page | 3, 0));
    assert_eq!(driver.outcome(), Ok(()));
    assert_eq!(driver.read(tagged(key), FIRST), Ok(()));
    driver
        .host()
        .post(B, umr(tagged(key), INLINE, 0, FREE, MkeyContext { free: 0x40, ..Default::default() }));
    assert_eq!(driver.outcome(), Ok(()));
    assert_eq!(driver.read(tagged(key), FIRST), Err(Syndrome::REMOTE_ACCESS));
    // The user's queue pair cannot fill a key of another domain.
    let foreign = driver.created(4);
    driver.host().post(B, pair(umr(foreign, INLINE, 1, FAST, context), page | 3, 0));
    assert!(driver.outcome().is_err());
}

/// The driver's queue pair executes UMRs, and refuses an RDMA WRITE. A free key needs `umr_en`.
#[test]
fn the_drivers_queue_pair_is_for_umrs_alone() {
    let mut driver = Driver::new();
    let local = driver.local;
    assert_eq!(driver.umr(rdma(Opcode::RDMA_WRITE, 0, 0, local, &[])), Err(Refusal::Malformed));
    let words = driver.free_key(4);
    driver.setup.refused(words.clone().u8(MKC + 2, 0x04 | 1), BAD_PARAMETER, "free, without umr_en");
    driver.setup.refused(words.u24(MKC + 0xd, 0x777), BAD_RESOURCE, "no such domain");
}
