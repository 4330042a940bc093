//! The data path between target and initiator: queue pairs on one completion queue, and the mkeys of their
//! commands.

use super::capsule::CAPSULE;
use super::{Broken, Lost, Outcome};
use mlx5_mkey::command::{Psn, UserIndex};
use mlx5_mkey::devx::{
    Buffer, ConnectOptions, CqReader, CqSpec, Device, Events, MkeySpec, Mkeys, ProtectionDomain, QpAddress,
    QueuePair, QueuePairSpec,
};
use mlx5_mkey::mkey::{Access, SignatureError};
use mlx5_mkey::queue::{Completion, Outcome as Fate, QpTable};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wqe::Sge;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most queue pairs of a connection.
pub(crate) const MAX_QUEUES: usize = 16;

/// The most commands that are in progress on a queue pair, and the number of its receive requests.
pub(crate) const MAX_DEPTH: usize = 128;

/// Blocks of a send queue. Requests that do not fit wait for completions.
const SEND_BLOCKS: usize = 2048;

/// The address of a queue pair, in the form that is sent to the other side.
pub(crate) type Address = [u8; QpAddress::BYTES];

/// The sizes of a [`Link`], the data path to the other side.
#[derive(Clone, Copy)]
pub(crate) struct LinkSpec {
    /// Number of queue pairs.
    pub(crate) queues: usize,
    /// The most commands that are in progress on a queue pair.
    pub(crate) depth: usize,
    /// Number of mkeys of a command.
    pub(crate) mkeys_per_command: usize,
    /// Whether the mkeys have crypto properties.
    pub(crate) crypto: bool,
    /// Index in the port's GID table.
    pub(crate) gid_index: u8,
}

impl LinkSpec {
    /// Returns the number of slots: the most commands that are in progress on all queue pairs. Each command
    /// occupies a slot.
    pub(crate) fn slots(&self) -> usize {
        self.queues * self.depth
    }
}

/// A completion that a link has taken from its completion queue, as target and initiator handle it.
pub(crate) enum Event {
    /// A message has arrived on this queue pair.
    Message { queue: usize, bytes: [u8; CAPSULE] },
    /// The send request with this id is complete.
    #[allow(dead_code, reason = "the initiator waits for responses, not for its commands to be sent")]
    Sent(u64),
    /// A request has failed, and its queue pair with it.
    Failed(String),
}

/// Queue pairs on one completion queue, and the mkeys of their commands.
pub(crate) struct Link {
    pub(crate) pd: ProtectionDomain,
    /// The mkeys, in the order of their slots: `mkeys_per_command` for each.
    pub(crate) mkeys: Mkeys,
    pub(crate) spec: LinkSpec,
    options: ConnectOptions,
    queues: QpTable<'static, QueuePair>,
    qpns: Vec<Qpn>,
    completions: CqReader,
    events: Events,
    inbox: Buffer,
    /// The completions that the last call of `take` has found.
    taken: Vec<Completion>,
}

impl Link {
    /// Creates all objects of the link. The queue pairs are not connected yet.
    pub(crate) fn new(device: &Device, pd: &ProtectionDomain, spec: LinkSpec) -> Outcome<Self> {
        let mkeys = spec.slots() * spec.mkeys_per_command;
        let entries =
            CqSpec::entries_for(spec.queues as u32, SEND_BLOCKS as u32, MAX_DEPTH as u32, mkeys as u32);
        let (cq, completions) = device.create_cq(entries)?;
        let events = device.events()?;
        cq.notify_error(&events, 0)?;
        let mut queues = QpTable::on_heap(spec.queues);
        let mut qpns = Vec::new();
        for _ in 0..spec.queues {
            // The user index is the position of the queue pair in the table. Completions carry it, so the
            // table finds their queue pair without a search.
            let user_index = UserIndex::new(queues.next_user_index())?;
            let of_queue = QueuePairSpec {
                send_blocks: SEND_BLOCKS as u32,
                receive_slots: MAX_DEPTH as u32,
                entries_per_slot: 1,
                user_index,
                ..QueuePairSpec::default()
            };
            let queue = device.create_qp(pd, &cq, &cq, of_queue)?;
            qpns.push(queue.qpn());
            queues.insert(queue).map_err(|(error, _)| error)?;
        }
        let of_mkeys =
            MkeySpec { max_entries: 4, signature: Some(&cq), crypto: spec.crypto, ..MkeySpec::default() };
        let mkeys = pd.create_mkeys(mkeys, of_mkeys)?;
        let inbox = pd.alloc_buffer(spec.queues * MAX_DEPTH * CAPSULE, Access::LOCAL_WRITE)?;
        let options = options(spec.gid_index)?;
        let pd = pd.clone();
        Ok(Self { pd, mkeys, spec, options, queues, qpns, completions, events, inbox, taken: Vec::new() })
    }

    /// Returns the addresses of the queue pairs, for the other side.
    pub(crate) fn addresses(&mut self) -> Outcome<Vec<Address>> {
        let options = self.options;
        self.queues.iter_mut().map(|queue| Ok(queue.control().address(&options)?.to_bytes())).collect()
    }

    /// Connects new or reset queue pairs to those of the other side.
    pub(crate) fn connect(&mut self, peers: &[Address]) -> Outcome {
        if peers.len() != self.qpns.len() {
            return Err(Lost(format!("{} queue pairs here, {} there", self.qpns.len(), peers.len())).into());
        }
        let options = self.options;
        for (index, peer) in peers.iter().enumerate() {
            let inbox: Vec<_> =
                (0..MAX_DEPTH).map(|slot| self.receive(index, slot)).collect::<Outcome<_>>()?;
            let queue = self.queue(index)?;
            for (id, sge) in inbox {
                queue.post_receive(id, &[sge])?;
            }
            queue.publish_receives();
            let peer = QpAddress::from_bytes(peer).map_err(|error| Lost(error.to_string()))?;
            queue.control().connect(&peer, &options)?;
        }
        Ok(())
    }

    /// Returns the id and the buffer of the receive request number `slot` of a queue pair.
    fn receive(&self, queue: usize, slot: usize) -> Outcome<(u64, Sge)> {
        let number = queue * MAX_DEPTH + slot;
        Ok((number as u64, self.inbox.sge(number * CAPSULE..(number + 1) * CAPSULE)?))
    }

    /// Returns a queue pair.
    pub(crate) fn queue(&mut self, index: usize) -> Outcome<&mut QueuePair> {
        Ok(self.queue_and_mkeys(index)?.0)
    }

    /// Returns a queue pair and the mkeys that its requests use.
    pub(crate) fn queue_and_mkeys(&mut self, index: usize) -> Outcome<(&mut QueuePair, &mut Mkeys)> {
        let qpn = self.qpns.get(index).ok_or("no such queue pair")?;
        Ok((self.queues.get_mut(*qpn).ok_or("no such queue pair")?, &mut self.mkeys))
    }

    /// Takes all completions and appends their events to `events`. If there is none, sleeps for `limit` at
    /// most.
    pub(crate) fn take(&mut self, limit: Duration, events: &mut Vec<Event>) -> Outcome {
        let mut router = self.queues.router(&mut self.mkeys);
        // This call sleeps in the kernel until the first completion, or for `limit`.
        let Some(first) = self.completions.wait(&mut router, Some(limit))? else { return Ok(()) };
        self.taken.clear();
        self.taken.push(first);
        while let Some(completion) = self.completions.poll(&mut router) {
            self.taken.push(completion?);
        }
        let mut received = [false; MAX_QUEUES];
        for index in 0..self.taken.len() {
            // A signature error needs no event: the router has recorded it in its mkey, and `check` returns
            // it when the data have arrived.
            let Some(Completion::Work(work)) = self.taken.get(index).copied() else { continue };
            match work.outcome {
                Fate::Sent { .. } => events.push(Event::Sent(work.id)),
                Fate::Received { .. } => {
                    let (queue, slot) = (work.id as usize / MAX_DEPTH, work.id as usize % MAX_DEPTH);
                    let mut bytes = [0; CAPSULE];
                    self.inbox.read(work.id as usize * CAPSULE, &mut bytes)?;
                    events.push(Event::Message { queue, bytes });
                    let (id, sge) = self.receive(queue, slot)?;
                    self.queue(queue)?.post_receive(id, &[sge])?;
                    received.iter_mut().skip(queue).take(1).for_each(|received| *received = true);
                }
                Fate::Failed(failure) => events.push(Event::Failed(failure.syndrome.to_string())),
            }
        }
        for (index, _) in received.iter().enumerate().filter(|(_, received)| **received) {
            self.queue(index)?.publish_receives();
        }
        Ok(())
    }

    /// Returns the first signature error of an mkey since the last call, if any.
    pub(crate) fn check(&mut self, mkey: usize) -> Outcome<Option<SignatureError>> {
        let mkey = self.mkeys.get_mut(mkey).ok_or("no such mkey")?;
        Ok(self.completions.check(mkey)?)
    }

    /// Checks that the device has reported no error of the completion queue, such as an overrun. After such
    /// an error, no more completions arrive.
    ///
    /// # Errors
    /// [`Broken`].
    pub(crate) fn look(&self) -> Outcome {
        let event = self.events.wait(Some(Duration::ZERO))?;
        event.map_or(Ok(()), |event| Err(Broken(event.kind.to_string()).into()))
    }

    /// Resets the queue pairs, so that they can be connected again. Returns the number of incomplete send
    /// requests.
    pub(crate) fn reset(&mut self) -> Outcome<usize> {
        let mut outstanding = 0;
        for queue in self.queues.iter_mut() {
            outstanding += queue.reset(&mut [&mut self.completions])?.sends.len();
        }
        // Signature errors that are still in the completion queue belong to commands that will be repeated.
        // Polling drops these errors.
        while self.completions.poll(&mut self.queues.router(&mut self.mkeys)).is_some() {}
        self.options = options(self.spec.gid_index)?;
        for mkey in self.mkeys.iter_mut() {
            // A configuration may be among the incomplete requests. Whether the device has executed it is
            // unknown.
            mkey.forget();
            // This drops a signature error of the mkey: the device will report it again when the data are
            // moved again.
            let _ = self.completions.check(mkey);
        }
        Ok(outstanding)
    }

    /// Gives the queue pairs up. This works even if the device is gone. Returns the number of incomplete send
    /// requests.
    pub(crate) fn give_up(mut self) -> usize {
        let queues = self.qpns.iter().filter_map(|qpn| self.queues.remove(*qpn));
        queues.map(|queue| queue.into_outstanding().sends.len()).sum()
    }
}

/// Returns options for the next connection. Its first packet number depends on the time, so that the device
/// does not take late packets of an earlier connection for new ones.
fn options(source_gid_index: u8) -> Outcome<ConnectOptions> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let first_psn = Psn::new(now.subsec_micros() & Psn::MAX.get())?;
    Ok(ConnectOptions { source_gid_index, first_psn, ..ConnectOptions::default() })
}
