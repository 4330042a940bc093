//! Sockets to the kernel's list of RDMA devices (`NETLINK_RDMA`), which this library answers.
//!
//! The program gets a netlink socket of the protocol for messages between programs, so the kernel itself
//! provides addresses, options, reading and polling. A request of the program does not leave the process:
//! this library answers it from a socket of its own.
#![allow(unsafe_code)]

use super::next::{fail, guarded, next};
use super::paths;
use crate::command::nldev;
use crate::ground::errno::Errno;
use crate::ground::port::View;
use crate::ground::{counters, descriptors, owner, settings, sys};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

/// The protocol of the kernel's list of RDMA devices (`NETLINK_RDMA`).
const NETLINK_RDMA: c_int = 20;
/// The protocol of messages between programs (`NETLINK_USERSOCK`).
const USERSOCK: c_int = 2;

/// The longest request that this library answers, in bytes.
const LONGEST: usize = 1 << 16;

/// The socket from which the answers are sent, and the process that has made this socket.
static ANSWERING: Mutex<Option<(i32, File)>> = Mutex::new(None);

/// Makes a socket. This library answers the requests on a socket to the kernel's list of RDMA devices.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let next = next!(socket(c_int, c_int, c_int) -> c_int);
    if domain != libc::AF_NETLINK || protocol != NETLINK_RDMA {
        // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
        return unsafe { next(domain, kind, protocol) };
    }
    paths::looked_for();
    // SAFETY: the caller keeps the contract of the replaced function, which accepts any protocol.
    let descriptor = unsafe { next(domain, kind, USERSOCK) };
    if descriptor < 0 || descriptors::is_too_high(descriptor) || !paths::is_device_there() {
        if descriptor >= 0 {
            // SAFETY: the descriptor was just made, and nobody else has it.
            unsafe { libc::close(descriptor) };
        }
        // After this error, libibverbs looks for devices in the files of this library.
        return fail(Errno::PROTONOSUPPORT);
    }
    descriptors::NETLINK.insert(descriptor);
    descriptor
}

/// Returns whether this library must answer a call: the descriptor is one of its netlink sockets, and the
/// program makes the call, not this library itself.
fn is_ours(descriptor: c_int) -> bool {
    descriptors::NETLINK.contains(descriptor) && !owner::is_inside()
}

/// Answers a request that a program has sent over a socket to the list of devices.
fn answer(descriptor: RawFd, request: &[u8]) -> Result<(), Errno> {
    if sys::netlink_port(descriptor) == Some(0) {
        sys::bind_netlink(descriptor).map_err(|_| Errno::IO)?;
    }
    let port = sys::netlink_port(descriptor).ok_or(Errno::BADF)?;
    let mut answering = ANSWERING.lock().unwrap_or_else(PoisonError::into_inner);
    if answering.as_ref().is_none_or(|(process, _)| *process != sys::pid()) {
        let socket = sys::netlink(Some(rustix::net::netlink::USERSOCK), 0).map_err(|_| Errno::IO)?;
        descriptors::keep(&socket);
        *answering = Some((sys::pid(), socket));
    }
    let Some((_, socket)) = answering.as_ref() else { return Err(Errno::IO) };
    let view = View::from_environment();
    let shown = view.ports().map_err(|_| Errno::IO)?;
    let counters =
        |device| counters::hardware(&settings::directory(), &View::device_name(&view.name(), device));
    for message in nldev::answers(request, port, &shown, &counters) {
        // A failure is ignored: a program that leaves its socket full loses further answers. The kernel's
        // answers are lost in the same way.
        let _ = sys::send_to_netlink(socket, port, &message);
    }
    Ok(())
}

/// Answers a request that consists of pieces. Returns the length of the request.
///
/// # Safety
/// The caller ensures that `pieces` points to `count` structures, each of which names readable memory.
unsafe fn answered(descriptor: c_int, pieces: *const libc::iovec, count: usize) -> isize {
    let mut request = Vec::new();
    for index in 0..count {
        // SAFETY: by contract, `pieces` are `count` structures that name memory.
        let libc::iovec { iov_base, iov_len } = unsafe { *pieces.add(index) };
        if iov_len > LONGEST - request.len() {
            return fail(Errno(libc::EMSGSIZE));
        }
        if iov_len > 0 {
            // SAFETY: by contract, `pieces` are `count` structures that name memory.
            request.extend_from_slice(unsafe { std::slice::from_raw_parts(iov_base.cast(), iov_len) });
        }
    }
    match guarded(|| answer(descriptor, &request)) {
        Ok(()) => request.len() as isize,
        Err(errno) => fail(errno),
    }
}

/// Sends a message. A request on a socket to the list of RDMA devices is answered instead.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmsg(
    descriptor: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> isize {
    if is_ours(descriptor) {
        // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
        return unsafe { answered(descriptor, (*message).msg_iov, (*message).msg_iovlen) };
    }
    let next = next!(sendmsg(c_int, *const libc::msghdr, c_int) -> isize);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { next(descriptor, message, flags) }
}

/// Works like `sendmsg`, with a message of one piece.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendto(
    descriptor: c_int,
    bytes: *const c_void,
    length: usize,
    flags: c_int,
    to: *const libc::sockaddr,
    to_length: libc::socklen_t,
) -> isize {
    if is_ours(descriptor) {
        let piece = libc::iovec { iov_base: bytes.cast_mut(), iov_len: length };
        // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
        return unsafe { answered(descriptor, &raw const piece, 1) };
    }
    let next =
        next!(sendto(c_int, *const c_void, usize, c_int, *const libc::sockaddr, libc::socklen_t) -> isize);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { next(descriptor, bytes, length, flags, to, to_length) }
}

/// Works like `sendto`, without an address.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn send(
    descriptor: c_int,
    bytes: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    if is_ours(descriptor) {
        let piece = libc::iovec { iov_base: bytes.cast_mut(), iov_len: length };
        // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
        return unsafe { answered(descriptor, &raw const piece, 1) };
    }
    let next = next!(send(c_int, *const c_void, usize, c_int) -> isize);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { next(descriptor, bytes, length, flags) }
}
