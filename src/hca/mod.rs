//! Uses a device on bare metal, without a driver: accesses its registers, sends commands through its command
//! queue, and starts and stops the device.
//!
//! If the operating system has a driver for the device, the driver owns the command queue, and the module
//! `devx` (a layer over libmlx5) sends commands through the driver. On bare metal there is no driver. There,
//! [`CommandQueue`] sends a [`Command`](crate::command::Command) to the device through memory and registers
//! that the caller provides. [`CommandQueue::start`] starts the device from reset. Afterwards commands can
//! create objects on the device. This module allocates nothing, sends one command at a time, and limits the
//! time of every wait.
//!
//! ```
//! use embedded_hal::delay::DelayNs;
//! use mlx5_mkey::command::{AllocPd, AllocUar, Pdn, UarPage};
//! use mlx5_mkey::error::CommandQueueError;
//! use mlx5_mkey::hca::{CommandMemory, CommandQueue, CommandQueueConfig, PageRange, Registers};
//!
//! /// Starts a device, and allocates a protection domain and a UAR page.
//! fn bring_up(
//!     registers: impl Registers,                     // on a device, `hca::MappedRegisters`
//!     memory: &'static mut CommandMemory<16>,        // which the device reaches
//!     address: u64,                                  // at this address
//!     pages: &mut PageRange<'_>,                     // for its firmware
//!     delay: &mut impl DelayNs,
//! ) -> Result<(Pdn, UarPage), CommandQueueError> {
//!     let config = CommandQueueConfig::new(address);
//!     let mut commands = CommandQueue::new(registers, memory, config, delay)?;
//!     commands.start(pages, delay)?;
//!     Ok((commands.execute(&AllocPd, delay)?, commands.execute(&AllocUar, delay)?))
//! }
//! ```

pub(crate) mod error;
mod memory;
mod queue;
mod registers;
mod start;

pub use memory::CommandMemory;
pub use queue::{CommandQueue, CommandQueueConfig};
pub use registers::{MappedRegisters, Register, Registers};
pub use start::{PageRange, PageSource};
