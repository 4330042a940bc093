//! Sizes of requests in a send queue, from which users compute the size of the queue.

use super::masked_atomic::MaskedAtomic;
use super::memcpy::Memcpy;
use super::window::BIND_BLOCKS;
use crate::mkey::MkeyKind;
use crate::wire::{OCTOWORD_BYTES, UMR_HEAD_BLOCKS, blocks_of};

/// Number of octowords of a control segment, of a remote address, and of the operands of an atomic.
const CONTROL: usize = 1;
const REMOTE: usize = 1;
const ATOMIC: usize = 1;

/// The numbers of blocks and of work requests that one or several requests take in a send queue. The blocks
/// determine the size of the ring, the work requests that of the completion queue.
///
/// ```
/// use mlx5_mkey::mkey::{MkeyKind, SignatureCapabilities, UmrForm, XtsEngine};
/// use mlx5_mkey::wqe::RequestSize;
///
/// /// An I/O: an mkey with a list of up to 4 entries, T10-DIF on the wire and AES-XTS, then an RDMA WRITE of
/// /// all of it.
/// const KIND: MkeyKind = MkeyKind {
///     max_entries: 4,
///     signature: Some(SignatureCapabilities::ALL),
///     crypto: Some(XtsEngine::MultiBlock),
///     form: UmrForm::Complete,
///     entry_size: None,
/// };
/// const IO: RequestSize = RequestSize::configure_mkey(&KIND, 4, 1).and(RequestSize::rdma(1));
/// assert_eq!((IO.blocks, IO.requests), (7, 3));
/// /// A ring for 32 I/Os at once.
/// const RING: usize = IO.times(32).ring_blocks();
/// assert_eq!(RING, 256);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RequestSize {
    /// Number of blocks of 64 bytes (WQEBBs).
    pub blocks: u32,
    /// Number of work requests, each of which may get a completion of its own if the queue fails.
    pub requests: u32,
}

impl RequestSize {
    /// The size of no request at all.
    pub const NONE: Self = Self { blocks: 0, requests: 0 };

    /// Returns the size of a request that configures an mkey of this kind, with all signature and crypto
    /// properties of the kind. `entries` is the largest number of entries in the list; an interleaved layout
    /// counts one more for its header, and 0 stands for an unchanged layout. `domains` is the largest number
    /// of domains of the signature, 0 to 2.
    pub const fn configure_mkey(kind: &MkeyKind, entries: usize, domains: u32) -> Self {
        let bsfs = kind.signature.is_some() as usize + kind.crypto.is_some() as usize;
        let umr = UMR_HEAD_BLOCKS + blocks_of(entries) + bsfs;
        Self { blocks: umr as u32 + domains, requests: 1 + domains }
    }

    /// Returns the size of a request that invalidates a key.
    pub const fn invalidate() -> Self {
        Self { blocks: UMR_HEAD_BLOCKS as u32, requests: 1 }
    }

    /// Returns the size of a request that binds a memory window.
    pub const fn bind_window() -> Self {
        Self { blocks: BIND_BLOCKS as u32, requests: 1 }
    }

    /// Returns the size of a request that sets a PSV.
    pub const fn set_psv() -> Self {
        Self { blocks: 1, requests: 1 }
    }

    /// Returns the size of a SEND with `sges` data segments.
    pub const fn send(sges: usize) -> Self {
        Self::octowords(CONTROL + sges)
    }

    /// Returns the size of a SEND with `bytes` bytes of inline data.
    pub const fn send_inline(bytes: usize) -> Self {
        Self::octowords(CONTROL + inline(bytes))
    }

    /// Returns the size of an RDMA READ or WRITE with `sges` data segments.
    pub const fn rdma(sges: usize) -> Self {
        Self::octowords(CONTROL + REMOTE + sges)
    }

    /// Returns the size of an RDMA WRITE with `bytes` bytes of inline data.
    pub const fn rdma_inline(bytes: usize) -> Self {
        Self::octowords(CONTROL + REMOTE + inline(bytes))
    }

    /// Returns the size of an atomic request.
    pub const fn atomic() -> Self {
        Self::octowords(CONTROL + REMOTE + ATOMIC + 1)
    }

    /// Returns the size of an atomic under masks.
    pub const fn masked_atomic(atomic: &MaskedAtomic) -> Self {
        Self::octowords(atomic.octowords())
    }

    /// Returns the size of a copy in memory.
    pub const fn memcpy() -> Self {
        Self::octowords(Memcpy::OCTOWORDS)
    }

    /// Returns the size of a work request that the caller built. `octowords` is its length with the control
    /// segment.
    pub const fn raw(octowords: usize) -> Self {
        Self::octowords(octowords)
    }

    /// Returns the size of a NOP.
    pub const fn nop() -> Self {
        Self::octowords(CONTROL)
    }

    const fn octowords(octowords: usize) -> Self {
        Self { blocks: blocks_of(octowords) as u32, requests: 1 }
    }

    /// Returns the size of both requests together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_add(other.blocks),
            requests: self.requests.saturating_add(other.requests),
        }
    }

    /// Returns the size of `count` requests of this size.
    #[must_use]
    pub const fn times(self, count: u32) -> Self {
        Self { blocks: self.blocks.saturating_mul(count), requests: self.requests.saturating_mul(count) }
    }

    /// Returns the number of blocks of a ring with room for the requests, a power of two. No send queue has
    /// over 32768 blocks.
    pub const fn ring_blocks(self) -> usize {
        match self.blocks.checked_next_power_of_two() {
            Some(blocks) => blocks as usize,
            None => usize::MAX,
        }
    }
}

/// Returns the number of octowords of inline data with its header. Empty data has no header.
const fn inline(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 4).div_ceil(OCTOWORD_BYTES) }
}
