//! Requests of a queue pair that were sent and wait for their answers.

use crate::message::Request;
use crate::object::posted::{Posted, pushes};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use mlx5_mkey::wire::data::DataSegment;

/// The most requests of a queue pair that wait for their responses.
const MAX_REQUESTS: usize = 64;

/// The queue pair sends no further request while this number of bytes waits for responses.
const MAX_BYTES: u64 = 1 << 20;

/// A request that waits for its response.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) posted: Posted,
    /// Sequence number of the message.
    pub(crate) sequence: u32,
    /// The message, kept for a repetition until the response arrives.
    pub(crate) request: Request,
    /// The buffers for the data of the response.
    pub(crate) scatter: Vec<DataSegment>,
    /// Length of the message in bytes.
    pub(crate) bytes: u32,
    /// Whether a signature error was found while the data was gathered.
    pub(crate) signature_error: bool,
    /// Whether the peer had no receive request for the request. The next [`crate::Device::run`] then sends
    /// the request again.
    pub(crate) not_ready: bool,
    /// The number of repetitions that came after the waiting time that the peer has asked for. Repetitions
    /// before the end of this time do not count.
    pub(crate) attempts: u8,
    /// The number of calls of [`crate::Device::run`] until this waiting time is over.
    pub(crate) pause: u32,
    /// The number of attempts for which the gate (a function that tests set) answers in place of the peer
    /// that no receive request is posted.
    pub(crate) refusals: u32,
}

/// All outstanding requests, in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outstanding {
    requests: VecDeque<Waiting>,
    bytes: u64,
}

impl Outstanding {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn last(&self) -> Option<&Waiting> {
        self.requests.back()
    }

    pub(crate) fn oldest_mut(&mut self) -> Option<&mut Waiting> {
        self.requests.front_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.requests.iter()
    }

    pub(crate) fn push(&mut self, request: Waiting) {
        self.bytes = self.bytes.saturating_add(request.bytes.into());
        self.requests.push_back(request);
    }

    pub(crate) fn take_oldest(&mut self) -> Option<Waiting> {
        let oldest = self.requests.pop_front()?;
        self.bytes = self.bytes.saturating_sub(oldest.bytes.into());
        Some(oldest)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the peer had no receive request for the oldest request.
    pub(crate) fn is_not_ready(&self) -> bool {
        self.requests.front().is_some_and(|oldest| oldest.not_ready)
    }

    /// Returns whether a request that sends data to the peer may be sent before the outstanding requests are
    /// answered. It may be sent if the last outstanding request also sends data and has no signature error,
    /// if the peer had a receive request for the oldest request, and if number and bytes of all requests are
    /// below the limits.
    pub(crate) fn has_room(&self) -> bool {
        self.requests.len() < MAX_REQUESTS
            && self.bytes < MAX_BYTES
            && !self.is_not_ready()
            && self.last().is_none_or(|last| pushes(last.posted.opcode) && !last.signature_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use mlx5_mkey::wire::ctrl::Opcode;

    fn waiting(bytes: u32) -> Waiting {
        let data = Arc::new(Vec::new());
        let payload = crate::message::Payload::None;
        Waiting {
            posted: Posted { counter: 0, blocks: 1, opcode: Opcode::SEND, ce: 0 },
            sequence: 0,
            request: Request::Send { data, payload, solicited: false },
            scatter: Vec::new(),
            bytes,
            signature_error: false,
            not_ready: false,
            attempts: 0,
            pause: 0,
            refusals: 0,
        }
    }

    #[test]
    fn bytes_are_those_of_what_waits() {
        let mut outstanding = Outstanding::default();
        for bytes in [u32::MAX, 1 << 19, 1 << 19] {
            outstanding.push(waiting(bytes));
        }
        assert!(!outstanding.has_room());
        assert_eq!(outstanding.take_oldest().unwrap().bytes, u32::MAX);
        assert!(!outstanding.has_room(), "1 MiB");
        outstanding.take_oldest();
        assert!(outstanding.has_room());
        outstanding.push(waiting(1 << 19));
        assert!(!outstanding.has_room());
        outstanding.clear();
        assert!(outstanding.has_room() && outstanding.take_oldest().is_none());
        (0..64).for_each(|_| outstanding.push(waiting(0)));
        assert!(!outstanding.has_room(), "64 requests");
    }
}
