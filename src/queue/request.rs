//! The one way in: how a request gets into the ring.
//!
//! [`SendRequest::configure_mkey`] compares two words: the kind that the configuration was prepared for, and that of the mkey. In
//! both stand flags beside the kind: the state of the mkey is not known, its tag cannot be written, an error count is to be told;
//! the configuration keeps a part of the mkey that has to be encoded first, or has a part that depends on the layout, as digests
//! have. Where the words are equal no flag is set, and the
//! configuration is written as it was encoded.
//!
//! Then `configure_fast` checks that the layout fits the mkey and the UMR fits a request of this queue, and reserves contiguous
//! blocks for the UMR and its SET_PSVs; where too few are known to be free, it looks again. `Configuration::write` puts the layout
//! there, checking the entries and adding up their lengths; then, if the mkey may have that length, control segments and mkey
//! context, the BSFs, and the SET_PSVs. In the end the producer moves on, each work request is filed under its first block, the
//! next one gets the small fence, and the mkey notes what is in force. The doorbell is rung by the caller.
//!
//! Where the words differ, or a check fails, or there is too little room before the ring's end, `configure_checked` begins anew.
//! It checks kind, tag and state of the mkey, encodes the configuration again with what it keeps, and names a limit that is
//! exceeded. It writes to the ring, or, around its end and where there is no room, to scratch space; adds the error count; and
//! refuses what can never be posted before it refuses for lack of room. Then it does the same as the fast way, copies the scratch
//! space to both sides of the ring's end, and clears the flags of the mkey. A request that is refused may have written to blocks
//! that are not committed or to the scratch space; requests posted, counters and mkey are as before.
//!
//! An RDMA WRITE goes the same two ways, all other requests (`transfer.rs`) the checked one.

use super::in_flight::{InFlight, RequestKind};
use super::send_state::SendState;
use crate::error::PostError;
use crate::mkey::{KlmEntry, Layout, Mkey};
use crate::wqe::PreparedConfig;
use crate::wqe::control::RequestFlags;
use crate::wqe::umr::{self, Configuration};

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
        if prepared.kind_word() == mkey.kind_word() {
            let configuration = Configuration::new(prepared, layout);
            // A function for each number of SET_PSVs: a fifth fewer instructions where there is none (a list of 4 entries).
            let posted = match prepared.psv_count() {
                0 => self.configure_fast(mkey, &configuration, 0),
                1 => self.configure_fast(mkey, &configuration, 1),
                _ => self.configure_fast(mkey, &configuration, 2),
            };
            if posted.is_some() {
                return Ok(());
            }
        }
        match layout {
            Layout::List(entries) => self.configure_list_checked(mkey, prepared, entries),
            Layout::Unchanged | Layout::Interleaved { .. } => self.configure_checked(mkey, prepared, layout),
        }
    }

    /// As [`SendRequest::configure_checked`], for a list.
    // With the enum as the only way there, posting a list of 4 entries takes 11 % more instructions (x86-64).
    #[cold]
    #[inline(never)]
    fn configure_list_checked(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        entries: &[KlmEntry],
    ) -> Result<(), PostError> {
        self.configure_checked(mkey, prepared, Layout::List(entries))
    }

    /// Posts a UMR and `psvs` SET_PSVs, if nothing stands against it.
    // As a call, a list of 1 entry takes twice as many instructions (x86-64).
    #[inline(always)]
    fn configure_fast(
        &mut self,
        mkey: &mut Mkey,
        configuration: &Configuration<'_>,
        psvs: usize,
    ) -> Option<()> {
        let Self { state, in_flight, id, flags } = self;
        if !state.has_room_for(configuration) {
            return None;
        }
        let (fields, blocks) = (state.control_fields(*flags), configuration.umr_blocks + psvs);
        let length = configuration.write(state.reserve_fast(blocks, in_flight)?, fields, mkey, psvs).ok()?;
        state.producer.commit_fast(fields.begin + blocks as u64);
        file(state, in_flight, fields.begin, configuration.umr_blocks, *id, psvs);
        mkey.note_configured(configuration.prepared.config(), length);
        Some(())
    }

    /// Posts a configuration, or says why not: for an mkey in any state, also around the ring's end.
    #[cold]
    #[inline(never)]
    fn configure_checked(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        layout: Layout<'_>,
    ) -> Result<(), PostError> {
        let Self { state, in_flight, id, flags } = self;
        prepared.check(mkey, &layout)?;
        let completed;
        let prepared = if prepared.depends_on(mkey) {
            completed = prepared.completed(mkey)?;
            &completed
        } else {
            prepared
        };
        let configuration = Configuration::new(prepared, layout);
        state.check_layout(&configuration)?;
        let request = SendRequest { state, in_flight, id, flags };
        request.post_checked(mkey, &configuration, usize::from(prepared.psv_count()))
    }

    /// Posts a UMR and `psvs` SET_PSVs, or says why not.
    fn post_checked(
        self,
        mkey: &mut Mkey,
        configuration: &Configuration<'_>,
        psvs: usize,
    ) -> Result<(), PostError> {
        let Self { state, in_flight, id, flags } = self;
        let (fields, blocks) = (state.control_fields(flags), configuration.umr_blocks + psvs);
        let (target, room) = state.reserve_checked(1 + psvs, blocks, in_flight)?;
        // What can never be posted is refused for that, whether there is room or not.
        let length = configuration.write(target, fields, mkey, psvs)?;
        configuration.finish(target, mkey, length)?;
        if let Some(count) = mkey.pending_error_count() {
            umr::write_error_count(target, count);
        }
        room?;
        state.producer.commit_checked(blocks);
        file(state, in_flight, fields.begin, configuration.umr_blocks, id, psvs);
        mkey.note_configured(configuration.prepared.config(), length);
        mkey.clear_flags();
        Ok(())
    }
}

/// Files the UMR and the SET_PSVs of a configuration. The last of them is what the user waits for.
#[inline]
fn file(
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
