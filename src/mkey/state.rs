//! What the device is known to hold for an mkey, as far as it changes the next work request.

use super::crypto::{Crypto, ReadyCrypto, XtsEngine};
use super::signature::{
    BlockSignature, Outline, PsvStarts, Psvs, ReadySignature, SignatureCapabilities, SignatureKind,
    SignatureWords,
};
use super::{Access, Layout, MkeyConfig, SignatureChange};
use crate::error::{CheckError, ConfigError};
use crate::types::{BlockSize, Key, MkeyIndex, PsvIndex};
use crate::wire::cqe::SignatureErrorCqe;
use crate::wire::ctrl::FmCeSe;
use crate::wire::mkey_context::MkeyContext;
use crate::wire::{MAX_WHOLE_BLOCKS, OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS};
use core::hint::black_box;
use zerocopy::big_endian::{U32, U64};

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

/// The most blocks of layout and BSFs in a request.
const MAX_BLOCKS: usize = MAX_WHOLE_BLOCKS - UMR_HEAD_BLOCKS;

/// An mkey as software knows it: its number, its kind, and the shadow of what the device holds.
///
/// Work requests that configure it take it by `&mut`: the shadow changes when, and only when, the request is posted. A clone
/// is a second shadow, which learns nothing of what the first one posts.
///
/// ```
/// use mlx5_mkey::mkey::{Mkey, MkeyAttributes};
/// use mlx5_mkey::types::Key;
/// let mkey = Mkey::new(MkeyAttributes::plain(Key::from_raw(0x1234_00), 4));
/// assert_eq!(mkey.key().index().get(), 0x1234);
/// # Ok::<(), mlx5_mkey::error::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Mkey {
    attributes: MkeyAttributes,
    numbers: Numbers,
    /// What the device does not know of signatures, see [`SignatureCapabilities::lacking`],
    /// [`SignatureCapabilities::TWO_DOMAINS`], and [`SignatureCapabilities::ERROR_COUNT`] while it waits for that.
    asked: u8,
    /// The engine of an mkey with crypto. Beside the attributes, as the line above, since each request asks.
    engine: XtsEngine,
    /// What the device holds is not known: nothing may be kept.
    forgotten: bool,
    /// What is carried out without looking at what was before: as long as everything is known, a configuration that gives all that
    /// the mkey can have.
    rooms: Rooms,
    /// Which templates may be posted as they are, see [`Mkey::takes`].
    ticket: u64,
    shadow: Shadow,
    /// The first signature error since the last check.
    error: Option<Result<SignatureError, CheckError>>,
}

/// The flag of a completion in the second half of a control segment.
const COMPLETION: u64 = (FmCeSe::new().with_ce(FmCeSe::CE_ALWAYS).into_bits() as u64) << 32;

/// The numbers of an mkey as its requests have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The key in the second half of a control segment, and there with the flag of a completion.
    key_words: [U64; 2],
    /// Its tag in a context.
    pub(crate) context_word: U32,
    /// The PSVs of the wire and the memory domain in the second word of a BSF; 0 without signature.
    pub(crate) psvs: U64,
    /// The PSV of each, in the order of [`DomainKind`], there and in the first word of a SET_PSV.
    bsf_words: [U64; 2],
    psv_words: [U64; 2],
}

impl Numbers {
    const fn new(attributes: &MkeyAttributes) -> Self {
        let (memory, wire) = match attributes.signature {
            Some(SignatureAttributes { memory_psv, wire_psv, .. }) => {
                (memory_psv.get() as u64, wire_psv.get() as u64)
            }
            None => (0, 0),
        };
        let key = attributes.key.get() as u64;
        Self {
            key_words: [U64::new(key), U64::new(COMPLETION | key)],
            context_word: MkeyContext::context_word(attributes.key.tag()),
            psvs: U64::new(wire << 32 | memory),
            bsf_words: [U64::new(wire << 32), U64::new(memory)],
            psv_words: [U64::new(wire << 32), U64::new(memory << 32)],
        }
    }

    /// Returns the second half of a control segment, but for its other flags.
    #[inline(always)]
    pub(crate) const fn key_word(&self, completes: bool) -> U64 {
        let [silent, signaled] = self.key_words;
        if completes { signaled } else { silent }
    }

    /// Returns the numbers of PSVs where a BSF has them.
    #[inline(always)]
    pub(crate) fn bsf_word(&self, psvs: Psvs) -> U64 {
        match psvs {
            Psvs::None => U64::ZERO,
            // As below.
            Psvs::One(domain) => self.bsf_words.get(domain as usize & 1).copied().unwrap_or_default(),
            Psvs::Both => self.psvs,
        }
    }

    /// Returns the number of a PSV where a SET_PSV has it.
    #[inline(always)]
    pub(crate) fn psv_word(&self, domain: DomainKind) -> U64 {
        // By its place, without a question: both are there.
        self.psv_words.get(domain as usize & 1).copied().unwrap_or_default()
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Numbers {
    fn format(&self, f: defmt::Formatter<'_>) {
        // The attributes have them in words.
        defmt::write!(f, "..");
    }
}

/// For each kind of mkey, the octowords that a layout must be below: an mkey has room of its own kind, and none of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
struct Rooms {
    plain: usize,
    signed: usize,
    enciphered: usize,
    both: usize,
    /// The most bytes of an mkey with a BSF, which counts them in 32 bits: here, since to compare with memory is quicker.
    bytes: u64,
}

impl Rooms {
    const NONE: Self = Self { plain: 0, signed: 0, enciphered: 0, both: 0, bytes: u32::MAX as u64 };
}

/// The configuration in force.
#[derive(Clone)]
pub(crate) struct Shadow {
    in_force: InForce,
    /// Signature and crypto properties. Where a template was posted, those of an older configuration: see [`Shadow::words`].
    signature: Option<SignatureWords>,
    crypto: Option<Crypto>,
}

impl PartialEq for Shadow {
    fn eq(&self, other: &Self) -> bool {
        (self.in_force, self.words()) == (other.in_force, other.words())
    }
}

impl Eq for Shadow {}

impl core::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (signature, crypto) = self.words();
        let Self { in_force, .. } = self;
        f.debug_struct("Shadow")
            .field("in_force", in_force)
            .field("signature", &signature)
            .field("crypto", &crypto)
            .finish()
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Shadow {
    fn format(&self, f: defmt::Formatter<'_>) {
        let (signature, crypto) = self.words();
        defmt::write!(f, "Shadow {} {} {}", self.in_force, signature, crypto);
    }
}

impl Shadow {
    /// Nothing is configured.
    const NONE: Self = Self { in_force: InForce::NONE, signature: None, crypto: None };

    /// Returns the words of signature and crypto, where they are known.
    const fn words(&self) -> (Option<&SignatureWords>, Option<&Crypto>) {
        match self.in_force.outlines() {
            Some(_) => (None, None),
            None => (self.signature.as_ref(), self.crypto.as_ref()),
        }
    }

    /// Notes that a plan of [`Mkey::plan_settled`] was posted.
    #[inline(always)]
    pub(crate) fn apply_settled(&mut self, config: &MkeyConfig<'_>) {
        // No signature and no crypto was kept.
        self.in_force.configured(config.layout.as_ref());
        self.take_up(config);
    }

    /// Takes up the signature and the crypto properties that are given.
    #[inline(always)]
    fn take_up(&mut self, config: &MkeyConfig<'_>) {
        if let SignatureChange::Set(block) = config.signature {
            self.signature = Some(*block.words());
        }
        if let Some(properties) = config.crypto {
            self.crypto = Some(*properties.properties());
        }
    }
}

/// What is known of the configuration in force, beside its words.
#[derive(Clone, Copy)]
pub(crate) struct InForce {
    /// Bytes of memory that the layout maps, and [`InForce::BY_TEMPLATE`]: in one word, so that a configuration writes both at
    /// once.
    length: u64,
    /// Means something only where a template was posted.
    outlines: Outlines,
}

impl PartialEq for InForce {
    fn eq(&self, other: &Self) -> bool {
        (self.length, self.outlines()) == (other.length, other.outlines())
    }
}

impl Eq for InForce {}

impl core::fmt::Debug for InForce {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (length, outlines) = (self.length(), self.outlines());
        f.debug_struct("InForce").field("length", &length).field("outlines", &outlines).finish()
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for InForce {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "InForce {} {}", self.length(), self.outlines());
    }
}

impl InForce {
    /// A template was posted, and no more is known than the outlines. Else there are the words of signature and crypto.
    ///
    /// No length has this bit: the longest layout, interleaved and as long as a request can be, maps less than 2^54 bytes.
    const BY_TEMPLATE: u64 = 1 << 63;

    const NONE: Self = Self { length: 0, outlines: Outlines { signature: Outline::NONE, data_unit: None } };

    pub(crate) const fn by_template(length: u64, outlines: Outlines) -> Self {
        Self { length: length | Self::BY_TEMPLATE, outlines }
    }

    /// Returns how many bytes of memory the layout maps.
    #[inline(always)]
    pub(crate) const fn length(&self) -> u64 {
        self.length & !Self::BY_TEMPLATE
    }

    /// Returns what is known where a template was posted.
    pub(crate) const fn outlines(&self) -> Option<Outlines> {
        if self.length & Self::BY_TEMPLATE == 0 { None } else { Some(self.outlines) }
    }

    /// Notes another length; how it came stays.
    #[inline(always)]
    pub(crate) const fn set_length(&mut self, length: u64) {
        self.length = self.length & Self::BY_TEMPLATE | length;
    }

    /// Notes that it is a configuration's.
    #[inline(always)]
    const fn configured(&mut self, layout: Option<&Layout<'_>>) {
        self.length = match layout {
            Some(layout) => layout.length(),
            None => self.length(),
        };
    }
}

/// What lengths and signature errors are read by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct Outlines {
    pub(crate) signature: Outline,
    /// Of an mkey with crypto properties.
    pub(crate) data_unit: Option<BlockSize>,
}

/// A signature and crypto properties that stay in force, but have to be written again.
#[derive(Default)]
pub(crate) struct Kept {
    signature: Option<BlockSignature>,
    crypto: Option<ReadyCrypto>,
}

/// A configuration checked against an mkey: all that the encoder needs, and nothing that it has to decide.
pub(crate) struct Plan<'a> {
    pub(crate) access: Option<Access>,
    pub(crate) layout: Option<Layout<'a>>,
    /// New value of the BSF enable bit, if it is written.
    pub(crate) bsf_enable: Option<bool>,
    /// New value of the error count bit, if it is written.
    pub(crate) error_count: Option<bool>,
    /// A signature BSF is written, with these PSVs.
    pub(crate) signature_bsf: Option<(&'a ReadySignature, Psvs)>,
    /// A crypto BSF is written.
    pub(crate) crypto_bsf: Option<&'a ReadyCrypto>,
    /// How the device takes its tweak.
    pub(crate) engine: XtsEngine,
    /// The PSVs that are set after the UMR; whose the last is and how many, by value for the compiler, which then knows.
    pub(crate) set_psvs: Option<(&'a PsvStarts, DomainKind)>,
    pub(crate) psvs: usize,
}

impl<'a> Plan<'a> {
    /// The plan for access and layout.
    #[inline(always)]
    const fn new(config: &MkeyConfig<'a>) -> Self {
        Self {
            access: config.access,
            layout: config.layout,
            bsf_enable: None,
            error_count: None,
            signature_bsf: None,
            crypto_bsf: None,
            engine: XtsEngine::Unspecified,
            set_psvs: None,
            psvs: 0,
        }
    }

    /// Returns the 64-byte blocks that the translation entries fill.
    #[inline(always)]
    pub(crate) fn layout_blocks(&self) -> usize {
        self.layout.map_or(0, |layout| layout.blocks())
    }

    /// Returns the number of BSFs, which fill a block each.
    #[inline(always)]
    pub(crate) fn bsf_blocks(&self) -> usize {
        usize::from(self.signature_bsf.is_some()) + usize::from(self.crypto_bsf.is_some())
    }

    /// Leaves the error count as it is.
    pub(crate) fn without_error_count(self) -> Self {
        Self { error_count: None, ..self }
    }
}

impl Mkey {
    /// Takes up an mkey that was created with these attributes.
    ///
    /// A key with a tag can be used where the device cannot change tags, but not configured, as with the reference provider:
    /// [`ConfigError::TagUpdateUnsupported`].
    pub const fn new(attributes: MkeyAttributes) -> Self {
        let mut mkey = Self {
            attributes,
            numbers: Numbers::new(&attributes),
            asked: 0,
            engine: match attributes.crypto {
                Some(engine) => engine,
                None => XtsEngine::Unspecified,
            },
            forgotten: false,
            rooms: Rooms::NONE,
            ticket: 0,
            shadow: Shadow::NONE,
            error: None,
        };
        mkey.settle();
        mkey
    }

    /// Refuses a tag that the device cannot write.
    pub(crate) const fn check_tag(&self, tag: u8) -> Result<(), ConfigError> {
        if self.attributes.tag_update || tag == 0 {
            Ok(())
        } else {
            Err(ConfigError::TagUpdateUnsupported { tag })
        }
    }

    /// Finds out what is carried out at once.
    const fn settle(&mut self) {
        let refused = self.forgotten || self.check_tag(self.key().tag()).is_err();
        self.rooms = if refused { Rooms::NONE } else { self.rooms(MAX_BLOCKS) };
        let pending = self.pending_error_count().is_some();
        self.ticket = if refused || pending { 0 } else { self.own_ticket() };
        self.asked = match self.attributes.signature {
            Some(signature) => {
                let lacking = signature.capabilities.lacking() | SignatureCapabilities::TWO_DOMAINS;
                lacking | if pending { SignatureCapabilities::ERROR_COUNT } else { 0 }
            }
            None => 0,
        };
    }

    /// Notes that the device is told the error count: what [`Mkey::settle`] finds then, of an mkey of which all else is known.
    #[inline(always)]
    pub(crate) const fn error_count_told(&mut self) {
        if let Some(signature) = &mut self.attributes.signature {
            signature.error_count.pending = false;
        }
        self.asked &= !SignatureCapabilities::ERROR_COUNT;
        self.ticket = self.own_ticket();
    }

    /// Returns the room for a layout, in requests with so many blocks of layout and BSFs.
    const fn rooms(&self, max_blocks: usize) -> Rooms {
        let signed = self.attributes.signature.is_some();
        let enciphered = self.attributes.crypto.is_some();
        let Some(blocks) = max_blocks.checked_sub(signed as usize + enciphered as usize) else {
            return Rooms::NONE;
        };
        let octowords = blocks * OCTOWORDS_PER_BLOCK;
        let max_entries = self.attributes.max_entries as usize;
        let room = 1 + if max_entries < octowords { max_entries } else { octowords };
        match (signed, enciphered) {
            (false, false) => Rooms { plain: room, ..Rooms::NONE },
            (true, false) => Rooms { signed: room, ..Rooms::NONE },
            (false, true) => Rooms { enciphered: room, ..Rooms::NONE },
            (true, true) => Rooms { both: room, ..Rooms::NONE },
        }
    }

    /// What an mkey in a known state and the templates made for it have in common: the key, and in the upper half what the mkey
    /// can do. 0 is no ticket.
    pub(crate) const fn own_ticket(&self) -> u64 {
        let MkeyAttributes { key, max_entries, signature, crypto, .. } = &self.attributes;
        let engine = match crypto {
            None => 0,
            Some(XtsEngine::Unspecified) => 1,
            Some(XtsEngine::SingleBlock) => 2,
            Some(XtsEngine::MultiBlock) => 3,
        };
        let kind = 1 | (signature.is_some() as u64) << 1 | engine << 2 | (*max_entries as u64) << 8;
        kind << 32 | key.get() as u64
    }

    /// Returns whether a template with this ticket can be posted as it is: it is this mkey's, everything is known, and the device
    /// waits for nothing.
    #[inline(always)]
    pub(crate) const fn takes(&self, ticket: u64) -> bool {
        self.ticket == ticket
    }

    /// Returns whether a SET_PSV or BSF with these numbers means this mkey's PSVs: its key may have been another mkey's before.
    #[inline(always)]
    pub(crate) fn has_psvs(&self, numbers: &Numbers) -> bool {
        self.numbers.psvs == numbers.psvs
    }

    /// Returns the key, local and remote.
    pub const fn key(&self) -> Key {
        self.attributes.key
    }

    /// Returns how many bytes of memory the layout in force maps; 0 before the first.
    pub const fn length(&self) -> u64 {
        self.shadow.in_force.length()
    }

    /// Returns what lengths and signature errors are read by.
    fn outlines(&self) -> Outlines {
        self.shadow.in_force.outlines().unwrap_or_else(|| Outlines {
            signature: self.shadow.words().0.map_or(Outline::NONE, SignatureWords::outline),
            data_unit: self.crypto().map(|properties| properties.data_unit),
        })
    }

    /// Returns how many bytes all of the mkey has on the wire, which is what work requests count (D3); `None` where its
    /// memory is not whole blocks.
    pub fn wire_length(&self) -> Option<u64> {
        self.outlines().signature.wire_bytes(self.length())
    }

    /// Returns the signature in force; `None` also where a template brought it.
    pub fn signature(&self) -> Option<BlockSignature> {
        self.shadow.words().0.copied().map(BlockSignature::from_words)
    }

    /// Returns the crypto properties in force; `None` also where a template brought them.
    pub const fn crypto(&self) -> Option<&Crypto> {
        self.shadow.words().1
    }

    /// Returns how many signature errors were seen, `None` for an mkey without signature.
    pub fn error_count(&self) -> Option<ErrorCount> {
        self.attributes.signature.map(|signature| signature.error_count)
    }

    /// Gives the key another tag, with the next configuration.
    ///
    /// # Errors
    /// [`ConfigError::TagUpdateUnsupported`] where the device cannot change tags.
    pub const fn set_tag(&mut self, tag: u8) -> Result<(), ConfigError> {
        if let Err(error) = self.check_tag(tag) {
            return Err(error);
        }
        self.attributes.key = Key::new(self.key().index(), tag);
        self.numbers = Numbers::new(&self.attributes);
        self.settle();
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
        if let Some(signature) = &mut self.attributes.signature {
            // The request that was to write it may not have been executed.
            signature.error_count.pending = true;
        }
        self.settle();
    }

    /// Notes that an invalidation was posted. The device keeps the error count.
    ///
    /// What signature errors are read by stays until the next configuration: one of data that moved before may arrive later.
    pub(crate) fn invalidated(&mut self) {
        self.forgotten = true;
        let outlines = Outlines { data_unit: None, ..self.outlines() };
        self.shadow = Shadow { in_force: InForce::by_template(0, outlines), ..Shadow::NONE };
        self.settle();
    }

    /// Returns the plan of a configuration that gives all that this mkey can have, if all is as it should be. For all else,
    /// and to know what is wrong, there is [`Mkey::plan`], which has the same plan for these.
    #[inline(always)]
    pub(crate) fn plan_settled<'a>(&self, config: &MkeyConfig<'a>) -> Option<Plan<'a>> {
        self.plan_for::<false>(&self.rooms, config)
    }

    /// The same where the device waits for the error count: after a signature error, and the first time.
    #[inline(always)]
    pub(crate) fn plan_pending<'a>(&self, config: &MkeyConfig<'a>) -> Option<Plan<'a>> {
        self.plan_for::<true>(&self.rooms, config)
    }

    /// The same for an mkey that is not settled, if the configuration is complete.
    pub(crate) fn plan_complete<'a>(&self, config: &MkeyConfig<'a>, max_blocks: usize) -> Option<Plan<'a>> {
        self.check_tag(self.key().tag()).ok()?;
        self.check_complete(config).ok()?;
        let rooms = self.rooms(max_blocks);
        match self.pending_error_count() {
            None => self.plan_for::<false>(&rooms, config),
            Some(_) => self.plan_for::<true>(&rooms, config),
        }
    }

    #[inline(always)]
    fn plan_for<'a, const PENDING: bool>(&self, rooms: &Rooms, config: &MkeyConfig<'a>) -> Option<Plan<'a>> {
        let mut plan = Plan::new(config);
        let (room, signature, crypto) = match (config.signature, config.crypto) {
            (SignatureChange::Keep | SignatureChange::Reset, None) => (rooms.plain, None, None),
            (SignatureChange::Set(block), None) => (rooms.signed, Some(block), None),
            (SignatureChange::Keep, Some(crypto)) => (rooms.enciphered, None, Some(crypto)),
            (SignatureChange::Set(block), Some(crypto)) => (rooms.both, Some(block), Some(crypto)),
            (SignatureChange::Reset, Some(_)) => return None,
        };
        let (octowords, length) = match &config.layout {
            Some(layout) => (layout.octowords(), layout.length()),
            None => (0, self.length()),
        };
        if octowords >= room {
            return None;
        }
        if let Some(crypto) = crypto {
            let engine = self.engine;
            if length > crypto.wire().for_engine(engine).max_length {
                return None;
            }
            plan.bsf_enable = Some(true);
            (plan.crypto_bsf, plan.engine) = (Some(crypto), engine);
        } else if signature.is_some() && length > rooms.bytes {
            return None;
        }
        if let Some(block) = signature {
            // Where the count is pending the compiler does not know that it has read these: it would keep them for here, which takes
            // an instruction more where it is not (`sge1_t10dif`).
            let (ready, asked) = if PENDING {
                (black_box(block.ready()), *black_box(&self.asked))
            } else {
                (block.ready(), self.asked)
            };
            plan.bsf_enable = Some(true);
            let last_domain = ready.starts.last_domain;
            plan.set_psvs = Some((&ready.starts, last_domain));
            let psvs;
            if PENDING {
                plan.error_count = Some(self.error_count_bit());
            }
            let pending = if PENDING { SignatureCapabilities::ERROR_COUNT } else { 0 };
            (plan.psvs, psvs) = match (ready.needs & asked) ^ pending {
                0 => (1, Psvs::One(last_domain)),
                SignatureCapabilities::TWO_DOMAINS => {
                    if crypto.is_some_and(|crypto| crypto.properties().signature_is_outside()) {
                        return None;
                    }
                    (2, Psvs::Both)
                }
                _ => return None,
            };
            plan.signature_bsf = Some((ready, psvs));
        } else if PENDING {
            return None;
        }
        Some(plan)
    }

    /// Returns what requests have of it, and what changes with them.
    #[inline(always)]
    pub(crate) const fn parts(&mut self) -> (&Numbers, &mut Shadow) {
        (&self.numbers, &mut self.shadow)
    }

    /// Returns the numbers that requests have.
    pub(crate) const fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Checks the layout that is given, and returns how long the mkey is with it.
    fn check_layout(&self, config: &MkeyConfig<'_>, max_octowords: usize) -> Result<u64, ConfigError> {
        if let Some(layout) = &config.layout {
            let octowords = layout.octowords();
            let max_entries = usize::from(self.attributes.max_entries);
            if octowords > max_entries || octowords > max_octowords {
                let max = max_entries.min(max_octowords);
                let header = octowords - layout.count();
                let (entries, max) = (layout.count(), max.saturating_sub(header));
                return Err(ConfigError::TooManyEntries { entries, max });
            }
        }
        Ok(config.layout.map_or(self.length(), |layout| layout.length()))
    }

    /// Checks a configuration, and decides which BSFs, count and PSVs go with it (DEVICE.md 4.4). What stays in force is put
    /// into `kept`, for the plan to borrow.
    pub(crate) fn plan<'a>(
        &'a self,
        config: &MkeyConfig<'a>,
        max_octowords: usize,
        kept: &'a mut Kept,
    ) -> Result<Plan<'a>, ConfigError> {
        self.check_tag(self.key().tag())?;
        if self.forgotten {
            self.check_complete(config)?;
        }
        let length = self.check_layout(config, max_octowords)?;
        let mut plan = Plan::new(config);
        let outlines = self.outlines();
        let mut signed = !matches!(config.signature, SignatureChange::Reset);
        let block = match (&self.attributes.signature, config.signature) {
            (None, SignatureChange::Set(_)) => return Err(ConfigError::NotASignatureMkey),
            (None, _) => None,
            (Some(_), SignatureChange::Keep) => {
                signed = outlines.signature.is_some();
                kept.signature = self.signature();
                kept.signature.as_ref()
            }
            (Some(_), SignatureChange::Reset) => None,
            (Some(attributes), SignatureChange::Set(block)) => {
                attributes.capabilities.check(block)?;
                Some(block)
            }
        };
        let signed = signed && self.attributes.signature.is_some();
        let crypto = match (self.attributes.crypto, config.crypto) {
            (None, Some(_)) => return Err(ConfigError::NotACryptoMkey),
            (None, None) => None,
            (Some(_), Some(crypto)) => Some(crypto),
            (Some(_), None) => {
                kept.crypto = self.crypto().copied().map(ReadyCrypto::new);
                kept.crypto.as_ref()
            }
        };
        let data_unit = config.crypto.map(|crypto| crypto.properties().data_unit).or(outlines.data_unit);
        if let (Some(unit), Some(XtsEngine::SingleBlock)) = (data_unit, self.attributes.crypto) {
            let unit = unit.bytes();
            if length > u64::from(unit) {
                return Err(ConfigError::LengthOverDataUnit { length, unit });
            }
        }
        let signature_set = matches!(config.signature, SignatureChange::Set(_));
        plan.error_count = self.pending_error_count();
        if let Some(block) = block
            && (signature_set || plan.error_count.is_some())
        {
            let starts = &block.ready().starts;
            (plan.set_psvs, plan.psvs) = (Some((starts, starts.last_domain)), starts.count());
        }
        // With crypto on the mkey, both BSFs are written when either changes, and a reset writes an empty signature (D23).
        // Without, a reset or absent signature switches the BSF off, or spurious errors appear (D20).
        let write = match (&self.attributes.signature, &self.attributes.crypto) {
            (Some(_), None) => signature_set,
            (Some(_), Some(_)) => {
                signature_set || config.crypto.is_some() || config.signature == SignatureChange::Reset
            }
            (None, _) => config.crypto.is_some(),
        };
        // What a template brought may stay, but cannot be written again.
        if (write || plan.error_count.is_some()) && signed && block.is_none() {
            return Err(ConfigError::StateUnknown { missing: "signature (set or reset)" });
        }
        if write && data_unit.is_some() && crypto.is_none() {
            return Err(ConfigError::StateUnknown { missing: "crypto" });
        }
        // A BSF counts its data in 32 bits, whether it is written now or stays in force.
        if (write || signed || data_unit.is_some()) && length > u64::from(u32::MAX) {
            return Err(ConfigError::LengthOver32Bits { length });
        }
        if write {
            if let (Some(crypto), Some(block)) = (crypto, block)
                && block.ready().is_in_both()
                && crypto.properties().signature_is_outside()
            {
                return Err(ConfigError::BothSignaturesOutsideCipher);
            }
            plan.bsf_enable = Some(true);
            (plan.crypto_bsf, plan.engine) = (crypto, self.engine);
            plan.signature_bsf = self.attributes.signature.is_some().then(|| match block {
                Some(block) => (block.ready(), block.ready().psvs()),
                None => (ReadySignature::NONE, Psvs::None),
            });
            let octowords = (plan.layout_blocks() + plan.bsf_blocks()) * OCTOWORDS_PER_BLOCK;
            if octowords > max_octowords {
                let (bytes, max) = (octowords * OCTOWORD_BYTES, max_octowords * OCTOWORD_BYTES);
                return Err(ConfigError::BsfDoesNotFit { bytes, max });
            }
        } else if self.attributes.signature.is_some() && self.attributes.crypto.is_none() && !signed {
            plan.bsf_enable = Some(false);
        }
        Ok(plan)
    }

    /// Refuses a configuration that does not give all that the mkey can have.
    pub(crate) fn check_complete(&self, config: &MkeyConfig<'_>) -> Result<(), ConfigError> {
        let missing = if config.access.is_none() {
            "access"
        } else if config.layout.is_none() {
            "layout"
        } else if self.attributes.signature.is_some() && config.signature == SignatureChange::Keep {
            "signature (set or reset)"
        } else if self.attributes.crypto.is_some() && config.crypto.is_none() {
            "crypto"
        } else {
            return Ok(());
        };
        Err(ConfigError::StateUnknown { missing })
    }

    /// Returns the error count, if the next configuration has to write it.
    #[inline(always)]
    pub(crate) const fn pending_error_count(&self) -> Option<bool> {
        match &self.attributes.signature {
            Some(SignatureAttributes { error_count, .. }) if error_count.pending => {
                Some(self.error_count_bit())
            }
            _ => None,
        }
    }

    /// Returns what the device is told of the error count: its low bit.
    #[inline(always)]
    const fn error_count_bit(&self) -> bool {
        match &self.attributes.signature {
            Some(SignatureAttributes { error_count, .. }) => error_count.seen & 1 != 0,
            None => false,
        }
    }

    /// Notes that a template was posted. Of signature and crypto it leaves what lengths and errors are read by.
    #[inline(always)]
    pub(crate) const fn hold(&mut self, in_force: InForce) {
        self.shadow.in_force = in_force;
    }

    /// Notes that a configuration was posted.
    pub(crate) fn apply(&mut self, config: &MkeyConfig<'_>) {
        if let Some(layout) = &config.layout {
            self.shadow.in_force.set_length(layout.length());
        }
        if let Some(outlines) = self.shadow.in_force.outlines() {
            // What is not given stays, and stays unknown; its words are those of an older configuration.
            (self.shadow.signature, self.shadow.crypto) = (None, None);
            let keeps_signature = outlines.signature.is_some() && config.signature == SignatureChange::Keep;
            let keeps_crypto = outlines.data_unit.is_some() && config.crypto.is_none();
            if !keeps_signature && !keeps_crypto {
                self.shadow.in_force.configured(None);
            }
        }
        self.shadow.take_up(config);
        if config.signature == SignatureChange::Reset {
            self.shadow.signature = None;
        }
        self.told();
    }

    /// Notes that what the device holds is known, and that it knows the error count.
    pub(crate) fn told(&mut self) {
        self.forgotten = false;
        if let Some(signature) = &mut self.attributes.signature {
            signature.error_count.pending = false;
        }
        self.settle();
    }

    /// Takes note of a signature error that a completion queue delivered, and returns whether it was this mkey's.
    ///
    /// The first error is kept until [`Mkey::check`] asks for it (R183). The next configuration rearms the device.
    pub fn record(&mut self, fault: &SignatureFault) -> bool {
        let outline = self.outlines().signature;
        let index = self.key().index();
        let Some(SignatureAttributes { error_count, .. }) = &mut self.attributes.signature else {
            return false;
        };
        if fault.mkey != index {
            return false;
        }
        error_count.seen = error_count.seen.wrapping_add(1);
        error_count.pending = true;
        self.error.get_or_insert_with(|| fault.interpret(outline));
        self.settle();
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
        if self.attributes.signature.is_none() {
            return Err(CheckError::NotASignatureMkey);
        }
        self.error.take().transpose()
    }
}

/// One of the two sides of an mkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DomainKind {
    /// The bytes as they cross the network.
    Wire = 0,
    /// The bytes in memory.
    Memory = 1,
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
    fn interpret(&self, outline: Outline) -> Result<SignatureError, CheckError> {
        let unintelligible = CheckError::Unintelligible {
            syndrome: self.syndrome,
            sig_type: self.sig_type,
            domain: self.domain,
        };
        let (domain_kind, domain) = match self.domain {
            SignatureErrorCqe::DOMAIN_WIRE => (DomainKind::Wire, outline.wire),
            SignatureErrorCqe::DOMAIN_MEMORY => (DomainKind::Memory, outline.memory),
            _ => return Err(unintelligible),
        };
        let domain = domain.ok_or(unintelligible)?;
        if self.sig_type != SignatureErrorCqe::TYPE_BLOCK {
            return Err(unintelligible);
        }
        let has = |bit| self.syndrome & bit != 0;
        let (kind, shift, mask) = if has(SignatureErrorCqe::SYNDROME_GUARD) {
            match domain.kind {
                SignatureKind::T10Dif => (SignatureErrorKind::Guard, 48, 0xffff),
                SignatureKind::Crc32 => (SignatureErrorKind::Guard, 32, 0xffff_ffff),
                SignatureKind::Crc64 => (SignatureErrorKind::Guard, 0, u64::MAX),
            }
        } else if has(SignatureErrorCqe::SYNDROME_APP_TAG) {
            (SignatureErrorKind::AppTag, 32, 0xffff)
        } else if has(SignatureErrorCqe::SYNDROME_REF_TAG) {
            (SignatureErrorKind::RefTag, 0, 0xffff_ffff)
        } else {
            return Err(unintelligible);
        };
        if kind != SignatureErrorKind::Guard && !matches!(domain.kind, SignatureKind::T10Dif) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkey::{Domain, Signature};
    use crate::types::Seed;

    #[test]
    fn m3_a_tag_that_the_device_cannot_write_is_refused_when_the_key_is_configured() {
        let attributes = MkeyAttributes::plain(Key::from_raw(0x0012_3456), 16);
        let mut mkey = Mkey::new(attributes);
        assert_eq!(mkey.key(), attributes.key);
        let refused = ConfigError::TagUpdateUnsupported { tag: 0x56 };
        let (access, mut kept) = (Some(Access::NONE), Kept::default());
        let config = MkeyConfig { access, layout: Some(Layout::list(&[])), ..MkeyConfig::KEEP };
        assert!(mkey.plan_settled(&config).is_none() && mkey.plan_complete(&config, MAX_BLOCKS).is_none());
        assert_eq!(mkey.plan(&config, usize::MAX, &mut kept).err(), Some(refused));
        assert_eq!(mkey.set_tag(0x56), Err(refused));
        // The tag that it was created with can be written.
        mkey.set_tag(0).unwrap();
        assert!(mkey.plan_settled(&config).is_some());
        let able = MkeyAttributes { tag_update: true, ..attributes };
        assert!(Mkey::new(able).plan_settled(&config).is_some());
    }

    #[test]
    fn telling_the_error_count_settles_the_mkey() {
        let psv = PsvIndex::from_low_bits;
        let signature = Some(SignatureAttributes::new(psv(1), psv(2)));
        let attributes = MkeyAttributes::plain(Key::from_raw(0x0012_3400), 16);
        let mut mkey = Mkey::new(MkeyAttributes { signature, ..attributes });
        assert_eq!((mkey.pending_error_count(), mkey.takes(mkey.own_ticket())), (Some(true), false));
        mkey.error_count_told();
        assert_eq!((mkey.pending_error_count(), mkey.takes(mkey.own_ticket())), (None, true));
        let mut settled = mkey.clone();
        settled.settle();
        assert_eq!(mkey, settled);
    }

    #[test]
    fn an_error_of_data_that_moved_before_is_read_by_the_signature_of_then() {
        let psv = PsvIndex::from_low_bits;
        let signature = Some(SignatureAttributes::new(psv(1), psv(2)));
        let key = Key::from_raw(0x0012_3400);
        let mut mkey = Mkey::new(MkeyAttributes { signature, ..MkeyAttributes::plain(key, 16) });
        let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
        let block = BlockSignature::memory(domain);
        let config = MkeyConfig { signature: SignatureChange::Set(&block), ..MkeyConfig::KEEP };
        let fault = SignatureFault {
            mkey: key.index(),
            syndrome: SignatureErrorCqe::SYNDROME_GUARD,
            sig_type: SignatureErrorCqe::TYPE_BLOCK,
            domain: SignatureErrorCqe::DOMAIN_MEMORY,
            expected: 0x1111_1111 << 32,
            actual: 0x2222_2222 << 32,
            offset: 2 * 516 - 1,
        };
        let says = |error: SignatureError| (error.block_index(), error.found, error.computed);
        let forgets: [fn(&mut Mkey); 2] = [Mkey::invalidated, Mkey::forget];
        for forget in forgets {
            mkey.apply(&config);
            forget(&mut mkey);
            // Twice: what is known of the old signature outlives it.
            forget(&mut mkey);
            assert_eq!((mkey.signature(), mkey.length(), mkey.wire_length()), (None, 0, Some(0)));
            assert!(mkey.record(&fault));
            assert_eq!(mkey.check().map(|error| error.map(says)), Ok(Some((1, 0x2222_2222, 0x1111_1111))));
        }
        // The next configuration has no signature, and so none to read an error by.
        mkey.apply(&MkeyConfig { signature: SignatureChange::Reset, ..config });
        assert!(mkey.record(&fault) && mkey.check().is_err());
    }
}
