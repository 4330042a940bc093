//! The life of a program, from the opening to the closing of its device: two queue pairs are connected to
//! each other, and the program uses all operations in random order.

use super::Dice;
use super::books::{Books, Tally};
use crate::{Outcome, PLAIN, plain, t10_dif, verbs};
use mlx5_mkey::command::UserIndex;
use mlx5_mkey::devx::{
    Buffer, Cq, CqReader, CqSpec, Device, DevxError, EventKind, Events, MkeySpec, Mkeys, ProtectionDomain,
    QueuePair, QueuePairSpec,
};
use mlx5_mkey::error::{CompletionError, PostError};
use mlx5_mkey::mkey::{Access, BlockSignature, KlmEntry, MkeyConfig, SignatureChange};
use mlx5_mkey::queue::{self, Completion, QpTable};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wqe::{Local, PreparedConfig, Remote, Sge};
use std::time::Duration;

/// Blocks of a send queue, and slots of a receive queue.
const BLOCKS: u32 = 32;
const SLOTS: u32 = 8;

/// Returns the specification of a queue pair with these sizes.
fn spec() -> QueuePairSpec {
    QueuePairSpec { send_blocks: BLOCKS, receive_slots: SLOTS, ..QueuePairSpec::default() }
}

/// The bit that marks the id of a receive request.
const RECEIVE: u64 = 1 << 63;

/// The most steps that a life takes.
const STEPS: u64 = 40;

/// The number of calls of `verbs::work` after which all work of the device is done and late completions are
/// written.
const LOOKS: usize = 32;

/// How often the end of a life tries to recover the queue pairs.
const TRIES: usize = 3;

pub(super) struct Life {
    books: [Books; 2],
    qpns: [Qpn; 2],
    queues: QpTable<'static, QueuePair>,
    next: u64,
    /// Whether each queue pair may have been reset although the reset was reported as failed. The device then
    /// flushes requests from the beginning of the ring on, while the library's queue has its outstanding
    /// requests at other positions.
    unsure: [bool; 2],
    // These objects may be dropped in any order.
    completions: CqReader,
    cq: Cq,
    mkeys: Mkeys,
    prepared: PreparedConfig,
    page: Buffer,
    events: Events,
    pd: ProtectionDomain,
    device: Device,
}

impl Life {
    /// Makes all objects of a life.
    pub(super) fn new(device: Device) -> Outcome<Self> {
        let pd = device.alloc_pd()?;
        let events = device.events()?;
        let (cq, mut completions) = device.create_cq(CqSpec::entries_for(2, BLOCKS, SLOTS, 2))?;
        completions.channel()?;
        cq.notify_error(&events, 1)?;
        let mut queues = QpTable::on_heap(2);
        let mut qpns = [Qpn::default(); 2];
        for qpn in &mut qpns {
            let user_index = UserIndex::new(queues.next_user_index())?;
            let spec = QueuePairSpec { user_index, entries_per_slot: 1, ..spec() };
            let queue = device.create_qp(&pd, &cq, &cq, spec)?;
            queue.control().notify(&events, &EventKind::QP_ERRORS, 2)?;
            *qpn = queue.qpn();
            assert!(queues.insert(queue).is_ok());
        }
        let page = pd.alloc_buffer(4096, Access::ALL)?;
        let spec = MkeySpec { max_entries: 4, signature: Some(&cq), ..MkeySpec::default() };
        let mkeys = pd.create_mkeys(2, spec)?;
        // The memory holds no T10-DIF, so that the device finds an error.
        let signature = SignatureChange::Set(BlockSignature::memory(t10_dif(1, 2)));
        let config = MkeyConfig { access: Some(Access::LOCAL_WRITE), signature, crypto: None };
        let prepared = PreparedConfig::new(mkeys[0].kind(), &config)?;
        let books = [Books::default(), Books::default()];
        let (next, unsure) = (0, [false; 2]);
        let mut life = Self {
            books,
            qpns,
            queues,
            next,
            unsure,
            completions,
            cq,
            mkeys,
            prepared,
            page,
            events,
            pd,
            device,
        };
        life.connect()?;
        Ok(life)
    }

    fn queue(&mut self, half: usize) -> &mut QueuePair {
        self.queues.get_mut(self.qpns[half]).unwrap()
    }

    fn connect(&mut self) -> Outcome {
        for half in 0..2 {
            let peer = self.qpns[1 - half];
            self.queue(half).control().connect_local(peer)?;
        }
        Ok(())
    }

    /// Takes random steps, and records their results in the model and in the tally.
    pub(super) fn live(&mut self, dice: &mut Dice, tally: &mut Tally) -> Result<(), String> {
        for _ in 0..1 + dice.below(STEPS) {
            let half = dice.below(2) as usize;
            match dice.below(16) {
                0..4 => self.post(half, dice, tally)?,
                4 => self.post_receives(half, dice, tally),
                5 | 6 => (0..1 + dice.below(4)).for_each(|_| verbs::work()),
                7..10 => self.poll(tally)?,
                10 => self.wait(dice, tally)?,
                11 => self.look(half, tally),
                12 => self.make(dice, tally)?,
                13 if dice.once_in(3) => count(self.queue(half).control().fail(), tally),
                14 if dice.once_in(2) => drop(self.recover(tally)?),
                _ => self.queue(half).ring_doorbell(),
            }
        }
        Ok(())
    }

    /// Posts requests of random kinds, with or without a doorbell.
    fn post(&mut self, half: usize, dice: &mut Dice, tally: &mut Tally) -> Result<(), String> {
        for _ in 0..1 + dice.below(4) {
            self.next += 1;
            let (id, signaled) = (self.next, !dice.once_in(3));
            let Self { books, qpns, queues, mkeys, prepared, page, .. } = self;
            let queue = queues.get_mut(qpns[half]).unwrap();
            let before = queue.outstanding();
            let request = queue.request(id);
            let request = if signaled { request.signaled() } else { request };
            let sge = page.sge(0..64).unwrap();
            let remote = Remote { address: page.address() + 2048, rkey: page.rkey() };
            let posted = match dice.below(8) {
                0 => request.nop(),
                1 => request.send(&[sge][..]),
                2 => request.rdma_read(remote, &[sge]),
                3 => request.fetch_add(remote, 1, Local { address: page.address() + 64, lkey: page.lkey() }),
                4 => {
                    let entry = KlmEntry { address: page.address(), length: 520, key: page.lkey() };
                    request.configure_mkey(&mut mkeys[half], prepared, &[entry])
                }
                5 => request.rdma_write(remote, &[Sge { address: 0, length: 512, lkey: mkeys[half].key() }]),
                6 if dice.once_in(4) => request.rdma_write(Remote { rkey: mkeys[0].key(), ..remote }, &[sge]),
                _ => request.rdma_write(remote, &[sge]),
            };
            match posted {
                Ok(()) => books[half].post(id, queue.outstanding() - before, signaled, tally),
                Err(PostError::SendRingFull { .. } | PostError::TooManyRequests { .. }) => {}
                Err(other) => return Err(format!("posting: {other}")),
            }
            self.compare()?;
        }
        if !dice.once_in(4) {
            self.queue(half).ring_doorbell();
        }
        Ok(())
    }

    fn post_receives(&mut self, half: usize, dice: &mut Dice, tally: &mut Tally) {
        for _ in 0..1 + dice.below(4) {
            self.next += 1;
            let (id, sge) = (RECEIVE | self.next, self.page.sge(1024..1536).unwrap());
            if self.queue(half).post_receive(id, &[sge]).is_ok() {
                self.books[half].post_receive(id, tally);
            }
        }
        self.queue(half).publish_receives();
    }

    /// Takes all available completions.
    fn poll(&mut self, tally: &mut Tally) -> Result<(), String> {
        while let Some(done) = self.completions.poll(&mut self.queues.router(&mut self.mkeys)) {
            self.take(done, tally)?;
        }
        Ok(())
    }

    /// Arms the completion queue or waits without delay, and takes the completions that are found.
    fn wait(&mut self, dice: &mut Dice, tally: &mut Tally) -> Result<(), String> {
        for _ in 0..1 + dice.below(3) {
            let mut router = self.queues.router(&mut self.mkeys);
            let done = if dice.once_in(2) {
                self.completions.poll_or_arm(&mut router)
            } else {
                self.completions.wait(&mut router, Some(Duration::ZERO))
            };
            match done {
                Ok(Some(done)) => self.take(Ok(done), tally)?,
                Ok(None) => verbs::work(),
                Err(DevxError::Completion(error)) => self.take(Err(error), tally)?,
                Err(_) => tally.refused += 1,
            }
            count(self.events.wait(Some(Duration::ZERO)), tally);
        }
        Ok(())
    }

    /// Records the result of a poll in the model and in the tally.
    fn take(&mut self, done: Result<Completion, CompletionError>, tally: &mut Tally) -> Result<(), String> {
        let work = match done {
            Ok(Completion::Work(work)) => work,
            Ok(Completion::SignatureError { position, .. }) => {
                tally.signature_errors += 1;
                return match self.mkeys[position].take_error() {
                    Ok(Some(_)) => Ok(()),
                    other => Err(format!("mkey {position} was told of: {other:?}")),
                };
            }
            Err(error) => {
                tally.strange += 1;
                let is_unsure = |qpn| self.qpns.iter().zip(self.unsure).any(|(of, is)| is && of.get() == qpn);
                let is_expected = match error {
                    CompletionError::UnknownRequest { qpn, .. } if is_unsure(qpn) => true,
                    // Faults may have delayed or falsified completions. A queue pair whose destruction a
                    // fault has refused (`end@`) still completes requests.
                    _ => is_lossy() || verbs::trace().contains("end@"),
                };
                return if is_expected { Ok(()) } else { Err(format!("{error}, and no fault")) };
            }
        };
        let half = self.qpns.iter().position(|qpn| *qpn == work.qpn).ok_or("no such queue pair")?;
        let left = self.queue(half).outstanding();
        let failed = matches!(work.outcome, queue::Outcome::Failed(_));
        let (books, is_receive) = (&mut self.books[half], work.id & RECEIVE != 0);
        let told = match work.outcome {
            queue::Outcome::Sent { .. } if is_receive => Err(format!("{work:?}")),
            queue::Outcome::Received { .. } if !is_receive => Err(format!("{work:?}")),
            _ if is_receive => books.receive(work.id, failed, is_lossy(), tally),
            _ => books.send(work.id, failed, left, is_lossy(), tally),
        };
        told.and_then(|()| self.compare())
    }

    /// Compares the numbers of outstanding requests in the queues with the model.
    fn compare(&mut self) -> Result<(), String> {
        for half in 0..2 {
            let (found, known) = (self.queue(half).outstanding(), self.books[half].outstanding());
            if found != known {
                return Err(format!("queue pair {half}: {found} outstanding, not {known}"));
            }
        }
        Ok(())
    }

    /// Queries a queue pair and the device.
    fn look(&mut self, half: usize, tally: &mut Tally) {
        count(self.queue(half).control().query(), tally);
        count(self.device.gid(1, 0), tally);
    }

    /// Makes an object of a random kind, and drops it at once.
    fn make(&mut self, dice: &mut Dice, tally: &mut Tally) -> Result<(), String> {
        match dice.below(5) {
            0 => count(self.pd.alloc_buffer(100, Access::LOCAL_WRITE), tally),
            1 => {
                let signature = Some(&self.cq);
                let spec = MkeySpec { max_entries: 4, signature, crypto: true, ..MkeySpec::default() };
                count(self.pd.create_mkey(spec), tally);
            }
            2 => match self.pd.create_dek(plain(&PLAIN), [0; 8]) {
                Ok(dek) => count(dek.destroy(), tally),
                Err(_) => tally.refused += 1,
            },
            3 => count(self.device.create_cq(16), tally),
            _ => {
                let made = self.device.create_qp(&self.pd, &self.cq, &self.cq, spec());
                match made {
                    Ok(queue) => self.short_life(queue, tally)?,
                    Err(_) => tally.refused += 1,
                }
            }
        }
        Ok(())
    }

    /// Posts requests on a new queue pair, drops the queue pair, and compares the requests that it hands
    /// back.
    fn short_life(&mut self, mut queue: QueuePair, tally: &mut Tally) -> Result<(), String> {
        let mut books = Books::default();
        count(queue.control().connect_loopback(), tally);
        for _ in 0..3 {
            self.next += 1;
            queue.request(self.next).signaled().nop().map_err(|error| error.to_string())?;
            books.post(self.next, 1, true, tally);
        }
        queue.ring_doorbell();
        verbs::work();
        books.hand_back(&queue.into_outstanding(), tally)
    }

    /// Resets both queue pairs and connects them anew. Returns whether this succeeded.
    fn recover(&mut self, tally: &mut Tally) -> Result<bool, String> {
        for half in 0..2 {
            let Self { qpns, queues, completions, books, unsure, .. } = self;
            let queue = queues.get_mut(qpns[half]).unwrap();
            match queue.reset(&mut [completions]) {
                Ok(outstanding) => {
                    unsure[half] = false;
                    books[half].hand_back(&outstanding, tally)?;
                }
                Err(_) => {
                    tally.refused += 1;
                    let is_empty = queue.outstanding() == 0 && queue.free_slots() == SLOTS;
                    unsure[half] = !is_empty;
                    books[half].reset_failed(is_empty);
                    return Ok(false);
                }
            }
        }
        // Only signature errors and malformed entries remain in the completion queue.
        self.poll(tally)?;
        for mkey in self.mkeys.iter_mut() {
            mkey.forget();
            let _ = mkey.take_error();
        }
        self.compare()?;
        let connected = self.connect();
        tally.refused += u64::from(connected.is_err());
        Ok(connected.is_ok())
    }

    /// Returns whether a request of each queue pair completes.
    pub(super) fn works(&mut self, tally: &mut Tally) -> Result<bool, String> {
        let before = tally.completed;
        for half in 0..2 {
            self.next += 1;
            let id = self.next;
            if self.queue(half).request(id).signaled().nop().is_err() {
                return Ok(false);
            }
            self.books[half].post(id, 1, true, tally);
            self.queue(half).ring_doorbell();
        }
        for _ in 0..LOOKS {
            verbs::work();
            self.poll(tally)?;
            if tally.completed == before + 2 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends a life. Returns whether the life could have continued: the queue pairs recover, and their
    /// requests complete.
    pub(super) fn end(mut self, tally: &mut Tally) -> Result<bool, String> {
        (0..LOOKS).for_each(|_| verbs::work());
        self.poll(tally)?;
        let mut went_on = false;
        for _ in 0..TRIES {
            went_on = self.recover(tally)? && self.works(tally)?;
            if went_on {
                break;
            }
        }
        let Self { books, qpns, mut queues, .. } = self;
        for (qpn, mut books) in qpns.into_iter().zip(books) {
            let queue = queues.remove(qpn).unwrap();
            books.hand_back(&queue.into_outstanding(), tally)?;
            if !books.is_empty() {
                return Err("something was never told of".into());
            }
        }
        if tally.told() != tally.posted {
            return Err(format!("{} were posted, {} told of", tally.posted, tally.told()));
        }
        Ok(went_on)
    }
}

/// Returns whether a fault has lost, delayed or falsified a completion.
fn is_lossy() -> bool {
    ["completion@", "signature@"].iter().any(|place| verbs::trace().contains(place))
}

/// Counts a refused call.
fn count<T, E>(outcome: Result<T, E>, tally: &mut Tally) {
    tally.refused += u64::from(outcome.is_err());
}
