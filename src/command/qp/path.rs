//! The path from a queue pair to its peer.

use crate::command::{FlowLabel, Priority};
use crate::wire::prm::qp_context::{AddressPath, PathFlags, PathFlow, PathHops, PathLid, PathPort, PathUdp};

/// The size of the largest packet of a path (PRM `mtu`).
///
/// ```
/// use mlx5_mkey::command::PathMtu;
/// // Both ends take the smaller one.
/// let (ours, theirs) = (PathMtu::B4096, PathMtu::from_code(3));
/// assert_eq!(theirs.map(|theirs| ours.min(theirs)), Some(PathMtu::B1024));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum PathMtu {
    /// Packets of up to 256 bytes.
    B256 = 1,
    /// Packets of up to 512 bytes.
    B512 = 2,
    /// Packets of up to 1024 bytes.
    B1024 = 3,
    /// Packets of up to 2048 bytes.
    B2048 = 4,
    /// Packets of up to 4096 bytes.
    B4096 = 5,
}

impl PathMtu {
    /// Returns the size with this code (PRM `mtu`, `enum ibv_mtu`), `None` for an unknown code.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::B256,
            2 => Self::B512,
            3 => Self::B1024,
            4 => Self::B2048,
            5 => Self::B4096,
            _ => return None,
        })
    }
}

/// A path over Ethernet (RoCE).
///
/// ```
/// use mlx5_mkey::command::{FlowLabel, Path, Priority, RocePath};
/// let path = Path::Roce(RocePath {
///     source_gid_index: 3,
///     gid: core::net::Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped().octets(),
///     mac: [0x02, 0, 0, 0, 0, 7],
///     udp_source_port: 0xc000,
///     hop_limit: 64,
///     traffic_class: 26 << 2, // DSCP 26
///     flow_label: FlowLabel::default(),
///     priority: Priority::new(3)?,
/// });
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RocePath {
    /// Index of the source GID in the port's GID table. The table's entry also decides the version of RoCE.
    pub source_gid_index: u8,
    /// GID of the peer. An IPv4 address a.b.c.d is the GID `::ffff:a.b.c.d`.
    pub gid: [u8; 16],
    /// MAC address of the peer or of the next hop.
    pub mac: [u8; 6],
    /// UDP source port (RoCE v2); 0 for RoCE v1.
    pub udp_source_port: u16,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class. Its upper 6 bits are the DSCP of RoCE v2.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: FlowLabel,
    /// Ethernet priority.
    pub priority: Priority,
}

/// A path over InfiniBand, within one subnet.
///
/// ```
/// use mlx5_mkey::command::{InfinibandPath, Path, Priority};
/// let path = Path::Infiniband(InfinibandPath { lid: 0x12, service_level: Priority::default() });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct InfinibandPath {
    /// LID of the peer.
    pub lid: u16,
    /// Service level.
    pub service_level: Priority,
}

/// The path to a peer.
///
/// ```
/// use mlx5_mkey::command::{Init2Rtr, Path};
/// /// Connects a queue pair to itself, for a test.
/// fn loopback(command: Init2Rtr) -> Init2Rtr {
///     Init2Rtr { remote_qp: command.qp, path: Path::Loopback, ..command }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Path {
    /// A path within this device; packets do not leave the device. It needs no address. On a port without
    /// RoCE, the device must have [`crate::command::GeneralCapabilities::loopback_without_roce`].
    Loopback,
    /// A path over Ethernet (RoCE).
    Roce(RocePath),
    /// A path over InfiniBand.
    Infiniband(InfinibandPath),
}

impl Path {
    pub(super) fn write(&self, port: u8, path: &mut AddressPath) {
        let mut last = PathPort::new().with_vhca_port_num(port);
        match self {
            Self::Loopback => path.flags.set(PathFlags::new().with_fl(true).into_bits()),
            Self::Roce(roce) => {
                let hops =
                    PathHops::new().with_src_addr_index(roce.source_gid_index).with_hop_limit(roce.hop_limit);
                path.hops.set(hops.into_bits());
                let flow =
                    PathFlow::new().with_tclass(roce.traffic_class).with_flow_label(roce.flow_label.get());
                path.flow.set(flow.into_bits());
                path.rgid_rip = roce.gid;
                let udp =
                    PathUdp::new().with_dscp(roce.traffic_class >> 2).with_udp_sport(roce.udp_source_port);
                path.udp.set(udp.into_bits());
                path.rmac = roce.mac;
                last.set_eth_prio(roce.priority.get());
            }
            Self::Infiniband(infiniband) => {
                path.lid.set(PathLid::new().with_rlid(infiniband.lid).into_bits());
                last.set_sl(infiniband.service_level.get());
            }
        }
        path.port.set(last.into_bits());
    }
}
