//! The worker: the thread that does the device's work while no thread of the program polls. It watches
//! doorbell records, which are plain memory whose changes nothing announces.
//!
//! The worker reads the records often soon after work, then less and less often. The worker does not read
//! them while a thread of the program polls, because that thread does the device's work. If no queue pair can
//! send and no completion queue has a channel or subscriber, no doorbell record can announce work. The worker
//! then sleeps until a call wakes it.

use crate::ground::{owner, sys};
use crate::process::schedule::{self, Found};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Until this time has passed since the last work, the worker looks at the doorbell records without sleeping,
/// because the program probably waits for an answer. The time is short, since the program may need the core.
const EAGER: Duration = Duration::from_micros(50);
/// Until this time has passed since the last work, the worker sleeps for [`SHORT`] between two looks at the
/// doorbell records.
const ATTENTIVE: Duration = Duration::from_millis(20);
/// The sleep between two looks at the doorbell records until [`ATTENTIVE`] has passed.
const SHORT: Duration = Duration::from_micros(50);
/// While a thread of the program polls, the worker sleeps for [`SHORT`] between two looks at the thread. When
/// the thread has polled for this time, the worker sleeps for [`LONG`], because its looks take the thread's
/// core. A thread that waits for data in its memory polls for a shorter time, and then no more.
const PERSISTENT: Duration = Duration::from_millis(5);
/// Until this time has passed since the last work, the worker sleeps for [`LONG`] between two looks at the
/// doorbell records.
const PATIENT: Duration = Duration::from_secs(1);
/// Until this time has passed since the last work, the worker sleeps for [`LONGER`] between two looks.
/// Afterwards it sleeps for [`LONGEST`], so that an idle program uses almost no processor time.
const BORED: Duration = Duration::from_secs(3);
/// The sleep between two looks at the doorbell records after [`ATTENTIVE`].
const LONG: Duration = Duration::from_millis(1);
/// The sleep between two looks at the doorbell records after [`PATIENT`].
const LONGER: Duration = Duration::from_millis(4);
/// The longest sleep between two looks at the doorbell records. The first request after a long pause waits up
/// to this long.
const LONGEST: Duration = Duration::from_millis(16);

/// Starts the worker, which waits on `bell`. Returns whether the thread could be started.
pub(super) fn start(bell: UnixStream) -> bool {
    let worker = std::thread::Builder::new().name("mlx5-device".into());
    worker.spawn(move || sys::without_signals(|| owner::as_device(|| run(bell)))).is_ok()
}

fn run(mut bell: UnixStream) {
    sys::wake_on_time();
    let mut idle_since = Instant::now();
    loop {
        let done = std::panic::catch_unwind(schedule::work);
        // A panic is a fault of the device. The worker continues with the parts of the state that are intact.
        let Found { moved, awake } = done.unwrap_or(Found { moved: false, awake: true });
        let polled_since = Instant::now();
        let mut stepped_aside = false;
        while schedule::is_polled() {
            stepped_aside = true;
            let pause = if polled_since.elapsed() < PERSISTENT { SHORT } else { LONG };
            sys::wait(&[bell.as_raw_fd()], Some(pause));
            drain(&mut bell);
        }
        if stepped_aside {
            // The loop may have waited long, so `moved` and `awake` are out of date.
            idle_since = Instant::now();
            continue;
        }
        if moved {
            idle_since = Instant::now();
        }
        let idle = idle_since.elapsed();
        if awake && idle < EAGER {
            std::thread::yield_now();
            continue;
        }
        let sleep = match awake {
            false => None,
            true if idle < ATTENTIVE => Some(SHORT),
            true if idle < PATIENT => Some(LONG),
            true if idle < BORED => Some(LONGER),
            true => Some(LONGEST),
        };
        let mut descriptors = schedule::prepare_sleep();
        descriptors.push(bell.as_raw_fd());
        let ready = sys::wait(&descriptors, sleep);
        if ready.last() == Some(&true) {
            drain(&mut bell);
        }
        if ready.contains(&true) {
            idle_since = Instant::now();
        }
    }
}

fn drain(bell: &mut UnixStream) {
    let mut bytes = [0; 64];
    while matches!(bell.read(&mut bytes), Ok(length) if length > 0) {}
}
