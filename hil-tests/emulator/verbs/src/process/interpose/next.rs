//! The functions of the next library, to which calls are handed on.
#![allow(unsafe_code)]

use crate::ground::errno::Errno;
use crate::ground::owner;

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next library, looked for when it is first needed.
pub(super) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// The function of this name.
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the function's address, null where the next libraries have none.
    pub(super) fn find(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Release);
        found
    }
}

/// What a function of the C library returns when it has failed, beside its `errno`.
pub(super) trait Outcome {
    /// It has failed.
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

/// Sets `errno`, and returns what a function returns that has failed.
pub(super) fn fail<T: Outcome>(Errno(number): Errno) -> T {
    // SAFETY: the location of errno is always valid for its thread.
    unsafe { *libc::__errno_location() = number };
    T::FAILED
}

/// Calls into the device. A panic there is the device's fault and looks like a broken one.
pub(super) fn guarded(body: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    owner::as_device(|| catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::IO)))
}

/// The next library's function of this name, these arguments and this result; the caller ends with `ENOSYS`
/// where there is none.
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
        // SAFETY: the C library's function of this name takes these arguments; a mode that it does not look
        // at does no harm in the calling conventions of Linux.
        unsafe {
            std::mem::transmute::<
                *mut std::ffi::c_void,
                unsafe extern "C" fn($($argument),*) -> $result,
            >(found)
        }
    }};
}

pub(super) use next;
