//! Dumps within other text: a log of the kernel or of a program, a session of a debugger, several dumps in one file.
//!
//! A dump is a run of rows. A row may stand anywhere in its line: behind a time, a host, an offset.

use super::hex::{HexError, MOST, all_hex, columns, digits, is_dword, quoted};

/// The dumps of a text, and the lines that are none of their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dumps {
    /// In the order of their lines.
    pub found: Vec<Dump>,
    /// Number and text of each line that is no row.
    pub skipped: Vec<(usize, String)>,
    /// Numbers of lines whose row does not follow from the one before: some are missing between them.
    pub lost: Vec<usize>,
}

/// One dump of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// Number of its first line.
    pub line: usize,
    /// The line before it, which may say of what it is.
    pub heading: String,
    /// The offset of its first row, 0 where rows have none.
    pub offset: u64,
    /// Its bytes, in the order of memory.
    pub bytes: Vec<u8>,
    /// A debugger printed its words as numbers of a little-endian machine: their bytes were turned around.
    pub turned: bool,
}

/// A row of a dump.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    offset: Option<u64>,
    bytes: Vec<u8>,
    /// The offset is an address of a program.
    address: bool,
    /// See [`Dump::turned`].
    turned: bool,
}

/// The fewest bytes that are a request.
const FEWEST: usize = 16;

/// Requests and completion entries begin at multiples of it.
const BLOCK: usize = 64;

/// Finds the dumps of a text, `None` where there are none, or a line is a damaged row.
///
/// # Errors
/// A repeated line stands for more than a text may have.
pub fn find(text: &str) -> Result<Option<Dumps>, HexError> {
    let mut reader = Reader::default();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        if !reader.add(index + 1, &without_escapes(line))? {
            return Ok(None);
        }
    }
    if reader.repeated {
        return Ok(None);
    }
    let Dumps { mut found, skipped, lost } = reader.dumps;
    found.retain(|dump| dump.bytes.len() >= FEWEST);
    // Of one dump with a fault, it is better said where the fault is.
    let whole = lost.is_empty() || found.iter().any(|dump| dump.bytes.len() >= BLOCK);
    Ok((whole && !found.is_empty()).then_some(Dumps { found, skipped, lost }))
}

#[derive(Default)]
struct Reader {
    dumps: Dumps,
    /// The last line was no row.
    between: bool,
    /// Rows do not follow until another dump begins.
    lost: bool,
    /// The last row had this many bytes.
    row: usize,
    /// A `*` stands for more such rows, up to the next offset.
    repeated: bool,
}

impl Reader {
    /// Takes in a line; returns false for a row that is damaged.
    fn add(&mut self, number: usize, line: &str) -> Result<bool, HexError> {
        if let Some(row) = row(line) {
            return self.add_row(number, row);
        }
        let trimmed = line.trim();
        if trimmed == "*" {
            let repeats = self.dumps.found.last().is_some() && self.row > 0 && !self.between;
            self.repeated = repeats;
            return Ok(repeats);
        }
        // The last line of `hexdump` and `od` is an offset alone.
        if !self.between && self.row > 0 && is_bare_offset(trimmed) {
            let radix = if trimmed.len() == 7 { 8 } else { 16 };
            let end = u64::from_str_radix(trimmed, radix).unwrap_or(u64::MAX);
            let filled = self.fill(end)?;
            self.between = true;
            return Ok(filled);
        }
        if self.repeated || is_like_a_row(line) {
            return Ok(false);
        }
        self.between = true;
        if !trimmed.is_empty() {
            self.dumps.skipped.push((number, trimmed.to_owned()));
        }
        Ok(true)
    }

    /// Repeats the last row up to an offset where a `*` says that; returns whether rows reach this offset now.
    fn fill(&mut self, offset: u64) -> Result<bool, HexError> {
        let Some(dump) = self.dumps.found.last_mut() else { return Ok(false) };
        let at = offset.checked_sub(dump.offset).and_then(|at| usize::try_from(at).ok());
        let Some(at) = at else { return Ok(false) };
        let have = dump.bytes.len();
        if self.repeated && at > have && self.row > 0 && (at - have).is_multiple_of(self.row) {
            if at > MOST {
                return Err(HexError::Long);
            }
            let row = dump.bytes.get(have - self.row..).unwrap_or_default().to_vec();
            dump.bytes.extend(row.iter().cycle().take(at - have));
            self.repeated = false;
        }
        Ok(!self.repeated && at == dump.bytes.len())
    }

    fn add_row(&mut self, number: usize, row: Row) -> Result<bool, HexError> {
        let follows = match row.offset {
            Some(offset) => self.fill(offset)? && !self.lost,
            // Other lines may stand between the rows of a block, and between two dumps.
            None => {
                let last = self.dumps.found.last();
                last.is_some_and(|dump| !self.between || !dump.bytes.len().is_multiple_of(BLOCK))
            }
        };
        if self.repeated {
            return Ok(false);
        }
        let begins = row.offset.is_none_or(|offset| offset.is_multiple_of(BLOCK as u64));
        let between = std::mem::take(&mut self.between);
        self.row = row.bytes.len();
        if !follows && !begins && !self.is_first_of_another(&row, between) {
            self.lost = true;
            self.dumps.lost.push(number);
            return Ok(true);
        }
        if !follows {
            self.lost = false;
            let before = self.dumps.skipped.last().filter(|(line, _)| line + 1 == number);
            let heading = before.map_or_else(String::new, |(_, text)| text.clone());
            let (line, offset) = (number, row.offset.unwrap_or(0));
            self.dumps.found.push(Dump { line, heading, offset, ..Dump::default() });
        }
        if let Some(dump) = self.dumps.found.last_mut() {
            dump.bytes.extend(&row.bytes);
            dump.turned |= row.turned;
        }
        let bytes: usize = self.dumps.found.iter().map(|dump| dump.bytes.len()).sum();
        if bytes > MOST { Err(HexError::Long) } else { Ok(true) }
    }

    /// Whether a row at an odd offset begins a dump: the first of a text, one where the last began, and after other
    /// lines any that a debugger prints.
    fn is_first_of_another(&self, row: &Row, between: bool) -> bool {
        let again = |last: &Dump| row.offset == Some(last.offset);
        self.dumps.found.last().is_none_or(again) || row.address && between
    }
}

/// Finds the row in a line.
fn row(line: &str) -> Option<Row> {
    let words: Vec<(usize, &str)> = words(line).collect();
    (0..words.len()).find_map(|first| offset_row(line, words.get(first..)?)).or_else(|| bare_row(&words))
}

/// Iterates over the words of a line, each with the offset where it begins.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split_whitespace().map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word))
}

/// Reads a row whose offset is the first of these words.
fn offset_row(line: &str, words: &[(usize, &str)]) -> Option<Row> {
    let [(at, first), rest @ ..] = words else { return None };
    let (word, colon) = first.strip_suffix(':').map_or((*first, false), |word| (word, true));
    let (number, prefixed) = word.strip_prefix("0x").map_or((word, false), |number| (number, true));
    if !all_hex(number) || number.len() > 16 {
        return None;
    }
    // A debugger has the name of the place between an address and its colon.
    let named = rest.first().filter(|(_, name)| !colon && name.starts_with('<') && name.ends_with(">:"));
    let begin = named.map_or(at + first.len(), |(at, name)| at + name.len());
    let data = line.get(begin..)?;
    let offset = |radix| u64::from_str_radix(number, radix).ok();
    if prefixed && (colon || named.is_some()) && number.len() >= 3 {
        let bytes = turned_words(data).map(|bytes| (bytes, true));
        let (bytes, turned) = bytes.or_else(|| Some((bytes_of(data)?, false)))?;
        return Some(Row { offset: offset(16), bytes, address: true, turned });
    }
    if colon && number.len() >= 4 {
        return Some(Row { offset: offset(16), bytes: bytes_of(data)?, address: false, turned: false });
    }
    // What `decode` itself prints.
    if prefixed && number.len() >= 3 {
        let dwords: Vec<&str> = data.split_whitespace().take_while(|word| is_dword(word)).collect();
        let bytes = digits(&dwords.concat()).ok().filter(|bytes| bytes.len() == 16)?;
        return Some(Row { offset: offset(16), bytes, address: false, turned: false });
    }
    let singles = rest.first().is_some_and(|(_, word)| is_byte(word));
    if matches!(number.len(), 6..=8 | 16) && singles && data.starts_with([' ', '\t']) {
        let radix = if number.len() == 7 { 8 } else { 16 };
        return Some(Row { offset: offset(radix), bytes: bytes_of(data)?, address: false, turned: false });
    }
    None
}

/// Reads the bytes behind an offset, and leaves out the characters beside them.
fn bytes_of(data: &str) -> Option<Vec<u8>> {
    // Bars and brackets begin the characters; nothing in the bytes looks like them.
    let bar = data.find(['|', '>']).and_then(|at| digits(data.get(..at)?.trim()).ok());
    let row = bar.or_else(|| columns(data).ok()).filter(|bytes| !bytes.is_empty());
    // Anything may stand behind a whole row.
    row.or_else(|| {
        let singles: Vec<&str> = data.split_whitespace().take_while(|word| is_byte(word)).take(16).collect();
        digits(&singles.concat()).ok().filter(|bytes| bytes.len() == 16)
    })
}

/// Reads the words that a debugger prints behind an address as numbers: `x/xw`, `x/xg`, `x/xh` of gdb.
fn turned_words(data: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut width = None;
    for word in data.split_whitespace() {
        let number = word.strip_prefix("0x").filter(|number| all_hex(number))?;
        if *width.get_or_insert(number.len()) != number.len() || !matches!(number.len(), 4 | 8 | 16) {
            return None;
        }
        let word = digits(number).ok()?;
        bytes.extend(word.iter().rev());
    }
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

/// Reads a row without an offset: four words of 32 bits, or 16 bytes, and no more of them.
fn bare_row(words: &[(usize, &str)]) -> Option<Row> {
    for (kind, count) in [(is_word as fn(&str) -> bool, 4), (is_byte as fn(&str) -> bool, 16)] {
        let mut runs = words.chunk_by(|(_, one), (_, other)| kind(one) == kind(other));
        let run = runs.find(|run| run.len() == count && run.iter().all(|(_, word)| kind(word)));
        if let Some(run) = run {
            let text: Vec<&str> = run.iter().map(|(_, word)| *word).collect();
            let bytes = digits(&text.join(" ")).ok()?;
            return Some(Row { offset: None, bytes, address: false, turned: false });
        }
    }
    None
}

/// Whether a line that is no row has so much of one that it is a damaged one.
fn is_like_a_row(line: &str) -> bool {
    let count = |kind: fn(&str) -> bool| line.split_whitespace().filter(|word| kind(word)).count();
    count(is_word) >= 2 || count(is_byte) >= 8
}

fn is_word(word: &str) -> bool {
    is_dword(word.strip_prefix("0x").unwrap_or(word))
}

fn is_byte(word: &str) -> bool {
    word.len() == 2 && all_hex(word)
}

fn is_bare_offset(word: &str) -> bool {
    matches!(word.len(), 6..=8 | 16) && all_hex(word)
}

/// Returns a line without the escape sequences that colour it.
fn without_escapes(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic()).map_or(0, |at| at + 1);
        line + part.strip_prefix('[').map_or(part, |_| part.get(end..).unwrap_or_default())
    })
}

impl Dumps {
    /// Says what was left out, an empty text where nothing was.
    pub fn left_out(&self) -> String {
        const SHOWN: usize = 6;
        let mut text = String::new();
        if let [first, ..] = self.lost[..] {
            text += &format!("rows are missing before line {first}: rows from there on were left out\n");
        }
        if !self.skipped.is_empty() {
            let plural = if self.skipped.len() == 1 { "line is" } else { "lines are" };
            text += &format!("{} {plural} no row of a dump:\n", self.skipped.len());
            for (number, line) in self.skipped.iter().take(SHOWN) {
                text += &format!("  line {number}: {}\n", quoted(line));
            }
            if let Some(more @ 1..) = self.skipped.len().checked_sub(SHOWN) {
                text += &format!("  and {more} more\n");
            }
        }
        text
    }
}
