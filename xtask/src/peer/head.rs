//! The tests of a built checkout of rdma-core, all of them.

use super::modules::counts;
use super::{Bench, LIMIT, PYTHON};
use std::path::Path;
use std::process::Command;
use xtask::run;

/// How the device takes keys, and its engine.
const DEVICES: [(&str, &str); 3] =
    [("plaintext", "multi-block"), ("wrapped", "multi-block"), ("plaintext", "single-block")];

/// Tests that end with an error because the stand-in lacks what they take for granted, by the beginning of their names.
const LACKING: &[(&str, &str)] = &[
    ("tests.test_device.DeviceTest.test_get_pkey_index", "files of the port below /sys"),
    ("tests.test_mlx5_devx.Mlx5DevxApiTest.test_devx_async_query", "asynchronous queries"),
    ("tests.test_mlx5_devx.Mlx5DevxApiTest.test_devx_obj_export_import", "objects of another context"),
    ("tests.test_mlx5_dm_ops.", "memory of the device"),
    ("tests.test_mlx5_dr.", "steering"),
    ("tests.test_mlx5_flow.", "steering"),
    ("tests.test_mlx5_huge_page.", "queue pairs of raw packets"),
];

/// What has come of the tests: errors that are expected, and why, and what is not to be.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict<'a> {
    lacking: Vec<(&'a str, &'static str)>,
    bad: Vec<&'a str>,
}

impl Bench<'_> {
    /// Runs the tests of the checkout, which was built in place, and tells of each device.
    pub(super) fn checkout(
        &self,
        checkout: &Path,
        tell: &mut dyn FnMut(&str, Result<String, String>),
    ) -> Result<(), String> {
        let checkout = checkout.canonicalize().map_err(|error| format!("{}: {error}", checkout.display()))?;
        let commit = run::answer(git(&checkout))?;
        // Some tests ask it for network interfaces and containers of RDMA devices. There are none.
        self.file("rdma", "#!/bin/sh\necho '[]'\n", 0o700)?;
        for (crypto, engine) in DEVICES {
            let outcome = self.whole_suite(&checkout, crypto, engine);
            tell(&format!("rdma-core {} ({crypto}, {engine})", commit.trim()), outcome);
        }
        Ok(())
    }

    fn whole_suite(&self, checkout: &Path, crypto: &str, engine: &str) -> Result<String, String> {
        let mut command = self.program(PYTHON, crypto);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("MLX5_UVERBS_ENGINE", engine).env("PATH", format!("{}:{path}", self.folder.display()));
        command.env("PYTHONPATH", checkout.join("build/python"));
        command.env("LD_LIBRARY_PATH", checkout.join("build/lib"));
        command.arg(checkout.join("tests/run_tests.py")).args(["--dev", "mlx5_0", "-v"]);
        let end = self.start("checkout", command)?.finish(LIMIT)?;
        let verdict = judge(&end.said);
        let counts = counts(&end.said);
        if !verdict.bad.is_empty() || !counts.has_run() {
            return Err(format!("{}\n{end}", verdict.bad.join("\n")));
        }
        let lacking = verdict.lacking.iter().map(|(test, what)| format!("\n        {test}: no {what}"));
        let (errors, lacking) = (verdict.lacking.len(), lacking.collect::<String>());
        Ok(format!("{}, 0 failed, {errors} with errors for what is not there{lacking}", counts.totals()))
    }
}

fn git(checkout: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(checkout).args(["rev-parse", "--short", "HEAD"]);
    command
}

/// Finds the tests that did not end well.
fn judge(said: &str) -> Verdict<'_> {
    let mut verdict = Verdict::default();
    for line in said.lines() {
        let Some((kind, test)) = line.split_once(": ").filter(|(kind, _)| matches!(*kind, "ERROR" | "FAIL"))
        else {
            continue;
        };
        let name = test.split_once('(').map_or(test, |(_, name)| name.trim_end_matches(')'));
        let known = LACKING.iter().find(|(start, _)| kind == "ERROR" && name.starts_with(start));
        match known {
            Some((_, what)) => verdict.lacking.push((name, what)),
            None => verdict.bad.push(line),
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_expected_only_where_something_is_known_to_be_missing() {
        let said = "test_a (tests.test_mlx5_dr.Mlx5DrTest.test_a) ... ERROR\n\
                    ERROR: test_a (tests.test_mlx5_dr.Mlx5DrTest.test_a)\n\
                    ERROR: test_b (tests.test_qp.QPTest.test_b)\n\
                    FAIL: test_c (tests.test_mlx5_dr.Mlx5DrTest.test_c)\n";
        let verdict = judge(said);
        assert_eq!(verdict.lacking, [("tests.test_mlx5_dr.Mlx5DrTest.test_a", "steering")]);
        assert_eq!(
            verdict.bad,
            [
                "ERROR: test_b (tests.test_qp.QPTest.test_b)",
                "FAIL: test_c (tests.test_mlx5_dr.Mlx5DrTest.test_c)",
            ]
        );
    }
}
