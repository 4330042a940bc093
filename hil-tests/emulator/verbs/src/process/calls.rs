//! Calls of a program to a device: `open` and `close` of descriptors, and requests.

use crate::command;
#[cfg(not(feature = "fuzz"))]
use crate::command::manager::{self, Command};
use crate::ground::errno::Errno;
use crate::ground::fault::{self, CallId, Course};
use crate::ground::missing::{self, Missing};
use crate::ground::process_memory::ProcessMemory;
use crate::ground::settings::Settings;
use crate::ground::{descriptors, notice, sys};
use crate::process::lock::{Inside, lock};
use crate::process::{bell, life, schedule, worker};
use crate::state::{Counts, State};
#[cfg(not(feature = "fuzz"))]
use crate::state::{channel::Kind, pages::PageRequest};
use mlx5_softdev::Device;
#[cfg(not(feature = "fuzz"))]
use mlx5_softdev::Memory;
use std::os::fd::RawFd;

/// Opens the device with the number `device` for a program, on `descriptor`.
///
/// # Errors
/// The errors of [`State::new`] and of the plan of faults; [`Errno::INVAL`] for invalid environment
/// variables, after a line on standard error; [`Errno::NOMEM`] if the worker cannot be started.
pub(crate) fn open(descriptor: RawFd, device: usize) -> Result<(), Errno> {
    life::prepare();
    match fault::call(CallId::OPEN) {
        Course::Good => {}
        Course::Fails(errno, _) => return Err(errno),
        Course::Unheard => return Err(Errno::TIMEDOUT),
    }
    {
        let mut inside = lock();
        inside.orphans.remove(&descriptor);
        prepared(&mut inside, device)?.open(descriptor);
        descriptors::OURS.insert(descriptor);
        if !bell::hang(worker::start) {
            return Err(Errno::NOMEM);
        }
        // The bell rings under the lock, so that no fork happens between the worker's start and the ring.
        bell::ring();
    }
    Ok(())
}

/// Returns a device. The first call makes the device from the settings in the environment.
fn prepared(inside: &mut Inside, device: usize) -> Result<&mut State, Errno> {
    let is_first = inside.devices.is_empty();
    inside.devices.prepared(device, || {
        let settings = Settings::from_environment().map_err(|what| {
            // The kernel's errno alone would not tell the user the reason.
            notice::once(&what);
            Errno::INVAL
        })?;
        let state = State::new(&settings, device)?;
        if let Some(plan) = settings.faults.filter(|_| is_first) {
            fault::set_for_good(plan);
        }
        Ok(state)
    })
}

/// Makes all crypto logins invalid.
pub(crate) fn revoke() {
    for state in lock().devices.all() {
        if let Some(factory) = state.factory {
            state.device.revoke(factory.credential);
        }
    }
}

/// Calls `change` with each device that a program has opened.
pub(crate) fn with_devices(change: impl FnMut(&mut Device<ProcessMemory>)) {
    lock().devices.all().map(|state| &mut state.device).for_each(change);
}

/// Carries out the incidents that are due by the plan of faults.
pub(crate) fn happen() {
    {
        let mut inside = lock();
        inside.devices.take_incidents();
        inside.devices.all().for_each(|state| state.follow_port(sys::nanoseconds()));
    }
    bell::ring();
}

/// Returns the numbers of contexts, objects and channels in this process.
pub(crate) fn counts() -> Counts {
    lock().devices.counts()
}

/// Releases a descriptor that a program is about to close. A context or channel ends with its last
/// descriptor. The caller ensures that [`descriptors::OURS`] has the descriptor.
pub(crate) fn close(descriptor: RawFd) {
    let mut inside = lock();
    descriptors::OURS.remove(descriptor);
    inside.orphans.remove(&descriptor);
    inside.devices.all().for_each(|state| state.close(descriptor));
}

/// Records that a program has made `new` a duplicate of `old`. The duplication has closed the former file of
/// `new`. The caller ensures that [`descriptors::OURS`] has one of the two.
pub(crate) fn duplicate(old: RawFd, new: RawFd) {
    let mut inside = lock();
    if descriptors::OURS.contains(old) {
        descriptors::OURS.insert(new);
    } else {
        descriptors::OURS.remove(new);
    }
    inside.orphans.remove(&new);
    if inside.orphans.contains(&old) {
        inside.orphans.insert(new);
    }
    inside.devices.all().for_each(|state| state.duplicate(old, new));
}

/// Carries out a call of a program to the device.
///
/// # Errors
/// The errors of the call; [`Errno::IO`] for a device that belongs to a parent process.
pub(crate) fn ioctl(descriptor: RawFd, address: u64) -> Result<(), Errno> {
    let outcome = {
        let mut inside = lock();
        if inside.orphans.contains(&descriptor) {
            drop(inside);
            missing::met(Missing::Forked);
            return Err(Errno::IO);
        }
        let devices = &mut inside.devices;
        let is_open = devices.of(descriptor).and_then(|state| state.context_of(descriptor)).is_some();
        if !is_open {
            return Err(if devices.is_empty() { Errno::IO } else { Errno(libc::ENOTTY) });
        }
        schedule::work_before_call(devices);
        devices.take_incidents();
        let state = devices.of(descriptor).ok_or(Errno::IO)?;
        let context = state.context_of(descriptor).ok_or(Errno(libc::ENOTTY))?;
        let outcome = command::dispatch(state, context, address);
        if let Some(made) = outcome.as_ref().ok().copied().flatten() {
            descriptors::OURS.insert(made);
        }
        // A call wakes the worker only if queues have changed, or if another thread wanted to do the device's
        // work during the call. Other calls leave the worker no work. Waking it each time would slow down
        // programs that make tens of thousands of mkeys.
        if state.has_changed() || schedule::was_missed() {
            bell::ring();
        }
        outcome
    };
    fault::pause();
    outcome.map(drop)
}

/// Returns the file and the position in this file that a program maps instead of a page of the device's file,
/// or `None` if the program may map the device's file itself.
///
/// # Errors
/// The errno with which Linux refuses the mapping; [`Errno::IO`] for a device that belongs to a parent
/// process.
#[cfg(not(feature = "fuzz"))]
pub(crate) fn page(descriptor: RawFd, asked: &PageRequest) -> Result<Option<(RawFd, i64)>, Errno> {
    let mut inside = lock();
    if inside.orphans.contains(&descriptor) {
        drop(inside);
        missing::met(Missing::Forked);
        return Err(Errno::IO);
    }
    inside.devices.of(descriptor).map_or(Ok(None), |state| state.page(descriptor, asked))
}

/// Returns the errno with which a read from a device file fails: `EINVAL` for the file of a context, and for
/// an event channel the errno of a read after the channel's last event. Returns `None` for descriptors of
/// other files. The caller ensures that the channel is empty and its context closed.
#[cfg(not(feature = "fuzz"))]
pub(crate) fn end_of_events(descriptor: RawFd) -> Option<Errno> {
    let mut inside = lock();
    let state = inside.devices.of(descriptor)?;
    match state.channel_of(descriptor) {
        Some((_, channel)) => Some(channel.kind().after_the_end(sys::is_nonblocking(descriptor))),
        None => state.context_of(descriptor).map(|_| Errno::INVAL),
    }
}

/// Returns the errno of a read from a channel into a buffer that is too short for the next event.
#[cfg(not(feature = "fuzz"))]
pub(crate) fn too_little_room(descriptor: RawFd) -> Errno {
    let mut inside = lock();
    let state = inside.devices.of(descriptor);
    match state.and_then(|state| state.channel_of(descriptor)) {
        Some((_, channel)) if channel.kind() == Kind::Commands => Errno::NOSPC,
        _ => Errno::INVAL,
    }
}

/// Opens the rdma_cm file for a program, on `descriptor`, which is an eventfd.
///
/// # Errors
/// The errors of [`open`], except the errors that the plan of faults causes; [`Errno::BADF`] or
/// [`Errno::INVAL`] if the descriptor is not an eventfd.
#[cfg(not(feature = "fuzz"))]
pub(crate) fn open_connections(descriptor: RawFd) -> Result<(), Errno> {
    life::prepare();
    let signal = sys::eventfd(descriptor)?;
    descriptors::keep(&signal);
    let mut inside = lock();
    inside.orphans.remove(&descriptor);
    prepared(&mut inside, 0)?.open_connections(descriptor.unsigned_abs(), signal);
    descriptors::CONNECTIONS.insert(descriptor);
    if bell::hang(worker::start) { Ok(()) } else { Err(Errno::NOMEM) }
}

/// Closes an rdma_cm file, with its `rdma_cm_id`s, because a program is about to close its descriptor.
pub(crate) fn close_connections(descriptor: RawFd) {
    descriptors::CONNECTIONS.remove(descriptor);
    if let Some(state) = lock().devices.first() {
        state.close_connections(descriptor.unsigned_abs());
    }
    bell::ring();
}

/// Carries out a command that a program has written to an rdma_cm file.
///
/// # Errors
/// The errors of the command; [`Errno::IO`] for a file that belongs to a parent process.
#[cfg(not(feature = "fuzz"))]
pub(crate) fn write_command(descriptor: RawFd, address: u64, count: usize) -> Result<(), Errno> {
    let mut bytes = vec![0; count.min(manager::LONGEST)];
    ProcessMemory.read(address, &mut bytes).map_err(|_| Errno::FAULT)?;
    let command = Command::new(&bytes)?;
    if command.number == manager::GET_EVENT {
        return take_event(descriptor, &command);
    }
    let file = descriptor.unsigned_abs();
    let mut inside = lock();
    let state = inside.devices.first().ok_or(Errno::IO)?;
    if !state.book.files.contains_key(&file) {
        return Err(Errno::IO);
    }
    let outcome = manager::dispatch(state, file, &command);
    // The command may leave work for the worker: messages to peers, and timeouts.
    bell::ring();
    outcome
}

/// Takes the next event of an rdma_cm file, and writes the event to the program. Waits for an event unless
/// the descriptor is non-blocking.
#[cfg(not(feature = "fuzz"))]
fn take_event(descriptor: RawFd, command: &Command<'_>) -> Result<(), Errno> {
    manager::takes_events(command)?;
    loop {
        // The eventfd's count may exceed the number of events, since the destruction of an `rdma_cm_id`
        // removes its events.
        sys::count_down(descriptor)?;
        let taken = {
            let mut inside = lock();
            let state = inside.devices.first().ok_or(Errno::IO)?;
            state.take_event(descriptor.unsigned_abs())
        };
        if let Some((name, event)) = taken {
            return manager::tell(command, name, &event);
        }
    }
}
