//! Keys and credentials are nowhere in a process's memory when who held them is dropped: on no stack, in no freed mailbox.

use super::{Bench, Outcome, deks, preloaded, prepared};
use mlx5_mkey::command::{
    Command, CreateDek, CreateLogin, Credential, CredentialId, DekKey, ImportKekId, Pdn, Secret, XtsKey, wipe,
};
use mlx5_mkey::devx::{DekCache, ProtectionDomain, QueuePairSpec};
use mlx5_softdev::{Arena, CryptoMode, DekAttributes, Device, DeviceProfile, KeyMaterial, KeySize, factory};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Part of a secret, kept in a form that is not the secret.
struct Needle([u8; LENGTH]);

/// What is searched for: the first bytes of an expanded key are those of the key, so much of it.
const LENGTH: usize = 16;
const MASK: u8 = 0xa5;
/// Memory that is looked at together.
const CHUNK: usize = 1 << 16;

impl Needle {
    /// Divides a secret.
    fn of(secret: &[u8]) -> Vec<Self> {
        let masked = |part: &[u8]| Self(std::array::from_fn(|at| part[at] ^ MASK));
        secret.chunks_exact(LENGTH).map(masked).collect()
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        let first = self.0[0] ^ MASK;
        let candidates = bytes.windows(LENGTH).filter(|window| window[0] == first);
        let is_here = |window: &[u8]| window.iter().zip(&self.0).all(|(byte, masked)| byte ^ MASK == *masked);
        candidates.into_iter().any(is_here)
    }
}

/// Returns where in this process's memory any of these are.
fn found(needles: &[Needle]) -> Vec<String> {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut places = Vec::new();
    let (mut buffer, zeros) = (vec![0; CHUNK + LENGTH], vec![0; CHUNK + LENGTH]);
    let areas = maps.lines().filter(|line| line.contains(" rw"));
    for area in areas.filter(|line| !line.contains("/dev/")) {
        let (from, to) = area.split(' ').next().unwrap().split_once('-').unwrap();
        let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        for at in (from..to).step_by(CHUNK) {
            let length = usize::try_from(to - at).unwrap().min(buffer.len());
            if memory.read_exact_at(&mut buffer[..length], at).is_err() {
                continue;
            }
            let bytes = &buffer[..length];
            // Most of it is.
            if bytes == &zeros[..length] {
                continue;
            }
            for (number, needle) in needles.iter().enumerate() {
                if needle.is_in(bytes) {
                    places.push(format!("part {number} at {at:#x} in {area}"));
                }
            }
            // What was found must not be found again here.
            buffer.fill(0);
        }
    }
    places
}

/// Makes a secret that no other test has, in its place.
fn fill(secret: &mut [u8]) {
    let mut state = u64::from(std::process::id()) << 32 | secret.as_ptr() as u64 & 0xffff_ffff | 1;
    for byte in secret {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 24) as u8;
    }
}

/// Makes a secret, has it used, and returns what is searched for behind that. While it is there it must be found.
#[inline(never)]
fn used<const N: usize>(user: impl FnOnce(&Secret<N>)) -> Vec<Needle> {
    let mut secret = Secret::new([0; N]);
    fill(secret.expose_mut());
    let needles = Needle::of(secret.expose());
    assert!(!found(&needles).is_empty(), "what is there is not found");
    user(&secret);
    needles
}

#[track_caller]
fn are_gone(needles: &[Needle]) {
    let places = found(needles);
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn a_copy_that_nobody_wipes_is_found() {
    let mut kept = Vec::new();
    let needles = used::<32>(|secret| kept.extend_from_slice(&secret.expose()[..LENGTH]));
    assert_eq!(needles.len(), 2);
    assert!(!found(&needles[..1]).is_empty());
    are_gone(&needles[1..]);
    drop(kept);
}

#[test]
fn m66_the_library_leaves_no_secret_behind() {
    let mut mailbox = Box::new([0; CreateDek::INPUT]);
    let needles = used::<64>(|secret| {
        let key = DekKey::Plain256 { key: XtsKey::new(secret.expose()).unwrap(), keytag: None };
        let command = CreateDek { pd: Pdn::new(7).unwrap(), key, opaque: [0; 8] };
        assert!(command.encode(&mut *mailbox).unwrap().is_secret());
    });
    are_gone(&needles);
    let mut mailbox = Box::new([0; CreateLogin::INPUT]);
    let needles = used::<48>(|secret| {
        let (credential_id, import_kek_id) = (CredentialId::new(0).unwrap(), ImportKekId::new(0).unwrap());
        let credential = Credential::wrapped(secret.expose());
        let command = CreateLogin { credential_id, import_kek_id, credential };
        assert!(command.encode(&mut *mailbox).unwrap().is_secret());
    });
    are_gone(&needles);
}

fn device(crypto: CryptoMode) -> Device<Arena> {
    Device::new(Arena::new(0, 0), DeviceProfile { crypto, ..DeviceProfile::default() })
}

#[test]
fn m66_the_software_device_wipes_its_keys() {
    for (size, length) in [(KeySize::Bits128, 32), (KeySize::Bits256, 64)] {
        let mut device = device(CryptoMode::Plaintext);
        let pd = device.alloc_pd().unwrap();
        let mut number = 0;
        let needles = used::<64>(|secret| {
            let key = KeyMaterial::Plaintext(&secret.expose()[..length]);
            number = device.create_dek(DekAttributes { pd, size, has_keytag: false, key }).unwrap();
        });
        assert!(!found(&needles).is_empty(), "the device has the key");
        device.destroy_dek(number).unwrap();
        are_gone(&needles);
    }
}

#[test]
fn m66_the_software_device_wipes_what_logins_need() {
    let mut device = device(CryptoMode::Wrapped);
    let pd = device.alloc_pd().unwrap();
    let (mut kek, mut credential) = (0, 0);
    let mut needles = used::<32>(|secret| kek = device.import_kek(secret.expose()).unwrap());
    needles.extend(used::<40>(|secret| credential = device.import_credential(secret.expose()).unwrap()));
    assert!(!found(&needles).is_empty(), "the device has both");
    // A wrapped key of a commissioned device, unwrapped there.
    let numbers = factory::commission(&mut device).unwrap();
    let shown = factory::wrapped(&factory::CREDENTIAL).unwrap();
    let login = device.login(numbers.keks[0], numbers.credential, shown.first_chunk().unwrap()).unwrap();
    let mut dek = 0;
    let key = used::<64>(|secret| {
        let wrapped = factory::wrapped(secret.expose()).unwrap();
        let key = KeyMaterial::Wrapped { bytes: &wrapped, login };
        let attributes = DekAttributes { pd, size: KeySize::Bits256, has_keytag: false, key };
        dek = device.create_dek(attributes).unwrap();
    });
    device.destroy_dek(dek).unwrap();
    are_gone(&key);
    drop(device);
    are_gone(&needles);
}

#[test]
fn m66_the_shim_and_the_stand_in_leave_no_key_behind() {
    preloaded("secrets::m66_the_shim_and_the_stand_in_leave_no_key_behind", || {
        let mut bench = Bench::new(QueuePairSpec::default()).unwrap();
        let mut deks = DekCache::new(bench.pd.clone());
        let needles = used::<64>(|secret| {
            let load = |pd: &ProtectionDomain| -> Outcome<_> {
                pd.create_dek(DekKey::Plain256 { key: XtsKey::new(secret.expose())?, keytag: None }, [0; 8])
            };
            let lease = deks.lease("volume", load).unwrap();
            assert!(deks::encrypts(&mut bench, &lease));
        });
        assert!(!found(&needles).is_empty(), "the device has the key");
        assert!(deks.erase("volume").unwrap());
        are_gone(&needles);
    });
}

#[test]
fn m66_a_login_leaves_no_wrapped_key_behind() {
    let name = "secrets::m66_a_login_leaves_no_wrapped_key_behind";
    prepared(
        name,
        |command, _| {
            command.env("MLX5_UVERBS_CRYPTO", "wrapped");
        },
        || {
            let bench = Bench::new(QueuePairSpec::default()).unwrap();
            let mut needles = Vec::new();
            let mut shown = factory::wrapped(&factory::CREDENTIAL).unwrap();
            needles.extend(Needle::of(&shown));
            let credential = Credential::wrapped(shown.first_chunk().unwrap());
            let (number, kek) = (CredentialId::new(0).unwrap(), ImportKekId::new(0).unwrap());
            let login = bench.device.login(number, kek, credential).unwrap();
            wipe(&mut shown);
            let key = used::<64>(|secret| {
                let mut wrapped = factory::wrapped(secret.expose()).unwrap();
                needles.extend(Needle::of(&wrapped));
                let key = DekKey::Wrapped256(wrapped.first_chunk().unwrap());
                drop(bench.pd.create_dek(key, [0; 8]).unwrap());
                wipe(&mut wrapped);
            });
            drop(login);
            are_gone(&key);
            are_gone(&needles);
        },
    );
}
