//! Tests of the reset of a queue pair, also of a reset that the device refuses half-way.

use super::{Bench, Inside, executed, next_work, nop, page, preloaded, verbs};
use mlx5_mkey::devx::{Buffer, CqReader, QueuePair, QueuePairSpec};
use mlx5_mkey::queue::{Outcome, RequestKind};
use mlx5_mkey::wqe::{Local, Remote};

/// Waits for a completion, which must be without an error, and returns the id of its request.
fn completed(queue: &mut QueuePair, completions: &mut CqReader) -> u64 {
    let done = next_work(completions, queue);
    assert!(matches!(done.outcome, Outcome::Sent { .. }), "{done:?}");
    done.id
}

#[test]
fn a_reset_that_is_refused_half_way_runs_nothing_again() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::new(QueuePairSpec { memcpy: true, ..QueuePairSpec::default() }).unwrap();
    let mut page = page(&bench.pd, &[]).unwrap();
    let sge = |page: &Buffer| page.sge(0..8).unwrap();
    let remote = Remote { address: page.address() + 512, rkey: page.rkey() };
    let mut id = 0;
    // `nth` is the command of the reset that fails: to RESET, to INIT, or the permission to copy memory.
    // A fourth command does not exist.
    for (nth, refused) in [(1, true), (2, true), (3, true), (4, false)] {
        let Bench { queue, completions, .. } = &mut bench;
        page.write(0, b"old data").unwrap();
        queue.request(id).signaled().rdma_write(remote, &[sge(&page)]).unwrap();
        queue.post_receive(id + 1, &[]).unwrap();
        queue.publish_receives();
        queue.ring_doorbell();
        executed(queue);
        // The program now uses the memory for something else.
        page.write(512, b"new use!").unwrap();
        verbs::fail(nth, libc::EREMOTEIO, 8);
        let outcome = queue.reset(&mut [completions]);
        verbs::fail(0, 0, 0);
        let outstanding = if refused {
            outcome.unwrap_err();
            // A queue pair can be connected from INIT, and it is in INIT only if the third command has
            // failed. Executed requests are not executed again.
            let is_connected = queue.control().connect_loopback().is_ok();
            assert_eq!(is_connected, nth == 3);
            if nth > 1 {
                nop(queue, id + 2);
            }
            if is_connected {
                assert_eq!(completed(queue, completions), id + 2);
            }
            queue.reset(&mut [completions]).unwrap()
        } else {
            outcome.unwrap()
        };
        let sends = if nth == 2 { vec![id, id + 2] } else { vec![id] };
        assert_eq!(outstanding.sends, sends, "command {nth}: each once");
        assert_eq!(outstanding.receives, [id + 1]);
        queue.control().connect_loopback().unwrap();
        nop(queue, id + 3);
        assert_eq!(completed(queue, completions), id + 3);
        let mut found = [0; 8];
        page.read(512, &mut found).unwrap();
        assert_eq!(&found, b"new use!", "command {nth}: an old request ran again");
        assert!(queue.reset(&mut [completions]).unwrap().sends.is_empty());
        queue.control().connect_loopback().unwrap();
        id += 4;
    }
}

#[test]
fn a_queue_pair_copies_memory_again_after_a_reset() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::new(QueuePairSpec { memcpy: true, ..QueuePairSpec::default() }).unwrap();
    for text in [&b"once"[..], b"once more"] {
        let mut page = page(&bench.pd, text).unwrap();
        let place = |offset| Local { address: page.address() + offset, lkey: page.lkey() };
        bench.queue.request(1).signaled().memcpy(place(64), place(0), text.len() as u32).unwrap();
        bench.queue.ring_doorbell();
        assert_eq!(bench.next().outcome, Outcome::Sent { kind: RequestKind::Memcpy, bytes: 0 });
        let mut copied = vec![0; text.len()];
        page.read(64, &mut copied).unwrap();
        assert_eq!(copied, text);
        page.write(64, &[0; 64]).unwrap();
        bench.queue.reset(&mut [&mut bench.completions]).unwrap();
        bench.queue.control().connect_loopback().unwrap();
    }
}
