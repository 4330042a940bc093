//! Passes the linker scripts of the firmware image to the linker.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=link.x");
    // The linker finds `defmt.x` in a folder that the build script of the crate defmt has named.
    for argument in [&format!("--script={folder}/link.x"), "--script=defmt.x", "--gc-sections"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rustc-env=DEFMT_LOG=info");
}
