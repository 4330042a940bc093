//! Devices and protection domains.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::error::{Error, Failure, attempt, given};
use super::text::text;
use crate::devx;
use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::Arc;

/// An open mlx5 device.
pub struct Device(pub(super) Arc<devx::Device>);

/// A protection domain. The keys of its memory regions and mkeys work only with queue pairs of the same
/// domain.
pub struct Pd {
    pub(super) device: Arc<devx::Device>,
    pub(super) pd: devx::ProtectionDomain,
}

/// Opens the device with this name (for example `mlx5_0`), or the first mlx5 device if `name` is NULL.
///
/// Errors: MLX5MK_LIBRARY, MLX5MK_DEVICE, MLX5MK_SYSTEM, MLX5MK_COMMAND; the message says what to install, to
/// enable, or to ask an administrator for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_device_open(
    name: *const c_char,
    device: Option<&mut MaybeUninit<*mut Device>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let device = given(device, "device")?;
        let name = match name.is_null() {
            true => None,
            // SAFETY: the name is not NULL, so the caller ensures that it is a string with a NUL at the end.
            false => Some(
                unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Failure::Wanted("name is not UTF-8"))?,
            ),
        };
        hand_out(device, Device(Arc::new(devx::Device::open(name)?)))
    })
}

/// Takes over a device that the program has opened: `context` is a `struct ibv_context` of libmlx5 with DEVX.
/// The caller keeps the context open as long as the device or an object made from it exists. (libmlx5 enables
/// DEVX by itself if the kernel allows it.)
///
/// Errors: MLX5MK_LIBRARY, MLX5MK_SYSTEM, MLX5MK_COMMAND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_device_adopt(
    context: *mut c_void,
    device: Option<&mut MaybeUninit<*mut Device>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let device = given(device, "device")?;
        let context = given(NonNull::new(context), "context")?;
        // SAFETY: the caller ensures that `context` is an open `struct ibv_context`, and keeps it open.
        let adopted = unsafe { devx::Device::adopt(context)? };
        hand_out(device, Device(Arc::new(adopted)))
    })
}

/// Writes a description of the device's capabilities to `words`: signatures, AES-XTS, and the forms in which
/// it takes keys. The text ends with a NUL, and is cut off if `size` bytes are too few. `words` may be NULL
/// if `size` is 0. Returns the length of the whole text in bytes, without the NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_device_describe(
    device: Option<&Device>,
    words: *mut c_char,
    size: usize,
) -> usize {
    let Some(Device(device)) = device else { return 0 };
    // SAFETY: the caller ensures that `words` leads to `size` bytes.
    unsafe { text(words, size, device) }
}

/// Gives the device up. It is closed when all objects made from it are gone. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_device_close(device: Option<Box<Device>>) {
    drop(device);
}

/// Creates a protection domain.
///
/// Errors: MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pd_alloc(
    device: Option<&Device>,
    pd: Option<&mut MaybeUninit<*mut Pd>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), pd) = (given(device, "device")?, given(pd, "pd")?);
        hand_out(pd, Pd { device: device.clone(), pd: device.alloc_pd()? })
    })
}

/// Takes over a protection domain of the program: `ibv_pd` is a `struct ibv_pd` of libmlx5, in the device's
/// context. The caller keeps it allocated as long as the handle or an object made in the domain exists.
///
/// Errors: MLX5MK_ADOPT where the domain belongs to another context, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pd_adopt(
    device: Option<&Device>,
    ibv_pd: *mut c_void,
    pd: Option<&mut MaybeUninit<*mut Pd>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), pd) = (given(device, "device")?, given(pd, "pd")?);
        let ibv_pd = given(NonNull::new(ibv_pd), "ibv_pd")?;
        // SAFETY: the caller ensures that `ibv_pd` is a `struct ibv_pd`, and keeps it allocated.
        let adopted = unsafe { device.adopt_pd(ibv_pd)? };
        hand_out(pd, Pd { device: device.clone(), pd: adopted })
    })
}

/// Writes to `number` the number by which device commands name the protection domain.
///
/// Errors: MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pd_number(
    pd: Option<&Pd>,
    number: Option<&mut MaybeUninit<u32>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, number) = (given(pd, "pd")?, given(number, "number")?);
        number.write(pd.pd.number()?.get());
        Ok(0)
    })
}

/// Gives the protection domain up. It is freed when all objects made in it are gone. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pd_free(pd: Option<Box<Pd>>) {
    drop(pd);
}

/// Moves a value into a box and writes its handle to `place`. Returns 0.
pub(super) fn hand_out<T>(place: &mut MaybeUninit<*mut T>, value: T) -> Result<i32, Failure> {
    place.write(Box::into_raw(Box::new(value)));
    Ok(0)
}
