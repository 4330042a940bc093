//! Connecting queue pairs by what the two sides tell each other.

use super::common::preloaded;
use super::verbs::Counts;
use super::{TIMEOUT, page, says, write};
use mlx5_mkey::command::{LogMaxRdAtomic, PathMtu, Psn, QpState};
use mlx5_mkey::devx::{
    AddressError, Buffer, ConnectOptions, CqReader, Device, DevxError, QpAddress, QueuePair, QueuePairSpec,
};
use mlx5_mkey::error::CommandError;
use mlx5_mkey::queue::{Completion, Outcome, QpRouter};
use mlx5_mkey::wire::cqe::Syndrome;
use std::time::Instant;

type Queue = QueuePair<64, 16>;

/// Two queue pairs of a device, not connected, and the reader of the first one's completions.
struct Pair {
    device: Device,
    page: Buffer,
    near: Queue,
    far: Queue,
    completions: CqReader,
}

impl Pair {
    fn new() -> Self {
        let device = Device::open(None).unwrap();
        let pd = device.alloc_pd().unwrap();
        let (cq, completions) = device.create_cq(256).unwrap();
        let make = || device.create_qp(&pd, &cq, &cq, QueuePairSpec::default()).unwrap();
        let (near, far) = (make(), make());
        let page = page(&pd, &[7; 64]).unwrap();
        Self { device, page, near, far, completions }
    }

    /// Writes from the first one, and waits for what comes of it.
    fn outcome(&mut self) -> Outcome {
        write(&mut self.near, 1, &self.page);
        let end = Instant::now() + TIMEOUT.unwrap();
        let mut router = QpRouter { queues: &mut self.near, mkeys: &mut [] };
        loop {
            match self.completions.poll(&mut router) {
                Some(Ok(Completion::Work(work))) => return work.outcome,
                Some(other) => panic!("{other:?}"),
                None => assert!(Instant::now() < end, "no completion"),
            }
        }
    }
}

fn options() -> ConnectOptions {
    ConnectOptions { first_psn: Psn::new(0x12_3456).unwrap(), ..ConnectOptions::default() }
}

/// The MAC address of the stand-in's port.
const MAC: [u8; 6] = [0x00, 0x6d, 0x6c, 0x78, 0x35, 0x01];

#[test]
fn two_sides_connect_by_what_they_tell_each_other() {
    preloaded("connect::two_sides_connect_by_what_they_tell_each_other", || {
        let mut pair = Pair::new();
        let before = Counts::now();
        let far_options = ConnectOptions {
            first_psn: Psn::new(0xab_cdef).unwrap(),
            mtu: Some(PathMtu::B512),
            ..ConnectOptions::default()
        };
        let near = pair.near.control().address(&options()).unwrap();
        assert_eq!(near.gid, pair.device.gid(1, 0).unwrap());
        assert_eq!((near.mtu, near.lid), (PathMtu::B4096, 0), "as the port says");
        let far = pair.far.control().address(&far_options).unwrap().to_bytes();
        pair.near.control().connect(&QpAddress::from_bytes(&far).unwrap(), &options()).unwrap();
        pair.far.control().connect(&near, &far_options).unwrap();
        assert!(matches!(pair.outcome(), Outcome::Sent { .. }));
        let (near, far) = (pair.near.control().query().unwrap(), pair.far.control().query().unwrap());
        assert_eq!((near.remote_qp, far.remote_qp), (pair.far.qpn(), pair.near.qpn()));
        assert_eq!((near.next_send_psn.get(), near.next_receive_psn.get()), (0x12_3456, 0xab_cdef));
        assert_eq!((far.next_send_psn.get(), far.next_receive_psn.get()), (0xab_cdef, 0x12_3456));
        assert_eq!((near.mtu, far.mtu), (PathMtu::B4096 as u8, PathMtu::B512 as u8));
        assert_eq!(Counts::now(), before, "no address handle is left");
    });
}

#[test]
fn a_small_packet_size_of_the_peer_is_kept_to() {
    preloaded("connect::a_small_packet_size_of_the_peer_is_kept_to", || {
        let pair = Pair::new();
        let peer = pair.far.control().address(&options()).unwrap();
        pair.near.control().connect(&QpAddress { mtu: PathMtu::B1024, ..peer }, &options()).unwrap();
        assert_eq!(pair.near.control().query().unwrap().mtu, PathMtu::B1024 as u8);
    });
}

/// Connects the first one over another way than the resolved one, the second one to the first.
fn with_address(change: impl FnOnce(&mut QpAddress, &mut ConnectOptions)) -> Outcome {
    let mut pair = Pair::new();
    let mut options = options();
    let near = pair.near.control().address(&options).unwrap();
    let mut far = pair.far.control().address(&options).unwrap();
    pair.far.control().connect(&near, &options).unwrap();
    change(&mut far, &mut options);
    pair.near.control().connect(&far, &options).unwrap();
    pair.outcome()
}

#[test]
fn the_caller_may_know_the_mac_address() {
    preloaded("connect::the_caller_may_know_the_mac_address", || {
        let sent = with_address(|_, options| options.mac = Some(MAC));
        assert!(matches!(sent, Outcome::Sent { .. }), "{sent:?}");
        let nobody = |change: fn(&mut QpAddress, &mut ConnectOptions)| match with_address(change) {
            Outcome::Failed(failure) => assert_eq!(failure.syndrome, Syndrome::TRANSPORT_RETRY),
            other => panic!("{other:?}"),
        };
        nobody(|_, options| options.mac = Some([2; 6]));
        nobody(|far, options| (far.gid[15], options.mac) = (far.gid[15] + 1, Some(MAC)));
    });
}

#[test]
fn an_address_that_leads_nowhere_is_refused() {
    preloaded("connect::an_address_that_leads_nowhere_is_refused", || {
        let pair = Pair::new();
        let (before, control) = (Counts::now(), pair.near.control());
        let far = pair.far.control().address(&options()).unwrap();
        let refused = |peer: &QpAddress, options: &ConnectOptions| {
            let error = control.connect(peer, options).unwrap_err();
            assert_eq!(control.query().unwrap().state, QpState::INIT, "as it was");
            assert_eq!(Counts::now(), before);
            error
        };
        let stranger = QpAddress { gid: [0xfd; 16], ..far };
        let message = refused(&stranger, &options()).to_string();
        says(&message, &["ibv_create_ah", "GID leads nowhere", "ip neigh", "ConnectOptions"]);
        let nowhere = refused(&QpAddress { gid: [0; 16], ..far }, &options());
        assert!(matches!(nowhere, DevxError::Address(AddressError::NoGid)), "{nowhere:?}");
        let other = ConnectOptions { source_gid_index: 1, ..options() };
        assert!(matches!(control.address(&other), Err(DevxError::Call { what: "ibv_query_gid", .. })));
        refused(&far, &other);
        // With a MAC address nobody is asked but the device.
        let refusal = refused(&far, &ConnectOptions { mac: Some(MAC), ..other });
        assert!(matches!(refusal, DevxError::Command(CommandError::Status { .. })), "{refusal:?}");
        let greedy = ConnectOptions { log_max_dest_rd_atomic: LogMaxRdAtomic::MAX, ..options() };
        let refusal = refused(&far, &greedy);
        assert!(matches!(refusal, DevxError::Command(CommandError::Status { .. })), "{refusal:?}");
        control.connect(&far, &options()).unwrap();
    });
}
