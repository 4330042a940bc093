//! The one way in: how a request gets into the ring.
//!
//! [`SendRequest::configure_mkey`] compares the kind of the mkey with that of the prepared configuration: one word, which also
//! says whether the state of the mkey is known. It reserves as many blocks as the request has, and hands them to
//! `Configuration::write`, which puts the layout, the control segments, the mkey context, the BSFs and the SET_PSVs there, and
//! adds up the length of the mkey. Then the blocks are committed: the producer moves on, each work request is filed under its
//! first block, and the mkey notes what is in force. What is refused before that has written into blocks that are not published,
//! and changed nothing else.
//!
//! All this is tried at once, in the caller's code. Where something stands against it (another state of the mkey, no room known
//! to be free and contiguous, an error), `SendRequest::configure_slowly` begins anew: it completes the configuration from the
//! state of the mkey, says what is refused and why, looks again how many blocks are free, and takes a request around the ring's
//! end. Data-path requests (`transfer.rs`) go the same way.

use super::in_flight::{InFlight, RequestKind};
use super::send_state::SendState;
use crate::error::PostError;
use crate::mkey::{KlmEntry, Layout, Mkey};
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
    #[inline(always)]
    pub(super) const fn new(state: &'q mut SendState<'r>, in_flight: &'q mut InFlight, id: u64) -> Self {
        Self { state, in_flight, id, flags: RequestFlags::NONE }
    }

    /// Waits until reads and atomics posted before are done (`IBV_SEND_FENCE`).
    #[inline]
    pub const fn fenced(mut self) -> Self {
        self.flags = self.flags.with(RequestFlags::FENCED);
        self
    }

    /// Gets a completion of its own (`IBV_SEND_SIGNALED`).
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

    /// Changes an mkey: one UMR, and a SET_PSV for each domain whose signature starts anew, of which the last carries the
    /// completion (man page `mlx5dv_wr_mkey_configure`).
    ///
    /// Requests behind it on the same queue may use the mkey at once.
    ///
    /// # Errors
    /// [`PostError::Config`] for what mkey or queue cannot hold, [`PostError::RingFull`], [`PostError::TooManyRequests`].
    /// Counters and mkey are then as before.
    // A third more instructions where it is called (a list of 4 entries, x86-64 and Cortex-A72).
    #[inline(always)]
    pub fn configure_mkey<'l>(
        mut self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: impl Into<Layout<'l>>,
    ) -> Result<(), PostError> {
        let layout = layout.into();
        if prepared.kind_word() == mkey.kind_word() {
            let configuration = Configuration::new(prepared, layout);
            // The compiler knows how many SET_PSVs there are: a fifth less where there is none (a list of 4 entries).
            let posted = match prepared.psv_count() {
                0 => self.configure_at_once::<0>(mkey, &configuration),
                1 => self.configure_at_once::<1>(mkey, &configuration),
                _ => self.configure_at_once::<2>(mkey, &configuration),
            };
            if posted.is_some() {
                return Ok(());
            }
        }
        match layout {
            Layout::List(entries) => self.configure_list_slowly(mkey, prepared, entries),
            Layout::Unchanged | Layout::Interleaved { .. } => self.configure_slowly(mkey, prepared, layout),
        }
    }

    /// As [`SendRequest::configure_slowly`]: a slice goes in registers.
    #[cold]
    #[inline(never)]
    fn configure_list_slowly(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        entries: &[KlmEntry],
    ) -> Result<(), PostError> {
        self.configure_slowly(mkey, prepared, Layout::List(entries))
    }

    /// Posts a UMR and `PSVS` SET_PSVs, where nothing stands against it.
    #[inline(always)]
    fn configure_at_once<const PSVS: usize>(
        &mut self,
        mkey: &mut Mkey,
        configuration: &Configuration<'_>,
    ) -> Option<()> {
        let Self { state, in_flight, id, flags } = self;
        if !state.has_room_for(configuration) {
            return None;
        }
        let (post, blocks) = (state.post(*flags), configuration.umr_blocks + PSVS);
        let length = configuration.write::<PSVS>(state.producer.reserve_at_once(blocks)?, post, mkey).ok()?;
        state.producer.commit(blocks);
        file::<PSVS>(state, in_flight, post.begin, configuration.umr_blocks, *id);
        mkey.note_configured(configuration.prepared.config(), length);
        Some(())
    }

    /// Posts a configuration in any case but one that is refused: of an mkey in any state, with a second look for room.
    #[cold]
    #[inline(never)]
    fn configure_slowly(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: Layout<'_>,
    ) -> Result<(), PostError> {
        let Self { state, in_flight, id, flags } = self;
        let mut completed;
        let prepared = if prepared.kind_word() == mkey.kind_word() {
            prepared
        } else {
            completed = *prepared;
            completed.complete(mkey, &layout)?;
            &completed
        };
        let configuration = Configuration::new(prepared, layout);
        state.check_layout(&configuration)?;
        let request = SendRequest { state, in_flight, id, flags };
        match prepared.psv_count() {
            0 => request.configure_anywhere::<0>(mkey, &configuration)?,
            1 => request.configure_anywhere::<1>(mkey, &configuration)?,
            _ => request.configure_anywhere::<2>(mkey, &configuration)?,
        }
        mkey.note_state_known();
        Ok(())
    }

    /// Posts a UMR and `PSVS` SET_PSVs, with a second look for room.
    fn configure_anywhere<const PSVS: usize>(
        self,
        mkey: &mut Mkey,
        configuration: &Configuration<'_>,
    ) -> Result<(), PostError> {
        let Self { state, in_flight, id, flags } = self;
        let (post, blocks) = (state.post(flags), configuration.umr_blocks + PSVS);
        let (target, room) = match state.reserve(1 + PSVS, blocks, in_flight) {
            Ok(reserved) => (reserved, Ok(())),
            Err(full) => (state.producer.scratch(blocks), Err(full)),
        };
        // What can never be posted is refused for that, whether there is room or not.
        let length = configuration.write::<PSVS>(target, post, mkey)?;
        room?;
        state.producer.commit_reserved(blocks);
        file::<PSVS>(state, in_flight, post.begin, configuration.umr_blocks, id);
        mkey.note_configured(configuration.prepared.config(), length);
        Ok(())
    }
}

/// Files the UMR and the SET_PSVs of a configuration. The last of them is what the user waits for.
#[inline(always)]
fn file<const PSVS: usize>(
    state: &mut SendState<'_>,
    in_flight: &mut InFlight,
    begin: u64,
    umr_blocks: usize,
    id: u64,
) {
    let kind = |at| if at == PSVS { RequestKind::MkeyConfigure } else { RequestKind::MkeyConfigurePart };
    in_flight.file(begin, id, kind(0), umr_blocks);
    let mut last = begin;
    for at in 0..PSVS {
        last = begin + (umr_blocks + at) as u64;
        in_flight.file(last, id, kind(at + 1), 1);
    }
    state.note_posted(last, RequestFlags::AFTER_UMR);
}
