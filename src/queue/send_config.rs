//! Properties of a queue pair that its send queue needs.

use crate::types::{Qpn, UmrFence};
use crate::wire::{MAX_WQE_OCTOWORDS, OCTOWORD_BYTES, UMR_HEAD_BLOCKS, WQEBB_BYTES};
use crate::wqe::MemcpyConfig;
use crate::wqe::control::RequestFlags;

/// Bytes of the header that stands before inline data in a request.
const INLINE_HEADER_BYTES: u32 = 4;

/// Properties of a queue pair that its send queue needs.
///
/// ```
/// use mlx5_mkey::queue::SendQueueConfig;
/// use mlx5_mkey::types::Qpn;
/// // A queue pair whose completion queue has 128 entries, all for its send requests.
/// let config = SendQueueConfig { max_requests: 128, ..SendQueueConfig::new(Qpn::new(0x77)?) };
/// assert_eq!(config.max_inline_data, SendQueueConfig::MAX_INLINE_DATA);
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SendQueueConfig {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Longest inline data in bytes (`max_inline_data`). An mkey's layout and BSFs in a request may have up
    /// to 4 bytes more, because they need no header of 4 bytes as inline data does.
    pub max_inline_data: u32,
    /// Most data segments of a request (`max_send_sge`). A value under 1 counts as 1, a value over 60 as 60,
    /// the most that a request can hold.
    pub max_sge: usize,
    /// Most work requests between post and completion. A completion queue with as many entries cannot overrun
    /// if it gets no other entries. The guide's page on sizing counts the other entries.
    pub max_requests: u32,
    /// Whether every request is signalled (`sq_sig_all`), also every SET_PSV of an mkey configuration, as
    /// with the reference provider.
    pub signal_all: bool,
    /// Number of the first block to post (PRM `wqe_index`, 16 bits), for a queue pair that was already in
    /// use; 0 for a new one.
    pub first_block: u32,
    /// Whether the last posted request changed an mkey, for a queue pair that was already in use; false for a
    /// new one. If true, the first request gets the fence of `umr_fence`.
    pub small_fence: bool,
    /// The fence of a request that follows a change of an mkey.
    pub umr_fence: UmrFence,
    /// Buffer and limit of copies in memory; `None` for a queue pair without copies.
    pub memcpy: Option<MemcpyConfig>,
}

impl SendQueueConfig {
    /// The longest inline data for which every request stays within the device's limit of 63 octowords.
    pub const MAX_INLINE_DATA: u32 = {
        let bytes = MAX_WQE_OCTOWORDS as usize * OCTOWORD_BYTES - UMR_HEAD_BLOCKS * WQEBB_BYTES;
        // Translation entries are padded to a multiple of 64 bytes, so the limit is rounded down to such a
        // multiple.
        (bytes / WQEBB_BYTES * WQEBB_BYTES) as u32 - INLINE_HEADER_BYTES
    };

    /// Returns the properties of a new queue pair: inline data up to the largest limit, 30 data segments, no
    /// limit of requests, completions only for requests that ask for one, the small fence after changes of
    /// mkeys, no copies in memory.
    pub const fn new(qpn: Qpn) -> Self {
        Self {
            qpn,
            max_inline_data: Self::MAX_INLINE_DATA,
            max_sge: 30,
            max_requests: u32::MAX,
            signal_all: false,
            first_block: 0,
            small_fence: false,
            umr_fence: UmrFence::Small,
            memcpy: None,
        }
    }

    /// Returns the flags for the fence of a request that follows a change of an mkey.
    pub(super) const fn umr_fence_flags(&self) -> RequestFlags {
        match self.umr_fence {
            UmrFence::Strong => RequestFlags::AFTER_UMR_STRONG,
            UmrFence::Small => RequestFlags::AFTER_UMR,
            UmrFence::None => RequestFlags::NONE,
        }
    }

    /// Returns how many octowords layout and BSFs of a request may have.
    pub(super) const fn max_octowords(&self) -> usize {
        (self.max_inline_data + INLINE_HEADER_BYTES) as usize / OCTOWORD_BYTES
    }
}
