//! The registers of a device that queues use: doorbells in a UAR page, and the clock.

#![allow(unsafe_code)]

use super::doorbell::{CqDoorbell, Doorbell, LastRequest};
use super::ring::Slot;
use crate::types::Cqn;
use crate::wire::{MAX_WQE_OCTOWORDS, WQEBB_BYTES, Wqebb};
use core::ptr::NonNull;

/// The doorbell of a real device: an 8-byte register in a UAR page (User Access Region, PRM "BlueFlame
/// register").
///
/// A page has two registers side by side. Programs that write whole requests to the registers use both in
/// turn. Doorbells of 8 bytes may all go to the same register, as in SPDK and the kernel's Ethernet driver:
/// the queue flushes each doorbell, so two doorbells are never merged in the CPU's write-combining buffer.
///
/// ```
/// use core::ptr::NonNull;
/// use mlx5_mkey::queue::UarDoorbell;
/// /// # Safety
/// /// The caller fulfils the conditions of [`UarDoorbell::new`] for the queue with this doorbell.
/// unsafe fn doorbell(register: usize) -> Option<UarDoorbell> {
///     let register = NonNull::new(core::ptr::with_exposed_provenance_mut(register))?;
///     // SAFETY: the caller vouches for the register.
///     Some(unsafe { UarDoorbell::new(register) })
/// }
/// ```
#[derive(Debug)]
pub struct UarDoorbell {
    register: *mut u64,
}

// SAFETY: the register belongs to the device, not to a thread. The caller of `new` vouches that only this
// doorbell writes to the register.
unsafe impl Send for UarDoorbell {}

impl UarDoorbell {
    /// Offset in bytes of the first of the two registers in a UAR page (`MLX5_BF_OFFSET`).
    pub const OFFSET: usize = 0x800;

    /// Makes the doorbell from its register.
    ///
    /// # Safety
    /// From here on, the device executes the requests that are posted to the queue with this doorbell. The
    /// caller vouches that
    /// - `register` is a mapped UAR register, 8-byte aligned, valid as long as the value lives, and rung by
    ///   nobody else (BlueField: the Arm side's mapping, not cached);
    /// - the queue's ring, doorbell record and completion queue are those that the queue pair was created
    ///   with. They stay allocated, for the device alone, until the queue pair is destroyed on the device,
    ///   also if the Rust value is dropped earlier, or the destruction fails;
    /// - completions that retire requests of the queue are polled from the ring of that completion queue only
    ///   ([`super::CompletionQueue::new`]);
    /// - the queue is restarted ([`super::SendQueue::restart`]) only while the queue pair is in RESET or
    ///   INIT;
    /// - memory under a key that a request names stays registered and allocated until the request has
    ///   completed, and Rust code does not use it in conflict with the device's reads and writes. If a peer
    ///   was given a key of the memory, or of an mkey laid over it, both conditions hold until the key is
    ///   invalidated and the invalidation has completed: a peer may use the key at any time before.
    pub const unsafe fn new(register: NonNull<u64>) -> Self {
        Self { register: register.as_ptr() }
    }
}

impl Doorbell for UarDoorbell {
    #[inline]
    fn ring(&mut self, last: &LastRequest<'_>) {
        // SAFETY: the caller of `new` vouches for the register. The device needs one store of 8 bytes.
        unsafe {
            self.register.write_volatile(u64::from_ne_bytes(last.control()));
        }
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for UarDoorbell {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "UarDoorbell at {=usize:#x}", self.register.addr());
    }
}

/// The doorbell of a real device that takes whole requests (BlueFlame, PRM). A work request is written to the
/// register, 64 bytes at a time, if it is the only one since the last doorbell, has two octowords or more,
/// and fits into a half of the register. The device then need not read the request from memory. For other
/// requests, only the first 8 bytes are written, as by [`UarDoorbell`].
///
/// The register has two halves, which are used in turn. BlueFlame's stores are worthwhile only for single
/// requests whose latency counts.
///
/// Source: rdma-core, `post_send_db` and `mlx5_bf_copy` in `qp.c`.
///
/// ```
/// use core::ptr::NonNull;
/// use mlx5_mkey::command::GeneralCapabilities;
/// use mlx5_mkey::queue::BlueFlame;
/// /// # Safety
/// /// The caller fulfils the conditions of [`BlueFlame::new`] for the queue with this doorbell.
/// unsafe fn doorbell(register: NonNull<u64>, device: &GeneralCapabilities) -> Option<BlueFlame> {
///     let half = 1 << device.log_blue_flame?.checked_sub(1)?;
///     // SAFETY: the caller vouches for the register.
///     Some(unsafe { BlueFlame::new(register, half) })
/// }
/// ```
#[derive(Debug)]
pub struct BlueFlame {
    register: *mut u64,
    /// Bytes of one half of the register.
    half: usize,
    /// Offset from the register to the next half to use.
    offset: usize,
}

// SAFETY: the register belongs to the device, not to a thread. The caller of `new` vouches that only this
// doorbell writes to the register.
unsafe impl Send for BlueFlame {}

impl BlueFlame {
    /// Makes the doorbell from a register whose halves have `half` bytes.
    ///
    /// # Safety
    /// The conditions are those of [`UarDoorbell::new`]. Also, `register` is the begin of two halves of
    /// `half` bytes each, a power of two from 64 on. It is aligned to 64 bytes, in a page that is mapped
    /// write-combining, or not cached.
    pub const unsafe fn new(register: NonNull<u64>, half: usize) -> Self {
        Self { register: register.as_ptr(), half, offset: 0 }
    }

    /// Writes a block to the register.
    #[inline]
    fn write(&mut self, at: usize, block: Slot<'_, Wqebb>) {
        const WORD: usize = size_of::<u64>();
        let words = [
            block.read_u64::<0>(),
            block.read_u64::<8>(),
            block.read_u64::<16>(),
            block.read_u64::<24>(),
            block.read_u64::<32>(),
            block.read_u64::<40>(),
            block.read_u64::<48>(),
            block.read_u64::<56>(),
        ];
        for (word, bytes) in words.into_iter().enumerate() {
            // SAFETY: the caller of `new` vouches for both halves, and `ring` writes at most the blocks of
            // one half.
            unsafe { self.register.byte_add(at + word * WORD).write_volatile(u64::from_ne_bytes(bytes)) };
        }
    }
}

impl Doorbell for BlueFlame {
    #[inline]
    fn ring(&mut self, last: &LastRequest<'_>) {
        let control = last.control();
        let [.., octowords] = control;
        // The device reads only 6 bits of the size. A raw request may have set the other bits.
        let octowords = octowords & MAX_WQE_OCTOWORDS;
        let begin = last.begin();
        let bytes = (last.end - begin) as usize * WQEBB_BYTES;
        if last.is_alone() && octowords > 1 && bytes <= self.half {
            let mut at = self.offset;
            for index in begin..last.end {
                self.write(at, last.ring.peek(index));
                at += WQEBB_BYTES;
            }
        } else {
            // SAFETY: the caller of `new` vouches for both halves, and `offset` is that of a half. The device
            // needs one store of 8 bytes.
            unsafe { self.register.byte_add(self.offset).write_volatile(u64::from_ne_bytes(control)) };
        }
        self.offset ^= self.half;
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for BlueFlame {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "BlueFlame at {=usize:#x}", self.register.addr());
    }
}

/// A completion queue's doorbell of a real device: an 8-byte register in a UAR page, which takes the arm word
/// and the queue's number (PRM "CQ doorbell").
///
/// ```
/// use core::ptr::NonNull;
/// use mlx5_mkey::queue::{ArmFor, CompletionQueue, UarCqDoorbell};
/// use mlx5_mkey::types::Cqn;
/// /// # Safety
/// /// The page is the one that completion queue `cqn` was created with, mapped, and stays mapped.
/// unsafe fn arm(completions: &mut CompletionQueue<'_>, cqn: Cqn, uar_page: NonNull<u64>) {
///     // SAFETY: the caller vouches for page and number.
///     let mut doorbell = unsafe { UarCqDoorbell::new(uar_page, cqn) };
///     completions.arm(&mut doorbell, ArmFor::Any);
/// }
/// ```
#[derive(Debug)]
pub struct UarCqDoorbell {
    register: *mut u64,
    cqn: Cqn,
}

// SAFETY: the register belongs to the device, not to a thread. The caller of `new` vouches that two doorbells
// of a page cannot disturb each other.
unsafe impl Send for UarCqDoorbell {}

impl UarCqDoorbell {
    /// Offset in bytes of the register in a UAR page (`MLX5_CQ_DOORBELL`).
    pub const OFFSET: usize = 0x20;

    /// Makes the doorbell for the completion queue with number `cqn` from the register of a UAR page.
    ///
    /// # Safety
    /// - `uar_page` is the begin of the mapped UAR page that the completion queue was created with, valid as
    ///   long as the value lives (BlueField: the Arm side's mapping, not cached). Several queues may share a
    ///   page if the CPU writes 8 bytes by one store. Otherwise, no two doorbells of the page ring at the
    ///   same time.
    /// - `cqn` is the number of the completion queue that is armed with this doorbell, since the device
    ///   raises the events of the queue that the doorbell names.
    pub const unsafe fn new(uar_page: NonNull<u64>, cqn: Cqn) -> Self {
        // SAFETY: the caller vouches for the page, which has 4 KiB.
        let register = unsafe { uar_page.as_ptr().byte_add(Self::OFFSET) };
        Self { register, cqn }
    }
}

impl CqDoorbell for UarCqDoorbell {
    fn ring(&mut self, [a, b, c, d]: [u8; 4]) {
        let [e, f, g, h] = self.cqn.get().to_be_bytes();
        // SAFETY: the caller of `new` vouches for the register. The device needs one store of 8 bytes.
        unsafe {
            self.register.write_volatile(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
        }
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for UarCqDoorbell {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "UarCqDoorbell of {} at {=usize:#x}", self.cqn, self.register.addr());
    }
}

/// A device's free-running clock: two registers of 4 bytes, big endian, in its initialization segment (PRM
/// `internal_timer_h`, `internal_timer_l`), which the kernel may map for a program.
///
/// ```
/// use core::ptr::NonNull;
/// use mlx5_mkey::queue::DeviceClock;
/// /// # Safety
/// /// The device's initialization segment is mapped at `segment`, and stays mapped.
/// unsafe fn now(segment: NonNull<u8>) -> u64 {
///     // SAFETY: the caller vouches for the segment, of which the registers are a part.
///     unsafe { DeviceClock::new(segment.byte_add(DeviceClock::OFFSET).cast()) }.ticks()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct DeviceClock {
    register: *const u32,
}

// SAFETY: the registers belong to the device, not to a thread, and are only read.
unsafe impl Send for DeviceClock {}

// SAFETY: as for `Send`. Several threads may read the registers at the same time.
unsafe impl Sync for DeviceClock {}

impl DeviceClock {
    /// Offset in bytes of the registers in the initialization segment (kernel, `struct mlx5_init_seg`).
    pub const OFFSET: usize = 0x1000;

    /// Makes the clock from its registers.
    ///
    /// # Safety
    /// Both registers are mapped, side by side, from an address on that is a multiple of 4. They stay mapped
    /// as long as the value and its clones live.
    pub const unsafe fn new(register: NonNull<u32>) -> Self {
        Self { register: register.as_ptr() }
    }

    /// Returns the ticks of the clock. Time stamps of completions have the same unit ([`super::ClockInfo`]).
    pub fn ticks(&self) -> u64 {
        // SAFETY: the caller of `new` vouches for both registers.
        joined(|at| u32::from_be(unsafe { self.register.add(at).read_volatile() }))
    }
}

/// Reads the halves of a clock, the high one first, and joins them.
fn joined(mut read: impl FnMut(usize) -> u32) -> u64 {
    let (mut high, mut low) = (read(0), read(1));
    // The high half may change between the first two reads, but it does not change twice in so short a time.
    if read(0) != high {
        (high, low) = (read(0), read(1));
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(feature = "defmt")]
impl defmt::Format for DeviceClock {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "DeviceClock at {=usize:#x}", self.register.addr());
    }
}

#[cfg(test)]
mod tests;
