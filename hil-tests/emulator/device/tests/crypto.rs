//! Tests of AES-XTS through mkeys (DEVICE.md, "Crypto BSF and encryption order"), of the engines, and of
//! keys. Scenarios test the rows A to J of the man page `mlx5dv_wr_set_mkey_crypto`.

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_softdev::*;

const TWEAK: u128 = 0x1234;

fn tweak() -> [u8; 16] {
    TWEAK.to_be_bytes()
}

/// Returns the address of a copy of `memory`, and the key of an mkey over it with these signatures and a
/// cipher in units of 512 bytes.
fn configure(host: &mut Host, order: u8, memory: &[u8], mem: Sig, wire: Sig) -> (u64, Key) {
    let mkey = host.mkey(true, true);
    let dek = host.dek(&XTS_KEY);
    let (at, key) = host.filled(memory);
    let config = Config::new(&mkey).access(LW | RR | RW).list(&[(at, memory.len() as u32, key)]);
    host.configure(config.signature(mem, wire, 0xff).crypto(order, 1, tweak(), dek));
    (at, mkey.key)
}

/// With the fault `signature_over_plaintext`, the device signs plaintext, and encrypts the data between the
/// signatures.
#[test]
fn a_signature_over_plaintext_stands_behind_ciphertext() {
    let mut host = Host::with_faults(|f| f.signature_over_plaintext = true);
    let memory = pattern(1024, 1);
    let (at, key) = configure(&mut host, 2, &memory, Sig::None, Sig::t10(0x2222, 20));
    let wire: Vec<u8> = (0..2)
        .flat_map(|block| {
            let bytes = block * 512..(block + 1) * 512;
            let cipher = xts128(&XTS_KEY, &memory[bytes.clone()], 512, TWEAK + block as u128);
            [&cipher[..], &pi(&memory[bytes], 0x2222, 20 + block as u32)].concat()
        })
        .collect();
    assert_eq!(host.send_from(key, 0, 1040), wire);
    assert_eq!(host.send_from(key, 520, 520), wire[520..]);
    // A transfer of 96 bytes is a part of a block, without its signature.
    assert_eq!(host.send_from(key, 0, 96), xts128(&XTS_KEY, &memory[..96], 96, TWEAK));
    host.put(at, &[0; 1024]);
    host.write_into(key, 0, &wire);
    assert_eq!((host.get(at, 1024), host.signature_errors()), (memory, vec![]));
}

/// Some combinations of cipher and signature are in no table of the man page. This device executes them, and
/// another device may refuse them.
#[test]
fn rows_that_are_in_no_table_may_be_refused() {
    let (one, two, none) = (Sig::t10(0x1111, 10), Sig::t10(0x2222, 20), Sig::None);
    for (order, mem, wir, leftover) in [
        (2, one, none, true),
        (3, none, two, true),
        (2, none, two, false),
        (3, one, none, false),
        (2, none, none, false),
        (3, none, none, false),
        (0, one, none, false),
        (1, none, two, false),
    ] {
        for refuses in [false, true] {
            let mut host = Host::with_faults(|f| f.leftover_rows_refused = refuses);
            let memory = if matches!(mem, Sig::None) { vec![7; 512] } else { with_pi(&[7; 512], 0x1111, 10) };
            let (_, key) = configure(&mut host, order, &memory, mem, wir);
            host.send_from(key, 0, 512);
            let seen: Vec<_> = std::iter::from_fn(|| host.poll_send(A)).collect();
            let refused = seen.iter().any(|seen| seen.1.is_some_and(|cause| cause.refusal() == Refusal::Bsf));
            assert_eq!(refused, leftover && refuses, "order {order}, {mem:?} and {wir:?}");
        }
    }
}

/// A data unit has at least the 16 bytes of an AES block.
#[test]
fn the_smallest_data_unit_is_a_cipher_block() {
    let xts = crypto::Xts::new(&XTS_KEY).unwrap();
    let plain = pattern(48, 1);
    let mut bytes = plain.clone();
    for unit in [0, 8, 15] {
        let done = xts.apply(crypto::Direction::Encrypt, &mut bytes, unit, TWEAK, 1);
        assert_eq!((done, &bytes), (Err(crypto::JobSize), &plain), "{unit}");
    }
    xts.apply(crypto::Direction::Encrypt, &mut bytes, 16, TWEAK, 1).unwrap();
    assert_eq!(bytes, xts128(&XTS_KEY, &plain, 16, TWEAK));
    assert_eq!(format!("{xts:?}"), "Xts(..)", "keys are not printed");
}

/// The memory has one data unit. With their signature, the wire bytes exceed one unit.
#[test]
fn a_signature_makes_a_transfer_longer_than_the_single_block() {
    let mut host = Host::with(DeviceProfile { xts: XtsEngine::SingleBlock, ..Default::default() }, |_| {});
    let (_, key) = configure(&mut host, 0, &pattern(512, 2), Sig::None, Sig::t10(1, 2));
    host.send_from(key, 0, 520);
    assert_eq!(host.bad(A).why(), Refusal::SingleBlock);
}

/// Returns the wire bytes of three data units on a device with this profile.
fn sent_by(profile: DeviceProfile, tweak: [u8; 16], data: &[u8]) -> Vec<u8> {
    let mut host = Host::with(profile, |_| {});
    let dek = host.dek(&XTS_KEY);
    let (at, key) = host.filled(data);
    let mkey = host.mkey(false, true);
    host.configure(Config::new(&mkey).list(&[(at, data.len() as u32, key)]).crypto(2, 1, tweak, dek));
    host.send_from(mkey.key, 0, data.len() as u32)
}

#[test]
fn a_tweak_can_grow_by_two_to_the_64() {
    let data = pattern(1536, 3);
    for xts in [XtsEngine::MultiBlock, XtsEngine::MultiBlockLittleEndian] {
        let profile = DeviceProfile { xts, tweak_inc_64: true, ..Default::default() };
        let sent = |tweak: u128| {
            let bytes = if xts == XtsEngine::MultiBlock { tweak.to_be_bytes() } else { tweak.to_le_bytes() };
            sent_by(profile, bytes, &data)
        };
        let tweak = 7 << 64 | TWEAK;
        let units = (0..3)
            .map(|unit| xts128(&XTS_KEY, &data[unit * 512..][..512], 512, tweak + ((unit as u128) << 64)));
        assert_eq!(sent(tweak), units.collect::<Vec<_>>().concat());
        // If the upper half of the tweak is all ones, the lower half counts units, as on devices without this
        // capability.
        assert_eq!(sent(u128::from(u64::MAX) << 64 | TWEAK), xts128(&XTS_KEY, &data, 512, TWEAK));
    }
}

/// Key, tweak and ciphertext come from the tests of DPDK's driver for this hardware. The KEK is 16 zero
/// bytes, and each byte of the plaintext is 79. The engine takes single units, and reads the tweak in the
/// order of its 16 bytes.
#[test]
fn dpdk_wrapped_key_vectors() {
    const WRAPPED: [u8; 48] = [
        0x94, 0xd8, 0xae, 0xd7, 0x74, 0xbf, 0x51, 0xf1, 0x2d, 0x19, 0x0b, 0x9a, 0xb3, 0xdc, 0x1e, 0xa9, 0x5c,
        0xc5, 0x47, 0xc1, 0xbb, 0x94, 0xdb, 0xfa, 0x2b, 0x1e, 0x54, 0xa5, 0x76, 0xad, 0x07, 0x4b, 0x46, 0xe0,
        0xaa, 0xf9, 0xf7, 0x5c, 0x64, 0x2d, 0x8f, 0x04, 0x17, 0x72, 0xe5, 0x8d, 0xfe, 0x9c,
    ];
    const TWEAK: [u8; 16] =
        [0x4f, 0xae, 0xf7, 0x11, 0x7c, 0xda, 0x59, 0xc6, 0x6e, 0x4b, 0x92, 0x01, 0x3e, 0x76, 0x8a, 0xd5];
    let profile =
        DeviceProfile { xts: XtsEngine::SingleBlock, crypto: CryptoMode::Wrapped, ..Default::default() };
    let mut host = Host::with(profile, |_| {});
    let kek = host.device.import_kek(&[0; 16]).unwrap();
    let credential = host.device.import_credential(&[7; 40]).unwrap();
    let shown = crypto::wrap_key(&[0; 16], &[7; 40]).unwrap().try_into().unwrap();
    let login = host.device.login(kek, credential, &shown).unwrap();
    let key = KeyMaterial::Wrapped { bytes: &WRAPPED, login };
    let attributes = DekAttributes { pd: host.pd, size: KeySize::Bits128, has_keytag: true, key };
    let dek = host.device.create_dek(attributes).unwrap();
    for (length, selector, end) in [(512, 1, 0x7452_e449_f721_6011_u64), (4096, 3, 0x56ba_0c5f_a77e_da65)] {
        let (at, key) = host.filled(&vec![0x79; length as usize]);
        let mkey = host.mkey(false, true);
        host.configure(
            Config::new(&mkey).list(&[(at, length, key)]).crypto(2, selector, TWEAK, dek).keytag([0; 8]),
        );
        let wire = host.send_from(mkey.key, 0, length);
        host.good(A);
        assert_eq!(wire[..8], 0xd394_3ec9_d343_13d3_u64.to_be_bytes());
        assert_eq!(wire[length as usize - 8..], end.to_be_bytes());
    }
}

/// Sends through a crypto mkey with DEK `dek`. The keytag in the BSF is `tag`.
fn send_with(host: &mut Host, dek: u32, tag: [u8; 8]) -> Result<Vec<u8>, Refusal> {
    let mkey = host.mkey(false, true);
    let (at, key) = host.filled(&[0x44; 512]);
    host.configure(
        Config::new(&mkey).access(LW).list(&[(at, 512, key)]).crypto(2, 1, tweak(), dek).keytag(tag),
    );
    let wire = host.send_from(mkey.key, 0, 512);
    let seen = host.poll_send(A).unwrap();
    match seen.opcode() {
        mlx5_mkey::wire::cqe::CqeOpcode::REQUESTER => Ok(wire),
        _ => {
            host.recover();
            Err(seen.why())
        }
    }
}

#[test]
fn r124_r159_r160_keys_that_do_not_fit() {
    let mut host = Host::new();
    let mkey = host.mkey(false, true);
    let (at, key) = host.filled(&[0x44; 512]);
    host.configure(Config::new(&mkey).access(LW | RR).list(&[(at, 512, key)]));
    host.send_from(mkey.key, 0, 512);
    assert_eq!(host.bad(A).why(), Refusal::CryptoUnconfigured);
    host.recover();
    host.read_from(mkey.key, 0, 512);
    assert_eq!(host.bad(B).syndrome(), Syndrome::REMOTE_OPERATION);
    host.recover();

    let good = Ok(xts128(&XTS_KEY, &[0x44; 512], 512, TWEAK));
    let tagged = host.dek(&[&XTS_KEY[..], b"keytag!!"].concat());
    let plain = host.dek(&XTS_KEY);
    assert_eq!(send_with(&mut host, tagged, *b"keytag!!"), good);
    assert_eq!(send_with(&mut host, tagged, *b"keytag!?"), Err(Refusal::Keytag));
    assert_eq!(send_with(&mut host, plain, *b"whatever"), good, "a DEK without a tag ignores it");
    host.device.set_faults(Faults { keytag_ignored: true, ..Default::default() });
    assert_eq!(send_with(&mut host, tagged, *b"keytag!?"), good);
    host.device.set_faults(Faults::default());
    host.device.destroy_dek(plain).unwrap();
    assert_eq!(send_with(&mut host, plain, [0; 8]), Err(Refusal::Dek));
}

#[test]
fn m34_256_bit_keys() {
    let key: Vec<u8> = pattern(64, 5);
    let mut host = Host::new();
    let dek = host.dek(&key);
    let good = send_with(&mut host, dek, [0; 8]).unwrap();
    let xts = crypto_reference(&key, &[0x44; 512]);
    assert_eq!(good, xts);
    host.device.set_faults(Faults { dek256_as_128: true, ..Default::default() });
    let dek = host.dek(&key);
    assert_ne!(send_with(&mut host, dek, [0; 8]).unwrap(), good);
}

fn crypto_reference(key: &[u8], data: &[u8]) -> Vec<u8> {
    use aes::cipher::{Array, KeyInit};
    let half = |at: usize| aes::Aes256::new_from_slice(&key[at..at + 32]).unwrap();
    let xts = xts_mode::Xts128::new(half(0), half(32));
    let mut bytes = data.to_vec();
    xts.encrypt_sector(&mut bytes, Array(TWEAK.to_le_bytes()));
    bytes
}

#[test]
fn m32_m35_wrapped_keys_need_a_login() {
    let wrap = |kek: &[u8; 32], plain: &[u8]| crypto::wrap_key(kek, plain).unwrap();
    let profile = DeviceProfile { crypto: CryptoMode::Wrapped, ..Default::default() };
    let mut host = Host::with(profile, |_| {});
    let kek = [9; 32];
    let credential = [7; 40];
    let kek_id = host.device.import_kek(&kek).unwrap();
    let credential_id = host.device.import_credential(&credential).unwrap();
    let good: [u8; 48] = wrap(&kek, &credential).try_into().unwrap();
    let login = host.device.login(kek_id, credential_id, &good).unwrap();
    assert_eq!(host.device.query_login(login), Ok(LoginState::Valid));
    let bad = host.device.login(kek_id, credential_id, &[1; 48]).unwrap();
    assert_eq!(host.device.query_login(bad), Ok(LoginState::Invalid));

    let plain = [&XTS_KEY[..], b"keytag!!"].concat();
    let mut wrapped = wrap(&kek, &plain);
    let pd = host.pd;
    let dek = |login, bytes: &[u8], host: &mut Host| {
        let key = KeyMaterial::Wrapped { bytes, login };
        host.device.create_dek(DekAttributes { pd, size: KeySize::Bits128, has_keytag: true, key })
    };
    let id = dek(login, &wrapped, &mut host).unwrap();
    assert_eq!(dek(bad, &wrapped, &mut host), Err(Error::NoLogin));
    let plaintext = KeyMaterial::Plaintext(&XTS_KEY);
    assert_eq!(
        host.device.create_dek(DekAttributes {
            pd,
            size: KeySize::Bits128,
            has_keytag: false,
            key: plaintext
        }),
        Err(Error::CryptoMode)
    );
    host.device.logout(login).unwrap();
    assert_eq!(dek(login, &wrapped, &mut host), Err(Error::NoLogin));
    let cipher = xts128(&XTS_KEY, &[0x44; 512], 512, TWEAK);
    assert_eq!(send_with(&mut host, id, *b"keytag!!"), Ok(cipher), "loaded keys outlive the login");

    let login = host.device.login(kek_id, credential_id, &good).unwrap();
    wrapped[20] ^= 1;
    assert_eq!(dek(login, &wrapped, &mut host), Err(Error::BadKey));
    host.device.set_faults(Faults { key_wrap_integrity_ignored: true, ..Default::default() });
    assert!(dek(login, &wrapped, &mut host).is_ok());
}

/// Returns a host, the numbers of its KEK and its credential, and a function that wraps keys with the KEK.
fn wrapping() -> (Host, u32, u32, impl Fn(&[u8]) -> Vec<u8>) {
    let profile = DeviceProfile { crypto: CryptoMode::Wrapped, ..Default::default() };
    let mut host = Host::with(profile, |_| {});
    let kek = host.device.import_kek(&[9; 32]).unwrap();
    let credential = host.device.import_credential(&[7; 40]).unwrap();
    (host, kek, credential, |plain: &[u8]| crypto::wrap_key(&[9; 32], plain).unwrap())
}

/// With the fault `keys_end_with_their_login`, the end of a login destroys the keys of this login, but no
/// keys of other logins.
#[test]
fn m29_keys_end_with_their_own_login_where_they_do() {
    for ends in [false, true] {
        for revoked in [false, true] {
            let (mut host, kek, credential, wrap) = wrapping();
            host.device.set_faults(Faults { keys_end_with_their_login: ends, ..Default::default() });
            let other = host.device.import_credential(&[7; 40]).unwrap();
            let shown: [u8; 48] = wrap(&[7; 40]).try_into().unwrap();
            let deks = [credential, other].map(|credential| {
                let login = host.device.login(kek, credential, &shown).unwrap();
                let key = KeyMaterial::Wrapped { bytes: &wrap(&XTS_KEY), login };
                let (pd, size) = (host.pd, KeySize::Bits128);
                let attributes = DekAttributes { pd, size, has_keytag: false, key };
                (login, host.device.create_dek(attributes).unwrap())
            });
            match revoked {
                true => host.device.revoke(credential),
                false => host.device.logout(deks[0].0).unwrap(),
            }
            let cipher = Ok(xts128(&XTS_KEY, &[0x44; 512], 512, TWEAK));
            let gone = Err(Refusal::Dek);
            assert_eq!(send_with(&mut host, deks[0].1, [0; 8]), if ends { gone } else { cipher.clone() });
            assert_eq!(send_with(&mut host, deks[1].1, [0; 8]), cipher);
        }
    }
}

/// A DEK that was used keeps its value until the next `sync_crypto`.
#[test]
fn a_key_that_is_changed_is_another_from_the_next_synchronisation_on() {
    let mut host = Host::new();
    let other: [u8; 32] = core::array::from_fn(|at| 200 - at as u8);
    let cipher = |key| Ok(xts128(key, &[0x44; 512], 512, TWEAK));
    let change = |host: &mut Host, dek, pd, bytes: &[u8; 32]| {
        let key = KeyMaterial::Plaintext(bytes);
        host.device.modify_dek(dek, DekAttributes { pd, size: KeySize::Bits128, has_keytag: false, key })
    };
    let (dek, pd) = (host.dek(&XTS_KEY), host.pd);
    // A DEK that was not used has the new value at once.
    change(&mut host, dek, pd, &other).unwrap();
    assert_eq!(send_with(&mut host, dek, [0; 8]), cipher(&other));
    change(&mut host, dek, pd, &XTS_KEY).unwrap();
    assert_eq!(send_with(&mut host, dek, [0; 8]), cipher(&other));
    host.device.sync_crypto();
    assert_eq!(send_with(&mut host, dek, [0; 8]), cipher(&XTS_KEY));
    host.device.sync_crypto();
    change(&mut host, dek, pd, &other).unwrap();
    assert_eq!(send_with(&mut host, dek, [0; 8]), cipher(&other), "not used since");
    // A DEK cannot change its domain.
    host.device.sync_crypto();
    let elsewhere = host.device.alloc_pd().unwrap();
    let refused = Err(Error::BadAttribute("domain of a DEK"));
    assert_eq!(change(&mut host, dek, elsewhere, &XTS_KEY), refused);
    assert_eq!(change(&mut host, 99, pd, &XTS_KEY), Err(Error::NoSuchObject { what: "DEK", number: 99 }));
    assert_eq!(send_with(&mut host, dek, [0; 8]), cipher(&other));
}
