//! Messages of peers that wait before the device gets them. A real requester would repeat its request in this
//! time.

use mlx5_softdev::{Device, Memory, Message, QpState, Response};
use std::time::{Duration, Instant};

/// How long a request of a peer waits for its queue pair to become ready. A real requester would repeat the
/// request for about as long.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a requester tries to reach a queue pair that no longer exists: eight times 67 ms, the values that
/// most programs choose (ibv_rc_pingpong, perftest). A peer that has all its data may end before the
/// requester. In this time, the requester's program can still take its completions and end without an error.
const RETRYING: Duration = Duration::from_millis(8 * 67);

/// The messages that wait, each with the time of its arrival.
#[derive(Debug, Default)]
pub struct Waiting(Vec<(Instant, Message)>);

impl Extend<Message> for Waiting {
    fn extend<T: IntoIterator<Item = Message>>(&mut self, messages: T) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl Waiting {
    /// Adds a message that arrives now.
    pub fn push(&mut self, message: Message) {
        self.0.push((Instant::now(), message));
    }

    /// Returns whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the messages for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&Message) -> bool) {
        self.0.retain(|(_, message)| keep(message));
    }

    /// Delivers the messages that have waited long enough. Each call hands every waiting message to `alter`,
    /// which returns the message that takes its place, or `None` to drop the message. Returns whether the
    /// device got a message.
    pub fn deliver<M: Memory>(
        &mut self,
        device: &mut Device<M>,
        mut alter: impl FnMut(Message) -> Option<Message>,
    ) -> bool {
        let mut any = false;
        for (since, message) in std::mem::take(&mut self.0) {
            let Some(message) = alter(message) else { continue };
            if since.elapsed() < patience(device, &message) {
                self.0.push((since, message));
            } else {
                any = true;
                device.deliver(message);
            }
        }
        any
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
