//! The error of requests that cannot be encoded or posted.

use crate::mkey::error::{ConfigError, PoolError};
use crate::wire::MAX_WQE_OCTOWORDS;
use crate::wire::data::DataSegment;
use core::fmt;

/// Why a request was refused. Posted requests, counters and the state of the mkey are as before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PostError {
    /// The configuration does not fit the mkey or the queue.
    Config(ConfigError),
    /// The send queue's ring has too few free blocks. Blocks become free when completions are taken. If the
    /// whole ring has fewer than `needed` blocks, the request never fits.
    SendRingFull {
        /// Number of blocks that the request takes.
        needed: u16,
        /// Number of free blocks.
        free: u16,
    },
    /// The receive queue's ring has no free slot for the request. Slots become free when completions are
    /// taken.
    ReceiveRingFull {
        /// Number of slots of the ring.
        slots: u16,
    },
    /// The request would exceed the send queue's limit of outstanding requests. A request stops being
    /// outstanding when its completion, or that of a later request, is taken. If the limit is below `needed`,
    /// the request never fits.
    TooManyRequests {
        /// Number of work requests that the request consists of, including the SET_PSVs of a signature.
        needed: u16,
        /// Number of work requests that may still be posted.
        free: u16,
    },
    /// The request has more data segments than the queue allows.
    TooManySges {
        /// Number of data segments in the request, at most `u16::MAX`.
        sges: u16,
        /// Largest number of data segments that the queue allows.
        max: u16,
    },
    /// The length of a data segment is 0.
    SgeEmpty {
        /// The number of the segment, counted from 0.
        index: u16,
    },
    /// A data segment has more than [`crate::wqe::Sge::MAX_BYTES`].
    SgeTooLong {
        /// The number of the segment, counted from 0.
        index: u16,
        /// The segment's length in MiB.
        mebibytes: u16,
    },
    /// The inline data is longer than the queue allows.
    InlineTooLong {
        /// Number of bytes in the request, at most `u16::MAX`.
        length: u16,
        /// Largest number of bytes that the queue allows.
        max: u16,
    },
    /// The control segment of a request that the caller built has an invalid size: 0, or more than 63
    /// octowords.
    RawSize {
        /// The size in the control segment, in octowords of 16 bytes.
        octowords: u8,
    },
    /// A request that the caller built is shorter than its control segment says, or shorter than a control
    /// segment.
    RawTooShort {
        /// Number of bytes that the request needs.
        needed: u16,
        /// Number of bytes that the caller gave.
        have: u16,
    },
    /// The queue has no [`MemcpyConfig`](crate::wqe::MemcpyConfig), so it takes no copies in memory.
    MemcpyUnsupported,
    /// The length of a copy in memory is 0.
    MemcpyEmpty,
    /// A copy in memory is longer than the device's limit.
    MemcpyTooLong {
        /// The copy's length in MiB, rounded up.
        mebibytes: u16,
        /// Base-2 logarithm of the device's limit in bytes.
        log_max: u8,
    },
    /// No outstanding request begins at the position from which requests were to be cancelled.
    NotOutstanding {
        /// The position, a block number modulo 2^16.
        counter: u16,
    },
    /// The handle names no mkey or memory window that is in use in this pool.
    Pool(PoolError),
}

// A larger error would be returned through memory, which would slow down posting even without errors.
const _: () = assert!(size_of::<PostError>() <= 8);

impl From<ConfigError> for PostError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<PoolError> for PostError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Config(error) => error.fmt(f),
            Self::SendRingFull { needed, free } => {
                write!(f, "send ring full: {needed} blocks needed, {free} free")
            }
            Self::ReceiveRingFull { slots } => write!(f, "receive ring full: none of {slots} slots is free"),
            Self::TooManyRequests { needed, free } => {
                write!(f, "send queue full: {needed} requests needed, {free} may be posted")
            }
            Self::TooManySges { sges, max } => write!(f, "{sges} data segments, {max} fit"),
            Self::SgeEmpty { index } => write!(f, "data segment {index} has no bytes"),
            Self::SgeTooLong { index, mebibytes } => {
                write!(
                    f,
                    "data segment {index} has {mebibytes} MiB: {} bytes are the most",
                    DataSegment::MAX_BYTES
                )
            }
            Self::InlineTooLong { length, max } => write!(f, "{length} bytes of inline data, {max} fit"),
            Self::RawSize { octowords } => write!(
                f,
                "the control segment says {octowords} octowords: 1 to {MAX_WQE_OCTOWORDS} are allowed"
            ),
            Self::RawTooShort { needed, have } => {
                write!(f, "the request says that it has {needed} bytes: {have} are given")
            }
            Self::MemcpyUnsupported => f.write_str("the queue pair does not copy in memory"),
            Self::MemcpyEmpty => f.write_str("a copy in memory has no bytes"),
            Self::MemcpyTooLong { mebibytes, log_max } => {
                write!(f, "a copy in memory of {mebibytes} MiB: 2^{log_max} bytes are the most")
            }
            Self::NotOutstanding { counter } => write!(f, "no outstanding request begins at block {counter}"),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PostError {}
