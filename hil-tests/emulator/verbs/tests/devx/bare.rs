//! Tests of the library without its module `devx`, as on bare metal: raw calls of libmlx5 make the objects,
//! and this program has its own rings, records and doorbells. The tests cover the ways to request events that
//! `devx` does not use.
#![allow(unsafe_code)]

use crate::umem::{LENGTH, create_cq, create_qp, divided};
use crate::verbs::Opened;
use crate::{MOMENT, TIMEOUT};
use mlx5_mkey::command::{Command, CreateQp, Pdn, QpAccess, UarPage, UmemId, UmemSlice};
use mlx5_mkey::queue::{
    ArmFor, CompletionQueue, QpRouter, SendQueue, SendQueueConfig, SendSlot, UarCqDoorbell, UarDoorbell,
};
use mlx5_mkey::types::{Cqn, Qpn};
use mlx5_testing::loopback::{encoded, loopback};
use mlx5_testing::preload::{Side::Inside, preloaded};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

/// A doorbell page of libmlx5 (`struct mlx5dv_devx_uar`).
#[repr(C)]
struct Uar {
    reg_addr: *mut c_void,
    base_addr: *mut c_void,
    page_id: u32,
}

/// `struct mlx5dv_obj`, pairs of pointers to an input and an output. Only the seventh pair is used, for
/// protection domains.
#[repr(C)]
struct Dv([*mut c_void; 16]);

/// Offsets of the completion queues' numbers in CREATE_QP.
const SEND_CQN: usize = 0x18 + 0x7c;
const RECEIVE_CQN: usize = 0x18 + 0x9c;
/// The offset of the byte with `send_dbr_mode` in CREATE_QP, and the mode without a record (`NO_DBR_EXT`).
const RECORD_MODE: usize = 0x18 + 0x10;
const NO_RECORD: u8 = 1 << 6;

/// A send queue and its completion queue, which exist until the process ends.
struct Bare {
    opened: Opened,
    qp: *mut c_void,
    qpn: Qpn,
    cq: *mut c_void,
    cqn: Cqn,
    uar_page: NonNull<u64>,
    /// The send counter in the doorbell record.
    counter: NonNull<u32>,
    /// The command that has made the queue pair.
    input: Vec<u8>,
    completions: CompletionQueue<'static>,
    doorbell: UarCqDoorbell,
    send: SendQueue<'static, UarDoorbell>,
}

fn create<C: Command>(opened: &Opened, command: &C) -> (*mut c_void, C::Reply) {
    let (object, output) = create_raw(opened, &encoded(command), C::OUTPUT);
    (object, command.decode(&output).unwrap())
}

/// Makes an object by a raw command. Returns null if the command is refused.
fn create_raw(opened: &Opened, input: &[u8], length: usize) -> (*mut c_void, Vec<u8>) {
    let mut output = vec![0_u8; length];
    let object = call!(&opened.mlx5, "mlx5dv_devx_obj_create": fn(
        opened.raw.as_ptr() => *mut c_void,
        input.as_ptr() => *const u8,
        input.len() => usize,
        output.as_mut_ptr() => *mut u8,
        output.len() => usize
    ) -> *mut c_void);
    (object, output)
}

impl Bare {
    fn new() -> Self {
        Self::with(0)
    }

    /// Makes the queues. `record_mode` is the byte with `send_dbr_mode`.
    fn with(record_mode: u8) -> Self {
        let opened = Opened::new();
        let context = opened.raw.as_ptr();
        let (mut eqn, mut pdn) = (0_u32, [0_u64; 2]);
        let found = call!(&opened.mlx5, "mlx5dv_devx_query_eqn": fn(
            context => *mut c_void, 0 => u32, &mut eqn => *mut u32
        ) -> c_int);
        assert_eq!(found, 0);
        let pd = call!(&opened.verbs, "ibv_alloc_pd": fn(context => *mut c_void) -> *mut c_void);
        let mut dv = Dv([ptr::null_mut(); 16]);
        (dv.0[12], dv.0[13]) = (pd, ptr::from_mut(&mut pdn).cast());
        let described =
            call!(&opened.mlx5, "mlx5dv_init_obj": fn(&mut dv => *mut Dv, 1 << 6 => u64) -> c_int);
        assert_eq!(described, 0);
        let uar = call!(&opened.mlx5, "mlx5dv_devx_alloc_uar": fn(
            context => *mut c_void, 1 => u32
        ) -> *const Uar);
        let words = vec![0_u64; (LENGTH + 4096) / 8].leak().as_mut_ptr().cast::<u8>();
        let memory = words.wrapping_add(words.align_offset(4096));
        let umem = call!(&opened.mlx5, "mlx5dv_devx_umem_reg": fn(
            context => *mut c_void, memory => *mut u8, LENGTH => usize, 1 => u32
        ) -> *const u32);
        // SAFETY: libmlx5 has made both structures. The first field of a umem is its number.
        let (uar, umem) = unsafe { (&*uar, UmemId(*umem)) };
        let page = UarPage::new(uar.page_id).unwrap();
        // SAFETY: the memory is leaked, aligned, and full of zeros.
        let (ring, send_ring, cq_record, qp_record) = unsafe { divided(memory) };
        let (cq, cqn) = create(&opened, &create_cq(page, eqn, UmemSlice { umem, offset: 0 }));
        let request = create_qp(Pdn::new(pdn[0] as u32).unwrap(), page, cqn, umem);
        // Some programs write 0 for the completion queue of a missing receive queue.
        let mut input = encoded(&request);
        input[RECORD_MODE] |= record_mode;
        let mut set = |at: usize, cqn: u32| {
            input[at..at + 4].copy_from_slice(&cqn.to_be_bytes());
            create_raw(&opened, &input, CreateQp::OUTPUT)
        };
        assert!(set(RECEIVE_CQN, 0xffff).0.is_null(), "no such queue");
        let (qp, reply) = set(RECEIVE_CQN, 0);
        let qpn = request.decode(&reply).unwrap();
        assert!(set(SEND_CQN, 0).0.is_null(), "sends do need one");
        input[SEND_CQN..SEND_CQN + 4].copy_from_slice(&cqn.get().to_be_bytes());
        connect(&opened, qp, qpn);
        let uar_page = NonNull::new(uar.base_addr.cast::<u64>()).unwrap();
        // SAFETY: both registers belong to the page that the queues were made with. The page is never
        // unmapped, and nobody else rings.
        let (rings, doorbell) = unsafe {
            (UarDoorbell::new(NonNull::new(uar.reg_addr.cast()).unwrap()), UarCqDoorbell::new(uar_page, cqn))
        };
        let counter = NonNull::from(qp_record).cast::<u32>();
        // SAFETY: a record has 8 bytes, and the counter is their second half.
        let counter = unsafe { counter.add(1) };
        let completions = CompletionQueue::new(ring, cq_record).unwrap();
        let slots = vec![SendSlot::EMPTY; send_ring.len()].leak();
        let send = SendQueue::new(SendQueueConfig::new(qpn), send_ring, slots, qp_record, rings).unwrap();
        Self { opened, qp, qpn, cq, cqn, uar_page, counter, input, completions, doorbell, send }
    }

    /// Makes an event channel with these flags. Returns the channel, and its descriptor as a file.
    fn channel(&self, flags: c_int) -> (*mut c_int, File) {
        let channel = call!(&self.opened.mlx5, "mlx5dv_devx_create_event_channel": fn(
            self.opened.raw.as_ptr() => *mut c_void, flags => c_int
        ) -> *mut c_int);
        // SAFETY: a channel begins with its descriptor, which libmlx5 never closes here.
        let file = unsafe {
            assert_eq!(libc::fcntl(*channel, libc::F_SETFL, libc::O_NONBLOCK), 0);
            File::from_raw_fd(*channel)
        };
        (channel, file)
    }

    fn subscribe(&self, channel: *mut c_int, cookie: u64) {
        let event = 0_u16;
        let result = call!(&self.opened.mlx5, "mlx5dv_devx_subscribe_devx_event": fn(
            channel => *mut c_int, self.cq => *mut c_void, 2 => u16, &event => *const u16, cookie => u64
        ) -> c_int);
        assert_eq!(result, 0);
    }

    fn signal(&self, channel: *mut c_int, descriptor: c_int) -> c_int {
        call!(&self.opened.mlx5, "mlx5dv_devx_subscribe_devx_event_fd": fn(
            channel => *mut c_int, descriptor => c_int, self.cq => *mut c_void, 0 => u16
        ) -> c_int)
    }

    fn post(&mut self) {
        self.send.request(0).signaled().nop().unwrap();
        self.send.ring_doorbell();
    }

    fn arm(&mut self, entries: ArmFor) {
        self.completions.arm(&mut self.doorbell, entries);
    }

    /// Waits for the next completion.
    fn completed(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.completions.poll(&mut QpRouter { queues: &mut self.send, mkeys: &mut [] }).is_none() {
            assert!(Instant::now() < end, "no completion");
            std::thread::yield_now();
        }
    }
}

/// Connects a queue pair to itself.
fn connect(opened: &Opened, qp: *mut c_void, qpn: Qpn) {
    let (initialise, receive, send) = loopback(qpn, QpAccess::READ_WRITE);
    for input in [encoded(&initialise), encoded(&receive), encoded(&send)] {
        let mut output = [0_u8; 16];
        let result = call!(&opened.mlx5, "mlx5dv_devx_obj_modify": fn(
            qp => *mut c_void,
            input.as_ptr() => *const u8,
            input.len() => usize,
            output.as_mut_ptr() => *mut u8,
            output.len() => usize
        ) -> c_int);
        assert_eq!(result, 0);
    }
}

/// Waits for bytes until the limit has passed. Returns the bytes, or `None` if no byte has arrived.
fn read(file: &mut File, limit: Option<Duration>) -> Option<Vec<u8>> {
    let mut bytes = [0; 128];
    crate::verbs::readable(file, limit.unwrap()).then(|| {
        let length = file.read(&mut bytes).unwrap();
        bytes[..length].to_vec()
    })
}

#[test]
fn events_go_to_channels_and_eventfds() {
    let Inside = preloaded() else { return };
    let mut bare = Bare::new();
    let ((full, mut full_file), (short, mut short_file)) = (bare.channel(0), bare.channel(1));
    bare.subscribe(full, 5);
    bare.subscribe(short, 6);
    // SAFETY: the call makes a descriptor, which belongs to this file alone.
    let mut eventfd = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK)) };
    assert_eq!(bare.signal(full, full_file.as_raw_fd()), libc::EINVAL, "no eventfd");
    assert_eq!(bare.signal(full, 9999), libc::EBADF, "nothing");
    assert_eq!(bare.signal(full, eventfd.as_raw_fd()), 0);
    let mut entry = vec![0; 72];
    entry[0] = 5;
    entry[8 + 0x38..8 + 0x3c].copy_from_slice(&bare.cqn.get().to_be_bytes());
    let mut told = |limit| [&mut full_file, &mut short_file, &mut eventfd].map(|file| read(file, limit));
    let once = [entry, 6_u64.to_ne_bytes().to_vec(), 1_u64.to_ne_bytes().to_vec()].map(Some);
    let none = [None, None, None];
    for round in 0..6_u8 {
        bare.post();
        bare.completed();
        bare.post();
        assert_eq!(told(MOMENT), none, "{round}: not armed, or armed for what was told");
        bare.arm(ArmFor::Solicited);
        assert_eq!(told(MOMENT), none, "{round}: it is not solicited");
        bare.arm(ArmFor::Any);
        assert_eq!(told(TIMEOUT), once, "{round}");
        let (sequence, index) = (2 * round % 4, 3 * round + 1);
        // SAFETY: the page is mapped, and the device never writes it.
        let register = unsafe { bare.uar_page.as_ptr().byte_add(0x20).read_volatile() };
        let [.., a, b, c] = bare.cqn.get().to_be_bytes();
        assert_eq!(register.to_ne_bytes(), [sequence << 4, 0, 0, index, 0, a, b, c]);
        bare.completed();
        bare.post();
        bare.arm(ArmFor::Any);
        assert_eq!(told(MOMENT), none, "{round}: once for each sequence number");
        bare.completions.event_received();
        bare.arm(ArmFor::Any);
        assert_eq!(told(TIMEOUT), once, "{round}: at once");
        bare.completed();
        bare.completions.event_received();
    }
}

#[test]
fn answers_that_nobody_waits_for_come_through_a_descriptor() {
    let Inside = preloaded() else { return };
    const LENGTH: usize = 0x110;
    let bare = Bare::new();
    let mlx5 = &bare.opened.mlx5;
    let channel = call!(mlx5, "mlx5dv_devx_create_cmd_comp": fn(
        bare.opened.raw.as_ptr() => *mut c_void
    ) -> *mut c_int);
    assert!(!channel.is_null());
    // SAFETY: a channel begins with its descriptor, which stays open until it is destroyed.
    let file = unsafe { BorrowedFd::borrow_raw(*channel) };
    let mut input = [0_u8; 16];
    input[..2].copy_from_slice(&0x50b_u16.to_be_bytes());
    input[8..12].copy_from_slice(&bare.qpn.get().to_be_bytes());
    let ask = |input: &[u8], length: usize, number: u64| {
        call!(mlx5, "mlx5dv_devx_obj_query_async": fn(
            bare.qp => *mut c_void,
            input.as_ptr() => *const u8,
            input.len() => usize,
            length => usize,
            number => u64,
            channel => *mut c_int
        ) -> c_int)
    };
    assert_eq!(ask(&[0; 16], LENGTH, 1), libc::EINVAL, "no question about a queue pair");
    for number in [7, 8] {
        assert_eq!(ask(&input, LENGTH, number), 0);
    }
    for number in [7, 8_u64] {
        assert!(crate::verbs::readable(&file, TIMEOUT.unwrap()));
        let mut answer = [0xff_u8; 8 + LENGTH];
        let read = call!(mlx5, "mlx5dv_devx_get_async_cmd_comp": fn(
            channel => *mut c_int, answer.as_mut_ptr() => *mut u8, answer.len() => usize
        ) -> c_int);
        assert_eq!((read, &answer[..8]), (0, &number.to_ne_bytes()[..]));
        // The status is good, and the state in the context is "ready to send".
        assert_eq!((answer[8], answer[8 + 0x18] >> 4), (0, 3));
    }
    call!(mlx5, "mlx5dv_devx_destroy_cmd_comp": fn(channel => *mut c_int));
}

#[test]
fn doorbells_alone_announce_requests_of_a_queue_pair_without_a_record() {
    let Inside = preloaded() else { return };
    let mut bare = Bare::with(NO_RECORD);
    for _ in 0..100 {
        bare.post();
        bare.completed();
    }
    // SAFETY: the record is mapped, and no other thread of this program uses it.
    unsafe { bare.counter.write_volatile(101_u32.to_be()) };
    std::thread::sleep(MOMENT.unwrap());
    let mut router = QpRouter { queues: &mut bare.send, mkeys: &mut [] };
    assert!(bare.completions.poll(&mut router).is_none(), "the device does not read the record");
    // A doorbell of one queue pair may overwrite that of another on the same page.
    for mode in [NO_RECORD, 0] {
        bare.input[RECORD_MODE] = mode;
        assert!(create_raw(&bare.opened, &bare.input, CreateQp::OUTPUT).0.is_null(), "{mode}");
    }
    bare.input[RECORD_MODE] = 3 << 6;
    assert!(create_raw(&bare.opened, &bare.input, CreateQp::OUTPUT).0.is_null(), "no mode");
    bare.post();
    bare.completed();
}
