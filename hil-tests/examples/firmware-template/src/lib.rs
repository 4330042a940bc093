//! The service of the firmware: a send queue with its completion queue and an mkey, over memory of the
//! caller. The code depends on no machine and no device, so its tests run on the machine that builds the
//! image.

#![no_std]

use embedded_hal::delay::DelayNs;
use mlx5_mkey::error::{CompletionError, ConfigError, PostError, QueueError};
use mlx5_mkey::mkey::{Access, KlmEntry, Mkey};
use mlx5_mkey::queue::{
    Completion, CompletionQueue, CqDoorbellRecord, Doorbell, DoorbellRecord, QpRouter, SendQueue,
    SendQueueConfig, SendSlot,
};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::Cqe;
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};

/// Number of blocks of the send queue, and of entries of its completion queue.
pub const BLOCKS: usize = 64;

/// The number of polls after which the service gives up waiting for a completion. `PAUSE_US` is the pause
/// between two polls, in microseconds.
pub const POLLS: u32 = 100;
pub const PAUSE_US: u32 = 100;

/// The memory that the device reads and writes. The commands that create the completion queue and the queue
/// pair contain its addresses.
#[repr(C, align(4096))]
pub struct DeviceMemory {
    ring: [Wqebb; BLOCKS],
    entries: [Cqe; BLOCKS],
    send_record: DoorbellRecord,
    completion_record: CqDoorbellRecord,
}

impl Default for DeviceMemory {
    /// Returns the content that the memory must have before the device executes the commands that create the
    /// queues.
    fn default() -> Self {
        Self {
            ring: [Wqebb::ZERO; BLOCKS],
            entries: [Cqe::UNWRITTEN; BLOCKS],
            send_record: DoorbellRecord::new(),
            completion_record: CqDoorbellRecord::new(),
        }
    }
}

/// Memory that only the service uses, not the device: its records of posted requests.
pub struct OwnMemory {
    slots: [SendSlot; BLOCKS],
}

impl Default for OwnMemory {
    /// Returns memory without records of requests.
    fn default() -> Self {
        Self { slots: SendSlot::array() }
    }
}

/// The reason why a service cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, defmt::Format)]
pub enum SetupError {
    /// The queues do not fit their memory.
    Queue(QueueError),
    /// The properties do not fit the mkey.
    Config(ConfigError),
}

/// A queue pair that writes scattered memory to its peer.
pub struct Service<'m, D> {
    queue: SendQueue<'m, D>,
    completions: CompletionQueue<'m>,
    mkeys: [Mkey; 1],
    prepared: PreparedConfig,
}

impl<'m, D: Doorbell> Service<'m, D> {
    /// Makes the service for the queue pair `qpn`, which was created over the memory `device`.
    ///
    /// # Errors
    /// Sizes or properties that the library refuses.
    pub fn new(
        qpn: Qpn,
        device: &'m mut DeviceMemory,
        own: &'m mut OwnMemory,
        doorbell: D,
        mkey: Mkey,
    ) -> Result<Self, SetupError> {
        let DeviceMemory { ring, entries, send_record, completion_record } = device;
        let config = SendQueueConfig::new(qpn);
        Ok(Self {
            queue: SendQueue::new(config, ring, &mut own.slots, send_record, doorbell)
                .map_err(SetupError::Queue)?,
            completions: CompletionQueue::new(entries, completion_record).map_err(SetupError::Queue)?,
            prepared: PreparedConfig::access(&mkey, Access::REMOTE_READ).map_err(SetupError::Config)?,
            mkeys: [mkey],
        })
    }

    /// Configures the mkey over pieces of memory and writes all of them to the peer. One doorbell publishes
    /// both requests.
    ///
    /// # Errors
    /// A request that the library refuses, for example because the ring is full.
    pub fn write(&mut self, id: u64, pieces: &[KlmEntry], remote: Remote) -> Result<(), PostError> {
        let [mkey] = &mut self.mkeys;
        let mut batch = self.queue.batch();
        batch.request(id).configure_mkey(mkey, &self.prepared, pieces)?;
        let all = Sge { address: 0, length: mkey.length() as u32, lkey: mkey.key() };
        batch.request(id).signaled().rdma_write(remote, &[all])
    }

    /// Waits for the next completion, [`POLLS`] times [`PAUSE_US`] at most.
    ///
    /// # Errors
    /// No completion in that time, or a malformed entry.
    pub fn finish(&mut self, delay: &mut impl DelayNs) -> Result<Completion, CompletionError> {
        let mut router = QpRouter { queues: &mut self.queue, mkeys: &mut self.mkeys };
        self.completions.wait(&mut router, delay, POLLS, PAUSE_US)
    }

    /// Returns the number of posted blocks.
    pub fn posted(&self) -> u32 {
        self.queue.producer()
    }

    /// Returns a posted block, for the log.
    pub fn block(&self, index: u32) -> Wqebb {
        self.queue.block(index)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use embedded_hal_mock::eh1::delay::{CheckedDelay, Transaction};
    use mlx5_mkey::queue::LastRequest;
    use mlx5_mkey::types::Key;
    use std::vec;

    /// A doorbell that counts how often it is rung.
    struct Rings<'c>(&'c core::cell::Cell<u32>);

    impl Doorbell for Rings<'_> {
        fn ring(&mut self, _last: &LastRequest<'_>) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn one_doorbell_publishes_both_requests_and_a_silent_device_ends_the_wait() {
        let (mut device, mut own) = (DeviceMemory::default(), OwnMemory::default());
        let rings = core::cell::Cell::new(0);
        let mkey = Mkey::plain(Key::from_raw(0x1234_00), 4);
        let qpn = Qpn::new(0x77).unwrap();
        let mut service = Service::new(qpn, &mut device, &mut own, Rings(&rings), mkey).unwrap();
        let piece = |address| KlmEntry { address, length: 64, key: Key::from_raw(0x5600) };
        let remote = Remote { address: 0x7000, rkey: Key::from_raw(0x5700) };
        service.write(1, &[piece(0x1000), piece(0x9000)], remote).unwrap();
        assert_eq!(rings.get(), 1);
        // The configuration with two pieces takes three blocks, the RDMA WRITE one.
        assert_eq!(service.posted(), 4);
        let pauses = vec![Transaction::delay_us(PAUSE_US); POLLS as usize - 1];
        let mut delay = CheckedDelay::new(&pauses);
        assert_eq!(service.finish(&mut delay), Err(CompletionError::TimedOut));
        delay.done();
    }
}
