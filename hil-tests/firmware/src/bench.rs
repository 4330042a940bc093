//! The work of the benchmarks, and how many instructions it takes.
//!
//! One line for each count: work, requests in a batch, side, requests, instructions. Told to count instructions, QEMU lets
//! a cycle pass for each, so that the counter of cycles is one of instructions. On a core it would count cycles.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::format;
use core::arch::asm;
use core::hint::black_box;
use mlx5_bench::copy::BareCopy;
use mlx5_bench::floor::Floor;
use mlx5_bench::ours::{Ours, OursMemory};
use mlx5_bench::{Fault, Side, Work};

/// Counts all work.
pub(crate) fn run() -> Result<(), Fault> {
    start_counting();
    let mut memory = OursMemory::new();
    let mut sides: [(&str, Box<dyn Side + '_>); 3] = [
        ("ours", Box::new(Ours::new(&mut memory))),
        ("copy", Box::new(BareCopy::new())),
        ("floor", Box::new(Floor::new())),
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

/// Has the counter of cycles (PMCCNTR_EL0) count from 0, in 64 bits.
fn start_counting() {
    // SAFETY: registers of the performance monitors, which nobody else uses: PMCR_EL0.{E,C,LC} and PMCNTENSET_EL0.C.
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

/// Returns how many cycles have passed, with everything before done and nothing behind begun.
fn counter() -> u64 {
    let count: u64;
    // SAFETY: reads a register.
    unsafe {
        asm!("isb", "mrs {count}, pmccntr_el0", "isb", count = out(reg) count, options(nostack, preserves_flags));
    }
    count
}
