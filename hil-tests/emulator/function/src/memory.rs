//! Memory of the client: parts of files that the client has opened. They are mapped into this process, and
//! found by their bus addresses.
//!
//! Other processes that map the files may write their bytes at any time, and so may the client's machine. The
//! function reads and writes the bytes by atomic copies only, and checks only the copies.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use mlx5_softdev::{Fault, Memory};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The most ranges that a client may map.
const MOST: usize = 1 << 12;

/// Rights of the function to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The function may read the range.
    pub read: bool,
    /// The function may write the range.
    pub write: bool,
}

/// The reason for which a range was not mapped. No mapping has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The range is empty, or ends beyond 2^64.
    Range,
    /// Part of the range is already mapped.
    Overlap,
    /// The client has mapped the largest number of ranges already.
    TooMany,
    /// The range's file could shrink, because it lacks the seal of memory files that prevents it
    /// (`F_SEAL_SHRINK`).
    NotSealed,
    /// The file ends before the range does.
    BehindEnd,
    /// The system refuses to map the range.
    System,
}

impl core::fmt::Display for MapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Range => "the range is empty or ends behind 2^64",
            Self::Overlap => "part of the range is mapped already",
            Self::TooMany => "too many ranges",
            Self::NotSealed => "the file can become shorter: it has no F_SEAL_SHRINK",
            Self::BehindEnd => "the file ends before the range does",
            Self::System => "the system does not map the file",
        })
    }
}

impl core::error::Error for MapError {}

/// A mapped part of a file.
#[derive(Debug)]
struct Mapping {
    first: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd, offset: u64, length: u64, rights: Rights) -> Result<Self, MapError> {
        // The seal is checked first. The length of a sealed file cannot shrink after its check.
        let is_sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !is_sealed {
            return Err(MapError::NotSealed);
        }
        let size = fstat(file).map_err(|_| MapError::System)?.st_size as u64;
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(MapError::BehindEnd);
        }
        let length = usize::try_from(length).map_err(|_| MapError::Range)?;
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, rights.write);
        // SAFETY: without a given address, the system picks free addresses, so that the mapping replaces no
        // other.
        let first =
            unsafe { mmap(core::ptr::null_mut(), length, protection, MapFlags::SHARED, file, offset) };
        let first = first.ok().and_then(|first| NonNull::new(first.cast())).ok_or(MapError::System)?;
        Ok(Self { first, length })
    }

    /// Returns the byte at an offset.
    fn byte(&self, at: usize) -> Option<&AtomicU8> {
        if at >= self.length {
            return None;
        }
        // SAFETY: the offset is inside of the mapping, which lives as long as the borrow. Behind every byte
        // there is a file that cannot shrink. All code here accesses the bytes by atomic operations.
        Some(unsafe { AtomicU8::from_ptr(self.first.as_ptr().add(at)) })
    }

    /// Returns the 8 bytes at an offset that is a multiple of 8.
    fn word(&self, at: usize) -> Option<&AtomicU64> {
        if !at.is_multiple_of(8) || at.checked_add(8).is_none_or(|end| end > self.length) {
            return None;
        }
        // SAFETY: the 8 bytes are inside of the mapping, which lives as long as the borrow. Behind every byte
        // there is a file that cannot shrink. All code here accesses the bytes by atomic operations. Mappings
        // begin at a page, so a multiple of 8 is aligned.
        Some(unsafe { AtomicU64::from_ptr(self.first.as_ptr().add(at).cast()) })
    }

    /// Copies bytes out, from an offset on. Returns `None` if some are outside of the mapping.
    fn read(&self, at: usize, out: &mut [u8]) -> Option<()> {
        let length = out.len();
        let (first, rest) = out.split_at_mut((at.wrapping_neg() & 7).min(length));
        let middle = at + first.len();
        let (words, last) = rest.as_chunks_mut::<8>();
        let end = middle + words.len() * 8;
        for (place, bytes) in [(at, first), (end, last)] {
            for (place, byte) in (place..).zip(bytes) {
                *byte = self.byte(place)?.load(Ordering::Relaxed);
            }
        }
        for (place, word) in (middle..).step_by(8).zip(words) {
            *word = self.word(place)?.load(Ordering::Relaxed).to_ne_bytes();
        }
        Some(())
    }

    /// Copies bytes in, from an offset on. Returns `None` if some are outside of the mapping.
    fn write(&self, at: usize, bytes: &[u8]) -> Option<()> {
        let (first, rest) = bytes.split_at_checked(at.wrapping_neg() & 7).unwrap_or((bytes, &[]));
        let middle = at + first.len();
        let (words, last) = rest.as_chunks::<8>();
        let end = middle + words.len() * 8;
        for (place, bytes) in [(at, first), (end, last)] {
            for (place, byte) in (place..).zip(bytes) {
                self.byte(place)?.store(*byte, Ordering::Relaxed);
            }
        }
        for (place, word) in (middle..).step_by(8).zip(words) {
            self.word(place)?.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        Some(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped this range, and no borrow of it is left. If the call fails, the range
        // stays mapped, which harms nobody.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.length) };
    }
}

/// A range that the client has mapped.
#[derive(Debug)]
struct Range {
    length: u64,
    rights: Rights,
    /// The mapping. `None` for a range without a file, which the function cannot reach.
    mapping: Option<Mapping>,
}

/// The client's mapped ranges, by their bus addresses.
#[derive(Debug, Default)]
pub struct GuestMemory {
    ranges: BTreeMap<u64, Range>,
    /// Whether the host lets the function read and write memory (bus master).
    pub(crate) is_open: bool,
}

impl GuestMemory {
    /// Maps `length` bytes of a file, from `offset` on, at a bus address. The function cannot reach a range
    /// without a file.
    ///
    /// # Errors
    /// [`MapError`] with the reason.
    pub fn map(
        &mut self,
        address: u64,
        length: u64,
        rights: Rights,
        file: Option<(&OwnedFd, u64)>,
    ) -> Result<(), MapError> {
        let end = address.checked_add(length).filter(|end| *end > address).ok_or(MapError::Range)?;
        let before = self.ranges.range(..end).next_back();
        if before.is_some_and(|(first, range)| first + range.length > address) {
            return Err(MapError::Overlap);
        }
        if self.ranges.len() >= MOST {
            return Err(MapError::TooMany);
        }
        let mapping = file.map(|(file, offset)| Mapping::new(file, offset, length, rights)).transpose()?;
        self.ranges.insert(address, Range { length, rights, mapping });
        Ok(())
    }

    /// Unmaps all ranges that lie within `length` bytes from an address on. If a range lies only partly
    /// there, unmaps nothing and returns false.
    pub fn unmap(&mut self, address: u64, length: u64) -> bool {
        let Some(end) = address.checked_add(length) else { return false };
        let is_inside = |first: u64, range: &Range| first >= address && first + range.length <= end;
        let touches = |first: u64, range: &Range| first < end && first + range.length > address;
        if self.ranges.iter().any(|(first, range)| touches(*first, range) && !is_inside(*first, range)) {
            return false;
        }
        self.ranges.retain(|first, range| !is_inside(*first, range));
        true
    }

    /// Unmaps all ranges.
    pub fn unmap_all(&mut self) {
        self.ranges.clear();
    }

    /// Divides an address range into pieces that each lie in one mapping. Calls `access` with each piece: its
    /// mapping, its offset in the mapping, and its place in the address range. `writes` is whether the access
    /// needs the right to write.
    fn pieces(
        &self,
        address: u64,
        length: usize,
        writes: bool,
        mut access: impl FnMut(&Mapping, usize, core::ops::Range<usize>) -> Option<()>,
    ) -> Result<(), Fault> {
        let fault = Fault { address, length: length as u64 };
        if !self.is_open {
            return Err(fault);
        }
        let mut done = 0_usize;
        while done < length {
            let at = address.checked_add(done as u64).ok_or(fault)?;
            let (first, range) = self.ranges.range(..=at).next_back().ok_or(fault)?;
            let inside = at - first;
            let left = range.length.checked_sub(inside).filter(|left| *left > 0).ok_or(fault)?;
            let allowed = if writes { range.rights.write } else { range.rights.read };
            let mapping = range.mapping.as_ref().filter(|_| allowed).ok_or(fault)?;
            let piece = usize::try_from(left).unwrap_or(usize::MAX).min(length - done);
            access(mapping, inside as usize, done..done + piece).ok_or(fault)?;
            done += piece;
        }
        Ok(())
    }
}

impl Memory for GuestMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.pieces(address, out.len(), false, |mapping, at, range| mapping.read(at, out.get_mut(range)?))
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.pieces(address, bytes.len(), true, |mapping, at, range| mapping.write(at, bytes.get(range)?))
    }

    fn publish(&mut self, address: u64, byte: u8) -> Result<(), Fault> {
        self.pieces(address, 1, true, |mapping, at, _| {
            mapping.byte(at)?.store(byte, Ordering::Release);
            Some(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    const BOTH: Rights = Rights { read: true, write: true };

    fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    fn open() -> GuestMemory {
        GuestMemory { is_open: true, ..GuestMemory::default() }
    }

    #[test]
    fn bytes_go_through_wherever_they_begin() {
        let (mut memory, file) = (open(), file(0x4000, SealFlags::SHRINK));
        // Two ranges adjoin on the bus, but not in their file.
        memory.map(0x10000, 0x1000, BOTH, Some((&file, 0x2000))).unwrap();
        memory.map(0x11000, 0x1000, BOTH, Some((&file, 0x1000))).unwrap();
        let bytes: Vec<u8> = (0..100).collect();
        for first in 0x10fc0..0x10fe0 {
            for length in 0..bytes.len() {
                memory.write(first, &bytes[..length]).unwrap();
                let mut back = vec![0xa5; length];
                memory.read(first, &mut back).unwrap();
                assert_eq!(back, bytes[..length], "{first:#x}, {length}");
                memory.write(first, &vec![0; length]).unwrap();
            }
        }
        memory.publish(0x11fff, 0x77).unwrap();
        let mut byte = [0];
        rustix::io::pread(&file, &mut byte, 0x1fff).unwrap();
        assert_eq!(byte, [0x77]);
    }

    #[test]
    fn nothing_outside_of_what_is_mapped_is_reached() {
        let (mut memory, file) = (open(), file(0x4000, SealFlags::SHRINK));
        memory.map(0x10000, 0x1000, BOTH, Some((&file, 0))).unwrap();
        memory.map(0x20000, 0x1000, Rights { read: true, write: false }, Some((&file, 0))).unwrap();
        memory.map(0x30000, 0x1000, Rights { read: false, write: true }, Some((&file, 0))).unwrap();
        memory.map(0x40000, 0x1000, BOTH, None).unwrap();
        for (address, length) in [(0xffff, 2), (0x10fff, 2), (0x11000, 1), (u64::MAX, 2), (0x40000, 1)] {
            assert!(memory.read(address, &mut vec![0; length]).is_err(), "{address:#x}");
            assert!(memory.write(address, &vec![0; length]).is_err(), "{address:#x}");
        }
        assert!(memory.read(0x20000, &mut [0]).is_ok() && memory.write(0x20000, &[0]).is_err());
        assert!(memory.read(0x30000, &mut [0]).is_err() && memory.write(0x30000, &[0]).is_ok());
        memory.is_open = false;
        assert!(memory.read(0x10000, &mut [0]).is_err(), "no bus master");
    }

    #[test]
    fn what_cannot_be_relied_on_is_not_mapped() {
        let (mut memory, sealed) = (open(), file(0x4000, SealFlags::SHRINK));
        let loose = file(0x4000, SealFlags::GROW);
        let mut map = |address, length, file| memory.map(address, length, BOTH, Some(file));
        assert_eq!(map(0x1000, 0x1000, (&loose, 0)), Err(MapError::NotSealed));
        assert_eq!(map(0x1000, 0x5000, (&sealed, 0)), Err(MapError::BehindEnd));
        assert_eq!(map(0x1000, 0x1000, (&sealed, u64::MAX)), Err(MapError::BehindEnd));
        assert_eq!(map(0x1000, 0x1000, (&sealed, 0x800)), Err(MapError::System));
        assert_eq!(map(0x1000, 0, (&sealed, 0)), Err(MapError::Range));
        assert_eq!(map(u64::MAX - 0xfff, 0x2000, (&sealed, 0)), Err(MapError::Range));
        assert_eq!(map(0x1000, 0x2000, (&sealed, 0)), Ok(()));
        for (address, length) in [(0x1000, 0x1000), (0x2000, 0x1000), (0, 0x4000), (0, 0x1001), (0x2fff, 1)] {
            assert_eq!(map(address, length, (&sealed, 0)), Err(MapError::Overlap), "{address:#x}");
        }
        assert!(!memory.unmap(0x1000, 0x1000), "half of a range");
        assert!(memory.read(0x1000, &mut [0]).is_ok());
        assert!(memory.unmap(0, 0x3000));
        assert!(memory.read(0x1000, &mut [0]).is_err());
        assert_eq!(memory.map(0x1000, 0x1000, BOTH, Some((&sealed, 0))), Ok(()));
    }
}
