//! Delivers the device's events to the program: asynchronous events, and events of armed completion queues.

use super::{NEVER_ARMED, State};
use crate::ground::abi::AsyncEvent;
use crate::ground::process_memory::ProcessMemory;
use crate::state::events::{self, Subject};
use crate::state::object::{Context, Cq, Object};
use mlx5_mkey::wire::cqe::{CqeOpcode, OpOwn};
use mlx5_softdev::{Device, Memory};
use zerocopy::IntoBytes;

impl State {
    /// Turns the device's events into asynchronous events of the contexts.
    pub(super) fn report(&mut self) {
        for event in self.device.take_events() {
            let (subject, kind) = events::of_kernel(event);
            self.subscriptions.deliver(subject, &events::entry(event), &mut self.channels);
            self.report_on(subject, kind);
        }
    }

    /// Raises an asynchronous event of a queue, with the kernel's number of the event.
    pub(super) fn report_on(&mut self, subject: Subject, kind: u32) {
        for context in self.contexts.values_mut() {
            let found = context.queues_mut().find(|object| object.subject() == Some(subject));
            let Some(queue) = found.and_then(Object::common_mut) else { continue };
            queue.async_events = queue.async_events.wrapping_add(1);
            if let Some((element, channel)) = queue.user_handle.zip(queue.async_channel)
                && let Some(channel) = self.channels.get_mut(&channel)
            {
                channel.push(AsyncEvent { element, kind, reserved: 0 }.as_bytes());
            }
        }
    }

    /// Raises an asynchronous event of the device or its port in all contexts.
    pub(super) fn report_on_device(&mut self, element: u64, kind: u32) {
        let event = AsyncEvent { element, kind, reserved: 0 };
        let channels: Vec<_> = self.contexts.values().map(|context| context.async_channel).collect();
        channels.into_iter().for_each(|channel| self.push(channel, event.as_bytes()));
    }

    /// Raises an event for each completion queue that is armed and has entries. The event of a queue of verbs
    /// goes to the queue's channel. The event of a queue that a command made goes to its subscribers.
    pub(super) fn notify(&mut self) {
        let Self { device, channels, subscriptions, contexts, armed, .. } = self;
        for object in contexts.values_mut().flat_map(Context::queues_mut) {
            let Object::Cq(cq) = object else { continue };
            let channel = cq.channel.and_then(|number| channels.get_mut(&number));
            if channel.is_none() && !subscriptions.want_completions(cq.number) {
                continue;
            }
            let Some(word) = arm_word(cq) else { continue };
            *armed = true;
            let Some(sequence) = due(device, cq, word) else { continue };
            cq.fired = Some(sequence);
            if let Some((channel, user_handle)) = channel.zip(cq.common.user_handle) {
                cq.completion_events = cq.completion_events.wrapping_add(1);
                channel.push(&user_handle.to_ne_bytes());
            } else {
                subscriptions.deliver(Subject::Cq(cq.number), &events::completion(cq.number), channels);
            }
        }
    }
}

/// Returns the word that armed a completion queue last, or `None` if it was never armed.
fn arm_word(cq: &Cq) -> Option<u32> {
    let mut word = [0; 4];
    ProcessMemory.read(cq.record.wrapping_add(4), &mut word).ok()?;
    (word != NEVER_ARMED).then_some(u32::from_be_bytes(word))
}

/// Returns the sequence number of a completion queue's arm word if an event is due. An event is due if no
/// event was raised for this arm word, and an entry that the word asks for waits behind the word's consumer
/// index.
fn due(device: &Device<ProcessMemory>, cq: &Cq, word: u32) -> Option<u8> {
    let sequence = (word >> 28 & 3) as u8;
    let (solicited, consumer) = (word >> 24 & 1 == 1, word & 0x00ff_ffff);
    let pending = device.cq_producer(cq.number).ok()?.wrapping_sub(consumer) & 0x00ff_ffff;
    if cq.fired == Some(sequence) || pending == 0 || pending > cq.entries {
        return None;
    }
    let counts = !solicited || (0..pending).any(|index| is_solicited(cq, consumer.wrapping_add(index)));
    counts.then_some(sequence)
}

/// Returns whether an entry wakes a program that waits for solicited entries: the entry is marked as
/// solicited, or reports an error.
fn is_solicited(cq: &Cq, index: u32) -> bool {
    let slot = if cq.collapsed { 0 } else { u64::from(index & (cq.entries.wrapping_sub(1))) };
    let last = cq.ring.wrapping_add((slot + 1) * u64::from(cq.entry_bytes)).wrapping_sub(1);
    let mut byte = [0; 1];
    if ProcessMemory.read(last, &mut byte).is_err() {
        return true;
    }
    let [byte] = byte;
    let entry = OpOwn::from_bits(byte);
    let opcode = CqeOpcode(entry.opcode());
    entry.solicited() || opcode == CqeOpcode::REQUESTER_ERROR || opcode == CqeOpcode::RESPONDER_ERROR
}
