//! Tests of the faults of the device: each fault has its own effect, and no other effect.

use crate::common::*;
use mlx5_mkey::wire::cqe::CqeOpcode;
use mlx5_softdev::*;

/// The mkey allows the peer to write, but the region that the mkey maps forbids it. Each of two faults lets
/// the write pass. The fault `region_rights_ignored` does not affect requests that name the region's own key.
#[test]
fn rights_of_a_region_are_ignored_by_either_fault() {
    let faults = |host: &mut Host, key, region| {
        let broken = Faults { access_flags_ignored: key, region_rights_ignored: region, ..Faults::default() };
        host.device.set_faults(broken);
    };
    for (key, region, under, direct) in
        [(false, false, false, false), (false, true, true, false), (true, false, true, true)]
    {
        let mut host = Host::new();
        let (at, plain) = host.region(64, Access { local_write: false, ..Access::ALL });
        let mkey = host.mkey(false, false);
        host.configure(Config::new(&mkey).access(LW | RR | RW).list(&[(at, 64, plain)]));
        faults(&mut host, key, region);
        for (key, offset, expected) in [(mkey.key, 0, under), (plain, at, direct)] {
            host.receive_into(key, offset, &[7; 64]);
            let done = host.poll_send(B).unwrap().opcode() == CqeOpcode::REQUESTER;
            assert_eq!(done, expected, "{key:?}");
            assert_eq!(host.get(at, 64), [if done { 7 } else { 0 }; 64]);
            host.put(at, &[0; 64]);
            host.recover();
        }
    }
}

/// The fault `drained_not_told` hides the events of drained queues, and no other events.
#[test]
fn events_but_one_are_told_by_a_device_that_does_not_tell_of_drained_queues() {
    let mut host = Host::with_faults(|faults| faults.drained_not_told = true);
    let [a, b] = host.q.map(|queue| queue.qpn);
    host.device.modify(a, QpState::SendQueueDrained).unwrap();
    // The doorbell announces more blocks than the ring has.
    host.q[B].producer = 1000;
    host.ring(B);
    assert_eq!(host.device.take_events(), [Event::QpFatal(b)]);
    host.device.set_faults(Faults::default());
    host.device.modify(a, QpState::ReadyToSend).unwrap();
    host.device.modify(a, QpState::SendQueueDrained).unwrap();
    assert_eq!(host.device.take_events(), [Event::SqDrained(a)]);
}
