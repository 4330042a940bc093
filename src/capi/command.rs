//! Device commands whose bytes the program builds. The module has functions that send such commands, that
//! register the memory which they name, and that receive the answers to queries later.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::{Device, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::group::Qp;
use super::memory::Dek;
use super::qp::{QpInfo, qp_info};
use super::values::{access_of, array, room};
use crate::command::{Command, DekObject, QueryDek, QueryQp};
use crate::devx::{self, PageSizes, UmemSpec};
use crate::types::Qpn;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::boxed::Box;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Memory that is registered for commands (a umem of DEVX). Commands name it by a number.
pub struct Umem(devx::Umem);

/// A page of doorbell registers (UAR page).
pub struct Uar(devx::Uar);

/// An object that a command of the program has created.
pub struct Object(devx::DevxObject);

/// A channel for answers to queries: the program sends a query, does not wait, and takes the answer later.
pub struct Queries(devx::Queries);

/// Converts access rights and page sizes, as C passes them, into the properties of a registration.
fn umem_spec(access: u32, page_sizes: u64) -> Result<UmemSpec, Failure> {
    let page_sizes = if page_sizes == 0 { PageSizes::ANY } else { PageSizes::new(page_sizes)? };
    Ok(UmemSpec { access: access_of(access)?, page_sizes })
}

/// Registers `length` bytes at `address` as a umem (`mlx5dv_devx_umem_reg_ex`). Commands that create queues
/// name the umem as the memory of rings and doorbell records. `access` states what the device may do with the
/// memory: for a completion queue MLX5MK_LOCAL_WRITE, since the device writes the entries. `page_sizes` is
/// the sum of the accepted page sizes in bytes, or 0 for all. The caller keeps the memory mapped until
/// mlx5mk_umem_deregister has returned 0.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_LIBRARY where rdma-core is older than version 35, MLX5MK_SYSTEM where the
/// memory is not mapped with these rights (EFAULT) or has none of the page sizes (EINVAL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_umem_register(
    device: Option<&Device>,
    address: *mut c_void,
    length: usize,
    access: u32,
    page_sizes: u64,
    umem: Option<&mut MaybeUninit<*mut Umem>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), umem) = (given(device, "device")?, given(umem, "umem")?);
        if address.is_null() {
            return Err(Failure::Null("address"));
        }
        let spec = umem_spec(access, page_sizes)?;
        // SAFETY: the caller vouches that the memory stays mapped; Rust code has no reference to it.
        hand_out(umem, Umem(unsafe { device.register_umem(address.cast(), length, spec)? }))
    })
}

/// As mlx5mk_umem_register, for `length` bytes of the dma-buf `fd`, from `offset` on. The program may close
/// `fd` after the call. Offsets in commands count from the first registered byte.
///
/// Errors: as mlx5mk_umem_register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_umem_register_dmabuf(
    device: Option<&Device>,
    fd: i32,
    offset: usize,
    length: usize,
    access: u32,
    page_sizes: u64,
    umem: Option<&mut MaybeUninit<*mut Umem>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), umem) = (given(device, "device")?, given(umem, "umem")?);
        let end =
            offset.checked_add(length).ok_or(Failure::Value { what: "length", value: length as u64 })?;
        if fd < 0 {
            return Err(Failure::Wanted("fd is a descriptor, 0 or more"));
        }
        let spec = umem_spec(access, page_sizes)?;
        // SAFETY: the caller ensures that `fd` is open. Rust code has no reference to the memory, and the
        // caller vouches for all other uses of the memory.
        let made = unsafe { device.register_umem_dmabuf(BorrowedFd::borrow_raw(fd), offset..end, spec)? };
        hand_out(umem, Umem(made))
    })
}

/// Returns the number by which commands name the memory; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_umem_number(umem: Option<&Umem>) -> u32 {
    umem.map_or(0, |umem| umem.0.id().0)
}

/// Ends the registration. Before this call, destroy the objects that use the memory. The handle is destroyed
/// even after an error. NULL is ignored.
///
/// Errors: MLX5MK_SYSTEM. After this error the device may still access the memory, so the memory must stay
/// mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_umem_deregister(
    umem: Option<Box<Umem>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Some(umem) = umem else { return Ok(0) };
        umem.0.deregister().map_err(|(error, _)| error)?;
        Ok(0)
    })
}

/// Allocates a page of doorbell registers (`mlx5dv_devx_alloc_uar`), for queues that commands create.
///
/// Errors: MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_uar_alloc(
    device: Option<&Device>,
    uar: Option<&mut MaybeUninit<*mut Uar>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), uar) = (given(device, "device")?, given(uar, "uar")?);
        hand_out(uar, Uar(device.alloc_uar()?))
    })
}

/// Writes to `number` the number by which commands name the UAR page.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_uar_number(
    uar: Option<&Uar>,
    number: Option<&mut MaybeUninit<u32>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Uar(uar), number) = (given(uar, "uar")?, given(number, "number")?);
        number.write(uar.number()?.get());
        Ok(0)
    })
}

/// Returns the address of the UAR page, which is mapped as long as the handle exists; NULL where the page is
/// not mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_uar_address(uar: Option<&Uar>) -> *mut c_void {
    let base = uar.and_then(|uar| uar.0.base().ok());
    base.map_or(core::ptr::null_mut(), |base| base.as_ptr().cast())
}

/// Frees the UAR page. Before this call, destroy the objects that use it. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_uar_free(uar: Option<Box<Uar>>) {
    drop(uar);
}

/// Writes to `number` the number of the event queue that the kernel has for a completion vector
/// (`mlx5dv_devx_query_eqn`). Commands that create completion queues need this number. Vector 0 always
/// exists.
///
/// Errors: MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_device_event_queue(
    device: Option<&Device>,
    vector: u32,
    number: Option<&mut MaybeUninit<u32>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), number) = (given(device, "device")?, given(number, "number")?);
        number.write(device.event_queue(vector)?);
        Ok(0)
    })
}

/// Returns the request and the reply of a command as slices. The reply is filled with zeros.
///
/// # Safety
/// The caller ensures that `request` and `reply` lead to arrays of these lengths, and that nobody else uses
/// them meanwhile.
unsafe fn mailboxes<'a>(
    (request, request_bytes): (*const c_void, u32),
    (reply, reply_bytes): (*mut c_void, u32),
) -> Result<(&'a [u8], &'a mut [u8]), Failure> {
    // SAFETY: the caller ensures that `request` leads to `request_bytes` bytes.
    let request = unsafe { array(request.cast::<u8>(), request_bytes as usize, "request")? };
    if reply.is_null() {
        return Err(Failure::Null("reply"));
    }
    // SAFETY: the caller ensures that `reply` leads to `reply_bytes` bytes. Writing zeros initialises them.
    let reply = unsafe {
        core::ptr::write_bytes(reply.cast::<u8>(), 0, reply_bytes as usize);
        core::slice::from_raw_parts_mut(reply.cast::<u8>(), reply_bytes as usize)
    };
    Ok((request, reply))
}

/// Sends the device a command that creates an object (`mlx5dv_devx_obj_create`). `request` and `reply` are
/// the structures that the PRM defines for the command. The caller keeps memory that the command gives to the
/// device valid until mlx5mk_object_destroy has returned 0. Linux passes a command on only if it knows how to
/// destroy the object. `reply` is written even after an error.
///
/// Errors: MLX5MK_COMMAND where the device refuses, MLX5MK_SYSTEM where the kernel does not let the command
/// through (EINVAL), MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_object_create(
    device: Option<&Device>,
    request: *const c_void,
    request_bytes: u32,
    reply: *mut c_void,
    reply_bytes: u32,
    object: Option<&mut MaybeUninit<*mut Object>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), object) = (given(device, "device")?, given(object, "object")?);
        // SAFETY: the caller ensures that request and reply lead to arrays of the given lengths.
        let (request, reply) = unsafe { mailboxes((request, request_bytes), (reply, reply_bytes))? };
        // SAFETY: the caller ensures that all memory that the command names stays valid.
        hand_out(object, Object(unsafe { device.create_object_from(request, reply)? }))
    })
}

/// Sends the device a query of the object (`mlx5dv_devx_obj_query`). `reply` is written even after an error.
///
/// Errors: as mlx5mk_object_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_object_query(
    object: Option<&Object>,
    request: *const c_void,
    request_bytes: u32,
    reply: *mut c_void,
    reply_bytes: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Object(object) = given(object, "object")?;
        // SAFETY: the caller ensures that request and reply lead to arrays of the given lengths.
        let (request, reply) = unsafe { mailboxes((request, request_bytes), (reply, reply_bytes))? };
        object.query_from(request, reply)?;
        Ok(0)
    })
}

/// Sends the device a command that changes the object (`mlx5dv_devx_obj_modify`). `reply` is written even
/// after an error.
///
/// Errors: as mlx5mk_object_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_object_modify(
    object: Option<&Object>,
    request: *const c_void,
    request_bytes: u32,
    reply: *mut c_void,
    reply_bytes: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Object(object) = given(object, "object")?;
        // SAFETY: the caller ensures that request and reply lead to arrays of the given lengths.
        let (request, reply) = unsafe { mailboxes((request, request_bytes), (reply, reply_bytes))? };
        // SAFETY: the caller ensures that all memory that the command names stays valid.
        unsafe { object.modify_from(request, reply)? };
        Ok(0)
    })
}

/// Destroys the object on the device. The handle is destroyed even after an error. NULL is ignored.
///
/// Errors: MLX5MK_SYSTEM. After this error the object still exists on the device, so its memory must stay
/// valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_object_destroy(
    object: Option<Box<Object>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Some(object) = object else { return Ok(0) };
        object.0.destroy().map_err(|(error, _)| error)?;
        Ok(0)
    })
}

/// Creates a channel for the answers to queries for which the program does not wait
/// (`mlx5dv_devx_create_cmd_comp`).
///
/// Errors: MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_queries_create(
    device: Option<&Device>,
    queries: Option<&mut MaybeUninit<*mut Queries>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), queries) = (given(device, "device")?, given(queries, "queries")?);
        hand_out(queries, Queries(device.queries()?))
    })
}

/// Sends the device a query of a queue pair, and does not wait. The answer arrives at the channel `queries`,
/// with this `id`.
///
/// Errors: MLX5MK_SYSTEM, with EAGAIN while the channel is full (1 MiB of answers); MLX5MK_ADOPT for a queue
/// pair that was adopted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_qp_query_later(
    qp: Option<&Qp>,
    queries: Option<&Queries>,
    id: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, Queries(queries)) = (given(qp, "qp")?, given(queries, "queries")?);
        qp.queues.control().query_later(queries, &QueryQp(qp.queues.qpn()), id)?;
        Ok(0)
    })
}

/// Sends the device a query of a data encryption key, and does not wait. The answer arrives at the channel
/// `queries`, with this `id`.
///
/// Errors: MLX5MK_SYSTEM, with EAGAIN while the channel is full (1 MiB of answers); MLX5MK_ARGUMENT for a key
/// that a cache has lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_query_later(
    dek: Option<&Dek>,
    queries: Option<&Queries>,
    id: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (dek, Queries(queries)) = (given(dek, "dek")?, given(queries, "queries")?);
        dek.own()?.query_later(queries, id)?;
        Ok(0)
    })
}

/// Sends the device a query of an object, and does not wait. The answer of `reply_bytes` bytes arrives at the
/// channel `queries`, with this `id`.
///
/// Errors: MLX5MK_SYSTEM, with EAGAIN while the channel is full (1 MiB of answers); MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_object_query_later(
    object: Option<&Object>,
    queries: Option<&Queries>,
    request: *const c_void,
    request_bytes: u32,
    reply_bytes: u32,
    id: u64,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Object(object), Queries(queries)) = (given(object, "object")?, given(queries, "queries")?);
        // SAFETY: the caller ensures that `request` leads to `request_bytes` bytes.
        let request = unsafe { array(request.cast::<u8>(), request_bytes as usize, "request")? };
        object.query_later_from(queries, request, reply_bytes as usize, id)?;
        Ok(0)
    })
}

/// The answer to a query for which the program does not wait.
#[repr(C)]
pub struct Answer {
    /// The `id` that was given with the query.
    pub id: u64,
    /// Memory of the caller for the reply, which is a structure of the PRM.
    pub reply: *mut c_void,
    /// The size of the memory at `reply` in bytes.
    pub room: u32,
    /// Written by mlx5mk_queries_next: the length of the whole reply in bytes. If it exceeds `room`, only the
    /// first `room` bytes are at `reply`.
    pub bytes: u32,
}

/// Takes the next answer from the channel and returns 1. Waits up to `milliseconds`, or without limit if
/// `milliseconds` is negative. Returns 0 when the time is over. Before the call, the caller sets the fields
/// `reply` and `room` of `answer`.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_queries_next(
    queries: Option<&Queries>,
    answer: Option<&mut Answer>,
    milliseconds: i32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Queries(queries), answer) = (given(queries, "queries")?, given(answer, "answer")?);
        // SAFETY: the caller ensures that `answer.reply` leads to memory for `answer.room` bytes.
        let place = unsafe { room(answer.reply.cast(), answer.room as usize, "reply")? };
        let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        let Some(found) = queries.next(limit)? else { return Ok(0) };
        answer.id = found.id;
        answer.bytes = found.bytes().len() as u32;
        for (place, byte) in place.iter_mut().zip(found.bytes()) {
            place.write(*byte);
        }
        Ok(1)
    })
}

/// Returns a file descriptor for poll or epoll, which is readable while there are answers. The descriptor
/// belongs to the channel: do not read from it or close it.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_queries_fd(
    queries: Option<&Queries>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || Ok(given(queries, "queries")?.0.as_raw_fd()))
}

/// Destroys the channel. Answers that were not taken are lost. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_queries_destroy(queries: Option<Box<Queries>>) {
    drop(queries);
}

/// Decodes the answer to mlx5mk_qp_query_later.
///
/// Errors: MLX5MK_COMMAND where the device has refused the query, MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_answer_qp(
    answer: Option<&Answer>,
    info: Option<&mut MaybeUninit<QpInfo>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let info = given(info, "info")?;
        // SAFETY: the caller ensures that mlx5mk_queries_next has written the answer.
        let reply = unsafe { reply_of(answer)? };
        // `QueryQp` needs a number to build a command. Decoding a reply does not use it, so it is 0 here.
        let decoded = QueryQp(Qpn::from_low_bits(0)).decode(reply).map_err(devx::DevxError::from)?;
        info.write(qp_info(&decoded));
        Ok(0)
    })
}

/// Decodes the answer to mlx5mk_dek_query_later, and returns the key's state, MLX5MK_DEK_READY or
/// MLX5MK_DEK_ERROR. Writes to `opaque` the 8 bytes that the program gave as `opaque` when it loaded the key.
///
/// Errors: MLX5MK_COMMAND where the device has refused the query, MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_answer_dek(
    answer: Option<&Answer>,
    opaque: Option<&mut MaybeUninit<[u8; 8]>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let opaque = given(opaque, "opaque")?;
        // SAFETY: the caller ensures that mlx5mk_queries_next has written the answer.
        let reply = unsafe { reply_of(answer)? };
        let decoded = QueryDek(DekObject::new(0)).decode(reply).map_err(devx::DevxError::from)?;
        opaque.write(decoded.opaque);
        Ok(decoded.state.0.into())
    })
}

/// Returns the bytes of an answer's reply.
///
/// # Safety
/// The caller ensures that `reply` of the answer leads to the bytes that mlx5mk_queries_next has written.
unsafe fn reply_of(answer: Option<&Answer>) -> Result<&[u8], Failure> {
    let answer = given(answer, "answer")?;
    // SAFETY: the caller ensures that mlx5mk_queries_next has written these bytes.
    unsafe { array(answer.reply.cast_const().cast::<u8>(), answer.bytes.min(answer.room) as usize, "reply") }
}
