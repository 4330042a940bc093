//! Events of a completion queue: the device is asked for one by the arm word, and raises one for each of its
//! sequence numbers.

use super::barrier;
use super::completion::Completion;
use super::completion_queue::{CONSUMER_MASK, CompletionQueue};
use super::doorbell::CqDoorbell;
use super::router::CompletionRouter;
use crate::error::CompletionError;
use crate::wire::cqe::CqeSlot;

/// Bits of the arm word (PRM "CQ doorbell record"): its sequence number, and that only solicited entries
/// count.
const ARM_SEQUENCE_SHIFT: u32 = 28;
const ARM_SEQUENCE_MASK: u8 = 3;
const ARM_SOLICITED: u32 = 1 << 24;

/// Which entries of a completion queue raise the event that it is armed for.
///
/// ```
/// use mlx5_mkey::queue::{ArmFor, CompletionQueue, CqDoorbell};
/// /// Asks for an event of a message that the peer wants noticed. Others wait until it comes.
/// fn arm_for_messages(completions: &mut CompletionQueue<'_>, doorbell: &mut impl CqDoorbell) {
///     completions.arm(doorbell, ArmFor::Solicited);
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ArmFor {
    /// All.
    #[default]
    Any,
    /// Messages that were sent with [`solicited`](super::SendRequest::solicited), and failures.
    Solicited,
}

impl<E: CqeSlot> CompletionQueue<'_, E> {
    /// Continues after another reader, from the two words of the doorbell record: the consumer index, 24
    /// bits, which also gives the lap that the queue is in, and the arm word. The events that the other has
    /// asked for have come.
    // Assumption: a queue that was never armed may begin with any sequence number.
    #[must_use]
    pub const fn starting_at(mut self, [consumer, arm]: [u32; 2]) -> Self {
        self.consumer = (consumer & CONSUMER_MASK) as u64;
        self.events = (arm >> ARM_SEQUENCE_SHIFT) as u8 & ARM_SEQUENCE_MASK;
        self.event_received();
        self
    }

    /// Asks the device for an event (PRM "CQ doorbell"): when it writes an entry that counts, or at once if
    /// entries that count are there which were not taken yet. Gives the slots of entries taken back.
    ///
    /// It has no effect where the event that was asked for before has been raised: first comes
    /// [`CompletionQueue::event_received`].
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

    /// Notes that an event of this queue was received, so that the next [`CompletionQueue::arm`] asks for
    /// another.
    ///
    /// To be called once for each event, neither more nor less: the device ignores an arm word with the
    /// sequence number of its last event.
    pub const fn event_received(&mut self) {
        self.events = self.events.wrapping_add(1);
    }

    /// Returns the next completion as [`CompletionQueue::poll`] does; if there is none, arms the queue for
    /// any entry. `None`: there was none after that either, and the next one raises an event.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
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
        // An entry that has come meanwhile raises the event, too; this is the shorter way to it.
        self.poll(router)
    }
}
