//! Order between the CPU's accesses and the device's. One function per pair of accesses that must not swap.
//!
//! The device reads ring and record through a coherent DMA path, so on x86-64 program order of plain stores is enough
//! and only the compiler has to be held. Arm orders nothing by itself. Barriers for devices are of the outer shareable
//! domain (`osh`), which the device's DMA path belongs to; those for other CPUs (`ish`) would not do.

#![allow(unsafe_code)]

/// Defines a barrier by its instruction on Arm and on x86-64. No instruction at all still holds the compiler, since the
/// assembler block is taken to touch memory.
macro_rules! barrier {
    ($(#[$doc:meta])* $name:ident: aarch64 $aarch64:literal, x86_64 $x86_64:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name() {
            #[cfg(target_arch = "aarch64")]
            // SAFETY: a barrier instruction; it touches neither registers nor the stack.
            unsafe {
                core::arch::asm!($aarch64, options(nostack, preserves_flags));
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a barrier instruction of SSE, which every x86-64 has, or none.
            unsafe {
                core::arch::asm!($x86_64, options(nostack, preserves_flags));
            }
            #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
            core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        }
    };
}

barrier! {
    /// Orders the blocks of a ring before the doorbell record: a device that sees the new counter sees whole requests.
    blocks_before_record: aarch64 "dmb oshst", x86_64 ""
}

barrier! {
    /// Orders the doorbell record before the doorbell: a device that hears the doorbell reads the new counter.
    ///
    /// `dmb` would not do on Arm: the doorbell is a store to a non-cacheable or write-combining mapping, which only `dsb`
    /// holds back until the record's store is complete.
    record_before_doorbell: aarch64 "dsb st", x86_64 "sfence"
}

barrier! {
    /// Pushes the doorbell out of the CPU's write-combining buffer, so that two doorbells cannot swap there.
    flush_doorbell: aarch64 "dsb st", x86_64 "sfence"
}

barrier! {
    /// Orders the read of an entry's owner bit before the reads of the rest: an entry that is ours is read as it was
    /// written.
    owner_before_entry: aarch64 "dmb oshld", x86_64 ""
}

barrier! {
    /// Orders the reads of entries before the record that gives their slots back: the device cannot overwrite what is
    /// being read. Loads before and a store behind, so the full barrier.
    entries_before_record: aarch64 "dmb osh", x86_64 ""
}
