//! The report of a validation as one self-contained HTML page.

use super::machine::{Property, Weight};
use super::record::{Answer, Case, LoopbackResult, Record, unasked};
use std::fmt::{self, Write as _};
use xtask::html::Escaped;

pub(super) fn page(record: &Record) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut page, record);
    page
}

fn write(page: &mut String, record: &Record) -> fmt::Result {
    let device = record.property("device").unwrap_or("no device");
    let nature = record.property("nature").unwrap_or("unknown");
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Validation of {0}: {1}</title>\n\
         <style>\n{2}{3}</style>\n</head>\n<body>\n<header>\n<h1>Validation of {0}</h1>\n",
        Escaped(device),
        if record.is_good() { "passed" } else { "failed" },
        include_str!("../report/report.css"),
        include_str!("page.css"),
    )?;
    if record.is_hardware() {
        writeln!(page, "<p>The device is hardware.</p>")?;
    } else {
        writeln!(
            page,
            "<p class=\"warning\">Not hardware: {}. Nothing on this page is a fact about a ConnectX or a \
             BlueField.</p>",
            Escaped(nature)
        )?;
    }
    summary(page, record)?;
    page.push_str("</header>\n<main>\n");
    checks(page, record)?;
    properties(page, "The device", &record.device)?;
    properties(page, "The machine", &record.machine)?;
    properties(page, "The run", &record.run)?;
    failures(page, record)?;
    answers(page, &record.answers())?;
    own(page, record)?;
    loopback(page, record)?;
    cases(page, record)?;
    write!(page, "</main>\n<script>\n{}</script>\n</body>\n</html>\n", include_str!("../report/report.js"))
}

fn summary(page: &mut String, record: &Record) -> fmt::Result {
    let bad = record.cases.iter().filter(|case| case.is_bad()).count();
    writeln!(
        page,
        "<section class=\"board {}\"><p>{} of {} cases: {} passed, {bad} failed, {} skipped.</p>",
        if record.is_good() { "passed" } else { "failed" },
        record.cases.len(),
        record.announced,
        record.count("passed"),
        record.count("SKIPPED"),
    )?;
    page.push_str("<ul>\n");
    for fault in &record.faults {
        writeln!(page, "<li>FAILED: {}</li>", Escaped(fault))?;
    }
    for remark in &record.remarks {
        writeln!(page, "<li>{}</li>", Escaped(remark))?;
    }
    page.push_str("</ul></section>\n");
    Ok(())
}

fn checks(page: &mut String, record: &Record) -> fmt::Result {
    page.push_str("<h2>What the run needs</h2>\n<dl>\n");
    for check in &record.checks {
        let word = match check.weight {
            Weight::Good => "good",
            Weight::Hint => "to do",
            Weight::Missing => "missing",
        };
        writeln!(page, "<dt>{}</dt><dd>{word}: {}</dd>", Escaped(&check.what), Escaped(&check.words))?;
    }
    page.push_str("</dl>\n");
    Ok(())
}

fn properties(page: &mut String, title: &str, properties: &[Property]) -> fmt::Result {
    writeln!(page, "<h2>{title}</h2>\n<dl>")?;
    for (what, value) in properties {
        writeln!(page, "<dt>{}</dt><dd>{}</dd>", Escaped(what), Escaped(value))?;
    }
    page.push_str("</dl>\n");
    Ok(())
}

fn failures(page: &mut String, record: &Record) -> fmt::Result {
    page.push_str("<h2>Failures</h2>\n");
    let bad: Vec<&Case> = record.cases.iter().filter(|case| case.is_bad()).collect();
    if bad.is_empty() {
        page.push_str("<p>None.</p>\n");
    }
    let kinds = kinds(&bad);
    if kinds.len() < bad.len() {
        page.push_str(
            "<p>Failures of one kind often have one cause. The deviations without their numbers:</p>\n<ul>\n",
        );
        for (kind, names) in &kinds {
            let (count, names) = (names.len(), names.join(", "));
            writeln!(page, "<li><b>{count} × {}</b>: {}</li>", Escaped(kind), Escaped(&names))?;
        }
        page.push_str("</ul>\n");
    }
    for case in bad {
        failure(page, case)?;
    }
    Ok(())
}

/// Groups failed cases by the kind of their deviation (the reason of the failure). Returns each kind with the
/// names of its cases, the most frequent kind first. The kind is the end of the text, without numbers and
/// lists of bytes. The beginning of the text only names the failed step of the case.
fn kinds<'a>(bad: &[&'a Case]) -> Vec<(String, Vec<&'a str>)> {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for case in bad {
        let parts: Vec<&str> = case.reason.split(": ").collect();
        let end = parts.get(parts.len().saturating_sub(2)..).unwrap_or_default().join(": ");
        let kind = without_numbers(&end);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.push(&case.name),
            None => kinds.push((kind, vec![&case.name])),
        }
    }
    kinds.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    kinds
}

/// Replaces each number, and each list in brackets, by an ellipsis.
fn without_numbers(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '[' => rest.find(']').map_or(rest.len(), |end| end + 1),
            '0'..='9' => rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len()),
            _ => 0,
        };
        match rest.split_at_checked(length) {
            Some((_, behind)) if length > 0 => {
                kept.push('…');
                rest = behind;
            }
            _ => {
                kept.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
    }
    kept
}

/// Writes the section about a failed case: its deviation, its requirements, and the requests and completions
/// in its log.
fn failure(page: &mut String, case: &Case) -> fmt::Result {
    write!(
        page,
        "<section class=\"board failed\"><h3>{}: {}</h3>\n<p>The case shows: {}</p>\n",
        Escaped(&case.verdict),
        Escaped(&case.name),
        Escaped(&case.sentence),
    )?;
    writeln!(page, "<p><b>The deviation: {}</b></p>", Escaped(&case.reason))?;
    if !case.requirements.is_empty() {
        page.push_str("<p>What was expected, and its source:</p>\n<ul>\n");
        for requirement in &case.requirements {
            writeln!(
                page,
                "<li>{} ({}): {}</li>",
                Escaped(&requirement.number),
                Escaped(&requirement.source),
                Escaped(&requirement.text)
            )?;
        }
        page.push_str("</ul>\n");
    }
    let (mut states, mut requests, mut completions, mut other) = (vec![], vec![], vec![], vec![]);
    for line in &case.log {
        let place = if line.starts_with("completion") {
            &mut completions
        } else if line.starts_with("queue pair ") && line.contains(": block ") {
            &mut requests
        } else if line.starts_with("queue pair ") {
            &mut states
        } else {
            &mut other
        };
        place.push(line.as_str());
    }
    for (title, lines) in [
        ("Queue pairs at the end of the case", states),
        ("Their last requests", requests),
        ("The last completions", completions),
        ("Other lines", other),
    ] {
        if !lines.is_empty() {
            writeln!(page, "<p>{title}:</p>\n<pre>{}</pre>", Escaped(&lines.join("\n")))?;
        }
    }
    if let Some(again) = &case.again {
        writeln!(page, "<p>Again:</p>\n<pre>{}</pre>", Escaped(again))?;
    }
    page.push_str("</section>\n");
    Ok(())
}

fn answers(page: &mut String, answers: &[Answer<'_>]) -> fmt::Result {
    page.push_str(
        "<h2>Assumptions and open questions</h2>\n<p>No public source states these behaviours. DEVICE.md of \
         the repository lists them.</p>\n<table class=\"answers\">\n<thead><tr><th>Question</th>\
         <th>This device</th><th>The assumption</th><th>As assumed</th><th>Case</th></tr></thead>\n<tbody>\n",
    );
    for answer in answers {
        let holds = match answer.holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "compare",
        };
        writeln!(
            page,
            "<tr><td>{}</td><td><b>{}</b></td><td>{}</td><td>{holds}</td><td>{}</td></tr>",
            Escaped(&answer.question),
            Escaped(&answer.found),
            Escaped(&answer.assumed),
            Escaped(answer.case),
        )?;
    }
    page.push_str(
        "</tbody>\n</table>\n<h3>Assumptions that no case asks</h3>\n<table>\n<thead><tr>\
         <th>The assumption</th><th>Why no case asks</th></tr></thead>\n<tbody>\n",
    );
    for (assumption, reason) in unasked() {
        writeln!(page, "<tr><td>{}</td><td>{}</td></tr>", Escaped(assumption), Escaped(reason))?;
    }
    page.push_str("</tbody>\n</table>\n");
    Ok(())
}

fn own(page: &mut String, record: &Record) -> fmt::Result {
    page.push_str(
        "<h2>The cost of a request on this core</h2>\n<p>The library alone, from native values to the \
         doorbell, without a device: hil-tests/benches/README.md of the repository describes the works. \
         Where this machine counts no instructions for programs, the table has the count that the \
         repository records for a core of this architecture.</p>\n\
         <table class=\"numbers\">\n<thead><tr><th>Work</th><th>requests for a doorbell</th><th>ns</th>\
         <th>instructions</th></tr></thead>\n<tbody>\n",
    );
    for own in &record.own {
        let instructions = match (own.instructions, own.recorded) {
            (Some(count), _) => format!("{count:.0}"),
            (None, Some(count)) => format!("{count:.0} (recorded)"),
            (None, None) => "–".into(),
        };
        writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{:.1}</td><td>{instructions}</td></tr>",
            Escaped(&own.work),
            own.batch,
            own.nanoseconds
        )?;
    }
    page.push_str("</tbody>\n</table>\n");
    Ok(())
}

fn loopback(page: &mut String, record: &Record) -> fmt::Result {
    page.push_str(
        "<h2>I/Os over the device's loopback</h2>\n<p>RDMA WRITEs from this process to itself by one queue \
         pair, plain or through an mkey that is configured for each: 16 in flight for the rate, one for the \
         latency.</p>\n<table class=\"numbers\">\n<thead><tr><th>Kind</th><th>bytes</th><th>I/Os per second\
         </th><th>MB/s</th><th>median µs</th><th>99 % µs</th><th>longest µs</th></tr></thead>\n<tbody>\n",
    );
    for row in &record.loopback {
        write!(page, "<tr><td>{}</td><td>{}</td>", Escaped(&row.kind), row.bytes)?;
        match &row.result {
            LoopbackResult::Measured { ios_per_second, microseconds: [median, most, longest] } => writeln!(
                page,
                "<td>{ios_per_second:.0}</td><td>{:.1}</td><td>{median:.1}</td><td>{most:.1}</td>\
                 <td>{longest:.1}</td></tr>",
                ios_per_second * row.bytes as f64 / 1e6
            )?,
            LoopbackResult::Skipped(reason) => {
                writeln!(page, "<td colspan=\"5\">skipped: {}</td></tr>", Escaped(reason))?;
            }
        }
    }
    page.push_str("</tbody>\n</table>\n");
    Ok(())
}

fn cases(page: &mut String, record: &Record) -> fmt::Result {
    page.push_str(
        "<h2>All cases</h2>\n<table>\n<thead><tr><th>Verdict</th><th>Case</th><th>ms</th><th>What it shows\
         </th></tr></thead>\n<tbody>\n",
    );
    for case in &record.cases {
        write!(
            page,
            "<tr class=\"{}\"><td>{}</td><td>{}</td><td>{}</td><td>{}",
            case.verdict.to_lowercase(),
            Escaped(&case.verdict),
            case.name.split('_').map(|word| Escaped(word).to_string()).collect::<Vec<_>>().join("_<wbr>"),
            case.milliseconds,
            Escaped(&case.sentence)
        )?;
        if !case.reason.is_empty() {
            write!(page, " <b>{}</b>", Escaped(&case.reason))?;
        }
        page.push_str("</td></tr>\n");
    }
    page.push_str("</tbody>\n</table>\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::{Case, page};

    #[test]
    fn a_failure_is_explained() {
        let page = page(&record("hardware"));
        for part in [
            "<h1>Validation of mlx5_0</h1>",
            "The device is hardware.",
            "The case shows: ",
            "The deviation: by request: no &lt;access&gt; error",
            " (CFG 147): ",
            "<pre>queue pair 0x77: Error, the device is at block 3</pre>",
            "<pre>queue pair 0x77: block 2: RDMA_READ</pre>",
            "<pre>completion of queue pair 0x77: request 1 failed</pre>",
            "<pre>./validate mlx5_0 --filter r030_what --ways request</pre>",
            "<td>a right that is denied</td><td><b>0x13</b></td><td>0x12</td><td>NO</td>",
            "<h3>Assumptions that no case asks</h3>",
            "<td>io_list4</td><td>1</td><td>15.2</td><td>273</td>",
            "<td>812345</td><td>3327.4</td><td>1.5</td>",
            "skipped: the device does not encrypt",
        ] {
            assert!(page.contains(part), "{part}:\n{page}");
        }
        assert!(!page.contains("<access>"));
    }

    #[test]
    fn failures_are_counted_by_their_kind() {
        let mut record = record("hardware");
        let bad = record.cases.iter().find(|case| case.is_bad()).unwrap().clone();
        let case = |name: &str, reason: &str| {
            let (name, reason) = (name.to_owned(), reason.to_owned());
            Case { name, reason, log: vec!["queue pair 0x7: RTS".into()], ..bad.clone() }
        };
        record.cases = vec![
            case("r001_one", "by request: Send: byte 7 on: [9a, 1], expected [9b]"),
            case("r002_other", "by request: the transfer failed: local protection error"),
            case("r003_one", "by batch: Receive: byte 0x1f on: [], expected [1, 2]"),
        ];
        record.cases[0].log.push("completion: SIG_ERR".into());
        let page = page(&record);
        assert!(page.contains("<li><b>2 × byte … on: …, expected …</b>: r001_one, r003_one</li>"), "{page}");
        assert!(page.contains("<b>1 × the transfer failed: local protection error</b>"), "{page}");
        assert!(page.contains("<pre>completion: SIG_ERR</pre>"), "{page}");
    }

    #[test]
    fn a_software_device_is_never_called_hardware() {
        let page = page(&record("a software device of mlx5-mkey, no hardware"));
        assert!(page.contains("Not hardware: a software device of mlx5-mkey"), "{page}");
        assert!(!page.contains("The device is hardware"));
    }
}
