//! The program that libFuzzer runs. The variable `FUZZ_TARGET` names its target.
#![no_main]
#![allow(unsafe_code, missing_docs, clippy::expect_used, clippy::panic)]

mod coverage;

use hil_fuzz::{Functions, functions, targets};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static TARGET: OnceLock<Functions> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let named = targets::ALL.iter().find(|target| target.name == name);
        let target = named.and_then(functions).expect("FUZZ_TARGET names a target");
        let _ = TARGET.set(target);
        if let Some(folder) = std::env::var_os("FUZZ_SEEDS") {
            write_seeds(&target, &folder);
            std::process::exit(0);
        }
        if let Some(folder) = std::env::var_os("FUZZ_COVERAGE") {
            coverage::print(&target, &folder);
            std::process::exit(0);
        }
    },
    |bytes: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.run)(bytes);
        }
    }
);

/// Writes the initial inputs of a target into a folder.
fn write_seeds(target: &Functions, folder: &std::ffi::OsStr) {
    for (number, seed) in (target.seeds)().iter().enumerate() {
        let file = std::path::Path::new(folder).join(format!("seed-{number}"));
        std::fs::write(file, seed).expect("the folder can be written");
    }
}
