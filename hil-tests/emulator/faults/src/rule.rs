//! Rules, each of which names a fault and the time at which it happens.

use crate::incident::{Incident, number};
use crate::kinds::kinds;
use crate::word::{Fault, Place};
use std::fmt;

kinds! {
    /// A kind of call that a program makes to the device, through libibverbs.
    CallKind;
    /// Returns the name of the kind.
    name;
    /// The opening of the device's file (`ibv_open_device`).
    Open "OPEN",
    /// The first call after the opening of the device's file (`ibv_open_device`).
    GetContext "GET_CONTEXT",
    /// `ibv_query_device`, also as a part of `ibv_open_device`.
    QueryDevice "QUERY_DEVICE",
    /// `ibv_query_port`.
    QueryPort "QUERY_PORT",
    /// `ibv_query_gid_ex` and `ibv_query_gid_table`.
    QueryGid "QUERY_GID",
    /// `ibv_alloc_pd`.
    AllocPd "ALLOC_PD",
    /// `ibv_create_ah`.
    CreateAh "CREATE_AH",
    /// `ibv_reg_mr` and the other functions that register memory.
    RegMr "REG_MR",
    /// `ibv_alloc_mw`.
    AllocMw "ALLOC_MW",
    /// `ibv_create_comp_channel`.
    CreateCompChannel "CREATE_COMP_CHANNEL",
    /// `ibv_create_cq` and the other functions that create completion queues.
    CreateCq "CREATE_CQ",
    /// `ibv_create_qp` and the other functions that create queue pairs.
    CreateQp "CREATE_QP",
    /// `ibv_modify_qp`.
    ModifyQp "MODIFY_QP",
    /// `ibv_query_qp`.
    QueryQp "QUERY_QP",
    /// `ibv_create_srq` and the other functions that create shared receive queues.
    CreateSrq "CREATE_SRQ",
}

/// The part of a rule that selects the visits that the rule counts. A visit is an occurrence of the action at
/// the rule's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All visits.
    Any,
    /// Visits that concern this queue pair, by its number.
    QueuePair(u32),
    /// Calls of this kind.
    Call(CallKind),
}

/// A fault, and when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The fault happens when a place is visited. [`crate::requests`] and the functions beside it make rules
    /// of this form.
    At {
        /// The place of the fault.
        place: Place,
        /// The visits to the place that the rule counts.
        subject: Subject,
        /// The visit at which the fault happens, counted from 1. Counting begins when the emulator gets the
        /// rule.
        nth: u64,
        /// Whether later visits have the fault too. A rule for calls then applies to all later calls of the
        /// same kind as the call that has failed. Any other rule applies to all later visits that it counts.
        stays: bool,
        /// The kind of fault.
        fault: Fault,
    },
    /// The incident happens at once.
    Now(Incident),
}

/// The error for a word that is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no fault", self.0)
    }
}

impl std::error::Error for Unknown {}

/// The word before the equals sign in a rule whose incident happens at once: `now=port-down`.
const NOW: &str = "now";

impl Rule {
    /// Parses a rule's word: `PLACE@N=FAULT`, `PLACE:SUBJECT@N=FAULT`, both also with `N+` (the visit and all
    /// later ones) instead of `N`, or `now=INCIDENT`.
    ///
    /// # Errors
    /// [`Unknown`] for any other word.
    pub fn parse(word: &str) -> Result<Self, Unknown> {
        Self::parsed(word).ok_or_else(|| Unknown(word.into()))
    }

    fn parsed(word: &str) -> Option<Self> {
        let (left, right) = word.split_once('=')?;
        if left == NOW {
            return Incident::parse(right).map(Self::Now);
        }
        let (left, nth) = left.split_once('@')?;
        let (place, subject) = left.split_once(':').map_or((left, None), |(place, of)| (place, Some(of)));
        let place = Place::named(place)?;
        let subject = subject.map_or(Some(Subject::Any), |subject| place.subject(subject))?;
        let (nth, stays) = nth.strip_suffix('+').map_or((nth, false), |nth| (nth, true));
        let (nth, fault) = (nth.parse().ok()?, Fault::parse(right, place)?);
        (nth > 0).then_some(Self::At { place, subject, nth, stays, fault })
    }
}

impl Place {
    /// Parses the subject in a rule's word: the number of a queue pair, or the kind of a call. Only some
    /// places have subjects.
    fn subject(self, word: &str) -> Option<Subject> {
        match self {
            Self::Request | Self::Receive | Self::Completion => number(word).map(Subject::QueuePair),
            Self::Call => CallKind::named(word).map(Subject::Call),
            _ => None,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(incident) => write!(f, "{NOW}={incident}"),
            Self::At { place, subject, nth, stays, fault } => {
                f.write_str(place.name())?;
                match subject {
                    Subject::Any => {}
                    Subject::QueuePair(number) => write!(f, ":{number:#x}")?,
                    Subject::Call(kind) => write!(f, ":{}", kind.name())?,
                }
                write!(f, "@{nth}{}={fault}", if *stays { "+" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::{DeviceEvent, QueueEvent};
    use crate::status::Status;
    use crate::visits::{calls, completions, ends, receives, requests};
    use std::num::NonZeroU32;
    use std::time::Duration;

    /// Each row has a rule, made by the typed functions, and the word of this rule.
    #[test]
    fn rules_and_words_say_the_same() {
        let rows = [
            (requests(1).fail(Status::General), "request@1=GENERAL_ERR"),
            (requests(2).of(0x41).and_later().lose(), "request:0x41@2+=lost"),
            (requests(3).delay(Duration::from_micros(1500)), "request@3=delay:1500"),
            (requests(4).not_ready(NonZeroU32::MIN), "request@4=rnr:1"),
            (requests(5).of(7).hang(), "request:0x7@5=hangs"),
            (requests(0).raise(Incident::PortUp), "request@1=port-up"),
            (receives(6).of(9).fail(Status::LocalLength), "receive:0x9@6=LOC_LEN_ERR"),
            (completions(1).of(9).lose(), "completion:0x9@1=dropped"),
            (completions(1).delay(), "completion@1=late"),
            (completions(1).repeat(), "completion@1=twice"),
            (completions(1).precede(), "completion@1=stranger"),
            (completions(1).overrun(), "completion@1=overrun"),
            (calls(1).named(CallKind::AllocPd).fail(libc::ENOMEM), "call:ALLOC_PD@1=ENOMEM"),
            (calls(1).refuse(8), "call@1=status:8"),
            (calls(1).delay(), "call@1=late"),
            (calls(1).lose_answer(), "call@1=unheard"),
            (ends(2).and_later().fail(libc::ENOSPC), "end@2+=errno:28"),
            (Rule::Now(Incident::GidsGone), "now=gids-gone"),
            (Rule::Now(Incident::Device(DeviceEvent::Speed)), "now=DEVICE_SPEED_CHANGE"),
            (Rule::Now(Incident::Queue { event: QueueEvent::Fatal, queue_pair: 0x41 }), "now=QP_FATAL:0x41"),
        ];
        for (rule, word) in rows {
            assert_eq!(rule.to_string(), word);
            assert_eq!(Rule::parse(word), Ok(rule), "{word}");
        }
        let statuses = Status::ALL.map(|status| requests(1).fail(status));
        let queues = QueueEvent::ALL.map(|event| Incident::Queue { event, queue_pair: 1 });
        let devices = DeviceEvent::ALL.map(Incident::Device);
        let kinds = CallKind::ALL.map(|kind| calls(1).named(kind).delay());
        let incidents = queues.into_iter().chain(devices).map(Rule::Now);
        for rule in statuses.into_iter().chain(incidents).chain(kinds) {
            assert_eq!(Rule::parse(&rule.to_string()), Ok(rule), "{rule}");
        }
    }

    #[test]
    fn nonsense_is_no_rule() {
        for word in [
            "",
            "now",
            "now=EIO",
            "now=late",
            "now:5=removed",
            "now=QP_FATAL",
            "now=GID_CHANGE:5",
            "request=lost",
            "request@0=lost",
            "request@1=EIO",
            "request@1=rnr:0",
            "request@1=rnr",
            "request@1=delay:",
            "request:@1=lost",
            "request:0x@1=lost",
            "request:0x+1@1=lost",
            "request:EIO@1=lost",
            "receive@1=lost",
            "receive@1=hangs",
            "call:NOTHING@1=EIO",
            "call:5@1=EIO",
            "end:5@1=EIO",
            "completion@1=LOC_LEN_ERR",
            "message:5@1=lost",
        ] {
            assert_eq!(Rule::parse(word), Err(Unknown(word.into())));
        }
    }
}
