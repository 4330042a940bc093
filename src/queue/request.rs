//! The way of each request into the ring: every request reserves blocks, writes them, and commits them.
//!
//! [`SendRequest::configure_mkey`] compares the kind for which the configuration was prepared with the kind
//! of the mkey, in one comparison that also covers the flags of both. If the kinds are equal, no flag is set
//! and the layout has room, the configuration is written as it was prepared. Otherwise, or if this first way
//! was refused, `configure_in_any_state` examines kind, tag and state of the mkey, encodes parts that stay,
//! and finds the reason of a refusal. Both ways, and lists in registered memory, post through
//! `SendRequest::post`.
//!
//! `SqProducer::reserve` gives blocks in the ring, or in scratch space if too few blocks are free before the
//! ring's end. `UmrRequest::write` fills the blocks. `SendRequest::commit` makes them a request: it moves the
//! producer past them, files each work request under its first block, and lets the next request wait if this
//! one changes an mkey. A refused request may have written to uncommitted blocks, but posted requests,
//! counters and mkey stay as before. The caller rings the doorbell.

use super::in_flight::{RequestKind, RequestNumber};
use super::send_state::SendState;
use crate::mkey::error::ConfigError;
use crate::mkey::{KlmEntry, Layout, LayoutForm, Mkey};
use crate::types::Qpn;
use crate::wire::Block;
use crate::wqe::PreparedConfig;
use crate::wqe::control::{ControlFields, RequestFlags};
use crate::wqe::error::PostError;
use crate::wqe::layout::{Lay, ListOf};
use crate::wqe::umr::UmrRequest;

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
        self.state.in_flight.number(self.state.producer.producer())
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
        let umr = UmrRequest::new(prepared, &layout);
        let is_prepared = prepared.kind_word() == mkey.kind_word();
        if is_prepared && umr.has_room(self.state.max_umr_blocks) {
            // The compiler makes a copy of `post` for each number of SET_PSVs. With no SET_PSV and a list of
            // 4 entries, posting then takes a fifth fewer instructions.
            let posted = match prepared.psv_count() {
                0 => self.post(mkey, &mut AsPrepared::<_, 0>(&umr)),
                1 => self.post(mkey, &mut AsPrepared::<_, 1>(&umr)),
                _ => self.post(mkey, &mut AsPrepared::<_, 2>(&umr)),
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
        self.post(mkey, &mut InAnyState(&umr))?;
        mkey.note_known();
        Ok(())
    }

    /// Posts a configuration: reserves its blocks, writes them, and commits them. Adds the count of signature
    /// errors if it is pending, and notes in the mkey which properties are then in force.
    // Inlined: with a call, posting a list of 1 entry takes 100 % more instructions on x86-64. On Cortex-A72,
    // the posts that the bench measures take 47 to 140 % more.
    #[inline(always)]
    pub(super) fn post(
        &mut self,
        mkey: &mut Mkey,
        configuration: &mut impl Configuration,
    ) -> Result<(), PostError> {
        let (blocks, psvs) = (configuration.blocks(), configuration.psvs());
        let (space, fields) = self.reserve(blocks + psvs)?;
        let length = configuration.write(space, fields, mkey)?;
        self.commit(fields.begin, RequestKind::MkeyConfigure, blocks, psvs)?;
        mkey.note_layout(configuration.form(), length);
        if !mkey.kind_word().is_plain() {
            self.tell_error_count(fields.begin, mkey);
            mkey.note_properties(configuration.prepared().config());
        }
        Ok(())
    }

    /// Adds the count of the mkey's signature errors to the UMR committed at block `begin`, if the count is
    /// pending.
    #[inline]
    fn tell_error_count(&mut self, begin: u64, mkey: &mut Mkey) {
        // The count is seldom pending, so it is added in the ring. If it were written with the rest of the
        // request, a whole I/O would take 2 to 5 % more instructions (x86-64).
        if mkey.error_count_is_pending() {
            self.state.add_error_count(begin, mkey);
        }
    }

    /// Returns reserved blocks, and the fields of the first control segment without opcode and size.
    #[inline]
    pub(super) fn reserve(&mut self, blocks: usize) -> Result<(&mut [Block], ControlFields), PostError> {
        let SendState { producer, in_flight, qpn_bits, next_flags, .. } = &mut *self.state;
        let (begin, flags) = (producer.producer(), self.flags);
        let fields = ControlFields { qpn: *qpn_bits, begin, flags, default: *next_flags };
        Ok((producer.reserve(blocks, in_flight)?, fields))
    }

    /// Posts the requests in the reserved blocks, from block `begin` on: a work request of `blocks` blocks,
    /// and `psvs` SET_PSVs after it. The last one carries the completion that the user waits for.
    // With `#[inline]` alone, a whole I/O takes up to 2 % more instructions on x86-64, and a refusal takes 3
    // % more there and 5 % more on Cortex-A72.
    #[inline(always)]
    pub(super) fn commit(
        &mut self,
        begin: u64,
        kind: RequestKind,
        blocks: usize,
        psvs: usize,
    ) -> Result<(), PostError> {
        let Self { state, id, .. } = self;
        let SendState { producer, in_flight, .. } = &mut **state;
        producer.commit(begin + (blocks + psvs) as u64, 1 + psvs, in_flight)?;
        let kind_at = |at| if at == psvs { kind } else { RequestKind::MkeyConfigurePart };
        in_flight.file(begin, *id, kind_at(0), blocks);
        let mut last = begin;
        for at in 0..psvs {
            last = begin + (blocks + at) as u64;
            in_flight.file(last, *id, kind_at(at + 1), 1);
        }
        state.last = last;
        state.next_flags = if kind.changes_mkey() { state.flags_after_umr } else { state.flags };
        Ok(())
    }
}

/// A configuration for [`SendRequest::post`]: a UMR, and SET_PSVs after it.
pub(super) trait Configuration {
    /// Returns the number of blocks of the UMR.
    fn blocks(&self) -> usize;
    /// Returns the configuration that the request is written from.
    fn prepared(&self) -> &PreparedConfig;
    /// Returns the number of SET_PSVs. Each takes a block.
    fn psvs(&self) -> usize {
        self.prepared().psv_count().into()
    }
    /// Returns the form of the layout in force after the execution.
    fn form(&self) -> LayoutForm;
    /// Writes all blocks, and returns how many bytes the mkey maps after the execution.
    fn write(&mut self, blocks: &mut [Block], fields: ControlFields, mkey: &Mkey)
    -> Result<u64, ConfigError>;
}

/// A configuration that is written as it was prepared, with `PSVS` SET_PSVs.
struct AsPrepared<'a, L, const PSVS: usize>(&'a UmrRequest<'a, L>);

impl<L: Lay, const PSVS: usize> Configuration for AsPrepared<'_, L, PSVS> {
    #[inline(always)]
    fn blocks(&self) -> usize {
        self.0.umr_blocks
    }

    #[inline(always)]
    fn psvs(&self) -> usize {
        PSVS
    }

    #[inline(always)]
    fn prepared(&self) -> &PreparedConfig {
        self.0.prepared
    }

    #[inline(always)]
    fn form(&self) -> LayoutForm {
        self.0.form
    }

    #[inline(always)]
    fn write(
        &mut self,
        blocks: &mut [Block],
        fields: ControlFields,
        mkey: &Mkey,
    ) -> Result<u64, ConfigError> {
        self.0.write(blocks, fields, mkey, PSVS)
    }
}

/// A configuration for an mkey in any state.
struct InAnyState<'a>(&'a UmrRequest<'a, dyn Lay + 'a>);

impl Configuration for InAnyState<'_> {
    fn blocks(&self) -> usize {
        self.0.umr_blocks
    }

    fn prepared(&self) -> &PreparedConfig {
        self.0.prepared
    }

    fn form(&self) -> LayoutForm {
        self.0.form
    }

    fn write(
        &mut self,
        blocks: &mut [Block],
        fields: ControlFields,
        mkey: &Mkey,
    ) -> Result<u64, ConfigError> {
        let length = self.0.write(blocks, fields, mkey, self.psvs())?;
        self.0.finish(blocks, mkey, length)?;
        Ok(length)
    }
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
