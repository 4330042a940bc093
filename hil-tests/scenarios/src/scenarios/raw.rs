//! WQEs that the program builds as raw bytes, and requests that copy local memory.

use super::fixture::{ALL_RIGHTS, MkeyFixture, PLAIN, entry, part, pattern};
use super::scenario::{Scenario, scenario};
use crate::board::Board;
use crate::qp_pair::{QpPairFixture, Region, Verdict, syndromes, text};
use crate::{ensure, ensure_eq};
use alloc::vec::Vec;
use mlx5_mkey::error::PostError;
use mlx5_mkey::inspect::{DeviceContext, WorkRequest};
use mlx5_mkey::mkey::Access;
use mlx5_mkey::queue::{Outcome, RequestKind};
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::OCTOWORD_BYTES;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wire::ctrl::{ControlSegment, FmCeSe, Opcode, OpcodeWord, QpnDs};
use mlx5_mkey::wire::data::{DataSegment, RemoteAddressSegment};
use mlx5_mkey::wqe::{Local, Sge};
use zerocopy::IntoBytes;

pub(super) const ALL: &[Scenario] = &[
    scenario!(m46_a_request_in_bytes_moves_data, NOTHING, ["M46", "M41"]),
    scenario!(m46_a_request_in_bytes_configures_an_mkey, NOTHING, ["M46"]),
    scenario!(m46_a_request_in_bytes_fails_as_others_do, NOTHING, ["M46"]),
    scenario!(m45_memory_is_copied_without_a_peer, MEMCPY, ["M45", "M41"]),
    scenario!(m45_copies_have_limits, MEMCPY, ["M45"]),
    scenario!(m45_a_copy_needs_the_right_to_write, MEMCPY, ["M45"]),
];

/// Makes a WQE with these segments. Its block number and queue pair number are placeholders, which the
/// library replaces.
pub(super) fn wqe(opcode: Opcode, segments: &[&[u8]]) -> Vec<u8> {
    let octowords = 1 + segments.concat().len() / OCTOWORD_BYTES;
    let ds = u8::try_from(octowords).unwrap_or(u8::MAX);
    let control = ControlSegment {
        opmod_idx_opcode: OpcodeWord::new().with_opcode(opcode.0).with_wqe_index(0x5a5a).into_bits().into(),
        qpn_ds: QpnDs::new().with_qpn(0x00a5_a5a5).with_ds(ds).into_bits().into(),
        ..ControlSegment::default()
    };
    [&[control.as_bytes()], segments].concat().concat()
}

pub(super) fn data(sge: Sge) -> DataSegment {
    DataSegment { byte_count: sge.length.into(), lkey: sge.lkey.get().into(), address: sge.address.into() }
}

fn remote(region: &Region) -> RemoteAddressSegment {
    let (address, rkey) = (region.address.into(), region.key.get().into());
    RemoteAddressSegment { address, rkey, reserved: 0.into() }
}

/// Rings the near end's doorbell, and checks that the requests complete with these ids and kinds.
fn completed(pair: &mut QpPairFixture<'_>, expected: &[(u64, RequestKind)]) -> Verdict {
    let done = pair.complete_near(expected.len())?;
    let kinds: Vec<_> = done
        .iter()
        .map(|work| match work.outcome {
            Outcome::Sent { kind, .. } => Ok((work.id, kind)),
            outcome => Err(format!("request {}: {outcome:?}", work.id)),
        })
        .collect::<Result<_, _>>()?;
    ensure_eq!(kinds, expected, "completions");
    Ok(())
}

/// A WQE of raw bytes performs an RDMA WRITE of an mkey's space to the peer. The WQE is posted behind a
/// configuration, so the library adds the fence to it.
fn m46_a_request_in_bytes_moves_data(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    let bytes = pattern(700, 1);
    let (mkey, pair) = (fixture.mkey, &mut fixture.pair);
    let (memory, far) = (pair.region(&bytes), pair.region(&[0; 700]));
    let entries = [entry(&memory, 0..123), entry(&memory, 123..700)];
    let prepared = pair.prepare(mkey, &ALL_RIGHTS).map_err(text)?;
    let inside = Sge { address: 0, length: 700, lkey: pair.key(mkey) };
    let request = wqe(Opcode::RDMA_WRITE, &[remote(&far).as_bytes(), data(inside).as_bytes()]);
    let parsed = WorkRequest::parse(&request).map_err(text)?;
    ensure_eq!(parsed.refusal(&DeviceContext::UNKNOWN), None, "what a device would refuse");
    pair.post_prepared(mkey, &prepared, &entries).map_err(text)?;
    pair.near.request(1).signaled().raw(&request).map_err(text)?;
    // The library refuses a WQE whose size field exceeds the limit (64 octowords) or the bytes that the
    // caller passed. A refusal changes nothing.
    let longer = wqe(Opcode::RDMA_WRITE, &[&[0; 64 * OCTOWORD_BYTES]]);
    let refused = pair.near.request(2).raw(&longer);
    ensure_eq!(refused, Err(PostError::RawSize { octowords: 65 }), "a request of 65 octowords");
    let refused = pair.near.request(2).raw(part(&request, 0..47));
    ensure_eq!(refused, Err(PostError::RawTooShort { needed: 48, have: 47 }), "47 bytes of 48");
    pair.near.request(3).signaled().nop().map_err(text)?;
    let done = [
        (crate::qp_pair::CONFIGURE, RequestKind::MkeyConfigure),
        (1, RequestKind::Raw),
        (3, RequestKind::Nop),
    ];
    completed(pair, &done)?;
    ensure_eq!(pair.bytes(&far), bytes, "what the peer has");
    Ok(())
}

/// A WQE of raw bytes configures an mkey. Its bytes are a UMR that the library wrote for another mkey, with
/// the key changed. The library adds the fence to the request after it.
fn m46_a_request_in_bytes_configures_an_mkey(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let bytes = pattern(512, 2);
    let (memory, far) = (pair.region(&bytes), pair.region(&[0; 512]));
    let [first, second] = [pair.mkey(PLAIN), pair.mkey(PLAIN)];
    let begin = pair.near.counters().producer;
    pair.configure(first, &ALL_RIGHTS, &[entry(&memory, 0..512)])?;
    let end = pair.near.counters().producer;
    let mut umr: Vec<u8> = (begin..end).flat_map(|at| pair.near.queues().block(at).0).collect();
    // Replaces the key in the control segment and the tag in the mkey context by those of the second mkey.
    let key = pair.key(second);
    for (at, new) in [(12, &key.get().to_be_bytes()[..]), (64 + 7, &[key.tag()])] {
        umr.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = *new);
    }
    if let Some(flags) = umr.get_mut(11) {
        *flags = FmCeSe::new().with_ce(FmCeSe::CE_ERROR_ONLY).into_bits();
    }
    // The library does not know how a raw WQE changes an mkey. So the caller has to mark the mkey's
    // properties as unknown.
    if let Some(mkey) = pair.mkeys.get_mut(second) {
        mkey.forget();
    }
    let inside = Sge { address: 0, length: 512, lkey: key };
    pair.near.request(1).raw(&umr).map_err(text)?;
    pair.near.request(2).signaled().rdma_write(far.remote(), &[inside]).map_err(text)?;
    completed(&mut pair, &[(2, RequestKind::RdmaWrite)])?;
    ensure_eq!(pair.bytes(&far), bytes, "what the peer has");
    // A complete configuration by the library is possible again.
    pair.configure(second, &ALL_RIGHTS, &[entry(&memory, 0..100)])
}

/// A WQE of raw bytes that the device refuses completes with an error, and later requests are flushed.
fn m46_a_request_in_bytes_fails_as_others_do(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let far = pair.region(&[0; 64]);
    let unknown = Sge { address: 0, length: 64, lkey: Key::from_raw(0x00ff_ff00) };
    let request = wqe(Opcode::RDMA_WRITE, &[remote(&far).as_bytes(), data(unknown).as_bytes()]);
    pair.near.request(1).raw(&request).map_err(text)?;
    pair.near.request(2).raw(&request).map_err(text)?;
    let done = pair.complete_near(2)?;
    let expected = [(1, Some(Syndrome::LOCAL_PROTECTION)), (2, Some(Syndrome::FLUSHED))];
    ensure_eq!(syndromes(&done), expected, "completions");
    Ok(())
}

/// A request copies local memory without a peer. A transfer after its completion sends the copied bytes.
fn m45_memory_is_copied_without_a_peer(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, PLAIN);
    let bytes = pattern(3000, 3);
    let memory = fixture.pair.region(&[0; 3000]);
    let (from, far) = (fixture.pair.region(&bytes), fixture.pair.region(&[0; 3000]));
    let (mkey, pair) = (fixture.mkey, &mut fixture.pair);
    // The target of the copy is an mkey that maps its memory in swapped parts.
    pair.configure(mkey, &ALL_RIGHTS, &[entry(&memory, 1000..3000), entry(&memory, 0..1000)])?;
    let to = Local { address: 0, lkey: pair.key(mkey) };
    pair.near.request(1).signaled().memcpy(to, from.place(), 3000).map_err(text)?;
    // No fence makes a request wait for a copy. So the scenario waits for the copy's completion.
    completed(pair, &[(1, RequestKind::Memcpy)])?;
    pair.near.request(2).signaled().rdma_write(far.remote(), &[memory.sge()]).map_err(text)?;
    completed(pair, &[(2, RequestKind::RdmaWrite)])?;
    let copied = [part(&bytes, 2000..3000), part(&bytes, 0..2000)].concat();
    ensure_eq!(pair.bytes(&memory), copied, "what was copied");
    ensure_eq!(pair.bytes(&far), copied, "what the peer has");
    Ok(())
}

/// The library refuses a copy of 0 bytes, or of more than the device's limit.
fn m45_copies_have_limits(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let (from, to) = (pair.region(&pattern(64, 4)), pair.region(&[0; 64]));
    let (here, there) = (from.place(), to.place());
    let refused = pair.near.request(1).memcpy(there, here, 0);
    ensure_eq!(refused, Err(PostError::MemcpyEmpty), "a copy of nothing");
    let refused = pair.near.request(1).memcpy(there, here, u32::MAX);
    ensure!(matches!(refused, Err(PostError::MemcpyTooLong { mebibytes: 4096, .. })), "4 GiB: {refused:?}");
    pair.near.request(2).signaled().memcpy(there, here, 1).map_err(text)?;
    completed(&mut pair, &[(2, RequestKind::Memcpy)])?;
    let expected = [part(&pair.bytes(&from), 0..1), &[0; 63]].concat();
    ensure_eq!(pair.bytes(&to), expected, "one byte");
    Ok(())
}

/// A copy to memory whose key grants no local write fails with a local protection error, and writes nothing.
fn m45_a_copy_needs_the_right_to_write(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let (from, to) = (pair.region(&pattern(64, 5)), pair.region(&[0; 64]));
    let lkey = pair.board.register(to.address, to.length, Access::NONE);
    pair.near.request(1).memcpy(Local { address: to.address, lkey }, from.place(), 64).map_err(text)?;
    let done = syndromes(&pair.complete_near(1)?);
    ensure_eq!(done, [(1, Some(Syndrome::LOCAL_PROTECTION))], "a copy without the right to write");
    ensure_eq!(pair.bytes(&to), [0; 64], "what was not to be written");
    Ok(())
}
