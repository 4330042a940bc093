//! Digests: what is refused, what depends on the layout, and what is set anew after an error.

use super::*;
use crate::mkey::{Digest, DigestPart, MkeyKind, SignatureErrorKind, UmrForm};
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

/// The BSF of a UMR that has one block of entries.
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
    // A new mkey has its error count to tell.
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
    let error = mkey.check().unwrap().unwrap();
    assert_eq!((error.kind, error.found, error.computed), (SignatureErrorKind::Digest, 8, 7));
    assert_eq!(error.to_string(), "bad digest (wire): found 0x0008, computed 0x0007");
    let requests = configured(&mut mkey, &own, LIST);
    assert_eq!(requests[1][16..32], [0, 0, 0, 2, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let named = configured(&mut mkey, &shared, LIST);
    assert_eq!((named.len(), bsf(&named[0]).ext_wire_tfs_psv.get()), (1, 0x4000_0009));
    // A digest of the other domain is not what the device tells of.
    let fault = SignatureFault { domain: SignatureErrorCqe::DOMAIN_MEMORY, ..fault };
    assert!(mkey.record(&fault) && mkey.check().is_err());
}
