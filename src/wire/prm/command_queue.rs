//! The command queue, through which a program without a kernel driver sends commands to the device and gets
//! the replies (PRM "HCA driver queues"; Linux `struct mlx5_init_seg`, `mlx5_cmd_layout`,
//! `mlx5_cmd_prot_block`).

use crate::wire::codes::codes;
use crate::wire::low::{low8, low32};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Offsets of the registers in the initialization segment, at the beginning of BAR 0. They are big-endian
/// words (PRM "initialization segment").
pub mod offset {
    /// The word whose upper half is the revision of the command interface.
    pub const INTERFACE_REVISION: usize = 0x4;
    /// Upper half of the command queue's address.
    pub const QUEUE_HIGH: usize = 0x10;
    /// Lower half of the command queue's address, see [`super::QueueLow`].
    pub const QUEUE_LOW: usize = 0x14;
    /// Command doorbell: bit n stands for entry n of the command queue.
    pub const DOORBELL: usize = 0x18;
    /// State of the firmware, see [`super::Initializing`].
    pub const INITIALIZING: usize = 0x1fc;
}

/// The revision of the command interface that this module describes (`CMD_IF_REV`).
pub const INTERFACE_REVISION: u16 = 5;

/// Lower half of the command queue's address. Its low bits, as read, are the device's description of the
/// queue.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QueueLow {
    /// Base-2 logarithm of the distance in bytes from one entry to the next.
    #[bits(4, into = low8::<4>)]
    pub log_stride: u8,
    /// Base-2 logarithm of the number of entries.
    #[bits(4, into = low8::<4>)]
    pub log_size: u8,
    /// Mode of the interface to the driver (the kernel's `MLX5_NIC_IFC_*`): 0 full, 1 disabled, 2 without
    /// DRAM. The kernel also reads the next higher bit: 7 then stands for a software reset.
    #[bits(2, into = low8::<2>)]
    pub nic_interface: u8,
    #[bits(2)]
    __: u8,
    /// Bits 12 to 31 of the command queue's address.
    #[bits(20, into = low32::<20>)]
    pub address: u32,
}

/// Whether the firmware is ready, and whether the PCI function belongs to the embedded cores.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct Initializing {
    #[bits(23)]
    __: u32,
    /// The PCI function belongs to the cores on the device itself (`MLX5_ECPU_BIT_NUM`).
    pub embedded_cpu: bool,
    #[bits(7)]
    __: u8,
    /// The firmware is still starting: software must not touch other registers.
    pub initializing: bool,
}

codes! {
    /// How a command was delivered (PRM `status` of a command queue entry, `MLX5_CMD_DELIVERY_STAT_*`). The
    /// result of the command itself is in its reply. The type can also hold codes without a name, because an
    /// entry may contain any code.
    DeliveryStatus(u8), "delivery status {:#x}";

    /// The command was carried out.
    OK = 0x0, "delivered";
    /// The signature of the entry or of a mailbox block is wrong.
    SIGNATURE = 0x1, "signature error";
    /// A mailbox block has another token than its entry.
    TOKEN = 0x2, "token error";
    /// The number in a mailbox block differs from its place in the chain.
    BLOCK_NUMBER = 0x3, "bad block number";
    /// A mailbox block of the reply is not aligned.
    OUTPUT_ALIGNMENT = 0x4, "output pointer not aligned";
    /// A mailbox block of the request is not aligned.
    INPUT_ALIGNMENT = 0x5, "input pointer not aligned";
    /// The firmware failed.
    FIRMWARE = 0x6, "internal error of the firmware";
    /// The length of the request is wrong.
    INPUT_LENGTH = 0x7, "bad request length";
    /// The length of the room for the reply is wrong.
    OUTPUT_LENGTH = 0x8, "bad reply length";
    /// Reserved bytes are not 0.
    RESERVED = 0x9, "reserved fields not clear";
    /// The entry has an unknown type.
    TYPE = 0x10, "bad type of entry";
}

/// Number of bytes of a request, or of a reply, in its entry. The rest is in mailbox blocks.
pub const INLINE_BYTES: usize = 16;

/// Number of bytes of a request, or of a reply, in a mailbox block (`MLX5_CMD_DATA_BLOCK_SIZE`).
pub const BLOCK_BYTES: usize = 512;

/// An entry of the command queue, 64 bytes (PRM "command queue entry").
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct CommandEntry {
    /// The transport of the command: [`CommandEntry::PCI`].
    pub entry_type: u8,
    /// Reserved.
    pub reserved0: [u8; 3],
    /// Length of the request in bytes.
    pub input_length: U32,
    /// Address of the request's first mailbox block; 0 if the request fits into the entry.
    pub input_mailbox: U64,
    /// The first bytes of the request.
    pub input: [u8; INLINE_BYTES],
    /// The first bytes of the reply.
    pub output: [u8; INLINE_BYTES],
    /// Address of the reply's first mailbox block; 0 if the reply fits into the entry.
    pub output_mailbox: U64,
    /// Room for the reply in bytes.
    pub output_length: U32,
    /// A number that is repeated in all mailbox blocks of the command.
    pub token: u8,
    /// The value that makes the XOR of the entry's 64 bytes 0xff.
    pub signature: u8,
    /// Reserved.
    pub reserved1: u8,
    /// Owner and delivery status, see [`StatusOwn`].
    pub status_own: u8,
}

/// The last byte of an entry of the command queue.
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct StatusOwn {
    /// The entry belongs to the device.
    pub hardware: bool,
    /// How the command was delivered, see [`DeliveryStatus`].
    #[bits(7, into = low8::<7>)]
    pub status: u8,
}

impl CommandEntry {
    /// `entry_type`: the command is sent over PCI Express (`MLX5_PCI_CMD_XPORT`).
    pub const PCI: u8 = 7;

    /// An entry full of zeros, which belongs to software.
    pub const ZERO: Self = Self {
        entry_type: 0,
        reserved0: [0; 3],
        input_length: U32::ZERO,
        input_mailbox: U64::ZERO,
        input: [0; INLINE_BYTES],
        output: [0; INLINE_BYTES],
        output_mailbox: U64::ZERO,
        output_length: U32::ZERO,
        token: 0,
        signature: 0,
        reserved1: 0,
        status_own: 0,
    };
}

/// A mailbox block, 576 bytes. Its address is a multiple of 1024, as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(1024))]
pub struct CommandBlock {
    /// Bytes of the request or of the reply.
    pub data: [u8; BLOCK_BYTES],
    /// Reserved.
    pub reserved0: [u8; 48],
    /// Address of the next mailbox block; 0 in the last one.
    pub next: U64,
    /// The block's place in the chain, from 0.
    pub block_number: U32,
    /// Reserved.
    pub reserved1: u8,
    /// The same number as the entry's token.
    pub token: u8,
    /// The value that makes the XOR of the bytes from `reserved0` to this byte 0xff.
    pub control_signature: u8,
    /// The value that makes the XOR of all 576 bytes 0xff.
    pub signature: u8,
    /// Unused bytes up to the alignment.
    pub unused: [u8; 448],
}

impl CommandBlock {
    /// A block full of zeros.
    pub const ZERO: Self = Self {
        data: [0; BLOCK_BYTES],
        reserved0: [0; 48],
        next: U64::ZERO,
        block_number: U32::ZERO,
        reserved1: 0,
        token: 0,
        control_signature: 0,
        signature: 0,
        unused: [0; 448],
    };
}

crate::fmt::defmt_as_bytes!(CommandEntry, CommandBlock);

const _: () = assert!(size_of::<CommandEntry>() == 64 && align_of::<CommandEntry>() == 64);
const _: () = assert!(core::mem::offset_of!(CommandEntry, input_mailbox) == 0x8);
const _: () = assert!(core::mem::offset_of!(CommandEntry, input) == 0x10);
const _: () = assert!(core::mem::offset_of!(CommandEntry, output) == 0x20);
const _: () = assert!(core::mem::offset_of!(CommandEntry, output_mailbox) == 0x30);
const _: () = assert!(core::mem::offset_of!(CommandEntry, token) == 0x3c);
const _: () = assert!(core::mem::offset_of!(CommandEntry, status_own) == 0x3f);
const _: () = assert!(size_of::<CommandBlock>() == 1024 && align_of::<CommandBlock>() == 1024);
const _: () = assert!(core::mem::offset_of!(CommandBlock, reserved0) == 0x200);
const _: () = assert!(core::mem::offset_of!(CommandBlock, next) == 0x230);
const _: () = assert!(core::mem::offset_of!(CommandBlock, token) == 0x23d);
const _: () = assert!(core::mem::offset_of!(CommandBlock, signature) == 0x23f);
const _: () = assert!(StatusOwn::new().with_hardware(true).into_bits() == 1);
const _: () = assert!(Initializing::new().with_embedded_cpu(true).into_bits() == 1 << 23);
