//! Memory of this process that a client can lend to the function: a file, mapped once. The bus addresses of
//! its bytes equal their addresses in this process.

#![allow(unsafe_code)]

use crate::machine::sealed;
use hil_scenarios::board::{BareRings, HostMemory};
use mlx5_mkey::hca::CommandMemory;
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::Cqe;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::alloc::Layout;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of bytes of the lent memory.
pub const BYTES: u64 = 8 << 20;

struct Lent {
    file: OwnedFd,
    first: usize,
    /// The first byte that is not allocated yet.
    next: AtomicUsize,
}

fn lent() -> &'static Lent {
    static LENT: OnceLock<Lent> = OnceLock::new();
    LENT.get_or_init(|| {
        let (file, both) = (sealed(BYTES), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: without a given address, the system picks free addresses.
        let first = unsafe { mmap(std::ptr::null_mut(), BYTES as usize, both, MapFlags::SHARED, &file, 0) };
        let first = first.unwrap().expose_provenance();
        Lent { file, first, next: AtomicUsize::new(first) }
    })
}

/// Allocates a part of the lent memory that no other call returns. Returns null if too little is left.
///
/// # Safety
/// Every call is safe. The function is `unsafe` because `HostMemory::new` takes an allocator of this type.
unsafe fn take(layout: Layout) -> *mut u8 {
    let lent = lent();
    let end = lent.first + BYTES as usize;
    let step = |next: usize| {
        let first = next.checked_next_multiple_of(layout.align())?;
        first.checked_add(layout.size()).filter(|behind| *behind <= end)
    };
    match lent.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step) {
        Ok(next) => std::ptr::with_exposed_provenance_mut(next.next_multiple_of(layout.align())),
        Err(_) => std::ptr::null_mut(),
    }
}

/// Returns the file of the lent memory, and the bus address of the file's first byte.
pub fn file() -> (&'static OwnedFd, u64) {
    (&lent().file, lent().first as u64)
}

/// Returns memory that is allocated from the file.
pub fn memory() -> HostMemory {
    // SAFETY: `take` returns null, or a range of the mapping that it returns only once. The mapping stays for
    // ever.
    unsafe { HostMemory::new(take) }
}

/// Allocates memory for a command queue, and returns it with its bus address.
pub fn command_memory(memory: &mut HostMemory) -> (&'static mut CommandMemory<16>, u64) {
    let address = memory.alloc(size_of::<CommandMemory<16>>());
    let place = std::ptr::with_exposed_provenance_mut::<CommandMemory<16>>(address as usize);
    // SAFETY: these pages of zeros are aligned, long enough, given to nobody else, and never freed. Any bytes
    // are valid for the type. The command queue takes the reference and never reads through it.
    (unsafe { &mut *place }, address)
}

/// Allocates memory for rings, a page for each, and their doorbell records.
pub fn rings(memory: &mut HostMemory) -> BareRings {
    // SAFETY: the references to rings and records go into queues of the library. No code writes to the
    // records through the memory, and the device only reads them.
    unsafe {
        BareRings {
            blocks: memory.share(Wqebb::ZERO, 64),
            record: memory.share_record(),
            entries: memory.share(Cqe::UNWRITTEN, 64),
            cq_record: memory.share_record(),
        }
    }
}
