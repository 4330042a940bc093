//! Commands that take a queue pair from reset to ready to send.

use super::access::QpAccess;
use super::path::{Path, PathMtu};
use crate::command::error::CommandError;
use crate::command::{
    AckTimeout, Command, LogAckInterval, LogMaxRdAtomic, LogMessage, Psn, Retries, RnrTimer,
};
use crate::types::Qpn;
use crate::wire::prm::command::{NumberReply, Opcode, RequestHeader};
use crate::wire::prm::qp::ModifyQpRequest;
use crate::wire::prm::qp_context::{
    PathFlags, PathHops, PathPort, Qpc, QpcPeer, QpcReceive, QpcRetry, QpcRights, QpcSizes, QpcState,
};

/// The command that takes a queue pair from reset to initialised (RST2INIT_QP). From then on, software can
/// post receive requests.
///
/// ```
/// use mlx5_mkey::command::{Command, QpAccess, Rst2Init};
/// use mlx5_mkey::types::Qpn;
/// let command = Rst2Init { qp: Qpn::new(0x11)?, port: 1, pkey_index: 0, access: QpAccess::READ_WRITE };
/// let mut mailbox = [0; Rst2Init::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?[..2], [0x05, 0x02]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Rst2Init {
    /// Number of the queue pair.
    pub qp: Qpn,
    /// Number of the device's port, from 1.
    pub port: u8,
    /// Index in the table of partition keys; 0 for RoCE.
    pub pkey_index: u16,
    /// The operations that the peer may use.
    pub access: QpAccess,
}

/// Fills in the opcode and the queue pair's number in a request that changes the state of a queue pair.
/// Returns the queue pair context in the request, which the caller fills in.
fn start(opcode: Opcode, qp: Qpn, input: &mut ModifyQpRequest) -> &mut Qpc {
    input.header = RequestHeader::new(opcode);
    input.qpn.set(qp.get());
    &mut input.qpc
}

impl Command for Rst2Init {
    const OPCODE: Opcode = Opcode::RST2INIT_QP;
    type Input = ModifyQpRequest;
    type Output = NumberReply;
    type Reply = ();

    fn write(&self, input: &mut ModifyQpRequest) {
        let qpc = start(Self::OPCODE, self.qp, input);
        qpc.state.set(QpcState::new().with_pm_state(QpcState::MIGRATED).into_bits());
        qpc.primary_path.flags.set(PathFlags::new().with_pkey_index(self.pkey_index).into_bits());
        qpc.primary_path.port.set(PathPort::new().with_vhca_port_num(self.port).into_bits());
        qpc.rights.set(self.access.to_wire().into_bits());
    }

    fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
        Ok(())
    }
}

/// The command that connects a queue pair to the peer's queue pair, and makes it ready to receive
/// (INIT2RTR_QP).
///
/// ```
/// use mlx5_mkey::command::{Command, Init2Rtr, LogMaxRdAtomic, LogMessage, Path, PathMtu, Psn, RnrTimer};
/// use mlx5_mkey::types::Qpn;
/// let command = Init2Rtr {
///     qp: Qpn::new(0x11)?,
///     remote_qp: Qpn::new(0x12)?,
///     path: Path::Loopback,
///     port: 1,
///     mtu: PathMtu::B4096,
///     log_max_message: LogMessage::new(30)?,
///     first_psn: Psn::new(0)?,
///     log_max_rd_atomic: LogMaxRdAtomic::new(4)?,
///     rnr_timer: RnrTimer::new(12)?,
/// };
/// let mut mailbox = [0; Init2Rtr::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?[..2], [0x05, 0x03]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Init2Rtr {
    /// Number of the queue pair.
    pub qp: Qpn,
    /// Number of the peer's queue pair.
    pub remote_qp: Qpn,
    /// The path to the peer.
    pub path: Path,
    /// Number of the device's port, from 1.
    pub port: u8,
    /// Size of the largest packet.
    pub mtu: PathMtu,
    /// Base-2 logarithm of the longest message in bytes.
    pub log_max_message: LogMessage,
    /// Number of the first packet that this queue pair receives.
    pub first_psn: Psn,
    /// Base-2 logarithm of the largest number of the peer's RDMA READs and atomics in flight.
    pub log_max_rd_atomic: LogMaxRdAtomic,
    /// How long the peer waits before a retry when this side has no receive request.
    pub rnr_timer: RnrTimer,
}

impl Command for Init2Rtr {
    const OPCODE: Opcode = Opcode::INIT2RTR_QP;
    type Input = ModifyQpRequest;
    type Output = NumberReply;
    type Reply = ();

    fn write(&self, input: &mut ModifyQpRequest) {
        let qpc = start(Self::OPCODE, self.qp, input);
        let sizes = QpcSizes::new().with_mtu(self.mtu as u8).with_log_msg_max(self.log_max_message.get());
        qpc.sizes.set(sizes.into_bits());
        qpc.peer.set(QpcPeer::new().with_remote_qpn(self.remote_qp.get()).into_bits());
        self.path.write(self.port, &mut qpc.primary_path);
        qpc.rights.set(QpcRights::new().with_log_rra_max(self.log_max_rd_atomic.get()).into_bits());
        let receive =
            QpcReceive::new().with_min_rnr_nak(self.rnr_timer.get()).with_next_rcv_psn(self.first_psn.get());
        qpc.receive.set(receive.into_bits());
    }

    fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
        Ok(())
    }
}

/// The command that makes a queue pair ready to send (RTR2RTS_QP).
///
/// ```
/// use mlx5_mkey::command::{AckTimeout, Command, LogAckInterval, LogMaxRdAtomic, Psn, Retries, Rtr2Rts};
/// use mlx5_mkey::types::Qpn;
/// let command = Rtr2Rts {
///     qp: Qpn::new(0x11)?,
///     first_psn: Psn::new(0)?,
///     log_max_rd_atomic: LogMaxRdAtomic::new(4)?,
///     ack_timeout: AckTimeout::new(14)?,
///     retries: Retries::new(7)?,
///     rnr_retries: Retries::MAX,
///     log_ack_interval: LogAckInterval::PACKETS_256,
/// };
/// let mut mailbox = [0; Rtr2Rts::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?[..2], [0x05, 0x04]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Rtr2Rts {
    /// Number of the queue pair.
    pub qp: Qpn,
    /// Number of the first packet that this queue pair sends.
    pub first_psn: Psn,
    /// Base-2 logarithm of the largest number of this queue pair's RDMA READs and atomics in flight.
    pub log_max_rd_atomic: LogMaxRdAtomic,
    /// How long the device waits for an acknowledgement, as a code.
    pub ack_timeout: AckTimeout,
    /// Number of retries after an acknowledgement timed out.
    pub retries: Retries,
    /// Number of retries when the peer has no receive request; 7 for no limit.
    pub rnr_retries: Retries,
    /// Base-2 logarithm of the number of packets after which the sender asks for an acknowledgement.
    pub log_ack_interval: LogAckInterval,
}

impl Command for Rtr2Rts {
    const OPCODE: Opcode = Opcode::RTR2RTS_QP;
    type Input = ModifyQpRequest;
    type Output = NumberReply;
    type Reply = ();

    fn write(&self, input: &mut ModifyQpRequest) {
        let qpc = start(Self::OPCODE, self.qp, input);
        let retry = QpcRetry::new()
            .with_log_ack_req_freq(self.log_ack_interval.get())
            .with_log_sra_max(self.log_max_rd_atomic.get())
            .with_retry_count(self.retries.get())
            .with_rnr_retry(self.rnr_retries.get());
        qpc.retry.set(retry.into_bits());
        qpc.next_send_psn.set(self.first_psn.get());
        qpc.primary_path.hops.set(PathHops::new().with_ack_timeout(self.ack_timeout.get()).into_bits());
    }

    fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
        Ok(())
    }
}
