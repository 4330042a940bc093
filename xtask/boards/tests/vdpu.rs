//! Tests `cargo xtask hil --board vdpu` with a whole machine: it hangs in one case, and loses power in
//! another.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The cases of the test, in their order: `CASES[1]` hangs, and the test kills the machine in `CASES[3]`.
const CASES: [&str; 5] = [
    "r012_an_invalidated_key_refuses_all",
    "r012_only_a_whole_configuration_brings_a_key_back",
    "r012_the_chain_behind_an_invalidation_sees_it",
    "r012_the_peer_invalidates",
    "r012_the_peer_may_not_invalidate_every_key",
];

#[test]
#[ignore = "boots a machine three times: cargo xtask test runs it"]
fn a_machine_that_hangs_and_one_that_dies_are_booted_anew() {
    let [before, hangs, between, dies, behind] = CASES;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("boards.toml");
    // The hang lasts as long as the time limit of a case. The other cases take a small part of the limit,
    // even on a busy machine.
    let boards = format!(
        "[board.vdpu]
         reach = {{ kind = 'vdpu', environment = {{ HIL_HANG = '{hangs},{dies}' }} }}
         seconds = {{ start = 120, case = 20, total = 3600 }}"
    );
    fs::write(&file, boards).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask-boards"));
    command.args(["hil", "--board", "vdpu", "--filter", "r012_", "--require-board", "--boards"]).arg(&file);
    let mut runner = command.stdout(Stdio::piped()).spawn().unwrap();
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vdpu").join(runner.id().to_string());
    let mut out = BufReader::new(runner.stdout.take().unwrap());
    let mut told = String::new();
    while out.read_line(&mut told).unwrap() > 0 {
        if told.ends_with(&format!("passed   {between}\n")) {
            // The next case, `dies`, hangs too (`HIL_HANG`). The test waits until this case has begun, and
            // kills the machine.
            std::thread::sleep(Duration::from_secs(2));
            let pid = fs::read_to_string(place.join("qemu.pid")).unwrap();
            kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
            break;
        }
    }
    out.read_to_string(&mut told).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(1), "{told}");
    for line in [
        format!("passed   {before}"),
        format!("HUNG     {hangs}: no event for 20 s"),
        format!("reset    the board hung: no event for 20 s, in {hangs}"),
        format!("passed   {between}"),
        format!("DIED     {dies}: its program ended with exit status: 255"),
        format!("reset    the board died: its program ended with exit status: 255, in {dies}"),
        format!("passed   {behind}"),
    ] {
        assert!(told.lines().any(|shown| shown == line), "`{line}` is missing in\n{told}");
    }
    let summary = told.lines().find(|line| line.starts_with("board vdpu: ")).unwrap_or_default();
    assert!(summary.contains("0 failed") && summary.contains("2 resets"), "{told}");
    // The runner has removed the machine's files and keys.
    assert!(!place.exists());
}
