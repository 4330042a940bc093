//! Tests of queues that libibverbs has made and connected, and that the library's module `devx` takes over.

use super::verbs::Counts;
use super::verbs_qp::{Sizes, VerbsQp};
use super::{MOMENT, next_work, nop, rdma_write};
use mlx5_mkey::command::QpState;
use mlx5_mkey::devx::{AdoptError, AdoptSpec, Cq, Device, DevxError, EventKind, MkeySpec, QueuePairSpec};
use mlx5_mkey::mkey::{Access, KlmEntry, MkeyConfig};
use mlx5_mkey::queue::{ArmFor, Message, Outcome, RequestKind};
use mlx5_mkey::types::Key;
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use mlx5_testing::preload::{Side::Inside, preloaded, preloaded_with};

/// The specification of most tests: at most 8 requests may be outstanding. The completion queue has 16
/// entries, 4 of them for receive requests.
const SPEC: AdoptSpec = AdoptSpec { signal_all: false, max_requests: Some(8) };

/// The setting of libmlx5 with which it receives into memory only, never into completion entries.
pub(super) const INTO_MEMORY: (&str, &str) = ("MLX5_SCATTER_TO_CQE", "0");

#[test]
fn queues_continue_where_libibverbs_stopped() {
    let Inside = preloaded_with(&[INTO_MEMORY]) else { return };
    // `before` is the number of requests that libibverbs posts first. The numbers cover the first lap of
    // each ring (of 4, 16 and 64 slots), later laps, and the wrap of a 16-bit counter.
    for before in [0, 3, 16, 17, 63, 4_680] {
        // With this much inline data, 4,680 requests fill 65,520 blocks.
        let inline = if before > 100 { 800 } else { 0 };
        let mut theirs = VerbsQp::connected(Sizes { inline, ..Sizes::SMALL });
        for first in (0..before).step_by(16) {
            let count = 16.min(before - first);
            (0..count).for_each(|_| theirs.post_write());
            theirs.poll(count);
        }
        for _ in 0..before.min(7) {
            theirs.post_receive();
            theirs.post_message();
            theirs.poll(2);
        }
        let (mut queue, mut completions, device) = theirs.adopt(SPEC).unwrap();
        assert!(before < 100 || queue.control().query().unwrap().next_send_block >= 65_520);
        for id in 0..20 {
            theirs.fill(id);
            let (sge, remote) = (theirs.sge(), theirs.remote());
            rdma_write(&mut queue, id, remote, sge);
            let work = next_work(&mut completions, &mut queue);
            let outcome = Outcome::Sent { kind: RequestKind::RdmaWrite, bytes: 64 };
            assert_eq!((work.id, work.outcome), (id, outcome), "after {before}");
            assert_eq!(theirs.written(), id);

            theirs.fill(1000 + id);
            let place = Sge { address: remote.address, ..sge };
            queue.post_receive(100 + id, &[place]).unwrap();
            queue.publish_receives();
            queue.request(200 + id).signaled().send(&[sge]).unwrap();
            queue.ring_doorbell();
            let mut both = [next_work(&mut completions, &mut queue), next_work(&mut completions, &mut queue)];
            both.sort_by_key(|work| work.id);
            assert_eq!(both.map(|work| work.id), [100 + id, 200 + id], "after {before}");
            let received = Outcome::Received { message: Message::Send, bytes: 64 };
            assert_eq!(both[0].outcome, received);
            assert_eq!(theirs.written(), 1000 + id);
        }
        drop((queue, completions, device));
        theirs.destroy();
    }
    assert_eq!(Counts::now(), Counts::NONE);
}

#[test]
fn what_the_library_is_for_works_on_them() {
    let Inside = preloaded_with(&[INTO_MEMORY]) else { return };
    let mut theirs = VerbsQp::connected(Sizes::SMALL);
    theirs.post_write();
    theirs.poll(1);
    let (mut queue, mut completions, device) = theirs.adopt(SPEC).unwrap();
    let pd = theirs.adopt_pd(&device).unwrap();
    let spec = MkeySpec { max_entries: 4, ..Default::default() };
    let mut object = pd.create_mkey(spec).unwrap();
    let config = MkeyConfig { access: Some(Access::LOCAL_WRITE), ..MkeyConfig::UNCHANGED };
    let prepared = PreparedConfig::new(object.mkey.kind(), &config).unwrap();
    theirs.fill(0x5a5a);
    let (sge, remote) = (theirs.sge(), theirs.remote());
    let entry = KlmEntry { address: sge.address, length: 64, key: sge.lkey };
    queue.request(1).configure_mkey(&mut object.mkey, &prepared, &[entry]).unwrap();
    let whole = Sge { address: 0, length: 64, lkey: object.mkey.key() };
    rdma_write(&mut queue, 2, remote, whole);
    assert_eq!(next_work(&mut completions, &mut queue).id, 2);
    assert_eq!(theirs.written(), 0x5a5a);

    // After a failure, the queue pair can be reset and connected anew, like a queue pair that `devx` has
    // made.
    rdma_write(&mut queue, 3, Remote { rkey: Key::from_raw(0xffff_fe00), ..remote }, sge);
    assert!(matches!(next_work(&mut completions, &mut queue).outcome, Outcome::Failed(_)));
    assert_eq!(queue.control().query().unwrap().state, QpState::ERROR);
    let outstanding = queue.reset(&mut [&mut completions]).unwrap();
    assert_eq!((outstanding.sends.len(), outstanding.receives.len()), (0, 0));
    queue.control().connect_loopback().unwrap();
    rdma_write(&mut queue, 4, remote, sge);
    assert_eq!(next_work(&mut completions, &mut queue).id, 4);

    // Only objects that a DEVX command made have DEVX events, and libibverbs has made this queue pair.
    let events = device.events().unwrap();
    let refused = queue.control().notify(&events, &[EventKind::QP_ACCESS], 1);
    assert!(matches!(refused, Err(DevxError::Adopt(AdoptError::NotMadeHere))), "{refused:?}");
    assert_eq!(events.wait(MOMENT).unwrap(), None);
    drop((object, queue, completions, events, pd, device));
    theirs.destroy();
    assert_eq!(Counts::now(), Counts::NONE);
}

#[test]
fn events_come_to_the_channel_of_the_maker() {
    let Inside = preloaded_with(&[INTO_MEMORY]) else { return };
    // `before` is the number of events that the test requests through libibverbs first. The sequence
    // number in the doorbell record continues from there.
    for before in 0..6 {
        let theirs = VerbsQp::connected(Sizes::SMALL);
        for _ in 0..before {
            theirs.request_event();
            theirs.post_write();
            theirs.take_event();
            theirs.poll(1);
        }
        let (mut queue, mut completions, device) = theirs.adopt(SPEC).unwrap();
        for id in 0..100 {
            completions.arm(ArmFor::Any).unwrap();
            nop(&mut queue, id);
            theirs.take_event();
            completions.event_received().unwrap();
            assert_eq!(next_work(&mut completions, &mut queue).id, id);
        }
        let (_own, mut reader) = device.create_cq(4).unwrap();
        for refused in [reader.arm(ArmFor::Any), reader.event_received()] {
            assert!(matches!(refused, Err(DevxError::Adopt(AdoptError::MadeHere))), "{refused:?}");
        }
        drop((queue, completions, _own, reader, device));
        theirs.destroy();
    }
}

/// Returns the error with which `devx` refuses to take over the queues.
fn refusal(theirs: &VerbsQp, spec: AdoptSpec) -> DevxError {
    theirs.adopt(spec).map(drop).unwrap_err()
}

/// Returns the reason why `devx` refuses to take over the queues, which must be one of [`AdoptError`].
fn adoption(theirs: &VerbsQp) -> AdoptError {
    match refusal(theirs, SPEC) {
        DevxError::Adopt(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn queues_that_are_not_idle_are_refused() {
    let Inside = preloaded_with(&[INTO_MEMORY]) else { return };
    let theirs = VerbsQp::connected(Sizes::SMALL);
    // The message waits, because no receive request is posted yet.
    theirs.post_message();
    std::thread::sleep(MOMENT.unwrap());
    assert_eq!(adoption(&theirs), AdoptError::SendsOutstanding { announced: 1, next: 0 });
    theirs.post_receive();
    theirs.poll(2);
    theirs.post_receive();
    assert_eq!(adoption(&theirs), AdoptError::ReceivesOutstanding { announced: 2, taken: 1 });
    theirs.post_message();
    // Two completions arrive one after the other: the completion of the send, and the completion of the
    // receive.
    let device = theirs.opened.adopt().unwrap();
    for _ in 0..2 {
        while theirs.adopt_cq(&device).is_ok() {}
        assert_eq!(adoption(&theirs), AdoptError::CompletionsWaiting);
        theirs.poll(1);
    }
    drop(device);
    // The refusals have not changed the queue pair, and now it is accepted.
    let (queue, completions, device) = theirs.adopt(SPEC).unwrap();
    drop((queue, completions, device));
    theirs.destroy();
    assert_eq!(Counts::now(), Counts::NONE);
}

#[test]
fn queues_of_others_are_refused() {
    let Inside = preloaded_with(&[INTO_MEMORY]) else { return };
    let unconnected = VerbsQp::new(Sizes::SMALL);
    assert_eq!(adoption(&unconnected), AdoptError::NotReady(QpState::RESET));
    let sends_only = VerbsQp::connected(Sizes { receives: 0, ..Sizes::SMALL });
    assert_eq!(adoption(&sends_only), AdoptError::NoReceiveQueue);

    let theirs = VerbsQp::connected(Sizes::SMALL);
    let device = theirs.opened.adopt().unwrap();
    let refused = |error: Result<(), DevxError>, wanted: AdoptError| match error {
        Err(DevxError::Adopt(error)) => assert_eq!(error, wanted),
        other => panic!("{other:?}"),
    };
    refused(unconnected.adopt_pd(&device).map(drop), AdoptError::OtherDevice);
    refused(unconnected.adopt_cq(&device).map(drop), AdoptError::OtherDevice);
    let (pd, (cq, _reader)) = (theirs.adopt_pd(&device).unwrap(), theirs.adopt_cq(&device).unwrap());
    let (own_pd, (own_cq, _own)) = (device.alloc_pd().unwrap(), device.create_cq(64).unwrap());
    let wanted = cq.number();
    let adopt = |qp: &VerbsQp, pd, cqs| qp.adopt_qp(&device, pd, cqs, SPEC).map(drop);
    refused(adopt(&unconnected, &pd, [&cq, &cq]), AdoptError::OtherDevice);
    refused(adopt(&theirs, &own_pd, [&cq, &cq]), AdoptError::OtherDomain);
    refused(adopt(&theirs, &pd, [&own_cq, &cq]), AdoptError::OtherCompletionQueue { wanted });
    refused(adopt(&theirs, &pd, [&cq, &own_cq]), AdoptError::OtherCompletionQueue { wanted });
    assert_eq!(cq.free_entries(), 16, "nothing is set aside");
    adopt(&theirs, &pd, [&cq, &cq]).unwrap();
    drop((own_cq, _own, own_pd, cq, _reader, pd, device));
    for qp in [unconnected, sends_only, theirs] {
        qp.destroy();
    }
    assert_eq!(Counts::now(), Counts::NONE);
}

#[test]
fn objects_of_two_devices_are_not_mixed() {
    let Inside = preloaded() else { return };
    let [here, there] = [(); 2].map(|()| Device::open(None).unwrap());
    let (pd, (cq, _reader)) = (here.alloc_pd().unwrap(), here.create_cq(256).unwrap());
    let (other_pd, (other_cq, _other)) = (there.alloc_pd().unwrap(), there.create_cq(256).unwrap());
    let create = |pd, cqs: [&Cq; 2]| here.create_qp(pd, cqs[0], cqs[1], QueuePairSpec::default()).map(drop);
    let signed = MkeySpec { max_entries: 1, signature: Some(&other_cq), ..MkeySpec::default() };
    for refused in [
        create(&other_pd, [&cq, &cq]),
        create(&pd, [&other_cq, &cq]),
        create(&pd, [&cq, &other_cq]),
        pd.create_mkey(signed).map(drop),
    ] {
        assert!(matches!(refused, Err(DevxError::Adopt(AdoptError::OtherDevice))), "{refused:?}");
    }
    assert_eq!((cq.free_entries(), other_cq.free_entries()), (256, 256), "nothing is set aside");
    create(&pd, [&cq, &cq]).unwrap();
}

#[test]
fn queues_that_could_overrun_are_refused() {
    let Inside = preloaded_with(&[INTO_MEMORY]) else { return };
    let theirs = VerbsQp::connected(Sizes::SMALL);
    // Without a limit, a send queue may hold as many requests as it has blocks.
    for (max_requests, needed) in [(None, 64), (Some(1000), 64), (Some(17), 17)] {
        let refused = refusal(&theirs, AdoptSpec { max_requests, ..SPEC });
        let wanted = format!("needed: {needed}, free: 16");
        assert!(format!("{refused:?}").contains(&wanted), "{refused:?}");
    }
    let spec = AdoptSpec { max_requests: Some(4), ..SPEC };
    let (mut queue, _completions, _device) = theirs.adopt(spec).unwrap();
    for id in 0..4 {
        queue.request(id).nop().unwrap();
    }
    assert!(queue.request(4).nop().is_err());
    queue.ring_doorbell();
}

#[test]
fn queues_that_receive_into_completions_are_refused() {
    // With this value, the default of libmlx5, the device may write received data into completion entries.
    let Inside = preloaded_with(&[("MLX5_SCATTER_TO_CQE", "1")]) else { return };
    let theirs = VerbsQp::connected(Sizes::SMALL);
    assert_eq!(adoption(&theirs), AdoptError::ScatterToCqe);
    theirs.destroy();
}

#[test]
fn long_completion_entries_are_read_as_short_ones() {
    let Inside = preloaded_with(&[INTO_MEMORY, ("MLX5_CQE_SIZE", "128")]) else { return };
    for before in [0, 3, 16, 17] {
        let mut theirs = VerbsQp::connected(Sizes::SMALL);
        for _ in 0..before {
            theirs.post_write();
            theirs.poll(1);
        }
        let (mut queue, mut completions, device) = theirs.adopt(SPEC).unwrap();
        for id in 0..40 {
            completions.arm(ArmFor::Any).unwrap();
            theirs.fill(id);
            rdma_write(&mut queue, id, theirs.remote(), theirs.sge());
            theirs.take_event();
            completions.event_received().unwrap();
            assert_eq!(next_work(&mut completions, &mut queue).id, id, "after {before}");
            assert_eq!(theirs.written(), id);
        }
        drop((queue, completions, device));
        theirs.destroy();
    }
    assert_eq!(Counts::now(), Counts::NONE);
}
