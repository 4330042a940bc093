//! Tests of the configurations that an mkey accepts in each state, and of the interpretation of its errors.

use super::*;
use crate::mkey::{Access, Domain, Signature};
use crate::types::{BlockSize, Seed};
use crate::wire::cqe::SignatureErrorCqe;

/// The kind word of an mkey without signature and crypto, in a state in which prepared configurations need no
/// change.
const PLAIN: KindWord = KindWord::of(MkeyAttributes::plain(Key::from_raw(0), 16).kind());

const LIST: LayoutForm = LayoutForm { kind: LayoutKind::List, octowords: 0 };

const PSVS: (PsvIndex, PsvIndex) = (PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2));

fn signature_mkey(key: Key) -> Mkey {
    let signature = Some(SignatureAttributes::new(PSVS.0, PSVS.1));
    Mkey::new(MkeyAttributes { signature, ..MkeyAttributes::plain(key, 16) })
}

#[test]
fn m3_a_tag_that_the_device_cannot_write_is_refused_when_the_key_is_configured() {
    let attributes = MkeyAttributes::plain(Key::from_raw(0x0012_3456), 16);
    let mut mkey = Mkey::new(attributes);
    assert_eq!(mkey.key(), attributes.key);
    let refused = ConfigError::TagUpdateUnsupported { tag: 0x56 };
    let config = MkeyConfig { access: Some(Access::NONE), ..MkeyConfig::UNCHANGED };
    assert_ne!(mkey.kind_word, PLAIN, "not taken without a look at it");
    assert_eq!(mkey.check_state(&config, LIST), Err(refused));
    assert_eq!(mkey.set_tag(0x56), Err(refused));
    // Tag 0 is accepted although the device cannot change tags.
    mkey.set_tag(0).unwrap();
    assert_eq!((mkey.kind_word, mkey.check_state(&config, LIST)), (PLAIN, Ok(())));
    let able = MkeyAttributes { tag_update: true, ..attributes };
    assert_eq!(Mkey::new(able).kind_word, PLAIN);
}

#[test]
fn telling_the_error_count_leaves_nothing_pending() {
    let mut mkey = signature_mkey(Key::from_raw(0x0012_3400));
    let takes_what_is_prepared = mkey.kind_word == KindWord::of(mkey.kind());
    assert_eq!((mkey.error_count_pending, takes_what_is_prepared), (true, true));
    let known = mkey.clone();
    mkey.note_known();
    assert_eq!(mkey, known, "the count stays to be told");
    let config = MkeyConfig::UNCHANGED;
    assert_eq!((mkey.note(LayoutKind::List, 1, &config), mkey.error_count_pending), (Some(1), false));
    assert_eq!(mkey.note(LayoutKind::List, 1, &config), None);
}

#[test]
fn an_error_of_data_that_moved_before_is_read_by_the_signature_of_then() {
    let key = Key::from_raw(0x0012_3400);
    let mut mkey = signature_mkey(key);
    let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
    let set = SignatureChange::Set(BlockSignature::memory(domain));
    let config = MkeyConfig { signature: set, ..MkeyConfig::UNCHANGED };
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
    let forgets: [fn(&mut Mkey); 2] = [Mkey::note_invalidated, Mkey::forget];
    for forget in forgets {
        mkey.note(LayoutKind::List, 516, &config);
        mkey.note_known();
        forget(&mut mkey);
        // After a second `forget`, the old signature still serves to interpret errors.
        forget(&mut mkey);
        assert_eq!((mkey.signature(), mkey.length(), mkey.wire_length()), (None, 0, Some(0)));
        assert!(mkey.record(&fault));
        assert_eq!(mkey.take_error().map(|error| error.map(says)), Ok(Some((1, 0x2222_2222, 0x1111_1111))));
    }
    // After an invalidation, the device is known to have the count. After `forget`, the count has to be
    // written again.
    let counts = forgets.map(|forget| {
        mkey.note_known();
        let seen = mkey.note(LayoutKind::List, 516, &config);
        forget(&mut mkey);
        (seen, mkey.error_count_pending)
    });
    assert_eq!(counts, [(Some(3), false), (None, true)]);
    // Once a configuration has reset the signature, an error cannot be interpreted.
    let reset = MkeyConfig { signature: SignatureChange::Reset, ..config };
    assert_eq!(mkey.note(LayoutKind::List, 516, &reset), Some(3));
    assert!(mkey.record(&fault) && mkey.take_error().is_err());
}

#[test]
fn an_error_under_a_digest_is_read_only_if_it_is_of_the_digest() {
    let key = Key::from_raw(0x0012_3400);
    let mut mkey = signature_mkey(key);
    let digest = SignatureChange::Digest(Digest::wire());
    let config = MkeyConfig { signature: digest, ..MkeyConfig::UNCHANGED };
    assert_eq!(mkey.note(LayoutKind::List, 100, &config), Some(1));
    let fault = SignatureFault {
        mkey: key.index(),
        syndrome: SignatureErrorCqe::SYNDROME_GUARD,
        sig_type: SignatureErrorCqe::TYPE_TRANSACTION,
        domain: SignatureErrorCqe::DOMAIN_WIRE,
        expected: 0x1111_1111 << 32,
        actual: 0x2222_2222 << 32,
        offset: 100,
    };
    let mut read = |fault| {
        assert!(mkey.record(&fault));
        mkey.take_error().map(|error| error.map(|error| (error.found, error.computed)))
    };
    assert_eq!(read(fault), Ok(Some((0x2222_2222, 0x1111_1111))));
    for other in [
        SignatureFault { sig_type: SignatureErrorCqe::TYPE_BLOCK, ..fault },
        SignatureFault { syndrome: 0, ..fault },
        SignatureFault { syndrome: !SignatureErrorCqe::SYNDROME_GUARD, ..fault },
        SignatureFault { domain: SignatureErrorCqe::DOMAIN_MEMORY, ..fault },
    ] {
        assert!(matches!(read(other), Err(CheckError::Unintelligible { .. })), "{other:?}");
    }
}

#[test]
fn rights_that_both_give_are_given() {
    let both = Access::REMOTE_READ | Access::REMOTE_WRITE;
    assert_eq!(both | Access::REMOTE_READ, both);
}
