//! What storage target and initiator share.

pub(crate) mod capsule;
pub(crate) mod control;
pub(crate) mod link;
pub(crate) mod process;

use mlx5_mkey::devx::{Device, DevxError};
use mlx5_mkey::error::CompletionError;
use mlx5_mkey::mkey::{Domain, Escape, Guard, Signature, T10Dif};
use mlx5_mkey::types::{BlockSize, Seed};
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What can go wrong, in words.
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
    /// Opens it.
    pub(crate) fn open(&self) -> Outcome<Device> {
        Ok(Device::open(self.device.as_deref())?)
    }

    /// Sees that the oldest command has not taken too long: one whose completion was lost would wait for
    /// ever. Its queue pair is reset, which hands its requests back, and the command is repeated over a new
    /// connection.
    ///
    /// # Errors
    /// [`Lost`].
    pub(crate) fn limit(&self, begun: impl Iterator<Item = Instant>) -> Result<(), Lost> {
        match begun.min() {
            Some(oldest) if oldest.elapsed() >= Duration::from_secs(self.time_limit) => {
                Err(Lost(format!("a command is not done after {} s", self.time_limit)))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the exit status of a program, and says what went wrong.
pub(crate) fn exit(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How long the programs wait for something to happen before they look whether the other side is still there.
pub(crate) const IDLE: Duration = Duration::from_millis(100);

/// How often they look for that while there is work.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How long the other side may take for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long they wait before they try again what has failed.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// The other side is gone, or breaks the rules: a new connection may help.
#[derive(Debug)]
pub(crate) struct Lost(pub String);

impl Error for Lost {}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// The device has said that it does not go on.
#[derive(Debug)]
pub(crate) struct Broken(pub String);

impl Error for Broken {}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a program goes on after.
pub(crate) enum Trouble {
    /// The other side is gone: the queue pairs are taken back, and connected anew.
    Peer(Lost),
    /// The device has failed, or is gone: all that was made with it is given up, and made anew.
    Device(Box<dyn Error>),
}

impl Trouble {
    /// Says what an error is.
    ///
    /// # Errors
    /// The error, where it is none to go on after.
    pub(crate) fn of(error: Box<dyn Error>) -> Outcome<Self> {
        match error.downcast::<Lost>() {
            Ok(lost) => Ok(Self::Peer(*lost)),
            Err(error) if error.downcast_ref().is_some_and(is_of_peer) => {
                Ok(Self::Peer(Lost(error.to_string())))
            }
            // An entry of the completion queue that is about nothing: what else the device has lost or mixed
            // up is not known.
            Err(error)
                if error.is::<DevxError>() || error.is::<CompletionError>() || error.is::<Broken>() =>
            {
                Ok(Self::Device(error))
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether it is the other side's address that leads nowhere, for now: its machine is away, or was given
/// another address.
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

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(lost) => write!(f, "the other side is lost: {lost}"),
            Self::Device(error) => write!(f, "the device has failed: {error}"),
        }
    }
}

/// The signature of a block on the wire and in the volume. Its reference tag is set for each command.
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

/// What each block of the initiator's data begins with.
pub(crate) const MAGIC: [u8; 8] = *b"mkeydata";

/// Random numbers for a test load (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`; 0 where that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
