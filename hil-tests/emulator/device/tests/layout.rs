//! Tests of layouts, rights and keys: the bytes of memory that a transfer reaches, and refused transfers.

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::data::{AtomicSegment, DataSegment, InlineHeader};
use mlx5_softdev::*;

#[test]
fn plain_send_receive_and_completions() {
    let mut host = Host::new();
    let data = pattern(1000, 1);
    let (from, key) = host.filled(&data);
    let (to, to_key) = host.region(1000, Access::ALL);
    host.post_receive(B, &[segment(to, 600, to_key), segment(to + 600, 400, to_key)]);
    let counter = host.execute(A, send(Opcode::SEND_IMM, 0x1234, &[segment(from, 1000, key)]));
    let seen = host.good(A);
    assert_eq!((seen.counter(), seen.0.byte_count.get(), seen.0.user_index.get()), (counter, 1000, 0x111));
    assert_eq!(seen.0.opcode_qpn().wqe_opcode(), Opcode::SEND_IMM.0);
    assert_eq!(seen.0.opcode_qpn().qpn(), host.q[A].qpn);
    let seen = host.poll_recv(B).unwrap();
    assert_eq!(seen.opcode(), CqeOpcode::RESPONDER_SEND_IMM);
    assert_eq!(
        (seen.0.imm_inval.get(), seen.0.byte_count.get(), seen.0.user_index.get()),
        (0x1234, 1000, 0x222)
    );
    assert_eq!(host.get(to, 1000), data);
}

#[test]
fn keys_under_keys_end_at_a_depth() {
    let mut host = Host::new();
    let data = pattern(256, 5);
    let (at, key) = host.filled(&data);
    let mut inner = (at, key);
    for level in 0..6 {
        let mkey = host.mkey(false, false);
        host.configure(
            Config::new(&mkey).access(LW).list(&[(inner.0 + 128, 128, inner.1), (inner.0, 128, inner.1)]),
        );
        if level < 4 {
            let want = if level % 2 == 0 { [&data[128..], &data[..128]].concat() } else { data.clone() };
            assert_eq!(host.send_from(mkey.key, 0, 256), want, "level {level}");
            host.good(A);
        } else {
            host.send_from(mkey.key, 0, 256);
            assert_eq!(host.bad(A).why(), Refusal::Depth);
            host.recover();
        }
        inner = (0, mkey.key);
    }
    // An mkey whose list contains its own key is refused, too.
    let mkey = host.mkey(false, false);
    host.configure(Config::new(&mkey).access(LW).list(&[(0, 128, mkey.key)]));
    host.send_from(mkey.key, 0, 128);
    assert_eq!(host.bad(A).why(), Refusal::Depth);
}

#[test]
fn inner_keys_give_the_peer_rights_where_the_device_asks() {
    for (inner_remote_rights, inner, good) in
        [(false, Access::LOCAL, true), (true, Access::LOCAL, false), (true, Access::ALL, true)]
    {
        let profile = DeviceProfile { inner_remote_rights, ..Default::default() };
        let mut host = Host::with(profile, |_| {});
        let (at, key) = host.region(64, inner);
        let mkey = host.mkey(false, false);
        host.configure(Config::new(&mkey).access(LW | RR | RW).list(&[(at, 64, key)]));
        // The owner needs no remote rights to the region.
        host.send_from(mkey.key, 0, 64);
        host.good(A);
        host.write_into(mkey.key, 0, &[1; 64]);
        if good {
            host.good(B);
        } else {
            assert_eq!(host.bad(B).syndrome(), Syndrome::REMOTE_ACCESS);
        }
    }
}

#[test]
fn inline_atomics_write_imm_and_nop() {
    let mut host = Host::new();
    let (at, key) = host.filled(&[0; 64]);
    let (back, back_key) = host.region(64, Access::ALL);
    let inline = InlineHeader { byte_count: (InlineHeader::INLINE | 21).into() };
    let write = Wqe::new(Opcode::RDMA_WRITE_IMM, 0xabcd).with(&remote(at + 8, key)).with(&inline);
    host.post_receive(B, &[]);
    host.post(A, write.with(&pattern(21, 6)[..]));
    host.execute(A, Wqe::new(Opcode::NOP, 0));
    assert_eq!(host.poll_send(A).unwrap().opcode(), CqeOpcode::REQUESTER);
    assert_eq!(host.good(A).0.opcode_qpn().wqe_opcode(), Opcode::NOP.0);
    let seen = host.poll_recv(B).unwrap();
    assert_eq!((seen.opcode(), seen.0.imm_inval.get()), (CqeOpcode::RESPONDER_WRITE_IMM, 0xabcd));
    assert_eq!(host.get(at + 8, 21), pattern(21, 6));

    host.put(at, &5u64.to_le_bytes());
    for (opcode, compare, operand, after) in
        [(Opcode::ATOMIC_CS, 4, 9, 5u64), (Opcode::ATOMIC_CS, 5, 9, 9), (Opcode::ATOMIC_FA, 0, u64::MAX, 8)]
    {
        let before = host.get(at, 8);
        let operands = AtomicSegment { swap_add: operand.into(), compare: compare.into() };
        let wqe = Wqe::new(opcode, 0).with(&remote(at, key)).with(&operands);
        assert_eq!(host.succeeds(A, wqe.with(&segment(back, 8, back_key))).0.byte_count.get(), 8);
        assert_eq!((host.get(back, 8), host.get(at, 8)), (before, after.to_le_bytes().to_vec()));
    }
}

#[test]
fn receives_that_are_too_short_or_wrong() {
    let mut host = Host::new();
    let (at, key) = host.filled(&[7; 64]);
    let (to, to_key) = host.region(64, Access::ALL);
    host.post_receive(B, &[segment(to, 32, to_key)]);
    assert_eq!(
        host.fails(A, send(Opcode::SEND, 0, &[segment(at, 33, key)])).syndrome(),
        Syndrome::REMOTE_INVALID_REQUEST
    );
    assert_eq!(host.poll_recv(B).unwrap().syndrome(), Syndrome::LOCAL_LENGTH);
    host.recover();
    host.post_receive(B, &[segment(to, 64, Key::from_raw(0xdead_be00))]);
    assert_eq!(
        host.fails(A, send(Opcode::SEND, 0, &[segment(at, 33, key)])).syndrome(),
        Syndrome::REMOTE_OPERATION
    );
    assert_eq!(host.poll_recv(B).unwrap().syndrome(), Syndrome::LOCAL_PROTECTION);
    host.recover();
    // A receive list without an end marker ends with its slot.
    let four: Vec<DataSegment> = (0..4).map(|i| segment(to + i * 16, 16, to_key)).collect();
    host.post_receive(B, &four);
    host.succeeds(A, send(Opcode::SEND, 0, &[segment(at, 64, key)]));
    assert_eq!(host.get(to, 64), [7; 64]);
}

#[test]
fn a_queue_pair_may_be_its_own_peer() {
    let mut host = Host::new();
    let qpn = host.q[A].qpn;
    host.device.connect(qpn, Peer::Local(qpn)).unwrap();
    let data = pattern(64, 9);
    let (at, key) = host.filled(&data);
    let (to, to_key) = host.region(64, Access::ALL);
    host.post_receive(A, &[segment(to, 64, to_key)]);
    host.post(A, send(Opcode::SEND, 0, &[segment(at, 64, key)]));
    host.execute(A, rdma(Opcode::RDMA_WRITE, 0, to, Key::from_raw(0x7777_7700), &[segment(at, 64, key)]));
    assert_eq!(host.poll_send(A).unwrap().opcode(), CqeOpcode::REQUESTER);
    assert_eq!(host.bad(A).syndrome(), Syndrome::REMOTE_ACCESS);
    assert_eq!(host.get(to, 64), data);
}

#[test]
fn umrs_that_do_not_fit_change_nothing() {
    let mut host = Host::new();
    let data = pattern(64, 1);
    let (at, key) = host.filled(&data);
    let mkey = host.mkey(true, false);
    let good = Config::new(&mkey).access(LW | RW).list(&[(at, 64, key)]);
    host.configure(good.clone());
    let sig = good.clone().signature(Sig::t10(1, 2), Sig::None, 0xff);
    let mut cases = vec![
        ("entries", Config::new(&mkey).list(&[(at, 1, key); 17]).umr()),
        ("strided entries", Config::new(&mkey).strided(1, &[(at, 1, 0, key); 16]).umr()),
        ("crypto BSF", good.clone().crypto(0, 1, [0; 16], 1).umr()),
        ("other domain", Config { mask: good.mask | 1 << 7, ..good.clone() }.umr()),
    ];
    let mut size = sig.clone().umr();
    size.0[192] = 0xc0;
    cases.push(("BSF size", size));
    let mut inline = good.clone().umr();
    inline.0[16] = 0;
    cases.push(("not inline", inline));
    let mut long = good.clone().umr();
    long.0.extend_from_slice(&[0; 64]);
    cases.push(("more than its sizes say", long));
    for (what, at) in [("reserved flags", 16), ("reserved bytes", 17), ("last reserved byte", 63)] {
        let mut reserved = good.clone().umr();
        reserved.0[at] |= 1;
        cases.push((what, reserved));
    }
    for (what, wqe) in cases {
        host.execute(A, wqe);
        host.bad(A);
        host.recover();
        assert_eq!(host.send_from(mkey.key, 0, 64), data, "{what}");
        host.good(A);
        host.poll_recv(B);
    }
}

/// An interleaved layout states the bytes of a cycle twice: in its header, and as the sum of its entries'
/// lengths. If the two differ, the sum counts. Entries behind the requested bytes are not checked.
#[test]
fn cycles_are_as_long_as_their_entries() {
    let mut host = Host::new();
    let data = pattern(64, 1);
    let (at, region) = host.filled(&data);
    let nothing = Key::from_raw(0x7777_7700);
    let mkey = host.mkey(false, false);
    let config = || Config::new(&mkey).access(LW).strided(1, &[(at, 32, 0, region), (at, 32, 0, nothing)]);
    host.configure(config());
    assert_eq!(host.send_from(mkey.key, 0, 32), data[..32]);
    host.good(A);
    for cycle in [63_u32, 65, 0] {
        let mut config = config();
        config.entries[0][..4].copy_from_slice(&cycle.to_be_bytes());
        config.context.len = 64.into();
        host.configure(config);
        assert_eq!(host.send_from(mkey.key, 0, 32), data[..32], "{cycle}");
        host.good(A);
    }
    // Entries without bytes map no memory, however often they are repeated.
    let mut config = Config::new(&mkey).access(LW).strided(u32::MAX, &[(at, 0, 0, region)]);
    config.context.len = 64.into();
    host.configure(config);
    host.send_from(mkey.key, 0, 32);
    assert_eq!(host.bad(A).reason(), Reason::BehindEntries { key: mkey.key.get(), end: 32, mapped: 0 });
}

/// The longest message is limited, for any number of segments and any sender.
#[test]
fn a_device_has_a_longest_message() {
    const LONGEST: u32 = 4096;
    let profile = DeviceProfile { max_message_bytes: LONGEST, ..Default::default() };
    let mut host = Host::with(profile, |_| {});
    let (at, key) = host.filled(&[7; 8192]);
    for pieces in [1, 2] {
        for (length, good) in [(LONGEST, true), (LONGEST + 1, false), (LONGEST + 2, false)] {
            let first = if pieces == 1 { length } else { LONGEST / 2 };
            let segments: Vec<_> = [first, length - first]
                .into_iter()
                .take(pieces)
                .map(|bytes| segment(at, bytes, key))
                .collect();
            for opcode in [Opcode::RDMA_WRITE, Opcode::RDMA_READ] {
                host.execute(A, rdma(opcode, 0, at, key, &segments));
                if good {
                    assert_eq!(host.good(A).0.byte_count.get(), LONGEST);
                    continue;
                }
                let seen = host.bad(A);
                let length = (Syndrome::LOCAL_LENGTH, Refusal::Length);
                assert_eq!((seen.syndrome(), seen.why()), length, "{opcode:?} of {pieces}");
                host.recover();
            }
        }
    }
    // The peer is another device with a higher limit. This device refuses the longer one of its messages.
    let b = host.q[B].qpn;
    for (sequence, length) in [(0, LONGEST), (1, LONGEST + 1)] {
        let data = std::sync::Arc::new(vec![1; length as usize]);
        let request =
            Request::Write { rkey: key.get(), address: at, data, immediate: None, solicited: false };
        host.device.connect(b, Peer::Remote(7)).unwrap();
        host.device.deliver(Message::Request { from: 7, to: b, sequence: sequence << 24, request });
        let Some(Message::Response { response, .. }) = host.device.take_message() else { panic!() };
        let refused =
            |syndrome: &Syndrome| length != LONGEST && *syndrome == Syndrome::REMOTE_INVALID_REQUEST;
        match response {
            Response::Done => assert_eq!(length, LONGEST),
            Response::Refused { syndrome, .. } => assert!(refused(&syndrome)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn keys_of_memory_that_is_not_there() {
    let mut host = Host::new();
    let key = host.device.register(host.pd, 0x1000, 1 << 40, Access::ALL).unwrap();
    host.send_from(key, 0x2000, 64);
    assert_eq!(host.bad(A).why(), Refusal::MemoryFault);
    host.recover();
    host.write_into(key, 0x2000, &[1; 64]);
    assert_eq!(host.bad(B).syndrome(), Syndrome::REMOTE_OPERATION);
}

#[test]
fn lost_and_late_messages() {
    let mut host = Host::new();
    let qpn = host.q[A].qpn;
    host.device.connect(qpn, Peer::Remote(0x99)).unwrap();
    let first = host.post(A, send(Opcode::SEND, 0, &[]));
    host.execute(A, send(Opcode::SEND, 0, &[]));
    let answer = |message: Message, response: Response| match message {
        Message::Request { from, sequence, to: 0x99, .. } => {
            Message::Response { to: from, sequence, response }
        }
        other => panic!("{other:?}"),
    };
    let done = answer(host.device.take_message().unwrap(), Response::Done);
    host.device.deliver(done.clone());
    assert_eq!(host.poll_send(A).unwrap().counter(), first);
    host.device.deliver(done);
    assert!(host.poll_send(A).is_none(), "an answer counts once");
    let lost = answer(host.device.take_message().unwrap(), Response::Unreachable);
    host.device.deliver(lost);
    assert_eq!(host.bad(A).syndrome(), Syndrome::TRANSPORT_RETRY);
    // The answer has fewer bytes than the request asked for.
    host.recover();
    let (at, key) = host.region(8, Access::ALL);
    host.execute(A, rdma(Opcode::RDMA_READ, 0, 0, key, &[segment(at, 8, key)]));
    let short = answer(host.device.take_message().unwrap(), Response::Data(vec![1; 7]));
    host.device.deliver(short);
    assert_eq!(host.bad(A).syndrome(), Syndrome::BAD_RESPONSE);
}
