//! Copies of memory that a work request refers to, given with the option `--memory`.

use std::fmt::{self, Write};
use xtask::html::Escaped;

const LINE: usize = 16;

/// The number of lines of a memory dump that are visible when the page opens. A click shows further lines.
const SEEN: usize = 4;

/// The largest number of bytes that the page shows of a memory dump.
pub(super) const MOST: usize = 64 * LINE;

/// Copied ranges of memory: address and bytes of each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Memory(Vec<(u64, Vec<u8>)>);

impl Memory {
    /// Reads a copy of memory from a file. `copy` is the option's text, `ADDRESS=FILE`.
    ///
    /// # Errors
    /// `copy` has another form, or the file cannot be read.
    pub(super) fn add(&mut self, copy: &str) -> Result<(), String> {
        let wanted = "--memory wants ADDRESS=FILE, the address with 0x";
        let (address, file) = copy.split_once('=').ok_or(wanted)?;
        let digits = address.strip_prefix("0x").ok_or(wanted)?;
        let address = u64::from_str_radix(digits, 16).map_err(|_| wanted)?;
        self.0.push((address, std::fs::read(file).map_err(|error| format!("{file}: {error}"))?));
        Ok(())
    }

    /// Returns the bytes of a range if one copy contains all of them.
    pub(super) fn bytes(&self, address: u64, length: u64) -> Option<&[u8]> {
        self.0.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(usize::try_from(length).ok()?)?)
        })
    }
}

/// Writes the first of `total` bytes in lines of 16, with their characters. Only the first lines are visible
/// when the page opens. A click shows the others.
pub(super) fn dump(page: &mut String, bytes: &[u8], total: u64) -> fmt::Result {
    let bytes = bytes.get(..MOST).unwrap_or(bytes);
    let lines: Vec<&[u8]> = bytes.chunks(LINE).collect();
    let (seen, rest) = lines.split_at(lines.len().min(SEEN));
    page.push_str("<pre>");
    seen.iter().enumerate().try_for_each(|(number, line)| write_line(page, number, line))?;
    page.push_str("</pre>\n");
    if rest.is_empty() {
        return Ok(());
    }
    let end = bytes.len();
    write!(page, "<details class=\"rest\"><summary>up to byte {end} of {total}</summary><pre>")?;
    rest.iter().zip(SEEN..).try_for_each(|(line, number)| write_line(page, number, line))?;
    page.push_str("</pre></details>\n");
    Ok(())
}

fn write_line(page: &mut String, number: usize, line: &[u8]) -> fmt::Result {
    let groups: Vec<String> =
        line.chunks(4).map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    let letters: String =
        line.iter().map(|byte| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' }).collect();
    writeln!(page, "{:03x}  {:<35}  {}", number * LINE, groups.join(" "), Escaped(&letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_in_one_copy() {
        let memory = Memory(vec![(0x1000, vec![1, 2, 3, 4]), (0x1004, vec![5])]);
        assert_eq!(memory.bytes(0x1001, 3), Some(&[2, 3, 4][..]));
        assert_eq!(memory.bytes(0x1004, 1), Some(&[5][..]));
        for (address, length) in [(0x1001, 4), (0xfff, 1), (0x1005, 1), (u64::MAX, u64::MAX)] {
            assert_eq!(memory.bytes(address, length), None);
        }
    }

    #[test]
    fn many_bytes_are_there_on_demand() -> fmt::Result {
        let mut page = String::new();
        dump(&mut page, b"<a>\x01", 4)?;
        assert_eq!(page, format!("<pre>000  3c613e01{:29}&lt;a&gt;.\n</pre>\n", ""));
        page.clear();
        dump(&mut page, &[0; 5000], 5000)?;
        assert!(page.contains("<summary>up to byte 1024 of 5000</summary>"), "{page}");
        assert_eq!(page.lines().filter(|line| line.contains("00000000 00000000")).count(), 64);
        Ok(())
    }
}
