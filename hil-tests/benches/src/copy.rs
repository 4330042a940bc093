//! The bare copy: a side (implementation) of the benchmarks that copies prepared blocks into the ring and
//! rings the doorbell.
//!
//! The code changes no field of the blocks, does not check for free space, and ignores the ring's end.

#![allow(unsafe_code)]

use crate::publish::Publisher;
use crate::{BATCH, BLOCKS, Fault, IOS, Side, Work};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::black_box;
use mlx5_mkey::wire::{OCTOWORD_BYTES, Wqebb};

/// Blocks of the longest request, which has 63 octowords.
const LONGEST: usize = 16;

/// The unit of one load and one store: a 16-byte register of the supported machines.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Octoword([u64; 2]);

const _: () = assert!(size_of::<Octoword>() == OCTOWORD_BYTES);

/// The bare copy as a side of the benchmarks.
pub struct BareCopy {
    /// The ring, extended by the longest request, since the code ignores the ring's end.
    ring: Box<[Wqebb; BLOCKS + LONGEST]>,
    /// The blocks from which each request is copied.
    ready: Vec<[Wqebb; LONGEST]>,
    publisher: Publisher,
    producer: u32,
}

impl Default for BareCopy {
    /// Makes the ring and ready blocks of zeros, since the contents do not change the count of instructions.
    fn default() -> Self {
        Self {
            ring: Box::new([Wqebb::ZERO; BLOCKS + LONGEST]),
            ready: vec![[Wqebb::ZERO; LONGEST]; IOS],
            publisher: Publisher::new(),
            producer: 0,
        }
    }
}

impl BareCopy {
    /// Copies requests of `OCTOWORDS` octowords, a size that the compiler knows. With `PSV`, copies a SET_PSV
    /// after each.
    #[inline(never)]
    fn copy<const OCTOWORDS: usize, const PSV: bool, const BATCHED: usize>(&mut self, requests: usize) {
        let Self { ring, ready, publisher, producer } = self;
        let ring = black_box(ring.as_mut_ptr());
        for batch in first(ready, requests).chunks_exact(BATCHED) {
            let mut control = 0;
            for ready in batch {
                let from = ready.as_ptr().cast::<Octoword>();
                // SAFETY: `slot` has `LONGEST` blocks or more, and `ready` has `LONGEST`. The request is not
                // longer.
                unsafe { copy_octowords(from, slot(ring, *producer), OCTOWORDS) };
                *producer = producer.wrapping_add((OCTOWORDS.div_ceil(4)) as u32);
                if PSV {
                    // SAFETY: `slot` has `LONGEST` blocks or more. Requests with a SET_PSV have at most 20
                    // octowords, so `ready` has 2 more behind them.
                    unsafe { copy_octowords(from.add(OCTOWORDS), slot(ring, *producer), 2) };
                    *producer = producer.wrapping_add(1);
                }
                control = first_word(ready);
            }
            publisher.send(*producer, control);
        }
    }

    /// Copies requests of any size, block by block.
    #[inline(never)]
    fn copy_blocks(&mut self, requests: usize, blocks: usize) {
        let Self { ring, ready, publisher, producer } = self;
        let ring = black_box(ring.as_mut_ptr());
        for ready in first(ready, requests) {
            let slot = slot(ring, *producer);
            for (at, block) in ready.iter().take(blocks).enumerate() {
                // SAFETY: `slot` has `LONGEST` blocks or more, and `ready` has `LONGEST`.
                unsafe { copy_octowords(core::ptr::from_ref(block).cast(), slot.add(at * 4), 4) };
            }
            *producer = producer.wrapping_add(blocks as u32);
            publisher.send(*producer, first_word(ready));
        }
    }
}

/// Returns the ready blocks for `requests` requests. The compiler cannot know their contents.
fn first(ready: &[[Wqebb; LONGEST]], requests: usize) -> &[[Wqebb; LONGEST]] {
    black_box(ready.split_at(requests.min(ready.len())).0)
}

/// Returns the address of the next request's first block. At least `LONGEST` blocks begin there.
#[inline(always)]
fn slot(ring: *mut Wqebb, producer: u32) -> *mut Octoword {
    ring.wrapping_add(producer as usize % BLOCKS).cast()
}

/// Returns the first 8 bytes of a request, which are written to the doorbell.
#[inline(always)]
fn first_word(ready: &[Wqebb; LONGEST]) -> u64 {
    let [Wqebb([a, b, c, d, e, f, g, h, ..]), ..] = *ready;
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Copies `count` octowords.
///
/// # Safety
/// The caller ensures that both pointers lead to at least `count` octowords.
#[inline(always)]
unsafe fn copy_octowords(from: *const Octoword, to: *mut Octoword, count: usize) {
    for at in 0..count {
        // SAFETY: the caller vouches for both pointers.
        unsafe { to.add(at).write(from.add(at).read()) };
    }
}

impl Side for BareCopy {
    fn does(&self, work: Work, _batch: usize) -> bool {
        !(matches!(work, Work::Receive | Work::RdmaWriteBlueFlame)
            || work.is_io()
            || work.is_on_full_queue()
            || work.writes_per_completion().is_some())
    }

    fn run(&mut self, work: Work, batch: usize, requests: usize) -> Result<(), Fault> {
        macro_rules! copy {
            ($octowords:literal, $psv:literal) => {
                match batch {
                    1 => self.copy::<$octowords, $psv, 1>(requests),
                    _ => self.copy::<$octowords, $psv, BATCH>(requests),
                }
            };
        }
        let psvs = usize::from(work.kind().has_signature());
        match (work, work.blocks() - psvs, psvs) {
            (Work::RdmaWrite, ..) => copy!(3, false),
            (Work::Entries(_), blocks, _) => self.copy_blocks(requests, blocks),
            (_, 3, 0) => copy!(12, false),
            (_, 4, 0) => copy!(16, false),
            (_, 6, 0) => copy!(24, false),
            (_, 3, 1) => copy!(12, true),
            (_, 4, 1) => copy!(16, true),
            (_, 5, 1) => copy!(20, true),
            _ => return Err("there is no copy of such a length"),
        }
        Ok(())
    }

    fn blocks(&self) -> u16 {
        self.producer as u16
    }
}
