//! Memory windows: keys that a queue pair binds for its peer, and revokes.

#![allow(unsafe_code)] // The names that C knows functions by.

use super::device::{Pd, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::group::{Qp, flagged};
use super::values::{Range, access};
use crate::devx::MkeyHandle;
use crate::mkey::{KlmEntry, MemoryWindow};
use crate::types::Key;
use core::mem::MaybeUninit;
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec::Vec;

/// Memory windows of type 2, in use or not. A window is named by its number, from 0. It is used by one thread at a time.
pub struct Windows {
    windows: Vec<MemoryWindow>,
    in_use: Vec<bool>,
    /// Those that are not in use; the one that was put back first is taken first, so that its key returns as late as it can.
    free: VecDeque<u32>,
    _handles: Vec<MkeyHandle>,
}

impl Windows {
    fn used(&mut self, number: u32) -> Result<&mut MemoryWindow, Failure> {
        let in_use = self.in_use.get(number as usize) == Some(&true);
        let window = self.windows.get_mut(number as usize).filter(|_| in_use);
        window.ok_or(Failure::Value { what: "a window that is not in use:", value: number.into() })
    }
}

/// Makes `count` windows, 1 to 65536, none of them in use.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM, MLX5MK_COMMAND where the device has none, or refuses: no window is left behind.
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
        let in_use = windows.iter().map(|_| false).collect();
        hand_out(place, Windows { windows, in_use, free: (0..count).collect(), _handles: handles })
    })
}

/// Takes a window, to be bound, and writes its number.
///
/// Errors: MLX5MK_FULL while all are in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_windows_take(
    windows: Option<&mut Windows>,
    window: Option<&mut MaybeUninit<u32>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (windows, window) = (given(windows, "windows")?, given(window, "window")?);
        let number = windows.free.pop_front().ok_or(Failure::Full("all windows are in use"))?;
        if let Some(in_use) = windows.in_use.get_mut(number as usize) {
            *in_use = true;
        }
        window.write(number);
        Ok(0)
    })
}

/// Binds a window in use to a range of a registered region (IBV_WR_BIND_MW): under a key that is written to `key`, the peer of this queue
/// pair may do what `rights` says, whatever the region allows it, until the window is put back. The range begins at address `start` for the
/// peer. `rights` are MLX5MK_REMOTE_…; the region is of the windows' protection domain, and allows local writing where the peer may write.
/// The device sees nothing before mlx5mk_doorbell.
///
/// Errors: MLX5MK_CONFIG for a window that is bound, a range of 0 bytes or over 2^31, or one that ends behind 2^64; MLX5MK_FULL, MLX5MK_ARGUMENT. Queue pair and
/// window are then as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_bind(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    windows: Option<&mut Windows>,
    window: u32,
    range: Option<&Range>,
    rights: u32,
    start: u64,
    key: Option<&mut MaybeUninit<u32>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, windows, range) = (given(qp, "qp")?, given(windows, "windows")?, given(range, "range")?);
        let (key, access, window) = (given(key, "key")?, access(rights)?, windows.used(window)?);
        let range = KlmEntry { address: range.address, length: range.length, key: Key::from_raw(range.key) };
        flagged(qp, id, flags)?.bind_window(window, range, access, start)?;
        key.write(window.key().get());
        Ok(0)
    })
}

/// Puts a window back. A bound one is revoked by a request of the queue pair that bound it (another one is refused that by the device), which is called `id` (IBV_WR_LOCAL_INV), with
/// these flags; ask for MLX5MK_FENCED where requests before it still use its key. Whoever takes it next may bind it on the same queue pair at
/// once, on another one when the request has completed. NULL as `qp` is for a window that was not bound, that the peer has invalidated (a
/// completion says so), or whose queue pair is gone.
///
/// Errors: MLX5MK_ARGUMENT for a window that is not in use, MLX5MK_FULL: it is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_windows_put(
    windows: Option<&mut Windows>,
    window: u32,
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let windows = given(windows, "windows")?;
        let used = windows.used(window)?;
        match qp {
            // What was not bound has no key that a peer could use.
            Some(qp) if used.is_bound() => flagged(qp, id, flags)?.invalidate_window(used)?,
            _ => used.note_invalidated(),
        }
        if let Some(in_use) = windows.in_use.get_mut(window as usize) {
            *in_use = false;
        }
        windows.free.push_back(window);
        Ok(0)
    })
}

/// Destroys the windows, which no request uses any more. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_windows_destroy(windows: Option<Box<Windows>>) {
    drop(windows);
}
