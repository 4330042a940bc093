//! The rules: which parts of an mkey a request has to write, from what is in force and what is to change.
//!
//! They are those of the reference provider (rdma-core `_mlx5_send_wr_mkey_configure` and what it calls); of digests, which it does
//! not post, those of SPDK's drivers (hil-tests/DEVICE.md, 6.6 and 7.4).

use super::{Crypto, Digest, DigestSpan, MkeyConfig, MkeyKind, SignatureChange, UmrForm, XtsEngine};
use crate::error::ConfigError;
use crate::types::DomainKind;
use crate::wire::bsf::EncryptionOrder;

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
    /// The BSFs are written: of an mkey with block signature that of the signature or digest, which is an empty one where none is in
    /// force; and that of the crypto properties in force.
    pub(crate) writes_bsfs: bool,
    /// The PSVs of the signature or digest in force get their start values.
    pub(crate) sets_psvs: bool,
    /// The BSFs have the exact length of the data.
    pub(crate) exact_size: bool,
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
        let (signature, digest) = (whole.signature.signature(), whole.signature.digest());
        // With crypto on the mkey, both BSFs are written when either changes.
        let writes_bsfs = match (kind.signature, kind.crypto) {
            (Some(_), None) => sets_signature,
            (Some(_), Some(_)) => config.signature != SignatureChange::Keep || config.crypto.is_some(),
            (None, _) => config.crypto.is_some(),
        };
        let is_minimal = kind.form == UmrForm::Minimal;
        // These BSFs have the length of the data, which is the layout's.
        let exact_size = digest.is_some() || is_minimal && signature.is_none() && whole.crypto.is_some();
        // BSFs stay enabled: one that lets data pass takes the place of the signature.
        let empties = is_minimal && kind.signature.is_some() && config.signature == SignatureChange::Reset;
        let writes_bsfs = writes_bsfs || exact_size || empties;
        if let (Some(digest), Some(crypto)) = (digest, &whole.crypto) {
            check_digest_with_xts(kind, digest, crypto)?;
        }
        if let (true, Some(signature), Some(crypto)) = (writes_bsfs, signature, &whole.crypto)
            && signature.is_in_both()
            && crypto.signature_is_outside()
        {
            return Err(ConfigError::BothSignaturesOutsideCipher);
        }
        let bsf_enable = if is_minimal {
            None
        } else if writes_bsfs {
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
        let sets_psvs = match &whole.signature {
            SignatureChange::Set(_) => sets_signature || error_count_pending,
            // The BSF starts a digest. Behind an error that does not suffice.
            SignatureChange::Digest(digest) => digest.span == DigestSpan::Mkey && error_count_pending,
            SignatureChange::Keep | SignatureChange::Reset => false,
        };
        Ok(Self { config: whole, writes_bsfs, sets_psvs, exact_size, bsf_enable, max_length })
    }
}

/// Refuses a digest but in the two forms with AES-XTS that are known: plain, over the ciphertext of its domain.
fn check_digest_with_xts(kind: &MkeyKind, digest: &Digest, crypto: &Crypto) -> Result<(), ConfigError> {
    if kind.signature.is_some_and(|device| !device.digest_with_xts) {
        return Err(ConfigError::DigestWithXtsUnsupported);
    }
    let known = match digest.domain {
        DomainKind::Wire => EncryptionOrder::RAW_WIRE,
        DomainKind::Memory => EncryptionOrder::RAW_MEMORY,
    };
    if crypto.encryption_order() == known { Ok(()) } else { Err(ConfigError::DigestNotOverCiphertext) }
}

/// Refuses what the mkey was created without, or the device does not know.
fn check_features(kind: &MkeyKind, config: &MkeyConfig) -> Result<(), ConfigError> {
    if let SignatureChange::Set(signature) = &config.signature {
        kind.signature.ok_or(ConfigError::NotASignatureMkey)?.check(signature)?;
    }
    if let SignatureChange::Digest(digest) = &config.signature {
        kind.signature.ok_or(ConfigError::NotASignatureMkey)?.check_digest(digest)?;
    }
    if config.crypto.is_some() && kind.crypto.is_none() {
        return Err(ConfigError::NotACryptoMkey);
    }
    if kind.entry_size.is_some() && (kind.signature.is_some() || kind.crypto.is_some()) {
        return Err(ConfigError::EntriesWithBsf);
    }
    Ok(())
}
