//! The program that libFuzzer runs. The variable `FUZZ_TARGET` names its target.
#![no_main]
#![allow(unsafe_code, missing_docs, clippy::expect_used, clippy::panic)]

mod coverage;

use hil_fuzz::{function, targets};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let named = targets::ALL.iter().find(|target| target.name == name);
        let target = named.and_then(function).expect("FUZZ_TARGET names a target");
        let _ = TARGET.set(target);
        if let Some(folder) = std::env::var_os("FUZZ_COVERAGE") {
            coverage::print(target, &folder);
            std::process::exit(0);
        }
    },
    |bytes: &[u8]| {
        if let Some(target) = TARGET.get() {
            target(bytes);
        }
    }
);
