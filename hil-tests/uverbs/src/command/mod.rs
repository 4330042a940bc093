//! From a call to what it does: the tables of methods, and what all of them need.

mod address;
mod completion;
mod device;
mod devx;
mod devx_queue;
mod devx_shared_receive;
mod memory;
mod queue_pair;
mod shared_receive;
mod steps;

use crate::errno::Errno;
use crate::object::{Context, Cq, Object};
use crate::probe::{self, CallId, Failure};
use crate::request::Kind::{In, InAny, NewObject, Object as Handle, Out, OutAny};
use crate::request::{Request, Spec, needs, takes};
use crate::state::State;
use std::os::fd::RawFd;

/// Inputs and outputs of the driver (`UVERBS_ATTR_UHW_IN`, `UVERBS_ATTR_UHW_OUT`).
const UHW_IN: u16 = 0x1000;
const UHW_OUT: u16 = 0x1001;

/// INVOKE_WRITE: a command of the older interface, its structure and its answer (`uverbs_attrs_invoke_write_cmd_attr_ids`).
const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;
const COMMAND: u16 = 2;

/// Commands of the older interface with structures that can grow (`IB_USER_VERBS_CMD_FLAG_EXTENDED`).
const EXTENDED: u64 = 0x8000_0000;

/// A call on its way.
pub(crate) struct Call<'a> {
    pub(crate) state: &'a mut State,
    /// The number of the context that it is made on.
    pub(crate) context: u32,
    pub(crate) request: &'a Request,
    /// A file descriptor that the program gets.
    pub(crate) made: Option<RawFd>,
}

type Run = fn(&mut Call<'_>) -> Result<(), Errno>;

/// A method of the interface.
struct Method {
    object: u16,
    method: u16,
    /// Works before GET_CONTEXT.
    early: bool,
    /// Destroys something.
    ends: bool,
    attributes: &'static [Spec],
    run: Run,
}

const fn method(object: u16, method: u16, attributes: &'static [Spec], run: Run) -> Method {
    Method { object, method, early: false, ends: false, attributes, run }
}

/// A method that destroys an object.
const fn ending(object: u16, method: u16, attributes: &'static [Spec], run: Run) -> Method {
    Method { object, method, early: false, ends: true, attributes, run }
}

const DEVICE: u16 = 0;
const PD: u16 = 1;
const CQ: u16 = 3;
const QP: u16 = 4;
const SRQ: u16 = 5;
const AH: u16 = 6;
const MR: u16 = 7;
const ASYNC_EVENT: u16 = 0x10;
const DEVX: u16 = 0x1000;
const DEVX_OBJECT: u16 = 0x1001;
const DEVX_UMEM: u16 = 0x1002;
const DEVX_EVENTS: u16 = 0x1005;
const UAR: u16 = 0x1008;

/// Object and method of a command of the older interface.
const INVOKE_WRITE: (u16, u16) = (DEVICE, 0);

/// All methods (`ib_user_ioctl_cmds.h`, `mlx5_user_ioctl_cmds.h`).
const METHODS: &[Method] = &[
    Method {
        object: DEVICE,
        method: 0,
        early: true,
        ends: false,
        attributes: &[
            takes(CORE_IN, InAny),
            takes(CORE_OUT, OutAny),
            needs(COMMAND, In(8)),
            takes(UHW_IN, InAny),
            takes(UHW_OUT, OutAny),
        ],
        run: invoke_write,
    },
    Method {
        object: DEVICE,
        method: 3,
        early: true,
        ends: false,
        attributes: &[takes(0, Out(4)), takes(1, Out(8)), needs(UHW_IN, In(8)), needs(UHW_OUT, Out(16))],
        run: device::get_context,
    },
    method(DEVICE, 2, &[needs(0, In(4)), needs(1, Out(40))], device::query_port),
    method(
        DEVICE,
        5,
        &[needs(0, In(8)), takes(1, In(4)), needs(2, OutAny), needs(3, Out(8))],
        device::query_gid_table,
    ),
    method(
        DEVICE,
        6,
        &[needs(0, In(4)), needs(1, In(4)), takes(2, In(4)), needs(3, OutAny)],
        device::query_gid_entry,
    ),
    method(ASYNC_EVENT, 0, &[needs(0, NewObject)], device::alloc_async_event),
    ending(PD, 0, &[needs(0, Handle)], memory::destroy_pd),
    ending(AH, 0, &[needs(0, Handle)], address::destroy),
    ending(MR, 1, &[needs(0, Handle)], memory::destroy_mr),
    method(
        MR,
        4,
        &[
            needs(0, NewObject),
            needs(1, Handle),
            needs(2, In(8)),
            needs(3, In(8)),
            needs(4, In(8)),
            needs(5, In(4)),
            takes(6, In(4)),
            needs(7, Out(4)),
            needs(8, Out(4)),
        ],
        memory::register_dmabuf,
    ),
    method(
        CQ,
        0,
        &[
            needs(0, NewObject),
            needs(1, In(4)),
            needs(2, In(8)),
            takes(3, Handle),
            takes(4, In(4)),
            takes(5, In(4)),
            needs(6, Out(4)),
            takes(7, Handle),
            needs(UHW_IN, In(16)),
            needs(UHW_OUT, Out(4)),
        ],
        completion::create_cq,
    ),
    ending(CQ, 1, &[needs(0, Handle), needs(1, Out(8))], completion::destroy_cq),
    method(
        QP,
        0,
        &[
            needs(0, NewObject),
            takes(1, Handle),
            takes(2, Handle),
            takes(3, Handle),
            takes(4, Handle),
            takes(5, Handle),
            takes(6, Handle),
            needs(7, In(8)),
            needs(8, In(20)),
            needs(9, In(4)),
            takes(10, In(4)),
            takes(11, In(4)),
            takes(12, Handle),
            needs(13, Out(20)),
            needs(14, Out(4)),
            needs(UHW_IN, In(32)),
            takes(UHW_OUT, OutAny),
        ],
        queue_pair::create,
    ),
    ending(QP, 1, &[needs(0, Handle), needs(1, Out(4))], queue_pair::destroy),
    method(
        SRQ,
        0,
        &[
            needs(0, NewObject),
            needs(1, Handle),
            takes(2, Handle),
            takes(3, Handle),
            needs(4, In(8)),
            needs(5, In(4)),
            needs(6, In(4)),
            needs(7, In(4)),
            takes(8, In(4)),
            needs(9, In(4)),
            takes(10, Handle),
            needs(11, Out(4)),
            needs(12, Out(4)),
            takes(13, Out(4)),
            needs(UHW_IN, In(16)),
            takes(UHW_OUT, OutAny),
        ],
        shared_receive::create,
    ),
    ending(SRQ, 1, &[needs(0, Handle), needs(1, Out(4))], shared_receive::destroy),
    method(DEVX, 0x1000, &[needs(0x1000, In(16)), needs(0x1001, Out(16))], devx::other),
    method(DEVX, 0x1001, &[needs(0x1000, In(4)), needs(0x1001, Out(4))], devx::query_uar),
    method(DEVX, 0x1002, &[needs(0x1000, In(4)), needs(0x1001, Out(4))], devx::query_eqn),
    method(
        DEVX,
        0x1003,
        &[
            needs(0x1000, Handle),
            takes(0x1001, Handle),
            needs(0x1002, InAny),
            takes(0x1003, In(4)),
            takes(0x1004, In(8)),
        ],
        devx::subscribe,
    ),
    method(DEVX_EVENTS, 0x1000, &[needs(0x1000, NewObject), takes(0x1001, In(4))], devx::alloc_event_channel),
    method(
        DEVX_OBJECT,
        0x1000,
        &[needs(0x1000, NewObject), needs(0x1001, In(16)), needs(0x1002, Out(16))],
        devx::create,
    ),
    ending(DEVX_OBJECT, 0x1001, &[needs(0x1000, Handle)], devx::destroy),
    method(
        DEVX_OBJECT,
        0x1002,
        &[needs(0x1000, Handle), needs(0x1001, In(16)), needs(0x1002, Out(16))],
        devx::modify,
    ),
    method(
        DEVX_OBJECT,
        0x1003,
        &[needs(0x1000, Handle), needs(0x1001, In(16)), needs(0x1002, Out(16))],
        devx::query,
    ),
    method(
        DEVX_UMEM,
        0x1000,
        &[
            needs(0x1000, NewObject),
            needs(0x1001, In(8)),
            needs(0x1002, In(8)),
            needs(0x1003, In(4)),
            needs(0x1004, Out(4)),
            takes(0x1005, In(8)),
        ],
        devx_queue::register_umem,
    ),
    ending(DEVX_UMEM, 0x1001, &[needs(0x1000, Handle)], devx_queue::deregister_umem),
    method(
        UAR,
        0x1000,
        &[
            needs(0x1000, NewObject),
            needs(0x1001, In(4)),
            needs(0x1002, Out(8)),
            needs(0x1003, Out(4)),
            needs(0x1004, Out(4)),
        ],
        memory::alloc_uar,
    ),
    ending(UAR, 0x1001, &[needs(0x1000, Handle)], memory::destroy_uar),
];

/// A command of the older interface: number, least length of its structure and of its answer.
struct Command {
    number: u64,
    input: usize,
    output: usize,
    run: Run,
}

const fn command(number: u64, input: usize, output: usize, run: Run) -> Command {
    Command { number, input, output, run }
}

/// All commands of the older interface (`ib_user_verbs.h`).
const COMMANDS: &[Command] = &[
    command(1, 8, 176, device::query_device),
    command(EXTENDED | 1, 8, 184, device::query_device_extended),
    command(3, 8, 4, memory::alloc_pd),
    command(5, 56, 4, address::create),
    command(9, 40, 12, memory::register),
    command(17, 8, 4, completion::create_channel),
    command(25, 16, 128, queue_pair::query),
    command(26, 112, 0, queue_pair::modify),
    command(EXTENDED | 26, 112, 0, queue_pair::modify),
    command(33, 16, 0, shared_receive::modify),
    command(34, 16, 16, shared_receive::query),
];

/// Carries out a call. Returns a file descriptor that it has made for the program.
///
/// # Errors
/// What the kernel would say.
pub(crate) fn dispatch(state: &mut State, context: u32, address: u64) -> Result<Option<RawFd>, Errno> {
    let request = Request::read(address)?;
    let same = |method: &&Method| method.object == request.object && method.method == request.method;
    let method = METHODS.iter().find(same).ok_or(Errno::PROTONOSUPPORT)?;
    request.check(method.attributes)?;
    let mut call = Call { state, context, request: &request, made: None };
    if !method.early && !call.context()?.opened {
        return Err(Errno::INVAL);
    }
    // Asking whether the older interface is there is no call of its own.
    if !method.ends && (method.object, method.method) != INVOKE_WRITE {
        fail_if_due(&mut call)?;
    }
    let kept = method.ends && probe::keeps_next();
    let outcome = if kept { Err(Errno::BUSY) } else { (method.run)(&mut call) };
    if method.ends && outcome.is_err() {
        probe::refused();
    }
    outcome.map(|()| call.made)
}

/// Fails where a test wants that.
fn fail_if_due(call: &mut Call<'_>) -> Result<(), Errno> {
    let Request { object, method, .. } = *call.request;
    let command = if (object, method) == INVOKE_WRITE { call.request.number(COMMAND) } else { 0 };
    match probe::next_call(CallId::new(object, method, command)) {
        None => Ok(()),
        Some(Failure { errno, status }) => Err(devx::refuse(call, status).unwrap_or(errno)),
    }
}

fn invoke_write(call: &mut Call<'_>) -> Result<(), Errno> {
    let number = call.request.number(COMMAND);
    let command = COMMANDS.iter().find(|command| command.number == number).ok_or(Errno::OPNOTSUPP)?;
    let input = call.request.room(CORE_IN);
    if input < command.input || call.request.room(CORE_OUT) < command.output {
        return Err(Errno::NOSPC);
    }
    if !call.context()?.opened {
        return Err(Errno::INVAL);
    }
    fail_if_due(call)?;
    (command.run)(call)
}

impl Call<'_> {
    /// Returns the context that the call is made on.
    pub(crate) fn context(&mut self) -> Result<&mut Context, Errno> {
        self.state.contexts.get_mut(&self.context).ok_or(Errno::IO)
    }

    /// Returns the object of a handle.
    pub(crate) fn object(&mut self, handle: u32) -> Result<&mut Object, Errno> {
        self.context()?.get_mut(handle).ok_or(Errno::NOENT)
    }

    /// Returns the number of a protection domain.
    pub(crate) fn pd(&mut self, handle: u32) -> Result<u32, Errno> {
        match self.object(handle)? {
            Object::Pd(number) => Ok(*number),
            _ => Err(Errno::NOENT),
        }
    }

    /// Returns a completion queue.
    pub(crate) fn cq(&mut self, handle: u32) -> Result<&mut Cq, Errno> {
        match self.object(handle)? {
            Object::Cq(cq) => Ok(cq),
            _ => Err(Errno::NOENT),
        }
    }

    /// Gives an object a handle and tells the program. An object that it cannot be told of is destroyed.
    pub(crate) fn publish(
        &mut self,
        object: Object,
        tell: impl FnOnce(&Request, u32) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let is_queue = object.is_queue();
        let Some(handle) = self.context()?.insert(object.clone()) else {
            self.state.destroy(object)?;
            return Err(Errno::NOMEM);
        };
        if is_queue {
            self.state.touch();
        }
        let told = tell(self.request, handle);
        if told.is_err()
            && let Some(object) = self.context()?.remove(handle)
        {
            self.state.destroy(object)?;
        }
        told
    }

    /// Destroys the object of a handle, if `wanted` says that it is of the right kind.
    pub(crate) fn destroy(&mut self, handle: u32, wanted: impl FnOnce(&Object) -> bool) -> Result<(), Errno> {
        let object = self.object(handle)?.clone();
        if !wanted(&object) {
            return Err(Errno::NOENT);
        }
        if object.may_be_base() && self.context()?.is_base(handle) {
            return Err(Errno::BUSY);
        }
        self.state.destroy(object)?;
        self.context()?.remove(handle);
        Ok(())
    }
}
