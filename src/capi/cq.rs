//! Completion queues and completions.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::{Device, hand_out};
use super::error::{Error, Failure, attempt, given, report};
use super::group::{Cq, Members, Pool, Router, TakenMkey};
use super::post::{
    MLX5MK_OP_BIND, MLX5MK_OP_COMPARE_SWAP, MLX5MK_OP_CONFIGURE, MLX5MK_OP_FETCH_ADD, MLX5MK_OP_INVALIDATE,
    MLX5MK_OP_MEMCPY, MLX5MK_OP_NOP, MLX5MK_OP_OTHER, MLX5MK_OP_RAW, MLX5MK_OP_RDMA_READ,
    MLX5MK_OP_RDMA_WRITE, MLX5MK_OP_RDMA_WRITE_IMM, MLX5MK_OP_SEND, MLX5MK_OP_SEND_IMM,
    MLX5MK_OP_SEND_INVALIDATE,
};
use super::text::text;
use super::values::{only, room};
use crate::command::CqeSize;
use crate::devx::{CqSpec, DevxError};
use crate::mkey::error::PoolError;
use crate::queue::error::CompletionError;
use crate::queue::{Completion as Found, Message, Outcome, RequestKind, RequestNumber, WorkCompletion};
use crate::types::{Key, Qpn};
use crate::wire::cqe::Syndrome;
use core::ffi::{c_char, c_void};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::boxed::Box;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A send request has completed without an error.
pub const MLX5MK_SENT: u32 = 1;
/// A receive request has completed without an error.
pub const MLX5MK_RECEIVED: u32 = 2;
/// A request failed. The queue pair is in the error state, and all later requests fail as well.
pub const MLX5MK_FAILED: u32 = 3;
/// The signature of a block, or a digest, was wrong. This completion belongs to no request: the request that
/// moved the data completes later, as a success.
pub const MLX5MK_BAD_SIGNATURE: u32 = 4;
/// A completion entry is malformed, or its queue pair or mkey is unknown. The `error` of the call that took
/// the completion describes the last malformed entry in words.
pub const MLX5MK_BAD_ENTRY: u32 = 5;

/// Flag of mlx5mk_cq_create: entries of the completion queue have 128 bytes instead of 64. On hosts with
/// cache lines of 128 bytes, each entry then has a cache line of its own.
pub const MLX5MK_CQ_LONG_ENTRIES: u32 = 1;

/// A completion, as it was taken from a completion queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Completion {
    /// The name that the program gave the request.
    pub id: u64,
    /// Private to the library: a number of the request. With this number, mlx5mk_pool_put and
    /// mlx5mk_windows_put distinguish requests with the same `id`.
    pub number: u64,
    /// For MLX5MK_BAD_SIGNATURE: the pool of the mkey; otherwise NULL.
    pub pool: *mut Pool,
    /// For MLX5MK_BAD_SIGNATURE: the mkey, for mlx5mk_mkey_check; zeros if the mkey was put back to its pool.
    /// For other kinds of completion: zeros.
    pub mkey: TakenMkey,
    /// The kind of completion: MLX5MK_SENT, MLX5MK_RECEIVED, MLX5MK_FAILED, MLX5MK_BAD_SIGNATURE or
    /// MLX5MK_BAD_ENTRY.
    pub kind: u32,
    /// Number of the queue pair; 0 for MLX5MK_BAD_SIGNATURE and MLX5MK_BAD_ENTRY.
    pub qpn: u32,
    /// The operation of the request, MLX5MK_OP_SEND or another. For MLX5MK_RECEIVED: the operation by which
    /// the message arrived. The completion of a send request does not tell whether the request had immediate
    /// data: it has MLX5MK_OP_SEND also for MLX5MK_OP_SEND_IMM.
    pub operation: u32,
    /// Number of bytes that were received, or that an RDMA READ or an atomic has delivered; otherwise 0.
    pub bytes: u32,
    /// For MLX5MK_RECEIVED: the 32 bits of immediate data, in the processor's byte order, or the key that the
    /// message invalidated.
    pub immediate: u32,
    /// For MLX5MK_FAILED: the cause (PRM syndrome). The next three fields are details for the vendor's
    /// support.
    pub syndrome: u8,
    /// Vendor syndrome.
    pub vendor: u8,
    /// Hardware error syndrome.
    pub hardware: u8,
    /// Hardware syndrome type.
    pub hardware_type: u8,
}

impl Completion {
    const NONE: Self = Self {
        id: 0,
        number: 0,
        pool: core::ptr::null_mut(),
        mkey: TakenMkey::NONE,
        kind: MLX5MK_BAD_ENTRY,
        qpn: 0,
        operation: MLX5MK_OP_OTHER,
        bytes: 0,
        immediate: 0,
        syndrome: 0,
        vendor: 0,
        hardware: 0,
        hardware_type: 0,
    };

    fn work(work: &WorkCompletion) -> Self {
        let each = Self { id: work.id, number: work.number.to_bits(), qpn: work.qpn.get(), ..Self::NONE };
        match work.outcome {
            Outcome::Sent { kind, bytes } => {
                let delivers =
                    matches!(kind, RequestKind::RdmaRead | RequestKind::CompareSwap | RequestKind::FetchAdd);
                let bytes = if delivers { bytes } else { 0 };
                Self { kind: MLX5MK_SENT, operation: operation(kind), bytes, ..each }
            }
            Outcome::Received { message, bytes } => {
                let (operation, immediate) = match message {
                    Message::Send => (MLX5MK_OP_SEND, 0),
                    Message::SendImm(immediate) => (MLX5MK_OP_SEND_IMM, immediate),
                    Message::SendInvalidate(key) => (MLX5MK_OP_SEND_INVALIDATE, key.get()),
                    Message::WriteImm(immediate) => (MLX5MK_OP_RDMA_WRITE_IMM, immediate),
                };
                Self { kind: MLX5MK_RECEIVED, operation, immediate, bytes, ..each }
            }
            Outcome::Failed(failure) => Self {
                kind: MLX5MK_FAILED,
                syndrome: failure.syndrome.0,
                vendor: failure.vendor,
                hardware: failure.hardware,
                hardware_type: failure.hardware_type,
                ..each
            },
        }
    }
}

impl Completion {
    /// Converts the completion back into the library's Rust type. Pools and windows accept this type as proof
    /// that a key is out of service.
    pub(super) fn evidence(&self) -> Result<WorkCompletion, Failure> {
        let outcome = match (self.kind, self.operation) {
            (MLX5MK_SENT, _) => Outcome::Sent { kind: RequestKind::Nop, bytes: 0 },
            (MLX5MK_RECEIVED, MLX5MK_OP_SEND_INVALIDATE) => {
                let message = Message::SendInvalidate(Key::from_raw(self.immediate));
                Outcome::Received { message, bytes: self.bytes }
            }
            _ => return Err(PoolError::KeyInService.into()),
        };
        let (qpn, number) = (Qpn::from_low_bits(self.qpn), RequestNumber::from_bits(self.number));
        Ok(WorkCompletion { id: self.id, qpn, number, outcome })
    }
}

/// Returns the MLX5MK_OP constant of a request's operation.
const fn operation(kind: RequestKind) -> u32 {
    match kind {
        RequestKind::Nop => MLX5MK_OP_NOP,
        RequestKind::Send => MLX5MK_OP_SEND,
        RequestKind::RdmaWrite => MLX5MK_OP_RDMA_WRITE,
        RequestKind::RdmaRead => MLX5MK_OP_RDMA_READ,
        RequestKind::CompareSwap => MLX5MK_OP_COMPARE_SWAP,
        RequestKind::FetchAdd => MLX5MK_OP_FETCH_ADD,
        RequestKind::MkeyConfigure => MLX5MK_OP_CONFIGURE,
        RequestKind::LocalInvalidate => MLX5MK_OP_INVALIDATE,
        RequestKind::Memcpy => MLX5MK_OP_MEMCPY,
        RequestKind::Raw => MLX5MK_OP_RAW,
        RequestKind::BindWindow => MLX5MK_OP_BIND,
        _ => MLX5MK_OP_OTHER,
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            MLX5MK_SENT => write!(f, "request {} of queue pair {:#x} is done", self.id, self.qpn),
            MLX5MK_RECEIVED => {
                write!(f, "receive request {} of queue pair {:#x}: {} bytes", self.id, self.qpn, self.bytes)
            }
            MLX5MK_FAILED => write!(
                f,
                "request {} of queue pair {:#x} failed: {} (vendor {:#04x}, hardware {:#04x}, type {:#04x})",
                self.id,
                self.qpn,
                Syndrome(self.syndrome),
                self.vendor,
                self.hardware,
                self.hardware_type
            ),
            MLX5MK_BAD_SIGNATURE if self.mkey.is_none() => {
                f.write_str("an mkey that was put back to its pool has a signature error")
            }
            MLX5MK_BAD_SIGNATURE => {
                write!(f, "mkey {} of the pool has a signature error", self.mkey.pooled().position())
            }
            _ => f.write_str("an entry that makes no sense"),
        }
    }
}

/// Converts a completion for C. If its entry is malformed, also returns the reason.
fn converted(
    found: Result<Found, CompletionError>,
    router: &Router<'_>,
) -> (Completion, Option<CompletionError>) {
    match found {
        Ok(Found::Work(work)) => (Completion::work(&work), None),
        Ok(Found::SignatureError { .. }) => {
            let (pool, mkey) = router.of;
            (Completion { kind: MLX5MK_BAD_SIGNATURE, mkey, pool, ..Completion::NONE }, None)
        }
        Err(error) => (Completion::NONE, Some(error)),
    }
}

/// Creates a completion queue of `entries` entries, a power of two. `flags` is MLX5MK_CQ_LONG_ENTRIES or 0.
///
/// Queue pairs and mkeys set entries aside, so that the queue cannot overrun. A queue pair sets aside one
/// entry for each request that may be outstanding (`max_requests`, or `send_blocks`) and one for each receive
/// request (`receive_slots`). An mkey with signatures sets aside one entry, for a signature error.
/// mlx5mk_cq_entries computes the sum.
///
/// Errors: MLX5MK_ARGUMENT for a number that is no power of two, MLX5MK_SYSTEM, MLX5MK_COMMAND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_cq_create(
    device: Option<&Device>,
    entries: u32,
    flags: u32,
    cq: Option<&mut MaybeUninit<*mut Cq>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), place) = (given(device, "device")?, given(cq, "cq")?);
        only(flags, MLX5MK_CQ_LONG_ENTRIES, "flags")?;
        let cqe_size = if flags == 0 { CqeSize::B64 } else { CqeSize::B128 };
        let (cq, reader) = device.create_cq(CqSpec { entries, cqe_size, ..CqSpec::default() })?;
        hand_out(place, Cq { cq, reader, members: Members::new() })
    })
}

/// Takes over an idle completion queue of the program: `ibv_cq` is a `struct ibv_cq` of libmlx5, in the
/// device's context, with entries of 64 or 128 bytes that are not compressed. The caller ensures: the program
/// does not destroy or resize the queue as long as the handle exists, and from this call on it never polls or
/// arms the queue through libibverbs, even after the handle is destroyed.
///
/// Errors: MLX5MK_ADOPT for a queue that the library cannot use or that is not empty, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_cq_adopt(
    device: Option<&Device>,
    ibv_cq: *mut c_void,
    cq: Option<&mut MaybeUninit<*mut Cq>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), place) = (given(device, "device")?, given(cq, "cq")?);
        let ibv_cq = given(NonNull::new(ibv_cq), "ibv_cq")?;
        // SAFETY: the caller ensures the conditions that the docstring states.
        let (cq, reader) = unsafe { device.adopt_cq(ibv_cq)? };
        hand_out(place, Cq { cq, reader, members: Members::new() })
    })
}

/// Takes up to `max` completions into `completions`, oldest first, and returns their number. The function
/// does not wait.
///
/// For an mkey with signatures, take the completion of the request that moves the data, then call
/// mlx5mk_mkey_check: a signature error arrives before that completion.
///
/// Errors: MLX5MK_ARGUMENT. A malformed entry is returned as a completion, MLX5MK_BAD_ENTRY. In this case
/// `error` describes the last malformed entry, although the call returns a count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_cq_poll(
    cq: Option<&mut Cq>,
    completions: *mut MaybeUninit<Completion>,
    max: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    let mut odd = None;
    let polled = (|| {
        let cq = given(cq, "cq")?;
        // SAFETY: the caller ensures that `completions` leads to memory for `max` values.
        let room = unsafe { room(completions, max.min(i32::MAX as u32) as usize, "completions")? };
        Ok(poll(cq, room, &mut odd))
    })();
    tell(polled, odd, error)
}

/// Ends the state in which mlx5mk_mkey_check reports lost errors for each mkey of the device. Signature
/// errors are lost if too many of them arrive for mkeys of pools that belong to other completion queues.
/// Before you call this function, treat all data that moved until now as wrong: for example, move them again.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_cq_forget_lost_errors(
    cq: Option<&mut Cq>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        given(cq, "cq")?.reader.forget_lost_errors();
        Ok(0)
    })
}

/// As mlx5mk_cq_poll. Also writes the time stamp of each completion's entry to `timestamps`, which has room
/// for `max` numbers. The property `timestamps` of a queue pair (mlx5mk_qp_spec) decides their format.
/// mlx5mk_clock_nanoseconds converts ticks of the free-running clock, mlx5mk_real_time_nanoseconds converts
/// time stamps in real time.
///
/// Errors: as mlx5mk_cq_poll.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_cq_poll_stamped(
    cq: Option<&mut Cq>,
    completions: *mut MaybeUninit<Completion>,
    timestamps: *mut MaybeUninit<u64>,
    max: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    let mut odd = None;
    let polled = (|| {
        let Cq { reader, members, .. } = given(cq, "cq")?;
        let max = max.min(i32::MAX as u32) as usize;
        // SAFETY: the caller ensures that both pointers lead to memory for `max` values.
        let (room, stamps) =
            unsafe { (room(completions, max, "completions")?, room(timestamps, max, "timestamps")?) };
        let (mut router, mut count) = (members.router(), 0);
        for (place, stamp) in room.iter_mut().zip(stamps) {
            let Some((entry, found)) = reader.poll_with_entry(&mut router) else { break };
            let (completion, why) = converted(found, &router);
            place.write(completion);
            stamp.write(entry.timestamp.get());
            count += 1;
            odd = why.or(odd);
        }
        Ok(count)
    })();
    tell(polled, odd, error)
}

/// As mlx5mk_cq_poll, but if there is no completion, sleeps until one arrives: up to `milliseconds`, or
/// without limit if `milliseconds` is negative. Returns 0 when the time is over. With 0 milliseconds the
/// function does not sleep: if there is no completion, it arms the queue, and the descriptor of mlx5mk_cq_fd
/// becomes readable with the next completion.
///
/// Errors: as mlx5mk_cq_poll; MLX5MK_SYSTEM; MLX5MK_ADOPT for a queue that was adopted: its events arrive at
/// the channel with which the program has created it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_cq_wait(
    cq: Option<&mut Cq>,
    completions: *mut MaybeUninit<Completion>,
    max: u32,
    milliseconds: i32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    let mut odd = None;
    let waited = (|| {
        let cq = given(cq, "cq")?;
        // SAFETY: the caller ensures that `completions` leads to memory for `max` values.
        let room = unsafe { room(completions, max.min(i32::MAX as u32) as usize, "completions")? };
        match poll(cq, room, &mut odd) {
            0 if !room.is_empty() => wait(cq, room, milliseconds, &mut odd),
            count => Ok(count),
        }
    })();
    tell(waited, odd, error)
}

/// Takes the completions that have arrived, as many as `room` holds, and returns their number.
#[inline]
fn poll(
    Cq { reader, members, .. }: &mut Cq,
    room: &mut [MaybeUninit<Completion>],
    odd: &mut Option<CompletionError>,
) -> i32 {
    let mut router = members.router();
    let mut count = 0;
    for place in room {
        let Some(found) = reader.poll(&mut router) else { break };
        let (completion, why) = converted(found, &router);
        place.write(completion);
        count += 1;
        *odd = why.or(*odd);
    }
    count
}

/// Waits for the first completion, takes all that have arrived, and returns their number.
fn wait(
    cq: &mut Cq,
    room: &mut [MaybeUninit<Completion>],
    milliseconds: i32,
    odd: &mut Option<CompletionError>,
) -> Result<i32, Failure> {
    let Some((first, rest)) = room.split_first_mut() else { return Ok(0) };
    let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    let mut router = cq.members.router();
    let found = match cq.reader.wait(&mut router, limit) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => return Ok(0),
        Err(DevxError::Completion(error)) => Err(error),
        Err(error) => return Err(error.into()),
    };
    let (completion, why) = converted(found, &router);
    first.write(completion);
    *odd = why;
    Ok(1 + poll(cq, rest, odd))
}

/// Returns the count or the code of `result`. Writes the failure, or else the malformed entry `odd`, to
/// `error`.
fn tell(
    result: Result<i32, Failure>,
    odd: Option<CompletionError>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    match (result, odd) {
        (Ok(count), None) => count,
        (Ok(count), Some(odd)) => {
            report(&odd.into(), error);
            count
        }
        (Err(failure), _) => report(&failure, error),
    }
}

/// Returns a file descriptor for poll or epoll, which becomes readable when an armed queue has completions.
/// To arm the queue, call mlx5mk_cq_wait with 0 milliseconds until it returns 0, so that no completion is
/// left. Then wait for the descriptor. The descriptor belongs to the queue: do not read from it or close it.
///
/// Errors: as mlx5mk_cq_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_cq_fd(cq: Option<&mut Cq>, error: Option<&mut MaybeUninit<Error>>) -> i32 {
    attempt(error, || Ok(given(cq, "cq")?.reader.channel()?.as_raw_fd()))
}

/// Writes a description of a completion to `words`. See mlx5mk_device_describe for `words`, `size` and the
/// returned value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_completion_words(
    completion: Option<&Completion>,
    words: *mut c_char,
    size: usize,
) -> usize {
    let Some(completion) = completion else { return 0 };
    // SAFETY: the caller ensures that `words` leads to `size` bytes.
    unsafe { text(words, size, completion) }
}

/// Destroys the completion queue. NULL is ignored.
///
/// Errors: MLX5MK_IN_USE while queue pairs complete to it, or pools or stores report signature errors to it.
/// After this error the completion queue still exists, and its handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_cq_destroy(cq: *mut Cq, error: Option<&mut MaybeUninit<Error>>) -> i32 {
    attempt(error, || {
        // SAFETY: the caller ensures that `cq` is NULL or the handle of a completion queue.
        let Some(queue) = (unsafe { cq.as_mut() }) else { return Ok(0) };
        let queue_pairs = queue.members.queue_pairs.iter_mut().count();
        let pools = queue.members.pools.len() + queue.members.stores;
        if queue_pairs + pools > 0 {
            return Err(Failure::InUse { queue_pairs, pools });
        }
        // SAFETY: the handle came out of a box when the queue was created, and is given back once.
        drop(unsafe { Box::from_raw(cq) });
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Failure as Broken;
    use std::string::ToString;

    #[test]
    fn a_completion_says_what_the_device_said() {
        let qpn = Qpn::from_low_bits(0x77);
        let work =
            |outcome| Completion::work(&WorkCompletion { id: 9, qpn, number: RequestNumber::NONE, outcome });
        let read = work(Outcome::Sent { kind: RequestKind::RdmaRead, bytes: 512 });
        assert_eq!(
            (read.kind, read.operation, read.bytes, read.id),
            (MLX5MK_SENT, MLX5MK_OP_RDMA_READ, 512, 9)
        );
        let write = work(Outcome::Sent { kind: RequestKind::RdmaWrite, bytes: 512 });
        assert_eq!(write.bytes, 0, "it means nothing there");
        let message = work(Outcome::Received { message: Message::SendImm(7), bytes: 3 });
        assert_eq!((message.operation, message.immediate, message.bytes), (MLX5MK_OP_SEND_IMM, 7, 3));
        let failure =
            Broken { syndrome: Syndrome::REMOTE_ACCESS, vendor: 0x88, hardware: 1, hardware_type: 2 };
        let failed = work(Outcome::Failed(failure));
        assert_eq!((failed.kind, failed.syndrome, failed.vendor), (MLX5MK_FAILED, 0x13, 0x88));
        assert!(failed.to_string().starts_with("request 9 of queue pair 0x77 failed: "), "{failed}");
    }
}
