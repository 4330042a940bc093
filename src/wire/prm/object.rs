//! General objects: the headers that all kinds share, and the kinds.

use super::command::{Opcode, ReplyHeader};
use core::fmt;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Kind of a general object (PRM `obj_type`). An open set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ObjectType(pub u16);

impl ObjectType {
    /// A data encryption key (`MLX5_OBJ_TYPE_DEK`).
    pub const DEK: Self = Self(0x0c);
    /// A login (`MLX5_OBJ_TYPE_CRYPTO_LOGIN`).
    pub const CRYPTO_LOGIN: Self = Self(0x1f);

    /// Returns the PRM name, `None` for a kind that is not known here.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::DEK => Some("DEK"),
            Self::CRYPTO_LOGIN => Some("CRYPTO_LOGIN"),
            _ => None,
        }
    }
}

impl fmt::Display for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "object type {:#x}", self.0),
        }
    }
}

/// How a request about a general object starts, and all of one that queries or destroys it: 16 bytes (PRM
/// `general_obj_in_cmd_hdr`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ObjectRequestHeader {
    /// See [`Opcode`].
    pub opcode: U16,
    /// User; the kernel fills it in.
    pub uid: U16,
    /// Reserved.
    pub reserved0: U16,
    /// See [`ObjectType`].
    pub obj_type: U16,
    /// The object; 0 when one is created.
    pub obj_id: U32,
    /// Unused here.
    pub log_obj_range: U32,
}

impl ObjectRequestHeader {
    /// Starts a request.
    pub const fn new(opcode: Opcode, kind: ObjectType, id: u32) -> Self {
        Self {
            opcode: U16::new(opcode.0),
            uid: U16::ZERO,
            reserved0: U16::ZERO,
            obj_type: U16::new(kind.0),
            obj_id: U32::new(id),
            log_obj_range: U32::ZERO,
        }
    }
}

/// How a reply about a general object starts, 16 bytes (PRM `general_obj_out_cmd_hdr`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ObjectReplyHeader {
    /// Status.
    pub status: ReplyHeader,
    /// The object.
    pub obj_id: U32,
    /// Reserved.
    pub reserved: U32,
}

crate::fmt::defmt_as_bytes!(ObjectRequestHeader, ObjectReplyHeader);

const _: () = assert!(size_of::<ObjectRequestHeader>() == 16 && size_of::<ObjectReplyHeader>() == 16);
const _: () = assert!(core::mem::offset_of!(ObjectRequestHeader, obj_type) == 6);
const _: () = assert!(core::mem::offset_of!(ObjectReplyHeader, obj_id) == 8);
