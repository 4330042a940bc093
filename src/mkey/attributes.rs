//! Attributes that an mkey was created with, and the kind that they make it.

use super::{SignatureCapabilities, XtsEngine};
use crate::types::{Key, KsmEntrySize, PsvIndex};
use crate::wire::low::low8;
use bitfield_struct::bitfield;

/// The count of signature errors that software and device exchange. It starts at 1.
///
/// After a report of an error, the device reports no other one until the low bit of its own count has been
/// written to the mkey context.
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
    /// 1, and one more for each recorded error; modulo 2^32.
    pub seen: u32,
    /// The next configuration has to write the count.
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
    /// Protection signature value of the memory domain.
    pub memory_psv: PsvIndex,
    /// Protection signature value of the wire domain.
    pub wire_psv: PsvIndex,
    /// [`ErrorCount::CREATED`] for a new mkey.
    pub error_count: ErrorCount,
    /// Signatures and block sizes that the device knows.
    pub capabilities: SignatureCapabilities,
}

impl SignatureAttributes {
    /// Returns the attributes of a new mkey with these PSVs, on a device that knows all signatures.
    pub const fn new(memory_psv: PsvIndex, wire_psv: PsvIndex) -> Self {
        Self {
            memory_psv,
            wire_psv,
            error_count: ErrorCount::CREATED,
            capabilities: SignatureCapabilities::ALL,
        }
    }
}

/// The parts of an mkey that each configuration writes. Other drivers write less than the reference provider,
/// to mkeys that were created for short UMRs.
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
    /// Besides the changes, also tag, queue pair and BSF enable, as the reference provider does. The BSFs of
    /// blocks and of AES-XTS do not give the length.
    #[default]
    Complete,
    /// Only the changes, as SPDK does and, without the free bit, DPDK: length, layout, BSFs, and access
    /// rights if the configuration gives them. The BSF of AES-XTS has the exact length (`raw_data_size`),
    /// unless the mkey has a block signature. The key keeps the tag of its creation.
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
    /// Translation entries of 16 bytes that the mkey has room for, at most [`MkeyAttributes::MAX_ENTRIES`].
    /// The header of an interleaved layout takes one entry.
    pub max_entries: u32,
    /// Set if the mkey was created with block signature.
    pub signature: Option<SignatureAttributes>,
    /// Set if the mkey was created with crypto, to the engine that the device has.
    pub crypto: Option<XtsEngine>,
    /// The device can change the tag of a key (`UPDATE_TAG`).
    pub tag_update: bool,
    /// The form of the mkey's configurations. An mkey for [`UmrForm::Minimal`] got its rights, and the
    /// enabled BSFs, at its creation.
    pub form: UmrForm,
    /// Set if the mkey was created only for lists whose entries all have this length (KSM).
    pub entry_size: Option<KsmEntrySize>,
}

impl MkeyAttributes {
    /// The most translation entries of an mkey. A command counts them with 32 bits; as many entries of 2 GiB
    /// fill a space of 2^61 bytes. Devices take fewer
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
    /// Translation entries of 16 bytes that the mkey has room for.
    pub max_entries: u32,
    /// Signatures and block sizes that the device knows, for an mkey with block signature.
    pub signature: Option<SignatureCapabilities>,
    /// The engine of the device, for an mkey with crypto.
    pub crypto: Option<XtsEngine>,
    /// The parts of the mkey that each configuration writes.
    pub form: UmrForm,
    /// The length of each entry of the mkey's lists, if all lengths are equal (KSM).
    pub entry_size: Option<KsmEntrySize>,
}

/// Reasons in the mkey against posting a prepared configuration unchanged.
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub(crate) struct MkeyFlags {
    /// Software does not know the state that the device holds.
    pub(crate) state_unknown: bool,
    /// The device cannot write the tag of the key.
    pub(crate) tag_refused: bool,
    #[bits(6)]
    __: u8,
}

/// Reasons in the configuration against posting it unchanged.
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub(crate) struct ConfigFlags {
    /// The configuration keeps a part of the mkey that the request may have to write again.
    pub(crate) keeps: bool,
    /// Fields depend on the length of the layout: see `UmrRequest::finish`.
    pub(crate) finished_later: bool,
    #[bits(6)]
    __: u8,
}

/// An [`MkeyKind`] in one word, with the flags of an mkey or of a prepared configuration. Posting compares
/// both words once.
#[bitfield(u64, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub(crate) struct KindWord {
    /// Empty in the word of a configuration.
    #[bits(8)]
    pub(crate) mkey: MkeyFlags,
    /// Empty in the word of an mkey.
    #[bits(8)]
    pub(crate) config: ConfigFlags,
    /// A 1 beside the capabilities; 0 without signature.
    #[bits(5, into = low8::<5>)]
    signature: u8,
    /// 1 more than the engine; 0 without crypto.
    #[bits(3, into = low8::<3>)]
    crypto: u8,
    minimal: bool,
    /// Logarithm of the length of all entries; 0 if lengths may differ.
    #[bits(7, into = low8::<7>)]
    log_entry_size: u8,
    entries: u32,
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

    /// Returns whether an mkey of this kind has neither signature nor crypto.
    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        self.signature() == 0 && self.crypto() == 0
    }

    /// Returns the word without flags.
    pub(crate) const fn without_flags(self) -> Self {
        self.with_mkey(MkeyFlags::new()).with_config(ConfigFlags::new())
    }

    /// Returns how many translation entries an mkey of this kind has room for.
    #[inline]
    pub(crate) const fn max_entries(self) -> usize {
        self.entries() as usize
    }
}
