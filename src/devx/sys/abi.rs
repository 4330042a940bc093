//! Structures and constants of libibverbs and libmlx5, as their public headers have them.

use core::ffi::{c_int, c_void};

/// Opaque objects of the libraries.
pub(super) enum IbvDevice {}
pub(super) enum IbvContext {}
pub(super) enum DevxObj {}

/// `struct ibv_pd`.
#[repr(C)]
pub(super) struct IbvPd {
    pub(super) context: *mut IbvContext,
    pub(super) handle: u32,
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

/// `struct mlx5dv_obj`: pairs of an object and where to describe it. Only the seventh is used.
#[repr(C)]
pub(super) struct Mlx5dvObj {
    pub(super) others: [*mut c_void; 12],
    pub(super) pd: *mut IbvPd,
    pub(super) pd_out: *mut Mlx5dvPd,
    pub(super) devx: [*mut c_void; 2],
}

/// `MLX5DV_OBJ_PD`.
pub(super) const OBJ_PD: u64 = 1 << 6;

/// `struct mlx5dv_devx_umem`.
#[repr(C)]
pub(super) struct DevxUmem {
    pub(super) umem_id: u32,
}

/// `struct mlx5dv_devx_uar`.
#[repr(C)]
pub(super) struct DevxUar {
    pub(super) reg_addr: *mut c_void,
    pub(super) base_addr: *mut c_void,
    pub(super) page_id: u32,
    pub(super) mmap_off: i64,
    pub(super) comp_mask: u64,
}

/// `struct mlx5dv_devx_event_channel`.
#[repr(C)]
pub(super) struct EventChannelRaw {
    pub(super) fd: c_int,
}

/// `MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA` is not set: events carry their data.
pub(super) const EVENT_CHANNEL_FLAGS: c_int = 0;
