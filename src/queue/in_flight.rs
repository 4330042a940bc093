//! The work requests between post and completion: each filed under its first block, so that a completion finds its own by the
//! counter that it carries.
//!
//! A completion retires the request that it names and all before it, which were silent: the tail moves past it. How many
//! requests were silent does not matter. Requests are numbered as they are posted: the difference of two numbers is how many
//! lie between.

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
    /// Configuration of an mkey: its last work request, after which the mkey is configured (`IBV_WC_DRIVER1`).
    MkeyConfigure,
    /// Configuration of an mkey, another work request than the last: the UMR where SET_PSVs follow, and all SET_PSVs but one.
    /// Polling leaves its success out; where the queue fails, it fails with the configuration's `wr_id`.
    MkeyConfigurePart,
    /// Start value of a PSV, for a digest.
    SetPsv,
    /// Invalidation of a local key (`IBV_WC_LOCAL_INV`).
    LocalInvalidate,
    /// Copy in memory (`MLX5DV_WC_MEMCPY`).
    Memcpy,
    /// What the caller built, whatever it does (`MLX5DV_WC_RAW_WQE`).
    Raw,
    /// Binding of a memory window (`IBV_WC_BIND_MW`).
    BindWindow,
}

impl RequestKind {
    /// Returns whether it changes an mkey or a PSV, which the next request may use: the device may need a fence before that.
    #[inline]
    pub(super) const fn changes_mkey(self) -> bool {
        matches!(self, Self::MkeyConfigure | Self::SetPsv | Self::LocalInvalidate | Self::BindWindow)
    }
}

/// A work request that a completion retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Retired {
    /// What the user calls it (`wr_id`).
    pub id: u64,
    /// What it was.
    pub kind: RequestKind,
}

/// A work request as it is filed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filed {
    /// What the user calls it (`wr_id`).
    pub(super) id: u64,
    /// Its first block, counted from the queue pair's start.
    pub(super) begin: u64,
    /// Its number among the work requests posted, modulo 2^32.
    number: u32,
    /// Blocks of 64 bytes that it fills, 1 or more.
    blocks: u8,
    pub(super) kind: RequestKind,
}

impl Filed {
    /// A slot that nothing was filed in: no block has its number.
    const NONE: Self = Self { id: 0, begin: u64::MAX, number: 0, blocks: 1, kind: RequestKind::Nop };

    /// Returns the block after it.
    pub(super) const fn end(&self) -> u64 {
        self.begin + self.blocks as u64
    }
}

/// The work requests of a ring of at most as many blocks as `filed` has slots, a power of two.
///
/// Blocks are counted from the queue pair's start. Outstanding requests begin at blocks from `tail` on, and fill a lap at most:
/// each has a slot of the table to itself. A slot may hold what was filed there in an earlier lap, with another `begin`.
pub(super) struct InFlight<F: ?Sized = [Filed]> {
    /// The first block of the oldest work request outstanding.
    tail: u64,
    /// The block after the last one published.
    published: u64,
    /// Work requests posted and retired, modulo 2^32.
    posted: u32,
    retired: u32,
    filed: F,
}

impl<const N: usize> InFlight<[Filed; N]> {
    /// No work request is outstanding, and the next one begins at this block.
    pub(super) const fn new(first_block: u64) -> Self {
        const { assert!(N.is_power_of_two(), "a queue keeps track of a power of two of blocks") };
        Self { tail: first_block, published: first_block, posted: 0, retired: 0, filed: [Filed::NONE; N] }
    }
}

impl InFlight {
    /// Forgets all work requests. The next one begins at block 0.
    pub(super) fn restart(&mut self) {
        (self.tail, self.published, self.posted, self.retired) = (0, 0, 0, 0);
        // Blocks are counted from 0 again: a slot must not name a request from before.
        self.filed.fill(Filed::NONE);
    }

    /// Returns the slot of a block: its number less the high bits.
    #[inline]
    fn slot(&self, block: u64) -> usize {
        block as usize & self.filed.len().wrapping_sub(1)
    }

    /// Returns the first block of the oldest work request outstanding.
    pub(super) const fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the block after the last one published.
    pub(super) const fn published(&self) -> u64 {
        self.published
    }

    /// Notes that the blocks before this one are published.
    pub(super) const fn publish(&mut self, producer: u64) {
        self.published = producer;
    }

    /// Returns how many work requests are outstanding.
    pub(super) const fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.retired)
    }

    /// Files the next work request.
    // Posting loses 3 % and more where this is a call.
    #[inline]
    pub(super) fn file(&mut self, begin: u64, id: u64, kind: RequestKind, blocks: usize) {
        // A work request has at most 16 blocks.
        let slot = self.slot(begin);
        if let Some(slot) = self.filed.get_mut(slot) {
            *slot = Filed { id, begin, number: self.posted, blocks: blocks as u8, kind };
        }
        self.posted = self.posted.wrapping_add(1);
    }

    /// Returns the outstanding work request that begins at the block with this number modulo 2^16, if there is one and it
    /// is published.
    #[inline]
    pub(super) fn find(&self, counter: u16) -> Option<&Filed> {
        // At most 2^15 blocks are outstanding: of all from the tail on, one has this counter.
        let begin = self.tail + u64::from(counter.wrapping_sub(self.tail as u16));
        let filed = self.filed.get(self.slot(begin))?;
        (begin < self.published && filed.begin == begin).then_some(filed)
    }

    /// Retires the work request that [`InFlight::find`] returns, and all before it. Where there is none, nothing changes.
    #[inline]
    pub(super) fn retire(&mut self, counter: u16) -> Option<Retired> {
        let &Filed { id, begin, number, blocks, kind } = self.find(counter)?;
        self.tail = begin + u64::from(blocks);
        self.retired = number.wrapping_add(1);
        Some(Retired { id, kind })
    }

    /// Goes through the outstanding work requests that begin before this block, oldest first.
    pub(super) fn before(&self, end: u64) -> impl Iterator<Item = &Filed> {
        let mut next = self.tail;
        core::iter::from_fn(move || {
            let filed = self.filed.get(self.slot(next))?;
            if next >= end || filed.begin != next {
                return None;
            }
            next = filed.end();
            Some(filed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// What is outstanding, as a list that is searched.
    #[derive(Default)]
    struct Model(VecDeque<(u64, u64, RequestKind, u64)>);

    impl Model {
        fn retire(&mut self, counter: u16, published: u64) -> Option<Retired> {
            let at = self.0.iter().position(|(begin, ..)| *begin as u16 == counter && *begin < published)?;
            self.0.drain(..=at).next_back().map(|(_, id, kind, _)| Retired { id, kind })
        }
    }

    #[test]
    fn completions_retire_what_a_search_would() {
        // Requests of 1 to 16 blocks in rings of all sizes, over many laps and over the ends of both counters; completions of
        // requests that are there, and of any counter.
        for first_block in [0, 0xfff0, u64::from(u32::MAX) - 100] {
            for ring in [1, 2, 16, 64] {
                let table: &mut InFlight = &mut InFlight::<[Filed; 64]>::new(first_block);
                (table.posted, table.retired) = (u32::MAX - 50, u32::MAX - 50);
                let mut model = Model::default();
                let (mut producer, mut dice) = (first_block, 7_u32);
                for id in 0..20_000 {
                    dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let blocks = 1 + u64::from(dice >> 28);
                    if producer + blocks - table.tail() <= ring {
                        let kind = if dice >> 9 & 1 == 0 {
                            RequestKind::Send
                        } else {
                            RequestKind::MkeyConfigurePart
                        };
                        table.file(producer, id, kind, blocks as usize);
                        model.0.push_back((producer, id, kind, blocks));
                        producer += blocks;
                    }
                    if dice >> 8 & 1 == 0 {
                        table.publish(producer);
                    }
                    let counter = match dice >> 16 & 3 {
                        0 => (dice >> 5) as u16,
                        1 => (producer as u16).wrapping_sub((dice >> 20 & 0x3f) as u16),
                        2 => model.0.get(dice as usize >> 18 & 7).map_or(0, |(begin, ..)| *begin as u16),
                        _ => continue,
                    };
                    assert_eq!(table.retire(counter), model.retire(counter, table.published()));
                    assert_eq!(table.outstanding() as usize, model.0.len());
                    assert_eq!(table.tail(), model.0.front().map_or(producer, |(begin, ..)| *begin));
                    for end in [producer, table.published()] {
                        let begins = table.before(end).map(|filed| filed.begin);
                        let expected = model.0.iter().map(|(begin, ..)| *begin);
                        assert!(begins.eq(expected.take_while(|begin| *begin < end)));
                    }
                }
                assert!(ring < 16 || producer > first_block + 10_000, "few requests were posted");
            }
        }
    }
}
