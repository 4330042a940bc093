//! Tests of requests as the drivers of DPDK and SPDK write them. The drivers run on hardware, so `inspect`
//! must call none of these requests suspicious.
//!
//! The bytes are assembled field by field, after reading `drivers/crypto/mlx5` of DPDK 22.11 and 38f72e50,
//! `lib/mlx5` and `module/accel/mlx5` of SPDK 3230130e, and `lib/mlx5` of NVIDIA's SPDK v24.01.4.

use super::std;
use super::std::string::{String, ToString};
use super::std::vec::Vec;
use super::*;

/// Keys of the mkeys that DPDK and SPDK configure, with tags 0 and 0x42.
const DPDK_KEY: u32 = 0x0000_1200;
const SPDK_KEY: u32 = 0x0000_1342;
const LKEY: u32 = 0x0056_7800;

const UMR: u8 = 0x25;
const WRITE: u8 = 0x08;
const READ: u8 = 0x10;

/// Flags of a control segment. `QUIET`: a completion only if the request itself fails, not if the device
/// flushes it. `SIGNALLED`: always a completion. `SMALL` and `STRONG`: fences.
const QUIET: u8 = 1 << 2;
const SIGNALLED: u8 = 2 << 2;
const SMALL: u8 = 1 << 5;
const STRONG: u8 = 3 << 5;

/// Bits of the mkey mask.
const LEN: u64 = 1;
const SIG_ERR: u64 = 1 << 9;
const FREE: u64 = 1 << 29;

pub(super) fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

pub(super) fn control(opcode: u8, octowords: u8, flags: u8, imm: u32) -> Vec<u8> {
    joined(&[&[0, 0, 7, opcode, 0, 0x01, 0x23, octowords, 0, 0, 0, flags], &imm.to_be_bytes()])
}

/// Returns a UMR control segment.
pub(super) fn umr_control(flags: u8, entries: u16, bsf: u16, mask: u64) -> Vec<u8> {
    joined(&[&[flags, 0, 0, 0], &entries.to_be_bytes(), &bsf.to_be_bytes(), &mask.to_be_bytes(), &[0; 32]])
}

/// Returns an mkey context with a length, and with the count of signature errors if `counted` is set.
pub(super) fn context(length: u64, counted: bool) -> Vec<u8> {
    joined(&[&[0; 12], &[u8::from(counted) << 2, 0, 0, 0], &[0; 8], &length.to_be_bytes(), &[0; 32]])
}

/// Returns an entry of a list, or a data segment: both have the same form.
pub(super) fn segment(length: u32, key: u32, address: u64) -> Vec<u8> {
    joined(&[&length.to_be_bytes(), &key.to_be_bytes(), &address.to_be_bytes()])
}

pub(super) fn crypto_bsf(size: u8, order: u8, raw: u32, unit: u8, tweak: [u8; 16], keytag: u64) -> Vec<u8> {
    joined(&[
        &[size << 6 | 1, order, 0, 0],
        &raw.to_be_bytes(),
        &[unit, 0, 0, 0, 0, 0, 0, 0],
        &tweak,
        &0x0000_0099_u32.to_be_bytes(),
        &[0; 4],
        &keytag.to_be_bytes(),
        &[0; 16],
    ])
}

/// Checks that no request is suspicious for any of the devices, and returns the requests in words.
fn in_words(requests: &[Vec<u8>], devices: &[DeviceContext]) -> Vec<String> {
    let shown = |bytes: &Vec<u8>| {
        let request = parse(bytes);
        assert_eq!(request.bytes().len(), bytes.len());
        exercise(bytes);
        for device in devices {
            let worst = request.worst(device);
            assert!(worst <= Some(Severity::Note), "{}", request.pretty(*device, Style::Plain));
        }
        request.summary(DeviceContext::UNKNOWN).to_string()
    };
    requests.iter().map(shown).collect()
}

const MULTI: DeviceContext = DeviceContext {
    engine: Some(XtsEngine::MultiBlock),
    capabilities: Some(SignatureCapabilities::ALL),
    ..DeviceContext::UNKNOWN
};
const SINGLE: DeviceContext = DeviceContext { engine: Some(XtsEngine::SingleBlock), ..MULTI };
const ANY: &[DeviceContext] = &[DeviceContext::UNKNOWN, MULTI];
const ALL: &[DeviceContext] = &[DeviceContext::UNKNOWN, MULTI, SINGLE];

/// The tweak of the first data unit.
const IV: [u8; 16] = *b"0123456789abcdef";

/// Returns DPDK's UMR with room for eight entries. Behind the used entries stand entries of earlier
/// operations.
fn dpdk_umr(order: u8, unit: u8, length: u32, entries: [&[u8]; 3]) -> Vec<u8> {
    joined(&[
        &control(UMR, 20, QUIET, DPDK_KEY),
        &umr_control(0x80, 8, 4, LEN),
        &context(u64::from(length), false),
        &entries.concat(),
        &[0; 5 * 16],
        &crypto_bsf(2, order, length, unit, IV, 0x0102_0304_0506_0708),
    ])
}

#[test]
fn dpdk_configures_the_length_and_leaves_old_entries() {
    let [one, old, older] = [
        segment(512, LKEY, 0x1_7d00_0000),
        segment(100, LKEY, 0x1_7d00_1200),
        segment(412, LKEY, 0x1_7d00_2200),
    ];
    let words = in_words(
        &[
            dpdk_umr(3, 1, 512, [&one, &old, &older]),
            dpdk_umr(2, 1, 512, [&one, &[0; 16], &[0; 16]]),
            // DPDK counts all remaining bytes of the request as translation entries.
            joined(&[
                &control(UMR, 28, QUIET, DPDK_KEY),
                &umr_control(0x80, 16, 4, LEN),
                &context(512, false),
                &one,
                &[0; 15 * 16],
                &crypto_bsf(2, 3, 512, 1, IV, 0),
            ]),
        ],
        ALL,
    );
    let text = "UMR configure mkey 0x000012/00: list of 1 entry and 2 unused, 512 bytes, \
                AES-XTS memory encrypted, signature outside, unit 512, DEK 0x99";
    assert!(words[0].starts_with(text), "{}", words[0]);
    assert!(words[1].contains("list of 1 entry, 512 bytes, AES-XTS wire encrypted"), "{}", words[1]);
}

#[test]
fn dpdk_encrypts_in_units_of_1_mib() {
    let whole = segment(1 << 20, LKEY, 0x1_7d00_0000);
    let bytes = dpdk_umr(3, 5, 1 << 20, [&whole, &[0; 16], &[0; 16]]);
    let words = in_words(core::slice::from_ref(&bytes), ALL);
    assert!(words[0].contains("unit 1048576, DEK 0x99, tweak"), "{}", words[0]);
    let page = parse(&bytes).to_string();
    assert!(page.contains("0x05 1 MiB") && page.contains("0x00100000 (1048576 bytes)"), "{page}");
}

#[test]
fn dpdk_writes_through_the_mkey_and_fills_up_with_a_nop() {
    let write = joined(&[
        &control(WRITE, 3, SMALL | SIGNALLED, 0),
        &[0; 8],
        &DPDK_KEY.to_be_bytes(),
        &[0; 4],
        &segment(512, LKEY, 0x1_7d00_0000),
    ]);
    // DPDK has written only opcode and size of the NOP. The other bytes are an old data segment, whose
    // address now stands at the place of the flags.
    let nop = joined(&[
        &[0, 0, 8, 0, 0, 0x01, 0x23, 8],
        &0x0000_0011_7d00_1200_u64.to_be_bytes(),
        &segment(100, LKEY, 0x1_7d00_2200),
        &[0; 6 * 16],
    ]);
    let words = in_words(&[write, nop], ALL);
    assert_eq!(
        words[0],
        "RDMA_WRITE: 512 bytes in 1 data segment, remote 0x0 key 0x00001200, small fence, signalled"
    );
    assert_eq!(words[1], "NOP");
}

/// DPDK's AES-GCM posts a UMR with entries by pointer, a request that lets another queue continue, and the
/// operation itself.
#[test]
fn dpdk_points_to_entries_in_memory() {
    // The mkey context repeats queue pair and tag, although the mask does not select them.
    let umr = joined(&[
        &control(UMR, 9, QUIET, DPDK_KEY),
        &umr_control(0, 8, 0, LEN),
        &patched(context(1100, false), 4, &[0xff; 3]),
        &segment(0, LKEY, 0x1_8000_0000),
    ]);
    let enable = joined(&[&control(0x17, 2, QUIET | SMALL, 0), &[0; 8], &[0, 0, 0, 9, 0, 0, 1, 0x24]]);
    let whole = segment(1100, DPDK_KEY, 0);
    let opaque = segment(0x0000_0099, LKEY, 0x1_8000_1000);
    let mmo = joined(&[&control(0x2f, 4, SIGNALLED, 0x3000_0000), &opaque, &whole, &whole]);
    let mmo = patched(mmo, 0, &[6]);
    let words = in_words(&[umr, enable, mmo], ALL);
    assert_eq!(
        words[0],
        "UMR configure mkey 0x000012/00: 8 octowords of an interleaved layout or a list at 0x180000000 key \
         0x00567800, 1100 bytes"
    );
    assert_eq!(words[1], "SEND_ENABLE, small fence");
}

/// Returns SPDK's UMR over `pieces` pieces of memory with `length` bytes together.
fn spdk_umr(pieces: u32, length: u32, mask: u64, counted: bool, bsfs: &[u8]) -> Vec<u8> {
    let room = pieces.next_multiple_of(4);
    let octowords = 8 + room as usize + bsfs.len() / 16;
    let piece = |number: u32| {
        let rest = length - length / pieces * (pieces - 1);
        let bytes = if number + 1 == pieces { rest } else { length / pieces };
        segment(bytes, LKEY, 0x2000_0000_0000 + u64::from(number) * 0x2000)
    };
    joined(&[
        &control(UMR, octowords as u8, QUIET, SPDK_KEY),
        &umr_control(0x80, room as u16, (bsfs.len() / 16) as u16, mask | LEN | FREE),
        &context(u64::from(length), counted),
        &(0..pieces).flat_map(piece).collect::<Vec<_>>(),
        &std::vec![0; (room - pieces) as usize * 16],
        bsfs,
    ])
}

fn spdk_read(flags: u8, offset: u64, segments: &[Vec<u8>]) -> Vec<u8> {
    joined(&[
        &control(READ, 2 + segments.len() as u8, flags, 0),
        &offset.to_be_bytes(),
        &SPDK_KEY.to_be_bytes(),
        &[0; 4],
        &segments.concat(),
    ])
}

/// Returns the LBA 0x1234 as a tweak, in little or in big endian.
fn lba(little: bool) -> [u8; 16] {
    if little { 0x1234_u128.to_le_bytes() } else { 0x1234_u128.to_be_bytes() }
}

#[test]
fn spdk_encrypts_without_enabling_the_bsf() {
    let mut requests = Vec::new();
    for (unit, bytes) in [(1, 512), (2, 520), (3, 4096), (4, 4160)] {
        for (pieces, blocks, order, little) in [(1, 1, 2, true), (3, 8, 2, false), (16, 64, 3, false)] {
            let length = bytes * blocks;
            let bsf = crypto_bsf(2, order, length, unit, lba(little), 0);
            requests.push(spdk_umr(pieces, length, 0, false, &bsf));
        }
    }
    let words = in_words(&requests, ANY);
    let text = "UMR configure mkey 0x000013/42: list of 3 entries, 4160 bytes, \
                AES-XTS wire encrypted, signature outside, unit 520, DEK 0x99, tweak";
    assert!(words[4].starts_with(text), "{}", words[4]);
    let in_place = spdk_read(SMALL | SIGNALLED, 0, &[segment(512, LKEY, 0x2000_0000_0000)]);
    let next = spdk_read(QUIET, 0, &[segment(512, LKEY, 0x2000_0000_0000)]);
    // SPDK uses a UMR without BSFs for a plain copy.
    let plain = spdk_umr(5, 70_000, 0, false, &[]);
    in_words(&[in_place, next, plain], ALL);
}

/// Returns a signature BSF with a CRC over a transaction. `bits` are the `TransactionBits`; `wire` and
/// `memory` hold format and PSV of a domain.
pub(super) fn transaction_bsf(size: u8, raw: u32, bits: u32, wire: u32, memory: u32) -> Vec<u8> {
    joined(&[
        &[size << 6, 0xff, 0, 0],
        &raw.to_be_bytes(),
        &[0; 8],
        &bits.to_be_bytes(),
        &[0; 4],
        &wire.to_be_bytes(),
        &memory.to_be_bytes(),
        &[0; 32],
    ])
}

/// Returns a UMR over 4096 bytes in two pieces, with a CRC over a transaction that begins and ends with this
/// mkey.
pub(super) fn spdk_transaction() -> Vec<u8> {
    spdk_umr(2, 4096, SIG_ERR, true, &transaction_bsf(1, 4096, 0x3000_0000, 0x4000_0022, 0))
}

/// Returns the UMR of [`spdk_transaction`] in the form of NVIDIA's SPDK, with AES-XTS. The data on the wire
/// is encrypted.
pub(super) fn spdk_encrypted_transaction() -> Vec<u8> {
    let crypto = crypto_bsf(3, 2, 4096, 1, lba(false), 0);
    spdk_umr(
        2,
        4096,
        SIG_ERR,
        true,
        &joined(&[&transaction_bsf(3, 4096, 0x3000_0000, 0x4000_0022, 0), &crypto]),
    )
}

#[test]
fn spdk_makes_a_crc_over_a_transaction() {
    let crc = |raw, bits, format| transaction_bsf(1, raw, bits, format, 0);
    let zeros = 0x4100_0022;
    let words = in_words(
        &[
            spdk_transaction(),
            spdk_umr(16, 4096, SIG_ERR, true, &crc(4096, 0x2000_0000, zeros)),
            spdk_umr(1, 777, SIG_ERR, true, &crc(777, 0, zeros)),
            spdk_umr(4, 100, SIG_ERR, false, &crc(100, 0x1000_0000, zeros)),
            // After an error, SPDK posts this SET_PSV.
            joined(&[
                &control(0x20, 2, QUIET, 0),
                &0x22_u32.to_be_bytes(),
                &[0; 4],
                &0x1234_5678_0000_0000_u64.to_be_bytes(),
            ]),
            // The first request reads the data with the CRC. The second reads the CRC alone, at the offset
            // after the data.
            spdk_read(STRONG | SIGNALLED, 0, &[segment(4096, LKEY, 0x5000), segment(4, LKEY, 0x9000)]),
            spdk_read(STRONG | SIGNALLED, 100, &[segment(4, LKEY, 0x9000)]),
        ],
        ALL,
    );
    assert_eq!(
        words[0],
        "UMR configure mkey 0x000013/42: list of 2 entries, 4096 bytes, CRC32C over a transaction on the \
         wire, seed ones, PSV 0x000022, begins and ends here, error count 1"
    );
    for (index, text) in [
        (1, "seed 0, PSV 0x000022, begins here, error count 1"),
        (2, "seed 0, PSV 0x000022, continues here"),
        (3, "seed 0, PSV 0x000022, ends here, error count 0"),
        (
            5,
            "RDMA_READ: 4100 bytes in 2 data segments, remote 0x0 key 0x00001342, strong ordering, signalled",
        ),
    ] {
        assert!(words[index].contains(text), "{}", words[index]);
    }
}

/// NVIDIA's SPDK combines AES-XTS with the CRC over a transaction (the data of one or more mkeys) in two
/// forms: ciphertext and CRC are on the wire, or both are in memory.
#[test]
fn a_transaction_with_aes_xts_has_two_forms() {
    let in_memory = transaction_bsf(3, 4096, 0x0300_0000, 0, 0x4000_0022);
    // The low half of the tweak is the number of the data unit, the high half is all ones.
    let tweak = (u128::from(u64::MAX) << 64 | 0x1234).to_be_bytes();
    let bsfs = |signature: &[u8], order| joined(&[signature, &crypto_bsf(3, order, 4096, 1, tweak, 0)]);
    let words = in_words(
        &[spdk_encrypted_transaction(), spdk_umr(2, 4100, SIG_ERR, true, &bsfs(&in_memory, 3))],
        ANY,
    );
    assert!(
        words[0].contains("over a transaction on the wire") && words[0].contains("AES-XTS wire"),
        "{}",
        words[0]
    );
    assert!(
        words[1].contains("over a transaction in memory") && words[1].contains("AES-XTS memory"),
        "{}",
        words[1]
    );
}

const KSM: DeviceContext = DeviceContext { entry_size: Some(SIZE), ..DeviceContext::UNKNOWN };
const SIZE: KsmEntrySize = match KsmEntrySize::new(4096) {
    Ok(size) => size,
    Err(_) => panic!(),
};

/// The kernel's network driver replaces entries of an mkey whose entries all have one length (`build_ksm_umr`
/// of Linux 6.12). An entry has key and address, but no length. The mkey context is empty, and the mask has
/// only the free bit.
#[test]
fn the_kernel_replaces_entries_of_one_length() {
    let update = |mask, length: u64| {
        joined(&[
            &control(UMR, 12, QUIET, 0x0000_1400),
            &umr_control(0x90, 4, 8, mask),
            &context(length, false),
            &[segment(0, LKEY, 0x1_7d00_0042), segment(0, LKEY, 0), segment(0, LKEY, 9), segment(0, LKEY, 7)]
                .concat(),
        ])
    };
    let words = in_words(&[update(FREE, 0)], &[KSM]);
    assert_eq!(words.len(), 1);
    let words = |bytes: &[u8]| parse(bytes).summary(KSM).to_string();
    assert_eq!(
        words(&update(FREE, 0)),
        "UMR configure mkey 0x000014/00: from entry 8 on, list of 4 entries of 4096 bytes each, length kept"
    );
    // If no entry has a length, the mkey must hold the length of all entries (KSM), even if the device
    // context does not name it.
    assert_eq!(parse(&update(FREE, 0)).worst(&DeviceContext::UNKNOWN), Some(Severity::Note));
    let one = patched(update(FREE, 0), 128, &64_u32.to_be_bytes());
    assert_eq!(parse(&one).worst(&DeviceContext::UNKNOWN), Some(Severity::Suspicious));
    for (length, problem) in [
        (12 * 4096, None),
        (12 * 4096 + 1, Some(Problem::ListTooShort { sum: 49152, length: 49153 })),
        (12 * 4096 - 1, Some(Problem::ListTooLong { sum: 49152, length: 49151 })),
    ] {
        let mut found = Vec::new();
        parse(&update(FREE | LEN, length)).findings(&KSM, |finding| found.push(finding.problem));
        found.retain(|problem| !matches!(problem, Problem::MaskMissing { .. }));
        assert_eq!(found.first().copied(), problem, "{length}");
    }
}

#[test]
fn a_length_that_no_list_in_memory_can_map_is_suspicious() {
    let umr = |octowords, length| {
        joined(&[
            &control(UMR, 9, QUIET, DPDK_KEY),
            &umr_control(0, octowords, 0, LEN | FREE),
            &context(length, false),
            &segment(0, LKEY, 0x1_8000_0000),
        ])
    };
    // A list maps each entry once. An interleaved layout repeats its streams, here three of 65,535 bytes, so
    // it may map more.
    let interleaved = 3 * 0xffff * 0xffff_ffff;
    for (device, octowords, most) in [(DeviceContext::UNKNOWN, 4, interleaved), (KSM, 8, 8 * 4096)] {
        let suspicion = |length| {
            let mut found = None;
            parse(&umr(octowords, length)).findings(&device, |finding| {
                if finding.severity() == Severity::Suspicious {
                    found.get_or_insert((finding.offset, finding.problem));
                }
            });
            found
        };
        assert_eq!(suspicion(most), None);
        let problem = Problem::PointerTooShort { octowords, length: most + 1 };
        assert_eq!(suspicion(most + 1), Some((64 + 24, problem)));
    }
    assert_eq!(
        parse(&umr(8, 5 * 4096)).summary(KSM).to_string(),
        "UMR configure mkey 0x000012/00: 8 octowords of entries of 4096 bytes each at 0x180000000 key \
         0x00567800, 20480 bytes"
    );
}
