//! The context of a queue pair (PRM `qpc`) and of its path (PRM `ads`).

use crate::wire::low::{low8, low32};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of a path.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct PathFlags {
    /// Index in the table of partition keys.
    pub pkey_index: u16,
    #[bits(14)]
    __: u16,
    /// The path uses adaptive routing.
    pub free_ar: bool,
    /// Forced loopback: the peer is on this device.
    pub fl: bool,
}

/// InfiniBand address of a path.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct PathLid {
    /// LID of the peer.
    pub rlid: u16,
    /// Path bits of the source LID.
    #[bits(7, into = low8::<7>)]
    pub mlid: u8,
    /// Packets carry a global route header.
    pub grh: bool,
    __: u8,
}

/// Time-out and limits of a path.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct PathHops {
    /// Hop limit.
    pub hop_limit: u8,
    /// Limit of the sending rate, as a code; 0 for the rate of the port (kernel `ib_to_mlx5_rate_map`).
    #[bits(4, into = low8::<4>)]
    pub stat_rate: u8,
    #[bits(4)]
    __: u8,
    /// Index of the source GID in the port's GID table.
    pub src_addr_index: u8,
    #[bits(3)]
    __: u8,
    /// Code n of the time-out for acknowledgements: 4.096 us * 2^n, or no time-out for 0.
    #[bits(5, into = low8::<5>)]
    pub ack_timeout: u8,
}

/// Traffic class and flow label of a path.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct PathFlow {
    /// Flow label.
    #[bits(20, into = low32::<20>)]
    pub flow_label: u32,
    /// Traffic class.
    pub tclass: u8,
    #[bits(4)]
    __: u8,
}

/// UDP port and DSCP of a RoCE path.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct PathUdp {
    /// UDP source port (RoCE v2).
    pub udp_sport: u16,
    /// Differentiated services code point.
    #[bits(6, into = low8::<6>)]
    pub dscp: u8,
    /// Bits of explicit congestion notification.
    #[bits(2, into = low8::<2>)]
    pub ecn: u8,
    /// The device takes the Ethernet priority from this path.
    pub f_eth_prio: bool,
    #[bits(1)]
    __: u8,
    /// The device takes the ECN bits from `ecn`.
    pub f_ecn: bool,
    /// The device takes the DSCP from `dscp`.
    pub f_dscp: bool,
    #[bits(4)]
    __: u8,
}

/// Priority and port of a path.
#[bitfield(u16, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct PathPort {
    /// Number of the device's port, from 1.
    pub vhca_port_num: u8,
    /// InfiniBand service level.
    #[bits(4, into = low8::<4>)]
    pub sl: u8,
    /// Ethernet priority.
    #[bits(3, into = low8::<3>)]
    pub eth_prio: u8,
    /// Packets are eligible for dropping.
    pub dei_cfi: bool,
}

/// A path, 44 bytes (PRM `ads`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AddressPath {
    /// Partition key, routing and loopback, see [`PathFlags`].
    pub flags: U32,
    /// InfiniBand address of a path, see [`PathLid`].
    pub lid: U32,
    /// Time-out and limits of a path, see [`PathHops`].
    pub hops: U32,
    /// Traffic class and flow label of a path, see [`PathFlow`].
    pub flow: U32,
    /// GID or IP address of the peer.
    pub rgid_rip: [u8; 16],
    /// UDP port and DSCP of a RoCE path, see [`PathUdp`].
    pub udp: U32,
    /// Priority and port of a path, see [`PathPort`].
    pub port: U16,
    /// MAC address of the peer, or of the next hop to it.
    pub rmac: [u8; 6],
}

/// First word of a queue pair context.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcState {
    #[bits(2)]
    __: u8,
    /// How the device pads received data in memory: 0 not at all, 1 up to the end of a cache line.
    #[bits(2, into = low8::<2>)]
    pub end_padding_mode: u8,
    #[bits(7)]
    __: u8,
    /// State of path migration: 0 armed, 1 to be armed again, 3 migrated ([`QpcState::MIGRATED`]).
    #[bits(2, into = low8::<2>)]
    pub pm_state: u8,
    /// The queue pair has its own virtual lane.
    pub isolate_vl_tc: bool,
    #[bits(2)]
    __: u8,
    /// Service type (kernel `MLX5_QP_ST_*`): 0 reliable connection ([`QpcState::RELIABLE_CONNECTION`]), 1
    /// unreliable connection, 2 unreliable datagram, and others.
    pub st: u8,
    /// The port of a bond (LAG) that the queue pair sends from, counted from 1; 0 leaves the choice to the
    /// device.
    #[bits(4, into = low8::<4>)]
    pub lag_tx_port_affinity: u8,
    /// State of the queue pair, from 0 ([`QpcState::RESET`]) to 6 ([`QpcState::ERROR`]).
    #[bits(4, into = low8::<4>)]
    pub state: u8,
}

impl QpcState {
    /// `state`: reset.
    pub const RESET: u8 = 0;
    /// `state`: initialised.
    pub const INIT: u8 = 1;
    /// `state`: ready to receive.
    pub const RTR: u8 = 2;
    /// `state`: ready to send.
    pub const RTS: u8 = 3;
    /// `state`: the send queue is in error.
    pub const SQ_ERROR: u8 = 4;
    /// `state`: the send queue is drained (`MLX5_QPC_STATE_SQDRAINED`).
    pub const SQ_DRAINED: u8 = 5;
    /// `state`: the whole queue pair is in error.
    pub const ERROR: u8 = 6;
    /// `st`: reliable connection.
    pub const RELIABLE_CONNECTION: u8 = 0;
    /// `pm_state`: migrated, which is also the state of queue pairs without a second path.
    pub const MIGRATED: u8 = 3;
}

/// Flags and protection domain of a queue pair.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcPd {
    /// Number of the protection domain.
    #[bits(24, into = low32::<24>)]
    pub pd: u32,
    #[bits(2)]
    __: u8,
    /// The send queue stops at a signature error.
    pub drain_sigerr: bool,
    #[bits(3)]
    __: u8,
    /// The device does not loop multicast packets back to the port that sent them.
    pub block_lb_mc: bool,
    /// Work requests carry a checksum of themselves (WQE signature).
    pub wq_signature: bool,
}

/// Sizes of a queue pair.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcSizes {
    #[bits(4)]
    __: u8,
    /// Receive requests may use the reserved local key.
    pub rlky: bool,
    /// The device writes received data in order.
    pub data_in_order: bool,
    /// Format of time stamps: 0 free-running, 1 the device's preferred format, 2 real time.
    #[bits(2, into = low8::<2>)]
    pub ts_format: u8,
    #[bits(3)]
    __: u8,
    /// Base-2 logarithm of the send queue's size in blocks.
    #[bits(4, into = low8::<4>)]
    pub log_sq_size: u8,
    /// The queue pair has no send queue.
    pub no_sq: bool,
    /// Base-2 logarithm of a receive slot's size in octowords.
    #[bits(3, into = low8::<3>)]
    pub log_rq_stride: u8,
    /// Base-2 logarithm of the receive queue's size in slots.
    #[bits(4, into = low8::<4>)]
    pub log_rq_size: u8,
    #[bits(1)]
    __: u8,
    /// Base-2 logarithm of the longest message in bytes.
    #[bits(5, into = low8::<5>)]
    pub log_msg_max: u8,
    /// The largest size of a packet (MTU), as a code from 1 (256 bytes) to 5 (4096 bytes).
    #[bits(3, into = low8::<3>)]
    pub mtu: u8,
}

/// Doorbell page of a queue pair.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcUar {
    /// Number of the UAR page with the queue pair's doorbell.
    #[bits(24, into = low32::<24>)]
    pub uar_page: u32,
    /// Number of the set of counters that count events of the queue pair.
    pub counter_set_id: u8,
}

/// Page size and peer of a queue pair.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcPeer {
    /// Number of the peer's queue pair.
    #[bits(24, into = low32::<24>)]
    pub remote_qpn: u32,
    /// Base-2 logarithm of the page size of the rings, less 12.
    #[bits(5, into = low8::<5>)]
    pub log_page_size: u8,
    #[bits(3)]
    __: u8,
}

/// Retries of a queue pair.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcRetry {
    #[bits(5)]
    __: u8,
    /// Remaining retries after a time-out.
    #[bits(3, into = low8::<3>)]
    pub cur_retry_count: u8,
    /// Remaining retries when the peer has no receive request.
    #[bits(3, into = low8::<3>)]
    pub cur_rnr_retry: u8,
    /// The queue pair may post fast registrations.
    pub fre: bool,
    #[bits(1)]
    __: u8,
    /// Retries when the peer has no receive request; 7 for no limit.
    #[bits(3, into = low8::<3>)]
    pub rnr_retry: u8,
    /// Retries after a time-out.
    #[bits(3, into = low8::<3>)]
    pub retry_count: u8,
    #[bits(2)]
    __: u8,
    /// Base-2 logarithm of the largest number of RDMA READs and atomics in flight as requester.
    #[bits(3, into = low8::<3>)]
    pub log_sra_max: u8,
    #[bits(4)]
    __: u8,
    /// Base-2 logarithm of the number of packets from one request for acknowledgement to the next.
    #[bits(4, into = low8::<4>)]
    pub log_ack_req_freq: u8,
}

/// The rights of the peer, and the place of the rings.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcRights {
    #[bits(6)]
    __: u8,
    /// Offset of the rings in their first page, in units of 64 bytes.
    #[bits(6, into = low8::<6>)]
    pub page_offset: u8,
    #[bits(1)]
    __: u8,
    /// The peer's right to atomics.
    pub rae: bool,
    /// The peer's right to RDMA WRITE.
    pub rwe: bool,
    /// The peer's right to RDMA READ.
    pub rre: bool,
    /// Kind of atomics that the peer may request, as a code (kernel `MLX5_ATOMIC_MODE_*`).
    #[bits(4, into = low8::<4>)]
    pub atomic_mode: u8,
    #[bits(1)]
    __: u8,
    /// Base-2 logarithm of the largest number of RDMA READs and atomics in flight as responder.
    #[bits(3, into = low8::<3>)]
    pub log_rra_max: u8,
    __: u8,
}

impl QpcRights {
    /// Kind of atomics: those of the InfiniBand specification (`MLX5_ATOMIC_MODE_IB_COMP`).
    pub const ATOMIC_MODE_IB: u8 = 1;
    /// Kind of atomics: also masked ones, of up to 8 bytes (`MLX5_ATOMIC_MODE_8B`).
    pub const ATOMIC_MODE_8_BYTES: u8 = 3;
}

/// Receiver-not-ready timer, and number of the next packet to receive.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcReceive {
    /// Number of the next packet to receive.
    #[bits(24, into = low32::<24>)]
    pub next_rcv_psn: u32,
    /// How long the peer waits before a retry when this side has no receive request, as a code of the
    /// InfiniBand specification.
    #[bits(5, into = low8::<5>)]
    pub min_rnr_nak: u8,
    #[bits(3)]
    __: u8,
}

/// Kind of receive queue.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcReceiveQueue {
    /// Number of the shared receive queue, for [`QpcReceiveQueue::SHARED`].
    #[bits(24, into = low32::<24>)]
    pub srqn_rmpn_xrqn: u32,
    /// Kind: [`QpcReceiveQueue::REGULAR`], [`QpcReceiveQueue::SHARED`] or [`QpcReceiveQueue::NONE`].
    #[bits(3, into = low8::<3>)]
    pub rq_type: u8,
    #[bits(5)]
    __: u8,
}

impl QpcReceiveQueue {
    /// `rq_type`: the queue pair has its own receive queue.
    pub const REGULAR: u8 = 0;
    /// `rq_type`: the queue pair uses the shared receive queue `srqn_rmpn_xrqn`.
    pub const SHARED: u8 = 1;
    /// `rq_type`: the queue pair has no receive queue (`ZERO_SIZE_RQ`).
    pub const NONE: u8 = 3;
}

/// The destination of received data: memory, or completion entries.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcScatter {
    /// How much received data a responder writes into a completion entry (kernel `MLX5_RES_SCAT_DATA*_CQE`):
    /// 0 none, 1 up to 32 bytes, 2 up to 64 bytes.
    pub cs_res: u8,
    /// How much received data a requester writes into a completion entry (kernel `MLX5_REQ_SCAT_DATA*_CQE`):
    /// 0 none, 0x11 up to 32 bytes, 0x22 up to 64 bytes.
    pub cs_req: u8,
    __: u16,
}

/// The place of the doorbell record.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpcDoorbell {
    #[bits(28)]
    __: u32,
    /// The doorbell record is in user memory, at the offset in [`Qpc::dbr_addr`].
    pub dbr_umem_valid: bool,
    #[bits(3)]
    __: u8,
}

/// The context of a queue pair, 232 bytes (PRM `qpc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Qpc {
    /// State, service type and path migration, see [`QpcState`].
    pub state: U32,
    /// Flags and protection domain of a queue pair, see [`QpcPd`].
    pub pd: U32,
    /// Sizes of a queue pair, see [`QpcSizes`].
    pub sizes: U32,
    /// Doorbell page of a queue pair, see [`QpcUar`].
    pub uar: U32,
    /// User index, in the low 24 bits.
    pub user_index: U32,
    /// Page size and peer of a queue pair, see [`QpcPeer`].
    pub peer: U32,
    /// The path to the peer.
    pub primary_path: AddressPath,
    /// Unused by this library.
    pub secondary_path: AddressPath,
    /// Retries of a queue pair, see [`QpcRetry`].
    pub retry: U32,
    /// Reserved.
    pub reserved0: U32,
    /// Number of the next packet to send, in the low 24 bits.
    pub next_send_psn: U32,
    /// Number of the completion queue for send requests, in the low 24 bits.
    pub cqn_snd: U32,
    /// Unused by this library.
    pub deth_sqpn: U32,
    /// Reserved.
    pub reserved1: U32,
    /// Number of the last packet that was acknowledged, in the low 24 bits.
    pub last_acked_psn: U32,
    /// Number of the next message to send, in the low 24 bits.
    pub ssn: U32,
    /// The rights of the peer, see [`QpcRights`].
    pub rights: U32,
    /// Receiver-not-ready timer, and number of the next packet to receive, see [`QpcReceive`].
    pub receive: U32,
    /// Unused by this library.
    pub xrcd: U32,
    /// Number of the completion queue for receive requests, in the low 24 bits.
    pub cqn_rcv: U32,
    /// Address of the doorbell record, or its offset in user memory.
    pub dbr_addr: U64,
    /// Unused by this library.
    pub q_key: U32,
    /// Kind of receive queue, see [`QpcReceiveQueue`].
    pub receive_queue: U32,
    /// Number of the last message that was received, in the low 24 bits.
    pub rmsn: U32,
    /// Number of the send queue's block that the device executes next.
    pub hw_sq_wqebb_counter: U16,
    /// Number of the block after the last send request that software has published.
    pub sw_sq_wqebb_counter: U16,
    /// Number of receive requests that the device has taken.
    pub hw_rq_counter: U32,
    /// Number of receive requests that software has published.
    pub sw_rq_counter: U32,
    /// Reserved.
    pub reserved2: U32,
    /// The destination of received data: memory, or completion entries, see [`QpcScatter`].
    pub scatter: U32,
    /// Unused by this library.
    pub dc_access_key: U64,
    /// The place of the doorbell record, see [`QpcDoorbell`].
    pub doorbell: U32,
    /// Reserved.
    pub reserved3: [U32; 4],
    /// Number of the user memory that holds the doorbell record.
    pub dbr_umem_id: U32,
}

crate::fmt::defmt_as_bytes!(AddressPath, Qpc);

const _: () = assert!(size_of::<AddressPath>() == 44);
const _: () = assert!(core::mem::offset_of!(AddressPath, rgid_rip) == 0x10);
const _: () = assert!(core::mem::offset_of!(AddressPath, rmac) == 0x26);
const _: () = assert!(size_of::<Qpc>() == 232);
const _: () = assert!(core::mem::offset_of!(Qpc, user_index) == 0x10);
const _: () = assert!(core::mem::offset_of!(Qpc, primary_path) == 0x18);
const _: () = assert!(core::mem::offset_of!(Qpc, retry) == 0x70);
const _: () = assert!(core::mem::offset_of!(Qpc, next_send_psn) == 0x78);
const _: () = assert!(core::mem::offset_of!(Qpc, cqn_snd) == 0x7c);
const _: () = assert!(core::mem::offset_of!(Qpc, rights) == 0x90);
const _: () = assert!(core::mem::offset_of!(Qpc, cqn_rcv) == 0x9c);
const _: () = assert!(core::mem::offset_of!(Qpc, dbr_addr) == 0xa0);
const _: () = assert!(core::mem::offset_of!(Qpc, hw_sq_wqebb_counter) == 0xb4);
const _: () = assert!(core::mem::offset_of!(Qpc, scatter) == 0xc4);
const _: () = assert!(core::mem::offset_of!(Qpc, doorbell) == 0xd0);
const _: () = assert!(core::mem::offset_of!(Qpc, dbr_umem_id) == 0xe4);
const _: () = assert!(QpcPd::new().with_drain_sigerr(true).into_bits() == 1 << 26);
