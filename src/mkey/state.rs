//! What the device is known to hold for an mkey, as far as it changes the next work request.

use super::crypto::{Crypto, XtsEngine};
use super::signature::{BlockSignature, Signature, SignatureCapabilities};
use super::{Access, Layout, MkeyConfig, SignatureChange};
use crate::error::{CheckError, ConfigError};
use crate::types::{Key, MkeyIndex, PsvIndex};
use crate::wire::cqe::SignatureErrorCqe;
use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES};

/// How many signature errors the device has been told that software has seen.
///
/// The device stays quiet until the low bit of this count in the mkey context agrees with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ErrorCount {
    /// Errors seen.
    pub seen: u32,
    /// The next configuration has to tell the device.
    pub pending: bool,
}

impl ErrorCount {
    /// The count of an mkey that was just created: the first configuration writes a 1 (R179).
    pub const CREATED: Self = Self { seen: 1, pending: true };
}

/// What an mkey with block signature was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SignatureAttributes {
    /// Protection signature value of the memory domain.
    pub memory_psv: PsvIndex,
    /// Protection signature value of the wire domain.
    pub wire_psv: PsvIndex,
    /// [`ErrorCount::CREATED`] for a new mkey.
    pub error_count: ErrorCount,
    /// What the device can do.
    pub capabilities: SignatureCapabilities,
}

impl SignatureAttributes {
    /// A new mkey with these PSVs on a device that knows all signatures.
    pub const fn new(memory_psv: PsvIndex, wire_psv: PsvIndex) -> Self {
        Self {
            memory_psv,
            wire_psv,
            error_count: ErrorCount::CREATED,
            capabilities: SignatureCapabilities::ALL,
        }
    }
}

/// What an mkey was created with (`struct mlx5dv_mkey_init_attr`, CREATE_MKEY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MkeyAttributes {
    /// Its key: the index that the device returned and the tag that the owner chose.
    pub key: Key,
    /// Translation entries of 16 bytes that it has room for. An interleaved layout takes one for its header.
    pub max_entries: u16,
    /// Set when it was created with block signature.
    pub signature: Option<SignatureAttributes>,
    /// Set when it was created with crypto, to the engine that the device has.
    pub crypto: Option<XtsEngine>,
    /// The device can change the tag of a key (`UPDATE_TAG`).
    pub tag_update: bool,
}

impl MkeyAttributes {
    /// A plain mkey: layouts and access rights only.
    pub const fn plain(key: Key, max_entries: u16) -> Self {
        Self { key, max_entries, signature: None, crypto: None, tag_update: false }
    }
}

/// An mkey as software knows it: its number, its kind, and the shadow of what the device holds.
///
/// Work requests that configure it take it by `&mut`: the shadow changes when, and only when, the request is posted. A clone
/// is a second shadow, which learns nothing of what the first one posts.
///
/// ```
/// use mlx5_mkey::mkey::{Mkey, MkeyAttributes};
/// use mlx5_mkey::types::Key;
/// let mkey = Mkey::new(MkeyAttributes::plain(Key::from_raw(0x1234_00), 4))?;
/// assert_eq!(mkey.key().index().get(), 0x1234);
/// # Ok::<(), mlx5_mkey::error::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Mkey {
    key: Key,
    max_entries: u16,
    tag_update: bool,
    /// What the device holds is not known: nothing may be kept.
    forgotten: bool,
    /// Bytes of memory that the layout maps.
    length: u64,
    signature: Option<SignatureState>,
    crypto: Option<CryptoState>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
struct SignatureState {
    attributes: SignatureAttributes,
    /// The signature in force.
    block: Option<BlockSignature>,
    /// The first error since the last check.
    error: Option<Result<SignatureError, CheckError>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
struct CryptoState {
    engine: XtsEngine,
    /// The properties in force.
    properties: Option<Crypto>,
}

/// A configuration checked against an mkey: all that the encoder needs, and nothing that it has to decide.
pub(crate) struct Plan<'a> {
    pub(crate) key: Key,
    pub(crate) access: Option<Access>,
    pub(crate) layout: Option<Layout<'a>>,
    /// New value of the BSF enable bit, if it is written.
    pub(crate) bsf_enable: Option<bool>,
    /// New value of the error count bit, if it is written.
    pub(crate) error_count: Option<bool>,
    /// A signature BSF is written: with this signature, or an empty one.
    pub(crate) signature_bsf: Option<Option<&'a BlockSignature>>,
    /// A crypto BSF is written.
    pub(crate) crypto_bsf: Option<(&'a Crypto, XtsEngine)>,
    /// PSVs of the memory and the wire domain, for the signature BSF and the SET_PSVs.
    pub(crate) memory_psv: PsvIndex,
    pub(crate) wire_psv: PsvIndex,
    /// The signature whose PSVs are set after the UMR.
    pub(crate) set_psvs: Option<&'a BlockSignature>,
}

impl Plan<'_> {
    /// Returns the 64-byte blocks that the translation entries fill.
    pub(crate) fn layout_blocks(&self) -> usize {
        self.layout.map_or(0, |layout| (layout.octowords() * OCTOWORD_BYTES).div_ceil(WQEBB_BYTES))
    }

    /// Returns the number of BSFs, which fill a block each.
    pub(crate) fn bsf_blocks(&self) -> usize {
        usize::from(self.signature_bsf.is_some()) + usize::from(self.crypto_bsf.is_some())
    }

    /// Returns the number of SET_PSV requests that follow the UMR.
    pub(crate) fn psv_requests(&self) -> u32 {
        self.set_psvs.map_or(0, |block| {
            u32::from(block.memory_domain().is_some()) + u32::from(block.wire_domain().is_some())
        })
    }
}

impl Mkey {
    /// Takes up an mkey that was created with these attributes.
    ///
    /// # Errors
    /// [`ConfigError::TagUpdateUnsupported`] for a tag other than 0 where the device cannot change tags.
    pub const fn new(attributes: MkeyAttributes) -> Result<Self, ConfigError> {
        if !attributes.tag_update && attributes.key.tag() != 0 {
            return Err(ConfigError::TagUpdateUnsupported { tag: attributes.key.tag() });
        }
        Ok(Self {
            key: attributes.key,
            max_entries: attributes.max_entries,
            tag_update: attributes.tag_update,
            forgotten: false,
            length: 0,
            signature: match attributes.signature {
                Some(attributes) => Some(SignatureState { attributes, block: None, error: None }),
                None => None,
            },
            crypto: match attributes.crypto {
                Some(engine) => Some(CryptoState { engine, properties: None }),
                None => None,
            },
        })
    }

    /// Returns the key, local and remote.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns how many bytes of memory the layout in force maps; 0 before the first.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns how many bytes all of the mkey has on the wire, which is what work requests count (D3); `None` where its
    /// memory is not whole blocks.
    pub fn wire_length(&self) -> Option<u64> {
        self.signature().map_or(Some(self.length), |signature| signature.wire_bytes(self.length))
    }

    /// Returns the signature in force.
    pub fn signature(&self) -> Option<&BlockSignature> {
        self.signature.as_ref()?.block.as_ref()
    }

    /// Returns the crypto properties in force.
    pub fn crypto(&self) -> Option<&Crypto> {
        self.crypto.as_ref()?.properties.as_ref()
    }

    /// Returns how many signature errors were seen, `None` for an mkey without signature.
    pub fn error_count(&self) -> Option<ErrorCount> {
        self.signature.as_ref().map(|signature| signature.attributes.error_count)
    }

    /// Gives the key another tag, with the next configuration.
    ///
    /// # Errors
    /// [`ConfigError::TagUpdateUnsupported`] where the device cannot change tags.
    pub const fn set_tag(&mut self, tag: u8) -> Result<(), ConfigError> {
        if !self.tag_update && tag != 0 {
            return Err(ConfigError::TagUpdateUnsupported { tag });
        }
        self.key = Key::new(self.key.index(), tag);
        Ok(())
    }

    /// Forgets what the device holds, because it may not have executed what was posted: the queue failed or was reset.
    ///
    /// The next configuration must give all that the mkey can have.
    ///
    /// One thing does not come back: the device's own count of signature errors. If a completion queue was lost with a
    /// signature error in it, the count written next may equal the device's, which then reports nothing (assumption; to be
    /// asked of a board). Make such an mkey anew.
    pub fn forget(&mut self) {
        self.invalidated();
        if let Some(signature) = &mut self.signature {
            // The request that was to write it may not have been executed.
            signature.attributes.error_count.pending = true;
        }
    }

    /// Notes that an invalidation was posted. The device keeps the error count.
    pub(crate) fn invalidated(&mut self) {
        self.forgotten = true;
        self.length = 0;
        if let Some(signature) = &mut self.signature {
            signature.block = None;
        }
        if let Some(crypto) = &mut self.crypto {
            crypto.properties = None;
        }
    }

    /// Checks a configuration against this mkey and the bytes that a work request may carry after its first two blocks.
    pub(crate) fn plan<'a>(
        &'a self,
        config: &'a MkeyConfig<'a>,
        max_bytes: usize,
    ) -> Result<Plan<'a>, ConfigError> {
        if self.forgotten {
            self.check_complete(config)?;
        }
        let mut plan = Plan {
            key: self.key,
            access: config.access,
            layout: config.layout,
            bsf_enable: None,
            error_count: None,
            signature_bsf: None,
            crypto_bsf: None,
            memory_psv: PsvIndex::default(),
            wire_psv: PsvIndex::default(),
            set_psvs: None,
        };
        let mut length = self.length;
        if let Some(layout) = &config.layout {
            let octowords = layout.octowords();
            let max = usize::from(self.max_entries).min(max_bytes / OCTOWORD_BYTES);
            if octowords > max {
                let header = octowords - layout.count();
                return Err(ConfigError::TooManyEntries {
                    entries: layout.count(),
                    max: max.saturating_sub(header),
                });
            }
            length = layout.length();
        }
        if self.signature.is_none() && self.crypto.is_none() {
            return match (&config.signature, &config.crypto) {
                (SignatureChange::Set(_), _) => Err(ConfigError::NotASignatureMkey),
                (_, Some(_)) => Err(ConfigError::NotACryptoMkey),
                _ => Ok(plan),
            };
        }
        self.plan_features(config, length, &mut plan)?;
        let bytes = (plan.layout_blocks() + plan.bsf_blocks()) * WQEBB_BYTES;
        if plan.bsf_blocks() > 0 && bytes > max_bytes {
            return Err(ConfigError::BsfDoesNotFit { bytes, max: max_bytes });
        }
        Ok(plan)
    }

    /// Decides which BSFs, count and PSVs go with a configuration (DEVICE.md 4.4).
    fn plan_features<'a>(
        &'a self,
        config: &'a MkeyConfig<'a>,
        length: u64,
        plan: &mut Plan<'a>,
    ) -> Result<(), ConfigError> {
        let block = match (&self.signature, &config.signature) {
            (None, SignatureChange::Set(_)) => return Err(ConfigError::NotASignatureMkey),
            (None, _) => None,
            (Some(state), SignatureChange::Keep) => state.block.as_ref(),
            (Some(_), SignatureChange::Reset) => None,
            (Some(state), SignatureChange::Set(block)) => {
                state.attributes.capabilities.check(block)?;
                Some(block)
            }
        };
        let crypto = match (&self.crypto, &config.crypto) {
            (None, Some(_)) => return Err(ConfigError::NotACryptoMkey),
            (None, None) => None,
            (Some(state), change) => {
                change.as_ref().or(state.properties.as_ref()).map(|properties| (properties, state.engine))
            }
        };
        if let Some((crypto, XtsEngine::SingleBlock)) = crypto {
            let unit = crypto.data_unit.bytes();
            if length > u64::from(unit) {
                return Err(ConfigError::LengthOverDataUnit { length, unit });
            }
        }
        let signature_set = matches!(config.signature, SignatureChange::Set(_));
        if let Some(state) = &self.signature {
            plan.memory_psv = state.attributes.memory_psv;
            plan.wire_psv = state.attributes.wire_psv;
            let count = state.attributes.error_count;
            if count.pending {
                plan.error_count = Some(count.seen & 1 != 0);
            }
            if signature_set || count.pending {
                plan.set_psvs = block;
            }
        }
        // With crypto on the mkey, both BSFs are written when either changes, and a reset writes an empty signature (D23).
        // Without, a reset or absent signature switches the BSF off, or spurious errors appear (D20).
        let write = match (&self.signature, &self.crypto) {
            (Some(_), None) => signature_set,
            (Some(_), Some(_)) => {
                signature_set || config.crypto.is_some() || config.signature == SignatureChange::Reset
            }
            (None, _) => config.crypto.is_some(),
        };
        // A BSF counts its data in 32 bits, whether it is written now or stays in force.
        if (write || block.is_some() || crypto.is_some()) && length > u64::from(u32::MAX) {
            return Err(ConfigError::LengthOver32Bits { length });
        }
        if write {
            if let (Some((crypto, _)), Some(block)) = (crypto, block) {
                let both = block.memory_domain().is_some() && block.wire_domain().is_some();
                if both && crypto.signature_is_outside() {
                    return Err(ConfigError::BothSignaturesOutsideCipher);
                }
            }
            plan.bsf_enable = Some(true);
            plan.crypto_bsf = crypto;
            plan.signature_bsf = self.signature.is_some().then_some(block);
        } else if self.crypto.is_none() && block.is_none() {
            plan.bsf_enable = Some(false);
        }
        Ok(())
    }

    fn check_complete(&self, config: &MkeyConfig<'_>) -> Result<(), ConfigError> {
        let missing = if config.access.is_none() {
            "access"
        } else if config.layout.is_none() {
            "layout"
        } else if self.signature.is_some() && config.signature == SignatureChange::Keep {
            "signature (set or reset)"
        } else if self.crypto.is_some() && config.crypto.is_none() {
            "crypto"
        } else {
            return Ok(());
        };
        Err(ConfigError::StateUnknown { missing })
    }

    /// Notes that a configuration was posted.
    pub(crate) fn apply(&mut self, config: &MkeyConfig<'_>) {
        self.forgotten = false;
        if let Some(layout) = &config.layout {
            self.length = layout.length();
        }
        if let Some(state) = &mut self.signature {
            state.attributes.error_count.pending = false;
            match config.signature {
                SignatureChange::Keep => {}
                SignatureChange::Reset => state.block = None,
                SignatureChange::Set(block) => state.block = Some(block),
            }
        }
        if let (Some(state), Some(properties)) = (&mut self.crypto, config.crypto) {
            state.properties = Some(properties);
        }
    }

    /// Takes note of a signature error that a completion queue delivered, and returns whether it was this mkey's.
    ///
    /// The first error is kept until [`Mkey::check`] asks for it (R183). The next configuration rearms the device.
    pub fn record(&mut self, fault: &SignatureFault) -> bool {
        let Some(state) = &mut self.signature else { return false };
        if fault.mkey != self.key.index() {
            return false;
        }
        let count = &mut state.attributes.error_count;
        count.seen = count.seen.wrapping_add(1);
        count.pending = true;
        if state.error.is_none() {
            state.error = Some(fault.interpret(state.block.as_ref()));
        }
        true
    }

    /// Returns the first signature error since the last call, if any (`mlx5dv_mkey_check`).
    ///
    /// Ask after the data's completion, or after the peer's message that the data is there (M14): the completion queue
    /// must have been polled first.
    ///
    /// # Errors
    /// [`CheckError::NotASignatureMkey`], or [`CheckError::Unintelligible`] for an error that no domain of this mkey has.
    pub fn check(&mut self) -> Result<Option<SignatureError>, CheckError> {
        self.signature.as_mut().ok_or(CheckError::NotASignatureMkey)?.error.take().transpose()
    }
}

/// One of the two sides of an mkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DomainKind {
    /// The bytes as they cross the network.
    Wire,
    /// The bytes in memory.
    Memory,
}

/// Which part of a signature was wrong (`enum mlx5dv_mkey_err_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SignatureErrorKind {
    /// The guard of a T10-DIF, or a CRC.
    Guard,
    /// The application tag of a T10-DIF.
    AppTag,
    /// The reference tag of a T10-DIF.
    RefTag,
}

/// A signature that did not match its block (`struct mlx5dv_mkey_err`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SignatureError {
    /// Which part was wrong. Within one block guard comes before application tag before reference tag.
    pub kind: SignatureErrorKind,
    /// Where the data came from.
    pub domain: DomainKind,
    /// What the data stream held. The man page `mlx5dv_mkey_check` calls it `expected`, the device `actual` (D1).
    pub found: u64,
    /// What the device computed. The man page calls it `actual`, the device `expected` (D1).
    pub computed: u64,
    /// Offset in bytes of the failing block's last byte, signature included, as the device gives it (D2).
    pub offset: u64,
    /// Bytes of a block with its signature in that domain.
    pub stride: u32,
}

impl SignatureError {
    /// Returns the number of the failing block, counted from 0 at the mkey's start.
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
        };
        let domain = match self.domain {
            DomainKind::Wire => "wire",
            DomainKind::Memory => "memory",
        };
        write!(
            f,
            "bad {kind} in block {} ({domain}): found {:#06x}, computed {:#06x}",
            self.block_index(),
            self.found,
            self.computed
        )
    }
}

/// A signature error as the device reports it, before an mkey gives it meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SignatureFault {
    /// The mkey.
    pub mkey: MkeyIndex,
    /// See [`SignatureErrorCqe::SYNDROME_GUARD`] and the others.
    pub syndrome: u16,
    /// [`SignatureErrorCqe::TYPE_BLOCK`] or another type.
    pub sig_type: u8,
    /// [`SignatureErrorCqe::DOMAIN_WIRE`] or [`SignatureErrorCqe::DOMAIN_MEMORY`].
    pub domain: u8,
    /// What the device computed: both words joined.
    pub expected: u64,
    /// What the data stream held: both words joined.
    pub actual: u64,
    /// Offset in bytes of the failing block's last byte.
    pub offset: u64,
}

impl SignatureFault {
    /// Reads a completion entry.
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

    /// Gives the report its meaning under the signature in force.
    fn interpret(&self, block: Option<&BlockSignature>) -> Result<SignatureError, CheckError> {
        let unintelligible = CheckError::Unintelligible {
            syndrome: self.syndrome,
            sig_type: self.sig_type,
            domain: self.domain,
        };
        let (domain_kind, domain) = match self.domain {
            SignatureErrorCqe::DOMAIN_WIRE => (DomainKind::Wire, block.and_then(BlockSignature::wire_domain)),
            SignatureErrorCqe::DOMAIN_MEMORY => {
                (DomainKind::Memory, block.and_then(BlockSignature::memory_domain))
            }
            _ => return Err(unintelligible),
        };
        let domain = domain.ok_or(unintelligible)?;
        if self.sig_type != SignatureErrorCqe::TYPE_BLOCK {
            return Err(unintelligible);
        }
        let has = |bit| self.syndrome & bit != 0;
        let (kind, shift, mask) = if has(SignatureErrorCqe::SYNDROME_GUARD) {
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
        if kind != SignatureErrorKind::Guard && !matches!(domain.signature, Signature::T10Dif(_)) {
            return Err(unintelligible);
        }
        Ok(SignatureError {
            kind,
            domain: domain_kind,
            found: self.actual >> shift & mask,
            computed: self.expected >> shift & mask,
            offset: self.offset,
            stride: domain.stride(),
        })
    }
}
