//! What a run counts, and what must not be missing from it.

use super::queues::Lifted;
use super::{MIN_BLOCKS, SIZES};
use crate::way::Way;

/// What came of a run.
#[derive(Debug, Default)]
pub struct Tally {
    /// Chains of requests.
    pub chains: u64,
    /// Configurations of mkeys in them.
    pub configurations: u64,
    /// Those of them that both sides posted.
    pub posted: u64,
    /// Blocks that both sides wrote, and that were compared.
    pub blocks: u64,
    /// Chains that differ.
    pub differ: u64,
    /// Chains that both sides refuse.
    pub refused: u64,
    /// Times that `mlx5dv_mkey_check` had no error to name, on both sides.
    pub without_error: u64,
    /// Errors that both sides named, but read by different signatures: only that there is one was compared (`check`).
    pub presence_only: u64,
    /// The first differences, described.
    pub differences: Vec<String>,
    /// What must not be missing.
    pub coverage: Coverage,
}

/// How often what must not be missing from a run was there.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Configurations that both devices executed.
    pub executed: u64,
    /// Those of them in chains that moved data through the mkey.
    pub moved: u64,
    /// Chains that ended in an error completion.
    pub failed: u64,
    /// Signature errors that both sides were told of.
    pub signature_errors: u64,
    /// Those of them on an mkey that had one before and was configured since.
    pub errors_again: u64,
    /// Those of them that both sides named alike when asked, value by value (`mlx5dv_mkey_check`).
    pub checked: u64,
    /// Configurations that were changed in place, of mkeys that had a signature error before.
    pub changed_behind_errors: u64,
    /// Configurations that write BSFs and keep a signature, or crypto properties, that are in force.
    pub kept_signatures: u64,
    /// See above.
    pub kept_crypto: u64,
    /// Atomics.
    pub atomics: u64,
    /// Memory windows that were bound.
    pub binds: u64,
    /// RDMA WRITEs and READs by the key of a memory window.
    pub by_window: u64,
    /// Raw requests that begin before the ring's end and end behind it.
    pub raw_wrapped: u64,
    /// Configurations through the reference's older calls.
    pub older: u64,
    /// Configurations of the cipher.
    pub crypto: u64,
    /// Chains that the reference refused for a limit that the library's queue did not have.
    pub lifted: u64,
    /// By way of posting.
    pub ways: [OfWay; Way::ALL.len()],
    /// Chains that both sides posted, by the limits of the library's queue: see `Lifted::NAMES`.
    pub limits: [u64; Lifted::NAMES.len()],
    /// Queue pairs by the size of their ring, from the smallest on.
    pub rings: [u64; SIZES],
}

/// What must not be missing from a way of posting.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfWay {
    /// Configurations that both devices executed, with a completion of their own and without.
    pub signaled: u64,
    /// See above.
    pub silent: u64,
    /// Those of them that were changed in place.
    pub changed: u64,
    /// Those of them whose prepared value was posted before.
    pub again: u64,
    /// Those of them that keep a signature or crypto properties that are in force.
    pub kept: u64,
    /// Configurations that begin before the ring's end and end behind it.
    pub wrapped: u64,
    /// Configurations of mkeys that had a signature error before.
    pub behind_errors: u64,
    /// Requests of any kind that both devices executed.
    pub requests: u64,
    /// Copies in memory among them.
    pub copies: u64,
    /// Raw requests among them.
    pub raw: u64,
    /// Chains for which the queue was too full.
    pub full: u64,
}

impl Coverage {
    /// Each count with its name.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let mut counts: Vec<(String, u64)> = [
            ("configurations executed", self.executed),
            ("configurations that moved data", self.moved),
            ("chains with an error completion", self.failed),
            ("signature errors", self.signature_errors),
            ("signature errors on an mkey that had one before", self.errors_again),
            ("signature errors named alike by mkey_check", self.checked),
            ("changes in place behind a signature error", self.changed_behind_errors),
            ("configurations that write a signature in force again", self.kept_signatures),
            ("configurations that write crypto properties in force again", self.kept_crypto),
            ("atomics executed", self.atomics),
            ("memory windows bound", self.binds),
            ("transfers by the key of a memory window", self.by_window),
            ("raw requests over the ring's end", self.raw_wrapped),
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
            ("configurations over the ring's end", self.wrapped),
            ("configurations behind a signature error", self.behind_errors),
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
