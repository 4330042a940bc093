//! Structures and constants of libibverbs and libmlx5, with the layouts and values of their public headers.
//!
//! The module is public but hidden from the documentation, because the tests that compare this library with
//! libmlx5 use the same definitions.

#![allow(missing_docs, missing_debug_implementations)] // The man pages and headers describe the fields.

use core::ffi::{c_int, c_void};
use core::ptr;

/// Opaque objects of libibverbs and libmlx5.
pub enum IbvDevice {}
pub enum IbvContext {}
pub enum IbvAh {}
pub enum DevxObj {}

/// libibverbs' `struct ibv_pd`.
#[repr(C)]
pub struct IbvPd {
    pub context: *mut IbvContext,
    pub handle: u32,
}

/// libibverbs' `struct ibv_qp`: only its fields up to the number of the queue pair, which this library reads.
#[repr(C)]
pub struct IbvQp {
    pub context: *mut IbvContext,
    pub qp_context: *mut c_void,
    pub pd: *mut IbvPd,
    pub send_cq: *mut IbvCq,
    pub recv_cq: *mut IbvCq,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
}

/// libibverbs' `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// libibverbs' `struct ibv_qp_attr`. The fields from `gid` to `ah_port` are those of its member `ah_attr`.
#[repr(C)]
#[derive(Default)]
pub struct IbvQpAttr {
    pub state: u32,
    pub current_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp: u32,
    pub access: u32,
    pub cap: QpCap,
    pub gid: [u64; 2],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub ah_port: u8,
    pub alternate: [u64; 4],
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub notify: u8,
    pub draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port: u8,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub alt_port: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

const _: () = assert!(size_of::<IbvQpAttr>() == 144 && core::mem::offset_of!(IbvQpAttr, gid) == 56);
const _: () = assert!(core::mem::offset_of!(IbvQpAttr, alternate) == 88);
const _: () = assert!(core::mem::offset_of!(IbvQpAttr, timeout) == 130);

/// libibverbs' `struct ibv_cq`: only its first field, which this library reads.
#[repr(C)]
pub struct IbvCq {
    pub context: *mut IbvContext,
}

/// libibverbs' `struct ibv_mr`.
#[repr(C)]
#[derive(Default)]
pub struct IbvMr {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
    pub address: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// libmlx5's `struct mlx5dv_context_attr`.
#[repr(C)]
pub struct ContextAttr {
    pub flags: u32,
    pub comp_mask: u64,
    pub fds: *mut c_void,
}

/// libmlx5's constant `MLX5DV_CONTEXT_FLAGS_DEVX`.
pub const CONTEXT_DEVX: u32 = 1;

/// libmlx5's `struct mlx5dv_pd`.
#[repr(C)]
#[derive(Default)]
pub struct Mlx5dvPd {
    pub pdn: u32,
    pub comp_mask: u64,
}

/// libmlx5's `struct mlx5_wqe_av`: the address of a peer. Its fields are big endian.
#[repr(C)]
pub struct Mlx5WqeAv {
    pub key_and_qpn: [u32; 3],
    pub rate_and_service_level: u8,
    pub path_bits: u8,
    /// LID of the peer on InfiniBand, UDP source port on Ethernet; 0 for RoCE v1.
    pub lid_or_port: [u8; 2],
    pub reserved: [u8; 4],
    pub mac: [u8; 6],
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub gid_index_and_flow_label: u32,
    pub gid: [u8; 16],
}

/// libmlx5's `struct mlx5dv_ah`.
#[repr(C)]
pub struct Mlx5dvAh {
    pub av: *mut Mlx5WqeAv,
    pub comp_mask: u64,
}

/// The send or the receive ring in `struct mlx5dv_qp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Mlx5dvRing {
    pub buf: *mut c_void,
    pub wqe_cnt: u32,
    pub stride: u32,
}

/// libmlx5's `struct mlx5dv_qp`.
#[repr(C)]
pub struct Mlx5dvQp {
    pub dbrec: *mut c_void,
    pub sq: Mlx5dvRing,
    pub rq: Mlx5dvRing,
    pub bf_reg: *mut c_void,
    pub bf_size: u32,
    pub comp_mask: u64,
    pub uar_mmap_offset: i64,
    pub raw_numbers: [u32; 4],
    pub tir_icm_addr: u64,
}

/// libmlx5's `struct mlx5dv_cq`.
#[repr(C)]
pub struct Mlx5dvCq {
    pub buf: *mut c_void,
    pub dbrec: *mut c_void,
    pub cqe_cnt: u32,
    pub cqe_size: u32,
    pub cq_uar: *mut c_void,
    pub cqn: u32,
    pub comp_mask: u64,
}

impl Mlx5dvCq {
    /// An empty description of a completion queue, for libmlx5 to fill in. Its `comp_mask` of 0 asks for no
    /// optional field.
    pub const NONE: Self = Self {
        buf: ptr::null_mut(),
        dbrec: ptr::null_mut(),
        cqe_cnt: 0,
        cqe_size: 0,
        cq_uar: ptr::null_mut(),
        cqn: 0,
        comp_mask: 0,
    };
}

/// A field of `struct mlx5dv_obj`: an object, and the place where libmlx5 writes the object's description.
#[repr(C)]
pub struct Described<I, O> {
    pub object: *mut I,
    pub out: *mut O,
}

impl<I, O> Described<I, O> {
    pub const NONE: Self = Self { object: ptr::null_mut(), out: ptr::null_mut() };
}

/// libmlx5's `struct mlx5dv_obj`.
#[repr(C)]
pub struct Mlx5dvObj {
    pub qp: Described<IbvQp, Mlx5dvQp>,
    pub cq: Described<IbvCq, Mlx5dvCq>,
    pub others: [Described<c_void, c_void>; 3],
    pub ah: Described<IbvAh, Mlx5dvAh>,
    pub pd: Described<IbvPd, Mlx5dvPd>,
    pub devx: Described<c_void, c_void>,
}

impl Mlx5dvObj {
    /// A `struct mlx5dv_obj` that asks for the description of no object.
    pub const NONE: Self = Self {
        qp: Described::NONE,
        cq: Described::NONE,
        others: [const { Described::NONE }; 3],
        ah: Described::NONE,
        pd: Described::NONE,
        devx: Described::NONE,
    };
}

/// libmlx5's constant `MLX5DV_OBJ_QP`.
pub const OBJ_QP: u64 = 1 << 0;
/// libmlx5's constant `MLX5DV_OBJ_CQ`.
pub const OBJ_CQ: u64 = 1 << 1;
/// libmlx5's constant `MLX5DV_OBJ_AH`.
pub const OBJ_AH: u64 = 1 << 5;
/// libmlx5's constant `MLX5DV_OBJ_PD`.
pub const OBJ_PD: u64 = 1 << 6;

/// libibverbs' `struct ibv_ah_attr`, whose member `struct ibv_global_route` comes first (the fields from
/// `gid` to `reserved`).
#[repr(C, align(8))]
#[derive(Default)]
pub struct IbvAhAttr {
    pub gid: [u8; 16],
    pub flow_label: u32,
    pub source_gid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u8,
    pub lid: u16,
    pub service_level: u8,
    pub path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port: u8,
}

const _: () = assert!(size_of::<IbvAhAttr>() == 32 && core::mem::offset_of!(IbvAhAttr, lid) == 24);
const _: () = assert!(core::mem::offset_of!(IbvQp, qp_num) == 52);
const _: () = assert!(size_of::<IbvMr>() == 48 && size_of::<Mlx5dvObj>() == 128);
const _: () = assert!(size_of::<Mlx5dvQp>() == 96 && core::mem::offset_of!(Mlx5dvQp, bf_reg) == 40);
const _: () = assert!(size_of::<Mlx5dvCq>() == 48 && core::mem::offset_of!(Mlx5dvCq, cqn) == 32);
const _: () = assert!(size_of::<Mlx5WqeAv>() == 48 && core::mem::offset_of!(Mlx5WqeAv, mac) == 20);

/// libibverbs' `struct ibv_port_attr`. The exported function `ibv_query_port` fills in only the fields up to
/// `flags`.
#[repr(C)]
#[derive(Default)]
pub struct IbvPortAttr {
    pub state: u32,
    pub max_mtu: u32,
    pub active_mtu: u32,
    pub gid_table: c_int,
    pub capabilities: u32,
    pub max_message: u32,
    pub bad_pkeys: u32,
    pub bad_qkeys: u32,
    pub pkey_table: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl: u8,
    pub sm_service_level: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub physical_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub capabilities2: u16,
    pub active_speed_ex: u32,
}

/// libibverbs' constant `IBV_LINK_LAYER_ETHERNET`.
pub const LINK_LAYER_ETHERNET: u8 = 2;

/// libmlx5's `struct mlx5dv_clock_info`.
#[repr(C)]
#[derive(Default)]
pub struct ClockInfoRaw {
    pub nsec: u64,
    pub last_cycles: u64,
    pub frac: u64,
    pub mult: u32,
    pub shift: u32,
    pub mask: u64,
}

/// libmlx5's `struct mlx5dv_context`: the fields up to the clock, and in `rest` memory for the fields of
/// later versions. libmlx5 fills in the fields that the caller asks for.
#[repr(C)]
pub struct Mlx5dvContext {
    pub version: u8,
    pub flags: u64,
    pub comp_mask: u64,
    pub capabilities: [u32; 11],
    pub max_clock_info_update_nsec: u64,
    pub flow_and_odp: [u32; 2],
    pub hca_core_clock: *mut c_void,
    pub rest: [u64; 64],
}

/// libmlx5's constant `MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK`.
pub const CONTEXT_CORE_CLOCK: u64 = 1 << 8;

const _: () = assert!(core::mem::offset_of!(Mlx5dvContext, capabilities) == 24);
const _: () = assert!(core::mem::offset_of!(Mlx5dvContext, hca_core_clock) == 88);

/// libmlx5's `struct mlx5dv_devx_umem`.
#[repr(C)]
pub struct DevxUmem {
    pub umem_id: u32,
}

/// libmlx5's `struct mlx5dv_devx_umem_in`.
#[repr(C)]
pub struct DevxUmemIn {
    pub addr: *mut c_void,
    pub size: usize,
    pub access: u32,
    pub pgsz_bitmap: u64,
    pub comp_mask: u64,
    pub dmabuf_fd: c_int,
}

/// libmlx5's constant `MLX5DV_UMEM_MASK_DMABUF`.
pub const UMEM_DMABUF: u64 = 1 << 0;

const _: () = assert!(size_of::<DevxUmemIn>() == 48 && core::mem::offset_of!(DevxUmemIn, dmabuf_fd) == 40);

/// libmlx5's `struct mlx5dv_devx_uar`.
#[repr(C)]
pub struct DevxUar {
    pub reg_addr: *mut c_void,
    pub base_addr: *mut c_void,
    pub page_id: u32,
    pub mmap_off: i64,
    pub comp_mask: u64,
}

/// libmlx5's `struct mlx5dv_devx_cmd_comp`.
#[repr(C)]
pub struct CommandChannelRaw {
    pub fd: c_int,
}

/// libmlx5's `struct mlx5dv_devx_event_channel`.
#[repr(C)]
pub struct EventChannelRaw {
    pub fd: c_int,
}

/// libmlx5's constant `MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA`.
pub const EVENT_CHANNEL_OMIT_DATA: c_int = 1;
