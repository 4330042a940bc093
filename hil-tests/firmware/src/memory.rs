//! What the linker scripts say about memory, and the two heaps.

#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::ops::Range;
use embedded_alloc::TlsfHeap as Heap;
use hil_scenarios::board::HostMemory;

/// The program's own heap.
#[global_allocator]
static HEAP: Heap = Heap::empty();

/// Memory that devices reach.
static DMA: Heap = Heap::empty();

/// There is one core and no interrupt is ever let through: every section is critical.
struct OneCore;
critical_section::set_impl!(OneCore);

// SAFETY: between `acquire` and `release` nothing else can run: the start-up code masks all interrupts for good and starts
// no other core, and an exception does not return.
unsafe impl critical_section::Impl for OneCore {
    unsafe fn acquire() {}
    unsafe fn release((): ()) {}
}

/// Defines functions that return the address of what the linker scripts define. The compiler knows that it is not 0.
macro_rules! addresses {
    ($($name:ident = $symbol:ident),+ $(,)?) => { $(
        fn $name() -> u64 {
            // SAFETY: only the address is used; the linker script defines it, and a byte has no alignment.
            unsafe extern "C" {
                safe static $symbol: u8;
            }
            (&raw const $symbol).addr() as u64
        }
    )+ };
}

addresses! {
    text_start = __text_start,
    text_end = __text_end,
    rodata_start = __rodata_start,
    rodata_end = __rodata_end,
    data_start = __data_start,
    guard_start = __stack_guard_start,
    guard_end = __stack_guard_end,
    stack_end = __stack_end,
    dma_start = __dma_start,
    dma_end = __dma_end,
    heap_start = __heap_start,
    heap_end = __heap_end,
    attributes = __dma_attributes,
}

/// Code, the start-up code and vectors included.
pub(crate) fn code() -> Range<u64> {
    text_start()..text_end()
}

/// Constants.
pub(crate) fn constants() -> Range<u64> {
    rodata_start()..rodata_end()
}

/// Variables, translation tables and the exceptions' stack: up to the guard.
pub(crate) fn variables() -> Range<u64> {
    data_start()..guard_start()
}

/// What lies below the stack and is not mapped.
pub(crate) fn guard() -> Range<u64> {
    guard_start()..guard_end()
}

/// The stack.
pub(crate) fn stack() -> Range<u64> {
    guard_end()..stack_end()
}

/// Memory that devices reach.
pub(crate) fn dma() -> Range<u64> {
    dma_start()..dma_end()
}

/// How memory that devices reach is to be mapped, as in MAIR_EL1.
pub(crate) fn dma_attributes() -> u64 {
    attributes()
}

/// What is left.
pub(crate) fn heap() -> Range<u64> {
    heap_start()..heap_end()
}

/// Opens both heaps. To be called once, behind the start of translation and before the first allocation.
pub(crate) fn open() {
    for (heap, range) in [(&HEAP, heap()), (&DMA, dma())] {
        // SAFETY: the range is that of a section in which the linker places nothing, and it is mapped.
        unsafe { heap.init(range.start as usize, (range.end - range.start) as usize) };
    }
}

/// Returns memory for a board, taken from where devices reach it.
pub(crate) fn shared() -> HostMemory {
    unsafe fn take(layout: Layout) -> *mut u8 {
        // SAFETY: the caller vouches that the layout's size is not 0.
        unsafe { DMA.alloc(layout) }
    }
    // SAFETY: `take` gives out memory of an allocator and never takes it back.
    unsafe { HostMemory::new(take) }
}
