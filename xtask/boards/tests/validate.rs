//! Tests of `cargo xtask validate` on the software device behind the stand-in for the kernel. They build
//! programs in release mode, hence `cargo test` ignores them by default.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output};

fn validate(arguments: &[&str], fault: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask-boards"));
    command.arg("validate").args(arguments);
    if let Some(fault) = fault {
        command.env("HIL_BREAK", fault);
    }
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn content(archive: &Path, name: &str) -> String {
    let output =
        Command::new("tar").args(["--wildcards", "-xzOf"]).arg(archive).arg(format!("*/{name}")).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
#[ignore = "builds programs in release mode; the step `validate` runs it"]
fn a_device_of_ours_is_validated_and_is_no_hardware() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let archive = |name: &str| file(name).display().to_string();
    let sound = archive("sound.tar.gz");
    let output = validate(&["--stand-in", "--ways", "request", "--out", &sound], None);
    assert!(output.status.success(), "{}", text(&output));
    let page = content(&file("sound.tar.gz"), "report.html");
    for part in [
        "Not hardware: a software device of mlx5-mkey",
        "<dt>PSID</dt><dd>MLX5SOFTDEV00001</dd>",
        "<dt>rights to the device</dt><dd>good: ",
        "<dt>rdma-core</dt>",
        "<dt>commit</dt>",
        "As assumed",
        "<td>one more, with carry</td>",
        "<td>io_list4</td>",
        "<td>mkey+t10dif+xts</td><td>65536</td>",
        "<b>2 of 3, 4 completions of 4</b>",
        "<b>created, and a write fails</b>",
    ] {
        // The page shows a measured value in bold.
        let bold = part.replace("<td>one", "<td><b>one").replace("carry</td>", "carry</b></td>");
        assert!(page.contains(&bold), "{bold}:\n{page}");
    }
    assert!(!page.contains("The device is hardware"));

    // The report of a device with a fault has to explain the fault.
    let broken = archive("broken.tar.gz");
    let case = "r030_what_a_queue_pair_denies_no_key_gives";
    let words = ["--stand-in", "--filter", case, "--ways", "request", "--out", &broken];
    let output = validate(&words, Some("denied-as-access"));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let page = content(&file("broken.tar.gz"), "report.html");
    for part in [
        "The case shows: ",
        "The deviation: by request: ",
        " (CFG 147): ",
        "ERROR, the device is at block",
        "block 0: RDMA_READ",
        "forbids its peer to read (rre)",
        "<pre>cargo xtask validate --stand-in --filter r030_what_a_queue_pair_denies_no_key_gives --ways",
    ] {
        assert!(page.contains(part), "{part}:\n{page}");
    }

    // Two archives are compared. `--facts` refuses the record of a software device, because it shows no facts
    // about hardware.
    let compared = validate(&["--compare", &sound, &broken], None);
    let lines = text(&compared);
    assert!(compared.status.success() && lines.contains("device: equal"), "{lines}");
    assert!(lines.contains("B: FAILED: by request: "), "{lines}");
    let facts = validate(&["--facts", &sound], None);
    assert!(!facts.status.success() && text(&facts).contains("no fact follows"), "{}", text(&facts));

    // Without a device, the error names the driver to load.
    let missing = validate(&["mlx5_77", "--filter", case], None);
    assert!(!missing.status.success() && text(&missing).contains("MISSING  driver: "), "{}", text(&missing));
}
