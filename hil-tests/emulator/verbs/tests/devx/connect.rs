//! Tests of connections between queue pairs, by the addresses that both sides exchange.

use super::verbs::{Counts, modify};
use super::{device_and_domain, errno, next_work, page, says, write};
use mlx5_mkey::command::{
    AckTimeout, Command, FlowLabel, LogAckInterval, LogMaxRdAtomic, PathMtu, Priority, Psn, QpState,
    QpToError, QueryQp, Retries, RnrTimer,
};
use mlx5_mkey::devx::{
    AddressError, Buffer, ConnectOptions, CqReader, Device, DevxError, QpAddress, QueuePair, QueuePairSpec,
};
use mlx5_mkey::error::CommandError;
use mlx5_mkey::queue::Outcome;
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wire::prm::command::{NumberRequest, Opcode, ReplyHeader, RequestHeader};
use mlx5_mkey::wire::prm::qp::QueryQpReply;
use mlx5_mkey::wire::prm::qp_context::Qpc;
use mlx5_testing::preload::{Side::Inside, preloaded};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

type Queue = QueuePair;

/// Two unconnected queue pairs of a device, and the reader of the first queue pair's completions.
struct Pair {
    device: Device,
    page: Buffer,
    near: Queue,
    far: Queue,
    completions: CqReader,
}

impl Pair {
    fn new() -> Self {
        let (device, pd) = device_and_domain();
        let (cq, completions) = device.create_cq(256).unwrap();
        let make = || device.create_qp(&pd, &cq, &cq, QueuePairSpec::default()).unwrap();
        let (near, far) = (make(), make());
        let page = page(&pd, &[7; 64]).unwrap();
        Self { device, page, near, far, completions }
    }

    /// Posts an RDMA WRITE on the first queue pair, and returns the outcome of the request.
    fn outcome(&mut self) -> Outcome {
        write(&mut self.near, 1, &self.page);
        next_work(&mut self.completions, &mut self.near).outcome
    }
}

fn options() -> ConnectOptions {
    ConnectOptions { first_psn: Psn::new(0x12_3456).unwrap(), ..ConnectOptions::default() }
}

/// The MAC address of the stand-in's port.
const MAC: [u8; 6] = [0x00, 0x6d, 0x6c, 0x78, 0x35, 0x01];

#[test]
fn two_sides_connect_by_what_they_tell_each_other() {
    let Inside = preloaded() else { return };
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
}

#[test]
fn a_small_packet_size_of_the_peer_is_kept_to() {
    let Inside = preloaded() else { return };
    let pair = Pair::new();
    let peer = pair.far.control().address(&options()).unwrap();
    pair.near.control().connect(&QpAddress { mtu: PathMtu::B1024, ..peer }, &options()).unwrap();
    assert_eq!(pair.near.control().query().unwrap().mtu, PathMtu::B1024 as u8);
}

/// Connects the second queue pair to the first, and the first to an address of the second that `change` has
/// changed. Returns the outcome of a request on the first.
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
    let Inside = preloaded() else { return };
    let sent = with_address(|_, options| options.mac = Some(MAC));
    assert!(matches!(sent, Outcome::Sent { .. }), "{sent:?}");
    let nobody = |change: fn(&mut QpAddress, &mut ConnectOptions)| match with_address(change) {
        Outcome::Failed(failure) => assert_eq!(failure.syndrome, Syndrome::TRANSPORT_RETRY),
        other => panic!("{other:?}"),
    };
    nobody(|_, options| options.mac = Some([2; 6]));
    nobody(|far, options| (far.gid[15], options.mac) = (far.gid[15] + 1, Some(MAC)));
}

#[test]
fn an_address_that_leads_nowhere_is_refused() {
    let Inside = preloaded() else { return };
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
    // The port's GID table has 256 entries, and the later entries are empty.
    let other = ConnectOptions { source_gid_index: 200, ..options() };
    assert_eq!(control.address(&other).unwrap().gid, [0; 16]);
    refused(&far, &other);
    // With a MAC address in the options, no GID is resolved. The device itself then refuses the command,
    // because the entry of the GID table is empty.
    let refusal = refused(&far, &ConnectOptions { mac: Some(MAC), ..other });
    assert!(matches!(refusal, DevxError::Command(CommandError::Status { .. })), "{refusal:?}");
    let greedy = ConnectOptions { log_max_dest_rd_atomic: Some(LogMaxRdAtomic::MAX), ..options() };
    let refusal = refused(&far, &greedy);
    assert!(matches!(refusal, DevxError::Command(CommandError::Status { .. })), "{refusal:?}");
    control.connect(&far, &options()).unwrap();
}

/// The command QUERY_QP, whose reply is the whole queue pair context.
pub(super) struct Context(pub(super) Qpn);

impl Command for Context {
    const OPCODE: Opcode = Opcode::QUERY_QP;
    type Input = NumberRequest;
    type Output = QueryQpReply;
    type Reply = Qpc;

    fn write(&self, input: &mut NumberRequest) {
        input.header = RequestHeader::new(Self::OPCODE);
        input.number.set(self.0.get());
    }

    fn read(&self, output: &QueryQpReply) -> Result<Qpc, CommandError> {
        Ok(output.qpc)
    }
}

#[test]
fn each_option_reaches_the_device() {
    let Inside = preloaded() else { return };
    let pair = Pair::new();
    let options = ConnectOptions {
        // Entry 1 is for RoCE v2, which has a UDP source port.
        source_gid_index: 1,
        first_psn: Psn::new(1).unwrap(),
        mtu: Some(PathMtu::B2048),
        ack_timeout: AckTimeout::new(19).unwrap(),
        retries: Retries::new(3).unwrap(),
        rnr_retries: Retries::new(5).unwrap(),
        rnr_timer: RnrTimer::new(21).unwrap(),
        log_max_rd_atomic: Some(LogMaxRdAtomic::new(2).unwrap()),
        log_max_dest_rd_atomic: Some(LogMaxRdAtomic::new(3).unwrap()),
        log_ack_interval: LogAckInterval::new(7).unwrap(),
        service_level: Priority::new(6).unwrap(),
        traffic_class: 0x6a,
        hop_limit: 33,
        flow_label: FlowLabel::new(0xa_bcde).unwrap(),
        udp_source_port: None,
        mac: None,
    };
    let control = pair.near.control();
    let peer = QpAddress { first_psn: Psn::new(2).unwrap(), ..pair.far.control().address(&options).unwrap() };
    control.connect(&peer, &options).unwrap();
    let context = control.execute_query(&Context(control.qpn())).unwrap();
    // The bit positions come from the PRM. The tests of the commands take their positions from
    // rdma-core's macros.
    let path = context.primary_path;
    assert_eq!(path.hops.get(), 19 << 27 | 1 << 16 | 33, "acknowledgement time-out, GID index, hop limit");
    assert_eq!(path.flow.get(), 0x6a << 20 | 0xa_bcde, "traffic class, flow label");
    assert_eq!(path.udp.get(), 0x1a << 16 | 0xfcf4, "DSCP, UDP source port of the flow label");
    assert_eq!(path.port.get(), 6 << 12 | 1, "priority, port");
    assert_eq!((path.rgid_rip, path.rmac), (peer.gid, MAC));
    assert_eq!(context.sizes.get() >> 24, 4 << 5 | 30, "packet size, message size");
    assert_eq!(context.rights.get() >> 21 & 7, 3, "as responder");
    assert_eq!(context.receive.get(), 21 << 24 | 2, "receiver-not-ready timer, packet number");
    assert_eq!(context.retry.get(), 7 << 28 | 2 << 21 | 3 << 16 | 5 << 13, "as requester, retries");
    assert_eq!(context.next_send_psn.get(), 1);

    let with_port = ConnectOptions { udp_source_port: Some(49_999), ..options };
    pair.far.control().connect(&peer, &with_port).unwrap();
    let control = pair.far.control();
    let context = control.execute_query(&Context(control.qpn())).unwrap();
    assert_eq!(context.primary_path.udp.get(), 0x1a << 16 | 49_999);
}

/// The command QUERY_HCA_CAP for any kind of capabilities, whose reply is raw bytes.
struct Capabilities(u16);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct CapabilityBytes {
    header: ReplyHeader,
    reserved: [u8; 8],
    bytes: [u8; 4096],
}

impl Command for Capabilities {
    const OPCODE: Opcode = Opcode::QUERY_HCA_CAP;
    type Input = NumberRequest;
    type Output = CapabilityBytes;
    type Reply = Vec<u8>;

    fn write(&self, input: &mut NumberRequest) {
        input.header = RequestHeader { op_mod: self.0.into(), ..RequestHeader::new(Self::OPCODE) };
    }

    fn read(&self, output: &CapabilityBytes) -> Result<Vec<u8>, CommandError> {
        Ok(output.bytes.to_vec())
    }
}

#[test]
fn commands_of_the_callers_own_are_carried() {
    let Inside = preloaded() else { return };
    let pair = Pair::new();
    let (device, control) = (&pair.device, pair.near.control());
    let general = device.execute(&Capabilities(1)).unwrap();
    assert_eq!((general.len(), general.iter().all(|byte| *byte == 0)), (4096, false));
    let refused = device.execute(&Capabilities(0x7f)).unwrap_err();
    assert!(matches!(refused, DevxError::Command(CommandError::Status { .. })), "{refused:?}");
    // In a call without an object, the kernel passes on no command about an object. In a call for an
    // object, the kernel passes on no command about another object.
    for refused in [
        device.execute(&QueryQp(control.qpn())).map(drop),
        control.execute_query(&QueryQp(pair.far.qpn())).map(drop),
        control.execute_query(&Capabilities(1)).map(drop),
        modify(control, &QpToError(pair.far.qpn())),
    ] {
        assert_eq!(errno(refused), Some(libc::EINVAL));
    }
    assert_eq!(control.query().unwrap().state, QpState::INIT);
    modify(control, &QpToError(control.qpn())).unwrap();
    assert_eq!(control.query().unwrap().state, QpState::ERROR);
}
