//! Debian packages of the emulator and of the library for C, a list of the crates in each (CycloneDX), and
//! checksums. All are written to `target/dist`.

// Indexing a JSON value never panics: a missing index gives null.
#![allow(clippy::indexing_slicing)]

use super::files::{Target, put, put_emulator, stand_in};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::run::{self, At, answer, cargo, check, program, root};
use xtask::{debian, host};

const SUMS: &str = "SHA256SUMS";
/// The SONAME of the library for C.
const SONAME: &str = "libmlx5_mkey.so.1";
/// The maintainer of the packages, if the variable `DEBEMAIL` names none.
const NOBODY: &str = "nobody <nobody@localhost>";

/// The Debian packages that `try_out` installs in a new system before the packages of this project.
const CHECKED_WITH: &[&str] = &["ibverbs-providers", "ibverbs-utils", "gcc", "libc6-dev", "pkg-config"];

/// A C program that compiles only if header, library and the file for pkg-config are installed.
const PROGRAM: &str = "\
#include <mlx5_mkey.h>
#include <stdio.h>

int main(void)
{
    mlx5mk_list_destroy(NULL);
    puts(\"the library is there\");
    return 0;
}
";

/// A Debian package: fields of its control file.
struct Package<'a> {
    name: &'a str,
    section: &'a str,
    depends: &'a str,
    description: &'a str,
}

const EMULATOR: Package<'_> = Package {
    name: "mlx5-emulate",
    section: "net",
    depends: "libc6 (>= 2.36), ibverbs-providers",
    description: "software mlx5 device for verbs programs\n mlx5-emulate COMMAND runs a program that uses \
                  libibverbs on a software device,\n without a kernel module and without root.",
};
const LIBRARY: Package<'_> = Package {
    name: "libmlx5-mkey1",
    section: "libs",
    depends: "libc6 (>= 2.34), libgcc-s1, ibverbs-providers",
    description: "memory keys of NVIDIA mlx5 devices (shared library)\n Layouts, T10-DIF and CRC signatures, \
                  and AES-XTS of mlx5 mkeys, for C and C++.",
};
const DEVELOPMENT: Package<'_> = Package {
    name: "libmlx5-mkey-dev",
    section: "libdevel",
    depends: "libmlx5-mkey1 (= VERSION)",
    description: "memory keys of NVIDIA mlx5 devices (development files)\n Header, static library and file \
                  for pkg-config.",
};

/// Makes all Debian packages for a target, the lists of crates and the checksums. Returns the paths of the
/// packages.
pub(super) fn make(target: &Target) -> Result<Vec<PathBuf>, String> {
    let dist = root().join("target/dist");
    let folder = dist.join("deb");
    run::empty(&folder)?;
    let files = [
        emulator(target, &folder.join(EMULATOR.name))?,
        library(target, &folder.join(LIBRARY.name))?,
        development(target, &folder.join(DEVELOPMENT.name))?,
    ];
    fs::remove_dir_all(&folder).at(&folder)?;
    for (name, package) in [("mlx5-emulate", "mlx5-uverbs"), ("libmlx5-mkey", "mlx5-mkey")] {
        let file = dist.join(format!("{name}-{}-{}.cdx.json", env!("CARGO_PKG_VERSION"), target.name));
        fs::write(&file, bill(&[package], target.triple)?).map_err(|error| error.to_string())?;
    }
    sums(&dist)?;
    Ok(files.into())
}

/// Writes a file of a package with these permissions, and makes the folders above it.
fn write(file: &Path, text: &str, rights: u32) -> Result<(), String> {
    let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| fs::write(file, text))
        .and_then(|()| fs::set_permissions(file, fs::Permissions::from_mode(rights)))
        .at(file)
}

fn emulator(target: &Target, folder: &Path) -> Result<PathBuf, String> {
    stand_in(target.triple)?;
    put_emulator(target.triple, &folder.join("usr/lib/mlx5-emulate"))?;
    let start = "#!/bin/sh\nexec /usr/lib/mlx5-emulate/mlx5-emulate \"$@\"\n";
    write(&folder.join("usr/bin/mlx5-emulate"), start, 0o755)?;
    EMULATOR.build(target, folder)
}

/// Returns the folder in which `cargo xtask capi` has installed the library for C.
fn installation(target: &Target) -> PathBuf {
    root().join("target/capi").join(target.name)
}

fn library(target: &Target, folder: &Path) -> Result<PathBuf, String> {
    check(host::task("xtask-capi", &["capi", "--arch", target.name])?)?;
    let lib = Path::new("usr/lib").join(target.multiarch);
    put(&installation(target).join("lib").join(SONAME), &folder.join(&lib).join(SONAME), 0o644)?;
    let version = env!("CARGO_PKG_VERSION");
    let mut symbols = format!("{SONAME} {} #MINVER#\n", LIBRARY.name);
    for name in exports(&folder.join(&lib).join(SONAME))? {
        symbols.push_str(&format!(" {name}@Base {version}\n"));
    }
    write(&folder.join("DEBIAN/symbols"), &symbols, 0o644)?;
    write(
        &folder.join("DEBIAN/shlibs"),
        &format!("libmlx5_mkey 1 {} (>= {version})\n", LIBRARY.name),
        0o644,
    )?;
    write(&folder.join("DEBIAN/triggers"), "activate-noawait ldconfig\n", 0o644)?;
    LIBRARY.build(target, folder)
}

fn exports(file: &Path) -> Result<BTreeSet<String>, String> {
    let listed = answer(program("nm", &["--dynamic", "--defined-only", &file.to_string_lossy()]))?;
    let names = listed.lines().filter_map(|line| line.rsplit(' ').next());
    Ok(names.filter(|name| name.starts_with("mlx5mk_")).map(str::to_owned).collect())
}

fn development(target: &Target, folder: &Path) -> Result<PathBuf, String> {
    let from = installation(target);
    let lib = folder.join("usr/lib").join(target.multiarch);
    put(&from.join("include/mlx5_mkey.h"), &folder.join("usr/include/mlx5_mkey.h"), 0o644)?;
    put(&from.join("lib/libmlx5_mkey.a"), &lib.join("libmlx5_mkey.a"), 0o644)?;
    symlink(SONAME, lib.join("libmlx5_mkey.so")).map_err(|error| error.to_string())?;
    let file = from.join("lib/pkgconfig/mlx5-mkey.pc");
    let text = fs::read_to_string(&file).at(&file)?;
    write(&lib.join("pkgconfig/mlx5-mkey.pc"), &installed(&text, target.multiarch), 0o644)?;
    DEVELOPMENT.build(target, folder)
}

/// Returns the file for pkg-config with the folders that the package has on a Debian system.
fn installed(text: &str, multiarch: &str) -> String {
    let line = |line: &str| match line.split_once('=') {
        Some(("prefix", _)) => "prefix=/usr\n".to_owned(),
        Some(("libdir", _)) => format!("libdir=${{prefix}}/lib/{multiarch}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

impl Package<'_> {
    /// Adds documents and the control file to a folder, and packs the folder.
    fn build(&self, target: &Target, folder: &Path) -> Result<PathBuf, String> {
        let version = env!("CARGO_PKG_VERSION");
        let documents = folder.join("usr/share/doc").join(self.name);
        let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| fs::read_to_string(root().join(name)));
        let [mit, apache] = licences.map(|text| text.map_err(|error| error.to_string()));
        write(&documents.join("copyright"), &format!("MIT or Apache-2.0.\n\n{}\n{}", mit?, apache?), 0o644)?;
        put(&root().join("CHANGELOG.md"), &documents.join("CHANGELOG.md"), 0o644)?;
        let maintainer = std::env::var("DEBEMAIL").unwrap_or_else(|_| NOBODY.into());
        let control = format!(
            "Package: {}\nVersion: {version}\nArchitecture: {}\nMulti-Arch: {}\nMaintainer: {maintainer}\n\
             Section: {}\nPriority: optional\nDepends: {}\nDescription: {}\n",
            self.name,
            target.debian,
            if self.section == "net" { "foreign" } else { "same" },
            self.section,
            self.depends.replace("VERSION", version),
            self.description,
        );
        write(&folder.join("DEBIAN/control"), &control, 0o644)?;
        let file = root().join("target/dist").join(format!("{}_{version}_{}.deb", self.name, target.debian));
        // All files of a package get the same time (0), so that two builds make the same bytes.
        let mut pack = program("dpkg-deb", &["--root-owner-group", "-Zgzip", "--build"]);
        pack.arg(folder).arg(&file).env("SOURCE_DATE_EPOCH", "0");
        // `dpkg-deb` prints a line. It is not passed on, because standard output lists the paths of the
        // results.
        answer(pack)?;
        Ok(file)
    }
}

/// Returns the list of the crates that are compiled into cargo packages, in the format CycloneDX 1.5. The
/// subject of the list is the first package.
pub(super) fn bill(packages: &[&str], triple: &str) -> Result<String, String> {
    let mut ask = cargo(&["metadata", "--format-version", "1", "--filter-platform", triple]);
    if packages == ["mlx5-mkey"] {
        ask.args(["--features", "mlx5-mkey/capi"]);
    }
    let metadata: serde_json::Value =
        serde_json::from_str(&answer(ask)?).map_err(|error| format!("cargo metadata: {error}"))?;
    let lock = fs::read_to_string(root().join("Cargo.lock")).map_err(|error| error.to_string())?;
    components(&metadata, packages, &checksums(&lock))
}

/// Returns the checksums in a `Cargo.lock` by name and version of the crate.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_start_matches(" = ").trim_matches('"').to_owned())
    };
    let entry = |block| Some(((value(block, "name")?, value(block, "version")?), value(block, "checksum")?));
    lock.split("[[package]]").filter_map(entry).collect()
}

/// Returns a list, in the format CycloneDX, of all crates on which packages of the workspace depend, also
/// indirectly. Dependencies of tests and build scripts are left out. `sums` are the checksums of crates.
fn components(
    metadata: &serde_json::Value,
    subjects: &[&str],
    sums: &BTreeMap<(String, String), String>,
) -> Result<String, String> {
    let text = |value: &serde_json::Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, serde_json::Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package, "id"), package)).collect();
    let nodes: BTreeMap<String, serde_json::Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node, "id"), node)).collect();
    let find = |subject: &&str| {
        let found = packages.iter().find(|(_, found)| found["name"] == *subject);
        found.ok_or_else(|| format!("cargo metadata knows no {subject}"))
    };
    let roots = subjects.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let (first, root) = *roots.first().ok_or("a list of crates needs a package")?;
    let (mut todo, mut seen) =
        (roots.iter().map(|(id, _)| (*id).clone()).collect::<Vec<_>>(), BTreeSet::new());
    while let Some(id) = todo.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let node = nodes.get(&id).cloned().unwrap_or_default();
        for dependency in list(&node["deps"]) {
            if list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                todo.push(text(&dependency, "pkg"));
            }
        }
    }
    let component = |id: &String| {
        let package = packages.get(id)?;
        let (name, version) = (text(package, "name"), text(package, "version"));
        let mut component = serde_json::json!({
            "type": "library", "name": name, "version": version,
            "purl": format!("pkg:cargo/{name}@{version}"),
            "licenses": [{ "expression": text(package, "license") }],
        });
        if let Some(sum) = sums.get(&(name, version)) {
            component["hashes"] = serde_json::json!([{ "alg": "SHA-256", "content": sum }]);
        }
        Some(component)
    };
    let found: Vec<_> = seen.iter().filter(|id| *id != first).filter_map(component).collect();
    let bill = serde_json::json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "library", "name": text(root, "name"), "version": text(root, "version"),
            "licenses": [{ "expression": text(root, "license") }],
        } },
        "components": found,
    });
    serde_json::to_string_pretty(&bill).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// Writes a file with the checksums of all files in a folder.
fn sums(dist: &Path) -> Result<(), String> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(dist).at(dist)? {
        let entry = entry.at(dist)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_file() && name != SUMS {
            names.push(name);
        }
    }
    names.sort();
    let mut sum = Command::new("sha256sum");
    sum.args(&names).current_dir(dist);
    fs::write(dist.join(SUMS), answer(sum)? + "\n").at(dist)
}

/// Installs the packages in a new Debian system and uses them: the emulator as user `nobody`, and a C program
/// that is compiled there with the flags of pkg-config.
pub(super) fn try_out(packages: &[PathBuf]) -> Result<(), String> {
    let system = root().join("target/dist/packages");
    debian::bootstrap(&system, CHECKED_WITH)?;
    let place = system.join("packages");
    fs::create_dir_all(&place).at(&place)?;
    for package in packages {
        let name = package.file_name().unwrap_or_default();
        fs::copy(package, place.join(name)).at(package)?;
    }
    write(&place.join("program.c"), PROGRAM, 0o644)?;
    let script = "cd /packages\ndpkg --install *.deb\n\
                  gcc -Wall -Werror -o program program.c $(pkg-config --cflags --libs mlx5-mkey)\n\
                  ./program\n\
                  gcc -o static program.c $(pkg-config --cflags mlx5-mkey) -l:libmlx5_mkey.a \
                  $(pkg-config --static --libs mlx5-mkey)\n\
                  setpriv --reuid 65534 --regid 65534 --clear-groups mlx5-emulate ibv_devinfo\n\
                  dpkg --remove libmlx5-mkey-dev libmlx5-mkey1 mlx5-emulate\n";
    let mut command = program("chroot", &[&system.to_string_lossy()]);
    command.args(["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"]);
    command.args(["sh", "-exc", script]);
    let printed = answer(command)?;
    let (compiled, active) = (printed.contains("the library is there"), printed.contains("PORT_ACTIVE"));
    if compiled && active { Ok(()) } else { Err(format!("the packages in a new system say:\n{printed}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_pkg_config_are_those_of_debian() {
        let text =
            "prefix=${pcfiledir}/../..\nincludedir=${prefix}/include\nlibdir=${prefix}/lib\n\nName: x\n";
        let expected = "prefix=/usr\nincludedir=${prefix}/include\n\
                        libdir=${prefix}/lib/aarch64-linux-gnu\n\nName: x\n";
        assert_eq!(installed(text, "aarch64-linux-gnu"), expected);
    }

    #[test]
    fn a_bill_has_what_is_compiled_in() {
        let metadata = serde_json::json!({
            "packages": [
                { "id": "a", "name": "own", "version": "1", "license": "MIT" },
                { "id": "b", "name": "used", "version": "2", "license": "MIT" },
                { "id": "c", "name": "of-tests", "version": "3", "license": "MIT" },
            ],
            "resolve": { "nodes": [{ "id": "a", "deps": [
                { "pkg": "b", "dep_kinds": [{ "kind": null }] },
                { "pkg": "c", "dep_kinds": [{ "kind": "dev" }] },
            ] }] },
        });
        let sums = checksums("[[package]]\nname = \"used\"\nversion = \"2\"\nchecksum = \"abc\"\n");
        let bill = components(&metadata, &["own"], &sums).unwrap();
        assert!(bill.contains("pkg:cargo/used@2") && bill.contains("abc"), "{bill}");
        assert!(!bill.contains("of-tests"), "{bill}");
        assert!(components(&metadata, &["none"], &sums).is_err());
    }
}
