//! The rules by which the library deliberately refuses requests that the reference (libmlx5) posts.
//! `vectors/DIFFERENCES.md` gives the reasons.

use mlx5_mkey::error::{ConfigError, PostError};

/// The reason why the library did not post a recorded chain.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// The library has no types for the request.
    Inexpressible(&'static str),
    /// Bytes or skip of an interleaved entry exceed 16 bits, the size of the library's type.
    Stride {
        /// The sum of bytes and skip.
        stride: u64,
    },
    /// A refused copy mask.
    CopyMask {
        /// The library's error.
        error: ConfigError,
        /// Whether there is no wire domain. libmlx5 then ignores the mask.
        memory_only: bool,
    },
    /// A refused configuration of an mkey.
    Configure {
        /// The library's error.
        error: PostError,
        /// The fields of the configuration that rules depend on.
        asked: Asked,
    },
    /// A refused request that moves data.
    Transfer {
        /// The library's error.
        error: PostError,
        /// The lengths of the request's data segments, in bytes.
        lengths: Vec<u32>,
    },
    /// A refused request of another kind, or the refusal to change an mkey's tag or to prepare a
    /// configuration.
    Post(PostError),
}

impl Refusal {
    /// Returns the library's error for a posted request, if the refusal has one.
    const fn post_error(&self) -> Option<&PostError> {
        match self {
            Self::Configure { error, .. } | Self::Transfer { error, .. } | Self::Post(error) => Some(error),
            Self::Inexpressible(_) | Self::Stride { .. } | Self::CopyMask { .. } => None,
        }
    }
}

/// The fields of a refused configuration that the rules depend on.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The lengths of list entries, or the strides of interleaved entries, in bytes.
    pub(super) entries: Vec<u32>,
    /// Whether the layout is interleaved, and its entries without the layout's header fill all the room of
    /// the mkey.
    pub(super) interleaved_to_the_brim: bool,
    /// The number of bytes that the mkey maps.
    pub(super) length: u64,
    /// Whether the configuration leaves the signature unchanged.
    pub(super) signature_kept: bool,
    /// Whether the configuration leaves the crypto properties unchanged.
    pub(super) crypto_kept: bool,
    /// Whether the mkey had a signature or crypto properties before this configuration.
    pub(super) bsf_in_force: bool,
}

/// The rule for a configuration that lacks some of the setters that it announced (`num_setters`).
pub(super) const UNFINISHED: &str = "deliberate: configuration with setters missing";
/// The rule for a configuration whose first layout is an empty list and is followed by a second layout.
pub(super) const SECOND_LAYOUT: &str = "deliberate: second layout behind an empty list";
/// The rule for an RDMA READ with inline data.
pub(super) const INLINE_READ: &str = "deliberate: RDMA READ with inline data";

/// The reason not to compare a chain of requests that libmlx5 refused because of a limit that the library's
/// queue lacks.
pub(super) const LIFTED: &str = "refused by the reference for a limit that is lifted here";
/// The longest list entry, data segment and stride of the library, in bytes (`vectors/DIFFERENCES.md`). The
/// library's own constants are not used, so that a change of them is noticed.
const MAX_ENTRY_BYTES: u32 = 1 << 31;
const MAX_SGE_BYTES: u32 = (1 << 31) - 1;
const MAX_STRIDE: u64 = 0xffff;

/// Returns the rule for a chain that the library refuses and libmlx5 posts, or `None` if no rule explains the
/// difference.
///
/// `overlaps` means that libmlx5 wrote more blocks than the ring has.
pub(super) fn deliberate(refusal: &Refusal, overlaps: bool) -> Option<&'static str> {
    match refusal {
        Refusal::Inexpressible(rule @ (UNFINISHED | SECOND_LAYOUT | INLINE_READ)) => Some(rule),
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

/// Returns whether the library refused a chain because of a limit of its queue. A replay with lifted limits
/// does not have these limits.
pub(super) fn is_limit(refusal: &Refusal) -> bool {
    matches!(
        refusal.post_error(),
        Some(
            PostError::TooManyRequests { .. }
                | PostError::InlineTooLong { .. }
                | PostError::Config(ConfigError::TooManyEntries { .. } | ConfigError::BsfDoesNotFit { .. })
        )
    )
}

/// Returns whether the library refused a chain because the queue is full: the ring has too few free blocks,
/// or the number of requests reached its limit.
pub(super) fn no_room(refusal: &Refusal) -> bool {
    matches!(refusal.post_error(), Some(PostError::SendRingFull { .. } | PostError::TooManyRequests { .. }))
}

/// The rule for an entry of an interleaved layout whose bytes and skip exceed 16 bits.
const STRIDE: &str = "deliberate: interleaved stride over 16 bits";

/// The rule for a chain that is longer than the ring. libmlx5 counts requests instead of blocks, and
/// overwrites requests that it has just posted.
const RING_FULL: &str = "deliberate: chain longer than the ring";
