//! Opcodes of commands on objects (`MLX5_CMD_OP_*` of Linux).

pub(super) const CREATE_MKEY: u16 = 0x200;
pub(super) const DESTROY_MKEY: u16 = 0x202;
pub(super) const CREATE_EQ: u16 = 0x301;
pub(super) const DESTROY_EQ: u16 = 0x302;
pub(super) const CREATE_CQ: u16 = 0x400;
pub(super) const DESTROY_CQ: u16 = 0x401;
pub(super) const MODIFY_CQ: u16 = 0x403;
pub(super) const CREATE_QP: u16 = 0x500;
pub(super) const DESTROY_QP: u16 = 0x501;
pub(super) const RST2INIT_QP: u16 = 0x502;
pub(super) const RTS2RTS_QP: u16 = 0x505;
pub(super) const QUERY_QP: u16 = 0x50b;
pub(super) const CREATE_PSV: u16 = 0x600;
pub(super) const DESTROY_PSV: u16 = 0x601;
pub(super) const CREATE_XRC_SRQ: u16 = 0x705;
pub(super) const DESTROY_XRC_SRQ: u16 = 0x706;
pub(super) const CREATE_RMP: u16 = 0x90c;
pub(super) const MODIFY_RMP: u16 = 0x90d;
pub(super) const DESTROY_RMP: u16 = 0x90e;
pub(super) const QUERY_VPORT_STATE: u16 = 0x750;
pub(super) const QUERY_NIC_VPORT_CONTEXT: u16 = 0x754;
pub(super) const MODIFY_NIC_VPORT_CONTEXT: u16 = 0x755;
pub(super) const SET_ROCE_ADDRESS: u16 = 0x761;
pub(super) const QUERY_VPORT_COUNTER: u16 = 0x770;
pub(super) const ALLOC_Q_COUNTER: u16 = 0x771;
pub(super) const DEALLOC_Q_COUNTER: u16 = 0x772;
pub(super) const QUERY_Q_COUNTER: u16 = 0x773;
pub(super) const ALLOC_TRANSPORT_DOMAIN: u16 = 0x816;
pub(super) const DEALLOC_TRANSPORT_DOMAIN: u16 = 0x817;
pub(super) const SET_L2_TABLE_ENTRY: u16 = 0x829;
pub(super) const DELETE_L2_TABLE_ENTRY: u16 = 0x82b;
pub(super) const CREATE_TIR: u16 = 0x900;
pub(super) const MODIFY_TIR: u16 = 0x901;
pub(super) const DESTROY_TIR: u16 = 0x902;
pub(super) const CREATE_SQ: u16 = 0x904;
pub(super) const MODIFY_SQ: u16 = 0x905;
pub(super) const DESTROY_SQ: u16 = 0x906;
pub(super) const CREATE_RQ: u16 = 0x908;
pub(super) const MODIFY_RQ: u16 = 0x909;
pub(super) const DESTROY_RQ: u16 = 0x90a;
pub(super) const CREATE_TIS: u16 = 0x912;
pub(super) const MODIFY_TIS: u16 = 0x913;
pub(super) const DESTROY_TIS: u16 = 0x914;
pub(super) const CREATE_RQT: u16 = 0x916;
pub(super) const MODIFY_RQT: u16 = 0x917;
pub(super) const DESTROY_RQT: u16 = 0x918;
pub(super) const SET_FLOW_TABLE_ROOT: u16 = 0x92f;
pub(super) const CREATE_FLOW_TABLE: u16 = 0x930;
pub(super) const DESTROY_FLOW_TABLE: u16 = 0x931;
pub(super) const CREATE_FLOW_GROUP: u16 = 0x933;
pub(super) const DESTROY_FLOW_GROUP: u16 = 0x934;
pub(super) const SET_FLOW_TABLE_ENTRY: u16 = 0x936;
pub(super) const DELETE_FLOW_TABLE_ENTRY: u16 = 0x938;
pub(super) const MODIFY_FLOW_TABLE: u16 = 0x93c;
pub(super) const ALLOC_PD: u16 = 0x800;
pub(super) const DEALLOC_PD: u16 = 0x801;
pub(super) const ALLOC_UAR: u16 = 0x802;
pub(super) const DEALLOC_UAR: u16 = 0x803;
pub(super) const ALLOC_XRCD: u16 = 0x80e;
pub(super) const DEALLOC_XRCD: u16 = 0x80f;
pub(super) const CREATE_OBJECT: u16 = 0xa00;
pub(super) const MODIFY_OBJECT: u16 = 0xa01;
pub(super) const QUERY_OBJECT: u16 = 0xa02;
pub(super) const DESTROY_OBJECT: u16 = 0xa03;
pub(super) const CREATE_UCTX: u16 = 0xa04;
pub(super) const DESTROY_UCTX: u16 = 0xa06;
pub(super) const CREATE_UMEM: u16 = 0xa08;
pub(super) const DESTROY_UMEM: u16 = 0xa0a;
pub(super) const SYNC_CRYPTO: u16 = 0xb12;

/// The commands that make and destroy the objects of a kind, and the offset of the object's number in the
/// command that destroys it. The kind is the opcode that makes its objects.
pub(super) const LIVES: &[(u16, u16, usize)] = &[
    (ALLOC_PD, DEALLOC_PD, NUMBER),
    (ALLOC_UAR, DEALLOC_UAR, NUMBER),
    (CREATE_EQ, DESTROY_EQ, NUMBER),
    (CREATE_CQ, DESTROY_CQ, NUMBER),
    (CREATE_QP, DESTROY_QP, NUMBER),
    (CREATE_RMP, DESTROY_RMP, NUMBER),
    (CREATE_MKEY, DESTROY_MKEY, NUMBER),
    (CREATE_PSV, DESTROY_PSV, NUMBER),
    (CREATE_OBJECT, DESTROY_OBJECT, NUMBER),
    (CREATE_UMEM, DESTROY_UMEM, NUMBER),
    (CREATE_XRC_SRQ, DESTROY_XRC_SRQ, NUMBER),
    (ALLOC_XRCD, DEALLOC_XRCD, NUMBER),
    (ALLOC_Q_COUNTER, DEALLOC_Q_COUNTER, NUMBER),
    (ALLOC_TRANSPORT_DOMAIN, DEALLOC_TRANSPORT_DOMAIN, NUMBER),
    (CREATE_TIR, DESTROY_TIR, NUMBER),
    (CREATE_SQ, DESTROY_SQ, NUMBER),
    (CREATE_RQ, DESTROY_RQ, NUMBER),
    (CREATE_TIS, DESTROY_TIS, NUMBER),
    (CREATE_RQT, DESTROY_RQT, NUMBER),
    (CREATE_FLOW_TABLE, DESTROY_FLOW_TABLE, TABLE),
    (CREATE_FLOW_GROUP, DESTROY_FLOW_GROUP, 0x19),
];

/// Offset of the object's number in most commands that destroy or change the object.
pub(super) const NUMBER: usize = 9;

/// Offset of the flow table's number in commands on flow tables, their groups and their rules.
pub(super) const TABLE: usize = 0x15;

/// For the opcode of a command that destroys an object: returns the opcode of the command that makes such an
/// object, and the offset of the object's number in the destroying command. Returns `None` for other opcodes.
pub(super) fn ended(destroys: u16) -> Option<(u16, usize)> {
    LIVES.iter().find(|(_, ends, _)| *ends == destroys).map(|(makes, _, at)| (*makes, *at))
}
