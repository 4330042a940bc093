//! Prints the results of `cargo xtask demo`. The module `hil_tests::demo` computes them.

use hil_tests::demo::examples::Example;
use hil_tests::demo::faults::Fault;
use hil_tests::demo::file::{APP_TAG, BLOCK, FIRST_LBA, Report, UNIT};
use hil_tests::demo::rows::{Moved, Outcome, Way};
use hil_tests::qp_pair::{Rx, Tx};
use mlx5_mkey::inspect::{DeviceContext, Style, WorkRequest};
use mlx5_mkey::mkey::XtsEngine;
use std::io::{self, IsTerminal, Write};

pub(super) const WIDTH: usize = 100;

/// Writes words, in colour (`true`) or without.
#[derive(Clone, Copy)]
pub(super) struct Painter(pub(super) bool);

/// The appearance of a word: colour and weight.
#[derive(Clone, Copy)]
enum Look {
    Title,
    Right,
    Wrong,
    Faint,
}

impl Painter {
    /// Returns a painter for standard output: with colour on a terminal, unless the user asks for none
    /// (no-color.org).
    pub(super) fn for_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(io::stdout().is_terminal() && !refused)
    }

    fn paint(self, look: Look, text: &str) -> String {
        let code = match look {
            Look::Title => "1",
            Look::Right => "32",
            Look::Wrong => "1;31",
            Look::Faint => "2",
        };
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }

    fn verdict(self, right: bool) -> String {
        if right { self.paint(Look::Right, "correct") } else { self.paint(Look::Wrong, "WRONG  ") }
    }
}

/// The results of all parts of the demo, for its last lines.
#[derive(Default)]
pub(super) struct Summary {
    examples: usize,
    rows: usize,
    /// Number of bytes of the file, or `None` if its transfer failed.
    bytes: Option<u64>,
    /// The errors, a line for each.
    pub(super) wrong: Vec<String>,
}

impl Summary {
    pub(super) fn add_example(&mut self, example: &Example, seen: &Result<String, String>) {
        self.examples += 1;
        if let Err(wrong) = seen {
            self.wrong.push(format!("{}, {}: {wrong}", example.page, example.name));
        }
    }

    pub(super) fn add_row(&mut self, outcome: &Outcome) {
        self.rows += 1;
        for moved in &outcome.moved {
            if let Err(wrong) = &moved.verdict {
                let (direction, way) = way_words(moved.way);
                self.wrong.push(format!("row {}, {direction} {way}: {wrong}", outcome.row.letter));
            }
        }
        // Each method moves the data once for each signature order. If both fail with the same error, the
        // error is listed once.
        self.wrong.dedup();
    }

    pub(super) fn add_file(&mut self, report: &Report) {
        self.bytes = report.wrong.is_none().then_some(report.bytes);
        self.wrong.extend(report.wrong.iter().map(|wrong| format!("file: {wrong}")));
    }
}

fn heading(out: &mut impl Write, painter: Painter, text: &str) -> io::Result<()> {
    writeln!(out, "\n{}", painter.paint(Look::Title, text))
}

pub(super) fn title(out: &mut impl Write, painter: Painter, fault: Option<&Fault>) -> io::Result<()> {
    let title = "mlx5-mkey on the software device; every verdict compares with bytes computed elsewhere";
    writeln!(out, "{}", painter.paint(Look::Title, title))?;
    if let Some(fault) = fault {
        let hope = if fault.shown { "This must fail." } else { "The demo does not show it." };
        let text = format!("The device is broken on purpose: {}. {hope}", fault.name());
        writeln!(out, "{}", painter.paint(Look::Wrong, &text))?;
    }
    Ok(())
}

pub(super) fn examples_head(out: &mut impl Write, painter: Painter) -> io::Result<()> {
    heading(out, painter, "Examples of the manual pages")
}

/// Prints the result of one example. Before the first example of a man page, also prints the name of the
/// page.
pub(super) fn example(
    out: &mut impl Write,
    painter: Painter,
    example: &Example,
    seen: &Result<String, String>,
) -> io::Result<()> {
    let first = hil_tests::demo::examples::EXAMPLES.iter().find(|other| other.page == example.page);
    if first.is_some_and(|first| first.name == example.name) {
        writeln!(out, "{}", example.page)?;
    }
    let verdict = painter.verdict(seen.is_ok());
    writeln!(out, "  {verdict}  {:<23}  {}", example.name, example.what)?;
    let (Ok(text) | Err(text)) = seen;
    for line in wrap(text, WIDTH - 13) {
        let look = if seen.is_ok() { Look::Faint } else { Look::Wrong };
        writeln!(out, "{:13}{}", "", painter.paint(look, &line))?;
    }
    Ok(())
}

/// Prints the heading of the table of rows (combinations of cipher and signature).
pub(super) fn rows_head(out: &mut impl Write, painter: Painter) -> io::Result<()> {
    heading(
        out,
        painter,
        "Cipher and signature: the table of mlx5dv_wr_set_mkey_crypto, blocks of 512 bytes",
    )?;
    writeln!(
        out,
        "  {:<4} {:<14} {:<14} {:<29}  {:<12}  verdict",
        "row", "memory", "wire", "direction", "memory, wire"
    )
}

/// Prints the result of one row of the man page's table: a line for each direction.
pub(super) fn row(out: &mut impl Write, painter: Painter, outcome: &Outcome) -> io::Result<()> {
    for direction in ["TX", "RX"] {
        let moved: Vec<&Moved> =
            outcome.moved.iter().filter(|moved| way_words(moved.way).0 == direction).collect();
        let mut ways: Vec<&str> = moved.iter().map(|moved| way_words(moved.way).1).collect();
        ways.dedup();
        let ways = format!("{direction} {}", ways.join(", "));
        let (memory, wire) = (outcome.memory_bytes, outcome.wire_bytes);
        let lengths =
            if direction == "TX" { format!("{memory} -> {wire}") } else { format!("{memory} <- {wire}") };
        let right = moved.iter().all(|moved| moved.verdict.is_ok());
        let first = moved.first().map(|moved| moved.order);
        let both = moved.iter().any(|moved| Some(moved.order) != first);
        let orders = if both { "2 orders" } else { "" };
        let line = format!(
            "  {:<4} {:<14} {:<14} {ways:<29}  {lengths:<12}  {} {orders}",
            outcome.row.letter,
            outcome.row.memory,
            outcome.row.wire,
            painter.verdict(right)
        );
        writeln!(out, "{}", line.trim_end())?;
        let mut wrong: Vec<String> = moved
            .iter()
            .filter_map(|moved| Some((way_words(moved.way).1, moved.verdict.as_ref().err()?)))
            .map(|(way, wrong)| format!("{way}: {wrong}"))
            .collect();
        // If a method fails with the same error in both signature orders, the error is printed once.
        wrong.dedup();
        for line in wrong.iter().flat_map(|text| wrap(text, WIDTH - 7)) {
            writeln!(out, "{:7}{}", "", painter.paint(Look::Wrong, &line))?;
        }
    }
    Ok(())
}

fn way_words(way: Way) -> (&'static str, &'static str) {
    match way {
        Way::Tx(Tx::Send) => ("TX", "send"),
        Way::Tx(Tx::Write) => ("TX", "write"),
        Way::Tx(Tx::PeerRead) => ("TX", "peer reads"),
        Way::Rx(Rx::Receive) => ("RX", "receive"),
        Way::Rx(Rx::PeerWrite) => ("RX", "peer writes"),
        Way::Rx(Rx::Read) => ("RX", "read"),
    }
}

pub(super) fn file(out: &mut impl Write, painter: Painter, name: &str, report: &Report) -> io::Result<()> {
    heading(out, painter, &format!("A file there and back: {name} (row C)"))?;
    let (bytes, blocks, transfers) = (report.bytes, report.blocks, report.transfers);
    writeln!(
        out,
        "  {} in {} of {BLOCK}, T10-DIF (application tag {APP_TAG:04x}, reference tag from {FIRST_LBA:x}),",
        count(bytes, "byte"),
        count(blocks, "block")
    )?;
    writeln!(
        out,
        "  AES-XTS-256 over units of {UNIT} (tweak from {FIRST_LBA:x}): {} bytes on the wire, {}",
        blocks * UNIT as u64,
        count(transfers, "transfer")
    )?;
    if bytes == 0 && report.wrong.is_none() {
        return writeln!(out, "  The file is empty: there is nothing to send.");
    }
    details(out, painter, report)?;
    match &report.wrong {
        Some(wrong) => {
            for line in wrap(wrong, WIDTH - 11) {
                writeln!(out, "  {}  {}", painter.verdict(false), painter.paint(Look::Wrong, &line))?;
            }
        }
        None => {
            let padding = match report.padding {
                0 => "no padding was needed".to_string(),
                padding => format!("{} of padding cut off", count(padding as u64, "byte")),
            };
            writeln!(out, "  {}  received file equals the one sent, {padding}", painter.verdict(true))?;
            // The transfer of a smaller file takes too little time for a meaningful rate.
            if bytes >= 1_000_000 {
                let rate = 2.0 * bytes as f64 / 1e6 / report.device_time.as_secs_f64().max(1e-9);
                writeln!(
                    out,
                    "           software device: {rate:.2} MB/s, both directions (for information)"
                )?;
            }
        }
    }
    heading(out, painter, "The first work request")?;
    write!(out, "{}", show_wqe(&report.wqe, painter))
}

fn details(out: &mut impl Write, painter: Painter, report: &Report) -> io::Result<()> {
    for (what, lengths) in [("sent from", &report.source), ("received into", &report.target)] {
        let list = lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ");
        writeln!(out, "  {what:<13} {} buffers: {list} bytes", lengths.len())?;
    }
    if !report.wire.is_empty() {
        writeln!(out, "  file, first bytes")?;
        write!(out, "{}", hex(&report.head))?;
        writeln!(out, "  wire, first bytes")?;
        write!(out, "{}", hex(&report.wire))?;
    }
    for spoilt in &report.spoilt {
        let verdict = painter.verdict(spoilt.caught.is_ok());
        let said = match &spoilt.caught {
            Ok(error) => error.to_string(),
            Err(wrong) => painter.paint(Look::Wrong, wrong),
        };
        writeln!(out, "  {verdict}  wire byte {} bit {} turned over:", spoilt.byte, spoilt.bit)?;
        writeln!(out, "           {said}")?;
    }
    Ok(())
}

/// Prints all errors, the verdict, and what to do next.
pub(super) fn summary(out: &mut impl Write, painter: Painter, summary: &Summary) -> io::Result<()> {
    let Summary { examples, rows, bytes, wrong } = summary;
    writeln!(out)?;
    let verdict = if wrong.is_empty() {
        painter.paint(Look::Right, "all correct")
    } else {
        writeln!(out, "Wrong:")?;
        for line in wrong.iter().flat_map(|text| wrap(text, WIDTH - 2)) {
            writeln!(out, "  {line}")?;
        }
        painter.paint(Look::Wrong, &format!("{} wrong", wrong.len()))
    };
    let file = bytes.map_or("a file".into(), |bytes| format!("file of {bytes} bytes"));
    writeln!(out, "demo: {examples} examples, {rows} rows, {file}: {verdict}")?;
    NEXT.iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// The last lines of the demo: what its results show, and commands to continue with.
const NEXT: [&str; 11] = [
    "",
    "Shown: a software device has read the library's work requests from a ring, byte for byte as a",
    "ConnectX or BlueField would, and has signed, checked and encrypted data as the manual pages say.",
    "Each result was compared with a computation that shares no code with library and device.",
    "",
    "As pages: requests and both sides of each mkey; the verdicts on all rules of a device:",
    "  cargo xtask emulate --log-json log.json -- cargo run -p hil-tests --example protected_write",
    "  cargo xtask decode --html requests.html log.json",
    "  cargo xtask hil --html rules.html",
    "Next: a program of yours (src/guide/linux.md), a card of yours (src/guide/bluefield.md), or bare",
    "metal (src/guide/bare_metal.md).",
];

/// Returns a number with its noun, in singular or plural, such as `2 blocks`.
fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Decodes a work request, with the names of its fields.
fn show_wqe(bytes: &[u8], painter: Painter) -> String {
    let device = DeviceContext { engine: Some(XtsEngine::MultiBlock), ..DeviceContext::UNKNOWN };
    let style = if painter.0 { Style::Ansi } else { Style::Plain };
    match WorkRequest::parse(bytes) {
        Ok(request) => request.pretty(device, style).to_string(),
        Err(_) => hex(bytes),
    }
}

/// Returns bytes as hex, 16 in a line, with their characters.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let words: Vec<String> =
            chunk.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        let letters: String = chunk
            .iter()
            .map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' })
            .collect();
        text += &format!("    {:04x}  {:<35}  {letters}\n", line * 16, words.join(" "));
    }
    text
}

/// Breaks a text at spaces into lines of at most `width` characters; a longer word stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("a long-word b", 4), ["a", "long-word", "b"]);
        assert!(wrap("", 4).is_empty());
    }

    #[test]
    fn hex_has_16_bytes_a_line() {
        let text = hex(b"0123456789abcdefg\n");
        assert_eq!(
            text,
            "    0000  30313233 34353637 38396162 63646566  0123456789abcdef\n    \
             0010  670a                                 g.\n"
        );
        assert_eq!(hex(&[]), "");
    }
}
