//! The two send queues that the test compares: libmlx5's and the library's, with the limits of both.

use super::case::Random;
use super::coverage::Coverage;
use super::lifted::Lifted;
use super::post::Ours;
use super::sizes::{MIN_BLOCKS, PATTERN, SIZES};
use libmlx5::abi::QpCap;
use libmlx5::{Device, RefQueue};
use mlx5_mkey::queue::{DoorbellRecord, SendSlot};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::Local;
use std::io;
use std::rc::Rc;

/// The sizes of inline data, in bytes, that the test requests of libmlx5. A queue pair may get more.
pub(super) const INLINE: [u32; 8] = [508, 508, 508, 700, 700, 700, 380, 200];
pub(super) const SGES: [u32; 4] = [16, 1, 4, 30];

/// libmlx5's queue (`reference`), the library's queue (`ours`), and their difference in limits (`lifted`).
pub(super) struct Queues<'r> {
    pub(super) reference: RefQueue,
    pub(super) ours: Ours<'r>,
    pub(super) lifted: Lifted,
    /// The opaque buffer of libmlx5, which each request that copies memory names.
    pub(super) opaque: Local,
    /// The content of the library's ring before the current chain.
    pub(super) before: Vec<u8>,
}

impl<'r> Queues<'r> {
    /// Creates the library's queue over a ring that is filled with the complement of [`PATTERN`], so that
    /// unwritten bytes differ from those of libmlx5's ring.
    pub(super) fn new(
        reference: RefQueue,
        opaque: Local,
        lifted: Lifted,
        (ring, slots): (&'r mut [Wqebb], &'r mut [SendSlot]),
        record: &'r DoorbellRecord,
    ) -> io::Result<Self> {
        ring.fill(Wqebb([!PATTERN; 64]));
        let before = vec![!PATTERN; size_of_val(ring)];
        let ours = lifted.queue((&reference, opaque), 0, (ring, slots), record)?;
        Ok(Self { reference, ours, lifted, opaque, before })
    }

    /// Returns a copy of the library's ring.
    pub(super) fn ring(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.before.len());
        for block in 0..self.reference.blocks {
            bytes.extend_from_slice(&self.ours.block(block as u32).0);
        }
        bytes
    }

    /// Returns the number of blocks that libmlx5 reserves for a request: at most 16, the longest request.
    pub(super) fn max_blocks(&self) -> u32 {
        (self.reference.blocks as u32 / self.reference.max_requests.max(1)).clamp(1, 16)
    }

    /// Returns the number of blocks from the producer to the end of the ring.
    pub(super) fn before_end(&self) -> u32 {
        let blocks = self.reference.blocks as u32;
        blocks - self.ours.producer() % blocks
    }

    /// Returns whether the queue has no room for another request. The caller ensures that it has polled all
    /// completions: otherwise they could still make room.
    pub(super) fn is_stuck(&self) -> bool {
        self.ours.outstanding() >= self.reference.max_requests
    }
}

/// Returns the limits (`struct ibv_qp_cap`) that the test requests for a queue pair.
pub(super) fn capacity(max_send_wr: u32, max_inline_data: u32, max_send_sge: u32) -> QpCap {
    QpCap { max_send_wr, max_send_sge, max_inline_data, ..QpCap::default() }
}

/// Creates a queue pair of libmlx5. Its ring has one of the sizes that the run has used least, chosen at
/// random.
pub(super) fn create(
    device: &Rc<Device>,
    random: &mut Random,
    coverage: &mut Coverage,
) -> io::Result<RefQueue> {
    let rings = &mut coverage.rings;
    let fewest = rings.iter().min().copied().unwrap_or_default();
    let wanted: Vec<usize> = (0..SIZES).filter(|log| rings[*log] == fewest).collect();
    let log = random.pick(&wanted);
    let blocks = MIN_BLOCKS << log;
    let (inline, sges) = (random.pick(&INLINE), random.pick(&SGES));
    // libmlx5 reserves a number of blocks for each request, which depends on these limits. Several limits are
    // tried until the ring has the chosen size.
    for (inline, sges) in [(inline, sges), (200, 4), (0, 1)] {
        for shift in 0..=5 {
            let requests = (blocks >> shift).max(1) as u32;
            let queue = RefQueue::create(device, capacity(requests, inline, sges));
            if let Ok(queue) = queue
                && queue.blocks == blocks
            {
                rings[log] += 1;
                return Ok(queue);
            }
        }
    }
    Err(io::Error::other(format!("libmlx5 makes no ring of {blocks} blocks")))
}
