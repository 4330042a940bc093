//! Calls that make and destroy completion queues and their channels.

use super::memory;
use crate::command::call::Call;
use crate::command::numbers::{CORE_IN, CORE_OUT, UHW_IN, UHW_OUT};
use crate::ground::abi::{CreateCq, DestroyCqResponse};
use crate::ground::errno::Errno;
use crate::ground::process_memory::ProcessMemory;
use crate::state::NEVER_ARMED;
use crate::state::channel::Kind;
use crate::state::object::{Common, Cq, Object};
use mlx5_softdev::{CqAttributes, Memory};
use zerocopy::IntoBytes;

/// The most entries of a completion queue.
const MAX_ENTRIES: u64 = (1 << 22) - 1;

/// Flags of the driver (`enum mlx5_ib_create_cq_flags`). They say that entries are padded to 128 bytes, that
/// the call names a doorbell page, and that time stamps are in real time.
const PADDED: u16 = 1;
const UAR_PAGE_INDEX: u16 = 1 << 1;
const REAL_TIME: u16 = 1 << 2;

/// The flags of completion queues (`enum ib_uverbs_ex_create_cq_flags`). The first flag asks for time stamps,
/// which this device always writes. The second flag lets the queue ignore overruns (DEVICE.md, "Completion
/// queues that ignore overruns").
const TIME_STAMPS: u64 = 1;
const IGNORE_OVERRUN: u64 = 1 << 1;

/// Carries out CREATE_COMP_CHANNEL: makes a completion channel.
pub(super) fn create_channel(call: &mut Call<'_>) -> Result<(), Errno> {
    call.request.structure::<u64>(CORE_IN)?;
    let (_, descriptor) = call.open_channel(Kind::Completions)?;
    call.request.answer(CORE_OUT, &descriptor.to_ne_bytes())
}

/// Carries out CQ_CREATE: makes a completion queue.
pub(super) fn create_cq(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: CreateCq = call.request.structure(UHW_IN)?;
    let (wanted, flags) = (call.request.number(1), call.request.number(5));
    let vector = call.request.number(4);
    if wanted == 0 || wanted > MAX_ENTRIES || vector != 0 || flags & !(TIME_STAMPS | IGNORE_OVERRUN) != 0 {
        return Err(Errno::INVAL);
    }
    let channel = call.channel(3, |kind| kind == Kind::Completions)?;
    let async_channel = call.async_channel(7)?;
    let is_unknown = asked.flags & !(PADDED | UAR_PAGE_INDEX | REAL_TIME) != 0;
    if is_unknown || !matches!(asked.cqe_size, 64 | 128) || asked.reserved0 != 0 || asked.reserved1 != 0 {
        return Err(Errno::INVAL);
    }
    let entries = (wanted as u32).wrapping_add(1).next_power_of_two();
    memory::pinned_ring(asked.buffer, u64::from(entries) * u64::from(asked.cqe_size))?;
    memory::pinned(asked.doorbell_record, 8, true)?;
    if asked.flags & UAR_PAGE_INDEX == 0 && call.context()?.static_pages.is_none() {
        return Err(Errno::INVAL);
    }
    // This device lacks compressed and padded entries. One kind of time stamps serves all queues, so the flag
    // `REAL_TIME` is refused.
    if asked.compression == 1 || asked.flags & (PADDED | REAL_TIME) != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    never_armed(asked.doorbell_record).ok_or(Errno::FAULT)?;
    let number = call.state.device.create_cq(CqAttributes {
        ring: asked.buffer,
        log_entries: entries.ilog2() as u8,
        entry_bytes: asked.cqe_size as u8,
        doorbell_record: asked.doorbell_record,
        ignore_overrun: flags & IGNORE_OVERRUN != 0,
    })?;
    let cq = Cq {
        number,
        common: Common::of_verbs(call.request.number(2), async_channel),
        channel,
        ring: asked.buffer,
        entries,
        entry_bytes: asked.cqe_size,
        record: asked.doorbell_record,
        ..Cq::default()
    };
    call.publish(Object::Cq(cq), |request, handle| {
        request.answer(6, &(wanted as u32).to_ne_bytes())?;
        request.answer(UHW_OUT, &number.to_ne_bytes())?;
        request.answer_object(0, handle.into())
    })
}

/// Marks a completion queue's doorbell record as never armed. Without the mark, a record of zeros would look
/// like the first arm word of programs, which is 0. A real device needs no mark, because it sees the doorbell
/// register too.
pub(super) fn never_armed(record: u64) -> Option<()> {
    ProcessMemory.write(record.wrapping_add(4), &NEVER_ARMED).ok()
}

/// Carries out CQ_DESTROY: destroys a completion queue. Answers with the number of completion events and the
/// number of asynchronous events that the program has read.
pub(super) fn destroy_cq(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.request.handle(0)?;
    let cq = call.cq(handle)?.clone();
    call.destroy(0, |_| true)?;
    let state = &mut *call.state;
    let response = DestroyCqResponse {
        completion_events: state.read_events(cq.channel, cq.completion_events, cq.common.user_handle),
        async_events: state.read_async_events(&cq.common),
    };
    call.request.answer(1, response.as_bytes())
}
