//! Rings in words.

#![allow(unsafe_code)] // The names that C knows functions by, and what the caller's pointers lead to.

use super::error::{Error, Failure, attempt};
use super::text::text;
use super::values::array;
use crate::inspect::cqe::CompletionEntry;
use crate::inspect::{DeviceContext, Requests, Severity};
use crate::wire::WQEBB_BYTES;
use core::ffi::{c_char, c_void};
use core::fmt;
use core::mem::MaybeUninit;

/// The bytes are blocks of a send queue, in order, from the first block of a request on.
pub const MLX5MK_INSPECT_SENDS: u32 = 0;
/// The bytes are entries of a completion queue, of 64 bytes each.
pub const MLX5MK_INSPECT_COMPLETIONS: u32 = 1;

/// Nothing was found.
pub const MLX5MK_NOTHING: i32 = 0;
/// Something worth knowing; nothing is wrong.
pub const MLX5MK_NOTE: i32 = 1;
/// Not what this library, libmlx5 or the drivers of DPDK and SPDK write.
pub const MLX5MK_SUSPICIOUS: i32 = 2;
/// The device, or libmlx5 in its place, refuses it.
pub const MLX5MK_REFUSED: i32 = 3;

/// Bytes of a ring.
struct Ring<'b> {
    bytes: &'b [u8],
    what: u32,
}

impl<'b> Ring<'b> {
    fn entries(&self) -> impl Iterator<Item = CompletionEntry<'b>> {
        self.bytes.chunks_exact(WQEBB_BYTES).filter_map(|bytes| CompletionEntry::parse(bytes).ok())
    }

    /// Returns how bad the worst finding is.
    fn worst(&self) -> Option<Severity> {
        match self.what {
            MLX5MK_INSPECT_SENDS => Requests::new(self.bytes)
                .filter_map(|(_, request)| request.worst(&DeviceContext::UNKNOWN))
                .max(),
            _ => self.entries().filter_map(|entry| entry.worst()).max(),
        }
    }
}

impl fmt::Display for Ring<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            MLX5MK_INSPECT_SENDS => {
                Requests::new(self.bytes).try_for_each(|(_, request)| write!(f, "{request}"))
            }
            _ => self.entries().try_for_each(|entry| write!(f, "{entry}")),
        }
    }
}

/// Says what bytes of a ring mean, and what a device would refuse in them: of any library's, from any source. They are a copy, or
/// nobody writes to them meanwhile. `what` is MLX5MK_INSPECT_SENDS or MLX5MK_INSPECT_COMPLETIONS; a remainder that is too short for
/// one of these is left out.
///
/// Writes to `words` each request or entry in words, with its bytes and findings; see mlx5mk_device_describe for `words` and `size`.
/// Writes to `length` how many bytes the whole text has, without the NUL, where it is not NULL. Allocates nothing.
///
/// Returns the worst that was found: MLX5MK_NOTHING, MLX5MK_NOTE, MLX5MK_SUSPICIOUS or MLX5MK_REFUSED.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_inspect(
    bytes: *const c_void,
    count: usize,
    what: u32,
    words: *mut c_char,
    size: usize,
    length: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        if what > MLX5MK_INSPECT_COMPLETIONS {
            return Err(Failure::Value { what: "what", value: what.into() });
        }
        // SAFETY: the caller vouches for the bytes.
        let ring = Ring { bytes: unsafe { array(bytes.cast::<u8>(), count, "bytes")? }, what };
        // SAFETY: the caller vouches for the room.
        let written = unsafe { text(words, size, &ring) };
        if let Some(length) = length {
            length.write(written);
        }
        Ok(match ring.worst() {
            None => MLX5MK_NOTHING,
            Some(Severity::Note) => MLX5MK_NOTE,
            Some(Severity::Suspicious) => MLX5MK_SUSPICIOUS,
            Some(Severity::Refused) => MLX5MK_REFUSED,
        })
    })
}
