//! The type of a scenario, and the capabilities that a scenario needs of a board.

use crate::board::{Board, Capabilities, ProtectionDomain};
use crate::qp_pair::Verdict;

/// A test of requirements on a device, which runs on any board with the needed capabilities.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name, which begins with the first requirement.
    pub name: &'static str,
    /// The requirements that the scenario checks, by their numbers in `REQUIREMENTS.md`. Numbers with R come
    /// from the pages of the original specification, numbers with M from other pages or from the device's own
    /// interface.
    pub requirements: &'static [&'static str],
    /// The capabilities that the scenario needs.
    pub needs: Needs,
    /// Runs the scenario on a board.
    pub run: fn(&mut dyn Board) -> Verdict,
}

impl Scenario {
    /// Runs the scenario on a board, beginning in the board's first protection domain. Other scenarios may
    /// have used the board before.
    ///
    /// # Errors
    /// A description of the violation.
    pub fn run_on(&self, board: &mut dyn Board) -> Verdict {
        board.enter(ProtectionDomain::First);
        (self.run)(board)
    }
}

/// The kind of AES-XTS engine that a scenario needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XtsNeed {
    /// The scenario needs no engine.
    Nothing,
    /// An engine of any kind.
    Any,
    /// An engine that encrypts any number of data units per mkey.
    Many,
    /// An engine that encrypts a single data unit per mkey.
    Single,
}

/// The capabilities that a scenario needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The scenario needs block signatures.
    pub signature: bool,
    /// The AES-XTS engine that the scenario needs, if any.
    pub xts: XtsNeed,
    /// The scenario needs send queues that drain at a signature error.
    pub drain: bool,
    /// The scenario needs hardware.
    pub hardware: bool,
    /// The scenario needs logins (with a credential), and wrapped keys.
    pub login: bool,
    /// The scenario needs a board that runs the programs of the storage example.
    pub programs: bool,
    /// The scenario needs mkeys whose entries have one common length.
    pub fixed_entries: bool,
    /// The scenario needs mkeys with more than 65,535 entries.
    pub long_lists: bool,
    /// The scenario needs requests that copy memory.
    pub memcpy: bool,
    /// The scenario needs atomics under masks.
    pub masked_atomics: bool,
    /// The scenario needs configurations that allow relaxed PCIe ordering.
    pub relaxed_ordering: bool,
    /// The scenario needs DEKs whose value can be replaced.
    pub dek_modify: bool,
    /// The scenario needs the clock that timestamps completions, readable by programs.
    pub clock: bool,
    /// The scenario needs a device that no driver has initialized.
    pub bare: bool,
}

impl Needs {
    /// No needs: the scenario runs on every board.
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
        masked_atomics: false,
        relaxed_ordering: false,
        dek_modify: false,
        clock: false,
        bare: false,
    };
    /// Needs block signatures.
    pub const SIGNATURE: Self = Self { signature: true, ..Self::NOTHING };
    /// Needs AES-XTS by an engine of any kind.
    pub const CRYPTO_UNIT: Self = Self { xts: XtsNeed::Any, ..Self::NOTHING };
    /// Needs AES-XTS by an engine that encrypts many data units per mkey.
    pub const CRYPTO: Self = Self { xts: XtsNeed::Many, ..Self::NOTHING };
    /// Needs AES-XTS by an engine that encrypts only one data unit per mkey.
    pub const CRYPTO_SINGLE: Self = Self { xts: XtsNeed::Single, ..Self::NOTHING };
    /// Needs block signatures, and AES-XTS by an engine of any kind.
    pub const BOTH_UNIT: Self = Self { signature: true, ..Self::CRYPTO_UNIT };
    /// Needs block signatures, and AES-XTS by an engine that encrypts many data units per mkey.
    pub const BOTH: Self = Self { signature: true, ..Self::CRYPTO };
    /// Needs block signatures, and AES-XTS by an engine that encrypts only one data unit per mkey.
    pub const BOTH_SINGLE: Self = Self { signature: true, ..Self::CRYPTO_SINGLE };
    /// Needs block signatures, and send queues that drain at a signature error.
    pub const DRAIN: Self = Self { drain: true, ..Self::SIGNATURE };
    /// Needs block signatures, AES-XTS by an engine of any kind, and the programs of the storage example.
    pub const PROGRAMS: Self = Self { programs: true, ..Self::BOTH_UNIT };
    /// Needs mkeys whose entries have one common length.
    pub const FIXED_ENTRIES: Self = Self { fixed_entries: true, ..Self::NOTHING };
    /// Needs mkeys with more than 65,535 entries.
    pub const LONG_LISTS: Self = Self { long_lists: true, ..Self::NOTHING };
    /// Needs requests that copy memory.
    pub const MEMCPY: Self = Self { memcpy: true, ..Self::NOTHING };
    /// Needs atomics under masks.
    pub const MASKED_ATOMICS: Self = Self { masked_atomics: true, ..Self::NOTHING };
    /// Needs configurations that allow relaxed PCIe ordering.
    pub const RELAXED_ORDERING: Self = Self { relaxed_ordering: true, ..Self::NOTHING };
    /// Needs DEKs whose value can be replaced, and AES-XTS by an engine of any kind.
    pub const DEK_MODIFY: Self = Self { dek_modify: true, ..Self::CRYPTO_UNIT };
    /// Needs the clock that timestamps completions, readable by programs.
    pub const CLOCK: Self = Self { clock: true, ..Self::NOTHING };
    /// Needs logins, wrapped keys, and AES-XTS by an engine of any kind.
    pub const LOGIN: Self = Self { login: true, ..Self::CRYPTO_UNIT };

    /// Needs a device that no driver has initialized.
    pub const BARE: Self = Self { bare: true, ..Self::NOTHING };

    /// Returns the names of the needed capabilities, in the spelling of [`Capabilities::names`].
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.named().map(|(name, _)| name)
    }

    /// Returns the description of the first needed capability that the board lacks, or `None` if the scenario
    /// can run.
    pub fn missing(&self, board: &Capabilities) -> Option<&'static str> {
        self.named().find(|(name, _)| board.names().all(|has| has != *name)).map(|(_, words)| words)
    }

    /// Returns the description of a needed capability, by its name.
    pub fn words(&self, name: &str) -> Option<&'static str> {
        self.named().find(|(known, _)| *known == name).map(|(_, words)| words)
    }

    /// Returns the name and the description of each needed capability.
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
            (self.masked_atomics, "masked-atomics", "atomics under masks"),
            (self.relaxed_ordering, "relaxed-ordering", "configurations that relax the order of transfers"),
            (self.dek_modify, "dek-modify", "keys that are given other values (SYNC_CRYPTO)"),
            (self.clock, "clock", "a clock of the device that programs can read"),
            (self.bare, "bare", "a device that no driver has"),
        ];
        named.into_iter().filter(|(needs, ..)| *needs).map(|(_, name, words)| (name, words))
    }
}

/// Makes a `Scenario` of the function `$name`, with the capabilities that it needs and its requirements.
macro_rules! scenario {
    ($name:ident, $needs:ident, [$($requirement:literal),+]) => {
        $crate::scenarios::scenario::Scenario {
            name: stringify!($name),
            requirements: &[$($requirement),+],
            needs: $crate::scenarios::scenario::Needs::$needs,
            run: $name,
        }
    };
}
pub(super) use scenario;
