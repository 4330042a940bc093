//! Which request stands where: gives completions their identity and slots back to the queue.

use crate::wqe::set_psv;
use zerocopy::{FromBytes, Immutable, transmute};

/// What a send request was (`ibv_wc_opcode`). A cancelled request keeps it, although the ring then holds a NOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum RequestKind {
    /// NOP.
    Nop,
    /// Send, with or without immediate data or invalidation.
    Send,
    /// RDMA WRITE, with or without immediate data.
    RdmaWrite,
    /// RDMA READ.
    RdmaRead,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// Configuration of an mkey, complete with its SET_PSVs (`IBV_WC_DRIVER1`).
    MkeyConfigure,
    /// An inner request of a configuration. Polling passes its success over; where the queue fails, it fails under the
    /// configuration's name too.
    MkeyConfigurePart,
    /// Invalidation of a local key (`IBV_WC_LOCAL_INV`).
    LocalInvalidate,
}

impl RequestKind {
    /// Returns the kind with this number.
    #[inline(always)]
    const fn from_number(number: u8) -> Self {
        match number {
            _ if number == Self::Send as u8 => Self::Send,
            _ if number == Self::RdmaWrite as u8 => Self::RdmaWrite,
            _ if number == Self::RdmaRead as u8 => Self::RdmaRead,
            _ if number == Self::CompareSwap as u8 => Self::CompareSwap,
            _ if number == Self::FetchAdd as u8 => Self::FetchAdd,
            _ if number == Self::MkeyConfigure as u8 => Self::MkeyConfigure,
            _ if number == Self::MkeyConfigurePart as u8 => Self::MkeyConfigurePart,
            _ if number == Self::LocalInvalidate as u8 => Self::LocalInvalidate,
            _ => Self::Nop,
        }
    }
}

/// The requests of a ring of at most `N` blocks, each filed under its first block, and a configuration with its SET_PSVs as
/// one.
///
/// Only what stands under the first block of a request between post and completion has a meaning. The queue knows where
/// the oldest one begins, and each says where the next one does.
#[repr(C)]
pub(super) struct InFlightTable<const N: usize> {
    works: [Work; N],
    /// The user's names. Apart from the rest, so that a place is found without a multiplication.
    ids: [u64; N],
}

/// What a request is, and how long.
#[derive(Clone, Copy, Debug, FromBytes, Immutable)]
#[repr(C, align(4))]
pub(super) struct Work {
    /// Blocks that it fills, those of its SET_PSVs included: at most 18.
    blocks: u8,
    /// Which of the blocks the completion names: where the last work request begins.
    last: u8,
    /// See [`RequestKind::from_number`].
    kind: u8,
    /// SET_PSVs behind the UMR of a configuration.
    psvs: u8,
}

impl Work {
    const NONE: Self = Self::single(RequestKind::Nop, 0);

    /// A single work request. Put together as a number, by addition: one instruction and one store.
    #[inline(always)]
    pub(super) const fn single(kind: RequestKind, blocks: usize) -> Self {
        transmute!((blocks as u32 + ((kind as u32) << 16)).to_le())
    }

    /// An mkey's configuration: a UMR of so many blocks, and SET_PSVs.
    #[inline(always)]
    pub(super) const fn configuration(umr_blocks: usize, psvs: usize) -> Self {
        if psvs == 0 {
            return Self::single(RequestKind::MkeyConfigure, umr_blocks);
        }
        let blocks = umr_blocks + psvs * set_psv::BLOCKS;
        // One by one: both numbers are in registers already.
        let last = blocks - set_psv::BLOCKS;
        Self {
            blocks: blocks as u8,
            last: last as u8,
            kind: RequestKind::MkeyConfigure as u8,
            psvs: psvs as u8,
        }
    }

    /// Returns the number of blocks.
    #[inline(always)]
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.into()
    }

    /// Returns which of the blocks the completion names.
    #[inline(always)]
    pub(super) fn last(&self) -> u64 {
        self.last.into()
    }

    /// Returns what it is.
    #[inline(always)]
    pub(super) const fn kind(&self) -> RequestKind {
        RequestKind::from_number(self.kind)
    }

    /// Returns the number of work requests.
    pub(super) fn requests(self) -> u32 {
        1 + u32::from(self.psvs)
    }

    /// Returns where its work requests begin, counted from the first block.
    pub(super) fn starts(self) -> impl Iterator<Item = u64> {
        let (each, psvs) = (set_psv::BLOCKS as u64, u64::from(self.psvs));
        let first = self.blocks() - psvs * each;
        core::iter::once(0).chain((0..psvs).map(move |at| first + at * each))
    }
}

impl<const N: usize> InFlightTable<N> {
    /// A position is an index less its high bits.
    const MASK: usize = {
        assert!(N.is_power_of_two(), "a queue keeps track of a power of two of blocks");
        N - 1
    };

    /// An empty table.
    pub(super) const fn new() -> Self {
        Self { ids: [0; N], works: [Work::NONE; N] }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, index: u64, id: u64, work: Work) {
        let at = index as usize & Self::MASK;
        // Always there: the mask is below N.
        if let (Some(id_slot), Some(work_slot)) = (self.ids.get_mut(at), self.works.get_mut(at)) {
            (*id_slot, *work_slot) = (id, work);
        }
    }

    /// Goes from request to request: where each begins, its name, and what it is.
    pub(super) fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64, Work)> {
        let mut next = from;
        core::iter::from_fn(move || {
            let begin = next;
            if begin >= to {
                return None;
            }
            let (id, work) = self.get(begin);
            next += work.blocks();
            Some((begin, id, work))
        })
    }

    #[inline(always)]
    pub(super) fn get(&self, index: u64) -> (u64, Work) {
        let at = index as usize & Self::MASK;
        // As in `set`.
        (self.ids.get(at).copied().unwrap_or_default(), self.works.get(at).copied().unwrap_or(Work::NONE))
    }
}
