//! Isolation of users. A command carries the number (`uid`) of a user context, and the objects that it makes
//! belong to this context. Commands of other contexts cannot name these objects. Context 0 is the host
//! itself, whose commands may name all objects.
//!
//! Assumption: the refusal of a command that names an object of another context is the same as if the object
//! did not exist.

use super::opcode::{self, NUMBER};
use crate::commands::reply::{self, free};
use crate::commands::{Refused, Request, steps};
use crate::device::{Device, Error};
use crate::interface_state::{Kind, Umem};
use crate::memory::Memory;
use alloc::vec::Vec;

/// The context of objects that all contexts may name (`MLX5_SHARED_RESOURCE_UID` of Linux).
const SHARED: u16 = 0xffff;

/// Objects that commands name: the command, the kind of object, and the offset of the object's number
/// (`mlx5_ifc.h` of Linux).
const NAMES: &[(u16, u16, usize)] = &[
    (opcode::CREATE_MKEY, opcode::ALLOC_PD, 0x1d),
    (opcode::CREATE_CQ, opcode::ALLOC_UAR, 0x1d),
    (opcode::CREATE_CQ, opcode::CREATE_EQ, 0x25),
    (opcode::CREATE_QP, opcode::ALLOC_PD, 0x1d),
    (opcode::CREATE_QP, opcode::ALLOC_UAR, 0x25),
    (opcode::CREATE_QP, opcode::CREATE_CQ, 0x95),
    (opcode::CREATE_RMP, opcode::ALLOC_PD, 0x59),
    (opcode::CREATE_SQ, opcode::CREATE_CQ, 0x29),
    (opcode::CREATE_SQ, opcode::ALLOC_UAR, 0x5d),
    (opcode::CREATE_RQ, opcode::CREATE_CQ, 0x29),
    (opcode::CREATE_TIR, opcode::ALLOC_TRANSPORT_DOMAIN, 0x45),
    (opcode::CREATE_TIS, opcode::ALLOC_TRANSPORT_DOMAIN, 0x45),
    (opcode::CREATE_XRC_SRQ, opcode::ALLOC_XRCD, 0x15),
    (opcode::CREATE_XRC_SRQ, opcode::ALLOC_PD, 0x29),
    (opcode::CREATE_FLOW_GROUP, opcode::CREATE_FLOW_TABLE, opcode::TABLE),
    (opcode::CREATE_PSV, opcode::ALLOC_PD, 9),
    (opcode::CREATE_OBJECT, opcode::ALLOC_PD, 0x1d),
    (opcode::MODIFY_OBJECT, opcode::CREATE_OBJECT, NUMBER),
    (opcode::QUERY_OBJECT, opcode::CREATE_OBJECT, NUMBER),
    (opcode::MODIFY_CQ, opcode::CREATE_CQ, NUMBER),
    (opcode::MODIFY_RMP, opcode::CREATE_RMP, NUMBER),
    (opcode::QUERY_QP, opcode::CREATE_QP, NUMBER),
    (opcode::MODIFY_SQ, opcode::CREATE_SQ, NUMBER),
    (opcode::MODIFY_RQ, opcode::CREATE_RQ, NUMBER),
    (opcode::MODIFY_TIR, opcode::CREATE_TIR, NUMBER),
    (opcode::MODIFY_TIS, opcode::CREATE_TIS, NUMBER),
    (opcode::MODIFY_RQT, opcode::CREATE_RQT, NUMBER),
    (opcode::DESTROY_FLOW_GROUP, opcode::CREATE_FLOW_TABLE, opcode::TABLE),
    (opcode::SET_FLOW_TABLE_ROOT, opcode::CREATE_FLOW_TABLE, opcode::TABLE),
    (opcode::SET_FLOW_TABLE_ENTRY, opcode::CREATE_FLOW_TABLE, opcode::TABLE),
    (opcode::SET_FLOW_TABLE_ENTRY, opcode::CREATE_FLOW_GROUP, 0x45),
    (opcode::DELETE_FLOW_TABLE_ENTRY, opcode::CREATE_FLOW_TABLE, opcode::TABLE),
    (opcode::MODIFY_FLOW_TABLE, opcode::CREATE_FLOW_TABLE, opcode::TABLE),
    (opcode::QUERY_Q_COUNTER, opcode::ALLOC_Q_COUNTER, 0x1d),
];

/// Objects that commands name or leave out, in the form of [`NAMES`]. The number 0 leaves the object out.
const NAMES_OR_NONE: &[(u16, u16, usize)] = &[
    (opcode::CREATE_QP, opcode::CREATE_CQ, 0xb5),
    (opcode::CREATE_SQ, opcode::CREATE_TIS, 0x4d),
    (opcode::CREATE_SQ, opcode::ALLOC_PD, 0x59),
    (opcode::CREATE_RQ, opcode::CREATE_RMP, 0x31),
    (opcode::CREATE_RQ, opcode::ALLOC_PD, 0x59),
    (opcode::CREATE_TIR, opcode::CREATE_RQ, 0x3d),
    (opcode::CREATE_TIR, opcode::CREATE_RQT, 0x41),
    (opcode::MODIFY_TIR, opcode::CREATE_RQ, 0x3d),
    (opcode::MODIFY_TIR, opcode::CREATE_RQT, 0x41),
    (opcode::CREATE_TIS, opcode::ALLOC_PD, 0x4d),
    (opcode::CREATE_XRC_SRQ, opcode::CREATE_CQ, 0x19),
    (opcode::CREATE_FLOW_TABLE, opcode::CREATE_FLOW_TABLE, 0x1d),
    (opcode::MODIFY_FLOW_TABLE, opcode::CREATE_FLOW_TABLE, 0x1d),
];

/// Sets of counters (ALLOC_Q_COUNTER) that commands name by one byte: the command and the offset of this
/// byte. The number 0 leaves the set out.
const COUNTERS: &[(u16, usize)] = &[
    (opcode::CREATE_QP, 0x24),
    (opcode::RST2INIT_QP, 0x24),
    (opcode::RTS2RTS_QP, 0x24),
    (opcode::CREATE_RQ, 0x2c),
    (opcode::MODIFY_RQ, 0x2c),
];

/// Lists of objects that commands name: the command, the offset of the list's length, the mask of the
/// length's bits, the offset of the list, and the bytes of an entry.
const LISTS: &[(u16, usize, u32, usize, usize)] = &[
    (opcode::CREATE_RQT, 0x38, 0xffff, 0x110, 4),
    (opcode::MODIFY_RQT, 0x38, 0xffff, 0x110, 4),
    (opcode::SET_FLOW_TABLE_ENTRY, 0x50, 0x00ff_ffff, 0x340, 8),
];

/// Returns the kind of object that an entry of a list names. The first byte of a flow's destination is its
/// type (`MLX5_IFC_FLOW_DESTINATION_TYPE_*`).
fn kind_of_entry(command: u16, first: u8) -> Option<u16> {
    const TO_TABLE: u8 = 1;
    const TO_TIR: u8 = 2;
    match (command, first) {
        (opcode::CREATE_RQT | opcode::MODIFY_RQT, _) => Some(opcode::CREATE_RQ),
        (_, TO_TABLE) => Some(opcode::CREATE_FLOW_TABLE),
        (_, TO_TIR) => Some(opcode::CREATE_TIR),
        _ => None,
    }
}

type Answer = Result<Vec<u8>, Refused>;

impl Request {
    /// Returns the number of the user context whose command this is.
    pub(super) fn uid(&self) -> Result<u16, Refused> {
        self.u16(2)
    }
}

impl<M: Memory> Device<M> {
    /// Executes a command on objects for its user context.
    pub(super) fn command_of_user(&mut self, opcode: u16, request: &Request) -> Answer {
        let uid = request.uid()?;
        match opcode {
            // Only the host makes and ends contexts.
            opcode::CREATE_UCTX | opcode::DESTROY_UCTX if uid != 0 => return Err(Refused::RESOURCE),
            opcode::CREATE_UCTX => return Ok(reply::number(self.make_number(opcode)?)),
            opcode::DESTROY_UCTX => return self.destroy_context(request.u16(0xa)?),
            _ => {}
        }
        self.check_names(opcode, request, uid)?;
        let answer = self.object_command(opcode, request)?;
        let owners = &mut self.interface.owners;
        if uid != 0 && opcode::LIVES.iter().any(|(makes, ..)| *makes == opcode) {
            for number in made(opcode, &answer) {
                owners.insert((Kind(opcode), number), uid);
            }
        }
        if let Some((makes, at)) = opcode::ended(opcode) {
            owners.remove(&(Kind(makes), request.u24(at)?));
        }
        Ok(answer)
    }

    /// Refuses a command that names an object of another context, or whose own context does not exist.
    fn check_names(&self, opcode: u16, request: &Request, uid: u16) -> Result<(), Refused> {
        if uid == 0 || uid == SHARED {
            return Ok(());
        }
        if !self.interface.numbers.contains(&(opcode::CREATE_UCTX, uid.into())) {
            return Err(Refused::RESOURCE);
        }
        let of = |names: &'static [(u16, u16, usize)]| {
            names.iter().filter(move |(command, ..)| *command == opcode).map(|(_, of, at)| (*of, *at))
        };
        let stepped = steps(opcode).then_some((opcode::CREATE_QP, NUMBER));
        for (kind, at) in of(NAMES).chain(opcode::ended(opcode)).chain(stepped) {
            self.may_name(uid, Kind(kind), request.u24(at)?)?;
        }
        let may_name_or_none = |kind, number| match number {
            0 => Ok(()),
            number => self.may_name(uid, Kind(kind), number),
        };
        for (kind, at) in of(NAMES_OR_NONE) {
            may_name_or_none(kind, request.u24(at)?)?;
        }
        for (_, at) in COUNTERS.iter().filter(|(command, _)| *command == opcode) {
            may_name_or_none(opcode::ALLOC_Q_COUNTER, request.u8(*at)?.into())?;
        }
        for (_, length, bits, list, bytes) in LISTS.iter().filter(|(command, ..)| *command == opcode) {
            for at in (*list..).step_by(*bytes).take((request.u32(*length)? & bits) as usize) {
                if let Some(kind) = kind_of_entry(opcode, request.u8(at)?) {
                    self.may_name(uid, Kind(kind), request.u24(at + 1)?)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that commands of a context may name an object: the object belongs to this context or to all
    /// contexts, or the context is the host.
    pub(super) fn may_name(&self, uid: u16, kind: Kind, number: u32) -> Result<(), Refused> {
        let owner = self.interface.owners.get(&(kind, number)).copied().unwrap_or_default();
        if uid == 0 || uid == SHARED || owner == uid || owner == SHARED {
            return Ok(());
        }
        Err(Refused::RESOURCE)
    }

    /// DESTROY_UCTX: destroys a user context. Assumption: a context with objects is in use, and the command
    /// is refused.
    fn destroy_context(&mut self, uid: u16) -> Answer {
        if self.interface.owners.values().any(|owner| *owner == uid) {
            return Err(Error::InUse.into());
        }
        let was_there = self.interface.numbers.remove(&(opcode::CREATE_UCTX, uid.into()));
        if was_there { Ok(reply::done()) } else { Err(Refused::RESOURCE) }
    }

    /// CREATE_UMEM: registers memory of a user for rings and doorbell records (PRM `umem`). Without the
    /// capability `umem_uid_0`, the host itself cannot have umems.
    pub(super) fn create_umem(&mut self, request: &Request) -> Answer {
        const READ: u64 = 1;
        const WRITE: u64 = 2;
        /// Umems have their own range of numbers.
        const NUMBERS: core::ops::Range<u32> = 1..0x1_0000;
        let log_page = (request.u8(0x23)? & 0x1f) + 12;
        let offset = u64::from(request.u32(0x24)?);
        let count = usize::try_from(request.u64(0x28)?).map_err(|_| Refused::INPUT_LENGTH)?;
        let bytes = count.checked_mul(8).ok_or(Refused::INPUT_LENGTH)?;
        let (words, _) = request.bytes(0x30, bytes)?.as_chunks::<8>();
        let entries: Vec<u64> = words.iter().map(|word| u64::from_be_bytes(*word)).collect();
        let page = 1_u64 << log_page;
        let pages: Vec<u64> = entries.iter().map(|entry| entry & !(READ | WRITE)).collect();
        let all = page.checked_mul(count as u64).ok_or(Refused::PARAMETER)?;
        let length = all.checked_sub(offset).filter(|_| offset < page).ok_or(Refused::PARAMETER)?;
        let is_readable = entries.iter().all(|entry| entry & READ != 0);
        if request.uid()? == 0 || !is_readable || pages.iter().any(|at| !at.is_multiple_of(page)) {
            return Err(Refused::PARAMETER);
        }
        let number = free(NUMBERS, |number| self.interface.umems.contains_key(number))?;
        let address = self.memory.open(&pages, log_page, offset).ok_or(Refused::PARAMETER)?;
        let writable = entries.iter().all(|entry| entry & WRITE != 0);
        self.interface.umems.insert(number, Umem { address, length, writable });
        Ok(reply::number(number))
    }

    /// DESTROY_UMEM: destroys a umem. Assumption: a umem that contains a ring or a doorbell record is in use,
    /// and the command is refused.
    pub(super) fn destroy_umem(&mut self, number: u32) -> Answer {
        let mut used = self.interface.over_umems.values().flatten();
        if used.any(|used| *used == Some(number)) {
            return Err(Error::InUse.into());
        }
        let umem = self.interface.umems.remove(&number).ok_or(Refused::RESOURCE)?;
        self.memory.close(umem.address);
        Ok(reply::done())
    }
}

/// Returns the numbers of the objects that a command has made.
fn made(opcode: u16, answer: &[u8]) -> Vec<u32> {
    let word = |bytes: &[u8]| bytes.try_into().map(u32::from_be_bytes).ok();
    if opcode == opcode::CREATE_PSV {
        let numbers = answer.get(0x10..).unwrap_or_default().chunks_exact(4).filter_map(word);
        return numbers.filter(|number| *number != 0).collect();
    }
    answer.get(8..12).and_then(word).into_iter().collect()
}
