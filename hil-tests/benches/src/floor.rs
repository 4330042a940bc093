//! The floor: a side of the benchmarks with the fewest instructions for a request, written by hand without
//! the library.
//!
//! The code checks for free space, keeps the id (`wr_id`) of the request and the mapping of the mkey, and
//! converts values to the device's byte order. It does not check entries, cannot post a request that crosses
//! the ring's end, and offers no other options. Words are 64-bit numbers as in the PRM, most significant bit
//! first.

#![allow(unsafe_code)]
// Every index is a remainder of the length, so indexing cannot panic.
#![allow(clippy::indexing_slicing)]

use crate::publish::{Publisher, fence_loads};
use crate::{BLOCKS, ENTRIES, Fault, Io, MAX_ENTRIES, Side, Work};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::black_box;
use mlx5_mkey::mkey::KlmEntry;
use mlx5_mkey::wqe::Sge;

/// A block of the ring or an entry of the completion queue, in the device's byte order.
type Words = [u64; 8];

const QPN: u64 = 0x77;
/// Opcodes of a UMR and of an RDMA WRITE.
const UMR: u64 = 0x25;
const RDMA_WRITE: u64 = 0x08;
/// Bits of a control segment's second word: the flag for a completion, and the fence after a request that
/// changes an mkey.
const SIGNALLED: u64 = 0x08 << 32;
const SMALL_FENCE: u64 = 0x20 << 32;
/// First word of a UMR control segment: the flag for inline entries, and the size of four translation
/// entries. `BSF` adds the size of one BSF of four octowords.
const FOUR_ENTRIES: u64 = 0x8000_0000_0004_0000;
const BSF: u64 = 4;
/// Second word of a UMR control segment: the mask of the changed fields, which are the length, the key, the
/// access rights and the free bit. `BSF_MASK` adds the bit for BSFs.
const MKEY_MASK: u64 = 0x203c_2001;
const BSF_MASK: u64 = 0x1000;
/// First word of an mkey context: remote read is allowed, by any queue pair. `BSF_ENABLED`, in the second
/// word, says that BSFs are in use.
const CONTEXT: u64 = 0x0000_1000_ffff_ff00;
const BSF_ENABLED: u64 = 0x4000_0000;
/// Words of a crypto BSF: AES-XTS encrypts on transmission (`CRYPTO`), data units have 512 bytes
/// (`DATA_UNIT`), and the number of the DEK (`DEK`).
const CRYPTO: u64 = 0x8100_0000_ffff_ffff;
const DATA_UNIT: u64 = 0x0100_0000_0000_0000;
const DEK: u64 = 0x0000_0123_0000_0000;

/// The fields of an mkey that a program has to remember.
struct Mkey {
    /// The mkey's key, with the flag for a completion, as in a control segment.
    key: u64,
    length: u64,
    /// Number of entries, and bit 32 if there are crypto properties.
    maps: u64,
}

/// An I/O with its mkey.
struct FloorIo {
    io: Io,
    mkey: Mkey,
}

/// A send queue. Blocks are counted from its start.
struct Queue {
    /// The id (`wr_id`) of the request that begins at each block, for its completion. `ends` has the first
    /// block after this request.
    names: [u64; BLOCKS],
    ends: [u64; BLOCKS],
    producer: u64,
    /// The end of the free and contiguous blocks that begin at `producer`.
    free: u64,
    /// The block at which the oldest outstanding request begins.
    tail: u64,
    /// The fence of the next request, as in a control segment.
    fence: u64,
    publisher: Publisher,
    ring: Box<[Words; BLOCKS]>,
}

impl Queue {
    /// Computes `free` anew: the free blocks end at the oldest outstanding request, or at the ring's end.
    #[cold]
    fn look(&mut self) {
        let lap = self.producer / BLOCKS as u64 * BLOCKS as u64;
        self.free = (self.tail + BLOCKS as u64).min(lap + BLOCKS as u64);
    }

    /// Takes the next `LENGTH` blocks of the ring for a request. Returns them and the number of the first
    /// one, modulo 2^16, or `None` if too few blocks are free.
    #[inline(always)]
    fn reserve<const LENGTH: usize>(&mut self, name: u64) -> Option<(&mut [Words; LENGTH], u64)> {
        let number = self.producer;
        let end = number + LENGTH as u64;
        if end > self.free {
            self.look();
            if end > self.free {
                return None;
            }
        }
        let at = number as usize % BLOCKS;
        self.names[at] = name;
        self.ends[at] = end;
        self.producer = end;
        // SAFETY: the blocks from `number` up to `free` are contiguous in the ring.
        let blocks = unsafe { &mut *self.ring.as_mut_ptr().add(at).cast::<[Words; LENGTH]>() };
        Some((blocks, number & 0xffff))
    }
}

/// The fields of a completion that a program uses.
#[derive(Clone, Copy)]
struct Completion {
    _name: u64,
    _qpn: u32,
    _opcode: u8,
    _bytes: u32,
}

/// The hand-written program with the fewest instructions, as a side of the benchmarks.
pub struct Floor {
    queue: Queue,
    entries: Box<[Words; ENTRIES]>,
    consumer: u32,
    completions: Publisher,
    ios: Vec<FloorIo>,
}

/// Returns the first word of a request.
#[inline(always)]
const fn control(number: u64, opcode: u64, octowords: u64) -> u64 {
    (number << 40 | opcode << 32 | QPN << 8 | octowords).to_be()
}

/// Writes four translation entries and returns the sum of their lengths.
#[inline(always)]
fn put_entries(block: &mut Words, entries: &[KlmEntry; MAX_ENTRIES]) -> u64 {
    let mut sum = 0;
    for (words, entry) in block.as_chunks_mut::<2>().0.iter_mut().zip(entries) {
        // One load reads both fields, since they are adjacent.
        let (length, key) = (u64::from(entry.length), u64::from(entry.key.get()));
        *words = [(key << 32 | length).rotate_left(32).to_be(), entry.address.to_be()];
        sum += length;
    }
    sum
}

/// Returns the first `requests` I/Os.
fn first(ios: &mut [FloorIo], requests: usize) -> &mut [FloorIo] {
    let count = requests.min(ios.len());
    black_box(ios.split_at_mut(count).0)
}

impl Default for Floor {
    /// Makes the send queue and the completion queue. [`Side::prepare`] makes the I/Os.
    fn default() -> Self {
        let queue = Queue {
            names: [0; BLOCKS],
            ends: [0; BLOCKS],
            producer: 0,
            free: 0,
            tail: 0,
            fence: 0,
            publisher: Publisher::new(),
            ring: Box::new([[0; 8]; BLOCKS]),
        };
        Self {
            queue,
            entries: Box::new([[0; 8]; ENTRIES]),
            consumer: 0,
            completions: Publisher::new(),
            ios: Vec::new(),
        }
    }
}

impl Floor {
    #[inline(never)]
    fn list4(&mut self, requests: usize) -> Result<(), Fault> {
        let Self { queue, ios, .. } = black_box(self);
        for FloorIo { io, mkey } in first(ios, requests) {
            let fence = queue.fence;
            let (blocks, number) = queue.reserve::<3>(io.id).ok_or("the ring is full")?;
            let [head, context, entries] = blocks;
            let length = put_entries(entries, &io.entries);
            let first = control(number, UMR, 12);
            let flags = fence | mkey.key;
            *head = [first, flags, FOUR_ENTRIES.to_be(), MKEY_MASK.to_be(), 0, 0, 0, 0];
            *context = [CONTEXT.to_be(), 0, 0, length.to_be(), 0, 0, 0, 0];
            (mkey.length, mkey.maps) = (length, 4);
            queue.fence = SMALL_FENCE.to_be();
            queue.publisher.send(queue.producer as u32, first);
        }
        Ok(())
    }

    #[inline(never)]
    fn xts4(&mut self, requests: usize) -> Result<(), Fault> {
        let Self { queue, ios, .. } = black_box(self);
        for FloorIo { io, mkey } in first(ios, requests) {
            let fence = queue.fence;
            let (blocks, number) = queue.reserve::<4>(io.id).ok_or("the ring is full")?;
            let [head, context, entries, bsf] = blocks;
            let length = put_entries(entries, &io.entries);
            let first = control(number, UMR, 16);
            let flags = fence | mkey.key;
            let (size, mask) = ((FOUR_ENTRIES | BSF).to_be(), (MKEY_MASK | BSF_MASK).to_be());
            *head = [first, flags, size, mask, 0, 0, 0, 0];
            *context = [CONTEXT.to_be(), BSF_ENABLED.to_be(), 0, length.to_be(), 0, 0, 0, 0];
            *bsf = [CRYPTO.to_be(), DATA_UNIT.to_be(), 0, io.lba.to_be(), DEK.to_be(), 0, 0, 0];
            (mkey.length, mkey.maps) = (length, 4 | 1 << 32);
            queue.fence = SMALL_FENCE.to_be();
            queue.publisher.send(queue.producer as u32, first);
        }
        Ok(())
    }

    #[inline(never)]
    fn rdma_write(&mut self, requests: usize) -> Result<(), Fault> {
        let Self { queue, ios, .. } = black_box(self);
        for FloorIo { io, .. } in first(ios, requests) {
            let fence = core::mem::take(&mut queue.fence);
            let ([block], number) = queue.reserve::<1>(io.id).ok_or("the ring is full")?;
            let first = control(number, RDMA_WRITE, 3);
            let [one, two, three, four, five, six, ..] = block;
            (*one, *two) = (first, fence | SIGNALLED.to_be());
            (*three, *four) = (io.remote.to_be(), (u64::from(io.rkey) << 32).to_be());
            let Sge { address, length, lkey } = io.data;
            (*five, *six) = ((u64::from(length) << 32 | u64::from(lkey.get())).to_be(), address.to_be());
            queue.publisher.send(queue.producer as u32, first);
        }
        Ok(())
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Completion> {
        let Self { queue, entries, consumer, completions, .. } = self;
        let entry = &entries[*consumer as usize % ENTRIES];
        let last = u64::from_be(entry[7]);
        let lap = u64::from((*consumer / ENTRIES as u32) & 1);
        // Opcode, format and owner bit must show that the device has written the entry, for a successful send
        // request.
        if last & 0xfd != lap || last >> 32 & 0x00ff_ffff != QPN {
            return None;
        }
        fence_loads();
        let at = (last >> 16) as usize % BLOCKS;
        queue.tail = queue.ends[at];
        *consumer += 1;
        completions.release(*consumer);
        Some(Completion {
            _name: queue.names[at],
            _qpn: (last >> 32) as u32 & 0x00ff_ffff,
            _opcode: (last >> 56) as u8,
            _bytes: u64::from_be(entry[5]) as u32,
        })
    }

    #[inline(never)]
    fn poll_all(&mut self, completions: usize) -> Result<(), Fault> {
        let floor = black_box(self);
        for _ in 0..completions {
            black_box(floor.poll().ok_or("no completion")?);
        }
        Ok(())
    }

    /// Writes the completion entries of `requests` requests of one block each, which begin at block `first`.
    fn complete(&mut self, first: u64, requests: usize) {
        self.consumer = 0;
        for (entry, at) in self.entries.iter_mut().zip(0..) {
            let last = RDMA_WRITE << 56 | QPN << 32 | ((first + at) & 0xffff) << 16;
            // The other entries have the opcode and the owner bit of an entry that the device has not
            // written.
            entry[7] = (if (at as usize) < requests { last } else { 0xf1 }).to_be();
        }
    }
}

impl Side for Floor {
    fn does(&self, work: Work, batch: usize) -> bool {
        // The floor rings a doorbell for each request, so it does no batches.
        batch == 1 && matches!(work, Work::List4 | Work::Xts4 | Work::RdmaWrite | Work::Completion1)
    }

    fn prepare(&mut self, work: Work, requests: usize) -> Result<(), Fault> {
        let floor_io =
            |io| FloorIo { io, mkey: Mkey { key: (SIGNALLED | 0x0012_3400).to_be(), length: 0, maps: 0 } };
        self.ios = Io::all(work.entries()).into_iter().map(floor_io).collect();
        let start = self.queue.producer.next_multiple_of(BLOCKS as u64);
        (self.queue.producer, self.queue.tail) = (start, start);
        self.queue.look();
        if work == Work::Completion1 {
            self.rdma_write(requests)?;
            self.complete(start, requests);
        }
        Ok(())
    }

    fn run(&mut self, work: Work, _batch: usize, requests: usize) -> Result<(), Fault> {
        match work {
            Work::List4 => self.list4(requests),
            Work::Xts4 => self.xts4(requests),
            Work::RdmaWrite => self.rdma_write(requests),
            Work::Completion1 => self.poll_all(requests),
            _ => Err("there is no floor for it"),
        }
    }

    fn blocks(&self) -> u16 {
        self.queue.producer as u16
    }

    fn drain(&mut self, _work: Work, _requests: usize) -> Result<(), Fault> {
        self.queue.tail = self.queue.producer;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ours::{Ours, OursMemory};

    /// Checks that floor and library write the same blocks, except for the block number, which depends on
    /// earlier requests.
    #[test]
    fn the_floor_writes_what_the_library_writes() -> Result<(), Fault> {
        let mut memory = OursMemory::default();
        let (mut ours, mut floor) = (Ours::new(&mut memory), Floor::default());
        for work in [Work::List4, Work::Xts4, Work::RdmaWrite] {
            for side in [&mut ours as &mut dyn Side, &mut floor] {
                side.prepare(work, 3)?;
                side.run(work, 1, 3)?;
                side.drain(work, 3)?;
            }
            // The first request is not compared, because its fence depends on the request before it, which
            // differs between the two sides.
            for at in work.blocks()..3 * work.blocks() {
                let ours = ours.block(at as u32);
                let mut floor = floor.queue.ring[at];
                if at % work.blocks() == 0 {
                    floor[0] = u64::from_ne_bytes([ours[0], ours[1], ours[2], 0, 0, 0, 0, 0])
                        | floor[0] & 0x0000_00ff_ffff_ffff_u64.to_be();
                }
                let floor: [u8; 64] = zerocopy::transmute!(floor);
                // An RDMA WRITE is shorter than its block, whose other bytes are older.
                let bytes = if work == Work::RdmaWrite { 48 } else { 64 };
                assert_eq!(ours[..bytes], floor[..bytes], "{work}, block {at}");
            }
        }
        Ok(())
    }
}
