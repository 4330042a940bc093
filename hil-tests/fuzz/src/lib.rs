//! What is fuzzed: targets, each a function of bytes that panics where something is wrong.
//!
//! `cargo xtask fuzz` has libFuzzer call them; the tests of this package call them with what was found before.

// A target that finds something wrong stops; the lint wall of the library is not for tests.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calls;
mod command_queue;
mod completions;
mod device;
mod fault;
mod input;
mod inspect;
mod memory;
mod parsers;
mod replies;
mod values;

pub use replies::commands;
use std::path::PathBuf;
use targets::Target;
pub use xtask::fuzz_targets as targets;

/// What a target does.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Panics where something is wrong.
    pub run: fn(&[u8]),
    /// What to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Returns what a target does; nothing of the stand-in, but in the program that libFuzzer drives: built for that, it cannot be
/// preloaded.
///
/// # Panics
/// Where a target has no function.
pub fn functions(target: &Target) -> Option<Functions> {
    let functions = match target.name {
        "inspect" => Functions { run: inspect::run, seeds: inspect::seeds },
        "completions" => Functions { run: completions::run, seeds: random },
        "replies" => Functions { run: replies::run, seeds: replies::seeds },
        "command-queue" => Functions { run: command_queue::run, seeds: random },
        "calls" => Functions { run: calls::run, seeds: random },
        "device" => Functions { run: device::run, seeds: random },
        "parsers" => Functions { run: parsers::run, seeds: parsers::seeds },
        #[cfg(feature = "libfuzzer")]
        "standin" => Functions { run: mlx5_uverbs::fuzz, seeds: random },
        #[cfg(not(feature = "libfuzzer"))]
        "standin" => return None,
        other => panic!("nothing is called for target `{other}`"),
    };
    Some(functions)
}

/// Returns where inputs of all targets are, in a folder for each: what was found, by name, and the first that libFuzzer picks of all
/// that it has made up (`-set_cover_merge=1 -use_counters=0 -use_cmp=0 -max_len=512`).
pub fn corpora() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Returns where inputs of a target are.
pub fn corpus(target: &Target) -> PathBuf {
    corpora().join(target.name)
}

/// Bytes for targets that make choices of them: long enough to get somewhere, and always the same.
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
