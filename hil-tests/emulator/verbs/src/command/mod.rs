//! Calls of the kernel's interface: reads the bytes of a call, checks them, and carries the call out.

mod address;
mod call;
pub(crate) mod commands;
mod completion;
mod device;
pub(crate) mod devx;
mod invoke;
mod lacking;
pub(crate) mod manager;
mod memory;
pub(crate) mod methods;
pub(crate) mod nldev;
pub(crate) mod numbers;
mod queue_pair;
pub(crate) mod request;
mod shared_receive;
mod steps;
mod window;

use crate::ground::errno::Errno;
use crate::ground::fault;
use crate::state::State;
use call::Call;
use invoke::perform;
use methods::{METHODS, Method};
use numbers::INVOKE_WRITE;
use request::Request;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

/// Carries out the call whose bytes are at `address`. Returns the file descriptor that the call has made for
/// the program, if any.
///
/// # Errors
/// The errno with which the kernel would refuse the call.
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
    state.may_call(context, method.ends)?;
    let mut call = Call { state, context, request, made: None };
    if !method.early && !call.context()?.opened {
        return Err(Errno::INVAL);
    }
    // `perform` asks the plan of faults, and the plan counts the call. INVOKE_WRITE carries a command, so
    // `invoke_write` calls `perform` once it knows the command. Calls with an unknown command do not count:
    // with such calls, programs test whether the older `write` interface exists.
    let outcome = if method.ends {
        let outcome = fault::end().map_or_else(|| (method.run)(&mut call), Err);
        outcome.inspect_err(|_| call.state.refused += 1)
    } else if (method.object, method.method) == INVOKE_WRITE {
        (method.run)(&mut call)
    } else {
        perform(&mut call, method.run)
    };
    let made = call.made.take();
    if let (Err(_), Some(descriptor)) = (&outcome, &made) {
        // The program never gets the descriptor, so it would never close the descriptor's channel.
        state.close(descriptor.as_raw_fd());
    }
    outcome.map(|()| made.map(IntoRawFd::into_raw_fd))
}
