//! Changes of a prepared configuration in place, between posts: tweak, DEK, tags, and the span of a digest.
//! Each function changes both the configuration and its encoded form.

use super::PreparedConfig;
use crate::mkey::error::ConfigError;
use crate::mkey::{Crypto, DigestSpan, Keytag, SignatureChange, T10Dif, XtsEngine};
use crate::types::{DekId, DomainKind, Tweak};
use crate::wire::bsf::{CryptoBsf, InlineDif, SignatureBsf};
use crate::wire::psv::TransientSignature;
use crate::wqe::bsf;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{transmute, transmute_mut};

impl PreparedConfig {
    /// Replaces the tweak of the first data unit, a number of 128 bits. The BSF receives the tweak in the
    /// byte order of the engine.
    ///
    /// # Errors
    /// [`ConfigError::NoCrypto`] if the configuration has no crypto properties.
    #[inline]
    pub fn set_tweak(&mut self, tweak: Tweak) -> Result<(), ConfigError> {
        let engine = self.kind.crypto.unwrap_or(XtsEngine::Unspecified);
        let (crypto, bsf) = self.crypto()?;
        bsf.xts_initial_tweak = engine.tweak_bytes(tweak);
        crypto.tweak = tweak;
        Ok(())
    }

    /// Replaces the DEK and its keytag.
    ///
    /// # Errors
    /// [`ConfigError::NoCrypto`] if the configuration has no crypto properties.
    #[inline]
    pub fn set_dek(&mut self, dek: DekId, keytag: Keytag) -> Result<(), ConfigError> {
        let (crypto, bsf) = self.crypto()?;
        (bsf.dek, bsf.keytag) = (U32::new(dek.get()), keytag.0);
        (crypto.dek, crypto.keytag) = (dek, keytag);
        Ok(())
    }

    /// Returns the crypto properties and their BSF.
    #[inline]
    fn crypto(&mut self) -> Result<(&mut Crypto, &mut CryptoBsf), ConfigError> {
        let crypto = self.config.crypto.as_mut().ok_or(ConfigError::NoCrypto)?;
        let [first, second] = &mut self.bsfs;
        let bsf = if self.kind.signature.is_some() { second } else { first };
        Ok((crypto, transmute_mut!(bsf)))
    }

    /// Replaces the reference tag of the first block, in a domain that has a T10-DIF. With
    /// [`ref_remap`](crate::mkey::T10Dif::ref_remap), the tag grows by one with each block.
    ///
    /// # Errors
    /// [`ConfigError::NoT10Dif`] if the domain has no T10-DIF.
    #[inline]
    pub fn set_ref_tag(&mut self, domain: DomainKind, ref_tag: u32) -> Result<(), ConfigError> {
        let (dif, inline, start) = self.t10dif(domain)?;
        dif.ref_tag = ref_tag;
        (inline.ref_tag, start.ref_tag) = (U32::new(ref_tag), U32::new(ref_tag));
        self.update_copy_mask();
        Ok(())
    }

    /// Replaces the application tag, in a domain that has a T10-DIF.
    ///
    /// # Errors
    /// [`ConfigError::NoT10Dif`] if the domain has no T10-DIF.
    #[inline]
    pub fn set_app_tag(&mut self, domain: DomainKind, app_tag: u16) -> Result<(), ConfigError> {
        let (dif, inline, start) = self.t10dif(domain)?;
        dif.app_tag = app_tag;
        (inline.app_tag, start.app_tag) = (U16::new(app_tag), U16::new(app_tag));
        self.update_copy_mask();
        Ok(())
    }

    /// Returns the T10-DIF of a domain, its section of the BSF, and the start value of its PSV.
    #[inline]
    fn t10dif(
        &mut self,
        domain: DomainKind,
    ) -> Result<(&mut T10Dif, &mut InlineDif, &mut TransientSignature), ConfigError> {
        let absent = ConfigError::NoT10Dif(domain);
        let SignatureChange::Set(signature) = &mut self.config.signature else { return Err(absent) };
        let dif = signature.t10dif_mut(domain).ok_or(absent)?;
        let [bsf, _] = &mut self.bsfs;
        let bsf: &mut SignatureBsf = transmute_mut!(bsf);
        let [memory, wire] = &mut self.psv_starts;
        let (inline, start) = match domain {
            DomainKind::Memory => (&mut bsf.memory_inline, memory),
            DomainKind::Wire => (&mut bsf.wire_inline, wire),
        };
        Ok((dif, inline, start))
    }

    /// Updates the mask of the signature's bytes that the device copies from one domain to the other. The
    /// mask depends on whether the tags of both domains are equal.
    #[inline]
    fn update_copy_mask(&mut self) {
        if self.psv_count == 2
            && let Some(mask) = self.config.signature.signature().and_then(|both| both.effective_copy_mask())
        {
            let [bsf, _] = &mut self.bsfs;
            let bsf: &mut SignatureBsf = transmute_mut!(bsf);
            bsf.wire = mask;
        }
    }

    /// Replaces the span of the digest by another transaction, or by another part of a transaction.
    ///
    /// # Errors
    /// [`ConfigError::NoDigest`] if the configuration has no digest.
    pub fn set_digest(&mut self, span: DigestSpan) -> Result<(), ConfigError> {
        let size = self.bsf_size();
        let SignatureChange::Digest(digest) = &mut self.config.signature else {
            return Err(ConfigError::NoDigest);
        };
        digest.span = span;
        let [bsf, _] = &mut self.bsfs;
        *bsf = transmute!(bsf::digest(digest, size));
        Ok(())
    }
}
