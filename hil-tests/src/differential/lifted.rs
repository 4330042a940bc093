//! The limits of the library's queue in the differential test: those of libmlx5's queue (the reference), or
//! fewer ("lifted").

use super::case::Random;
use super::post::Ours;
use crate::doorbell::Silent;
use libmlx5::RefQueue;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::queue::{DoorbellRecord, SendQueueConfig, SendSlot};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::{Local, MemcpyConfig};
use std::io;

/// log2 of the most bytes that a request can copy, as the stand-in's device reports it.
const LOG_MAX_COPY: u8 = 21;

/// Which limits of libmlx5's queue the library's queue does not have: the number of requests, the bytes of
/// inline data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifted {
    requests: bool,
    inline: bool,
}

impl Lifted {
    /// The names of all combinations of lifted limits, in the order of `number`.
    pub(super) const NAMES: [&'static str; 4] =
        ["the reference's limits", "requests unlimited", "inline data unlimited", "no limits"];
    /// No limit is lifted: the library's queue has all limits of libmlx5's queue.
    pub(super) const NONE: Self = Self { requests: false, inline: false };

    pub(super) fn draw(random: &mut Random) -> Self {
        Self { requests: random.percent(50), inline: random.percent(50) }
    }

    pub(super) fn number(self) -> usize {
        usize::from(self.requests) + 2 * usize::from(self.inline)
    }

    /// Returns whether the error comes from a limit that is lifted.
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

    /// Returns the settings of the library's queue. `outstanding` requests of another queue already count
    /// against the limit of requests.
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

    /// Creates a queue of the library with the limits of libmlx5's queue, except for the lifted ones.
    pub(super) fn queue<'r>(
        self,
        (reference, opaque): (&RefQueue, Local),
        outstanding: u32,
        (ring, slots): (&'r mut [Wqebb], &'r mut [SendSlot]),
        record: &'r DoorbellRecord,
    ) -> io::Result<Ours<'r>> {
        Ours::new(self.config(reference, opaque, outstanding), ring, slots, record, Silent)
            .map_err(|error| io::Error::other(format!("queue: {error:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_other_limits_are_never_lifted() {
        let ring_full = PostError::SendRingFull { needed: 1, free: 0 };
        let others = [PostError::TooManySges { sges: 2, max: 1 }, ConfigError::NotACryptoMkey.into()];
        let lifted = Lifted { requests: true, inline: true };
        assert!(![ring_full].iter().chain(&others).any(|error| lifted.lifts(error)));
    }
}
