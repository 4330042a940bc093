//! Values and a rule that the rules for the different BSFs of a UMR share.

use super::super::finding::Problem;
use super::super::transaction::TransactionCrc;
use super::report::Report;
use crate::mkey::BlockSignature;

/// Signatures and length that a UMR gives an mkey, as far as they can be read.
pub(super) struct Protected {
    /// The block signatures; `None` if there are none, or if they cannot be decoded.
    pub(super) blocks: Option<BlockSignature>,
    /// The CRC over a transaction.
    pub(super) transaction: Option<TransactionCrc>,
    /// Number of bytes that the mkey maps.
    pub(super) length: Option<u64>,
    /// Number of data bytes among the mapped bytes.
    pub(super) data: Option<u64>,
}

/// Checks that the field `raw_data_size` is all ones, or the exact length with or without the signatures in
/// memory. `offset` is the offset of the field.
pub(super) fn raw_size(offset: usize, size: u32, protected: &Protected, report: &mut Report<'_>) {
    let Some(length) = protected.length else { return };
    let exact = [Some(length), protected.data].contains(&Some(u64::from(size)));
    report.when(size != u32::MAX && !exact, offset, Problem::RawDataSize { size, length });
}
