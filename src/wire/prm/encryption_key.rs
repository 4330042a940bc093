//! Data encryption keys (PRM `encryption_key_obj`).

use super::command::RequestHeader;
use super::object::{ObjectReplyHeader, ObjectRequestHeader};
use crate::wire::low::low8;
use bitfield_struct::bitfield;
use core::fmt;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// State, size and purpose of a DEK.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct KeyFlags {
    /// The cipher that the DEK is for: [`KeyFlags::PURPOSE_AES_XTS`].
    #[bits(4, into = low8::<4>)]
    pub key_purpose: u8,
    #[bits(3)]
    __: u8,
    /// The DEK ends with a keytag of 8 bytes.
    pub has_keytag: bool,
    /// Size of the DEK: [`KeyFlags::SIZE_128`] or [`KeyFlags::SIZE_256`].
    #[bits(4, into = low8::<4>)]
    pub key_size: u8,
    #[bits(12)]
    __: u16,
    /// State of the DEK: [`KeyFlags::READY`] or [`KeyFlags::ERROR`].
    pub state: u8,
}

impl KeyFlags {
    /// `state`: the DEK can be used.
    pub const READY: u8 = 0;
    /// `state`: the device could not load the DEK.
    pub const ERROR: u8 = 1;
    /// `key_size`: two halves of 128 bits.
    pub const SIZE_128: u8 = 0;
    /// `key_size`: two halves of 256 bits.
    pub const SIZE_256: u8 = 1;
    /// `key_purpose`: AES-XTS.
    pub const PURPOSE_AES_XTS: u8 = 3;
}

/// Room for the bytes of a DEK, 128 bytes. `Debug` hides them.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct KeyBytes(pub [u8; 128]);

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyBytes(..)")
    }
}

/// A DEK, 256 bytes (PRM `encryption_key_obj`).
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EncryptionKey {
    /// The fields that MODIFY_GENERAL_OBJECT replaces: [`EncryptionKey::MODIFY_KEY`]. 0 when a DEK is
    /// created.
    pub modify_field_select: U64,
    /// State, size and purpose, see [`KeyFlags`].
    pub flags: U32,
    /// Number of the protection domain, in the low 24 bits.
    pub pd: U32,
    /// Reserved.
    pub reserved0: [U32; 8],
    /// Bytes that the device stores for the DEK's owner. They are not secret.
    pub opaque: [u8; 8],
    /// Reserved.
    pub reserved1: [U32; 2],
    /// The bytes of the DEK, from the first byte on: both halves and the keytag, wrapped or plain.
    pub key: KeyBytes,
    /// Reserved.
    pub reserved2: [U32; 16],
}

impl EncryptionKey {
    /// `modify_field_select`: the DEK's bytes and size are replaced (kernel, `mlx5_crypto_modify_dek_key`).
    pub const MODIFY_KEY: u64 = 1;
}

/// The request CREATE_GENERAL_OBJECT or MODIFY_GENERAL_OBJECT of a DEK, 272 bytes (PRM
/// `create_encryption_key_obj_in`, `modify_encryption_key_in`).
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CreateKeyRequest {
    /// Opcode of the command, and kind of the object.
    pub header: ObjectRequestHeader,
    /// The DEK.
    pub key: EncryptionKey,
}

/// The request SYNC_CRYPTO, 32 bytes (PRM `sync_crypto_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SyncCryptoRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// Reserved.
    pub reserved0: U32,
    /// The purposes of the DEKs whose values the device forgets, in the low 16 bits:
    /// [`SyncCryptoRequest::ALL`].
    pub crypto_type: U32,
    /// Reserved.
    pub reserved1: [U32; 4],
}

impl SyncCryptoRequest {
    /// `crypto_type`: DEKs of all purposes (kernel, `MLX5_CRYPTO_DEK_ALL_TYPE`).
    pub const ALL: u32 = 1;
}

/// The reply to QUERY_GENERAL_OBJECT of a DEK, 272 bytes (PRM `query_encryption_key_obj_out`).
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueryKeyReply {
    /// Status of the command.
    pub header: ObjectReplyHeader,
    /// The DEK.
    pub key: EncryptionKey,
}

crate::fmt::defmt_redacted!(KeyBytes, EncryptionKey, CreateKeyRequest, QueryKeyReply);

crate::fmt::defmt_as_bytes!(SyncCryptoRequest);

const _: () = assert!(size_of::<SyncCryptoRequest>() == 32);
const _: () = assert!(core::mem::offset_of!(SyncCryptoRequest, crypto_type) == 0xc);
const _: () = assert!(size_of::<EncryptionKey>() == 256);
const _: () = assert!(core::mem::offset_of!(EncryptionKey, flags) == 8);
const _: () = assert!(core::mem::offset_of!(EncryptionKey, pd) == 0xc);
const _: () = assert!(core::mem::offset_of!(EncryptionKey, opaque) == 0x30);
const _: () = assert!(core::mem::offset_of!(EncryptionKey, key) == 0x40);
const _: () = assert!(size_of::<CreateKeyRequest>() == 272 && size_of::<QueryKeyReply>() == 272);
const _: () = assert!(KeyFlags::new().with_has_keytag(true).into_bits() == 1 << 7);
