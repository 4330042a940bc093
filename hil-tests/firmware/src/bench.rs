//! Runs the work of the benchmarks (`hil-tests/benches`) and counts its instructions.
//!
//! Prints one line for each count: work, requests in a batch, side that does it (`ours`: the library, `copy`:
//! a bare copy, `floor`: written by hand), requests, instructions. QEMU with the option `-icount` lets one
//! cycle pass for each instruction: the cycle counter then counts instructions. A real core would count
//! cycles.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::format;
use core::arch::asm;
use core::hint::black_box;
use mlx5_bench::copy::BareCopy;
use mlx5_bench::floor::Floor;
use mlx5_bench::ours::{Ours, OursMemory};
use mlx5_bench::{Fault, Side, Work};

/// Counts the instructions of all work.
pub(crate) fn run() -> Result<(), Fault> {
    start_counting();
    let mut memory = OursMemory::default();
    let mut sides: [(&str, Box<dyn Side + '_>); 3] = [
        ("ours", Box::new(Ours::new(&mut memory))),
        ("copy", Box::new(BareCopy::default())),
        ("floor", Box::new(Floor::default())),
    ];
    for work in Work::ALL {
        for batch in work.batches() {
            for (name, side) in &mut sides {
                for requests in work.runs(*batch) {
                    if side.does(*work, *batch) {
                        let count = count(side.as_mut(), *work, *batch, requests)?;
                        defmt::println!("{=str}", &*format!("{work} {batch} {name} {requests} {count}"));
                    }
                }
            }
        }
    }
    Ok(())
}

fn count(side: &mut dyn Side, work: Work, batch: usize, requests: usize) -> Result<u64, Fault> {
    side.prepare(work, requests)?;
    let side = black_box(side);
    let start = counter();
    side.run(work, batch, requests)?;
    let end = counter();
    side.drain(work, requests)?;
    Ok(end.wrapping_sub(start))
}

/// Makes the cycle counter (PMCCNTR_EL0) count from 0, in 64 bits.
fn start_counting() {
    // SAFETY: only registers of the performance monitors change, which nothing else uses: PMCR_EL0.{E,C,LC}
    // and PMCNTENSET_EL0.C.
    unsafe {
        asm!(
            "msr pmccfiltr_el0, xzr",
            "msr pmcntenset_el0, {cycles}",
            "msr pmcr_el0, {on}",
            "isb",
            cycles = in(reg) 1_u64 << 31,
            on = in(reg) 0b100_0101_u64,
            options(nostack, preserves_flags)
        );
    }
}

/// Returns the cycles so far. Barriers complete all earlier instructions and hold back all later ones.
fn counter() -> u64 {
    let count: u64;
    // SAFETY: the assembly only reads a register.
    unsafe {
        asm!(
            "isb",
            "mrs {count}, pmccntr_el0",
            "isb",
            count = out(reg) count,
            options(nostack, preserves_flags)
        );
    }
    count
}
