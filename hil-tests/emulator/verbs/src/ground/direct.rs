//! Copies bytes from and to any address of this process without a system call. A copy that meets an address
//! without memory, or without the right to it, ends there, and the process lives on.
//!
//! The processor reports such an access by a signal (SIGSEGV or SIGBUS) to the thread. The handler of
//! `process::interpose::signals` calls [`recover`], which lets the thread go on at the end of the copy. A
//! thread copies in this way only in [`with_signals`], where it can receive both signals.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the handler of both signals is in place.
static RECOVERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is within [`with_signals`].
    static RECEIVES_SIGNALS: Cell<bool> = const { Cell::new(false) };
}

// `mlx5_uverbs_copy` copies `count` bytes, and returns 0. If an address is bad, the thread goes on at
// `mlx5_uverbs_copied`, where the register of the result holds the count of bytes that are not copied yet. 8
// bytes, and 4, are copied by one load and one store, because the host writes doorbell records of these sizes
// by one store.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl mlx5_uverbs_copy",
    ".hidden mlx5_uverbs_copy",
    ".globl mlx5_uverbs_copied",
    ".hidden mlx5_uverbs_copied",
    "mlx5_uverbs_copy:",
    "mov rcx, rdx",
    "cmp rdx, 8",
    "je 3f",
    "cmp rdx, 4",
    "je 2f",
    "rep movsb",
    "jmp mlx5_uverbs_copied",
    "2: mov eax, [rsi]",
    "mov [rdi], eax",
    "xor ecx, ecx",
    "jmp mlx5_uverbs_copied",
    "3: mov rax, [rsi]",
    "mov [rdi], rax",
    "xor ecx, ecx",
    "mlx5_uverbs_copied:",
    "mov rax, rcx",
    "ret",
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl mlx5_uverbs_copy",
    ".hidden mlx5_uverbs_copy",
    ".globl mlx5_uverbs_copied",
    ".hidden mlx5_uverbs_copied",
    "mlx5_uverbs_copy:",
    "cmp x2, #8",
    "b.eq 4f",
    "cmp x2, #4",
    "b.eq 3f",
    "1: subs x5, x2, #16",
    "b.lo 2f",
    "ldp x3, x4, [x1], #16",
    "stp x3, x4, [x0], #16",
    "mov x2, x5",
    "b 1b",
    "2: cbz x2, mlx5_uverbs_copied",
    "ldrb w3, [x1], #1",
    "strb w3, [x0], #1",
    "sub x2, x2, #1",
    "b 2b",
    "3: ldr w3, [x1]",
    "str w3, [x0]",
    "mov x2, #0",
    "b mlx5_uverbs_copied",
    "4: ldr x3, [x1]",
    "str x3, [x0]",
    "mov x2, #0",
    "mlx5_uverbs_copied:",
    "mov x0, x2",
    "ret",
);

unsafe extern "C" {
    fn mlx5_uverbs_copy(to: *mut c_void, from: *const c_void, count: usize) -> usize;
    fn mlx5_uverbs_copied();
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
    unsafe { mlx5_uverbs_copy(out.as_mut_ptr().cast(), from, out.len()) == 0 }
}

/// Stores `bytes` from an address on. Returns false if an address is bad. The caller ensures that this thread
/// survives ([`survives`]).
pub(crate) fn store(address: u64, bytes: &[u8]) -> bool {
    let to = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: `bytes` is borrowed for the call. The thread survives an access to a bad address. Memory of
    // this library is not among the addresses unless the program lies; hardware would write there as well.
    unsafe { mlx5_uverbs_copy(to, bytes.as_ptr().cast(), bytes.len()) == 0 }
}

/// Lets the thread that was interrupted by SIGSEGV or SIGBUS go on at the end of its copy. Returns whether
/// the thread was copying.
///
/// # Safety
/// The caller is the handler of such a signal, and `context` is the handler's third argument.
pub(crate) unsafe fn recover(context: *mut c_void) -> bool {
    // SAFETY: by contract, the kernel has put the thread's registers there.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let first = mlx5_uverbs_copy as *const () as usize as u64;
    let end = mlx5_uverbs_copied as *const () as usize as u64;
    #[cfg(target_arch = "x86_64")]
    let Some(next) = registers.gregs.get_mut(libc::REG_RIP as usize) else { return false };
    #[cfg(target_arch = "aarch64")]
    let next = &mut registers.pc;
    let is_copying = (first..end).contains(&(*next as u64));
    if is_copying {
        *next = end as _;
    }
    is_copying
}
