//! Which request stands where: gives completions their identity and slots back to the queue.

use heapless::Vec;

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
    /// Its number among all requests posted.
    pub(super) number: u32,
    pub(super) blocks: u8,
    pub(super) kind: RequestKind,
}

impl InFlight {
    const NONE: Self = Self { id: 0, number: 0, blocks: 0, kind: RequestKind::Nop };
}

/// The requests of a ring of at most `N` blocks, each filed under its first block.
pub(super) struct InFlightTable<const N: usize>(Vec<InFlight, N>);

impl<const N: usize> InFlightTable<N> {
    /// Makes a table for a ring of `slots` blocks, which is a power of two and at most `N`.
    pub(super) fn new(slots: u32) -> Self {
        let mut table = Vec::new();
        // Cannot fail: the ring's constructor has bounded `slots` to N.
        let _ = table.resize(slots as usize, InFlight::NONE);
        Self(table)
    }

    #[inline(always)]
    pub(super) fn set(&mut self, index: u32, request: InFlight) {
        let mask = self.0.len().wrapping_sub(1);
        if let Some(slot) = self.0.get_mut(index as usize & mask) {
            *slot = request;
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> Option<&InFlight> {
        self.0.get(index as usize & self.0.len().wrapping_sub(1))
    }
}
