//! The state that all requests of a send queue read and change: its ring, and its limits. The type does not
//! depend on the queue's type of doorbell.

use super::send_config::SendQueueConfig;
use super::send_ring::SendRing;
use crate::mkey::error::ConfigError;
use crate::mkey::{LayoutForm, Mkey};
use crate::types::Qpn;
use crate::wire::{
    MAX_WQE_OCTOWORDS, OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS, WQEBB_BYTES, blocks_of,
};
use crate::wqe::error::PostError;
use crate::wqe::umr::{self, UmrRequest};
use crate::wqe::{MemcpyConfig, Payload};

/// The part of a send queue that requests work on.
pub(super) struct SendState<'r> {
    pub(super) ring: SendRing<'r>,
    qpn: Qpn,
    max_inline_data: u16,
    max_sge: u16,
    /// The most octowords of layout and BSFs, and the most blocks of a UMR with them.
    max_octowords: u16,
    pub(super) max_umr_blocks: usize,
    pub(super) memcpy: Option<MemcpyConfig>,
}

impl<'r> SendState<'r> {
    pub(super) fn new(config: &SendQueueConfig, ring: SendRing<'r>) -> Self {
        let max_octowords = config.max_octowords();
        Self {
            ring,
            qpn: config.qpn,
            max_inline_data: config.max_inline_data as u16,
            // Control, remote address and operands take three octowords. One segment is always allowed.
            max_sge: config.max_sge.clamp(1, usize::from(MAX_WQE_OCTOWORDS) - 3) as u16,
            max_octowords: max_octowords as u16,
            max_umr_blocks: UMR_HEAD_BLOCKS + max_octowords / OCTOWORDS_PER_BLOCK,
            memcpy: config.memcpy,
        }
    }

    pub(super) const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Returns how many octowords layout and BSFs of a UMR may have.
    pub(super) const fn max_octowords(&self) -> usize {
        self.max_octowords as usize
    }

    /// Refuses a layout that is too long for the mkey or for a request.
    pub(super) fn check_layout(&self, umr: &UmrRequest<'_, impl ?Sized>) -> Result<(), ConfigError> {
        let (octowords, prepared) = (umr.form.octowords(), umr.prepared);
        let header = usize::from(matches!(umr.form, LayoutForm::Interleaved { .. }));
        let max = prepared.kind_word().max_entries().min(self.max_octowords());
        if octowords > max {
            return Err(ConfigError::TooManyEntries { max: max.saturating_sub(header) as u32 });
        }
        // BSFs and a layout before them fill whole blocks; a layout alone may end within one.
        let bytes = (blocks_of(octowords) + prepared.bsf_count()) * WQEBB_BYTES;
        let max = self.max_octowords() * OCTOWORD_BYTES;
        if prepared.bsf_count() > 0 && bytes > max {
            return Err(ConfigError::BsfDoesNotFit { bytes: bytes as u32, max: max as u16 });
        }
        Ok(())
    }

    /// Returns whether a request has room for this payload.
    #[inline]
    pub(super) const fn has_room_for_payload(&self, payload: &Payload<'_>) -> bool {
        match payload {
            Payload::Sges(sges) => sges.len() <= 1 || sges.len() <= self.max_sge as usize,
            Payload::Inline(bytes) => bytes.len() <= self.max_inline_data as usize,
        }
    }

    /// Returns the error that names the limit that a payload exceeds.
    #[cold]
    pub(super) fn too_much(&self, payload: &Payload<'_>) -> PostError {
        let saturated = |count: usize| count.min(usize::from(u16::MAX)) as u16;
        match payload {
            Payload::Sges(sges) => PostError::TooManySges { sges: saturated(sges.len()), max: self.max_sge },
            Payload::Inline(bytes) => {
                let (length, max) = (saturated(bytes.len()), self.max_inline_data);
                PostError::InlineTooLong { length, max }
            }
        }
    }

    /// Adds the count of an mkey's signature errors to the UMR at block `begin`. The UMR is committed, but
    /// not published.
    #[cold]
    #[inline(never)]
    pub(super) fn add_error_count(&mut self, begin: u64, mkey: &mut Mkey) {
        umr::select_error_count(self.ring.committed(begin));
        umr::write_error_count(self.ring.committed(begin + 1), mkey.take_error_count());
    }
}

crate::fmt::format_counters!(['r] SendState ['r] { ring });
