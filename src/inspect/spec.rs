//! What a segment's tables are made of.

use crate::mkey::XtsEngine;

/// A value or bit of a field and what it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// The bits of the field that are looked at.
    pub(super) mask: u64,
    /// Their value.
    pub(super) value: u64,
    /// What that means; nothing is printed for an empty one.
    pub(super) text: &'static str,
}

pub(super) const fn flag(bit: u32, text: &'static str) -> Named {
    Named { mask: 1 << bit, value: 1 << bit, text }
}

pub(super) const fn part(mask: u64, value: u64, text: &'static str) -> Named {
    Named { mask, value, text }
}

pub(super) const fn code(value: u64, text: &'static str) -> Named {
    Named { mask: u64::MAX, value, text }
}

/// How a field is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// Should be zero; a field only where it is not.
    Reserved,
    /// Has no meaning here, and need not be zero; a field only where it is not.
    Unused,
    /// A number to print in hexadecimal.
    Hex,
    /// A number of something.
    Count(&'static str),
    /// Octowords of 16 bytes.
    Octowords,
    /// A memory key.
    Key,
    /// A number, some of whose values have a name.
    Named(&'static [Named]),
    /// Independent bits and small parts.
    Bits(&'static [Named]),
    /// One of a closed set of codes.
    Codes(&'static [Named]),
    /// A number of bytes, or all ones for no number.
    RawSize,
    /// A work request opcode.
    Opcode,
    /// A completion syndrome.
    Syndrome,
    /// Length of inline data, with a flag in bit 31.
    InlineLength,
    /// A 128-bit tweak in the byte order of the engine, in both where that is not known.
    Tweak(Option<XtsEngine>),
    /// Bytes with no meaning here.
    Bytes,
}

/// One line of a segment's table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) bytes: usize,
    pub(super) name: &'static str,
    pub(super) meaning: Meaning,
}

/// Size of a field that takes what is left of its segment.
pub(super) const REST: usize = usize::MAX;

pub(super) const fn spec(bytes: usize, name: &'static str, meaning: Meaning) -> Spec {
    Spec { bytes, name, meaning }
}

pub(super) const fn unused(bytes: usize) -> Spec {
    spec(bytes, "unused", Meaning::Unused)
}

pub(super) const fn reserved(bytes: usize) -> Spec {
    spec(bytes, "reserved", Meaning::Reserved)
}

/// Returns the size of a table's segment, to compare it with that of the wire struct.
pub(super) const fn total(mut table: &[Spec]) -> usize {
    let mut sum = 0;
    while let [first, rest @ ..] = table {
        sum += first.bytes;
        table = rest;
    }
    sum
}
