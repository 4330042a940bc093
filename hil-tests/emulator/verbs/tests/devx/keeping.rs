//! Tests of objects that cannot be destroyed, which keep their memory and are reported, and tests of
//! registered memory.
#![allow(unsafe_code)]

use super::{Bench, Counts, Inside, everything, page, preloaded, verbs};
use mlx5_mkey::devx::{DevxError, PieceError, QueuePairSpec, on_drop_error};
use mlx5_mkey::mkey::Access;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An allocator that counts page-aligned allocations, which are rings and buffers.
struct CountsPages;

static PAGES: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: CountsPages = CountsPages;

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for CountsPages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PAGES.fetch_add(usize::from(layout.align() >= 4096), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, with the same arguments.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        PAGES.fetch_sub(usize::from(layout.align() >= 4096), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, with the same arguments.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The failed calls that the hook of `on_drop_error` has received.
static TOLD: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

fn note(error: &DevxError) {
    match error {
        DevxError::Call { what, .. } => TOLD.lock().unwrap().push(what),
        other => panic!("{other}"),
    }
}

#[test]
fn large_buffers_are_in_huge_pages_where_there_are_any() {
    let Inside = preloaded() else { return };
    let bench = Bench::new(QueuePairSpec::default()).unwrap();
    let buffer = bench.pd.alloc_buffer((4 << 20) + 1, Access::LOCAL_WRITE).unwrap();
    assert_eq!((buffer.address() % (2 << 20), buffer.len()), (0, (4 << 20) + 1));
    let mut last = [1];
    assert_eq!((buffer.read(4 << 20, &mut last), last), (Ok(()), [0]));
    // The buffer's advice to the kernel to use huge pages (`madvise`) shows as the flag `hg` of the
    // mapping, if the kernel has huge pages.
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let range = |line: &str| {
        let (first, rest) = line.split_once('-')?;
        let end = rest.split_once(' ')?.0;
        Some((u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    };
    let mut inside = false;
    let flags = maps.lines().find(|line| {
        if let Some((first, end)) = range(line) {
            inside = (first..end).contains(&buffer.address());
        }
        inside && line.starts_with("VmFlags:")
    });
    let known = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    assert_eq!(flags.unwrap().split(' ').any(|flag| flag == "hg"), known, "{flags:?}");
}

#[test]
fn a_vector_becomes_a_buffer_or_comes_back() {
    let Inside = preloaded() else { return };
    let bench = Bench::new(QueuePairSpec::default()).unwrap();
    let mut bytes = Vec::with_capacity(100);
    bytes.extend_from_slice(b"some bytes");
    verbs::fail(1, libc::ENOMEM, 0);
    let (error, bytes) = bench.pd.register_vec(bytes, Access::LOCAL_WRITE).err().unwrap();
    assert!(verbs::has_failed());
    assert!(matches!(error, DevxError::Call { .. }));
    assert_eq!((&bytes[..], bytes.capacity()), (&b"some bytes"[..], 100));
    let mut buffer = bench.pd.register_vec(bytes, Access::LOCAL_WRITE).unwrap_or_else(|_| panic!());
    let outside = |start, end| Err(PieceError::Outside { start, end, length: 10 });
    assert_eq!((buffer.len(), buffer.write(8, b"ABC")), (10, outside(8, 11)));
    buffer.write(8, b"AB").unwrap();
    let mut found = [0xee; 11];
    assert_eq!((buffer.read(0, &mut found), found), (outside(0, 11), [0xee; 11]), "none was copied");
    assert_eq!((buffer.read(0, &mut found[..10]), &found), (Ok(()), b"some bytAB\xee"));
    assert_eq!((buffer.read(10, &mut []), buffer.read(11, &mut [])), (Ok(()), outside(11, 11)));
    assert_eq!(buffer.read(usize::MAX, &mut found), outside(usize::MAX, usize::MAX));
    // SAFETY: no request is outstanding, and no peer has the buffer's key.
    assert_eq!(unsafe { buffer.slice() }, b"some bytAB");
    assert!(bench.pd.register_vec(Vec::new(), Access::LOCAL_WRITE).is_err());
}

#[test]
fn a_piece_that_is_not_in_the_memory_is_refused() {
    let Inside = preloaded() else { return };
    let bench = Bench::new(QueuePairSpec::default()).unwrap();
    let buffer = bench.pd.alloc_buffer(65536, Access::LOCAL_WRITE).unwrap();
    // SAFETY: the buffer keeps the memory, and no request uses it.
    let region =
        unsafe { bench.pd.register(buffer.address() as *mut u8, 65536, Access::LOCAL_WRITE).unwrap() };
    for (start, end) in [(65000, 70000), (0, 65537), (65536, 65537), (70000, 70000), (9, 8)] {
        let outside = PieceError::Outside { start, end, length: 65536 };
        assert_eq!((buffer.entry(start..end), buffer.sge(start..end)), (Err(outside), Err(outside)));
        assert_eq!((region.entry(start..end), region.sge(start..end)), (Err(outside), Err(outside)));
    }
    let (last, all) = (buffer.sge(65000..65536).unwrap(), region.entry(0..65536).unwrap());
    assert_eq!((last.address - buffer.address(), last.length, all.length), (65000, 536, 65536));
}

#[test]
fn what_cannot_be_destroyed_keeps_its_memory() {
    let Inside = preloaded() else { return };
    let mut other = Bench::new(QueuePairSpec::default()).unwrap();
    let plain = page(&other.pd, &[9; 64]).unwrap();
    everything().unwrap();
    on_drop_error(note);
    // `seen` has, for each refused destruction in `everything`, the reported calls and the number of
    // page-aligned allocations that stay.
    let mut seen = Vec::new();
    for nth in 1.. {
        let (pages, refused) = (PAGES.load(Ordering::Relaxed), Counts::now().refused);
        verbs::keep(nth);
        everything().unwrap();
        verbs::keep(0);
        if Counts::now().refused == refused {
            break;
        }
        let told = std::mem::take(&mut *TOLD.lock().unwrap());
        seen.push((told, PAGES.load(Ordering::Relaxed) - pages));
        // The device and the objects of other users still work.
        other.write(&plain, plain.rkey());
        other.completed();
    }
    // The rows are in the order in which `everything` drops its objects. A queue pair keeps its own rings
    // and the ring of its completion queue. An mkey keeps the completion queue for its signature errors.
    // libmlx5 reports no failure for a UAR page.
    const OBJECT: &str = "mlx5dv_devx_obj_destroy";
    const UMEM: &str = "mlx5dv_devx_umem_dereg";
    let (dek, address, mkey, psv) = ((OBJECT, 0), ("ibv_destroy_ah", 0), (OBJECT, 1), (OBJECT, 0));
    let (buffer, region) = (("ibv_dereg_mr", 1), ("ibv_dereg_mr", 0));
    let (queue_pair, its_rings) = ((OBJECT, 2), (UMEM, 1));
    let (domain, completion_queue, its_ring) = (("ibv_dealloc_pd", 0), (OBJECT, 1), (UMEM, 1));
    // The second queue pair can copy memory, and therefore keeps one more buffer.
    let queue_pairs = [queue_pair, its_rings, (OBJECT, 3), its_rings, buffer];
    let told = [dek, address, mkey, psv, psv, buffer, region].into_iter().chain(queue_pairs);
    let told = told.chain([domain, completion_queue, its_ring]);
    let expected = told.map(|(what, pages)| (vec![what], pages)).chain([(vec![], 0)]);
    assert_eq!(seen, expected.collect::<Vec<_>>());
}
