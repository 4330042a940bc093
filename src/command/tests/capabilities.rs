//! Tests of the commands that ask for capabilities, and of decoding their replies.

use super::*;
use crate::mkey::RelaxedOrdering;

/// A reply to QUERY_HCA_CAP with many capabilities set, as offsets and words.
pub(super) const GENERAL: &[Word] = &[
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
    (0x84, 0x0000_0080),
    (0x8c, 0x0000_2000),
    (0x94, 0x8000_1000),
    (0x9c, 0x0040_0000),
    (0xa0, 0x8000_0000),
    (0xb4, 0x0000_0002),
    (0xf8, 0x0080_0000),
];

pub(super) fn general(words: &[Word]) -> GeneralCapabilities {
    QueryGeneralCapabilities.decode(&from_words(4112, words)).unwrap()
}

pub(super) fn crypto(words: &[Word]) -> CryptoCapabilities {
    QueryCryptoCapabilities.decode(&from_words(4112, words)).unwrap()
}

#[test]
fn capabilities_are_asked_for() {
    // The values of `op_mod`, 1 and 0x35, are those that libmlx5 sends (from recorded requests).
    words(&QueryGeneralCapabilities, &[(0, 0x0100_0000), (4, 0x01)]);
    words(&QueryCryptoCapabilities, &[(0, 0x0100_0000), (4, 0x35)]);
}

#[test]
fn orderings_that_configurations_can_change() {
    for (write, read) in [(false, false), (true, false), (false, true), (true, true)] {
        let device = GeneralCapabilities {
            relaxed_ordering_write_umr: write,
            relaxed_ordering_read_umr: read,
            ..general(&[])
        };
        let either = (write || read).then_some(RelaxedOrdering { write, read });
        assert_eq!(device.relaxed_ordering_umr(), either);
    }
}

#[test]
fn m52_m54_general_capabilities() {
    let expected = GeneralCapabilities {
        log_max_qps: 17,
        log_max_qp_entries: 15,
        log_max_cqs: 24,
        log_max_cq_entries: 22,
        cq_ignore_overrun: false,
        log_max_mkeys: 25,
        log_max_pds: 23,
        max_indirection: 4,
        log_max_mkey_bytes: 64,
        log_max_entries: 16,
        extended_translation_offset: false,
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
        digest_with_xts: true,
        crypto: true,
        xts_single_block: false,
        xts_multi_block: true,
        xts_multi_block_little_endian: false,
        xts_tweak_inc_64: false,
        object_types: 0x8000_1000,
        umr_indirect_mkey_disabled: false,
        umr_modify_atomic_disabled: false,
        umr_fence: UmrFence::None,
        relaxed_ordering_write: true,
        relaxed_ordering_read: false,
        relaxed_ordering_write_umr: false,
        relaxed_ordering_read_umr: false,
        fixed_buffer_size: false,
        memory_windows: false,
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
        timestamps: TimestampSupport::FREE_RUNNING,
        device_frequency_khz: 0,
        log_blue_flame: Some(9),
        log_max_copy: Some(21),
        memcpy_per_qp: true,
        vhca_id: 0x1234,
        has_second_page: true,
    };
    let caps = general(GENERAL);
    assert_eq!(caps, expected);
    assert_eq!(
        caps.signatures(),
        Some(SignatureCapabilities {
            block_4048: true,
            crc32c: true,
            crc64_xp10: false,
            digest_with_xts: true
        })
    );
    assert_eq!(caps.xts_engine(), Some(XtsEngine::MultiBlock));
    assert!(caps.can_create(ObjectType::DEK) && caps.can_create(ObjectType::CRYPTO_LOGIN));
    for absent in [0x20, 64, 0xffff] {
        assert!(!caps.can_create(ObjectType(absent)), "{absent:#x}");
    }

    // In each of these replies, only one field is not 0.
    let none = general(&[]);
    assert_eq!((none.signatures(), none.xts_engine(), none.log_max_copy), (None, None, None));
    let single = GeneralCapabilities { xts_single_block: true, ..none };
    let one_bit = [
        ((0x50, 0x0000_2000), GeneralCapabilities { signature_error_cqe: true, ..none }),
        ((0x38, 0x0100_0000), GeneralCapabilities { crc64_xp10: true, ..none }),
        ((0x8c, 0x0000_4000), single),
        ((0x8c, 0x0000_8000), GeneralCapabilities { xts_tweak_inc_64: true, ..none }),
        ((0x54, 0x8000_0000), GeneralCapabilities { cq_ignore_overrun: true, ..none }),
        ((0x98, 0x4000_0000), GeneralCapabilities { timestamps: TimestampSupport::REAL_TIME, ..none }),
        ((0x98, 0x8000_0000), GeneralCapabilities { timestamps: TimestampSupport::BOTH, ..none }),
        ((0xac, 156_250), GeneralCapabilities { device_frequency_khz: 156_250, ..none }),
        ((0x9c, 0x0080_0000), GeneralCapabilities { xts_multi_block_little_endian: true, ..none }),
        ((0x50, 0x0010_0000), GeneralCapabilities { umr_fence: UmrFence::Small, ..none }),
        ((0x50, 0x0030_0000), none),
        ((0x50, 0x0040_0000), GeneralCapabilities { umr_indirect_mkey_disabled: true, ..none }),
        ((0x50, 0x0080_0000), GeneralCapabilities { umr_modify_atomic_disabled: true, ..none }),
        // Sources of the next positions in `cmd_hca_cap`: only the kernel's header has the bits 0xd0, 0xd1
        // and 0xe9. rdma-core's header also has the bits 0x108 and 0x231.
        ((0x28, 0x0000_8000), GeneralCapabilities { relaxed_ordering_write_umr: true, ..none }),
        ((0x28, 0x0000_4000), GeneralCapabilities { relaxed_ordering_read_umr: true, ..none }),
        ((0x2c, 0x0040_0000), GeneralCapabilities { relaxed_ordering_read: true, ..none }),
        ((0x30, 0x0080_0000), GeneralCapabilities { fixed_buffer_size: true, ..none }),
        ((0x54, 0x0000_4000), GeneralCapabilities { memory_windows: true, ..none }),
        ((0x30, 0x0000_0040), GeneralCapabilities { null_mkey: true, ..none }),
        ((0x58, 0x0080_0000), GeneralCapabilities { loopback_without_roce: true, ..none }),
    ];
    let copies = GeneralCapabilities { log_max_copy: Some(0), ..none };
    let one_bit = one_bit.into_iter().chain([
        ((0x38, 0x0000_1000), copies),
        ((0xf8, 0x0080_0000), GeneralCapabilities { memcpy_per_qp: true, ..copies }),
    ]);
    for (word, expected) in one_bit {
        assert_eq!(general(&[word]), expected, "{word:x?}");
    }
    let most = |log_max_copy| GeneralCapabilities { log_max_copy, ..none }.log_max_memcpy_bytes();
    assert_eq!([None, Some(0), Some(21)].map(most), [None, Some(31), Some(21)], "0 tells nothing");
    assert_eq!(GeneralCapabilities { crypto: true, ..single }.xts_engine(), Some(XtsEngine::SingleBlock));
    let little = GeneralCapabilities { crypto: true, xts_multi_block_little_endian: true, ..single };
    assert_eq!(little.xts_engine(), Some(XtsEngine::MultiBlockLittleEndian));
    let by_2_64 = GeneralCapabilities { xts_tweak_inc_64: true, ..little };
    assert_eq!(by_2_64.xts_engine(), None, "tweaks mean something else");
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
        synchronizes_deks: false,
        log_max_deks: 18,
        log_max_import_keks: 3,
        log_max_credentials: 5,
        failed_selftests: 0x8001,
        permanent_import_keks: 7,
        permanent_credentials: 9,
    };
    assert_eq!(caps, expected);
    assert!(crypto(&[(0x10, 0x4000_0000)]).going_to_commissioning);
    assert!(crypto(&[(0x10, 0x1000_0000)]).synchronizes_deks);
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
        (report(general(&[]), None), "the device does not encrypt"),
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

    // A device accepts either plaintext keys or wrapped keys.
    let dek = |key| CreateDek { pd: pd(), key, opaque: [0; 8] };
    let plain_key = dek(DekKey::Plain128 { key: XtsKey::allowing_equal_halves(&[0; 32]), keytag: None });
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
fn roce_capabilities() {
    words(&QueryRoceCapabilities, &[(0, 0x0100_0000), (4, 0x09)]);
    let told = |words: &[Word]| QueryRoceCapabilities.decode(&from_words(4112, words)).unwrap();
    let none = told(&[]);
    assert_eq!(none.timestamps, TimestampSupport::FREE_RUNNING);
    // The reply has a header of 16 bytes, and the structure `roce_cap` behind it. In the first word of the
    // structure, bits 5 and 6, counted from the highest bit, are the flags for loopback, and the two lowest
    // bits are the format of time stamps. The seventh word has the highest and the lowest UDP source port.
    let all = told(&[(0x10, 0x0600_0002), (0x28, 0xfffe_c001)]);
    let expected = RoceCapabilities {
        timestamps: TimestampSupport::BOTH,
        loopback_with_roce: true,
        loopback_without_roce: true,
        min_udp_source_port: 0xc001,
        max_udp_source_port: 0xfffe,
    };
    assert_eq!(all, expected);
    assert!(!told(&[(0x10, 0x0400_0000)]).loopback_with_roce);
    assert_eq!(told(&[(0x10, 1)]), RoceCapabilities { timestamps: TimestampSupport::REAL_TIME, ..none });
}

#[test]
fn atomic_capabilities() {
    words(&QueryAtomicCapabilities, &[(0, 0x0100_0000), (4, 0x07)]);
    let told = |words: &[Word]| QueryAtomicCapabilities.decode(&from_words(4112, words)).unwrap();
    // Counted from the header of 16 bytes on, the byte order is in the two upper bits of the third word, the
    // operations are in the lower half of the fifth word, and the lengths are in the lower half of the sixth
    // word.
    let all = told(&[(0x18, 0x4000_0000), (0x20, 0xf), (0x24, 0xc)]);
    assert_eq!(all, AtomicCapabilities { masked: true, host_order: true });
    let none = AtomicCapabilities { masked: false, host_order: false };
    assert_eq!(told(&[]), none);
    for (operations, lengths) in [(0x3, 0xc), (0x7, 0xc), (0xb, 0xc), (0xf, 8), (0xf, 4)] {
        assert_eq!(told(&[(0x18, 0x8000_0000), (0x20, operations), (0x24, lengths)]), none);
    }
}

#[test]
fn a_format_of_time_stamps_is_chosen_by_the_capability() {
    use TimestampFormat::{DeviceDefault, FreeRunning, RealTime};
    let of = |support: TimestampSupport| {
        (
            [FreeRunning, DeviceDefault, RealTime].map(|format| support.supports(format)),
            support.usual_format(),
        )
    };
    assert_eq!(of(TimestampSupport::FREE_RUNNING), ([true, true, false], FreeRunning));
    assert_eq!(of(TimestampSupport::REAL_TIME), ([false, true, true], DeviceDefault));
    assert_eq!(of(TimestampSupport::BOTH), ([true; 3], FreeRunning));
    assert_eq!(of(TimestampSupport(3)), ([false, true, false], DeviceDefault));
}

#[test]
fn atomics_are_refused_where_there_are_none() {
    let none = general(&[]);
    let some = GeneralCapabilities { atomic: true, ..none };
    let [lacks_masked, has_masked] =
        [false, true].map(|masked| Some(AtomicCapabilities { masked, host_order: false }));
    let [plain, masked] =
        [PeerAtomics::Plain, PeerAtomics::Masked].map(|atomics| QpAccess { atomics, ..QpAccess::default() });
    let refused = |what| Err(CommandError::Unsupported { command: Opcode::RST2INIT_QP, what });
    for (access, device, atomics, expected) in [
        (QpAccess::READ_WRITE, none, None, Ok(())),
        (plain, none, None, refused("atomics")),
        (plain, some, lacks_masked, Ok(())),
        (masked, none, has_masked, refused("atomics")),
        (masked, some, None, refused("masked atomics")),
        (masked, some, lacks_masked, refused("masked atomics")),
        (masked, some, has_masked, Ok(())),
    ] {
        assert_eq!(access.check(&device, atomics.as_ref()), expected, "{access:?}");
        let change = Init2Init { access: Some(access), ..Init2Init::new(Qpn::default()) };
        assert_eq!(change.check(&device, atomics.as_ref()), expected, "{change:?}");
    }
}
