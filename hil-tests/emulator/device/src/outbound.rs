//! Messages on their way to other devices.

use crate::message::{Message, Response};
use alloc::collections::VecDeque;

/// The largest number of bytes of waiting messages that get no answer. Without this limit, a sender could add
/// messages without end, since it waits for no answers.
const MAX_BYTES: u64 = 1 << 20;

/// The number of bytes of waiting answers from which on the device should get no further request. One answer
/// may be longer.
const MANY_ANSWERS: u64 = 1 << 22;

/// The number of bytes that a message counts in addition to its data.
const OVERHEAD: u64 = 64;

/// The messages, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    messages: VecDeque<Message>,
    /// Bytes of the waiting messages that get no answer.
    unanswered: u64,
    /// Bytes of the waiting answers.
    answers: u64,
}

impl Outbound {
    pub(crate) fn push(&mut self, message: Message) {
        let (unanswered, answer) = cost(&message);
        self.unanswered = self.unanswered.saturating_add(unanswered);
        self.answers = self.answers.saturating_add(answer);
        self.messages.push_back(message);
    }

    pub(crate) fn take(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        let (unanswered, answer) = cost(&message);
        self.unanswered = self.unanswered.saturating_sub(unanswered);
        self.answers = self.answers.saturating_sub(answer);
        Some(message)
    }

    /// Returns whether the limit for messages that get no answer is reached.
    pub(crate) const fn is_full(&self) -> bool {
        self.unanswered >= MAX_BYTES
    }

    /// Returns whether many bytes of answers wait.
    pub(crate) const fn has_many_answers(&self) -> bool {
        self.answers >= MANY_ANSWERS
    }
}

/// Returns what a message counts among the messages that get no answer, and among the answers.
fn cost(message: &Message) -> (u64, u64) {
    let of = |data: &[u8]| OVERHEAD.saturating_add(data.len() as u64);
    match message {
        Message::Unanswered { request, .. } => (of(request.data()), 0),
        Message::Response { response: Response::Data(data), .. } => (0, of(data)),
        _ => (0, 0),
    }
}
