//! The state that the device holds for an mkey, as far as the next request depends on it.

use super::attributes::KindWord;
use super::layout::{LayoutForm, LayoutKind};
use super::plan::{InForce, Plan};
use super::{
    BlockSignature, Crypto, Digest, ErrorCount, MkeyAttributes, MkeyConfig, MkeyKind, SignatureAttributes,
    SignatureChange, SignatureError, SignatureFault, UmrForm,
};
use crate::mkey::error::{CheckError, ConfigError, ConfigPart};
use crate::types::{DomainKind, Key, PsvIndex};
use crate::wire::OCTOWORDS_PER_BLOCK;

/// An mkey as software knows it: its key, its kind, and the state that the device holds for it.
///
/// The function that posts a configuration takes the mkey by `&mut`, and changes this value only if the
/// request is posted. A clone is a separate value: requests posted with the original do not update it.
///
/// ```
/// use mlx5_mkey::mkey::{Mkey, MkeyAttributes};
/// use mlx5_mkey::types::Key;
/// let mkey = Mkey::new(MkeyAttributes::plain(Key::from_raw(0x1234_00), 4));
/// assert_eq!(mkey.key().index().get(), 0x1234);
/// ```
// The fields that posting reads and writes come first, in two cache lines (see the assertion below).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(C, align(64))]
pub struct Mkey {
    pub(crate) kind_word: KindWord,
    /// The length and the kind of the layout in force.
    mapped: Mapped,
    /// Numbers of the PSVs, in the order of [`DomainKind`]; 0 for an mkey without signature.
    pub(crate) psvs: [u32; 2],
    pub(crate) key: Key,
    /// The count of signature errors, see [`ErrorCount::seen`].
    errors_seen: u32,
    /// Whether the next configuration has to write the count of signature errors.
    pub(crate) error_count_pending: bool,
    /// Whether the mkey can have signature or crypto properties.
    has_bsfs: bool,
    /// The last change of the signature, `Keep` before the first one. This change says how to read signature
    /// errors, even when the state of the mkey is unknown.
    signature: SignatureChange,
    crypto: Option<Crypto>,
    kind: MkeyKind,
    /// Whether configurations can change the tag of the key.
    tag_update: bool,
    /// Number of entries of the list in force. It is valid only for a list from registered memory.
    entries: u32,
    /// The first signature error since the last [`Mkey::take_error`].
    error: Option<Result<SignatureError, CheckError>>,
}

// Posting a complete prepared configuration uses only the fields before `kind`, in two cache lines of 64
// bytes.
const _: () = assert!(core::mem::offset_of!(Mkey, kind) <= 128);

impl Mkey {
    /// Creates the Rust value for an mkey that was created on the device with these attributes.
    ///
    /// An mkey whose key has a tag (the low 8 bits) other than 0 cannot be configured if UMRs write the tag
    /// ([`UmrForm::Complete`]) and the device cannot change tags: posting returns
    /// [`ConfigError::TagUpdateUnsupported`], as the reference provider does. Other requests may name the
    /// key.
    pub const fn new(attributes: MkeyAttributes) -> Self {
        let (key, kind) = (attributes.key, attributes.kind());
        let tag_update = attributes.tag_update && matches!(kind.form, UmrForm::Complete);
        let (psvs, count) = match attributes.signature {
            Some(SignatureAttributes { memory_psv, wire_psv, error_count, .. }) => {
                ([memory_psv.get(), wire_psv.get()], error_count)
            }
            None => ([0; 2], ErrorCount { seen: 0, pending: false }),
        };
        let mut mkey = Self {
            kind_word: KindWord::of(kind),
            mapped: Mapped::NOTHING,
            psvs,
            key,
            errors_seen: count.seen,
            error_count_pending: count.pending,
            has_bsfs: kind.signature.is_some() || kind.crypto.is_some(),
            signature: SignatureChange::Keep,
            crypto: None,
            kind,
            tag_update,
            entries: 0,
            error: None,
        };
        mkey.note_tag();
        mkey
    }

    /// Creates the Rust value for a new mkey without signature and crypto, from the key and the number of
    /// entries that the mkey has room for.
    ///
    /// ```
    /// use mlx5_mkey::mkey::{Mkey, MkeyAttributes};
    /// use mlx5_mkey::types::Key;
    /// let key = Key::from_raw(0x1234_00);
    /// assert_eq!(Mkey::plain(key, 4), Mkey::new(MkeyAttributes::plain(key, 4)));
    /// ```
    pub const fn plain(key: Key, max_entries: u32) -> Self {
        Self::new(MkeyAttributes::plain(key, max_entries))
    }

    /// Returns the key, which is both local and remote key.
    #[inline]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns the kind of the mkey, for which configurations are prepared.
    pub const fn kind(&self) -> MkeyKind {
        self.kind
    }

    /// Returns how many bytes of memory the layout in force maps; 0 before the first layout, and after an
    /// invalidation or [`Mkey::forget`].
    #[inline]
    pub const fn length(&self) -> u64 {
        self.mapped.0 & Mapped::MAX_BYTES
    }

    /// Returns the mkey's length on the wire in bytes, signatures included. Work requests count in these
    /// bytes. Returns `None` if the mapped memory ends within a block.
    pub fn wire_length(&self) -> Option<u64> {
        match &self.signature {
            SignatureChange::Set(signature) => signature.wire_bytes(self.length()),
            SignatureChange::Digest(digest) => digest.wire_bytes(self.length()),
            SignatureChange::Keep | SignatureChange::Reset => Some(self.length()),
        }
    }

    /// Returns the block signature in force; `None` if there is none, or if the state is unknown.
    pub fn signature(&self) -> Option<&BlockSignature> {
        if self.is_unknown() { None } else { self.signature.signature() }
    }

    /// Returns the digest in force; `None` if there is none, or if the state is unknown.
    pub fn digest(&self) -> Option<&Digest> {
        if self.is_unknown() { None } else { self.signature.digest() }
    }

    /// Returns the crypto properties in force; `None` if there are none, or if the state is unknown.
    pub const fn crypto(&self) -> Option<&Crypto> {
        if self.is_unknown() { None } else { self.crypto.as_ref() }
    }

    /// Returns the count of signature errors, see [`ErrorCount`]; `None` for an mkey without signature.
    pub const fn error_count(&self) -> Option<ErrorCount> {
        if self.kind.signature.is_none() {
            return None;
        }
        Some(ErrorCount { seen: self.errors_seen, pending: self.error_count_pending })
    }

    /// Gives the key another tag. [`Mkey::key`] returns the key with the new tag from now on. The device gets
    /// the new tag with the next configuration.
    ///
    /// # Errors
    /// [`ConfigError::TagUpdateUnsupported`] if the device cannot change tags, and `tag` is not 0; or if UMRs
    /// do not write tags ([`UmrForm::Minimal`]), and `tag` is not the present one.
    pub const fn set_tag(&mut self, tag: u8) -> Result<(), ConfigError> {
        let same = match self.kind.form {
            UmrForm::Complete => 0,
            UmrForm::Minimal => self.key.tag(),
        };
        if tag != same && !self.tag_update {
            return Err(ConfigError::TagUpdateUnsupported { tag });
        }
        self.key = Key::new(self.key.index(), tag);
        self.note_tag();
        Ok(())
    }

    /// Gives the key the next tag, if configurations can change the tag.
    #[inline]
    pub(crate) const fn advance_tag(&mut self) {
        if self.tag_update {
            self.key = Key::new(self.key.index(), self.key.tag().wrapping_add(1));
        }
    }

    /// Notes in the kind word whether configurations are refused because of the tag: the tag is not 0, UMRs
    /// have to write it, and the device cannot change tags.
    const fn note_tag(&mut self) {
        let is_written = matches!(self.kind.form, UmrForm::Complete);
        let is_refused = is_written && self.key.tag() != 0 && !self.tag_update;
        self.kind_word.set_mkey(self.kind_word.mkey().with_tag_refused(is_refused));
    }

    /// Marks the state of the mkey on the device as unknown. This call is needed when the device may not have
    /// executed posted requests: after a failure or a reset of the queue.
    ///
    /// The next request must give access rights, a layout, and signature and crypto properties if the mkey
    /// can have them. Otherwise posting returns [`ConfigError::StateUnknown`].
    ///
    /// The device's own count of signature errors cannot be restored. If a completion queue was lost with a
    /// signature error in it, the next configuration may write the count that the device already has.
    /// Assumption: the device then reports no further errors. In this case, the mkey has to be replaced by a
    /// new one.
    pub const fn forget(&mut self) {
        self.note_invalidated();
        if self.kind.signature.is_some() {
            // The device may not have executed the request that was to write the count.
            self.error_count_pending = true;
        }
    }

    /// Notes that an invalidation was posted: the state is unknown, but the device keeps its error count.
    pub(crate) const fn note_invalidated(&mut self) {
        self.kind_word.set_mkey(self.kind_word.mkey().with_state_unknown(true));
        self.mapped = Mapped::NOTHING;
    }

    /// Notes that a posted request put the properties in `config` into force, with a layout that maps
    /// `length` bytes. Returns the count of signature errors if the request has to write it.
    #[inline]
    pub(crate) const fn note(&mut self, layout: LayoutKind, length: u64, config: &MkeyConfig) -> Option<u32> {
        match layout {
            LayoutKind::Unchanged => {}
            LayoutKind::List => self.mapped = Mapped(length),
            LayoutKind::Interleaved => self.mapped = Mapped(length | Mapped::INTERLEAVED),
        }
        if !self.has_bsfs {
            return None;
        }
        (self.signature, self.crypto) = (config.signature, config.crypto);
        if !self.error_count_pending {
            return None;
        }
        self.error_count_pending = false;
        Some(self.errors_seen)
    }

    /// Notes that a posted request put a list of this many entries, from registered memory, into force.
    pub(crate) const fn note_list(&mut self, entries: u32, length: u64) {
        self.mapped = Mapped(length | Mapped::COUNTED);
        self.entries = entries;
    }

    /// Notes that a posted request replaces `entries` entries from number `first` on. Entries beyond the end
    /// make the list longer. If the last block of four entries is incomplete, the list ends with it.
    pub(crate) const fn note_replaced(&mut self, first: u32, entries: u32) {
        let end = first.saturating_add(entries);
        if entries > 0 && (end > self.entries || !entries.is_multiple_of(OCTOWORDS_PER_BLOCK as u32)) {
            self.entries = end;
        }
    }

    /// Notes that a posted request gave all parts of the state, so the state is known again.
    pub(crate) const fn note_known(&mut self) {
        self.kind_word.set_mkey(self.kind_word.mkey().with_state_unknown(false));
    }

    /// Returns whether the state on the device is unknown, as after an invalidation.
    pub(crate) const fn is_unknown(&self) -> bool {
        self.kind_word.mkey().state_unknown()
    }

    /// Returns the PSV of a domain, for a digest over several mkeys
    /// ([`DigestSpan::Transaction`](super::DigestSpan::Transaction)); `None` for an mkey without signature.
    pub fn psv_index(&self, domain: DomainKind) -> Option<PsvIndex> {
        self.kind.signature.is_some().then(|| PsvIndex::from_low_bits(self.psv(domain)))
    }

    /// Returns the number of a domain's PSV, 0 for an mkey without signature.
    #[inline]
    pub(crate) fn psv(&self, domain: DomainKind) -> u32 {
        self.psvs.get(domain as usize).copied().unwrap_or_default()
    }

    /// Checks that a list is known to be in force, so that its entries can be changed.
    pub(crate) const fn check_list(&self) -> Result<(), ConfigError> {
        if self.mapped.is_list() { Ok(()) } else { Err(ConfigError::NoList) }
    }

    /// Returns the number of entries of the list in force.
    ///
    /// # Errors
    /// [`ConfigError::NoList`]. [`ConfigError::ListInRequest`] for a list that did not come from registered
    /// memory.
    pub(crate) fn list_entries(&self) -> Result<u32, ConfigError> {
        self.check_list()?;
        if self.mapped.0 & Mapped::COUNTED != 0 { Ok(self.entries) } else { Err(ConfigError::ListInRequest) }
    }

    /// Checks that the mkey accepts a configuration in its present state.
    pub(crate) fn check_state(&self, config: &MkeyConfig, layout: LayoutForm) -> Result<(), ConfigError> {
        if self.kind_word.mkey().tag_refused() {
            return Err(ConfigError::TagUpdateUnsupported { tag: self.key.tag() });
        }
        if self.is_unknown() { self.check_complete(config, layout) } else { Ok(()) }
    }

    /// Plans a change of the properties in force, see [`Plan::new`].
    pub(crate) fn plan(&self, config: &MkeyConfig, any_data_unit: bool) -> Result<Plan, ConfigError> {
        let in_force = InForce {
            signature: self.signature,
            crypto: self.crypto,
            error_count_pending: self.error_count_pending,
        };
        Plan::new(&self.kind, config, &in_force, any_data_unit)
    }

    /// Checks that a configuration has all parts that the mkey can have.
    fn check_complete(&self, config: &MkeyConfig, layout: LayoutForm) -> Result<(), ConfigError> {
        let missing = if config.access.is_none() {
            ConfigPart::Access
        } else if layout.kind == LayoutKind::Unchanged {
            ConfigPart::Layout
        } else if self.kind.signature.is_some() && config.signature == SignatureChange::Keep {
            ConfigPart::Signature
        } else if self.kind.crypto.is_some() && config.crypto.is_none() {
            ConfigPart::Crypto
        } else {
            return Ok(());
        };
        Err(ConfigError::StateUnknown { missing })
    }

    /// Records a signature error that a completion queue delivered. Returns whether the error was of this
    /// mkey.
    ///
    /// The mkey keeps the first error until [`Mkey::take_error`] returns it. The device reports further
    /// errors only after the next configuration.
    pub fn record(&mut self, fault: &SignatureFault) -> bool {
        if self.kind.signature.is_none() || fault.mkey != self.key.index() {
            return false;
        }
        self.errors_seen = self.errors_seen.wrapping_add(1);
        self.error_count_pending = true;
        let signature = &self.signature;
        self.error.get_or_insert_with(|| fault.interpret(signature));
        true
    }

    /// Returns the first signature error that was recorded since the last call, if any.
    ///
    /// `None` is no proof that the data was right: a completion queue may have received an error while its
    /// router lacked this mkey. [`CompletionQueue::check`](crate::queue::CompletionQueue::check) also returns
    /// these errors.
    ///
    /// # Errors
    /// [`CheckError::NotASignatureMkey`]. [`CheckError::Unintelligible`] for a recorded error that matches no
    /// domain of this mkey; a second call does not return it again.
    pub fn take_error(&mut self) -> Result<Option<SignatureError>, CheckError> {
        if self.kind.signature.is_none() {
            return Err(CheckError::NotASignatureMkey);
        }
        self.error.take().transpose()
    }
}

/// The number of bytes that the layout of an mkey maps, and the kind of the layout. Both share one word, so
/// that posting writes one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct Mapped(u64);

impl Mapped {
    /// The word of an mkey without a layout.
    pub(crate) const NOTHING: Self = Self(0);

    /// The largest number of bytes that a layout maps. An interleaved layout in a request maps less: at most
    /// 51 streams of 65,535 bytes in 2^32 - 1 cycles. An interleaved layout in registered memory is refused
    /// from 2^62 bytes on.
    pub(crate) const MAX_BYTES: u64 = Self::COUNTED - 1;

    /// The bit that marks an interleaved layout.
    const INTERLEAVED: u64 = 1 << 63;

    /// The bit that marks a list from registered memory, whose number of entries the mkey holds. The number
    /// of bytes of a list leaves this bit free: the longest list has
    /// [`MkeyAttributes::MAX_ENTRIES`](super::MkeyAttributes::MAX_ENTRIES) entries of 2 GiB. For a list in a
    /// request, posting does not store the number of entries, because that takes time.
    const COUNTED: u64 = 1 << 62;

    /// Returns whether the layout is a list: one in a request that maps at least one byte, or any list from
    /// registered memory.
    pub(crate) const fn is_list(self) -> bool {
        self.0 != 0 && self.0 & Self::INTERLEAVED == 0
    }
}

#[cfg(test)]
mod tests;
