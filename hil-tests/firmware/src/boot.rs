//! The assembly code from the first instruction to the first line of Rust, and the exception vectors.
//!
//! The state at the entry is that of Linux's boot protocol: one core at EL2 or EL1, translation and data
//! cache off, and all bytes of the image in memory instead of dirty cache lines.

#![allow(unsafe_code)]

use core::arch::global_asm;

global_asm!(
    r#"
    .section .boot, "ax"
    .global _start
_start:
    msr     daifset, #0xf
    mrs     x0, CurrentEL
    cmp     x0, #(2 << 2)
    b.ne    1f

    // Leave EL2 for EL1, with 64-bit registers and without traps.
    mov     x0, #(1 << 31)
    msr     hcr_el2, x0
    mov     x0, #0x33ff
    msr     cptr_el2, x0
    mrs     x0, midr_el1
    msr     vpidr_el2, x0
    mrs     x0, mpidr_el1
    msr     vmpidr_el2, x0
    ldr     x0, =0x30d00800
    msr     sctlr_el1, x0
    mov     x0, #0x3c5
    msr     spsr_el2, x0
    adr     x0, 1f
    msr     elr_el2, x0
    eret

    // Keep translation and caches off. The only bits that are set are the bits that the architecture requires
    // to be 1.
1:  ldr     x0, =0x30d00800
    msr     sctlr_el1, x0
    // Switch floating point on before the first compiled code, which may use it.
    mov     x0, #(3 << 20)
    msr     cpacr_el1, x0
    ldr     x0, =__vectors
    msr     vbar_el1, x0
    isb

    // Invalidate cache lines of .bss and stack: both are written while the caches are off, and a stale line
    // would hide the written bytes later.
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

    // The program runs on SP_EL0, exceptions on SP_EL1.
    msr     spsel, #1
    ldr     x0, =__exception_stack_end
    mov     sp, x0
    msr     spsel, #0
    ldr     x0, =__stack_end
    mov     sp, x0
    // Unmask system errors, which are reported like exceptions. Interrupts stay masked.
    msr     daifclr, #4
    mov     x29, xzr
    mov     x30, xzr
    bl      {start}
5:  wfe
    b       5b
    .ltorg

    .section .vectors, "ax"
    .macro vector number
    .balign 0x80
    mov     x0, #\number
    b       6f
    .endm
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vector  \number
    .endr
    .balign 0x80

    // No exception returns. The handler therefore saves no register and starts at the end of its stack, even
    // if the exception interrupted the report of another.
6:  ldr     x1, =__exception_stack_end
    mov     sp, x1
    mrs     x1, esr_el1
    mrs     x2, elr_el1
    mrs     x3, far_el1
    stp     x2, x3, [sp, #-16]!
    stp     x0, x1, [sp, #-16]!
    mov     x0, sp
    bl      {exception}
7:  wfe
    b       7b
    .ltorg
    "#,
    start = sym crate::start,
    exception = sym crate::exception,
);
