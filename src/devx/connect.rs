//! Connects queue pairs: the options of a connection, the path to the peer, and the steps from INIT to RTS.

use super::sys::Route;
use super::{AddressError, DevxError, QpAddress, QpControl};
use crate::command::{
    AckTimeout, FlowLabel, InfinibandPath, Init2Rtr, LogAckInterval, LogMaxRdAtomic, LogMessage, Path,
    PathMtu, Priority, Psn, Retries, RnrTimer, RocePath, Rtr2Rts,
};
use crate::types::Qpn;

/// The options of a connection. In parentheses, each field names the tools that use the same default. Both
/// sides should use the same options.
///
/// ```
/// use mlx5_mkey::command::AckTimeout;
/// use mlx5_mkey::devx::ConnectOptions;
///
/// // RoCE v2 in the traffic class of DSCP 26. A dead peer is noticed sooner: after 4.096 us * 2^12 and up to
/// // 7 retries.
/// let options = ConnectOptions {
///     source_gid_index: 3,
///     traffic_class: 26 << 2,
///     ack_timeout: AckTimeout::new(12)?,
///     ..ConnectOptions::default()
/// };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ConnectOptions {
    /// Entry of the own GID table, which also decides the version of RoCE; `show_gids` or `ibv_devinfo -v`
    /// list the table. Default 0.
    pub source_gid_index: u8,
    /// Number of the first packet that this side sends. Default 0. Use a random number, as other tools do, so
    /// that late packets of an earlier connection are not taken for packets of this one. Pass the same number
    /// to [`QpControl::address`] and [`QpControl::connect`].
    pub first_psn: Psn,
    /// The path MTU. The default is the smaller active MTU of the two ports, as in perftest; a port that
    /// reports no MTU counts as 1024 bytes, as in `ibv_rc_pingpong`.
    pub mtu: Option<PathMtu>,
    /// The time for which the device waits for an acknowledgement. Default 14: 67 ms (`ibv_rc_pingpong`,
    /// perftest, pyverbs).
    pub ack_timeout: AckTimeout,
    /// Retries after an acknowledgement timed out. Default 7 (`ibv_rc_pingpong`, perftest, pyverbs).
    pub retries: Retries,
    /// Retries when the peer has no receive request. Default 7: no limit (`ibv_rc_pingpong`, perftest,
    /// pyverbs).
    pub rnr_retries: Retries,
    /// The time for which the peer waits before a retry when this side has no receive request. Default 12:
    /// 0.64 ms (`ibv_rc_pingpong`, perftest, pyverbs).
    pub rnr_timer: RnrTimer,
    /// The largest number of own RDMA READs and atomics in flight (`max_rd_atomic`), as its base-2 logarithm.
    /// The number must not exceed the peer's `log_max_dest_rd_atomic`. The default is 16 in flight, as in
    /// perftest for RDMA READ, or the device's limit if that is lower
    /// ([`GeneralCapabilities::log_max_reads_out`](crate::command::GeneralCapabilities::log_max_reads_out)).
    pub log_max_rd_atomic: Option<LogMaxRdAtomic>,
    /// The largest number of the peer's RDMA READs and atomics in flight (`max_dest_rd_atomic`), as its
    /// base-2 logarithm. The default is 16 in flight, or the device's limit if that is lower
    /// ([`GeneralCapabilities::log_max_reads_in`](crate::command::GeneralCapabilities::log_max_reads_in)).
    pub log_max_dest_rd_atomic: Option<LogMaxRdAtomic>,
    /// The number of packets after which a request asks for an acknowledgement, as its base-2 logarithm.
    /// Default 256 packets (Linux, UCX). With a smaller number a lost packet is found sooner, at a higher
    /// cost for the wire and both devices.
    pub log_ack_interval: LogAckInterval,
    /// InfiniBand service level or Ethernet priority. Default 0 (`ibv_rc_pingpong`, perftest, pyverbs).
    pub service_level: Priority,
    /// Traffic class of RoCE. Its upper 6 bits are the DSCP of RoCE v2. Default 0 (perftest).
    pub traffic_class: u8,
    /// Hop limit of RoCE. Default 255 (perftest).
    pub hop_limit: u8,
    /// Flow label of RoCE. Default 0 (perftest).
    pub flow_label: FlowLabel,
    /// UDP source port of RoCE v2. The default is the port that the kernel's mlx5 driver computes: from the
    /// flow label, or from the numbers of both queue pairs where the flow label is 0.
    pub udp_source_port: Option<u16>,
    /// MAC address of the peer, or of the router to it. By default the kernel finds it by the peer's GID.
    pub mac: Option<[u8; 6]>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            source_gid_index: 0,
            first_psn: Psn::default(),
            mtu: None,
            ack_timeout: AckTimeout::MS_67,
            retries: Retries::MAX,
            rnr_retries: Retries::MAX,
            rnr_timer: RnrTimer::US_640,
            log_max_rd_atomic: None,
            log_max_dest_rd_atomic: None,
            log_ack_interval: LogAckInterval::PACKETS_256,
            service_level: Priority::default(),
            traffic_class: 0,
            hop_limit: u8::MAX,
            flow_label: FlowLabel::default(),
            udp_source_port: None,
            mac: None,
        }
    }
}

/// Returns the UDP source port of a connection, as the kernel's `rdma_get_udp_sport` computes it. The port is
/// computed from 20 bits: the flow label, or if it is 0, bits of the product of both queue pair numbers. The
/// function folds the 20 bits to 14 bits, and adds the result to the lowest port that the InfiniBand
/// specification allows.
fn udp_source_port(flow_label: FlowLabel, own: Qpn, peer: Qpn) -> u16 {
    const LOWEST: u32 = 0xc000;
    const LOW_BITS: u32 = 0x3fff;
    let label = match flow_label.get() {
        0 => {
            let product = u64::from(own.get()) * u64::from(peer.get());
            let folded = product ^ product >> 20;
            (folded ^ folded >> 40) as u32 & FlowLabel::MAX.get()
        }
        label => label,
    };
    (LOWEST | (label ^ label >> 14) & LOW_BITS) as u16
}

impl QpControl {
    /// Returns the address that the peer needs to connect to this queue pair with the same options.
    ///
    /// # Errors
    /// [`DevxError::Call`] where the port or the entry of its GID table does not exist.
    pub fn address(&self, options: &ConnectOptions) -> Result<QpAddress, DevxError> {
        let (context, number) = (&self.domain().context, self.port());
        let port = context.port(number)?;
        Ok(QpAddress {
            qpn: self.qpn(),
            first_psn: options.first_psn,
            gid: context.gid(number, options.source_gid_index.into())?,
            lid: port.lid,
            mtu: port.mtu.unwrap_or(PathMtu::B1024),
        })
    }

    /// Connects the queue pair to a peer, and takes it from INIT to RTR and RTS. On Ethernet (RoCE) the path
    /// uses GID and MAC address; on InfiniBand it uses the LID, within one subnet.
    ///
    /// If the device refuses the step from RTR to RTS, the queue pair stays in RTR;
    /// [`super::QueuePair::reset`] returns it to INIT.
    ///
    /// # Errors
    /// [`DevxError::Address`] for a peer without GID (Ethernet) or LID (InfiniBand), [`DevxError::Call`]
    /// where the kernel does not find the peer's MAC address, [`DevxError::Command`].
    pub fn connect(&self, peer: &QpAddress, options: &ConnectOptions) -> Result<(), DevxError> {
        let port = self.domain().context.port(self.port())?;
        let path = match (port.is_ethernet, peer.gid, peer.lid) {
            (true, QpAddress::NO_GID, _) => return Err(AddressError::NoGid.into()),
            (true, ..) => Path::Roce(self.roce_path(peer, options)?),
            (false, _, 0) => return Err(AddressError::NoLid.into()),
            (false, _, lid) => Path::Infiniband(InfinibandPath { lid, service_level: options.service_level }),
        };
        let mtu = options.mtu.unwrap_or_else(|| peer.mtu.min(port.mtu.unwrap_or(PathMtu::B1024)));
        self.connect_over(path, peer.qpn, peer.first_psn, mtu, options)
    }

    /// Connects the queue pair to the queue pair with the number `peer`, on the same device. The packets do
    /// not leave the device. This needs no [`QpAddress`].
    ///
    /// # Errors
    /// [`DevxError::Command`].
    pub fn connect_local(&self, peer: Qpn) -> Result<(), DevxError> {
        self.connect_over(Path::Loopback, peer, Psn::default(), PathMtu::B1024, &ConnectOptions::default())
    }

    /// Connects the queue pair to itself.
    ///
    /// # Errors
    /// As [`QpControl::connect_local`].
    pub fn connect_loopback(&self) -> Result<(), DevxError> {
        self.connect_local(self.qpn())
    }

    fn connect_over(
        &self,
        path: Path,
        remote_qp: Qpn,
        peer_psn: Psn,
        mtu: PathMtu,
        options: &ConnectOptions,
    ) -> Result<(), DevxError> {
        let qp = self.qpn();
        let device = &self.domain().report.general;
        let usual = |log_limit: u8| {
            LogMaxRdAtomic::SIXTEEN.min(LogMaxRdAtomic::new(log_limit).unwrap_or(LogMaxRdAtomic::MAX))
        };
        let [log_in, log_out] = [device.log_max_reads_in, device.log_max_reads_out].map(usual);
        self.modify(&Init2Rtr {
            qp,
            remote_qp,
            path,
            port: self.port(),
            mtu,
            // The longest message that the device supports, as in Linux. The device refuses a larger value.
            log_max_message: LogMessage::new(device.log_max_message).unwrap_or(LogMessage::MAX),
            first_psn: peer_psn,
            log_max_rd_atomic: options.log_max_dest_rd_atomic.unwrap_or(log_in),
            rnr_timer: options.rnr_timer,
        })?;
        self.modify(&Rtr2Rts {
            qp,
            first_psn: options.first_psn,
            log_max_rd_atomic: options.log_max_rd_atomic.unwrap_or(log_out),
            ack_timeout: options.ack_timeout,
            retries: options.retries,
            rnr_retries: options.rnr_retries,
            log_ack_interval: options.log_ack_interval,
        })
    }

    fn roce_path(&self, peer: &QpAddress, options: &ConnectOptions) -> Result<RocePath, DevxError> {
        let (mac, is_udp) = match options.mac {
            // With a given MAC address the version of RoCE is unknown, so the function sets a UDP source port
            // in any case. RoCE v1 has no UDP header, and ignores the port.
            Some(mac) => (mac, true),
            None => {
                let hop = self.domain().pd.resolve(Route {
                    port: self.port(),
                    source_gid_index: options.source_gid_index,
                    gid: peer.gid,
                    hop_limit: options.hop_limit,
                    traffic_class: options.traffic_class,
                })?;
                (hop.mac, hop.is_udp)
            }
        };
        let usual = || if is_udp { udp_source_port(options.flow_label, self.qpn(), peer.qpn) } else { 0 };
        Ok(RocePath {
            source_gid_index: options.source_gid_index,
            gid: peer.gid,
            mac,
            udp_source_port: options.udp_source_port.unwrap_or_else(usual),
            hop_limit: options.hop_limit,
            traffic_class: options.traffic_class,
            flow_label: options.flow_label,
            priority: options.service_level,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_source_ports_are_those_of_the_kernel() {
        let port = |label, own, peer| {
            udp_source_port(FlowLabel::new(label).unwrap(), Qpn::from_low_bits(own), Qpn::from_low_bits(peer))
        };
        // The expected ports were computed with `rdma_get_udp_sport` of the kernel's headers.
        assert_eq!(port(1, 0x11, 0x12), 0xc001);
        assert_eq!(port(0xf_ffff, 0x11, 0x12), 0xffc0);
        assert_eq!(port(0xa_bcde, 0x11, 0x12), 0xfcf4);
        assert_eq!(port(0, 0x11, 0x12), 0xc132);
        assert_eq!(port(0, 0xfe_dcba, 0x65_4321), 0xdf09);
        assert_eq!(port(0, 0x65_4321, 0xfe_dcba), 0xdf09, "the same in both directions");
    }
}
