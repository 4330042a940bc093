//! A rule of `cargo xtask tidy`: lines of code and prose have at most 110 columns, lines of help texts 100.

const MOST: usize = 110;
const MOST_OF_HELP: usize = 100;

/// Returns the numbers of the lines that are too wide. Two kinds of line may be wider: rows of tables, and
/// lines with a long word that cannot be broken, such as an address or data.
pub(crate) fn wide(text: &str) -> impl Iterator<Item = usize> {
    let mut most = MOST;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let is_wide = line.chars().count() > most && !is_row(line) && !is_whole(line);
        if [" HELP: &str = \"\\", " USAGE: &str = \"\\"].iter().any(|start| line.ends_with(start)) {
            most = MOST_OF_HELP;
        } else if line == "\";" {
            most = MOST;
        }
        is_wide.then_some(number)
    })
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
        let line = "w ".repeat(51);
        let help = format!("pub const HELP: &str = \"\\\n{line}\n\";\n{line}\n");
        assert_eq!(wide(&help).collect::<Vec<_>>(), [2], "102 columns");
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
