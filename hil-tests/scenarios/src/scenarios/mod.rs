//! The scenarios: tests of the requirements on a device. Each states its requirements, creates its own mkeys
//! on any [`crate::board::Board`], and returns an error if the device violates a requirement.
//!
//! Scenarios access the machine only by the `Board` trait: they use no files, threads or clocks, and never
//! panic.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod bare;
mod changed;
mod crypto;
mod data_path;
mod digest;
mod domains;
mod fixture;
mod keys;
mod layout;
mod lists;
mod login;
pub mod measured;
mod peer;
mod prepared;
mod raw;
mod recovery;
mod refusal;
mod rows;
mod scenario;
mod service;
mod signature;
mod state;
mod time;
mod windows;

pub use scenario::{Needs, Scenario, XtsNeed};

const TABLES: &[&[Scenario]] = &[
    access::ALL,
    layout::ALL,
    lists::ALL,
    signature::ALL,
    digest::ALL,
    crypto::ALL,
    rows::ALL,
    state::ALL,
    time::ALL,
    data_path::ALL,
    domains::ALL,
    keys::ALL,
    login::ALL,
    peer::ALL,
    prepared::ALL,
    raw::ALL,
    recovery::ALL,
    refusal::ALL,
    service::ALL,
    windows::ALL,
    bare::ALL,
];

/// Returns all scenarios.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    TABLES.iter().copied().flatten()
}
