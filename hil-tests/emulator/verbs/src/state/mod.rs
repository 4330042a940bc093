//! The state of the stand-in in this process: the devices, each with its open contexts, its channels and its
//! connections to other processes (the fabric). One lock protects all of them.

pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod connection;
pub(crate) mod counting;
pub(crate) mod devices;
pub(crate) mod doorbell_page;
mod doorbells;
mod ending;
pub(crate) mod events;
pub(crate) mod identifier;
mod messages;
mod news;
mod notify;
pub(crate) mod object;
#[cfg_attr(feature = "fuzz", allow(dead_code))]
pub(crate) mod pages;
pub(crate) mod port;
mod record;

use crate::fabric::Fabric;
use crate::fabric::connection::Notice;
use crate::ground::errno::Errno;
use crate::ground::fault;
use crate::ground::notice;
use crate::ground::port::Port;
use crate::ground::process_memory::ProcessMemory;
use crate::ground::settings::Settings;
use crate::state::channel::{Channel, Kind};
use crate::state::clock::ClockPages;
use crate::state::counting::Counting;
use crate::state::events::{Subject, Subscriptions};
use crate::state::identifier::Book;
use crate::state::news::News;
use crate::state::object::{Common, Context, Devx, Object};
use crate::state::record::Record;
use doorbells::{Doorbells, Rung};
use mlx5_peers::Waiting;
use mlx5_softdev::factory;
use mlx5_softdev::{CryptoMode, Device, DeviceProfile, Error, Numbered, Peer, QpState};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two retries of requests for which the receiver was not ready.
const NOT_READY_PERIOD: Duration = Duration::from_millis(1);

/// The number of receives that a thread posts without a look of the device. The device reads the count of
/// receives when a message needs one, so a look matters only to a message that already waits for a receive.
const RECEIVES: u32 = 7;

/// The number of past completions that the device keeps for tests (`mlx5_uverbs_completions`).
const KEPT: usize = 16;

/// The arm word of a completion queue that was never armed. No program writes this word.
pub(crate) const NEVER_ARMED: [u8; 4] = [0xff; 4];

/// A device of this process and everything that belongs to it.
#[derive(Debug)]
pub(crate) struct State {
    /// Whether the kernel has write-combining pages for doorbells.
    pub(crate) write_combining: bool,
    /// Whether the device executes work requests.
    executes: bool,
    pub(crate) device: Device<ProcessMemory>,
    /// For each of the program's descriptors, its context or channel. Several descriptors may belong to one
    /// context or channel, which lives until the last of them is closed.
    files: BTreeMap<RawFd, File>,
    /// Contexts by their numbers.
    pub(crate) contexts: BTreeMap<u32, Context>,
    /// The numbers of the device's credential and key encryption keys, if the device imports wrapped keys.
    pub(crate) factory: Option<factory::Numbers>,
    clock: Arc<Mutex<ClockPages>>,
    /// The number of the device: 0 for `mlx5_0`.
    index: usize,
    /// The device's port.
    pub(crate) port: Port,
    /// The ports of all devices of this process.
    pub(crate) ports: Vec<Port>,
    /// The ports of all devices without the effects of incidents.
    real_ports: Vec<Port>,
    /// The number of changes by incidents that `ports` takes into account ([`fault::has_port_changed`]).
    port_changes: u32,
    /// The subscription to the kernel's notifications of changed interfaces, if the kernel sends any.
    news: Option<News>,
    fabric: Fabric,
    channels: BTreeMap<u32, Channel>,
    next_file: u32,
    /// The `rdma_cm_id`s of connection management.
    pub(crate) book: Book,
    /// Messages of connection management from this process to itself.
    own_notices: VecDeque<Notice>,
    /// Subscriptions to events of queues that commands made.
    pub(crate) subscriptions: Subscriptions,
    /// Messages that are not delivered yet, each with the time of its arrival.
    waiting: Waiting,
    doorbells: Doorbells,
    /// Whether queues have changed. The next call of [`State::work`] then collects `doorbells` anew, and
    /// looks for work without a doorbell.
    changed: bool,
    last_period: Instant,
    /// Whether the last call of [`State::work`] skipped the messages of peers, because doorbell records had
    /// changed.
    peers_wait: bool,
    releases_without_work: u32,
    /// Whether a completion queue was ever armed.
    armed: bool,
    /// Number of refused destructions of objects.
    pub(crate) refused: u64,
    record: Record,
    counting: Counting,
}

/// The numbers of contexts, objects and channels in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) contexts: u64,
    pub(crate) objects: u64,
    pub(crate) channels: u64,
    /// Number of refused destructions so far.
    pub(crate) refused: u64,
}

/// The clock that the device's timers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Timers follow the system's clock.
    Clock,
    /// Each call of [`State::work`] counts as one timer period, for tests that run the device step by step.
    Step,
}

/// The context or channel that a descriptor belongs to, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Context(u32),
    Channel(u32),
}

impl State {
    /// Makes the device with the number `index`, and joins the fabric.
    ///
    /// # Errors
    /// [`Errno::IO`] if a log file cannot be opened or the fabric cannot be joined, after a line on standard
    /// error; [`Errno::NOMEM`] if there is no memory for the clock.
    pub(crate) fn new(settings: &Settings, index: usize) -> Result<Self, Errno> {
        let port = settings.ports.get(index).cloned().ok_or(Errno::NOENT)?;
        let profile = DeviceProfile { port_gid: port.default_gid(), ..settings.profile };
        let mut device = Device::new(ProcessMemory, profile);
        device.keep_completions(KEPT);
        let clock = Arc::new(Mutex::new(ClockPages::new()?));
        let stamps = clock.clone();
        device.set_clock(move || stamps.lock().unwrap_or_else(PoisonError::into_inner).ticks());
        let fabric = Fabric::join(&settings.directory).map_err(|why| {
            notice::once(&why);
            Errno::IO
        })?;
        let (first, last) = fabric.qpns();
        device.set_numbers(Numbered::Qp, first, last)?;
        let counting = Counting::new(settings, &port, index, fabric.slot());
        let record = Record::new(settings, &mut device, counting.tally())?;
        device.set_gate(|_, entry| fault::completion(entry));
        device.set_arbiter(fault::request);
        let factory = match settings.profile.crypto {
            CryptoMode::Wrapped => Some(factory::commission(&mut device)?),
            _ => None,
        };
        let mut state = Self {
            write_combining: settings.write_combining,
            executes: settings.executes,
            device,
            files: BTreeMap::new(),
            contexts: BTreeMap::new(),
            factory,
            clock,
            index,
            port,
            ports: settings.ports.clone(),
            real_ports: settings.ports.clone(),
            port_changes: 0,
            news: News::new(settings.view.as_ref()),
            fabric,
            channels: BTreeMap::new(),
            next_file: 1,
            book: Book::default(),
            own_notices: VecDeque::new(),
            subscriptions: Subscriptions::default(),
            waiting: Waiting::default(),
            doorbells: Doorbells::default(),
            changed: true,
            last_period: Instant::now(),
            peers_wait: false,
            releases_without_work: 0,
            armed: false,
            refused: 0,
            record,
            counting,
        };
        state.announce();
        Ok(state)
    }

    /// Records that a program has opened the device on `descriptor`, and makes a context for it.
    pub(crate) fn open(&mut self, descriptor: RawFd) {
        let number = self.number();
        self.contexts.insert(number, Context::default());
        self.place(descriptor, File::Context(number));
    }

    /// Records that a program has duplicated the descriptor `old` as `new`.
    pub(crate) fn duplicate(&mut self, old: RawFd, new: RawFd) {
        match self.files.get(&old) {
            Some(file) => self.place(new, *file),
            None => self.close(new),
        }
    }

    /// Records that a program has closed a descriptor. A context or channel is released when its last
    /// descriptor is closed. Descriptors of other files are ignored.
    pub(crate) fn close(&mut self, descriptor: RawFd) {
        let Some(file) = self.files.remove(&descriptor) else { return };
        if self.files.values().any(|other| *other == file) {
            return;
        }
        match file {
            File::Context(number) => self.close_context(number),
            File::Channel(number) => {
                self.channels.remove(&number);
                self.subscriptions.forget_channel(number);
            }
        }
    }

    fn close_context(&mut self, number: u32) {
        let Some(mut context) = self.contexts.remove(&number) else { return };
        for object in context.drain() {
            // All objects end with their context, even if the device refuses to destroy them.
            let _ = self.destroy(object);
        }
        self.changed = true;
        self.end_channels(number);
    }

    pub(crate) fn end_channels(&mut self, context: u32) {
        for channel in self.channels.values_mut().filter(|channel| channel.is_of(context)) {
            channel.end();
        }
    }

    /// Hands an event to a channel, if the channel exists.
    pub(crate) fn push(&mut self, channel: Option<u32>, event: &[u8]) {
        if let Some(channel) = channel.and_then(|number| self.channels.get_mut(&number)) {
            channel.push(event);
        }
    }

    /// Assigns a descriptor to a context or channel.
    fn place(&mut self, descriptor: RawFd, file: File) {
        if self.files.get(&descriptor) == Some(&file) {
            return;
        }
        // The descriptor may still be assigned to an old context or channel, if this library did not see that
        // the program closed it.
        self.close(descriptor);
        self.files.insert(descriptor, file);
    }

    fn number(&mut self) -> u32 {
        let number = self.next_file;
        self.next_file = number.wrapping_add(1);
        number
    }

    /// Returns the number of the context that a descriptor belongs to.
    pub(crate) fn context_of(&self, descriptor: RawFd) -> Option<u32> {
        let File::Context(number) = self.files.get(&descriptor)? else { return None };
        Some(*number)
    }

    /// Returns the descriptors of all contexts.
    pub(crate) fn context_descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.files
            .iter()
            .filter(|(_, file)| matches!(file, File::Context(_)))
            .map(|(descriptor, _)| *descriptor)
    }

    /// Makes a channel of a context and returns its number and the program's descriptor.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] if no descriptor is left.
    pub(crate) fn open_channel(&mut self, kind: Kind, context: u32) -> Result<(u32, OwnedFd), Errno> {
        let (channel, descriptor) = Channel::new(kind, context).map_err(|_| Errno::NOMEM)?;
        let number = self.number();
        self.channels.insert(number, channel);
        self.place(descriptor.as_raw_fd(), File::Channel(number));
        Ok((number, descriptor))
    }

    /// Returns the channel that a descriptor belongs to, and the channel's number.
    pub(crate) fn channel_of(&self, descriptor: RawFd) -> Option<(u32, &Channel)> {
        let File::Channel(number) = self.files.get(&descriptor)? else { return None };
        Some((*number, self.channels.get(number)?))
    }

    pub(crate) fn channel(&mut self, number: u32) -> Option<&mut Channel> {
        self.channels.get_mut(&number)
    }

    /// Takes an object's unread events back from a channel. Returns how many of the object's `sent` events
    /// the program has read.
    pub(crate) fn read_events(&mut self, channel: Option<u32>, sent: u32, user_handle: Option<u64>) -> u32 {
        let Some(user_handle) = user_handle else { return 0 };
        let element = user_handle.to_ne_bytes();
        let channel = channel.and_then(|number| self.channels.get_mut(&number));
        let unread = channel.map_or(0, |channel| channel.retract(|event| event.starts_with(&element)));
        sent.saturating_sub(unread)
    }

    /// Takes a queue's unread asynchronous events back. Returns how many of them the program has read.
    pub(crate) fn read_async_events(&mut self, queue: &Common) -> u32 {
        self.read_events(queue.async_channel, queue.async_events, queue.user_handle)
    }

    /// Returns the numbers of contexts, objects and channels.
    pub(crate) fn counts(&self) -> Counts {
        let objects = self.contexts.values().map(Context::count).sum();
        let [contexts, objects, channels] =
            [self.contexts.len(), objects, self.channels.len()].map(|count| count as u64);
        Counts { contexts, objects, channels, refused: self.refused }
    }

    /// Moves a queue pair to another state.
    ///
    /// # Errors
    /// The errors of [`Device::modify`].
    pub(crate) fn modify(&mut self, number: u32, state: QpState) -> Result<(), Error> {
        self.device.modify(number, state)?;
        if state == QpState::Reset {
            // Messages that arrived before the reset are void.
            self.waiting.retain(|message| message.to() != number);
        }
        Ok(())
    }

    /// Returns whether the worker has work: queues have changed, or events wait for room in a channel.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed || self.channels.values().any(Channel::is_behind)
    }

    /// Records that queues have changed, so that the next call of [`State::work`] looks for work.
    pub(crate) fn touch(&mut self) {
        self.changed = true;
    }

    /// Returns queue pair `number` as the peer of a connection: a queue pair of this process, or of another
    /// process.
    pub(crate) fn peer(&self, number: u32) -> Peer {
        if self.fabric.is_local(number) { Peer::Local(number) } else { Peer::Remote(number) }
    }

    /// Destroys an object in the device.
    ///
    /// # Errors
    /// [`Errno::BUSY`] while another object uses the object.
    pub(crate) fn destroy(&mut self, object: Object) -> Result<(), Errno> {
        let subject = object.subject();
        self.changed |= subject.is_some();
        let device = &mut self.device;
        match object {
            Object::Pd(number) => device.dealloc_pd(number)?,
            Object::Mr(mr) => device.destroy_mkey(mr.key.index())?,
            Object::Window(index) | Object::Devx(Devx::Mkey(index) | Devx::Region { index, .. }) => {
                device.destroy_mkey(index)?
            }
            Object::Cq(cq) => device.destroy_cq(cq.number)?,
            Object::Srq(srq) => device.destroy_srq(srq.number)?,
            Object::Qp(qp) => device.destroy_qp(qp.number)?,
            Object::AddressHandle | Object::Uar(_) | Object::Umem(_) => {}
            Object::Devx(Devx::Psvs(numbers)) => {
                for number in numbers {
                    device.destroy_psv(number)?;
                }
            }
            Object::Devx(Devx::Dek { number, .. }) => device.destroy_dek(number)?,
            Object::Devx(Devx::Login(number)) => device.logout(number)?,
        }
        if let Some(subject) = subject {
            self.subscriptions.forget(subject);
        }
        Ok(())
    }

    /// Returns whether the device is idle: no doorbell record to watch, no waiting or unsent message, no
    /// changed queue, no event without room, no waiting `rdma_cm_id`, no unwritten count.
    pub(crate) fn is_quiet(&self) -> bool {
        self.doorbells.is_empty()
            && self.waiting.is_empty()
            && !self.fabric.is_behind()
            && !self.has_changed()
            && !self.book.waits()
            && self.own_notices.is_empty()
            && !self.counting.is_behind()
    }

    /// Returns whether the program has ever armed a completion queue. A program that has armed one sleeps at
    /// times, and does not only poll.
    pub(crate) const fn waits_for_events(&self) -> bool {
        self.armed
    }

    /// Returns whether the device waits for several answers of other processes, and has written all its own
    /// messages to them.
    pub(crate) fn awaits_answers(&self) -> bool {
        self.fabric.awaits_answers()
    }

    /// Returns how many releases of a spin lock need no work, if the last call of [`State::work`] was made at
    /// a release of the same lock.
    pub(crate) const fn releases_without_work(&self) -> u32 {
        self.releases_without_work
    }

    /// Asks the peers to wake this process when they send, and returns the descriptors to sleep on. One of
    /// them becomes readable when there is work other than doorbells.
    pub(crate) fn prepare_sleep(&self) -> Vec<RawFd> {
        let fabric = self.fabric.prepare_sleep().map(|descriptor| descriptor.as_raw_fd());
        fabric.chain(self.news.as_ref().map(News::descriptor)).collect()
    }

    /// Does all outstanding work: doorbells, messages, timers, events. With `releases`, also writes the
    /// completions that the plan of faults holds back. Returns whether there was any work.
    pub(crate) fn work(&mut self, pace: Pace, releases: bool) -> bool {
        let now = self.clock.lock().unwrap_or_else(PoisonError::into_inner).ticks();
        self.follow_port(now);
        let mut moved = std::mem::take(&mut self.changed);
        if releases {
            self.device.release();
            moved = true;
        }
        if moved {
            self.watch();
        }
        let rung = self.doorbells.look();
        moved |= !rung.is_empty();
        // A call that finds no changed doorbell records takes the messages of peers. Of successive calls that
        // find changed records, every second call takes the messages too, so that busy doorbells do not hold
        // up peers.
        self.peers_wait = !rung.is_empty() && !self.peers_wait;
        let delivered = !self.peers_wait && self.receive();
        moved |= delivered;
        self.releases_without_work = if !rung.iter().all(|one| one.only_receives) {
            0
        } else if delivered {
            // The thread polls once more, to take the completions of these messages. A device with several
            // requests under way may send and receive more by then.
            u32::from(!self.fabric.is_behind() && !self.fabric.awaits_answers())
        } else if rung.is_empty() {
            0
        } else {
            RECEIVES
        };
        for Rung { queue, sent, .. } in rung {
            if let Subject::Qp(number) = queue
                && self.executes
            {
                let _ = self.device.doorbell_at(number, sent);
            }
        }
        if self.device.is_waiting() && (pace == Pace::Step || self.last_period.elapsed() >= NOT_READY_PERIOD)
        {
            self.last_period = Instant::now();
            self.device.run();
            moved = true;
        }
        moved |= self.manage_connections();
        moved |= self.transmit();
        self.report();
        if moved {
            self.notify();
        }
        for channel in self.channels.values_mut() {
            channel.flush();
        }
        self.counting.write_when_due(now);
        moved
    }

    /// Sends the remaining messages to peers before the process ends.
    pub(crate) fn finish(&mut self, deadline: Instant) {
        self.work(Pace::Clock, false);
        while self.fabric.is_behind() && Instant::now() < deadline {
            self.work(Pace::Clock, false);
            std::thread::yield_now();
        }
        self.counting.write();
    }

    /// Collects the doorbell records that can cause work, and watches them.
    fn watch(&mut self) {
        self.record.queues(self.contexts.values());
        let device = &self.device;
        let moves = |number| {
            let state = device.query(number).map(|view| view.state);
            !matches!(state, Ok(QpState::Reset | QpState::Init))
        };
        let queues = self.contexts.values().flat_map(Context::queues).filter(|object| match object {
            Object::Qp(qp) if moves(qp.number) => true,
            Object::Qp(qp) => {
                // A queue pair begins anew, and no doorbell from before counts.
                qp.alone.iter().for_each(|page| page.clear());
                false
            }
            Object::Cq(cq) => cq.channel.is_some() || self.subscriptions.want_completions(cq.number),
            _ => false,
        });
        self.doorbells.watch(queues);
    }
}
