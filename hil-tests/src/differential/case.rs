//! Random requests of the differential test, as plain data from which the library and libmlx5 (the reference)
//! post.

use crate::request::{Data, Flags, OwnedLayout, Request};
use mlx5_mkey::mkey::{
    Crypto, Direction, Domain, Escape, Guard, InterleavedEntry, Keytag, KlmEntry, Signature, SignatureOrder,
    T10Dif,
};
use mlx5_mkey::types::{BlockSize, DekId, Key, Seed, Tweak};
use mlx5_mkey::wqe::{Local, Remote, Sge};

/// Addresses and size of the two regions of memory. Mkeys map the first (`INNER`). Transfers move data
/// between the first and the second (`OUTER`).
pub(super) const INNER: u64 = 0x12_2000;
pub(super) const OUTER: u64 = INNER + REGION_BYTES as u64;
pub(super) const REGION_BYTES: usize = 0x1_0000;
/// Index of the memory key that covers both regions. Mkeys of libmlx5 have lower indexes.
pub(super) const REGION_INDEX: u32 = 0xf0_0000;
const REGION: Key = Key::from_raw(REGION_INDEX << 8);
/// Index of the memory window's key.
pub(super) const WINDOW_INDEX: u32 = REGION_INDEX + 1;

/// A pseudorandom generator, whose numbers depend on the seed only.
pub(super) struct Random(fastrand::Rng);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number below `end`.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.0.u32(..end)
    }

    /// Returns true with a probability of `percent` percent.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the choices at random.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.usize(..choices.len())]
    }
}

/// The capabilities of an mkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) signature: bool,
    pub(super) crypto: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignatureStep {
    Keep,
    Reset,
    Set { memory: Option<Domain>, wire: Option<Domain>, check_mask: u8, copy_mask: Option<u8> },
}

#[derive(Clone, Debug)]
pub(super) struct Config {
    /// The access rights that the configuration sets, as bits of `enum ibv_access_flags`.
    pub(super) access: Option<u32>,
    pub(super) layout: OwnedLayout,
    pub(super) signature: SignatureStep,
    pub(super) crypto: Option<Crypto>,
    /// Whether libmlx5 configures by its older calls `mlx5dv_wr_mr_list` or `mlx5dv_wr_mr_interleaved`, which
    /// take access and layout only.
    pub(super) older: bool,
    /// The order in which the setters of libmlx5 are called: 0 access, 1 layout, 2 signature, 3 crypto.
    pub(super) order: [u8; 4],
}

impl Config {
    /// Returns whether two configurations differ at most in the layout. The library then posts both with the
    /// same prepared configuration.
    pub(super) fn is_prepared_as(&self, other: &Self) -> bool {
        (self.access, &self.signature, self.crypto) == (other.access, &other.signature, other.crypto)
    }
}

/// A request that both the library and libmlx5 post. If libmlx5 takes other parameters than the library, the
/// value contains the parameters of libmlx5.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Configure(Config),
    /// A binding of a memory window: key of the window, range, bits of `enum ibv_access_flags`, and whether
    /// the window's addresses begin at 0.
    Bind(Key, KlmEntry, u32, bool),
    /// Any other request. The request names mkeys and windows by their keys only.
    Plain(Request),
}

/// The state of the queue pair's memory window of type 2: each binding uses the next tag, and a bound window
/// must be invalidated before it is bound again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    key: Key,
    is_bound: bool,
}

impl Window {
    /// A window that was never bound.
    pub(super) const NEW: Self = Self { key: Key::from_raw(WINDOW_INDEX << 8), is_bound: false };

    /// Returns the window's state after the execution of a request.
    pub(super) fn behind(self, work: &Work) -> Self {
        match work {
            Work::Bind(key, ..) if *key == self.key => {
                Self { key: Key::new(key.index(), key.tag().wrapping_add(1)), is_bound: true }
            }
            Work::Plain(Request::Invalidate(key)) if *key == self.key => Self { is_bound: false, ..self },
            _ => self,
        }
    }
}

/// State and limits of queue, mkey and window. The next random requests depend on them.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) kind: Kind,
    pub(super) max_entries: u16,
    pub(super) max_inline_data: u32,
    pub(super) max_sge: usize,
    pub(super) dek: DekId,
    pub(super) key: Key,
    /// Whether the mkey was never configured. The indexes of its PSVs are then unknown.
    pub(super) fresh: bool,
    /// Whether the AES-XTS engine handles single data units: an mkey then maps at most one data unit.
    pub(super) single_block: bool,
    /// The number of the mkey's bytes on the wire, or 0 if unknown.
    pub(super) wire_bytes: u32,
    /// The number of requests that still fit into the queue. `None` in a run that polls after each chain:
    /// such a run makes no chains that fill the queue.
    pub(super) room: Option<u32>,
    /// Number of the queue pair.
    pub(super) qpn: u32,
    /// The number of blocks that libmlx5 reserves for each request. Its queue limits the number of requests
    /// instead of the number of blocks.
    pub(super) max_blocks: u32,
    /// Whether the last request is of a kind (such as a UMR) after which the library fences the next request.
    pub(super) fenced: bool,
    /// The number of blocks from the producer to the end of the ring.
    pub(super) before_end: u32,
    pub(super) window: Window,
}

/// Makes a series ("chain") of one to five requests that are posted together: random ones, or ones that the
/// device can execute. Some chains fill the queue.
pub(super) fn chain(random: &mut Random, limits: &Limits) -> Vec<(Flags, Work)> {
    if let Some(room) = limits.room
        && random.percent(8)
    {
        return filling(random, limits, room);
    }
    let mut works = if random.percent(40) {
        (0..=random.below(4)).map(|_| work(random, limits)).collect()
    } else {
        executable(random, limits)
    };
    if limits.fresh && limits.kind.signature && random.percent(50) {
        works.insert(0, Work::Configure(introduction(random)));
    }
    if limits.before_end < limits.max_blocks && random.percent(10) {
        // This request crosses the end of the ring.
        works.insert(0, raw(random, limits, limits.before_end * 4 + 1));
    }
    let silent = random.percent(20);
    let mut fenced = limits.fenced;
    works
        .into_iter()
        .map(|mut work| {
            let mut flags = Flags {
                fenced: random.percent(20),
                signaled: !silent && random.percent(60),
                solicited: random.percent(20),
            };
            if let Work::Plain(Request::Raw(bytes)) = &mut work {
                bytes[11] = raw_flags(random, flags, fenced);
                // libmlx5 takes the flags of a raw request from the request's own control segment.
                flags = Flags::default();
            }
            fenced =
                matches!(work, Work::Configure(_) | Work::Plain(Request::Invalidate(_)) | Work::Bind(..));
            (flags, work)
        })
        .collect()
}

/// Returns the flags byte for a raw request's control segment. A request that the library would fence gets a
/// fence here, because libmlx5 leaves fences of raw requests to the caller.
fn raw_flags(random: &mut Random, flags: Flags, fenced: bool) -> u8 {
    let fence = match flags.fenced || fenced {
        true => random.pick(&[0x20, 0x60, 0x80]),
        false => 0,
    };
    let signaled = if flags.signaled { random.pick(&[0x08, 0x08, 0x0c]) } else { 0 };
    fence | signaled | u8::from(flags.solicited) << 1
}

/// Makes a raw request of at least `least` octowords: an RDMA WRITE between the regions, a NOP, or an unknown
/// opcode. UMRs and SET_PSVs are excluded, because the library fences the request after them.
fn raw(random: &mut Random, limits: &Limits, least: u32) -> Work {
    let most = (limits.max_blocks * 4).min(63);
    let octowords = least + random.below(most - least + 1);
    let mut wqe = vec![0; 16];
    match random.below(6) {
        0..4 if octowords > 2 => {
            let remote = OUTER + u64::from(random.below(0x1000));
            wqe.extend([&remote.to_be_bytes()[..], &REGION.get().to_be_bytes(), &[0; 4]].concat());
            for _ in 2..octowords {
                let (bytes, address) = (1 + random.below(64), INNER + u64::from(random.below(0x8000)));
                let segment = [&bytes.to_be_bytes()[..], &REGION.get().to_be_bytes(), &address.to_be_bytes()];
                wqe.extend(segment.concat());
            }
            wqe[3] = 0x08;
        }
        4 if least == 1 => {}
        _ => {
            wqe.extend((16..octowords * 16).map(|_| random.next() as u8));
            wqe[3] = random.pick(&[0x0a, 0x10, 0x17, 0x2f, 0x3c, 0x7f]);
            wqe[0] = random.pick(&[0, 1, 6]);
        }
    }
    // The control segment has a random block number, which both libmlx5 and the library replace. Its queue
    // pair number is right, because libmlx5 does not replace this number.
    wqe[1..3].copy_from_slice(&(random.next() as u16).to_be_bytes());
    let octowords = (wqe.len() / 16) as u32;
    wqe[4..8].copy_from_slice(&(limits.qpn << 8 | octowords).to_be_bytes());
    wqe[8] = if random.percent(10) { random.next() as u8 } else { 0 };
    Work::Plain(Request::Raw(wqe))
}

/// Makes a request that copies memory. The source is the first region. The target is the second region, or an
/// mkey with neither signature nor crypto, which maps the first region.
fn memcpy(random: &mut Random, limits: &Limits, wire: u32) -> Work {
    let plain = !limits.kind.signature && !limits.kind.crypto;
    let mut place = |base: u64| Local { address: base + u64::from(random.below(0x4000)), lkey: REGION };
    let (mut to, from) = (place(OUTER), place(INNER));
    let mut bytes = 1 + random.below(0x4000);
    if plain && random.percent(50) {
        (to, bytes) = (Local { address: 0, lkey: limits.key }, wire);
    }
    Work::Plain(Request::Memcpy(to, from, bytes))
}

/// Makes a configuration whose work requests contain the indexes of both PSVs. The test reads the indexes
/// from these requests. An mkey without known indexes is not used again.
fn introduction(random: &mut Random) -> Config {
    let [memory, wire] = [domain(random), domain(random)].map(Some);
    let signature = SignatureStep::Set { memory, wire, check_mask: 0xff, copy_mask: None };
    let layout = OwnedLayout::List(vec![KlmEntry { address: INNER, length: 512, key: REGION }]);
    Config { access: Some(15), layout, signature, crypto: None, older: false, order: order(random) }
}

/// Makes requests that fill the queue exactly, or exceed it by one. Each has one to three blocks and
/// succeeds. Only the last is signalled, and its completion makes room for all.
fn filling(random: &mut Random, limits: &Limits, room: u32) -> Vec<(Flags, Work)> {
    let count = room + u32::from(random.percent(25));
    let most = limits.max_sge.clamp(1, 8) as u32;
    (1..=count)
        .map(|number| {
            let sges = 1 + random.below(most);
            let list = (0..sges).map(|_| here(OUTER + u64::from(random.below(0x1000)), 1, REGION)).collect();
            let remote = remote(OUTER + u64::from(random.below(0x1000)), REGION);
            let signaled = number == count;
            let flags = Flags { signaled, ..Flags::default() };
            (flags, Work::Plain(Request::Write(remote, Data::Sges(list))))
        })
        .collect()
}

/// Makes requests that a device can execute: first a configuration over the regions, unless the mkey keeps
/// its last one, then transfers through the mkey.
fn executable(random: &mut Random, limits: &Limits) -> Vec<Work> {
    let mut works = Vec::new();
    let mut bytes = limits.wire_bytes;
    let known = bytes > 0 && bytes <= REGION_BYTES as u32;
    if !known || random.percent(65) {
        let (config, wire) = whole_blocks(random, limits);
        works.push(Work::Configure(config));
        bytes = wire;
    } else if random.percent(50) {
        works.push(Work::Configure(keeping(random, limits)));
    }
    let configured = works.first().cloned();
    for _ in 0..1 + random.below(3) {
        works.push(match random.below(20) {
            0 | 1 => raw(random, limits, 1),
            2 | 3 => memcpy(random, limits, bytes),
            _ => transfer(random, limits.key, bytes),
        });
    }
    if let Some(again) = configured
        && random.percent(25)
    {
        works.extend([again, transfer(random, limits.key, bytes)]);
    }
    if random.percent(15) {
        works.extend(by_window(random, limits.window));
    }
    works
}

/// Makes requests that bind the window to a region and move data through it, mostly within its range and
/// rights. In half of the cases the last request invalidates the window.
fn by_window(random: &mut Random, window: Window) -> Vec<Work> {
    let mut works = Vec::new();
    if window.is_bound {
        works.push(Work::Plain(Request::Invalidate(window.key)));
    }
    let (address, length) = (INNER + u64::from(random.below(0x4000)), 1 + random.below(0x4000));
    let range = KlmEntry { address, length, key: REGION };
    let (rights, zero_based) = (random.pick(&[6, 7, 14, 15, 15, 2, 4]), random.percent(50));
    let bind = Work::Bind(window.key, range, rights, zero_based);
    let key = window.behind(&bind).key;
    let (start, offset) = (if zero_based { 0 } else { address }, random.below(length));
    let most = if random.percent(95) { length - offset } else { length };
    let bytes = 1 + random.below(most);
    let (there, here) = (remote(start + u64::from(offset), key), here(OUTER, bytes, REGION));
    works.extend([
        bind,
        Work::Plain(if random.percent(50) {
            Request::Read(there, vec![here])
        } else {
            Request::Write(there, Data::Sges(vec![here]))
        }),
    ]);
    if random.percent(50) {
        works.push(Work::Plain(Request::Invalidate(key)));
    }
    works
}

/// Makes a configuration that changes access rights, sometimes with a new signature or new crypto properties.
/// The layout stays. A signature error that the test has not yet read also stays.
fn keeping(random: &mut Random, limits: &Limits) -> Config {
    let config =
        Config { access: Some(15), layout: OwnedLayout::Unchanged, crypto: None, ..crypto_only(limits.dek) };
    match random.below(4) {
        0 if limits.kind.crypto => {
            let crypto = crypto(random, limits.dek);
            let unit = BlockSize::from_bytes(limits.wire_bytes).unwrap_or(BlockSize::B4160);
            let data_unit = if limits.single_block { unit } else { crypto.data_unit };
            Config { crypto: Some(Crypto { data_unit, ..crypto }), ..config }
        }
        1 if limits.kind.signature => {
            let signature = signature(random);
            let single = limits.kind.crypto && limits.single_block;
            Config { signature: if single { wire_only(signature) } else { signature }, ..config }
        }
        _ => config,
    }
}

/// Makes a configuration whose layout ends with a whole signature block. Also returns the number of bytes
/// that the mkey's data have on the wire.
fn whole_blocks(random: &mut Random, limits: &Limits) -> (Config, u32) {
    let size = if random.percent(60) { BlockSize::B512 } else { random.pick(&BlockSize::ALL) };
    let crypto = limits.kind.crypto.then(|| {
        let crypto = crypto(random, limits.dek);
        if random.percent(90) { Crypto { data_unit: size, ..crypto } } else { crypto }
    });
    let single = crypto.is_some() && limits.single_block;
    let mut signature = match limits.kind.signature {
        true if random.percent(80) => signature(random),
        true => SignatureStep::Reset,
        false => SignatureStep::Keep,
    };
    let (mut stored, mut sent) = (size.bytes(), size.bytes());
    if single {
        signature = wire_only(signature);
    }
    if let SignatureStep::Set { memory, wire, .. } = &mut signature {
        for (domain, bytes) in [(memory, &mut stored), (wire, &mut sent)] {
            if let Some(domain) = domain {
                domain.block_size = size;
                *bytes += domain.signature.bytes();
            }
        }
    }
    let blocks = if single { 1 } else { 1 + random.below(3) };
    let layout = mapping(random, limits, blocks, stored);
    let config = Config {
        access: Some(if random.percent(90) { 15 } else { random.below(16) }),
        layout,
        older: !limits.kind.signature && crypto.is_none() && random.percent(40),
        signature,
        crypto,
        order: order(random),
    };
    (config, blocks * sent)
}

/// Removes the memory domain of a signature, for an engine that handles one data unit per mkey: data with a
/// signature in memory would be longer than the data unit.
fn wire_only(step: SignatureStep) -> SignatureStep {
    let SignatureStep::Set { memory, wire, check_mask, .. } = step else { return step };
    SignatureStep::Set { memory: None, wire: wire.or(memory), check_mask, copy_mask: None }
}

/// Makes a layout over the first region, of `blocks` blocks of `stored` bytes.
fn mapping(random: &mut Random, limits: &Limits, blocks: u32, stored: u32) -> OwnedLayout {
    let address = |random: &mut Random| INNER + u64::from(random.below(0x8000));
    if random.percent(40) {
        let first = 1 + random.below(stored - 1);
        let entries =
            [first, stored - first].map(|bytes| stream(address(random), bytes, random.below(64), REGION));
        return OwnedLayout::Interleaved(blocks, entries.into());
    }
    let count = 1 + random.below(u32::from(limits.max_entries).min(5));
    let mut left = blocks * stored;
    let entries = (1..=count)
        .map(|number| {
            let behind = count - number;
            let length = if behind == 0 { left } else { 1 + random.below(left - behind) };
            left -= length;
            KlmEntry { address: address(random), length, key: REGION }
        })
        .collect();
    OwnedLayout::List(entries)
}

/// Makes a request that moves the data of the mkey, usually all of its data.
fn transfer(random: &mut Random, key: Key, wire: u32) -> Work {
    let (offset, length) = match random.below(20) {
        0 => (0, 1 + random.below(wire + 8)),
        1 => (u64::from(random.below(wire)), 1 + random.below(wire)),
        _ => (0, wire),
    };
    let outside = OUTER + u64::from(random.below(0x1000)) * 8;
    let (inside, beside) = (here(offset, length, key), here(outside, length, REGION));
    let (inner, outer) = (remote(offset, key), remote(outside, REGION));
    let old = Local { address: outside, lkey: REGION };
    let data = |sge| Data::Sges(vec![sge]);
    Work::Plain(match random.below(12) {
        0 => Request::Send(data(inside)),
        1 => Request::SendImm(random.next() as u32, data(inside)),
        2 => Request::WriteImm(outer, random.next() as u32, data(inside)),
        3 => Request::WriteImm(inner, random.next() as u32, data(beside)),
        4 => Request::FetchAdd(inner, random.next(), old),
        5 => Request::CompareSwap(inner, random.next(), random.next(), old),
        6 | 7 => Request::Write(outer, data(inside)),
        8 => Request::Write(inner, data(beside)),
        9 => Request::Read(inner, vec![beside]),
        _ => Request::Read(outer, vec![inside]),
    })
}

/// Makes a data segment.
fn here(address: u64, length: u32, lkey: Key) -> Sge {
    Sge { address, length, lkey }
}

/// Makes an entry of an interleaved layout. `bytes` and `skip` must each fit into 16 bits.
fn stream(address: u64, bytes: u32, skip: u32, key: Key) -> InterleavedEntry {
    let [bytes, skip] = [bytes, skip].map(|bytes| u16::try_from(bytes).expect("16 bits"));
    InterleavedEntry { address, bytes, skip, key }
}

fn any_key(random: &mut Random) -> Key {
    Key::from_raw(random.next() as u32)
}

fn remote(address: u64, rkey: Key) -> Remote {
    Remote { address, rkey }
}

fn order(random: &mut Random) -> [u8; 4] {
    let mut order = [0, 1, 2, 3];
    random.0.shuffle(&mut order);
    order
}

/// Makes a configuration of access rights, a layout, and crypto properties with this DEK.
pub(super) fn crypto_only(dek: DekId) -> Config {
    Config {
        access: Some(1),
        layout: OwnedLayout::List(vec![KlmEntry { address: 0, length: 512, key: Key::from_raw(0x100) }]),
        signature: SignatureStep::Keep,
        crypto: Some(Crypto {
            direction: Direction::EncryptOnTx,
            order: SignatureOrder::AfterCryptoOnTx,
            data_unit: BlockSize::B512,
            tweak: Tweak::from_lba(0),
            dek,
            keytag: Keytag([0; 8]),
        }),
        older: false,
        order: [0, 1, 2, 3],
    }
}

fn work(random: &mut Random, limits: &Limits) -> Work {
    let remote = remote(random.next(), any_key(random));
    Work::Plain(match random.below(22) {
        18 | 19 => return raw(random, limits, 1),
        20 => {
            let (to, from) = (place(random), place(random));
            // The device copies at most 2 MiB by one request: the choices are on both sides of this limit.
            let bytes = random.pick(&[0, 1, 64, 1 << 21, (1 << 21) + 1, 1 << 31, u32::MAX]);
            Request::Memcpy(to, from, bytes)
        }
        16 => Request::CompareSwap(remote, random.next(), random.next(), place(random)),
        21 => {
            let (key, Sge { address, length, lkey }) = (any_key(random), sge(random));
            let range = KlmEntry { address, length, key: lkey };
            return Work::Bind(key, range, random.below(16), random.percent(50));
        }
        17 => Request::FetchAdd(remote, random.next(), place(random)),
        0 => Request::Send(payload(random, limits)),
        1 => Request::SendImm(random.next() as u32, payload(random, limits)),
        2 => Request::SendInvalidate(any_key(random), payload(random, limits)),
        3 => Request::Write(remote, payload(random, limits)),
        4 => Request::WriteImm(remote, random.next() as u32, payload(random, limits)),
        5 => Request::Read(remote, sges(random, limits)),
        6 => Request::Invalidate(if random.percent(50) { limits.key } else { any_key(random) }),
        _ => return Work::Configure(config(random, limits)),
    })
}

fn payload(random: &mut Random, limits: &Limits) -> Data {
    if random.percent(50) {
        let limit = limits.max_inline_data;
        let length = match random.below(20) {
            0 => limit + 1 + random.below(8),
            1 => limit,
            2..10 => random.below(64),
            _ => random.below(limit + 1),
        };
        Data::Inline((0..length).map(|_| random.next() as u8).collect())
    } else {
        Data::Sges(sges(random, limits))
    }
}

fn sges(random: &mut Random, limits: &Limits) -> Vec<Sge> {
    let most = limits.max_sge as u32;
    let count = match random.below(20) {
        0 => most + 1,
        1 => most,
        2 => 0,
        _ => random.below(most.min(8) + 1),
    };
    (0..count).map(|_| sge(random)).collect()
}

fn place(random: &mut Random) -> Local {
    Local { address: random.next(), lkey: any_key(random) }
}

fn sge(random: &mut Random) -> Sge {
    here(random.next(), 1 + random.below(0x7fff_ffff), any_key(random))
}

fn config(random: &mut Random, limits: &Limits) -> Config {
    let wanted = |random: &mut Random, able: bool| random.percent(if able { 55 } else { 2 });
    let signature = if wanted(random, limits.kind.signature) {
        if random.percent(15) { SignatureStep::Reset } else { signature(random) }
    } else {
        SignatureStep::Keep
    };
    let crypto = wanted(random, limits.kind.crypto).then(|| crypto(random, limits.dek));
    let access = random.percent(60).then(|| random.below(16));
    let layout = if random.percent(75) { layout(random, limits) } else { OwnedLayout::Unchanged };
    let only = access.is_some()
        && layout != OwnedLayout::Unchanged
        && signature == SignatureStep::Keep
        && crypto.is_none();
    Config { access, layout, signature, crypto, older: only && random.percent(30), order: order(random) }
}

/// Makes a layout whose lengths add up to less than 2^31: libmlx5 of rdma-core 44 adds them in 32 bits.
fn layout(random: &mut Random, limits: &Limits) -> OwnedLayout {
    let most = u32::from(limits.max_entries);
    if random.percent(60) {
        let count = match random.below(30) {
            0 => most + 1,
            1 => most,
            2 => 0,
            _ => 1 + random.below(most.min(12)),
        };
        let longest = 0x7fff_ffff / count.max(1);
        let unit = random.pick(&[1, 8, 16, 512, 520, 4096, 4160]);
        let entries = (0..count)
            .map(|_| {
                let units = if random.percent(80) { 16 } else { longest / unit };
                let length = (1 + random.below(units)) * unit;
                KlmEntry { address: random.next(), length, key: any_key(random) }
            })
            .collect();
        OwnedLayout::List(entries)
    } else {
        let most = most - 1;
        // The number of entries never exceeds the limit by exactly one. libmlx5 posts an interleaved layout
        // with one entry too many, because it does not count the layout's header. The library refuses this
        // layout on purpose (`vectors/DIFFERENCES.md`).
        let count = if random.percent(3) { most + 2 } else { 1 + random.below(most.min(8)) };
        let unit = random.pick(&[1, 8, 512, 520, 4096]);
        let entries = (0..count)
            .map(|_| {
                let bytes = (1 + random.below(if unit > 1000 { 8 } else { 32 })) * unit;
                let skip = random.below(0x1_0000 - bytes);
                stream(random.next(), bytes, skip, any_key(random))
            })
            .collect();
        OwnedLayout::Interleaved(1 + random.below(500), entries)
    }
}

fn domain(random: &mut Random) -> Domain {
    let seed = |random: &mut Random| random.pick(&[Seed::Zeros, Seed::Ones]);
    let signature = match random.below(6) {
        0 => Signature::Crc32(seed(random)),
        1 => Signature::Crc32c(seed(random)),
        2 => Signature::Crc64Xp10(seed(random)),
        _ => Signature::T10Dif(T10Dif {
            guard: random.pick(&[Guard::Crc, Guard::IpChecksum]),
            seed: seed(random),
            app_tag: random.next() as u16,
            ref_tag: random.next() as u32,
            ref_remap: random.percent(50),
            escape: random.pick(&[Escape::Never, Escape::AppTag, Escape::AppAndRefTag]),
        }),
    };
    Domain { signature, block_size: random.pick(&BlockSize::ALL) }
}

fn signature(random: &mut Random) -> SignatureStep {
    let mut memory = Some(domain(random));
    let mut wire = Some(domain(random));
    match random.below(6) {
        0 => memory = None,
        1 => wire = None,
        2..4 => wire = memory,
        4 => {
            if let (Some(wire), Some(memory)) = (&mut wire, &memory) {
                wire.block_size = memory.block_size;
            }
        }
        _ => {}
    }
    // Without a wire domain libmlx5 ignores the copy mask, and the library refuses the mask on purpose
    // (`vectors/DIFFERENCES.md`).
    let same = matches!((&memory, &wire), (Some(memory), Some(wire)) if memory.same_structure(wire));
    let copies = wire.is_some() && random.percent(if same { 40 } else { 2 });
    let mask = |random: &mut Random| {
        if random.percent(50) {
            random.pick(&[0, 0xff, 0xf0, 0x0f, 0xc0, 0x30, 0x3f, 0xcf])
        } else {
            random.next() as u8
        }
    };
    SignatureStep::Set { memory, wire, check_mask: mask(random), copy_mask: copies.then(|| mask(random)) }
}

fn crypto(random: &mut Random, dek: DekId) -> Crypto {
    Crypto {
        direction: random.pick(&[Direction::EncryptOnTx, Direction::DecryptOnTx]),
        order: random.pick(&[SignatureOrder::AfterCryptoOnTx, SignatureOrder::BeforeCryptoOnTx]),
        data_unit: random.pick(&BlockSize::ALL),
        tweak: Tweak::new(u128::from(random.next()) << 64 | u128::from(random.next())),
        dek,
        keytag: Keytag(random.next().to_le_bytes()),
    }
}
