//! Commands that create queue pairs.

use crate::command::error::CommandError;
use crate::command::pages::aligned;
use crate::command::{
    Command, LogPageSize, PageList, Pdn, SendRingSize, SlotCount, SlotStride, UarPage, UmemSlice, UserIndex,
};
use crate::types::{Cqn, Qpn};
use crate::wire::prm::command::{NumberReply, Opcode, RequestHeader};
use crate::wire::prm::pages::WithPages;
use crate::wire::prm::qp::CreateQpRequest;
use crate::wire::prm::qp_context::{
    Qpc, QpcDoorbell, QpcPd, QpcPeer, QpcReceiveQueue, QpcScatter, QpcSizes, QpcState, QpcUar,
};

/// The size of the receive queue of a queue pair.
///
/// ```
/// use mlx5_mkey::command::{ReceiveRing, SlotCount, SlotStride};
/// // 64 messages of up to 4 buffers.
/// let ring = ReceiveRing { slots: SlotCount::new(64)?, stride: SlotStride::of_entries(4)? };
/// assert_eq!(ring.bytes(), 4096);
/// # Ok::<(), mlx5_mkey::error::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ReceiveRing {
    /// Number of receive requests.
    pub slots: SlotCount,
    /// Size of each receive request in bytes.
    pub stride: SlotStride,
}

impl ReceiveRing {
    /// Returns the size of the receive queue in bytes.
    pub const fn bytes(&self) -> u64 {
        self.slots.get() as u64 * self.stride.get() as u64
    }
}

/// Format of the time stamps in completions (PRM `ts_format`).
///
/// ```
/// use mlx5_mkey::command::{CreateQp, RoceCapabilities, TimestampFormat};
/// /// Asks for time stamps of a synchronised clock (PTP), if the device supports them.
/// fn with_real_time(command: CreateQp, device: &RoceCapabilities) -> Option<CreateQp> {
///     let timestamps = TimestampFormat::RealTime;
///     device.timestamps.supports(timestamps).then_some(CreateQp { timestamps, ..command })
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum TimestampFormat {
    /// Ticks of the device's free-running clock. A device that knows only real time refuses the queue pair
    /// ([`TimestampSupport`](crate::command::TimestampSupport)).
    FreeRunning,
    /// The format that the device prefers: ticks or real time. Every device accepts this value.
    #[default]
    DeviceDefault,
    /// Real time in seconds and nanoseconds.
    RealTime,
}

/// Sizes in bytes of a block of the send ring (`BLOCK`) and of a doorbell record (`RECORD`).
const BLOCK: u64 = 64;
const RECORD: u64 = 8;

/// The fields of CREATE_QP that `CreateQp` and `CreateQpOnPages` have in common. Each command fills in by
/// itself the fields that say where the rings are: in user memory (umem), or in pages that the command lists.
struct Parts {
    pd: Pdn,
    uar: UarPage,
    /// The completion queues of the send queue and of the receive queue.
    cqs: [Cqn; 2],
    user_index: UserIndex,
    send_ring: SendRingSize,
    receive_ring: Option<ReceiveRing>,
    page_size: LogPageSize,
    timestamps: TimestampFormat,
}

impl Parts {
    fn write(&self, qpc: &mut Qpc) {
        let [send_cq, receive_cq] = self.cqs;
        let state = QpcState::new().with_st(QpcState::RELIABLE_CONNECTION).with_pm_state(QpcState::MIGRATED);
        qpc.state.set(state.into_bits());
        qpc.pd.set(QpcPd::new().with_pd(self.pd.get()).into_bits());
        let mut sizes =
            QpcSizes::new().with_log_sq_size(self.send_ring.log()).with_ts_format(match self.timestamps {
                TimestampFormat::FreeRunning => 0,
                TimestampFormat::DeviceDefault => 1,
                TimestampFormat::RealTime => 2,
            });
        let mut kind = QpcReceiveQueue::NONE;
        if let Some(ring) = &self.receive_ring {
            // The field `log_rq_stride` is the logarithm of the stride in octowords, so a stride of 16 bytes
            // is 0.
            sizes = sizes
                .with_log_rq_size(ring.slots.log())
                .with_log_rq_stride(ring.stride.log().wrapping_sub(4));
            kind = QpcReceiveQueue::REGULAR;
        }
        qpc.sizes.set(sizes.into_bits());
        qpc.receive_queue.set(QpcReceiveQueue::new().with_rq_type(kind).into_bits());
        qpc.uar.set(QpcUar::new().with_uar_page(self.uar.get()).into_bits());
        qpc.user_index.set(self.user_index.get());
        qpc.peer.set(QpcPeer::new().with_log_page_size(self.page_size.over_4k()).into_bits());
        qpc.cqn_snd.set(send_cq.get());
        qpc.cqn_rcv.set(receive_cq.get());
        qpc.scatter.set(QpcScatter::new().with_cs_req(0).with_cs_res(0).into_bits());
    }
}

/// The command that creates a queue pair of a reliable connection, with rings in user memory (CREATE_QP).
///
/// The send ring begins right after the receive ring. The receive ring should have 64 bytes or more, as the
/// rings of libmlx5 have: no public source says where the send ring begins after a shorter one.
///
/// The command switches off "scatter to CQE", by which the device would write short received data into
/// completion entries. For this feature address 0 means "no buffer", but the space of an mkey may begin at 0.
/// The reply is the number of the queue pair, which is in the state RESET.
///
/// ```
/// use mlx5_mkey::command::{
///     Command, CreateQp, LogPageSize, Pdn, SendRingSize, TimestampFormat, UarPage, UmemId, UmemSlice,
///     UserIndex,
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
///     timestamps: TimestampFormat::DeviceDefault,
/// };
/// let mut mailbox = [0; CreateQp::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?.len(), 272);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateQp {
    /// Protection domain of the queue pair.
    pub pd: Pdn,
    /// UAR page with the queue pair's doorbell.
    pub uar: UarPage,
    /// Completion queue of the send queue.
    pub send_cq: Cqn,
    /// Completion queue of the receive queue.
    pub receive_cq: Cqn,
    /// The user index that completions will carry.
    pub user_index: UserIndex,
    /// Size of the send queue.
    pub send_ring: SendRingSize,
    /// Size of the receive queue, `None` for a queue pair without one.
    pub receive_ring: Option<ReceiveRing>,
    /// The place of the rings in user memory.
    pub rings: UmemSlice,
    /// The place of the doorbell record in user memory: 8 bytes, first the counter of receive requests, then
    /// that of send blocks.
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
        let parts = Parts {
            pd: self.pd,
            uar: self.uar,
            cqs: [self.send_cq, self.receive_cq],
            user_index: self.user_index,
            send_ring: self.send_ring,
            receive_ring: self.receive_ring,
            page_size: self.page_size,
            timestamps: self.timestamps,
        };
        parts.write(qpc);
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

/// The command that creates a queue pair of a reliable connection, with rings in pages of memory, which the
/// command lists by bus address (CREATE_QP). The command is meant for bare metal, where no kernel registers
/// user memory.
///
/// The receive ring is at the beginning of the first page. The send ring begins after it, at a multiple of 64
/// bytes. As for [`CreateQp`], the receive ring should have 64 bytes or more. Like [`CreateQp`], the command
/// switches "scatter to CQE" off. The reply is the number of the queue pair, which is in the state RESET.
///
/// ```
/// use mlx5_mkey::command::{
///     Command, CreateQpOnPages, LogPageSize, PageList, Pdn, SendRingSize, TimestampFormat, UarPage,
///     UserIndex,
/// };
/// use mlx5_mkey::types::Cqn;
/// let command = CreateQpOnPages {
///     pd: Pdn::new(7)?,
///     uar: UarPage::new(3)?,
///     send_cq: Cqn::new(0x40)?,
///     receive_cq: Cqn::new(0x40)?,
///     user_index: UserIndex::new(1)?,
///     send_ring: SendRingSize::new(64)?,
///     receive_ring: None,
///     rings: PageList::new(LogPageSize::P4K, [0x8000_0000])?,
///     doorbell: 0x8000_1000,
///     timestamps: TimestampFormat::DeviceDefault,
/// };
/// let mut mailbox = [0; CreateQpOnPages::<1>::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?.len(), 280);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateQpOnPages<const PAGES: usize> {
    /// Protection domain of the queue pair.
    pub pd: Pdn,
    /// UAR page with the queue pair's doorbell.
    pub uar: UarPage,
    /// Completion queue of the send queue.
    pub send_cq: Cqn,
    /// Completion queue of the receive queue.
    pub receive_cq: Cqn,
    /// The user index that completions will carry.
    pub user_index: UserIndex,
    /// Size of the send queue.
    pub send_ring: SendRingSize,
    /// Size of the receive queue, `None` for a queue pair without one.
    pub receive_ring: Option<ReceiveRing>,
    /// The pages that hold the rings.
    pub rings: PageList<PAGES>,
    /// The bus address of the doorbell record, a multiple of 8. It has 8 bytes, first the counter of receive
    /// requests, then that of send blocks.
    pub doorbell: u64,
    /// Format of the time stamps.
    pub timestamps: TimestampFormat,
}

impl<const PAGES: usize> CreateQpOnPages<PAGES> {
    /// Returns the offset of the send ring in bytes, counted from the beginning of the first page.
    pub const fn send_ring_offset(&self) -> u64 {
        match &self.receive_ring {
            Some(ring) => ring.bytes().wrapping_add(BLOCK - 1) & !(BLOCK - 1),
            None => 0,
        }
    }
}

impl<const PAGES: usize> Command for CreateQpOnPages<PAGES> {
    const OPCODE: Opcode = Opcode::CREATE_QP;
    type Input = WithPages<CreateQpRequest, PAGES>;
    type Output = NumberReply;
    type Reply = Qpn;

    fn verify(&self) -> Result<(), CommandError> {
        aligned("doorbell record", self.doorbell, RECORD)?;
        self.rings.hold(self.send_ring_offset().saturating_add(u64::from(self.send_ring.get()) * BLOCK))
    }

    fn write(&self, input: &mut Self::Input) {
        let WithPages { first, pages } = input;
        first.header = RequestHeader::new(Self::OPCODE);
        let parts = Parts {
            pd: self.pd,
            uar: self.uar,
            cqs: [self.send_cq, self.receive_cq],
            user_index: self.user_index,
            send_ring: self.send_ring,
            receive_ring: self.receive_ring,
            page_size: self.rings.size(),
            timestamps: self.timestamps,
        };
        parts.write(&mut first.qpc);
        first.qpc.dbr_addr.set(self.doorbell);
        *pages = self.rings.to_wire();
    }

    fn read(&self, output: &NumberReply) -> Result<Qpn, CommandError> {
        Ok(Qpn::from_low_bits(output.number.get()))
    }
}
