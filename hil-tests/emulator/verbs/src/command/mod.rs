//! From a call to what it does, and what all methods need.

mod address;
mod completion;
mod device;
mod devx;
mod devx_mkey;
mod devx_query;
mod devx_queue;
mod devx_shared_receive;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod lacking;
mod memory;
mod methods;
mod queue_pair;
pub(crate) mod request;
mod shared_receive;
mod steps;
mod window;

use crate::command::request::Request;
use crate::ground::errno::Errno;
use crate::ground::fault::{self, CallId, Course, Ending};
use crate::process::probe;
use crate::state::State;
use crate::state::channel::Kind;
use crate::state::object::{Context, Cq, Object};
use methods::{COMMANDS, DEVX_OBJECT, INVOKE_WRITE, METHODS, MODIFY, Method, Run};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

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
    /// A file descriptor that the program gets, if the call succeeds.
    made: Option<OwnedFd>,
}

/// Carries out a call. Returns a file descriptor that it has made for the program.
///
/// # Errors
/// What the kernel would say.
pub(crate) fn dispatch(state: &mut State, context: u32, address: u64) -> Result<Option<RawFd>, Errno> {
    let request = Request::read(address)?;
    let outcome = carry_out(state, context, &request);
    if outcome.is_err() {
        lacking::name(&request);
    }
    outcome
}

fn carry_out(state: &mut State, context: u32, request: &Request) -> Result<Option<RawFd>, Errno> {
    let same = |method: &&Method| method.object == request.object && method.method == request.method;
    let method = METHODS.iter().find(same).ok_or(Errno::PROTONOSUPPORT)?;
    request.check(method.attributes)?;
    state.end_if_due();
    state.may_call(context, method.ends)?;
    let mut call = Call { state, context, request, made: None };
    if !method.early && !call.context()?.opened {
        return Err(Errno::INVAL);
    }
    // Asking whether the older interface is there is no call of its own.
    let outcome = if method.ends {
        let outcome = fault::end().map_or_else(|| (method.run)(&mut call), Err);
        outcome.inspect_err(|_| probe::refused())
    } else if (method.object, method.method) == INVOKE_WRITE {
        (method.run)(&mut call)
    } else {
        perform(&mut call, method.run)
    };
    let made = call.made.take();
    if let (Err(_), Some(descriptor)) = (&outcome, &made) {
        // The program does not know of it: nobody would ever close what it stands for.
        state.close(descriptor.as_raw_fd());
    }
    outcome.map(|()| made.map(IntoRawFd::into_raw_fd))
}

/// Carries a call out, or fails where a plan says so.
fn perform(call: &mut Call<'_>, run: Run) -> Result<(), Errno> {
    let Request { object, method, .. } = *call.request;
    let command = if (object, method) == INVOKE_WRITE { call.request.number(COMMAND) } else { 0 };
    match fault::call(CallId::new(object, method, command)) {
        Course::Good => run(call),
        Course::Fails(errno, status) => Err(devx::refuse(call, status).unwrap_or(errno)),
        Course::Unheard if (object, method) == (DEVX_OBJECT, MODIFY) => run(call).and(Err(Errno::TIMEDOUT)),
        Course::Unheard => Err(Errno::TIMEDOUT),
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
    perform(call, command.run)
}

impl Call<'_> {
    /// Makes a channel. Returns its number, and the descriptor that the program gets.
    fn open_channel(&mut self, kind: Kind) -> Result<(u32, RawFd), Errno> {
        let (number, descriptor) = self.state.open_channel(kind, self.context)?;
        let raw = descriptor.as_raw_fd();
        self.made = Some(descriptor);
        Ok((number, raw))
    }

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
        let context = self.context()?;
        if object.may_be_base() && context.is_base(handle) {
            return Err(Errno::BUSY);
        }
        if context.ending != Some(Ending::Removed) {
            self.state.destroy(object)?;
        }
        self.context()?.remove(handle);
        Ok(())
    }
}
