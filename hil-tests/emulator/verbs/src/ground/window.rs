//! Copies bytes from and to any address of this process through a window: a small file in memory, which this
//! library has mapped. Threads that cannot receive SIGSEGV copy in this way (`direct.rs` has the other way).
//!
//! `pwritev` copies bytes from any addresses into the window, and `pread` copies bytes from the window to
//! any address. Both stop at the first address without memory, and respect the protection of pages. The
//! calls for memory of other processes (`process_vm_readv`) take two to three times as long, because they pin
//! pages. Sandboxes and qemu-user often lack these calls.
#![allow(unsafe_code)]

use crate::ground::{owner, sys};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, OnceLock, TryLockError};

/// The most bytes that the window holds.
pub(crate) const ROOM: usize = 1 << 16;

/// The window of the process `owner`. A forked child makes its own window, because parent and child would
/// write to the same bytes of an inherited one.
struct Window {
    owner: i32,
    file: File,
    bytes: *mut u8,
}

// SAFETY: the pointer is the address of a mapping that belongs to the window alone, on any thread.
unsafe impl Send for Window {}

static WINDOW: Mutex<Option<Window>> = Mutex::new(None);

impl Window {
    fn new() -> Option<Self> {
        let file = File::from(sys::memory(c"mlx5-window", ROOM as u64).ok()?);
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping of a file that nobody else has touches nothing that exists.
        let place = unsafe { sys::map(std::ptr::null_mut(), ROOM, rights, kind, file.as_raw_fd(), 0) };
        (place != libc::MAP_FAILED).then(|| Self { owner: owner::owner(), file, bytes: place.cast() })
    }

    /// Fills `out` with the bytes of the ranges, one after the other. Returns the number of bytes before the
    /// first unmapped address.
    fn load(&mut self, out: &mut [u8], ranges: &[libc::iovec]) -> usize {
        // SAFETY: any address is allowed: the kernel reads it, and stops where no memory is mapped.
        let moved = unsafe { libc::pwritev(self.file.as_raw_fd(), ranges.as_ptr(), ranges.len() as i32, 0) };
        let moved = usize::try_from(moved).unwrap_or(0).min(out.len()).min(ROOM);
        // SAFETY: the window has `ROOM` bytes, and `out` has at least `moved`. Only this thread uses the
        // window, and `out` is not part of it. The bytes may be a key, so none stays in the window.
        unsafe {
            self.bytes.copy_to_nonoverlapping(out.as_mut_ptr(), moved);
            self.bytes.write_bytes(0, moved);
        }
        moved
    }

    /// Stores bytes from an address on. Returns the number of bytes before the first unmapped address. Stores
    /// nothing if there are more than [`ROOM`] bytes.
    fn store(&mut self, address: u64, bytes: &[u8]) -> usize {
        if bytes.len() > ROOM {
            return 0;
        }
        // SAFETY: the window has `ROOM` bytes, which is enough. Only this thread uses the window, and `bytes`
        // is not part of it.
        unsafe { self.bytes.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let to = std::ptr::without_provenance_mut(address as usize);
        // SAFETY: the kernel writes to the address, which the program has handed to the device. It is not
        // memory of this library unless the program lies; hardware would write there as well. Only this
        // thread uses the window, in which no byte stays.
        let moved = unsafe {
            let moved = libc::pread(self.file.as_raw_fd(), to, bytes.len(), 0);
            self.bytes.write_bytes(0, bytes.len());
            moved
        };
        usize::try_from(moved).unwrap_or(0)
    }
}

/// Runs `body` with the window. While another thread uses the window, or if the parent process forked while
/// a thread used it, `body` gets a window of its own.
fn with_window(body: impl FnOnce(&mut Window) -> usize) -> usize {
    let mut held = match WINDOW.try_lock() {
        Ok(held) => held,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            let Some(mut window) = Window::new() else { return 0 };
            let moved = body(&mut window);
            owner::as_device(|| drop(window));
            return moved;
        }
    };
    if held.as_ref().is_none_or(|window| window.owner != owner::owner()) {
        let before = std::mem::replace(&mut *held, Window::new());
        owner::as_device(|| drop(before));
    }
    held.as_mut().map_or(0, body)
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to the window alone, which ends here.
        unsafe { libc::munmap(self.bytes.cast(), ROOM) };
    }
}

/// Returns whether the process runs under valgrind, which preloads libraries of its own. A device may read
/// bytes that a program never wrote, but memcheck reports an error where `pwritev` reads such bytes.
pub(crate) fn is_under_valgrind() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let names_valgrind = |list: &[u8]| list.windows(9).any(|part| part == b"vgpreload");
    *FOUND.get_or_init(|| {
        std::env::var_os("LD_PRELOAD").is_some_and(|list| names_valgrind(list.as_encoded_bytes()))
    })
}

/// Does the same as [`load`] by another system call. memcheck does not check whether the bytes that this call
/// reads were written before.
fn load_unjudged(out: &mut [u8], ranges: &[libc::iovec]) -> usize {
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    // SAFETY: `local` covers exactly `out`, which is borrowed for the call. The kernel alone looks at the
    // ranges, and stops where no memory is mapped.
    let moved = unsafe {
        let count = ranges.len() as libc::c_ulong;
        libc::process_vm_readv(owner::owner(), &raw const local, 1, ranges.as_ptr(), count, 0)
    };
    usize::try_from(moved).unwrap_or(0)
}

/// Fills `out` with the bytes of the ranges, one after the other. The caller ensures that the ranges together
/// have as many bytes as `out`. Returns the number of bytes before the first unmapped address.
pub(crate) fn load(out: &mut [u8], ranges: &[libc::iovec]) -> usize {
    if is_under_valgrind() {
        return load_unjudged(out, ranges);
    }
    if out.len() <= ROOM {
        return with_window(|window| window.load(out, ranges));
    }
    let mut done = 0;
    for range in ranges {
        let mut from = range.iov_base;
        let mut rest = range.iov_len;
        while rest > 0 {
            let length = rest.min(ROOM);
            let part = out.get_mut(done..done + length).unwrap_or_default();
            let one = libc::iovec { iov_base: from, iov_len: part.len() };
            let moved = with_window(|window| window.load(part, &[one]));
            done += moved;
            if moved < length {
                return done;
            }
            (from, rest) = (from.wrapping_byte_add(length), rest - length);
        }
    }
    done
}

/// Stores `bytes` from an address on. Returns the number of bytes before the first unmapped address.
pub(crate) fn store(address: u64, bytes: &[u8]) -> usize {
    let mut done = 0;
    for piece in bytes.chunks(ROOM) {
        let to = address.wrapping_add(done as u64);
        let moved = with_window(|window| window.store(to, piece));
        done += moved;
        if moved < piece.len() {
            break;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: u64, length: usize) -> libc::iovec {
        libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: length }
    }

    #[test]
    fn good_addresses_move_bytes_and_bad_ones_are_refused() {
        let target = vec![0_u8; 3 * ROOM + 5];
        let address = target.as_ptr().expose_provenance() as u64;
        let sent: Vec<u8> = (0..target.len()).map(|index| (index % 251) as u8).collect();
        assert_eq!(store(address, &sent), sent.len());
        let mut got = vec![0; sent.len()];
        assert_eq!(load(&mut got, &[range(address, sent.len())]), got.len());
        assert!(got == sent);
        assert_eq!(load(&mut got, &[range(0x10, sent.len())]), 0);
        assert_eq!(store(0x10, &sent), 0);
        assert_eq!(load(&mut got, &[range(u64::MAX - 4, sent.len())]), 0);
        let half = sent.len() - 7;
        assert_eq!(
            load(&mut got, &[range(address, half), range(0x10, 7)]),
            half,
            "the bytes before the first"
        );
        assert_eq!(load(&mut [0; 9], &[range(address, 4), range(0x10, 5)]), 4);
    }

    #[test]
    fn both_calls_load_the_same_bytes() {
        let target = b"in two ranges";
        let address = target.as_ptr().expose_provenance() as u64;
        let (mut by_window, mut unjudged) = ([0; 13], [0; 13]);
        let ranges = [range(address, 6), range(address + 6, 7)];
        assert_eq!((load(&mut by_window, &ranges), load_unjudged(&mut unjudged, &ranges)), (13, 13));
        assert_eq!((&by_window, &unjudged), (target, target));
        assert_eq!(load_unjudged(&mut unjudged, &[range(0x10, 13)]), 0);
    }

    #[test]
    fn threads_do_not_see_each_others_bytes() {
        let threads = (1..5_u8).map(|number| {
            std::thread::spawn(move || {
                let target = vec![number; 4096];
                let address = target.as_ptr().expose_provenance() as u64;
                let mut got = vec![0; 4096];
                (0..500).all(|_| {
                    load(&mut got, &[range(address, 4096)]) == 4096 && got.iter().all(|byte| *byte == number)
                })
            })
        });
        assert!(threads.collect::<Vec<_>>().into_iter().all(|thread| thread.join().is_ok_and(|fine| fine)));
    }
}
