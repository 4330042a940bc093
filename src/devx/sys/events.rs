//! Channels for events of objects on the device: subscribing, and waiting for the next event.

#![allow(unsafe_code)]

use super::super::abi::{EVENT_CHANNEL_OMIT_DATA, EventChannelRaw};
use super::context::Context;
use super::errno::{check, last_error};
use super::object::Object;
use super::wait::{ENDED, NONE, Waker, wait};
use crate::devx::error::DevxError;
use core::ffi::c_int;
use core::ptr::NonNull;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec::Vec;

/// Whether the events of a channel carry data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::devx) enum EventData {
    /// Each event carries a cookie and the entry of the device's event queue. If the kernel has no memory for
    /// an entry, it drops the event and reports the loss.
    Carried,
    /// Each event carries only a cookie. The kernel merges events of one subscription that nobody has taken
    /// yet. So the kernel needs no memory for each event, and loses no event.
    Omitted,
}

/// A channel on which the kernel reports events of objects.
pub(in crate::devx) struct EventChannel {
    context: Arc<Context>,
    raw: NonNull<EventChannelRaw>,
}

// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    pub(in crate::devx) fn create(context: &Arc<Context>, data: EventData) -> Result<Self, DevxError> {
        let flags = match data {
            EventData::Carried => 0,
            EventData::Omitted => EVENT_CHANNEL_OMIT_DATA,
        };
        // SAFETY: the context is open.
        let raw = unsafe { (context.api.mlx5dv_devx_create_event_channel)(context.raw.as_ptr(), flags) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_create_event_channel"))?;
        let channel = Self { context: context.clone(), raw };
        // If an event wakes several threads, one of them gets it. With O_NONBLOCK the others do not block in
        // the kernel.
        // SAFETY: the descriptor is open as long as the channel lives; the call accesses no memory.
        let result = unsafe { libc::fcntl(channel.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        check("fcntl of an event channel", result)?;
        Ok(channel)
    }

    /// Subscribes to events of an object. Each event will carry `cookie`.
    pub(in crate::devx) fn subscribe(
        &self,
        object: &Object<impl Sized>,
        events: &[u16],
        cookie: u64,
    ) -> Result<(), DevxError> {
        let bytes = u16::try_from(size_of_val(events)).unwrap_or(u16::MAX);
        let object = object.made()?;
        // SAFETY: channel and object live; the numbers are read during the call.
        let result = unsafe {
            (self.context.api.mlx5dv_devx_subscribe_devx_event)(
                self.raw.as_ptr(),
                object.as_ptr(),
                bytes,
                events.as_ptr(),
                cookie,
            )
        };
        check("mlx5dv_devx_subscribe_devx_event", result)
    }

    /// Returns the next event's cookie and data, or `None` after `timeout`. A use of `waker` ends the wait
    /// with [`DevxError::EventsClosed`].
    pub(in crate::devx) fn next(
        &self,
        waker: &Waker,
        timeout: Option<Duration>,
    ) -> Result<Option<(u64, Vec<u8>)>, DevxError> {
        // If `Instant` cannot represent the end of the timeout, the wait has no limit.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            match self.ready(Some(waker), end) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // Events that arrived before the channel was closed can still be taken.
                Err(DevxError::EventsClosed) => {
                    return self.take().and_then(|event| event.ok_or(DevxError::EventsClosed)).map(Some);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until there is an event and returns true, or false when the time is over. The error
    /// [`DevxError::EventsClosed`] has one of these reasons: `waker` was used, the device is gone, or the
    /// context was adopted and its owner has closed it.
    pub(in crate::devx) fn ready(
        &self,
        waker: Option<&Waker>,
        end: Option<Instant>,
    ) -> Result<bool, DevxError> {
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let [event, woken] = wait([self.fd(), waker.map_or(NONE, Waker::fd)], left)?;
            if event & ENDED != 0 {
                return Err(DevxError::EventsClosed);
            }
            if event & libc::POLLIN != 0 {
                return Ok(true);
            }
            if woken != 0 {
                return Err(DevxError::EventsClosed);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
        }
    }

    /// Takes an event that has arrived, or returns `None` if there is none.
    pub(in crate::devx) fn take(&self) -> Result<Option<(u64, Vec<u8>)>, DevxError> {
        // An event consists of a cookie of 8 bytes and the event queue entry.
        let mut event = [0_u8; 8 + 64];
        // SAFETY: the channel lives; the buffer is valid for its length.
        let length = unsafe {
            (self.context.api.mlx5dv_devx_get_event)(
                self.raw.as_ptr(),
                event.as_mut_ptr().cast(),
                event.len(),
            )
        };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                Some(libc::EOVERFLOW) => Err(DevxError::EventsLost),
                _ => Err(DevxError::call("mlx5dv_devx_get_event", error)),
            };
        };
        let (cookie, data) =
            event.get(..length).and_then(<[u8]>::split_first_chunk).ok_or(DevxError::ShortEvent)?;
        Ok(Some((u64::from_ne_bytes(*cookie), data.to_vec())))
    }

    fn fd(&self) -> c_int {
        // SAFETY: the structure lives until the channel is destroyed.
        unsafe { self.raw.as_ref().fd }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: `create` created the channel, and nobody uses it any more.
        unsafe { (self.context.api.mlx5dv_devx_destroy_event_channel)(self.raw.as_ptr()) };
    }
}
