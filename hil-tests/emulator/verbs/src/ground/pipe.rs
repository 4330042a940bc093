//! Moves this process's memory through a pipe, where the kernel has no `process_vm_readv` (qemu-user) or a
//! sandbox forbids the call.
//!
//! `write` takes bytes from any address, `read` stores bytes at any address, and both fail with EFAULT where
//! no memory is mapped.
#![allow(unsafe_code)]

use crate::ground::{descriptors, sys};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

/// The most bytes moved at once: an empty pipe takes this many without blocking, whatever its limits
/// (`PIPE_BUF`).
const CHUNK: usize = 4096;

/// An empty pipe, and the process that made it. A forked child makes its own pipe, to share none with its
/// parent.
struct Pipe {
    owner: i32,
    reader: PipeReader,
    writer: PipeWriter,
}

static PIPE: Mutex<Option<Pipe>> = Mutex::new(None);

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        descriptors::keep(&reader);
        descriptors::keep(&writer);
        Ok(Self { owner: sys::pid(), reader, writer })
    }

    /// Fills `out` with the bytes from an address on. Returns `None` if they cannot be read.
    fn load(&mut self, address: u64, out: &mut [u8]) -> Option<()> {
        let source = std::ptr::without_provenance(address as usize);
        // SAFETY: any address is allowed: the kernel reads it, and moves nothing if it is not mapped.
        let moved = unsafe { libc::write(self.writer.as_raw_fd(), source, out.len()) };
        (usize::try_from(moved) == Ok(out.len())).then_some(())?;
        self.reader.read_exact(out).ok()
    }

    /// Stores `bytes` from an address on. Returns `None` if the memory cannot be written.
    fn store(&mut self, address: u64, bytes: &[u8]) -> Option<()> {
        self.writer.write_all(bytes).ok()?;
        let target = std::ptr::without_provenance_mut(address as usize);
        // SAFETY: the kernel writes to the address, which the program has handed to the device. It is not
        // memory of this library unless the program lies; hardware would write there as well.
        let moved = unsafe { libc::read(self.reader.as_raw_fd(), target, bytes.len()) };
        (usize::try_from(moved) == Ok(bytes.len())).then_some(())
    }
}

/// Runs `body` with an empty pipe. A pipe is dropped after a failure, since it may still hold bytes.
fn with_pipe(body: impl FnOnce(&mut Pipe) -> Option<()>) -> Option<()> {
    let mut held = PIPE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pipe = match held.take() {
        Some(pipe) if pipe.owner == sys::pid() => pipe,
        _ => Pipe::new().ok()?,
    };
    body(&mut pipe)?;
    *held = Some(pipe);
    Some(())
}

/// Fills `out` with the bytes from an address on. Returns the number of bytes in the chunks before the one
/// with the first bad address.
pub(crate) fn load(address: u64, out: &mut [u8]) -> usize {
    let chunks = out.chunks_mut(CHUNK).scan(address, |next, chunk| {
        let length = chunk.len();
        with_pipe(|pipe| pipe.load(*next, chunk))?;
        *next = next.wrapping_add(length as u64);
        Some(length)
    });
    chunks.sum()
}

/// Stores `bytes` from an address on. Returns the number of bytes in the chunks before the one with the first
/// bad address.
pub(crate) fn store(address: u64, bytes: &[u8]) -> usize {
    let chunks = bytes.chunks(CHUNK).scan(address, |next, chunk| {
        with_pipe(|pipe| pipe.store(*next, chunk))?;
        *next = next.wrapping_add(chunk.len() as u64);
        Some(chunk.len())
    });
    chunks.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_move_bytes_and_bad_ones_are_refused() {
        let target = vec![0_u8; 3 * CHUNK];
        let address = target.as_ptr().expose_provenance() as u64;
        let sent: Vec<u8> = (0..target.len()).map(|index| (index % 251) as u8).collect();
        assert_eq!(store(address, &sent), sent.len());
        let mut got = vec![0; sent.len()];
        assert_eq!(load(address, &mut got), got.len());
        assert!(got == sent);
        assert_eq!(load(0x10, &mut got), 0);
        assert_eq!(store(0x10, &sent), 0);
        assert_eq!(load(u64::MAX - 4, &mut got), 0);
        // Bytes that the failures left in a pipe do not disturb later calls.
        assert_eq!(load(address, &mut got), got.len());
        assert!(got == sent);
    }

    #[test]
    fn code_cannot_be_written() {
        let code = code_cannot_be_written as fn() as usize as u64;
        assert_eq!(store(code, &[0]), 0);
    }
}
