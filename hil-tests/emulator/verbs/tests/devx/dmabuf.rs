//! Tests of regions over a dma-buf. A memfd is used instead of a dma-buf, since the stand-in accepts any
//! descriptor that can be mapped.
#![allow(unsafe_code)]

use super::{Bench, Counts, Inside, Opened, Outcome, page, preloaded, rdma_write, says, verbs};
use mlx5_mkey::devx::{DevxError, MemoryRegion, MkeySpec, ProtectionDomain, QueuePairSpec, on_drop_error};
use mlx5_mkey::mkey::{Access, MkeyConfig};
use mlx5_mkey::queue::Outcome as Done;
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Mutex;

/// The name of the memfd in lists of mappings and descriptors.
const NAME: &str = "memfd:exporter";
/// Bytes of the memfd: whole pages, as a dma-buf has.
const SIZE: usize = 5 * 4096;
/// The registered range. Neither its start nor its end is on a page boundary.
const PIECE: Range<usize> = 5000..17000;
/// The address of the range in requests. No memory of this process has this address. The address has the same
/// offset in its page as the range.
const IOVA: u64 = (0xd0 << 40) + PIECE.start as u64 % 4096;

/// Returns memory that can be shared by its descriptor. No two of its pages have the same bytes.
pub(crate) fn exporter() -> File {
    // SAFETY: the name ends with a zero.
    let descriptor = unsafe { libc::memfd_create(c"exporter".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(descriptor >= 0);
    // SAFETY: the descriptor was made just now, and nobody else has it.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all_at(&pattern(), 0).unwrap();
    file
}

fn pattern() -> Vec<u8> {
    (0..SIZE).map(|index| (index % 251) as u8).collect()
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn register(pd: &ProtectionDomain, file: &impl AsFd, access: Access) -> Outcome<MemoryRegion> {
    // SAFETY: this program reads and writes the file by system calls only.
    unsafe { pd.register_dmabuf(file.as_fd(), PIECE, IOVA, access) }
}

/// Registers a new dma-buf, which has no other user.
pub(crate) fn any(pd: &ProtectionDomain) -> Outcome<MemoryRegion> {
    register(pd, &exporter(), Access::ALL)
}

/// Returns the number of mappings of memfds in this process.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(NAME)).count()
}

#[test]
fn a_piece_of_a_dma_buf_is_read_and_written() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let file = exporter();
    let given = file.try_clone().unwrap();
    let region = register(&bench.pd, &given, Access::ALL).unwrap();
    // The registration holds a reference to the memory, so the descriptor may be closed.
    drop(given);
    let mut other = page(&bench.pd, &[0xee; 256]).unwrap();

    // Data leave the region by a direct request, and through an mkey over a part of the region and other
    // memory.
    let (from, to) = (5100, other.address());
    let sge = region.sge(100..164).unwrap();
    assert_eq!((sge.address, sge.length, sge.lkey), (IOVA + 100, 64, region.lkey()));
    let remote = Remote { address: to + 1024, rkey: other.rkey() };
    rdma_write(&mut bench.queue, 1, remote, sge);
    bench.completed();
    let mut found = [0; 96];
    other.read(1024, &mut found[..64]).unwrap();
    assert_eq!(found[..64], pattern()[from..from + 64]);

    let mut object = bench.pd.create_mkey(MkeySpec { max_entries: 4, ..MkeySpec::default() }).unwrap();
    let config = MkeyConfig { access: Some(Access::LOCAL_WRITE), ..MkeyConfig::default() };
    let prepared = PreparedConfig::new(object.mkey.kind(), &config).unwrap();
    let entries = [region.entry(4096..4160).unwrap(), other.entry(100..132).unwrap()];
    bench.queue.request(2).configure_mkey(&mut object.mkey, &prepared, &entries).unwrap();
    let sge = Sge { address: 0, length: 96, lkey: object.mkey.key() };
    rdma_write(&mut bench.queue, 3, remote, sge);
    bench.completed();
    other.read(1024, &mut found).unwrap();
    assert_eq!(found[..64], pattern()[PIECE.start + 4096..][..64]);
    assert_eq!(found[64..], [0xee; 32]);
    assert_eq!(content(&file), pattern(), "what is read stays");

    // Data enter the region up to its last byte.
    let end = IOVA + PIECE.len() as u64;
    other.write(0, &[0x99; 64]).unwrap();
    let sge = other.sge(0..64).unwrap();
    let into = |address| Remote { address, rkey: region.rkey() };
    rdma_write(&mut bench.queue, 4, into(end - 64), sge);
    bench.completed();
    let mut expected = pattern();
    expected[PIECE.end - 64..PIECE.end].fill(0x99);
    assert_eq!(content(&file), expected, "it and nothing else is written");

    // The last page has more bytes after the end of the region. A request must not reach these bytes.
    rdma_write(&mut bench.queue, 5, into(end - 63), sge);
    let refused = bench.next();
    assert!(matches!(refused.outcome, Done::Failed(_)), "{refused:?}");
    assert_eq!(content(&file), expected);

    // Only the region keeps the memory mapped.
    assert_eq!(mappings(), 1);
    region.deregister().unwrap();
    assert_eq!(mappings(), 0);
}

#[test]
fn rights_of_a_dma_buf_hold() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let file = exporter();
    let region = register(&bench.pd, &file, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    let page = page(&bench.pd, &[1; 64]).unwrap();
    let remote = Remote { address: IOVA, rkey: region.rkey() };
    rdma_write(&mut bench.queue, 1, remote, page.sge(0..64).unwrap());
    let refused = bench.next();
    assert!(matches!(refused.outcome, Done::Failed(_)), "{refused:?}");
    assert_eq!(content(&file), pattern());
}

/// Access flags of libibverbs (`IBV_ACCESS_*`).
const LOCAL_WRITE: c_int = 1;
const REMOTE_WRITE: c_int = 2;
const ON_DEMAND: c_int = 1 << 6;
const RELAXED_ORDERING: c_int = 1 << 20;

#[test]
fn what_the_kernel_refuses_leaves_nothing_behind() {
    let Inside = preloaded() else { return };
    let opened = Opened::new();
    let pd = call!(&opened.verbs, "ibv_alloc_pd": fn(opened.raw.as_ptr() => *mut c_void) -> *mut c_void);
    let register = |piece: (u64, usize, u64), descriptor: c_int, access: c_int| {
        let (offset, length, iova) = piece;
        let region = call!(&opened.verbs, "ibv_reg_dmabuf_mr": fn(
            pd => *mut c_void,
            offset => u64,
            length => usize,
            iova => u64,
            descriptor => c_int,
            access => c_int
        ) -> *mut c_void);
        if region.is_null() { Err(io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(region) }
    };
    let file = exporter();
    let memory = file.as_raw_fd();
    let by_path = format!("/proc/self/fd/{memory}");
    let path_only = File::options().read(true).custom_flags(libc::O_PATH).open(by_path).unwrap();
    let (_reader, pipe) = io::pipe().unwrap();
    let folder = File::open("/").unwrap();
    let whole = (0, SIZE, 0);
    let before = Counts::now();
    for (piece, descriptor, access, errno) in [
        (whole, -1, 0, libc::EBADF),
        (whole, path_only.as_raw_fd(), 0, libc::EBADF),
        (whole, pipe.as_raw_fd(), 0, libc::EINVAL),
        ((0, 1, 0), folder.as_raw_fd(), 0, libc::EINVAL),
        (whole, memory, ON_DEMAND, libc::EINVAL),
        (whole, memory, REMOTE_WRITE, libc::EINVAL),
        ((0, 0, 0), memory, 0, libc::EINVAL),
        ((0, SIZE + 1, 0), memory, 0, libc::EINVAL),
        ((4096, SIZE, 0), memory, 0, libc::EINVAL),
        ((SIZE as u64, 1, 0), memory, 0, libc::EINVAL),
        ((!0xfff, 4096, 0), memory, 0, libc::EINVAL),
        ((1, 1, 0), memory, 0, libc::EINVAL),
        // The addresses of the region would wrap around.
        ((0, SIZE, !0xfff), memory, 0, libc::EINVAL),
    ] {
        let what = format!("{piece:x?}, descriptor {descriptor}, access {access:#x}");
        assert_eq!(register(piece, descriptor, access), Err(errno), "{what}");
        assert_eq!((Counts::now(), mappings()), (before, 0), "{what}");
    }
    for access in [0, LOCAL_WRITE | REMOTE_WRITE | RELAXED_ORDERING] {
        let region = register(((1 << 12) + 1, 4095, 0xffff_f001), memory, access).unwrap();
        assert_eq!((Counts::now().objects, mappings()), (before.objects + 1, 1));
        assert_eq!(call!(&opened.verbs, "ibv_dereg_mr": fn(region => *mut c_void) -> c_int), 0);
        assert_eq!((Counts::now(), mappings()), (before, 0));
    }
    // A region that the program does not deregister ends with its context.
    register(whole, memory, LOCAL_WRITE).unwrap();
    assert_eq!(mappings(), 1);
    opened.close();
    assert_eq!((Counts::now(), mappings()), (Counts::NONE, 0));
}

/// The errors that the hook of `on_drop_error` has received.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn refusals_are_errors() {
    let Inside = preloaded() else { return };
    let bench = Bench::new(QueuePairSpec::default()).unwrap();
    let file = exporter();
    let before = Counts::now();
    // SAFETY: this program reads and writes the file by system calls only.
    let refusal =
        |piece, iova| match unsafe { bench.pd.register_dmabuf(file.as_fd(), piece, iova, Access::ALL) } {
            Err(DevxError::Call { what: "ibv_reg_dmabuf_mr", cause }) => cause.raw_os_error(),
            other => panic!("{:?}", other.map(drop)),
        };
    assert_eq!(refusal(0..SIZE + 1, 0), Some(libc::EINVAL));
    assert_eq!(refusal(PIECE, 0), Some(libc::EINVAL));
    // `devx` refuses empty ranges itself, since the kernel would accept some of them.
    #[expect(clippy::reversed_empty_ranges, reason = "it is as one without bytes")]
    let reversed = 4096..0;
    for piece in [4096..4096, 5000..5000, reversed] {
        // SAFETY: this program reads and writes the file by system calls only.
        let empty = unsafe { bench.pd.register_dmabuf(file.as_fd(), piece, 0, Access::ALL) };
        assert!(matches!(empty, Err(DevxError::Call { what: "registration of a dma-buf", .. })));
    }
    verbs::fail(1, libc::EOPNOTSUPP, 0);
    assert_eq!(refusal(PIECE, IOVA), Some(libc::EOPNOTSUPP));
    assert!(verbs::has_failed());
    assert_eq!((Counts::now(), mappings()), (before, 0));

    // A region whose deregistration was refused remains, and its memory stays mapped.
    on_drop_error(|error| TOLD.lock().unwrap().push(error.to_string()));
    let region = register(&bench.pd, &file, Access::ALL).unwrap();
    verbs::keep(1);
    let error = region.deregister().unwrap_err();
    assert!(matches!(&error, DevxError::Call { what: "ibv_dereg_mr", cause }
        if cause.raw_os_error() == Some(libc::EBUSY)));
    assert_eq!(TOLD.lock().unwrap().len(), 0, "the result tells");
    assert_eq!((Counts::now().objects, mappings()), (before.objects + 1, 1));
    let region = register(&bench.pd, &file, Access::ALL).unwrap();
    verbs::keep(1);
    drop(region);
    says(&TOLD.lock().unwrap().join(", "), &["ibv_dereg_mr"]);
    assert_eq!((Counts::now().objects, mappings()), (before.objects + 2, 2));
}
