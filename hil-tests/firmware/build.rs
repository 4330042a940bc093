//! Passes the linker scripts of the images to the linker: a memory map for each program, and the script of
//! the sections.

use std::env;

/// The names of the programs. Each has a memory map of the same name in `linker/`.
const MAPS: [&str; 2] = ["qemu-virt", "bluefield"];

fn main() {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let scripts = format!("{}/../../linker", env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    for map in MAPS {
        println!("cargo::rerun-if-changed={scripts}/{map}.x");
        println!("cargo::rustc-link-arg-bin=hil-firmware-{map}=--script={scripts}/{map}.x");
    }
    println!("cargo::rerun-if-changed={scripts}/sections.x");
    // The linker finds `defmt.x` in a folder that the build script of the crate defmt has named.
    for argument in [
        &format!("--script={scripts}/sections.x"),
        "--script=defmt.x",
        "--gc-sections",
        "-zmax-page-size=4096",
    ] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    // The image contains log messages of level info and above only.
    println!("cargo::rustc-env=DEFMT_LOG=info");
}
