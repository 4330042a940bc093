//! A measurement, and the functions that measurements share.

use super::super::fixture::{MkeyFixture, part};
use super::super::scenario::Needs;
use crate::board::Board;
use crate::qp_pair::{Moved, Rx, Tx, Verdict};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::queue::{Failure, Outcome, WorkCompletion};

/// The function by which a measurement reports a value: its arguments are the value's name and the value.
pub type Tell<'t> = &'t mut dyn FnMut(&str, &str);

/// A measurement of a behaviour that no document states.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// The name, which begins with the number of an open question about devices ("gap" in `DEVICE.md`).
    pub name: &'static str,
    /// The capabilities that the measurement needs.
    pub needs: Needs,
    /// Measures the behaviour. Fails only if it cannot be measured.
    pub run: fn(&mut dyn Board, Tell<'_>) -> Verdict,
}

/// Makes a `Measurement` of the function `$name`. Beside `$needs`, all measurements need hardware.
macro_rules! measurement {
    ($name:ident, $needs:ident) => {
        $crate::scenarios::measured::measurement::Measurement {
            name: stringify!($name),
            needs: $crate::scenarios::scenario::Needs {
                hardware: true,
                ..$crate::scenarios::scenario::Needs::$needs
            },
            run: $name,
        }
    };
}
pub(super) use measurement;

/// Returns bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Describes the result of a transfer at one side: success, or the fields of the error completion.
pub(crate) fn side(failure: Option<Failure>) -> String {
    match failure {
        None => "well".into(),
        Some(Failure { syndrome, vendor, hardware, hardware_type }) => format!(
            "{syndrome} (syndrome {:#04x}, vendor {vendor:#04x}, \
             hardware {hardware:#04x} of type {hardware_type:#04x})",
            syndrome.0
        ),
    }
}

/// Describes completions: the number of each request, and its result.
pub(super) fn told(done: &[WorkCompletion]) -> String {
    let words = |done: &WorkCompletion| match done.outcome {
        Outcome::Failed(failure) => format!("request {}: {}", done.id, side(Some(failure))),
        _ => format!("request {}: {}", done.id, side(None)),
    };
    let words: Vec<String> = done.iter().map(words).collect();
    if words.is_empty() { "no completion".into() } else { words.join("; ") }
}

/// Returns the bytes on the wire of a successful transfer. After a failure, reconnects both ends and returns
/// a description of the failure.
pub(super) fn outcome(
    fixture: &mut MkeyFixture<'_>,
    moved: Result<Moved, String>,
) -> Result<Vec<u8>, String> {
    match moved {
        Ok(Moved { wire, requester: None, receiver: None }) => Ok(wire),
        Ok(Moved { requester, receiver, .. }) => {
            fixture.pair.reconnect();
            Err(match receiver {
                None => format!("refused: {}", side(requester)),
                Some(_) => format!("refused: requester {}, receiver {}", side(requester), side(receiver)),
            })
        }
        // If a transfer has no completion, the measurement reports that as its result.
        Err(what) => {
            fixture.pair.reconnect();
            Err(format!("no completion ({what})"))
        }
    }
}

/// Moves bytes out of the mkey. Returns the bytes on the wire, or a description of the failure.
pub(super) fn send(
    fixture: &mut MkeyFixture<'_>,
    way: Tx,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, String> {
    let moved = fixture.pair.tx(way, fixture.mkey, offset, length);
    outcome(fixture, moved)
}

/// Moves bytes into the mkey. Returns the bytes on the wire, or a description of the failure.
pub(super) fn receive(
    fixture: &mut MkeyFixture<'_>,
    way: Rx,
    offset: u64,
    wire: &[u8],
) -> Result<Vec<u8>, String> {
    let moved = fixture.pair.rx(way, fixture.mkey, offset, wire);
    outcome(fixture, moved)
}

/// Describes the result of a transfer in words: the expected bytes, other bytes and where they differ, or the
/// failure.
pub(super) fn compared(found: Result<Vec<u8>, String>, expected: &[u8]) -> String {
    match found {
        Err(what) => what,
        Ok(found) if found == expected => "the expected bytes".into(),
        Ok(found) => {
            let at = found.iter().zip(expected).position(|(found, expected)| found != expected).unwrap_or(0);
            let end = found.len().min(at + 16);
            format!("other bytes, from byte {at} on: {}", hex(part(&found, at..end)))
        }
    }
}

/// Returns, as one text, the names of those candidates (hypotheses about the device) that fit the measured
/// value.
pub(super) fn fitting<'a>(candidates: impl IntoIterator<Item = (&'a str, bool)>) -> String {
    let names: Vec<&str> = candidates.into_iter().filter(|(_, fits)| *fits).map(|(name, _)| name).collect();
    if names.is_empty() { "none of what was thought of".into() } else { names.join(" or ") }
}
