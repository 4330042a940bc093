//! Faults on purpose, to test that the image reports them.

#![allow(unsafe_code, clippy::panic)]

use crate::memory;
use core::hint::black_box;
use core::ptr;
use hil_scenarios::options::Provoke;

/// Causes the named fault. Returns only if the fault had no effect.
pub(crate) fn provoke(how: Provoke) {
    match how {
        // SAFETY: the access is invalid on purpose. Nothing is mapped at this address, so a data abort ends
        // the program.
        Provoke::DataAbort => unsafe {
            ptr::with_exposed_provenance::<u64>(0x10).read_volatile();
        },
        // SAFETY: the access is invalid on purpose. Code is read-only, so a data abort ends the program.
        Provoke::WriteToCode => unsafe {
            ptr::with_exposed_provenance_mut::<u32>(memory::code().start as usize).write_volatile(0);
        },
        Provoke::StackOverflow => {
            black_box(deeper(0));
        }
        Provoke::Panic => panic!("asked for"),
        Provoke::PanicWhileLogging => defmt::info!("{}", Rude),
        Provoke::Hang => loop {
            core::hint::spin_loop();
        },
    }
}

/// Recurses without an end, as far as the compiler can tell, to overflow the stack.
#[expect(unconditional_recursion, reason = "that is what it is for")]
fn deeper(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    deeper(depth + 1) + frame.iter().sum::<u64>()
}

/// A type that panics while it is formatted.
struct Rude;

impl defmt::Format for Rude {
    fn format(&self, _: defmt::Formatter<'_>) {
        panic!("asked for");
    }
}
