//! Checks that Linux makes on a command before the device sees it (`drivers/infiniband/hw/mlx5/devx.c` of
//! 6.1; later versions check the same). Each refusal is a row of the table in hil-tests/DEVICE.md, "What
//! Linux checks", and of its test.

use super::frame::{EVENT_QUEUE, TYPE_DEK, TYPE_LOGIN, opcode};
use crate::command::call::Call;
use crate::ground::errno::Errno;
use crate::ground::notice;
use crate::state::object::{Devx, Object};
use mlx5_softdev::commands::Request;
use mlx5_softdev::commands::reply::HEADER;

/// Opcodes of commands without an object (`devx_is_general_cmd`). [`GENERAL_RANGE`] has more of these
/// opcodes.
const GENERAL: &[u16] = &[
    0x100, // QUERY_HCA_CAP
    0x101, // QUERY_ADAPTER
    0x10a, // QUERY_ISSI
    0x740, // QUERY_ESW_FUNCTIONS
    0x750, // QUERY_VPORT_STATE
    0x752, // QUERY_ESW_VPORT_CONTEXT
    0x754, // QUERY_NIC_VPORT_CONTEXT
    0x760, // QUERY_ROCE_ADDRESS
    0x762, // QUERY_HCA_VPORT_CONTEXT
    0x76f, // QUERY_VNIC_ENV
    0x770, // QUERY_VPORT_COUNTER
    0x80a, // GET_DROPPED_PACKET_LOG
    0x80d, // NOP
    0x822, // QUERY_CONG_STATUS
    0x824, // QUERY_CONG_PARAMS
    0x826, // QUERY_CONG_STATISTICS
    0x842, // QUERY_LAG
];

/// The range of opcodes of commands without an object (`MLX5_CMD_OP_GENERAL_START` and `_END`).
const GENERAL_RANGE: core::ops::Range<u16> = 0xb00..0xd00;

/// Opcodes of commands that a context without DEVX may send as well (`devx_is_whitelist_cmd`).
const FOR_ALL: &[u16] = &[0x100, 0x752, 0x762];

/// Opcodes of commands that create objects (`devx_is_obj_create_cmd`). [`create`] handles the commands that
/// Linux accepts only under conditions.
const CREATING: &[u16] = &[
    0x400, // CREATE_CQ
    0x500, // CREATE_QP
    0x700, // CREATE_SRQ
    0x705, // CREATE_XRC_SRQ
    0x710, // CREATE_DCT
    0x717, // CREATE_XRQ
    0x771, // ALLOC_Q_COUNTER
    0x782, // CREATE_SCHEDULING_ELEMENT
    0x800, // ALLOC_PD
    0x806, // ATTACH_TO_MCG
    0x80e, // ALLOC_XRCD
    0x816, // ALLOC_TRANSPORT_DOMAIN
    0x827, // ADD_VXLAN_UDP_DPORT
    0x829, // SET_L2_TABLE_ENTRY
    0x900, // CREATE_TIR
    0x904, // CREATE_SQ
    0x908, // CREATE_RQ
    0x90c, // CREATE_RMP
    0x912, // CREATE_TIS
    0x916, // CREATE_RQT
    0x930, // CREATE_FLOW_TABLE
    0x933, // CREATE_FLOW_GROUP
    0x939, // ALLOC_FLOW_COUNTER
    0x93d, // ALLOC_PACKET_REFORMAT_CONTEXT
    0x940, // ALLOC_MODIFY_HEADER_CONTEXT
    0xa00, // CREATE_GENERAL_OBJECT
];

const SET_FLOW_TABLE_ENTRY: u16 = 0x936;

/// The minimum bytes of CREATE_MKEY: up to the end of the mkey's context.
const CREATE_MKEY_BYTES: usize = 0x50;

/// Commands that modify objects (`devx_is_obj_modify_cmd`), each with the command that creates the object.
/// [`ASKING`] has the commands that query objects (`devx_is_obj_query_cmd`). Both tables have only commands
/// for objects that the stand-in can create. SQD_RTS_QP, 0x50c, is absent because Linux's list lacks it.
const CHANGING: &[(u16, u16)] = &[
    (0x403, opcode::CREATE_CQ),     // MODIFY_CQ
    (0x502, opcode::CREATE_QP),     // RST2INIT_QP
    (0x503, opcode::CREATE_QP),     // INIT2RTR_QP
    (0x504, opcode::CREATE_QP),     // RTR2RTS_QP
    (0x505, opcode::CREATE_QP),     // RTS2RTS_QP
    (0x506, opcode::CREATE_QP),     // SQERR2RTS_QP
    (0x507, opcode::CREATE_QP),     // 2ERR_QP
    (0x50a, opcode::CREATE_QP),     // 2RST_QP
    (0x50e, opcode::CREATE_QP),     // INIT2INIT_QP
    (0x90d, opcode::CREATE_RMP),    // MODIFY_RMP
    (0xa01, opcode::CREATE_OBJECT), // MODIFY_GENERAL_OBJECT
];
const ASKING: &[(u16, u16)] = &[
    (0x201, opcode::CREATE_MKEY),   // QUERY_MKEY
    (0x402, opcode::CREATE_CQ),     // QUERY_CQ
    (0x50b, opcode::CREATE_QP),     // QUERY_QP
    (0x90f, opcode::CREATE_RMP),    // QUERY_RMP
    (0xa02, opcode::CREATE_OBJECT), // QUERY_GENERAL_OBJECT
];

/// The identity of an object: the opcode that created the object, its type as a general object, and its
/// number. The number alone is not unique, because the device numbers each kind of object separately.
type Identity = (u16, u16, u32);

/// Checks as Linux does that a call without an object (DEVX_OTHER) may send a command.
pub(super) fn general(call: &mut Call<'_>, command: &Request) -> Result<(), Errno> {
    let opcode = command.opcode();
    if !FOR_ALL.contains(&opcode) {
        has_devx(call)?;
    }
    let is_general = GENERAL_RANGE.contains(&opcode) || GENERAL.contains(&opcode);
    if is_general { Ok(()) } else { Err(refused(opcode)) }
}

/// Reports a command that Linux passes to no device by this kind of call, and returns the errno with which
/// Linux refuses it.
fn refused(opcode: u16) -> Errno {
    notice::once(&format!("Linux lets the command {opcode:#05x} through to no device in this way"));
    Errno::INVAL
}

/// Checks as Linux does that a call that creates an object (OBJ_CREATE) may send a command.
pub(super) fn create(call: &mut Call<'_>, command: &Request) -> Result<(), Errno> {
    is_ours(call, command)?;
    let may = match command.opcode() {
        opcode::CREATE_PSV => command.u8(8).is_ok_and(|byte| byte >> 4 == 1),
        SET_FLOW_TABLE_ENTRY => command.u16(6).is_ok_and(|modifier| modifier == 0),
        opcode::CREATE_MKEY => command.0.len() >= CREATE_MKEY_BYTES,
        opcode => CREATING.contains(&opcode),
    };
    if !may {
        return Err(refused(command.opcode()));
    }
    // The kernel looks up the completion queue's event queue by its number (`mlx5_create_cq`).
    const NAMED: usize = HEADER + 0x17;
    let is_unknown = command.u8(NAMED).is_ok_and(|number| u32::from(number) != EVENT_QUEUE);
    if command.opcode() == opcode::CREATE_CQ && is_unknown {
        return Err(Errno::NOENT);
    }
    Ok(())
}

/// Checks as Linux does that a call that modifies `object` (OBJ_MODIFY) may send a command.
pub(super) fn modify(call: &mut Call<'_>, command: &Request, object: &Object) -> Result<(), Errno> {
    is_about(call, command, object, CHANGING)
}

/// Checks as Linux does that a call that queries `object` (OBJ_QUERY, OBJ_ASYNC_QUERY) may send a command.
pub(super) fn query(call: &mut Call<'_>, command: &Request, object: &Object) -> Result<(), Errno> {
    is_about(call, command, object, ASKING)
}

/// Checks that the context was opened with DEVX (`MLX5_IB_ALLOC_UCTX_DEVX`).
pub(super) fn has_devx(call: &mut Call<'_>) -> Result<(), Errno> {
    if call.context()?.devx { Ok(()) } else { Err(Errno::INVAL) }
}

fn is_ours(call: &mut Call<'_>, command: &Request) -> Result<(), Errno> {
    // The bytes at offset 4 are `vhca_tunnel_id`, which a program must leave zero.
    if command.u16(4).is_ok_and(|tunnel| tunnel != 0) {
        return Err(Errno::INVAL);
    }
    has_devx(call)
}

fn is_about(
    call: &mut Call<'_>,
    command: &Request,
    object: &Object,
    known: &[(u16, u16)],
) -> Result<(), Errno> {
    is_ours(call, command)?;
    let opcode = command.opcode();
    let (_, maker) = known.iter().find(|(known, _)| *known == opcode).ok_or_else(|| refused(opcode))?;
    let general = *maker == opcode::CREATE_OBJECT;
    let (kind, number) = if general { (command.u16(6), command.u32(8)) } else { (Ok(0), command.u24(9)) };
    let named = (kind.ok(), number.ok());
    match identity(object) {
        Some((made_by, kind, number)) if made_by == *maker && named == (Some(kind), Some(number)) => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

const fn identity(object: &Object) -> Option<Identity> {
    Some(match object {
        Object::Qp(qp) => (opcode::CREATE_QP, 0, qp.number),
        Object::Cq(cq) => (opcode::CREATE_CQ, 0, cq.number),
        // Linux identifies a shared receive queue of verbs by the command with which the driver made it. The
        // command depends on the version of the command interface (ISSI): CREATE_RMP for 1, as assumed here,
        // CREATE_SRQ for 0.
        Object::Srq(srq) => (opcode::CREATE_RMP, 0, srq.number),
        Object::Devx(Devx::Mkey(index) | Devx::Region { index, .. }) => (opcode::CREATE_MKEY, 0, index.get()),
        Object::Devx(Devx::Dek { number, .. }) => (opcode::CREATE_OBJECT, TYPE_DEK, *number),
        Object::Devx(Devx::Login(number)) => (opcode::CREATE_OBJECT, TYPE_LOGIN, *number),
        Object::Devx(Devx::Psvs(_))
        | Object::Pd(_)
        | Object::Mr(_)
        | Object::Window(_)
        | Object::AddressHandle
        | Object::Uar(_)
        | Object::Umem(_) => return None,
    })
}
