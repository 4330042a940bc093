//! Draws consecutive bytes as a tape: the widths of data and signatures are proportional to their lengths,
//! and ciphertext is hatched.

use std::fmt::{self, Write};
use xtask::html::Escaped;

/// The largest number of blocks of which a tape shows all. Of more blocks, it shows only the first and the
/// last ones.
const MANY: u64 = 6;

/// A part of a tape, drawn as one box.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    bytes: u64,
    class: &'static str,
    encrypted: bool,
    title: String,
    /// The text in the box. `None` means the number of bytes.
    text: Option<String>,
}

impl Cell {
    pub(super) fn data(bytes: u64, title: &str, encrypted: bool) -> Self {
        Self { bytes, class: "bytes", encrypted, title: title.into(), text: None }
    }

    pub(super) fn range(bytes: u64, title: &str) -> Self {
        Self { class: "entry", ..Self::data(bytes, title, false) }
    }

    pub(super) fn signature(bytes: u64, title: &str, encrypted: bool) -> Self {
        Self { class: "signature", ..Self::data(bytes, title, encrypted) }
    }
}

/// A drawing of consecutive bytes, with notes in HTML.
#[derive(Clone, Debug, Default)]
pub(super) struct Tape {
    pub(super) cells: Vec<Cell>,
    pub(super) notes: Vec<String>,
}

impl Tape {
    /// Returns a tape of data without signatures.
    pub(super) fn of_data(bytes: u64, encrypted: bool) -> Self {
        let title = if encrypted { "ciphertext" } else { "data" };
        let cells = if bytes > 0 { vec![Cell::data(bytes, title, encrypted)] } else { vec![] };
        Self { cells, notes: vec![] }
    }

    /// Returns a tape of `bytes` bytes: blocks of `block` bytes, each followed by a signature (its bytes and
    /// its name). Two flags say whether data and signatures are ciphertext.
    pub(super) fn of_blocks(
        bytes: u64,
        block: u64,
        (signature, name): (u64, &str),
        (data_encrypted, signature_encrypted): (bool, bool),
    ) -> Self {
        let stride = (block + signature).max(1);
        let count = bytes / stride;
        let (before, behind) = if count > MANY { (MANY / 2, MANY / 2 - 1) } else { (count, 0) };
        let mut cells = Vec::new();
        let title = if data_encrypted { "ciphertext" } else { "data" };
        for number in (0..before).chain(count - behind..count) {
            if number == count - behind {
                let left_out = Cell::data(block, "", false);
                let text = format!("… {} more", count - before - behind);
                cells.push(Cell { text: Some(text), class: "more", ..left_out });
            }
            cells.push(Cell::data(block, &format!("{title} of block {number}"), data_encrypted));
            cells.push(Cell::signature(signature, &format!("{name} of block {number}"), signature_encrypted));
        }
        let rest = bytes % stride;
        if rest > 0 {
            cells.push(Cell::data(rest, "a part of a block", data_encrypted));
        }
        Self { cells, notes: vec![format!("{count} × ({block} + {signature} {name})")] }
    }

    /// Returns the tape with an additional first note.
    pub(super) fn headed(mut self, note: String) -> Self {
        self.notes.insert(0, note);
        self
    }

    pub(super) fn draw(&self, page: &mut String, name: &str) -> fmt::Result {
        write!(page, "<div class=\"side\"><b>{name}</b><div class=\"tape\">")?;
        for Cell { bytes, class, encrypted, title, text } in &self.cells {
            let hatched = if *encrypted { " encrypted" } else { "" };
            let text = text.clone().unwrap_or_else(|| bytes.to_string());
            write!(
                page,
                "<i class=\"{class}{hatched}\" style=\"flex-grow:{bytes}\" title=\"{}\">{}</i>",
                Escaped(title),
                Escaped(&text)
            )?;
        }
        page.push_str("</div><small>");
        for (index, note) in self.notes.iter().enumerate() {
            let between = if index == 0 { "" } else { "<br/>" };
            write!(page, "{between}{note}")?;
        }
        page.push_str("</small></div>\n");
        Ok(())
    }
}
