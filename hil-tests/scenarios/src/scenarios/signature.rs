//! Block signatures: computed, checked, stripped, copied and converted, in either domain and in both
//! directions.

use super::fixture::{
    DIF, MkeyFixture, SIGNATURE, dif_domain, domain, entry, flipped, part, pattern, replaced, reports, same,
};
use super::scenario::{Scenario, scenario};
use crate::board::Board;
use crate::expected;
use crate::qp_pair::{Region, Rx, Tx, Verdict, Within, text};
use crate::{ensure, ensure_eq};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::mkey::{
    Access, BlockSignature, Domain, Escape, Guard, InterleavedEntry, Layout, MkeyConfig, Signature,
    SignatureChange, SignatureErrorKind, T10Dif, check_mask,
};
use mlx5_mkey::types::{BlockSize, DomainKind, Seed};

pub(super) const ALL: &[Scenario] = &[
    scenario!(r066_crc32_in_memory_example, SIGNATURE, ["R66", "R67", "R64", "R73", "R99"]),
    scenario!(r068_t10dif_on_the_wire_example, SIGNATURE, ["R68", "R69", "R65", "R72", "R106"]),
    scenario!(r072_on_the_wire_alone, SIGNATURE, ["R72", "R61", "R53", "R96", "R100", "R101", "R107"]),
    scenario!(r073_in_memory_alone, SIGNATURE, ["R73", "R61", "R53", "R64", "R96"]),
    scenario!(r073_protection_information_in_its_own_memory, SIGNATURE, ["R73", "R74", "R49", "R64"]),
    scenario!(r074_alike_in_both_domains, SIGNATURE, ["R74", "R61", "R53", "R85", "R96"]),
    scenario!(r075_converted, SIGNATURE, ["R75", "R61", "R53", "R63", "R94", "R95", "R96"]),
    scenario!(r077_every_bit_of_the_check_mask, SIGNATURE, ["R77", "R79", "R80"]),
    scenario!(r078_irrelevant_bits_of_masks, SIGNATURE, ["R78", "R88"]),
    scenario!(r081_one_byte_of_the_app_tag, SIGNATURE, ["R81", "R82"]),
    scenario!(r084_a_crc_is_copied_whole, SIGNATURE, ["R84", "R85", "R87"]),
    scenario!(r085_parts_that_agree_are_copied, SIGNATURE, ["R85", "R84", "R87"]),
    scenario!(r086_every_bit_of_the_copy_mask, SIGNATURE, ["R83", "R86", "R87", "R89", "R91"]),
    scenario!(r087_app_tag_5678_from_two_domains, SIGNATURE, ["R83", "R86", "R87"]),
    scenario!(r092_unknown_bytes_pass_and_arrive, SIGNATURE, ["R92"]),
    scenario!(r103_the_seed_begins_each_block_anew, SIGNATURE, ["R103"]),
    scenario!(r105_golden_values, SIGNATURE, ["R99", "R100", "R101", "R105", "R106", "R109", "R110"]),
    scenario!(r108_reference_tags, SIGNATURE, ["R108", "R114"]),
    scenario!(r111_wrong_tags_are_told_apart, SIGNATURE, ["R111", "R112", "R108", "M11", "M12", "M13"]),
    scenario!(r115_app_tag_escape, SIGNATURE, ["R115", "R113"]),
    scenario!(r116_app_and_reference_tag_escape, SIGNATURE, ["R116", "R113"]),
    scenario!(r182_found_and_computed_as_hardware_says, SIGNATURE, ["R182", "R110", "M13"]),
];

const fn t10(dif: T10Dif) -> Signature {
    Signature::T10Dif(dif)
}

/// All kinds of signature, with both seeds. (The seed of the IP checksum matters only to blocks of zeros,
/// which no scenario has. `gap01_internet_checksum` measures them.)
const KINDS: [Signature; 10] = [
    t10(DIF),
    t10(T10Dif { seed: Seed::Zeros, ref_remap: false, ..DIF }),
    t10(T10Dif { guard: Guard::IpChecksum, ..DIF }),
    t10(T10Dif { guard: Guard::IpChecksum, seed: Seed::Zeros, ..DIF }),
    Signature::Crc32(Seed::Zeros),
    Signature::Crc32(Seed::Ones),
    Signature::Crc32c(Seed::Zeros),
    Signature::Crc32c(Seed::Ones),
    Signature::Crc64Xp10(Seed::Zeros),
    Signature::Crc64Xp10(Seed::Ones),
];

/// The domain of an mkey (memory or wire) from which the data of a transfer come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Memory,
    Wire,
}

impl Input {
    const ALL: [Self; 2] = [Self::Memory, Self::Wire];

    /// Returns this domain in the type that signature errors use.
    const fn domain(self) -> DomainKind {
        match self {
            Self::Memory => DomainKind::Memory,
            Self::Wire => DomainKind::Wire,
        }
    }

    /// Returns a block signature in this domain only.
    const fn alone(self, domain: Domain) -> BlockSignature {
        match self {
            Self::Memory => BlockSignature::memory(domain),
            Self::Wire => BlockSignature::wire(domain),
        }
    }

    /// Returns a block signature in both domains: `input` in this one, `output` in the other.
    const fn both(self, input: Domain, output: Domain) -> BlockSignature {
        match self {
            Self::Memory => BlockSignature::both(input, output),
            Self::Wire => BlockSignature::both(output, input),
        }
    }
}

/// Returns whether a source states to which byte of the signature each bit of a check mask or copy mask
/// belongs.
///
/// Assumption: for the little-endian CRC types too, bit 7 belongs to the first byte in memory
/// (`gap02_byte_order_of_the_check_mask` measures it). The man page numbers the bytes of a CRC from bit 7
/// downwards, but does not say where they are in memory.
const fn mask_is_known(kind: Signature) -> bool {
    matches!(kind, Signature::T10Dif(_) | Signature::Crc32(_))
}

/// Moves `stream` through the mkey, from the domain `input` to the other one. Returns the bytes that arrive.
/// If there is a signature error, the mkey keeps it, and the caller can take it.
fn pass(
    fixture: &mut MkeyFixture<'_>,
    input: Input,
    stream: &[u8],
    output_length: usize,
) -> Result<Vec<u8>, String> {
    match input {
        Input::Memory => {
            fixture.write(stream);
            fixture.pair.tx(Tx::Write, fixture.mkey, 0, output_length)?.ok()
        }
        Input::Wire => {
            fixture.pair.rx(Rx::PeerWrite, fixture.mkey, 0, stream)?.ok()?;
            Ok(fixture.pair.board.read(fixture.memory.address, output_length))
        }
    }
}

/// Moves `stream` through the mkey, from the domain `input` to the other one. Returns whether the device has
/// reported a signature error.
fn noticed(
    fixture: &mut MkeyFixture<'_>,
    input: Input,
    stream: &[u8],
    output_length: usize,
) -> Result<bool, String> {
    pass(fixture, input, stream, output_length)?;
    Ok(fixture.error()?.is_some())
}

/// Checks `arrange`, a placement of signatures in the two domains, with every kind of signature and block
/// size: several blocks move out of the mkey and into it, by each kind of request.
fn arrangement(board: &mut dyn Board, arrange: fn(Domain) -> BlockSignature) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    for block_size in BlockSize::ALL {
        let blocks = if block_size.bytes() > 1000 { 2 } else { 3 };
        let data = pattern(blocks * block_size.bytes() as usize, blocks as u8);
        for signature in KINDS {
            let block = arrange(Domain { signature, block_size });
            let images = fixture.install_images(&data, Some(&block), None)?;
            fixture.both_ways(&images).within(format_args!("{signature:?}, {block_size:?}"))?;
        }
    }
    Ok(())
}

/// With a signature on the wire only, the device inserts it when sending, and checks and strips it when
/// receiving.
fn r072_on_the_wire_alone(board: &mut dyn Board) -> Verdict {
    arrangement(board, BlockSignature::wire)
}

/// With a signature in memory only, the device checks and strips it when sending, and inserts it when
/// receiving.
fn r073_in_memory_alone(board: &mut dyn Board) -> Verdict {
    arrangement(board, BlockSignature::memory)
}

/// An interleaved layout joins data and protection information from two regions. The device strips the
/// protection information, or transfers it to the wire.
fn r073_protection_information_in_its_own_memory(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let own = dif_domain(DIF, BlockSize::B512);
    let data = pattern(4 * 512, 1);
    let stream = expected::sign(&data, Some(&own));
    let fields: Vec<u8> = stream.chunks(520).flat_map(|block| part(block, 512..520)).copied().collect();
    let (first, second) = (fixture.pair.region(&data), fixture.pair.region(&fields));
    let entry = |region: &Region, bytes| InterleavedEntry {
        address: region.address,
        bytes,
        skip: 0,
        key: region.key,
    };
    let entries = [entry(&first, 512), entry(&second, 8)];
    for (block, wire) in [(BlockSignature::memory(own), &data), (BlockSignature::both(own, own), &stream)] {
        let (access, signature) = (Some(Access::ALL), SignatureChange::Set(block));
        let layout = Layout::Interleaved { repeat: 4, entries: &entries };
        fixture.change(&MkeyConfig { access, signature, ..MkeyConfig::UNCHANGED }, layout)?;
        fixture.out_each(0, wire)?;
        for way in Rx::ALL {
            fixture.pair.board.write(first.address, &[0; 4 * 512]);
            fixture.pair.board.write(second.address, &[0; 4 * 8]);
            fixture.take(way, 0, wire)?;
            same(&fixture.pair.bytes(&first), &data).within(format_args!("{way:?}, data"))?;
            same(&fixture.pair.bytes(&second), &fields).within(format_args!("{way:?}, fields"))?;
        }
        fixture.pair.board.write(second.address + 3 * 8 + 7, &[0]);
        let error = fixture.out_bad(Tx::Write, wire.len())?;
        reports(&error, SignatureErrorKind::RefTag, DomainKind::Memory, 3, 520)?;
        fixture.pair.board.write(second.address, &fields);
    }
    Ok(())
}

/// If both domains have the same signature, the device checks it and passes it on unchanged.
fn r074_alike_in_both_domains(board: &mut dyn Board) -> Verdict {
    arrangement(board, |domain| BlockSignature::both(domain, domain))
}

/// If the two domains have different kinds of signature, or different parameters, the device checks the
/// signature of the data that come in and computes the other one.
fn r075_converted(board: &mut dyn Board) -> Verdict {
    // The wire has a CRC32C for each other kind in memory, and a CRC64 for a CRC32C in memory.
    arrangement(board, |memory| {
        let signature = match memory.signature {
            Signature::Crc32c(_) => Signature::Crc64Xp10(Seed::Ones),
            _ => Signature::Crc32c(Seed::Ones),
        };
        BlockSignature::both(memory, Domain { signature, ..memory })
    })?;
    // Both domains have a T10-DIF, and all parameters of the two differ.
    arrangement(board, |wire| {
        let other = T10Dif { guard: Guard::Crc, app_tag: 1, ref_tag: 0xffff_fffe, ..DIF };
        match wire.signature {
            Signature::T10Dif(dif) => {
                let guard = if dif.guard == Guard::Crc { Guard::IpChecksum } else { Guard::Crc };
                BlockSignature::both(dif_domain(T10Dif { guard, ..other }, wire.block_size), wire)
            }
            _ => BlockSignature::both(dif_domain(other, wire.block_size), wire),
        }
    })?;
    // One domain has small blocks, the other one large blocks.
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(2 * 4096, 9);
    for (signature, output) in KINDS.into_iter().zip(KINDS.into_iter().cycle().skip(3)) {
        let small = Domain { signature, block_size: BlockSize::B512 };
        let large = Domain { signature: output, block_size: BlockSize::B4096 };
        for block in [BlockSignature::both(small, large), BlockSignature::both(large, small)] {
            let images = fixture.install_images(&data, Some(&block), None)?;
            fixture.both_ways(&images).within(format_args!("{block:?}"))?;
        }
    }
    Ok(())
}

/// The man page's example 1 works: CRC32 after each 512 bytes of memory, no signature on the wire.
fn r066_crc32_in_memory_example(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let block = BlockSignature::memory(domain(Signature::Crc32(Seed::Zeros)));
    let data = pattern(4 * 512, 1);
    let images = expected::images(&data, Some(&block), None);
    ensure_eq!(images.memory.len(), 4 * 516, "bytes in memory");
    fixture.install(&images.memory, Some(&block), None)?;
    fixture.both_ways(&images)?;
    fixture.write(&flipped(&images.memory, 2 * 516 + 513, 0x10));
    let error = fixture.out_bad(Tx::Send, data.len())?;
    reports(&error, SignatureErrorKind::Guard, DomainKind::Memory, 2, 516)
}

/// The man page's example 2 works: T10-DIF after each 4096 bytes on the wire, no signature in memory. The
/// peer reads from the mkey and writes into it.
fn r068_t10dif_on_the_wire_example(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let block = BlockSignature::wire(dif_domain(DIF, BlockSize::B4096));
    let data = pattern(3 * 4096, 1);
    let images = expected::images(&data, Some(&block), None);
    ensure_eq!(images.wire.len(), 3 * 4104, "bytes on the wire");
    fixture.install(&images.memory, Some(&block), None)?;
    fixture.out(Tx::PeerRead, 0, &images.wire)?;
    fixture.store(Rx::PeerWrite, &images.wire, &data)?;
    let error = fixture.take_bad(Rx::PeerWrite, &flipped(&images.wire, 4104 + 100, 1))?;
    reports(&error, SignatureErrorKind::Guard, DomainKind::Wire, 1, 4104)?;
    // The device stores the data despite the error. Only the mkey reports the error, not the transfer's
    // completion.
    fixture.holds(&flipped(&data, 4096 + 100, 1))
}

/// Each bit of the check mask selects one byte of the signature of incoming data: with a mask of one bit, the
/// device checks this byte only, and with a mask without the bit, it ignores the byte.
///
/// [`mask_is_known`] states an assumption about which byte belongs to a bit.
fn r077_every_bit_of_the_check_mask(board: &mut dyn Board) -> Verdict {
    let kinds = [
        t10(DIF),
        Signature::Crc32(Seed::Ones),
        Signature::Crc32c(Seed::Ones),
        Signature::Crc64Xp10(Seed::Ones),
    ];
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(1024, 1);
    for (kind, input) in kinds.into_iter().flat_map(|kind| Input::ALL.map(|input| (kind, input))) {
        let (own, length) = (domain(kind), kind.bytes() as usize);
        let stride = 512 + length;
        let stream = expected::sign(&data, Some(&own));
        fixture.install(&pattern(1040, 2), None, None)?;
        let converted = input.both(own, domain(t10(T10Dif { app_tag: 0, ref_tag: 1, ..DIF })));
        for (way, arrangement, output) in
            [("stripped", input.alone(own), 1024), ("converted", converted, 1040)]
        {
            let done = (0..length).try_for_each(|byte| {
                let what = format!("byte {byte}");
                let bit = 0x80u8 >> byte;
                let bad = flipped(&stream, stride + 512 + byte, 0x04);
                let rest: Vec<u8> = (0..length).map(|at| if at == byte { 0 } else { 0x21 }).collect();
                let field = part(&stream, stride + 512..stride + 512 + length);
                let others: Vec<u8> = field.iter().zip(rest).map(|(byte, bits)| byte ^ bits).collect();
                let bad_others = replaced(&stream, stride + 512, &others);

                fixture.set_signature(&arrangement.with_check_mask(bit))?;
                ensure!(
                    !noticed(&mut fixture, input, &bad_others, output)?,
                    "{what} checked alone: other bytes count"
                );
                pass(&mut fixture, input, &bad, output)?;
                let error = fixture.error()?.ok_or_else(|| format!("{what} checked alone goes unnoticed"))?;
                let part = match (kind, byte) {
                    (Signature::T10Dif(_), 2 | 3) => SignatureErrorKind::AppTag,
                    (Signature::T10Dif(_), 4..) => SignatureErrorKind::RefTag,
                    _ => SignatureErrorKind::Guard,
                };
                reports(&error, part, input.domain(), 1, stride as u32).within(&what)?;
                fixture.set_signature(&arrangement.with_check_mask(!bit))?;
                ensure!(!noticed(&mut fixture, input, &bad, output)?, "{what} unchecked, and reported");
                Ok(())
            });
            fixture.right(
                mask_is_known(kind),
                format_args!("check mask of {kind:?}, input {input:?}, {way}"),
                done,
            )?;
        }
    }
    Ok(())
}

/// The device ignores mask bits beyond the end of a signature.
fn r078_irrelevant_bits_of_masks(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let own = domain(Signature::Crc32(Seed::Zeros));
    let stream = expected::sign(&pattern(512, 1), Some(&own));
    let bad = flipped(&stream, 514, 1);
    fixture.install(&stream, None, None)?;
    for input in Input::ALL {
        for (mask, counts) in
            [(0xf0, true), (0xff, true), (0x20, true), (0x2f, true), (0x0f, false), (0xdf, false)]
        {
            fixture.set_signature(&input.alone(own).with_check_mask(mask))?;
            ensure!(!noticed(&mut fixture, input, &stream, 512)?, "a good signature is reported");
            ensure_eq!(
                noticed(&mut fixture, input, &bad, 512)?,
                counts,
                "{input:?}, mask {mask:#04x}: reported"
            );
        }
        for mask in [0xf0, 0xff] {
            let block = input.both(own, own).with_check_mask(0).with_copy_mask(mask);
            fixture.set_signature(&block.map_err(text)?)?;
            same(&pass(&mut fixture, input, &bad, 516)?, &bad)
                .within(format_args!("{input:?}, copy mask {mask:#04x}"))?;
        }
    }
    Ok(())
}

/// A check mask can check one byte of the application tag alone. The application can then use the other byte
/// as it likes.
fn r081_one_byte_of_the_app_tag(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let own = dif_domain(DIF, BlockSize::B512);
    let stream = expected::sign(&pattern(512, 1), Some(&own));
    fixture.install(&stream, None, None)?;
    for input in Input::ALL {
        for (mask, checked, free) in [(0xef, 2, 3), (0xdf, 3, 2)] {
            fixture.set_signature(&input.alone(own).with_check_mask(mask))?;
            let what = format!("{input:?}, mask {mask:#04x}");
            ensure!(
                !noticed(&mut fixture, input, &flipped(&stream, 512 + free, 0xff), 512)?,
                "{what}: free byte"
            );
            ensure!(
                noticed(&mut fixture, input, &flipped(&stream, 512 + checked, 1), 512)?,
                "{what}: checked byte"
            );
        }
    }
    Ok(())
}

/// If both domains have a CRC of the same type and block size, the device copies the CRC of the input to the
/// output, even if the seeds differ.
fn r084_a_crc_is_copied_whole(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(1024, 1);
    for kind in [Signature::Crc32, Signature::Crc32c, Signature::Crc64Xp10] {
        let (zeros, ones) = (domain(kind(Seed::Zeros)), domain(kind(Seed::Ones)));
        let stream = expected::sign(&data, Some(&zeros));
        fixture.install(&stream, None, None)?;
        for input in Input::ALL {
            fixture.set_signature(&input.both(zeros, ones))?;
            same(&pass(&mut fixture, input, &stream, stream.len())?, &stream)
                .within(format_args!("{:?}, {input:?}", zeros.signature))?;
            fixture.no_error(input)?;
        }
    }
    Ok(())
}

/// Guard, application tag and reference tag are each copied if their parameters are equal in both domains, so
/// a corrupted field arrives corrupted. If the parameters differ, the device computes the field for the
/// output.
fn r085_parts_that_agree_are_copied(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(512, 1);
    let own = dif_domain(DIF, BlockSize::B512);
    let odd = replaced(&expected::sign(&data, Some(&own)), 512, &[1, 2, 3, 4, 5, 6, 7, 8]);
    fixture.install(&odd, None, None)?;
    for same_parts in 0..8u8 {
        let on = |bit: u8| same_parts >> bit & 1 != 0;
        let other = dif_domain(
            T10Dif {
                seed: if on(0) { DIF.seed } else { Seed::Zeros },
                app_tag: if on(1) { DIF.app_tag } else { 0x1234 },
                ref_tag: if on(2) { DIF.ref_tag } else { 0x0a0b_0c0d },
                ..DIF
            },
            BlockSize::B512,
        );
        let computed = expected::sign(&data, Some(&other));
        let choose = |part_is_same: bool, at: core::ops::Range<usize>| {
            part(if part_is_same { &odd } else { &computed }, at).to_vec()
        };
        let field = [choose(on(0), 512..514), choose(on(1), 514..516), choose(on(2), 516..520)].concat();
        for input in Input::ALL {
            fixture.set_signature(&input.both(own, other).with_check_mask(0))?;
            same(&pass(&mut fixture, input, &odd, 520)?, &[&data[..], &field].concat())
                .within(format_args!("same parts {same_parts:#05b}, {input:?}"))?;
        }
    }
    Ok(())
}

/// Each bit of a copy mask makes the device copy one byte of the signature to the output. The device computes
/// all other bytes.
///
/// [`mask_is_known`] states an assumption about which byte belongs to a bit.
fn r086_every_bit_of_the_copy_mask(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = pattern(1024, 1);
    let pairs = [
        (t10(DIF), t10(T10Dif { app_tag: 0x1234, ref_tag: 9, seed: Seed::Zeros, ..DIF })),
        (Signature::Crc32(Seed::Zeros), Signature::Crc32(Seed::Ones)),
        (Signature::Crc32c(Seed::Zeros), Signature::Crc32c(Seed::Ones)),
        (Signature::Crc64Xp10(Seed::Zeros), Signature::Crc64Xp10(Seed::Ones)),
    ];
    for (from, to) in pairs {
        let length = from.bytes() as usize;
        let (stride, computed) = (512 + length, expected::sign(&data, Some(&domain(to))));
        let mut odd = computed.clone();
        for (at, byte) in odd.iter_mut().enumerate() {
            if at % stride >= 512 {
                *byte ^= 0x5a;
            }
        }
        fixture.install(&odd, None, None)?;
        for mask in (0..length).map(|byte| 0x80u8 >> byte).chain([0, 0xff, 0xa5]) {
            let mixed: Vec<u8> = (odd.iter().zip(&computed).enumerate())
                .map(|(at, (copied, own))| {
                    let byte = (at % stride).saturating_sub(512);
                    if mask & 0x80 >> byte != 0 { *copied } else { *own }
                })
                .collect();
            let known = mask_is_known(from) || matches!(mask, 0 | 0xff);
            for input in Input::ALL {
                let block = input.both(domain(from), domain(to)).with_check_mask(0).with_copy_mask(mask);
                fixture.set_signature(&block.map_err(text)?)?;
                let done = same(&pass(&mut fixture, input, &odd, odd.len())?, &mixed);
                fixture.right(known, format_args!("{from:?}, copy mask {mask:#04x}, {input:?}"), done)?;
            }
        }
    }
    Ok(())
}

/// Repeats a test that another project runs on hardware: with the copy mask, one byte of the application tag
/// comes from the incoming data, the other from the configuration of the output domain.
fn r087_app_tag_5678_from_two_domains(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let data = [0xa5; 512];
    let from = dif_domain(T10Dif { app_tag: 0x5600, ..DIF }, BlockSize::B512);
    let to = dif_domain(T10Dif { app_tag: 0x0078, ..DIF }, BlockSize::B512);
    let stream = expected::sign(&data, Some(&from));
    fixture.install(&stream, None, None)?;
    let mask = check_mask::T10DIF_GUARD | check_mask::T10DIF_REF_TAG | 0x20;
    for input in Input::ALL {
        let block = input.both(from, to).with_copy_mask(mask).map_err(text)?;
        fixture.set_signature(&block)?;
        let field = [0xec, 0x7d, 0x56, 0x78, 0xf0, 0xde, 0xbc, 0x9a];
        same(&pass(&mut fixture, input, &stream, 520)?, &[&data[..], &field].concat())
            .within(format_args!("{input:?}"))?;
        fixture.no_error(input)?;
    }
    Ok(())
}

/// The use of masks that the man page describes: the owner does not know some bytes of the signature in
/// advance. The device does not check these bytes, and passes them on unchanged.
fn r092_unknown_bytes_pass_and_arrive(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let own = dif_domain(DIF, BlockSize::B512);
    let stream = expected::sign(&pattern(1024, 1), Some(&own));
    let unknown = replaced(&replaced(&stream, 514, &[0xde, 0xad]), 520 + 514, &[0xbe, 0xef]);
    fixture.install(&stream, None, None)?;
    for input in Input::ALL {
        let checked = !check_mask::T10DIF_APP_TAG;
        let block = input.both(own, own).with_check_mask(checked).with_copy_mask(check_mask::T10DIF_APP_TAG);
        fixture.set_signature(&block.map_err(text)?)?;
        same(&pass(&mut fixture, input, &unknown, 1040)?, &unknown).within(format_args!("{input:?}"))?;
        fixture.no_error(input)?;
        ensure!(noticed(&mut fixture, input, &flipped(&unknown, 512, 1), 1040)?, "{input:?}: a wrong guard");
    }
    Ok(())
}

/// The CRC of each block begins with the seed, so equal blocks have equal CRCs.
fn r103_the_seed_begins_each_block_anew(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    for seed in [Seed::Zeros, Seed::Ones] {
        for kind in [Signature::Crc32, Signature::Crc32c, Signature::Crc64Xp10] {
            let block = BlockSignature::wire(domain(kind(seed)));
            fixture.install(&[0x3c; 4 * 512], Some(&block), None)?;
            let stride = 512 + kind(seed).bytes() as usize;
            let wire = fixture.pair.tx(Tx::Send, fixture.mkey, 0, 4 * stride)?.ok()?;
            let mut blocks = wire.chunks(stride);
            let first = blocks.next().unwrap_or(&[]);
            ensure!(blocks.all(|block| block == first), "{:?}: blocks differ", kind(seed));
        }
    }
    Ok(())
}

/// The signatures of 512 bytes of A5 have the values that hardware tests of other projects expect and that
/// published algorithms give (DEVICE.md, "Golden values").
///
/// The hardware tests label their CRC values with a seed of all ones, but the values belong to seed 0. The
/// reason: when the tests were written, libmlx5 inverted the seed of every CRC (a later commit, which
/// corrected this, says so).
fn r105_golden_values(board: &mut dyn Board) -> Verdict {
    const A5: [u8; 512] = [0xa5; 512];
    let dif = T10Dif { app_tag: 0x5678, ref_tag: 0xf0de_bc9a, ..DIF };
    let golden: [(Signature, &[u8]); 9] = [
        (Signature::Crc32(Seed::Zeros), &[0x69, 0x9a, 0xca, 0x21]),
        (Signature::Crc32(Seed::Ones), &[0x88, 0xcb, 0x60, 0x93]),
        (Signature::Crc32c(Seed::Zeros), &[0x42, 0x07, 0xe6, 0xb4]),
        (Signature::Crc32c(Seed::Ones), &[0x7d, 0x15, 0xe5, 0x7b]),
        (Signature::Crc64Xp10(Seed::Zeros), &[0x8c, 0x8a, 0xdb, 0x45, 0x0c, 0xce, 0x85, 0xaa]),
        (Signature::Crc64Xp10(Seed::Ones), &[0x9a, 0xf7, 0x83, 0xd2, 0xdb, 0x3f, 0x9c, 0x48]),
        (t10(T10Dif { seed: Seed::Zeros, ..dif }), &[0x9e, 0xc6, 0x56, 0x78, 0xf0, 0xde, 0xbc, 0x9a]),
        (t10(T10Dif { seed: Seed::Ones, ..dif }), &[0xec, 0x7d, 0x56, 0x78, 0xf0, 0xde, 0xbc, 0x9a]),
        (
            t10(T10Dif { guard: Guard::IpChecksum, seed: Seed::Zeros, ..dif }),
            &[0x5a, 0x5a, 0x56, 0x78, 0xf0, 0xde, 0xbc, 0x9a],
        ),
    ];
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    for (kind, field) in golden {
        let signed = [&A5[..], field].concat();
        fixture.install(&A5, Some(&BlockSignature::wire(domain(kind))), None)?;
        fixture.out_each(0, &signed).within(format_args!("{kind:?} on the wire"))?;
        fixture.install(&[&[0; 512], field].concat(), Some(&BlockSignature::memory(domain(kind))), None)?;
        fixture.store_each(&A5, &signed).within(format_args!("{kind:?} in memory"))?;
    }
    Ok(())
}

/// The reference tag of block n is the first tag plus n, modulo 2^32. Without `ref_remap` each block has the
/// first tag.
fn r108_reference_tags(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    for (ref_tag, ref_remap, expected) in [
        (5, true, [5u32, 6, 7, 8]),
        (5, false, [5; 4]),
        (0xffff_fffe, true, [0xffff_fffe, 0xffff_ffff, 0, 1]),
        (0xffff_ffff, false, [0xffff_ffff; 4]),
    ] {
        let own = dif_domain(T10Dif { ref_tag, ref_remap, ..DIF }, BlockSize::B512);
        fixture.install(&[0; 2048], Some(&BlockSignature::wire(own)), None)?;
        let wire = fixture.pair.tx(Tx::Send, fixture.mkey, 0, 4 * 520)?.ok()?;
        let tags: Vec<u32> = wire
            .chunks(520)
            .filter_map(|block| block.last_chunk::<4>())
            .map(|tag| u32::from_be_bytes(*tag))
            .collect();
        ensure_eq!(tags, expected, "first tag {ref_tag:#x}, remap {ref_remap}");
        fixture.store_each(&wire, &[0; 2048])?;
        fixture.install(&wire, Some(&BlockSignature::memory(own)), None)?;
        fixture.out(Tx::Write, 0, &[0; 2048])?;
    }
    Ok(())
}

/// A wrong guard, a wrong application tag and a wrong reference tag are each reported as an error of their
/// own kind. Of several errors in a block, the device reports the guard first, then the application tag.
fn r111_wrong_tags_are_told_apart(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let own = dif_domain(DIF, BlockSize::B512);
    let stream = expected::sign(&pattern(3 * 512, 1), Some(&own));
    fixture.install(&stream, None, None)?;
    let last = 2 * 520 + 512;
    let guard = part(&stream, last..last + 2).iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    use SignatureErrorKind as Kind;
    for (field, kind, found, computed) in [
        (None, Kind::Guard, guard ^ 0xffff, guard),
        (Some((2, &[0xab, 0xcd][..])), Kind::AppTag, 0xabcd, 0x5678),
        (Some((4, &[9, 8, 7, 6])), Kind::RefTag, 0x0908_0706, 0xf0de_bc9c),
        (Some((2, &[1, 2, 3, 4, 5, 6])), Kind::AppTag, 0x0102, 0x5678),
    ] {
        for input in Input::ALL {
            fixture.set_signature(&input.alone(own))?;
            let bad = match field {
                Some((at, bytes)) => replaced(&stream, last + at, bytes),
                // Guard, application tag and reference tag are all wrong.
                None => (0..8).fold(stream.clone(), |stream, at| flipped(&stream, last + at, 0xff)),
            };
            pass(&mut fixture, input, &bad, 3 * 512)?;
            let error = fixture.error()?.ok_or_else(|| format!("{kind:?}, {input:?}: not reported"))?;
            reports(&error, kind, input.domain(), 2, 520).within(format_args!("{kind:?}"))?;
            ensure_eq!((error.found, error.computed), (found, computed), "{kind:?}: found and computed");
        }
    }
    Ok(())
}

/// Moves two blocks, of which the second has a wrong guard and each of `tags` in turn. Checks that the device
/// reports the second block unless the flag beside the tags says that `escape` exempts it from checks.
fn escaped(board: &mut dyn Board, escape: Escape, tags: &[([u8; 6], bool)]) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let own = dif_domain(T10Dif { escape, ..DIF }, BlockSize::B512);
    let stream = expected::sign(&pattern(1024, 1), Some(&own));
    fixture.install(&stream, None, None)?;
    for (tags, passes) in tags {
        let bad = replaced(&flipped(&stream, 520 + 512, 0xff), 520 + 514, tags);
        for input in Input::ALL {
            fixture.set_signature(&input.alone(own))?;
            let reported = noticed(&mut fixture, input, &bad, 1024)?;
            ensure_eq!(reported, !passes, "{escape:?}, tags {tags:02x?}, {input:?}: reported");
            // The first block has ordinary tags, so the device must report an error in it in any case.
            fixture.set_signature(&input.alone(own))?;
            let first = noticed(&mut fixture, input, &flipped(&bad, 7, 1), 1024)?;
            ensure!(first, "{escape:?}, {input:?}: the other block goes unnoticed");
        }
    }
    Ok(())
}

const APP: [u8; 6] = [0xff, 0xff, 1, 2, 3, 4];
const APP_AND_REF: [u8; 6] = [0xff; 6];
const REF: [u8; 6] = [0xff, 0xfe, 0xff, 0xff, 0xff, 0xff];

/// With the escape `Escape::AppTag`, an application tag of FFFF disables all checks of its block, also of
/// guard and reference tag.
fn r115_app_tag_escape(board: &mut dyn Board) -> Verdict {
    escaped(board, Escape::Never, &[(APP, false), (APP_AND_REF, false), (REF, false)])?;
    escaped(board, Escape::AppTag, &[(APP, true), (APP_AND_REF, true), (REF, false)])
}

/// With the escape `Escape::AppAndRefTag`, a block is exempt from checks if both its tags are all ones, and
/// only then.
fn r116_app_and_reference_tag_escape(board: &mut dyn Board) -> Verdict {
    escaped(board, Escape::AppAndRefTag, &[(APP, false), (APP_AND_REF, true), (REF, false)])
}

/// For wrong data among 512 bytes of A5, the device reports the values that hardware tests of other projects
/// expect: found value, computed value, and offset of the failing block's last byte.
fn r182_found_and_computed_as_hardware_says(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::new(board, SIGNATURE);
    let t10_ones = domain(t10(DIF));
    let crc32 = domain(Signature::Crc32(Seed::Zeros));
    for (own, at, to, found, computed, offset) in [
        // The first byte of the data is 5A, so that the CRC differs.
        (t10_ones, 0, 0x5a, 0xec7d, 0x9916, 519),
        (crc32, 0, 0x5a, 0x699a_ca21, 0xe33c_b35a, 515),
        // The first byte of the signature is inverted.
        (crc32, 512, 0x96, 0x969a_ca21, 0x699a_ca21, 515),
    ] {
        let stream = replaced(&expected::sign(&[0xa5; 512], Some(&own)), at, &[to]);
        fixture.install(&stream, None, None)?;
        for input in Input::ALL {
            fixture.set_signature(&input.alone(own))?;
            pass(&mut fixture, input, &stream, 512)?;
            let error = fixture.error()?.ok_or_else(|| format!("{own:?}, {input:?}: not reported"))?;
            ensure_eq!((error.found, error.computed), (found, computed), "{own:?}: found and computed");
            ensure_eq!(error.offset, offset, "{own:?}: offset");
            ensure_eq!(error.kind, SignatureErrorKind::Guard, "{own:?}: kind");
        }
    }
    // The device reports the same values if data and protection information are in two regions.
    let (data, field) = (
        fixture.pair.region(&[0xa5; 512]),
        fixture.pair.region(&[0xec, 0x7d, 0x56, 0x78, 0xf0, 0xde, 0xbc, 0x9a]),
    );
    let entries = [entry(&data, 0..512), entry(&field, 0..8)];
    fixture.change(&MkeyConfig::UNCHANGED, &entries)?;
    fixture.set_signature(&BlockSignature::memory(t10_ones))?;
    fixture.out(Tx::Send, 0, &[0xa5; 512])?;
    fixture.pair.board.write(data.address, &[0x5a]);
    let error = fixture.out_bad(Tx::Send, 512)?;
    ensure_eq!((error.found, error.computed, error.offset), (0xec7d, 0x9916, 519), "two regions");
    Ok(())
}
