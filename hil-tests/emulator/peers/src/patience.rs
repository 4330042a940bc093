//! Messages of peers that wait before the device gets them. A real requester would repeat its request during
//! this time.

use mlx5_softdev::{Device, Memory, Message, QpState, Response};
use std::time::{Duration, Instant};

/// How long a request of a peer waits for its queue pair to become ready. A real requester would repeat the
/// request for about as long.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a requester tries to reach a queue pair that no longer exists: eight attempts of 67 ms each, from
/// the retry count and the timeout that most programs choose (ibv_rc_pingpong, perftest). A peer that has all
/// its data may end before the requester. During this time, the requester's program can still take its
/// completions and end without an error.
const RETRYING: Duration = Duration::from_millis(8 * 67);

/// If the waiting messages have this many bytes, no further message waits: a further request is answered as
/// unreachable, and a further response is delivered at once. Honest requesters stay far below this limit:
/// each of their queue pairs sends about 1 MiB before it waits for an answer.
const MOST_HELD: usize = 1 << 26;

/// The number of bytes that a message counts in addition to its data. Each call of [`Waiting::deliver`] looks
/// at all messages, so this number also limits their count.
const OVERHEAD: usize = 1 << 10;

/// The messages of peers that wait before the device gets them, each with the time of its arrival.
#[derive(Debug, Default)]
pub struct Waiting {
    messages: Vec<(Instant, Message)>,
    /// Answers to the requests for which there was no room: the queue pair is unreachable.
    refused: Vec<Message>,
}

impl Extend<Message> for Waiting {
    fn extend<T: IntoIterator<Item = Message>>(&mut self, messages: T) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl Waiting {
    /// Adds a message that arrives now.
    pub fn push(&mut self, message: Message) {
        self.messages.push((Instant::now(), message));
    }

    /// Returns whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Drops the messages for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&Message) -> bool) {
        self.messages.retain(|(_, message)| keep(message));
    }

    /// Delivers the messages that have waited long enough. A request also waits until the device has room for
    /// an answer, and until its requester takes answers: `takes_answers` gets the number of the requester's
    /// queue pair. Each call hands every waiting message to `alter`, which returns the message that takes its
    /// place, or `None` to drop the message. Returns whether the device got a message.
    pub fn deliver<M: Memory>(
        &mut self,
        device: &mut Device<M>,
        takes_answers: impl Fn(u32) -> bool,
        mut alter: impl FnMut(Message) -> Option<Message>,
    ) -> bool {
        let (mut any, mut held) = (false, 0_usize);
        let mut messages = std::mem::take(&mut self.messages);
        for (since, message) in messages.drain(..) {
            let Some(message) = alter(message) else { continue };
            let patience = patience(device, &message);
            let is_early = !patience.is_zero() && since.elapsed() < patience;
            match message {
                Message::Request { from, sequence, ref request, .. }
                    if is_early || device.has_many_answers() || !takes_answers(from) =>
                {
                    if held < MOST_HELD {
                        held = held.saturating_add(OVERHEAD).saturating_add(request.data().len());
                        self.messages.push((since, message));
                    } else {
                        let response = Response::Unreachable;
                        self.refused.push(Message::Response { to: from, sequence, response });
                    }
                }
                // An answer that has not waited long enough stays if there is room for it. Otherwise the next
                // arm delivers it now.
                Message::Response { .. } if is_early && held < MOST_HELD => {
                    held = held.saturating_add(OVERHEAD);
                    self.messages.push((since, message));
                }
                _ => {
                    any = true;
                    device.deliver(message);
                }
            }
        }
        if self.messages.is_empty() {
            // The next messages need no new memory.
            self.messages = messages;
        }
        any
    }

    /// Returns the answers to requests that the last calls of [`Waiting::deliver`] had no room for.
    pub fn take_refused(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.refused)
    }
}

/// Returns how long a message waits before it is delivered. A request waits while its queue pair is not
/// ready to receive. The response that a queue pair is unreachable waits as long as a requester retries.
fn patience<M: Memory>(device: &Device<M>, message: &Message) -> Duration {
    match message {
        Message::Request { to, .. } => match device.query(*to).map(|view| view.state) {
            Ok(QpState::Reset | QpState::Init) => TIMEOUT,
            _ => Duration::ZERO,
        },
        Message::Response { response: Response::Unreachable, .. } => RETRYING,
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_softdev::{Access, Request};
    use mlx5_testing::host::{A, B, Host};

    /// Takes all messages that the device sends, and returns their number.
    fn sent(host: &mut Host) -> usize {
        std::iter::from_fn(|| host.device.take_message()).count()
    }

    #[test]
    fn requests_wait_until_their_answers_are_taken() {
        const LENGTH: u32 = 1 << 20;
        const COUNT: u32 = 50;
        let mut host = Host::new();
        let (address, key) = host.region(LENGTH as usize, Access::ALL);
        let to = host.q[B].qpn;
        let request = Request::Read { rkey: key.get(), address, length: LENGTH };
        let mut waiting = Waiting::default();
        waiting.extend((0..COUNT).map(|sequence| Message::Request {
            from: 0x7_0040,
            to,
            sequence,
            request: request.clone(),
        }));
        assert!(!waiting.deliver(&mut host.device, |_| false, Some), "the requester takes no answers");
        let mut answers = 0;
        while waiting.deliver(&mut host.device, |from| from == 0x7_0040, Some) {
            let now = sent(&mut host);
            assert!(now <= 4, "{now} MiB at once");
            answers += now;
        }
        assert_eq!((answers, waiting.is_empty()), (COUNT as usize, true));
    }

    /// Requests to a queue pair that is not ready wait. The requests that exceed the limit are answered as
    /// unreachable.
    #[test]
    fn what_waits_has_a_limit() {
        const MOST: usize = MOST_HELD / (OVERHEAD + 15 * OVERHEAD);
        let mut host = Host::new();
        let to = host.q[A].qpn;
        host.device.modify(to, QpState::Reset).unwrap();
        let mut waiting = Waiting::default();
        waiting.extend((0..MOST as u32 + 10).map(|sequence| {
            let data = vec![0; 15 * OVERHEAD].into();
            let request = Request::Write { rkey: 0, address: 0, data, immediate: None, solicited: false };
            Message::Request { from: 0x7_0040, to, sequence, request }
        }));
        assert!(!waiting.deliver(&mut host.device, |_| true, Some));
        assert_eq!(waiting.messages.len(), MOST);
        let answers: Vec<_> = (MOST as u32..)
            .take(10)
            .map(|sequence| Message::Response { to: 0x7_0040, sequence, response: Response::Unreachable })
            .collect();
        assert_eq!(waiting.take_refused(), answers);
        // These answers would wait too, but there is no room, so they are delivered at once.
        waiting.extend(answers);
        assert!(waiting.deliver(&mut host.device, |_| true, Some));
        assert_eq!(waiting.messages.len(), MOST);
    }
}
