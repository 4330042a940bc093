//! Open devices of libmlx5 (contexts), and queries of their properties.

#![allow(unsafe_code)]

use super::super::abi::{
    CONTEXT_CORE_CLOCK, CONTEXT_DEVX, ClockInfoRaw, ContextAttr, IbvContext, IbvDevice, IbvPortAttr,
    LINK_LAYER_ETHERNET, Mlx5dvContext,
};
use super::errno::check;
use super::library::{Api, api};
use crate::command::PathMtu;
use crate::devx::error::{AdoptError, DevxError, drop_failed};
use crate::queue::{ClockInfo, DeviceClock};
use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;
use std::{format, io};

/// An open device of libmlx5 (`struct ibv_context`). Every call of libmlx5 needs it.
pub(in crate::devx) struct Context {
    pub(super) api: &'static Api,
    pub(super) raw: NonNull<IbvContext>,
    /// Whether this library opened the context, and so has to close it. An adopted context belongs to the
    /// caller.
    owned: bool,
    /// Whether a [`LoginPlace`] exists.
    logged_in: AtomicBool,
}

/// The right to the single login of a context. Dropping the value releases it.
pub(in crate::devx) struct LoginPlace(Arc<Context>);

impl Drop for LoginPlace {
    fn drop(&mut self) {
        self.0.logged_in.store(false, Ordering::Release);
    }
}

// SAFETY: libibverbs and libmlx5 lock their contexts; all their functions may be called from any thread.
unsafe impl Send for Context {}
// SAFETY: as for `Send`: all functions may be called from any thread.
unsafe impl Sync for Context {}

/// The properties of a port and its link.
#[derive(Clone, Copy, Debug)]
pub(in crate::devx) struct Port {
    /// The size of the largest packet, if the port reports it.
    pub(in crate::devx) mtu: Option<PathMtu>,
    /// The port's LID; 0 on Ethernet.
    pub(in crate::devx) lid: u16,
    /// Whether the link is Ethernet; otherwise it is InfiniBand.
    pub(in crate::devx) is_ethernet: bool,
}

impl Context {
    /// Opens the mlx5 device with this name, or the first one, for DEVX.
    pub(in crate::devx) fn open(name: Option<&str>) -> Result<Arc<Self>, DevxError> {
        let api = api()?;
        let mut count = 0;
        // SAFETY: the pointer leads to memory for the count.
        let list = unsafe { (api.ibv_get_device_list)(&mut count) };
        if list.is_null() {
            let error = io::Error::last_os_error();
            // libibverbs returns ENOSYS if the kernel has no RDMA support.
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
            // SAFETY: the device and its name live until the list is freed, which happens after this
            // function.
            let found =
                unsafe { CStr::from_ptr((api.ibv_get_device_name)(device)) }.to_string_lossy().into_owned();
            // SAFETY: the device lives until the list is freed, which happens after this function.
            let mlx5 = unsafe { (api.mlx5dv_is_supported)(device) };
            let wanted = name.is_none_or(|name| name == found);
            if mlx5 && wanted {
                let mut attr = ContextAttr { flags: CONTEXT_DEVX, comp_mask: 0, fds: ptr::null_mut() };
                // SAFETY: device as above; the attributes are read during the call.
                let raw = unsafe { (api.mlx5dv_open_device)(device, &mut attr) };
                let raw = NonNull::new(raw)
                    .ok_or_else(|| DevxError::Open { device: found, cause: io::Error::last_os_error() })?;
                return Ok(Arc::new(Self::new(api, raw, true)));
            }
            seen.push(if mlx5 { found } else { format!("{found} (not mlx5)") });
        }
        Err(DevxError::NoDevice { wanted: name.map(String::from), seen })
    }

    /// Takes over a context that the caller has opened.
    ///
    /// # Safety
    /// The caller ensures that `raw` is an open `struct ibv_context` of an mlx5 device with DEVX, and that it
    /// stays open while the value or an object made from it lives.
    pub(in crate::devx) unsafe fn adopt(raw: NonNull<c_void>) -> Result<Arc<Self>, DevxError> {
        Ok(Arc::new(Self::new(api()?, raw.cast(), false)))
    }

    fn new(api: &'static Api, raw: NonNull<IbvContext>, owned: bool) -> Self {
        Self { api, raw, owned, logged_in: AtomicBool::new(false) }
    }

    /// Takes the right to the context's single login. Returns `None` if the right is already taken.
    pub(in crate::devx) fn login_place(self: &Arc<Self>) -> Option<LoginPlace> {
        let taken = self.logged_in.swap(true, Ordering::Acquire);
        (!taken).then(|| LoginPlace(self.clone()))
    }

    /// Returns an error if `other`, the context of another object, is not this one.
    pub(in crate::devx) fn expect_own(&self, other: &Self) -> Result<(), DevxError> {
        self.expect(other.raw.as_ptr())
    }

    /// Returns an error if `context`, the context of another object, is not this one.
    pub(super) fn expect(&self, context: *mut IbvContext) -> Result<(), DevxError> {
        if context == self.raw.as_ptr() { Ok(()) } else { Err(AdoptError::OtherDevice.into()) }
    }

    /// Runs a command that creates no object.
    pub(in crate::devx) fn general_command(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
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

    /// Returns the number of the event queue of a completion vector.
    pub(in crate::devx) fn event_queue(&self, vector: u32) -> Result<u32, DevxError> {
        let mut eqn = 0;
        // SAFETY: the pointer leads to memory for the number.
        let result = unsafe { (self.api.mlx5dv_devx_query_eqn)(self.raw.as_ptr(), vector, &mut eqn) };
        check("mlx5dv_devx_query_eqn", result)?;
        Ok(eqn)
    }

    /// Returns the device's clock, if libmlx5 has mapped it. The clock stays mapped as long as the context is
    /// open.
    pub(in crate::devx) fn clock(&self) -> Result<Option<DeviceClock>, DevxError> {
        let mut attributes = MaybeUninit::<Mlx5dvContext>::zeroed();
        // SAFETY: the structure is valid with all bits 0, and the pointer leads to it.
        unsafe { (*attributes.as_mut_ptr()).comp_mask = CONTEXT_CORE_CLOCK };
        // SAFETY: the context is open, and the structure has room for all fields that libmlx5 may fill in.
        let result = unsafe { (self.api.mlx5dv_query_device)(self.raw.as_ptr(), attributes.as_mut_ptr()) };
        check("mlx5dv_query_device", result)?;
        // SAFETY: the structure was all zeros, which is valid, and libmlx5 has filled in some fields.
        let Mlx5dvContext { comp_mask, hca_core_clock, .. } = unsafe { attributes.assume_init() };
        let register = NonNull::new(hca_core_clock.cast()).filter(|_| comp_mask & CONTEXT_CORE_CLOCK != 0);
        // SAFETY: libmlx5 maps the register (both of its halves) as long as the context is open, and the user
        // of the clock keeps the context open.
        Ok(register.map(|register| unsafe { DeviceClock::new(register) }))
    }

    /// Returns the kernel's data for converting ticks of the device's clock into time.
    pub(in crate::devx) fn clock_info(&self) -> Result<ClockInfo, DevxError> {
        let mut raw = ClockInfoRaw::default();
        // SAFETY: the context is open, and the structure is filled in during the call.
        check("mlx5dv_get_clock_info", unsafe {
            (self.api.mlx5dv_get_clock_info)(self.raw.as_ptr(), &mut raw)
        })?;
        let ClockInfoRaw { nsec, last_cycles, frac, mult, shift, mask } = raw;
        Ok(ClockInfo { base: nsec, cycles: last_cycles, fraction: frac, multiplier: mult, shift, mask })
    }

    /// Returns the properties of a port.
    pub(in crate::devx) fn port(&self, port: u8) -> Result<Port, DevxError> {
        let mut attr = IbvPortAttr::default();
        // SAFETY: the pointer leads to memory for the attributes.
        let result = unsafe { (self.api.ibv_query_port)(self.raw.as_ptr(), port, &mut attr) };
        check("ibv_query_port", result)?;
        let mtu = u8::try_from(attr.active_mtu).ok().and_then(PathMtu::from_code);
        Ok(Port { mtu, lid: attr.lid, is_ethernet: attr.link_layer == LINK_LAYER_ETHERNET })
    }

    /// Returns an entry of a port's GID table.
    pub(in crate::devx) fn gid(&self, port: u8, index: u16) -> Result<[u8; 16], DevxError> {
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
            // SAFETY: the context was opened by `open`. Every object made from it held an Arc of this value
            // and is gone.
            let result = unsafe { (self.api.ibv_close_device)(self.raw.as_ptr()) };
            check("ibv_close_device", result).unwrap_or_else(|error| drop_failed(&error));
        }
    }
}
