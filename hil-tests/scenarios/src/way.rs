//! The library's public posting methods, in one place: single requests or batches, each with configurations
//! that are prepared or changed in place. Recorded requests, the differential test and the scenarios use all
//! of them.
//!
//! A test (`tests/ways.rs`) checks that every public method of the library that posts is called by
//! [`crate::request::Request`] or listed here.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use mlx5_mkey::error::ConfigError;
use mlx5_mkey::mkey::{
    BlockSignature, Crypto, Digest, DigestPart, DigestSpan, Domain, Keytag, MkeyConfig, MkeyKind, Signature,
    SignatureChange, T10Dif,
};
use mlx5_mkey::queue::{Batch, Doorbell, SendQueue, SendRequest};
use mlx5_mkey::types::{DekId, DomainKind, PsvIndex, Tweak};
use mlx5_mkey::wqe::PreparedConfig;

/// A posting method of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Posts each request to the queue on its own. The caller then rings the doorbell.
    #[default]
    Request,
    /// Posts all requests up to the next doorbell in one batch.
    Batch,
    /// Posts each request on its own, as `Request` does. The scenario's configuration is first prepared with
    /// other values (tags, tweak, DEK, keytag, span of a digest), then changed in place to the right values.
    Changed,
    /// Posts in batches, as `Batch` does. Configurations are changed in place, as in `Changed`.
    BatchChanged,
}

impl Way {
    /// All posting methods.
    pub const ALL: [Self; 4] = [Self::Request, Self::Batch, Self::Changed, Self::BatchChanged];

    /// Returns the name of the method.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Batch => "batch",
            Self::Changed => "changed",
            Self::BatchChanged => "batch-changed",
        }
    }

    /// Returns whether the method posts batches.
    pub const fn batches(self) -> bool {
        matches!(self, Self::Batch | Self::BatchChanged)
    }

    /// Returns whether the method changes configurations in place.
    pub const fn changes(self) -> bool {
        matches!(self, Self::Changed | Self::BatchChanged)
    }

    /// Returns the same method without batches: its requests stay unpublished until the doorbell rings, while
    /// dropping a batch would publish them.
    pub const fn without_batches(self) -> Self {
        if self.changes() { Self::Changed } else { Self::Request }
    }

    /// Begins to post to a queue by this method.
    pub fn open<'q, 'r, D: Doorbell>(self, queue: &'q mut SendQueue<'r, D>) -> Poster<'q, 'r, D> {
        if self.batches() { Poster::Batch(queue.batch()) } else { Poster::Queue(queue) }
    }

    /// Prepares a configuration by this method.
    ///
    /// # Errors
    /// [`ConfigError`]: a configuration that no mkey of this kind can hold.
    pub fn prepare(self, kind: MkeyKind, config: &MkeyConfig) -> Result<PreparedConfig, ConfigError> {
        self.prepare_by(PreparedConfig::new, kind, config)
    }

    /// Prepares a configuration by this method, as [`PreparedConfig::with_any_data_unit`] does.
    ///
    /// # Errors
    /// As [`Way::prepare`].
    pub fn prepare_with_any_data_unit(
        self,
        kind: MkeyKind,
        config: &MkeyConfig,
    ) -> Result<PreparedConfig, ConfigError> {
        self.prepare_by(PreparedConfig::with_any_data_unit, kind, config)
    }

    fn prepare_by(
        self,
        new: Constructor,
        kind: MkeyKind,
        config: &MkeyConfig,
    ) -> Result<PreparedConfig, ConfigError> {
        if self.changes() { changed_in_place(new, kind, config) } else { new(kind, config) }
    }
}

/// A function that prepares a configuration.
type Constructor = fn(MkeyKind, &MkeyConfig) -> Result<PreparedConfig, ConfigError>;

/// Prepares a configuration with other values, then changes the values in place to the requested ones.
fn changed_in_place(
    new: Constructor,
    kind: MkeyKind,
    config: &MkeyConfig,
) -> Result<PreparedConfig, ConfigError> {
    // Configurations that the library refuses must be refused by this method too, although their values are
    // replaced below.
    new(kind, config)?;
    let crypto = config.crypto.map(|crypto| Crypto {
        tweak: Tweak::new(!crypto.tweak.get()),
        dek: DekId::from_low_bits(!crypto.dek.get()),
        keytag: Keytag(crypto.keytag.0.map(|byte| !byte)),
        ..crypto
    });
    let signature = match &config.signature {
        SignatureChange::Set(signature) => SignatureChange::Set(with_other_tags(signature)?),
        SignatureChange::Digest(digest) => {
            SignatureChange::Digest(Digest { span: other_span(digest), ..*digest })
        }
        kept => *kept,
    };
    let mut prepared = new(kind, &MkeyConfig { signature, crypto, ..*config })?;
    if let Some(Crypto { tweak, dek, keytag, .. }) = config.crypto {
        prepared.set_tweak(tweak)?;
        prepared.set_dek(dek, keytag)?;
    }
    if let Some(digest) = config.signature.digest() {
        prepared.set_digest(digest.span)?;
    }
    if let SignatureChange::Set(signature) = &config.signature {
        for kind in [DomainKind::Memory, DomainKind::Wire] {
            let Some(Signature::T10Dif(dif)) = signature.domain(kind).map(|domain| domain.signature) else {
                continue;
            };
            prepared.set_app_tag(kind, dif.app_tag)?;
            prepared.set_ref_tag(kind, dif.ref_tag)?;
        }
    }
    Ok(prepared)
}

/// Returns a span that differs from the span of this digest.
const fn other_span(digest: &Digest) -> DigestSpan {
    match digest.span {
        DigestSpan::Mkey => {
            DigestSpan::Transaction { part: DigestPart::Middle, psv: PsvIndex::from_low_bits(!0) }
        }
        DigestSpan::Transaction { .. } => DigestSpan::Mkey,
    }
}

/// Returns the signature with other tags in each T10-DIF.
fn with_other_tags(signature: &BlockSignature) -> Result<BlockSignature, ConfigError> {
    let other = |domain: Domain| match domain.signature {
        Signature::T10Dif(dif) => {
            let dif = T10Dif { app_tag: !dif.app_tag, ref_tag: !dif.ref_tag, ..dif };
            Domain { signature: Signature::T10Dif(dif), ..domain }
        }
        _ => domain,
    };
    let changed = block_signature(signature.memory_domain().map(other), signature.wire_domain().map(other));
    with_masks(changed.unwrap_or(*signature), signature.check_mask(), signature.copy_mask())
}

/// Returns the signature with these domains, or `None` if there is neither.
pub fn block_signature(memory: Option<Domain>, wire: Option<Domain>) -> Option<BlockSignature> {
    match (memory, wire) {
        (Some(memory), Some(wire)) => Some(BlockSignature::both(memory, wire)),
        (Some(memory), None) => Some(BlockSignature::memory(memory)),
        (None, wire) => wire.map(BlockSignature::wire),
    }
}

/// Returns the signature with these masks.
///
/// # Errors
/// As [`BlockSignature::with_copy_mask`].
pub fn with_masks(
    signature: BlockSignature,
    check_mask: u8,
    copy_mask: Option<u8>,
) -> Result<BlockSignature, ConfigError> {
    let signature = signature.with_check_mask(check_mask);
    copy_mask.map_or(Ok(signature), |mask| signature.with_copy_mask(mask))
}

/// The posting methods by which a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Each posting method in turn.
    All,
    /// This posting method only.
    Only(Way),
    /// One method, which a hash of this number and the name of the case selects. So a case always has the
    /// same method, even if a run begins with another case.
    Drawn(u64),
}

impl Default for Ways {
    fn default() -> Self {
        Self::Only(Way::default())
    }
}

impl Ways {
    /// Returns the methods of a case.
    pub fn of(self, case: &str) -> Vec<Way> {
        match self {
            Self::All => Way::ALL.to_vec(),
            Self::Only(way) => vec![way],
            Self::Drawn(seed) => {
                // The FNV-1a hash of the number and the name.
                let hash = seed
                    .to_le_bytes()
                    .iter()
                    .chain(case.as_bytes())
                    .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
                    });
                vec![Way::ALL[(hash >> 32) as usize % Way::ALL.len()]]
            }
        }
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Only(way) => f.write_str(way.name()),
            Self::Drawn(seed) => write!(f, "{seed}"),
        }
    }
}

impl FromStr for Ways {
    type Err = String;

    /// Parses `all`, the name of a method, or a number.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let named = Way::ALL.into_iter().find(|way| way.name() == text).map(Self::Only);
        named
            .or_else(|| text.parse().ok().map(Self::Drawn))
            .ok_or_else(|| format!("`{text}` is not `all`, no way of posting, and no seed"))
    }
}

/// The public methods of the library that begin requests, each with the expression in this file that calls
/// it, for the test `tests/ways.rs`.
pub const BEGIN: &[(&str, &str)] = &[
    ("SendQueue::request", "queue.request"),
    ("SendQueue::batch", "queue.batch"),
    ("Batch::request", "batch.request"),
];

/// The other public methods of the library that post, and the reason why [`crate::request::Request`] does not
/// use them.
pub const OTHERS: &[(&str, &str)] = &[
    ("SharedSendQueue::with", "lends the queue, in the scenario of a machine without a driver"),
    ("MkeyPool::invalidate", "posts by `SendRequest::invalidate_mkey`"),
    ("WindowPool::invalidate", "posts by `SendRequest::invalidate_window`"),
    ("MkeyCache::invalidate", "posts by `SendRequest::invalidate_mkey`"),
    ("QueuePair::request", "hands on what the send queue has"),
    ("QueuePair::batch", "hands on what the send queue has"),
    ("SendQueue::cancel", "writes over requests that were posted"),
    ("QueuePair::cancel", "hands on what the send queue has"),
    ("ReceiveQueue::post", "posts to a receive queue"),
    ("QueuePair::post_receive", "posts to a receive queue"),
];

/// Posts requests by one of the methods. [`Poster::publish`] publishes them. Dropping a batch publishes them
/// as well.
pub enum Poster<'q, 'r, D: Doorbell> {
    /// Each request on its own.
    Queue(&'q mut SendQueue<'r, D>),
    /// All requests in a batch.
    Batch(Batch<'q, 'r, D>),
}

impl<'r, D: Doorbell> Poster<'_, 'r, D> {
    /// Begins a request.
    pub fn request(&mut self, id: u64) -> SendRequest<'_, 'r> {
        match self {
            Self::Queue(queue) => queue.request(id),
            Self::Batch(batch) => batch.request(id),
        }
    }

    /// Publishes the posted requests.
    pub fn publish(self) {
        match self {
            Self::Queue(queue) => queue.ring_doorbell(),
            // Dropping the batch publishes it.
            Self::Batch(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use mlx5_mkey::mkey::{
        Access, Direction, Escape, Guard, SignatureCapabilities, SignatureOrder, UmrForm, XtsEngine,
        check_mask,
    };
    use mlx5_mkey::types::{BlockSize, Seed};

    /// Returns signatures with a T10-DIF in one domain or in both, with equal and with different tags.
    fn signatures() -> Vec<BlockSignature> {
        let dif = T10Dif {
            guard: Guard::Crc,
            seed: Seed::Ones,
            app_tag: 0x1234,
            ref_tag: 0x5678_9abc,
            ref_remap: true,
            escape: Escape::Never,
        };
        let domain = |dif| Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 };
        let first = domain(dif);
        let seconds = [dif, T10Dif { app_tag: 1, ..dif }, T10Dif { ref_tag: 2, ..dif }].map(domain);
        let crc = Domain { signature: Signature::Crc64Xp10(Seed::Ones), ..first };
        let both = seconds.map(|second| BlockSignature::both(first, second).with_check_mask(0xc0));
        let masked = both.map(|both| both.with_copy_mask(check_mask::T10DIF_GUARD).unwrap());
        let rest = [
            BlockSignature::memory(first),
            BlockSignature::wire(first),
            BlockSignature::both(crc, first),
            BlockSignature::both(first, crc),
        ];
        [&both[..], &masked, &rest].concat()
    }

    #[test]
    fn what_is_changed_in_place_is_what_is_prepared() {
        let crypto = Crypto {
            direction: Direction::EncryptOnTx,
            order: SignatureOrder::BeforeCryptoOnTx,
            data_unit: BlockSize::B520,
            tweak: Tweak::from_lba(0x1000),
            dek: DekId::from_low_bits(7),
            keytag: Keytag([1, 2, 3, 4, 5, 6, 7, 8]),
        };
        for engine in [XtsEngine::MultiBlock, XtsEngine::SingleBlock, XtsEngine::Unspecified] {
            let signature = Some(SignatureCapabilities::ALL);
            let kind = MkeyKind {
                max_entries: 8,
                signature,
                crypto: Some(engine),
                form: UmrForm::Complete,
                entry_size: None,
            };
            for (signature, crypto) in
                signatures().into_iter().flat_map(|one| [(one, None), (one, Some(crypto))])
            {
                let signature = SignatureChange::Set(signature);
                let config = MkeyConfig { access: Some(Access::ALL), signature, crypto };
                let [fresh, changed] = [Way::Request, Way::Changed].map(|way| way.prepare(kind, &config));
                assert_eq!(changed, fresh, "{config:?}");
                assert_eq!(fresh.unwrap().config(), &config);
            }
        }
    }

    #[test]
    fn ways_are_read_as_they_are_written() {
        for ways in [Ways::All, Ways::Only(Way::BatchChanged), Ways::Drawn(7)] {
            assert_eq!(ways.to_string().parse(), Ok(ways));
        }
        assert!("bath".parse::<Ways>().is_err());
    }

    #[test]
    fn a_seed_draws_all_ways_and_always_the_same() {
        let cases: Vec<String> = (0..40).map(|number| format!("r{number:03}_case")).collect();
        let drawn: Vec<Way> = cases.iter().flat_map(|case| Ways::Drawn(7).of(case)).collect();
        assert_eq!(drawn, cases.iter().flat_map(|case| Ways::Drawn(7).of(case)).collect::<Vec<_>>());
        assert!(Way::ALL.iter().all(|way| drawn.contains(way)), "{drawn:?}");
        assert_ne!(drawn, cases.iter().flat_map(|case| Ways::Drawn(8).of(case)).collect::<Vec<_>>());
    }
}
