//! Tests that no copy of a key or credential stays in a process's memory after its owner is dropped, neither
//! on a stack nor in a freed mailbox.

use super::{Bench, Inside, deks, plain, preloaded, preloaded_with, umem};
use mlx5_mkey::command::{
    Command, CreateDek, CreateLogin, Credential, CredentialId, DekKey, ImportKekId, Pdn, Secret, XtsKey, wipe,
};
use mlx5_mkey::devx::{DekCache, ProtectionDomain, QueuePairSpec};
use mlx5_softdev::{Arena, CryptoMode, DekAttributes, Device, DeviceProfile, KeyMaterial, KeySize, factory};
use mlx5_testing::secrets::{LENGTH, Needle, Scan, fill};
use std::os::unix::fs::FileExt;

/// Makes a random secret, hands it to `user`, and wipes it. Returns the needles by which a scan finds copies
/// of the secret. Checks that the scan finds the secret while it exists.
#[inline(never)]
fn used<const N: usize>(scan: &mut Scan, user: impl FnOnce(&Secret<N>)) -> Vec<Needle> {
    let mut secret = Secret::new([0; N]);
    fill(secret.expose_mut());
    let needles = Needle::of(secret.expose());
    assert!(!scan.find(&needles).is_empty(), "what is there is not found");
    user(&secret);
    needles
}

#[test]
fn a_copy_that_nobody_wipes_is_found() {
    let mut scan = Scan::open();
    let mut kept = Vec::new();
    let needles = used::<32>(&mut scan, |secret| kept.extend_from_slice(&secret.expose()[..LENGTH]));
    assert_eq!(needles.len(), 2);
    assert!(!scan.find(&needles[..1]).is_empty());
    scan.expect_gone(&needles[1..]);
    drop(kept);
}

/// The scan also finds a copy in a mapping that is longer than its file, whose last pages cannot be read.
#[test]
fn a_copy_beside_memory_that_cannot_be_read_is_found() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    umem::mapped(&file);
    let mut scan = Scan::open();
    let needles = used::<LENGTH>(&mut scan, |secret| file.write_all_at(secret.expose(), 100).unwrap());
    assert!(!scan.find(&needles).is_empty());
    file.write_all_at(&[0; LENGTH], 100).unwrap();
    scan.expect_gone(&needles);
}

#[test]
fn m66_the_library_leaves_no_secret_behind() {
    let mut scan = Scan::open();
    let mut mailbox = Box::new([0; CreateDek::INPUT]);
    let needles = used::<64>(&mut scan, |secret| {
        let key = plain(secret.expose());
        let command = CreateDek { pd: Pdn::new(7).unwrap(), key, opaque: [0; 8] };
        assert!(command.encode(&mut *mailbox).unwrap().is_secret());
    });
    scan.expect_gone(&needles);
    let mut mailbox = Box::new([0; CreateLogin::INPUT]);
    let needles = used::<48>(&mut scan, |secret| {
        let (credential_id, import_kek_id) = (CredentialId::new(0).unwrap(), ImportKekId::new(0).unwrap());
        let credential = Credential::wrapped(secret.expose());
        let command = CreateLogin { credential_id, import_kek_id, credential };
        assert!(command.encode(&mut *mailbox).unwrap().is_secret());
    });
    scan.expect_gone(&needles);
}

fn device(crypto: CryptoMode) -> Device<Arena> {
    Device::new(Arena::new(0, 0), DeviceProfile { crypto, ..DeviceProfile::default() })
}

#[test]
fn m66_the_software_device_wipes_its_keys() {
    let mut scan = Scan::open();
    for (size, length) in [(KeySize::Bits128, 32), (KeySize::Bits256, 64)] {
        let mut device = device(CryptoMode::Plaintext);
        let pd = device.alloc_pd().unwrap();
        let mut number = 0;
        let needles = used::<64>(&mut scan, |secret| {
            let key = KeyMaterial::Plaintext(&secret.expose()[..length]);
            number = device.create_dek(DekAttributes { pd, size, has_keytag: false, key }).unwrap();
        });
        assert!(!scan.find(&needles).is_empty(), "the device has the key");
        device.destroy_dek(number).unwrap();
        scan.expect_gone(&needles);
    }
}

#[test]
fn m66_the_software_device_wipes_what_logins_need() {
    let mut scan = Scan::open();
    let mut device = device(CryptoMode::Wrapped);
    let pd = device.alloc_pd().unwrap();
    let (mut kek, mut credential) = (0, 0);
    let mut needles = used::<32>(&mut scan, |secret| kek = device.import_kek(secret.expose()).unwrap());
    needles.extend(used::<40>(&mut scan, |secret| {
        credential = device.import_credential(secret.expose()).unwrap()
    }));
    assert!(!scan.find(&needles).is_empty(), "the device has both");
    // A commissioned device unwraps an imported key.
    let numbers = factory::commission(&mut device).unwrap();
    let shown = factory::wrapped(&factory::CREDENTIAL).unwrap();
    let login = device.login(numbers.keks[0], numbers.credential, shown.first_chunk().unwrap()).unwrap();
    let mut dek = 0;
    let key = used::<64>(&mut scan, |secret| {
        let wrapped = factory::wrapped(secret.expose()).unwrap();
        let key = KeyMaterial::Wrapped { bytes: &wrapped, login };
        let attributes = DekAttributes { pd, size: KeySize::Bits256, has_keytag: false, key };
        dek = device.create_dek(attributes).unwrap();
    });
    device.destroy_dek(dek).unwrap();
    scan.expect_gone(&key);
    drop(device);
    scan.expect_gone(&needles);
}

#[test]
fn m66_the_shim_and_the_stand_in_leave_no_key_behind() {
    let Inside = preloaded() else { return };
    let mut scan = Scan::open();
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let mut deks = DekCache::new(bench.pd.clone());
    let needles = used::<64>(&mut scan, |secret| {
        let load = |pd: &ProtectionDomain| pd.create_dek(plain(secret.expose()), [0; 8]);
        let lease = deks.lease("volume", load).unwrap();
        assert!(deks::encrypts(&mut bench, &lease));
    });
    assert!(!scan.find(&needles).is_empty(), "the device has the key");
    assert!(deks.erase("volume").unwrap());
    scan.expect_gone(&needles);
}

/// If a value of a DEK was used, it stays in force after its replacement, and thus in memory, until
/// SYNC_CRYPTO. Afterwards no copy is left.
#[test]
fn m66_a_value_that_another_replaces_is_left_nowhere() {
    let Inside = preloaded() else { return };
    expect_replaced::<32>(|key| DekKey::Plain128 { key: XtsKey::new(key).unwrap(), keytag: None });
    expect_replaced::<64>(plain);
}

fn expect_replaced<const N: usize>(key: fn(&[u8; N]) -> DekKey<'_>) {
    let mut scan = Scan::open();
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let mut dek = None;
    let first = used(&mut scan, |secret| {
        let made = dek.insert(bench.pd.create_dek(key(secret.expose()), [0; 8]).unwrap());
        assert!(deks::encrypted_by(&mut bench, made.id()).is_some());
    });
    let mut dek = dek.unwrap();
    let second = used(&mut scan, |secret| dek.replace(key(secret.expose())).unwrap());
    for needles in [&first, &second] {
        assert!(!scan.find(needles).is_empty(), "the device has both");
    }
    bench.device.sync_crypto().unwrap();
    scan.expect_gone(&first);
    assert!(!scan.find(&second).is_empty(), "the device has the second");
    drop(dek);
    scan.expect_gone(&second);
}

#[test]
fn m66_a_login_leaves_no_wrapped_key_behind() {
    let Inside = preloaded_with(&[("MLX5_UVERBS_CRYPTO", "wrapped")]) else { return };
    let mut scan = Scan::open();
    let bench = Bench::new(QueuePairSpec::default()).unwrap();
    let mut needles = Vec::new();
    let mut shown = factory::wrapped(&factory::CREDENTIAL).unwrap();
    needles.extend(Needle::of(&shown));
    let credential = Credential::wrapped(shown.first_chunk().unwrap());
    let (number, kek) = (CredentialId::new(0).unwrap(), ImportKekId::new(0).unwrap());
    let login = bench.device.login(number, kek, credential).unwrap();
    wipe(&mut shown);
    let key = used::<64>(&mut scan, |secret| {
        let mut wrapped = factory::wrapped(secret.expose()).unwrap();
        needles.extend(Needle::of(&wrapped));
        let key = DekKey::Wrapped256(wrapped.first_chunk().unwrap());
        drop(bench.pd.create_dek(key, [0; 8]).unwrap());
        wipe(&mut wrapped);
    });
    drop(login);
    scan.expect_gone(&key);
    scan.expect_gone(&needles);
}
