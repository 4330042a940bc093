//! Order between the CPU's accesses and the device's. One function per pair of accesses that must not swap.
//!
//! The device reads ring and record through a coherent DMA path, so on x86-64 program order of plain stores is enough
//! and only the compiler has to be held. Arm orders nothing by itself. Barriers for devices are of the outer shareable
//! domain (`osh`), which the device's DMA path belongs to; those for other CPUs (`ish`) would not do.

#![allow(unsafe_code)]

/// Orders the blocks of a ring before the doorbell record: a device that sees the new counter sees whole requests.
#[inline(always)]
pub(super) fn blocks_before_record() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction; it touches neither memory nor registers. Without `nomem` it also holds the compiler.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Orders the doorbell record before the doorbell: a device that hears the doorbell reads the new counter.
///
/// `dmb` would not do on Arm: the doorbell is a store to a non-cacheable or write-combining mapping, which only `dsb`
/// holds back until the record's store is complete.
#[inline(always)]
pub(super) fn record_before_doorbell() {
    flush();
}

/// Pushes the doorbell out of the CPU's write-combining buffer, so that two doorbells cannot swap there.
#[inline(always)]
pub(super) fn flush_doorbell() {
    flush();
}

#[inline(always)]
fn flush() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above. `sfence` belongs to SSE, which every x86-64 has.
    unsafe {
        core::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Orders the read of an entry's owner bit before the reads of the rest: an entry that is ours is read as it was written.
#[inline(always)]
pub(super) fn owner_before_entry() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Orders the reads of entries before the record that gives their slots back: the device cannot overwrite what is being
/// read.
#[inline(always)]
pub(super) fn entries_before_record() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above. Loads before and stores after, so the full barrier.
    unsafe {
        core::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
