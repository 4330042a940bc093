//! A rule of `cargo xtask tidy`: every public type of the library implements `defmt::Format`.

use crate::source::{is_letter, shipped};

/// Checks a file: an attribute, an `impl`, or one of the macros named below must implement the trait for each
/// public type.
pub(crate) fn check(name: &str, text: &str, faults: &mut Vec<String>) {
    // The shim (`devx`) and the functions for C run on an operating system and print by `Display`: their
    // types need no `defmt::Format`.
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
