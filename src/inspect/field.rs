//! The fields of a segment: their bytes, and their values in words.

use super::field_table::table;
use super::segment_kind::SegmentKind;
use super::spec::{Meaning, Named, REST, Spec};
use super::tweak::print_tweak;
use crate::mkey::XtsEngine;
use crate::wire::cqe::Syndrome;
use crate::wire::ctrl::Opcode;
use core::fmt;

/// One field of a segment, with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// The segment that the field belongs to.
    pub segment: SegmentKind,
    /// Number of the segment among segments of its kind, counted from 0.
    pub index: usize,
    /// Offset of the field in bytes from the start of the request or completion entry.
    pub offset: usize,
    /// The bytes of the field, big endian.
    pub bytes: &'a [u8],
    /// The name of the field, close to that of the PRM or the reference provider.
    pub name: &'static str,
    meaning: Meaning,
}

/// An iterator over the fields of one segment, without reserved fields that are zero. If the segment is cut
/// off, the last field has fewer bytes than usual.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    table: &'static [Spec],
    bytes: &'a [u8],
    offset: usize,
    segment: SegmentKind,
    index: usize,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(segment: SegmentKind, index: usize, offset: usize, bytes: &'a [u8]) -> Self {
        Self { table: table(segment), bytes, offset, segment, index }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        loop {
            let (first, rest) = self.table.split_first()?;
            if self.bytes.is_empty() {
                return None;
            }
            let whole = first.bytes == REST || first.bytes <= self.bytes.len();
            let (bytes, left) = self.bytes.split_at_checked(first.bytes.min(self.bytes.len()))?;
            let offset = self.offset;
            (self.table, self.bytes, self.offset) = (rest, left, offset + bytes.len());
            if matches!(first.meaning, Meaning::Reserved | Meaning::Unused)
                && bytes.iter().all(|byte| *byte == 0)
            {
                continue;
            }
            let meaning = if whole { first.meaning } else { Meaning::Bytes };
            return Some(Field {
                segment: self.segment,
                index: self.index,
                offset,
                bytes,
                name: first.name,
                meaning,
            });
        }
    }
}

impl Field<'_> {
    /// Returns the field as a device with this AES-XTS engine reads it. The engine determines the byte order
    /// of a tweak. `None` stands for an unknown engine.
    #[must_use]
    pub const fn with_engine(mut self, engine: Option<XtsEngine>) -> Self {
        if let Meaning::Tweak(known) = &mut self.meaning {
            *known = engine;
        }
        self
    }

    /// Returns the value of the field, or of its first 8 bytes if it is longer.
    pub fn value(&self) -> u64 {
        self.bytes.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Returns whether the field is reserved. A reserved field should be zero. Iterators over fields leave it
    /// out if it is zero.
    pub const fn is_reserved(&self) -> bool {
        matches!(self.meaning, Meaning::Reserved)
    }

    /// Returns the bits that are set and have no name in the tables, or 0 if the field is no set of bits.
    pub fn unknown_bits(&self) -> u64 {
        match self.meaning {
            Meaning::Bits(names) => {
                let value = self.value();
                let known = names.iter().filter(|name| value & name.mask == name.value);
                value & !known.fold(0, |mask, name| mask | name.mask)
            }
            _ => 0,
        }
    }

    /// Returns whether the field is a code, and its value is none of the known codes.
    pub fn is_unknown_code(&self) -> bool {
        match self.meaning {
            Meaning::Codes(names) => names.iter().all(|name| name.value != self.value()),
            _ => false,
        }
    }

    fn hex(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }

    fn named(&self, names: &[Named], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value();
        let mut separator = " ";
        for name in names.iter().filter(|name| value & name.mask == name.value && !name.text.is_empty()) {
            write!(f, "{separator}{}", name.text)?;
            separator = ", ";
        }
        Ok(())
    }
}

crate::fmt::defmt_as_text!(Field<'a>);

/// Writes the field's value in the form that suits the field, such as hexadecimal, and the value's meaning.
impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value();
        match self.meaning {
            Meaning::Hex => self.hex(f),
            Meaning::Unused if self.bytes.len() <= 8 => self.hex(f),
            Meaning::Unused => write!(f, "{} bytes", self.bytes.len()),
            Meaning::Reserved if self.bytes.len() <= 8 => {
                self.hex(f)?;
                f.write_str(" (not zero)")
            }
            Meaning::Reserved => write!(f, "{} bytes, not zero", self.bytes.len()),
            Meaning::Count(unit) => {
                write!(f, "{value}{}{unit}", if unit.is_empty() { "" } else { " " })
            }
            Meaning::Octowords => write!(f, "{value} octowords ({} bytes)", value.saturating_mul(16)),
            Meaning::Key => {
                self.hex(f)?;
                write!(f, " index {:#08x} tag {:#04x}", value >> 8, value & 0xff)
            }
            Meaning::Named(names) => {
                self.hex(f)?;
                self.named(names, f)
            }
            Meaning::Bits(names) => {
                self.hex(f)?;
                self.named(names, f)?;
                match self.unknown_bits() {
                    0 => Ok(()),
                    bits => write!(f, ", unknown {bits:#x}"),
                }
            }
            Meaning::Codes(names) => {
                self.hex(f)?;
                self.named(names, f)?;
                f.write_str(if self.is_unknown_code() { " unknown" } else { "" })
            }
            Meaning::RawSize if value == u64::from(u32::MAX) => self.hex(f),
            Meaning::RawSize => {
                self.hex(f)?;
                write!(f, " ({value} bytes)")
            }
            Meaning::Opcode => {
                self.hex(f)?;
                write!(f, " {}", Opcode(value as u8).name().unwrap_or("unknown"))
            }
            Meaning::Syndrome => {
                self.hex(f)?;
                write!(f, " {}", Syndrome(value as u8).name().unwrap_or("unknown"))
            }
            Meaning::InlineLength => write!(f, "{} bytes, inline", value & 0x7fff_ffff),
            Meaning::Tweak(engine) => print_tweak(self.bytes.try_into().unwrap_or_default(), engine, f),
            Meaning::Bytes => write!(f, "{} bytes", self.bytes.len()),
        }
    }
}
