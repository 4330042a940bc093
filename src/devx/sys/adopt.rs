//! Asks libmlx5 for the rings, doorbell records and registers of queues that another library has created.

#![allow(unsafe_code)]

use super::super::abi::{Described, IbvCq, IbvQp, Mlx5dvCq, Mlx5dvObj, Mlx5dvQp, OBJ_CQ, OBJ_QP};
use super::context::Context;
use super::errno::check;
use crate::devx::error::{AdoptError, DevxError};
use crate::queue::{CqDoorbellRecord, DoorbellRecord};
use crate::wire::cqe::{Cqe, Cqe128};
use crate::wire::data::DataSegment;
use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES, Wqebb};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use zerocopy::FromBytes;

/// The parts of another library's queue pair that posting needs.
pub(in crate::devx) struct QpParts {
    pub(in crate::devx) qpn: u32,
    pub(in crate::devx) record: &'static DoorbellRecord,
    pub(in crate::devx) send: &'static mut [Wqebb],
    /// The receive ring, as data segments. Empty if the queue pair has no receive queue.
    pub(in crate::devx) receive: &'static mut [DataSegment],
    pub(in crate::devx) entries_per_slot: u32,
    pub(in crate::devx) register: NonNull<u64>,
}

/// The slots of a completion ring, with entries of 64 or of 128 bytes.
pub(in crate::devx) enum CqSlots {
    B64(&'static mut [Cqe]),
    B128(&'static mut [Cqe128]),
}

/// The parts of another library's completion queue that polling needs.
pub(in crate::devx) struct CqParts {
    pub(in crate::devx) cqn: u32,
    pub(in crate::devx) record: &'static CqDoorbellRecord,
    pub(in crate::devx) ring: CqSlots,
    /// The beginning of the queue's UAR page.
    pub(in crate::devx) uar_page: NonNull<u64>,
}

/// Returns an address as a pointer to `T`, or `None` if it is null or misaligned.
fn place<T>(address: *mut c_void) -> Option<NonNull<T>> {
    NonNull::new(address.cast::<T>()).filter(|place| place.is_aligned())
}

/// Returns a ring of `count` slots at `address`. Returns `None` if `count` is not 0 and the address is null
/// or misaligned.
///
/// # Safety
/// The caller ensures that `count` values of the type `T` are at the address, that every bit pattern is a
/// valid `T`, and that nobody else in this process uses them while the returned slice lives.
unsafe fn slots<T>(address: *mut c_void, count: usize) -> Option<&'static mut [T]> {
    if count == 0 {
        return Some(&mut []);
    }
    let first = place::<T>(address)?.as_ptr();
    // SAFETY: the address is neither null nor misaligned, as just checked. The caller ensures that `count`
    // valid values are there, which nobody else uses.
    Some(unsafe { core::slice::from_raw_parts_mut(first, count) })
}

/// Returns the doorbell record at `address`.
///
/// # Safety
/// As for [`slots`], with one record in place of the `count` values.
unsafe fn record<R: FromBytes>(address: *mut c_void) -> Result<&'static R, AdoptError> {
    let place = place::<R>(address).ok_or(AdoptError::Layout("the doorbell record"))?;
    // SAFETY: the address is neither null nor misaligned, as just checked. Every bit pattern is a valid
    // record. The caller ensures that a record is at the address.
    Ok(unsafe { place.as_ref() })
}

impl Context {
    /// Asks libmlx5 for the parts of a queue pair.
    ///
    /// # Safety
    /// The caller ensures that `qp` is a `struct ibv_qp` of libmlx5, and that while the parts are in use, the
    /// queue pair is not destroyed, and nobody else posts to it.
    pub(in crate::devx) unsafe fn describe_qp(&self, qp: NonNull<c_void>) -> Result<QpParts, DevxError> {
        let qp = qp.cast::<IbvQp>();
        // SAFETY: the caller ensures that `qp` is a `struct ibv_qp`.
        let (context, qpn) = unsafe { ((*qp.as_ptr()).context, (*qp.as_ptr()).qp_num) };
        self.expect(context)?;
        // With all bytes zero, the structure requests no optional field.
        let mut out = MaybeUninit::<Mlx5dvQp>::zeroed();
        let described = Described { object: qp.as_ptr(), out: out.as_mut_ptr() };
        let mut obj = Mlx5dvObj { qp: described, ..Mlx5dvObj::NONE };
        // SAFETY: with OBJ_QP the function accesses only the field `qp`. This field points to
        // a live queue pair and to memory for the queue pair's description.
        check("mlx5dv_init_obj", unsafe { (self.api.mlx5dv_init_obj)(&mut obj, OBJ_QP) })?;
        // SAFETY: zero is valid for all fields, and libmlx5 has filled in those that it knows.
        let Mlx5dvQp { dbrec, sq, rq, bf_reg, .. } = unsafe { out.assume_init() };
        if sq.stride as usize != WQEBB_BYTES {
            return Err(AdoptError::Layout("the stride of the send queue").into());
        }
        let entries_per_slot = rq.stride / OCTOWORD_BYTES as u32;
        let entries = rq.wqe_cnt as usize * entries_per_slot as usize;
        if rq.wqe_cnt > 0 && !rq.stride.is_multiple_of(OCTOWORD_BYTES as u32) {
            return Err(AdoptError::Layout("the stride of the receive queue").into());
        }
        // SAFETY: libmlx5 keeps the queue pair's rings and record at these addresses; the caller vouches that
        // nobody else uses them.
        unsafe {
            Ok(QpParts {
                qpn,
                record: record(dbrec)?,
                send: slots(sq.buf, sq.wqe_cnt as usize).ok_or(AdoptError::Layout("the send queue"))?,
                receive: slots(rq.buf, entries).ok_or(AdoptError::Layout("the receive queue"))?,
                entries_per_slot,
                register: place(bf_reg).ok_or(AdoptError::Layout("the doorbell register"))?,
            })
        }
    }

    /// Asks libmlx5 for the parts of a completion queue.
    ///
    /// # Safety
    /// The caller ensures that `cq` is a `struct ibv_cq` of libmlx5, and that while the parts are in use, the
    /// completion queue is not destroyed, and nobody else polls it.
    pub(in crate::devx) unsafe fn describe_cq(&self, cq: NonNull<c_void>) -> Result<CqParts, DevxError> {
        let cq = cq.cast::<IbvCq>();
        // SAFETY: the caller ensures that `cq` is a `struct ibv_cq`.
        self.expect(unsafe { (*cq.as_ptr()).context })?;
        let mut out = Mlx5dvCq::NONE;
        let described = Described { object: cq.as_ptr(), out: &mut out };
        let mut obj = Mlx5dvObj { cq: described, ..Mlx5dvObj::NONE };
        // SAFETY: with OBJ_CQ the function accesses only the field `cq`. It names a live completion queue and
        // memory for its description.
        check("mlx5dv_init_obj", unsafe { (self.api.mlx5dv_init_obj)(&mut obj, OBJ_CQ) })?;
        let Mlx5dvCq { buf, dbrec, cqe_cnt, cqe_size, cq_uar, cqn, .. } = out;
        let (count, nowhere) = (cqe_cnt as usize, AdoptError::Layout("the ring"));
        // SAFETY: libmlx5 keeps the completion queue's ring, record and page at these addresses; the caller
        // vouches that nobody else uses ring and record.
        unsafe {
            let ring = match cqe_size as usize {
                64 => slots(buf, count).map(CqSlots::B64),
                128 => slots(buf, count).map(CqSlots::B128),
                _ => return Err(AdoptError::EntryBytes(cqe_size).into()),
            };
            let ring = ring.ok_or(nowhere)?;
            let uar_page = place(cq_uar).ok_or(AdoptError::Layout("the UAR page"))?;
            Ok(CqParts { cqn, record: record(dbrec)?, ring, uar_page })
        }
    }
}
