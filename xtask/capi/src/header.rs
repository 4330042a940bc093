//! Generates `mlx5_mkey.h`, the header for C and C++, from the sources of `src/capi`.

use cbindgen::{Builder, Config, DocumentationStyle, ExportConfig, Language, Style};
use std::collections::HashMap;
use std::fs;
use xtask::run::{At, root};

/// The source files below `src/capi`, in the order in which readers of the header should see them.
const FILES: &[&str] = &[
    "version",
    "error",
    "values",
    "device",
    "login",
    "memory",
    "dek_cache",
    "group",
    "cq",
    "clock",
    "size",
    "qp",
    "events",
    "psvs",
    "pool",
    "store",
    "config",
    "post",
    "list",
    "list_mkey",
    "window",
    "crc",
    "command",
    "inspect",
];

/// The types whose name in C is not that of Rust in lower case: the name in Rust, and the name in C without
/// the prefix `mlx5mk_`.
const RENAMED: [(&str, &str); 2] = [("TakenMkey", "mkey"), ("TakenWindow", "window")];

/// The header that is published with the crate. Whoever builds the library for C from the published crate, as
/// packagers do by cargo-c, has no generator.
pub(super) const PUBLISHED: &str = "src/capi/mlx5_mkey.h";

pub(super) fn make() -> Result<String, String> {
    let folder = root().join("src/capi");
    let page = fs::read_to_string(folder.join("mod.rs")).at("src/capi")?;
    let files = FILES.iter().map(|file| folder.join(file).with_extension("rs"));
    let mut rename = HashMap::new();
    for file in files.clone() {
        let text = fs::read_to_string(&file).at(&file)?;
        rename.extend(text.lines().filter_map(declared).map(|name| (name.to_owned(), name_in_c(name))));
    }
    let config = Config {
        language: Language::C,
        style: Style::Both,
        header: Some(comment(&page)),
        include_guard: Some("MLX5_MKEY_H".into()),
        cpp_compat: true,
        no_includes: true,
        sys_includes: ["stddef.h", "stdint.h"].map(Into::into).into(),
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::C99,
        export: ExportConfig { rename, ..ExportConfig::default() },
        ..Config::default()
    };
    let mut builder = Builder::new().with_config(config);
    for file in files {
        builder = builder.with_src(file);
    }
    let bindings = builder.generate().map_err(|error| error.to_string())?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header).map_err(|error| error.to_string())?;
    Ok(with_defaults(&header))
}

/// Returns the name of the public struct whose declaration begins in this line.
fn declared(line: &str) -> Option<&str> {
    line.strip_prefix("pub struct ")?.split(|character: char| !character.is_alphanumeric()).next()
}

fn name_in_c(name: &str) -> String {
    let mut words = String::new();
    for character in name.chars() {
        if character.is_uppercase() {
            words.push('_');
        }
        words.extend(character.to_lowercase());
    }
    match RENAMED.iter().find(|(rust, _)| *rust == name) {
        Some((_, c)) => format!("mlx5mk_{c}"),
        None => format!("mlx5mk{words}"),
    }
}

/// A macro that the header has after each field of a struct. In C++ the macro gives the field a default, so
/// that compilers do not warn of a field that a designated initialiser leaves out. In C such a field is zero
/// in any case. Before C++14 the macro is empty, because a struct with defaults would accept no initialiser
/// list.
pub(super) const ZERO: &str = " MLX5MK_ZERO";

const DEFAULTS: &str = "
/// Behind a field: what a designated initialiser leaves out is 0, in C++ as in C.
#if defined(__cplusplus) && __cplusplus >= 201402L
#define MLX5MK_ZERO {}
#else
#define MLX5MK_ZERO
#endif
";

/// Adds the macro [`ZERO`] to the fields of all structs, and its definition to the header.
fn with_defaults(header: &str) -> String {
    let (mut text, mut is_in_struct) = (String::new(), false);
    for line in header.lines() {
        let is_include = line == "#include <stdint.h>";
        is_in_struct = match line {
            _ if line.starts_with("typedef struct ") && line.ends_with('{') => true,
            _ if line.starts_with('}') => false,
            _ => is_in_struct,
        };
        match line.strip_suffix(';') {
            Some(field) if is_in_struct => text.push_str(&format!("{field}{ZERO};\n")),
            _ => text.push_str(&format!("{line}\n")),
        }
        if is_include {
            text.push_str(DEFAULTS);
        }
    }
    text
}

/// Returns the documentation of the module `capi`, up to its example, as a C comment for the beginning of the
/// header.
fn comment(page: &str) -> String {
    let lines = page.lines().map_while(|line| line.strip_prefix("//!")).take_while(|line| *line != " ```");
    let text: Vec<String> = lines
        .map(|line| format!("//{line}").replace("[`", "`").replace("`]", "`").trim_end().into())
        .collect();
    let licence = "// SPDX-License-Identifier: MIT OR Apache-2.0\n// Made by `cargo xtask capi`.\n//\n";
    format!("{licence}{}", text.join("\n").trim_end_matches("\n//"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_defaults_and_functions_have_none() {
        let header =
            "#include <stdint.h>\ntypedef struct mlx5mk_a {\n  uint32_t b;\n} mlx5mk_a;\nint c(int d);\n";
        let text = with_defaults(header);
        assert!(text.contains("  uint32_t b MLX5MK_ZERO;\n} mlx5mk_a;\nint c(int d);\n"), "{text}");
        assert!(text.contains("#define MLX5MK_ZERO {}"), "{text}");
    }
}
