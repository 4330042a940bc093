//! Measurements of queues on hardware: where a draining send queue stops, and the completion queue to which
//! signature errors go.

use super::super::fixture::{DIF, MkeyFixture, SIGNATURE, dif_domain, flipped, pattern};
use super::super::state::draining;
use super::measurement::{Measurement, Tell, measurement, told};
use crate::board::{Board, EndSpec};
use crate::expected;
use crate::qp_pair::{Verdict, text};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::mkey::BlockSignature;
use mlx5_mkey::types::BlockSize;
use mlx5_mkey::wire::cqe::Cqe;
use mlx5_mkey::wqe::{Remote, Sge};

pub(super) const ALL: &[Measurement] = &[
    measurement!(gap24_where_a_draining_queue_stops, DRAIN),
    measurement!(gap25_completion_queue_of_signature_errors, SIGNATURE),
];

/// Publishes an RDMA WRITE of data with a wrong signature and three more, on a queue that drains on signature
/// errors, with and without a fence. Reports which of them complete before the queue stops, and the number of
/// the request at which the queue stops.
fn gap24_where_a_draining_queue_stops(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    for (what, is_fenced) in [("with a fence", true), ("without a fence", false)] {
        let (mut fixture, remote, sge) = draining(board, true)?;
        let pair = &mut fixture.pair;
        pair.near.hold_back();
        let note = pair.region(&pattern(64, 2));
        let inbox = pair.region(&[0; 64]);
        pair.near.request(1).signaled().rdma_write(remote, &[sge]).map_err(text)?;
        let mut starts = Vec::new();
        for id in 2..=4 {
            starts.push(pair.near.counters().producer as u16);
            let request = pair.near.request(id).signaled();
            let request = if is_fenced { request.fenced() } else { request };
            request.rdma_write(inbox.remote(), &[note.sge()]).map_err(text)?;
        }
        let done = told(&pair.complete_near(4)?);
        let stand = pair.board.drained_at(&pair.near);
        let place = stand.map(|stand| starts.iter().position(|start| *start == stand));
        let stand = match place {
            None => "it does not stop".into(),
            Some(None) => format!("it stops at block {}, the others begin at {starts:?}", stand.unwrap_or(0)),
            Some(Some(index)) => format!("it stops at request {}", index + 2),
        };
        let event = pair.board.event(&pair.near);
        let event = event.map_or("no event".into(), |event| format!("event {event:?}"));
        tell(&format!("a draining queue, {what} behind the error"), &format!("{done}; {stand}; {event}"));
    }
    Ok(())
}

/// Reports which completion queue gets the signature errors of a queue pair with two: errors that the queue
/// pair finds as a requester, in data that it receives, and in data that the peer reads and writes.
fn gap25_completion_queue_of_signature_errors(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let own = dif_domain(DIF, BlockSize::B512);
    let data = pattern(512, 1);
    let bad = flipped(&expected::sign(&data, Some(&own)), 0, 1);
    let (wire, memory) = (BlockSignature::wire(own), BlockSignature::memory(own));
    for (what, signature, entries) in [
        ("in its own RDMA READ", wire, 2),
        ("in its own RDMA WRITE", memory, 2),
        ("in what it receives", wire, 2),
        ("in the peer's RDMA WRITE", wire, 1),
        ("in the peer's RDMA READ", memory, 1),
    ] {
        let mut fixture = MkeyFixture::new(board, SIGNATURE);
        fixture.pair.reconnect_as(EndSpec { own_receive_completions: true, ..EndSpec::default() });
        fixture.renew_mkey();
        let inside = if signature == wire { &data[..] } else { &bad[..] };
        fixture.install(inside, Some(&signature), None)?;
        let (length, mkey, pair) =
            (if signature == wire { 520 } else { 512 }, fixture.mkey, &mut fixture.pair);
        let far = pair.region(&bad);
        let place = Sge { address: 0, length, lkey: pair.key(mkey) };
        let outside = Sge { address: far.address, length, lkey: far.key };
        let ours = Remote { address: 0, rkey: pair.key(mkey) };
        match what {
            "in its own RDMA READ" => pair.near.request(1).signaled().rdma_read(far.remote(), &[place]),
            "in its own RDMA WRITE" => pair.near.request(1).signaled().rdma_write(far.remote(), &[place]),
            "in what it receives" => {
                pair.receive(1, &[place])?;
                pair.far.request(2).signaled().send(&[outside][..])
            }
            "in the peer's RDMA WRITE" => pair.far.request(2).signaled().rdma_write(ours, &[outside]),
            _ => pair.far.request(2).signaled().rdma_read(ours, &[outside]),
        }
        .map_err(text)?;
        pair.run_both()?;
        let [sends, receives] = pair.wait_entries(entries).map(|entries| kinds(&entries));
        let value = format!("completion queue of sends: {sends}; of receives: {receives}");
        tell(&format!("a signature error {what}"), &value);
    }
    Ok(())
}

/// Returns the kinds of completion entries in words.
fn kinds(entries: &[Cqe]) -> String {
    let kinds: Vec<String> = entries.iter().map(|entry| text(entry.opcode())).collect();
    if kinds.is_empty() { "none".into() } else { kinds.join(", ") }
}
