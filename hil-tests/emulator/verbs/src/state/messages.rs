//! Exchanges the device's messages with other processes.

use super::State;
use crate::ground::fault;
use mlx5_softdev::{Message, Response};

impl State {
    /// Takes messages of other processes. Returns whether at least one was delivered to the device or to
    /// connection management.
    pub(super) fn receive(&mut self) -> bool {
        let Self { device, fabric, waiting, .. } = self;
        let (is_down, mut lost, mut news) = (fault::is_port_down(), Vec::new(), Vec::new());
        fabric.exchange(|message| waiting.push(message), &mut news);
        let takes_answers = |from| fabric.takes_messages(from);
        let mut any = waiting.deliver(device, takes_answers, |message| match is_down {
            true => arrived_at_closed_port(message, &mut lost),
            false => Some(message),
        });
        lost.extend(waiting.take_refused());
        for message in lost {
            waiting.extend(fabric.send(message));
        }
        any |= !news.is_empty();
        news.into_iter().for_each(|news| self.manage(news));
        any
    }

    /// Sends the device's messages to other processes. Returns whether there were any messages.
    pub(super) fn transmit(&mut self) -> bool {
        let mut any = false;
        while let Some(message) = self.device.take_message() {
            any = true;
            self.waiting.extend(self.fabric.send(message));
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
