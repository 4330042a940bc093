//! Kinds of faults and the places where they happen, each with its word in a plan of faults.

use crate::incident::Incident;
use crate::kinds::kinds;
use crate::status::Status;
use std::fmt;
use std::num::NonZeroU32;

kinds! {
    /// A place where a fault can happen: an action of the program, of the device or of a peer. Each
    /// occurrence of the action is a visit to the place.
    Place;
    /// Returns the word that names the place in a rule.
    name;
    /// The program sends the kernel a call for the device (uverbs) that destroys no object, or opens the
    /// device's file.
    Call "call",
    /// The program destroys an object.
    End "end",
    /// The program reads events from a file of the kernel.
    Read "read",
    /// The device writes a completion entry about a send or receive request.
    Completion "completion",
    /// The device writes a completion entry about an mkey: a signature error.
    Signature "signature",
    /// The process sends a message to another process, or receives one.
    Message "message",
    /// The device reads bytes that another process has sent.
    Wire "wire",
    /// A queue pair begins a request of its send queue.
    Request "request",
    /// A message takes a receive request of a queue pair.
    Receive "receive",
}

impl Place {
    /// The number of places at which a seed (a random choice of faults) causes faults. They are the first
    /// places in [`Place::ALL`].
    pub const SEEDED: usize = 7;
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is not carried out. If `status` differs from 0, a command to the device gets this status as
    /// its answer.
    Fails {
        /// The kernel's errno.
        errno: i32,
        /// The device's status for a command, or 0 for none.
        status: u8,
    },
    /// A command that changes an object is carried out, but reported as failed. Any other call is not carried
    /// out.
    Unheard,
    /// The answer or the completion is delayed.
    Late,
    /// A read returns a part of the available bytes.
    Short,
    /// The completion is written twice.
    Twice,
    /// The completion is not written.
    Dropped,
    /// Before the completion, the device writes another completion, with an unknown queue pair, an unknown
    /// request or an invalid opcode.
    Stranger,
    /// The completion queue overruns.
    Overrun,
    /// The message does not arrive. At [`Place::Request`], this is the message of the send request.
    Lost,
    /// The process is killed.
    Dies,
    /// The send or receive request completes with this status.
    Completes(Status),
    /// The request waits for this number of microseconds.
    Delayed(u64),
    /// The peer has no receive request for this number of attempts.
    NotReady(NonZeroU32),
    /// The request is not executed until the queue pair changes its state to error or RESET.
    Hangs,
    /// The action at the place is carried out as usual, and an incident happens.
    Happens(Incident),
}

/// Errors of the kernel that have a name in a rule. Other errors are written as numbers.
const ERRORS: [(&str, i32); 12] = [
    ("ENOMEM", libc::ENOMEM),
    ("EINTR", libc::EINTR),
    ("EAGAIN", libc::EAGAIN),
    ("EBUSY", libc::EBUSY),
    ("EIO", libc::EIO),
    ("EPERM", libc::EPERM),
    ("EACCES", libc::EACCES),
    ("EINVAL", libc::EINVAL),
    ("ENODEV", libc::ENODEV),
    ("EMFILE", libc::EMFILE),
    ("ETIMEDOUT", libc::ETIMEDOUT),
    ("EREMOTEIO", libc::EREMOTEIO),
];

/// The faults without parameters, each with its word.
const WORDS: [(&str, Fault); 10] = [
    ("unheard", Fault::Unheard),
    ("late", Fault::Late),
    ("short", Fault::Short),
    ("twice", Fault::Twice),
    ("dropped", Fault::Dropped),
    ("stranger", Fault::Stranger),
    ("overrun", Fault::Overrun),
    ("lost", Fault::Lost),
    ("dies", Fault::Dies),
    ("hangs", Fault::Hangs),
];

const fn fails(errno: i32) -> Fault {
    Fault::Fails { errno, status: 0 }
}

impl Fault {
    /// Returns the faults from which a seed (a random choice of faults) chooses at a place. `REFUSED` stands
    /// for a command that the device answers with an error status, which the seed also chooses. A fault that
    /// is listed twice is chosen twice as often.
    pub const fn of(place: Place) -> &'static [Self] {
        const REFUSED: Fault = fails(libc::EREMOTEIO);
        match place {
            Place::Call => {
                const {
                    &[
                        fails(libc::ENOMEM),
                        fails(libc::EINTR),
                        fails(libc::EIO),
                        REFUSED,
                        REFUSED,
                        Self::Late,
                        Self::Unheard,
                    ]
                }
            }
            Place::End => const { &[fails(libc::EBUSY), fails(libc::EINTR), REFUSED] },
            Place::Read => const { &[fails(libc::EINTR), fails(libc::EAGAIN), Self::Short] },
            Place::Completion | Place::Signature => {
                &[Self::Late, Self::Late, Self::Twice, Self::Dropped, Self::Stranger, Self::Overrun]
            }
            Place::Message => &[Self::Lost, Self::Lost, Self::Dies],
            Place::Wire => &[Self::Short],
            Place::Request | Place::Receive => &[],
        }
    }

    /// Returns whether the fault can happen at a place.
    fn fits(self, place: Place) -> bool {
        match self {
            Self::Happens(_) => true,
            Self::Fails { .. } => matches!(place, Place::Call | Place::End | Place::Read),
            Self::Completes(_) => matches!(place, Place::Request | Place::Receive),
            Self::Delayed(_) | Self::NotReady(_) | Self::Hangs => place == Place::Request,
            Self::Lost => matches!(place, Place::Message | Place::Request),
            other => Self::of(place).contains(&other),
        }
    }

    /// Parses the word of a fault that can happen at a place.
    pub(crate) fn parse(word: &str, place: Place) -> Option<Self> {
        Self::parsed(word).filter(|fault| fault.fits(place))
    }

    fn parsed(word: &str) -> Option<Self> {
        if let Some(status) = word.strip_prefix("status:") {
            return Some(Self::Fails { errno: libc::EREMOTEIO, status: status.parse().ok()? });
        }
        if let Some(number) = word.strip_prefix("errno:") {
            return number.parse().ok().filter(|number| *number > 0).map(fails);
        }
        if let Some(microseconds) = word.strip_prefix("delay:") {
            return microseconds.parse().ok().map(Self::Delayed);
        }
        if let Some(attempts) = word.strip_prefix("rnr:") {
            return attempts.parse().ok().map(Self::NotReady);
        }
        let error = ERRORS.iter().find(|(name, _)| *name == word).map(|(_, errno)| fails(*errno));
        let named = || WORDS.iter().find(|(name, _)| *name == word).map(|(_, fault)| *fault);
        let status = || Status::named(word).map(Self::Completes);
        error.or_else(named).or_else(status).or_else(|| Incident::parse(word).map(Self::Happens))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fails { errno: number, status: 0 } => {
                match ERRORS.iter().find(|(_, errno)| errno == number) {
                    Some((name, _)) => f.write_str(name),
                    None => write!(f, "errno:{number}"),
                }
            }
            Self::Fails { status, .. } => write!(f, "status:{status}"),
            Self::Completes(status) => status.fmt(f),
            Self::Delayed(microseconds) => write!(f, "delay:{microseconds}"),
            Self::NotReady(attempts) => write!(f, "rnr:{attempts}"),
            Self::Happens(incident) => incident.fmt(f),
            other => match WORDS.iter().find(|(_, fault)| fault == other) {
                Some((name, _)) => f.write_str(name),
                None => Ok(()),
            },
        }
    }
}
