//! Commands that create, query and destroy logins, which let the device unwrap wrapped keys.

use super::{Command, CredentialId, CryptoReport, ImportKekId, KeyImport, destroy_objects};
use crate::command::error::CommandError;
use crate::types::OutOfRange;
use crate::wire::codes::codes;
use crate::wire::prm::command::Opcode;
use crate::wire::prm::crypto_login::{CreateLoginRequest, LoginFlags, QueryLoginReply};
use crate::wire::prm::object::{ObjectReplyHeader, ObjectRequestHeader, ObjectType};
use core::fmt;

/// The credential with which a program logs in to the device: at most 48 bytes. A wrapped credential has 48
/// bytes, which contain 40 bytes of plaintext.
///
/// ```
/// use mlx5_mkey::command::{Credential, Secret};
/// let secret = Secret::new([0x22; 48]);
/// let credential = Credential::wrapped(secret.expose());
/// assert_eq!(format!("{credential:?}"), "Credential(..)");
/// assert!(Credential::new(&[0x22; 49]).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credential<'a>(&'a [u8]);

impl<'a> Credential<'a> {
    /// The largest length of a credential: the size of its field in the request, in bytes.
    pub const MAX: usize = 48;

    /// Creates the value from a wrapped credential.
    pub const fn wrapped(bytes: &'a [u8; 48]) -> Self {
        Self(bytes)
    }

    /// Creates the value from a credential of any length up to [`Credential::MAX`].
    ///
    /// # Errors
    /// [`OutOfRange`] for a longer credential. (rdma-core copies it without a check.)
    pub const fn new(bytes: &'a [u8]) -> Result<Self, OutOfRange> {
        if bytes.len() > Self::MAX {
            return Err(OutOfRange {
                what: "credential length",
                value: bytes.len() as u64,
                min: 0,
                max: Self::MAX as u64,
            });
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Credential<'_> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Credential(..)");
    }
}

/// The number of a login on the device, from the reply to CREATE_GENERAL_OBJECT.
///
/// ```
/// use mlx5_mkey::command::{Command, DestroyLogin, LoginObject};
/// // The number that the reply to `CreateLogin` had, kept by the caller.
/// let login = LoginObject::new(0x11);
/// let mut mailbox = [0; DestroyLogin::INPUT];
/// let request = DestroyLogin(login).encode(&mut mailbox)?;
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LoginObject(u32);

impl LoginObject {
    /// Creates the value from the 32-bit number that the device returned.
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// Returns the 32-bit number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The command that logs in, so that wrapped keys can be loaded (CREATE_GENERAL_OBJECT of a login,
/// `mlx5dv_crypto_login_create`).
///
/// An open device context may have one login. DEKs that were loaded stay valid after the login ends. The
/// mailbox is wiped when the request is dropped.
///
/// ```
/// use mlx5_mkey::command::{Command, CreateLogin, Credential, CredentialId, ImportKekId, Secret};
///
/// let credential = Secret::new([0x22; 48]);
/// let command = CreateLogin {
///     credential_id: CredentialId::new(0x10)?,
///     import_kek_id: ImportKekId::new(0)?,
///     credential: Credential::wrapped(credential.expose()),
/// };
/// let mut mailbox = [0; CreateLogin::INPUT];
/// drop(command.encode(&mut mailbox)?);
/// assert_eq!(mailbox, [0; CreateLogin::INPUT]);
/// assert!(CredentialId::new(0x0100_0000).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateLogin<'a> {
    /// The credential's number on the device.
    pub credential_id: CredentialId,
    /// The number of the import key, which wraps credentials and keys.
    pub import_kek_id: ImportKekId,
    /// The credential.
    pub credential: Credential<'a>,
}

impl CreateLogin<'_> {
    /// Checks that the device supports logins.
    ///
    /// # Errors
    /// [`CommandError::Unsupported`].
    pub fn check(&self, device: &CryptoReport) -> Result<(), CommandError> {
        match device.key_import() {
            KeyImport::Wrapped => Ok(()),
            _ => Err(CommandError::Unsupported {
                command: Self::OPCODE,
                what: "logins: it is not commissioned",
            }),
        }
    }
}

impl Command for CreateLogin<'_> {
    const OPCODE: Opcode = Opcode::CREATE_GENERAL_OBJECT;
    const SECRET: bool = true;
    type Input = CreateLoginRequest;
    type Output = ObjectReplyHeader;
    type Reply = LoginObject;

    fn write(&self, input: &mut CreateLoginRequest) {
        input.header = ObjectRequestHeader::new(Self::OPCODE, ObjectType::CRYPTO_LOGIN, 0);
        let flags = LoginFlags::new().with_credential_pointer(self.credential_id.get());
        input.login.flags.set(flags.into_bits());
        input.login.session_import_kek_ptr.set(self.import_kek_id.get());
        for (byte, value) in input.login.credential.0.iter_mut().zip(self.credential.0) {
            *byte = *value;
        }
    }

    fn read(&self, output: &ObjectReplyHeader) -> Result<LoginObject, CommandError> {
        Ok(LoginObject(output.obj_id.get()))
    }
}

codes! {
    /// Whether a login is valid (PRM `crypto_login_obj.state`). The type can also hold codes without a name,
    /// because a reply may contain any code. There is no code for a missing login: it has no object that a
    /// program could query.
    LoginState(u8), "login state {:#x}";

    /// The login is valid.
    VALID = LoginFlags::VALID, "valid";
    /// The login's credential or import key was revoked. The login has to be destroyed and replaced by a new
    /// one.
    INVALID = LoginFlags::INVALID, "invalid";
}

/// The command that asks whether a login is valid (QUERY_GENERAL_OBJECT, `mlx5dv_crypto_login_query`).
///
/// ```
/// use mlx5_mkey::command::{Command, LoginObject, LoginState, QueryLogin};
/// let command = QueryLogin(LoginObject::new(0x11));
/// let mut mailbox = [0; QueryLogin::INPUT];
/// let request = command.encode(&mut mailbox)?;
/// // … the device answers …
/// let reply = [0; QueryLogin::OUTPUT];
/// assert_eq!(command.decode(&reply)?, LoginState::VALID);
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueryLogin(pub LoginObject);

impl Command for QueryLogin {
    const OPCODE: Opcode = Opcode::QUERY_GENERAL_OBJECT;
    type Input = ObjectRequestHeader;
    type Output = QueryLoginReply;
    type Reply = LoginState;

    fn write(&self, input: &mut ObjectRequestHeader) {
        *input = ObjectRequestHeader::new(Self::OPCODE, ObjectType::CRYPTO_LOGIN, self.0.0);
    }

    fn read(&self, output: &QueryLoginReply) -> Result<LoginState, CommandError> {
        Ok(LoginState(LoginFlags::from_bits(output.login.flags.get()).state()))
    }
}

destroy_objects! {
    /// The command that destroys a login (DESTROY_GENERAL_OBJECT, `mlx5dv_crypto_login_destroy`).
    DestroyLogin(LoginObject) = CRYPTO_LOGIN;
}
