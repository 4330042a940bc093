//! Order between the CPU's accesses and the device's. One function per pair of accesses that must not swap.
//!
//! The device reads ring and record through a coherent DMA path, so on x86-64 program order of plain stores
//! is enough and only the compiler has to be held. Arm orders nothing by itself. Barriers for devices are of
//! the outer shareable domain (`osh`), which the device's DMA path belongs to; those for other CPUs (`ish`)
//! would not do.
//!
//! Below, W and R are a write and a read of one place, CPU and device run side by side, and what
//! is *forbidden* must not be seen. In each case the other side has an order of its own, named in
//! brackets, and without that no barrier here would help: a forbidden outcome needs a cycle, and
//! the two orders together break it. `cargo xtask test aarch64` reads these instructions in what
//! the compiler wrote, with the accesses around them.
//!
//! ```text
//! 1  CPU     W blocks;  dmb oshst;  W record
//!    device  R record   [address: which blocks it reads depends on the counter]   R blocks
//!    forbidden: the new record and old blocks. oshst orders stores before against stores after, which is all
//!    there are.
//!
//! 2  CPU     W record;  dsb st;  W doorbell
//!    device  doorbell arrives   [cause: it looks because it heard]   R record
//!    forbidden: the doorbell and the old record, for the device would stop at that and nobody rings again.
//!    The doorbell is not in shared memory: it goes through a non-cacheable mapping to another observer, by
//!    another path. dmb orders what observers of one domain see of memory; dsb waits until the record's store
//!    is complete for all of them, and only then lets the next instruction begin.
//!
//! 3  CPU     W doorbell of request n;  dsb st;  W doorbell of request n+1, by the lock's next holder too
//!    device  takes doorbells in the order of their arrival
//!    forbidden: n+1 before n, or n held in a write buffer for as long as nothing pushes it out. A mapping
//!    that gathers (x86-64 write-combining, Arm Normal non-cacheable) gives no order between two stores;
//!    after dsb the first is gone.
//!
//! 4  device  W entry, its owner bit last   [PCIe: writes of one requester stay in order]
//!    CPU     R owner bit;  dmb oshld;  R entry, R data that it is about
//!    forbidden: the new owner bit and an old entry, or old data of a message. Branches do not order reads on
//!    Arm: it may read the entry ahead of the bit and keep what it found. oshld orders the read before
//!    against all accesses after, so that what the request brought into memory may be read after it too.
//!
//! 5  CPU     R entries;  dmb osh;  W record
//!    device  R record   [address: which slots are free]   W entries of the next lap
//!    forbidden: an entry of the next lap in a read that belongs to this one. The reads must be over before
//!    the write: oshst leaves reads out. oshld would be enough; the full barrier also orders what the caller
//!    wrote before.
//!
//! 6  CPU     W arm word;  dsb st;  W completion queue's doorbell;  dsb st
//!    device  doorbell arrives   [cause: it looks because it heard]   R arm word
//!    forbidden: the doorbell and the old arm word; and two doorbells that swap. As 2 and 3. The consumer
//!    index in both is that of 5, whose barrier comes before: entries up to it were read.
//!
//! 7  CPU     W doorbell with the consumer index;  R entry, and sleeps if there is none
//!    device  W entry   [own order: it knows its writes when a doorbell arrives]   compares the index
//!    forbidden: a CPU that sleeps and a device that raises no event. No barrier could order a read after the
//!    arrival of a doorbell, and none is needed: an entry that was written before is more than the index
//!    says, and raises the event then; one that is written after raises it as the queue is armed. (The
//!    kernel's driver relies on it: it arms and does not look again.)
//!
//! 8  CPU     W blocks and entry of a command;  dsb st;  W command doorbell;  dsb st
//!    device  doorbell arrives   [cause: it heard]   R entry   [address: which blocks]   R blocks
//!    forbidden: the doorbell and an old entry or block. As 2 and 3. The reply comes as an entry in 4 does,
//!    its owner bit last.
//! ```

#![allow(unsafe_code)]

// A fence between threads orders no device: what another architecture needs has to be looked up there.
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("the order between the CPU's accesses and the device's is known for x86-64 and aarch64 only");

/// Defines a barrier by its instruction on Arm and on x86-64. No instruction at all still holds the compiler,
/// since the assembler block is taken to touch memory.
macro_rules! barrier {
    ($(#[$doc:meta])* $name:ident: aarch64 $aarch64:literal, x86_64 $x86_64:literal) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name() {
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
        }
    };
}

barrier! {
    /// Orders the blocks of a ring before the doorbell record: a device that sees the new counter sees whole
    /// requests.
    blocks_before_record: aarch64 "dmb oshst", x86_64 ""
}

barrier! {
    /// Orders the doorbell record, or a command, before the doorbell: a device that hears the doorbell reads
    /// the new counter, arm word or command.
    ///
    /// `dmb` would not do on Arm: the doorbell is a store to a non-cacheable or write-combining mapping,
    /// which only `dsb` holds back until the record's store is complete.
    record_before_doorbell: aarch64 "dsb st", x86_64 "sfence"
}

barrier! {
    /// Pushes the doorbell out of the CPU's write-combining buffer, so that two doorbells cannot swap there.
    flush_doorbell: aarch64 "dsb st", x86_64 "sfence"
}

barrier! {
    /// Orders the read of an entry's owner bit before the reads of the rest: an entry that is ours is read as
    /// it was written.
    owner_before_entry: aarch64 "dmb oshld", x86_64 ""
}

barrier! {
    /// Orders the reads of entries before the record that gives their slots back: the device cannot overwrite
    /// what is being read. Loads before and a store after, so the full barrier.
    entries_before_record: aarch64 "dmb osh", x86_64 ""
}
