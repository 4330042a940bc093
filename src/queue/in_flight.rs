//! The work requests between post and completion: each filed under its first block, so that a completion
//! finds its own by the counter that it carries.
//!
//! A completion retires the request that it names and all before it, which were silent: the tail moves past
//! it. How many requests were silent does not matter: a queue with a limit of requests counts them when it
//! looks for room.

use bitfield_struct::bitfield;

/// What a send request was (`ibv_wc_opcode`). A cancelled request keeps it, although the ring then holds a
/// NOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
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
    /// Configuration of an mkey: its last work request, after which the mkey is configured
    /// (`IBV_WC_DRIVER1`).
    MkeyConfigure,
    /// Configuration of an mkey, another work request than the last: the UMR where SET_PSVs follow, and all
    /// SET_PSVs but one. Polling leaves its success out; where the queue fails, it fails with the
    /// configuration's `wr_id`.
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
    const fn into_bits(self) -> u8 {
        self as u8
    }

    /// Returns the kind with this number; numbers that no kind has are not filed.
    #[inline]
    const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Nop,
            1 => Self::Send,
            2 => Self::RdmaWrite,
            3 => Self::RdmaRead,
            4 => Self::CompareSwap,
            5 => Self::FetchAdd,
            6 => Self::MkeyConfigure,
            7 => Self::MkeyConfigurePart,
            8 => Self::SetPsv,
            9 => Self::LocalInvalidate,
            10 => Self::Memcpy,
            11 => Self::Raw,
            _ => Self::BindWindow,
        }
    }

    /// Returns whether it changes an mkey or a PSV, which the next request may use: the device may need a
    /// fence before that.
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

/// A work request as it is filed: 16 bytes for each block of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filed {
    /// What the user calls it (`wr_id`).
    pub(super) id: u64,
    place: Place,
}

/// Where a work request is and what it was, in one word: posting writes it once.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
struct Place {
    #[bits(4)]
    kind: RequestKind,
    /// Blocks of 64 bytes that it fills, 1 to 16.
    #[bits(5)]
    blocks: u8,
    /// Its first block, counted from the queue pair's start.
    #[bits(55)]
    begin: u64,
}

impl Filed {
    /// A slot that nothing was filed in: no block has its number.
    const NONE: Self = Self { id: 0, place: Place::from_bits(u64::MAX) };

    #[inline]
    const fn begin(&self) -> u64 {
        self.place.begin()
    }

    /// Returns the block after it.
    #[inline]
    const fn end(&self) -> u64 {
        self.begin() + self.place.blocks() as u64
    }

    #[inline]
    pub(super) const fn retired(&self) -> Retired {
        Retired { id: self.id, kind: self.place.kind() }
    }
}

const _: () = assert!(size_of::<Filed>() == 16);

/// The work requests of a ring of at most as many blocks as `filed` has slots, a power of two.
///
/// Blocks are counted from the queue pair's start. Outstanding requests begin at blocks from `tail` on, and
/// fill a lap at most: each has a slot of the table to itself. A slot may hold what was filed there in an
/// earlier lap, with another `begin`.
pub(super) struct InFlight<F: ?Sized = [Filed]> {
    /// The first block of the oldest work request outstanding.
    tail: u64,
    /// The block after the last one published.
    published: u64,
    limit: Limit,
    filed: F,
}

/// How many work requests may be outstanding. They are counted where a queue with a limit runs out of room
/// that it knows of, and not when they are posted and retired: few queues have a limit.
struct Limit {
    /// `u32::MAX` where there is none.
    most: u32,
    /// Work requests that begin at blocks from `from` to the one before `to`. All of them are still filed:
    /// the next count is taken before a request is filed a lap after `from`.
    counted: u32,
    from: u64,
    to: u64,
}

impl Limit {
    const fn new(most: u32, first_block: u64) -> Self {
        Self { most, counted: 0, from: first_block, to: first_block }
    }
}

impl<const N: usize> InFlight<[Filed; N]> {
    /// No work request is outstanding, up to `limit` may be, and the next one begins at this block.
    pub(super) const fn new(first_block: u64, limit: u32) -> Self {
        const { assert!(N.is_power_of_two(), "a queue keeps track of a power of two of blocks") };
        let filed = [Filed::NONE; N];
        let limit = Limit::new(limit, first_block);
        Self { tail: first_block, published: first_block, limit, filed }
    }
}

impl InFlight {
    /// Forgets all work requests. The next one begins at block 0.
    pub(super) fn restart(&mut self) {
        (self.tail, self.published, self.limit) = (0, 0, Limit::new(self.limit.most, 0));
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

    /// Returns how many work requests are outstanding, where the first block that is not committed is
    /// `producer`: they are counted one by one.
    pub(super) fn outstanding(&self, producer: u64) -> u32 {
        self.count(self.tail, producer)
    }

    /// Returns whether there is a limit of requests.
    #[inline]
    pub(super) const fn is_limited(&self) -> bool {
        self.limit.most != u32::MAX
    }

    /// Returns how many work requests may still be posted, where the first block that is not committed is
    /// `producer`.
    pub(super) fn free_requests(&mut self, producer: u64) -> u32 {
        if !self.is_limited() {
            return u32::MAX;
        }
        let Limit { most, counted, from, to } = self.limit;
        let retired = self.count(from, self.tail);
        let counted = counted + self.count(to, producer) - retired;
        self.limit = Limit { most, counted, from: self.tail, to: producer };
        most.saturating_sub(counted)
    }

    /// Counts the work requests from the one that begins at block `first` to the one before block `end`.
    fn count(&self, first: u64, end: u64) -> u32 {
        self.filed_from(first, end).count() as u32
    }

    /// Files the next work request.
    // Posting loses 3 % and more where this is a call.
    #[inline]
    pub(super) fn file(&mut self, begin: u64, id: u64, kind: RequestKind, blocks: usize) {
        let slot = self.slot(begin);
        if let Some(slot) = self.filed.get_mut(slot) {
            // As the setters do it, without their checks: a work request has 1 to 16 blocks.
            let bits = ((begin << 5) + blocks as u64) << 4 | kind as u64;
            *slot = Filed { id, place: Place::from_bits(bits) };
        }
    }

    /// Returns the outstanding work request that begins at the block with this number modulo 2^16, if there
    /// is one and it is published.
    #[inline]
    fn find(&self, counter: u16) -> Option<Filed> {
        // At most 2^15 blocks are outstanding: of all from the tail on, one has this counter.
        let begin = self.tail + u64::from(counter.wrapping_sub(self.tail as u16));
        let filed = *self.filed.get(self.slot(begin))?;
        (begin < self.published && filed.begin() == begin).then_some(filed)
    }

    /// Returns the first block of what [`InFlight::find`] returns.
    pub(super) fn begin(&self, counter: u16) -> Option<u64> {
        self.find(counter).map(|filed| filed.begin())
    }

    /// Retires the work request that [`InFlight::find`] returns, and all before it. Where there is none,
    /// nothing changes.
    #[inline]
    pub(super) fn retire(&mut self, counter: u16) -> Option<Retired> {
        let filed = self.find(counter)?;
        self.tail = filed.end();
        Some(filed.retired())
    }

    /// Goes through the outstanding work requests that begin before this block, oldest first, each with its
    /// first block.
    pub(super) fn before(&self, end: u64) -> impl Iterator<Item = (u64, &Filed)> {
        self.filed_from(self.tail, end)
    }

    /// Goes through the work requests from the one that begins at block `next` to the one before block `end`.
    fn filed_from(&self, mut next: u64, end: u64) -> impl Iterator<Item = (u64, &Filed)> {
        core::iter::from_fn(move || {
            let (begin, filed) = (next, self.filed.get(self.slot(next))?);
            if begin >= end || filed.begin() != begin {
                return None;
            }
            next = filed.end();
            Some((begin, filed))
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
        // Requests of 1 to 16 blocks in rings of all sizes, over many laps and over the ends of both
        // counters; completions of requests that are there, and of any counter.
        for first_block in [0, 0xfff0, u64::from(u32::MAX) - 100] {
            for ring in [1, 2, 16, 64] {
                let most = 1 << 16;
                let table: &mut InFlight = &mut InFlight::<[Filed; 64]>::new(first_block, most);
                let mut model = Model::default();
                let (mut producer, mut dice) = (first_block, 7_u32);
                for id in 0..20_000 {
                    dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let blocks = 1 + u64::from(dice >> 28);
                    if producer + blocks - table.tail() <= ring {
                        // As a queue does that looks for room.
                        assert_eq!(table.free_requests(producer) as usize, most as usize - model.0.len());
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
                    assert_eq!(table.outstanding(producer) as usize, model.0.len());
                    assert_eq!(table.tail(), model.0.front().map_or(producer, |(begin, ..)| *begin));
                    for end in [producer, table.published()] {
                        let begins = table.before(end).map(|(begin, _)| begin);
                        let expected = model.0.iter().map(|(begin, ..)| *begin);
                        assert!(begins.eq(expected.take_while(|begin| *begin < end)));
                    }
                }
                assert!(ring < 16 || producer > first_block + 10_000, "few requests were posted");
            }
        }
    }
}
