//! All tests of a checkout of rdma-core that was built in place.

use super::device::{Device, LIMIT, PYTHON, Tell};
use super::modules::counts;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use xtask::run::{self, At};

/// The software devices on which the tests run: the form in which keys are imported, and the AES-XTS engine.
const DEVICES: [(&str, &str); 3] =
    [("plaintext", "multi-block"), ("wrapped", "multi-block"), ("plaintext", "single-block")];

/// Tests that fail because the stand-in for the kernel lacks a feature: the beginning of the name, and the
/// feature.
const LACKING: &[(&str, &str)] = &[
    ("tests.test_mlx5_devx.Mlx5DevxApiTest.test_devx_obj_export_import", "flow counters"),
    ("tests.test_mlx5_flow.Mlx5MatcherTest.test_flow_table_drop", "steering"),
];

/// The failed tests: expected errors with the feature that the stand-in for the kernel lacks, and unexpected
/// ones.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict<'a> {
    lacking: Vec<(&'a str, &'static str)>,
    bad: Vec<&'a str>,
}

impl Device<'_> {
    pub(super) fn checkout(&self, checkout: &Path, tell: Tell<'_>) -> Result<(), String> {
        let checkout = checkout.canonicalize().at(checkout)?;
        if !checkout.join("build/python/pyverbs").is_dir() {
            return Err("the checkout was built without pyverbs, because cmake found no cython".into());
        }
        let commit = run::answer(git(&checkout))?;
        let mut lacking = BTreeSet::new();
        for (crypto, engine) in DEVICES {
            let outcome = self.whole_suite(&checkout, crypto, engine, &mut lacking);
            tell(&format!("rdma-core {} ({crypto}, {engine})", commit.trim()), outcome);
        }
        tell("table of missing features", all_lacking(LACKING, &lacking));
        Ok(())
    }

    fn whole_suite(
        &self,
        checkout: &Path,
        crypto: &str,
        engine: &str,
        known: &mut BTreeSet<String>,
    ) -> Result<String, String> {
        let mut command = self.program(PYTHON, crypto);
        command.env("MLX5_UVERBS_ENGINE", engine);
        command.env("PYTHONPATH", checkout.join("build/python"));
        command.env("LD_LIBRARY_PATH", checkout.join("build/lib"));
        command.arg(checkout.join("tests/run_tests.py")).args(["--dev", "mlx5_0", "-v"]);
        let end = self.start("checkout", command)?.finish(LIMIT)?;
        let verdict = judge(&end.output, LACKING);
        known.extend(verdict.lacking.iter().map(|(test, _)| (*test).to_owned()));
        let counts = counts(&end.output);
        if !verdict.bad.is_empty() || !counts.has_run() {
            return Err(format!("{}\n{end}", verdict.bad.join("\n")));
        }
        let lacking = verdict.lacking.iter().map(|(test, feature)| format!("\n        {test}: no {feature}"));
        let (errors, lacking) = (verdict.lacking.len(), lacking.collect::<String>());
        Ok(format!("{}, 0 failed, {errors} with errors for a missing feature{lacking}", counts.totals()))
    }
}

/// Checks that each entry of the table of missing features matches a test that failed. An entry without a
/// failed test is out of date.
fn all_lacking(table: &[(&str, &str)], tests: &BTreeSet<String>) -> Result<String, String> {
    let met = |start: &str| tests.iter().any(|test| test.starts_with(start));
    let idle: Vec<&str> = table.iter().map(|(start, _)| *start).filter(|start| !met(start)).collect();
    if idle.is_empty() {
        return Ok(format!("{} entries, each needed by a test", table.len()));
    }
    Err(format!("no test ends with an error, though the table expects one: {}", idle.join(", ")))
}

fn git(checkout: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(checkout).args(["rev-parse", "--short", "HEAD"]);
    command
}

/// Sorts the tests that failed into expected errors, which the table lists, and unexpected ones.
fn judge<'a>(output: &'a str, table: &[(&str, &'static str)]) -> Verdict<'a> {
    let mut verdict = Verdict::default();
    for line in output.lines() {
        let Some((kind, test)) = line.split_once(": ").filter(|(kind, _)| matches!(*kind, "ERROR" | "FAIL"))
        else {
            continue;
        };
        let name = test.split_once('(').map_or(test, |(_, name)| name.trim_end_matches(')'));
        let known = table.iter().find(|(start, _)| kind == "ERROR" && name.starts_with(start));
        match known {
            Some((_, feature)) => verdict.lacking.push((name, feature)),
            None => verdict.bad.push(line),
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_no_test_meets_is_named() {
        let table = [("tests.a.", "one"), ("tests.b.", "two")];
        let met = |tests: &[&str]| all_lacking(&table, &tests.iter().map(|test| test.to_string()).collect());
        assert!(met(&["tests.a.x", "tests.b.y"]).is_ok());
        assert!(met(&["tests.a.x", "tests.c.y"]).unwrap_err().ends_with(": tests.b."));
    }

    #[test]
    fn errors_are_expected_only_where_something_is_known_to_be_missing() {
        let output = "test_a (tests.dr.DrTest.test_a) ... ERROR\n\
                    ERROR: test_a (tests.dr.DrTest.test_a)\n\
                    ERROR: test_b (tests.test_qp.QPTest.test_b)\n\
                    FAIL: test_c (tests.dr.DrTest.test_c)\n";
        let verdict = judge(output, &[("tests.dr.", "steering")]);
        assert_eq!(verdict.lacking, [("tests.dr.DrTest.test_a", "steering")]);
        let bad = ["ERROR: test_b (tests.test_qp.QPTest.test_b)", "FAIL: test_c (tests.dr.DrTest.test_c)"];
        assert_eq!(verdict.bad, bad);
    }
}
