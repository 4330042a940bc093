//! Tests of block signatures. The device generates, checks, removes, converts and copies signatures, and
//! reports wrong ones.

use crate::common::*;
use mlx5_mkey::wire::bsf::BfsPsv;
use mlx5_mkey::wire::cqe::{CqeOpcode, SignatureErrorCqe};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;

const T10: Sig = Sig::t10(0x1234, 100);

/// Returns the address of a copy of `memory`, and an mkey over it with these signatures.
fn signed(host: &mut Host, memory: &[u8], mem: Sig, wire: Sig) -> (u64, Mkey) {
    let mkey = host.mkey(true, false);
    let (at, key) = host.filled(memory);
    let config = Config::new(&mkey).access(LW | RR | RW).list(&[(at, memory.len() as u32, key)]);
    host.configure(config.signature(mem, wire, 0xff));
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
fn all_block_sizes_and_checksum_guards() {
    for (selector, block) in [(1u8, 512usize), (2, 520), (3, 4096), (4, 4160), (6, 4048)] {
        let mut host = Host::new();
        let data = vec![0xa5; 2 * block];
        let sig = Sig::T10 { selector, kind: 2, ones: false, app: 1, reference: 2, flags: REMAP };
        let (at, mkey) = signed(&mut host, &data, Sig::None, sig);
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

#[test]
fn a_transfer_does_not_start_in_a_block() {
    let mut host = Host::new();
    let (_, mkey) = signed(&mut host, &[0; 2048], Sig::None, T10);
    host.send_from(mkey.key, 8, 520);
    assert_eq!(host.bad(A).why(), Refusal::Alignment);
}

#[test]
fn r180_count_and_psv_are_both_needed() {
    let mut host = Host::new();
    let mut memory = with_pi(&pattern(512, 7), 0x1234, 100);
    memory[0] ^= 1;
    let (_, mkey) = signed(&mut host, &memory, T10, Sig::None);
    host.send_from(mkey.key, 0, 512);
    assert_eq!(host.signature_errors().len(), 1);
    assert_eq!(host.device.query_psv(mkey.memory_psv).unwrap().state, PsvState::Error);
    // If the test sets only the PSV, the device does not report the next error.
    host.post(A, set_psv(mkey.memory_psv, 0x1234 << 32 | 100));
    host.send_from(mkey.key, 0, 512);
    assert!(host.signature_errors().is_empty());
    // If the test flips only the error count of the mkey, the device does not report the next error either.
    let (_, mut mkey) = signed(&mut host, &memory, T10, Sig::None);
    host.send_from(mkey.key, 0, 512);
    assert_eq!(host.signature_errors().len(), 1);
    mkey.errors = !mkey.errors;
    let mut config = Config::new(&mkey).signature(T10, Sig::None, 0xff);
    config.psvs.clear();
    host.configure(config);
    host.send_from(mkey.key, 0, 512);
    assert!(host.signature_errors().is_empty());
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
    let (_, mkey) = signed(&mut host, &memory, sig, Sig::None);
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
    let (at, mkey) = signed(&mut host, &[0; 1024], Sig::None, Sig::crc(BfsPsv::CRC32));
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
        let (_, mkey) = signed(&mut host, &memory, T10, Sig::None);
        let (_, errors) = out(&mut host, &mkey, 512);
        assert_eq!(errors[0].syndrome.get(), syndrome, "{corrupt:?}");
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
        let (_, mkey) = signed(&mut host, memory, T10, Sig::None);
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
    let (at, mkey) = signed(&mut host, &[0; 512], Sig::None, T10);
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

#[test]
fn m19_draining_stops_behind_the_failing_request() {
    let mut host = Host::with(DeviceProfile::default(), |attributes| attributes.drain_sigerr = true);
    let mut memory = with_pi(&pattern(512, 7), 0x1234, 100);
    memory[0] ^= 1;
    let (_, mkey) = signed(&mut host, &memory, T10, Sig::None);
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
fn a_read_into_a_signature_key_is_checked_and_drains() {
    let mut host = Host::with(DeviceProfile::default(), |attributes| attributes.drain_sigerr = true);
    let mut wire = with_pi(&pattern(512, 3), 0x1234, 100);
    wire[519] ^= 1;
    let (from, from_key) = host.filled(&wire);
    let (_, mkey) = signed(&mut host, &[0; 512], Sig::None, T10);
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
    let (_, mkey) = signed(&mut host, &[0; 512], Sig::None, T10);
    host.write_into(mkey.key, 0, &wire);
    host.good(B);
    assert_eq!(words(&host.poll_recv(A).unwrap().sig()).1, 1 << 12);
    assert!(host.device.take_events().is_empty(), "the responder's send queue goes on");
}
