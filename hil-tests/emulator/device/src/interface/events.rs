//! Event queues: an event becomes an entry, and an entry of an armed queue raises an interrupt (PRM `eqe`;
//! `eq.c` of Linux's mlx5_core).

use crate::device::{Device, Event};
use crate::interface_state::INDEX;
use crate::memory::Memory;
use alloc::vec::Vec;

/// The number of bytes of an entry of an event queue.
const ENTRY: usize = 64;
/// Offsets in an entry: of the event's data, then of the number of the queue pair or shared receive queue
/// that the event is about, or of the completion queue of a completion event.
const DATA: usize = 0x20;
const NUMBER: usize = 0x38;

/// Types of events (`enum mlx5_event` of Linux).
pub(super) mod kind {
    pub(crate) const COMPLETION: u8 = 0x00;
    pub(crate) const SQ_DRAINED: u8 = 0x03;
    pub(crate) const CQ_ERROR: u8 = 0x04;
    pub(crate) const WQ_CATASTROPHE: u8 = 0x05;
    pub(crate) const COMMAND: u8 = 0x0a;
    pub(crate) const PAGE_REQUEST: u8 = 0x0b;
    pub(crate) const WQ_INVALID_REQUEST: u8 = 0x10;
    pub(crate) const WQ_ACCESS: u8 = 0x11;
    pub(crate) const SRQ_CATASTROPHE: u8 = 0x12;
    pub(crate) const SRQ_LAST_WQE: u8 = 0x13;
    pub(crate) const SRQ_LIMIT: u8 = 0x14;
}

/// The syndrome of an event CQ_ERROR: the completion queue was full.
const OVERRUN: u8 = 1;

/// An event: its type, and the bytes of its entry from [`DATA`] on.
struct Told {
    kind: u8,
    data: [u8; 28],
}

impl Told {
    /// Returns an event about an object, whose number is at offset `at` of the entry.
    fn of(kind: u8, at: usize, number: u32) -> Self {
        let mut data = [0; 28];
        if let Some(place) = data.get_mut(at - DATA..at - DATA + 4) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        Self { kind, data }
    }
}

impl From<Event> for Told {
    fn from(event: Event) -> Self {
        match event {
            Event::SqDrained(number) => Self::of(kind::SQ_DRAINED, NUMBER, number),
            Event::QpAccess(number) => Self::of(kind::WQ_ACCESS, NUMBER, number),
            Event::QpRequest(number) => Self::of(kind::WQ_INVALID_REQUEST, NUMBER, number),
            Event::QpFatal(number) => Self::of(kind::WQ_CATASTROPHE, NUMBER, number),
            Event::CqError(number) => {
                let mut told = Self::of(kind::CQ_ERROR, DATA, number);
                told.data[0xb] = OVERRUN;
                told
            }
            Event::SrqLimit(number) => Self::of(kind::SRQ_LIMIT, NUMBER, number),
            Event::SrqFatal(number) => Self::of(kind::SRQ_CATASTROPHE, NUMBER, number),
            Event::LastWqe(number) => Self::of(kind::SRQ_LAST_WQE, NUMBER, number),
        }
    }
}

impl<M: Memory> Device<M> {
    /// Writes pending events into event queues, and returns the vectors of the resulting interrupts. Without
    /// an event queue, events stay for [`Device::take_events`].
    pub fn take_interrupts(&mut self) -> Vec<u16> {
        if !self.interface.eqs.is_empty() {
            self.tell_completions();
            for event in self.take_events() {
                self.tell(event.into());
            }
            let slots = core::mem::take(&mut self.interface.completed);
            if slots != 0 {
                self.tell(Told::of(kind::COMMAND, DATA, slots));
            }
            if let Some((function, pages)) = self.interface.page_request.take() {
                let mut told = Told::of(kind::PAGE_REQUEST, DATA, function.into());
                told.data[4..8].copy_from_slice(&pages.to_be_bytes());
                self.tell(told);
            }
        }
        core::mem::take(&mut self.interface.interrupts)
    }

    /// Writes an event for each armed completion queue with entries that the host has not taken. The event
    /// disarms the completion queue.
    fn tell_completions(&mut self) {
        let mut due = Vec::new();
        for (number, notify) in &mut self.interface.cqs {
            let (Some(armed), Some(cq)) = (notify.armed, self.objects.cqs.get(*number)) else { continue };
            let newest = if armed.solicited { cq.solicited } else { cq.producer };
            let ahead = newest.wrapping_sub(armed.consumer) & INDEX;
            if ahead != 0 && ahead <= INDEX / 2 {
                notify.armed = None;
                due.push((notify.eq, *number));
            }
        }
        for (eq, number) in due {
            self.put_event(eq, &Told::of(kind::COMPLETION, NUMBER, number));
        }
    }

    /// Writes an event to the first event queue that gets events of this type.
    fn tell(&mut self, told: Told) {
        let found = self.interface.eqs.iter().find(|(_, eq)| eq.gets(told.kind)).map(|(number, _)| *number);
        if let Some(number) = found {
            self.put_event(number, &told);
        }
    }

    /// Writes an event into an event queue, the owner byte last. Assumption: if the queue is full, the event
    /// is lost.
    fn put_event(&mut self, number: u32, told: &Told) {
        let Some(eq) = self.interface.eqs.get_mut(&number).filter(|eq| !eq.is_full()) else { return };
        let mut entry = [0; ENTRY];
        entry[1] = told.kind;
        entry[DATA..DATA + 28].copy_from_slice(&told.data);
        let slot = u64::from(eq.producer & ((1 << eq.log_entries) - 1)) * ENTRY as u64;
        let owner = (eq.producer >> eq.log_entries & 1) as u8;
        let address = eq.ring.wrapping_add(slot);
        // If the ring is outside of the memory, the entry is lost.
        if self.memory.write(address, &entry[..ENTRY - 1]).is_err() {
            return;
        }
        if self.memory.publish(address.wrapping_add(ENTRY as u64 - 1), owner).is_ok() {
            eq.producer = eq.producer.wrapping_add(1);
            if core::mem::take(&mut eq.armed) {
                self.interface.interrupts.push(eq.vector);
            }
        }
    }

    /// Takes a doorbell of an event queue: the count of entries that the host has taken, and whether the next
    /// entry raises an interrupt.
    pub(super) fn ring_event_queue(&mut self, page: u32, number: u32, consumer: u32, arms: bool) {
        let interface = &mut self.interface;
        let Some(eq) = interface.eqs.get_mut(&number).filter(|eq| eq.uar == page) else { return };
        eq.consumer = consumer & INDEX;
        if arms {
            // If entries remain that the host has not taken, the interrupt is raised at once.
            let is_behind = (eq.producer.wrapping_sub(eq.consumer)) & INDEX != 0;
            eq.armed = !is_behind;
            if is_behind {
                interface.interrupts.push(eq.vector);
            }
        }
    }
}
