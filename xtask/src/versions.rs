//! `cargo xtask versions`: builds the library with the newest and with the oldest versions of dependencies
//! that its manifest allows.

use crate::package;
use std::fs;
use std::path::Path;
use xtask::run::{self, At, cargo, check};

pub(crate) const HELP: &str = "\
cargo xtask versions

Builds copies of the library with all features, below target/versions: one with the newest versions
of the dependencies, one with the oldest versions that Cargo.toml allows. A warning is an error.
Needs a registry, or the crates of an earlier run.

  --help                this text
";

/// Builds with the newest versions of the dependencies, then with the oldest.
pub(crate) fn run() -> Result<(), String> {
    let target = run::itself()?.ancestors().nth(2).ok_or("no target directory")?;
    let place = target.join("versions");
    let packed = package::pack(target)?;
    for name in ["newest", "oldest"] {
        let folder = place.join(name);
        run::empty(&folder)?;
        package::unpack(&packed.file, &folder)?;
        let copy = folder.join(&packed.name);
        let manifest = copy.join("Cargo.toml");
        let text = of_the_library(&fs::read_to_string(&manifest).at(&folder)?);
        fs::write(&manifest, &text).at(&folder)?;
        // The package contains the repository's lock file, which fixes the versions of dependencies.
        let lock = copy.join("Cargo.lock");
        if lock.exists() {
            fs::remove_file(lock).at(&folder)?;
        }
        in_copy(&copy, target, &["generate-lockfile", "--quiet"])?;
        if name == "oldest" {
            for (dependency, version) in oldest(&text) {
                in_copy(
                    &copy,
                    target,
                    &["update", "--quiet", "--package", &dependency, "--precise", &version],
                )?;
            }
        }
        in_copy(&copy, target, &["check", "--quiet", "--lib", "--all-features"])?;
    }
    Ok(())
}

/// Calls cargo in a copy of the library.
fn in_copy(copy: &Path, target: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = cargo(arguments);
    command.current_dir(copy).env("CARGO_TARGET_DIR", target.join("versions/target"));
    command.env("RUSTFLAGS", "-Dwarnings");
    check(command)
}

/// Returns the manifest of a package without development dependencies and profiles: only the sections that
/// users of the library see. The package becomes a workspace of its own.
fn of_the_library(manifest: &str) -> String {
    let is_seen =
        |section: &&str| !["dev-dependencies", "profile"].iter().any(|other| section.starts_with(other));
    let sections = manifest.split("\n[").filter(is_seen).collect::<Vec<_>>();
    format!("{}\n\n[workspace]\n", sections.join("\n["))
}

/// Returns each dependency of a manifest, with the oldest version that the manifest allows.
fn oldest(manifest: &str) -> Vec<(String, String)> {
    let of = |section: &str| {
        let (name, rest) = section.strip_prefix("dependencies.")?.split_once(']')?;
        let version = rest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))?;
        let missing = 2_usize.saturating_sub(version.matches('.').count());
        Some((name.to_owned(), format!("{version}{}", ".0".repeat(missing))))
    };
    manifest.split("\n[").filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"some\"\n\n[profile.dev]\ndebug = 1\n\n\
                            [dependencies.one]\nversion = \"1\"\n\n\
                            [dependencies.other]\nversion = \"0.9.1\"\noptional = true\n\n\
                            [dev-dependencies.third]\nversion = \"3\"";

    #[test]
    fn what_tests_need_is_left_out() {
        let library = of_the_library(MANIFEST);
        assert!(library.contains("[package]") && library.contains("[dependencies.one]"), "{library}");
        assert!(
            library.ends_with("[workspace]\n") && !library.contains("third") && !library.contains("profile")
        );
    }

    #[test]
    fn the_oldest_version_of_a_dependency_is_what_its_requirement_begins_with() {
        let found = oldest(&of_the_library(MANIFEST));
        let expected = [("one", "1.0.0"), ("other", "0.9.1")];
        assert!(
            found.iter().map(|(name, version)| (name.as_str(), version.as_str())).eq(expected),
            "{found:?}"
        );
    }
}
