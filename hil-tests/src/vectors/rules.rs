//! Where the library refuses on purpose what the reference posts, by rule. `vectors/DIFFERENCES.md` gives the reasons.

use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::types::OutOfRange;

/// Why the library did not post a chain.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// The types of the library do not let one write it.
    Inexpressible(&'static str),
    /// An mkey could not be changed.
    Config(ConfigError),
    /// An entry of a list layout.
    ListEntry {
        /// What the library said.
        error: OutOfRange,
        /// The entry's length in bytes.
        length: u32,
    },
    /// An entry of an interleaved layout.
    Stride {
        /// What the library said.
        error: OutOfRange,
        /// Bytes and skip of the entry.
        stride: u64,
    },
    /// A piece of a data-path request.
    Sge {
        /// What the library said.
        error: OutOfRange,
        /// The piece's length in bytes.
        length: u32,
    },
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
        /// What was asked for.
        asked: Asked,
    },
    /// Any other request.
    Post(PostError),
}

/// What a configuration asked for, as far as a rule is about it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The layout is interleaved, with as many entries as there is room for without its header.
    pub interleaved_to_the_brim: bool,
    /// Bytes of the mkey.
    pub length: u64,
    /// No signature is given, and none is reset.
    pub signature_kept: bool,
    /// No crypto properties are given.
    pub crypto_kept: bool,
    /// The mkey had a signature or crypto properties before.
    pub bsf_in_force: bool,
}

/// A configuration whose promised setters do not all come.
pub const UNFINISHED: &str = "deliberate: configuration with setters missing";
/// A second layout after an empty list.
pub const SECOND_LAYOUT: &str = "deliberate: second layout behind an empty list";
/// An RDMA READ into the work request itself.
pub const INLINE_READ: &str = "deliberate: RDMA READ with inline data";

/// The reference had no room within a limit that was lifted for the library.
pub const LIFTED: &str = "refused by the reference for a limit that is lifted here";
/// A template's signature or crypto properties are to be written again, and the library does not copy them from it.
pub const OF_TEMPLATE: &str = "behind a template: what it had is to be written again";

/// The longest list entry, data segment and stride that the library takes, in bytes (`vectors/DIFFERENCES.md`). Not the
/// library's own constants: these would follow it.
const MAX_ENTRY_BYTES: u32 = 1 << 31;
const MAX_SGE_BYTES: u32 = (1 << 31) - 1;
const MAX_STRIDE: u64 = 0xffff;

/// Returns the rule by which the library refuses what the reference posts, `None` where there is none: a difference.
///
/// `overlaps` says that the reference wrote more blocks than the ring has.
pub fn deliberate(refusal: &Refusal, overlaps: bool) -> Option<&'static str> {
    match refusal {
        Refusal::Inexpressible(UNFINISHED) => Some(UNFINISHED),
        Refusal::Inexpressible(SECOND_LAYOUT) => Some(SECOND_LAYOUT),
        Refusal::Inexpressible(INLINE_READ) => Some(INLINE_READ),
        Refusal::ListEntry { length, .. } if *length == 0 || *length > MAX_ENTRY_BYTES => {
            Some("deliberate: list entry of 0 bytes or over 2 GiB")
        }
        Refusal::Sge { length, .. } if *length > MAX_SGE_BYTES => {
            Some("deliberate: data segment over 31 bits")
        }
        Refusal::Stride { stride, .. } if *stride > MAX_STRIDE => {
            Some("deliberate: interleaved stride over 16 bits")
        }
        Refusal::CopyMask { error: ConfigError::CopyMaskNeedsSameStructure, memory_only: true } => {
            Some("deliberate: copy mask without a wire domain")
        }
        Refusal::Configure { error: PostError::Config(error), asked } => match error {
            ConfigError::TooManyEntries { entries, max }
                if asked.interleaved_to_the_brim && *entries == max + 1 =>
            {
                Some("deliberate: interleaved layout without room for its header")
            }
            ConfigError::LengthOver32Bits { length }
                if asked.signature_kept
                    && asked.crypto_kept
                    && asked.bsf_in_force
                    && *length == asked.length
                    && *length > u64::from(u32::MAX) =>
            {
                Some("deliberate: over 32 bits long under a BSF in force")
            }
            _ => None,
        },
        Refusal::Post(PostError::RingFull { needed, free })
        | Refusal::Configure { error: PostError::RingFull { needed, free }, .. }
            if overlaps && needed > free =>
        {
            Some(RING_FULL)
        }
        _ => None,
    }
}

/// Returns whether a limit of the queue is the reason, which a replay with limits lifted does not have.
pub fn is_limit(refusal: &Refusal) -> bool {
    let (Refusal::Post(error) | Refusal::Configure { error, .. }) = refusal else { return false };
    matches!(
        error,
        PostError::TooManyRequests { .. }
            | PostError::InlineTooLong { .. }
            | PostError::Config(ConfigError::TooManyEntries { .. } | ConfigError::BsfDoesNotFit { .. })
    )
}

/// Returns whether the library refuses to write again what only a template had.
pub fn is_of_template(refusal: &Refusal) -> bool {
    let Refusal::Configure { error: PostError::Config(ConfigError::StateUnknown { missing }), asked } =
        refusal
    else {
        return false;
    };
    match *missing {
        "signature (set or reset)" => asked.signature_kept,
        "crypto" => asked.crypto_kept,
        _ => false,
    }
}

/// Returns whether the library had no room for the request, whatever it says.
pub fn no_room(refusal: &Refusal) -> bool {
    let (Refusal::Post(error) | Refusal::Configure { error, .. }) = refusal else { return false };
    matches!(error, PostError::RingFull { .. } | PostError::TooManyRequests { .. })
}

/// The reference counts requests, not blocks, and overwrites what it has just posted.
const RING_FULL: &str = "deliberate: chain longer than the ring";
