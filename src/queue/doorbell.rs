//! Notices to the device that there are new requests, or that a completion queue wants an event. A notice
//! consists of the doorbell record in memory, followed by the doorbell. `registers.rs` has the doorbells of
//! real devices.

use super::ring::Ring;
use crate::wire::Wqebb;
use crate::wqe::control;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use zerocopy::FromBytes;

/// The two counters in memory that publish a queue pair's progress, 8 bytes, big endian: number of receive
/// requests posted, then number of blocks posted to the send queue (16 bits each).
///
/// The caller puts the record into memory whose address the device knows (PRM `dbr_addr`).
///
/// ```
/// use mlx5_mkey::queue::DoorbellRecord;
/// static RECORD: DoorbellRecord = DoorbellRecord::new();
/// // On a machine without an operating system, the device gets the address of the static. With `devx`, the
/// // library allocates the records.
/// assert_eq!(RECORD.bytes(), [[0; 4]; 2]);
/// ```
#[derive(Debug, Default, FromBytes)]
#[repr(C, align(8))]
pub struct DoorbellRecord {
    receive: AtomicU32,
    /// The upper and the lower half of the send queue's 32-bit counter. The upper half stays 0.
    send: [AtomicU16; 2],
}

impl DoorbellRecord {
    /// Makes a record with both counters 0.
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

/// The two words in memory that a completion queue writes for its device, 8 bytes, big endian: entries
/// consumed (24 bits), then the arm word, which asks for an event (PRM "CQ doorbell record").
///
/// The caller puts the record into memory whose address the device knows (PRM `dbr_addr`).
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
    /// Makes a record of a queue that was never armed, and of which no entry was consumed.
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

/// The last posted work request, which a doorbell passes to the device. For a configuration with signature,
/// it is the last SET_PSV.
#[derive(Clone, Copy)]
pub struct LastRequest<'q> {
    pub(super) ring: &'q Ring<'q, Wqebb>,
    /// The first 8 bytes of the request.
    pub(super) control: [u8; 8],
    /// The first block that was not published before this doorbell.
    pub(super) published: u64,
    /// The block after the request.
    pub(super) end: u64,
}

impl<'q> LastRequest<'q> {
    /// Returns the first block of the request.
    #[inline]
    pub(super) fn begin(&self) -> u64 {
        self.end - u64::from((self.end as u16).wrapping_sub(control::begin(self.control)))
    }

    /// Returns whether the request is the only work request since the last doorbell. If not, the device has
    /// to read the others from the ring first.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.begin() == self.published
    }

    /// Returns the first 8 bytes of the request's control segment, as they are in memory.
    #[inline]
    pub const fn control(&self) -> [u8; 8] {
        self.control
    }

    /// Returns copies of the request's blocks, for a doorbell that writes whole requests to the device
    /// (BlueFlame).
    ///
    /// In the last block, the part after the request's size is unspecified.
    pub fn blocks(&self) -> impl Iterator<Item = Wqebb> + use<'q> {
        let ring = self.ring;
        (self.begin()..self.end).map(move |block| ring.read(block))
    }
}

crate::fmt::format_counters!(['q] LastRequest ['q] { published, end });

/// Tells the device that a send queue has new requests.
///
/// [`UarDoorbell`](super::UarDoorbell) writes to a device; software devices and recorders implement the trait
/// too. The send queue keeps the writes to ring, doorbell record and doorbell in this order, and flushes the
/// write to the doorbell. Implementations need no barriers.
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
/// [`UarCqDoorbell`](super::UarCqDoorbell) writes to a device; software devices and recorders implement the
/// trait too. The completion queue writes the doorbell record before the doorbell, and flushes the doorbell.
/// Implementations need no barriers.
pub trait CqDoorbell {
    /// Writes the arm word and the completion queue's number to the device. `arm` is the arm word as in the
    /// doorbell record: 4 bytes, big endian.
    fn ring(&mut self, arm: [u8; 4]);
}

impl<D: CqDoorbell + ?Sized> CqDoorbell for &mut D {
    fn ring(&mut self, arm: [u8; 4]) {
        (**self).ring(arm);
    }
}

#[cfg(test)]
mod tests;
