//! The scenarios as a bare-metal image: no operating system, the software device as the device, its rings in memory as a
//! real device's would be. `cargo xtask hil --board qemu-firmware` runs it. The
//! programs in `bin` are this library linked for a memory map of `linker/` each.
//!
//! Output is defmt frames over semihosting: log, and the lines of the protocol that the runner reads. The exit status is 0
//! where no scenario failed, 1 where one did, and as `image::status` has it otherwise.
#![cfg_attr(target_os = "none", no_std)]
// Built for a system it is nothing but the tests of the modules that need no machine.
#![cfg_attr(not(target_os = "none"), allow(dead_code))]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(target_os = "none")]
extern crate alloc;

mod exception;
mod paging;

#[cfg(target_os = "none")]
mod bench;
#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod image;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod mmu;
#[cfg(target_os = "none")]
mod provoke;

#[cfg(target_os = "none")]
use image::{exception, start};
