//! Size, copy masks and lengths of signatures.

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
}

#[test]
fn r90_a_copy_mask_needs_two_alike_domains() {
    let refused = Err(ConfigError::CopyMaskNeedsSameStructure);
    assert_eq!(BlockSignature::memory(CRC32).with_copy_mask(1), refused, "D22");
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
