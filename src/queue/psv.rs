//! The request that gives a PSV its start value, for digests over several mkeys.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::error::PostError;
use crate::types::{PsvIndex, Seed};
use crate::wqe::umr;

impl SendRequest<'_, '_> {
    /// Gives the PSV of a transaction its start value, as is needed behind a wrong digest: until then the device reports no other one
    /// under this PSV. Post it behind the configurations of the next transaction and before the requests that move its data; without
    /// an error the configuration that begins a digest suffices (DEVICE.md 6.6, 7.4).
    ///
    /// [`SendRequest::configure_mkey`] does it by itself for digests of a single mkey
    /// ([`DigestSpan::Mkey`](crate::mkey::DigestSpan::Mkey)).
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn set_psv(self, psv: PsvIndex, seed: Seed) -> Result<(), PostError> {
        let Self { state, in_flight, id, flags } = self;
        let fields = state.control_fields(flags);
        umr::restart_digest(state.producer.reserve(1, in_flight)?, fields, psv, seed);
        state.producer.commit(fields.begin + 1, 1, in_flight)?;
        in_flight.file(fields.begin, id, RequestKind::SetPsv, 1);
        state.note_posted(fields.begin, state.umr_fence);
        Ok(())
    }
}
