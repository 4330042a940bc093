//! Checks bytes of a buffer and uses them, while a peer writes to the buffer: what is used must be what was
//! checked.
//!
//! The program is built with fat LTO (`--profile bench`), where the compiler sees the library's copy, the
//! check and the use at once. It leaves a plain copy out, and hands the buffer's own address to check and
//! use. The same program has such a copy, to show that it is noticed.

#![allow(unsafe_code)] // A thread stands for the peer.
#![allow(clippy::indexing_slicing)] // An index is a remainder of the length.

use mlx5_mkey::devx::{Buffer, Device, PieceError};
use mlx5_mkey::mkey::Access;
use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Bytes that are checked and used.
const LENGTH: usize = 64;
type Checked = [u8; LENGTH];

/// Where they are in the buffer: the first also where the peer writes.
const OFFSET: usize = 64;

/// How often the library's copy is looked at. Other bytes are used once in 1,000 times or more where the copy
/// is left out.
const TRIES: usize = 100_000;

/// How often the plain copy is looked at, until it is noticed.
const PLAIN_TRIES: usize = 100 * TRIES;

/// Goes through all bytes many times, beginning at `first`, and sums them up. It takes microseconds, in which
/// the peer writes.
#[inline(never)]
fn sum(bytes: &Checked, first: usize) -> u64 {
    let places = (0..100).flat_map(|round| (0..LENGTH).map(move |at| (at + round + first) % LENGTH));
    places.map(|at| u64::from(bytes[at])).sum()
}

/// Copies bytes, checks them and uses them. Returns whether those that were used were the same.
#[inline(always)]
fn is_same<E>(copy: impl FnOnce(&mut Checked) -> Result<(), E>) -> Result<bool, E> {
    // The compiler does not know that both sums are the same.
    let (check, usage) = (black_box(1), black_box(2));
    let mut bytes = [0; LENGTH];
    copy(&mut bytes)?;
    Ok(sum(&bytes, check) == sum(&bytes, usage))
}

/// With the library's copy.
#[inline(never)]
fn of_the_library(buffer: &Buffer) -> Result<bool, PieceError> {
    is_same(|bytes| buffer.read(OFFSET, bytes))
}

/// With a plain copy.
#[inline(never)]
fn plain(buffer: *const u8) -> Result<bool, PieceError> {
    is_same(|bytes| {
        // SAFETY: the buffer has that many bytes. The peer's writing makes it wrong, which is to be shown.
        unsafe { buffer.add(OFFSET).copy_to_nonoverlapping(bytes.as_mut_ptr(), LENGTH) };
        Ok(())
    })
}

/// Writes to the buffer until it is told to stop.
fn peer(words: &[AtomicU64], is_over: &AtomicBool) {
    for byte in (1_u8..=255).cycle() {
        words.iter().for_each(|word| word.store(u64::from_ne_bytes([byte; 8]), Ordering::Relaxed));
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn check() -> Result<(), Box<dyn Error>> {
    let buffer = Device::open(None)?.alloc_pd()?.alloc_buffer(4096, Access::LOCAL_WRITE)?;
    let base = std::ptr::with_exposed_provenance::<u8>(usize::try_from(buffer.address())?);
    // SAFETY: these bytes are in the buffer, aligned as its pages are, and stay as long as it does.
    let words = unsafe {
        std::slice::from_raw_parts(base.add(OFFSET).cast::<AtomicU64>(), LENGTH / size_of::<AtomicU64>())
    };
    let is_over = AtomicBool::new(false);
    let (differences, noticed) = thread::scope(|scope| {
        scope.spawn(|| peer(words, &is_over));
        let differences = (0..TRIES).filter(|_| of_the_library(&buffer) != Ok(true)).count();
        let noticed = (1..=PLAIN_TRIES).find(|_| plain(base) != Ok(true));
        is_over.store(true, Ordering::Relaxed);
        (differences, noticed)
    });
    if differences > 0 {
        return Err(format!("{differences} of {TRIES} times other bytes were used than checked").into());
    }
    let noticed = noticed.ok_or("a plain copy is not noticed: this check does not work")?;
    println!(
        "{TRIES} times the bytes that were checked were used; with a plain copy, others at time {noticed}"
    );
    Ok(())
}

fn main() -> ExitCode {
    match check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
