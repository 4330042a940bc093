//! Requests that move data: every opcode through an mkey, lists of entries, failures, and the requests after
//! a failure.

use super::fixture::{
    ALL_RIGHTS, DIF, MkeyFixture, PLAIN, SIGNATURE, domain, entry, flipped, part, pattern, reports, same,
};
use super::scenario::{Scenario, scenario};
use crate::assumption::assumed;
use crate::board::{Board, COMPLETIONS, EndSpec};
use crate::expected;
use crate::qp_pair::{QpPairFixture, Rx, Tx, Verdict, Within, ids, syndromes, text};
use crate::{ensure, ensure_eq};
use alloc::vec::Vec;
use mlx5_mkey::command::CqeSize;
use mlx5_mkey::mkey::{Access, BlockSignature, MkeyConfig, Signature, SignatureChange, SignatureErrorKind};
use mlx5_mkey::queue::{Message, Outcome, RequestKind};
use mlx5_mkey::types::{DomainKind, Key, Seed};
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wqe::{MaskedAtomic, Payload, Remote, Sge};

pub(super) const ALL: &[Scenario] = &[
    scenario!(r001_completions_lap_their_queue, NOTHING, ["R1"]),
    scenario!(r001_completions_of_128_bytes, SIGNATURE, ["R1", "M56"]),
    scenario!(m63_requests_come_with_the_doorbell, NOTHING, ["M63", "R16"]),
    scenario!(r016_atomics_through_an_mkey, NOTHING, ["R16"]),
    scenario!(m86_atomics_under_masks, MASKED_ATOMICS, ["M86"]),
    scenario!(r016_inline_data_through_the_peers_mkey, NOTHING, ["R16"]),
    scenario!(r016_immediate_data_beside_an_mkey, NOTHING, ["R16"]),
    scenario!(r016_messages_of_nothing, NOTHING, ["R16"]),
    scenario!(r016_many_segments_and_mkeys_in_one_message, SIGNATURE, ["R16", "R2"]),
    scenario!(r016_a_long_message, NOTHING, ["R16"]),
    scenario!(r016_a_message_longer_than_its_buffers, NOTHING, ["R16"]),
    scenario!(r016_a_failure_flushes_what_is_behind_it, NOTHING, ["R16", "R32"]),
    scenario!(r016_good_and_bad_data_in_one_chain, SIGNATURE, ["R16", "R182"]),
];

/// Five times as many completions as the completion queue has entries arrive in order. So each entry is
/// written five times, and the owner bit must distinguish new entries from old ones each time.
fn r001_completions_lap_their_queue(board: &mut dyn Board) -> Verdict {
    lap_completions(&mut QpPairFixture::new(board))
}

fn lap_completions(pair: &mut QpPairFixture<'_>) -> Verdict {
    let mut next = 0u64;
    while next < 5 * COMPLETIONS as u64 {
        let first = next;
        pair.near.hold_back();
        for _ in 0..97 {
            pair.near.request(next).signaled().nop().map_err(text)?;
            next += 1;
        }
        ensure!(pair.poll_near()?.is_empty(), "completed before it was rung");
        pair.run_both()?;
        ensure_eq!(ids(&pair.wait_near(97)?), Vec::from_iter(first..next), "completions");
    }
    Ok(())
}

/// Completion entries of 128 bytes contain the same information as entries of 64 bytes: successes until the
/// ring was written several times, receives, a signature error, and a failure.
fn r001_completions_of_128_bytes(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    fixture.pair.reconnect_as(EndSpec { cqe_size: CqeSize::B128, ..EndSpec::default() });
    lap_completions(&mut fixture.pair)?;
    let own = domain(Signature::T10Dif(DIF));
    let stream = expected::sign(&pattern(512, 1), Some(&own));
    fixture.install(&flipped(&stream, 9, 1), Some(&BlockSignature::memory(own)), None)?;
    let error = fixture.out_bad(Tx::Write, 512)?;
    reports(&error, SignatureErrorKind::Guard, DomainKind::Memory, 0, 520)?;
    fixture.install(&stream, Some(&BlockSignature::memory(own)), None)?;
    fixture.out(Tx::Send, 0, part(&stream, 0..512))?;
    fixture.store(Rx::Receive, part(&stream, 0..512), &stream)?;
    let target = fixture.pair.region(&[0; 8]);
    let remote = Remote { address: target.address, rkey: Key::from_raw(!0) };
    fixture.pair.near.request(1).rdma_write(remote, &[target.sge()]).map_err(text)?;
    fixture.pair.near.request(2).signaled().nop().map_err(text)?;
    fixture.pair.run_both()?;
    let expected = [(1, Some(Syndrome::REMOTE_ACCESS)), (2, Some(Syndrome::FLUSHED))];
    ensure_eq!(syndromes(&fixture.pair.wait_near(2)?), expected, "failures");
    Ok(())
}

/// With BlueFlame, the doorbell writes a short single request as a whole to the device. All requests must
/// succeed: short or long ones, single ones or batches, and requests that cross the end of the ring.
fn m63_requests_come_with_the_doorbell(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    fixture.pair.reconnect_as(EndSpec { blue_flame: true, ..EndSpec::default() });
    let data = pattern(300, 1);
    fixture.install(&data, None, None)?;
    fixture.out_each(0, &data)?;
    fixture.store(Rx::Read, &data, &data)?;
    let target = fixture.pair.region(&[0; 600]);
    let remote = |at: u64| Remote { address: target.address + at, rkey: target.key };
    for round in 0..60_u8 {
        let lengths = [1, 12, 60, 140, 200, 300];
        let length = lengths.get(usize::from(round) % lengths.len()).copied().unwrap_or_default();
        let data = pattern(length, round);
        let together = 1 + u64::from(round / 6 % 3);
        fixture.pair.near.hold_back();
        for at in 0..together {
            let request = fixture.pair.near.request(at).signaled();
            request.rdma_write(remote(at * 50), Payload::Inline(&data)).map_err(text)?;
        }
        fixture.pair.run_both()?;
        ensure_eq!(
            fixture.pair.wait_near(together as usize)?.len() as u64,
            together,
            "completions of {length} bytes"
        );
        let found = fixture.pair.bytes(&target);
        for at in 0..together {
            // Each message is written 50 bytes behind the start of the previous one, and overwrites the end
            // of the previous one. So of each message only the first 50 bytes remain, but of the last one all
            // bytes.
            let whole = if at + 1 == together { length } else { length.min(50) };
            let at = at as usize * 50;
            same(part(&found, at..at + whole), part(&data, 0..whole))?;
        }
    }
    lap_completions(&mut fixture.pair)
}

/// Both atomic operations change the eight bytes that an entry of the mkey maps. Most values are the same in
/// both byte orders; one is not, and shows the byte order.
///
/// Assumption: the device treats the values as little endian, the byte order of the hosts of all known
/// boards. Linux asks the device for the host's byte order if the device supports it
/// (`atomic_req_8B_endianness_mode`). Otherwise old values arrive in big endian.
fn r016_atomics_through_an_mkey(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    fixture.install(&[[0x10; 8], [0x20; 8], [0; 8], [0; 8]].concat(), None, None)?;
    let entries = [entry(&fixture.memory, 8..16), entry(&fixture.memory, 0..8)];
    fixture.change(&MkeyConfig::UNCHANGED, &entries)?;
    let old = fixture.pair.region(&[0; 8]);
    let place = old.place();
    let remote = |address| Remote { address, rkey: fixture.pair.key(fixture.mkey) };
    let (first, second) = (remote(0), remote(8));
    let mut queue = |post: &mut dyn FnMut(&mut QpPairFixture<'_>) -> Verdict, kind, value: u8| {
        post(&mut fixture.pair)?;
        fixture.pair.run_both()?;
        let completions = fixture.pair.wait_far(1)?;
        let outcome = completions.first().map(|completion| completion.outcome);
        ensure_eq!(outcome, Some(Outcome::Sent { kind, bytes: 8 }), "completion");
        ensure_eq!(fixture.pair.bytes(&old), [value; 8], "old value of {kind:?}");
        Ok(())
    };
    let word = |byte| u64::from_ne_bytes([byte; 8]);
    let kind = RequestKind::FetchAdd;
    queue(
        &mut |pair| pair.far.request(1).signaled().fetch_add(first, word(5), place).map_err(text),
        kind,
        0x20,
    )?;
    let kind = RequestKind::CompareSwap;
    let mut swap = |compare, value| {
        queue(
            &mut |pair| {
                pair.far
                    .request(2)
                    .signaled()
                    .compare_swap(second, word(compare), word(0x99), place)
                    .map_err(text)
            },
            kind,
            value,
        )
    };
    swap(0x11, 0x10)?;
    swap(0x10, 0x10)?;
    swap(0x10, 0x99)?;
    fixture.holds(&[[0x99; 8], [0x25; 8]].concat())?;
    fixture.write(&0x99_u64.to_le_bytes());
    fixture.pair.far.request(3).signaled().fetch_add(second, 0x100, place).map_err(text)?;
    fixture.pair.run_both()?;
    ensure_eq!(fixture.pair.wait_far(1)?.len(), 1, "completions of an atomic");
    let (old, new) = (fixture.pair.bytes(&old), fixture.pair.board.read(fixture.memory.address, 8));
    let expected = (0x99_u64.to_le_bytes().to_vec(), 0x199_u64.to_le_bytes().to_vec());
    assumed(fixture.pair.board, "an atomic's old value, and the new one in memory", (old, new), expected)?;
    Ok(())
}

/// Atomics under masks change only the bits that their masks select, in 4 and in 8 bytes that an entry of the
/// mkey maps. Old values of 8 bytes have the host's byte order, those of 4 bytes are in big endian.
fn m86_atomics_under_masks(board: &mut dyn Board) -> Verdict {
    use MaskedAtomic::{CompareSwap32, CompareSwap64, FetchAdd32, FetchAdd64};
    const START: u64 = 0x7fff_00aa_1234_80ff;
    let mut fixture = MkeyFixture::plain(board, PLAIN, &START.to_le_bytes())?;
    fixture.change(&MkeyConfig::UNCHANGED, &[entry(&fixture.memory, 0..8)])?;
    let old = fixture.pair.region(&[0; 8]);
    let short = |compare, compare_mask| CompareSwap32 { compare, compare_mask, swap: !0, swap_mask: 0xff00 };
    let long = |compare| CompareSwap64 { compare, compare_mask: 0xff, swap: 0, swap_mask: 0xff << 32 };
    // Each row has an atomic, its address, and the value in memory after the change.
    let cases = [
        // The lowest byte differs from the compared one, and then equals it.
        (long(0xfe), 0, START),
        (long(0xff), 0, 0x7fff_0000_1234_80ff),
        (short(0, 0xff), 4, 0x7fff_ff00_1234_80ff),
        (short(0, 0xff00), 4, 0x7fff_ff00_1234_80ff),
        // The addition overflows both bytes and carries from neither.
        (FetchAdd32 { add: 0x8001, boundary: 0x8080 }, 0, 0x7fff_ff00_1234_0000),
        // Without boundaries, the sum carries through all bytes.
        (FetchAdd64 { add: 0xff_edcc_0000, boundary: 0 }, 0, 0x8000_0000_0000_0000),
        // With a boundary at every bit, the addition is an exclusive or.
        (FetchAdd64 { add: 0x8000_0000_0000_0003, boundary: u64::MAX }, 0, 3),
    ];
    let mut before = START;
    for (index, (atomic, address, after)) in cases.into_iter().enumerate() {
        let remote = Remote { address, rkey: fixture.pair.key(fixture.mkey) };
        fixture.pair.far.request(1).signaled().masked_atomic(remote, atomic, old.place()).map_err(text)?;
        fixture.pair.run_both()?;
        let kind = match atomic {
            CompareSwap32 { .. } | CompareSwap64 { .. } => RequestKind::CompareSwap,
            FetchAdd32 { .. } | FetchAdd64 { .. } => RequestKind::FetchAdd,
        };
        let outcomes: Vec<_> = fixture.pair.wait_far(1)?.iter().map(|it| it.outcome).collect();
        ensure_eq!(outcomes, [Outcome::Sent { kind, bytes: atomic.bytes() }], "completion of atomic {index}");
        let found = fixture.pair.bytes(&old);
        let expected = match atomic.bytes() {
            4 => ((before >> (8 * address)) as u32).to_be_bytes().to_vec(),
            _ => before.to_le_bytes().to_vec(),
        };
        ensure_eq!(part(&found, 0..expected.len()), &expected, "old value of atomic {index}");
        let memory = fixture.pair.board.read(fixture.memory.address, 8);
        ensure_eq!(memory, after.to_le_bytes(), "memory after atomic {index}");
        before = after;
    }
    Ok(())
}

/// An RDMA WRITE and a SEND with inline data store their data through the receiver's mkey.
fn r016_inline_data_through_the_peers_mkey(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::plain(board, PLAIN, &pattern(300, 1))?;
    for length in [1, 11, 12, 13, 28, 60, 61, 300] {
        let data = pattern(length, length as u8);
        let remote = Remote { address: 0, rkey: fixture.pair.key(fixture.mkey) };
        let payload = Payload::Inline(&data);
        fixture.pair.far.request(1).signaled().rdma_write(remote, payload).map_err(text)?;
        let buffer = Sge { address: 0, length: 300, lkey: fixture.pair.key(fixture.mkey) };
        fixture.pair.run_both()?;
        ensure_eq!(fixture.pair.wait_far(1)?.len(), 1, "completions of a write of {length} bytes");
        fixture.holds(&data).within(format_args!("write of {length} bytes"))?;
        fixture.write(&[0; 300]);
        fixture.pair.receive(2, &[buffer])?;
        fixture.pair.far.request(3).signaled().send(payload).map_err(text)?;
        fixture.pair.run_both()?;
        ensure_eq!(fixture.pair.wait_far(1)?.len(), 1, "completions of a send of {length} bytes");
        let received = fixture.pair.wait_near(1)?;
        let outcome = received.first().map(|completion| completion.outcome);
        let message = Outcome::Received { message: Message::Send, bytes: length as u32 };
        ensure_eq!(outcome, Some(message), "receive of {length} bytes");
        fixture.holds(&data).within(format_args!("send of {length} bytes"))?;
    }
    Ok(())
}

/// A SEND and an RDMA WRITE deliver 32 bits of immediate data, together with the data of an mkey.
fn r016_immediate_data_beside_an_mkey(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    let data = pattern(40, 1);
    fixture.install(&[0; 40], None, None)?;
    let source = fixture.pair.region(&data);
    let (sge, inside) = (source.sge(), Sge { address: 0, length: 40, lkey: fixture.pair.key(fixture.mkey) });
    let remote = Remote { address: 0, rkey: fixture.pair.key(fixture.mkey) };
    for write in [false, true] {
        fixture.write(&[0; 40]);
        fixture
            .pair
            .near
            .queues()
            .post_receive(1, if write { &[] } else { core::slice::from_ref(&inside) })
            .map_err(text)?;
        fixture.pair.near.queues().publish_receives();
        let request = fixture.pair.far.request(2).signaled().solicited();
        let (posted, message) = if write {
            (request.rdma_write_imm(remote, 0x1234_5678, &[sge]), Message::WriteImm(0x1234_5678))
        } else {
            (request.send_imm(0x8765_4321, &[sge]), Message::SendImm(0x8765_4321))
        };
        posted.map_err(text)?;
        fixture.pair.run_both()?;
        let received = fixture.pair.wait_near(1)?;
        let outcome = received.first().map(|completion| completion.outcome);
        ensure_eq!(outcome, Some(Outcome::Received { message, bytes: 40 }), "receiver");
        ensure_eq!(fixture.pair.wait_far(1)?.len(), 1, "completions of the sender");
        fixture.holds(&data)?;
    }
    Ok(())
}

/// A SEND without data completes, and consumes a receive request.
fn r016_messages_of_nothing(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    pair.receive(1, &[])?;
    pair.far.request(2).signaled().send(&[]).map_err(text)?;
    pair.run_both()?;
    let received: Vec<_> = pair.wait_near(1)?.iter().map(|completion| completion.outcome).collect();
    ensure_eq!(received, vec![Outcome::Received { message: Message::Send, bytes: 0 }], "receiver");
    ensure_eq!(pair.wait_far(1)?.len(), 1, "completions of the sender");
    Ok(())
}

/// One message takes its data from an mkey with a signature, an mkey without one, and memory without an mkey.
/// A message in the other direction is scattered into the same three.
fn r016_many_segments_and_mkeys_in_one_message(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(1024, 1);
    let signature = BlockSignature::wire(domain(Signature::Crc32c(Seed::Ones)));
    let signed = expected::images(&data, Some(&signature), None).wire;
    let (first, second, third) =
        (pair.region(&data), pair.region(&pattern(100, 2)), pair.region(&pattern(60, 3)));
    let (signing, plain) = (pair.mkey(SIGNATURE), pair.mkey(PLAIN));
    let (ones, twos) = ([entry(&first, 0..1024)], [entry(&second, 50..100), entry(&second, 0..50)]);
    let config = MkeyConfig { signature: SignatureChange::Set(signature), ..ALL_RIGHTS };
    pair.configure(signing, &config, &ones)?;
    pair.configure(plain, &ALL_RIGHTS, &twos)?;
    let sges = [
        Sge { address: 10, length: 80, lkey: pair.key(plain) },
        Sge { address: 0, length: 1032, lkey: pair.key(signing) },
        third.sge(),
    ];
    let space = [part(&pattern(100, 2), 50..100), part(&pattern(100, 2), 0..50)].concat();
    let wire = [part(&space, 10..90), &signed, &pattern(60, 3)].concat();

    let target = pair.region(&vec![0; wire.len()]);
    pair.near.request(1).signaled().rdma_write(target.remote(), &sges).map_err(text)?;
    pair.run_both()?;
    ensure_eq!(pair.wait_near(1)?.len(), 1, "completions");
    same(&pair.bytes(&target), &wire).within("gathered")?;

    pair.board.write(first.address, &[0; 1024]);
    pair.board.write(second.address, &[0; 100]);
    pair.board.write(third.address, &[0; 60]);
    pair.receive(2, &sges)?;
    pair.far.request(3).signaled().send(&[target.sge()]).map_err(text)?;
    pair.run_both()?;
    ensure_eq!(pair.wait_near(1)?.len(), 1, "completions");
    ensure_eq!(pair.wait_far(1)?.len(), 1, "completions of the sender");
    same(&pair.bytes(&first), &data).within("signed mkey")?;
    same(&pair.bytes(&third), &pattern(60, 3)).within("plain memory")?;
    // The message does not touch the first ten and the last ten bytes of the plain mkey's space. In memory
    // these bytes are adjacent, since the mkey's entries exchange two halves.
    let back = [part(&space, 50..90), &[0; 20], part(&space, 10..50)].concat();
    same(&pair.bytes(&second), &back).within("plain mkey")?;
    ensure_eq!(pair.check(signing), Ok(None), "signature error");
    Ok(())
}

/// A message that is longer than a packet moves through an mkey.
fn r016_a_long_message(board: &mut dyn Board) -> Verdict {
    let data = pattern(200_001, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    fixture.both_ways(&expected::Images { memory: data.clone(), wire: data })
}

/// A message that is longer than its receive buffer fails on both sides, each with its own syndrome.
fn r016_a_message_longer_than_its_buffers(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::plain(board, PLAIN, &pattern(64, 1))?;
    let source = fixture.pair.region(&[9; 64]);
    let short = Sge { address: 0, length: 63, lkey: fixture.pair.key(fixture.mkey) };
    fixture.pair.receive(1, &[short])?;
    fixture.pair.far.request(2).signaled().send(&[source.sge()]).map_err(text)?;
    fixture.pair.run_both()?;
    let [receiver, sender] = [fixture.pair.wait_near(1)?, fixture.pair.wait_far(1)?];
    ensure_eq!(syndromes(&receiver), [(1, Some(Syndrome::LOCAL_LENGTH))], "receiver");
    ensure_eq!(syndromes(&sender), [(2, Some(Syndrome::REMOTE_INVALID_REQUEST))], "sender");
    Ok(())
}

/// The first failed request completes with an error, signalled or not. The device executes no request after
/// it: these requests, and receive requests, complete as flushed, in order.
fn r016_a_failure_flushes_what_is_behind_it(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    let target = fixture.pair.region(&[0; 8]);
    let source = fixture.pair.region(&[1; 8]);
    let unconfigured = Sge { address: 0, length: 8, lkey: fixture.pair.key(fixture.mkey) };
    let remote = target.remote();
    for id in 20..23 {
        fixture.pair.near.queues().post_receive(id, &[source.sge()]).map_err(text)?;
    }
    fixture.pair.near.queues().publish_receives();
    fixture.pair.near.request(1).signaled().nop().map_err(text)?;
    fixture.pair.near.request(2).rdma_write(remote, &[unconfigured]).map_err(text)?;
    fixture.pair.near.request(3).signaled().rdma_write(remote, &[source.sge()]).map_err(text)?;
    fixture.pair.near.request(4).rdma_write(remote, &[source.sge()]).map_err(text)?;
    fixture.pair.near.request(5).signaled().nop().map_err(text)?;
    fixture.pair.run_both()?;
    let (sent, received): (Vec<_>, Vec<_>) =
        syndromes(&fixture.pair.wait_near(8)?).into_iter().partition(|(id, _)| *id < 20);
    let flushed = Some(Syndrome::FLUSHED);
    let (failed, done) = (Some(Syndrome::LOCAL_PROTECTION), None);
    ensure_eq!(sent, vec![(1, done), (2, failed), (3, flushed), (4, flushed), (5, flushed)], "send queue");
    ensure_eq!(received, vec![(20, flushed), (21, flushed), (22, flushed)], "receive queue");
    ensure_eq!(fixture.pair.bytes(&target), [0; 8], "the target of flushed writes");
    ensure_eq!(fixture.pair.near.counters().outstanding, 0, "outstanding requests");
    Ok(())
}

/// One series of requests transfers wrong data out of one mkey and correct data out of another. Only the mkey
/// with wrong data reports an error.
fn r016_good_and_bad_data_in_one_chain(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let own = domain(Signature::T10Dif(DIF));
    let stream = expected::sign(&pattern(512, 1), Some(&own));
    let mut mkeys = Vec::new();
    for bytes in [flipped(&stream, 9, 1), stream.clone()] {
        let region = pair.region(&bytes);
        let entries = [entry(&region, 0..520)];
        let mkey = pair.mkey(SIGNATURE);
        let signature = SignatureChange::Set(BlockSignature::memory(own));
        pair.configure(mkey, &MkeyConfig { access: Some(Access::NONE), signature, crypto: None }, &entries)?;
        mkeys.push(mkey);
    }
    let target = pair.region(&[0; 512]);
    for (id, mkey) in (1..).zip(&mkeys) {
        let sge = Sge { address: 0, length: 512, lkey: pair.key(*mkey) };
        pair.near.request(id).signaled().rdma_write(target.remote(), &[sge]).map_err(text)?;
    }
    pair.run_both()?;
    ensure_eq!(ids(&pair.wait_near(2)?), [1, 2], "completions");
    same(&pair.bytes(&target), part(&stream, 0..512))?;
    let told: Vec<bool> = mkeys.iter().map(|mkey| matches!(pair.check(*mkey), Ok(Some(_)))).collect();
    ensure_eq!(told, vec![true, false], "mkeys with an error");
    same(&pair.tx(Tx::Send, *mkeys.last().ok_or("two mkeys")?, 0, 512)?.ok()?, part(&stream, 0..512))
}
