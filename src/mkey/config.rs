//! One change of an mkey, as plain data.

use super::{Access, BlockSignature, Layout, ReadyCrypto};

/// What happens to the signature of an mkey. `S` is the signature, or a reference to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SignatureChange<S> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is removed; data passes unchecked (`MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR`).
    Reset,
    /// It is replaced as a whole (`mlx5dv_wr_set_mkey_sig_block`).
    Set(S),
}

impl<S> SignatureChange<S> {
    /// Returns the change with a reference to the signature, as [`MkeyConfig`] has it.
    pub const fn as_ref(&self) -> SignatureChange<&S> {
        match self {
            Self::Keep => SignatureChange::Keep,
            Self::Reset => SignatureChange::Reset,
            Self::Set(signature) => SignatureChange::Set(signature),
        }
    }
}

/// What to change of an mkey; what is not given stays as it is (man page `mlx5dv_wr_mkey_configure`).
///
/// Each part can be named once and in any order, since a struct is written once:
///
/// ```
/// use mlx5_mkey::mkey::{Access, Layout, ListEntry, MkeyConfig};
/// use mlx5_mkey::types::Key;
/// let pieces = [ListEntry::new(0x1000, 64, Key::from_raw(0x100))?, ListEntry::new(0x9000, 4096, Key::from_raw(0x200))?];
/// let config = MkeyConfig {
///     access: Some(Access::REMOTE_READ | Access::REMOTE_WRITE),
///     layout: Some(Layout::list(&pieces)),
///     ..MkeyConfig::KEEP
/// };
/// # let _ = config;
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MkeyConfig<'a> {
    /// New access rights; they replace the old ones as a whole (`mlx5dv_wr_set_mkey_access_flags`).
    pub access: Option<Access>,
    /// New layout; it replaces the old one of either kind.
    pub layout: Option<Layout<'a>>,
    /// What happens to the signature.
    pub signature: SignatureChange<&'a BlockSignature>,
    /// New crypto properties; they replace the old ones as a whole (`mlx5dv_wr_set_mkey_crypto`).
    pub crypto: Option<&'a ReadyCrypto>,
}

impl MkeyConfig<'_> {
    /// Changes nothing.
    pub const KEEP: Self =
        Self { access: None, layout: None, signature: SignatureChange::Keep, crypto: None };
}
