//! GIDs of this device's port and of ports of other devices.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// The GIDs of the port, and the GIDs that lead to other devices.
#[derive(Debug)]
pub(crate) struct Gids {
    own: Vec<[u8; 16]>,
    others: BTreeSet<[u8; 16]>,
    /// The GIDs of an InfiniBand subnet's ports, by LID: the first port has the LID 1. If the list is empty,
    /// the only port is this device's, with the LID 1.
    lids: Vec<[u8; 16]>,
    /// Whether all GIDs that are neither in `own` nor in `others` lead to other devices.
    all: bool,
}

impl Gids {
    /// The largest number of known GIDs of other devices. One more GID makes the device forget all others,
    /// and [`crate::Device::reach`] has to name them again.
    const OTHERS: usize = 1 << 12;

    pub(crate) fn new(gid: [u8; 16]) -> Self {
        Self { own: vec![gid], others: BTreeSet::new(), lids: Vec::new(), all: false }
    }

    pub(crate) fn set(&mut self, table: Vec<[u8; 16]>) {
        if !table.is_empty() {
            self.own = table;
        }
    }

    /// Sets an entry of the table. A GID of zeros empties the entry.
    pub(crate) fn set_at(&mut self, index: usize, gid: [u8; 16]) {
        if index >= self.own.len() {
            self.own.resize(index + 1, [0; 16]);
        }
        if let Some(entry) = self.own.get_mut(index) {
            *entry = gid;
        }
    }

    pub(crate) fn reach(&mut self, gid: [u8; 16]) {
        if self.others.len() >= Self::OTHERS {
            self.others.clear();
        }
        self.others.insert(gid);
    }

    /// Sets the GIDs of the subnet's ports, from LID 1 on. All of them can be reached.
    pub(crate) fn set_lids(&mut self, ports: Vec<[u8; 16]>) {
        self.others.extend(ports.iter().filter(|gid| !self.own.contains(gid)));
        self.lids = ports;
    }

    /// Returns the GID of the port with this LID, or zeros if there is none.
    pub(crate) fn of_lid(&self, lid: u16) -> [u8; 16] {
        let ports = if self.lids.is_empty() { self.own.get(..1) } else { Some(self.lids.as_slice()) };
        let port = usize::from(lid).checked_sub(1).and_then(|index| ports?.get(index));
        port.copied().unwrap_or_default()
    }

    /// Makes all GIDs that are not the port's own lead to other devices, from now on.
    pub(crate) const fn reach_all(&mut self) {
        self.all = true;
    }

    /// Returns the port's GIDs.
    pub(crate) fn own(&self) -> impl Iterator<Item = [u8; 16]> {
        self.own.iter().copied().filter(|gid| *gid != [0; 16])
    }

    /// Returns the port's GID at an index of the table, or its first GID if the table has no entry there.
    pub(crate) fn at(&self, index: usize) -> [u8; 16] {
        self.own.get(index).or(self.own.first()).copied().unwrap_or_default()
    }

    /// Returns whether a GID is one of the port's.
    pub(crate) fn is_own(&self, gid: [u8; 16]) -> bool {
        gid != [0; 16] && self.own.contains(&gid)
    }

    /// Returns whether a GID leads to another device.
    pub(crate) fn is_others(&self, gid: [u8; 16]) -> bool {
        self.all && !self.is_own(gid) || self.others.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lid_leads_to_a_port() {
        let mut gids = Gids::new([1; 16]);
        assert_eq!([0, 1, 2].map(|lid| gids.of_lid(lid)), [[0; 16], [1; 16], [0; 16]]);
        gids.set_lids(vec![[2; 16], [1; 16]]);
        assert_eq!([0, 1, 2, 3].map(|lid| gids.of_lid(lid)), [[0; 16], [2; 16], [1; 16], [0; 16]]);
        assert!(gids.is_own(gids.of_lid(2)) && gids.is_others(gids.of_lid(1)));
    }

    #[test]
    fn entries_are_set_and_emptied() {
        let (first, other) = ([1; 16], [2; 16]);
        let mut gids = Gids::new(first);
        gids.set_at(3, other);
        assert!(gids.is_own(first) && gids.is_own(other) && !gids.is_own([0; 16]));
        assert_eq!((gids.at(3), gids.at(1)), (other, [0; 16]));
        gids.set_at(0, [0; 16]);
        assert!(!gids.is_own(first));
    }

    #[test]
    fn named_gids_lead_to_others_and_then_all_do() {
        let mut gids = Gids::new([1; 16]);
        gids.reach([2; 16]);
        gids.reach([3; 16]);
        let are_others = |gids: &Gids| [1, 2, 3, 4].map(|byte| gids.is_others([byte; 16]));
        assert_eq!(are_others(&gids), [false, true, true, false]);
        gids.reach_all();
        assert_eq!(are_others(&gids), [false, true, true, true]);
        gids.set_at(2, [5; 16]);
        assert_eq!(gids.own().collect::<Vec<_>>(), [[1; 16], [5; 16]]);
    }
}
