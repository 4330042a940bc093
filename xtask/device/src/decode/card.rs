//! Draws the card of a piece (a request or a completion entry): a summary, the bytes and fields of its
//! segments, and the findings.

use super::labels::{begins, block_numbers, colour};
use super::options::Options;
use super::pieces::{Piece, Place};
use super::sides::Sides;
use mlx5_mkey::inspect::{Body, Field, Finding, Segment, SegmentKind, Severity};
use mlx5_mkey::wire::ctrl::Opcode;
use std::fmt::{self, Write};
use xtask::html::Escaped;

const OCTOWORD: usize = 16;

/// Iterates over the segments of a piece. A piece that is neither request nor completion entry has none.
pub(super) fn segments<'a>(piece: &Piece<'a>) -> impl Iterator<Item = Segment<'a>> + use<'a> {
    let segments: Vec<_> = match piece {
        Piece::Request(_, request) => request.segments().collect(),
        Piece::Completion(_, entry) => entry.segments().collect(),
        _ => vec![],
    };
    segments.into_iter()
}

/// Returns the kind of a piece in a word or two, for the map of the page.
pub(super) fn opcode(piece: &Piece<'_>) -> String {
    match piece {
        Piece::Request(_, request) => match (request.body(), request.opcode()) {
            (Body::Invalidate(_), _) => "UMR inv".into(),
            (_, Opcode::RDMA_WRITE) => "WRITE".into(),
            (_, Opcode::RDMA_WRITE_IMM) => "WRITE_IMM".into(),
            (_, Opcode::RDMA_READ) => "READ".into(),
            (_, opcode) => opcode.to_string(),
        },
        Piece::Completion(_, entry) => entry.cqe().opcode().to_string(),
        Piece::Words(_) => "words".into(),
        Piece::Compressed { .. } => "compressed".into(),
        Piece::Empty { .. } => "empty".into(),
        Piece::Left { .. } => "rest".into(),
    }
}

/// Returns a short text about a piece for the map of the page: the block numbers of a request, the counter of
/// a completion entry, or the size of another piece.
pub(super) fn place(piece: &Piece<'_>) -> String {
    match piece {
        Piece::Request(_, request) => match block_numbers(request) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}–{last}"),
        },
        Piece::Completion(_, entry) => entry.cqe().wqe_counter.get().to_string(),
        Piece::Words(_) => String::new(),
        Piece::Compressed { entries, .. } => format!("× {entries}"),
        Piece::Empty { blocks, .. } => format!("× {blocks}"),
        Piece::Left { bytes, .. } => format!("{bytes} bytes"),
    }
}

pub(super) fn card(
    page: &mut String,
    number: usize,
    piece: &Piece<'_>,
    sides: &mut Sides<'_>,
    options: &Options,
) -> fmt::Result {
    let mut findings = Vec::new();
    let (words, begin) = match piece {
        Piece::Request(place, request) => {
            request.findings(&options.device, |finding| findings.push(finding));
            (request.summary(options.device).to_string(), begins(place))
        }
        Piece::Completion(place, entry) => {
            entry.findings(|finding| findings.push(finding));
            (entry.summary(options.stride).to_string(), begins(place))
        }
        Piece::Words(words) => return gap(page, number, words.trim_end()),
        Piece::Compressed { offset, entries } => {
            let words = "entries of the compressed completions from byte";
            return gap(page, number, &format!("{entries} {words} {offset:#x} on, not expanded"));
        }
        Piece::Empty { offset, blocks } => {
            return gap(page, number, &format!("{blocks} empty blocks from byte {offset:#x} on"));
        }
        Piece::Left { offset, bytes } => {
            return gap(page, number, &format!("{bytes} bytes are left over from byte {offset:#x} on"));
        }
    };
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity()));
    let worst = findings.first().map_or("", |finding| finding.severity().name());
    let (opcode, rest) = words
        .split_once([' ', ':'])
        .map_or((words.as_str(), ""), |(first, _)| (first, words.get(first.len()..).unwrap_or_default()));
    write!(
        page,
        "<article id=\"r{number}\" class=\"{worst}\">\n<header><small>{}</small>\n\
         <h3><b>{}</b>{}</h3></header>\n<div class=\"body\">\n<div class=\"segments\">\n",
        Escaped(&match piece {
            Piece::Request(Place::Byte(_), _) => format!("block {} · {begin}", place(piece)),
            _ => begin,
        }),
        Escaped(opcode),
        Escaped(rest),
    )?;
    for part in parts(piece, options) {
        draw_part(page, number, &part, &findings)?;
    }
    page.push_str("</div>\n<aside>\n");
    found(page, number, piece, &findings)?;
    if let Piece::Request(_, request) = piece {
        sides.draw(page, number, request)?;
    }
    page.push_str("</aside>\n</div>\n</article>\n");
    Ok(())
}

/// Writes a line in the place of a card.
fn gap(page: &mut String, number: usize, text: &str) -> fmt::Result {
    writeln!(page, "<p class=\"gap\" id=\"r{number}\">{}</p>", Escaped(text))
}

/// Lists the findings about a piece, each with a link to its field.
fn found(page: &mut String, number: usize, piece: &Piece<'_>, findings: &[Finding]) -> fmt::Result {
    if findings.is_empty() {
        page.push_str("<p class=\"fine\">No findings.</p>\n");
        return Ok(());
    }
    page.push_str("<ul class=\"findings\">\n");
    for Finding { offset, problem } in findings {
        let fields = segments(piece).flat_map(|segment| segment.fields().collect::<Vec<_>>());
        let at = fields.filter(|field| field.offset <= *offset).last().map_or(*offset, |field| field.offset);
        writeln!(
            page,
            "<li class=\"{}\"><a href=\"#r{number}-{at:x}\">{offset:#05x}</a> {} <small>{}</small></li>",
            problem.severity().name(),
            Escaped(&problem.to_string()),
            Escaped(problem.source()),
        )?;
    }
    page.push_str("</ul>\n");
    Ok(())
}

/// A drawn part of a card: a segment, or several consecutive segments of padding.
struct Part<'a> {
    segment: Segment<'a>,
    bytes: &'a [u8],
    /// The number of segments that the part consists of.
    count: usize,
    fields: Vec<Field<'a>>,
}

fn parts<'a>(piece: &Piece<'a>, options: &Options) -> Vec<Part<'a>> {
    let all = match piece {
        Piece::Request(_, request) => request.bytes(),
        Piece::Completion(_, entry) => entry.bytes(),
        _ => &[],
    };
    let mut parts: Vec<Part<'a>> = Vec::new();
    for segment in segments(piece) {
        let fields = segment.fields().map(|field| field.with_engine(options.device.engine));
        match parts
            .last_mut()
            .filter(|last| (last.segment.kind, segment.kind) == (SegmentKind::Padding, SegmentKind::Padding))
        {
            Some(last) => {
                let end = segment.offset + segment.bytes.len();
                last.bytes = all.get(last.segment.offset..end).unwrap_or(last.bytes);
                last.count += 1;
                last.fields.extend(fields);
            }
            None => {
                parts.push(Part { segment, bytes: segment.bytes, count: 1, fields: fields.collect() });
            }
        }
    }
    parts
}

/// Draws a part: its bytes, and a table of its fields that the reader can open.
fn draw_part(page: &mut String, number: usize, part: &Part<'_>, findings: &[Finding]) -> fmt::Result {
    let Part { segment, bytes, count, fields } = part;
    let (kind, start) = (segment.kind, segment.offset);
    let within = |finding: &&Finding| (start..start + bytes.len()).contains(&finding.offset);
    let worst = findings.iter().filter(within).map(Finding::severity).max().map_or("", Severity::name);
    write!(
        page,
        "<details class=\"{} {worst}\"><summary><span class=\"name\">{}",
        colour(kind),
        kind.name()
    )?;
    if kind.is_numbered() {
        write!(page, " {}", segment.index)?;
    } else if *count > 1 {
        write!(page, " × {count}")?;
    }
    write!(page, "</span><code>")?;
    // A part without fields is padding of zeros, for which one line of bytes is enough.
    let lines = if fields.is_empty() { 1 } else { usize::MAX };
    for (line, bytes) in bytes.chunks(OCTOWORD).take(lines).enumerate() {
        let offset = start + line * OCTOWORD;
        write!(page, "<span class=\"row\"><span class=\"at\">{offset:03x}</span>")?;
        hex(page, offset, bytes, fields)?;
        page.push_str("</span>");
    }
    page.push_str("</code></summary>\n");
    table(page, number, fields)?;
    page.push_str("</details>\n");
    Ok(())
}

/// Writes bytes in groups of four. A field's name and meaning are the hint (`title`) of its bytes.
fn hex(page: &mut String, offset: usize, bytes: &[u8], fields: &[Field<'_>]) -> fmt::Result {
    let field_at = |at: usize| {
        fields.iter().find(|field| (field.offset..field.offset + field.bytes.len()).contains(&at))
    };
    let mut open: Option<usize> = None;
    for (index, byte) in bytes.iter().enumerate() {
        let field = field_at(offset + index);
        let begins = field.map(|field| field.offset);
        if begins != open || index == 0 {
            if open.is_some() {
                page.push_str("</span>");
            }
            if let Some(field) = field {
                let end = (field.offset + field.bytes.len()).saturating_sub(offset).min(bytes.len());
                let here = bytes.get(index..end).unwrap_or_default();
                let zero = if here.iter().all(|byte| *byte == 0) { " class=\"zero\"" } else { "" };
                write!(page, "<span{zero} title=\"{}: {}\">", field.name, Escaped(&field.to_string()))?;
            }
            open = begins;
        }
        // The blank between groups is written after the beginning of a field's span, so that the hint covers
        // the whole field.
        let gap = if index % 4 == 0 { " " } else { "" };
        match field {
            Some(_) => write!(page, "{gap}{byte:02x}")?,
            None => write!(page, "{gap}<s>{byte:02x}</s>")?,
        }
    }
    page.push_str(if open.is_some() { "</span>" } else { "" });
    Ok(())
}

fn table(page: &mut String, number: usize, fields: &[Field<'_>]) -> fmt::Result {
    if fields.is_empty() {
        page.push_str("<p>all zero</p>\n");
        return Ok(());
    }
    page.push_str("<table>\n");
    for field in fields {
        let groups = field.bytes.iter().take(OCTOWORD).enumerate().map(|(index, byte)| {
            let gap = if index > 0 && index % 4 == 0 { " " } else { "" };
            format!("{gap}{byte:02x}")
        });
        let bytes: String = groups.collect();
        let more = if field.bytes.len() > OCTOWORD { " …" } else { "" };
        writeln!(
            page,
            "<tr id=\"r{number}-{0:x}\"><td>{0:#05x}</td><td>{bytes}{more}</td><th>{1}</th><td>{2}</td></tr>",
            field.offset,
            field.name,
            Escaped(&field.to_string()),
        )?;
    }
    page.push_str("</table>\n");
    Ok(())
}
