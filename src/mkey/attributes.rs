//! The attributes that an mkey was created with, and the kind of mkey that follows from them.

use super::{SignatureCapabilities, XtsEngine};
use crate::types::{Key, KsmEntrySize, PsvIndex};
use crate::wire::low::low8;
use bitfield_struct::bitfield;

/// The count of signature errors that software and device exchange. It starts at 1.
///
/// After the device has reported an error, it reports no other one until a UMR writes the low bit of the new
/// count into the mkey context.
///
/// ```
/// use mlx5_mkey::mkey::{ErrorCount, Mkey, MkeyAttributes, SignatureAttributes};
/// use mlx5_mkey::types::{Key, PsvIndex};
/// // An mkey that has been in use: it had two signature errors, and the device was told that both were seen.
/// let error_count = ErrorCount { seen: 3, pending: false };
/// let psvs = SignatureAttributes::new(PsvIndex::new(1)?, PsvIndex::new(2)?);
/// let plain = MkeyAttributes::plain(Key::from_raw(0x1234_00), 4);
/// let signature = Some(SignatureAttributes { error_count, ..psvs });
/// let mkey = Mkey::new(MkeyAttributes { signature, ..plain });
/// assert_eq!(mkey.error_count(), Some(error_count));
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ErrorCount {
    /// Number of recorded errors plus 1, modulo 2^32.
    pub seen: u32,
    /// Whether the next configuration has to write the count, because the device does not know it yet.
    pub pending: bool,
}

impl ErrorCount {
    /// The count of an mkey that was just created: the first configuration writes a 1.
    pub const CREATED: Self = Self { seen: 1, pending: true };
}

/// Attributes of an mkey that was created with block signature.
///
/// ```
/// use mlx5_mkey::mkey::{MkeyAttributes, SignatureAttributes, SignatureCapabilities};
/// use mlx5_mkey::types::{Key, PsvIndex};
/// // The capabilities of a device without CRC64-XP10.
/// let capabilities = SignatureCapabilities { crc64_xp10: false, ..SignatureCapabilities::ALL };
/// let psvs = SignatureAttributes::new(PsvIndex::new(1)?, PsvIndex::new(2)?);
/// let signature = Some(SignatureAttributes { capabilities, ..psvs });
/// let attributes = MkeyAttributes { signature, ..MkeyAttributes::plain(Key::from_raw(0x1234_00), 4) };
/// assert_eq!(attributes.kind().signature, Some(capabilities));
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SignatureAttributes {
    /// Index of the PSV (protection signature value) of the memory domain.
    pub memory_psv: PsvIndex,
    /// Index of the PSV of the wire domain.
    pub wire_psv: PsvIndex,
    /// The count of signature errors: [`ErrorCount::CREATED`] for a new mkey.
    pub error_count: ErrorCount,
    /// Signatures and block sizes that the device supports.
    pub capabilities: SignatureCapabilities,
}

impl SignatureAttributes {
    /// Returns the attributes of a new mkey with these PSVs, on a device that supports all signatures.
    pub const fn new(memory_psv: PsvIndex, wire_psv: PsvIndex) -> Self {
        Self {
            memory_psv,
            wire_psv,
            error_count: ErrorCount::CREATED,
            capabilities: SignatureCapabilities::ALL,
        }
    }
}

/// The parts of an mkey that each UMR writes, even if the configuration does not change them. The UMRs of
/// some drivers write fewer parts than the UMRs of the reference provider. An mkey is created for UMRs of one
/// form.
///
/// ```
/// use mlx5_mkey::command::{CreateMkey, EntryCount, MkeyFeatures, Pdn};
/// use mlx5_mkey::mkey::{Access, UmrForm};
/// // The access rights, which every configuration would write, are given once.
/// let (form, access) = (UmrForm::Minimal, Access::REMOTE_READ);
/// let features = MkeyFeatures { form, access, ..MkeyFeatures::default() };
/// let command = CreateMkey { pd: Pdn::new(7)?, max_entries: EntryCount::new(16)?, features, tag: 0x42 };
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum UmrForm {
    /// The UMR writes the changes, and also tag, queue pair and the BSF enable bit, as the UMR of the
    /// reference provider does. Only the BSF of a digest, and the BSF of AES-XTS beside a digest, contain the
    /// length of the data.
    #[default]
    Complete,
    /// The UMR writes only the changes: length, layout, BSFs, and access rights if the configuration has
    /// them. SPDK posts UMRs of this form; DPDK's UMRs also leave out the bit `free` of the mkey context. The
    /// BSF of AES-XTS contains the exact length of the data (`raw_data_size`), unless the mkey has a block
    /// signature. The key keeps the tag of its creation.
    Minimal,
}

/// Attributes that an mkey was created with (`struct mlx5dv_mkey_init_attr`, CREATE_MKEY).
///
/// ```
/// use mlx5_mkey::mkey::{Mkey, MkeyAttributes, XtsEngine};
/// use mlx5_mkey::types::Key;
/// let attributes = MkeyAttributes {
///     crypto: Some(XtsEngine::MultiBlock),
///     tag_update: true,
///     ..MkeyAttributes::plain(Key::from_raw(0x1234_00), 16)
/// };
/// let mut mkey = Mkey::new(attributes);
/// mkey.set_tag(0x56)?;
/// assert_eq!(mkey.key(), Key::from_raw(0x1234_56));
/// # Ok::<(), mlx5_mkey::error::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MkeyAttributes {
    /// The mkey's key: the index that the device returned and the tag that the owner chose.
    pub key: Key,
    /// Number of translation entries that the mkey has room for, at most [`MkeyAttributes::MAX_ENTRIES`]. The
    /// header of an interleaved layout takes one entry.
    pub max_entries: u32,
    /// PSVs, error count and capabilities, if the mkey was created with block signature.
    pub signature: Option<SignatureAttributes>,
    /// The engine of the device, if the mkey was created with crypto.
    pub crypto: Option<XtsEngine>,
    /// Whether the device can change the tag of a key (`UPDATE_TAG`).
    pub tag_update: bool,
    /// The form of the mkey's UMRs. An mkey for [`UmrForm::Minimal`] got its access rights and its BSF enable
    /// bit when it was created.
    pub form: UmrForm,
    /// The length of all entries, if the mkey was created for lists whose entries all have one length (KSM).
    pub entry_size: Option<KsmEntrySize>,
}

impl MkeyAttributes {
    /// The largest number of translation entries of an mkey in this library. This number of entries of 2 GiB
    /// maps 2^61 bytes. The limit of a device is lower
    /// ([`GeneralCapabilities::max_umr_entries`](crate::command::GeneralCapabilities::max_umr_entries)).
    pub const MAX_ENTRIES: u32 = 1 << 30;

    /// Returns the attributes of a plain mkey, which has only layouts and access rights.
    pub const fn plain(key: Key, max_entries: u32) -> Self {
        let form = UmrForm::Complete;
        Self { key, max_entries, signature: None, crypto: None, tag_update: false, form, entry_size: None }
    }

    /// Returns the kind of the mkey.
    pub const fn kind(&self) -> MkeyKind {
        let signature = match self.signature {
            Some(SignatureAttributes { capabilities, .. }) => Some(capabilities),
            None => None,
        };
        let Self { max_entries, crypto, form, entry_size, .. } = *self;
        MkeyKind { max_entries, signature, crypto, form, entry_size }
    }
}

/// The properties of an mkey on which its configurations depend. Key and PSVs are not among them, so mkeys of
/// one kind share prepared configurations.
///
/// ```
/// use mlx5_mkey::mkey::{Access, MkeyConfig, MkeyKind, UmrForm};
/// use mlx5_mkey::wqe::PreparedConfig;
/// // A configuration can be prepared before any mkey exists.
/// let kind =
///     MkeyKind { max_entries: 4, signature: None, crypto: None, form: UmrForm::Complete, entry_size: None };
/// let config = MkeyConfig { access: Some(Access::REMOTE_READ), ..MkeyConfig::UNCHANGED };
/// let prepared = PreparedConfig::new(kind, &config)?;
/// # Ok::<(), mlx5_mkey::error::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MkeyKind {
    /// Number of translation entries that the mkey has room for.
    pub max_entries: u32,
    /// Signatures and block sizes that the device supports, for an mkey with block signature.
    pub signature: Option<SignatureCapabilities>,
    /// The engine of the device, for an mkey with crypto.
    pub crypto: Option<XtsEngine>,
    /// The form of the mkey's UMRs: the parts of the mkey that each UMR writes.
    pub form: UmrForm,
    /// The length of each entry of the mkey's lists, if all lengths are equal (KSM).
    pub entry_size: Option<KsmEntrySize>,
}

/// Flags of an mkey. If one is set, a prepared configuration cannot be posted to the mkey as it is encoded.
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub(crate) struct MkeyFlags {
    /// Software does not know the state of the mkey on the device, for example after an invalidation.
    pub(crate) state_unknown: bool,
    /// The tag of the key is not 0, UMRs have to write it, and the device cannot change tags.
    pub(crate) tag_refused: bool,
    #[bits(6)]
    __: u8,
}

/// Flags of a prepared configuration. If one is set, the configuration cannot be posted as it is encoded.
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub(crate) struct ConfigFlags {
    /// The configuration leaves a part of the mkey unchanged (`None` or `Keep`), and the request may have to
    /// write this part again.
    pub(crate) keeps: bool,
    /// `UmrRequest::finish` has to complete the request, because some fields depend on the layout or are
    /// seldom used.
    pub(crate) finished_later: bool,
    #[bits(6)]
    __: u8,
}

/// An [`MkeyKind`] in one word, with the flags of an mkey or of a prepared configuration. Posting compares
/// the word of the mkey with the word of the configuration: one comparison finds every difference of kind and
/// every flag that is set.
#[bitfield(u64, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub(crate) struct KindWord {
    /// The flags of the mkey; none are set in the word of a configuration.
    #[bits(8)]
    pub(crate) mkey: MkeyFlags,
    /// The flags of the configuration; none are set in the word of an mkey.
    #[bits(8)]
    pub(crate) config: ConfigFlags,
    /// A bit that is always 1, and a bit for each signature capability; all 0 for an mkey without signature.
    #[bits(5, into = low8::<5>)]
    signature: u8,
    /// The number of the engine plus 1; 0 for an mkey without crypto.
    #[bits(3, into = low8::<3>)]
    crypto: u8,
    minimal: bool,
    /// Base-2 logarithm of the length of all entries; 0 if lengths may differ.
    #[bits(7, into = low8::<7>)]
    log_entry_size: u8,
    pub(crate) entries: u32,
}

impl KindWord {
    pub(crate) const fn of(kind: MkeyKind) -> Self {
        let signature = match kind.signature {
            None => 0,
            Some(SignatureCapabilities { block_4048, crc32c, crc64_xp10, digest_with_xts }) => {
                1 | (block_4048 as u8) << 1
                    | (crc32c as u8) << 2
                    | (crc64_xp10 as u8) << 3
                    | (digest_with_xts as u8) << 4
            }
        };
        let crypto = match kind.crypto {
            None => 0,
            Some(engine) => 1 + engine as u8,
        };
        let log_entry_size = match kind.entry_size {
            None => 0,
            Some(size) => size.log(),
        };
        Self::new()
            .with_signature(signature)
            .with_crypto(crypto)
            .with_minimal(matches!(kind.form, UmrForm::Minimal))
            .with_log_entry_size(log_entry_size)
            .with_entries(kind.max_entries)
    }

    /// Returns the word with all flags cleared.
    pub(crate) const fn without_flags(self) -> Self {
        self.with_mkey(MkeyFlags::new()).with_config(ConfigFlags::new())
    }
}
