//! Functions that make rules. The first function selects an occurrence (a visit) of an action, for example
//! the third request. A method then selects the fault that happens at this visit.

use crate::incident::Incident;
use crate::rule::{CallKind, Rule, Subject};
use crate::status::Status;
use crate::word::{Fault, Place};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::time::Duration;

/// Types that stand for places, as parameters of [`Visits`]. Their comments name the actions at the places.
pub mod of {
    /// A queue pair begins a request of its send queue.
    #[derive(Clone, Copy, Debug)]
    pub struct Requests;
    /// A message takes a receive request of a queue pair.
    #[derive(Clone, Copy, Debug)]
    pub struct Receives;
    /// The device writes a completion entry about a request.
    #[derive(Clone, Copy, Debug)]
    pub struct Completions;
    /// The program sends the kernel a call for the device that destroys no object.
    #[derive(Clone, Copy, Debug)]
    pub struct Calls;
    /// The program destroys an object.
    #[derive(Clone, Copy, Debug)]
    pub struct Ends;
}

/// The visits to a place at which a fault happens.
#[derive(Clone, Copy, Debug)]
pub struct Visits<P> {
    place: Place,
    subject: Subject,
    nth: u64,
    stays: bool,
    kind: PhantomData<P>,
}

/// Selects the `nth` request that the send queues begin from now on, counted from 1.
pub const fn requests(nth: u64) -> Visits<of::Requests> {
    Visits::new(Place::Request, nth)
}

/// Selects the `nth` receive request that messages take from now on, counted from 1.
pub const fn receives(nth: u64) -> Visits<of::Receives> {
    Visits::new(Place::Receive, nth)
}

/// Selects the `nth` completion entry from now on, counted from 1.
pub const fn completions(nth: u64) -> Visits<of::Completions> {
    Visits::new(Place::Completion, nth)
}

/// Selects the `nth` call to the device from now on, counted from 1, without calls that destroy an object.
pub const fn calls(nth: u64) -> Visits<of::Calls> {
    Visits::new(Place::Call, nth)
}

/// Selects the `nth` destruction of an object from now on, counted from 1.
pub const fn ends(nth: u64) -> Visits<of::Ends> {
    Visits::new(Place::End, nth)
}

impl<P> Visits<P> {
    /// Selects visit number `nth`. Visits are counted from 1, so 0 selects the first visit too.
    const fn new(place: Place, nth: u64) -> Self {
        let nth = if nth == 0 { 1 } else { nth };
        Self { place, subject: Subject::Any, nth, stays: false, kind: PhantomData }
    }

    /// Selects all later visits too. If the visits are calls, only later calls of the same kind are selected.
    #[must_use]
    pub const fn and_later(mut self) -> Self {
        self.stays = true;
        self
    }

    /// Makes an incident happen at the visit.
    pub const fn raise(self, incident: Incident) -> Rule {
        self.rule(Fault::Happens(incident))
    }

    const fn rule(self, fault: Fault) -> Rule {
        let Self { place, subject, nth, stays, .. } = self;
        Rule::At { place, subject, nth, stays, fault }
    }

    const fn of_queue_pair(mut self, queue_pair: u32) -> Self {
        self.subject = Subject::QueuePair(queue_pair);
        self
    }
}

impl Visits<of::Requests> {
    /// Counts the requests of one queue pair only, by its number (`qp_num`).
    #[must_use]
    pub const fn of(self, queue_pair: u32) -> Self {
        self.of_queue_pair(queue_pair)
    }

    /// Completes the request with a failure instead of executing it.
    pub const fn fail(self, status: Status) -> Rule {
        self.rule(Fault::Completes(status))
    }

    /// Delays the request, and all later requests of the queue pair, by this time. The device rounds the time
    /// down to microseconds, and checks once in a millisecond whether the time is over.
    pub fn delay(self, time: Duration) -> Rule {
        self.rule(Fault::Delayed(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Loses the message of the request. On a reliable connection, the request fails as
    /// [`Status::RetriesExceeded`]; otherwise it completes without an error.
    pub const fn lose(self) -> Rule {
        self.rule(Fault::Lost)
    }

    /// Answers the first `attempts` tries of the request as a peer without a receive request does. If the
    /// queue pair has fewer retries (`rnr_retry`), the request fails as [`Status::NotReadyRetriesExceeded`].
    pub const fn not_ready(self, attempts: NonZeroU32) -> Rule {
        self.rule(Fault::NotReady(attempts))
    }

    /// Keeps the request, and all later requests of the queue pair, until the queue pair goes to the error
    /// state or to RESET.
    pub const fn hang(self) -> Rule {
        self.rule(Fault::Hangs)
    }
}

impl Visits<of::Receives> {
    /// Counts the receive requests of one queue pair only, by its number (`qp_num`).
    #[must_use]
    pub const fn of(self, queue_pair: u32) -> Self {
        self.of_queue_pair(queue_pair)
    }

    /// Completes the receive request with a failure. The request of the peer fails as
    /// [`Status::RemoteOperation`].
    pub const fn fail(self, status: Status) -> Rule {
        self.rule(Fault::Completes(status))
    }
}

impl Visits<of::Completions> {
    /// Counts the completions of one queue pair only, by its number (`qp_num`).
    #[must_use]
    pub const fn of(self, queue_pair: u32) -> Self {
        self.of_queue_pair(queue_pair)
    }

    /// Writes the completion entry late.
    pub const fn delay(self) -> Rule {
        self.rule(Fault::Late)
    }

    /// Writes the completion entry twice.
    pub const fn repeat(self) -> Rule {
        self.rule(Fault::Twice)
    }

    /// Does not write the completion entry.
    pub const fn lose(self) -> Rule {
        self.rule(Fault::Dropped)
    }

    /// Writes an invalid completion entry before the device's own entry, with an unknown queue pair, an
    /// unknown request or an invalid opcode.
    pub const fn precede(self) -> Rule {
        self.rule(Fault::Stranger)
    }

    /// Makes the completion queue overrun.
    pub const fn overrun(self) -> Rule {
        self.rule(Fault::Overrun)
    }
}

impl Visits<of::Calls> {
    /// Counts the calls of one kind only.
    #[must_use]
    pub const fn named(mut self, kind: CallKind) -> Self {
        self.subject = Subject::Call(kind);
        self
    }

    /// Makes the call fail with this errno.
    pub const fn fail(self, errno: i32) -> Rule {
        self.rule(Fault::Fails { errno, status: 0 })
    }

    /// Makes the call fail with this status of the device, if the call is a command to the device.
    pub const fn refuse(self, status: u8) -> Rule {
        self.rule(Fault::Fails { errno: libc::EREMOTEIO, status })
    }

    /// Delays the answer to the call.
    pub const fn delay(self) -> Rule {
        self.rule(Fault::Late)
    }

    /// Reports the call as failed. A command that changes an object is carried out nevertheless. Any other
    /// call is not carried out.
    pub const fn lose_answer(self) -> Rule {
        self.rule(Fault::Unheard)
    }
}

impl Visits<of::Ends> {
    /// Makes the destruction fail with this errno. The object stays.
    pub const fn fail(self, errno: i32) -> Rule {
        self.rule(Fault::Fails { errno, status: 0 })
    }
}
