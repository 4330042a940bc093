//! What a device must do, told as scenarios: each names the requirement that it shows, makes its own mkeys on any
//! [`Board`], and returns what it found wrong.
//!
//! Scenarios know the `Board` trait and nothing of the machine: no files, threads or clocks, and no panics.

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
mod service;
mod signature;
mod state;
mod time;
mod windows;

use crate::board::{Board, Capabilities, ProtectionDomain};
use crate::qp_pair::Verdict;

/// One thing that a device must do.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name; it begins with the requirement.
    pub name: &'static str,
    /// Requirements that it shows, such as "R39"; those of related pages are "M9" and so on.
    pub requirements: &'static [&'static str],
    /// What it needs of a board.
    pub needs: Needs,
    /// Runs it on a board.
    pub run: fn(&mut dyn Board) -> Verdict,
}

impl Scenario {
    /// Runs it on a board that others may have used before.
    ///
    /// # Errors
    /// What it found wrong.
    pub fn run_on(&self, board: &mut dyn Board) -> Verdict {
        board.enter(ProtectionDomain::First);
        (self.run)(board)
    }
}

/// What a scenario needs of the AES-XTS engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XtsNeed {
    /// There may be none.
    Nothing,
    /// One of any kind.
    Any,
    /// One that encrypts any number of data units.
    Many,
    /// One that encrypts a single data unit for an mkey.
    Single,
}

/// What a scenario needs of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Block signatures.
    pub signature: bool,
    /// AES-XTS.
    pub xts: XtsNeed,
    /// Draining on signature errors.
    pub drain: bool,
    /// A device that nobody has written as a program.
    pub hardware: bool,
    /// Logins, and keys that are wrapped.
    pub login: bool,
    /// Programs of its own.
    pub programs: bool,
    /// Mkeys whose entries are all of one length.
    pub fixed_entries: bool,
    /// Mkeys with more entries than 16 bits count.
    pub long_lists: bool,
    /// Requests that copy memory.
    pub memcpy: bool,
    /// Orderings that configurations relax.
    pub relaxed_ordering: bool,
    /// Keys that are given other values.
    pub dek_modify: bool,
    /// A clock that can be read.
    pub clock: bool,
    /// A device that no driver has.
    pub bare: bool,
}

impl Needs {
    /// What every board has.
    pub const NOTHING: Self = Self {
        signature: false,
        xts: XtsNeed::Nothing,
        drain: false,
        login: false,
        hardware: false,
        programs: false,
        fixed_entries: false,
        long_lists: false,
        memcpy: false,
        relaxed_ordering: false,
        dek_modify: false,
        clock: false,
        bare: false,
    };
    /// Block signatures.
    pub const SIGNATURE: Self = Self { signature: true, ..Self::NOTHING };
    /// AES-XTS over single data units.
    pub const CRYPTO_UNIT: Self = Self { xts: XtsNeed::Any, ..Self::NOTHING };
    /// AES-XTS over many data units.
    pub const CRYPTO: Self = Self { xts: XtsNeed::Many, ..Self::NOTHING };
    /// AES-XTS over single data units, and no more.
    pub const CRYPTO_SINGLE: Self = Self { xts: XtsNeed::Single, ..Self::NOTHING };
    /// Block signatures and AES-XTS over single data units.
    pub const BOTH_UNIT: Self = Self { signature: true, ..Self::CRYPTO_UNIT };
    /// Block signatures and AES-XTS.
    pub const BOTH: Self = Self { signature: true, ..Self::CRYPTO };
    /// Block signatures, and AES-XTS over single data units and no more.
    pub const BOTH_SINGLE: Self = Self { signature: true, ..Self::CRYPTO_SINGLE };
    /// Draining on signature errors.
    pub const DRAIN: Self = Self { drain: true, ..Self::SIGNATURE };
    /// Block signatures and AES-XTS over single data units, and programs that use both.
    pub const PROGRAMS: Self = Self { programs: true, ..Self::BOTH_UNIT };
    /// Mkeys whose entries are all of one length.
    pub const FIXED_ENTRIES: Self = Self { fixed_entries: true, ..Self::NOTHING };
    /// Mkeys with more entries than 16 bits count.
    pub const LONG_LISTS: Self = Self { long_lists: true, ..Self::NOTHING };
    /// Requests that copy memory.
    pub const MEMCPY: Self = Self { memcpy: true, ..Self::NOTHING };
    /// Orderings that configurations relax.
    pub const RELAXED_ORDERING: Self = Self { relaxed_ordering: true, ..Self::NOTHING };
    /// Keys that are given other values, and AES-XTS over single data units.
    pub const DEK_MODIFY: Self = Self { dek_modify: true, ..Self::CRYPTO_UNIT };
    /// A clock that can be read.
    pub const CLOCK: Self = Self { clock: true, ..Self::NOTHING };
    /// Wrapped keys and AES-XTS over single data units.
    pub const LOGIN: Self = Self { login: true, ..Self::CRYPTO_UNIT };

    /// A device that no driver has.
    pub const BARE: Self = Self { bare: true, ..Self::NOTHING };

    /// Returns the names of what it needs, as [`Capabilities::names`] has them.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.named().map(|(name, _)| name)
    }

    /// Returns what a board lacks, `None` where the scenario can run.
    pub fn missing(&self, board: &Capabilities) -> Option<&'static str> {
        self.named().find(|(name, _)| board.names().all(|has| has != *name)).map(|(_, words)| words)
    }

    /// Returns what it needs, by name and in words.
    fn named(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let named = [
            (self.hardware, "hardware", "hardware (a software device does what was assumed)"),
            (self.xts == XtsNeed::Any, "xts", "AES-XTS"),
            (self.xts == XtsNeed::Many, "xts-many", "AES-XTS over many data units"),
            (self.xts == XtsNeed::Single, "xts-single", "an AES-XTS engine of single data units"),
            (self.signature, "signature", "block signatures"),
            (
                self.drain,
                "drain",
                "queues that drain on signature errors and go on (Linux lets those of libibverbs only)",
            ),
            (self.login, "login", "logins: it takes keys in plaintext, or nobody knows what to log in with"),
            (self.fixed_entries, "fixed-entries", "mkeys whose entries are all of one length"),
            (self.long_lists, "long-lists", "mkeys with more entries than 16 bits count"),
            (self.programs, "programs", "the programs of the storage example, or keys in plaintext for them"),
            (self.memcpy, "memcpy", "requests that copy memory"),
            (self.relaxed_ordering, "relaxed-ordering", "configurations that relax the order of transfers"),
            (self.dek_modify, "dek-modify", "keys that are given other values (SYNC_CRYPTO)"),
            (self.clock, "clock", "a clock of the device that programs can read"),
            (self.bare, "bare", "a device that no driver has"),
        ];
        named.into_iter().filter(|(needs, ..)| *needs).map(|(_, name, words)| (name, words))
    }
}

/// Makes the table entry of the function with the scenario's name.
macro_rules! scenario {
    ($name:ident, $needs:ident, [$($requirement:literal),+]) => {
        $crate::scenarios::Scenario {
            name: stringify!($name),
            requirements: &[$($requirement),+],
            needs: $crate::scenarios::Needs::$needs,
            run: $name,
        }
    };
}
use scenario;

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
