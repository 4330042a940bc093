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

/// Returns the function of a target, which takes the bytes of an input and panics if a check fails. Returns
/// `None` for the stand-in for the kernel unless the feature `libfuzzer` is on: with this feature the
/// stand-in can be linked, but cannot be preloaded.
///
/// # Panics
/// If a target of the list has no function.
pub fn function(target: &Target) -> Option<fn(&[u8])> {
    Some(match target.name {
        "inspect" => inspect::run,
        "completions" => completions::run,
        "replies" => replies::run,
        "command-queue" => command_queue::run,
        "calls" => calls::run,
        "device" => device::run,
        "function" => function::run,
        "fabric" => fabric::run,
        "rings" => rings::run,
        "parsers" => parsers::run,
        #[cfg(feature = "libfuzzer")]
        "standin" => mlx5_uverbs::fuzz,
        #[cfg(feature = "libfuzzer")]
        "rdma-cm" => mlx5_uverbs::fuzz_connections,
        #[cfg(not(feature = "libfuzzer"))]
        "standin" | "rdma-cm" => return None,
        other => panic!("target `{other}` has no function"),
    })
}

/// Returns the folder of the corpora. Each target has a folder with inputs that once failed, by name, and
/// with a minimal set of inputs, chosen by libFuzzer with `-set_cover_merge=1 -use_counters=0 -use_cmp=0`.
pub fn corpora() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}
