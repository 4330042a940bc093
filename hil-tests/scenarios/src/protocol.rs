//! The protocol between a program that runs cases and `cargo xtask hil`, which reads the program's standard
//! output: one line per event.
//!
//! All lines that are no events are log messages. The module needs only `core`, so that a bare-metal image
//! can use it.

use core::fmt;

/// The first bytes of each event's line.
const PREFIX: &str = "hil: ";

/// An event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// There is no usable device, for this reason. No event follows.
    NoDevice(&'a str),
    /// A property of the device or of its machine, in words. All properties come before [`Event::Cases`].
    About {
        /// The name of the property. It does not contain " = ".
        what: &'a str,
        /// The value of the property.
        value: &'a str,
    },
    /// A capability of the board. All capabilities come before [`Event::Cases`].
    Capability(&'a str),
    /// The number of selected cases. All other events about cases follow.
    Cases(u32),
    /// A case begins.
    Start(&'a str),
    /// A case has passed.
    Passed(&'a str),
    /// A case has failed.
    Failed {
        /// The name of the case.
        name: &'a str,
        /// The reason of the failure.
        reason: &'a str,
    },
    /// The board cannot run a case.
    Skipped {
        /// The name of the case.
        name: &'a str,
        /// The missing capability.
        reason: &'a str,
    },
    /// A running case has measured a value that no document states.
    Measured {
        /// The name of the case.
        name: &'a str,
        /// The name of the value. It does not contain " = ".
        what: &'a str,
        /// The measured value.
        value: &'a str,
    },
    /// A log line: any line that is no event. Log lines about a failed case come before its
    /// [`Event::Failed`].
    Log(&'a str),
    /// All selected cases have ended.
    Done,
}

impl<'a> Event<'a> {
    /// Parses a line, with or without its line end. Returns `None` for a log line.
    pub fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim_end_matches(['\r', '\n']).strip_prefix(PREFIX)?;
        if line == "done" {
            return Some(Self::Done);
        }
        if let Some(reason) = line.strip_prefix("no device: ") {
            return Some(Self::NoDevice(reason));
        }
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "about" => rest.split_once(" = ").map(|(what, value)| Self::About { what, value }),
            "cases" => rest.parse().ok().map(Self::Cases),
            "capability" => name(rest).map(Self::Capability),
            "start" => name(rest).map(Self::Start),
            "passed" => name(rest).map(Self::Passed),
            "failed" => told(rest).map(|(name, reason)| Self::Failed { name, reason }),
            "skipped" => told(rest).map(|(name, reason)| Self::Skipped { name, reason }),
            "measured" => {
                let (name, rest) = told(rest)?;
                let (what, value) = rest.split_once(" = ")?;
                Some(Self::Measured { name, what, value })
            }
            _ => None,
        }
    }
}

/// Returns the text if it is a valid name of a case or a capability.
fn name(text: &str) -> Option<&str> {
    (!text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())).then_some(text)
}

/// Splits a text of the form `NAME: REST` into the name of a case and the rest.
fn told(text: &str) -> Option<(&str, &str)> {
    let (before, behind) = text.split_once(": ")?;
    Some((name(before)?, behind))
}

/// Writes the event's line without its line end. Control characters in texts, such as line ends, become
/// blanks.
impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Log(line) = self {
            // A log line that begins like an event gets a blank in front, so that it is not taken for an
            // event.
            let blank = if line.starts_with(PREFIX) { " " } else { "" };
            return write!(f, "{blank}{}", OneLine(line));
        }
        f.write_str(PREFIX)?;
        match *self {
            Self::Log(_) => Ok(()),
            Self::NoDevice(reason) => write!(f, "no device: {}", OneLine(reason)),
            Self::About { what, value } => write!(f, "about {} = {}", OneLine(what), OneLine(value)),
            Self::Capability(name) => write!(f, "capability {}", OneLine(name)),
            Self::Cases(count) => write!(f, "cases {count}"),
            Self::Start(name) => write!(f, "start {}", OneLine(name)),
            Self::Passed(name) => write!(f, "passed {}", OneLine(name)),
            Self::Failed { name, reason } => write!(f, "failed {}: {}", OneLine(name), OneLine(reason)),
            Self::Skipped { name, reason } => write!(f, "skipped {}: {}", OneLine(name), OneLine(reason)),
            Self::Measured { name, what, value } => {
                write!(f, "measured {}: {} = {}", OneLine(name), OneLine(what), OneLine(value))
            }
            Self::Done => f.write_str("done"),
        }
    }
}

/// A text whose control characters print as blanks.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.split(char::is_control);
        f.write_str(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| write!(f, " {part}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn lines_are_as_the_readme_has_them() {
        for (line, event) in [
            ("hil: no device: no mlx5 here", Event::NoDevice("no mlx5 here")),
            ("hil: about device = mlx5_0", Event::About { what: "device", value: "mlx5_0" }),
            ("hil: capability xts", Event::Capability("xts")),
            ("hil: cases 3", Event::Cases(3)),
            ("hil: start a::b", Event::Start("a::b")),
            ("hil: passed a", Event::Passed("a")),
            ("hil: failed a: 1: not 2", Event::Failed { name: "a", reason: "1: not 2" }),
            ("hil: skipped a: lacks b", Event::Skipped { name: "a", reason: "lacks b" }),
            ("hil: measured a: b c = d = e", Event::Measured { name: "a", what: "b c", value: "d = e" }),
            ("hil: done", Event::Done),
        ] {
            assert_eq!(Event::parse(line), Some(event));
            assert_eq!(Event::parse(&format!("{line}\r\n")), Some(event));
            assert_eq!(event.to_string(), line);
        }
    }

    #[test]
    fn anything_else_is_log() {
        for line in [
            "",
            "hil",
            "hil:",
            "hil: ",
            "hil: about the device",
            "hil: cases",
            "hil: cases many",
            "hil: cases -1",
            "hil: start ",
            "hil: start two words",
            "hil: failed a",
            "hil: failed two words: why",
            "hil: measured a: b",
            "hil: finished a",
            " hil: done",
            "hil: done.",
        ] {
            assert_eq!(Event::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_line_of_log_is_no_event() {
        for line in ["two words", "hil: done", "hil: passed a\nhil: done"] {
            assert_eq!(Event::parse(&Event::Log(line).to_string()), None, "{line:?}");
        }
    }

    #[test]
    fn a_reason_stays_on_its_line() {
        let event = Event::Failed { name: "a", reason: "one\nhil: passed a\r\ntwo" };
        assert_eq!(event.to_string(), "hil: failed a: one hil: passed a  two");
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_is_log(line in ".*") {
            let _ = Event::parse(&line);
            let _ = Event::parse(&format!("{PREFIX}{line}"));
        }

        #[test]
        fn what_is_written_is_read(
            name in "[a-z0-9_:]*[a-z0-9_]",
            reason in "[^\\p{Cc}]*",
            value in "[^\\p{Cc}]*",
        ) {
            for event in [
                Event::Failed { name: &name, reason: &reason },
                Event::Skipped { name: &name, reason: &reason },
                Event::Measured { name: &name, what: "a value", value: &value },
            ] {
                let line = event.to_string();
                prop_assert_eq!(Event::parse(&line), Some(event));
            }
        }
    }
}
