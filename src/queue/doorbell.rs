//! How the device learns of new requests: the doorbell record in memory, then a write to the UAR.

#![allow(unsafe_code)]

use super::ring::Ring;
use crate::wire::Wqebb;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// The two counters in memory through which a queue's progress is published, big endian, 8 bytes.
///
/// For a queue pair: slots posted to the receive queue (16 bits), then blocks posted to the send queue (16 bits). For a completion
/// queue: entries consumed (24 bits), then the arming word. The caller places it in memory that the device was told of (PRM
/// `dbr_addr`).
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct DoorbellRecord {
    first: AtomicU32,
    /// The upper half stays 0.
    second: [AtomicU16; 2],
}

impl DoorbellRecord {
    /// A record with both counters 0.
    pub const fn new() -> Self {
        Self { first: AtomicU32::new(0), second: [const { AtomicU16::new(0) }; 2] }
    }

    /// Returns both counters, each as the device reads it: 4 bytes, big endian.
    pub fn bytes(&self) -> [[u8; 4]; 2] {
        let [[a, b], [c, d]] = [0, 1]
            .map(|half| self.second.get(half).map_or(0, |half| half.load(Ordering::Relaxed)).to_ne_bytes());
        [self.first.load(Ordering::Relaxed).to_ne_bytes(), [a, b, c, d]]
    }

    /// Publishes the receive queue's counter (16 bits), or the completion queue's consumer index (24 bits).
    #[inline]
    pub(super) fn set_first(&self, counter: u32) {
        self.first.store(counter.to_be(), Ordering::Relaxed);
    }

    /// Publishes the send queue's counter.
    #[inline]
    pub(super) fn set_send(&self, counter: u16) {
        let [_, lower] = &self.second;
        lower.store(counter.to_be(), Ordering::Relaxed);
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for DoorbellRecord {
    fn format(&self, f: defmt::Formatter<'_>) {
        let [first, second] = self.bytes();
        defmt::write!(f, "DoorbellRecord {=[u8]:02x} {=[u8]:02x}", first, second);
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for UarDoorbell {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "UarDoorbell at {=usize:#x}", self.register.addr());
    }
}

/// The last work request posted, of which a doorbell tells the device: of a configuration with signature the last SET_PSV.
#[derive(Clone, Copy)]
pub struct LastRequest<'q> {
    ring: &'q Ring<'q, Wqebb>,
    begin: u64,
    end: u64,
}

impl<'q> LastRequest<'q> {
    #[inline]
    pub(super) const fn new(ring: &'q Ring<'q, Wqebb>, begin: u64, end: u64) -> Self {
        Self { ring, begin, end }
    }

    /// Returns the first 8 bytes of its control segment, as they are in memory.
    #[inline]
    pub fn control(&self) -> [u8; 8] {
        self.ring.peek(self.begin).read_u64::<0>()
    }

    /// Returns copies of its blocks, for a doorbell that writes whole requests to the device (BlueFlame).
    ///
    /// Of the last block the part behind the request's size is unspecified.
    pub fn blocks(&self) -> impl Iterator<Item = Wqebb> + use<'q> {
        let ring = self.ring;
        (self.begin..self.end).map(move |block| ring.read(block))
    }
}

crate::fmt::format_counters!(['q] LastRequest ['q] { begin, end });

/// Tells the device that a send queue has new requests.
///
/// A software device or a recorder implements it as well as [`UarDoorbell`]. The queue orders ring, doorbell record and this write,
/// and flushes the write behind it: implementations need no barriers.
pub trait Doorbell {
    /// Writes the first 8 bytes of the last request's control segment to the device ([`LastRequest::control`]).
    fn ring(&mut self, last: &LastRequest<'_>);
}

impl<D: Doorbell + ?Sized> Doorbell for &mut D {
    #[inline]
    fn ring(&mut self, last: &LastRequest<'_>) {
        (**self).ring(last);
    }
}

/// The doorbell of a real device: an 8-byte register in a UAR page (User Access Region, PRM "BlueFlame register").
///
/// A page has two registers side by side. Programs that write whole requests there use them in turn; 8 bytes may go to the
/// same one each time (SPDK and the kernel's Ethernet driver do so): the queue flushes each doorbell, and so two are never merged
/// in the CPU's write-combining buffer.
#[derive(Debug)]
pub struct UarDoorbell {
    register: *mut u64,
}

// SAFETY: the register is a place of the device, not of a thread; exclusive access goes with the value.
unsafe impl Send for UarDoorbell {}

impl UarDoorbell {
    /// Takes up a register.
    ///
    /// # Safety
    /// This is where work requests become real: from here on the device executes what is posted to the queue that rings
    /// this doorbell. The caller vouches that
    /// - `register` is a mapped UAR register, 8-byte aligned, valid as long as the value lives, and rung by nobody else
    ///   (BlueField: the Arm side's mapping, not cached);
    /// - the queue's ring, doorbell record and completion queue are those that the queue pair was created with, and stay
    ///   allocated, for the device alone, until the queue pair is destroyed on the device: also where the Rust value is dropped
    ///   before, or destroying fails;
    /// - the queue is restarted ([`super::SendQueue::restart`]) only while the queue pair is in RESET or INIT;
    /// - memory under a key that a request names stays registered and allocated, and is not used by Rust code in a way that
    ///   conflicts with the device's reads and writes, until the request has completed. Where a peer was given a key, of the
    ///   memory or of an mkey laid over it, that holds until the key is invalidated and the invalidation has completed: a peer may
    ///   use it at any time before.
    pub const unsafe fn new(register: NonNull<u64>) -> Self {
        Self { register: register.as_ptr() }
    }
}

impl Doorbell for UarDoorbell {
    #[inline]
    fn ring(&mut self, last: &LastRequest<'_>) {
        // SAFETY: `new`'s caller vouches for the register. One 8-byte store, as the device wants it.
        unsafe {
            self.register.write_volatile(u64::from_ne_bytes(last.control()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_reach_the_register_as_they_stand_in_memory() {
        let mut page = [0_u64; 2];
        let register = NonNull::from(&mut page).cast::<u64>();
        // SAFETY: the array outlives the doorbell and is not used meanwhile.
        let mut doorbell = unsafe { UarDoorbell::new(register) };
        let mut blocks = [Wqebb::ZERO; 2];
        let [first, second] = &mut blocks;
        first.0[..8].copy_from_slice(b"first...");
        second.0[..8].copy_from_slice(b"second..");
        let ring = Ring::new(&mut blocks, 2).unwrap();
        doorbell.ring(&LastRequest::new(&ring, 0, 1));
        doorbell.ring(&LastRequest::new(&ring, 1, 2));
        assert!(LastRequest::new(&ring, 1, 3).blocks().map(|block| block.0[0]).eq(*b"sf"));
        assert_eq!(page.map(u64::to_ne_bytes), [*b"second..", [0; 8]]);
    }

    #[test]
    fn records_are_big_endian() {
        let record = DoorbellRecord::new();
        record.set_first(0x0102_0304);
        record.set_send(0xabcd);
        assert_eq!(record.bytes(), [[1, 2, 3, 4], [0, 0, 0xab, 0xcd]]);
    }
}
