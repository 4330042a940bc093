//! The port of a device: resolves GIDs to MAC addresses, and follows changes of the port.

use super::State;
use crate::fabric::Fabric;
use crate::ground::fault;
use crate::ground::port::{Gid, Port, guid, subnet};
use crate::ground::sysfs;

/// The number of the device's only port.
pub(crate) const NUMBER: u8 = 1;

/// The kernel's numbers for events of a port (`enum ib_event_type`).
const PORT_ACTIVE: u32 = 9;
const PORT_ERROR: u32 = 10;
const GID_CHANGE: u32 = 18;

impl State {
    /// Returns the MAC address for a GID of this device's port, of another device of this process, or of
    /// another process. Returns `None` if no port has the GID. If a gateway runs, the search for a GID of
    /// another process takes up to half a second ([`Fabric::resolve`]).
    pub(crate) fn resolve(&mut self, gid: Gid) -> Option<[u8; 6]> {
        self.find(gid, Fabric::resolve)
    }

    /// Works like [`State::resolve`], but does not wait.
    pub(super) fn resolve_now(&mut self, gid: Gid) -> Option<[u8; 6]> {
        self.find(gid, Fabric::resolve_now)
    }

    fn find(&mut self, gid: Gid, others: fn(&Fabric, Gid) -> Option<[u8; 6]>) -> Option<[u8; 6]> {
        self.port.mac_of(gid).or_else(|| {
            let of_others = self.ports.iter().find_map(|port| port.mac_of(gid));
            let mac = of_others.or_else(|| others(&self.fabric, gid))?;
            self.device.reach(gid);
            Some(mac)
        })
    }

    pub(crate) const fn guid(&self) -> [u8; 8] {
        guid(self.index)
    }

    /// Gives the device the GIDs of its port, and publishes the GIDs of all ports of this process to the
    /// other processes of the fabric.
    pub(super) fn announce(&mut self) {
        let entries = self.ports.iter().flat_map(|port| &port.entries);
        self.fabric.publish(entries.map(|entry| (entry.gid, entry.interface.mac)));
        self.device.set_gids(self.port.entries.iter().map(|entry| entry.gid).collect());
        if self.port.is_infiniband() {
            self.device.set_lids(subnet());
        }
    }

    /// Takes over changes of the port, and reports them to the program by asynchronous events. `now` is the
    /// time in nanoseconds of the monotonic clock.
    pub(crate) fn follow_port(&mut self, now: u64) {
        let news = self.news.as_mut().and_then(|news| news.ports(now));
        if !fault::has_port_changed(&mut self.port_changes) && news.is_none() {
            return;
        }
        self.real_ports = news.unwrap_or_else(|| std::mem::take(&mut self.real_ports));
        let ports: Vec<Port> = self.real_ports.iter().map(fault::altered).collect();
        let Some(port) = ports.get(self.index).filter(|_| ports != self.ports).cloned() else { return };
        self.ports = ports;
        let mut events = Vec::new();
        if port.entries != self.port.entries {
            events.push(GID_CHANGE);
        }
        if port.is_active != self.port.is_active {
            events.push(if port.is_active { PORT_ACTIVE } else { PORT_ERROR });
        }
        self.port = port;
        self.announce();
        if let Some(news) = &self.news {
            // A failure to write the files of `/sys` does no harm: the next program that starts also writes
            // them.
            let _ = sysfs::write(self.fabric.directory(), news.view(), &self.ports);
        }
        events.into_iter().for_each(|kind| self.report_on_device(NUMBER.into(), kind));
    }
}
