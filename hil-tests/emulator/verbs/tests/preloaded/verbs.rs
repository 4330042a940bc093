//! A minimal user of the kernel's interface for the tests. It builds calls, posts requests and polls
//! completions without libibverbs.
#![allow(unsafe_code)]

use crate::DONE;
use std::ffi::{CString, c_int};
use std::ops::{Bound, RangeBounds};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

const VERBS_IOCTL: libc::c_ulong = 0xc018_1b01;
pub(crate) const MANDATORY: u16 = 1;
const ENTRIES: u32 = 64;
const BLOCKS: u32 = 64;
const SLOTS: u32 = 16;

/// The flag of a completion queue that ignores overruns (`IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN`).
pub(crate) const IGNORE_OVERRUN: u32 = 2;

/// An error number (errno.h).
pub(crate) type Errno = i32;

/// An attribute of a call. The first value is the attribute's number.
pub(crate) enum Attribute<'a> {
    /// Input bytes.
    In(u16, &'a [u8]),
    /// An input number, which stands in the attribute itself.
    Number(u16, u64),
    /// Room for an answer.
    Out(u16, &'a mut [u8]),
    /// Room for an answer at an unmapped address.
    Nowhere(u16),
    /// The handle of an object.
    Handle(u16, u32),
    /// The place for the handle of a new object.
    New(u16),
    /// Any attribute: its number, length, flags, reserved field and data.
    Raw(u16, u16, u16, u16, u64),
}

/// Page-aligned memory of zeros that is never freed.
#[derive(Clone, Copy)]
pub(crate) struct Pages(pub(crate) u64);

impl Pages {
    /// Maps `length` bytes of memory.
    pub(crate) fn new(length: usize) -> Self {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping touches nothing that exists.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, kind, -1, 0) };
        assert_ne!(address, libc::MAP_FAILED);
        Self(address.expose_provenance() as u64)
    }

    /// Unmaps the memory, but reserves its addresses, so that no other mapping gets them.
    pub(crate) fn unmap(self, length: usize) {
        let place = std::ptr::with_exposed_provenance_mut(self.0 as usize);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: nothing of this process uses the memory any more. The device may still use it, and tests
        // check that the device then fails without harm.
        let now = unsafe { libc::mmap(place, length, libc::PROT_NONE, kind, -1, 0) };
        assert_eq!(now, place);
    }

    /// Makes the memory readable only.
    pub(crate) fn protect(self, length: usize) {
        let place = std::ptr::with_exposed_provenance_mut(self.0 as usize);
        // SAFETY: the test writes to this memory no more.
        assert_eq!(unsafe { libc::mprotect(place, length, libc::PROT_READ) }, 0);
    }

    pub(crate) fn write(self, offset: u64, bytes: &[u8]) {
        for (index, byte) in (offset..).zip(bytes) {
            self.byte(index).store(*byte, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(self, offset: u64, length: u64) -> Vec<u8> {
        (offset..offset + length).map(|index| self.byte(index).load(Ordering::Relaxed)).collect()
    }

    fn byte(self, offset: u64) -> &'static AtomicU8 {
        // SAFETY: tests stay inside of the memory that they have mapped. Anyone may change atomics.
        unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut((self.0 + offset) as usize)) }
    }

    fn word(self, offset: u64) -> &'static AtomicU32 {
        // SAFETY: tests stay inside of the memory that they have mapped, and all words are aligned to 4.
        // Anyone may change atomics.
        unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut((self.0 + offset) as usize)) }
    }
}

fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The number of the device that [`open`] opens.
pub(crate) static DEVICE: AtomicUsize = AtomicUsize::new(0);

/// Opens the device's file.
pub(crate) fn open() -> Result<RawFd, Errno> {
    let path = format!("/dev/infiniband/uverbs{}", DEVICE.load(Ordering::Relaxed));
    let path = CString::new(path).unwrap();
    // SAFETY: `path` is a string that lives until the call is over.
    let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if descriptor < 0 { Err(errno()) } else { Ok(descriptor) }
}

/// Closes a descriptor, whoever has opened it.
pub(crate) fn try_close(descriptor: RawFd) -> Result<(), Errno> {
    // SAFETY: only called where this process needs none of its other descriptors.
    let result = unsafe { libc::close(descriptor) };
    if result < 0 { Err(errno()) } else { Ok(()) }
}

// SAFETY: the C library declares the function with this signature.
unsafe extern "C" {
    fn closefrom(low: c_int);
}

/// Closes all descriptors of a range. A range without an end includes all descriptors from its start on.
pub(crate) fn close_all(range: impl RangeBounds<u32>) {
    let first = match range.start_bound() {
        Bound::Included(first) => *first,
        _ => 0,
    };
    // SAFETY: only called where this process needs none of its other descriptors.
    unsafe {
        match range.end_bound() {
            Bound::Included(last) => assert_eq!(libc::close_range(first, *last, 0), 0),
            _ => closefrom(first.cast_signed()),
        }
    }
}

pub(crate) fn close(descriptor: RawFd) {
    // SAFETY: tests close only their own descriptors, each of them once.
    assert_eq!(unsafe { libc::close(descriptor) }, 0);
}

/// A function that duplicates a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Duplication {
    Dup,
    Dup2,
    Dup3,
    Control,
    ControlCloseOnExec,
}

/// All functions that duplicate a descriptor.
pub(crate) const DUPLICATIONS: [Duplication; 5] = [
    Duplication::Dup,
    Duplication::Dup2,
    Duplication::Dup3,
    Duplication::Control,
    Duplication::ControlCloseOnExec,
];

pub(crate) fn duplicate(way: Duplication, descriptor: RawFd) -> RawFd {
    const FREE: RawFd = 900;
    // SAFETY: no memory is involved, and the target numbers are not in use.
    let new = unsafe {
        match way {
            Duplication::Dup => libc::dup(descriptor),
            Duplication::Dup2 => libc::dup2(descriptor, FREE),
            Duplication::Dup3 => libc::dup3(descriptor, FREE, libc::O_CLOEXEC),
            Duplication::Control => libc::fcntl(descriptor, libc::F_DUPFD, FREE),
            Duplication::ControlCloseOnExec => libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, FREE),
        }
    };
    assert!(new >= 0);
    new
}

pub(crate) fn duplicate_to(old: RawFd, new: RawFd) -> Result<RawFd, Errno> {
    // SAFETY: only called with descriptors of the test.
    let result = unsafe { libc::dup2(old, new) };
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// Reads the next bytes from a descriptor, and returns their number.
pub(crate) fn read(descriptor: RawFd) -> Result<usize, Errno> {
    message_in(descriptor, 128).map(|bytes| bytes.len())
}

pub(crate) fn message(descriptor: RawFd) -> Vec<u8> {
    message_in(descriptor, 1 << 14).expect("a message")
}

/// Reads a message from a descriptor into this number of bytes.
pub(crate) fn message_in(descriptor: RawFd, room: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0_u8; room];
    // SAFETY: the buffer lives until the call is over.
    let length = unsafe { libc::read(descriptor, buffer.as_mut_ptr().cast(), buffer.len()) };
    buffer.truncate(usize::try_from(length).map_err(|_| errno())?);
    Ok(buffer)
}

/// Makes a descriptor non-blocking.
pub(crate) fn never_wait(descriptor: RawFd) {
    // SAFETY: the call takes and changes no memory of this program.
    assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

/// Maps `length` bytes of a file, and unmaps them again.
pub(crate) fn map(
    descriptor: RawFd,
    length: usize,
    rights: c_int,
    kind: c_int,
    offset: i64,
) -> Result<(), Errno> {
    // SAFETY: a new mapping touches nothing that exists.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, kind, descriptor, offset) };
    if address == libc::MAP_FAILED {
        return Err(errno());
    }
    // SAFETY: the mapping is this function's own.
    assert_eq!(unsafe { libc::munmap(address, length) }, 0);
    Ok(())
}

/// Makes a call whose bytes are at `address`, which may be any address.
pub(crate) fn call_at(descriptor: RawFd, address: u64) -> Result<(), Errno> {
    // SAFETY: the device checks the address before it uses it.
    let result = unsafe { libc::ioctl(descriptor, VERBS_IOCTL, address) };
    if result < 0 { Err(errno()) } else { Ok(()) }
}

/// Calls a method of an object type. Returns the handle of the new object, or 0 if the call makes none.
pub(crate) fn call(
    descriptor: RawFd,
    object: u16,
    method: u16,
    attributes: &mut [Attribute<'_>],
) -> Result<u32, Errno> {
    let mut buffer = vec![0u64; 3 + 2 * attributes.len()];
    let length = (buffer.len() * 8) as u64;
    buffer[0] = length | u64::from(object) << 16 | u64::from(method) << 32 | (attributes.len() as u64) << 48;
    buffer[2] = 1; // RDMA_DRIVER_MLX5
    let mut new = None;
    for (index, attribute) in attributes.iter_mut().enumerate() {
        let at = 3 + 2 * index;
        let (mut flags, mut reserved) = (MANDATORY, 0);
        let (id, length, data) = match attribute {
            Attribute::In(id, bytes) if bytes.len() <= 8 => {
                let mut inline = [0; 8];
                inline[..bytes.len()].copy_from_slice(bytes);
                (*id, bytes.len(), u64::from_ne_bytes(inline))
            }
            Attribute::In(id, bytes) => (*id, bytes.len(), bytes.as_ptr().expose_provenance() as u64),
            Attribute::Number(id, number) => (*id, 8, *number),
            Attribute::Out(id, room) => (*id, room.len(), room.as_mut_ptr().expose_provenance() as u64),
            Attribute::Nowhere(id) => (*id, 8, 0x10),
            Attribute::Handle(id, handle) => (*id, 0, u64::from(*handle)),
            Attribute::New(id) => {
                new = Some(at + 1);
                (*id, 0, 0)
            }
            Attribute::Raw(id, length, own_flags, own_reserved, data) => {
                (flags, reserved) = (*own_flags, *own_reserved);
                (*id, usize::from(*length), *data)
            }
        };
        let [flags, reserved] = [flags, reserved].map(u64::from);
        buffer[at] = u64::from(id) | (length as u64) << 16 | flags << 32 | reserved << 48;
        buffer[at + 1] = data;
    }
    call_at(descriptor, buffer.as_mut_ptr().expose_provenance() as u64)?;
    Ok(new.map_or(0, |at| buffer[at] as u32))
}

/// Calls a command of the older `write` interface.
pub(crate) fn command(
    descriptor: RawFd,
    number: u64,
    input: &[u8],
    output: &mut [u8],
    driver: &mut [u8],
) -> Result<(), Errno> {
    let mut attributes = vec![Attribute::In(0, input), Attribute::Number(2, number)];
    if !output.is_empty() {
        attributes.push(Attribute::Out(1, output));
    }
    if !driver.is_empty() {
        attributes.push(Attribute::Out(0x1001, driver));
    }
    call(descriptor, 0, 0, &mut attributes).map(drop)
}

/// Returns the bytes of numbers, in the machine's byte order.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Returns bytes with some changes. Each changed byte comes with its offset.
pub(crate) fn changed(bytes: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, byte) in changes {
        bytes[*at] = *byte;
    }
    bytes
}

/// Returns the driver's input of CQ_CREATE (`struct mlx5_ib_create_cq`).
pub(crate) fn cq_driver(ring: u64, record: u64) -> Vec<u8> {
    let mut driver = longs(&[ring, record]);
    driver.extend(words(&[64, 0, 0, 0]));
    driver
}

/// Returns the driver's input of QP_CREATE (`struct mlx5_ib_create_qp`).
pub(crate) fn qp_driver(buffer: u64, record: u64) -> Vec<u8> {
    let mut driver = longs(&[buffer, record]);
    driver.extend(words(&[BLOCKS, SLOTS, 6, 0, 0, 0]));
    driver.extend(longs(&[0, 0]));
    driver
}

/// A descriptor of an open context.
pub(crate) struct Context(pub(crate) RawFd);

impl Context {
    /// Opens the device and makes a context that may send commands to the device.
    pub(crate) fn new() -> Self {
        Self::with_flags(1)
    }

    /// Opens the device and makes a context with these flags (`MLX5_IB_ALLOC_UCTX_DEVX`).
    pub(crate) fn with_flags(flags: u8) -> Self {
        // Two doorbell registers, and completion entries of version 1.
        Self::with(&[(0, 2), (8, flags), (16, 1)]).expect("GET_CONTEXT")
    }

    /// Opens the device and makes a context. `bytes` are the bytes of the driver's input that are not zero
    /// (`struct mlx5_ib_alloc_ucontext_req_v2`), each with its offset.
    pub(crate) fn with(bytes: &[(usize, u8)]) -> Result<Self, Errno> {
        let descriptor = open().expect("open");
        let (request, mut response) = (changed(&[0; 32], bytes), [0; 72]);
        let mut attributes = [Attribute::In(0x1000, &request), Attribute::Out(0x1001, &mut response)];
        call(descriptor, 0, 3, &mut attributes).inspect_err(|_| close(descriptor))?;
        assert_eq!(word(&response, 40), 72, "response length");
        Ok(Self(descriptor))
    }

    /// Makes a protection domain, and returns its handle.
    pub(crate) fn pd(&self) -> u32 {
        let mut response = [0; 4];
        command(self.0, 3, &[0; 8], &mut response, &mut [0; 4]).expect("ALLOC_PD");
        word(&response, 0)
    }

    /// Registers memory and returns its handle and key.
    pub(crate) fn register(
        &self,
        pd: u32,
        address: u64,
        length: u64,
        access: u32,
    ) -> Result<(u32, u32), Errno> {
        let mut request = longs(&[0, address, length, address]);
        request.extend(words(&[pd, access]));
        let mut response = [0; 12];
        command(self.0, 9, &request, &mut response, &mut [])?;
        Ok((word(&response, 0), word(&response, 4)))
    }

    /// Makes a completion queue and returns its handle.
    pub(crate) fn cq(&self, ring: u64, record: u64, flags: u32) -> Result<u32, Errno> {
        self.cq_with(&cq_driver(ring, record), flags, Vec::new())
    }

    /// Makes a completion queue with this input of the driver and with further attributes.
    pub(crate) fn cq_with<'a>(
        &self,
        driver: &'a [u8],
        flags: u32,
        more: Vec<Attribute<'a>>,
    ) -> Result<u32, Errno> {
        let (mut count, mut number) = ([0; 4], [0; 8]);
        let (entries, flags) = ((ENTRIES - 1).to_ne_bytes(), flags.to_ne_bytes());
        let mut attributes = more;
        attributes.extend([
            Attribute::New(0),
            Attribute::In(1, &entries),
            Attribute::Number(2, 77),
            Attribute::In(4, &[0; 4]),
            Attribute::In(5, &flags),
            Attribute::Out(6, &mut count),
            Attribute::In(0x1000, driver),
            Attribute::Out(0x1001, &mut number),
        ]);
        call(self.0, 3, 0, &mut attributes)
    }

    /// Makes a queue pair and returns its handle and number.
    pub(crate) fn qp(&self, pd: u32, cq: u32, buffer: u64, record: u64) -> Result<(u32, u32), Errno> {
        self.qp_with(pd, cq, &qp_driver(buffer, record), 16, Vec::new())
    }

    /// Makes a queue pair with this input of the driver, this number of receive requests and further
    /// attributes.
    pub(crate) fn qp_with<'a>(
        &self,
        pd: u32,
        cq: u32,
        driver: &'a [u8],
        receives: u32,
        more: Vec<Attribute<'a>>,
    ) -> Result<(u32, u32), Errno> {
        let capabilities = words(&[16, receives, 1, 1, 0]);
        let (mut granted, mut number) = ([0; 20], [0; 4]);
        let mut attributes = more;
        let kind = attributes.iter().any(|attribute| matches!(attribute, Attribute::Number(9, _)));
        if !kind {
            attributes.push(Attribute::Number(9, 2));
        }
        attributes.extend([
            Attribute::New(0),
            Attribute::Handle(2, pd),
            Attribute::Handle(4, cq),
            Attribute::Handle(5, cq),
            Attribute::Number(7, 88),
            Attribute::In(8, &capabilities),
            Attribute::Out(13, &mut granted),
            Attribute::Out(14, &mut number),
            Attribute::In(0x1000, driver),
        ]);
        let handle = call(self.0, 4, 0, &mut attributes)?;
        Ok((handle, word(&number, 0)))
    }

    /// Modifies a queue pair's attributes and state.
    pub(crate) fn modify(&self, qp: u32, mask: u32, state: u8, destination: u32) -> Result<(), Errno> {
        self.modify_with(qp, mask, state, destination, &[])
    }

    /// Modifies a queue pair. `changes` replaces bytes of the structure (`struct ib_uverbs_modify_qp`) that
    /// [`Self::modify`] sends. Each byte comes with its offset.
    pub(crate) fn modify_with(
        &self,
        qp: u32,
        mask: u32,
        state: u8,
        destination: u32,
        changes: &[(usize, u8)],
    ) -> Result<(), Errno> {
        let mut request = vec![0; 112];
        request[..2].copy_from_slice(&[0xfe, 0x80]); // a link-local GID
        request[30] = 1; // the address is global
        request[31] = 1; // port of the address
        request[64..72].copy_from_slice(&words(&[qp, mask]));
        request[84..88].copy_from_slice(&destination.to_ne_bytes());
        request[88..92].copy_from_slice(&0xf_u32.to_ne_bytes());
        request[96] = state;
        request[98] = 5; // path MTU: 4096 bytes
        request[101..103].copy_from_slice(&[1, 1]); // reads at once: own, the peer's
        request[104] = 1; // port
        request[107] = 7; // retry for ever
        command(self.0, 26, &changed(&request, changes), &mut [], &mut [])
    }

    /// Returns a queue pair's state and port.
    pub(crate) fn query(&self, qp: u32) -> (u8, u8) {
        let mut request = longs(&[0]);
        request.extend(words(&[qp, 0]));
        let mut response = [0; 128];
        command(self.0, 25, &request, &mut response, &mut []).expect("QUERY_QP");
        (response[108], response[116])
    }

    /// Modifies a queue pair by a command of the device.
    pub(crate) fn command(&self, qp: u32, input: &[u8]) -> Result<(), Errno> {
        self.about_object(0x1002, qp, input, &mut [0; 16])
    }

    /// Queries an object by a command of the device.
    pub(crate) fn query_object(&self, object: u32, input: &[u8]) -> Result<(), Errno> {
        self.about_object(0x1003, object, input, &mut [0; 0x110])
    }

    fn about_object(&self, method: u16, object: u32, input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
        let mut attributes =
            [Attribute::Handle(0x1000, object), Attribute::In(0x1001, input), Attribute::Out(0x1002, output)];
        call(self.0, 0x1001, method, &mut attributes).map(drop)
    }

    /// Destroys an object by the method of its type. The attributes of the driver's types begin at 0x1000.
    pub(crate) fn destroy(&self, object: u16, method: u16, handle: u32) -> Result<(), Errno> {
        call(self.0, object, method, &mut [Attribute::Handle(object & 0x1000, handle)]).map(drop)
    }

    /// Registers memory for commands of the device. Returns its handle and number.
    pub(crate) fn umem(&self, address: u64, length: u64, access: u64) -> Result<(u32, u32), Errno> {
        let mut number = [0; 4];
        let mut attributes = [
            Attribute::New(0x1000),
            Attribute::Number(0x1001, address),
            Attribute::Number(0x1002, length),
            Attribute::Number(0x1003, access),
            Attribute::Out(0x1004, &mut number),
        ];
        let handle = call(self.0, 0x1002, 0x1000, &mut attributes)?;
        Ok((handle, u32::from_ne_bytes(number)))
    }

    /// Allocates a doorbell page of a kind. Returns its handle, its offset in the file, and its number.
    pub(crate) fn doorbell_page(&self, kind: u64) -> Result<(u32, i64, u32), Errno> {
        let (mut offset, mut length, mut number) = ([0; 8], [0; 4], [0; 4]);
        let mut attributes = [
            Attribute::New(0x1000),
            Attribute::Number(0x1001, kind),
            Attribute::Out(0x1002, &mut offset),
            Attribute::Out(0x1003, &mut length),
            Attribute::Out(0x1004, &mut number),
        ];
        let handle = call(self.0, 0x1008, 0x1000, &mut attributes)?;
        Ok((handle, i64::from_ne_bytes(offset), u32::from_ne_bytes(number)))
    }

    /// Asks for the number of the event queue of a completion vector.
    pub(crate) fn event_queue(&self, vector: &[u8]) -> Result<(), Errno> {
        let mut queue = [0; 4];
        let mut attributes = [Attribute::In(0x1000, vector), Attribute::Out(0x1001, &mut queue)];
        call(self.0, 0x1000, 0x1002, &mut attributes).map(drop)
    }

    /// Asks for events of the device with these numbers, of an object or without one. `more` are further
    /// attributes.
    pub(crate) fn subscribe(
        &self,
        channel: RawFd,
        object: Option<u32>,
        numbers: &[u8],
        more: &[(u16, &[u8])],
    ) -> Result<(), Errno> {
        let mut attributes =
            vec![Attribute::Handle(0x1000, channel.cast_unsigned()), Attribute::In(0x1002, numbers)];
        attributes.extend(more.iter().map(|(id, bytes)| Attribute::In(*id, bytes)));
        attributes.extend(object.map(|handle| Attribute::Handle(0x1001, handle)));
        call(self.0, 0x1000, 0x1003, &mut attributes).map(drop)
    }

    /// Makes a channel for the answers of [`Self::query_later`].
    pub(crate) fn answers(&self) -> RawFd {
        call(self.0, 0x1004, 0x1000, &mut [Attribute::New(0x1000)]).unwrap().cast_signed()
    }

    /// Sends a query about an object, whose answer of this length goes to a channel under a number.
    pub(crate) fn query_later(
        &self,
        object: u32,
        input: &[u8],
        channel: RawFd,
        (length, number): (u64, u64),
    ) -> Result<(), Errno> {
        let mut attributes = [
            Attribute::Handle(0x1000, object),
            Attribute::In(0x1001, input),
            Attribute::Handle(0x1002, channel.cast_unsigned()),
            Attribute::Number(0x1003, number),
            Attribute::Number(0x1004, length),
        ];
        call(self.0, 0x1001, 0x1004, &mut attributes).map(drop)
    }

    /// Sends a command without an object.
    pub(crate) fn other(&self, input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
        let mut attributes = [Attribute::In(0x1000, input), Attribute::Out(0x1001, output)];
        call(self.0, 0x1000, 0x1000, &mut attributes).map(drop)
    }
}

/// A queue pair with the objects that it needs, and a page of data.
pub(crate) struct End {
    pub(crate) context: Context,
    pub(crate) qp: u32,
    pub(crate) qpn: u32,
    pub(crate) data: Pages,
    pub(crate) key: u32,
    pub(crate) ring: Pages,
    cq_ring: Pages,
    records: Pages,
    /// Whether the consumer index stays unreported, so that the device does not learn which entries are
    /// taken.
    pub(crate) silent: bool,
    posted: u16,
    polled: u32,
}

impl End {
    /// Makes an unconnected queue pair.
    pub(crate) fn new() -> Self {
        Self::with(0)
    }

    /// Makes a queue pair that is connected to itself.
    pub(crate) fn loopback() -> Self {
        let new = Self::new();
        new.connect(new.qpn);
        new
    }

    /// Makes an unconnected queue pair whose completion queue has these flags.
    pub(crate) fn with(flags: u32) -> Self {
        let context = Context::new();
        let pd = context.pd();
        let (data, cq_ring, ring, records) =
            (Pages::new(4096), Pages::new(4096), Pages::new(8192), Pages::new(4096));
        for entry in 0..u64::from(ENTRIES) {
            cq_ring.write(entry * 64 + 63, &[0xf0]);
        }
        let (_, key) = context.register(pd, data.0, 4096, 0xf).expect("REG_MR");
        let cq = context.cq(cq_ring.0, records.0, flags).expect("CQ_CREATE");
        let (qp, qpn) = context.qp(pd, cq, ring.0, records.0 + 64).expect("QP_CREATE");
        Self { context, qp, qpn, data, key, ring, cq_ring, records, silent: false, posted: 0, polled: 0 }
    }

    /// Connects the queue pair to a peer, and moves it to the state RTS.
    pub(crate) fn connect(&self, peer: u32) {
        self.context.modify(self.qp, 0x39, 1, 0).expect("to INIT");
        self.context.modify(self.qp, 0x12_9181, 2, peer).expect("to RTR");
        self.context.modify(self.qp, 0x1_2e01, 3, 0).expect("to RTS");
    }

    /// Posts an RDMA WRITE of the first `length` bytes of the data page, and updates the doorbell record,
    /// which the device watches. The UAR is untouched.
    pub(crate) fn write(&mut self, length: u32, address: u64, rkey: u32) {
        self.post(8, length, address, rkey);
    }

    /// Works like [`Self::write`], and waits for the completion, which must be without an error.
    #[track_caller]
    pub(crate) fn write_and_succeed(&mut self, length: u32, address: u64, rkey: u32) {
        self.write(length, address, rkey);
        assert_eq!(self.poll().0, DONE);
    }

    /// Writes eight bytes to another place in the data page, and returns the opcode of the completion.
    pub(crate) fn write_once(&mut self) -> u8 {
        self.write(8, self.data.0 + 512, self.key);
        self.poll().0
    }

    /// Works like [`Self::write`], with another opcode. 9 is an RDMA WRITE with immediate data.
    pub(crate) fn post(&mut self, opcode: u32, length: u32, address: u64, rkey: u32) {
        let mut request = Vec::new();
        for word in [u32::from(self.posted) << 8 | opcode, self.qpn << 8 | 3, 8, 0] {
            request.extend(word.to_be_bytes());
        }
        request.extend(address.to_be_bytes());
        for word in [rkey, 0, length, self.key] {
            request.extend(word.to_be_bytes());
        }
        request.extend(self.data.0.to_be_bytes());
        let slot = u64::from(u32::from(self.posted) % BLOCKS);
        self.ring.write(u64::from(SLOTS) * 64 + slot * 64, &request);
        self.posted = self.posted.wrapping_add(1);
        fence(Ordering::Release);
        self.records.word(64 + 4).store(u32::from(self.posted).to_be(), Ordering::Release);
    }

    /// Returns the last byte of the next completion, if the completion has arrived.
    fn next_completion(&self) -> Option<u8> {
        let slot = u64::from(self.polled % ENTRIES) * 64;
        let lap = ((self.polled / ENTRIES) & 1) as u8;
        let last = self.cq_ring.read(slot + 63, 1)[0];
        (last & 1 == lap && last >> 4 != 0xf).then_some(last)
    }

    pub(crate) fn has_completion(&self) -> bool {
        self.next_completion().is_some()
    }

    /// Waits for a completion. Returns its opcode, and for an error its syndrome.
    pub(crate) fn poll(&mut self) -> (u8, u8) {
        let slot = u64::from(self.polled % ENTRIES) * 64;
        let start = Instant::now();
        loop {
            if let Some(last) = self.next_completion() {
                fence(Ordering::Acquire);
                self.polled += 1;
                if !self.silent {
                    self.records.word(0).store((self.polled & 0xff_ffff).to_be(), Ordering::Release);
                }
                return (last >> 4, self.cq_ring.read(slot + 55, 1)[0]);
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no completion");
            std::thread::yield_now();
        }
    }
}

/// Takes a spin lock, sets `errno` to `before`, and releases the lock, as libmlx5 does when it posts. Returns
/// the `errno` after the release.
pub(crate) fn errno_behind_a_lock(before: i32) -> i32 {
    let mut lock = 0;
    // SAFETY: the lock is initialised before it is taken and lives until it is released. This thread is its
    // only user. The location of errno is always valid for its thread.
    unsafe {
        libc::pthread_spin_init(&raw mut lock, libc::PTHREAD_PROCESS_PRIVATE);
        libc::pthread_spin_lock(&raw mut lock);
        *libc::__errno_location() = before;
        libc::pthread_spin_unlock(&raw mut lock);
        *libc::__errno_location()
    }
}

/// Forks. The child runs `body` and ends. Returns whether `body` returned true.
pub(crate) fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only runs `body`, and ends without returning.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let content = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: ends the process without the test harness's exit handlers.
        unsafe { libc::_exit(i32::from(!content)) };
    }
    let mut status = 0;
    // SAFETY: `status` lives until the call is over.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Moves this thread, and the programs that it starts, to a new network namespace. Returns whether the move
/// succeeded.
pub(crate) fn in_a_namespace() -> bool {
    // SAFETY: the argument is a number, and the call changes only this thread.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

/// Waits up to ten seconds until a descriptor is readable.
pub(crate) fn becomes_readable(descriptor: RawFd) -> bool {
    let mut waiting = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one entry, which lives until the call is over.
    unsafe { libc::poll(&raw mut waiting, 1, 10_000) == 1 }
}

/// Writes a command to a file of connection management.
pub(crate) fn write_command(descriptor: RawFd, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the bytes live until the call is over.
    let written = unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) };
    if written < 0 { Err(errno()) } else { Ok(()) }
}
