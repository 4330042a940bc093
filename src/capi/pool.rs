//! Pools of mkeys, and mkeys in them.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::cq::Completion;
use super::device::Pd;
use super::error::{Error, Failure, attempt, given};
use super::group::{Cq, Mkeys, Pool, Qp, TakenMkey, flagged};
use super::psvs::Psvs;
use super::values::{MLX5MK_MEMORY, MLX5MK_WIRE, access_of, entry_size, only};
use crate::devx::{self, DevxError, MkeySpec};
use crate::mkey::{Mkey, SignatureErrorKind, UmrForm};
use crate::queue::{MkeyPool, PoolSlot};
use crate::types::DomainKind;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::boxed::Box;
use std::vec::Vec;

/// Flag of a pool: the mkeys encrypt and decrypt (AES-XTS). Transfers through an mkey fail until a
/// configuration gives it crypto properties.
pub const MLX5MK_POOL_CRYPTO: u32 = 1;
/// Flag of a pool: the tags of the mkeys change with each use, so that a peer cannot use an old key.
pub const MLX5MK_POOL_UPDATE_TAG: u32 = 2;
/// Flag of a pool: the peer may invalidate the mkeys.
pub const MLX5MK_POOL_REMOTE_INVALIDATE: u32 = 4;
/// Flag of a pool: PCIe writes through the mkeys may pass one another, and reads may pass writes where the
/// device supports that.
pub const MLX5MK_POOL_RELAXED_ORDERING: u32 = 8;
/// Flag of a pool: configurations write only the properties that change, and post the same bytes as SPDK's
/// `lib/mlx5`. The tag of an mkey never changes, even with MLX5MK_POOL_UPDATE_TAG. Rights are written only if
/// a configuration gives them; the field `access` of the pool gives the first rights.
pub const MLX5MK_POOL_MINIMAL: u32 = 16;

/// The guard of a T10-DIF, or the CRC, was wrong.
pub const MLX5MK_BAD_GUARD: u32 = 0;
/// The application tag of a T10-DIF was wrong.
pub const MLX5MK_BAD_APP_TAG: u32 = 1;
/// The reference tag of a T10-DIF was wrong.
pub const MLX5MK_BAD_REF_TAG: u32 = 2;

/// The digest behind all data was wrong.
pub const MLX5MK_BAD_DIGEST: u32 = 3;

/// The properties of a pool or a store.
#[repr(C)]
pub struct PoolSpec {
    /// Number of mkeys: 1 to 65536.
    pub count: u32,
    /// The largest number of entries that a layout of an mkey can have. More than 2^30 are refused with
    /// MLX5MK_ARGUMENT, more than the device supports with MLX5MK_COMMAND.
    pub max_entries: u32,
    /// MLX5MK_POOL_CRYPTO and other MLX5MK_POOL flags.
    pub flags: u32,
    /// The length of every entry of a layout, a power of two from 4096 to 2^31, or 0 for entries of different
    /// lengths. With equal lengths the device finds the entry of an address without a search, however long
    /// the layout is. Entries of equal length come from lists (mlx5mk_list_write_equal), and mkeys with such
    /// entries have neither signatures nor crypto.
    pub entry_size: u32,
    /// PSVs that all mkeys of the pool share. The mkeys are created in the protection domain of the PSVs.
    /// With NULL each mkey has its own PSVs, as in a store.
    pub psvs: *const Psvs,
    /// Rights that the mkeys have from the start, MLX5MK_LOCAL_WRITE and others; the owner may always read.
    /// The field is meant for MLX5MK_POOL_MINIMAL, whose configurations may omit the rights, except after
    /// mlx5mk_mkey_forget.
    pub access: u32,
}

/// A signature that did not match its block.
#[repr(C)]
pub struct BadBlock {
    /// The part that was wrong: MLX5MK_BAD_GUARD or another MLX5MK_BAD constant.
    pub part: u32,
    /// The domain from which the data came: MLX5MK_MEMORY or MLX5MK_WIRE.
    pub domain: u32,
    /// The number of the block, counted from 0 at the first byte of the mkey's space; 0 for a digest.
    pub block: u64,
    /// The wrong signature, as it was in the data.
    pub found: u64,
    /// The signature that the device computed for the data.
    pub computed: u64,
    /// Offset in bytes of the last byte of the block with its signature; for a digest, the offset that the
    /// device reported.
    pub offset: u64,
}

/// Returns a pool that holds these mkeys.
fn pool_of(mkeys: Vec<Mkey>) -> Result<Mkeys, DevxError> {
    let slots = std::vec![PoolSlot::EMPTY; mkeys.len()];
    Ok(Mkeys::Own(MkeyPool::new(mkeys, slots)?))
}

/// Creates a pool of mkeys, none of them in use. With `cq` the mkeys have block signatures: signature errors
/// arrive at `cq`, and each mkey sets aside one entry of `cq`. `cq` must be a completion queue of the queue
/// pairs that use the mkeys. If a queue pair has two completion queues, errors in sent data arrive at the one
/// of the send queue, errors in received data at the other. At a queue other than `cq`, polling returns such
/// an error as MLX5MK_BAD_ENTRY, but mlx5mk_mkey_check still finds it. With NULL as `cq` the mkeys have no
/// signatures.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_CQ_TOO_SMALL, MLX5MK_SYSTEM, MLX5MK_COMMAND where the device lacks a
/// property of `spec`, or refuses. After an error no mkey is left on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pool_create(
    pd: Option<&Pd>,
    cq: Option<NonNull<Cq>>,
    spec: Option<&PoolSpec>,
    pool: Option<&mut MaybeUninit<*mut Pool>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, spec, place) = (given(pd, "pd")?, given(spec, "spec")?, given(pool, "pool")?);
        // SAFETY: the caller ensures that the handles of the completion queue and of the PSVs are valid.
        let (of, psvs) = unsafe { (cq.map(|cq| &cq.as_ref().cq), spec.psvs.as_ref()) };
        let wanted = mkeys(spec, 1 << 16, of)?;
        let count = spec.count as usize;
        let mkeys = match psvs {
            None => pd.pd.create_mkeys(count, wanted)?,
            Some(_) if cq.is_none() => {
                return Err(Failure::Wanted("psvs are of mkeys with signatures: give cq"));
            }
            Some(Psvs(psvs)) => psvs.create_mkeys(count, wanted)?,
        };
        let (mkeys, handles) = mkeys.into_parts();
        let kind = mkeys.first().map(Mkey::kind).ok_or(Failure::Wanted("a pool has mkeys"))?;
        let pool = Pool { mkeys: pool_of(mkeys)?, _handles: handles, kind, cq };
        // SAFETY: the caller ensures that the completion queue exists. The references to it that this
        // function made above are no longer used.
        Ok(unsafe { join(pool, place) })
    })
}

/// Returns the properties of a pool's mkeys. Refuses a pool of more than `most` mkeys.
pub(super) fn mkeys<'c>(
    spec: &PoolSpec,
    most: u32,
    signature: Option<&'c devx::Cq>,
) -> Result<MkeySpec<'c>, Failure> {
    let known = MLX5MK_POOL_CRYPTO
        | MLX5MK_POOL_UPDATE_TAG
        | MLX5MK_POOL_REMOTE_INVALIDATE
        | MLX5MK_POOL_RELAXED_ORDERING
        | MLX5MK_POOL_MINIMAL;
    only(spec.flags, known, "flags")?;
    if !(1..=most).contains(&spec.count) {
        return Err(Failure::Value { what: "count", value: spec.count.into() });
    }
    let entry_size = if spec.entry_size == 0 { None } else { Some(entry_size(spec.entry_size)?) };
    let has = |flag| spec.flags & flag != 0;
    Ok(MkeySpec {
        max_entries: spec.max_entries,
        signature,
        crypto: has(MLX5MK_POOL_CRYPTO),
        update_tag: has(MLX5MK_POOL_UPDATE_TAG),
        remote_invalidate: has(MLX5MK_POOL_REMOTE_INVALIDATE),
        relaxed_ordering: has(MLX5MK_POOL_RELAXED_ORDERING),
        access: access_of(spec.access)?,
        form: if has(MLX5MK_POOL_MINIMAL) { UmrForm::Minimal } else { UmrForm::Complete },
        entry_size,
    })
}

/// Registers a pool with its completion queue, so that signature errors find it, and writes its handle to
/// `place`.
///
/// # Safety
/// The caller ensures that the pool's completion queue exists and that there is no other reference to it.
/// (All calls of the group are made one after the other.)
pub(super) unsafe fn join(pool: Pool, place: &mut MaybeUninit<*mut Pool>) -> i32 {
    let cq = pool.cq;
    let pool = NonNull::from(Box::leak(Box::new(pool)));
    if let Some(mut cq) = cq {
        // SAFETY: the caller ensures that the completion queue exists and that no other reference leads to
        // it.
        unsafe { cq.as_mut() }.members.pools.push(pool);
    }
    place.write(pool.as_ptr());
    0
}

/// Takes a free mkey from the pool, to be configured, and writes its name to `mkey`. With
/// MLX5MK_POOL_UPDATE_TAG its key has another tag than in its last use. Signature errors of an earlier use
/// are cleared.
///
/// Errors: MLX5MK_FULL while all mkeys are in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pool_take(
    pool: Option<&mut Pool>,
    mkey: Option<&mut MaybeUninit<TakenMkey>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pool, mkey) = (given(pool, "pool")?, given(mkey, "mkey")?);
        mkey.write(pool.take().ok_or(Failure::Full("all mkeys of the pool are in use"))?);
        Ok(0)
    })
}

/// Takes the key of an mkey in use out of service. This is needed only if a peer may know the key. The
/// function posts a request (IBV_WR_LOCAL_INV) with the name `id` and with `flags`. Use MLX5MK_FENCED if
/// earlier requests still use the key. The mkey stays in use until mlx5mk_pool_put gets a completion of this
/// request, which has one if `flags` contains MLX5MK_SIGNALED, or of a later request on the same queue pair.
/// The names of the two requests do not matter. If the request fails, or its queue pair is reset before it
/// completes, the key may still be in service: call this function again, with any queue pair.
///
/// Errors: MLX5MK_ARGUMENT for an mkey that is not in use in this pool, MLX5MK_FULL. After an error nothing
/// is posted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_invalidate(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, pool) = (given(qp, "qp")?, given(pool, "pool")?);
        pool.invalidate(mkey, flagged(qp, id, flags)?)?;
        Ok(0)
    })
}

/// Puts an mkey back. `completion` proves that the mkey's key is out of service. It is the success of the
/// request of mlx5mk_post_invalidate or of a later request on the same queue pair, or the receipt of a
/// message with which the peer has invalidated the key (MLX5MK_OP_SEND_INVALIDATE). Pass NULL for an mkey
/// whose key no peer can use: an mkey that was not configured, or whose configurations gave no remote rights.
///
/// Errors: MLX5MK_IN_SERVICE where the completion is no such proof, for example because the request has
/// failed, and with NULL for an mkey that is being invalidated; MLX5MK_ARGUMENT for an mkey that is not in
/// use. After an error the mkey is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pool_put(
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    completion: Option<&Completion>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let pool = given(pool, "pool")?;
        pool.put(mkey, completion.map(Completion::evidence).transpose()?.as_ref())?;
        Ok(0)
    })
}

/// Destroys the pool and its mkeys. The caller ensures that no request uses the mkeys any more. NULL is
/// ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pool_destroy(pool: Option<Box<Pool>>) {
    let Some(pool) = pool else { return };
    if let Some(mut cq) = pool.cq {
        let own = NonNull::from(&*pool);
        // SAFETY: the completion queue cannot be destroyed while pools report to it, and no other call uses
        // it.
        unsafe { cq.as_mut() }.members.pools.retain(|other| *other != own);
    }
    drop(pool);
}

/// Writes the key of an mkey in use. The key is both local and remote.
///
/// Errors: MLX5MK_ARGUMENT for an mkey that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mkey_key(
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    key: Option<&mut MaybeUninit<u32>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pool, key) = (given(pool, "pool")?, given(key, "key")?);
        key.write(pool.mkey(mkey)?.key().get());
        Ok(0)
    })
}

/// Asks an mkey for the first signature error since the last call (mlx5dv_mkey_check). Call it after you have
/// taken the completion of the request that moves the data, or the peer's message that the data have arrived.
/// The function also finds errors that arrived at other completion queues of the device. Returns 0 if all
/// signatures were right. Otherwise returns MLX5MK_SIGNATURE, and describes the error in words in `error` and
/// in numbers in `bad`; either may be NULL.
///
/// Errors: MLX5MK_SIGNATURE also for an mkey without signatures, and for a reported error that does not fit
/// the mkey's configuration. In these cases `bad` is not written; MLX5MK_ARGUMENT for an mkey that is not in
/// use in this pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mkey_check(
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    bad: Option<&mut MaybeUninit<BadBlock>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Some(wrong) = given(pool, "pool")?.check(mkey)?? else { return Ok(0) };
        if let Some(bad) = bad {
            bad.write(BadBlock {
                part: match wrong.kind {
                    SignatureErrorKind::AppTag => MLX5MK_BAD_APP_TAG,
                    SignatureErrorKind::RefTag => MLX5MK_BAD_REF_TAG,
                    SignatureErrorKind::Digest => MLX5MK_BAD_DIGEST,
                    _ => MLX5MK_BAD_GUARD,
                },
                domain: match wrong.domain {
                    DomainKind::Memory => MLX5MK_MEMORY,
                    DomainKind::Wire => MLX5MK_WIRE,
                },
                block: wrong.block_index(),
                found: wrong.found,
                computed: wrong.computed,
                offset: wrong.offset,
            });
        }
        Err(wrong.into())
    })
}

/// Marks the state of an mkey on the device as unknown. Call this function when the queue pair failed or was
/// reset, since the device may not have executed all posted configurations of the mkey. The next
/// configuration has to be complete: access rights, a layout, and signature and crypto where the mkey can
/// have them.
///
/// Errors: MLX5MK_ARGUMENT for an mkey that is not in use in this pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mkey_forget(
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        given(pool, "pool")?.mkey(mkey)?.forget();
        Ok(0)
    })
}
