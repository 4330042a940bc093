//! The one way in: how a request gets into the ring. Every request reserves blocks, writes them, and commits them.
//!
//! [`SendRequest::configure_mkey`] compares two words: the kind that the configuration was prepared for, and that of the mkey. In
//! both stand flags beside the kind: the state of the mkey is not known, its tag cannot be written, an error count is to be told;
//! the configuration keeps a part of the mkey that has to be encoded first, or has a part that depends on the layout, as digests
//! have. Where the words are equal no flag is set, and `configure` writes the configuration as it was prepared. Else, and where that
//! was refused, `configure_slow` checks kind, tag, state and layout, encodes what the configuration keeps, and calls the same
//! `configure`, which then also finishes what was written, by the error count for one.
//!
//! `configure` reserves blocks for the UMR and its SET_PSVs (`SqProducer::reserve`): in the ring, or in scratch space where the
//! ring's end comes in between or too few are free. `Configuration::write` writes there what the layout has no part in, control
//! segments and BSFs, and then the layout, checking the entries and adding up their lengths; if the mkey may have that length, the
//! mkey context and the SET_PSVs follow. `SqProducer::commit` moves the producer on; before that it copies the scratch space to both
//! sides of the ring's end, or refuses it for lack of room, after what can never be posted was refused. In the end each work request
//! is filed under its first block, the next one gets the small fence, and the mkey notes what is in force. A request that is refused
//! may have written to blocks that are not committed or to the scratch space; requests posted, counters and mkey are as before. The
//! doorbell is rung by the caller.

use super::in_flight::{InFlight, RequestKind};
use super::send_state::SendState;
use crate::error::{ConfigError, PostError};
use crate::mkey::{Layout, Mkey};
use crate::wire::Block;
use crate::wqe::PreparedConfig;
use crate::wqe::control::RequestFlags;
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
        if prepared.kind_word() == mkey.kind_word() && self.state.has_room_for(&configuration) {
            let finished = |_: &mut [Block], _: &Mkey, _| Ok(());
            // A copy for each number of SET_PSVs: a fifth fewer instructions where there is none (a list of 4 entries).
            let posted = match prepared.psv_count() {
                0 => self.configure(mkey, &configuration, 0, finished),
                1 => self.configure(mkey, &configuration, 1, finished),
                _ => self.configure(mkey, &configuration, 2, finished),
            };
            // The slow path says why not: with errors of its own, a whole I/O takes 3 % more instructions (x86-64).
            if posted.is_ok() {
                return Ok(());
            }
        }
        out_of_line(move || self.configure_slow(mkey, prepared, layout))
    }

    /// Posts any configuration to an mkey in any state, or says why not.
    fn configure_slow(
        mut self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: Layout<'_>,
    ) -> Result<(), PostError> {
        prepared.check(mkey, &layout)?;
        let completed;
        let prepared = if prepared.depends_on(mkey) {
            completed = prepared.completed(mkey)?;
            &completed
        } else {
            prepared
        };
        let (configuration, psvs) = (Configuration::new(prepared, layout), prepared.psv_count().into());
        self.state.check_layout(&configuration)?;
        self.configure(mkey, &configuration, psvs, |blocks, mkey, length| {
            configuration.finish(blocks, mkey, length)
        })?;
        mkey.clear_flags();
        Ok(())
    }

    /// Posts a UMR and `psvs` SET_PSVs: reserves blocks, writes and finishes them, and commits them.
    // As a call, a list of 1 entry takes twice as many instructions (x86-64).
    #[inline(always)]
    fn configure(
        &mut self,
        mkey: &mut Mkey,
        configuration: &Configuration<'_>,
        psvs: usize,
        finish: impl FnOnce(&mut [Block], &Mkey, u64) -> Result<(), ConfigError>,
    ) -> Result<(), PostError> {
        let Self { state, in_flight, id, flags } = self;
        let (fields, blocks) = (state.control_fields(*flags), configuration.umr_blocks + psvs);
        let target = state.producer.reserve(blocks, in_flight)?;
        let length = configuration.write(target, fields, mkey, psvs)?;
        finish(target, mkey, length)?;
        state.producer.commit(fields.begin + blocks as u64, 1 + psvs, in_flight)?;
        file(state, in_flight, fields.begin, configuration.umr_blocks, *id, psvs);
        mkey.note_configured(configuration.prepared.config(), length);
        Ok(())
    }
}

/// Calls what is seldom needed: its arguments are put together there, and not before.
#[cold]
#[inline(never)]
fn out_of_line<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// Files the UMR and the SET_PSVs of a configuration. The last of them is what the user waits for.
#[inline]
pub(super) fn file(
    state: &mut SendState<'_>,
    in_flight: &mut InFlight,
    begin: u64,
    umr_blocks: usize,
    id: u64,
    psvs: usize,
) {
    let kind = |at| if at == psvs { RequestKind::MkeyConfigure } else { RequestKind::MkeyConfigurePart };
    in_flight.file(begin, id, kind(0), umr_blocks);
    let mut last = begin;
    for at in 0..psvs {
        last = begin + (umr_blocks + at) as u64;
        in_flight.file(last, id, kind(at + 1), 1);
    }
    state.note_posted(last, state.umr_fence);
}
