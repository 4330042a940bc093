//! The assembly code from the first instruction to the first line of Rust, and the exception vectors.
//!
//! The loader must have done what Linux's boot protocol asks for: one core, at EL2 or EL1, with translation
//! and data cache off, and all bytes of the image in memory instead of dirty cache lines.

use core::arch::global_asm;

/// Value of MAIR_EL1: attribute 0 is Device memory (for registers), attribute 1 cached memory.
const ATTRIBUTES: u64 = 0xff00;
/// Value of TCR_EL1: addresses of 39 bits, a translation table in cached memory, pages of 4 KB, no second
/// table (TTBR1).
const CONTROL: u64 = 25 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 2 << 32;
/// Entry 0 of the translation table: the gigabyte from address 0 on holds device registers, and is not
/// executable.
const REGISTERS: u64 = 0x401 | 3 << 53;
/// Entry 1 of the translation table: the gigabyte from 0x4000_0000 on is cached memory, shared with other
/// cores and with the device.
const MEMORY: u64 = 0x4000_0000 | 0x705;
/// Value of SCTLR_EL1 with translation and both caches on. The architecture demands the other bits.
const ON: u64 = 0x30d0_1805;
/// Value of SCTLR_EL1 without translation and caches.
const OFF: u64 = 0x30d0_0800;

/// The translation table: an entry for each gigabyte. The start-up code fills it.
#[repr(C, align(4096))]
struct Table([u64; 512]);
static mut TABLE: Table = Table([0; 512]);

global_asm!(
    r#"
    .section .boot, "ax"
    .global _start
_start:
    msr     daifset, #0xf
    ldr     x10, ={off}
    mrs     x0, CurrentEL
    cmp     x0, #(2 << 2)
    b.ne    1f

    // Leave EL2 for EL1, with 64-bit registers, without traps, with the timer for EL1.
    mov     x0, #(1 << 31)
    msr     hcr_el2, x0
    mov     x0, #0x33ff
    msr     cptr_el2, x0
    mov     x0, #3
    msr     cnthctl_el2, x0
    msr     cntvoff_el2, xzr
    mrs     x0, midr_el1
    msr     vpidr_el2, x0
    mrs     x0, mpidr_el1
    msr     vmpidr_el2, x0
    msr     sctlr_el1, x10
    mov     x0, #0x3c5
    msr     spsr_el2, x0
    adr     x0, 1f
    msr     elr_el2, x0
    eret

1:  msr     sctlr_el1, x10
    // Compiled code may use floating point.
    mov     x0, #(3 << 20)
    msr     cpacr_el1, x0
    ldr     x0, =__vectors
    msr     vbar_el1, x0
    isb

    // Invalidate the cache lines of variables and stack, because a stale line would hide bytes that are
    // written while the caches are off. Then set variables and stack to zero.
    ldr     x0, =__bss_start
    ldr     x1, =__stack_end
2:  dc      ivac, x0
    add     x0, x0, #64
    cmp     x0, x1
    b.lo    2b
    dsb     sy
    ldr     x0, =__bss_start
    ldr     x1, =__bss_end
    b       4f
3:  stp     xzr, xzr, [x0], #16
4:  cmp     x0, x1
    b.lo    3b

    // Map registers and memory, then switch translation and caches on. Unaligned accesses need translation.
    ldr     x0, ={table}
    ldr     x1, ={registers}
    ldr     x2, ={memory}
    stp     x1, x2, [x0]
    ldr     x1, ={attributes}
    msr     mair_el1, x1
    ldr     x1, ={control}
    msr     tcr_el1, x1
    msr     ttbr0_el1, x0
    dsb     sy
    isb
    tlbi    vmalle1
    ic      iallu
    dsb     sy
    isb
    ldr     x1, ={on}
    msr     sctlr_el1, x1
    isb

    // The program runs on SP_EL0, exceptions on SP_EL1.
    msr     spsel, #1
    ldr     x0, =__exception_stack_end
    mov     sp, x0
    msr     spsel, #0
    ldr     x0, =__stack_end
    mov     sp, x0
    mov     x29, xzr
    mov     x30, xzr
    bl      {start}
5:  wfe
    b       5b
    .ltorg

    .section .vectors, "ax"
    .balign 0x800
    .global __vectors
__vectors:
    .macro vector number
    .balign 0x80
    mov     x0, #\number
    b       6f
    .endm
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vector  \number
    .endr
    .balign 0x80
    // No exception returns, so the handler saves no register.
6:  ldr     x1, =__exception_stack_end
    mov     sp, x1
    mrs     x1, esr_el1
    mrs     x2, elr_el1
    mrs     x3, far_el1
    bl      {exception}
7:  wfe
    b       7b
    .ltorg
    "#,
    off = const OFF,
    on = const ON,
    attributes = const ATTRIBUTES,
    control = const CONTROL,
    registers = const REGISTERS,
    memory = const MEMORY,
    table = sym TABLE,
    start = sym crate::start,
    exception = sym crate::exception,
);
