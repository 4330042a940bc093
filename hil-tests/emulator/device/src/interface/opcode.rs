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
pub(super) const SET_ROCE_ADDRESS: u16 = 0x761;
pub(super) const ALLOC_Q_COUNTER: u16 = 0x771;
pub(super) const DEALLOC_Q_COUNTER: u16 = 0x772;
pub(super) const ALLOC_TRANSPORT_DOMAIN: u16 = 0x816;
pub(super) const DEALLOC_TRANSPORT_DOMAIN: u16 = 0x817;
pub(super) const CREATE_TIR: u16 = 0x900;
pub(super) const DESTROY_TIR: u16 = 0x902;
pub(super) const CREATE_SQ: u16 = 0x904;
pub(super) const DESTROY_SQ: u16 = 0x906;
pub(super) const CREATE_RQ: u16 = 0x908;
pub(super) const DESTROY_RQ: u16 = 0x90a;
pub(super) const CREATE_TIS: u16 = 0x912;
pub(super) const DESTROY_TIS: u16 = 0x914;
pub(super) const CREATE_RQT: u16 = 0x916;
pub(super) const DESTROY_RQT: u16 = 0x918;
pub(super) const CREATE_FLOW_TABLE: u16 = 0x930;
pub(super) const DESTROY_FLOW_TABLE: u16 = 0x931;
pub(super) const CREATE_FLOW_GROUP: u16 = 0x933;
pub(super) const DESTROY_FLOW_GROUP: u16 = 0x934;
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

/// The commands that make and destroy the objects of a kind. The kind is the opcode that makes them.
pub(super) const LIVES: &[(u16, u16)] = &[
    (ALLOC_PD, DEALLOC_PD),
    (ALLOC_UAR, DEALLOC_UAR),
    (CREATE_EQ, DESTROY_EQ),
    (CREATE_CQ, DESTROY_CQ),
    (CREATE_QP, DESTROY_QP),
    (CREATE_RMP, DESTROY_RMP),
    (CREATE_MKEY, DESTROY_MKEY),
    (CREATE_PSV, DESTROY_PSV),
    (CREATE_OBJECT, DESTROY_OBJECT),
    (CREATE_UMEM, DESTROY_UMEM),
    (CREATE_XRC_SRQ, DESTROY_XRC_SRQ),
    (ALLOC_XRCD, DEALLOC_XRCD),
    (ALLOC_Q_COUNTER, DEALLOC_Q_COUNTER),
    (ALLOC_TRANSPORT_DOMAIN, DEALLOC_TRANSPORT_DOMAIN),
    (CREATE_TIR, DESTROY_TIR),
    (CREATE_SQ, DESTROY_SQ),
    (CREATE_RQ, DESTROY_RQ),
    (CREATE_TIS, DESTROY_TIS),
    (CREATE_RQT, DESTROY_RQT),
];

/// Returns the opcode that makes the objects that a command destroys, if the command destroys any.
pub(super) fn maker(destroys: u16) -> Option<u16> {
    LIVES.iter().find(|(_, ends)| *ends == destroys).map(|(makes, _)| *makes)
}
