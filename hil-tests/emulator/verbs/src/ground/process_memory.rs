//! This process's memory as the device sees it. The device may access any address. An access to an unmapped
//! address fails, and the process lives on.
//!
//! Hardware reaches memory that the kernel has pinned. A library cannot pin: the program may unmap a ring at
//! any time. So every access goes through the kernel (`window.rs`). The kernel answers EFAULT where plain
//! loads and stores would end the program, and respects the protection of pages.

use crate::ground::window;
use mlx5_softdev::{Fault, Memory};
#[cfg(any(test, feature = "fuzz"))]
use std::cell::Cell;
#[cfg(any(test, feature = "fuzz"))]
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

/// The most ranges that the kernel takes in one call (UIO_MAXIOV).
const MAX_IOVECS: usize = 1024;

/// The smallest page of any system.
const PAGE: u64 = 4096;

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
    /// Reads 8 bytes at each address: pairs of doorbell records. The result is `None` for an address without
    /// memory. Consecutive addresses in one page are read together, because the kernel takes longer to find a
    /// page than to copy it.
    ///
    /// The host writes a record of 4 bytes with one store, but the kernel may copy single bytes, and then see
    /// only a part of this store. So each record is read twice, until both copies are equal.
    pub(crate) fn records(self, addresses: &[u64], out: &mut Vec<Option<[u8; 8]>>) {
        out.clear();
        let spans: Vec<&[u64]> =
            addresses.chunk_by(|one, next| page(*one).is_some() && page(*one) == page(*next)).collect();
        for spans in spans.chunks(MAX_IOVECS / 2) {
            let ranges: Vec<_> = spans.iter().map(|addresses| range(addresses)).collect();
            let twice =
                |(address, length): &(u64, usize)| [iovec(*address, *length), iovec(*address, *length)];
            let iovecs: Vec<_> = ranges.iter().flat_map(twice).collect();
            let mut bytes = vec![0; ranges.iter().map(|(_, length)| 2 * length).sum()];
            let read = readv(&mut bytes, &iovecs);
            let mut rest = bytes.get(..read).unwrap_or_default();
            for (addresses, (start, length)) in spans.iter().zip(&ranges) {
                let (both, behind) = rest.split_at_checked(2 * length).unwrap_or_default();
                rest = behind;
                let copies = both.split_at_checked(*length).unwrap_or_default();
                out.extend(addresses.iter().map(|address| {
                    let of = |copy: &[u8]| copy.get((address - start) as usize..)?.first_chunk().copied();
                    of(copies.0)
                        .filter(|first| of(copies.1) == Some(*first))
                        .or_else(|| self.record(*address))
                }));
            }
        }
    }

    fn record(self, address: u64) -> Option<[u8; 8]> {
        let mut bytes = [0; 8];
        self.steady(address, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Reads bytes that another thread may be writing, until two reads return the same.
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
        if out.len() <= 8 {
            return self.steady(address, out);
        }
        let length = out.len();
        let fault = Fault { address, length: length as u64 };
        if readv(out, &[iovec(address, length)]) < length { Err(fault) } else { Ok(()) }
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let fault = Fault { address, length: bytes.len() as u64 };
        let is_done = is_visible(address, fault.length) && window::store(address, bytes) == bytes.len();
        if is_done { Ok(()) } else { Err(fault) }
    }

    fn publish(&mut self, address: u64, byte: u8) -> Result<(), Fault> {
        // The fence orders the entry's other bytes before this byte. It also applies to stores of the kernel,
        // because the kernel makes them on this thread.
        fence(Ordering::Release);
        self.write(address, &[byte])
    }

    /// Stores the entry by one system call, which copies `body` and then `last`. On x86-64, other threads see
    /// the stores in this order.
    #[cfg(target_arch = "x86_64")]
    fn publish_entry(&mut self, address: u64, body: &[u8], last: u8) -> Result<(), Fault> {
        let length = body.len() + 1;
        let is_done =
            is_visible(address, length as u64) && window::store_in_order(address, body, &[last]) == length;
        if is_done { Ok(()) } else { Err(Fault { address, length: length as u64 }) }
    }
}

/// Returns the page that holds a pair of doorbell records, or `None` if the pair crosses a page's end.
fn page(address: u64) -> Option<u64> {
    let last = address.checked_add(7)?;
    (address / PAGE == last / PAGE).then_some(address / PAGE)
}

/// Returns address and length of the memory that holds the pairs of records at these addresses. The pairs are
/// in one page, or there is only one pair.
fn range(addresses: &[u64]) -> (u64, usize) {
    let first = addresses.iter().copied().min().unwrap_or_default();
    let last = addresses.iter().copied().max().unwrap_or_default();
    (first, (last - first) as usize + 8)
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

    #[test]
    fn records_are_read_together() {
        let record = [1u8, 2, 3, 4, 5, 6, 7, 8];
        let address = record.as_ptr().expose_provenance() as u64;
        let mut out = Vec::new();
        ProcessMemory.records(&[address, 0x10, address, u64::MAX - 2, 0x10], &mut out);
        assert_eq!(out, [Some(record), None, Some(record), None, None]);
    }

    #[test]
    fn records_of_pages_are_told_apart() {
        // `bytes` holds at least three whole pages. The records lie in the first two of these pages, and
        // across the boundary between the two.
        let bytes: Vec<u8> = (0..4 * PAGE).map(|at| (at % 251) as u8).collect();
        let first = (bytes.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE);
        let begin = (first - bytes.as_ptr() as u64) as usize;
        let places = [64, 0, 128, PAGE - 8, PAGE - 4, PAGE, PAGE + 64, 16];
        let mut out = Vec::new();
        ProcessMemory.records(&places.map(|place| first + place), &mut out);
        let at = |place: u64| bytes.get(begin + place as usize..)?.first_chunk().copied();
        let expected = places.map(at);
        assert_eq!(out, expected);
    }
}
