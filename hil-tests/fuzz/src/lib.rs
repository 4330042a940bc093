//! The fuzz targets: functions that take the bytes of an input, and panic if a check fails.
//!
//! libFuzzer calls them under `cargo xtask fuzz`. The tests of this package call them with the inputs of the
//! corpus.

// A target stops at the first failed check. The library's rules against panics do not apply to tests.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calls;
mod command_queue;
mod completions;
mod device;
mod fabric;
mod fault;
mod function;
mod input;
mod inspect;
mod memory;
mod parsers;
mod replies;
mod rings;
mod values;

pub use replies::commands;
use std::path::PathBuf;
use targets::Target;
pub use xtask::fuzz_targets as targets;

/// The functions of a fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Runs the target with the bytes of an input. Panics if a check fails.
    pub run: fn(&[u8]),
    /// Makes the initial inputs of the target's corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Returns the functions of a target. Returns `None` for the stand-in for the kernel unless the feature
/// `libfuzzer` is on: with this feature the stand-in can be linked, but cannot be preloaded.
///
/// # Panics
/// If a target of the list has no function.
pub fn functions(target: &Target) -> Option<Functions> {
    let functions = match target.name {
        "inspect" => Functions { run: inspect::run, seeds: inspect::seeds },
        "completions" => Functions { run: completions::run, seeds: random },
        "replies" => Functions { run: replies::run, seeds: replies::seeds },
        "command-queue" => Functions { run: command_queue::run, seeds: random },
        "calls" => Functions { run: calls::run, seeds: random },
        "device" => Functions { run: device::run, seeds: random },
        "function" => Functions { run: function::run, seeds: random },
        "fabric" => Functions { run: fabric::run, seeds: random },
        "rings" => Functions { run: rings::run, seeds: random },
        "parsers" => Functions { run: parsers::run, seeds: parsers::seeds },
        #[cfg(feature = "libfuzzer")]
        "standin" => Functions { run: mlx5_uverbs::fuzz, seeds: random },
        #[cfg(feature = "libfuzzer")]
        "rdma-cm" => Functions { run: mlx5_uverbs::fuzz_connections, seeds: random },
        #[cfg(not(feature = "libfuzzer"))]
        "standin" | "rdma-cm" => return None,
        other => panic!("target `{other}` has no function"),
    };
    Some(functions)
}

/// Returns the folder of the corpora. Each target has a folder with inputs that once failed, by name, and
/// with a minimal set of generated inputs, chosen by libFuzzer with `-set_cover_merge=1 -use_counters=0
/// -use_cmp=0 -max_len=512`.
pub fn corpora() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Returns the folder with the corpus of a target.
pub fn corpus(target: &Target) -> PathBuf {
    corpora().join(target.name)
}

/// Returns pseudorandom inputs for targets that make choices from bytes. Each call returns the same inputs.
fn random() -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..48).map(|number| (0..(number % 8 + 1) * 32).map(|_| byte()).collect()).collect()
}
