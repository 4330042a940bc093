//! Crypto logins: wrapped keys are loaded under a login, and loaded keys stay usable after its end.

use super::fixture::{CRYPTO, KEY_128, KEY_256, MkeyFixture, crypto, flipped, pattern};
use super::scenario::{Scenario, scenario};
use crate::board::{Board, Commissioned, DekSpec};
use crate::qp_pair::{Verdict, Within};
use crate::{ensure, ensure_eq};
use alloc::string::String;
use mlx5_mkey::mkey::{Crypto, Direction, Keytag, SignatureOrder};
use mlx5_mkey::types::{BlockSize, DekId};

pub(super) const ALL: &[Scenario] = &[
    scenario!(m29_keys_outlive_their_login, LOGIN, ["M27", "M29"]),
    scenario!(m28_keys_outlive_a_revoked_login, LOGIN, ["M27", "M28", "M29"]),
    scenario!(m32_wrapped_keys_in_all_forms, LOGIN, ["M32", "M34"]),
    scenario!(m35_no_login_no_key, LOGIN, ["M35"]),
];

const TAG: [u8; 8] = *b"a keytag";

/// The four forms of a key that can be wrapped: two sizes, each with and without keytag.
const FORMS: [DekSpec<'static>; 4] = [
    DekSpec { key: &KEY_128, keytag: None },
    DekSpec { key: &KEY_128, keytag: Some(TAG) },
    DekSpec { key: &KEY_256, keytag: None },
    DekSpec { key: &KEY_256, keytag: Some(TAG) },
];

fn logins<'r>(fixture: &'r mut MkeyFixture<'_>) -> Result<&'r mut dyn Commissioned, String> {
    fixture.pair.board.commissioned().ok_or_else(|| "the board says that it has logins, and has none".into())
}

fn load(fixture: &mut MkeyFixture<'_>, spec: DekSpec<'_>) -> Result<DekId, String> {
    let logins = logins(fixture)?;
    let wrapped = logins.wrap(spec);
    logins.load_wrapped(&wrapped)
}

/// Returns crypto properties with this DEK and its keytag. The DEK was loaded from `spec`.
fn with(dek: DekId, spec: DekSpec<'_>) -> Crypto {
    let keytag = Keytag(spec.keytag.unwrap_or_default());
    Crypto { keytag, ..crypto(Direction::EncryptOnTx, SignatureOrder::AfterCryptoOnTx, BlockSize::B512, dek) }
}

/// Configures the mkey with these crypto properties, and checks a data unit that moves out of it and into it.
fn works(fixture: &mut MkeyFixture<'_>, crypto: &Crypto, spec: DekSpec<'_>) -> Verdict {
    let images = fixture.install_images(&pattern(512, 1), None, Some((crypto, spec.key)))?;
    fixture.both_ways(&images)
}

/// Keys are loaded, then the login ends. An mkey that uses one of the keys still works, a configuration after
/// the logout can use the other key, and the next login can load keys.
fn m29_keys_outlive_their_login(board: &mut dyn Board) -> Verdict {
    keys_outlive(board, |logins| {
        logins.log_out();
        Ok(())
    })
}

/// Keys are loaded, then the login becomes invalid. The device reports this, and the keys stay usable as
/// after a logout. A new login replaces the invalid one.
fn m28_keys_outlive_a_revoked_login(board: &mut dyn Board) -> Verdict {
    keys_outlive(board, |logins| logins.revoke())
}

fn keys_outlive(board: &mut dyn Board, lose: fn(&mut dyn Commissioned) -> Result<(), String>) -> Verdict {
    let [_, _, spec, tagged] = FORMS;
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let (dek, other) = (load(&mut fixture, spec)?, load(&mut fixture, tagged)?);
    let crypto = with(dek, spec);
    let images = fixture.install_images(&pattern(512, 2), None, Some((&crypto, spec.key)))?;
    fixture.both_ways(&images)?;
    ensure!(logins(&mut fixture)?.logged_in(), "no login, though keys could be loaded");
    lose(logins(&mut fixture)?)?;
    ensure!(!logins(&mut fixture)?.logged_in(), "still logged in");
    ensure!(load(&mut fixture, spec).is_err(), "a key was loaded though the login is lost");
    let lost = |error| format!("without the login: {error}");
    fixture.out_each(0, &images.wire).map_err(lost)?;
    fixture.store_each(&images.wire, &images.memory).map_err(lost)?;
    // Two configurations after the end of the login: one with a key that was used before, one with a key that
    // was not.
    works(&mut fixture, &with(dek, spec), spec).map_err(lost)?;
    works(&mut fixture, &with(other, tagged), tagged).map_err(lost)?;
    logins(&mut fixture)?.log_out();
    logins(&mut fixture)?.log_in()?;
    let again = load(&mut fixture, spec)?;
    for dek in [dek, again] {
        works(&mut fixture, &with(dek, spec), spec).within("with the next login")?;
    }
    Ok(())
}

/// Wrapped keys of both sizes can be loaded, with and without keytag. The device refuses a wrapped key in
/// which one byte (of four tried) is damaged.
fn m32_wrapped_keys_in_all_forms(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    for spec in FORMS {
        let what =
            format!("{} bytes, {}", spec.key.len(), if spec.keytag.is_some() { "tagged" } else { "no tag" });
        let dek = load(&mut fixture, spec).within(&what)?;
        works(&mut fixture, &with(dek, spec), spec).within(&what)?;
        let wrapped = logins(&mut fixture)?.wrap(spec);
        ensure_eq!(
            wrapped.len(),
            spec.key.len() + spec.keytag.map_or(0, |tag| tag.len()) + 8,
            "{what}: length"
        );
        for at in [0, 8, wrapped.len() / 2, wrapped.len() - 1] {
            let damaged = flipped(&wrapped, at, 1);
            ensure!(
                logins(&mut fixture)?.load_wrapped(&damaged).is_err(),
                "{what}: loaded with byte {at} damaged"
            );
        }
    }
    Ok(())
}

/// Loading a key fails without a login and succeeds with the next one.
fn m35_no_login_no_key(board: &mut dyn Board) -> Verdict {
    let [spec, ..] = FORMS;
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    logins(&mut fixture)?.log_out();
    ensure!(load(&mut fixture, spec).is_err(), "a key was loaded without a login");
    logins(&mut fixture)?.log_in()?;
    let dek = load(&mut fixture, spec)?;
    works(&mut fixture, &with(dek, spec), spec)
}
