//! A rule of `cargo xtask tidy`: lines of code and prose have at most 110 columns.

pub(crate) const MOST: usize = 110;

/// Returns the numbers of the lines that are too wide. Two kinds of line may be wider: rows of tables, and
/// lines with a long word that cannot be broken, such as an address or data.
pub(crate) fn wide(text: &str) -> impl Iterator<Item = usize> {
    let wide = |line: &str| line.chars().count() > MOST && !is_row(line) && !is_whole(line);
    text.lines().enumerate().filter(move |(_, line)| wide(line)).map(|(index, _)| index + 1)
}

/// Returns whether a line is a row of a table, in Markdown or in a comment.
fn is_row(line: &str) -> bool {
    line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|')
}

/// Returns whether one word of a line fills more than half of the allowed columns.
fn is_whole(line: &str) -> bool {
    line.split_whitespace().any(|word| word.chars().count() > MOST / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_of_code_and_prose_are_found() {
        let words = "word ".repeat(30);
        for line in
            [format!("// {words}"), format!("/// {words}"), words.clone(), format!("    f(\"{words}\");")]
        {
            assert_eq!(wide(&format!("short\n{line}\n")).collect::<Vec<_>>(), [2], "{line}");
        }
        assert_eq!(wide(&"w ".repeat(55)).count(), 0, "110 columns");
        assert_eq!(wide(&"é ".repeat(56)).count(), 1, "112 columns");
    }

    #[test]
    fn tables_addresses_and_data_may_be_wide() {
        let words = "word ".repeat(30);
        for line in [
            format!("| {words} |"),
            format!("//! | {words} |"),
            format!("/// | {words} |"),
            format!("// https://example.org/{}", "a".repeat(100)),
            format!("    \"{}\",", "00".repeat(60)),
        ] {
            assert_eq!(wide(&line).count(), 0, "{line}");
        }
    }
}
