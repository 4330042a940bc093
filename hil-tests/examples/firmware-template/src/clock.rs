//! Delays by the generic timer of Arm, which every core of a BlueField has.

#![allow(unsafe_code)]

use core::arch::asm;
use embedded_hal::delay::DelayNs;

pub(crate) struct GenericTimer;

/// Returns the timer's count, and its ticks in a second.
fn read() -> (u64, u64) {
    let (count, frequency): (u64, u64);
    // SAFETY: both registers can be read at EL1, and reading changes nothing. The barrier `isb` keeps the
    // processor from reading the count before earlier instructions are done.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) count, out(reg) frequency,
             options(nomem, nostack));
    }
    (count, frequency)
}

impl DelayNs for GenericTimer {
    fn delay_ns(&mut self, nanoseconds: u32) {
        let (start, frequency) = read();
        // The product fits into 64 bits: `nanoseconds` is below 2^32, and `frequency` is a few gigahertz.
        let ticks = (u64::from(nanoseconds) * frequency).div_ceil(1_000_000_000);
        while read().0.wrapping_sub(start) < ticks {
            core::hint::spin_loop();
        }
    }
}
