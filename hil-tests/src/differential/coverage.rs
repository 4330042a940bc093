//! The counts of a run of the differential test. Some of them must not be 0, because the run would then have
//! missed a feature.

use super::lifted::Lifted;
use super::sizes::{MIN_BLOCKS, SIZES};
use crate::way::Way;

/// The result of a run of the differential test, which compares libmlx5 and the library ("both sides").
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of chains. A chain is a series of requests that are posted together.
    pub chains: u64,
    /// Configurations of mkeys in all chains.
    pub configurations: u64,
    /// Configurations in chains that both libmlx5 and the library have posted.
    pub posted: u64,
    /// Blocks that both libmlx5 and the library have written, and that were compared.
    pub blocks: u64,
    /// Chains with a difference between libmlx5 and the library.
    pub differ: u64,
    /// Chains that both libmlx5 and the library refuse.
    pub refused: u64,
    /// Calls of `mlx5dv_mkey_check` that found no error, while the library found none either.
    pub without_error: u64,
    /// Errors that libmlx5 and the library decode by different signatures. For these, only the presence of
    /// the error was compared (`check.rs`).
    pub presence_only: u64,
    /// Descriptions of the first differences.
    pub differences: Vec<String>,
    /// Counts of features, none of which may be 0.
    pub coverage: Coverage,
}

/// Counts of features, none of which may be 0 after a run. "Both sides" are libmlx5 and the library. "Both
/// devices" are the two software devices that execute the rings of the two sides.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Configurations that both devices have executed.
    pub executed: u64,
    /// Executed configurations in chains that moved data through the mkey.
    pub moved: u64,
    /// Chains that ended in an error completion.
    pub failed: u64,
    /// Signature errors that both libmlx5 and the library have received.
    pub signature_errors: u64,
    /// Signature errors on an mkey that had one before and was configured since.
    pub errors_again: u64,
    /// Signature errors that libmlx5 and the library decode alike, value by value (`mlx5dv_mkey_check`).
    pub checked: u64,
    /// Prepared configurations that were changed in place, of mkeys that have had a signature error.
    pub changed_behind_errors: u64,
    /// Configurations that write BSFs, and keep the mkey's signature.
    pub kept_signatures: u64,
    /// Configurations that write BSFs, and keep the mkey's crypto properties.
    pub kept_crypto: u64,
    /// Executed atomic requests.
    pub atomics: u64,
    /// Executed bindings of memory windows.
    pub binds: u64,
    /// RDMA WRITEs and READs through a memory window.
    pub by_window: u64,
    /// Raw requests across the end of the ring.
    pub raw_wrapped: u64,
    /// Configurations by the older calls of libmlx5, `mlx5dv_wr_mr_list` and `mlx5dv_wr_mr_interleaved`.
    pub older: u64,
    /// Configurations with crypto properties.
    pub crypto: u64,
    /// Chains of requests that libmlx5 refused because of a limit that the library's queue did not have.
    pub lifted: u64,
    /// Counts for each posting method of the library.
    pub ways: [OfWay; Way::ALL.len()],
    /// Chains of requests that both libmlx5 and the library have posted, by the limits of the library's queue
    /// (`Lifted::NAMES`).
    pub limits: [u64; Lifted::NAMES.len()],
    /// Queue pairs by the size of their ring, the smallest first.
    pub rings: [u64; SIZES],
}

/// Counts for a posting method, none of which may be 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfWay {
    /// Executed configurations with a completion of their own.
    pub signaled: u64,
    /// Executed configurations without a completion.
    pub silent: u64,
    /// Executed configurations whose prepared form was changed in place.
    pub changed: u64,
    /// Executed configurations that were posted with the prepared configuration of the previous one in the
    /// same chain.
    pub again: u64,
    /// Executed configurations that set no signature or no crypto: the mkey keeps those of an earlier
    /// configuration.
    pub kept: u64,
    /// Configurations across the end of the ring.
    pub wrapped: u64,
    /// Configurations of mkeys that have had a signature error.
    pub behind_errors: u64,
    /// Requests of any kind that both devices have executed.
    pub requests: u64,
    /// Executed requests that copy local memory.
    pub copies: u64,
    /// Executed raw requests.
    pub raw: u64,
    /// Chains of requests that both libmlx5 and the library refused because the queue was full.
    pub full: u64,
}

impl Coverage {
    /// Returns whether a count is 0.
    pub(super) fn misses_a_feature(&self) -> bool {
        self.counts().iter().any(|(_, count)| *count == 0)
    }

    /// Returns each count with a description of what it counts.
    pub fn counts(&self) -> Vec<(String, u64)> {
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
