//! `mlx5_mkey.h`, generated from the sources of `src/capi`.

use cbindgen::{Builder, Config, DocumentationStyle, ExportConfig, Language, Style};
use std::fs;
use xtask::run::root;

/// The source files, in the order for readers of the header.
const FILES: &[&str] = &[
    "error",
    "values",
    "device",
    "memory",
    "dek_cache",
    "group",
    "cq",
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
    "inspect",
];

/// The types: the name in Rust, and the name in C without the prefix `mlx5mk_`.
const TYPES: &[(&str, &str)] = &[
    ("Address", "address"),
    ("BadBlock", "bad_block"),
    ("Completion", "completion"),
    ("Config", "config"),
    ("ConnectSpec", "connect_spec"),
    ("Cq", "cq"),
    ("CryptoSpec", "crypto_spec"),
    ("Dek", "dek"),
    ("DekCache", "dek_cache"),
    ("Device", "device"),
    ("DigestSpec", "digest_spec"),
    ("Error", "error"),
    ("Event", "event"),
    ("Events", "events"),
    ("KeySpec", "key_spec"),
    ("List", "list"),
    ("ListMkey", "list_mkey"),
    ("Mr", "mr"),
    ("Names", "names"),
    ("Pd", "pd"),
    ("Place", "place"),
    ("Pool", "pool"),
    ("PoolSpec", "pool_spec"),
    ("Prepared", "prepared"),
    ("Psvs", "psvs"),
    ("Qp", "qp"),
    ("QpSpec", "qp_spec"),
    ("Range", "range"),
    ("Request", "request"),
    ("SignatureSpec", "signature_spec"),
    ("Store", "store"),
    ("Stream", "stream"),
    ("TakenMkey", "mkey"),
    ("TakenWindow", "window"),
    ("Windows", "windows"),
];

/// Generates the header.
pub(super) fn make() -> Result<String, String> {
    let folder = root().join("src/capi");
    let page = fs::read_to_string(folder.join("mod.rs")).map_err(|error| format!("src/capi: {error}"))?;
    let rename = TYPES.iter().map(|(rust, c)| ((*rust).to_owned(), format!("mlx5mk_{c}"))).collect();
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
    for file in FILES {
        builder = builder.with_src(folder.join(file).with_extension("rs"));
    }
    let bindings = builder.generate().map_err(|error| error.to_string())?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    String::from_utf8(header).map_err(|error| error.to_string())
}

/// Returns the documentation of the module, up to its example, as a C comment.
fn comment(page: &str) -> String {
    let lines = page.lines().map_while(|line| line.strip_prefix("//!")).take_while(|line| *line != " ```");
    let text: Vec<String> = lines
        .map(|line| format!("//{line}").replace("[`", "`").replace("`]", "`").trim_end().into())
        .collect();
    let licence = "// SPDX-License-Identifier: MIT OR Apache-2.0\n// Made by `cargo xtask capi`.\n//\n";
    format!("{licence}{}", text.join("\n").trim_end_matches("\n//"))
}
