//! Tests of completion queues: they have room for all possible completions, and forget destroyed queue pairs
//! and mkeys.

use super::{
    Bench, Inside, Outcome, TIMEOUT, device_and_domain, executed, next_work, page, preloaded,
    send_badly_signed, take, verbs, write,
};
use mlx5_mkey::devx::{Cq, CqSpec, Device, DevxError, MkeySpec, ProtectionDomain, QueuePair, QueuePairSpec};
use mlx5_mkey::error::PostError;
use mlx5_mkey::queue::{Outcome as Done, QpRouter};
use std::time::Instant;

type Queue = QueuePair;

fn connected(device: &Device, pd: &ProtectionDomain, cq: &Cq, spec: QueuePairSpec) -> Outcome<Queue> {
    let queue = device.create_qp(pd, cq, cq, spec)?;
    queue.control().connect_loopback()?;
    Ok(queue)
}

/// Returns the numbers of needed and of free entries, if a call is refused because the completion queue has
/// too few entries.
fn lacking<T>(outcome: Outcome<T>) -> Option<(u32, u32)> {
    match outcome.map(drop) {
        Err(DevxError::CompletionQueueTooSmall { needed, free, .. }) => Some((needed, free)),
        _ => None,
    }
}

#[test]
fn what_may_complete_is_counted() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let spec = QueuePairSpec::default();
    let (small, _reader) = device.create_cq(4).unwrap();
    assert_eq!(lacking(connected(&device, &pd, &small, spec)), Some((64, 4)));
    assert_eq!(small.free_entries(), 4, "what is refused has set nothing aside");
    let (cq, mut reader) = device.create_cq(128).unwrap();
    let limited = QueuePairSpec { max_requests: Some(24), ..spec };
    let mut queue = connected(&device, &pd, &cq, limited).unwrap();
    assert_eq!(cq.free_entries(), 128 - 24 - 16);
    let signature = MkeySpec { max_entries: 4, signature: Some(&cq), ..MkeySpec::default() };
    let mkeys = pd.create_mkeys(80, signature).unwrap();
    assert_eq!(lacking(connected(&device, &pd, &cq, spec)), Some((64, 8)));
    let more = pd.create_mkeys(8, signature).unwrap();
    assert_eq!(lacking(pd.create_mkey(signature)), Some((1, 0)));
    // The limit on requests applies when a request is posted. The queue has room for the completions of
    // silent requests, which complete when they are flushed.
    for id in 0..24 {
        queue.request(id).nop().unwrap();
    }
    assert_eq!(queue.request(24).nop(), Err(PostError::TooManyRequests { needed: 1, free: 0 }));
    queue.control().fail().unwrap();
    queue.ring_doorbell();
    let done = take(&mut reader, &mut queue, 24);
    assert!(done.iter().all(|completion| matches!(
        completion.work(),
        Some(work) if matches!(work.outcome, Done::Failed(_))
    )));
    // The completion entries that are reserved for dropped mkeys become free at the next poll of the queue.
    drop((mkeys, more));
    assert_eq!(cq.free_entries(), 0);
    take(&mut reader, &mut queue, 0);
    assert_eq!(reader.poll(&mut QpRouter { queues: &mut queue, mkeys: &mut [] }), None);
    assert_eq!(cq.free_entries(), 88);
    drop(queue);
    // A program may explicitly choose a completion queue that ignores overruns.
    let (unbounded, _reader) = device.create_cq(CqSpec { ignore_overrun: true, ..CqSpec::from(4) }).unwrap();
    connected(&device, &pd, &unbounded, spec).unwrap();
    // An mkey with a signature is refused, because a signature error could be overwritten before it is
    // reported.
    let signature = MkeySpec { signature: Some(&unbounded), ..signature };
    let refused = pd.create_mkey(signature).map(drop);
    assert!(matches!(refused, Err(DevxError::ErrorsOverwritten { cq }) if cq == unbounded.number()));
}

#[test]
fn a_wrong_size_is_named() {
    let Inside = preloaded() else { return };
    let Bench { device, pd, cq, .. } = Bench::new(QueuePairSpec::default()).unwrap();
    let spec = QueuePairSpec::default();
    for (spec, text) in [
        (
            QueuePairSpec { send_blocks: 100, ..spec },
            "100 blocks of a send queue: a power of two up to 32768",
        ),
        (
            QueuePairSpec { receive_slots: 3, ..spec },
            "3 slots of a receive queue: a power of two up to 32768",
        ),
        (
            QueuePairSpec { entries_per_slot: 256, ..spec },
            "256 entries of a receive slot: a power of two up to 128",
        ),
    ] {
        let error = device.create_qp(&pd, &cq, &cq, spec).map(drop).unwrap_err();
        assert!(matches!(error, DevxError::Queue(_)) && error.to_string().contains(text), "{error}");
    }
    let error = device.create_cq(5).map(drop).unwrap_err();
    assert!(error.to_string().contains("5 entries of a completion queue: a power of two"), "{error}");
}

#[test]
fn completions_go_with_their_queue_pair() {
    let Inside = preloaded() else { return };
    let Bench { device, pd, cq, mut completions, queue: mut stays } =
        Bench::new(QueuePairSpec { max_requests: Some(4), ..QueuePairSpec::default() }).unwrap();
    verbs::reuse_numbers();
    let page = page(&pd, &[7; 64]).unwrap();
    let spec = QueuePairSpec { max_requests: Some(4), ..QueuePairSpec::default() };
    for round in 0..100 {
        // Completions of both queue pairs are waiting when one of them is dropped.
        let mut goes = connected(&device, &pd, &cq, spec).unwrap();
        write(&mut goes, 1000, &page);
        write(&mut stays, round, &page);
        write(&mut goes, 1001, &page);
        executed(&goes);
        executed(&stays);
        let gone = goes.qpn();
        drop(goes);
        if round % 4 == 3 {
            // In some rounds, the next queue pair is made before the completion queue is polled.
            let mut next = connected(&device, &pd, &cq, spec).unwrap();
            assert_ne!(next.qpn(), gone, "its completions are still there");
            write(&mut next, 2000, &page);
        }
        assert_eq!(next_work(&mut completions, &mut stays).id, round);
    }
}

#[test]
fn a_signature_error_goes_with_its_mkey() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    verbs::reuse_numbers();
    let page = page(&bench.pd, &[0x5a; 2048]).unwrap();
    let bad = send_badly_signed(&mut bench, &page);
    let index = bad.mkey.key().index();
    executed(&bench.queue);
    drop(bad);
    let spec = MkeySpec { max_entries: 4, signature: Some(&bench.cq), ..MkeySpec::default() };
    let mut mkeys = bench.pd.create_mkeys(4, spec).unwrap();
    assert!(mkeys.iter().all(|mkey| mkey.key().index() != index), "its error may still be there");
    let mut router = QpRouter { queues: &mut bench.queue, mkeys: &mut mkeys };
    let end = Instant::now() + TIMEOUT.unwrap();
    let mut ids = Vec::new();
    while ids.last() != Some(&3) {
        ids.extend(bench.completions.poll(&mut router).map(|done| done.unwrap().work().unwrap().id));
        assert!(Instant::now() < end, "{ids:?}");
    }
    assert_eq!(ids, [2, 3]);
}
