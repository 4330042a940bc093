//! Translates key, address and length to ranges of memory: checks rights and bounds, and follows layouts to
//! the keys that their entries name.

use crate::faults::{Faults, Unchecked};
use crate::object::Objects;
use crate::object::mkey::{Layout, Mkey, PageEntry};
use crate::refusal::Reason;
use core::ops::Range;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wire::strided::{StridedEntry, StridedHeader};

/// The largest number of levels at which entries of a key name other keys.
const MAX_DEPTH: u8 = 4;

/// The right that an access to a key needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    Atomic,
}

impl Right {
    /// Returns the right that a key must give if an entry of an indirect mkey names it, and the indirect mkey
    /// alone decides about the rights of the peer.
    pub(crate) const fn of_owner(self) -> Self {
        match self {
            Self::LocalRead | Self::RemoteRead => Self::LocalRead,
            Self::LocalWrite | Self::RemoteWrite | Self::Atomic => Self::LocalWrite,
        }
    }
}

/// The user of a key: a queue pair, and its protection domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) pd: u32,
    pub(crate) qpn: u32,
}

/// Finds the mkey of a key, and makes all checks that do not depend on the range.
pub(crate) fn lookup(
    objects: &Objects,
    asker: Asker,
    key: u32,
    right: Right,
    unchecked: Unchecked,
) -> Result<&Mkey, Reason> {
    let (index, tag) = (Key::from_raw(key).index().get(), Key::from_raw(key).tag());
    let mkey = objects.mkeys.get(index).ok_or(Reason::UnknownKey { key })?;
    if mkey.tag != tag {
        return Err(Reason::KeyTag { key, tag: mkey.tag });
    }
    if mkey.free {
        return Err(Reason::KeyFree { key });
    }
    if mkey.pd != asker.pd && !unchecked.domain {
        return Err(Reason::KeyDomain { key, domain: mkey.pd, asked: asker.pd });
    }
    if let Some(qpn) = mkey.qpn.filter(|qpn| *qpn != asker.qpn) {
        return Err(Reason::KeyBound { key, qpn });
    }
    let (allowed, reason) = match right {
        Right::LocalRead => (mkey.access.local_read, Reason::NoLocalRead { key }),
        Right::LocalWrite => (mkey.access.local_write, Reason::NoLocalWrite { key }),
        Right::RemoteRead => (mkey.access.remote_read, Reason::NoRemoteRead { key }),
        Right::RemoteWrite => (mkey.access.remote_write, Reason::NoRemoteWrite { key }),
        Right::Atomic => (mkey.access.remote_atomic, Reason::NoAtomic { key }),
    };
    if allowed || unchecked.right { Ok(mkey) } else { Err(reason) }
}

/// Walks over memory ranges. The visitor gets the address and length of each range, in order. No range is
/// empty.
pub(crate) struct Walk<'a, V> {
    pub(crate) objects: &'a Objects,
    pub(crate) asker: Asker,
    /// The right that the keys named by the requested key's entries must give.
    pub(crate) inner_right: Right,
    pub(crate) faults: &'a Faults,
    /// The costs that the walk may still have: [`RANGE`] for each range of memory and each key in an entry,
    /// and 1 for each entry that the walk passes over.
    pub(crate) budget: u64,
    /// The most ranges of memory and keys in entries. Only a refusal uses this number: `budget` has the
    /// limit.
    pub(crate) limit: u32,
    pub(crate) visit: V,
}

/// The cost of a range of memory, and of a key in an entry. An entry that the walk passes over costs 1.
pub(crate) const RANGE: u64 = 16;

impl<V: FnMut(u64, u64) -> Result<(), Reason>> Walk<'_, V> {
    /// Visits `length` memory bytes, from `offset` in the space of the mkey on.
    pub(crate) fn space(&mut self, key: u32, mkey: &Mkey, offset: u64, length: u64) -> Result<(), Reason> {
        self.descend(key, mkey, offset, length, MAX_DEPTH)
    }

    fn descend(&mut self, key: u32, mkey: &Mkey, offset: u64, length: u64, depth: u8) -> Result<(), Reason> {
        let end = offset.checked_add(length).ok_or(Reason::AddressOverflow { key })?;
        if end > mkey.length {
            return Err(Reason::BehindEnd { key, end, length: mkey.length });
        }
        if length == 0 {
            return Ok(());
        }
        match &mkey.layout {
            Layout::Direct(memory) => {
                self.spend(RANGE)?;
                let address = memory.checked_add(offset).ok_or(Reason::AddressOverflow { key })?;
                (self.visit)(address, length)
            }
            Layout::Pages(log, pages) => self.pages(key, mkey.start, *log, pages, offset..end),
            Layout::List(entries) => self.list(key, entries, offset, end, depth),
            Layout::Equal(log, entries) => self.equal(key, *log, entries, offset..end, depth),
            Layout::Strided(header, entries) => self.strided(key, (header, entries), offset, end, depth),
        }
    }

    fn spend(&mut self, cost: u64) -> Result<(), Reason> {
        self.budget = self.budget.checked_sub(cost).ok_or(Reason::TooManyRanges { limit: self.limit })?;
        Ok(())
    }

    /// Visits a range of a key that an entry of the requested key names.
    fn inner(&mut self, key: u32, address: u64, length: u64, depth: u8) -> Result<(), Reason> {
        self.spend(RANGE)?;
        let depth = depth.checked_sub(1).ok_or(Reason::TooDeep { key })?;
        let objects = self.objects;
        let mkey = lookup(objects, self.asker, key, self.inner_right, self.faults.of_region())?;
        // Assumption: the device does not apply the transform of a key in an entry. Such a key is therefore
        // refused if it has a transform.
        if mkey.changes_bytes() {
            return Err(Reason::NestedBsf { key });
        }
        let before = Reason::BeforeStart { key, address, start: mkey.start };
        let offset = address.checked_sub(mkey.start).ok_or(before)?;
        self.descend(key, mkey, offset, length, depth)
    }

    /// Visits a range of a region on pages, whose space begins at `start`.
    fn pages(
        &mut self,
        key: u32,
        start: u64,
        log: u8,
        pages: &[PageEntry],
        range: Range<u64>,
    ) -> Result<(), Reason> {
        let overflow = Reason::AddressOverflow { key };
        let bytes = 1_u64.checked_shl(log.into()).ok_or(overflow)?;
        let writes = self.inner_right.of_owner() == Right::LocalWrite;
        let first = start & (bytes - 1);
        let (mut at, end) =
            (first.checked_add(range.start).ok_or(overflow)?, first.checked_add(range.end).ok_or(overflow)?);
        let behind = Reason::BehindEntries { key, end, mapped: bytes.saturating_mul(pages.len() as u64) };
        while at < end {
            self.spend(RANGE)?;
            let (number, inside) = (at >> log, at & (bytes - 1));
            let length = (bytes - inside).min(end - at);
            let page = usize::try_from(number).ok().and_then(|number| pages.get(number)).ok_or(behind)?;
            if !page.allows(writes) {
                return Err(Reason::PageRight { key, page: number });
            }
            (self.visit)(page.address(bytes).checked_add(inside).ok_or(overflow)?, length)?;
            at += length;
        }
        Ok(())
    }

    fn list(&mut self, key: u32, entries: &[Klm], offset: u64, end: u64, depth: u8) -> Result<(), Reason> {
        let overflow = Reason::AddressOverflow { key };
        let mut position = 0u64;
        for entry in entries {
            let length = u64::from(entry.byte_count.get());
            let next = position.saturating_add(length);
            let (from, to) = (offset.max(position), end.min(next));
            if from < to {
                let address = entry.address.get().checked_add(from - position).ok_or(overflow)?;
                self.inner(entry.mkey.get(), address, to - from, depth)?;
            } else {
                self.spend(1)?;
            }
            position = next;
            if position >= end {
                return Ok(());
            }
        }
        Err(Reason::BehindEntries { key, end, mapped: position })
    }

    fn equal(
        &mut self,
        key: u32,
        log: u8,
        entries: &[Klm],
        range: Range<u64>,
        depth: u8,
    ) -> Result<(), Reason> {
        let overflow = Reason::AddressOverflow { key };
        let bytes = 1_u64.checked_shl(log.into()).ok_or(overflow)?;
        let Range { start: mut position, end } = range;
        let behind = Reason::BehindEntries { key, end, mapped: bytes.saturating_mul(entries.len() as u64) };
        while position < end {
            let (number, inside) = (position >> log, position % bytes);
            let length = (bytes - inside).min(end - position);
            let entry = usize::try_from(number).ok().and_then(|number| entries.get(number));
            let entry = entry.ok_or(behind)?;
            let address = entry.address.get().checked_add(inside).ok_or(overflow)?;
            self.inner(entry.mkey.get(), address, length, depth)?;
            position += length;
        }
        Ok(())
    }

    fn strided(
        &mut self,
        key: u32,
        (header, entries): (&StridedHeader, &[StridedEntry]),
        offset: u64,
        end: u64,
        depth: u8,
    ) -> Result<(), Reason> {
        let missing = Reason::StridedEntriesMissing { key };
        let entries = entries.get(..usize::from(header.num_entries.get())).ok_or(missing)?;
        self.spend(entries.len() as u64)?;
        let cycle = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.byte_count.get().into()));
        // Assumption: the lengths of the entries add up to the bytes of a cycle. The device ignores the
        // number of bytes in the header.
        if cycle == 0 {
            return Err(Reason::BehindEntries { key, end, mapped: 0 });
        }
        let repeat = u64::from(header.repeat_count.get());
        for number in offset / cycle..repeat {
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
                        .ok_or(Reason::AddressOverflow { key })?;
                    self.inner(entry.mkey.get(), address, to - from, depth)?;
                } else {
                    self.spend(1)?;
                }
                position = next;
            }
            if position >= end {
                return Ok(());
            }
        }
        Err(Reason::BehindEntries { key, end, mapped: cycle.saturating_mul(repeat) })
    }
}
