//! What the scenarios run on: something that has an mlx5 device, real or not.

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
/// Entries of a completion queue: all that both queues may complete, and signature errors.
pub const COMPLETIONS: usize = 512;

/// What an end of a connection is to be like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndSpec {
    /// Its send queue stops on signature errors (`drain_sigerr`).
    pub drain_on_signature_error: bool,
    /// What its peer may not do, whatever the keys allow (PRM `rre`, `rwe`, `rae`).
    pub denied: Access,
    /// The size of its completion entries.
    pub cqe_size: CqeSize,
    /// Requests that are alone are written to the device with the doorbell.
    pub blue_flame: bool,
}

/// One of the two protection domains that each board has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtectionDomain {
    /// The one in which boards begin.
    #[default]
    First,
    /// The other.
    Second,
}

/// What an mkey is to be able to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MkeySpec {
    /// Translation entries.
    pub entries: u32,
    /// With block signature.
    pub signature: bool,
    /// With crypto.
    pub crypto: bool,
    /// The peer may invalidate it.
    pub remote_invalidate: bool,
    /// How much configurations write. With [`UmrForm::Minimal`] it has all rights from the start.
    pub form: UmrForm,
    /// It is for lists whose entries all have this length.
    pub entry_size: Option<KsmEntrySize>,
}

impl MkeySpec {
    /// Returns the rights that it has from the start.
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
    /// Its tag.
    pub keytag: Option<[u8; 8]>,
}

impl DekSpec<'_> {
    /// Returns the key with its tag behind it, as it is wrapped.
    pub fn bytes(&self) -> Vec<u8> {
        self.key.iter().chain(self.keytag.iter().flatten()).copied().collect()
    }
}

/// What happened to an end's queue pair, other than completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// Its send queue stands still (SQ_DRAINED).
    Drained,
    /// The peer asked for what it has no right to: the queue pair is in error.
    AccessViolation,
    /// The peer asked for what makes no sense, or the queue pair forbids: the queue pair is in error.
    InvalidRequest,
    /// It is in error for another reason.
    Error,
}

/// What a scenario may need and a board may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The AES-XTS engine, if there is one.
    pub xts: Option<XtsEngine>,
    /// Block signatures.
    pub signature: bool,
    /// Queue pairs can be drained on a signature error.
    pub drain: bool,
    /// Nobody has written the device as a program, so that it can be asked for what no document tells.
    pub hardware: bool,
    /// Keys are loaded wrapped, under a login, and the board knows what to log in with ([`Commissioned`]).
    pub login: bool,
    /// There is a device that no driver has ([`Board::bare`]).
    pub bare: bool,
    /// Other programs run on it: those of the storage example are there ([`Board::serve`]).
    pub programs: bool,
    /// The entries of an mkey may all be of one length.
    pub fixed_entries: bool,
    /// An mkey may have more entries than 16 bits count.
    pub long_lists: bool,
    /// Requests copy memory.
    pub memcpy: bool,
    /// Which orderings configurations of an mkey can relax.
    pub relaxed_ordering: Option<RelaxedOrdering>,
    /// Keys can be given other values ([`Board::replace_dek`], [`Board::sync_crypto`]).
    pub dek_modify: bool,
    /// The clock that stamps completions can be read ([`Board::ticks`]).
    pub clock: bool,
}

impl Capabilities {
    /// The names, as `cargo xtask hil --require` and `boards.toml` know them.
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

    /// Returns the names of what the board has.
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

/// Something that has an mlx5 device.
pub trait Board {
    /// Returns the name that the user chose the board by.
    fn name(&self) -> &'static str;

    /// Returns what it can do.
    fn capabilities(&self) -> Capabilities;

    /// Returns the way in which requests are posted to the ends of a [`crate::qp_pair::QpPairFixture`], to be set before one is made.
    fn way(&mut self) -> &mut Way;

    /// Returns what scenarios have measured and nobody has told yet ([`crate::assumption::assumed`]).
    fn findings(&mut self) -> &mut Vec<Finding>;

    /// Makes what is made from now on in this protection domain: regions, mkeys with their PSVs, keys, ends.
    fn enter(&mut self, domain: ProtectionDomain);

    /// Gives memory of `length` bytes that device and test share, and returns its address.
    fn alloc(&mut self, length: usize) -> u64;

    /// Reads shared memory.
    fn read(&self, address: u64, length: usize) -> Vec<u8>;

    /// Writes shared memory.
    fn write(&mut self, address: u64, bytes: &[u8]);

    /// Registers shared memory and returns its key.
    fn register(&mut self, address: u64, length: usize, access: Access) -> Key;

    /// Makes an mkey.
    fn create_mkey(&mut self, spec: MkeySpec) -> Mkey;

    /// Makes an mkey with its list: a space from `address` on that no request changes.
    ///
    /// # Errors
    /// Why there can be no such mkey.
    fn create_list_mkey(
        &mut self,
        access: Access,
        address: u64,
        entries: MkeyEntries<'_>,
    ) -> Result<Key, String>;

    /// Loads a data encryption key.
    fn create_dek(&mut self, spec: DekSpec<'_>) -> DekId;

    /// Gives a data encryption key of this board another value (MODIFY_GENERAL_OBJECT); its number stays.
    ///
    /// # Errors
    /// Why the device refuses.
    fn replace_dek(&mut self, dek: DekId, spec: DekSpec<'_>) -> Result<(), String>;

    /// Has the device forget the values of keys that it has used (SYNC_CRYPTO).
    ///
    /// # Errors
    /// Why the device refuses.
    fn sync_crypto(&mut self) -> Result<(), String>;

    /// Returns what the clock shows that stamps completions, `None` where it cannot be read.
    fn ticks(&self) -> Option<u64>;

    /// Returns what ticks of that clock are in nanoseconds, from its 0 on, `None` where the device does not say.
    fn tick_rate(&self) -> Option<ClockInfo>;

    /// Returns the fence that the device asks for behind a change of an mkey (`umr_fence`).
    fn umr_fence(&self) -> UmrFence;

    /// Makes two ends that are connected to each other and ready to send. The specification is that of the first.
    fn connect(&mut self, spec: EndSpec) -> (QpEnd, QpEnd);

    /// Puts the queue pair of an end into the error state.
    fn fail(&mut self, end: &QpEnd);

    /// Takes two ends that [`Board::connect`] made back to ready, from whatever state, and returns the names of what was
    /// outstanding at the first: sends, then receives.
    fn recover(&mut self, near: &mut QpEnd, far: &mut QpEnd) -> [Vec<u64>; 2];

    /// Lets the device work, which hardware does by itself, and returns whether it has done what was published. Its
    /// completions may still be on their way, as long as [`Board::timeout`] says.
    #[must_use]
    fn run_device(&mut self) -> bool;

    /// Returns how many nanoseconds a completion may take to arrive behind [`Board::run_device`]: none, where the device works
    /// there and nowhere else. Without a clock nobody waits.
    fn timeout(&self) -> u64 {
        0
    }

    /// Returns the block at which a drained send queue will go on, `None` where it is not drained (QUERY_QP).
    fn drained_at(&mut self, end: &QpEnd) -> Option<u16>;

    /// Lets a drained send queue go on (SQD to RTS).
    fn resume(&mut self, end: &QpEnd);

    /// Returns the address of an end's send ring, blocks of 64 bytes, for requests that the library does not write; `None`
    /// where the board does not show it.
    fn send_ring(&self, end: &QpEnd) -> Option<u64>;

    /// Returns the queue pairs of this board, oldest first.
    fn queue_pairs(&self) -> Vec<QueuePairView>;

    /// Returns the last completions of this board in words, oldest first; of errors with their causes, where
    /// those are known.
    fn completions(&self) -> Vec<String>;

    /// A completion of a queue pair was taken.
    fn taken(&mut self, _qpn: u32, _completion: &WorkCompletion) {}

    /// Returns the time since some moment, `None` where there is no clock.
    fn nanoseconds(&self) -> Option<u64> {
        None
    }

    /// Returns the oldest event of an end that was not returned yet; waits a moment for one, where devices take time.
    fn event(&mut self, end: &QpEnd) -> Option<QpEvent>;

    /// Runs the storage example, both programs, with this many reads and writes, and corruptions to be named.
    ///
    /// # Errors
    /// What went wrong; by default that there are no programs.
    fn serve(&mut self, ios: u32, corrupt: u32) -> Result<(), String> {
        Err(format!("the board cannot run {ios} I/Os with {corrupt} corruptions: it has no programs"))
    }

    /// Returns a device in reset that no driver has, if there is one: nobody has made anything on it.
    fn bare(&mut self) -> Option<Box<dyn Bare>> {
        None
    }

    /// Returns the board's logins, if it has any. It is logged in from the start.
    fn commissioned(&mut self) -> Option<&mut dyn Commissioned> {
        None
    }
}

/// A device that was commissioned: it takes wrapped keys, under a login.
pub trait Commissioned {
    /// Logs in.
    ///
    /// # Errors
    /// Why the device refuses.
    fn log_in(&mut self) -> Result<(), String>;

    /// Ends the login.
    fn log_out(&mut self);

    /// Has the login become invalid, as when a crypto officer deletes its credential and stores it anew.
    ///
    /// # Errors
    /// That this cannot be done from here.
    fn revoke(&mut self) -> Result<(), String>;

    /// Asks the device whether a login is in force.
    fn logged_in(&mut self) -> bool;

    /// Wraps a key for this device (RFC 3394).
    fn wrap(&self, spec: DekSpec<'_>) -> Vec<u8>;

    /// Loads a wrapped key: of which size and whether with a tag, its length says.
    ///
    /// # Errors
    /// Why the device refuses.
    fn load_wrapped(&mut self, wrapped: &[u8]) -> Result<DekId, String>;
}
