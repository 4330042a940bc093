//! Executes commands by their opcodes, and refuses commands that the state of the command interface does not
//! allow.

use super::events::kind;
use super::{ethernet, port};
use crate::capabilities::capabilities;
use crate::commands::reply::{self, HEADER};
use crate::commands::{Refused, Request};
use crate::device::Device;
use crate::interface_state::{Checksum, Phase};
use crate::memory::Memory;
use crate::object::Pd;
use crate::profile::Port;
use alloc::vec::Vec;

/// Opcodes of commands about the PCI function, its pages and its port (`MLX5_CMD_OP_*` of Linux).
mod opcode {
    pub(super) const QUERY_HCA_CAP: u16 = 0x100;
    pub(super) const QUERY_ADAPTER: u16 = 0x101;
    pub(super) const INIT_HCA: u16 = 0x102;
    pub(super) const TEARDOWN_HCA: u16 = 0x103;
    pub(super) const ENABLE_HCA: u16 = 0x104;
    pub(super) const DISABLE_HCA: u16 = 0x105;
    pub(super) const QUERY_PAGES: u16 = 0x107;
    pub(super) const MANAGE_PAGES: u16 = 0x108;
    pub(super) const SET_HCA_CAP: u16 = 0x109;
    pub(super) const QUERY_ISSI: u16 = 0x10a;
    pub(super) const SET_ISSI: u16 = 0x10b;
    pub(super) const MAD_IFC: u16 = 0x50d;
    pub(super) const QUERY_HCA_VPORT_CONTEXT: u16 = 0x762;
    pub(super) const MODIFY_HCA_VPORT_CONTEXT: u16 = 0x763;
    pub(super) const QUERY_HCA_VPORT_GID: u16 = 0x764;
    pub(super) const QUERY_HCA_VPORT_PKEY: u16 = 0x765;
    pub(super) const ACCESS_REGISTER: u16 = 0x805;
}

/// The numbers of pages that the firmware wants at boot and before INIT_HCA. Neither is a power of two, since
/// drivers must not expect one.
const BOOT_PAGES: u32 = 5;
const INIT_PAGES: u32 = 150;

/// The number of additional pages that the firmware wants while it runs.
const MORE_PAGES: i32 = 8;

/// The number of bytes of a capability structure, the offset of `cmdif_checksum` in the structure of general
/// capabilities, and the values of this field. The field is the upper two bits of its byte.
const CAPABILITIES: usize = 0x1000;
const CMDIF_CHECKSUM: usize = 0x42;
const DISABLED: u8 = 0;
const INITIAL_STATE: u8 = 1;
const ENABLED: u8 = 3;

/// The function number that QUERY_PAGES returns, and that MANAGE_PAGES must repeat. The number differs from
/// 0, so that drivers that ignore it fail.
const PAGES_OF: u16 = 7;

/// The number of bytes of a page.
const PAGE: usize = 4096;

type Answer = Result<Vec<u8>, Refused>;

impl<M: Memory> Device<M> {
    /// Executes a command, and returns its reply. A refused command changes nothing.
    pub(super) fn carry_out(&mut self, request: &Request) -> Answer {
        let opcode = request.u16(0)?;
        match (self.interface.phase, opcode) {
            (Phase::Reset, opcode::ENABLE_HCA) => {
                self.own_function(request)?;
                self.interface.phase = Phase::Enabled;
                Ok(reply::done())
            }
            // In the reset state, all other commands are refused. In the other states, ENABLE_HCA is refused.
            (Phase::Reset, _) | (_, opcode::ENABLE_HCA) => Err(Refused::STATE),
            (Phase::Enabled, opcode::DISABLE_HCA) => {
                self.own_function(request)?;
                self.interface.phase = Phase::Reset;
                self.interface.pages.clear();
                self.interface.current = None;
                self.interface.checksum = Checksum::default();
                Ok(reply::done())
            }
            (_, opcode::QUERY_ISSI) => Ok(reply::with(0x70, 0x6c, &0b11_u32.to_be_bytes())),
            (Phase::Enabled, opcode::SET_ISSI) => match request.u16(0xa)? {
                0 | 1 => Ok(reply::done()),
                _ => Err(Refused::PARAMETER),
            },
            (_, opcode::QUERY_HCA_CAP) => {
                let found = self.tell_capabilities(request.u16(6)?).ok_or(Refused::PARAMETER)?;
                Ok(reply::with(HEADER + found.len(), HEADER, &found))
            }
            (Phase::Enabled, opcode::SET_HCA_CAP) => self.set_capabilities(request),
            (_, opcode::QUERY_ADAPTER) => Ok(self.query_adapter()),
            (_, opcode::ACCESS_REGISTER) => self.access_register(request),
            (_, opcode::QUERY_HCA_VPORT_CONTEXT) => self.query_hca_vport(),
            (_, opcode::MODIFY_HCA_VPORT_CONTEXT) => Self::modify_hca_vport(request),
            (_, opcode::QUERY_HCA_VPORT_GID) => self.query_hca_gid(request),
            (_, opcode::QUERY_HCA_VPORT_PKEY) => Self::query_hca_pkey(request),
            (Phase::Running, opcode::MAD_IFC) => Self::manage(request),
            (_, opcode::QUERY_PAGES) => self.query_pages(request),
            (_, opcode::MANAGE_PAGES) => self.manage_pages(request),
            (Phase::Enabled, opcode::INIT_HCA) => {
                if self.interface.pages.len() < (BOOT_PAGES + INIT_PAGES) as usize {
                    return Err(Refused::STATE);
                }
                self.interface.phase = Phase::Running;
                // Number 0 is the protection domain of the driver's own queue pairs.
                self.objects.pds.insert_at(0, Pd);
                Ok(reply::done())
            }
            (Phase::Running, opcode::TEARDOWN_HCA) => match request.u16(0xa)? {
                0 => {
                    self.drop_objects();
                    self.interface.phase = Phase::Enabled;
                    Ok(reply::done())
                }
                _ => Err(Refused::PARAMETER),
            },
            (
                Phase::Running,
                opcode::DISABLE_HCA | opcode::INIT_HCA | opcode::SET_ISSI | opcode::SET_HCA_CAP,
            ) => Err(Refused::STATE),
            (Phase::Running, _) => self.command_of_user(opcode, request),
            _ => Err(Refused::STATE),
        }
    }

    /// Returns the current or the maximal capabilities of a kind. The host chooses the current general
    /// capabilities by SET_HCA_CAP. Before SET_HCA_CAP, they differ from the maximal capabilities only in the
    /// mode of command signatures (`cmdif_checksum`).
    fn tell_capabilities(&self, op_mod: u16) -> Option<Vec<u8>> {
        let mut found = capabilities(op_mod, self.profile())?;
        if self.profile().port == Port::Ethernet {
            found = ethernet::with_offloads(op_mod >> 1, found);
        }
        if op_mod >> 1 == 0 {
            found = port::with_host(found, self.profile().port);
            let is_now = op_mod & 1 != 0;
            if let Some(current) = self.interface.current.as_ref().filter(|_| is_now) {
                return Some(current.clone());
            }
            let checksum = if is_now { INITIAL_STATE } else { ENABLED };
            if let Some(byte) = found.get_mut(CMDIF_CHECKSUM) {
                *byte = *byte & 0x3f | checksum << 6;
            }
        }
        Some(found)
    }

    /// Stores the host's choice of capabilities. Only the mode of command signatures (`cmdif_checksum`) has
    /// an effect. For atomics, the host may only choose that old values are in the host's byte order. This
    /// device has no other order.
    fn set_capabilities(&mut self, request: &Request) -> Answer {
        let chosen = request.bytes(HEADER, CAPABILITIES)?;
        match request.u16(6)? >> 1 {
            0 => {}
            3 if self.profile().atomic && chosen.get(8).is_some_and(|byte| byte >> 6 == 1) => {
                return Ok(reply::done());
            }
            _ => return Err(Refused::PARAMETER),
        }
        let checksum = match chosen.get(CMDIF_CHECKSUM).map(|byte| byte >> 6) {
            Some(DISABLED) => Checksum::Off,
            Some(INITIAL_STATE) => Checksum::Initial,
            Some(ENABLED) => Checksum::On,
            _ => return Err(Refused::PARAMETER),
        };
        self.interface.current = Some(chosen.to_vec());
        self.interface.checksum = checksum;
        Ok(reply::done())
    }

    /// Asks the host for more pages when the first queue pair is created, and asks it to take pages back when
    /// the last queue pair is destroyed. A driver thus meets both kinds of page requests. The requests are
    /// events, so the device makes none unless an event queue takes page requests.
    pub(super) fn want_pages(&mut self) {
        let has_queues = self.objects.qps.values().next().is_some();
        let interface = &mut self.interface;
        if has_queues != interface.more_pages && interface.is_told(kind::PAGE_REQUEST) {
            interface.more_pages = has_queues;
            interface.page_request = Some((PAGES_OF, if has_queues { MORE_PAGES } else { -MORE_PAGES }));
        }
    }

    /// Checks that a command names PCI function 0, the driver's own function. The device has no other.
    fn own_function(&self, request: &Request) -> Result<(), Refused> {
        if request.u32(8)? == 0 { Ok(()) } else { Err(Refused::PARAMETER) }
    }

    fn query_pages(&self, request: &Request) -> Answer {
        self.own_function(request)?;
        let wanted = match request.u16(6)? {
            1 => BOOT_PAGES,
            2 => INIT_PAGES,
            _ => return Err(Refused::PARAMETER),
        };
        let mut answer = reply::with(HEADER, 0xa, &PAGES_OF.to_be_bytes());
        answer.splice(0xc.., wanted.to_be_bytes());
        Ok(answer)
    }

    fn manage_pages(&mut self, request: &Request) -> Answer {
        if request.u32(8)? != u32::from(PAGES_OF) {
            return Err(Refused::PARAMETER);
        }
        let count = request.u32(0xc)? as usize;
        match request.u16(6)? {
            1 => self.take_pages(request.pages(0x10, count)?),
            2 => Ok(self.give_pages(count)),
            _ => Err(Refused::PARAMETER),
        }
    }

    /// Takes pages from the host for the firmware, and overwrites them. The command is refused unless all
    /// pages are memory at different multiples of 4096 other than 0, and none belongs to the firmware
    /// already.
    fn take_pages(&mut self, pages: Vec<u64>) -> Answer {
        for (index, page) in pages.iter().enumerate() {
            let is_new =
                !self.interface.pages.contains(page) && !pages.iter().take(index).any(|one| one == page);
            if *page == 0 || !page.is_multiple_of(PAGE as u64) || !is_new {
                return Err(Refused::PARAMETER);
            }
            self.memory.read(*page, &mut [0; PAGE]).map_err(|_| Refused::PARAMETER)?;
        }
        for page in &pages {
            self.memory.write(*page, &[0xf0; PAGE]).map_err(|_| Refused::PARAMETER)?;
        }
        self.interface.pages.extend(pages);
        Ok(reply::done())
    }

    /// Gives at most `most` pages back to the host, and returns the reply that lists them. The firmware keeps
    /// the pages that it needs in this state.
    fn give_pages(&mut self, most: usize) -> Vec<u8> {
        let kept =
            if self.interface.phase == Phase::Running { (BOOT_PAGES + INIT_PAGES) as usize } else { 0 };
        let pages = &mut self.interface.pages;
        // A reply returns at most 50 pages; the host asks again for the others.
        let count = pages.len().saturating_sub(kept).min(most).min(50);
        let given = pages.split_off(pages.len() - count);
        let mut answer = reply::with(HEADER, 8, &(count as u32).to_be_bytes());
        given.iter().for_each(|page| answer.extend(page.to_be_bytes()));
        answer
    }
}
