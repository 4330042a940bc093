//! Copies bytes from and to any address of this process without a system call. A copy that meets an address
//! without memory, or without the right to it, ends there, and the process lives on.
//!
//! The processor reports such an access by a signal (SIGSEGV or SIGBUS) to the thread. The handler of
//! `process::interpose::signals` calls [`recover`], which lets the thread go on at the end of the copy. A
//! thread copies in this way only in [`with_signals`], where it can receive both signals.
#![allow(unsafe_code)]

use mlx5_peers::copy;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the handler of both signals is in place.
static RECOVERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is within [`with_signals`].
    static RECEIVES_SIGNALS: Cell<bool> = const { Cell::new(false) };
}

/// Records that the handler of SIGSEGV and SIGBUS calls [`recover`].
pub(crate) fn enable() {
    RECOVERS.store(true, Ordering::Release);
}

/// Returns whether the handler of SIGSEGV and SIGBUS calls [`recover`].
pub(crate) fn is_enabled() -> bool {
    RECOVERS.load(Ordering::Acquire)
}

/// Runs `body` on a thread that can receive SIGSEGV and SIGBUS.
pub(crate) fn with_signals<T>(body: impl FnOnce() -> T) -> T {
    let before = RECEIVES_SIGNALS.try_with(|receives| receives.replace(true)).unwrap_or(false);
    let result = body();
    let _ = RECEIVES_SIGNALS.try_with(|receives| receives.set(before));
    result
}

/// Returns whether this thread survives a copy from or to a bad address.
pub(crate) fn survives() -> bool {
    is_enabled() && RECEIVES_SIGNALS.try_with(Cell::get).unwrap_or(false)
}

/// Fills `out` with the bytes from an address on. Returns false if an address is bad. The caller ensures that
/// this thread survives ([`survives`]).
pub(crate) fn load(out: &mut [u8], address: u64) -> bool {
    let from = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: `out` is borrowed for the call. Every other address is allowed, since the thread survives an
    // access to a bad one.
    unsafe { copy::copy(out.as_mut_ptr(), from, out.len()) == 0 }
}

/// Appends `length` bytes from an address on to `out`. Returns false, and leaves `out` as it is, if an
/// address is bad. The caller ensures that this thread survives ([`survives`]).
pub(crate) fn append(out: &mut Vec<u8>, address: u64, length: usize) -> bool {
    out.reserve(length);
    let from = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: `out` has room for `length` more bytes. Every other address is allowed, since the thread
    // survives an access to a bad one. The length changes only if all new bytes were copied.
    unsafe {
        let is_copied = copy::copy(out.as_mut_ptr().add(out.len()), from, length) == 0;
        if is_copied {
            out.set_len(out.len() + length);
        }
        is_copied
    }
}

/// Stores `bytes` from an address on. Returns false if an address is bad. The caller ensures that this thread
/// survives ([`survives`]).
pub(crate) fn store(address: u64, bytes: &[u8]) -> bool {
    let to = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: `bytes` is borrowed for the call. The thread survives an access to a bad address. Memory of
    // this library is not among the addresses unless the program lies; hardware would write there as well.
    unsafe { copy::copy(to, bytes.as_ptr(), bytes.len()) == 0 }
}

/// Lets the thread that was interrupted by SIGSEGV or SIGBUS go on at the end of its copy. Returns whether
/// the thread was copying.
///
/// # Safety
/// The caller is the handler of such a signal, and `context` is the handler's third argument.
pub(crate) unsafe fn recover(context: *mut c_void) -> bool {
    // SAFETY: by contract, the kernel has put the thread's registers there.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let instructions = copy::instructions();
    #[cfg(target_arch = "x86_64")]
    let Some(next) = registers.gregs.get_mut(libc::REG_RIP as usize) else { return false };
    #[cfg(target_arch = "aarch64")]
    let next = &mut registers.pc;
    let is_copying = instructions.contains(&(*next as u64));
    if is_copying {
        *next = instructions.end as _;
    }
    is_copying
}
