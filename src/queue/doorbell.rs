//! How the device learns of new requests, and that a completion queue wants an event: the doorbell record in memory, then a write to
//! the UAR.

#![allow(unsafe_code)]

use super::ring::{Ring, Slot};
use crate::types::Cqn;
use crate::wire::{MAX_WQE_OCTOWORDS, WQEBB_BYTES, Wqebb};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use zerocopy::FromBytes;

/// The two counters in memory through which a queue pair's progress is published, big endian, 8 bytes: slots posted to the receive
/// queue, then blocks posted to the send queue (16 bits each).
///
/// The caller places it in memory that the device was told of (PRM `dbr_addr`).
///
/// ```
/// use mlx5_mkey::queue::DoorbellRecord;
/// static RECORD: DoorbellRecord = DoorbellRecord::new();
/// // Without a system the address of the static may be what the device is told; with `devx` the shim has the records.
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

/// The two words in memory through which a completion queue talks to its device, big endian, 8 bytes: entries consumed (24 bits),
/// then the arm word, which asks for an event (PRM "CQ doorbell record").
///
/// The caller places it in memory that the device was told of (PRM `dbr_addr`).
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

#[cfg(feature = "defmt")]
impl defmt::Format for UarDoorbell {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "UarDoorbell at {=usize:#x}", self.register.addr());
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for BlueFlame {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "BlueFlame at {=usize:#x}", self.register.addr());
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for UarCqDoorbell {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "UarCqDoorbell of {} at {=usize:#x}", self.cqn, self.register.addr());
    }
}

/// The last work request posted, of which a doorbell tells the device: of a configuration with signature the last SET_PSV.
#[derive(Clone, Copy)]
pub struct LastRequest<'q> {
    ring: &'q Ring<'q, Wqebb>,
    begin: u64,
    end: u64,
    alone: bool,
}

impl<'q> LastRequest<'q> {
    #[inline]
    pub(super) const fn new(ring: &'q Ring<'q, Wqebb>, begin: u64, end: u64, alone: bool) -> Self {
        Self { ring, begin, end, alone }
    }

    /// Returns whether it is the only work request since the last doorbell. Else the device is to read others before it.
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
/// A software device or a recorder implements it as well as [`UarDoorbell`]. The queue orders ring, doorbell record and this write,
/// and flushes the write after it: implementations need no barriers.
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
///
/// ```
/// use core::ptr::NonNull;
/// use mlx5_mkey::queue::UarDoorbell;
/// /// # Safety
/// /// The caller promises what [`UarDoorbell::new`] asks for, of the queue that will ring it.
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

// SAFETY: the register is a place of the device, not of a thread; exclusive access goes with the value.
unsafe impl Send for UarDoorbell {}

impl UarDoorbell {
    /// Where the first of the two registers is in a UAR page, in bytes (`MLX5_BF_OFFSET`).
    pub const OFFSET: usize = 0x800;

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

/// The doorbell of a real device that takes whole requests (BlueFlame, PRM): a work request that is alone since the last doorbell, of
/// two octowords or more, and that fits, is written to the register, 64 bytes at a time, and the device need not read it from memory.
/// Of others the first 8 bytes are written, as [`UarDoorbell`] does.
///
/// The register has two halves, which are used in turn. It is worth its stores for requests that wait for nothing else, one at a
/// time; that it costs instructions is in `hil-tests/benches`.
///
/// Source: rdma-core, `post_send_db` and `mlx5_bf_copy` in `qp.c`.
///
/// ```
/// use core::ptr::NonNull;
/// use mlx5_mkey::command::GeneralCapabilities;
/// use mlx5_mkey::queue::BlueFlame;
/// /// # Safety
/// /// The caller promises what [`BlueFlame::new`] asks for, of the queue that will ring it.
/// unsafe fn doorbell(register: NonNull<u64>, device: &GeneralCapabilities) -> Option<BlueFlame> {
///     let half = 1 << device.log_blue_flame?.checked_sub(1)?;
///     // SAFETY: the caller vouches for the register.
///     Some(unsafe { BlueFlame::new(register, half) })
/// }
/// ```
#[derive(Debug)]
pub struct BlueFlame {
    register: *mut u64,
    /// Bytes of a half.
    half: usize,
    /// From the register to the half that is next.
    offset: usize,
}

// SAFETY: as of UarDoorbell.
unsafe impl Send for BlueFlame {}

impl BlueFlame {
    /// Takes up a register whose halves have `half` bytes.
    ///
    /// # Safety
    /// As for [`UarDoorbell::new`]; and `register` begins two halves of `half` bytes, a power of two from 64 on, aligned to 64 bytes,
    /// in a page that is mapped write-combining, or not cached.
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
            // SAFETY: `new`'s caller vouches for both halves, and `ring` writes no more blocks than one has.
            unsafe { self.register.byte_add(at + word * WORD).write_volatile(u64::from_ne_bytes(bytes)) };
        }
    }
}

impl Doorbell for BlueFlame {
    #[inline]
    fn ring(&mut self, last: &LastRequest<'_>) {
        let control = last.control();
        let [.., octowords] = control;
        let bytes = (last.end - last.begin) as usize * WQEBB_BYTES;
        if last.alone && octowords & MAX_WQE_OCTOWORDS > 1 && bytes <= self.half {
            let mut at = self.offset;
            for index in last.begin..last.end {
                self.write(at, last.ring.peek(index));
                at += WQEBB_BYTES;
            }
        } else {
            // SAFETY: as of UarDoorbell; `offset` is that of a half.
            unsafe { self.register.byte_add(self.offset).write_volatile(u64::from_ne_bytes(control)) };
        }
        self.offset ^= self.half;
    }
}

/// Tells the device that a completion queue was armed.
///
/// A software device or a recorder implements it as well as [`UarCqDoorbell`]. The completion queue orders record and this write,
/// and flushes the write after it: implementations need no barriers.
pub trait CqDoorbell {
    /// Writes the arm word, 4 bytes as they are in the doorbell record, and the completion queue's number to the device.
    fn ring(&mut self, arm: [u8; 4]);
}

impl<D: CqDoorbell + ?Sized> CqDoorbell for &mut D {
    fn ring(&mut self, arm: [u8; 4]) {
        (**self).ring(arm);
    }
}

/// A completion queue's doorbell of a real device: an 8-byte register in a UAR page, which takes the arm word and the queue's
/// number (PRM "CQ doorbell").
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

// SAFETY: as of UarDoorbell.
unsafe impl Send for UarCqDoorbell {}

impl UarCqDoorbell {
    /// Where the register is in a UAR page, in bytes (`MLX5_CQ_DOORBELL`).
    pub const OFFSET: usize = 0x20;

    /// Takes up the register of a UAR page for the completion queue with this number.
    ///
    /// # Safety
    /// - `uar_page` is the beginning of the mapped UAR page that the completion queue was created with, valid as long as the value
    ///   lives (BlueField: the Arm side's mapping, not cached). Queues may share a page, where a store of 8 bytes cannot be torn;
    ///   else nobody rings meanwhile.
    /// - `cqn` is the number of the completion queue that is armed with this doorbell: the device raises events of the one that
    ///   the doorbell names.
    pub const unsafe fn new(uar_page: NonNull<u64>, cqn: Cqn) -> Self {
        // SAFETY: the caller vouches for the page, which has 4 KiB.
        let register = unsafe { uar_page.as_ptr().byte_add(Self::OFFSET) };
        Self { register, cqn }
    }
}

impl CqDoorbell for UarCqDoorbell {
    fn ring(&mut self, [a, b, c, d]: [u8; 4]) {
        let [e, f, g, h] = self.cqn.get().to_be_bytes();
        // SAFETY: `new`'s caller vouches for the register. One 8-byte store, as the device wants it.
        unsafe {
            self.register.write_volatile(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
        }
    }
}

/// A device's free-running clock: two registers of 4 bytes, big endian, in its initialization segment (PRM `internal_timer_h`,
/// `internal_timer_l`), which the kernel may map for a program.
///
/// ```
/// use core::ptr::NonNull;
/// use mlx5_mkey::queue::DeviceClock;
/// /// # Safety
/// /// The device's initialization segment is mapped there, and stays mapped.
/// unsafe fn now(segment: NonNull<u8>) -> u64 {
///     // SAFETY: the caller vouches for the segment, of which the registers are a part.
///     unsafe { DeviceClock::new(segment.byte_add(DeviceClock::OFFSET).cast()) }.ticks()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct DeviceClock {
    register: *const u32,
}

// SAFETY: the registers are a place of the device, which is only read.
unsafe impl Send for DeviceClock {}
// SAFETY: as above.
unsafe impl Sync for DeviceClock {}

impl DeviceClock {
    /// Where the registers are in the initialization segment, in bytes (kernel, `struct mlx5_init_seg`).
    pub const OFFSET: usize = 0x1000;

    /// Takes up the registers.
    ///
    /// # Safety
    /// Both are mapped, side by side, from an address that is a multiple of 4 on, and stay so as long as the value and its clones live.
    pub const unsafe fn new(register: NonNull<u32>) -> Self {
        Self { register: register.as_ptr() }
    }

    /// Returns what the clock shows, as time stamps of completions do ([`super::ClockInfo`]).
    pub fn ticks(&self) -> u64 {
        // SAFETY: `new`'s caller vouches for both registers.
        let read = |at: usize| u32::from_be(unsafe { self.register.add(at).read_volatile() });
        let (mut high, mut low) = (read(0), read(1));
        // The high half may have moved on in between; not twice.
        if read(0) != high {
            (high, low) = (read(0), read(1));
        }
        u64::from(high) << 32 | u64::from(low)
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for DeviceClock {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "DeviceClock at {=usize:#x}", self.register.addr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_has_two_halves() {
        let registers = [0x0102_0304_u32, 0xa5b6_c7d8].map(u32::to_be);
        // SAFETY: the array outlives the clock.
        let clock = unsafe { DeviceClock::new(NonNull::from(&registers).cast()) };
        assert_eq!(clock.ticks(), 0x0102_0304_a5b6_c7d8);
    }

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
        doorbell.ring(&LastRequest::new(&ring, 0, 1, true));
        doorbell.ring(&LastRequest::new(&ring, 1, 2, true));
        assert!(LastRequest::new(&ring, 1, 3, true).blocks().map(|block| block.0[0]).eq(*b"sf"));
        assert_eq!(page.map(u64::to_ne_bytes), [*b"second..", [0; 8]]);
    }

    #[test]
    fn whole_requests_reach_the_halves_in_turn() {
        #[repr(align(64))]
        struct Page([u64; 2 * 16]);
        // Halves of 128 bytes.
        let mut page = Page([0; 32]);
        let register = NonNull::from(&mut page.0).cast::<u64>();
        // SAFETY: the page outlives the doorbell and is not used meanwhile.
        let mut doorbell = unsafe { BlueFlame::new(register, 128) };
        let mut blocks: [Wqebb; 4] = core::array::from_fn(|block| Wqebb([block as u8 + 1; 64]));
        // Sizes in octowords: 4, 1, 8 of two blocks.
        for (block, octowords) in blocks.iter_mut().zip([4, 1, 8, 8]) {
            block.0[7] = octowords;
        }
        let expected = blocks;
        let ring = Ring::new(&mut blocks, 4).unwrap();
        let mut rung = |begin, end, alone| {
            // SAFETY: as above; the doorbell writes when it is rung only.
            unsafe { register.cast::<[u64; 32]>().write([0; 32]) };
            doorbell.ring(&LastRequest::new(&ring, begin, end, alone));
            // SAFETY: as above.
            let words = unsafe { register.cast::<[u64; 32]>().read_volatile() };
            words.map(u64::to_ne_bytes).as_flattened().to_vec()
        };
        let nothing = [0; 128];
        let eight = |block: usize| [&expected[block].0[..8], &nothing[8..]].concat();
        let one = [&expected[0].0[..], &nothing[64..]].concat();
        let two = [expected[2].0, expected[3].0].concat();
        let over_the_end = [expected[3].0, expected[0].0].concat();
        assert_eq!(rung(0, 1, true), [&one[..], &nothing].concat());
        assert_eq!(rung(1, 2, true), [&nothing[..], &eight(1)].concat(), "one octoword");
        assert_eq!(rung(2, 4, true), [&two[..], &nothing].concat());
        assert_eq!(rung(2, 4, false), [&nothing[..], &eight(2)].concat(), "others are before it");
        assert_eq!(rung(3, 5, true), [&over_the_end[..], &nothing].concat());
        assert_eq!(rung(2, 5, true), [&nothing[..], &eight(2)].concat(), "it does not fit");
    }

    #[test]
    fn records_are_big_endian() {
        let record = DoorbellRecord::new();
        record.set_receive(0x0304);
        record.set_send(0xabcd);
        assert_eq!(record.bytes(), [[0, 0, 3, 4], [0, 0, 0xab, 0xcd]]);
        let record = CqDoorbellRecord::new();
        record.set_consumer(0x0001_0203);
        record.set_arm(0x1004_0506);
        assert_eq!(record.bytes(), [[0, 1, 2, 3], [0x10, 4, 5, 6]]);
    }

    #[test]
    fn arm_word_and_number_reach_the_register() {
        let mut page = [0_u64; 8];
        let uar_page = NonNull::from(&mut page).cast::<u64>();
        // SAFETY: the array outlives the doorbell and is not used meanwhile.
        let mut doorbell = unsafe { UarCqDoorbell::new(uar_page, Cqn::from_low_bits(0x0012_3456)) };
        doorbell.ring([0x31, 7, 8, 9]);
        let mut expected = [[0; 8]; 8];
        expected[4] = [0x31, 7, 8, 9, 0, 0x12, 0x34, 0x56];
        assert_eq!(page.map(u64::to_ne_bytes), expected);
    }
}
