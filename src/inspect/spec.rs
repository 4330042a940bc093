//! The types of which the tables of fields are made, one table for each kind of segment.

use crate::mkey::XtsEngine;

/// A value of a field, or of some of its bits, with the meaning of the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// Mask of the bits of the field that belong to the value.
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

/// The meaning of a field, which determines how the field is read and printed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// A reserved field, which should be zero. It is listed only if it is not zero.
    Reserved,
    /// A field that this library ignores, and that may have any value. It is listed only if it is not zero.
    Unused,
    /// A number to print in hexadecimal.
    Hex,
    /// A number. The text is its unit, and may be empty.
    Count(&'static str),
    /// A number of octowords of 16 bytes.
    Octowords,
    /// A memory key.
    Key,
    /// A number, some of whose values have a name.
    Named(&'static [Named]),
    /// Independent bits, and groups of bits.
    Bits(&'static [Named]),
    /// One of a closed set of codes.
    Codes(&'static [Named]),
    /// A number of bytes. All ones mean that no number is given.
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
    /// Bytes without a further meaning, such as data.
    Bytes,
}

/// A field in the table of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) bytes: usize,
    pub(super) name: &'static str,
    pub(super) meaning: Meaning,
}

/// The size of a field that takes the rest of its segment.
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

/// Returns the sum of the sizes of a table's fields. Assertions compare the sum with the size of the wire
/// struct.
pub(super) const fn total(mut table: &[Spec]) -> usize {
    let mut sum = 0;
    while let [first, rest @ ..] = table {
        sum += first.bytes;
        table = rest;
    }
    sum
}
