//! Structures of the public headers of rdma-core 44, which programs pass to the installed libmlx5. More of
//! them are in the module `mlx5_mkey::devx::abi`.

#![allow(missing_docs)] // The man pages and headers describe the fields.

use core::ffi::{c_int, c_void};
pub use mlx5_mkey::devx::abi::{IbvCq, IbvMr, IbvPd, IbvQp, IbvQpAttr, Mlx5dvCq, Mlx5dvObj, Mlx5dvQp, QpCap};

/// `struct ibv_context`: its fields up to the last function pointer that inline functions of the headers
/// call.
#[repr(C)]
pub struct IbvContext {
    pub device: *mut c_void,
    pub before: [*const c_void; 11],
    pub poll_cq: unsafe extern "C" fn(*mut c_void, c_int, *mut WorkCompletion) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    pub between: [*const c_void; 13],
    pub post_recv: unsafe extern "C" fn(*mut IbvQp, *const RecvWr, *mut *const RecvWr) -> c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkCompletion {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub others: [u32; 8],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *const RecvWr,
    pub sges: *const IbvSge,
    pub count: c_int,
}

/// `struct ibv_qp_init_attr_ex`.
#[repr(C)]
#[derive(Default)]
pub struct QpInitAttr {
    pub context: *mut c_void,
    pub send_cq: *mut c_void,
    pub recv_cq: *mut c_void,
    pub srq: *mut c_void,
    pub cap: QpCap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut c_void,
    pub between: [u64; 7],
    pub send_ops_flags: u64,
}

/// `struct mlx5dv_qp_init_attr`.
#[repr(C)]
#[derive(Default)]
pub struct Mlx5QpInitAttr {
    pub comp_mask: u64,
    pub between: [u64; 3],
    pub send_ops_flags: u64,
}

/// `struct mlx5dv_mkey_init_attr`.
#[repr(C)]
pub struct MkeyInitAttr {
    pub pd: *mut c_void,
    pub create_flags: u32,
    pub max_entries: u16,
}

/// `struct mlx5dv_mkey`.
#[repr(C)]
pub struct MkeyRaw {
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct mlx5dv_mkey_err`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MkeyError {
    /// The kind of the error: 0 none, 1 guard, 2 reference tag, 3 application tag.
    pub kind: u32,
    pub actual: u64,
    pub expected: u64,
    pub offset: u64,
}

/// `struct mlx5dv_dek_init_attr`.
#[repr(C)]
pub struct DekInitAttr {
    pub key_size: u32,
    pub has_keytag: bool,
    pub purpose: u32,
    pub pd: *mut c_void,
    pub opaque: [u8; 8],
    pub key: [u8; 128],
    pub comp_mask: u64,
    pub login: *mut c_void,
}

/// `struct ibv_sge`.
#[repr(C)]
pub struct IbvSge {
    pub address: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct mlx5dv_mr_interleaved`.
#[repr(C)]
pub struct Interleaved {
    pub address: u64,
    pub bytes: u32,
    pub skip: u32,
    pub lkey: u32,
}

/// `struct mlx5dv_sig_t10dif`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct DifAttr {
    pub guard: u32,
    pub seed: u16,
    pub app_tag: u16,
    pub ref_tag: u32,
    pub flags: u16,
}

/// `struct mlx5dv_sig_crc`.
#[repr(C)]
pub struct CrcAttr {
    pub kind: u32,
    pub seed: u64,
}

/// `struct mlx5dv_sig_block_domain`.
#[repr(C)]
pub struct DomainAttr {
    pub kind: u32,
    pub details: *const c_void,
    pub block_size: u32,
    pub comp_mask: u64,
}

/// `struct mlx5dv_sig_block_attr`.
#[repr(C)]
pub struct SigBlockAttr {
    pub memory: *const DomainAttr,
    pub wire: *const DomainAttr,
    pub flags: u32,
    pub check_mask: u8,
    pub copy_mask: u8,
    pub comp_mask: u64,
}

/// `struct mlx5dv_crypto_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CryptoAttr {
    pub standard: u32,
    pub encrypt_on_tx: bool,
    pub order: u32,
    pub data_unit: u32,
    pub tweak: [u8; 16],
    pub dek: *mut c_void,
    pub keytag: [u8; 8],
    pub comp_mask: u64,
}

/// `struct mlx5dv_mkey_conf_attr`.
#[repr(C)]
pub struct ConfAttr {
    pub flags: u32,
    pub comp_mask: u64,
}

/// `struct ibv_qp_ex`.
#[repr(C)]
pub struct QpEx {
    pub base: [u64; 20],
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: u32,
    pub atomic_cmp_swp: unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64),
    pub atomic_fetch_add: unsafe extern "C" fn(*mut QpEx, u32, u64, u64),
    pub bind_mw: unsafe extern "C" fn(*mut QpEx, *const IbvMw, u32, *const BindInfo),
    pub local_inv: unsafe extern "C" fn(*mut QpEx, u32),
    pub rdma_read: unsafe extern "C" fn(*mut QpEx, u32, u64),
    pub rdma_write: unsafe extern "C" fn(*mut QpEx, u32, u64),
    pub rdma_write_imm: unsafe extern "C" fn(*mut QpEx, u32, u64, u32),
    pub send: unsafe extern "C" fn(*mut QpEx),
    pub send_imm: unsafe extern "C" fn(*mut QpEx, u32),
    pub send_inv: unsafe extern "C" fn(*mut QpEx, u32),
    pub between: [*const c_void; 3],
    pub set_inline_data: unsafe extern "C" fn(*mut QpEx, *const c_void, usize),
    pub set_inline_data_list: *const c_void,
    pub set_sge: unsafe extern "C" fn(*mut QpEx, u32, u64, u32),
    pub set_sge_list: unsafe extern "C" fn(*mut QpEx, usize, *const IbvSge),
    pub start: unsafe extern "C" fn(*mut QpEx),
    pub complete: unsafe extern "C" fn(*mut QpEx) -> c_int,
    pub behind: [*const c_void; 2],
}

/// `struct mlx5dv_qp_ex`.
#[repr(C)]
pub struct Mlx5QpEx {
    pub comp_mask: u64,
    pub set_dc_addr: *const c_void,
    pub mr_interleaved: unsafe extern "C" fn(*mut Mlx5QpEx, *mut MkeyRaw, u32, u32, u16, *const Interleaved),
    pub mr_list: unsafe extern "C" fn(*mut Mlx5QpEx, *mut MkeyRaw, u32, u16, *const IbvSge),
    pub mkey_configure: unsafe extern "C" fn(*mut Mlx5QpEx, *mut MkeyRaw, u8, *mut ConfAttr),
    pub set_mkey_access: unsafe extern "C" fn(*mut Mlx5QpEx, u32),
    pub set_mkey_list: unsafe extern "C" fn(*mut Mlx5QpEx, u16, *const IbvSge),
    pub set_mkey_interleaved: unsafe extern "C" fn(*mut Mlx5QpEx, u32, u16, *const Interleaved),
    pub set_mkey_sig: unsafe extern "C" fn(*mut Mlx5QpEx, *const SigBlockAttr),
    pub raw_wqe: unsafe extern "C" fn(*mut Mlx5QpEx, *const c_void),
    pub set_dc_addr_stream: *const c_void,
    pub memcpy: unsafe extern "C" fn(*mut Mlx5QpEx, u32, u64, u32, u64, usize),
    pub set_mkey_crypto: unsafe extern "C" fn(*mut Mlx5QpEx, *const CryptoAttr),
}

const _: () = assert!(core::mem::offset_of!(IbvContext, poll_cq) == 96);
const _: () = assert!(core::mem::offset_of!(IbvContext, post_recv) == 216);

/// `struct ibv_mw`, of which posting reads the key and the type only.
#[repr(C)]
#[derive(Default)]
pub struct IbvMw {
    pub context: *const c_void,
    pub pd: *const c_void,
    pub rkey: u32,
    pub handle: u32,
    pub kind: u32,
}

/// `struct ibv_mw_bind_info`.
#[repr(C)]
pub struct BindInfo {
    pub mr: *const IbvMr,
    pub address: u64,
    pub length: u64,
    pub access: u32,
}

const _: () = assert!(size_of::<WorkCompletion>() == 48 && size_of::<RecvWr>() == 32);
const _: () = assert!(size_of::<QpEx>() == 352 && size_of::<Mlx5QpEx>() == 104);
const _: () = assert!(size_of::<IbvMw>() == 32 && size_of::<BindInfo>() == 32);
const _: () = assert!(core::mem::offset_of!(QpEx, local_inv) == 208);
const _: () = assert!(core::mem::offset_of!(QpEx, set_sge) == 304);
const _: () = assert!(core::mem::offset_of!(QpEx, complete) == 328);
const _: () = assert!(core::mem::offset_of!(Mlx5QpEx, mkey_configure) == 32);
const _: () = assert!(core::mem::offset_of!(Mlx5QpEx, raw_wqe) == 72);
const _: () = assert!(core::mem::offset_of!(Mlx5QpEx, memcpy) == 88);
const _: () = assert!(size_of::<QpInitAttr>() == 136 && core::mem::offset_of!(QpInitAttr, pd) == 64);
const _: () = assert!(size_of::<Mlx5QpInitAttr>() == 40);
const _: () = assert!(size_of::<MkeyError>() == 32);
const _: () = assert!(size_of::<MkeyInitAttr>() == 16);
const _: () = assert!(size_of::<DekInitAttr>() == 176 && core::mem::offset_of!(DekInitAttr, key) == 32);
const _: () = assert!(size_of::<DifAttr>() == 16 && size_of::<CrcAttr>() == 16);
const _: () = assert!(size_of::<DomainAttr>() == 32 && size_of::<SigBlockAttr>() == 32);
const _: () = assert!(size_of::<CryptoAttr>() == 56 && size_of::<ConfAttr>() == 16);
const _: () = assert!(size_of::<Interleaved>() == 24 && size_of::<IbvSge>() == 16);
