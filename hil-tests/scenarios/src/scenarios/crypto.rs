//! AES-XTS encryption of the data that pass through an mkey.

use super::fixture::{ALL_RIGHTS, CRYPTO, KEY_128, KEY_256, MkeyFixture, crypto, entry, part, pattern, same};
use super::scenario::{Scenario, scenario};
use crate::assumption::assumed;
use crate::board::{Board, DekSpec};
use crate::ensure;
use crate::expected::{self, Images};
use crate::qp_pair::{Rx, Tx, Verdict, Within};
use alloc::vec::Vec;
use mlx5_mkey::mkey::{
    Crypto, Direction, Keytag, Layout, MkeyConfig, SignatureOrder, XtsEngine, job_size_allowed,
    job_size_can_be_encrypted,
};
use mlx5_mkey::queue::Outcome;
use mlx5_mkey::types::{BlockSize, DekId, Tweak};
use mlx5_mkey::wqe::Sge;

pub(super) const ALL: &[Scenario] = &[
    scenario!(r058_new_properties_replace_the_old, CRYPTO, ["R58", "R125", "R11"]),
    scenario!(r124_a_crypto_mkey_without_properties_moves_nothing, CRYPTO_UNIT, ["R57", "R124", "M2"]),
    scenario!(r127_one_unit_by_every_engine, CRYPTO_UNIT, ["R122", "R127", "R56", "R134", "R140", "R171"]),
    scenario!(m58_a_key_gets_another_value, DEK_MODIFY, ["M58"]),
    scenario!(m58_keys_rotate_while_requests_run, DEK_MODIFY, ["M58"]),
    scenario!(r133_published_vectors, CRYPTO_UNIT, ["R133"]),
    scenario!(r154_encrypting_when_sending_is_decrypting_when_receiving, CRYPTO_UNIT, ["R154", "R56"]),
    scenario!(r155_without_a_signature_order_means_nothing, CRYPTO, ["R155", "R135"]),
    scenario!(r156_all_data_units_and_both_key_sizes, CRYPTO, ["R156", "R122", "R126", "R127", "M34", "M75"]),
    scenario!(m74_data_units_of_1_mib, CRYPTO_UNIT, ["M74"]),
    scenario!(r157_the_tweak_counts_and_carries, CRYPTO, ["R157"]),
    scenario!(r158_a_transfer_from_the_middle, CRYPTO, ["R158"]),
    scenario!(r159_a_missing_key, CRYPTO_UNIT, ["R159"]),
    scenario!(r160_keytags, CRYPTO_UNIT, ["R160", "M37"]),
    scenario!(r166_job_sizes, CRYPTO, ["R166", "R167", "R168", "R169", "R170"]),
];

use Direction::{DecryptOnTx, EncryptOnTx};
use SignatureOrder::{AfterCryptoOnTx, BeforeCryptoOnTx};

const UNIT: BlockSize = BlockSize::B512;

fn dek(fixture: &mut MkeyFixture<'_>, key: &[u8]) -> DekId {
    fixture.pair.board.create_dek(DekSpec { key, keytag: None })
}

/// Configures an mkey with crypto properties over memory that is plain or encrypted, as their direction
/// requires. Then moves all data out of the mkey and into it, and checks the bytes.
fn round_trip(fixture: &mut MkeyFixture<'_>, data: &[u8], crypto: &Crypto, key: &[u8]) -> Verdict {
    let images = fixture.install_images(data, None, Some((crypto, key)))?;
    fixture.both_ways(&images)
}

/// Checks that every transfer through the mkey fails and leaves all bytes unchanged.
///
/// The syndrome with which real devices fail is unknown (`gap07_how_keys_are_refused` measures it), so the
/// check accepts any syndrome.
pub(super) fn nothing_moves(fixture: &mut MkeyFixture<'_>, what: &str, length: usize) -> Verdict {
    for way in Tx::ALL {
        let moved = fixture.pair.tx(way, fixture.mkey, 0, length)?;
        ensure!(moved.requester.is_some(), "{what}: {way:?} went through");
        same(&moved.wire, &vec![0xee; length]).within(format_args!("{what}: {way:?}"))?;
        fixture.pair.reconnect();
    }
    let before = fixture.pair.bytes(&fixture.memory);
    for way in Rx::ALL {
        let moved = fixture.pair.rx(way, fixture.mkey, 0, &pattern(length, 0x77))?;
        ensure!(moved.requester.is_some(), "{what}: {way:?} went through");
        fixture.holds(&before).within(format_args!("{what}: {way:?}"))?;
        fixture.pair.reconnect();
    }
    Ok(())
}

/// A new tweak, DEK, data unit or direction replaces the old one completely: nothing of the old configuration
/// stays in force.
fn r058_new_properties_replace_the_old(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let (first, second) = (dek(&mut fixture, &KEY_128), dek(&mut fixture, &KEY_256));
    let data = pattern(2048, 1);
    let old = crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, first);
    round_trip(&mut fixture, &data, &old, &KEY_128)?;
    let changes: [(Crypto, &[u8]); 4] = [
        (Crypto { tweak: Tweak::from_lba(9), ..old }, &KEY_128),
        (Crypto { dek: second, ..old }, &KEY_256),
        (Crypto { data_unit: BlockSize::B4096, ..old }, &KEY_128),
        (Crypto { direction: DecryptOnTx, ..old }, &KEY_128),
    ];
    for (number, (new, key)) in changes.iter().enumerate() {
        fixture.change(&MkeyConfig { crypto: Some(*new), ..MkeyConfig::UNCHANGED }, Layout::Unchanged)?;
        let images = expected::images(&data, None, Some((new, key)));
        fixture.write(&images.memory);
        fixture.both_ways(&images).within(format_args!("change {number}"))?;
    }
    Ok(())
}

/// An mkey that was created for crypto refuses all transfers until it has crypto properties. Layout and
/// rights are not enough.
fn r124_a_crypto_mkey_without_properties_moves_nothing(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::plain(board, CRYPTO, &pattern(512, 1))?;
    nothing_moves(&mut fixture, "unconfigured crypto", 512)?;
    let dek = dek(&mut fixture, &KEY_128);
    let new = crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, dek);
    fixture.change(&MkeyConfig { crypto: Some(new), ..MkeyConfig::UNCHANGED }, Layout::Unchanged)?;
    fixture.out(Tx::Send, 0, &expected::images(&pattern(512, 1), None, Some((&new, &KEY_128))).wire)
}

/// Every kind of AES-XTS engine encrypts a single data unit correctly, with each size of data unit, in both
/// directions, and with keys of both sizes.
fn r127_one_unit_by_every_engine(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let keys: [&[u8]; 2] = [&KEY_128, &KEY_256];
    for key in keys {
        let dek = dek(&mut fixture, key);
        for data_unit in BlockSize::ALL {
            for direction in [EncryptOnTx, DecryptOnTx] {
                let tweak = Tweak::new(0x0102_0304_0506_0708);
                let new = Crypto { tweak, ..crypto(direction, AfterCryptoOnTx, data_unit, dek) };
                let data = pattern(data_unit.bytes() as usize, 1);
                round_trip(&mut fixture, &data, &new, key)
                    .within(format_args!("{direction:?}, {data_unit:?}"))?;
            }
        }
    }
    Ok(())
}

/// A DEK gets a second value, then its first value again, then the second one again, each after a
/// SYNC_CRYPTO. The mkey with this DEK is not configured anew, and encrypts with the new value. Another DEK
/// is unaffected. The last two steps check assumptions: a new value without SYNC_CRYPTO, and a value of
/// another size.
fn m58_a_key_gets_another_value(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let (first, second) = (KEY_128, KEY_128.map(|byte| byte ^ 0xa5));
    let dek = dek(&mut fixture, &first);
    let new = crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, dek);
    let data = pattern(512, 1);
    let images = |key: &[u8]| expected::images(&data, None, Some((&new, key)));
    fixture.install(&data, None, Some(&new))?;
    fixture.both_ways(&images(&first)).within("as it was loaded")?;
    // Another DEK has the first value and keeps it. An mkey with this other DEK must encrypt and decrypt with
    // the first value at any time.
    let keeper = fixture.pair.board.create_dek(DekSpec { key: &first, keytag: None });
    let keeper = Crypto { dek: keeper, ..new };
    let (rotated, kept) = (fixture.mkey, fixture.pair.mkey(CRYPTO));
    for (number, key) in [&second, &first, &second].into_iter().enumerate() {
        let told = |error| format!("value {number}: {error}");
        fixture.pair.board.sync_crypto().map_err(told)?;
        replace(&mut fixture, dek, key).map_err(told)?;
        fixture.both_ways(&images(key)).map_err(told)?;
        let memory = fixture.memory;
        fixture.mkey = kept;
        fixture.install(&data, None, Some(&keeper))?;
        fixture.both_ways(&images(&first)).within(format_args!("value {number}, another key"))?;
        (fixture.mkey, fixture.memory) = (rotated, memory);
    }
    // Assumption: the device still has the second value in its cache, and continues to use it until
    // SYNC_CRYPTO.
    replace(&mut fixture, dek, &first)?;
    for (what, key) in [("before SYNC_CRYPTO", &second), ("behind it", &first)] {
        let moved = fixture.pair.tx(Tx::Write, fixture.mkey, 0, data.len())?;
        let right = moved.ok().is_ok_and(|wire| wire == images(key).wire);
        let what = format!("a key that gets another value after use, {what}: what is assumed is in force");
        if !assumed(fixture.pair.board, what, right, true)? {
            fixture.pair.reconnect();
        }
        fixture.pair.board.sync_crypto()?;
    }
    let what = "a key that gets a value of another size: it is taken";
    let taken = replace(&mut fixture, dek, &KEY_256).is_ok();
    if assumed(fixture.pair.board, what, taken, true)? {
        fixture.both_ways(&images(&KEY_256)).within("another size")?;
    }
    Ok(())
}

/// A volume changes its key without a pause: requests with the old key and with the new one are in flight
/// together, each key with its own prepared configuration. The scenario overwrites the old key when the last
/// request with it has completed, while requests with the new key are outstanding. Each request encrypts with
/// its own key, and afterwards nothing encrypts with the old one.
fn m58_keys_rotate_while_requests_run(board: &mut dyn Board) -> Verdict {
    const IOS: usize = 4;
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let keys = [KEY_128, KEY_128.map(|byte| byte ^ 0x3c)];
    let deks = keys.map(|key| dek(&mut fixture, &key));
    let data = pattern(512, 5);
    let with = |dek, io: usize| Crypto {
        tweak: Tweak::from_lba(io as u64),
        ..crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, dek)
    };
    let memory = fixture.pair.region(&data);
    let entries = [entry(&memory, 0..data.len())];
    let mut prepared = Vec::new();
    for dek in deks {
        let config = MkeyConfig { crypto: Some(with(dek, 0)), ..ALL_RIGHTS };
        let prepare = fixture.pair.prepare(fixture.mkey, &config);
        prepared.push(prepare.within("prepare")?);
    }
    let mut ios = Vec::new();
    let generations = prepared.iter_mut().zip(deks).zip(keys).enumerate();
    for (generation, ((prepared, dek), key)) in generations {
        for io in generation * IOS..(generation + 1) * IOS {
            let (mkey, far) = (fixture.pair.mkey(CRYPTO), fixture.pair.region(&vec![0xee; data.len()]));
            prepared.set_tweak(Tweak::from_lba(io as u64)).within("tweak")?;
            fixture.pair.post_prepared(mkey, prepared, &entries).within(io)?;
            let all = Sge { address: 0, length: data.len() as u32, lkey: fixture.pair.key(mkey) };
            let request = fixture.pair.near.request(io as u64).signaled();
            request.rdma_write(far.remote(), &[all]).within(io)?;
            ios.push((mkey, far, with(dek, io), key));
        }
        // The first round of the loop publishes the requests with the old key, the second round those with
        // the new key, without waiting in between.
        fixture.pair.near.ring_doorbell();
    }
    fixture.pair.run_device()?;
    let mut done = 0;
    let mut is_erased = false;
    while done < 2 * IOS {
        let completions = fixture.pair.wait_near(1)?;
        ensure!(!completions.is_empty(), "{done} of {} requests completed", 2 * IOS);
        for completion in completions {
            ensure!(
                matches!(completion.outcome, Outcome::Sent { .. }),
                "request {:#x}: {:?}",
                completion.id,
                completion.outcome
            );
            done += usize::from(completion.id < 2 * IOS as u64);
            // Send requests complete in order: after this one no request uses the old key.
            if completion.id + 1 == IOS as u64 {
                fixture.pair.board.sync_crypto()?;
                replace(&mut fixture, deks[0], &[0x77, 0x88].map(|byte| [byte; 16]).concat())?;
                is_erased = true;
            }
        }
    }
    ensure!(is_erased, "the last request with the old key did not complete");
    for (io, (_, far, crypto, key)) in ios.iter().enumerate() {
        let images = expected::images(&data, None, Some((crypto, key)));
        same(&fixture.pair.bytes(far), &images.wire).within(format_args!("request {io}"))?;
    }
    // An mkey that still names the overwritten DEK now encrypts with the DEK's new value, not with the old
    // key.
    let Some((mkey, far, ..)) = ios.first().copied() else { return Err("no requests".into()) };
    let moved = fixture.pair.tx(Tx::Write, mkey, 0, data.len())?;
    ensure!(moved.ok()? != fixture.pair.bytes(&far), "the erased key is still in force");
    Ok(())
}

fn replace(fixture: &mut MkeyFixture<'_>, dek: DekId, key: &[u8]) -> Verdict {
    fixture.pair.board.replace_dek(dek, DekSpec { key, keytag: None })
}

/// Encrypts test vectors 2 and 4 of IEEE 1619, and compares the result with the published ciphertext. The
/// tweaks are the vectors' data unit sequence numbers.
fn r133_published_vectors(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let dek2 = dek(&mut fixture, &[[0x11; 16], [0x22; 16]].concat());
    let new =
        Crypto { tweak: Tweak::new(0x33_3333_3333), ..crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, dek2) };
    fixture.install(&[0x44; 32], None, Some(&new))?;
    let cipher = [
        0xc4, 0x54, 0x18, 0x5e, 0x6a, 0x16, 0x93, 0x6e, 0x39, 0x33, 0x40, 0x38, 0xac, 0xef, 0x83, 0x8b, 0xfb,
        0x18, 0x6f, 0xff, 0x74, 0x80, 0xad, 0xc4, 0x28, 0x93, 0x82, 0xec, 0xd6, 0xd3, 0x94, 0xf0,
    ];
    fixture.out_each(0, &cipher)?;
    fixture.store_each(&cipher, &[0x44; 32])?;
    let key4 = [
        0x27, 0x18, 0x28, 0x18, 0x28, 0x45, 0x90, 0x45, 0x23, 0x53, 0x60, 0x28, 0x74, 0x71, 0x35, 0x26, 0x31,
        0x41, 0x59, 0x26, 0x53, 0x58, 0x97, 0x93, 0x23, 0x84, 0x62, 0x64, 0x33, 0x83, 0x27, 0x95,
    ];
    let dek4 = dek(&mut fixture, &key4);
    let data: Vec<u8> = (0..512u32).map(|byte| byte as u8).collect();
    let new = Crypto { tweak: Tweak::new(0), ..crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, dek4) };
    fixture.install(&data, None, Some(&new))?;
    let wire = fixture.pair.tx(Tx::Send, fixture.mkey, 0, 512)?.ok()?;
    let start =
        [0x27, 0xa7, 0x47, 0x9b, 0xef, 0xa1, 0xd4, 0x76, 0x48, 0x9f, 0x30, 0x8c, 0xd4, 0xcf, 0xa6, 0xe2];
    let end =
        [0x0a, 0x28, 0x2d, 0xf9, 0x20, 0x14, 0x7b, 0xea, 0xbe, 0x42, 0x1e, 0xe5, 0x31, 0x9d, 0x05, 0x68];
    same(part(&wire, 0..16), &start).within("vector 4, start")?;
    same(part(&wire, 496..512), &end).within("vector 4, end")
}

/// An mkey that decrypts outgoing data encrypts incoming data: when it receives plaintext, its memory then
/// holds the same ciphertext that an encrypting mkey sends for this plaintext.
fn r154_encrypting_when_sending_is_decrypting_when_receiving(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let dek = dek(&mut fixture, &KEY_128);
    let data = pattern(512, 1);
    fixture.install(&data, None, Some(&crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, dek)))?;
    let sent = fixture.pair.tx(Tx::Send, fixture.mkey, 0, 512)?.ok()?;
    ensure!(sent != data, "sent in plain");
    fixture.install(&[0; 512], None, Some(&crypto(DecryptOnTx, AfterCryptoOnTx, UNIT, dek)))?;
    fixture.store_each(&data, &sent)?;
    fixture.out_each(0, &data)
}

/// Without a signature, both signature orders put the same bytes on the wire, although they are encoded
/// differently in the request.
fn r155_without_a_signature_order_means_nothing(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let dek = dek(&mut fixture, &KEY_256);
    let data = pattern(3 * 512, 1);
    for direction in [EncryptOnTx, DecryptOnTx] {
        let mut wires = Vec::new();
        for order in [AfterCryptoOnTx, BeforeCryptoOnTx] {
            fixture.install(&data, None, Some(&crypto(direction, order, UNIT, dek)))?;
            wires.push(fixture.pair.tx(Tx::Write, fixture.mkey, 0, data.len())?.ok()?);
        }
        ensure!(wires.windows(2).all(|pair| pair.first() == pair.last()), "{direction:?}: orders differ");
        ensure!(wires.first() != Some(&data), "{direction:?}: nothing was done");
    }
    Ok(())
}

/// Three data units are encrypted correctly, with each size of data unit and keys of both sizes.
fn r156_all_data_units_and_both_key_sizes(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let keys: [&[u8]; 2] = [&KEY_128, &KEY_256];
    for key in keys {
        let dek = dek(&mut fixture, key);
        for data_unit in BlockSize::ALL {
            for order in [AfterCryptoOnTx, BeforeCryptoOnTx] {
                let data = pattern(3 * data_unit.bytes() as usize, 1);
                let new = crypto(EncryptOnTx, order, data_unit, dek);
                round_trip(&mut fixture, &data, &new, key)
                    .within(format_args!("{} bits, {data_unit:?}, {order:?}", key.len() * 4))?;
            }
        }
    }
    Ok(())
}

/// The tweak of data unit i is the first tweak plus i, as a 128-bit number.
///
/// Assumption: the addition carries from the low into the high half (measured by `gap04_tweaks`).
fn r157_the_tweak_counts_and_carries(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let dek = dek(&mut fixture, &KEY_128);
    let data = [0u8; 4 * 512];
    for first in [0u128, 0xfe, 0xffff_ffff, u128::from(u64::MAX) - 1, 0xabcd << 64, u128::MAX - 1] {
        let new = Crypto { tweak: Tweak::new(first), ..crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, dek) };
        let units: Vec<u8> = (0..4)
            .flat_map(|unit| {
                expected::encrypt(&KEY_128, UNIT, Tweak::new(first.wrapping_add(unit)), &[0; 512])
            })
            .collect();
        fixture.install(&data, None, Some(&new))?;
        let done = fixture.both_ways(&Images { memory: data.to_vec(), wire: units });
        let stays = first.wrapping_add(3) >> 64 == first >> 64;
        fixture.right(stays, format_args!("units with tweaks from {first:#x} on"), done)?;
    }
    Ok(())
}

/// If a request begins at data unit k of the mkey, its first data unit has the tweak "first tweak plus k".
///
/// Assumption: tweaks count from the beginning of the mkey, like the block numbers of signatures. No source
/// states it (`gap04_tweaks` measures it).
fn r158_a_transfer_from_the_middle(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let dek = dek(&mut fixture, &KEY_128);
    let data = pattern(4 * 520, 1);
    for (data_unit, unit) in [(UNIT, 512), (BlockSize::B520, 520)] {
        for direction in [EncryptOnTx, DecryptOnTx] {
            let new = crypto(direction, AfterCryptoOnTx, data_unit, dek);
            let data = part(&data, 0..4 * unit);
            let images = fixture.install_images(data, None, Some((&new, &KEY_128)))?;
            for (from, to) in [(1, 4), (2, 3), (3, 4), (0, 2)] {
                let (from, to) = (from * unit, to * unit);
                let wire = part(&images.wire, from..to);
                let sent = Tx::ALL.into_iter().try_for_each(|way| fixture.out(way, from as u64, wire));
                let done = sent.and_then(|()| {
                    Rx::ALL.into_iter().try_for_each(|way| {
                        fixture.take(way, from as u64, wire)?;
                        fixture.holds(&images.memory).within(format_args!("{way:?}"))
                    })
                });
                fixture.right(
                    from == 0,
                    format_args!("{direction:?}, bytes {from}..{to} of units of {unit}"),
                    done,
                )?;
                fixture.write(&images.memory);
            }
        }
    }
    Ok(())
}

/// Transfers through an mkey fail if its configuration names a DEK that does not exist.
fn r159_a_missing_key(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let nobody = DekId::from_low_bits(0x00ff_fffe);
    fixture.install(&pattern(512, 1), None, Some(&crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, nobody)))?;
    nothing_moves(&mut fixture, "missing DEK", 512)
}

/// The keytag of a configuration must equal the keytag of its DEK. A DEK without a keytag accepts any keytag.
fn r160_keytags(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let tag = [1, 2, 3, 4, 5, 6, 7, 8];
    let data = pattern(512, 1);
    let keys: [&[u8]; 2] = [&KEY_128, &KEY_256];
    for key in keys {
        let tagged = fixture.pair.board.create_dek(DekSpec { key, keytag: Some(tag) });
        let plain = dek(&mut fixture, key);
        for (dek, keytag) in [(tagged, tag), (plain, [0; 8]), (plain, tag)] {
            let new = Crypto { keytag: Keytag(keytag), ..crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, dek) };
            round_trip(&mut fixture, &data, &new, key).within(format_args!("keytag {keytag:?}"))?;
        }
        for wrong in [[0; 8], [1, 2, 3, 4, 5, 6, 7, 9], [9, 2, 3, 4, 5, 6, 7, 8]] {
            let new = Crypto { keytag: Keytag(wrong), ..crypto(EncryptOnTx, AfterCryptoOnTx, UNIT, tagged) };
            fixture.install(&data, None, Some(&new))?;
            nothing_moves(&mut fixture, "wrong keytag", 512)?;
        }
    }
    Ok(())
}

/// The man page `mlx5dv_wr_set_mkey_crypto` allows two kinds of length for a transfer through a crypto mkey:
/// whole data units, and multiples of 16 bytes whose last, partial data unit is at least 16 bytes shorter
/// than a whole one.
///
/// Assumption: a device refuses other lengths (the scenario `gap03_job_sizes` measures this). A device also
/// refuses an allowed length whose last data unit has fewer than 16 bytes, because AES-XTS needs 16 bytes.
fn r166_job_sizes(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let dek = dek(&mut fixture, &KEY_128);
    let data = pattern(2080, 1);
    for data_unit in [UNIT, BlockSize::B520] {
        let new = crypto(EncryptOnTx, AfterCryptoOnTx, data_unit, dek);
        fixture.install(&data, None, Some(&new))?;
        for job in [16, 47, 128, 496, 504, 511, 512, 520, 528, 536, 544, 640, 1024, 1040, 1056, 1568, 2048] {
            let job_size = job as u64;
            let good =
                job_size_allowed(job_size, data_unit) && job_size_can_be_encrypted(job_size, data_unit);
            let what = format!("{job} bytes in units of {}", data_unit.bytes());
            if good {
                let wire = expected::images(part(&data, 0..job), None, Some((&new, &KEY_128))).wire;
                fixture.out(Tx::Send, 0, &wire).within(&what)?;
                fixture.take(Rx::Receive, 0, &wire).within(&what)?;
            } else {
                let moved = fixture.pair.tx(Tx::Send, fixture.mkey, 0, job)?;
                let out = moved.requester.is_some();
                fixture.pair.reconnect();
                let moved = fixture.pair.rx(Rx::Receive, fixture.mkey, 0, part(&data, 0..job))?;
                let same = fixture.holds(&data).is_ok();
                let what = format_args!("{what}, refused when sent, when received, memory as before");
                assumed(fixture.pair.board, what, (out, moved.receiver.is_some(), same), (true, true, true))?;
                fixture.pair.reconnect();
                fixture.write(&data);
            }
            fixture.holds(&data).within(&what)?;
        }
    }
    Ok(())
}

/// The largest data unit has 1 MiB: the first MiB is encrypted under one tweak, the data after it under the
/// next.
fn m74_data_units_of_1_mib(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, CRYPTO);
    let dek = dek(&mut fixture, &KEY_256);
    let new = crypto(EncryptOnTx, AfterCryptoOnTx, BlockSize::MIB1, dek);
    round_trip(&mut fixture, &pattern(48 * 1024, 1), &new, &KEY_256)?;
    if fixture.pair.board.capabilities().xts == Some(XtsEngine::SingleBlock) {
        return Ok(());
    }
    let images = fixture.install_images(&pattern((1 << 20) + 4096, 2), None, Some((&new, &KEY_256)))?;
    fixture.out(Tx::Write, 0, &images.wire)
}
