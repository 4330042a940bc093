//! Writes the input files for DPDK's test programs: vectors of AES-XTS, which are computed independently of
//! the device, and wrapped credentials.

use hil_tests::expected;
use mlx5_mkey::types::{BlockSize, Tweak};
use mlx5_softdev::crypto::wrap_key;
use mlx5_softdev::factory;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use xtask::run;

/// The tweak of all vectors. Its bytes in reverse order are another number, so that a wrong byte order
/// changes the result.
const TWEAK: u128 = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;

/// The keytag with which the vectors' keys are wrapped. It is also the device argument `keytag` of DPDK.
const KEYTAG: u64 = 0x0123_4567_89ab_cdef;

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let [folder] = arguments else { return run::misuse("not called by `cargo xtask peer`") };
    let credential = |kek: &[u8]| hexadecimal(&wrapped(kek, &factory::CREDENTIAL));
    let files = [
        ("vectors", vectors()),
        ("credential-0", credential(&factory::KEK)),
        ("credential-1", credential(&factory::ZERO_KEK)),
    ];
    let written = files.iter().try_for_each(|(name, text)| fs::write(Path::new(folder).join(name), text));
    written.map_or_else(|error| run::lost(&error), |()| ExitCode::SUCCESS)
}

/// Returns vectors in the format of `dpdk-test-crypto-perf`. Their names are `UNIT-KEY-ORDER-IMPORT`: bytes
/// of a data unit, bits of the key, byte order of the tweak, and import method of the key.
fn vectors() -> String {
    let mut text = String::new();
    for unit in [BlockSize::B512, BlockSize::B4096] {
        for bytes in [32, 64] {
            let key: Vec<u8> = (0..bytes).map(|index| 0x40 | index).collect();
            let plain: Vec<u8> = (0..unit.bytes()).map(|index| (index * 7 + index / 256) as u8).collect();
            let cipher = expected::encrypt(&key, unit, Tweak::new(TWEAK), &plain);
            let tagged = [&key[..], &KEYTAG.to_be_bytes()].concat();
            let keys = [("plaintext", key), ("wrapped", wrapped(&factory::KEK, &tagged))];
            let tweaks = [("be", TWEAK.to_be_bytes()), ("le", TWEAK.to_le_bytes())];
            for ((import, key), (order, tweak)) in
                keys.iter().flat_map(|key| tweaks.iter().map(move |tweak| (key, tweak)))
            {
                let _ = writeln!(text, "[{}-{}-{order}-{import}]", unit.bytes(), u32::from(bytes) * 4);
                let fields = [
                    ("plaintext", &plain[..]),
                    ("cipher_key", key),
                    ("cipher_iv", tweak),
                    ("ciphertext", &cipher),
                ];
                for (name, bytes) in fields {
                    let bytes: Vec<String> = bytes.iter().map(|byte| format!("0x{byte:02x}")).collect();
                    let _ = writeln!(text, "{name} =\n{}", bytes.join(", "));
                }
            }
        }
    }
    text
}

fn wrapped(kek: &[u8], plain: &[u8]) -> Vec<u8> {
    wrap_key(kek, plain).unwrap_or_default()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_keys_are_as_long_as_dpdk_wants_them() {
        assert_eq!(hexadecimal(&wrapped(&factory::ZERO_KEK, &factory::CREDENTIAL)).len(), 96);
        let lengths = |name: &str| {
            let vectors = vectors();
            let mut lines = vectors.lines();
            lines.find(|line| *line == format!("[{name}]")).unwrap();
            let values = lines.by_ref().skip(1).step_by(2).take(4);
            values.map(|line| line.split(", ").count()).collect::<Vec<_>>()
        };
        assert_eq!(lengths("512-128-be-plaintext"), [512, 32, 16, 512]);
        assert_eq!(lengths("4096-256-le-wrapped"), [4096, 80, 16, 4096]);
        assert_eq!(lengths("512-128-le-wrapped"), [512, 48, 16, 512]);
    }
}
