//! Calls that make and destroy completion queues and their channels.

use crate::command::call::Call;
use crate::command::numbers::{CORE_OUT, UHW_IN, UHW_OUT};
use crate::ground::abi::{CreateCq, DestroyCqResponse};
use crate::ground::errno::Errno;
use crate::ground::process_memory::{self, ProcessMemory};
use crate::state::NEVER_ARMED;
use crate::state::channel::Kind;
use crate::state::object::{Base, Cq, Object};
use mlx5_softdev::{CqAttributes, Memory};
use zerocopy::IntoBytes;

/// The most entries of a completion queue.
const MAX_ENTRIES: u64 = (1 << 22) - 1;

/// The only flag of the driver that CQ_CREATE accepts here (`MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX`). It has
/// no effect.
const UAR_PAGE_INDEX: u16 = 1 << 1;

/// The flag of a completion queue that ignores overruns (`IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN`; DEVICE.md,
/// "Completion queues that ignore overruns").
const IGNORE_OVERRUN: u64 = 1 << 1;

/// Carries out CREATE_COMP_CHANNEL: makes a completion channel.
pub(super) fn create_channel(call: &mut Call<'_>) -> Result<(), Errno> {
    let (_, descriptor) = call.open_channel(Kind::Verbs)?;
    call.request.answer(CORE_OUT, &descriptor.to_ne_bytes())
}

/// Carries out CQ_CREATE: makes a completion queue.
pub(super) fn create_cq(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: CreateCq = call.request.structure(UHW_IN)?;
    let wanted = call.request.number(1);
    if wanted == 0 || wanted > MAX_ENTRIES || call.request.number(4) != 0 {
        return Err(Errno::INVAL);
    }
    let flags = call.request.number(5);
    if flags & !IGNORE_OVERRUN != 0 || asked.compression != 0 || asked.flags & !UAR_PAGE_INDEX != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if !matches!(asked.cqe_size, 64 | 128) {
        return Err(Errno::INVAL);
    }
    let channel = match call.request.descriptor(3) {
        None => None,
        Some(descriptor) => match call.state.channel_of(descriptor) {
            Some((number, Kind::Verbs)) => Some(number),
            _ => return Err(Errno::BADF),
        },
    };
    let entries = (wanted as u32).wrapping_add(1).next_power_of_two();
    if !process_memory::mapped(asked.buffer, u64::from(entries) * u64::from(asked.cqe_size), true)
        || !process_memory::mapped(asked.doorbell_record, 8, true)
    {
        return Err(Errno::FAULT);
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
        user_handle: Some(call.request.number(2)),
        base: Base::default(),
        channel,
        ring: asked.buffer,
        entries,
        entry_bytes: asked.cqe_size,
        record: asked.doorbell_record,
        fired: None,
        completion_events: 0,
        async_events: 0,
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

/// Carries out CQ_DESTROY: destroys a completion queue, and answers with the numbers of its events that the
/// program has read.
pub(super) fn destroy_cq(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.request.handle(0)?;
    let cq = call.cq(handle)?.clone();
    call.destroy(handle, |_| true)?;
    let async_channel = call.context()?.async_channel;
    let state = &mut *call.state;
    let response = DestroyCqResponse {
        completion_events: state.read_events(cq.channel, cq.completion_events, cq.user_handle),
        async_events: state.read_events(async_channel, cq.async_events, cq.user_handle),
    };
    call.request.answer(1, response.as_bytes())
}
