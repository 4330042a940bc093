//! Runs programs of Debian packages that were unpacked into a folder instead of installed.

use super::arch::Arch;
use std::path::Path;

/// Returns the beginning of the command line of a program below `root`. The unpacked dynamic linker starts
/// the program with the unpacked libraries.
pub(crate) fn words(root: &Path, program: &str) -> Vec<String> {
    let own = if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::X86 };
    // Older releases of Debian have the linker outside of `usr`.
    let loaders = ["usr", "."].map(|place| root.join(place).join(own.loader()));
    let loader = loaders.iter().find(|path| path.exists()).unwrap_or(&loaders[0]);
    let libraries =
        ["usr/lib", "lib"].map(|place| root.join(place).join(own.triplet()).display().to_string());
    let program = root.join("usr/bin").join(program);
    vec![
        loader.display().to_string(),
        "--library-path".into(),
        libraries.join(":"),
        program.display().to_string(),
    ]
}
