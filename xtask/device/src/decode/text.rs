//! Prints the pieces of the input as text.

use super::pieces::{Piece, Place};
use mlx5_mkey::inspect::{DeviceContext, Style};
use std::fmt::Write;

/// Prints the pieces one after the other, with a blank line between them. If the caller passes the `stride`
/// (the size of a block with its signature), the text names the block of each signature error.
pub(super) fn text(pieces: &[Piece<'_>], device: DeviceContext, stride: Option<u32>, style: Style) -> String {
    let mut text = String::new();
    for piece in pieces {
        // Writing to a string cannot fail.
        let _ = match piece {
            Piece::Request(place, request) => {
                begin(place, &mut text);
                write!(text, "{}", request.pretty(device, style))
            }
            Piece::Completion(place, entry) => {
                begin(place, &mut text);
                write!(text, "{}", entry.pretty(stride, style))
            }
            Piece::Words(words) => {
                text.push_str(if text.is_empty() || words.starts_with("read as") { "" } else { "\n" });
                text.push_str(words);
                Ok(())
            }
            Piece::Compressed { offset, entries } => {
                begin(&Place::Byte(*offset), &mut text);
                writeln!(text, "{entries} entries of the compressed completions, not expanded")
            }
            Piece::Empty { offset, blocks } => {
                begin(&Place::Byte(*offset), &mut text);
                let plural = if *blocks == 1 { "block" } else { "blocks" };
                writeln!(text, "{blocks} empty {plural}, never written")
            }
            Piece::Left { offset, bytes } => {
                writeln!(text, "\n{bytes} bytes are left over from byte {offset} ({offset:#x})")
            }
        };
    }
    text
}

/// Writes a line with the place where a piece begins. A piece at byte 0 gets no line.
fn begin(place: &Place<'_>, text: &mut String) {
    let _ = match place {
        Place::Byte(0) => Ok(()),
        Place::Byte(offset) => writeln!(text, "\nfrom byte {offset} ({offset:#x}):"),
        Place::Log(place) => {
            let between = if text.is_empty() { "" } else { "\n" };
            writeln!(text, "{between}{place}")
        }
    };
}
