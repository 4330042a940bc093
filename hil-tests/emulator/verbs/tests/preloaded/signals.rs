//! Tests of signals that report bad addresses: the device survives its own accesses, and the program's
//! actions stay as the program has set them.
#![allow(unsafe_code)]

use crate::REQUEST_FAILED;
use crate::verbs::{End, errno_behind_a_lock};
use libc::{c_int, c_void, sighandler_t, siginfo_t};
use mlx5_testing::preload::{Side::Inside, preloaded};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;

static CALLS: AtomicU32 = AtomicU32::new(0);
static BLOCKED_IN_HANDLER: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: c_int) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// Counts only signals with the right arguments, and records which signals wait while the handler runs.
extern "C" fn look(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the handler was set with SA_SIGINFO, and the pointer is valid while it runs.
    if unsafe { (*information).si_signo } == signal && !context.is_null() {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    BLOCKED_IN_HANDLER.store(blocked(), Ordering::Relaxed);
}

/// Returns which of SIGSEGV (1) and SIGUSR1 (2) wait in this thread.
fn blocked() -> u32 {
    // SAFETY: a signal set of zeros is valid, and lives until the calls are over.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        let is_member = |signal| libc::sigismember(&raw const set, signal) as u32;
        is_member(libc::SIGSEGV) | is_member(libc::SIGUSR1) << 1
    }
}

/// Sets the action for SIGSEGV, and returns the handler from before.
fn set(handler: sighandler_t, flags: c_int, waiting: &[c_int]) -> sighandler_t {
    // SAFETY: structures of numbers, which live until the calls are over. Handlers are functions of this
    // file, with the arguments that the flags ask for.
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        (new.sa_sigaction, new.sa_flags) = (handler, flags);
        waiting.iter().for_each(|signal| assert_eq!(libc::sigaddset(&raw mut new.sa_mask, *signal), 0));
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const new, &raw mut old), 0);
        old.sa_sigaction
    }
}

/// Returns the handler of SIGSEGV.
fn handler() -> sighandler_t {
    // SAFETY: a structure of numbers, which lives until the call is over.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut now), 0);
        now.sa_sigaction
    }
}

fn send() {
    // SAFETY: the argument is a number.
    assert_eq!(unsafe { libc::raise(libc::SIGSEGV) }, 0);
}

/// Makes the device read memory that is gone. The request fails, and the program gets no signal.
fn fail_a_request() {
    let (mut end, calls) = (End::loopback(), CALLS.load(Ordering::Relaxed));
    end.data.unmap(4096);
    end.write(24, end.data.0 + 1024, end.key);
    // The release of a lock lets this thread do the device's work.
    errno_behind_a_lock(0);
    assert_eq!(end.poll().0, REQUEST_FAILED);
    assert_eq!(CALLS.load(Ordering::Relaxed), calls);
}

#[test]
fn a_program_keeps_its_actions_for_signals_of_bad_addresses() {
    let Inside = preloaded() else { return };
    let (count, look) = (count as *const () as sighandler_t, look as *const () as sighandler_t);
    set(count, 0, &[]);
    fail_a_request();
    assert_eq!(handler(), count, "set before the device was opened");
    send();
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    assert_eq!(set(look, libc::SA_SIGINFO | libc::SA_RESETHAND, &[libc::SIGUSR1]), count);
    fail_a_request();
    send();
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    assert_eq!(BLOCKED_IN_HANDLER.load(Ordering::Relaxed), 3);
    assert_eq!((blocked(), handler()), (0, libc::SIG_DFL));
    // SAFETY: the handler is a function with one argument.
    assert_eq!(unsafe { libc::signal(libc::SIGSEGV, count) }, libc::SIG_DFL);
    send();
    assert_eq!((CALLS.load(Ordering::Relaxed), handler()), (3, count));
}

#[test]
fn the_device_survives_bad_addresses_on_a_thread_that_blocks_signals() {
    let Inside = preloaded() else { return };
    type Change = unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
    for change in [libc::pthread_sigmask as Change, libc::sigprocmask] {
        assert_eq!(blocked(), 0);
        fail_a_request();
        // SAFETY: signal sets of zeros are valid, and live until the calls are over.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            change(libc::SIG_BLOCK, &raw const all, &raw mut before);
            fail_a_request();
            assert_eq!(blocked(), 3, "signals wait as before");
            change(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
    }
    unsafe extern "C" {
        fn sighold(signal: c_int) -> c_int;
    }
    fail_a_request();
    // SAFETY: the argument is the number of a signal.
    assert_eq!(unsafe { sighold(libc::SIGSEGV) }, 0);
    fail_a_request();
    assert_eq!(blocked(), 1);
}

#[test]
fn a_handler_waits_while_its_thread_does_the_devices_work() {
    let Inside = preloaded() else { return };
    let _end = End::loopback();
    // SAFETY: the call has no argument.
    let status = format!("/proc/self/task/{}/status", unsafe { libc::gettid() });
    // Another thread looks which signals wait in this one, which does the device's work again and again.
    let waits = |looks| {
        std::thread::scope(|scope| {
            let is_free = |_| std::fs::read_to_string(&status).unwrap().contains("SigBlk:\t0000000000000000");
            let (begun, has_begun) = channel();
            let looker = scope.spawn(move || {
                // All signals wait while the C library makes a thread.
                has_begun.recv().unwrap();
                !(0..looks).all(is_free)
            });
            begun.send(()).unwrap();
            while !looker.is_finished() {
                errno_behind_a_lock(0);
            }
            looker.join().unwrap()
        })
    };
    // The first look finds out which signals wait. Some calls need no look.
    (0..64).for_each(|_| {
        errno_behind_a_lock(0);
    });
    assert!(!waits(1000));
    unsafe extern "C" {
        fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    }
    // SAFETY: the handler is a function with one argument.
    assert_eq!(unsafe { __sysv_signal(libc::SIGUSR1, count as *const () as sighandler_t) }, libc::SIG_DFL);
    assert!(waits(100_000));
}

#[test]
fn an_access_of_the_program_ends_it_as_without_the_library() {
    let Inside = preloaded() else { return };
    // SAFETY: the address is bad on purpose.
    let access = || unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
    let ends = |handler, step: &dyn Fn()| {
        fail_a_request();
        set(handler, 0, &[]);
        let mut status = 0;
        // SAFETY: the child only takes the step, and ends. `status` lives until the call is over.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                step();
                libc::_exit(0);
            }
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
    };
    assert_eq!(ends(libc::SIG_DFL, &access), Some(libc::SIGSEGV));
    assert_eq!(ends(libc::SIG_IGN, &access), Some(libc::SIGSEGV));
    assert_eq!(ends(libc::SIG_DFL, &send), Some(libc::SIGSEGV));
    assert_eq!(ends(libc::SIG_IGN, &send), None);
}
