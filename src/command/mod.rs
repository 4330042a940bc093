//! Commands to the device. A command is a type that encodes its request as bytes (a mailbox), and decodes the
//! bytes of the reply. The module itself sends nothing.
//!
//! Another layer carries the bytes to the device: DEVX on Linux, or a command queue on bare metal. To create
//! one queue pair and one mkey, a program sends [`QueryGeneralCapabilities`], [`AllocPd`], [`AllocUar`],
//! [`CreateCq`], [`CreateQp`], [`Rst2Init`], [`Init2Rtr`], [`Rtr2Rts`], then [`CreatePsv`], [`CreateDek`] and
//! [`CreateMkey`].
//!
//! ```
//! use mlx5_mkey::command::{Command, CreatePsv, Pdn};
//! use mlx5_mkey::types::PsvIndex;
//!
//! let command = CreatePsv::<2>::new(Pdn::new(7)?);
//! let mut mailbox = [0; 64];
//! let request = command.encode(&mut mailbox)?;
//! assert_eq!(request.len(), 16);
//!
//! // The device's answer: status 0 and two indices.
//! let mut reply = [0; 32];
//! reply[0x13] = 5;
//! reply[0x17] = 6;
//! assert_eq!(command.decode(&reply)?, [PsvIndex::new(5)?, PsvIndex::new(6)?]);
//!
//! // Or the device refuses, with status and syndrome.
//! reply[..8].copy_from_slice(&[3, 0, 0, 0, 0, 0x35, 0xe6, 0xec]);
//! assert_eq!(
//!     command.decode(&reply).unwrap_err().to_string(),
//!     "CREATE_PSV refused: bad parameter (BAD_PARAM_ERR, 0x03), syndrome 0x0035e6ec",
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Secrets
//!
//! Commands borrow secrets (keys and credentials) instead of copying them. No type that holds a secret prints
//! it. A mailbox with a secret is wiped when its [`EncodedRequest`] is dropped, so the [`EncodedRequest`]
//! must live until the device has taken the request. Code that copies the bytes of a mailbox on their way to
//! the device has to [`wipe`] its copies.

mod atomic_capabilities;
#[cfg(test)]
mod bits;
mod capabilities;
mod cq;
mod crypto_capabilities;
mod dek;
mod dek_key;
mod eq;
pub(crate) mod error;
mod firmware_pages;
mod issi;
mod list_mkey;
mod login;
mod mkey;
mod numbers;
mod pages;
mod psv;
mod qp;
mod resources;
mod roce_capabilities;
mod secret;
mod startup;
#[cfg(test)]
mod tests;

pub use atomic_capabilities::{AtomicCapabilities, QueryAtomicCapabilities};
pub use capabilities::{GeneralCapabilities, PortType, QueryGeneralCapabilities};
pub use cq::{CqeSize, CreateCq, CreateCqOnPages, DestroyCq};
pub use crypto_capabilities::{CryptoCapabilities, CryptoReport, KeyImport, QueryCryptoCapabilities};
pub use dek::{CreateDek, DekInfo, DekObject, DekState, DestroyDek, ModifyDek, QueryDek, SyncCrypto};
pub use dek_key::{DekKey, XtsKey};
pub use eq::{CreateEq, DestroyEq};
pub use firmware_pages::{
    FIRMWARE_PAGE, GivePages, PagePhase, PageRequest, QueryPages, TakePages, TakenPages,
};
pub use issi::{Issi, IssiInfo, QueryIssi, SetIssi};
pub use list_mkey::{CreateListMkey, MkeyEntries};
pub use login::{CreateLogin, Credential, DestroyLogin, LoginObject, LoginState, QueryLogin};
pub use mkey::{CreateMemoryRegion, CreateMkey, CreatePhysicalRegion, DestroyMkey, EntryCount, MkeyFeatures};
pub use numbers::{
    AckTimeout, CqSize, CredentialId, EqSize, Eqn, FlowLabel, ImportKekId, LogAckInterval, LogMaxRdAtomic,
    LogMessage, LogPageSize, Pdn, Priority, Psn, Retries, RnrTimer, SendRingSize, SlotCount, SlotStride,
    UarPage, UmemId, UmemSlice, UserIndex,
};
pub use pages::PageList;
pub use psv::{CreatePsv, DestroyPsv};
pub use qp::{
    CreateQp, CreateQpOnPages, DestroyQp, InfinibandPath, Init2Init, Init2Rtr, Path, PathMtu, PeerAtomics,
    QpAccess, QpChange, QpInfo, QpState, QpToError, QpToReset, QueryQp, ReceiveRing, RocePath, Rst2Init,
    Rtr2Rts, Rts2Rts, SqErr2Rts, Sqd2Rts, TimestampFormat,
};
pub use resources::{AllocPd, AllocUar, DeallocPd, DeallocUar};
pub use roce_capabilities::{QueryRoceCapabilities, RoceCapabilities, TimestampSupport};
pub use secret::{EncodedRequest, Secret, wipe};
pub use startup::{DisableHca, EnableHca, Function, InitHca, TeardownHca};

use crate::command::error::CommandError;
use crate::wire::prm::command::{Opcode, ReplyHeader, Status};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A command that encodes its request and decodes the device's reply. A caller may implement this trait for
/// commands that this module lacks, with an opcode, the PRM's structures of request and reply, and functions
/// that fill in the request and read the reply. `devx::Device::execute` (feature `devx`) and
/// [`CommandQueue::execute`](crate::hca::CommandQueue::execute) execute these commands. The documentation of
/// `devx::Device::execute` has an example.
pub trait Command {
    /// The command's number (PRM `opcode`).
    const OPCODE: Opcode;

    /// Whether the request holds a key or a credential, so that its mailbox has to be wiped.
    const SECRET: bool = false;

    /// The request's wire format.
    type Input: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned;

    /// The reply's wire format.
    type Output: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned;

    /// The values that [`Command::decode`] returns.
    type Reply;

    /// Length in bytes of the request's structure, to which some commands append a list.
    const INPUT: usize = size_of::<Self::Input>();

    /// Length in bytes of a reply. The caller must give the device this much room for the reply.
    const OUTPUT: usize = size_of::<Self::Output>();

    /// Checks, without asking the device, that a device can carry out the request. [`Command::encode`] calls
    /// this function before it writes. The default accepts every request.
    ///
    /// # Errors
    /// The [`CommandError`] that says why no device can carry out the request.
    fn verify(&self) -> Result<(), CommandError> {
        Ok(())
    }

    /// Fills in the structure of a request. The bytes of `input` are all 0 before the call.
    fn write(&self, input: &mut Self::Input);

    /// Returns the length of the request in bytes: [`Command::INPUT`] plus the length of the list, if the
    /// command has one.
    fn input_bytes(&self) -> usize {
        Self::INPUT
    }

    /// Fills in the list that follows the structure of the request, for commands that have one. The bytes of
    /// the list are all 0 before.
    fn write_list(&self, _list: &mut [u8]) {}

    /// Reads the values of a reply whose status is OK.
    ///
    /// # Errors
    /// [`CommandError`] if values of the reply are invalid. For most commands, all values are valid.
    fn read(&self, output: &Self::Output) -> Result<Self::Reply, CommandError>;

    /// Writes every byte of the request to the beginning of a mailbox. The bytes behind the request are not
    /// changed.
    ///
    /// # Errors
    /// [`CommandError::MailboxTooShort`], or the error of [`Command::verify`]. After an error, the mailbox is
    /// as before.
    fn encode<'m>(&self, mailbox: &'m mut [u8]) -> Result<EncodedRequest<'m>, CommandError> {
        self.verify()?;
        let (length, needed) = (mailbox.len(), self.input_bytes());
        let too_short = CommandError::MailboxTooShort { command: Self::OPCODE, length, needed };
        let bytes = mailbox.get_mut(..needed).ok_or(too_short)?;
        bytes.fill(0);
        // From here on, `request` wipes the bytes of a secret even if a later step fails.
        let mut request = EncodedRequest::new(bytes, Self::SECRET);
        let (input, list) = Self::Input::mut_from_prefix(&mut request).map_err(|_| too_short)?;
        self.write(input);
        self.write_list(list);
        Ok(request)
    }

    /// Checks the status of a reply, and returns its values.
    ///
    /// # Errors
    /// [`CommandError::Status`] if the device refused the command, [`CommandError::ReplyTooShort`] if `reply`
    /// has fewer than [`Command::OUTPUT`] bytes, or the error of [`Command::read`].
    fn decode(&self, reply: &[u8]) -> Result<Self::Reply, CommandError> {
        let too_short =
            |needed| CommandError::ReplyTooShort { command: Self::OPCODE, length: reply.len(), needed };
        // A device that refuses the command may send a shorter reply, so the reply's header is read first.
        let (header, _) =
            ReplyHeader::ref_from_prefix(reply).map_err(|_| too_short(size_of::<ReplyHeader>()))?;
        let status = Status(header.status);
        if status != Status::OK {
            return Err(CommandError::Status {
                command: Self::OPCODE,
                status,
                syndrome: header.syndrome.get(),
            });
        }
        let (output, _) = Self::Output::ref_from_prefix(reply).map_err(|_| too_short(Self::OUTPUT))?;
        self.read(output)
    }
}

/// Defines commands whose request consists of one number (of the object, for example), and whose reply has no
/// values.
macro_rules! number_commands {
    ($($(#[$doc:meta])* $name:ident($number:ty) = $opcode:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        /// use mlx5_mkey::{command::*, types::*};
        #[doc = concat!("let command = ", stringify!($name), "(", stringify!($number), "::new(7)?);")]
        #[doc = concat!("let mut mailbox = [0; ", stringify!($name), "::INPUT];")]
        /// assert_eq!(command.encode(&mut mailbox)?[8..12], [0, 0, 0, 7]);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(pub $number);

        impl $crate::command::Command for $name {
            const OPCODE: $crate::wire::prm::command::Opcode = $crate::wire::prm::command::Opcode::$opcode;
            type Input = $crate::wire::prm::command::NumberRequest;
            type Output = $crate::wire::prm::command::NumberReply;
            type Reply = ();

            fn write(&self, input: &mut Self::Input) {
                input.header = $crate::wire::prm::command::RequestHeader::new(Self::OPCODE);
                input.number.set(self.0.get());
            }

            fn read(&self, _: &Self::Output) -> Result<(), $crate::command::error::CommandError> {
                Ok(())
            }
        }
    )+ };
}

/// Defines commands that destroy a general object.
macro_rules! destroy_objects {
    ($($(#[$doc:meta])* $name:ident($object:ty) = $kind:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        /// use mlx5_mkey::{command::*, types::*};
        #[doc = concat!("let command = ", stringify!($name), "(", stringify!($object), "::new(7));")]
        #[doc = concat!("let mut mailbox = [0; ", stringify!($name), "::INPUT];")]
        /// assert_eq!(command.encode(&mut mailbox)?[8..12], [0, 0, 0, 7]);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(pub $object);

        impl $crate::command::Command for $name {
            const OPCODE: $crate::wire::prm::command::Opcode =
                $crate::wire::prm::command::Opcode::DESTROY_GENERAL_OBJECT;
            type Input = $crate::wire::prm::object::ObjectRequestHeader;
            type Output = $crate::wire::prm::object::ObjectReplyHeader;
            type Reply = ();

            fn write(&self, input: &mut Self::Input) {
                let kind = $crate::wire::prm::object::ObjectType::$kind;
                *input = Self::Input::new(Self::OPCODE, kind, self.0.get());
            }

            fn read(&self, _: &Self::Output) -> Result<(), $crate::command::error::CommandError> {
                Ok(())
            }
        }
    )+ };
}

use {destroy_objects, number_commands};
