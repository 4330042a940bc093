//! Finds dumps in other text: in a log of the kernel or of a program, in the output of a debugger, or several
//! dumps in one file.
//!
//! A dump consists of consecutive rows. In each line, a row may follow other words, such as a time, a host or
//! an offset.

use super::digits::{all_hex, quoted};
use super::error::{HexError, MOST};
use super::row::{Row, WordOrder, Words, find_row, is_like_a_row, is_part_of_a_row, turn};
use std::collections::{BTreeMap, BTreeSet};

/// The dumps that a text contains, and the lines that belong to no dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dumps {
    /// The dumps, in the order of their lines.
    pub found: Vec<Dump>,
    /// Number and text of each line that is no row.
    pub skipped: Vec<(usize, String)>,
    /// Number of each line at which a dump is damaged, with a description of the fault.
    pub faults: Vec<(usize, String)>,
}

/// One dump of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// The number of the dump's first line.
    pub line: usize,
    /// The line before the dump, which may describe it. Empty if there is none.
    pub heading: String,
    /// The offset that the dump's first row shows, or 0 if the rows have no offsets.
    pub offset: u64,
    /// The bytes of the dump, in the order of memory.
    pub bytes: Vec<u8>,
    /// Whether the dump showed words as numbers of a little-endian machine. `bytes` is already in the order
    /// of memory.
    pub turned: bool,
    /// The bytes in the other possible order, if neither the rows nor the caller say the order: as if the
    /// words were numbers of a little-endian machine. `bytes` is then in the order of the digits.
    pub other: Option<Vec<u8>>,
    /// The number of headings of error completions directly before the dump. Each heading announces an entry
    /// of 64 bytes. After several headings, rows of several dumps may be mixed.
    pub headings: usize,
    /// Whether rows of several dumps are mixed in this one.
    pub mixed: bool,
    /// Whether rows are missing at the end of the dump.
    pub cut: bool,
}

/// The size of the smallest request, in bytes. Shorter dumps are dropped.
const FEWEST: usize = 16;

/// Requests and completion entries begin at multiples of this number of bytes.
const BLOCK: usize = 64;

/// A line of a text: its number, its text, and the row in it, if any. The error is the reason why the row
/// cannot be read.
type Line = (usize, String, Result<Option<Row>, String>);

/// Finds the dumps in a text. `order` is the order of the bytes in words, if it is known.
///
/// # Errors
/// [`HexError::Long`]: the dumps exceed the limit, perhaps because a repeated line (`*`) has many
/// repetitions.
pub fn find(text: &str, order: Option<WordOrder>) -> Result<Dumps, HexError> {
    let lines: Vec<Line> = lines(text, order);
    let mut dumps = read(lines.iter())?;
    let doubtful = |dumps: &Dumps| {
        dumps.faults.len() + dumps.found.iter().filter(|dump| dump.mixed || dump.headings > 1).count()
    };
    if doubtful(&dumps) > 0 {
        let apart = by_prefix(&lines)?;
        if apart.as_ref().is_some_and(|apart| doubtful(apart) < doubtful(&dumps)) {
            dumps = apart.unwrap_or_default();
        }
    }
    dumps.found.retain(|dump| dump.bytes.len() >= FEWEST);
    Ok(dumps)
}

/// Splits a text into lines, and finds the row in each. A line of JSON may contain several rows in quotes.
fn lines(text: &str, order: Option<WordOrder>) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = without_escapes(line);
        let row = find_row(&line, order);
        let has_row = |(.., row): &Line| matches!(row, Ok(Some(_)));
        let parts = || -> Vec<Line> {
            let parts = line.split(['"', '\'']).flat_map(|part| part.split("\\n"));
            let parts = parts.map(|part| part.trim_end_matches("\\r").to_owned());
            parts.map(|part| (index + 1, part.clone(), find_row(&part, order))).collect()
        };
        // A quote can also be one of the characters that show a row's bytes. Quoted parts are therefore tried
        // only if the line has no row, or a row whose order of bytes is unclear, or an escaped line end
        // (`\n`).
        let undecided = matches!(&row, Ok(Some(row)) if row.words.width > 1 && row.words.says.is_none());
        if row == Ok(None) || undecided || line.contains("\\n") {
            let parts = parts();
            let rows = parts.iter().filter(|part| has_row(part)).count();
            if rows > usize::from(row != Ok(None) && !undecided) {
                // Only the quoted rows are kept: the text around them is skipped.
                lines.extend(parts.into_iter().filter(|part| has_row(part) || is_like_a_row(&part.1)));
                continue;
            }
        }
        lines.push((index + 1, line, row));
    }
    lines
}

/// Reads the dumps of some lines, as if their rows were not mixed. Then marks neighbours whose lengths show
/// that their rows are mixed.
fn read<'a>(lines: impl Iterator<Item = &'a Line>) -> Result<Dumps, HexError> {
    let mut reader = Reader::default();
    for (number, line, row) in lines {
        match row {
            Ok(Some(row)) => reader.add_row(*number, row)?,
            Ok(None) => reader.add_other(*number, line)?,
            Err(what) => reader.fault(*number, what.clone()),
        }
    }
    reader.end_repetition();
    reader.turn_words();
    let mut dumps = reader.dumps;
    // If a dump has fewer bytes than its headings announce and the next one has more, their rows are mixed.
    for later in 1..dumps.found.len() {
        let (before, behind) = dumps.found.split_at_mut(later);
        if let (Some(short), Some(long)) = (before.last_mut(), behind.first_mut()) {
            let excess = |dump: &Dump| dump.bytes.len() as i64 - (dump.headings * BLOCK) as i64;
            if short.headings > 0 && long.headings > 0 && excess(short) < 0 && excess(long) > 0 {
                (short.mixed, long.mixed) = (true, true);
            }
        }
    }
    Ok(dumps)
}

/// Reads the rows of each prefix separately, because several programs or processors may have printed at the
/// same time. Returns `None` if all rows have the same prefix, if a row has none, or if there are more than
/// 64 prefixes.
fn by_prefix(lines: &[Line]) -> Result<Option<Dumps>, HexError> {
    let begin = |(_, line, row): &Line| match row {
        Ok(Some(row)) => without_times(line.get(..row.at).unwrap_or_default()),
        _ => without_times(line),
    };
    let begins: Vec<String> = lines.iter().map(begin).collect();
    let rows = lines.iter().zip(&begins).filter(|((.., row), _)| matches!(row, Ok(Some(_))));
    let keys: BTreeSet<&str> = rows.map(|(_, begin)| begin.as_str()).collect();
    if !(2..=BLOCK).contains(&keys.len()) || keys.contains("") {
        return Ok(None);
    }
    let mut all = Dumps::default();
    let mut skipped = BTreeMap::new();
    for wanted in &keys {
        let of_key = |((.., row), begin): &(&Line, &String)| match row {
            Ok(Some(_)) => begin == wanted,
            _ => begin.starts_with(wanted) || !keys.iter().any(|other| begin.starts_with(other)),
        };
        let dumps = read(lines.iter().zip(&begins).filter(of_key).map(|(line, _)| line))?;
        all.found.extend(dumps.found);
        all.faults.extend(dumps.faults);
        skipped.extend(dumps.skipped);
    }
    all.found.sort_by_key(|dump| dump.line);
    all.faults.sort();
    all.faults.dedup();
    all.skipped = skipped.into_iter().collect();
    Ok(Some(all))
}

/// Replaces each word that looks like a time by `#`. Rows of one program then have equal prefixes although
/// their times differ.
fn without_times(text: &str) -> String {
    let is_time = |word: &str| {
        let mut triples = word.as_bytes().windows(3);
        triples.any(|triple| {
            let digits = |(at, byte): (usize, &u8)| at == 1 || byte.is_ascii_digit();
            matches!(triple, [_, b':' | b'.', _]) && triple.iter().enumerate().all(digits)
        })
    };
    let word = |word| if is_time(word) { "#" } else { word };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[derive(Default)]
struct Reader {
    dumps: Dumps,
    /// Whether the previous line was no row.
    between: bool,
    /// Whether one of the lines since the last row is a heading, which announces requests or completion
    /// entries.
    heading: bool,
    /// The number of headings of error completions since the last row.
    headings: usize,
    /// Whether rows are missing. The rows after them are skipped until another dump begins.
    lost: bool,
    /// The number of bytes of all dumps.
    total: usize,
    /// The number of bytes in the last row.
    row: usize,
    /// For each row of the last dump: the offset after its bytes in the dump, and the form of its words.
    words: Vec<(usize, Words)>,
    /// The number of the line with a `*`, if one follows the last row. The `*` repeats this row up to the
    /// next offset.
    repeated: Option<usize>,
}

impl Reader {
    /// Adds a line that is no row.
    fn add_other(&mut self, number: usize, line: &str) -> Result<(), HexError> {
        let trimmed = line.trim();
        let follows_row = !self.between && self.row > 0 && !self.lost;
        if trimmed == "*" && follows_row {
            self.repeated = Some(number);
            return Ok(());
        }
        // The last line of `hexdump` and `od` contains only an offset.
        if follows_row && is_bare_offset(trimmed) {
            let radixes: &[u32] = if trimmed.len() == 7 { &[8, 10, 16] } else { &[16] };
            for radix in radixes {
                if self.fill(u64::from_str_radix(trimmed, *radix).unwrap_or(u64::MAX))? {
                    self.between = true;
                    return Ok(());
                }
            }
            if self.repeated.take().is_some() {
                self.fault(number, format!("rows are missing before it: offset {trimmed} is no end of rows"));
                return Ok(());
            }
        }
        self.end_repetition();
        let inside = |dump: &Dump| !dump.bytes.len().is_multiple_of(BLOCK);
        let damaged = follows_row && self.dumps.found.last().is_some_and(inside) && is_part_of_a_row(line);
        if trimmed == "*" {
            self.fault(number, "`*` repeats nothing".to_owned());
            return Ok(());
        }
        if damaged || is_like_a_row(line) {
            self.fault(number, format!("a row that is cut or damaged: {}", quoted(trimmed)));
            return Ok(());
        }
        self.between = true;
        self.headings += usize::from(is_entry_heading(trimmed));
        self.heading |= is_heading(trimmed);
        if !trimmed.is_empty() {
            self.dumps.skipped.push((number, trimmed.to_owned()));
        }
        Ok(())
    }

    /// Records a fault in a line. The rows after it are skipped until another dump begins.
    fn fault(&mut self, number: usize, what: String) {
        if let Some(dump) = self.dumps.found.last_mut().filter(|_| !self.between) {
            dump.cut = true;
        }
        (self.lost, self.between, self.heading) = (true, false, false);
        self.dumps.faults.push((number, what));
    }

    /// Records a fault if a repetition (`*`) is open: nothing shows how often the row is repeated.
    fn end_repetition(&mut self) {
        if let Some(number) = self.repeated.take() {
            self.between = false;
            self.fault(number, "`*`: how often the row before it is repeated is not known".to_owned());
        }
    }

    /// Completes a dump: if its words are numbers of a little-endian machine, reverses the bytes of each
    /// word. If one row shows the order, it applies to all rows.
    fn turn_words(&mut self) {
        let words = std::mem::take(&mut self.words);
        let said = words.iter().find_map(|(_, words)| words.says);
        let Some(dump) = self.dumps.found.last_mut() else { return };
        // Both orders are possible only for words of several bytes that are not known to be numbers.
        if said.is_none() && words.iter().all(|(_, words)| words.width > 1 && !words.turned) {
            let mut other = dump.bytes.clone();
            let mut begin = 0;
            for (end, Words { width, .. }) in &words {
                turn(other.get_mut(begin..*end).unwrap_or_default(), *width);
                begin = *end;
            }
            dump.other = (!words.is_empty()).then_some(other);
        }
        let mut begin = 0;
        for (end, Words { width, turned, .. }) in words {
            if said.unwrap_or(turned)
                && width > 1
                && let Some(bytes) = dump.bytes.get_mut(begin..end)
            {
                turn(bytes, width);
                dump.turned = true;
            }
            begin = end;
        }
    }

    /// If a `*` follows the last row, repeats this row up to an offset. Returns whether the dump now ends at
    /// this offset.
    fn fill(&mut self, offset: u64) -> Result<bool, HexError> {
        let Some(dump) = self.dumps.found.last_mut() else { return Ok(false) };
        let at = offset.checked_sub(dump.offset).and_then(|at| usize::try_from(at).ok());
        let Some(at) = at else { return Ok(false) };
        let have = dump.bytes.len();
        if self.repeated.is_some() && at > have && self.row > 0 && (at - have).is_multiple_of(self.row) {
            if at > MOST {
                return Err(HexError::Long);
            }
            let row = dump.bytes.get(have - self.row..).unwrap_or_default().to_vec();
            dump.bytes.extend(row.iter().cycle().take(at - have));
            self.total += at - have;
            let words = self.words.last().map_or_else(Words::default, |(_, words)| *words);
            self.words.push((at, words));
            self.repeated = None;
        }
        Ok(self.repeated.is_none() && at == dump.bytes.len())
    }

    fn add_row(&mut self, number: usize, row: &Row) -> Result<(), HexError> {
        let mut follows = None;
        for offset in &row.offsets {
            if follows.is_none() && !self.lost && self.fill(*offset)? {
                follows = Some(*offset);
            }
        }
        self.end_repetition();
        let between = std::mem::take(&mut self.between);
        let (heading, headings) = (std::mem::take(&mut self.heading), std::mem::take(&mut self.headings));
        let offset = follows.or(row.offsets.first().copied());
        let last = self.dumps.found.last();
        let goes_on = match offset {
            Some(_) => follows.is_some(),
            // A row without an offset continues the last dump if it directly follows another row, or if the
            // dump ends inside of a 64-byte block.
            None => last.is_some_and(|dump| {
                let inside = !heading && !dump.bytes.len().is_multiple_of(BLOCK);
                !self.lost && (!between || inside)
            }),
        };
        let begins = match offset {
            Some(offset) => offset.is_multiple_of(BLOCK as u64) || self.is_first_of_another(row, between),
            // After a fault, a row surely begins another dump if a heading precedes it. If the damaged dump
            // had no heading, any other line before the row is enough.
            None => !self.lost || heading || between && last.is_none_or(|dump| !is_heading(&dump.heading)),
        };
        if !goes_on && !begins {
            if !self.lost {
                let next = last.map_or(0, |dump| dump.offset.saturating_add(dump.bytes.len() as u64));
                let offset = offset.unwrap_or_default();
                let what =
                    format!("rows are missing before it: offset {offset:#x}, but the next byte is {next:#x}");
                self.between = between;
                self.fault(number, what);
            }
            return Ok(());
        }
        self.row = row.bytes.len();
        if !goes_on {
            self.turn_words();
            self.lost = false;
            let before = self.dumps.skipped.last().filter(|(line, _)| line + 1 == number);
            let heading = before.map_or_else(String::new, |(_, text)| text.clone());
            let (line, offset) = (number, offset.unwrap_or(0));
            self.dumps.found.push(Dump { line, heading, offset, headings, ..Dump::default() });
        }
        if let Some(dump) = self.dumps.found.last_mut() {
            dump.bytes.extend(&row.bytes);
            self.words.push((dump.bytes.len(), row.words));
        }
        self.total += row.bytes.len();
        if self.total > MOST { Err(HexError::Long) } else { Ok(()) }
    }

    /// Returns whether a row begins a dump although its offset is no multiple of 64: it is the first row of
    /// the text, or has the offset of the last dump's first row, or is a debugger's row that follows other
    /// lines.
    fn is_first_of_another(&self, row: &Row, between: bool) -> bool {
        let again = |last: &Dump| row.offsets.contains(&last.offset);
        self.dumps.found.last().map_or(!self.lost, again) || row.address && between
    }
}

/// Returns whether a line is a heading that announces requests or completion entries.
fn is_heading(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["cqe", "wqe", "completion"].iter().any(|word| line.contains(word))
}

/// Returns whether a line is a heading that libmlx5, the kernel or DPDK prints before the 64 bytes of an
/// error completion.
fn is_entry_heading(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["completion with error", "error cqe"].iter().any(|words| line.contains(words))
}

fn is_bare_offset(word: &str) -> bool {
    matches!(word.len(), 6..=8 | 16) && all_hex(word)
}

/// Removes escape sequences, such as colours, from a line.
fn without_escapes(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic()).map_or(0, |at| at + 1);
        line + part.strip_prefix('[').map_or(part, |_| part.get(end..).unwrap_or_default())
    })
}

impl Dumps {
    /// Returns whether at least one dump can be decoded: its end is not missing, or it has at least 64 bytes.
    pub(super) fn are_some(&self) -> bool {
        self.found.iter().any(|dump| !dump.cut || dump.bytes.len() >= BLOCK)
    }

    /// Describes the faults and the skipped lines. The text is empty if there are none.
    pub fn left_out(&self) -> String {
        const SHOWN: usize = 6;
        let mut text = String::new();
        let mut tell = |title: String, lines: &[(usize, String)]| {
            if lines.is_empty() {
                return;
            }
            text += &title;
            for (number, line) in lines.iter().take(SHOWN) {
                text += &format!("  line {number}: {line}\n");
            }
            if let Some(more @ 1..) = lines.len().checked_sub(SHOWN) {
                text += &format!("  and {more} more\n");
            }
        };
        tell("dumps are incomplete, and rows behind these lines were left out:\n".to_owned(), &self.faults);
        let quoted: Vec<_> = self.skipped.iter().map(|(number, line)| (*number, quoted(line))).collect();
        let plural = if quoted.len() == 1 { "line is" } else { "lines are" };
        tell(format!("{} {plural} no row of a dump:\n", quoted.len()), &quoted);
        text
    }
}

#[cfg(test)]
mod tests;
