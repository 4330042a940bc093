//! Ready-made configurations: posting one copies its blocks.

use super::{Sink, set_psv, umr};
use crate::error::ConfigError;
use crate::mkey::{
    DomainKind, InForce, Kept, ListEntry, Mkey, MkeyConfig, Numbers, Outline, Outlines, PsvStarts,
    SignatureChange, SignatureWords, XtsEngine,
};
use crate::types::{Key, Tweak};
use crate::wire::bsf::{CryptoBsf, SignatureBsf};
use crate::wire::ctrl::ControlSegment;
use crate::wire::mkey_context::{FlagsPd, MkeyContext};
use crate::wire::psv::SetPsvSegment;
use crate::wire::umr::{MkeyMask, UmrHead};
use crate::wire::{
    Block, MAX_WHOLE_BLOCKS, OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, Octoword, UMR_HEAD_BLOCKS, ZEROS, blocks_of,
};
use core::array;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes, Unaligned, transmute, transmute_mut};

/// The most octowords of layout and BSFs in a request.
const MAX_OCTOWORDS: usize = (MAX_WHOLE_BLOCKS - UMR_HEAD_BLOCKS) * OCTOWORDS_PER_BLOCK;

/// A whole configuration of one mkey, made ready: its requests are built and checked once and then posted any number of times,
/// with new addresses, another tweak or another reference tag in between
/// ([`Request::configure_from`](crate::queue::Request::configure_from)).
///
/// A template is its mkey's, and goes with it: another mkey that gets the same key later needs templates of its own.
///
/// The mkey does not copy what stands in the template: a later configuration may leave the template's signature and crypto in
/// force, but where they must be written again, with the other of the two or after a signature error, it has to give them
/// ([`ConfigError::StateUnknown`]).
///
/// `ENTRIES` is the number of translation entries: those of the layout, and of an interleaved one its header. `BSFS` is one for
/// a signature (with crypto also for one that is reset) and one for crypto, `PSVS` the number of domains with a signature: 0 to 2
/// each. Four pieces, T10-DIF on the wire and AES-XTS make `MkeyTemplate<4, 2, 1>`. Known to the compiler, the numbers make
/// posting a copy without a loop.
///
/// ```
/// use mlx5_mkey::mkey::{Access, Layout, ListEntry, Mkey, MkeyAttributes, MkeyConfig};
/// use mlx5_mkey::types::Key;
/// use mlx5_mkey::wqe::MkeyTemplate;
/// let mkey = Mkey::new(MkeyAttributes::plain(Key::from_raw(0x1234_00), 4));
/// let piece = |address| ListEntry::new(address, 4096, Key::from_raw(0x5600));
/// let pieces = [piece(0x1000)?];
/// let config = MkeyConfig { access: Some(Access::ALL), layout: Some(Layout::list(&pieces)), ..MkeyConfig::KEEP };
/// let mut template = MkeyTemplate::<1>::new(&mkey, &config)?;
/// template.set_entry(0, piece(0x9000)?)?;
/// assert_eq!(template.length(), 4096);
/// # Ok::<(), mlx5_mkey::error::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MkeyTemplate<const ENTRIES: usize, const BSFS: usize = 0, const PSVS: usize = 0> {
    /// See [`Mkey::takes`]. Its low half is the key.
    ticket: u64,
    numbers: Numbers,
    /// The parts of the UMR.
    head: [Block; UMR_HEAD_BLOCKS],
    entries: [Octoword; ENTRIES],
    /// That of a signature comes before that of crypto.
    bsfs: [Block; BSFS],
    /// Entries that can be replaced: those of a list layout.
    replaceable: usize,
    /// The most bytes that the mkey may have.
    max_length: u64,
    /// The SET_PSVs behind the UMR, but for their control segments.
    psvs: [SetPsvSegment; PSVS],
    /// What is known of the mkey once the requests are posted.
    in_force: InForce,
    /// Whether the memory and the wire domain have a reference tag.
    ref_tags: [bool; 2],
    /// What the parts that agree are found by, where there are two domains.
    signature: Option<SignatureWords>,
    crypto: Option<XtsEngine>,
}

/// Collects the octowords of a request, as far as there is room.
struct Collector<'b> {
    octowords: &'b mut [Octoword],
    at: usize,
    entries_at: usize,
}

impl Collector<'_> {
    fn write(&mut self, at: usize, part: &(impl IntoBytes + Immutable + ?Sized)) -> usize {
        let octowords = part.as_bytes().as_chunks().0;
        self.octowords.iter_mut().skip(at).zip(octowords).for_each(|(slot, octoword)| *slot = *octoword);
        at + octowords.len()
    }
}

impl Sink for Collector<'_> {
    fn put<B: IntoBytes + Immutable + Unaligned>(&mut self, part: B) {
        self.at = self.write(self.at, &part);
    }

    fn leave_entries(&mut self, blocks: usize) {
        self.entries_at = self.at;
        self.at += blocks * OCTOWORDS_PER_BLOCK;
    }

    fn put_entries<T: Copy + IntoBytes + Immutable + Unaligned>(&mut self, entries: &[T]) {
        // What they do not fill is zero from the beginning.
        self.write(self.entries_at, entries);
        self.entries_at += blocks_of(entries.len()) * OCTOWORDS_PER_BLOCK;
    }

    fn skip(&mut self, octowords: usize) {
        self.at += octowords;
    }
}

impl<const ENTRIES: usize, const BSFS: usize, const PSVS: usize> MkeyTemplate<ENTRIES, BSFS, PSVS> {
    /// Makes the requests of `config` for `mkey`, which is not changed yet.
    ///
    /// # Errors
    /// [`ConfigError`]: what the mkey cannot hold; [`ConfigError::StateUnknown`] unless the configuration gives all that the
    /// mkey can have (signature as a change to set or to reset), since a template may be posted in any state;
    /// [`ConfigError::TemplateSize`] where it has other numbers of entries, BSFs and PSVs.
    pub fn new(mkey: &Mkey, config: &MkeyConfig<'_>) -> Result<Self, ConfigError> {
        mkey.check_complete(config)?;
        let mut kept = Kept::default();
        let plan = mkey.plan(config, MAX_OCTOWORDS, &mut kept)?.without_error_count();
        let needed = plan.layout.map_or(0, |layout| layout.octowords());
        check_size("entries", ENTRIES, needed)?;
        check_size("BSFs", BSFS, plan.bsf_blocks())?;
        check_size("PSVs", PSVS, plan.psvs)?;
        let mut blocks = [ZEROS; MAX_WHOLE_BLOCKS];
        let mut collector = Collector { octowords: blocks.as_flattened_mut(), at: 0, entries_at: 0 };
        umr::configure(&plan, mkey.numbers(), ControlSegment::default(), &mut collector);
        umr::layout(&plan, &mut collector);
        // All of them are there, by the limit of the plan.
        let block = |at| blocks.get(at).copied().unwrap_or(ZEROS);
        let octoword = |at| blocks.as_flattened().get(at).copied().unwrap_or_default();
        let mut psvs = [SetPsvSegment::default(); PSVS];
        if let Some((PsvStarts { first, last, .. }, last_domain)) = plan.set_psvs {
            let segment = |domain, start| set_psv::segment(mkey.numbers().psv_word(domain), start);
            let segments = [segment(last_domain, *last), segment(DomainKind::Memory, *first)];
            psvs.iter_mut().rev().zip(segments).for_each(|(slot, segment)| *slot = segment);
        }
        let (replaceable, length) = match &config.layout {
            Some(layout) if layout.is_interleaved() => (0, layout.length()),
            Some(layout) => (ENTRIES, layout.length()),
            None => (0, 0),
        };
        let signature = match config.signature {
            SignatureChange::Set(block) => Some(*block.words()),
            SignatureChange::Keep | SignatureChange::Reset => None,
        };
        let outlines = Outlines {
            signature: signature.map_or(Outline::NONE, |words| words.outline()),
            data_unit: config.crypto.map(|crypto| crypto.properties().data_unit),
        };
        Ok(Self {
            ticket: mkey.own_ticket(),
            numbers: *mkey.numbers(),
            head: array::from_fn(block),
            entries: array::from_fn(|at| octoword(UMR_HEAD_BLOCKS * OCTOWORDS_PER_BLOCK + at)),
            bsfs: array::from_fn(|at| block(UMR_HEAD_BLOCKS + blocks_of(ENTRIES) + at)),
            replaceable,
            max_length: match (plan.crypto_bsf, plan.engine) {
                (Some(crypto), engine) => crypto.wire().for_engine(engine).max_length,
                (None, _) if plan.signature_bsf.is_none() => u64::MAX,
                (None, _) => u32::MAX.into(),
            },
            psvs,
            in_force: InForce::by_template(length, outlines),
            ref_tags: [DomainKind::Memory, DomainKind::Wire]
                .map(|domain| signature.is_some_and(|words| words.has_ref_tag(domain))),
            signature,
            crypto: plan.crypto_bsf.map(|_| plan.engine),
        })
    }

    /// Returns the key of the mkey that it was made for.
    pub const fn key(&self) -> Key {
        Key::from_raw(self.ticket as u32)
    }

    /// Returns how many bytes of memory the layout maps.
    pub const fn length(&self) -> u64 {
        self.in_force.length()
    }

    /// Replaces an entry of a list layout.
    ///
    /// # Errors
    /// [`ConfigError::NoSuchEntry`] for an index behind the last, and for an interleaved layout;
    /// [`ConfigError::LengthOver32Bits`] or [`ConfigError::LengthOverDataUnit`] where the mkey becomes too long.
    #[inline]
    pub fn set_entry(&mut self, index: usize, entry: ListEntry) -> Result<(), ConfigError> {
        let (old_length, max_length) = (self.in_force.length(), self.max_length);
        let slot = self.replaceable(index)?;
        let [old, _]: [U64; 2] = transmute!(*slot);
        let length = old_length - (old.get() >> 32) + u64::from(entry.length());
        if length > max_length {
            return Err(self.too_long(length));
        }
        *slot = transmute!(entry);
        if length != old_length {
            self.in_force.set_length(length);
            let [_, context] = &mut self.head;
            let context: &mut MkeyContext = transmute_mut!(context);
            context.len = U64::new(length);
        }
        Ok(())
    }

    /// Replaces the address of one entry of a list; its length and key stay.
    ///
    /// # Errors
    /// [`ConfigError::NoSuchEntry`] for an index behind the last, and for an interleaved layout.
    #[inline]
    pub fn set_address(&mut self, index: usize, address: u64) -> Result<(), ConfigError> {
        let words: &mut [U64; 2] = transmute_mut!(self.replaceable(index)?);
        let [_, old] = words;
        *old = U64::new(address);
        Ok(())
    }

    /// Replaces the tweak of the first data unit.
    ///
    /// # Errors
    /// [`ConfigError::NotACryptoMkey`].
    #[inline]
    pub fn set_tweak(&mut self, tweak: Tweak) -> Result<(), ConfigError> {
        // One question for the engine of new devices; the others take a call.
        if self.crypto != Some(XtsEngine::MultiBlock) {
            return self.set_other_tweak(tweak);
        }
        *self.tweak()? = XtsEngine::MultiBlock.tweak_bytes(tweak);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn set_other_tweak(&mut self, tweak: Tweak) -> Result<(), ConfigError> {
        let engine = self.crypto.ok_or(ConfigError::NotACryptoMkey)?;
        *self.tweak()? = engine.tweak_bytes(tweak);
        Ok(())
    }

    /// Returns the tweak of an mkey with crypto: the last BSF is its.
    #[inline(always)]
    fn tweak(&mut self) -> Result<&mut [u8; 16], ConfigError> {
        let block = self.bsfs.last_mut().ok_or(ConfigError::NotACryptoMkey)?;
        let bsf: &mut CryptoBsf = transmute_mut!(block);
        Ok(&mut bsf.xts_initial_tweak)
    }

    /// Replaces the reference tag of the first block, in a domain that has a T10-DIF.
    ///
    /// # Errors
    /// [`ConfigError::NotASignatureMkey`] where that domain has none.
    #[inline]
    pub fn set_ref_tag(&mut self, domain: DomainKind, ref_tag: u32) -> Result<(), ConfigError> {
        let absent = ConfigError::NotASignatureMkey;
        let [memory, wire] = self.ref_tags;
        // PSVs are set memory before wire, and begin with guard and application tag.
        let (present, number) = match domain {
            DomainKind::Memory => (memory, 0),
            DomainKind::Wire => (wire, usize::from(PSVS == 2)),
        };
        if !present {
            return Err(absent);
        }
        let words = self.signature.as_mut().filter(|_| PSVS == 2);
        write_ref_tag(self.bsfs.first_mut().ok_or(absent)?, domain, ref_tag, words);
        let psv: &mut [U32; 4] = transmute_mut!(self.psvs.get_mut(number).ok_or(absent)?);
        let [.., start] = psv;
        *start = U32::new(ref_tag);
        Ok(())
    }

    #[cold]
    fn too_long(&self, length: u64) -> ConfigError {
        match (self.crypto, self.in_force.outlines()) {
            (Some(XtsEngine::SingleBlock), Some(Outlines { data_unit: Some(unit), .. })) => {
                ConfigError::LengthOverDataUnit { length, unit: unit.bytes() }
            }
            _ => ConfigError::LengthOver32Bits { length },
        }
    }

    /// Returns an entry of a list.
    #[inline(always)]
    fn replaceable(&mut self, index: usize) -> Result<&mut Octoword, ConfigError> {
        let missing = ConfigError::NoSuchEntry { index, entries: self.replaceable };
        if index >= self.replaceable {
            return Err(missing);
        }
        self.entries.get_mut(index).ok_or(missing)
    }

    /// Returns the SET_PSVs, but for their control segments.
    #[inline(always)]
    pub(crate) const fn psvs(&self) -> &[SetPsvSegment; PSVS] {
        &self.psvs
    }

    /// Returns what is known of the mkey once the requests are posted.
    #[inline(always)]
    pub(crate) const fn in_force(&self) -> InForce {
        self.in_force
    }

    /// Returns what a settled mkey of this key has too.
    #[inline(always)]
    pub(crate) const fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Returns the numbers of the mkey that it was made for.
    #[inline(always)]
    pub(crate) const fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Returns the blocks of the UMR.
    #[inline(always)]
    pub(crate) const fn umr_blocks(&self) -> usize {
        UMR_HEAD_BLOCKS + blocks_of(ENTRIES) + BSFS
    }

    /// Returns the blocks of UMR and SET_PSVs.
    #[inline(always)]
    pub(crate) const fn blocks(&self) -> usize {
        self.umr_blocks() + PSVS * set_psv::BLOCKS
    }

    /// Refuses what is too long for a request with `max_octowords` of layout and BSFs, as [`Mkey::plan`] does.
    pub(crate) const fn check_room(&self, max_octowords: usize) -> Result<(), ConfigError> {
        if ENTRIES > max_octowords {
            // An interleaved layout has a header, and no entry of it can be replaced.
            let header = (self.replaceable == 0) as usize;
            let (entries, max) = (ENTRIES - header, max_octowords.saturating_sub(header));
            return Err(ConfigError::TooManyEntries { entries, max });
        }
        let octowords = (self.umr_blocks() - UMR_HEAD_BLOCKS) * OCTOWORDS_PER_BLOCK;
        if BSFS > 0 && octowords > max_octowords {
            let (bytes, max) = (octowords * OCTOWORD_BYTES, max_octowords * OCTOWORD_BYTES);
            return Err(ConfigError::BsfDoesNotFit { bytes, max });
        }
        Ok(())
    }

    /// Hands on the blocks of the UMR with its control segment and, if it is to be written, the error count.
    #[inline(always)]
    pub(crate) fn configure(&self, error_count: Option<bool>, control: ControlSegment, sink: &mut impl Sink) {
        const ZERO: Octoword = [0; OCTOWORD_BYTES];
        if let Some(count) = error_count {
            let [head, context] = self.head;
            let mut head: UmrHead = transmute!(head);
            head.ctrl = control;
            head.umr.mkey_mask |= U64::new(MkeyMask::new().with_sig_err(true).into_bits());
            let mut context: MkeyContext = transmute!(context);
            context.flags_pd |= U32::new(FlagsPd::new().with_sig_err_count(count).into_bits());
            sink.put(head);
            sink.put(context);
        } else {
            let [[_, umr, ..], [first, second, ..]] = &self.head;
            // The second halves of both are reserved, and cheaper written than copied.
            sink.put(control);
            sink.put(*umr);
            sink.put([ZERO; 2]);
            sink.put(*first);
            sink.put(*second);
            sink.put([ZERO; 2]);
        }
        let (blocks, rest) = self.entries.as_chunks::<OCTOWORDS_PER_BLOCK>();
        blocks.iter().for_each(|block| sink.put(*block));
        rest.iter().for_each(|entry| sink.put(*entry));
        // Up to a whole block.
        for _ in ENTRIES..blocks_of(ENTRIES) * OCTOWORDS_PER_BLOCK {
            sink.put(ZERO);
        }
        self.bsfs.iter().for_each(|bsf| sink.put(*bsf));
    }
}

/// Refuses a template that has another number of these than its configuration.
const fn check_size(what: &'static str, has: usize, needed: usize) -> Result<(), ConfigError> {
    if has == needed { Ok(()) } else { Err(ConfigError::TemplateSize { what, has, needed }) }
}

/// Writes a reference tag into the BSF of a signature, whose words are given if it has two domains.
#[inline(always)]
fn write_ref_tag(block: &mut Block, domain: DomainKind, ref_tag: u32, words: Option<&mut SignatureWords>) {
    let bsf: &mut SignatureBsf = transmute_mut!(block);
    let inline = match domain {
        DomainKind::Memory => &mut bsf.memory_inline,
        DomainKind::Wire => &mut bsf.wire_inline,
    };
    inline.ref_tag = U32::new(ref_tag);
    // Where nothing else is said, the parts that agree in both domains are copied.
    if let Some(words) = words
        && words.set_ref_tag(domain, ref_tag).is_ok()
        && let Some(mask) = words.effective_copy_mask()
    {
        bsf.wire = mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PostError;
    use crate::mkey::{
        Access, BlockSignature, Crypto, Direction, Domain, Escape, Guard, Interleaved, InterleavedEntry,
        Keytag, Layout, List, MkeyAttributes, ReadyCrypto, Signature, SignatureAttributes, SignatureError,
        SignatureFault, SignatureOrder, T10Dif,
    };
    use crate::queue::{Doorbell, DoorbellRecord, SendQueue, SendQueueConfig};
    use crate::types::{BlockSize, DekId, PsvIndex, Qpn, Seed};
    use crate::wire::Wqebb;
    use crate::wire::cqe::SignatureErrorCqe;
    use std::vec;
    use std::vec::Vec;

    struct Silent;

    impl Doorbell for Silent {
        fn ring(&mut self, _: [u8; 8]) {}
    }

    type Queue<'r> = SendQueue<'r, Silent, 64>;

    /// Returns the blocks that `post` writes, from block 60 of 64 on, so that the ring's end comes in between.
    fn posted(post: impl FnOnce(&mut Queue<'_>)) -> Vec<Wqebb> {
        let (mut ring, record) = (vec![Wqebb([0xa5; 64]); 64], DoorbellRecord::new());
        let config = SendQueueConfig { first_block: 60, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
        let mut queue = Queue::new(config, &mut ring, &record, Silent).unwrap();
        post(&mut queue);
        (60..queue.producer()).map(|index| queue.block(index)).collect()
    }

    fn mkey(signature: bool, engine: Option<XtsEngine>) -> Mkey {
        let psv = PsvIndex::from_low_bits;
        let signature = signature.then_some(SignatureAttributes::new(psv(0x11), psv(0x22)));
        let key = Key::from_raw(0x0012_3400);
        Mkey::new(MkeyAttributes { signature, crypto: engine, ..MkeyAttributes::plain(key, 16) })
    }

    fn entry(address: u64, length: u32) -> ListEntry {
        ListEntry::new(address, length, Key::from_raw(0x5600)).unwrap()
    }

    fn dif(ref_tag: u32) -> Domain {
        let (guard, seed, escape) = (Guard::Crc, Seed::Ones, Escape::Never);
        let dif = T10Dif { guard, seed, app_tag: 0x1234, ref_tag, ref_remap: true, escape };
        Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 }
    }

    fn crypto(tweak: u64) -> ReadyCrypto {
        ReadyCrypto::new(Crypto {
            direction: Direction::EncryptOnTx,
            order: SignatureOrder::BeforeCryptoOnTx,
            data_unit: BlockSize::B4096,
            tweak: Tweak::from_lba(tweak),
            dek: DekId::from_low_bits(7),
            keytag: Keytag::default(),
        })
    }

    /// What an mkey makes of an error of its wire domain.
    fn hurt(mut mkey: Mkey) -> (Mkey, Option<SignatureError>) {
        let fault = SignatureFault {
            mkey: mkey.key().index(),
            syndrome: SignatureErrorCqe::SYNDROME_GUARD,
            sig_type: SignatureErrorCqe::TYPE_BLOCK,
            domain: SignatureErrorCqe::DOMAIN_WIRE,
            expected: 0,
            actual: 1 << 48,
            offset: 519,
        };
        mkey.record(&fault);
        let error = mkey.clone().check().ok().flatten();
        (mkey, error)
    }

    /// Posts `config` both ways to copies of `mkey`, three times each, and compares bytes and what is known of the mkeys.
    fn agree<const ENTRIES: usize, const BSFS: usize, const PSVS: usize>(
        mkey: &Mkey,
        template: &MkeyTemplate<ENTRIES, BSFS, PSVS>,
        config: &MkeyConfig<'_>,
    ) {
        let (mut plain, mut ready) = (mkey.clone(), mkey.clone());
        for _ in 0..3 {
            let expected = posted(|queue| {
                queue.request(7).signaled().configure_mkey(&mut plain, config).unwrap();
            });
            let found = posted(|queue| {
                queue.request(7).signaled().configure_from(&mut ready, template).unwrap();
            });
            assert_eq!(found, expected);
            let known =
                |mkey: &Mkey| (mkey.length(), mkey.wire_length(), mkey.error_count(), hurt(mkey.clone()).1);
            assert_eq!(known(&ready), known(&plain));
            // A whole configuration leaves nothing of the template.
            let mut both = ready.clone();
            let then = posted(|queue| queue.request(8).configure_mkey(&mut both, config).unwrap());
            assert_eq!(
                then,
                posted(|queue| queue.request(8).configure_mkey(&mut plain.clone(), config).unwrap())
            );
            assert_eq!(both, plain);
        }
    }

    #[test]
    fn templates_write_what_configurations_write() {
        let mut list = List::<2>::new();
        (0..5).for_each(|i| list.push(entry(0x1000 * i, 512)).unwrap());
        let base = MkeyConfig { access: Some(Access::ALL), layout: Some(list.layout()), ..MkeyConfig::KEEP };
        let plain = mkey(false, None);
        let mut template = MkeyTemplate::<5>::new(&plain, &base).unwrap();
        agree(&plain, &template, &base);

        let entries =
            [entry(0, 512), entry(0x9000, 4096), entry(0x2000, 512), entry(0x3000, 512), entry(7, 1)];
        template.set_entry(1, entries[1]).unwrap();
        template.set_entry(0, entries[0]).unwrap();
        template.set_entry(4, ListEntry::new(0x777, 1, Key::from_raw(0x5600)).unwrap()).unwrap();
        template.set_address(4, 7).unwrap();
        let changed = MkeyConfig { layout: Some(Layout::list(&entries)), ..base };
        agree(&plain, &template, &changed);
        assert_eq!(template.set_entry(5, entries[0]), Err(ConfigError::NoSuchEntry { index: 5, entries: 5 }));
        assert_eq!(template.set_address(5, 0), Err(ConfigError::NoSuchEntry { index: 5, entries: 5 }));

        let streams = [InterleavedEntry::new(0, 512, 8, Key::from_raw(0x100)).unwrap(); 3];
        let interleaved = Interleaved::<1>::new(9, &streams).unwrap();
        let config = MkeyConfig { layout: Some(interleaved.layout()), ..base };
        let slices = MkeyConfig { layout: Some(Layout::interleaved(9, &streams).unwrap()), ..base };
        let mut template = MkeyTemplate::<4>::new(&plain, &config).unwrap();
        agree(&plain, &template, &slices);
        assert!(template.set_entry(0, entries[0]).is_err() && template.set_address(0, 1).is_err());
    }

    #[test]
    fn templates_carry_signatures_and_crypto() {
        let list = [entry(0, 512), entry(0x1000, 512)];
        let base =
            MkeyConfig { access: Some(Access::NONE), layout: Some(Layout::list(&list)), ..MkeyConfig::KEEP };
        let engine = Some(XtsEngine::MultiBlock);
        for (memory, wire) in [(3, 3), (3, 4)] {
            let (first, second) =
                (BlockSignature::both(dif(3), dif(3)), BlockSignature::both(dif(memory), dif(wire)));
            let change = |block| MkeyConfig { signature: SignatureChange::Set(block), ..base };
            let signature_mkey = mkey(true, None);
            let mut template = MkeyTemplate::<2, 1, 2>::new(&signature_mkey, &change(&first)).unwrap();
            template.set_ref_tag(DomainKind::Wire, wire).unwrap();
            template.set_ref_tag(DomainKind::Memory, memory).unwrap();
            agree(&signature_mkey, &template, &change(&second));
        }
        let (block, old, new) = (BlockSignature::wire(dif(9)), crypto(1), crypto(2));
        let config =
            |crypto| MkeyConfig { signature: SignatureChange::Set(&block), crypto: Some(crypto), ..base };
        let both = mkey(true, engine);
        let mut template = MkeyTemplate::<2, 2, 1>::new(&both, &config(&old)).unwrap();
        template.set_tweak(new.properties().tweak).unwrap();
        agree(&both, &template, &config(&new));
        assert_eq!(template.set_ref_tag(DomainKind::Memory, 1), Err(ConfigError::NotASignatureMkey));

        // After an error the count goes with the next configuration, once.
        let (mut hurt, error) = hurt(both.clone());
        assert_eq!(error, None, "nothing is configured yet");
        agree(&hurt, &template, &config(&new));
        hurt.forget();
        agree(&hurt, &template, &config(&new));

        let reset = MkeyConfig { signature: SignatureChange::Reset, ..base };
        let signature_mkey = mkey(true, None);
        agree(&signature_mkey, &MkeyTemplate::<2>::new(&signature_mkey, &reset).unwrap(), &reset);
        let both_reset = MkeyConfig { crypto: Some(&old), ..reset };
        agree(&both, &MkeyTemplate::<2, 2>::new(&both, &both_reset).unwrap(), &both_reset);
        let ciphered = mkey(false, Some(XtsEngine::SingleBlock));
        let config = MkeyConfig { crypto: Some(&old), ..base };
        let mut template = MkeyTemplate::<2, 1>::new(&ciphered, &config).unwrap();
        agree(&ciphered, &template, &config);
        assert_eq!(
            template.set_entry(0, entry(0, 4096)),
            Err(ConfigError::LengthOverDataUnit { length: 4608, unit: 4096 })
        );
        agree(&ciphered, &template, &config);
    }

    #[test]
    fn reference_tags_are_found_wherever_they_stand() {
        fn check<const BSFS: usize, const PSVS: usize>(
            engine: Option<XtsEngine>,
            of: fn(u32, u32) -> BlockSignature,
            domains: &[DomainKind],
        ) {
            let (list, cipher) = ([entry(0, 512)], crypto(1));
            let mkey = mkey(true, engine);
            let base = MkeyConfig {
                access: Some(Access::NONE),
                layout: Some(Layout::list(&list)),
                signature: SignatureChange::Keep,
                crypto: engine.map(|_| &cipher),
            };
            let config = MkeyConfig { signature: SignatureChange::Set(&of(3, 4)), ..base };
            let mut template = MkeyTemplate::<1, BSFS, PSVS>::new(&mkey, &config).unwrap();
            let mut tags = [3, 4];
            for (at, domain) in [DomainKind::Memory, DomainKind::Wire].into_iter().enumerate() {
                let result = template.set_ref_tag(domain, 70);
                if domains.contains(&domain) {
                    tags[at] = 70;
                    assert_eq!(result, Ok(()));
                } else {
                    assert_eq!(result, Err(ConfigError::NotASignatureMkey));
                }
                let changed = of(tags[0], tags[1]);
                agree(&mkey, &template, &MkeyConfig { signature: SignatureChange::Set(&changed), ..base });
            }
        }
        const BOTH: [DomainKind; 2] = [DomainKind::Memory, DomainKind::Wire];
        let [memory, wire] = BOTH.each_ref().map(core::slice::from_ref);
        let engine = Some(XtsEngine::MultiBlock);
        check::<1, 1>(None, |tag, _| BlockSignature::memory(dif(tag)), memory);
        check::<1, 1>(None, |_, tag| BlockSignature::wire(dif(tag)), wire);
        check::<1, 2>(None, |one, two| BlockSignature::both(dif(one), dif(two)), &BOTH);
        check::<2, 1>(engine, |tag, _| BlockSignature::memory(dif(tag)), memory);
        check::<2, 1>(engine, |_, tag| BlockSignature::wire(dif(tag)), wire);
        check::<2, 2>(engine, |one, two| BlockSignature::both(dif(one), dif(two)), &BOTH);
    }

    #[test]
    fn templates_are_whole_and_of_one_mkey() {
        let list = [entry(0, 512)];
        let config = MkeyConfig { layout: Some(Layout::list(&list)), ..MkeyConfig::KEEP };
        let plain = mkey(false, None);
        let missing = MkeyTemplate::<1>::new(&plain, &config).map(|_| ());
        assert_eq!(missing, Err(ConfigError::StateUnknown { missing: "access" }));
        let config = MkeyConfig { access: Some(Access::ALL), ..config };
        let refused = |what, has, needed| Err(ConfigError::TemplateSize { what, has, needed });
        assert_eq!(MkeyTemplate::<2>::new(&plain, &config).map(|_| ()), refused("entries", 2, 1));
        assert_eq!(MkeyTemplate::<1, 1>::new(&plain, &config).map(|_| ()), refused("BSFs", 1, 0));
        assert_eq!(MkeyTemplate::<1, 0, 1>::new(&plain, &config).map(|_| ()), refused("PSVs", 1, 0));
        let template = MkeyTemplate::<1>::new(&plain, &config).unwrap();
        let mut other = Mkey::new(MkeyAttributes::plain(Key::from_raw(0x9900), 16));
        let blocks = posted(|queue| {
            let refused = queue.request(1).configure_from(&mut other.clone(), &template);
            let error = ConfigError::OtherMkey { template: plain.key(), mkey: other.key() };
            assert_eq!(refused, Err(error.into()));
        });
        assert_eq!(blocks, []);
        other.forget();

        // The device has given the key to another mkey, with other PSVs.
        let (block, list) = (BlockSignature::wire(dif(9)), [entry(0, 512)]);
        let config = MkeyConfig {
            access: Some(Access::ALL),
            layout: Some(Layout::list(&list)),
            signature: SignatureChange::Set(&block),
            crypto: None,
        };
        let template = MkeyTemplate::<1, 1, 1>::new(&mkey(true, None), &config).unwrap();
        let psv = PsvIndex::from_low_bits;
        let signature = Some(SignatureAttributes::new(psv(0x33), psv(0x44)));
        let attributes = MkeyAttributes::plain(template.key(), 16);
        let mut other = Mkey::new(MkeyAttributes { signature, ..attributes });
        posted(|queue| queue.request(1).configure_mkey(&mut other, &config).unwrap());
        let blocks = posted(|queue| {
            let error = ConfigError::OtherMkey { template: template.key(), mkey: other.key() };
            assert_eq!(queue.request(1).configure_from(&mut other, &template), Err(error.into()));
        });
        assert_eq!(blocks, []);
    }

    #[test]
    fn a_template_is_of_one_kind_of_mkey() {
        let attributes = MkeyAttributes::plain(Key::from_raw(0x0012_3400), 16);
        let psv = PsvIndex::from_low_bits;
        let signature = Some(SignatureAttributes::new(psv(0x11), psv(0x22)));
        let kinds = [
            attributes,
            MkeyAttributes { max_entries: 4, ..attributes },
            MkeyAttributes { signature, ..attributes },
            MkeyAttributes { crypto: Some(XtsEngine::SingleBlock), ..attributes },
            MkeyAttributes { crypto: Some(XtsEngine::MultiBlock), ..attributes },
            MkeyAttributes { signature, crypto: Some(XtsEngine::MultiBlock), ..attributes },
        ];
        let (list, cipher) = ([entry(0, 64)], crypto(1));
        for made_for in kinds {
            let config = MkeyConfig {
                access: Some(Access::ALL),
                layout: Some(Layout::list(&list)),
                signature: if made_for.signature.is_some() {
                    SignatureChange::Reset
                } else {
                    SignatureChange::Keep
                },
                crypto: made_for.crypto.map(|_| &cipher),
            };
            for posted_on in kinds {
                let same = made_for == posted_on;
                let (made_for, mut posted_on) = (Mkey::new(made_for), Mkey::new(posted_on));
                // Known and told everything: what is refused is not refused for that.
                posted_on.told();
                let before = posted_on.clone();
                let error = ConfigError::OtherMkey { template: made_for.key(), mkey: posted_on.key() };
                let expected = if same { Ok(()) } else { Err(error.into()) };
                posted(|queue| {
                    let posted_on = &mut posted_on;
                    let result = match config.crypto.is_some() as u8
                        + 2 * (config.signature == SignatureChange::Reset) as u8
                    {
                        0 | 2 => post(queue, posted_on, &MkeyTemplate::<1>::new(&made_for, &config).unwrap()),
                        1 => post(queue, posted_on, &MkeyTemplate::<1, 1>::new(&made_for, &config).unwrap()),
                        _ => post(queue, posted_on, &MkeyTemplate::<1, 2>::new(&made_for, &config).unwrap()),
                    };
                    assert_eq!(result, expected, "{made_for:?} {posted_on:?}");
                });
                if expected.is_err() {
                    assert_eq!(posted_on, before);
                }
            }
        }
    }

    /// Posts a template twice: known to be free, and asked for.
    fn post<const E: usize, const B: usize, const P: usize>(
        queue: &mut Queue<'_>,
        mkey: &mut Mkey,
        template: &MkeyTemplate<E, B, P>,
    ) -> Result<(), PostError> {
        let first = queue.request(1).configure_from(mkey, template);
        assert_eq!(queue.batch().request(2).configure_from(mkey, template), first);
        first
    }

    #[test]
    fn a_template_fits_where_its_configuration_fits() {
        // Room for five octowords: more than a block, less than two.
        for (max_inline_data, most) in [(60, 4), (76, 5), (92, 6)] {
            let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
            let config =
                SendQueueConfig { max_inline_data, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
            let mut queue = Queue::new(config, &mut ring, &record, Silent).unwrap();
            let list = [entry(0, 64); 6];
            let streams = [InterleavedEntry::new(0, 64, 0, Key::from_raw(0x5600)).unwrap(); 5];
            let layouts: [Layout<'_>; 4] = [
                Layout::list(&list[..5]),
                Layout::list(&list),
                Layout::interleaved(1, &streams[..4]).unwrap(),
                Layout::interleaved(1, &streams).unwrap(),
            ];
            for layout in layouts {
                let config =
                    MkeyConfig { access: Some(Access::ALL), layout: Some(layout), ..MkeyConfig::KEEP };
                let mut mkeys = [mkey(false, None), mkey(false, None)];
                let plain = queue.request(1).configure_mkey(&mut mkeys[0], &config);
                let by_template = match layout.octowords() {
                    5 => post(
                        &mut queue,
                        &mut mkeys[1],
                        &MkeyTemplate::<5>::new(&mkey(false, None), &config).unwrap(),
                    ),
                    _ => post(
                        &mut queue,
                        &mut mkeys[1],
                        &MkeyTemplate::<6>::new(&mkey(false, None), &config).unwrap(),
                    ),
                };
                assert_eq!(by_template, plain);
                assert_eq!(plain.is_ok(), layout.octowords() <= most);
            }
        }
    }

    #[test]
    fn without_signature_and_crypto_lengths_have_64_bits() {
        let list = [entry(0, 1 << 31); 3];
        let base =
            MkeyConfig { access: Some(Access::ALL), layout: Some(Layout::list(&list)), ..MkeyConfig::KEEP };
        let reset = MkeyConfig { signature: SignatureChange::Reset, ..base };
        for (mkey, config) in [(mkey(false, None), base), (mkey(true, None), reset)] {
            let mut template = MkeyTemplate::<3>::new(&mkey, &config).unwrap();
            assert_eq!(template.set_entry(0, entry(7, 1 << 31)), Ok(()));
        }
    }

    #[test]
    fn what_a_template_brought_stays_but_is_not_written_again() {
        let (block, cipher) = (BlockSignature::wire(dif(9)), crypto(1));
        let list = [entry(0, 512)];
        let (whole, part) = (
            MkeyConfig {
                access: Some(Access::ALL),
                layout: Some(Layout::list(&list)),
                signature: SignatureChange::Set(&block),
                crypto: None,
            },
            MkeyConfig { layout: Some(Layout::list(&list)), ..MkeyConfig::KEEP },
        );
        let missing = |missing| Err(PostError::Config(ConfigError::StateUnknown { missing }));
        let post = |mkey: &mut Mkey, config: &MkeyConfig<'_>| {
            let mut result = Ok(());
            posted(|queue| result = queue.request(1).configure_mkey(mkey, config));
            result
        };
        let mut signed = mkey(true, None);
        let template = MkeyTemplate::<1, 1, 1>::new(&signed, &whole).unwrap();
        // First another signature, whose words must not be taken for the template's.
        let older = BlockSignature::both(dif(1), dif(2));
        let old = MkeyConfig { signature: SignatureChange::Set(&older), ..whole };
        post(&mut signed, &old).unwrap();
        posted(|queue| queue.request(1).configure_from(&mut signed, &template).unwrap());
        assert_eq!((signed.signature(), signed.wire_length()), (None, Some(520)));
        let again = posted(|queue| queue.request(1).configure_mkey(&mut signed, &part).unwrap());
        assert_eq!(again.len(), 3, "no BSF, no PSV");
        let (mut hurt, error) = hurt(signed);
        assert_eq!(error.map(|error| error.stride), Some(520));
        assert_eq!(post(&mut hurt, &part), missing("signature (set or reset)"));
        post(&mut hurt, &whole).unwrap();
        assert_eq!(hurt.signature(), Some(block));
        post(&mut hurt, &part).unwrap();

        let mut both = mkey(true, Some(XtsEngine::MultiBlock));
        let all = MkeyConfig { crypto: Some(&cipher), ..whole };
        let template = MkeyTemplate::<1, 2, 1>::new(&both, &all).unwrap();
        posted(|queue| queue.request(1).configure_from(&mut both, &template).unwrap());
        let signature = MkeyConfig { signature: SignatureChange::Set(&block), ..MkeyConfig::KEEP };
        let other = MkeyConfig { crypto: Some(&cipher), ..MkeyConfig::KEEP };
        assert_eq!(post(&mut both, &signature), missing("crypto"));
        assert_eq!(post(&mut both, &other), missing("signature (set or reset)"));
        post(&mut both, &part).unwrap();
        post(&mut both, &MkeyConfig { crypto: Some(&cipher), ..signature }).unwrap();
        post(&mut both, &other).unwrap();
    }
}
