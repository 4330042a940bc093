//! What a source file says: its lines of code and its words.

/// Lines that are code, with their numbers.
pub(super) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    numbered(text).filter(is_code)
}

/// Lines of code before the tests, which are last in a file.
pub(super) fn shipped(text: &str) -> impl Iterator<Item = (usize, &str)> {
    before_tests(text).filter(is_code)
}

/// Lines before the tests, comments among them.
pub(super) fn before_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut before = "";
    numbered(text).take_while(move |(_, line)| {
        let tests = before.starts_with("#[cfg(test)]") && line.starts_with("mod ") && line.ends_with('{');
        before = line;
        !tests
    })
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn is_code((_, line): &(usize, &str)) -> bool {
    !line.trim_start().starts_with("//")
}

/// Returns whether a file of the library is tests.
pub(super) fn is_test(inside: &str) -> bool {
    inside.contains("/tests/") || inside.ends_with("/tests.rs")
}

/// Returns whether a character may be part of a name.
pub(super) fn is_letter(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Splits code into names, `::` and single characters. Blanks, comments and literals are left out.
pub(super) fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = if let Some(length) = literal(rest) {
            rest = &rest[length..];
            continue;
        } else if is_letter(first) {
            rest.find(|c| !is_letter(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, behind) = rest.split_at(length);
        if !first.is_whitespace() {
            tokens.push(token);
        }
        rest = behind;
    }
    tokens
}

/// Returns the length of the comment, string or character that begins here.
fn literal(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if let Some(raw) = text.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", &raw[..hashes]);
            let opening = 1 + hashes + 1;
            return Some(text[opening..].find(&end).map_or(text.len(), |at| opening + at + end.len()));
        }
    }
    if text.starts_with('"') {
        return Some(closing(text, '"'));
    }
    // What is no character is a lifetime.
    let character = text.strip_prefix('\'')?;
    let mut letters = character.chars();
    let first = letters.next()?;
    (first == '\\' || letters.next() == Some('\'')).then(|| closing(text, '\''))
}

/// Returns where a literal ends that begins with this quote.
fn closing(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        if character == quote && !escaped {
            return at + 1;
        }
        escaped = character == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_names_and_signs_without_comments_and_literals() {
        let code = r##"use a::{b, c}; // a comment
            f("a \" string::x", '"', '\'', r#"raw " one"#, 'a', &'a str) as u8"##;
        let found = tokens(code).join(" ");
        assert_eq!(found, "use a :: { b , c } ; f ( , , , , , & ' a str ) as u8");
    }
}
