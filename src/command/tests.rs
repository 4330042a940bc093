//! Requests and replies, byte for byte.
//!
//! Words were written by a C program with rdma-core's own macros (`DEVX_SET` of `mlx5dv.h` over its `mlx5_ifc.h`), which
//! fills mailboxes as `verbs.c` and `dr_devx.c` do. Fields are placed by bit positions, see [`super::bits`]; those that
//! rdma-core's header lacks follow the kernel's and DPDK's.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

extern crate std;

use super::bits::{Field, Word, assert_encodes, from_fields, from_words};
use super::*;
use crate::error::{CommandError, QueueError};
use crate::mkey::{Access, Keytag, Mkey, SignatureCapabilities, XtsEngine};
use crate::types::{Cqn, DekId, Key, MkeyIndex, OutOfRange, PsvIndex, Qpn};
use crate::wire::prm::encryption_key::{CreateKeyRequest, EncryptionKey};
use crate::wire::prm::mkey::{CreateMkeyRequest, MkcFlags, MkcPd};
use crate::wire::prm::object::ObjectType;
use crate::wire::prm::qp::CreateQpRequest;
use crate::wire::prm::qp_context::{QpcScatter, QpcSizes};
use proptest::prelude::*;
use std::format;
use std::string::ToString;
use std::vec;

fn pd() -> Pdn {
    Pdn::new(0xab_cdef).unwrap()
}

fn qp() -> Qpn {
    Qpn::new(0x12_3456).unwrap()
}

fn words<C: Command>(command: &C, words: &[Word]) {
    assert_encodes(command, &from_words(C::INPUT, words));
}

fn fields<C: Command>(command: &C, fields: &[Field]) {
    assert_encodes(command, &from_fields(C::INPUT, fields));
}

fn mkey(features: MkeyFeatures) -> CreateMkey {
    CreateMkey { pd: pd(), max_entries: EntryCount::new(17).unwrap(), features, tag: 0 }
}

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

#[test]
fn m57_psvs() {
    words(&CreatePsv::<2>::new(pd()), &[(0, 0x0600_0000), (8, 0x20ab_cdef)]);
    fields(&CreatePsv::<4>::new(pd()), &[(0, 16, 0x600), (0x40, 4, 4), (0x48, 24, 0xab_cdef)]);
    let reply = from_words(32, &[(0x10, 0x01_0203), (0x14, 0x04_0506), (0x18, 0x07_0809), (0x1c, 0x0a_0b0c)]);
    let psvs = CreatePsv::<4>::new(pd()).decode(&reply).unwrap();
    assert_eq!(psvs.map(PsvIndex::get), [0x01_0203, 0x04_0506, 0x07_0809, 0x0a_0b0c]);
    assert_eq!(CreatePsv::<1>::new(pd()).decode(&reply).unwrap(), [PsvIndex::new(0x01_0203).unwrap()]);
    words(&DestroyPsv(PsvIndex::new(0x12_3456).unwrap()), &[(0, 0x0601_0000), (8, 0x12_3456)]);
}

#[test]
fn m32_deks_in_all_eight_forms() {
    let bytes: [u8; 80] = core::array::from_fn(|index| index as u8 + 1);
    let part = |length: usize| &bytes[..length];
    let tag = |at: usize| Some(Keytag(bytes[at..at + 8].try_into().unwrap()));
    let forms = [
        (DekKey::Plain128 { key: part(32).try_into().unwrap(), keytag: None }, 32, 0, false, false),
        (DekKey::Plain128 { key: part(32).try_into().unwrap(), keytag: tag(32) }, 40, 0, true, false),
        (DekKey::Plain256 { key: part(64).try_into().unwrap(), keytag: None }, 64, 1, false, false),
        (DekKey::Plain256 { key: part(64).try_into().unwrap(), keytag: tag(64) }, 72, 1, true, false),
        (DekKey::Wrapped128(part(40).try_into().unwrap()), 40, 0, false, true),
        (DekKey::Wrapped128Tagged(part(48).try_into().unwrap()), 48, 0, true, true),
        (DekKey::Wrapped256(part(72).try_into().unwrap()), 72, 1, false, true),
        (DekKey::Wrapped256Tagged(part(80).try_into().unwrap()), 80, 1, true, true),
    ];
    for (key, length, size, tagged, wrapped) in forms {
        assert_eq!((key.has_keytag(), key.is_wrapped()), (tagged, wrapped));
        assert_eq!(key.bits(), if size == 0 { 128 } else { 256 });
        let command = CreateDek { pd: pd(), key, opaque: *b"opaque_8" };
        const OBJECT: usize = 0x80;
        let mut expected = vec![
            (0, 16, 0xa00),
            (0x30, 16, 0x0c),
            (OBJECT + 0x54, 4, size),
            (OBJECT + 0x58, 1, u64::from(tagged)),
            (OBJECT + 0x5c, 4, 3),
            (OBJECT + 0x68, 24, 0xab_cdef),
            (OBJECT + 0x180, 64, u64::from_be_bytes(*b"opaque_8")),
        ];
        expected.extend((0..length).map(|index| (OBJECT + 0x200 + 8 * index, 8, index as u64 + 1)));
        fields(&command, &expected);
        let printed = format!("{command:?}");
        assert!(printed.contains("(..)") && !printed.contains("1, 2, 3"), "{printed}");
    }
}

#[test]
fn deks_and_logins_are_those_of_rdma_core() {
    let key: [u8; 64] = core::array::from_fn(|index| index as u8 + 1);
    let keytag = Some(Keytag([0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48]));
    let command = CreateDek { pd: pd(), key: DekKey::Plain256 { key: &key, keytag }, opaque: *b"opaque_8" };
    let head = [
        (0, 0x0a00_0000),
        (0x4, 0x0c),
        (0x18, 0x183),
        (0x1c, 0xab_cdef),
        (0x40, 0x6f70_6171),
        (0x44, 0x7565_5f38),
    ];
    let mut golden = head.to_vec();
    golden.extend((0..18u32).map(|word| (0x50 + 4 * word as usize, 0x0102_0304 + word * 0x0404_0404)));
    words(&command, &golden);

    let credential: [u8; 48] = core::array::from_fn(|index| index as u8 + 0x80);
    let command = CreateLogin {
        credential_id: CredentialId::new(0xc0_ffee).unwrap(),
        import_kek_id: ImportKekId::new(0xfa_cade).unwrap(),
        credential: Credential::wrapped(&credential),
    };
    let mut golden = vec![(0, 0x0a00_0000), (0x4, 0x1f), (0x20, 0xc0_ffee), (0x24, 0xfa_cade)];
    golden.extend((0..12u32).map(|word| (0x50 + 4 * word as usize, 0x8081_8283 + word * 0x0404_0404)));
    words(&command, &golden);
    let printed = format!("{command:?}");
    assert!(printed.contains("Credential(..)") && !printed.contains("128"), "{printed}");

    let login = LoginObject::new(0x89ab_cdef);
    words(&QueryLogin(login), &[(0, 0x0a02_0000), (4, 0x1f), (8, 0x89ab_cdef)]);
    words(&DestroyLogin(login), &[(0, 0x0a03_0000), (4, 0x1f), (8, 0x89ab_cdef)]);
    let dek = DekObject::new(0x89ab_cdef);
    words(&QueryDek(dek), &[(0, 0x0a02_0000), (4, 0x0c), (8, 0x89ab_cdef)]);
    words(&DestroyDek(dek), &[(0, 0x0a03_0000), (4, 0x0c), (8, 0x89ab_cdef)]);
    assert_eq!(dek.dek_id(), DekId::new(0xab_cdef).unwrap());
}

#[test]
fn objects_reply() {
    let dek = CreateDek { pd: pd(), key: DekKey::Plain128 { key: &[0; 32], keytag: None }, opaque: [0; 8] };
    assert_eq!(dek.decode(&from_words(16, &[(8, 0x0100_0007)])).unwrap(), DekObject::new(0x0100_0007));
    let reply = from_words(272, &[(0x18, 0x0100_0000), (0x40, 0x6f70_6171), (0x44, 0x7565_5f38)]);
    let info = QueryDek(DekObject::new(1)).decode(&reply).unwrap();
    assert_eq!(info, DekInfo { state: DekState::ERROR, opaque: *b"opaque_8" });
    let query = QueryLogin(LoginObject::new(1));
    assert_eq!(query.decode(&from_words(272, &[(0x20, 0x0100_0000)])).unwrap(), LoginState::INVALID);
    assert_eq!(query.decode(&[0; 272]).unwrap(), LoginState::VALID);
    assert_eq!(
        query.decode(&from_words(272, &[(0x20, 0x0900_0000)])).unwrap().to_string(),
        "login state 0x9"
    );
}

#[test]
fn m26_m30_what_does_not_fit_cannot_be_written() {
    assert_eq!(
        CredentialId::new(0x0100_0000),
        Err(OutOfRange { what: "credential id", value: 0x0100_0000, min: 0, max: 0xff_ffff })
    );
    assert!(ImportKekId::new(0x0100_0000).is_err());
    assert!(Pdn::new(0x0100_0000).is_err() && Psn::new(0x0100_0000).is_err());
    let long = [0; 49];
    assert_eq!(
        Credential::new(&long),
        Err(OutOfRange { what: "credential length", value: 49, min: 0, max: 48 })
    );
    // A shorter one is followed by zeros.
    let short = CreateLogin {
        credential_id: CredentialId::default(),
        import_kek_id: ImportKekId::default(),
        credential: Credential::new(&[0xff; 4]).unwrap(),
    };
    words(&short, &[(0, 0x0a00_0000), (4, 0x1f), (0x50, 0xffff_ffff)]);
    assert!(AckTimeout::new(32).is_err() && Retries::new(8).is_err() && LogPageSize::new(11).is_err());
    assert_eq!(SendRingSize::new(100), Err(QueueError::Size { entries: 100, max: 32768 }));
    assert!(SendRingSize::new(65536).is_err() && SlotStride::new(8).is_err() && CqSize::new(0).is_err());
    assert_eq!((SlotStride::new(64).unwrap().get(), CqSize::new(256).unwrap().entries()), (64, 256));
}

#[test]
fn m66_a_key_that_was_encoded_leaves_nothing_in_the_mailbox() {
    let mut mailbox = [0xa5; CreateDek::INPUT + 4];
    let key = Secret::new([0x77; 32]);
    let command =
        CreateDek { pd: pd(), key: DekKey::Plain128 { key: key.expose(), keytag: None }, opaque: [0x66; 8] };
    let request = command.encode(&mut mailbox).unwrap();
    assert_eq!(request[0x50..0x70], [0x77; 32]);
    assert_eq!(format!("{request:?}"), "EncodedRequest(272 bytes with a secret)");
    let parsed: &CreateKeyRequest = FromBytes::ref_from_bytes(&request).unwrap();
    let printed = format!("{parsed:?}");
    assert!(printed.contains("KeyBytes(..)") && !printed.contains("119"), "{printed}");
    drop(request);
    assert_eq!(mailbox[..272], [0; 272]);
    assert_eq!(mailbox[272..], [0xa5; 4]);
    let mut copy = [0x77; 32];
    wipe(&mut copy);
    assert_eq!(copy, [0; 32]);
    const { assert!(size_of::<EncryptionKey>() == 256) };
}

#[test]
fn m56_completion_queues() {
    let command = CreateCq {
        size: CqSize::new(512).unwrap(),
        uar: UarPage::new(0x12_3456).unwrap(),
        event_queue: 0x9a,
        entries: UmemSlice { umem: UmemId(0x1357_9bdf), offset: 0x0102_0304_0506_0708 },
        doorbell: UmemSlice { umem: UmemId(0x89ab_cdef), offset: 0x1122_3344_5566_7788 },
        page_size: LogPageSize::P64K,
        ignore_overrun: true,
    };
    // The kernel's and DPDK's `cqc` and `create_cq_in`.
    const CQC: usize = 0x80;
    fields(
        &command,
        &[
            (0, 16, 0x400),
            (CQC + 0x06, 1, 1),                       // dbr_umem_valid
            (CQC + 0x08, 3, 0),                       // cqe_sz
            (CQC + 0x0e, 1, 1),                       // oi
            (CQC + 0x20, 32, 0x89ab_cdef),            // dbr_umem_id
            (CQC + 0x63, 5, 9),                       // log_cq_size
            (CQC + 0x68, 24, 0x12_3456),              // uar_page
            (CQC + 0xb8, 8, 0x9a),                    // c_eqn
            (CQC + 0xc3, 5, 4),                       // log_page_size
            (CQC + 0x1c0, 64, 0x1122_3344_5566_7788), // dbr_addr
            (0x280, 64, 0x0102_0304_0506_0708),       // cq_umem_offset
            (0x2c0, 32, 0x1357_9bdf),                 // cq_umem_id
            (0x2e0, 1, 1),                            // cq_umem_valid
        ],
    );
    assert_eq!(command.decode(&from_words(16, &[(8, 0x12_3456)])).unwrap(), Cqn::new(0x12_3456).unwrap());
    words(&DestroyCq(Cqn::new(0x12_3456).unwrap()), &[(0, 0x0401_0000), (8, 0x12_3456)]);
}

fn create_qp() -> CreateQp {
    CreateQp {
        pd: pd(),
        uar: UarPage::new(0x12_3456).unwrap(),
        send_cq: Cqn::new(0x11_1213).unwrap(),
        receive_cq: Cqn::new(0x21_2223).unwrap(),
        user_index: UserIndex::new(0x76_5432).unwrap(),
        send_ring: SendRingSize::new(512).unwrap(),
        receive_ring: Some(ReceiveRing {
            slots: SlotCount::new(128).unwrap(),
            stride: SlotStride::new(64).unwrap(),
        }),
        rings: UmemSlice { umem: UmemId(0x1357_9bdf), offset: 0x0102_0304_0506_0708 },
        doorbell: UmemSlice { umem: UmemId(0x89ab_cdef), offset: 0x1122_3344_5566_7788 },
        page_size: LogPageSize::P64K,
        timestamps: TimestampFormat::RealTime,
    }
}

#[test]
fn queue_pairs_are_created_as_with_rdma_core() {
    let command = create_qp();
    assert_eq!(command.receive_ring.unwrap().bytes(), 8192);
    let golden = [
        (0, 0x0500_0000),
        (0x18, 0x0000_1800),
        (0x1c, 0x00ab_cdef),
        (0x20, 0x003a_4880),
        (0x24, 0x0012_3456),
        (0x28, 0x0076_5432),
        (0x2c, 0x0400_0000),
        (0x94, 0x0011_1213),
        (0xb4, 0x0021_2223),
        (0xb8, 0x1122_3344),
        (0xbc, 0x5566_7788),
        (0xe8, 0x1000_0000),
        (0xfc, 0x89ab_cdef),
        (0x108, 0x1357_9bdf),
        (0x10c, 0x8000_0000),
    ];
    // The offset of the rings is DPDK's and the kernel's.
    let mut with_offset = golden.to_vec();
    with_offset.extend([(0x100, 0x0102_0304), (0x104, 0x0506_0708)]);
    words(&command, &with_offset);
    words(&CreateQp { rings: UmemSlice { offset: 0, ..command.rings }, ..command }, &golden);

    // Without receive queue: log_rq_size and log_rq_stride 0, rq_type 3.
    let mut without = golden;
    without[3].1 = 0x0000_4880;
    let mut without = without.to_vec();
    without.push((0xc4, 0x0300_0000));
    let command = CreateQp { receive_ring: None, rings: UmemSlice { offset: 0, ..command.rings }, ..command };
    words(&command, &without);
    assert_eq!(command.decode(&from_words(16, &[(8, 0x12_3456)])), Ok(qp()));
}

#[test]
fn m6_m43_data_never_goes_to_completion_entries() {
    let mut mailbox = [0xa5; CreateQp::INPUT];
    let request = create_qp().encode(&mut mailbox).unwrap();
    let parsed: &CreateQpRequest = FromBytes::ref_from_bytes(&request).unwrap();
    let scatter = QpcScatter::from_bits(parsed.qpc.scatter.get());
    assert_eq!((scatter.cs_req(), scatter.cs_res()), (0, 0));
    assert_eq!(request[0x18 + 0xc6..0x18 + 0xc8], [0, 0]);
    let sizes = QpcSizes::from_bits(parsed.qpc.sizes.get());
    assert_eq!((sizes.log_sq_size(), sizes.log_rq_size(), sizes.log_rq_stride()), (9, 7, 2));
}

#[test]
fn m55_from_reset_to_ready() {
    let init = InitQp { qp: qp(), port: 2, pkey_index: 0x1234, rights: QpRights::READ_WRITE };
    let golden = [
        (0, 0x0502_0000),
        (0x8, 0x0012_3456),
        (0x18, 0x0000_1800),
        (0x30, 0x0000_1234),
        (0x54, 0x0002_0000),
        (0xa8, 0x0000_c000),
    ];
    words(&init, &golden);

    let loopback = ReadyToReceive {
        qp: qp(),
        remote_qp: Qpn::new(0x65_4321).unwrap(),
        path: Path::Loopback,
        port: 2,
        mtu: PathMtu::B4096,
        log_max_message: LogMessage::new(30).unwrap(),
        first_psn: Psn::new(0x0a_0b0c).unwrap(),
        log_reads: LogReads::new(4).unwrap(),
        rnr_timer: RnrTimer::new(12).unwrap(),
    };
    let common = [
        (0, 0x0503_0000),
        (0x8, 0x0012_3456),
        (0x20, 0xbe00_0000),
        (0x2c, 0x0065_4321),
        (0xa8, 0x0080_0000),
        (0xac, 0x0c0a_0b0c),
    ];
    let with = |more: &[Word]| [&common[..], more].concat();
    words(&loopback, &with(&[(0x30, 0x8000_0000), (0x54, 0x0002_0000)]));
    let five = Priority::new(5).unwrap();
    let infiniband = Path::Infiniband(InfinibandPath { lid: 0xbeef, service_level: five });
    words(
        &ReadyToReceive { path: infiniband, ..loopback },
        &with(&[(0x34, 0x0000_beef), (0x54, 0x0502_0000)]),
    );
    let roce = Path::Roce(RocePath {
        source_gid_index: 3,
        gid: core::array::from_fn(|index| index as u8 + 0x10),
        mac: [0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5],
        udp_source_port: 49999,
        hop_limit: 64,
        traffic_class: 0x6a,
        flow_label: FlowLabel::new(0xa_bcde).unwrap(),
        priority: Priority::new(6).unwrap(),
    });
    words(
        &ReadyToReceive { path: roce, ..loopback },
        &with(&[
            (0x38, 0x0003_0040),
            (0x3c, 0x06aa_bcde),
            (0x40, 0x1011_1213),
            (0x44, 0x1415_1617),
            (0x48, 0x1819_1a1b),
            (0x4c, 0x1c1d_1e1f),
            (0x50, 0x001a_c34f),
            (0x54, 0x6002_a0a1),
            (0x58, 0xa2a3_a4a5),
        ]),
    );

    let send = ReadyToSend {
        qp: qp(),
        first_psn: Psn::new(0x0d_0e0f).unwrap(),
        log_reads: LogReads::new(3).unwrap(),
        ack_timeout: AckTimeout::new(14).unwrap(),
        retries: Retries::new(5).unwrap(),
        rnr_retries: Retries::new(6).unwrap(),
    };
    let golden =
        [(0, 0x0504_0000), (0x8, 0x0012_3456), (0x38, 0x7000_0000), (0x88, 0x0065_c000), (0x90, 0x000d_0e0f)];
    words(&send, &golden);
}

#[test]
fn m19_draining_is_asked_for_as_rdma_core_does() {
    let drain = Init2Init { qp: qp(), drain_signature_errors: Some(true), rights: None };
    let golden = [(0, 0x050e_0000), (0x8, 0x0012_3456), (0x10, 0x0000_0800), (0x1c, 0x0400_0000)];
    words(&drain, &golden);
    let stop = Init2Init { drain_signature_errors: Some(false), ..drain };
    words(&stop, &[(0, 0x050e_0000), (0x8, 0x0012_3456), (0x10, 0x0000_0800)]);
    let rights = Init2Init { drain_signature_errors: None, rights: Some(QpRights::READ_WRITE), ..drain };
    words(&rights, &[(0, 0x050e_0000), (0x8, 0x0012_3456), (0x10, 0xe), (0xa8, 0x0000_c000)]);
}

#[test]
fn m42_draining_is_refused_where_there_is_none() {
    let (none, drain) =
        (general(&[]), Init2Init { qp: qp(), drain_signature_errors: Some(true), rights: None });
    let missing = drain.check(&none).unwrap_err().to_string();
    assert_eq!(missing, "INIT2INIT_QP: the device has no draining on signature errors");
    let able = GeneralCapabilities { drain_signature_errors: true, ..none };
    assert_eq!(drain.check(&able), Ok(()));
    assert_eq!(Init2Init { drain_signature_errors: Some(false), ..drain }.check(&none), Ok(()));
    assert_eq!(Init2Init { drain_signature_errors: None, ..drain }.check(&none), Ok(()));
}

#[test]
fn m55_changes_among_the_sending_states() {
    let rights = QpRights { remote_atomic: true, ..Default::default() };
    let change = QpChange { rights: Some(rights), rnr_timer: Some(RnrTimer::new(9).unwrap()) };
    let body = [(0x8, 0x0012_3456), (0x10, 0x4e), (0xa8, 0x0001_2000), (0xac, 0x0900_0000)];
    let with = |opcode: u32| [&[(0, opcode << 16)], &body[..]].concat();
    words(&Rts2Rts { qp: qp(), change }, &with(0x505));
    words(&DrainedToSend { qp: qp(), change }, &with(0x50c));
    words(&FailedToSend { qp: qp(), change }, &with(0x506));
    let plain = DrainedToSend { qp: qp(), change: QpChange::default() };
    words(&plain, &[(0, 0x050c_0000), (0x8, 0x0012_3456)]);
    words(&QpToError(qp()), &[(0, 0x0507_0000), (0x8, 0x0012_3456)]);
    words(&QpToReset(qp()), &[(0, 0x050a_0000), (0x8, 0x0012_3456)]);
    words(&DestroyQp(qp()), &[(0, 0x0501_0000), (0x8, 0x0012_3456)]);
    words(&QueryQp(qp()), &[(0, 0x050b_0000), (0x8, 0x0012_3456)]);
}

#[test]
fn queue_pairs_are_queried() {
    let reply = from_words(
        272,
        &[
            (0x18, 0x5000_0000),
            (0x1c, 0x0400_0000),
            (0x20, 0x6000_0000),
            (0x28, 0x0076_5432),
            (0x2c, 0x0065_4321),
            (0x90, 0x000d_0e0f),
            (0xa8, 0x0000_8000),
            (0xac, 0x000a_0b0c),
            (0xcc, 0x1234_5678),
            (0xd0, 0x9abc_def0),
            (0xdc, 0x0000_0011),
        ],
    );
    let info = QueryQp(qp()).decode(&reply).unwrap();
    let expected = QpInfo {
        state: QpState::SQ_DRAINED,
        next_send_block: 0x1234,
        announced_send_block: 0x5678,
        receives_taken: 0x9abc_def0,
        remote_qp: Qpn::new(0x65_4321).unwrap(),
        next_send_psn: Psn::new(0x0d_0e0f).unwrap(),
        next_receive_psn: Psn::new(0x0a_0b0c).unwrap(),
        user_index: UserIndex::new(0x76_5432).unwrap(),
        drain_signature_errors: true,
        rights: QpRights { remote_read: true, ..Default::default() },
        mtu: 3,
        scatters_to_cqe: true,
    };
    assert_eq!(info, expected);
    assert_eq!(info.state.to_string(), "send queue drained");
    assert_eq!(QpState(9).to_string(), "queue pair state 0x9");
}

#[test]
fn protection_domains_and_uars() {
    words(&AllocPd, &[(0, 0x0800_0000)]);
    words(&AllocUar, &[(0, 0x0802_0000)]);
    let reply = from_words(16, &[(8, 0xffab_cdef)]);
    assert_eq!(AllocPd.decode(&reply).unwrap(), pd());
    assert_eq!(AllocUar.decode(&reply).unwrap().get(), 0xab_cdef);
    words(&DeallocPd(pd()), &[(0, 0x0801_0000), (8, 0xab_cdef)]);
    words(&DeallocUar(UarPage::new(5).unwrap()), &[(0, 0x0803_0000), (8, 5)]);
}

/// A reply to QUERY_HCA_CAP with many capabilities set.
const GENERAL: &[Word] = &[
    (0x14, 0x8000_1234),
    (0x1c, 0x0015_0000),
    (0x20, 0x000f_0011),
    (0x28, 0x0016_0018),
    (0x2c, 0x0099_0000),
    (0x30, 0x0440_0910),
    (0x38, 0x0085_0004),
    (0x44, 0x0000_0102),
    (0x48, 0x1e00_0000),
    (0x4c, 0x0000_8001),
    (0x50, 0x0021_0106),
    (0x54, 0x0000_0001),
    (0x58, 0x8000_0000),
    (0x5c, 0x8009_0000),
    (0x60, 0x0000_0400),
    (0x64, 0x0000_0200),
    (0x74, 0x0017_0000),
    (0x8c, 0x0000_2000),
    (0x94, 0x8000_1000),
    (0x9c, 0x0040_0000),
    (0xa0, 0x8000_0000),
    (0xb4, 0x0000_0002),
    (0xf8, 0x0080_0000),
];

fn general(words: &[Word]) -> GeneralCapabilities {
    QueryGeneralCapabilities.decode(&from_words(4112, words)).unwrap()
}

fn crypto(words: &[Word]) -> CryptoCapabilities {
    QueryCryptoCapabilities.decode(&from_words(4112, words)).unwrap()
}

#[test]
fn capabilities_are_asked_for() {
    // op_mod 1 and 0x35, as libmlx5 was seen to ask.
    words(&QueryGeneralCapabilities, &[(0, 0x0100_0000), (4, 0x01)]);
    words(&QueryCryptoCapabilities, &[(0, 0x0100_0000), (4, 0x35)]);
}

#[test]
fn m52_m54_general_capabilities() {
    let expected = GeneralCapabilities {
        log_max_qps: 17,
        log_max_qp_entries: 15,
        log_max_cqs: 24,
        log_max_cq_entries: 22,
        log_max_mkeys: 25,
        log_max_pds: 23,
        max_indirection: 4,
        log_max_mkey_bytes: 64,
        log_max_entries: 16,
        log_max_bsf_octowords: 9,
        log_max_message: 30,
        log_max_reads_out: 5,
        log_max_reads_in: 4,
        max_send_request_bytes: 1024,
        max_receive_request_bytes: 512,
        signature_handover: true,
        signature_error_domain: true,
        signature_error_cqe: false,
        drain_signature_errors: true,
        block_4048: true,
        crc32c: true,
        crc64_xp10: false,
        crypto: true,
        xts_single_block: false,
        xts_multi_block: true,
        object_types: 0x8000_1000,
        umr_indirect_mkey_disabled: false,
        umr_modify_atomic_disabled: false,
        umr_fence: 2,
        relaxed_ordering_write: true,
        null_mkey: false,
        atomic: true,
        reliable_connection: true,
        roce: true,
        loopback_without_roce: false,
        port_type: PortType::ETHERNET,
        ports: 2,
        cqe_version: 1,
        uar_4k: true,
        log_uar_page: 12,
        uars_per_page: 2,
        log_blue_flame: Some(9),
        log_max_copy: Some(21),
        vhca_id: 0x1234,
        has_second_page: true,
    };
    let caps = general(GENERAL);
    assert_eq!(caps, expected);
    assert_eq!(
        caps.signatures(),
        Some(SignatureCapabilities { block_4048: true, crc32c: true, crc64_xp10: false })
    );
    assert_eq!(caps.xts_engine(), Some(XtsEngine::MultiBlock));
    assert!(caps.can_create(ObjectType::DEK) && caps.can_create(ObjectType::CRYPTO_LOGIN));
    assert!(!caps.can_create(ObjectType(0x20)) && !caps.can_create(ObjectType(0xffff)));

    // What the first reply leaves out, one bit at a time.
    let none = general(&[]);
    assert_eq!((none.signatures(), none.xts_engine(), none.log_max_copy), (None, None, None));
    let single = GeneralCapabilities { xts_single_block: true, ..none };
    let one_bit = [
        ((0x50, 0x0000_2000), GeneralCapabilities { signature_error_cqe: true, ..none }),
        ((0x38, 0x0100_0000), GeneralCapabilities { crc64_xp10: true, ..none }),
        ((0x8c, 0x0000_4000), single),
        ((0x50, 0x0040_0000), GeneralCapabilities { umr_indirect_mkey_disabled: true, ..none }),
        ((0x50, 0x0080_0000), GeneralCapabilities { umr_modify_atomic_disabled: true, ..none }),
        ((0x30, 0x0000_0040), GeneralCapabilities { null_mkey: true, ..none }),
        ((0x58, 0x0080_0000), GeneralCapabilities { loopback_without_roce: true, ..none }),
    ];
    for (word, expected) in one_bit {
        assert_eq!(general(&[word]), expected, "{word:x?}");
    }
    assert_eq!(GeneralCapabilities { crypto: true, ..single }.xts_engine(), Some(XtsEngine::SingleBlock));
    let only_sho = GeneralCapabilities { signature_handover: true, ..none };
    assert_eq!(only_sho.signatures(), None, "rdma-core wants both bits");
}

#[test]
fn m53_crypto_capabilities() {
    let caps = crypto(&[(0x10, 0x8000_0014), (0x14, 0x0012_0305), (0x18, 0x8001_0709)]);
    let expected = CryptoCapabilities {
        wrapped_operational: true,
        going_to_commissioning: false,
        xts_keys_wrapped: true,
        import_methods: 0x14,
        log_max_deks: 18,
        log_max_import_keks: 3,
        log_max_credentials: 5,
        failed_selftests: 0x8001,
        permanent_import_keks: 7,
        permanent_credentials: 9,
    };
    assert_eq!(caps, expected);
    assert!(crypto(&[(0x10, 0x4000_0000)]).going_to_commissioning);
}

#[test]
fn a_report_explains_which_keys_are_taken() {
    let wrapped = crypto(&[(0x10, 0x8000_0004), (0x14, 0x0012_0000)]);
    let plain = crypto(&[(0x14, 0x0012_0000)]);
    let ready = general(GENERAL);
    let report = |general, crypto| CryptoReport { general, crypto };
    let say = |general, crypto| report(general, crypto).to_string();
    assert_eq!(
        say(ready, Some(plain)),
        "AES-XTS, any number of data units per mkey; keys are loaded in plaintext; up to 2^18 keys"
    );
    assert_eq!(
        say(GeneralCapabilities { xts_multi_block: false, xts_single_block: true, ..ready }, Some(wrapped)),
        "AES-XTS, one data unit per mkey; the device is commissioned: keys must be wrapped and need a login; \
         up to 2^18 keys"
    );
    assert_eq!(
        say(ready, Some(CryptoCapabilities { wrapped_operational: true, ..plain })),
        "AES-XTS, any number of data units per mkey; keys are loaded in plaintext; \
         it is commissioned, but not for AES-XTS keys; up to 2^18 keys"
    );
    let sick = CryptoCapabilities { going_to_commissioning: true, failed_selftests: 0x21, ..plain };
    assert_eq!(
        say(ready, Some(sick)),
        "AES-XTS, any number of data units per mkey; keys are loaded in plaintext; \
         it is being commissioned, reset it to finish; self-tests failed: 0x0021; up to 2^18 keys"
    );
    let not_yet = CryptoCapabilities { wrapped_operational: false, ..wrapped };
    let no_deks = GeneralCapabilities { object_types: 0, ..ready };
    let no_logins = GeneralCapabilities { object_types: 1 << 0x0c, ..ready };
    let no_engine = GeneralCapabilities { xts_multi_block: false, ..ready };
    let unavailable = [
        (report(general(&[]), None), "the device does not encipher"),
        (report(no_engine, Some(plain)), "the device has no AES-XTS engine"),
        (report(no_deks, Some(plain)), "keys cannot be loaded (no DEK objects)"),
        (report(ready, None), "the crypto capabilities were not asked for"),
        (report(ready, Some(not_yet)), "keys must be wrapped, but the device is not commissioned yet"),
        (report(no_logins, Some(wrapped)), "keys must be wrapped, but there are no logins to open them"),
    ];
    for (report, why) in unavailable {
        assert_eq!(report.key_import(), KeyImport::Unavailable(why));
        assert_eq!(report.to_string(), format!("no AES-XTS: {why}"));
    }

    // M35: the two forms exclude each other.
    let dek = |key| CreateDek { pd: pd(), key, opaque: [0; 8] };
    let plain_key = dek(DekKey::Plain128 { key: &[0; 32], keytag: None });
    let wrapped_key = dek(DekKey::Wrapped128(&[0; 40]));
    let (plain, wrapped) = (report(ready, Some(plain)), report(ready, Some(wrapped)));
    assert_eq!((plain_key.check(&plain), wrapped_key.check(&wrapped)), (Ok(()), Ok(())));
    assert_eq!(
        plain_key.check(&wrapped).unwrap_err().to_string(),
        "CREATE_GENERAL_OBJECT: the device has no plaintext keys: it is commissioned"
    );
    assert!(wrapped_key.check(&plain).is_err() && plain_key.check(&report(ready, None)).is_err());
    let login = CreateLogin {
        credential_id: CredentialId::default(),
        import_kek_id: ImportKekId::default(),
        credential: Credential::new(&[]).unwrap(),
    };
    assert!(login.check(&plain).is_err() && login.check(&wrapped).is_ok());
}

#[test]
fn m59_refusals_are_named() {
    let refuse = |bytes: &[u8]| AllocPd.decode(bytes).unwrap_err();
    let error = refuse(&[0x03, 0, 0, 0, 0, 0x35, 0xe6, 0xec]);
    let expected = CommandError::Status {
        command: Opcode::ALLOC_PD,
        status: Status::BAD_PARAMETER,
        syndrome: 0x35_e6ec,
    };
    assert_eq!(error, expected, "though the reply is short");
    assert_eq!(
        error.to_string(),
        "ALLOC_PD refused: bad parameter (BAD_PARAM_ERR, 0x03), syndrome 0x0035e6ec"
    );
    assert_eq!(
        refuse(&[0x77, 0, 0, 0, 0, 0, 0, 0]).to_string(),
        "ALLOC_PD refused: unknown status 0x77, syndrome 0x00000000"
    );
    assert_eq!(refuse(&[0; 15]).to_string(), "ALLOC_PD: a reply of 15 bytes, 16 were expected");
    assert_eq!(refuse(&[3; 7]).to_string(), "ALLOC_PD: a reply of 7 bytes, 8 were expected");
    assert_eq!(
        AllocPd.encode(&mut [0; 3]).unwrap_err().to_string(),
        "ALLOC_PD: a mailbox of 3 bytes, the request has 16"
    );
    assert_eq!(Opcode::TO_ERR_QP.to_string(), "2ERR_QP");
    assert_eq!(Opcode(0x999).to_string(), "command 0x999");
    // All statuses of rdma-core's enum.
    for status in [0, 1, 2, 3, 4, 5, 6, 8, 9, 0xa, 0xf, 0x10, 0x30, 0x40, 0x50, 0x51] {
        assert!(Status(status).name().is_some() && Status(status).description().is_some(), "{status:#x}");
    }
}

#[test]
fn what_is_encoded_can_be_parsed() {
    let mut mailbox = [0xa5; CreateMkey::INPUT];
    let features = MkeyFeatures { crypto: true, ..Default::default() };
    let request = mkey(features).encode(&mut mailbox).unwrap();
    let parsed: &CreateMkeyRequest = FromBytes::ref_from_bytes(&request).unwrap();
    let flags = MkcFlags::from_bits(parsed.mkc.flags.get());
    assert!(flags.free() && flags.umr_en() && flags.local_read() && !flags.local_write());
    assert_eq!(flags.access_mode_1_0(), MkcFlags::KLM);
    let pd = MkcPd::from_bits(parsed.mkc.pd.get());
    assert!(pd.bsf_en() && !pd.en_rinval() && !pd.expected_sigerr_count());
    assert_eq!(pd.pd(), 0xab_cdef);
}

/// Encodes into a mailbox of any length, and decodes any bytes: no panic, nothing outside.
fn survives<C: Command>(command: C, length: usize, reply: &[u8]) {
    let mut mailbox = vec![0xa5; length];
    let encoded = command.encode(&mut mailbox).map(|request| request.len());
    if length >= C::INPUT {
        assert_eq!(encoded, Ok(C::INPUT));
        assert!(mailbox[C::INPUT..].iter().all(|byte| *byte == 0xa5));
    } else {
        assert!(encoded.is_err());
        assert!(mailbox.iter().all(|byte| *byte == 0xa5));
    }
    let good = reply.len() >= C::OUTPUT && reply[0] == 0;
    assert_eq!(command.decode(reply).is_ok(), good);
}

fn all_survive(length: usize, reply: &[u8], number: u32) {
    let small = number & 0xff_ffff;
    let qp = Qpn::from_low_bits(number);
    let change = QpChange { rights: Some(QpRights::READ_WRITE), rnr_timer: Some(RnrTimer::MAX) };
    survives(QueryGeneralCapabilities, length, reply);
    survives(QueryCryptoCapabilities, length, reply);
    survives(AllocPd, length, reply);
    survives(AllocUar, length, reply);
    survives(DeallocPd(Pdn::new(small).unwrap()), length, reply);
    survives(mkey(MkeyFeatures::default()), length, reply);
    survives(CreatePsv::<1>::new(Pdn::new(small).unwrap()), length, reply);
    survives(CreatePsv::<4>::new(pd()), length, reply);
    survives(create_qp(), length, reply);
    survives(InitQp { qp, port: 1, pkey_index: 0, rights: QpRights::default() }, length, reply);
    survives(Init2Init { qp, drain_signature_errors: Some(true), rights: None }, length, reply);
    survives(Rts2Rts { qp, change }, length, reply);
    survives(DrainedToSend { qp, change }, length, reply);
    survives(QueryQp(qp), length, reply);
    survives(QpToError(qp), length, reply);
    survives(DestroyMkey(MkeyIndex::from_low_bits(number)), length, reply);
    let dek = CreateDek { pd: pd(), key: DekKey::Wrapped256Tagged(&[0x55; 80]), opaque: [1; 8] };
    survives(dek, length, reply);
    survives(QueryDek(DekObject::new(number)), length, reply);
    survives(DestroyDek(DekObject::new(number)), length, reply);
    let login = CreateLogin {
        credential_id: CredentialId::new(small).unwrap(),
        import_kek_id: ImportKekId::new(small).unwrap(),
        credential: Credential::wrapped(&[0x55; 48]),
    };
    survives(login, length, reply);
    survives(QueryLogin(LoginObject::new(number)), length, reply);
    let region = CreateMemoryRegion {
        pd: pd(),
        access: Access::NONE,
        address: u64::from(number) << 32 | u64::from(number),
        length: u64::from(number) << (number % 33),
        memory: UmemSlice { umem: UmemId(number), offset: u64::MAX },
        page_size: LogPageSize::new(12 + (number % 20) as u8).unwrap(),
        tag: number as u8,
    };
    survives(region, length, reply);
}

proptest! {
    #[test]
    fn any_reply_and_any_mailbox_are_survived(
        length in 0usize..600,
        mut reply in prop::collection::vec(any::<u8>(), 0..5000),
        good in any::<bool>(),
        number: u32,
    ) {
        if let (true, Some(status)) = (good, reply.first_mut()) {
            *status = 0;
        }
        all_survive(length, &reply, number);
    }

    #[test]
    fn replies_cut_at_any_length_are_survived(length in 0usize..4200, number: u32) {
        all_survive(length, &vec![0; length], number);
    }
}
