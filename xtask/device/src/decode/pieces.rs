//! The input in pieces, in order: what is printed and what is drawn.

use super::reading::{EntrySize, Reading, entry_size};
use mlx5_mkey::inspect::cqe::{CompletionEntry, EntryKind};
use mlx5_mkey::inspect::{DeviceContext, QueueKind, Requests, Severity, WorkRequest};
use xtask_parsers::hex::{Input, Logged};
use xtask_parsers::rows::Dump;

/// From this number on, empty blocks in a row are counted, not shown.
const MANY: usize = 16;

const BLOCK: usize = 64;

/// Where something begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// At this byte of the input.
    Byte(usize),
    /// At the queue pair and block, or completion queue, that a log names.
    Log(&'a str),
}

/// A piece of the input.
#[derive(Clone, Debug)]
pub(super) enum Piece<'a> {
    /// Words about other pieces: where a dump is, what it is read as, what was left out.
    Words(String),
    Request(Place<'a>, WorkRequest<'a>),
    Completion(Place<'a>, CompletionEntry<'a>),
    /// Blocks of zeros, too many to be shown, and how bad one is.
    Empty {
        offset: usize,
        blocks: usize,
        worst: Option<Severity>,
    },
    /// Completion entries that a compressed one stands for.
    Compressed {
        offset: usize,
        entries: usize,
    },
    /// Bytes behind the last request, too few for another.
    Left {
        offset: usize,
        bytes: usize,
    },
}

impl Piece<'_> {
    /// Returns whether it is shown, not only counted.
    pub(super) const fn is_shown(&self) -> bool {
        matches!(self, Self::Request(..) | Self::Completion(..))
    }

    /// Returns how bad the worst finding is.
    pub(super) fn worst(&self, device: &DeviceContext) -> Option<Severity> {
        match self {
            Self::Request(_, request) => request.worst(device),
            Self::Completion(_, entry) => entry.worst(),
            Self::Empty { worst, .. } => *worst,
            Self::Words(_) | Self::Compressed { .. } | Self::Left { .. } => None,
        }
    }
}

/// Cuts the input into requests, or into completion entries.
///
/// # Errors
/// Bytes that are neither.
pub(super) fn pieces(
    input: &Input,
    reading: Option<Reading>,
    queue: QueueKind,
) -> Result<Vec<Piece<'_>>, String> {
    match input {
        Input::Bytes(bytes) => match entry_size(reading, "", bytes) {
            Some(size) => {
                let mut pieces = recognized(size, reading);
                pieces.extend(entries(bytes, size)?);
                Ok(pieces)
            }
            None => requests(bytes, queue),
        },
        Input::Dumps(dumps) => {
            let mut pieces = Vec::new();
            for dump in &dumps.found {
                pieces.extend(of_dump(dump, reading, queue)?);
            }
            let left_out = dumps.left_out();
            pieces.extend((!left_out.is_empty()).then_some(Piece::Words(left_out)));
            Ok(pieces)
        }
        Input::Log(logged) => {
            let completions = matches!(reading, Some(Reading::Entries(_)));
            let mut wanted = logged.iter().filter(|logged| logged.completion == completions).peekable();
            if wanted.peek().is_none() {
                return Err("the log holds nothing of that kind: --cqe shows completion entries".into());
            }
            wanted.map(|logged| logged_piece(logged, queue)).collect()
        }
    }
}

/// Cuts a dump among other text.
fn of_dump(dump: &Dump, reading: Option<Reading>, queue: QueueKind) -> Result<Vec<Piece<'_>>, String> {
    let at = format!("line {}", dump.line);
    let mut words = match dump.heading.as_str() {
        "" => format!("{at}:\n"),
        heading => format!("{at}, below `{heading}`:\n"),
    };
    if dump.turned {
        words += "words are read as numbers of a little-endian machine\n";
    }
    let of_dump = |error| format!("{at}: {error}");
    let mut pieces = vec![Piece::Words(words)];
    match entry_size(reading, &dump.heading, &dump.bytes) {
        Some(size) => {
            pieces.extend(recognized(size, reading));
            pieces.extend(entries(&dump.bytes, size).map_err(of_dump)?);
        }
        None => pieces.extend(requests(&dump.bytes, queue).map_err(of_dump)?),
    }
    Ok(pieces)
}

/// Says that bytes are read as completion entries, or as those of 128 bytes, where nobody asked for that.
fn recognized<'a>(size: EntrySize, reading: Option<Reading>) -> Vec<Piece<'a>> {
    match (reading, size) {
        (Some(Reading::Entries(Some(_))), _) | (Some(_), EntrySize::Short) => vec![],
        _ => vec![Piece::Words(format!("read as completion entries of {} bytes\n", size.bytes()))],
    }
}

fn requests(bytes: &[u8], queue: QueueKind) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    // Behind the blocks that are counted, and behind the last request.
    let (mut counted, mut end) = (0, 0);
    for (offset, request) in Requests::new(bytes).on_queue(queue) {
        end = offset + request.blocks() * BLOCK;
        if offset < counted {
            continue;
        }
        let blocks = empty_blocks(bytes, offset);
        counted = offset + blocks * BLOCK;
        pieces.push(match blocks {
            0 => Piece::Request(Place::Byte(offset), request),
            _ => Piece::Empty { offset, blocks, worst: request.worst(&DeviceContext::UNKNOWN) },
        });
    }
    if pieces.is_empty() {
        return Err(format!("{} bytes are too few for a request: 16 are needed", bytes.len()));
    }
    if bytes.len() > end {
        pieces.push(Piece::Left { offset: end, bytes: bytes.len() - end });
    }
    Ok(pieces)
}

fn logged_piece(logged: &Logged, queue: QueueKind) -> Result<Piece<'_>, String> {
    let Logged { place, completion, bytes } = logged;
    if *completion {
        let entry = CompletionEntry::parse(bytes).map_err(|error| format!("{place}: {error}"))?;
        return Ok(Piece::Completion(Place::Log(place), entry));
    }
    let request = WorkRequest::parse(bytes).map_err(|error| format!("{place}: {error}"))?;
    Ok(Piece::Request(Place::Log(place), request.on_queue(queue)))
}

fn entries(bytes: &[u8], size: EntrySize) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    // Behind the blocks that are counted, and the entries that a compressed one stands for.
    let mut counted = 0;
    for (number, chunk) in bytes.chunks(size.bytes()).enumerate() {
        let offset = number * size.bytes();
        if offset < counted {
            continue;
        }
        if chunk.len() < size.bytes() && !pieces.is_empty() {
            pieces.push(Piece::Left { offset, bytes: chunk.len() });
            break;
        }
        let entry = size.parse(chunk)?;
        let blocks = empty_blocks(bytes, offset);
        counted = offset + blocks * BLOCK;
        if blocks > 0 {
            pieces.push(Piece::Empty { offset, blocks, worst: entry.worst() });
            continue;
        }
        pieces.push(Piece::Completion(Place::Byte(offset), entry));
        if let EntryKind::Compressed(cqe) = entry.kind() {
            let behind = (bytes.len() / size.bytes()).saturating_sub(number + 1);
            let stands_for = cqe.byte_count.get().saturating_sub(1) as usize;
            let entries = behind.min(stands_for);
            if entries > 0 {
                let offset = offset + size.bytes();
                pieces.push(Piece::Compressed { offset, entries });
                counted = offset + entries * size.bytes();
            }
        }
    }
    Ok(pieces)
}

/// Counts the empty blocks that begin here, 0 where they are few.
fn empty_blocks(bytes: &[u8], offset: usize) -> usize {
    let blocks = bytes.get(offset..).unwrap_or_default().chunks_exact(BLOCK);
    let empty = blocks.take_while(|block| block.iter().all(|byte| *byte == 0)).count();
    if empty < MANY { 0 } else { empty }
}
