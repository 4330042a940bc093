//! Registers that nobody reads, and a doorbell record for the sides that do without the library.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ptr::{self, NonNull};
use mlx5_mkey::queue::{BlueFlame, UarDoorbell};

/// A doorbell that nobody hears.
pub(crate) fn doorbell() -> UarDoorbell {
    // SAFETY: a register of one's own, and no device listens.
    unsafe { UarDoorbell::new(register()) }
}

/// One that takes whole requests, with halves of 256 bytes.
pub(crate) fn blue_flame() -> BlueFlame {
    // SAFETY: the page is as large, and aligned to more than a block; no device listens.
    unsafe { BlueFlame::new(register(), 256) }
}

/// The first register of a page of its own, which is never freed.
fn register() -> NonNull<u64> {
    NonNull::from(&mut Box::leak(Box::new(Page([0; 512]))).0).cast()
}

/// A page, as devices have them.
#[repr(align(4096))]
struct Page([u64; 512]);

/// Tells a device of what is in the ring.
pub(crate) struct Publisher {
    /// As the device has it: what was received or completed, and what is to be sent.
    record: [u32; 2],
    register: NonNull<u64>,
}

impl Publisher {
    pub(crate) fn new() -> Self {
        Self { record: [0; 2], register: register() }
    }

    /// Publishes all blocks before `producer`; `first_word` is the start of the last request, as the ring has
    /// it.
    #[inline(always)]
    pub(crate) fn send(&mut self, producer: u32, first_word: u64) {
        let [_, counter] = &mut self.record;
        fence_stores();
        // SAFETY: a reference is valid; the store is kept since a device would read it.
        unsafe { ptr::from_mut(counter).write_volatile((producer & 0xffff).to_be()) };
        flush();
        // SAFETY: `register` returned it; nobody else uses it.
        unsafe { self.register.write_volatile(first_word) };
        flush();
    }

    /// Gives the slots of all entries before `consumer` back.
    #[inline(always)]
    pub(crate) fn release(&mut self, consumer: u32) {
        let [counter, _] = &mut self.record;
        fence_stores();
        // SAFETY: as above.
        unsafe { ptr::from_mut(counter).write_volatile((consumer & 0x00ff_ffff).to_be()) };
    }
}

/// The barriers of the library's queues, which do not show theirs.
#[inline(always)]
fn fence_stores() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches neither registers nor the stack.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    // SAFETY: nothing but a barrier for the compiler.
    unsafe {
        core::arch::asm!("", options(nostack, preserves_flags));
    }
}

/// The barrier between an entry's owner bit and the rest of it.
#[inline(always)]
pub(crate) fn fence_loads() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("", options(nostack, preserves_flags));
    }
}

#[inline(always)]
fn flush() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; every x86-64 has it.
    unsafe {
        core::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}
