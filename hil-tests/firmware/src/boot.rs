//! From the first instruction to the first line of Rust, and the exception vectors.
//!
//! As the boot protocol of Linux has it: entered at EL2 or EL1 on one core, with translation and data cache off, and the
//! image clean in the caches.

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

    // From EL2 down to EL1 with a 64-bit register file and no traps.
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

    // Translation and caches off; the bits that the architecture wants set.
1:  ldr     x0, =0x30d00800
    msr     sctlr_el1, x0
    // Floating point, before the first compiled code.
    mov     x0, #(3 << 20)
    msr     cpacr_el1, x0
    ldr     x0, =__vectors
    msr     vbar_el1, x0
    isb

    // What is zeroed or used as stack before the caches are on must not be found stale in them afterwards.
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

    // The program runs on SP_EL0; SP_EL1 is for exceptions.
    msr     spsel, #1
    ldr     x0, =__exception_stack_end
    mov     sp, x0
    msr     spsel, #0
    ldr     x0, =__stack_end
    mov     sp, x0
    // System errors are told as exceptions are; interrupts stay masked for good.
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

    // Nothing goes on behind an exception, so nothing is kept, and the stack begins anew, even if the exception came from
    // the report of another.
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
