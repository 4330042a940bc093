//! Describes an exception in words, from the registers that the processor has set.

use core::ops::Range;

/// The registers of an unexpected exception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Exception {
    /// Index of the exception vector, 0 to 15.
    pub(crate) vector: u64,
    /// ESR_EL1: the cause.
    pub(crate) syndrome: u64,
    /// ELR_EL1: address of the instruction.
    pub(crate) program: u64,
    /// FAR_EL1: the address that was accessed.
    pub(crate) address: u64,
}

impl Exception {
    /// Describes the exception. `guard` is the unmapped range below the stack.
    pub(crate) fn meaning(&self, guard: Range<u64>) -> &'static str {
        match self.vector % 4 {
            0 => {}
            1 => return "interrupt",
            2 => return "fast interrupt",
            _ => return "system error",
        }
        // The exception class, by the table of "ESR_EL1" in the Arm Architecture Reference Manual.
        match (self.syndrome >> 26) & 0x3f {
            0x24 | 0x25 if guard.contains(&self.address) => "stack overflow",
            0x00 => "undefined instruction",
            0x07 => "floating point while it is switched off",
            0x0e => "illegal execution state",
            0x15 => "supervisor call",
            0x18 => "trapped system register",
            0x20 | 0x21 => "instruction abort",
            0x22 => "misaligned program counter",
            0x24 | 0x25 => "data abort",
            0x26 => "misaligned stack pointer",
            0x2c => "floating point exception",
            0x3c => "breakpoint",
            _ => "exception of another class",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_have_names() {
        let guard = 0x1000..0x2000;
        for (vector, class, address, meaning) in [
            (0, 0x25, 0x8, "data abort"),
            (0, 0x25, 0xfff, "data abort"),
            (0, 0x25, 0x1000, "stack overflow"),
            (0, 0x25, 0x1fff, "stack overflow"),
            (0, 0x25, 0x2000, "data abort"),
            (0, 0x21, 0x1000, "instruction abort"),
            (4, 0x00, 0x0, "undefined instruction"),
            (0, 0x3f, 0x0, "exception of another class"),
            (1, 0x25, 0x0, "interrupt"),
            (6, 0x25, 0x0, "fast interrupt"),
            (15, 0x25, 0x0, "system error"),
        ] {
            let exception = Exception { vector, syndrome: (class << 26) | 0x45, address, program: 0 };
            assert_eq!(exception.meaning(guard.clone()), meaning, "vector {vector}, class {class:#x}");
        }
    }
}
