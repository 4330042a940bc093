//! The seam to libibverbs and libmlx5: loads them at run time and turns each of their objects into a value that owns it.
//!
//! All calls into the two libraries are here, and the memory of rings. What is unsafe in the modules beside it passes on
//! what a caller vouches for, or hands this memory to the queues that own it. A handle keeps alive what it was made from, so that whatever order values are
//! dropped in, the device's objects are destroyed children first.

#![allow(unsafe_code)]

use super::error::{DevxError, LibraryError};
use crate::command::{UmemId, UmemSlice};
use crate::queue::DoorbellRecord;
use core::alloc::Layout;
use core::ffi::{CStr, c_char, c_int, c_short, c_void};
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::string::{String, ToString};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::vec::Vec;
use std::{format, io};

/// Opaque objects of the libraries.
pub(super) enum IbvDevice {}
pub(super) enum IbvContext {}
enum DevxObj {}

/// `struct ibv_pd`.
#[repr(C)]
struct IbvPd {
    context: *mut IbvContext,
    handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
struct IbvMr {
    context: *mut IbvContext,
    pd: *mut IbvPd,
    address: *mut c_void,
    length: usize,
    handle: u32,
    lkey: u32,
    rkey: u32,
}

/// `struct mlx5dv_context_attr`.
#[repr(C)]
struct ContextAttr {
    flags: u32,
    comp_mask: u64,
    fds: *mut c_void,
}

/// `MLX5DV_CONTEXT_FLAGS_DEVX`.
const CONTEXT_DEVX: u32 = 1;

/// `struct mlx5dv_pd`.
#[repr(C)]
#[derive(Default)]
struct Mlx5dvPd {
    pdn: u32,
    comp_mask: u64,
}

/// `struct mlx5dv_obj`: pairs of an object and where to describe it. Only the seventh is used.
#[repr(C)]
struct Mlx5dvObj {
    others: [*mut c_void; 12],
    pd: *mut IbvPd,
    pd_out: *mut Mlx5dvPd,
    devx: [*mut c_void; 2],
}

/// `MLX5DV_OBJ_PD`.
const OBJ_PD: u64 = 1 << 6;

/// `struct mlx5dv_devx_umem`.
#[repr(C)]
struct DevxUmem {
    umem_id: u32,
}

/// `struct mlx5dv_devx_uar`.
#[repr(C)]
struct DevxUar {
    reg_addr: *mut c_void,
    base_addr: *mut c_void,
    page_id: u32,
    mmap_off: i64,
    comp_mask: u64,
}

/// `struct mlx5dv_devx_event_channel`.
#[repr(C)]
struct EventChannelRaw {
    fd: c_int,
}

/// `MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA` is not set: events carry their data.
const EVENT_CHANNEL_FLAGS: c_int = 0;

/// Declares the functions that are looked up, each in its library.
macro_rules! api {
    ($($library:ident = $file:literal { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)+ })+) => {
        struct Api {
            $($($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+)+
            // Never unloaded: libibverbs has threads and handlers of its own.
            _libraries: ManuallyDrop<[libloading::Library; 2]>,
        }

        impl Api {
            fn load() -> Result<Self, LibraryError> {
                $(
                    // SAFETY: loading runs the constructors of the library; these two are written to be loaded by programs.
                    let $library = unsafe { libloading::Library::new($file) }
                        .map_err(|error| LibraryError::missing($file, &error.to_string()))?;
                )+
                Ok(Self {
                    $($($name: {
                        // SAFETY: the signature is that of the library's public header, stable since the version that the
                        // shared object name stands for.
                        *unsafe { $library.get(concat!(stringify!($name), "\0").as_bytes()) }
                            .map_err(|error| LibraryError::outdated($file, stringify!($name), &error.to_string()))?
                    },)+)+
                    _libraries: ManuallyDrop::new([$($library),+]),
                })
            }
        }
    };
}

api! {
    verbs = "libibverbs.so.1" {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut IbvDevice;
        ibv_free_device_list: fn(*mut *mut IbvDevice);
        ibv_get_device_name: fn(*mut IbvDevice) -> *const c_char;
        ibv_close_device: fn(*mut IbvContext) -> c_int;
        ibv_query_gid: fn(*mut IbvContext, u8, c_int, *mut [u8; 16]) -> c_int;
        ibv_alloc_pd: fn(*mut IbvContext) -> *mut IbvPd;
        ibv_dealloc_pd: fn(*mut IbvPd) -> c_int;
        ibv_reg_mr: fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr;
        ibv_dereg_mr: fn(*mut IbvMr) -> c_int;
    }
    mlx5 = "libmlx5.so.1" {
        mlx5dv_is_supported: fn(*mut IbvDevice) -> bool;
        mlx5dv_open_device: fn(*mut IbvDevice, *mut ContextAttr) -> *mut IbvContext;
        mlx5dv_init_obj: fn(*mut Mlx5dvObj, u64) -> c_int;
        mlx5dv_devx_general_cmd: fn(*mut IbvContext, *const c_void, usize, *mut c_void, usize) -> c_int;
        mlx5dv_devx_obj_create: fn(*mut IbvContext, *const c_void, usize, *mut c_void, usize) -> *mut DevxObj;
        mlx5dv_devx_obj_query: fn(*mut DevxObj, *const c_void, usize, *mut c_void, usize) -> c_int;
        mlx5dv_devx_obj_modify: fn(*mut DevxObj, *const c_void, usize, *mut c_void, usize) -> c_int;
        mlx5dv_devx_obj_destroy: fn(*mut DevxObj) -> c_int;
        mlx5dv_devx_umem_reg: fn(*mut IbvContext, *mut c_void, usize, u32) -> *mut DevxUmem;
        mlx5dv_devx_umem_dereg: fn(*mut DevxUmem) -> c_int;
        mlx5dv_devx_alloc_uar: fn(*mut IbvContext, u32) -> *mut DevxUar;
        mlx5dv_devx_free_uar: fn(*mut DevxUar);
        mlx5dv_devx_query_eqn: fn(*mut IbvContext, u32, *mut u32) -> c_int;
        mlx5dv_devx_create_event_channel: fn(*mut IbvContext, c_int) -> *mut EventChannelRaw;
        mlx5dv_devx_destroy_event_channel: fn(*mut EventChannelRaw);
        mlx5dv_devx_subscribe_devx_event: fn(*mut EventChannelRaw, *mut DevxObj, u16, *const u16, u64) -> c_int;
        mlx5dv_devx_get_event: fn(*mut EventChannelRaw, *mut c_void, usize) -> isize;
    }
}

fn api() -> Result<&'static Api, DevxError> {
    static API: OnceLock<Result<Api, LibraryError>> = OnceLock::new();
    API.get_or_init(Api::load).as_ref().map_err(|error| DevxError::Library(error.clone()))
}

/// What errno says now, for a function that returned null.
fn last_error(what: &'static str) -> DevxError {
    DevxError::call(what, io::Error::last_os_error())
}

/// Checks the result of a function that returns 0 or an errno (some with a minus, some through errno).
fn check(what: &'static str, result: c_int) -> Result<(), DevxError> {
    match result {
        0 => Ok(()),
        -1 => Err(last_error(what)),
        errno => Err(DevxError::call(what, io::Error::from_raw_os_error(errno.abs()))),
    }
}

/// An open device.
pub(super) struct Context {
    api: &'static Api,
    raw: NonNull<IbvContext>,
    /// Opened here, so closed here; else the caller's.
    owned: bool,
}

// SAFETY: libibverbs and libmlx5 lock their contexts; all their functions may be called from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the mlx5 device with this name, or the first one, for DEVX.
    pub(super) fn open(name: Option<&str>) -> Result<Arc<Self>, DevxError> {
        let api = api()?;
        let mut count = 0;
        // SAFETY: the pointer is to a place for the count.
        let list = unsafe { (api.ibv_get_device_list)(&mut count) };
        if list.is_null() {
            let error = io::Error::last_os_error();
            // ENOSYS is how libibverbs says that the kernel has no RDMA at all.
            return Err(match error.kind() {
                io::ErrorKind::Unsupported => {
                    DevxError::NoDevice { wanted: name.map(String::from), seen: Vec::new() }
                }
                _ => DevxError::call("ibv_get_device_list", error),
            });
        }
        // SAFETY: the list has `count` devices.
        let devices = unsafe { core::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0)) };
        let result = Self::open_of(api, devices, name);
        // SAFETY: the list came from ibv_get_device_list; an opened device keeps its own reference.
        unsafe { (api.ibv_free_device_list)(list) };
        result
    }

    fn open_of(
        api: &'static Api,
        devices: &[*mut IbvDevice],
        name: Option<&str>,
    ) -> Result<Arc<Self>, DevxError> {
        let mut seen = Vec::new();
        for &device in devices {
            // SAFETY: the device is in a list that has not been freed; its name lives as long.
            let found =
                unsafe { CStr::from_ptr((api.ibv_get_device_name)(device)) }.to_string_lossy().into_owned();
            // SAFETY: as above.
            let mlx5 = unsafe { (api.mlx5dv_is_supported)(device) };
            let wanted = name.is_none_or(|name| name == found);
            if mlx5 && wanted {
                let mut attr = ContextAttr { flags: CONTEXT_DEVX, comp_mask: 0, fds: ptr::null_mut() };
                // SAFETY: device as above; the attributes are read during the call.
                let raw = unsafe { (api.mlx5dv_open_device)(device, &mut attr) };
                let raw = NonNull::new(raw)
                    .ok_or_else(|| DevxError::Open { device: found, cause: io::Error::last_os_error() })?;
                return Ok(Arc::new(Self { api, raw, owned: true }));
            }
            seen.push(if mlx5 { found } else { format!("{found} (not mlx5)") });
        }
        Err(DevxError::NoDevice { wanted: name.map(String::from), seen })
    }

    /// Uses a context that the caller has opened.
    ///
    /// # Safety
    /// `raw` is an open `struct ibv_context` of an mlx5 device with DEVX, and stays open while the value and all that is
    /// made from it live.
    pub(super) unsafe fn adopt(raw: NonNull<c_void>) -> Result<Arc<Self>, DevxError> {
        Ok(Arc::new(Self { api: api()?, raw: raw.cast(), owned: false }))
    }

    /// Runs a command that makes no object.
    pub(super) fn general_command(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        // SAFETY: both mailboxes are valid for their lengths during the call.
        let result = unsafe {
            (self.api.mlx5dv_devx_general_cmd)(
                self.raw.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        check("mlx5dv_devx_general_cmd", result)
    }

    /// Returns the number of the event queue behind a completion vector.
    pub(super) fn event_queue(&self, vector: u32) -> Result<u32, DevxError> {
        let mut eqn = 0;
        // SAFETY: the pointer is to a place for the number.
        let result = unsafe { (self.api.mlx5dv_devx_query_eqn)(self.raw.as_ptr(), vector, &mut eqn) };
        check("mlx5dv_devx_query_eqn", result)?;
        Ok(eqn)
    }

    /// Returns an entry of a port's GID table.
    pub(super) fn gid(&self, port: u8, index: u16) -> Result<[u8; 16], DevxError> {
        let mut gid = [0; 16];
        // SAFETY: the pointer is to 16 bytes.
        let result =
            unsafe { (self.api.ibv_query_gid)(self.raw.as_ptr(), port, c_int::from(index), &mut gid) };
        check("ibv_query_gid", result)?;
        Ok(gid)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: opened by `open`; everything made from it held an Arc of this value and is gone.
            unsafe { (self.api.ibv_close_device)(self.raw.as_ptr()) };
        }
    }
}

/// A protection domain.
pub(super) struct Pd {
    context: Arc<Context>,
    raw: NonNull<IbvPd>,
    number: u32,
}

// SAFETY: as for Context.
unsafe impl Send for Pd {}
// SAFETY: as for Context.
unsafe impl Sync for Pd {}

impl Pd {
    pub(super) fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, DevxError> {
        let api = context.api;
        // SAFETY: the context is open.
        let raw = unsafe { (api.ibv_alloc_pd)(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("ibv_alloc_pd"))?;
        let mut pd = Self { context: context.clone(), raw, number: 0 };
        let mut out = Mlx5dvPd::default();
        let mut obj = Mlx5dvObj {
            others: [ptr::null_mut(); 12],
            pd: raw.as_ptr(),
            pd_out: &mut out,
            devx: [ptr::null_mut(); 2],
        };
        // SAFETY: the object names a live PD and a place for its description, which is all that OBJ_PD reads and writes.
        check("mlx5dv_init_obj", unsafe { (api.mlx5dv_init_obj)(&mut obj, OBJ_PD) })?;
        pd.number = out.pdn;
        Ok(Arc::new(pd))
    }

    /// Returns the number that commands carry.
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: allocated by `alloc`; all that was made in it held an Arc of this value and is gone.
        unsafe { (self.context.api.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// A registered memory region.
pub(super) struct Mr {
    pd: Arc<Pd>,
    raw: NonNull<IbvMr>,
}

// SAFETY: as for Context.
unsafe impl Send for Mr {}
// SAFETY: as for Context.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers memory.
    ///
    /// # Safety
    /// The memory stays mapped, and Rust code does not use it in a way that conflicts with the device's accesses, while
    /// the value lives.
    pub(super) unsafe fn register(
        pd: &Arc<Pd>,
        address: *mut u8,
        length: usize,
        access: u32,
    ) -> Result<Self, DevxError> {
        // SAFETY: the PD is live; the caller vouches for the memory. The kernel checks that it is mapped.
        let raw =
            unsafe { (pd.context.api.ibv_reg_mr)(pd.raw.as_ptr(), address.cast(), length, access as c_int) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("ibv_reg_mr"))?;
        Ok(Self { pd: pd.clone(), raw })
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the structure lives until ibv_dereg_mr.
        unsafe { self.raw.as_ref().lkey }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.raw.as_ref().rkey }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: registered by `register`.
        unsafe { (self.pd.context.api.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}

/// A registration of memory that the device may use for rings and records.
struct Umem {
    context: Arc<Context>,
    raw: NonNull<DevxUmem>,
}

// SAFETY: as for Context.
unsafe impl Send for Umem {}
// SAFETY: as for Context.
unsafe impl Sync for Umem {}

impl Umem {
    /// Registers memory for rings and records, with local writing.
    ///
    /// # Safety
    /// As for [`Mr::register`].
    unsafe fn register(context: &Arc<Context>, address: *mut u8, length: usize) -> Result<Self, DevxError> {
        const LOCAL_WRITE: u32 = 1;
        // SAFETY: the context is open; the caller vouches for the memory.
        let raw = unsafe {
            (context.api.mlx5dv_devx_umem_reg)(context.raw.as_ptr(), address.cast(), length, LOCAL_WRITE)
        };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_umem_reg"))?;
        Ok(Self { context: context.clone(), raw })
    }

    fn id(&self) -> u32 {
        // SAFETY: the structure lives until it is deregistered.
        unsafe { self.raw.as_ref().umem_id }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: registered by `register`; `Dma` says why no object is over it any more.
        unsafe { (self.context.api.mlx5dv_devx_umem_dereg)(self.raw.as_ptr()) };
    }
}

/// A page of doorbell registers.
pub(super) struct Uar {
    context: Arc<Context>,
    raw: NonNull<DevxUar>,
}

// SAFETY: as for Context.
unsafe impl Send for Uar {}
// SAFETY: as for Context.
unsafe impl Sync for Uar {}

impl Uar {
    /// `MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC`.
    const NON_CACHED: u32 = 1;

    /// Allocates a page that is not cached.
    pub(super) fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, DevxError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.api.mlx5dv_devx_alloc_uar)(context.raw.as_ptr(), Self::NON_CACHED) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_alloc_uar"))?;
        Ok(Arc::new(Self { context: context.clone(), raw }))
    }

    pub(super) fn page(&self) -> u32 {
        // SAFETY: the structure lives until the page is freed.
        unsafe { self.raw.as_ref().page_id }
    }

    /// Returns the first doorbell register, valid while the value lives.
    pub(super) fn register(&self) -> Option<NonNull<u64>> {
        // SAFETY: as above.
        NonNull::new(unsafe { self.raw.as_ref().reg_addr }.cast())
    }
}

impl Drop for Uar {
    fn drop(&mut self) {
        // SAFETY: allocated by `alloc`; queues that ring it held an Arc of this value and are gone.
        unsafe { (self.context.api.mlx5dv_devx_free_uar)(self.raw.as_ptr()) };
    }
}

/// An object that a command made: the kernel destroys it by itself if the process ends.
pub(super) struct Object {
    context: Arc<Context>,
    raw: NonNull<DevxObj>,
}

// SAFETY: as for Context.
unsafe impl Send for Object {}
// SAFETY: as for Context.
unsafe impl Sync for Object {}

impl Object {
    /// Runs a create command. The reply is in `output` also when it fails, with status and syndrome.
    pub(super) fn create(context: &Arc<Context>, input: &[u8], output: &mut [u8]) -> Result<Self, DevxError> {
        // SAFETY: both mailboxes are valid for their lengths during the call.
        let raw = unsafe {
            (context.api.mlx5dv_devx_obj_create)(
                context.raw.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_obj_create"))?;
        Ok(Self { context: context.clone(), raw })
    }

    /// Runs a query command on the object.
    pub(super) fn query(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        let (input_at, output_at) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: the object lives; both mailboxes are valid for their lengths during the call.
        let result = unsafe {
            (self.context.api.mlx5dv_devx_obj_query)(
                self.raw.as_ptr(),
                input_at,
                input.len(),
                output_at,
                output.len(),
            )
        };
        check("mlx5dv_devx_obj_query", result)
    }

    /// Runs a modify command on the object.
    pub(super) fn modify(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        let (input_at, output_at) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: as in `query`.
        let result = unsafe {
            (self.context.api.mlx5dv_devx_obj_modify)(
                self.raw.as_ptr(),
                input_at,
                input.len(),
                output_at,
                output.len(),
            )
        };
        check("mlx5dv_devx_obj_modify", result)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: created by `create`.
        unsafe { (self.context.api.mlx5dv_devx_obj_destroy)(self.raw.as_ptr()) };
    }
}

/// Where the kernel reports events of objects.
pub(super) struct EventChannel {
    context: Arc<Context>,
    raw: NonNull<EventChannelRaw>,
}

// SAFETY: as for Context.
unsafe impl Send for EventChannel {}
// SAFETY: as for Context.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    pub(super) fn create(context: &Arc<Context>) -> Result<Self, DevxError> {
        // SAFETY: the context is open.
        let raw = unsafe {
            (context.api.mlx5dv_devx_create_event_channel)(context.raw.as_ptr(), EVENT_CHANNEL_FLAGS)
        };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_create_event_channel"))?;
        let channel = Self { context: context.clone(), raw };
        // Of several threads that are woken, one gets the event: the others must not stay in the kernel.
        // SAFETY: the descriptor is open as long as the channel lives; the call takes and changes no memory.
        let result = unsafe { libc::fcntl(channel.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        check("fcntl of an event channel", result)?;
        Ok(channel)
    }

    /// Asks for events of an object; each will carry `cookie`.
    pub(super) fn subscribe(&self, object: &Object, events: &[u16], cookie: u64) -> Result<(), DevxError> {
        let bytes = u16::try_from(size_of_val(events)).unwrap_or(u16::MAX);
        // SAFETY: channel and object live; the numbers are read during the call.
        let result = unsafe {
            (self.context.api.mlx5dv_devx_subscribe_devx_event)(
                self.raw.as_ptr(),
                object.raw.as_ptr(),
                bytes,
                events.as_ptr(),
                cookie,
            )
        };
        check("mlx5dv_devx_subscribe_devx_event", result)
    }

    /// Returns the next event's cookie and data; waits for it until the time is over or `waker` is used.
    pub(super) fn next(
        &self,
        waker: &Waker,
        timeout: Option<Duration>,
    ) -> Result<Option<(u64, Vec<u8>)>, DevxError> {
        // A time too far away to be told is for ever.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let [event, woken] = wait([self.fd(), waker.fd()], left)?;
            if event & libc::POLLIN != 0 && event & ENDED == 0 {
                continue;
            }
            if event & ENDED != 0 {
                // The device is gone, or the context that the caller lent is closed. What came before is still there.
                return self.take().and_then(|event| event.ok_or(DevxError::EventsClosed)).map(Some);
            }
            if woken != 0 {
                return Err(DevxError::EventsClosed);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }

    /// Takes an event that has come.
    fn take(&self) -> Result<Option<(u64, Vec<u8>)>, DevxError> {
        // A cookie of 8 bytes, then the event queue entry.
        let mut event = [0_u8; 8 + 64];
        // SAFETY: the channel lives; the buffer is valid for its length.
        let length = unsafe {
            (self.context.api.mlx5dv_devx_get_event)(
                self.raw.as_ptr(),
                event.as_mut_ptr().cast(),
                event.len(),
            )
        };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                Some(libc::EOVERFLOW) => Err(DevxError::EventsLost),
                _ => Err(DevxError::call("mlx5dv_devx_get_event", error)),
            };
        };
        let (cookie, data) =
            event.get(..length).and_then(<[u8]>::split_first_chunk).ok_or(DevxError::ShortEvent)?;
        Ok(Some((u64::from_ne_bytes(*cookie), data.to_vec())))
    }

    /// Returns the file descriptor, to be polled.
    pub(super) fn fd(&self) -> c_int {
        // SAFETY: the structure lives until the channel is destroyed.
        unsafe { self.raw.as_ref().fd }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: created by `create`.
        unsafe { (self.context.api.mlx5dv_devx_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// What a channel says when its context is gone.
const ENDED: c_short = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL | libc::POLLRDHUP;

/// Waits until one of the descriptors can be read or has ended, or the time is over, or a signal comes.
fn wait(descriptors: [c_int; 2], left: Option<Duration>) -> Result<[c_short; 2], DevxError> {
    let mut polled =
        descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 });
    let time = left.map(|left| libc::timespec {
        tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let limit = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: descriptors and time live until the call is over; no signal mask is given.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), 2, limit, ptr::null()) };
    match (ready, io::Error::last_os_error()) {
        (0.., _) => Ok(polled.map(|descriptor| descriptor.revents)),
        (_, error) if error.kind() == io::ErrorKind::Interrupted => Ok([0; 2]),
        (_, error) => Err(DevxError::call("ppoll", error)),
    }
}

/// Ends waiting, for good.
pub(super) struct Waker {
    ours: UnixStream,
    theirs: UnixStream,
}

impl Waker {
    pub(super) fn new() -> Result<Self, DevxError> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| DevxError::call("socketpair", error))?;
        Ok(Self { ours, theirs })
    }

    pub(super) fn wake(&self) {
        // Fails only where it was done before.
        let _ = self.ours.shutdown(Shutdown::Both);
    }

    fn fd(&self) -> c_int {
        self.theirs.as_raw_fd()
    }
}

/// Memory for rings and records, aligned to pages and registered with the device, freed when nobody uses it.
pub(super) struct Dma {
    umem: ManuallyDrop<Umem>,
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory behind a pointer that only its slices use.
unsafe impl Send for Dma {}
// SAFETY: as above.
unsafe impl Sync for Dma {}

impl Dma {
    /// Alignment in bytes: the smallest page of the device.
    const PAGE: usize = 4096;

    /// Allocates zeroed memory.
    pub(super) fn alloc(context: &Arc<Context>, length: usize) -> Result<Self, DevxError> {
        let too_long = || DevxError::call("allocation of a ring", io::ErrorKind::OutOfMemory.into());
        let length = length.max(1).checked_next_multiple_of(Self::PAGE).ok_or_else(too_long)?;
        let layout = Layout::from_size_align(length, Self::PAGE).map_err(|_| too_long())?;
        // SAFETY: the layout's size is not 0.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(too_long)?;
        // SAFETY: the memory stays allocated until `drop` below, which ends the registration first. It is used through
        // `slots` and `record` only.
        match unsafe { Umem::register(context, base.as_ptr(), length) } {
            Ok(umem) => Ok(Self { umem: ManuallyDrop::new(umem), base, layout }),
            Err(error) => {
                // SAFETY: allocated above with this layout, and nobody has seen it.
                unsafe { std::alloc::dealloc(base.as_ptr(), layout) };
                Err(error)
            }
        }
    }

    /// Returns where `offset` is, for commands.
    pub(super) fn at(&self, offset: usize) -> UmemSlice {
        UmemSlice { umem: UmemId(self.umem.id()), offset: offset as u64 }
    }

    /// Returns where `count` values are from `offset`, if the memory has room for them there.
    fn place<T>(&self, offset: usize, count: usize) -> Result<NonNull<T>, DevxError> {
        const { assert!(align_of::<T>() <= Self::PAGE, "the base would not be aligned") };
        let bytes = count.checked_mul(size_of::<T>());
        let inside = bytes
            .and_then(|bytes| bytes.checked_add(offset))
            .is_some_and(|end| end <= self.layout.size() && offset.is_multiple_of(align_of::<T>()));
        if !inside {
            return Err(DevxError::call("laying out of a ring", io::ErrorKind::InvalidInput.into()));
        }
        // SAFETY: inside the allocation, as just checked.
        Ok(unsafe { self.base.add(offset) }.cast())
    }

    /// Returns slots of a ring, each set to `value`.
    ///
    /// # Safety
    /// The slots are used while the memory lives, and each is handed out once.
    pub(super) unsafe fn slots<T: Copy>(
        &self,
        offset: usize,
        count: usize,
        value: T,
    ) -> Result<&'static mut [T], DevxError> {
        let first = self.place::<T>(offset, count)?.as_ptr();
        // SAFETY: `place` vouches for room and alignment, the caller for life and exclusiveness.
        unsafe {
            for index in 0..count {
                first.add(index).write(value);
            }
            Ok(core::slice::from_raw_parts_mut(first, count))
        }
    }

    /// Returns the doorbell record at `offset`, with both counters 0.
    ///
    /// # Safety
    /// It is used while the memory lives, and is not handed out as slots.
    pub(super) unsafe fn record(&self, offset: usize) -> Result<&'static DoorbellRecord, DevxError> {
        let record = self.place::<DoorbellRecord>(offset, 1)?;
        // SAFETY: `place` vouches for room and alignment, the caller for life. Zero bytes are a record, which is changed
        // through atomics only from here on.
        unsafe {
            record.write_bytes(0, 1);
            Ok(record.as_ref())
        }
    }
}

impl Drop for Dma {
    fn drop(&mut self) {
        // SAFETY: dropped once, here. Objects over the memory are gone: what owns them owns this value, behind them.
        unsafe { ManuallyDrop::drop(&mut self.umem) };
        // SAFETY: allocated by `alloc` with this layout; the device cannot reach it any more.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}
