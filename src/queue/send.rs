//! The send queue: posts requests, publishes them, and takes their completions.

use super::doorbell::{Doorbell, DoorbellRecord};
use super::in_flight::{InFlightTable, RequestKind, Work};
use super::ring::Ring;
use super::{MAX_SLOTS, barrier};
use crate::error::{ConfigError, PostError, QueueError};
use crate::mkey::{DomainKind, Mkey, MkeyConfig, Numbers, Plan, PsvStarts};
use crate::types::{Key, Qpn};
use crate::wire::ctrl::{ControlSegment, FmCeSe, Opcode, OpcodeWord};
use crate::wire::psv::SetPsvSegment;
use crate::wire::{MAX_WQE_OCTOWORDS, OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, Octoword, WQEBB_BYTES, Wqebb};
use crate::wqe::data_path::{DataPath, Operands};
use crate::wqe::{MkeyTemplate, Payload, Remote, Sge, Sink, set_psv, template, umr};
use zerocopy::big_endian::U64;
use zerocopy::{Immutable, IntoBytes, Unaligned, transmute};

/// Bytes before the translation entries of a UMR.
const UMR_HEAD_BYTES: usize = 2 * WQEBB_BYTES;

/// The parts of the flags of a control segment, each alone.
const NO_FLAGS: FmCeSe = FmCeSe::new();
const SMALL_FENCE: FmCeSe = FmCeSe::new().with_fm(FmCeSe::FM_SMALL);
const FULL_FENCE: FmCeSe = FmCeSe::new().with_fm(FmCeSe::FM_FENCE);
const COMPLETION: FmCeSe = FmCeSe::new().with_ce(FmCeSe::CE_ALWAYS);
const SOLICITED: FmCeSe = FmCeSe::new().with_solicited(true);
/// All bits of fences, and all others.
const FENCES: FmCeSe = FmCeSe::new().with_fm(0b111);
const OTHERS: FmCeSe = FmCeSe::from_bits(!FENCES.into_bits());
const ALL_FLAGS: FmCeSe = both(FENCES, OTHERS);

/// Returns the flags of both.
#[inline(always)]
const fn both(one: FmCeSe, other: FmCeSe) -> FmCeSe {
    FmCeSe::from_bits(one.into_bits() | other.into_bits())
}

/// Returns flags where the second half of a control segment has them: beside what goes with the opcode (`imm`).
#[inline(always)]
const fn second_word(flags: FmCeSe) -> U64 {
    U64::new((flags.into_bits() as u64) << 32)
}

/// Bytes that the inline header adds to inline data.
const INLINE_HEADER_BYTES: u32 = 4;

/// What a send queue needs to know of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SendQueueConfig {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Longest inline data in bytes (`max_inline_data`); plus 4 it is also the room for an mkey's layout and BSFs.
    pub max_inline_data: u32,
    /// Most scatter entries of a request (`max_send_sge`), 1 or more.
    pub max_sge: usize,
    /// Most requests between post and completion. Not above the completion queue's size, and it cannot overrun. A limit below
    /// the ring's number of blocks has each post count requests; others cost nothing.
    pub max_requests: u32,
    /// Every request is signalled (`sq_sig_all`), and of an mkey configuration every SET_PSV, as the reference provider has it.
    pub signal_all: bool,
    /// Count of the first block to post, for a queue pair that has been in use; 0 for a new one.
    pub first_block: u32,
    /// The last request posted changed an mkey, for a queue pair that has been in use; false for a new one.
    pub small_fence: bool,
}

impl SendQueueConfig {
    /// The longest inline data with which no request exceeds the device's limit of 63 octowords.
    pub const MAX_INLINE_DATA: u32 = {
        let room = MAX_WQE_OCTOWORDS as usize * OCTOWORD_BYTES - UMR_HEAD_BYTES;
        // Translation entries are padded to whole blocks.
        (room / WQEBB_BYTES * WQEBB_BYTES) as u32 - INLINE_HEADER_BYTES
    };

    /// A new queue pair with the largest limits; requests are signalled one by one.
    pub const fn new(qpn: Qpn) -> Self {
        Self {
            qpn,
            max_inline_data: Self::MAX_INLINE_DATA,
            max_sge: 30,
            max_requests: u32::MAX,
            signal_all: false,
            first_block: 0,
            small_fence: false,
        }
    }
}

/// A send queue over the caller's ring. `N` is the most blocks that it can keep track of, a power of two.
///
/// Requests are posted through [`SendQueue::request`] and reach the device with [`SendQueue::ring_doorbell`]. Each post
/// either happens as a whole or changes nothing.
pub struct SendQueue<'r, D, const N: usize> {
    ring: Ring<'r, Wqebb>,
    record: &'r DoorbellRecord,
    doorbell: D,
    in_flight: InFlightTable<N>,
    qpn: Qpn,
    /// Its number where the first eight bytes of a request have it.
    qpn_bits: u64,
    max_inline_data: u32,
    /// Octowords for an mkey's layout and BSFs, and the blocks that they fill.
    max_octowords: usize,
    max_blocks: usize,
    max_sge: usize,
    max_requests: u32,
    /// What a request has beside its own flags, as the second half of a control segment has it: a completion with
    /// `signal_all`, and a fence behind a change of an mkey, unless it asks for another. What the next one has, and what one
    /// behind a change and behind all else has.
    next: U64,
    behind_change: U64,
    behind_else: U64,
    /// Blocks posted, published and retired, counted from the queue pair's start.
    producer: u64,
    published: u64,
    tail: u64,
    /// Up to here blocks may be posted without counting requests. It goes with `tail`, this far ahead: the ring's size, or 0
    /// where the ring has room for more requests than may be outstanding.
    limit: u64,
    unquestioned: u64,
    /// Requests outstanding, counted where their number is limited, and from here on: what was retired since is taken off
    /// when the next one is posted.
    counted: u32,
    counted_from: u64,
    /// What the next doorbell says: the start of the last request. 0, which no request begins with, where it has rung.
    last_control: U64,
}

impl<'r, D: Doorbell, const N: usize> SendQueue<'r, D, N> {
    /// Makes a send queue over `ring`, which the queue pair was or will be created with.
    ///
    /// # Errors
    /// [`QueueError::Size`] unless the ring has a power of two of blocks, at most `N` and 32768;
    /// [`QueueError::InlineLimit`] for inline data over [`SendQueueConfig::MAX_INLINE_DATA`].
    pub fn new(
        config: SendQueueConfig,
        ring: &'r mut [Wqebb],
        record: &'r DoorbellRecord,
        doorbell: D,
    ) -> Result<Self, QueueError> {
        let SendQueueConfig { qpn, max_inline_data, max_sge, max_requests, signal_all, .. } = config;
        if max_inline_data > SendQueueConfig::MAX_INLINE_DATA {
            return Err(QueueError::InlineLimit {
                bytes: max_inline_data,
                max: SendQueueConfig::MAX_INLINE_DATA,
            });
        }
        let ring = Ring::new(ring, N.min(MAX_SLOTS))?;
        let first_block = u64::from(config.first_block);
        let unquestioned = if ring.len() <= max_requests { u64::from(ring.len()) } else { 0 };
        let always = if signal_all { COMPLETION } else { NO_FLAGS };
        let [behind_else, behind_change] =
            [NO_FLAGS, SMALL_FENCE].map(|fence| second_word(both(always, fence)));
        Ok(Self {
            in_flight: InFlightTable::new(),
            ring,
            record,
            doorbell,
            qpn,
            qpn_bits: u64::from(qpn.get()) << 8,
            max_inline_data,
            max_octowords: (max_inline_data + INLINE_HEADER_BYTES) as usize / OCTOWORD_BYTES,
            max_blocks: (max_inline_data + INLINE_HEADER_BYTES) as usize / WQEBB_BYTES,
            // Control, remote address and operands take three octowords.
            max_sge: max_sge.clamp(1, usize::from(MAX_WQE_OCTOWORDS) - 3),
            max_requests,
            next: if config.small_fence { behind_change } else { behind_else },
            behind_change,
            behind_else,
            producer: first_block,
            published: first_block,
            tail: first_block,
            limit: first_block + unquestioned,
            unquestioned,
            counted: 0,
            counted_from: first_block,
            last_control: U64::ZERO,
        })
    }

    /// Begins a request; `id` is what its completion will carry (`wr_id`). Nothing happens until it is given its work.
    pub const fn request(&mut self, id: u64) -> Request<'_, 'r, D, N> {
        Request { queue: self, id, flags: NO_FLAGS }
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Returns how many blocks of 64 bytes are free.
    pub const fn free_blocks(&self) -> u32 {
        self.ring.len() - (self.producer - self.tail) as u32
    }

    /// Returns how many requests have been posted and not retired. Counts them, one by one.
    pub fn outstanding(&self) -> u32 {
        self.count(self.tail, self.producer)
    }

    /// Counts the requests between two of them, of which the last begins at `to` or behind. All of them must still be filed.
    fn count(&self, from: u64, to: u64) -> u32 {
        let (mut begin, mut count) = (from, 0);
        while begin < to {
            // Always there.
            begin += self.in_flight.get(begin).map_or(1, |(_, work)| u64::from(work.blocks));
            count += 1;
        }
        count
    }

    /// Returns the count of blocks posted since the queue pair's start.
    pub const fn producer(&self) -> u32 {
        self.producer as u32
    }

    /// Returns the fence mode that the next request gets if it asks for none.
    pub const fn next_fence(&self) -> u8 {
        FmCeSe::from_bits((self.next.get() >> 32) as u8).fm()
    }

    /// Returns the doorbell record.
    pub const fn record(&self) -> &'r DoorbellRecord {
        self.record
    }

    /// Exchanges the doorbell for another that does the same, behind a trait object say.
    pub fn map_doorbell<E: Doorbell>(self, map: impl FnOnce(D) -> E) -> SendQueue<'r, E, N> {
        let Self { ring, record, doorbell, in_flight, .. } = self;
        SendQueue {
            ring,
            record,
            doorbell: map(doorbell),
            in_flight,
            qpn: self.qpn,
            qpn_bits: self.qpn_bits,
            max_inline_data: self.max_inline_data,
            max_octowords: self.max_octowords,
            max_blocks: self.max_blocks,
            max_sge: self.max_sge,
            max_requests: self.max_requests,
            next: self.next,
            behind_change: self.behind_change,
            behind_else: self.behind_else,
            producer: self.producer,
            published: self.published,
            tail: self.tail,
            limit: self.limit,
            unquestioned: self.unquestioned,
            counted: self.counted,
            counted_from: self.counted_from,
            last_control: self.last_control,
        }
    }

    /// Copies a block out of the ring, for [`crate::inspect`]; blocks are counted as [`SendQueue::producer`] counts them.
    pub fn block(&self, index: u32) -> Wqebb {
        self.ring.read(u64::from(index))
    }

    /// Returns the doorbell.
    pub const fn doorbell(&self) -> &D {
        &self.doorbell
    }

    /// Publishes everything posted since the last call. Does nothing where there is nothing new.
    #[inline]
    pub fn ring_doorbell(&mut self) {
        let control = core::mem::take(&mut self.last_control);
        if control == U64::ZERO {
            return;
        }
        self.published = self.producer;
        barrier::blocks_before_record();
        self.record.set_send(u32::from(self.producer as u16));
        barrier::record_before_doorbell();
        self.doorbell.ring(control.to_bytes());
        barrier::flush_doorbell();
    }

    /// Takes a completion of this queue: retires the request that begins at block `counter` and all before it, which were
    /// not signalled, and returns its identity; `None` where no outstanding request begins there.
    #[inline]
    pub fn complete(&mut self, counter: u16) -> Option<(u64, RequestKind)> {
        let mut begin = self.tail;
        if begin == self.published {
            return None;
        }
        if counter != begin as u16 {
            begin = self.find(counter)?;
        }
        let (id, Work { blocks, kind }) = self.in_flight.get(begin)?;
        self.tail = begin + u64::from(blocks);
        self.limit = self.tail + self.unquestioned;
        Some((id, kind))
    }

    /// Finds the outstanding request that begins at block `counter` (modulo 2^16).
    #[cold]
    #[inline(never)]
    fn find(&self, counter: u16) -> Option<u64> {
        let wanted = self.tail + u64::from(counter.wrapping_sub(self.tail as u16));
        if wanted >= self.published {
            return None;
        }
        let mut begin = self.tail;
        // From one to the next, so that what stands in the middle of a request is not taken for one.
        while begin < wanted {
            begin += u64::from(self.in_flight.get(begin)?.1.blocks);
        }
        (begin == wanted).then_some(begin)
    }

    /// Turns every unexecuted request named `id` into a NOP, which completes as the request would have, and returns how many
    /// there were (`mlx5dv_qp_cancel_posted_send_wrs`). A configuration counts for itself and for each of its SET_PSVs.
    ///
    /// Only for a queue pair in state SQD: `hw_counter` is the block at which the device will go on, as QUERY_QP says
    /// (`hw_sq_wqebb_counter`). An mkey whose configuration was cancelled should be told to [`Mkey::forget`].
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`] where no outstanding request begins at `hw_counter`, and it is not the queue's end.
    #[inline(never)]
    pub fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        let mut index = if hw_counter == self.published as u16 {
            self.published
        } else {
            self.find(hw_counter).ok_or(PostError::NotOutstanding { counter: hw_counter })?
        };
        let mut cancelled = 0;
        // To the end of what was posted: what is not published yet must not go out either.
        while index < self.producer {
            let Some((name, work)) = self.in_flight.get(index) else { break };
            if name == id {
                let nop = OpcodeWord::new().with_opcode(Opcode::NOP.0).with_wqe_index(index as u16);
                self.ring.write_word(index, nop.into_bits().to_be_bytes());
                cancelled += 1;
                if index + u64::from(work.blocks) == self.producer && self.last_control != U64::ZERO {
                    // The doorbell says what stands in the ring.
                    let second = self.last_control.get() & u64::from(u32::MAX);
                    self.last_control = U64::new(u64::from(nop.into_bits()) << 32 | second);
                }
            }
            index += u64::from(work.blocks);
        }
        // The device goes on reading when the queue pair leaves SQD; it must not see the old words then.
        barrier::blocks_before_record();
        Ok(cancelled)
    }

    /// Refuses what does not fit, before anything is written. What does must be posted: it is counted.
    #[inline(always)]
    fn take_room(&mut self, blocks: u32, requests: u32) -> Result<(), PostError> {
        if self.producer + u64::from(blocks) <= self.limit { Ok(()) } else { self.count_in(blocks, requests) }
    }

    /// Refuses what does not fit where requests are counted, and counts these if they do.
    #[cold]
    #[inline(never)]
    fn count_in(&mut self, blocks: u32, requests: u32) -> Result<(), PostError> {
        let free = self.free_blocks();
        if blocks > free {
            return Err(PostError::RingFull { needed: blocks, free });
        }
        // Those that were retired since the last time are still filed: what is posted next may take their place.
        let outstanding = self.counted.saturating_sub(self.count(self.counted_from, self.tail));
        (self.counted, self.counted_from) = (outstanding, self.tail);
        let free = self.max_requests.saturating_sub(outstanding);
        if requests > free {
            return Err(PostError::TooManyRequests { needed: requests, free });
        }
        self.counted += requests;
        Ok(())
    }

    /// Returns where the next requests go. What they change is kept apart until [`SendQueue::advance`], so that it is stored
    /// once.
    #[inline(always)]
    fn tail(&mut self) -> Tail<'_, N> {
        Tail {
            ring: self.ring.lend(),
            in_flight: &mut self.in_flight,
            qpn_bits: self.qpn_bits,
            behind_change: self.behind_change,
            behind_else: self.behind_else,
            position: Position { producer: self.producer, next: self.next, last_control: self.last_control },
        }
    }

    /// Takes up the requests that a tail has got.
    #[inline(always)]
    const fn advance(&mut self, position: Position) {
        self.producer = position.producer;
        self.next = position.next;
        self.last_control = position.last_control;
    }
}

/// The end of a queue while requests are posted.
struct Tail<'q, const N: usize> {
    ring: Ring<'q, Wqebb>,
    in_flight: &'q mut InFlightTable<N>,
    qpn_bits: u64,
    behind_change: U64,
    behind_else: U64,
    position: Position,
}

/// What a request changes of a queue.
#[derive(Clone, Copy)]
struct Position {
    producer: u64,
    next: U64,
    last_control: U64,
}

impl<const N: usize> Tail<'_, N> {
    /// Takes one work request up and returns what it begins with and its first block.
    #[inline(always)]
    fn push(&mut self, request: Wqe) -> (ControlSegment, u64) {
        let Wqe { id, kind, opcode, blocks, octowords, imm, flags, inherits } = request;
        let Position { producer: block, next, .. } = self.position;
        // OpcodeWord and QpnDs at once; the size is at most MAX_WQE_OCTOWORDS, by the limits of the queue.
        let start =
            u64::from(block as u16) << 40 | u64::from(opcode.0) << 32 | self.qpn_bits | octowords as u64;
        let start = U64::new(start);
        let fence = if flags.fm() == FmCeSe::FM_NONE { FENCES } else { NO_FLAGS };
        let inherited = match both(fence, inherits) {
            ALL_FLAGS => next,
            some => next & second_word(some),
        };
        let control: ControlSegment = transmute!([start, inherited | second_word(flags) | imm]);
        self.in_flight.set(block, id, Work { blocks: blocks as u8, kind });
        self.position = Position {
            producer: block + u64::from(blocks),
            // What comes after a change of an mkey must not overtake it (R17).
            next: match opcode {
                Opcode::UMR | Opcode::SET_PSV => self.behind_change,
                _ => self.behind_else,
            },
            last_control: start,
        };
        (control, block)
    }

    /// Returns a place to write to.
    #[inline(always)]
    fn cursor(&mut self, block: u64) -> Cursor<'_> {
        Cursor { ring: self.ring.lend(), distance: Ring::<Wqebb>::distance(block), at: 0 }
    }

    /// Takes up the UMR of a configuration, which completes if no SET_PSV follows.
    #[inline(always)]
    fn umr(&mut self, (id, flags): Name, imm: U64, blocks: u32, alone: bool) -> (ControlSegment, u64) {
        let (opcode, octowords) = (Opcode::UMR, blocks as usize * OCTOWORDS_PER_BLOCK);
        let kind = if alone { RequestKind::MkeyConfigure } else { RequestKind::MkeyConfigurePart };
        let (flags, inherits) =
            if alone { (flags, OTHERS) } else { (flags.with_ce(FmCeSe::CE_ERROR_ONLY), NO_FLAGS) };
        self.push(Wqe { id, kind, opcode, blocks, octowords, imm, flags, inherits })
    }

    /// Posts one of the SET_PSVs of a configuration; the last one is what completes.
    #[inline(always)]
    fn set_psv(&mut self, (id, flags): Name, last: bool, segment: SetPsvSegment) {
        let (opcode, blocks, octowords, imm) =
            (Opcode::SET_PSV, set_psv::BLOCKS, set_psv::OCTOWORDS, U64::ZERO);
        let kind = if last { RequestKind::MkeyConfigure } else { RequestKind::MkeyConfigurePart };
        let flags = if last { flags } else { flags.with_ce(FmCeSe::CE_ERROR_ONLY) };
        // With signal_all every one completes, as the reference provider has it.
        let inherits = OTHERS;
        let (control, block) = self.push(Wqe { id, kind, opcode, blocks, octowords, imm, flags, inherits });
        set_psv::set_psv(segment, control, &mut self.cursor(block));
    }

    /// Posts the requests of a plan, for which [`SendQueue::take_room`] has found room.
    #[inline(always)]
    fn carry_out(mut self, plan: &Plan<'_>, numbers: &Numbers, name: Name) -> Position {
        let (control, block) = self.umr(name, numbers.key_word, umr::blocks(plan), plan.set_psvs.is_none());
        umr::configure(plan, numbers, control, &mut self.cursor(block));
        if let Some(PsvStarts { count, first_domain, first, second }) = plan.set_psvs {
            let mut last = set_psv::segment(numbers.psv_word(*first_domain), *first);
            if *count == 2 {
                self.set_psv(name, false, last);
                last = set_psv::segment(numbers.psv_word(DomainKind::Wire), *second);
            }
            self.set_psv(name, true, last);
        }
        self.position
    }
}

/// What the user calls a request, and its flags.
type Name = (u64, FmCeSe);

crate::fmt::format_counters!(['r, D, const N: usize] SendQueue ['r, D, N] {
    producer, published, tail
});

/// Returns the blocks that the requests of a plan fill.
#[inline(always)]
fn plan_blocks(plan: &Plan<'_>) -> u32 {
    umr::blocks(plan) + plan.psv_requests() * set_psv::BLOCKS
}

/// Returns the blocks that so many octowords fill.
const fn blocks_of(octowords: usize) -> u32 {
    // At most MAX_WQE_OCTOWORDS, by the limits of the queue.
    octowords.div_ceil(WQEBB_BYTES / OCTOWORD_BYTES) as u32
}

/// One work request but for its segments.
struct Wqe {
    id: u64,
    kind: RequestKind,
    opcode: Opcode,
    blocks: u32,
    /// Not more than are in its blocks.
    octowords: usize,
    /// As the second half of a control segment has it.
    imm: U64,
    flags: FmCeSe,
    /// Which flags but the fence it takes over from the queue: apart, so that the compiler knows those that the user gives.
    inherits: FmCeSe,
}

/// Where the next octoword goes.
struct Cursor<'q> {
    ring: Ring<'q, Wqebb>,
    distance: usize,
    at: usize,
}

impl Sink for Cursor<'_> {
    #[inline(always)]
    fn put(&mut self, octoword: Octoword) {
        self.ring.write_octoword(self.distance, self.at, octoword);
        self.at += 1;
        if self.at == OCTOWORDS_PER_BLOCK {
            self.at = 0;
            self.distance = self.distance.wrapping_add(WQEBB_BYTES);
        }
    }

    #[inline(always)]
    fn put_block<B: IntoBytes + Immutable + Unaligned>(&mut self, block: B) {
        self.ring.write_block(self.distance, block);
        self.distance = self.distance.wrapping_add(WQEBB_BYTES);
    }
}

/// A request that waits for its work. Flags first, then one method that posts.
#[must_use = "nothing is posted until the request is given its work"]
pub struct Request<'q, 'r, D, const N: usize> {
    queue: &'q mut SendQueue<'r, D, N>,
    id: u64,
    /// As the control segment has them.
    flags: FmCeSe,
}

crate::fmt::format_counters!(['q, 'r, D, const N: usize] Request ['q, 'r, D, N] { id, flags });

impl<D: Doorbell, const N: usize> Request<'_, '_, D, N> {
    /// Waits until reads and atomics posted before are done (`IBV_SEND_FENCE`).
    pub const fn fenced(mut self) -> Self {
        self.flags = both(self.flags, FULL_FENCE);
        self
    }

    /// Gets a completion of its own (`IBV_SEND_SIGNALED`).
    pub const fn signaled(mut self) -> Self {
        self.flags = both(self.flags, COMPLETION);
        self
    }

    /// Raises a solicited event at the receiver (`IBV_SEND_SOLICITED`).
    pub const fn solicited(mut self) -> Self {
        self.flags = both(self.flags, SOLICITED);
        self
    }

    /// Changes an mkey: one UMR, and a SET_PSV for each domain whose signature starts anew, of which the last carries the
    /// completion (man page `mlx5dv_wr_mkey_configure`).
    ///
    /// Requests behind it on the same queue may use the mkey at once.
    ///
    /// # Errors
    /// [`PostError::Config`] for what mkey or queue cannot hold, [`PostError::RingFull`], [`PostError::TooManyRequests`].
    /// Ring, counters and mkey are then as before.
    #[inline(always)]
    pub fn configure_mkey(self, mkey: &mut Mkey, config: &MkeyConfig<'_>) -> Result<(), PostError> {
        let Self { queue, id, flags } = self;
        if let Some(plan) = mkey.plan_settled(config, queue.max_blocks)
            && queue.take_room(plan_blocks(&plan), 1 + plan.psv_requests()).is_ok()
        {
            // What is read of the queue is read before the mkey changes: the compiler takes it for changed then.
            let tail = queue.tail();
            let (numbers, shadow) = mkey.parts();
            shadow.apply_settled(config);
            let position = tail.carry_out(&plan, numbers, (id, flags));
            queue.advance(position);
            return Ok(());
        }
        // A copy, and the request by its parts, so that nothing has to be in memory on the way above.
        let config = *config;
        Self::configure_any(queue, id, flags, mkey, &config)
    }

    /// Changes an mkey in any state, and says what is wrong.
    #[inline(never)]
    fn configure_any(
        queue: &mut SendQueue<'_, D, N>,
        id: u64,
        flags: FmCeSe,
        mkey: &mut Mkey,
        config: &MkeyConfig<'_>,
    ) -> Result<(), PostError> {
        let mut kept = None;
        let plan = match mkey.plan_complete(config, queue.max_blocks) {
            Some(plan) => plan,
            None => mkey.plan(config, queue.max_octowords, &mut kept)?,
        };
        queue.take_room(plan_blocks(&plan), 1 + plan.psv_requests())?;
        let position = queue.tail().carry_out(&plan, mkey.numbers(), (id, flags));
        queue.advance(position);
        mkey.apply(config);
        Ok(())
    }

    /// Changes an mkey to what a template says; otherwise as [`Request::configure_mkey`].
    ///
    /// # Errors
    /// [`ConfigError::OtherMkey`] for the template of another mkey, or of another tag; [`ConfigError::BsfDoesNotFit`] for one
    /// that is too long for the queue; [`PostError::RingFull`], [`PostError::TooManyRequests`]. Ring, counters and mkey are then
    /// as before.
    #[inline(always)]
    pub fn configure_from<const BLOCKS: usize, const PSVS: usize>(
        self,
        mkey: &mut Mkey,
        template: &MkeyTemplate<BLOCKS, PSVS>,
    ) -> Result<(), PostError> {
        let Self { queue, id, flags } = self;
        if template.blocks_behind_head() <= queue.max_blocks
            && mkey.takes(template.ticket())
            && (PSVS == 0 || mkey.has_psvs(template.numbers()))
            && queue.take_room(template.blocks_of_all(), 1 + PSVS as u32).is_ok()
        {
            mkey.hold(template.in_force());
            Self::post_template(queue, (id, flags), template, None);
            return Ok(());
        }
        Self::configure_from_any(queue, id, flags, mkey, template)
    }

    /// What happens once after each signature error and after doubts, and what is refused.
    #[cold]
    #[inline(never)]
    fn configure_from_any<const BLOCKS: usize, const PSVS: usize>(
        queue: &mut SendQueue<'_, D, N>,
        id: u64,
        flags: FmCeSe,
        mkey: &mut Mkey,
        template: &MkeyTemplate<BLOCKS, PSVS>,
    ) -> Result<(), PostError> {
        if template.key() != mkey.key() || !mkey.has_psvs(template.numbers()) {
            let error = ConfigError::OtherMkey { template: template.key(), mkey: mkey.key() };
            return Err(error.into());
        }
        let octowords = template.blocks_behind_head() * OCTOWORDS_PER_BLOCK;
        if octowords > queue.max_octowords {
            let [bytes, max] = [octowords, queue.max_octowords].map(|octowords| octowords * OCTOWORD_BYTES);
            return Err(ConfigError::BsfDoesNotFit { bytes, max }.into());
        }
        queue.take_room(template.blocks_of_all(), 1 + PSVS as u32)?;
        Self::post_template(queue, (id, flags), template, mkey.pending_error_count());
        mkey.hold(template.in_force());
        mkey.told();
        Ok(())
    }

    /// Posts the requests of a template.
    #[inline(always)]
    fn post_template<const BLOCKS: usize, const PSVS: usize>(
        queue: &mut SendQueue<'_, D, N>,
        name: Name,
        template: &MkeyTemplate<BLOCKS, PSVS>,
        error_count: Option<bool>,
    ) {
        let mut tail = queue.tail();
        let (control, block) = tail.umr(name, template.numbers().key_word, BLOCKS as u32, PSVS == 0);
        template::configure(template.blocks(), error_count, control, &mut tail.cursor(block));
        for (number, segment) in (1..).zip(template.psvs()) {
            tail.set_psv(name, number == PSVS, *segment);
        }
        let position = tail.position;
        queue.advance(position);
    }

    /// Takes an mkey's key out of service: later use of it fails (`IBV_WR_LOCAL_INV`).
    ///
    /// Nothing of the mkey is kept: its next configuration must be complete (D16).
    ///
    /// # Errors
    /// [`PostError::RingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate_mkey(self, mkey: &mut Mkey) -> Result<(), PostError> {
        self.invalidate(mkey.key())?;
        mkey.invalidated();
        Ok(())
    }

    /// Takes any local key out of service, a memory window's say. For an [`Mkey`] use [`Request::invalidate_mkey`].
    ///
    /// # Errors
    /// [`PostError::RingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate(self, key: Key) -> Result<(), PostError> {
        let Self { queue, id, flags } = self;
        queue.take_room(umr::INVALIDATE_BLOCKS, 1)?;
        let (blocks, octowords) =
            (umr::INVALIDATE_BLOCKS, umr::INVALIDATE_BLOCKS as usize * OCTOWORDS_PER_BLOCK);
        let (kind, opcode, imm) = (RequestKind::LocalInvalidate, Opcode::UMR, U64::new(key.get().into()));
        let inherits = OTHERS;
        let mut tail = queue.tail();
        let (control, block) = tail.push(Wqe { id, kind, opcode, blocks, octowords, imm, flags, inherits });
        umr::invalidate(control, &mut tail.cursor(block));
        let position = tail.position;
        queue.advance(position);
        Ok(())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`PostError`], also in the methods below: too many entries or bytes for the queue, or no room.
    pub fn send<'p>(self, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        self.data_path(RequestKind::Send, DataPath::new(Opcode::SEND, payload.into()))
    }

    /// Sends a message with 32 bits for the receiver's completion.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn send_imm<'p>(self, imm: u32, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        let request = DataPath { imm, ..DataPath::new(Opcode::SEND_IMM, payload.into()) };
        self.data_path(RequestKind::Send, request)
    }

    /// Sends a message and has the receiver invalidate one of its keys.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn send_invalidate<'p>(self, key: Key, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        let request = DataPath { imm: key.get(), ..DataPath::new(Opcode::SEND_INVAL, payload.into()) };
        self.data_path(RequestKind::Send, request)
    }

    /// Writes to the peer's memory.
    ///
    /// # Errors
    /// As [`Request::send`].
    #[inline]
    pub fn rdma_write<'p>(self, remote: Remote, payload: impl Into<Payload<'p>>) -> Result<(), PostError> {
        let request = DataPath { remote: Some(remote), ..DataPath::new(Opcode::RDMA_WRITE, payload.into()) };
        self.data_path(RequestKind::RdmaWrite, request)
    }

    /// Writes to the peer's memory and completes one of its receive requests with 32 bits.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn rdma_write_imm<'p>(
        self,
        remote: Remote,
        imm: u32,
        payload: impl Into<Payload<'p>>,
    ) -> Result<(), PostError> {
        let request =
            DataPath { remote: Some(remote), imm, ..DataPath::new(Opcode::RDMA_WRITE_IMM, payload.into()) };
        self.data_path(RequestKind::RdmaWrite, request)
    }

    /// Reads from the peer's memory.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn rdma_read(self, remote: Remote, sges: &[Sge]) -> Result<(), PostError> {
        let request =
            DataPath { remote: Some(remote), ..DataPath::new(Opcode::RDMA_READ, Payload::Sges(sges)) };
        self.data_path(RequestKind::RdmaRead, request)
    }

    /// Writes `swap` to 8 bytes of the peer's memory if they hold `compare`; the old value arrives in `sge`.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn compare_swap(self, remote: Remote, compare: u64, swap: u64, sge: &Sge) -> Result<(), PostError> {
        let atomic = Some(Operands { swap_add: swap, compare });
        let payload = Payload::Sges(core::slice::from_ref(sge));
        let request = DataPath { remote: Some(remote), atomic, ..DataPath::new(Opcode::ATOMIC_CS, payload) };
        self.data_path(RequestKind::CompareSwap, request)
    }

    /// Adds `add` to 8 bytes of the peer's memory; the old value arrives in `sge`.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn fetch_add(self, remote: Remote, add: u64, sge: &Sge) -> Result<(), PostError> {
        let atomic = Some(Operands { swap_add: add, compare: 0 });
        let payload = Payload::Sges(core::slice::from_ref(sge));
        let request = DataPath { remote: Some(remote), atomic, ..DataPath::new(Opcode::ATOMIC_FA, payload) };
        self.data_path(RequestKind::FetchAdd, request)
    }

    /// Does nothing but complete.
    ///
    /// # Errors
    /// [`PostError::RingFull`], [`PostError::TooManyRequests`].
    pub fn nop(self) -> Result<(), PostError> {
        self.data_path(RequestKind::Nop, DataPath::new(Opcode::NOP, Payload::Sges(&[])))
    }

    #[inline(always)]
    fn data_path(self, kind: RequestKind, request: DataPath<'_>) -> Result<(), PostError> {
        let Self { queue, id, flags } = self;
        match request.payload {
            // One entry there can always be, which the compiler is told.
            Payload::Sges(sges) if sges.len() > 1 && sges.len() > queue.max_sge => {
                return Err(PostError::TooManySges { sges: sges.len(), max: queue.max_sge });
            }
            Payload::Inline(bytes) if bytes.len() > queue.max_inline_data as usize => {
                let (length, max) = (bytes.len(), queue.max_inline_data as usize);
                return Err(PostError::InlineTooLong { length, max });
            }
            _ => {}
        }
        let octowords = request.octowords();
        let blocks = blocks_of(octowords);
        queue.take_room(blocks, 1)?;
        let DataPath { opcode, imm, .. } = request;
        let (imm, inherits) = (U64::new(imm.into()), OTHERS);
        let mut tail = queue.tail();
        let (control, block) = tail.push(Wqe { id, kind, opcode, blocks, octowords, imm, flags, inherits });
        request.encode(control, &mut tail.cursor(block));
        let position = tail.position;
        queue.advance(position);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkey::{
        Access, BlockSignature, Domain, Layout, ListEntry, MkeyAttributes, Signature, SignatureAttributes,
        SignatureChange,
    };
    use crate::types::{BlockSize, PsvIndex, Seed};
    use std::collections::VecDeque;
    use std::vec;
    use std::vec::Vec;

    const KEY: Key = Key::from_raw(0x0012_3400);

    /// Notes what the doorbell record holds when the doorbell rings.
    struct Witness<'r> {
        record: &'r DoorbellRecord,
        seen: Vec<([u8; 8], [u8; 4])>,
    }

    impl Doorbell for Witness<'_> {
        fn ring(&mut self, control: [u8; 8]) {
            self.seen.push((control, self.record.bytes()[1]));
        }
    }

    type Queue<'r> = SendQueue<'r, Witness<'r>, 64>;

    fn queue<'r>(ring: &'r mut [Wqebb], record: &'r DoorbellRecord, first_block: u32) -> Queue<'r> {
        let config = SendQueueConfig { first_block, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
        Queue::new(config, ring, record, Witness { record, seen: Vec::new() }).unwrap()
    }

    fn signature_mkey() -> Mkey {
        let psv = PsvIndex::from_low_bits;
        let signature = Some(SignatureAttributes::new(psv(1), psv(2)));
        Mkey::new(MkeyAttributes { signature, ..MkeyAttributes::plain(KEY, 16) }).unwrap()
    }

    const CRC32: Domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
    const BOTH: BlockSignature = BlockSignature::both(CRC32, CRC32);

    #[test]
    fn m63_the_record_is_written_before_the_doorbell_rings() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
        let mut queue = queue(&mut ring, &record, 0x1_fffe);
        queue.request(1).nop().unwrap();
        queue.request(2).nop().unwrap();
        queue.request(3).nop().unwrap();
        assert_eq!(queue.doorbell().seen, [], "R7: nothing is rung before it is asked for");
        queue.ring_doorbell();
        queue.ring_doorbell();
        // Opcode 0, block 0x0000 (the third behind 0xfffe), queue pair 0x77, one octoword; counter 0x20001 in 16 bits.
        let control = [0, 0, 0, 0, 0, 0, 0x77, 1];
        assert_eq!(queue.doorbell().seen, [(control, [0, 0, 0, 1])]);
    }

    #[test]
    fn a_queue_checks_its_limits_when_it_is_made() {
        let record = DoorbellRecord::new();
        for blocks in [0, 3, 128] {
            let mut ring = vec![Wqebb::ZERO; blocks];
            let witness = Witness { record: &record, seen: Vec::new() };
            let result = Queue::new(SendQueueConfig::new(Qpn::default()), &mut ring, &record, witness);
            assert_eq!(result.err(), Some(QueueError::Size { entries: blocks, max: 64 }));
        }
        let config = SendQueueConfig { max_inline_data: 829, ..SendQueueConfig::new(Qpn::default()) };
        let mut ring = vec![Wqebb::ZERO; 8];
        let witness = Witness { record: &record, seen: Vec::new() };
        let result = Queue::new(config, &mut ring, &record, witness);
        assert_eq!(result.err(), Some(QueueError::InlineLimit { bytes: 829, max: 828 }));
    }

    #[test]
    fn a_refused_request_changes_nothing() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 4], DoorbellRecord::new());
        let before_ring = ring.clone();
        let mut queue = queue(&mut ring, &record, 0);
        let mut mkey = signature_mkey();
        let before = mkey.clone();
        let config = MkeyConfig { signature: SignatureChange::Set(&BOTH), ..MkeyConfig::KEEP };
        // R178: the UMR would fit, the two SET_PSVs behind it do not.
        let result = queue.request(1).signaled().configure_mkey(&mut mkey, &config);
        assert_eq!(result, Err(PostError::RingFull { needed: 5, free: 4 }));
        let sge = Sge::new(0, 1, KEY).unwrap();
        let result = queue.request(2).send(&[sge; 31]);
        assert_eq!(result, Err(PostError::TooManySges { sges: 31, max: 30 }));
        let result = queue.request(3).send(Payload::Inline(&[0; 829]));
        assert_eq!(result, Err(PostError::InlineTooLong { length: 829, max: 828 }));
        assert_eq!(mkey, before);
        assert_eq!((queue.producer(), queue.outstanding(), queue.next_fence()), (0, 0, FmCeSe::FM_NONE));
        queue.ring_doorbell();
        assert_eq!(queue.doorbell().seen, []);
        assert_eq!(ring, before_ring);
    }

    #[test]
    fn the_limit_of_requests_counts_set_psvs() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
        let config = SendQueueConfig { max_requests: 2, ..SendQueueConfig::new(Qpn::default()) };
        let witness = Witness { record: &record, seen: Vec::new() };
        let mut queue = Queue::new(config, &mut ring, &record, witness).unwrap();
        let mut mkey = signature_mkey();
        let config = MkeyConfig { signature: SignatureChange::Set(&BOTH), ..MkeyConfig::KEEP };
        let result = queue.request(1).configure_mkey(&mut mkey, &config);
        assert_eq!(result, Err(PostError::TooManyRequests { needed: 3, free: 2 }));
        queue.request(1).nop().unwrap();
        queue.request(2).nop().unwrap();
        assert_eq!(queue.request(3).nop(), Err(PostError::TooManyRequests { needed: 1, free: 0 }));
    }

    #[test]
    fn room_and_requests_are_counted_over_many_laps() {
        // Requests of 1 to 3 blocks, completed one by one or with some before them; a queue that is filled to its limit of
        // requests again and again, one that is filled to its ring's end, and what both should say.
        for max_requests in [5, u32::MAX] {
            let (mut ring, record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
            let config = SendQueueConfig {
                max_requests,
                first_block: u32::MAX - 40,
                ..SendQueueConfig::new(Qpn::default())
            };
            let witness = Witness { record: &record, seen: Vec::new() };
            let mut queue = Queue::new(config, &mut ring, &record, witness).unwrap();
            let sge = Sge::new(0, 1, KEY).unwrap();
            let mut expected: VecDeque<(u16, u32, u64)> = VecDeque::new();
            let (mut dice, mut begin) = (1_u32, config.first_block as u16);
            for id in 0..2000 {
                dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let blocks = 1 + (dice >> 16) % 3;
                let free = 16 - expected.iter().map(|(_, blocks, _)| blocks).sum::<u32>();
                let requests = expected.len() as u32;
                assert_eq!((queue.free_blocks(), queue.outstanding()), (free, requests));
                let result = queue.request(id).send(&[sge; 11][..4 * blocks as usize - 1]);
                if blocks > free {
                    assert_eq!(result, Err(PostError::RingFull { needed: blocks, free }));
                } else if requests == max_requests {
                    assert_eq!(result, Err(PostError::TooManyRequests { needed: 1, free: 0 }));
                } else {
                    assert_eq!(result, Ok(()));
                    expected.push_back((begin, blocks, id));
                    begin = begin.wrapping_add(blocks as u16);
                }
                queue.ring_doorbell();
                if dice >> 24 < 100 && !expected.is_empty() {
                    let last = (dice >> 8) as usize % expected.len();
                    let (counter, _, id) = expected.drain(..=last).next_back().unwrap();
                    assert_eq!(queue.complete(counter), Some((id, RequestKind::Send)));
                    assert_eq!(queue.complete(counter), None);
                }
                if let Some((counter, 2.., _)) = expected.get(1) {
                    assert_eq!(queue.complete(counter.wrapping_add(1)), None, "the middle of a request");
                }
            }
        }
    }

    #[test]
    fn a_completion_retires_the_unsignalled_requests_before_it() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
        let mut queue = queue(&mut ring, &record, 0xfffd);
        let sges = [Sge::new(0, 1, KEY).unwrap(); 5];
        queue.request(10).nop().unwrap();
        queue.request(11).send(&sges).unwrap();
        queue.request(12).signaled().nop().unwrap();
        assert_eq!(queue.complete(0xfffd), None, "not published yet");
        queue.ring_doorbell();
        queue.request(13).signaled().nop().unwrap();
        assert_eq!(queue.complete(0xffff), None, "the middle of a request");
        assert_eq!(queue.complete(1), None, "posted but not published");
        assert_eq!(queue.complete(0xfffc), None, "before the queue");
        assert_eq!(queue.complete(0), Some((12, RequestKind::Nop)));
        assert_eq!((queue.free_blocks(), queue.outstanding()), (7, 1));
        assert_eq!(queue.complete(0), None, "completed once");
        assert_eq!(queue.complete(0xfffe), None, "retired with it");
        queue.ring_doorbell();
        assert_eq!(queue.complete(1), Some((13, RequestKind::Nop)));
        assert_eq!((queue.free_blocks(), queue.outstanding()), (8, 0));
    }

    #[test]
    fn m17_cancelled_requests_become_nops_and_keep_their_name() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 8], DoorbellRecord::new());
        let mut queue = queue(&mut ring, &record, 0);
        let sges = [Sge::new(0, 1, KEY).unwrap(); 5];
        for id in [1, 2, 1] {
            queue.request(id).signaled().send(&sges).unwrap();
        }
        queue.ring_doorbell();
        assert_eq!(queue.cancel(1, 1), Err(PostError::NotOutstanding { counter: 1 }));
        assert_eq!(queue.cancel(1, 2), Ok(1), "the first has been executed");
        assert_eq!(queue.cancel(1, 6), Ok(0), "nothing is left");
        assert_eq!(queue.complete(4), Some((1, RequestKind::Send)));
        queue.request(3).send(&sges[..1]).unwrap();
        assert_eq!(queue.cancel(3, 6), Ok(1), "posted, but not published");
        queue.ring_doorbell();
        let rung = queue.doorbell().seen.last().unwrap().0;
        assert_eq!(
            rung,
            [0, 0, 6, Opcode::NOP.0, 0, 0, 0x77, 2],
            "the doorbell says what stands in the ring"
        );
        assert_eq!(ring[0].0[..4], [0, 0, 0, Opcode::SEND.0]);
        assert_eq!(ring[2].0[..4], [0, 0, 2, Opcode::SEND.0]);
        assert_eq!(ring[4].0[..4], [0, 0, 4, Opcode::NOP.0]);
    }

    #[test]
    fn r177_a_configuration_completes_once_also_where_all_is_signalled() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
        let config = SendQueueConfig { signal_all: true, ..SendQueueConfig::new(Qpn::default()) };
        let witness = Witness { record: &record, seen: Vec::new() };
        let mut queue = Queue::new(config, &mut ring, &record, witness).unwrap();
        let config = MkeyConfig { signature: SignatureChange::Set(&BOTH), ..MkeyConfig::KEEP };
        queue.request(42).configure_mkey(&mut signature_mkey(), &config).unwrap();
        queue.ring_doorbell();
        // UMR of three blocks, SET_PSV of the memory domain, SET_PSV of the wire domain.
        assert_eq!(queue.complete(3), Some((42, RequestKind::MkeyConfigurePart)));
        assert_eq!(queue.complete(4), Some((42, RequestKind::MkeyConfigure)));
    }

    #[test]
    fn d16_an_invalidated_mkey_wants_everything() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
        let mut queue = queue(&mut ring, &record, 0);
        let mut mkey = signature_mkey();
        queue.request(1).invalidate_mkey(&mut mkey).unwrap();
        let piece = [ListEntry::new(0, 512, KEY).unwrap()];
        let mut config = MkeyConfig::KEEP;
        let mut refused = |config: &MkeyConfig<'_>, missing| {
            let result = queue.request(2).configure_mkey(&mut mkey, config);
            assert_eq!(result, Err(PostError::Config(ConfigError::StateUnknown { missing })));
        };
        refused(&config, "access");
        config.access = Some(Access::NONE);
        refused(&config, "layout");
        config.layout = Some(Layout::list(&piece));
        refused(&config, "signature (set or reset)");
        config.signature = SignatureChange::Reset;
        assert_eq!(queue.request(2).configure_mkey(&mut mkey, &config), Ok(()));
        assert_eq!(queue.request(3).configure_mkey(&mut mkey, &MkeyConfig::KEEP), Ok(()));
    }

    #[test]
    fn no_request_is_longer_than_the_device_reads() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
        let mut queue = queue(&mut ring, &record, 0);
        let entries = [ListEntry::new(0, 1, KEY).unwrap(); 53];
        let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 64)).unwrap();
        let too_long = MkeyConfig { layout: Some(Layout::list(&entries)), ..MkeyConfig::KEEP };
        let result = queue.request(1).configure_mkey(&mut mkey, &too_long);
        assert_eq!(result, Err(PostError::Config(ConfigError::TooManyEntries { entries: 53, max: 52 })));
        let longest = MkeyConfig { layout: Some(Layout::list(&entries[..52])), ..MkeyConfig::KEEP };
        queue.request(1).configure_mkey(&mut mkey, &longest).unwrap();
        queue.request(2).rdma_write(Remote::new(0, KEY), Payload::Inline(&[1; 828])).unwrap();
        assert_eq!(ring[0].0[7], 60);
        assert_eq!(ring[15].0[7], 2 + 52);
    }
}
