//! Commands that the shim has no function for.

#![allow(unsafe_code)] // Changing a queue pair is the caller's promise.

use super::{Device, DevxError, QpControl, carry};
use crate::command::Command;
use crate::error::CommandError;
use core::ops::Range;

/// Where a command names the virtual device that it is for (PRM `vhca_tunnel_id`).
const TUNNEL: Range<usize> = 4..6;

impl Device {
    /// Carries a command about no object to the device (`mlx5dv_devx_general_cmd`). The kernel lets through
    /// those that ask for something, and few others; commands that make objects have functions of their own.
    /// Commands for another virtual device (`vhca_tunnel_id`) are refused.
    ///
    /// What [`crate::command`] does not have, a caller can define: a type with [`Command`], that is the
    /// opcode, the structures of request and reply as the PRM has them, and how they are filled in and read.
    ///
    /// ```no_run
    /// use mlx5_mkey::command::Command;
    /// use mlx5_mkey::devx::Device;
    /// use mlx5_mkey::error::CommandError;
    /// use mlx5_mkey::wire::prm::command::{Opcode, ReplyHeader, RequestHeader};
    /// use zerocopy::big_endian::U32;
    /// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
    ///
    /// /// QUERY_ADAPTER: of which kind the board is, by its PSID.
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
            // With a tunnel the kernel lets every command of another virtual device through, also those that
            // change things.
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
    /// Carries a command that asks for something of this queue pair to the device (`mlx5dv_devx_obj_query`).
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device refuses, [`DevxError::Call`] where the kernel does not let the
    /// command through: it asks for nothing, or names another object.
    pub fn execute_query<C: Command>(&self, command: &C) -> Result<C::Reply, DevxError> {
        Ok(carry(command, |request, reply| self.object().query(request, reply))?.1)
    }

    /// Carries a command that changes this queue pair to the device (`mlx5dv_devx_obj_modify`):
    /// [`crate::command::Rts2Rts`], say, or [`crate::command::Init2Rtr`] over a path of the caller's.
    ///
    /// # Errors
    /// As [`QpControl::execute_query`].
    ///
    /// # Safety
    /// The command does not have the device execute requests anew that have completed, as taking the queue
    /// pair to RESET and back does while its queues go on: memory that they name may be used for something
    /// else by now.
    pub unsafe fn execute_modify<C: Command>(&self, command: &C) -> Result<C::Reply, DevxError> {
        Ok(carry(command, |request, reply| self.object().modify(request, reply))?.1)
    }
}
