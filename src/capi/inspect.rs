//! Describes the bytes of a send queue or a completion queue in words, and lists what a device would refuse.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::error::{Error, Failure, attempt};
use super::text::text;
use super::values::array;
use crate::inspect::cqe::CompletionEntry;
use crate::inspect::{DeviceContext, QueueKind, Requests, Severity};
use crate::wire::WQEBB_BYTES;
use core::ffi::{c_char, c_void};
use core::fmt;
use core::mem::MaybeUninit;

/// The bytes are consecutive blocks of a send queue of unknown kind, beginning with the first block of a
/// request. Requests are read as those of a connected queue pair, unless their bytes show another kind.
pub const MLX5MK_INSPECT_SENDS: u32 = 0;
/// The bytes are entries of a completion queue, of 64 bytes each.
pub const MLX5MK_INSPECT_COMPLETIONS: u32 = 1;
/// The bytes are entries of a completion queue, of 128 bytes each.
pub const MLX5MK_INSPECT_COMPLETIONS_128: u32 = 2;
/// As MLX5MK_INSPECT_SENDS, for a reliable or unreliable connection (RC, UC).
pub const MLX5MK_INSPECT_SENDS_CONNECTED: u32 = 3;
/// As MLX5MK_INSPECT_SENDS, for an unreliable datagram queue pair (UD).
pub const MLX5MK_INSPECT_SENDS_DATAGRAM: u32 = 4;
/// As MLX5MK_INSPECT_SENDS, for an initiator of dynamic connections (DC).
pub const MLX5MK_INSPECT_SENDS_DC: u32 = 5;
/// As MLX5MK_INSPECT_SENDS, for an extended reliable connection (XRC).
pub const MLX5MK_INSPECT_SENDS_XRC: u32 = 6;
/// As MLX5MK_INSPECT_SENDS, for a queue of Ethernet packets.
pub const MLX5MK_INSPECT_SENDS_ETHERNET: u32 = 7;

/// Result of mlx5mk_inspect: there is no finding.
pub const MLX5MK_NOTHING: i32 = 0;
/// Result of mlx5mk_inspect: the worst finding is a note, which is information only.
pub const MLX5MK_NOTE: i32 = 1;
/// Result of mlx5mk_inspect: the worst finding is suspicious: neither this library nor libmlx5, DPDK or SPDK
/// writes such bytes.
pub const MLX5MK_SUSPICIOUS: i32 = 2;
/// Result of mlx5mk_inspect: the worst finding is an error: the device, or already libmlx5, refuses such
/// bytes.
pub const MLX5MK_REFUSED: i32 = 3;

/// The kind of the bytes to describe: requests of a send queue, or completion entries of 64 or 128 bytes.
#[derive(Clone, Copy)]
enum What {
    Sends(QueueKind),
    Completions,
    LongCompletions,
}

impl What {
    const fn new(what: u32) -> Option<Self> {
        Some(match what {
            MLX5MK_INSPECT_SENDS => Self::Sends(QueueKind::Unknown),
            MLX5MK_INSPECT_COMPLETIONS => Self::Completions,
            MLX5MK_INSPECT_COMPLETIONS_128 => Self::LongCompletions,
            MLX5MK_INSPECT_SENDS_CONNECTED => Self::Sends(QueueKind::Connected),
            MLX5MK_INSPECT_SENDS_DATAGRAM => Self::Sends(QueueKind::Datagram),
            MLX5MK_INSPECT_SENDS_DC => Self::Sends(QueueKind::DynamicallyConnected),
            MLX5MK_INSPECT_SENDS_XRC => Self::Sends(QueueKind::ExtendedConnected),
            MLX5MK_INSPECT_SENDS_ETHERNET => Self::Sends(QueueKind::Ethernet),
            _ => return None,
        })
    }
}

/// Bytes of a send queue or a completion queue, and their kind.
struct Ring<'b> {
    bytes: &'b [u8],
    what: What,
}

impl<'b> Ring<'b> {
    fn entries(&self) -> impl Iterator<Item = CompletionEntry<'b>> + use<'b> {
        let long = matches!(self.what, What::LongCompletions);
        let size = if long { 2 * WQEBB_BYTES } else { WQEBB_BYTES };
        self.bytes.chunks_exact(size).filter_map(move |bytes| {
            if long { CompletionEntry::parse_128(bytes).ok() } else { CompletionEntry::parse(bytes).ok() }
        })
    }

    /// Returns the severity of the worst finding.
    fn worst(&self) -> Option<Severity> {
        match self.what {
            What::Sends(queue) => Requests::new(self.bytes)
                .on_queue(queue)
                .filter_map(|(_, request)| request.worst(&DeviceContext::UNKNOWN))
                .max(),
            _ => self.entries().filter_map(|entry| entry.worst()).max(),
        }
    }
}

impl fmt::Display for Ring<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Sends(queue) => {
                let mut requests = Requests::new(self.bytes).on_queue(queue);
                requests.try_for_each(|(_, request)| write!(f, "{request}"))
            }
            _ => self.entries().try_for_each(|entry| write!(f, "{entry}")),
        }
    }
}

/// Describes the bytes of a send queue or a completion queue, whichever library wrote them, and lists what a
/// device would refuse in them. The caller ensures that nobody writes to the bytes during the call. `what` is
/// one of the MLX5MK_INSPECT constants. A remainder that is too short for a block or an entry is ignored.
///
/// Writes each request or entry to `words`, with its bytes and findings; see mlx5mk_device_describe for
/// `words` and `size`. Writes the length of the whole text in bytes, without the NUL, to `length` if that is
/// not NULL. Allocates nothing.
///
/// Returns the severity of the worst finding: MLX5MK_NOTHING, MLX5MK_NOTE, MLX5MK_SUSPICIOUS or
/// MLX5MK_REFUSED.
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
        let what = What::new(what).ok_or(Failure::Value { what: "what", value: what.into() })?;
        // SAFETY: the caller ensures that `bytes` leads to `count` bytes.
        let ring = Ring { bytes: unsafe { array(bytes.cast::<u8>(), count, "bytes")? }, what };
        // SAFETY: the caller ensures that `words` leads to `size` bytes.
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
