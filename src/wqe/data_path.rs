//! Data-path requests: send, RDMA WRITE and READ, atomics, NOP.

use super::Sink;
use crate::types::{Key, OutOfRange};
use crate::wire::ctrl::{ControlSegment, Opcode};
use crate::wire::data::{AtomicSegment, DataSegment, InlineHeader, RemoteAddressSegment};
use crate::wire::{OCTOWORD_BYTES, Octoword};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes};

/// A piece of local memory (`struct ibv_sge`), held in wire form so that posting copies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Sge(DataSegment);

impl Sge {
    /// The longest piece, in bytes: the length field has 31 bits.
    pub const MAX_BYTES: u32 = (1 << 31) - 1;

    /// Describes `length` bytes at `address` under `lkey`. For an mkey of this library the address is an offset in its
    /// space, and both count bytes as they are on the wire (D3).
    ///
    /// # Errors
    /// [`OutOfRange`] for a length of 0, which the device reads as 2 GiB (leave the piece out), or over [`Sge::MAX_BYTES`].
    ///
    /// ```
    /// use mlx5_mkey::{types::Key, wqe::Sge};
    /// assert!(Sge::new(0, 4160, Key::from_raw(0x1234_00)).is_ok());
    /// assert!(Sge::new(0, 0, Key::from_raw(0x1234_00)).is_err());
    /// ```
    pub const fn new(address: u64, length: u32, lkey: Key) -> Result<Self, OutOfRange> {
        if let Err(error) = OutOfRange::check_length("data length", length, Self::MAX_BYTES) {
            return Err(error);
        }
        Ok(Self(DataSegment {
            byte_count: U32::new(length),
            lkey: U32::new(lkey.get()),
            address: U64::new(address),
        }))
    }

    /// Returns the length in bytes.
    pub const fn length(&self) -> u32 {
        self.0.byte_count.get()
    }

    /// Returns the wire form.
    pub const fn to_wire(self) -> DataSegment {
        self.0
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Sge {
    fn format(&self, f: defmt::Formatter<'_>) {
        self.0.format(f);
    }
}

/// Where in the peer's memory an RDMA request goes, held in wire form so that posting copies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Remote(RemoteAddressSegment);

impl Remote {
    /// Describes a place in the peer's memory under the peer's key. For an mkey of this library the address is an offset in its
    /// space, in bytes as they are on the wire (D3).
    ///
    /// ```
    /// use mlx5_mkey::{types::Key, wqe::Remote};
    /// assert_eq!(Remote::new(0x1000, Key::from_raw(0x5800)).rkey(), Key::from_raw(0x5800));
    /// ```
    pub const fn new(address: u64, rkey: Key) -> Self {
        let (address, rkey) = (U64::new(address), U32::new(rkey.get()));
        Self(RemoteAddressSegment { address, rkey, reserved: U32::ZERO })
    }

    /// Returns the address.
    pub const fn address(&self) -> u64 {
        self.0.address.get()
    }

    /// Returns the peer's key.
    pub const fn rkey(&self) -> Key {
        Key::from_raw(self.0.rkey.get())
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Remote {
    fn format(&self, f: defmt::Formatter<'_>) {
        self.0.format(f);
    }
}

/// The data that a send or an RDMA WRITE carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Payload<'a> {
    /// Pieces of memory, read when the request is executed. None makes an empty message.
    Sges(&'a [Sge]),
    /// Bytes that are copied into the work request.
    Inline(&'a [u8]),
}

impl<'a> From<&'a [Sge]> for Payload<'a> {
    fn from(sges: &'a [Sge]) -> Self {
        Self::Sges(sges)
    }
}

impl<'a, const N: usize> From<&'a [Sge; N]> for Payload<'a> {
    fn from(sges: &'a [Sge; N]) -> Self {
        Self::Sges(sges)
    }
}

/// The operands of an atomic on 8 bytes of the peer's memory.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) swap_add: u64,
    pub(crate) compare: u64,
}

/// A data-path request in parts, in the order in which they are written.
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
    pub(crate) fn octowords(&self) -> usize {
        let data = match self.payload {
            Payload::Sges(sges) => sges.len(),
            Payload::Inline([]) => 0,
            Payload::Inline(bytes) => (bytes.len() + size_of::<InlineHeader>()).div_ceil(OCTOWORD_BYTES),
        };
        1 + usize::from(self.remote.is_some()) + usize::from(self.atomic.is_some()) + data
    }

    /// Hands the request on. The rest of its last block is left as it is: the device reads no further than its size.
    #[inline(always)]
    pub(crate) fn encode(&self, control: ControlSegment, sink: &mut impl Sink) {
        sink.put(control);
        if let Some(Remote(segment)) = self.remote {
            sink.put(segment);
        }
        if let Some(Operands { swap_add, compare }) = self.atomic {
            let (swap_add, compare) = (U64::new(swap_add), U64::new(compare));
            sink.put(AtomicSegment { swap_add, compare });
        }
        match self.payload {
            Payload::Sges(sges) => sges.iter().for_each(|sge| sink.put(sge.to_wire())),
            Payload::Inline(bytes) => inline(bytes, sink),
        }
    }
}

/// Hands on header and bytes, and zeros up to a whole octoword. No bytes, no header.
fn inline(bytes: &[u8], sink: &mut impl Sink) {
    const HEADER: usize = size_of::<InlineHeader>();
    if bytes.is_empty() {
        return;
    }
    let header = InlineHeader { byte_count: U32::new(bytes.len() as u32 | InlineHeader::INLINE) };
    let (head, tail) = bytes.split_at(bytes.len().min(OCTOWORD_BYTES - HEADER));
    let first = header.as_bytes().iter().chain(head).copied();
    sink.put(padded(first));
    tail.chunks(OCTOWORD_BYTES).for_each(|chunk| sink.put(padded(chunk.iter().copied())));
}

/// Fills an octoword with up to 16 bytes, and zeros behind them.
fn padded(bytes: impl Iterator<Item = u8>) -> Octoword {
    let mut octoword = [0; OCTOWORD_BYTES];
    octoword.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = byte);
    octoword
}
