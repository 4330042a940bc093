//! Tests of the commands for DEKs and logins.

use super::capabilities::{GENERAL, crypto, general};
use super::*;

#[test]
fn m32_deks_in_all_eight_forms() {
    let bytes: [u8; 80] = core::array::from_fn(|index| index as u8 + 1);
    let part = |length: usize| &bytes[..length];
    let small = XtsKey::new(part(32).try_into().unwrap()).unwrap();
    let large = XtsKey::new(part(64).try_into().unwrap()).unwrap();
    let tag = |at: usize| Some(Keytag(bytes[at..at + 8].try_into().unwrap()));
    let forms = [
        (DekKey::Plain128 { key: small, keytag: None }, 32, 0, false, false),
        (DekKey::Plain128 { key: small, keytag: tag(32) }, 40, 0, true, false),
        (DekKey::Plain256 { key: large, keytag: None }, 64, 1, false, false),
        (DekKey::Plain256 { key: large, keytag: tag(64) }, 72, 1, true, false),
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

/// A key is accepted if its halves differ in any bit. A key with equal halves needs the constructor
/// `allowing_equal_halves`.
#[test]
fn halves_that_are_equal_are_refused() {
    fn check<const N: usize>() {
        let mut key: [u8; N] = core::array::from_fn(|index| (index % (N / 2)) as u8);
        assert_eq!(XtsKey::new(&key), Err(EqualHalves));
        assert_eq!(XtsKey::allowing_equal_halves(&key), XtsKey::allowing_equal_halves(&key));
        for bit in 0..8 * N {
            key[bit / 8] ^= 1 << (bit % 8);
            assert!(XtsKey::new(&key).is_ok(), "bit {bit} of {N} bytes");
            key[bit / 8] ^= 1 << (bit % 8);
        }
    }
    check::<32>();
    check::<64>();
    // Test vector 1 of IEEE 1619 has this key of zeros, whose halves are equal.
    let key = XtsKey::allowing_equal_halves(&[0; 32]);
    let command = CreateDek { pd: pd(), key: DekKey::Plain128 { key, keytag: None }, opaque: [0; 8] };
    let mut mailbox = [0xa5; CreateDek::INPUT];
    assert_eq!(command.encode(&mut mailbox).unwrap()[0x50..0x70], [0; 32]);
    assert_eq!(format!("{key:?}"), "XtsKey(..)");
}

#[test]
fn deks_and_logins_are_those_of_rdma_core() {
    let key: [u8; 64] = core::array::from_fn(|index| index as u8 + 1);
    let keytag = Some(Keytag([0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48]));
    let key = DekKey::Plain256 { key: XtsKey::new(&key).unwrap(), keytag };
    let command = CreateDek { pd: pd(), key, opaque: *b"opaque_8" };
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

/// The expected bytes come from the kernel's `mlx5_crypto_modify_dek_key` and `mlx5_crypto_cmd_sync_crypto`.
#[test]
fn keys_get_other_values() {
    let key: [u8; 32] = core::array::from_fn(|index| index as u8 + 1);
    let key = DekKey::Plain128 { key: XtsKey::new(&key).unwrap(), keytag: None };
    let command = ModifyDek { dek: DekObject::new(0x89ab_cdef), pd: pd(), key };
    let mut expected = vec![
        (0, 16, 0xa01),
        (0x30, 16, 0x0c),
        (0x40, 32, 0x89ab_cdef),
        (0x80, 64, 1),       // modify_field_select
        (0x80 + 0x5c, 4, 3), // key_purpose
        (0x80 + 0x68, 24, 0xab_cdef),
    ];
    expected.extend((0..32).map(|index| (0x80 + 0x200 + 8 * index, 8, index as u64 + 1)));
    fields(&command, &expected);
    assert_eq!(command.decode(&[0; 16]), Ok(()));
    let general = general(GENERAL);
    for (answer, crypto) in [
        (Ok(()), Some(crypto(&[(0x10, 0x1000_0000)]))),
        (Err("other values for keys"), Some(crypto(&[]))),
        (Err("other values for keys"), None),
    ] {
        let report = CryptoReport { general, crypto };
        let said = SyncCrypto.check(&report).map_err(|error| match error {
            CommandError::Unsupported { what, .. } => what,
            other => panic!("{other}"),
        });
        assert_eq!(said, answer);
        assert_eq!(command.check(&report).is_ok(), answer.is_ok());
    }
    fields(&SyncCrypto, &[(0, 16, 0xb12), (0x70, 16, 1)]);
    assert_eq!(SyncCrypto.decode(&[0; 16]), Ok(()));
}

#[test]
fn objects_reply() {
    let dek = CreateDek { pd: pd(), key: DekKey::Wrapped128(&[0; 40]), opaque: [0; 8] };
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
    // In the field for the credential, zeros follow a shorter credential.
    let short = CreateLogin {
        credential_id: CredentialId::default(),
        import_kek_id: ImportKekId::default(),
        credential: Credential::new(&[0xff; 4]).unwrap(),
    };
    words(&short, &[(0, 0x0a00_0000), (4, 0x1f), (0x50, 0xffff_ffff)]);
    assert!(AckTimeout::new(32).is_err() && Retries::new(8).is_err() && LogPageSize::new(11).is_err());
    let size = QueueError::Size { what: "blocks of a send queue", entries: 100, max: 32768 };
    assert_eq!(SendRingSize::new(100), Err(size));
    assert!(SendRingSize::new(65536).is_err() && SlotStride::new(8).is_err() && CqSize::new(0).is_err());
    assert_eq!((SlotStride::new(64).unwrap().get(), CqSize::new(256).unwrap().get()), (64, 256));
    assert_eq!(SlotStride::of_entries(128), SlotStride::new(2048));
    for entries in [0, 3, 256, u32::MAX] {
        let size =
            QueueError::Size { what: "entries of a receive slot", entries: entries as usize, max: 128 };
        assert_eq!(SlotStride::of_entries(entries), Err(size));
    }
}

#[test]
fn m66_a_key_that_was_encoded_leaves_nothing_in_the_mailbox() {
    let mut mailbox = [0xa5; CreateDek::INPUT + 4];
    let mut key = Secret::new([0x77; 32]);
    key.expose_mut()[31] = 0;
    let plain = DekKey::Plain128 { key: XtsKey::new(key.expose()).unwrap(), keytag: None };
    let command = CreateDek { pd: pd(), key: plain, opaque: [0x66; 8] };
    let request = command.encode(&mut mailbox).unwrap();
    assert_eq!(request[0x50..0x70], *key.expose());
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
