//! Where the library refuses on purpose what the reference posts, by rule. `vectors/DIFFERENCES.md` gives the reasons.

use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::types::OutOfRange;

/// Why the library did not post a chain.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// The types of the library do not let one write it.
    Inexpressible(&'static str),
    /// An mkey could not be taken up or changed.
    Config(ConfigError),
    /// An entry of a list layout.
    ListEntry(OutOfRange),
    /// An entry of an interleaved layout.
    Stride(OutOfRange),
    /// A piece of a data-path request.
    Sge(OutOfRange),
    /// A copy mask.
    CopyMask {
        /// What the library said.
        error: ConfigError,
        /// There is no wire domain, so the reference does not look at the mask.
        memory_only: bool,
    },
    /// An mkey configuration.
    Configure {
        /// What the library said.
        error: PostError,
        /// The layout is interleaved.
        interleaved: bool,
        /// Neither signature nor crypto is given, so the reference does not look at the length.
        features_kept: bool,
    },
    /// Any other request.
    Post(PostError),
}

/// A configuration whose promised setters do not all come.
pub const UNFINISHED: &str = "deliberate: configuration with setters missing";
/// A second layout after an empty list.
pub const SECOND_LAYOUT: &str = "deliberate: second layout behind an empty list";
/// An RDMA READ into the work request itself.
pub const INLINE_READ: &str = "deliberate: RDMA READ with inline data";

/// Returns the rule by which the library refuses what the reference posts, `None` where there is none: a difference.
///
/// `overlaps` says that the reference wrote more blocks than the ring has.
pub fn deliberate(refusal: &Refusal, overlaps: bool) -> Option<&'static str> {
    match refusal {
        Refusal::Inexpressible(UNFINISHED) => Some(UNFINISHED),
        Refusal::Inexpressible(SECOND_LAYOUT) => Some(SECOND_LAYOUT),
        Refusal::Inexpressible(INLINE_READ) => Some(INLINE_READ),
        Refusal::ListEntry(_) => Some("deliberate: list entry of 0 bytes or over 2 GiB"),
        Refusal::Sge(_) => Some("deliberate: data segment over 31 bits"),
        Refusal::Stride(_) => Some("deliberate: interleaved stride over 16 bits"),
        Refusal::CopyMask { memory_only: true, .. } => Some("deliberate: copy mask without a wire domain"),
        Refusal::Configure { error, interleaved, features_kept } => match error {
            PostError::Config(ConfigError::TooManyEntries { entries, max })
                if *interleaved && *entries == max + 1 =>
            {
                Some("deliberate: interleaved layout without room for its header")
            }
            PostError::Config(ConfigError::LengthOver32Bits { .. }) if *features_kept => {
                Some("deliberate: over 32 bits long under a BSF in force")
            }
            PostError::RingFull { .. } if overlaps => Some(RING_FULL),
            _ => None,
        },
        Refusal::Post(PostError::RingFull { .. }) if overlaps => Some(RING_FULL),
        _ => None,
    }
}

/// Returns whether the library had no room for the request, whatever it says.
pub fn no_room(refusal: &Refusal) -> bool {
    let (Refusal::Post(error) | Refusal::Configure { error, .. }) = refusal else { return false };
    matches!(error, PostError::RingFull { .. } | PostError::TooManyRequests { .. })
}

/// The reference counts requests, not blocks, and overwrites what it has just posted.
const RING_FULL: &str = "deliberate: chain longer than the ring";
