//! The kernel modules of a machine, in the order in which they are loaded.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use xtask::run::{At, program};

/// The programs that decompress modules, by the last part of a module's file name.
const DECOMPRESSORS: &[(&str, &str)] = &[("xz", "xz"), ("zst", "zstd"), ("gz", "gzip")];

/// The file of each module, by its name. A module without a file is a part of the kernel.
type Files = BTreeMap<String, Option<PathBuf>>;

/// Returns names and contents of the wanted modules and of their dependencies. Each module follows its
/// dependencies.
pub(super) fn in_order(folder: &Path, wanted: &[&str]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = BTreeMap::new();
    find(folder, &mut files).at(folder)?;
    // `modules.builtin` lists the modules that are part of the kernel itself. A kernel without this file is
    // taken for one without such modules.
    let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    for path in built_in.lines() {
        let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
        files.entry(stem).or_insert(None);
    }
    let mut ordered = Vec::new();
    // Modules whose dependencies are being collected. The list breaks circles of dependencies.
    let mut open = Vec::new();
    wanted.iter().try_for_each(|name| add(name, &files, &mut open, &mut ordered))?;
    Ok(ordered)
}

fn add(
    name: &str,
    files: &Files,
    open: &mut Vec<String>,
    ordered: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), String> {
    // File names contain `-` or `_`. Names of dependencies contain only `_`.
    let name = name.replace('-', "_");
    if open.contains(&name) || ordered.iter().any(|(there, _)| *there == name) {
        return Ok(());
    }
    let path = files.get(&name).ok_or_else(|| format!("the kernel has no module {name}"))?;
    let Some(path) = path else { return Ok(()) };
    let module = read(path)?;
    open.push(name.clone());
    for other in dependencies(&module) {
        add(&other, files, open, ordered)?;
    }
    ordered.push((name, module));
    Ok(())
}

fn find(folder: &Path, files: &mut Files) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            find(&path, files)?;
        } else if let Some((stem, end)) = entry.file_name().to_string_lossy().split_once(".ko")
            && (end.is_empty() || DECOMPRESSORS.iter().any(|(known, _)| end.strip_prefix('.') == Some(known)))
        {
            files.insert(stem.replace('-', "_"), Some(path));
        }
    }
    Ok(())
}

/// Returns the content of a module, decompressed.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let end = path.extension().unwrap_or_default();
    let Some((_, name)) = DECOMPRESSORS.iter().find(|(known, _)| end == *known) else {
        return fs::read(path).at(path);
    };
    let mut decompress = program(name, &["--decompress", "--stdout"]);
    let done = decompress.arg(path).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let done = done.map_err(|error| format!("{name} cannot be run: {error}"))?;
    if done.status.success() { Ok(done.stdout) } else { Err(format!("{}: {name} failed", path.display())) }
}

/// Returns the dependencies of a module, from the line `depends=` of its `.modinfo` section. A zero byte ends
/// each line there.
fn dependencies(module: &[u8]) -> Vec<String> {
    let line = module.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_depends_on_comes_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir(folder.join("net")).unwrap();
        for (name, info) in [
            ("net/a.ko", "\0license=GPL\0depends=b-c,d\0"),
            ("b-c.ko", "\0depends=d,a\0"),
            ("d.ko", "\0depends=\0"),
            ("e.ko", "no line at all"),
            ("f.txt", ""),
            ("g.ko.xz", "\0depends=d\0"),
        ] {
            let path = folder.join(name);
            fs::write(path.with_extension(""), info).unwrap();
            match path.extension().is_some_and(|end| end == "xz") {
                true => {
                    xtask::run::check(program("xz", &[&path.with_extension("").to_string_lossy()])).unwrap()
                }
                false => fs::rename(path.with_extension(""), path).unwrap(),
            }
        }
        let names = |wanted: &[&str]| {
            in_order(folder, wanted).map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["e", "a"]).unwrap(), ["e", "d", "b_c", "a"]);
        fs::write(folder.join("modules.builtin"), "kernel/drivers/h-i.ko\n").unwrap();
        assert_eq!(names(&["h_i", "d"]).unwrap(), ["d"], "a part of the kernel");
        assert_eq!(names(&["g"]).unwrap(), ["d", "g"], "a compressed module");
        assert!(names(&["f"]).is_err());
    }
}
