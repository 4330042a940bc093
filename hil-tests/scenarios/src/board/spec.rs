//! Plain values that describe boards: sizes of queues, properties of objects, capabilities, and reports.

use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::command::CqeSize;
use mlx5_mkey::mkey::{Access, RelaxedOrdering, UmrForm, XtsEngine};
use mlx5_mkey::types::KsmEntrySize;

/// Blocks of a send queue.
pub const SEND_BLOCKS: usize = 256;
/// Slots of a receive queue.
pub const RECEIVE_SLOTS: usize = 64;
/// Entries of a completion queue: enough for all requests of both queues, and for signature errors.
pub const COMPLETIONS: usize = 512;

/// The properties of an end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndSpec {
    /// The send queue drains when a signature error occurs (`drain_sigerr`).
    pub drain_on_signature_error: bool,
    /// Operations that the peer may not perform, whatever its keys allow (PRM `rre`, `rwe`, `rae`).
    pub denied: Access,
    /// The size of completion entries.
    pub cqe_size: CqeSize,
    /// The doorbell writes single requests as a whole to the device (BlueFlame).
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
    /// The most translation entries that the mkey can hold.
    pub entries: u32,
    /// The mkey can have block signatures.
    pub signature: bool,
    /// The mkey can have crypto properties.
    pub crypto: bool,
    /// The peer may invalidate the mkey.
    pub remote_invalidate: bool,
    /// The set of mkey fields that configurations write. With [`UmrForm::Minimal`] the mkey has all access
    /// rights from its creation on.
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
    /// Returns the key followed by its keytag, if any: the plaintext of a wrapped key.
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
    /// Mkeys can have block signatures.
    pub signature: bool,
    /// Queue pairs can drain at a signature error.
    pub drain: bool,
    /// The device is hardware, which can answer questions that no document answers.
    pub hardware: bool,
    /// Keys are loaded wrapped, under a login, and the board has the credential
    /// ([`Commissioned`](super::Commissioned)).
    pub login: bool,
    /// A device without a driver exists ([`Board::bare`](super::Board::bare)).
    pub bare: bool,
    /// The board can run programs, and the programs of the storage example are present
    /// ([`Board::serve`](super::Board::serve)).
    pub programs: bool,
    /// All entries of an mkey may have one common length.
    pub fixed_entries: bool,
    /// An mkey may have more than 65,535 entries.
    pub long_lists: bool,
    /// Requests can copy memory.
    pub memcpy: bool,
    /// The orderings that a configuration of an mkey can relax, if any.
    pub relaxed_ordering: Option<RelaxedOrdering>,
    /// The value of a DEK can be replaced ([`Board::replace_dek`](super::Board::replace_dek),
    /// [`Board::sync_crypto`](super::Board::sync_crypto)).
    pub dek_modify: bool,
    /// The clock that timestamps completions can be read ([`Board::ticks`](super::Board::ticks)).
    pub clock: bool,
}

impl Capabilities {
    /// The names of all capabilities, as used by `cargo xtask hil --require` and `boards.toml`.
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

/// A measured value, with its name.
pub type Finding = (String, String);

/// A queue pair of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePairView {
    /// Queue pair number.
    pub qpn: u32,
    /// Name of the state.
    pub state: String,
    /// Number of the next block that the device executes.
    pub next_block: u16,
    /// Address of the send ring.
    pub send_ring: u64,
    /// Number of blocks of the send ring.
    pub blocks: usize,
}
