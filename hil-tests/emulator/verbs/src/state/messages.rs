//! Exchanges the device's messages with other processes.

use super::State;
use crate::ground::fault;
use crate::ground::process_memory::ProcessMemory;
use mlx5_softdev::{Device, Message, QpState, Response};
use std::time::{Duration, Instant};

/// How long a request of a peer waits for its queue pair to become ready. A real requester would repeat the
/// request for about as long.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a requester tries to reach a queue pair that is gone: eight times 67 ms, the values that most
/// programs choose (ibv_rc_pingpong, perftest). A peer that has all its data may end before the requester. In
/// this time, the requester's program can take its completions and end too.
const RETRYING: Duration = Duration::from_millis(8 * 67);

impl State {
    /// Takes messages of other processes. Returns whether at least one was delivered to the device or to
    /// connection management.
    pub(super) fn receive(&mut self) -> bool {
        let Self { device, fabric, waiting, .. } = self;
        let (mut any, is_down) = (false, fault::is_port_down());
        let mut lost = Vec::new();
        let mut take = |device: &mut Device<ProcessMemory>, since: Instant, message| {
            let message = if is_down { arrived_at_closed_port(message, &mut lost)? } else { message };
            if since.elapsed() < patience(device, &message) {
                return Some((since, message));
            }
            any = true;
            device.deliver(message);
            None
        };
        let before = std::mem::take(waiting).into_iter();
        waiting.extend(before.filter_map(|(since, message)| take(device, since, message)));
        let mut news = Vec::new();
        fabric.exchange(|message| waiting.extend(take(device, Instant::now(), message)), &mut news);
        for message in lost {
            let answer = fabric.send(&message);
            waiting.extend(answer.map(|answer| (Instant::now(), answer)));
        }
        any |= !news.is_empty();
        news.into_iter().for_each(|news| self.manage(news));
        any
    }

    /// Sends the device's messages to other processes. Returns whether there were any.
    pub(super) fn transmit(&mut self) -> bool {
        let mut any = false;
        while let Some(message) = self.device.take_message() {
            any = true;
            let answer = self.fabric.send(&message);
            self.waiting.extend(answer.map(|answer| (Instant::now(), answer)));
        }
        self.fabric.flush();
        any
    }
}

/// Takes a message that has arrived while an incident keeps the port down. Returns the message that the
/// device gets instead, if any. The answer to a lost request is appended to `lost`.
fn arrived_at_closed_port(message: Message, lost: &mut Vec<Message>) -> Option<Message> {
    let response = Response::Unreachable;
    match message {
        Message::Request { from, sequence, .. } => {
            lost.push(Message::Response { to: from, sequence, response });
            None
        }
        Message::Unanswered { .. } => None,
        Message::Response { to, sequence, .. } => Some(Message::Response { to, sequence, response }),
    }
}

/// Returns how long a message waits before it is delivered. A request waits while its queue pair is not
/// ready. The answer that a queue pair is gone waits as long as a requester retries.
fn patience(device: &Device<ProcessMemory>, message: &Message) -> Duration {
    match message {
        Message::Request { to, .. } => match device.query(*to).map(|view| view.state) {
            Ok(QpState::Reset | QpState::Init) => TIMEOUT,
            _ => Duration::ZERO,
        },
        Message::Response { response: Response::Unreachable, .. } => RETRYING,
        _ => Duration::ZERO,
    }
}
