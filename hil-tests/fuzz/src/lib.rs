//! What is fuzzed: targets, each a function of bytes that panics where something is wrong.
//!
//! `cargo xtask fuzz` has libFuzzer call them; the tests of this package call them with what was found before.

// A target that finds something wrong stops; the lint wall of the library is not for tests.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calls;
mod completions;
mod device;
mod input;
mod inspect;
mod memory;
mod parsers;
mod replies;
mod values;

use std::path::PathBuf;

/// What the executions of a target are counted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The library.
    Core,
    /// What its tests stand on.
    Bench,
}

/// Something to fuzz.
#[derive(Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// What is fuzzed.
    pub part: Part,
    /// The longest input.
    pub longest: usize,
    /// Panics where something is wrong.
    pub run: fn(&[u8]),
    /// What to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "inspect", part: Part::Core, longest: 1024, run: inspect::run, seeds: inspect::seeds },
    Target { name: "completions", part: Part::Core, longest: 256, run: completions::run, seeds: random },
    Target { name: "replies", part: Part::Core, longest: 4352, run: replies::run, seeds: replies::seeds },
    Target { name: "calls", part: Part::Core, longest: 1024, run: calls::run, seeds: random },
    Target { name: "device", part: Part::Bench, longest: 4096, run: device::run, seeds: random },
    Target { name: "parsers", part: Part::Bench, longest: 8192, run: parsers::run, seeds: parsers::seeds },
    #[cfg(feature = "libfuzzer")]
    Target { name: "standin", part: Part::Bench, longest: 2048, run: mlx5_uverbs::fuzz, seeds: random },
];

/// Returns where inputs are that once were found.
pub fn corpus(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
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
