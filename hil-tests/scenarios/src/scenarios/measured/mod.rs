//! Measurements of device behaviour that no document states. Each measurement reports its values. The numbers
//! in their names refer to the table "Gaps: what to measure on a board" of `DEVICE.md`.
//!
//! A measurement needs hardware: a software device only shows what its authors assumed. Unit tests also run
//! all measurements on the software device, where each must report the assumed value.

mod cipher;
mod fields;
mod integrity;
pub(super) mod measurement;
mod places;
mod queues;
mod refusals;
mod requests;
mod transactions;

pub use measurement::{Measurement, Tell};

/// Returns all measurements.
pub fn all() -> impl Iterator<Item = &'static Measurement> {
    [
        integrity::ALL,
        cipher::ALL,
        requests::ALL,
        places::ALL,
        transactions::ALL,
        refusals::ALL,
        queues::ALL,
        fields::ALL,
    ]
    .into_iter()
    .flatten()
}
