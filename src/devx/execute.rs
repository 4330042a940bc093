//! Functions that send any command to the device, also commands for which the library has no function.

#![allow(unsafe_code)] // The caller vouches for changes of a queue pair.

use super::{Device, DevxError, QpControl, carry};
use crate::command::Command;
use crate::command::error::CommandError;
use core::ops::Range;

/// The position of the two bytes in a command that name the virtual device which executes it (PRM
/// `vhca_tunnel_id`).
const TUNNEL: Range<usize> = 4..6;

impl Device {
    /// Sends the device a command that concerns no object (`mlx5dv_devx_general_cmd`). The kernel passes on
    /// queries, and few other commands. Commands that create objects have their own functions. This function
    /// refuses commands for another virtual device (`vhca_tunnel_id`).
    ///
    /// A caller can define commands that [`crate::command`] lacks. Such a command is a type that implements
    /// [`Command`]: the opcode, the PRM's structures of request and reply, a function that fills in the
    /// request, and a function that reads the reply.
    ///
    /// ```no_run
    /// use mlx5_mkey::command::Command;
    /// use mlx5_mkey::devx::Device;
    /// use mlx5_mkey::error::CommandError;
    /// use mlx5_mkey::wire::prm::command::{Opcode, ReplyHeader, RequestHeader};
    /// use zerocopy::big_endian::U32;
    /// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
    ///
    /// /// QUERY_ADAPTER: asks for the board's PSID, which names the kind of board.
    /// struct QueryAdapter;
    ///
    /// #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    /// #[repr(C)]
    /// struct Request {
    ///     header: RequestHeader,
    ///     reserved: [U32; 2],
    /// }
    ///
    /// #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    /// #[repr(C)]
    /// struct Reply {
    ///     header: ReplyHeader,
    ///     reserved: [U32; 8],
    ///     vendor: U32,
    ///     vendor_data: [u8; 212],
    ///     psid: [u8; 16],
    /// }
    ///
    /// impl Command for QueryAdapter {
    ///     const OPCODE: Opcode = Opcode(0x101);
    ///     type Input = Request;
    ///     type Output = Reply;
    ///     type Reply = [u8; 16];
    ///
    ///     fn write(&self, input: &mut Request) {
    ///         input.header = RequestHeader::new(Self::OPCODE);
    ///     }
    ///
    ///     fn read(&self, output: &Reply) -> Result<[u8; 16], CommandError> {
    ///         Ok(output.psid)
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # const { assert!(QueryAdapter::OUTPUT == 272) };
    /// let psid = Device::open(None)?.execute(&QueryAdapter)?;
    /// println!("{}", psid.escape_ascii());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device refuses, [`DevxError::Call`] where the kernel does not let the
    /// command through (EINVAL).
    pub fn execute<C: Command>(&self, command: &C) -> Result<C::Reply, DevxError> {
        let through = |request: &[u8], reply: &mut [u8]| {
            // The kernel passes on every command for another virtual device, even a command that changes
            // objects. A safe function must not send such commands, so this library refuses them.
            match request.get(TUNNEL) {
                Some([0, 0]) => self.context.general_command(request, reply),
                _ => {
                    Err(CommandError::Unsupported { command: C::OPCODE, what: "tunnel for commands" }.into())
                }
            }
        };
        Ok(carry(command, through)?.1)
    }
}

impl QpControl {
    /// Sends the device a query of this queue pair (`mlx5dv_devx_obj_query`).
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device refuses, [`DevxError::Call`] where the kernel does not let the
    /// command through, because it is no query or names another object.
    pub fn execute_query<C: Command>(&self, command: &C) -> Result<C::Reply, DevxError> {
        Ok(carry(command, |request, reply| self.object().query(request, reply))?.1)
    }

    /// Sends the device a command that changes this queue pair (`mlx5dv_devx_obj_modify`), for example
    /// [`crate::command::Rts2Rts`], or [`crate::command::Init2Rtr`] over a path that the caller chooses.
    ///
    /// # Errors
    /// As [`QpControl::execute_query`].
    ///
    /// # Safety
    /// The caller ensures that the command does not make the device execute completed requests again, because
    /// the memory that they name may have another use by now. For example, taking the queue pair to RESET and
    /// back to RTS, while its queues in this library keep their state, would make the device read the ring
    /// from the beginning.
    pub unsafe fn execute_modify<C: Command>(&self, command: &C) -> Result<C::Reply, DevxError> {
        Ok(carry(command, |request, reply| self.object().modify(request, reply))?.1)
    }
}
