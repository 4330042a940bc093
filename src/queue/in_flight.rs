//! The work requests between post and completion. Each is filed under its first block, so that a completion
//! finds it by the completion's counter.
//!
//! A completion retires its request and all silent requests before it: the tail, which is the first block of
//! the oldest outstanding request, moves behind the request. Retiring takes equally long for any number of
//! silent requests. A queue with a limit of requests counts them only when it looks for room.

use super::MAX_SLOTS;
use super::ring::Ring;
use crate::wire::low::{low8, low64};
use bitfield_struct::bitfield;
use core::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The kind of a send request (`ibv_wc_opcode`). A cancelled request keeps its kind, although the ring then
/// holds a NOP.
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
    /// Last work request of a configuration of an mkey. After its completion the mkey is configured
    /// (`IBV_WC_DRIVER1`).
    MkeyConfigure,
    /// Other work request of a configuration of an mkey: the UMR if SET_PSVs follow, or a SET_PSV before the
    /// last one. Polling does not return its success. If the queue fails, its failure carries the
    /// configuration's `wr_id`.
    MkeyConfigurePart,
    /// Change of a PSV to the start value of a digest
    /// ([`SendRequest::set_psv`](super::SendRequest::set_psv)).
    SetPsv,
    /// Invalidation of a local key (`IBV_WC_LOCAL_INV`).
    LocalInvalidate,
    /// Copy in memory (`MLX5DV_WC_MEMCPY`).
    Memcpy,
    /// Request that the caller built, of any operation (`MLX5DV_WC_RAW_WQE`).
    Raw,
    /// Binding of a memory window (`IBV_WC_BIND_MW`).
    BindWindow,
}

impl RequestKind {
    const fn into_bits(self) -> u8 {
        low8::<4>(self as u8)
    }

    /// Returns the kind with this number. The function gets only numbers of kinds, because no others are
    /// filed.
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

    /// Returns whether the request changes an mkey or a PSV that the next request may use. The device may
    /// need a fence before the next request.
    #[inline]
    pub(super) const fn changes_mkey(self) -> bool {
        matches!(self, Self::MkeyConfigure | Self::SetPsv | Self::LocalInvalidate | Self::BindWindow)
    }
}

/// A work request that a completion retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Retired {
    /// The user's name of the request (`wr_id`).
    pub id: u64,
    /// The kind of the request.
    pub kind: RequestKind,
    /// The number of the request.
    pub number: RequestNumber,
}

/// The number of a send request, which distinguishes the request from others with the same name (`wr_id`).
///
/// A queue counts its requests within a *life*. A new life begins when the queue is made, when it restarts
/// after a reset, and when an invalidation is cancelled. Numbers of different lives differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RequestNumber(u64);

/// The number of the next life. Life 0 has no requests.
static NEXT_LIFE: AtomicU64 = AtomicU64::new(1);

/// How many low bits of a request's number count blocks. The other bits count lives.
const BLOCK_BITS: u32 = 40;

impl RequestNumber {
    /// No request. Completions of receive requests have this number.
    pub const NONE: Self = Self(0);

    /// Returns the number as an integer for C.
    #[cfg(feature = "capi")]
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// Makes the number from the integer that C gives back.
    #[cfg(feature = "capi")]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns whether the success of this request proves that the other request was executed: a queue pair
    /// executes the requests of one life in order, and stops at a failure.
    pub(super) const fn proves(self, other: Self) -> bool {
        self.0 >> BLOCK_BITS == other.0 >> BLOCK_BITS && self.0 >= other.0
    }
}

/// Returns the number of the first block of a new life.
fn begin_life() -> u64 {
    NEXT_LIFE.fetch_add(1, Ordering::Relaxed) << BLOCK_BITS
}

/// The books of one block of a send ring: name, kind and size of the work request that begins there. A
/// [`SendQueue`](super::SendQueue) needs one for each block of its ring, in memory that the device does not
/// reach.
///
/// ```
/// use mlx5_mkey::queue::SendSlot;
/// // On a bare machine, the number is checked when the program is compiled.
/// let slots: [SendSlot; 256] = SendSlot::array();
/// // With a heap, the number may come from a configuration.
/// let depth = 1024;
/// let slots = vec![SendSlot::EMPTY; depth];
/// ```
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub struct SendSlot {
    id: u64,
    place: u64,
}

impl SendSlot {
    /// A slot in which no request was filed.
    pub const EMPTY: Self = Self { id: 0, place: u64::MAX };

    /// Returns slots for a ring of `N` blocks. Compiles only if a send queue can have a ring of this size:
    /// `N` is a power of two, at most 32768.
    pub const fn array<const N: usize>() -> [Self; N] {
        const { assert!(N.is_power_of_two() && N <= MAX_SLOTS, "the size of a send ring") };
        [Self::EMPTY; N]
    }
}

#[cfg(test)]
impl SendSlot {
    /// Returns slots that live as long as the tests.
    pub(crate) fn leaked(count: usize) -> &'static mut [Self] {
        std::vec![Self::EMPTY; count].leak()
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for SendSlot {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "SendSlot");
    }
}

/// A work request that is filed in the slot of its first block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filed {
    /// The user's name of the request (`wr_id`).
    pub(super) id: u64,
    place: Place,
}

/// Place and kind of a work request in one word, so that posting writes one word.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
struct Place {
    #[bits(4)]
    kind: RequestKind,
    /// Blocks of 64 bytes that the request fills, 1 to 16.
    #[bits(5, into = low8::<5>)]
    blocks: u8,
    /// The request's first block, counted from the queue pair's start.
    #[bits(55, into = low64::<55>)]
    begin: u64,
}

impl Filed {
    #[inline]
    const fn begin(&self) -> u64 {
        self.place.begin()
    }

    /// Returns whether the request takes a key out of service.
    pub(super) const fn is_invalidation(&self) -> bool {
        matches!(self.place.kind(), RequestKind::LocalInvalidate)
    }

    /// Returns the block after the request.
    #[inline]
    const fn end(&self) -> u64 {
        self.begin() + self.place.blocks() as u64
    }
}

const _: () = assert!(size_of::<SendSlot>() == 16);

/// The work requests of a ring.
///
/// Blocks are counted from the queue pair's start. Outstanding requests begin at block `tail` or later, and
/// fill at most a lap, so each has its own slot. A slot may still hold a request of an earlier lap, with
/// another `begin`.
pub(super) struct InFlight<'r> {
    /// The first block of the oldest outstanding work request.
    tail: u64,
    /// The block after the last published one.
    published: u64,
    /// The number of the request at block 0 ([`RequestNumber`]).
    numbers: u64,
    /// The first value of `numbers`, which no other queue of the program has.
    queue: u64,
    limit: Limit,
    /// As many slots as the ring has blocks.
    filed: Ring<'r, SendSlot>,
}

/// The limit of outstanding work requests. Few queues have a limit, so requests are not counted when they are
/// posted or retired. A queue with a limit counts them when it knows of no more room.
struct Limit {
    /// The most work requests that may be outstanding; `u32::MAX` if the queue has no limit.
    most: u32,
    /// Number of work requests that begin at blocks from `from` up to, but without, `to`. All of them are
    /// still filed: the next count happens before a request is filed a lap after `from`.
    counted: u32,
    from: u64,
    to: u64,
}

impl Limit {
    const fn new(most: u32, first_block: u64) -> Self {
        Self { most, counted: 0, from: first_block, to: first_block }
    }
}

impl<'r> InFlight<'r> {
    /// Makes an empty table. The first work request will begin at block `first_block`, and up to `limit` work
    /// requests may be outstanding.
    pub(super) fn new(mut filed: Ring<'r, SendSlot>, first_block: u64, limit: u32) -> Self {
        empty(&mut filed);
        let limit = Limit::new(limit, first_block);
        let numbers = begin_life();
        Self { tail: first_block, published: first_block, numbers, queue: numbers, limit, filed }
    }

    /// Forgets all work requests. The next one begins at block 0.
    pub(super) fn restart(&mut self) {
        (self.tail, self.published, self.limit) = (0, 0, Limit::new(self.limit.most, 0));
        // Blocks are counted from 0 again, so slots must not name earlier requests.
        empty(&mut self.filed);
        self.begin_life();
    }

    /// Gives other numbers to all requests from now on, also to the outstanding ones. No completion then
    /// proves that an earlier invalidation was executed.
    pub(super) fn begin_life(&mut self) {
        self.numbers = begin_life();
    }

    /// Returns the number of the queue. Unlike the number of a queue pair, it is the queue's own among all
    /// devices, and it survives a restart.
    pub(super) const fn queue(&self) -> u64 {
        self.queue
    }

    /// Returns the number of the request that begins at this block.
    #[inline]
    pub(super) const fn number(&self, begin: u64) -> RequestNumber {
        RequestNumber(self.numbers.wrapping_add(begin))
    }

    /// Returns name, kind and number of a filed request, for the user to whom the request is given back.
    #[inline]
    pub(super) const fn retired(&self, filed: &Filed) -> Retired {
        Retired { id: filed.id, kind: filed.place.kind(), number: self.number(filed.begin()) }
    }

    /// Returns the request in the slot of a block. It may have begun at another block.
    #[inline]
    fn filed(&self, block: u64) -> Filed {
        let slot = self.filed.peek(block);
        let [id, place] = [slot.read_u64::<0>(), slot.read_u64::<8>()].map(u64::from_ne_bytes);
        Filed { id, place: Place::from_bits(place) }
    }

    /// Returns the first block of the oldest outstanding work request.
    pub(super) const fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the block after the last published one.
    pub(super) const fn published(&self) -> u64 {
        self.published
    }

    /// Notes that the blocks before this one are published.
    pub(super) const fn publish(&mut self, producer: u64) {
        self.published = producer;
    }

    /// Returns the number of outstanding work requests, by counting them one by one. `producer` is the first
    /// block that is not committed.
    pub(super) fn outstanding(&self, producer: u64) -> u32 {
        self.count(self.tail, producer)
    }

    /// Returns whether there is a limit of requests.
    #[inline]
    pub(super) const fn is_limited(&self) -> bool {
        self.limit.most != u32::MAX
    }

    /// Returns how many work requests may still be posted. `producer` is the first block that is not
    /// committed.
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

    /// Counts the work requests that begin at blocks from `first` up to, but without, `end`.
    fn count(&self, first: u64, end: u64) -> u32 {
        self.filed_from(first, end).count() as u32
    }

    /// Files the next work request.
    // Inlined: with a call, posting is slower by 3 % or more.
    #[inline]
    pub(super) fn file(&mut self, begin: u64, id: u64, kind: RequestKind, blocks: usize) {
        // The same bits as by the setters of `Place`, but without their checks: a work request has 1 to 16
        // blocks.
        let place = ((begin << 5) + blocks as u64) << 4 | kind as u64;
        self.filed.write(begin, SendSlot { id, place });
    }

    /// Returns the outstanding and published work request that begins at the block with this number modulo
    /// 2^16, or `None`.
    #[inline]
    fn find(&self, counter: u16) -> Option<Filed> {
        // At most 2^15 blocks are outstanding, so at most one of them has this counter.
        let begin = self.tail + u64::from(counter.wrapping_sub(self.tail as u16));
        let filed = self.filed(begin);
        (begin < self.published && filed.begin() == begin).then_some(filed)
    }

    /// Returns the first block of the request that [`InFlight::find`] finds.
    pub(super) fn begin(&self, counter: u16) -> Option<u64> {
        self.find(counter).map(|filed| filed.begin())
    }

    /// Retires the work request that [`InFlight::find`] finds, and all requests before it. If there is none,
    /// nothing changes.
    #[inline]
    pub(super) fn retire(&mut self, counter: u16) -> Option<Retired> {
        let filed = self.find(counter)?;
        self.tail = filed.end();
        Some(self.retired(&filed))
    }

    /// Iterates over the outstanding work requests that begin before block `end`, oldest first. Each comes
    /// with its first block.
    pub(super) fn before(&self, end: u64) -> impl Iterator<Item = (u64, Filed)> {
        self.filed_from(self.tail, end)
    }

    /// Iterates over the work requests that begin at blocks from `next` up to, but without, `end`.
    fn filed_from(&self, mut next: u64, end: u64) -> impl Iterator<Item = (u64, Filed)> {
        core::iter::from_fn(move || {
            let (begin, filed) = (next, self.filed(next));
            if begin >= end || filed.begin() != begin {
                return None;
            }
            next = filed.end();
            Some((begin, filed))
        })
    }
}

/// Empties all slots.
fn empty(filed: &mut Ring<'_, SendSlot>) {
    for index in 0..filed.len().into() {
        filed.write(index, SendSlot::EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// First block, name, kind and number of blocks of each outstanding request, in a list that is searched.
    #[derive(Default)]
    struct Model(VecDeque<(u64, u64, RequestKind, u64)>);

    impl Model {
        fn retire(&mut self, counter: u16, published: u64) -> Option<(u64, RequestKind)> {
            let at = self.0.iter().position(|(begin, ..)| *begin as u16 == counter && *begin < published)?;
            self.0.drain(..=at).next_back().map(|(_, id, kind, _)| (id, kind))
        }
    }

    #[test]
    fn completions_retire_what_a_search_would() {
        // Requests of 1 to 16 blocks in rings of several sizes, over many laps and over the overflow of
        // 16-bit and 32-bit counters. Some completions name outstanding requests, others have any counter.
        for first_block in [0, 0xfff0, u64::from(u32::MAX) - 100] {
            for ring in [1, 2, 16, 64] {
                let most = 1 << 16;
                let mut slots = SendSlot::array::<64>();
                let slots = Ring::new(&mut slots[..ring as usize], "slots", MAX_SLOTS).unwrap();
                let mut table = InFlight::new(slots, first_block, most);
                let mut model = Model::default();
                let (mut producer, mut dice) = (first_block, 7_u32);
                for id in 0..20_000 {
                    dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let blocks = 1 + u64::from(dice >> 28);
                    if producer + blocks - table.tail() <= ring {
                        // The call is the one that a queue makes when it looks for room.
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
                    let retired = table.retire(counter).map(|retired| (retired.id, retired.kind));
                    assert_eq!(retired, model.retire(counter, table.published()));
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
