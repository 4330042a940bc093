//! The interface between scenarios and boards: each board implements these traits, and each scenario uses
//! only them.

use super::bare::Bare;
use super::end::QpEnd;
use super::spec::{
    Capabilities, DekSpec, EndSpec, Finding, MkeySpec, ProtectionDomain, QpEvent, QueuePairView,
};
use crate::way::Way;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::command::MkeyEntries;
use mlx5_mkey::mkey::{Access, Mkey};
use mlx5_mkey::queue::{ClockInfo, WorkCompletion};
use mlx5_mkey::types::{DekId, Key, UmrFence};

/// A board: an mlx5 device, real or simulated, and the access to it that scenarios need.
pub trait Board {
    /// Returns the capabilities of the board.
    fn capabilities(&self) -> Capabilities;

    /// Returns the identity of the device and its capabilities in words: names and values for the report.
    fn about(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Returns the posting method of both ends of each [`crate::qp_pair::QpPairFixture`] that is made later.
    /// Callers change the method through this reference. Existing fixtures keep their posting method.
    fn way(&mut self) -> &mut Way;

    /// Returns the values that scenarios have measured ([`crate::assumption::assumed`]) and that the report
    /// does not contain yet.
    fn findings(&mut self) -> &mut Vec<Finding>;

    /// Sets the current protection domain, in which later calls create regions, mkeys, PSVs, DEKs and queue
    /// pairs.
    fn enter(&mut self, domain: ProtectionDomain);

    /// Allocates `length` bytes that both the device and the scenario can access. Returns their address.
    fn alloc(&mut self, length: usize) -> u64;

    /// Reads memory of [`Board::alloc`].
    fn read(&self, address: u64, length: usize) -> Vec<u8>;

    /// Writes memory of [`Board::alloc`].
    fn write(&mut self, address: u64, bytes: &[u8]);

    /// Registers memory of [`Board::alloc`] as a region. Returns its key.
    fn register(&mut self, address: u64, length: usize, access: Access) -> Key;

    /// Creates an mkey.
    fn create_mkey(&mut self, spec: MkeySpec) -> Mkey;

    /// Creates an mkey together with its list of entries. The space of the mkey begins at `address`. No
    /// request can change this mkey.
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

    /// Replaces the value of a DEK of this board (MODIFY_GENERAL_OBJECT). The DEK keeps its index.
    ///
    /// # Errors
    /// The reason of a refusal.
    fn replace_dek(&mut self, dek: DekId, spec: DekSpec<'_>) -> Result<(), String>;

    /// Makes the device drop its cached values of DEKs (SYNC_CRYPTO).
    ///
    /// # Errors
    /// The reason of a refusal.
    fn sync_crypto(&mut self) -> Result<(), String>;

    /// Returns the time, in ticks, of the device's clock from which completions get their time stamps.
    /// Returns `None` if the board cannot read the clock.
    fn ticks(&self) -> Option<u64>;

    /// Returns the conversion of the ticks of [`Board::ticks`] to nanoseconds, or `None` if the device does
    /// not report it.
    fn tick_rate(&self) -> Option<ClockInfo>;

    /// Returns the fence that the device requires after a change of an mkey (`umr_fence`).
    fn umr_fence(&self) -> UmrFence;

    /// Creates two connected ends that are ready to send. `spec` gives the properties of the first; the
    /// second has default properties.
    fn connect(&mut self, spec: EndSpec) -> (QpEnd, QpEnd);

    /// Moves the queue pair of an end to the error state.
    fn fail(&mut self, end: &QpEnd);

    /// Moves two ends of [`Board::connect`] from any state back to ready to send. Returns the ids of the
    /// requests that were outstanding at `near`: first of send requests, then of receive requests.
    fn recover(&mut self, near: &mut QpEnd, far: &mut QpEnd) -> [Vec<u64>; 2];

    /// Lets the device work (hardware works by itself), and returns whether it has executed all published
    /// requests. Their completions may arrive later, within [`Board::timeout`].
    #[must_use]
    fn run_device(&mut self) -> bool;

    /// Returns the longest time, in nanoseconds, from the end of [`Board::run_device`] to the arrival of a
    /// completion. It is 0 if the device works only during that call. On boards without a clock
    /// ([`Board::nanoseconds`]), scenarios do not wait.
    fn timeout(&self) -> u64 {
        0
    }

    /// Asks the device (QUERY_QP) for the block at which a drained send queue will continue. Returns `None`
    /// if the queue is not drained.
    fn drained_at(&mut self, end: &QpEnd) -> Option<u16>;

    /// Resumes a drained send queue (SQD to RTS).
    fn resume(&mut self, end: &QpEnd);

    /// Returns the address of an end's send ring, so that scenarios can write requests which the library
    /// would not write. Returns `None` if the board does not expose the ring.
    fn send_ring(&self, end: &QpEnd) -> Option<u64>;

    /// Returns the states of the queue pairs of this board, oldest first, for the report of a failure.
    fn queue_pairs(&self) -> Vec<QueuePairView>;

    /// Returns descriptions of the board's last completions, oldest first, for the report of a failure. The
    /// description of an error completion contains its cause, if the board knows the cause.
    fn completions(&self) -> Vec<String>;

    /// Tells the board that a scenario has taken this completion out of a completion queue, so that
    /// [`Board::completions`] can describe it.
    fn taken(&mut self, _qpn: u32, _completion: &WorkCompletion) {}

    /// Returns the nanoseconds since an arbitrary fixed moment, or `None` if the board has no clock.
    fn nanoseconds(&self) -> Option<u64> {
        None
    }

    /// Returns the oldest event of an end's queue pair that no earlier call has returned, or `None`. If a
    /// real device needs time, waits briefly.
    fn event(&mut self, end: &QpEnd) -> Option<QpEvent>;

    /// Runs both programs of the storage example, initiator and target, with `ios` reads and writes. The
    /// target flips a bit in each of `corrupt` blocks of its volume. The run succeeds if the programs report
    /// each of these blocks.
    ///
    /// # Errors
    /// The failure of a program. The default implementation always fails, because the board has no programs.
    fn serve(&mut self, ios: u32, corrupt: u32) -> Result<(), String> {
        Err(format!("the board cannot run {ios} I/Os with {corrupt} corruptions: it has no programs"))
    }

    /// Asks the device for values that only commands can read, not work requests. Returns the answers: none
    /// on a board on which programs cannot send commands of their own, and none by default.
    ///
    /// # Errors
    /// The failure of a call that every device should execute.
    fn ask_by_commands(&mut self) -> Result<Vec<Finding>, String> {
        Ok(Vec::new())
    }

    /// Returns a device in reset without a driver and without objects, if the board has one.
    fn bare(&mut self) -> Option<Box<dyn Bare>> {
        None
    }

    /// Returns the functions for wrapped keys, if the board's device is commissioned for them. At the start
    /// of a scenario, a crypto login is valid.
    fn commissioned(&mut self) -> Option<&mut dyn Commissioned> {
        None
    }
}

/// The functions of a device that a crypto officer has commissioned: it accepts keys only in wrapped form,
/// while a login is valid.
pub trait Commissioned {
    /// Begins a login (CREATE_CRYPTO_LOGIN).
    ///
    /// # Errors
    /// The reason of a refusal.
    fn log_in(&mut self) -> Result<(), String>;

    /// Ends the login (destroys the object).
    fn log_out(&mut self);

    /// Invalidates the login, as a crypto officer does who deletes its credential and stores the credential
    /// anew.
    ///
    /// # Errors
    /// If this board cannot invalidate a login.
    fn revoke(&mut self) -> Result<(), String>;

    /// Returns whether the device reports a valid login.
    fn logged_in(&mut self) -> bool;

    /// Wraps a key with the KEK (key encryption key) of this device, as RFC 3394 specifies.
    fn wrap(&self, spec: DekSpec<'_>) -> Vec<u8>;

    /// Loads a wrapped key as a DEK. The length of `wrapped` shows the key size, and whether there is a
    /// keytag.
    ///
    /// # Errors
    /// The reason of a refusal.
    fn load_wrapped(&mut self, wrapped: &[u8]) -> Result<DekId, String>;
}
