//! Memory that the linker script sets aside.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};
use firmware::DeviceMemory;

// SAFETY: the linker script defines both symbols. The program uses only their addresses.
unsafe extern "C" {
    static mut __dma_start: DeviceMemory;
    static mut __dma_end: u8;
}

/// Returns the memory that the device reads and writes. Returns `None` at the second call, or if the linker
/// script sets too little aside.
pub(crate) fn for_device() -> Option<&'static mut DeviceMemory> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let (start, end) = (&raw mut __dma_start, &raw mut __dma_end);
    let room = end.addr().saturating_sub(start.addr());
    if room < size_of::<DeviceMemory>() || TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    // SAFETY: the linker script aligns this memory to 4096 bytes and places nothing else there. The size was
    // checked above. The flag `TAKEN` makes sure that this is the only reference.
    unsafe {
        start.write(DeviceMemory::default());
        Some(&mut *start)
    }
}
