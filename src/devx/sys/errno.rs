//! Functions that convert the results of libibverbs and libmlx5 into errors.

use crate::devx::error::DevxError;
use core::ffi::c_int;
use std::io;

/// Returns the current errno as the error of a function that returned null.
pub(super) fn last_error(what: &'static str) -> DevxError {
    DevxError::call(what, io::Error::last_os_error())
}

/// Checks the result of a function that returns 0 or an error number. Some functions return the negative
/// error number. Others return -1 and set errno.
pub(super) fn check(what: &'static str, result: c_int) -> Result<(), DevxError> {
    match result {
        0 => Ok(()),
        -1 => Err(last_error(what)),
        errno => Err(DevxError::call(what, io::Error::from_raw_os_error(errno.abs()))),
    }
}
