//! `cargo xtask tidy`: the rules of the house that no compiler checks.

mod circles;
mod examples;
mod source;

use circles::Files;
use source::{code, is_letter, is_test, shipped};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use xtask::run::{self, root};

/// Each module of the library and the modules that it may know. An import that is not listed runs against the flow.
const MODULES: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("fmt", &[]),
    ("wire", &["fmt", "types"]),
    ("error", &["types", "wire"]),
    ("mkey", &["error", "types", "wire"]),
    ("wqe", &["error", "types", "wire", "mkey"]),
    ("queue", &["fmt", "error", "types", "wire", "mkey", "wqe"]),
    ("inspect", &["fmt", "error", "types", "wire", "mkey"]),
    ("command", &["fmt", "error", "types", "wire", "mkey"]),
    ("hca", &["fmt", "error", "types", "wire", "queue", "command"]),
    ("devx", &["error", "types", "wire", "mkey", "wqe", "queue", "command"]),
    ("capi", &["error", "types", "wire", "mkey", "wqe", "queue", "inspect", "command", "devx"]),
    ("guide", &[]),
];

/// The files that may say `unsafe`: memory shared with the device, its registers, and the order between them; and what C hands over.
const UNSAFE: &[&str] = &[
    "src/capi/config.rs",
    "src/capi/cq.rs",
    "src/capi/dek_cache.rs",
    "src/capi/device.rs",
    "src/capi/error.rs",
    "src/capi/events.rs",
    "src/capi/group.rs",
    "src/capi/inspect.rs",
    "src/capi/list.rs",
    "src/capi/list_mkey.rs",
    "src/capi/memory.rs",
    "src/capi/pool.rs",
    "src/capi/post.rs",
    "src/capi/psvs.rs",
    "src/capi/qp.rs",
    "src/capi/store.rs",
    "src/capi/text.rs",
    "src/capi/values.rs",
    "src/capi/window.rs",
    "src/devx/adopt.rs",
    "src/devx/buffer.rs",
    "src/devx/cq.rs",
    "src/devx/execute.rs",
    "src/devx/memory_region.rs",
    "src/devx/mod.rs",
    "src/devx/protection_domain.rs",
    "src/devx/queue_pair.rs",
    "src/devx/sys/address.rs",
    "src/devx/sys/adopt.rs",
    "src/devx/sys/allocation.rs",
    "src/devx/sys/context.rs",
    "src/devx/sys/copy.rs",
    "src/devx/sys/dma.rs",
    "src/devx/sys/events.rs",
    "src/devx/sys/library.rs",
    "src/devx/sys/memory.rs",
    "src/devx/sys/object.rs",
    "src/devx/sys/queries.rs",
    "src/devx/sys/uar.rs",
    "src/devx/sys/wait.rs",
    "src/devx/umem.rs",
    "src/hca/registers.rs",
    "src/queue/barrier.rs",
    "src/queue/completion_queue/tests/events.rs",
    "src/queue/producer.rs",
    "src/queue/registers.rs",
    "src/queue/registers/tests.rs",
    "src/queue/ring.rs",
    "hil-tests/copies/src/main.rs",
    "hil-tests/benches/src/bin/bench/libmlx5.rs",
    "hil-tests/benches/src/copy.rs",
    "hil-tests/benches/src/floor.rs",
    "hil-tests/benches/src/publish.rs",
    "hil-tests/examples/async_completions.rs",
    "hil-tests/examples/minimal/src/main.rs",
    "hil-tests/libmlx5/src/completions.rs",
    "hil-tests/libmlx5/src/lib.rs",
    "hil-tests/src/board/devx.rs",
    "hil-tests/src/differential/ffi.rs",
    "hil-tests/src/vectors/blue_flame.rs",
    "hil-tests/firmware/src/bench.rs",
    "hil-tests/firmware/src/boot.rs",
    "hil-tests/firmware/src/memory.rs",
    "hil-tests/firmware/src/mmu.rs",
    "hil-tests/firmware/src/provoke.rs",
    "hil-tests/freestanding/src/lib.rs",
    "hil-tests/fuzz/src/coverage.rs",
    "hil-tests/fuzz/src/main.rs",
    "hil-tests/fuzz/src/memory.rs",
    "hil-tests/fuzz/tests/exhaustive.rs",
    "hil-tests/scenarios/src/board/bare.rs",
    "hil-tests/scenarios/src/board/end.rs",
    "hil-tests/scenarios/src/board/host_memory.rs",
    "hil-tests/scenarios/src/board/softdev.rs",
    "hil-tests/emulator/verbs/src/ground/allocator.rs",
    "hil-tests/emulator/verbs/src/process/fuzz.rs",
    "hil-tests/emulator/verbs/src/process/interpose/descriptors.rs",
    "hil-tests/emulator/verbs/src/process/interpose/discovery.rs",
    "hil-tests/emulator/verbs/src/process/interpose/files.rs",
    "hil-tests/emulator/verbs/src/process/interpose/locks.rs",
    "hil-tests/emulator/verbs/src/process/interpose/mappings.rs",
    "hil-tests/emulator/verbs/src/process/interpose/next.rs",
    "hil-tests/emulator/verbs/src/process/interpose/paths.rs",
    "hil-tests/emulator/verbs/src/process/interpose/reads.rs",
    "hil-tests/emulator/verbs/src/ground/pipe.rs",
    "hil-tests/emulator/verbs/src/process/probe.rs",
    "hil-tests/emulator/verbs/src/ground/process_memory.rs",
    "hil-tests/emulator/verbs/src/process/life.rs",
    "hil-tests/emulator/verbs/tests/devx/keeping.rs",
    "hil-tests/emulator/verbs/src/ground/sys.rs",
    "hil-tests/emulator/verbs/tests/devx/bare.rs",
    "hil-tests/emulator/verbs/tests/devx/dmabuf.rs",
    "hil-tests/emulator/verbs/tests/devx/umem.rs",
    "hil-tests/emulator/verbs/tests/devx/verbs.rs",
    "hil-tests/emulator/verbs/tests/devx/verbs_qp.rs",
    "hil-tests/emulator/verbs/tests/preloaded/paths.rs",
    "hil-tests/emulator/verbs/tests/preloaded/verbs.rs",
];

/// The files that may name a place under the folder for temporary files. Others have one made that nobody can guess (`tempfile`).
const PREDICTABLE: &[&str] = &[
    // Where programs of one user meet; refused if it is another user's.
    "hil-tests/emulator/verbs/src/ground/settings.rs",
    // This file names what it looks for.
    "xtask/src/tidy.rs",
];

/// What is at the top, dotfiles apart.
const TOP: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "hil-tests",
    "linker",
    "rustfmt.toml",
    "src",
    "target",
    "targets",
    "xtask",
];

pub(crate) const HELP: &str = "\
cargo xtask tidy

Checks the rules of the house that no compiler checks: which module may know which, that no files
import each other in a circle, where unsafe may be, what is at the top, that every public type has
a defmt::Format, that public modules and types that users construct have an example, and that no file
names a place under the folder for temporary files.
";

/// Checks all rules and prints what breaks them.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if let Some(status) = run::no_arguments(arguments, HELP) {
        return status;
    }
    match check(&mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => run::failed(&what),
    }
}

/// Checks all rules.
///
/// # Errors
/// How many places break them; each is printed.
pub(crate) fn check(out: &mut dyn Write) -> Result<(), String> {
    let faults = faults().map_err(|error| error.to_string())?;
    for fault in &faults {
        writeln!(out, "{fault}").map_err(|error| error.to_string())?;
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(format!("{} places break the rules of the house", faults.len()))
    }
}

fn faults() -> io::Result<Vec<String>> {
    let root = root();
    let mut faults = Vec::new();
    for entry in fs::read_dir(&root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !TOP.contains(&name.as_str()) {
            faults.push(format!("{name}: does not belong at the top"));
        }
    }
    let mut files: Vec<PathBuf> =
        TOP.iter().filter(|name| name.ends_with(".md")).map(|name| root.join(name)).collect();
    for folder in ["src", "hil-tests", "xtask"] {
        files.extend(run::files(&root.join(folder))?);
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs" || extension == "md"));
    files.sort();
    let mut texts = Vec::new();
    for path in files {
        let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        texts.push((name, fs::read_to_string(&path)?));
    }
    for (name, text) in &texts {
        if !name.ends_with(".rs") {
            continue;
        }
        check_imports(name, text, &mut faults);
        check_unsafe(name, text, &mut faults);
        check_formats(name, text, &mut faults);
        check_folders(name, text, &mut faults);
    }
    examples::check(&texts, &mut faults);
    faults.extend(Files::new(texts.iter().map(|(name, text)| (&**name, &**text))).circles());
    Ok(faults)
}

fn check_imports(name: &str, text: &str, faults: &mut Vec<String>) {
    // Tests may use what they like.
    let Some(inside) = name.strip_prefix("src/").filter(|inside| !is_test(inside)) else { return };
    let module = inside.split(['/', '.']).next().unwrap_or_default();
    if module == "lib" {
        return;
    }
    let Some((_, known)) = MODULES.iter().find(|(name, _)| *name == module) else {
        faults.push(format!("{name}: no such module in xtask/src/tidy.rs"));
        return;
    };
    let depth = inside.strip_suffix("/mod.rs").unwrap_or(inside).split('/').count();
    for (number, line) in shipped(text) {
        let mut named: BTreeSet<&str> =
            line.match_indices("crate::").filter_map(|(at, path)| word(line, at + path.len())).collect();
        // As many `super` as there are modules around lead to the root.
        let mut outside = line;
        while let Some((before, rest)) = outside.split_once("super::") {
            let inner = rest.trim_start_matches("super::");
            let count = 1 + (rest.len() - inner.len()) / "super::".len();
            if count >= depth && !before.ends_with(is_letter) {
                named.extend(word(inner, 0));
            }
            outside = inner;
        }
        for other in named {
            if other != module && !known.contains(&other) {
                faults.push(format!("{name}:{number}: {module} must not know {other}"));
            }
        }
    }
}

/// Returns the word that begins here.
fn word(line: &str, at: usize) -> Option<&str> {
    line.get(at..)?.split(|c| !is_letter(c)).next()
}

fn check_unsafe(name: &str, text: &str, faults: &mut Vec<String>) {
    if UNSAFE.contains(&name) || name == "xtask/src/tidy.rs" {
        return;
    }
    for (number, line) in code(text) {
        // The compiler denies unsafe code wherever this lint is not lifted.
        if line.contains("allow(unsafe_code)") || line.contains("expect(unsafe_code)") {
            faults.push(format!("{name}:{number}: unsafe does not belong here"));
        }
    }
}

/// A folder whose name can be guessed may be there already, and be another user's.
fn check_folders(name: &str, text: &str, faults: &mut Vec<String>) {
    if PREDICTABLE.contains(&name) {
        return;
    }
    for (number, line) in code(text) {
        if line.contains("temp_dir()") || line.contains("/tmp/") {
            faults.push(format!("{name}:{number}: a folder that can be guessed; tempfile makes one"));
        }
    }
}

/// Every public type of the library has a `defmt::Format`, by attribute or by one of the ways below.
fn check_formats(name: &str, text: &str, faults: &mut Vec<String>) {
    // The shim and the functions for C are for programs with an operating system, which print.
    if !name.starts_with("src/") || ["src/devx/", "src/capi/"].iter().any(|folder| name.starts_with(folder)) {
        return;
    }
    let mut attributed = false;
    for (number, line) in shipped(text) {
        let declared = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "));
        if let Some(rest) = declared {
            let type_name = rest.split(|c| !is_letter(c)).next().unwrap_or_default();
            let elsewhere = text.match_indices(type_name).any(|(at, _)| {
                let before = text.get(..at).unwrap_or_default();
                before.ends_with("defmt::Format for ")
                    || ["defmt_as_bytes!(", "defmt_as_text!(", "defmt_redacted!(", "format_counters!("]
                        .iter()
                        .any(|opening| {
                            before.rfind(opening).is_some_and(|start| !before[start..].contains(';'))
                        })
            });
            if !attributed && !elsewhere {
                faults.push(format!("{name}:{number}: {type_name} has no defmt::Format"));
            }
        }
        let attribute = line.starts_with("#[") || line.starts_with(' ') || line.starts_with(')');
        attributed = attribute && (attributed || line.contains("defmt"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(name: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check_imports(name, text, &mut faults);
        faults
    }

    #[test]
    fn folders_that_can_be_guessed_are_refused() {
        let found = |name: &str, text: &str| {
            let mut faults = Vec::new();
            check_folders(name, text, &mut faults);
            faults.len()
        };
        let guessed = "    let path = std::env::temp_dir().join(name);";
        assert_eq!(found("xtask/src/run.rs", guessed), 1);
        assert_eq!(found("hil-tests/src/lib.rs", "    let path = \"/tmp/volume\";"), 1);
        assert_eq!(found("hil-tests/emulator/verbs/src/ground/settings.rs", guessed), 0);
        assert_eq!(found("xtask/src/run.rs", "    let folder = tempfile::tempdir()?;"), 0);
    }

    #[test]
    fn imports_follow_the_flow() {
        for (name, text) in [
            ("src/mkey/layout.rs", "use crate::wire::klm;"),
            ("src/mkey/layout.rs", "use super::Access;\n// use crate::queue::Ring;"),
            ("src/inspect/check/bsf.rs", "use super::super::umr::Umr;"),
            ("src/inspect/check/mod.rs", "use super::umr::Umr;"),
            ("src/mkey/tests/all.rs", "use crate::queue::Ring;"),
            ("src/mkey/layout.rs", "#[cfg(test)]\nmod tests {\n    use crate::queue::Ring;"),
        ] {
            assert_eq!(imports(name, text), [""; 0], "{name}: {text}");
        }
        for (name, text) in [
            ("src/mkey/layout.rs", "use crate::queue::Ring;"),
            ("src/mkey/layout.rs", "use super::super::queue::Ring;"),
            ("src/mkey/mod.rs", "use super::queue::Ring;"),
            ("src/types.rs", "    super::queue::run();"),
            ("src/wire/prm/mod.rs", "use super::super::queue::Ring;"),
            ("src/wire/prm/qp.rs", "pub(crate) use super::super::super::queue::Ring;"),
        ] {
            let faults = imports(name, text);
            assert!(
                matches!(&faults[..], [one] if one.ends_with("must not know queue")),
                "{name}: {faults:?}"
            );
        }
        assert_eq!(imports("src/unknown.rs", ""), ["src/unknown.rs: no such module in xtask/src/tidy.rs"]);
    }
}
