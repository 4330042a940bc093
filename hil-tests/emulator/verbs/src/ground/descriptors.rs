//! Sets of file descriptors: descriptors that this library gives out, descriptors that it keeps for itself,
//! and the program's netlink sockets that it answers.

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The sets hold descriptors below this number. The device is never opened on a descriptor of this number or
/// above.
pub(crate) const DESCRIPTORS: usize = 1 << 16;

/// A set of descriptors, one bit each.
pub(crate) struct Bits([AtomicU64; DESCRIPTORS / 64]);

impl Bits {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; DESCRIPTORS / 64])
    }

    fn word(&self, descriptor: RawFd) -> Option<(&AtomicU64, u64)> {
        let number = usize::try_from(descriptor).ok()?;
        Some((self.0.get(number / 64)?, 1 << (number % 64)))
    }

    pub(crate) fn insert(&self, descriptor: RawFd) {
        if let Some((word, bit)) = self.word(descriptor) {
            word.fetch_or(bit, Ordering::Release);
        }
    }

    pub(crate) fn remove(&self, descriptor: RawFd) {
        if let Some((word, bit)) = self.word(descriptor) {
            word.fetch_and(!bit, Ordering::Release);
        }
    }

    pub(crate) fn contains(&self, descriptor: RawFd) -> bool {
        self.word(descriptor).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }
}

/// Descriptors of open contexts and event channels, as the program has them. A test of this set needs no
/// lock.
pub(crate) static OURS: Bits = Bits::new();

/// Descriptors that this library keeps for itself. Daemons close all descriptors that they do not know. They
/// must not close a kept descriptor: another file would get its number, and the device would write into that
/// file.
pub(crate) static KEPT: Bits = Bits::new();

/// Sockets of the program to the kernel's list of RDMA devices (netlink), which this library answers.
pub(crate) static NETLINK: Bits = Bits::new();

/// Descriptors of open rdma_cm files (`/dev/infiniband/rdma_cm`).
pub(crate) static CONNECTIONS: Bits = Bits::new();

/// Records that this library keeps a descriptor for itself. The program then cannot close the descriptor.
pub(crate) fn keep(descriptor: &impl AsRawFd) {
    KEPT.insert(descriptor.as_raw_fd());
}

/// Closes a range of descriptors. Calls `close` for each descriptor of the range whose calls this library
/// answers. Hands the parts of the range between kept descriptors to `rest`, and returns the result of the
/// first call of `rest` that fails, or 0.
pub(crate) fn close_range(
    first: c_uint,
    last: c_uint,
    close: impl Fn(RawFd),
    rest: impl Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    let mut from = first;
    for descriptor in RawFd::try_from(first).unwrap_or(RawFd::MAX)..DESCRIPTORS as RawFd {
        let number = descriptor.unsigned_abs();
        if number > last {
            break;
        }
        if [&OURS, &NETLINK, &CONNECTIONS].iter().any(|set| set.contains(descriptor)) {
            close(descriptor);
        }
        if KEPT.contains(descriptor) {
            if let Some(before) = number.checked_sub(1).filter(|before| from <= *before)
                && let failed @ ..0 = rest(from, before)
            {
                return failed;
            }
            from = number + 1;
        }
    }
    if from <= last { rest(from, last) } else { 0 }
}

/// Returns whether a descriptor is too high for these sets.
pub(crate) fn is_too_high(descriptor: RawFd) -> bool {
    OURS.word(descriptor).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn ranges_leave_out_what_is_kept() {
        // No other test of this program opens descriptors with these numbers.
        for kept in [60_003, 60_004, 60_010] {
            KEPT.insert(kept);
        }
        OURS.insert(60_006);
        NETLINK.insert(60_007);
        CONNECTIONS.insert(60_008);
        let parts = |first, last| {
            let (ours, others) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
            let close = |descriptor| ours.borrow_mut().push(descriptor);
            let rest = |first, last| {
                others.borrow_mut().push((first, last));
                0
            };
            assert_eq!(close_range(first, last, close, rest), 0);
            (ours.into_inner(), others.into_inner())
        };
        assert_eq!(parts(60_000, 60_002), (vec![], vec![(60_000, 60_002)]));
        assert_eq!(parts(60_003, 60_004), (vec![], vec![]));
        assert_eq!(parts(60_004, 60_006), (vec![60_006], vec![(60_005, 60_006)]));
        let all = vec![(60_000, 60_002), (60_005, 60_009), (60_011, c_uint::MAX)];
        assert_eq!(parts(60_000, c_uint::MAX), (vec![60_006, 60_007, 60_008], all));
        assert_eq!(parts(c_uint::MAX, c_uint::MAX), (vec![], vec![(c_uint::MAX, c_uint::MAX)]));
        let refused = |_, _| -1;
        assert_eq!(close_range(60_000, 60_009, |_| (), refused), -1);
        for kept in [60_003, 60_004, 60_010] {
            KEPT.remove(kept);
        }
        OURS.remove(60_006);
        NETLINK.remove(60_007);
        CONNECTIONS.remove(60_008);
    }
}
