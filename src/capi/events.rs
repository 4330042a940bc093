//! Asynchronous events of queue pairs and completion queues, such as a change to the error state.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::{Device, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::group::{Cq, Qp};
use super::values::array;
use crate::devx::{self, EventKind};
use core::mem::MaybeUninit;
use std::boxed::Box;
use std::os::fd::AsRawFd;
use std::time::Duration;
use std::vec::Vec;

/// Kind of event: a send queue has stopped before its next request (state MLX5MK_QP_SQ_DRAINED).
pub const MLX5MK_EVENT_SQ_DRAINED: u32 = 3;
/// Kind of event: a completion queue was full, or the device cannot write to the queue's memory. The device
/// writes no more entries to the queue.
pub const MLX5MK_EVENT_CQ_ERROR: u32 = 4;
/// Kind of event: a queue pair is in the error state because of a fault in its own queues.
pub const MLX5MK_EVENT_QP_CATASTROPHIC: u32 = 5;
/// Kind of event: a queue pair is in the error state because of an invalid request of the peer.
pub const MLX5MK_EVENT_QP_INVALID_REQUEST: u32 = 16;
/// Kind of event: a queue pair is in the error state because the peer sent a request without the right to it.
pub const MLX5MK_EVENT_QP_ACCESS: u32 = 17;

/// A channel for events. Several threads may wait on it at the same time; each event goes to one of them.
pub struct Events(devx::Events);

/// An event of a queue pair or a completion queue.
#[repr(C)]
pub struct Event {
    /// The number that the program gave as `cookie` when it subscribed to the event.
    pub cookie: u64,
    /// The kind of event: MLX5MK_EVENT_QP_ACCESS or another (PRM event types).
    pub kind: u32,
}

/// Creates a channel for events.
///
/// Errors: MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_events_create(
    device: Option<&Device>,
    events: Option<&mut MaybeUninit<*mut Events>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), events) = (given(device, "device")?, given(events, "events")?);
        hand_out(events, Events(device.events()?))
    })
}

/// Subscribes a channel to events of a queue pair, to the `count` kinds at `kinds`. If `count` is 0,
/// subscribes to all kinds that report the error state. Each event carries `cookie`.
///
/// Errors: MLX5MK_ARGUMENT; MLX5MK_SYSTEM with EINVAL for a kind that the device does not report;
/// MLX5MK_ADOPT for a queue pair that was adopted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_notify(
    qp: Option<&Qp>,
    events: Option<&Events>,
    kinds: *const u32,
    count: u32,
    cookie: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, Events(events)) = (given(qp, "qp")?, given(events, "events")?);
        // SAFETY: the caller ensures that `kinds` leads to `count` values.
        let kinds = unsafe { array(kinds, count as usize, "kinds")? };
        let kind = |kind: &u32| {
            u8::try_from(*kind)
                .map(EventKind)
                .map_err(|_| Failure::Value { what: "kind of event", value: (*kind).into() })
        };
        let kinds = kinds.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
        let kinds = if kinds.is_empty() { &EventKind::QP_ERRORS[..] } else { &kinds };
        qp.queues.control().notify(events, kinds, cookie)?;
        Ok(0)
    })
}

/// Subscribes a channel to the failure of a completion queue (MLX5MK_EVENT_CQ_ERROR).
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM, MLX5MK_ADOPT for a queue that was adopted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_cq_notify_error(
    cq: Option<&Cq>,
    events: Option<&Events>,
    cookie: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (cq, Events(events)) = (given(cq, "cq")?, given(events, "events")?);
        cq.cq.notify_error(events, cookie)?;
        Ok(0)
    })
}

/// Takes the next event and returns 1. Waits up to `milliseconds`, or without limit if `milliseconds` is
/// negative. Returns 0 when the time is over.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_events_wait(
    events: Option<&Events>,
    event: Option<&mut MaybeUninit<Event>>,
    milliseconds: i32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Events(events), place) = (given(events, "events")?, given(event, "event")?);
        let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        let Some(event) = events.wait(limit)? else { return Ok(0) };
        place.write(Event { cookie: event.cookie, kind: event.kind.0.into() });
        Ok(1)
    })
}

/// Returns a file descriptor for poll or epoll, which is readable while there are events. The descriptor
/// belongs to the channel: do not read from it or close it.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_events_fd(
    events: Option<&Events>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || Ok(given(events, "events")?.0.as_raw_fd()))
}

/// Destroys the channel. The caller ensures that no thread waits on it any more. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_events_destroy(events: Option<Box<Events>>) {
    drop(events);
}
