//! The send queue: posts requests, publishes them, and takes their completions.

use super::doorbell::{Doorbell, DoorbellRecord};
use super::in_flight::{InFlight, InFlightTable, RequestKind};
use super::ring::Ring;
use super::{MAX_SLOTS, barrier};
use crate::error::{PostError, QueueError};
use crate::mkey::{Mkey, MkeyConfig};
use crate::types::{Key, Qpn};
use crate::wire::ctrl::{ControlSegment, FmCeSe, Opcode, OpcodeWord, QpnDs};
use crate::wire::{MAX_WQE_OCTOWORDS, OCTOWORD_BYTES, WQEBB_BYTES, Wqebb};
use crate::wqe::data_path::{DataPath, Operands};
use crate::wqe::{OCTOWORDS_PER_BLOCK, Octoword, Payload, Remote, Sge, Sink, set_psv, umr};
use zerocopy::big_endian::U32;
use zerocopy::transmute;

/// Bytes before the translation entries of a UMR.
const UMR_HEAD_BYTES: usize = 2 * WQEBB_BYTES;

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
    /// Most scatter entries of a request (`max_send_sge`).
    pub max_sge: usize,
    /// Most requests between post and completion. Not above the completion queue's size, and it cannot overrun.
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

/// A send queue over the caller's ring. `N` is the most blocks that it can keep track of.
///
/// Requests are posted through [`SendQueue::request`] and reach the device with [`SendQueue::ring_doorbell`]. Each post
/// either happens as a whole or changes nothing.
pub struct SendQueue<'r, D, const N: usize> {
    ring: Ring<'r, Wqebb>,
    record: &'r DoorbellRecord,
    doorbell: D,
    in_flight: InFlightTable<N>,
    qpn: Qpn,
    max_inline_data: u32,
    max_sge: usize,
    max_requests: u32,
    signal_all: bool,
    /// Blocks posted, published and retired, all counted from the queue pair's start.
    producer: u32,
    published: u32,
    consumer: u32,
    /// Requests posted and retired.
    posted: u32,
    retired: u32,
    /// Fence that the next request gets if it asks for none.
    next_fence: u8,
    /// What the next doorbell says: the start of the last request.
    last_control: [u8; 8],
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
        Ok(Self {
            in_flight: InFlightTable::new(ring.len()),
            ring,
            record,
            doorbell,
            qpn,
            max_inline_data,
            // Control, remote address and operands take three octowords.
            max_sge: max_sge.min(usize::from(MAX_WQE_OCTOWORDS) - 3),
            max_requests,
            signal_all,
            producer: config.first_block,
            published: config.first_block,
            consumer: config.first_block,
            posted: 0,
            retired: 0,
            next_fence: if config.small_fence { FmCeSe::FM_SMALL } else { FmCeSe::FM_NONE },
            last_control: [0; 8],
        })
    }

    /// Begins a request; `id` is what its completion will carry (`wr_id`). Nothing happens until it is given its work.
    pub const fn request(&mut self, id: u64) -> Request<'_, 'r, D, N> {
        Request { queue: self, id, fence: false, signaled: false, solicited: false }
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Returns how many blocks of 64 bytes are free.
    pub fn free_blocks(&self) -> u32 {
        self.ring.len() - self.producer.wrapping_sub(self.consumer)
    }

    /// Returns how many requests have been posted and not retired.
    pub const fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.retired)
    }

    /// Returns the count of blocks posted since the queue pair's start.
    pub const fn producer(&self) -> u32 {
        self.producer
    }

    /// Returns the fence mode that the next request gets if it asks for none.
    pub const fn next_fence(&self) -> u8 {
        self.next_fence
    }

    /// Returns the doorbell record.
    pub const fn record(&self) -> &'r DoorbellRecord {
        self.record
    }

    /// Exchanges the doorbell for another that does the same, behind a trait object say.
    pub fn map_doorbell<E: Doorbell>(self, map: impl FnOnce(D) -> E) -> SendQueue<'r, E, N> {
        let Self { ring, record, doorbell, in_flight, qpn, .. } = self;
        SendQueue {
            ring,
            record,
            doorbell: map(doorbell),
            in_flight,
            qpn,
            max_inline_data: self.max_inline_data,
            max_sge: self.max_sge,
            max_requests: self.max_requests,
            signal_all: self.signal_all,
            producer: self.producer,
            published: self.published,
            consumer: self.consumer,
            posted: self.posted,
            retired: self.retired,
            next_fence: self.next_fence,
            last_control: self.last_control,
        }
    }

    /// Copies a block out of the ring, for [`crate::inspect`]; blocks are counted as [`SendQueue::producer`] counts them.
    pub fn block(&self, index: u32) -> Wqebb {
        self.ring.read(index)
    }

    /// Returns the doorbell.
    pub const fn doorbell(&self) -> &D {
        &self.doorbell
    }

    /// Publishes everything posted since the last call. Does nothing where there is nothing new.
    #[inline]
    pub fn ring_doorbell(&mut self) {
        if self.published == self.producer {
            return;
        }
        self.published = self.producer;
        barrier::blocks_before_record();
        self.record.set_send(self.producer & 0xffff);
        barrier::record_before_doorbell();
        self.doorbell.ring(self.last_control);
        barrier::flush_doorbell();
    }

    /// Takes a completion of this queue: retires the request that begins at block `counter` and all before it, which were
    /// not signalled, and returns its identity; `None` where no outstanding request begins there.
    #[inline]
    pub fn complete(&mut self, counter: u16) -> Option<(u64, RequestKind)> {
        let (index, request) = self.find(counter)?;
        let InFlight { id, number, blocks, kind } = *request;
        self.consumer = index.wrapping_add(u32::from(blocks));
        self.retired = number.wrapping_add(1);
        Some((id, kind))
    }

    /// Finds the outstanding request that begins at block `counter` (modulo 2^16).
    #[inline(always)]
    fn find(&self, counter: u16) -> Option<(u32, &InFlight)> {
        let distance = counter.wrapping_sub(self.consumer as u16);
        if u32::from(distance) >= self.published.wrapping_sub(self.consumer) {
            return None;
        }
        let index = self.consumer.wrapping_add(u32::from(distance));
        let request = self.in_flight.get(index)?;
        // A slot inside a request, or one that an older request began at, holds a number that has been retired.
        let pending = request.number.wrapping_sub(self.retired) < self.outstanding();
        (request.blocks > 0 && pending).then_some((index, request))
    }

    /// Turns every unexecuted request named `id` into a NOP, which completes as the request would have, and returns how many
    /// there were (`mlx5dv_qp_cancel_posted_send_wrs`). A configuration counts for itself and for each of its SET_PSVs.
    ///
    /// Only for a queue pair in state SQD: `hw_counter` is the block at which the device will go on, as QUERY_QP says
    /// (`hw_sq_wqebb_counter`). An mkey whose configuration was cancelled should be told to [`Mkey::forget`].
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`] where no outstanding request begins at `hw_counter`, and it is not the queue's end.
    pub fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        let mut index = if hw_counter == self.published as u16 {
            self.published
        } else {
            self.find(hw_counter).ok_or(PostError::NotOutstanding { counter: hw_counter })?.0
        };
        let mut cancelled = 0;
        // To the end of what was posted: what is not published yet must not go out either.
        while index != self.producer {
            let Some(request) = self.in_flight.get(index) else { break };
            let blocks = request.blocks;
            if request.id == id {
                let nop = OpcodeWord::new().with_opcode(Opcode::NOP.0).with_wqe_index(index as u16);
                self.ring.write_word(index, nop.into_bits().to_be_bytes());
                cancelled += 1;
            }
            index = index.wrapping_add(u32::from(blocks));
        }
        // The device goes on reading when the queue pair leaves SQD; it must not see the old words then.
        barrier::blocks_before_record();
        Ok(cancelled)
    }

    /// Refuses what does not fit, before anything is written.
    #[inline(always)]
    fn check_room(&self, blocks: u32, requests: u32) -> Result<(), PostError> {
        let free = self.free_blocks();
        if blocks > free {
            return Err(PostError::RingFull { needed: blocks, free });
        }
        let free = self.max_requests.saturating_sub(self.outstanding());
        if requests > free {
            return Err(PostError::TooManyRequests { needed: requests, free });
        }
        Ok(())
    }

    /// Writes one work request, for which [`SendQueue::check_room`] has found room.
    #[inline(always)]
    fn push(&mut self, request: Wqe, encode: impl FnOnce(ControlSegment, &mut Cursor<'_, 'r>)) {
        let Wqe { id, kind, opcode, octowords, imm, fence, completion, solicited } = request;
        let fm = if fence { FmCeSe::FM_FENCE } else { self.next_fence };
        let ce = if completion { FmCeSe::CE_ALWAYS } else { FmCeSe::CE_ERROR_ONLY };
        let control = ControlSegment {
            opmod_idx_opcode: U32::new(
                OpcodeWord::new().with_opcode(opcode.0).with_wqe_index(self.producer as u16).into_bits(),
            ),
            // At most MAX_WQE_OCTOWORDS, by the limits of the queue.
            qpn_ds: U32::new(QpnDs::new().with_ds(octowords as u8).with_qpn(self.qpn.get()).into_bits()),
            fm_ce_se: FmCeSe::new().with_fm(fm).with_ce(ce).with_solicited(solicited).into_bits(),
            imm: U32::new(imm),
            ..ControlSegment::default()
        };
        let blocks = blocks_of(octowords);
        encode(control, &mut Cursor { ring: &mut self.ring, block: self.producer, at: 0 });
        self.in_flight.set(self.producer, InFlight { id, number: self.posted, blocks: blocks as u8, kind });
        self.last_control = transmute!([control.opmod_idx_opcode, control.qpn_ds]);
        // What comes after a change of an mkey must not overtake it (R17).
        self.next_fence = match opcode {
            Opcode::UMR | Opcode::SET_PSV => FmCeSe::FM_SMALL,
            _ => FmCeSe::FM_NONE,
        };
        self.posted = self.posted.wrapping_add(1);
        self.producer = self.producer.wrapping_add(blocks);
    }
}

crate::fmt::format_counters!(['r, D, const N: usize] SendQueue ['r, D, N] {
    qpn, producer, published, consumer, posted, retired
});

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
    octowords: usize,
    imm: u32,
    fence: bool,
    completion: bool,
    solicited: bool,
}

/// Where the next octoword goes.
struct Cursor<'q, 'r> {
    ring: &'q mut Ring<'r, Wqebb>,
    block: u32,
    at: usize,
}

impl Sink for Cursor<'_, '_> {
    #[inline(always)]
    fn put(&mut self, octoword: Octoword) {
        self.ring.write_octoword(self.block, self.at, octoword);
        self.at += 1;
        if self.at == OCTOWORDS_PER_BLOCK {
            self.at = 0;
            self.block = self.block.wrapping_add(1);
        }
    }
}

/// A request that waits for its work. Flags first, then one method that posts.
#[must_use = "nothing is posted until the request is given its work"]
pub struct Request<'q, 'r, D, const N: usize> {
    queue: &'q mut SendQueue<'r, D, N>,
    id: u64,
    fence: bool,
    signaled: bool,
    solicited: bool,
}

crate::fmt::format_counters!(['q, 'r, D, const N: usize] Request ['q, 'r, D, N] { id, fence, signaled, solicited });

impl<D: Doorbell, const N: usize> Request<'_, '_, D, N> {
    /// Waits until reads and atomics posted before are done (`IBV_SEND_FENCE`).
    pub const fn fenced(mut self) -> Self {
        self.fence = true;
        self
    }

    /// Gets a completion of its own (`IBV_SEND_SIGNALED`).
    pub const fn signaled(mut self) -> Self {
        self.signaled = true;
        self
    }

    /// Raises a solicited event at the receiver (`IBV_SEND_SOLICITED`).
    pub const fn solicited(mut self) -> Self {
        self.solicited = true;
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
    #[inline]
    pub fn configure_mkey(self, mkey: &mut Mkey, config: &MkeyConfig<'_>) -> Result<(), PostError> {
        let Self { queue, id, fence, signaled, solicited } = self;
        let plan = mkey.plan(config, (queue.max_inline_data + INLINE_HEADER_BYTES) as usize)?;
        let octowords = umr::octowords(&plan);
        let psvs = plan.psv_requests();
        queue.check_room(blocks_of(octowords) + psvs * set_psv::BLOCKS, 1 + psvs)?;
        let signaled = signaled || queue.signal_all;
        let kind = if psvs == 0 { RequestKind::MkeyConfigure } else { RequestKind::MkeyConfigurePart };
        let (opcode, imm) = (Opcode::UMR, plan.key.get());
        let completion = signaled && psvs == 0;
        queue.push(
            Wqe { id, kind, opcode, octowords, imm, fence, completion, solicited },
            |control, cursor| {
                umr::configure(&plan, control, cursor);
            },
        );
        if let Some(block) = plan.set_psvs {
            let wire = block.wire_domain();
            let memory = block.memory_domain().map(|domain| (domain, plan.memory_psv, wire.is_none()));
            for (domain, psv, last) in
                memory.into_iter().chain(wire.map(|domain| (domain, plan.wire_psv, true)))
            {
                let (opcode, octowords, imm) = (Opcode::SET_PSV, set_psv::OCTOWORDS, 0);
                let kind = if last { RequestKind::MkeyConfigure } else { RequestKind::MkeyConfigurePart };
                let completion = signaled && (last || queue.signal_all);
                let request = Wqe { id, kind, opcode, octowords, imm, fence, completion, solicited };
                queue.push(request, |control, cursor| {
                    set_psv::set_psv(psv, domain, control, cursor);
                });
            }
        }
        mkey.apply(config);
        Ok(())
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
        let Self { queue, id, fence, signaled, solicited } = self;
        let octowords = umr::INVALIDATE_OCTOWORDS;
        queue.check_room(blocks_of(octowords), 1)?;
        let completion = signaled || queue.signal_all;
        let (kind, opcode, imm) = (RequestKind::LocalInvalidate, Opcode::UMR, key.get());
        queue.push(
            Wqe { id, kind, opcode, octowords, imm, fence, completion, solicited },
            |control, cursor| {
                umr::invalidate(control, cursor);
            },
        );
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
        let Self { queue, id, fence, signaled, solicited } = self;
        match request.payload {
            Payload::Sges(sges) if sges.len() > queue.max_sge => {
                return Err(PostError::TooManySges { sges: sges.len(), max: queue.max_sge });
            }
            Payload::Inline(bytes) if bytes.len() > queue.max_inline_data as usize => {
                let (length, max) = (bytes.len(), queue.max_inline_data as usize);
                return Err(PostError::InlineTooLong { length, max });
            }
            _ => {}
        }
        let octowords = request.octowords();
        queue.check_room(blocks_of(octowords), 1)?;
        let completion = signaled || queue.signal_all;
        let DataPath { opcode, imm, .. } = request;
        queue.push(
            Wqe { id, kind, opcode, octowords, imm, fence, completion, solicited },
            |control, cursor| {
                request.encode(control, cursor);
            },
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ConfigError;
    use crate::mkey::{
        Access, BlockSignature, Domain, Layout, ListEntry, MkeyAttributes, Signature, SignatureAttributes,
        SignatureChange,
    };
    use crate::types::{BlockSize, PsvIndex, Seed};
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

    fn both_domains() -> SignatureChange {
        let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
        SignatureChange::Set(BlockSignature::both(domain, domain))
    }

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
        let config = MkeyConfig { signature: both_domains(), ..MkeyConfig::KEEP };
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
        let config = MkeyConfig { signature: both_domains(), ..MkeyConfig::KEEP };
        let result = queue.request(1).configure_mkey(&mut mkey, &config);
        assert_eq!(result, Err(PostError::TooManyRequests { needed: 3, free: 2 }));
        queue.request(1).nop().unwrap();
        queue.request(2).nop().unwrap();
        assert_eq!(queue.request(3).nop(), Err(PostError::TooManyRequests { needed: 1, free: 0 }));
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
        queue.request(3).nop().unwrap();
        assert_eq!(queue.cancel(3, 6), Ok(1), "posted, but not published");
        drop(queue);
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
        let config = MkeyConfig { signature: both_domains(), ..MkeyConfig::KEEP };
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
        queue.request(2).rdma_write(Remote { address: 0, rkey: KEY }, Payload::Inline(&[1; 828])).unwrap();
        drop(queue);
        assert_eq!(ring[0].0[7], 60);
        assert_eq!(ring[15].0[7], 2 + 52);
    }
}
