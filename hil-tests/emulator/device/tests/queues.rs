//! Tests of rings, counters, states and completions, independent of data (DEVICE.md, "Completion entries").

use crate::common::*;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::{FmCeSe, Opcode};
use mlx5_softdev::*;

fn nop() -> Wqe {
    Wqe::new(Opcode::NOP, 0)
}

#[test]
fn completion_modes() {
    let mut host = Host::new();
    host.post(A, nop().silent());
    host.post(A, nop().ce(FmCeSe::CE_NO_FLUSH_ERROR));
    let counter = host.execute(A, nop());
    assert_eq!(host.good(A).counter(), counter);
}

/// Memory of a host that overwrites the whole send ring as soon as a completion arrives.
#[derive(Debug)]
struct Reused(Counted, u64);

impl Memory for Reused {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.0.read(address, out)
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.0.write(address, bytes)
    }
    fn publish(&mut self, address: u64, byte: u8) -> Result<(), Fault> {
        self.0.publish(address, byte)?;
        self.0.write(self.1, &[0xff; 64 << LOG_SQ])
    }
}

/// A completion also covers the silent NOPs behind its request. Software may overwrite these NOPs.
#[test]
fn a_completion_comes_behind_the_nops_that_follow() {
    let mut host = Host::new();
    host.post(A, nop());
    host.post(A, nop().silent());
    // A NOP of several blocks follows, then more NOPs than the device reads ahead.
    host.post(A, Wqe(nop().silent().0.into_iter().chain([0; 112]).collect()));
    for _ in 0..58 {
        host.post(A, nop().silent());
    }
    let queue = host.q[A];
    host.put(queue.attributes.doorbell_record + 4, &u32::from(queue.producer).to_be_bytes());
    let arena = host.device.memory().clone();
    let mut device = Device::new(Reused(arena, queue.attributes.sq), DeviceProfile::default());
    let pd = device.alloc_pd().unwrap();
    let cqn = device.create_cq(CqAttributes {
        ring: queue.send_cq.address,
        log_entries: LOG_CQ,
        entry_bytes: 64,
        doorbell_record: queue.send_cq.record,
        ignore_overrun: false,
    });
    let (send_cqn, recv_cqn) = (cqn.unwrap(), Some(cqn.unwrap()));
    device.set_numbers(Numbered::Qp, queue.qpn, queue.qpn).unwrap();
    let qpn = device.create_qp(QpAttributes { pd, send_cqn, recv_cqn, ..queue.attributes }).unwrap();
    device.activate(qpn).unwrap();
    device.doorbell(qpn).unwrap();
    let view = device.query(qpn).unwrap();
    assert_eq!((view.state, view.hw_sq_wqebb_counter), (QpState::ReadyToSend, queue.producer));
    assert_eq!(device.cq_producer(send_cqn), Ok(1));
}

/// A send queue that drains stops before the NOPs behind its last request, so that software may change them.
#[test]
fn a_drained_queue_passes_no_nops() {
    let mut host = Host::new();
    let qpn = host.q[A].qpn;
    host.post(A, send(Opcode::SEND, 0, &[]));
    let counter = host.execute(A, nop().silent());
    host.device.modify(qpn, QpState::SendQueueDrained).unwrap();
    host.post_receive(B, &[]);
    host.device.run();
    host.good(A);
    let view = host.device.query(qpn).unwrap();
    assert_eq!((view.state, view.hw_sq_wqebb_counter), (QpState::SendQueueDrained, counter));
    assert_eq!(host.device.take_events(), [Event::SqDrained(qpn)]);
    // The queue stands still already, so only one event is raised.
    host.device.modify(qpn, QpState::SendQueueDrained).unwrap();
    assert!(host.device.take_events().is_empty());
}

/// Too many NOPs behind an outstanding SEND overrun the ring. The device notices the overrun only when the
/// SEND is done.
#[test]
fn too_much_rung_behind_a_request_that_waits_is_fatal() {
    let mut host = Host::new();
    host.execute(A, send(Opcode::SEND, 0, &[]));
    for _ in 0..1 << LOG_SQ {
        host.post(A, nop().silent());
    }
    host.q[A].producer += 6;
    host.ring(A);
    assert!(host.device.take_events().is_empty(), "nothing is looked at before");
    host.post_receive(B, &[]);
    host.device.run();
    assert_eq!(host.device.take_events(), [Event::QpFatal(host.q[A].qpn)]);
}

#[test]
fn errors_flush_both_queues() {
    let mut host = Host::new();
    let (to, key) = host.region(64, Access::ALL);
    host.post_receive(A, &[segment(to, 64, key)]);
    host.post_receive(A, &[segment(to, 64, key)]);
    let counters = [
        host.post(A, send(Opcode::SEND, 0, &[segment(0, 1, key)]).silent()),
        host.post(A, nop()),
        host.post(A, nop().silent()),
    ];
    let seen = host.fails(A, nop().ce(FmCeSe::CE_NO_FLUSH_ERROR));
    assert_eq!((seen.syndrome(), seen.counter()), (Syndrome::LOCAL_PROTECTION, counters[0]));
    for counter in &counters[1..] {
        let seen = host.bad(A);
        assert_eq!((seen.syndrome(), seen.counter()), (Syndrome::FLUSHED, *counter));
    }
    assert!(host.poll_send(A).is_none());
    for counter in [0, 1] {
        let seen = host.poll_recv(A).unwrap();
        assert_eq!((seen.opcode(), seen.syndrome()), (CqeOpcode::RESPONDER_ERROR, Syndrome::FLUSHED));
        assert_eq!(seen.counter(), counter);
    }
    // Later requests are flushed too, and the peer gets no answer.
    assert_eq!(host.fails(A, nop()).syndrome(), Syndrome::FLUSHED);
    assert_eq!(host.fails(B, send(Opcode::SEND, 0, &[])).syndrome(), Syndrome::TRANSPORT_RETRY);
}

/// A run reads no memory of queue pairs without work. A receive request of a failed queue pair is work,
/// although no doorbell announces it.
#[test]
fn a_run_looks_at_queues_with_work_only() {
    let mut host = Host::new();
    let before = host.device.memory().read.get();
    host.post(A, nop());
    for _ in 0..3 {
        host.device.run();
    }
    assert_eq!(host.device.memory().read.get(), before, "no doorbell has rung");
    host.device.modify(host.q[B].qpn, QpState::Error).unwrap();
    host.device.run();
    host.post_receive(B, &[]);
    assert!(host.poll_recv(B).is_none());
    host.device.run();
    assert_eq!(host.poll_recv(B).unwrap().syndrome(), Syndrome::FLUSHED);
    // After a reset, the queue pair is no longer failed.
    host.device.modify(host.q[B].qpn, QpState::Reset).unwrap();
    let before = host.device.memory().read.get();
    host.device.run();
    assert_eq!(host.device.memory().read.get(), before, "a reset queue pair has no work");
}

/// In the error state, malformed requests are flushed like all other requests.
#[test]
fn malformed_requests_are_flushed() {
    let mut host = Host::new();
    host.device.modify(host.q[A].qpn, QpState::Error).unwrap();
    let counter = host.post(A, nop());
    host.put(host.q[A].attributes.sq + 64 * u64::from(counter) + 6, &[0x55]);
    host.ring(A);
    let seen = host.bad(A);
    assert_eq!((seen.syndrome(), seen.vendor(), seen.counter()), (Syndrome::FLUSHED, 0xf9, counter));
}

/// A command that puts a queue pair into an error state also flushes outstanding requests, since the peer may
/// never answer them.
#[test]
fn an_error_by_command_flushes_what_waits() {
    for state in [QpState::Error, QpState::SendQueueError] {
        let mut host = Host::new();
        let counters = [host.post(A, send(Opcode::SEND, 0, &[])), host.post(A, nop())];
        host.ring(A);
        host.device.modify(host.q[A].qpn, state).unwrap();
        host.device.run();
        for counter in counters {
            let seen = host.bad(A);
            assert_eq!((seen.syndrome(), seen.counter()), (Syndrome::FLUSHED, counter), "{state:?}");
        }
        assert!(!host.device.is_waiting());
    }
}

/// The number of repetitions and the first block of the send queue can be set.
#[test]
fn a_queue_pair_is_told_how_often_to_repeat_and_where_to_begin() {
    let mut host = Host::new();
    let qpn = host.q[A].qpn;
    host.device.set_rnr_retry(qpn, Retries::Count(0)).unwrap();
    assert_eq!(host.fails(A, send(Opcode::SEND, 0, &[])).syndrome(), Syndrome::RNR_RETRY);
    assert_eq!(host.device.set_send_counter(qpn, 5), Err(Error::InUse));
    host.device.modify(qpn, QpState::Reset).unwrap();
    host.device.set_send_counter(qpn, 5).unwrap();
    host.device.activate(qpn).unwrap();
    host.q[A].producer = 5;
    assert_eq!(host.post(A, nop()), 5);
    host.ring(A);
    assert_eq!(host.good(A).counter(), 5);
    assert_eq!(host.device.query(qpn).unwrap().hw_sq_wqebb_counter, 6);
}

#[test]
fn sizes_of_queue_pairs_have_limits() {
    let mut host = Host::new();
    let good = host.q[A].attributes;
    let ring = |log_slots, stride| {
        let ring = ReceiveRing { address: BASE, log_slots, stride };
        QpAttributes { receive: ReceiveQueue::Own(ring), ..good }
    };
    let ring_size = Err(Error::BadAttribute("ring size"));
    let slot_size = Err(Error::BadAttribute("receive slot size"));
    for (attributes, expected) in [
        (QpAttributes { log_sq_blocks: 15, ..good }, Ok(())),
        (QpAttributes { log_sq_blocks: 16, ..good }, ring_size),
        (QpAttributes { log_sq_blocks: 17, ..good }, ring_size),
        (ring(15, 64), Ok(())),
        (ring(16, 64), ring_size),
        (ring(17, 64), ring_size),
        (ring(4, 16), Ok(())),
        (ring(4, 1024), Ok(())),
        (ring(4, 1040), slot_size),
        (ring(4, 2048), slot_size),
        (ring(4, 24), slot_size),
    ] {
        assert_eq!(host.device.create_qp(attributes).map(drop), expected, "{attributes:?}");
    }
}

/// A full ring of receive requests is valid. A doorbell record with a higher count is invalid.
#[test]
fn a_full_ring_of_receives_is_used() {
    for (posted, used) in [(1 << LOG_RQ, true), ((1 << LOG_RQ) + 1, false), (0xffff, false)] {
        let mut host = Host::with(DeviceProfile::default(), |a| a.rnr_retry = Retries::Count(0));
        for slot in 0..1_u64 << LOG_RQ {
            let end = mlx5_mkey::wire::data::DataSegment::END_OF_LIST;
            let at = host.q[B].receives_at() + slot * u64::from(RQ_STRIDE);
            host.put(at, zerocopy::IntoBytes::as_bytes(&end));
        }
        host.put(host.q[B].attributes.doorbell_record, &u32::to_be_bytes(posted));
        host.execute(A, send(Opcode::SEND, 0, &[]));
        match used {
            true => {
                assert_eq!((host.good(A).opcode(), host.poll_recv(B).is_some()), (CqeOpcode::REQUESTER, true))
            }
            false => assert_eq!(host.bad(A).syndrome(), Syndrome::RNR_RETRY, "{posted}"),
        }
    }
}

#[test]
fn a_request_waits_for_a_receive_without_end() {
    let mut host = Host::new();
    host.post(A, send(Opcode::SEND_IMM, 5, &[]));
    host.execute(A, nop());
    for _ in 0..300 {
        host.device.run();
    }
    assert!(host.poll_send(A).is_none(), "infinite retries");
    host.post_receive(B, &[]);
    host.device.run();
    assert_eq!(host.poll_send(A).unwrap().opcode(), CqeOpcode::REQUESTER);
    host.good(A);
    assert_eq!(host.poll_recv(B).unwrap().0.imm_inval.get(), 5);
}

#[test]
fn a_full_completion_queue_is_not_overwritten() {
    let mut host = Host::new();
    let entries = 1u16 << LOG_CQ;
    for _ in 0..entries {
        host.execute(A, nop());
    }
    assert!(host.device.take_events().is_empty());
    let ring = host.q[A].send_cq;
    let before = host.get(ring.address, 64 << LOG_CQ);
    host.execute(A, nop());
    assert_eq!(host.device.take_events(), [Event::CqError(ring.cqn)]);
    assert_eq!(host.get(ring.address, 64 << LOG_CQ), before);
    assert_eq!(host.device.query(host.q[A].qpn).unwrap().state, QpState::Error);
    assert_eq!(host.device.cq_producer(ring.cqn), Ok(u32::from(entries)));
    for _ in 0..entries {
        host.poll_send(A).unwrap();
    }
    assert!(host.poll_send(A).is_none());
}

/// A collapsed completion queue keeps only its last entry, at the start of its ring.
#[test]
fn a_collapsed_queue_keeps_its_last_entry() {
    let mut host = Host::new();
    let (ring, record) = (host.alloc(4 * 64), host.alloc(8));
    let attributes =
        CqAttributes { ring, log_entries: 2, entry_bytes: 64, doorbell_record: record, ignore_overrun: true };
    let cqn = host.device.create_cq(attributes).unwrap();
    host.device.collapse_cq(cqn).unwrap();
    let attributes = QpAttributes { send_cqn: cqn, recv_cqn: Some(cqn), ..host.q[A].attributes };
    host.device.destroy_qp(host.q[A].qpn).unwrap();
    host.q[A].qpn = host.device.create_qp(attributes).unwrap();
    host.device.activate(host.q[A].qpn).unwrap();
    for _ in 0..10 {
        let counter = host.execute(A, nop());
        assert_eq!(host.get(ring + 60, 2), counter.to_be_bytes());
        assert_eq!(host.get(ring + 64, 3 * 64), [0; 3 * 64], "the rest of the ring is untouched");
    }
    assert!(host.device.collapse_cq(cqn + 100).is_err());
}

/// Without a receive queue, the device reads no receive requests: a SEND fails after its last repetition, and
/// an error flushes nothing.
#[test]
fn a_queue_pair_without_a_receive_queue() {
    let mut host = Host::with(DeviceProfile::default(), |attributes| {
        (attributes.receive, attributes.recv_cqn) = (ReceiveQueue::None, None);
        attributes.rnr_retry = Retries::Count(0);
    });
    // The doorbell record has a valid count of receive requests.
    host.put(host.q[B].attributes.doorbell_record, &5_u32.to_be_bytes());
    let (from, key) = host.filled(b"no receive queue");
    let (to, target) = host.region(16, Access::ALL);
    host.succeeds(A, rdma(Opcode::RDMA_WRITE, 0, to, target, &[segment(from, 16, key)]));
    assert_eq!(host.get(to, 16), b"no receive queue");
    assert_eq!(
        host.fails(A, send(Opcode::SEND, 0, &[segment(from, 16, key)])).syndrome(),
        Syndrome::RNR_RETRY
    );
    host.device.modify(host.q[B].qpn, QpState::Error).unwrap();
    host.device.run();
    let view = host.device.query(host.q[B].qpn).unwrap();
    assert_eq!((view.hw_rq_counter, host.poll_send(B).is_none()), (0, true), "nothing to flush");
}

/// A new queue pair is refused if a completion queue that it names does not exist, or if it has a receive
/// queue and names no completion queue for it.
#[test]
fn a_queue_pair_of_queues_that_are_not_there_is_refused() {
    let mut host = Host::new();
    let attributes = host.q[A].attributes;
    let missing = Err(Error::NoSuchObject { what: "CQ", number: 0x77 });
    for (send_cqn, recv_cqn) in
        [(0x77, attributes.recv_cqn), (attributes.send_cqn, Some(0x77)), (0x77, Some(0x77))]
    {
        let attributes = QpAttributes { send_cqn, recv_cqn, ..attributes };
        assert_eq!(host.device.create_qp(attributes), missing);
        assert_eq!(
            host.device.create_qp(QpAttributes { receive: ReceiveQueue::None, ..attributes }),
            missing
        );
    }
    let nowhere = QpAttributes { recv_cqn: None, ..attributes };
    assert_eq!(host.device.create_qp(nowhere), Err(Error::BadAttribute("receive CQ")));
    assert!(host.device.create_qp(QpAttributes { receive: ReceiveQueue::None, ..nowhere }).is_ok());
}

#[test]
fn completion_entries_of_128_bytes() {
    let mut host = Host::new();
    let ring = host.alloc(4 * 128);
    let record = host.alloc(8);
    let cqn = host
        .device
        .create_cq(CqAttributes {
            ring,
            log_entries: 2,
            entry_bytes: 128,
            doorbell_record: record,
            ignore_overrun: false,
        })
        .unwrap();
    let attributes = QpAttributes { send_cqn: cqn, ..host.q[A].attributes };
    let qpn = host.device.create_qp(attributes).unwrap();
    host.device.activate(qpn).unwrap();
    host.q[A].qpn = qpn;
    host.put(ring, &[0xee; 512]);
    host.execute(A, nop());
    assert_eq!(host.get(ring, 64), [0xee; 64]);
    assert_eq!(host.get(ring + 127, 1), [0], "opcode 0, owner 0");
    assert_eq!(host.get(ring + 128, 384), [0xee; 384]);
}

#[test]
fn completions_have_the_time() {
    let mut host = Host::new();
    let mut ticks = 0x0102_0304_0506_0000;
    host.device.set_clock(move || {
        ticks += 7;
        ticks
    });
    for round in 1..4 {
        host.execute(A, nop());
        let entry = host.poll_send(A).unwrap();
        assert_eq!(entry.0.timestamp.get(), 0x0102_0304_0506_0000 + 7 * round);
    }
}

#[test]
fn a_request_comes_with_the_doorbell() {
    let mut host = Host::new();
    let (qpn, sq) = (host.q[A].qpn, host.q[A].attributes.sq);
    let block = |host: &Host, index: u64| -> [u8; 64] { host.get(sq + 64 * index, 64).try_into().unwrap() };
    // The request in the ring asks for a completion. The block that comes with the doorbell asks for none.
    host.post(A, nop());
    let mut silent = block(&host, 0);
    assert_eq!(silent[11] & 0x0c, 0x08);
    silent[11] = 0;
    host.device.blue_flame(qpn, &[silent]).unwrap();
    host.ring(A);
    assert!(host.poll_send(A).is_none());
    // A block that is not the next one is ignored, and the request is read from the ring.
    host.post(A, nop());
    host.device.blue_flame(qpn, &[silent]).unwrap();
    host.ring(A);
    assert!(host.poll_send(A).is_some());
    assert!(host.device.blue_flame(0xff_ffff, &[silent]).is_err());
}

#[test]
fn states_and_their_transitions() {
    use QpState as S;
    let mut host = Host::new();
    let qpn = host.q[A].qpn;
    let modify = |host: &mut Host, to| host.device.modify(qpn, to);
    assert_eq!(modify(&mut host, S::Init), Err(Error::BadTransition { from: S::ReadyToSend, to: S::Init }));
    modify(&mut host, S::SendQueueDrained).unwrap();
    assert_eq!(host.device.take_events(), [Event::SqDrained(qpn)]);
    host.execute(A, nop());
    assert!(host.poll_send(A).is_none(), "drained: nothing runs");
    modify(&mut host, S::ReadyToSend).unwrap();
    host.device.run();
    host.good(A);
    // A SEND for which the peer has no receive request yet delays the event SQ_DRAINED.
    host.execute(A, send(Opcode::SEND, 0, &[]));
    modify(&mut host, S::SendQueueDrained).unwrap();
    assert!(host.device.take_events().is_empty());
    host.post_receive(B, &[]);
    host.device.run();
    assert_eq!(host.device.take_events(), [Event::SqDrained(qpn)]);
    host.good(A);
    modify(&mut host, S::Error).unwrap();
    assert!(modify(&mut host, S::ReadyToSend).is_err());
    modify(&mut host, S::Reset).unwrap();
    assert_eq!(host.device.query(qpn).unwrap().hw_sq_wqebb_counter, 0);
    assert_eq!(host.device.modify(1, S::Reset), Err(Error::NoSuchObject { what: "QP", number: 1 }));
}

#[test]
fn malformed_requests_fail() {
    let mut host = Host::new();
    let (at, key) = host.region(64, Access::ALL);
    let cases: [(&str, Wqe); 6] = [
        ("unknown opcode", Wqe::new(Opcode(0x55), 0)),
        ("half a segment", send(Opcode::SEND, 0, &[]).with(&[0u8; 8][..])),
        ("UMR without context", Wqe::new(Opcode::UMR, key.get()).with(&[0x80u8; 48][..])),
        ("UMR of a region", local_inv(key)),
        ("read without address", Wqe::new(Opcode::RDMA_READ, 0)),
        ("unknown PSV", set_psv(77, 0)),
    ];
    for (what, wqe) in cases {
        let mut wqe = wqe;
        if what == "half a segment" {
            wqe.0.extend_from_slice(&0x8000_0040u32.to_be_bytes());
        }
        let seen = host.fails(A, wqe);
        assert_ne!(seen.vendor(), 0, "{what}");
        host.recover();
    }
    // The device refuses requests that name another queue or block, or extend past the announced blocks.
    for spoil in [(1u64, 1u8), (6, 0x55), (7, 63)] {
        let counter = host.post(A, send(Opcode::SEND, 0, &[segment(at, 8, key)]));
        let slot = host.q[A].attributes.sq + u64::from(counter) * 64;
        host.put(slot + spoil.0, &[spoil.1]);
        host.ring(A);
        let seen = host.bad(A);
        assert_eq!((seen.syndrome(), seen.why()), (Syndrome::LOCAL_QP_OPERATION, Refusal::Malformed));
        host.recover();
    }
    // The doorbell announces more blocks than the ring has.
    host.q[A].producer = 1000;
    host.ring(A);
    assert_eq!(host.device.take_events(), [Event::QpFatal(host.q[A].qpn)]);
}

#[test]
fn objects_that_are_used_stay() {
    let mut host = Host::new();
    let queue = host.q[A];
    assert_eq!(host.device.dealloc_pd(host.pd), Err(Error::InUse));
    assert_eq!(host.device.destroy_cq(queue.send_cq.cqn), Err(Error::InUse));
    host.device.destroy_qp(queue.qpn).unwrap();
    host.device.destroy_cq(queue.send_cq.cqn).unwrap();
    assert!(host.device.doorbell(queue.qpn).is_err());
    let key = host.device.register(host.pd, BASE, 64, Access::ALL).unwrap();
    host.device.destroy_mkey(key.index()).unwrap();
    assert!(host.device.register(host.pd, u64::MAX, 2, Access::ALL).is_err());
    assert!(host.device.create_psvs(host.pd, 5).is_err());
}
