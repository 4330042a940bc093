//! Where the library refuses on purpose what the reference posts, by rule. `vectors/DIFFERENCES.md` gives the reasons.

use mlx5_mkey::error::{ConfigError, PostError};

/// Why the library did not post a chain.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// The types of the library do not let one write it.
    Inexpressible(&'static str),
    /// An mkey could not be changed.
    Config(ConfigError),
    /// Bytes or skip of an entry of an interleaved layout have more than 16 bits: the library has no number for them.
    Stride {
        /// Their sum.
        stride: u64,
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
    /// A data-path request.
    Transfer {
        /// What the library said.
        error: PostError,
        /// The lengths of its data segments in bytes.
        lengths: Vec<u32>,
    },
    /// Any other request.
    Post(PostError),
}

impl Refusal {
    /// Returns what the library said of a request.
    const fn post_error(&self) -> Option<&PostError> {
        match self {
            Self::Configure { error, .. } | Self::Transfer { error, .. } | Self::Post(error) => Some(error),
            Self::Inexpressible(_) | Self::Config(_) | Self::Stride { .. } | Self::CopyMask { .. } => None,
        }
    }
}

/// What a configuration asked for, as far as a rule is about it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The lengths of the entries of a list, and the strides of those of an interleaved layout, in bytes.
    pub entries: Vec<u32>,
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
        Refusal::Transfer { error: PostError::SgeTooLong { index, .. }, lengths }
            if lengths.get(usize::from(*index)).is_some_and(|length| *length > MAX_SGE_BYTES) =>
        {
            Some("deliberate: data segment over 31 bits")
        }
        Refusal::Stride { stride } if *stride > MAX_STRIDE => Some(STRIDE),
        Refusal::CopyMask { error: ConfigError::CopyMaskNeedsSameStructure, memory_only: true } => {
            Some("deliberate: copy mask without a wire domain")
        }
        Refusal::Configure { error: PostError::Config(error), asked } => match error {
            ConfigError::TooManyEntries { max }
                if asked.interleaved_to_the_brim && asked.entries.len() == *max as usize + 1 =>
            {
                Some("deliberate: interleaved layout without room for its header")
            }
            ConfigError::EntryLength { index, length }
                if asked.entries.get(usize::from(*index)) == Some(length)
                    && (*length == 0 || *length > MAX_ENTRY_BYTES) =>
            {
                Some("deliberate: list entry of 0 bytes or over 2 GiB")
            }
            ConfigError::StrideOver16Bits { index, stride }
                if asked.entries.get(usize::from(*index)) == Some(stride)
                    && u64::from(*stride) > MAX_STRIDE =>
            {
                Some(STRIDE)
            }
            ConfigError::LengthOver32Bits { mebibytes }
                if asked.signature_kept
                    && asked.crypto_kept
                    && asked.bsf_in_force
                    && u64::from(*mebibytes) == asked.length.div_ceil(1 << 20)
                    && asked.length > u64::from(u32::MAX) =>
            {
                Some("deliberate: over 32 bits long under a BSF in force")
            }
            _ => None,
        },
        _ => match refusal.post_error() {
            Some(PostError::SendRingFull { needed, free }) if overlaps && needed > free => Some(RING_FULL),
            _ => None,
        },
    }
}

/// Returns whether a limit of the queue is the reason, which a replay with limits lifted does not have.
pub fn is_limit(refusal: &Refusal) -> bool {
    matches!(
        refusal.post_error(),
        Some(
            PostError::TooManyRequests { .. }
                | PostError::InlineTooLong { .. }
                | PostError::Config(ConfigError::TooManyEntries { .. } | ConfigError::BsfDoesNotFit { .. })
        )
    )
}

/// Returns whether the library had no room for the request, whatever it says.
pub fn no_room(refusal: &Refusal) -> bool {
    matches!(refusal.post_error(), Some(PostError::SendRingFull { .. } | PostError::TooManyRequests { .. }))
}

/// An entry of an interleaved layout.
const STRIDE: &str = "deliberate: interleaved stride over 16 bits";

/// The reference counts requests, not blocks, and overwrites what it has just posted.
const RING_FULL: &str = "deliberate: chain longer than the ring";
