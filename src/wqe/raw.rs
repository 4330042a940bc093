//! Work requests that a caller built.

use super::control::ControlFields;
use crate::wire::ctrl::{ControlSegment, FmCeSe, Opcode, OpcodeWord};
use crate::wire::{Block, MAX_WQE_OCTOWORDS, OCTOWORD_BYTES, Octoword, blocks_of};
use crate::wqe::error::PostError;
use zerocopy::big_endian::U32;
use zerocopy::transmute;

/// A work request that a caller built, after a check of its size.
pub(crate) struct RawWqe<'a> {
    control: ControlSegment,
    /// The segments after the control segment.
    segments: &'a [Octoword],
}

impl<'a> RawWqe<'a> {
    /// Creates the request from as many octowords as the size in its control segment says. Later bytes are
    /// ignored.
    ///
    /// # Errors
    /// [`PostError::RawSize`], [`PostError::RawTooShort`].
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, PostError> {
        let (octowords, _) = bytes.as_chunks::<OCTOWORD_BYTES>();
        let too_short = |needed: usize| {
            let have = bytes.len() as u16;
            PostError::RawTooShort { needed: needed as u16, have }
        };
        let (first, rest) = octowords.split_first().ok_or(too_short(OCTOWORD_BYTES))?;
        let control: ControlSegment = transmute!(*first);
        let size = control.qpn_ds_word().ds();
        if size == 0 || size > MAX_WQE_OCTOWORDS {
            return Err(PostError::RawSize { octowords: size });
        }
        let size = usize::from(size);
        let segments = rest.get(..size - 1).ok_or(too_short(size * OCTOWORD_BYTES))?;
        Ok(Self { control, segments })
    }

    /// Returns the number of blocks that the request fills.
    pub(crate) const fn blocks(&self) -> usize {
        blocks_of(1 + self.segments.len())
    }

    /// Returns whether the request changes an mkey or a PSV that later requests may use.
    pub(crate) const fn changes_mkey(&self) -> bool {
        matches!(Opcode(self.control.opcode_word().opcode()), Opcode::UMR | Opcode::SET_PSV)
    }

    /// Writes the request. Its control segment gets block number, queue pair, and the combined flags of
    /// request and queue. The rest of the last block stays as before.
    pub(crate) fn write(&self, blocks: &mut [Block], fields: ControlFields) {
        let mut slots = blocks.as_flattened_mut().iter_mut();
        if let Some(control) = slots.next() {
            *control = transmute!(self.placed(fields));
        }
        for (slot, segment) in slots.zip(self.segments) {
            *slot = *segment;
        }
    }

    /// Returns the control segment with block number, size, queue pair and combined flags.
    fn placed(&self, fields: ControlFields) -> ControlSegment {
        let word = OpcodeWord::from_bits(self.control.opmod_idx_opcode.get());
        let octowords = 1 + self.segments.len() as u32;
        ControlSegment {
            opmod_idx_opcode: word.with_wqe_index(fields.begin as u16).into_bits().into(),
            qpn_ds: U32::new(fields.qpn as u32 | octowords),
            fm_ce_se: flags(self.control.flags(), fields.flags.bits()).into_bits(),
            ..self.control
        }
    }
}

/// Combines the flags in a request's own control segment with the flags that the caller of the queue asks
/// for. The fence in the control segment has priority. Of the two completion modes, the result has the one
/// with the higher code. A mode with a completion in all cases therefore prevails over a mode with one only
/// after errors.
const fn flags(own: FmCeSe, asked: FmCeSe) -> FmCeSe {
    let fm = if own.fm() == FmCeSe::FM_NONE { asked.fm() } else { own.fm() };
    let ce = if own.ce() < asked.ce() { asked.ce() } else { own.ce() };
    own.with_fm(fm).with_ce(ce).with_solicited(own.solicited() || asked.solicited())
}

// `flags` takes the higher of two codes. The order of the codes must therefore be the order of preference.
const _: () = assert!(FmCeSe::CE_ERROR_ONLY < FmCeSe::CE_NO_FLUSH_ERROR);
const _: () = assert!(FmCeSe::CE_NO_FLUSH_ERROR < FmCeSe::CE_ALWAYS && FmCeSe::CE_ALWAYS < FmCeSe::CE_EVENT);
