//! Requests that take keys out of service, bind memory windows, and give PSVs their start values.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::mkey::error::ConfigError;
use crate::mkey::{Access, KlmEntry, MemoryWindow, Mkey};
use crate::types::{Key, PsvIndex, Seed};
use crate::wqe::error::PostError;
use crate::wqe::window::{self, BIND_BLOCKS};
use crate::wqe::{invalidate, umr};

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
        self.post_other(RequestKind::LocalInvalidate, invalidate::BLOCKS, |blocks, fields| {
            invalidate::write(blocks, fields, key);
            Ok(())
        })
    }

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
        let (key, qpn) = (window.next_key(), self.state.qpn);
        self.post_other(RequestKind::BindWindow, BIND_BLOCKS, |blocks, fields| {
            window::bind(blocks, fields, window.key(), (key.tag(), qpn), &range, access, start);
            Ok(())
        })?;
        window.note_bound(key, qpn, self.state.ring.queue);
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
            Some(_) if window.is_bound_to(self.state.ring.queue) => self.invalidate(window.key()),
            Some(qpn) => Err(ConfigError::WindowOfOtherQueuePair { qpn: qpn.get() }.into()),
            None => Err(ConfigError::WindowNotBound.into()),
        }
    }

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
        self.post_other(RequestKind::SetPsv, 1, |blocks, fields| {
            umr::restart_digest(blocks, fields, psv, seed);
            Ok(())
        })
    }
}
