//! Creates queue pairs on the device, allocates their rings, and changes their states.

#![allow(unsafe_code)]

use super::cq::{Cq, CqReader, RECORD_BYTES, SetAside, Writer};
use super::sys::Allocation;
use super::{Buffer, Device, DevxError, ProtectionDomain, QpDoorbell, carry, create_unlike, sys};
use crate::command::error::CommandError;
use crate::command::{
    Command, CreateQp, Init2Init, LogPageSize, PeerAtomics, QpAccess, QpChange, QpInfo, QpToError, QpToReset,
    QueryQp, ReceiveRing, Rst2Init, SendRingSize, SlotCount, SlotStride, Sqd2Rts, TimestampFormat, UarPage,
    UserIndex,
};
use crate::mkey::{Access, SignatureFault};
use crate::queue::{
    Batch, BlueFlame, CompletedReceive, CompletedSend, CompletionRouter, CqIdentity, CqeOrigin, QpQueues,
    ReceiveQueue, ReceiveQueueConfig, RequestKind, Retired, SendQueue, SendQueueConfig, SendRequest,
    SendSlot, UarDoorbell,
};
use crate::types::Qpn;
use crate::wire::data::DataSegment;
use crate::wire::prm::command::Opcode;
use crate::wire::{WQEBB_BYTES, Wqebb};
use crate::wqe::error::PostError;
use crate::wqe::{Local, MemcpyConfig, Sge};
use std::sync::Arc;
use std::vec::Vec;

/// The properties of a queue pair.
///
/// ```
/// use mlx5_mkey::devx::{Cq, Device, DevxError, ProtectionDomain, QueuePair, QueuePairSpec};
/// /// Creates a queue pair whose sizes a configuration file gives. Each send request is signalled.
/// fn create(
///     device: &Device,
///     pd: &ProtectionDomain,
///     cq: &Cq,
///     (send_blocks, receive_slots): (u32, u32),
/// ) -> Result<QueuePair, DevxError> {
///     let spec = QueuePairSpec {
///         send_blocks,
///         receive_slots,
///         signal_all: true,
///         ..QueuePairSpec::default()
///     };
///     device.create_qp(pd, cq, cq, spec)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QueuePairSpec {
    /// Size of the send ring in blocks of 64 bytes: a power of two, at most 2^15. Default: 64.
    pub send_blocks: u32,
    /// Number of receive requests that may be outstanding: a power of two, at most 2^15. Default: 16.
    pub receive_slots: u32,
    /// The largest number of buffers of a receive request: a power of two, at most 2^7. Default: 4.
    pub entries_per_slot: u32,
    /// The largest number of send work requests that may be outstanding. A configuration of an mkey may
    /// consist of several work requests. The queue pair sets aside an entry of the completion queue for each
    /// work request. Default: the number of blocks of the ring.
    pub max_requests: Option<u32>,
    /// Whether every request is signalled.
    pub signal_all: bool,
    /// Whether a signature error stops the send queue until [`QpControl::resume`]. Linux refuses to resume a
    /// queue pair that this library created, so on Linux [`Device::create_qp`] refuses this property
    /// ([`DevxError::KernelRefuses`]). Create the queue pair with libibverbs instead (`mlx5dv_create_qp`,
    /// `MLX5DV_QP_CREATE_SIG_PIPELINING`), and take it over ([`Device::adopt_qp`]).
    pub drain_on_signature_error: bool,
    /// Whether requests may copy local memory ([`SendRequest::memcpy`]). Not every device supports this.
    pub memcpy: bool,
    /// The user index that completions carry. For a queue pair that goes into a table, use
    /// [`crate::queue::QpTable::next_user_index`], so that the table finds the queue pair without a search.
    pub user_index: UserIndex,
    /// Number of the device's port. The first port is 1.
    pub port: u8,
    /// The operations that the queue pair allows its peer.
    pub access: QpAccess,
    /// Whether the queue pair asks for a BlueFlame register of its own. If a doorbell publishes a single
    /// request that fits, the library writes the request to this register ([`BlueFlame`]), so that the device
    /// need not read it from memory. If device or kernel have no such register, the queue pair gets a plain
    /// doorbell; [`QpControl::has_blue_flame`] tells which.
    pub blue_flame: bool,
    /// Format of the time stamps in completions. Default: ticks of the free-running clock
    /// ([`Device::clock`]), or the device's preferred format if it has no such clock
    /// ([`TimestampSupport::usual_format`](crate::command::TimestampSupport::usual_format)).
    pub timestamps: Option<TimestampFormat>,
}

impl Default for QueuePairSpec {
    fn default() -> Self {
        Self {
            send_blocks: 64,
            receive_slots: 16,
            entries_per_slot: 4,
            max_requests: None,
            signal_all: false,
            drain_on_signature_error: false,
            memcpy: false,
            user_index: UserIndex::default(),
            port: 1,
            access: QpAccess { atomics: PeerAtomics::Plain, ..QpAccess::READ_WRITE },
            blue_flame: false,
            timestamps: None,
        }
    }
}

/// A reliable queue pair on the device.
///
/// When the queue pair and the last clone of its [`QpControl`] are dropped, the library also drops
/// completions of the queue pair that nobody has taken.
///
/// The value is small enough to be moved: at most 1.5 kB. Its rings, and the records of its requests, are on
/// the heap. A table serves many queue pairs:
///
/// ```no_run
/// use mlx5_mkey::devx::{Cq, Device, ProtectionDomain, QueuePair, QueuePairSpec};
/// use mlx5_mkey::queue::QpTable;
///
/// # fn example(device: &Device, pd: &ProtectionDomain, cq: &Cq) -> Result<(), Box<dyn std::error::Error>> {
/// let mut table = QpTable::on_heap(16);
/// let queue = device.create_qp(pd, cq, cq, QueuePairSpec::default())?;
/// table.insert(queue).map_err(|(error, _)| error)?;
/// # Ok(())
/// # }
/// ```
pub struct QueuePair {
    // The queues hold pointers into memory that `control` and `_books` keep alive, so they must not leave
    // this value. No function returns a reference to them.
    send: SendQueue<'static, QpDoorbell>,
    receive: ReceiveQueue<'static>,
    /// Requests that [`QueuePair::reset`] has removed from the queues, but has not returned because a later
    /// step failed.
    outstanding: Outstanding,
    /// The completion queues of send requests and of receive requests.
    completes_to: [CqIdentity; 2],
    control: QpControl,
    /// The memory in which the queues keep records of their requests. Dropped after the queues, which use it.
    _books: Allocation,
}

/// Number of data segments of receive requests in 64 bytes.
const ENTRIES_PER_BLOCK: u32 = (WQEBB_BYTES / size_of::<DataSegment>()) as u32;

const _: () = assert!(size_of::<QueuePair>() <= 1536, "a queue pair is small enough to be moved");

/// Control of a queue pair's state on the device, separate from its queues. Clones may be used from any
/// thread. The queue pair stays on the device until the last clone and the [`QueuePair`] are dropped.
#[derive(Clone)]
pub struct QpControl(Arc<QpObject>);

pub(super) struct QpObject {
    pub(super) qpn: Qpn,
    pub(super) spec: QueuePairSpec,
    pub(super) cqs: [Cq; 2],
    pub(super) addresses: RingAddresses,
    /// Whether the doorbell writes whole requests (BlueFlame).
    pub(super) blue_flame: bool,
    pub(super) object: sys::Object<Arc<QpMemory>>,
}

/// The addresses of a queue pair's rings in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RingAddresses {
    /// Address of the receive ring. A receive request in it consists of data segments of 16 bytes each.
    pub receive_ring: u64,
    /// Address of the send ring: blocks of 64 bytes.
    pub send_ring: u64,
    /// Address of the doorbell record, which has 8 bytes.
    pub record: u64,
}

/// The objects that a queue pair on the device needs. They are dropped after the queue pair is destroyed, in
/// this order. Dropping `set_aside`, the last, marks the remaining completions of the queue pair as obsolete.
pub(super) struct QpMemory {
    /// Rings and doorbell page, if this library allocated them.
    pub(super) _rings: Option<(sys::Dma, Arc<sys::Uar>)>,
    /// A buffer to which the device may write information about copies.
    pub(super) _opaque: Option<Buffer>,
    pub(super) domain: ProtectionDomain,
    pub(super) set_aside: [SetAside; 2],
}

impl Device {
    /// Creates a queue pair in the state INIT.
    ///
    /// # Errors
    /// After an error nothing is left on the device.
    /// - [`DevxError::Queue`] with [`QueueError::Size`](crate::error::QueueError::Size) unless `send_blocks`
    ///   is a power of two up to 2^15, `receive_slots` one up to 2^15, and `entries_per_slot` one up to 2^7.
    /// - [`DevxError::Adopt`] with [`AdoptError::OtherDevice`](super::AdoptError::OtherDevice) for a
    ///   protection domain or completion queue of another device.
    /// - [`DevxError::CompletionQueueTooSmall`] where a completion queue has no room for all possible
    ///   completions.
    /// - [`DevxError::Command`] with [`CommandError::Unsupported`] for draining, copies in memory,
    ///   atomics of the peer, a user index or a format of time stamps that the device does not support; and
    ///   with a status where the device refuses one of the commands: CREATE_QP, RST2INIT_QP, INIT2INIT_QP.
    /// - [`DevxError::KernelRefuses`] for draining ([`QueuePairSpec::drain_on_signature_error`]) where the
    ///   kernel does not resume a drained queue.
    /// - [`DevxError::Call`] where a register, the memory of the rings or a buffer cannot be allocated.
    /// - [`DevxError::Queue`] where a queue cannot be created over its ring.
    pub fn create_qp(
        &self,
        pd: &ProtectionDomain,
        send_cq: &Cq,
        receive_cq: &Cq,
        spec: QueuePairSpec,
    ) -> Result<QueuePair, DevxError> {
        self.context.expect_own(&pd.context)?;
        let send_ring = SendRingSize::new(spec.send_blocks)?;
        let slots = SlotCount::new(spec.receive_slots)?;
        let (blocks, receives) = (spec.send_blocks as usize, spec.receive_slots as usize);
        // As libmlx5 does, give the receive ring 64 bytes or more. Nothing public says where the device would
        // look for the send ring behind a shorter receive ring.
        let entries_per_slot = spec.entries_per_slot.max(ENTRIES_PER_BLOCK / slots.get());
        let receive_ring = ReceiveRing { slots, stride: SlotStride::of_entries(entries_per_slot)? };
        let stride = receive_ring.stride.get() as usize;
        drain(Qpn::default(), spec.drain_on_signature_error).check(&self.report.general, self.atomics())?;
        spec.access.check(&self.report.general, self.atomics())?;
        if self.report.general.cqe_version == 0 && spec.user_index != UserIndex::default() {
            return Err(unsupported("user indices in completions (cqe_version is 0)"));
        }
        let timestamps = self.timestamps(spec.timestamps)?;
        let (opaque, memcpy) = spec.memcpy.then(|| self.memcpy(pd)).transpose()?.unzip();
        let max_requests = spec.max_requests.unwrap_or(u32::MAX);
        // Each request has at least one block, so a ring holds at most as many requests as blocks.
        let set_aside = [
            send_cq.set_aside(&self.context, max_requests.min(spec.send_blocks))?,
            receive_cq.set_aside(&self.context, spec.receive_slots)?,
        ];
        let (uar, blue_flame) = self.doorbell_page(spec.blue_flame)?;
        let register = uar.register()?;
        // The PRM demands that the receive ring comes before the send ring.
        let send_at = receives * stride;
        let record_at = send_at + blocks * WQEBB_BYTES;
        let rings = sys::Dma::alloc(&self.context, record_at + RECORD_BYTES)?;
        // SAFETY: the queue pair keeps the memory as long as its queues, which do not leave it. `slots` is
        // called once for each ring, `record` once.
        let (receive_slots, send_slots, record) = unsafe {
            (
                rings.slots(0, receives * entries_per_slot as usize, DataSegment::default())?,
                rings.slots(send_at, blocks, Wqebb::ZERO)?,
                rings.record(record_at)?,
            )
        };
        let command = CreateQp {
            pd: pd.number()?,
            uar: UarPage::new(uar.page())?,
            send_cq: send_cq.number(),
            receive_cq: receive_cq.number(),
            user_index: spec.user_index,
            send_ring,
            receive_ring: Some(receive_ring),
            rings: rings.at(0),
            doorbell: rings.at(record_at),
            page_size: LogPageSize::P4K,
            timestamps,
        };
        let addresses = RingAddresses {
            receive_ring: rings.address(0),
            send_ring: rings.address(send_at),
            record: rings.address(record_at),
        };
        let memory =
            Arc::new(QpMemory { _rings: Some((rings, uar)), _opaque: opaque, domain: pd.clone(), set_aside });
        let cqs = [send_cq.clone(), receive_cq.clone()];
        let (object, qpn) = create_unlike(&self.context, &memory, &command, |qpn| {
            cqs.iter().any(|cq| cq.knows(Writer::Qp(*qpn)))
        })?;
        memory.set_aside.iter().for_each(|entries| entries.belongs_to(Writer::Qp(qpn)));
        // SAFETY: the register belongs to the page with which the queue pair was created, and which it keeps.
        // libmlx5 may give one register to several queue pairs; each rings it with a single store of 8 bytes,
        // which is atomic on 64-bit hosts. A register in a write-combining page belongs to this queue pair
        // alone. It has two halves, whose size the device has reported. Ring and record are those of the
        // queue pair. The memory that requests name by keys is the duty of the callers that registered it.
        let doorbell: QpDoorbell = unsafe {
            match blue_flame {
                None => UarDoorbell::new(register).into(),
                Some(half) => BlueFlame::new(register, half).into(),
            }
        };
        let umr_fence = self.report.general.umr_fence;
        let config = SendQueueConfig {
            signal_all: spec.signal_all,
            max_requests,
            umr_fence,
            memcpy,
            ..SendQueueConfig::new(qpn)
        };
        let blue_flame = blue_flame.is_some();
        let object = QpObject { qpn, spec, cqs, addresses, blue_flame, object };
        let books = Books::new(blocks, receives)?;
        let send = SendQueue::new(config, send_slots, books.send, record, doorbell)?;
        let config = ReceiveQueueConfig { qpn, entries_per_slot };
        let receive = ReceiveQueue::new(config, receive_slots, books.receive, record)?;
        let queue = QueuePair::new(object, send, receive, books.memory);
        queue.control.init()?;
        if spec.drain_on_signature_error {
            queue.control.can_resume()?;
        }
        Ok(queue)
    }

    /// Allocates a doorbell page. If BlueFlame is wanted and available, the page is write-combining, and the
    /// function also returns half the size of its BlueFlame register in bytes.
    fn doorbell_page(&self, blue_flame: bool) -> Result<(Arc<sys::Uar>, Option<usize>), DevxError> {
        if let (true, Some(log @ 7..)) = (blue_flame, self.report.general.log_blue_flame)
            && let Some(uar) = sys::Uar::alloc_write_combining(&self.context)?
        {
            return Ok((uar, Some(1 << (log - 1))));
        }
        Ok((sys::Uar::alloc(&self.context)?, None))
    }

    /// Returns the format of time stamps for a queue pair: `wanted` if the device supports it, or with `None`
    /// the device's usual format.
    fn timestamps(&self, wanted: Option<TimestampFormat>) -> Result<TimestampFormat, DevxError> {
        let support = self.timestamp_support();
        match wanted {
            None => Ok(support.usual_format()),
            Some(format) if support.supports(format) => Ok(format),
            Some(TimestampFormat::RealTime) => Err(unsupported("time stamps in real time")),
            Some(_) => Err(unsupported("time stamps of a free-running clock")),
        }
    }

    /// Returns the configuration for copies in local memory, and the buffer to which it refers.
    fn memcpy(&self, pd: &ProtectionDomain) -> Result<(Buffer, MemcpyConfig), DevxError> {
        let what = "copies in memory";
        let none = CommandError::Unsupported { command: Opcode::CREATE_QP, what };
        let log_max_bytes = self.report.general.log_max_memcpy_bytes().ok_or(none)?;
        let buffer = pd.alloc_buffer(MemcpyConfig::OPAQUE_BYTES, Access::LOCAL_WRITE)?;
        let opaque = Local { address: buffer.address(), lkey: buffer.lkey() };
        Ok((buffer, MemcpyConfig { opaque, log_max_bytes }))
    }
}

/// Memory in which the queues keep records of their outstanding requests.
pub(super) struct Books {
    pub(super) send: &'static mut [SendSlot],
    pub(super) receive: &'static mut [u64],
    pub(super) memory: Allocation,
}

impl Books {
    /// Allocates the records for a queue pair with this many blocks and receive requests. The caller ensures
    /// that `memory` lives as long as the queues use the records.
    pub(super) fn new(blocks: usize, receives: usize) -> Result<Self, DevxError> {
        let bytes = blocks * size_of::<SendSlot>();
        let memory =
            Allocation::zeroed(bytes + receives * size_of::<u64>(), "allocation of a queue's books")?;
        // SAFETY: the queue pair keeps the memory as long as its queues, which do not leave it. The two calls
        // take different parts of the memory.
        let (send, receive) =
            unsafe { (memory.slots(0, blocks, SendSlot::EMPTY)?, memory.slots(bytes, receives, 0)?) };
        Ok(Self { send, receive, memory })
    }
}

/// Returns the error for a property that the device does not support.
fn unsupported(what: &'static str) -> DevxError {
    CommandError::Unsupported { command: CreateQp::OPCODE, what }.into()
}

/// Returns the command that turns draining on signature errors on or off.
const fn drain(qp: Qpn, on: bool) -> Init2Init {
    Init2Init { drain_signature_errors: Some(on), ..Init2Init::new(qp) }
}

impl QpControl {
    /// Returns the number of the queue pair, which a peer needs to connect.
    pub fn qpn(&self) -> Qpn {
        self.0.qpn
    }

    /// Takes the queue pair from RESET to INIT.
    fn init(&self) -> Result<(), DevxError> {
        let QueuePairSpec { port, access, drain_on_signature_error, memcpy, .. } = self.0.spec;
        let qp = self.qpn();
        self.modify(&Rst2Init { qp, port, pkey_index: 0, access })?;
        if drain_on_signature_error {
            self.modify(&drain(qp, true))?;
        }
        if memcpy && self.domain().report.general.memcpy_per_qp {
            self.modify(&Init2Init { memcpy: Some(true), ..Init2Init::new(qp) })?;
        }
        Ok(())
    }

    /// Returns the addresses of the queue pair's rings, for tools that read the rings from outside, such as a
    /// debugger or `cargo xtask decode`.
    pub fn addresses(&self) -> RingAddresses {
        self.0.addresses
    }

    /// Asks the device for the queue pair's state and counters.
    ///
    /// # Errors
    /// [`DevxError::Command`].
    pub fn query(&self) -> Result<QpInfo, DevxError> {
        Ok(carry(&QueryQp(self.qpn()), |request, reply| self.0.object.query(request, reply))?.1)
    }

    /// Returns whether the queue pair has a BlueFlame register ([`QueuePairSpec::blue_flame`]).
    pub fn has_blue_flame(&self) -> bool {
        self.0.blue_flame
    }

    /// Resumes a drained send queue (SQD to RTS). For a queue pair that was taken over, the function calls
    /// `ibv_modify_qp`. For a queue pair that this library created, it sends a command, which Linux refuses.
    ///
    /// # Errors
    /// [`DevxError::KernelRefuses`]: the queue stays drained; [`QueuePair::reset`] returns it to INIT.
    /// [`DevxError::Call`] and [`DevxError::Command`], also for a queue pair that is not drained.
    pub fn resume(&self) -> Result<(), DevxError> {
        let by_command = || {
            self.modify(&Sqd2Rts { qp: self.qpn(), change: QpChange::default() }).map_err(|error| match error
            {
                // This EINVAL comes from the kernel. If the command had reached the device, the error would
                // be `DevxError::Command`.
                DevxError::Call { cause, .. } if cause.raw_os_error() == Some(libc::EINVAL) => {
                    let what = "a drained send queue goes on where libibverbs made the queue pair and it was \
                                taken over (Device::adopt_qp); others begin anew (QueuePair::reset)";
                    DevxError::KernelRefuses { command: Sqd2Rts::OPCODE, what }
                }
                error => error,
            })
        };
        self.0.object.resume().unwrap_or_else(by_command)
    }

    /// Returns an error if the kernel would refuse to resume the queue pair once it is drained. To find out,
    /// the function sends the command that resumes a queue. The queue pair is not drained now, so the device
    /// refuses the command. That refusal proves that the kernel passes the command on.
    fn can_resume(&self) -> Result<(), DevxError> {
        match self.resume() {
            Err(DevxError::Command(_)) => Ok(()),
            outcome => outcome,
        }
    }

    /// Puts the queue pair into the error state: the device flushes all outstanding requests.
    ///
    /// # Errors
    /// [`DevxError::Command`].
    pub fn fail(&self) -> Result<(), DevxError> {
        self.modify(&QpToError(self.qpn()))
    }

    /// Returns the object by which the kernel knows the queue pair.
    pub(super) fn object(&self) -> &sys::Object<impl Sized> {
        &self.0.object
    }

    /// Returns the number of the device's port that the queue pair uses.
    pub(super) fn port(&self) -> u8 {
        self.0.spec.port
    }

    /// Returns the protection domain of the queue pair.
    pub(super) fn domain(&self) -> &ProtectionDomain {
        &self.0.object.kept().domain
    }

    pub(super) fn modify<C: Command<Reply = ()>>(&self, command: &C) -> Result<(), DevxError> {
        carry(command, |request, reply| self.0.object.modify(request, reply)).map(|_| ())
    }
}

impl QueuePair {
    /// Creates the value for a queue pair that already exists on the device and in memory.
    pub(super) fn new(
        object: QpObject,
        send: SendQueue<'static, QpDoorbell>,
        receive: ReceiveQueue<'static>,
        books: Allocation,
    ) -> Self {
        let completes_to = [object.cqs[0].identity(), object.cqs[1].identity()];
        let control = QpControl(Arc::new(object));
        Self { send, receive, outstanding: Outstanding::default(), completes_to, control, _books: books }
    }

    /// Returns the number of the queue pair, which a peer needs to connect.
    pub const fn qpn(&self) -> Qpn {
        self.send.qpn()
    }

    /// Returns the control of the queue pair's state on the device: to connect, query, resume.
    pub const fn control(&self) -> &QpControl {
        &self.control
    }

    /// Begins a send request; see [`SendQueue::request`].
    pub const fn request(&mut self, id: u64) -> SendRequest<'_, 'static> {
        self.send.request(id)
    }

    /// Begins send requests that are published together; see [`SendQueue::batch`].
    pub const fn batch(&mut self) -> Batch<'_, 'static, QpDoorbell> {
        self.send.batch()
    }

    /// Publishes send requests; see [`SendQueue::ring_doorbell`].
    #[inline]
    pub fn ring_doorbell(&mut self) {
        self.send.ring_doorbell();
    }

    /// Cancels the send requests named `id` of a drained queue; see [`SendQueue::cancel`].
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`].
    pub fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        self.send.cancel(id, hw_counter)
    }

    /// Posts a receive request: the buffers for one message; see [`ReceiveQueue::post`].
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

    /// Returns how many blocks of 64 bytes are free; see [`SendQueue::free_blocks`].
    pub const fn free_blocks(&self) -> u32 {
        self.send.free_blocks()
    }

    /// Returns how many send requests are outstanding; see [`SendQueue::outstanding`].
    pub fn outstanding(&self) -> u32 {
        self.send.outstanding()
    }

    /// Returns how many more receive requests may be posted; see [`ReceiveQueue::free_slots`].
    pub const fn free_slots(&self) -> u32 {
        self.receive.free_slots()
    }

    /// Returns the number of the next block to post; see [`SendQueue::producer`].
    pub const fn producer(&self) -> u32 {
        self.send.producer()
    }

    /// Returns the fence mode of the next request; see [`SendQueue::next_fence`].
    pub const fn next_fence(&self) -> u8 {
        self.send.next_fence()
    }

    /// Copies a block out of the send ring, for [`crate::inspect`]; see [`SendQueue::block`].
    pub fn block(&self, index: u32) -> Wqebb {
        self.send.block(index)
    }

    /// Takes the queue pair from any state through RESET back to INIT. Its queues are then empty, and it can
    /// be connected anew. Returns the outstanding requests, each once.
    ///
    /// `readers` are the readers of its completion queues. Completions of the queue pair that were not taken
    /// are dropped, and their requests are among those returned. If a returned request is a configuration,
    /// the state of its mkey is unknown: call [`crate::mkey::Mkey::forget`]. Signature errors stay in the
    /// completion queue: poll it, and check each mkey, before you configure mkeys anew.
    ///
    /// ```no_run
    /// # use mlx5_mkey::devx::{CqReader, DevxError, QueuePair};
    /// fn recover(queue: &mut QueuePair, completions: &mut CqReader) -> Result<(), DevxError> {
    ///     let outstanding = queue.reset(&mut [completions])?;
    ///     println!("to be done again: {:?}", outstanding.sends);
    ///     queue.control().connect_loopback()
    /// }
    /// ```
    ///
    /// # Errors
    /// [`DevxError::OtherCompletionQueue`] where a reader is missing, before anything has changed;
    /// [`DevxError::Command`], [`DevxError::Call`]: the queue pair may be in RESET or INIT. Call the function
    /// again: its next success returns the outstanding requests. If the device is gone and no call succeeds,
    /// use [`QueuePair::into_outstanding`].
    pub fn reset(&mut self, readers: &mut [&mut CqReader]) -> Result<Outstanding, DevxError> {
        let QpObject { qpn, cqs, .. } = &*self.control.0;
        for cq in cqs {
            if !readers.iter().any(|reader| reader.cq() == cq) {
                return Err(DevxError::OtherCompletionQueue { wanted: cq.number() });
            }
        }
        self.control.modify(&QpToReset(*qpn))?;
        // In RESET the device writes no more completions. After RESET the device reads the rings from their
        // beginning, so the queues are emptied here. A queue pair of another device may have the same number,
        // so readers of other completion queues keep their entries.
        let own = readers.iter_mut().filter(|reader| cqs.contains(reader.cq()));
        own.for_each(|reader| reader.discard(*qpn));
        let outstanding = &mut self.outstanding;
        self.send.restart(|request| outstanding.add_send(request));
        self.receive.restart(|id| outstanding.receives.push(id));
        self.control.init()?;
        Ok(core::mem::take(&mut self.outstanding))
    }

    /// Gives the queue pair up, and returns the outstanding requests, each once. This works even if the
    /// device is gone or refuses [`QueuePair::reset`]. Requests that a failed reset did not return are
    /// included.
    ///
    /// The queue pair is destroyed as if it were dropped. The device may still execute published requests
    /// until the last clone of its [`QpControl`] is dropped, and for ever if the queue pair cannot be
    /// destroyed ([`super::on_drop_error`] reports that). Keep the memory that these requests name.
    ///
    /// ```no_run
    /// use mlx5_mkey::devx::{CqReader, DevxError, Outstanding, QueuePair};
    /// /// Resets a queue pair, or gives it up. Both ways return each outstanding request.
    /// fn recover(
    ///     mut queue: QueuePair,
    ///     completions: &mut CqReader,
    /// ) -> (Outstanding, Result<QueuePair, DevxError>) {
    ///     match queue.reset(&mut [completions]) {
    ///         Ok(outstanding) => (outstanding, Ok(queue)),
    ///         Err(error) => (queue.into_outstanding(), Err(error)),
    ///     }
    /// }
    /// ```
    pub fn into_outstanding(mut self) -> Outstanding {
        let mut outstanding = core::mem::take(&mut self.outstanding);
        self.send.each_outstanding(|request| outstanding.add_send(request));
        self.receive.each_outstanding(|id| outstanding.receives.push(id));
        outstanding
    }
}

/// Requests whose completions were not taken. The device may have executed some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Names (`wr_id`) of send requests, oldest first.
    pub sends: Vec<u64>,
    /// Names of receive requests, oldest first.
    pub receives: Vec<u64>,
}

impl Outstanding {
    fn add_send(&mut self, request: Retired) {
        // All work requests of a configuration have the same name. Only the last of them is added.
        if request.kind != RequestKind::MkeyConfigurePart {
            self.sends.push(request.id);
        }
    }
}

/// A queue pair is itself a router, for programs with one queue pair and without mkeys that can have
/// signature errors: `reader.poll(&mut queue_pair)`.
impl CompletionRouter for QueuePair {
    type Queues = Self;

    #[inline]
    fn queues(&mut self, _origin: CqeOrigin) -> Option<&mut Self> {
        Some(self)
    }

    fn signature_error(&mut self, _fault: &SignatureFault) -> Option<usize> {
        None
    }
}

impl QpQueues for QueuePair {
    #[inline]
    fn qpn(&self) -> Qpn {
        self.send.qpn()
    }

    #[inline]
    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        // A queue pair of another device can have the same number. So the function checks that the completion
        // comes from the completion queue of this queue pair.
        if done.is_of(self.completes_to[0]) { self.send.retire(done) } else { None }
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        if done.is_of(self.completes_to[1]) { self.receive.retire(done) } else { None }
    }
}
