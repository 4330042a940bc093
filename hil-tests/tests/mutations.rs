//! Do the scenarios notice a broken device? Each switch of [`Faults`] is turned on alone, and one scenario at least must
//! fail then.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use hil_tests::board::{Board, SoftBoard};
use hil_tests::scenarios::{self, Scenario};
use mlx5_softdev::{
    Arena, CryptoMode, DekAttributes, Device, Faults, KeyMaterial, KeySize, Personality, XtsEngine,
};

/// Names the fields of [`Faults`]; the pattern makes it a compile error to forget one.
macro_rules! switches {
    ($($name:ident),+ $(,)?) => {{
        let Faults { $($name: _),+ } = Faults::default();
        [$((stringify!($name), Faults { $name: true, ..Faults::default() })),+]
    }};
}

fn mutations() -> [(&'static str, Faults); 18] {
    switches!(
        ref_tag_not_advancing,
        tweak_not_advancing,
        signature_over_plaintext,
        stride_ignored,
        access_flags_ignored,
        local_inv_ignored,
        remote_invalidate_ignored,
        dek256_as_128,
        key_wrap_integrity_ignored,
        wire_signatures_ignored,
        check_mask_ignored,
        copy_mask_ignored,
        escapes_ignored,
        psv_not_reset_by_set_psv,
        keytag_ignored,
        length_counts_memory_bytes,
        error_not_kept_first,
        crc_seed_inverted,
    )
}

/// Runs all scenarios that a device of this kind can run; returns which of them fail, and how many there were.
fn failing(personality: Personality, faults: Faults) -> (Vec<&'static str>, usize) {
    let capabilities = SoftBoard::new(personality).capabilities();
    let runnable: Vec<&Scenario> =
        scenarios::all().filter(|scenario| scenario.needs.missing(&capabilities).is_none()).collect();
    let fails = |scenario: &&&Scenario| {
        let mut board = SoftBoard::new(personality).with_faults(faults);
        (scenario.run)(&mut board).is_err()
    };
    (runnable.iter().filter(fails).map(|scenario| scenario.name).collect(), runnable.len())
}

/// A witness for what no scenario can see, since boards load keys in plaintext: a wrapped key with a changed byte must not
/// be loaded (M32). The key and its wrapped form are those of RFC 3394, section 4.6.
fn a_changed_wrapped_key_is_refused(faults: Faults) -> bool {
    let personality = Personality { crypto: CryptoMode::Wrapped, ..Personality::default() };
    let mut device = Device::new(Arena::new(0, 0), personality);
    device.set_faults(faults);
    let wrapped: [u8; 40] = [
        0x28, 0xc9, 0xf4, 0x04, 0xc4, 0xb8, 0x10, 0xf4, 0xcb, 0xcc, 0xb3, 0x5c, 0xfb, 0x87, 0xf8, 0x26, 0x3f,
        0x57, 0x86, 0xe2, 0xd8, 0x0e, 0xd3, 0x26, 0xcb, 0xc7, 0xf0, 0xe7, 0x1a, 0x99, 0xf4, 0x3b, 0xfb, 0x98,
        0x8b, 0x9b, 0x7a, 0x02, 0xdd, 0x21,
    ];
    let kek: Vec<u8> = (0..32).collect();
    let pd = device.alloc_pd().expect("a domain");
    let kek = device.import_kek(&kek).expect("a KEK");
    let credential = device.import_credential(&CREDENTIAL).expect("a credential");
    let login = device.login(kek, credential, &WRAPPED_CREDENTIAL).expect("a login");
    let mut load = |bytes: &[u8]| {
        let key = KeyMaterial::Wrapped { bytes, login };
        device.create_dek(DekAttributes { pd, size: KeySize::Bits128, has_keytag: false, key }).is_ok()
    };
    assert!(load(&wrapped), "the key as published");
    let mut changed = wrapped;
    changed[20] ^= 1;
    !load(&changed)
}

/// Forty bytes and their wrapped form under the KEK 00 to 1F, computed with an independent implementation of RFC 3394.
const CREDENTIAL: [u8; 40] = [0x61; 40];
const WRAPPED_CREDENTIAL: [u8; 48] = [
    0x06, 0xf4, 0x20, 0xc8, 0x1e, 0x44, 0x6e, 0x96, 0x53, 0xbc, 0xc4, 0x62, 0xc7, 0x15, 0x3a, 0x62, 0xe2,
    0xe5, 0x97, 0xeb, 0x0a, 0x6f, 0x62, 0xc2, 0x71, 0x44, 0x05, 0x4b, 0x0a, 0x3e, 0xc9, 0x1d, 0xd6, 0x0b,
    0xc2, 0xb3, 0x49, 0xcd, 0x54, 0x03, 0x45, 0xcf, 0x13, 0x1a, 0x6f, 0x13, 0x75, 0xe7,
];

#[test]
fn a_whole_device_passes() {
    let plain = Personality::default();
    for personality in [plain, Personality { xts: XtsEngine::SingleBlock, ..plain }] {
        assert_eq!(failing(personality, Faults::default()).0, Vec::<&str>::new());
    }
    assert!(a_changed_wrapped_key_is_refused(Faults::default()));
}

#[test]
fn every_mutation_is_noticed() {
    let mut unnoticed = Vec::new();
    for (name, faults) in mutations() {
        let (mut noticed, of) = failing(Personality::default(), faults);
        if !a_changed_wrapped_key_is_refused(faults) {
            noticed.push("(witness) a_changed_wrapped_key_is_refused");
        }
        println!("{name}: noticed by {} of {of} scenarios", noticed.len());
        for scenario in &noticed {
            println!("    {scenario}");
        }
        if noticed.is_empty() {
            unnoticed.push(name);
        }
    }
    assert!(unnoticed.is_empty(), "no scenario notices {unnoticed:?}");
}
