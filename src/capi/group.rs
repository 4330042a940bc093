//! The handles of a group: a completion queue, the queue pairs that complete to it, and the pools that report
//! signature errors to it. These handles refer to each other.

#![allow(unsafe_code)] // A completion queue has raw pointers to its members.

use super::error::Failure;
use super::values::only;
use crate::command::UserIndex;
use crate::devx::{self, CqReader, MkeyCache, MkeyHandle, QueuePair, QueuePairSpec};
use crate::mkey::error::{CheckError, PoolError};
use crate::mkey::{Mkey, MkeyKind, SignatureError, SignatureFault};
use crate::queue::slots::Handle;
use crate::queue::{
    CompletedReceive, CompletedSend, CompletionRouter, CqeOrigin, MkeyPool, PooledMkey, QpQueues, QpTable,
    QpTableRouter, Retired, SendRequest, WorkCompletion,
};
use crate::types::{Qpn, QueueError};
use core::ptr::NonNull;
use std::vec::Vec;

/// Flag of a request: it has a completion even if it succeeds.
pub const MLX5MK_SIGNALED: u32 = 1;
/// Flag of a request: the device executes it after the earlier reads and atomics are done.
pub const MLX5MK_FENCED: u32 = 2;
/// Flag of a request: it raises a solicited event at the receiver.
pub const MLX5MK_SOLICITED: u32 = 4;

/// A completion queue, with the queue pairs that complete to it and the pools that report signature errors to
/// it.
pub struct Cq {
    pub(super) cq: devx::Cq,
    pub(super) reader: CqReader,
    pub(super) members: Members,
}

/// The number of queue pairs for which the first table of a completion queue has room. A table of twice the
/// size replaces a full table.
const FIRST_QUEUE_PAIRS: usize = 8;

/// The queue pairs, pools and stores of a completion queue. They must be destroyed before the completion
/// queue.
pub(super) struct Members {
    pub(super) queue_pairs: QpTable<'static, Member>,
    pub(super) pools: Vec<NonNull<Pool>>,
    /// The number of stores whose pools report to the completion queue.
    pub(super) stores: usize,
}

/// A queue pair that completes to the completion queue.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) qpn: Qpn,
    pub(super) qp: NonNull<Qp>,
}

impl Member {
    #[inline]
    fn queues(&mut self) -> &mut QueuePair {
        // SAFETY: a queue pair is removed from the completion queue before it is destroyed. No other call
        // uses it now, because the calls of a group are made one after the other.
        &mut unsafe { self.qp.as_mut() }.queues
    }
}

impl QpQueues for Member {
    #[inline]
    fn qpn(&self) -> Qpn {
        self.qpn
    }

    #[inline]
    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        self.queues().retire_send(done)
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        self.queues().retire_receive(done)
    }
}

/// Finds the queue pair or the mkey of a completion among the members of the completion queue.
pub(super) struct Router<'m> {
    table: QpTableRouter<'m, 'static, Member>,
    pools: &'m mut [NonNull<Pool>],
    /// The pool and the mkey to which the last signature error belongs. If the mkey is not in use,
    /// `TakenMkey::NONE` stands instead of it.
    pub(super) of: (*mut Pool, TakenMkey),
}

impl CompletionRouter for Router<'_> {
    type Queues = Member;

    #[inline]
    fn queues(&mut self, origin: CqeOrigin) -> Option<&mut Member> {
        self.table.queues(origin)
    }

    fn signature_error(&mut self, fault: &SignatureFault) -> Option<usize> {
        self.pools.iter_mut().find_map(|pool| {
            // SAFETY: a pool is removed from the completion queue before it is destroyed. No other call uses
            // it now, because the calls of a group are made one after the other.
            let found = unsafe { pool.as_mut() };
            let position = found.record(fault)?;
            let mkey = found.mkeys.at(position).map_or(TakenMkey::NONE, TakenMkey::from);
            self.of = (pool.as_ptr(), mkey);
            Some(position)
        })
    }
}

impl Members {
    pub(super) fn new() -> Self {
        Self { queue_pairs: QpTable::on_heap(FIRST_QUEUE_PAIRS), pools: Vec::new(), stores: 0 }
    }

    /// Adds a queue pair to the table of members. If the table is full, a table of twice the size replaces
    /// it. Each queue pair keeps its position, which its completions carry as the user index.
    pub(super) fn join(&mut self, member: Member) -> Result<(), QueueError> {
        let Err((error, member)) = self.queue_pairs.insert(member) else { return Ok(()) };
        let QueueError::TableFull { capacity } = error else { return Err(error) };
        let mut larger = QpTable::on_heap(2 * capacity);
        for member in self.queue_pairs.iter_mut().map(|member| *member).chain([member]) {
            larger.insert(member).map_err(|(error, _)| error)?;
        }
        self.queue_pairs = larger;
        Ok(())
    }

    /// Returns the default properties for the next queue pair, with its user index. Completions carry the
    /// user index, by which the table finds the queue pair without a search.
    pub(super) fn spec(&self) -> Result<QueuePairSpec, Failure> {
        let user_index = UserIndex::new(self.queue_pairs.next_user_index())?;
        Ok(QueuePairSpec { user_index, ..QueuePairSpec::default() })
    }

    pub(super) fn router(&mut self) -> Router<'_> {
        let Self { queue_pairs, pools, .. } = self;
        Router { table: queue_pairs.router(&mut []), pools, of: (core::ptr::null_mut(), TakenMkey::NONE) }
    }
}

/// A reliable queue pair.
pub struct Qp {
    pub(super) queues: QueuePair,
    /// The completion queues of the send and the receive queue, which may be the same.
    pub(super) cqs: [NonNull<Cq>; 2],
}

/// Begins a send request named `id`. `flags` is a sum of MLX5MK_SIGNALED, MLX5MK_FENCED and MLX5MK_SOLICITED,
/// or 0.
#[inline]
pub(super) fn flagged(qp: &mut Qp, id: u64, flags: u32) -> Result<SendRequest<'_, 'static>, Failure> {
    only(flags, MLX5MK_SIGNALED | MLX5MK_FENCED | MLX5MK_SOLICITED, "flags")?;
    let mut request = qp.queues.request(id);
    if flags & MLX5MK_SIGNALED != 0 {
        request = request.signaled();
    }
    if flags & MLX5MK_FENCED != 0 {
        request = request.fenced();
    }
    if flags & MLX5MK_SOLICITED != 0 {
        request = request.solicited();
    }
    Ok(request)
}

/// Mkeys with the same properties. Some are in use, the others are free.
pub struct Pool {
    pub(super) mkeys: Mkeys,
    pub(super) _handles: Vec<MkeyHandle>,
    pub(super) kind: MkeyKind,
    /// The completion queue at which signature errors arrive; `None` for mkeys without signatures.
    pub(super) cq: Option<NonNull<Cq>>,
}

/// The name of an mkey of a pool while it is in use. The name includes the pool and the use: other pools
/// refuse it, and its own pool refuses it after the mkey was put back. A program may copy the name, but its
/// content has no meaning for the program. Zeros name no mkey.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TakenMkey {
    /// Private to the library.
    pub opaque: [u64; 3],
}

impl TakenMkey {
    pub(super) const NONE: Self = Self { opaque: [0; 3] };

    /// Returns whether the name is that of no mkey.
    pub(super) const fn is_none(self) -> bool {
        matches!(self.opaque, [0, 0, 0])
    }

    pub(super) const fn pooled(self) -> PooledMkey {
        PooledMkey(Handle::from_numbers(self.opaque))
    }
}

impl From<PooledMkey> for TakenMkey {
    fn from(PooledMkey(handle): PooledMkey) -> Self {
        Self { opaque: handle.to_numbers() }
    }
}

/// The mkeys of a pool: its own, or those that it takes from a store.
pub(super) enum Mkeys {
    Own(MkeyPool<'static>),
    OfStore(MkeyCache),
}

impl Mkeys {
    /// Returns the pool of the Rust library that holds the mkeys.
    #[inline]
    pub(super) const fn pool(&mut self) -> &mut MkeyPool<'static> {
        match self {
            Self::Own(pool) => pool,
            Self::OfStore(cache) => cache.pool(),
        }
    }

    fn take(&mut self) -> Option<PooledMkey> {
        let taken = match self {
            Self::Own(pool) => pool.take(),
            Self::OfStore(cache) => cache.take(),
        };
        taken.map(|(mkey, _)| mkey)
    }

    fn put(&mut self, mkey: PooledMkey, completion: &WorkCompletion) -> Result<(), PoolError> {
        match self {
            Self::Own(pool) => pool.put(mkey, completion),
            Self::OfStore(cache) => cache.put(mkey, completion),
        }
    }

    fn put_unused(&mut self, mkey: PooledMkey) -> Result<(), PoolError> {
        match self {
            Self::Own(pool) => pool.put_unused(mkey),
            Self::OfStore(cache) => cache.put_unused(mkey),
        }
    }

    /// Returns the handle of the mkey at a position, if it is in use.
    fn at(&mut self, position: usize) -> Option<PooledMkey> {
        self.pool().in_use().find(|mkey| mkey.position() == position)
    }
}

impl Pool {
    /// Returns the mkey with the name `mkey`, or an error if no mkey in use in this pool has this name.
    #[inline]
    pub(super) fn mkey(&mut self, mkey: TakenMkey) -> Result<&mut Mkey, Failure> {
        Ok(self.mkeys.pool().mkey_mut(mkey.pooled())?)
    }

    /// Returns and clears the signature error of an mkey in use, even if the error arrived at another
    /// completion queue of the device.
    pub(super) fn check(
        &mut self,
        mkey: TakenMkey,
    ) -> Result<Result<Option<SignatureError>, CheckError>, Failure> {
        let cq = self.cq;
        let mkey = self.mkey(mkey)?;
        Ok(match cq {
            // SAFETY: the completion queue cannot be destroyed while pools report to it. No other call uses
            // it now, because the calls of a group are made one after the other.
            Some(mut cq) => unsafe { cq.as_mut() }.reader.check(mkey),
            None => mkey.take_error(),
        })
    }

    /// Records a signature error in the mkey to which it belongs, and returns the position of the mkey in the
    /// pool.
    fn record(&mut self, fault: &SignatureFault) -> Option<usize> {
        self.mkeys.pool().mkeys().iter_mut().position(|mkey| mkey.record(fault))
    }

    /// Takes a free mkey, and clears a signature error of its earlier use.
    pub(super) fn take(&mut self) -> Option<TakenMkey> {
        let mkey = self.mkeys.take()?.into();
        // `check` removes a signature error of the earlier use, which must not count as an error of the new
        // use.
        let _ = self.check(mkey);
        Some(mkey)
    }

    /// Posts the request that takes the key of an mkey out of service.
    pub(super) fn invalidate(
        &mut self,
        mkey: TakenMkey,
        request: SendRequest<'_, '_>,
    ) -> Result<(), Failure> {
        Ok(self.mkeys.pool().invalidate(mkey.pooled(), request)?)
    }

    /// Puts an mkey back. `completion` has to prove that the key is out of service. With `None` the caller
    /// states that no peer can use the key.
    pub(super) fn put(
        &mut self,
        mkey: TakenMkey,
        completion: Option<&WorkCompletion>,
    ) -> Result<(), Failure> {
        match completion {
            Some(completion) => self.mkeys.put(mkey.pooled(), completion)?,
            None => self.mkeys.put_unused(mkey.pooled())?,
        }
        Ok(())
    }
}
