//! Does the work of the benchmarks, to be counted by callgrind or timed: see `cargo xtask bench`.
//!
//! `bench count` and `bench plot` say on each line what the next dump of callgrind is of: work, requests in a batch, side,
//! requests. `bench time` says how long a request takes: work, requests in a batch, side, picoseconds.

// As in the tests: what is impossible stops.
#![allow(clippy::indexing_slicing)]

mod libmlx5;

use libmlx5::Libmlx5;
use mlx5_bench::floor::{self, Floor, FloorMemory};
use mlx5_bench::ours::{Ours, OursMemory};
use mlx5_bench::{Fault, MAX_ENTRIES, Side, Work};
use mlx5_mkey::queue::UarDoorbell;
use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

/// Runs that are timed, of which the fastest counts.
const TRIES: usize = 200;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["count"] => all(Work::ALL.iter().copied(), count),
        ["plot"] => all((1..=MAX_ENTRIES as u8).map(Work::List), count),
        ["time"] => all(Work::ALL.iter().copied(), time),
        _ => Err("usage: bench count|plot|time".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures a work and returns how many blocks were posted while it did.
type Measure = fn(&mut dyn Side, &str, Work, usize) -> Result<u16, Fault>;

/// Measures works on all sides.
fn all(works: impl Iterator<Item = Work>, measure: Measure) -> Result<(), Box<dyn Error>> {
    let (mut ours_memory, mut floor_memory) = (Box::new(OursMemory::new()), Box::new(FloorMemory::new()));
    let mut sides: [(&str, Box<dyn Side + '_>); 3] = [
        ("ours", Box::new(Ours::new(&mut ours_memory, [doorbell(), doorbell()]))),
        ("libmlx5", Box::new(Libmlx5::open()?)),
        ("floor", Box::new(Floor::new(&mut floor_memory, doorbell()))),
    ];
    for work in works {
        for batch in work.batches() {
            let mut blocks = None;
            for (name, side) in &mut sides {
                if side.does(work) {
                    let posted = measure(side.as_mut(), name, work, *batch)
                        .map_err(|fault| format!("{work}, {batch} in a batch, {name}: {fault}"))?;
                    if *blocks.get_or_insert(posted) != posted {
                        return Err(
                            format!("{work}: {blocks:?} blocks of one side, {posted} of {name}").into()
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

/// A register that nobody reads.
fn doorbell() -> UarDoorbell {
    floor::doorbell(Box::leak(Box::new([0; 512])))
}

/// Does the work twice, with more requests the second time.
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

/// Times the work.
fn time(side: &mut dyn Side, name: &str, work: Work, batch: usize) -> Result<u16, Fault> {
    let [_, requests] = work.runs(batch);
    let (mut fastest, mut blocks) = (u128::MAX, 0);
    for _ in 0..TRIES {
        side.prepare(work, requests)?;
        let before = side.blocks();
        let start = Instant::now();
        black_box(&mut *side).run(work, batch, requests)?;
        fastest = fastest.min(start.elapsed().as_nanos());
        blocks = side.blocks().wrapping_sub(before);
        side.drain(work, requests)?;
    }
    println!("{work} {batch} {name} {}", fastest * 1000 / requests as u128);
    Ok(blocks)
}
