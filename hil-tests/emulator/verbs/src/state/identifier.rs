//! Connection identifiers, the kernel's side of `struct rdma_cm_id`, and their events.

use crate::fabric::connection::Parameters;
use crate::ground::errno::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::time::Instant;

/// The kinds of events (`enum rdma_cm_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum EventKind {
    AddressResolved = 0,
    AddressError = 1,
    RouteResolved = 2,
    ConnectRequest = 4,
    ConnectResponse = 5,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    TimewaitExit = 15,
}

/// The parameters that an event shows to the program.
#[derive(Clone, Debug, Default)]
pub(crate) enum Shown {
    #[default]
    Nothing,
    /// Parameters of a connection.
    Connection(Parameters),
    /// Parameters of a datagram service, with the index of this side's GID.
    Datagrams(Parameters, u8),
}

/// An event of an `rdma_cm_id`.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The `rdma_cm_id` that the event is about.
    pub(crate) of: u32,
    /// The `rdma_cm_id` that the event names to the program: for a request, that of the new connection,
    /// otherwise `of`.
    pub(crate) told: u32,
    pub(crate) kind: EventKind,
    pub(crate) status: i32,
    pub(crate) shown: Shown,
}

/// The state of an `rdma_cm_id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    #[default]
    Idle,
    Bound,
    /// The peer's address is not known yet. The search ends at this time.
    Resolving(Instant),
    Resolved,
    Routed,
    /// Nobody listens at the peer's address yet. The next look for a listener is at `next`, and the search
    /// ends at `until`.
    Searching {
        until: Instant,
        next: Instant,
    },
    /// A request was sent. The wait for the answer ends at this time.
    Asking(Instant),
    Listening,
    /// A request of a peer has arrived, and the program has not answered it yet.
    Asked,
    /// The request was accepted. The requester has not reported yet that it is ready. The side that has
    /// accepted waits for the report until this time.
    Answered(Option<Instant>),
    Established,
    /// The connection has ended, but its packets may still arrive until this time (InfiniBand 12.9.8.4,
    /// "TimeWait").
    Leaving(Instant),
    Over,
}

/// The local acknowledgement timeout of connections, unless the program sets one: 4.096 µs times 2 to this
/// power.
pub(crate) const ACK_TIMEOUT: u8 = 18;

/// A connection identifier: the stand-in's side of the program's `struct rdma_cm_id`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Id {
    /// The file from which the program reads the `rdma_cm_id`'s events.
    pub(crate) file: u32,
    /// The program's name for the `rdma_cm_id`. 0 for a new connection that the program has not accepted.
    pub(crate) name: u64,
    /// The space of the `rdma_cm_id`'s port (`enum rdma_ucm_port_space`).
    pub(crate) space: u16,
    pub(crate) step: Step,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    /// Whether the `rdma_cm_id` is bound to the device.
    pub(crate) has_device: bool,
    /// Whether the `rdma_cm_id` itself has bound its port. A new connection uses the port of its listener.
    pub(crate) owns_port: bool,
    pub(crate) may_share_port: bool,
    /// The local acknowledgement timeout of the queue pair, as the device takes it.
    pub(crate) ack_timeout: u8,
    /// The slot of the peer's process (its number in the fabric), and the number of the peer's `rdma_cm_id`.
    pub(crate) peer: Option<(u32, u32)>,
    /// The parameters that this side has sent.
    pub(crate) own: Parameters,
    /// The parameters that the peer has sent.
    pub(crate) theirs: Parameters,
    /// The most requests that wait until a listener's program takes them.
    pub(crate) backlog: u32,
    /// The number of events of the `rdma_cm_id` that the program has taken.
    pub(crate) taken: u32,
}

impl Id {
    /// Returns whether the `rdma_cm_id` is for datagrams: its port space is that of UDP or of IP over
    /// InfiniBand.
    pub(crate) const fn is_for_datagrams(&self) -> bool {
        matches!(self.space, 0x0111 | 0x0002)
    }
}

/// An rdma_cm file (`/dev/infiniband/rdma_cm`) that a program has opened.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) events: VecDeque<Event>,
    /// A descriptor of the program's eventfd, which counts the events.
    pub(crate) signal: File,
}

/// All `rdma_cm_id`s and files of this process.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) ids: BTreeMap<u32, Id>,
    /// The open rdma_cm files, by their descriptors.
    pub(crate) files: BTreeMap<u32, Channel>,
    pub(crate) next: u32,
    pub(crate) next_port: u16,
}

/// The most `rdma_cm_id`s of a process.
const MOST: usize = 1 << 16;

impl Book {
    /// Stores an `rdma_cm_id` and returns its number.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] if the process has too many `rdma_cm_id`s.
    pub(crate) fn insert(&mut self, id: Id) -> Result<u32, Errno> {
        if self.ids.len() >= MOST {
            return Err(Errno::NOMEM);
        }
        while self.ids.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.ids.insert(number, id);
        Ok(number)
    }

    /// Returns the `rdma_cm_id` `number` of a file.
    ///
    /// # Errors
    /// [`Errno::NOENT`] if the `rdma_cm_id` does not exist; [`Errno::INVAL`] if it belongs to another file.
    pub(crate) fn of_file(&mut self, file: u32, number: u32) -> Result<&mut Id, Errno> {
        let id = self.ids.get_mut(&number).ok_or(Errno::NOENT)?;
        if id.file == file { Ok(id) } else { Err(Errno::INVAL) }
    }

    /// Returns whether an `rdma_cm_id` waits: for a peer's address, for a listener, for the answer to a
    /// request or to a reply, or for the end of its last state.
    pub(crate) fn waits(&self) -> bool {
        let waits = |step| {
            let asks = matches!(step, Step::Asking(_) | Step::Answered(Some(_)));
            asks || matches!(step, Step::Resolving(_) | Step::Searching { .. } | Step::Leaving(_))
        };
        self.ids.values().any(|id| waits(id.step))
    }
}
