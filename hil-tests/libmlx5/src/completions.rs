//! The completion queue of a device that executes nothing. In place of the device, the caller writes the
//! entries; libmlx5 takes them.

#![allow(unsafe_code)]

use super::{CqRing, Device, WorkCompletion};
use std::io;
use std::rc::Rc;

/// A completion queue to which the caller writes entries, in place of the device.
pub struct Completions {
    device: Rc<Device>,
    ring: CqRing,
    /// Number of entries written so far.
    delivered: u32,
}

impl Completions {
    /// Makes the caller the writer of the device's completion queue, which must be empty.
    ///
    /// # Errors
    /// As for [`Device::cq_ring`].
    pub fn new(device: &Rc<Device>) -> io::Result<Self> {
        Ok(Self { device: device.clone(), ring: device.cq_ring()?, delivered: 0 })
    }

    /// Returns the number of entries that libmlx5 has not taken yet.
    fn waiting(&self) -> u32 {
        // SAFETY: the record has 8 bytes and lives as long as the completion queue. Only this thread writes
        // it.
        let [a, b, c, d, ..] = unsafe { self.ring.record.as_ptr().read_volatile() };
        self.delivered.wrapping_sub(u32::from_be_bytes([a, b, c, d])) & 0xff_ffff
    }

    /// Writes an entry as the device would, with the owner bit of the current pass through the ring.
    ///
    /// # Errors
    /// If the queue is full.
    pub fn deliver(&mut self, mut entry: [u8; 64]) -> io::Result<()> {
        if self.waiting() >= self.ring.entries {
            return Err(io::Error::other("the completion queue of the reference is full"));
        }
        let [.., owner] = &mut entry;
        *owner = *owner & !1 | u8::from(self.delivered & self.ring.entries != 0);
        let slot = (self.delivered & (self.ring.entries - 1)) as usize;
        // SAFETY: the index is below the number of entries. The device writes no entry, because it executes
        // nothing.
        unsafe { self.ring.first.as_ptr().add(slot).write_volatile(entry) };
        self.delivered = self.delivered.wrapping_add(1);
        Ok(())
    }

    /// Polls until libmlx5 has taken all written entries.
    ///
    /// # Errors
    /// An error of libmlx5, or entries that libmlx5 does not take.
    pub fn poll(&mut self) -> io::Result<Vec<WorkCompletion>> {
        // SAFETY: the context is open and belongs to libmlx5, which has set the function.
        let poll_cq = unsafe { self.device.context().as_ref() }.poll_cq;
        let mut done = Vec::new();
        // libmlx5 takes the entry of a signature error without returning a completion, so a poll may return 0
        // although it has taken an entry.
        for _ in 0..=self.ring.entries {
            let mut completion = WorkCompletion::default();
            // SAFETY: the completion queue is live; the array has room for one completion.
            match unsafe { poll_cq(self.device.cq(), 1, &mut completion) } {
                1 => done.push(completion),
                0 if self.waiting() == 0 => return Ok(done),
                0 => {}
                result => return Err(io::Error::other(format!("ibv_poll_cq: {result}"))),
            }
        }
        Err(io::Error::other("the reference does not take its completions"))
    }
}
