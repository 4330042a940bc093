//! Data-path requests: send, RDMA WRITE and READ, atomics, NOP.

use super::control::{self, ControlFields, Request};
use crate::types::Key;
use crate::wire::ctrl::Opcode;
use crate::wire::data::{AtomicSegment, DataSegment, InlineHeader};
use crate::wire::{Block, OCTOWORD_BYTES, Octoword};
use crate::wqe::error::PostError;
use core::slice::IterMut;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes, transmute};

/// Local memory of a data-path request or of a receive request. The layout is that of `struct ibv_sge`.
///
/// For an mkey of this library, the address is an offset in the mkey's space. Address and length then count
/// bytes as they are on the wire. Posting refuses a length outside of 1 to [`Sge::MAX_BYTES`]: the device
/// would read a length of 0 as 2 GiB. An empty segment must be left out.
///
/// ```
/// use mlx5_mkey::{types::Key, wqe::Sge};
/// let block_with_signature = Sge { address: 0, length: 4104, lkey: Key::from_raw(0x1234_00) };
/// assert!(block_with_signature.length <= Sge::MAX_BYTES);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct Sge {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes, 1 to [`Sge::MAX_BYTES`].
    pub length: u32,
    /// Local key of the memory.
    pub lkey: Key,
}

impl Sge {
    /// The largest length of a segment in bytes: the length has 31 bits.
    pub const MAX_BYTES: u32 = DataSegment::MAX_BYTES;

    /// Returns the segment in wire form.
    #[inline]
    pub(crate) fn to_wire(self) -> DataSegment {
        let Self { address, length, lkey } = self;
        transmute!([U64::new(u64::from(length) << 32 | u64::from(lkey.get())), U64::new(address)])
    }

    /// Checks that the device takes the length of the segment. `index` is the segment's number, for the
    /// error.
    #[inline]
    pub(crate) const fn check_length(&self, index: usize) -> Result<(), PostError> {
        if self.length.wrapping_sub(1) < Self::MAX_BYTES { Ok(()) } else { Err(self.wrong_length(index)) }
    }

    #[cold]
    const fn wrong_length(&self, index: usize) -> PostError {
        let index = index as u16;
        match self.length {
            0 => PostError::SgeEmpty { index },
            length => PostError::SgeTooLong { index, mebibytes: (length >> 20) as u16 },
        }
    }
}

/// The place in the peer's memory that an RDMA request accesses.
///
/// For an mkey of this library, the address is an offset in the mkey's space, in bytes as they are on the
/// wire.
///
/// ```
/// use mlx5_mkey::types::Key;
/// use mlx5_mkey::wqe::Remote;
/// let remote = Remote { address: 0x7f00_0000_1000, rkey: Key::from_raw(0x5800) };
/// // The place after the first 4096 bytes.
/// let next = Remote { address: remote.address + 4096, ..remote };
/// assert_eq!(next.address, 0x7f00_0000_2000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Remote {
    /// Address of the first byte.
    pub address: u64,
    /// The peer's key.
    pub rkey: Key,
}

/// A place in the memory of this side: source or target of a copy, or the target of an atomic's old value.
/// The request determines the length.
///
/// ```
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::queue::{Doorbell, SendQueue};
/// use mlx5_mkey::wqe::Local;
/// /// Copies a page. The copy is done when the request completes.
/// fn copy<D: Doorbell>(queue: &mut SendQueue<'_, D>, to: Local, from: Local) -> Result<(), PostError> {
///     queue.request(1).signaled().memcpy(to, from, 4096)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Local {
    /// Address of the first byte.
    pub address: u64,
    /// Local key of the memory.
    pub lkey: Key,
}

impl Local {
    /// Returns `length` bytes at the place.
    pub(crate) const fn sge(self, length: u32) -> Sge {
        Sge { address: self.address, length, lkey: self.lkey }
    }
}

/// The data that a send or an RDMA WRITE carries.
///
/// ```
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::queue::{Doorbell, SendQueue};
/// use mlx5_mkey::wqe::{Payload, Sge};
/// /// Sends a header from memory that need not be registered, then data that the device reads by itself.
/// fn answer<D: Doorbell>(queue: &mut SendQueue<'_, D>, data: Sge) -> Result<(), PostError> {
///     queue.request(1).send(Payload::Inline(b"status 0"))?;
///     queue.request(2).signaled().send(&[data])
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Payload<'a> {
    /// Memory that the device reads when it executes the request. An empty slice makes an empty message.
    Sges(&'a [Sge]),
    /// Bytes that are copied into the work request.
    Inline(&'a [u8]),
}

impl<'a> From<&'a [Sge]> for Payload<'a> {
    #[inline]
    fn from(sges: &'a [Sge]) -> Self {
        Self::Sges(sges)
    }
}

impl<'a, const N: usize> From<&'a [Sge; N]> for Payload<'a> {
    #[inline]
    fn from(sges: &'a [Sge; N]) -> Self {
        Self::Sges(sges)
    }
}

/// The operands of an atomic: the value to swap in or to add, and the value to compare with.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) swap_add: u64,
    pub(crate) compare: u64,
}

/// The parts of a data-path request, in the order in which they stand in the request.
#[derive(Clone, Copy)]
pub(crate) struct DataPath<'a> {
    pub(crate) opcode: Opcode,
    pub(crate) imm: u32,
    pub(crate) remote: Option<Remote>,
    pub(crate) atomic: Option<Operands>,
    pub(crate) payload: Payload<'a>,
}

impl<'a> DataPath<'a> {
    pub(crate) const fn new(opcode: Opcode, payload: Payload<'a>) -> Self {
        Self { opcode, imm: 0, remote: None, atomic: None, payload }
    }

    /// Returns the size of the request in octowords.
    #[inline]
    pub(crate) const fn octowords(&self) -> usize {
        let data = match self.payload {
            Payload::Sges(sges) => sges.len(),
            Payload::Inline([]) => 0,
            Payload::Inline(bytes) => (bytes.len() + size_of::<InlineHeader>()).div_ceil(OCTOWORD_BYTES),
        };
        1 + self.remote.is_some() as usize + self.atomic.is_some() as usize + data
    }
}

impl Request for DataPath<'_> {
    /// Writes the request. The rest of the last block stays as before, because the device reads only as many
    /// octowords as the request has.
    ///
    /// # Errors
    /// [`PostError::SgeEmpty`], [`PostError::SgeTooLong`].
    // This function is inlined: with a call, an RDMA WRITE takes 100 % more instructions on x86-64, and
    // benchmarks of posting on Cortex-A72 take 31 to 140 % more.
    #[inline(always)]
    fn write(&mut self, blocks: &mut [Block], fields: ControlFields) -> Result<(), PostError> {
        let mut slots = blocks.as_flattened_mut().iter_mut();
        if let Some(ctrl) = slots.next() {
            control::write(ctrl, self.opcode, self.octowords(), fields, self.imm);
        }
        if let Some(Remote { address, rkey }) = self.remote {
            // A RemoteAddressSegment: the address, then the key and 4 zero bytes.
            put(&mut slots, transmute!([U64::new(address), U64::new(u64::from(rkey.get()) << 32)]));
        }
        if let Some(Operands { swap_add, compare }) = self.atomic {
            let (swap_add, compare) = (U64::new(swap_add), U64::new(compare));
            put(&mut slots, transmute!(AtomicSegment { swap_add, compare }));
        }
        match self.payload {
            Payload::Sges(sges) => {
                for (slot, (index, sge)) in slots.zip(sges.iter().enumerate()) {
                    sge.check_length(index)?;
                    *slot = transmute!(sge.to_wire());
                }
            }
            Payload::Inline([]) => {}
            Payload::Inline(bytes) => inline(slots, bytes),
        }
        Ok(())
    }
}

/// Writes an octoword to the iterator's next place in the request, if there is one.
#[inline]
fn put(slots: &mut IterMut<'_, Octoword>, octoword: Octoword) {
    if let Some(slot) = slots.next() {
        *slot = octoword;
    }
}

/// Writes the inline header and `bytes`, padded with zeros to a whole octoword.
fn inline(slots: IterMut<'_, Octoword>, bytes: &[u8]) {
    let header = InlineHeader { byte_count: U32::new(bytes.len() as u32 | InlineHeader::INLINE) };
    let octowords = (size_of_val(&header) + bytes.len()).div_ceil(OCTOWORD_BYTES);
    let mut rest = header.as_bytes().iter().chain(bytes);
    for slot in slots.take(octowords) {
        slot.fill_with(|| rest.next().copied().unwrap_or_default());
    }
}
