//! Reads dumps of work requests and completion entries as common programs print them (such as xxd, od and
//! gdb), and logs of `cargo xtask emulate`. If a dump cannot be read, the error names the line.

pub use super::digits::digits;
use super::digits::{all_hex, columns, is_dword, order_unknown, quoted};
pub use super::error::HexError;
use super::error::MOST;
use super::log_json;
pub use super::log_json::Logged;
pub use super::row::WordOrder;
use super::rows::{self, Dumps};

/// The parsed content of a file or text: one dump of bytes, or several.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// Bytes of a ring, or of a part of one.
    Bytes(Vec<u8>),
    /// Several dumps, or dumps with other text before, between or after them.
    Dumps(Dumps),
    /// Requests and completion entries from a log that `cargo xtask emulate` has written by `--log` or
    /// `--log-json`.
    Log(Vec<Logged>),
}

/// Reads the content of a file. A file with a logged request is a log of `cargo xtask emulate`. Any other
/// text contains hex, perhaps among other words. A file that is no text consists of raw bytes. `order` is the
/// order of the bytes in the words of a dump, if it is known.
///
/// # Errors
/// The line that is not hex, with the reason, or [`HexError::Long`].
pub fn read(raw: Vec<u8>, order: Option<WordOrder>) -> Result<Input, HexError> {
    let text = String::from_utf8_lossy(&raw);
    // Logs of other programs can also be JSON, with dumps in their strings. They have no field `bytes`.
    let is_json = text.starts_with('{') && text.contains("\"bytes\":");
    let logged = if is_json { log_json::read(&text)? } else { log(&text)? };
    if !logged.is_empty() {
        return Ok(Input::Log(logged));
    }
    // A file with escape sequences is text too, because some programs colour their dumps.
    let text_control = b"\t\n\x0b\x0c\r\x1b";
    if raw.iter().any(|byte| byte.is_ascii_control() && !text_control.contains(byte)) {
        return Ok(Input::Bytes(raw));
    }
    read_text(&text, order)
}

/// Reads a text that consists of hex, or contains dumps among other words.
///
/// # Errors
/// As [`read`].
pub fn read_text(text: &str, order: Option<WordOrder>) -> Result<Input, HexError> {
    let strict = match parse(text) {
        Ok(bytes) if order.is_none() => {
            // Words after an offset may also be numbers of a little-endian machine, whose bytes are reversed
            // in memory. The result then contains the bytes in both orders.
            let is_one = |dumps: &Dumps| matches!(&dumps.found[..], [dump] if dump.other.is_some());
            let dumps = rows::find(text, None).ok().filter(|_| text.contains(':')).filter(is_one);
            let alike = dumps.filter(|dumps| {
                dumps.faults.is_empty() && dumps.found.iter().all(|dump| dump.bytes == bytes)
            });
            return Ok(alike.map_or(Input::Bytes(bytes), Input::Dumps));
        }
        Ok(_) => None,
        Err(HexError::Text(what)) => Some(what),
        Err(HexError::Long) => return Err(HexError::Long),
    };
    let dumps = rows::find(text, order)?;
    if dumps.are_some() {
        return Ok(Input::Dumps(dumps));
    }
    Err(HexError::Text(match (strict, dumps.faults.first()) {
        // The text is a dump and nothing else: the error of the strict parser describes the fault best.
        (Some(what), _) if dumps.skipped.is_empty() && !what.contains("is not hex") => what,
        (_, Some((line, what))) => format!("line {line}: {what}"),
        (strict, None) => {
            let why = strict.map_or_else(String::new, |what| format!(" ({what})"));
            format!("no line has a row of a dump, which is 16 bytes or four words in hex{why}")
        }
    }))
}

/// Reads the requests of a log that `cargo xtask emulate --log` has written. Other lines, which the emulated
/// program has printed, are skipped.
fn log(text: &str) -> Result<Vec<Logged>, String> {
    let mut logged: Vec<Logged> = Vec::new();
    // The lines of a request begin with a line that names its place, and end with an empty line.
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(queue) = queue_of_place(line) {
            let (place, queue) = (line.to_owned(), queue.to_owned());
            logged.push(Logged { place, completion: false, queue, bytes: vec![] });
            inside = true;
        } else if let Some(request) = logged.last_mut().filter(|_| inside && line.starts_with("0x")) {
            let mut words = line.split_whitespace();
            let offset = format!("0x{:03x}", request.bytes.len());
            let row = words
                .next()
                .filter(|word| *word == offset)
                .map(|_| words.take(4).take_while(|word| is_dword(word)));
            let row = digits(&row.into_iter().flatten().collect::<String>())?;
            if row.is_empty() {
                return Err(format!("line {} is not the row of byte {offset}: {}", index + 1, quoted(line)));
            }
            request.bytes.extend(row);
        } else {
            inside &= !line.is_empty();
        }
    }
    Ok(logged)
}

/// Parses a line that names the queue pair and the block of the next request. Returns the kind of queue in
/// this line, or an empty text if the line names none. Returns `None` for other lines.
fn queue_of_place(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split(' ').collect();
    let (qpn, queue, block) = match words[..] {
        ["mlx5_0", "qp", qpn, "block", block] => (qpn, "", block),
        ["mlx5_0", queue, "qp", qpn, "block", block] => (qpn, queue, block),
        _ => return None,
    };
    let is_place = qpn.strip_prefix("0x").is_some_and(all_hex) && block.parse::<u16>().is_ok();
    is_place.then_some(queue)
}

/// Reads a text that consists of hex only, plain or as `xxd`, `xxd -i`, `xxd -p`, `hexdump -C`, `od -tx1` and
/// similar programs print it.
///
/// # Errors
/// The line that is not hex, with the reason, or [`HexError::Long`].
pub fn parse(text: &str) -> Result<Vec<u8>, HexError> {
    let mut dump = Dump::default();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        dump.add(line.trim()).map_err(|error| match error {
            // The error is only a quoted word: the word that is not hex.
            HexError::Text(what) if what.starts_with('`') && what.ends_with('`') => {
                HexError::Text(format!("line {} is not hex: {what}", index + 1))
            }
            HexError::Text(what) => HexError::Text(format!("line {}: {what}", index + 1)),
            HexError::Long => HexError::Long,
        })?;
    }
    match (dump.repeated, dump.bytes.is_empty()) {
        (true, _) => {
            Err("`*` stands last: how often the line before it is repeated is not known".to_owned())?
        }
        (_, true) => Err("there is no hex in it".to_owned())?,
        _ => Ok(dump.bytes),
    }
}

/// The lines of a dump that were read so far.
#[derive(Default)]
struct Dump {
    bytes: Vec<u8>,
    /// The offset of the first byte, if the lines have offsets.
    base: Option<u64>,
    /// Whether the lines have offsets without a colon.
    bare: bool,
    /// The number of bytes in the last line.
    row: usize,
    /// Whether the last line was a `*`: the line before it is repeated up to the next offset.
    repeated: bool,
}

impl Dump {
    fn add(&mut self, line: &str) -> Result<(), HexError> {
        // `xxd -i` writes a C declaration around the bytes.
        let of_c = (line.starts_with("unsigned char ") && line.ends_with('{')) || line == "};";
        if line.is_empty() || of_c {
            return Ok(());
        }
        if let Some(length) = line.strip_prefix("unsigned int ").and_then(|rest| rest.split_once("_len = ")) {
            let right = length.1.strip_suffix(';') == Some(&self.bytes.len().to_string());
            return if right {
                Ok(())
            } else {
                Err(format!("{} bytes were read: {line}", self.bytes.len()).into())
            };
        }
        if line == "*" {
            self.repeated = self.base.is_some() && self.row > 0;
            return if self.repeated { Ok(()) } else { Err("`*` repeats nothing".to_owned().into()) };
        }
        let (offset, bytes) = match colon_offset(line) {
            Some((offset, digits, rest)) => {
                // If an address has many digits, a debugger has printed the words after it, as numbers of
                // unknown byte order.
                let first = rest.split_whitespace().next().unwrap_or_default();
                if digits > 8 && matches!(first.len(), 4 | 8 | 16) && all_hex(first) {
                    return Err(order_unknown(rest).into());
                }
                (Some(offset), columns(rest)?)
            }
            None => {
                let (offset, bytes) = bare_offset(line, self.bare)?;
                self.bare |= offset.is_some();
                (offset, bytes)
            }
        };
        self.place(offset)?;
        self.row = bytes.len();
        self.bytes.extend(bytes);
        if self.bytes.len() > MOST { Err(HexError::Long) } else { Ok(()) }
    }

    /// Repeats the last line if a `*` came after it. Then checks that `offset` is the offset of the next
    /// byte.
    fn place(&mut self, offset: Option<u64>) -> Result<(), HexError> {
        match (offset, self.base) {
            (None, None) => return Ok(()),
            (Some(offset), None) if self.bytes.is_empty() => self.base = Some(offset),
            (Some(_), None) => Err("an offset, which the lines before do not have".to_owned())?,
            (None, Some(_)) => Err("no offset, which the lines before have".to_owned())?,
            (Some(_), Some(_)) => {}
        }
        let at = offset.zip(self.base).and_then(|(offset, base)| offset.checked_sub(base));
        let have = self.bytes.len();
        match at.and_then(|at| usize::try_from(at).ok()) {
            Some(at) if self.repeated && at > MOST => Err(HexError::Long),
            Some(at) if self.repeated && at > have && (at - have).is_multiple_of(self.row) => {
                let row = self.bytes.get(have - self.row..).unwrap_or_default().to_vec();
                self.bytes.extend(row.iter().cycle().take(at - have));
                self.repeated = false;
                Ok(())
            }
            Some(at) if at == have && !self.repeated => Ok(()),
            // The offset of the next byte may be 2^64, which does not fit into 64 bits.
            _ => Err(format!(
                "rows are missing before it: offset {:#x}, but the next byte is {:#x}",
                offset.unwrap_or_default(),
                u128::from(self.base.unwrap_or_default()) + have as u128
            )
            .into()),
        }
    }
}

/// Splits an offset of more than two digits, a colon and a blank off the beginning of a line.
///
/// Returns the offset, the number of its digits, and the rest of the line.
fn colon_offset(line: &str) -> Option<(u64, usize, &str)> {
    let (word, rest) = line.split_once(':')?;
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let is_offset = word.len() > 2 && rest.starts_with([' ', '\t']) && all_hex(digits);
    Some((u64::from_str_radix(digits, 16).ok()?, digits.len(), rest)).filter(|_| is_offset)
}

/// Splits an offset without a colon off the beginning of a line, and reads the bytes after it. The first word
/// is an offset if it is longer than the other words, which must then be single bytes. If `expected`, earlier
/// lines had such an offset, and an offset may be alone on its line.
fn bare_offset(line: &str, expected: bool) -> Result<(Option<u64>, Vec<u8>), String> {
    let (first, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let mut others = rest.split_whitespace();
    let second = others.next().unwrap_or_default();
    let width = second.len();
    let different = first.len() >= 4 && first.len() != width && all_hex(first) && all_hex(second);
    if different && width == 2 || expected && second.is_empty() {
        // `od` prints offsets of seven digits in octal.
        let radix = if first.len() == 7 { 8 } else { 16 };
        let offset = u64::from_str_radix(first, radix).map_err(|_| quoted(line))?;
        let bytes = columns(rest)?;
        // The other words must have two digits: otherwise a second offset would be read as bytes.
        let words = rest.split_whitespace().take_while(|word| word.len() == 2 && all_hex(word)).count();
        return if words >= bytes.len() { Ok((Some(offset), bytes)) } else { Err(quoted(line)) };
    }
    if different && others.all(|other| other.len() == width && all_hex(other)) {
        return Err(format!(
            "`{first}` looks like an offset, and the order of bytes in `{second}` is not known (say \
             --words little or --words memory, or use od -Ax -tx1)"
        ));
    }
    Ok((None, digits(line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns 64 zeros, which make four lines, then bytes whose characters look like hex, up to the middle
    /// of a line.
    fn sample() -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes.extend(b"abcd  00 11   ef\x01\xffabcd");
        bytes
    }

    fn reads(text: &str) {
        assert_eq!(read(text.as_bytes().to_vec(), None), Ok(Input::Bytes(sample())), "{text}");
    }

    fn refuses(text: &str, message: &str) {
        let seen = read(text.as_bytes().to_vec(), None);
        assert!(seen.as_ref().is_err_and(|error| error.to_string().contains(message)), "{seen:?}");
    }

    #[test]
    fn plain_hex() {
        let want = Ok(vec![0, 1, 0xab, 0xcd]);
        for text in [
            "0001abcd",
            "0x0001ABCD",
            "00 01 ab cd",
            "00:01:ab:cd",
            "0x00, 0x01, 0xab, 0xcd",
            "00000010: 0001 abcd",
            "0x010: 0001\n0x012: abcd\n",
            "0x7f10:\t0x00\t0x01\n0x7f12:\t0xab\t0xcd\n",
            " 00 01\r\n ab cd",
        ] {
            assert_eq!(parse(text), want, "{text:?}");
        }
        for text in ["", " \n", "000", "0g", "+1", "hello", "0001:abcd", "é00"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn xxd() {
        reads(
            "00000000: 0000 0000 0000 0000 0000 0000 0000 0000  ................\n\
             00000010: 0000 0000 0000 0000 0000 0000 0000 0000  ................\n\
             00000020: 0000 0000 0000 0000 0000 0000 0000 0000  ................\n\
             00000030: 0000 0000 0000 0000 0000 0000 0000 0000  ................\n\
             00000040: 6162 6364 2020 3030 2031 3120 2020 6566  abcd  00 11   ef\n\
             00000050: 01ff 6162 6364                           ..abcd\n",
        );
        refuses(
            "00000000: 00000000 00000001\n00000002: 00000000 00000001",
            "line 2: rows are missing before it: offset 0x2",
        );
        refuses("00000000: 0000 00000010: 0000", "line 1 is not hex: `00000010:`");
    }

    #[test]
    fn xxd_plain() {
        reads(&format!("{}\n616263642020303020313120\n2020656601ff61626364\n", "0".repeat(128)));
    }

    #[test]
    fn xxd_as_c() {
        let list: Vec<String> = sample().iter().map(|byte| format!("0x{byte:02x}")).collect();
        let (front, back) = list.split_at(12);
        let lines = format!("  {},\n  {}\n", front.join(", "), back.join(", "));
        reads(&lines);
        reads(&format!("unsigned char a[] = {{\n{lines}}};\nunsigned int a_len = 86;\n"));
        refuses(&format!("{lines}unsigned int a_len = 87;\n"), "line 3: 86 bytes were read");
    }

    #[test]
    fn hexdump_canonical() {
        let end = "00000040  61 62 63 64 20 20 30 30  20 31 31 20 20 20 65 66  |abcd  00 11   ef|\n\
                   00000050  01 ff 61 62 63 64                                 |..abcd|\n\
                   00000056\n";
        let zeros = "00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|\n";
        reads(&format!("00000000  {zeros}*\n{end}"));
        reads(&format!("00000000  {zeros}00000010  {zeros}00000020  {zeros}00000030  {zeros}{end}"));
        refuses(&format!("00000000  {zeros}*\n"), "`*` stands last");
        refuses(&format!("*\n00000000  {zeros}*\n"), "line 1: `*` repeats nothing");
        for (first, last) in [(0, 0x47), (0x10, 0), (0x10, 0x20)] {
            let missing = format!("line 3: rows are missing before it: offset {last:#x}, but");
            refuses(&format!("{first:08x}  {zeros}*\n{last:08x}\n"), &missing);
        }
        refuses(&format!("00000010  {zeros}*\n10000000000000010\n"), "line 2: `*`: how often");
        refuses(
            &format!("00000000  {zeros}00000020  {zeros}"),
            "line 2: rows are missing before it: offset 0x20",
        );
    }

    /// A repeated line may fill a dump up to the limit, and no further.
    #[test]
    fn a_dump_has_a_limit() {
        let dump = |end: usize, last: &str| format!("0000000 00 00\n*\n{end:08x} {last}\n");
        let limit = 4 * 32768 * 64;
        for (end, last) in [(limit, ""), (limit - 2, "ff ff")] {
            assert_eq!(parse(&dump(end, last)).map(|bytes| bytes.len()), Ok(limit), "{end:#x}");
        }
        for (end, last) in [(limit + 2, ""), (limit - 2, "ff ff ff"), (usize::MAX - 1, "")] {
            refuses(&dump(end, last), "the dump is of more than 8 MiB, and text is read up to there");
        }
    }

    #[test]
    fn od_of_bytes() {
        let zeros = "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n";
        let (row, last) = ("61 62 63 64 20 20 30 30 20 31 31 20 20 20 65 66", "01 ff 61 62 63 64");
        reads(&format!("000000 {zeros}*\n000040 {row}\n000050 {last}\n000056\n"));
        reads(&format!(
            "000000 {zeros}000010 {zeros}000020 {zeros}000030 {zeros}000040 {row}\n000050 {last}\n000056\n"
        ));
        // These dumps are outputs of `od` with characters, with octal offsets, and without offsets.
        reads(&format!(
            "000000 {zeros}*\n000040 {row}  >abcd  00 11   ef<\n000050 {last}     >..abcd<\n000056\n"
        ));
        reads(&format!("0000000 {zeros}*\n0000100 {row}\n0000120 {last}\n0000126\n"));
        reads(&format!(" {zeros} {zeros} {zeros} {zeros} {row}\n {last}\n"));
        refuses(&format!(" {zeros}*\n"), "line 2: `*` repeats nothing");
    }

    #[test]
    fn words_of_unknown_order_are_refused() {
        let order = "line 1: `00000";
        refuses("0000000 0000 2500 0000 0840\n0000008\n", order);
        refuses("000000 0000 2500 0000 0840\n000008\n", order);
        refuses("000000 25000000 08400000\n000008\n", order);
        refuses("0x7f00:\t0x25000000\t0x08400000\n", "line 1: behind an offset");
    }

    #[test]
    fn the_last_offset_is_one_like_others() {
        refuses(
            "ffffffffffffffff: 00\n0000000000000000: 00\n",
            "offset 0x0, but the next byte is 0x10000000000000000",
        );
        refuses(
            "ffffffffffffffff: 00\n*\nffffffffffffffff: 00\n",
            "line 3: rows are missing before it: offset 0xffffffffffffffff",
        );
        assert_eq!(parse("ffffffffffffffff: 00 01"), Ok(vec![0, 1]));
    }

    /// The stand-in for the kernel has written this log. A test of the stand-in compares its output with the
    /// same file.
    #[test]
    fn a_log() {
        let log = include_str!("../../../hil-tests/emulator/record/log.txt");
        let [nop, write] = [
            ("mlx5_0 qp 0x40 block 1", vec![0, 0, 1, 0, 0, 0, 0x40, 1, 0, 0, 0, 8, 0, 0, 0, 0]),
            (
                "mlx5_0 qp 0x41 block 2",
                [[0, 0, 2, 8, 0, 0, 0x41, 3, 0, 0, 0, 8, 0, 0, 0, 0], [0x11; 16], [0x22; 16]].concat(),
            ),
        ]
        .map(|(place, bytes)| Logged { place: place.into(), bytes, ..Logged::default() });
        let expected = Ok(Input::Log(vec![nop, write]));
        assert_eq!(read(log.into(), None), expected);
        // The emulated program also prints lines before, between and after the requests. The log's last line
        // may be cut.
        let among = format!("device: 0x77\n{}\nbye", log.replace("\n\n", "\n\n0x000  1\n\x07mlx5_0 qp\n"));
        assert_eq!(read(among.into(), None), expected);
        for (from, to, line) in
            [("\n0x010", "\n0x020", 26), ("\n0x020  22", "\n0x020  2", 30), ("\n0x000 ", "\n0x000\t\n", 3)]
        {
            refuses(&log.replace(from, to), &format!("line {line} is not the row of byte"));
        }
    }

    #[test]
    fn what_decode_prints_is_read_again() {
        let row = "0x000  00000000 00000000 00000000 00000000";
        for (line, text) in
            [(2, format!("NOP\n{row}  control segment\n")), (1, format!("{row}  control")), (1, row.into())]
        {
            let Ok(Input::Dumps(dumps)) = read(text.clone().into_bytes(), None) else { panic!("{text}") };
            let found: Vec<_> = dumps.found.iter().map(|dump| (dump.line, dump.bytes.as_slice())).collect();
            assert_eq!(found, [(line, &[0; 16][..])]);
        }
        refuses("    0000  30313233 34353637\n", "line 1: `0000` looks like an offset");
    }

    /// Returns the dumps that a text contains: first line, offset and length of each. Also returns the lines
    /// with faults.
    fn dumps(text: &str) -> (Vec<(usize, u64, usize)>, Vec<usize>) {
        let Ok(Input::Dumps(dumps)) = read(text.as_bytes().to_vec(), None) else { panic!("{text}") };
        let shape = dumps.found.iter().map(|dump| (dump.line, dump.offset, dump.bytes.len()));
        (shape.collect(), dumps.faults.iter().map(|(line, _)| *line).collect())
    }

    #[test]
    fn rows_stand_anywhere_in_a_line() {
        let bytes = "00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff";
        let words = "00112233 44556677 8899aabb ccddeeff";
        let want: Vec<u8> = (0..16).map(|digit| digit * 0x11).collect();
        for line in [
            format!("[  100.000001] 00000000: {bytes}"),
            format!("Jan 01 00:00:00 host kernel: 00000000: {bytes}"),
            format!("2021-12-03T10:11:12+0000 host kernel: [12.3] 0000: {bytes}  ..\"3DUfw......\u{fffd}."),
            format!("00000000: {bytes} | ..\"3DUfw........"),
            format!("x 00000000  {bytes}  |..\"3DUfw........|"),
            format!("<4>[1.2] {words}"),
            format!("a: {words} |"),
            format!("\u{1b}[33m[1.2]\u{1b}[0m 00000000: {bytes}"),
            "note: 0x7f10:\t0x33221100\t0x77665544\t0xbbaa9988\t0xffeeddcc".into(),
            "0x7f10 <ring+16>:\t0x7766554433221100\t0xffeeddccbbaa9988".into(),
            "log 00000000: 0011 2233 4455 6677 8899 aabb ccdd eeff  ..\"3DUfw........".into(),
        ] {
            let text = format!("words before\n{line}\n");
            let Ok(Input::Dumps(dumps)) = read(text.clone().into_bytes(), None) else { panic!("{text}") };
            assert_eq!(dumps.found.len(), 1, "{text}");
            assert_eq!(
                (&dumps.found[0].bytes, dumps.found[0].heading.as_str()),
                (&want, "words before"),
                "{text}"
            );
        }
    }

    #[test]
    fn dumps_are_told_from_one_another() {
        let row = |offset: u32| format!("t {offset:08x}: {}\n", "00 ".repeat(16));
        let rows = |offsets: &[u32]| offsets.iter().map(|offset| row(*offset)).collect::<String>();
        let plain = "t 00000000 00000000 00000000 00000000\n";
        // A new dump begins where offsets restart, and, in rows without offsets, after another line.
        assert_eq!(dumps(&rows(&[0, 16, 0, 16])), (vec![(1, 0, 32), (3, 0, 32)], vec![]));
        let text = format!("a\n{}b\n{}", plain.repeat(4), plain.repeat(4));
        assert_eq!(dumps(&text), (vec![(2, 0, 64), (7, 0, 64)], vec![]));
        // A line between rows of the same 64-byte block does not separate dumps.
        let text = format!("a\n{}b\n{}", plain.repeat(2), plain.repeat(2));
        assert_eq!(dumps(&text), (vec![(2, 0, 64)], vec![]));
        // Missing rows are a fault. The rows after them are skipped up to the next multiple of 64.
        let text = rows(&[0, 16, 32, 48, 80, 96, 112, 128, 0]);
        assert_eq!(dumps(&text), (vec![(1, 0, 64), (8, 128, 16), (9, 0, 16)], vec![5]));
        // A damaged row and the rows after it are skipped, because the offsets of their bytes are unknown.
        for damaged in ["t 00000000 0000000g 00000000 00000000", "t 00000040: 00 00 00 00 00 00 00 00 0g"] {
            let text = format!("{}{damaged}\n{plain}", plain.repeat(4));
            assert_eq!(dumps(&text), (vec![(1, 0, 64)], vec![5]));
        }
        // A `*` also repeats a row if the text contains other lines.
        let text = format!("a\n{}*\n{}b\n", row(0), row(0x40));
        assert_eq!(dumps(&text), (vec![(2, 0, 80)], vec![]));
        refuses(&format!("a\n{}*\n", row(0)), "line 3: `*`: how often the row before it is repeated");
        refuses(&format!("a\n{}*\n{}", row(0), row(0x100_0000)), "the dump is of more than 8 MiB");
    }

    #[test]
    fn only_what_cannot_be_text_is_raw() {
        let raw = vec![0x41; 15].into_iter().chain([0]).collect::<Vec<u8>>();
        assert_eq!(read(raw.clone(), None), Ok(Input::Bytes(raw)));
        refuses("Dear reader,\nthis is no dump.\n", "line 1 is not hex: `Dear`");
        refuses("\x1b[31m00\x1b[0m\n", "line 1 is not hex");
        assert!(read(b"caf\xe9 au lait is no raw dump".to_vec(), None).is_err());
    }
}
