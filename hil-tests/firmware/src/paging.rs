//! Builds the processor's translation tables, as plain numbers: pages of 4 KB, addresses of 39 bits, each
//! address mapped to itself.

pub(crate) const PAGE: u64 = 4096;
/// Number of address bits that are translated. Higher bits are 0.
pub(crate) const ADDRESS_BITS: u64 = 39;
const ENTRIES: usize = 512;
/// log2 of the bytes that an entry of each level covers: 1 GB, 2 MB, 4 KB.
const SHIFTS: [u32; 3] = [30, 21, 12];

const VALID: u64 = 1;
/// A valid entry with this bit points to a table at levels 1 and 2, and to a page at level 3. A valid entry
/// without this bit maps a block.
const TABLE_OR_PAGE: u64 = 1 << 1;
/// Selects byte 1 of MAIR_EL1 as the memory attributes. Entries without this bit select byte 0.
const SECOND_ATTRIBUTES: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
/// The access flag. The first access through an entry without it would fault.
const ACCESSED: u64 = 1 << 10;
const NEVER_EXECUTED: u64 = 0b11 << 53;
const NEVER_EXECUTED_BY_USER: u64 = 1 << 54;
const NEXT: u64 = 0xffff_ffff_f000;

/// The byte of MAIR_EL1 for write-back cacheable memory with allocation.
pub(crate) const WRITE_BACK: u64 = 0xff;
/// The byte of MAIR_EL1 for normal non-cacheable memory, whose accesses may be reordered (unlike device
/// memory).
pub(crate) const NON_CACHEABLE: u64 = 0x44;
/// The value of MAIR_EL1. Each entry selects its byte 0 or 1.
pub(crate) const MAIR: u64 = WRITE_BACK | (NON_CACHEABLE << 8);

/// How the program uses a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Code: execute and read.
    Code,
    /// Constants: read.
    Constants,
    /// Variables: read and write.
    Data,
    /// Memory shared with devices: read and write, without caches.
    Uncached,
}

impl Kind {
    const fn attributes(self) -> u64 {
        let cached = INNER_SHAREABLE | ACCESSED | VALID;
        match self {
            Self::Code => cached | READ_ONLY | NEVER_EXECUTED_BY_USER,
            Self::Constants => cached | READ_ONLY | NEVER_EXECUTED,
            Self::Data => cached | NEVER_EXECUTED,
            Self::Uncached => SECOND_ATTRIBUTES | ACCESSED | VALID | NEVER_EXECUTED,
        }
    }
}

/// The reason why a range cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapError {
    /// The start or the end is no page boundary, the end is below the start, or the end needs more address
    /// bits.
    Range,
    /// Part of the range is mapped already.
    Overlap,
    /// All tables are in use.
    Tables,
}

/// A translation table, in the format of the processor.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
pub(crate) struct Table([u64; ENTRIES]);

impl Table {
    pub(crate) const EMPTY: Self = Self([0; ENTRIES]);
}

/// A set of tables, which are taken into use as ranges are mapped. The first is the root.
pub(crate) struct Tables<'t> {
    tables: &'t mut [Table],
    /// Address of the first table.
    base: u64,
    used: usize,
}

impl<'t> Tables<'t> {
    /// Makes a set of these empty tables. The first table is at the address `base`.
    pub(crate) fn new(tables: &'t mut [Table], base: u64) -> Self {
        Self { tables, base, used: 1 }
    }

    /// Maps the range `start..end` to the same addresses, in blocks of 2 MB or 1 GB where they fit.
    ///
    /// # Errors
    /// The reason of the failure. Part of the range may already be mapped then.
    pub(crate) fn map(&mut self, start: u64, end: u64, kind: Kind) -> Result<(), MapError> {
        let whole = start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
        if !whole || end < start || end > 1 << ADDRESS_BITS {
            return Err(MapError::Range);
        }
        let mut at = start;
        while at < end {
            at += self.place(at, end - at, kind)?;
        }
        Ok(())
    }

    /// Writes the largest entry that fits at an address and returns the bytes that it covers.
    fn place(&mut self, at: u64, room: u64, kind: Kind) -> Result<u64, MapError> {
        let mut table = 0;
        for shift in SHIFTS {
            let size = 1_u64 << shift;
            let entry = self.entry(table, (at >> shift) as usize % ENTRIES)?;
            if shift == SHIFTS[2] || (at.is_multiple_of(size) && room >= size && *entry == 0) {
                if *entry != 0 {
                    return Err(MapError::Overlap);
                }
                *entry = at | kind.attributes() | if shift == SHIFTS[2] { TABLE_OR_PAGE } else { 0 };
                return Ok(size);
            }
            table = self.below(table, (at >> shift) as usize % ENTRIES)?;
        }
        Err(MapError::Range)
    }

    /// Returns the table that an entry points to. An empty entry gets a new table.
    fn below(&mut self, table: usize, index: usize) -> Result<usize, MapError> {
        let (base, next) = (self.base, self.used);
        let entry = self.entry(table, index)?;
        match *entry {
            0 => {
                *entry = (base + next as u64 * PAGE) | TABLE_OR_PAGE | VALID;
                self.used += 1;
                Ok(next)
            }
            found if found & TABLE_OR_PAGE == 0 => Err(MapError::Overlap),
            found => Ok(((found & NEXT) - base) as usize / PAGE as usize),
        }
    }

    fn entry(&mut self, table: usize, index: usize) -> Result<&mut u64, MapError> {
        self.tables.get_mut(table).and_then(|table| table.0.get_mut(index)).ok_or(MapError::Tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x4010_0000;

    /// Walks the tables as the processor does: returns the entry of an address, and the bytes that it covers.
    fn walk(tables: &[Table], address: u64) -> Option<(u64, u64)> {
        let mut table = 0;
        for shift in SHIFTS {
            let entry = tables[table].0[(address >> shift) as usize % ENTRIES];
            if entry & VALID == 0 {
                return None;
            }
            if shift == 12 || entry & TABLE_OR_PAGE == 0 {
                assert_eq!(entry & TABLE_OR_PAGE != 0, shift == 12);
                assert_eq!(entry & NEXT & !((1 << shift) - 1), address & !((1 << shift) - 1), "{address:x}");
                return Some((entry & !NEXT & !TABLE_OR_PAGE, 1 << shift));
            }
            table = ((entry & NEXT) - BASE) as usize / 4096;
        }
        None
    }

    #[test]
    fn pages_and_blocks_lead_to_themselves() {
        let mut memory = [Table::EMPTY; 8];
        let mut tables = Tables::new(&mut memory, BASE);
        for (start, end, kind) in [
            (0x4008_0000, 0x4009_3000, Kind::Code),
            (0x4009_3000, 0x4009_4000, Kind::Constants),
            (0x400a_4000, 0x4123_4000, Kind::Data),
            (0x5800_0000, 0x6000_0000, Kind::Uncached),
            (0x8000_0000, 0xc000_0000, Kind::Data),
        ] {
            assert_eq!(tables.map(start, end, kind), Ok(()));
        }
        let (code, constants, data, uncached) = (
            Kind::Code.attributes(),
            Kind::Constants.attributes(),
            Kind::Data.attributes(),
            Kind::Uncached.attributes(),
        );
        for (address, expected) in [
            (0x0, None),
            (0x4007_ffff, None),
            (0x4008_0000, Some((code, 4096))),
            (0x4009_2fff, Some((code, 4096))),
            (0x4009_3000, Some((constants, 4096))),
            (0x4009_4000, None),
            (0x400a_3fff, None),
            (0x400a_4000, Some((data, 4096))),
            (0x4020_0000, Some((data, 2 << 20))),
            (0x4123_3fff, Some((data, 4096))),
            (0x4123_4000, None),
            (0x5800_0000, Some((uncached, 2 << 20))),
            (0x5fff_ffff, Some((uncached, 2 << 20))),
            (0x6000_0000, None),
            (0x8000_0000, Some((data, 1 << 30))),
            (0xc000_0000, None),
        ] {
            assert_eq!(walk(&memory, address), expected, "{address:x}");
        }
    }

    #[test]
    fn nothing_is_both_written_and_executed() {
        for kind in [Kind::Code, Kind::Constants, Kind::Data, Kind::Uncached] {
            let attributes = kind.attributes();
            assert!(attributes & READ_ONLY != 0 || attributes & NEVER_EXECUTED == NEVER_EXECUTED, "{kind:?}");
        }
    }

    #[test]
    fn what_cannot_be_mapped_is_refused() {
        let mut memory = [Table::EMPTY; 3];
        let mut tables = Tables::new(&mut memory, BASE);
        assert_eq!(tables.map(0x1001, 0x2000, Kind::Data), Err(MapError::Range));
        assert_eq!(tables.map(0x1000, 0x2008, Kind::Data), Err(MapError::Range));
        assert_eq!(tables.map(0x2000, 0x1000, Kind::Data), Err(MapError::Range));
        assert_eq!(tables.map(0, u64::MAX - 4095, Kind::Data), Err(MapError::Range));
        assert_eq!(tables.map(0x1000, 0x3000, Kind::Data), Ok(()));
        assert_eq!(tables.map(0x2000, 0x4000, Kind::Code), Err(MapError::Overlap));
        assert_eq!(tables.map(0x20_0000, 0x40_0000, Kind::Data), Ok(()));
        assert_eq!(tables.map(0x20_0000, 0x20_1000, Kind::Data), Err(MapError::Overlap));
        assert_eq!(tables.map(0x40_0000, 0x40_1000, Kind::Data), Err(MapError::Tables));
    }
}
