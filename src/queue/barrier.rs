//! Order between accesses of the CPU and of the device. Each function keeps one pair of accesses in order.
//!
//! The device reads ring and record through a coherent DMA path. On x86-64, program order of plain stores is
//! therefore enough, and only the compiler has to keep it. Arm orders nothing by itself. Barriers for devices
//! are of the outer shareable domain (`osh`), to which the device's DMA path belongs. Barriers for other CPUs
//! (`ish`) would not suffice.
//!
//! In the list below, W is a write and R a read of one place, and CPU and device run concurrently.
//! *Forbidden* names an outcome that must not occur. The barrier keeps the CPU's accesses in order. The
//! device keeps its own accesses in order, for the reason in brackets. Only both orders together exclude the
//! outcome. `cargo xtask test aarch64` finds these instructions, and the accesses around them, in the
//! compiler's output.
//!
//! ```text
//! 1  CPU     W blocks;  dmb oshst;  W record
//!    device  R record   [address: the counter decides which blocks it reads]   R blocks
//!    forbidden: the device reads the new record and old blocks. oshst orders earlier stores before later
//!    stores, and the CPU's accesses are all stores.
//!
//! 2  CPU     W record;  dsb st;  W doorbell
//!    device  doorbell arrives   [cause: the doorbell makes it look]   R record
//!    forbidden: the device gets the doorbell and reads the old record. It would stop at the old counter, and
//!    nobody rings again. The doorbell is not in shared memory: it takes another path, through a
//!    non-cacheable mapping, to another observer. dmb orders memory only for observers of one domain. dsb
//!    waits until the record's store is complete for all observers, and then lets the next instruction begin.
//!
//! 3  CPU     W doorbell of request n;  dsb st;  W doorbell of request n+1, also by the lock's next holder
//!    device  takes doorbells in the order of their arrival
//!    forbidden: doorbell n+1 arrives before n, or n stays in a write buffer until another store pushes it
//!    out. A mapping that gathers (x86-64 write-combining, Arm Normal non-cacheable) gives no order between
//!    two stores. After dsb, the first store has left the buffer.
//!
//! 4  device  W entry, its owner bit last   [PCIe: writes of one requester stay in order]
//!    CPU     R owner bit;  dmb oshld;  R entry, R data of its request
//!    forbidden: the CPU reads the new owner bit and an old entry, or old data of a message. On Arm, branches
//!    do not order reads: the CPU may read the entry ahead of the bit. oshld orders the earlier read before
//!    all later accesses, also before reads of the data that the request brought into memory.
//!
//! 5  CPU     R entries;  dmb osh;  W record
//!    device  R record   [address: the index decides which slots are free]   W entries of the next lap
//!    forbidden: a read of this lap returns an entry of the next lap. The reads must be complete before the
//!    write, and oshst does not order reads. oshld would be enough; the full barrier also orders earlier
//!    writes of the caller.
//!
//! 6  CPU     W arm word;  dsb st;  W completion queue's doorbell;  dsb st
//!    device  doorbell arrives   [cause: the doorbell makes it look]   R arm word
//!    forbidden: the device gets the doorbell and reads the old arm word, or two doorbells swap. The reasons
//!    are those of 2 and 3. Arm word and doorbell contain the consumer index. The barrier of 5 comes before
//!    them, so all entries up to the index were read.
//!
//! 7  CPU     W doorbell with the consumer index;  R entry, and sleeps if there is none
//!    device  W entry   [own order: the device knows its writes when a doorbell arrives]   compares the index
//!    forbidden: the CPU sleeps and the device raises no event. No barrier could order a read after the
//!    arrival of a doorbell, and none is needed. If the entry was written before the arrival, the device
//!    has written more entries than the index says, and raises the event on arrival. If the entry is written
//!    later, the queue is armed, and the device raises the event with the entry. (The kernel's driver relies
//!    on this order: it arms and does not look again.)
//!
//! 8  CPU     W blocks and entry of a command;  dsb st;  W command doorbell;  dsb st
//!    device  doorbell arrives   [cause: the doorbell]   R entry   [address: which blocks]   R blocks
//!    forbidden: the device gets the doorbell and reads an old entry or block. The reasons are those of 2 and
//!    3. The reply comes like an entry in 4, with its owner bit last.
//! ```

#![allow(unsafe_code)]

// Rust's fences order accesses of threads, not of a device. Each further architecture needs its own barrier
// instructions.
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("the order between the CPU's accesses and the device's is known for x86-64 and aarch64 only");

/// Defines a barrier by its instruction on Arm and on x86-64. Even without an instruction, the assembler
/// block restrains the compiler, which assumes that the block accesses memory.
macro_rules! barrier {
    ($(#[$doc:meta])* $name:ident: aarch64 $aarch64:literal, x86_64 $x86_64:literal) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name() {
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the block contains a barrier instruction, which touches neither registers nor the
            // stack.
            unsafe {
                core::arch::asm!($aarch64, options(nostack, preserves_flags));
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the block contains a barrier instruction of SSE, which every x86-64 CPU has, or no
            // instruction.
            unsafe {
                core::arch::asm!($x86_64, options(nostack, preserves_flags));
            }
        }
    };
}

barrier! {
    /// Orders the blocks of a ring before the doorbell record: a device that reads the new counter reads
    /// complete requests.
    blocks_before_record: aarch64 "dmb oshst", x86_64 ""
}

barrier! {
    /// Orders the doorbell record, or a command, before the doorbell: a device that gets the doorbell reads
    /// the new counter, arm word or command.
    ///
    /// On Arm, `dmb` would not suffice. The doorbell is a store to a non-cacheable or write-combining
    /// mapping, and only `dsb` delays this store until the record's store is complete.
    record_before_doorbell: aarch64 "dsb st", x86_64 "sfence"
}

barrier! {
    /// Pushes the doorbell out of the CPU's write-combining buffer, so that two doorbells cannot swap there.
    flush_doorbell: aarch64 "dsb st", x86_64 "sfence"
}

barrier! {
    /// Orders the read of a completion entry's owner bit before the reads of the entry's other fields. If the
    /// owner bit shows a new entry, the CPU reads the other fields of the new entry too.
    owner_before_entry: aarch64 "dmb oshld", x86_64 ""
}

barrier! {
    /// Orders the reads of completion entries before the record that gives their slots back: the device
    /// cannot overwrite an entry during a read. On Arm, `dmb oshst` would not order loads before a store. The
    /// full barrier also orders earlier stores of the caller.
    entries_before_record: aarch64 "dmb osh", x86_64 ""
}
