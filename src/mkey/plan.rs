//! The rules that decide which parts of an mkey a request writes, from the properties in force and the
//! change.
//!
//! The rules follow the reference provider (rdma-core `_mlx5_send_wr_mkey_configure` and its callees). The
//! rules of digests, which the reference provider does not post, follow SPDK's drivers.

use super::{Crypto, Digest, DigestSpan, MkeyConfig, MkeyKind, SignatureChange, UmrForm, XtsEngine};
use crate::mkey::error::ConfigError;
use crate::types::DomainKind;
use crate::wire::bsf::EncryptionOrder;

/// The properties in force of an mkey on which the effect of a change depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce {
    pub(crate) signature: SignatureChange,
    pub(crate) crypto: Option<Crypto>,
    /// Whether the next request has to write the count of signature errors.
    pub(crate) error_count_pending: bool,
}

impl InForce {
    /// No properties in force: the assumption with which a configuration is planned when it is prepared.
    /// Posting plans the configuration anew if the mkey's real properties may change the plan. The real
    /// properties may change it if the configuration keeps signature or crypto properties, or if its digest
    /// begins anew after an error.
    pub(crate) const NOTHING: Self =
        Self { signature: SignatureChange::Keep, crypto: None, error_count_pending: false };

    /// Returns the signature and crypto properties in force after a change, and the change of the access
    /// rights.
    fn after(&self, config: &MkeyConfig) -> MkeyConfig {
        let keeps = config.signature == SignatureChange::Keep;
        MkeyConfig {
            access: config.access,
            signature: if keeps { self.signature } else { config.signature },
            crypto: config.crypto.or(self.crypto),
        }
    }
}

/// The parts that a request writes beside the layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The change of the access rights, and the signature and crypto properties that are in force once the
    /// request is posted.
    pub(crate) config: MkeyConfig,
    /// Whether the request writes BSFs. It then writes all BSFs of the mkey. If the mkey was created for
    /// signatures, one of them is the BSF of the signature or digest in force, or an empty one if neither is
    /// in force. If crypto properties are in force, another one is the BSF of these properties.
    pub(crate) writes_bsfs: bool,
    /// Whether SET_PSVs follow the request. They give the PSVs of the signature or digest in force their
    /// start values.
    pub(crate) sets_psvs: bool,
    /// Whether the BSFs contain the exact length of the data, instead of all ones.
    pub(crate) exact_size: bool,
}

impl Plan {
    /// Plans a change of an mkey of this kind. If the cipher is around the signature, a data unit must be a
    /// block with its signature; `any_data_unit` allows other data units.
    pub(crate) fn new(
        kind: &MkeyKind,
        config: &MkeyConfig,
        in_force: &InForce,
        any_data_unit: bool,
    ) -> Result<Self, ConfigError> {
        check_features(kind, config)?;
        let whole = in_force.after(config);
        let (signature, digest) = (whole.signature.signature(), whole.signature.digest());
        // The BSFs of digests, and the BSFs of AES-XTS in UMRs of `UmrForm::Minimal`, contain the length of
        // the data, which depends on the layout.
        let exact_size = digest.is_some()
            || kind.form == UmrForm::Minimal && signature.is_none() && whole.crypto.is_some();
        let writes_bsfs = exact_size || changes_bsfs(kind, config);
        let begins_anew = in_force.error_count_pending;
        let sets_psvs = match &whole.signature {
            SignatureChange::Set(_) => config.signature.signature().is_some() || begins_anew,
            // The BSF alone makes a digest begin, without a SET_PSV. After an error, a SET_PSV restores the
            // PSV's start value.
            SignatureChange::Digest(digest) => digest.span == DigestSpan::Mkey && begins_anew,
            SignatureChange::Keep | SignatureChange::Reset => false,
        };
        let plan = Self { config: whole, writes_bsfs, sets_psvs, exact_size };
        plan.check_with_xts(kind)?;
        if writes_bsfs && !any_data_unit {
            plan.check_data_unit()?;
        }
        Ok(plan)
    }

    /// Returns the new value of the BSF enable bit, or `None` if the request leaves the bit as it is.
    pub(crate) fn bsf_enable(&self, kind: &MkeyKind) -> Option<bool> {
        match kind.form {
            UmrForm::Minimal => None,
            UmrForm::Complete if self.writes_bsfs => Some(true),
            UmrForm::Complete => {
                // While the bit is set, the device would still report errors of a removed signature.
                let disables = kind.signature.is_some()
                    && kind.crypto.is_none()
                    && self.config.signature.signature().is_none();
                disables.then_some(false)
            }
        }
    }

    /// Returns the largest number of bytes that the mkey may map after the change.
    pub(crate) fn max_length(&self, kind: &MkeyKind) -> u64 {
        match (&self.config.crypto, kind.crypto) {
            (Some(crypto), Some(XtsEngine::SingleBlock)) => crypto.data_unit.bytes().into(),
            // A BSF counts its data in 32 bits.
            (Some(_), _) => u32::MAX.into(),
            (None, _) if self.writes_bsfs || self.config.signature.signature().is_some() => u32::MAX.into(),
            (None, _) => u64::MAX,
        }
    }

    /// Checks that a data unit is a block with its signature, if the cipher is around the signature. Other
    /// units would begin within blocks, and transfers could not begin at each block.
    fn check_data_unit(&self) -> Result<(), ConfigError> {
        let (Some(crypto), Some(signature)) = (&self.config.crypto, self.config.signature.signature()) else {
            return Ok(());
        };
        let inside = match crypto.encryption_order() {
            EncryptionOrder::WIRE_SIGNATURE => signature.domain(DomainKind::Wire),
            EncryptionOrder::MEMORY_SIGNATURE => signature.domain(DomainKind::Memory),
            _ => None,
        };
        match inside.map(|domain| domain.stride()) {
            Some(block) if block != crypto.data_unit.bytes() => {
                Err(ConfigError::DataUnitNotBlock { block, unit: crypto.data_unit })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the digest, or the signatures of both domains, can be combined with AES-XTS.
    fn check_with_xts(&self, kind: &MkeyKind) -> Result<(), ConfigError> {
        let Some(crypto) = &self.config.crypto else { return Ok(()) };
        if let Some(digest) = self.config.signature.digest() {
            check_digest_with_xts(kind, digest, crypto)?;
        }
        let in_both = self.config.signature.signature().is_some_and(|signature| signature.is_in_both());
        if self.writes_bsfs && in_both && crypto.signature_is_outside() {
            return Err(ConfigError::BothSignaturesOutsideCipher);
        }
        Ok(())
    }
}

/// Returns whether a configuration changes a BSF of an mkey of this kind.
fn changes_bsfs(kind: &MkeyKind, config: &MkeyConfig) -> bool {
    match (kind.signature, kind.crypto) {
        (Some(_), None) => match config.signature {
            SignatureChange::Set(_) | SignatureChange::Digest(_) => true,
            // A UMR of `UmrForm::Minimal` cannot disable BSFs. An empty BSF, which checks nothing, replaces
            // the signature.
            SignatureChange::Reset => kind.form == UmrForm::Minimal,
            SignatureChange::Keep => false,
        },
        // On an mkey with signature and crypto, a change of either BSF writes both.
        (Some(_), Some(_)) => config.signature != SignatureChange::Keep || config.crypto.is_some(),
        (None, _) => config.crypto.is_some(),
    }
}

/// Checks that a digest together with AES-XTS has one of the two known forms, in which it covers the
/// ciphertext of its domain.
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

/// Checks that the mkey was created for the signature, digest or crypto of a configuration, and that the
/// device supports the signature or digest. Refuses also each mkey that has entries of one length (KSM)
/// beside signature or crypto.
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
