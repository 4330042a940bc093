//! Tests of completions by event (waiting, time limits, the descriptor, prompt wake-ups), and of the time
//! stamps of completions.

use crate::verbs;
use crate::{Bench, MOMENT, TIMEOUT, device_and_domain, errno, nop};
use mlx5_mkey::devx::{CqReader, Device, QueuePair, QueuePairSpec};
use mlx5_mkey::error::CompletionError;
use mlx5_mkey::queue::{ClockInfo, Completion, CompletionQueue, CqDoorbellRecord, QpRouter};
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, OpOwn};
use mlx5_mkey::wqe::Sge;
use mlx5_testing::preload::{Side::Inside, preloaded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Queue = QueuePair;

/// Waits for a completion, and returns the id of its request. Returns `None` if the time is over. A
/// completion must arrive well before the longest limit.
fn wait(completions: &mut CqReader, queue: &mut Queue, timeout: Option<Duration>) -> Option<u64> {
    let mut router = QpRouter { queues: queue, mkeys: &mut [] };
    let start = Instant::now();
    let completion = id(completions.wait(&mut router, timeout).unwrap());
    assert!(completion.is_none() || start.elapsed() < TIMEOUT.unwrap() / 2, "slept over");
    completion
}

fn poll_or_arm(completions: &mut CqReader, queue: &mut Queue) -> Option<u64> {
    id(completions.poll_or_arm(&mut QpRouter { queues: queue, mkeys: &mut [] }).unwrap())
}

fn id(completion: Option<Completion>) -> Option<u64> {
    completion.map(|completion| completion.work().unwrap().id)
}

/// Waits for the next completion, and returns it with its entry.
pub(super) fn next_entry(completions: &mut CqReader, queue: &mut Queue) -> (Cqe, Completion) {
    let end = Instant::now() + TIMEOUT.unwrap();
    let mut router = QpRouter { queues: queue, mkeys: &mut [] };
    loop {
        match completions.poll_with_entry(&mut router) {
            Some((entry, completion)) => return (entry, completion.unwrap()),
            None => assert!(Instant::now() < end, "no completion"),
        }
    }
}

#[test]
fn waiting_ends_with_a_completion_or_in_time() {
    let Inside = preloaded() else { return };
    let Bench { mut completions, mut queue, .. } = Bench::new(QueuePairSpec::default()).unwrap();
    assert_eq!(wait(&mut completions, &mut queue, Some(Duration::ZERO)), None);
    let (start, used) = (Instant::now(), verbs::thread_time());
    let limit = Duration::from_millis(300);
    assert_eq!(wait(&mut completions, &mut queue, Some(limit)), None);
    assert!(start.elapsed() >= limit);
    assert!(verbs::thread_time() - used < limit / 10, "it sleeps");
    for id in 0..20 {
        nop(&mut queue, id);
        assert_eq!(wait(&mut completions, &mut queue, TIMEOUT), Some(id));
    }
    assert_eq!(wait(&mut completions, &mut queue, MOMENT), None);
    // The completion has already arrived, so the wait without a limit need not sleep. A broken wait would
    // sleep for ever.
    nop(&mut queue, 20);
    std::thread::sleep(MOMENT.unwrap());
    assert_eq!(wait(&mut completions, &mut queue, None), Some(20));
}

/// The stand-in's device has a clock of 1 GHz, which shows this system's monotonic time. libmlx5 has mapped
/// the clock's register, and the page that relates ticks to the time of day.
#[test]
fn completions_tell_their_time() {
    let Inside = preloaded() else { return };
    let Bench { device, mut completions, mut queue, .. } = Bench::new(QueuePairSpec::default()).unwrap();
    let clock = ClockInfo::of_frequency(device.capabilities().device_frequency_khz).unwrap();
    let end = Instant::now() + TIMEOUT.unwrap();
    let register = device.clock().unwrap();
    for id in 0..20 {
        let (before, shown) = (verbs::monotonic(), register.ticks());
        nop(&mut queue, id);
        let (entry, completion) = next_entry(&mut completions, &mut queue);
        let done = clock.nanoseconds(entry.timestamp.get());
        assert_eq!(completion.work().unwrap().id, id);
        assert!((before..=verbs::monotonic()).contains(&done), "{before} {done}");
        // The register is never behind a time stamp that a program has seen.
        assert!((shown..=register.ticks()).contains(&entry.timestamp.get()), "{shown} {done}");
        // The page of the kernel converts the time stamp to the time of day.
        let info = device.clock_info().unwrap();
        let then = UNIX_EPOCH + Duration::from_nanos(info.nanoseconds(done));
        // The system's time may have been set back a little.
        let ago = (SystemTime::now() + Duration::from_millis(1)).duration_since(then).unwrap();
        assert!(ago < TIMEOUT.unwrap(), "{ago:?}");
    }
    // The clock advances while no request is posted.
    let shown = register.ticks();
    std::thread::sleep(2 * MOMENT.unwrap());
    while register.ticks() == shown {
        assert!(Instant::now() < end, "the clock stands still");
        std::thread::yield_now();
    }
    drop(device);
    assert!(register.ticks() > shown, "it is there as long as somebody has it");
}

/// A queue pair with its own completion queue.
struct End {
    completions: CqReader,
    queue: Queue,
}

/// Returns two queue pairs that are connected to each other.
fn ends() -> (Device, [End; 2]) {
    let (device, pd) = device_and_domain();
    let ends = [(); 2].map(|()| {
        let (cq, completions) = device.create_cq(256).unwrap();
        End { completions, queue: device.create_qp(&pd, &cq, &cq, QueuePairSpec::default()).unwrap() }
    });
    let [one, other] = &ends;
    for (end, peer) in [(one, other), (other, one)] {
        end.queue.control().connect_local(peer.queue.qpn()).unwrap();
    }
    (device, ends)
}

impl End {
    fn post_receive(&mut self, id: u64) {
        self.queue.post_receive(id, &[]).unwrap();
        self.queue.publish_receives();
    }

    fn send(&mut self) {
        let nothing: &[Sge] = &[];
        self.queue.request(0).signaled().send(nothing).unwrap();
        self.queue.ring_doorbell();
    }

    fn wait(&mut self) -> Option<u64> {
        wait(&mut self.completions, &mut self.queue, TIMEOUT)
    }
}

#[test]
fn a_thread_that_sleeps_is_woken() {
    let Inside = preloaded() else { return };
    let (_device, [mut receiver, mut sender]) = ends();
    receiver.post_receive(7);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            sender.send();
        });
        let used = verbs::thread_time();
        assert_eq!(receiver.wait(), Some(7));
        assert!(start.elapsed() >= Duration::from_millis(100));
        assert!(verbs::thread_time() - used < Duration::from_millis(30), "it sleeps");
    });
}

#[test]
fn no_completion_is_slept_over() {
    const ROUNDS: u64 = 10_000;
    let Inside = preloaded() else { return };
    let (_device, [mut receiver, mut sender]) = ends();
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // This thread sends one to three messages at a time, and waits until they are taken. Each message
        // must wake the receiver, whether the device writes its entry while the receiver polls, arms the
        // queue or falls asleep.
        scope.spawn(|| {
            let (mut sent, mut acknowledged) = (0, 0);
            while sent < ROUNDS {
                let end = Instant::now() + TIMEOUT.unwrap();
                while taken.load(Ordering::Acquire) < sent {
                    assert!(Instant::now() < end, "{sent} sent, {} taken", taken.load(Ordering::Acquire));
                    std::hint::spin_loop();
                }
                for _ in 0..((sent * 7919) >> 3) % 200 {
                    std::hint::spin_loop();
                }
                for _ in 0..1 + sent % 3 {
                    sender.send();
                    sent += 1;
                }
                while acknowledged < sent {
                    assert_eq!(sender.wait(), Some(0));
                    acknowledged += 1;
                }
            }
        });
        let mut posted = 0;
        for id in 0..ROUNDS {
            while posted < (id + 8).min(ROUNDS + 2) {
                receiver.post_receive(posted);
                posted += 1;
            }
            assert_eq!(receiver.wait(), Some(id));
            taken.store(id + 1, Ordering::Release);
        }
    });
}

#[test]
fn a_queue_can_do_without_a_channel() {
    let Inside = preloaded() else { return };
    let Bench { mut completions, mut queue, .. } = Bench::new(QueuePairSpec::default()).unwrap();
    let before = verbs::Counts::now();
    // First the creation of the channel fails, then the subscription.
    for nth in [1, 2] {
        verbs::fail(nth, libc::EMFILE, 0);
        let mut router = QpRouter { queues: &mut queue, mkeys: &mut [] };
        let failed = completions.wait(&mut router, TIMEOUT);
        assert!(verbs::has_failed());
        assert_eq!(errno(failed), Some(libc::EMFILE));
        assert_eq!(verbs::Counts::now(), before);
    }
    nop(&mut queue, 1);
    assert_eq!(wait(&mut completions, &mut queue, TIMEOUT), Some(1));
    assert_eq!(wait(&mut completions, &mut queue, MOMENT), None);
}

#[test]
fn the_descriptor_is_readable_while_an_event_is_untaken() {
    let Inside = preloaded() else { return };
    let Bench { mut completions, mut queue, .. } = Bench::new(QueuePairSpec::default()).unwrap();
    let channel = completions.channel().unwrap();
    let moment = MOMENT.unwrap();
    nop(&mut queue, 1);
    assert!(!verbs::readable(&channel, moment), "the queue was not armed");
    assert_eq!(wait(&mut completions, &mut queue, TIMEOUT), Some(1));
    for id in 2..10 {
        assert_eq!(poll_or_arm(&mut completions, &mut queue), None);
        assert!(!verbs::readable(&channel, moment), "{id}: nothing has come");
        nop(&mut queue, id);
        assert!(verbs::readable(&completions.channel().unwrap(), TIMEOUT.unwrap()), "{id}");
        // Polled entries leave the event in the channel. The next poll that finds no entry takes the event.
        assert_eq!(poll_or_arm(&mut completions, &mut queue), Some(id));
        assert!(verbs::readable(&channel, Duration::ZERO), "{id}");
    }
    // The channel may outlive the queue.
    drop((completions, queue));
    assert!(verbs::readable(&channel, Duration::ZERO));
}

#[test]
fn entries_of_one_s_own_making_retire_nothing() {
    let Inside = preloaded() else { return };
    let Bench { mut queue, mut completions, .. } = Bench::new(QueuePairSpec::default()).unwrap();
    queue.request(7).signaled().nop().unwrap();
    queue.post_receive(8, &[]).unwrap();
    queue.publish_receives();
    queue.ring_doorbell();
    let outstanding = (queue.outstanding(), queue.free_slots());
    // The completion queue is memory of the program, so the program can write entries of its own. These
    // entries name requests that are outstanding.
    let entry = |opcode: CqeOpcode| Cqe {
        sop_qpn: queue.qpn().get().into(),
        wqe_counter: 0.into(),
        op_own: OpOwn::new().with_opcode(opcode.0).into_bits(),
        ..Cqe::UNWRITTEN
    };
    let mut ring = [entry(CqeOpcode::REQUESTER), entry(CqeOpcode::RESPONDER_SEND)];
    let record = CqDoorbellRecord::new();
    let mut forged = CompletionQueue::new(&mut ring, &record).unwrap();
    let qpn = queue.qpn().get();
    for _ in 0..2 {
        let taken = forged.poll(&mut QpRouter { queues: &mut queue, mkeys: &mut [] });
        assert_eq!(taken, Some(Err(CompletionError::UnknownRequest { qpn, counter: 0 })));
    }
    assert_eq!((queue.outstanding(), queue.free_slots()), outstanding);
    assert_eq!(wait(&mut completions, &mut queue, TIMEOUT), Some(7));
}
