//! Checks which glibc a program or library needs: at most the glibc of Ubuntu 22.04 for programs on a
//! BlueField, at most Debian 12's for the archive of the stand-in.

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::FileHeader;
use std::fs;
use std::path::Path;

/// The version of glibc in Ubuntu 22.04, the system of a BlueField: major, minor.
pub(super) const UBUNTU_22_04: (u32, u32) = (2, 34);
pub(super) const DEBIAN_12: (u32, u32) = (2, 36);

/// Checks the symbol versions that a program or library needs from glibc. Returns a line with the newest one.
///
/// # Errors
/// The versions that are too new.
pub(super) fn check(path: &Path, newest: (u32, u32)) -> Result<String, String> {
    let lost = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let data = fs::read(path).map_err(|error| lost(&error))?;
    let needed = needs(&data).map_err(|error| lost(&error))?;
    let of_glibc = || needed.iter().filter_map(|name| Some((version(name)?, name)));
    let newer: Vec<_> =
        of_glibc().filter(|(version, _)| *version > newest).map(|(_, name)| name.as_str()).collect();
    let Some(((major, minor), _)) = of_glibc().max() else {
        return Err(lost(&"asks for no version of glibc at all"));
    };
    if !newer.is_empty() {
        return Err(lost(&format!(
            "needs {}, which glibc {}.{} does not have",
            newer.join(", "),
            newest.0,
            newest.1
        )));
    }
    Ok(format!("{}: glibc {major}.{minor} is enough", path.display()))
}

/// Returns the names of all symbol versions that a file needs (section `.gnu.version_r`).
fn needs(data: &[u8]) -> Result<Vec<String>, object::Error> {
    let endian = Endianness::Little;
    let header = FileHeader64::<Endianness>::parse(data)?;
    let sections = header.sections(endian, data)?;
    let mut names = Vec::new();
    if let Some((mut needs, strings)) = sections.gnu_verneed(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        while let Some((_, mut versions)) = needs.next()? {
            while let Some(version) = versions.next()? {
                names.push(String::from_utf8_lossy(version.name(endian, strings)?).into_owned());
            }
        }
    }
    Ok(names)
}

/// Returns the version in a name such as `GLIBC_2.34`. `GLIBC_PRIVATE` counts as newer than any version.
/// Returns `None` for a symbol version of another library.
fn version(name: &str) -> Option<(u32, u32)> {
    let number = name.strip_prefix("GLIBC_")?;
    let mut parts = number.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => Some((u32::MAX, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_not_text() {
        assert_eq!(version("GLIBC_2.34"), Some((2, 34)));
        assert!(version("GLIBC_2.4") < Some(UBUNTU_22_04) && version("GLIBC_2.35") > Some(UBUNTU_22_04));
        assert_eq!(version("GLIBC_2.3.4"), Some((2, 3)));
        assert!(
            version("GLIBC_PRIVATE") > Some(UBUNTU_22_04)
                && version("GLIBC_ABI_DT_RELR") > Some(UBUNTU_22_04)
        );
        assert_eq!(version("GCC_3.0"), None);
    }

    #[test]
    fn this_program_asks_for_versions() {
        let this = std::env::current_exe().unwrap();
        let names = needs(&fs::read(this).unwrap()).unwrap();
        assert!(names.iter().any(|name| name.starts_with("GLIBC_")), "{names:?}");
    }
}
