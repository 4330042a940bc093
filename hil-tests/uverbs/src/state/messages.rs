//! Messages from and to other processes.

use super::State;
use crate::process::ProcessMemory;
use mlx5_softdev::{Device, Message, QpState};
use std::time::{Duration, Instant};

/// How long a request waits for the queue pair that it is sent to to become ready, as a requester would retry.
const TIMEOUT: Duration = Duration::from_secs(2);

impl State {
    /// Takes messages of other processes. Returns whether there were any that could be carried out.
    pub(super) fn receive(&mut self) -> bool {
        let Self { device, fabric, early, .. } = self;
        let mut any = false;
        for (since, message) in std::mem::take(early) {
            if is_early(device, &message) && since.elapsed() < TIMEOUT {
                early.push((since, message));
            } else {
                any = true;
                device.deliver(message);
            }
        }
        fabric.exchange(|message| {
            if is_early(device, &message) {
                early.push((Instant::now(), message));
            } else {
                any = true;
                device.deliver(message);
            }
        });
        any
    }

    /// Hands messages to other processes.
    pub(super) fn transmit(&mut self) -> bool {
        let mut any = false;
        while let Some(message) = self.device.take_message() {
            any = true;
            if let Some(answer) = self.fabric.send(&message) {
                self.device.deliver(answer);
            }
        }
        self.fabric.flush();
        any
    }
}

/// Whether a request comes before the queue pair that it is for is ready.
fn is_early(device: &Device<ProcessMemory>, message: &Message) -> bool {
    let Message::Request { to, .. } = message else { return false };
    let state = device.query(*to).map(|view| view.state);
    matches!(state, Ok(QpState::Reset | QpState::Init))
}
