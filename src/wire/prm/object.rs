//! General objects: the headers that all kinds share, and the kinds.

use super::command::{Opcode, ReplyHeader};
use crate::wire::codes::codes;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

codes! {
    /// Kind of a general object (PRM `obj_type`). The type can also hold codes without a name, because a
    /// request may contain any code.
    ObjectType(u16), "object type {:#x}";

    /// A data encryption key (`MLX5_OBJ_TYPE_DEK`).
    DEK = 0x0c, "DEK";
    /// A crypto login (`MLX5_OBJ_TYPE_CRYPTO_LOGIN`).
    CRYPTO_LOGIN = 0x1f, "CRYPTO_LOGIN";
}

/// The header of a request about a general object, 16 bytes (PRM `general_obj_in_cmd_hdr`). A request that
/// queries or destroys an object consists of this header alone.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ObjectRequestHeader {
    /// The command, see [`Opcode`].
    pub opcode: U16,
    /// User id of a DEVX context, which the kernel fills in.
    pub uid: U16,
    /// Reserved.
    pub reserved0: U16,
    /// Kind of the object, see [`ObjectType`].
    pub obj_type: U16,
    /// The object's number; 0 when an object is created.
    pub obj_id: U32,
    /// Unused by this library.
    pub log_obj_range: U32,
}

impl ObjectRequestHeader {
    /// Creates the header of a request.
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

/// The header of a reply about a general object, 16 bytes (PRM `general_obj_out_cmd_hdr`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ObjectReplyHeader {
    /// Status of the command.
    pub status: ReplyHeader,
    /// The object's number.
    pub obj_id: U32,
    /// Reserved.
    pub reserved: U32,
}

crate::fmt::defmt_as_bytes!(ObjectRequestHeader, ObjectReplyHeader);

const _: () = assert!(size_of::<ObjectRequestHeader>() == 16 && size_of::<ObjectReplyHeader>() == 16);
const _: () = assert!(core::mem::offset_of!(ObjectRequestHeader, obj_type) == 6);
const _: () = assert!(core::mem::offset_of!(ObjectReplyHeader, obj_id) == 8);
