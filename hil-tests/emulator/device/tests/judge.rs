//! Compares the library's module `inspect` with this device: each row of `inspect`'s table of problems has a
//! verdict in this file, and its requests are executed on the device. The device refuses all requests that
//! `inspect` calls refused, and executes the others. If the requests of a row have several forms, each form
//! is tried. [`UNTOLD`] lists the rows whose verdict does not follow from the request alone.

use crate::common::*;
use mlx5_mkey::inspect::{DeviceContext, Problem, Requests, Severity, WorkRequest};
use mlx5_mkey::mkey::{SignatureCapabilities, XtsEngine as Engine};
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::bsf::{BfsPsv, TransactionBits};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::data::InlineHeader;
use mlx5_mkey::wire::umr::UmrControlSegment;
use mlx5_softdev::*;
use zerocopy::IntoBytes;

/// The device's reaction to the requests of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The device executes the request, and transfers through its mkey succeed.
    Executes,
    /// The device refuses the request itself.
    Refuses,
    /// The device executes the request, and refuses each transfer through its mkey. BSFs are read when they
    /// are used (DEVICE.md, "Where BSFs are read").
    RefusesUse,
    /// The row has no request: it is about completions, or cannot be tried. The text is the reason.
    NoRequest(&'static str),
}

use Verdict::{Executes, NoRequest, Refuses, RefusesUse};

/// Rows whose verdict depends on a fact that no request contains, each with this fact. For these rows,
/// `inspect` calls no request refused.
const UNTOLD: &[(&str, &str)] = &[
    ("AnotherObject", "the device has the TIS or TIR; this one has none"),
    ("IndexOutOfOrder", "the block of the ring at which the request stands"),
    ("JobSize", "the length of each transfer through the mkey"),
    ("OtherLap", "the block of the ring at which the request stands"),
    ("OtherQueuePair", "the queue pair of the ring"),
    ("SegmentIs2Gib", "the longest message of the device"),
];

/// Offsets in a UMR: the control segment, the mkey context, and the entries.
const UMR: usize = 16;
const CONTEXT: usize = 64;
const ENTRIES: usize = 128;

/// A host with the objects that one request needs.
struct Bench {
    host: Host,
    plain: Mkey,
    signed: Mkey,
    crypto: Mkey,
    both: Mkey,
    at: u64,
    key: Key,
    dek: u32,
    context: DeviceContext,
}

/// A request, and optionally the mkey that a transfer uses after it, with the length of this transfer in
/// bytes.
type Try = (Wqe, Option<(Key, u32)>);

impl Bench {
    fn new(profile: DeviceProfile, context: DeviceContext) -> Self {
        let mut host = Host::with(profile, |_| {});
        let (at, key) = host.filled(&with_pi(&pattern(4096, 1), 1, 2));
        let [plain, signed, crypto, both] =
            [(false, false), (true, false), (false, true), (true, true)].map(|(s, c)| host.mkey(s, c));
        let dek = host.dek(&XTS_KEY);
        host.device.set_copies(host.q[A].qpn, true).unwrap();
        Self { host, plain, signed, crypto, both, at, key, dek, context }
    }

    fn list(&self, bytes: u32) -> Config {
        Config::new(&self.plain).access(LW | RR).list(&[(self.at, bytes, self.key)])
    }

    fn streams(&self) -> Config {
        let (at, key) = (self.at, self.key);
        Config::new(&self.plain).access(LW | RR).strided(2, &[(at, 8, 8, key), (at + 64, 8, 8, key)])
    }

    fn dif(&self, mem: Sig, wire: Sig) -> Config {
        let base = Config::new(&self.signed).access(LW | RR).list(&[(self.at, 1040, self.key)]);
        base.signature(mem, wire, 0xff)
    }

    fn encrypted(&self, order: u8) -> Config {
        let base = Config::new(&self.crypto).access(LW | RR).list(&[(self.at, 1024, self.key)]);
        base.crypto(order, 1, [0; 16], self.dek)
    }

    fn transaction(&self) -> Config {
        self.transaction_of(&self.signed)
    }

    fn transaction_of(&self, mkey: &Mkey) -> Config {
        let bits = TransactionBits::new().with_wire_init(true).with_wire_check_gen(true);
        let word = BfsPsv::new().with_psv(mkey.wire_psv).with_bfs(0x40).into_bits();
        let base = Config::new(mkey).access(LW | RR).list(&[(self.at, 1024, self.key)]);
        base.transaction(bits, word, 0, 1024)
    }

    /// Posts a request, which `fix` changes in the ring, and its SET_PSVs. Then transfers through its mkey.
    /// Returns the bytes of the request and the verdict of the device.
    fn run(
        &mut self,
        (wqe, used): Try,
        psvs: &[(u32, u64)],
        fix: impl Fn(&mut Vec<u8>),
    ) -> (Vec<u8>, Verdict) {
        let counter = self.host.post(A, wqe);
        let slot = self.host.q[A].attributes.sq + u64::from(counter) * 64;
        let blocks = usize::from(self.host.q[A].producer - counter);
        let mut bytes = self.host.get(slot, blocks * 64);
        fix(&mut bytes);
        self.host.put(slot, &bytes);
        bytes.truncate((usize::from(bytes[7] & 0x3f) * 16).max(16));
        for (psv, transient) in psvs {
            self.host.post(A, set_psv(*psv, *transient));
        }
        self.host.ring(A);
        let ready = |host: &Host| host.device.query(host.q[A].qpn).unwrap().state == QpState::ReadyToSend;
        if !ready(&self.host) {
            return (bytes, Refuses);
        }
        while self.host.poll_send(A).is_some() {}
        if let Some((key, length)) = used {
            self.host.send_from(key, 0, length);
            if !ready(&self.host) {
                return (bytes, RefusesUse);
            }
        }
        (bytes, Executes)
    }
}

fn names(found: &[Problem]) -> Vec<&'static str> {
    found.iter().map(Problem::name).collect()
}

/// Returns the number of forms of requests that a row has.
fn forms(name: &str) -> usize {
    match name {
        "UnknownCode" => 3,
        "Truncated" | "SizeMismatch" | "UnknownOpcode" | "StridedOpcode" | "NotRepeated" | "JobSize"
        | "InlineNotAllowed" | "EntryEmpty" | "ReservedNotZero" | "UnexpectedOpmod" | "AnotherObject"
        | "SegmentIs2Gib" => 2,
        _ => 1,
    }
}

/// Tries a row in one of its forms. `inspect` must find the row's problem in the request. Returns the
/// expected verdict, and the verdict of the device.
fn judged(name: &'static str, form: usize) -> Option<(Verdict, Verdict)> {
    let single = DeviceContext { engine: Some(Engine::SingleBlock), ..DeviceContext::UNKNOWN };
    let old =
        SignatureCapabilities { block_4048: false, crc32c: false, crc64_xp10: false, digest_with_xts: false };
    let (profile, context) = match name {
        "SingleUnitEngine" => {
            (DeviceProfile { xts: XtsEngine::SingleBlock, ..DeviceProfile::default() }, single)
        }
        "CapabilityMissing" => (
            DeviceProfile { crc32c: false, ..DeviceProfile::default() },
            DeviceContext { capabilities: Some(old), ..DeviceContext::UNKNOWN },
        ),
        "SegmentIs2Gib" if form == 1 => {
            (DeviceProfile { max_message_bytes: 1 << 30, ..DeviceProfile::default() }, DeviceContext::UNKNOWN)
        }
        _ => (DeviceProfile::default(), DeviceContext::UNKNOWN),
    };
    let mut bench = Bench::new(profile, context);
    let b = &bench;
    let (at, key) = (b.at, b.key);
    let t10 = Sig::t10(1, 2);
    let crc = Sig::crc(0x40);
    /// A change of the bytes of a request in the ring.
    type Fix = Box<dyn Fn(&mut Vec<u8>)>;
    let set = |at: usize, new: &[u8]| -> Fix {
        let new = new.to_vec();
        Box::new(move |bytes: &mut Vec<u8>| bytes[at..at + new.len()].copy_from_slice(&new))
    };
    let same = || -> Fix { Box::new(|_| {}) };
    let plain = Some((b.plain.key, 16));
    let block = Some((b.signed.key, 520));
    let data = Some((b.signed.key, 512));
    let both = |length: u32| Some((b.both.key, length));
    let crc_block = Some((b.signed.key, 516));
    let unit = Some((b.crypto.key, 512));
    let send = || send(Opcode::SEND, 0, &[segment(at, 8, key)]);
    let write = || rdma(Opcode::RDMA_WRITE, 0, at, key, &[segment(at, 8, key)]);
    let atomic = |bytes: u32| {
        let atomic = Wqe::new(Opcode::ATOMIC_FA, 0).with(&remote(at, key)).with(&[0_u8; 16]);
        atomic.with(&segment(at, bytes, key))
    };
    let copy = |bytes: u32| {
        let copy = Wqe::new(Opcode::MMO, 0).with(&[0_u8; 16]).with(&segment(at, 64, key));
        copy.with(&segment(at + 128, bytes, key))
    };
    let alone = |wqe: Wqe, fix: Fix, verdict| (wqe, vec![], None, fix, verdict);
    let of = |config: Config, used, fix: Fix, verdict| {
        let psvs = config.psvs.clone();
        (config.umr(), psvs, used, fix, verdict)
    };
    let executes = |config: Config, used| of(config, used, same(), Executes);
    let changed = |mut config: Config, used, change: &dyn Fn(&mut Config)| {
        change(&mut config);
        executes(config, used)
    };
    let list = |fix: Fix, verdict| of(b.list(64), plain, fix, verdict);
    let streams = |fix: Fix, verdict| of(b.streams(), plain, fix, verdict);
    let dif = |fix: Fix, verdict| of(b.dif(t10, Sig::None), data, fix, verdict);
    let wire = |fix: Fix, verdict| of(b.dif(Sig::None, t10), block, fix, verdict);
    let xts = |fix: Fix, verdict| of(b.encrypted(2), unit, fix, verdict);
    let digest = |fix: Fix, verdict| of(b.transaction(), Some((b.signed.key, 1028)), fix, verdict);
    let signed = |bytes: u32| Config::new(&b.signed).access(LW | RR).list(&[(at, bytes, key)]);
    let with_both = |wire: Sig, order, unit| {
        let base = Config::new(&b.both).access(LW | RR).list(&[(at, 1040, key)]);
        base.signature(t10, wire, 0xff).crypto(order, unit, [0; 16], b.dek)
    };
    let none = |why: &'static str| Some((NoRequest(why), NoRequest(why)));
    // The entries begin at offset 128. The only entry is padded to a block of 4 entries of 16 bytes, so the
    // BSF stands at offset 192.
    const BSF: usize = 192;
    let (wqe, psvs, used, fix, verdict) = match name {
        "Truncated" if form == 0 => alone(send(), set(7, &[8]), Refuses),
        "Truncated" => list(set(7, &[0x30]), Refuses),
        "SizeZero" => alone(send(), set(7, &[0]), Refuses),
        "SizeOverLimit" => alone(send(), set(7, &[0x42]), Refuses),
        "SizeMismatch" if form == 0 => list(set(7, &[9]), Refuses),
        "SizeMismatch" => alone(set_psv(b.signed.wire_psv, 0), set(7, &[3]), Refuses),
        "UnknownOpcode" => alone(Wqe::new(Opcode([0x55, 0x7e][form]), 0), same(), Refuses),
        "UnexpectedOpmod" if form == 0 => alone(send(), set(0, &[1]), Executes),
        "UnexpectedOpmod" => alone(write(), set(0, &[0xff]), Executes),
        "AnotherObject" if form == 0 => list(set(0, &[1]), Refuses),
        "AnotherObject" => alone(set_psv(b.signed.wire_psv, 0), set(0, &[2]), Refuses),
        "WqeSignature" => alone(send(), set(8, &[1]), Executes),
        "UnknownCode" if form == 0 => dif(set(BSF + 3, &[7]), RefusesUse),
        "UnknownCode" if form == 1 => xts(set(BSF + 1, &[9]), RefusesUse),
        "UnknownCode" => wire(set(BSF + 8, &[0x60]), RefusesUse),
        "UnknownBits" => list(set(UMR + 8, &[0x80]), Executes),
        "ReservedNotZero" if form == 0 => list(set(CONTEXT + 3, &[1]), Executes),
        "ReservedNotZero" => alone(write(), set(28, &[1]), Executes),
        "ByPointer" | "PointerTooShort" => {
            let (list, own) = bench_list(&mut bench);
            bench.key = own;
            let length = if name == "ByPointer" { 64 } else { 1 << 60 };
            (pointer_to(&bench, list, length), vec![], plain, same(), Executes)
        }
        "PointerAlignment" => alone(pointer_to(b, at + 1024, 64), same(), Refuses),
        "ReplacedInBlock" => list(set(UMR, &[0x90, 0, 0, 0, 0, 4, 0, 2]), Refuses),
        "EntryBehindAll" => list(
            Box::new(|bytes| {
                bytes[UMR] = 0x90;
                bytes[UMR + 16..UMR + 20].copy_from_slice(&0x1_0000_u32.to_be_bytes());
            }),
            Refuses,
        ),
        "OffsetWithoutFlag" => list(set(UMR + 16, &[0, 0, 0, 1]), Refuses),
        "UmrReserved" => list(set(UMR + 1, &[1]), Refuses),
        "CheckFree" => list(set(UMR, &[0xa0]), Executes),
        // The request ends with its entries, without their padding.
        "EntriesNotPadded" => list(
            Box::new(|bytes| {
                bytes[7] = 9;
                bytes[UMR + 5] = 1;
            }),
            Executes,
        ),
        "FieldWithoutMask" => list(set(CONTEXT + 16, &[0, 0, 0, 0, 0, 0, 0, 1]), Executes),
        "MaskMissing" => changed(b.list(64), plain, &|config| config.mask &= !(1 << 13)),
        "UnusualMask" => list(set(UMR + 13, &[0xbc]), Executes),
        "PartialAccessMask" => changed(b.list(64), plain, &|config| config.mask &= !(1 << 20)),
        "EntriesWithoutLength" => changed(b.list(64), None, &|config| config.mask &= !1),
        "LengthWithoutEntries" => changed(b.list(64), None, &|config| config.entries.clear()),
        "EmptyLayout" => changed(b.list(0), None, &|config| config.entries.clear()),
        "BsfEnableKept" => changed(b.dif(t10, Sig::None), data, &|config| config.mask &= !(1 << 12)),
        "BsfNotEnabled" => {
            let mut config = b.dif(t10, Sig::None);
            let flags = config.context.flags_pd_word().with_bsf_enable(false);
            config.context.flags_pd = flags.into_bits().into();
            executes(config, data)
        }
        "EnabledWithoutBsf" => changed(b.dif(t10, Sig::None), None, &|config| config.signature = None),
        "TagChange" => {
            let mut config = b.list(64);
            config.context.qpn_mkey = (0x00ff_ffff_u32 << 8 | 0x5a).into();
            let key = Key::from_raw(b.plain.key.get() | 0x5a);
            executes(config, Some((key, 16)))
        }
        "BoundToQueuePair" | "BoundWithSignature" => {
            let mut config = if name == "BoundToQueuePair" { b.list(64) } else { b.dif(t10, Sig::None) };
            config.mask |= 1 << 14;
            let tag = config.mkey.key.tag();
            config.context.qpn_mkey = (b.host.q[A].qpn << 8 | u32::from(tag)).into();
            let length = if name == "BoundToQueuePair" { 16 } else { 512 };
            let used = Some((config.mkey.key, length));
            executes(config, used)
        }
        "FreesAndConfigures" => changed(b.list(64), None, &|config| config.context.free = 0x40),
        "NonZeroStart" => changed(b.list(64), None, &|config| {
            config.mask |= 1 << 6;
            config.context.start_addr = 4096.into();
        }),
        "EntryEmpty" if form == 1 => {
            let config = Config::new(&b.plain).access(LW | RR);
            let entries = [(at, 32, key), (at, 0, key), (at + 64, 32, key)];
            executes(config.list(&entries), plain)
        }
        "EntryEmpty" => list(
            Box::new(|bytes| {
                bytes.copy_within(ENTRIES..ENTRIES + 16, ENTRIES + 16);
                bytes[ENTRIES..ENTRIES + 4].fill(0);
            }),
            Executes,
        ),
        "EntryTooLong" => list(set(ENTRIES, &[0x80, 0, 0, 1]), Executes),
        "ListTooShort" => list(set(CONTEXT + 31, &[65]), Executes),
        "ListTooLong" => list(set(CONTEXT + 31, &[63]), Executes),
        // With a wrong code, the device reads the interleaved layout's header as the first entry of a list,
        // and the code as the entry's key.
        "StridedOpcode" if form == 0 => of(b.streams(), None, set(ENTRIES + 6, &[5]), Executes),
        "StridedOpcode" => {
            // A key exists whose value equals the wrong code, so the code is valid as the key of an entry.
            // The key's space begins at the address that the two counts of the header form.
            bench.host.device.set_numbers(Numbered::Mkey, 5, 5).unwrap();
            let attributes = MkeyAttributes { free: false, ..MkeyAttributes::new(bench.host.pd, 4) };
            let space = MkeySpace { start: 2 << 32 | 2, length: 64, entries: vec![klm(at, 64, key)] };
            let made = bench.host.device.create_mkey_over(attributes, space).unwrap();
            assert_eq!(made.get(), 0x500);
            bench.host.device.set_numbers(Numbered::Mkey, 0x400, 0x4ff).unwrap();
            of(bench.streams(), plain, set(ENTRIES + 6, &[5]), Executes)
        }
        "StridedCount" => streams(set(ENTRIES + 15, &[4]), Refuses),
        "StridedSpare" => {
            let entries = [(at, 8, 8, key); 4];
            let config = Config::new(&b.plain).access(LW | RR).strided(2, &entries);
            of(config, plain, set(ENTRIES, &[0, 0, 0, 24, 0, 0, 4, 0, 0, 0, 0, 2, 0, 0, 0, 3]), Executes)
        }
        "StridedCycle" => streams(set(ENTRIES + 3, &[17]), Executes),
        "StridedLength" => streams(set(CONTEXT + 31, &[33]), Executes),
        "StrideTooSmall" => streams(set(ENTRIES + 16, &[0, 4]), Executes),
        "StridedEntryEmpty" => streams(
            Box::new(|bytes| {
                bytes[ENTRIES + 3] = 8;
                bytes[ENTRIES + 34..ENTRIES + 36].fill(0);
                bytes[CONTEXT + 31] = 16;
            }),
            Executes,
        ),
        "RepeatZero" => {
            let mut config = b.streams();
            config.context.len = 0.into();
            of(config, None, set(ENTRIES + 8, &[0; 4]), Executes)
        }
        "PaddingNotZero" => streams(set(ENTRIES + 48, &[1]), Executes),
        "LengthOver32Bits" => dif(set(CONTEXT + 27, &[1]), Refuses),
        "BsfSizeCode" => dif(set(BSF, &[0xc0]), Refuses),
        // The first BSF gets the code of a crypto BSF, so that the request has two crypto BSFs.
        "BsfOrder" => of(with_both(Sig::None, 1, 2), None, set(BSF, &[0xc1]), Refuses),
        "RawDataSize" => dif(set(BSF + 4, &[0, 0, 0, 9]), Executes),
        "UnusedDomain" => dif(set(BSF + 11, &[1]), Executes),
        "CheckMaskIrrelevant" => executes(signed(1032).signature(Sig::None, crc, 0xf1), crc_block),
        "CopyMaskIrrelevant" => executes(signed(1032).signature_copy(crc, crc, 0xf0, Some(0x0f)), crc_block),
        "CopyMaskStructure" => dif(set(BSF, &[0x90, 0xff, 0xff, 0]), RefusesUse),
        "AlikeButNotCopied" => executes(b.dif(t10, t10), block),
        "NotRepeated" if form == 0 => of(b.dif(Sig::None, crc), crc_block, set(BSF + 8, &[0x41]), Executes),
        "NotRepeated" => wire(set(BSF + 41, &[0]), Executes),
        "InlineMissing" => dif(set(BSF + 48, &[0]), RefusesUse),
        "InlineUnwanted" => of(b.dif(Sig::None, crc), crc_block, set(BSF + 32, &[0xc0]), Executes),
        "GuardType" => wire(set(BSF + 40, &[0]), RefusesUse),
        "AppTagMask" => wire(set(BSF + 46, &[0]), Executes),
        "BothEscapes" => wire(set(BSF + 45, &[0x43]), Executes),
        "CapabilityMissing" => of(b.dif(Sig::None, crc), crc_block, same(), RefusesUse),
        "PartialBlock" => executes(signed(1000).signature(t10, Sig::None, 0xff), data),
        "PartialWireBlock" => executes(signed(1000).signature(Sig::None, t10, 0xff), block),
        "TransactionEmpty" => {
            of(b.transaction(), Some((b.signed.key, 1024)), set(BSF + 16, &[0; 12]), Executes)
        }
        "TransactionInBothDomains" => digest(set(BSF + 28, &[0x40]), Executes),
        "TransactionBits" => digest(set(BSF + 16, &[0x32]), Executes),
        "TransactionCheckMask" => digest(set(BSF + 1, &[0xf0]), Executes),
        "TransactionSize" => digest(set(BSF + 4, &[0, 0, 4, 1]), Executes),
        "TransactionWithBlocks" => digest(
            Box::new(|bytes| {
                bytes[BSF + 2] = 1;
                bytes[BSF + 8] = 0x42;
            }),
            Executes,
        ),
        "TransactionOrder" => executes(b.transaction_of(&b.both).crypto(3, 1, [0; 16], b.dek), both(1028)),
        "BothOutsideCipher" => of(with_both(t10, 2, 1), both(520), same(), RefusesUse),
        "RowHole" => executes(with_both(Sig::None, 2, 1), both(512)),
        "DekTooLarge" => xts(set(BSF + 32, &[1]), RefusesUse),
        "KeytagGiven" => xts(set(BSF + 40, &[1]), Executes),
        "UnitNotBlock" => executes(with_both(Sig::None, 1, 1), both(1024)),
        "SingleUnitEngine" => xts(same(), RefusesUse),
        // The rule for job sizes applies to each transfer: a transfer of a part of the mkey may satisfy the
        // rule.
        "JobSize" => {
            let base = Config::new(&b.crypto).access(LW | RR).list(&[(at, 1025, key)]);
            let config = base.crypto(2, 1, [0; 16], b.dek);
            of(config, Some((b.crypto.key, [1024, 1025][form])), same(), [Executes, RefusesUse][form])
        }
        "TweakCarry" => xts(set(BSF + 24, &[0xff; 8]), Executes),
        "PsvTooLarge" => alone(set_psv(b.signed.wire_psv, 0), set(16, &[1]), Refuses),
        "PsvSyndrome" => alone(set_psv(b.signed.wire_psv, 0), set(21, &[1]), Executes),
        "IndexOutOfOrder" => return Some(bench.judge_second(name, |bytes| bytes[2] += 1)),
        "OtherLap" => return Some(bench.judge_second(name, |bytes| bytes[2] += 2)),
        "OtherQueuePair" => return Some(bench.judge_second(name, |bytes| bytes[6] ^= 1)),
        "CutOff" | "NeverWritten" => return none("found in bytes of a ring, which are copied"),
        "QueueKindMissing" => return none("the kind of queue is not known"),
        // The request is an atomic, which uses 8 bytes of the segment.
        "SegmentIs2Gib" if form == 0 => alone(atomic(8), set(48, &[0; 4]), Executes),
        // The device compares the length with the longest message before it checks the bounds of the region.
        "SegmentIs2Gib" => alone(send(), set(16, &[0; 4]), Refuses),
        "InlineOverrun" => {
            let header = InlineHeader { byte_count: (InlineHeader::INLINE | 12).into() };
            let wqe = Wqe::new(Opcode::SEND, 0).with(header.as_bytes()).with(&[1_u8; 12][..]);
            alone(wqe, set(19, &[13]), Refuses)
        }
        "InlineNotAllowed" if form == 1 => {
            alone(copy(64), Box::new(|bytes| (bytes[0], bytes[32]) = (1, 0x80)), Refuses)
        }
        "InlineNotAllowed" => {
            alone(rdma(Opcode::RDMA_READ, 0, at, key, &[segment(at, 8, key)]), set(32, &[0x80]), Refuses)
        }
        "AtomicOperand" => alone(atomic(16), same(), Executes),
        "MemcpyLengths" => alone(copy(63), set(0, &[1]), Executes),
        "DataInNop" => alone(Wqe::new(Opcode::NOP, 0).with(&[1_u8; 16][..]), same(), Executes),
        "NopFlags" => alone(Wqe::new(Opcode::NOP, 0), set(11, &[0x19]), Executes),
        "UnknownCqeOpcode" | "NotWritten" | "CqeInlineData" | "CqeInlineHalf" | "CqeCompressed"
        | "UnknownSyndrome" | "SignatureSyndrome" | "SignatureType" | "SignatureDomain" => {
            return none("a completion is not executed");
        }
        _ => return None,
    };
    let (bytes, done) = bench.run((wqe, used), &psvs, fix);
    Some(bench.compare(name, &bytes, done, verdict))
}

/// Stores a list of one entry at an address that a UMR may point to. Returns the address, and the key of this
/// memory.
fn bench_list(bench: &mut Bench) -> (u64, Key) {
    let (at, key) = bench.host.region(8192, Access::ALL);
    let list = at.next_multiple_of(UmrControlSegment::POINTER_ALIGNMENT);
    bench.host.put(list, segment(list, 64, key).as_bytes());
    (list, key)
}

/// Returns a UMR of `length` bytes whose list is at this address.
fn pointer_to(bench: &Bench, list: u64, length: u64) -> Wqe {
    let mut config = bench.list(64);
    config.context.len = length.into();
    let control =
        UmrControlSegment { klm_octowords: 4.into(), mkey_mask: config.mask.into(), ..Default::default() };
    let wqe = Wqe::new(Opcode::UMR, bench.plain.key.get()).silent().with(&control).with(&config.context);
    wqe.with(&segment(list, 0, bench.key))
}

impl Bench {
    /// Posts two requests, of which the second is changed. `inspect` reads the ring with both: it finds the
    /// difference, and calls no request refused.
    fn judge_second(&mut self, name: &'static str, change: impl Fn(&mut Vec<u8>)) -> (Verdict, Verdict) {
        let write = rdma(Opcode::RDMA_WRITE, 0, self.at, self.key, &[segment(self.at, 8, self.key)]);
        let (mut ring, first) = self.run((write.clone(), None), &[], |_| {});
        let (second, done) = self.run((write, None), &[], change);
        assert_eq!(first, Executes);
        ring.resize(64, 0);
        ring.extend(second);
        ring.resize(128, 0);
        let mut found = Vec::new();
        for (_, request) in Requests::new(&ring) {
            request.findings(&self.context, |finding| found.push(finding.problem));
            assert_ne!(request.worst(&self.context), Some(Severity::Refused), "{name}");
        }
        assert!(names(&found).contains(&name), "{:?}", names(&found));
        (done, Refuses)
    }

    /// Compares the findings of `inspect` about a request with the device's verdict.
    fn compare(
        &self,
        name: &'static str,
        bytes: &[u8],
        done: Verdict,
        expected: Verdict,
    ) -> (Verdict, Verdict) {
        let mut found = Vec::new();
        let request = WorkRequest::parse(bytes).unwrap();
        request.findings(&self.context, |finding| found.push(finding.problem));
        let tells = names(&found).contains(&name);
        let refused = request.worst(&self.context) == Some(Severity::Refused);
        let untold = UNTOLD.iter().any(|(row, _)| *row == name);
        let alike = if untold { !refused } else { refused == matches!(expected, Refuses | RefusesUse) };
        if !alike || !tells {
            println!("{name}: the device {done:?}, expected {expected:?}, inspect finds {:?}", names(&found));
            return (done, NoRequest("inspect says otherwise"));
        }
        (done, expected)
    }
}

#[test]
fn each_problem_has_a_verdict_of_the_device() {
    let mut wrong = Vec::new();
    for name in Problem::NAMES {
        for form in 0..forms(name) {
            match judged(name, form) {
                None => wrong.push(format!("{name}: no verdict; add one")),
                Some((done, expected)) if done != expected => {
                    wrong.push(format!("{name}, form {form}: the device {done:?}, expected {expected:?}"));
                }
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_row_without_a_verdict_of_its_own_exists() {
    for (name, fact) in UNTOLD {
        assert!(Problem::NAMES.contains(name) && !fact.is_empty(), "{name}");
    }
}
