//! Structures and constants of libibverbs and libmlx5, as their public headers have them.

use core::ffi::{c_int, c_void};
use core::ptr;

/// Opaque objects of the libraries.
pub(super) enum IbvDevice {}
pub(super) enum IbvContext {}
pub(super) enum IbvAh {}
pub(super) enum DevxObj {}

/// `struct ibv_pd`.
#[repr(C)]
pub(super) struct IbvPd {
    pub(super) context: *mut IbvContext,
    pub(super) handle: u32,
}

/// `struct ibv_qp`, as far as its number.
#[repr(C)]
pub(super) struct IbvQp {
    pub(super) context: *mut IbvContext,
    pub(super) qp_context: *mut c_void,
    pub(super) pd: *mut IbvPd,
    pub(super) send_cq: *mut IbvCq,
    pub(super) recv_cq: *mut IbvCq,
    pub(super) srq: *mut c_void,
    pub(super) handle: u32,
    pub(super) qp_num: u32,
}

/// `struct ibv_qp_attr`, as far as the states, and room for what follows.
#[repr(C)]
pub(super) struct IbvQpAttr {
    pub(super) state: u32,
    pub(super) current_state: u32,
    pub(super) rest: [u64; 31],
}

/// `struct ibv_cq`, as far as its device.
#[repr(C)]
pub(super) struct IbvCq {
    pub(super) context: *mut IbvContext,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(super) struct IbvMr {
    pub(super) context: *mut IbvContext,
    pub(super) pd: *mut IbvPd,
    pub(super) address: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `struct mlx5dv_context_attr`.
#[repr(C)]
pub(super) struct ContextAttr {
    pub(super) flags: u32,
    pub(super) comp_mask: u64,
    pub(super) fds: *mut c_void,
}

/// `MLX5DV_CONTEXT_FLAGS_DEVX`.
pub(super) const CONTEXT_DEVX: u32 = 1;

/// `struct mlx5dv_pd`.
#[repr(C)]
#[derive(Default)]
pub(super) struct Mlx5dvPd {
    pub(super) pdn: u32,
    pub(super) comp_mask: u64,
}

/// `struct mlx5_wqe_av`: how a peer is reached. Big endian.
#[repr(C)]
pub(super) struct Mlx5WqeAv {
    pub(super) key_and_qpn: [u32; 3],
    pub(super) rate_and_service_level: u8,
    pub(super) path_bits: u8,
    /// LID of the peer on InfiniBand, UDP source port on Ethernet; 0 for RoCE v1.
    pub(super) lid_or_port: [u8; 2],
    pub(super) reserved: [u8; 4],
    pub(super) mac: [u8; 6],
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) gid_index_and_flow_label: u32,
    pub(super) gid: [u8; 16],
}

/// `struct mlx5dv_ah`.
#[repr(C)]
pub(super) struct Mlx5dvAh {
    pub(super) av: *mut Mlx5WqeAv,
    pub(super) comp_mask: u64,
}

/// A ring, as `struct mlx5dv_qp` has two.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Mlx5dvRing {
    pub(super) buf: *mut c_void,
    pub(super) wqe_cnt: u32,
    pub(super) stride: u32,
}

/// `struct mlx5dv_qp`.
#[repr(C)]
pub(super) struct Mlx5dvQp {
    pub(super) dbrec: *mut c_void,
    pub(super) sq: Mlx5dvRing,
    pub(super) rq: Mlx5dvRing,
    pub(super) bf_reg: *mut c_void,
    pub(super) bf_size: u32,
    pub(super) comp_mask: u64,
    pub(super) uar_mmap_offset: i64,
    pub(super) raw_numbers: [u32; 4],
    pub(super) tir_icm_addr: u64,
}

/// `struct mlx5dv_cq`.
#[repr(C)]
pub(super) struct Mlx5dvCq {
    pub(super) buf: *mut c_void,
    pub(super) dbrec: *mut c_void,
    pub(super) cqe_cnt: u32,
    pub(super) cqe_size: u32,
    pub(super) cq_uar: *mut c_void,
    pub(super) cqn: u32,
    pub(super) comp_mask: u64,
}

/// An object, and where to describe it.
#[repr(C)]
pub(super) struct Described<I, O> {
    pub(super) object: *mut I,
    pub(super) out: *mut O,
}

impl<I, O> Described<I, O> {
    const NONE: Self = Self { object: ptr::null_mut(), out: ptr::null_mut() };
}

/// `struct mlx5dv_obj`.
#[repr(C)]
pub(super) struct Mlx5dvObj {
    pub(super) qp: Described<IbvQp, Mlx5dvQp>,
    pub(super) cq: Described<IbvCq, Mlx5dvCq>,
    pub(super) others: [Described<c_void, c_void>; 3],
    pub(super) ah: Described<IbvAh, Mlx5dvAh>,
    pub(super) pd: Described<IbvPd, Mlx5dvPd>,
    pub(super) devx: Described<c_void, c_void>,
}

impl Mlx5dvObj {
    /// Describes nothing.
    pub(super) const NONE: Self = Self {
        qp: Described::NONE,
        cq: Described::NONE,
        others: [const { Described::NONE }; 3],
        ah: Described::NONE,
        pd: Described::NONE,
        devx: Described::NONE,
    };
}

/// `MLX5DV_OBJ_QP`.
pub(super) const OBJ_QP: u64 = 1 << 0;
/// `MLX5DV_OBJ_CQ`.
pub(super) const OBJ_CQ: u64 = 1 << 1;
/// `MLX5DV_OBJ_AH`.
pub(super) const OBJ_AH: u64 = 1 << 5;
/// `MLX5DV_OBJ_PD`.
pub(super) const OBJ_PD: u64 = 1 << 6;

/// `struct ibv_ah_attr`, with `struct ibv_global_route` in front.
#[repr(C, align(8))]
#[derive(Default)]
pub(super) struct IbvAhAttr {
    pub(super) gid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) source_gid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) reserved: u8,
    pub(super) lid: u16,
    pub(super) service_level: u8,
    pub(super) path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

const _: () = assert!(size_of::<IbvAhAttr>() == 32 && core::mem::offset_of!(IbvAhAttr, lid) == 24);
const _: () = assert!(core::mem::offset_of!(IbvQp, qp_num) == 52);
const _: () = assert!(size_of::<Mlx5dvQp>() == 96 && core::mem::offset_of!(Mlx5dvQp, bf_reg) == 40);
const _: () = assert!(size_of::<Mlx5dvCq>() == 48 && core::mem::offset_of!(Mlx5dvCq, cqn) == 32);
const _: () = assert!(size_of::<Mlx5WqeAv>() == 48 && core::mem::offset_of!(Mlx5WqeAv, mac) == 20);

/// `struct ibv_port_attr`. The exported `ibv_query_port` fills it up to `flags`.
#[repr(C)]
#[derive(Default)]
pub(super) struct IbvPortAttr {
    pub(super) state: u32,
    pub(super) max_mtu: u32,
    pub(super) active_mtu: u32,
    pub(super) gid_table: c_int,
    pub(super) capabilities: u32,
    pub(super) max_message: u32,
    pub(super) bad_pkeys: u32,
    pub(super) bad_qkeys: u32,
    pub(super) pkey_table: u16,
    pub(super) lid: u16,
    pub(super) sm_lid: u16,
    pub(super) lmc: u8,
    pub(super) max_vl: u8,
    pub(super) sm_service_level: u8,
    pub(super) subnet_timeout: u8,
    pub(super) init_type_reply: u8,
    pub(super) active_width: u8,
    pub(super) active_speed: u8,
    pub(super) physical_state: u8,
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    pub(super) capabilities2: u16,
    pub(super) active_speed_ex: u32,
}

/// `IBV_LINK_LAYER_ETHERNET`.
pub(super) const LINK_LAYER_ETHERNET: u8 = 2;

/// `struct mlx5dv_clock_info`.
#[repr(C)]
#[derive(Default)]
pub(super) struct ClockInfoRaw {
    pub(super) nsec: u64,
    pub(super) last_cycles: u64,
    pub(super) frac: u64,
    pub(super) mult: u32,
    pub(super) shift: u32,
    pub(super) mask: u64,
}

/// `struct mlx5dv_context`, as far as the clock, and room for what later versions have: they fill in what is asked for.
#[repr(C)]
pub(super) struct Mlx5dvContext {
    pub(super) version: u8,
    pub(super) flags: u64,
    pub(super) comp_mask: u64,
    pub(super) capabilities: [u32; 11],
    pub(super) max_clock_info_update_nsec: u64,
    pub(super) flow_and_odp: [u32; 2],
    pub(super) hca_core_clock: *mut c_void,
    pub(super) rest: [u64; 64],
}

/// `MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK`.
pub(super) const CONTEXT_CORE_CLOCK: u64 = 1 << 8;

const _: () = assert!(core::mem::offset_of!(Mlx5dvContext, capabilities) == 24);
const _: () = assert!(core::mem::offset_of!(Mlx5dvContext, hca_core_clock) == 88);

/// `struct mlx5dv_devx_umem`.
#[repr(C)]
pub(super) struct DevxUmem {
    pub(super) umem_id: u32,
}

/// `struct mlx5dv_devx_umem_in`.
#[repr(C)]
pub(super) struct DevxUmemIn {
    pub(super) addr: *mut c_void,
    pub(super) size: usize,
    pub(super) access: u32,
    pub(super) pgsz_bitmap: u64,
    pub(super) comp_mask: u64,
    pub(super) dmabuf_fd: c_int,
}

/// `MLX5DV_UMEM_MASK_DMABUF`.
pub(super) const UMEM_DMABUF: u64 = 1 << 0;

const _: () = assert!(size_of::<DevxUmemIn>() == 48 && core::mem::offset_of!(DevxUmemIn, dmabuf_fd) == 40);

/// `struct mlx5dv_devx_uar`.
#[repr(C)]
pub(super) struct DevxUar {
    pub(super) reg_addr: *mut c_void,
    pub(super) base_addr: *mut c_void,
    pub(super) page_id: u32,
    pub(super) mmap_off: i64,
    pub(super) comp_mask: u64,
}

/// `struct mlx5dv_devx_cmd_comp`.
#[repr(C)]
pub(super) struct CommandChannelRaw {
    pub(super) fd: c_int,
}

/// `struct mlx5dv_devx_event_channel`.
#[repr(C)]
pub(super) struct EventChannelRaw {
    pub(super) fd: c_int,
}

/// `MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA`.
pub(super) const EVENT_CHANNEL_OMIT_DATA: c_int = 1;
