//! A ring of bytes in memory that two processes share: one writes, the other reads.
//!
//! The writer makes the memory, and hands the file to the reader together with the first byte of the
//! connection between the two ([`Writer::hand`], [`Reader::take`]). Neither side trusts the other. The reader
//! accepts only a file whose size can never change, so an access to the mapping always finds memory. Each
//! side keeps its own position to itself, and checks the position of the other side before use.
//!
//! Before the reader sleeps, it sets a mark in the ring ([`Reader::will_sleep`]). A writer that finds this
//! mark takes the mark back, and wakes the reader once.
#![allow(unsafe_code)]

use crate::copy::copy;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The bytes of data in a ring, a power of two. A ring soon touches all its memory, and two processes that
/// talk to each other have two rings, one for each direction. A larger ring would therefore cost memory.
pub(crate) const ROOM: u64 = 1 << 18;

/// Indices of words in the page before the data, each in a cache line of its own: the number of bytes that
/// were ever written, the number that were ever read, and whether the reader sleeps.
const WRITTEN: usize = 0;
const READ: usize = 8;
const SLEEPS: usize = 16;

/// The offset of the data in bytes.
const DATA: usize = 4096;

/// The bytes of the file: the page of positions, and the data.
const SIZE: u64 = DATA as u64 + ROOM;

/// The kind of a file system in memory (`TMPFS_MAGIC`), to which files of `memfd_create` belong unless they
/// consist of huge pages. A reader accepts only a ring in such a file.
const IN_MEMORY: i64 = 0x0102_1994;

/// The seals of a ring's file: nothing can change the file's size, and the seals cannot be removed.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The error if the other side has written a position that no honest process writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

/// The memory of a ring.
#[derive(Debug)]
struct Memory(NonNull<AtomicU64>);

// SAFETY: the mapping belongs to the value alone, on any thread.
unsafe impl Send for Memory {}

impl Memory {
    fn map(file: &OwnedFd) -> Result<Self, Errno> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address range that nobody else uses.
        let place = unsafe { mmap(std::ptr::null_mut(), SIZE as usize, rights, MapFlags::SHARED, file, 0) }?;
        NonNull::new(place.cast()).map(Self).ok_or(Errno::NOMEM)
    }

    /// Returns a word of the page of positions, by one of the constants above.
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the constants are indices of the first page. The file has `SIZE` bytes for good, so the
        // word is mapped as long as `self` lives. The other process may change the word at any time, and both
        // sides use atomic operations only.
        unsafe { self.0.add(index).as_ref() }
    }

    /// Returns the address of byte number `at` of all bytes that ever pass through the ring, and the number
    /// of bytes from there to the end of the memory.
    fn place(&self, at: u64) -> (*mut u8, usize) {
        let offset = at % ROOM;
        // SAFETY: the file has `SIZE` bytes, so the place is part of the mapping.
        (unsafe { self.0.as_ptr().cast::<u8>().add(DATA + offset as usize) }, (ROOM - offset) as usize)
    }

    /// Stores bytes from byte number `at` on. Ignores bytes beyond [`ROOM`].
    fn store(&self, at: u64, bytes: &[u8]) {
        let (place, left) = self.place(at);
        let (first, second) = bytes.split_at(bytes.len().min(left));
        let second = second.get(..ROOM as usize - left).unwrap_or(second);
        for (place, part) in [(place, first), (self.place(0).0, second)] {
            // SAFETY: the part fits the memory behind the place, which is mapped as long as `self` lives.
            // Only such copies access the data, so that the other process may change them at any time.
            unsafe { copy(place, part.as_ptr(), part.len()) };
        }
    }

    /// Fills `out` with the bytes from byte number `at` on. Returns whether all of `out` is filled: a ring
    /// has at most [`ROOM`] bytes, and memory may fail.
    fn load(&self, at: u64, out: &mut [MaybeUninit<u8>]) -> bool {
        let (place, left) = self.place(at);
        let (first, second) = out.split_at_mut(out.len().min(left));
        let fits = second.len() <= ROOM as usize - left;
        fits && [(place, first), (self.place(0).0, second)].into_iter().all(|(place, part)| {
            // SAFETY: as in `store`.
            unsafe { copy(part.as_mut_ptr().cast(), place, part.len()) == 0 }
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `map` has mapped the range, and no reference to the range outlives `self`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), SIZE as usize) };
    }
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Writer {
    memory: Memory,
    /// The number of bytes that were ever written.
    written: u64,
    /// The number of bytes that were ever read, when the writer last looked.
    read: u64,
}

impl Writer {
    /// Makes a ring, and sends its file and one byte over a connection.
    ///
    /// # Errors
    /// The system's error, if it cannot make a file in memory, or cannot send the file.
    pub(crate) fn hand(stream: &UnixStream) -> Result<Self, Errno> {
        let file = rustix::fs::memfd_create(c"mlx5-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, SIZE)?;
        fcntl_add_seals(&file, SEALS)?;
        let memory = Memory::map(&file)?;
        // The reader has to be woken for the first bytes.
        memory.word(SLEEPS).store(1, Ordering::Relaxed);
        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(stream, &[IoSlice::new(&[0])], &mut rights, SendFlags::NOSIGNAL)?;
        Ok(Self { memory, written: 0, read: 0 })
    }

    /// Writes the pieces, one after the other, as far as there is room. Returns the number of written bytes.
    pub(crate) fn write(&mut self, pieces: &[&[u8]]) -> usize {
        // The reader's processor has its position in its cache. Reading the position takes as long as much of
        // a short message, and is omitted while the last position leaves enough room.
        if self.room() < pieces.iter().map(|piece| piece.len()).sum() {
            self.read = self.memory.word(READ).load(Ordering::Acquire);
        }
        let mut room = self.room();
        let before = self.written;
        for piece in pieces {
            let part = piece.get(..room).unwrap_or(piece);
            self.memory.store(self.written, part);
            self.written += part.len() as u64;
            room -= part.len();
        }
        if self.written != before {
            self.memory.word(WRITTEN).store(self.written, Ordering::Release);
        }
        (self.written - before) as usize
    }

    /// Returns the number of bytes for which there is room, according to the reader's last position.
    fn room(&self) -> usize {
        // A reader that claims to have read more than was written, or to be further behind than possible,
        // gets nothing more.
        let waiting = self.written.checked_sub(self.read).filter(|waiting| *waiting <= ROOM).unwrap_or(ROOM);
        (ROOM - waiting) as usize
    }

    /// Writes an impossible position, as a hostile writer could.
    #[cfg(test)]
    pub(crate) fn lie(&self) {
        self.memory.word(WRITTEN).store(u64::MAX, Ordering::Relaxed);
    }

    /// Returns whether the reader sleeps, and has to be woken. The answer is true once for each sleep.
    pub(crate) fn must_wake(&self) -> bool {
        // This fence pairs with the fence in `Reader::will_sleep`: either this side sees the reader's mark,
        // or the reader sees the written bytes before it sleeps.
        fence(Ordering::SeqCst);
        let sleeps = self.memory.word(SLEEPS);
        sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Reader {
    memory: Memory,
    read: u64,
}

/// The way by which the messages of a connection come. The first bytes of the connection tell it.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// The messages come by this ring.
    Ring(Reader),
    /// The messages come as bytes of the connection. This many bytes were appended to the caller's.
    Bytes(usize),
}

impl Reader {
    /// Appends the first bytes of a connection to `out`, `most` at most, unless the file of a ring comes with
    /// them. Takes this file.
    ///
    /// # Errors
    /// The system's error of the read. [`Errno::INVAL`] for a file that cannot be a ring.
    pub(crate) fn take(stream: &UnixStream, out: &mut Vec<u8>, most: usize) -> Result<Beginning, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut bytes = vec![0; most];
        let received = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags)?;
        let files = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        // Surplus files are closed.
        let file = files.flatten().collect::<Vec<OwnedFd>>().into_iter().next();
        Ok(match file {
            Some(file) => Beginning::Ring(Self::over(&file)?),
            None => {
                out.extend_from_slice(bytes.get(..received.bytes).unwrap_or_default());
                Beginning::Bytes(received.bytes)
            }
        })
    }

    fn over(file: &OwnedFd) -> Result<Self, Errno> {
        let is_fixed = fcntl_get_seals(file)?.contains(SEALS) && fstat(file)?.st_size == SIZE as i64;
        if !is_fixed || fstatfs(file)?.f_type != IN_MEMORY {
            return Err(Errno::INVAL);
        }
        Ok(Self { memory: Memory::map(file)?, read: 0 })
    }

    /// Returns the number of bytes that can be read.
    fn waiting(&self) -> Result<u64, Nonsense> {
        let written = self.memory.word(WRITTEN).load(Ordering::Acquire);
        written.checked_sub(self.read).filter(|waiting| *waiting <= ROOM).ok_or(Nonsense)
    }

    /// Appends the next bytes to `out`, as far as there are any, and `most` at most. Returns their number.
    ///
    /// # Errors
    /// [`Nonsense`] if the writer's position is impossible, or the memory fails.
    pub(crate) fn append(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, Nonsense> {
        let waiting = self.waiting()?;
        let length = most.min(usize::try_from(waiting).unwrap_or(usize::MAX));
        out.reserve(length);
        let free = out.spare_capacity_mut().get_mut(..length).unwrap_or_default();
        if !self.memory.load(self.read, free) {
            return Err(Nonsense);
        }
        self.read += length as u64;
        // SAFETY: the load has filled the first `length` bytes of the free capacity.
        unsafe { out.set_len(out.len() + length) };
        if length > 0 {
            self.memory.word(READ).store(self.read, Ordering::Release);
        }
        Ok(length)
    }

    /// Marks that this process is about to sleep, so that the writer wakes it. Returns whether it may sleep,
    /// that is, whether the ring is empty.
    pub(crate) fn will_sleep(&self) -> bool {
        self.memory.word(SLEEPS).store(1, Ordering::Relaxed);
        // This fence pairs with the fence in `Writer::must_wake`: either this side sees the written bytes, or
        // the writer sees the mark.
        fence(Ordering::SeqCst);
        self.waiting() == Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns both ends of a ring, and both ends of the connection that it belongs to.
    fn ring() -> (Writer, Reader, [UnixStream; 2]) {
        let (one, other) = UnixStream::pair().unwrap();
        let writer = Writer::hand(&one).unwrap();
        let Beginning::Ring(reader) = Reader::take(&other, &mut Vec::new(), 9).unwrap() else {
            panic!("a ring")
        };
        (writer, reader, [one, other])
    }

    fn read(reader: &mut Reader, most: usize) -> Result<usize, Nonsense> {
        reader.append(&mut Vec::new(), most)
    }

    #[test]
    fn bytes_arrive_in_order_at_any_position() {
        let (mut writer, mut reader, _streams) = ring();
        let bytes: Vec<u8> = (0..3 * ROOM).map(|at| (at % 251) as u8).collect();
        let (mut sent, mut got, mut turn) = (0, Vec::<u8>::new(), 0);
        while got.len() < bytes.len() {
            turn += 1;
            // Pieces of many lengths. The ring is full at most times, since the reader takes fewer bytes.
            let piece =
                |from: usize, length: usize| &bytes[from.min(bytes.len())..(from + length).min(bytes.len())];
            let (first, second) = (turn % 13, 1000 + turn % 29);
            sent += writer.write(&[piece(sent, first), piece(sent + first, second)]);
            reader.append(&mut got, 500 + turn % 97).unwrap();
        }
        assert!(got == bytes);
        assert_eq!(read(&mut reader, 9), Ok(0));
    }

    #[test]
    fn a_full_ring_takes_no_byte() {
        let (mut writer, mut reader, _streams) = ring();
        let bytes = vec![7; ROOM as usize + 9];
        assert_eq!(writer.write(&[&bytes]), ROOM as usize);
        assert_eq!(writer.write(&[&bytes]), 0);
        assert_eq!(read(&mut reader, 3), Ok(3));
        assert_eq!(writer.write(&[&bytes]), 3);
        assert_eq!(writer.write(&[&bytes]), 0);
    }

    #[test]
    fn impossible_positions_are_refused() {
        let (mut writer, mut reader, _streams) = ring();
        assert_eq!(writer.write(&[b"some bytes"]), 10);
        assert_eq!(read(&mut reader, 4), Ok(4));
        for nonsense in [0, 3, 4 + ROOM + 1, u64::MAX] {
            writer.memory.word(WRITTEN).store(nonsense, Ordering::Relaxed);
            assert_eq!(read(&mut reader, 4), Err(Nonsense), "{nonsense}");
            assert!(!reader.will_sleep());
        }
        for nonsense in [16, 1 << 40, u64::MAX] {
            reader.memory.word(READ).store(nonsense, Ordering::Relaxed);
            // More bytes than there is room for make the writer look.
            assert_eq!(writer.write(&[&[0; ROOM as usize]]), 0, "{nonsense}");
        }
    }

    #[test]
    fn a_reader_that_sleeps_is_woken_once() {
        let (mut writer, mut reader, _streams) = ring();
        assert!(writer.must_wake(), "for the first bytes");
        assert!(!writer.must_wake());
        assert!(reader.will_sleep());
        writer.write(&[b"1"]);
        assert!(!reader.will_sleep());
        assert!(writer.must_wake() && !writer.must_wake());
        assert_eq!(read(&mut reader, 2), Ok(1));
        assert!(reader.will_sleep());
    }

    /// Sends a file over a connection, and returns the result of [`Reader::take`] at the other end.
    fn taken(file: &OwnedFd) -> Result<Beginning, Errno> {
        let (one, other) = UnixStream::pair().unwrap();
        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(&one, &[IoSlice::new(&[0])], &mut rights, SendFlags::NOSIGNAL).unwrap();
        Reader::take(&other, &mut Vec::new(), 9)
    }

    #[test]
    fn a_file_that_could_change_its_size_is_refused() {
        let file = |size, seals| {
            let file = rustix::fs::memfd_create(c"test", MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, size).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            file
        };
        assert!(matches!(taken(&file(SIZE, SEALS)), Ok(Beginning::Ring(_))));
        for refused in [
            file(SIZE, SealFlags::empty()),
            file(SIZE, SealFlags::GROW | SealFlags::SEAL),
            file(SIZE, SealFlags::SHRINK | SealFlags::GROW),
            file(SIZE - 1, SEALS),
            file(SIZE + 1, SEALS),
            file(SIZE, SEALS | SealFlags::WRITE),
            tempfile::tempfile().unwrap().into(),
        ] {
            assert!(taken(&refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn a_connection_without_a_file_has_bytes() {
        let (mut one, other) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut one, b"four").unwrap();
        let mut room = Vec::new();
        assert!(matches!(Reader::take(&other, &mut room, 9), Ok(Beginning::Bytes(4))));
        assert_eq!(room, b"four");
        assert_eq!(Reader::take(&other, &mut room, 9).unwrap_err(), Errno::AGAIN);
        drop(one);
        assert!(matches!(Reader::take(&other, &mut room, 9), Ok(Beginning::Bytes(0))));
    }
}
