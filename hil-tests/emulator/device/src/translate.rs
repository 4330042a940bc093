//! From key, address and length to ranges of memory: rights, bounds, layouts, keys under keys.

use crate::faults::{Faults, Unchecked};
use crate::object::Objects;
use crate::object::mkey::{Layout, Mkey};
use crate::refusal::Refusal;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wire::strided::{StridedEntry, StridedHeader};

/// How many keys may stand under one another.
const MAX_DEPTH: u8 = 4;

/// What is about to be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    Atomic,
}

impl Right {
    /// What it takes from the keys under a key whose outer one decides the peer's rights.
    pub(crate) const fn of_owner(self) -> Self {
        match self {
            Self::LocalRead | Self::RemoteRead => Self::LocalRead,
            Self::LocalWrite | Self::RemoteWrite | Self::Atomic => Self::LocalWrite,
        }
    }
}

/// Who asks for a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) pd: u32,
    pub(crate) qpn: u32,
}

/// Finds the mkey of a key and checks everything that does not depend on the range.
pub(crate) fn lookup(
    objects: &Objects,
    asker: Asker,
    key: u32,
    right: Right,
    unchecked: Unchecked,
) -> Result<&Mkey, Refusal> {
    let key = Key::from_raw(key);
    let mkey = objects.mkeys.get(key.index().get()).ok_or(Refusal::UnknownKey)?;
    if mkey.tag != key.tag() {
        return Err(Refusal::KeyTag);
    }
    if mkey.free {
        return Err(Refusal::KeyFree);
    }
    if mkey.pd != asker.pd && !unchecked.domain {
        return Err(Refusal::ProtectionDomain);
    }
    if mkey.qpn.is_some_and(|qpn| qpn != asker.qpn) {
        return Err(Refusal::QueuePair);
    }
    let allowed = match right {
        Right::LocalRead => mkey.access.local_read,
        Right::LocalWrite => mkey.access.local_write,
        Right::RemoteRead => mkey.access.remote_read,
        Right::RemoteWrite => mkey.access.remote_write,
        Right::Atomic => mkey.access.remote_atomic,
    };
    if allowed || unchecked.right { Ok(mkey) } else { Err(Refusal::Right) }
}

/// Walks over memory ranges. The visitor gets address and length of each, in order; no range is empty.
pub(crate) struct Walk<'a, V> {
    pub(crate) objects: &'a Objects,
    pub(crate) asker: Asker,
    /// What it takes from the keys under the key.
    pub(crate) inner_right: Right,
    pub(crate) faults: &'a Faults,
    /// How many more steps are allowed.
    pub(crate) budget: u32,
    pub(crate) visit: V,
}

impl<V: FnMut(u64, u64) -> Result<(), Refusal>> Walk<'_, V> {
    /// Visits `length` memory bytes from `offset` of the mkey's space on.
    pub(crate) fn space(&mut self, mkey: &Mkey, offset: u64, length: u64) -> Result<(), Refusal> {
        self.descend(mkey, offset, length, MAX_DEPTH)
    }

    fn descend(&mut self, mkey: &Mkey, offset: u64, length: u64, depth: u8) -> Result<(), Refusal> {
        let end = offset.checked_add(length).ok_or(Refusal::Bounds)?;
        if end > mkey.length {
            return Err(Refusal::Bounds);
        }
        if length == 0 {
            return Ok(());
        }
        match &mkey.layout {
            Layout::Direct(memory) => {
                self.spend()?;
                let address = memory.checked_add(offset).ok_or(Refusal::Bounds)?;
                (self.visit)(address, length)
            }
            Layout::List(entries) => self.list(entries, offset, end, depth),
            Layout::Equal(log, entries) => self.equal(*log, entries, offset, end, depth),
            Layout::Strided(header, entries) => self.strided(header, entries, offset, end, depth),
        }
    }

    fn spend(&mut self) -> Result<(), Refusal> {
        self.budget = self.budget.checked_sub(1).ok_or(Refusal::Ranges)?;
        Ok(())
    }

    /// Visits a range that another key holds.
    fn inner(&mut self, key: u32, address: u64, length: u64, depth: u8) -> Result<(), Refusal> {
        self.spend()?;
        let depth = depth.checked_sub(1).ok_or(Refusal::Depth)?;
        let objects = self.objects;
        let mkey = lookup(objects, self.asker, key, self.inner_right, self.faults.of_region())?;
        // Assumption: the transform of a key under a key is not applied, so it must have none.
        if mkey.changes_bytes() {
            return Err(Refusal::NestedTransform);
        }
        let offset = address.checked_sub(mkey.start).ok_or(Refusal::Bounds)?;
        self.descend(mkey, offset, length, depth)
    }

    fn list(&mut self, entries: &[Klm], offset: u64, end: u64, depth: u8) -> Result<(), Refusal> {
        let mut position = 0u64;
        for entry in entries {
            let length = u64::from(entry.byte_count.get());
            let next = position.saturating_add(length);
            let (from, to) = (offset.max(position), end.min(next));
            if from < to {
                let address = entry.address.get().checked_add(from - position).ok_or(Refusal::Bounds)?;
                self.inner(entry.mkey.get(), address, to - from, depth)?;
            }
            position = next;
            if position >= end {
                return Ok(());
            }
        }
        Err(Refusal::Bounds)
    }

    fn equal(&mut self, log: u8, entries: &[Klm], from: u64, end: u64, depth: u8) -> Result<(), Refusal> {
        let bytes = 1_u64.checked_shl(log.into()).ok_or(Refusal::Bounds)?;
        let mut position = from;
        while position < end {
            let (number, inside) = (position >> log, position % bytes);
            let length = (bytes - inside).min(end - position);
            let entry = usize::try_from(number).ok().and_then(|number| entries.get(number));
            let entry = entry.ok_or(Refusal::Bounds)?;
            let address = entry.address.get().checked_add(inside).ok_or(Refusal::Bounds)?;
            self.inner(entry.mkey.get(), address, length, depth)?;
            position += length;
        }
        Ok(())
    }

    fn strided(
        &mut self,
        header: &StridedHeader,
        entries: &[StridedEntry],
        offset: u64,
        end: u64,
        depth: u8,
    ) -> Result<(), Refusal> {
        let entries = entries.get(..usize::from(header.num_entries.get())).ok_or(Refusal::Bsf)?;
        let cycle = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.byte_count.get().into()));
        if cycle == 0 || cycle != u64::from(header.bytes_per_cycle.get()) {
            return Err(Refusal::Bounds);
        }
        let repeat = u64::from(header.repeat_count.get());
        for number in offset / cycle.max(1)..repeat {
            let mut position = number.saturating_mul(cycle);
            for entry in entries {
                let length = u64::from(entry.byte_count.get());
                let next = position.saturating_add(length);
                let (from, to) = (offset.max(position), end.min(next));
                if from < to {
                    let stride = if self.faults.stride_ignored { length } else { entry.stride.get().into() };
                    let address = number
                        .checked_mul(stride)
                        .and_then(|skipped| entry.address.get().checked_add(skipped))
                        .and_then(|address| address.checked_add(from - position))
                        .ok_or(Refusal::Bounds)?;
                    self.inner(entry.mkey.get(), address, to - from, depth)?;
                }
                position = next;
            }
            if position >= end {
                return Ok(());
            }
        }
        Err(Refusal::Bounds)
    }
}
