//! The request that gives a PSV its start value, for digests over several mkeys.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::types::{PsvIndex, Seed};
use crate::wqe::error::PostError;
use crate::wqe::umr;

impl SendRequest<'_, '_> {
    /// Gives the PSV of a transaction its start value. The request is needed after a wrong digest: the device
    /// reports no further wrong digest of this PSV until the request is executed. Post the request after the
    /// configurations of the next transaction, and before the requests that move its data. Without an error,
    /// the configuration that begins a digest suffices (PRM SET_PSV; SPDK `lib/mlx5/mlx5_umr.c`).
    ///
    /// For digests of a single mkey ([`DigestSpan::Mkey`](crate::mkey::DigestSpan::Mkey)),
    /// [`SendRequest::configure_mkey`] restores the PSV by itself.
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn set_psv(mut self, psv: PsvIndex, seed: Seed) -> Result<(), PostError> {
        let (blocks, fields) = self.reserve(1)?;
        umr::restart_digest(blocks, fields, psv, seed);
        self.commit(fields.begin, RequestKind::SetPsv, 1, 0)
    }
}
