//! Programs for cargo that are no part of a toolchain: one version of each, for all who run a task.

use crate::run::{answer, cargo, check, program, root};
use std::path::PathBuf;

/// A program, as the registry calls it, and its version.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Licences, bans, sources and advisories of the crates that are built in.
pub const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
/// Dependencies that nothing uses.
pub const SHEAR: Tool = Tool { name: "cargo-shear", version: "1.13.3" };
/// Lists small changes of a program that its tests should notice.
pub const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0" };

impl Tool {
    /// Returns where it is: in this version on the path, else in `target/tools`, where it is built first if need be.
    ///
    /// # Errors
    /// It cannot be built, in a sentence.
    pub fn find(self) -> Result<PathBuf, String> {
        let home = root().join("target/tools");
        let own = home.join("bin").join(self.name);
        let says = |path: &str, words: &[&str]| {
            answer(program(path, words))
                .is_ok_and(|said| said.split_whitespace().any(|word| word == self.version))
        };
        // Some want to be called as cargo calls them.
        let task = self.name.trim_start_matches("cargo-");
        let is_version = |path: &str| says(path, &["--version"]) || says(path, &[task, "--version"]);
        if is_version(self.name) {
            return Ok(self.name.into());
        }
        if !is_version(&own.to_string_lossy()) {
            let mut install =
                cargo(&["install", "--quiet", "--locked", "--version", self.version, self.name, "--root"]);
            install.arg(&home);
            check(install)?;
        }
        Ok(own)
    }
}
