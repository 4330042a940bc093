//! Text in HTML pages.

use std::fmt::{self, Write};

/// Text that is escaped for an HTML element or for the quotes of an attribute.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            '\n' => f.write_char('\n'),
            c if c.is_control() => f.write_char('\u{fffd}'),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_html_takes_for_its_own() {
        let text = Escaped("<a href=\"x\">'&'\x1b[1m\n").to_string();
        assert_eq!(text, "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;\u{fffd}[1m\n");
    }
}
