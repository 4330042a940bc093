//! The reference: libibverbs and libmlx5 as they are installed, loaded at run time.
//!
//! The layouts are those of the public headers of rdma-core 44. Work requests go through the functions that the extended
//! queue pair points to, which the headers call inline.

#![allow(unsafe_code)]

use super::case::{Config, Flags, Kind, Mapping, Payload, SignatureStep, Work};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use mlx5_mkey::mkey::{Crypto, Direction, Domain, Escape, Guard, Signature, SignatureOrder};
use mlx5_mkey::types::{BlockSize, Seed};
use std::io;
use std::rc::Rc;

/// Bytes that the reference's ring holds before a chain.
pub(super) const PATTERN: u8 = 0xcc;

/// `struct ibv_qp`, of which only the number is used.
#[repr(C)]
struct IbvQp {
    before: [u8; 52],
    number: u32,
    after: [u64; 13],
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct QpCap {
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
}

/// `struct ibv_qp_init_attr_ex`.
#[repr(C)]
struct QpInitAttr {
    context: *mut c_void,
    send_cq: *mut c_void,
    recv_cq: *mut c_void,
    srq: *mut c_void,
    cap: QpCap,
    qp_type: u32,
    sq_sig_all: c_int,
    comp_mask: u32,
    pd: *mut c_void,
    between: [u64; 7],
    send_ops_flags: u64,
}

/// `struct ibv_qp_attr`, with the address vector in parts.
#[repr(C)]
#[derive(Default)]
struct QpAttr {
    state: u32,
    current: u32,
    path_mtu: u32,
    path_mig_state: u32,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp: u32,
    access: u32,
    cap: QpCap,
    gid: [u64; 2],
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    ah_port: u8,
    alternate: [u64; 4],
    pkey_index: u16,
    alt_pkey_index: u16,
    notify: u8,
    draining: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    port: u8,
    timeout: u8,
    retry_count: u8,
    rnr_retry: u8,
    alt_port: u8,
    alt_timeout: u8,
    rate_limit: u32,
}

/// `struct mlx5dv_qp_init_attr`.
#[repr(C)]
#[derive(Default)]
struct Mlx5QpInitAttr {
    comp_mask: u64,
    between: [u64; 3],
    send_ops_flags: u64,
}

/// `struct mlx5dv_qp`.
#[repr(C)]
struct Mlx5Qp {
    record: *mut [u8; 8],
    ring: *mut u8,
    blocks: u32,
    stride: u32,
    after: [u64; 9],
}

/// `struct mlx5dv_obj`, of which only the first pair is used.
#[repr(C)]
struct Mlx5Obj {
    qp: *mut IbvQp,
    qp_out: *mut Mlx5Qp,
    others: [*mut c_void; 12],
}

/// `struct mlx5dv_mkey_init_attr`.
#[repr(C)]
struct MkeyInitAttr {
    pd: *mut c_void,
    create_flags: u32,
    max_entries: u16,
}

/// `struct mlx5dv_mkey`.
#[repr(C)]
struct MkeyRaw {
    lkey: u32,
    rkey: u32,
}

/// `struct mlx5dv_dek_init_attr`.
#[repr(C)]
struct DekInitAttr {
    key_size: u32,
    has_keytag: bool,
    purpose: u32,
    pd: *mut c_void,
    opaque: [u8; 8],
    key: [u8; 128],
    comp_mask: u64,
    login: *mut c_void,
}

/// `struct ibv_sge`.
#[repr(C)]
struct IbvSge {
    address: u64,
    length: u32,
    lkey: u32,
}

/// `struct mlx5dv_mr_interleaved`.
#[repr(C)]
struct Interleaved {
    address: u64,
    bytes: u32,
    skip: u32,
    lkey: u32,
}

/// `struct mlx5dv_sig_t10dif`.
#[repr(C)]
#[derive(Default)]
struct DifAttr {
    guard: u32,
    seed: u16,
    app_tag: u16,
    ref_tag: u32,
    flags: u16,
}

/// `struct mlx5dv_sig_crc`.
#[repr(C)]
#[derive(Default)]
struct CrcAttr {
    kind: u32,
    seed: u64,
}

/// `struct mlx5dv_sig_block_domain`.
#[repr(C)]
struct DomainAttr {
    kind: u32,
    details: *const c_void,
    block_size: u32,
    comp_mask: u64,
}

/// `struct mlx5dv_sig_block_attr`.
#[repr(C)]
struct SigBlockAttr {
    memory: *const DomainAttr,
    wire: *const DomainAttr,
    flags: u32,
    check_mask: u8,
    copy_mask: u8,
    comp_mask: u64,
}

/// `struct mlx5dv_crypto_attr`.
#[repr(C)]
struct CryptoAttr {
    standard: u32,
    encrypt_on_tx: bool,
    order: u32,
    data_unit: u32,
    tweak: [u8; 16],
    dek: *mut c_void,
    keytag: [u8; 8],
    comp_mask: u64,
}

/// `struct mlx5dv_mkey_conf_attr`.
#[repr(C)]
struct ConfAttr {
    flags: u32,
    comp_mask: u64,
}

/// `struct ibv_qp_ex`.
#[repr(C)]
struct QpEx {
    base: [u64; 20],
    comp_mask: u64,
    wr_id: u64,
    wr_flags: u32,
    atomic_cmp_swp: *const c_void,
    atomic_fetch_add: *const c_void,
    bind_mw: *const c_void,
    local_inv: unsafe extern "C" fn(*mut QpEx, u32),
    rdma_read: unsafe extern "C" fn(*mut QpEx, u32, u64),
    rdma_write: unsafe extern "C" fn(*mut QpEx, u32, u64),
    rdma_write_imm: unsafe extern "C" fn(*mut QpEx, u32, u64, u32),
    send: unsafe extern "C" fn(*mut QpEx),
    send_imm: unsafe extern "C" fn(*mut QpEx, u32),
    send_inv: unsafe extern "C" fn(*mut QpEx, u32),
    send_tso: *const c_void,
    set_ud_addr: *const c_void,
    set_xrc_srqn: *const c_void,
    set_inline_data: unsafe extern "C" fn(*mut QpEx, *const c_void, usize),
    set_inline_data_list: *const c_void,
    set_sge: unsafe extern "C" fn(*mut QpEx, u32, u64, u32),
    set_sge_list: unsafe extern "C" fn(*mut QpEx, usize, *const IbvSge),
    start: unsafe extern "C" fn(*mut QpEx),
    complete: unsafe extern "C" fn(*mut QpEx) -> c_int,
    abort: *const c_void,
    atomic_write: *const c_void,
}

/// `struct mlx5dv_qp_ex`.
#[repr(C)]
struct Mlx5QpEx {
    comp_mask: u64,
    set_dc_addr: *const c_void,
    mr_interleaved: *const c_void,
    mr_list: *const c_void,
    mkey_configure: unsafe extern "C" fn(*mut Mlx5QpEx, *mut MkeyRaw, u8, *mut ConfAttr),
    set_mkey_access: unsafe extern "C" fn(*mut Mlx5QpEx, u32),
    set_mkey_list: unsafe extern "C" fn(*mut Mlx5QpEx, u16, *const IbvSge),
    set_mkey_interleaved: unsafe extern "C" fn(*mut Mlx5QpEx, u32, u16, *const Interleaved),
    set_mkey_sig: unsafe extern "C" fn(*mut Mlx5QpEx, *const SigBlockAttr),
    raw_wqe: *const c_void,
    set_dc_addr_stream: *const c_void,
    memcpy: *const c_void,
    set_mkey_crypto: unsafe extern "C" fn(*mut Mlx5QpEx, *const CryptoAttr),
}

const _: () = assert!(size_of::<IbvQp>() == 160 && size_of::<QpEx>() == 352 && size_of::<Mlx5QpEx>() == 104);
const _: () = assert!(core::mem::offset_of!(QpEx, local_inv) == 208);
const _: () = assert!(core::mem::offset_of!(QpEx, set_sge) == 304);
const _: () = assert!(core::mem::offset_of!(QpEx, complete) == 328);
const _: () = assert!(core::mem::offset_of!(Mlx5QpEx, mkey_configure) == 32);
const _: () = assert!(size_of::<QpAttr>() == 144 && core::mem::offset_of!(QpAttr, gid) == 56);
const _: () = assert!(core::mem::offset_of!(QpAttr, alternate) == 88);
const _: () = assert!(core::mem::offset_of!(QpAttr, timeout) == 130);
const _: () = assert!(size_of::<QpInitAttr>() == 136 && core::mem::offset_of!(QpInitAttr, pd) == 64);
const _: () = assert!(size_of::<Mlx5QpInitAttr>() == 40 && size_of::<Mlx5Obj>() == 112);
const _: () = assert!(size_of::<Mlx5Qp>() == 96 && size_of::<MkeyInitAttr>() == 16);
const _: () = assert!(size_of::<DekInitAttr>() == 176 && core::mem::offset_of!(DekInitAttr, key) == 32);
const _: () = assert!(size_of::<DifAttr>() == 16 && size_of::<CrcAttr>() == 16);
const _: () = assert!(size_of::<DomainAttr>() == 32 && size_of::<SigBlockAttr>() == 32);
const _: () = assert!(size_of::<CryptoAttr>() == 56 && size_of::<ConfAttr>() == 16);
const _: () = assert!(size_of::<Interleaved>() == 24 && size_of::<IbvSge>() == 16);

/// Declares the functions that are looked up, each in its library.
macro_rules! api {
    ($($library:ident = $file:literal { $($name:ident: fn($($argument:ty),*) -> $result:ty;)+ })+) => {
        struct Api {
            $($($name: unsafe extern "C" fn($($argument),*) -> $result,)+)+
            // Never unloaded: libibverbs has threads and handlers of its own.
            _libraries: ManuallyDrop<[libloading::Library; 2]>,
        }

        impl Api {
            fn load() -> io::Result<Self> {
                $(
                    // SAFETY: these two libraries are written to be loaded by programs.
                    let $library = unsafe { libloading::Library::new($file) }.map_err(io::Error::other)?;
                )+
                Ok(Self {
                    $($($name: {
                        // SAFETY: the signature is that of the library's public header.
                        *unsafe { $library.get(concat!(stringify!($name), "\0").as_bytes()) }
                            .map_err(io::Error::other)?
                    },)+)+
                    _libraries: ManuallyDrop::new([$($library),+]),
                })
            }
        }
    };
}

api! {
    verbs = "libibverbs.so.1" {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut c_void;
        ibv_free_device_list: fn(*mut *mut c_void) -> ();
        ibv_get_device_name: fn(*mut c_void) -> *const c_char;
        ibv_open_device: fn(*mut c_void) -> *mut c_void;
        ibv_close_device: fn(*mut c_void) -> c_int;
        ibv_alloc_pd: fn(*mut c_void) -> *mut c_void;
        ibv_dealloc_pd: fn(*mut c_void) -> c_int;
        ibv_create_cq: fn(*mut c_void, c_int, *mut c_void, *mut c_void, c_int) -> *mut c_void;
        ibv_destroy_cq: fn(*mut c_void) -> c_int;
        ibv_query_gid: fn(*mut c_void, u8, c_int, *mut [u64; 2]) -> c_int;
        ibv_modify_qp: fn(*mut IbvQp, *mut QpAttr, c_int) -> c_int;
        ibv_destroy_qp: fn(*mut IbvQp) -> c_int;
        ibv_qp_to_qp_ex: fn(*mut IbvQp) -> *mut QpEx;
    }
    mlx5 = "libmlx5.so.1" {
        mlx5dv_create_qp: fn(*mut c_void, *mut QpInitAttr, *mut Mlx5QpInitAttr) -> *mut IbvQp;
        mlx5dv_qp_ex_from_ibv_qp_ex: fn(*mut QpEx) -> *mut Mlx5QpEx;
        mlx5dv_init_obj: fn(*mut Mlx5Obj, u64) -> c_int;
        mlx5dv_create_mkey: fn(*mut MkeyInitAttr) -> *mut MkeyRaw;
        mlx5dv_destroy_mkey: fn(*mut MkeyRaw) -> c_int;
        mlx5dv_dek_create: fn(*mut c_void, *mut DekInitAttr) -> *mut c_void;
        mlx5dv_dek_destroy: fn(*mut c_void) -> c_int;
    }
}

fn found<T>(what: &str, pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| {
        let error = io::Error::last_os_error();
        io::Error::new(error.kind(), format!("{what}: {error}"))
    })
}

/// An open device with what queue pairs and mkeys are made from.
pub(super) struct Device {
    api: Api,
    context: NonNull<c_void>,
    pd: NonNull<c_void>,
    cq: NonNull<c_void>,
    dek: NonNull<c_void>,
}

impl Device {
    /// Opens the device with this name.
    pub(super) fn open(name: &str) -> io::Result<Rc<Self>> {
        const CRYPTO_LOGIN: u64 = 1;
        let api = Api::load()?;
        let mut count = 0;
        // SAFETY: the pointer is to a place for the count.
        let list = found("ibv_get_device_list", unsafe { (api.ibv_get_device_list)(&mut count) })?;
        // SAFETY: the list has `count` devices.
        let devices =
            unsafe { core::slice::from_raw_parts(list.as_ptr(), usize::try_from(count).unwrap_or(0)) };
        let device = devices.iter().find(|&&device| {
            // SAFETY: the device is in a list that has not been freed, and has a name.
            unsafe { CStr::from_ptr((api.ibv_get_device_name)(device)) }.to_bytes() == name.as_bytes()
        });
        // SAFETY: as above.
        let context = device.map(|&device| unsafe { (api.ibv_open_device)(device) });
        // SAFETY: the list came from ibv_get_device_list; an open device keeps its own reference.
        unsafe { (api.ibv_free_device_list)(list.as_ptr()) };
        let context = context.ok_or_else(|| io::Error::other(format!("there is no device {name}")))?;
        let context = found("ibv_open_device", context)?;
        // SAFETY: the context is open.
        let pd = found("ibv_alloc_pd", unsafe { (api.ibv_alloc_pd)(context.as_ptr()) })?;
        // SAFETY: as above; no channel, no context of ours.
        let cq = unsafe { (api.ibv_create_cq)(context.as_ptr(), 64, ptr::null_mut(), ptr::null_mut(), 0) };
        let cq = found("ibv_create_cq", cq)?;
        let mut key = [0; 128];
        for (at, byte) in key.iter_mut().take(32).enumerate() {
            *byte = at as u8;
        }
        let mut attr = DekInitAttr {
            key_size: 0,
            has_keytag: false,
            purpose: 0,
            pd: pd.as_ptr(),
            opaque: [0; 8],
            key,
            // With a login, and it is none: the key is plaintext.
            comp_mask: CRYPTO_LOGIN,
            login: ptr::null_mut(),
        };
        // SAFETY: the context is open; the attributes are read during the call.
        let dek =
            found("mlx5dv_dek_create", unsafe { (api.mlx5dv_dek_create)(context.as_ptr(), &mut attr) })?;
        Ok(Rc::new(Self { api, context, pd, cq, dek }))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: each was made by `open`; queue pairs and mkeys held an Rc of this value and are gone.
        unsafe {
            (self.api.mlx5dv_dek_destroy)(self.dek.as_ptr());
            (self.api.ibv_destroy_cq)(self.cq.as_ptr());
            (self.api.ibv_dealloc_pd)(self.pd.as_ptr());
            (self.api.ibv_close_device)(self.context.as_ptr());
        }
    }
}

/// An mkey of the reference.
pub(super) struct RefMkey {
    device: Rc<Device>,
    raw: NonNull<MkeyRaw>,
}

impl RefMkey {
    pub(super) fn create(device: &Rc<Device>, kind: Kind, max_entries: u16) -> io::Result<Self> {
        const INDIRECT: u32 = 1;
        const SIGNATURE: u32 = 2;
        const CRYPTO: u32 = 4;
        const UPDATE_TAG: u32 = 8;
        let mut attr = MkeyInitAttr {
            pd: device.pd.as_ptr(),
            create_flags: INDIRECT
                | UPDATE_TAG
                | if kind.signature { SIGNATURE } else { 0 }
                | if kind.crypto { CRYPTO } else { 0 },
            max_entries,
        };
        // SAFETY: the PD is live; the attributes are read (and the entries written) during the call.
        let raw = found("mlx5dv_create_mkey", unsafe { (device.api.mlx5dv_create_mkey)(&mut attr) })?;
        Ok(Self { device: device.clone(), raw })
    }

    pub(super) fn key(&self) -> u32 {
        // SAFETY: the structure lives until mlx5dv_destroy_mkey.
        unsafe { self.raw.as_ref().lkey }
    }

    /// Gives the key another tag, as programs do: in the public structure.
    pub(super) fn set_tag(&mut self, tag: u8) {
        // SAFETY: as in `key`; nobody else uses it.
        let raw = unsafe { self.raw.as_mut() };
        raw.lkey = raw.lkey & !0xff | u32::from(tag);
        raw.rkey = raw.rkey & !0xff | u32::from(tag);
    }
}

impl Drop for RefMkey {
    fn drop(&mut self) {
        // SAFETY: created by `create`.
        unsafe { (self.device.api.mlx5dv_destroy_mkey)(self.raw.as_ptr()) };
    }
}

/// A queue pair of the reference, in a state in which the device executes nothing.
pub(super) struct RefQueue {
    device: Rc<Device>,
    raw: NonNull<IbvQp>,
    ex: NonNull<QpEx>,
    mlx5: NonNull<Mlx5QpEx>,
    ring: NonNull<u8>,
    record: NonNull<[u8; 8]>,
    /// Number of the queue pair.
    pub(super) number: u32,
    /// Blocks of its ring.
    pub(super) blocks: usize,
    /// Most requests outstanding.
    pub(super) max_requests: u32,
    /// Most scatter entries.
    pub(super) max_sge: usize,
    /// Longest inline data.
    pub(super) max_inline_data: u32,
}

impl RefQueue {
    pub(super) fn create(device: &Rc<Device>, requests: u32, inline: u32, sges: u32) -> io::Result<Self> {
        const RC: u32 = 2;
        const PD: u32 = 1;
        const SEND_OPS: u32 = 1 << 6;
        /// RDMA WRITE and with immediate, SEND and with immediate, RDMA READ, LOCAL_INV, SEND with invalidate.
        const OPS: u64 = 0b10_1001_1111;
        const MKEY_CONFIGURE: u64 = 1 << 2;
        const MLX5_SEND_OPS: u64 = 1 << 2;
        const OBJ_QP: u64 = 1;
        let api = &device.api;
        let mut attr = QpInitAttr {
            context: ptr::null_mut(),
            send_cq: device.cq.as_ptr(),
            recv_cq: device.cq.as_ptr(),
            srq: ptr::null_mut(),
            cap: QpCap {
                max_send_wr: requests,
                max_send_sge: sges,
                max_inline_data: inline,
                ..QpCap::default()
            },
            qp_type: RC,
            sq_sig_all: 0,
            comp_mask: PD | SEND_OPS,
            pd: device.pd.as_ptr(),
            between: [0; 7],
            send_ops_flags: OPS,
        };
        let mut mlx5_attr = Mlx5QpInitAttr {
            comp_mask: MLX5_SEND_OPS,
            send_ops_flags: MKEY_CONFIGURE,
            ..Mlx5QpInitAttr::default()
        };
        // SAFETY: context, PD and CQ are live; the attributes are read and written during the call.
        let raw = unsafe { (api.mlx5dv_create_qp)(device.context.as_ptr(), &mut attr, &mut mlx5_attr) };
        let raw = found("mlx5dv_create_qp", raw)?;
        // SAFETY: the queue pair is live and was created with operations, so it is an extended one.
        let ex = unsafe { (api.ibv_qp_to_qp_ex)(raw.as_ptr()) };
        let ex = found("ibv_qp_to_qp_ex", ex)?;
        // SAFETY: as above, and it is one of libmlx5.
        let mlx5 = unsafe { (api.mlx5dv_qp_ex_from_ibv_qp_ex)(ex.as_ptr()) };
        let mlx5 = found("mlx5dv_qp_ex_from_ibv_qp_ex", mlx5)?;
        let mut out =
            Mlx5Qp { record: ptr::null_mut(), ring: ptr::null_mut(), blocks: 0, stride: 0, after: [0; 9] };
        let mut obj = Mlx5Obj { qp: raw.as_ptr(), qp_out: &mut out, others: [ptr::null_mut(); 12] };
        // SAFETY: the object names a live queue pair and a place for its description.
        if unsafe { (api.mlx5dv_init_obj)(&mut obj, OBJ_QP) } != 0 || out.stride != 64 {
            return Err(io::Error::other("mlx5dv_init_obj"));
        }
        // SAFETY: the structure lives until ibv_destroy_qp.
        let number = unsafe { raw.as_ref().number };
        let queue = Self {
            device: device.clone(),
            raw,
            ex,
            mlx5,
            ring: found("ring", out.ring)?,
            record: found("doorbell record", out.record)?,
            number,
            blocks: out.blocks as usize,
            max_requests: attr.cap.max_send_wr,
            max_sge: attr.cap.max_send_sge as usize,
            max_inline_data: attr.cap.max_inline_data,
        };
        queue.bring_up()?;
        Ok(queue)
    }

    /// Takes the queue pair to ready-to-send, before which libmlx5 posts nothing, and on to drained, in which the device
    /// executes nothing. It is its own peer.
    fn bring_up(&self) -> io::Result<()> {
        const STATE: c_int = 1;
        const INIT: c_int = STATE | 1 << 3 | 1 << 4 | 1 << 5;
        const RECEIVE: c_int = STATE | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20;
        const SEND: c_int = STATE | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16;
        let mut attr = QpAttr {
            path_mtu: 3,
            dest_qp: self.number,
            hop_limit: 1,
            is_global: 1,
            ah_port: 1,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            port: 1,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        let api = &self.device.api;
        // SAFETY: the context is open; the pointer is to the 16 bytes of a GID.
        if unsafe { (api.ibv_query_gid)(self.device.context.as_ptr(), 1, 0, &mut attr.gid) } != 0 {
            return Err(io::Error::other("ibv_query_gid"));
        }
        for (state, mask) in [(1, INIT), (2, RECEIVE), (3, SEND), (4, STATE)] {
            attr.state = state;
            // SAFETY: the queue pair is live; the attributes are read during the call.
            let errno = unsafe { (api.ibv_modify_qp)(self.raw.as_ptr(), &mut attr, mask) };
            if errno != 0 {
                return Err(io::Error::other(format!("ibv_modify_qp to state {state}: errno {errno}")));
            }
        }
        Ok(())
    }

    /// Fills the whole ring with [`PATTERN`].
    pub(super) fn wipe(&mut self) {
        // SAFETY: the ring has that many blocks of 64 bytes, which nobody uses: the device executes nothing.
        unsafe { self.ring.as_ptr().write_bytes(PATTERN, self.blocks * 64) };
    }

    /// Copies the ring.
    pub(super) fn ring(&self) -> Vec<u8> {
        // SAFETY: as in `wipe`.
        unsafe { core::slice::from_raw_parts(self.ring.as_ptr(), self.blocks * 64) }.to_vec()
    }

    /// Returns the send counter of the doorbell record.
    pub(super) fn counter(&self) -> [u8; 4] {
        // SAFETY: the record has 8 bytes and lives as long as the queue pair; the device does not write it.
        let [.., a, b, c, d] = unsafe { self.record.as_ptr().read_volatile() };
        [a, b, c, d]
    }

    /// Issues a chain of requests on an mkey; returns 0 or the errno of the chain.
    pub(super) fn issue(&mut self, chain: &[(Flags, Work)], mkey: &RefMkey) -> c_int {
        let ex = self.ex.as_ptr();
        // SAFETY: the queue pair is live and of libmlx5, which has set all functions of the operations that it was created
        // with. Nothing else uses it.
        let result = unsafe {
            ((*ex).start)(ex);
            for (number, (flags, work)) in chain.iter().enumerate() {
                (*ex).wr_id = number as u64;
                self.issue_one(*flags, work, mkey);
            }
            ((*ex).complete)(ex)
        };
        result.abs()
    }

    /// Issues one request.
    ///
    /// # Safety
    /// As for `issue`, behind its start.
    unsafe fn issue_one(&mut self, flags: Flags, work: &Work, mkey: &RefMkey) {
        const FENCE: u32 = 1;
        const SIGNALED: u32 = 2;
        const SOLICITED: u32 = 4;
        const INLINE: u32 = 8;
        let ex = self.ex.as_ptr();
        let inline = match work {
            Work::Configure(_) => true,
            Work::Invalidate(_) => false,
            Work::Send(payload)
            | Work::SendImm(_, payload)
            | Work::SendInvalidate(_, payload)
            | Work::Write(_, payload)
            | Work::WriteImm(_, _, payload) => matches!(payload, Payload::Inline(_)),
            Work::Read(..) => false,
        };
        // SAFETY: see the contract.
        unsafe {
            (*ex).wr_flags = [
                (flags.fence, FENCE),
                (flags.signaled, SIGNALED),
                (flags.solicited, SOLICITED),
                (inline, INLINE),
            ]
            .iter()
            .map(|&(set, bit)| if set { bit } else { 0 })
            .sum();
            match work {
                Work::Configure(config) => self.configure(config, mkey),
                Work::Invalidate(key) => ((*ex).local_inv)(ex, *key),
                Work::Send(payload) => {
                    ((*ex).send)(ex);
                    self.payload(payload);
                }
                Work::SendImm(imm, payload) => {
                    ((*ex).send_imm)(ex, imm.to_be());
                    self.payload(payload);
                }
                Work::SendInvalidate(key, payload) => {
                    ((*ex).send_inv)(ex, *key);
                    self.payload(payload);
                }
                Work::Write(remote, payload) => {
                    ((*ex).rdma_write)(ex, remote.rkey.get(), remote.address);
                    self.payload(payload);
                }
                Work::WriteImm(remote, imm, payload) => {
                    ((*ex).rdma_write_imm)(ex, remote.rkey.get(), remote.address, imm.to_be());
                    self.payload(payload);
                }
                Work::Read(remote, sges) => {
                    ((*ex).rdma_read)(ex, remote.rkey.get(), remote.address);
                    self.sges(sges);
                }
            }
        }
    }

    /// Gives the last request its payload.
    ///
    /// # Safety
    /// As for `issue_one`, behind the builder of a request that moves data.
    unsafe fn payload(&mut self, payload: &Payload) {
        let ex = self.ex.as_ptr();
        match payload {
            // SAFETY: see the contract; the data are copied during the call.
            Payload::Inline(data) => unsafe {
                ((*ex).set_inline_data)(ex, data.as_ptr().cast(), data.len());
            },
            // SAFETY: see the contract.
            Payload::Sges(sges) => unsafe { self.sges(sges) },
        }
    }

    /// Gives the last request its scatter entries.
    ///
    /// # Safety
    /// As for `payload`.
    unsafe fn sges(&mut self, sges: &[(u64, u32, u32)]) {
        let ex = self.ex.as_ptr();
        if let [(address, length, lkey)] = *sges {
            // SAFETY: see the contract.
            unsafe { ((*ex).set_sge)(ex, lkey, address, length) };
        } else {
            let list = sge_list(sges);
            // SAFETY: see the contract; the list is read during the call.
            unsafe { ((*ex).set_sge_list)(ex, list.len(), list.as_ptr()) };
        }
    }

    /// Configures the mkey.
    ///
    /// # Safety
    /// As for `issue_one`.
    unsafe fn configure(&mut self, config: &Config, mkey: &RefMkey) {
        let mlx5 = self.mlx5.as_ptr();
        let reset = u32::from(config.signature == SignatureStep::Reset);
        let mut attr = ConfAttr { flags: reset, comp_mask: 0 };
        let setters = [
            config.access.is_some(),
            config.layout.is_some(),
            matches!(config.signature, SignatureStep::Set { .. }),
            config.crypto.is_some(),
        ];
        let count = setters.iter().filter(|there| **there).count() as u8;
        // SAFETY: see the contract; mkey and attributes are live during the call.
        unsafe { ((*mlx5).mkey_configure)(mlx5, mkey.raw.as_ptr(), count, &mut attr) };
        for step in config.order {
            // SAFETY: behind the builder, as many setters as it was told, each of what lives during its call.
            unsafe {
                match step {
                    0 => {
                        if let Some(access) = config.access {
                            ((*mlx5).set_mkey_access)(mlx5, access);
                        }
                    }
                    1 => match &config.layout {
                        Some(Mapping::List(entries)) => {
                            let list = sge_list(entries);
                            ((*mlx5).set_mkey_list)(mlx5, list.len() as u16, list.as_ptr());
                        }
                        Some(Mapping::Interleaved(repeat, entries)) => {
                            let list: Vec<Interleaved> = entries
                                .iter()
                                .map(|&(address, bytes, skip, lkey)| Interleaved {
                                    address,
                                    bytes,
                                    skip,
                                    lkey,
                                })
                                .collect();
                            ((*mlx5).set_mkey_interleaved)(mlx5, *repeat, list.len() as u16, list.as_ptr());
                        }
                        None => {}
                    },
                    2 => {
                        if let SignatureStep::Set { memory, wire, check_mask, copy_mask } = &config.signature
                        {
                            let memory = memory.as_ref().map(Details::new);
                            let wire = wire.as_ref().map(Details::new);
                            let memory = memory.as_ref().map(Details::attr);
                            let wire = wire.as_ref().map(Details::attr);
                            let attr = SigBlockAttr {
                                memory: memory.as_ref().map_or(ptr::null(), ptr::from_ref),
                                wire: wire.as_ref().map_or(ptr::null(), ptr::from_ref),
                                flags: u32::from(copy_mask.is_some()),
                                check_mask: *check_mask,
                                copy_mask: copy_mask.unwrap_or(0),
                                comp_mask: 0,
                            };
                            ((*mlx5).set_mkey_sig)(mlx5, &attr);
                        }
                    }
                    _ => {
                        if let Some(crypto) = &config.crypto {
                            let attr = crypto_attr(crypto, self.device.dek.as_ptr());
                            ((*mlx5).set_mkey_crypto)(mlx5, &attr);
                        }
                    }
                }
            }
        }
    }
}

impl Drop for RefQueue {
    fn drop(&mut self) {
        // SAFETY: created by `create`.
        unsafe { (self.device.api.ibv_destroy_qp)(self.raw.as_ptr()) };
    }
}

fn sge_list(entries: &[(u64, u32, u32)]) -> Vec<IbvSge> {
    entries.iter().map(|&(address, length, lkey)| IbvSge { address, length, lkey }).collect()
}

fn block_size(size: BlockSize) -> u32 {
    match size {
        BlockSize::B512 => 0,
        BlockSize::B520 => 1,
        BlockSize::B4048 => 2,
        BlockSize::B4096 => 3,
        BlockSize::B4160 => 4,
    }
}

fn crypto_attr(crypto: &Crypto, dek: *mut c_void) -> CryptoAttr {
    CryptoAttr {
        standard: 0,
        encrypt_on_tx: crypto.direction == Direction::EncryptOnTx,
        order: u32::from(crypto.order == SignatureOrder::BeforeCryptoOnTx),
        data_unit: block_size(crypto.data_unit),
        tweak: crypto.tweak.get().to_le_bytes(),
        dek,
        keytag: crypto.keytag.0,
        comp_mask: 0,
    }
}

/// What a domain points to.
enum Details {
    Dif(DifAttr, u32),
    Crc(CrcAttr, u32),
}

impl Details {
    fn new(domain: &Domain) -> Self {
        let size = block_size(domain.block_size);
        let crc = |kind, seed: &Seed, ones| {
            let seed = if *seed == Seed::Ones { ones } else { 0 };
            Self::Crc(CrcAttr { kind, seed }, size)
        };
        match &domain.signature {
            Signature::T10Dif(dif) => Self::Dif(
                DifAttr {
                    guard: u32::from(dif.guard == Guard::IpChecksum),
                    seed: if dif.seed == Seed::Ones { 0xffff } else { 0 },
                    app_tag: dif.app_tag,
                    ref_tag: dif.ref_tag,
                    flags: u16::from(dif.ref_remap)
                        | match dif.escape {
                            Escape::Never => 0,
                            Escape::AppTag => 2,
                            Escape::AppAndRefTag => 4,
                        },
                },
                size,
            ),
            Signature::Crc32(seed) => crc(0, seed, u64::from(u32::MAX)),
            Signature::Crc32c(seed) => crc(1, seed, u64::from(u32::MAX)),
            Signature::Crc64Xp10(seed) => crc(2, seed, u64::MAX),
        }
    }

    fn attr(&self) -> DomainAttr {
        let (kind, details, block_size) = match self {
            Self::Dif(dif, size) => (0, ptr::from_ref(dif).cast(), *size),
            Self::Crc(crc, size) => (1, ptr::from_ref(crc).cast(), *size),
        };
        DomainAttr { kind, details, block_size, comp_mask: 0 }
    }
}
