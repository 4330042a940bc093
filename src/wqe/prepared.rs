//! Prepared configurations: properties that are the same for many requests, checked and encoded once.

mod changes;

use super::bsf;
use crate::mkey::error::ConfigError;
use crate::mkey::{
    Access, ConfigFlags, DigestSpan, FieldChanges, InForce, KindWord, LayoutForm, Mkey, MkeyConfig, MkeyKind,
    Plan, RelaxedOrdering, SignatureChange, UmrForm, XtsEngine,
};
use crate::types::DomainKind;
use crate::wire::bsf::BsfSize;
use crate::wire::mkey_context::{FlagsPd, MkeyContext, OrderingByte, PageByte, QpnMkey};
use crate::wire::psv::TransientSignature;
use crate::wire::umr::{MkeyMask, UmrControlSegment, UmrFlags};
use crate::wire::{Block, OCTOWORDS_PER_BLOCK, ZEROS};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::transmute;

/// A configuration of mkeys of one kind, checked and encoded: access rights, signature and crypto properties.
///
/// [`configure_mkey`](crate::queue::SendRequest::configure_mkey) posts the configuration with a layout, any
/// number of times, to any mkey of the kind. Tweak, tags and DEK can be changed in place between posts.
///
/// ```
/// use mlx5_mkey::mkey::{
///     Access, Crypto, Direction, Keytag, Mkey, MkeyAttributes, MkeyConfig, SignatureOrder, XtsEngine,
/// };
/// use mlx5_mkey::types::{BlockSize, DekId, Key, Tweak};
/// use mlx5_mkey::wqe::PreparedConfig;
/// let plain = MkeyAttributes::plain(Key::from_raw(0x1234_00), 4);
/// let mkey = Mkey::new(MkeyAttributes { crypto: Some(XtsEngine::MultiBlock), ..plain });
/// let crypto = Crypto {
///     direction: Direction::EncryptOnTx,
///     order: SignatureOrder::BeforeCryptoOnTx,
///     data_unit: BlockSize::B512,
///     tweak: Tweak::from_lba(0),
///     dek: DekId::new(7)?,
///     keytag: Keytag::default(),
/// };
/// let config = MkeyConfig { access: Some(Access::ALL), crypto: Some(crypto), ..MkeyConfig::UNCHANGED };
/// let mut prepared = PreparedConfig::new(mkey.kind(), &config)?;
/// prepared.set_tweak(Tweak::from_lba(0x1000))?;
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PreparedConfig {
    /// Kind of mkey and flags, as one word. An mkey with an equal word takes the configuration as encoded.
    pub(crate) kind_word: KindWord,
    pub(crate) kind: MkeyKind,
    /// The configuration, including later changes in place.
    pub(crate) config: MkeyConfig,
    changes: FieldChanges,
    /// The UMR control segment without the size of the layout. Its mask already selects the length.
    pub(super) umr: UmrControlSegment,
    /// The mkey context without tag and length.
    pub(super) context: MkeyContext,
    /// The largest number of bytes that an mkey with this configuration may map.
    pub(super) max_length: u64,
    /// The encoded BSFs, that of the signature before that of crypto. Only the first `bsf_count` are valid.
    pub(super) bsfs: [Block; 2],
    pub(crate) bsf_count: u8,
    /// Whether the BSFs contain the exact length of the data, instead of all ones.
    pub(super) exact_size: bool,
    /// Whether the data unit of the cipher may differ from a block with its signature
    /// ([`PreparedConfig::with_any_data_unit`]).
    any_data_unit: bool,
    /// Selects the mkey's PSV numbers that go into the BSF of a block signature: all ones in the upper 32
    /// bits for the PSV of the wire domain, and in the lower 32 bits for that of the memory domain.
    pub(super) psv_mask: u64,
    /// The domains whose PSVs a post sets by SET_PSVs, in the order of these requests. Only the first
    /// `psv_count` are valid.
    pub(super) psv_domains: [DomainKind; 2],
    /// The start values of both domains' PSVs, in the order of [`DomainKind`], see [`bsf::psv_start`].
    pub(super) psv_starts: [TransientSignature; 2],
    pub(crate) psv_count: u8,
}

impl PreparedConfig {
    /// Checks and encodes a configuration for all mkeys of a kind ([`Mkey::kind`]).
    ///
    /// A post takes each part that the configuration leaves out from the mkey. If the configuration leaves
    /// out the signature or the crypto properties of this kind of mkey, every post encodes the configuration
    /// again. For speed, the configuration should give both.
    ///
    /// # Errors
    /// For properties that no mkey of this kind can hold: [`ConfigError::NotASignatureMkey`],
    /// [`ConfigError::NotACryptoMkey`], [`ConfigError::SignatureUnsupported`],
    /// [`ConfigError::BlockSizeUnsupported`], [`ConfigError::EntriesWithBsf`],
    /// [`ConfigError::DigestWithXtsUnsupported`], [`ConfigError::DigestNotOverCiphertext`],
    /// [`ConfigError::BothSignaturesOutsideCipher`] and [`ConfigError::DataUnitNotBlock`]. If the
    /// configuration gives only one of signature and crypto, posting may also return the last four.
    pub fn new(kind: MkeyKind, config: &MkeyConfig) -> Result<Self, ConfigError> {
        Self::prepare(kind, config, false)
    }

    /// Prepares a change of the access rights alone, for all mkeys of the kind of `mkey`.
    ///
    /// ```
    /// use mlx5_mkey::error::PostError;
    /// use mlx5_mkey::mkey::{Access, KlmEntry, Mkey};
    /// use mlx5_mkey::queue::{Doorbell, SendQueue};
    /// use mlx5_mkey::wqe::PreparedConfig;
    /// /// Lays a plain mkey over a list that a peer may read.
    /// fn lay<D: Doorbell>(
    ///     queue: &mut SendQueue<'_, D>,
    ///     mkey: &mut Mkey,
    ///     entries: &[KlmEntry],
    /// ) -> Result<(), PostError> {
    ///     let readable = PreparedConfig::access(mkey, Access::REMOTE_READ)?;
    ///     queue.request(1).configure_mkey(mkey, &readable, entries)?;
    ///     queue.ring_doorbell();
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::EntriesWithBsf`].
    pub fn access(mkey: &Mkey, access: Access) -> Result<Self, ConfigError> {
        Self::new(mkey.kind(), &MkeyConfig { access: Some(access), ..MkeyConfig::UNCHANGED })
    }

    /// Prepares a configuration like [`PreparedConfig::new`], without the error
    /// [`ConfigError::DataUnitNotBlock`]: if the cipher is around the signature, the data unit may differ
    /// from a block with its signature. The reference provider accepts these data units too.
    ///
    /// The data can then be read back only from its beginning, because data units begin within blocks. A
    /// transfer that begins at a later block would begin within a data unit, but each tweak belongs to a
    /// whole unit.
    ///
    /// # Errors
    /// The other errors of [`PreparedConfig::new`].
    pub fn with_any_data_unit(kind: MkeyKind, config: &MkeyConfig) -> Result<Self, ConfigError> {
        Self::prepare(kind, config, true)
    }

    fn prepare(kind: MkeyKind, config: &MkeyConfig, any_data_unit: bool) -> Result<Self, ConfigError> {
        let keeps_signature = kind.signature.is_some() && config.signature == SignatureChange::Keep;
        let keeps_crypto = kind.crypto.is_some() && config.crypto.is_none();
        let plan = Plan::new(&kind, config, &InForce::NOTHING, any_data_unit)?;
        // An mkey whose entries all have one length (KSM) accepts no layout inside a request. The flag
        // `finished_later` makes posting call `PreparedConfig::completed`, which refuses the layout.
        let is_finished_later = plan.exact_size || kind.form == UmrForm::Minimal || kind.entry_size.is_some();
        let flags = ConfigFlags::new()
            .with_keeps(keeps_signature || keeps_crypto)
            .with_finished_later(is_finished_later);
        let kind_word = KindWord::of(kind).with_config(flags);
        Ok(Self { config: *config, any_data_unit, ..Self::encode(kind_word, kind, &plan) })
    }

    /// Returns the configuration to write for an mkey: `self`, or a newly encoded one, which is stored in
    /// `place`. There are two reasons for a new encoding: `self` keeps a part of the mkey that the request
    /// may have to write again, or a digest begins anew after a signature error.
    ///
    /// # Errors
    /// [`ConfigError`] if the mkey is of another kind, or cannot take the configuration in its state.
    pub(crate) fn completed<'a>(
        &'a self,
        mkey: &Mkey,
        layout: LayoutForm,
        place: &'a mut Option<Self>,
    ) -> Result<&'a Self, ConfigError> {
        if self.kind_word.without_flags() != mkey.kind_word.without_flags() {
            return Err(ConfigError::OtherKind);
        }
        if let Some(size) = self.kind.entry_size
            && layout.octowords > 0
        {
            return Err(ConfigError::OtherEntries { layout: None, mkey: Some(size) });
        }
        mkey.check_state(&self.config, layout)?;
        let restarts_digest = self.own_digest().is_some() && mkey.error_count_pending;
        if !restarts_digest && !self.kind_word.config().keeps() {
            return Ok(self);
        }
        let plan = mkey.plan(&self.config, self.any_data_unit)?;
        let completed = place.insert(Self::encode(self.kind_word.without_flags(), self.kind, &plan));
        completed.changes = self.changes;
        completed.encode_changes();
        Ok(completed)
    }

    /// Makes the configuration also change the PCIe ordering of the mkey's transfers. `ordering` selects the
    /// orderings that change. The device must allow it:
    /// [`relaxed_ordering_umr`](crate::command::GeneralCapabilities::relaxed_ordering_umr). The selected
    /// orderings become relaxed if `relaxed` is true, otherwise strict.
    pub fn with_relaxed_ordering(mut self, ordering: RelaxedOrdering, relaxed: bool) -> Self {
        self.changes.relaxed_ordering = Some((ordering, relaxed));
        self.encode_changes();
        self
    }

    /// Makes the configuration also set whether the peer may invalidate the key
    /// ([`MkeyFeatures::remote_invalidate`](crate::command::MkeyFeatures)).
    pub fn with_remote_invalidate(mut self, allowed: bool) -> Self {
        self.changes.remote_invalidate = Some(allowed);
        self.encode_changes();
        self
    }

    /// Makes the configuration also set the address at which the mkey's space begins. Requests then name the
    /// first byte by this address. A new mkey has the start address 0. A later configuration without a start
    /// address keeps that of the mkey.
    ///
    /// # Errors
    /// [`ConfigError::StartWithBsf`] for a kind of mkey with signature or crypto. Posting returns
    /// [`ConfigError::SpaceBehindEnd`] for a layout that would end beyond the last address.
    pub fn with_start_address(mut self, start: u64) -> Result<Self, ConfigError> {
        if start != 0 && (self.kind.signature.is_some() || self.kind.crypto.is_some()) {
            return Err(ConfigError::StartWithBsf);
        }
        self.changes.start_address = Some(start);
        self.encode_changes();
        Ok(self)
    }

    /// Encodes the changes of single fields, as far as they are independent of the layout.
    /// [`PreparedConfig::finish_context`] encodes the rest.
    fn encode_changes(&mut self) {
        let FieldChanges { relaxed_ordering, remote_invalidate, start_address } = self.changes;
        let mut mask = self.umr.mask();
        if let Some((ordering, relaxed)) = relaxed_ordering {
            mask = mask.with_relaxed_ordering_write(ordering.write).with_relaxed_ordering_read(ordering.read);
            let byte = OrderingByte::new().with_relaxed_ordering_write(ordering.write && relaxed);
            self.context.ordering = byte.into_bits();
        }
        if let Some(allowed) = remote_invalidate {
            mask = mask.with_en_rinval(true);
            let flags = self.context.flags_pd_word().with_remote_invalidate(allowed);
            self.context.flags_pd = U32::new(flags.into_bits());
        }
        if start_address.is_some() {
            mask = mask.with_start_addr(true);
        }
        self.umr.mkey_mask = U64::new(mask.into_bits());
        if start_address.is_some() || relaxed_ordering.is_some_and(|(ordering, _)| ordering.read) {
            self.kind_word.set_config(self.kind_word.config().with_finished_later(true));
        }
    }

    /// Writes the changed fields that lie after the first octoword of an mkey context: start address and read
    /// ordering. Refuses a start address from which `length` bytes would reach beyond the last address.
    pub(super) fn finish_context(&self, context: &mut MkeyContext, length: u64) -> Result<(), ConfigError> {
        if let Some(start) = self.changes.start_address {
            ConfigError::check_space(start, length)?;
            context.start_addr = U64::new(start);
        }
        if let Some((ordering, relaxed)) = self.changes.relaxed_ordering {
            context.page = PageByte::new().with_relaxed_ordering_read(ordering.read && relaxed).into_bits();
        }
        Ok(())
    }

    fn encode(kind_word: KindWord, kind: MkeyKind, plan: &Plan) -> Self {
        let is_complete = kind.form == UmrForm::Complete;
        let mut mask = MkeyMask::new().with_free(true).with_mkey(is_complete).with_len(true);
        let mut flags = FlagsPd::new();
        if plan.config.access.is_some() {
            mask =
                mask.with_local_write(true).with_remote_read(true).with_remote_write(true).with_atomic(true);
        }
        if let Some(enable) = plan.bsf_enable(&kind) {
            mask = mask.with_bsf_enable(true);
            flags = flags.with_bsf_enable(enable);
        }
        let mut prepared = Self {
            kind_word,
            kind,
            config: plan.config,
            changes: FieldChanges::default(),
            umr: UmrControlSegment {
                flags: UmrFlags::new().with_inline(true).into_bits(),
                mkey_mask: U64::new(mask.into_bits()),
                ..UmrControlSegment::default()
            },
            context: MkeyContext {
                access: plan.config.access.unwrap_or_default().to_wire().into_bits(),
                qpn_mkey: U32::new(QpnMkey::UNBOUND.into_bits()),
                flags_pd: U32::new(flags.into_bits()),
                ..MkeyContext::default()
            },
            max_length: plan.max_length(&kind),
            bsfs: [ZEROS; 2],
            bsf_count: 0,
            exact_size: plan.exact_size,
            any_data_unit: false,
            psv_mask: 0,
            psv_domains: [DomainKind::Wire; 2],
            psv_starts: [TransientSignature::default(); 2],
            psv_count: 0,
        };
        if plan.writes_bsfs {
            prepared.encode_bsfs();
        }
        if plan.sets_psvs {
            prepared.encode_psvs();
        }
        prepared
    }

    /// Returns the size code of the configuration's BSFs.
    const fn bsf_size(&self) -> u8 {
        match (self.kind.signature, &self.config.crypto, &self.config.signature) {
            (Some(_), Some(_), _) => BsfSize::SIGNATURE_AND_CRYPTO,
            (Some(_), None, SignatureChange::Digest(_)) => BsfSize::EXTENDED,
            _ => BsfSize::WITH_INLINE,
        }
    }

    fn encode_bsfs(&mut self) {
        let size = self.bsf_size();
        let mut free = self.bsfs.iter_mut();
        if self.kind.signature.is_some()
            && let Some(slot) = free.next()
        {
            let signature = self.config.signature.signature();
            *slot = match self.config.signature.digest() {
                Some(digest) => transmute!(bsf::digest(digest, size)),
                None => transmute!(bsf::signature(signature, size)),
            };
            let in_domain = |kind| signature.is_some_and(|signature| signature.domain(kind).is_some());
            self.psv_mask = if in_domain(DomainKind::Wire) { 0xffff_ffff << 32 } else { 0 }
                | if in_domain(DomainKind::Memory) { 0xffff_ffff } else { 0 };
            self.bsf_count += 1;
        }
        if let (Some(crypto), Some(engine)) = (&self.config.crypto, self.kind.crypto)
            && let Some(slot) = free.next()
        {
            *slot = transmute!(bsf::crypto(crypto, engine, size));
            self.bsf_count += 1;
        }
        self.umr.bsf_octowords = U16::new(u16::from(self.bsf_count) * OCTOWORDS_PER_BLOCK as u16);
    }

    fn encode_psvs(&mut self) {
        let mut free = self.psv_domains.iter_mut();
        // The reference provider sets the PSV of the memory domain first.
        for (kind, start) in [DomainKind::Memory, DomainKind::Wire].into_iter().zip(&mut self.psv_starts) {
            let signature = self.config.signature.signature().and_then(|signature| signature.domain(kind));
            let digest = self.config.signature.digest().filter(|digest| digest.domain == kind);
            let value = match (signature, digest) {
                (Some(domain), _) => bsf::psv_start(&domain.signature),
                (None, Some(digest)) => bsf::crc32_start(digest.seed),
                (None, None) => continue,
            };
            if let Some(slot) = free.next() {
                (*slot, *start) = (kind, value);
                self.psv_count += 1;
            }
        }
    }

    /// Returns the configuration, including later changes in place.
    pub const fn config(&self) -> &MkeyConfig {
        &self.config
    }

    /// Returns whether the UMR writes the word with queue pair and tag.
    pub(super) fn writes_tag(&self) -> bool {
        self.kind.form == UmrForm::Complete
    }

    /// Returns the domain of the digest, if the configuration has one that uses the mkey's own PSV.
    pub(super) fn own_digest(&self) -> Option<DomainKind> {
        let digest = self.config.signature.digest()?;
        (digest.span == DigestSpan::Mkey).then_some(digest.domain)
    }

    /// Returns how many data bytes are among the `length` bytes that an mkey maps. `length` is at most
    /// 2^32 - 1.
    pub(super) fn data_bytes(&self, length: u64) -> Result<u32, ConfigError> {
        let data = self.config.signature.digest().map_or(Some(length), |digest| digest.data_bytes(length));
        match data {
            Some(data) if data > 0 || self.config.signature.digest().is_none() => Ok(data as u32),
            _ => Err(ConfigError::DigestWithoutData { length: length as u8 }),
        }
    }

    /// Returns the error for an mkey that would map `length` bytes, more than `max_length`.
    #[cold]
    pub(super) fn too_long(&self, length: u64) -> ConfigError {
        match (&self.config.crypto, self.kind.crypto) {
            (Some(crypto), Some(XtsEngine::SingleBlock)) => {
                let length = u32::try_from(length).unwrap_or(u32::MAX);
                ConfigError::LengthOverDataUnit { length, unit: crypto.data_unit }
            }
            _ => {
                let mebibytes = u32::try_from(length.div_ceil(1 << 20)).unwrap_or(u32::MAX);
                ConfigError::LengthOver32Bits { mebibytes }
            }
        }
    }
}

#[cfg(test)]
mod tests;
