//! Tests of the preloaded library. Each test starts this program again with the library preloaded.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod connections;
mod drivers;
mod faults;
mod linux;
mod memory;
mod mkeys;
mod paths;
mod port;
mod record;
mod shared;
mod signals;
mod verbs;

use mlx5_testing::preload::{INSIDE, Side::Inside, preloaded, preloaded_with, program};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use verbs::{
    Attribute, Context, End, Pages, call, call_at, close, command, errno_behind_a_lock, in_child, open,
};

const ALL_ACCESS: u32 = 0xf;

/// Opcodes of completions.
const DONE: u8 = 0;
const REQUEST_FAILED: u8 = 13;

#[test]
fn without_the_library_there_is_no_device() {
    if std::env::var_os(INSIDE).is_none() && !std::path::Path::new("/dev/infiniband/uverbs0").exists() {
        assert_eq!(open(), Err(libc::ENOENT));
    }
}

#[test]
fn a_mistyped_setting_is_no_other_device() {
    let mistyped = [("MLX5_UVERBS_CRYPTO", "Wrapped")];
    let Inside = preloaded_with(&mistyped) else { return };
    assert_eq!(open(), Err(libc::EINVAL));
}

#[test]
fn bad_addresses_are_refused() {
    let Inside = preloaded() else { return };
    let descriptor = open().unwrap();
    assert_eq!(call_at(descriptor, 0), Err(libc::EFAULT));
    assert_eq!(call_at(descriptor, 0x10), Err(libc::EFAULT));
    assert_eq!(call_at(descriptor, u64::MAX - 8), Err(libc::EFAULT));
    close(descriptor);
    let context = Context::new();
    let pd = context.pd();
    let gone = Pages::new(8192);
    gone.unmap(4096);
    assert_eq!(context.register(pd, gone.0, 4096, 1), Err(libc::EFAULT));
    assert_eq!(context.register(pd, gone.0, 8192, 1), Err(libc::EFAULT));
    assert!(context.register(pd, gone.0 + 4096, 4096, 1).is_ok());
    assert_eq!(context.cq(gone.0, gone.0 + 4096, 0), Err(libc::EFAULT));
    assert_eq!(context.cq(gone.0 + 4096, 0x10, 0), Err(libc::EFAULT));
    // If the answer cannot be written, no object remains.
    let before = context.pd();
    let mut attributes = [Attribute::In(0, &[0; 8]), Attribute::Number(2, 3), Attribute::Nowhere(1)];
    assert_eq!(call(context.0, 0, 0, &mut attributes), Err(libc::EFAULT));
    assert_eq!(context.destroy(1, 0, before + 1), Err(libc::ENOENT));
}

#[test]
fn arguments_are_checked_as_the_kernel_does() {
    let Inside = preloaded() else { return };
    let descriptor = open().unwrap();
    assert_eq!(call(descriptor, 0, 2, &mut []), Err(libc::EINVAL), "before GET_CONTEXT, without arguments");
    assert_eq!(call(descriptor, 99, 0, &mut []), Err(libc::EPROTONOSUPPORT));
    let probe = call(descriptor, 0, 0, &mut [Attribute::Number(2, 1)]);
    assert_eq!(probe, Err(libc::ENOSPC));
    let context = Context::new();
    assert_eq!(command(context.0, 200, &[0; 4], &mut [], &mut []), Err(libc::EOPNOTSUPP));
    let pd = context.pd();
    let page = Pages::new(4096);
    assert_eq!(context.register(pd, page.0, 0, 1), Err(libc::EINVAL));
    assert_eq!(context.register(pd, page.0, 4096, 2), Err(libc::EINVAL), "remote write without local");
    assert_eq!(context.register(pd, page.0, 4096, 1 << 19), Err(libc::EINVAL));
    assert_eq!(context.register(pd + 50, page.0, 4096, 1), Err(libc::ENOENT));
    let (mr, _) = context.register(pd, page.0, 4096, 1).unwrap();
    assert_eq!(context.destroy(1, 0, pd), Err(libc::EBUSY));
    assert_eq!(context.destroy(1, 0, mr), Err(libc::EINVAL), "no protection domain");
    assert_eq!(context.destroy(7, 1, mr), Ok(()));
    assert_eq!(context.destroy(7, 1, mr), Err(libc::ENOENT));
    assert_eq!(context.destroy(1, 0, pd), Ok(()));
}

/// The device reports a clock mask of 63 bits, as the kernel does (`mlx5_ib_query_device`), and the frequency
/// from the capabilities.
#[test]
fn the_device_tells_of_its_clock() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let mut device = [0; 304];
    command(context.0, 1 << 31 | 1, &[0; 8], &mut device, &mut []).unwrap();
    let long = |at: usize| u64::from_ne_bytes(device[at..at + 8].try_into().unwrap());
    assert_eq!((long(208), long(216)), (i64::MAX as u64, 1_000_000));
}

#[test]
fn a_queue_pair_writes_to_itself() {
    let Inside = preloaded() else { return };
    let mut end = End::loopback();
    end.data.write(0, b"by the way of the device");
    // There are more rounds than slots, so the rings wrap.
    for round in 0..200u64 {
        let target = 1024 + round % 8 * 64;
        end.write_and_succeed(24, end.data.0 + target, end.key);
        assert_eq!(end.data.read(target, 24), b"by the way of the device");
    }
    end.write(24, end.data.0 + 4090, end.key);
    assert_eq!(end.poll(), (REQUEST_FAILED, 0x13), "past the end of the region");
}

#[test]
fn whoever_gives_a_lock_back_is_the_device_and_notices_nothing() {
    let Inside = preloaded() else { return };
    let mut end = End::loopback();
    let (mut rounds, mut on_this_thread) = (0, 0);
    while on_this_thread < 10 {
        rounds += 1;
        assert!(rounds <= 400, "this thread did the device's work in {on_this_thread} of 400 rounds");
        // Now the worker sleeps longer between two checks of the doorbell records than this thread needs
        // to release the lock.
        std::thread::sleep(Duration::from_millis(25));
        end.write(24, end.data.0 + 1024, end.key);
        assert_eq!(errno_behind_a_lock(libc::EXDEV), libc::EXDEV);
        on_this_thread += u32::from(end.has_completion());
        assert_eq!(end.poll().0, DONE);
    }
    // A failed request leaves `errno` alone too.
    end.data.unmap(4096);
    end.write(24, end.data.0 + 1024, end.key);
    assert_eq!(errno_behind_a_lock(libc::EXDEV), libc::EXDEV);
    assert_eq!(end.poll().0, REQUEST_FAILED);
}

#[test]
fn memory_that_goes_away_fails_requests_and_nothing_else() {
    let Inside = preloaded() else { return };
    let mut end = End::loopback();
    end.data.unmap(4096);
    end.write(8, end.data.0 + 64, end.key);
    assert_eq!(end.poll().0, REQUEST_FAILED);
    // A ring that the program has unmapped fails only its queue pair. The device continues to work for
    // others.
    end.ring.unmap(8192);
    std::thread::sleep(Duration::from_millis(20));
    let mut other = End::loopback();
    assert_eq!(other.write_once(), DONE);
}

#[test]
fn what_a_context_holds_goes_with_it() {
    let Inside = preloaded() else { return };
    let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    for _ in 0..300 {
        let end = End::loopback();
        close(end.context.0);
    }
    // Numbers of queue pairs are reused only when all are used up. The loop has used few of them, so
    // nobody gets the number of the queue pair that is closed below.
    let after = std::fs::read_dir("/proc/self/fd").unwrap().count();
    // The device itself has 9 descriptors, which stay.
    assert!(after <= before + 9, "{before} descriptors before, {after} after");
    let end = End::new();
    let mut other = End::new();
    other.connect(end.qpn);
    close(end.context.0);
    other.write(8, end.data.0, end.key);
    assert_eq!(other.poll(), (REQUEST_FAILED, 0x15), "nobody answers there");
}

#[test]
fn a_context_lives_until_its_last_descriptor_is_closed() {
    let Inside = preloaded() else { return };
    for way in verbs::DUPLICATIONS {
        let mut end = End::loopback();
        let twin = verbs::duplicate(way, end.context.0);
        close(end.context.0);
        end.context.0 = twin;
        assert_eq!(end.write_once(), DONE, "{way:?}");
        assert!(end.context.register(0, end.data.0, 4096, ALL_ACCESS).is_ok(), "{way:?}");
        close(twin);
        assert_eq!(end.context.register(0, end.data.0, 4096, ALL_ACCESS), Err(libc::EBADF), "{way:?}");
    }
    // A duplicate of another file's descriptor takes the place of the device's descriptor, and so closes
    // the device.
    let end = End::new();
    let (other, channel) = (verbs::duplicate(verbs::DUPLICATIONS[0], 0), event_channel(&end.context));
    let twin = verbs::duplicate(verbs::DUPLICATIONS[0], channel);
    assert_eq!(verbs::duplicate_to(other, end.context.0), Ok(end.context.0));
    assert_eq!(end.context.register(0, end.data.0, 4096, ALL_ACCESS), Err(libc::ENOTTY));
    assert_eq!(verbs::read(twin), Err(libc::EIO), "its channels have ended");
}

/// Makes a channel for events of the device and returns its descriptor.
fn event_channel(context: &Context) -> i32 {
    let mut attributes = [Attribute::New(0x1000), Attribute::Number(0x1001, 0)];
    call(context.0, 0x1005, 0x1000, &mut attributes).unwrap() as i32
}

#[test]
fn channels_end_with_their_context() {
    let Inside = preloaded() else { return };
    let context = Context::new();
    let channel = event_channel(&context);
    let waiting = std::thread::spawn(move || verbs::read(channel));
    std::thread::sleep(Duration::from_millis(20));
    close(context.0);
    assert_eq!(waiting.join().unwrap(), Err(libc::EIO), "nothing will come");
    assert_eq!(verbs::read(channel), Err(libc::EIO));
    close(channel);
}

#[test]
fn threads_have_contexts_of_their_own() {
    let Inside = preloaded() else { return };
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                let mut end = End::loopback();
                end.data.write(0, &[thread; 64]);
                for _ in 0..100 {
                    end.write_and_succeed(64, end.data.0 + 512, end.key);
                    assert_eq!(end.data.read(512, 64), [thread; 64]);
                }
                let Context(descriptor) = end.context;
                close(descriptor);
            });
        }
    });
}

#[test]
fn a_child_has_no_device_until_it_opens_one() {
    let Inside = preloaded() else { return };
    let mut end = End::loopback();
    assert!(in_child(|| {
        let gone = end.context.register(0, end.data.0, 4096, ALL_ACCESS) == Err(libc::EIO);
        close(end.context.0);
        let mut own = End::loopback();
        own.write(8, own.data.0 + 64, own.key);
        gone && own.qpn != end.qpn && own.poll().0 == DONE
    }));
    // The child's close did not affect the parent's device.
    assert_eq!(end.write_once(), DONE);
    // Another program does not inherit the descriptors.
    let listed = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(!listed.contains("/dev/zero") && !listed.contains("slot-"), "{listed}");
    assert_eq!(end.write_once(), DONE);
}

#[test]
fn a_program_that_closes_everything_leaves_the_device_whole() {
    let Inside = preloaded() else { return };
    let mut end = End::loopback();
    let descriptor = end.context.0;
    // Daemons close all descriptors in this way. The test leaves only the descriptor open that it needs.
    for other in (3..1024).filter(|other| *other != descriptor) {
        let _ = verbs::try_close(other);
    }
    assert_eq!(end.write_once(), DONE);
    assert!(end.context.register(0, end.data.0, 4096, ALL_ACCESS).is_ok());
}

#[test]
fn ranges_of_descriptors_are_closed_without_the_device_s_own() {
    let Inside = preloaded() else { return };
    let mut end = End::loopback();
    let descriptor = end.context.0.unsigned_abs();
    if descriptor > 3 {
        verbs::close_all(3..=descriptor - 1);
    }
    verbs::close_all(descriptor + 1..);
    verbs::close_all(descriptor + 1..=u32::MAX);
    assert_eq!(end.write_once(), DONE);
    // A context in the range is closed, and its descriptor's number is free for another file.
    let other = Context::new();
    other.pd();
    verbs::close_all(other.0.unsigned_abs()..=other.0.unsigned_abs());
    assert_eq!(end.context.register(0, end.data.0, 4096, ALL_ACCESS).map(drop), Ok(()));
    let twin = verbs::duplicate(verbs::DUPLICATIONS[0], 0);
    assert_eq!(twin, other.0, "its number is free");
    let registered = other.register(0, end.data.0, 4096, ALL_ACCESS).map(drop);
    assert_eq!(registered, Err(libc::ENOTTY), "another file, not the device");
    verbs::close_all(descriptor..);
    assert_eq!(end.context.register(0, end.data.0, 4096, ALL_ACCESS).map(drop), Err(libc::EBADF));
    // A program that opens the device again gets a working device.
    let mut end = End::loopback();
    assert_eq!(end.write_once(), DONE);
}

/// Sends a line to the other program.
fn say(text: &str) {
    println!("@{text}");
    std::io::stdout().flush().unwrap();
}

/// Receives a line of the other program.
fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Passes the lines of one program to the other, until the first program ends.
fn carry(from: &mut Child, to: &mut Child) -> std::thread::JoinHandle<()> {
    let (output, mut input) = (from.stdout.take().unwrap(), to.stdin.take().unwrap());
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            // Only text after `@` is for the other program. The test harness prints text before it on the
            // same line.
            if let Some((_, said)) = line.unwrap().split_once('@') {
                let _ = writeln!(input, "{said}");
            }
        }
    })
}

/// Runs the calling test in two programs that exchange lines. Returns the role of the program there, and
/// `None` in the program of all tests, after the end of both.
fn pair() -> Option<String> {
    if let Ok(role) = std::env::var(INSIDE) {
        return Some(role);
    }
    let directory = tempfile::tempdir().unwrap();
    let start =
        |role| program(role, directory.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut first, mut second) = (start("first"), start("second"));
    let carriers = [carry(&mut first, &mut second), carry(&mut second, &mut first)];
    let outcomes = [first.wait().unwrap(), second.wait().unwrap()];
    for carrier in carriers {
        carrier.join().unwrap();
    }
    assert!(outcomes.iter().all(std::process::ExitStatus::success), "{outcomes:?}");
    None
}

/// Sends queue pair number, key and address of this end to the other program. Returns the three values of the
/// other end.
fn introduce(end: &End) -> (u32, u32, u64) {
    say(&format!("{} {} {}", end.qpn, end.key, end.data.0));
    let heard = hear();
    let mut numbers = heard.split(' ').map(|number| number.parse::<u64>().unwrap());
    let mut next = || numbers.next().unwrap();
    (next() as u32, next() as u32, next())
}

/// Connects a new end to the end of the other program, and waits until both are connected. Returns the end,
/// and key and address of the other end's memory.
fn connected() -> (End, u32, u64) {
    let end = End::new();
    let (peer, rkey, address) = introduce(&end);
    end.connect(peer);
    say("ready");
    assert_eq!(hear(), "ready");
    (end, rkey, address)
}

#[test]
fn two_programs_write_to_each_other() {
    let Some(role) = pair() else { return };
    let mut end = End::new();
    let (peer, rkey, address) = introduce(&end);
    assert_ne!(peer, end.qpn);
    end.connect(peer);
    end.data.write(0, role.as_bytes());
    for round in 0..50 {
        end.write_and_succeed(5, address + 1024 + round * 16, rkey);
    }
    say("written");
    assert_eq!(hear(), "written");
    let other: &[u8] = if role == "first" { b"secon" } else { b"first" };
    assert_eq!(end.data.read(1024 + 49 * 16, 5), other);
    // The first program also writes with an invalid key.
    if role == "first" {
        end.write(5, address, rkey + 0x100);
        assert_eq!(end.poll(), (REQUEST_FAILED, 0x13));
    }
    say("done");
    assert_eq!(hear(), "done");
}

#[test]
fn a_program_that_ends_is_unreachable() {
    let Some(role) = pair() else { return };
    let (mut end, rkey, address) = connected();
    if role == "first" {
        end.write_and_succeed(5, address, rkey);
        say("go");
        // Standard input ends when the other program has ended.
        while !hear().is_empty() {}
        let start = Instant::now();
        end.write(5, address, rkey);
        assert_eq!(end.poll(), (REQUEST_FAILED, 0x15));
        assert!(start.elapsed() > Duration::from_millis(500), "it has tried for as long as a device does");
    } else {
        assert_eq!(hear(), "go");
    }
}
