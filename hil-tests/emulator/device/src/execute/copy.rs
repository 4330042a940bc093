//! Executes copies from one key to another, which involve no peer (opcode MMO, modifier 1; DEVICE.md, "Copies
//! without a peer").

use crate::data_path::Range;
use crate::device::Device;
use crate::fetch::{self, Operation};
use crate::memory::Memory;
use crate::object::mkey::Mkey;
use crate::object::posted::Posted;
use crate::refusal::{Cause, Reason};
use crate::translate::Right;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::ctrl::FmCeSe;
use mlx5_mkey::wire::data::DataSegment;

impl<M: Memory> Device<M> {
    /// Executes a copy. A device with unordered copies first executes the next request in the ring, if that
    /// request is a copy too.
    pub(super) fn copy_in_turn(
        &mut self,
        qpn: u32,
        pd: u32,
        posted: Posted,
        [from, to]: [&DataSegment; 2],
    ) -> Result<(), Cause> {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return Ok(()) };
        if qp.copied_ahead.take() == Some(posted.counter) {
            return Ok(());
        }
        if let Some((counter, from, to)) = self.next_copy(qpn, posted.end())
            && self.copy(qpn, pd, &from, &to).is_ok()
            && let Some(qp) = self.objects.qps.get_mut(qpn)
        {
            qp.copied_ahead = Some(counter);
        }
        self.copy(qpn, pd, from, to)
    }

    /// Returns the block, the source and the target of the copy that begins at this block. Returns `None` on
    /// a device that keeps the order of copies, for a copy with a strong fence, for any other request, and
    /// for a block that no doorbell has announced.
    fn next_copy(&mut self, qpn: u32, block: u16) -> Option<(u16, DataSegment, DataSegment)> {
        let qp = self.objects.qps.get_mut(qpn).filter(|_| self.profile.unordered_copies)?;
        let rung = qp.sq_producer.wrapping_sub(block);
        if rung == 0 || rung > 1 << qp.attributes.log_sq_blocks {
            return None;
        }
        let transport = qp.attributes.transport;
        let wqe = fetch::fetch(&self.memory, qpn, qp, block, rung).ok()?;
        if wqe.control.flags().fm() == FmCeSe::FM_STRONG {
            return None;
        }
        match wqe.parse(transport).ok()? {
            Operation::Copy { from, to } => Some((block, from, to)),
            _ => None,
        }
    }

    /// Copies the range `from` to the range `to`. If a byte of the target may not be written, the copy is
    /// refused and writes no byte.
    pub(super) fn copy(
        &mut self,
        qpn: u32,
        pd: u32,
        from: &DataSegment,
        to: &DataSegment,
    ) -> Result<(), Cause> {
        let (mut from, target) = (Range::of(from), Range::of(to));
        let limit = self.profile.log_max_copy.map_or(0, |log| 1 << log.min(31));
        let length = from.length.max(target.length);
        if length > limit {
            return Err(Reason::MessageTooLong { length, limit }.into());
        }
        // Assumption: if the lengths of source and target differ, the shorter one counts. libmlx5 writes
        // equal lengths.
        from.length = from.length.min(target.length);
        // Assumption: an mkey that transforms bytes (signature or crypto) cannot be part of a copy.
        for key in [from.key, target.key] {
            if self.objects.mkeys.get(Key::from_raw(key).index().get()).is_some_and(Mkey::changes_bytes) {
                return Err(Reason::BsfInCopy { key }.into());
            }
        }
        let (data, _) = self.path(qpn, pd).gather(&self.memory.host, from, Right::LocalRead)?;
        self.scatter_local(qpn, pd, core::slice::from_ref(to), data).map(drop)
    }
}
