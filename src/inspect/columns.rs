//! A writer of text in at most 100 columns, which breaks lines between words and adds colours.

use super::finding::Severity;
use core::fmt::{self, Write};

/// The largest width of a line, in columns.
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
    /// Text with colours, as escape sequences of ECMA-48, which terminals interpret.
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
    /// Returns the parameters of the escape sequence that switches the colour on.
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

/// A writer that breaks lines between words. Escape sequences of colours are not counted as columns.
pub(super) struct Columns<'w> {
    out: &'w mut dyn Write,
    style: Style,
    /// The column at which the rest of a broken line continues.
    pub(super) indent: usize,
    column: usize,
    /// Number of blanks before the next word, unless the line is broken there.
    blanks: usize,
    word: heapless::String<WIDTH>,
}

impl<'w> Columns<'w> {
    pub(super) fn new(out: &'w mut dyn Write, style: Style) -> Self {
        Self { out, style, indent: 0, column: 0, blanks: 0, word: heapless::String::new() }
    }

    /// Writes the word that has been collected so far, on the next line if this line has too little room.
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

    /// Writes the blanks before a word one at a time, because the formatter can panic at a width that is not
    /// constant.
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

    /// Makes the next word begin at `column`, or after one blank if the line is already wider.
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
