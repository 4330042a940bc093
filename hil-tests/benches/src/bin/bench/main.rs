//! Does the work of the benchmarks, to be counted by callgrind or timed: see `cargo xtask bench`.
//!
//! `bench count [SIDE…]` and `bench plot` say on each line what the next dump of callgrind is of: work, requests in a
//! batch, side, requests. `bench time` says how many times longer libmlx5 takes than the library: work, requests in a batch,
//! ratio. The environment says whether libmlx5 is as it comes or stripped ([`STRIPPED`]).

// As in the tests: what is impossible stops.
#![allow(clippy::indexing_slicing)]

mod libmlx5;

use libmlx5::Libmlx5;
use mlx5_bench::copy::BareCopy;
use mlx5_bench::floor::Floor;
use mlx5_bench::ours::{Ours, OursMemory};
use mlx5_bench::{Fault, MAX_ENTRIES, Side, Work};
use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What makes libmlx5 do without locks, and with a doorbell of 8 bytes.
const STRIPPED: [&str; 2] = ["MLX5_SINGLE_THREADED", "MLX5_SHUT_UP_BF"];

/// Rounds that are timed, in each of which both sides have their turn, and runs in a turn.
const ROUNDS: usize = 15;
const RUNS: usize = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["count", ref sides @ ..] => count_all(Work::ALL.iter().copied(), sides),
        ["plot"] => count_all((1..=MAX_ENTRIES as u8).map(Work::Entries), &["ours", "libmlx5", "copy"]),
        ["time"] => time_all(),
        _ => Err("usage: bench count [SIDE…]|plot|time".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Counts works on the sides that are named, or on all.
fn count_all(works: impl Iterator<Item = Work>, wanted: &[&str]) -> Result<(), Box<dyn Error>> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
    let mut memory = OursMemory::new();
    let mut sides: Vec<(&str, Box<dyn Side + '_>)> = Vec::new();
    if is_wanted("ours") {
        sides.push(("ours", Box::new(Ours::new(&mut memory))));
    }
    if is_wanted("libmlx5") {
        let is_set = |variable| std::env::var(variable).is_ok_and(|value| value == "1");
        let name = if STRIPPED.into_iter().all(is_set) { "libmlx5_stripped" } else { "libmlx5" };
        sides.push((name, Box::new(Libmlx5::open()?)));
    }
    if is_wanted("copy") {
        sides.push(("copy", Box::new(BareCopy::new())));
    }
    if is_wanted("floor") {
        sides.push(("floor", Box::new(Floor::new())));
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

/// Does the work twice, with more requests the second time, and returns how many blocks were posted then.
fn count(side: &mut dyn Side, name: &str, work: Work, batch: usize) -> Result<u16, Fault> {
    let runs @ [requests, _] = work.runs(batch);
    // What is done once in a lifetime, like finding functions.
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

/// What callgrind counts, by this name: see `cargo xtask bench`.
#[inline(never)]
fn bench_counted_region(side: &mut dyn Side, work: Work, batch: usize, requests: usize) -> Result<(), Fault> {
    black_box(side).run(work, batch, requests)
}

/// Times both libraries by turns.
fn time_all() -> Result<(), Box<dyn Error>> {
    let mut memory = OursMemory::new();
    let (mut ours, mut libmlx5) = (Ours::new(&mut memory), Libmlx5::open()?);
    for work in Work::ALL {
        for batch in work.batches() {
            if !libmlx5.does(*work, *batch) {
                continue;
            }
            let mut ratios = Vec::new();
            for _ in 0..ROUNDS {
                let ours = time(&mut ours, *work, *batch)?;
                ratios.push(time(&mut libmlx5, *work, *batch)?.as_secs_f64() / ours.as_secs_f64().max(1e-9));
            }
            ratios.sort_by(f64::total_cmp);
            println!("{work} {batch} {:.2}", ratios[ROUNDS / 2]);
        }
    }
    Ok(())
}

/// Times some runs.
fn time(side: &mut dyn Side, work: Work, batch: usize) -> Result<Duration, Fault> {
    let [_, requests] = work.runs(batch);
    let mut time = Duration::ZERO;
    for _ in 0..RUNS {
        side.prepare(work, requests)?;
        let start = Instant::now();
        black_box(&mut *side).run(work, batch, requests)?;
        time += start.elapsed();
        side.drain(work, requests)?;
    }
    Ok(time)
}
