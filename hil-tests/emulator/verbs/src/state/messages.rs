//! Messages from and to other processes.

use super::State;
use crate::ground::process_memory::ProcessMemory;
use mlx5_softdev::{Device, Message, QpState, Response};
use std::time::{Duration, Instant};

/// How long a request waits for the queue pair that it is sent to to become ready, as a requester would
/// retry.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a requester tries to reach a queue pair that is gone: eight times 67 ms, as most programs ask for
/// (ibv_rc_pingpong, perftest). A program whose peer has what it needs and ends takes its completions
/// meanwhile, and never hears of the rest.
const RETRYING: Duration = Duration::from_millis(8 * 67);

impl State {
    /// Takes messages of other processes. Returns whether there were any that could be carried out.
    pub(super) fn receive(&mut self) -> bool {
        let Self { device, fabric, waiting, .. } = self;
        let mut any = false;
        let mut take = |device: &mut Device<ProcessMemory>, since: Instant, message| {
            if since.elapsed() < patience(device, &message) {
                return Some((since, message));
            }
            any = true;
            device.deliver(message);
            None
        };
        let before = std::mem::take(waiting).into_iter();
        waiting.extend(before.filter_map(|(since, message)| take(device, since, message)));
        fabric.exchange(|message| waiting.extend(take(device, Instant::now(), message)));
        any
    }

    /// Hands messages to other processes.
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

/// Returns how long a message waits before it is delivered: a request that comes before the queue pair that
/// it is for is ready, and the news that a queue pair is gone.
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
