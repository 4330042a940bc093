//! Mkeys and memory regions.

use super::capabilities::{GENERAL, general};
use super::*;
use crate::mkey::UmrForm;

#[test]
fn m1_mkeys_are_those_of_rdma_core_for_each_flag() {
    for flags in 0..8u32 {
        let [signature, crypto, invalidate] = [1, 2, 4].map(|flag| u32::from(flags & flag != 0));
        let features = MkeyFeatures {
            block_signature: signature != 0,
            crypto: crypto != 0,
            remote_invalidate: invalidate != 0,
            ..Default::default()
        };
        let bsf = u32::from(signature + crypto != 0);
        let golden = [
            (0, 0x0200_0000),
            (0x10, 0x4000_8600),
            (0x14, 0xffff_ff00),
            (0x1c, 0x00ab_cdef | bsf << 30 | invalidate << 24),
            (0x30, (signature + crypto) * 4),
            (0x44, 20),
            (0x4c, crypto << 27),
        ];
        words(&mkey(features), &golden);
        // The tag's update is the kernel's matter.
        words(&mkey(MkeyFeatures { update_tag: true, ..features }), &golden);
    }
}

#[test]
fn m1_all_creation_flags_by_bit_position() {
    for flags in 0..64u64 {
        let bit = |n: u32| flags >> n & 1;
        let command = CreateMkey {
            pd: pd(),
            max_entries: EntryCount::new(4).unwrap(),
            features: MkeyFeatures {
                block_signature: bit(0) != 0,
                crypto: bit(1) != 0,
                update_tag: bit(2) != 0,
                remote_invalidate: bit(3) != 0,
                relaxed_ordering_write: bit(4) != 0,
                relaxed_ordering_read: bit(5) != 0,
                access: if bit(5) == 0 { Access::NONE } else { Access::LOCAL_WRITE | Access::REMOTE_READ },
                form: UmrForm::Complete,
            },
            tag: 0x5a,
        };
        const MKC: usize = 0x80;
        fields(
            &command,
            &[
                (0, 16, 0x200),
                (MKC + 0x01, 1, 1),                       // free
                (MKC + 0x0d, 1, bit(4)),                  // relaxed_ordering_write
                (MKC + 0x10, 1, 1),                       // umr_en
                (MKC + 0x13, 1, bit(5)),                  // rr
                (MKC + 0x14, 1, bit(5)),                  // lw
                (MKC + 0x15, 1, 1),                       // lr
                (MKC + 0x16, 2, 2),                       // access_mode_1_0
                (MKC + 0x20, 24, 0xff_ffff),              // qpn
                (MKC + 0x38, 8, 0x5a),                    // mkey_7_0
                (MKC + 0x61, 1, bit(0) | bit(1)),         // bsf_en
                (MKC + 0x67, 1, bit(3)),                  // en_rinval
                (MKC + 0x68, 24, 0xab_cdef),              // pd
                (MKC + 0x100, 32, 4 * (bit(0) + bit(1))), // bsf_octword_size
                (MKC + 0x1a0, 32, 4),                     // translations_octword_size
                (MKC + 0x1d9, 1, bit(5)),                 // relaxed_ordering_read
                (MKC + 0x1e3, 2, bit(1)),                 // crypto_en
            ],
        );
    }
}

#[test]
fn m4_entries_are_rounded_up_to_four() {
    let rounded = [(0, 0), (1, 4), (4, 4), (5, 8), (65532, 65532)];
    for (asked, given) in rounded {
        assert_eq!(EntryCount::new(asked).unwrap().get(), given);
    }
    assert_eq!(
        EntryCount::new(65533),
        Err(OutOfRange { what: "mkey entries", value: 65533, min: 0, max: 65532 })
    );
}

#[test]
fn mkeys_come_back_as_keys_and_become_shadows() {
    let command = CreateMkey {
        tag: 0x5a,
        ..mkey(MkeyFeatures { block_signature: true, crypto: true, ..Default::default() })
    };
    let key = command.decode(&from_words(16, &[(8, 0xff12_3456)])).unwrap();
    assert_eq!(key, Key::from_raw(0x1234_565a));
    let device = general(GENERAL);
    let psvs = [PsvIndex::new(1).unwrap(), PsvIndex::new(2).unwrap()];
    let attributes = command.attributes(key, &device, psvs).unwrap();
    assert_eq!(attributes.crypto, Some(XtsEngine::MultiBlock));
    let signature = attributes.signature.unwrap();
    assert_eq!((signature.memory_psv, signature.wire_psv), (psvs[0], psvs[1]));
    assert!(signature.capabilities.crc32c && !signature.capabilities.crc64_xp10);
    assert!(!attributes.tag_update, "the kernel's to say");
    assert_eq!(Mkey::new(attributes).key(), key);

    let none = general(&[]);
    let missing = |features: MkeyFeatures| mkey(features).check(&none).unwrap_err().to_string();
    assert_eq!(
        missing(MkeyFeatures { block_signature: true, ..Default::default() }),
        "CREATE_MKEY: the device has no block signatures"
    );
    assert_eq!(
        missing(MkeyFeatures { crypto: true, ..Default::default() }),
        "CREATE_MKEY: the device has no AES-XTS"
    );
    assert!(mkey(MkeyFeatures { relaxed_ordering_write: true, ..Default::default() }).check(&none).is_err());
    assert_eq!(mkey(MkeyFeatures::default()).check(&none), Ok(()));
}

#[test]
fn memory_regions() {
    let command = CreateMemoryRegion {
        pd: pd(),
        access: Access::ALL,
        address: 0x1234_5678_9000,
        length: 0x4001,
        memory: UmemSlice { umem: UmemId(0x89ab_cdef), offset: 0x11_2233_4455 },
        page_size: LogPageSize::P4K,
        tag: 0x5a,
    };
    // rdma-core's macros, plus the number and offset of the user memory, which its header lacks.
    words(
        &command,
        &[
            (0, 0x0200_0000),
            (0xc, 0xc000_0000),
            (0x10, 0x0000_7d00),
            (0x14, 0xffff_ff5a),
            (0x1c, 0x00ab_cdef),
            (0x20, 0x0000_1234),
            (0x24, 0x5678_9000),
            (0x2c, 0x0000_4001),
            (0x44, 3),
            (0x48, 12),
            (0x60, 3),
            (0x64, 0x89ab_cdef),
            (0x68, 0x0000_0011),
            (0x6c, 0x2233_4455),
        ],
    );
    // One byte, across no page; two bytes across a page border; the access byte.
    let octowords = |address, length| {
        let mut mailbox = [0; CreateMemoryRegion::INPUT];
        let command = CreateMemoryRegion { address, length, access: Access::REMOTE_READ, ..command };
        let request = command.encode(&mut mailbox).unwrap();
        assert_eq!(request[0x12], 0x15, "remote and local read, translation by pages");
        u32::from_be_bytes(request[0x60..0x64].try_into().unwrap())
    };
    assert_eq!(octowords(0x1fff, 1), 1);
    assert_eq!(octowords(0x1fff, 2), 1, "two pages of 8 bytes each");
    assert_eq!(octowords(0x1fff, 0x1002), 2, "three pages");
    assert_eq!(octowords(u64::MAX, u64::MAX), u32::MAX);
    words(&DestroyMkey(MkeyIndex::new(0x12_3456).unwrap()), &[(0, 0x0202_0000), (8, 0x12_3456)]);
}
