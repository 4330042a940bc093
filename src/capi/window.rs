//! Memory windows: keys that a queue pair binds for its peer, and revokes.

#![allow(unsafe_code)] // `no_mangle` is unsafe.

use super::cq::Completion;
use super::device::{Pd, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::group::{Qp, flagged};
use super::values::{Range, access_of};
use crate::devx::{DevxError, MkeyHandle};
use crate::mkey::KlmEntry;
use crate::queue::slots::Handle;
use crate::queue::{PoolSlot, PooledWindow, WindowPool};
use crate::types::Key;
use core::mem::MaybeUninit;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

/// A set of memory windows of type 2. Each window is in use or free. The caller ensures that only one thread
/// at a time uses them.
pub struct Windows {
    pool: WindowPool<'static>,
    _handles: Vec<MkeyHandle>,
}

/// The name of a window while it is in use. The name includes the set of windows and the use: other sets
/// refuse it, and its own set refuses it after the window was put back. A program may copy the name, but its
/// content has no meaning for the program. Zeros name no window.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TakenWindow {
    /// Private to the library.
    pub opaque: [u64; 3],
}

impl TakenWindow {
    const fn pooled(self) -> PooledWindow {
        PooledWindow(Handle::from_numbers(self.opaque))
    }
}

/// Creates `count` windows, 1 to 65536, none of them in use.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM, MLX5MK_COMMAND where the device has no memory windows, or refuses.
/// After an error no window is left on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_windows_create(
    pd: Option<&Pd>,
    count: u32,
    windows: Option<&mut MaybeUninit<*mut Windows>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, place) = (given(pd, "pd")?, given(windows, "windows")?);
        if !(1..=1 << 16).contains(&count) {
            return Err(Failure::Value { what: "count", value: count.into() });
        }
        let (windows, handles) = pd.pd.create_windows(count as usize)?;
        let slots = vec![PoolSlot::EMPTY; windows.len()];
        hand_out(
            place,
            Windows { pool: WindowPool::new(windows, slots).map_err(DevxError::Queue)?, _handles: handles },
        )
    })
}

/// Takes a free window, to be bound, and writes its name to `window`.
///
/// Errors: MLX5MK_FULL while all windows are in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_windows_take(
    windows: Option<&mut Windows>,
    window: Option<&mut MaybeUninit<TakenWindow>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (windows, window) = (given(windows, "windows")?, given(window, "window")?);
        let (taken, _) = windows.pool.take().ok_or(Failure::Full("all windows are in use"))?;
        window.write(TakenWindow { opaque: taken.0.to_numbers() });
        Ok(0)
    })
}

/// Binds a window in use to a range of a registered region (IBV_WR_BIND_MW), and writes the new key to `key`.
/// With this key, the peer of this queue pair has the access rights `access` until the window is revoked
/// (mlx5mk_post_invalidate_window), even if the region itself gives no remote rights. The peer names the
/// first byte of the range by the address `start`. `access` is a sum of MLX5MK_REMOTE_… constants. The region
/// must belong to the windows' protection domain, and must have MLX5MK_LOCAL_WRITE if the peer gets the right
/// to write. The device does not see the request before mlx5mk_doorbell.
///
/// Errors: MLX5MK_CONFIG for a window that is bound, or a range of 0 bytes, of more than 2^31 bytes, or that
/// ends after 2^64; MLX5MK_FULL, MLX5MK_ARGUMENT. After an error queue pair and window are as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_bind(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    windows: Option<&mut Windows>,
    window: TakenWindow,
    range: Option<&Range>,
    access: u32,
    start: u64,
    key: Option<&mut MaybeUninit<u32>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, windows, range) = (given(qp, "qp")?, given(windows, "windows")?, given(range, "range")?);
        let (key, access) = (given(key, "key")?, access_of(access)?);
        let window = windows.pool.window_mut(window.pooled())?;
        let range = KlmEntry { address: range.address, length: range.length, key: Key::from_raw(range.key) };
        flagged(qp, id, flags)?.bind_window(window, range, access, start)?;
        key.write(window.key().get());
        Ok(0)
    })
}

/// Revokes a bound window. The function posts a request (IBV_WR_LOCAL_INV) with the name `id` and with
/// `flags` to `qp`, which must be the queue pair that bound the window. Use MLX5MK_FENCED if earlier requests
/// still use the window's key.
///
/// Put the window back (mlx5mk_windows_put) with a completion of this request, which has one if `flags`
/// contains MLX5MK_SIGNALED, or of a later request on the same queue pair. The names of the two requests do
/// not matter. If the request fails, or the queue pair is reset before it completes, the peer may still use
/// the key: when the queue pair works again, call this function again. A window whose queue pair was
/// destroyed stays in use until the windows are destroyed.
///
/// Errors: MLX5MK_CONFIG for a window that is not bound, or that another queue pair has bound;
/// MLX5MK_ARGUMENT for a window of another set, or one that was put back; MLX5MK_FULL. After an error nothing
/// is posted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_invalidate_window(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    windows: Option<&mut Windows>,
    window: TakenWindow,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, windows) = (given(qp, "qp")?, given(windows, "windows")?);
        windows.pool.invalidate(window.pooled(), flagged(qp, id, flags)?)?;
        Ok(0)
    })
}

/// Puts a window back. `completion` proves that the window is no longer bound. It is the success of the
/// request of mlx5mk_post_invalidate_window or of a later request on the same queue pair, or the receipt of a
/// message with which the peer has invalidated the key (MLX5MK_OP_SEND_INVALIDATE). Pass NULL for a window
/// that was not bound.
///
/// Errors: MLX5MK_IN_SERVICE where the completion is no such proof, for example because the request has
/// failed, and with NULL for a bound window; MLX5MK_ARGUMENT for a window that is not in use. After an error
/// the window is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_windows_put(
    windows: Option<&mut Windows>,
    window: TakenWindow,
    completion: Option<&Completion>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let windows = given(windows, "windows")?;
        match completion {
            Some(completion) => windows.pool.put(window.pooled(), &completion.evidence()?)?,
            None => windows.pool.put_unused(window.pooled())?,
        }
        Ok(0)
    })
}

/// Destroys the windows. The caller ensures that no request uses them any more. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_windows_destroy(windows: Option<Box<Windows>>) {
    drop(windows);
}
