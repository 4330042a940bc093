//! The installed libibverbs and libmlx5, loaded at run time: the reference with which tests and benchmarks
//! compare this library.
//!
//! Work requests are posted through the function pointers of the extended queue pair, as the inline functions
//! of the headers do.

#![allow(unsafe_code)]

pub mod abi;
mod completions;

use abi::*;
pub use completions::Completions;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use mlx5_mkey::devx::abi::{Described, OBJ_CQ, OBJ_QP};
use std::io;
use std::rc::Rc;

/// Declares functions of the two libraries, and the code that looks them up.
macro_rules! api {
    ($($library:ident = $file:literal { $($name:ident: fn($($argument:ty),*) -> $result:ty;)+ })+) => {
        struct Api {
            $($($name: unsafe extern "C" fn($($argument),*) -> $result,)+)+
            // The libraries are never unloaded, because threads and exit handlers of libibverbs may still run
            // its code.
            _libraries: ManuallyDrop<[libloading::Library; 2]>,
        }

        impl Api {
            fn load() -> io::Result<Self> {
                $(
                    // SAFETY: both libraries are made to be loaded by programs.
                    let $library = unsafe { libloading::Library::new($file) }.map_err(io::Error::other)?;
                )+
                Ok(Self {
                    $($($name: {
                        // SAFETY: the signature is the one of the library's public header.
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
        ibv_modify_qp: fn(*mut IbvQp, *mut IbvQpAttr, c_int) -> c_int;
        ibv_destroy_qp: fn(*mut IbvQp) -> c_int;
        ibv_qp_to_qp_ex: fn(*mut IbvQp) -> *mut QpEx;
    }
    mlx5 = "libmlx5.so.1" {
        mlx5dv_create_qp: fn(*mut c_void, *mut QpInitAttr, *mut Mlx5QpInitAttr) -> *mut IbvQp;
        mlx5dv_qp_ex_from_ibv_qp_ex: fn(*mut QpEx) -> *mut Mlx5QpEx;
        mlx5dv_init_obj: fn(*mut Mlx5dvObj, u64) -> c_int;
        mlx5dv_create_mkey: fn(*mut MkeyInitAttr) -> *mut MkeyRaw;
        mlx5dv_destroy_mkey: fn(*mut MkeyRaw) -> c_int;
        _mlx5dv_mkey_check: fn(*mut MkeyRaw, *mut MkeyError, usize) -> c_int;
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

/// The key of the device's DEK, for AES-128-XTS: both halves.
pub const DEK_KEY: [u8; 32] = *b"the key of a DEK for AES-128-XTS";

/// An open device, with the objects from which queue pairs and mkeys are created.
pub struct Device {
    api: Api,
    context: NonNull<c_void>,
    pd: NonNull<c_void>,
    cq: NonNull<c_void>,
    dek: NonNull<c_void>,
}

/// The ring of the device's completion queue. The device writes to it only when it executes a request.
#[derive(Clone, Copy, Debug)]
pub struct CqRing {
    /// The first entry. Each has 64 bytes.
    pub first: NonNull<[u8; 64]>,
    /// The doorbell record, which begins with the number of entries taken.
    pub record: NonNull<[u8; 8]>,
    /// Number of entries, a power of two.
    pub entries: u32,
}

impl Device {
    /// Opens the device with this name. Its completion queue gets at least `completions` entries.
    ///
    /// # Errors
    /// A missing library, or an error of the libraries.
    pub fn open(name: &str, completions: u16) -> io::Result<Rc<Self>> {
        const CRYPTO_LOGIN: u64 = 1;
        let api = Api::load()?;
        let mut count = 0;
        // SAFETY: the pointer leads to memory for the count.
        let list = found("ibv_get_device_list", unsafe { (api.ibv_get_device_list)(&mut count) })?;
        // SAFETY: the list has `count` devices.
        let devices =
            unsafe { core::slice::from_raw_parts(list.as_ptr(), usize::try_from(count).unwrap_or(0)) };
        let device = devices.iter().find(|&&device| {
            // SAFETY: the device is in a list that is not freed yet, and has a name.
            unsafe { CStr::from_ptr((api.ibv_get_device_name)(device)) }.to_bytes() == name.as_bytes()
        });
        // SAFETY: the device is in a list that is not freed yet.
        let context = device.map(|&device| unsafe { (api.ibv_open_device)(device) });
        // SAFETY: ibv_get_device_list returned the list. An open device holds its own reference.
        unsafe { (api.ibv_free_device_list)(list.as_ptr()) };
        let context = context.ok_or_else(|| io::Error::other(format!("device {name} not found")))?;
        let context = found("ibv_open_device", context)?;
        // SAFETY: the context is open.
        let pd = found("ibv_alloc_pd", unsafe { (api.ibv_alloc_pd)(context.as_ptr()) })?;
        // SAFETY: the context is open. The call gets neither a channel nor a caller's context.
        let cq = unsafe {
            (api.ibv_create_cq)(context.as_ptr(), completions.into(), ptr::null_mut(), ptr::null_mut(), 0)
        };
        let cq = found("ibv_create_cq", cq)?;
        let mut key = [0; 128];
        key.iter_mut().zip(DEK_KEY).for_each(|(byte, value)| *byte = value);
        let mut attr = DekInitAttr {
            key_size: 0,
            has_keytag: false,
            purpose: 0,
            pd: pd.as_ptr(),
            opaque: [0; 8],
            key,
            // `comp_mask` selects the field `login`, which is null: the key is in plaintext.
            comp_mask: CRYPTO_LOGIN,
            login: ptr::null_mut(),
        };
        // SAFETY: the context is open; the call only reads the attributes.
        let dek =
            found("mlx5dv_dek_create", unsafe { (api.mlx5dv_dek_create)(context.as_ptr(), &mut attr) })?;
        Ok(Rc::new(Self { api, context, pd, cq, dek }))
    }

    /// Returns the context, with the functions that the headers call inline.
    pub fn context(&self) -> NonNull<IbvContext> {
        self.context.cast()
    }

    /// Returns the completion queue that all queue pairs share.
    pub fn cq(&self) -> *mut c_void {
        self.cq.as_ptr()
    }

    /// Returns the DEK: the AES-128-XTS key [`DEK_KEY`] in plaintext, without a keytag.
    pub fn dek(&self) -> *mut c_void {
        self.dek.as_ptr()
    }

    /// Returns the ring of the completion queue.
    ///
    /// # Errors
    /// An error of the library, or entries of a size other than 64 bytes.
    pub fn cq_ring(&self) -> io::Result<CqRing> {
        let mut out = Mlx5dvCq::NONE;
        let described = Described { object: self.cq.as_ptr().cast(), out: &raw mut out };
        let mut obj = Mlx5dvObj { cq: described, ..Mlx5dvObj::NONE };
        // SAFETY: the object names a live completion queue and memory for its description.
        if unsafe { (self.api.mlx5dv_init_obj)(&mut obj, OBJ_CQ) } != 0 || out.cqe_size != 64 {
            return Err(io::Error::other("mlx5dv_init_obj of the completion queue"));
        }
        Ok(CqRing {
            first: found("completion queue", out.buf)?.cast(),
            record: found("completion queue's record", out.dbrec)?.cast(),
            entries: out.cqe_cnt,
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `open` created each object. Queue pairs and mkeys hold an Rc of this value and no longer
        // exist.
        unsafe {
            (self.api.mlx5dv_dek_destroy)(self.dek.as_ptr());
            (self.api.ibv_destroy_cq)(self.cq.as_ptr());
            (self.api.ibv_dealloc_pd)(self.pd.as_ptr());
            (self.api.ibv_close_device)(self.context.as_ptr());
        }
    }
}

/// An mkey that libmlx5 has created.
pub struct RefMkey {
    device: Rc<Device>,
    raw: NonNull<MkeyRaw>,
}

impl RefMkey {
    /// Creates an mkey whose tag can be changed, optionally with signature and crypto.
    ///
    /// # Errors
    /// An error of the library.
    pub fn create(device: &Rc<Device>, signature: bool, crypto: bool, max_entries: u16) -> io::Result<Self> {
        const INDIRECT: u32 = 1;
        const SIGNATURE: u32 = 2;
        const CRYPTO: u32 = 4;
        const UPDATE_TAG: u32 = 8;
        let mut attr = MkeyInitAttr {
            pd: device.pd.as_ptr(),
            create_flags: INDIRECT
                | UPDATE_TAG
                | if signature { SIGNATURE } else { 0 }
                | if crypto { CRYPTO } else { 0 },
            max_entries,
        };
        // SAFETY: the PD is live; the call reads the attributes and writes the number of entries.
        let raw = found("mlx5dv_create_mkey", unsafe { (device.api.mlx5dv_create_mkey)(&mut attr) })?;
        Ok(Self { device: device.clone(), raw })
    }

    /// Returns the structure that functions of mkeys take.
    pub fn as_ptr(&self) -> *mut MkeyRaw {
        self.raw.as_ptr()
    }

    /// Returns the local key.
    pub fn key(&self) -> u32 {
        // SAFETY: the structure lives until mlx5dv_destroy_mkey.
        unsafe { self.raw.as_ref().lkey }
    }

    /// Returns the first signature error since the last call.
    ///
    /// # Errors
    /// The errno.
    pub fn check(&self) -> Result<MkeyError, c_int> {
        let mut error = MkeyError::default();
        let check = self.device.api._mlx5dv_mkey_check;
        // SAFETY: the mkey is live; the error has the stated size.
        match unsafe { check(self.raw.as_ptr(), &mut error, size_of::<MkeyError>()) } {
            0 => Ok(error),
            errno => Err(errno),
        }
    }

    /// Sets the tag of the key in the public structure, as programs do.
    pub fn set_tag(&mut self, tag: u8) {
        // SAFETY: the structure lives until mlx5dv_destroy_mkey. The reference is the only one.
        let raw = unsafe { self.raw.as_mut() };
        raw.lkey = raw.lkey & !0xff | u32::from(tag);
        raw.rkey = raw.rkey & !0xff | u32::from(tag);
    }
}

impl Drop for RefMkey {
    fn drop(&mut self) {
        // SAFETY: `create` created the mkey.
        unsafe { (self.device.api.mlx5dv_destroy_mkey)(self.raw.as_ptr()) };
    }
}

/// A queue pair of libmlx5 on a device that executes no request.
pub struct RefQueue {
    device: Rc<Device>,
    raw: NonNull<IbvQp>,
    ex: NonNull<QpEx>,
    mlx5: NonNull<Mlx5QpEx>,
    ring: NonNull<u8>,
    record: NonNull<[u8; 8]>,
    /// Number of the queue pair.
    pub number: u32,
    /// Number of blocks of the send ring.
    pub blocks: usize,
    /// The most outstanding requests.
    pub max_requests: u32,
    /// The most data segments of a request.
    pub max_sge: usize,
    /// The most bytes of inline data.
    pub max_inline_data: u32,
}

impl RefQueue {
    /// Creates a queue pair of at least this capacity.
    ///
    /// # Errors
    /// An error of the library. Also an error if the device may execute requests (`MLX5_UVERBS_EXECUTE` is
    /// not `no`).
    pub fn create(device: &Rc<Device>, capacity: QpCap) -> io::Result<Self> {
        if std::env::var_os("MLX5_UVERBS_EXECUTE").is_none_or(|value| value != "no") {
            return Err(io::Error::other("the device executes requests: MLX5_UVERBS_EXECUTE is not `no`"));
        }
        const RC: u32 = 2;
        const PD: u32 = 1;
        const SEND_OPS: u32 = 1 << 6;
        /// RDMA WRITE and SEND, each without and with immediate data; RDMA READ, both atomics, LOCAL_INV,
        /// BIND_MW, SEND with invalidation.
        const OPS: u64 = 0b11_1111_1111;
        /// The operations that configure an mkey: `mlx5dv_wr_mkey_configure`, and the older
        /// `mlx5dv_wr_mr_interleaved` and `mlx5dv_wr_mr_list`.
        const MKEY_CONFIGURE: u64 = 1 << 2 | 1 << 1 | 1;
        const RAW_WQE: u64 = 1 << 3;
        const MEMCPY: u64 = 1 << 4;
        const MLX5_SEND_OPS: u64 = 1 << 2;
        let api = &device.api;
        let mut attr = QpInitAttr {
            send_cq: device.cq.as_ptr(),
            recv_cq: device.cq.as_ptr(),
            cap: capacity,
            qp_type: RC,
            comp_mask: PD | SEND_OPS,
            pd: device.pd.as_ptr(),
            send_ops_flags: OPS,
            ..QpInitAttr::default()
        };
        let mut mlx5_attr = Mlx5QpInitAttr {
            comp_mask: MLX5_SEND_OPS,
            send_ops_flags: MKEY_CONFIGURE | RAW_WQE | MEMCPY,
            ..Mlx5QpInitAttr::default()
        };
        // SAFETY: context, PD and CQ are live; the call reads and writes the attributes.
        let raw = unsafe { (api.mlx5dv_create_qp)(device.context.as_ptr(), &mut attr, &mut mlx5_attr) };
        let raw = found("mlx5dv_create_qp", raw)?;
        // SAFETY: the queue pair is live, and extended, because it was created with operations.
        let ex = unsafe { (api.ibv_qp_to_qp_ex)(raw.as_ptr()) };
        let ex = found("ibv_qp_to_qp_ex", ex)?;
        // SAFETY: the queue pair is live, extended, and belongs to libmlx5.
        let mlx5 = unsafe { (api.mlx5dv_qp_ex_from_ibv_qp_ex)(ex.as_ptr()) };
        let mlx5 = found("mlx5dv_qp_ex_from_ibv_qp_ex", mlx5)?;
        let mut out = core::mem::MaybeUninit::<Mlx5dvQp>::zeroed();
        let described = Described { object: raw.as_ptr(), out: out.as_mut_ptr() };
        let mut obj = Mlx5dvObj { qp: described, ..Mlx5dvObj::NONE };
        // SAFETY: the object names a live queue pair and memory for its description.
        let errno = unsafe { (api.mlx5dv_init_obj)(&mut obj, OBJ_QP) };
        // SAFETY: zeros are a valid description, and libmlx5 wrote valid values over them.
        let Mlx5dvQp { dbrec, sq, .. } = unsafe { out.assume_init() };
        if errno != 0 || sq.stride != 64 {
            return Err(io::Error::other("mlx5dv_init_obj"));
        }
        // SAFETY: the structure lives until ibv_destroy_qp.
        let number = unsafe { raw.as_ref().qp_num };
        let queue = Self {
            device: device.clone(),
            raw,
            ex,
            mlx5,
            ring: found("ring", sq.buf)?.cast(),
            record: found("doorbell record", dbrec)?.cast(),
            number,
            blocks: sq.wqe_cnt as usize,
            max_requests: attr.cap.max_send_wr,
            max_sge: attr.cap.max_send_sge as usize,
            max_inline_data: attr.cap.max_inline_data,
        };
        queue.bring_up()?;
        Ok(queue)
    }

    /// Connects the queue pair to itself and takes it to ready-to-send, the only state in which libmlx5
    /// posts.
    fn bring_up(&self) -> io::Result<()> {
        const STATE: c_int = 1;
        const INIT: c_int = STATE | 1 << 3 | 1 << 4 | 1 << 5;
        const RECEIVE: c_int = STATE | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20;
        const SEND: c_int = STATE | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16;
        let mut attr = IbvQpAttr {
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
            ..IbvQpAttr::default()
        };
        let api = &self.device.api;
        // SAFETY: the context is open; the pointer leads to the 16 bytes of a GID.
        if unsafe { (api.ibv_query_gid)(self.device.context.as_ptr(), 1, 0, &mut attr.gid) } != 0 {
            return Err(io::Error::other("ibv_query_gid"));
        }
        for (state, mask) in [(1, INIT), (2, RECEIVE), (3, SEND)] {
            attr.state = state;
            // SAFETY: the queue pair is live; the call only reads the attributes.
            let errno = unsafe { (api.ibv_modify_qp)(self.raw.as_ptr(), &mut attr, mask) };
            if errno != 0 {
                return Err(io::Error::other(format!("ibv_modify_qp to state {state}: errno {errno}")));
            }
        }
        Ok(())
    }

    /// Returns the queue pair as `struct ibv_qp_ex`, for functions that post transfers, and that begin and
    /// end chains of requests.
    pub fn ex(&self) -> *mut QpEx {
        self.ex.as_ptr()
    }

    /// Returns the queue pair as `struct mlx5dv_qp_ex`, for functions that configure mkeys.
    pub fn mlx5(&self) -> *mut Mlx5QpEx {
        self.mlx5.as_ptr()
    }

    /// Returns the queue pair as `struct ibv_qp`, for functions that post receive requests.
    pub fn qp(&self) -> *mut IbvQp {
        self.raw.as_ptr()
    }

    /// Returns the DEK of the device.
    pub fn dek(&self) -> *mut c_void {
        self.device.dek()
    }

    /// Fills the whole send ring with copies of one byte.
    pub fn fill(&mut self, pattern: u8) {
        // SAFETY: the ring has this many blocks of 64 bytes. Nothing else accesses them, because the device
        // executes no request.
        unsafe { self.ring.as_ptr().write_bytes(pattern, self.blocks * 64) };
    }

    /// Returns a copy of the send ring.
    pub fn ring(&self) -> Vec<u8> {
        // SAFETY: the ring has this many blocks of 64 bytes. Nothing writes to them during the call, because
        // the device executes no request.
        unsafe { core::slice::from_raw_parts(self.ring.as_ptr(), self.blocks * 64) }.to_vec()
    }

    /// Returns the send counter of the doorbell record, as its 4 bytes in memory.
    pub fn counter(&self) -> [u8; 4] {
        // SAFETY: the record has 8 bytes and lives as long as the queue pair; the device does not write it.
        let [.., a, b, c, d] = unsafe { self.record.as_ptr().read_volatile() };
        [a, b, c, d]
    }
}

impl Drop for RefQueue {
    fn drop(&mut self) {
        // SAFETY: `create` created the queue pair.
        unsafe { (self.device.api.ibv_destroy_qp)(self.raw.as_ptr()) };
    }
}
