//! The few system calls for which the standard library has no safe form.
#![allow(unsafe_code)]

use crate::ground::errno::Errno;
use crate::ground::{descriptors, direct};
use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, bind, getsockname,
    recv, sendto, socket_with,
};
use rustix::process::{Signal, getpid, kill_process};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_long, c_void};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Returns a descriptor of the program for one call of the system. [`Errno::BADF`] for a negative number.
fn lent(descriptor: RawFd) -> Result<BorrowedFd<'static>, Errno> {
    // SAFETY: the number is not -1. The program keeps the descriptor open during the call. If it does not,
    // the call returns an error, or has the effect of a call that the program itself makes at this moment.
    (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) }).ok_or(Errno::BADF)
}

/// Returns this process's number.
pub(crate) fn pid() -> i32 {
    getpid().as_raw_pid()
}

/// Reads a symbolic link by the system call, because the C library's function is replaced by this library.
/// Returns the number of bytes of the link's target that `room` has taken.
pub(crate) fn read_link(path: &CStr, room: &mut [u8]) -> Option<usize> {
    rustix::fs::readlinkat_raw(rustix::fs::CWD, path, room).ok()
}

/// Ends this process by SIGKILL, which no handler can catch.
pub(crate) fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

/// Waits until one of `fds` can be read or has failed, or until `time` has passed. `None` waits without end.
///
/// Returns for each descriptor whether it is ready.
pub(crate) fn wait(fds: &[RawFd], time: Option<Duration>) -> Vec<bool> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let time = time.map(|time| libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let limit = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `polled` and `limit` live until the call is over; no signal mask is given.
    let ready =
        unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit, std::ptr::null()) };
    polled.iter().map(|entry| ready > 0 && entry.revents != 0).collect()
}

/// Returns the time of the monotonic clock, in nanoseconds.
pub(crate) fn nanoseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in `now`, which lives until it is over.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the time of day in nanoseconds since 1970.
pub(crate) fn time_of_day() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns a file of zeros that exists in memory only. The program cannot close its descriptor.
///
/// # Errors
/// [`Errno::NOMEM`] if no memory or no descriptor is left.
pub(crate) fn memory(name: &CStr, length: u64) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(|_| Errno::NOMEM)?;
    descriptors::keep(&file);
    rustix::fs::ftruncate(&file, length).map_err(|_| Errno::NOMEM)?;
    Ok(file)
}

/// Maps a file by the system call, so that no replacement of the C library's function sees the call.
///
/// # Safety
/// The caller keeps the contract of the C library's `mmap`.
pub(crate) unsafe fn map(
    wanted: *mut c_void,
    length: usize,
    rights: c_int,
    kind: c_int,
    descriptor: RawFd,
    offset: i64,
) -> *mut c_void {
    let arguments = (wanted, length, rights.into(), kind.into(), descriptor.into());
    let (wanted, length, rights, kind, file): (_, _, c_long, c_long, c_long) = arguments;
    // SAFETY: the caller keeps the contract of `mmap`, with the same arguments.
    let place = unsafe { libc::syscall(libc::SYS_mmap, wanted, length, rights, kind, file, offset) };
    std::ptr::with_exposed_provenance_mut(place as usize)
}

/// Returns a netlink socket of a protocol (`None` is `NETLINK_ROUTE`) that gets the notifications of
/// `groups`. Bytes that are written to the socket go to the kernel.
///
/// # Errors
/// An error of the system, if the kernel lacks the protocol or no descriptor is left.
pub(crate) fn netlink(protocol: Option<Protocol>, groups: u32) -> io::Result<File> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(File::from(socket))
}

/// Gives a netlink socket of the program an address that the kernel chooses.
///
/// # Errors
/// An error of the system, if the descriptor is no netlink socket.
pub(crate) fn bind_netlink(descriptor: RawFd) -> Result<(), Errno> {
    Ok(bind(lent(descriptor)?, &SocketAddrNetlink::new(0, 0))?)
}

/// Returns the port of a netlink socket, or `None` for another descriptor.
pub(crate) fn netlink_port(descriptor: RawFd) -> Option<u32> {
    let address = getsockname(lent(descriptor).ok()?).ok()?;
    Some(SocketAddrNetlink::try_from(address).ok()?.pid())
}

/// Sends a message to the netlink socket with this port, of the same protocol and namespace. Returns whether
/// the kernel has taken the message.
pub(crate) fn send_to_netlink(socket: &File, port: u32, bytes: &[u8]) -> bool {
    sendto(socket, bytes, SendFlags::DONTWAIT, &SocketAddrNetlink::new(port, 0)).is_ok()
}

/// Takes one message off a socket, if there is one. Returns the length of the message.
pub(crate) fn take_message(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Option<usize> {
    Some(recv(socket, buffer, RecvFlags::DONTWAIT).ok()?.0)
}

/// Returns the length of the next message of a program's socket, and leaves the message there. Waits for a
/// message unless the descriptor is non-blocking. Returns 0 if the other end is shut down and no message is
/// left.
///
/// # Errors
/// The errno of the system: `EAGAIN` if a non-blocking descriptor has no message, `ENOTSOCK` if the
/// descriptor is no socket, or another errno.
pub(crate) fn next_message(descriptor: RawFd) -> Result<usize, Errno> {
    let no_bytes: &mut [u8] = &mut [];
    Ok(recv(lent(descriptor)?, no_bytes, RecvFlags::PEEK | RecvFlags::TRUNC)?.1)
}

/// Returns whether reads from a descriptor never wait.
pub(crate) fn is_nonblocking(descriptor: RawFd) -> bool {
    let flags = lent(descriptor).and_then(|descriptor| Ok(rustix::fs::fcntl_getfl(descriptor)?));
    flags.is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Returns a duplicate of a program's eventfd. The duplicate belongs to this library.
///
/// # Errors
/// [`Errno::BADF`] if the descriptor is not open, [`Errno::INVAL`] if it is not an eventfd.
pub(crate) fn eventfd(descriptor: RawFd) -> Result<File, Errno> {
    let target = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).map_err(|_| Errno::BADF)?;
    if target != Path::new("anon_inode:[eventfd]") {
        return Err(Errno::INVAL);
    }
    Ok(File::from(lent(descriptor)?.try_clone_to_owned().map_err(|_| Errno::BADF)?))
}

/// Makes an eventfd. Each read subtracts one from its count.
///
/// # Errors
/// [`Errno::NOMEM`] if there are no descriptors left.
pub(crate) fn event_counter(flags: EventfdFlags) -> Result<OwnedFd, Errno> {
    rustix::event::eventfd(0, EventfdFlags::SEMAPHORE | flags).map_err(|_| Errno::NOMEM)
}

/// Subtracts one from the count of an eventfd. Waits while the count is 0, unless the descriptor is
/// non-blocking.
///
/// # Errors
/// The errors of `read`: [`Errno::AGAIN`], or an interruption.
pub(crate) fn count_down(descriptor: RawFd) -> Result<(), Errno> {
    rustix::io::read(lent(descriptor)?, &mut [0; 8])?;
    Ok(())
}

/// The first bytes of a file, mapped in this process's memory and shared with all processes that map the
/// file. Dropping the value unmaps them.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: u64,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes for reading, and for writing if `write`.
    ///
    /// # Errors
    /// [`Errno::BADF`] if the descriptor is not open, [`Errno::INVAL`] if the file is shorter or cannot be
    /// mapped with these rights, [`Errno::NOMEM`] if there is no memory.
    pub(crate) fn new(descriptor: RawFd, length: u64, write: bool) -> Result<Self, Errno> {
        let lent = lent(descriptor)?;
        let size = u64::try_from(rustix::fs::fstat(lent)?.st_size).unwrap_or(0);
        let length = usize::try_from(length).ok().filter(|_| length <= size).ok_or(Errno::INVAL)?;
        let rights = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel finds an address range that nobody else uses, and checks the other arguments.
        let place = unsafe { mmap(std::ptr::null_mut(), length, rights, MapFlags::SHARED, lent, 0) };
        let place = place.map_err(|error| match Errno::from(error) {
            Errno::BADF | Errno::NOMEM => error.into(),
            _ => Errno::INVAL,
        })?;
        Ok(Self { address: place.expose_provenance() as u64, length })
    }

    /// Returns the address of the first byte.
    pub(crate) const fn address(&self) -> u64 {
        self.address
    }

    /// Writes a word of 8 bytes with one store, so that processes that read it at the same time see it whole.
    /// The caller ensures that `at` is a multiple of 8 within the mapping, and that the mapping is writable.
    pub(crate) fn store(&self, at: u64, word: u64) {
        self.word(at).store(word, Ordering::Release);
    }

    /// Reads a word of 8 bytes. The caller ensures that `at` is a multiple of 8 within the mapping.
    pub(crate) fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.length as u64, "a word within the mapping");
        // SAFETY: the file is mapped as long as `self` lives, and the mapping begins at a page. All processes
        // that share the file read and write it as words.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut((self.address + at) as usize)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped the range, and only this line unmaps it. There are no references to it:
        // the device reaches it by its address, through the kernel.
        let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(self.address as usize), self.length) };
    }
}

/// Ends a socket: a read from any of its descriptors waits no longer. A read returns a message that is left,
/// and zero bytes afterwards.
pub(crate) fn end_socket(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Sets an environment variable if it is not set, or if `ours` returns true for its value. The caller ensures
/// that the process has only one thread: it calls the function while the loader loads this library.
pub(crate) fn set_unless(name: &CStr, value: &CStr, ours: impl FnOnce(&[u8]) -> bool) {
    // SAFETY: called by the loader before the program's first line, while there is one thread. A value that
    // is not null is a string, and nothing changes it before the call that follows.
    unsafe {
        let found = libc::getenv(name.as_ptr());
        if found.is_null() || ours(CStr::from_ptr(found).to_bytes()) {
            libc::setenv(name.as_ptr(), value.as_ptr(), 1);
        }
    }
}

/// Makes this thread's sleeps end on time. By default the kernel delays their end by up to 50 µs.
pub(crate) fn wake_on_time() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// The state of a thread that cannot be cancelled (`PTHREAD_CANCEL_DISABLE`).
const NO_CANCELLATION: c_int = 1;

/// The signals that report a bad address, as the kernel's set of signals.
const FAULTS: u64 = bit(libc::SIGSEGV) | bit(libc::SIGBUS);

/// The signals that the C library keeps for itself. A thread never blocks them.
const INTERNAL: u64 = bit(32) | bit(33);

/// All signals but [`FAULTS`], [`INTERNAL`], and the two that the kernel lets no thread block.
const ALL_THAT_CAN_WAIT: u64 = !(FAULTS | INTERNAL | bit(libc::SIGKILL) | bit(libc::SIGSTOP));

/// Returns the kernel's set of this one signal.
pub(crate) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Whether the program may have a handler of a signal that is not in [`FAULTS`].
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is known to receive [`FAULTS`].
    static RECEIVES_FAULTS: Cell<bool> = const { Cell::new(false) };
}

/// Records that the program has a handler of a signal that is not in [`FAULTS`]. Another thread may be in
/// [`undisturbed`] without waiting signals at this moment, and may run the handler there once.
pub(crate) fn note_handler() {
    HAS_HANDLERS.store(true, Ordering::Relaxed);
}

/// Records that the program changes the signals that wait in this thread.
pub(crate) fn forget_waiting() {
    let _ = RECEIVES_FAULTS.try_with(|receives| receives.set(false));
}

/// Changes the signals that wait in this thread, as `sigprocmask` does. `None` changes nothing. Returns the
/// signals that waited before. The system call makes the function usable in handlers.
pub(crate) fn change_waiting(how: c_int, signals: Option<u64>) -> Result<u64, Errno> {
    let signals = signals.map(|signals| signals & !INTERNAL);
    let (new, mut before) = (signals.as_ref().map_or(std::ptr::null(), std::ptr::from_ref), 0_u64);
    // SAFETY: the location of errno is always valid for its thread. The kernel's sets have 8 bytes, and both
    // variables live until the call is over.
    unsafe {
        let errno = *libc::__errno_location();
        let failed =
            libc::syscall(libc::SYS_rt_sigprocmask, how, new, &raw mut before, size_of::<u64>()) != 0;
        let error = std::mem::replace(&mut *libc::__errno_location(), errno);
        if failed { Err(Errno(error)) } else { Ok(before) }
    }
}

/// Lets these signals wait in this thread, and no others. Returns the signals that waited before.
fn set_waiting(signals: u64) -> u64 {
    change_waiting(libc::SIG_SETMASK, Some(signals)).unwrap_or(0)
}

/// Runs `body` on a thread of the program so that the program notices nothing: handlers of signals and
/// cancellation wait until `body` is done, and `errno` is as before. `body` survives bad addresses.
///
/// Two system calls make signals wait, and take a fifth of the time of a short message. They are omitted if
/// the program has no handler, and this thread receives the signals that report a bad address.
pub(crate) fn undisturbed<T>(body: impl FnOnce() -> T) -> T {
    let needs_no_wait =
        !HAS_HANDLERS.load(Ordering::Relaxed) && RECEIVES_FAULTS.try_with(Cell::get) == Ok(true);
    // SAFETY: the location of errno is always valid for its thread.
    let errno = unsafe { *libc::__errno_location() };
    let waiting = (!needs_no_wait).then(|| set_waiting(ALL_THAT_CAN_WAIT));
    let mut cancellation = 0;
    // SAFETY: the calls change only this thread. The variable lives until the call is over.
    unsafe { pthread_setcancelstate(NO_CANCELLATION, &raw mut cancellation) };
    let result = direct::with_signals(body);
    // SAFETY: see above. The location of errno is always valid for its thread.
    unsafe {
        pthread_setcancelstate(cancellation, std::ptr::null_mut());
        if let Some(waiting) = waiting {
            set_waiting(waiting);
            let _ = RECEIVES_FAULTS.try_with(|receives| receives.set(waiting & FAULTS == 0));
        }
        *libc::__errno_location() = errno;
    }
    result
}

/// Runs `body` on a thread of this library. Signals go to the program's own threads, but for those that
/// report a bad address. `body` survives bad addresses.
pub(crate) fn without_signals(body: impl FnOnce()) {
    set_waiting(ALL_THAT_CAN_WAIT);
    direct::with_signals(body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_peers::send;
    use std::io::IoSlice;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_peer_that_is_gone_raises_no_signal() {
        let (ours, its) = UnixStream::pair().unwrap();
        assert_eq!(send(&ours, &[b"one", b"two"].map(|piece| IoSlice::new(piece))).unwrap(), 6);
        drop(its);
        // SAFETY: the calls fill the signal set. Tests ignore the signal, and the handler from before is put
        // back after `send`.
        let pending = unsafe {
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut signals, libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
            let before = libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            send(&ours, &[IoSlice::new(b"three")]).unwrap_err();
            libc::sigpending(&raw mut signals);
            libc::signal(libc::SIGPIPE, before);
            libc::sigismember(&raw const signals, libc::SIGPIPE)
        };
        assert_eq!(pending, 0);
    }

    #[test]
    fn signals_wait_where_a_handler_or_the_programs_mask_asks_for_this() {
        let inside = || undisturbed(|| set_waiting(ALL_THAT_CAN_WAIT));
        let outside = set_waiting(FAULTS);
        assert_eq!((inside(), inside()), (ALL_THAT_CAN_WAIT, ALL_THAT_CAN_WAIT), "the program blocks faults");
        assert_eq!(set_waiting(outside), FAULTS);
        assert_eq!(inside(), ALL_THAT_CAN_WAIT, "the first time");
        assert_eq!(undisturbed(|| set_waiting(outside)), outside);
        forget_waiting();
        assert_eq!((inside(), undisturbed(|| set_waiting(outside))), (ALL_THAT_CAN_WAIT, outside));
        note_handler();
        assert_eq!(inside(), ALL_THAT_CAN_WAIT);
        assert_eq!(set_waiting(outside), outside);
    }
}
