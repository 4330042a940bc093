//! Measurements of AES-XTS on hardware: lengths of transfers, tweaks, combinations with a signature that the
//! man page's table lacks, and the refusal of keys.

use super::super::fixture::{BOTH, CRYPTO, DIF, KEY_128, MkeyFixture, crypto, dif_domain, part, pattern};
use super::measurement::{Measurement, Tell, compared, fitting, measurement, send, side};
use crate::board::{Board, DekSpec};
use crate::expected;
use crate::qp_pair::{Rx, Tx, Verdict};
use alloc::string::String;
use mlx5_mkey::mkey::{BlockSignature, Crypto, Direction, Keytag, SignatureOrder};
use mlx5_mkey::types::{BlockSize, DekId, Tweak};

pub(super) const ALL: &[Measurement] = &[
    measurement!(gap03_job_sizes, CRYPTO),
    measurement!(gap04_tweaks, CRYPTO),
    measurement!(gap05_rows_that_are_in_no_table, BOTH),
    measurement!(gap07_how_keys_are_refused, CRYPTO_UNIT),
];

use Direction::{DecryptOnTx, EncryptOnTx};
use SignatureOrder::{AfterCryptoOnTx, BeforeCryptoOnTx};

fn dek(fixture: &mut MkeyFixture<'_>) -> DekId {
    fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: None })
}

/// Reports the result of transfers with unusual lengths. Some lengths violate the rule of the man page
/// `mlx5dv_wr_set_mkey_crypto`. Others obey it, but AES-XTS cannot encrypt them (with data units of 520
/// bytes: 528, 1048, 1568 and so on).
fn gap03_job_sizes(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let dek = dek(&mut fixture);
    let data = pattern(3200, 1);
    for (data_unit, name, sizes) in [
        (BlockSize::B512, "512", &[15, 47, 504, 511, 520, 1000][..]),
        (BlockSize::B520, "520", &[15, 47, 504, 512, 519, 528, 536, 1048, 1568, 2608]),
    ] {
        let new = crypto(EncryptOnTx, AfterCryptoOnTx, data_unit, dek);
        for &size in sizes {
            fixture.install(&data, None, Some(&new))?;
            let told = match send(&mut fixture, Tx::Send, 0, size) {
                Err(what) => what,
                Ok(wire) => {
                    // The expected bytes are known only for the whole data units. No source states the
                    // ciphertext of the rest.
                    let whole = size / data_unit.bytes() as usize * data_unit.bytes() as usize;
                    let cipher = expected::encrypt(&KEY_128, data_unit, new.tweak, part(&data, 0..whole));
                    let rest = part(&wire, whole..size);
                    let plain = rest == part(&data, whole..size);
                    format!(
                        "went out; whole units {}, the rest of {} bytes {}",
                        if part(&wire, 0..whole) == cipher { "as expected" } else { "otherwise" },
                        rest.len(),
                        if plain {
                            "in plain".into()
                        } else {
                            super::measurement::hex(part(rest, 0..rest.len().min(16)))
                        },
                    )
                }
            };
            tell(&format!("job of {size} in units of {name}"), &told);
        }
    }
    Ok(())
}

/// Reports two tweaks: the tweak of the second data unit after a first tweak whose low 64 bits, or all bits,
/// are ones, and the tweak of a transfer that begins in the middle of the mkey.
fn gap04_tweaks(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let dek = dek(&mut fixture);
    let unit = BlockSize::B512;
    let high = 0xabcd_u128 << 64;
    let low = u128::from(u64::MAX);
    for (what, first) in [("2^64 - 1", low), ("ABCD, then 64 ones", high | low), ("2^128 - 1", u128::MAX)] {
        let new = Crypto { tweak: Tweak::new(first), ..crypto(EncryptOnTx, AfterCryptoOnTx, unit, dek) };
        fixture.install(&[0; 1024], None, Some(&new))?;
        let told = match send(&mut fixture, Tx::Send, 0, 1024) {
            Err(what) => what,
            Ok(wire) => {
                let is = |tweak| {
                    expected::encrypt(&KEY_128, unit, Tweak::new(tweak), &[0; 512]) == part(&wire, 512..1024)
                };
                fitting([
                    ("one more, with carry", is(first.wrapping_add(1))),
                    ("the low half begins at 0 again, the high half stays", {
                        let tweak = first & !low;
                        tweak != first.wrapping_add(1) && is(tweak)
                    }),
                    ("it stays", is(first)),
                ])
            }
        };
        tell(&format!("tweak behind {what}"), &told);
    }
    let new = Crypto { tweak: Tweak::from_lba(9), ..crypto(EncryptOnTx, AfterCryptoOnTx, unit, dek) };
    fixture.install(&[0; 2048], None, Some(&new))?;
    let told = match send(&mut fixture, Tx::Send, 1024, 512) {
        Err(what) => what,
        Ok(wire) => {
            let is = |lba| expected::encrypt(&KEY_128, unit, Tweak::from_lba(lba), &[0; 512]) == wire;
            fitting([("counted from the mkey's start", is(11)), ("counted from the transfer's start", is(9))])
        }
    };
    tell("tweak of a transfer from the middle", &told);
    Ok(())
}

/// Reports the bytes that the device produces for the two combinations of signature and crypto that libmlx5
/// accepts although the table in the man page `mlx5dv_wr_set_mkey_crypto` lacks them.
fn gap05_rows_that_are_in_no_table(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, BOTH);
    let dek = dek(&mut fixture);
    let data = pattern(1024, 1);
    let own = dif_domain(DIF, BlockSize::B512);
    for (what, direction, order, signature) in [
        ("memory signature, then a cipher", EncryptOnTx, AfterCryptoOnTx, BlockSignature::memory(own)),
        ("wire signature, cipher in memory", DecryptOnTx, BeforeCryptoOnTx, BlockSignature::wire(own)),
    ] {
        let new = crypto(direction, order, BlockSize::B512, dek);
        let images = fixture.install_images(&data, Some(&signature), Some((&new, &KEY_128)))?;
        let found = send(&mut fixture, Tx::Send, 0, images.wire.len());
        let error = fixture.error()?.map_or(String::new(), |error| format!("; {error}"));
        tell(&format!("{what}, out"), &format!("{}{error}", compared(found, &images.wire)));
        fixture.install(&vec![0; images.memory.len()], Some(&signature), Some(&new))?;
        let done = super::measurement::receive(&mut fixture, Rx::PeerWrite, 0, &images.wire);
        let stored = done.map(|_| fixture.pair.bytes(&fixture.memory));
        let error = fixture.error()?.map_or(String::new(), |error| format!("; {error}"));
        tell(&format!("{what}, in"), &format!("{}{error}", compared(stored, &images.memory)));
    }
    Ok(())
}

/// Reports the syndromes on both sides for a wrong keytag, a missing DEK, and missing crypto properties.
fn gap07_how_keys_are_refused(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let tag = Some([1, 2, 3, 4, 5, 6, 7, 8]);
    let data = pattern(512, 1);
    fixture.install(&data, None, None)?;
    refused(&mut fixture, tell, "crypto that was never configured");
    let new = crypto(EncryptOnTx, AfterCryptoOnTx, BlockSize::B512, DekId::from_low_bits(0x00ff_fffe));
    if fixture.install(&data, None, Some(&new)).is_ok() {
        refused(&mut fixture, tell, "missing DEK");
    } else {
        tell("missing DEK", "refused when it is configured");
        fixture.pair.reconnect();
    }
    let dek = fixture.pair.board.create_dek(DekSpec { key: &KEY_128, keytag: tag });
    let wrong = Crypto { keytag: Keytag([9; 8]), dek, ..new };
    if fixture.install(&data, None, Some(&wrong)).is_ok() {
        refused(&mut fixture, tell, "wrong keytag");
    } else {
        tell("wrong keytag", "refused when it is configured");
    }
    Ok(())
}

/// Moves data through the mkey by SEND, receive, and the peer's RDMA READ and WRITE. Reports the result of
/// each.
fn refused(fixture: &mut MkeyFixture<'_>, tell: Tell<'_>, what: &str) {
    let mut told = |way: &str, moved: Result<crate::qp_pair::Moved, String>| {
        let value = match moved {
            Err(what) => format!("no completion ({what})"),
            Ok(moved) => format!("requester {}, receiver {}", side(moved.requester), side(moved.receiver)),
        };
        tell(&format!("{what}, {way}"), &value);
    };
    for (way, name) in [(Tx::Send, "sent"), (Tx::PeerRead, "read by the peer")] {
        told(name, fixture.pair.tx(way, fixture.mkey, 0, 512));
        fixture.pair.reconnect();
    }
    for (way, name) in [(Rx::Receive, "received"), (Rx::PeerWrite, "written by the peer")] {
        told(name, fixture.pair.rx(way, fixture.mkey, 0, &[0; 512]));
        fixture.pair.reconnect();
    }
}
