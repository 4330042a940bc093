//! Copies from one key to another without a peer (opcode MMO, modifier 1; DEVICE.md, "Copies without a
//! peer").

use crate::data_path::Range;
use crate::device::Device;
use crate::memory::Memory;
use crate::object::mkey::Mkey;
use crate::refusal::Refusal;
use crate::translate::Right;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::data::DataSegment;

impl<M: Memory> Device<M> {
    /// Copies what `from` names to where `to` is. Nothing is written unless all of it may be.
    pub(super) fn copy(
        &mut self,
        qpn: u32,
        pd: u32,
        from: &DataSegment,
        to: &DataSegment,
    ) -> Result<(), Refusal> {
        let (from, target) = (Range::of(from), Range::of(to));
        // Assumption: both sides name the same length, as they do where libmlx5 writes them.
        if from.length != target.length {
            return Err(Refusal::Malformed);
        }
        let limit = self.profile.log_max_copy.map_or(0, |log| 1 << log.min(31));
        if from.length > limit {
            return Err(Refusal::Length);
        }
        // Assumption: a key that changes its bytes on the way cannot be part of a copy.
        let changes = |range: Range| {
            self.objects.mkeys.get(Key::from_raw(range.key).index().get()).is_some_and(Mkey::changes_bytes)
        };
        if changes(from) || changes(target) {
            return Err(Refusal::Bsf);
        }
        let (data, _) = self.path(qpn, pd).gather(&self.memory, from, Right::LocalRead)?;
        self.scatter_local(qpn, pd, core::slice::from_ref(to), data).map(drop)
    }
}
