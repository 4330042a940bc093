//! The way of each request into the ring: every request reserves blocks, writes them, and commits them.
//!
//! [`SendRequest::configure_mkey`] compares the kind for which the configuration was prepared with the kind
//! of the mkey, in one comparison that also covers the flags of both. If the kinds are equal, no flag is set
//! and the layout has room, the configuration is written as it was prepared. Otherwise, or if this first way
//! was refused, `configure_in_any_state` examines kind, tag and state of the mkey, encodes parts that stay,
//! and finds the reason of a refusal. Both ways, and lists in registered memory, post through
//! `SendRequest::post`.
//!
//! `SendRing::reserve` gives blocks in the ring, or in scratch space if too few blocks are free before the
//! ring's end. `Configuration::write` fills the blocks. `SendRing::commit` makes them a request: it moves the
//! producer past them, files each work request under its first block, and lets the next request wait if this
//! one changes an mkey. A refused request may have written to uncommitted blocks, but posted requests,
//! counters and mkey stay as before. The caller rings the doorbell.

use super::in_flight::{RequestKind, RequestNumber};
use super::send_state::SendState;
use crate::mkey::{KlmEntry, Layout, LayoutForm, Mkey};
use crate::types::Qpn;
use crate::wire::Block;
use crate::wqe::PreparedConfig;
use crate::wqe::control::{self, ControlFields, RequestFlags};
use crate::wqe::error::PostError;
use crate::wqe::layout::{Lay, ListOf};
use crate::wqe::umr::{Configuration, Finished, UmrRequest};

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
        self.state.qpn()
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
    /// the completion.
    ///
    /// Later requests on the same queue may use the mkey. The device does not see the request before
    /// [`ring_doorbell`](crate::queue::SendQueue::ring_doorbell).
    ///
    /// # Errors
    /// [`PostError::Config`] for properties that mkey or queue cannot hold; otherwise
    /// [`PostError::SendRingFull`] or [`PostError::TooManyRequests`]. Counters and mkey then stay as before.
    // Inlined: with a call, posting a list of 1 entry takes 75 % more instructions on x86-64. On Cortex-A72,
    // the posts that the bench measures take 27 to 79 % more.
    #[inline(always)]
    pub fn configure_mkey<'l>(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: impl Into<Layout<'l>>,
    ) -> Result<(), PostError> {
        let layout = layout.into();
        self.configure(mkey, prepared, layout)
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
        self.configure(mkey, prepared, ListOf { entries, to_klm })
    }

    /// Posts a configuration as it was prepared. If this is not possible, calls
    /// [`SendRequest::configure_in_any_state`].
    // Inlined: with a call, posting a list of 1 entry takes 75 % more instructions on x86-64. On Cortex-A72,
    // the posts that the bench measures take 27 to 79 % more.
    #[inline(always)]
    fn configure(
        mut self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: impl Lay,
    ) -> Result<(), PostError> {
        let mut umr = UmrRequest::new(prepared, &layout);
        let is_prepared = prepared.kind_word() == mkey.kind_word();
        if is_prepared && umr.has_room(self.state.max_umr_blocks) {
            let UmrRequest { form, umr_blocks: blocks, .. } = umr;
            let change = |psvs| Change { prepared, form, blocks, psvs };
            // The compiler makes a copy of `post` for each number of SET_PSVs. With no SET_PSV and a list of
            // 4 entries, posting then takes a fifth fewer instructions.
            let posted = match prepared.psv_count() {
                0 => self.post(mkey, change(0), &mut umr),
                1 => self.post(mkey, change(1), &mut umr),
                _ => self.post(mkey, change(2), &mut umr),
            };
            // The slow path finds the reason of a refusal. If this fast path returned errors too, a whole I/O
            // would take 3 % more instructions (x86-64).
            if posted.is_ok() {
                return Ok(());
            }
        }
        out_of_line(move || self.configure_in_any_state(mkey, prepared, &layout))
    }

    /// Posts any configuration to an mkey in any state, or returns the reason of a refusal.
    fn configure_in_any_state(
        mut self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: &dyn Lay,
    ) -> Result<(), PostError> {
        let mut place = None;
        let prepared = prepared.completed(mkey, layout.form(), &mut place)?;
        let umr = UmrRequest::new(prepared, layout);
        self.state.check_layout(&umr)?;
        let (form, blocks, psvs) = (umr.form, umr.umr_blocks, prepared.psv_count().into());
        let change = Change { prepared, form, blocks, psvs };
        self.post(mkey, change, &mut Finished(umr))?;
        mkey.note_known();
        Ok(())
    }

    /// Posts a configuration: reserves its blocks, writes and commits them, adds the count of signature
    /// errors if the count is pending, and notes in the mkey which properties are then in force.
    // Inlined: with a call, posting a list of 1 entry takes 100 % more instructions on x86-64. On Cortex-A72,
    // the posts that the bench measures take 47 to 140 % more.
    #[inline(always)]
    pub(super) fn post(
        &mut self,
        mkey: &mut Mkey,
        change: Change<'_>,
        configuration: &mut impl Configuration,
    ) -> Result<(), PostError> {
        let Change { prepared, form, blocks, psvs } = change;
        let ring = &mut self.state.ring;
        let fields = ring.fields(self.flags);
        let space = ring.reserve(blocks + psvs)?;
        let length = configuration.write(space, fields, mkey, psvs)?;
        let last = control::start(if psvs == 0 { space.first() } else { space.last() });
        ring.commit(fields.begin, self.id, RequestKind::MkeyConfigure, blocks, psvs, last)?;
        mkey.note_layout(form, length);
        if !mkey.kind_word().is_plain() {
            // The count is seldom pending, so it is added in the ring. If it were written with the rest of
            // the request, a whole I/O would take 2 to 5 % more instructions (x86-64).
            if mkey.error_count_is_pending() {
                self.state.add_error_count(fields.begin, mkey);
            }
            mkey.note_properties(prepared.config());
        }
        Ok(())
    }

    /// Posts a work request of `blocks` blocks that is no configuration. `write` writes the blocks.
    pub(super) fn post_other(
        &mut self,
        kind: RequestKind,
        blocks: usize,
        write: impl FnOnce(&mut [Block], ControlFields) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let ring = &mut self.state.ring;
        let fields = ring.fields(self.flags);
        let space = ring.reserve(blocks)?;
        write(space, fields)?;
        let last = control::start(space.first());
        ring.commit(fields.begin, self.id, kind, blocks, 0, last)
    }
}

/// A change of an mkey for [`SendRequest::post`]: a UMR, and SET_PSVs after it.
#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    /// The configuration that the request is written from.
    pub(super) prepared: &'a PreparedConfig,
    /// The form of the layout in force after the execution.
    pub(super) form: LayoutForm,
    /// Number of blocks of the UMR.
    pub(super) blocks: usize,
    /// Number of SET_PSVs. Each takes a block.
    pub(super) psvs: usize,
}

/// Calls a function that is seldom needed. The arguments of the function are computed within this call, off
/// the fast path.
// If the callee were marked `#[cold]` instead, posting a list of 1 entry would take 3 % more instructions
// (x86-64).
#[cold]
#[inline(never)]
fn out_of_line<T>(call: impl FnOnce() -> T) -> T {
    call()
}
