//! Reads the hex digits in a row of a dump.

/// The number of characters of a row among which the end of the bytes is searched.
const MOST_DIGITS: usize = 4096;

/// Reads the columns after an offset: bytes, optionally followed by the same bytes as characters.
pub(super) fn columns(text: &str) -> Result<Vec<u8>, String> {
    // Two blanks separate the bytes from the same bytes as characters. The limit keeps the search fast: a row
    // has few bytes, so its characters begin early in the line.
    for (at, _) in text.char_indices().take(MOST_DIGITS) {
        let (left, rest) = text.split_at(at);
        let Some(right) = rest.strip_prefix("  ") else { continue };
        let trimmed = right.trim();
        let framed = [('|', '|'), ('>', '<')].iter().find_map(|(open, close)| {
            trimmed.strip_prefix(*open).and_then(|inner| inner.strip_suffix(*close))
        });
        let characters = framed.unwrap_or(right).trim_end();
        if characters.is_empty() {
            continue;
        }
        if let Ok(bytes) = digits(left) {
            let shown: String = bytes
                .iter()
                .map(|byte| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' })
                .collect();
            if shown.trim_end() == characters {
                return Ok(bytes);
            }
        }
    }
    if text.split_whitespace().any(|word| word.starts_with("0x") && word.trim_end_matches(',').len() > 4) {
        return Err(order_unknown(text));
    }
    digits(text)
}

/// Reads bytes as pairs of hex digits. Blanks, colons, commas, dashes, underscores and `0x` may separate the
/// pairs.
pub fn digits(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in text.split([' ', '\t', ',', '-', '_']) {
        let colons = word.contains(':');
        for part in word.split(':').filter(|part| !part.is_empty()) {
            let digits = part.strip_prefix("0x").or(part.strip_prefix("0X")).unwrap_or(part);
            if !digits.len().is_multiple_of(2) || !all_hex(digits) || (colons && digits.len() > 2) {
                return Err(quoted(word));
            }
            for pair in digits.as_bytes().chunks(2) {
                let pair = str::from_utf8(pair).map_err(|_| quoted(word))?;
                bytes.push(u8::from_str_radix(pair, 16).map_err(|_| quoted(word))?);
            }
        }
    }
    Ok(bytes)
}

pub(super) fn all_hex(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Quotes the first 40 characters of a text that cannot be read.
pub(super) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    format!("`{}`", short.escape_debug())
}

pub(super) fn is_dword(word: &str) -> bool {
    word.len() == 8 && all_hex(word)
}

pub(super) fn order_unknown(words: &str) -> String {
    format!("behind an offset, the order of bytes in words is not known: {}", quoted(words.trim()))
}
