//! The program of the image for a BlueField, whose memory map is `linker/bluefield.x`.
#![cfg_attr(target_os = "none", no_std, no_main)]

// The whole program is in the library `hil_firmware`, from the first instruction on.
use hil_firmware as _;

#[cfg(not(target_os = "none"))]
fn main() {}
