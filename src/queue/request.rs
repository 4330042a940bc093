//! The way of each request into the ring: every request reserves blocks, writes them, and commits them.
//!
//! [`SendRequest::configure_mkey`] compares the kind for which the configuration was prepared with the kind
//! of the mkey, in one comparison that also covers the flags of both. If the kinds are equal, no flag is set
//! and the layout has room, the configuration is written as it was prepared. Otherwise, or if this first way
//! was refused, `configure_in_any_state` examines kind, tag and state of the mkey, encodes parts that stay,
//! and finds the reason of a refusal.
//!
//! Both ways, and all other requests, post through `SendRing::post`. It takes blocks in the ring, or in
//! scratch space if too few blocks are free before the ring's end. `Request::write` fills the blocks.
//! `SendRing::commit` makes them a request: it moves the producer past them, records each work request in the
//! slot of its first block, and gives the next request a fence if this one changes an mkey. A refused request
//! may have written to uncommitted blocks, but posted requests, counters and mkey stay as before. The caller
//! rings the doorbell.

use super::in_flight::{RequestKind, RequestNumber};
use super::send_config::SendQueueConfig;
use super::send_ring::SendRing;
use crate::mkey::error::ConfigError;
use crate::mkey::{KlmEntry, LayoutForm, LayoutKind, Mkey};
use crate::types::Qpn;
use crate::wire::{
    Block, MAX_WQE_OCTOWORDS, OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS, WQEBB_BYTES, blocks_of,
};
use crate::wqe::control::{ControlFields, RequestFlags};
use crate::wqe::error::PostError;
use crate::wqe::layout::{AnyLayout, ListOf};
use crate::wqe::umr::{Finished, UmrRequest};
use crate::wqe::{MemcpyConfig, Payload, PreparedConfig};

/// The part of a send queue that posting needs: the ring, and the limits of requests.
pub(super) struct SendState<'r> {
    pub(super) ring: SendRing<'r>,
    pub(super) qpn: Qpn,
    max_inline_data: u16,
    max_sge: u16,
    /// The largest number of octowords that layout and BSFs may have together, and the largest number of
    /// blocks of a UMR with them.
    pub(super) max_octowords: usize,
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
            // A request has at most 63 octowords. Control segment, remote address and operands of an atomic
            // take three of them. One data segment is always allowed.
            max_sge: config.max_sge.clamp(1, usize::from(MAX_WQE_OCTOWORDS) - 3) as u16,
            max_octowords,
            max_umr_blocks: UMR_HEAD_BLOCKS + max_octowords / OCTOWORDS_PER_BLOCK,
            memcpy: config.memcpy,
        }
    }

    /// Refuses a layout that is too long for the mkey or for a request.
    fn check_layout(&self, form: LayoutForm, prepared: &PreparedConfig) -> Result<(), ConfigError> {
        let header = usize::from(form.kind == LayoutKind::Interleaved);
        let max = self.max_octowords.min(prepared.kind.max_entries as usize);
        if form.octowords > max {
            return Err(ConfigError::TooManyEntries { max: max.saturating_sub(header) as u32 });
        }
        // A layout with BSFs after it is padded to a multiple of 64 bytes; a layout alone may end within a
        // block.
        let bytes = (blocks_of(form.octowords) + usize::from(prepared.bsf_count)) * WQEBB_BYTES;
        let max = self.max_octowords * OCTOWORD_BYTES;
        if prepared.bsf_count > 0 && bytes > max {
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
}

crate::fmt::format_counters!(['r] SendState ['r] { ring });

/// A send request under construction: first its flags are set, then one of the posting methods is called.
/// Nothing is posted before that call.
#[must_use = "nothing is posted until one of the posting methods is called"]
pub struct SendRequest<'q, 'r> {
    pub(super) state: &'q mut SendState<'r>,
    pub(super) id: u64,
    pub(super) flags: RequestFlags,
}

crate::fmt::format_counters!(['q, 'r] SendRequest ['q, 'r] { id, flags });

impl<'q, 'r> SendRequest<'q, 'r> {
    #[inline]
    pub(super) const fn new(state: &'q mut SendState<'r>, id: u64) -> Self {
        Self { state, id, flags: RequestFlags::NONE }
    }

    /// Returns the number of the queue pair.
    #[inline]
    pub(crate) const fn qpn(&self) -> Qpn {
        self.state.qpn
    }

    /// Returns the number that the request will have.
    pub(crate) const fn number(&self) -> RequestNumber {
        self.state.ring.next_number()
    }

    /// Delays the request until earlier reads and atomics are done (`IBV_SEND_FENCE`).
    #[inline]
    pub const fn fenced(mut self) -> Self {
        self.flags = self.flags.with(RequestFlags::FENCED);
        self
    }

    /// Asks for an entry in the completion queue, also for a success (`IBV_SEND_SIGNALED`).
    #[inline]
    pub const fn signaled(mut self) -> Self {
        self.flags = self.flags.with(RequestFlags::SIGNALED);
        self
    }

    /// Asks for a solicited event at the receiver (`IBV_SEND_SOLICITED`).
    #[inline]
    pub const fn solicited(mut self) -> Self {
        self.flags = self.flags.with(RequestFlags::SOLICITED);
        self
    }

    /// Changes an mkey by one UMR. A SET_PSV follows for each domain whose signature is set, or begins again
    /// after a signature error (man page `mlx5dv_wr_mkey_configure`). The last of these work requests carries
    /// the completion. `layout` is a [`Layout`](crate::mkey::Layout), or a list of entries as a slice or an
    /// array.
    ///
    /// Later requests on the same queue may use the mkey. The device does not see the request before
    /// [`ring_doorbell`](crate::queue::SendQueue::ring_doorbell).
    ///
    /// # Errors
    /// [`PostError::Config`] for properties that mkey or queue cannot hold; otherwise
    /// [`PostError::SendRingFull`] or [`PostError::TooManyRequests`]. Counters and mkey then stay as before.
    // Inlined: with a call, posting a list of 1 entry takes 75 % more instructions on x86-64. On Cortex-A72,
    // the posts that the benchmarks measure take 27 to 79 % more.
    #[inline(always)]
    pub fn configure_mkey(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: impl AnyLayout,
    ) -> Result<(), PostError> {
        let mut umr = UmrRequest::new(prepared, &layout, mkey);
        let UmrRequest { form, umr_blocks: blocks, .. } = umr;
        // If the kind words are equal, the configuration is posted as it was prepared. `max_umr_blocks`
        // counts whole blocks, although a request without BSFs may end within a block. A request with more
        // blocks may therefore still fit: `configure_in_any_state` decides.
        if blocks <= self.state.max_umr_blocks
            && prepared.kind_word == mkey.kind_word
            && form.octowords <= prepared.kind.max_entries as usize
        {
            // The compiler makes a copy of `post` for each number of SET_PSVs. With no SET_PSV and a list of
            // 4 entries, posting then takes a fifth fewer instructions.
            let (ring, kind) = (&mut self.state.ring, RequestKind::MkeyConfigure);
            let posted = match prepared.psv_count {
                0 => ring.post(self.id, self.flags, kind, blocks, 0, &mut umr),
                1 => ring.post(self.id, self.flags, kind, blocks, 1, &mut umr),
                _ => ring.post(self.id, self.flags, kind, blocks, 2, &mut umr),
            };
            // The slow path finds the reason of a refusal. If this fast path returned errors too, the
            // benchmark of a whole I/O would take 3 % more instructions (x86-64).
            if posted.is_ok() {
                let length = umr.length;
                if let Some(count) = mkey.note(form.kind, length, &prepared.config) {
                    self.state.ring.tell_error_count(blocks + usize::from(prepared.psv_count), count);
                }
                return Ok(());
            }
        }
        out_of_line(move || self.configure_in_any_state(mkey, prepared, &layout))
    }

    /// Does the same as [`SendRequest::configure_mkey`], with a list of the caller's own entries instead of
    /// [`KlmEntry`]. `to_klm` converts each entry while it is copied into the ring, so the list is not copied
    /// twice.
    ///
    /// ```
    /// use mlx5_mkey::error::PostError;
    /// use mlx5_mkey::mkey::{KlmEntry, Mkey};
    /// use mlx5_mkey::queue::{Doorbell, SendQueue};
    /// use mlx5_mkey::types::Key;
    /// use mlx5_mkey::wqe::PreparedConfig;
    ///
    /// /// A page of a cache, all of whose memory has one key.
    /// struct Page(u64);
    ///
    /// fn lay_pages<D: Doorbell>(
    ///     queue: &mut SendQueue<'_, D>,
    ///     mkey: &mut Mkey,
    ///     prepared: &PreparedConfig,
    ///     (pages, key): (&[Page], Key),
    /// ) -> Result<(), PostError> {
    ///     let entry = |page: &Page| KlmEntry { address: page.0, length: 4096, key };
    ///     queue.request(1).configure_mkey_from(mkey, prepared, pages, entry)
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`SendRequest::configure_mkey`].
    #[inline(always)]
    pub fn configure_mkey_from<T>(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        entries: &[T],
        to_klm: impl Fn(&T) -> KlmEntry,
    ) -> Result<(), PostError> {
        self.configure_mkey(mkey, prepared, ListOf { entries, to_klm })
    }

    /// Posts any configuration to an mkey in any state, or returns the reason of a refusal.
    fn configure_in_any_state(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: &dyn AnyLayout,
    ) -> Result<(), PostError> {
        let mut place = None;
        let form = layout.form();
        let prepared = prepared.completed(mkey, form, &mut place)?;
        self.state.check_layout(form, prepared)?;
        let umr = UmrRequest::new(prepared, layout, mkey);
        let (blocks, psvs, mut finished) = (umr.umr_blocks, prepared.psv_count.into(), Finished(umr));
        let kind = RequestKind::MkeyConfigure;
        self.state.ring.post(self.id, self.flags, kind, blocks, psvs, &mut finished)?;
        let length = finished.0.length;
        if let Some(count) = mkey.note(form.kind, length, &prepared.config) {
            self.state.ring.tell_error_count(blocks + psvs, count);
        }
        mkey.note_known();
        Ok(())
    }

    /// Posts a work request of `blocks` blocks, which `write` writes.
    pub(super) fn post_other(
        &mut self,
        kind: RequestKind,
        blocks: usize,
        mut write: impl FnMut(&mut [Block], ControlFields) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        self.state.ring.post(self.id, self.flags, kind, blocks, 0, &mut write)
    }
}

/// Calls a function that is seldom needed. The arguments of the function are computed within this call, off
/// the fast path.
// If the callee were marked `#[cold]` instead, posting a list of 1 entry would take 3 % more instructions
// (x86-64).
#[cold]
#[inline(never)]
pub(super) fn out_of_line<T>(call: impl FnOnce() -> T) -> T {
    call()
}
