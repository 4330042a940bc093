//! The memory ranges that the linker scripts define, and the two heaps.

#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::ops::Range;
use embedded_alloc::TlsfHeap as Heap;
use hil_scenarios::board::HostMemory;

/// The heap of the program.
#[global_allocator]
static HEAP: Heap = Heap::empty();

/// The heap for memory that devices access, such as rings and buffers.
static DMA: Heap = Heap::empty();

/// The implementation of critical sections. It does nothing: with one core and without interrupts, no other
/// code can run.
struct OneCore;
critical_section::set_impl!(OneCore);

// SAFETY: nothing else can run between `acquire` and `release`. The boot code masks all interrupts and starts
// no other core, and no exception returns.
unsafe impl critical_section::Impl for OneCore {
    unsafe fn acquire() {}
    unsafe fn release((): ()) {}
}

/// Defines functions that return the addresses of the linker scripts' symbols. No symbol may have the value
/// 0, because the compiler assumes that the address of a static is not 0.
macro_rules! addresses {
    ($($name:ident = $symbol:ident),+ $(,)?) => { $(
        fn $name() -> u64 {
            // SAFETY: only the address is used; the linker script defines it, and a byte has an alignment of
            // 1.
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

/// Returns the range of the code, with the boot code and the exception vectors.
pub(crate) fn code() -> Range<u64> {
    text_start()..text_end()
}

/// Returns the range of read-only data.
pub(crate) fn constants() -> Range<u64> {
    rodata_start()..rodata_end()
}

/// Returns the range of variables, translation tables and the stack of exceptions, up to the guard.
pub(crate) fn variables() -> Range<u64> {
    data_start()..guard_start()
}

/// Returns the guard: the unmapped range below the stack, which stops a stack overflow.
pub(crate) fn guard() -> Range<u64> {
    guard_start()..guard_end()
}

/// Returns the range of the program's stack.
pub(crate) fn stack() -> Range<u64> {
    guard_end()..stack_end()
}

/// Returns the range of memory that devices can access.
pub(crate) fn dma() -> Range<u64> {
    dma_start()..dma_end()
}

/// Returns the memory attributes for the memory that devices can access, as a byte of MAIR_EL1.
pub(crate) fn dma_attributes() -> u64 {
    attributes()
}

/// Returns the range of the program's heap, the rest of the memory.
pub(crate) fn heap() -> Range<u64> {
    heap_start()..heap_end()
}

/// Gives both heaps their memory. The caller calls this function exactly once, with translation on and before
/// the first allocation.
pub(crate) fn open() {
    for (heap, range) in [(&HEAP, heap()), (&DMA, dma())] {
        // SAFETY: the range is that of a section in which the linker places nothing, and it is mapped.
        unsafe { heap.init(range.start as usize, (range.end - range.start) as usize) };
    }
}

/// Returns the memory in which the software device and its queues exist. Ranges of this memory are taken from
/// the heap that devices access.
pub(crate) fn shared() -> HostMemory {
    unsafe fn take(layout: Layout) -> *mut u8 {
        // SAFETY: the caller vouches that the layout's size is not 0.
        unsafe { DMA.alloc(layout) }
    }
    // SAFETY: `take` allocates from the heap for devices, and nothing frees this memory.
    unsafe { HostMemory::new(take) }
}
