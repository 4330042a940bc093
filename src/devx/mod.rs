//! A thin layer over libmlx5 (feature `devx`). It creates the objects on a device (queues, mkeys, keys,
//! memory regions) that the rest of the library uses.
//!
//! The libraries of rdma-core are loaded when a device is opened. So a program links without them, and can
//! tell the user what to install if they are missing. Every object keeps alive the objects that it was made
//! from. A dropped object is destroyed once all objects that were made from it are gone.
//!
//! ```no_run
//! use mlx5_mkey::devx::{Device, MkeySpec, QueuePairSpec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open(None)?;
//! println!("{device}");
//! let pd = device.alloc_pd()?;
//! let (cq, completions) = device.create_cq(512)?;
//! let queue = device.create_qp(&pd, &cq, &cq, QueuePairSpec::default())?;
//! queue.control().connect_loopback()?;
//! let mkeys = pd.create_mkeys(64, MkeySpec { max_entries: 4, ..MkeySpec::default() })?;
//! # let _ = (mkeys, completions);
//! # Ok(())
//! # }
//! ```

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the shim rings doorbells with 8-byte stores, which may be shared on 64-bit hosts only");

#[doc(hidden)]
pub mod abi;
mod address;
mod adopt;
mod buffer;
mod clock;
mod completion_channel;
mod connect;
mod cq;
mod dek;
mod dek_cache;
mod error;
mod events;
mod execute;
mod list_mkey;
mod login;
mod memory_region;
mod mkey_cache;
mod mkeys;
mod protection_domain;
mod psvs;
mod qp_doorbell;
mod queries;
mod queue_pair;
mod sys;
mod umem;

pub use address::{AddressError, QpAddress};
pub use adopt::AdoptSpec;
pub use buffer::Buffer;
pub use clock::MappedClock;
pub use completion_channel::CompletionChannel;
pub use connect::ConnectOptions;
pub use cq::{Cq, CqReader, CqSpec};
pub use dek::Dek;
pub use dek_cache::{DekCache, DekLease};
pub use error::{AdoptError, DevxError, LibraryError, PieceError, on_drop_error};
pub use events::{Event, EventKind, Events, EventsCloser};
pub use list_mkey::ListMkey;
pub use login::Login;
pub use memory_region::MemoryRegion;
pub use mkey_cache::{MkeyCache, MkeyStore};
pub use mkeys::{MkeyHandle, MkeyObject, MkeySpec, Mkeys};
pub use protection_domain::ProtectionDomain;
pub use psvs::Psvs;
pub use qp_doorbell::QpDoorbell;
pub use queries::{Queries, QueryAnswer};
pub use queue_pair::{Outstanding, QpControl, QueuePair, QueuePairSpec, RingAddresses};
pub use umem::{DevxObject, PageSizes, Uar, Umem, UmemSpec};

use crate::command::error::CommandError;
use crate::command::{
    AtomicCapabilities, Command, CryptoReport, GeneralCapabilities, QueryAtomicCapabilities,
    QueryCryptoCapabilities, QueryGeneralCapabilities, QueryRoceCapabilities, RoceCapabilities,
    TimestampSupport,
};
use crate::queue::unclaimed::SharedFaults;
use crate::wire::prm::command::{Opcode, ReplyHeader, Status};
use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;
use std::vec;
use zerocopy::FromBytes;

/// An open mlx5 device.
///
/// ```no_run
/// use mlx5_mkey::devx::{Device, DevxError};
/// # fn main() -> Result<(), DevxError> {
/// let device = Device::open(Some("mlx5_0"))?;
/// println!("{device}");
/// println!("up to 2^{} mkeys", device.capabilities().log_max_mkeys);
/// # Ok(())
/// # }
/// ```
pub struct Device {
    context: Arc<sys::Context>,
    report: CryptoReport,
    roce: Option<RoceCapabilities>,
    atomics: Option<AtomicCapabilities>,
    /// Signature errors that a poll of any completion queue of the device has taken, but whose mkeys were not
    /// in the router of that poll. [`CqReader::check`] finds them here.
    unclaimed: Arc<SharedFaults>,
}

impl Device {
    /// Opens the device with this name (for example `mlx5_0`), or the first mlx5 device if `name` is `None`.
    ///
    /// # Errors
    /// [`DevxError`], whose text says what to install, to enable, or to ask an administrator for.
    pub fn open(name: Option<&str>) -> Result<Self, DevxError> {
        Self::with(sys::Context::open(name)?)
    }

    /// Takes over a device that the caller has opened (`struct ibv_context`).
    ///
    /// Each [`Device`] counts only its own logins ([`Device::login`]). If a program takes a context over
    /// twice, each of the two values allows one login, and only the device refuses the second login. So take
    /// a context over once, and share the value.
    ///
    /// # Errors
    /// As [`Device::open`].
    ///
    /// # Safety
    /// The caller ensures that `context` is open, belongs to an mlx5 device, and has DEVX
    /// (`mlx5dv_open_device`; where the kernel allows it, libmlx5 enables DEVX even if the program does not
    /// ask for it). The caller keeps it open while the value or an object made from it lives.
    #[allow(unsafe_code)]
    pub unsafe fn adopt(context: NonNull<c_void>) -> Result<Self, DevxError> {
        // SAFETY: the caller vouches for the conditions of `Context::adopt`.
        Self::with(unsafe { sys::Context::adopt(context)? })
    }

    fn with(context: Arc<sys::Context>) -> Result<Self, DevxError> {
        let ((), general) =
            carry(&QueryGeneralCapabilities, |request, reply| context.general_command(request, reply))?;
        let crypto = if general.crypto {
            Some(carry(&QueryCryptoCapabilities, |request, reply| context.general_command(request, reply))?.1)
        } else {
            None
        };
        let roce = if general.roce {
            Some(carry(&QueryRoceCapabilities, |request, reply| context.general_command(request, reply))?.1)
        } else {
            None
        };
        let atomics = if general.atomic {
            Some(carry(&QueryAtomicCapabilities, |request, reply| context.general_command(request, reply))?.1)
        } else {
            None
        };
        let report = CryptoReport { general, crypto };
        Ok(Self { context, report, roce, atomics, unclaimed: Arc::default() })
    }

    /// Returns the device's capabilities.
    pub const fn capabilities(&self) -> &GeneralCapabilities {
        &self.report.general
    }

    /// Returns the device's RoCE capabilities, `None` where it has no RoCE.
    pub const fn roce(&self) -> Option<&RoceCapabilities> {
        self.roce.as_ref()
    }

    /// Returns the device's capabilities of atomics, `None` where it has no atomics.
    pub const fn atomics(&self) -> Option<&AtomicCapabilities> {
        self.atomics.as_ref()
    }

    /// Returns which time stamps queue pairs can have. On a device with RoCE, the result is from the RoCE
    /// capabilities; on others, from the general capabilities (as in rdma-core's `dr_devx_query_device`).
    pub const fn timestamp_support(&self) -> TimestampSupport {
        match &self.roce {
            Some(roce) => roce.timestamps,
            None => self.report.general.timestamps,
        }
    }

    /// Returns a report of the device's AES-XTS engine and of the form of keys that the device accepts.
    /// `Display` prints the report in words.
    pub const fn crypto(&self) -> &CryptoReport {
        &self.report
    }

    /// Returns an entry of a port's GID table, by which a peer can connect.
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn gid(&self, port: u8, index: u16) -> Result<[u8; 16], DevxError> {
        self.context.gid(port, index)
    }
}

/// Prints the device's capabilities in words: signatures, AES-XTS, keys.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CryptoReport { general, .. } = &self.report;
        match general.signatures() {
            Some(signatures) => write!(f, "signatures {signatures}")?,
            None => f.write_str("no signatures")?,
        }
        if general.drain_signature_errors {
            f.write_str(", send queues can stop at errors in them")?;
        }
        write!(f, "; {}", self.report)
    }
}

/// Encodes a command, sends it to the device by the function `carrier`, and decodes the reply. If the device
/// refuses the command, the error has the device's status and syndrome instead of the kernel's errno.
fn carry<C: Command, T>(
    command: &C,
    carrier: impl FnOnce(&[u8], &mut [u8]) -> Result<T, DevxError>,
) -> Result<(T, C::Reply), DevxError> {
    fits(C::OPCODE, command.input_bytes())?;
    let (mut mailbox, mut reply) = (vec![0; command.input_bytes()], vec![0; C::OUTPUT]);
    let request = command.encode(&mut mailbox)?;
    let carried = carry_bytes(&request, &mut reply, carrier)?;
    Ok((carried, command.decode(&reply)?))
}

/// Sends the bytes of a command to the device by the function `carrier`. If the device refuses the command,
/// the error has the device's status and syndrome instead of the kernel's errno.
fn carry_bytes<T>(
    request: &[u8],
    reply: &mut [u8],
    carrier: impl FnOnce(&[u8], &mut [u8]) -> Result<T, DevxError>,
) -> Result<T, DevxError> {
    let command = Opcode(request.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes)));
    fits(command, request.len().max(reply.len()))?;
    let carried = carrier(request, reply);
    match ReplyHeader::ref_from_prefix(reply) {
        Ok((header, _)) if Status(header.status) != Status::OK => {
            let (status, syndrome) = (Status(header.status), header.syndrome.get());
            Err(CommandError::Status { command, status, syndrome }.into())
        }
        _ => carried,
    }
}

/// The longest request or reply of a command in bytes. The kernel's interface gives the length in 16 bits
/// (`ib_uverbs_attr`).
const MAX_REQUEST: usize = u16::MAX as usize;

/// Refuses a request or reply that is too long for the kernel's interface.
const fn fits(command: Opcode, bytes: usize) -> Result<(), DevxError> {
    if bytes > MAX_REQUEST {
        return Err(DevxError::TooLong { command, bytes, max: MAX_REQUEST });
    }
    Ok(())
}

/// The result of a create command: the object, and the device's reply.
type Created<K, C> = (sys::Object<K>, <C as Command>::Reply);

/// Creates an object for whose number `is_taken` returns false. (A number is taken while a completion queue
/// may still hold entries about a destroyed object that had this number.) The function creates objects until
/// one has a free number. It keeps the others meanwhile, so that the device gives other numbers, and destroys
/// them at the end. The object keeps the resources `kept` alive.
///
/// # Errors
/// [`CommandError::NumberInUse`] if the device gives two of these objects the same number: a device that
/// repeats its numbers would never give another one.
fn create_unlike<C: Command, K>(
    context: &Arc<sys::Context>,
    kept: &Arc<K>,
    command: &C,
    is_taken: impl Fn(&C::Reply) -> bool,
) -> Result<Created<Arc<K>, C>, DevxError>
where
    C::Reply: PartialEq,
{
    let mut held: vec::Vec<Created<Arc<K>, C>> = vec::Vec::new();
    loop {
        let made =
            carry(command, |request, reply| sys::Object::create(context, kept.clone(), request, reply))?;
        if !is_taken(&made.1) {
            return Ok(made);
        }
        if held.iter().any(|(_, number)| *number == made.1) {
            return Err(CommandError::NumberInUse { command: C::OPCODE }.into());
        }
        held.push(made);
    }
}
