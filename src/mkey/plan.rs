//! The rules: which parts of an mkey a request has to write, from what is in force and what is to change.
//!
//! They are those of the reference provider (rdma-core `_mlx5_send_wr_mkey_configure` and what it calls).

use super::{Crypto, MkeyConfig, MkeyKind, SignatureChange, XtsEngine};
use crate::error::ConfigError;

/// What is in force for an mkey, as far as a change of it depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce {
    pub(crate) signature: SignatureChange,
    pub(crate) crypto: Option<Crypto>,
    /// The device is to be told the count of signature errors.
    pub(crate) error_count_pending: bool,
}

impl InForce {
    /// Nothing that a change would have to write again.
    pub(crate) const NOTHING: Self =
        Self { signature: SignatureChange::Keep, crypto: None, error_count_pending: false };
}

/// What a request writes beside the layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The change of the access rights; signature and crypto as they are in force once the request is posted.
    pub(crate) config: MkeyConfig,
    /// The BSFs are written: of an mkey with block signature that of the signature, which is an empty one where none is in
    /// force; and that of the crypto properties in force.
    pub(crate) writes_bsfs: bool,
    /// The PSVs of the signature in force get their start values.
    pub(crate) sets_psvs: bool,
    /// New value of the BSF enable bit, if it is written.
    pub(crate) bsf_enable: Option<bool>,
    /// The most bytes of memory that the mkey may map.
    pub(crate) max_length: u64,
}

impl Plan {
    /// Plans a change of an mkey of this kind.
    pub(crate) fn new(kind: &MkeyKind, config: &MkeyConfig, in_force: &InForce) -> Result<Self, ConfigError> {
        check_features(kind, config)?;
        let InForce { signature, crypto, error_count_pending } = *in_force;
        let whole = MkeyConfig {
            access: config.access,
            signature: if config.signature == SignatureChange::Keep { signature } else { config.signature },
            crypto: config.crypto.or(crypto),
        };
        let sets_signature = matches!(config.signature, SignatureChange::Set(_));
        let signature = whole.signature.signature();
        // With crypto on the mkey, both BSFs are written when either changes.
        let writes_bsfs = match (kind.signature, kind.crypto) {
            (Some(_), None) => sets_signature,
            (Some(_), Some(_)) => config.signature != SignatureChange::Keep || config.crypto.is_some(),
            (None, _) => config.crypto.is_some(),
        };
        if let (true, Some(signature), Some(crypto)) = (writes_bsfs, signature, &whole.crypto)
            && signature.is_in_both()
            && crypto.signature_is_outside()
        {
            return Err(ConfigError::BothSignaturesOutsideCipher);
        }
        let bsf_enable = if writes_bsfs {
            Some(true)
        } else if kind.signature.is_some() && kind.crypto.is_none() && signature.is_none() {
            // Else the device reports errors of a signature that is no longer there.
            Some(false)
        } else {
            None
        };
        let max_length = match (&whole.crypto, kind.crypto) {
            (Some(crypto), Some(XtsEngine::SingleBlock)) => u64::from(crypto.data_unit.bytes()),
            // A BSF counts its data in 32 bits.
            (Some(_), _) => u64::from(u32::MAX),
            (None, _) if writes_bsfs || signature.is_some() => u64::from(u32::MAX),
            (None, _) => u64::MAX,
        };
        Ok(Self {
            config: whole,
            writes_bsfs,
            sets_psvs: signature.is_some() && (sets_signature || error_count_pending),
            bsf_enable,
            max_length,
        })
    }
}

/// Refuses what the mkey was created without, or the device does not know.
fn check_features(kind: &MkeyKind, config: &MkeyConfig) -> Result<(), ConfigError> {
    if let SignatureChange::Set(signature) = &config.signature {
        kind.signature.ok_or(ConfigError::NotASignatureMkey)?.check(signature)?;
    }
    if config.crypto.is_some() && kind.crypto.is_none() {
        return Err(ConfigError::NotACryptoMkey);
    }
    Ok(())
}
