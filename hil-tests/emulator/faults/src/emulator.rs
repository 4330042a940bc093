//! Functions by which a program hands rules to the emulator that serves it.
//!
//! The emulator is a library that is loaded before the program. These functions look the emulator's functions
//! up by name, so the program links no library of the emulator, and also runs on hardware.
#![allow(unsafe_code)]

use crate::rule::Rule;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;

/// The reason why the emulator did not take rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No emulator, or an older one, serves this process.
    NotEmulated,
    /// The emulator does not know one of the words, and has added no rule.
    Unknown,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotEmulated => "no emulator serves this process",
            Self::Unknown => "the emulator does not know one of the words",
        })
    }
}

impl std::error::Error for Error {}

/// The type of the emulator's functions that take the words of rules. They return 0 after a success.
type Take = unsafe extern "C" fn(*const c_char) -> c_int;

/// The type of the emulator's function that writes text into a buffer. The function returns the length of the
/// whole text, even if the buffer is shorter.
type Tell = unsafe extern "C" fn(*mut u8, usize) -> usize;

/// Returns the address of a function of the emulator.
fn find(name: &CStr) -> Result<*mut c_void, Error> {
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() { Err(Error::NotEmulated) } else { Ok(found) }
}

fn take(name: &CStr, words: &str) -> Result<(), Error> {
    let found = find(name)?;
    let words = CString::new(words).map_err(|_| Error::Unknown)?;
    // SAFETY: the emulator's function of this name has this type, and reads a C string during the call.
    let taken = unsafe { std::mem::transmute::<*mut c_void, Take>(found)(words.as_ptr()) };
    if taken == 0 { Ok(()) } else { Err(Error::Unknown) }
}

/// Returns whether an emulator serves this process.
pub fn is_present() -> bool {
    find(c"mlx5_uverbs_add_faults").is_ok()
}

/// Adds rules. Incidents of [`Rule::Now`] have happened when the function returns, if the device is open.
///
/// # Errors
/// [`Error`].
pub fn add(rules: &[Rule]) -> Result<(), Error> {
    let words: Vec<String> = rules.iter().map(ToString::to_string).collect();
    add_words(&words.join(","))
}

/// Adds rules as words, separated by commas or white space, as in a file for `mlx5-emulate --faults`.
///
/// # Errors
/// [`Error`].
pub fn add_words(words: &str) -> Result<(), Error> {
    take(c"mlx5_uverbs_add_faults", words)
}

/// Removes all rules. The port gets its real state and its GIDs again. A device that was removed or has
/// failed stays in this state until it is opened anew.
///
/// # Errors
/// [`Error::NotEmulated`].
pub fn clear() -> Result<(), Error> {
    take(c"mlx5_uverbs_faults", "")
}

/// Returns the faults that have happened, oldest first, as words: the place, the number of the visit among
/// all visits to the place, and the fault. The list has at most 256 faults.
///
/// # Errors
/// [`Error::NotEmulated`].
pub fn past() -> Result<String, Error> {
    let found = find(c"mlx5_uverbs_trace")?;
    let mut text = Vec::new();
    loop {
        let room = text.len();
        // SAFETY: the emulator's function of this name has this type, and writes at most `room` bytes.
        let length = unsafe { std::mem::transmute::<*mut c_void, Tell>(found)(text.as_mut_ptr(), room) };
        if length < room {
            text.truncate(length);
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        text.resize(length + 1, 0);
    }
}
