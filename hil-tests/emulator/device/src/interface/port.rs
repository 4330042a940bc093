//! Executes commands about the PCI function and its port: about the adapter, registers of the port, and the
//! port's addresses (`fw.c`, `vport.c` and `port.c` of Linux's mlx5_core).

use super::ethernet;
use crate::capabilities::{Field, flag, number, put_all};
use crate::commands::reply::{self, HEADER};
use crate::commands::{Refused, Request};
use crate::device::Device;
use crate::memory::Memory;
use crate::profile::{DEFAULT_PKEY, LID, PSID, Port};
use alloc::vec;
use alloc::vec::Vec;

type Answer = Result<Vec<u8>, Refused>;

/// A capability of the port: connection management (`IB_PORT_CM_SUP`).
const CONNECTIONS: u32 = 1 << 16;

/// Fields of `cmd_hca_cap` that only a driver of the PCI function needs.
const GENERAL: &[Field] = &[
    number(0x1c, 0, 8, 22),   // log_max_eq_sz
    number(0x1f, 4, 4, 7),    // log_max_eq
    number(0x2e, 0, 16, 0),   // gid_table_size: 8
    number(0x32, 0, 16, 0),   // pkey_table_size: 128
    flag(0x40, 0),            // compact_address_vector
    flag(0x47, 4),            // xrc
    flag(0x49, 0),            // fl_rc_qp_when_roce_disabled
    number(0x67, 3, 5, 8),    // log_max_xrcd
    number(0x8c, 3, 5, 8),    // log_max_uctx
    number(0x8d, 3, 5, 12),   // log_max_umem
    number(0x8e, 0, 16, 255), // max_num_eqs
];

/// Fields of `cmd_hca_cap` for an InfiniBand port: commands replace management packets (`ib_virt`).
const INFINIBAND: &[Field] = &[flag(0x34, 2)];

/// Adds to the general capabilities (`found`) the fields that only a driver of the PCI function needs.
/// Returns the result.
pub(super) fn with_host(mut found: Vec<u8>, port: Port) -> Vec<u8> {
    put_all(&mut found, GENERAL);
    if port == Port::InfiniBand {
        put_all(&mut found, INFINIBAND);
    } else {
        put_all(&mut found, ethernet::GENERAL);
        // Linux's network interface wants work requests of 16 blocks (`max_wqe_sz_sq`).
        found.splice(0x52..0x54, 1024_u16.to_be_bytes());
    }
    found
}

/// Numbers of the registers that ACCESS_REG reads and writes (`MLX5_REG_*` of Linux).
mod register {
    pub(super) const PMTU: u16 = 0x5003;
    pub(super) const PTYS: u16 = 0x5004;
    pub(super) const PAOS: u16 = 0x5006;
    pub(super) const PFCC: u16 = 0x5007;
    pub(super) const PPCNT: u16 = 0x5008;
    pub(super) const PVLC: u16 = 0x500f;
    pub(super) const NODE_DESC: u16 = 0x6001;
    pub(super) const HOST_ENDIANNESS: u16 = 0x7004;
}

/// The number of bytes of a description of the node.
const DESCRIPTION: usize = 64;

impl<M: Memory> Device<M> {
    /// QUERY_ADAPTER: returns the vendor, and the name of the board ([`PSID`]).
    pub(super) fn query_adapter(&self) -> Vec<u8> {
        let mut answer = reply::with(0x110, HEADER + 0x18, &0x0000_02c9_u32.to_be_bytes());
        answer.splice(0x100.., PSID.bytes());
        answer
    }

    /// ACCESS_REG: reads or writes a register of the port.
    pub(super) fn access_register(&mut self, request: &Request) -> Answer {
        let reads = match request.u16(6)? {
            0 => false,
            1 => true,
            _ => return Err(Refused::PARAMETER),
        };
        let data = request.bytes(HEADER, request.0.len().saturating_sub(HEADER))?;
        let mut data = data.to_vec();
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = data.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        let is_infiniband = self.profile().port == Port::InfiniBand;
        match (request.u16(0xa)?, reads) {
            // The host sets little endian, the only byte order that this device supports.
            (register::HOST_ENDIANNESS, false) => {}
            (register::NODE_DESC, false) => {
                self.interface.description = request.bytes(HEADER, DESCRIPTION)?.to_vec();
            }
            (register::NODE_DESC, true) => put(0, &self.interface.description),
            (register::PMTU, true) => {
                let bytes = if is_infiniband { 4096_u16 } else { 9978 };
                [4, 8, 0xc].into_iter().for_each(|at| put(at, &bytes.to_be_bytes()));
            }
            (register::PTYS, true) if is_infiniband => {
                // The speed is 4 lanes of HDR, as capability, configured value and current value.
                [0x10, 0x1c, 0x28].into_iter().for_each(|at| put(at, &[0, 1 << 2, 0, 1 << 6]));
            }
            (register::PTYS, true) => {
                // The speed is 100GBASE-CR4, as capability, configured value and current value.
                [0xc, 0x18, 0x24].into_iter().for_each(|at| put(at, &(1_u32 << 20).to_be_bytes()));
            }
            // The port is up, independent of the requested state.
            (register::PAOS, true) => put(2, &[1, 1]),
            (register::PAOS | register::PMTU, false) => {}
            // The port neither sends nor obeys pause frames.
            (register::PFCC, true) => {}
            (register::PPCNT, true) => self.put_port_counters(&mut data)?,
            (register::PVLC, true) => [7, 0xb, 0xf].into_iter().for_each(|at| put(at, &[1])),
            _ => return Err(Refused::PARAMETER),
        }
        let mut answer = vec![0; HEADER];
        answer.extend(data);
        Ok(answer)
    }

    /// Returns the GUID of the node: the last 8 bytes of the port's GID.
    pub(super) fn guid(&self) -> [u8; 8] {
        let [.., a, b, c, d, e, f, g, h] = self.profile().port_gid;
        [a, b, c, d, e, f, g, h]
    }

    /// QUERY_HCA_VPORT_CONTEXT: returns the context of an active InfiniBand port (PRM `hca_vport_context`).
    pub(super) fn query_hca_vport(&self) -> Answer {
        let guid = u64::from_be_bytes(self.guid());
        let mut context = vec![0; 0x200];
        put_all(
            &mut context,
            &[
                flag(0x20, 1),                           // has_smi
                number(0x22, 0, 4, 5),                   // port_physical_state: link up
                number(0x23, 0, 4, 4),                   // port_state: active
                number(0x23, 4, 4, 4),                   // vport_state
                number(0x28, 0, 64, guid),               // system_image_guid
                number(0x30, 0, 64, guid),               // port_guid
                number(0x38, 0, 64, guid),               // node_guid
                number(0x40, 0, 32, CONNECTIONS as u64), // cap_mask1
                number(0x44, 0, 32, CONNECTIONS as u64), // bits of cap_mask1 that a host may change
                number(0x60, 0, 16, LID.into()),         // lid
                number(0x64, 0, 16, LID.into()),         // sm_lid
            ],
        );
        Ok(reply::with(HEADER + context.len(), HEADER, &context))
    }

    /// MODIFY_HCA_VPORT_CONTEXT: accepts the host's report that it manages connections. The context shows
    /// this bit in any case.
    pub(super) fn modify_hca_vport(request: &Request) -> Answer {
        const FIELD_CAPABILITIES: u32 = 1 << 3;
        let is_that = request.u32(HEADER)? & !FIELD_CAPABILITIES == 0
            && request.u32(HEADER + 0x44)? & !CONNECTIONS == 0;
        if is_that { Ok(reply::done()) } else { Err(Refused::PARAMETER) }
    }

    /// QUERY_HCA_VPORT_GID: returns the only GID of the port, at index 0. Other indexes read as 0.
    pub(super) fn query_hca_gid(&self, request: &Request) -> Answer {
        let own = self.profile().port_gid;
        let gid = if request.u16(0xe)? == 0 { own } else { [0; 16] };
        let mut answer = reply::with(HEADER, 0xc, &1_u16.to_be_bytes());
        answer.extend(gid);
        Ok(answer)
    }

    /// QUERY_HCA_VPORT_PKEY: returns the default partition key, at index 0. Other indexes read as 0.
    pub(super) fn query_hca_pkey(request: &Request) -> Answer {
        let pkey = if request.u16(0xe)? == 0 { u32::from(DEFAULT_PKEY) } else { 0 };
        Ok(reply::with(HEADER + 4, HEADER, &pkey.to_be_bytes()))
    }

    /// MAD_IFC: takes a management packet for the port itself. The device answers that it lacks the attribute
    /// that the packet names (InfiniBand 13.4.7).
    pub(super) fn manage(request: &Request) -> Answer {
        const MAD: usize = 256;
        const RESPONSE: u8 = 0x80;
        const NO_SUCH_ATTRIBUTE: [u8; 2] = [0, 0x0c];
        let mut answer = vec![0; HEADER];
        answer.extend_from_slice(request.bytes(HEADER, MAD)?);
        if let Some(method) = answer.get_mut(HEADER + 3) {
            *method |= RESPONSE;
        }
        answer.splice(HEADER + 4..HEADER + 6, NO_SUCH_ATTRIBUTE);
        Ok(answer)
    }
}
