//! Logins, which let the device unwrap wrapped DEKs (PRM `crypto_login_obj`).

use super::object::{ObjectReplyHeader, ObjectRequestHeader};
use crate::wire::low::{low8, low32};
use bitfield_struct::bitfield;
use core::fmt;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// State and credential of a login.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct LoginFlags {
    /// Number of the credential on the device.
    #[bits(24, into = low32::<24>)]
    pub credential_pointer: u32,
    /// State of the login: [`LoginFlags::VALID`] or [`LoginFlags::INVALID`].
    #[bits(4, into = low8::<4>)]
    pub state: u8,
    #[bits(4)]
    __: u8,
}

impl LoginFlags {
    /// `state`: the login is in force.
    pub const VALID: u8 = 0;
    /// `state`: the login's credential or import key was revoked.
    pub const INVALID: u8 = 1;
}

/// A credential, 48 bytes. `Debug` hides its bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CredentialBytes(pub [u8; 48]);

impl fmt::Debug for CredentialBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialBytes(..)")
    }
}

/// A login, 256 bytes (PRM `crypto_login_obj`).
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CryptoLogin {
    /// Unused by this library.
    pub modify_field_select: U64,
    /// Reserved.
    pub reserved0: [U32; 2],
    /// State and credential, see [`LoginFlags`].
    pub flags: U32,
    /// Number of the import key on the device, in the low 24 bits.
    pub session_import_kek_ptr: U32,
    /// Reserved.
    pub reserved1: [U32; 10],
    /// The credential, wrapped.
    pub credential: CredentialBytes,
    /// Reserved.
    pub reserved2: [U32; 36],
}

/// The request CREATE_GENERAL_OBJECT of a login, 272 bytes (PRM `create_crypto_login_obj_in`).
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CreateLoginRequest {
    /// Opcode of the command, and kind of the object.
    pub header: ObjectRequestHeader,
    /// The login.
    pub login: CryptoLogin,
}

/// The reply to QUERY_GENERAL_OBJECT of a login, 272 bytes (PRM `query_crypto_login_obj_out`).
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueryLoginReply {
    /// Status of the command.
    pub header: ObjectReplyHeader,
    /// The login.
    pub login: CryptoLogin,
}

crate::fmt::defmt_redacted!(CredentialBytes, CryptoLogin, CreateLoginRequest, QueryLoginReply);

const _: () = assert!(size_of::<CryptoLogin>() == 256);
const _: () = assert!(core::mem::offset_of!(CryptoLogin, flags) == 0x10);
const _: () = assert!(core::mem::offset_of!(CryptoLogin, session_import_kek_ptr) == 0x14);
const _: () = assert!(core::mem::offset_of!(CryptoLogin, credential) == 0x40);
const _: () = assert!(size_of::<CreateLoginRequest>() == 272 && size_of::<QueryLoginReply>() == 272);
