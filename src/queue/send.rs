//! The send queue: posts requests and publishes them.

use super::doorbell::{Doorbell, DoorbellRecord};
use super::in_flight::{InFlight, RequestKind};
use super::ring::{Around, Filling, Offer, Piece, Ring, Run};
use super::{MAX_SLOTS, barrier};
use crate::error::{ConfigError, PostError, QueueError};
use crate::mkey::{DomainKind, Kept, Mkey, MkeyConfig, Numbers, Plan, PsvStarts};
use crate::types::{Key, Qpn};
use crate::wire::ctrl::{FmCeSe, Opcode};
use crate::wire::psv::SetPsvSegment;
use crate::wire::{
    MAX_WQE_OCTOWORDS, OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS, WQEBB_BYTES, Wqebb, blocks_of,
};
use crate::wqe::data_path::{DataPath, Operands};
use crate::wqe::{MkeyTemplate, Payload, Remote, Room, Sge, set_psv, umr};
use core::num::NonZeroU64;
use zerocopy::big_endian::{U32, U64};
use zerocopy::transmute;

/// Bytes before the translation entries of a UMR.
const UMR_HEAD_BYTES: usize = UMR_HEAD_BLOCKS * WQEBB_BYTES;

/// The parts of the flags of a control segment, each alone.
const NO_FLAGS: FmCeSe = FmCeSe::new();
const SMALL_FENCE: FmCeSe = FmCeSe::new().with_fm(FmCeSe::FM_SMALL);
const FULL_FENCE: FmCeSe = FmCeSe::new().with_fm(FmCeSe::FM_FENCE);
const COMPLETION: FmCeSe = FmCeSe::new().with_ce(FmCeSe::CE_ALWAYS);
const SOLICITED: FmCeSe = FmCeSe::new().with_solicited(true);
/// The fence of a request behind a change of an mkey, which it must not overtake (R17), unless it asks for another.
const BEHIND_CHANGE: U32 = flag_word(SMALL_FENCE);
const BEHIND_ELSE: U32 = flag_word(NO_FLAGS);

/// Returns the flags of both.
#[inline(always)]
const fn both(one: FmCeSe, other: FmCeSe) -> FmCeSe {
    FmCeSe::from_bits(one.into_bits() | other.into_bits())
}

/// Returns flags where the second half of a control segment has them, in its first four bytes.
#[inline(always)]
const fn flag_word(flags: FmCeSe) -> U32 {
    U32::new(flags.into_bits() as u32)
}

/// Returns the second half of a control segment: flags, and what goes with the opcode (`imm`).
#[inline(always)]
fn second_word(flags: U32, imm: U64) -> U64 {
    let flags: U64 = transmute!([flags, U32::ZERO]);
    flags | imm
}

/// Where the first eight bytes of a work request have the number of its block.
const COUNTER_SHIFT: u32 = 40;

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
    /// Most work requests between post and completion. Not above the completion queue's size, and it cannot overrun. A limit
    /// below the ring's number of blocks has each post compare, and so has a limit of inline data below the highest.
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
// In this order, so that instruction counts do not depend on where a compiler puts what.
#[repr(C)]
pub struct SendQueue<'r, D, const N: usize> {
    pub(super) in_flight: InFlight<N>,
    pub(super) ring: Filling<'r, Wqebb>,
    record: &'r DoorbellRecord,
    doorbell: D,
    qpn: Qpn,
    words: Words,
    max_inline_data: u32,
    /// Octowords for an mkey's layout and BSFs.
    max_octowords: usize,
    max_sge: usize,
    max_requests: u32,
    /// What the next request has beside its own flags, as the second half of a control segment has it.
    next: U32,
    /// A request that fits may be posted: there is no limit that is below what the ring and the device have.
    unlimited: bool,
    /// What the next doorbell says: the start of the last request. 0, which no request begins with, where it has rung.
    pub(super) last_control: U64,
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
        let words = Words::new(qpn, signal_all);
        Ok(Self {
            in_flight: InFlight::new(first_block),
            unlimited: ring.len() <= max_requests && max_inline_data == SendQueueConfig::MAX_INLINE_DATA,
            ring: Filling::new(ring, first_block),
            record,
            doorbell,
            qpn,
            max_inline_data,
            max_octowords: (max_inline_data + INLINE_HEADER_BYTES) as usize / OCTOWORD_BYTES,
            // Control, remote address and operands take three octowords.
            max_sge: max_sge.clamp(1, usize::from(MAX_WQE_OCTOWORDS) - 3),
            max_requests,
            next: if config.small_fence { BEHIND_CHANGE } else { BEHIND_ELSE },
            words,
            last_control: U64::ZERO,
        })
    }

    /// Begins a request; `id` is what its completion will carry (`wr_id`). Nothing happens until it is given its work.
    pub const fn request(&mut self, id: u64) -> Request<'_, 'r, D, N> {
        Request { queue: self, hand: None, id, flags: NO_FLAGS }
    }

    /// Begins requests that are published together, with one doorbell.
    #[inline(always)]
    pub const fn batch(&mut self) -> Batch<'_, 'r, D, N> {
        let hand = self.in_hand();
        Batch { queue: self, hand }
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Returns how many blocks of 64 bytes are free.
    pub const fn free_blocks(&self) -> u32 {
        self.ring.ring().len() - (self.ring.producer() - self.in_flight.tail()) as u32
    }

    /// Returns the count of blocks posted since the queue pair's start.
    pub const fn producer(&self) -> u32 {
        self.ring.producer() as u32
    }

    /// Returns the fence mode that the next request gets if it asks for none.
    pub const fn next_fence(&self) -> u8 {
        FmCeSe::from_bits(self.next.get() as u8).fm()
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
            words: self.words,
            max_inline_data: self.max_inline_data,
            max_octowords: self.max_octowords,
            max_sge: self.max_sge,
            max_requests: self.max_requests,
            next: self.next,
            unlimited: self.unlimited,
            last_control: self.last_control,
        }
    }

    /// Copies a block out of the ring, for [`crate::inspect`]; blocks are counted as [`SendQueue::producer`] counts them.
    pub fn block(&self, index: u32) -> Wqebb {
        self.ring.ring().read(u64::from(index))
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
        let producer = self.ring.producer();
        self.in_flight.publish(producer);
        barrier::blocks_before_record();
        self.record.set_send(producer as u16);
        barrier::record_before_doorbell();
        self.doorbell.ring(control.to_bytes());
        barrier::flush_doorbell();
    }

    /// Begins to post, if so many blocks are known to be free in one piece and there is nothing to count. What was begun must be
    /// posted.
    #[inline(always)]
    fn begin(&mut self, room: Room) -> Option<Post<'_, Piece<'_>, N>> {
        let Self { in_flight, ring, words, next, last_control, .. } = self;
        let begin = ring.producer();
        let place = ring.take(room)?;
        Some(Post { place, in_flight, begin, words, next, last_control })
    }

    /// Returns the state that each post changes.
    #[inline(always)]
    const fn in_hand(&self) -> InHand<'r> {
        let Self { next, last_control, words, .. } = *self;
        InHand { run: self.ring.run(), next, last_control, words }
    }

    /// Takes it back.
    #[inline(always)]
    const fn put_back(&mut self, hand: &InHand<'r>) {
        self.ring.put_back(&hand.run);
        (self.next, self.last_control) = (hand.next, hand.last_control);
    }

    /// Begins to post what fits, and finds out up to where the next posts need not ask.
    ///
    /// Where requests are posted as they should be, it happens a few times in a lap of the ring: for the one that comes to its end,
    /// and where what was free when last asked is used up. Each time where limits are low, and for what is seldom.
    #[inline(always)]
    fn ask(&mut self, blocks: usize, requests: usize) -> Result<Post<'_, Around<'_, Wqebb>, N>, PostError> {
        let known = self.known_free(blocks, requests)?;
        let begin = self.ring.producer();
        Ok(Post {
            place: self.ring.take_around(blocks, known),
            in_flight: &mut self.in_flight,
            begin,
            words: &self.words,
            next: &mut self.next,
            last_control: &mut self.last_control,
        })
    }

    /// Goes on where a request did not post. Seldom, which the compiler is told for the sake of the others.
    #[cold]
    #[inline(never)]
    fn configure_any(
        &mut self,
        id: u64,
        flags: FmCeSe,
        mkey: &mut Mkey,
        config: &MkeyConfig<'_>,
    ) -> Result<(), PostError> {
        if self.unlimited
            && let Some(plan) = mkey.plan_settled(config)
        {
            // It is the ring that has to be asked, and nothing else.
            return match plan.psvs {
                0 => self.configure_around::<0>((id, flags), mkey, config, &plan),
                1 => self.configure_around::<1>((id, flags), mkey, config, &plan),
                _ => self.configure_around::<2>((id, flags), mkey, config, &plan),
            };
        }
        self.configure_unsettled(id, flags, mkey, config)
    }

    /// Carries out the plan of a settled mkey that has so many SET_PSVs.
    #[inline(always)]
    fn configure_around<const PSVS: usize>(
        &mut self,
        name: Name,
        mkey: &mut Mkey,
        config: &MkeyConfig<'_>,
        plan: &Plan<'_>,
    ) -> Result<(), PostError> {
        self.ask(plan_room(plan, PSVS).blocks(), 1 + PSVS)?.settled::<PSVS>(plan, mkey, config, name);
        Ok(())
    }

    /// Changes an mkey in any state, and says what is wrong.
    #[inline(never)]
    fn configure_unsettled(
        &mut self,
        id: u64,
        flags: FmCeSe,
        mkey: &mut Mkey,
        config: &MkeyConfig<'_>,
    ) -> Result<(), PostError> {
        let mut kept = Kept::default();
        let plan = match mkey.plan_complete(config, self.max_octowords / OCTOWORDS_PER_BLOCK) {
            Some(plan) => plan,
            None => mkey.plan(config, self.max_octowords, &mut kept)?,
        };
        let (numbers, name, room) = (mkey.numbers(), (id, flags), plan_room(&plan, plan.psvs));
        self.ask(room.blocks(), 1 + plan.psvs)?.plan_of_any(&plan, numbers, name);
        mkey.apply(config);
        Ok(())
    }

    /// What happens where the ring has to be asked, once after each signature error and after doubts, and what is refused.
    #[cold]
    #[inline(never)]
    fn configure_from_any<const ENTRIES: usize, const BSFS: usize, const PSVS: usize>(
        &mut self,
        id: u64,
        flags: FmCeSe,
        mkey: &mut Mkey,
        template: &MkeyTemplate<ENTRIES, BSFS, PSVS>,
    ) -> Result<(), PostError> {
        if template.ticket() != mkey.own_ticket() || !mkey.has_psvs(template.numbers()) {
            let error = ConfigError::OtherMkey { template: template.key(), mkey: mkey.key() };
            return Err(error.into());
        }
        mkey.check_tag(mkey.key().tag())?;
        template.check_room(self.max_octowords)?;
        let post = self.ask(template.blocks(), 1 + PSVS)?;
        post.template(template, mkey.pending_error_count(), (id, flags));
        mkey.hold(template.in_force());
        mkey.told();
        Ok(())
    }

    /// Posts a request of several blocks where something has to be asked.
    #[cold]
    #[inline(never)]
    fn data_path_any(
        &mut self,
        id: u64,
        flags: FmCeSe,
        kind: RequestKind,
        request: DataPath<'_>,
    ) -> Result<(), PostError> {
        let post = self.ask(blocks_of(request.octowords()), 1)?;
        post.data_path((id, flags), kind, &request);
        Ok(())
    }

    /// Makes a block known to be free.
    #[cold]
    #[inline(never)]
    fn ask_for_one(&mut self) -> Result<(), PostError> {
        let known = self.known_free(1, 1)?;
        self.ring.set_known(known);
        Ok(())
    }

    /// Refuses what does not fit, and returns up to where blocks are known to be free.
    #[inline(always)]
    fn known_free(&self, blocks: usize, requests: usize) -> Result<u64, PostError> {
        let after = self.ring.producer() + blocks as u64;
        let free = self.in_flight.tail() + self.ring.ring().last() + 1;
        if after > free {
            return Err(PostError::RingFull { needed: blocks as u32, free: self.free_blocks() });
        }
        if self.unlimited {
            return Ok(free);
        }
        self.check_limit(requests as u32)?;
        Ok(after)
    }

    /// Refuses what are too many requests.
    fn check_limit(&self, needed: u32) -> Result<(), PostError> {
        let free = self.max_requests.saturating_sub(self.in_flight.outstanding());
        if needed > free { Err(PostError::TooManyRequests { needed, free }) } else { Ok(()) }
    }
}

/// What each post changes of a queue, in the hand of who posts many requests: the compiler may keep it in registers, which it may
/// not with what others could reach.
struct InHand<'r> {
    run: Run<'r>,
    next: U32,
    last_control: U64,
    words: Words,
}

impl InHand<'_> {
    /// Begins to post, as [`SendQueue::begin`] does.
    #[inline(always)]
    fn begin<'p, const N: usize>(
        &'p mut self,
        in_flight: &'p mut InFlight<N>,
        room: Room,
    ) -> Option<Post<'p, Piece<'p>, N>> {
        let Self { run, next, last_control, words } = self;
        let begin = run.producer();
        let place = run.take(room)?;
        Some(Post { place, in_flight, begin, words, next, last_control })
    }
}

/// Requests that are published together when it is dropped, also where one of them was refused. They are posted as those of the
/// queue itself, in fewer instructions.
///
/// Must be dropped: if it is leaked ([`core::mem::forget`]), an unspecified subset of its requests is lost, the state of mkeys no
/// longer matches the device, and the queue counts requests that will not complete. Drop the queue then.
///
/// ```
/// # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}, wqe::{Remote, Sge}};
/// fn write_all<D: Doorbell, const N: usize>(
///     queue: &mut SendQueue<'_, D, N>,
///     pieces: &[(Remote, Sge)],
/// ) -> Result<(), PostError> {
///     let mut batch = queue.batch();
///     for (id, (remote, sge)) in (0..).zip(pieces) {
///         batch.request(id).signaled().rdma_write(*remote, core::slice::from_ref(sge))?;
///     }
///     Ok(())
/// }
/// ```
#[must_use = "what is not posted through it is not in the batch"]
pub struct Batch<'q, 'r, D: Doorbell, const N: usize> {
    queue: &'q mut SendQueue<'r, D, N>,
    hand: InHand<'r>,
}

crate::fmt::format_counters!(['q, 'r, D: Doorbell, const N: usize] Batch ['q, 'r, D, N] { hand });
crate::fmt::format_counters!(['r] InHand ['r] { run });

impl<'r, D: Doorbell, const N: usize> Batch<'_, 'r, D, N> {
    /// Begins a request, as [`SendQueue::request`] does.
    #[inline(always)]
    pub const fn request(&mut self, id: u64) -> Request<'_, 'r, D, N, true> {
        Request { queue: self.queue, hand: Some(&mut self.hand), id, flags: NO_FLAGS }
    }
}

impl<D: Doorbell, const N: usize> Drop for Batch<'_, '_, D, N> {
    #[inline(always)]
    fn drop(&mut self) {
        self.queue.put_back(&self.hand);
        self.queue.ring_doorbell();
    }
}

/// What requests have of their queue, as they have it.
#[derive(Clone, Copy)]
struct Words {
    /// The number of the queue pair where the first eight bytes of a request have it.
    qpn: u64,
    /// With it, what else all UMRs have there, and all SET_PSVs, these in the order in which they are sent. Neither is 0, and
    /// so the compiler knows that there is something to ring for.
    umr: NonZeroU64,
    set_psv: NonZeroU64,
    /// A completion with `signal_all`, as the second half of a control segment has it.
    always: U32,
}

impl Words {
    fn new(qpn: Qpn, signal_all: bool) -> Self {
        let qpn = u64::from(qpn.get()) << 8;
        let nonzero = |bits| NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN);
        Self {
            qpn,
            umr: nonzero(first_bits(qpn, Opcode::UMR)),
            set_psv: nonzero((first_bits(qpn, Opcode::SET_PSV) | set_psv::OCTOWORDS as u64).to_be()),
            always: flag_word(if signal_all { COMPLETION } else { NO_FLAGS }),
        }
    }

    /// Returns the flags of a request as the second half of its control segment has them.
    #[inline(always)]
    fn flags(&self, fence: U32, flags: FmCeSe) -> U32 {
        // What completes anyhow needs no look at what all do.
        let always = if flags.ce() == FmCeSe::CE_ALWAYS { BEHIND_ELSE } else { self.always };
        fenced(fence, flags) | always
    }
}

/// A request on its way into the ring, and what it reads and changes of its queue.
struct Post<'q, S, const N: usize> {
    place: S,
    in_flight: &'q mut InFlight<N>,
    /// Its first block, counted from the queue pair's start.
    begin: u64,
    words: &'q Words,
    next: &'q mut U32,
    last_control: &'q mut U64,
}

impl<S: Offer, const N: usize> Post<'_, S, N> {
    /// Posts a data-path request.
    #[inline(always)]
    fn data_path(mut self, (id, flags): Name, kind: RequestKind, request: &DataPath<'_>) {
        let octowords = request.octowords();
        self.in_flight.file(self.begin, id, kind, blocks_of(octowords));
        let first = first_word(self.begin, octowords, first_bits(self.words.qpn, request.opcode));
        let fence = core::mem::replace(self.next, BEHIND_ELSE);
        let second = second_word(self.words.flags(fence, flags), U64::new(request.imm.into()));
        request.encode(transmute!([first, second]), &mut self.place);
        self.accept(first);
    }

    /// Posts a UMR that takes a key out of service.
    fn invalidate(mut self, (id, flags): Name, key: Key) {
        let blocks = umr::INVALIDATE_BLOCKS;
        self.in_flight.file(self.begin, id, RequestKind::LocalInvalidate, blocks);
        let first = self.umr_word(blocks);
        let fence = core::mem::replace(self.next, BEHIND_CHANGE);
        let second = second_word(self.words.flags(fence, flags), U64::new(key.get().into()));
        umr::invalidate(transmute!([first, second]), &mut self.place);
        self.accept(first);
    }

    /// Posts the requests of a plan.
    #[inline(always)]
    fn plan_of_any(self, plan: &Plan<'_>, numbers: &Numbers, name: Name) {
        match plan.psvs {
            0 => self.plan::<0>(plan, numbers, name),
            1 => self.plan::<1>(plan, numbers, name),
            _ => self.plan::<2>(plan, numbers, name),
        }
    }

    /// Posts the requests of a plan, which has so many SET_PSVs.
    #[inline(always)]
    fn plan<const PSVS: usize>(mut self, plan: &Plan<'_>, numbers: &Numbers, name: Name) {
        let [first, second] = self.configuration::<PSVS>(name, numbers, umr::room(plan).blocks());
        umr::configure(plan, numbers, transmute!([first, second]), &mut self.place);
        let mut last_control = first;
        if let Some((PsvStarts { first, last, .. }, last_domain)) = plan.set_psvs {
            if PSVS == 2 {
                self.set_psv(name, set_psv::segment(numbers.psv_word(DomainKind::Memory), *first), 2);
            }
            last_control = self.set_psv(name, set_psv::segment(numbers.psv_word(last_domain), *last), 1);
        }
        umr::layout(plan, &mut self.place);
        self.accept(last_control);
    }

    /// Posts the requests of a plan of a settled mkey, and notes it there.
    #[inline(always)]
    fn settled<const PSVS: usize>(
        self,
        plan: &Plan<'_>,
        mkey: &mut Mkey,
        config: &MkeyConfig<'_>,
        name: Name,
    ) {
        let (numbers, shadow) = mkey.parts();
        shadow.apply_settled(config);
        self.plan::<PSVS>(plan, numbers, name);
        if plan.error_count.is_some() {
            mkey.error_count_told();
        }
    }

    /// Posts the requests of a template, with the error count if it is to be written.
    #[inline(always)]
    fn template<const ENTRIES: usize, const BSFS: usize, const PSVS: usize>(
        mut self,
        template: &MkeyTemplate<ENTRIES, BSFS, PSVS>,
        error_count: Option<bool>,
        name: Name,
    ) {
        let [first, second] = self.configuration::<PSVS>(name, template.numbers(), template.umr_blocks());
        template.configure(error_count, transmute!([first, second]), &mut self.place);
        let mut last_control = first;
        for (segment, from_end) in template.psvs().iter().zip((1..=PSVS).rev()) {
            last_control = self.set_psv(name, *segment, from_end);
        }
        self.accept(last_control);
    }

    /// Files a configuration, and returns the halves of the control segment of its UMR.
    #[inline(always)]
    fn configuration<const PSVS: usize>(
        &mut self,
        (id, flags): Name,
        numbers: &Numbers,
        blocks: usize,
    ) -> [U64; 2] {
        let kind = if PSVS == 0 { RequestKind::MkeyConfigure } else { RequestKind::MkeyConfigurePart };
        self.in_flight.file(self.begin, id, kind, blocks);
        let fence = core::mem::replace(self.next, BEHIND_CHANGE);
        // The last of the SET_PSVs carries the completion; where there are none, the key's word does if it is asked for.
        let completes = PSVS == 0 && flags.ce() == FmCeSe::CE_ALWAYS;
        let flags =
            if completes || PSVS > 0 { fenced(fence, silent(flags)) } else { self.words.flags(fence, flags) };
        [self.umr_word(blocks), second_word(flags, numbers.key_word(completes))]
    }

    /// Returns the first half of the control segment of a UMR.
    #[inline(always)]
    fn umr_word(&self, blocks: usize) -> U64 {
        first_word(self.begin, blocks * OCTOWORDS_PER_BLOCK, self.words.umr.get())
    }

    /// Posts the SET_PSV that is so many from the end, and returns the first half of its control segment.
    #[inline(always)]
    fn set_psv(&mut self, (id, flags): Name, segment: SetPsvSegment, from_end: usize) -> U64 {
        let block = self.place.after() - (from_end * set_psv::BLOCKS) as u64;
        // The block among bytes in the order in which they are sent: one shift less than in [`first_word`].
        let [high, low] = (block as u16).to_be_bytes();
        let counter = u64::from_ne_bytes([0, high, low, 0, 0, 0, 0, 0]);
        let first = U64::from_bytes((self.words.set_psv.get() | counter).to_ne_bytes());
        let kind = if from_end == 1 { RequestKind::MkeyConfigure } else { RequestKind::MkeyConfigurePart };
        self.in_flight.file(block, id, kind, set_psv::BLOCKS);
        // With signal_all every one completes, as the reference provider has it.
        let own = if from_end == 1 { flags } else { silent(flags) };
        let second = second_word(self.words.flags(BEHIND_CHANGE, own), U64::ZERO);
        set_psv::set_psv(segment, transmute!([first, second]), &mut self.place);
        if from_end > 1 {
            self.place.skip(set_psv::BLOCKS * OCTOWORDS_PER_BLOCK - set_psv::OCTOWORDS);
        }
        first
    }

    /// Ends it.
    #[inline(always)]
    fn accept(self, last_control: U64) {
        self.place.accept();
        *self.last_control = last_control;
    }
}

/// Returns the first eight bytes of a work request: OpcodeWord and QpnDs at once. The size is at most MAX_WQE_OCTOWORDS, by the
/// limits of the queue.
#[inline(always)]
fn first_word(block: u64, octowords: usize, bits: u64) -> U64 {
    // Added, which takes one instruction less than to set bits, where the size is not known.
    let counter_and_size = (u64::from(block as u16) << COUNTER_SHIFT) + octowords as u64;
    U64::new(counter_and_size | bits)
}

/// Returns what they are but for block and size.
#[inline(always)]
const fn first_bits(qpn: u64, opcode: Opcode) -> u64 {
    qpn | (opcode.0 as u64) << 32
}

/// Returns flags as the second half of a control segment has them, with this fence if they have none.
#[inline(always)]
fn fenced(fence: U32, flags: FmCeSe) -> U32 {
    flag_word(flags) | if flags.fm() == FmCeSe::FM_NONE { fence } else { BEHIND_ELSE }
}

/// Returns the flags without a completion.
#[inline(always)]
const fn silent(flags: FmCeSe) -> FmCeSe {
    flags.with_ce(FmCeSe::CE_ERROR_ONLY)
}

/// What the user calls a request, and its flags.
type Name = (u64, FmCeSe);

crate::fmt::format_counters!(['r, D, const N: usize] SendQueue ['r, D, N] { ring, in_flight });

/// Returns the blocks that the requests of a plan fill, which has so many SET_PSVs.
#[inline(always)]
fn plan_room(plan: &Plan<'_>, psvs: usize) -> Room {
    let Room { fixed, entries } = umr::room(plan);
    Room { fixed: fixed + psvs * set_psv::BLOCKS, entries }
}

/// A request that waits for its work. Flags first, then one method that posts. `BATCHED` says that it is one of a [`Batch`].
#[must_use = "nothing is posted until the request is given its work"]
pub struct Request<'q, 'r, D, const N: usize, const BATCHED: bool = false> {
    queue: &'q mut SendQueue<'r, D, N>,
    /// Where it is one of a batch: the state of its queue.
    hand: Option<&'q mut InHand<'r>>,
    id: u64,
    /// As the control segment has them.
    flags: FmCeSe,
}

crate::fmt::format_counters!(['q, 'r, D, const N: usize, const BATCHED: bool] Request ['q, 'r, D, N, BATCHED] { id, flags });

impl<'r, D: Doorbell, const N: usize, const BATCHED: bool> Request<'_, 'r, D, N, BATCHED> {
    /// Begins to post, see [`SendQueue::begin`].
    #[inline(always)]
    fn begin(&mut self, room: Room) -> Option<Post<'_, Piece<'_>, N>> {
        if BATCHED {
            self.hand.as_deref_mut()?.begin(&mut self.queue.in_flight, room)
        } else {
            self.queue.begin(room)
        }
    }

    /// Does what needs the whole queue.
    #[inline(always)]
    fn whole<T>(&mut self, work: impl FnOnce(&mut SendQueue<'r, D, N>) -> T) -> T {
        let Self { queue, hand, .. } = self;
        let Some(hand) = hand.as_deref_mut().filter(|_| BATCHED) else { return work(queue) };
        queue.put_back(hand);
        let result = work(queue);
        // The words stay, which the compiler then knows.
        *hand = InHand { words: hand.words, ..queue.in_hand() };
        result
    }

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
    pub fn configure_mkey(mut self, mkey: &mut Mkey, config: &MkeyConfig<'_>) -> Result<(), PostError> {
        if let Some(plan) = mkey.plan_settled(config) {
            let posted = match plan.psvs {
                0 => self.configure::<0>(mkey, config, &plan),
                1 => self.configure::<1>(mkey, config, &plan),
                _ => self.configure::<2>(mkey, config, &plan),
            };
            if posted {
                return Ok(());
            }
        } else if let Some(plan) = mkey.plan_pending(config) {
            // It has SET_PSVs, for it has a signature.
            let posted = match plan.psvs {
                0 | 1 => self.configure::<1>(mkey, config, &plan),
                _ => self.configure::<2>(mkey, config, &plan),
            };
            if posted {
                return Self::posted();
            }
        }
        // A copy, and the request by its parts, so that nothing has to be in memory on the way above.
        let config = *config;
        let Self { id, flags, .. } = self;
        self.whole(move |queue| queue.configure_any(id, flags, mkey, &config))
    }

    /// Success, which the compiler does not know: it would join this way with the other, which then takes longer.
    #[cold]
    #[inline(never)]
    const fn posted() -> Result<(), PostError> {
        Ok(())
    }

    /// Carries out the plan of a settled mkey that has so many SET_PSVs, if there is nothing to ask; returns whether it did.
    #[inline(always)]
    fn configure<const PSVS: usize>(
        &mut self,
        mkey: &mut Mkey,
        config: &MkeyConfig<'_>,
        plan: &Plan<'_>,
    ) -> bool {
        let name = (self.id, self.flags);
        let Some(post) = self.begin(plan_room(plan, PSVS)) else { return false };
        post.settled::<PSVS>(plan, mkey, config, name);
        true
    }

    /// Changes an mkey to what a template says; otherwise as [`Request::configure_mkey`].
    ///
    /// # Errors
    /// [`ConfigError::OtherMkey`] for the template of another mkey, of another kind of mkey, or of another tag;
    /// [`ConfigError::TooManyEntries`] or [`ConfigError::BsfDoesNotFit`] for one that is too long for the queue;
    /// [`PostError::RingFull`], [`PostError::TooManyRequests`]. Ring, counters and mkey are then as before.
    #[inline(always)]
    pub fn configure_from<const ENTRIES: usize, const BSFS: usize, const PSVS: usize>(
        mut self,
        mkey: &mut Mkey,
        template: &MkeyTemplate<ENTRIES, BSFS, PSVS>,
    ) -> Result<(), PostError> {
        let Self { id, flags, .. } = self;
        if mkey.takes(template.ticket())
            && (PSVS == 0 || mkey.has_psvs(template.numbers()))
            && let Some(post) = self.begin(Room { fixed: template.blocks(), entries: 0 })
        {
            mkey.hold(template.in_force());
            post.template(template, None, (id, flags));
            return Ok(());
        }
        self.whole(move |queue| queue.configure_from_any(id, flags, mkey, template))
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
    pub fn invalidate(mut self, key: Key) -> Result<(), PostError> {
        let Self { id, flags, .. } = self;
        self.whole(move |queue| {
            queue.ask(umr::INVALIDATE_BLOCKS, 1)?.invalidate((id, flags), key);
            Ok(())
        })
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
    fn data_path(mut self, kind: RequestKind, request: DataPath<'_>) -> Result<(), PostError> {
        let Self { id, flags, .. } = self;
        let queue = &*self.queue;
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
        let room = Room { fixed: blocks_of(request.octowords()), entries: 0 };
        if let Some(post) = self.begin(room) {
            post.data_path((id, flags), kind, &request);
            return Ok(());
        }
        if room.fixed == 1 {
            // A block is in one piece, wherever it is.
            self.whole(SendQueue::ask_for_one)?;
            let full = PostError::RingFull { needed: 1, free: 0 };
            self.begin(room).ok_or(full)?.data_path((id, flags), kind, &request);
            return Ok(());
        }
        self.whole(move |queue| queue.data_path_any(id, flags, kind, request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkey::{
        Access, BlockSignature, Domain, Layout, ListEntry, MkeyAttributes, Signature, SignatureAttributes,
        SignatureChange,
    };
    use crate::queue::Retired;
    use crate::types::{BlockSize, PsvIndex, Seed};
    use crate::wire::umr::UmrHead;
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
        Mkey::new(MkeyAttributes { signature, ..MkeyAttributes::plain(KEY, 16) })
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
                    assert_eq!(queue.retire(counter), Some(Retired { id, kind: RequestKind::Send }));
                    assert_eq!(queue.retire(counter), None);
                }
                if let Some((counter, 2.., _)) = expected.get(1) {
                    assert_eq!(queue.retire(counter.wrapping_add(1)), None, "the middle of a request");
                }
            }
        }
    }

    #[test]
    fn a_batch_posts_what_its_queue_posts() {
        // Requests of 1 to 3 blocks and configurations, in batches of up to 7, over many laps of a ring that is full again and
        // again; without a limit of requests, and with a low one.
        for max_requests in [5, u32::MAX] {
            let (mut rings, record) = ([vec![Wqebb::ZERO; 16], vec![Wqebb::ZERO; 16]], DoorbellRecord::new());
            let start = SendQueueConfig::new(Qpn::from_low_bits(0x77));
            let config = SendQueueConfig { max_requests, first_block: u32::MAX - 40, ..start };
            let [one, other] = &mut rings;
            let witness = || Witness { record: &record, seen: Vec::new() };
            let mut plain = Queue::new(config, one, &record, witness()).unwrap();
            let mut batched = Queue::new(config, other, &record, witness()).unwrap();
            let mut mkeys = [signature_mkey(), signature_mkey()];
            let (list, both) = ([ListEntry::new(0, 512, KEY).unwrap()], SignatureChange::Set(&BOTH));
            let (access, layout) = (Some(Access::ALL), Some(Layout::list(&list)));
            let configuration = MkeyConfig { access, layout, signature: both, crypto: None };
            let template = MkeyTemplate::<1, 1, 2>::new(&mkeys[0], &configuration).unwrap();
            let sge = Sge::new(0, 1, KEY).unwrap();
            let mut dice = 1_u32;
            for _ in 0..2000 {
                dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let mut batch = batched.batch();
                let [mine, its] = &mut mkeys;
                for at in 0..dice >> 29 {
                    let sges = &[sge; 11][..(dice >> (3 * at)) as usize % 12];
                    let (kind, id) = ((dice >> (2 * at)) % 5, u64::from(at));
                    let (request, same) = (plain.request(id).signaled(), batch.request(id).signaled());
                    let results = match kind {
                        0 => (
                            request.configure_mkey(mine, &configuration),
                            same.configure_mkey(its, &configuration),
                        ),
                        1 => (request.configure_from(mine, &template), same.configure_from(its, &template)),
                        2 => (request.invalidate(KEY), same.invalidate(KEY)),
                        _ => (request.send(sges), same.send(sges)),
                    };
                    assert_eq!(results.0, results.1);
                }
                drop(batch);
                plain.ring_doorbell();
                let known = |queue: &Queue<'_>| {
                    (queue.producer(), queue.free_blocks(), queue.outstanding(), queue.next_fence())
                };
                assert_eq!(known(&plain), known(&batched));
                assert_eq!(plain.doorbell().seen.last(), batched.doorbell().seen.last());
                assert!((0..16).all(|at| plain.block(at) == batched.block(at)));
                for back in 1..=(dice >> 13) as u16 % 16 {
                    let counter = (plain.producer() as u16).wrapping_sub(17 - back);
                    assert_eq!(plain.retire(counter), batched.retire(counter));
                }
            }
            assert_eq!(mkeys[0], mkeys[1]);
            assert_eq!(plain.doorbell().seen.len(), batched.doorbell().seen.len());
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
        assert_eq!(queue.retire(0xfffd), None, "not published yet");
        queue.ring_doorbell();
        queue.request(13).signaled().nop().unwrap();
        assert_eq!(queue.retire(0xffff), None, "the middle of a request");
        assert_eq!(queue.retire(1), None, "posted but not published");
        assert_eq!(queue.retire(0xfffc), None, "before the queue");
        assert_eq!(queue.retire(0), Some(Retired { id: 12, kind: RequestKind::Nop }));
        assert_eq!((queue.free_blocks(), queue.outstanding()), (7, 1));
        assert_eq!(queue.retire(0), None, "completed once");
        assert_eq!(queue.retire(0xfffe), None, "retired with it");
        queue.ring_doorbell();
        assert_eq!(queue.retire(1), Some(Retired { id: 13, kind: RequestKind::Nop }));
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
        assert_eq!(queue.retire(4), Some(Retired { id: 1, kind: RequestKind::Send }));
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
        assert_eq!(queue.retire(3), Some(Retired { id: 42, kind: RequestKind::MkeyConfigurePart }));
        assert_eq!(queue.retire(4), Some(Retired { id: 42, kind: RequestKind::MkeyConfigure }));
    }

    #[test]
    fn r179_the_error_count_is_told_once() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
        let mut queue = queue(&mut ring, &record, 0);
        let mut mkey = signature_mkey();
        let config = MkeyConfig { signature: SignatureChange::Set(&BOTH), ..MkeyConfig::KEEP };
        // The first post asks for the ring; the others need not.
        queue.request(0).nop().unwrap();
        for told in [true, false, false] {
            let begin = queue.producer();
            queue.request(1).configure_mkey(&mut mkey, &config).unwrap();
            let head: UmrHead = transmute!(queue.block(begin).0);
            assert_eq!(head.umr.mask().sig_err(), told);
            assert_eq!(mkey.error_count().map(|count| count.pending), Some(false));
        }
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
    fn a_settled_mkey_is_held_to_the_limits_of_the_queue() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
        // Room for one block of layout or BSFs.
        let config = SendQueueConfig { max_inline_data: 60, ..SendQueueConfig::new(Qpn::default()) };
        let witness = Witness { record: &record, seen: Vec::new() };
        let mut queue = Queue::new(config, &mut ring, &record, witness).unwrap();
        let entries = [ListEntry::new(0, 1, KEY).unwrap(); 5];
        let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 16));
        let of = |entries| MkeyConfig { layout: Some(Layout::list(entries)), ..MkeyConfig::KEEP };
        for _ in 0..2 {
            queue.request(1).configure_mkey(&mut mkey, &of(&entries[..4])).unwrap();
            let result = queue.request(2).configure_mkey(&mut mkey, &of(&entries));
            let error = ConfigError::TooManyEntries { entries: 5, max: 4 };
            assert_eq!(result, Err(PostError::Config(error)));
        }
        assert_eq!((mkey.length(), queue.producer()), (4, 6));
        // A BSF alone may be too long.
        let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
        let config = SendQueueConfig { max_inline_data: 28, ..SendQueueConfig::new(Qpn::default()) };
        let witness = Witness { record: &record, seen: Vec::new() };
        let mut queue = Queue::new(config, &mut ring, &record, witness).unwrap();
        let nothing = MkeyConfig {
            access: Some(Access::NONE),
            layout: Some(Layout::list(&[])),
            signature: SignatureChange::Set(&BOTH),
            crypto: None,
        };
        let result = queue.request(1).configure_mkey(&mut signature_mkey(), &nothing);
        assert_eq!(result, Err(PostError::Config(ConfigError::BsfDoesNotFit { bytes: 64, max: 32 })));
    }

    #[test]
    fn no_request_is_longer_than_the_device_reads() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
        let mut queue = queue(&mut ring, &record, 0);
        let entries = [ListEntry::new(0, 1, KEY).unwrap(); 53];
        let mut mkey = Mkey::new(MkeyAttributes::plain(KEY, 64));
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
