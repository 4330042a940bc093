//! Capabilities of atomics (PRM `atomic_caps`).

use crate::wire::low::low8;
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The byte order of old values (PRM `atomic_caps`, third word).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct AtomicOrder {
    #[bits(30)]
    __: u32,
    /// The byte order of old values of 8 bytes: 0 big endian, 1 the host's.
    #[bits(2, into = low8::<2>)]
    pub req_8b_endianness_mode: u8,
}

/// The atomics of the device (PRM `atomic_operations`; UCX `UCT_IB_MLX5_ATOMIC_OPS_*`).
#[bitfield(u16, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct AtomicOperations {
    /// Compare and swap.
    pub compare_swap: bool,
    /// Fetch and add.
    pub fetch_add: bool,
    /// Compare and swap under masks.
    pub masked_compare_swap: bool,
    /// Fetch and add in several fields.
    pub masked_fetch_add: bool,
    #[bits(12)]
    __: u16,
}

/// Capabilities of atomics, 256 bytes (PRM `atomic_caps`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AtomicCapabilityBits {
    /// Not read by this library.
    pub reserved0: [U32; 2],
    /// The byte order of old values, see [`AtomicOrder`].
    pub order: U32,
    /// Not read by this library.
    pub reserved1: U32,
    /// Reserved.
    pub reserved2: U16,
    /// The atomics of the device, see [`AtomicOperations`].
    pub operations: U16,
    /// Reserved.
    pub reserved3: U16,
    /// The lengths of the atomics of reliable connections: a sum of powers of two, in bytes.
    pub size_qp: U16,
    /// Not read by this library.
    pub reserved4: [U32; 58],
}

crate::fmt::defmt_as_bytes!(AtomicCapabilityBits);

const _: () = assert!(size_of::<AtomicCapabilityBits>() == 256);
const _: () = assert!(core::mem::offset_of!(AtomicCapabilityBits, operations) == 0x12);
const _: () = assert!(core::mem::offset_of!(AtomicCapabilityBits, size_qp) == 0x16);
const _: () = assert!(AtomicOrder::new().with_req_8b_endianness_mode(1).into_bits() == 1 << 30);
