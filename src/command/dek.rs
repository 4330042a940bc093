//! Commands that load, change, query and destroy data encryption keys (DEKs) on the device.

use super::{Command, CryptoReport, DekKey, Pdn, destroy_objects};
use crate::command::error::CommandError;
use crate::types::DekId;
use crate::wire::codes::codes;
use crate::wire::prm::command::{NumberReply, Opcode, RequestHeader};
use crate::wire::prm::encryption_key::{
    CreateKeyRequest, EncryptionKey, KeyFlags, QueryKeyReply, SyncCryptoRequest,
};
use crate::wire::prm::object::{ObjectReplyHeader, ObjectRequestHeader, ObjectType};

/// The number of a DEK on the device, from the reply to CREATE_GENERAL_OBJECT.
///
/// ```
/// use mlx5_mkey::command::DekObject;
/// // The number by which another library knows the key (`mlx5dv_dek`). Mkeys use its low 24 bits.
/// let object = DekObject::new(0x0100_0007);
/// assert_eq!(object.dek_id().get(), 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DekObject(u32);

impl DekObject {
    /// Creates the value from the 32-bit number that the device returned.
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// Returns the 32-bit number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the 24-bit number by which mkeys name the DEK.
    pub const fn dek_id(self) -> DekId {
        DekId::from_low_bits(self.0)
    }
}

/// The command that loads an AES-XTS key into the device (CREATE_GENERAL_OBJECT of a DEK,
/// `mlx5dv_dek_create`).
///
/// A wrapped key needs a login ([`super::CreateLogin`]); [`CryptoReport::key_import`] says whether the device
/// accepts wrapped keys only. The reply is the DEK's number. A reset of the device destroys the DEK. The
/// mailbox is wiped when the request is dropped.
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
    /// Protection domain of the DEK.
    pub pd: Pdn,
    /// The key, in plaintext or wrapped.
    pub key: DekKey<'a>,
    /// Bytes that the device stores for the DEK's owner. They are not secret.
    pub opaque: [u8; 8],
}

impl CreateDek<'_> {
    /// Checks that the device accepts the form of the key: plaintext or wrapped.
    ///
    /// # Errors
    /// [`CommandError::Unsupported`] with the form that the device does not accept.
    pub fn check(&self, device: &CryptoReport) -> Result<(), CommandError> {
        self.key.check(device, Self::OPCODE)
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
        self.key.write(self.pd, &mut input.key);
        input.key.opaque = self.opaque;
    }

    fn read(&self, output: &ObjectReplyHeader) -> Result<DekObject, CommandError> {
        Ok(DekObject(output.obj_id.get()))
    }
}

/// The command that gives a DEK on the device another value (MODIFY_GENERAL_OBJECT of a DEK). The number of
/// the DEK and its `opaque` bytes stay.
///
/// The device caches values of DEKs until [`SyncCrypto`], so it may go on using an old value. The caller must
/// keep this order: all transfers with the old value complete, then [`SyncCrypto`], then this command. A
/// wrapped key needs a login. The mailbox is wiped when the request is dropped.
///
/// Source: the kernel's `lib/crypto.c`, which changes plaintext keys of TLS this way. Assumption: keys of
/// AES-XTS can be changed as well, and wrapped keys are changed in the form in which they are loaded.
///
/// ```
/// use mlx5_mkey::command::{Command, DekKey, DekObject, ModifyDek, Pdn, Secret, XtsKey};
///
/// let key = Secret::new(core::array::from_fn(|index| index as u8));
/// let command = ModifyDek {
///     dek: DekObject::new(7),
///     pd: Pdn::new(7)?,
///     key: DekKey::Plain128 { key: XtsKey::new(key.expose())?, keytag: None },
/// };
/// let mut mailbox = [0; ModifyDek::INPUT];
/// drop(command.encode(&mut mailbox)?);
/// assert_eq!(mailbox, [0; ModifyDek::INPUT]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ModifyDek<'a> {
    /// The DEK to change.
    pub dek: DekObject,
    /// The protection domain of the DEK.
    pub pd: Pdn,
    /// The new value of the DEK.
    pub key: DekKey<'a>,
}

impl ModifyDek<'_> {
    /// Checks that the device accepts the form of the key, and that the device has [`SyncCrypto`], the
    /// command to forget the old value.
    ///
    /// # Errors
    /// [`CommandError::Unsupported`].
    pub fn check(&self, device: &CryptoReport) -> Result<(), CommandError> {
        self.key.check(device, Self::OPCODE)?;
        SyncCrypto.check(device)
    }
}

impl Command for ModifyDek<'_> {
    const OPCODE: Opcode = Opcode::MODIFY_GENERAL_OBJECT;
    const SECRET: bool = true;
    type Input = CreateKeyRequest;
    type Output = ObjectReplyHeader;
    type Reply = ();

    fn write(&self, input: &mut CreateKeyRequest) {
        input.header = ObjectRequestHeader::new(Self::OPCODE, ObjectType::DEK, self.dek.0);
        input.key.modify_field_select.set(EncryptionKey::MODIFY_KEY);
        self.key.write(self.pd, &mut input.key);
    }

    fn read(&self, _: &ObjectReplyHeader) -> Result<(), CommandError> {
        Ok(())
    }
}

/// The command that makes the device drop its cached values of DEKs (SYNC_CRYPTO). After this command, a
/// [`ModifyDek`] takes effect at once, because no old value is in the cache.
///
/// ```
/// use mlx5_mkey::command::{Command, SyncCrypto};
/// let mut mailbox = [0; SyncCrypto::INPUT];
/// assert_eq!(SyncCrypto.encode(&mut mailbox)?[..2], [0x0b, 0x12]);
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SyncCrypto;

impl SyncCrypto {
    /// Checks that the device has this command.
    ///
    /// # Errors
    /// [`CommandError::Unsupported`].
    pub fn check(&self, device: &CryptoReport) -> Result<(), CommandError> {
        match device.crypto {
            Some(crypto) if crypto.synchronizes_deks => Ok(()),
            _ => Err(CommandError::Unsupported { command: Self::OPCODE, what: "other values for keys" }),
        }
    }
}

impl Command for SyncCrypto {
    const OPCODE: Opcode = Opcode::SYNC_CRYPTO;
    type Input = SyncCryptoRequest;
    type Output = NumberReply;
    type Reply = ();

    fn write(&self, input: &mut SyncCryptoRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.crypto_type.set(SyncCryptoRequest::ALL);
    }

    fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
        Ok(())
    }
}

codes! {
    /// Whether a DEK can be used (PRM `encryption_key_obj.state`). The type can also hold codes without a
    /// name, because a reply may contain any code.
    DekState(u8), "key state {:#x}";

    /// The DEK can be used.
    READY = KeyFlags::READY, "ready";
    /// The device could not load the DEK.
    ERROR = KeyFlags::ERROR, "error";
}

/// The device's description of a DEK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DekInfo {
    /// Whether the DEK can be used.
    pub state: DekState,
    /// The bytes that the owner gave when the DEK was loaded.
    pub opaque: [u8; 8],
}

/// The command that asks for a DEK's state (QUERY_GENERAL_OBJECT, `mlx5dv_dek_query`). For a wrapped key, it
/// needs a login.
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
    /// The command that destroys a DEK (DESTROY_GENERAL_OBJECT, `mlx5dv_dek_destroy`).
    DestroyDek(DekObject) = DEK;
}
