//! Contexts, and the objects that they hold under handles.

use crate::ground::abi::{Destination, QpCapabilities, QpValues};
use crate::ground::fault::Ending;
use crate::ground::sys::Mapping;
use crate::state::doorbell_page::DoorbellPage;
use crate::state::events::Subject;
use mlx5_mkey::types::{Key, MkeyIndex};
use mlx5_mkey::wire::prm::qp_context::Qpc;
use mlx5_softdev::{QpState, Transport};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The objects that a queue depends on, if a DEVX command made the queue: its memory (umem) and its doorbell
/// page, by their handles. The program has to destroy the queue before these objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    /// Handles of the memory of ring and doorbell record.
    pub(crate) umems: [Option<u32>; 2],
    /// The handle of the doorbell page.
    pub(crate) uar: Option<u32>,
}

/// The values that queue pairs, completion queues and shared receive queues have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    /// The program's handle for the queue in events (`user_handle` of verbs). `None` if a DEVX command made
    /// the queue.
    pub(crate) user_handle: Option<u64>,
    /// The objects that the queue depends on, if a DEVX command made it.
    pub(crate) base: Base,
    /// The number of asynchronous events of the queue.
    pub(crate) async_events: u32,
    /// The number of the channel for asynchronous events of the queue, if there is one.
    pub(crate) async_channel: Option<u32>,
}

impl Common {
    /// Returns what a queue of verbs has.
    pub(crate) fn of_verbs(user_handle: u64, async_channel: Option<u32>) -> Self {
        Self { user_handle: Some(user_handle), async_channel, ..Self::default() }
    }

    /// Returns what a queue has that a DEVX command makes.
    pub(crate) fn of_command(base: Base) -> Self {
        Self { base, ..Self::default() }
    }
}

/// A completion queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cq {
    pub(crate) number: u32,
    /// The values that all queues have.
    pub(crate) common: Common,
    /// The number of the completion channel, if the queue has one.
    pub(crate) channel: Option<u32>,
    pub(crate) ring: u64,
    /// Whether each entry is written over the first entry.
    pub(crate) collapsed: bool,
    pub(crate) entries: u32,
    pub(crate) entry_bytes: u32,
    /// Address of the doorbell record: consumer index, then the arm word.
    pub(crate) record: u64,
    /// The sequence number of the last arm word for which an event was raised.
    pub(crate) fired: Option<u8>,
    /// The number of events that were sent to the completion channel.
    pub(crate) completion_events: u32,
}

/// A queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) transport: Transport,
    /// The values that all queues have.
    pub(crate) common: Common,
    /// Address of the doorbell record of the send ring, or of the word that stands for the record
    /// ([`DoorbellPage::record`]).
    pub(crate) record: u64,
    /// The doorbell page of a queue pair without a doorbell record for requests.
    pub(crate) alone: Option<Arc<DoorbellPage>>,
    /// Number of the send ring's blocks.
    pub(crate) blocks: u32,
    /// The limits that the queue pair was created with.
    pub(crate) capabilities: QpCapabilities,
    /// Whether every request gets a completion.
    pub(crate) signal_all: bool,
    /// The queue pair context that commands of the device read, without the fields that change by themselves.
    pub(crate) context: Qpc,
    /// The peer's address and the other values that modifications have set last.
    pub(crate) destination: Destination,
    pub(crate) values: QpValues,
    /// The state that Linux believes the queue pair to be in (`struct mlx5_ib_qp`, `state`). Only MODIFY_QP
    /// and QUERY_QP of verbs change it. No command of the device changes it.
    pub(crate) linux_state: QpState,
}

/// A shared receive queue.
#[derive(Clone, Debug)]
pub(crate) struct Srq {
    pub(crate) number: u32,
    /// The values that all queues have.
    pub(crate) common: Common,
    /// The most receive requests that the queue holds.
    pub(crate) receives: u32,
    /// The most segments of a receive request.
    pub(crate) segments: u32,
}

/// An object that was made by a command of the device (DEVX).
#[derive(Clone, Debug)]
pub(crate) enum Devx {
    /// An mkey, by its index.
    Mkey(MkeyIndex),
    /// A region of registered memory.
    Region {
        index: MkeyIndex,
        /// The handle of the umem.
        umem: u32,
    },
    /// PSVs that one command made, by their numbers.
    Psvs(Vec<u32>),
    /// A data encryption key and the 8 bytes that its owner may store with it.
    Dek { number: u32, opaque: [u8; 8] },
    /// A crypto login, by its number.
    Login(u32),
}

/// Registered memory for queues that commands of the device make (umem).
#[derive(Clone, Debug)]
pub(crate) struct Umem {
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// Whether the device may write to the memory.
    pub(crate) writable: bool,
    /// The mapping of a dma-buf, if this memory belongs to one.
    pub(crate) _mapping: Option<Arc<Mapping>>,
}

/// A registered region.
#[derive(Clone, Debug)]
pub(crate) struct Mr {
    pub(crate) key: Key,
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// The region's access flags (`enum ib_uverbs_access_flags`).
    pub(crate) access: u32,
    /// The mapping of a dma-buf, if the region covers one.
    pub(crate) mapping: Option<Arc<Mapping>>,
}

/// Any object with a handle.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// A protection domain, by its number.
    Pd(u32),
    Mr(Mr),
    /// A memory window, by its mkey's index.
    Window(MkeyIndex),
    Cq(Cq),
    Srq(Srq),
    Qp(Box<Qp>),
    AddressHandle,
    Uar(Arc<DoorbellPage>),
    Umem(Umem),
    Devx(Devx),
}

impl Object {
    /// Returns the object's place in the order in which objects are destroyed with their context: an object
    /// comes before the objects that it uses.
    pub(crate) const fn rank(&self) -> u8 {
        match self {
            Self::Qp(_) => 0,
            Self::Cq(_) | Self::Srq(_) => 1,
            Self::Window(_)
            | Self::Mr(_)
            | Self::Devx(_)
            | Self::AddressHandle
            | Self::Uar(_)
            | Self::Umem(_) => 2,
            Self::Pd(_) => 3,
        }
    }

    /// Returns the subject of the object's events if the object is a queue: an object that may have work for
    /// the device.
    pub(crate) const fn subject(&self) -> Option<Subject> {
        match self {
            Self::Qp(qp) => Some(Subject::Qp(qp.number)),
            Self::Cq(cq) => Some(Subject::Cq(cq.number)),
            Self::Srq(srq) => Some(Subject::Srq(srq.number)),
            _ => None,
        }
    }

    /// Returns what a queue has in common with other queues.
    pub(crate) const fn common(&self) -> Option<&Common> {
        match self {
            Self::Qp(qp) => Some(&qp.common),
            Self::Cq(cq) => Some(&cq.common),
            Self::Srq(srq) => Some(&srq.common),
            _ => None,
        }
    }

    /// Returns what a queue has in common with other queues, to be changed.
    pub(crate) const fn common_mut(&mut self) -> Option<&mut Common> {
        match self {
            Self::Qp(qp) => Some(&mut qp.common),
            Self::Cq(cq) => Some(&mut cq.common),
            Self::Srq(srq) => Some(&mut srq.common),
            _ => None,
        }
    }

    /// Returns whether a command of DEVX has made the object.
    pub(crate) fn is_of_command(&self) -> bool {
        matches!(self, Self::Devx(_)) || self.common().is_some_and(|queue| queue.user_handle.is_none())
    }
}

/// The state of one opening of the device (`struct ib_ucontext`).
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Whether GET_CONTEXT was called.
    pub(crate) opened: bool,
    /// Whether the program may send its own commands to the device.
    pub(crate) devx: bool,
    /// The version of completion entries: 0 or 1.
    pub(crate) cqe_version: u8,
    /// The number of doorbell pages that belong to the context from the start, or `None` if the program
    /// allocates all pages itself (`MLX5_LIB_CAP_DYN_UAR`).
    pub(crate) static_pages: Option<u32>,
    /// The number of the channel for asynchronous events, if there is one.
    pub(crate) async_channel: Option<u32>,
    /// How the device has ended for this context, if it has.
    pub(crate) ending: Option<Ending>,
    /// The queues are kept apart from the other objects: the stand-in looks through all queues often, and a
    /// program may have tens of thousands of other objects.
    queues: BTreeMap<u32, Object>,
    others: BTreeMap<u32, Object>,
    /// Objects that the device has destroyed at its removal, until the program destroys them too.
    buried: BTreeMap<u32, Object>,
    next: u32,
}

impl Context {
    /// Returns whether a queue or a region depends on the memory or doorbell page with this handle.
    pub(crate) fn is_base(&self, handle: u32) -> bool {
        let is_of_region =
            |object: &Object| matches!(object, Object::Devx(Devx::Region { umem, .. }) if *umem == handle);
        if self.others.values().any(is_of_region) {
            return true;
        }
        let is_of = |base: &Base| base.umems.contains(&Some(handle)) || base.uar == Some(handle);
        self.queues().filter_map(Object::common).any(|queue| is_of(&queue.base))
    }

    /// Stores an object and returns its handle, or `None` when all handles are in use.
    pub(crate) fn insert(&mut self, object: Object) -> Option<u32> {
        let free = |handle: &u32| !self.queues.contains_key(handle) && !self.others.contains_key(handle);
        let handle = (self.next..=i32::MAX as u32).find(free).or_else(|| (0..self.next).find(free))?;
        self.next = handle.wrapping_add(1);
        if object.subject().is_some() { &mut self.queues } else { &mut self.others }.insert(handle, object);
        Some(handle)
    }

    /// Returns the object with this handle, also one that was destroyed at the device's removal.
    pub(crate) fn get_mut(&mut self, handle: u32) -> Option<&mut Object> {
        let Self { queues, others, buried, .. } = self;
        [queues, others, buried].into_iter().find_map(|objects| objects.get_mut(&handle))
    }

    /// Returns the object with this handle, if the program has not destroyed it.
    pub(crate) fn get(&self, handle: u32) -> Option<&Object> {
        self.queues.get(&handle).or_else(|| self.others.get(&handle))
    }

    /// Removes and returns the object with this handle.
    pub(crate) fn remove(&mut self, handle: u32) -> Option<Object> {
        let Self { queues, others, buried, .. } = self;
        [queues, others, buried].into_iter().find_map(|objects| objects.remove(&handle))
    }

    /// Returns all objects that the device still has.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.queues.values().chain(self.others.values())
    }

    /// Returns the number of objects that the program has not destroyed.
    pub(crate) fn count(&self) -> usize {
        self.queues.len() + self.others.len() + self.buried.len()
    }

    /// Returns all queues: queue pairs, completion queues, shared receive queues.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Object> {
        self.queues.values()
    }

    /// Returns all queues, mutably.
    pub(crate) fn queues_mut(&mut self) -> impl Iterator<Item = &mut Object> {
        self.queues.values_mut()
    }

    /// Removes all objects as [`Context::drain`] does at the device's removal, but keeps their handles valid
    /// until the program destroys them.
    pub(crate) fn bury(&mut self) -> Vec<Object> {
        self.buried =
            self.queues.iter().chain(&self.others).map(|(at, object)| (*at, object.clone())).collect();
        self.drain()
    }

    /// Removes and returns all objects, in an order in which they can be destroyed.
    pub(crate) fn drain(&mut self) -> Vec<Object> {
        let maps = [&mut self.queues, &mut self.others].map(std::mem::take);
        let mut objects: Vec<Object> = maps.into_iter().flat_map(BTreeMap::into_values).collect();
        objects.sort_by_key(Object::rank);
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cq(number: u32) -> Object {
        let common = Common::of_command(Base { umems: [None; 2], uar: Some(1) });
        Object::Cq(Cq { number, common, ..Cq::default() })
    }

    #[test]
    fn queues_are_found_without_the_rest() {
        let mut context = Context::default();
        let uar = Object::Uar(Arc::new(DoorbellPage::new().unwrap()));
        let kinds = [Object::Pd(1), uar, cq(7), Object::Devx(Devx::Psvs(Vec::new())), cq(8)];
        let handles = kinds.map(|object| context.insert(object).unwrap());
        assert_eq!(handles, [0, 1, 2, 3, 4]);
        let numbers = |context: &Context| {
            let number = |object: &Object| match object {
                Object::Cq(cq) => cq.number,
                _ => 0,
            };
            context.queues().map(number).collect::<Vec<_>>()
        };
        assert_eq!((numbers(&context), context.count()), (vec![7, 8], 5));
        assert!(context.is_base(1) && !context.is_base(0));
        assert!(matches!(context.remove(2), Some(Object::Cq(_))) && context.get_mut(2).is_none());
        assert_eq!((numbers(&context), context.count()), (vec![8], 4));
        assert!(matches!(context.drain().as_slice(), [Object::Cq(_), .., Object::Pd(1)]));
        assert_eq!((numbers(&context), context.count()), (vec![], 0));
    }
}
