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

/// A request between post and completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    /// The user's name for it.
    pub(super) id: u64,
    /// The block behind it.
    pub(super) end: u32,
    /// Its number among all requests posted.
    pub(super) number: u32,
    pub(super) kind: RequestKind,
}

/// The requests of a ring of at most `N` blocks, each filed under its first block.
pub(super) struct InFlightTable<const N: usize>([InFlight; N]);

impl<const N: usize> InFlightTable<N> {
    /// A position is an index less its high bits.
    const MASK: usize = {
        assert!(N.is_power_of_two(), "a queue keeps track of a power of two of blocks");
        N - 1
    };

    /// An empty table for a ring that begins at this block: no request ends behind the block that it is filed under.
    pub(super) const fn new(first: u32) -> Self {
        Self([InFlight { id: 0, end: first, number: 0, kind: RequestKind::Nop }; N])
    }

    #[inline(always)]
    pub(super) fn set(&mut self, index: u32, request: InFlight) {
        // Always there: the mask is below N.
        if let Some(slot) = self.0.get_mut(index as usize & Self::MASK) {
            *slot = request;
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> Option<&InFlight> {
        self.0.get(index as usize & Self::MASK)
    }
}
