//! A queue pair of libibverbs that the tests make, connect and use as any verbs program does, and tests of
//! it.
#![allow(unsafe_code)]

use super::TIMEOUT;
use super::verbs::{Opened, readable, stand_in};
use libloading::Library;
use libmlx5::abi::{IbvContext, IbvQp, IbvQpAttr, IbvSge, QpCap, QpInitAttr, RecvWr, WorkCompletion};
use mlx5_mkey::command::MkeyEntries;
use mlx5_mkey::devx::{AdoptSpec, Cq, CqReader, Device, DevxError, ProtectionDomain, QueuePair};
use mlx5_mkey::mkey::{Access, KsmEntry};
use mlx5_mkey::types::{Key, KsmEntrySize};
use mlx5_mkey::wqe::{Remote, Sge};
use mlx5_testing::preload::{Side::Inside, preloaded};
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

/// A send request of libibverbs (`struct ibv_send_wr`).
#[repr(C)]
struct SendWr {
    wr_id: u64,
    next: *const SendWr,
    sges: *const IbvSge,
    count: c_int,
    opcode: u32,
    flags: u32,
    imm: u32,
    remote: u64,
    rkey: u32,
    rest: [u64; 9],
}

const _: () = assert!(size_of::<SendWr>() == 128);

const RDMA_WRITE: u32 = 0;
const SEND: u32 = 2;
const SIGNALED: u32 = 2;
const INLINE: u32 = 8;
/// The usual access flags: `IBV_ACCESS_LOCAL_WRITE`, `_REMOTE_WRITE`, `_REMOTE_READ`.
const ACCESS: c_int = 7;

/// The sizes of a queue pair.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) entries: c_int,
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    /// The bytes of an RDMA WRITE, which are inline in the request. 0 means 64 bytes from memory.
    pub(crate) inline: u32,
}

impl Sizes {
    /// Sizes for 16 completion entries, 64 blocks and 4 receive slots.
    pub(crate) const SMALL: Self = Self { entries: 15, sends: 16, receives: 4, inline: 0 };
}

/// A queue pair of libibverbs, and a page from which it sends and to which it receives.
pub(crate) struct VerbsQp {
    pub(crate) opened: Opened,
    pub(crate) pd: NonNull<c_void>,
    /// The channel of the completion queue.
    channel: NonNull<c_void>,
    pub(crate) cq: NonNull<c_void>,
    pub(crate) qp: NonNull<IbvQp>,
    region: NonNull<c_void>,
    page: &'static mut [u64],
    inline: u32,
}

impl VerbsQp {
    /// Makes an unconnected queue pair.
    pub(crate) fn new(sizes: Sizes) -> Self {
        let opened = Opened::new();
        let (verbs, raw) = (&opened.verbs, opened.raw.as_ptr());
        let pd = call!(verbs, "ibv_alloc_pd": fn(raw => *mut c_void) -> *mut c_void);
        let channel = call!(verbs, "ibv_create_comp_channel": fn(raw => *mut c_void) -> *mut c_void);
        let cq = call!(verbs, "ibv_create_cq": fn(
            raw => *mut c_void,
            sizes.entries => c_int,
            ptr::null_mut() => *mut c_void,
            channel => *mut c_void,
            0 => c_int
        ) -> *mut c_void);
        let cap = QpCap {
            max_send_wr: sizes.sends,
            max_recv_wr: sizes.receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: sizes.inline,
        };
        // libibverbs takes `struct ibv_qp_init_attr` here, which is the beginning of this extended structure.
        let mut attr = QpInitAttr {
            context: ptr::null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: ptr::null_mut(),
            cap,
            qp_type: 2,
            sq_sig_all: 0,
            comp_mask: 0,
            pd: ptr::null_mut(),
            between: [0; 7],
            send_ops_flags: 0,
        };
        let qp =
            call!(verbs, "ibv_create_qp": fn(pd => *mut c_void, &mut attr => *mut QpInitAttr) -> *mut IbvQp);
        let page = vec![0_u64; 512].leak();
        let region = call!(verbs, "ibv_reg_mr": fn(
            pd => *mut c_void,
            page.as_mut_ptr().cast() => *mut c_void,
            4096 => usize,
            ACCESS => c_int
        ) -> *mut c_void);
        let [pd, channel, cq, region] = [pd, channel, cq, region].map(|object| NonNull::new(object).unwrap());
        Self { pd, channel, cq, qp: NonNull::new(qp).unwrap(), region, page, opened, inline: sizes.inline }
    }

    /// Makes a queue pair that is connected to itself.
    pub(crate) fn connected(sizes: Sizes) -> Self {
        Self::connected_for(sizes, ACCESS)
    }

    /// Makes a queue pair that is connected to itself, with these access rights for its peer.
    fn connected_for(sizes: Sizes, access: c_int) -> Self {
        let new = Self::new(sizes);
        let mut gid = [0_u64; 2];
        call!(new.verbs(), "ibv_query_gid": fn(
            new.opened.raw.as_ptr() => *mut c_void,
            1 => u8,
            0 => c_int,
            &mut gid => *mut [u64; 2]
        ) -> c_int);
        let attr = IbvQpAttr {
            port: 1,
            access: access as u32,
            path_mtu: 5,
            dest_qp: new.number(),
            gid,
            is_global: 1,
            ah_port: 1,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            ..IbvQpAttr::default()
        };
        for (state, mask) in [(1, 0x39), (2, 0x12_9181), (3, 0x1_2e01)] {
            let mut attr = IbvQpAttr { state, ..attr };
            let result = call!(new.verbs(), "ibv_modify_qp": fn(
                new.qp.as_ptr() => *mut IbvQp,
                &mut attr => *mut IbvQpAttr,
                mask => c_int
            ) -> c_int);
            assert_eq!(result, 0, "to state {state}");
        }
        new
    }

    fn verbs(&self) -> &Library {
        &self.opened.verbs
    }

    /// Returns the queue pair's number.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the structure lives until it is destroyed.
        unsafe { self.qp.as_ref() }.qp_num
    }

    /// Returns the data segment over the first bytes of the page.
    pub(crate) fn sge(&self) -> Sge {
        // SAFETY: `struct ibv_mr` has the local key at offset 36.
        let lkey = unsafe { self.region.cast::<u32>().add(9).read() };
        Sge { address: self.page.as_ptr().expose_provenance() as u64, length: 64, lkey: Key::from_raw(lkey) }
    }

    /// Returns the target of requests: the second half of the page.
    pub(crate) fn remote(&self) -> Remote {
        // SAFETY: `struct ibv_mr` has the remote key at offset 40.
        let rkey = unsafe { self.region.cast::<u32>().add(10).read() };
        Remote { address: self.sge().address + 2048, rkey: Key::from_raw(rkey) }
    }

    /// Sets the first words of the page to a number. Requests send these words.
    pub(crate) fn fill(&mut self, number: u64) {
        for word in self.page.iter_mut().take(8) {
            // SAFETY: `word` is a word of the page, which the device may read and write as well.
            unsafe { ptr::from_mut(word).write_volatile(number) };
        }
    }

    /// Returns the first word of the target of requests.
    pub(crate) fn written(&self) -> u64 {
        // SAFETY: the word belongs to the page, which the device may write at the same time.
        unsafe { self.page.as_ptr().add(256).read_volatile() }
    }

    /// Posts a signalled request over the start of the page, with `inline` bytes of inline data unless this
    /// number is 0.
    fn post(&self, opcode: u32, inline: u32) {
        let (sge, remote) = (self.sge(), self.remote());
        let (length, flags) = if inline > 0 { (inline, SIGNALED | INLINE) } else { (sge.length, SIGNALED) };
        let sge = IbvSge { address: sge.address, length, lkey: sge.lkey.get() };
        let request = SendWr {
            wr_id: 77,
            next: ptr::null(),
            sges: &sge,
            count: 1,
            opcode,
            flags,
            imm: 0,
            remote: remote.address,
            rkey: remote.rkey.get(),
            rest: [0; 9],
        };
        let mut bad = ptr::null();
        type PostSend = unsafe extern "C" fn(*mut IbvQp, *const SendWr, *mut *const SendWr) -> c_int;
        // SAFETY: in the context, `post_send` is the function before `post_recv`, with this signature. Queue
        // pair and request live.
        unsafe {
            let [.., post_send] = self.context().between;
            let post_send = std::mem::transmute::<*const c_void, PostSend>(post_send);
            assert_eq!(post_send(self.qp.as_ptr(), &request, &mut bad), 0);
        }
    }

    fn context(&self) -> &IbvContext {
        // SAFETY: the context is open.
        unsafe { self.opened.raw.cast::<IbvContext>().as_ref() }
    }

    /// Posts an RDMA WRITE of the start of the page to [`Self::remote`].
    pub(crate) fn post_write(&self) {
        self.post(RDMA_WRITE, self.inline);
    }

    /// Posts a SEND of the start of the page.
    pub(crate) fn post_message(&self) {
        self.post(SEND, 0);
    }

    /// Posts a receive request whose buffer is [`Self::remote`].
    pub(crate) fn post_receive(&self) {
        let sge = self.sge();
        let sge = IbvSge { address: self.remote().address, length: sge.length, lkey: sge.lkey.get() };
        let request = RecvWr { wr_id: 78, next: ptr::null(), sges: &sge, count: 1 };
        let mut bad = ptr::null();
        // SAFETY: queue pair and request live.
        assert_eq!(unsafe { (self.context().post_recv)(self.qp.as_ptr(), &request, &mut bad) }, 0);
    }

    /// Waits for `count` completions, which must be without an error.
    pub(crate) fn poll(&self, count: usize) {
        for _ in 0..count {
            let mut completion = WorkCompletion::default();
            loop {
                // SAFETY: the queue lives, and there is room for one completion.
                match unsafe { (self.context().poll_cq)(self.cq.as_ptr(), 1, &mut completion) } {
                    0 => std::thread::yield_now(),
                    1 => break,
                    other => panic!("{other}"),
                }
            }
            assert_eq!(completion.status, 0);
        }
    }

    /// Arms the completion queue for an event, through libibverbs.
    pub(crate) fn request_event(&self) {
        // SAFETY: the queue lives.
        assert_eq!(unsafe { (self.context().req_notify_cq)(self.cq.as_ptr(), 0) }, 0);
    }

    /// Waits for an event of the completion queue.
    pub(crate) fn take_event(&self) {
        // SAFETY: `struct ibv_comp_channel` has its descriptor after a pointer, and lives.
        let channel = unsafe { BorrowedFd::borrow_raw(self.channel.cast::<c_int>().add(2).read()) };
        assert!(readable(&channel, TIMEOUT.unwrap()), "no event");
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        let result = call!(self.verbs(), "ibv_get_cq_event": fn(
            self.channel.as_ptr() => *mut c_void,
            &mut cq => *mut *mut c_void,
            &mut context => *mut *mut c_void
        ) -> c_int);
        assert_eq!((result, cq), (0, self.cq.as_ptr()));
        call!(self.verbs(), "ibv_ack_cq_events": fn(cq => *mut c_void, 1 => u32));
    }

    /// Waits for an event of the context, and returns its number (`enum ibv_event_type`).
    fn take_async_event(&self) -> c_int {
        const OPERATIONS: usize = 32;
        // SAFETY: `struct ibv_context` has this descriptor after a pointer, its operations and another
        // descriptor.
        let descriptor = unsafe { self.opened.raw.cast::<c_int>().add(2 + 2 * OPERATIONS + 1).read() };
        // SAFETY: the context is open.
        let channel = unsafe { BorrowedFd::borrow_raw(descriptor) };
        assert!(readable(&channel, TIMEOUT.unwrap()), "no event");
        // `struct ibv_async_event` holds the object of the event, then the event's kind.
        let mut event = [0_u64; 2];
        let raw = self.opened.raw.as_ptr();
        let result = call!(self.verbs(), "ibv_get_async_event": fn(
            raw => *mut c_void,
            &mut event => *mut [u64; 2]
        ) -> c_int);
        assert_eq!((result, event[0]), (0, self.qp.as_ptr().expose_provenance() as u64));
        call!(self.verbs(), "ibv_ack_async_event": fn(&mut event => *mut [u64; 2]));
        event[1] as c_int
    }

    /// Hands the queues over to `devx`. Afterwards, tests do not use them through libibverbs.
    pub(crate) fn adopt(&self, spec: AdoptSpec) -> Result<(QueuePair, CqReader, Device), DevxError> {
        let device = self.opened.adopt()?;
        let pd = self.adopt_pd(&device)?;
        let (cq, reader) = self.adopt_cq(&device)?;
        let queue = self.adopt_qp(&device, &pd, [&cq, &cq], spec)?;
        Ok((queue, reader, device))
    }

    /// Hands the protection domain over to `devx`.
    pub(crate) fn adopt_pd(&self, device: &Device) -> Result<ProtectionDomain, DevxError> {
        // SAFETY: the pointer is a protection domain of libibverbs, which tests free last.
        unsafe { device.adopt_pd(self.pd) }
    }

    /// Hands the completion queue over to `devx`.
    pub(crate) fn adopt_cq(&self, device: &Device) -> Result<(Cq, CqReader), DevxError> {
        // SAFETY: the pointer is a completion queue of libibverbs, which tests destroy after the object that
        // `devx` made from it.
        unsafe { device.adopt_cq(self.cq) }
    }

    /// Hands the queue pair over to `devx`.
    pub(crate) fn adopt_qp(
        &self,
        device: &Device,
        pd: &ProtectionDomain,
        [send_cq, receive_cq]: [&Cq; 2],
        spec: AdoptSpec,
    ) -> Result<QueuePair, DevxError> {
        // SAFETY: the pointer is a queue pair of libibverbs, which tests destroy after the object that `devx`
        // made from it. One thread uses all queues.
        unsafe { device.adopt_qp(self.qp.cast(), pd, send_cq, receive_cq, spec) }
    }

    /// Destroys all objects and closes the context.
    pub(crate) fn destroy(self) {
        let Self { opened, pd, channel, cq, qp, region, .. } = self;
        let verbs = &opened.verbs;
        let results = [
            call!(verbs, "ibv_destroy_qp": fn(qp.as_ptr() => *mut IbvQp) -> c_int),
            call!(verbs, "ibv_destroy_cq": fn(cq.as_ptr() => *mut c_void) -> c_int),
            call!(verbs, "ibv_destroy_comp_channel": fn(channel.as_ptr() => *mut c_void) -> c_int),
            call!(verbs, "ibv_dereg_mr": fn(region.as_ptr() => *mut c_void) -> c_int),
            call!(verbs, "ibv_dealloc_pd": fn(pd.as_ptr() => *mut c_void) -> c_int),
        ];
        assert_eq!(results, [0; 5]);
        opened.close();
    }
}

/// A request that the queue pair forbids its peer raises an event of libibverbs, and the device keeps the
/// cause of the failed completion.
#[test]
fn a_peer_that_asks_for_what_is_forbidden_makes_an_event() {
    const REQ_ERR: c_int = 2;
    let Inside = preloaded() else { return };
    // 1 is `IBV_ACCESS_LOCAL_WRITE`, so the peer has no rights.
    let queue = VerbsQp::connected_for(Sizes::SMALL, 1);
    queue.post_write();
    assert_eq!(queue.take_async_event(), REQ_ERR);
    let mut words = [0_u8; 4096];
    let length = call!(&stand_in(), "mlx5_uverbs_completions": fn(
        words.as_mut_ptr() => *mut u8,
        words.len() => usize
    ) -> usize);
    let words = str::from_utf8(&words[..length]).unwrap();
    assert!(words.contains("REQ_ERR: ") && words.contains("forbids its peer to write (rwe)"), "{words}");
}

/// A list mkey with remote atomics over a region with relaxed ordering is refused with the syndrome that a
/// ConnectX gives.
#[test]
fn atomics_over_relaxed_order_have_their_number() {
    /// The flags `IBV_ACCESS_REMOTE_ATOMIC` and `IBV_ACCESS_RELAXED_ORDERING`.
    const RELAXED_ATOMIC: c_int = 8 | 1 << 20;
    let Inside = preloaded() else { return };
    let queue = VerbsQp::new(Sizes::SMALL);
    let address = queue.sge().address;
    for (access, refused) in [(ACCESS | 8, false), (ACCESS | RELAXED_ATOMIC, true)] {
        let region = call!(queue.verbs(), "ibv_reg_mr": fn(
            queue.pd.as_ptr() => *mut c_void,
            ptr::with_exposed_provenance_mut(address as usize) => *mut c_void,
            4096 => usize,
            access => c_int
        ) -> *mut c_void);
        // SAFETY: `struct ibv_mr` has the local key at offset 36.
        let lkey = unsafe { NonNull::new(region).unwrap().cast::<u32>().add(9).read() };
        let device = queue.opened.adopt().unwrap();
        let pd = queue.adopt_pd(&device).unwrap();
        let entries = [KsmEntry { address, key: Key::from_raw(lkey) }];
        let entries = MkeyEntries::Ksm(KsmEntrySize::new(4096).unwrap(), &entries);
        let made = pd.create_list_mkey(Access::ALL, 0, entries).map(drop).map_err(|error| error.to_string());
        assert_eq!(made.is_err(), refused, "{made:?}");
        if let Err(error) = made {
            assert!(error.contains("syndrome 0x0045d3a4"), "{error}");
        }
    }
}
