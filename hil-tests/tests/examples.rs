//! Runs the library's examples as tests. They use the real libibverbs and libmlx5 on the kernel's stand-in
//! (`libmlx5_uverbs.so`), which is preloaded and contains the software device.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // The example's `main` is unused here.
#[path = "../examples/async_completions.rs"]
mod async_completions;
#[allow(dead_code)] // The example's `main` is unused here.
#[path = "../examples/nvme_tcp_digests.rs"]
mod nvme_tcp_digests;
#[allow(dead_code)] // The example's `main` is unused here.
#[path = "../examples/protected_write.rs"]
mod protected_write;

use mlx5_testing::preload::{Side::Inside, preloaded};
use std::time::Duration;

#[test]
fn the_example_finds_the_ciphertext_that_was_computed_elsewhere() {
    let Inside = preloaded() else { return };
    protected_write::run(None).unwrap();
}

#[test]
fn the_example_finds_the_digests_that_were_computed_elsewhere() {
    let Inside = preloaded() else { return };
    nvme_tcp_digests::run(None).unwrap();
}

#[test]
fn the_example_sleeps_in_tokio() {
    let Inside = preloaded() else { return };
    let used = thread_time();
    async_completions::run(None).unwrap();
    assert!(thread_time() - used < Duration::from_millis(100), "it sleeps");
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(statistics.split(' ').next().unwrap().parse().unwrap())
}
