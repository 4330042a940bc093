//! Carries out calls, including commands of the older `write` interface.

use crate::command::call::{Call, Run};
use crate::command::commands::COMMANDS;
use crate::command::devx::frame::refuse;
use crate::command::numbers::{COMMAND, CORE_IN, CORE_OUT, DEVX_OBJECT, INVOKE_WRITE, MODIFY};
use crate::command::request::Request;
use crate::ground::errno::Errno;
use crate::ground::fault::{self, CallId, Course};

/// Carries out a call by `run`, unless the plan of faults (MLX5_UVERBS_FAULTS) has a failure for this call.
pub(super) fn perform(call: &mut Call<'_>, run: Run) -> Result<(), Errno> {
    let Request { object, method, .. } = *call.request;
    let command = if (object, method) == INVOKE_WRITE { call.request.number(COMMAND) } else { 0 };
    match fault::call(CallId::new(object, method, command)) {
        Course::Good => run(call),
        Course::Fails(errno, status) => Err(refuse(call, status).unwrap_or(errno)),
        Course::Unheard if (object, method) == (DEVX_OBJECT, MODIFY) => run(call).and(Err(Errno::TIMEDOUT)),
        Course::Unheard => Err(Errno::TIMEDOUT),
    }
}

/// Carries out INVOKE_WRITE: finds and runs the command of the older `write` interface that the call
/// contains.
pub(super) fn invoke_write(call: &mut Call<'_>) -> Result<(), Errno> {
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
