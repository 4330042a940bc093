//! The allocator of this library, apart from the program's allocator.
//!
//! The library must not call the program's allocator. A thread of the program does the device's work for a
//! moment when it releases a spin lock, and the thread may hold any lock then: UCX watches calls for memory,
//! and releases spin locks while its thread is inside `malloc`. Pages come from the kernel by system calls,
//! since UCX also replaces `mmap`.
#![allow(unsafe_code)]

use dlmalloc::{Allocator, Dlmalloc};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The source of the allocator's memory: pages that the kernel maps.
struct Pages;

/// Makes a system call for memory. Returns the address of the memory, or null if the call fails. Leaves
/// `errno` as it is.
fn call(number: libc::c_long, arguments: [usize; 6]) -> *mut u8 {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the location of errno is always valid for its thread; the call is for memory that is the
    // allocator's alone.
    let result = unsafe {
        let errno = *libc::__errno_location();
        let result = libc::syscall(number, first, second, third, fourth, fifth, sixth);
        *libc::__errno_location() = errno;
        result
    };
    if result < 0 { null_mut() } else { std::ptr::with_exposed_provenance_mut(result as usize) }
}

// SAFETY: the pages are newly mapped, used by nobody else, at least as large as requested, and all zero.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let address = call(libc::SYS_mmap, [0, size, rights, kind, usize::MAX, 0]);
        (address, if address.is_null() { 0 } else { size }, 0)
    }

    fn remap(&self, address: *mut u8, old: usize, new: usize, can_move: bool) -> *mut u8 {
        let flags = if can_move { libc::MREMAP_MAYMOVE as usize } else { 0 };
        call(libc::SYS_mremap, [address.expose_provenance(), old, new, flags, 0, 0])
    }

    fn free_part(&self, address: *mut u8, old: usize, new: usize) -> bool {
        self.free(address.wrapping_add(new), old.saturating_sub(new))
    }

    fn free(&self, address: *mut u8, size: usize) -> bool {
        // SAFETY: the allocator frees only pages that nobody uses any more.
        unsafe { libc::syscall(libc::SYS_munmap, address, size) == 0 }
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        // The largest page size of Arm. All smaller page sizes divide this number.
        0x10000
    }
}

/// The allocator of this library, and the lock that each call takes.
struct Own(Mutex<Dlmalloc<Pages>>);

// The fuzzing program has its own global allocator, which serves all targets.
#[cfg_attr(not(feature = "fuzz"), global_allocator)]
static OWN: Own = Own(Mutex::new(Dlmalloc::new_with_allocator(Pages)));

impl Own {
    fn lock(&self) -> MutexGuard<'_, Dlmalloc<Pages>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: all calls go, with their arguments unchanged, to one allocator under its lock.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, with the same arguments.
        unsafe { self.lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, with the same arguments.
        unsafe { self.lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, with the same arguments.
        unsafe { self.lock().free(address, layout.size(), layout.align()) };
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, with the same arguments.
        unsafe { self.lock().realloc(address, layout.size(), layout.align(), size) }
    }
}

/// The allocator's lock, held over a fork by the thread that forks.
struct HeldOverFork(UnsafeCell<Option<MutexGuard<'static, Dlmalloc<Pages>>>>);

// SAFETY: a thread touches the cell only while it holds the lock, which only one thread can hold at a time.
unsafe impl Sync for HeldOverFork {}

static HELD: HeldOverFork = HeldOverFork(UnsafeCell::new(None));

/// Keeps other threads from the allocator until [`release`], so that a fork copies the allocator in a
/// consistent state.
pub(crate) fn hold() {
    let guard = OWN.lock();
    // SAFETY: this thread has the lock, so no other thread uses the cell.
    unsafe { *HELD.0.get() = Some(guard) };
}

/// Releases the lock that [`hold`] has taken. The thread that called [`hold`] calls this function, after a
/// fork in parent and child.
pub(crate) fn release() {
    // SAFETY: this thread has the lock since `hold`, so no other thread uses the cell.
    drop(unsafe { (*HELD.0.get()).take() });
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_of_all_sizes_is_kept_apart() {
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for round in 0..200_usize {
            let size = (round * 7919) % 300_000 + 1;
            let mut bytes = vec![0; size];
            assert!(bytes.iter().all(|byte| *byte == 0), "{size}");
            bytes.fill(round as u8);
            bytes.extend_from_slice(&[round as u8; 5000]);
            bytes.truncate(size / 2 + 1);
            bytes.shrink_to_fit();
            kept.push(bytes);
            if round % 3 == 0 {
                kept.swap_remove(round / 6);
            }
        }
        for bytes in &kept {
            assert!(bytes.iter().all(|byte| bytes.first() == Some(byte)));
        }
    }
}
