//! Functions that post requests, and the operations of requests.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::config::{self, Prepared};
use super::error::{Error, Failure, attempt, given};
use super::group::{Pool, Qp, TakenMkey, flagged};
use super::values::{Range, Stream, array};
use crate::mkey::{InterleavedEntry, KlmEntry, Layout};
use crate::types::{Key, PsvIndex};
use crate::wqe::{Local, MaskedAtomic, Payload, Remote, Sge};
use core::ffi::c_void;
use core::mem::MaybeUninit;

/// Operation in completions only: the completion belongs to no request, or to an operation that has no
/// MLX5MK_OP constant.
pub const MLX5MK_OP_OTHER: u32 = 0;
/// The request does nothing.
pub const MLX5MK_OP_NOP: u32 = 1;
/// Sends a message.
pub const MLX5MK_OP_SEND: u32 = 2;
/// Sends a message with immediate data: 32 bits, which the receiver's completion contains.
pub const MLX5MK_OP_SEND_IMM: u32 = 3;
/// Sends a message, and the receiver's device takes one of the receiver's keys out of service.
pub const MLX5MK_OP_SEND_INVALIDATE: u32 = 4;
/// Writes to the peer's memory.
pub const MLX5MK_OP_RDMA_WRITE: u32 = 5;
/// Writes to the peer's memory, and completes one of the peer's receive requests. The completion of that
/// receive request contains 32 bits of immediate data.
pub const MLX5MK_OP_RDMA_WRITE_IMM: u32 = 6;
/// Reads from the peer's memory.
pub const MLX5MK_OP_RDMA_READ: u32 = 7;
/// Writes `swap_add` to 8 bytes of the peer's memory if they hold `compare`. The device writes the old value
/// to the request's only data segment, of 8 bytes.
pub const MLX5MK_OP_COMPARE_SWAP: u32 = 8;
/// Adds `swap_add` to 8 bytes of the peer's memory. The device writes the old value to the request's only
/// data segment, of 8 bytes.
pub const MLX5MK_OP_FETCH_ADD: u32 = 9;
/// Operation in completions only: the configuration of an mkey (mlx5mk_post_configure).
pub const MLX5MK_OP_CONFIGURE: u32 = 10;
/// Operation in completions, and for mlx5mk_request_size: a key is taken out of service
/// (mlx5mk_post_invalidate).
pub const MLX5MK_OP_INVALIDATE: u32 = 11;
/// Copies the bytes of the request's only data segment to another place in local memory, without the peer.
/// `remote_address` and `rkey` name this place. The queue pair needs MLX5MK_QP_MEMCPY. Copies are not ordered
/// against other requests, not even those with MLX5MK_FENCED. So post a request that needs the copied bytes
/// after the copy has completed.
pub const MLX5MK_OP_MEMCPY: u32 = 12;
/// Operation in completions only: a work request that the program built (mlx5mk_post_raw).
pub const MLX5MK_OP_RAW: u32 = 13;
/// Operation in completions only: a memory window that was bound (mlx5mk_post_bind).
pub const MLX5MK_OP_BIND: u32 = 14;
/// If 4 or 8 bytes of the peer's memory equal `compare` in the bits of `compare_mask`, their bits of
/// `swap_mask` become those of `swap_add`. The device writes the old value to the request's only data
/// segment, whose length, 4 or 8, is also the number of bytes that are compared. An old value of 4 bytes is
/// in big endian. The peer's queue pair needs MLX5MK_QP_MASKED_ATOMICS. The completion has the operation
/// MLX5MK_OP_COMPARE_SWAP.
pub const MLX5MK_OP_MASKED_COMPARE_SWAP: u32 = 15;
/// Adds `swap_add` to 4 or 8 bytes of the peer's memory, field by field: a bit of `compare_mask` marks the
/// highest bit of a field, and no carry leaves this bit. All else is as for MLX5MK_OP_MASKED_COMPARE_SWAP.
/// The completion has the operation MLX5MK_OP_FETCH_ADD.
pub const MLX5MK_OP_MASKED_FETCH_ADD: u32 = 16;

/// A request that moves data. Fields that its operation does not need are ignored.
#[repr(C)]
pub struct Request {
    /// The name that the program gives the request. The completion contains it.
    pub id: u64,
    /// The operation: one of the MLX5MK_OP constants, except those that are only for completions and for
    /// mlx5mk_request_size.
    pub operation: u32,
    /// A sum of the flags MLX5MK_SIGNALED, MLX5MK_FENCED and MLX5MK_SOLICITED, or 0.
    pub flags: u32,
    /// Address in the peer's memory; for MLX5MK_OP_MEMCPY, in local memory. If `rkey` is the key of an mkey,
    /// the address is an offset in the mkey's space.
    pub remote_address: u64,
    /// The key of the memory at `remote_address`.
    pub rkey: u32,
    /// The 32 bits for the receiver's completion, in the processor's byte order, or the key that
    /// MLX5MK_OP_SEND_INVALIDATE takes out of service.
    pub immediate: u32,
    /// The data segments: local memory, which the device reads or writes until the request has completed.
    pub sges: *const Range,
    /// Bytes that are copied into the request instead of segments, or NULL. Only for sends and RDMA WRITEs.
    pub inline_data: *const c_void,
    /// Number of segments at `sges`.
    pub sge_count: u32,
    /// Number of bytes at `inline_data`.
    pub inline_bytes: u32,
    /// For MLX5MK_OP_COMPARE_SWAP and MLX5MK_OP_MASKED_COMPARE_SWAP: the value that the peer's memory is
    /// compared with.
    pub compare: u64,
    /// The value that a compare-and-swap writes to the peer's memory, or that a fetch-and-add adds to it,
    /// with or without masks.
    pub swap_add: u64,
    /// For MLX5MK_OP_MASKED_COMPARE_SWAP: the bits that are compared. For MLX5MK_OP_MASKED_FETCH_ADD: the
    /// highest bit of each field, which no carry leaves.
    pub compare_mask: u64,
    /// For MLX5MK_OP_MASKED_COMPARE_SWAP: the bits that the new value replaces.
    pub swap_mask: u64,
}

/// Posts a configuration of an mkey in use. `count` ranges of memory, one after the other, become the mkey's
/// space, and the prepared properties become its properties. If `count` is 0, the mkey keeps its layout. The
/// array is read during the call only.
///
/// Requests that are posted later to the same queue pair may use the mkey. The device does not see the
/// request before mlx5mk_doorbell.
///
/// Errors: MLX5MK_CONFIG, MLX5MK_FULL, MLX5MK_ARGUMENT. After an error queue pair and mkey are as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_configure(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    prepared: Option<&Prepared>,
    entries: *const Range,
    count: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        // SAFETY: the caller ensures that `entries` leads to `count` values. A `Range` has the layout of a
        // `KlmEntry`.
        let entries = unsafe { array(entries.cast::<KlmEntry>(), count as usize, "entries")? };
        let layout = if entries.is_empty() { Layout::Unchanged } else { Layout::List(entries) };
        configure((qp, id, flags), (pool, mkey), prepared, layout)
    })
}

/// Posts a configuration of an mkey in use, with a layout of any kind.
fn configure(
    (qp, id, flags): (Option<&mut Qp>, u64, u32),
    (pool, mkey): (Option<&mut Pool>, TakenMkey),
    prepared: Option<&Prepared>,
    layout: Layout<'_>,
) -> Result<i32, Failure> {
    let (qp, pool) = (given(qp, "qp")?, given(pool, "pool")?);
    let Prepared(prepared) = given(prepared, "prepared")?;
    let mkey = pool.mkey(mkey)?;
    flagged(qp, id, flags)?.configure_mkey(mkey, prepared, layout)?;
    Ok(0)
}

/// As mlx5mk_post_configure, with an interleaved layout. The mkey's space consists of `cycles` cycles. Each
/// cycle takes the next bytes of each of the `count` streams, in turn. The layout needs room for `count` + 1
/// entries in the mkey.
///
/// Errors: as mlx5mk_post_configure; MLX5MK_ARGUMENT where there are no streams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_configure_interleaved(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    prepared: Option<&Prepared>,
    cycles: u32,
    streams: *const Stream,
    count: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        // SAFETY: the caller ensures that `streams` leads to `count` values. A `Stream` has the layout of an
        // `InterleavedEntry`.
        let entries = unsafe { array(streams.cast::<InterleavedEntry>(), count as usize, "streams")? };
        if entries.is_empty() {
            return Err(Failure::Wanted("an interleaved layout has streams"));
        }
        configure((qp, id, flags), (pool, mkey), prepared, Layout::Interleaved { repeat: cycles, entries })
    })
}

/// Posts a request that moves data. The device does not see the request before mlx5mk_doorbell.
///
/// Errors: MLX5MK_REQUEST, MLX5MK_FULL, MLX5MK_ARGUMENT. After an error the queue pair is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post(
    qp: Option<&mut Qp>,
    request: Option<&Request>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, request) = (given(qp, "qp")?, given(request, "request")?);
        let post = flagged(qp, request.id, request.flags)?;
        // SAFETY: the caller ensures that `request.sges` leads to `request.sge_count` values. A `Range` has
        // the layout of an `Sge`.
        let sges = unsafe { array(request.sges.cast::<Sge>(), request.sge_count as usize, "sges")? };
        let payload = match request.inline_data.is_null() {
            true => Payload::Sges(sges),
            // SAFETY: the caller ensures that `request.inline_data` leads to `request.inline_bytes` bytes.
            false => Payload::Inline(unsafe {
                array(request.inline_data.cast::<u8>(), request.inline_bytes as usize, "inline_data")?
            }),
        };
        let remote = Remote { address: request.remote_address, rkey: Key::from_raw(request.rkey) };
        match request.operation {
            MLX5MK_OP_RDMA_WRITE => post.rdma_write(remote, payload)?,
            MLX5MK_OP_RDMA_READ => post.rdma_read(remote, sges)?,
            MLX5MK_OP_SEND => post.send(payload)?,
            MLX5MK_OP_SEND_IMM => post.send_imm(request.immediate, payload)?,
            MLX5MK_OP_SEND_INVALIDATE => post.send_invalidate(Key::from_raw(request.immediate), payload)?,
            MLX5MK_OP_RDMA_WRITE_IMM => post.rdma_write_imm(remote, request.immediate, payload)?,
            MLX5MK_OP_COMPARE_SWAP => {
                post.compare_swap(remote, request.compare, request.swap_add, eight(sges)?)?;
            }
            MLX5MK_OP_FETCH_ADD => post.fetch_add(remote, request.swap_add, eight(sges)?)?,
            MLX5MK_OP_MASKED_COMPARE_SWAP | MLX5MK_OP_MASKED_FETCH_ADD => {
                let (old, bytes) = one(sges, ATOMIC)?;
                post.masked_atomic(remote, masked(request, bytes)?, old)?;
            }
            MLX5MK_OP_MEMCPY => {
                let (from, bytes) = one(sges, "a copy has one segment")?;
                let to = Local { address: remote.address, lkey: remote.rkey };
                post.memcpy(to, from, bytes)?;
            }
            MLX5MK_OP_NOP => post.nop()?,
            operation => return Err(Failure::Value { what: "operation", value: operation.into() }),
        }
        Ok(0)
    })
}

const ATOMIC: &str = "an atomic has one segment of 8 bytes, or of 4 if it has masks";

/// Returns the place of the only data segment of an atomic without masks.
fn eight(sges: &[Sge]) -> Result<Local, Failure> {
    match one(sges, ATOMIC) {
        Ok((old, 8)) => Ok(old),
        _ => Err(Failure::Wanted(ATOMIC)),
    }
}

/// Returns the masked atomic of a request whose segment has `bytes` bytes.
fn masked(request: &Request, bytes: u32) -> Result<MaskedAtomic, Failure> {
    let Request { compare, compare_mask, swap_add, swap_mask, .. } = *request;
    let swaps = request.operation == MLX5MK_OP_MASKED_COMPARE_SWAP;
    if bytes == 8 {
        return Ok(match swaps {
            true => MaskedAtomic::CompareSwap64 { compare, compare_mask, swap: swap_add, swap_mask },
            false => MaskedAtomic::FetchAdd64 { add: swap_add, boundary: compare_mask },
        });
    }
    let word = |what, value: u64| u32::try_from(value).map_err(|_| Failure::Value { what, value });
    let (swap_add, boundary) = (word("swap_add", swap_add)?, word("compare_mask", compare_mask)?);
    Ok(match (bytes, swaps) {
        (4, true) => MaskedAtomic::CompareSwap32 {
            compare: word("compare", compare)?,
            compare_mask: boundary,
            swap: swap_add,
            swap_mask: word("swap_mask", swap_mask)?,
        },
        (4, false) => MaskedAtomic::FetchAdd32 { add: swap_add, boundary },
        _ => return Err(Failure::Wanted(ATOMIC)),
    })
}

/// Returns place and length of the only data segment of a request, or an error that says `wanted` if the
/// number of segments is not one.
const fn one(sges: &[Sge], wanted: &'static str) -> Result<(Local, u32), Failure> {
    match *sges {
        [Sge { address, length, lkey }] => Ok((Local { address, lkey }, length)),
        _ => Err(Failure::Wanted(wanted)),
    }
}

/// Posts a work request that the program built. `wqe` leads to `bytes` bytes, which begin with a control
/// segment. This segment gives the length of the request, which may be less than `bytes`. In the control
/// segment, the library sets the index of the WQE and the number of the queue pair, and adds `flags` to the
/// flags that the program has set. The device does not see the request before mlx5mk_doorbell. The library
/// does not know how the request changes mkeys, so the request must not change an mkey of a pool.
///
/// Errors: MLX5MK_REQUEST, MLX5MK_FULL, MLX5MK_ARGUMENT. After an error the queue pair is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_raw(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    wqe: *const c_void,
    bytes: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let qp = given(qp, "qp")?;
        // SAFETY: the caller ensures that `wqe` leads to `bytes` bytes.
        let wqe = unsafe { array(wqe.cast::<u8>(), bytes as usize, "wqe")? };
        flagged(qp, id, flags)?.raw(wqe)?;
        Ok(0)
    })
}

/// Posts a request that gives the PSV of a transaction (data with a digest over several mkeys) its start
/// value again. This is needed after a wrong digest. Call the function after the configurations of the next
/// transaction and before the requests that move its data. `seed` is MLX5MK_SEED_ZEROS or MLX5MK_SEED_ONES.
/// Digests of a single mkey do not need this. The device does not see the request before mlx5mk_doorbell.
///
/// Errors: MLX5MK_FULL, MLX5MK_ARGUMENT. After an error the queue pair is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_set_psv(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    psv: u32,
    seed: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let qp = given(qp, "qp")?;
        let seed = config::seed(seed)?;
        flagged(qp, id, flags)?.set_psv(PsvIndex::new(psv)?, seed)?;
        Ok(0)
    })
}

/// Posts a receive request: `count` buffers for one message. The device does not see the request before
/// mlx5mk_doorbell.
///
/// Errors: MLX5MK_REQUEST, MLX5MK_FULL. After an error the queue pair is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_receive(
    qp: Option<&mut Qp>,
    id: u64,
    sges: *const Range,
    count: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let qp = given(qp, "qp")?;
        // SAFETY: the caller ensures that `sges` leads to `count` values. A `Range` has the layout of an
        // `Sge`.
        let sges = unsafe { array(sges.cast::<Sge>(), count as usize, "sges")? };
        qp.queues.post_receive(id, sges)?;
        Ok(0)
    })
}

/// Publishes all posted requests of the queue pair, with one doorbell. Does nothing if all posted requests
/// are published, or if `qp` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_doorbell(qp: Option<&mut Qp>) {
    if let Some(qp) = qp {
        qp.queues.publish_receives();
        qp.queues.ring_doorbell();
    }
}
