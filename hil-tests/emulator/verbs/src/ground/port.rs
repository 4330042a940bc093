//! The device's port and its table of addresses (GIDs). The table has the entries that Linux makes for a RoCE
//! port.
//!
//! The first interface gives the port its MAC address. The default GIDs are the link-local ones of this
//! address. All IP addresses of the first interface follow, then the addresses of the other interfaces. Linux
//! appends the addresses of VLANs and bridges above a port in the same way. Each address has two entries, for
//! RoCE v1 and v2 (kernel `drivers/infiniband/core/roce_gid_mgmt.c`, `cache.c`).

use crate::ground::netdevs::{self, Netdev};
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;

/// The number of entries of the table. Most of them are empty.
pub(crate) const GIDS: usize = 256;

/// The environment variable that names the only interface of the port.
pub(crate) const NETDEV: &str = "MLX5_UVERBS_NETDEV";

/// The device's GUID, in the byte order of the wire, with a locally administered prefix.
pub(crate) const GUID: [u8; 8] = [0x02, 0x6d, 0x6c, 0xff, 0xfe, 0x78, 0x35, 0x01];

/// Returns the device's own MAC address, from which EUI-64 makes its GUID. The port has this address if its
/// interface has none.
pub(crate) const fn mac() -> [u8; 6] {
    let [a, b, c, _, _, d, e, f] = GUID;
    [a ^ 2, b, c, d, e, f]
}

/// A GID: an IPv6 address, or an IPv4 address mapped into one.
pub(crate) type Gid = [u8; 16];

/// The version of RoCE that the packets of an entry of the GID table have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// The network interface of the port, or of an entry of the GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// The index of the interface, or 0 if the port has no interface.
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: [u8; 6],
}

/// An entry of the GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) gid: Gid,
    pub(crate) version: Version,
    pub(crate) interface: Interface,
}

/// The port of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// The interface that gives the port its MAC address.
    pub(crate) interface: Interface,
    /// Whether the interface is up and has a carrier.
    pub(crate) is_active: bool,
    /// The largest payload of a packet (`enum ibv_mtu`).
    pub(crate) mtu: u8,
    /// The table without its empty entries, which are all at its end.
    pub(crate) entries: Vec<Entry>,
}

/// The interfaces that belong to the port of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The number of the network namespace.
    namespace: u64,
    /// The name of the only interface, if the environment gives one.
    netdev: Option<String>,
}

impl View {
    /// Returns the view of this process: its network namespace, and the interface that the environment names.
    pub(crate) fn from_environment() -> Self {
        let namespace = fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino());
        Self { namespace, netdev: std::env::var(NETDEV).ok().filter(|name| !name.is_empty()) }
    }

    /// Returns the part of a file name that tells this view from other views.
    pub(crate) fn name(&self) -> String {
        let netdev = self.netdev.as_deref().unwrap_or_default();
        // Names of interfaces have no slash, but the environment may have one.
        format!("{}{}{}", self.namespace, if netdev.is_empty() { "" } else { "-" }, netdev.replace('/', "-"))
    }

    /// Returns the port as it is now.
    ///
    /// # Errors
    /// A sentence for the user, if there is no interface with the chosen name.
    pub(crate) fn port(&self) -> Result<Port, String> {
        Port::new(&netdevs::all(), self.netdev.as_deref())
    }
}

impl Port {
    /// Returns the port of a machine without network interfaces: only the default GIDs, of the device's own
    /// MAC address.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn alone() -> Self {
        Self::of(&[])
    }

    /// Returns the port over the interface with the name `wanted`. Without a name, the port is over all
    /// Ethernet interfaces that are up. The first interface with an address is the port's own. If no Ethernet
    /// interface is up, the port is over the loopback interface.
    fn new(netdevs: &[Netdev], wanted: Option<&str>) -> Result<Self, String> {
        if let Some(name) = wanted {
            let chosen = netdevs.iter().find(|netdev| netdev.name == name);
            let chosen = chosen.ok_or_else(|| format!("{NETDEV}: there is no network interface {name}"))?;
            return Ok(Self::of(&[chosen]));
        }
        let mut chosen: Vec<&Netdev> =
            netdevs.iter().filter(|netdev| netdev.is_ethernet && netdev.is_up).collect();
        chosen.sort_by_key(|netdev| netdev.addresses.is_empty());
        if chosen.is_empty() {
            chosen.extend(netdevs.iter().find(|netdev| netdev.is_loopback));
        }
        Ok(Self::of(&chosen))
    }

    fn of(netdevs: &[&Netdev]) -> Self {
        let interface = |netdev: &Netdev| Interface {
            index: netdev.index,
            name: netdev.name.clone(),
            // The loopback interface has no MAC address. The port then has the device's own: soft-RoCE
            // accepts any MAC address for this interface.
            mac: if netdev.mac == [0; 6] { mac() } else { netdev.mac },
        };
        let own = netdevs.first().map_or_else(
            || Interface { index: 0, name: String::new(), mac: mac() },
            |netdev| interface(netdev),
        );
        let defaults = [(link_local(own.mac), own.clone())];
        let others = netdevs
            .iter()
            .flat_map(|netdev| netdev.addresses.iter().map(|address| (gid(*address), interface(netdev))));
        let mut entries: Vec<Entry> = Vec::new();
        for (gid, interface) in defaults.into_iter().chain(others) {
            // The link-local address of an interface is often equal to the default GID. The table then holds
            // the address once.
            let is_there = |entry: &Entry| entry.gid == gid && entry.interface == interface;
            if entries.len() + 2 <= GIDS && !entries.iter().any(is_there) {
                let entry = |version| Entry { gid, version, interface: interface.clone() };
                entries.extend([Version::V1, Version::V2].map(entry));
            }
        }
        let first = netdevs.first();
        Self {
            interface: own,
            is_active: first.is_none_or(|netdev| netdev.is_up && netdev.has_carrier),
            mtu: first.map_or(5, |netdev| mtu(netdev.mtu)),
            entries,
        }
    }

    /// Returns the MAC address of the interface that has a GID, or `None` if the table does not have the GID.
    pub(crate) fn mac_of(&self, gid: Gid) -> Option<[u8; 6]> {
        self.entries.iter().find(|entry| entry.gid == gid).map(|entry| entry.interface.mac)
    }

    /// Returns the codes of the port's state and physical state: active and link up, or down and disabled.
    pub(crate) const fn states(&self) -> (u8, u8) {
        if self.is_active { (4, 5) } else { (1, 3) }
    }

    /// Returns the GID of the table's first entry. The table always has this entry.
    pub(crate) fn default_gid(&self) -> Gid {
        link_local(self.interface.mac)
    }
}

/// Returns the link-local GID of a MAC address, by EUI-64.
pub(crate) const fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Gid {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Returns whether a GID is link-local: its second half contains the MAC address.
pub(crate) const fn is_link_local([a, b, ..]: Gid) -> bool {
    a == 0xfe && b & 0xc0 == 0x80
}

/// Returns the GID of an IP address.
pub(crate) fn gid(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns a GID as files of `/sys` show it: eight groups of four digits.
pub(crate) fn shown(gid: Gid) -> String {
    Ipv6Addr::from(gid).segments().map(|group| format!("{group:04x}")).join(":")
}

/// Returns the code of the largest payload, from 256 to 4096 bytes, that fits into packets of `bytes` bytes
/// beside the headers of RoCE (`enum ibv_mtu`; kernel `iboe_get_mtu`).
fn mtu(bytes: u32) -> u8 {
    const HEADERS: u32 = 58;
    let room = bytes.saturating_sub(HEADERS);
    (1..=5).rev().find(|code| 128 << code <= room).unwrap_or(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn netdev(index: u32, name: &str, addresses: &[&str]) -> Netdev {
        Netdev {
            index,
            name: name.into(),
            mac: if name == "lo" { [0; 6] } else { [2, 0xfc, 0, 0, 0, index as u8] },
            mtu: 1500,
            is_up: true,
            has_carrier: true,
            is_loopback: name == "lo",
            is_ethernet: name != "lo",
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        }
    }

    fn table(port: &Port) -> Vec<(String, Version, &str)> {
        let row = |entry: &Entry| Ipv6Addr::from(entry.gid).to_string();
        port.entries.iter().map(|entry| (row(entry), entry.version, &*entry.interface.name)).collect()
    }

    /// The table has the order that `show_gids` shows on a machine with a ConnectX-6 Dx.
    #[test]
    fn the_table_is_as_linux_fills_it() {
        let own = ["192.0.2.2", "fd00::2", "fe80::fc:ff:fe00:4", "fe80::1"];
        let netdevs = [
            netdev(1, "lo", &["127.0.0.1", "::1"]),
            netdev(3, "bare", &[]),
            netdev(4, "eth0", &own),
            netdev(9, "vlan", &["198.51.100.7"]),
        ];
        let port = Port::new(&netdevs, None).unwrap();
        let expected = [
            ("fe80::fc:ff:fe00:4", "eth0"),
            ("::ffff:192.0.2.2", "eth0"),
            ("fd00::2", "eth0"),
            ("fe80::1", "eth0"),
            ("::ffff:198.51.100.7", "vlan"),
        ];
        let expected: Vec<_> = expected
            .iter()
            .flat_map(|(gid, name)| [Version::V1, Version::V2].map(|version| ((*gid).into(), version, *name)))
            .collect();
        assert_eq!(table(&port), expected);
        assert_eq!((port.mtu, port.is_active, port.interface.index), (3, true, 4));
        assert_eq!(port.mac_of(gid("198.51.100.7".parse().unwrap())), Some([2, 0xfc, 0, 0, 0, 9]));
        assert_eq!(port.mac_of([9; 16]), None);
        assert_eq!(port.default_gid(), port.entries[0].gid);
    }

    #[test]
    fn without_a_network_the_port_is_over_the_loopback_interface() {
        let mut down = netdev(2, "eth0", &[]);
        down.is_up = false;
        let port = Port::new(&[netdev(1, "lo", &["127.0.0.1", "::1"]), down.clone()], None).unwrap();
        let gids: Vec<_> = table(&port).into_iter().step_by(2).map(|(gid, ..)| gid).collect();
        assert_eq!(gids, ["fe80::26d:6cff:fe78:3501", "::ffff:127.0.0.1", "::1"]);
        assert_eq!((port.interface.name.as_str(), port.interface.mac), ("lo", mac()));
        // An interface that is asked for by its name may be down. The port is then down too.
        let port = Port::new(&[netdev(1, "lo", &[]), down], Some("eth0")).unwrap();
        assert!(!port.is_active && port.entries.len() == 2);
        assert!(Port::new(&[], Some("eth0")).unwrap_err().contains("no network interface eth0"));
        assert_eq!((Port::alone().entries.len(), Port::alone().is_active), (2, true));
    }

    #[test]
    fn a_table_that_is_full_takes_no_more() {
        let addresses: Vec<String> = (0..300).map(|number| format!("fd00::{number:x}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        assert_eq!(Port::new(&[netdev(1, "eth0", &addresses)], None).unwrap().entries.len(), GIDS);
    }

    #[test]
    fn a_packet_holds_a_power_of_two() {
        assert_eq!([0, 313, 314, 1400, 1500, 4153, 4154, 65536].map(mtu), [1, 1, 1, 3, 3, 4, 5, 5]);
        assert_eq!(shown(link_local([2, 0xfc, 0, 0, 0, 1])), "fe80:0000:0000:0000:00fc:00ff:fe00:0001");
    }
}
