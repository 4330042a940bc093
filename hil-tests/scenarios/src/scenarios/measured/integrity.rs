//! Measurements of signatures on hardware: values, masks, parts of blocks, tags and offsets.

use super::super::fixture::{
    DIF, MkeyFixture, SIGNATURE, dif_domain, domain, flipped, part, pattern, replaced,
};
use super::measurement::{Measurement, Tell, compared, fitting, hex, measurement, receive, send};
use crate::board::Board;
use crate::expected;
use crate::qp_pair::{Rx, Tx, Verdict};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::mkey::{BlockSignature, Domain, Escape, Guard, Signature, T10Dif};
use mlx5_mkey::types::{BlockSize, Seed};

pub(super) const ALL: &[Measurement] = &[
    measurement!(gap01_internet_checksum, SIGNATURE),
    measurement!(gap02_byte_order_of_the_check_mask, SIGNATURE),
    measurement!(gap06_parts_of_protected_blocks, SIGNATURE),
    measurement!(gap08_reference_tags_behind_an_escaped_block, SIGNATURE),
    measurement!(gap12_checksums_of_a5, SIGNATURE),
];

const WIRE: Domain = dif_domain(DIF, BlockSize::B512);

/// Returns the signature that the device appends to `block` on the wire.
fn field(fixture: &mut MkeyFixture<'_>, kind: Signature, block: &[u8]) -> Result<Vec<u8>, String> {
    fixture.install(block, Some(&BlockSignature::wire(domain(kind))), None)?;
    let wire = send(fixture, Tx::Send, 0, 512 + kind.bytes() as usize)?;
    Ok(part(&wire, 512..wire.len()).to_vec())
}

/// Returns the sum of the Internet checksum (RFC 1071), without the final complement. `start` is its start
/// value.
fn sum(block: &[u8], start: u32) -> u16 {
    let word = |pair: &[u8]| pair.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let mut sum = block.chunks(2).fold(start, |sum, pair| sum + word(pair));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Reports the guard (Internet checksum) of three blocks with a seed of all ones. Only the guard of the block
/// of zeros depends on the start value of the sum.
fn gap01_internet_checksum(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let blocks = [("zeros", vec![0; 512]), ("A5", vec![0xa5; 512]), ("a pattern", pattern(512, 1))];
    let kind = Signature::T10Dif(T10Dif { guard: Guard::IpChecksum, seed: Seed::Ones, ..DIF });
    let mut fits = [true; 4];
    for (what, block) in &blocks {
        let field = field(&mut fixture, kind, block)?;
        let guard = part(&field, 0..2).iter().fold(0, |word, byte| word << 8 | u16::from(*byte));
        tell(&format!("guard of {what}, seed ones"), &format!("{guard:#06x}"));
        let sums = [sum(block, 0), !sum(block, 0), sum(block, 0xffff), !sum(block, 0xffff)];
        fits.iter_mut().zip(sums).for_each(|(fits, sum)| *fits &= sum == guard);
    }
    let names = [
        "start 0, not complemented",
        "start 0, complemented",
        "start FFFF, not complemented",
        "start FFFF, complemented",
    ];
    tell("checksum with seed ones", &fitting(names.into_iter().zip(fits)));
    Ok(())
}

/// Configures signatures with a single bit in the check mask. Changes the bytes of the signature in memory
/// one after the other, and reports which changes the device notices.
fn gap02_byte_order_of_the_check_mask(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let kinds = [
        ("CRC32", Signature::Crc32(Seed::Ones)),
        ("CRC32C", Signature::Crc32c(Seed::Ones)),
        ("CRC64", Signature::Crc64Xp10(Seed::Ones)),
        ("T10-DIF", Signature::T10Dif(DIF)),
    ];
    for (name, kind) in kinds {
        let length = kind.bytes() as usize;
        let stream = expected::sign(&pattern(512, 1), Some(&domain(kind)));
        for bit in [7, 6, 8 - length as u32] {
            let block = BlockSignature::memory(domain(kind)).with_check_mask(1 << bit);
            let mut noticed = String::new();
            for byte in 0..length {
                fixture.install(&flipped(&stream, 512 + byte, 0xff), Some(&block), None)?;
                send(&mut fixture, Tx::Write, 0, 512)?;
                if fixture.error()?.is_some() {
                    noticed += &format!(" {byte}");
                }
            }
            let noticed = if noticed.is_empty() { "none" } else { noticed.trim_start() };
            tell(&format!("bytes in memory that bit {bit} checks, {name}"), noticed);
        }
    }
    Ok(())
}

/// Reports the results of transfers that begin in the middle of the mkey, end inside a block, or begin inside
/// a block, both out of the mkey and into it.
fn gap06_parts_of_protected_blocks(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let images = expected::images(&pattern(2048, 1), Some(&BlockSignature::wire(WIRE)), None);
    for (offset, length) in
        [(520, 1040), (0, 100), (0, 512), (0, 519), (0, 521), (520, 512), (8, 520), (260, 1040)]
    {
        let wire = part(&images.wire, offset..offset + length);
        let block = BlockSignature::wire(WIRE);
        fixture.install(&images.memory, Some(&block), None)?;
        let out = compared(send(&mut fixture, Tx::Write, offset as u64, length), wire);
        let error = fixture.error()?.map_or(String::new(), |error| format!("; {error}"));
        tell(&format!("{length} bytes from {offset} on, out"), &format!("{out}{error}"));
        fixture.install(&[0; 2048], Some(&block), None)?;
        let done = receive(&mut fixture, Rx::PeerWrite, offset as u64, wire);
        // Returns the offset in the data of the byte at offset `at` on the wire.
        let data = |at: usize| at / 520 * 512 + (at % 520).min(512);
        let (from, to) = (data(offset), data(offset + length));
        let stored = done.map(|_| fixture.pair.bytes(&fixture.memory));
        let mut memory = vec![0; 2048];
        if let (Some(target), Some(data)) = (memory.get_mut(from..to), images.memory.get(from..to)) {
            target.copy_from_slice(data);
        }
        let taken = compared(stored, &memory);
        let error = fixture.error()?.map_or(String::new(), |error| format!("; {error}"));
        tell(&format!("{length} bytes from {offset} on, in"), &format!("{taken}{error}"));
    }
    Ok(())
}

/// Of three blocks, the second has tags that exempt it from checks (escape), and a wrong guard. Reports the
/// reference tag that the device then expects in the third block. Also reports the T10-DIF that the device
/// writes for the second and the third block if the output domain has another signature.
fn gap08_reference_tags_behind_an_escaped_block(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    for (escape, name) in [(Escape::AppTag, "by app tag"), (Escape::AppAndRefTag, "by both tags")] {
        let dif = T10Dif { escape, ref_remap: true, ..DIF };
        let own = dif_domain(dif, BlockSize::B512);
        let stream = expected::sign(&pattern(3 * 512, 1), Some(&own));
        let stream = replaced(&flipped(&stream, 520 + 512, 0xff), 520 + 514, &[0xff; 6]);
        let mut fits = Vec::new();
        for (what, step) in [("first + 2", 2_u32), ("first + 1", 1), ("first", 0)] {
            let tag = DIF.ref_tag.wrapping_add(step).to_be_bytes();
            fixture.install(
                &replaced(&stream, 2 * 520 + 516, &tag),
                Some(&BlockSignature::memory(own)),
                None,
            )?;
            send(&mut fixture, Tx::Write, 0, 3 * 512)?;
            fits.push((what, fixture.error()?.is_none()));
        }
        tell(&format!("reference tag wanted behind a block escaped {name}"), &fitting(fits));
        let other = dif_domain(T10Dif { app_tag: 0x1234, ref_tag: 7, ..dif }, BlockSize::B512);
        fixture.install(&stream, Some(&BlockSignature::both(own, other)), None)?;
        let wire = send(&mut fixture, Tx::Write, 0, 3 * 520)?;
        let field = |block: usize| hex(part(&wire, block * 520 + 512..(block + 1) * 520));
        tell(&format!("field made of a block escaped {name}"), &field(1));
        tell(&format!("field made of the block behind one escaped {name}"), &field(2));
        // This call takes the signature error, so that the next round begins without one.
        fixture.error()?;
    }
    Ok(())
}

/// Reports the signatures of 512 bytes of A5. For a seed of zeros, hardware tests of other projects assert
/// the values. For a seed of ones, only computed values are known.
fn gap12_checksums_of_a5(board: &mut dyn Board, tell: Tell<'_>) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    for (seed, name) in [(Seed::Zeros, "zeros"), (Seed::Ones, "ones")] {
        for (kind, what) in [
            (Signature::Crc32(seed), "CRC32"),
            (Signature::Crc32c(seed), "CRC32C"),
            (Signature::Crc64Xp10(seed), "CRC64"),
            (Signature::T10Dif(T10Dif { seed, ..DIF }), "T10-DIF"),
        ] {
            tell(&format!("{what} with seed {name}"), &hex(&field(&mut fixture, kind, &[0xa5; 512])?));
        }
    }
    Ok(())
}
