//! The one way in: how a request gets into the ring. Every request reserves blocks, writes them, and commits them.
//!
//! [`SendRequest::configure_mkey`] compares two words: the kind that the configuration was prepared for, and that of the mkey. In
//! both stand flags beside the kind: the state of the mkey is not known, its tag cannot be written, an error count is to be told;
//! the configuration keeps a part of the mkey that has to be encoded first, or has a part that depends on the layout, as digests
//! have. Where the words are equal no flag is set. Then `Configuration::has_room` compares the layout with the mkey's entries, and
//! the blocks of the UMR with what a request of the queue may have, and `configure` writes the configuration as it was prepared. Else,
//! and where that was refused, `configure_slow` checks tag, state and layout, has `PreparedConfig::completed` check the kind and
//! encode what the configuration keeps, and writes it by the same function; `Configuration::finish` then adds what only some need: the
//! error count, the length of the data in BSFs, fields beside the length.
//!
//! Both call `reserve`, which puts the fields of the control segment together and takes blocks for the UMR and its SET_PSVs from
//! `SqProducer::reserve`: in the ring, or in scratch space if the ring's end comes before the last block, or if fewer blocks are free,
//! or fewer requests allowed, than it has blocks. `Configuration::write` writes there the control segment, the UMR control segment
//! and the BSFs; by `layout::write` the entries, which are checked and whose lengths are summed; then, if the mkey may map that many
//! bytes, the mkey context; last, by `write_set_psv`, the SET_PSVs, each with a control segment of its own. But for what `finish` adds,
//! that is all that the device will read.
//!
//! `commit` first copies scratch space into the ring, in two pieces at its end, or refuses: too many requests, or no room. What can
//! never be posted was refused before. Then it moves the producer on, files each work request under its first block, and gives the
//! next one the device's fence if this one changes an mkey. In the end the mkey notes what is in force. A request that is refused may
//! have written to blocks that are not committed or to the scratch space; requests posted, counters and mkey are as before. The
//! doorbell is rung by the caller.

use super::in_flight::{InFlight, RequestKind};
use super::send_state::SendState;
use crate::error::PostError;
use crate::mkey::{Layout, Mkey};
use crate::wire::Block;
use crate::wqe::PreparedConfig;
use crate::wqe::control::{ControlFields, RequestFlags};
use crate::wqe::umr::Configuration;

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
    // As a call, a list of 1 entry takes 75 % more instructions (x86-64).
    #[inline(always)]
    pub fn configure_mkey<'l>(
        mut self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: impl Into<Layout<'l>>,
    ) -> Result<(), PostError> {
        let layout = layout.into();
        let configuration = Configuration::new(prepared, layout);
        if prepared.kind_word() == mkey.kind_word() && configuration.has_room(self.state.max_umr_blocks) {
            // A copy for each number of SET_PSVs: a fifth fewer instructions where there is none (a list of 4 entries).
            let posted = match prepared.psv_count() {
                0 => self.configure(mkey, &configuration, 0),
                1 => self.configure(mkey, &configuration, 1),
                _ => self.configure(mkey, &configuration, 2),
            };
            // The slow path says why not: with errors of its own, a whole I/O takes 3 % more instructions (x86-64).
            if posted.is_ok() {
                return Ok(());
            }
        }
        out_of_line(move || self.configure_slow(mkey, prepared, layout))
    }

    /// Posts a UMR as it was prepared, and `psvs` SET_PSVs.
    // As a call, a list of 1 entry takes twice as many instructions (x86-64).
    #[inline(always)]
    fn configure(
        &mut self,
        mkey: &mut Mkey,
        configuration: &Configuration<'_>,
        psvs: usize,
    ) -> Result<(), PostError> {
        let (blocks, fields) = self.reserve(configuration.umr_blocks + psvs)?;
        let length = configuration.write(blocks, fields, mkey, psvs)?;
        self.commit(fields.begin, RequestKind::MkeyConfigure, configuration.umr_blocks, psvs)?;
        mkey.note_configured(configuration.prepared.config(), &configuration.layout, length);
        Ok(())
    }

    /// Posts any configuration to an mkey in any state, or says why not.
    fn configure_slow(
        mut self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: Layout<'_>,
    ) -> Result<(), PostError> {
        let mut place = None;
        let prepared = prepared.completed(mkey, &layout, &mut place)?;
        let (configuration, psvs) = (Configuration::new(prepared, layout), prepared.psv_count().into());
        self.state.check_layout(&configuration)?;
        let (blocks, fields) = self.reserve(configuration.umr_blocks + psvs)?;
        let length = configuration.write(blocks, fields, mkey, psvs)?;
        configuration.finish(blocks, mkey, length)?;
        self.commit(fields.begin, RequestKind::MkeyConfigure, configuration.umr_blocks, psvs)?;
        mkey.note_configured(prepared.config(), &configuration.layout, length);
        mkey.clear_flags();
        Ok(())
    }

    /// Returns blocks to write, and what the control segment of the first says beside opcode and size.
    #[inline]
    pub(super) fn reserve(&mut self, blocks: usize) -> Result<(&mut [Block], ControlFields), PostError> {
        let SendState { producer, qpn_dword, next_flags, .. } = &mut *self.state;
        let (begin, flags) = (producer.producer(), self.flags);
        let fields = ControlFields { qpn: *qpn_dword, begin, flags, default: *next_flags };
        Ok((producer.reserve(blocks, self.in_flight)?, fields))
    }

    /// Posts what was written to the blocks reserved, from number `begin` on: a work request of `blocks` blocks, and `psvs` SET_PSVs
    /// after it. The last of them is what the user waits for.
    // With `#[inline]`, a whole I/O with a list of 4 entries takes 3 % more instructions (x86-64, LTO).
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
