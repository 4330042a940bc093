//! Requests that cannot be encoded or posted.

use crate::mkey::error::{ConfigError, PoolError};
use crate::wire::MAX_WQE_OCTOWORDS;
use crate::wire::data::DataSegment;
use core::fmt;

/// A request that could not be posted. Posted requests, counters and mkey state are as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PostError {
    /// The configuration does not fit the mkey or the queue.
    Config(ConfigError),
    /// The send queue's ring has too few free blocks: take completions first. If the whole ring has fewer
    /// than `needed` blocks, the request never fits.
    SendRingFull {
        /// Blocks of 64 bytes that the request takes.
        needed: u16,
        /// Blocks that are free.
        free: u16,
    },
    /// The receive queue's ring has no free slot for the request: take completions first.
    ReceiveRingFull {
        /// Slots of the ring.
        slots: u16,
    },
    /// The send queue's limit of outstanding requests is reached: take completions first. Where the limit is
    /// below `needed`, the request never fits.
    TooManyRequests {
        /// Requests that this request counts as: the SET_PSVs of a signature count too.
        needed: u16,
        /// Requests that may still be posted.
        free: u16,
    },
    /// The request has more data segments than the queue allows.
    TooManySges {
        /// Entries given, or `u16::MAX`.
        sges: u16,
        /// Entries that fit.
        max: u16,
    },
    /// A data segment has no bytes.
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
        /// Bytes given, or `u16::MAX`.
        length: u16,
        /// Bytes that fit.
        max: u16,
    },
    /// The control segment of a request that the caller built has an invalid size: 0, or over 63 octowords.
    RawSize {
        /// The size in the control segment, in octowords of 16 bytes.
        octowords: u8,
    },
    /// A request that the caller built is shorter than its control segment says, or shorter than a control
    /// segment.
    RawTooShort {
        /// Bytes that the request needs.
        needed: u16,
        /// Bytes given.
        have: u16,
    },
    /// The queue was made for a queue pair without copies in memory.
    MemcpyUnsupported,
    /// A copy in memory has no bytes.
    MemcpyEmpty,
    /// A copy in memory is longer than the device's limit.
    MemcpyTooLong {
        /// The copy's length in MiB, rounded up.
        mebibytes: u16,
        /// Logarithm of the device's limit in bytes.
        log_max: u8,
    },
    /// The position from which requests were to be cancelled is not one of an outstanding request.
    NotOutstanding {
        /// The position, a block number modulo 2^16.
        counter: u16,
    },
    /// A handle names nothing that is in use in this pool.
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
