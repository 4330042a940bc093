//! Tests of replies that refuse a command, and of replies with arbitrary bytes.

use super::queues::create_qp;
use super::*;

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
    // These are all status codes to which rdma-core gives a name.
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

/// Encodes a command into a mailbox of `length` bytes, and decodes `reply` as its reply. Checks that neither
/// panics, and that no byte outside the request is written.
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
    let change = QpChange { access: Some(QpAccess::READ_WRITE), rnr_timer: Some(RnrTimer::MAX) };
    survives(QueryGeneralCapabilities, length, reply);
    survives(QueryCryptoCapabilities, length, reply);
    survives(AllocPd, length, reply);
    survives(AllocUar, length, reply);
    survives(DeallocPd(Pdn::new(small).unwrap()), length, reply);
    survives(mkey(MkeyFeatures::default()), length, reply);
    survives(CreatePsv::<1>::new(Pdn::new(small).unwrap()), length, reply);
    survives(CreatePsv::<4>::new(pd()), length, reply);
    survives(create_qp(), length, reply);
    survives(Rst2Init { qp, port: 1, pkey_index: 0, access: QpAccess::default() }, length, reply);
    survives(Init2Init { drain_signature_errors: Some(true), ..Init2Init::new(qp) }, length, reply);
    survives(Rts2Rts { qp, change }, length, reply);
    survives(Sqd2Rts { qp, change }, length, reply);
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
