//! Isolation of users. A command carries the number (`uid`) of a user context, and the objects that it makes
//! belong to this context. Commands of other contexts cannot name these objects. Context 0 is the host
//! itself, whose commands may name all objects.
//!
//! Assumption: an object of another context is refused as if it did not exist.

use super::opcode;
use super::queue_pairs::steps;
use super::reply::{self, Refused, free};
use super::request::Request;
use crate::device::{Device, Error};
use crate::interface_state::{Kind, Umem};
use crate::memory::Memory;
use alloc::vec::Vec;

/// The context of objects that all contexts may name (`MLX5_SHARED_RESOURCE_UID` of Linux).
const SHARED: u16 = 0xffff;

/// Offset of the object's number in most commands.
const NUMBER: usize = 9;

/// Objects that commands name: the command, the kind of object, and the offset of the object's number.
const NAMES: &[(u16, u16, usize)] = &[
    (opcode::CREATE_MKEY, opcode::ALLOC_PD, 0x1d),
    (opcode::CREATE_CQ, opcode::ALLOC_UAR, 0x1d),
    (opcode::CREATE_CQ, opcode::CREATE_EQ, 0x25),
    (opcode::CREATE_QP, opcode::ALLOC_PD, 0x1d),
    (opcode::CREATE_QP, opcode::ALLOC_UAR, 0x25),
    (opcode::CREATE_QP, opcode::CREATE_CQ, 0x95),
    (opcode::CREATE_QP, opcode::CREATE_CQ, 0xb5),
    (opcode::CREATE_RMP, opcode::ALLOC_PD, 0x59),
    (opcode::CREATE_SQ, opcode::CREATE_CQ, 0x29),
    (opcode::CREATE_SQ, opcode::ALLOC_UAR, 0x5d),
    (opcode::CREATE_PSV, opcode::ALLOC_PD, 9),
    (opcode::CREATE_OBJECT, opcode::ALLOC_PD, 0x1d),
    (opcode::MODIFY_OBJECT, opcode::CREATE_OBJECT, NUMBER),
    (opcode::QUERY_OBJECT, opcode::CREATE_OBJECT, NUMBER),
    (opcode::MODIFY_CQ, opcode::CREATE_CQ, NUMBER),
    (opcode::MODIFY_RMP, opcode::CREATE_RMP, NUMBER),
    (opcode::QUERY_QP, opcode::CREATE_QP, NUMBER),
];

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
        match opcode {
            opcode::CREATE_UCTX => return self.make_number(opcode),
            opcode::DESTROY_UCTX => return self.destroy_context(request.u16(0xa)?),
            _ => {}
        }
        let uid = request.uid()?;
        self.check_names(opcode, request, uid)?;
        let answer = self.object_command(opcode, request)?;
        let owners = &mut self.interface.owners;
        if uid != 0 && opcode::LIVES.iter().any(|(makes, _)| *makes == opcode) {
            for number in made(opcode, &answer) {
                owners.insert((Kind(opcode), number), uid);
            }
        }
        if let Some(makes) = opcode::maker(opcode) {
            owners.remove(&(Kind(makes), request.u24(NUMBER)?));
        }
        Ok(answer)
    }

    /// Refuses a command that names an object of another context, or that carries a context that does not
    /// exist.
    fn check_names(&self, opcode: u16, request: &Request, uid: u16) -> Result<(), Refused> {
        if uid == 0 || uid == SHARED {
            return Ok(());
        }
        if !self.interface.numbers.contains(&(opcode::CREATE_UCTX, uid.into())) {
            return Err(Refused::RESOURCE);
        }
        let named = NAMES.iter().filter(|(command, ..)| *command == opcode).map(|(_, of, at)| (*of, *at));
        let ended = opcode::maker(opcode).map(|makes| (makes, NUMBER));
        let stepped = steps(opcode).then_some((opcode::CREATE_QP, NUMBER));
        for (of, at) in named.chain(ended).chain(stepped) {
            let number = request.u24(at)?;
            // A queue pair without receives may leave out the completion queue of receives: its number is
            // then 0.
            let is_none = number == 0 && of == opcode::CREATE_CQ;
            if !is_none {
                self.may_name(uid, Kind(of), number)?;
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

    /// DESTROY_UCTX: destroys a user context. Assumption: a context with objects is in use.
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

    /// DESTROY_UMEM: destroys a umem. Assumption: a umem with a ring or a doorbell record is in use.
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
