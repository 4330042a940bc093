//! The thread that is the device while no thread of the program polls: it watches doorbell records, which are
//! plain memory that nobody announces.
//!
//! After work it looks again soon, then ever less often; not at all while a thread of the program polls,
//! which then does the device's work. Without a queue pair that can send, and without a completion channel,
//! there is no doorbell to miss, and it sleeps until it is called.

use crate::ground::{owner, sys};
use crate::process::schedule::{self, Found};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// So long after work it looks without sleeping: the program is probably waiting for the answer. Not for
/// long, since the program may need the core to go on.
const EAGER: Duration = Duration::from_micros(50);
/// So long it sleeps only shortly.
const ATTENTIVE: Duration = Duration::from_millis(20);
/// The sleep between two looks while attentive.
const SHORT: Duration = Duration::from_micros(50);
/// So long it sleeps for [`LONG`].
const PATIENT: Duration = Duration::from_secs(1);
/// So long it sleeps for [`LONGER`], then for [`LONGEST`]: a program that does nothing at present is to take
/// next to nothing.
const BORED: Duration = Duration::from_secs(3);
/// The sleep between two looks when nothing has happened for a while.
const LONG: Duration = Duration::from_millis(1);
/// The sleep after a pause.
const LONGER: Duration = Duration::from_millis(4);
/// The longest sleep while there are doorbells to be rung: what the first request after a long pause has to
/// wait.
const LONGEST: Duration = Duration::from_millis(16);

/// Starts the worker, which hears this bell. Returns whether it could be.
pub(super) fn start(bell: UnixStream) -> bool {
    let worker = std::thread::Builder::new().name("mlx5-device".into());
    worker.spawn(move || without_signals(|| owner::as_device(|| run(bell)))).is_ok()
}

fn without_signals(body: impl FnOnce()) {
    sys::block_signals();
    sys::wake_on_time();
    body();
}

fn run(mut bell: UnixStream) {
    let mut idle_since = Instant::now();
    loop {
        let done = std::panic::catch_unwind(schedule::work);
        // A panic is a fault of the device; it goes on with what is whole.
        let Found { moved, awake, mut descriptors } =
            done.unwrap_or_else(|_| Found { awake: true, ..Found::default() });
        let mut stepped_aside = false;
        while schedule::is_polled() {
            stepped_aside = true;
            sys::wait(&[bell.as_raw_fd()], Some(LONG));
            drain(&mut bell);
        }
        if stepped_aside {
            // What was found is old by now.
            idle_since = Instant::now();
            continue;
        }
        if moved {
            idle_since = Instant::now();
        }
        let idle = idle_since.elapsed();
        if awake && idle < EAGER {
            sys::yield_now();
            continue;
        }
        let sleep = match awake {
            false => None,
            true if idle < ATTENTIVE => Some(SHORT),
            true if idle < PATIENT => Some(LONG),
            true if idle < BORED => Some(LONGER),
            true => Some(LONGEST),
        };
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
