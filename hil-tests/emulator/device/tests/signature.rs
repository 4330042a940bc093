//! Tests of block signatures. The device generates, checks, removes, converts and copies signatures, and
//! reports wrong ones.

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::bsf::BfsPsv;
use mlx5_mkey::wire::cqe::{CqeOpcode, SignatureErrorCqe};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;

const T10: Sig = Sig::t10(0x1234, 100);

/// Returns the address of a copy of `memory`, and an mkey over it with these signatures and masks.
fn signed(host: &mut Host, memory: &[u8], mem: Sig, wire: Sig, check: u8, copy: Option<u8>) -> (u64, Mkey) {
    let mkey = host.mkey(true, false);
    let (at, key) = host.filled(memory);
    let list = [(at, memory.len() as u32, key)];
    host.configure(
        Config::new(&mkey).access(LW | RR | RW).list(&list).signature_copy(mem, wire, check, copy),
    );
    (at, mkey)
}

/// Reads the mkey's wire bytes as requester and as responder, and checks that both are equal. Returns the
/// bytes, and the signature errors of the first transfer.
fn out(host: &mut Host, mkey: &Mkey, length: usize) -> (Vec<u8>, Vec<SignatureErrorCqe>) {
    let wire = host.send_from(mkey.key, 0, length as u32);
    let errors = host.signature_errors();
    assert_eq!(host.read_from(mkey.key, 0, length as u32), wire, "responder role");
    host.signature_errors();
    (wire, errors)
}

fn into(
    host: &mut Host,
    at: u64,
    mkey: &Mkey,
    wire: &[u8],
    memory: usize,
) -> (Vec<u8>, Vec<SignatureErrorCqe>) {
    host.receive_into(mkey.key, 0, wire);
    let errors = host.signature_errors();
    let stored = host.get(at, memory);
    host.put(at, &vec![0; memory]);
    host.write_into(mkey.key, 0, wire);
    host.signature_errors();
    assert_eq!(host.get(at, memory), stored, "responder role");
    (stored, errors)
}

#[test]
fn r72_insert_on_the_way_out_strip_on_the_way_in() {
    let mut host = Host::new();
    let data = pattern(1536, 1);
    let (at, mkey) = signed(&mut host, &data, Sig::None, T10, 0xff, None);
    let wire = with_pi(&data, 0x1234, 100);
    assert_eq!(out(&mut host, &mkey, 1560), (wire.clone(), vec![]));
    host.put(at, &[0; 1536]);
    assert_eq!(into(&mut host, at, &mkey, &wire, 1536), (data, vec![]));
}

#[test]
fn r66_r73_strip_on_the_way_out_insert_on_the_way_in() {
    let mut host = Host::new();
    let data = pattern(1024, 2);
    let memory = with_pi(&data, 0x1234, 100);
    let (at, mkey) = signed(&mut host, &memory, T10, Sig::None, 0xff, None);
    assert_eq!(out(&mut host, &mkey, 1024), (data.clone(), vec![]));
    host.put(at, &[0; 1040]);
    assert_eq!(into(&mut host, at, &mkey, &data, 1040), (memory, vec![]));
    // The expected signatures of each CRC come from DEVICE.md, "Golden values".
    for (base, sig) in [
        (BfsPsv::CRC32, &[0x69, 0x9a, 0xca, 0x21][..]),
        (BfsPsv::CRC32C, &[0x42, 0x07, 0xe6, 0xb4]),
        (BfsPsv::CRC64_XP10, &[0x8c, 0x8a, 0xdb, 0x45, 0x0c, 0xce, 0x85, 0xaa]),
    ] {
        let block = [&[0xa5; 512][..], sig].concat();
        let memory = [block.clone(), block].concat();
        let (at, mkey) = signed(&mut host, &memory, Sig::crc(base), Sig::None, 0xff, None);
        assert_eq!(out(&mut host, &mkey, 1024), (vec![0xa5; 1024], vec![]));
        host.put(at, &vec![0; memory.len()]);
        assert_eq!(into(&mut host, at, &mkey, &[0xa5; 1024], memory.len()), (memory, vec![]));
    }
}

#[test]
fn r75_convert_types_and_block_sizes() {
    let mut host = Host::new();
    let data = vec![0xa5; 512];
    let memory = [&data[..], &[0x69, 0x9a, 0xca, 0x21]].concat();
    let wire = with_pi(&data, 0x1234, 100);
    let (at, mkey) = signed(&mut host, &memory, Sig::crc(BfsPsv::CRC32), T10, 0xff, None);
    assert_eq!(out(&mut host, &mkey, 520), (wire.clone(), vec![]));
    assert_eq!(into(&mut host, at, &mkey, &wire, 516), (memory, vec![]));
    // Blocks have 512 bytes in memory and 4096 bytes on the wire.
    let data = pattern(8192, 3);
    let memory = with_pi(&data, 0x1234, 100);
    let wire_sig = Sig::T10 { selector: 3, kind: 1, ones: false, app: 7, reference: 9, flags: REMAP };
    let wire: Vec<u8> = data
        .chunks(4096)
        .enumerate()
        .flat_map(|(n, block)| [block, &pi(block, 7, 9 + n as u32)].concat())
        .collect();
    let (at, mkey) = signed(&mut host, &memory, T10, wire_sig, 0xff, None);
    assert_eq!(out(&mut host, &mkey, 8208), (wire.clone(), vec![]));
    assert_eq!(into(&mut host, at, &mkey, &wire, memory.len()), (memory, vec![]));
}

#[test]
fn all_block_sizes_and_checksum_guards() {
    for (selector, block) in [(1u8, 512usize), (2, 520), (3, 4096), (4, 4160), (6, 4048)] {
        let mut host = Host::new();
        let data = vec![0xa5; 2 * block];
        let sig = Sig::T10 { selector, kind: 2, ones: false, app: 1, reference: 2, flags: REMAP };
        let (at, mkey) = signed(&mut host, &data, Sig::None, sig, 0xff, None);
        let (wire, errors) = out(&mut host, &mkey, 2 * (block + 8));
        assert!(errors.is_empty());
        // One's complement addition is addition modulo 65535. The sum starts from 0, and its complement is
        // the guard (DEVICE.md, "IP checksum guard").
        let [high, low] = (!((block as u64 / 2 * 0xa5a5 % 0xffff) as u16)).to_be_bytes();
        assert_eq!(wire[block..block + 8], [high, low, 0, 1, 0, 0, 0, 2]);
        assert_eq!(wire[2 * block + 8..], [high, low, 0, 1, 0, 0, 0, 3]);
        assert_eq!(into(&mut host, at, &mkey, &wire, 2 * block), (data, vec![]));
    }
}

/// Returns the fields of a signature error: domain, syndrome, expected and actual signature, offset, mkey.
fn words(error: &SignatureErrorCqe) -> (u8, u16, u64, u64, u64, u32) {
    let join = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    (
        error.domain,
        error.syndrome.get(),
        join(error.expected_trans_sig.get(), error.expected_ref_tag.get()),
        join(error.actual_trans_sig.get(), error.actual_ref_tag.get()),
        error.offset.get(),
        error.mkey.get(),
    )
}

#[test]
fn d1_d2_contents_of_a_signature_error() {
    // This is the corrupted block of DEVICE.md, "Golden values". Its guard has a seed of all ones.
    let mut host = Host::new();
    let mut data = [0xa5; 512];
    data[0] = 0x5a;
    let memory = [&data[..], &[0xec, 0x7d, 0x56, 0x78, 0, 0, 0, 0x64]].concat();
    let sig = Sig::T10 { selector: 1, kind: 1, ones: true, app: 0x5678, reference: 0x64, flags: REMAP };
    let (_, mkey) = signed(&mut host, &memory, sig, Sig::None, 0xff, None);
    let (_, errors) = out(&mut host, &mkey, 512);
    let index = mkey.key.get() & !0xff;
    assert_eq!(
        errors.iter().map(words).collect::<Vec<_>>(),
        [(1, 1 << 13, 0x9916_5678_0000_0064, 0xec7d_5678_0000_0064, 519, index)]
    );
    // The CRC32 of block 1 is corrupted on the wire. The offset counts wire bytes, including signatures that
    // memory does not have.
    let block = [&[0xa5; 512][..], &[0x69, 0x9a, 0xca, 0x21]].concat();
    let mut wire = [block.clone(), block].concat();
    wire[516 + 512] = 0x96;
    let (at, mkey) = signed(&mut host, &[0; 1024], Sig::None, Sig::crc(BfsPsv::CRC32), 0xff, None);
    let (stored, errors) = into(&mut host, at, &mkey, &wire, 1024);
    assert_eq!(stored, [0xa5; 1024], "the transfer itself is good");
    let index = mkey.key.get() & !0xff;
    assert_eq!(
        errors.iter().map(words).collect::<Vec<_>>(),
        [(0, 1 << 13, 0x699a_ca21 << 32, 0x969a_ca21 << 32, 1031, index)]
    );
}

#[test]
fn m11_priority_in_a_block() {
    for (corrupt, syndrome) in [
        (&[0usize, 2, 4][..], 1 << 13),
        (&[2, 4], 1 << 12),
        (&[4], 1 << 11),
        (&[7], 1 << 11),
        (&[3], 1 << 12),
        (&[1, 7], 1 << 13),
    ] {
        let mut host = Host::new();
        let mut memory = with_pi(&[0x3c; 512], 0x1234, 100);
        corrupt.iter().for_each(|at| memory[512 + at] ^= 0x80);
        let (_, mkey) = signed(&mut host, &memory, T10, Sig::None, 0xff, None);
        let (_, errors) = out(&mut host, &mkey, 512);
        assert_eq!(errors[0].syndrome.get(), syndrome, "{corrupt:?}");
    }
}

/// Returns whether the device reports a flipped bit in byte `byte` of a signature, with check mask `mask`.
fn noticed(faults: bool, sig: Sig, input_is_memory: bool, byte: usize, mask: u8) -> bool {
    let mut host = Host::with_faults(|f| f.check_mask_ignored = faults);
    // The device first produces a valid block.
    let data = pattern(512, 9);
    let (_, maker) = signed(&mut host, &data, Sig::None, sig, 0xff, None);
    let length = if matches!(sig, Sig::Crc { base: 0x20 | 0x40, .. }) { 516 } else { 520 };
    let mut block = host.send_from(maker.key, 0, length);
    host.signature_errors();
    block[512 + byte] ^= 1;
    if input_is_memory {
        let (_, mkey) = signed(&mut host, &block, sig, Sig::None, mask, None);
        !out(&mut host, &mkey, 512).1.is_empty()
    } else {
        let (at, mkey) = signed(&mut host, &data, Sig::None, sig, mask, None);
        !into(&mut host, at, &mkey, &block, 512).1.is_empty()
    }
}

#[test]
fn r77_check_mask_per_byte_domain_and_type() {
    let types = [
        (T10, 8),
        (Sig::crc(BfsPsv::CRC32), 4),
        (Sig::crc(BfsPsv::CRC32C), 4),
        (Sig::crc(BfsPsv::CRC64_XP10), 8),
    ];
    for (sig, bytes) in types {
        for input_is_memory in [true, false] {
            for byte in 0..bytes {
                let bit = 0x80 >> byte;
                assert!(noticed(false, sig, input_is_memory, byte, bit), "{sig:?} byte {byte}");
                assert!(!noticed(false, sig, input_is_memory, byte, !bit), "{sig:?} byte {byte}");
            }
        }
    }
    assert!(noticed(true, T10, true, 3, 0));
}

#[test]
fn r78_bits_that_no_byte_has_are_ignored() {
    for mask in [0xf0, 0xff] {
        assert!(noticed(false, Sig::crc(BfsPsv::CRC32), true, 3, mask));
    }
}

/// Runs the copy test of DEVICE.md, "Check mask and copy mask". The memory domain has application tag 0078,
/// the wire domain 5600. The copy mask selects the guard, the reference tag and the byte 56 of the wire's
/// application tag. Returns the signature in memory, and the number of signature errors.
fn copied(faults: bool) -> (Vec<u8>, usize) {
    let mut host = Host::with_faults(|f| f.copy_mask_ignored = faults);
    let data = [0xa5; 512];
    // The input domain is the wire. Mask bit 0x20 copies the first byte of its application tag.
    let wire = with_pi(&data, 0x5600, 0x64);
    let mem = Sig::t10(0x0078, 0x64);
    let (at, mkey) = signed(&mut host, &[0; 520], mem, Sig::t10(0x5600, 0x64), 0xff, Some(0xcf | 0x20));
    let (stored, errors) = into(&mut host, at, &mkey, &wire, 520);
    (stored[512..].to_vec(), errors.len())
}

#[test]
fn r87_copied_bytes_are_taken_and_others_computed() {
    let (stored, errors) = copied(false);
    assert_eq!((&stored[..], errors), (&[0x9e, 0xc6, 0x56, 0x78, 0, 0, 0, 0x64][..], 0));
    assert_eq!(copied(true).0[2..4], [0x00, 0x78]);
    // The application tag of the input is wrong, and not checked. A copied tag stays wrong. A tag outside of
    // the copy mask is generated.
    for (copy, app) in [(0xff, [0xde, 0xad]), (0xcf, [0x12, 0x34])] {
        let mut host = Host::new();
        let mut memory = with_pi(&[0x5a; 512], 0x1234, 100);
        memory[514..516].copy_from_slice(&[0xde, 0xad]);
        let (_, mkey) = signed(&mut host, &memory, T10, T10, 0xcf, Some(copy));
        let (wire, errors) = out(&mut host, &mkey, 520);
        assert!(errors.is_empty());
        assert_eq!(wire[514..516], app);
    }
}

/// Returns the number of signature errors of a block with tags `app` and `reference` and a wrong guard.
fn escaped(faults: bool, flags: u8, app: u16, reference: u32) -> usize {
    let mut host = Host::with_faults(|f| f.escapes_ignored = faults);
    let mut memory = with_pi(&[1; 512], app, reference);
    memory[512] ^= 1;
    let sig = Sig::T10 { selector: 1, kind: 1, ones: false, app: 0x1234, reference: 100, flags };
    let (_, mkey) = signed(&mut host, &memory, sig, Sig::None, 0xff, None);
    out(&mut host, &mkey, 512).1.len()
}

#[test]
fn d9_d10_escapes() {
    let both = APP_ESCAPE | APP_REF_ESCAPE;
    for (flags, app, reference, errors) in [
        (0, 0xffff, u32::MAX, 1),
        (APP_ESCAPE, 0xffff, 5, 0),
        (APP_ESCAPE, 0xfffe, u32::MAX, 1),
        (APP_REF_ESCAPE, 0xffff, u32::MAX, 0),
        (APP_REF_ESCAPE, 0xffff, 5, 1),
        (both, 0xffff, 5, 1),
        (both, 0xffff, u32::MAX, 0),
    ] {
        assert_eq!(escaped(false, flags, app, reference), errors, "{flags:#x} {app:#x} {reference:#x}");
    }
    assert_eq!(escaped(true, APP_ESCAPE, 0xffff, 5), 1);
}

#[test]
fn r114_reference_tag_wraps_and_stays_without_the_flag() {
    let make = |flags: u8, faults: bool| {
        let mut host = Host::with_faults(|f| f.ref_tag_not_advancing = faults);
        let sig = Sig::T10 { selector: 1, kind: 1, ones: false, app: 1, reference: u32::MAX, flags };
        let (_, mkey) = signed(&mut host, &pattern(1536, 4), Sig::None, sig, 0xff, None);
        let (wire, _) = out(&mut host, &mkey, 1560);
        let tag = |n: usize| u32::from_be_bytes(wire[n * 520 + 516..n * 520 + 520].try_into().unwrap());
        [tag(0), tag(1), tag(2)]
    };
    assert_eq!(make(REMAP, false), [u32::MAX, 0, 1]);
    assert_eq!(make(0, false), [u32::MAX; 3]);
    assert_eq!(make(REMAP, true), [u32::MAX; 3]);
}

#[test]
fn r185_requests_continue_one_another() {
    let mut host = Host::new();
    let data = pattern(4 * 512, 6);
    let whole = with_pi(&data, 0x1234, 100);
    let (_, mkey) = signed(&mut host, &data, Sig::None, T10, 0xff, None);
    let mut parts = host.send_from(mkey.key, 0, 520);
    parts.extend(host.send_from(mkey.key, 520, 1040));
    parts.extend(host.read_from(mkey.key, 1560, 520));
    assert_eq!(parts, whole);
    let (at, mkey) = signed(&mut host, &[0; 2048], Sig::None, T10, 0xff, None);
    host.receive_into(mkey.key, 1040, &whole[1040..]);
    host.write_into(mkey.key, 0, &whole[..1040]);
    assert!(host.signature_errors().is_empty());
    assert_eq!(host.get(at, 2048), data);
    // A transfer cannot start in the middle of a block.
    host.send_from(mkey.key, 8, 520);
    assert_eq!(host.bad(A).why(), Refusal::Alignment);
}

#[test]
fn r186_partial_blocks() {
    let mut host = Host::new();
    let data = pattern(512, 6);
    let (at, mkey) = signed(&mut host, &data, Sig::None, T10, 0xff, None);
    assert_eq!(out(&mut host, &mkey, 512), (data.clone(), vec![]));
    assert_eq!(out(&mut host, &mkey, 100).0, data[..100]);
    assert_eq!(into(&mut host, at, &mkey, &data[..300], 300), (data[..300].to_vec(), vec![]));
    let profile = DeviceProfile { partial_blocks: PartialBlocks::Refuse, ..Default::default() };
    let mut host = Host::with(profile, |_| {});
    let (_, mkey) = signed(&mut host, &data, Sig::None, T10, 0xff, None);
    host.send_from(mkey.key, 0, 512);
    assert_eq!(host.bad(A).why(), Refusal::PartialBlock);
}

/// Runs two transfers with signature errors in two blocks each, recovers, and runs a third transfer. Returns
/// the offsets that each transfer reports.
fn life(faults: impl Fn(&mut Faults)) -> Vec<Vec<u64>> {
    let mut host = Host::with_faults(faults);
    let mut memory = with_pi(&pattern(1536, 7), 0x1234, 100);
    memory[3] ^= 1;
    memory[1050] ^= 1;
    let (at, mut mkey) = signed(&mut host, &memory, T10, Sig::None, 0xff, None);
    let offsets = |host: &mut Host, key: Key| {
        host.send_from(key, 0, 1536);
        host.signature_errors().iter().map(|error| error.offset.get()).collect::<Vec<_>>()
    };
    let mut seen = vec![offsets(&mut host, mkey.key), offsets(&mut host, mkey.key)];
    // For the recovery, the test flips the error count of the mkey and sets the PSV again.
    mkey.errors = !mkey.errors;
    host.configure(Config::new(&mkey).signature(T10, Sig::None, 0xff));
    host.put(at + 3, &[memory[3] ^ 1]);
    seen.push(offsets(&mut host, mkey.key));
    seen
}

#[test]
fn r183_first_error_is_kept_until_recovery() {
    assert_eq!(life(|_| {}), [vec![519], vec![], vec![1559]]);
    assert_eq!(life(|f| f.psv_not_reset_by_set_psv = true)[2], [0u64; 0]);
    assert_eq!(life(|f| f.error_not_kept_first = true), [vec![1559], vec![1559], vec![1559]]);
}

#[test]
fn r180_count_and_psv_are_both_needed() {
    let mut host = Host::new();
    let mut memory = with_pi(&pattern(512, 7), 0x1234, 100);
    memory[0] ^= 1;
    let (_, mkey) = signed(&mut host, &memory, T10, Sig::None, 0xff, None);
    host.send_from(mkey.key, 0, 512);
    assert_eq!(host.signature_errors().len(), 1);
    assert_eq!(host.device.query_psv(mkey.memory_psv).unwrap().state, PsvState::Error);
    // If the test sets only the PSV, the device does not report the next error.
    host.post(A, set_psv(mkey.memory_psv, 0x1234 << 32 | 100));
    host.send_from(mkey.key, 0, 512);
    assert!(host.signature_errors().is_empty());
    // If the test flips only the error count of the mkey, the device does not report the next error either.
    let (_, mut mkey) = signed(&mut host, &memory, T10, Sig::None, 0xff, None);
    host.send_from(mkey.key, 0, 512);
    assert_eq!(host.signature_errors().len(), 1);
    mkey.errors = !mkey.errors;
    let mut config = Config::new(&mkey).signature(T10, Sig::None, 0xff);
    config.psvs.clear();
    host.configure(config);
    host.send_from(mkey.key, 0, 512);
    assert!(host.signature_errors().is_empty());
}

#[test]
fn r176_tags_come_from_set_psv() {
    let mut host = Host::new();
    let memory = with_pi(&pattern(512, 7), 0x1234, 100);
    let mkey = host.mkey(true, false);
    let (at, key) = host.filled(&memory);
    let mut config = Config::new(&mkey).access(LW).list(&[(at, 520, key)]).signature(T10, Sig::None, 0xff);
    config.psvs.clear();
    host.configure(config);
    host.send_from(mkey.key, 0, 512);
    assert_eq!(host.signature_errors().len(), 1, "without SET_PSV the first check fails");
}

#[test]
fn r24_r25_reset_and_relayout() {
    let mut host = Host::new();
    let data = pattern(512, 8);
    let (_, mkey) = signed(&mut host, &data, Sig::None, T10, 0xff, None);
    // A UMR with a new layout keeps the signature.
    let (at2, key2) = host.filled(&pattern(512, 9));
    host.configure({
        let mut config = Config::new(&mkey).list(&[(at2, 512, key2)]);
        config.mask &= !(1 << 12);
        config
    });
    assert_eq!(out(&mut host, &mkey, 520).0, with_pi(&pattern(512, 9), 0x1234, 100));
    // A UMR that clears the enable bit of the BSFs resets a signature mkey.
    host.configure(Config::new(&mkey));
    assert_eq!(out(&mut host, &mkey, 512).0, pattern(512, 9));
    // An empty signature BSF with the enable bit resets the signature, too. An mkey with crypto needs this
    // form.
    host.configure(Config::new(&mkey).signature(Sig::None, Sig::None, 0));
    assert_eq!(out(&mut host, &mkey, 512).0, pattern(512, 9));
}

#[test]
fn r182_good_and_signature_completions_both_appear() {
    let mut host = Host::new();
    let mut memory = with_pi(&pattern(512, 7), 0x1234, 100);
    memory[0] ^= 1;
    let (_, mkey) = signed(&mut host, &memory, T10, Sig::None, 0xff, None);
    host.send_from(mkey.key, 0, 512);
    let opcodes: Vec<CqeOpcode> =
        std::iter::from_fn(|| host.poll_send(A)).map(|seen| seen.opcode()).collect();
    assert_eq!(opcodes, [CqeOpcode::SIGNATURE_ERROR, CqeOpcode::REQUESTER]);
    assert_eq!(host.poll_recv(B).unwrap().opcode(), CqeOpcode::RESPONDER_SEND);
}

#[test]
fn more_faults_show() {
    let data = pattern(512, 8);
    // With the fault `wire_signatures_ignored`, the wire has no signatures.
    let mut host = Host::with_faults(|f| f.wire_signatures_ignored = true);
    let (_, mkey) = signed(&mut host, &pattern(1024, 8), Sig::None, T10, 0xff, None);
    assert_eq!(out(&mut host, &mkey, 520).0, pattern(1024, 8)[..520]);
    // With the fault `length_counts_memory_bytes`, the completion reports 512 memory bytes instead of 520
    // wire bytes.
    let mut host = Host::with_faults(|f| f.length_counts_memory_bytes = true);
    let (_, mkey) = signed(&mut host, &with_pi(&data, 0x1234, 100), T10, Sig::None, 0xff, None);
    host.send_from(mkey.key, 0, 520);
    assert_eq!(host.good(A).0.byte_count.get(), 512);
    // With the fault `crc_seed_inverted`, the CRC seeds 0 and 0xffffffff are swapped.
    for (inverted, sig) in [(false, [0x69, 0x9a, 0xca, 0x21]), (true, [0x88, 0xcb, 0x60, 0x93])] {
        let mut host = Host::with_faults(|f| f.crc_seed_inverted = inverted);
        let (_, mkey) = signed(&mut host, &[0xa5; 512], Sig::None, Sig::crc(BfsPsv::CRC32), 0xff, None);
        assert_eq!(out(&mut host, &mkey, 516).0[512..], sig);
    }
}

/// The fault `failing_request_silent` affects only requests with a wrong signature on a draining queue pair.
#[test]
fn only_a_failing_request_that_drains_is_silent() {
    let good = with_pi(&pattern(512, 7), 0x1234, 100);
    let bad: Vec<u8> = good.iter().map(|byte| !byte).collect();
    for (drain, memory, completes) in
        [(true, &good, true), (true, &bad, false), (false, &good, true), (false, &bad, true)]
    {
        let mut host = Host::with_faults(|f| f.failing_request_silent = true);
        host.device.set_drain_sigerr(host.q[A].qpn, drain).unwrap();
        let (_, mkey) = signed(&mut host, memory, T10, Sig::None, 0xff, None);
        host.send_from(mkey.key, 0, 512);
        let seen: Vec<_> = std::iter::from_fn(|| host.poll_send(A)).map(|seen| seen.opcode()).collect();
        assert_eq!(seen.contains(&CqeOpcode::SIGNATURE_ERROR), memory == &bad);
        assert_eq!(seen.contains(&CqeOpcode::REQUESTER), completes, "{drain} {completes}");
    }
}

/// The mask in the BSF selects the compared bits of the application tag. All bits of the other parts are
/// compared.
#[test]
fn r106_bits_of_the_application_tag_that_are_not_compared() {
    let good = with_pi(&pattern(512, 7), 0x1234, 100);
    for (mask, compared) in
        [(0xffff, [0xff, 0xff]), (0xff00, [0xff, 0]), (0x00ff, [0, 0xff]), (0x0810, [8, 0x10])]
    {
        for byte in 512..520 {
            for bit in [0x01_u8, 0x08, 0x10, 0x80] {
                let mut host = Host::new();
                let mut memory = good.clone();
                memory[byte] ^= bit;
                let mkey = host.mkey(true, false);
                let (at, key) = host.filled(&memory);
                let mut config =
                    Config::new(&mkey).access(LW).list(&[(at, 520, key)]).signature(T10, Sig::None, 0xff);
                config.signature.as_mut().unwrap().memory_inline.app_bitmask_check = mask.into();
                host.configure(config);
                host.send_from(mkey.key, 0, 512);
                let noticed = match byte {
                    514 | 515 => compared[byte - 514] & bit != 0,
                    _ => true,
                };
                assert_eq!(host.signature_errors().len(), usize::from(noticed), "{mask:#x} {byte} {bit:#x}");
            }
        }
    }
}

/// A transfer that ends inside a wrong signature does not check this signature.
#[test]
fn r186_a_signature_that_is_cut_off_is_not_checked() {
    let mut host = Host::new();
    let data = pattern(512, 7);
    let (at, mkey) = signed(&mut host, &[0; 512], Sig::None, T10, 0xff, None);
    let wrong = [&data[..], &[0xee; 8]].concat();
    for length in 512..520 {
        host.put(at, &[0; 512]);
        host.write_into(mkey.key, 0, &wrong[..length]);
        assert!(host.signature_errors().is_empty(), "{length}");
        assert_eq!(host.get(at, 512), data);
    }
    host.write_into(mkey.key, 0, &wrong);
    assert_eq!(host.signature_errors().len(), 1);
}

/// A BSF that ends before the attributes of blocks (size code 0x40) cannot select a block size: with a
/// selector of 0 it is valid, with another selector transfers fail.
#[test]
fn blocks_need_a_bsf_that_has_their_attributes() {
    let mut host = Host::new();
    for (size, selector, done) in [(0x80, 1, true), (0x40, 1, false), (0x40, 0, true)] {
        let mkey = host.mkey(true, false);
        let (at, key) = host.filled(&with_pi(&[7; 512], 0x1234, 100));
        let mut config =
            Config::new(&mkey).access(LW).list(&[(at, 520, key)]).signature(T10, Sig::None, 0xff);
        config.signature.as_mut().unwrap().memory = selector;
        let psvs = config.psvs.clone();
        let mut umr = config.umr();
        let bsf = umr.0.len() - 64;
        umr.0[bsf] = size;
        host.post(A, umr);
        for (psv, transient) in psvs {
            host.post(A, set_psv(psv, transient));
        }
        host.send_from(mkey.key, 0, 512);
        match done {
            true => drop(host.good(A)),
            false => assert_eq!(host.bad(A).why(), Refusal::Bsf),
        }
        host.recover();
    }
}

/// A mask has a bit for each of the 8 bytes of the longest signature. Bit 7 selects byte 0.
#[test]
fn masks_select_bytes_from_the_first_on() {
    for index in 0..8 {
        for bit in 0..8 {
            assert_eq!(signature::selects(0x80 >> bit, index), bit == index);
        }
    }
    assert!(!signature::selects(0xff, 8));
}

/// With the fault `receives_count_memory_bytes`, the completion of a receive request counts the memory bytes
/// of all buffers instead of the wire bytes.
#[test]
fn a_device_may_count_bytes_of_memory_where_it_receives() {
    for (faulty, counted) in [(false, 520), (true, 512)] {
        let mut host = Host::with_faults(|f| f.receives_count_memory_bytes = faulty);
        let data = pattern(512, 7);
        let (_, mkey) = signed(&mut host, &[0; 512], Sig::None, T10, 0xff, None);
        host.receive_into(mkey.key, 0, &with_pi(&data, 0x1234, 100));
        assert_eq!(host.poll_recv(A).unwrap().0.byte_count.get(), counted);
    }
}

#[test]
fn m19_draining_stops_behind_the_failing_request() {
    let mut host = Host::with(DeviceProfile::default(), |attributes| attributes.drain_sigerr = true);
    let mut memory = with_pi(&pattern(512, 7), 0x1234, 100);
    memory[0] ^= 1;
    let (_, mkey) = signed(&mut host, &memory, T10, Sig::None, 0xff, None);
    let (to, to_key) = host.region(512, Access::ALL);
    let qpn = host.q[A].qpn;
    host.post(A, rdma(Opcode::RDMA_WRITE, 0, to, to_key, &[segment(0, 512, mkey.key)]).silent());
    let counter = host.post(A, send(Opcode::SEND_IMM, 1, &[]));
    host.post_receive(B, &[]);
    host.ring(A);
    assert_eq!(host.device.take_events(), [Event::SqDrained(qpn)]);
    let view = host.device.query(qpn).unwrap();
    assert_eq!((view.state, view.hw_sq_wqebb_counter), (QpState::SendQueueDrained, counter));
    assert_eq!(host.poll_send(A).unwrap().opcode(), CqeOpcode::SIGNATURE_ERROR);
    assert!(host.poll_send(A).is_none() && host.poll_recv(B).is_none());
    // Software cancels a posted request: it replaces the opcode in the ring by NOP. The request then
    // completes without an error.
    let slot = host.q[A].attributes.sq + 64 * u64::from(counter & 63);
    host.put(slot + 3, &[0]);
    host.device.modify(qpn, QpState::ReadyToSend).unwrap();
    host.device.run();
    let seen = host.good(A);
    assert_eq!((seen.counter(), seen.0.opcode_qpn().wqe_opcode()), (counter, 0));
    assert!(host.poll_recv(B).is_none(), "the send was cancelled");
}

#[test]
fn r87_each_bit_of_the_copy_mask_in_both_directions() {
    let mut host = Host::new();
    let data = pattern(512, 3);
    // No byte is checked, so input and output signatures may differ in every byte.
    let (mem, wire) = (Sig::t10(0x1122, 0x0102_0304), Sig::t10(0x8899, 0x8182_8384));
    let junk = pattern(8, 77);
    let input = [&data[..], &junk].concat();
    for mask in (0..8).map(|bit| 1u8 << bit).chain([0, 0xff]) {
        let (at, mkey) = signed(&mut host, &input, mem, wire, 0, Some(mask));
        let (sent, _) = out(&mut host, &mkey, 520);
        let (stored, _) = into(&mut host, at, &mkey, &input, 520);
        for byte in 0..8 {
            let copied = mask & (0x80 >> byte) != 0;
            let [own_wire, own_mem] = [pi(&data, 0x8899, 0x8182_8384), pi(&data, 0x1122, 0x0102_0304)];
            let want = |own: [u8; 8]| if copied { junk[byte] } else { own[byte] };
            assert_eq!(sent[512 + byte], want(own_wire), "transmit, mask {mask:#x} byte {byte}");
            assert_eq!(stored[512 + byte], want(own_mem), "receive, mask {mask:#x} byte {byte}");
        }
    }
}

#[test]
fn data_and_protection_information_in_buffers_of_their_own() {
    let mut host = Host::new();
    let data = pattern(2048, 3);
    let (at, key) = host.filled(&data);
    let (pis, pi_key) = host.region(32, Access::ALL);
    let whole = with_pi(&data, 0x1234, 100);
    let collected: Vec<u8> = whole.chunks(520).flat_map(|block| block[512..].to_vec()).collect();
    host.put(pis, &collected);
    let mkey = host.mkey(true, false);
    host.configure(
        Config::new(&mkey)
            .access(LW | RR | RW)
            .strided(4, &[(at, 512, 0, key), (pis, 8, 0, pi_key)])
            .signature(T10, Sig::None, 0xff),
    );
    assert_eq!(out(&mut host, &mkey, 2048), (data.clone(), vec![]));
    host.put(at, &[0; 2048]);
    host.put(pis, &[0; 32]);
    host.receive_into(mkey.key, 0, &data);
    assert_eq!((host.get(at, 2048), host.get(pis, 32)), (data, collected));
}

#[test]
fn a_read_into_a_signature_key_is_checked_and_drains() {
    let mut host = Host::with(DeviceProfile::default(), |attributes| attributes.drain_sigerr = true);
    let mut wire = with_pi(&pattern(512, 3), 0x1234, 100);
    wire[519] ^= 1;
    let (from, from_key) = host.filled(&wire);
    let (_, mkey) = signed(&mut host, &[0; 512], Sig::None, T10, 0xff, None);
    host.execute(A, rdma(Opcode::RDMA_READ, 0, from, from_key, &[segment(0, 520, mkey.key)]));
    let error = host.poll_send(A).unwrap().sig();
    assert_eq!(words(&error).1, 1 << 11);
    host.good(A);
    assert_eq!(host.device.query(host.q[A].qpn).unwrap().state, QpState::SendQueueDrained);
}

#[test]
fn the_responder_reports_to_its_receive_queue() {
    let mut host = Host::with(DeviceProfile::default(), |attributes| attributes.drain_sigerr = true);
    let mut wire = with_pi(&pattern(512, 3), 0x1234, 100);
    wire[514] ^= 1;
    let (_, mkey) = signed(&mut host, &[0; 512], Sig::None, T10, 0xff, None);
    host.write_into(mkey.key, 0, &wire);
    host.good(B);
    assert_eq!(words(&host.poll_recv(A).unwrap().sig()).1, 1 << 12);
    assert!(host.device.take_events().is_empty(), "the responder's send queue goes on");
}

#[test]
fn bsfs_that_mean_nothing_are_refused_at_use() {
    let mut host = Host::new();
    let (at, key) = host.filled(&[0; 520]);
    type Spoil = fn(&mut Config);
    let cases: [(&str, Spoil); 5] = [
        ("selector 5", |c| c.signature.as_mut().unwrap().memory = 5),
        ("unknown CRC", |c| c.signature.as_mut().unwrap().memory_bfs_psv = (0x7300_0000 | 1).into()),
        ("guard type", |c| c.signature.as_mut().unwrap().memory_inline.sig_type = 3),
        ("inline not valid", |c| c.signature.as_mut().unwrap().memory_inline.vld_refresh = 0.into()),
        ("no PSV", |c| c.signature.as_mut().unwrap().memory_bfs_psv = 0x00ff_ffff.into()),
    ];
    for (what, spoil) in cases {
        let mkey = host.mkey(true, false);
        let mut config =
            Config::new(&mkey).access(LW).list(&[(at, 520, key)]).signature(T10, Sig::None, 0xff);
        spoil(&mut config);
        host.configure(config);
        host.send_from(mkey.key, 0, 512);
        let refusal = host.bad(A).why();
        assert!([Refusal::Bsf, Refusal::Psv].contains(&refusal), "{what}");
        host.recover();
    }
}

#[test]
fn r181_a_new_key_without_signature_must_be_told_so() {
    for told in [true, false] {
        let mut host = Host::new();
        let mkey = host.mkey(true, false);
        let (at, key) = host.filled(&[7; 64]);
        let mut config = Config::new(&mkey).access(LW).list(&[(at, 64, key)]);
        if !told {
            config.mask &= !(1 << 12);
        }
        host.configure(config);
        host.send_from(mkey.key, 0, 64);
        if told {
            host.good(A);
        } else {
            assert_eq!(host.bad(A).why(), Refusal::Bsf);
        }
    }
}
