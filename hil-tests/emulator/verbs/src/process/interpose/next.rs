//! Finds the functions that this library replaces, in the libraries that were loaded after this library.
#![allow(unsafe_code)]

use crate::ground::errno::Errno;
use crate::ground::owner;

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next library, looked up on its first use.
pub(super) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// Returns the function of this name, which is not looked up yet.
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the function's address if it is already known, and null otherwise. Does not look it up.
    pub(super) fn known(&self) -> *mut c_void {
        self.address.load(Ordering::Acquire)
    }

    /// Returns the function's address, or null if no later library has the function.
    pub(super) fn find(&self) -> *mut c_void {
        let known = self.known();
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Release);
        found
    }
}

/// The value that a function of the C library returns on failure, beside its `errno`.
pub(super) trait Outcome {
    /// The value on failure.
    const FAILED: Self;
}

impl Outcome for c_int {
    const FAILED: Self = -1;
}

impl Outcome for isize {
    const FAILED: Self = -1;
}

impl<T> Outcome for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

/// Sets `errno`, and returns the value that means failure for the calling function.
pub(super) fn fail<T: Outcome>(Errno(number): Errno) -> T {
    // SAFETY: the location of errno is always valid for its thread.
    unsafe { *libc::__errno_location() = number };
    T::FAILED
}

/// Runs `body` as code of the device. A panic is a fault of the device, and the caller gets the errno of a
/// broken device (EIO).
pub(super) fn guarded(body: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    owner::as_device(|| catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::IO)))
}

/// Runs `body` as [`guarded`] does, where a program gets no errno.
pub(super) fn noted(body: impl FnOnce()) {
    let _ = guarded(|| {
        body();
        Ok(())
    });
}

/// Finds the function of this name in the libraries that were loaded after this library. The macro's user
/// ensures that the function has these arguments and this result. If no library has the function, the calling
/// function returns with `ENOSYS`.
macro_rules! next {
    ($name:ident($($argument:ty),* $(,)?) -> $result:ty) => {{
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has a zero inside"),
            };
        static NEXT: $crate::process::interpose::next::Next =
            $crate::process::interpose::next::Next::new(NAME);
        let found = NEXT.find();
        if found.is_null() {
            return $crate::process::interpose::next::fail($crate::ground::errno::Errno(libc::ENOSYS));
        }
        // SAFETY: the C library's function of this name takes these arguments. The argument `mode` of `open`,
        // which a caller may leave out, does no harm in the calling conventions of Linux.
        unsafe {
            std::mem::transmute::<
                *mut std::ffi::c_void,
                unsafe extern "C" fn($($argument),*) -> $result,
            >(found)
        }
    }};
}

pub(super) use next;
