//! Tests of prepared configurations: a configuration that was changed in place equals one that is newly
//! prepared, and only mkeys of its kind accept a configuration.

use super::*;
use crate::mkey::Layout;
use crate::mkey::{
    Access, BlockSignature, Crypto, Digest, DigestPart, Direction, Domain, Escape, Guard, Keytag, KlmEntry,
    MkeyAttributes, Signature, SignatureAttributes, SignatureCapabilities, SignatureError, SignatureFault,
    SignatureOrder, T10Dif,
};
use crate::queue::{Doorbell, DoorbellRecord, LastRequest, SendQueue, SendQueueConfig, SendSlot};
use crate::types::{BlockSize, DekId, Key, PsvIndex, Qpn, Seed, Tweak};
use crate::wire::bsf::SignatureBsf;
use crate::wire::cqe::SignatureErrorCqe;
use crate::wire::{WQEBB_BYTES, Wqebb};
use crate::wqe::control::split_requests;
use crate::wqe::error::PostError;
use std::vec;
use std::vec::Vec;

mod digest;
mod kept;
mod limits;
mod served;

struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: &LastRequest<'_>) {}
}

type Queue<'r> = SendQueue<'r, Silent>;

/// Returns the bytes of each work request that `post` posts. Posting begins at block 60 of 64, so that
/// requests reach across the ring's end.
fn posted(post: impl FnOnce(&mut Queue<'_>)) -> Vec<Vec<u8>> {
    let (mut ring, record) = (vec![Wqebb([0xa5; 64]); 64], DoorbellRecord::new());
    let config = SendQueueConfig { first_block: 60, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
    let mut queue = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, Silent).unwrap();
    post(&mut queue);
    let blocks: Vec<u8> = (60..queue.producer()).flat_map(|index| queue.block(index).0).collect();
    split_requests(&blocks)
}

/// Posts a configuration to `mkey`, and returns its work requests.
fn configured(mkey: &mut Mkey, prepared: &PreparedConfig, layout: Layout<'_>) -> Vec<Vec<u8>> {
    posted(|queue| queue.request(7).configure_mkey(mkey, prepared, layout).unwrap())
}

/// Returns the error with which posting refuses a configuration. Checks that the refusal changes nothing.
fn refusal(mkey: &mut Mkey, prepared: &PreparedConfig, layout: Layout<'_>) -> ConfigError {
    let (before, mut refusal) = (mkey.clone(), None);
    let requests = posted(|queue| {
        refusal = queue.request(7).configure_mkey(mkey, prepared, layout).err();
        assert_eq!((queue.outstanding(), queue.free_blocks(), queue.next_fence()), (0, 64, 0));
    });
    assert_eq!((requests, &*mkey), (vec![], &before));
    match refusal {
        Some(PostError::Config(error)) => error,
        other => panic!("{other:?}"),
    }
}

const PLAIN: MkeyAttributes = MkeyAttributes::plain(Key::from_raw(0x0012_3400), 16);

const ENGINES: [XtsEngine; 4] = [
    XtsEngine::MultiBlock,
    XtsEngine::MultiBlockLittleEndian,
    XtsEngine::SingleBlock,
    XtsEngine::Unspecified,
];

fn attributes(signature: bool, crypto: Option<XtsEngine>) -> MkeyAttributes {
    let psv = PsvIndex::from_low_bits;
    let signature = signature.then_some(SignatureAttributes::new(psv(0x11), psv(0x22)));
    MkeyAttributes { signature, crypto, ..PLAIN }
}

fn mkey(signature: bool, crypto: Option<XtsEngine>) -> Mkey {
    Mkey::new(attributes(signature, crypto))
}

const fn entry(address: u64, length: u32) -> KlmEntry {
    KlmEntry { address, length, key: Key::from_raw(0x5600) }
}

const LIST: Layout<'_> = Layout::List(&[entry(0, 512), entry(0x1000, 512)]);

const fn dif(app_tag: u16, ref_tag: u32) -> Domain {
    let (guard, seed, escape) = (Guard::Crc, Seed::Ones, Escape::Never);
    let dif = T10Dif { guard, seed, app_tag, ref_tag, ref_remap: true, escape };
    Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 }
}

const CRC32: Domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };

const fn crypto(tweak: u64) -> Crypto {
    Crypto {
        direction: Direction::EncryptOnTx,
        order: SignatureOrder::BeforeCryptoOnTx,
        data_unit: BlockSize::B4096,
        tweak: Tweak::from_lba(tweak),
        dek: DekId::from_low_bits(7),
        keytag: Keytag([0; 8]),
    }
}

/// Records a signature error of the wire domain in `mkey`, and returns the error as the mkey interprets it.
fn hurt(mkey: &mut Mkey) -> Option<SignatureError> {
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
    mkey.take_error().ok().flatten()
}

/// The span of a digest that other mkeys continue.
const PART: DigestSpan =
    DigestSpan::Transaction { part: DigestPart::First, psv: PsvIndex::from_low_bits(0x33) };

/// Returns mkeys of all kinds that have signatures, each with digests of each domain, of an mkey and of a
/// part of a transaction, alone and over the ciphertext of the domain.
fn digest_configs() -> impl Iterator<Item = (Mkey, MkeyConfig)> {
    let [wire, memory] = [Digest::wire(), Digest::memory()];
    let digests = [wire, memory, Digest { span: PART, ..wire }, Digest { span: PART, ..memory }];
    let [encrypts, decrypts] = [
        (Direction::EncryptOnTx, SignatureOrder::AfterCryptoOnTx),
        (Direction::DecryptOnTx, SignatureOrder::BeforeCryptoOnTx),
    ]
    .map(|(direction, order)| Crypto { direction, order, ..crypto(5) });
    let ciphers = [None, Some(encrypts), Some(decrypts)];
    let config = |(digest, crypto)| MkeyConfig {
        access: Some(Access::ALL),
        signature: SignatureChange::Digest(digest),
        crypto,
    };
    let configs = digests.into_iter().flat_map(move |digest| ciphers.map(|cipher| config((digest, cipher))));
    let kinds = ENGINES.map(Some).into_iter().chain([None]).map(|engine| mkey(true, engine));
    kinds
        .flat_map(move |mkey| configs.clone().map(move |config| (mkey.clone(), config)))
        .filter(|(mkey, config)| PreparedConfig::with_any_data_unit(mkey.kind(), config).is_ok())
}

/// Returns changes of the signature: block signatures of all shapes, reset, and kept. Digests have other
/// rules, see [`digest_configs`].
fn signature_changes() -> Vec<SignatureChange> {
    let copied = BlockSignature::both(dif(1, 2), dif(1, 2)).with_check_mask(0x3f);
    let signatures = [
        BlockSignature::memory(dif(1, 2)),
        BlockSignature::wire(dif(1, 2)),
        BlockSignature::both(dif(1, 2), dif(1, 2)),
        BlockSignature::both(dif(1, 2), dif(3, 4)),
        BlockSignature::both(CRC32, dif(3, 4)),
        BlockSignature::both(dif(1, 2), CRC32),
        BlockSignature::both(CRC32, CRC32),
        BlockSignature::wire(CRC32),
        copied.with_copy_mask(0x21).unwrap(),
    ];
    let set = signatures.map(SignatureChange::Set);
    set.into_iter().chain([SignatureChange::Reset, SignatureChange::Keep]).collect()
}

/// Returns mkeys of all kinds, each with every shape of configuration that the kind accepts.
fn all_configs() -> impl Iterator<Item = (Mkey, MkeyConfig)> {
    let engines = ENGINES.map(Some).into_iter().chain([None]);
    let kinds = engines.flat_map(|engine| [mkey(false, engine), mkey(true, engine)]);
    let changes =
        signature_changes().into_iter().flat_map(|change| [(change, None), (change, Some(crypto(5)))]);
    let configs =
        changes.map(|(signature, crypto)| MkeyConfig { access: Some(Access::ALL), signature, crypto });
    let configs: Vec<_> = configs.collect();
    kinds
        .flat_map(move |mkey| configs.clone().into_iter().map(move |config| (mkey.clone(), config)))
        .filter(|(mkey, config)| PreparedConfig::with_any_data_unit(mkey.kind(), config).is_ok())
}

/// Posts a configuration that was changed in place, and a newly prepared one, to copies of an mkey in several
/// states. Compares bytes and mkeys.
fn agree(mkey: &Mkey, changed: &PreparedConfig, config: &MkeyConfig) {
    let anew = PreparedConfig::with_any_data_unit(mkey.kind(), config).unwrap();
    assert_eq!((changed, changed.config()), (&anew, config));
    let unchanged: fn(&mut Mkey) = |_| ();
    let hurt: fn(&mut Mkey) = |mkey| {
        hurt(mkey);
    };
    let (mut one, mut other) = (mkey.clone(), mkey.clone());
    for step in [unchanged, unchanged, hurt, Mkey::forget] {
        step(&mut one);
        step(&mut other);
        // The first request reaches across the ring's end. For the second, the queue has to compute its free
        // blocks. For the third, the queue already knows enough free blocks.
        let post = |queue: &mut Queue<'_>, mkey: &mut Mkey, prepared| {
            [7, 8, 9].map(|id| queue.request(id).signaled().configure_mkey(mkey, prepared, LIST))
        };
        let mut results = [[Ok(()); 3]; 2];
        let found = posted(|queue| results[0] = post(queue, &mut one, changed));
        let expected = posted(|queue| results[1] = post(queue, &mut other, &anew));
        assert_eq!((found, results[0], &one), (expected, results[1], &other));
    }
}

/// A change of a prepared configuration in place, and the same change of a configuration before it is
/// prepared.
type Change =
    (fn(&mut PreparedConfig) -> Result<(), ConfigError>, fn(&mut MkeyConfig) -> Result<(), ConfigError>);

const CHANGES: [Change; 11] = [
    (
        |prepared| prepared.set_tweak(Tweak::new(u128::MAX / 3)),
        |config| with_crypto(config, |crypto| crypto.tweak = Tweak::new(u128::MAX / 3)),
    ),
    (
        |prepared| prepared.set_dek(DekId::from_low_bits(0xab_cdef), Keytag(*b"a keytag")),
        |config| {
            with_crypto(config, |crypto| {
                (crypto.dek, crypto.keytag) = (DekId::from_low_bits(0xab_cdef), Keytag(*b"a keytag"));
            })
        },
    ),
    // The first of the next two changes makes the tags of the domains differ, the second makes them equal
    // again. The mask of copied bytes follows both changes.
    (
        |prepared| prepared.set_ref_tag(DomainKind::Wire, 0x8765_4321),
        |config| with_dif(config, DomainKind::Wire, |dif| dif.ref_tag = 0x8765_4321),
    ),
    (
        |prepared| prepared.set_ref_tag(DomainKind::Memory, 0x8765_4321),
        |config| with_dif(config, DomainKind::Memory, |dif| dif.ref_tag = 0x8765_4321),
    ),
    (
        |prepared| prepared.set_app_tag(DomainKind::Memory, 0xffff),
        |config| with_dif(config, DomainKind::Memory, |dif| dif.app_tag = 0xffff),
    ),
    (
        |prepared| prepared.set_app_tag(DomainKind::Wire, 0xffff),
        |config| with_dif(config, DomainKind::Wire, |dif| dif.app_tag = 0xffff),
    ),
    (
        |prepared| prepared.set_app_tag(DomainKind::Wire, 0),
        |config| with_dif(config, DomainKind::Wire, |dif| dif.app_tag = 0),
    ),
    (
        |prepared| prepared.set_ref_tag(DomainKind::Memory, 0),
        |config| with_dif(config, DomainKind::Memory, |dif| dif.ref_tag = 0),
    ),
    (
        |prepared| prepared.set_tweak(Tweak::from_lba(0)),
        |config| with_crypto(config, |crypto| crypto.tweak = Tweak::from_lba(0)),
    ),
    (|prepared| prepared.set_digest(PART), |config| with_span(config, PART)),
    (|prepared| prepared.set_digest(DigestSpan::Mkey), |config| with_span(config, DigestSpan::Mkey)),
];

fn with_span(config: &mut MkeyConfig, span: DigestSpan) -> Result<(), ConfigError> {
    let SignatureChange::Digest(digest) = &mut config.signature else { return Err(ConfigError::NoDigest) };
    digest.span = span;
    Ok(())
}

fn with_crypto(config: &mut MkeyConfig, change: impl FnOnce(&mut Crypto)) -> Result<(), ConfigError> {
    config.crypto.as_mut().map(change).ok_or(ConfigError::NoCrypto)
}

/// Replaces the block signature of a configuration by one with a changed T10-DIF in one domain.
fn with_dif(
    config: &mut MkeyConfig,
    kind: DomainKind,
    change: impl FnOnce(&mut T10Dif),
) -> Result<(), ConfigError> {
    let absent = ConfigError::NoT10Dif(kind);
    let SignatureChange::Set(old) = config.signature else { return Err(absent) };
    let Some(Domain { signature: Signature::T10Dif(mut dif), block_size }) = old.domain(kind) else {
        return Err(absent);
    };
    change(&mut dif);
    let changed = Domain { signature: Signature::T10Dif(dif), block_size };
    let new = match (kind, old.memory_domain(), old.wire_domain()) {
        (DomainKind::Memory, _, None) => BlockSignature::memory(changed),
        (DomainKind::Wire, None, _) => BlockSignature::wire(changed),
        (DomainKind::Memory, _, Some(wire)) => BlockSignature::both(changed, wire),
        (DomainKind::Wire, Some(memory), _) => BlockSignature::both(memory, changed),
    };
    let new = new.with_check_mask(old.check_mask());
    config.signature = SignatureChange::Set(match old.copy_mask() {
        Some(mask) => new.with_copy_mask(mask)?,
        None => new,
    });
    Ok(())
}

#[test]
fn what_is_changed_in_place_is_what_is_prepared_anew() {
    let mut changed = [0; CHANGES.len()];
    for (mkey, mut config) in all_configs().chain(digest_configs()) {
        let fresh = PreparedConfig::with_any_data_unit(mkey.kind(), &config).unwrap();
        agree(&mkey, &fresh, &config);
        let (mut all, start) = (fresh, config);
        for (count, (in_place, anew)) in changed.iter_mut().zip(CHANGES) {
            // Each change is made alone, and after all earlier changes.
            let (mut alone, mut alone_config) = (fresh, start);
            let result = in_place(&mut alone);
            assert_eq!(result, anew(&mut alone_config));
            agree(&mkey, &alone, &alone_config);
            assert_eq!((in_place(&mut all), anew(&mut config)), (result, result));
            agree(&mkey, &all, &config);
            *count += usize::from(result.is_ok());
        }
    }
    assert!(changed.iter().all(|count| *count > 20), "{changed:?}");
}

#[test]
fn a_configuration_of_no_mkey_of_the_kind_is_not_prepared() {
    let prepare = |mkey: &Mkey, config: &MkeyConfig| {
        PreparedConfig::with_any_data_unit(mkey.kind(), config).map(|_| ())
    };
    let signature = SignatureChange::Set(BlockSignature::both(dif(1, 2), dif(1, 2)));
    let outside = Crypto { order: SignatureOrder::AfterCryptoOnTx, ..crypto(1) };
    let config = MkeyConfig { access: None, signature, crypto: Some(outside) };
    let engine = Some(XtsEngine::MultiBlock);
    assert_eq!(prepare(&mkey(false, engine), &config), Err(ConfigError::NotASignatureMkey));
    assert_eq!(prepare(&mkey(true, None), &config), Err(ConfigError::NotACryptoMkey));
    assert_eq!(prepare(&mkey(true, engine), &config), Err(ConfigError::BothSignaturesOutsideCipher));
    let capabilities = SignatureCapabilities { crc32c: false, ..SignatureCapabilities::ALL };
    let crc32c = Domain { signature: Signature::Crc32c(Seed::Ones), ..CRC32 };
    let old = SignatureAttributes { capabilities, ..attributes(true, None).signature.unwrap() };
    let old = Mkey::new(MkeyAttributes { signature: Some(old), ..PLAIN });
    let set = |signature| MkeyConfig { signature: SignatureChange::Set(signature), ..MkeyConfig::UNCHANGED };
    assert_eq!(prepare(&old, &set(BlockSignature::memory(crc32c))), Err(ConfigError::SignatureUnsupported));
    assert_eq!(prepare(&old, &set(BlockSignature::wire(CRC32))), Ok(()));
}
