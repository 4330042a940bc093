//! The input in pieces, in order: what is printed and what is drawn.

use mlx5_mkey::inspect::cqe::CompletionEntry;
use mlx5_mkey::inspect::{DeviceContext, Requests, Severity, WorkRequest};
use xtask_parsers::hex::{Input, Logged};

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
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'a> {
    Request(Place<'a>, WorkRequest<'a>),
    Completion(Place<'a>, CompletionEntry<'a>),
    /// Blocks of zeros, too many to be shown, and how bad one is.
    Empty {
        offset: usize,
        blocks: usize,
        worst: Option<Severity>,
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
            Self::Left { .. } => None,
        }
    }
}

/// Cuts the input into requests, or into completion entries.
///
/// # Errors
/// Bytes that are neither.
pub(super) fn pieces(input: &Input, completions: bool) -> Result<Vec<Piece<'_>>, String> {
    match input {
        Input::Bytes(bytes) if completions => entries(bytes),
        Input::Bytes(bytes) => requests(bytes),
        Input::Log(logged) => {
            let mut wanted = logged.iter().filter(|logged| logged.completion == completions).peekable();
            if wanted.peek().is_none() {
                return Err("the log holds nothing of that kind: --cqe shows completion entries".into());
            }
            wanted.map(logged_piece).collect()
        }
    }
}

fn requests(bytes: &[u8]) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    // Behind the blocks that are counted, and behind the last request.
    let (mut counted, mut end) = (0, 0);
    for (offset, request) in Requests::new(bytes) {
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

fn logged_piece(logged: &Logged) -> Result<Piece<'_>, String> {
    let Logged { place, completion, bytes } = logged;
    if *completion {
        let entry = CompletionEntry::parse(bytes).map_err(|error| format!("{place}: {error}"))?;
        return Ok(Piece::Completion(Place::Log(place), entry));
    }
    let request = WorkRequest::parse(bytes).map_err(|error| format!("{place}: {error}"))?;
    Ok(Piece::Request(Place::Log(place), request))
}

fn entries(bytes: &[u8]) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut counted = 0;
    for (number, chunk) in bytes.chunks(BLOCK).enumerate() {
        let offset = number * BLOCK;
        let entry = CompletionEntry::parse(chunk).map_err(|error| error.to_string())?;
        if offset < counted {
            continue;
        }
        let blocks = empty_blocks(bytes, offset);
        counted = offset + blocks * BLOCK;
        pieces.push(match blocks {
            0 => Piece::Completion(Place::Byte(offset), entry),
            _ => Piece::Empty { offset, blocks, worst: entry.worst() },
        });
    }
    Ok(pieces)
}

/// Counts the empty blocks that begin here, 0 where they are few.
fn empty_blocks(bytes: &[u8], offset: usize) -> usize {
    let blocks = bytes.get(offset..).unwrap_or_default().chunks_exact(BLOCK);
    let empty = blocks.take_while(|block| block.iter().all(|byte| *byte == 0)).count();
    if empty < MANY { 0 } else { empty }
}
