//! Recognises calls that ask for a missing feature, and reports the feature on standard error.

use crate::command::numbers::{COMMAND, CORE_IN, EXTENDED, UHW_IN};
use crate::command::numbers::{INVOKE_WRITE, MR, QP, SRQ};
use crate::command::request::Request;
use crate::ground::abi::{CreateQp, RegisterRequest};
use crate::ground::missing::{self, Missing};

/// Types of objects that this device lacks (`enum uverbs_default_objects`, `mlx5_user_ioctl_cmds.h`).
const FLOW: u16 = 9;
const XRC_DOMAIN: u16 = 10;
const INDIRECTION_TABLE: u16 = 11;
const WORK_QUEUE: u16 = 12;
const FLOW_ACTION: u16 = 13;
const DEVICE_MEMORY: u16 = 14;
const FLOW_MATCHER: u16 = 0x1003;
const STEERING_ANCHOR: u16 = 0x1009;

/// Methods of memory regions that need missing features: registration of device memory, and advice on pages.
/// Each constant has the numbers of the object and of the method.
const REGISTER_DEVICE_MEMORY: (u16, u16) = (MR, 0);
const ADVISE: (u16, u16) = (MR, 2);

/// Kinds of queue pairs (`enum ib_uverbs_qp_type`).
const RAW_PACKET: u64 = 8;
const XRC_INITIATOR: u64 = 9;
const XRC_TARGET: u64 = 10;
const OF_DRIVER: u64 = 0xff;

/// The driver's flags of queue pairs for dynamic connections: `MLX5_QP_FLAG_TYPE_DCT` and `_DCI`.
const DYNAMIC: u32 = 1 << 4 | 1 << 5;
/// The kind of a shared receive queue for XRC (`IB_UVERBS_SRQT_XRC`).
const XRC_RECEIVES: u64 = 1;
/// The access flag of a region with on-demand paging (`IB_UVERBS_ACCESS_ON_DEMAND`).
const ON_DEMAND: u32 = 1 << 6;

/// A function that says whether a call asks for a certain feature.
type Sign = fn(&Request) -> bool;

/// The calls that ask for each missing feature (`ib_user_ioctl_cmds.h`, `mlx5_user_ioctl_cmds.h`,
/// `ib_user_verbs.h`).
const SIGNS: &[(Missing, Sign)] = &[
    (Missing::Xrc, |request| {
        let receives = is(request, (SRQ, 0)) && request.number(9) == XRC_RECEIVES;
        receives
            || request.object == XRC_DOMAIN
            || [37, 38, 39, 40].contains(&command(request))
            || [XRC_INITIATOR, XRC_TARGET].contains(&kind_of_qp(request))
    }),
    (Missing::RawPacket, |request| {
        [INDIRECTION_TABLE, WORK_QUEUE].contains(&request.object)
            || (EXTENDED | 52..=EXTENDED | 56).contains(&command(request))
            || kind_of_qp(request) == RAW_PACKET
    }),
    (Missing::Flows, |request| {
        [FLOW, FLOW_ACTION, FLOW_MATCHER, STEERING_ANCHOR].contains(&request.object)
            || [EXTENDED | 50, EXTENDED | 51].contains(&command(request))
    }),
    (Missing::Dc, |request| {
        let dynamic = |asked: CreateQp| asked.flags & DYNAMIC != 0;
        kind_of_qp(request) == OF_DRIVER && request.structure(UHW_IN).is_ok_and(dynamic)
    }),
    (Missing::OnDemand, |request| {
        let on_demand = |asked: RegisterRequest| asked.access & ON_DEMAND != 0;
        is(request, ADVISE) || command(request) == 9 && request.structure(CORE_IN).is_ok_and(on_demand)
    }),
    (Missing::DeviceMemory, |request| request.object == DEVICE_MEMORY || is(request, REGISTER_DEVICE_MEMORY)),
    (Missing::Multicast, |request| [30, 31].contains(&command(request))),
];

/// Reports the missing features that a refused call asks for.
pub(super) fn name(request: &Request) {
    for (missing, _) in SIGNS.iter().filter(|(_, asks)| asks(request)) {
        missing::met(*missing);
    }
}

fn is(request: &Request, method: (u16, u16)) -> bool {
    (request.object, request.method) == method
}

/// Returns the number of the command, if the call carries a command of the older `write` interface. Returns 0
/// for other calls, because [`SIGNS`] has no command with the number 0.
fn command(request: &Request) -> u64 {
    if is(request, INVOKE_WRITE) { request.number(COMMAND) } else { 0 }
}

/// Returns the kind of the queue pair, if the call makes one. Returns 0 for other calls, because [`SIGNS`]
/// has no kind with the number 0.
fn kind_of_qp(request: &Request) -> u64 {
    if is(request, (QP, 0)) { request.number(9) } else { 0 }
}
