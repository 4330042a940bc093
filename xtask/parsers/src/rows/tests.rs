//! Tests the search for dumps in a text. Each form in which programs such as xxd, od and gdb print rows must
//! be found after each prefix that logs put before a line, such as a time or a host. Dumps with missing rows
//! must not spoil others.

use super::super::hex::{Input, WordOrder, read};
use super::*;
use std::fmt::Write;

/// Returns 64 different bytes, some of them printable characters.
fn block() -> Vec<u8> {
    (0..64).map(|byte| byte * 3 + 1).collect()
}

fn characters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' }).collect()
}

/// Returns bytes as words of `width` bytes in hex: as numbers of a little-endian machine if `little`,
/// otherwise in the order of memory.
fn words(bytes: &[u8], width: usize, little: bool) -> Vec<String> {
    let word = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        if little {
            bytes.reverse();
        }
        bytes.iter().fold(String::new(), |word, byte| format!("{word}{byte:02x}"))
    };
    bytes.chunks(width).map(word).collect()
}

/// A form of rows: a function that prints a row from its offset and its bytes.
type Form = fn(usize, &[u8]) -> String;

fn bytes(row: &[u8]) -> String {
    words(row, 1, false).join(" ")
}

fn forms() -> Vec<(&'static str, Form)> {
    vec![
        ("print_hex_dump", |at, row| format!("{at:08x}: {}", bytes(row))),
        ("print_hex_dump with characters", |at, row| {
            format!("{at:08x}: {}  {}", bytes(row), characters(row))
        }),
        ("upper case", |at, row| format!("{at:08X}: {}", bytes(row).to_uppercase())),
        ("tabs", |at, row| format!("{at:08x}:\t{}", bytes(row).replace(' ', "\t"))),
        ("libmlx5", |_, row| words(row, 4, false).join(" ")),
        ("upper case words", |_, row| words(row, 4, false).join(" ").to_uppercase()),
        ("words with 0x", |_, row| format!("0x{}", words(row, 4, false).join(" 0x"))),
        ("bytes alone", |_, row| bytes(row)),
        ("mlx5_core", |at, row| {
            format!("{at:03x}0: {}", words(row, 4, false).join(" ")).replacen("00:", "0:", 1)
        }),
        ("rte_hexdump", |at, row| format!("{at:08X}: {} | {}", bytes(row).to_uppercase(), characters(row))),
        ("hexdump -C", |at, row| {
            let (left, right) = row.split_at(8);
            format!("{at:08x}  {}  {}  |{}|", bytes(left), bytes(right), characters(row))
        }),
        ("xxd", |at, row| format!("{at:08x}: {}  {}", words(row, 2, false).join(" "), characters(row))),
        ("xxd -g4", |at, row| format!("{at:08x}: {}  {}", words(row, 4, false).join(" "), characters(row))),
        ("xxd -g8", |at, row| format!("{at:08x}: {}  {}", words(row, 8, false).join(" "), characters(row))),
        ("xxd -e", |at, row| format!("{at:08x}: {}  {}", words(row, 4, true).join(" "), characters(row))),
        ("od -A x -t x1", |at, row| format!("{at:06x} {}", bytes(row))),
        ("od -t x1", |at, row| format!("{at:07o} {}", bytes(row))),
        ("od -A d -t x1", |at, row| format!("{at:07} {}", bytes(row))),
        ("od -A x -t x1z", |at, row| format!("{at:06x} {}  >{}<", bytes(row), characters(row))),
        ("tcpdump -xx", |at, row| format!("\t0x{at:04x}:  {}", words(row, 2, false).join(" "))),
        ("wireshark", |at, row| format!("{at:04x}   {}   {}", bytes(row), characters(row))),
        ("gdb x/4xw", |at, row| format!("0x7ffff7d0{at:04x}:\t0x{}", words(row, 4, true).join("\t0x"))),
        ("gdb x/2xg", |at, row| {
            format!("0x7ffff7d0{at:04x} <ring+{at}>:\t0x{}", words(row, 8, true).join("\t0x"))
        }),
        ("gdb x/16xb", |at, row| format!("0x7ffff7d0{at:04x}:\t0x{}", words(row, 1, false).join("\t0x"))),
        ("lldb", |at, row| format!("0x7ffff7d0{at:04x}: {}  {}", bytes(row), characters(row))),
        ("crash rd", |at, row| {
            format!("ffff88810dc2{at:04x}:  {}   {}", words(row, 8, true).join(" "), characters(row))
        }),
        ("crash rd without characters", |at, row| {
            format!("ffff88810dc2{at:04x}:  {}", words(row, 8, true).join(" "))
        }),
        ("crash rd -32", |at, row| {
            format!("ffff88810dc2{at:04x}:  {}   {}", words(row, 4, true).join(" "), characters(row))
        }),
        ("crash rd -8", |at, row| format!("ffff88810dc2{at:04x}:  {}   {}", bytes(row), characters(row))),
    ]
}

/// Prefixes that the kernel, log collectors and tools such as grep write before a line. The test replaces `#`
/// by the number of the row.
const PREFIXES: &[&str] = &[
    "",
    "[  100.00000#] ",
    "[Thu Nov 26 10:00:0# 2026] ",
    "Jan 01 00:00:0# host kernel: ",
    "2026-11-26T10:00:0#+0000 host kernel: ",
    "2026-11-26T10:00:0#.123456Z stderr F ",
    "<4>[  12.00000#] ",
    "kern  :warn  : [  100.00000#] ",
    "[pod/worker-0/main] ",
    "[1,3]<stderr>:",
    "[1,3]<stderr>: ",
    "web_1  | ",
    "node07: ",
    "3: ",
    "dmesg.log:12#:",
    "dmesg.log-12#-",
    "12#:",
    "I1126 10:00:00.00000#   4321 dump.cc:77] ",
    "1700000000.00000# [worker] ",
    "\u{1b}[33m[  100.00000#]\u{1b}[0m ",
    "    ",
    "> ",
    "| ",
];

fn text(prefix: &str, form: Form, bytes: &[u8], end: &str) -> String {
    bytes.chunks(16).enumerate().fold(String::new(), |mut text, (number, row)| {
        let prefix = prefix.replace('#', &number.to_string());
        let _ = write!(text, "{prefix}{}{end}", form(number * 16, row));
        text
    })
}

/// Reads a text that must contain one dump, and returns its bytes.
fn one(text: &str) -> Result<Vec<u8>, String> {
    match read(text.as_bytes().to_vec(), None) {
        Ok(Input::Bytes(bytes)) => Ok(bytes),
        Ok(Input::Dumps(dumps)) if dumps.found.len() == 1 && dumps.faults.is_empty() => {
            Ok(dumps.found[0].bytes.clone())
        }
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn each_form_is_read_behind_each_prefix() {
    let mut wrong = Vec::new();
    for (name, form) in forms() {
        for prefix in PREFIXES {
            for (before, end) in [("", "\n"), ("a line before\n", "\r\n")] {
                let text = format!("{before}{}", text(prefix, form, &block(), end));
                let seen = one(&text);
                if seen != Ok(block()) {
                    wrong.push(format!("{name} behind `{prefix}`: {seen:x?}\n{text}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn dumps_in_quotes_are_read() {
    for (name, form) in forms() {
        // Container log drivers quote each line. Another program quotes all lines in one string.
        let lines = text("", form, &block(), "\n").replace(['"', '\\'], ".");
        let logged = lines.lines().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{{\"log\":\"{line}\\n\",\"stream\":\"stderr\"}}");
            text
        });
        assert_eq!(one(&logged), Ok(block()), "{name}: {logged}");
        let quoted = format!("{{\"level\":\"warn\",\"message\":\"{}\"}}\n", lines.replace('\n', "\\n"));
        assert_eq!(one(&quoted), Ok(block()), "{name}: {quoted}");
    }
}

/// A program may print 64 bytes in one line: as an array, or as Python prints bytes.
#[test]
fn arrays_are_read() {
    let list = |width, prefix: &str| {
        let words = words(&block(), width, false);
        words.iter().map(|word| format!("{prefix}{word}")).collect::<Vec<_>>().join(", ")
    };
    let python = block().iter().fold(String::new(), |text, byte| match byte {
        b'\'' | b'"' | b'\\' => format!("{text}\\{}", char::from(*byte)),
        b'\n' => text + "\\n",
        b' '..=b'~' => format!("{text}{}", char::from(*byte)),
        _ => format!("{text}\\x{byte:02x}"),
    });
    for text in [
        format!("cqe: [{}]", list(1, "")),
        format!("cqe = {{{}}};", list(1, "0x")),
        format!("INFO ring [{}] done", list(4, "0x")),
        words(&block(), 4, false).join(" "),
        format!("<7> cqe {}", words(&block(), 4, false).join(" ")),
        format!("cqe = b'{python}'"),
        format!("b\"{python}\""),
    ] {
        assert_eq!(one(&text), Ok(block()), "{text}");
        assert_eq!(one(&format!("words before\n{text}\nwords behind\n")), Ok(block()), "{text}");
    }
}

#[test]
fn words_of_unknown_order_want_to_be_told() {
    let forms: [(&str, Form, WordOrder); 5] = [
        ("od -x", |at, row| format!("{at:07o} {}", words(row, 2, true).join(" ")), WordOrder::LittleEndian),
        ("hexdump", |at, row| format!("{at:07x} {}", words(row, 2, true).join(" ")), WordOrder::LittleEndian),
        (
            "od -t x4",
            |at, row| format!("{at:06x} {}", words(row, 4, true).join(" ")),
            WordOrder::LittleEndian,
        ),
        (
            "groups of 4",
            |at, row| format!("{at:08x}: {}", words(row, 4, true).join(" ")),
            WordOrder::LittleEndian,
        ),
        (
            "words in memory",
            |at, row| format!("0x7fff{at:06x}:\t0x{}", words(row, 4, false).join("\t0x")),
            WordOrder::Memory,
        ),
    ];
    for (name, form, order) in forms {
        let text = text("", form, &block(), "\n");
        let Ok(Input::Dumps(dumps)) = read(text.clone().into_bytes(), Some(order)) else { panic!("{name}") };
        assert_eq!(dumps.found[0].bytes, block(), "{name}");
        if text.starts_with("000000 ") || text.starts_with("0000000 ") {
            for text in [text.clone(), format!("words\n{text}")] {
                let error = read(text.into_bytes(), None).unwrap_err().to_string();
                assert!(error.contains("the order of bytes in"), "{name}: {error}");
                assert!(error.contains("--words little"), "{name}: {error}");
            }
        }
    }
}

const ROW: &str = "00000000 00000000 00000000 00000000";
const LAST: &str = "00000000 00008813 10012abe 0dd0c1d3";

/// Returns the text that libmlx5 prints for an error completion: a heading, then these rows. Each line begins
/// with the prefix.
fn error(prefix: &str, rows: &[&str]) -> String {
    let heading = format!("{prefix}mlx5: host: got completion with error:\n");
    rows.iter().fold(heading, |text, row| text + prefix + row + "\n")
}

/// Returns rows of zeros at these offsets. Each line begins with the prefix.
fn zeros(prefix: &str, offsets: &[u32]) -> String {
    offsets.iter().map(|offset| format!("{prefix}{offset:08x}: {}\n", "00 ".repeat(16))).collect()
}

/// Returns the lengths of the dumps in a text, and the numbers of the lines with faults.
fn shape(text: &str) -> (Vec<usize>, Vec<usize>) {
    let dumps = find(text, None).unwrap();
    let lengths = dumps.found.iter().map(|dump| dump.bytes.len()).collect();
    (lengths, dumps.faults.iter().map(|(line, _)| *line).collect())
}

#[test]
fn a_dump_that_lacks_rows_spoils_no_other() {
    let whole = error("", &[ROW, ROW, ROW, LAST]);
    // Rows are missing at the end of the first error. The next error has a heading.
    let short = error("", &[ROW, ROW]);
    assert_eq!(shape(&format!("{short}{whole}")), (vec![32, 64], vec![]));
    // A row is incomplete, in the middle or at the end of the dump.
    let cut = error("", &[ROW, "00000000 0000", ROW, LAST]);
    assert_eq!(shape(&format!("{cut}{whole}")), (vec![16, 64], vec![3]));
    assert_eq!(shape(&format!("{whole}{cut}{whole}")), (vec![64, 16, 64], vec![8]));
    let end = error("", &[ROW, ROW, ROW, "00000000 00008813 1001"]);
    assert_eq!(shape(&format!("{end}{whole}")), (vec![48, 64], vec![5]));
    // A row with an offset is missing in the middle.
    let lost = zeros("t ", &[0, 16, 48, 0, 16, 32, 48]);
    assert_eq!(shape(&lost), (vec![32, 64], vec![3]));
    let damaged = zeros("t ", &[0]) + "t 00000010: 00 00 00 00 00 00 00 00 0g\n";
    let damaged = damaged + &zeros("t ", &[32, 0, 16, 32, 48]);
    assert_eq!(shape(&damaged), (vec![16, 64], vec![2]));
}

#[test]
fn rows_of_two_programs_are_read_apart_or_not_at_all() {
    let interleave = |one: &str, other: &str| {
        let lines = one.lines().zip(other.lines()).map(|(one, other)| format!("{one}\n{other}\n"));
        lines.collect::<String>()
    };
    let rows = [ROW, ROW, ROW, LAST];
    let apart = interleave(&error("[1,0]<stderr>:", &rows), &error("[1,1]<stderr>:", &rows));
    assert_eq!(shape(&apart), (vec![64, 64], vec![]));
    let with_time = interleave(&error("[ 1.000001] cpu0 ", &rows), &error("[ 1.000002] cpu1 ", &rows));
    assert_eq!(shape(&with_time), (vec![64, 64], vec![]));
    // Without a prefix, nothing shows to which of the mixed errors a row belongs.
    let mixed = find(&interleave(&error("", &rows), &error("", &rows)), None).unwrap();
    assert_eq!((mixed.found[0].headings, mixed.found[0].bytes.len()), (2, 128));
    let inside = error("", &[ROW, ROW]) + &error("", &[ROW, ROW, ROW, LAST, ROW, LAST]);
    let mixed = find(&inside, None).unwrap();
    assert!(mixed.found.iter().all(|dump| dump.mixed), "{mixed:?}");
    // Mixed rows with offsets are also separated by their prefixes.
    let [one, other] = ["[0] ", "[1] "].map(|prefix| zeros(prefix, &[0, 16, 32, 48]));
    assert_eq!(shape(&interleave(&one, &other)), (vec![64, 64], vec![]));
}

#[test]
fn a_text_without_a_whole_dump_says_why() {
    let refused = |text: &str| read(text.as_bytes().to_vec(), None).unwrap_err().to_string();
    let none = refused("Jan 1 host app: connected\nJan 1 host app: completion with error 12\n");
    assert!(none.starts_with("no line has a row of a dump"), "{none}");
    for prefix in ["", "t "] {
        let lost = refused(&zeros(prefix, &[0, 32]));
        assert_eq!(lost, "line 2: rows are missing before it: offset 0x20, but the next byte is 0x10");
    }
    let cut = refused(&error("", &[ROW, "00000000 0000"]));
    assert!(cut.starts_with("line 3: a row that is cut or damaged"), "{cut}");
}

/// Reading takes little time for every text: for a long line that could begin a row at each place, and for
/// many dumps.
#[test]
fn no_text_takes_long() {
    let size = 1 << 15;
    for part in ["a:", "0000: ", "00000000: 00 ", "00 ", "00000000 ", "b'", "\"", "\\n", "> 0", "000000 00  "]
    {
        let text = part.repeat(size / part.len());
        let _ = read(text.clone().into_bytes(), None);
        let _ = read(format!("words\n{text}").into_bytes(), Some(WordOrder::LittleEndian));
    }
    let dumps = "t 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n".repeat(size / 64);
    let Ok(Input::Dumps(dumps)) = read(dumps.into_bytes(), None) else { panic!("no dumps") };
    assert_eq!(dumps.found.len(), size / 64);
}
