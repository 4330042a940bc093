//! Tests of DEKs: the cache that finds them by names of the user, replaced values, and logins.

use super::{
    Bench, Counts, Inside, Outcome, device_and_domain, page, plain, preloaded, preloaded_with, prepared,
    rdma_write, verbs,
};
use mlx5_mkey::command::{Credential, CredentialId, DekKey, DekState, ImportKekId, LoginState};
use mlx5_mkey::devx::{
    Dek, DekCache, DekLease, Device, DevxError, MkeySpec, ProtectionDomain, QueuePairSpec,
};
use mlx5_mkey::mkey::{Access, Crypto, Direction, Keytag, MkeyConfig, SignatureOrder};
use mlx5_mkey::queue::{self, QpRouter};
use mlx5_mkey::types::{BlockSize, DekId, Tweak};
use mlx5_mkey::wqe::{PreparedConfig, Remote, Sge};
use mlx5_softdev::{crypto, factory};
use std::path::Path;
use std::process::Command;

/// The value of each byte of the plaintext.
const PLAIN: u8 = 0x5a;

fn load(pd: &ProtectionDomain, byte: u8) -> Outcome<Dek> {
    let key: [u8; 64] = std::array::from_fn(|index| byte ^ index as u8);
    pd.create_dek(plain(&key), [0; 8])
}

/// Returns whether the device can encrypt with the DEK of a lease.
pub(super) fn encrypts(bench: &mut Bench, lease: &DekLease) -> bool {
    encrypted(bench, lease).is_some()
}

/// Encrypts a block of 512 bytes, which are all [`PLAIN`], with the DEK of a lease. Returns the ciphertext,
/// or `None` if the device cannot encrypt.
fn encrypted(bench: &mut Bench, lease: &DekLease) -> Option<[u8; 512]> {
    encrypted_by(bench, lease.id())
}

/// Encrypts a block of 512 bytes, which are all [`PLAIN`], with a DEK. Returns the ciphertext, or `None` if
/// the device cannot encrypt.
pub(super) fn encrypted_by(bench: &mut Bench, dek: DekId) -> Option<[u8; 512]> {
    let spec = MkeySpec { max_entries: 4, crypto: true, ..MkeySpec::default() };
    let mut mkeys = bench.pd.create_mkeys(1, spec).unwrap();
    let crypto = Crypto {
        direction: Direction::EncryptOnTx,
        order: SignatureOrder::BeforeCryptoOnTx,
        data_unit: BlockSize::B512,
        tweak: Tweak::from_lba(0),
        dek,
        keytag: Keytag::default(),
    };
    let config = MkeyConfig { access: Some(Access::ALL), crypto: Some(crypto), ..MkeyConfig::UNCHANGED };
    let prepared = PreparedConfig::new(mkeys[0].kind(), &config).unwrap();
    let page = page(&bench.pd, &[PLAIN; 512]).unwrap();
    let remote = Remote { address: page.address() + 1024, rkey: page.rkey() };
    let sge = Sge { address: 0, length: 512, lkey: mkeys[0].key() };
    let Bench { queue, completions, .. } = bench;
    queue.request(1).configure_mkey(&mut mkeys[0], &prepared, &[page.entry(0..512).unwrap()]).unwrap();
    rdma_write(queue, 2, remote, sge);
    let mut router = QpRouter { queues: &mut *queue, mkeys: &mut mkeys };
    let done = completions.wait(&mut router, super::TIMEOUT).unwrap().unwrap().work().unwrap();
    let good = matches!(done.outcome, queue::Outcome::Sent { .. });
    let mut found = [0; 512];
    page.read(1024, &mut found).unwrap();
    assert_eq!(good, found != [0; 512]);
    assert_ne!(found, [PLAIN; 512]);
    good.then_some(found)
}

#[test]
fn ciphertext_is_in_the_capture_and_its_plaintext_is_not() {
    const PCAP: &str = "MLX5_UVERBS_PCAP";
    let prepare = |command: &mut Command, directory: &Path| {
        command.env(PCAP, directory.join("wire.pcap"));
    };
    let Inside = prepared(prepare) else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let mut deks = DekCache::new(bench.pd.clone());
    let lease = deks.lease("one", |pd| load(pd, 1)).unwrap();
    let arrived = encrypted(&mut bench, &lease).unwrap();
    let capture = std::fs::read(std::env::var_os(PCAP).unwrap()).unwrap();
    let has = |bytes: &[u8]| capture.windows(bytes.len()).any(|window| window == bytes);
    assert!(has(&arrived[..256]) && has(&arrived[256..]), "whatever the path's MTU");
    assert!(!has(&[PLAIN; 16]));
}

#[test]
fn keys_are_loaded_once_and_erased_at_once() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let mut deks = DekCache::new(bench.pd.clone());
    let lease = deks.lease("one", |pd| load(pd, 1)).unwrap();
    let again = deks.lease("one", |_| Err("it is there")).unwrap();
    assert_eq!((lease.id(), deks.len()), (again.id(), 1));
    let other = deks.lease("two", |pd| load(pd, 2)).unwrap();
    assert_ne!(other.id(), lease.id());
    let before = Counts::now();
    assert!(deks.lease("three", |_| Err::<Dek, _>("no key")).is_err());
    assert_eq!((deks.len(), Counts::now()), (2, before));
    assert!(encrypts(&mut bench, &lease));
    drop((again, other));
    assert_eq!((deks.remove_unused(), deks.len()), (1, 1), "one is in use");

    // A DEK whose destruction the device has refused remains in the cache, and can be erased later.
    verbs::keep(1);
    deks.erase("one").unwrap_err();
    verbs::keep(0);
    assert_eq!(deks.len(), 1);
    assert!(encrypts(&mut bench, &lease));
    assert!(deks.erase("one").unwrap());
    assert!(!deks.erase("one").unwrap());
    assert!(!encrypts(&mut bench, &lease), "a lease does not keep a key that was erased");
}

/// A DEK can get another value, while its number and the mkeys that use it stay the same. A value that was
/// used stays in force until SYNC_CRYPTO.
#[test]
fn a_key_gets_another_value() {
    let Inside = preloaded() else { return };
    let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
    let (mut dek, other) = (load(&bench.pd, 1).unwrap(), load(&bench.pd, 2).unwrap());
    let both: [[u8; 64]; 2] = [1, 2].map(|byte| std::array::from_fn(|index| byte ^ index as u8));
    let [one, two] = both.each_ref().map(plain);
    let info = dek.query().unwrap();
    assert_eq!((info.state, info.opaque), (DekState::READY, [0; 8]));
    let [ones, twos] = [&dek, &other].map(|dek| encrypted_by(&mut bench, dek.id()).unwrap());
    assert_ne!(ones, twos);
    dek.replace(two).unwrap();
    assert_eq!(encrypted_by(&mut bench, dek.id()), Some(ones), "it was used");
    bench.device.sync_crypto().unwrap();
    assert_eq!(encrypted_by(&mut bench, dek.id()), Some(twos));
    bench.device.sync_crypto().unwrap();
    dek.replace(one).unwrap();
    assert_eq!(encrypted_by(&mut bench, dek.id()), Some(ones), "at once, behind the command");

    // A refused replacement changes nothing.
    let wrapped = dek.replace(DekKey::Wrapped128(&[0; 40]));
    assert!(matches!(wrapped, Err(DevxError::Command(_))), "{wrapped:?}");
    bench.device.sync_crypto().unwrap();
    assert_eq!(encrypted_by(&mut bench, dek.id()), Some(ones));
}

/// The stand-in's commissioned device has two key encryption keys, and a login names one of them.
#[test]
fn a_login_names_the_key_that_wraps() {
    let Inside = preloaded_with(&[("MLX5_UVERBS_CRYPTO", "wrapped")]) else { return };
    let wrap = |kek: usize, plain: &[u8]| {
        let keks: [&[u8]; 2] = [&factory::KEK, &factory::ZERO_KEK];
        crypto::wrap_key(keks[kek], plain).unwrap()
    };
    let (device, pd) = device_and_domain();
    let login = |number: usize, by: usize| {
        let kek = ImportKekId::new(number as u32).unwrap();
        let shown = wrap(by, &factory::CREDENTIAL);
        let shown = Credential::wrapped(shown.first_chunk().unwrap());
        device.login(CredentialId::new(0).unwrap(), kek, shown)
    };
    for number in [0, 1] {
        let other = 1 - number;
        let wrong = login(number, other).unwrap();
        assert_eq!(wrong.state().unwrap(), LoginState::INVALID, "{number}");
        assert!(matches!(login(number, number), Err(DevxError::LoggedIn)), "one for each context");
        wrong.log_out().unwrap_or_else(|(error, _)| panic!("{error}"));
        let right = login(number, number).unwrap();
        assert_eq!(right.state().unwrap(), LoginState::VALID, "{number}");
        let load = |kek| {
            let key = wrap(kek, &[7; 64]);
            pd.create_dek(DekKey::Wrapped256(key.first_chunk().unwrap()), [0; 8]).is_ok()
        };
        assert_eq!((load(number), load(other)), (true, false), "{number}");
    }
    assert!(login(2, 0).is_err(), "there are two");
    // Queries and changes of a DEK that was imported wrapped need a login.
    let key = wrap(0, &[7; 64]);
    let key = DekKey::Wrapped256(key.first_chunk().unwrap());
    let session = login(0, 0).unwrap();
    let mut dek = pd.create_dek(key, [9; 8]).unwrap();
    assert_eq!(dek.query().unwrap().opaque, [9; 8]);
    dek.replace(key).unwrap();
    session.log_out().unwrap_or_else(|(error, _)| panic!("{error}"));
    for refused in [dek.query().map(drop), dek.replace(key)] {
        assert!(matches!(refused, Err(DevxError::Command(_))), "{refused:?}");
    }
    // Each context has its own login: a second context can log in while the first is logged in.
    let held = login(0, 0).unwrap();
    let second = Device::open(None).unwrap();
    let shown = wrap(0, &factory::CREDENTIAL);
    let shown = Credential::wrapped(shown.first_chunk().unwrap());
    let [credential, kek] = [CredentialId::new(0).unwrap().get(), 0];
    let other = second.login(CredentialId::new(credential).unwrap(), ImportKekId::new(kek).unwrap(), shown);
    assert_eq!(other.unwrap().state().unwrap(), LoginState::VALID);
    assert_eq!(held.state().unwrap(), LoginState::VALID);
}
