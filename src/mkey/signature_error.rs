//! Signature errors: the device's report, and its meaning under the signature in force.

use super::{Digest, Signature, SignatureChange};
use crate::mkey::error::CheckError;
use crate::types::{DomainKind, Key, MkeyIndex};
use crate::wire::cqe::SignatureErrorCqe;

/// The part of a signature that was wrong (`enum mlx5dv_mkey_err_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SignatureErrorKind {
    /// The guard of a T10-DIF or a CRC was wrong.
    Guard,
    /// The application tag of a T10-DIF was wrong.
    AppTag,
    /// The reference tag of a T10-DIF was wrong.
    RefTag,
    /// A digest over all data was wrong.
    Digest,
}

/// A signature error: a signature did not match its block, or a digest its data (`struct mlx5dv_mkey_err`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SignatureError {
    /// The part that was wrong. If several parts of a block are wrong, this field names the first wrong one
    /// of guard, application tag and reference tag.
    pub kind: SignatureErrorKind,
    /// The domain that the data came from.
    pub domain: DomainKind,
    /// The value that the device found in the data. The man page `mlx5dv_mkey_check` calls this value
    /// `expected`, the device calls it `actual`.
    pub found: u64,
    /// The value that the device computed. The man page `mlx5dv_mkey_check` calls this value `actual`, the
    /// device calls it `expected`.
    pub computed: u64,
    /// Offset in bytes of the failing block's last byte, signature included, as the device reports it.
    pub offset: u64,
    /// Length of a block with its signature in `domain`, in bytes; 0 for a digest.
    pub stride: u32,
}

impl SignatureError {
    /// Returns the number of the failing block, counted from 0 at the mkey's start; 0 for a digest.
    pub const fn block_index(&self) -> u64 {
        match self.offset.checked_div(self.stride as u64) {
            Some(index) => index,
            None => 0,
        }
    }
}

impl core::fmt::Display for SignatureError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let kind = match self.kind {
            SignatureErrorKind::Guard => "guard",
            SignatureErrorKind::AppTag => "application tag",
            SignatureErrorKind::RefTag => "reference tag",
            SignatureErrorKind::Digest => "digest",
        };
        let domain = match self.domain {
            DomainKind::Wire => "wire",
            DomainKind::Memory => "memory",
        };
        write!(f, "bad {kind} ")?;
        if self.kind != SignatureErrorKind::Digest {
            write!(f, "in block {} ", self.block_index())?;
        }
        write!(f, "({domain}): found {:#06x}, computed {:#06x}", self.found, self.computed)
    }
}

/// A signature error as the device reports it. The library interprets the report by the signature of the
/// mkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SignatureFault {
    /// Index of the mkey whose data has the wrong signature.
    pub mkey: MkeyIndex,
    /// The part that was wrong: [`SignatureErrorCqe::SYNDROME_GUARD`],
    /// [`SignatureErrorCqe::SYNDROME_APP_TAG`] or [`SignatureErrorCqe::SYNDROME_REF_TAG`].
    pub syndrome: u16,
    /// The type of signature: [`SignatureErrorCqe::TYPE_BLOCK`] or [`SignatureErrorCqe::TYPE_TRANSACTION`].
    pub sig_type: u8,
    /// The domain: [`SignatureErrorCqe::DOMAIN_WIRE`] or [`SignatureErrorCqe::DOMAIN_MEMORY`].
    pub domain: u8,
    /// The value that the device computed, joined from both words of the report.
    pub expected: u64,
    /// The value that the device found in the data, joined from both words of the report.
    pub actual: u64,
    /// Offset in bytes of the failing block's last byte.
    pub offset: u64,
}

impl SignatureFault {
    /// Creates the report from a completion entry.
    pub const fn from_wire(cqe: &SignatureErrorCqe) -> Self {
        Self {
            mkey: Key::from_raw(cqe.mkey.get()).index(),
            syndrome: cqe.syndrome.get(),
            sig_type: cqe.sig_type & SignatureErrorCqe::FIELD_MASK,
            domain: cqe.domain & SignatureErrorCqe::FIELD_MASK,
            expected: (cqe.expected_trans_sig.get() as u64) << 32 | cqe.expected_ref_tag.get() as u64,
            actual: (cqe.actual_trans_sig.get() as u64) << 32 | cqe.actual_ref_tag.get() as u64,
            offset: cqe.offset.get(),
        }
    }

    /// Interprets the report under the signature in force.
    pub(super) fn interpret(&self, in_force: &SignatureChange) -> Result<SignatureError, CheckError> {
        let unintelligible = CheckError::Unintelligible {
            syndrome: self.syndrome,
            sig_type: self.sig_type,
            domain: self.domain,
        };
        let kind = match self.domain {
            SignatureErrorCqe::DOMAIN_WIRE => DomainKind::Wire,
            SignatureErrorCqe::DOMAIN_MEMORY => DomainKind::Memory,
            _ => return Err(unintelligible),
        };
        if let SignatureChange::Digest(digest) = in_force {
            return self.interpret_digest(digest, kind).ok_or(unintelligible);
        }
        let domain =
            in_force.signature().and_then(|signature| signature.domain(kind)).ok_or(unintelligible)?;
        if self.sig_type != SignatureErrorCqe::TYPE_BLOCK {
            return Err(unintelligible);
        }
        let has = |bit| self.syndrome & bit != 0;
        let (part, shift, mask) = if has(SignatureErrorCqe::SYNDROME_GUARD) {
            match domain.signature {
                Signature::T10Dif(_) => (SignatureErrorKind::Guard, 48, 0xffff),
                Signature::Crc32(_) | Signature::Crc32c(_) => (SignatureErrorKind::Guard, 32, 0xffff_ffff),
                Signature::Crc64Xp10(_) => (SignatureErrorKind::Guard, 0, u64::MAX),
            }
        } else if has(SignatureErrorCqe::SYNDROME_APP_TAG) {
            (SignatureErrorKind::AppTag, 32, 0xffff)
        } else if has(SignatureErrorCqe::SYNDROME_REF_TAG) {
            (SignatureErrorKind::RefTag, 0, 0xffff_ffff)
        } else {
            return Err(unintelligible);
        };
        if part != SignatureErrorKind::Guard && !matches!(domain.signature, Signature::T10Dif(_)) {
            return Err(unintelligible);
        }
        Ok(SignatureError {
            kind: part,
            domain: kind,
            found: self.actual >> shift & mask,
            computed: self.expected >> shift & mask,
            offset: self.offset,
            stride: domain.stride(),
        })
    }

    /// Interprets the report under a digest. Returns `None` if the report is about another signature than a
    /// digest in this domain.
    fn interpret_digest(&self, digest: &Digest, domain: DomainKind) -> Option<SignatureError> {
        let is_of_digest = self.sig_type == SignatureErrorCqe::TYPE_TRANSACTION
            && self.syndrome & SignatureErrorCqe::SYNDROME_GUARD != 0
            && digest.domain == domain;
        is_of_digest.then_some(SignatureError {
            kind: SignatureErrorKind::Digest,
            domain,
            found: self.actual >> 32,
            computed: self.expected >> 32,
            offset: self.offset,
            stride: 0,
        })
    }
}
