//! Kind, number and name of a send request, which the queue keeps between post and completion.

use crate::wire::low::low8;
use core::sync::atomic::{AtomicU64, Ordering};

/// The kind of a send request (`ibv_wc_opcode`). A cancelled request keeps its kind, although the ring then
/// holds a NOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum RequestKind {
    /// NOP.
    Nop,
    /// Send, with or without immediate data or invalidation.
    Send,
    /// RDMA WRITE, with or without immediate data.
    RdmaWrite,
    /// RDMA READ.
    RdmaRead,
    /// Atomic compare and swap, with or without masks.
    CompareSwap,
    /// Atomic fetch and add, with or without masks.
    FetchAdd,
    /// Last work request of a configuration of an mkey. After its completion the mkey is configured
    /// (`IBV_WC_DRIVER1`).
    MkeyConfigure,
    /// Other work request of a configuration of an mkey: the UMR if SET_PSVs follow, or a SET_PSV before the
    /// last one. Polling does not return its success. If the queue fails, its failure carries the
    /// configuration's `wr_id`.
    MkeyConfigurePart,
    /// Change of a PSV to the start value of a digest
    /// ([`SendRequest::set_psv`](super::SendRequest::set_psv)).
    SetPsv,
    /// Invalidation of a local key (`IBV_WC_LOCAL_INV`).
    LocalInvalidate,
    /// Copy in memory (`MLX5DV_WC_MEMCPY`).
    Memcpy,
    /// Request that the caller built, of any operation (`MLX5DV_WC_RAW_WQE`).
    Raw,
    /// Binding of a memory window (`IBV_WC_BIND_MW`).
    BindWindow,
}

impl RequestKind {
    pub(super) const fn into_bits(self) -> u8 {
        low8::<4>(self as u8)
    }

    /// Returns the kind with this number. The argument is always the number of a kind, because the slots of a
    /// send queue store no other numbers.
    #[inline]
    pub(super) const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Nop,
            1 => Self::Send,
            2 => Self::RdmaWrite,
            3 => Self::RdmaRead,
            4 => Self::CompareSwap,
            5 => Self::FetchAdd,
            6 => Self::MkeyConfigure,
            7 => Self::MkeyConfigurePart,
            8 => Self::SetPsv,
            9 => Self::LocalInvalidate,
            10 => Self::Memcpy,
            11 => Self::Raw,
            _ => Self::BindWindow,
        }
    }
}

/// A work request that a completion retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Retired {
    /// The user's name of the request (`wr_id`).
    pub id: u64,
    /// The kind of the request.
    pub kind: RequestKind,
    /// The number of the request.
    pub number: RequestNumber,
}

/// The number of a send request, which distinguishes the request from others with the same name (`wr_id`).
///
/// A queue counts its requests within a *life*. A new life begins when the queue is made, when it restarts
/// after a reset, and when an invalidation is cancelled. Numbers of different lives differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RequestNumber(u64);

/// The number of the next life of a queue, see [`RequestNumber`]. Life 0 has no requests.
static NEXT_LIFE: AtomicU64 = AtomicU64::new(1);

/// How many low bits of a request's number count blocks. The other bits count lives.
const BLOCK_BITS: u32 = 40;

impl RequestNumber {
    /// No request. Completions of receive requests have this number.
    pub const NONE: Self = Self(0);

    /// Returns the number as an integer.
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// Makes the number from the integer that a C program gives back.
    #[cfg(feature = "capi")]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the number of the first request of a new life of a queue. `last` is the greatest number that
    /// the queue has used so far, `NONE` for a new queue. If the last life had more than 2^40 blocks, it has
    /// used numbers of the next lives. The new life then begins after these numbers.
    pub(super) fn of_new_life(last: Self) -> Self {
        NEXT_LIFE.fetch_max((last.0 >> BLOCK_BITS) + 1, Ordering::Relaxed);
        Self(NEXT_LIFE.fetch_add(1, Ordering::Relaxed) << BLOCK_BITS)
    }

    /// Returns the number of the request that begins `blocks` blocks after this one.
    #[inline]
    pub(super) const fn after(self, blocks: u64) -> Self {
        Self(self.0.wrapping_add(blocks))
    }

    /// Returns whether the success of this request proves that the other request was executed. The success
    /// is a proof if both requests are of one life, and the other one is not the later: a queue pair executes
    /// the requests of a life in order, and stops at a failure. Of a life with more than 2^40 blocks,
    /// requests before and after block 2^40 count as requests of two lives. The program then has to
    /// invalidate the key again.
    pub(super) const fn proves(self, other: Self) -> bool {
        self.0 >> BLOCK_BITS == other.0 >> BLOCK_BITS && self.0 >= other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_life_proves_nothing_of_a_life_that_was_longer_than_its_numbers() {
        let first = RequestNumber::of_new_life(RequestNumber::NONE);
        let overrun = first.after((3 << BLOCK_BITS) + 10);
        let next = RequestNumber::of_new_life(overrun);
        assert!(!next.after(11).proves(overrun));
        assert!(overrun.after(1).proves(overrun));
    }
}
