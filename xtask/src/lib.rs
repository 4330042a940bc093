//! Code that the programs behind `cargo xtask` share: it runs other programs, builds for this machine and for
//! the Arm cores, fetches Debian packages, and escapes text for HTML.

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
