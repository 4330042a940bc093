//! The installed libmlx5 as a side of the benchmarks: an implementation that does the measured work. The
//! device does not execute the requests of this side's queue pairs.

#![allow(unsafe_code)]

use core::ptr;
use libmlx5::abi::{
    ConfAttr, CrcAttr, CryptoAttr, DifAttr, DomainAttr, IbvContext, IbvQp, IbvSge, Interleaved, MkeyRaw,
    Mlx5QpEx, QpCap, QpEx, RecvWr, SigBlockAttr, WorkCompletion,
};
use libmlx5::{Completions, Device, RefMkey, RefQueue};
use mlx5_bench::{BATCH, BLOCKS, ENTRIES, Fault, IOS, Io, Kind, MAX_ENTRIES, QUEUES, Side, Work, ours};
use mlx5_mkey::mkey::KlmEntry;
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, OpOwn};
use mlx5_mkey::wqe::Sge;
use std::io;
use std::rc::Rc;
use std::slice;

/// `IBV_SEND_SIGNALED` and `IBV_SEND_INLINE`.
const SIGNALED: u32 = 2;
const INLINE: u32 = 8;
/// The errno with which libmlx5 refuses a request if the queue is full.
const ENOMEM: i32 = 12;
/// `IBV_ACCESS_REMOTE_READ`.
const REMOTE_READ: u32 = 4;

/// An I/O in the types that a program passes to libmlx5.
struct RefIo {
    sges: [IbvSge; MAX_ENTRIES],
    count: u16,
    streams: [Interleaved; 3],
    data: IbvSge,
    remote: u64,
    rkey: u32,
    id: u64,
    lba: u64,
    mkey: *mut MkeyRaw,
    lkey: u32,
}

impl RefIo {
    fn new(io: &Io, mkey: &RefMkey) -> Self {
        let sge = |KlmEntry { address, length, key }: KlmEntry| IbvSge { address, length, lkey: key.get() };
        let stream = |KlmEntry { address, length, key }: KlmEntry| Interleaved {
            address,
            bytes: length,
            skip: 8,
            lkey: key.get(),
        };
        let [a, b, c, ..] = io.entries;
        let Sge { address, length, lkey } = io.data;
        Self {
            sges: io.entries.map(sge),
            count: io.count as u16,
            streams: [a, b, c].map(stream),
            data: IbvSge { address, length, lkey: lkey.get() },
            remote: io.remote,
            rkey: io.rkey,
            id: io.id,
            lba: io.lba,
            mkey: mkey.as_ptr(),
            lkey: mkey.key(),
        }
    }
}

pub(crate) struct Libmlx5 {
    // These fields come first, so that mkeys and queues are dropped before the device to which they belong.
    mkeys: Vec<(Kind, Vec<RefMkey>)>,
    queue: RefQueue,
    /// Other queue pairs on the same completion queue. Their user indices are 1 and up.
    many: Vec<RefQueue>,
    device: Rc<Device>,
    completions: Completions,
    ios: Vec<RefIo>,
    /// The kind of work for which the I/Os are prepared.
    work: Option<Work>,
    dif: DifAttr,
    crc: CrcAttr,
    crypto: CryptoAttr,
}

/// Returns a signature domain of the type `kind`, with blocks of 512 bytes (`block_size` 0).
fn domain<T>(kind: u32, details: &T) -> DomainAttr {
    DomainAttr { kind, details: ptr::from_ref(details).cast(), block_size: 0, comp_mask: 0 }
}

fn signature(wire: &DomainAttr) -> SigBlockAttr {
    SigBlockAttr { memory: ptr::null(), wire, flags: 0, check_mask: 0xff, copy_mask: 0, comp_mask: 0 }
}

impl Libmlx5 {
    /// Opens the device of the kernel's stand-in by libmlx5, and creates the queue pairs.
    pub(crate) fn open() -> io::Result<Self> {
        // libmlx5 makes the number of entries the next power of two above this argument.
        let device = Device::open("mlx5_0", ENTRIES as u16 - 1)?;
        let cap = QpCap {
            max_send_wr: 256,
            max_recv_wr: 2 * IOS as u32,
            max_send_sge: 16,
            max_recv_sge: 1,
            max_inline_data: 828,
        };
        let queue = RefQueue::create(&device, cap)?;
        let many = (0..QUEUES).map(|_| RefQueue::create(&device, cap)).collect::<io::Result<_>>()?;
        Ok(Self {
            mkeys: Vec::new(),
            many,
            completions: Completions::new(&device)?,
            ios: Vec::new(),
            work: None,
            dif: DifAttr { guard: 0, seed: 0, app_tag: 0x1234, ref_tag: 0x5678, flags: 1 },
            crc: CrcAttr { kind: 1, seed: u64::from(u32::MAX) },
            crypto: CryptoAttr { encrypt_on_tx: true, order: 1, dek: device.dek(), ..CryptoAttr::default() },
            queue,
            device,
        })
    }

    /// Posts `requests` requests in chains of `BATCHED`, by the function pointers of the queue pair, as the
    /// inline functions of libibverbs' headers do. `one` issues one request.
    #[inline(always)]
    fn post<const BATCHED: usize>(
        &self,
        requests: usize,
        flags: u32,
        one: impl Fn(*mut QpEx, *mut Mlx5QpEx, &RefIo),
    ) -> Result<(), Fault> {
        for batch in self.ios[..requests].chunks_exact(BATCHED) {
            if self.chain(batch, flags, &one) != 0 {
                return Err("libmlx5 refuses");
            }
        }
        Ok(())
    }

    /// Posts one chain of requests. Returns libmlx5's result: 0, or an error number.
    #[inline(always)]
    fn chain(&self, batch: &[RefIo], flags: u32, one: impl Fn(*mut QpEx, *mut Mlx5QpEx, &RefIo)) -> i32 {
        let (ex, mlx5) = (self.queue.ex(), self.queue.mlx5());
        // SAFETY: the queue pair is live, belongs to libmlx5, and is used by nobody else.
        unsafe { ((*ex).start)(ex) };
        for io in batch {
            // SAFETY: the queue pair is live, belongs to libmlx5, and is used by nobody else.
            unsafe {
                (*ex).wr_id = io.id;
                (*ex).wr_flags = flags;
            }
            one(ex, mlx5, io);
        }
        // SAFETY: the queue pair is live, belongs to libmlx5, and is used by nobody else.
        unsafe { ((*ex).complete)(ex) }
    }

    /// Begins a request by libmlx5's `mkey_configure`, with this number of setters.
    ///
    /// # Safety
    /// The caller ensures that it calls `setters` setters next, in an order that the manual pages allow.
    #[inline(always)]
    unsafe fn configure(mlx5: *mut Mlx5QpEx, io: &RefIo, setters: u8) {
        let mut attr = ConfAttr { flags: 0, comp_mask: 0 };
        // SAFETY: the caller vouches for the setters; the queue pair is live, and the attributes are read
        // during the call.
        unsafe { ((*mlx5).mkey_configure)(mlx5, io.mkey, setters, &mut attr) };
    }

    /// Sets the layout of an I/O, and the access.
    ///
    /// # Safety
    /// The caller ensures that the number of setters that it announced to [`Self::configure`] includes these
    /// two.
    #[inline(always)]
    unsafe fn list(mlx5: *mut Mlx5QpEx, io: &RefIo) {
        // SAFETY: the caller vouches for the announcement; the data segments live during the call.
        unsafe {
            ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
            ((*mlx5).set_mkey_list)(mlx5, io.count, io.sges.as_ptr());
        }
    }

    /// Sets crypto with the tweak of an I/O.
    ///
    /// # Safety
    /// The caller ensures that the number of setters that it announced to [`Self::configure`] includes this
    /// one.
    #[inline(always)]
    unsafe fn tweak(&self, mlx5: *mut Mlx5QpEx, io: &RefIo) {
        let crypto = CryptoAttr { tweak: u128::from(io.lba).to_le_bytes(), ..self.crypto };
        // SAFETY: the caller vouches for the announcement; the attributes live during the call.
        unsafe { ((*mlx5).set_mkey_crypto)(mlx5, &crypto) };
    }

    /// Sets T10-DIF on the wire, with the reference tag of an I/O.
    ///
    /// # Safety
    /// The caller ensures that the number of setters that it announced to [`Self::configure`] includes this
    /// one.
    #[inline(always)]
    unsafe fn ref_tag(&self, mlx5: *mut Mlx5QpEx, io: &RefIo) {
        let dif = DifAttr { ref_tag: io.lba as u32, ..self.dif };
        let wire = domain(0, &dif);
        // SAFETY: the caller vouches for the announcement; the attributes live during the call.
        unsafe { ((*mlx5).set_mkey_sig)(mlx5, &signature(&wire)) };
    }

    /// Adds an RDMA WRITE to the chain.
    ///
    /// # Safety
    /// The caller ensures that the queue pair is live, and that a chain has begun.
    #[inline(always)]
    unsafe fn write(ex: *mut QpEx, io: &RefIo, data: &IbvSge) {
        // SAFETY: the caller vouches for queue pair and chain.
        unsafe {
            ((*ex).rdma_write)(ex, io.rkey, io.remote);
            ((*ex).set_sge)(ex, data.lkey, data.address, data.length);
        }
    }

    /// Configures the mkey of an I/O: the layout, and depending on the kind of mkey T10-DIF and crypto.
    #[inline(always)]
    fn whole<const SIGNED: bool, const ENCRYPTED: bool>(&self, mlx5: *mut Mlx5QpEx, io: &RefIo) {
        // SAFETY: as many setters follow as are announced.
        unsafe {
            Self::configure(mlx5, io, 2 + SIGNED as u8 + ENCRYPTED as u8);
            Self::list(mlx5, io);
            if SIGNED {
                self.ref_tag(mlx5, io);
            }
            if ENCRYPTED {
                self.tweak(mlx5, io);
            }
        }
    }

    #[inline(never)]
    fn configurations<const BATCHED: usize, const SIGNED: bool, const ENCRYPTED: bool>(
        &self,
        requests: usize,
    ) -> Result<(), Fault> {
        self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, io| {
            self.whole::<SIGNED, ENCRYPTED>(mlx5, io);
        })
    }

    /// Posts a configuration with a list, in a chain of its own. Returns libmlx5's result.
    #[inline(always)]
    fn one_list(&self, io: &RefIo) -> i32 {
        self.chain(slice::from_ref(io), SIGNALED | INLINE, |_, mlx5, io| {
            self.whole::<false, false>(mlx5, io);
        })
    }

    /// Posts configurations with lists to a full queue, each of which libmlx5 must refuse.
    #[inline(never)]
    fn list_refused(&self, requests: usize) -> Result<(), Fault> {
        for io in &self.ios[..requests] {
            if std::hint::black_box(self.one_list(io)) != ENOMEM {
                return Err("libmlx5 does not refuse");
            }
        }
        Ok(())
    }

    /// Posts configurations with lists to a full queue, each after a completion that frees space for it.
    #[inline(never)]
    fn list_after_completion(&self, requests: usize) -> Result<(), Fault> {
        for io in &self.ios[..requests] {
            self.poll::<1>(1)?;
            if self.one_list(io) != 0 {
                return Err("libmlx5 refuses");
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn interleaved<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        // SAFETY: two setters follow `mkey_configure`; the streams live during the call.
        self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, io| unsafe {
            Self::configure(mlx5, io, 2);
            ((*mlx5).set_mkey_access)(mlx5, REMOTE_READ);
            ((*mlx5).set_mkey_interleaved)(mlx5, 4, 3, io.streams.as_ptr());
        })
    }

    #[inline(never)]
    fn crc32c<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        let wire = domain(1, &self.crc);
        let signature = signature(&wire);
        // SAFETY: three setters follow `mkey_configure`; the signature lives during the calls.
        self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, io| unsafe {
            Self::configure(mlx5, io, 3);
            Self::list(mlx5, io);
            ((*mlx5).set_mkey_sig)(mlx5, &signature);
        })
    }

    #[inline(never)]
    fn rdma_write<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        // SAFETY: the chain has begun.
        self.post::<BATCHED>(requests, SIGNALED, |ex, _, io| unsafe { Self::write(ex, io, &io.data) })
    }

    #[inline(never)]
    fn new_list<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        // SAFETY: one setter follows `mkey_configure`; the data segments live during the call.
        self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, io| unsafe {
            Self::configure(mlx5, io, 1);
            ((*mlx5).set_mkey_list)(mlx5, io.count, io.sges.as_ptr());
        })
    }

    #[inline(never)]
    fn new_tweak<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        // SAFETY: one setter follows `mkey_configure`.
        self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, io| unsafe {
            Self::configure(mlx5, io, 1);
            self.tweak(mlx5, io);
        })
    }

    #[inline(never)]
    fn new_ref_tag<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        // SAFETY: one setter follows `mkey_configure`.
        self.post::<BATCHED>(requests, SIGNALED | INLINE, |_, mlx5, io| unsafe {
            Self::configure(mlx5, io, 1);
            self.ref_tag(mlx5, io);
        })
    }

    /// Does whole I/Os: an unsignalled configuration, a signalled RDMA WRITE of the whole mkey, the doorbell,
    /// and the completion. `configure` issues one request.
    #[inline(always)]
    fn io(&self, requests: usize, configure: impl Fn(*mut Mlx5QpEx, &RefIo)) -> Result<(), Fault> {
        let (ex, mlx5) = (self.queue.ex(), self.queue.mlx5());
        for _ in 0..requests / IOS {
            for io in &self.ios {
                // SAFETY: the queue pair is live, belongs to libmlx5, and is used by nobody else.
                let posted = unsafe {
                    ((*ex).start)(ex);
                    (*ex).wr_id = io.id;
                    (*ex).wr_flags = INLINE;
                    configure(mlx5, io);
                    (*ex).wr_flags = SIGNALED;
                    let length = io.data.length * u32::from(io.count);
                    Self::write(ex, io, &IbvSge { address: 0, length, lkey: io.lkey });
                    ((*ex).complete)(ex)
                };
                if posted != 0 {
                    return Err("libmlx5 refuses");
                }
                self.poll::<1>(1)?;
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn io_of(&self, kind: Kind, requests: usize) -> Result<(), Fault> {
        match kind {
            Kind::Plain => self.io(requests, |mlx5, io| self.whole::<false, false>(mlx5, io)),
            Kind::Encrypted => self.io(requests, |mlx5, io| self.whole::<false, true>(mlx5, io)),
            Kind::Signed => self.io(requests, |mlx5, io| self.whole::<true, false>(mlx5, io)),
            Kind::Both => self.io(requests, |mlx5, io| self.whole::<true, true>(mlx5, io)),
        }
    }

    /// Posts receives, chained within a batch.
    #[inline(never)]
    fn receive<const BATCHED: usize>(&self, requests: usize) -> Result<(), Fault> {
        let context: *const IbvContext = self.device.context().as_ptr();
        let qp: *mut IbvQp = self.queue.qp();
        let mut chain =
            [const { RecvWr { wr_id: 0, next: ptr::null(), sges: ptr::null(), count: 1 } }; BATCHED];
        for batch in self.ios[..requests].chunks_exact(BATCHED) {
            let mut next: *const RecvWr = ptr::null();
            for (receive, io) in chain.iter_mut().zip(batch).rev() {
                *receive = RecvWr { wr_id: io.id, next, sges: &io.data, count: 1 };
                next = receive;
            }
            let mut bad = ptr::null();
            // SAFETY: context and queue pair are live and belong to libmlx5; the chain lives during the call.
            if unsafe { ((*context).post_recv)(qp, next, &mut bad) } != 0 {
                return Err("libmlx5 refuses a receive");
            }
        }
        Ok(())
    }

    /// Takes `completions` completions, and returns the `wr_id` of the last one's request.
    #[inline(never)]
    fn poll<const BATCHED: usize>(&self, completions: usize) -> Result<u64, Fault> {
        let context: *const IbvContext = self.device.context().as_ptr();
        let mut taken = [WorkCompletion::default(); BATCHED];
        let mut last = 0;
        for _ in 0..completions / BATCHED {
            // SAFETY: context and completion queue are live and belong to libmlx5; there is room for
            // `BATCHED` entries.
            let count = unsafe { ((*context).poll_cq)(self.device.cq(), BATCHED as i32, taken.as_mut_ptr()) };
            if usize::try_from(count) != Ok(BATCHED) {
                return Err("libmlx5 finds no completion");
            }
            for completion in &taken {
                if completion.status != 0 {
                    return Err("libmlx5 finds a failure");
                }
                last = std::hint::black_box(completion).wr_id;
            }
        }
        Ok(last)
    }

    /// Writes an entry to the completion queue, in place of the device.
    fn complete(&mut self, entry: Cqe) -> Result<(), Fault> {
        self.completions.deliver(zerocopy::transmute!(entry)).map_err(|_| "the completion queue is full")
    }

    /// Writes the completion entry of the send request that begins at block `counter` of a queue pair.
    fn complete_send(&mut self, user_index: u32, number: u32, counter: u16) -> Result<(), Fault> {
        self.complete(ours::completion(Qpn::from_low_bits(number), user_index, counter))
    }

    /// Gives each I/O an mkey of the kind that the work needs. Each run of [`Work::FirstList1`] and
    /// [`Work::FirstT10DifXts4`] gets new mkeys.
    fn give_mkeys(&mut self, work: Work, requests: usize) -> io::Result<()> {
        let kind = work.kind();
        let needed = if work.is_first() { requests } else { IOS };
        self.mkeys.retain(|(other, mkeys)| *other != kind || !work.is_first() && mkeys.len() == IOS);
        if !self.mkeys.iter().any(|(other, _)| *other == kind) {
            let create = |_| {
                RefMkey::create(&self.device, kind.has_signature(), kind.has_crypto(), MAX_ENTRIES as u16)
            };
            self.mkeys.push((kind, (0..needed).map(create).collect::<io::Result<_>>()?));
        }
        let mkeys = self.mkeys.iter().find(|(other, _)| *other == kind).map_or(&[][..], |(_, mkeys)| mkeys);
        let ios = Io::all(work.entries());
        self.ios = ios.iter().zip(mkeys).map(|(io, mkey)| RefIo::new(io, mkey)).collect();
        Ok(())
    }

    /// Configures all mkeys as they must be before a run. The bench does not count the instructions of this
    /// function.
    fn configure_all(&mut self, work: Work) -> Result<(), Fault> {
        for _ in 0..IOS / BATCH {
            match work.kind() {
                Kind::Plain => self.configurations::<1, false, false>(BATCH)?,
                Kind::Encrypted => self.configurations::<1, false, true>(BATCH)?,
                Kind::Signed => self.configurations::<1, true, false>(BATCH)?,
                Kind::Both => self.configurations::<1, true, true>(BATCH)?,
            }
            let last_blocks = if work.kind().has_signature() { 1 } else { 2 + work.entries().div_ceil(4) };
            let last_blocks = last_blocks + usize::from(work.kind() == Kind::Encrypted);
            self.drain_last(last_blocks)?;
            self.ios.rotate_left(BATCH);
        }
        Ok(())
    }

    /// Writes the completion entry of the last posted request, which begins `last_blocks` blocks before the
    /// next one, and polls this entry. Returns the request's `wr_id`.
    fn drain_last(&mut self, last_blocks: usize) -> Result<u64, Fault> {
        let counter = producer(&self.queue).wrapping_sub(last_blocks as u16);
        self.complete_send(0, self.queue.number, counter)?;
        self.poll::<1>(1)
    }

    /// Writes the completion entries that a run takes. Also posts the requests that these entries complete,
    /// unless the run posts them.
    fn complete_all(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        let Some(writes) = work.writes_per_completion() else {
            let start = producer(&self.queue);
            for at in 1..=requests {
                let counter = start.wrapping_add((at * work.blocks() - 1) as u16);
                self.complete_send(0, self.queue.number, counter)?;
            }
            return Ok(());
        };
        for at in 0..requests {
            let (user_index, queue) = match work {
                Work::Completion64Queues => (1 + (at % QUEUES) as u32, &self.many[at % QUEUES]),
                _ => (0, &self.queue),
            };
            let io = &self.ios[at % IOS];
            for write in 1..=writes {
                let ex = queue.ex();
                // SAFETY: the queue pair is live, belongs to libmlx5, and is used by nobody else.
                let posted = unsafe {
                    ((*ex).start)(ex);
                    (*ex).wr_id = io.id;
                    (*ex).wr_flags = if write == writes { SIGNALED } else { 0 };
                    Self::write(ex, io, &io.data);
                    ((*ex).complete)(ex)
                };
                if posted != 0 {
                    return Err("libmlx5 refuses a request to complete");
                }
            }
            let (number, counter) = (queue.number, producer(queue).wrapping_sub(1));
            self.complete_send(user_index, number, counter)?;
        }
        Ok(())
    }

    /// Posts RDMA WRITEs until the queue is full, and writes completions of the first of them. libmlx5's
    /// queue counts requests instead of blocks, so each completion frees space for one request.
    fn fill(&mut self, requests: usize) -> Result<(), Fault> {
        let start = producer(&self.queue);
        while self.rdma_write::<1>(1).is_ok() {}
        for at in 0..requests {
            self.complete_send(0, self.queue.number, start.wrapping_add(at as u16))?;
        }
        Ok(())
    }

    fn post_all(&self, work: Work, batch: usize, requests: usize) -> Result<(), Fault> {
        macro_rules! batched {
            ($method:ident $(, $const:literal)*) => {
                match batch {
                    1 => self.$method::<1 $(, $const)*>(requests),
                    _ => self.$method::<BATCH $(, $const)*>(requests),
                }
            };
        }
        match work {
            Work::Interleaved3 => batched!(interleaved),
            Work::Xts4 => batched!(configurations, false, true),
            Work::T10Dif1 => batched!(configurations, true, false),
            Work::Crc32c1 => batched!(crc32c),
            Work::T10DifXts4 | Work::FirstT10DifXts4 => batched!(configurations, true, true),
            Work::RdmaWrite => batched!(rdma_write),
            Work::ReconfigureList4 => batched!(new_list),
            Work::ReconfigureTweak => batched!(new_tweak),
            Work::ReconfigureRefTag => batched!(new_ref_tag),
            Work::Receive => batched!(receive),
            _ if work.is_io() => self.io_of(work.kind(), requests),
            _ if work.is_refused() => self.list_refused(requests),
            _ if work.is_on_full_queue() => self.list_after_completion(requests),
            Work::Completion16 => self.poll::<BATCH>(requests).map(drop),
            _ if work.writes_per_completion().is_some() => self.poll::<1>(requests).map(drop),
            _ => batched!(configurations, false, false),
        }
    }
}

/// Returns the block at which the next request begins.
fn producer(queue: &RefQueue) -> u16 {
    let [.., high, low] = queue.counter();
    u16::from_be_bytes([high, low])
}

impl Side for Libmlx5 {
    fn does(&self, work: Work, _batch: usize) -> bool {
        // Environment variables decide whether libmlx5 uses BlueFlame, so BlueFlame is not a separate kind of
        // work for libmlx5.
        work != Work::RdmaWriteBlueFlame
    }

    fn prepare(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        if self.work != Some(work) || work.is_first() {
            self.give_mkeys(work, requests).map_err(|_| "libmlx5 creates no mkey")?;
            if !work.is_first() {
                self.configure_all(work)?;
            }
            self.work = Some(work);
        }
        // The work may begin at any block of libmlx5's ring, which is longer than the library's, if its
        // requests end before the ring's end. Only the work of which `exact` is true must begin at a certain
        // block.
        let exact = work.is_io() || work.blocks_to_end() != BLOCKS;
        loop {
            let to_end = self.queue.blocks - usize::from(producer(&self.queue)) % self.queue.blocks;
            let needed = if work.is_on_full_queue() { 2 * BLOCKS } else { BLOCKS };
            if to_end == work.blocks_to_end() || !exact && to_end >= needed {
                break;
            }
            self.rdma_write::<1>(1)?;
            self.drain_last(1)?;
        }
        if work.is_io() || work.writes_per_completion().is_some() {
            self.complete_all(work, requests)?;
        }
        if work.is_on_full_queue() {
            self.fill(if work.is_refused() { 0 } else { requests })?;
        }
        Ok(())
    }

    fn run(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), Fault> {
        self.post_all(work, batch, requests)
    }

    fn blocks(&self) -> u16 {
        producer(&self.queue)
    }

    fn drain(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        match work {
            _ if work.is_io() || work.writes_per_completion().is_some() => Ok(()),
            Work::Receive => {
                for _ in 0..requests {
                    let mut entry = ours::completion(Qpn::from_low_bits(self.queue.number), 0, 0);
                    entry.op_own = OpOwn::new().with_opcode(CqeOpcode::RESPONDER_SEND.0).into_bits();
                    self.complete(entry)?;
                }
                self.poll::<1>(requests).map(drop)
            }
            // All requests of the work were refused, so the last posted request is an RDMA WRITE of `fill`.
            _ if work.is_refused() => self.drain_last(1).map(drop),
            _ => {
                // The completed request must be the last one. If an earlier one completed, the queue would
                // become fuller with each run.
                let last = self.drain_last(work.last_blocks())?;
                if last + 1 == requests as u64 { Ok(()) } else { Err("libmlx5 completes another request") }
            }
        }
    }
}
