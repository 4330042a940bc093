//! What can go wrong on the way to the device, and what to do about it.

use crate::error::{CommandError, ConfigError, QueueError};
use crate::types::OutOfRange;
use core::fmt;
use std::io;
use std::string::{String, ToString};
use std::vec::Vec;

/// A library, or a function in it, that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryError {
    what: &'static str,
    cause: String,
}

impl LibraryError {
    pub(super) fn new(what: &'static str, cause: &str) -> Self {
        Self { what, cause: cause.to_string() }
    }
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot load {}: {}. Install rdma-core's libraries (Debian and Ubuntu: libibverbs1 and ibverbs-providers)",
            self.what, self.cause
        )
    }
}

impl core::error::Error for LibraryError {}

/// Why the shim could not do what it was asked for.
#[derive(Debug)]
#[non_exhaustive]
pub enum DevxError {
    /// A library is missing.
    Library(LibraryError),
    /// No mlx5 device has the name, or there is none at all.
    NoDevice {
        /// The name that was asked for.
        wanted: Option<String>,
        /// The RDMA devices that there are.
        seen: Vec<String>,
    },
    /// The device is there but cannot be opened for DEVX.
    Open {
        /// Its name.
        device: String,
        /// What the kernel said.
        cause: String,
    },
    /// A function of libibverbs or libmlx5 failed.
    Call {
        /// Its name.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The device refused a command, or cannot do what it asks for.
    Command(CommandError),
    /// A size is not one that a queue can have.
    Queue(QueueError),
    /// A number does not fit its field.
    OutOfRange(OutOfRange),
    /// The mkey cannot be what was asked for.
    Config(ConfigError),
    /// An event was shorter than its header.
    ShortEvent,
}

macro_rules! from {
    ($($variant:ident($error:ty);)+) => { $(
        impl From<$error> for DevxError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )+ };
}

from! {
    Command(CommandError);
    Queue(QueueError);
    OutOfRange(OutOfRange);
    Config(ConfigError);
}

impl DevxError {
    pub(super) fn call(what: &'static str, cause: io::Error) -> Self {
        Self::Call { what, cause }
    }
}

impl fmt::Display for DevxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(error) => error.fmt(f),
            Self::NoDevice { wanted, seen } => {
                match wanted {
                    Some(name) => write!(f, "no mlx5 device named {name}")?,
                    None => f.write_str("no mlx5 device")?,
                }
                match &seen[..] {
                    [] => {
                        f.write_str("; the kernel shows no RDMA device at all: is the mlx5_ib module loaded?")
                    }
                    seen => write!(f, "; there are: {}", seen.join(", ")),
                }
            }
            Self::Open { device, cause } => write!(
                f,
                "cannot open {device} for DEVX: {cause}. It takes CAP_NET_RAW (run as root, or set the capability) and a \
                 kernel with DEVX"
            ),
            Self::Call { what, cause } => write!(f, "{what}: {cause}"),
            Self::Command(error) => error.fmt(f),
            Self::Queue(error) => error.fmt(f),
            Self::OutOfRange(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::ShortEvent => f.write_str("the kernel delivered an event without a header"),
        }
    }
}

impl core::error::Error for DevxError {}
