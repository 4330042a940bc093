//! Draws the pieces of the input as a page of HTML, which needs no external files.

use super::card;
use super::labels::colour;
use super::options::Options;
use super::pieces::Piece;
use super::sides::Sides;
use mlx5_mkey::inspect::{SegmentKind, Severity};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use xtask::html::Escaped;

/// The largest number of pieces (requests, completion entries, notes) on a page. Browsers are slow with more.
const MOST: usize = 2000;

const SEVERITIES: [Severity; 3] = [Severity::Refused, Severity::Suspicious, Severity::Note];

/// Draws the pieces of the input as a page. `source` says where the input comes from.
///
/// # Errors
/// There are too many pieces.
pub(super) fn page(source: &str, pieces: &[Piece<'_>], options: &Options) -> Result<String, String> {
    if pieces.len() > MOST {
        return Err(format!(
            "{} requests are too many for a page, which has {MOST} at most: give a part of them",
            pieces.len()
        ));
    }
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width\"/>\n<title>{0}: {1}</title>\n\
         <style>\n{2}</style>\n</head>\n<body>\n<header>\n<h1>{0}</h1>\n<p class=\"source\">{1}</p>\n",
        if entries_only(pieces) { "Completion entries" } else { "Work requests" },
        Escaped(source),
        include_str!("page.css"),
    );
    let _ = tally(&mut page, pieces, options);
    let _ = legend(&mut page, pieces);
    page.push_str("</header>\n");
    let _ = map(&mut page, pieces, options);
    page.push_str("<main>\n");
    let mut sides = Sides::new(&options.memory);
    for (number, piece) in pieces.iter().enumerate() {
        let _ = card::card(&mut page, number, piece, &mut sides, options);
    }
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(page)
}

/// Returns whether the page shows completion entries and no requests.
fn entries_only(pieces: &[Piece<'_>]) -> bool {
    let is_entry = |piece: &Piece<'_>| matches!(piece, Piece::Completion(..));
    pieces.iter().any(is_entry) && pieces.iter().filter(|piece| piece.is_shown()).all(is_entry)
}

/// Writes the number of requests or entries, and the numbers of findings by severity.
fn tally(page: &mut String, pieces: &[Piece<'_>], options: &Options) -> fmt::Result {
    let mut found: BTreeMap<Severity, usize> = BTreeMap::new();
    let (mut requests, mut blocks) = (0, 0);
    for piece in pieces {
        match piece {
            Piece::Request(_, request) => {
                (requests, blocks) = (requests + 1, blocks + request.blocks());
                request
                    .findings(&options.device, |finding| *found.entry(finding.severity()).or_default() += 1);
            }
            Piece::Completion(_, entry) => {
                (requests, blocks) = (requests + 1, blocks + 1);
                entry.findings(|finding| *found.entry(finding.severity()).or_default() += 1);
            }
            _ => {}
        }
    }
    let what = if entries_only(pieces) { "entries" } else { "requests" };
    write!(page, "<p class=\"tally\"><b>{requests}</b> {what}")?;
    if !entries_only(pieces) {
        write!(page, " in <b>{blocks}</b> blocks")?;
    }
    for severity in SEVERITIES {
        let (name, count) = (severity.name(), found.get(&severity).copied().unwrap_or_default());
        let zero = if count == 0 { " zero" } else { "" };
        let name_of = match (severity, count) {
            (Severity::Note, 1) => "note",
            (Severity::Note, _) => "notes",
            _ => name,
        };
        write!(page, " <span class=\"badge {name}{zero}\">{count} {name_of}</span>")?;
    }
    page.push_str("</p>\n");
    Ok(())
}

/// Writes the legend: the colour of each kind of segment that occurs on the page.
fn legend(page: &mut String, pieces: &[Piece<'_>]) -> fmt::Result {
    let mut kinds: Vec<SegmentKind> = Vec::new();
    for segment in pieces.iter().flat_map(card::segments) {
        if kinds.iter().all(|kind| colour(*kind) != colour(segment.kind)) {
            kinds.push(segment.kind);
        }
    }
    page.push_str("<ul class=\"legend\">\n");
    for kind in kinds {
        writeln!(page, "<li><i class=\"{}\"></i>{}</li>", colour(kind), kind.name())?;
    }
    if !entries_only(pieces) {
        // These two lines explain the colours of the tapes (drawings of consecutive bytes).
        page.push_str(
            "<li><i class=\"bytes\"></i>data</li>\n<li><i class=\"bytes encrypted\"></i>ciphertext</li>\n",
        );
    }
    page.push_str("</ul>\n");
    Ok(())
}

/// Draws the map: a row of blocks of 64 bytes for each queue pair. Each request is a link to its card.
fn map(page: &mut String, pieces: &[Piece<'_>], options: &Options) -> fmt::Result {
    let mut rows: Vec<(String, Vec<usize>)> = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let row = match piece {
            Piece::Words(_) => continue,
            Piece::Request(_, request) => {
                format!("queue pair {:#x}", request.control().qpn_ds_word().qpn())
            }
            Piece::Completion(..) => "entries".into(),
            // A piece that names no queue pair is drawn in the row of the piece before it.
            _ => rows.last().map_or_else(|| "blocks".into(), |(name, _)| name.clone()),
        };
        match rows.iter_mut().find(|(name, _)| *name == row) {
            Some((_, numbers)) => numbers.push(number),
            None => rows.push((row, vec![number])),
        }
    }
    page.push_str("<nav class=\"map\">\n");
    for (name, numbers) in rows {
        write!(page, "<section>\n<h2>{name}</h2>\n<div class=\"ring\">\n")?;
        for number in numbers {
            if let Some(piece) = pieces.get(number) {
                group(page, number, piece, options)?;
            }
        }
        page.push_str("</div>\n</section>\n");
    }
    page.push_str("</nav>\n");
    Ok(())
}

fn group(page: &mut String, number: usize, piece: &Piece<'_>, options: &Options) -> fmt::Result {
    let worst = piece.worst(&options.device).map_or("", Severity::name);
    let title = match piece {
        Piece::Request(_, request) => request.summary(options.device).to_string(),
        Piece::Completion(_, entry) => entry.summary(options.stride).to_string(),
        _ => String::new(),
    };
    write!(
        page,
        "<a class=\"wqe {worst}\" href=\"#r{number}\" title=\"{}\"><b>{}</b><span class=\"blocks\">",
        Escaped(&title),
        Escaped(&card::opcode(piece))
    )?;
    match piece {
        Piece::Request(..) | Piece::Completion(..) => blocks(page, piece)?,
        _ => page.push_str("<i class=\"block\"></i>"),
    }
    writeln!(page, "</span><small>{}</small></a>", card::place(piece))
}

/// Draws the blocks of a piece: each octoword (16 bytes) in the colour of its segment. The unused end of the
/// last block has no colour.
fn blocks(page: &mut String, piece: &Piece<'_>) -> fmt::Result {
    let mut octowords: Vec<&str> = card::segments(piece)
        .flat_map(|segment| vec![colour(segment.kind); segment.bytes.len().div_ceil(16)])
        .collect();
    octowords.resize(octowords.len().next_multiple_of(4), "free");
    for block in octowords.chunks(4) {
        page.push_str("<i class=\"block\">");
        block.iter().try_for_each(|class| write!(page, "<i class=\"{class}\"></i>"))?;
        page.push_str("</i>");
    }
    Ok(())
}
