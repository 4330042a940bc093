//! Tests of failures that a Rust program requests from the stand-in (crate `mlx5_faults`): the errors that
//! the library's module `devx` then reports.

use super::{Bench, EventKind, Inside, MOMENT, errno, next, page, preloaded};
use mlx5_faults::{
    CallKind, Incident, QueueEvent, Rule, Status, calls, completions, emulator, ends, receives, requests,
};
use mlx5_mkey::devx::{Device, QueuePairSpec};
use mlx5_mkey::queue::Outcome;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Posts an RDMA WRITE to the bench's own queue pair. Returns the syndrome if the request fails, or `None` if
/// it succeeds.
fn written(bench: &mut Bench) -> Option<u8> {
    let page = page(&bench.pd, b"data").unwrap();
    bench.write(&page, page.rkey());
    outcome(bench)
}

fn outcome(bench: &mut Bench) -> Option<u8> {
    match bench.next().outcome {
        Outcome::Failed(failure) => Some(failure.syndrome.0),
        _ => None,
    }
}

fn bench() -> Bench {
    Bench::new(QueuePairSpec::default()).unwrap()
}

#[test]
fn requests_fail_with_each_status() {
    let Inside = preloaded() else { return };
    for status in Status::ALL {
        let (mut bench, mut other) = (bench(), bench());
        let number = bench.queue.qpn().get();
        emulator::add(&[requests(2).of(number).fail(status)]).unwrap();
        assert_eq!([written(&mut other), written(&mut bench), written(&mut other)], [None; 3]);
        assert_eq!(written(&mut bench), Some(status.syndrome()), "{status}");
    }
    assert!(emulator::past().unwrap().ends_with("=GENERAL_ERR"));
    emulator::clear().unwrap();
    emulator::add(&[requests(1).lose()]).unwrap();
    assert_eq!(written(&mut bench()), Some(Status::RetriesExceeded.syndrome()));
}

#[test]
fn requests_wait() {
    let Inside = preloaded() else { return };
    let mut bench = bench();
    let (begun, delay) = (Instant::now(), Duration::from_millis(30));
    emulator::add(&[requests(1).and_later().delay(delay)]).unwrap();
    assert_eq!((written(&mut bench), written(&mut bench)), (None, None));
    assert!(begun.elapsed() >= 2 * delay);
    emulator::clear().unwrap();
    emulator::add(&[requests(1).not_ready(NonZeroU32::MIN)]).unwrap();
    assert_eq!(written(&mut bench), None);
    emulator::add(&[requests(1).hang()]).unwrap();
    let page = page(&bench.pd, b"data").unwrap();
    bench.write(&page, page.rkey());
    let after = Instant::now() + MOMENT.unwrap();
    while Instant::now() < after {
        assert!(bench.queue.control().query().unwrap().next_send_block != bench.queue.producer() as u16);
    }
    bench.queue.control().fail().unwrap();
    assert_eq!(outcome(&mut bench), Some(Status::Flushed.syndrome()));
}

#[test]
fn receives_fail() {
    let Inside = preloaded() else { return };
    let mut bench = bench();
    let page = page(&bench.pd, b"data").unwrap();
    emulator::add(&[receives(1).of(bench.queue.qpn().get()).fail(Status::LocalLength)]).unwrap();
    bench.queue.post_receive(1, &[page.sge(64..128).unwrap()]).unwrap();
    bench.queue.publish_receives();
    bench.queue.request(2).signaled().send(&[page.sge(0..8).unwrap()]).unwrap();
    bench.queue.ring_doorbell();
    let expected = [Status::LocalLength, Status::RemoteOperation].map(|status| Some(status.syndrome()));
    assert_eq!([outcome(&mut bench), outcome(&mut bench)], expected);
}

#[test]
fn calls_fail_by_their_names() {
    let Inside = preloaded() else { return };
    let device = Device::open(None).unwrap();
    emulator::add(&[calls(2).named(CallKind::AllocPd).fail(libc::ENOSPC)]).unwrap();
    let pd = device.alloc_pd().unwrap();
    assert_eq!(errno(device.alloc_pd()), Some(libc::ENOSPC));
    emulator::add(&[ends(1).fail(libc::EBUSY)]).unwrap();
    drop(pd);
    assert_eq!(emulator::past().unwrap(), "call@2=errno:28,end@1=EBUSY");
    assert_eq!(emulator::add_words("tea"), Err(emulator::Error::Unknown));
}

#[test]
fn events_come_at_once() {
    let Inside = preloaded() else { return };
    let mut bench = bench();
    let events = bench.device.events().unwrap();
    bench.queue.control().notify(&events, &EventKind::QP_ERRORS, 7).unwrap();
    let incident = Incident::Queue { event: QueueEvent::Fatal, queue_pair: bench.queue.qpn().get() };
    emulator::add(&[Rule::Now(incident)]).unwrap();
    assert_eq!(next(&events).cookie, 7);
    assert_eq!(written(&mut bench), Some(Status::Flushed.syndrome()));
    emulator::add(&[completions(1).raise(Incident::PortDown)]).unwrap();
    let mut bench = self::bench();
    assert_eq!(written(&mut bench), None);
    assert_eq!(written(&mut bench), Some(Status::RetriesExceeded.syndrome()), "the port is down");
    emulator::clear().unwrap();
    assert_eq!(written(&mut self::bench()), None);
}

#[test]
fn without_the_emulator_each_function_says_it() {
    if std::env::var_os(mlx5_testing::preload::INSIDE).is_none() {
        assert!(!emulator::is_present());
        assert_eq!(emulator::add(&[requests(1).lose()]), Err(emulator::Error::NotEmulated));
        assert_eq!(emulator::clear(), Err(emulator::Error::NotEmulated));
        assert_eq!(emulator::past(), Err(emulator::Error::NotEmulated));
    }
}
