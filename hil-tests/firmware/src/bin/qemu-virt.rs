//! The image for QEMU's machine `virt`: `linker/qemu-virt.x`.
#![cfg_attr(target_os = "none", no_std, no_main)]

// With it come the first instruction and everything behind it.
use hil_firmware as _;

#[cfg(not(target_os = "none"))]
fn main() {}
