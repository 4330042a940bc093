//! Tests that under all faults of device and kernel, each request is reported exactly once, no object is
//! left, and no call hangs.
//!
//! A seed determines the faults (`mlx5-emulate --help`) and the steps of the program. `cargo xtask chaos`
//! runs more seeds.

mod books;
mod life;

use crate::verbs::{self, Counts, Opened};
use books::Tally;
use life::Life;
use mlx5_mkey::devx::{Device, on_drop_error};
use mlx5_testing::preload::{Side::Inside, prepared};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The variable with the range of seeds, `FIRST..END`.
const SEEDS: &str = "MLX5_CHAOS_SEEDS";

/// The seeds that the tests run by default.
const FEW: std::ops::Range<u64> = 0..700;

/// The longest time that a seed may take. A seed takes milliseconds, so even a busy machine stays far below
/// this limit.
const LIMIT: Duration = Duration::from_secs(60);

/// One seed out of this many refuses the destruction of objects. Most seeds do not, because an object that
/// cannot be destroyed keeps its memory for ever.
const REFUSING: u64 = 16;

/// The most lives (from the opening of a device to its closing) with the faults of a seed. A life without
/// faults follows them.
const LIVES: usize = 4;

/// The seeds that run before the measured seeds, until the libraries have allocated all memory that they
/// keep.
const WARM: std::ops::Range<u64> = 0..32;

/// A generator of pseudo-random numbers (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    /// Returns true once in `times` calls, on average.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Returns the hint with the command that repeats a seed.
fn again(seed: u64) -> String {
    format!("again: cargo xtask chaos --seed {seed}")
}

/// The seed that is running, for the watchdog.
static RUNNING: AtomicU64 = AtomicU64::new(u64::MAX);

/// Ends the program when a seed takes too long.
fn watch() {
    let (mut last, mut since) = (u64::MAX, Instant::now());
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let seed = RUNNING.load(Ordering::Relaxed);
        if seed != last {
            (last, since) = (seed, Instant::now());
        } else if seed != u64::MAX && since.elapsed() > LIMIT {
            eprintln!("seed {seed} hangs; {}", again(seed));
            std::process::abort();
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(words) = std::env::var(SEEDS) else { return FEW };
    let (first, end) = words.split_once("..").expect("FIRST..END");
    first.parse().unwrap()..end.parse().unwrap()
}

/// Disables the C library's caches of freed memory, so that `verbs::heap` does not count freed bytes.
fn prepare(command: &mut Command, _: &Path) {
    command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
}

#[test]
fn each_request_is_told_of_once() {
    let Inside = prepared(prepare) else { return };
    std::thread::spawn(watch);
    on_drop_error(|_| ());
    // The stand-in's device must exist before `verbs::by_hand` keeps all threads from the device's work.
    Device::open(None).unwrap();
    verbs::by_hand();
    WARM.for_each(|seed| live_through(seed, &mut Tally::default()));
    let (seeds, start) = (seeds(), Instant::now());
    let (mut tally, mut kept) = (Tally::default(), 0);
    for seed in seeds.clone() {
        let (heap, refused) = (verbs::heap(), Counts::now().refused);
        live_through(seed, &mut tally);
        let more = verbs::heap() as isize - heap as isize;
        if Counts::now().refused > refused {
            kept += more;
        } else {
            assert_eq!(more, 0, "seed {seed}: bytes were not freed; {}", again(seed));
        }
    }
    RUNNING.store(u64::MAX, Ordering::Relaxed);
    println!(
        "{} seeds in {} s, each told of once, nothing left over",
        seeds.clone().count(),
        start.elapsed().as_secs()
    );
    println!("{tally}\n{kept} bytes are kept for what could not be destroyed");
    if seeds.count() >= FEW.count() {
        assert_eq!(tally.absent(), [], "of each kind some have come");
    }
}

/// Runs a seed. If a check fails, panics with the reason, the faults that have occurred, and the command that
/// repeats the seed.
fn live_through(seed: u64, tally: &mut Tally) {
    RUNNING.store(seed, Ordering::Relaxed);
    let mut came = String::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, tally, &mut came)));
    if let Err(what) = outcome.unwrap_or_else(|_| Err("a panic".into())) {
        came += &verbs::trace();
        verbs::faults("");
        panic!("seed {seed}: {what}\nfaults: {came}\n{}", again(seed));
    }
}

/// Runs a program under the faults of a seed, then without faults, and checks the results. Stores the faults
/// that have occurred in `came`.
fn run(seed: u64, tally: &mut Tally, came: &mut String) -> Result<(), String> {
    let refuses = seed % REFUSING == REFUSING - 1;
    let mut dice = Dice(!seed);
    let only = format!("call+read+completion+signature{}", if refuses { "+end" } else { "" });
    verbs::faults(&format!("seed={seed},only={only}"));
    for _ in 0..LIVES {
        // An object that cannot be destroyed keeps a context of `devx` open, with its descriptors. Therefore
        // the test opens the context itself if destructions are refused, and closes it.
        let opened = if refuses { Opened::try_new() } else { None };
        let device = match &opened {
            Some(opened) => opened.adopt(),
            None if refuses => continue,
            None => Device::open(None),
        };
        let lived = match device.and_then(Life::new) {
            Ok(mut life) => {
                tally.lives += 1;
                life.live(&mut dice, tally).and_then(|()| life.end(tally))
            }
            Err(_) => {
                tally.not_opened += 1;
                Ok(false)
            }
        };
        if let Some(opened) = opened {
            opened.close();
        }
        if lived? {
            break;
        }
    }
    *came = verbs::trace();
    tally.note(came);
    verbs::faults("");
    // Without faults, all operations must work.
    let life = Device::open(None).and_then(Life::new);
    let mut life = life.map_err(|error| format!("without faults: {error}"))?;
    if !life.works(tally)? || !life.end(tally)? {
        return Err("without faults it does not work".into());
    }
    let counts = Counts { refused: 0, ..Counts::now() };
    if counts != Counts::NONE {
        return Err(format!("left over: {counts:?}"));
    }
    Ok(())
}
