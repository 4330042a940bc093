//! Switches translation and caches on, and reads back the result from the processor.

#![allow(unsafe_code)]

use crate::memory;
use crate::paging::{self, Kind, MapError, Table, Tables};
use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{
    MAIR_EL1, PAR_EL1, ReadWriteable as _, Readable as _, SCTLR_EL1, TCR_EL1, TTBR0_EL1, Writeable as _,
};
use core::arch::asm;

/// Memory for the translation tables: the root, one for each gigabyte, and one for each end of a range that
/// is no multiple of 2 MB. The image uses half of them.
static mut TABLES: [Table; 16] = [Table::EMPTY; 16];

/// Maps the image and switches translation and caches on. The caller calls this function once, before
/// anything else.
///
/// # Errors
/// The reason why a range cannot be mapped, which is an error in the linker scripts.
pub(crate) fn enable() -> Result<(), MapError> {
    // SAFETY: the function is called once: the reference is the only one. The processor does not read the
    // tables yet.
    let tables = unsafe { &mut *(&raw mut TABLES) };
    let root = tables.as_ptr().addr() as u64;
    let mut tables = Tables::new(tables, root);
    let shared = match memory::dma_attributes() {
        paging::NON_CACHEABLE => Kind::Uncached,
        _ => Kind::Data,
    };
    for (range, kind) in [
        (memory::code(), Kind::Code),
        (memory::constants(), Kind::Constants),
        (memory::variables(), Kind::Data),
        (memory::stack(), Kind::Data),
        (memory::dma(), shared),
        (memory::heap(), Kind::Data),
    ] {
        tables.map(range.start, range.end, kind)?;
    }
    MAIR_EL1.set(paging::MAIR);
    TCR_EL1.write(
        TCR_EL1::T0SZ.val(64 - paging::ADDRESS_BITS)
            + TCR_EL1::TG0::KiB_4
            + TCR_EL1::SH0::Inner
            + TCR_EL1::ORGN0::WriteBack_ReadAlloc_WriteAlloc_Cacheable
            + TCR_EL1::IRGN0::WriteBack_ReadAlloc_WriteAlloc_Cacheable
            + TCR_EL1::EPD1::DisableTTBR1Walks
            + TCR_EL1::IPS::Bits_40,
    );
    TTBR0_EL1.set_baddr(root);
    // SAFETY: the assembly consists of barriers, and of instructions that drop the processor's copies of
    // older tables and code. The tables map each range of the program to its own address, so the address of
    // the next instruction stays valid.
    unsafe {
        asm!("dsb sy", "isb", "tlbi vmalle1", "ic iallu", "dsb sy", "isb", options(nostack, preserves_flags));
    }
    SCTLR_EL1.modify(
        SCTLR_EL1::M::Enable + SCTLR_EL1::C::Cacheable + SCTLR_EL1::I::Cacheable + SCTLR_EL1::WXN::Enable,
    );
    barrier::isb(barrier::SY);
    Ok(())
}

/// Returns SCTLR_EL1, and whether translation and both caches are on.
pub(crate) fn control() -> (u64, bool) {
    let control = SCTLR_EL1.extract();
    let on = control.is_set(SCTLR_EL1::M) && control.is_set(SCTLR_EL1::C) && control.is_set(SCTLR_EL1::I);
    (control.get(), on)
}

/// Returns the memory attributes of an address (as a byte of MAIR_EL1), or `None` if the address is unmapped.
pub(crate) fn attributes(address: u64) -> Option<u64> {
    // SAFETY: the address translation instruction accesses no memory of the program and writes PAR_EL1 only.
    unsafe {
        asm!("at s1e1r, {}", "isb", in(reg) address, options(nostack, preserves_flags));
    }
    let result = PAR_EL1.get();
    (result & 1 == 0).then_some(result >> 56)
}
