//! What can go wrong, and where: the words of a plan.

use std::fmt;

/// Where something can go wrong.
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
    /// Bytes of another process are read.
    Wire,
}

impl Place {
    /// All, in order.
    pub const ALL: [Self; 7] =
        [Self::Call, Self::End, Self::Read, Self::Completion, Self::Signature, Self::Message, Self::Wire];

    /// Returns its word.
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
    /// It is taken out: nothing outstanding is completed, and the kernel has destroyed all objects. It takes
    /// no call any more but to destroy them (`rdma_lookup_get_uobject` in
    /// drivers/infiniband/core/rdma_core.c).
    Removed,
    /// It fails: all that is outstanding is flushed, what is destroyed is destroyed, and all other calls
    /// fail.
    Failed,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is not carried out. A command to the device has this status as its answer, if that is not 0.
    Fails {
        /// What the kernel says.
        errno: i32,
        /// What the device says, where a command goes to it; 0 for nothing.
        status: u8,
    },
    /// A command that changes something is carried out, and said to have failed. Another call is not carried
    /// out.
    Unheard,
    /// The answer or the completion takes its time.
    Late,
    /// A read returns a part of what there is.
    Short,
    /// The completion is written twice.
    Twice,
    /// The completion is not written.
    Dropped,
    /// Before the completion there is one of nobody's.
    Stranger,
    /// The completion queue has no room.
    Overrun,
    /// The message does not arrive.
    Lost,
    /// The process is killed.
    Dies,
    /// The device ends, for all contexts that are open.
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

/// Faults without a number.
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

    /// Whether it can happen at a place.
    pub(crate) fn fits(self, place: Place) -> bool {
        match self {
            Self::Ends(_) => true,
            Self::Fails { .. } => matches!(place, Place::Call | Place::End | Place::Read),
            other => Self::of(place).contains(&other),
        }
    }

    /// Reads a fault's word.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        if let Some(status) = word.strip_prefix("status:") {
            return Some(Self::Fails { errno: libc::EREMOTEIO, status: status.parse().ok()? });
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
