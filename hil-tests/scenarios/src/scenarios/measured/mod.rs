//! What no document tells of a device: each measurement asks the device and tells what it found, whatever that is. The
//! numbers are those of `DEVICE.md`, "Gaps: what to measure on a board".
//!
//! They need a device of hardware, since a software device does what we assumed. The tests force them on that one all the
//! same: there each must find the assumption.

mod cipher;
mod integrity;
mod requests;

use super::Needs;
use super::fixture::{MkeyFixture, part};
use crate::board::Board;
use crate::qp_pair::{Moved, Rx, Tx, Verdict};
use alloc::string::String;
use mlx5_mkey::queue::Failure;

/// Where a measurement says what it measured, and the value.
pub type Tell<'t> = &'t mut dyn FnMut(&str, &str);

/// A measurement of something that no document tells.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Its name; it begins with the number of the gap.
    pub name: &'static str,
    /// What it needs of a board.
    pub needs: Needs,
    /// Asks the device. It fails only where nothing can be asked.
    pub run: fn(&mut dyn Board, Tell<'_>) -> Verdict,
}

/// Makes the table entry of the function with the measurement's name.
macro_rules! measurement {
    ($name:ident, $needs:ident) => {
        $crate::scenarios::measured::Measurement {
            name: stringify!($name),
            needs: $crate::scenarios::Needs { hardware: true, ..$crate::scenarios::Needs::$needs },
            run: $name,
        }
    };
}
use measurement;

/// Returns all measurements.
pub fn all() -> impl Iterator<Item = &'static Measurement> {
    [integrity::ALL, cipher::ALL, requests::ALL].into_iter().flatten()
}

/// Bytes in hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Says how a side fared.
pub(super) fn side(failure: Option<Failure>) -> String {
    match failure {
        None => "well".into(),
        Some(Failure { syndrome, vendor, hardware, hardware_type }) => format!(
            "{syndrome} (syndrome {:#04x}, vendor {vendor:#04x}, hardware {hardware:#04x} of type {hardware_type:#04x})",
            syndrome.0
        ),
    }
}

/// What came of a transfer: its bytes on the wire where it went well, else words.
fn outcome(
    fixture: &mut MkeyFixture<'_>,
    moved: Result<Moved, String>,
) -> Result<alloc::vec::Vec<u8>, String> {
    match moved {
        Ok(Moved { wire, requester: None, receiver: None }) => Ok(wire),
        Ok(Moved { requester, receiver, .. }) => {
            fixture.pair.reconnect();
            Err(match receiver {
                None => format!("refused: {}", side(requester)),
                Some(_) => format!("refused: requester {}, receiver {}", side(requester), side(receiver)),
            })
        }
        // A device that does not answer is an answer too.
        Err(what) => {
            fixture.pair.reconnect();
            Err(format!("no completion ({what})"))
        }
    }
}

/// Moves bytes out of the mkey.
fn send(
    fixture: &mut MkeyFixture<'_>,
    way: Tx,
    offset: u64,
    length: usize,
) -> Result<alloc::vec::Vec<u8>, String> {
    let moved = fixture.pair.tx(way, fixture.mkey, offset, length);
    outcome(fixture, moved)
}

/// Moves bytes into the mkey.
fn receive(
    fixture: &mut MkeyFixture<'_>,
    way: Rx,
    offset: u64,
    wire: &[u8],
) -> Result<alloc::vec::Vec<u8>, String> {
    let moved = fixture.pair.rx(way, fixture.mkey, offset, wire);
    outcome(fixture, moved)
}

/// Says whether bytes are those that were expected, and how a transfer fared that has none.
fn compared(found: Result<alloc::vec::Vec<u8>, String>, expected: &[u8]) -> String {
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

/// Names the candidates that fit.
fn fitting<'a>(candidates: impl IntoIterator<Item = (&'a str, bool)>) -> String {
    let names: alloc::vec::Vec<&str> =
        candidates.into_iter().filter(|(_, fits)| *fits).map(|(name, _)| name).collect();
    if names.is_empty() { "none of what was thought of".into() } else { names.join(" or ") }
}
