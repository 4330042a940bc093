//! Requests that take a key out of service.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::error::PostError;
use crate::mkey::Mkey;
use crate::types::Key;
use crate::wqe::invalidate;

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

    /// Takes any local key out of service, that of a memory window for example. An [`Mkey`] learns nothing of
    /// it: use [`SendRequest::invalidate_mkey`].
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate(mut self, key: Key) -> Result<(), PostError> {
        let (blocks, fields) = self.reserve(invalidate::BLOCKS)?;
        invalidate::write(blocks, fields, key);
        self.commit(fields.begin, RequestKind::LocalInvalidate, invalidate::BLOCKS, 0)
    }
}
