//! Data encryption keys.

use super::{Command, CryptoReport, KeyImport, Pdn, destroy_objects};
use crate::error::{CommandError, EqualHalves};
use crate::mkey::Keytag;
use crate::types::DekId;
use crate::wire::codes::codes;
use crate::wire::prm::command::Opcode;
use crate::wire::prm::encryption_key::{CreateKeyRequest, KeyFlags, QueryKeyReply};
use crate::wire::prm::object::{ObjectReplyHeader, ObjectRequestHeader, ObjectType};
use core::fmt;
use subtle::ConstantTimeEq;

/// An AES-XTS key in plaintext: two halves of `N / 2` bytes, one after the other. `N` is 32 or 64.
///
/// With equal halves XTS is open to a chosen-ciphertext attack, and FIPS 140-3 has them refused (Implementation Guidance C.I);
/// a published vector has them nevertheless (IEEE 1619, vector 1).
///
/// ```
/// use mlx5_mkey::command::{Secret, XtsKey};
/// let mut secret = Secret::new([0x11; 32]);
/// assert!(XtsKey::new(secret.expose()).is_err());
/// secret.expose_mut()[16..].fill(0x22);
/// let key = XtsKey::new(secret.expose())?;
/// assert_eq!(format!("{key:?}"), "XtsKey(..)");
/// # Ok::<(), mlx5_mkey::error::EqualHalves>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct XtsKey<'a, const N: usize>(&'a [u8; N]);

impl<'a, const N: usize> XtsKey<'a, N> {
    /// Takes a key. The time that this takes does not depend on where the halves differ.
    ///
    /// # Errors
    /// [`EqualHalves`].
    pub fn new(key: &'a [u8; N]) -> Result<Self, EqualHalves> {
        let (front, back) = key.split_at(N / 2);
        if front.ct_eq(back).into() { Err(EqualHalves) } else { Ok(Self::allowing_equal_halves(key)) }
    }

    /// Takes a key whose halves may be equal, as a published vector has them. Not for data: see [`XtsKey`].
    pub const fn allowing_equal_halves(key: &'a [u8; N]) -> Self {
        const { assert!(N == 32 || N == 64, "two halves of 128 or 256 bits") };
        Self(key)
    }
}

impl<const N: usize> fmt::Debug for XtsKey<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("XtsKey(..)")
    }
}

#[cfg(feature = "defmt")]
impl<const N: usize> defmt::Format for XtsKey<'_, N> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "XtsKey(..)");
    }
}

/// An AES-XTS key in one of the eight forms that the device takes (man page `mlx5dv_dek_create`).
///
/// Wrapped keys are encrypted with the import key of the login (AES key wrap, RFC 3394); what is inside is key, or key and tag,
/// in the order of the plain form, and is not looked into: whoever wraps a key sees to it that its halves differ. The lengths
/// are those of the types: a key of another length does not compile.
///
/// ```
/// use mlx5_mkey::command::{DekKey, Secret, XtsKey};
/// let secret = Secret::new(core::array::from_fn(|index| index as u8));
/// let plain = DekKey::Plain256 { key: XtsKey::new(secret.expose())?, keytag: None };
/// assert!(plain.bits() == 256 && !plain.is_wrapped());
/// // As whoever holds the import key has wrapped it, with its tag.
/// let wrapped = [0x5a; 80];
/// assert!(DekKey::Wrapped256Tagged(&wrapped).has_keytag());
/// # Ok::<(), mlx5_mkey::error::EqualHalves>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DekKey<'a> {
    /// Plaintext, two halves of 128 bits.
    Plain128 {
        /// Both halves.
        key: XtsKey<'a, 32>,
        /// The tag that mkeys must give, if one shall be checked.
        keytag: Option<Keytag>,
    },
    /// Plaintext, two halves of 256 bits.
    Plain256 {
        /// Both halves.
        key: XtsKey<'a, 64>,
        /// The tag that mkeys must give, if one shall be checked.
        keytag: Option<Keytag>,
    },
    /// Wrapped: two halves of 128 bits.
    Wrapped128(&'a [u8; 40]),
    /// Wrapped: two halves of 128 bits and a tag.
    Wrapped128Tagged(&'a [u8; 48]),
    /// Wrapped: two halves of 256 bits.
    Wrapped256(&'a [u8; 72]),
    /// Wrapped: two halves of 256 bits and a tag.
    Wrapped256Tagged(&'a [u8; 80]),
}

impl<'a> DekKey<'a> {
    /// Returns whether the key is wrapped.
    pub const fn is_wrapped(&self) -> bool {
        !matches!(self, Self::Plain128 { .. } | Self::Plain256 { .. })
    }

    /// Returns whether mkeys must give a tag.
    pub const fn has_keytag(&self) -> bool {
        match self {
            Self::Plain128 { keytag, .. } | Self::Plain256 { keytag, .. } => keytag.is_some(),
            Self::Wrapped128Tagged(_) | Self::Wrapped256Tagged(_) => true,
            Self::Wrapped128(_) | Self::Wrapped256(_) => false,
        }
    }

    /// Returns the bits of each half: 128 or 256.
    pub const fn bits(&self) -> u16 {
        match self {
            Self::Plain128 { .. } | Self::Wrapped128(_) | Self::Wrapped128Tagged(_) => 128,
            Self::Plain256 { .. } | Self::Wrapped256(_) | Self::Wrapped256Tagged(_) => 256,
        }
    }

    /// Returns the key as it is given, and the tag that goes after it.
    fn parts(&self) -> (&'a [u8], Option<Keytag>) {
        match *self {
            Self::Plain128 { key, keytag } => (key.0, keytag),
            Self::Plain256 { key, keytag } => (key.0, keytag),
            Self::Wrapped128(key) => (key, None),
            Self::Wrapped128Tagged(key) => (key, None),
            Self::Wrapped256(key) => (key, None),
            Self::Wrapped256Tagged(key) => (key, None),
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Plain128 { .. } => "Plain128(..)",
            Self::Plain256 { .. } => "Plain256(..)",
            Self::Wrapped128(_) => "Wrapped128(..)",
            Self::Wrapped128Tagged(_) => "Wrapped128Tagged(..)",
            Self::Wrapped256(_) => "Wrapped256(..)",
            Self::Wrapped256Tagged(_) => "Wrapped256Tagged(..)",
        }
    }
}

impl fmt::Debug for DekKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for DekKey<'_> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{=str}", self.kind());
    }
}

/// A key on the device, as CREATE_GENERAL_OBJECT names it.
///
/// ```
/// use mlx5_mkey::command::DekObject;
/// // As another library knows the key (`mlx5dv_dek`), and as mkeys name it: by the low 24 bits.
/// let object = DekObject::new(0x0100_0007);
/// assert_eq!(object.dek_id().get(), 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DekObject(u32);

impl DekObject {
    /// Takes the 32-bit number that the device gave.
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// Returns the 32-bit number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number by which mkeys name the key.
    pub const fn dek_id(self) -> DekId {
        DekId::from_low_bits(self.0)
    }
}

/// Loads an AES-XTS key into the device (CREATE_GENERAL_OBJECT of a DEK, `mlx5dv_dek_create`).
///
/// A wrapped key needs a login ([`super::CreateLogin`]); whether the device wants wrapped keys says [`CryptoReport`]. The
/// reply names the key. It is gone when the device is reset, and its mailbox is wiped when the request is dropped.
///
/// ```
/// use mlx5_mkey::command::{Command, CreateDek, DekKey, Pdn, Secret, XtsKey};
///
/// let key = Secret::new(core::array::from_fn(|index| index as u8));
/// let command = CreateDek {
///     pd: Pdn::new(7)?,
///     key: DekKey::Plain128 { key: XtsKey::new(key.expose())?, keytag: None },
///     opaque: *b"disk 001",
/// };
/// let mut mailbox = [0; CreateDek::INPUT];
/// let request = command.encode(&mut mailbox)?;
/// // … the device takes it …
/// drop(request);
/// assert_eq!(mailbox, [0; CreateDek::INPUT]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateDek<'a> {
    /// Protection domain.
    pub pd: Pdn,
    /// The key.
    pub key: DekKey<'a>,
    /// What its owner wants to remember of it; not secret.
    pub opaque: [u8; 8],
}

impl CreateDek<'_> {
    /// Refuses a key in a form that the device does not take.
    ///
    /// # Errors
    /// [`CommandError::Unsupported`] with the form that is missing.
    pub fn check(&self, device: &CryptoReport) -> Result<(), CommandError> {
        let what = match (device.key_import(), self.key.is_wrapped()) {
            (KeyImport::Plaintext, false) | (KeyImport::Wrapped, true) => return Ok(()),
            (KeyImport::Plaintext, true) => "wrapped keys: it is not commissioned",
            (KeyImport::Wrapped, false) => "plaintext keys: it is commissioned",
            (KeyImport::Unavailable(_), _) => "keys for AES-XTS",
        };
        Err(CommandError::Unsupported { command: Self::OPCODE, what })
    }
}

impl Command for CreateDek<'_> {
    const OPCODE: Opcode = Opcode::CREATE_GENERAL_OBJECT;
    const SECRET: bool = true;
    type Input = CreateKeyRequest;
    type Output = ObjectReplyHeader;
    type Reply = DekObject;

    fn write(&self, input: &mut CreateKeyRequest) {
        input.header = ObjectRequestHeader::new(Self::OPCODE, ObjectType::DEK, 0);
        let size = if self.key.bits() == 128 { KeyFlags::SIZE_128 } else { KeyFlags::SIZE_256 };
        let flags = KeyFlags::new()
            .with_key_size(size)
            .with_has_keytag(self.key.has_keytag())
            .with_key_purpose(KeyFlags::PURPOSE_AES_XTS);
        input.key.flags.set(flags.into_bits());
        input.key.pd.set(self.pd.get());
        input.key.opaque = self.opaque;
        let (key, keytag) = self.key.parts();
        let tag = keytag.as_ref().map_or(&[][..], |tag| &tag.0);
        // At most 80 of 128 bytes.
        for (byte, value) in input.key.key.0.iter_mut().zip(key.iter().chain(tag)) {
            *byte = *value;
        }
    }

    fn read(&self, output: &ObjectReplyHeader) -> Result<DekObject, CommandError> {
        Ok(DekObject(output.obj_id.get()))
    }
}

codes! {
    /// Whether a key can be used (PRM `encryption_key_obj.state`). An open set.
    DekState(u8), "key state {:#x}";

    /// It can be used.
    READY = KeyFlags::READY, "ready";
    /// It could not be taken.
    ERROR = KeyFlags::ERROR, "error";
}

/// What the device says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DekInfo {
    /// Whether it can be used.
    pub state: DekState,
    /// What its owner wanted to remember.
    pub opaque: [u8; 8],
}

/// Asks for a key's state (QUERY_GENERAL_OBJECT, `mlx5dv_dek_query`). A wrapped key needs a login.
///
/// ```
/// use mlx5_mkey::command::{Command, DekObject, DekState, QueryDek};
/// let command = QueryDek(DekObject::new(7));
/// let mut mailbox = [0; QueryDek::INPUT];
/// let request = command.encode(&mut mailbox)?;
/// // … the device answers …
/// let reply = [0; QueryDek::OUTPUT];
/// assert_eq!(command.decode(&reply)?.state, DekState::READY);
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryDek(pub DekObject);

impl Command for QueryDek {
    const OPCODE: Opcode = Opcode::QUERY_GENERAL_OBJECT;
    type Input = ObjectRequestHeader;
    type Output = QueryKeyReply;
    type Reply = DekInfo;

    fn write(&self, input: &mut ObjectRequestHeader) {
        *input = ObjectRequestHeader::new(Self::OPCODE, ObjectType::DEK, self.0.0);
    }

    fn read(&self, output: &QueryKeyReply) -> Result<DekInfo, CommandError> {
        let state = KeyFlags::from_bits(output.key.flags.get()).state();
        Ok(DekInfo { state: DekState(state), opaque: output.key.opaque })
    }
}

destroy_objects! {
    /// Destroys a key (DESTROY_GENERAL_OBJECT, `mlx5dv_dek_destroy`).
    DestroyDek(DekObject) = DEK;
}
