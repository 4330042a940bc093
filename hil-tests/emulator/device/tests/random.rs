//! Tests that the device neither panics nor hangs with random bytes in rings and memory.

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;
use proptest::prelude::*;

fn small() -> DeviceProfile {
    DeviceProfile { max_message_bytes: 1 << 20, max_ranges: 1 << 12, ..Default::default() }
}

/// Returns a host with keys of all kinds, so that random requests name existing objects.
fn world() -> (Host, Vec<Key>) {
    let mut host = Host::with(small(), |_| {});
    host.device.set_copies(host.q[A].qpn, true).unwrap();
    let (at, region) = host.filled(&pattern(8192, 3));
    let dek = host.dek(&XTS_KEY);
    let both = host.mkey(true, true);
    let plain = host.mkey(false, false);
    host.configure(
        Config::new(&both)
            .access(LW | RR | RW | AT)
            .list(&[(at, 4096, region)])
            .signature(Sig::t10(1, 2), Sig::None, 0xff)
            .crypto(0, 1, [0; 16], dek),
    );
    host.configure(Config::new(&plain).access(LW | RR | RW | AT).strided(u32::MAX, &[(at, 1, 0, region)]));
    (host, vec![region, both.key, plain.key])
}

/// Returns the address of the region of [`world`], which directly follows the queues.
fn region_address(host: &Host) -> u64 {
    let probe = pattern(8192, 3);
    (1..64).map(|page| BASE + page * 4096).find(|at| host.get(*at, 8192) == probe).expect("the region")
}

/// Rings both doorbells and runs the device several times. Then puts the queue pairs into the error state,
/// and takes their events.
fn survive(host: &mut Host) {
    for at in [A, B] {
        let _ = host.device.doorbell(host.q[at].qpn);
    }
    for _ in 0..4 {
        host.device.run();
    }
    for at in [A, B] {
        let _ = host.device.modify(host.q[at].qpn, QpState::Error);
    }
    host.device.run();
    host.device.take_events();
}

fn opcode() -> impl Strategy<Value = u8> {
    prop_oneof![
        4 => prop::sample::select(vec![
            0x00u8, 0x01, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x20, 0x25, 0x2f,
        ]),
        1 => any::<u8>(),
    ]
}

/// Returns a strategy for words of a request. Many of them are valid keys, numbers or lengths.
fn word(keys: Vec<Key>) -> impl Strategy<Value = [u8; 4]> {
    let keys: Vec<u32> = keys.iter().map(|key| key.get()).collect();
    prop_oneof![
        3 => prop::sample::select(keys).prop_map(u32::to_be_bytes),
        3 => (0u32..16).prop_map(u32::to_be_bytes),
        2 => prop::sample::select(vec![
            0x400u32, 0x8000_0010, 512, 520, 1 << 31, u32::MAX, 0x7f00, 0x8000_0000,
        ])
            .prop_map(u32::to_be_bytes),
        1 => any::<[u8; 4]>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_bytes_in_the_send_ring(
        bytes in prop::collection::vec(any::<u8>(), 64 << LOG_SQ),
        producer in any::<u32>(),
    ) {
        let (mut host, _) = world();
        host.put(host.q[A].attributes.sq, &bytes);
        host.put(host.q[A].attributes.doorbell_record + 4, &producer.to_be_bytes());
        survive(&mut host);
    }

    #[test]
    fn random_requests_with_good_heads(
        requests in prop::collection::vec(
            (opcode(), prop::collection::vec(word(world().1), 0..60), any::<u32>(), 0usize..3),
            1..12,
        ),
    ) {
        let (mut host, keys) = world();
        host.post_receive(B, &[segment(0, 4096, keys[2]), segment(0, 512, keys[1])]);
        for (opcode, words, imm, key) in requests {
            let imm = if opcode == 0x25 { keys[key].get() } else { imm };
            let mut wqe = Wqe::new(Opcode(opcode), imm);
            // Most random UMRs would be refused for their flags, so the flags are valid.
            if opcode == 0x25 {
                let octowords = 4 * (imm as u8 & 1);
                wqe = wqe.with(&[0x80u8, 0, 0, 0, 0, octowords, 0, 4, 0, 0, 0, 0, 0x20, 0x3c, 0x72, 1][..]);
            }
            // An MMO request is a copy if its opcode modifier is 1. The device refuses other modifiers.
            if opcode == 0x2f {
                wqe.0[0] = 1;
            }
            wqe.0.extend(words.concat());
            wqe.0.resize(wqe.0.len().next_multiple_of(16), 0);
            host.post(A, wqe);
        }
        host.ring(A);
        survive(&mut host);
    }

    #[test]
    fn random_bsfs(
        mut signature in any::<[[u8; 16]; 4]>(), mut crypto in any::<[[u8; 16]; 4]>(), same in any::<bool>(),
        selectors in (0u8..8, 0u8..8, 0u8..8), families in (0u8..8, 0u8..8),
        length in 0u32..6000, offset in 0u64..6000,
    ) {
        let (mut host, keys) = world();
        let at = region_address(&host);
        // The beginning of each BSF is valid, and the named PSVs, DEK and regions exist. All other bytes are
        // random.
        let region = keys[0];
        let mkey = host.mkey(true, true);
        let list = Config::new(&mkey).access(LW | RR | RW).list(&[(at, 8192, region)]);
        signature[0][0] = 0xc0 | if same { 0x10 } else { 0 };
        signature[0][2] = selectors.0;
        signature[0][3] = selectors.1;
        signature[0][8..12].copy_from_slice(&(u32::from(families.0 << 4 | 3) << 24 | mkey.wire_psv).to_be_bytes());
        signature[0][12..16].copy_from_slice(&(u32::from(families.1 << 4 | 3) << 24 | mkey.memory_psv).to_be_bytes());
        crypto[0][0] = 0xc1;
        crypto[0][1] &= 3;
        crypto[0][3] = 0;
        crypto[0][8] = selectors.2;
        crypto[2][0..4].copy_from_slice(&1u32.to_be_bytes());
        let mut config = list.signature(Sig::None, Sig::None, 0).crypto(0, 1, [0; 16], 1);
        config.signature = Some(zerocopy::transmute!(signature));
        config.crypto = Some(zerocopy::transmute!(crypto));
        host.configure(config);
        host.send_from(mkey.key, offset, length.max(1));
        survive(&mut host);
    }

    #[test]
    fn random_receives_and_records(
        ring in prop::collection::vec(any::<u8>(), usize::from(RQ_STRIDE) << LOG_RQ),
        record in any::<[u8; 8]>(),
        cq in any::<[u8; 4]>(),
    ) {
        let (mut host, _) = world();
        let (at, key) = host.filled(&[1; 64]);
        host.put(host.q[B].receives_at(), &ring);
        host.put(host.q[B].attributes.doorbell_record, &record);
        host.put(host.q[B].recv_cq.record, &cq);
        host.execute(A, send(Opcode::SEND, 0, &[segment(at, 64, key)]));
        survive(&mut host);
    }

    #[test]
    fn random_messages_from_another_device(
        rkey in word(world().1), address in any::<u64>(), length in any::<u32>(),
        data in prop::collection::vec(any::<u8>(), 0..2000), kind in 0..6, to in 0x3fu32..0x43,
    ) {
        let (mut host, _) = world();
        let rkey = u32::from_be_bytes(rkey);
        let request = match kind {
            0 => Request::Send { data: data.into(), payload: Payload::Invalidate(rkey), solicited: true },
            1 => {
                let address = address & 0xfff;
                Request::Write { rkey, address, data: data.into(), immediate: None, solicited: false }
            }
            2 => Request::Read { rkey, address: address & 0xfff, length },
            3 => Request::Read { rkey, address: address & 0xfff, length: length & 0xffff },
            4 => Request::compare_swap(rkey, address & 0xff8, 0, 1),
            _ => Request::fetch_add(rkey, address, 1),
        };
        let datagram = (length % 2 == 0).then_some(Datagram { qkey: 0, route: [7; 40] });
        let unanswered = Message::Unanswered { from: 1, to, datagram, request: request.clone() };
        host.device.deliver(Message::Request { from: 1, to, sequence: 0, request });
        host.device.deliver(unanswered);
        host.device.deliver(Message::Response { to, sequence: 0, response: Response::Done });
        survive(&mut host);
    }
}

#[test]
fn a_ring_that_rings_its_own_doorbell_ends() {
    let mut host = Host::with(small(), |_| {});
    let record = host.q[A].attributes.doorbell_record;
    let sq = host.q[A].attributes.sq;
    let rkey = host.device.register(host.pd, record, 8, Access::ALL).unwrap();
    let source = host.device.register(host.pd, sq, 64, Access::ALL).unwrap();
    // The RDMA WRITE copies word 0 of its own block to the send counter in the doorbell record, which then
    // announces far more blocks than the ring has.
    host.execute(A, rdma(Opcode::RDMA_WRITE, 0, record + 4, rkey, &[segment(sq, 4, source)]));
    survive(&mut host);
}

#[test]
fn impossible_lengths_take_no_time() {
    let (mut host, keys) = world();
    for (offset, length) in [(0, 1 << 20), (0, 0), (u64::MAX, 8), (u64::from(u32::MAX) - 4, 64), (0, 1 << 13)]
    {
        host.execute(A, rdma(Opcode::RDMA_READ, 0, offset, keys[2], &[segment(0, length, keys[2])]));
        host.bad(A);
        host.recover();
    }
}
