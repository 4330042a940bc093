//! The boards that scenarios run on: each has an mlx5 device, real or simulated.

mod bare;
mod end;
mod host_memory;
mod softdev;

pub use bare::{Bare, BareRings};
pub use end::{CoreQueues, Counters, EndQueues, Posting, QpEnd};
pub use host_memory::HostMemory;
pub use softdev::SoftBoard;

use crate::assumption::Finding;
use crate::history::QueuePairView;
use crate::way::Way;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::command::{CqeSize, MkeyEntries};
use mlx5_mkey::mkey::{Access, Mkey, RelaxedOrdering, UmrForm, XtsEngine};
use mlx5_mkey::queue::{ClockInfo, WorkCompletion};
use mlx5_mkey::types::{DekId, Key, KsmEntrySize, UmrFence};

/// Blocks of a send queue.
pub const SEND_BLOCKS: usize = 256;
/// Slots of a receive queue.
pub const RECEIVE_SLOTS: usize = 64;
/// Entries of a completion queue: enough for all requests of both queues, and for signature errors.
pub const COMPLETIONS: usize = 512;

/// The properties of an end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndSpec {
    /// The send queue drains at signature errors (`drain_sigerr`).
    pub drain_on_signature_error: bool,
    /// Operations that the peer may not perform, whatever its keys allow (PRM `rre`, `rwe`, `rae`).
    pub denied: Access,
    /// The size of completion entries.
    pub cqe_size: CqeSize,
    /// Single requests are written to the device by the doorbell (BlueFlame).
    pub blue_flame: bool,
}

/// One of the two protection domains that each board has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtectionDomain {
    /// The domain that is current at the start.
    #[default]
    First,
    /// The other domain.
    Second,
}

/// The properties of an mkey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MkeySpec {
    /// Number of translation entries.
    pub entries: u32,
    /// Block signatures.
    pub signature: bool,
    /// Crypto properties.
    pub crypto: bool,
    /// The peer may invalidate the mkey.
    pub remote_invalidate: bool,
    /// The fields that configurations write. With [`UmrForm::Minimal`] the mkey has all rights from its
    /// creation on.
    pub form: UmrForm,
    /// The common length of all list entries, if they have one.
    pub entry_size: Option<KsmEntrySize>,
}

impl MkeySpec {
    /// Returns the access rights that the mkey has from its creation on.
    pub const fn first_access(&self) -> Access {
        match self.form {
            UmrForm::Complete => Access::NONE,
            UmrForm::Minimal => Access::ALL,
        }
    }
}

/// A data encryption key in plaintext.
#[derive(Clone, Copy, Debug)]
pub struct DekSpec<'a> {
    /// Both halves of the XTS key: 32 or 64 bytes.
    pub key: &'a [u8],
    /// The keytag, if the key has one.
    pub keytag: Option<[u8; 8]>,
}

impl DekSpec<'_> {
    /// Returns the key followed by its tag, the plaintext for wrapping.
    pub fn bytes(&self) -> Vec<u8> {
        self.key.iter().chain(self.keytag.iter().flatten()).copied().collect()
    }
}

/// An event of an end's queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The send queue has drained (SQ_DRAINED).
    Drained,
    /// The peer lacked a right: the queue pair is in error.
    AccessViolation,
    /// The peer sent an invalid or forbidden request: the queue pair is in error.
    InvalidRequest,
    /// The queue pair is in error for another reason.
    Error,
}

/// Features that scenarios need and boards may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The AES-XTS engine, if the device has one.
    pub xts: Option<XtsEngine>,
    /// Block signatures.
    pub signature: bool,
    /// Queue pairs can drain at a signature error.
    pub drain: bool,
    /// The device is hardware, which can answer questions that no document answers.
    pub hardware: bool,
    /// Keys are loaded wrapped, under a login, and the board has the credential ([`Commissioned`]).
    pub login: bool,
    /// A device without a driver exists ([`Board::bare`]).
    pub bare: bool,
    /// The board runs programs: those of the storage example are present ([`Board::serve`]).
    pub programs: bool,
    /// All entries of an mkey may have one common length.
    pub fixed_entries: bool,
    /// An mkey may have more than 65,535 entries.
    pub long_lists: bool,
    /// Requests can copy memory.
    pub memcpy: bool,
    /// The orderings that a configuration of an mkey can relax, if any.
    pub relaxed_ordering: Option<RelaxedOrdering>,
    /// The value of a DEK can be replaced ([`Board::replace_dek`], [`Board::sync_crypto`]).
    pub dek_modify: bool,
    /// The clock that timestamps completions can be read ([`Board::ticks`]).
    pub clock: bool,
}

impl Capabilities {
    /// The names, as used by `cargo xtask hil --require` and `boards.toml`.
    pub const NAMES: [&'static str; 15] = [
        "signature",
        "xts",
        "xts-many",
        "xts-single",
        "drain",
        "hardware",
        "login",
        "programs",
        "fixed-entries",
        "long-lists",
        "memcpy",
        "relaxed-ordering",
        "dek-modify",
        "clock",
        "bare",
    ];

    /// Returns the names of the board's capabilities.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let single = self.xts == Some(XtsEngine::SingleBlock);
        let xts = self.xts.is_some();
        let Self { signature, drain, hardware, login, programs, fixed_entries, .. } = *self;
        let Self { long_lists, memcpy, dek_modify, clock, bare, .. } = *self;
        let has = [
            signature,
            xts,
            xts && !single,
            single,
            drain,
            hardware,
            login,
            programs,
            fixed_entries,
            long_lists,
            memcpy,
            self.relaxed_ordering.is_some(),
            dek_modify,
            clock,
            bare,
        ];
        Self::NAMES.into_iter().zip(has).filter(|(_, has)| *has).map(|(name, _)| name)
    }
}

/// A board with an mlx5 device.
pub trait Board {
    /// Returns the name by which the user chose the board.
    fn name(&self) -> &'static str;

    /// Returns the capabilities of the board.
    fn capabilities(&self) -> Capabilities;

    /// Returns the posting method of the ends of a [`crate::qp_pair::QpPairFixture`]. Must be set before a
    /// fixture is made.
    fn way(&mut self) -> &mut Way;

    /// Returns the values that scenarios have measured and that were not reported yet
    /// ([`crate::assumption::assumed`]).
    fn findings(&mut self) -> &mut Vec<Finding>;

    /// Sets the current protection domain, in which regions, mkeys with PSVs, DEKs and ends are created.
    fn enter(&mut self, domain: ProtectionDomain);

    /// Allocates `length` bytes that device and test share. Returns their address.
    fn alloc(&mut self, length: usize) -> u64;

    /// Reads shared memory.
    fn read(&self, address: u64, length: usize) -> Vec<u8>;

    /// Writes shared memory.
    fn write(&mut self, address: u64, bytes: &[u8]);

    /// Registers shared memory. Returns its key.
    fn register(&mut self, address: u64, length: usize, access: Access) -> Key;

    /// Creates an mkey.
    fn create_mkey(&mut self, spec: MkeySpec) -> Mkey;

    /// Creates an mkey with its list. Its space begins at `address`; no request can change it.
    ///
    /// # Errors
    /// The reason of a refusal.
    fn create_list_mkey(
        &mut self,
        access: Access,
        address: u64,
        entries: MkeyEntries<'_>,
    ) -> Result<Key, String>;

    /// Creates a DEK.
    fn create_dek(&mut self, spec: DekSpec<'_>) -> DekId;

    /// Replaces the value of a DEK of this board (MODIFY_GENERAL_OBJECT). Its index stays.
    ///
    /// # Errors
    /// The reason of a refusal.
    fn replace_dek(&mut self, dek: DekId, spec: DekSpec<'_>) -> Result<(), String>;

    /// Makes the device forget the values of DEKs that it has used (SYNC_CRYPTO).
    ///
    /// # Errors
    /// The reason of a refusal.
    fn sync_crypto(&mut self) -> Result<(), String>;

    /// Returns the time of the clock that timestamps completions, or `None` if it cannot be read.
    fn ticks(&self) -> Option<u64>;

    /// Returns the conversion of that clock's ticks to nanoseconds, or `None` if the device does not report
    /// it.
    fn tick_rate(&self) -> Option<ClockInfo>;

    /// Returns the fence that the device requires after a change of an mkey (`umr_fence`).
    fn umr_fence(&self) -> UmrFence;

    /// Creates two connected ends that are ready to send. The specification is that of the first one.
    fn connect(&mut self, spec: EndSpec) -> (QpEnd, QpEnd);

    /// Moves the queue pair of an end to the error state.
    fn fail(&mut self, end: &QpEnd);

    /// Moves two ends of [`Board::connect`] from any state back to ready. Returns the names of requests that
    /// were outstanding at the first: sends, then receives.
    fn recover(&mut self, near: &mut QpEnd, far: &mut QpEnd) -> [Vec<u64>; 2];

    /// Lets the device work (hardware does so by itself), and returns whether it has executed all published
    /// requests. Their completions may arrive later, within [`Board::timeout`].
    #[must_use]
    fn run_device(&mut self) -> bool;

    /// Returns the most nanoseconds that a completion may arrive after [`Board::run_device`]. 0 if the device
    /// works only during that call. Boards without a clock never wait.
    fn timeout(&self) -> u64 {
        0
    }

    /// Returns the block at which a drained send queue will continue, or `None` if the queue is not drained
    /// (QUERY_QP).
    fn drained_at(&mut self, end: &QpEnd) -> Option<u16>;

    /// Resumes a drained send queue (SQD to RTS).
    fn resume(&mut self, end: &QpEnd);

    /// Returns the address of an end's send ring, for requests that the library does not write. Returns
    /// `None` if the board does not expose the ring.
    fn send_ring(&self, end: &QpEnd) -> Option<u64>;

    /// Returns the queue pairs of this board, oldest first.
    fn queue_pairs(&self) -> Vec<QueuePairView>;

    /// Returns the last completions of this board in words, oldest first. Failures contain their cause, if
    /// the board knows it.
    fn completions(&self) -> Vec<String>;

    /// Notes that a completion of a queue pair was taken.
    fn taken(&mut self, _qpn: u32, _completion: &WorkCompletion) {}

    /// Returns the time since some moment, or `None` without a clock.
    fn nanoseconds(&self) -> Option<u64> {
        None
    }

    /// Returns the oldest unreturned event of an end. Waits briefly for an event if the device needs time.
    fn event(&mut self, end: &QpEnd) -> Option<QpEvent>;

    /// Runs both programs of the storage example with this many reads and writes, and with corruptions that
    /// must be reported.
    ///
    /// # Errors
    /// The failure of a program. By default, that the board has no programs.
    fn serve(&mut self, ios: u32, corrupt: u32) -> Result<(), String> {
        Err(format!("the board cannot run {ios} I/Os with {corrupt} corruptions: it has no programs"))
    }

    /// Returns a device in reset without a driver and without objects, if the board has one.
    fn bare(&mut self) -> Option<Box<dyn Bare>> {
        None
    }

    /// Returns the logins of the board, if it has any. A login is in force from the start.
    fn commissioned(&mut self) -> Option<&mut dyn Commissioned> {
        None
    }
}

/// A commissioned device, which accepts wrapped keys under a login.
pub trait Commissioned {
    /// Logs in.
    ///
    /// # Errors
    /// The reason of a refusal.
    fn log_in(&mut self) -> Result<(), String>;

    /// Ends the login.
    fn log_out(&mut self);

    /// Invalidates the login, as a crypto officer does who deletes its credential and stores the credential
    /// anew.
    ///
    /// # Errors
    /// If this board cannot do so.
    fn revoke(&mut self) -> Result<(), String>;

    /// Returns whether a login is in force, as the device reports it.
    fn logged_in(&mut self) -> bool;

    /// Wraps a key for this device (RFC 3394).
    fn wrap(&self, spec: DekSpec<'_>) -> Vec<u8>;

    /// Loads a wrapped key. Its length decides the key size, and whether there is a keytag.
    ///
    /// # Errors
    /// The reason of a refusal.
    fn load_wrapped(&mut self, wrapped: &[u8]) -> Result<DekId, String>;
}
