//! The results as one self-contained HTML file.

use super::super::results::{Case, Ending, Results, Verdict};
use std::fmt::{self, Write as _};
use xtask::html::Escaped;

/// Returns the page. If `board_required`, a board that cannot be reached counts as failed. `origin` is date,
/// version and commit of the run.
pub(crate) fn html(all: &[Results], board_required: bool, origin: &str) -> String {
    let mut page = String::new();
    let good = all.iter().all(|results| results.is_good(board_required));
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>hil: {}</title>\n\
         <style>\n{}</style>\n</head>\n\
         <body>\n<header>\n<h1>Hardware in the loop</h1>\n<p>{}</p>\n",
        if good { "passed" } else { "failed" },
        include_str!("report.css"),
        Escaped(origin),
    );
    for results in all {
        let _ = heading(&mut page, results, board_required);
    }
    let _ = controls(&mut page, all);
    page.push_str("</header>\n<main>\n");
    for results in all {
        let _ = table(&mut page, results);
    }
    let _ = write!(page, "</main>\n<script>\n{}</script>\n</body>\n</html>\n", include_str!("report.js"));
    page
}

fn heading(page: &mut String, results: &Results, board_required: bool) -> fmt::Result {
    let skipped = !board_required && matches!(results.ending, Ending::Unreachable(_));
    let class = match results.is_good(board_required) {
        _ if skipped => "skipped",
        true => "passed",
        false => "failed",
    };
    write!(page, "<section class=\"board {class}\">\n<h2>{}</h2>\n", Escaped(&results.board))?;
    if !results.device.is_empty() {
        writeln!(page, "<p>Device: {}</p>", Escaped(&results.device))?;
    }
    about(page, &results.about)?;
    let text = super::summary(results, board_required);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    writeln!(page, "<p>{}</p>", Escaped(first))?;
    if !rest.trim().is_empty() {
        page.push_str("<ul>\n");
        rest.lines().try_for_each(|line| writeln!(page, "<li>{}</li>", Escaped(line.trim())))?;
        page.push_str("</ul>\n");
    }
    for reset in &results.resets {
        writeln!(page, "<p>Reset, since the board {}</p>", Escaped(reset))?;
    }
    if !results.capabilities.is_empty() {
        writeln!(page, "<p class=\"small\">Capabilities: {}</p>", Escaped(&results.capabilities.join(", ")))?;
    }
    page.push_str("</section>\n");
    Ok(())
}

/// Writes the properties of a device as a table that a reader can open.
fn about(page: &mut String, about: &[(String, String)]) -> fmt::Result {
    if about.is_empty() {
        return Ok(());
    }
    page.push_str("<details class=\"about\"><summary>The device in words</summary><dl>\n");
    for (what, value) in about {
        writeln!(page, "<dt>{}</dt><dd>{}</dd>", Escaped(what), Escaped(value))?;
    }
    page.push_str("</dl></details>\n");
    Ok(())
}

/// Writes a checkbox for each verdict that occurs, and a search field.
fn controls(page: &mut String, all: &[Results]) -> fmt::Result {
    page.push_str(
        "<nav>\n<label>Filter <input id=\"text\" type=\"search\" placeholder=\"name or reason\"></label>\n",
    );
    let cases = || all.iter().flat_map(|results| &results.cases);
    for word in ["FAILED", "HUNG", "DIED", "SKIPPED", "passed"] {
        let count = cases().filter(|case| case.verdict.word() == word).count();
        if count > 0 {
            writeln!(
                page,
                "<label class=\"{0}\"><input type=\"checkbox\" value=\"{0}\" checked> {0} {count}</label>",
                word.to_lowercase()
            )?;
        }
    }
    page.push_str("</nav>\n");
    Ok(())
}

fn table(page: &mut String, results: &Results) -> fmt::Result {
    if results.cases.is_empty() {
        return Ok(());
    }
    write!(
        page,
        "<table>\n<caption>{}</caption>\n<thead><tr>\
         <th><button>Verdict</button></th><th><button>Case</button></th><th><button>ms</button></th>\
         <th>What</th>\
         </tr></thead>\n<tbody>\n",
        Escaped(&results.board)
    )?;
    results.cases.iter().try_for_each(|case| row(page, case))?;
    page.push_str("</tbody>\n</table>\n");
    Ok(())
}

fn row(page: &mut String, case: &Case) -> fmt::Result {
    let word = case.verdict.word();
    write!(
        page,
        "<tr class=\"{}\"><td>{word}</td><td>{}</td><td>{}</td><td>",
        word.to_lowercase(),
        Breakable(&case.name),
        match case.verdict {
            Verdict::Skipped(_) => String::new(),
            _ => format!("{:.1}", case.took.as_secs_f64() * 1e3),
        }
    )?;
    if let Some(reason) = case.verdict.reason() {
        write!(page, "{}", Escaped(reason))?;
    }
    for (name, value) in &case.measured {
        write!(page, "<div>{} = <b>{}</b></div>", Escaped(name), Escaped(value))?;
    }
    if !case.log.is_empty() {
        write!(
            page,
            "<details><summary>log</summary><pre>{}</pre></details>",
            Escaped(&case.log.join("\n"))
        )?;
    }
    page.push_str("</td></tr>\n");
    Ok(())
}

/// A name in HTML, in which a line may break only after `_`, `:` or `/`.
struct Breakable<'a>(&'a str);

impl fmt::Display for Breakable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = self.0.split_inclusive(['_', ':', '/']);
        write!(f, "{}", Escaped(words.next().unwrap_or_default()))?;
        words.try_for_each(|word| write!(f, "<wbr>{}", Escaped(word)))
    }
}
