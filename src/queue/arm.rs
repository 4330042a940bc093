//! Events of a completion queue. The arm word of the doorbell record asks the device for an event. The device
//! raises at most one event for each sequence number of the arm word.

use super::barrier;
use super::completion::Completion;
use super::completion_queue::{CONSUMER_MASK, CompletionQueue};
use super::doorbell::CqDoorbell;
use super::router::CompletionRouter;
use crate::queue::error::CompletionError;
use crate::wire::cqe::CqeSlot;

/// Fields of the arm word (PRM "CQ doorbell record"): its sequence number, and the flag by which only
/// solicited entries raise the event.
const ARM_SEQUENCE_SHIFT: u32 = 28;
const ARM_SEQUENCE_MASK: u8 = 3;
const ARM_SOLICITED: u32 = 1 << 24;

/// The entries of a completion queue that raise the requested event.
///
/// ```
/// use mlx5_mkey::queue::{ArmFor, CompletionQueue, CqDoorbell};
/// /// Asks for an event when a solicited message arrives. Other messages raise no event.
/// fn arm_for_messages(completions: &mut CompletionQueue<'_>, doorbell: &mut impl CqDoorbell) {
///     completions.arm(doorbell, ArmFor::Solicited);
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ArmFor {
    /// All entries.
    #[default]
    Any,
    /// Entries of messages that were sent with [`solicited`](super::SendRequest::solicited), and failures.
    Solicited,
}

impl<E: CqeSlot> CompletionQueue<'_, E> {
    /// Continues where another reader of this queue has stopped. The argument is the two words of the
    /// doorbell record: the consumer index (24 bits), which also determines the queue's lap, and the arm
    /// word. The caller ensures that the device has already raised all events that the other reader has asked
    /// for, because the next arm word has the next sequence number.
    // Assumption: a queue that was never armed may begin with any sequence number.
    #[must_use]
    pub const fn starting_at(mut self, [consumer, arm]: [u32; 2]) -> Self {
        self.consumer = (consumer & CONSUMER_MASK) as u64;
        self.events = (arm >> ARM_SEQUENCE_SHIFT) as u8 & ARM_SEQUENCE_MASK;
        self.event_received();
        self
    }

    /// Asks the device for an event (PRM "CQ doorbell"). `entries` selects the entries that raise the event:
    /// the device raises the event when it writes a selected entry, or at once if a selected entry was not
    /// taken yet. The call also gives the slots of taken entries back to the device.
    ///
    /// If the previous event has been raised, call [`CompletionQueue::event_received`] first. Otherwise the
    /// device ignores the new arm word.
    #[inline(never)]
    pub fn arm(&mut self, doorbell: &mut impl CqDoorbell, entries: ArmFor) {
        self.release();
        let solicited = match entries {
            ArmFor::Any => 0,
            ArmFor::Solicited => ARM_SOLICITED,
        };
        let sequence = u32::from(self.events & ARM_SEQUENCE_MASK) << ARM_SEQUENCE_SHIFT;
        let word = sequence | solicited | self.consumer as u32 & CONSUMER_MASK;
        self.record.set_arm(word);
        barrier::record_before_doorbell();
        doorbell.ring(word.to_be_bytes());
        barrier::flush_doorbell();
    }

    /// Notes that an event of this queue was received. The next [`CompletionQueue::arm`] then asks for
    /// another event.
    ///
    /// Call this exactly once for each event: the device ignores an arm word with the sequence number of its
    /// last event.
    pub const fn event_received(&mut self) {
        self.events = self.events.wrapping_add(1);
    }

    /// Returns the next completion, as [`CompletionQueue::poll`] does. If there is none, arms the queue for
    /// any entry and polls again. `None` means that the next entry will raise an event.
    ///
    /// # Errors
    /// The errors of [`CompletionQueue::poll`].
    #[inline]
    pub fn poll_or_arm(
        &mut self,
        router: &mut impl CompletionRouter,
        doorbell: &mut impl CqDoorbell,
    ) -> Option<Result<Completion, CompletionError>> {
        if let Some(completion) = self.poll(router) {
            return Some(completion);
        }
        self.arm(doorbell, ArmFor::Any);
        // The device may have written an entry before the arm word arrived. That entry raises the event, but
        // the second poll returns the entry sooner.
        self.poll(router)
    }
}
