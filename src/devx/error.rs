//! Errors of [`crate::devx`], the layer over libmlx5. The texts of the errors also say how to remove the
//! cause.

use super::address::AddressError;
use crate::command::QpState;
use crate::command::error::{CommandError, EqualHalves};
use crate::mkey::error::ConfigError;
use crate::queue::error::CompletionError;
use crate::types::QueueError;
use crate::types::{Cqn, OutOfRange};
use crate::wire::prm::command::Opcode;
use core::error::Error;
use core::fmt;
use std::io;
use std::string::{String, ToString};
use std::sync::{PoisonError, RwLock};
use std::vec::Vec;

/// A library, or a function in a library, that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryError {
    file: &'static str,
    /// The name of the missing function, and the first version of rdma-core that has it.
    function: Option<(&'static str, u8)>,
    cause: String,
}

impl LibraryError {
    pub(super) fn missing(file: &'static str, cause: &str) -> Self {
        Self { file, function: None, cause: cause.to_string() }
    }

    pub(super) fn outdated(file: &'static str, function: &'static str, version: u8, cause: &str) -> Self {
        Self { file, function: Some((function, version)), cause: cause.to_string() }
    }
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, function, cause } = self;
        match function {
            None => write!(f, "cannot load {file}: {cause}. Install")?,
            Some((function, version)) => {
                write!(
                    f,
                    "{file} is too old, it lacks {function}: {cause}. Install version {version} or later of"
                )?;
            }
        }
        f.write_str(" rdma-core's libraries (Debian and Ubuntu: libibverbs1 and ibverbs-providers)")
    }
}

impl Error for LibraryError {}

/// Reasons why an object of another library cannot be taken over, or cannot be used by a function. After such
/// an error the other library may continue to use the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdoptError {
    /// The object belongs to another context (`struct ibv_context`) than the device.
    OtherDevice,
    /// The queue pair belongs to another protection domain than the one that the caller passed.
    OtherDomain,
    /// The queue pair reports to another completion queue than the one that the caller passed.
    OtherCompletionQueue {
        /// The number of the queue pair's completion queue.
        wanted: Cqn,
    },
    /// The queue pair is not of the type reliable connection.
    NotReliable {
        /// The queue pair's service type (PRM `st`).
        service_type: u8,
    },
    /// The queue pair is in this state, and not in RTS (ready to send).
    NotReady(QpState),
    /// The queue pair has no receive queue of its own.
    NoReceiveQueue,
    /// The device has not executed all send requests.
    SendsOutstanding {
        /// The block behind the last published request, modulo 2^16.
        announced: u16,
        /// The block that the device executes next.
        next: u16,
    },
    /// Receive requests still wait for messages.
    ReceivesOutstanding {
        /// The number of published requests, modulo 2^16.
        announced: u16,
        /// The number of requests that messages have consumed, modulo 2^16.
        taken: u16,
    },
    /// The completion queue holds completions that nobody has taken.
    CompletionsWaiting,
    /// The device may write received data into completion entries.
    ScatterToCqe,
    /// The device checks a checksum in each work request of the queue pair (`wq_sig`), which this library
    /// does not write.
    ChecksRequests,
    /// The completion queue's entries have this size, which is neither 64 nor 128 bytes.
    EntryBytes(u32),
    /// This part (rings, doorbell record or register) is at an address that the library cannot use.
    Layout(&'static str),
    /// Another library made the object, and the function takes only objects that this library made.
    NotMadeHere,
    /// This library made the object, and the function takes only objects of another library.
    MadeHere,
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherDevice => {
                f.write_str("the object is of another context (ibv_context) than the device")
            }
            Self::OtherDomain => f.write_str("the queue pair is of another protection domain"),
            Self::OtherCompletionQueue { wanted } => {
                write!(f, "the queue pair completes to completion queue {wanted}, not to the one given")
            }
            Self::NotReliable { service_type } => {
                write!(f, "the queue pair has service type {service_type}, and is no reliable connection")
            }
            Self::NotReady(state) => write!(f, "the queue pair is not connected: {state}"),
            Self::NoReceiveQueue => {
                f.write_str("the queue pair has no receive queue: ask for one request at least (max_recv_wr)")
            }
            Self::SendsOutstanding { announced, next } => {
                write!(f, "sends are outstanding: posted up to block {announced}, executed up to {next}")
            }
            Self::ReceivesOutstanding { announced, taken } => {
                write!(f, "receives are outstanding: {announced} posted, {taken} taken (modulo 65536)")
            }
            Self::CompletionsWaiting => {
                f.write_str("the completion queue holds completions: poll them first")
            }
            Self::ScatterToCqe => f.write_str(
                "received data may go into completion entries, as it does by default: \
                 set MLX5_SCATTER_TO_CQE=0, or make the queue pair with \
                 MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE",
            ),
            Self::ChecksRequests => {
                f.write_str("work requests must carry a checksum: unset MLX5_QP_SIGNATURE")
            }
            Self::EntryBytes(bytes) => {
                write!(f, "entries of the completion queue have {bytes} bytes, neither 64 nor 128")
            }
            Self::Layout(what) => write!(f, "{what} of the object cannot be used"),
            Self::NotMadeHere => f.write_str("this works for objects only that the library made itself"),
            Self::MadeHere => f.write_str("this works for objects only that another library made"),
        }
    }
}

impl Error for AdoptError {}

/// Reasons why a range of bytes is not a piece of registered memory that a request or an entry can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PieceError {
    /// The range is not inside the memory.
    Outside {
        /// The range's first byte.
        start: usize,
        /// The byte after the range's last byte.
        end: usize,
        /// The length of the memory in bytes.
        length: usize,
    },
    /// The range is longer than a request or an entry can state: both count bytes in 32 bits.
    TooLong {
        /// The range's length in bytes.
        bytes: usize,
    },
}

impl fmt::Display for PieceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { start, end, length } => {
                write!(f, "bytes {start} to {end} are not in memory of {length} bytes")
            }
            Self::TooLong { bytes } => {
                write!(f, "a piece of {bytes} bytes, requests and layouts count them in 32 bits")
            }
        }
    }
}

impl Error for PieceError {}

/// Reasons why a function of [`crate::devx`] failed.
///
/// The text of an error is complete: it includes the text of the cause, and advice. [`Error::source`] returns
/// the cause, for programs that react to it. A program that prints both the error and its source prints the
/// cause twice.
///
/// ```
/// use mlx5_mkey::devx::DevxError;
/// use std::error::Error;
/// /// Returns the kernel's error number, if the kernel refused.
/// fn errno(error: &DevxError) -> Option<i32> {
///     error.source()?.downcast_ref::<std::io::Error>()?.raw_os_error()
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum DevxError {
    /// A library, or a function in a library, is missing.
    Library(LibraryError),
    /// No mlx5 device has the name, or the machine has no mlx5 device.
    NoDevice {
        /// The name that was asked for.
        wanted: Option<String>,
        /// The names of the RDMA devices that were found. ` (not mlx5)` follows the name of a device of
        /// another kind.
        seen: Vec<String>,
    },
    /// The device exists but cannot be opened for DEVX.
    Open {
        /// The device's name.
        device: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// A call of a function failed, in most cases one of libibverbs or libmlx5.
    Call {
        /// The function's name, or a description of the call.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The device refused a command, or lacks the ability that the command needs.
    Command(CommandError),
    /// The kernel does not pass this command on to the device, even if the device supports it. Linux blocks
    /// some commands.
    KernelRefuses {
        /// The command.
        command: Opcode,
        /// The function that cannot work without the command, and a substitute for it.
        what: &'static str,
    },
    /// A queue cannot have this size.
    Queue(QueueError),
    /// A number does not fit its field.
    OutOfRange(OutOfRange),
    /// The mkey cannot have the properties that were asked for.
    Config(ConfigError),
    /// A range is no usable piece of registered memory.
    Piece(PieceError),
    /// The request or the reply of a command is longer than the kernel's interface can carry. Nothing was
    /// sent.
    TooLong {
        /// The command.
        command: Opcode,
        /// Length of the request or the reply in bytes.
        bytes: usize,
        /// The largest number of bytes that the interface carries.
        max: usize,
    },
    /// An AES-XTS key has equal halves.
    EqualHalves(EqualHalves),
    /// A completion queue has too few entries for all completions that may be outstanding: the queue could
    /// overrun.
    CompletionQueueTooSmall {
        /// The number of the completion queue.
        cq: Cqn,
        /// The number of entries that the queue pair or mkey needs.
        needed: u32,
        /// The number of entries that are not set aside yet.
        free: u32,
    },
    /// A completion queue ignores overrun ([`CqSpec::ignore_overrun`](super::CqSpec::ignore_overrun)): a
    /// signature error could be overwritten there, and wrong data would pass as right.
    ErrorsOverwritten {
        /// The number of the completion queue.
        cq: Cqn,
    },
    /// The caller did not pass the reader of this completion queue, which the function needs.
    OtherCompletionQueue {
        /// The number of the completion queue.
        wanted: Cqn,
    },
    /// The context already has a login, and can have only one.
    LoggedIn,
    /// The peer's address cannot be connected to.
    Address(AddressError),
    /// An object that another library made cannot be taken over, or the called function cannot use the
    /// object.
    Adopt(AdoptError),
    /// An entry of a completion queue is malformed.
    Completion(CompletionError),
    /// The kernel returned an event or an answer that is shorter than its header.
    ShortEvent,
    /// The kernel had no memory for events and dropped some.
    EventsLost,
    /// [`EventsCloser::close`](super::EventsCloser::close) has ended the wait for events, or the device is
    /// gone.
    EventsClosed,
}

macro_rules! from {
    ($($variant:ident($error:ty);)+) => { $(
        impl From<$error> for DevxError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )+ };
}

from! {
    Command(CommandError);
    Queue(QueueError);
    OutOfRange(OutOfRange);
    Config(ConfigError);
    Piece(PieceError);
    EqualHalves(EqualHalves);
    Address(AddressError);
    Adopt(AdoptError);
    Completion(CompletionError);
}

impl DevxError {
    pub(super) fn call(what: &'static str, cause: io::Error) -> Self {
        Self::Call { what, cause }
    }
}

impl fmt::Display for DevxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(error) => error.fmt(f),
            Self::NoDevice { wanted, seen } => {
                match wanted {
                    Some(name) => write!(f, "no mlx5 device named {name}")?,
                    None => f.write_str("no mlx5 device")?,
                }
                match &seen[..] {
                    [] => {
                        f.write_str("; the kernel shows no RDMA device at all: is the mlx5_ib module loaded?")
                    }
                    seen => write!(f, "; there are: {}", seen.join(", ")),
                }
            }
            Self::Open { device, cause } => {
                write!(f, "cannot open {device} for DEVX: {cause}. {}", opening(cause))
            }
            Self::Call { what, cause } => write!(f, "{what}: {cause}{}", calling(what, cause)),
            Self::Command(error @ CommandError::Status { .. }) => {
                write!(
                    f,
                    "{error} (by the syndrome, NVIDIA's support can tell which check of the firmware failed)"
                )
            }
            Self::Command(error) => error.fmt(f),
            Self::KernelRefuses { command, what } => {
                write!(f, "the kernel lets no {command} through to the device: {what}")
            }
            Self::Queue(error) => error.fmt(f),
            Self::OutOfRange(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Piece(error) => error.fmt(f),
            Self::TooLong { command, bytes, max } => write!(
                f,
                "{command}: a request of {bytes} bytes, the kernel's interface (uverbs) carries up to {max}"
            ),
            Self::EqualHalves(error) => error.fmt(f),
            Self::CompletionQueueTooSmall { cq, needed, free } => write!(
                f,
                "completion queue {cq} could overrun: {needed} entries are needed, {free} are free. Make it \
                 larger, limit what is outstanding (max_requests), or ask for ignore_overrun. Entries of \
                 what was dropped are free once a poll finds no completion"
            ),
            Self::ErrorsOverwritten { cq } => write!(
                f,
                "completion queue {cq} ignores overrun: signature errors could be overwritten there"
            ),
            Self::OtherCompletionQueue { wanted } => {
                write!(f, "the reader of completion queue {wanted} is needed: hand it to `reset`")
            }
            Self::Address(error) => error.fmt(f),
            Self::Adopt(error) => error.fmt(f),
            Self::Completion(error) => error.fmt(f),
            Self::LoggedIn => {
                f.write_str("this context has a login already, and can have one only: drop it first")
            }
            Self::ShortEvent => f.write_str("the kernel delivered an event without a header"),
            Self::EventsLost => {
                f.write_str("the kernel had no memory for events and dropped some: query the objects' states")
            }
            Self::EventsClosed => f.write_str("the waiting for events was ended"),
        }
    }
}

/// Returns advice for the user whose device cannot be opened.
fn opening(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        // ENOENT counts as a missing permission as well: if libibverbs may not open the device's file, it
        // searches for another file, and reports that none exists.
        Some(libc::EACCES | libc::EPERM | libc::ENOENT) => {
            "This user needs read and write access to the device's file in /dev/infiniband, and a \
             container needs that file inside (docker: --device=/dev/infiniband/uverbs0)"
        }
        Some(libc::EINVAL | libc::EOPNOTSUPP) => {
            "Its firmware has no user contexts for DEVX, or the kernel's mlx5_ib was built without \
             (CONFIG_INFINIBAND_USER_ACCESS): update them, or enable DEVX"
        }
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
            "Memory or file descriptors are used up (ulimit -n, ulimit -l)"
        }
        Some(libc::EIO | libc::ENODEV) => {
            "The device is being reset or removed: try again, or look into the kernel's log"
        }
        _ => "It takes access to its file in /dev/infiniband, and DEVX in firmware and kernel",
    }
}

/// Returns advice for a call that failed, or an empty string.
fn calling(what: &str, cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::ENOMEM) => {
            ". Objects or memory for them are used up: free some, or raise the limit of locked memory \
             (ulimit -l)"
        }
        Some(libc::EPERM | libc::EACCES) => {
            ". This user may not: run as root, or ask for CAP_NET_RAW and CAP_IPC_LOCK"
        }
        Some(libc::EFAULT) => ". The memory is not mapped, or not with the rights that were asked for",
        Some(libc::EINVAL) => ". The kernel does not take these arguments, or not of this device",
        Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::ENOSYS) => {
            ". This kernel or libmlx5 cannot do it: update them"
        }
        Some(libc::EIO | libc::ENODEV) => ". The device was reset or removed: open it again",
        Some(libc::EREMOTEIO) => ". The device refused: the kernel's log may say why (dmesg)",
        Some(libc::EMFILE | libc::ENFILE) => ". File descriptors are used up: raise the limit (ulimit -n)",
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ETIMEDOUT) if what == "ibv_create_ah" => {
            ". The peer's GID leads nowhere: see `ip route get` and `ip neigh`, or give its MAC address \
             (ConnectOptions)"
        }
        Some(libc::ETIMEDOUT) => {
            ". The device did not answer the kernel in time, which may say why in its log (dmesg)"
        }
        Some(libc::EBUSY) => ". It is in use by another object",
        _ => "",
    }
}

impl Error for DevxError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Library(error) => Some(error),
            Self::Open { cause, .. } | Self::Call { cause, .. } => Some(cause),
            Self::Command(error) => Some(error),
            Self::Queue(error) => Some(error),
            Self::OutOfRange(error) => Some(error),
            Self::Config(error) => Some(error),
            Self::Piece(error) => Some(error),
            Self::EqualHalves(error) => Some(error),
            Self::Address(error) => Some(error),
            Self::Adopt(error) => Some(error),
            Self::Completion(error) => Some(error),
            Self::NoDevice { .. }
            | Self::KernelRefuses { .. }
            | Self::CompletionQueueTooSmall { .. }
            | Self::ErrorsOverwritten { .. }
            | Self::OtherCompletionQueue { .. }
            | Self::TooLong { .. }
            | Self::LoggedIn
            | Self::ShortEvent
            | Self::EventsLost
            | Self::EventsClosed => None,
        }
    }
}

/// The function that receives errors of dropped values.
static DROP_HOOK: RwLock<fn(&DevxError)> = RwLock::new(|_| {});

/// Sets the function that receives errors of dropped values: the kernel could not destroy an object, or end a
/// registration. The library leaks the memory of the object, since the device may still write to it. Without
/// this call the errors are ignored.
///
/// ```
/// mlx5_mkey::devx::on_drop_error(|error| eprintln!("dropping: {error}"));
/// ```
pub fn on_drop_error(hook: fn(&DevxError)) {
    *DROP_HOOK.write().unwrap_or_else(PoisonError::into_inner) = hook;
}

/// Reports an error of a dropped value.
pub(super) fn drop_failed(error: &DevxError) {
    let hook = *DROP_HOOK.read().unwrap_or_else(PoisonError::into_inner);
    hook(error);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Qpn;
    use crate::wire::prm::command::Status;

    #[test]
    fn the_text_holds_that_of_the_source() {
        let einval = || io::Error::from_raw_os_error(libc::EINVAL);
        let (command, status) = (Opcode::CREATE_MKEY, Status::LIMIT);
        for error in [
            DevxError::Library(LibraryError::missing("libmlx5.so.1", "not there")),
            DevxError::Open { device: "mlx5_0".into(), cause: einval() },
            DevxError::call("ibv_alloc_pd", einval()),
            CommandError::Status { command, status, syndrome: 7 }.into(),
            QueueError::TableFull { capacity: 4 }.into(),
            Qpn::new(u32::MAX).unwrap_err().into(),
            ConfigError::NoCrypto.into(),
            EqualHalves.into(),
        ] {
            let source = error.source().unwrap();
            assert!(error.to_string().contains(&source.to_string()), "{error:?}");
            let of_kernel = matches!(error, DevxError::Open { .. } | DevxError::Call { .. });
            let errno = source.downcast_ref().and_then(io::Error::raw_os_error);
            assert_eq!(errno, of_kernel.then_some(libc::EINVAL), "{error:?}");
        }
        assert!(DevxError::EventsLost.source().is_none());
    }

    #[test]
    fn who_has_not_answered_depends_on_the_call() {
        let says = |what| DevxError::call(what, io::Error::from_raw_os_error(libc::ETIMEDOUT)).to_string();
        assert!(says("ibv_create_ah").contains("GID leads nowhere"));
        assert!(says("mlx5dv_devx_obj_create").contains("device did not answer"));
    }
}
