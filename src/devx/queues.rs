//! Completion queues and queue pairs: rings in memory of the shim's, handed to the library's own queue types.

#![allow(unsafe_code)]

use super::{Device, DevxError, ProtectionDomain, carry, sys};
use crate::command::{
    AckTimeout, CqSize, CreateCq, CreateQp, GeneralCapabilities, Init2Init, Init2Rtr, LogMaxRdAtomic,
    LogMessage, LogPageSize, Path, PathMtu, Psn, QpAccess, QpChange, QpInfo, QpToError, QpToReset, QueryQp,
    ReceiveRing, Retries, RnrTimer, Rst2Init, Rtr2Rts, SendRingSize, SlotCount, SlotStride, Sqd2Rts,
    TimestampFormat, UarPage, UserIndex,
};
use crate::error::{CompletionError, PostError};
use crate::queue::{
    Batch, Completion, CompletionQueue, CompletionRouter, QpQueues, ReceiveQueue, ReceiveQueueConfig,
    Retired, SendQueue, SendQueueConfig, SendRequest, UarDoorbell,
};
use crate::types::{Cqn, Qpn};
use crate::wire::cqe::Cqe;
use crate::wire::data::DataSegment;
use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES, Wqebb};
use crate::wqe::Sge;
use std::sync::Arc;

/// Bytes between a ring and the doorbell record behind it, so that they do not share a cache line.
const RECORD_BYTES: usize = 64;

/// A completion queue on the device.
#[derive(Clone)]
pub struct Cq(Arc<CqObject>);

struct CqObject {
    number: Cqn,
    // Destroyed in this order: the object uses memory and page.
    object: sys::Object,
    _memory: sys::Dma,
    _uar: Arc<sys::Uar>,
}

/// The reading end of a completion queue. It keeps the queue alive.
pub struct CqReader {
    queue: CompletionQueue<'static>,
    _object: Arc<CqObject>,
}

impl Device {
    /// Makes a completion queue of `entries` entries, a power of two, and its reading end.
    ///
    /// # Errors
    /// [`DevxError::Queue`] for another number, [`DevxError::Call`], [`DevxError::Command`].
    pub fn create_cq(&self, entries: u32) -> Result<(Cq, CqReader), DevxError> {
        let size = CqSize::new(entries)?;
        let uar = sys::Uar::alloc(&self.context)?;
        let ring_bytes = entries as usize * size_of::<Cqe>();
        let memory = sys::Dma::alloc(&self.context, ring_bytes + RECORD_BYTES)?;
        // SAFETY: the reader owns the object that owns the memory, and these are handed out once.
        let (ring, record) =
            unsafe { (memory.slots(0, entries as usize, Cqe::UNWRITTEN)?, memory.record(ring_bytes)?) };
        let command = CreateCq {
            size,
            uar: UarPage::new(uar.page())?,
            event_queue: self.context.event_queue(0)?,
            entries: memory.at(0),
            doorbell: memory.at(ring_bytes),
            page_size: LogPageSize::P4K,
            ignore_overrun: false,
        };
        let (object, number) =
            carry(&command, |request, reply| sys::Object::create(&self.context, request, reply))?;
        let object = Arc::new(CqObject { number, object, _memory: memory, _uar: uar });
        let queue = CompletionQueue::new(ring, record)?;
        Ok((Cq(object.clone()), CqReader { queue, _object: object }))
    }
}

impl Cq {
    /// Returns what the kernel knows the queue by.
    pub(super) fn object(&self) -> &sys::Object {
        &self.0.object
    }
}

impl CqReader {
    /// Returns the next completion; see [`CompletionQueue::poll`]. A [`QueuePair`] is what a router finds:
    /// `QpRouter { queues: &mut queue_pair, mkeys }` for one, a [`crate::queue::QpTable`] for many.
    ///
    /// # Errors
    /// [`CompletionError`].
    #[inline]
    pub fn poll(
        &mut self,
        router: &mut impl CompletionRouter,
    ) -> Option<Result<Completion, CompletionError>> {
        self.queue.poll(router)
    }

    /// Hands up to `max` completions to `each`; see [`CompletionQueue::poll_batch`].
    #[inline]
    pub fn poll_batch(
        &mut self,
        max: usize,
        router: &mut impl CompletionRouter,
        each: impl FnMut(Result<Completion, CompletionError>),
    ) -> usize {
        self.queue.poll_batch(max, router, each)
    }

    /// Takes the next entry as it is, for [`crate::inspect`], and gives its slot back to the device.
    pub fn take_entry(&mut self) -> Option<Cqe> {
        let entry = self.queue.take_entry()?;
        self.queue.release();
        Some(entry)
    }

    /// Gives the queue to the rest of the program's life: it is never destroyed.
    pub fn leak(self) -> CompletionQueue<'static> {
        core::mem::forget(self._object);
        self.queue
    }
}

/// What a queue pair is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueuePairSpec {
    /// Buffers of a receive request, a power of two.
    pub entries_per_slot: u32,
    /// Every request is signalled.
    pub signal_all: bool,
    /// A signature error stops the send queue.
    pub drain_on_signature_error: bool,
    /// What completions carry: [`crate::queue::QpTable::next_user_index`] for a queue pair of a table.
    pub user_index: UserIndex,
    /// Port of the device, from 1.
    pub port: u8,
    /// What the peer may do through the queue pair.
    pub access: QpAccess,
}

impl Default for QueuePairSpec {
    fn default() -> Self {
        Self {
            entries_per_slot: 4,
            signal_all: false,
            drain_on_signature_error: false,
            user_index: UserIndex::default(),
            port: 1,
            access: QpAccess { remote_atomic: true, ..QpAccess::READ_WRITE },
        }
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Connection {
    /// The peer's queue pair.
    pub peer: Qpn,
    /// Where it is.
    pub path: Path,
    /// Number of the first packet in both directions.
    pub first_psn: Psn,
    /// Largest packet.
    pub mtu: PathMtu,
}

/// A reliable queue pair on the device, with a send queue of `S` blocks and a receive queue of `R` slots.
pub struct QueuePair<const S: usize, const R: usize> {
    // The queues hold pointers into the memory: they must not be moved out, so nothing hands out a reference to them.
    send: SendQueue<'static, UarDoorbell, S>,
    receive: ReceiveQueue<'static, R>,
    // Destroyed in this order: the object uses memory, page, queues and domain.
    control: QpControl,
    resources: Resources,
}

/// The state of a queue pair on the device, apart from its queues. The queue pair is destroyed with it.
pub struct QpControl {
    qpn: Qpn,
    spec: QueuePairSpec,
    device: GeneralCapabilities,
    object: sys::Object,
}

struct Resources {
    _memory: sys::Dma,
    _uar: Arc<sys::Uar>,
    _cqs: [Cq; 2],
    _pd: ProtectionDomain,
}

/// A queue pair whose memory lives as long as the program.
pub struct LeakedQueues<const S: usize, const R: usize> {
    /// Its state on the device.
    pub control: QpControl,
    /// Send queue.
    pub send: SendQueue<'static, UarDoorbell, S>,
    /// Receive queue.
    pub receive: ReceiveQueue<'static, R>,
}

impl Device {
    /// Makes a queue pair, in the state INIT.
    ///
    /// # Errors
    /// [`DevxError::Queue`] unless `S` and `R` are powers of two, [`DevxError::Call`], [`DevxError::Command`], also for
    /// draining where the device has none.
    pub fn create_qp<const S: usize, const R: usize>(
        &self,
        pd: &ProtectionDomain,
        send_cq: &Cq,
        receive_cq: &Cq,
        spec: QueuePairSpec,
    ) -> Result<QueuePair<S, R>, DevxError> {
        let stride = (spec.entries_per_slot as usize).saturating_mul(OCTOWORD_BYTES);
        let send_ring = SendRingSize::new(u32::try_from(S).unwrap_or(0))?;
        let slots = SlotCount::new(u32::try_from(R).unwrap_or(0))?;
        let receive_ring =
            ReceiveRing { slots, stride: SlotStride::new(u32::try_from(stride).unwrap_or(u32::MAX))? };
        let uar = sys::Uar::alloc(&self.context)?;
        let no_register =
            || DevxError::call("mapping of a UAR page", std::io::ErrorKind::AddrNotAvailable.into());
        let register = uar.register().ok_or_else(no_register)?;
        // The receive ring comes first (PRM), and the send ring begins at a whole block.
        let send_at = (R * stride).next_multiple_of(WQEBB_BYTES);
        let record_at = send_at + S * WQEBB_BYTES;
        let memory = sys::Dma::alloc(&self.context, record_at + RECORD_BYTES)?;
        // SAFETY: the queue pair owns the memory and never hands its queues out; these are handed out once.
        let (receive_slots, send_slots, record) = unsafe {
            (
                memory.slots(0, R * spec.entries_per_slot as usize, DataSegment::default())?,
                memory.slots(send_at, S, Wqebb::ZERO)?,
                memory.record(record_at)?,
            )
        };
        let command = CreateQp {
            pd: pd.number()?,
            uar: UarPage::new(uar.page())?,
            send_cq: send_cq.0.number,
            receive_cq: receive_cq.0.number,
            user_index: spec.user_index,
            send_ring,
            receive_ring: Some(receive_ring),
            rings: memory.at(0),
            doorbell: memory.at(record_at),
            page_size: LogPageSize::P4K,
            timestamps: TimestampFormat::FreeRunning,
        };
        let (object, qpn) =
            carry(&command, |request, reply| sys::Object::create(&self.context, request, reply))?;
        // SAFETY: the register is of the page that the queue pair was created with and keeps. libmlx5 may give one register
        // to several queue pairs; each rings it with a single store of 8 bytes, which cannot mix on 64-bit hosts. Ring and
        // record are those of the queue pair. Memory under keys is the promise of whoever registered it.
        let doorbell = unsafe { UarDoorbell::new(register) };
        let config = SendQueueConfig { signal_all: spec.signal_all, ..SendQueueConfig::new(qpn) };
        let control = QpControl { qpn, spec, device: self.report.general, object };
        control.init(control.drain(spec.drain_on_signature_error)?)?;
        Ok(QueuePair {
            send: SendQueue::new(config, send_slots, record, doorbell)?,
            receive: ReceiveQueue::new(
                ReceiveQueueConfig { qpn, entries_per_slot: spec.entries_per_slot },
                receive_slots,
                record,
            )?,
            control,
            resources: Resources {
                _memory: memory,
                _uar: uar,
                _cqs: [send_cq.clone(), receive_cq.clone()],
                _pd: pd.clone(),
            },
        })
    }
}

impl QpControl {
    /// Returns the number, for the peer to connect to.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Takes a queue pair on which nothing was posted through RESET to INIT again, so that it can be set up anew.
    ///
    /// # Errors
    /// [`DevxError::Command`]; for draining where the device has none, before anything has changed.
    pub fn restart(&mut self, drain_on_signature_error: bool) -> Result<(), DevxError> {
        let drain = self.drain(drain_on_signature_error)?;
        self.spec.drain_on_signature_error = drain_on_signature_error;
        self.modify(&QpToReset(self.qpn))?;
        self.init(drain)
    }

    /// Returns what turns draining on, if it is wanted and the device can.
    fn drain(&self, wanted: bool) -> Result<Option<Init2Init>, DevxError> {
        let command = Init2Init { qp: self.qpn, drain_signature_errors: Some(wanted), access: None };
        command.check(&self.device)?;
        Ok(wanted.then_some(command))
    }

    fn init(&self, drain: Option<Init2Init>) -> Result<(), DevxError> {
        let QueuePairSpec { port, access, .. } = self.spec;
        self.modify(&Rst2Init { qp: self.qpn, port, pkey_index: 0, access })?;
        drain.map_or(Ok(()), |drain| self.modify(&drain))
    }

    /// Connects to a peer: INIT to RTR to RTS.
    ///
    /// # Errors
    /// [`DevxError::Command`].
    pub fn connect(&self, connection: &Connection) -> Result<(), DevxError> {
        let qp = self.qpn();
        let Connection { peer, path, first_psn, mtu } = *connection;
        self.modify(&Init2Rtr {
            qp,
            remote_qp: peer,
            path,
            port: self.spec.port,
            mtu,
            log_max_message: LogMessage::new(30)?,
            first_psn,
            log_max_rd_atomic: LogMaxRdAtomic::new(4)?,
            rnr_timer: RnrTimer::new(12)?,
        })?;
        self.modify(&Rtr2Rts {
            qp,
            first_psn,
            log_max_rd_atomic: LogMaxRdAtomic::new(4)?,
            ack_timeout: AckTimeout::new(14)?,
            retries: Retries::MAX,
            rnr_retries: Retries::MAX,
        })
    }

    /// Connects to a queue pair of the same device.
    ///
    /// # Errors
    /// As [`QpControl::connect`].
    pub fn connect_local(&self, peer: Qpn) -> Result<(), DevxError> {
        self.connect(&Connection {
            peer,
            path: Path::Loopback,
            first_psn: Psn::default(),
            mtu: PathMtu::B1024,
        })
    }

    /// Connects to itself.
    ///
    /// # Errors
    /// As [`QpControl::connect`].
    pub fn connect_loopback(&self) -> Result<(), DevxError> {
        self.connect_local(self.qpn())
    }

    /// Asks the device for state and counters.
    ///
    /// # Errors
    /// [`DevxError::Command`].
    pub fn query(&self) -> Result<QpInfo, DevxError> {
        Ok(carry(&QueryQp(self.qpn()), |request, reply| self.object.query(request, reply))?.1)
    }

    /// Lets a drained send queue go on (SQD to RTS).
    ///
    /// # Errors
    /// [`DevxError::Command`].
    pub fn resume(&self) -> Result<(), DevxError> {
        self.modify(&Sqd2Rts { qp: self.qpn(), change: QpChange::default() })
    }

    /// Puts the queue pair into the error state: everything outstanding is flushed.
    ///
    /// # Errors
    /// [`DevxError::Command`].
    pub fn fail(&self) -> Result<(), DevxError> {
        self.modify(&QpToError(self.qpn()))
    }

    /// Returns what the kernel knows the queue pair by.
    pub(super) const fn object(&self) -> &sys::Object {
        &self.object
    }

    fn modify<C: crate::command::Command<Reply = ()>>(&self, command: &C) -> Result<(), DevxError> {
        carry(command, |request, reply| self.object.modify(request, reply)).map(|_| ())
    }
}

impl<const S: usize, const R: usize> QueuePair<S, R> {
    /// Returns the number, for the peer to connect to.
    pub const fn qpn(&self) -> Qpn {
        self.send.qpn()
    }

    /// Returns the queue pair's state on the device: to connect, query, resume.
    pub const fn control(&self) -> &QpControl {
        &self.control
    }

    /// Begins a send request; see [`SendQueue::request`].
    pub const fn request(&mut self, id: u64) -> SendRequest<'_, 'static> {
        self.send.request(id)
    }

    /// Begins send requests that are published together; see [`SendQueue::batch`].
    pub const fn batch(&mut self) -> Batch<'_, 'static, UarDoorbell, S> {
        self.send.batch()
    }

    /// Publishes send requests; see [`SendQueue::ring_doorbell`].
    pub fn ring_doorbell(&mut self) {
        self.send.ring_doorbell();
    }

    /// Cancels send requests of a drained queue; see [`SendQueue::cancel`].
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`].
    pub fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        self.send.cancel(id, hw_counter)
    }

    /// Posts buffers for one message; see [`ReceiveQueue::post`].
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_receive(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.receive.post(id, sges)
    }

    /// Publishes receive requests; see [`ReceiveQueue::publish`].
    pub fn publish_receives(&mut self) {
        self.receive.publish();
    }

    /// Gives the queues' memory to the rest of the program's life, so that they can be moved about.
    pub fn leak(self) -> LeakedQueues<S, R> {
        let Self { send, receive, control, resources } = self;
        core::mem::forget(resources);
        LeakedQueues { control, send, receive }
    }
}

impl<const S: usize, const R: usize> QpQueues for QueuePair<S, R> {
    #[inline]
    fn qpn(&self) -> Qpn {
        self.send.qpn()
    }

    #[inline]
    fn retire_send(&mut self, counter: u16) -> Option<Retired> {
        self.send.retire(counter)
    }

    fn retire_receive(&mut self, counter: u16) -> Option<u64> {
        self.receive.retire(counter)
    }
}
