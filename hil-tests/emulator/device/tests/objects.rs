//! Tests of the objects of a device: of their numbers, of references between objects, and of refusals.

use crate::common::*;
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;

const CQ: CqAttributes = CqAttributes {
    ring: BASE,
    log_entries: 1,
    entry_bytes: 64,
    doorbell_record: BASE,
    ignore_overrun: false,
};

const fn srq(pd: u32) -> SrqAttributes {
    SrqAttributes {
        pd,
        topology: Topology::Cyclic,
        ring: BASE,
        log_slots: 3,
        stride: 64,
        doorbell_record: BASE,
    }
}

const fn dek(pd: u32) -> DekAttributes<'static> {
    let key = KeyMaterial::Plaintext(&XTS_KEY);
    DekAttributes { pd, size: KeySize::Bits128, has_keytag: false, key }
}

/// A domain cannot be destroyed while an object of any kind is in it. Objects of other domains have no
/// effect.
#[test]
fn a_domain_is_in_use_by_each_kind_of_object() {
    let mut host = Host::new();
    // The host's domain has one object of each kind, and the new domain has none yet.
    host.mkey(true, true);
    host.dek(&XTS_KEY);
    host.device.create_srq(srq(host.pd)).unwrap();
    let pd = host.device.alloc_pd().unwrap();
    let psv = host.device.create_psvs(pd, 1).unwrap()[0];
    assert_eq!(host.device.dealloc_pd(pd), Err(Error::InUse), "a PSV");
    host.device.destroy_psv(psv).unwrap();
    let number = host.device.create_srq(srq(pd)).unwrap();
    assert_eq!(host.device.dealloc_pd(pd), Err(Error::InUse), "an SRQ");
    host.device.destroy_srq(number).unwrap();
    let number = host.device.create_dek(dek(pd)).unwrap();
    assert_eq!(host.device.dealloc_pd(pd), Err(Error::InUse), "a DEK");
    host.device.destroy_dek(number).unwrap();
    assert_eq!(host.device.dealloc_pd(pd), Ok(()));
    let gone = Err(Error::NoSuchObject { what: "protection domain", number: pd });
    assert_eq!(host.device.dealloc_pd(pd), gone);
}

#[test]
fn features_that_a_profile_lacks_are_refused() {
    let full = DeviceProfile::default();
    let refusals = |profile: DeviceProfile| {
        let mut device = Device::new(Arena::new(BASE, 1 << 20), profile);
        let pd = device.alloc_pd().unwrap();
        let cqn = device.create_cq(CQ).unwrap();
        let qp = QpAttributes {
            transport: Transport::ReliableConnection,
            pd,
            sq: BASE,
            log_sq_blocks: 3,
            receive: ReceiveQueue::None,
            doorbell_record: BASE,
            send_cqn: cqn,
            recv_cqn: None,
            user_index: 7,
            drain_sigerr: false,
            rnr_retry: Retries::Infinite,
        };
        let cq = device.create_cq(CqAttributes { ignore_overrun: true, ..CQ }).err();
        let indexed = device.create_qp(qp).err();
        let plain =
            [0, 0x00ff_ffff].map(|user_index| device.create_qp(QpAttributes { user_index, ..qp }).err());
        let mkey = MkeyAttributes::new(pd, 4);
        let atomic = MkeyAttributes { access: Access::ALL, ..mkey };
        let atomic = device.create_mkey(atomic).err();
        let fixed = device.create_mkey(MkeyAttributes { log_entry: Some(12), ..mkey }).err();
        assert_eq!((device.create_mkey(mkey).err(), plain), (None, [None; 2]));
        [cq, indexed, atomic, fixed]
    };
    let bad = |what| Some(Error::BadAttribute(what));
    assert_eq!(refusals(full), [None; 4]);
    let lacks = DeviceProfile { cq_oi: false, ..full };
    assert_eq!(refusals(lacks), [bad("CQ that ignores overruns"), None, None, None]);
    let lacks = DeviceProfile { user_indices: false, ..full };
    assert_eq!(refusals(lacks), [None, bad("user index"), None, None]);
    let lacks = DeviceProfile { atomic: false, ..full };
    assert_eq!(refusals(lacks), [None, None, bad("atomics"), None]);
    let lacks = DeviceProfile { fixed_entries: false, ..full };
    assert_eq!(refusals(lacks), [None, None, None, bad("entries of one length")]);
}

#[test]
fn what_was_destroyed_is_not_there_any_more() {
    let mut host = Host::new();
    let psv = host.device.create_psvs(host.pd, 1).unwrap()[0];
    assert_eq!(host.device.destroy_psv(psv), Ok(()));
    assert_eq!(host.device.destroy_psv(psv), Err(Error::NoSuchObject { what: "PSV", number: psv }));
    assert!(host.device.query_psv(psv).is_err());
}

/// A request for more PSVs than there are free numbers creates none, and the next PSV gets the number that it
/// would have had without this request.
#[test]
fn psvs_are_created_all_or_none() {
    let mut host = Host::new();
    let pd = host.pd;
    host.device.set_numbers(Numbered::Psv, 0x100, 0x104).unwrap();
    assert_eq!(host.device.create_psvs(pd, 3), Ok(vec![0x100, 0x101, 0x102]));
    for count in [3, 4] {
        assert_eq!(host.device.create_psvs(pd, count), Err(Error::Exhausted), "{count}");
    }
    assert!([0x103, 0x104].iter().all(|number| host.device.query_psv(*number).is_err()));
    assert_eq!(host.device.create_psvs(pd, 1), Ok(vec![0x103]));
    // A PSV whose number is outside of the range takes no number of the range.
    host.device.set_numbers(Numbered::Psv, 0x101, 0x104).unwrap();
    host.device.destroy_psv(0x102).unwrap();
    assert_eq!(host.device.create_psvs(pd, 3), Err(Error::Exhausted));
    assert_eq!(host.device.create_psvs(pd, 2), Ok(vec![0x102, 0x104]));
}

/// The number of a destroyed object is reused as late as possible, or at once after `reuse_numbers`.
#[test]
fn numbers_are_used_again_late_or_at_once() {
    let mut host = Host::new();
    host.device.set_numbers(Numbered::Mkey, 0x100, 0x103).unwrap();
    let (at, pd) = (host.alloc(8), host.pd);
    let register =
        |host: &mut Host| host.device.register(pd, at, 8, Access::ALL).map(|key| key.index().get());
    let destroy = |host: &mut Host, number: u32| {
        host.device.destroy_mkey(mlx5_mkey::types::MkeyIndex::from_low_bits(number)).unwrap();
    };
    assert_eq!((register(&mut host), register(&mut host)), (Ok(0x100), Ok(0x101)));
    destroy(&mut host, 0x100);
    assert_eq!([(); 3].map(|()| register(&mut host)), [Ok(0x102), Ok(0x103), Ok(0x100)]);
    assert_eq!(register(&mut host), Err(Error::Exhausted));
    destroy(&mut host, 0x101);
    destroy(&mut host, 0x102);
    // The search for a free number begins behind the number that was assigned last, 0x100.
    assert_eq!((register(&mut host), register(&mut host)), (Ok(0x101), Ok(0x102)));
    host.device.reuse_numbers();
    for number in [0x102, 0x100, 0x101] {
        destroy(&mut host, number);
        assert_eq!(register(&mut host), Ok(number));
    }
    // Numbers of queue pairs are reused, too.
    let attributes = host.q[A].attributes;
    host.device.destroy_qp(host.q[A].qpn).unwrap();
    assert_eq!(host.device.create_qp(attributes), Ok(host.q[A].qpn));
    let kinds: [fn(&mut Host) -> u32; 5] = [
        |host| {
            let domain = host.device.alloc_pd().unwrap();
            host.device.dealloc_pd(domain).map(|()| domain).unwrap()
        },
        |host| {
            let psv = host.device.create_psvs(host.pd, 1).unwrap()[0];
            host.device.destroy_psv(psv).map(|()| psv).unwrap()
        },
        |host| {
            let dek = host.device.create_dek(dek(host.pd)).unwrap();
            host.device.destroy_dek(dek).map(|()| dek).unwrap()
        },
        |host| {
            let cq = host.device.create_cq(CQ).unwrap();
            host.device.destroy_cq(cq).map(|()| cq).unwrap()
        },
        |host| {
            let srq = host.device.create_srq(srq(host.pd)).unwrap();
            host.device.destroy_srq(srq).map(|()| srq).unwrap()
        },
    ];
    for (kind, make) in kinds.into_iter().enumerate() {
        assert_eq!(make(&mut host), make(&mut host), "kind {kind}");
    }
}

#[test]
fn numbers_have_24_bits() {
    let mut host = Host::new();
    let range = |host: &mut Host, first, last| host.device.set_numbers(Numbered::Psv, first, last);
    let refused = Err(Error::BadAttribute("object numbers"));
    for (first, last) in [(5, 4), (0, 0x0100_0000), (0, 0x0100_0001), (0x0100_0001, 0x0100_0001)] {
        assert_eq!(range(&mut host, first, last), refused, "{first:#x} to {last:#x}");
    }
    range(&mut host, 0x00ff_ffff, 0x00ff_ffff).unwrap();
    assert_eq!(host.device.create_psvs(host.pd, 1), Ok(vec![0x00ff_ffff]));
}

#[test]
fn completion_queues_have_their_sizes() {
    let mut host = Host::new();
    for (log_entries, entry_bytes, is_good) in
        [(0, 64, true), (22, 64, true), (22, 128, true), (23, 64, false), (24, 64, false), (0, 32, false)]
    {
        let made = host.device.create_cq(CqAttributes { log_entries, entry_bytes, ..CQ });
        assert_eq!(made.is_ok(), is_good, "{log_entries}, {entry_bytes}");
    }
}

/// `doorbell_at` gets the send counter from its caller. The device does not read the doorbell record.
#[test]
fn a_doorbell_may_bring_its_counter() {
    let mut host = Host::new();
    let qpn = host.q[A].qpn;
    (0..2).for_each(|_| _ = host.post(A, Wqe::new(Opcode::NOP, 0)));
    host.device.doorbell_at(qpn, 1).unwrap();
    assert_eq!(host.good(A).counter(), 0);
    host.device.doorbell_at(qpn, 2).unwrap();
    assert_eq!(host.good(A).counter(), 1);
    let none = Err(Error::NoSuchObject { what: "QP", number: 0x7777 });
    assert_eq!(host.device.doorbell_at(0x7777, 1), none);
}

#[test]
fn a_refusal_says_why() {
    let bad_step = Error::BadTransition { from: QpState::Init, to: QpState::ReadyToSend };
    for (error, words) in [
        (Error::NoSuchObject { what: "PSV", number: 0x1f }, "no PSV 0x1f"),
        (Error::BadAttribute("ring size"), "ring size is out of range"),
        (Error::InUse, "the object is in use"),
        (bad_step, "no transition from Init to ReadyToSend"),
        (Error::Exhausted, "no numbers left"),
    ] {
        assert_eq!(error.to_string(), words);
    }
}
