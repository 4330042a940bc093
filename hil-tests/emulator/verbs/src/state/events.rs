//! Events of the device in the two forms that programs get. Events of verbs queues go to a context's channel
//! with the kernel's numbers. Events of queues that commands made go to a DEVX channel as the device's own
//! entries.

use crate::ground::fault::QueueEvent;
use crate::state::channel::Channel;
use mlx5_mkey::wire::prm::event::EventEntry;
use mlx5_softdev::Event;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The object that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A queue pair by its number.
    Qp(u32),
    /// A completion queue by its number.
    Cq(u32),
    /// A shared receive queue by its number.
    Srq(u32),
}

/// The device's own event numbers (`enum mlx5_event`).
mod device {
    pub(super) const COMPLETION: u8 = 0x00;
    pub(super) const SQ_DRAINED: u8 = 0x03;
    pub(super) const CQ_ERROR: u8 = 0x04;
    pub(super) const WQ_CATASTROPHIC: u8 = 0x05;
    pub(super) const WQ_INVALID_REQUEST: u8 = 0x10;
    pub(super) const WQ_ACCESS: u8 = 0x11;
    pub(super) const SRQ_CATASTROPHIC: u8 = 0x12;
    pub(super) const LAST_WQE: u8 = 0x13;
    pub(super) const SRQ_LIMIT: u8 = 0x14;
}

/// The device's numbers of the events of objects to which the kernel lets programs subscribe, whatever the
/// device's capabilities.
const ASKABLE: [u16; 15] =
    [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x10, 0x11, 0x12, 0x13, 0x14, 0x18, 0x1c, 0x1d];

/// The syndrome in an event of `MLX5_EVENT_TYPE_CQ_ERROR`: a completion queue got more entries than it has
/// room for.
const OVERRUN: u8 = 1;

/// Returns the object that an event is about, and the kernel's number of the event.
pub(crate) const fn of_kernel(event: Event) -> (Subject, u32) {
    let (subject, event) = match event {
        Event::SqDrained(number) => (Subject::Qp(number), QueueEvent::Drained),
        Event::QpAccess(number) => (Subject::Qp(number), QueueEvent::Access),
        Event::QpRequest(number) => (Subject::Qp(number), QueueEvent::Request),
        Event::QpFatal(number) => (Subject::Qp(number), QueueEvent::Fatal),
        Event::LastWqe(number) => (Subject::Qp(number), QueueEvent::LastReceive),
        Event::CqError(number) => (Subject::Cq(number), QueueEvent::CqError),
        Event::SrqLimit(number) => (Subject::Srq(number), QueueEvent::SrqLimit),
        Event::SrqFatal(number) => (Subject::Srq(number), QueueEvent::SrqError),
    };
    (subject, event.kernel())
}

/// Returns the event entry that the device writes for an armed completion queue with new completions.
pub(crate) fn completion(cqn: u32) -> EventEntry {
    EventEntry { event_type: device::COMPLETION, number: cqn.into(), ..EventEntry::default() }
}

/// Returns the event entry that the device writes for an event.
pub(crate) fn entry(event: Event) -> EventEntry {
    match event {
        Event::SqDrained(number) => of_queue(device::SQ_DRAINED, number),
        Event::QpAccess(number) => of_queue(device::WQ_ACCESS, number),
        Event::QpRequest(number) => of_queue(device::WQ_INVALID_REQUEST, number),
        Event::QpFatal(number) => of_queue(device::WQ_CATASTROPHIC, number),
        Event::LastWqe(number) => of_queue(device::LAST_WQE, number),
        Event::SrqLimit(number) => of_queue(device::SRQ_LIMIT, number),
        Event::SrqFatal(number) => of_queue(device::SRQ_CATASTROPHIC, number),
        Event::CqError(number) => EventEntry {
            event_type: device::CQ_ERROR,
            cqn: number.into(),
            syndrome: OVERRUN,
            ..EventEntry::default()
        },
    }
}

fn of_queue(event_type: u8, number: u32) -> EventEntry {
    EventEntry { event_type, number: number.into(), ..EventEntry::default() }
}

/// Returns whether a program may subscribe to the events of an object that have this number.
pub(crate) fn is_askable(number: u16) -> bool {
    ASKABLE.contains(&number)
}

/// Returns whether a program may subscribe to the events of the device as a whole that have this number. Only
/// the number of port changes is allowed.
pub(crate) fn is_askable_of_the_device(number: u16) -> bool {
    const PORT_CHANGE: u16 = 0x9;
    number == PORT_CHANGE
}

/// A subscription to the events of one object that have one number.
#[derive(Clone, Debug)]
struct Subscription {
    channel: u32,
    subject: Subject,
    number: u16,
    target: Target,
}

/// The place to which the events of a subscription go.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The channel carries this cookie with the event.
    Cookie(u64),
    /// This eventfd is signalled. The channel carries no event, but the subscription ends with the channel.
    Signal(Arc<File>),
}

/// All subscriptions to events of the device.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Vec<Subscription>);

impl Subscriptions {
    /// Subscribes a target to events of an object with these numbers. The subscription ends with the channel.
    pub(crate) fn add(&mut self, channel: u32, subject: Subject, numbers: &[u16], target: &Target) {
        let all = numbers.iter().map(|number| Subscription {
            channel,
            subject,
            number: *number,
            target: target.clone(),
        });
        self.0.extend(all);
    }

    /// Returns whether there is a subscription to completions of a completion queue. Without a subscriber,
    /// this library need not watch whether the queue is armed.
    pub(crate) fn want_completions(&self, cqn: u32) -> bool {
        let number = u16::from(device::COMPLETION);
        self.0.iter().any(|wanted| wanted.subject == Subject::Cq(cqn) && wanted.number == number)
    }

    /// Removes the subscriptions to an object that is gone.
    pub(crate) fn forget(&mut self, subject: Subject) {
        self.0.retain(|subscription| subscription.subject != subject);
    }

    /// Removes the subscriptions of a channel that is gone.
    pub(crate) fn forget_channel(&mut self, channel: u32) {
        self.0.retain(|subscription| subscription.channel != channel);
    }

    /// Delivers an event to its subscribers. A channel gets the event's data, unless the channel was made to
    /// omit data.
    pub(crate) fn deliver(
        &self,
        subject: Subject,
        entry: &EventEntry,
        channels: &mut BTreeMap<u32, Channel>,
    ) {
        for wanted in &self.0 {
            if wanted.subject != subject || wanted.number != u16::from(entry.event_type) {
                continue;
            }
            match &wanted.target {
                Target::Cookie(cookie) => {
                    if let Some(channel) = channels.get_mut(&wanted.channel) {
                        let mut bytes = cookie.to_ne_bytes().to_vec();
                        if !channel.omits_data() {
                            bytes.extend_from_slice(entry.as_bytes());
                        }
                        channel.push(&bytes);
                    }
                }
                // A write fails only if the eventfd's counter is full, and then the eventfd is already
                // signalled.
                Target::Signal(eventfd) => _ = (&**eventfd).write(&1_u64.to_ne_bytes()),
            }
        }
    }
}
