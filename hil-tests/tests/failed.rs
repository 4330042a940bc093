//! Checks how the test runner `hil` reports a failed case: on the software device in its own process, and on
//! a software device behind libmlx5.

use mlx5_testing::preload::{DIRECTORY, built};
use std::process::Command;

/// A case that passes, except on a device with the planted fault.
const CASE: &str = "r030_what_a_queue_pair_denies_no_key_gives";

/// Runs `hil` with these arguments, on a device with the planted fault if `is_broken`. Returns the exit
/// status and the standard output.
fn run(words: &[&str], is_broken: bool) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_hil"));
    program.args(words).env(DIRECTORY, directory.path());
    if words.contains(&"uverbs") {
        program.env("LD_PRELOAD", built().join("libmlx5_uverbs.so"));
    }
    if is_broken {
        program.env("HIL_BREAK", "denied-as-access");
    }
    let output = program.output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Checks the report of a failed case on this board. The report contains the requests, the completions with
/// their causes, the states of the queue pairs, and a command that repeats the case with the same posting
/// method. Here `--ways 7` draws the method at random from the seed 7.
fn the_program_tells_what_happened(board: &str) {
    let words = ["--device", board, "--filter", CASE, "--ways", "7"];
    let (status, told) = run(&words, true);
    assert_eq!(status, Some(1), "{told}");
    let again = format!("again: cargo xtask hil --board {board} --filter {CASE} --ways ");
    for parts in [
        &["queue pair", ", the device is at block"][..],
        &["block 0: RDMA_READ"],
        &["completion: ", "REQ_ERR", "forbids its peer to read (rre)"],
        &[&again],
        &["hil: failed ", CASE],
    ] {
        let found = told.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line has {parts:?}:\n{told}");
    }
    // The case fails in the same way when the command repeats it.
    let (_, command) = told.lines().find_map(|line| line.split_once("again: cargo xtask hil ")).unwrap();
    let words: Vec<_> =
        command.split(' ').map(|word| if word == "--board" { "--device" } else { word }).collect();
    let failed = |text: &str| text.lines().find(|line| line.starts_with("hil: failed")).map(str::to_owned);
    assert_eq!(failed(&run(&words, true).1), failed(&told));
    // Without the planted fault the case passes, and there is no report.
    let (status, right) = run(&words, false);
    assert!(status == Some(0) && !right.contains("again: "), "{right}");
}

#[test]
fn a_failed_case_is_told_on_the_software_device() {
    the_program_tells_what_happened("softdev");
}

#[test]
fn a_failed_case_is_told_behind_libmlx5() {
    the_program_tells_what_happened("uverbs");
}
