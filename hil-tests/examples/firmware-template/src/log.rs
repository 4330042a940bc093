//! The transport of defmt's log: frames over a serial port (PL011). `defmt-print -e IMAGE` decodes them.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use defmt::Encoder;

/// The data register and the flag register of the serial port, at their addresses in QEMU's machine `virt`.
const DATA: *mut u8 = 0x0900_0000 as *mut u8;
const FLAGS: *const u32 = 0x0900_0018 as *const u32;
/// Bit of the flag register: the port's transmit queue is full.
const FULL: u32 = 1 << 5;

/// Writes bytes to the serial port.
fn write(bytes: &[u8]) {
    for byte in bytes {
        // SAFETY: start-up code has mapped the registers of the port as device memory, and accesses to them
        // touch no memory of the program.
        unsafe {
            while FLAGS.read_volatile() & FULL != 0 {}
            DATA.write_volatile(*byte);
        }
    }
}

#[defmt::global_logger]
struct Logger;

struct Shared {
    taken: AtomicBool,
    encoder: UnsafeCell<Encoder>,
}

// SAFETY: the encoder is used between `acquire` and `release` only, by the core that has taken it.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared { taken: AtomicBool::new(false), encoder: UnsafeCell::new(Encoder::new()) };

// SAFETY: `acquire` lets one core at a time through, and `release` is called by that core. This program keeps
// interrupts masked, so no handler logs in the middle of a frame. A program with interrupts has to mask them
// from `acquire` to `release`.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        while SHARED.taken.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        // SAFETY: this core has taken the encoder.
        unsafe { (*SHARED.encoder.get()).start_frame(write) }
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: this core has taken the encoder.
        unsafe { (*SHARED.encoder.get()).end_frame(write) }
        SHARED.taken.store(false, Ordering::Release);
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: this core has taken the encoder.
        unsafe { (*SHARED.encoder.get()).write(bytes, write) }
    }
}
