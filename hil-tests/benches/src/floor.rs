//! The least that anyone could do: blocks that are ready are copied into the ring, and the doorbell rings.
//!
//! No field is patched, no room is checked, and the ring's end is not looked at.

#![allow(unsafe_code)]

use crate::{BATCH, BLOCKS, Fault, REQUESTS, Side, Work};
use core::hint::black_box;
use core::ptr::{self, NonNull};
use mlx5_mkey::queue::{Doorbell, UarDoorbell};
use mlx5_mkey::wire::{OCTOWORD_BYTES, Wqebb};

/// The longest request: 63 octowords.
const LONGEST: usize = 16;

/// A register that nobody reads.
pub fn doorbell(page: &'static mut [u64; 512]) -> UarDoorbell {
    // SAFETY: an aligned place in memory that is never freed and that nobody else uses. No device listens.
    unsafe { UarDoorbell::new(NonNull::from(page).cast()) }
}

/// Memory that [`Floor`] works on.
pub struct FloorMemory {
    /// Longer than counted by the longest request, since the end is not looked at.
    ring: [Wqebb; BLOCKS + LONGEST],
    /// For each request its own.
    ready: [[Wqebb; LONGEST]; REQUESTS],
    record: [u32; 2],
}

impl FloorMemory {
    /// Memory of zeros.
    pub const fn new() -> Self {
        let ready = [[Wqebb::ZERO; LONGEST]; REQUESTS];
        Self { ring: [Wqebb::ZERO; BLOCKS + LONGEST], ready, record: [0; 2] }
    }
}

impl Default for FloorMemory {
    fn default() -> Self {
        Self::new()
    }
}

/// One load and one store, of a register of 16 bytes on the machines there are.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Octoword([u64; 2]);

const _: () = assert!(size_of::<Octoword>() == OCTOWORD_BYTES);

/// The bare copy.
pub struct Floor<'m> {
    ring: &'m mut [Wqebb; BLOCKS + LONGEST],
    ready: &'m [[Wqebb; LONGEST]; REQUESTS],
    record: &'m mut [u32; 2],
    doorbell: UarDoorbell,
    producer: u32,
}

impl<'m> Floor<'m> {
    /// Works on this memory.
    pub fn new(memory: &'m mut FloorMemory, doorbell: UarDoorbell) -> Self {
        let FloorMemory { ring, ready, record } = memory;
        Self { ring, ready, record, doorbell, producer: 0 }
    }

    /// Copies requests of a size that the compiler knows, and a SET_PSV behind each if there is to be one.
    #[inline(never)]
    fn copy<const OCTOWORDS: usize, const PSV: bool, const BATCHED: usize>(&mut self, requests: usize) {
        let ring = self.ring();
        for batch in self.ready(requests).chunks_exact(BATCHED) {
            let mut control = [0; 8];
            for ready in batch {
                let from = ready.as_ptr().cast::<Octoword>();
                // SAFETY: as `slot` says; the blocks that are ready are as many as the longest request has.
                unsafe { copy_octowords(from, self.slot(ring), OCTOWORDS) };
                self.producer = self.producer.wrapping_add((OCTOWORDS.div_ceil(4)) as u32);
                if PSV {
                    // SAFETY: as above.
                    unsafe { copy_octowords(from.add(OCTOWORDS), self.slot(ring), 2) };
                    self.producer = self.producer.wrapping_add(1);
                }
                control = first_word(ready);
            }
            self.publish(control);
        }
    }

    /// Copies requests of any size, block by block.
    #[inline(never)]
    fn copy_blocks(&mut self, requests: usize, blocks: usize) {
        let ring = self.ring();
        for ready in self.ready(requests) {
            let slot = self.slot(ring);
            for (at, block) in ready.iter().take(blocks).enumerate() {
                // SAFETY: `slot` has `LONGEST` blocks or more, and `ready` so many.
                unsafe { copy_octowords(ptr::from_ref(block).cast(), slot.add(at * 4), 4) };
            }
            self.producer = self.producer.wrapping_add(blocks as u32);
            self.publish(first_word(ready));
        }
    }

    /// Blocks that are ready for so many requests.
    fn ready(&self, requests: usize) -> &'m [[Wqebb; LONGEST]] {
        black_box(self.ready.split_at(requests.min(REQUESTS)).0)
    }

    /// The ring, of which the compiler knows nothing from here on.
    fn ring(&mut self) -> *mut Wqebb {
        black_box(self.ring.as_mut_ptr())
    }

    /// Where the next request goes: `LONGEST` blocks or more are left behind it.
    #[inline(always)]
    fn slot(&self, ring: *mut Wqebb) -> *mut Octoword {
        ring.wrapping_add(self.producer as usize % BLOCKS).cast()
    }

    #[inline(always)]
    fn publish(&mut self, control: [u8; 8]) {
        let [_, counter] = &mut *self.record;
        fence_stores();
        // SAFETY: a reference is valid; the store is kept since a device would read it.
        unsafe { ptr::from_mut(counter).write_volatile((self.producer & 0xffff).to_be()) };
        flush();
        self.doorbell.ring(control);
        flush();
    }
}

/// The first 8 bytes of a request, which go to the doorbell.
#[inline(always)]
fn first_word(ready: &[Wqebb; LONGEST]) -> [u8; 8] {
    let [Wqebb([a, b, c, d, e, f, g, h, ..]), ..] = *ready;
    [a, b, c, d, e, f, g, h]
}

/// Copies so many octowords.
///
/// # Safety
/// Both places have as many.
#[inline(always)]
unsafe fn copy_octowords(from: *const Octoword, to: *mut Octoword, count: usize) {
    for at in 0..count {
        // SAFETY: see the contract.
        unsafe { to.add(at).write(from.add(at).read()) };
    }
}

/// The barriers of the library's queues, which do not show theirs.
#[inline(always)]
fn fence_stores() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches neither registers nor the stack.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    // SAFETY: nothing but a barrier for the compiler.
    unsafe {
        core::arch::asm!("", options(nostack, preserves_flags));
    }
}

#[inline(always)]
fn flush() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches neither registers nor the stack.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; every x86-64 has it.
    unsafe {
        core::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}

impl Side for Floor<'_> {
    fn does(&self, work: Work) -> bool {
        !matches!(work, Work::Poll1 | Work::Poll16 | Work::Receive)
    }

    fn prepare(&mut self, _work: Work, _requests: usize) -> Result<(), Fault> {
        Ok(())
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
        match work {
            Work::Sge1
            | Work::Sge4
            | Work::Interleaved3
            | Work::SharedSge4
            | Work::FirstSge1
            | Work::ReconfigureAddresses
            | Work::ReconfigureTweak
            | Work::Slice4
            | Work::TemplateSge1
            | Work::TemplateAddress => copy!(12, false),
            Work::Sge16 | Work::Sge16Wrapped => copy!(24, false),
            Work::Sge4Crypto | Work::TemplateSge4Crypto | Work::TemplateTweak => copy!(16, false),
            Work::Sge1T10Dif | Work::Sge1Crc32c | Work::TemplateSge1T10Dif | Work::TemplateRefTag => {
                copy!(16, true)
            }
            Work::Sge4T10DifCrypto | Work::FirstSge4T10DifCrypto | Work::TemplateSge4T10DifCrypto => {
                copy!(20, true)
            }
            Work::ReconfigureRefTag => copy!(12, true),
            Work::RdmaWrite => copy!(3, false),
            Work::List(_) => self.copy_blocks(requests, work.last_blocks()),
            Work::Poll1 | Work::Poll16 | Work::Receive => return Err("there is no floor for it"),
        }
        Ok(())
    }

    fn blocks(&self) -> u16 {
        self.producer as u16
    }

    fn drain(&mut self, _work: Work, _requests: usize) -> Result<(), Fault> {
        Ok(())
    }
}
