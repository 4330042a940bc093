//! The bytes that wait until a peer takes them.

use std::collections::VecDeque;
use std::sync::Arc;

/// Data of at least this many bytes are not copied: the backlog shares them with the request that waits for
/// its answer.
const SHARED: usize = 1 << 12;

/// From this length on, a piece of copied bytes grows no more.
const LONG: usize = 1 << 16;

/// The bytes that wait, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pieces: VecDeque<Piece>,
    length: usize,
}

/// A part of the bytes.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    /// The number of the first bytes that are not part of the backlog (any more).
    skipped: usize,
}

#[derive(Debug)]
enum Bytes {
    Own(Vec<u8>),
    Shared(Arc<Vec<u8>>),
}

impl Piece {
    fn rest(&self) -> &[u8] {
        let bytes = match &self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
        };
        bytes.get(self.skipped..).unwrap_or_default()
    }
}

impl Backlog {
    /// Returns the number of bytes.
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // The memory of a piece is free only when the peer has taken the whole piece, so no piece grows for
        // ever.
        if let Some(Piece { bytes: Bytes::Own(last), .. }) = self.pieces.back_mut()
            && last.len() < LONG
        {
            last.extend_from_slice(bytes);
        } else if !bytes.is_empty() {
            self.pieces.push_back(Piece { bytes: Bytes::Own(bytes.to_vec()), skipped: 0 });
        }
        self.length += bytes.len();
    }

    /// Appends the bytes of `data` from byte `from` on.
    pub(crate) fn push_data(&mut self, data: &Arc<Vec<u8>>, from: usize) {
        let rest = data.get(from..).unwrap_or_default();
        if rest.len() < SHARED {
            return self.push(rest);
        }
        self.length += rest.len();
        self.pieces.push_back(Piece { bytes: Bytes::Shared(Arc::clone(data)), skipped: from });
    }

    /// Returns the bytes, in the order in which they go to the peer.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(Piece::rest)
    }

    /// Removes bytes that the peer has taken: `count`, or all if there are fewer. Returns their number.
    pub(crate) fn take(&mut self, count: usize) -> usize {
        let before = self.length;
        self.length = before.saturating_sub(count);
        let mut left = before - self.length;
        while let Some(first) = self.pieces.front_mut() {
            let taken = left.min(first.rest().len());
            first.skipped += taken;
            left -= taken;
            if !first.rest().is_empty() {
                break;
            }
            self.pieces.pop_front();
        }
        before - self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_in_parts_of_any_length() {
        let data = Arc::new((0..SHARED + 99).map(|at| at as u8).collect::<Vec<_>>());
        for (from, part) in [(0, 1), (0, 777), (0, SHARED), (55, 777), (100, 1 << 20)] {
            let mut backlog = Backlog::default();
            backlog.push_data(&data, from);
            backlog.push(b"");
            backlog.push(b"head");
            backlog.push(b"er");
            backlog.push_data(&data, 0);
            backlog.push_data(&data, 7);
            let all = [&data[from..], b"header", &data, &data[7..]].concat();
            let mut sent = Vec::new();
            while backlog.len() > 0 {
                assert_eq!(backlog.len(), all.len() - sent.len());
                let next = backlog.pieces().next().unwrap();
                let next = next[..part.min(next.len())].to_vec();
                assert_eq!(backlog.take(next.len()), next.len());
                sent.extend(next);
            }
            assert!(sent == all, "{from} {part}");
            assert_eq!((backlog.pieces().count(), backlog.take(9)), (0, 0));
        }
    }

    #[test]
    fn taken_bytes_do_not_stay_in_memory() {
        let mut backlog = Backlog::default();
        backlog.push(&[0; 200]);
        for _ in 0..10_000 {
            backlog.push(&[0; 100]);
            backlog.take(100);
        }
        let memory: usize = backlog.pieces.iter().map(|piece| piece.skipped + piece.rest().len()).sum();
        assert!(backlog.len() == 200 && memory <= LONG + 200, "{memory}");
    }
}
