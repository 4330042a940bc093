//! Messages between requester and responder: plain values that contain wire bytes. A program with several
//! devices may carry the messages between them by any means.

use crate::datagram::Datagram;
use crate::refusal::Cause;
use alloc::sync::Arc;
use alloc::vec::Vec;
use mlx5_mkey::wire::cqe::Syndrome;

/// A request to a peer (InfiniBand operations).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// SEND: data for the peer's next receive request.
    Send {
        /// Wire bytes, which the requester keeps until it has an answer.
        data: Arc<Vec<u8>>,
        /// Immediate data or key to invalidate.
        payload: Payload,
        /// Whether the sender asks for an event at the receiver.
        solicited: bool,
    },
    /// RDMA WRITE.
    Write {
        /// The responder's key.
        rkey: u32,
        /// Address in the key's space.
        address: u64,
        /// Wire bytes, which the requester keeps until it has an answer.
        data: Arc<Vec<u8>>,
        /// Immediate data, which takes a receive request of the peer.
        immediate: Option<u32>,
        /// Whether the sender asks for an event at the receiver.
        solicited: bool,
    },
    /// RDMA READ.
    Read {
        /// The responder's key.
        rkey: u32,
        /// Address in the key's space.
        address: u64,
        /// Length in wire bytes.
        length: u32,
    },
    /// Atomic change of 4 or 8 bytes. The value in memory is little endian.
    Atomic {
        /// The responder's key.
        rkey: u32,
        /// Address in the key's space.
        address: u64,
        /// The number of bytes, 8 without masks.
        width: Width,
        /// The change, [without masks](Change::without_masks) for a plain atomic. If the width is 4 bytes,
        /// the upper halves of all values are 0.
        change: Change,
        /// Whether the request is a masked atomic. A responder may allow plain atomics and forbid masked
        /// atomics.
        masked: bool,
    },
}

impl Request {
    /// Returns the data that the request carries; none for an RDMA READ or an atomic.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match self {
            Self::Send { data, .. } | Self::Write { data, .. } => data,
            Self::Read { .. } | Self::Atomic { .. } => &[],
        }
    }

    /// Returns a plain compare-and-swap of 8 bytes: if the value in memory equals `compare`, the value
    /// becomes `swap`.
    #[must_use]
    pub const fn compare_swap(rkey: u32, address: u64, compare: u64, swap: u64) -> Self {
        let change = Change::CompareSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX };
        Self::Atomic { rkey, address, width: Width::Eight, change, masked: false }
    }

    /// Returns a plain addition to 8 bytes.
    #[must_use]
    pub const fn fetch_add(rkey: u32, address: u64, add: u64) -> Self {
        let change = Change::FetchAdd { add, boundary: 0 };
        Self::Atomic { rkey, address, width: Width::Eight, change, masked: false }
    }
}

/// The number of bytes that an atomic changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

impl Width {
    /// Returns the number of bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// The change of a value by an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// If the value equals `compare` in the bits of `compare_mask`, the bits of `swap_mask` get the values
    /// that they have in `swap`.
    CompareSwap {
        /// The value to compare with.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits that the swap replaces.
        swap_mask: u64,
    },
    /// Adds `add`, field by field. A bit of `boundary` marks the highest bit of a field, and no carry leaves
    /// this bit.
    FetchAdd {
        /// The number to add.
        add: u64,
        /// The highest bits of the fields.
        boundary: u64,
    },
}

impl Change {
    /// Returns the change of the plain atomic: all bits are compared and swapped, and the value is one field.
    pub const fn without_masks(self) -> Self {
        match self {
            Self::CompareSwap { compare, swap, .. } => {
                Self::CompareSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX }
            }
            Self::FetchAdd { add, .. } => Self::FetchAdd { add, boundary: 0 },
        }
    }

    /// Returns the changed value.
    pub const fn of(self, value: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                if (value ^ compare) & compare_mask != 0 {
                    return value;
                }
                value & !swap_mask | swap & swap_mask
            }
            // Without the highest bit of each field, no sum of two fields carries into the next field. The
            // highest bits are then added without a carry.
            Self::FetchAdd { add, boundary } => {
                (value & !boundary).wrapping_add(add & !boundary) ^ (value ^ add) & boundary
            }
        }
    }
}

/// The additional value of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No value.
    None,
    /// Immediate data.
    Immediate(u32),
    /// The responder's key to invalidate.
    Invalidate(u32),
}

/// The answer of the responder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The request was executed.
    Done,
    /// The request was executed. The data are the wire bytes of an RDMA READ.
    Data(Vec<u8>),
    /// The request was executed. The number is the value before the atomic, whose upper half is 0 if the
    /// atomic changed 4 bytes.
    Original(u64),
    /// The responder has no posted receive request. The requester has to send the request again.
    ReceiverNotReady {
        /// The responder's code for the time that the requester waits before it tries again (PRM
        /// `min_rnr_nak`).
        timer: u8,
    },
    /// The responder refuses the request.
    Refused {
        /// The syndrome of the requester's completion.
        syndrome: Syndrome,
        /// The responder's reason. Real devices do not send the reason. It helps people who debug a requester
        /// and its responder.
        cause: Option<Cause>,
    },
    /// No queue pair with the destination's number answers.
    Unreachable,
}

/// A message from one queue pair to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request to a responder.
    Request {
        /// Number of the requester's queue pair.
        from: u32,
        /// Number of the responder's queue pair.
        to: u32,
        /// Sequence number. The lower 24 bits count the requests of a queue pair, as packet sequence numbers
        /// do. The upper 8 bits differ after a reset, so that an old response is not taken for the answer to
        /// a new request. See [`is_first`].
        sequence: u32,
        /// The request.
        request: Request,
    },
    /// A request to a responder that gives no answer (UC, UD). A lost request is not repeated.
    Unanswered {
        /// Number of the requester's queue pair.
        from: u32,
        /// Number of the responder's queue pair.
        to: u32,
        /// The fields of a datagram beside its data; `None` for a connected queue pair.
        datagram: Option<Datagram>,
        /// A SEND or an RDMA WRITE.
        request: Request,
    },
    /// An answer to the requester.
    Response {
        /// Number of the requester's queue pair.
        to: u32,
        /// The `sequence` of the request.
        sequence: u32,
        /// The answer.
        response: Response,
    },
}

impl Message {
    /// Returns the number of the destination's queue pair.
    pub const fn to(&self) -> u32 {
        let (Self::Request { to, .. } | Self::Unanswered { to, .. } | Self::Response { to, .. }) = self;
        *to
    }
}

/// Returns whether `sequence` belongs to the first request of a queue pair after a reset.
pub const fn is_first(sequence: u32) -> bool {
    sequence & COUNT == 0
}

/// The bits of a sequence number that count requests.
const COUNT: u32 = 0x00ff_ffff;

/// Returns the sequence number after this one.
pub(crate) const fn next(sequence: u32) -> u32 {
    sequence & !COUNT | sequence.wrapping_add(1) & COUNT
}

/// Returns the sequence number of the first request after a reset.
pub(crate) const fn after_reset(sequence: u32) -> u32 {
    (sequence & !COUNT).wrapping_add(COUNT + 1)
}
