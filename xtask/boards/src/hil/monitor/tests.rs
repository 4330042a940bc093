//! Tests of the monitor. They pass the lines of a board and the times to the monitor, and check the actions
//! that it returns.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits =
    Limits { start: Duration::from_secs(10), case: Duration::from_secs(5), total: Duration::from_secs(100) };

/// A monitor, and the time that the test passes to it.
struct Run {
    monitor: Monitor,
    now: Duration,
}

fn run() -> Run {
    let mut monitor = Monitor::new("fake", LIMITS, vec![], vec![]);
    let step = monitor.started(Duration::ZERO);
    assert_eq!(step, Step::Listen(LIMITS.start));
    Run { monitor, now: Duration::ZERO }
}

impl Run {
    /// Passes lines of a board to the monitor, one second apart.
    fn hear(&mut self, lines: &str) -> Step {
        let mut step = Step::Over;
        for line in lines.split(", ") {
            self.now += Duration::from_secs(1);
            step = self.monitor.line(self.now, &format!("hil: {line}"));
        }
        step
    }

    /// Lets `seconds` seconds pass without a line of the board.
    fn silence(&mut self, seconds: u64) -> Step {
        self.now += Duration::from_secs(seconds);
        self.monitor.tick(self.now)
    }

    fn closed(&mut self) -> Step {
        self.monitor.closed(self.now, "killed")
    }

    fn restart(&mut self) -> Step {
        self.now += Duration::from_secs(20);
        self.monitor.started(self.now)
    }

    fn results(&self) -> &Results {
        self.monitor.results()
    }

    fn verdicts(&self) -> Vec<(&str, &str)> {
        self.results().cases.iter().map(|case| (&case.name[..], case.verdict.word())).collect()
    }
}

#[test]
fn a_run_without_trouble() {
    let mut run = run();
    run.hear("capability xts, cases 3, start a, measured a: b = 1, passed a, skipped b: lacks c, start c");
    assert_eq!(run.monitor.running(), Some("c"));
    assert_eq!(run.hear("failed c: why, done"), Step::Over);
    let results = run.results();
    assert_eq!(results.ending, Ending::Done);
    assert_eq!(results.capabilities, ["xts"]);
    assert_eq!(run.verdicts(), [("a", "passed"), ("b", "SKIPPED"), ("c", "FAILED")]);
    assert_eq!(results.cases[0].measured, [("b".into(), "1".into())]);
    assert_eq!(results.cases[0].took, Duration::from_secs(2));
    assert_eq!(results.problems, [""; 0]);
    assert!(!results.is_good(true), "a case failed");
}

#[test]
fn each_event_gives_new_time_and_log_gives_none() {
    let mut run = run();
    assert_eq!(run.hear("cases 2, start a"), Step::Listen(Duration::from_secs(7)));
    run.now += Duration::from_secs(4);
    let step = run.monitor.line(run.now, "I am well");
    assert_eq!(step, Step::Listen(Duration::from_secs(7)));
    assert_eq!(run.hear("passed a"), Step::Reset, "an event that comes too late");
    assert_eq!(run.verdicts(), [("a", "HUNG")]);
    assert_eq!(run.results().cases[0].log, ["I am well"]);
}

#[test]
fn a_hang_is_mended_once() {
    let mut run = run();
    run.hear("cases 4, start a, passed a, start b");
    assert_eq!(run.silence(5), Step::Reset);
    assert_eq!(run.monitor.after(), Some("b"));
    assert_eq!(run.restart(), Step::Listen(run.now + LIMITS.start));
    run.hear("cases 2, start c, passed c, start d");
    assert_eq!(run.silence(5), Step::Over);
    assert_eq!(run.verdicts(), [("a", "passed"), ("b", "HUNG"), ("c", "passed"), ("d", "HUNG")]);
    assert!(matches!(&run.results().ending, Ending::Broken(why) if why.contains("same reason")));
    assert_eq!(run.results().resets, ["hung: no event for 5 s, in b"]);
    assert!(!run.results().is_good(false));
}

#[test]
fn a_hang_and_a_death_are_mended_each() {
    let mut run = run();
    run.hear("cases 3, start a");
    assert_eq!(run.silence(5), Step::Reset);
    run.restart();
    run.hear("cases 2, start b");
    assert_eq!(run.closed(), Step::Reset);
    run.restart();
    assert_eq!(run.hear("cases 1, start c, passed c, done"), Step::Over);
    assert_eq!(run.results().ending, Ending::Done);
    assert_eq!(run.verdicts(), [("a", "HUNG"), ("b", "DIED"), ("c", "passed")]);
    assert!(!run.results().is_good(false), "lost cases are no success");
}

#[test]
fn a_loss_outside_of_cases_is_no_success() {
    for lines in ["", "cases 1", "cases 1, start a, passed a"] {
        let mut run = run();
        if !lines.is_empty() {
            run.hear(lines);
        }
        assert_eq!(run.closed(), Step::Reset, "{lines}");
        run.restart();
        let rest =
            if lines.contains("passed") { "cases 0, done" } else { "cases 1, start a, passed a, done" };
        run.hear(rest);
        assert_eq!(run.results().ending, Ending::Done, "{lines}");
        assert_eq!(run.results().problems.len(), 1, "{lines}");
        assert!(!run.results().is_good(false), "{lines}");
    }
}

#[test]
fn the_whole_run_has_a_limit_too() {
    let mut run = run();
    run.hear("cases 1000, start a");
    for _ in 0..30 {
        run.now += Duration::from_secs(4);
        run.monitor.line(run.now, "hil: measured a: b = 1");
    }
    assert!(matches!(&run.results().ending, Ending::Broken(why) if why.contains("longer than 100 s")));
    assert_eq!(run.verdicts(), [("a", "HUNG")]);
    assert_eq!(run.closed(), Step::Over);
    assert_eq!(run.restart(), Step::Over);
}

#[test]
fn no_board_is_a_skip_unless_one_is_required() {
    let mut run = run();
    assert_eq!(run.hear("no device: none here"), Step::Over);
    assert_eq!(run.results().ending, Ending::Unreachable("none here".into()));
    assert!(run.results().is_good(false));
    assert!(!run.results().is_good(true));
}

#[test]
fn a_device_that_goes_in_mid_run_is_a_failure() {
    let mut run = run();
    run.hear("cases 2, start a");
    run.closed();
    run.restart();
    assert_eq!(run.hear("no device: it fell off"), Step::Over);
    assert!(!run.results().is_good(false));
}

#[test]
fn a_required_capability_must_be_there_and_a_promised_one_should() {
    let required = || vec!["xts".to_owned()];
    let mut monitor = Monitor::new("fake", LIMITS, required(), vec![]);
    monitor.line(Duration::ZERO, "hil: capability signature");
    assert_eq!(monitor.line(Duration::ZERO, "hil: cases 1"), Step::Over);
    assert!(matches!(&monitor.results().ending, Ending::Broken(why) if why.contains("--require xts")));
    let mut monitor = Monitor::new("fake", LIMITS, vec![], required());
    let step = monitor.line(Duration::ZERO, "hil: cases 1");
    assert_eq!(step, Step::Listen(LIMITS.case));
    assert_eq!(monitor.results().problems, ["the board lacks xts, which its description promises"]);
    let mut monitor = Monitor::new("fake", LIMITS, required(), required());
    monitor.line(Duration::ZERO, "hil: capability xts");
    monitor.line(Duration::ZERO, "hil: cases 1");
    assert_eq!(monitor.results().problems, [""; 0]);
}

#[test]
fn what_breaks_the_rules_is_told_and_is_no_success() {
    for (lines, problem) in [
        ("cases 1, passed a, start a, passed a", "a ended without running"),
        ("cases 2, start a, passed a", "the board ended 1 cases early"),
        ("cases 2, start a, passed a, start a, passed a", "a ended twice"),
        ("cases 1, start a, measured b: c = d, passed a", "b measured without running"),
        ("cases 1, cases 2, start a, passed a", "1 cases were announced first, now 2"),
        ("start a, passed a", "the board reports more cases than it announced"),
        ("cases 1, start a, passed a, start b, passed b", "the board reports more cases than it announced"),
        ("cases 4000000000", "the board announces 4000000000 cases"),
        ("cases 0", "no case matches the filter"),
        ("cases 1, skipped a: lacks b", "no case passed"),
    ] {
        let mut run = run();
        run.hear(lines);
        assert_eq!(run.hear("done"), Step::Over, "{lines}");
        let faults = run.results().faults(false);
        assert!(faults.iter().any(|fault| fault == problem), "{lines}: {faults:?}");
        assert!(!run.results().is_good(false), "{lines}");
    }
}

#[test]
fn a_case_without_a_verdict_has_failed() {
    let mut run = run();
    run.hear("cases 3, start a, start b, skipped c: lacks d, done");
    assert_eq!(run.verdicts(), [("a", "FAILED"), ("b", "FAILED"), ("c", "SKIPPED")]);
    assert_eq!(run.results().cases[0].verdict.reason(), Some("no verdict before b"));
}

#[test]
fn floods_do_not_fill_the_memory() {
    let mut run = run();
    run.hear("cases 2, start a");
    for count in 0..10_000 {
        run.monitor.line(run.now, &format!("hil: measured a: {count} = {}", "x".repeat(100)));
        run.monitor.line(run.now, &"y".repeat(10_000));
        run.monitor.line(run.now, "hil: passed nothing");
        run.monitor.line(run.now, "hil: capability many");
    }
    run.hear("failed a: why, start b, passed b, done");
    let results = run.results();
    assert_eq!(results.cases[0].measured.len(), MEASURED);
    assert_eq!(results.cases[0].log.len(), LOG);
    assert_eq!(results.cases[0].log[0].len(), TEXT);
    assert_eq!(results.problems.len(), PROBLEMS + 1);
    assert_eq!(results.capabilities, ["many"]);
}

#[test]
fn what_a_terminal_would_obey_is_dropped() {
    let mut run = run();
    run.hear("cases 1, start a, failed a: \x1b[31mred\x07");
    assert_eq!(run.results().cases[0].verdict.reason(), Some("[31mred"));
}

proptest! {
    /// After any output of the board, the run ends in time, and its results are consistent.
    #[test]
    fn any_board_ends(
        told in prop::collection::vec((0_u64..8, prop_oneof![
            (0_u32..5).prop_map(|count| format!("hil: cases {count}")),
            "hil: (start|passed) [abc]",
            "hil: (failed|skipped|measured) [abc]: x = y",
            "hil: (done|no device: x|capability [abc])",
            ".{0,20}",
            Just("closed".to_owned()),
        ]), 0..60)
    ) {
        let mut run = run();
        let mut resets = 0;
        for (seconds, line) in told {
            run.now += Duration::from_secs(seconds);
            let step = if line == "closed" { run.closed() } else { run.monitor.line(run.now, &line) };
            match step {
                Step::Listen(until) => prop_assert!(until > run.now),
                Step::Reset => {
                    resets += 1;
                    run.restart();
                }
                Step::Over => break,
            }
        }
        // The monitor asks for one reset at most after a hang, and for one at most after a death.
        prop_assert!(resets <= 2);
        prop_assert_eq!(run.results().resets.len(), resets);
        for _ in 0..3 {
            if run.silence(1_000) == Step::Reset {
                run.restart();
            }
        }
        prop_assert_eq!(run.silence(0), Step::Over);
        let results = run.results();
        prop_assert!(results.cases.len() <= results.announced);
        if results.is_good(true) {
            prop_assert!(results.missing() == 0 && results.resets.is_empty());
        }
    }
}
