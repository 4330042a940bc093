//! Text in at most 100 columns: breaks lines between words, and adds colours.

use super::finding::Severity;
use core::fmt::{self, Write};

/// The widest line, in columns.
const WIDTH: usize = 100;

/// The style of the output: with colours or without.
///
/// ```
/// use mlx5_mkey::inspect::{DeviceContext, Style, WorkRequest};
/// use std::io::IsTerminal;
/// fn show(request: &WorkRequest<'_>) {
///     let style = if std::io::stdout().is_terminal() { Style::Ansi } else { Style::Plain };
///     println!("{}", request.pretty(DeviceContext::UNKNOWN, style));
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Style {
    /// Text without colours.
    #[default]
    Plain,
    /// Colours as escape sequences of ECMA-48, which terminals know.
    Ansi,
}

/// The role of a piece of text, which determines its colour.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Text,
    Heading,
    Bytes,
    Name,
    Severity(Severity),
}

impl Role {
    /// Returns the parameters of the escape sequence.
    const fn ansi(self) -> &'static str {
        match self {
            Self::Text => "0",
            Self::Heading => "1",
            Self::Bytes => "2",
            Self::Name => "36",
            Self::Severity(Severity::Refused) => "1;31",
            Self::Severity(Severity::Suspicious) => "33",
            Self::Severity(Severity::Note) => "34",
        }
    }
}

/// A writer that breaks lines between words. Escape sequences of colours take no columns.
pub(super) struct Columns<'w> {
    out: &'w mut dyn Write,
    style: Style,
    /// The column at which the rest of a broken line continues.
    pub(super) indent: usize,
    column: usize,
    /// Blanks that come before the next word, unless the line is broken there.
    blanks: usize,
    word: heapless::String<WIDTH>,
}

impl<'w> Columns<'w> {
    pub(super) fn new(out: &'w mut dyn Write, style: Style) -> Self {
        Self { out, style, indent: 0, column: 0, blanks: 0, word: heapless::String::new() }
    }

    /// Writes the pending word.
    pub(super) fn flush(&mut self) -> fmt::Result {
        if self.word.is_empty() {
            return Ok(());
        }
        let length = self.word.chars().count();
        if self.column + self.blanks + length > WIDTH && self.column > self.indent {
            self.out.write_char('\n')?;
            (self.column, self.blanks) = (0, self.indent);
        }
        self.write_blanks()?;
        self.out.write_str(&self.word)?;
        self.column += length;
        self.word.clear();
        Ok(())
    }

    /// Writes the blanks before a word one at a time: a width that is not constant can make the formatter
    /// panic.
    fn write_blanks(&mut self) -> fmt::Result {
        for _ in 0..self.blanks {
            self.out.write_char(' ')?;
        }
        self.column += self.blanks;
        self.blanks = 0;
        Ok(())
    }

    pub(super) fn newline(&mut self) -> fmt::Result {
        self.flush()?;
        (self.column, self.blanks) = (0, 0);
        self.out.write_char('\n')
    }

    /// Continues at a column, with at least one blank before it.
    pub(super) fn tab(&mut self, column: usize) -> fmt::Result {
        self.flush()?;
        self.blanks = column.saturating_sub(self.column).max(usize::from(self.column > 0));
        Ok(())
    }

    pub(super) fn styled(&mut self, role: Role, text: fmt::Arguments<'_>) -> fmt::Result {
        if self.style == Style::Plain {
            return self.write_fmt(text);
        }
        // Blanks are written before the colour begins, so that a line broken here is not coloured up to its
        // edge.
        self.flush()?;
        self.write_blanks()?;
        write!(self.out, "\x1b[{}m", role.ansi())?;
        self.write_fmt(text)?;
        self.flush()?;
        write!(self.out, "\x1b[{}m", Role::Text.ansi())
    }
}

impl Write for Columns<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if character == ' ' {
                self.flush()?;
                self.blanks += 1;
            } else if self.word.push(character).is_err() {
                self.flush()?;
                let _ = self.word.push(character);
            }
        }
        Ok(())
    }
}
