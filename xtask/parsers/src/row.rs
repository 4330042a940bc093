//! Finds the row of a dump in a line with other text.

use super::digits::{all_hex, columns, digits, is_dword, quoted};

/// The order in which a dump shows the bytes of a word that has more than one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordOrder {
    /// The digits are bytes in the order of memory.
    Memory,
    /// Each word is a number of a little-endian machine: the last two digits are the first byte in memory.
    LittleEndian,
}

/// A row of a dump.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// The offset in the line at which the row begins.
    pub(super) at: usize,
    /// The possible values of the offset that the row shows: seven digits may be octal, decimal or
    /// hexadecimal. Empty for a row without an offset.
    pub(super) offsets: Vec<u64>,
    pub(super) bytes: Vec<u8>,
    /// Whether the row's offset is an address in a program's memory.
    pub(super) address: bool,
    /// The form of the words that show the bytes.
    pub(super) words: Words,
}

/// The form of a row's words: their width, and whether they are numbers of a little-endian machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    /// The number of bytes in each word.
    pub(super) width: usize,
    /// Whether to reverse the bytes of each word, if no row of the dump shows the order.
    pub(super) turned: bool,
    /// Whether to reverse the bytes of each word. `None` if this row does not show the order: the caller has
    /// not given it, and the characters after the words fit both orders or none.
    pub(super) says: Option<bool>,
}

/// The most digits of an offset in a file. Numbers with more digits are addresses in a program's memory.
const OFFSET_DIGITS: usize = 8;

/// The number of bytes at the beginning of a line in which offsets are searched. A row with an offset is
/// shorter.
const REACH: usize = 4096;

/// The number of bytes that a row is taken to have if nothing in its line marks the row's end.
const ROW: usize = 16;

/// Finds the row of a dump in a line. Returns `None` if the line has no row.
///
/// # Errors
/// The order of the bytes in the row's words is unknown.
pub(super) fn find_row(line: &str, order: Option<WordOrder>) -> Result<Option<Row>, String> {
    let whole = line;
    // Searches that try each place of a line look only at its beginning, so that they stay fast.
    let near = (0..=REACH.min(line.len())).rev().find_map(|end| line.get(..end));
    let line = near.unwrap_or_default();
    let words: Vec<(usize, &str)> = words(line).collect();
    let mut rows = (0..words.len()).filter_map(|first| offset_row(line, words.get(first..)?, order));
    if let Some(row) = rows.next() {
        return Ok(Some(row));
    }
    if let Some(row) = words_behind_offset(line, &words, order)? {
        return Ok(Some(row));
    }
    let with_colon = glued_row(line, |line, words| {
        let colon = words.first().is_some_and(|(_, word)| word.ends_with(':'));
        offset_row(line, words, order).filter(|_| colon)
    });
    let alone = || {
        glued_row(line, |line, words| {
            let anchored = || bare_row(words, order).filter(|row| row.at == 0);
            offset_row(line, words, order).or_else(anchored)
        })
    };
    let all: Vec<(usize, &str)> = self::words(whole).collect();
    Ok(with_colon.or_else(|| bare_row(&all, order)).or_else(alone).or_else(|| python_row(whole)))
}

/// Returns whether a line without a readable row looks like a damaged row.
pub(super) fn is_like_a_row(line: &str) -> bool {
    let count = |kind: fn(&str) -> bool| line.split_whitespace().filter(|word| kind(word)).count();
    count(is_word) >= 2 || count(is_byte) >= 8
}

/// Returns whether a line after a row may be a row that was cut: it has a word of 32 bits and ends with hex.
pub(super) fn is_part_of_a_row(line: &str) -> bool {
    let last = line.split_whitespace().last();
    line.split_whitespace().any(is_word) && last.is_some_and(all_hex)
}

/// Iterates over the words of a line, each with its offset in the line.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split_whitespace().map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word))
}

/// Finds a row that follows a prefix without a blank between them, as in `[1,3]<stderr>:00000000 ...`. `read`
/// reads a row that begins with the first of the given words.
fn glued_row(line: &str, read: impl Fn(&str, &[(usize, &str)]) -> Option<Row>) -> Option<Row> {
    let bytes = line.as_bytes();
    (1..bytes.len()).find_map(|begin| {
        let glue = bytes.get(begin - 1).is_some_and(|byte| b":>])|=-/\"".contains(byte));
        let rest =
            line.get(begin..).filter(|rest| glue && rest.starts_with(|one: char| one.is_ascii_hexdigit()))?;
        let row = read(rest, &words(rest).collect::<Vec<_>>())?;
        Some(Row { at: row.at + begin, ..row })
    })
}

/// Reads a row whose offset is the first of these words.
fn offset_row(line: &str, words: &[(usize, &str)], order: Option<WordOrder>) -> Option<Row> {
    let [(at, first), rest @ ..] = words else { return None };
    let (word, colon) = first.strip_suffix(':').map_or((*first, false), |word| (word, true));
    let (number, prefixed) = word.strip_prefix("0x").map_or((word, false), |number| (number, true));
    if !all_hex(number) || number.len() > 16 {
        return None;
    }
    // A debugger may print the name of the memory between an address and its colon.
    let named = rest.first().filter(|(_, name)| !colon && name.starts_with('<') && name.ends_with(">:"));
    let begin = named.map_or(at + first.len(), |(at, name)| at + name.len());
    let data = line.get(begin..)?;
    let (at, address) = (*at, prefixed || number.len() > OFFSET_DIGITS);
    let offsets = |radixes: &[u32]| -> Vec<u64> {
        radixes.iter().filter_map(|radix| u64::from_str_radix(number, *radix).ok()).collect()
    };
    let row = |offsets, (bytes, words)| Row { at, offsets, bytes, address, words };
    let behind_colon = number.len() >= if prefixed { 3 } else { 4 };
    if (colon || named.is_some()) && behind_colon {
        return Some(row(offsets(&[16]), bytes_of(data, number.len() > OFFSET_DIGITS, order)?));
    }
    // `cargo xtask decode` prints such a row: an offset with `0x`, then four words of 32 bits.
    if prefixed && number.len() >= 3 {
        let dwords: Vec<&str> = data.split_whitespace().take_while(|word| is_dword(word)).collect();
        let bytes = digits(&dwords.concat()).ok().filter(|bytes| bytes.len() == ROW)?;
        return Some(Row { address: false, ..row(offsets(&[16]), (bytes, Words::default())) });
    }
    let singles = rest.first().is_some_and(|(_, word)| is_byte(word));
    let whole = || rest.iter().take_while(|(_, word)| is_byte(word)).count() >= ROW;
    let is_offset = matches!(number.len(), 6..=8 | 16) || number.len() == 4 && whole();
    if is_offset && singles && data.starts_with([' ', '\t']) {
        let radixes: &[u32] = if number.len() == 7 { &[8, 10, 16] } else { &[16] };
        return Some(row(offsets(radixes), (single_bytes(data)?, Words::default())));
    }
    None
}

/// Reads a row that consists of an offset without a colon, and words of 2, 4 or 8 bytes, as `od -x` and
/// `hexdump` print it.
///
/// # Errors
/// The order of the bytes in the words is unknown.
fn words_behind_offset(
    line: &str,
    words: &[(usize, &str)],
    order: Option<WordOrder>,
) -> Result<Option<Row>, String> {
    let [(at, first), rest @ ..] = words else { return Ok(None) };
    let [(second_at, second), ..] = rest else { return Ok(None) };
    let width = second.len();
    let alike = rest.iter().all(|(_, word)| word.len() == width && all_hex(word));
    let offset =
        matches!(first.len(), 6 | 7) && all_hex(first) && !first.ends_with(|end| !matches!(end, '0'));
    if !alike || !offset || !matches!(width, 4 | 8 | 16) {
        return Ok(None);
    }
    if order.is_none() {
        return Err(format!(
            "{} looks like an offset, and the order of bytes in {} is not known: say --words little or \
             --words memory",
            quoted(first),
            quoted(second)
        ));
    }
    let radixes: &[u32] = if first.len() == 7 { &[8, 10, 16] } else { &[16] };
    let offsets = radixes.iter().filter_map(|radix| u64::from_str_radix(first, *radix).ok()).collect();
    let data = line.get(*second_at..).unwrap_or_default();
    let Some((bytes, words)) = bytes_of(data, false, order) else { return Ok(None) };
    Ok(Some(Row { at: *at, offsets, bytes, address: false, words }))
}

/// Reads the bytes after an offset, without the characters that follow them. Returns the bytes in the order
/// of their digits, and the form of their words.
fn bytes_of(data: &str, address: bool, order: Option<WordOrder>) -> Option<(Vec<u8>, Words)> {
    match words_of(data, address, order) {
        Some((bytes, words)) if words.turned || words.says.is_some() => Some((bytes, words)),
        // The words are in the order of memory, or there are none. The digits are then read byte by byte, and
        // any text may follow them.
        words => Some((single_bytes(data)?, words.map_or_else(Words::default, |(_, words)| words))),
    }
}

/// Reads bytes in the order of memory.
fn single_bytes(data: &str) -> Option<Vec<u8>> {
    // A bar or a bracket marks the beginning of the characters: neither occurs among the bytes.
    let bar = data.find(['|', '>']).and_then(|at| digits(data.get(..at)?.trim()).ok());
    let row = bar.or_else(|| columns(data).ok()).filter(|bytes| !bytes.is_empty());
    let leading = |kind: fn(&str) -> bool| -> Option<Vec<u8>> {
        let mut run: Vec<&str> = data.split_whitespace().take_while(|word| kind(word)).collect();
        let width = run.first()?.trim_start_matches("0x").len() / 2;
        run.truncate(ROW / width.max(1));
        digits(&run.join(" ")).ok().filter(|bytes| bytes.len() == ROW)
    };
    // Any text may follow a row of 16 bytes.
    row.or_else(|| leading(is_byte)).or_else(|| leading(is_wide))
}

/// Reads words of 2, 4 or 8 bytes, in the order of their digits. `order` says the order of the bytes in them.
/// Without `order`, the characters after the words may show it. If they do not, words after an address are
/// numbers, as a debugger prints them (`x/xw` of gdb, `rd` of crash).
fn words_of(data: &str, address: bool, order: Option<WordOrder>) -> Option<(Vec<u8>, Words)> {
    let words = || data.split_whitespace();
    let first = words().next()?;
    let prefixed = first.starts_with("0x");
    let digits_of_each = if prefixed { first.len() - 2 } else { first.len() };
    let number = |word: &str| {
        let number = if prefixed { word.strip_prefix("0x")? } else { word };
        (word.len() == first.len() && all_hex(number)).then(|| digits(number).ok()).flatten()
    };
    if !matches!(digits_of_each, 4 | 8 | 16) {
        return None;
    }
    let width = digits_of_each / 2;
    let (mut end, mut memory) = (0, Vec::new());
    for word in words() {
        let Some(bytes) = number(word) else { break };
        end = word.as_ptr() as usize - data.as_ptr() as usize + word.len();
        memory.extend(bytes);
    }
    let mut turned = memory.clone();
    turn(&mut turned, width);
    let beside = data.get(end..).unwrap_or_default();
    let (says_memory, says_turned) = (shows(beside, &memory), shows(beside, &turned));
    let says = match order {
        Some(order) => Some(order == WordOrder::LittleEndian),
        None => (says_memory != says_turned).then_some(says_turned),
    };
    // Words that begin with `0x` count as a debugger's if no text follows them. Other words count as a
    // debugger's if they follow an address.
    let of_debugger = if prefixed { beside.trim().is_empty() } else { address };
    (!memory.is_empty()).then_some((memory, Words { width, turned: says.unwrap_or(of_debugger), says }))
}

/// Reverses the bytes of each word.
pub(super) fn turn(bytes: &mut [u8], width: usize) {
    bytes.chunks_exact_mut(width.max(1)).for_each(<[u8]>::reverse);
}

/// Returns whether the characters after a row are those of these bytes. Spaces are not compared.
fn shows(beside: &str, bytes: &[u8]) -> bool {
    let character = |byte: &u8| if matches!(byte, b'!'..=b'~') { char::from(*byte) } else { '.' };
    let shown: String = bytes.iter().filter(|byte| **byte != b' ').map(character).collect();
    let beside = beside.trim().trim_start_matches(['|', '>']).trim_end_matches(['|', '<']);
    beside.chars().filter(|one| *one != ' ').eq(shown.chars())
}

/// Reads a row without an offset: four words of 32 bits, or 16 bytes, or a multiple of these. In an array,
/// brackets and commas surround the words.
fn bare_row(words: &[(usize, &str)], order: Option<WordOrder>) -> Option<Row> {
    let bare = |word: &str| word.trim_matches(['[', ']', '{', '}', '(', ')', ',', ';']).to_owned();
    let words: Vec<(usize, String)> = words.iter().map(|(at, word)| (*at, bare(word))).collect();
    for (kind, count) in [(is_word as fn(&str) -> bool, 4), (is_bare_byte as fn(&str) -> bool, ROW)] {
        let mut runs = words.chunk_by(|(_, one), (_, other)| kind(one) == kind(other));
        let run = runs.find(|run| run.len().is_multiple_of(count) && run.iter().all(|(_, word)| kind(word)));
        if let Some(run @ [(at, _), ..]) = run {
            let text: Vec<&str> = run.iter().map(|(_, word)| word.as_str()).collect();
            let bytes = digits(&text.join(" ")).ok()?;
            let turned = order == Some(WordOrder::LittleEndian);
            let words = Words { width: ROW / count, turned, says: order.map(|_| turned) };
            return Some(Row { at: *at, bytes, words, ..Row::default() });
        }
    }
    None
}

/// Reads a row of bytes as Python prints them: `b'\x00\x25...'`.
fn python_row(line: &str) -> Option<Row> {
    line.match_indices(['\'', '"']).find_map(|(at, quote)| {
        let begin = at.checked_sub(1).filter(|begin| line.get(*begin..at) == Some("b"))?;
        let mut rest = line.get(at + 1..)?.chars();
        let mut bytes = Vec::new();
        loop {
            bytes.push(match rest.next()? {
                one if quote.starts_with(one) => break,
                '\\' => match rest.next()? {
                    'x' => u8::from_str_radix(&rest.by_ref().take(2).collect::<String>(), 16).ok()?,
                    'n' => b'\n',
                    'r' => b'\r',
                    't' => b'\t',
                    one => u8::try_from(one).ok()?,
                },
                one => u8::try_from(one).ok()?,
            });
        }
        (bytes.len() >= ROW).then_some(Row { at: begin, bytes, ..Row::default() })
    })
}

fn is_word(word: &str) -> bool {
    is_dword(word.strip_prefix("0x").unwrap_or(word))
}

fn is_wide(word: &str) -> bool {
    matches!(word.len(), 4 | 8 | 16) && all_hex(word)
}

fn is_bare_byte(word: &str) -> bool {
    is_byte(word.strip_prefix("0x").unwrap_or(word))
}

fn is_byte(word: &str) -> bool {
    word.len() == 2 && all_hex(word)
}
