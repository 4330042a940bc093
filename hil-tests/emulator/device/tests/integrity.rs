//! Tests of integrity regions as Linux's mlx5_ib posts them (`wr.c`: `handle_reg_mr_integrity`,
//! `set_pi_umr_wr`, `mlx5_set_bsf`, `set_linv_wr`). The requests of mlx5_ib differ from the requests that
//! rdma-core posts for the same purpose (DEVICE.md, "Integrity regions of Linux").

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::bsf::{BfsPsv, InlineDif, SignatureBsf};
use mlx5_mkey::wire::cqe::{SignatureErrorCqe, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::mkey_context::MkeyContext;
use mlx5_mkey::wire::strided::{StridedEntry, StridedHeader};
use mlx5_mkey::wire::umr::UmrControlSegment;
use mlx5_softdev::*;

const BLOCK: u32 = 512;
const BLOCKS: usize = 4;
const DATA: u32 = BLOCK * BLOCKS as u32;
const INFORMATION: u32 = 8 * BLOCKS as u32;
const REFERENCE: u32 = 100;

/// Flags of a UMR.
const INLINE: u8 = 1 << 7;
const FAIL_IF_USED: u8 = 1 << 5;

/// `sig_mkey_mask`: LEN, PAGE_SIZE, START_ADDR, EN_SIGERR, EN_RINVAL, BSF_EN, KEY, LR, LW, RR, RW,
/// SMALL_FENCE, FREE.
const SIG_MKEY_MASK: u64 = 0x209e_3343;
/// `frwr_mkey_mask`: the same without EN_SIGERR and BSF_EN.
const FRWR_MKEY_MASK: u64 = 0x209e_2143;

/// `get_umr_flags`: all rights but atomics, `umr_en`, and access mode KLM.
const FLAGS: u8 = 0x80 | 0x04 | LW | RR | RW | 2;

/// The part of the protection information that a region compares (`enum ib_sig_check`).
const GUARD: u8 = 0xc0;
const REFTAG: u8 = 0x0f;
const APPTAG: u8 = 0x30;

/// The layout of a region over data and protection information.
#[derive(Clone, Copy, Debug)]
enum Entries {
    /// Data alone, at this address of a key.
    Data(u64, Key),
    /// Blocks with their protection information behind them, at this address of a key.
    Together(u64, Key),
    /// Data and protection information at these addresses of a key.
    Apart(u64, u64, Key),
}

/// An integrity region that a kernel registers by UMRs.
struct Region {
    mkey: Mkey,
    count: u32,
}

impl Region {
    fn new(host: &mut Host) -> Self {
        // `bsf_octword_size` 4, and room for 4 entries.
        Self { mkey: host.mkey(true, false), count: 1 }
    }

    /// Increases the tag of the region's key, as `ib_inc_rkey` does, and returns the new key.
    fn next_key(&mut self) -> Key {
        let key = self.mkey.key.get();
        self.mkey.key = Key::from_raw(key & !0xff | (key + 1) & 0xff);
        self.mkey.key
    }

    /// Returns the UMR of a registration under the region's key. `memory` and `wire` say which of the two
    /// domains has T10-DIF.
    fn umr(&self, entries: Entries, memory: bool, wire: bool, check: u8) -> Wqe {
        let entry = |address: u64, bytes: u32, key: Key| -> [u8; 16] {
            zerocopy::transmute!(klm(address, bytes, key))
        };
        let piece = |address: u64, bytes: u16, key: Key| -> [u8; 16] {
            let entry = StridedEntry {
                stride: bytes.into(),
                byte_count: bytes.into(),
                mkey: key.get().into(),
                address: address.into(),
            };
            zerocopy::transmute!(entry)
        };
        let (length, list) = match entries {
            Entries::Data(at, key) => (DATA, vec![entry(at, DATA, key)]),
            Entries::Together(at, key) => (DATA + INFORMATION, vec![entry(at, DATA + INFORMATION, key)]),
            Entries::Apart(data, information, key) => {
                let header = StridedHeader {
                    bytes_per_cycle: (BLOCK + 8).into(),
                    op: StridedHeader::OPCODE.into(),
                    repeat_count: (BLOCKS as u32).into(),
                    reserved: 0.into(),
                    num_entries: 2.into(),
                };
                let list =
                    vec![zerocopy::transmute!(header), piece(data, 512, key), piece(information, 8, key)];
                (DATA + INFORMATION, list)
            }
        };
        let control = UmrControlSegment {
            flags: INLINE | FAIL_IF_USED,
            klm_octowords: 4.into(),
            bsf_octowords: 4.into(),
            mkey_mask: SIG_MKEY_MASK.into(),
            ..Default::default()
        };
        let context = MkeyContext {
            access: FLAGS,
            qpn_mkey: (0xffff_ff00 | self.mkey.key.get() & 0xff).into(),
            // Remote invalidation, error count, BSF enable.
            flags_pd: (1 << 24 | (self.count & 1) << 26 | 1 << 30).into(),
            len: u64::from(length).into(),
            bsf_octowords: 4.into(),
            translations_octowords: 4.into(),
            ..MkeyContext::default()
        };
        let inline = InlineDif {
            vld_refresh: 0xc000.into(),
            ref_tag: REFERENCE.into(),
            sig_type: InlineDif::SIG_CRC,
            rp_inv_seed: 0x80,
            // The reference tag grows by one for each block. An application tag of ffff switches the checks
            // of its block off.
            dif_flags: 0x41,
            // No bit of the application tag is compared.
            app_bitmask_check: 0.into(),
            ..InlineDif::default()
        };
        let psv = |psv: u32| BfsPsv::new().with_psv(psv).into_bits().into();
        let bsf = SignatureBsf {
            bsf_size_sbs: 0x80 | if memory && wire { 0x10 } else { 0 },
            check_byte_mask: check,
            // If both domains have T10-DIF, the field has the copy mask instead of a block size. The mask
            // selects all bytes, because memory and wire have the same values.
            wire: if memory && wire { 0xff } else { u8::from(wire) },
            memory: u8::from(memory),
            // The bytes of the first entry: the data, with the protection information if both are stored
            // together.
            raw_data_size: match entries {
                Entries::Together(..) => DATA + INFORMATION,
                _ => DATA,
            }
            .into(),
            memory_bfs_psv: if memory { psv(self.mkey.memory_psv) } else { 0.into() },
            wire_bfs_psv: if wire { psv(self.mkey.wire_psv) } else { 0.into() },
            memory_inline: if memory { inline } else { InlineDif::default() },
            wire_inline: if wire { inline } else { InlineDif::default() },
            ..Default::default()
        };
        let wqe = Wqe::new(Opcode::UMR, self.mkey.key.get()).silent().with(&control).with(&context);
        let list = list.iter().chain([&[0; 16]; 4]).take(4);
        list.fold(wqe, |wqe, entry| wqe.with(entry)).with(&bsf)
    }

    /// Registers the region under the next tag. Linux sets both PSVs, also that of a domain without T10-DIF.
    fn register(&mut self, host: &mut Host, entries: Entries, memory: bool, wire: bool, check: u8) {
        self.next_key();
        host.post(A, self.umr(entries, memory, wire, check));
        for (psv, is_used) in [(self.mkey.memory_psv, memory), (self.mkey.wire_psv, wire)] {
            host.post(A, set_psv(psv, if is_used { REFERENCE.into() } else { 0 }));
        }
        host.ring(A);
        assert_eq!(host.device.query(host.q[A].qpn).unwrap().state, QpState::ReadyToSend);
    }

    /// Invalidates the region as `set_linv_wr` does: only the free bit is in the mask, so the tag stays.
    fn invalidate(&self, host: &mut Host) {
        let control = UmrControlSegment { flags: INLINE, mkey_mask: (1 << 29).into(), ..Default::default() };
        let context = MkeyContext { free: 0x40, ..Default::default() };
        host.execute(A, Wqe::new(Opcode::UMR, self.mkey.key.get()).silent().with(&control).with(&context));
    }
}

/// Memory with data, and with the protection information of the data.
struct Source {
    data: Vec<u8>,
    together: Vec<u8>,
    information: Vec<u8>,
}

impl Source {
    fn new() -> Self {
        let data = pattern(DATA as usize, 7);
        let together = with_pi(&data, 0, REFERENCE);
        let information = together.chunks(520).flat_map(|block| block[512..].to_vec()).collect();
        Self { data, together, information }
    }

    /// Stores data and protection information apart in memory, behind one key, and returns their places.
    fn apart(&self, host: &mut Host) -> Entries {
        let (at, key) = host.filled(&[&self.data[..], &[0; 64], &self.information[..]].concat());
        Entries::Apart(at, at + u64::from(DATA) + 64, key)
    }
}

/// A kernel registers data and protection information directly, or through an inner key over a list. The UMR
/// of the inner key makes no checks. The wire has blocks and protection information, or blocks alone. A
/// region over data alone adds protection information to the wire: its transfers are longer than its length.
#[test]
fn a_region_of_linux_passes_strips_and_inserts() {
    let source = Source::new();
    for inner in [false, true] {
        for (memory, wire) in [(true, true), (true, false), (false, true)] {
            let mut host = Host::new();
            let mut region = Region::new(&mut host);
            let (at, key) = host.filled(&source.together);
            let entries = match (memory, inner) {
                (false, _) => {
                    let (at, key) = host.filled(&source.data);
                    Entries::Data(at, key)
                }
                (true, false) => source.apart(&mut host),
                (true, true) => {
                    let pages = source.apart(&mut host);
                    let Entries::Apart(data, information, plain) = pages else { unreachable!() };
                    let list = [(data, DATA, plain), (information, INFORMATION, plain)];
                    let key = inner_list(&mut host, &list);
                    Entries::Apart(0, DATA.into(), key)
                }
            };
            let expected = if wire { &source.together } else { &source.data };
            region.register(&mut host, entries, memory, wire, GUARD | REFTAG);
            let length = expected.len() as u32;
            let words = format!("memory {memory}, wire {wire}, list {inner}");
            assert_eq!(&host.read_from(region.mkey.key, 0, length), expected, "{words}");
            assert_eq!(&host.send_from(region.mkey.key, 0, length), expected, "{words}");
            assert_eq!(host.signature_errors(), [], "{words}");
            // Blocks and protection information in one piece of memory have a list of one entry.
            if memory {
                region.invalidate(&mut host);
                region.register(&mut host, Entries::Together(at, key), memory, wire, GUARD | REFTAG);
                assert_eq!(&host.read_from(region.mkey.key, 0, length), expected, "{words}");
                assert_eq!(host.signature_errors(), [], "{words}");
            }
        }
    }
}

/// Registers a list under another key, as `set_reg_wr` does: the UMR checks no free bit, and writes the size
/// of a page, which a list does not have.
fn inner_list(host: &mut Host, entries: &[(u64, u32, Key)]) -> Key {
    let mkey = host.mkey(false, false);
    let list = Config::new(&mkey).list(entries).entries;
    for _ in 0..2 {
        let control = UmrControlSegment {
            flags: INLINE,
            klm_octowords: 4.into(),
            mkey_mask: FRWR_MKEY_MASK.into(),
            ..Default::default()
        };
        let context = MkeyContext {
            access: FLAGS,
            qpn_mkey: (0xffff_ff00 | mkey.key.get() & 0xff).into(),
            flags_pd: (1 << 24).into(),
            len: u64::from(DATA + INFORMATION).into(),
            translations_octowords: 8.into(),
            ..MkeyContext::default()
        };
        let wqe = Wqe::new(Opcode::UMR, mkey.key.get()).silent().with(&control).with(&context);
        host.post(A, list.iter().chain([&[0; 16]; 4]).take(4).fold(wqe, |wqe, entry| wqe.with(entry)));
    }
    host.ring(A);
    mkey.key
}

/// Linux looks up the queue pair of every entry that it polls, and crashes if there is none. Linux also
/// compares whole keys: it takes an error with another key for a wrong guard at offset 0.
#[test]
fn a_signature_error_names_the_queue_pair_and_the_whole_key() {
    let source = Source::new();
    let mut host = Host::new();
    let mut region = Region::new(&mut host);
    let queues = [host.q[A].qpn, host.q[B].qpn];
    let mut wrong = Source::new();
    wrong.information[2 * 8 + 7] ^= 1;
    let entries = wrong.apart(&mut host);
    let fields = |error: &SignatureErrorCqe| {
        (error.qpn.get(), error.mkey.get(), error.syndrome.get(), error.offset.get())
    };
    let at = u64::from(3 * (BLOCK + 8) - 1);
    for (turn, as_responder) in [(1, false), (2, true), (3, false)] {
        region.register(&mut host, entries, true, true, GUARD | REFTAG);
        let key = region.mkey.key;
        assert_eq!(key.tag(), turn);
        let mut transfer = || {
            let length = DATA + INFORMATION;
            let wire = match as_responder {
                true => host.read_from(key, 0, length),
                false => host.send_from(key, 0, length),
            };
            assert_eq!(wire.len(), source.together.len());
            host.signature_errors()
        };
        // The key belongs to queue pair A, so the error names A in both roles (requester and responder).
        // Further errors are silent.
        let expected = (queues[A], key.get(), SignatureErrorCqe::SYNDROME_REF_TAG, at);
        assert_eq!(transfer().iter().map(fields).collect::<Vec<_>>(), [expected], "turn {turn}");
        assert_eq!(transfer(), []);
        region.invalidate(&mut host);
        // `sigerr_count` grows with each error that Linux has polled.
        region.count += 1;
    }
    // A region without the reference tag in its check mask reports nothing, and Linux's count stays.
    region.register(&mut host, entries, true, true, GUARD | APPTAG);
    assert_eq!(host.send_from(region.mkey.key, 0, DATA + INFORMATION), wrong_wire(&wrong));
    assert_eq!(host.signature_errors(), []);
    region.invalidate(&mut host);
    region.register(&mut host, entries, true, true, REFTAG);
    host.send_from(region.mkey.key, 0, DATA + INFORMATION);
    assert_eq!(host.signature_errors().len(), 1);
}

/// Returns the blocks with their protection information on the wire.
fn wrong_wire(source: &Source) -> Vec<u8> {
    let blocks = source.data.chunks(512).zip(source.information.chunks(8));
    blocks.flat_map(|(block, information)| [block, information].concat()).collect()
}

/// A registration of an integrity region fails while the region is in use (`MLX5_UMR_CHECK_NOT_FREE`), hence
/// Linux posts an invalidation first.
#[test]
fn a_region_in_use_is_not_registered_again() {
    let mut host = Host::new();
    let mut region = Region::new(&mut host);
    let entries = Source::new().apart(&mut host);
    region.register(&mut host, entries, true, true, GUARD);
    region.next_key();
    let seen = host.fails(A, region.umr(entries, true, true, GUARD));
    assert_eq!((seen.syndrome(), seen.why()), (Syndrome::MW_BIND, Refusal::UmrCheck));
}
