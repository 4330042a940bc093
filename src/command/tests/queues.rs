//! Tests of the commands for completion queues and queue pairs.

use super::capabilities::general;
use super::*;

#[test]
fn m56_completion_queues() {
    let command = CreateCq {
        size: CqSize::new(512).unwrap(),
        cqe_size: CqeSize::B64,
        uar: UarPage::new(0x12_3456).unwrap(),
        event_queue: 0x9a,
        entries: UmemSlice { umem: UmemId(0x1357_9bdf), offset: 0x0102_0304_0506_0708 },
        doorbell: UmemSlice { umem: UmemId(0x89ab_cdef), offset: 0x1122_3344_5566_7788 },
        page_size: LogPageSize::P64K,
        ignore_overrun: true,
    };
    // The bit positions come from `cqc` and `create_cq_in` in the headers of the kernel and of DPDK.
    const CQC: usize = 0x80;
    for (cqe_size, cqe_sz) in [(CqeSize::B64, 0), (CqeSize::B128, 1)] {
        let command = CreateCq { cqe_size, ..command };
        fields(
            &command,
            &[
                (0, 16, 0x400),
                (CQC + 0x06, 1, 1),                       // dbr_umem_valid
                (CQC + 0x08, 3, cqe_sz),                  // cqe_sz
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
    }
    assert_eq!(command.decode(&from_words(16, &[(8, 0x12_3456)])).unwrap(), Cqn::new(0x12_3456).unwrap());
    words(&DestroyCq(Cqn::new(0x12_3456).unwrap()), &[(0, 0x0401_0000), (8, 0x12_3456)]);
}

pub(super) fn create_qp() -> CreateQp {
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
    // The headers of DPDK and of the kernel have the field `wq_umem_offset` at this position.
    let mut with_offset = golden.to_vec();
    with_offset.extend([(0x100, 0x0102_0304), (0x104, 0x0506_0708)]);
    words(&command, &with_offset);
    words(&CreateQp { rings: UmemSlice { offset: 0, ..command.rings }, ..command }, &golden);

    // Without a receive queue, `log_rq_size` and `log_rq_stride` are 0, and `rq_type` is 3.
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
    let init = Rst2Init { qp: qp(), port: 2, pkey_index: 0x1234, access: QpAccess::READ_WRITE };
    let golden = [
        (0, 0x0502_0000),
        (0x8, 0x0012_3456),
        (0x18, 0x0000_1800),
        (0x30, 0x0000_1234),
        (0x54, 0x0002_0000),
        (0xa8, 0x0000_c000),
    ];
    words(&init, &golden);

    let loopback = Init2Rtr {
        qp: qp(),
        remote_qp: Qpn::new(0x65_4321).unwrap(),
        path: Path::Loopback,
        port: 2,
        mtu: PathMtu::B4096,
        log_max_message: LogMessage::new(30).unwrap(),
        first_psn: Psn::new(0x0a_0b0c).unwrap(),
        log_max_rd_atomic: LogMaxRdAtomic::new(4).unwrap(),
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
    words(&Init2Rtr { path: infiniband, ..loopback }, &with(&[(0x34, 0x0000_beef), (0x54, 0x0502_0000)]));
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
        &Init2Rtr { path: roce, ..loopback },
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

    let send = Rtr2Rts {
        qp: qp(),
        first_psn: Psn::new(0x0d_0e0f).unwrap(),
        log_max_rd_atomic: LogMaxRdAtomic::new(3).unwrap(),
        ack_timeout: AckTimeout::new(14).unwrap(),
        retries: Retries::new(5).unwrap(),
        rnr_retries: Retries::new(6).unwrap(),
        log_ack_interval: LogAckInterval::new(5).unwrap(),
    };
    let golden =
        [(0, 0x0504_0000), (0x8, 0x0012_3456), (0x38, 0x7000_0000), (0x88, 0x5065_c000), (0x90, 0x000d_0e0f)];
    words(&send, &golden);
}

#[test]
fn m19_draining_is_asked_for_as_rdma_core_does() {
    let drain = Init2Init { drain_signature_errors: Some(true), ..Init2Init::new(qp()) };
    let golden = [(0, 0x050e_0000), (0x8, 0x0012_3456), (0x10, 0x0000_0800), (0x1c, 0x0400_0000)];
    words(&drain, &golden);
    let stop = Init2Init { drain_signature_errors: Some(false), ..drain };
    words(&stop, &[(0, 0x050e_0000), (0x8, 0x0012_3456), (0x10, 0x0000_0800)]);
    let access = Init2Init { access: Some(QpAccess::READ_WRITE), ..Init2Init::new(qp()) };
    words(&access, &[(0, 0x050e_0000), (0x8, 0x0012_3456), (0x10, 0xe), (0xa8, 0x0000_c000)]);
}

#[test]
fn m42_draining_is_refused_where_there_is_none() {
    let (none, drain) =
        (general(&[]), Init2Init { drain_signature_errors: Some(true), ..Init2Init::new(qp()) });
    let missing = drain.check(&none, None).unwrap_err().to_string();
    assert_eq!(missing, "INIT2INIT_QP: the device has no draining on signature errors");
    let able = GeneralCapabilities { drain_signature_errors: true, ..none };
    assert_eq!(drain.check(&able, None), Ok(()));
    assert_eq!(Init2Init { drain_signature_errors: Some(false), ..drain }.check(&none, None), Ok(()));
    assert_eq!(Init2Init { drain_signature_errors: None, ..drain }.check(&none, None), Ok(()));
}

#[test]
fn m45_copies_are_asked_for_as_rdma_core_does() {
    // As in rdma-core's `qp_enable_mmo`, bit 31 of the word with the queue pair's number says that the
    // request has an extension of the queue pair context. A mask selects the changed bit of the extension.
    let copies = Init2Init { memcpy: Some(true), ..Init2Init::new(qp()) };
    words(&copies, &[(0, 0x050e_0000), (0x8, 0x8012_3456), (0x10c, 8), (0x110, 0x2000_0000)]);
    let none = Init2Init { memcpy: Some(false), ..copies };
    words(&none, &[(0, 0x050e_0000), (0x8, 0x8012_3456), (0x10c, 8)]);
    let missing = copies.check(&general(&[]), None).unwrap_err().to_string();
    assert_eq!(missing, "INIT2INIT_QP: the device has no copies in memory by queue pairs");
    assert_eq!(none.check(&general(&[]), None), Ok(()));
    let able = GeneralCapabilities { memcpy_per_qp: true, ..general(&[]) };
    assert_eq!(copies.check(&able, None), Ok(()));
}

#[test]
fn m55_changes_among_the_sending_states() {
    let access = QpAccess { atomics: PeerAtomics::Plain, ..Default::default() };
    let change = QpChange { access: Some(access), rnr_timer: Some(RnrTimer::new(9).unwrap()) };
    let body = [(0x8, 0x0012_3456), (0x10, 0x4e), (0xa8, 0x0001_2000), (0xac, 0x0900_0000)];
    let with = |opcode: u32| [&[(0, opcode << 16)], &body[..]].concat();
    words(&Rts2Rts { qp: qp(), change }, &with(0x505));
    words(&Sqd2Rts { qp: qp(), change }, &with(0x50c));
    words(&SqErr2Rts { qp: qp(), change }, &with(0x506));
    let masked = QpChange { access: Some(QpAccess { atomics: PeerAtomics::Masked, ..access }), ..change };
    let [.., (timer, value)] = body;
    let (mask, rights) = ((0x10, 0x4e), (0xa8, 0x0003_2000));
    words(
        &Rts2Rts { qp: qp(), change: masked },
        &[(0, 0x505 << 16), (0x8, 0x0012_3456), mask, rights, (timer, value)],
    );
    let plain = Sqd2Rts { qp: qp(), change: QpChange::default() };
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
            (0x18, 0x5003_0000),
            (0x1c, 0x84ab_cdef),
            (0x20, 0x6000_0000),
            (0x28, 0x0076_5432),
            (0x2c, 0x0065_4321),
            (0x54, 0x0002_0000),
            (0x90, 0x000d_0e0f),
            (0x94, 0x0011_1213),
            (0xb4, 0x0021_2223),
            (0xc4, 0x0100_0000),
            (0xa8, 0x0003_a000),
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
        access: QpAccess { remote_read: true, atomics: PeerAtomics::Masked, ..Default::default() },
        mtu: 3,
        service_type: 3,
        pd: Pdn::new(0xab_cdef).unwrap(),
        port: 2,
        send_cq: Cqn::new(0x11_1213).unwrap(),
        receive_cq: Cqn::new(0x21_2223).unwrap(),
        has_receive_queue: false,
        checks_requests: true,
        scatters_to_cqe: true,
    };
    assert_eq!(info, expected);
    let plain = QueryQp(qp()).decode(&from_words(272, &[(0x18, 0x3000_0000)])).unwrap();
    assert_eq!((plain.state, plain.service_type, plain.has_receive_queue), (QpState::RTS, 0, true));
    assert!(!plain.checks_requests && !plain.scatters_to_cqe);
    assert_eq!(info.state.to_string(), "send queue drained");
    assert_eq!(QpState(9).to_string(), "queue pair state 0x9");
    assert_eq!(format!("{:?} {:?}", QpState::SQ_DRAINED, QpState(9)), "SQ_DRAINED QpState(0x9)");
}

#[test]
fn entries_have_two_sizes() {
    assert_eq!([CqeSize::B64, CqeSize::B128].map(CqeSize::bytes), [64, 128]);
}

#[test]
fn packets_of_a_path_have_five_sizes() {
    use PathMtu::{B256, B512, B1024, B2048, B4096};
    let sizes = [None, Some(B256), Some(B512), Some(B1024), Some(B2048), Some(B4096), None];
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(PathMtu::from_code), sizes);
}
