//! The queues of both sides, and their limits.

use super::case::Random;
use super::post::{Ours, Silent};
use super::{Coverage, MIN_BLOCKS, PATTERN, SIZES, capacity};
use libmlx5::{Device, RefQueue};
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::queue::{DoorbellRecord, SendQueueConfig};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::{Local, MemcpyConfig};
use std::io;
use std::rc::Rc;

/// log2 of the longest copy, as the stand-in's device reports it.
const LOG_MAX_COPY: u8 = 21;

/// Requested sizes of inline data. Queue pairs may get more.
pub(super) const INLINE: [u32; 8] = [508, 508, 508, 700, 700, 700, 380, 200];
pub(super) const SGES: [u32; 4] = [16, 1, 4, 30];

/// The limits of the reference's queue that the library's queue lacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifted {
    requests: bool,
    inline: bool,
}

impl Lifted {
    /// The names of all combinations.
    pub(super) const NAMES: [&'static str; 4] =
        ["the reference's limits", "requests unlimited", "inline data unlimited", "no limits"];
    /// All limits of the reference apply.
    pub(super) const NONE: Self = Self { requests: false, inline: false };

    pub(super) fn draw(random: &mut Random) -> Self {
        Self { requests: random.percent(50), inline: random.percent(50) }
    }

    pub(super) fn number(self) -> usize {
        usize::from(self.requests) + 2 * usize::from(self.inline)
    }

    /// Returns whether a refusal comes from a lifted limit.
    pub(super) fn lifts(self, error: &PostError) -> bool {
        match error {
            PostError::TooManyRequests { .. } => self.requests,
            PostError::InlineTooLong { .. }
            | PostError::Config(ConfigError::TooManyEntries { .. } | ConfigError::BsfDoesNotFit { .. }) => {
                self.inline
            }
            _ => false,
        }
    }

    /// Returns the settings of the library's queue. `outstanding` requests count against the limit.
    fn config(self, reference: &RefQueue, opaque: Local, outstanding: u32) -> SendQueueConfig {
        let qpn = Qpn::from_low_bits(reference.number);
        SendQueueConfig {
            max_inline_data: if self.inline {
                SendQueueConfig::MAX_INLINE_DATA
            } else {
                reference.max_inline_data
            },
            max_sge: reference.max_sge,
            memcpy: Some(MemcpyConfig { opaque, log_max_bytes: LOG_MAX_COPY }),
            max_requests: if self.requests { u32::MAX } else { reference.max_requests - outstanding },
            ..SendQueueConfig::new(qpn)
        }
    }

    /// Creates a queue of the library with these limits.
    pub(super) fn queue<'r>(
        self,
        (reference, opaque): (&RefQueue, Local),
        outstanding: u32,
        ring: &'r mut [Wqebb],
        record: &'r DoorbellRecord,
    ) -> io::Result<Ours<'r>> {
        Ours::new(self.config(reference, opaque, outstanding), ring, record, Silent)
            .map_err(|error| io::Error::other(format!("queue: {error:?}")))
    }
}

/// The queues of both sides.
pub(super) struct Queues<'r> {
    pub(super) reference: RefQueue,
    pub(super) ours: Ours<'r>,
    pub(super) lifted: Lifted,
    /// The opaque buffer of copies.
    pub(super) opaque: Local,
    /// The library's ring before the chain.
    pub(super) before: Vec<u8>,
}

impl<'r> Queues<'r> {
    /// Creates the library's queue over a ring that is filled with the complement of [`PATTERN`].
    pub(super) fn new(
        reference: RefQueue,
        opaque: Local,
        lifted: Lifted,
        ring: &'r mut [Wqebb],
        record: &'r DoorbellRecord,
    ) -> io::Result<Self> {
        ring.fill(Wqebb([!PATTERN; 64]));
        let before = vec![!PATTERN; size_of_val(ring)];
        let ours = lifted.queue((&reference, opaque), 0, ring, record)?;
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

    /// Returns the blocks that the reference reserves for a request, at most the maximum of a request.
    pub(super) fn max_blocks(&self) -> u32 {
        (self.reference.blocks as u32 / self.reference.max_requests.max(1)).clamp(1, 16)
    }

    /// Returns the blocks before the end of the ring.
    pub(super) fn before_end(&self) -> u32 {
        let blocks = self.reference.blocks as u32;
        blocks - self.ours.producer() % blocks
    }

    /// Returns whether the queue is full and all its completions were taken.
    pub(super) fn is_stuck(&self) -> bool {
        self.ours.outstanding() >= self.reference.max_requests
    }
}

/// Creates a queue pair of the reference, with the ring size that was used least.
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
    // The number of blocks that libmlx5 reserves for a request depends on these limits.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_lifted_only_where_the_refusal_is_about_it() {
        let requests = PostError::TooManyRequests { needed: 1, free: 0 };
        let inline = [
            PostError::InlineTooLong { length: 2, max: 1 },
            PostError::Config(ConfigError::TooManyEntries { max: 1 }),
            PostError::Config(ConfigError::BsfDoesNotFit { bytes: 2, max: 1 }),
        ];
        let never = [
            PostError::SendRingFull { needed: 1, free: 0 },
            PostError::TooManySges { sges: 2, max: 1 },
            PostError::SgeEmpty { index: 0 },
            PostError::Config(ConfigError::NotACryptoMkey),
        ];
        let kinds = [&[requests][..], &inline, &never];
        for (requests, inline) in [(false, false), (true, false), (false, true), (true, true)] {
            let lifted = Lifted { requests, inline };
            for (errors, expected) in kinds.iter().zip([requests, inline, false]) {
                for error in *errors {
                    assert_eq!(lifted.lifts(error), expected, "{lifted:?} {error:?}");
                }
            }
        }
    }
}
