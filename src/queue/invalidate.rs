//! Requests that take a key out of service.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::mkey::Mkey;
use crate::types::Key;
use crate::wqe::error::PostError;
use crate::wqe::invalidate;

impl SendRequest<'_, '_> {
    /// Takes the key of an mkey out of service: later use of the key fails (`IBV_WR_LOCAL_INV`).
    ///
    /// The mkey loses its properties. Its next configuration must be complete, see
    /// [`ConfigError::StateUnknown`](crate::error::ConfigError::StateUnknown).
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate_mkey(self, mkey: &mut Mkey) -> Result<(), PostError> {
        self.invalidate(mkey.key())?;
        mkey.note_invalidated();
        Ok(())
    }

    /// Takes any local key out of service, for example the key of a memory window. The call does not update
    /// the state of an [`Mkey`]: for an mkey, use [`SendRequest::invalidate_mkey`].
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate(mut self, key: Key) -> Result<(), PostError> {
        let (blocks, fields) = self.reserve(invalidate::BLOCKS)?;
        invalidate::write(blocks, fields, key);
        self.commit(fields.begin, RequestKind::LocalInvalidate, invalidate::BLOCKS, 0)
    }
}
