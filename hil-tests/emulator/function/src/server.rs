//! The server: receives messages and descriptors over a socket, from one client after the other.

use crate::function::{Function, Refusal, Region};
use crate::memory::Rights;
use crate::message::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The most file descriptors that a message may carry.
const DESCRIPTORS: usize = 16;

/// A BlueFlame write arrives in several messages. After each message of the client (QEMU), the server waits
/// this long for the next part. After this time, the first 8 bytes count as a plain doorbell.
const BLOCK: Duration = Duration::from_millis(20);
/// The time after which the server repeats requests whose receiver was not ready, flushes receive requests of
/// failed queue pairs, and writes late completions. Messages of the client and of the network do not prolong
/// it.
const WAIT: Duration = Duration::from_millis(1);

/// The number of kinds of interrupts, and the number of the kind MSI-X. The kinds are INTx, MSI, MSI-X,
/// errors, requests of the host (`VFIO_PCI_*_IRQ_INDEX`).
const INTERRUPT_KINDS: u32 = 5;
const MSI_X: u32 = 2;

/// The reason for which a message is refused: an error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused(u32);

impl Refused {
    const INVALID: Self = Self(22);
    const NOT_SUPPORTED: Self = Self(95);
}

impl From<Refusal> for Refused {
    fn from(_: Refusal) -> Self {
        Self::INVALID
    }
}

struct Message {
    header: Header,
    body: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Message {
    /// Returns the structure at the start of the message's body, and the bytes after the structure.
    fn part<T: FromBytes>(&self) -> Result<(T, &[u8]), Refused> {
        T::read_from_prefix(&self.body).map_err(|_| Refused::INVALID)
    }
}

/// Serves clients one after the other. Each client finds the function in the state after a reset.
///
/// # Errors
/// The system's error of the socket.
pub fn serve(listener: &UnixListener, function: &mut Function) -> std::io::Result<()> {
    let mut due = None;
    loop {
        wait(listener, function, &mut due)?;
        let (stream, _) = listener.accept()?;
        // An error of one client's connection ends only this connection.
        let _ = serve_stream(stream, function);
    }
}

/// Serves a client until it disconnects. A message with an invalid length ends the connection.
///
/// # Errors
/// The system's error of the socket.
pub fn serve_stream(mut stream: UnixStream, function: &mut Function) -> std::io::Result<()> {
    let served = messages(&mut stream, function);
    function.disconnect();
    served
}

fn messages(stream: &mut UnixStream, function: &mut Function) -> std::io::Result<()> {
    let mut due = None;
    loop {
        wait(&*stream, function, &mut due)?;
        let Some(message) = receive(stream)? else { return Ok(()) };
        let is_silent = message.header.flags.get() & flag::NO_REPLY != 0;
        let Header { id, command, flags, .. } = message.header;
        let answer =
            if flags.get() & flag::TYPE == 0 { answer(function, message) } else { Err(Refused::INVALID) };
        if is_silent {
            continue;
        }
        let (flags, error, body) = match answer {
            Ok(body) => (flag::REPLY, 0, body),
            Err(Refused(error)) => (flag::REPLY | flag::ERROR, error, Vec::new()),
        };
        let size = ((HEADER + body.len()) as u32).into();
        let header = Header { id, command, size, flags: flags.into(), error: error.into() };
        stream.write_all(&[header.as_bytes(), &body].concat())?;
    }
}

/// Waits until the client's socket is readable. Meanwhile the function does the work that is due, and takes
/// messages of its network. Without due work and without a network, returns at once: the caller's next read
/// of the socket waits. `due` is the time since which work is due. The caller keeps this time between calls,
/// so that messages of the client do not delay the work.
fn wait(socket: impl AsFd, function: &mut Function, due: &mut Option<Instant>) -> std::io::Result<()> {
    let begun = Instant::now();
    loop {
        let now = Instant::now();
        *due = function.is_due().then(|| due.unwrap_or(now));
        let end = match *due {
            Some(_) if function.device_mut().has_open_doorbell() => Some(begun + BLOCK),
            since => since.map(|since| since + WAIT),
        };
        if end.is_some_and(|end| end <= now) {
            function.run();
            *due = None;
            continue;
        }
        let limit = end.map(|end| Timespec { tv_sec: 0, tv_nsec: (end - now).as_nanos() as i64 });
        let mut polled = vec![PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        polled.extend(function.prepare_sleep().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)));
        if limit.is_none() && polled.len() == 1 {
            return Ok(());
        }
        let count = match poll(&mut polled, limit.as_ref()) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(count) => count,
        };
        let is_readable = polled.first().is_some_and(|first| !first.revents().is_empty());
        drop(polled);
        if count > usize::from(is_readable) {
            function.receive();
        }
        if is_readable {
            return Ok(());
        }
    }
}

/// Receives a message. Returns `None` if the client has disconnected, or if the length in the header is
/// invalid.
fn receive(stream: &UnixStream) -> std::io::Result<Option<Message>> {
    let (mut header, mut descriptors) = (Header::new_zeroed(), Vec::new());
    if !fill(stream, header.as_mut_bytes(), &mut descriptors)? {
        return Ok(None);
    }
    let size = header.size.get() as usize;
    if !(HEADER..=LONGEST).contains(&size) {
        return Ok(None);
    }
    let mut body = vec![0; size - HEADER];
    let is_whole = fill(stream, &mut body, &mut descriptors)?;
    Ok(is_whole.then_some(Message { header, body, descriptors }))
}

/// Fills `bytes`, and keeps the descriptors that come with them. Returns false if the connection ends before
/// `bytes` is full.
fn fill(stream: &UnixStream, mut bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> std::io::Result<bool> {
    while !bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let count = match received {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(received) => received.bytes,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                // Surplus descriptors are closed.
                descriptors.extend(rights);
                descriptors.truncate(DESCRIPTORS);
            }
        }
        if count == 0 {
            return Ok(false);
        }
        bytes = bytes.get_mut(count..).unwrap_or_default();
    }
    Ok(true)
}

/// Carries out a message, and returns the body of the reply.
fn answer(function: &mut Function, message: Message) -> Result<Vec<u8>, Refused> {
    match message.header.command.get() {
        command::VERSION => {
            let (asked, _) = message.part::<Version>()?;
            if asked.major.get() != 0 {
                return Err(Refused::NOT_SUPPORTED);
            }
            let version = Version { major: 0.into(), minor: asked.minor.get().min(1).into() };
            Ok([version.as_bytes(), CAPABILITIES].concat())
        }
        command::DMA_MAP => map(function, &message),
        command::DMA_UNMAP => {
            let (asked, _) = message.part::<DmaUnmap>()?;
            let range = (asked.address.get(), asked.length.get());
            match asked.flags.get() {
                0 => function.unmap(Some(range))?,
                UNMAP_ALL => function.unmap(None)?,
                _ => return Err(Refused::NOT_SUPPORTED),
            }
            Ok(asked.as_bytes().to_vec())
        }
        command::DEVICE_GET_INFO => {
            let info = DeviceInfo {
                argsz: (size_of::<DeviceInfo>() as u32).into(),
                flags: DEVICE_FLAGS.into(),
                regions: Region::COUNT.into(),
                interrupts: INTERRUPT_KINDS.into(),
            };
            Ok(info.as_bytes().to_vec())
        }
        command::DEVICE_GET_REGION_INFO => {
            let (asked, _) = message.part::<RegionInfo>()?;
            if asked.index.get() >= Region::COUNT {
                return Err(Refused::INVALID);
            }
            let region = Region::numbered(asked.index.get());
            let info = RegionInfo {
                argsz: (size_of::<RegionInfo>() as u32).into(),
                flags: region.map_or(0, |_| REGION_FLAGS).into(),
                index: asked.index,
                length: region.map_or(0, Region::bytes).into(),
                ..RegionInfo::default()
            };
            Ok(info.as_bytes().to_vec())
        }
        command::DEVICE_GET_IRQ_INFO => {
            let (asked, _) = message.part::<InterruptInfo>()?;
            let index = asked.index.get();
            if index >= INTERRUPT_KINDS {
                return Err(Refused::INVALID);
            }
            let has_any = index == MSI_X;
            let info = InterruptInfo {
                argsz: (size_of::<InterruptInfo>() as u32).into(),
                flags: if has_any { INTERRUPT_FLAGS } else { 0 }.into(),
                index: asked.index,
                count: if has_any { Function::vectors() } else { 0 }.into(),
            };
            Ok(info.as_bytes().to_vec())
        }
        command::DEVICE_SET_IRQS => set_interrupts(function, message),
        command::REGION_READ => {
            let (asked, _) = message.part::<Access>()?;
            let count = asked.count.get() as usize;
            let region = Region::numbered(asked.region.get()).filter(|_| count <= MOST_DATA);
            let mut data = vec![0; if region.is_some() { count } else { 0 }];
            function.read(region.ok_or(Refused::INVALID)?, asked.offset.get(), &mut data)?;
            Ok([asked.as_bytes(), &data].concat())
        }
        command::REGION_WRITE => {
            let (asked, data) = message.part::<Access>()?;
            let region = Region::numbered(asked.region.get()).ok_or(Refused::INVALID)?;
            if data.len() != asked.count.get() as usize {
                return Err(Refused::INVALID);
            }
            function.write(region, asked.offset.get(), data)?;
            Ok(asked.as_bytes().to_vec())
        }
        command::DEVICE_RESET => {
            function.reset();
            Ok(Vec::new())
        }
        _ => Err(Refused::NOT_SUPPORTED),
    }
}

fn map(function: &mut Function, message: &Message) -> Result<Vec<u8>, Refused> {
    let (asked, _) = message.part::<DmaMap>()?;
    let flags = asked.flags.get();
    if flags & !(MAP_READ | MAP_WRITE) != 0 || message.descriptors.len() > 1 {
        return Err(Refused::INVALID);
    }
    let rights = Rights { read: flags & MAP_READ != 0, write: flags & MAP_WRITE != 0 };
    let file = message.descriptors.first().map(|file| (file, asked.offset.get()));
    function.map(asked.address.get(), asked.length.get(), rights, file)?;
    Ok(Vec::new())
}

fn set_interrupts(function: &mut Function, message: Message) -> Result<Vec<u8>, Refused> {
    let (asked, _) = message.part::<SetInterrupts>()?;
    let (start, count) = (asked.start.get(), asked.count.get());
    if asked.index.get() != MSI_X {
        // Other kinds of interrupts do not exist. Disabling them succeeds, every other action is refused.
        return if count == 0 { Ok(Vec::new()) } else { Err(Refused::INVALID) };
    }
    const TRIGGER: u32 = set::ACTION_TRIGGER;
    match asked.flags.get() {
        flags if flags == set::DATA_NONE | TRIGGER && count == 0 => {
            let none = (0..Function::vectors() as usize).map(|_| None);
            function.set_vectors(0, none)?;
        }
        flags if flags == set::DATA_NONE | TRIGGER => function.trigger(start, count)?,
        flags if flags == set::DATA_DESCRIPTORS | TRIGGER => {
            let count = count as usize;
            let mut descriptors = message.descriptors;
            // There is one descriptor for each vector, or none at all. Without a descriptor, a vector is not
            // signalled.
            if !descriptors.is_empty() && descriptors.len() != count || count > Function::vectors() as usize {
                return Err(Refused::INVALID);
            }
            let mut given = descriptors.drain(..);
            let vectors: Vec<Option<OwnedFd>> = (0..count).map(|_| given.next()).collect();
            function.set_vectors(start, vectors.into_iter())?;
        }
        // The client masks interrupts itself, so these requests have no effect.
        flags
            if flags == set::DATA_NONE | set::ACTION_MASK || flags == set::DATA_NONE | set::ACTION_UNMASK => {
        }
        _ => return Err(Refused::INVALID),
    }
    Ok(Vec::new())
}
