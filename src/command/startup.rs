//! Commands by which a program starts and stops a device that has no driver.
//!
//! The order is that of Linux (`mlx5_function_setup`) and of rdma-core's VFIO driver: [`EnableHca`],
//! [`QueryIssi`](super::QueryIssi), [`SetIssi`](super::SetIssi), boot pages, init pages
//! ([`QueryPages`](super::QueryPages), [`GivePages`](super::GivePages)), [`InitHca`].
//! [`crate::hca::CommandQueue::start`] executes all these commands.

use super::Command;
use crate::command::error::CommandError;
use crate::wire::prm::command::{NumberReply, NumberRequest, Opcode, RequestHeader};
use crate::wire::prm::function::{FunctionId, FunctionRequest};

/// A PCI function of the device (PRM `function_id`, `embedded_cpu_function`).
///
/// ```
/// use mlx5_mkey::command::Function;
/// assert_eq!(Function::OWN, Function { number: 0, embedded_cpu: false });
/// // On BlueField's Arm side; the initialization segment tells.
/// let arm = Function { embedded_cpu: true, ..Function::OWN };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Function {
    /// The PCI function's number; 0 for the function that owns the command queue.
    pub number: u16,
    /// Whether the PCI function belongs to the cores on the device itself (BlueField's Arm cores).
    pub embedded_cpu: bool,
}

impl Function {
    /// The PCI function that owns the command queue to which the command is sent. For a function of the Arm
    /// cores, set `embedded_cpu` as well.
    pub const OWN: Self = Self { number: 0, embedded_cpu: false };

    pub(super) fn request(self, opcode: Opcode, op_mod: u16) -> FunctionRequest {
        let id =
            FunctionId::new().with_function_id(self.number).with_embedded_cpu_function(self.embedded_cpu);
        let mut request = FunctionRequest { header: RequestHeader::new(opcode), ..Default::default() };
        request.header.op_mod.set(op_mod);
        request.function.set(id.into_bits());
        request
    }
}

macro_rules! function_commands {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::command::{Command, Function, ", stringify!($name), "};")]
        #[doc = concat!("let mut mailbox = [0; ", stringify!($name), "::INPUT];")]
        #[doc = "let function = Function { number: 7, embedded_cpu: true };"]
        #[doc = concat!("let request = ", stringify!($name), "(function).encode(&mut mailbox)?;")]
        /// assert_eq!(request[8..12], [0x80, 0, 0, 7]);
        /// # Ok::<(), mlx5_mkey::error::CommandError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(pub Function);

        impl Command for $name {
            const OPCODE: Opcode = Opcode::$opcode;
            type Input = FunctionRequest;
            type Output = NumberReply;
            type Reply = ();

            fn write(&self, input: &mut FunctionRequest) {
                *input = self.0.request(Self::OPCODE, 0);
            }

            fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
                Ok(())
            }
        }
    )+ };
}

function_commands! {
    /// The command that enables a PCI function. It is the first command to a device (ENABLE_HCA).
    EnableHca = ENABLE_HCA;
    /// The command that disables a PCI function. It is the last command to a device (DISABLE_HCA).
    DisableHca = DISABLE_HCA;
}

macro_rules! plain_commands {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::command::{Command, ", stringify!($name), "};")]
        #[doc = concat!("let mut mailbox = [0; ", stringify!($name), "::INPUT];")]
        #[doc = concat!("assert_eq!(", stringify!($name), ".encode(&mut mailbox)?.len(), 16);")]
        /// # Ok::<(), mlx5_mkey::error::CommandError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name;

        impl Command for $name {
            const OPCODE: Opcode = Opcode::$opcode;
            type Input = NumberRequest;
            type Output = NumberReply;
            type Reply = ();

            fn write(&self, input: &mut NumberRequest) {
                input.header = RequestHeader::new(Self::OPCODE);
            }

            fn read(&self, _: &NumberReply) -> Result<(), CommandError> {
                Ok(())
            }
        }
    )+ };
}

plain_commands! {
    /// The command that starts the device, so that objects can be created (INIT_HCA).
    InitHca = INIT_HCA;
    /// The command that stops the device gracefully and destroys all objects (TEARDOWN_HCA, profile 0).
    TeardownHca = TEARDOWN_HCA;
}
