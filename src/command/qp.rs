//! Queue pairs of reliable connections, and their way from reset to ready.
//!
//! No command takes a queue pair to the drained state (SQD): the device does, when a signature error hits one that
//! [`Init2Init`] told to drain. [`QueryQp`] shows it, [`DrainedToSend`] leaves it.

use super::{
    AckTimeout, Command, FlowLabel, GeneralCapabilities, LogMessage, LogPageSize, LogReads, Pdn, Priority,
    Psn, Retries, RnrTimer, UarPage, UmemSlice, UserIndex, number_commands,
};
use crate::error::{CommandError, QueueError};
use crate::types::{Cqn, Qpn};
use crate::wire::prm::command::{NumberReply, NumberRequest, Opcode, RequestHeader};
use crate::wire::prm::qp::{AdjustQpRequest, CreateQpRequest, ModifyQpRequest, QpOptional, QueryQpReply};
use crate::wire::prm::qp_context::{
    AddressPath, PathFlags, PathFlow, PathHops, PathLid, PathPort, PathUdp, Qpc, QpcDoorbell, QpcPd, QpcPeer,
    QpcReceive, QpcReceiveQueue, QpcRetry, QpcRights, QpcScatter, QpcSizes, QpcState, QpcUar,
};
use core::fmt;

macro_rules! powers_of_two {
    ($($(#[$doc:meta])* $name:ident = $least:literal, $max:literal, $unit:literal;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(u8);

        impl $name {
            #[doc = concat!("Takes a number of ", $unit, ": a power of two from ", stringify!($least), " to ")]
            #[doc = concat!(stringify!($max), ".")]
            ///
            /// # Errors
            /// [`QueueError::Size`] for any other number.
            pub const fn new(count: u32) -> Result<Self, QueueError> {
                if !count.is_power_of_two() || count < $least || count > $max {
                    return Err(QueueError::Size { entries: count as usize, max: $max });
                }
                Ok(Self(count.trailing_zeros() as u8))
            }

            #[doc = concat!("Returns the number of ", $unit, ".")]
            pub const fn get(self) -> u32 {
                1 << self.0
            }
        }
    )+ };
}

powers_of_two! {
    /// The size of a send queue in blocks of 64 bytes (PRM `log_sq_size`).
    SendRingSize = 1, 32768, "blocks";
    /// The number of receive requests of a receive queue (PRM `log_rq_size`).
    SlotCount = 1, 32768, "slots";
    /// The size of a receive request in bytes, 16 for each scatter entry (PRM `log_rq_stride`).
    SlotStride = 16, 2048, "bytes";
}

/// The receive queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ReceiveRing {
    /// Receive requests.
    pub slots: SlotCount,
    /// Bytes of each.
    pub stride: SlotStride,
}

impl ReceiveRing {
    /// Returns the bytes of the queue. The send queue comes right behind it.
    pub const fn bytes(&self) -> u64 {
        self.slots.get() as u64 * self.stride.get() as u64
    }
}

/// Format of the time stamps in completions (PRM `ts_format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum TimestampFormat {
    /// Ticks of the device's clock.
    #[default]
    FreeRunning,
    /// What the device prefers.
    DeviceDefault,
    /// Seconds and nanoseconds.
    RealTime,
}

/// Creates a queue pair of a reliable connection, its rings in user memory (CREATE_QP).
///
/// The receive ring is first, the send ring behind it. Received data never goes into completion entries: addresses of an
/// mkey may start at 0, which that cannot tell from none (M6, M43). The reply is the queue pair's number; it is in reset.
///
/// ```
/// use mlx5_mkey::command::{
///     Command, CreateQp, LogPageSize, Pdn, SendRingSize, TimestampFormat, UarPage, UmemId, UmemSlice, UserIndex,
/// };
/// use mlx5_mkey::types::Cqn;
/// let command = CreateQp {
///     pd: Pdn::new(7)?,
///     uar: UarPage::new(3)?,
///     send_cq: Cqn::new(0x40)?,
///     receive_cq: Cqn::new(0x40)?,
///     user_index: UserIndex::new(1)?,
///     send_ring: SendRingSize::new(256)?,
///     receive_ring: None,
///     rings: UmemSlice { umem: UmemId(5), offset: 0 },
///     doorbell: UmemSlice { umem: UmemId(5), offset: 0x4000 },
///     page_size: LogPageSize::P4K,
///     timestamps: TimestampFormat::FreeRunning,
/// };
/// let mut mailbox = [0; CreateQp::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?.len(), 272);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateQp {
    /// Protection domain.
    pub pd: Pdn,
    /// Doorbell page.
    pub uar: UarPage,
    /// Completion queue of the send queue.
    pub send_cq: Cqn,
    /// Completion queue of the receive queue.
    pub receive_cq: Cqn,
    /// What completions will carry.
    pub user_index: UserIndex,
    /// Size of the send queue.
    pub send_ring: SendRingSize,
    /// Size of the receive queue, `None` for none.
    pub receive_ring: Option<ReceiveRing>,
    /// Where the rings are.
    pub rings: UmemSlice,
    /// Where the doorbell record is: 8 bytes, receive counter first.
    pub doorbell: UmemSlice,
    /// Page size of the user memory.
    pub page_size: LogPageSize,
    /// Format of the time stamps.
    pub timestamps: TimestampFormat,
}

impl Command for CreateQp {
    const OPCODE: Opcode = Opcode::CREATE_QP;
    type Input = CreateQpRequest;
    type Output = NumberReply;
    type Reply = Qpn;

    fn write(&self, input: &mut CreateQpRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        let qpc = &mut input.qpc;
        let state = QpcState::new().with_st(QpcState::RELIABLE_CONNECTION).with_pm_state(QpcState::MIGRATED);
        qpc.state.set(state.into_bits());
        qpc.pd.set(QpcPd::new().with_pd(self.pd.get()).into_bits());
        let mut sizes =
            QpcSizes::new().with_log_sq_size(self.send_ring.0).with_ts_format(match self.timestamps {
                TimestampFormat::FreeRunning => 0,
                TimestampFormat::DeviceDefault => 1,
                TimestampFormat::RealTime => 2,
            });
        let mut kind = QpcReceiveQueue::NONE;
        if let Some(ring) = &self.receive_ring {
            // The stride counts octowords: 16 bytes are 0.
            sizes = sizes.with_log_rq_size(ring.slots.0).with_log_rq_stride(ring.stride.0 - 4);
            kind = QpcReceiveQueue::REGULAR;
        }
        qpc.sizes.set(sizes.into_bits());
        qpc.receive_queue.set(QpcReceiveQueue::new().with_rq_type(kind).into_bits());
        qpc.uar.set(QpcUar::new().with_uar_page(self.uar.get()).into_bits());
        qpc.user_index.set(self.user_index.get());
        qpc.peer.set(QpcPeer::new().with_log_page_size(self.page_size.over_4k()).into_bits());
        qpc.cqn_snd.set(self.send_cq.get());
        qpc.cqn_rcv.set(self.receive_cq.get());
        qpc.scatter.set(QpcScatter::new().with_cs_req(0).with_cs_res(0).into_bits());
        qpc.doorbell.set(QpcDoorbell::new().with_dbr_umem_valid(true).into_bits());
        qpc.dbr_umem_id.set(self.doorbell.umem.0);
        qpc.dbr_addr.set(self.doorbell.offset);
        input.wq_umem_offset.set(self.rings.offset);
        input.wq_umem_id.set(self.rings.umem.0);
        input.wq_umem_valid.set(CreateQpRequest::UMEM_VALID);
    }

    fn read(&self, output: &NumberReply) -> Result<Qpn, CommandError> {
        Ok(Qpn::from_low_bits(output.number.get()))
    }
}

/// What the peer may do through a queue pair; what it may do to memory, the mkey says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QpRights {
    /// RDMA READ.
    pub remote_read: bool,
    /// RDMA WRITE.
    pub remote_write: bool,
    /// Atomics, as the InfiniBand specification has them (`MLX5_ATOMIC_MODE_IB_COMP` of the kernel; an assumption until a
    /// board confirms it for queue pairs that are not the kernel's).
    pub remote_atomic: bool,
}

impl QpRights {
    /// RDMA READ and WRITE.
    pub const READ_WRITE: Self = Self { remote_read: true, remote_write: true, remote_atomic: false };

    const fn to_wire(self) -> QpcRights {
        QpcRights::new()
            .with_rre(self.remote_read)
            .with_rwe(self.remote_write)
            .with_rae(self.remote_atomic)
            .with_atomic_mode(if self.remote_atomic { 1 } else { 0 })
    }
}

/// Takes a queue pair from reset to initialised (RST2INIT_QP): from here on receives can be posted.
///
/// ```
/// use mlx5_mkey::command::{Command, InitQp, QpRights};
/// use mlx5_mkey::types::Qpn;
/// let command = InitQp { qp: Qpn::new(0x11)?, port: 1, pkey_index: 0, rights: QpRights::READ_WRITE };
/// let mut mailbox = [0; InitQp::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?[..2], [0x05, 0x02]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct InitQp {
    /// The queue pair.
    pub qp: Qpn,
    /// Port of the device, from 1.
    pub port: u8,
    /// Entry of the partition key table; 0 for RoCE.
    pub pkey_index: u16,
    /// What the peer may do.
    pub rights: QpRights,
}

/// Starts a change of state.
fn start(opcode: Opcode, qp: Qpn, input: &mut ModifyQpRequest) -> &mut Qpc {
    input.header = RequestHeader::new(opcode);
    input.qpn.set(qp.get());
    &mut input.qpc
}

impl Command for InitQp {
    const OPCODE: Opcode = Opcode::RST2INIT_QP;
    type Input = ModifyQpRequest;
    type Output = NumberReply;
    type Reply = ();

    fn write(&self, input: &mut ModifyQpRequest) {
        let qpc = start(Self::OPCODE, self.qp, input);
        qpc.state.set(QpcState::new().with_pm_state(QpcState::MIGRATED).into_bits());
        qpc.primary_path.flags.set(PathFlags::new().with_pkey_index(self.pkey_index).into_bits());
        qpc.primary_path.port.set(PathPort::new().with_vhca_port_num(self.port).into_bits());
        qpc.rights.set(self.rights.to_wire().into_bits());
    }

    fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
        Ok(())
    }
}

/// The largest packet of a path (PRM `mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum PathMtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

/// A path over Ethernet (RoCE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RocePath {
    /// Entry of the own GID table; it also decides the version of RoCE.
    pub source_gid_index: u8,
    /// GID of the peer; an IPv4 address as `::ffff:a.b.c.d`.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct InfinibandPath {
    /// LID of the peer.
    pub lid: u16,
    /// Service level.
    pub service_level: Priority,
}

/// Where the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Path {
    /// On this device: packets do not leave it. Needs no address; see also
    /// [`super::GeneralCapabilities::loopback_without_roce`].
    Loopback,
    /// Over Ethernet.
    Roce(RocePath),
    /// Over InfiniBand.
    Infiniband(InfinibandPath),
}

impl Path {
    fn write(&self, port: u8, path: &mut AddressPath) {
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

/// Connects a queue pair and makes it ready to receive (INIT2RTR_QP).
///
/// ```
/// use mlx5_mkey::command::{Command, LogMessage, LogReads, Path, PathMtu, Psn, ReadyToReceive, RnrTimer};
/// use mlx5_mkey::types::Qpn;
/// let command = ReadyToReceive {
///     qp: Qpn::new(0x11)?,
///     remote_qp: Qpn::new(0x12)?,
///     path: Path::Loopback,
///     port: 1,
///     mtu: PathMtu::B4096,
///     log_max_message: LogMessage::new(30)?,
///     first_psn: Psn::new(0)?,
///     log_reads: LogReads::new(4)?,
///     rnr_timer: RnrTimer::new(12)?,
/// };
/// let mut mailbox = [0; ReadyToReceive::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?[..2], [0x05, 0x03]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ReadyToReceive {
    /// The queue pair.
    pub qp: Qpn,
    /// The peer's queue pair.
    pub remote_qp: Qpn,
    /// Where the peer is.
    pub path: Path,
    /// Port of the device, from 1.
    pub port: u8,
    /// Largest packet.
    pub mtu: PathMtu,
    /// Longest message.
    pub log_max_message: LogMessage,
    /// Number of the first packet that comes.
    pub first_psn: Psn,
    /// RDMA READs and atomics of the peer in flight.
    pub log_reads: LogReads,
    /// How long the peer waits when there is no receive request.
    pub rnr_timer: RnrTimer,
}

impl Command for ReadyToReceive {
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
        qpc.rights.set(QpcRights::new().with_log_rra_max(self.log_reads.get()).into_bits());
        let receive =
            QpcReceive::new().with_min_rnr_nak(self.rnr_timer.get()).with_next_rcv_psn(self.first_psn.get());
        qpc.receive.set(receive.into_bits());
    }

    fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
        Ok(())
    }
}

/// Makes a queue pair ready to send (RTR2RTS_QP).
///
/// ```
/// use mlx5_mkey::command::{AckTimeout, Command, LogReads, Psn, ReadyToSend, Retries};
/// use mlx5_mkey::types::Qpn;
/// let command = ReadyToSend {
///     qp: Qpn::new(0x11)?,
///     first_psn: Psn::new(0)?,
///     log_reads: LogReads::new(4)?,
///     ack_timeout: AckTimeout::new(14)?,
///     retries: Retries::new(7)?,
///     rnr_retries: Retries::MAX,
/// };
/// let mut mailbox = [0; ReadyToSend::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?[..2], [0x05, 0x04]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ReadyToSend {
    /// The queue pair.
    pub qp: Qpn,
    /// Number of the first packet that goes.
    pub first_psn: Psn,
    /// Own RDMA READs and atomics in flight.
    pub log_reads: LogReads,
    /// How long to wait for an acknowledgement.
    pub ack_timeout: AckTimeout,
    /// Retries after that.
    pub retries: Retries,
    /// Retries when the peer has no receive request; 7 for no limit.
    pub rnr_retries: Retries,
}

impl Command for ReadyToSend {
    const OPCODE: Opcode = Opcode::RTR2RTS_QP;
    type Input = ModifyQpRequest;
    type Output = NumberReply;
    type Reply = ();

    fn write(&self, input: &mut ModifyQpRequest) {
        let qpc = start(Self::OPCODE, self.qp, input);
        let retry = QpcRetry::new()
            .with_log_sra_max(self.log_reads.get())
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

/// What may change about a queue pair that sends. What is `None` stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QpChange {
    /// What the peer may do.
    pub rights: Option<QpRights>,
    /// How long the peer waits when there is no receive request.
    pub rnr_timer: Option<RnrTimer>,
}

impl QpChange {
    fn write(&self, qpc: &mut Qpc) -> QpOptional {
        let mut mask = QpOptional::new();
        if let Some(rights) = self.rights {
            qpc.rights.set(rights.to_wire().into_bits());
            mask = mask.with_remote_read(true).with_remote_write(true).with_atomic(true);
        }
        if let Some(timer) = self.rnr_timer {
            qpc.receive.set(QpcReceive::new().with_min_rnr_nak(timer.get()).into_bits());
            mask.set_rnr_timeout(true);
        }
        mask
    }
}

macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident, $input:ident;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name {
            /// The queue pair.
            pub qp: Qpn,
            /// What changes with it.
            pub change: QpChange,
        }

        impl Command for $name {
            const OPCODE: Opcode = Opcode::$opcode;
            type Input = $input;
            type Output = NumberReply;
            type Reply = ();

            fn write(&self, input: &mut $input) {
                input.header = RequestHeader::new(Self::OPCODE);
                input.qpn.set(self.qp.get());
                input.opt_param_mask.set(self.change.write(&mut input.qpc).into_bits());
            }

            fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
                Ok(())
            }
        }
    )+ };
}

changes! {
    /// Changes a queue pair that is ready to send (RTS2RTS_QP).
    Rts2Rts = RTS2RTS_QP, AdjustQpRequest;
    /// Lets a queue pair send again whose send queue was drained after a signature error (SQD_RTS_QP; M22).
    DrainedToSend = SQD_RTS_QP, ModifyQpRequest;
    /// Lets a queue pair send again whose send queue failed (SQERR2RTS_QP). Reliable connections go to full error instead.
    FailedToSend = SQERR2RTS_QP, ModifyQpRequest;
}

/// Changes a queue pair that is initialised (INIT2INIT_QP): this is how signature errors are made to drain the send queue,
/// since neither rdma-core nor the kernel asks for it earlier (`mlx5_modify_qp_drain_sigerr`; M19).
///
/// ```
/// use mlx5_mkey::command::{Command, Init2Init};
/// use mlx5_mkey::types::Qpn;
/// let command = Init2Init { qp: Qpn::new(0x11)?, drain_signature_errors: Some(true), rights: None };
/// let mut mailbox = [0; Init2Init::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?[..2], [0x05, 0x0e]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Init2Init {
    /// The queue pair.
    pub qp: Qpn,
    /// Whether a signature error stops the send queue. Needs
    /// [`super::GeneralCapabilities::drain_signature_errors`].
    pub drain_signature_errors: Option<bool>,
    /// What the peer may do.
    pub rights: Option<QpRights>,
}

impl Init2Init {
    /// Refuses what the device cannot do (M42).
    ///
    /// # Errors
    /// [`CommandError::Unsupported`].
    pub const fn check(&self, device: &GeneralCapabilities) -> Result<(), CommandError> {
        match self.drain_signature_errors {
            Some(true) if !device.drain_signature_errors => {
                Err(CommandError::Unsupported { command: Self::OPCODE, what: "draining on signature errors" })
            }
            _ => Ok(()),
        }
    }
}

impl Command for Init2Init {
    const OPCODE: Opcode = Opcode::INIT2INIT_QP;
    type Input = AdjustQpRequest;
    type Output = NumberReply;
    type Reply = ();

    fn write(&self, input: &mut AdjustQpRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.qpn.set(self.qp.get());
        let mut mask = QpChange { rights: self.rights, rnr_timer: None }.write(&mut input.qpc);
        if let Some(drain) = self.drain_signature_errors {
            input.qpc.pd.set(QpcPd::new().with_drain_sigerr(drain).into_bits());
            mask.set_drain_sigerr(true);
        }
        input.opt_param_mask.set(mask.into_bits());
    }

    fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
        Ok(())
    }
}

/// State of a queue pair (PRM `qpc.state`). An open set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QpState(pub u8);

impl QpState {
    /// Reset.
    pub const RESET: Self = Self(QpcState::RESET);
    /// Initialised.
    pub const INIT: Self = Self(QpcState::INIT);
    /// Ready to receive.
    pub const RTR: Self = Self(QpcState::RTR);
    /// Ready to send.
    pub const RTS: Self = Self(QpcState::RTS);
    /// The send queue failed.
    pub const SQ_ERROR: Self = Self(QpcState::SQ_ERROR);
    /// The send queue is drained.
    pub const SQ_DRAINED: Self = Self(QpcState::SQ_DRAINED);
    /// Error.
    pub const ERROR: Self = Self(QpcState::ERROR);

    /// Returns a short name, `None` for a state that is not known here.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::RESET => Some("reset"),
            Self::INIT => Some("initialised"),
            Self::RTR => Some("ready to receive"),
            Self::RTS => Some("ready to send"),
            Self::SQ_ERROR => Some("send queue in error"),
            Self::SQ_DRAINED => Some("send queue drained"),
            Self::ERROR => Some("error"),
            _ => None,
        }
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "queue pair state {:#x}", self.0),
        }
    }
}

/// What the device says of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QpInfo {
    /// State.
    pub state: QpState,
    /// The block of the send queue that the device executes next, modulo 2^16: in the drained state, where to cancel from.
    pub next_send_block: u16,
    /// The block behind the last that software announced.
    pub announced_send_block: u16,
    /// Receive requests that the device has taken.
    pub receives_taken: u32,
    /// The peer's queue pair.
    pub remote_qp: Qpn,
    /// Number of the next packet to send.
    pub next_send_psn: Psn,
    /// Number of the next packet to receive.
    pub next_receive_psn: Psn,
    /// What completions carry.
    pub user_index: UserIndex,
    /// A signature error stops the send queue.
    pub drain_signature_errors: bool,
    /// What the peer may do.
    pub rights: QpRights,
    /// Largest packet, as a code: see [`PathMtu`].
    pub mtu: u8,
    /// Received data may go into completion entries, which breaks addresses that start at 0 (M43).
    pub scatters_to_cqe: bool,
}

/// Asks for a queue pair's state (QUERY_QP).
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
        let rights = QpcRights::from_bits(qpc.rights.get());
        let scatter = QpcScatter::from_bits(qpc.scatter.get());
        let psn = |word: u32| Psn::new(word & Psn::MAX.get()).unwrap_or_default();
        Ok(QpInfo {
            state: QpState(QpcState::from_bits(qpc.state.get()).state()),
            next_send_block: qpc.hw_sq_wqebb_counter.get(),
            announced_send_block: qpc.sw_sq_wqebb_counter.get(),
            receives_taken: qpc.hw_rq_counter.get(),
            remote_qp: Qpn::from_low_bits(qpc.peer.get()),
            next_send_psn: psn(qpc.next_send_psn.get()),
            next_receive_psn: psn(qpc.receive.get()),
            user_index: UserIndex::new(qpc.user_index.get() & UserIndex::MAX.get()).unwrap_or_default(),
            drain_signature_errors: QpcPd::from_bits(qpc.pd.get()).drain_sigerr(),
            rights: QpRights {
                remote_read: rights.rre(),
                remote_write: rights.rwe(),
                remote_atomic: rights.rae(),
            },
            mtu: QpcSizes::from_bits(qpc.sizes.get()).mtu(),
            scatters_to_cqe: scatter.cs_req() != 0 || scatter.cs_res() != 0,
        })
    }
}

number_commands! {
    /// Puts a queue pair into error: everything outstanding is flushed (2ERR_QP).
    QpToError(Qpn) = TO_ERR_QP;
    /// Resets a queue pair (2RST_QP).
    QpToReset(Qpn) = TO_RST_QP;
    /// Destroys a queue pair (DESTROY_QP).
    DestroyQp(Qpn) = DESTROY_QP;
}
