//! The one way in: how a request gets into the ring. Every request reserves blocks, writes them, and commits them.
//!
//! [`SendRequest::configure_mkey`] compares the kind that the configuration was prepared for with that of the mkey. Both words also
//! have flags for what must be looked at first: an mkey's, for a state that is not known or a tag that the device cannot change; a
//! configuration's, for a part of the mkey that stays or a field that is written last. Where the words are equal and
//! `UmrRequest::has_room` finds the layout short enough, `configure` writes the configuration as it was prepared. Else, or where
//! that was refused, `configure_slow` has `PreparedConfig::completed` check kind, tag and state and encode what stays, has
//! `SendState::check_layout` check the length of the layout, writes the result by the same functions, and has `UmrRequest::finish`
//! add what few requests need.
//!
//! Blocks come from `SqProducer::reserve`: in the ring, or in scratch space where they are not free or the ring's end comes before the
//! last. `UmrRequest::write` fills them in: `control::write` the control segment, `layout::write` the entries, which it checks and
//! sums up, `write_set_psv` each SET_PSV, and itself the UMR control segment, BSFs and mkey context.
//!
//! `SendRequest::commit` makes the blocks a request. `SqProducer::commit` moves the producer on, after it copied scratch space into the
//! ring, or refuses where ring or limit of requests has no room. `InFlight::file` files each work request under its first block, and
//! the next request is fenced if this one changes an mkey. One thing is written after that, before the doorbell: where the device has
//! to know a new count of signature errors, `tell_error_count` adds it to the blocks. Last, the mkey notes what is in force. A request
//! that is refused may have written to blocks that are not committed, but posted requests, counters and mkey are as before. The
//! caller rings the doorbell.

use super::in_flight::{InFlight, RequestKind};
use super::send_state::SendState;
use crate::error::PostError;
use crate::mkey::{Layout, Mkey};
use crate::types::Qpn;
use crate::wire::Block;
use crate::wqe::PreparedConfig;
use crate::wqe::control::{ControlFields, RequestFlags};
use crate::wqe::umr::UmrRequest;

/// A send request under construction: flags first, then one of the methods that post it. Nothing is posted before.
#[must_use = "nothing is posted until one of the posting methods is called"]
pub struct SendRequest<'q, 'r> {
    pub(super) state: &'q mut SendState<'r>,
    pub(super) in_flight: &'q mut InFlight,
    pub(super) id: u64,
    pub(super) flags: RequestFlags,
}

crate::fmt::format_counters!(['q, 'r] SendRequest ['q, 'r] { id, flags });

impl<'q, 'r> SendRequest<'q, 'r> {
    #[inline]
    pub(super) const fn new(state: &'q mut SendState<'r>, in_flight: &'q mut InFlight, id: u64) -> Self {
        Self { state, in_flight, id, flags: RequestFlags::NONE }
    }

    /// Returns the number of the queue pair.
    #[inline]
    pub(crate) const fn qpn(&self) -> Qpn {
        self.state.qpn()
    }

    /// Returns what the completion will carry.
    #[inline]
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Is not executed before the reads and atomics posted before it are done (`IBV_SEND_FENCE`).
    #[inline]
    pub const fn fenced(mut self) -> Self {
        self.flags = self.flags.with(RequestFlags::FENCED);
        self
    }

    /// Completes with an entry in the completion queue, also where it succeeds (`IBV_SEND_SIGNALED`).
    #[inline]
    pub const fn signaled(mut self) -> Self {
        self.flags = self.flags.with(RequestFlags::SIGNALED);
        self
    }

    /// Raises a solicited event at the receiver (`IBV_SEND_SOLICITED`).
    #[inline]
    pub const fn solicited(mut self) -> Self {
        self.flags = self.flags.with(RequestFlags::SOLICITED);
        self
    }

    /// Changes an mkey: one UMR, and after it a SET_PSV for each domain whose signature is set, or begins again after a signature
    /// error (man page `mlx5dv_wr_mkey_configure`). The last of them carries the completion.
    ///
    /// Requests posted after it on the same queue may use the mkey. The device sees nothing of all that before
    /// [`ring_doorbell`](crate::queue::SendQueue::ring_doorbell).
    ///
    /// # Errors
    /// [`PostError::Config`] for what mkey or queue cannot hold, and else [`PostError::SendRingFull`] or
    /// [`PostError::TooManyRequests`]. Counters and mkey are then as before.
    // As a call, a list of 1 entry takes 75 % more instructions on x86-64, and rows of A72 27 to 79 %.
    #[inline(always)]
    pub fn configure_mkey<'l>(
        mut self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: impl Into<Layout<'l>>,
    ) -> Result<(), PostError> {
        let layout = layout.into();
        let umr = UmrRequest::new(prepared, layout);
        if prepared.kind_word() == mkey.kind_word() && umr.has_room(self.state.max_umr_blocks) {
            // A copy for each number of SET_PSVs: a fifth fewer instructions where there is none (a list of 4 entries).
            let posted = match prepared.psv_count() {
                0 => self.configure::<0>(mkey, &umr),
                1 => self.configure::<1>(mkey, &umr),
                _ => self.configure::<2>(mkey, &umr),
            };
            // The slow path finds the reason: with errors of its own, a whole I/O takes 3 % more instructions (x86-64).
            if posted.is_ok() {
                return Ok(());
            }
        }
        out_of_line(move || self.configure_slow(mkey, prepared, layout))
    }

    /// Posts a UMR as it was prepared, and `PSVS` SET_PSVs.
    // As a call, a list of 1 entry takes 100 % more instructions on x86-64, and rows of A72 47 to 140 %.
    #[inline(always)]
    fn configure<const PSVS: usize>(
        &mut self,
        mkey: &mut Mkey,
        umr: &UmrRequest<'_>,
    ) -> Result<(), PostError> {
        let (blocks, fields) = self.reserve(umr.umr_blocks + PSVS)?;
        let length = umr.write(blocks, fields, mkey, PSVS)?;
        self.commit(fields.begin, RequestKind::MkeyConfigure, umr.umr_blocks, PSVS)?;
        self.tell_error_count(fields.begin, mkey);
        mkey.note_configured(umr.prepared.config(), &umr.layout, length);
        Ok(())
    }

    /// Posts any configuration to an mkey in any state, or returns the reason why it cannot.
    fn configure_slow(
        mut self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: Layout<'_>,
    ) -> Result<(), PostError> {
        let mut place = None;
        let prepared = prepared.completed(mkey, &layout, &mut place)?;
        let (umr, psvs) = (UmrRequest::new(prepared, layout), prepared.psv_count().into());
        self.state.check_layout(&umr)?;
        let (blocks, fields) = self.reserve(umr.umr_blocks + psvs)?;
        let length = umr.write(blocks, fields, mkey, psvs)?;
        umr.finish(blocks, mkey, length)?;
        self.commit(fields.begin, RequestKind::MkeyConfigure, umr.umr_blocks, psvs)?;
        self.tell_error_count(fields.begin, mkey);
        mkey.note_configured(prepared.config(), &umr.layout, length);
        mkey.note_known();
        Ok(())
    }

    /// Has the UMR committed at block `begin` tell the device how many signature errors of the mkey were seen, if it has to know.
    #[inline]
    pub(super) fn tell_error_count(&mut self, begin: u64, mkey: &mut Mkey) {
        // In the ring, as it is seldom: written with the rest of the request, a whole I/O takes 2 to 5 % more instructions (x86-64).
        if mkey.error_count_is_pending() {
            self.state.add_error_count(begin, mkey);
        }
    }

    /// Returns blocks to write, and the fields of the first control segment beside opcode and size.
    #[inline]
    pub(super) fn reserve(&mut self, blocks: usize) -> Result<(&mut [Block], ControlFields), PostError> {
        let SendState { producer, qpn_dword, next_flags, .. } = &mut *self.state;
        let (begin, flags) = (producer.producer(), self.flags);
        let fields = ControlFields { qpn: *qpn_dword, begin, flags, default: *next_flags };
        Ok((producer.reserve(blocks, self.in_flight)?, fields))
    }

    /// Posts what was written to the blocks reserved, from number `begin` on: a work request of `blocks` blocks, and `psvs` SET_PSVs
    /// after it. The last of them is what the user waits for.
    // With `#[inline]`, a whole I/O takes up to 2 % more instructions on x86-64, and a refusal 3 % there and 5 % on A72.
    #[inline(always)]
    pub(super) fn commit(
        &mut self,
        begin: u64,
        kind: RequestKind,
        blocks: usize,
        psvs: usize,
    ) -> Result<(), PostError> {
        let Self { state, in_flight, id, .. } = self;
        state.producer.commit(begin + (blocks + psvs) as u64, 1 + psvs, in_flight)?;
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

/// Calls what is seldom needed: its arguments are put together there, and not before.
// As `#[cold]` on what is called, a list of 1 entry takes 3 % more instructions (x86-64).
#[cold]
#[inline(never)]
fn out_of_line<T>(call: impl FnOnce() -> T) -> T {
    call()
}
