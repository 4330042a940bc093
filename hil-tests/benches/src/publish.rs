//! Doorbells whose registers are memory of this program, since no device takes part. Also the doorbell record
//! of the sides that work without the library.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ptr::{self, NonNull};
use mlx5_mkey::queue::{BlueFlame, UarDoorbell};

/// Returns a doorbell whose register is memory of this program instead of a device.
pub(crate) fn doorbell() -> UarDoorbell {
    // SAFETY: the register is this program's own memory, and no device reads it.
    unsafe { UarDoorbell::new(register()) }
}

/// Returns a doorbell that can write whole requests, to a register with two halves of 256 bytes.
pub(crate) fn blue_flame() -> BlueFlame {
    // SAFETY: the page is large enough for both halves and sufficiently aligned, and no device reads it.
    unsafe { BlueFlame::new(register(), 256) }
}

/// Returns the first register of a new page, which is never freed.
fn register() -> NonNull<u64> {
    NonNull::from(&mut Box::leak(Box::new(Page([0; 512]))).0).cast()
}

/// A page of doorbell registers.
#[repr(align(4096))]
struct Page([u64; 512]);

/// The doorbell record and the doorbell of a queue.
pub(crate) struct Publisher {
    /// The doorbell record in the device's layout: the counter of receives or completions, then the counter
    /// of send requests.
    record: [u32; 2],
    register: NonNull<u64>,
}

impl Publisher {
    pub(crate) fn new() -> Self {
        Self { record: [0; 2], register: register() }
    }

    /// Publishes all blocks before `producer`. `first_word` is the first word of the last request, as in the
    /// ring.
    #[inline(always)]
    pub(crate) fn send(&mut self, producer: u32, first_word: u64) {
        let [_, counter] = &mut self.record;
        fence_stores();
        // SAFETY: the pointer comes from a reference. The store is volatile, since a device would read the
        // doorbell record.
        unsafe { ptr::from_mut(counter).write_volatile((producer & 0xffff).to_be()) };
        flush();
        // SAFETY: `register` returned the pointer, and nobody else uses it.
        unsafe { self.register.write_volatile(first_word) };
        flush();
    }

    /// Gives the places of all completion entries before `consumer` back to the device.
    #[inline(always)]
    pub(crate) fn release(&mut self, consumer: u32) {
        let [counter, _] = &mut self.record;
        fence_stores();
        // SAFETY: the pointer comes from a reference. The store is volatile, since a device would read the
        // doorbell record.
        unsafe { ptr::from_mut(counter).write_volatile((consumer & 0x00ff_ffff).to_be()) };
    }
}

/// Executes an instruction that orders accesses to memory: one of an Arm core, or one of an x86-64 processor,
/// where an empty text is only a barrier for the compiler.
macro_rules! barrier {
    ($arm:literal, $x86:literal) => {
        // SAFETY: a barrier touches neither registers nor the stack. Every processor of the architecture has
        // the instruction.
        unsafe {
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!($arm, options(nostack, preserves_flags));
            #[cfg(not(target_arch = "aarch64"))]
            core::arch::asm!($x86, options(nostack, preserves_flags));
        }
    };
}

/// Orders all earlier stores before the next store to a doorbell record, by the barrier of the library's
/// queues. The library does not export this barrier.
#[inline(always)]
fn fence_stores() {
    barrier!("dmb oshst", "");
}

/// Orders the load of an entry's owner bit before the loads of its other bytes.
#[inline(always)]
pub(crate) fn fence_loads() {
    barrier!("dmb oshld", "");
}

#[inline(always)]
fn flush() {
    barrier!("dsb st", "sfence");
}
