//! Tests of queues that the program makes by its own commands, in memory of a dma-buf. A memfd is used
//! instead of a dma-buf.
#![allow(unsafe_code)]

use super::dmabuf::exporter;
use super::{Bench, Counts, Inside, TIMEOUT, device_and_domain, errno, page, preloaded, rdma_write, says};
use mlx5_mkey::command::{
    Command, CqSize, CqeSize, CreateCq, CreateMemoryRegion, CreatePsv, CreateQp, LogPageSize, MkeyEntries,
    Pdn, QpAccess, QpState, QueryQp, SendRingSize, TimestampFormat, UarPage, UmemId, UmemSlice, UserIndex,
};
use mlx5_mkey::devx::{
    Device, DevxError, DevxObject, ListMkey, PageSizes, ProtectionDomain, QueuePairSpec, Umem, UmemSpec,
};
use mlx5_mkey::error::CommandError;
use mlx5_mkey::mkey::Access;
use mlx5_mkey::queue::{
    CompletionQueue, CqDoorbellRecord, DoorbellRecord, Outcome, QpRouter, SendQueue, SendQueueConfig,
    SendSlot, UarDoorbell,
};
use mlx5_mkey::types::{Cqn, Key, Qpn};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::Cqe;
use mlx5_mkey::wire::prm::command::{Opcode, ReplyHeader, RequestHeader};
use mlx5_mkey::wqe::Remote;
use mlx5_testing::loopback::loopback;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Instant;

/// The start and the length of the registered part of the dma-buf, and the offsets of send ring and records
/// in this part.
const FIRST: usize = 4096;
const SEND_RING: usize = 4096;
const CQ_RECORD: usize = 8192;
const QP_RECORD: usize = 8192 + 64;
pub(super) const LENGTH: usize = 3 * 4096;

/// Maps the dma-buf for the rest of the process's life. Returns the address of the registered part.
pub(super) fn mapped(file: &File) -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel finds a place that nobody else uses.
    let base =
        unsafe { libc::mmap(ptr::null_mut(), FIRST + LENGTH, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: the address is inside of the mapping.
    unsafe { base.cast::<u8>().add(FIRST) }
}

/// The queues' parts of memory: a ring of 64 completion entries, a send ring of 16 blocks, and their records.
pub(super) type Parts =
    (&'static mut [Cqe], &'static mut [Wqebb], &'static CqDoorbellRecord, &'static DoorbellRecord);

/// Divides memory of [`LENGTH`] bytes into the queues' parts, and makes all completion entries unwritten.
///
/// # Safety
///
/// The memory is aligned to a page, full of zeros, and valid for good. Nothing but the queues uses it.
pub(super) unsafe fn divided(memory: *mut u8) -> Parts {
    // SAFETY: the caller keeps this function's contract, and the parts do not overlap.
    unsafe {
        let ring = std::slice::from_raw_parts_mut(memory.cast::<Cqe>(), 64);
        ring.fill(Cqe::UNWRITTEN);
        let send_ring = std::slice::from_raw_parts_mut(memory.add(SEND_RING).cast::<Wqebb>(), 16);
        (ring, send_ring, &*memory.add(CQ_RECORD).cast(), &*memory.add(QP_RECORD).cast())
    }
}

/// Returns the command that makes a completion queue of 64 entries, whose record is at [`CQ_RECORD`].
pub(super) fn create_cq(uar: UarPage, event_queue: u32, entries: UmemSlice) -> CreateCq {
    CreateCq {
        size: CqSize::new(64).unwrap(),
        cqe_size: CqeSize::B64,
        uar,
        event_queue,
        entries,
        doorbell: UmemSlice { offset: CQ_RECORD as u64, ..entries },
        page_size: LogPageSize::P4K,
        ignore_overrun: false,
    }
}

/// Returns the command that makes a queue pair of 16 blocks in [`LENGTH`] bytes of memory. It cannot receive.
pub(super) fn create_qp(pd: Pdn, uar: UarPage, cq: Cqn, umem: UmemId) -> CreateQp {
    CreateQp {
        pd,
        uar,
        send_cq: cq,
        receive_cq: cq,
        user_index: UserIndex::default(),
        send_ring: SendRingSize::new(16).unwrap(),
        receive_ring: None,
        rings: UmemSlice { umem, offset: SEND_RING as u64 },
        doorbell: UmemSlice { umem, offset: QP_RECORD as u64 },
        page_size: LogPageSize::P4K,
        timestamps: TimestampFormat::DeviceDefault,
    }
}

/// Sends a command that changes an object, before any request is posted.
fn change<K>(object: &DevxObject<K>, command: &impl Command) {
    // SAFETY: no request is posted yet that the command could affect.
    unsafe { object.modify(command) }.map(drop).unwrap();
}

/// Connects a queue pair to itself.
fn connect<K>(object: &DevxObject<K>, qp: Qpn) {
    let (initialise, receive, send) = loopback(qp, QpAccess::READ_WRITE);
    change(object, &initialise);
    change(object, &receive);
    change(object, &send);
}

/// Sends a CREATE_QP of the test itself, with a time stamp format that the device may lack.
pub(super) fn created_with(device: &Device, timestamps: TimestampFormat) -> Result<(), DevxError> {
    let pd = device.alloc_pd()?;
    let (cq, _completions) = device.create_cq(64)?;
    let (file, uar) = (exporter(), device.alloc_uar()?);
    let _memory = mapped(&file);
    // SAFETY: nothing is posted, and the memory is mapped for good.
    let umem =
        unsafe { device.register_umem_dmabuf(file.as_fd(), FIRST..FIRST + LENGTH, UmemSpec::default()) }?;
    let command = create_qp(pd.number()?, uar.number()?, cq.number(), umem.at(0).umem);
    let command = CreateQp { timestamps, ..command };
    // SAFETY: nothing is posted, and the memory is mapped for good.
    let (_qp, _number): (DevxObject<()>, Qpn) = unsafe { device.create_object(&command, ()) }?;
    Ok(())
}

#[test]
fn rings_are_in_a_dma_buf() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let file = exporter();
    let memory = mapped(&file);
    // SAFETY: the program uses the memory only through the queues below, which belong to the objects made
    // over it.
    let register = |piece, spec| unsafe { device.register_umem_dmabuf(file.as_fd(), piece, spec) };
    let umem = register(FIRST..FIRST + LENGTH, UmemSpec::default()).unwrap();
    let uar_page = device.alloc_uar().unwrap();
    // SAFETY: the memory is mapped for good, and filled with zeros here.
    let (ring, send_ring, cq_record, qp_record) = unsafe {
        memory.write_bytes(0, LENGTH);
        divided(memory)
    };
    let uar = uar_page.number().unwrap();
    let command = create_cq(uar, 1, umem.at(0));
    // SAFETY: the memory outlives the program's use of the device.
    let (cq, cqn): (_, Cqn) = unsafe { device.create_object(&command, ()) }.unwrap();
    let command = create_qp(pd.number().unwrap(), uar, cqn, umem.at(0).umem);
    // SAFETY: the memory outlives the program's use of the device.
    let (qp, qpn): (_, Qpn) = unsafe { device.create_object(&command, ()) }.unwrap();
    connect(&qp, qpn);
    assert_eq!(qp.query(&QueryQp(qpn)).unwrap().state, QpState::RTS);

    // SAFETY: the register belongs to the page that the queue pair was made with, and only this queue
    // rings it.
    let doorbell = unsafe { UarDoorbell::new(uar_page.register().unwrap()) };
    let mut completions = CompletionQueue::new(ring, cq_record).unwrap();
    let mut slots = vec![SendSlot::EMPTY; send_ring.len()];
    let mut send =
        SendQueue::new(SendQueueConfig::new(qpn), send_ring, &mut slots, qp_record, doorbell).unwrap();
    let end = Instant::now() + TIMEOUT.unwrap();
    for id in 0..200 {
        send.request(id).signaled().nop().unwrap();
        send.ring_doorbell();
        let mut router = QpRouter { queues: &mut send, mkeys: &mut [] };
        let done = loop {
            match completions.poll(&mut router) {
                Some(done) => break done.unwrap().work().unwrap(),
                None => assert!(Instant::now() < end, "no completion"),
            }
        };
        assert_eq!(done.id, id);
    }
    // Memory in use cannot be deregistered.
    let Err((_, umem)) = umem.deregister() else { panic!("queues are over it") };
    for destroyed in [qp.destroy(), cq.destroy()] {
        destroyed.unwrap_or_else(|(error, _)| panic!("{error}"));
    }
    umem.deregister().unwrap_or_else(|(error, _)| panic!("{error}"));
    drop((uar_page, pd, device));
    assert_eq!(Counts { refused: 0, ..Counts::now() }, Counts::NONE);
}

#[test]
fn memory_of_commands_is_refused_where_it_does_not_fit() {
    let Inside = preloaded() else { return };
    let device = Device::open(None).unwrap();
    let file = exporter();
    let read_only = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let (spec, before) = (UmemSpec::default(), Counts::now());
    let huge = UmemSpec { page_sizes: PageSizes::new(2 << 20).unwrap(), ..spec };
    // SAFETY: no object is made over the memory.
    let of = |file: &File, piece, spec| unsafe { device.register_umem_dmabuf(file.as_fd(), piece, spec) };
    assert_eq!(errno(of(&file, 0..4096, huge)), Some(libc::EINVAL), "pages of 2 MiB");
    assert_eq!(errno(of(&file, 0..6 * 4096, spec)), Some(libc::EINVAL), "longer than the file");
    assert_eq!(errno(of(&file, 0..0, spec)), None, "nothing, which the kernel is not asked about");
    assert_eq!(errno(of(&read_only, 0..4096, spec)), Some(libc::EINVAL), "it cannot be written");
    drop(of(&read_only, 0..4096, UmemSpec { access: Access::NONE, ..spec }).unwrap());
    let mut page = vec![0_u8; 3 * 4096];
    // SAFETY: no object is made over the memory.
    let at = |address: *mut u8, spec| unsafe { device.register_umem(address, 4096, spec) };
    let both = UmemSpec { page_sizes: PageSizes::new(4096 | 2 << 20).unwrap(), ..spec };
    drop(at(page.as_mut_ptr(), both).unwrap());
    assert_eq!(errno(at(page.as_mut_ptr(), huge)), Some(libc::EINVAL));
    assert_eq!(errno(at(ptr::null_mut(), spec)), Some(libc::EFAULT));
    assert_eq!(Counts { refused: before.refused, ..Counts::now() }, before);
}

#[test]
fn a_region_of_a_umem_is_memory() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let page = page(&bench.pd, &[0x77; 64]).unwrap();
    let mut memory = vec![0_u8; 4 * 4096];
    let first = memory.as_mut_ptr().wrapping_add(100);
    // SAFETY: the memory outlives the umem, and only the requests below write to the memory.
    let register = |spec| unsafe { bench.device.register_umem(first, 3 * 4096, spec) };
    let umem = register(UmemSpec::default()).unwrap();
    let start = first as u64 % 4096 + 0x7000_0000;
    let region = |umem: &Umem, address| CreateMemoryRegion {
        pd: bench.pd.number().unwrap(),
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        address,
        length: 2 * 4096,
        memory: umem.at(4096),
        page_size: LogPageSize::P4K,
        tag: 0x55,
    };
    // SAFETY: the memory outlives the umem, and only the requests below write to the memory.
    let made = |umem: &Umem, address| unsafe { bench.device.create_object(&region(umem, address), ()) };
    let (object, key): (DevxObject<()>, Key) = made(&umem, start).unwrap();
    assert_eq!(key.get() & 0xff, 0x55);
    assert!(made(&umem, start + 8).is_err(), "another offset in a page");
    let sge = page.sge(0..64).unwrap();
    let write = |bench: &mut Bench, address, rkey| {
        rdma_write(&mut bench.queue, 1, Remote { address, rkey }, sge);
    };
    let read_only = register(UmemSpec { access: Access::NONE, ..UmemSpec::default() }).unwrap();
    let (other, other_key): (DevxObject<()>, Key) = made(&read_only, start).unwrap();
    write(&mut bench, start + 2 * 4096 - 64, key);
    bench.completed();
    let end = 100 + 3 * 4096;
    assert_eq!(memory[end - 64..end], [0x77; 64]);
    assert!(memory[..end - 64].iter().chain(&memory[end..]).all(|byte| *byte == 0));
    let Err((_, umem)) = umem.deregister() else { panic!("a region is over it") };
    write(&mut bench, start, other_key);
    let refused = bench.next();
    assert!(matches!(refused.outcome, Outcome::Failed(_)), "the umem is only for reads: {refused:?}");
    for object in [object, other] {
        object.destroy().unwrap_or_else(|(error, _)| panic!("{error}"));
    }
    for umem in [umem, read_only] {
        umem.deregister().unwrap_or_else(|(error, _)| panic!("{error}"));
    }
}

/// The kernel takes the largest requested page size in which the memory is contiguous. If there is none, it
/// refuses the registration (`ib_umem_find_best_pgoff`). The stand-in only knows that memory is in pages of
/// 4096 bytes.
#[test]
fn memory_of_commands_is_in_the_page_sizes_that_are_asked_for() {
    let Inside = preloaded() else { return };
    let device = Device::open(None).unwrap();
    let file = exporter();
    let memory = mapped(&file);
    let uar_page = device.alloc_uar().unwrap();
    let sizes = [
        (4096, true),
        (4096 | 2 << 20, true),
        (4096 | 8192 | 1 << 63, true),
        (PageSizes::ANY.bitmap(), true),
        (8192, false),
        (2 << 20, false),
        (PageSizes::ANY.bitmap() & !4096, false),
    ];
    for (bitmap, is_taken) in sizes {
        let spec = UmemSpec { page_sizes: PageSizes::new(bitmap).unwrap(), ..UmemSpec::default() };
        // SAFETY: the memory is mapped for good, and only the queues below use it.
        let umems = unsafe {
            let piece = FIRST..FIRST + LENGTH;
            [
                device.register_umem(memory, LENGTH, spec),
                device.register_umem_dmabuf(file.as_fd(), piece, spec),
            ]
        };
        for umem in umems {
            if !is_taken {
                assert_eq!(errno(umem), Some(libc::EINVAL), "{bitmap:#x}");
                continue;
            }
            // The queue begins at the second page of the memory: the device finds this page only if it
            // knows the page size.
            let umem = umem.unwrap();
            let command = create_cq(uar_page.number().unwrap(), 1, umem.at(4096));
            // SAFETY: the memory outlives the program's use of the device.
            let (cq, _): (_, Cqn) = unsafe { device.create_object(&command, ()) }.unwrap();
            cq.destroy().unwrap_or_else(|(error, _)| panic!("{error}"));
            umem.deregister().unwrap_or_else(|(error, _)| panic!("{error}"));
        }
    }
    drop((uar_page, device));
    assert_eq!(Counts { refused: 0, ..Counts::now() }, Counts::NONE);
}

/// A command that no device knows, with a request of this many bytes.
struct Long(usize);

impl Command for Long {
    const OPCODE: Opcode = Opcode(0xffff);
    type Input = RequestHeader;
    type Output = ReplyHeader;
    type Reply = ();

    fn input_bytes(&self) -> usize {
        self.0
    }

    fn write(&self, input: &mut RequestHeader) {
        *input = RequestHeader::new(Self::OPCODE);
    }

    fn read(&self, _: &ReplyHeader) -> Result<(), CommandError> {
        Ok(())
    }
}

#[test]
fn what_the_kernel_s_interface_cannot_carry_is_refused() {
    let Inside = preloaded() else { return };
    let (device, pd) = device_and_domain();
    let memory = pd.alloc_buffer(4096, Access::ALL).unwrap();
    let entries = vec![memory.entry(0..16).unwrap(); ListMkey::MAX_ENTRIES as usize + 1];
    assert!(device.capabilities().max_entries() > ListMkey::MAX_ENTRIES);
    let too_many = pd.create_list_mkey(Access::ALL, 0, MkeyEntries::Klm(&entries)).err().unwrap();
    let (command, max) = (Opcode::CREATE_MKEY, 4076);
    let expected = CommandError::TooManyEntries { command, entries: 4077, max };
    assert!(matches!(too_many, DevxError::Command(error) if error == expected), "{too_many}");
    // The longest list fits into a command.
    let list = pd.create_list_mkey(Access::ALL, 0, MkeyEntries::Klm(&entries[1..])).unwrap();
    assert_eq!(list.length(), 4076 * 16);

    // `devx` passes on any request of up to 65535 bytes. The kernel or the device then refuses the
    // unknown opcode.
    for (bytes, is_too_long) in [(65535, false), (65536, true)] {
        let error = device.execute(&Long(bytes)).unwrap_err();
        match error {
            DevxError::TooLong { command: Opcode(0xffff), bytes: 65536, max: 65535 } => {
                assert!(is_too_long)
            }
            other => assert!(!is_too_long, "{other}"),
        }
    }
}

/// Each opened device is a context with a number of its own (`uid`). A command of one context cannot name
/// objects of another.
#[test]
fn an_object_of_one_context_is_not_anothers() {
    let Inside = preloaded() else { return };
    let [one, other] = [(); 2].map(|()| Device::open(None).unwrap());
    // Protection domains are numbered over all contexts.
    let [pd, own] = [&one, &other].map(|device| device.alloc_pd().unwrap());
    let make = |pd: &ProtectionDomain| {
        let command = CreatePsv::<1>::new(pd.number().unwrap());
        // SAFETY: a PSV names no memory.
        unsafe { other.create_object(&command, ()) }.map(drop)
    };
    says(&make(&pd).unwrap_err().to_string(), &["CREATE_PSV refused", "no such object"]);
    make(&own).unwrap();
}
