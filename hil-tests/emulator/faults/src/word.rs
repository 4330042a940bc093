//! The words of a plan: kinds of faults, and the places where they happen.

use std::fmt;

/// A place where a fault can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The program calls the device, or opens its file.
    Call,
    /// The program destroys an object.
    End,
    /// The program reads events.
    Read,
    /// The device writes a completion entry about a request.
    Completion,
    /// The device writes a completion entry about an mkey: a signature error.
    Signature,
    /// A message leaves for another process, or comes from one.
    Message,
    /// The device reads bytes that another process has sent.
    Wire,
}

impl Place {
    /// All places, in order.
    pub const ALL: [Self; 7] =
        [Self::Call, Self::End, Self::Read, Self::Completion, Self::Signature, Self::Message, Self::Wire];

    /// Returns the word for the place.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::End => "end",
            Self::Read => "read",
            Self::Completion => "completion",
            Self::Signature => "signature",
            Self::Message => "message",
            Self::Wire => "wire",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.name() == name)
    }
}

/// How a device ends.
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
    /// The answer or the completion comes late.
    Late,
    /// A read returns a part of the available bytes.
    Short,
    /// The completion is written twice.
    Twice,
    /// The completion is not written.
    Dropped,
    /// Before the completion, the device writes another one, with an unknown queue pair, an unknown request
    /// or an invalid opcode.
    Stranger,
    /// The completion queue overruns.
    Overrun,
    /// The message does not arrive.
    Lost,
    /// The process is killed.
    Dies,
    /// The device ends, for all open contexts.
    Ends(Ending),
}

/// Errors of the kernel, by name.
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

/// The words of faults that consist of a name alone.
const WORDS: [(&str, Fault); 11] = [
    ("unheard", Fault::Unheard),
    ("late", Fault::Late),
    ("short", Fault::Short),
    ("twice", Fault::Twice),
    ("dropped", Fault::Dropped),
    ("stranger", Fault::Stranger),
    ("overrun", Fault::Overrun),
    ("lost", Fault::Lost),
    ("dies", Fault::Dies),
    ("removed", Fault::Ends(Ending::Removed)),
    ("fatal", Fault::Ends(Ending::Failed)),
];

const fn fails(errno: i32) -> Fault {
    Fault::Fails { errno, status: 0 }
}

impl Fault {
    /// Returns the faults that a seed chooses from at a place. EREMOTEIO stands for any status of the device.
    pub(crate) const fn of(place: Place) -> &'static [Self] {
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
        }
    }

    /// Returns whether the fault can happen at a place.
    pub(crate) fn fits(self, place: Place) -> bool {
        match self {
            Self::Ends(_) => true,
            Self::Fails { .. } => matches!(place, Place::Call | Place::End | Place::Read),
            other => Self::of(place).contains(&other),
        }
    }

    /// Parses a fault's word.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        if let Some(status) = word.strip_prefix("status:") {
            return Some(Self::Fails { errno: libc::EREMOTEIO, status: status.parse().ok()? });
        }
        if let Some(number) = word.strip_prefix("errno:") {
            return number.parse().ok().filter(|number| *number > 0).map(fails);
        }
        let error = ERRORS.iter().find(|(name, _)| *name == word).map(|(_, errno)| fails(*errno));
        error.or_else(|| WORDS.iter().find(|(name, _)| *name == word).map(|(_, fault)| *fault))
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
            other => match WORDS.iter().find(|(_, fault)| fault == other) {
                Some((name, _)) => f.write_str(name),
                None => Ok(()),
            },
        }
    }
}
