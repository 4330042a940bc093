//! Features that the device and the stand-in lack. A feature is reported once on standard error when a
//! program asks for it.
//!
//! The table of these features is also in `mlx5-emulate --help` and in EMULATOR.md; a test compares them.

use crate::ground::notice;

/// A feature that the device or the stand-in lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Extended reliable connections (XRC).
    Xrc,
    /// Queue pairs that send raw packets.
    RawPacket,
    /// Steering of received packets, by flows of the kernel or by the device's flow tables.
    Flows,
    /// Dynamic connections (DC).
    Dc,
    /// On-demand paging: regions whose pages become present at the first access.
    OnDemand,
    /// Memory on the device itself that a program allocates.
    DeviceMemory,
    /// Multicast: groups of queue pairs with one address.
    Multicast,
    /// Addresses of InfiniBand for connections (`struct sockaddr_ib`).
    InfinibandAddress,
    /// A path that a program sets for a connection (`RDMA_OPTION_IB_PATH`).
    Path,
    /// Use of a device in a forked child, if the parent has opened the device.
    Forked,
}

/// Each missing feature with its name and the consequence for a program.
const TABLE: &[(Missing, &str, &str)] = &[
    (Missing::Xrc, "XRC", "domains, queue pairs and receive queues of XRC are refused"),
    (Missing::RawPacket, "raw packets", "IBV_QPT_RAW_PACKET, work queues and their tables are refused"),
    (Missing::Flows, "steering", "flows, matchers and flow tables are refused"),
    (Missing::Dc, "DC", "DCI and DCT queue pairs are refused"),
    (Missing::OnDemand, "ODP", "IBV_ACCESS_ON_DEMAND and ibv_advise_mr are refused"),
    (Missing::DeviceMemory, "device memory", "ibv_alloc_dm is refused"),
    (Missing::Multicast, "multicast", "ibv_attach_mcast and rdma_join_multicast are refused"),
    (Missing::InfinibandAddress, "AF_IB", "rdma_cm refuses addresses of this family"),
    (Missing::Path, "set paths", "rdma_set_option refuses RDMA_OPTION_IB_PATH"),
    (
        Missing::Forked,
        "forked devices",
        "a device that the parent opened answers EIO to its child; open it after the fork",
    ),
];

/// Reports that a program has asked for a missing feature.
pub(crate) fn met(missing: Missing) {
    for (_, name, what) in TABLE.iter().filter(|(row, ..)| *row == missing) {
        notice::once(&format!("{name} is not there: {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits that this library cannot report when a program meets them: the program does not load this
    /// library, or the library does not see the program's call.
    const UNTOLD: &[(&str, &str)] = &[
        ("static programs", "they see no device, nor do set-user-id ones: both load no library of ours"),
        ("system calls", "those that go past the C library do not see the device"),
    ];

    /// Returns all rows of [`TABLE`] and [`UNTOLD`] as text, each formatted by `row`.
    fn table(row: impl Fn(&str, &str) -> String) -> String {
        let told = TABLE.iter().map(|(_, name, what)| row(name, what));
        told.chain(UNTOLD.iter().map(|(name, what)| row(name, what))).collect()
    }

    #[test]
    fn the_help_has_the_table() {
        let table = table(|name, what| format!("  {name:<17}{what}\n"));
        let expected = format!("that meets it:\n{table}END\n");
        assert!(include_str!("../../mlx5-emulate").contains(&expected), "{expected}");
    }

    #[test]
    fn the_page_has_the_table() {
        let table = table(|name, what| format!("| {name} | {what} |\n"));
        let expected = format!("|---|---|\n{table}\n");
        assert!(include_str!("../../../EMULATOR.md").contains(&expected), "{expected}");
    }

    #[test]
    fn each_has_one_row() {
        let mut names: Vec<_> = TABLE.iter().map(|(_, name, _)| *name).collect();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }
}
