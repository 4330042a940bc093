//! The command that asks for the state of a queue pair on the device.

use super::access::QpAccess;
use crate::command::error::CommandError;
use crate::command::{Command, Pdn, Psn, UserIndex};
use crate::types::{Cqn, Qpn};
use crate::wire::codes::codes;
use crate::wire::prm::command::{NumberRequest, Opcode, RequestHeader};
use crate::wire::prm::qp::QueryQpReply;
use crate::wire::prm::qp_context::{
    PathPort, QpcPd, QpcReceiveQueue, QpcRights, QpcScatter, QpcSizes, QpcState,
};

codes! {
    /// State of a queue pair (PRM `qpc.state`). The type can also hold codes without a name, because a reply
    /// may contain any code.
    QpState(u8), "queue pair state {:#x}";

    /// The queue pair is reset.
    RESET = QpcState::RESET, "reset";
    /// The queue pair is initialised.
    INIT = QpcState::INIT, "initialised";
    /// The queue pair is ready to receive.
    RTR = QpcState::RTR, "ready to receive";
    /// The queue pair is ready to send.
    RTS = QpcState::RTS, "ready to send";
    /// The send queue failed.
    SQ_ERROR = QpcState::SQ_ERROR, "send queue in error";
    /// The send queue is drained.
    SQ_DRAINED = QpcState::SQ_DRAINED, "send queue drained";
    /// The whole queue pair is in error.
    ERROR = QpcState::ERROR, "error";
}

/// The device's description of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QpInfo {
    /// State of the queue pair.
    pub state: QpState,
    /// Number of the send queue's block (WQEBB) that the device executes next, modulo 2^16. In the drained
    /// state, this is the first block that can be cancelled.
    pub next_send_block: u16,
    /// Number of the block behind the last published send request. Software has written this number to the
    /// doorbell record.
    pub announced_send_block: u16,
    /// Number of receive requests that messages have consumed so far.
    pub receives_taken: u32,
    /// Number of the peer's queue pair.
    pub remote_qp: Qpn,
    /// Number of the next packet to send.
    pub next_send_psn: Psn,
    /// Number of the next packet to receive.
    pub next_receive_psn: Psn,
    /// The user index that completions carry.
    pub user_index: UserIndex,
    /// Whether a signature error stops the send queue.
    pub drain_signature_errors: bool,
    /// The operations that the peer may use.
    pub access: QpAccess,
    /// Size of the largest packet, as a code of [`PathMtu`](super::PathMtu).
    pub mtu: u8,
    /// Service type: 0 is a reliable connection (PRM `st`).
    pub service_type: u8,
    /// Protection domain of the queue pair.
    pub pd: Pdn,
    /// Number of the device's port, from 1.
    pub port: u8,
    /// Completion queue of the send queue.
    pub send_cq: Cqn,
    /// Completion queue of the receive queue.
    pub receive_cq: Cqn,
    /// Whether the queue pair has a receive queue of its own. False if the queue pair uses a shared receive
    /// queue, or has no receive queue.
    pub has_receive_queue: bool,
    /// Whether each work request must contain a checksum of its own bytes (PRM `wq_signature`).
    pub checks_requests: bool,
    /// Whether the device may write received data into completion entries ("scatter to CQE"). Scatter to CQE
    /// does not work for buffers at address 0.
    pub scatters_to_cqe: bool,
}

/// The command that asks for the state of a queue pair (QUERY_QP).
///
/// ```
/// use mlx5_mkey::command::{Command, QpState, QueryQp};
/// use mlx5_mkey::types::Qpn;
/// let command = QueryQp(Qpn::new(0x11)?);
/// let mut mailbox = [0; QueryQp::INPUT];
/// let request = command.encode(&mut mailbox)?;
/// // … the device answers …
/// let mut reply = [0; QueryQp::OUTPUT];
/// reply[0x18] = 0x50;
/// assert_eq!(command.decode(&reply)?.state, QpState::SQ_DRAINED);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryQp(pub Qpn);

impl Command for QueryQp {
    const OPCODE: Opcode = Opcode::QUERY_QP;
    type Input = NumberRequest;
    type Output = QueryQpReply;
    type Reply = QpInfo;

    fn write(&self, input: &mut NumberRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.number.set(self.0.get());
    }

    fn read(&self, output: &QueryQpReply) -> Result<QpInfo, CommandError> {
        let qpc = &output.qpc;
        let access = QpcRights::from_bits(qpc.rights.get());
        let scatter = QpcScatter::from_bits(qpc.scatter.get());
        let psn = |word: u32| Psn::new(word & Psn::MAX.get()).unwrap_or_default();
        let (state, pd) = (QpcState::from_bits(qpc.state.get()), QpcPd::from_bits(qpc.pd.get()));
        let receives = QpcReceiveQueue::from_bits(qpc.receive_queue.get()).rq_type();
        Ok(QpInfo {
            state: QpState(state.state()),
            next_send_block: qpc.hw_sq_wqebb_counter.get(),
            announced_send_block: qpc.sw_sq_wqebb_counter.get(),
            receives_taken: qpc.hw_rq_counter.get(),
            remote_qp: Qpn::from_low_bits(qpc.peer.get()),
            next_send_psn: psn(qpc.next_send_psn.get()),
            next_receive_psn: psn(qpc.receive.get()),
            user_index: UserIndex::new(qpc.user_index.get() & UserIndex::MAX.get()).unwrap_or_default(),
            drain_signature_errors: pd.drain_sigerr(),
            access: QpAccess::from_wire(access),
            service_type: state.st(),
            pd: Pdn::new(pd.pd()).unwrap_or_default(),
            port: PathPort::from_bits(qpc.primary_path.port.get()).vhca_port_num(),
            send_cq: Cqn::from_low_bits(qpc.cqn_snd.get()),
            receive_cq: Cqn::from_low_bits(qpc.cqn_rcv.get()),
            has_receive_queue: receives == QpcReceiveQueue::REGULAR,
            checks_requests: pd.wq_signature(),
            mtu: QpcSizes::from_bits(qpc.sizes.get()).mtu(),
            scatters_to_cqe: scatter.cs_req() != 0 || scatter.cs_res() != 0,
        })
    }
}
