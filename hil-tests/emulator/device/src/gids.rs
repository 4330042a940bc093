//! GIDs: addresses of this device's port and of other ports.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// The GIDs of the port, and the GIDs that lead to other devices.
#[derive(Debug)]
pub(crate) struct Gids {
    own: Vec<[u8; 16]>,
    others: BTreeSet<[u8; 16]>,
}

impl Gids {
    /// The most GIDs of other devices. A further GID makes the device forget all of these, and they have to
    /// be named again.
    const OTHERS: usize = 1 << 12;

    pub(crate) fn new(gid: [u8; 16]) -> Self {
        Self { own: vec![gid], others: BTreeSet::new() }
    }

    pub(crate) fn set(&mut self, table: Vec<[u8; 16]>) {
        if !table.is_empty() {
            self.own = table;
        }
    }

    pub(crate) fn reach(&mut self, gid: [u8; 16]) {
        if self.others.len() >= Self::OTHERS {
            self.others.clear();
        }
        self.others.insert(gid);
    }

    /// Returns the port's GID at an index of the table, or its first GID if the table has no such entry.
    pub(crate) fn at(&self, index: usize) -> [u8; 16] {
        self.own.get(index).or(self.own.first()).copied().unwrap_or_default()
    }

    /// Returns whether a GID is one of the port's.
    pub(crate) fn is_own(&self, gid: [u8; 16]) -> bool {
        self.own.contains(&gid)
    }

    /// Returns whether a GID leads to another device.
    pub(crate) fn is_others(&self, gid: [u8; 16]) -> bool {
        self.others.contains(&gid)
    }
}
