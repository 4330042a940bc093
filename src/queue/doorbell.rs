//! How the device learns of new requests, and that a completion queue wants an event: the doorbell record in
//! memory, then the doorbell, of which `registers.rs` has those of real devices.

use super::ring::Ring;
use crate::wire::Wqebb;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use zerocopy::FromBytes;

/// The two counters in memory through which a queue pair's progress is published, big endian, 8 bytes: slots
/// posted to the receive queue, then blocks posted to the send queue (16 bits each).
///
/// The caller places it in memory whose address the device has (PRM `dbr_addr`).
///
/// ```
/// use mlx5_mkey::queue::DoorbellRecord;
/// static RECORD: DoorbellRecord = DoorbellRecord::new();
/// // Without a system the device can be given the address of the static; with `devx` the shim has the
/// // records.
/// assert_eq!(RECORD.bytes(), [[0; 4]; 2]);
/// ```
#[derive(Debug, Default, FromBytes)]
#[repr(C, align(8))]
pub struct DoorbellRecord {
    receive: AtomicU32,
    /// The upper half stays 0.
    send: [AtomicU16; 2],
}

impl DoorbellRecord {
    /// A record with both counters 0.
    pub const fn new() -> Self {
        Self { receive: AtomicU32::new(0), send: [const { AtomicU16::new(0) }; 2] }
    }

    /// Returns both counters, each as the device reads it: 4 bytes, big endian.
    pub fn bytes(&self) -> [[u8; 4]; 2] {
        let [upper, lower] = &self.send;
        let [[a, b], [c, d]] = [upper, lower].map(|half| half.load(Ordering::Relaxed).to_ne_bytes());
        [self.receive.load(Ordering::Relaxed).to_ne_bytes(), [a, b, c, d]]
    }

    /// Publishes the receive queue's counter.
    #[inline]
    pub(super) fn set_receive(&self, counter: u16) {
        self.receive.store(u32::from(counter).to_be(), Ordering::Relaxed);
    }

    /// Publishes the send queue's counter.
    #[inline]
    pub(super) fn set_send(&self, counter: u16) {
        let [_, lower] = &self.send;
        lower.store(counter.to_be(), Ordering::Relaxed);
    }
}

/// The two words in memory through which a completion queue talks to its device, big endian, 8 bytes: entries
/// consumed (24 bits), then the arm word, which asks for an event (PRM "CQ doorbell record").
///
/// The caller places it in memory whose address the device has (PRM `dbr_addr`).
///
/// ```
/// use mlx5_mkey::queue::{CompletionQueue, CqDoorbellRecord};
/// use mlx5_mkey::wire::cqe::Cqe;
/// let (mut entries, record) = ([Cqe::UNWRITTEN; 64], CqDoorbellRecord::new());
/// let completions = CompletionQueue::new(&mut entries, &record)?;
/// assert_eq!(record.bytes(), [[0; 4]; 2]);
/// # Ok::<(), mlx5_mkey::error::QueueError>(())
/// ```
#[derive(Debug, Default, FromBytes)]
#[repr(C, align(8))]
pub struct CqDoorbellRecord {
    consumer: AtomicU32,
    arm: AtomicU32,
}

impl CqDoorbellRecord {
    /// A record of a queue of which nothing was consumed, and which was never armed.
    pub const fn new() -> Self {
        Self { consumer: AtomicU32::new(0), arm: AtomicU32::new(0) }
    }

    /// Returns both words, each as the device reads it: 4 bytes, big endian.
    pub fn bytes(&self) -> [[u8; 4]; 2] {
        [&self.consumer, &self.arm].map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
    }

    /// Publishes the consumer index (24 bits).
    #[inline]
    pub(super) fn set_consumer(&self, index: u32) {
        self.consumer.store(index.to_be(), Ordering::Relaxed);
    }

    /// Publishes the arm word.
    #[inline]
    pub(super) fn set_arm(&self, word: u32) {
        self.arm.store(word.to_be(), Ordering::Relaxed);
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
impl defmt::Format for CqDoorbellRecord {
    fn format(&self, f: defmt::Formatter<'_>) {
        let [consumer, arm] = self.bytes();
        defmt::write!(f, "CqDoorbellRecord {=[u8]:02x} {=[u8]:02x}", consumer, arm);
    }
}

/// The last work request posted, which a doorbell passes to the device: of a configuration with signature the
/// last SET_PSV.
#[derive(Clone, Copy)]
pub struct LastRequest<'q> {
    pub(super) ring: &'q Ring<'q, Wqebb>,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) alone: bool,
}

impl<'q> LastRequest<'q> {
    #[inline]
    pub(super) const fn new(ring: &'q Ring<'q, Wqebb>, begin: u64, end: u64, alone: bool) -> Self {
        Self { ring, begin, end, alone }
    }

    /// Returns whether it is the only work request since the last doorbell. Else the device is to read others
    /// before it.
    #[inline]
    pub const fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns the first 8 bytes of its control segment, as they are in memory.
    #[inline]
    pub fn control(&self) -> [u8; 8] {
        self.ring.peek(self.begin).read_u64::<0>()
    }

    /// Returns copies of its blocks, for a doorbell that writes whole requests to the device (BlueFlame).
    ///
    /// Of the last block the part after the request's size is unspecified.
    pub fn blocks(&self) -> impl Iterator<Item = Wqebb> + use<'q> {
        let ring = self.ring;
        (self.begin..self.end).map(move |block| ring.read(block))
    }
}

crate::fmt::format_counters!(['q] LastRequest ['q] { begin, end });

/// Tells the device that a send queue has new requests.
///
/// [`UarDoorbell`](super::UarDoorbell) writes to a device; software devices and recorders implement it too.
/// The queue orders ring, doorbell record and this write, and flushes the write after it: implementations
/// need no barriers.
pub trait Doorbell {
    /// Writes the first 8 bytes of the last request's control segment to the device
    /// ([`LastRequest::control`]).
    fn ring(&mut self, last: &LastRequest<'_>);
}

impl<D: Doorbell + ?Sized> Doorbell for &mut D {
    #[inline]
    fn ring(&mut self, last: &LastRequest<'_>) {
        (**self).ring(last);
    }
}

/// Tells the device that a completion queue was armed.
///
/// [`UarCqDoorbell`](super::UarCqDoorbell) writes to a device; software devices and recorders implement it
/// too. The completion queue orders record and this write, and flushes the write after it: implementations
/// need no barriers.
pub trait CqDoorbell {
    /// Writes the arm word, 4 bytes as they are in the doorbell record, and the completion queue's number to
    /// the device.
    fn ring(&mut self, arm: [u8; 4]);
}

impl<D: CqDoorbell + ?Sized> CqDoorbell for &mut D {
    fn ring(&mut self, arm: [u8; 4]) {
        (**self).ring(arm);
    }
}

#[cfg(test)]
mod tests;
