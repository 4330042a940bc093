//! The building blocks of the tables of segments.

use crate::mkey::XtsEngine;

/// A value or bits of a field, with its meaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// Selects the bits of the field to compare.
    pub(super) mask: u64,
    /// The value of these bits.
    pub(super) value: u64,
    /// The meaning of the value. An empty text is not printed.
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

/// The way in which a field is read and printed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// Should be zero. A zero is not listed as a field.
    Reserved,
    /// Has no meaning here, and may have any value. A zero is not listed as a field.
    Unused,
    /// A number to print in hexadecimal.
    Hex,
    /// A number of the named things.
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
    /// A 128-bit tweak, in the byte order of the engine. For an unknown engine, it is printed in both byte
    /// orders.
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

/// Size of a field that takes the rest of its segment.
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

/// Returns the size of a table's segment. Assertions compare it with the size of the wire struct.
pub(super) const fn total(mut table: &[Spec]) -> usize {
    let mut sum = 0;
    while let [first, rest @ ..] = table {
        sum += first.bytes;
        table = rest;
    }
    sum
}
