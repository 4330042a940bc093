//! The program that does the work of the benchmarks, to be counted by callgrind or timed: see `cargo xtask
//! bench`.
//!
//! `bench count [SIDE…]` runs the work in the table of counts. `bench plot` runs lists of all lengths, for
//! the diagram of `cargo xtask bench --svg`. Both print a line for each dump that callgrind writes: work,
//! requests in a batch, side, requests. `bench time [WORK…]` compares the library and libmlx5. Each line has
//! the work, the requests in a batch, the nanoseconds for a request of the library and of libmlx5 in their
//! best runs, the ratio of these two (libmlx5 to library), and the median of the ratios of all rounds. The
//! environment decides whether libmlx5 is as installed or stripped ([`STRIPPED`]).
//!
//! Two commands measure a machine and its device, without libmlx5's side. `bench own` prints for each work of
//! the library the requests in a batch, the nanoseconds for a request in the best run, and its instructions,
//! or `-` where the processor does not count them for programs. `bench loopback DEVICE` prints rates and
//! latencies of whole I/Os on the device.

// Unexpected values make this program panic. Only the library must never panic.
#![allow(clippy::indexing_slicing)]

mod counter;
mod devx;
mod libmlx5;
mod loopback;

use counter::Counter;
use devx::Devx;
use libmlx5::Libmlx5;
use mlx5_bench::copy::BareCopy;
use mlx5_bench::floor::Floor;
use mlx5_bench::ours::{Ours, OursMemory};
use mlx5_bench::{Fault, MAX_ENTRIES, Side, Work};
use std::error::Error;
use std::hint::black_box;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Instant;

/// The environment variables that make libmlx5 work without locks, and with a doorbell of 8 bytes.
const STRIPPED: [&str; 2] = ["MLX5_SINGLE_THREADED", "MLX5_SHUT_UP_BF"];

/// Number of timed rounds (`ROUNDS`), and number of runs of each side in a round (`RUNS`).
const ROUNDS: usize = 31;
const RUNS: usize = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["count", ref sides @ ..] => count_all(Work::ALL.iter().copied(), sides),
        ["plot"] => count_all((1..=MAX_ENTRIES as u8).map(Work::Entries), &["ours", "libmlx5", "copy"]),
        ["time", ref works @ ..] => time_all(works),
        ["own"] => own(),
        ["loopback", device] => loopback::measure(device),
        _ => Err("usage: bench count [SIDE…]|plot|time [WORK…]|own|loopback DEVICE".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Counts work on the named sides, or on all sides.
fn count_all(works: impl Iterator<Item = Work>, wanted: &[&str]) -> Result<(), Box<dyn Error>> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
    let mut memory = OursMemory::default();
    let mut sides: Vec<(&str, Box<dyn Side + '_>)> = Vec::new();
    if is_wanted("ours") {
        sides.push(("ours", Box::new(Ours::new(&mut memory))));
        sides.push(("ours", Box::new(Devx::open()?)));
    }
    if is_wanted("libmlx5") {
        let is_set = |variable| std::env::var(variable).is_ok_and(|value| value == "1");
        let name = if STRIPPED.into_iter().all(is_set) { "libmlx5_stripped" } else { "libmlx5" };
        sides.push((name, Box::new(Libmlx5::open()?)));
    }
    if is_wanted("copy") {
        sides.push(("copy", Box::new(BareCopy::default())));
    }
    if is_wanted("floor") {
        sides.push(("floor", Box::new(Floor::default())));
    }
    for work in works {
        for batch in work.batches() {
            let mut blocks = None;
            for (name, side) in sides.iter_mut().filter(|(_, side)| side.does(work, *batch)) {
                let posted = count(side.as_mut(), name, work, *batch)
                    .map_err(|fault| format!("{work}, {batch} in a batch, {name}: {fault}"))?;
                if *blocks.get_or_insert(posted) != posted {
                    return Err(format!("{work}: {blocks:?} blocks of one side, {posted} of {name}").into());
                }
            }
        }
    }
    Ok(())
}

/// Runs the work twice for callgrind's count, with more requests the second time. Returns the number of
/// blocks that the second run has posted.
fn count(side: &mut dyn Side, name: &str, work: Work, batch: usize) -> Result<u16, Fault> {
    let runs @ [requests, _] = work.runs(batch);
    // A first run outside of the count does the work that a process does only once, such as resolving dynamic
    // symbols.
    side.prepare(work, requests)?;
    side.run(work, batch, requests)?;
    side.drain(work, requests)?;
    let mut blocks = 0;
    for requests in runs {
        side.prepare(work, requests)?;
        let before = side.blocks();
        bench_counted_region(side, work, batch, requests)?;
        blocks = side.blocks().wrapping_sub(before);
        side.drain(work, requests)?;
        println!("{work} {batch} {name} {requests}");
    }
    Ok(blocks)
}

/// Does the work of one run. `cargo xtask bench` makes callgrind count the instructions of this function, by
/// its name.
#[inline(never)]
fn bench_counted_region(side: &mut dyn Side, work: Work, batch: usize, requests: usize) -> Result<(), Fault> {
    black_box(side).run(work, batch, requests)
}

/// Times and counts each work of the library on this machine. No device takes part.
fn own() -> Result<(), Box<dyn Error>> {
    let mut memory = OursMemory::default();
    let mut ours = Ours::new(&mut memory);
    let mut counter = Counter::start();
    if let Err(error) = &counter {
        let advice = match error.kind() {
            ErrorKind::PermissionDenied => " (as root: sysctl kernel.perf_event_paranoid=2)",
            _ => " (this machine counts none for programs)",
        };
        eprintln!("bench: instructions are not counted: {error}{advice}");
    }
    for work in Work::ALL {
        for batch in work.batches() {
            if !ours.does(*work, *batch) {
                continue;
            }
            let (nanoseconds, count) = own_work(&mut ours, counter.as_mut().ok(), *work, *batch)
                .map_err(|fault| format!("{work}, {batch} in a batch: {fault}"))?;
            let count = count.map_or_else(|| "-".into(), |count| format!("{count:.1}"));
            println!("{work} {batch} {nanoseconds:.1} {count}");
        }
    }
    Ok(())
}

/// Returns the nanoseconds of a request in the best run, and its instructions if there is a counter.
fn own_work(
    side: &mut dyn Side,
    counter: Option<&mut Counter>,
    work: Work,
    batch: usize,
) -> Result<(f64, Option<f64>), Box<dyn Error>> {
    let (best, _) = time(side, work, batch)?;
    let count = counter.map(|counter| instructions(side, counter, work, batch)).transpose()?;
    Ok((best, count))
}

/// Returns the instructions of a request. The function compares two runs of different lengths, so the costs
/// of a run besides its requests cancel out.
fn instructions(
    side: &mut dyn Side,
    counter: &mut Counter,
    work: Work,
    batch: usize,
) -> Result<f64, Box<dyn Error>> {
    let runs @ [fewer, more] = work.runs(batch);
    let mut counts = [u64::MAX; 2];
    for (requests, least) in runs.into_iter().zip(&mut counts) {
        for _ in 0..RUNS {
            side.prepare(work, requests)?;
            let before = counter.read()?;
            black_box(&mut *side).run(work, batch, requests)?;
            // An interrupt can only add instructions, so the smallest count is the most exact one.
            *least = (*least).min(counter.read()?.saturating_sub(before));
            side.drain(work, requests)?;
        }
    }
    let [shorter, longer] = counts;
    Ok(longer.saturating_sub(shorter) as f64 / (more - fewer) as f64)
}

/// Times the named work, or all work. In each round, the library does the work first, then libmlx5.
fn time_all(wanted: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut memory = OursMemory::default();
    let (mut ours, mut devx, mut libmlx5) = (Ours::new(&mut memory), Devx::open()?, Libmlx5::open()?);
    for work in Work::ALL.iter().filter(|work| wanted.is_empty() || wanted.contains(&&*work.to_string())) {
        for batch in work.batches() {
            let library: &mut dyn Side = if devx.does(*work, *batch) { &mut devx } else { &mut ours };
            if libmlx5.does(*work, *batch) {
                time_work(library, &mut libmlx5, *work, *batch)
                    .map_err(|fault| format!("{work}, {batch} in a batch: {fault}"))?;
            }
        }
    }
    Ok(())
}

/// Times one kind of work by both sides, round after round. Other programs on the machine can only make a run
/// longer, so the best run is nearest to the real time of a request.
fn time_work(library: &mut dyn Side, libmlx5: &mut dyn Side, work: Work, batch: usize) -> Result<(), Fault> {
    let [mut best_of_library, mut best_of_libmlx5] = [f64::INFINITY; 2];
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let (own, own_sum) = time(library, work, batch)?;
        let (other, other_sum) = time(libmlx5, work, batch)?;
        best_of_library = best_of_library.min(own);
        best_of_libmlx5 = best_of_libmlx5.min(other);
        ratios.push(other_sum / own_sum);
    }
    ratios.sort_by(f64::total_cmp);
    let (best, median) = (best_of_libmlx5 / best_of_library, ratios[ROUNDS / 2]);
    println!("{work} {batch} {best_of_library:.1} {best_of_libmlx5:.1} {best:.2} {median:.2}");
    Ok(())
}

/// Times [`RUNS`] runs of one side. Returns the nanoseconds for a request in the best run, and the sum of the
/// nanoseconds for a request in each run.
fn time(side: &mut dyn Side, work: Work, batch: usize) -> Result<(f64, f64), Fault> {
    let requests = work.timed(batch);
    let mut times = [0.0; RUNS];
    for time in &mut times {
        side.prepare(work, requests)?;
        let start = Instant::now();
        black_box(&mut *side).run(work, batch, requests)?;
        *time = start.elapsed().as_secs_f64() * 1e9 / requests as f64;
        side.drain(work, requests)?;
    }
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    Ok((best, times.iter().sum()))
}
