//! Code that the storage target and the storage initiator share: messages, connections, errors.

pub(crate) mod capsule;
pub(crate) mod control;
pub(crate) mod link;
pub(crate) mod process;

use mlx5_mkey::devx::{Device, DevxError};
use mlx5_mkey::error::CompletionError;
use mlx5_mkey::mkey::{Domain, Escape, Guard, Signature, T10Dif};
use mlx5_mkey::types::{BlockSize, Seed};
use std::error::Error;
use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The device that a program uses.
#[derive(clap::Args)]
pub(crate) struct DeviceArguments {
    /// Name of the device, if not the first
    #[arg(long)]
    device: Option<String>,
    /// Entry of its GID table
    #[arg(long, default_value_t = 0)]
    pub(crate) gid_index: u8,
    /// How long a command may take, in seconds: then the connection is made anew
    #[arg(long, default_value_t = 30)]
    time_limit: u64,
}

impl DeviceArguments {
    /// Opens the named device, or the first one.
    pub(crate) fn open(&self) -> Outcome<Device> {
        Ok(Device::open(self.device.as_deref())?)
    }

    /// Checks that the oldest command is not overdue, since a command whose completion was lost would wait
    /// forever. The caller resets the queue pair, which returns its requests, and repeats the command over a
    /// new connection.
    ///
    /// # Errors
    /// [`Lost`] if the command is overdue.
    pub(crate) fn limit(&self, begun: impl Iterator<Item = Instant>) -> Result<(), Lost> {
        match begun.min() {
            Some(oldest) if oldest.elapsed() >= Duration::from_secs(self.time_limit) => {
                Err(Lost(format!("a command is not done after {} s", self.time_limit)))
            }
            _ => Ok(()),
        }
    }
}

/// Prints an error, if any, and returns the exit status.
pub(crate) fn exit(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How long target and initiator sleep without an event before they check that the other side still exists.
pub(crate) const IDLE: Duration = Duration::from_millis(100);

/// The time between two checks for errors of the device and for the end of the other side, while there is
/// work.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How long target and initiator wait for an answer of the other side.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The pause before a failed step is repeated.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// The error that the other side is gone or violates the protocol. A new connection may help.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lost(pub String);

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// The error that the device has reported a failure after which it completes no further requests.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(pub String);

/// A failure after which a program can continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The other side is gone. The program resets the queue pairs and connects again.
    #[error("the other side is lost: {0}")]
    Peer(Lost),
    /// The device has failed or is gone. The program gives up all objects of the device and creates them
    /// anew.
    #[error("the device has failed: {0}")]
    Device(Box<dyn Error>),
}

impl Trouble {
    /// Classifies an error.
    ///
    /// # Errors
    /// The error itself, if the program cannot continue after it.
    pub(crate) fn of(error: Box<dyn Error>) -> Outcome<Self> {
        match error.downcast::<Lost>() {
            Ok(lost) => Ok(Self::Peer(*lost)),
            Err(error) if error.downcast_ref().is_some_and(is_of_peer) => {
                Ok(Self::Peer(Lost(error.to_string())))
            }
            // After these errors the device's objects are in an unknown state. An example is a completion
            // entry that names an unknown queue pair.
            Err(error)
                if error.is::<DevxError>() || error.is::<CompletionError>() || error.is::<Broken>() =>
            {
                Ok(Self::Device(error))
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns whether an error means that the other side cannot be reached for now: its machine is away, or has
/// a new address.
fn is_of_peer(error: &DevxError) -> bool {
    match error {
        DevxError::Address(_) => true,
        DevxError::Call { what: "ibv_create_ah", cause } => matches!(
            cause.kind(),
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
        ),
        _ => false,
    }
}

/// The signature of a block on the wire and in the volume. Each command replaces the reference tag by the
/// block's address.
pub(crate) const DIF: Domain = Domain {
    signature: Signature::T10Dif(T10Dif {
        guard: Guard::Crc,
        seed: Seed::Zeros,
        app_tag: 0xf11e,
        ref_tag: 0,
        ref_remap: true,
        escape: Escape::Never,
    }),
    block_size: BlockSize::B512,
};

/// The first bytes of each block that the initiator writes. The target searches the file for them, because
/// plaintext in the file would be a fault.
pub(crate) const MAGIC: [u8; 8] = *b"mkeydata";

#[cfg(test)]
mod tests;
