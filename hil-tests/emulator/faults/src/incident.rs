//! Incidents: events that concern the whole device, its port, or a queue.

use crate::kinds::kinds;
use std::fmt;

/// The way in which a device stops working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The device is removed: outstanding requests get no completion, and the kernel has destroyed all
    /// objects. Afterwards the device takes only calls that destroy them (`rdma_lookup_get_uobject` in
    /// drivers/infiniband/core/rdma_core.c).
    Removed,
    /// The device fails: outstanding requests are flushed, and objects can be destroyed. All other calls
    /// fail.
    Failed,
}

kinds! {
    /// An asynchronous event of a queue pair, of the completion queue of its send queue, or of its shared
    /// receive queue.
    QueueEvent;
    /// Returns the event's name in libibverbs, without `IBV_EVENT_`.
    name;
    /// The completion queue fails, with all queue pairs that use it.
    CqError "CQ_ERR" = 0,
    /// The queue pair fails.
    Fatal "QP_FATAL" = 1,
    /// The queue pair fails because it has refused an invalid request of its peer.
    Request "QP_REQ_ERR" = 2,
    /// The queue pair fails because it has refused an access of its peer.
    Access "QP_ACCESS_ERR" = 3,
    /// The first message has arrived before the connection was reported. The event has no further effect.
    Established "COMM_EST" = 4,
    /// The send queue is drained. The event has no further effect.
    Drained "SQ_DRAINED" = 5,
    /// The connection uses its alternate path. The event has no further effect.
    Migrated "PATH_MIG" = 6,
    /// The connection cannot use its alternate path. The event has no further effect.
    NotMigrated "PATH_MIG_ERR" = 7,
    /// The shared receive queue fails: the device takes no more receive requests from it.
    SrqError "SRQ_ERR" = 14,
    /// The shared receive queue has fewer receive requests than its limit. The event has no further effect.
    SrqLimit "SRQ_LIMIT_REACHED" = 15,
    /// The queue pair takes no more receive requests from its shared receive queue. The event has no further
    /// effect.
    LastReceive "QP_LAST_WQE_REACHED" = 16,
}

kinds! {
    /// An asynchronous event of the device's port that has no further effect.
    DeviceEvent;
    /// Returns the event's name in libibverbs, without `IBV_EVENT_`.
    name;
    /// The port has another LID.
    Lid "LID_CHANGE" = 11,
    /// The table of partition keys has changed.
    Pkey "PKEY_CHANGE" = 12,
    /// The subnet manager asks the clients of the port to register again.
    Reregister "CLIENT_REREGISTER" = 17,
    /// The table of GIDs has changed.
    Gid "GID_CHANGE" = 18,
    /// The speed of the port has changed.
    Speed "DEVICE_SPEED_CHANGE" = 20,
}

impl QueueEvent {
    /// Returns the kernel's number of the event (`enum ib_event_type`).
    pub const fn kernel(self) -> u32 {
        self as u32
    }
}

impl DeviceEvent {
    /// Returns the kernel's number of the event (`enum ib_event_type`).
    pub const fn kernel(self) -> u32 {
        self as u32
    }
}

/// An event that concerns the whole device, its port, or a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// The device stops working, for all open contexts.
    Ends(Ending),
    /// The port goes down, and loses all messages until [`Incident::PortUp`].
    PortDown,
    /// The port is up again.
    PortUp,
    /// The port's table of GIDs loses all entries but the link-local entries, until [`Incident::GidsBack`].
    GidsGone,
    /// The table of GIDs is complete again.
    GidsBack,
    /// An event of the device's port without further effect.
    Device(DeviceEvent),
    /// An event of a queue.
    Queue {
        /// The event.
        event: QueueEvent,
        /// The number of the queue pair that has the event, or that uses the queue with the event.
        queue_pair: u32,
    },
}

/// The incidents without parameters, each with its word.
const WORDS: [(&str, Incident); 6] = [
    ("removed", Incident::Ends(Ending::Removed)),
    ("fatal", Incident::Ends(Ending::Failed)),
    ("port-down", Incident::PortDown),
    ("port-up", Incident::PortUp),
    ("gids-gone", Incident::GidsGone),
    ("gids-back", Incident::GidsBack),
];

impl Incident {
    /// Parses an incident's word.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        if let Some((name, queue_pair)) = word.split_once(':') {
            return Some(Self::Queue { event: QueueEvent::named(name)?, queue_pair: number(queue_pair)? });
        }
        let known = || WORDS.iter().find(|(name, _)| *name == word).map(|(_, incident)| *incident);
        DeviceEvent::named(word).map(Self::Device).or_else(known)
    }
}

/// Parses a number, decimal or with `0x` in front.
pub(crate) fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None => word.parse().ok(),
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(event) => f.write_str(event.name()),
            Self::Queue { event, queue_pair } => write!(f, "{}:{queue_pair:#x}", event.name()),
            other => match WORDS.iter().find(|(_, incident)| incident == other) {
                Some((name, _)) => f.write_str(name),
                None => Ok(()),
            },
        }
    }
}
