//! A fixture for scenarios: two connected queue pairs, `near` and `far`, and mkeys of the near one. Its
//! functions move data out of these mkeys and into them, by each kind of request.

use crate::board::{Board, EndSpec, MkeySpec, QpEnd};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;
use mlx5_mkey::error::{CheckError, CompletionError, ConfigError, PostError};
use mlx5_mkey::mkey::{Access, Layout, Mkey, MkeyConfig, SignatureError};
use mlx5_mkey::queue::{Completion, Failure, Outcome, RequestKind, WorkCompletion};
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::{Cqe, Syndrome};
use mlx5_mkey::wqe::{Local, PreparedConfig, Remote, Sge};

/// The result of a scenario: success, or a description of the failure.
pub type Verdict = Result<(), String>;

/// Returns an error as text, the form in which scenarios report it.
pub(crate) fn text(error: impl Display) -> String {
    format!("{error}")
}

/// Returns the id of each completion, and its syndrome if the request has failed.
pub(crate) fn syndromes(done: &[WorkCompletion]) -> Vec<(u64, Option<Syndrome>)> {
    let syndrome =
        |outcome| if let Outcome::Failed(failure) = outcome { Some(failure.syndrome) } else { None };
    done.iter().map(|work| (work.id, syndrome(work.outcome))).collect()
}

/// Returns the id of each completion.
pub(crate) fn ids(done: &[WorkCompletion]) -> Vec<u64> {
    done.iter().map(|work| work.id).collect()
}

/// Adds to an error the case to which it belongs.
pub(crate) trait Within<T> {
    /// Puts `what` and a colon in front of the error.
    fn within(self, what: impl Display) -> Result<T, String>;
}

impl<T, E: Display> Within<T> for Result<T, E> {
    fn within(self, what: impl Display) -> Result<T, String> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}

/// Ends a scenario with a message unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// Ends a scenario with a message that shows both values, unless they are equal.
#[macro_export]
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($message:tt)+) => {
        match (&$left, &$right) {
            (left, right) if left == right => {}
            (left, right) => {
                return Err(format!("{}: {left:x?}, expected {right:x?}", format_args!($($message)+)));
            }
        }
    };
}

/// Registered memory with all access rights. Its key has no signature and no encryption, so memory and wire
/// have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub length: usize,
    /// The local and remote key.
    pub key: Key,
}

impl Region {
    /// Returns the whole region as an entry of a scatter/gather list.
    pub const fn sge(&self) -> Sge {
        Sge { address: self.address, length: self.length as u32, lkey: self.key }
    }

    /// Returns the begin of the region.
    pub const fn place(&self) -> Local {
        Local { address: self.address, lkey: self.key }
    }

    /// Returns the begin of the region, as the peer names it.
    pub const fn remote(&self) -> Remote {
        Remote { address: self.address, rkey: self.key }
    }
}

/// A method of moving data out of an mkey of the near queue pair to the far one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tx {
    /// The near queue pair SENDs data of the mkey.
    Send,
    /// The near queue pair RDMA WRITEs data of the mkey to memory of the far one.
    Write,
    /// The far queue pair RDMA READs from the mkey.
    PeerRead,
}

impl Tx {
    /// All methods of moving data out of an mkey.
    pub const ALL: [Self; 3] = [Self::Send, Self::Write, Self::PeerRead];
}

/// A method of moving data from the far queue pair into an mkey of the near one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rx {
    /// The far queue pair SENDs, and the near one receives into the mkey.
    Receive,
    /// The far queue pair RDMA WRITEs into the mkey.
    PeerWrite,
    /// The near queue pair RDMA READs memory of the far one into the mkey.
    Read,
}

impl Rx {
    /// All methods of moving data into an mkey.
    pub const ALL: [Self; 3] = [Self::Receive, Self::PeerWrite, Self::Read];
}

/// The result of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The bytes of the far queue pair's memory after the transfer. If the transfer succeeded, these are the
    /// bytes that were on the wire.
    pub wire: Vec<u8>,
    /// The failure at the requester, if any.
    pub requester: Option<Failure>,
    /// The failure at the receiver, if any.
    pub receiver: Option<Failure>,
}

impl Moved {
    /// Returns the bytes on the wire if the transfer has succeeded.
    ///
    /// # Errors
    /// The syndrome of the requester or the receiver.
    pub fn ok(self) -> Result<Vec<u8>, String> {
        match self.requester.or(self.receiver) {
            None => Ok(self.wire),
            Some(failure) => Err(format!("the transfer failed: {}", failure.syndrome)),
        }
    }
}

/// The id of each request of this module that configures an mkey.
pub(crate) const CONFIGURE: u64 = 0xc0;
const TRANSFER: u64 = 0x7a;
const RECEIVE: u64 = 0x4e;

/// A board with two connected ends (queue pairs), and mkeys of the near end.
pub struct QpPairFixture<'b> {
    /// The board.
    pub board: &'b mut dyn Board,
    /// The near end, whose mkeys the scenario configures.
    pub near: QpEnd,
    /// The far end, the other end of the connection. It uses plain memory, without mkeys, signatures or
    /// encryption.
    pub far: QpEnd,
    /// The mkeys of the near end. Functions of this type name an mkey by its position in this list.
    pub mkeys: Vec<Mkey>,
    /// Positions of the mkeys for which completions reported signature errors, in order of the reports.
    pub signature_errors: Vec<usize>,
}

impl<'b> QpPairFixture<'b> {
    /// Connects two ends of a board.
    pub fn new(board: &'b mut dyn Board) -> Self {
        let (near, far) = connect(board, EndSpec::default());
        Self { board, near, far, mkeys: Vec::new(), signature_errors: Vec::new() }
    }

    /// Connects two new ends after a failure. Mkeys and memory stay unchanged.
    pub fn reconnect(&mut self) {
        self.reconnect_as(EndSpec::default());
    }

    /// Connects two new ends. `spec` describes the near one; the far one has default properties. Mkeys and
    /// memory stay unchanged.
    pub fn reconnect_as(&mut self, spec: EndSpec) {
        (self.near, self.far) = connect(self.board, spec);
    }

    /// Creates a region that holds these bytes.
    pub fn region(&mut self, bytes: &[u8]) -> Region {
        let address = self.board.alloc(bytes.len());
        self.board.write(address, bytes);
        let key = self.board.register(address, bytes.len(), Access::ALL);
        Region { address, length: bytes.len(), key }
    }

    /// Reads the bytes of a region.
    pub fn bytes(&self, region: &Region) -> Vec<u8> {
        self.board.read(region.address, region.length)
    }

    /// Creates an mkey. Returns its position in `mkeys`.
    pub fn mkey(&mut self, spec: MkeySpec) -> usize {
        self.mkeys.push(self.board.create_mkey(spec));
        self.mkeys.len() - 1
    }

    /// Returns the key of an mkey.
    pub fn key(&self, mkey: usize) -> Key {
        self.mkeys[mkey].key()
    }

    /// Configures an mkey of the near end, and waits for the completion.
    ///
    /// # Errors
    /// The library refuses the configuration, or the request fails on the device.
    pub fn configure<'l>(
        &mut self,
        mkey: usize,
        config: &MkeyConfig,
        layout: impl Into<Layout<'l>>,
    ) -> Verdict {
        let prepared = self.prepare(mkey, config).within("configure")?;
        self.configure_prepared(mkey, &prepared, layout)
    }

    /// Configures an mkey of the near end with a prepared configuration, and waits for the completion.
    ///
    /// # Errors
    /// The library refuses the request, or the request fails on the device.
    pub fn configure_prepared<'l>(
        &mut self,
        mkey: usize,
        prepared: &PreparedConfig,
        layout: impl Into<Layout<'l>>,
    ) -> Verdict {
        self.post_prepared(mkey, prepared, layout).within("configure")?;
        self.finish_configuration()
    }

    /// Rings the doorbell for a posted configuration whose request has the id `CONFIGURE`, and waits for the
    /// completion.
    ///
    /// # Errors
    /// A failed or missing completion.
    pub fn finish_configuration(&mut self) -> Verdict {
        match self.complete_near(1)?[..] {
            [
                WorkCompletion {
                    id: CONFIGURE,
                    outcome: Outcome::Sent { kind: RequestKind::MkeyConfigure, .. },
                    ..
                },
            ] => Ok(()),
            ref other => Err(format!("configuring completed with {other:?}")),
        }
    }

    /// Prepares a configuration by the near end's posting method, and posts it for an mkey of the near end.
    /// The caller rings the doorbell.
    ///
    /// # Errors
    /// The library refuses the configuration or the request.
    pub fn try_configure<'l>(
        &mut self,
        mkey: usize,
        config: &MkeyConfig,
        layout: impl Into<Layout<'l>>,
    ) -> Result<(), PostError> {
        let prepared = self.prepare(mkey, config)?;
        self.post_prepared(mkey, &prepared, layout)
    }

    /// Prepares a configuration by the near end's posting method, for all mkeys of the same kind as `mkey`.
    ///
    /// # Errors
    /// A configuration that no mkey of this kind can hold.
    pub fn prepare(&self, mkey: usize, config: &MkeyConfig) -> Result<PreparedConfig, ConfigError> {
        self.near.way().prepare(self.mkeys[mkey].kind(), config)
    }

    /// Posts a prepared configuration of an mkey of the near end. The caller rings the doorbell.
    ///
    /// # Errors
    /// The library refuses the request.
    pub fn post_prepared<'l>(
        &mut self,
        mkey: usize,
        prepared: &PreparedConfig,
        layout: impl Into<Layout<'l>>,
    ) -> Result<(), PostError> {
        let request = self.near.request(CONFIGURE).signaled();
        request.configure_mkey(&mut self.mkeys[mkey], prepared, layout.into())
    }

    /// Publishes the near end's requests, and lets the device execute them.
    ///
    /// # Errors
    /// If the device does not finish.
    pub fn run_near(&mut self) -> Verdict {
        self.near.ring_doorbell();
        self.run_device()
    }

    /// Publishes the far end's requests, and lets the device execute them.
    ///
    /// # Errors
    /// If the device does not finish.
    pub fn run_far(&mut self) -> Verdict {
        self.far.ring_doorbell();
        self.run_device()
    }

    /// Publishes the requests of both ends, and lets the device execute them.
    ///
    /// # Errors
    /// If the device does not finish.
    pub fn run_both(&mut self) -> Verdict {
        self.near.ring_doorbell();
        self.run_far()
    }

    /// Posts and publishes a receive request of the near end.
    ///
    /// # Errors
    /// The library refuses the request.
    pub fn receive(&mut self, id: u64, sges: &[Sge]) -> Verdict {
        self.near.queues().post_receive(id, sges).map_err(text)?;
        self.near.queues().publish_receives();
        Ok(())
    }

    /// Lets the device execute the published requests.
    ///
    /// # Errors
    /// If the device does not finish.
    pub fn run_device(&mut self) -> Verdict {
        ensure!(self.board.run_device(), "the device did not finish what was published");
        Ok(())
    }

    /// Takes all completions of the near end that the device has written. Signature errors are recorded in
    /// their mkeys.
    ///
    /// # Errors
    /// A malformed completion.
    pub fn poll_near(&mut self) -> Result<Vec<WorkCompletion>, String> {
        let found = poll(&mut self.near, &mut self.mkeys, &mut self.signature_errors);
        let found = found.within("near side")?;
        found.iter().for_each(|completion| self.board.taken(self.near.qpn().get(), completion));
        Ok(found)
    }

    /// Takes all completions of the far end that the device has written.
    ///
    /// # Errors
    /// A malformed completion.
    pub fn poll_far(&mut self) -> Result<Vec<WorkCompletion>, String> {
        let found = poll(&mut self.far, &mut self.mkeys, &mut self.signature_errors);
        let found = found.within("far side")?;
        found.iter().for_each(|completion| self.board.taken(self.far.qpn().get(), completion));
        Ok(found)
    }

    /// Returns the first signature error of an mkey since the last call, if any, from the near end's
    /// completion queue.
    ///
    /// # Errors
    /// As [`mlx5_mkey::queue::CompletionQueue::check`].
    pub fn check(&mut self, mkey: usize) -> Result<Option<SignatureError>, CheckError> {
        self.near.queues().check(&mut self.mkeys[mkey])
    }

    /// Rings the doorbell of the near end, runs the device, and takes `count` completions.
    ///
    /// # Errors
    /// The device does not finish; a malformed completion.
    pub fn complete_near(&mut self, count: usize) -> Result<Vec<WorkCompletion>, String> {
        self.run_near()?;
        self.wait_near(count)
    }

    /// The same as [`Self::complete_near`] for the far end.
    ///
    /// # Errors
    /// The device does not finish; a malformed completion.
    pub fn complete_far(&mut self, count: usize) -> Result<Vec<WorkCompletion>, String> {
        self.run_far()?;
        self.wait_far(count)
    }

    /// Takes `count` completions of the near end, or fewer if the board's timeout ends first.
    ///
    /// # Errors
    /// A malformed completion.
    pub fn wait_near(&mut self, count: usize) -> Result<Vec<WorkCompletion>, String> {
        self.wait(count, Self::poll_near)
    }

    /// Takes completions of the far end, as [`QpPairFixture::wait_near`] does for the near end.
    ///
    /// # Errors
    /// A malformed completion.
    pub fn wait_far(&mut self, count: usize) -> Result<Vec<WorkCompletion>, String> {
        self.wait(count, Self::poll_far)
    }

    /// Takes the next completion entry of the near end as the device wrote it, within the board's timeout.
    /// Its request stays outstanding: the caller must reconnect the pair afterwards.
    ///
    /// # Errors
    /// If the device writes no entry in time.
    pub fn wait_entry(&mut self) -> Result<Cqe, String> {
        let timeout = self.board.timeout();
        let take = |pair: &mut Self| Ok(pair.near.queues().take_entry().into_iter().collect());
        let entries = arrived(self, 1, timeout, |pair| pair.board.nanoseconds(), take)?;
        entries.first().copied().ok_or("no completion entry".into())
    }

    /// Takes `count` completion entries of the near end as the device wrote them, or fewer if the board's
    /// timeout ends first. Returns those of the send queue's completion queue (or of the only one), then
    /// those of the receive queue's own. The caller must reconnect the pair afterwards.
    pub fn wait_entries(&mut self, count: usize) -> [Vec<Cqe>; 2] {
        let timeout = self.board.timeout();
        let take = |pair: &mut Self| {
            let queues = pair.near.queues();
            let mut found: Vec<(bool, Cqe)> = Vec::new();
            found.extend(core::iter::from_fn(|| queues.take_entry()).map(|entry| (false, entry)));
            found.extend(core::iter::from_fn(|| queues.take_receive_entry()).map(|entry| (true, entry)));
            Ok(found)
        };
        let entries = arrived(self, count, timeout, |pair| pair.board.nanoseconds(), take);
        let entries = entries.unwrap_or_default();
        let of = |wanted| entries.iter().filter(move |(own, _)| *own == wanted).map(|(_, entry)| *entry);
        [of(false).collect(), of(true).collect()]
    }

    fn wait(
        &mut self,
        count: usize,
        poll: fn(&mut Self) -> Result<Vec<WorkCompletion>, String>,
    ) -> Result<Vec<WorkCompletion>, String> {
        let timeout = self.board.timeout();
        arrived(self, count, timeout, |pair| pair.board.nanoseconds(), poll)
    }

    /// Moves `length` bytes, counted on the wire, out of an mkey into new memory of the far end. They begin
    /// at `offset` in the mkey's space.
    ///
    /// # Errors
    /// The library refuses a request, or a completion is missing. A transfer that fails on the device is no
    /// error, see [`Moved`].
    pub fn tx(&mut self, way: Tx, mkey: usize, offset: u64, length: usize) -> Result<Moved, String> {
        let far = self.region(&vec![0xee; length]);
        self.tx_to(way, mkey, offset, &far)
    }

    /// Moves bytes out of an mkey as [`QpPairFixture::tx`] does, into a whole region of the far end. Before
    /// the transfer, the region is filled with other bytes.
    ///
    /// # Errors
    /// As [`QpPairFixture::tx`].
    pub fn tx_to(&mut self, way: Tx, mkey: usize, offset: u64, far: &Region) -> Result<Moved, String> {
        self.board.write(far.address, &vec![0xee; far.length]);
        let key = self.key(mkey);
        let inside = sge(offset, far.length, key);
        match way {
            Tx::Send => {
                self.far.queues().post_receive(RECEIVE, &[far.sge()]).map_err(text)?;
                self.far.queues().publish_receives();
                self.near.request(TRANSFER).signaled().send(&[inside])
            }
            Tx::Write => self.near.request(TRANSFER).signaled().rdma_write(far.remote(), &[inside]),
            Tx::PeerRead => {
                let remote = Remote { address: offset, rkey: key };
                self.far.request(TRANSFER).signaled().rdma_read(remote, &[far.sge()])
            }
        }
        .map_err(text)?;
        let (requester, receiver) = self.finish(way == Tx::PeerRead, way == Tx::Send)?;
        Ok(Moved { wire: self.bytes(far), requester, receiver })
    }

    /// Moves the bytes `wire` out of new memory of the far end into an mkey, to `offset` in the mkey's space.
    ///
    /// # Errors
    /// As [`QpPairFixture::tx`].
    pub fn rx(&mut self, way: Rx, mkey: usize, offset: u64, wire: &[u8]) -> Result<Moved, String> {
        let far = self.region(wire);
        self.rx_from(way, mkey, offset, &far)
    }

    /// Moves all bytes of a region of the far end into an mkey, as [`QpPairFixture::rx`] does.
    ///
    /// # Errors
    /// As [`QpPairFixture::tx`].
    pub fn rx_from(&mut self, way: Rx, mkey: usize, offset: u64, far: &Region) -> Result<Moved, String> {
        let key = self.key(mkey);
        let inside = sge(offset, far.length, key);
        match way {
            Rx::Receive => {
                self.receive(RECEIVE, &[inside])?;
                self.far.request(TRANSFER).signaled().send(&[far.sge()])
            }
            Rx::PeerWrite => {
                let remote = Remote { address: offset, rkey: key };
                self.far.request(TRANSFER).signaled().rdma_write(remote, &[far.sge()])
            }
            Rx::Read => self.near.request(TRANSFER).signaled().rdma_read(far.remote(), &[inside]),
        }
        .map_err(text)?;
        let (requester, receiver) = self.finish(way != Rx::Read, way == Rx::Receive)?;
        Ok(Moved { wire: self.bytes(far), requester, receiver })
    }

    /// Rings the doorbells for a transfer, lets the device work, and takes the completions. Returns the
    /// failures of requester and receiver. `far_requests` tells that the far end is the requester, `received`
    /// that the transfer consumes a receive request of the responder.
    fn finish(
        &mut self,
        far_requests: bool,
        received: bool,
    ) -> Result<(Option<Failure>, Option<Failure>), String> {
        self.run_both()?;
        type Wait<'b> = fn(&mut QpPairFixture<'b>, usize) -> Result<Vec<WorkCompletion>, String>;
        let (near, far): (Wait<'b>, Wait<'b>) = (Self::wait_near, Self::wait_far);
        let (requester, receiver) = if far_requests { (far, near) } else { (near, far) };
        let requester = one(&requester(self, 1)?, TRANSFER, "requester")?;
        // A SEND that failed before it left its sender consumes no receive request, so no receiver's
        // completion is expected.
        let left = requester.is_none_or(|failure| !is_local(failure.syndrome));
        let receiver = receiver(self, usize::from(received && left))?;
        let received = received && !(requester.is_some() && receiver.is_empty());
        let receiver = if received { one(&receiver, RECEIVE, "receiver")? } else { None };
        Ok((requester, receiver))
    }
}

/// Connects two ends, and sets the board's posting method on both.
fn connect(board: &mut dyn Board, spec: EndSpec) -> (QpEnd, QpEnd) {
    let way = *board.way();
    let (mut near, mut far) = board.connect(spec);
    for end in [&mut near, &mut far] {
        end.set_way(way);
    }
    (near, far)
}

/// Returns whether a requester fails with this syndrome before the request reaches its peer.
fn is_local(syndrome: Syndrome) -> bool {
    matches!(syndrome, Syndrome::LOCAL_LENGTH | Syndrome::LOCAL_QP_OPERATION | Syndrome::LOCAL_PROTECTION)
}

/// Takes items from a source until there are `count`, or until `timeout` nanoseconds have passed on `clock`.
fn arrived<S, T>(
    source: &mut S,
    count: usize,
    timeout: u64,
    clock: impl Fn(&S) -> Option<u64>,
    take: impl Fn(&mut S) -> Result<Vec<T>, String>,
) -> Result<Vec<T>, String> {
    let begin = clock(source).unwrap_or(0);
    let mut found = Vec::new();
    loop {
        // The clock is read before the source, so that an item that arrives in time is found even if this
        // program is paused between the two.
        let passed = clock(source).map_or(u64::MAX, |now| now.saturating_sub(begin));
        found.extend(take(source)?);
        if found.len() >= count || passed >= timeout {
            return Ok(found);
        }
    }
}

/// Checks that there is exactly one completion, with this id. Returns its failure, or `None` after a success.
fn one(completions: &[WorkCompletion], id: u64, who: &str) -> Result<Option<Failure>, String> {
    match completions {
        [WorkCompletion { id: found, outcome, .. }] if *found == id => Ok(match outcome {
            Outcome::Failed(failure) => Some(*failure),
            _ => None,
        }),
        other => Err(format!("{who}: completions {other:?}")),
    }
}

/// Takes all completions of an end that have arrived, and adds the positions of mkeys with signature errors
/// to `signature_errors`.
fn poll(
    end: &mut QpEnd,
    mkeys: &mut [Mkey],
    signature_errors: &mut Vec<usize>,
) -> Result<Vec<WorkCompletion>, CompletionError> {
    let queues = end.queues();
    let mut done = Vec::new();
    while let Some(completion) = queues.poll(mkeys) {
        match completion? {
            Completion::Work(work) => done.push(work),
            Completion::SignatureError { position, .. } => signature_errors.push(position),
        }
    }
    Ok(done)
}

/// Makes a data segment. Posting refuses a segment that is too long.
fn sge(address: u64, length: usize, lkey: Key) -> Sge {
    Sge { address, length: u32::try_from(length).unwrap_or(u32::MAX), lkey }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_waited_for_and_no_longer_than_the_timeout() {
        // Simulates waiting: the clock counts how often it is read. The source has a new item at every third
        // read, from read number `first` on.
        let arrive = |first: u64, count, timeout| {
            let looks = core::cell::Cell::new(0);
            let clock = |_: &()| Some(looks.replace(looks.get() + 1));
            let take = |_: &mut ()| {
                let now = looks.get();
                Ok(if now >= first && now.is_multiple_of(3) { vec![now] } else { vec![] })
            };
            arrived(&mut (), count, timeout, clock, take)
        };
        assert_eq!(arrive(6, 2, 100), Ok(vec![6, 9]));
        assert_eq!(arrive(6, 2, 5), Ok(vec![6]), "the second is too late");
        assert_eq!(arrive(6, 1, 0), Ok(vec![]), "with a timeout of 0 there is one look");
        let looks = core::cell::Cell::new(0);
        let once = |_: &mut ()| Ok(vec![looks.replace(looks.get() + 1)]);
        assert_eq!(arrived(&mut (), 2, 100, |_| None, once), Ok(vec![0]), "without a clock, too");
    }
}
