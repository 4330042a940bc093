//! Tests that the library really copies bytes out of memory to which a peer writes. The program checks the
//! copied bytes, then uses them. The used bytes must be the checked bytes.
//!
//! The program is built with fat LTO (`--profile bench`), which shows the compiler the library's copy, the
//! check and the use at once. The compiler may drop a plain copy and pass the buffer's own address to the
//! check and the use. The program also uses a plain copy, to prove that the check notices a copy that the
//! compiler drops.
//!
//! The program also prints the time of the library's copies beside that of `memcpy`. No check depends on the
//! time.

#![allow(unsafe_code)] // A thread writes to the buffer in place of the peer.
#![allow(clippy::indexing_slicing)] // Each index is a remainder of the length.

use mlx5_mkey::devx::{Buffer, Device, PieceError};
use mlx5_mkey::mkey::Access;
use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The number of bytes that are checked and used.
const LENGTH: usize = 64;
type Checked = [u8; LENGTH];

/// Offset in the buffer of the bytes that are checked and used. The peer writes to the first of these bytes.
const OFFSET: usize = 64;

/// The number of attempts with the library's copy. If the compiler drops the copy, at least one in 1,000
/// attempts uses other bytes than it has checked.
const TRIES: usize = 100_000;

/// The most attempts with the plain copy; they end when one attempt uses other bytes.
const PLAIN_TRIES: usize = 100 * TRIES;

/// Sums all bytes 100 times, beginning at the byte `first`. The sum takes microseconds, in which the peer has
/// time to write to the bytes.
#[inline(never)]
fn sum(bytes: &Checked, first: usize) -> u64 {
    let places = (0..100).flat_map(|round| (0..LENGTH).map(move |at| (at + round + first) % LENGTH));
    places.map(|at| u64::from(bytes[at])).sum()
}

/// Copies bytes, checks them and uses them: each step is a sum over the bytes. Returns whether the used bytes
/// were the checked ones.
#[inline(always)]
fn is_same<E>(copy: impl FnOnce(&mut Checked) -> Result<(), E>) -> Result<bool, E> {
    // `black_box` hides from the compiler that both sums are equal, so the program computes both.
    let (check, usage) = (black_box(1), black_box(2));
    let mut bytes = [0; LENGTH];
    copy(&mut bytes)?;
    Ok(sum(&bytes, check) == sum(&bytes, usage))
}

/// Checks and uses bytes once, after the library's copy. Returns whether the used bytes were the checked
/// ones.
#[inline(never)]
fn of_the_library(buffer: &Buffer) -> Result<bool, PieceError> {
    is_same(|bytes| buffer.read(OFFSET, bytes))
}

/// Checks and uses bytes once, after a plain copy. Returns whether the used bytes were the checked ones.
#[inline(never)]
fn plain(buffer: *const u8) -> Result<bool, PieceError> {
    is_same(|bytes| {
        // SAFETY: the buffer has that many bytes. The data race with the peer is undefined behaviour on
        // purpose: this function shows its effect.
        unsafe { buffer.add(OFFSET).copy_to_nonoverlapping(bytes.as_mut_ptr(), LENGTH) };
        Ok(())
    })
}

/// Plays the peer: writes to the buffer until `is_over` is set.
fn peer(words: &[AtomicU64], is_over: &AtomicBool) {
    for byte in (1_u8..=255).cycle() {
        words.iter().for_each(|word| word.store(u64::from_ne_bytes([byte; 8]), Ordering::Relaxed));
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// The bytes that are copied at once when the speed of copies is measured.
const PAGE: usize = 4096;

/// Repeats a copy 1,000 times and measures the time, 100 times over. Returns the shortest of the 100 times.
fn time<E>(mut copy: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let mut best = Duration::MAX;
    for _ in 0..100 {
        let start = Instant::now();
        for _ in 0..1000 {
            copy()?;
        }
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// Prints how long the library's copies of a page take, in units of the time of a plain copy.
fn compare(buffer: &mut Buffer) -> Result<(), Box<dyn Error>> {
    let base = std::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(buffer.address())?);
    let mut page = [0_u8; PAGE];
    let read = time(|| black_box(&*buffer).read(0, black_box(&mut page)))?;
    let write = time(|| buffer.write(0, black_box(&page)))?;
    let plain_read = time(|| {
        // SAFETY: the buffer has a page, and its peer has ended.
        unsafe { black_box(base).copy_to_nonoverlapping(black_box(&mut page).as_mut_ptr(), PAGE) };
        Ok::<_, PieceError>(())
    })?;
    let plain_write = time(|| {
        // SAFETY: the buffer has a page, and its peer has ended.
        unsafe { black_box(base).copy_from_nonoverlapping(black_box(&page).as_ptr(), PAGE) };
        Ok::<_, PieceError>(())
    })?;
    let times = |ours: Duration, plain: Duration| ours.as_secs_f64() / plain.as_secs_f64();
    println!(
        "of {PAGE} bytes, `Buffer::read` takes {:.2} times as long as `memcpy`, `Buffer::write` {:.2} times",
        times(read, plain_read),
        times(write, plain_write)
    );
    Ok(())
}

fn check() -> Result<(), Box<dyn Error>> {
    let mut buffer = Device::open(None)?.alloc_pd()?.alloc_buffer(PAGE, Access::LOCAL_WRITE)?;
    let base = std::ptr::with_exposed_provenance::<u8>(usize::try_from(buffer.address())?);
    // SAFETY: these bytes are inside the buffer, aligned to a page, and live as long as the buffer.
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
        return Err(format!(
            "in {differences} of {TRIES} attempts the used bytes differ from the checked bytes"
        )
        .into());
    }
    let noticed = noticed.ok_or("no attempt with a plain copy used other bytes: this check does not work")?;
    println!(
        "in {TRIES} attempts the used bytes were the checked ones; a plain copy failed at attempt {noticed}"
    );
    compare(&mut buffer)
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
