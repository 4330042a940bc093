//! A stream of bytes that is divided over several buffers, in ranges of unequal lengths.

use crate::qp_pair::{QpPairFixture, Region};
use mlx5_mkey::mkey::KlmEntry;

/// The byte that fills the buffers outside of the ranges. These bytes must stay unchanged.
const FILL: u8 = 0xb7;
/// The number of fill bytes after each range.
const TAIL: usize = 9;

/// Buffers that together contain one stream. The weights divide the stream: a range's length is proportional
/// to its weight.
pub(super) struct Scattered {
    weights: &'static [u64],
    buffers: Vec<Region>,
}

impl Scattered {
    /// Makes a buffer for each weight, with room for streams of up to `capacity` bytes.
    pub(super) fn new(pair: &mut QpPairFixture<'_>, weights: &'static [u64], capacity: usize) -> Self {
        let total: u64 = weights.iter().sum();
        let buffers = weights
            .iter()
            .enumerate()
            .map(|(number, weight)| {
                let range = capacity as u64 * weight / total + 1;
                pair.region(&vec![FILL; range as usize + head(number) + TAIL])
            })
            .collect();
        Self { weights, buffers }
    }

    /// Makes buffers and writes these bytes into them.
    pub(super) fn holding(pair: &mut QpPairFixture<'_>, weights: &'static [u64], bytes: &[u8]) -> Self {
        let scattered = Self::new(pair, weights, bytes.len());
        scattered.write(pair, bytes);
        scattered
    }

    /// Returns buffer, address and length of each range of a stream of `length` bytes. Empty ranges are left
    /// out.
    fn ranges(&self, length: usize) -> impl Iterator<Item = (&Region, u64, usize)> {
        let total: u64 = self.weights.iter().sum();
        let mut weight = 0;
        let mut start = 0;
        self.buffers.iter().zip(self.weights).enumerate().filter_map(move |(number, (buffer, own))| {
            weight += own;
            let end = (length as u64 * weight / total) as usize;
            let bytes = end - start;
            start = end;
            (bytes > 0).then_some((buffer, buffer.address + head(number) as u64, bytes))
        })
    }

    /// Returns the layout entries of a stream of `length` bytes.
    pub(super) fn entries(&self, length: usize) -> Vec<KlmEntry> {
        let entry = |(buffer, address, bytes): (&Region, u64, usize)| KlmEntry {
            address,
            length: bytes as u32,
            key: buffer.key,
        };
        self.ranges(length).map(entry).collect()
    }

    /// Returns the lengths of the ranges of a stream of `length` bytes.
    pub(super) fn lengths(&self, length: usize) -> Vec<usize> {
        self.ranges(length).map(|(_, _, bytes)| bytes).collect()
    }

    /// Writes a stream into the ranges, and fill bytes before and after each range.
    pub(super) fn write(&self, pair: &mut QpPairFixture<'_>, bytes: &[u8]) {
        for buffer in &self.buffers {
            pair.board.write(buffer.address, &vec![FILL; buffer.length]);
        }
        let mut rest = bytes;
        for (_, address, length) in self.ranges(bytes.len()) {
            let (range, behind) = rest.split_at(length);
            pair.board.write(address, range);
            rest = behind;
        }
    }

    /// Reads a stream from the ranges.
    ///
    /// # Errors
    /// If a byte outside of the ranges has changed.
    pub(super) fn read(&self, pair: &QpPairFixture<'_>, length: usize) -> Result<Vec<u8>, String> {
        let mut stream = Vec::with_capacity(length);
        for (buffer, address, range) in self.ranges(length) {
            let mut bytes = pair.bytes(buffer);
            let start = (address - buffer.address) as usize;
            stream.extend(bytes.drain(start..start + range));
            if bytes.iter().any(|&byte| byte != FILL) {
                return Err("bytes beside a range of the layout were overwritten".into());
            }
        }
        Ok(stream)
    }
}

/// Returns the number of fill bytes before the range of a buffer. Ranges thus have different alignments.
const fn head(number: usize) -> usize {
    2 * number % 15 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::kit::pattern;
    use crate::demo::soft_board;
    use mlx5_softdev::Faults;

    #[test]
    fn ranges_make_up_the_stream_and_guard_what_is_beside_them() {
        let mut board = soft_board(Faults::default());
        let mut pair = QpPairFixture::new(&mut board);
        let scattered = Scattered::new(&mut pair, &[3, 1, 8, 5], 1000);
        for length in [1, 2, 17, 999, 1000] {
            let stream = pattern(length);
            scattered.write(&mut pair, &stream);
            assert_eq!(scattered.read(&pair, length), Ok(stream));
            assert_eq!(scattered.lengths(length).iter().sum::<usize>(), length);
            assert!(scattered.entries(length).iter().all(|entry| entry.length > 0));
        }
        assert_eq!(scattered.lengths(1000), [176, 59, 470, 295]);
        let (_, address, length) = scattered.ranges(1000).nth(2).unwrap();
        for beside in [address - 1, address + length as u64] {
            scattered.write(&mut pair, &[1; 1000]);
            pair.board.write(beside, &[0]);
            assert!(scattered.read(&pair, 1000).is_err());
        }
    }
}
