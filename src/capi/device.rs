//! Devices and protection domains.

#![allow(unsafe_code)] // The names that C knows functions by, and what the caller's pointers lead to.

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

/// A protection domain: keys work with queue pairs of the same one.
pub struct Pd {
    pub(super) device: Arc<devx::Device>,
    pub(super) pd: devx::ProtectionDomain,
}

/// Opens the device of this name (`mlx5_0`, say), or the first one where it is NULL.
///
/// Errors: MLX5MK_LIBRARY, MLX5MK_DEVICE, MLX5MK_SYSTEM, MLX5MK_COMMAND; the message says what to install,
/// enable or ask for.
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
            // SAFETY: it is not NULL, and so a string.
            false => Some(
                unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Failure::Wanted("name is not UTF-8"))?,
            ),
        };
        hand_out(device, Device(Arc::new(devx::Device::open(name)?)))
    })
}

/// Uses a device that the program has opened: `context` is a `struct ibv_context` of libmlx5 with DEVX, which
/// stays open as long as the device and all that is made from it. (libmlx5 opens devices with DEVX by itself,
/// where the kernel lets it.)
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
        // SAFETY: the caller vouches for it.
        let adopted = unsafe { devx::Device::adopt(context)? };
        hand_out(device, Device(Arc::new(adopted)))
    })
}

/// Writes to `words` what the device can do, in words: signatures, AES-XTS, forms of keys. The text ends with
/// a NUL, and is cut off where `size` bytes are too few; `words` may be NULL where that is 0. Returns the
/// bytes of the whole text, without the NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_device_describe(
    device: Option<&Device>,
    words: *mut c_char,
    size: usize,
) -> usize {
    let Some(Device(device)) = device else { return 0 };
    // SAFETY: the caller vouches for the room.
    unsafe { text(words, size, device) }
}

/// Gives the device up. It is closed when all that was made from it is gone. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_device_close(device: Option<Box<Device>>) {
    drop(device);
}

/// Makes a protection domain.
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

/// Uses a protection domain of the program's: `ibv_pd` is a `struct ibv_pd` of libmlx5, of the device's
/// context, which stays allocated as long as the protection domain and all that is made in it.
///
/// Errors: MLX5MK_ADOPT where it is of another context, MLX5MK_SYSTEM.
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
        // SAFETY: the caller vouches for it.
        let adopted = unsafe { device.adopt_pd(ibv_pd)? };
        hand_out(pd, Pd { device: device.clone(), pd: adopted })
    })
}

/// Gives the protection domain up. It is freed when all that was made in it is gone. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pd_free(pd: Option<Box<Pd>>) {
    drop(pd);
}

/// Gives a handle to the caller.
pub(super) fn hand_out<T>(place: &mut MaybeUninit<*mut T>, value: T) -> Result<i32, Failure> {
    place.write(Box::into_raw(Box::new(value)));
    Ok(0)
}
