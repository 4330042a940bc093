//! Values that the rules for the BSFs of a UMR share.

use super::super::finding::Problem;
use super::super::transaction::TransactionCrc;
use super::report::Report;
use crate::mkey::BlockSignature;

/// Signatures and length of a UMR, as far as they can be read.
pub(super) struct Protected {
    /// The signatures of blocks.
    pub(super) blocks: Option<BlockSignature>,
    /// The CRC over a transaction.
    pub(super) transaction: Option<TransactionCrc>,
    /// Bytes of memory behind the mkey.
    pub(super) length: Option<u64>,
    /// Bytes of data in that memory.
    pub(super) data: Option<u64>,
}

/// Checks that a raw data size is all ones, or the exact length, with or without the signatures in memory.
pub(super) fn raw_size(offset: usize, size: u32, protected: &Protected, report: &mut Report<'_>) {
    let Some(length) = protected.length else { return };
    let exact = [Some(length), protected.data].contains(&Some(u64::from(size)));
    report.when(size != u32::MAX && !exact, offset, Problem::RawDataSize { size, length });
}
