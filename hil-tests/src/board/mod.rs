//! What the scenarios run on: something that has an mlx5 device, real or not.

mod devx;
mod host_memory;
mod softdev;

pub use devx::DevxBoard;
pub use host_memory::HostMemory;
pub use softdev::SoftBoard;

use mlx5_mkey::mkey::{Access, Mkey, XtsEngine};
use mlx5_mkey::queue::{CompletionQueue, Doorbell, ReceiveQueue, SendQueue};
use mlx5_mkey::types::{DekId, Key};

/// Blocks of a send queue.
pub const SEND_BLOCKS: usize = 256;
/// Slots of a receive queue.
pub const RECEIVE_SLOTS: usize = 64;
/// Entries of a completion queue.
pub const COMPLETIONS: usize = 256;

/// A doorbell of whatever kind the board has.
pub struct AnyDoorbell(pub Box<dyn Doorbell>);

impl Doorbell for AnyDoorbell {
    fn ring(&mut self, control: [u8; 8]) {
        self.0.ring(control);
    }
}

/// The send queue of a [`Port`].
pub type PortSendQueue = SendQueue<'static, AnyDoorbell, SEND_BLOCKS>;

/// One end of a connection: queues that the board has made and wired to another port.
pub struct Port {
    /// Where work is posted.
    pub send: PortSendQueue,
    /// Where buffers for the peer's messages are posted.
    pub receive: ReceiveQueue<'static, RECEIVE_SLOTS>,
    /// Where both report.
    pub completions: CompletionQueue<'static>,
}

/// What an mkey is to be able to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MkeySpec {
    /// Translation entries.
    pub entries: u16,
    /// With block signature.
    pub signature: bool,
    /// With crypto.
    pub crypto: bool,
    /// The peer may invalidate it.
    pub remote_invalidate: bool,
}

/// A data encryption key in plaintext.
#[derive(Clone, Copy, Debug)]
pub struct DekSpec<'a> {
    /// Both halves of the XTS key: 32 or 64 bytes.
    pub key: &'a [u8],
    /// Its tag.
    pub keytag: Option<[u8; 8]>,
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
}

/// Something that has an mlx5 device.
pub trait Board {
    /// Returns the name that the user chose the board by.
    fn name(&self) -> &'static str;

    /// Returns what it can do.
    fn capabilities(&self) -> Capabilities;

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

    /// Loads a data encryption key.
    fn create_dek(&mut self, spec: DekSpec<'_>) -> DekId;

    /// Makes two ports that are connected to each other and ready to send.
    fn connect(&mut self) -> (Port, Port);

    /// Lets the device work; hardware does so by itself.
    fn settle(&mut self);

    /// Stops a port's send queue on signature errors from now on (`drain_sigerr`, M19).
    fn drain_on_signature_error(&mut self, port: &Port);

    /// Returns the block at which a drained send queue will go on, `None` where it is not drained (QUERY_QP).
    fn drained_at(&mut self, port: &Port) -> Option<u16>;

    /// Lets a drained send queue go on (SQD to RTS).
    fn resume(&mut self, port: &Port);
}
