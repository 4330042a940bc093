//! Events of objects, such as errors of queues. Events of completions are in the module `completion_channel`.

use super::cq::Cq;
use super::queue_pair::QpControl;
use super::{Device, DevxError, sys};
use crate::wire::codes::codes;
use crate::wire::prm::event::EventEntry;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::FromBytes;

codes! {
    /// The kind of an event (PRM event types). The type can also hold codes without a name, because a device
    /// may report other kinds.
    EventKind(u8), "event {:#04x}";

    /// An entry has arrived in a completion queue that was armed. [`CqReader::wait`](super::CqReader::wait)
    /// subscribes to this event by itself.
    COMPLETION = 0x00, "completion";
    /// A send queue has stopped before its next request (state SQD).
    SQ_DRAINED = 0x03, "send queue drained";
    /// A completion queue was full, or the device cannot write to the queue's memory. The device writes no
    /// more entries to the queue.
    CQ_ERROR = 0x04, "completion queue error";
    /// A queue pair is in the error state because of a fault in its own queues.
    QP_CATASTROPHIC = 0x05, "queue pair error";
    /// A queue pair is in the error state because of an invalid request of the peer.
    QP_INVALID_REQUEST = 0x10, "invalid request of the peer";
    /// A queue pair is in the error state because the peer sent a request without the right to it.
    QP_ACCESS = 0x11, "access violation by the peer";
}

impl EventKind {
    /// All kinds that report a queue pair in the error state.
    pub const QP_ERRORS: [Self; 3] = [Self::QP_CATASTROPHIC, Self::QP_INVALID_REQUEST, Self::QP_ACCESS];
}

/// An event of a queue pair or a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number that the program gave as `cookie` when it subscribed to the event.
    pub cookie: u64,
    /// The kind of the event.
    pub kind: EventKind,
}

/// A channel for events of objects. Several threads may wait on it at the same time; each event goes to one
/// of them.
///
/// ```
/// use mlx5_mkey::devx::{Device, DevxError, EventKind, QueuePair};
/// /// Waits until the queue pair has failed.
/// fn wait_for_failure(device: &Device, queue: &QueuePair) -> Result<(), DevxError> {
///     let events = device.events()?;
///     queue.control().notify(&events, &EventKind::QP_ERRORS, 7)?;
///     if let Some(event) = events.wait(None)? {
///         println!("queue pair {}: {}", event.cookie, event.kind);
///     }
///     Ok(())
/// }
/// ```
pub struct Events {
    channel: sys::EventChannel,
    waker: Arc<sys::Waker>,
}

/// A handle that ends all waits on an [`Events`] channel, from any thread.
#[derive(Clone)]
pub struct EventsCloser(Arc<sys::Waker>);

impl EventsCloser {
    /// Ends all current and future waits with [`DevxError::EventsClosed`]. Events that have already arrived
    /// are returned before the error.
    pub fn close(&self) {
        self.0.wake();
    }
}

impl Device {
    /// Makes a channel for events.
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn events(&self) -> Result<Events, DevxError> {
        Ok(Events {
            channel: sys::EventChannel::create(&self.context, sys::EventData::Carried)?,
            waker: Arc::new(sys::Waker::new()?),
        })
    }
}

impl Events {
    /// Returns the next event, or `None` after `timeout`. Waits without limit if no `timeout` is given.
    ///
    /// # Errors
    /// [`DevxError::EventsLost`], [`DevxError::EventsClosed`], [`DevxError::Call`],
    /// [`DevxError::ShortEvent`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Event>, DevxError> {
        let Some((cookie, data)) = self.channel.next(&self.waker, timeout)? else { return Ok(None) };
        let (entry, _) = EventEntry::ref_from_prefix(&data).map_err(|_| DevxError::ShortEvent)?;
        Ok(Some(Event { cookie, kind: EventKind(entry.event_type) }))
    }

    /// Returns the handle that ends all waits on this channel.
    pub fn closer(&self) -> EventsCloser {
        EventsCloser(self.waker.clone())
    }

    fn subscribe(
        &self,
        object: &sys::Object<impl Sized>,
        kinds: &[EventKind],
        cookie: u64,
    ) -> Result<(), DevxError> {
        let numbers: std::vec::Vec<u16> = kinds.iter().map(|kind| kind.0.into()).collect();
        self.channel.subscribe(object, &numbers, cookie)
    }
}

/// Returns the channel's file descriptor, to be polled beside others. The descriptor does not block.
impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl QpControl {
    /// Subscribes `events` to these kinds of events of the queue pair. Each event will carry `cookie`.
    ///
    /// # Errors
    /// [`DevxError::Call`]: EINVAL for a kind that the device does not report. [`DevxError::Adopt`] for a
    /// queue pair that was taken over.
    pub fn notify(&self, events: &Events, kinds: &[EventKind], cookie: u64) -> Result<(), DevxError> {
        events.subscribe(self.object(), kinds, cookie)
    }
}

impl Cq {
    /// Subscribes `events` to the failure of the queue ([`EventKind::CQ_ERROR`]). The event will carry
    /// `cookie`.
    ///
    /// # Errors
    /// [`DevxError::Call`]; [`DevxError::Adopt`] for a queue that was taken over.
    pub fn notify_error(&self, events: &Events, cookie: u64) -> Result<(), DevxError> {
        events.subscribe(self.object(), &[EventKind::CQ_ERROR], cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::EventKind;

    #[test]
    fn kinds_are_printed_by_name_or_as_numbers() {
        assert_eq!(
            std::format!("{:?} {:?}", EventKind::SQ_DRAINED, EventKind(0x77)),
            "SQ_DRAINED EventKind(0x77)"
        );
    }
}
