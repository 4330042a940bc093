//! Tests of block signatures: size in memory, copy masks, and lengths of blocks.

use super::*;

#[test]
fn a_signature_is_two_octowords() {
    assert_eq!(size_of::<BlockSignature>(), 32);
}

const fn dif(app_tag: u16, ref_tag: u32) -> Domain {
    Domain {
        signature: Signature::T10Dif(T10Dif {
            guard: Guard::Crc,
            seed: Seed::Zeros,
            app_tag,
            ref_tag,
            ref_remap: true,
            escape: Escape::Never,
        }),
        block_size: BlockSize::B512,
    }
}

const CRC32: Domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
const CRC32C: Domain = Domain { signature: Signature::Crc32c(Seed::Ones), block_size: BlockSize::B512 };

#[test]
fn r85_parts_of_a_dif_are_copied_where_they_agree() {
    assert_eq!(BlockSignature::both(dif(1, 2), dif(1, 2)).effective_copy_mask(), Some(0xff));
    assert_eq!(BlockSignature::both(dif(1, 2), dif(9, 2)).effective_copy_mask(), Some(0xcf));
    assert_eq!(BlockSignature::both(dif(1, 2), dif(1, 9)).effective_copy_mask(), Some(0xf0));
    assert_eq!(BlockSignature::both(CRC32, CRC32).effective_copy_mask(), Some(0xf0));
    assert_eq!(BlockSignature::both(CRC32, CRC32C).effective_copy_mask(), None);
    let long = Domain { signature: Signature::Crc64Xp10(Seed::Ones), ..CRC32 };
    assert_eq!(BlockSignature::both(long, long).effective_copy_mask(), Some(0xff));
    let Signature::T10Dif(parts) = dif(1, 2).signature else { panic!("a T10-DIF") };
    let other = Signature::T10Dif(T10Dif { seed: Seed::Ones, ..parts });
    let other = Domain { signature: other, ..dif(1, 2) };
    assert_eq!(BlockSignature::both(dif(1, 2), other).effective_copy_mask(), Some(0x3f), "another guard");
}

#[test]
fn what_a_device_does_not_know_is_refused() {
    let none =
        SignatureCapabilities { block_4048: false, crc32c: false, crc64_xp10: false, digest_with_xts: false };
    let long = Domain { signature: Signature::Crc64Xp10(Seed::Ones), ..CRC32 };
    let odd = Domain { block_size: BlockSize::B4048, ..CRC32 };
    for (domain, error) in [
        (CRC32C, ConfigError::SignatureUnsupported),
        (long, ConfigError::SignatureUnsupported),
        (odd, ConfigError::BlockSizeUnsupported(BlockSize::B4048)),
    ] {
        for signature in [BlockSignature::memory(domain), BlockSignature::wire(domain)] {
            assert_eq!(none.check(&signature), Err(error));
            assert_eq!(SignatureCapabilities::ALL.check(&signature), Ok(()));
        }
    }
    assert_eq!(none.check(&BlockSignature::both(CRC32, dif(1, 2))), Ok(()));
    let unit = BlockSignature::memory(Domain { block_size: BlockSize::MIB1, ..CRC32 });
    let refused = Err(ConfigError::BlockSizeUnsupported(BlockSize::MIB1));
    assert_eq!(SignatureCapabilities::ALL.check(&unit), refused, "no block of a signature");
    let words = [none, SignatureCapabilities::ALL].map(|known| std::format!("{known}"));
    let all = "T10-DIF, CRC32, CRC32C, CRC64-XP10, blocks of 4048 bytes";
    assert_eq!(words, ["T10-DIF, CRC32", all]);
}

#[test]
fn r90_a_copy_mask_needs_two_alike_domains() {
    let refused = Err(ConfigError::CopyMaskNeedsSameStructure);
    assert_eq!(BlockSignature::memory(CRC32).with_copy_mask(1), refused, "there is no wire signature");
    assert_eq!(BlockSignature::wire(CRC32).with_copy_mask(1), refused);
    assert_eq!(BlockSignature::both(CRC32, CRC32C).with_copy_mask(1), refused);
    let bigger = Domain { block_size: BlockSize::B4096, ..CRC32 };
    assert_eq!(BlockSignature::both(CRC32, bigger).with_copy_mask(1), refused);
    let given = BlockSignature::both(CRC32, CRC32).with_copy_mask(0x21);
    assert_eq!(given.map(|signature| signature.effective_copy_mask()), Ok(Some(0x21)));
}

#[test]
fn d3_lengths_convert_between_domains() {
    let wire = BlockSignature::wire(dif(0, 0));
    assert_eq!(wire.wire_bytes(1024), Some(1040));
    assert_eq!(wire.memory_bytes(1040), Some(1024));
    assert_eq!(wire.memory_bytes(1024), None);
    let both = BlockSignature::both(CRC32, dif(0, 0));
    assert_eq!(both.wire_bytes(516), Some(520));
}
