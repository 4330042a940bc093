//! A device without a driver: its registers, its command queue, and how it is started and stopped.
//!
//! Where a system has a driver for the device, that has the command queue, and the shim, `devx`, goes through
//! it. On a bare machine nobody has it: [`CommandQueue`] carries a [`Command`](crate::command::Command) over
//! memory and a window of registers that the caller gives, and [`CommandQueue::start`] takes the device from
//! reset to where objects can be made. Nothing is allocated, commands are carried one at a time, and every
//! wait ends.
//!
//! ```
//! use embedded_hal::delay::DelayNs;
//! use mlx5_mkey::command::{AllocPd, AllocUar, Pdn, UarPage};
//! use mlx5_mkey::error::CommandQueueError;
//! use mlx5_mkey::hca::{CommandMemory, CommandQueue, CommandQueueConfig, PageRange, Registers};
//!
//! /// From reset to a protection domain and a UAR page.
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

mod memory;
mod queue;
mod registers;
mod start;

pub use memory::CommandMemory;
pub use queue::{CommandQueue, CommandQueueConfig};
pub use registers::{MappedRegisters, Register, Registers};
pub use start::{PageRange, PageSource};
