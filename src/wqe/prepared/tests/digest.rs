//! Tests of digests: combinations that are refused, sizes that depend on the layout, and the new start of a
//! digest after a signature error.

use super::*;
use crate::mkey::{MkeyKind, SignatureErrorKind, UmrForm};
use std::string::ToString;

const LIST: Layout<'_> =
    Layout::List(&[KlmEntry { address: 0x1000, length: 700, key: Key::from_raw(0x5600) }]);

fn config(digest: Digest) -> MkeyConfig {
    MkeyConfig { signature: SignatureChange::Digest(digest), ..MkeyConfig::UNCHANGED }
}

fn signature_mkey() -> Mkey {
    let signature = Some(SignatureAttributes::new(PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2)));
    Mkey::new(MkeyAttributes { signature, ..PLAIN })
}

/// Returns the BSF of a UMR whose layout takes one block. The BSF is the fourth block, after the two blocks
/// of the head and the block of the layout.
fn bsf(request: &[u8]) -> SignatureBsf {
    use zerocopy::FromBytes;
    SignatureBsf::read_from_bytes(&request[192..256]).unwrap()
}

#[test]
fn what_no_mkey_of_the_kind_can_hold_is_refused() {
    let (all, form) = (SignatureCapabilities::ALL, UmrForm::Complete);
    let kind = |signature, crypto| MkeyKind { max_entries: 16, signature, crypto, form, entry_size: None };
    let new = |kind, config: &MkeyConfig| PreparedConfig::new(kind, config).map(|_| ());
    let wire = config(Digest::wire());
    assert_eq!(new(kind(None, None), &wire), Err(ConfigError::NotASignatureMkey));
    let old = SignatureCapabilities { crc32c: false, ..all };
    assert_eq!(new(kind(Some(old), None), &wire), Err(ConfigError::SignatureUnsupported));
    let crypto = |direction, order| Crypto {
        direction,
        order,
        data_unit: BlockSize::B512,
        tweak: Tweak::default(),
        dek: DekId::default(),
        keytag: Keytag::default(),
    };
    use {Direction::*, SignatureOrder::*};
    for (direction, order, domain) in [
        (EncryptOnTx, AfterCryptoOnTx, Some(DomainKind::Wire)),
        (EncryptOnTx, BeforeCryptoOnTx, None),
        (DecryptOnTx, AfterCryptoOnTx, None),
        (DecryptOnTx, BeforeCryptoOnTx, Some(DomainKind::Memory)),
    ] {
        for digest in [Digest::wire(), Digest::memory()] {
            let both = MkeyConfig { crypto: Some(crypto(direction, order)), ..config(digest) };
            let known = domain == Some(digest.domain);
            let expected = if known { Ok(()) } else { Err(ConfigError::DigestNotOverCiphertext) };
            let engine = Some(XtsEngine::MultiBlock);
            assert_eq!(new(kind(Some(all), engine), &both), expected, "{both:?}");
            let lacks = SignatureCapabilities { digest_with_xts: false, ..all };
            let unsupported = Err(ConfigError::DigestWithXtsUnsupported);
            assert_eq!(new(kind(Some(lacks), engine), &both), unsupported, "{both:?}");
        }
    }
}

#[test]
fn a_digest_needs_data_beside_it() {
    let prepare = |digest| PreparedConfig::new(signature_mkey().kind(), &config(digest)).unwrap();
    for length in 1..=4 {
        let list = [KlmEntry { address: 0, length, key: Key::from_raw(0x5600) }];
        let refused = refusal(&mut signature_mkey(), &prepare(Digest::memory()), Layout::List(&list));
        assert_eq!(refused, ConfigError::DigestWithoutData { length: length as u8 });
        configured(&mut signature_mkey(), &prepare(Digest::wire()), Layout::List(&list));
    }
    let empty = refusal(&mut signature_mkey(), &prepare(Digest::wire()), Layout::Unchanged);
    assert_eq!(empty, ConfigError::DigestWithoutData { length: 0 });
    let mut none = PreparedConfig::new(signature_mkey().kind(), &MkeyConfig::UNCHANGED).unwrap();
    assert_eq!(none.set_digest(DigestSpan::Mkey), Err(ConfigError::NoDigest));
}

#[test]
fn a_digest_that_stays_follows_the_layout() {
    let mut mkey = signature_mkey();
    let prepared = PreparedConfig::new(mkey.kind(), &config(Digest::memory())).unwrap();
    let first = configured(&mut mkey, &prepared, LIST);
    assert_eq!(bsf(&first[0]).raw_data_size.get(), 696);
    assert_eq!(mkey.wire_length(), Some(696));
    let keeping = PreparedConfig::new(mkey.kind(), &MkeyConfig::UNCHANGED).unwrap();
    let list = [KlmEntry { address: 0x1000, length: 104, key: Key::from_raw(0x5600) }];
    let second = configured(&mut mkey, &keeping, Layout::List(&list));
    assert_eq!(bsf(&second[0]).raw_data_size.get(), 100);
    assert_eq!(mkey.digest(), Some(&Digest::memory()));
}

#[test]
fn the_psv_of_one_mkey_is_set_only_after_an_error() {
    let mut mkey = signature_mkey();
    let own = PreparedConfig::new(mkey.kind(), &config(Digest::wire())).unwrap();
    let psv = PsvIndex::from_low_bits(9);
    let span = DigestSpan::Transaction { part: DigestPart::Whole, psv };
    let mut shared = own;
    shared.set_digest(span).unwrap();
    // The first UMR to a new mkey also writes the error count. A SET_PSV then follows for the mkey's own PSV,
    // but none for the PSV of a transaction.
    assert_eq!(configured(&mut mkey.clone(), &shared, LIST).len(), 1);
    assert_eq!(configured(&mut mkey, &own, LIST).len(), 2);
    let usual = configured(&mut mkey, &own, LIST);
    assert_eq!((usual.len(), bsf(&usual[0]).ext_wire_tfs_psv.get()), (1, 0x4000_0002));
    let fault = SignatureFault {
        mkey: mkey.key().index(),
        syndrome: SignatureErrorCqe::SYNDROME_GUARD,
        sig_type: SignatureErrorCqe::TYPE_TRANSACTION,
        domain: SignatureErrorCqe::DOMAIN_WIRE,
        expected: 7 << 32,
        actual: 8 << 32,
        offset: 703,
    };
    assert!(mkey.record(&fault));
    let error = mkey.take_error().unwrap().unwrap();
    assert_eq!((error.kind, error.found, error.computed), (SignatureErrorKind::Digest, 8, 7));
    assert_eq!(error.to_string(), "bad digest (wire): found 0x0008, computed 0x0007");
    let requests = configured(&mut mkey, &own, LIST);
    assert_eq!(requests[1][16..32], [0, 0, 0, 2, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let named = configured(&mut mkey, &shared, LIST);
    assert_eq!((named.len(), bsf(&named[0]).ext_wire_tfs_psv.get()), (1, 0x4000_0009));
    // An error of the memory domain contradicts the configuration, which has a digest on the wire only.
    let fault = SignatureFault { domain: SignatureErrorCqe::DOMAIN_MEMORY, ..fault };
    assert!(mkey.record(&fault) && mkey.take_error().is_err());
}

/// The key of the mkey that SPDK configures.
const SPDK_KEY: u32 = 0x0000_1342;
/// The local key of the memory that the mkey maps.
const LKEY: u32 = 0x0056_7800;

/// Returns a UMR over two pieces of memory of half the `bytes` each, as `lib/mlx5` of NVIDIA's SPDK v24.01.4
/// writes it. The bytes are written by hand; the test `a_transaction_with_aes_xts_has_two_forms` of `inspect`
/// has the same fields. `counted` says whether the UMR writes the error count.
fn spdk_umr(bytes: u32, counted: bool, bsfs: &[u8]) -> Vec<u8> {
    let octowords = 8 + 4 + bsfs.len() / 16;
    let piece = |at: u64| {
        [(bytes / 2).to_be_bytes().as_slice(), &LKEY.to_be_bytes(), &(0x2000_0000_0000 + at).to_be_bytes()]
            .concat()
    };
    // The mask selects the fields `free`, `len`, and the count of signature errors.
    let mask = 1_u64 << 29 | 1 | u64::from(counted) << 9;
    [
        &[0, 0, 60, 0x25, 0, 0, 0x77, octowords as u8, 0, 0, 0, 0],
        SPDK_KEY.to_be_bytes().as_slice(),
        &[0x80, 0, 0, 0, 0, 4, 0, (bsfs.len() / 16) as u8],
        &mask.to_be_bytes(),
        &[0; 32],
        &[0; 12],
        &[u8::from(counted) << 2, 0, 0, 0],
        &[0; 8],
        &u64::from(bytes).to_be_bytes(),
        &[0; 32],
        &piece(0),
        &piece(0x2000),
        &[0; 32],
        bsfs,
    ]
    .concat()
}

/// Returns the BSF of a digest. `size` is the size code, `data` the number of data bytes, `bits` are the
/// `TransactionBits`, `wire` and `memory` hold format and PSV of a domain.
fn spdk_digest(size: u8, data: u32, bits: u32, wire: u32, memory: u32) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    let [bits, wire, memory] = [bits, wire, memory].map(|word| words(&[word]));
    [&[size << 6, 0xff, 0, 0], &*words(&[data]), &[0; 8], &*bits, &[0; 4], &*wire, &*memory, &[0; 32]]
        .concat()
}

/// Returns the crypto BSF that follows the BSF of a digest: AES-XTS with data units of 512 bytes.
fn spdk_crypto(order: u8, data: u32, tweak: u128) -> Vec<u8> {
    [
        &[3 << 6 | 1, order, 0, 0],
        data.to_be_bytes().as_slice(),
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &tweak.to_be_bytes(),
        &[0, 0, 0, 0x99, 0, 0, 0, 0],
        &[0; 24],
    ]
    .concat()
}

/// Configures an mkey with the minimal UMRs of SPDK twice, and returns both UMRs. The first also writes the
/// error count.
fn spdk_configured(crypto: Option<Crypto>, digest: Digest, bytes: u32) -> [Vec<u8>; 2] {
    let psv = PsvIndex::from_low_bits;
    let mut mkey = Mkey::new(MkeyAttributes {
        signature: Some(SignatureAttributes::new(psv(1), psv(2))),
        crypto: crypto.map(|_| XtsEngine::MultiBlock),
        form: UmrForm::Minimal,
        ..MkeyAttributes::plain(Key::from_raw(SPDK_KEY), 16)
    });
    let prepared = PreparedConfig::new(mkey.kind(), &MkeyConfig { crypto, ..config(digest) }).unwrap();
    let piece =
        |at: u64| KlmEntry { address: 0x2000_0000_0000 + at, length: bytes / 2, key: Key::from_raw(LKEY) };
    [(); 2].map(|()| {
        let mut requests = configured(&mut mkey, &prepared, Layout::List(&[piece(0), piece(0x2000)]));
        assert_eq!(requests.len(), 1);
        requests.remove(0)
    })
}

/// Returns a digest of one part of a transaction under PSV 0x22.
fn spdk_part(domain: DomainKind, part: DigestPart) -> Digest {
    let span = DigestSpan::Transaction { part, psv: PsvIndex::from_low_bits(0x22) };
    Digest { domain, seed: Seed::Ones, span }
}

const PARTS: [DigestPart; 4] = [DigestPart::Whole, DigestPart::First, DigestPart::Middle, DigestPart::Last];

#[test]
fn m70_a_digest_with_aes_xts_is_that_of_spdk() {
    use {Direction::*, DomainKind::*, SignatureOrder::*};
    // The lower half of the tweak is a number, the upper half is all ones. A swap of bytes thus changes the
    // tweak.
    let tweak = u128::from(u64::MAX) << 64 | 0x1234;
    for (domain, direction, order, code, bits, digest_bytes) in [
        (Wire, EncryptOnTx, AfterCryptoOnTx, 2, [0x3000_0000, 0x2000_0000, 0, 0x1000_0000], 0),
        (Memory, DecryptOnTx, BeforeCryptoOnTx, 3, [0x0300_0000, 0x0200_0000, 0, 0x0100_0000], 4),
    ] {
        for (part, bits) in PARTS.into_iter().zip(bits) {
            let crypto = Crypto {
                direction,
                order,
                data_unit: BlockSize::B512,
                tweak: Tweak::new(tweak),
                dek: DekId::from_low_bits(0x99),
                keytag: Keytag::default(),
            };
            // If the digest lies in memory, the mkey of the last part maps the bytes of the digest too.
            let bytes = 4096 + if part.ends() { digest_bytes } else { 0 };
            let (wire, memory) = if domain == Wire { (0x4000_0022, 0) } else { (0, 0x4000_0022) };
            let bsfs = [spdk_digest(3, 4096, bits, wire, memory), spdk_crypto(code, 4096, tweak)].concat();
            let expected = [true, false].map(|counted| spdk_umr(bytes, counted, &bsfs));
            assert_eq!(spdk_configured(Some(crypto), spdk_part(domain, part), bytes), expected, "{part:?}");
        }
    }
}

#[test]
fn m70_each_part_of_a_digest_in_memory_is_that_of_spdk() {
    for (part, bits) in PARTS.into_iter().zip([0x0300_0000, 0x0200_0000, 0, 0x0100_0000]) {
        let bytes = 4096 + if part.ends() { 4 } else { 0 };
        let bsf = spdk_digest(1, 4096, bits, 0, 0x4000_0022);
        let expected = [true, false].map(|counted| spdk_umr(bytes, counted, &bsf));
        assert_eq!(spdk_configured(None, spdk_part(DomainKind::Memory, part), bytes), expected, "{part:?}");
    }
}
