//! Decides whether the bytes of a dump are requests or completion entries.

use mlx5_mkey::inspect::cqe::{CompletionEntry, EntryKind};
use mlx5_mkey::inspect::{QueueKind, Requests, Severity};
use mlx5_mkey::wire::MAX_WQE_OCTOWORDS;
use mlx5_mkey::wire::cqe::{CqeOpcode, OpcodeQpn};
use mlx5_mkey::wire::ctrl::Opcode;

/// The kind of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Requests,
    /// Completion entries of this size. `None`: `decode` recognises the size by the bytes.
    Entries(Option<EntrySize>),
}

/// The size of a completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntrySize {
    /// A completion entry has 64 bytes.
    Short,
    /// A completion entry has 128 bytes.
    Long,
}

impl EntrySize {
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Short => 64,
            Self::Long => 128,
        }
    }

    pub(super) fn parse(self, bytes: &[u8]) -> Result<CompletionEntry<'_>, String> {
        let entry = match self {
            Self::Short => CompletionEntry::parse(bytes),
            Self::Long => CompletionEntry::parse_128(bytes),
        };
        entry.map_err(|error| error.to_string())
    }
}

/// Returns the size of the completion entries, or `None` if the bytes are requests. The options decide,
/// otherwise the heading of the dump, otherwise the bytes.
pub(super) fn entry_size(wanted: Option<Reading>, heading: &str, bytes: &[u8]) -> Option<EntrySize> {
    let sensible = || {
        let full =
            [EntrySize::Short, EntrySize::Long].into_iter().find(|size| are_entries(bytes, *size, false));
        // The first half of an entry of 128 bytes is often zero and looks like an unwritten entry of 64
        // bytes. Unwritten entries of 64 bytes are therefore tried last.
        full.or_else(|| {
            [EntrySize::Long, EntrySize::Short].into_iter().find(|size| are_entries(bytes, *size, true))
        })
    };
    match wanted.or_else(|| named(heading)) {
        Some(Reading::Requests) => None,
        Some(Reading::Entries(size)) => Some(size.or_else(sensible).unwrap_or(EntrySize::Short)),
        None if are_requests(bytes) => None,
        None => sensible(),
    }
}

/// Returns whether the bytes are plausible as requests or completion entries. If the options or the heading
/// of the dump name one kind, the bytes must be plausible as this kind. Zeros alone are not plausible.
pub(super) fn makes_sense(wanted: Option<Reading>, heading: &str, bytes: &[u8]) -> bool {
    let are_entries_of = |size| are_entries(bytes, size, true);
    let entries = || are_entries_of(EntrySize::Short) || are_entries_of(EntrySize::Long);
    match wanted.or_else(|| named(heading)) {
        Some(Reading::Requests) => are_requests(bytes),
        Some(Reading::Entries(Some(size))) => are_entries_of(size),
        Some(Reading::Entries(None)) => entries(),
        None => are_requests(bytes) || entries(),
    }
}

/// Returns whether the heading of a dump announces requests or completion entries. libmlx5, the kernel and
/// DPDK print such headings.
fn named(heading: &str) -> Option<Reading> {
    let heading = heading.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| heading.contains(word));
    match (is(&["cqe", "completion"]), is(&["wqe"])) {
        (true, false) => Some(Reading::Entries(None)),
        (false, true) => Some(Reading::Requests),
        _ => None,
    }
}

/// Returns whether all bytes are plausible as requests. Blocks of zeros are allowed among them.
fn are_requests(bytes: &[u8]) -> bool {
    let mut some = false;
    for (_, request) in Requests::new(bytes) {
        if request.bytes().iter().all(|byte| *byte == 0) {
            continue;
        }
        let size = request.control().qpn_ds_word();
        let possible = (1..=MAX_WQE_OCTOWORDS).contains(&size.ds()) && size.qpn() != 0;
        if !possible || request.opcode().name().is_none() {
            return false;
        }
        some = true;
    }
    some
}

/// Returns whether all bytes are error completion entries of 64 bytes.
pub(super) fn are_errors(bytes: &[u8]) -> bool {
    let is_error = |slot| {
        let entry = CompletionEntry::parse(slot);
        entry.is_ok_and(|entry| matches!(entry.kind(), EntryKind::Error(_)) && is_entry(&entry))
    };
    bytes.chunks(EntrySize::Short.bytes()).all(is_error)
}

/// Returns whether all bytes are plausible as completion entries of this size. If `unwritten`, entries of
/// zeros, which the device has not written yet, are allowed among them.
fn are_entries(bytes: &[u8], size: EntrySize, unwritten: bool) -> bool {
    if bytes.is_empty() || !bytes.len().is_multiple_of(size.bytes()) {
        return false;
    }
    let mut entries = bytes.chunks(size.bytes());
    let mut some = false;
    while let Some(slot) = entries.next() {
        let zero = slot.iter().all(|byte| *byte == 0);
        if zero && unwritten {
            continue;
        }
        let Ok(entry) = size.parse(slot) else { return false };
        if !is_entry(&entry) || zero {
            return false;
        }
        some = true;
        // The first half of a slot of 128 bytes must be zero, or inline data.
        let half = slot.get(..slot.len() - 64).unwrap_or_default();
        if entry.inline_data().is_none() && half.iter().any(|byte| *byte != 0) {
            return false;
        }
        if let EntryKind::Compressed(cqe) = entry.kind() {
            // The entries that belong to a compressed one have another format, and are skipped.
            (1..cqe.byte_count.get()).zip(entries.by_ref()).for_each(drop);
        }
    }
    some
}

/// Returns whether a completion entry is plausible: it names a queue pair and an opcode, or an mkey, and no
/// field of it is suspicious.
fn is_entry(entry: &CompletionEntry<'_>) -> bool {
    let of_queue_pair = |word: OpcodeQpn, requester: bool| {
        word.qpn() != 0 && (!requester || Opcode(word.wqe_opcode()).name().is_some())
    };
    let requester = matches!(entry.cqe().opcode(), CqeOpcode::REQUESTER | CqeOpcode::REQUESTER_ERROR);
    let sensible = match entry.kind() {
        EntryKind::Success(cqe) | EntryKind::Compressed(cqe) => of_queue_pair(cqe.opcode_qpn(), requester),
        EntryKind::Error(error) => of_queue_pair(OpcodeQpn::from_bits(error.sop_qpn.get()), requester),
        EntryKind::SignatureError(fault) => fault.mkey.get() != 0,
        EntryKind::NotWritten => true,
        _ => false,
    };
    sensible && entry.worst() < Some(Severity::Suspicious)
}

/// The words for kinds of queues, in `--queue` and in logs.
pub(super) const QUEUES: &[(&str, QueueKind)] = &[
    ("rc", QueueKind::Connected),
    ("uc", QueueKind::Connected),
    ("ud", QueueKind::Datagram),
    ("dc", QueueKind::DynamicallyConnected),
    ("xrc", QueueKind::ExtendedConnected),
    ("ethernet", QueueKind::Ethernet),
];
