//! Prints the MB/s of the cipher, the CRCs and the whole device on one core: `cargo run --release --example
//! throughput`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use mlx5_softdev::crypto::{Direction, Xts};
use mlx5_softdev::{pipeline, signature};
use std::time::{Duration, Instant};
use xts_mode::{Xts128, get_tweak_default};

const BYTES: usize = 1 << 20;

/// Prints the name of `work`, and the throughput of the fastest of many rounds of `work`: other load on the
/// machine only makes rounds slower.
fn rate(name: &str, work: impl FnMut(&mut Vec<u8>)) {
    println!("{name:34} {:8.0} MB/s", measure(work));
}

fn measure(mut work: impl FnMut(&mut Vec<u8>)) -> f64 {
    let mut bytes = vec![0xa5; BYTES];
    let mut best = Duration::MAX;
    let start = Instant::now();
    while start.elapsed().as_millis() < 300 {
        bytes.resize(BYTES, 0);
        let round = Instant::now();
        work(&mut bytes);
        best = best.min(round.elapsed());
    }
    BYTES as f64 / best.as_secs_f64() / 1e6
}

fn main() {
    let aes_128 = |key: u8| Aes128::new_from_slice(&[key; 16]).unwrap();
    let aes_256 = |key: u8| Aes256::new_from_slice(&[key; 32]).unwrap();
    // The speed of the crate `aes` alone: one call encrypts independent blocks, without the masks of XTS.
    let raw_128 = measure(|bytes| aes_128(7).encrypt_blocks(Array::slice_as_chunks_mut(bytes).0));
    let raw_256 = measure(|bytes| aes_256(7).encrypt_blocks(Array::slice_as_chunks_mut(bytes).0));
    let crates_128 = Xts128::new(aes_128(7), aes_128(8));
    let crates_256 = Xts128::new(aes_256(7), aes_256(8));
    for (bits, raw, key) in [(128, raw_128, &[7; 32][..]), (256, raw_256, &[7; 64][..])] {
        println!("{:34} {raw:8.0} MB/s", format!("AES-{bits} of the crate"));
        let xts = Xts::new(key).unwrap();
        for unit in [512, 520, 4096, 4160] {
            let of_crates = measure(|bytes| {
                bytes.truncate(BYTES / unit * unit);
                match bits {
                    128 => crates_128.encrypt_area(bytes, unit, 0, get_tweak_default),
                    _ => crates_256.encrypt_area(bytes, unit, 0, get_tweak_default),
                }
            });
            println!("{:34} {of_crates:8.0} MB/s", format!("AES-{bits}-XTS of the crates, {unit}"));
            for direction in [Direction::Encrypt, Direction::Decrypt] {
                let rate = measure(|bytes| {
                    bytes.truncate(BYTES / unit * unit);
                    xts.apply(direction, bytes, unit as u32, 0, 1).unwrap();
                });
                let name = format!("AES-{bits}-XTS {direction:?}, {unit}");
                println!("{name:34} {rate:8.0} MB/s, the crate's is {:.2} times that", raw / rate);
            }
        }
    }
    rate("CRC32C of the crate", |bytes| {
        std::hint::black_box(signature::crc32c(bytes, true));
    });
    let blocks = |bytes: &[u8], sum: &dyn Fn(&[u8]) -> u64| {
        std::hint::black_box(bytes.chunks(512).fold(0, |all, block| all ^ sum(block)));
    };
    rate("CRC32C, 512", |bytes| blocks(bytes, &|block| signature::crc32c(block, true).into()));
    rate("CRC32, 512", |bytes| blocks(bytes, &|block| signature::crc32(block, true).into()));
    rate("CRC64-XP10, 512", |bytes| blocks(bytes, &|block| signature::crc64_xp10(block, true)));
    rate("T10-DIF guard, 512", |bytes| blocks(bytes, &|block| signature::t10_guard(block, true).into()));

    let faults = mlx5_softdev::Faults::default();
    let rule = signature::Rule::T10Dif(signature::Dif {
        guard: signature::GuardKind::Crc,
        seed_ones: false,
        app_tag: 1,
        app_mask: 0xffff,
        ref_tag: 2,
        increment: true,
        app_escape: false,
        app_ref_escape: false,
    });
    let wire = Some(pipeline::Domain { block: 512, rule, psv: 1 });
    let key = Xts::new(&[7; 32]).unwrap();
    let order = pipeline::Order::RawWire;
    let cipher = pipeline::Cipher { key: &key, order, unit: 512, tweak: 0, step: 1, single_block: false };
    for (name, cipher) in
        [("pipeline, insert T10-DIF", None), ("pipeline, encrypt, insert T10-DIF", Some(cipher))]
    {
        let transform = pipeline::Transform { wire, check_mask: 0xff, cipher, ..Default::default() };
        let span = transform.span(0, (BYTES / 512 * 520) as u64, Default::default(), &faults).unwrap();
        rate(name, |bytes| {
            *bytes = transform.transmit(&span, std::mem::take(bytes), &faults).unwrap().bytes;
            bytes.truncate(BYTES);
        });
    }
}
