//! Changes of an mkey's properties, as plain data that a user fills in.

use super::{Access, BlockSignature, Crypto, Digest};

/// A change of the signature of an mkey.
///
/// ```
/// use mlx5_mkey::mkey::{BlockSignature, Domain, MkeyConfig, Signature, SignatureChange};
/// use mlx5_mkey::types::{BlockSize, Seed};
/// let domain = Domain { signature: Signature::Crc32c(Seed::Ones), block_size: BlockSize::B512 };
/// let set = SignatureChange::Set(BlockSignature::memory(domain));
/// let protected = MkeyConfig { signature: set, ..MkeyConfig::UNCHANGED };
/// // Later on, data passes unchecked.
/// let unprotected = MkeyConfig { signature: SignatureChange::Reset, ..MkeyConfig::UNCHANGED };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SignatureChange {
    /// The signature in force stays.
    #[default]
    Keep,
    /// The signature is removed; data passes unchecked (`MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR`).
    Reset,
    /// The whole signature is replaced (`mlx5dv_wr_set_mkey_sig_block`).
    Set(BlockSignature),
    /// The signature is replaced by a digest over all data.
    Digest(Digest),
}

// The type must not be larger than a block signature, because posting a request copies it into the mkey's
// state.
const _: () = assert!(size_of::<SignatureChange>() == size_of::<BlockSignature>());

impl SignatureChange {
    /// Returns the block signature that the change sets, `None` for other changes.
    pub const fn signature(&self) -> Option<&BlockSignature> {
        match self {
            Self::Set(signature) => Some(signature),
            Self::Keep | Self::Reset | Self::Digest(_) => None,
        }
    }

    /// Returns the digest that the change sets, `None` for other changes.
    pub const fn digest(&self) -> Option<&Digest> {
        match self {
            Self::Digest(digest) => Some(digest),
            Self::Keep | Self::Reset | Self::Set(_) => None,
        }
    }
}

/// Changes of an mkey's properties; the layout is given with the request. `None` and `Keep` leave a part
/// unchanged (man page `mlx5dv_wr_mkey_configure`).
///
/// [`PreparedConfig`](crate::wqe::PreparedConfig) checks and encodes the changes, for any number of requests.
///
/// ```
/// use mlx5_mkey::mkey::{Access, MkeyConfig};
/// let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
/// let config = MkeyConfig { access: Some(access), ..MkeyConfig::UNCHANGED };
/// assert_eq!(config.crypto, None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MkeyConfig {
    /// The new access rights, which replace the old ones as a whole (`mlx5dv_wr_set_mkey_access_flags`).
    pub access: Option<Access>,
    /// The change of the signature.
    pub signature: SignatureChange,
    /// The new crypto properties, which replace the old ones as a whole (`mlx5dv_wr_set_mkey_crypto`).
    pub crypto: Option<Crypto>,
}

impl MkeyConfig {
    /// A configuration that changes nothing.
    pub const UNCHANGED: Self = Self { access: None, signature: SignatureChange::Keep, crypto: None };
}
