//! Doorbells: pages of registers in BAR 0 (UAR, user access region). Writes to them announce work requests
//! and arm queues.

use crate::device::Device;
use crate::interface_state::{Armed, BlueFlame};
use crate::memory::Memory;
use crate::object::qp::QpAttributes;
use mlx5_mkey::wire::MAX_WQE_OCTOWORDS;
use mlx5_mkey::wire::ctrl::{ControlSegment, FmCeSe, Opcode};
use zerocopy::FromBytes;

/// The number of bytes of a UAR page.
const PAGE: u64 = 4096;

/// Offsets of registers in a UAR page (`MLX5_CQ_DOORBELL`, `MLX5_EQ_DOORBEL_OFFSET` and `MLX5_BF_OFFSET` of
/// Linux).
mod register {
    pub(super) const ARM_CQ: u64 = 0x20;
    pub(super) const ARM_EQ: u64 = 0x40;
    pub(super) const TAKE_EQ: u64 = 0x48;
    pub(super) const SEND: core::ops::Range<u64> = 0x800..0x1000;
    /// The doorbell of send queues without a doorbell record (`DB_BF_DBR_LESS_BUF_OFFSET` of rdma-core's
    /// tests). Assumption: such queues also take the doorbells of other send queues.
    pub(super) const SEND_ALONE: u64 = 0x600;
}

/// The number of bytes of a buffer of a send doorbell. Drivers write to two buffers in turn.
const BUFFER: u64 = 256;

/// The number of bytes of a block. With BlueFlame, a block arrives in eight writes.
const BLOCK: usize = 64;

/// A flag beside the consumer index of a completion queue: only a solicited entry raises an event.
const SOLICITED: u32 = 1 << 24;

/// Returns the number of the queue pair in a send doorbell of two words, and the number of the block after
/// the requests that the doorbell announces if the queue pair has no doorbell record.
///
/// Assumption: software writes to the doorbell either the first 8 bytes of the last request (rdma-core's
/// tests), or the number of the block after it, with a size of 0 (NVSHMEM `ibgda_ring_db`).
pub fn announced(first: u32, second: u32) -> (u32, u16) {
    let blocks = u16::from(second as u8 & MAX_WQE_OCTOWORDS).div_ceil(4);
    (second >> 8, ((first >> 8) as u16).wrapping_add(blocks))
}

impl<M: Memory> Device<M> {
    /// Takes a write to a UAR page. `offset` counts from the beginning of BAR 0. Writes to pages that were
    /// not allocated are ignored.
    ///
    /// Doorbells of a queue work only in the page that the command of its creation named. A user who has
    /// another page reaches none of the queue's doorbells.
    ///
    /// The first 8 bytes of a work request are its doorbell: the device executes the requests in the ring. If
    /// this work request is the next in the ring, and is a NOP without completion, the device first waits
    /// for the other 56 bytes of the block, in writes of 8 bytes. It then executes this block instead of the
    /// block in the ring (BlueFlame). A driver finds out in this way whether the bus combines writes
    /// (`mlx5_ib_test_wc` and `mlx5_core_test_wc` of Linux). The device waits even if the doorbell record
    /// already announces further requests of a fast host. If the other bytes do not arrive before the next
    /// doorbell or before [`Device::settle_doorbells`], the device executes the requests in the ring.
    pub fn write_uar(&mut self, offset: u64, bytes: &[u8]) {
        let page = u32::try_from(offset / PAGE).unwrap_or(u32::MAX);
        if !self.interface.uars.contains(&page) {
            return;
        }
        if let Ok(part) = <[u8; 8]>::try_from(bytes)
            && self.continue_block(offset, part)
        {
            return;
        }
        let word =
            |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes);
        match (offset % PAGE, word(0), word(4)) {
            (register::ARM_CQ, Some(first), Some(number)) => self.arm_cq(page, number & 0x00ff_ffff, first),
            (register::ARM_EQ, Some(first), _) => self.ring_event_queue(page, first >> 24, first, true),
            (register::TAKE_EQ, Some(first), _) => self.ring_event_queue(page, first >> 24, first, false),
            (at, Some(first), Some(second))
                if (at == register::SEND_ALONE || register::SEND.contains(&at))
                    && at.is_multiple_of(BUFFER)
                    && self.interface.rings(page, second >> 8)
                    && self.objects.qps.get(second >> 8).is_some_and(|qp| qp.doorbell_alone) =>
            {
                self.settle_doorbells();
                let (number, end) = announced(first, second);
                self.announce(number, end);
            }
            (at, Some(first), Some(second))
                if register::SEND.contains(&at)
                    && at.is_multiple_of(BUFFER)
                    && self.interface.rings(page, second >> 8) =>
            {
                self.settle_doorbells();
                let mut block = [0; BLOCK];
                block.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                let length = bytes.len().min(BLOCK);
                let next = offset.wrapping_add(length as u64);
                self.interface.blue_flame = Some(BlueFlame { next, bytes: block, length });
                if length == BLOCK || !self.rings_nothing(second >> 8, (first >> 8) as u16) {
                    self.settle_doorbells();
                }
            }
            _ => {}
        }
    }

    /// Executes the requests of a queue pair without a doorbell record, up to the block `producer`. Ignores a
    /// doorbell that announces no new request, or more than the ring has.
    fn announce(&mut self, number: u32, producer: u16) {
        let Some(qp) = self.objects.qps.get(number) else { return };
        let announced = u32::from(producer.wrapping_sub(qp.next_block()));
        if (1..=1 << qp.attributes.log_sq_blocks).contains(&announced) {
            let _ = self.doorbell_at(number, producer);
        }
    }

    /// Returns whether the next announced request of a send queue has this index, and is a NOP without
    /// completion.
    fn rings_nothing(&self, number: u32, index: u16) -> bool {
        let of_pair = self.objects.qps.get(number).map(|qp| {
            let QpAttributes { sq, log_sq_blocks, doorbell_record, .. } = qp.attributes;
            (sq, log_sq_blocks, doorbell_record, qp.next_block())
        });
        let of_packets = || {
            let queue = self.interface.packets.get(&number)?;
            Some((queue.ring, queue.log_blocks, queue.record, queue.next))
        };
        let Some((ring, log_blocks, record, next)) = of_pair.or_else(of_packets) else { return false };
        let (at, mut record, mut block) = (record.wrapping_add(4), [0; 4], [0; BLOCK]);
        let slot = u64::from(next & ((1 << log_blocks) - 1)) * BLOCK as u64;
        let is_read = self.memory.read(at, &mut record).is_ok()
            && self.memory.read(ring.wrapping_add(slot), &mut block).is_ok();
        let announced = (u32::from_be_bytes(record) as u16).wrapping_sub(next);
        let is_next = index == next && (1..=1 << log_blocks).contains(&u32::from(announced));
        let Ok((control, _)) = ControlSegment::read_from_prefix(&block) else { return false };
        let is_nop = Opcode(control.opcode_word().opcode()) == Opcode::NOP;
        is_read && is_next && is_nop && control.flags().ce() < FmCeSe::CE_ALWAYS
    }

    /// Returns whether a doorbell waits for the rest of its block.
    pub const fn has_open_doorbell(&self) -> bool {
        self.interface.blue_flame.is_some()
    }

    /// Executes the doorbell whose block is not yet executed, if there is one: from its block if all 64 bytes
    /// have arrived, and otherwise from the ring.
    pub fn settle_doorbells(&mut self) {
        let Some(BlueFlame { bytes, length, .. }) = self.interface.blue_flame.take() else { return };
        // The second word of a control segment names the queue.
        let [_, _, _, _, a, b, c, _, ..] = bytes;
        let number = u32::from_be_bytes([0, a, b, c]);
        if length == BLOCK {
            // The device ignores a block that is not the next one of its queue, or whose queue is unknown.
            let _ = self.blue_flame(number, &[bytes]);
        }
        if !self.send_packets(number, (length == BLOCK).then_some(bytes)) {
            // A doorbell for an unknown queue is ignored.
            let _ = self.doorbell(number);
        }
    }

    /// Adds bytes to the incomplete block of a doorbell, if they continue the block. Returns whether they do.
    fn continue_block(&mut self, offset: u64, part: [u8; 8]) -> bool {
        let Some(coming) = self.interface.blue_flame.as_mut().filter(|coming| coming.next == offset) else {
            return false;
        };
        if let Some(place) = coming.bytes.get_mut(coming.length..coming.length + part.len()) {
            place.copy_from_slice(&part);
        }
        coming.length += part.len();
        coming.next = offset.wrapping_add(part.len() as u64);
        if coming.length >= BLOCK {
            self.settle_doorbells();
        }
        true
    }

    fn arm_cq(&mut self, page: u32, number: u32, word: u32) {
        if let Some(notify) = self.interface.cqs.get_mut(&number).filter(|notify| notify.uar == page) {
            notify.armed = Some(Armed { consumer: word & 0x00ff_ffff, solicited: word & SOLICITED != 0 });
        }
    }
}
