//! The counts of a run of the differential test. Some of them must not be 0, because the run would then have
//! missed a feature.

use super::lifted::Lifted;
use super::sizes::{MIN_BLOCKS, SIZES};
use crate::way::Way;
use std::fmt;

/// The result of a run of the differential test, which compares libmlx5 and the library ("both sides"). A
/// chain is a series of requests that are posted together.
#[derive(Debug, Default)]
pub struct Tally {
    pub(super) chains: u64,
    /// Configurations of mkeys in all chains.
    pub(super) configurations: u64,
    /// Configurations in chains that both sides have posted.
    pub(super) posted: u64,
    /// Blocks that both sides have written, and that were compared.
    pub(super) blocks: u64,
    /// Chains with a difference between the sides.
    pub(super) differ: u64,
    /// Chains that both sides refuse.
    pub(super) refused: u64,
    /// Calls of `mlx5dv_mkey_check` that found no error, while the library found none either.
    pub(super) without_error: u64,
    /// Errors that both sides decode by different signatures. For these, only the presence of the error was
    /// compared (`check.rs`).
    pub(super) presence_only: u64,
    /// Descriptions of the first differences.
    pub(super) differences: Vec<String>,
    pub(super) coverage: Coverage,
}

impl Tally {
    /// Returns whether nothing differs and no feature is missing.
    pub fn is_good(&self) -> bool {
        self.differ == 0 && !self.coverage.misses_a_feature()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chains, configurations, posted, blocks, differ, refused, .. } = self;
        self.differences.iter().try_for_each(|difference| writeln!(f, "{difference}"))?;
        writeln!(
            f,
            "{chains} chains, {posted} configurations in those that both sides post, {blocks} blocks compared"
        )?;
        let counts = self.coverage.counts();
        counts.iter().try_for_each(|(what, count)| writeln!(f, "  {count:>8} {what}"))?;
        writeln!(
            f,
            "mkey_check: {} errors compared in full, {} in presence only, {} times no error",
            self.coverage.checked, self.presence_only, self.without_error
        )?;
        let missing = counts.iter().filter(|(_, count)| *count == 0);
        missing.into_iter().try_for_each(|(what, _)| writeln!(f, "not covered: {what}"))?;
        write!(f, "{configurations} configurations, {differ} differ, {refused} chains refused by both")
    }
}

/// Counts of features, none of which may be 0 after a run. [`Coverage::counts`] describes each. A request is
/// "executed" if both software devices, which execute the rings of the two sides, have executed it.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    pub(super) executed: u64,
    pub(super) moved: u64,
    pub(super) failed: u64,
    pub(super) signature_errors: u64,
    pub(super) errors_again: u64,
    pub(super) checked: u64,
    pub(super) changed_behind_errors: u64,
    pub(super) kept_signatures: u64,
    pub(super) kept_crypto: u64,
    pub(super) atomics: u64,
    pub(super) binds: u64,
    pub(super) by_window: u64,
    pub(super) raw_wrapped: u64,
    pub(super) older: u64,
    pub(super) crypto: u64,
    pub(super) lifted: u64,
    pub(super) ways: [OfWay; Way::ALL.len()],
    /// Chains that both sides have posted, by the limits of the library's queue (`Lifted::NAMES`).
    pub(super) limits: [u64; Lifted::NAMES.len()],
    /// Queue pairs by the size of their ring, the smallest first.
    pub(super) rings: [u64; SIZES],
}

/// Counts for a posting method, none of which may be 0. [`OfWay::counts`] describes each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfWay {
    pub(super) signaled: u64,
    pub(super) silent: u64,
    pub(super) changed: u64,
    pub(super) again: u64,
    pub(super) kept: u64,
    pub(super) wrapped: u64,
    pub(super) behind_errors: u64,
    pub(super) requests: u64,
    pub(super) copies: u64,
    pub(super) raw: u64,
    pub(super) full: u64,
}

impl Coverage {
    /// Returns whether a count is 0.
    pub(super) fn misses_a_feature(&self) -> bool {
        self.counts().iter().any(|(_, count)| *count == 0)
    }

    /// Returns each count with a description of what it counts.
    fn counts(&self) -> Vec<(String, u64)> {
        let mut counts: Vec<(String, u64)> = [
            ("configurations executed", self.executed),
            ("configurations that moved data", self.moved),
            ("chains with an error completion", self.failed),
            ("signature errors", self.signature_errors),
            ("signature errors on an mkey that had one before", self.errors_again),
            ("signature errors named alike by mkey_check", self.checked),
            ("changes in place after a signature error", self.changed_behind_errors),
            ("configurations that write a signature in force again", self.kept_signatures),
            ("configurations that write crypto properties in force again", self.kept_crypto),
            ("atomics executed", self.atomics),
            ("memory windows bound", self.binds),
            ("transfers by the key of a memory window", self.by_window),
            ("raw requests across the ring's end", self.raw_wrapped),
            ("configurations by mr_list or mr_interleaved", self.older),
            ("cipher configurations executed", self.crypto),
            ("chains that the reference alone has no room for", self.lifted),
        ]
        .map(|(what, count)| (what.to_owned(), count))
        .into();
        for (way, of) in Way::ALL.into_iter().zip(&self.ways) {
            counts.extend(of.counts(way));
        }
        let limits = Lifted::NAMES.into_iter().zip(self.limits);
        counts.extend(limits.map(|(what, count)| (format!("chains with {what}"), count)));
        let rings = self.rings.iter().enumerate();
        counts.extend(rings.map(|(log, count)| (format!("rings of {} blocks", MIN_BLOCKS << log), *count)));
        counts
    }
}

impl OfWay {
    fn counts(&self, way: Way) -> impl Iterator<Item = (String, u64)> {
        let changed = ("configurations changed in place", self.changed);
        [
            ("configurations with a completion", self.signaled),
            ("configurations without", self.silent),
            ("configurations with a prepared value that was posted before", self.again),
            ("configurations that keep what is in force", self.kept),
            ("configurations across the ring's end", self.wrapped),
            ("configurations after a signature error", self.behind_errors),
            ("requests", self.requests),
            ("copies in memory", self.copies),
            ("raw requests", self.raw),
            ("chains that a full queue refused", self.full),
        ]
        .into_iter()
        .chain(way.changes().then_some(changed))
        .map(move |(what, count)| (format!("{}: {what}", way.name()), count))
    }
}
