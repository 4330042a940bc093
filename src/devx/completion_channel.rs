//! Completions by event: each completion queue has a file descriptor by which a thread waits for the next
//! completion.
//!
//! A thread that serves several queues polls their descriptors, by `epoll` or through an asynchronous
//! runtime. The library starts no thread for this.

use super::cq::CqReader;
use super::{AdoptError, DevxError, EventKind, sys};
use crate::queue::{ArmFor, Completion, CompletionRouter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A channel through which the kernel reports that a completion queue has entries: a file descriptor that
/// does not block.
///
/// [`CqReader::poll_or_arm`] arms the queue; after that the descriptor becomes readable when the queue has
/// entries. The same function takes the event, so programs do not read from the descriptor. With tokio
/// (`hil-tests/examples/async_completions.rs` is a whole program):
///
/// ```ignore
/// // SAFETY: a channel keeps its descriptor open as long as it lives, and it is always the same.
/// let readable = unsafe { AsyncFd::register_with_interest(completions.channel()?, Interest::READABLE)? };
/// let completion = loop {
///     if let Some(completion) = completions.poll_or_arm(&mut router)? {
///         break completion;
///     }
///     readable.readable().await?.clear_ready();
/// };
/// ```
#[derive(Clone)]
pub struct CompletionChannel(Arc<sys::EventChannel>);

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Functions that wait for completions by event.
impl CqReader {
    /// Returns the queue's channel. The first call creates the channel.
    ///
    /// # Errors
    /// [`DevxError::Call`]; [`DevxError::Adopt`] for a queue that was taken over from another library: its
    /// events go to the channel with which that library created the queue. See [`CqReader::arm`].
    pub fn channel(&mut self) -> Result<CompletionChannel, DevxError> {
        if let Some(channel) = &self.channel {
            return Ok(CompletionChannel(channel.clone()));
        }
        let object = self.cq().object();
        let channel = sys::EventChannel::create(object.context(), sys::EventData::Omitted)?;
        channel.subscribe(object, &[EventKind::COMPLETION.0.into()], 0)?;
        Ok(CompletionChannel(self.channel.insert(Arc::new(channel)).clone()))
    }

    /// Returns the next completion as [`CqReader::poll`] does. If there is none, the function arms the queue
    /// and polls once more, because a completion may have arrived before the queue was armed. It returns
    /// `None` if there is still none: the queue's channel becomes readable with the next completion.
    ///
    /// # Errors
    /// [`DevxError::Completion`], [`DevxError::Call`]; [`DevxError::Adopt`] for a queue that was taken over:
    /// use [`CqReader::arm`] for such a queue.
    pub fn poll_or_arm(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Result<Option<Completion>, DevxError> {
        if let Some(completion) = self.poll(router) {
            return Ok(Some(completion?));
        }
        let CompletionChannel(channel) = self.channel()?;
        // The device sends one event each time the queue is armed, so the channel never holds more than one.
        if channel.take()?.is_some() {
            self.queue.event_received();
        }
        self.queue.arm(&mut self.doorbell, ArmFor::Any);
        Ok(self.poll(router).transpose()?)
    }

    /// Arms a queue that was taken over from another library ([`super::Device::adopt_cq`]), so that the
    /// device sends an event with the next completion. The event arrives at the channel with which that
    /// library created the queue (`struct ibv_comp_channel`). After arming, poll once more before you wait.
    /// For queues that this library created, use [`CqReader::poll_or_arm`].
    ///
    /// ```no_run
    /// use mlx5_mkey::devx::{CqReader, DevxError};
    /// use mlx5_mkey::queue::{ArmFor, Completion, CompletionRouter};
    ///
    /// /// Sleeps until there is a completion. `take_event` calls `ibv_get_cq_event`, then
    /// /// `ibv_ack_cq_events`.
    /// fn wait(
    ///     completions: &mut CqReader,
    ///     router: &mut impl CompletionRouter,
    ///     mut take_event: impl FnMut(),
    /// ) -> Result<Completion, DevxError> {
    ///     loop {
    ///         if let Some(completion) = completions.poll(router) {
    ///             return Ok(completion?);
    ///         }
    ///         completions.arm(ArmFor::Any)?;
    ///         if let Some(completion) = completions.poll(router) {
    ///             return Ok(completion?);
    ///         }
    ///         take_event();
    ///         completions.event_received()?;
    ///     }
    /// }
    /// ```
    ///
    /// If the poll after arming finds a completion, the event of this completion still arrives. Take the
    /// event too, or the next wait ends once without a completion.
    ///
    /// # Errors
    /// [`DevxError::Adopt`] for a queue that this library created.
    pub fn arm(&mut self, entries: ArmFor) -> Result<(), DevxError> {
        self.of_other()?;
        self.queue.arm(&mut self.doorbell, entries);
        Ok(())
    }

    /// Records that the program has taken one event from the channel of a queue that was taken over. Call
    /// this function once for each event. Without this call, the device ignores the next [`CqReader::arm`].
    ///
    /// # Errors
    /// [`DevxError::Adopt`] for a queue that this library created.
    pub fn event_received(&mut self) -> Result<(), DevxError> {
        self.of_other()?;
        self.queue.event_received();
        Ok(())
    }

    fn of_other(&self) -> Result<(), DevxError> {
        if self.cq().is_of_other() { Ok(()) } else { Err(AdoptError::MadeHere.into()) }
    }

    /// Returns the next completion. If there is none, sleeps until one arrives, and returns `None` after
    /// `timeout`. Without a `timeout`, sleeps without limit. While there are completions, the call is as
    /// quick as [`CqReader::poll`].
    ///
    /// ```no_run
    /// # use mlx5_mkey::devx::{CqReader, DevxError, Mkeys, QueuePair};
    /// # use mlx5_mkey::queue::QpRouter;
    /// # use std::time::Duration;
    /// # fn serve(completions: &mut CqReader, queue: &mut QueuePair, mkeys: &mut Mkeys)
    /// #     -> Result<(), DevxError> {
    /// let mut router = QpRouter { queues: queue, mkeys };
    /// match completions.wait(&mut router, Some(Duration::from_secs(1)))? {
    ///     Some(completion) => println!("{completion:?}"),
    ///     None => println!("nothing for a second"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DevxError::Completion`], [`DevxError::Call`], [`DevxError::EventsClosed`] when the device is gone;
    /// [`DevxError::Adopt`] for a queue that was taken over.
    pub fn wait(
        &mut self,
        router: &mut impl CompletionRouter,
        timeout: Option<Duration>,
    ) -> Result<Option<Completion>, DevxError> {
        if let Some(completion) = self.poll(router) {
            return Ok(Some(completion?));
        }
        // If `Instant` cannot represent the end of the timeout, the wait has no limit.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(completion) = self.poll_or_arm(router)? {
                return Ok(Some(completion));
            }
            let CompletionChannel(channel) = self.channel()?;
            if !channel.ready(None, end)? {
                return Ok(self.poll(router).transpose()?);
            }
        }
    }
}
