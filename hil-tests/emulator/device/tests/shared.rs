//! Tests of receive requests that several queue pairs share: of the order of the list, of events, and of
//! invalid lists.

use crate::common::*;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::data::DataSegment;
use mlx5_softdev::*;

const SLOTS: u16 = 8;
const STRIDE: u64 = 64;

/// Two queue pairs that take receive requests from one shared queue. The test links the free slots of this
/// queue as software does.
struct Shared {
    host: Host,
    attributes: SrqAttributes,
    srq: u32,
    /// The slot that is posted next, and the number of posted slots.
    head: u16,
    posted: u16,
}

impl Shared {
    /// Returns a host with a shared receive queue whose slots are linked in this order. `order` contains each
    /// slot once.
    fn new(order: [u16; SLOTS as usize]) -> Self {
        Self::of(Topology::LinkedList, order)
    }

    fn of(topology: Topology, order: [u16; SLOTS as usize]) -> Self {
        let mut host = Host::new();
        let attributes = SrqAttributes {
            topology,
            pd: host.pd,
            ring: host.alloc(usize::from(SLOTS) * STRIDE as usize),
            log_slots: 3,
            stride: STRIDE as u16,
            doorbell_record: host.alloc(8),
        };
        let srq = host.device.create_srq(attributes).unwrap();
        for at in [A, B] {
            let receive = ReceiveQueue::Shared(srq);
            host.device.destroy_qp(host.q[at].qpn).unwrap();
            let qpn = host.device.create_qp(QpAttributes { receive, ..host.q[at].attributes }).unwrap();
            host.device.activate(qpn).unwrap();
            host.q[at].qpn = qpn;
        }
        for at in [A, B] {
            host.device.connect(host.q[at].qpn, Peer::Local(host.q[1 - at].qpn)).unwrap();
        }
        let mut shared = Self { host, attributes, srq, head: order[0], posted: 0 };
        for (index, slot) in order.iter().enumerate() {
            let next = order[(index + 1) % order.len()];
            shared.link(*slot, next);
        }
        shared
    }

    fn link(&mut self, slot: u16, next: u16) {
        let at = self.attributes.ring + u64::from(slot) * STRIDE;
        self.host.put(at + 2, &next.to_be_bytes());
    }

    fn post(&mut self, segments: &[DataSegment]) -> u16 {
        let (slot, at) = (self.head, self.attributes.ring + u64::from(self.head) * STRIDE);
        let segments = segments.iter().chain([&DataSegment::END_OF_LIST]);
        for (index, segment) in segments.enumerate() {
            self.host.put(at + 16 + 16 * index as u64, zerocopy::IntoBytes::as_bytes(segment));
        }
        self.head = u16::from_be_bytes(self.host.get(at + 2, 2).try_into().unwrap());
        self.posted += 1;
        self.host.put(self.attributes.doorbell_record, &u32::from(self.posted).to_be_bytes());
        slot
    }

    fn send(&mut self, from: usize, byte: u8) {
        let (at, key) = self.host.filled(&[byte; 16]);
        self.host.execute(from, send(Opcode::SEND, 0, &[segment(at, 16, key)]));
    }
}

const STRAIGHT: [u16; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn receives_are_taken_along_the_list_by_all_queue_pairs() {
    let order = [0, 5, 2, 7, 1, 6, 3, 4];
    let mut shared = Shared::new(order);
    // The test takes all slots several times: its list of free slots is a ring.
    for lap in 0..3 {
        let (to, key) = shared.host.region(16 * 8, Access::ALL);
        let slots: Vec<u16> = (0..7).map(|index| shared.post(&[segment(to + 16 * index, 16, key)])).collect();
        for (index, slot) in slots.iter().enumerate() {
            let from = index % 2;
            shared.send(from, index as u8 + 1);
            shared.host.good(from);
            let seen = shared.host.poll_recv(1 - from).unwrap();
            assert_eq!((seen.opcode(), seen.counter()), (CqeOpcode::RESPONDER_SEND, *slot), "{lap}");
            assert_eq!(seen.0.user_index.get(), shared.host.q[1 - from].attributes.user_index);
            assert_eq!(shared.host.get(to + 16 * index as u64, 16), [index as u8 + 1; 16]);
        }
    }
}

/// In a cyclic queue, the device ignores links and takes the slots in order. The counter in completions
/// counts receive requests: it does not start again after the last slot.
#[test]
fn receives_of_a_cyclic_queue_are_taken_in_order_and_counted() {
    let mut shared = Shared::of(Topology::Cyclic, STRAIGHT);
    let (to, key) = shared.host.region(16, Access::ALL);
    for count in 0..3 * SLOTS {
        let slot = shared.post(&[segment(to, 16, key)]);
        assert_eq!(slot, count % SLOTS);
        // `post` has already read the link of this slot to find the next free slot. The device must ignore
        // the link, so the test writes an invalid link until the slot is free again.
        shared.link(slot, 0x1234);
        shared.send(A, count as u8 + 1);
        shared.host.good(A);
        assert_eq!(shared.host.poll_recv(B).unwrap().counter(), count);
        assert_eq!(shared.host.get(to, 16), [count as u8 + 1; 16]);
        shared.link(slot, (slot + 1) % SLOTS);
    }
    assert_eq!(shared.host.device.take_events(), []);
    // All slots can be posted: a cyclic queue needs no free slot as its end.
    (0..SLOTS).for_each(|_| _ = shared.post(&[segment(to, 16, key)]));
    for count in 0..SLOTS {
        shared.send(A, 1);
        shared.host.good(A);
        assert_eq!(shared.host.poll_recv(B).unwrap().counter(), 3 * SLOTS + count);
    }
}

#[test]
fn senders_wait_for_a_shared_receive() {
    let mut shared = Shared::new(STRAIGHT);
    shared.send(A, 1);
    assert!(shared.host.poll_send(A).is_none() && shared.host.device.is_waiting());
    let (to, key) = shared.host.region(16, Access::ALL);
    shared.post(&[segment(to, 16, key)]);
    shared.host.device.run();
    shared.host.good(A);
    assert_eq!(shared.host.get(to, 16), [1; 16]);
    // A write with immediate data takes a receive request, too.
    shared.post(&[]);
    let wqe = rdma(Opcode::RDMA_WRITE_IMM, 7, to, key, &[segment(to, 16, key)]);
    shared.host.succeeds(A, wqe);
    shared.host.poll_recv(B).unwrap();
    assert_eq!(shared.host.poll_recv(B).unwrap().counter(), 1);
}

#[test]
fn a_limit_is_told_once() {
    let mut shared = Shared::new(STRAIGHT);
    let (to, key) = shared.host.region(16, Access::ALL);
    (0..4).for_each(|_| _ = shared.post(&[segment(to, 16, key)]));
    shared.host.device.arm_srq(shared.srq, 3).unwrap();
    assert_eq!(shared.host.device.query_srq(shared.srq), Ok(3));
    shared.send(A, 1);
    assert_eq!(shared.host.device.take_events(), []);
    shared.send(A, 1);
    assert_eq!(shared.host.device.take_events(), [Event::SrqLimit(shared.srq)]);
    assert_eq!(shared.host.device.query_srq(shared.srq), Ok(0));
    shared.send(A, 1);
    assert_eq!(shared.host.device.take_events(), []);
    // The queue has fewer receive requests than the limit, so the event is raised at once.
    shared.host.device.arm_srq(shared.srq, 2).unwrap();
    assert_eq!(shared.host.device.take_events(), [Event::SrqLimit(shared.srq)]);
    assert!(shared.host.device.arm_srq(shared.srq, SLOTS.into()).is_err());
    assert!(shared.host.device.arm_srq(99, 1).is_err());
}

/// The buffers are in the domain of the shared queue, not in the domain of the queue pair.
#[test]
fn buffers_are_in_the_domain_of_the_shared_queue() {
    let mut shared = Shared::new(STRAIGHT);
    let other = shared.host.device.alloc_pd().unwrap();
    let (to, own) = shared.host.region(16, Access::ALL);
    let foreign = shared.host.device.register(other, to, 16, Access::ALL).unwrap();
    let receive = ReceiveQueue::Shared(shared.srq);
    let attributes = QpAttributes { pd: other, receive, ..shared.host.q[B].attributes };
    let qpn = shared.host.device.create_qp(attributes).unwrap();
    shared.host.device.activate(qpn).unwrap();
    shared.host.device.connect(shared.host.q[A].qpn, Peer::Local(qpn)).unwrap();
    shared.post(&[segment(to, 16, own)]);
    shared.post(&[segment(to, 16, foreign)]);
    shared.send(A, 3);
    shared.host.good(A);
    assert_eq!(shared.host.get(to, 16), [3; 16]);
    shared.send(A, 4);
    assert_eq!(shared.host.bad(A).syndrome(), Syndrome::REMOTE_OPERATION);
    assert_eq!(shared.host.device.dealloc_pd(shared.host.pd), Err(Error::InUse));
}

/// Shared receive requests stay when a queue pair is in error. An event reports that this queue pair takes no
/// more shared receive requests.
#[test]
fn shared_receives_outlive_an_error() {
    let mut shared = Shared::new(STRAIGHT);
    let (to, key) = shared.host.region(16, Access::ALL);
    (0..2).for_each(|_| _ = shared.post(&[segment(to, 16, key)]));
    let b = shared.host.q[B].qpn;
    shared.host.device.modify(b, QpState::Error).unwrap();
    shared.host.device.run();
    assert_eq!(shared.host.device.take_events(), [Event::LastWqe(b)]);
    shared.host.device.run();
    assert_eq!(shared.host.device.take_events(), []);
    assert!(shared.host.poll_recv(B).is_none());
    shared.host.device.connect(shared.host.q[A].qpn, Peer::Local(shared.host.q[A].qpn)).unwrap();
    shared.send(A, 5);
    shared.host.good(A);
    assert_eq!(shared.host.poll_recv(A).unwrap().counter(), 0);
    // The event is raised again after a reset.
    shared.host.device.modify(b, QpState::Reset).unwrap();
    shared.host.device.activate(b).unwrap();
    shared.host.device.modify(b, QpState::Error).unwrap();
    shared.host.device.run();
    assert_eq!(shared.host.device.take_events(), [Event::LastWqe(b)]);
}

#[test]
fn a_list_that_leads_nowhere_fails_the_queue() {
    let mut shared = Shared::new(STRAIGHT);
    let (to, key) = shared.host.region(16, Access::ALL);
    shared.link(0, SLOTS);
    shared.post(&[segment(to, 16, key)]);
    shared.host.put(shared.attributes.doorbell_record, &3_u32.to_be_bytes());
    // The first slot is valid, but names a next slot that does not exist.
    shared.send(A, 1);
    shared.host.good(A);
    shared.send(A, 2);
    assert_eq!(shared.host.device.take_events(), [Event::SrqFatal(shared.srq)]);
    // Senders wait as if no receive request was posted. Further runs raise no event.
    assert!(shared.host.poll_send(A).is_none() && shared.host.device.is_waiting());
    shared.host.device.run();
    assert_eq!(shared.host.device.take_events(), []);
    // If the doorbell record counts more receive requests than the queue has slots, the device takes none.
    let mut shared = Shared::new(STRAIGHT);
    shared.host.put(shared.attributes.doorbell_record, &100_u32.to_be_bytes());
    shared.send(A, 1);
    assert!(shared.host.poll_send(A).is_none() && shared.host.device.take_events().is_empty());
}

#[test]
fn shared_queues_are_made_and_destroyed() {
    let mut shared = Shared::new(STRAIGHT);
    let (device, good) = (&mut shared.host.device, shared.attributes);
    assert_eq!(device.destroy_srq(shared.srq), Err(Error::InUse));
    for bad in [
        SrqAttributes { pd: 99, ..good },
        SrqAttributes { log_slots: 17, ..good },
        SrqAttributes { stride: 24, ..good },
        SrqAttributes { stride: 16, ..good },
        SrqAttributes { stride: 2048, ..good },
    ] {
        assert!(device.create_srq(bad).is_err(), "{bad:?}");
    }
    let largest = device.create_srq(SrqAttributes { log_slots: 16, ..good });
    device.destroy_srq(largest.unwrap()).unwrap();
    for queue in shared.host.q {
        device.destroy_qp(queue.qpn).unwrap();
    }
    device.destroy_srq(shared.srq).unwrap();
    let receive = ReceiveQueue::Shared(shared.srq);
    assert!(device.create_qp(QpAttributes { receive, ..shared.host.q[A].attributes }).is_err());
}
