//! Calls that make, modify, query and destroy shared receive queues.

use super::memory;
use crate::command::call::Call;
use crate::command::numbers::{CORE_IN, CORE_OUT, UHW_IN, UHW_OUT};
use crate::ground::abi::{CreateSrq, ModifySrq, QuerySrq, QuerySrqResponse};
use crate::ground::errno::Errno;
use crate::state::object::{Common, Object, Srq};
use mlx5_softdev::{SrqAttributes, Topology};
use zerocopy::IntoBytes;

/// The most receive requests of a shared receive queue (`max_srq_recv_wr`).
pub(super) const MAX_RECEIVES: u32 = 32767;
/// The most segments of a receive request.
pub(super) const MAX_SEGMENTS: u32 = 31;

/// The last of the kinds of shared receive queues (`IB_UVERBS_SRQT_TM`).
const TAG_MATCHING: u32 = 2;

/// The bit of `attr_mask` (`enum ib_srq_attr_mask`) for the limit: the device raises an event when fewer
/// receive requests than this number are left.
const LIMIT: u32 = 1 << 1;

/// The minimum bytes of a slot (the place of one receive request), and the bytes of an octoword. A slot has
/// one segment less than it has octowords.
const LEAST: u32 = 32;
const OCTOWORD: u32 = 16;

/// Carries out SRQ_CREATE: makes a shared receive queue.
pub(super) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    // Linux refuses unknown bytes of this structure with EINVAL. It refuses unknown bytes of other structures
    // with EOPNOTSUPP.
    let asked: CreateSrq = call.request.structure(UHW_IN).map_err(|errno| match errno {
        Errno::OPNOTSUPP => Errno::INVAL,
        errno => errno,
    })?;
    let [receives, segments, kind] = [5, 6, 9].map(|attribute| call.request.number(attribute) as u32);
    if kind > TAG_MATCHING || asked.reserved0 != 0 || asked.reserved1 != 0 {
        return Err(Errno::INVAL);
    }
    // This device lacks signatures of receive requests (a flag), XRC and tag matching (kinds).
    if kind != 0 || asked.flags != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if receives > MAX_RECEIVES || segments > MAX_SEGMENTS {
        return Err(Errno::INVAL);
    }
    let pd = call.pd(call.request.handle(1)?)?;
    let async_channel = call.async_channel(10)?;
    let slots = (receives + 1).next_power_of_two();
    let stride = ((segments + 1) * OCTOWORD).next_power_of_two().max(LEAST);
    let bytes = u64::from(slots) * u64::from(stride);
    memory::pinned_ring(asked.buffer, bytes)?;
    memory::pinned(asked.doorbell_record, 4, true)?;
    let number = call.state.device.create_srq(SrqAttributes {
        pd,
        topology: Topology::LinkedList,
        ring: asked.buffer,
        log_slots: slots.ilog2() as u8,
        stride: stride as u16,
        doorbell_record: asked.doorbell_record,
    })?;
    let (receives, segments) = (slots - 1, stride / OCTOWORD - 1);
    let common = Common::of_verbs(call.request.number(4), async_channel);
    let srq = Srq { number, common, receives, segments };
    call.publish(Object::Srq(srq), |request, handle| {
        request.answer(11, &receives.to_ne_bytes())?;
        request.answer(12, &segments.to_ne_bytes())?;
        request.answer(UHW_OUT, &number.to_ne_bytes())?;
        request.answer_object(0, handle.into())
    })
}

/// Carries out SRQ_DESTROY: destroys a shared receive queue, and answers with the number of its events that
/// the program has read.
pub(super) fn destroy(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.request.handle(0)?;
    let srq = call.srq(handle)?.clone();
    call.destroy(0, |_| true)?;
    let events = call.state.read_async_events(&srq.common);
    call.request.answer(1, &events.to_ne_bytes())
}

/// Carries out MODIFY_SRQ: sets the limit of a shared receive queue. The size cannot change.
pub(super) fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: ModifySrq = call.request.structure(CORE_IN)?;
    let number = call.srq(asked.handle)?.number;
    if asked.mask & !LIMIT != 0 {
        return Err(Errno::INVAL);
    }
    if asked.mask & LIMIT != 0 {
        call.state.device.arm_srq(number, asked.limit)?;
        call.state.touch();
    }
    Ok(())
}

/// Carries out QUERY_SRQ: answers with size and limit of a shared receive queue.
pub(super) fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: QuerySrq = call.request.structure(CORE_IN)?;
    let srq = call.srq(asked.handle)?.clone();
    let limit = call.state.device.query_srq(srq.number)?;
    let response = QuerySrqResponse { receives: srq.receives, segments: srq.segments, limit, reserved: 0 };
    call.request.answer(CORE_OUT, response.as_bytes())
}

impl Call<'_> {
    /// Returns the shared receive queue with this handle.
    pub(super) fn srq(&mut self, handle: u32) -> Result<&mut Srq, Errno> {
        let Object::Srq(srq) = self.object(handle)? else { return Err(Errno::INVAL) };
        Ok(srq)
    }
}
