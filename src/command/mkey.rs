//! Commands that create mkeys that work requests configure, commands that create memory regions, and the
//! command that destroys either.

use super::{Command, GeneralCapabilities, LogPageSize, Pdn, UmemSlice, number_commands};
use crate::command::error::CommandError;
use crate::mkey::{Access, MkeyAttributes, SignatureAttributes, UmrForm};
use crate::types::{Key, KsmEntrySize, MkeyIndex, OutOfRange, PsvIndex};
use crate::wire::OCTOWORD_BYTES;
use crate::wire::mkey_context::QpnMkey;
use crate::wire::prm::command::{NumberReply, Opcode, RequestHeader};
use crate::wire::prm::mkey::{CreateMkeyRequest, MkcCrypto, MkcFlags, MkcPages, MkcPd, MkeySource};

/// Number of octowords of a BSF of 64 bytes.
const BSF_OCTOWORDS: u32 = 4;

/// The largest number of translation entries that an mkey can have. The number is rounded up to a multiple of
/// 4, as in rdma-core.
///
/// ```
/// use mlx5_mkey::command::EntryCount;
/// assert_eq!(EntryCount::new(1)?.get(), 4);
/// assert_eq!(EntryCount::new(5)?.get(), 8);
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EntryCount(u32);

impl EntryCount {
    /// The largest number of entries that the command accepts. The limit of a device is lower
    /// ([`GeneralCapabilities::max_umr_entries`]).
    pub const MAX: u32 = MkeyAttributes::MAX_ENTRIES;

    /// Rounds `at_least`, the number of entries that the mkey needs, up to a multiple of 4.
    ///
    /// # Errors
    /// [`OutOfRange`] for more than [`EntryCount::MAX`].
    pub const fn new(at_least: u32) -> Result<Self, OutOfRange> {
        if at_least > Self::MAX {
            return Err(OutOfRange {
                what: "mkey entries",
                value: at_least as u64,
                min: 0,
                max: Self::MAX as u64,
            });
        }
        Ok(Self(at_least.next_multiple_of(4)))
    }

    /// Returns the rounded number of entries.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The features with which an mkey is created (`enum mlx5dv_mkey_init_attr_flags`). The flag `INDIRECT` has
/// no field, because all mkeys that work requests configure have it.
///
/// ```
/// use mlx5_mkey::command::{CreateMkey, EntryCount, MkeyFeatures, Pdn};
/// let features = MkeyFeatures { block_signature: true, crypto: true, ..MkeyFeatures::default() };
/// let command = CreateMkey { pd: Pdn::new(7)?, max_entries: EntryCount::new(16)?, features, tag: 0 };
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MkeyFeatures {
    /// The mkey can have block signatures (`BLOCK_SIGNATURE`). It needs two PSVs.
    pub block_signature: bool,
    /// The mkey can have AES-XTS (`CRYPTO`). It refuses traffic until crypto properties are configured.
    pub crypto: bool,
    /// Requests may change the mkey's tag (`UPDATE_TAG`). The bytes of CREATE_MKEY are the same with and
    /// without this feature; see [`MkeyAttributes::tag_update`].
    pub update_tag: bool,
    /// The peer may invalidate the mkey (`REMOTE_INVALIDATE`).
    pub remote_invalidate: bool,
    /// Writes through the mkey may pass one another.
    pub relaxed_ordering_write: bool,
    /// Reads through the mkey may pass writes.
    pub relaxed_ordering_read: bool,
    /// Access rights that the mkey has from its creation on, beside the owner's right to read. They are meant
    /// for [`UmrForm::Minimal`], whose configurations may omit the rights, except after
    /// [`Mkey::forget`](crate::mkey::Mkey::forget).
    pub access: Access,
    /// Whether UMRs write all properties of the mkey, or only those that change ([`MkeyAttributes::form`]).
    /// The bytes of CREATE_MKEY are the same for both forms.
    pub form: UmrForm,
    /// The length of every entry of the mkey's lists, for entries of one length (KSM; kernel
    /// `mlx5e_create_umr_ksm_mkey`). `None` for entries of different lengths. The lists of a KSM mkey must be
    /// in registered memory ([`RegisteredList::write_ksm`](crate::mkey::RegisteredList::write_ksm)).
    pub entry_size: Option<KsmEntrySize>,
}

/// The command that creates an mkey that work requests configure (CREATE_MKEY, `mlx5dv_create_mkey`).
///
/// The new mkey is in the state free: it refuses all traffic until its first configuration. The reply is its
/// key.
///
/// ```
/// use mlx5_mkey::command::{Command, CreateMkey, EntryCount, MkeyFeatures, Pdn};
/// use mlx5_mkey::mkey::Mkey;
///
/// let command = CreateMkey {
///     pd: Pdn::new(7)?,
///     max_entries: EntryCount::new(16)?,
///     features: MkeyFeatures::default(),
///     tag: 0,
/// };
/// let mut mailbox = [0; CreateMkey::INPUT];
/// let request = command.encode(&mut mailbox)?;
/// // … the device answers …
/// let reply = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 0];
/// let key = command.decode(&reply)?;
/// assert_eq!(key.get(), 0x1234_00);
/// let mkey = Mkey::new(command.plain_attributes(key));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateMkey {
    /// Protection domain of the mkey.
    pub pd: Pdn,
    /// The largest number of translation entries of the mkey.
    pub max_entries: EntryCount,
    /// The features of the mkey.
    pub features: MkeyFeatures,
    /// Tag of the mkey's key; `mlx5dv_create_mkey` always uses 0.
    pub tag: u8,
}

impl CreateMkey {
    /// Checks that the device supports the features and the number of entries. The feature `update_tag` is
    /// not checked, because no capability of the device states it: the kernel decides whether requests may
    /// change tags.
    ///
    /// # Errors
    /// [`CommandError::Unsupported`] with the name of the missing feature, [`CommandError::TooManyEntries`]
    /// with the device's limit.
    pub const fn check(&self, device: &GeneralCapabilities) -> Result<(), CommandError> {
        let (entries, max) = (self.max_entries.0, device.max_umr_entries());
        if entries > max {
            return Err(CommandError::TooManyEntries { command: Self::OPCODE, entries, max });
        }
        let what = if self.features.block_signature && device.signatures().is_none() {
            "block signatures"
        } else if self.features.crypto && device.crypto && device.xts_tweak_inc_64 {
            "AES-XTS with tweaks that grow by 1 (aes_xts_tweak_inc_64 is on, which mlxconfig can switch off)"
        } else if self.features.crypto && device.xts_engine().is_none() {
            "AES-XTS"
        } else if self.features.relaxed_ordering_write && !device.relaxed_ordering_write {
            "relaxed ordering of writes"
        } else if self.features.relaxed_ordering_read && !device.relaxed_ordering_read {
            "relaxed ordering of reads"
        } else if self.features.entry_size.is_some() && !device.fixed_buffer_size {
            "entries of one length"
        } else if self.features.entry_size.is_some() && self.has_bsf() {
            "entries of one length with signatures or AES-XTS"
        } else if self.features.access.contains(Access::REMOTE_ATOMIC) && !device.atomic {
            "atomics"
        } else if self.bsfs() * BSF_OCTOWORDS > 1 << (device.log_max_bsf_octowords & 31) {
            "BSFs of this size"
        } else {
            return Ok(());
        };
        Err(CommandError::Unsupported { command: Self::OPCODE, what })
    }

    /// Returns the number of BSFs for which the mkey needs room: one for signatures, one for crypto.
    const fn bsfs(&self) -> u32 {
        self.features.block_signature as u32 + self.features.crypto as u32
    }

    const fn has_bsf(&self) -> bool {
        self.features.block_signature || self.features.crypto
    }

    /// Returns the attributes of an mkey without signature and crypto, for [`crate::mkey::Mkey::new`].
    pub const fn plain_attributes(&self, key: Key) -> MkeyAttributes {
        MkeyAttributes {
            key,
            max_entries: self.max_entries.0,
            signature: None,
            crypto: None,
            tag_update: self.features.update_tag,
            form: self.features.form,
            entry_size: self.features.entry_size,
        }
    }

    /// Returns the attributes of the mkey for [`crate::mkey::Mkey::new`]. `memory` and `wire` are the PSVs of
    /// the two domains. They are used only if the mkey has block signatures.
    ///
    /// # Errors
    /// The errors of [`CreateMkey::check`].
    pub const fn attributes(
        &self,
        key: Key,
        device: &GeneralCapabilities,
        [memory, wire]: [PsvIndex; 2],
    ) -> Result<MkeyAttributes, CommandError> {
        if let Err(error) = self.check(device) {
            return Err(error);
        }
        let mut attributes = self.plain_attributes(key);
        if let (true, Some(capabilities)) = (self.features.block_signature, device.signatures()) {
            let mut signature = SignatureAttributes::new(memory, wire);
            signature.capabilities = capabilities;
            attributes.signature = Some(signature);
        }
        if self.features.crypto {
            attributes.crypto = device.xts_engine();
        }
        Ok(attributes)
    }
}

/// Returns access rights as flags of an mkey's context. The owner's right to read is always among them.
const fn rights(access: Access) -> MkcFlags {
    let rights = access.to_wire();
    MkcFlags::new()
        .with_local_read(true)
        .with_local_write(rights.local_write())
        .with_remote_read(rights.remote_read())
        .with_remote_write(rights.remote_write())
        .with_atomic(rights.atomic())
}

impl Command for CreateMkey {
    const OPCODE: Opcode = Opcode::CREATE_MKEY;
    type Input = CreateMkeyRequest;
    type Output = NumberReply;
    type Reply = Key;

    fn write(&self, input: &mut CreateMkeyRequest) {
        let features = &self.features;
        input.header = RequestHeader::new(Self::OPCODE);
        let (mode, log_size) = match features.entry_size {
            None => (MkcFlags::KLM, 0),
            Some(size) => (MkcFlags::KSM, size.log()),
        };
        let flags = rights(features.access)
            .with_free(true)
            .with_umr_en(true)
            .with_relaxed_ordering_write(features.relaxed_ordering_write)
            .with_access_mode_1_0(mode);
        input.mkc.flags.set(flags.into_bits());
        input.mkc.qpn_mkey.set(QpnMkey::UNBOUND.with_tag(self.tag).into_bits());
        let bsfs = self.bsfs();
        let pd = MkcPd::new()
            .with_pd(self.pd.get())
            .with_bsf_en(bsfs > 0)
            .with_en_rinval(features.remote_invalidate);
        input.mkc.pd.set(pd.into_bits());
        input.mkc.bsf_octword_size.set(bsfs * BSF_OCTOWORDS);
        input.mkc.translations_octword_size.set(self.max_entries.0);
        let pages = MkcPages::new()
            .with_log_page_size(log_size)
            .with_relaxed_ordering_read(features.relaxed_ordering_read);
        input.mkc.pages.set(pages.into_bits());
        input.mkc.crypto.set(MkcCrypto::new().with_crypto_en(u8::from(features.crypto)).into_bits());
    }

    fn read(&self, output: &NumberReply) -> Result<Key, CommandError> {
        Ok(Key::new(MkeyIndex::from_low_bits(output.number.get()), self.tag))
    }
}

/// The command that creates a memory region over user memory that is registered as a umem (CREATE_MKEY with
/// translation by pages, MTT; source: DPDK `mlx5_devx_cmd_mkey_create`). Data segments and layouts name the
/// memory by the region's key.
///
/// The region's addresses start at [`CreateMemoryRegion::address`]. The reply is the region's key.
///
/// ```
/// use mlx5_mkey::command::{Command, CreateMemoryRegion, LogPageSize, Pdn, UmemId, UmemSlice};
/// use mlx5_mkey::mkey::Access;
/// let command = CreateMemoryRegion {
///     pd: Pdn::new(7)?,
///     access: Access::LOCAL_WRITE | Access::REMOTE_READ,
///     address: 0x7000_0000,
///     length: 8192,
///     memory: UmemSlice { umem: UmemId(3), offset: 0 },
///     page_size: LogPageSize::P4K,
///     tag: 0x55,
/// };
/// let mut mailbox = [0; CreateMemoryRegion::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?.len(), 272);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateMemoryRegion {
    /// Protection domain of the region.
    pub pd: Pdn,
    /// Access rights; the owner may always read.
    pub access: Access,
    /// Address of the region's first byte, as requests name it. The address must have the same offset in a
    /// page as the memory's address.
    pub address: u64,
    /// Length of the region in bytes.
    pub length: u64,
    /// The place of the region in user memory.
    pub memory: UmemSlice,
    /// Page size of the user memory.
    pub page_size: LogPageSize,
    /// Tag of the region's key.
    pub tag: u8,
}

impl CreateMemoryRegion {
    /// Returns the number of octowords (16 bytes) of the device's list of pages. The list has 8 bytes for
    /// each page that the region touches.
    const fn octowords(&self) -> u32 {
        let page = 1u64 << self.page_size.get();
        let pages = (self.address & (page - 1)).saturating_add(self.length).div_ceil(page);
        let octowords = pages.div_ceil(OCTOWORD_BYTES as u64 / 8);
        // The limit of 2^32 - 1 octowords is reached by regions of at least 2^45 bytes only. The device
        // refuses a longer region, because its list of pages is then too short.
        if octowords > u32::MAX as u64 { u32::MAX } else { octowords as u32 }
    }
}

impl Command for CreateMemoryRegion {
    const OPCODE: Opcode = Opcode::CREATE_MKEY;
    type Input = CreateMkeyRequest;
    type Output = NumberReply;
    type Reply = Key;

    fn write(&self, input: &mut CreateMkeyRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.source.set(MkeySource::new().with_pg_access(true).with_mkey_umem_valid(true).into_bits());
        input.mkc.flags.set(rights(self.access).with_access_mode_1_0(MkcFlags::MTT).into_bits());
        input.mkc.qpn_mkey.set(QpnMkey::UNBOUND.with_tag(self.tag).into_bits());
        input.mkc.pd.set(MkcPd::new().with_pd(self.pd.get()).into_bits());
        input.mkc.start_addr.set(self.address);
        input.mkc.len.set(self.length);
        input.mkc.translations_octword_size.set(self.octowords());
        input.mkc.pages.set(MkcPages::new().with_log_page_size(self.page_size.get()).into_bits());
        input.translations_octword_actual_size.set(self.octowords());
        input.umem_id.set(self.memory.umem.0);
        input.umem_offset.set(self.memory.offset);
    }

    fn read(&self, output: &NumberReply) -> Result<Key, CommandError> {
        Ok(Key::new(MkeyIndex::from_low_bits(output.number.get()), self.tag))
    }
}

/// The command that creates a memory region over all memory that the device can reach. Requests name this
/// memory by bus addresses (CREATE_MKEY without translation; source: Linux `mlx5_ib_get_dma_mr`,
/// `mlx5e_create_mkey`). The reply is the region's key.
///
/// The command is meant for bare metal, where no kernel registers memory, and no other program needs
/// protection. The region's key serves as the local key of all memory. A peer that gets the key of the
/// region, or of an mkey over the whole region, reaches all memory as well, with the rights that the key
/// grants.
///
/// ```
/// use mlx5_mkey::command::{Command, CreatePhysicalRegion, Pdn};
/// use mlx5_mkey::mkey::Access;
/// let command = CreatePhysicalRegion { pd: Pdn::new(7)?, access: Access::LOCAL_WRITE, tag: 0 };
/// let mut mailbox = [0; CreatePhysicalRegion::INPUT];
/// assert_eq!(command.encode(&mut mailbox)?.len(), 272);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreatePhysicalRegion {
    /// Protection domain of the region.
    pub pd: Pdn,
    /// Access rights; the owner may always read.
    pub access: Access,
    /// Tag of the region's key.
    pub tag: u8,
}

impl Command for CreatePhysicalRegion {
    const OPCODE: Opcode = Opcode::CREATE_MKEY;
    type Input = CreateMkeyRequest;
    type Output = NumberReply;
    type Reply = Key;

    fn write(&self, input: &mut CreateMkeyRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.mkc.flags.set(rights(self.access).with_access_mode_1_0(MkcFlags::PA).into_bits());
        input.mkc.qpn_mkey.set(QpnMkey::UNBOUND.with_tag(self.tag).into_bits());
        input.mkc.pd.set(MkcPd::new().with_pd(self.pd.get()).with_length64(true).into_bits());
    }

    fn read(&self, output: &NumberReply) -> Result<Key, CommandError> {
        Ok(Key::new(MkeyIndex::from_low_bits(output.number.get()), self.tag))
    }
}

number_commands! {
    /// The command that destroys an mkey or a memory region (DESTROY_MKEY). The PSVs of an mkey have to be
    /// destroyed separately.
    DestroyMkey(MkeyIndex) = DESTROY_MKEY;
}
