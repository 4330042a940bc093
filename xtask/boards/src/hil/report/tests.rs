//! Tests that reports are well formed for any names and texts of a board.

use super::super::results::{Case, Ending, Results, Verdict};
use super::{html, junit, summary};
use quick_junit::{NonSuccessKind, Report, TestCaseStatus};
use std::time::Duration;

/// Characters that have a meaning in one of the formats.
const NASTY: &str = "<b>&amp;\"']]>--><script>\u{1}\u{fffe}é\n%s{}\\";

fn case(name: &str, verdict: Verdict) -> Case {
    Case {
        name: name.into(),
        verdict,
        took: Duration::from_micros(1500),
        measured: vec![(NASTY.into(), NASTY.into())],
        log: vec![NASTY.into()],
    }
}

fn results() -> Results {
    Results {
        device: NASTY.into(),
        capabilities: vec!["xts".into(), NASTY.into()],
        announced: 5,
        cases: vec![
            case("a", Verdict::Passed),
            case("b", Verdict::Failed(NASTY.into())),
            case("c", Verdict::Skipped(NASTY.into())),
            case(NASTY, Verdict::Hung("no event".into())),
        ],
        resets: vec![NASTY.into()],
        problems: vec![NASTY.into()],
        ..Results::nothing(NASTY, Ending::Broken(NASTY.into()))
    }
}

#[test]
fn the_summary_counts() {
    let text = summary(&results(), false);
    let first = "cases: 1 passed, 1 failed, 1 skipped, 1 hung, 1 reset, 1 not run\n";
    assert!(text.contains(first), "{text}");
    assert!(text.contains("  SKIPPED    1: <b>"), "{text}");
}

#[test]
fn junit_can_be_read_back() {
    let xml =
        junit(&[results(), Results::nothing("gone", Ending::Unreachable("far".into()))], false).unwrap();
    let report = Report::deserialize_from_str(&xml).unwrap();
    // A skip is no failure. A fault of the run counts as a separate error.
    let [first, gone] = &report.test_suites[..] else { panic!("{xml}") };
    assert_eq!((first.tests, first.failures, first.errors, first.skipped), (5, 1, 2, 1));
    assert_eq!((gone.tests, gone.failures, gone.errors, gone.skipped), (1, 0, 0, 1));
    assert!(first.test_cases.iter().any(|case| case.name.contains("<b>&amp;\"']]>--><script>")), "{xml}");
    let hung = TestCaseStatus::non_success(NonSuccessKind::Error);
    assert_eq!(
        std::mem::discriminant(&first.test_cases[3].status),
        std::mem::discriminant(&hung),
        "a hang is an error"
    );
    let required = junit(&[Results::nothing("gone", Ending::Unreachable("far".into()))], true).unwrap();
    assert_eq!(Report::deserialize_from_str(&required).unwrap().errors, 1);
}

#[test]
fn the_page_is_one_file_and_keeps_texts_apart_from_markup() {
    let page = html(&[results()], false, NASTY);
    assert!(!page.contains("<b>&amp;\"'"), "a text of the board stands as it is");
    assert!(page.contains("&lt;b&gt;&amp;amp;&quot;&#39;]]&gt;--&gt;&lt;script&gt;"));
    assert_eq!(page.matches("<script>").count(), 1);
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // Every opening tag has a closing tag.
    for tag in ["section", "table", "tr", "td", "th", "ul", "li", "details", "div", "label", "nav", "main"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn names_break_between_words_only() {
    let results = Results { cases: vec![case("r1_a<b::c", Verdict::Passed)], ..results() };
    let page = html(&[results], false, "");
    assert!(page.contains("<td>r1_<wbr>a&lt;b:<wbr>:<wbr>c</td>"), "{page}");
    for anywhere in ["overflow-wrap", "word-break", "word-wrap", "hyphens"] {
        assert!(!page.contains(anywhere), "{anywhere}");
    }
}
