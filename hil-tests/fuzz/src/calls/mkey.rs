//! A model of an mkey: its state, and the configurations that the library must accept. The model restates the
//! rules of the man pages as simply as possible.

use super::lists;
use crate::input::Input;
use hil_scenarios::request::{OwnedLayout, OwnedList};
use hil_scenarios::way::{block_signature, with_masks};
use mlx5_mkey::error::{CheckError, ConfigError, ConfigPart};
use mlx5_mkey::mkey::{
    BlockSignature, Crypto, ErrorCount, Keytag, Mkey, MkeyAttributes, MkeyConfig, MkeyKind, Signature,
    SignatureCapabilities, SignatureChange, SignatureError, SignatureErrorKind, SignatureFault, XtsEngine,
};
use mlx5_mkey::types::{BlockSize, DekId, DomainKind, Key, KsmEntrySize, Tweak};
use mlx5_mkey::wqe::PreparedConfig;

/// The model of an mkey.
#[derive(Clone, Debug)]
pub(super) struct MkeyModel {
    pub(super) attributes: MkeyAttributes,
    pub(super) key: Key,
    /// Whether the mkey's state on the device is known.
    known: bool,
    length: u64,
    form: Form,
    /// The signature that was set or reset last.
    signature: SignatureChange,
    crypto: Option<Crypto>,
    seen: u32,
    /// Whether the next configuration must tell the device the number of reported errors.
    pending: bool,
    error: Option<Result<SignatureError, CheckError>>,
}

/// The layout that the device applies after the last configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The layout is a list whose entries were in a request.
    List,
    /// The layout is a list of this number of entries in registered memory.
    Registered(u32),
    Interleaved,
}

/// The layout that a configuration asks for: in the request, or a list in registered memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted<'a> {
    InRequest(&'a OwnedLayout),
    Registered(&'a OwnedList),
}

/// The fields that a configuration writes, and the state that follows.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) whole: MkeyConfig,
    pub(super) writes_bsfs: bool,
    pub(super) psvs: Vec<u32>,
    pub(super) umr_blocks: u32,
    pub(super) bsfs: u32,
    pub(super) length: u64,
    /// The layout in force after the configuration. `None` if it stays unchanged.
    form: Option<Form>,
    /// The error count that the device receives.
    pub(super) count: Option<u32>,
}

/// Returns whether any mkey of this kind can hold a configuration.
pub(super) fn can_be_prepared(kind: &MkeyKind, config: &MkeyConfig) -> bool {
    if config.crypto.is_some() && kind.crypto.is_none() {
        return false;
    }
    let SignatureChange::Set(signature) = &config.signature else { return true };
    let Some(capabilities) = kind.signature else { return false };
    let domains = [signature.memory_domain(), signature.wire_domain()];
    let able = domains.iter().flatten().all(|domain| {
        let SignatureCapabilities { block_4048, crc32c, crc64_xp10, .. } = capabilities;
        (block_4048 || domain.block_size != BlockSize::B4048)
            && match domain.signature {
                Signature::Crc32c(_) => crc32c,
                Signature::Crc64Xp10(_) => crc64_xp10,
                _ => true,
            }
    });
    able && !outside_both(signature, config.crypto.as_ref())
}

/// Returns whether a signature has both domains, although the crypto properties allow one domain only. They
/// do so if they apply the signature to the ciphertext.
fn outside_both(signature: &BlockSignature, crypto: Option<&Crypto>) -> bool {
    let both = signature.memory_domain().is_some() && signature.wire_domain().is_some();
    both && crypto.is_some_and(Crypto::signature_is_outside)
}

/// Changes a prepared configuration in place. Some changes must be refused.
pub(super) fn change(input: &mut Input<'_>, config: &mut MkeyConfig, value: &mut PreparedConfig) {
    let domain = input.pick(&[DomainKind::Wire, DomainKind::Memory]);
    match input.below(4) {
        0 => {
            let tweak = Tweak::from_lba(input.any());
            let set = value.set_tweak(tweak);
            assert_eq!(
                set,
                config.crypto.as_mut().map(|crypto| crypto.tweak = tweak).ok_or(ConfigError::NoCrypto)
            );
        }
        1 => {
            let (dek, keytag) = (DekId::from_low_bits(input.any()), Keytag([input.any(); 8]));
            let set = value.set_dek(dek, keytag);
            let crypto = config.crypto.as_mut().map(|crypto| (crypto.dek, crypto.keytag) = (dek, keytag));
            assert_eq!(set, crypto.ok_or(ConfigError::NoCrypto));
        }
        2 => {
            let tag = input.pick(&[0, 1, u32::MAX]);
            let set = value.set_ref_tag(domain, tag);
            assert_eq!(set, with_tags(config, domain, |dif| dif.ref_tag = tag));
        }
        _ => {
            let tag = input.pick(&[0, 1, 0xffff]);
            let set = value.set_app_tag(domain, tag);
            assert_eq!(set, with_tags(config, domain, |dif| dif.app_tag = tag));
        }
    }
}

/// Changes the T10-DIF of a domain that has one.
fn with_tags(
    config: &mut MkeyConfig,
    kind: DomainKind,
    set: impl Fn(&mut mlx5_mkey::mkey::T10Dif),
) -> Result<(), ConfigError> {
    let absent = ConfigError::NoT10Dif(kind);
    let SignatureChange::Set(signature) = &config.signature else { return Err(absent) };
    let mut domain = signature.domain(kind).ok_or(absent)?;
    let Signature::T10Dif(dif) = &mut domain.signature else { return Err(absent) };
    set(dif);
    let pick = |other: DomainKind| if other == kind { Some(domain) } else { signature.domain(other) };
    let changed = block_signature(pick(DomainKind::Memory), pick(DomainKind::Wire)).ok_or(absent)?;
    let changed = with_masks(changed, signature.check_mask(), signature.copy_mask())?;
    config.signature = SignatureChange::Set(changed);
    Ok(())
}

impl MkeyModel {
    pub(super) fn new(attributes: MkeyAttributes) -> Self {
        let count = attributes.signature.map(|signature| signature.error_count);
        Self {
            attributes,
            key: attributes.key,
            known: true,
            length: 0,
            form: Form::List,
            signature: SignatureChange::Keep,
            crypto: None,
            seen: count.map_or(0, |count| count.seen),
            pending: count.is_some_and(|count| count.pending),
            error: None,
        }
    }

    /// Returns the number of bytes that the mkey maps.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Asserts that all queries of the mkey agree with the model.
    pub(super) fn check(&self, mkey: &Mkey) {
        assert_eq!((mkey.key(), mkey.length()), (self.key, self.length));
        assert_eq!(mkey.signature(), self.signature.signature().filter(|_| self.known));
        assert_eq!(mkey.crypto(), self.crypto.as_ref().filter(|_| self.known));
        let count = ErrorCount { seen: self.seen, pending: self.pending };
        assert_eq!(mkey.error_count(), self.attributes.signature.map(|_| count));
        let wire = self.signature.signature().map_or(Some(self.length), |it| it.wire_bytes(self.length));
        assert_eq!(mkey.wire_length(), wire);
    }

    pub(super) fn kind(&self) -> MkeyKind {
        self.attributes.kind()
    }

    pub(super) fn forget(&mut self) {
        self.invalidated();
        self.pending |= self.attributes.signature.is_some();
    }

    /// Records that the mkey was invalidated: the state on the device is unknown from now on.
    pub(super) fn invalidated(&mut self) {
        (self.known, self.length) = (false, 0);
    }

    pub(super) fn set_tag(&mut self, tag: u8) -> Result<(), ConfigError> {
        if tag != 0 && !self.attributes.tag_update {
            return Err(ConfigError::TagUpdateUnsupported { tag });
        }
        self.key = Key::new(self.key.index(), tag);
        Ok(())
    }

    pub(super) fn take_error(&mut self) -> Result<Option<SignatureError>, CheckError> {
        self.attributes.signature.ok_or(CheckError::NotASignatureMkey)?;
        self.error.take().transpose()
    }

    /// Records a signature error. Returns whether the error is for this mkey.
    pub(super) fn record(&mut self, fault: &SignatureFault) -> bool {
        if self.attributes.signature.is_none() || fault.mkey != self.key.index() {
            return false;
        }
        (self.seen, self.pending) = (self.seen.wrapping_add(1), true);
        if self.error.is_none() {
            self.error = Some(interpret(fault, self.signature.signature()));
        }
        true
    }

    /// Records a posted configuration.
    pub(super) fn apply(&mut self, change: &Change) {
        (self.signature, self.crypto) = (change.whole.signature, change.whole.crypto);
        (self.length, self.known, self.pending) = (change.length, true, false);
        self.form = change.form.unwrap_or(self.form);
    }

    /// Returns an error unless the layout in force is a list.
    pub(super) fn has_list(&self) -> Result<(), ConfigError> {
        if self.length == 0 || self.form == Form::Interleaved { Err(ConfigError::NoList) } else { Ok(()) }
    }

    /// Returns the expected result of replacing entries.
    pub(super) fn replace(
        &self,
        first: u32,
        count: u32,
        entry_size: Option<KsmEntrySize>,
    ) -> Result<(), ConfigError> {
        self.has_list()?;
        lists::place(&self.kind(), first, count, entry_size)
    }

    /// Records replaced entries. If `count` is a multiple of 4, the list becomes long enough for them, or
    /// keeps its length. Otherwise the list ends with the last replaced entry.
    pub(super) fn replaced(&mut self, first: u32, count: u32) {
        if let Form::Registered(entries) = &mut self.form
            && count > 0
        {
            let behind = first + count;
            *entries = if count.is_multiple_of(4) { behind.max(*entries) } else { behind };
        }
    }

    /// Returns the index of the first appended entry.
    pub(super) fn append(&self, list: &OwnedList) -> Result<u32, ConfigError> {
        let kind = self.kind();
        if kind.signature.is_some() || kind.crypto.is_some() {
            return Err(ConfigError::AppendWithBsf);
        }
        self.has_list()?;
        let Form::Registered(first) = self.form else { return Err(ConfigError::ListInRequest) };
        // An empty list of any entry size is accepted here: `place` compares sizes only if there are entries.
        lists::place(&kind, first, lists::count(list), lists::entry_size(list))?;
        Ok(first)
    }

    /// Records appended entries.
    pub(super) fn appended(&mut self, first: u32, list: &OwnedList) {
        self.length += lists::length(list);
        self.form = Form::Registered(first + lists::count(list));
    }

    /// Returns the expected result of a configuration.
    pub(super) fn plan(
        &self,
        prepared_for: &MkeyKind,
        config: &MkeyConfig,
        wanted: Wanted<'_>,
        max_inline_data: u32,
    ) -> Result<Change, ConfigError> {
        let (kind, nothing) = (self.kind(), OwnedLayout::List(Vec::new()));
        let (layout, list) = match wanted {
            Wanted::InRequest(layout) => (layout, None),
            // A request cannot point to an empty list. The model expects a request that itself contains the
            // empty list.
            Wanted::Registered(list) if lists::count(list) == 0 => (&nothing, None),
            Wanted::Registered(list) => (&nothing, Some(list)),
        };
        if *prepared_for != kind {
            return Err(ConfigError::OtherKind);
        }
        if kind.entry_size.is_some() && !matches!(layout, OwnedLayout::Unchanged) && *layout != nothing {
            return Err(ConfigError::OtherEntries { layout: None, mkey: kind.entry_size });
        }
        if self.key.tag() != 0 && !self.attributes.tag_update {
            return Err(ConfigError::TagUpdateUnsupported { tag: self.key.tag() });
        }
        self.missing(config, layout).map_or(Ok(()), |missing| Err(ConfigError::StateUnknown { missing }))?;
        let mut whole = *config;
        if whole.signature == SignatureChange::Keep {
            whole.signature = self.signature;
        }
        whole.crypto = whole.crypto.or(self.crypto);
        let sets = matches!(config.signature, SignatureChange::Set(_));
        let writes_bsfs = match (kind.signature.is_some(), kind.crypto.is_some()) {
            (true, true) => config.signature != SignatureChange::Keep || config.crypto.is_some(),
            (true, false) => sets,
            (false, _) => config.crypto.is_some(),
        };
        let signature = whole.signature.signature();
        if writes_bsfs && signature.is_some_and(|signature| outside_both(signature, whole.crypto.as_ref())) {
            return Err(ConfigError::BothSignaturesOutsideCipher);
        }
        let bsfs = match (writes_bsfs, kind.signature.is_some(), whole.crypto.is_some()) {
            (false, ..) => 0,
            (true, signature, crypto) => u32::from(signature) + u32::from(crypto),
        };
        let (umr_blocks, length, form) = match (list, layout) {
            (Some(list), _) => {
                lists::place(&kind, 0, lists::count(list), lists::entry_size(list))?;
                (3, lists::length(list), Some(Form::Registered(lists::count(list))))
            }
            (None, layout) => {
                let blocks = 2 + fits(&kind, layout, bsfs, max_inline_data)? + bsfs;
                let form = match layout {
                    OwnedLayout::Unchanged => None,
                    OwnedLayout::List(_) => Some(Form::List),
                    OwnedLayout::Interleaved(..) => Some(Form::Interleaved),
                };
                (blocks, mapped(layout)?.unwrap_or(self.length), form)
            }
        };
        self.check_length(length, &whole, writes_bsfs)?;
        let psvs = match (signature, self.attributes.signature) {
            (Some(signature), Some(attributes)) if sets || self.pending => {
                let memory = signature.memory_domain().map(|_| attributes.memory_psv.get());
                let wire = signature.wire_domain().map(|_| attributes.wire_psv.get());
                memory.into_iter().chain(wire).collect()
            }
            _ => Vec::new(),
        };
        let count = self.pending.then_some(self.seen);
        Ok(Change { whole, writes_bsfs, psvs, umr_blocks, bsfs, length, form, count })
    }

    /// Returns a part that the configuration must contain because the state of the device is unknown.
    fn missing(&self, config: &MkeyConfig, layout: &OwnedLayout) -> Option<ConfigPart> {
        let kind = self.kind();
        match () {
            () if self.known => None,
            () if config.access.is_none() => Some(ConfigPart::Access),
            () if matches!(layout, OwnedLayout::Unchanged) => Some(ConfigPart::Layout),
            () if kind.signature.is_some() && config.signature == SignatureChange::Keep => {
                Some(ConfigPart::Signature)
            }
            () if kind.crypto.is_some() && config.crypto.is_none() => Some(ConfigPart::Crypto),
            () => None,
        }
    }

    /// Checks a length. With an engine for single data units, an mkey maps one data unit. Signed or encrypted
    /// data have a length of 32 bits.
    fn check_length(&self, length: u64, whole: &MkeyConfig, writes_bsfs: bool) -> Result<(), ConfigError> {
        if let (Some(crypto), Some(XtsEngine::SingleBlock)) = (&whole.crypto, self.kind().crypto) {
            let (unit, length32) = (crypto.data_unit, u32::try_from(length).unwrap_or(u32::MAX));
            let fits = length <= u64::from(unit.bytes());
            return if fits {
                Ok(())
            } else {
                Err(ConfigError::LengthOverDataUnit { length: length32, unit })
            };
        }
        let limited = whole.crypto.is_some() || writes_bsfs || whole.signature.signature().is_some();
        if limited && length > u64::from(u32::MAX) {
            let mebibytes = u32::try_from(length.div_ceil(1 << 20)).unwrap_or(u32::MAX);
            return Err(ConfigError::LengthOver32Bits { mebibytes });
        }
        Ok(())
    }
}

/// Returns the number of blocks that a layout takes in a request. Refuses a layout with more entries than the
/// mkey has room for. Refuses also a layout that is too long for a request together with the BSFs.
fn fits(kind: &MkeyKind, layout: &OwnedLayout, bsfs: u32, max_inline_data: u32) -> Result<u32, ConfigError> {
    let (entries, header) = match layout {
        OwnedLayout::Unchanged => (0, 0),
        OwnedLayout::List(entries) => (entries.len() as u32, 0),
        OwnedLayout::Interleaved(_, entries) => (entries.len() as u32, 1),
    };
    let in_request = (max_inline_data + 4) / 16;
    let most = in_request.min(kind.max_entries);
    if entries + header > most {
        return Err(ConfigError::TooManyEntries { max: most.saturating_sub(header) });
    }
    let blocks = (entries + header).div_ceil(4);
    let (bytes, room) = ((blocks + bsfs) * 64, in_request * 16);
    if bsfs > 0 && bytes > room {
        return Err(ConfigError::BsfDoesNotFit { bytes, max: room as u16 });
    }
    Ok(blocks)
}

/// Returns the bytes that a layout maps, or `None` for no layout.
fn mapped(layout: &OwnedLayout) -> Result<Option<u64>, ConfigError> {
    match layout {
        OwnedLayout::Unchanged => Ok(None),
        OwnedLayout::List(entries) => {
            lists::check_lengths(entries)?;
            Ok(Some(entries.iter().map(|entry| u64::from(entry.length)).sum()))
        }
        OwnedLayout::Interleaved(repeat, entries) => {
            for (index, entry) in entries.iter().enumerate() {
                let stride = u32::from(entry.bytes) + u32::from(entry.skip);
                if stride > 0xffff {
                    return Err(ConfigError::StrideOver16Bits { index: index as u16, stride });
                }
            }
            let cycle: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
            Ok(Some(cycle * u64::from(*repeat)))
        }
    }
}

/// Interprets a signature error by the signature of its domain. Of the reported parts the first one counts:
/// guard, application tag, reference tag.
fn interpret(
    fault: &SignatureFault,
    signature: Option<&BlockSignature>,
) -> Result<SignatureError, CheckError> {
    let SignatureFault { syndrome, sig_type, domain, offset, .. } = *fault;
    let unintelligible = CheckError::Unintelligible { syndrome, sig_type, domain };
    let side = match domain {
        0 => DomainKind::Wire,
        1 => DomainKind::Memory,
        _ => return Err(unintelligible),
    };
    let found = signature.and_then(|signature| signature.domain(side)).ok_or(unintelligible)?;
    let part = [1 << 13, 1 << 12, 1 << 11].iter().position(|bit| syndrome & bit != 0);
    let dif = matches!(found.signature, Signature::T10Dif(_));
    let (kind, low, bits) = match part {
        _ if sig_type != 0 => return Err(unintelligible),
        Some(0) => match found.signature.bytes() {
            _ if dif => (SignatureErrorKind::Guard, 48, 16),
            4 => (SignatureErrorKind::Guard, 32, 32),
            _ => (SignatureErrorKind::Guard, 0, 64),
        },
        Some(1) if dif => (SignatureErrorKind::AppTag, 32, 16),
        Some(2) if dif => (SignatureErrorKind::RefTag, 0, 32),
        _ => return Err(unintelligible),
    };
    let cut = |value: u64| value >> low & (u64::MAX >> (64 - bits));
    Ok(SignatureError {
        kind,
        domain: side,
        found: cut(fault.actual),
        computed: cut(fault.expected),
        offset,
        stride: found.block_size.bytes() + found.signature.bytes(),
    })
}
