//! Atomics under masks: compare and swap of some bits, and additions in several fields of a number.

use super::control::{self, ControlFields};
use super::data_path::{Local, Remote};
use crate::wire::ctrl::{Opcode, OpcodeWord};
use crate::wire::data::{AtomicSegment, MaskedAtomic32Segment, MaskedAtomic64Segment, RemoteAddressSegment};
use crate::wire::{Block, OCTOWORD_BYTES, blocks_of};
use zerocopy::big_endian::{U32, U64};
use zerocopy::transmute;

/// The operation of an atomic under masks, on 4 or 8 bytes of the peer's memory.
///
/// ```
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::queue::{Doorbell, SendQueue};
/// use mlx5_mkey::wqe::{Local, MaskedAtomic, Remote};
/// /// Takes a lock, the lowest bit of a word, if it is free. `old` gets the word as it was before.
/// fn lock<D: Doorbell>(queue: &mut SendQueue<'_, D>, word: Remote, old: Local) -> Result<(), PostError> {
///     let lock = MaskedAtomic::CompareSwap64 { compare: 0, compare_mask: 1, swap: 1, swap_mask: 1 };
///     queue.request(1).signaled().masked_atomic(word, lock, old)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum MaskedAtomic {
    /// If 4 bytes equal `compare` in the bits of `compare_mask`, their bits of `swap_mask` become those of
    /// `swap`.
    CompareSwap32 {
        /// The value to compare with.
        compare: u32,
        /// The bits that are compared.
        compare_mask: u32,
        /// The new value.
        swap: u32,
        /// The bits that the new value replaces.
        swap_mask: u32,
    },
    /// Does the same as [`Self::CompareSwap32`], with 8 bytes.
    CompareSwap64 {
        /// The value to compare with.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits that the new value replaces.
        swap_mask: u64,
    },
    /// Adds `add` to 4 bytes, field by field. A bit of `boundary` marks the highest bit of a field: no carry
    /// leaves this bit. A `boundary` of 0 makes one field, and one of all ones adds without any carry, which
    /// is an exclusive or.
    FetchAdd32 {
        /// The number to add.
        add: u32,
        /// The highest bits of the fields.
        boundary: u32,
    },
    /// Does the same as [`Self::FetchAdd32`], with 8 bytes.
    FetchAdd64 {
        /// The number to add.
        add: u64,
        /// The highest bits of the fields.
        boundary: u64,
    },
}

impl MaskedAtomic {
    /// Returns the number of bytes of the peer's memory that the atomic changes, 4 or 8.
    pub const fn bytes(&self) -> u32 {
        match self {
            Self::CompareSwap32 { .. } | Self::FetchAdd32 { .. } => 4,
            Self::CompareSwap64 { .. } | Self::FetchAdd64 { .. } => 8,
        }
    }

    /// Returns the size of the request in octowords: control segment, remote address, operands, data segment.
    pub(crate) const fn octowords(&self) -> usize {
        3 + if matches!(self, Self::CompareSwap64 { .. }) { 2 } else { 1 }
    }

    /// Returns the size of the request in blocks.
    pub(crate) const fn blocks(&self) -> usize {
        blocks_of(self.octowords())
    }

    /// Returns whether the atomic compares and swaps.
    pub(crate) const fn swaps(&self) -> bool {
        matches!(self, Self::CompareSwap32 { .. } | Self::CompareSwap64 { .. })
    }

    /// Returns the operands: the first octoword, and the second if there is one.
    fn operands(&self) -> (Octoword, Option<Octoword>) {
        let short = |swap_add, compare, swap_mask, compare_mask| {
            let [swap_add, compare] = [swap_add, compare].map(U32::new);
            let [swap_mask, compare_mask] = [swap_mask, compare_mask].map(U32::new);
            transmute!(MaskedAtomic32Segment { swap_add, compare, swap_mask, compare_mask })
        };
        match *self {
            Self::CompareSwap32 { compare, compare_mask, swap, swap_mask } => {
                (short(swap, compare, swap_mask, compare_mask), None)
            }
            Self::FetchAdd32 { add, boundary } => (short(add, boundary, 0, 0), None),
            Self::FetchAdd64 { add, boundary } => {
                (transmute!(AtomicSegment { swap_add: U64::new(add), compare: U64::new(boundary) }), None)
            }
            Self::CompareSwap64 { compare, compare_mask, swap, swap_mask } => {
                let operands = AtomicSegment { swap_add: U64::new(swap), compare: U64::new(compare) };
                let [swap_mask, compare_mask] = [swap_mask, compare_mask].map(U64::new);
                let segment = MaskedAtomic64Segment { operands, swap_mask, compare_mask };
                let [first, second]: [Octoword; 2] = transmute!(segment);
                (first, Some(second))
            }
        }
    }

    /// Writes the request. The value before the change goes to `old`.
    pub(crate) fn write(&self, blocks: &mut [Block], fields: ControlFields, remote: Remote, old: Local) {
        let mut slots = blocks.as_flattened_mut().iter_mut();
        let Some(control) = slots.next() else { return };
        let opcode = if self.swaps() { Opcode::ATOMIC_MASKED_CS } else { Opcode::ATOMIC_MASKED_FA };
        control::write(control, opcode, self.octowords(), fields, 0);
        let [opmod, ..] = control;
        *opmod = match self.bytes() {
            4 => OpcodeWord::OPMOD_ATOMIC_4,
            _ => OpcodeWord::OPMOD_ATOMIC_8,
        };
        let (first, second) = self.operands();
        let place = RemoteAddressSegment {
            address: U64::new(remote.address),
            rkey: U32::new(remote.rkey.get()),
            reserved: U32::ZERO,
        };
        let parts =
            [Some(transmute!(place)), Some(first), second, Some(transmute!(old.sge(self.bytes()).to_wire()))];
        slots.zip(parts.into_iter().flatten()).for_each(|(slot, part)| *slot = part);
    }
}

type Octoword = [u8; OCTOWORD_BYTES];
