//! Messages on their way to other devices.

use crate::message::{Message, Request};
use alloc::collections::VecDeque;

/// The largest number of bytes of waiting messages that get no answer. Without this limit, a sender could add
/// messages without end, since it waits for no answers.
const MAX_BYTES: u64 = 1 << 20;

/// The number of bytes that a message counts in addition to its data.
const OVERHEAD: u64 = 64;

/// The messages, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    messages: VecDeque<Message>,
    /// Bytes of the waiting messages that get no answer.
    unanswered: u64,
}

impl Outbound {
    pub(crate) fn push(&mut self, message: Message) {
        self.unanswered = self.unanswered.saturating_add(cost(&message));
        self.messages.push_back(message);
    }

    pub(crate) fn take(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.unanswered = self.unanswered.saturating_sub(cost(&message));
        Some(message)
    }

    /// Returns whether the limit for messages that get no answer is reached.
    pub(crate) const fn is_full(&self) -> bool {
        self.unanswered >= MAX_BYTES
    }
}

fn cost(message: &Message) -> u64 {
    match message {
        Message::Unanswered { request: Request::Send { data, .. } | Request::Write { data, .. }, .. } => {
            OVERHEAD.saturating_add(data.len() as u64)
        }
        _ => 0,
    }
}
