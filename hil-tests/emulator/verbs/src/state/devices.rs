//! All devices of this process, each made when a program first opens it.

use super::{Counts, Pace, State};
use crate::ground::errno::Errno;
use crate::ground::fault;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::time::Instant;

/// The devices of this process, by their numbers: 0 is `mlx5_0`.
#[derive(Debug, Default)]
pub(crate) struct Devices(BTreeMap<usize, State>);

impl Devices {
    /// Returns no devices.
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Returns whether no device was made yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the device with this number. The first call makes the device.
    ///
    /// # Errors
    /// The errors of `make`.
    pub(crate) fn prepared(
        &mut self,
        index: usize,
        make: impl FnOnce() -> Result<State, Errno>,
    ) -> Result<&mut State, Errno> {
        use std::collections::btree_map::Entry;
        match self.0.entry(index) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(free) => Ok(free.insert(make()?)),
        }
    }

    /// Returns the first device, `mlx5_0`, which handles all rdma_cm files and their connections.
    pub(crate) fn first(&mut self) -> Option<&mut State> {
        self.0.get_mut(&0)
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut State> {
        self.0.values_mut()
    }

    /// Returns the device of a context's or channel's descriptor.
    pub(crate) fn of(&mut self, descriptor: RawFd) -> Option<&mut State> {
        self.all().find(|state| state.files.contains_key(&descriptor))
    }

    /// Does all outstanding work of all devices. Returns whether there was any work.
    pub(crate) fn work(&mut self, pace: Pace) -> bool {
        self.take_incidents();
        let releases = fault::late_ones_are_due();
        // A device may have messages for a device before it in this list. That device takes the messages in
        // the next call of this function.
        self.all().fold(false, |moved, state| state.work(pace, releases) | moved)
    }

    /// Carries out the incidents of the plan of faults that are due.
    pub(crate) fn take_incidents(&mut self) {
        // Without a device, incidents wait for the first device.
        while !self.is_empty()
            && let Some(incident) = fault::incident()
        {
            self.all().for_each(|state| state.happen(incident));
        }
    }

    /// Returns whether all devices are idle.
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.values().all(State::is_quiet)
    }

    /// Returns whether the program has ever armed a completion queue. A program that has armed one sleeps at
    /// times, and does not only poll.
    pub(crate) fn waits_for_events(&self) -> bool {
        self.0.values().any(State::waits_for_events)
    }

    /// Returns whether a device waits for several answers of other processes, and has written all its own
    /// messages to them.
    pub(crate) fn awaits_answers(&self) -> bool {
        self.0.values().any(State::awaits_answers)
    }

    /// Returns how many times a thread that has called [`Devices::work`] after it released a spin lock may
    /// release the same lock again without such a call: see [`State::releases_without_work`].
    pub(crate) fn releases_without_work(&self) -> u32 {
        self.0.values().map(State::releases_without_work).max().unwrap_or(0)
    }

    /// Asks the peers to wake this process when they send, and returns the descriptors to sleep on. One of
    /// them becomes readable when there is work other than doorbells.
    pub(crate) fn prepare_sleep(&self) -> Vec<RawFd> {
        self.0.values().flat_map(State::prepare_sleep).collect()
    }

    /// Returns the descriptors of all contexts.
    pub(crate) fn context_descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.0.values().flat_map(State::context_descriptors)
    }

    /// Returns the numbers of contexts, objects and channels of all devices.
    pub(crate) fn counts(&self) -> Counts {
        self.0.values().map(State::counts).fold(Counts::default(), |sum, counts| Counts {
            contexts: sum.contexts + counts.contexts,
            objects: sum.objects + counts.objects,
            channels: sum.channels + counts.channels,
            refused: sum.refused + counts.refused,
        })
    }

    /// Sends the remaining messages to peers before the process ends.
    pub(crate) fn finish(&mut self, deadline: Instant) {
        self.all().for_each(|state| state.finish(deadline));
    }
}
