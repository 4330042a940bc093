//! A function that waits until file descriptors are readable, and a handle that ends such a wait.

#![allow(unsafe_code)]

use crate::devx::error::DevxError;
use core::ffi::{c_int, c_short};
use core::ptr;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The poll events that a channel reports when its context is gone.
pub(super) const ENDED: c_short = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL | libc::POLLRDHUP;

/// A descriptor number that ppoll ignores.
pub(super) const NONE: c_int = -1;

/// Waits until one of the descriptors is readable or reports one of the events `ENDED`, until the time `left`
/// is over, or until a signal arrives. Returns the events of each descriptor.
pub(super) fn wait(descriptors: [c_int; 2], left: Option<Duration>) -> Result<[c_short; 2], DevxError> {
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

/// A handle that ends all current and future waits on the descriptor [`Waker::fd`].
pub(in crate::devx) struct Waker {
    ours: UnixStream,
    theirs: UnixStream,
}

impl Waker {
    pub(in crate::devx) fn new() -> Result<Self, DevxError> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| DevxError::call("socketpair", error))?;
        Ok(Self { ours, theirs })
    }

    pub(in crate::devx) fn wake(&self) {
        // The call fails only if an earlier call has already ended the waits.
        let _ = self.ours.shutdown(Shutdown::Both);
    }

    pub(super) fn fd(&self) -> c_int {
        self.theirs.as_raw_fd()
    }
}
