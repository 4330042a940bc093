//! The command that creates an mkey together with its list of memory ranges. Work requests cannot change the
//! list later.

use super::{Command, GeneralCapabilities, Pdn};
use crate::command::error::CommandError;
use crate::mkey::{Access, KlmEntry, KsmEntry, RelaxedOrdering};
use crate::types::{Key, KsmEntrySize, MkeyIndex};
use crate::wire::klm::Klm;
use crate::wire::mkey_context::QpnMkey;
use crate::wire::prm::command::{NumberReply, Opcode, RequestHeader};
use crate::wire::prm::mkey::{CreateMkeyRequest, MkcFlags, MkcPages, MkcPd};
use crate::wire::{OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK};
use zerocopy::transmute;

/// The list with which an mkey is created. The entries follow each other in the mkey's space.
///
/// ```
/// use mlx5_mkey::command::MkeyEntries;
/// use mlx5_mkey::mkey::KsmEntry;
/// use mlx5_mkey::types::{Key, KsmEntrySize};
/// // Two huge pages, far from each other.
/// let key = Key::from_raw(0x5600);
/// let entries = [0x7f00_0000_0000, 0x7e00_0000_0000].map(|address| KsmEntry { address, key });
/// let list = MkeyEntries::Ksm(KsmEntrySize::new(2 << 20)?, &entries);
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum MkeyEntries<'a> {
    /// Each entry has its own length (access mode KLM). The device searches the list for the entry of an
    /// address.
    Klm(&'a [KlmEntry]),
    /// All entries have this length (access mode KSM, also called KLM of fixed buffer size). The device finds
    /// the entry of an address without a search. The device must have
    /// [`GeneralCapabilities::fixed_buffer_size`].
    Ksm(KsmEntrySize, &'a [KsmEntry]),
}

impl MkeyEntries<'_> {
    pub(crate) const fn count(&self) -> usize {
        match self {
            Self::Klm(entries) => entries.len(),
            Self::Ksm(_, entries) => entries.len(),
        }
    }

    /// Returns the total length of the entries in bytes.
    fn bytes(&self) -> u64 {
        match self {
            // The sum cannot overflow: `CreateListMkey::new` allows fewer than 2^32 entries of at most 2^31
            // bytes.
            Self::Klm(entries) => entries.iter().map(|entry| u64::from(entry.length)).sum(),
            Self::Ksm(size, entries) => u64::from(size.bytes()) * entries.len() as u64,
        }
    }

    fn wire(&self) -> impl Iterator<Item = Klm> {
        let (klm, ksm): (&[KlmEntry], &[KsmEntry]) = match self {
            Self::Klm(entries) => (entries, &[]),
            Self::Ksm(_, entries) => (&[], entries),
        };
        klm.iter().copied().map(KlmEntry::to_wire).chain(ksm.iter().copied().map(KsmEntry::to_wire))
    }
}

/// The command that creates an mkey together with its list of memory ranges (CREATE_MKEY; sources: DPDK
/// `mlx5_devx_cmd_mkey_create`, UCX `uct_ib_mlx5_devx_reg_ksm`). The command contains the entries. Work
/// requests cannot change them later.
///
/// The mkey can be used at once. The reply is its key. The list makes the request longer than
/// [`CreateListMkey::INPUT`](Command::INPUT); [`Command::input_bytes`] returns the length of the whole
/// request.
///
/// ```
/// use mlx5_mkey::command::{Command, CreateListMkey, GeneralCapabilities, MkeyEntries, Pdn};
/// use mlx5_mkey::error::CommandError;
/// use mlx5_mkey::mkey::{Access, KlmEntry};
///
/// /// Encodes the creation of an mkey whose space begins at `address`, over registered memory.
/// fn encode(
///     device: &GeneralCapabilities,
///     pd: Pdn,
///     address: u64,
///     memory: &[KlmEntry],
///     mailbox: &mut [u8],
/// ) -> Result<usize, CommandError> {
///     let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
///     let command = CreateListMkey::new(pd, access, address, MkeyEntries::Klm(memory), device)?;
///     let request = command.encode(mailbox)?;
///     Ok(request.len())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CreateListMkey<'a> {
    pd: Pdn,
    access: Access,
    address: u64,
    length: u64,
    entries: MkeyEntries<'a>,
    tag: u8,
    relaxed_ordering: RelaxedOrdering,
}

impl<'a> CreateListMkey<'a> {
    /// Creates the command for an mkey with tag 0, whose space begins at `address` and is as long as all
    /// entries together. The owner may always read.
    ///
    /// # Errors
    /// [`CommandError::TooManyEntries`] for more entries than the device accepts
    /// ([`GeneralCapabilities::log_max_entries`]), [`CommandError::EntryLength`] for an entry of 0 bytes or
    /// over 2 GiB, [`CommandError::SpaceLength`] for a space that is empty or ends after address 2^64 - 1,
    /// [`CommandError::Unsupported`] for entries of one length or the right to atomics on a device that does
    /// not support them.
    pub fn new(
        pd: Pdn,
        access: Access,
        address: u64,
        entries: MkeyEntries<'a>,
        device: &GeneralCapabilities,
    ) -> Result<Self, CommandError> {
        let command = Self::OPCODE;
        let (count, max) = (entries.count(), device.max_entries());
        if count as u64 > u64::from(max) {
            let entries = u32::try_from(count).unwrap_or(u32::MAX);
            return Err(CommandError::TooManyEntries { command, entries, max });
        }
        if access.contains(Access::REMOTE_ATOMIC) && !device.atomic {
            return Err(CommandError::Unsupported { command, what: "atomics" });
        }
        match entries {
            MkeyEntries::Ksm(..) if !device.fixed_buffer_size => {
                return Err(CommandError::Unsupported { command, what: "entries of one length" });
            }
            MkeyEntries::Ksm(..) => {}
            MkeyEntries::Klm(entries) => {
                if let Some((index, length)) = KlmEntry::wrong_length(entries) {
                    return Err(CommandError::EntryLength { command, index: index as u32, length });
                }
            }
        }
        let length = entries.bytes();
        let relaxed_ordering = RelaxedOrdering { write: false, read: false };
        let mkey = Self { pd, access, address, length, entries, tag: 0, relaxed_ordering };
        mkey.with_length(length)
    }

    /// Makes the mkey's space end after `length` bytes, which may be before the end of the entries.
    ///
    /// # Errors
    /// [`CommandError::SpaceLength`] for 0, for more bytes than the entries have, or for an end after address
    /// 2^64 - 1.
    pub fn with_length(self, length: u64) -> Result<Self, CommandError> {
        let max = self.entries.bytes().min((u64::MAX - self.address).saturating_add(1));
        if length == 0 || length > max {
            return Err(CommandError::SpaceLength { command: Self::OPCODE, length, max });
        }
        Ok(Self { length, ..self })
    }

    /// Makes `tag` the tag of the mkey's key.
    pub const fn with_tag(self, tag: u8) -> Self {
        Self { tag, ..self }
    }

    /// Lets writes through the mkey pass one another. Reads may also pass writes, if the device supports it.
    ///
    /// # Errors
    /// [`CommandError::Unsupported`] if the device cannot let writes pass one another.
    pub const fn with_relaxed_ordering(self, device: &GeneralCapabilities) -> Result<Self, CommandError> {
        if !device.relaxed_ordering_write {
            return Err(CommandError::Unsupported {
                command: Self::OPCODE,
                what: "relaxed ordering of writes",
            });
        }
        let relaxed_ordering = RelaxedOrdering { write: true, read: device.relaxed_ordering_read };
        Ok(Self { relaxed_ordering, ..self })
    }

    /// Returns the first address of the mkey's space.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length of the mkey's space in bytes.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of octowords of the entries, padded to a multiple of 4 (64 bytes), as in DPDK.
    // The product cannot overflow. With `saturating_mul` the compiler adds no overflow check and no panic.
    const fn octowords(&self) -> usize {
        self.entries.count().div_ceil(OCTOWORDS_PER_BLOCK).saturating_mul(OCTOWORDS_PER_BLOCK)
    }
}

impl Command for CreateListMkey<'_> {
    const OPCODE: Opcode = Opcode::CREATE_MKEY;
    type Input = CreateMkeyRequest;
    type Output = NumberReply;
    type Reply = Key;

    fn input_bytes(&self) -> usize {
        Self::INPUT.saturating_add(self.octowords().saturating_mul(OCTOWORD_BYTES))
    }

    fn write(&self, input: &mut CreateMkeyRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        let rights = self.access.to_wire();
        let (mode, log_size) = match self.entries {
            MkeyEntries::Klm(_) => (MkcFlags::KLM, 0),
            MkeyEntries::Ksm(size, _) => (MkcFlags::KSM, size.log()),
        };
        let flags = MkcFlags::new()
            .with_local_read(true)
            .with_local_write(rights.local_write())
            .with_remote_read(rights.remote_read())
            .with_remote_write(rights.remote_write())
            .with_atomic(rights.atomic())
            .with_relaxed_ordering_write(self.relaxed_ordering.write)
            .with_access_mode_1_0(mode);
        let octowords = self.octowords() as u32;
        input.mkc.flags.set(flags.into_bits());
        input.mkc.qpn_mkey.set(QpnMkey::UNBOUND.with_tag(self.tag).into_bits());
        input.mkc.pd.set(MkcPd::new().with_pd(self.pd.get()).into_bits());
        input.mkc.start_addr.set(self.address);
        input.mkc.len.set(self.length);
        input.mkc.translations_octword_size.set(octowords);
        let pages = MkcPages::new()
            .with_log_page_size(log_size)
            .with_relaxed_ordering_read(self.relaxed_ordering.read);
        input.mkc.pages.set(pages.into_bits());
        input.translations_octword_actual_size.set(octowords);
    }

    fn write_list(&self, list: &mut [u8]) {
        let (slots, _) = list.as_chunks_mut::<OCTOWORD_BYTES>();
        for (slot, entry) in slots.iter_mut().zip(self.entries.wire()) {
            *slot = transmute!(entry);
        }
    }

    fn read(&self, output: &NumberReply) -> Result<Key, CommandError> {
        Ok(Key::new(MkeyIndex::from_low_bits(output.number.get()), self.tag))
    }
}
