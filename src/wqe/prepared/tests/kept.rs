//! Tests that properties that a configuration leaves out stay in force. A post writes them again where
//! necessary.

use super::*;
use crate::mkey::error::ConfigPart;

/// The name of a step, and a step that changes an mkey but leaves its state known.
type Step = (&'static str, fn(&mut Mkey));

const STEPS: [Step; 3] = [
    ("nothing happened", |_| ()),
    ("after an error", |mkey| {
        hurt(mkey);
    }),
    ("after two errors", |mkey| {
        hurt(mkey);
        hurt(mkey);
    }),
];

/// Prepares and posts a configuration, and returns its work requests.
fn configure(mkey: &mut Mkey, config: &MkeyConfig) -> Vec<Vec<u8>> {
    let prepared = PreparedConfig::with_any_data_unit(mkey.kind(), config).unwrap();
    configured(mkey, &prepared, LIST)
}

/// Returns one mkey for each shape of signature, after a complete configuration was posted to it.
fn in_force(engine: Option<XtsEngine>) -> Vec<(Mkey, MkeyConfig)> {
    let signatures = signature_changes().into_iter().filter(|change| *change != SignatureChange::Keep);
    let configured = signatures.map(|signature| {
        let config = MkeyConfig { access: Some(Access::ALL), signature, crypto: engine.map(|_| crypto(5)) };
        let mut mkey = mkey(true, engine);
        configure(&mut mkey, &config);
        (mkey, config)
    });
    configured.collect()
}

/// Posts a configuration that keeps a part, and one that gives all parts, to copies of an mkey. Checks that
/// the copies agree, and returns the requests of both.
fn both_ways(mkey: &Mkey, keeping: &MkeyConfig, whole: &MkeyConfig) -> [Vec<Vec<u8>>; 2] {
    let (mut one, mut other) = (mkey.clone(), mkey.clone());
    let requests = [configure(&mut one, keeping), configure(&mut other, whole)];
    assert_eq!(one, other);
    assert_eq!((one.signature(), one.crypto()), (whole.signature.signature(), whole.crypto.as_ref()));
    requests
}

#[test]
fn kept_crypto_is_written_as_if_it_were_given() {
    for (mut mkey, whole) in ENGINES.into_iter().flat_map(|engine| in_force(Some(engine))) {
        for (name, step) in STEPS {
            step(&mut mkey);
            let [found, expected] = both_ways(&mkey, &MkeyConfig { crypto: None, ..whole }, &whole);
            assert_eq!(found, expected, "{name}, {whole:?}");
        }
    }
}

#[test]
fn a_kept_signature_is_written_as_if_it_were_given() {
    for (mut mkey, whole) in ENGINES.into_iter().flat_map(|engine| in_force(Some(engine))) {
        let keeping = MkeyConfig { signature: SignatureChange::Keep, ..whole };
        for (name, step) in STEPS {
            step(&mut mkey);
            let [found, expected] = both_ways(&mkey, &keeping, &whole);
            assert_eq!(found[0], expected[0], "{name}, {whole:?}");
            // SET_PSVs for the kept signature follow the UMR only after an error.
            let rearms = mkey.error_count().is_some_and(|count| count.pending);
            assert_eq!(found.len(), if rearms { expected.len() } else { 1 }, "{name}, {whole:?}");
            assert_eq!(found, expected[..found.len()], "{name}, {whole:?}");
        }
    }
}

#[test]
fn without_crypto_a_kept_signature_stays_on_the_device() {
    for (mut mkey, whole) in in_force(None) {
        let keeping = MkeyConfig { signature: SignatureChange::Keep, ..whole };
        for (name, step) in STEPS {
            step(&mut mkey);
            let [found, expected] = both_ways(&mkey, &keeping, &whole);
            if whole.signature == SignatureChange::Reset {
                assert_eq!(found, expected, "{name}");
                continue;
            }
            assert_eq!(found[0].len(), 3 * WQEBB_BYTES, "{name}: head, context and entries, no BSF");
            let rearms = mkey.error_count().is_some_and(|count| count.pending);
            assert_eq!(found.len(), if rearms { expected.len() } else { 1 }, "{name}, {whole:?}");
            for (found, expected) in found.iter().zip(&expected).skip(1) {
                // Only the block number of the SET_PSV differs: a UMR without a BSF is one block shorter.
                assert_eq!((found[0], &found[3..]), (expected[0], &expected[3..]), "{name}, {whole:?}");
            }
        }
    }
}

#[test]
fn what_was_never_set_is_kept_as_nothing() {
    for engine in ENGINES {
        let given =
            MkeyConfig { access: Some(Access::ALL), crypto: Some(crypto(1)), ..MkeyConfig::UNCHANGED };
        let reset = MkeyConfig { signature: SignatureChange::Reset, ..given };
        let (mut one, mut other) = (mkey(true, Some(engine)), mkey(true, Some(engine)));
        assert_eq!(configure(&mut one, &given), configure(&mut other, &reset));
        let known = |mkey: &Mkey| (mkey.signature().copied(), mkey.crypto().copied(), mkey.error_count());
        assert_eq!(known(&one), known(&other));
        assert_eq!((one.signature(), one.crypto()), (None, Some(&crypto(1))));
    }
}

#[test]
fn what_is_not_known_must_be_given() {
    let losses: [fn(&mut Mkey); 2] = [Mkey::note_invalidated, Mkey::forget];
    for (mut mkey, whole) in ENGINES.into_iter().flat_map(|engine| in_force(Some(engine))) {
        let kind = mkey.kind();
        let all = PreparedConfig::with_any_data_unit(kind, &whole).unwrap();
        let parts = [
            (MkeyConfig { access: None, ..whole }, LIST, ConfigPart::Access),
            (whole, Layout::Unchanged, ConfigPart::Layout),
            (MkeyConfig { signature: SignatureChange::Keep, ..whole }, LIST, ConfigPart::Signature),
            (MkeyConfig { crypto: None, ..whole }, LIST, ConfigPart::Crypto),
        ]
        .map(|(config, layout, missing)| {
            (PreparedConfig::with_any_data_unit(kind, &config).unwrap(), layout, missing)
        });
        for lose in losses {
            let mut twin = mkey.clone();
            lose(&mut mkey);
            assert_eq!((mkey.signature(), mkey.crypto(), mkey.length()), (None, None, 0));
            for (prepared, layout, missing) in &parts {
                let refused = ConfigError::StateUnknown { missing: *missing };
                assert_eq!(refusal(&mut mkey, prepared, *layout), refused);
            }
            configured(&mut mkey, &all, LIST);
            assert_eq!(mkey, twin);
            // After the complete configuration, the whole state of the mkey is known again.
            for (prepared, layout, _) in &parts {
                let found = configured(&mut mkey, prepared, *layout);
                assert_eq!(found, configured(&mut twin, prepared, *layout));
                assert_eq!(mkey, twin);
            }
        }
    }
}

#[test]
fn the_rule_of_two_signatures_minds_what_is_kept() {
    let mut mkey = mkey(true, Some(XtsEngine::MultiBlock));
    let kind = mkey.kind();
    let prepare = |config: MkeyConfig| PreparedConfig::with_any_data_unit(kind, &config).unwrap();
    let both = SignatureChange::Set(BlockSignature::both(dif(1, 2), dif(1, 2)));
    let outside = Some(Crypto { order: SignatureOrder::AfterCryptoOnTx, ..crypto(1) });
    let sign = prepare(MkeyConfig { signature: both, ..MkeyConfig::UNCHANGED });
    let encrypt = prepare(MkeyConfig { crypto: outside, ..MkeyConfig::UNCHANGED });
    let reset = prepare(MkeyConfig { signature: SignatureChange::Reset, ..MkeyConfig::UNCHANGED });
    configured(&mut mkey, &sign, LIST);
    assert_eq!(refusal(&mut mkey, &encrypt, LIST), ConfigError::BothSignaturesOutsideCipher);
    configured(&mut mkey, &reset, LIST);
    configured(&mut mkey, &encrypt, LIST);
    assert_eq!(refusal(&mut mkey, &sign, LIST), ConfigError::BothSignaturesOutsideCipher);
}
