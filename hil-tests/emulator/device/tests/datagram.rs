//! Tests of datagrams: of their destinations, of the received bytes, and of dropped datagrams.

use crate::common::*;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::data::DataSegment;
use mlx5_softdev::*;

const GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
const QKEY: u32 = 0x1234_5678;
const GRH: usize = 40;

fn datagrams() -> Host {
    let profile = DeviceProfile { port_gid: GID, ..DeviceProfile::default() };
    let mut host = Host::with(profile, |attributes| attributes.transport = Transport::UnreliableDatagram);
    for at in [A, B] {
        host.device.set_qkey(host.q[at].qpn, QKEY).unwrap();
    }
    host
}

/// Returns an address vector as libmlx5 writes it (`struct mlx5_wqe_av`).
fn address(to: u32, qkey: u32, gid: [u8; 16]) -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[0..4].copy_from_slice(&qkey.to_be_bytes());
    bytes[8..12].copy_from_slice(&(1 << 31 | to).to_be_bytes());
    bytes[26] = 0x42; // traffic class
    bytes[27] = 63; // hops
    bytes[28..32].copy_from_slice(&0x0001_2345_u32.to_be_bytes());
    bytes[32..48].copy_from_slice(&gid);
    bytes
}

fn datagram(opcode: Opcode, imm: u32, address: [u8; 48], segments: &[DataSegment]) -> Wqe {
    segments.iter().fold(Wqe::new(opcode, imm).with(&address), |wqe, segment| wqe.with(segment))
}

#[test]
fn a_datagram_arrives_behind_its_route() {
    let mut host = datagrams();
    let (from, source) = host.filled(b"to whom it may concern");
    let (to, target) = host.region(128, Access::ALL);
    host.post_receive(B, &[segment(to, 128, target)]);
    let address = address(host.q[B].qpn, QKEY, GID);
    host.succeeds(A, datagram(Opcode::SEND_IMM, 9, address, &[segment(from, 22, source)]));
    let seen = host.poll_recv(B).unwrap();
    assert_eq!((seen.opcode(), seen.0.imm_inval.get()), (CqeOpcode::RESPONDER_SEND_IMM, 9));
    assert_eq!(seen.0.byte_count.get(), GRH as u32 + 22);
    // `flags_rqpn` says that an IPv6 header stands before the data, and names the sender's queue pair.
    assert_eq!(seen.0.reserved0[24..28], (0x1100_0000 | host.q[A].qpn).to_be_bytes());
    assert_eq!(host.get(to + 40, 22), b"to whom it may concern");
    let route = host.get(to, GRH);
    // The header has version 6, traffic class and flow label, then a length: UDP 8, BTH 12, DETH 8, immediate
    // data 4, data with its padding 24, ICRC 4.
    assert_eq!(route[0..8], [0x64, 0x21, 0x23, 0x45, 0, 8 + 12 + 8 + 4 + 24 + 4, 17, 63]);
    assert_eq!((&route[8..24], &route[24..40]), (&GID[..], &GID[..]));
}

#[test]
fn a_datagram_can_be_inline_or_empty_and_go_to_its_sender() {
    let mut host = datagrams();
    let (to, target) = host.region(128, Access::ALL);
    for at in [A, B] {
        host.post_receive(at, &[segment(to, 40, target), segment(to + 64, 64, target)]);
        let address = address(host.q[at].qpn, QKEY, GID);
        let wqe = match at {
            A => datagram(Opcode::SEND, 0, address, &[]),
            _ => datagram(Opcode::SEND, 0, address, &[])
                .with(&[0x80_u8, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]),
        };
        host.succeeds(at, wqe);
        let seen = host.poll_recv(at).unwrap();
        assert_eq!(seen.0.byte_count.get(), if at == A { 40 } else { 44 });
        assert_eq!(seen.0.reserved0[25..28], host.q[at].qpn.to_be_bytes()[1..]);
    }
    assert_eq!(host.get(to + 64, 5), [1, 2, 3, 4, 0]);
}

#[test]
fn datagrams_that_nobody_takes_are_dropped() {
    let mut host = datagrams();
    let (from, source) = host.filled(&[7; 64]);
    let (to, target) = host.region(128, Access::ALL);
    let b = host.q[B].qpn;
    let data = [segment(from, 64, source)];
    let mut elsewhere = GID;
    elsewhere[15] = 9;
    // Without a posted receive request, a datagram is dropped. Each of the next datagrams finds a posted
    // receive request, but has another Q_Key, queue pair or GID.
    for (qpn, qkey, gid) in
        [(b, QKEY, GID), (b, QKEY + 1, GID), (b + 1, QKEY, GID), (b, QKEY, elsewhere), (0xff_ffff, QKEY, GID)]
    {
        host.succeeds(A, datagram(Opcode::SEND, 0, address(qpn, qkey, gid), &data));
        if host.q[B].receives == 0 {
            host.post_receive(B, &[segment(to, 128, target)]);
        }
    }
    assert!(host.poll_recv(B).is_none() && host.device.take_events().is_empty());
    assert_eq!(host.get(to, 128), [0; 128]);
    assert_eq!(host.device.take_message(), None);
    // A Q_Key with the highest bit set means the sender's own Q_Key (InfiniBand 10.2.5).
    host.succeeds(A, datagram(Opcode::SEND, 0, address(b, 1 << 31, GID), &data));
    assert_eq!(host.poll_recv(B).unwrap().opcode(), CqeOpcode::RESPONDER_SEND);
}

/// The index above the flow label selects the source GID (`grh_gid_fl` in `mlx5_ib_create_ah`).
#[test]
fn a_datagram_comes_from_the_entry_of_the_table_that_it_names() {
    let mut host = datagrams();
    let second = [7; 16];
    host.device.set_gids(vec![GID, second]);
    let (to, target) = host.region(256, Access::ALL);
    for (index, source) in [(0_u8, GID), (1, second), (9, GID)] {
        host.post_receive(B, &[segment(to, 64, target)]);
        let mut address = address(host.q[B].qpn, QKEY, second);
        address[28..32].copy_from_slice(&(u32::from(index) << 20).to_be_bytes());
        host.succeeds(A, datagram(Opcode::SEND, 0, address, &[]));
        assert!(host.poll_recv(B).is_some(), "any entry is a destination");
        let route = host.get(to, GRH);
        assert_eq!((&route[8..24], &route[24..40]), (&source[..], &second[..]));
    }
}

#[test]
fn a_datagram_to_a_known_address_of_another_device_is_sent() {
    let mut host = datagrams();
    host.device.set_numbers(Numbered::Qp, 0x40, 0x7f).unwrap();
    let other = [8; 16];
    let mut sent = |to| {
        host.succeeds(A, datagram(Opcode::SEND, 0, address(to, QKEY, other), &[]));
        host.device.take_message().is_some()
    };
    assert!(!sent(0x99), "nobody knows the address");
    host.device.reach(other);
    let mut sent = |to| {
        host.succeeds(A, datagram(Opcode::SEND, 0, address(to, QKEY, other), &[]));
        host.device.take_message().is_some()
    };
    assert!(sent(0x99));
    let own = host.q[B].qpn;
    host.succeeds(A, datagram(Opcode::SEND, 0, address(own, QKEY, other), &[]));
    assert!(host.device.take_message().is_none() && host.poll_recv(B).is_none(), "this device is elsewhere");
}

#[test]
fn datagrams_go_to_other_devices() {
    let (mut one, mut two) = (datagrams(), datagrams());
    one.device.set_numbers(Numbered::Qp, 0x40, 0x7f).unwrap();
    two.device.set_numbers(Numbered::Qp, 0x80, 0xff).unwrap();
    let qpn = two.device.create_qp(two.q[B].attributes).unwrap();
    two.device.activate(qpn).unwrap();
    two.device.set_qkey(qpn, QKEY).unwrap();
    two.q[B].qpn = qpn;
    let (from, source) = one.filled(&[3; 16]);
    let (to, target) = two.region(128, Access::ALL);
    two.post_receive(B, &[segment(to, 128, target)]);
    one.succeeds(A, datagram(Opcode::SEND, 0, address(qpn, QKEY, GID), &[segment(from, 16, source)]));
    two.device.deliver(one.device.take_message().unwrap());
    assert_eq!(two.device.take_message(), None);
    assert_eq!(two.poll_recv(B).unwrap().0.byte_count.get(), 56);
    assert_eq!(two.get(to + 40, 16), [3; 16]);
}

/// A datagram that cannot be sent completes with an error, and the send queue stops.
#[test]
fn datagrams_that_cannot_be_sent() {
    let mut host = datagrams();
    let (at, key) = host.region(8192, Access::ALL);
    let good = address(host.q[B].qpn, QKEY, GID);
    let mut short = good;
    short[8] = 0;
    let cases = [
        (
            "longer than a packet",
            datagram(Opcode::SEND, 0, good, &[segment(at, 4097, key)]),
            Syndrome::LOCAL_LENGTH,
        ),
        ("no address", send(Opcode::SEND, 0, &[segment(at, 16, key)]), Syndrome::LOCAL_QP_OPERATION),
        (
            "half an address",
            datagram(Opcode::SEND, 0, short, &[segment(at, 16, key)]),
            Syndrome::LOCAL_QP_OPERATION,
        ),
        (
            "a write",
            rdma(Opcode::RDMA_WRITE, 0, at, key, &[segment(at, 16, key)]),
            Syndrome::LOCAL_QP_OPERATION,
        ),
        (
            "no such memory",
            datagram(Opcode::SEND, 0, good, &[segment(0, 16, key)]),
            Syndrome::LOCAL_PROTECTION,
        ),
    ];
    for (what, wqe, syndrome) in cases {
        assert_eq!(host.fails(A, wqe).syndrome(), syndrome, "{what}");
        assert_eq!(host.device.query(host.q[A].qpn).unwrap().state, QpState::SendQueueError, "{what}");
        host.device.modify(host.q[A].qpn, QpState::ReadyToSend).unwrap();
    }
    host.succeeds(A, datagram(Opcode::SEND, 0, good, &[segment(at, 4096, key)]));
}

#[test]
fn a_receive_without_room_for_the_route_fails() {
    let mut host = datagrams();
    let (at, key) = host.region(128, Access::ALL);
    host.post_receive(B, &[segment(at, 39, key)]);
    host.succeeds(A, datagram(Opcode::SEND, 0, address(host.q[B].qpn, QKEY, GID), &[]));
    let seen = host.poll_recv(B).unwrap();
    assert_eq!((seen.opcode(), seen.syndrome()), (CqeOpcode::RESPONDER_ERROR, Syndrome::LOCAL_LENGTH));
}
