//! What the programs behind `cargo xtask` share: running other programs, building for this machine and for the Arm cores,
//! Debian packages, text in HTML.

#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod build;
pub mod debian;
pub mod emulate;
pub mod fuzz_targets;
pub mod host;
pub mod html;
pub mod qemu_user;
pub mod run;
pub mod toolchain;
pub mod tools;
