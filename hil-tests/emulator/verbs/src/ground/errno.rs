//! Why a call of the kernel's interface is refused: the numbers that the kernel gives.

/// An error number (errno.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    /// The object is not there.
    pub(crate) const NOENT: Self = Self(libc::ENOENT);
    /// There is no room at the moment.
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
    /// The device is gone.
    pub(crate) const IO: Self = Self(libc::EIO);
    /// The file descriptor is not what was asked for.
    pub(crate) const BADF: Self = Self(libc::EBADF);
    /// No numbers or no memory left.
    pub(crate) const NOMEM: Self = Self(libc::ENOMEM);
    /// An address is no memory.
    pub(crate) const FAULT: Self = Self(libc::EFAULT);
    /// The object is used by another.
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    /// An argument makes no sense.
    pub(crate) const INVAL: Self = Self(libc::EINVAL);
    /// There is no room for the answer.
    pub(crate) const NOSPC: Self = Self(libc::ENOSPC);
    /// The device does not do this.
    pub(crate) const OPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// The interface does not have this method or attribute.
    pub(crate) const PROTONOSUPPORT: Self = Self(libc::EPROTONOSUPPORT);
    /// Nobody answers at an address of the network.
    pub(crate) const TIMEDOUT: Self = Self(libc::ETIMEDOUT);
    /// The device refused the command; its reply says why.
    pub(crate) const REMOTEIO: Self = Self(libc::EREMOTEIO);
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
