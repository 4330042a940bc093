//! The kernel's error numbers, with which the stand-in refuses calls.

/// An error number (errno.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    /// The object does not exist.
    pub(crate) const NOENT: Self = Self(libc::ENOENT);
    /// The call would have to wait, for room or for an event.
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
    /// The device is gone.
    pub(crate) const IO: Self = Self(libc::EIO);
    /// The program may not do this.
    pub(crate) const PERM: Self = Self(libc::EPERM);
    /// The file descriptor is of another kind than the call needs, or is not open.
    pub(crate) const BADF: Self = Self(libc::EBADF);
    /// No object number, descriptor or memory is left.
    pub(crate) const NOMEM: Self = Self(libc::ENOMEM);
    /// The memory at an address is not accessible.
    pub(crate) const FAULT: Self = Self(libc::EFAULT);
    /// Another object uses this object.
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    /// An argument is invalid.
    pub(crate) const INVAL: Self = Self(libc::EINVAL);
    /// The answer does not fit into the caller's buffer.
    pub(crate) const NOSPC: Self = Self(libc::ENOSPC);
    /// The entry of the GID table is empty.
    pub(crate) const NODATA: Self = Self(libc::ENODATA);
    /// The device does not have this feature.
    pub(crate) const OPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// The kernel's interface does not have this method or attribute.
    pub(crate) const PROTONOSUPPORT: Self = Self(libc::EPROTONOSUPPORT);
    /// No answer came in time: no peer is at a network address, or a planned fault withholds the answer.
    pub(crate) const TIMEDOUT: Self = Self(libc::ETIMEDOUT);
    /// The device refused the command; its reply says why.
    pub(crate) const REMOTEIO: Self = Self(libc::EREMOTEIO);
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

impl From<mlx5_softdev::Error> for Errno {
    fn from(error: mlx5_softdev::Error) -> Self {
        use mlx5_softdev::Error;
        match error {
            Error::InUse => Self::BUSY,
            Error::CryptoMode => Self::OPNOTSUPP,
            Error::Exhausted => Self::NOMEM,
            Error::NoSuchObject { .. }
            | Error::BadAttribute(_)
            | Error::BadTransition { .. }
            | Error::NoLogin
            | Error::BadKey
            | Error::AtomicOverRelaxed => Self::INVAL,
        }
    }
}
