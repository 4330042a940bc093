//! Which request stands where: gives completions their identity and slots back to the queue.

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

/// The requests of a ring of at most `N` blocks, each filed under its first block.
///
/// Only what stands under the first block of a request between post and completion has a meaning. The queue knows where
/// the oldest one begins, and each says where the next one does.
pub(super) struct InFlightTable<const N: usize> {
    /// The user's names. Apart from the rest, so that a place is found without a multiplication.
    ids: [u64; N],
    works: [Work; N],
}

/// What a request is, and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Blocks that it fills.
    pub(super) blocks: u8,
    pub(super) kind: RequestKind,
}

impl<const N: usize> InFlightTable<N> {
    /// A position is an index less its high bits.
    const MASK: usize = {
        assert!(N.is_power_of_two(), "a queue keeps track of a power of two of blocks");
        N - 1
    };

    /// An empty table.
    pub(super) const fn new() -> Self {
        Self { ids: [0; N], works: [Work { blocks: 0, kind: RequestKind::Nop }; N] }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, index: u64, id: u64, work: Work) {
        let at = index as usize & Self::MASK;
        // Always there: the mask is below N.
        if let (Some(id_slot), Some(work_slot)) = (self.ids.get_mut(at), self.works.get_mut(at)) {
            (*id_slot, *work_slot) = (id, work);
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, index: u64) -> Option<(u64, Work)> {
        let at = index as usize & Self::MASK;
        Some((*self.ids.get(at)?, *self.works.get(at)?))
    }
}
