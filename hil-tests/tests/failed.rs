//! The report of a failed case by the program that runs scenarios.

use std::process::Command;

/// The report has the requests, the completions with their causes, the states, and the command that repeats
/// the case as it ran.
#[test]
fn the_program_tells_what_happened() {
    let name = "r030_what_a_queue_pair_denies_no_key_gives";
    let mut program = Command::new(env!("CARGO_BIN_EXE_hil"));
    program
        .args(["--device", "softdev", "--filter", name, "--ways", "7"])
        .env("HIL_BREAK", "denied-as-access");
    let output = program.output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    for parts in [
        &["queue pair", "Error, the device is at block"][..],
        &["block 0: RDMA_READ"],
        &["completion: ", "REQ_ERR", "forbids its peer to read (rre)"],
        &["again: cargo xtask hil --board softdev --filter ", name, " --ways "],
        &["hil: failed ", name],
    ] {
        let found = told.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line has {parts:?}:\n{told}");
    }
    // The repetition fails in the same way.
    let (_, again) = told.lines().find_map(|line| line.split_once("again: cargo xtask hil ")).unwrap();
    let words = again.split(' ').map(|word| if word == "--board" { "--device" } else { word });
    let mut program = Command::new(env!("CARGO_BIN_EXE_hil"));
    let again = program.args(words).env("HIL_BREAK", "denied-as-access").output().unwrap();
    let failed = |text: &str| text.lines().find(|line| line.starts_with("hil: failed")).map(str::to_owned);
    assert_eq!(failed(&String::from_utf8(again.stdout).unwrap()), failed(&told));
    // A device without faults causes no report.
    program = Command::new(env!("CARGO_BIN_EXE_hil"));
    let right = program.args(["--device", "softdev", "--filter", name, "--ways", "7"]).output().unwrap();
    assert_eq!(right.status.code(), Some(0));
}
