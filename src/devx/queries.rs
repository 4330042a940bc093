//! Asynchronous queries: the program does not wait for the answer, which arrives at a channel later.

use super::{Dek, Device, DevxError, QpControl, fits, sys};
use crate::command::Command;
use crate::command::error::CommandError;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;
use std::vec;
use std::vec::Vec;

/// A channel for the answers of asynchronous queries (`mlx5dv_devx_create_cmd_comp`): a file descriptor that
/// becomes readable when an answer arrives, and does not block. A program can query many queue pairs at once,
/// and take the answers as they come.
///
/// The kernel keeps up to 1 MiB of answers for a channel. While it is full, the kernel refuses further
/// queries (EAGAIN).
///
/// ```no_run
/// use mlx5_mkey::command::QueryQp;
/// use mlx5_mkey::devx::{Device, DevxError, QueuePair};
/// /// Prints the states of some queue pairs.
/// fn states(device: &Device, queues: &[QueuePair]) -> Result<(), DevxError> {
///     let queries = device.queries()?;
///     for (id, queue) in (0..).zip(queues) {
///         queue.control().query_later(&queries, &QueryQp(queue.qpn()), id)?;
///     }
///     for _ in queues {
///         let Some(answer) = queries.next(None)? else { break };
///         let queue = &queues[answer.id as usize];
///         println!("{}: {}", queue.qpn(), answer.decode(&QueryQp(queue.qpn()))?.state);
///     }
///     Ok(())
/// }
/// ```
pub struct Queries(sys::CommandChannel);

/// The answer to an asynchronous query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryAnswer {
    /// The `id` that was given with the query.
    pub id: u64,
    bytes: Vec<u8>,
}

impl QueryAnswer {
    /// Returns the bytes of the device's reply. Zeros may follow the reply.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes the device's reply to this command.
    ///
    /// # Errors
    /// [`CommandError`]: the device has refused the command.
    pub fn decode<C: Command>(&self, command: &C) -> Result<C::Reply, CommandError> {
        command.decode(&self.bytes)
    }
}

impl Device {
    /// Creates a channel for the answers to queries.
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn queries(&self) -> Result<Queries, DevxError> {
        Ok(Queries(sys::CommandChannel::create(&self.context)?))
    }
}

impl Queries {
    /// Returns the next answer, or `None` after `timeout`. Waits without limit if no `timeout` is given.
    ///
    /// # Errors
    /// [`DevxError::Call`]; [`DevxError::EventsClosed`] when the device is gone.
    pub fn next(&self, timeout: Option<Duration>) -> Result<Option<QueryAnswer>, DevxError> {
        Ok(self.0.next(timeout)?.map(|(id, bytes)| QueryAnswer { id, bytes }))
    }

    pub(super) fn ask<C: Command>(
        &self,
        object: &sys::Object<impl Sized>,
        command: &C,
        id: u64,
    ) -> Result<(), DevxError> {
        fits(C::OPCODE, command.input_bytes())?;
        let mut mailbox = vec![0; command.input_bytes()];
        let request = command.encode(&mut mailbox)?;
        self.ask_bytes(object, &request, C::OUTPUT, id)
    }

    /// Sends the query whose bytes are `request`. Its answer will have `output` bytes, and carry `id`.
    pub(super) fn ask_bytes(
        &self,
        object: &sys::Object<impl Sized>,
        request: &[u8],
        output: usize,
        id: u64,
    ) -> Result<(), DevxError> {
        self.0.query(object, request, output, id)
    }
}

impl AsFd for Queries {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Queries {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl QpControl {
    /// Sends the device a query of this queue pair ([`crate::command::QueryQp`]), and does not wait for the
    /// answer (`mlx5dv_devx_obj_query_async`). The answer arrives at `queries` with this `id`.
    ///
    /// # Errors
    /// [`DevxError::Call`] where the kernel does not let the command through, or has no room for another
    /// answer; [`DevxError::Adopt`] for a queue pair that was taken over.
    pub fn query_later<C: Command>(&self, queries: &Queries, command: &C, id: u64) -> Result<(), DevxError> {
        queries.ask(self.object(), command, id)
    }
}

impl Dek {
    /// Sends the device a query of the key's state ([`crate::command::QueryDek`] of [`Dek::object`]), and
    /// does not wait for the answer. The answer arrives at `queries` with this `id`.
    ///
    /// # Errors
    /// As [`QpControl::query_later`].
    pub fn query_later(&self, queries: &Queries, id: u64) -> Result<(), DevxError> {
        queries.ask(self.devx(), &self.query_command(), id)
    }
}
