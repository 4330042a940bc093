//! The kernel modules of a machine, in the order in which they are loaded.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns names and contents of modules and their dependencies. Each module comes after its dependencies.
pub(super) fn in_order(folder: &Path, wanted: &[&str]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = BTreeMap::new();
    find(folder, &mut files).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut ordered = Vec::new();
    // Modules whose dependencies are being collected. The list breaks circles.
    let mut open = Vec::new();
    wanted.iter().try_for_each(|name| add(name, &files, &mut open, &mut ordered))?;
    Ok(ordered)
}

fn add(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    open: &mut Vec<String>,
    ordered: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), String> {
    // File names contain `-` or `_`. Names of dependencies contain only `_`.
    let name = name.replace('-', "_");
    if open.contains(&name) || ordered.iter().any(|(there, _)| *there == name) {
        return Ok(());
    }
    let path = files.get(&name).ok_or_else(|| format!("the kernel has no module {name}"))?;
    let module = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    open.push(name.clone());
    for other in dependencies(&module) {
        add(&other, files, open, ordered)?;
    }
    ordered.push((name, module));
    Ok(())
}

fn find(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            find(&path, files)?;
        } else if let Some(stem) =
            path.file_stem().filter(|_| path.extension().is_some_and(|end| end == "ko"))
        {
            files.insert(stem.to_string_lossy().replace('-', "_"), path);
        }
    }
    Ok(())
}

/// Returns the dependencies of a module, from the line `depends=` of its `.modinfo` section. A zero byte ends
/// each line there.
fn dependencies(module: &[u8]) -> Vec<String> {
    let line = module.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(String::from).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
        ] {
            fs::write(folder.join(name), info).unwrap();
        }
        let names = |wanted: &[&str]| {
            in_order(folder, wanted).map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["e", "a"]).unwrap(), ["e", "d", "b_c", "a"]);
        assert!(names(&["f"]).is_err());
    }
}
