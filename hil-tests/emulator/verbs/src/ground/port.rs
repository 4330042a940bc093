//! The device's port and its table of addresses (GIDs). The table has the entries that Linux makes for a RoCE
//! port, or the only entry of an InfiniBand port: the subnet prefix and the GUID.
//!
//! The first interface gives the port its MAC address. The default GIDs are the link-local GIDs of this MAC
//! address. The GIDs of all IP addresses of the first interface follow, then the GIDs of the other
//! interfaces. Linux appends the addresses of VLANs and bridges above a port in the same way. Each address
//! has two entries, for RoCE v1 and v2 (kernel `drivers/infiniband/core/roce_gid_mgmt.c`, `cache.c`).

use crate::ground::netdevs::{self, Netdev};
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;

/// The number of entries of a RoCE port's table. Most of them are empty.
pub(crate) const GIDS: usize = 256;

/// The number of entries of an InfiniBand port's table.
const INFINIBAND_GIDS: usize = 8;

/// The environment variable with the kind of network of all ports: `ethernet` (the default) or `infiniband`.
pub(crate) const PORT: &str = "MLX5_UVERBS_PORT";

/// The LID of the subnet manager. In a real subnet, another node has this LID. Here, the first port has it.
pub(crate) const SUBNET_MANAGER: u16 = 1;

/// The environment variable that names the interface of each port, with commas between the names.
pub(crate) const NETDEV: &str = "MLX5_UVERBS_NETDEV";

/// The environment variable with the number of devices.
pub(crate) const DEVICES: &str = "MLX5_UVERBS_DEVICES";

/// The largest number of devices.
pub(crate) const MOST_DEVICES: usize = 8;

/// Returns the GUID of a device, in the byte order of the wire, with a locally administered prefix.
pub(crate) const fn guid(device: usize) -> [u8; 8] {
    [0x02, 0x6d, 0x6c, 0xff, 0xfe, 0x78, 0x35, 1 + device as u8]
}

/// Returns a device's own MAC address, from which EUI-64 makes the device's GUID. A port has this address if
/// its interface has none.
pub(crate) const fn mac(device: usize) -> [u8; 6] {
    let [a, b, c, _, _, d, e, f] = guid(device);
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
    /// The LID of an InfiniBand port; 0 for a RoCE port.
    pub(crate) lid: u16,
    /// The interface that gives the port its MAC address.
    pub(crate) interface: Interface,
    /// Whether the interface is up and has a carrier.
    pub(crate) is_active: bool,
    /// The port's MTU code (`enum ibv_mtu`): 1 to 5, for packets with a payload of 256 to 4096 bytes.
    pub(crate) mtu: u8,
    /// The table without its empty entries, which are all at its end.
    pub(crate) entries: Vec<Entry>,
}

/// The part of the system that a process sees: its network namespace, the number of devices, and the
/// interfaces of their ports. Processes with equal views share one emulated `/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The number of the network namespace.
    namespace: u64,
    /// The interfaces that the environment names, with commas between the names.
    netdevs: String,
    /// The number of devices as the environment has it. An empty string means one device.
    devices: String,
    /// The kind of network as the environment has it. An empty string means Ethernet.
    kind: String,
}

impl View {
    /// Returns the view of this process: its network namespace, and the devices and interfaces that the
    /// environment names.
    pub(crate) fn from_environment() -> Self {
        let namespace = fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino());
        let [netdevs, devices, kind] =
            [NETDEV, DEVICES, PORT].map(|name| std::env::var(name).unwrap_or_default());
        Self { namespace, netdevs, devices, kind }
    }

    /// Returns a part for file names that tells views with different namespaces or interfaces apart. Views
    /// that differ only in the number of devices have the same part.
    pub(crate) fn network(&self) -> String {
        let netdevs = &self.netdevs;
        // Names of interfaces have no slash, but the environment may have one.
        format!(
            "{}{}{}{}",
            self.namespace,
            if netdevs.is_empty() { "" } else { "-" },
            netdevs.replace('/', "-"),
            if self.kind == "infiniband" { ".ib" } else { "" }
        )
    }

    /// Returns a part for file names that tells views with different namespaces, interfaces or numbers of
    /// devices apart.
    pub(crate) fn name(&self) -> String {
        match self.devices() {
            Ok(2..) => format!("{}.x{}", self.network(), self.devices),
            _ => self.network(),
        }
    }

    /// Returns the part of a file name for the counters of a device of the view named `view`.
    pub(crate) fn device_name(view: &str, device: usize) -> String {
        if device == 0 { view.to_owned() } else { format!("{view}.{device}") }
    }

    /// Returns the number of devices.
    ///
    /// # Errors
    /// A sentence for the user, if the environment has another number.
    pub(crate) fn devices(&self) -> Result<usize, String> {
        match (self.devices.as_str(), self.devices.parse()) {
            ("", _) => Ok(1),
            (_, Ok(count @ 1..=MOST_DEVICES)) => Ok(count),
            (other, _) => Err(format!("{DEVICES} is `{other}`, but there are 1 to {MOST_DEVICES} devices")),
        }
    }

    /// Returns the ports as they are now, one of each device.
    ///
    /// # Errors
    /// A sentence for the user, if there is no interface with a chosen name, or if the number of devices is
    /// invalid.
    pub(crate) fn ports(&self) -> Result<Vec<Port>, String> {
        let names: Vec<&str> = self.netdevs.split(',').filter(|name| !name.is_empty()).collect();
        let devices = self.devices()?;
        match self.kind.as_str() {
            "" | "ethernet" => Port::all(&netdevs::all(), &names, devices),
            "infiniband" if names.is_empty() => Ok((0..devices).map(Port::infiniband).collect()),
            "infiniband" => Err(format!("{NETDEV}: an InfiniBand port has no network interface")),
            other => Err(format!("{PORT} is `{other}`, but a port is ethernet or infiniband")),
        }
    }
}

impl Port {
    /// Returns the port of a machine without network interfaces. The port has only the default GIDs, which
    /// are made from the device's own MAC address.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn alone() -> Self {
        Self::of(&[], 0)
    }

    /// Returns the ports of `devices` devices. Each name in `wanted` is the interface of one port. Without
    /// names, the ports share the Ethernet interfaces that are up: each port gets one interface, interfaces
    /// with an address first, and the first port gets all that are left. If no Ethernet interface is up, the
    /// first port is over the loopback interface. A port without an interface has only the default GIDs.
    fn all(netdevs: &[Netdev], wanted: &[&str], devices: usize) -> Result<Vec<Self>, String> {
        if wanted.len() > devices {
            return Err(format!("{NETDEV}: there are more interfaces than devices"));
        }
        let mut chosen: Vec<&Netdev> = match wanted {
            [] => netdevs.iter().filter(|netdev| netdev.is_ethernet && netdev.is_up).collect(),
            names => {
                let named = |name: &&str| {
                    let found = netdevs.iter().find(|netdev| netdev.name == **name);
                    found.ok_or_else(|| format!("{NETDEV}: there is no network interface {name}"))
                };
                names.iter().map(named).collect::<Result<_, _>>()?
            }
        };
        if wanted.is_empty() {
            chosen.sort_by_key(|netdev| netdev.addresses.is_empty());
        }
        if chosen.is_empty() {
            chosen.extend(netdevs.iter().find(|netdev| netdev.is_loopback));
        }
        let port = |device: usize| {
            let own = chosen.get(device);
            let others = chosen.get(devices..).filter(|_| device == 0).unwrap_or_default();
            let all: Vec<&Netdev> = own.into_iter().chain(others).copied().collect();
            Self::of(&all, device)
        };
        Ok((0..devices).map(port).collect())
    }

    /// Returns the InfiniBand port of a device: active, without a network interface. Each device has the same
    /// LID and GID in all processes.
    fn infiniband(device: usize) -> Self {
        let interface = Interface { index: 0, name: String::new(), mac: mac(device) };
        let entry = Entry { gid: of_device(device), version: Version::V1, interface: interface.clone() };
        Self { lid: 1 + device as u16, interface, is_active: true, mtu: 5, entries: vec![entry] }
    }

    /// Returns whether the port is an InfiniBand port.
    pub(crate) const fn is_infiniband(&self) -> bool {
        self.lid != 0
    }

    /// Returns the number of entries of the port's GID table, including the empty entries.
    pub(crate) const fn gids(&self) -> usize {
        if self.is_infiniband() { INFINIBAND_GIDS } else { GIDS }
    }

    /// Returns the port of a device over these interfaces, of which the first is the port's own.
    fn of(netdevs: &[&Netdev], device: usize) -> Self {
        let interface = |netdev: &Netdev| Interface {
            index: netdev.index,
            name: netdev.name.clone(),
            // The loopback interface has no MAC address. The port then has the device's own MAC address:
            // soft-RoCE accepts any MAC address for this interface.
            mac: if netdev.mac == [0; 6] { mac(device) } else { netdev.mac },
        };
        let own = netdevs.first().map_or_else(
            || Interface { index: 0, name: String::new(), mac: mac(device) },
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
            lid: 0,
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

/// Returns the GID of a device's InfiniBand port: the default subnet prefix and the GUID.
const fn of_device(device: usize) -> Gid {
    link_local(mac(device))
}

/// Returns the GIDs of the InfiniBand ports of all devices, in the order of their LIDs.
pub(crate) fn subnet() -> Vec<Gid> {
    (0..MOST_DEVICES).map(of_device).collect()
}

/// Returns the GID of the InfiniBand port with this LID.
pub(crate) fn gid_of_lid(lid: u16) -> Option<Gid> {
    subnet().get(usize::from(lid).checked_sub(1)?).copied()
}

/// Returns the link-local GID of a MAC address, by EUI-64.
pub(crate) const fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Gid {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Returns whether a GID is link-local. The second half of a link-local GID contains the MAC address.
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

/// Returns the MTU code (`enum ibv_mtu`: 1 to 5, for 256 to 4096 bytes) of the largest payload that fits into
/// packets of `bytes` bytes beside the headers of RoCE (kernel `iboe_get_mtu`).
fn mtu(bytes: u32) -> u8 {
    const HEADERS: u32 = 58;
    let room = bytes.saturating_sub(HEADERS);
    (1..=5).rev().find(|code| 128 << code <= room).unwrap_or(1)
}

#[cfg(test)]
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

    /// Returns the port of the only device.
    fn only(netdevs: &[Netdev], wanted: &[&str]) -> Result<Port, String> {
        Port::all(netdevs, wanted, 1).map(|mut ports| ports.remove(0))
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
        let port = only(&netdevs, &[]).unwrap();
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
        let port = only(&[netdev(1, "lo", &["127.0.0.1", "::1"]), down.clone()], &[]).unwrap();
        let gids: Vec<_> = table(&port).into_iter().step_by(2).map(|(gid, ..)| gid).collect();
        assert_eq!(gids, ["fe80::26d:6cff:fe78:3501", "::ffff:127.0.0.1", "::1"]);
        assert_eq!((port.interface.name.as_str(), port.interface.mac), ("lo", mac(0)));
        // An interface that is asked for by its name may be down. The port is then down too.
        let port = only(&[netdev(1, "lo", &[]), down], &["eth0"]).unwrap();
        assert!(!port.is_active && port.entries.len() == 2);
        assert!(only(&[], &["eth0"]).unwrap_err().contains("no network interface eth0"));
        assert_eq!((Port::alone().entries.len(), Port::alone().is_active), (2, true));
    }

    #[test]
    fn devices_share_the_interfaces() {
        let netdevs = [
            netdev(1, "lo", &["127.0.0.1"]),
            netdev(2, "bare", &[]),
            netdev(3, "eth0", &["192.0.2.3"]),
            netdev(4, "eth1", &["192.0.2.4"]),
        ];
        let shared = |wanted: &[&str], devices| {
            let ports = Port::all(&netdevs, wanted, devices).unwrap();
            let names = ports.iter().map(|port| {
                let mut names: Vec<String> =
                    port.entries.iter().map(|entry| entry.interface.name.clone()).collect();
                names.dedup();
                names.join(" ")
            });
            names.collect::<Vec<_>>()
        };
        assert_eq!(shared(&[], 1), ["eth0 eth1"]);
        assert_eq!(shared(&[], 2), ["eth0", "eth1"]);
        assert_eq!(shared(&[], 4), ["eth0", "eth1", "bare", ""]);
        assert_eq!(shared(&["eth1"], 2), ["eth1", ""]);
        assert_eq!(shared(&["eth1", "lo"], 2), ["eth1", "lo"]);
        assert!(Port::all(&netdevs, &["eth0", "eth1"], 1).unwrap_err().contains("more interfaces"));
        let [one, two] = Port::all(&[], &[], 2).unwrap().try_into().unwrap();
        assert_ne!(one.default_gid(), two.default_gid(), "each device has a MAC address of its own");
        let view = |devices: &str| View {
            namespace: 7,
            netdevs: "a,b".into(),
            devices: devices.into(),
            kind: String::new(),
        };
        assert_eq!([view(""), view("1"), view("2")].map(|view| view.name()), ["7-a,b", "7-a,b", "7-a,b.x2"]);
        assert!(["0", "9", "two"].iter().all(|devices| view(devices).ports().is_err()));
    }

    #[test]
    fn an_infiniband_port_has_a_lid_and_the_gid_of_its_guid() {
        let view = |kind: &str, netdevs: &str| View {
            namespace: 7,
            netdevs: netdevs.into(),
            devices: "2".into(),
            kind: kind.into(),
        };
        let ports = view("infiniband", "").ports().unwrap();
        let told: Vec<_> = ports.iter().map(|port| (port.lid, port.entries.len(), port.gids())).collect();
        assert_eq!(told, [(1, 1, 8), (2, 1, 8)]);
        for (device, port) in ports.iter().enumerate() {
            let [prefix @ .., _, _, _, _, _, _, _, _] = port.default_gid();
            assert_eq!(
                (prefix, &port.default_gid()[8..]),
                ([0xfe, 0x80, 0, 0, 0, 0, 0, 0], &guid(device)[..])
            );
            assert_eq!(gid_of_lid(port.lid), Some(port.default_gid()));
        }
        assert_eq!([gid_of_lid(0), gid_of_lid(9)], [None, None]);
        assert_eq!(view("infiniband", "").name(), "7.ib.x2");
        assert!(view("infiniband", "eth0").ports().unwrap_err().contains("no network interface"));
        assert!(view("token-ring", "").ports().unwrap_err().contains("token-ring"));
    }

    #[test]
    fn a_table_that_is_full_takes_no_more() {
        let addresses: Vec<String> = (0..300).map(|number| format!("fd00::{number:x}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        assert_eq!(only(&[netdev(1, "eth0", &addresses)], &[]).unwrap().entries.len(), GIDS);
    }

    #[test]
    fn a_packet_holds_a_power_of_two() {
        assert_eq!([0, 313, 314, 1400, 1500, 4153, 4154, 65536].map(mtu), [1, 1, 1, 3, 3, 4, 5, 5]);
        assert_eq!(shown(link_local([2, 0xfc, 0, 0, 0, 1])), "fe80:0000:0000:0000:00fc:00ff:fe00:0001");
    }
}
