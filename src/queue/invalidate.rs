//! Requests that take a key out of service.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::error::PostError;
use crate::mkey::Mkey;
use crate::types::Key;
use crate::wqe::umr;

impl SendRequest<'_, '_> {
    /// Takes an mkey's key out of service: later use of it fails (`IBV_WR_LOCAL_INV`).
    ///
    /// Nothing of the mkey is kept: its next configuration must be complete, see
    /// [`ConfigError::StateUnknown`](crate::error::ConfigError::StateUnknown).
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate_mkey(self, mkey: &mut Mkey) -> Result<(), PostError> {
        self.invalidate(mkey.key())?;
        mkey.note_invalidated();
        Ok(())
    }

    /// Takes any local key out of service, a memory window's say. An [`Mkey`] learns nothing of it: use
    /// [`SendRequest::invalidate_mkey`].
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate(self, key: Key) -> Result<(), PostError> {
        let Self { state, in_flight, id, flags } = self;
        let (fields, blocks) = (state.control_fields(flags), umr::INVALIDATE_BLOCKS);
        umr::invalidate(state.producer.reserve(blocks, in_flight)?, fields, key);
        state.producer.commit(fields.begin + blocks as u64, 1, in_flight)?;
        in_flight.file(fields.begin, id, RequestKind::LocalInvalidate, blocks);
        state.note_posted(fields.begin, state.umr_fence);
        Ok(())
    }
}
