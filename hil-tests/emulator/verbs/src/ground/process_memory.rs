//! This process's memory as the device sees it. The device may access any address. An access to an unmapped
//! address fails, and the process lives on.
//!
//! Hardware reaches memory that the kernel has pinned. A library cannot pin: the program may unmap a ring at
//! any time, and plain loads and stores would then end the program. A thread that executes requests copies
//! bytes itself, and a signal handler ends a copy at a bad address (`direct.rs`). A thread of the program
//! that makes a call may have blocked the signal, so it copies through the kernel (`window.rs`), which
//! answers EFAULT. Both ways respect the protection of pages.

use crate::ground::{direct, window};
use mlx5_softdev::{Fault, Memory};
#[cfg(any(test, feature = "fuzz"))]
use std::cell::Cell;
#[cfg(any(test, feature = "fuzz"))]
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

/// The most attempts to read a few bytes (a doorbell record, for instance) twice with the same result. After
/// the last attempt, the second copy counts.
const RETRIES: usize = 8;

/// The memory of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessMemory;

fn iovec(address: u64, length: usize) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: length }
}

#[cfg(any(test, feature = "fuzz"))]
thread_local! {
    /// The only range of addresses that this thread may access, for tests and fuzzing.
    static WINDOW: Cell<(u64, u64)> = const { Cell::new((0, u64::MAX)) };
}

/// Limits this thread's memory to a range of addresses.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn set_window(window: Range<u64>) {
    WINDOW.set((window.start, window.end));
}

/// Returns whether this thread may access a range of the process's memory.
#[cfg(any(test, feature = "fuzz"))]
fn is_visible(address: u64, length: u64) -> bool {
    let (first, end) = WINDOW.get();
    address >= first && address.checked_add(length).is_some_and(|last| last <= end)
}

/// Returns whether this thread may access a range of the process's memory. Outside tests, every range is
/// allowed.
#[cfg(not(any(test, feature = "fuzz")))]
const fn is_visible(_: u64, _: u64) -> bool {
    true
}

/// Reads the ranges one after the other into `out`. The caller ensures that the lengths of the ranges add up
/// to the length of `out`. Returns how many bytes were read before the first unmapped address.
fn readv(out: &mut [u8], iovecs: &[libc::iovec]) -> usize {
    let is_hidden = |iovec: &&libc::iovec| !is_visible(iovec.iov_base.addr() as u64, iovec.iov_len as u64);
    if iovecs.iter().find(is_hidden).is_some() {
        return 0;
    }
    window::load(out, iovecs)
}

impl ProcessMemory {
    /// Reads bytes that another thread may be writing: repeats until two reads are equal, [`RETRIES`] times
    /// at most.
    fn steady(self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let length = out.len();
        let mut twice = [0; 16];
        for _ in 0..RETRIES {
            let both = twice.get_mut(..2 * length).unwrap_or_default();
            if readv(both, &[iovec(address, length), iovec(address, length)]) < 2 * length {
                return Err(Fault { address, length: length as u64 });
            }
            let (first, second) = both.split_at(length);
            out.copy_from_slice(second);
            if first == second {
                break;
            }
        }
        Ok(())
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let length = out.len();
        let is_done = if direct::survives() {
            is_visible(address, length as u64) && direct::load(out, address)
        } else if length <= 8 {
            return self.steady(address, out);
        } else {
            readv(out, &[iovec(address, length)]) == length
        };
        if is_done { Ok(()) } else { Err(Fault { address, length: length as u64 }) }
    }

    fn append(&self, address: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        if !direct::survives() {
            let start = out.len();
            out.resize(start.saturating_add(length), 0);
            return self.read(address, out.get_mut(start..).unwrap_or_default());
        }
        let is_done = is_visible(address, length as u64) && direct::append(out, address, length);
        if is_done { Ok(()) } else { Err(Fault { address, length: length as u64 }) }
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let fault = Fault { address, length: bytes.len() as u64 };
        let is_done = is_visible(address, fault.length)
            && if direct::survives() {
                direct::store(address, bytes)
            } else {
                window::store(address, bytes) == bytes.len()
            };
        if is_done { Ok(()) } else { Err(fault) }
    }

    fn publish(&mut self, address: u64, byte: u8) -> Result<(), Fault> {
        // The fence orders the entry's other bytes before this byte. It also applies to stores of the kernel,
        // because the kernel makes them on this thread.
        fence(Ordering::Release);
        self.write(address, &[byte])
    }
}

/// Returns whether `length` bytes at `address` are mapped and readable, and also writable if `write` is set.
/// Returns `true` if the process cannot read the list of its mappings.
pub(crate) fn mapped(address: u64, length: u64, write: bool) -> bool {
    let Some(end) = address.checked_add(length).filter(|_| is_visible(address, length)) else { return false };
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return true };
    let mut next = address;
    for line in maps.lines() {
        if next >= end {
            break;
        }
        let Some((from, to, rights)) = area(line) else { continue };
        if to <= next {
            continue;
        }
        let allowed = rights.starts_with('r') && (!write || rights.get(1..2) == Some("w"));
        if from > next || !allowed {
            return false;
        }
        next = to;
    }
    next >= end
}

/// Takes first address, end and rights from a line of `/proc/self/maps`.
fn area(line: &str) -> Option<(u64, u64, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_move_bytes_and_bad_ones_are_refused() {
        let target = [0u8; 16];
        let address = target.as_ptr().expose_provenance() as u64;
        let mut memory = ProcessMemory;
        assert_eq!(memory.write(address, &[7; 16]), Ok(()));
        let mut out = [0; 16];
        assert_eq!(memory.read(address, &mut out), Ok(()));
        assert_eq!(out, [7; 16]);
        assert!(memory.read(0x10, &mut out).is_err());
        assert!(memory.write(0x10, &[1]).is_err());
        assert!(memory.read(u64::MAX - 4, &mut out).is_err());
    }

    #[test]
    fn code_cannot_be_written() {
        let code = good_addresses_move_bytes_and_bad_ones_are_refused as fn() as usize as u64;
        assert!(ProcessMemory.write(code, &[0]).is_err());
        assert!(mapped(code, 1, false));
        assert!(!mapped(code, 1, true));
        assert!(!mapped(0x10, 1, false));
        assert!(!mapped(u64::MAX, 2, false));
    }
}
