//! Tools for cargo that do not come with a toolchain. Everybody runs the same version of each.

use crate::run::{answer, cargo, check, program, root};
use std::path::PathBuf;

/// A tool: its name in the registry, and its version.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    name: &'static str,
    version: &'static str,
}

/// The tool that checks licences, bans, sources and advisories of all dependencies.
pub const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
/// The tool that finds unused dependencies.
pub const SHEAR: Tool = Tool { name: "cargo-shear", version: "1.13.3" };
/// The tool that lists mutants: small changes of a program that its tests should notice.
pub const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0" };

impl Tool {
    /// Returns the path of the tool: in `PATH` if the version there is right, else in `target/tools`, where a
    /// missing tool is built.
    pub fn find(self) -> Result<PathBuf, String> {
        let home = root().join("target/tools");
        let own = home.join("bin").join(self.name);
        let says = |path: &str, words: &[&str]| {
            answer(program(path, words))
                .is_ok_and(|output| output.split_whitespace().any(|word| word == self.version))
        };
        // Some tools expect the name of the subcommand first, as cargo passes it.
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
