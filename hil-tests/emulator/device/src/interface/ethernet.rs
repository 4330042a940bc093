//! Commands of an Ethernet port's network interface (`en_main.c`, `fs_cmd.c` and `vport.c` of Linux's
//! mlx5_core): send queues of packets, receive queues, flow tables, and the table of GIDs.
//!
//! The device reads sent packets, counts them and shows them to its observer (tap). A device on a network
//! ([`Device::join`]) exchanges frames with other ports. A flow table is only a number: its rules have no
//! effect.

use super::opcode;
use crate::capabilities::{Field, flag, nic_vport, number, put_all};
use crate::commands::reply::{self, HEADER, free};
use crate::commands::{Place, Record, Refused, Request};
use crate::device::Device;
use crate::interface_state::PacketQueue;
use crate::memory::Memory;
use alloc::vec::Vec;

type Answer = Result<Vec<u8>, Refused>;

/// The commands that create objects of the network interface with a number and no other state.
pub(super) const NUMBERS: &[u16] = &[
    opcode::ALLOC_Q_COUNTER,
    opcode::ALLOC_TRANSPORT_DOMAIN,
    opcode::CREATE_TIR,
    opcode::CREATE_TIS,
    opcode::CREATE_RQT,
    opcode::CREATE_FLOW_TABLE,
    opcode::CREATE_FLOW_GROUP,
];

/// The commands that have no effect on this device, and the queries whose answer is all zeros.
const WITHOUT_EFFECT: &[u16] = &[
    opcode::QUERY_Q_COUNTER,
    opcode::MODIFY_NIC_VPORT_CONTEXT,
    opcode::SET_L2_TABLE_ENTRY,
    opcode::DELETE_L2_TABLE_ENTRY,
    opcode::MODIFY_TIR,
    opcode::MODIFY_SQ,
    opcode::MODIFY_TIS,
    opcode::MODIFY_RQT,
    opcode::SET_FLOW_TABLE_ROOT,
    opcode::SET_FLOW_TABLE_ENTRY,
    opcode::DELETE_FLOW_TABLE_ENTRY,
    opcode::MODIFY_FLOW_TABLE,
];

/// Fields of `cmd_hca_cap` of an Ethernet port.
pub(super) const GENERAL: &[Field] = &[
    flag(0x34, 6),          // nic_flow_table
    number(0x39, 4, 4, 1),  // max_tc
    flag(0x43, 4),          // eth_net_offloads
    flag(0x44, 2),          // cq_moderation
    number(0x64, 3, 5, 8),  // log_max_transport_domain
    number(0x6c, 3, 5, 12), // log_max_rq
    number(0x6d, 3, 5, 12), // log_max_sq
    number(0x6e, 3, 5, 10), // log_max_tir
    number(0x6f, 3, 5, 10), // log_max_tis
    number(0x71, 3, 5, 8),  // log_max_rqt
    number(0x72, 3, 5, 11), // log_max_rqt_size
    number(0x73, 3, 5, 3),  // log_max_tis_per_sq
    number(0x74, 3, 5, 11), // log_max_stride_sz_rq
    number(0x75, 3, 5, 4),  // log_min_stride_sz_rq
    number(0x76, 3, 5, 6),  // log_max_stride_sz_sq
    number(0x77, 3, 5, 6),  // log_min_stride_sz_sq
    number(0x7b, 3, 5, 15), // log_max_wq_sz
    number(0x7d, 3, 5, 5),  // log_max_vlan_list
    number(0x7e, 3, 5, 5),  // log_max_current_mc_list
    number(0x7f, 3, 5, 5),  // log_max_current_uc_list
];

/// Fields of the other capability structures of an Ethernet port, by the kind of the structure: Ethernet
/// offloads (`per_protocol_networking_offload_caps`), RoCE (`roce_cap`), and flow tables
/// (`flow_table_nic_cap`, the properties of reception).
const OTHERS: &[(u16, &[Field])] = &[
    (
        1,
        &[
            flag(0, 0),          // csum_cap
            flag(0, 1),          // vlan_cap
            flag(1, 0),          // self_lb_en_modifiable
            number(1, 3, 5, 18), // max_lso_cap
            number(2, 2, 2, 2),  // wqe_inline_mode: not required
            number(2, 4, 4, 8),  // rss_ind_tbl_cap
        ],
    ),
    (
        4,
        &[
            number(0x11, 4, 4, 6),            // l3_type: IPv4 and IPv6
            number(0x13, 0, 8, 4),            // roce_version: 2
            number(0x16, 0, 16, 4791),        // r_roce_dest_udp_port
            number(0x1e, 0, 16, GIDS as u64), // roce_address_table_size
        ],
    ),
    (
        7,
        &[
            flag(0x40, 0),          // ft_support
            flag(0x40, 3),          // flow_modify_en
            flag(0x40, 4),          // modify_root
            flag(0x40, 5),          // identified_miss_table_mode
            flag(0x40, 6),          // flow_table_modify
            number(0x44, 2, 6, 16), // log_max_ft_size
            number(0x47, 0, 8, 64), // max_ft_level
            number(0x4f, 0, 8, 16), // log_max_ft_num
            number(0x53, 0, 8, 8),  // log_max_destination
            number(0x57, 0, 8, 16), // log_max_flow
        ],
    ),
];

/// The number of entries of the table of GIDs.
const GIDS: usize = 256;

/// The range of numbers for send queues of raw packets (CREATE_SQ). A doorbell names a send queue or a queue
/// pair by the same field, so their numbers must differ. Queue pairs have lower numbers: [`Device::join`]
/// refuses others, and without a network, a device reaches them only after creating millions of queue pairs.
pub(super) const SEND_QUEUES: core::ops::Range<u32> = 0xf0_0000..0x100_0000;

/// Offset of the work queue in CREATE_SQ (PRM `sqc`, `wq`).
const WQ: usize = 0x50;

/// The number of bytes of a block of a send queue.
const BLOCK: u64 = 64;

/// Adds the fields of an Ethernet port to `found`, the capability structure of this kind. Returns the result.
pub(super) fn with_offloads(kind: u16, mut found: Vec<u8>) -> Vec<u8> {
    OTHERS.iter().filter(|(of, _)| *of == kind).for_each(|(_, fields)| put_all(&mut found, fields));
    found
}

impl<M: Memory> Device<M> {
    /// Executes a command of the network interface. Returns `None` for other commands.
    pub(super) fn interface_command(&mut self, opcode: u16, request: &Request) -> Option<Answer> {
        Some(match opcode {
            opcode::QUERY_NIC_VPORT_CONTEXT => Ok(self.query_nic_vport()),
            // Both the administrative and the operational state of the port are up.
            opcode::QUERY_VPORT_STATE => Ok(reply::with(HEADER, 0xf, &[0x11])),
            opcode::QUERY_VPORT_COUNTER => self.query_vport_counter(request),
            opcode::SET_ROCE_ADDRESS => self.set_roce_address(request),
            opcode::CREATE_SQ => self.create_sq(request),
            opcode::DESTROY_SQ => self.destroy_sq(request),
            opcode::CREATE_RQ => self.create_rq(request),
            opcode::MODIFY_RQ => {
                self.modify_rq(request);
                Ok(reply::done())
            }
            opcode::DESTROY_RQ => self.destroy_rq(request),
            opcode if WITHOUT_EFFECT.contains(&opcode) => Ok(reply::done()),
            _ => return None,
        })
    }

    /// QUERY_NIC_VPORT_CONTEXT: returns the context of the port.
    fn query_nic_vport(&self) -> Vec<u8> {
        let context = nic_vport(u64::from_be_bytes(self.guid()), self.mac());
        reply::with(HEADER + context.len(), HEADER, &context)
    }

    /// SET_ROCE_ADDRESS: sets an entry of the table of GIDs. Zeros empty the entry.
    fn set_roce_address(&mut self, request: &Request) -> Answer {
        let index = usize::from(request.u16(8)?);
        let gid = request.bytes(HEADER, 16)?.try_into().map_err(|_| Refused::INPUT_LENGTH)?;
        if index >= GIDS {
            return Err(Refused::PARAMETER);
        }
        self.gids.set_at(index, gid);
        Ok(reply::done())
    }

    fn create_sq(&mut self, request: &Request) -> Answer {
        let at = |offset: usize| WQ + offset;
        let (log_blocks, log_stride) = (request.u8(at(0x23))? & 0x1f, request.u8(at(0x21))? & 0xf);
        // The work queue must be cyclic (type 1).
        let is_cyclic = request.u8(at(0))? & 0xf0 == 0x10;
        if !is_cyclic || log_blocks > 15 || 1_u64 << log_stride != BLOCK {
            return Err(Refused::PARAMETER);
        }
        let (cqn, pd) = (request.u24(0x29)?, request.u24(at(9))?);
        if self.objects.cqs.get(cqn).is_none() {
            return Err(Refused::RESOURCE);
        }
        let uar = self.uar(request.u24(at(0xd))?)?;
        let record = self.record(request, Record { umem: None, offset: request.u64(at(0x10))? })?;
        let place = Place::Pages {
            log_page: request.u8(at(0x22))? & 0x1f,
            offset: (request.u8(at(5))? & 0x1f).into(),
        };
        let ring = self.ring(request, place, BLOCK << log_blocks, false)?;
        let queues = &self.interface.packets;
        let number = free(SEND_QUEUES, |number| queues.contains_key(number))?;
        self.interface
            .packets
            .insert(number, PacketQueue { cqn, pd, ring, log_blocks, record, next: 0, uar });
        Ok(reply::number(number))
    }

    fn destroy_sq(&mut self, request: &Request) -> Answer {
        let queue = self.interface.packets.remove(&request.u24(9)?).ok_or(Refused::RESOURCE)?;
        self.memory.close(queue.ring);
        Ok(reply::done())
    }
}
