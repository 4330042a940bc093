//! Splits the input into pieces, in order. Each piece is printed or drawn.

use super::reading::{EntrySize, QUEUES, Reading, are_errors, entry_size, makes_sense};
use mlx5_mkey::inspect::cqe::{CompletionEntry, EntryKind};
use mlx5_mkey::inspect::{Body, DeviceContext, QueueKind, Requests, Severity, WorkRequest};
use xtask_parsers::hex::{Input, Logged};
use xtask_parsers::rows::Dump;

const BLOCK: usize = 64;

/// Where a piece begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// The piece begins at this byte of the input.
    Byte(usize),
    /// The piece comes from a log, which names a block of a queue pair, or a completion queue.
    Log(&'a str),
}

/// A piece of the input: a request, a completion entry, or bytes that are neither.
#[derive(Clone, Debug)]
pub(super) enum Piece<'a> {
    /// A note: the line at which the next dump begins, how its bytes are read, or which lines were skipped.
    Words(String),
    Request(Place<'a>, WorkRequest<'a>),
    Completion(Place<'a>, CompletionEntry<'a>),
    /// Blocks of zeros, to which nothing has been written yet.
    Empty {
        offset: usize,
        blocks: usize,
    },
    /// Entries that follow a compressed completion entry and belong to it. They are not expanded.
    Compressed {
        offset: usize,
        entries: usize,
    },
    /// Bytes after the last request, too few for another request.
    Left {
        offset: usize,
        bytes: usize,
    },
}

impl Piece<'_> {
    /// Returns whether the piece is drawn as a card: a request or a completion entry.
    pub(super) const fn is_shown(&self) -> bool {
        matches!(self, Self::Request(..) | Self::Completion(..))
    }

    /// Returns the severity of the worst finding about the piece, if any.
    pub(super) fn worst(&self, device: &DeviceContext) -> Option<Severity> {
        match self {
            Self::Request(_, request) => request.worst(device),
            Self::Completion(_, entry) => entry.worst(),
            Self::Words(_) | Self::Compressed { .. } | Self::Empty { .. } | Self::Left { .. } => None,
        }
    }
}

/// Splits the input into requests, or into completion entries.
///
/// # Errors
/// The input is neither.
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
            let mut pieces: Vec<Piece<'_>> = Vec::new();
            for dump in &dumps.found {
                pieces.extend(of_dump(dump, reading, queue));
            }
            if pieces.iter().all(|piece| matches!(piece, Piece::Words(_))) {
                let words =
                    pieces.iter().map(|piece| if let Piece::Words(words) = piece { words } else { "" });
                return Err(words.collect::<String>() + &dumps.left_out());
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

/// Splits a dump that was found in other text into pieces. If the dump cannot be decoded, the only piece is a
/// text with the reason.
fn of_dump(dump: &Dump, reading: Option<Reading>, queue: QueueKind) -> Vec<Piece<'_>> {
    let at = format!("line {}", dump.line);
    let mut words = match dump.heading.as_str() {
        "" => format!("{at}:\n"),
        heading => format!("{at}, below `{heading}`:\n"),
    };
    // A dump after a heading of an error completion consists of entries of 64 bytes: libmlx5, the kernel and
    // DPDK print error completions in this size.
    let of_errors = (dump.headings > 0).then_some(Reading::Entries(Some(EntrySize::Short)));
    let reading = reading.or(of_errors);
    let (bytes, note) = ordered(dump, reading);
    words += note;
    let several = dump.headings > 1 && bytes.len() > BLOCK;
    if dump.mixed || several && !are_errors(bytes) {
        words +=
            "not decoded: rows of several dumps are mixed, and which row is of which dump is not known\n";
        return vec![Piece::Words(words)];
    }
    let size = entry_size(reading, &dump.heading, bytes);
    let cut = match size {
        Some(size) => entries(bytes, size).map(|entries| (recognized(size, reading), entries)),
        None => requests(bytes, queue).map(|requests| (vec![], requests)),
    };
    match cut {
        Ok((recognized, pieces)) => [vec![Piece::Words(words)], recognized, pieces].concat(),
        Err(what) => vec![Piece::Words(format!("{words}not decoded: {what}\n"))],
    }
}

/// Returns the bytes of a dump, and a note about their order. The rows or the caller determine the order of
/// bytes in words. Otherwise both orders are tried, and if only one of them makes sense, it is taken. In all
/// other cases the digits are read in the order of memory.
fn ordered(dump: &Dump, reading: Option<Reading>) -> (&[u8], &'static str) {
    let is_sense = |bytes: &[u8]| makes_sense(reading, &dump.heading, bytes);
    match &dump.other {
        _ if dump.turned => (&dump.bytes, "words are read as numbers of a little-endian machine\n"),
        Some(other) if is_sense(other) && !is_sense(&dump.bytes) => {
            (other, "words are read as numbers of a little-endian machine: only these make sense\n")
        }
        Some(other) if is_sense(other) => {
            (&dump.bytes, "words are read in the order of memory; --words little reads them as numbers\n")
        }
        _ => (&dump.bytes, ""),
    }
}

/// Returns a note about the size of completion entries that was chosen. There is no note if an option named
/// the size, or if an option named the kind of input and the size is the usual 64 bytes.
fn recognized<'a>(size: EntrySize, reading: Option<Reading>) -> Vec<Piece<'a>> {
    match (reading, size) {
        (Some(Reading::Entries(Some(_))), _) | (Some(_), EntrySize::Short) => vec![],
        _ => vec![Piece::Words(format!("read as completion entries of {} bytes\n", size.bytes()))],
    }
}

fn requests(bytes: &[u8], queue: QueueKind) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut end = 0;
    for (offset, request) in Requests::new(bytes).on_queue(queue) {
        end = offset + request.blocks() * BLOCK;
        match request.body() {
            Body::Unwritten => add_empty(&mut pieces, offset, request.blocks()),
            _ => pieces.push(Piece::Request(Place::Byte(offset), request)),
        }
    }
    if pieces.is_empty() {
        return Err(format!("{} bytes are too few for a request: 16 are needed", bytes.len()));
    }
    if bytes.len() > end {
        pieces.push(Piece::Left { offset: end, bytes: bytes.len() - end });
    }
    Ok(pieces)
}

/// Adds blocks of zeros as a piece. If the last piece consists of such blocks too, they are added to it.
fn add_empty(pieces: &mut Vec<Piece<'_>>, offset: usize, more: usize) {
    match pieces.last_mut() {
        Some(Piece::Empty { blocks, .. }) => *blocks += more,
        _ => pieces.push(Piece::Empty { offset, blocks: more }),
    }
}

fn logged_piece(logged: &Logged, queue: QueueKind) -> Result<Piece<'_>, String> {
    let Logged { place, completion, queue: kind, bytes } = logged;
    // The log names the kind of each queue pair that is not a connected one. If it names none, the queue pair
    // is a connected one.
    let queue = match queue {
        QueueKind::Unknown => {
            let known = QUEUES.iter().find(|(word, _)| word == kind);
            known.map_or(QueueKind::Connected, |(_, queue)| *queue)
        }
        known => known,
    };
    if *completion {
        let entry = CompletionEntry::parse(bytes).map_err(|error| format!("{place}: {error}"))?;
        return Ok(Piece::Completion(Place::Log(place), entry));
    }
    let request = WorkRequest::parse(bytes).map_err(|error| format!("{place}: {error}"))?;
    Ok(Piece::Request(Place::Log(place), request.on_queue(queue)))
}

fn entries(bytes: &[u8], size: EntrySize) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    // The offset after the entries that belong to the last compressed one.
    let mut counted = 0;
    for (number, chunk) in bytes.chunks(size.bytes()).enumerate() {
        let offset = number * size.bytes();
        if offset < counted {
            continue;
        }
        if chunk.len() < size.bytes() {
            if pieces.is_empty() {
                return Err(format!("{} bytes, and a completion entry has {}", chunk.len(), size.bytes()));
            }
            pieces.push(Piece::Left { offset, bytes: chunk.len() });
            break;
        }
        let entry = size.parse(chunk)?;
        if chunk.iter().all(|byte| *byte == 0) {
            add_empty(&mut pieces, offset, size.bytes() / BLOCK);
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
