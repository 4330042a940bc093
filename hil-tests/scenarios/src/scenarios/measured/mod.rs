//! Measurements of device behaviour that no document states: each asks the device and reports the value. The
//! numbers are those of `DEVICE.md`, "Gaps: what to measure on a board".
//!
//! A measurement needs hardware, because a software device behaves as we assumed. The tests run them on the
//! software device too: there each must return the assumption.

mod cipher;
mod integrity;
pub(super) mod measurement;
mod requests;

pub use measurement::{Measurement, Tell};

/// Returns all measurements.
pub fn all() -> impl Iterator<Item = &'static Measurement> {
    [integrity::ALL, cipher::ALL, requests::ALL].into_iter().flatten()
}
