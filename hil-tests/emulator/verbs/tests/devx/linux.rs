//! Tests of the library's module `devx` where Linux refuses a command or a kind of page, and of the
//! alternatives that `devx` then uses.

use super::adopt::INTO_MEMORY;
use super::verbs::{self, Counts};
use super::verbs_qp::{Sizes, VerbsQp};
use super::{Bench, TIMEOUT, device_and_domain, draining, page, says, send_badly_signed};
use mlx5_mkey::command::{Init2Init, QpState};
use mlx5_mkey::devx::{AdoptSpec, DevxError, MkeyObject, QueuePair, QueuePairSpec};
use mlx5_mkey::queue::{Completion, QpRouter};
use mlx5_mkey::wire::prm::command::Opcode;
use mlx5_testing::preload::{Side::Inside, preloaded, preloaded_with};
use std::time::Instant;

#[test]
fn a_queue_pair_that_could_not_go_on_is_refused_before_it_stops() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let (cq, _completions) = device.create_cq(128).unwrap();
    let before = Counts::now();
    let refused = device.create_qp(&pd, &cq, &cq, draining()).map(drop).unwrap_err();
    assert!(matches!(refused, DevxError::KernelRefuses { command: Opcode::SQD_RTS_QP, .. }), "{refused:?}");
    says(&refused.to_string(), &["the kernel lets no SQD_RTS_QP through", "adopt_qp"]);
    assert_eq!(Counts::now(), before, "nothing is left of it");
}

/// Takes over a queue pair of libibverbs, and makes the queue pair stop at signature errors.
fn adopted(theirs: &VerbsQp) -> Bench {
    let device = theirs.opened.adopt().unwrap();
    let pd = theirs.adopt_pd(&device).unwrap();
    let (cq, completions) = theirs.adopt_cq(&device).unwrap();
    let spec = AdoptSpec { signal_all: false, max_requests: Some(8) };
    let queue: QueuePair = theirs.adopt_qp(&device, &pd, [&cq, &cq], spec).unwrap();
    let mut bench = Bench { device, pd, cq, completions, queue };
    bench.queue.reset(&mut [&mut bench.completions]).unwrap();
    let drain = Init2Init { drain_signature_errors: Some(true), ..Init2Init::new(bench.queue.qpn()) };
    verbs::modify(bench.queue.control(), &drain).unwrap();
    bench.queue.control().connect_loopback().unwrap();
    bench
}

/// Takes completions of `count` requests, and returns the ids of the requests. Signature errors between them
/// go to the mkey.
fn names(bench: &mut Bench, object: &mut MkeyObject, count: usize) -> Vec<u64> {
    let end = Instant::now() + TIMEOUT.unwrap();
    let mut taken = Vec::new();
    while taken.len() < count {
        let mkeys = std::slice::from_mut(&mut object.mkey);
        match bench.completions.poll(&mut QpRouter { queues: &mut bench.queue, mkeys }) {
            Some(Ok(Completion::Work(work))) => taken.push(work.id),
            Some(Ok(_)) => {}
            Some(Err(error)) => panic!("{error}"),
            None => assert!(Instant::now() < end, "{taken:?}, no more"),
        }
    }
    taken
}

/// Waits until the device has stopped the send queue. Returns the number of the next block to execute.
fn stands(bench: &Bench) -> u16 {
    let end = Instant::now() + TIMEOUT.unwrap();
    loop {
        let info = bench.queue.control().query().unwrap();
        if info.state == QpState::SQ_DRAINED {
            return info.next_send_block;
        }
        assert!(Instant::now() < end, "the queue does not stop");
        std::thread::yield_now();
    }
}

/// A send queue that has stopped at a signature error can be resumed, if libibverbs has made its queue pair.
#[test]
fn a_queue_pair_of_libibverbs_goes_on_behind_a_signature_error() {
    let Inside = preloaded_with(&[INTO_MEMORY]) else { return };
    let theirs = VerbsQp::connected(Sizes::SMALL);
    let mut bench = adopted(&theirs);
    let page = page(&bench.pd, &[0x5a; 2048]).unwrap();
    let mut object = send_badly_signed(&mut bench, &page);
    assert_eq!(names(&mut bench, &mut object, 1), [2]);
    let next = stands(&bench);
    assert_eq!(next, bench.queue.producer().wrapping_sub(1) as u16, "before the fenced request");
    bench.queue.control().resume().unwrap();
    assert_eq!(names(&mut bench, &mut object, 1), [3]);
    assert_eq!(bench.queue.control().query().unwrap().state, QpState::RTS);
    assert!(bench.completions.check(&mut object.mkey).unwrap().is_some());
    // A queue pair that has not drained cannot be resumed.
    assert!(matches!(bench.queue.control().resume(), Err(DevxError::Call { what: "ibv_modify_qp", .. })));
    assert_eq!(bench.queue.control().query().unwrap().state, QpState::RTS);
    drop((page, object, bench));
    theirs.destroy();
    assert_eq!(Counts::now(), Counts::NONE);
}

/// Requests that are cancelled while the queue is drained complete without an effect. libibverbs has made the
/// queue pair.
#[test]
fn requests_of_a_queue_pair_of_libibverbs_are_cancelled_while_it_stands() {
    let Inside = preloaded_with(&[INTO_MEMORY]) else { return };
    let theirs = VerbsQp::connected(Sizes::SMALL);
    let mut bench = adopted(&theirs);
    let page = page(&bench.pd, &[0x5a; 2048]).unwrap();
    for id in [100, 101] {
        bench.queue.post_receive(id, &[page.sge(1600..1608).unwrap()]).unwrap();
    }
    bench.queue.publish_receives();
    let mut object = send_badly_signed(&mut bench, &page);
    let message = [page.sge(0..8).unwrap()];
    bench.queue.request(7).signaled().send(&message).unwrap();
    bench.queue.request(8).signaled().send(&message).unwrap();
    bench.queue.ring_doorbell();
    assert_eq!(names(&mut bench, &mut object, 1), [2]);
    let stand = stands(&bench);
    assert_eq!(bench.queue.cancel(9, stand), Ok(0), "requests with another name");
    assert_eq!(bench.queue.cancel(7, stand), Ok(1));
    bench.queue.control().resume().unwrap();
    let mut done = names(&mut bench, &mut object, 4);
    done.sort_unstable();
    assert_eq!(done, [3, 7, 8, 100], "one message has arrived");
    drop((page, object, bench));
    theirs.destroy();
}

#[test]
fn a_queue_pair_has_a_plain_doorbell_where_the_kernel_has_no_other() {
    for value in ["yes", "no"] {
        let Inside = preloaded_with(&[("MLX5_UVERBS_WRITE_COMBINING", value)]) else { continue };
        let has = std::env::var("MLX5_UVERBS_WRITE_COMBINING").unwrap() == "yes";
        let spec = QueuePairSpec { blue_flame: true, ..QueuePairSpec::default() };
        let mut bench = Bench::new(spec).unwrap();
        assert_eq!(bench.queue.control().has_blue_flame(), has);
        let page = page(&bench.pd, &[7; 64]).unwrap();
        bench.write(&page, page.rkey());
        bench.completed();
        assert!(!Bench::new(QueuePairSpec::default()).unwrap().queue.control().has_blue_flame());
        // Without BlueFlame, libmlx5 can make its own queue pairs, too.
        VerbsQp::connected(Sizes::SMALL);
    }
}
