//! A bare-metal image, without an operating system, that runs the project's test scenarios
//! (`hil-tests/scenarios`). The software device takes the place of the hardware; its rings are in memory as a
//! real device's would be. `cargo xtask hil --board qemu-firmware` runs the image. The programs in `bin` link
//! this library, each for one memory map of `linker/`.
//!
//! The output is defmt frames over semihosting: log messages, and the lines of the protocol that `cargo xtask
//! hil` reads. The exit status is 0 if no scenario failed, 1 if one did; `image::status` has the others.
#![cfg_attr(target_os = "none", no_std)]
// On a host only the modules that need no machine are used, by their unit tests.
#![cfg_attr(not(target_os = "none"), allow(dead_code))]

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
