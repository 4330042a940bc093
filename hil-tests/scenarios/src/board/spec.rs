//! Plain values of the interface to boards: sizes of queues, properties of objects to create, capabilities,
//! and parts of reports.

use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::command::CqeSize;
use mlx5_mkey::mkey::{Access, RelaxedOrdering, UmrForm, XtsEngine};
use mlx5_mkey::types::KsmEntrySize;

/// Number of blocks (WQEBBs) of a send queue.
pub const SEND_BLOCKS: usize = 256;
/// Number of receive requests that a receive queue holds.
pub const RECEIVE_SLOTS: usize = 64;
/// Number of entries of a completion queue: enough for all requests of both queues, and for signature errors.
pub const COMPLETIONS: usize = 512;

/// The properties of an end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndSpec {
    /// Whether the send queue drains when a signature error occurs (`drain_sigerr`).
    pub drain_on_signature_error: bool,
    /// Remote operations that the queue pair refuses, whatever rights the keys grant (PRM `rre`, `rwe`, `rae`
    /// are 0).
    pub denied: Access,
    /// The size of completion entries.
    pub cqe_size: CqeSize,
    /// Whether the queue pair has a BlueFlame register: the doorbell of a single request then writes the
    /// whole request to the device.
    pub blue_flame: bool,
    /// Whether completions of receives go to a completion queue of their own.
    pub own_receive_completions: bool,
    /// Whether the peer's atomics may not have masks, though the device has them.
    pub plain_atomics: bool,
}

/// One of the two protection domains that each board creates.
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
    /// The most translation entries that the mkey can have.
    pub entries: u32,
    /// The mkey may be configured with block signatures.
    pub signature: bool,
    /// The mkey may be configured with crypto properties.
    pub crypto: bool,
    /// A peer may invalidate the mkey (SEND with invalidate).
    pub remote_invalidate: bool,
    /// Whether configurations write all properties of the mkey, or only those that change. With
    /// [`UmrForm::Minimal`] the mkey has all access rights from its creation on.
    pub form: UmrForm,
    /// The common length of all list entries (KSM). `None`: each entry has a length of its own (KLM).
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
    /// The two halves of the XTS key, together 32 or 64 bytes.
    pub key: &'a [u8],
    /// The keytag, if the key has one.
    pub keytag: Option<[u8; 8]>,
}

impl DekSpec<'_> {
    /// Returns the key followed by its keytag, if any: the plaintext of a wrapped key.
    pub fn bytes(&self) -> Vec<u8> {
        self.key.iter().chain(self.keytag.iter().flatten()).copied().collect()
    }
}

/// An event that the device reports for the queue pair of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The send queue has drained (SQ_DRAINED).
    Drained,
    /// The peer lacked an access right, so the queue pair is in the error state.
    AccessViolation,
    /// The peer sent an invalid or forbidden request, so the queue pair is in the error state.
    InvalidRequest,
    /// The queue pair is in the error state for another reason.
    Error,
}

/// Features that scenarios need and boards may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The AES-XTS engine, if the device has one.
    pub xts: Option<XtsEngine>,
    /// Mkeys can have block signatures.
    pub signature: bool,
    /// Queue pairs can drain at a signature error.
    pub drain: bool,
    /// The device is hardware. On hardware, measurements run, and a violated assumption is no failure.
    pub hardware: bool,
    /// The device accepts only wrapped keys, under a login, and the board knows the credential for the login
    /// ([`Commissioned`](super::Commissioned)).
    pub login: bool,
    /// The board has a device that no driver has initialized yet ([`Board::bare`](super::Board::bare)).
    pub bare: bool,
    /// The board can run programs, and the programs of the storage example are present
    /// ([`Board::serve`](super::Board::serve)).
    pub programs: bool,
    /// All entries of an mkey may have one common length (KSM).
    pub fixed_entries: bool,
    /// An mkey may have more than 65,535 entries.
    pub long_lists: bool,
    /// A work request can copy local memory.
    pub memcpy: bool,
    /// The device supports masked atomic operations.
    pub masked_atomics: bool,
    /// The accesses (reads, writes) for which a configuration of an mkey may allow relaxed PCIe ordering, if
    /// any.
    pub relaxed_ordering: Option<RelaxedOrdering>,
    /// The value of a DEK can be replaced ([`Board::replace_dek`](super::Board::replace_dek),
    /// [`Board::sync_crypto`](super::Board::sync_crypto)).
    pub dek_modify: bool,
    /// The clock that timestamps completions can be read ([`Board::ticks`](super::Board::ticks)).
    pub clock: bool,
}

impl Capabilities {
    /// The names of all capabilities, as used by `cargo xtask hil --require` and `boards.toml`.
    pub const NAMES: [&'static str; 16] = [
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
        "masked-atomics",
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
        let Self { long_lists, memcpy, masked_atomics, dek_modify, clock, bare, .. } = *self;
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
            masked_atomics,
            self.relaxed_ordering.is_some(),
            dek_modify,
            clock,
            bare,
        ];
        Self::NAMES.into_iter().zip(has).filter(|(_, has)| *has).map(|(name, _)| name)
    }
}

/// A measured value: its name, then the value in words.
pub type Finding = (String, String);

/// The state of a queue pair, for the report of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePairView {
    /// Queue pair number.
    pub qpn: u32,
    /// Name of the queue pair's state, such as `ReadyToSend`.
    pub state: String,
    /// Number of the next block that the device executes.
    pub next_block: u16,
    /// Address of the send ring.
    pub send_ring: u64,
    /// Number of blocks of the send ring.
    pub blocks: usize,
}
