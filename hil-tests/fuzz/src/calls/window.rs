//! The model of a memory window: its key, and whether it is bound.

use super::lists;
use super::receive::QPN;
use mlx5_mkey::error::ConfigError;
use mlx5_mkey::inspect::Umr;
use mlx5_mkey::mkey::{Access, KlmEntry, MemoryWindow};
use mlx5_mkey::types::Key;

/// The model of a memory window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowModel {
    pub(super) key: Key,
    pub(super) bound: bool,
}

impl WindowModel {
    pub(super) const fn new(key: Key) -> Self {
        Self { key, bound: false }
    }

    pub(super) fn check(&self, window: &MemoryWindow) {
        assert_eq!((window.key(), window.is_bound()), (self.key, self.bound));
    }

    /// Returns the key after the next binding.
    const fn next(&self) -> Key {
        Key::new(self.key.index(), self.key.tag().wrapping_add(1))
    }

    pub(super) const fn bind(&mut self) {
        *self = Self { key: self.next(), bound: true };
    }

    /// Returns the error for a range to which the window cannot be bound.
    pub(super) fn plan(&self, range: &KlmEntry, start: u64) -> Result<(), ConfigError> {
        if self.bound {
            return Err(ConfigError::WindowBound);
        }
        lists::check_lengths(std::slice::from_ref(range))?;
        if u128::from(start) + u128::from(range.length) > 1 << 64 {
            return Err(ConfigError::SpaceBehindEnd);
        }
        Ok(())
    }
}

/// Asserts that a request binds the window to the range, for the peer of the queue pair. `old` is the key of
/// the window before the request, which changes its tag to the next one.
pub(super) fn verify(umr: &Umr<'_>, old: Key, range: &KlmEntry, access: Access, start: u64) {
    let context = umr.context();
    let space = (context.start_addr.get(), umr.length());
    assert_eq!((space, umr.access()), ((start, Some(range.length.into())), Some(access)));
    assert_eq!((umr.key(), umr.tag()), (old, Some(old.tag().wrapping_add(1))));
    let owner = context.qpn_mkey_word();
    assert_eq!((owner.qpn(), umr.mask().qpn(), umr.first_replaced()), (QPN.get(), true, Some(0)));
    lists::verify_entries(umr, std::slice::from_ref(range));
}
