//! Requests that bind memory windows and revoke them.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::mkey::error::ConfigError;
use crate::mkey::{Access, KlmEntry, MemoryWindow};
use crate::wqe::error::PostError;
use crate::wqe::window::{self, BIND_BLOCKS};

impl SendRequest<'_, '_> {
    /// Binds a memory window of type 2 to a range of a registered region (`IBV_WR_BIND_MW`,
    /// `ibv_wr_bind_mw`). Under the window's next key, the peer of this queue pair gets the rights in
    /// `access`, whatever rights the region itself gives. The range begins at address `start` of the window's
    /// space. With `ibv_wr_bind_mw`, this address is the one in the region, or 0 (`IBV_ACCESS_ZERO_BASED`).
    ///
    /// If the peer may write, the region has to allow local writing. The region has to be in the window's
    /// protection domain. Binding checks neither condition. If one is not met, the device refuses the peer's
    /// access.
    ///
    /// # Errors
    /// [`PostError::Config`] with [`ConfigError::WindowBound`] for a window that was not invalidated, with
    /// [`ConfigError::EntryLength`] for a range of 0 bytes or over 2 GiB, or with
    /// [`ConfigError::SpaceBehindEnd`] for a range that ends beyond address 2^64 - 1;
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn bind_window(
        mut self,
        window: &mut MemoryWindow,
        range: KlmEntry,
        access: Access,
        start: u64,
    ) -> Result<(), PostError> {
        if window.is_bound() {
            return Err(ConfigError::WindowBound.into());
        }
        if let Some((_, length)) = KlmEntry::wrong_length(&[range]) {
            return Err(ConfigError::EntryLength { index: 0, length }.into());
        }
        ConfigError::check_space(start, range.length.into())?;
        let (key, qpn) = (window.next_key(), self.state.qpn());
        let (blocks, fields) = self.reserve(BIND_BLOCKS)?;
        window::bind(blocks, fields, window.key(), (key.tag(), qpn), &range, access, start);
        self.commit(fields.begin, RequestKind::BindWindow, BIND_BLOCKS, 0)?;
        window.note_bound(key, qpn, self.state.in_flight.queue());
        Ok(())
    }

    /// Revokes a memory window (`IBV_WR_LOCAL_INV`): after the execution, the peer's requests with the key
    /// fail. Ask for a fence if earlier requests still use the key.
    ///
    /// The window stays bound until the request has completed without an error: then call
    /// [`MemoryWindow::note_invalidated`]. If the request fails, the peer may still use the key.
    ///
    /// # Errors
    /// [`PostError::Config`] with [`ConfigError::WindowNotBound`], or [`ConfigError::WindowOfOtherQueuePair`]
    /// for a window that another queue pair has bound; [`PostError::SendRingFull`],
    /// [`PostError::TooManyRequests`].
    pub fn invalidate_window(self, window: &MemoryWindow) -> Result<(), PostError> {
        match window.queue_pair() {
            Some(_) if window.is_bound_to(self.state.in_flight.queue()) => self.invalidate(window.key()),
            Some(qpn) => Err(ConfigError::WindowOfOtherQueuePair { qpn: qpn.get() }.into()),
            None => Err(ConfigError::WindowNotBound.into()),
        }
    }
}
