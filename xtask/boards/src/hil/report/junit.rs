//! The results as JUnit XML, for CI systems.

use super::super::results::{Ending, Results, Verdict};
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};

/// Returns the XML, with a test suite for each board. If `board_required`, a board that cannot be reached is
/// an error, otherwise a skip.
pub(crate) fn junit(all: &[Results], board_required: bool) -> Result<String, String> {
    let mut report = Report::new("hil");
    report.add_test_suites(all.iter().map(|results| suite(results, board_required)));
    report.to_string().map_err(|error| error.to_string())
}

fn suite(results: &Results, board_required: bool) -> TestSuite {
    let mut suite = TestSuite::new(results.board.as_str());
    suite.set_time(results.took);
    suite.add_property(Property::new("device", results.device.as_str()));
    suite.add_property(Property::new("capabilities", results.capabilities.join(" ")));
    for reset in &results.resets {
        suite.add_property(Property::new("reset", reset.as_str()));
    }
    for case in &results.cases {
        let reason = case.verdict.reason().unwrap_or_default();
        let kind = |kind, name: &str| {
            let mut status = TestCaseStatus::non_success(kind);
            status.set_message(reason).set_type(name);
            status
        };
        let status = match case.verdict {
            Verdict::Passed => TestCaseStatus::success(),
            Verdict::Failed(_) => kind(NonSuccessKind::Failure, "failed"),
            Verdict::Hung(_) => kind(NonSuccessKind::Error, "hung"),
            Verdict::Died(_) => kind(NonSuccessKind::Error, "died"),
            Verdict::Skipped(_) => {
                let mut status = TestCaseStatus::skipped();
                status.set_message(reason);
                status
            }
        };
        let mut test = TestCase::new(case.name.as_str(), status);
        test.set_classname(results.board.as_str()).set_time(case.took);
        for (name, value) in &case.measured {
            test.add_property(Property::new(name.as_str(), value.as_str()));
        }
        if !case.log.is_empty() {
            test.set_system_out(case.log.join("\n"));
        }
        suite.add_test_case(test);
    }
    // A fault of the run itself becomes a test case, because CI systems only count cases.
    let mut run = |status| {
        let mut test = TestCase::new("(the run)", status);
        test.set_classname(results.board.as_str());
        suite.add_test_case(test);
    };
    let faults = results.faults(board_required);
    if !faults.is_empty() {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(faults.join("; ")).set_type("run");
        run(status);
    } else if let Ending::Unreachable(why) = &results.ending {
        let mut status = TestCaseStatus::skipped();
        status.set_message(why.as_str());
        run(status);
    }
    suite
}
