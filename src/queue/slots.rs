//! The free elements of a pool, in the order in which they became free, and the elements in use.
//!
//! A handle names its pool, the element, and the use. Each pool has a number that no other pool of the
//! process has, and each use has a number that no other use in its pool has. A pool therefore refuses handles
//! of other pools, and handles whose element was put back.

use super::completion::{Message, Outcome, WorkCompletion};
use super::in_flight::RequestNumber;
use super::room::Room;
use crate::mkey::error::PoolError;
use crate::types::{Key, Qpn, QueueError};
use core::sync::atomic::{AtomicU64, Ordering};

/// The number of the next pool. No pool has number 0.
static NEXT_POOL: AtomicU64 = AtomicU64::new(1);

/// Marks the end of a chain of slots.
const NONE: u32 = u32::MAX;

/// The handle of an element in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct Handle {
    pool: u64,
    number: u64,
    position: u32,
}

impl Handle {
    /// Returns the position of the element in its pool.
    pub(crate) const fn position(self) -> usize {
        self.position as usize
    }

    /// Returns the handle as plain numbers, for C. At least one of the numbers is not 0.
    #[cfg(feature = "capi")]
    pub(crate) const fn to_numbers(self) -> [u64; 3] {
        [self.pool, self.number, self.position as u64]
    }

    /// Returns the handle with these numbers. A pool refuses a handle whose numbers name none of its elements
    /// in use.
    #[cfg(feature = "capi")]
    pub(crate) const fn from_numbers([pool, number, position]: [u64; 3]) -> Self {
        Self { pool, number, position: position as u32 }
    }
}

/// The state of an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The slot has no element.
    Vacant,
    Free,
    InUse,
    /// The element is in use, and a posted request, the one with this number on this queue pair, takes its
    /// key out of service.
    Invalidating {
        qpn: Qpn,
        number: RequestNumber,
    },
}

/// A place for one element of a pool, with the state of the element. A pool needs one for each element, in
/// memory that the caller provides.
///
/// ```
/// use mlx5_mkey::queue::PoolSlot;
/// let depth = 64;
/// let slots = vec![PoolSlot::EMPTY; depth];
/// ```
#[derive(Clone, Copy)]
pub struct PoolSlot {
    state: State,
    /// The number of the element's last use.
    number: u64,
    /// The position of the next slot in the chain of free or of vacant slots.
    next: u32,
}

impl PoolSlot {
    /// A slot without an element.
    pub const EMPTY: Self = Self { state: State::Vacant, number: 0, next: NONE };
}

crate::fmt::format_counters!([] PoolSlot [] { number });

/// The positions of the first and the last slot of a chain. Each slot of the chain names the next.
#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    const EMPTY: Self = Self { first: NONE, last: NONE };

    fn push_back(&mut self, slots: &mut [PoolSlot], position: u32) {
        if let Some(slot) = slots.get_mut(position as usize) {
            slot.next = NONE;
        }
        match slots.get_mut(self.last as usize) {
            Some(last) if self.first != NONE => last.next = position,
            _ => self.first = position,
        }
        self.last = position;
    }

    fn push_front(&mut self, slots: &mut [PoolSlot], position: u32) {
        if self.first == NONE {
            self.last = position;
        }
        if let Some(slot) = slots.get_mut(position as usize) {
            slot.next = self.first;
        }
        self.first = position;
    }

    fn pop_front(&mut self, slots: &[PoolSlot]) -> Option<u32> {
        let position = self.first;
        self.first = slots.get(position as usize)?.next;
        Some(position)
    }
}

/// The slots of a pool, at most 2^32 - 1.
pub(crate) struct Slots<'m> {
    pool: u64,
    /// Number of uses of all elements until now. The next use gets this number.
    uses: u64,
    /// The free slots. The first one became free first.
    free: Chain,
    /// The slots without elements. Slots whose element was removed come first, the last removed at the front,
    /// then slots that never had an element.
    vacant: Chain,
    available: u32,
    slots: Room<'m, PoolSlot>,
}

impl<'m> Slots<'m> {
    /// Makes a pool without elements that has room for `count` of them.
    ///
    /// # Errors
    /// [`QueueError::TooFewSlots`].
    pub(crate) fn new(slots: Room<'m, PoolSlot>, count: usize) -> Result<Self, QueueError> {
        let len = slots.as_ref().len();
        if len < count {
            return Err(QueueError::TooFewSlots { what: "slots of a pool", needed: count, slots: len });
        }
        Ok(Self::with_room(slots, count))
    }

    /// Makes a pool without elements that has room for one in each slot.
    #[cfg(feature = "devx")]
    pub(crate) fn full(slots: Room<'m, PoolSlot>) -> Self {
        let count = slots.as_ref().len();
        Self::with_room(slots, count)
    }

    fn with_room(mut slots: Room<'m, PoolSlot>, count: usize) -> Self {
        let mut vacant = Chain::EMPTY;
        slots.as_mut().fill(PoolSlot::EMPTY);
        for position in 0..count as u32 {
            vacant.push_back(slots.as_mut(), position);
        }
        let pool = NEXT_POOL.fetch_add(1, Ordering::Relaxed);
        Self { pool, uses: 0, free: Chain::EMPTY, vacant, available: 0, slots }
    }

    /// Returns the number of free elements.
    pub(crate) const fn available(&self) -> usize {
        self.available as usize
    }

    /// Adds a free element and returns its position, or `None` if there is no room.
    pub(crate) fn add(&mut self) -> Option<usize> {
        let position = self.vacant.pop_front(self.slots.as_ref())?;
        self.make_free(position);
        Some(position as usize)
    }

    /// Removes the free element that became free first, and returns its position.
    pub(crate) fn remove_free(&mut self) -> Option<usize> {
        let position = self.free.pop_front(self.slots.as_ref())?;
        self.available -= 1;
        self.make_vacant(position);
        Some(position as usize)
    }

    /// Takes the element that became free first.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Handle> {
        let position = self.free.pop_front(self.slots.as_ref())?;
        let number = self.uses;
        let slot = self.slots.as_mut().get_mut(position as usize)?;
        (slot.state, slot.number) = (State::InUse, number);
        (self.uses, self.available) = (number + 1, self.available - 1);
        Some(Handle { pool: self.pool, number, position })
    }

    /// Finds the slot of an element in use.
    #[inline]
    fn slot(&mut self, handle: Handle) -> Result<&mut PoolSlot, PoolError> {
        if handle.pool != self.pool {
            return Err(PoolError::OtherPool);
        }
        let slot = self.slots.as_mut().get_mut(handle.position()).ok_or(PoolError::NotInUse)?;
        let is_in_use = slot.number == handle.number && !matches!(slot.state, State::Vacant | State::Free);
        if is_in_use { Ok(slot) } else { Err(PoolError::NotInUse) }
    }

    /// Returns the position of an element in use.
    #[inline]
    pub(crate) fn position(&mut self, handle: Handle) -> Result<usize, PoolError> {
        self.slot(handle).map(|_| handle.position())
    }

    /// Notes that a posted request takes the key of an element in use out of service.
    pub(crate) fn invalidating(&mut self, handle: Handle, qpn: Qpn, number: RequestNumber) {
        if let Ok(slot) = self.slot(handle) {
            slot.state = State::Invalidating { qpn, number };
        }
    }

    /// Frees an element whose key needs no invalidation, because no peer can use it. Refuses an element that
    /// is being invalidated.
    pub(crate) fn put_unused(&mut self, handle: Handle) -> Result<(), PoolError> {
        if self.slot(handle)?.state != State::InUse {
            return Err(PoolError::KeyInService);
        }
        self.make_free(handle.position);
        Ok(())
    }

    /// Frees an element if `done` proves that its key is out of service.
    pub(crate) fn put(&mut self, handle: Handle, key: Key, done: &WorkCompletion) -> Result<(), PoolError> {
        let state = self.slot(handle)?.state;
        let is_out_of_service = match done.outcome {
            // Several requests of a queue pair may have the same name (`wr_id`), so the number decides.
            Outcome::Sent { .. } => matches!(
                state,
                State::Invalidating { qpn, number } if qpn == done.qpn && done.number.proves(number)
            ),
            Outcome::Received { message: Message::SendInvalidate(invalidated), .. } => invalidated == key,
            _ => false,
        };
        if !is_out_of_service {
            return Err(PoolError::KeyInService);
        }
        self.make_free(handle.position);
        Ok(())
    }

    /// Removes an element in use, and returns its position.
    pub(crate) fn remove(&mut self, handle: Handle) -> Result<usize, PoolError> {
        self.slot(handle)?;
        self.make_vacant(handle.position);
        Ok(handle.position())
    }

    /// Returns the handle of the element at a position, if the element is in use.
    fn handle(&self, position: usize) -> Option<Handle> {
        let slot = self.slots.as_ref().get(position)?;
        let is_in_use = !matches!(slot.state, State::Vacant | State::Free);
        is_in_use.then_some(Handle { pool: self.pool, number: slot.number, position: position as u32 })
    }

    /// Returns the handles of all elements in use, by position.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = Handle> {
        (0..self.slots.as_ref().len()).filter_map(|position| self.handle(position))
    }

    fn make_free(&mut self, position: u32) {
        self.set(position, State::Free);
        self.free.push_back(self.slots.as_mut(), position);
        self.available += 1;
    }

    fn make_vacant(&mut self, position: u32) {
        self.set(position, State::Vacant);
        self.vacant.push_front(self.slots.as_mut(), position);
    }

    fn set(&mut self, position: u32, state: State) {
        if let Some(slot) = self.slots.as_mut().get_mut(position as usize) {
            slot.state = state;
        }
    }
}
