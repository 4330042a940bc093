//! Rules for CRCs over transactions. The only source of these rules is the code of drivers (SPDK,
//! `mlx5_set_umr_sig_bsf_seg`).

use super::super::finding::Problem;
use super::protected::Protected;
use super::report::Report;
use super::umr::LEN_AT;
use crate::mkey::check_mask;
use crate::wire::bsf::{BsfSize, SignatureBsf, TransactionBits};
use core::mem::offset_of;

/// Checks the transaction BSF that begins at `offset`.
pub(super) fn check(offset: usize, bsf: &SignatureBsf, protected: &Protected, report: &mut Report<'_>) {
    let formats = [("wire", bsf.ext_wire_tfs_psv.get()), ("memory", bsf.ext_memory_tfs_psv.get())];
    let formatted = formats.iter().any(|(_, word)| *word != 0);
    let extended = BsfSize::from_bits(bsf.bsf_size_sbs).size() == BsfSize::EXTENDED;
    if !formatted && !extended {
        return;
    }
    report.when(!formatted, offset, Problem::TransactionEmpty);
    let blocks = bsf.wire != 0 || bsf.memory != 0;
    report.when(blocks, offset + offset_of!(SignatureBsf, wire), Problem::TransactionWithBlocks);
    let bits = TransactionBits::from_bits(bsf.ext_init_gen_pro_size.get());
    let used = [bits.wire_init() || bits.wire_check_gen(), bits.memory_init() || bits.memory_check_gen()];
    let bits_at = offset + offset_of!(SignatureBsf, ext_init_gen_pro_size);
    for ((domain, word), used) in formats.into_iter().zip(used) {
        report.when(used && word == 0, bits_at, Problem::TransactionBits { domain });
    }
    let mask = bsf.check_byte_mask;
    let mask_at = offset + offset_of!(SignatureBsf, check_byte_mask);
    report.when(formatted && mask != check_mask::ALL, mask_at, Problem::TransactionCheckMask { mask });
    if let (Some(transaction), Some(length)) = (&protected.transaction, protected.length) {
        let size = transaction.memory_bytes();
        report.when(size != length, LEN_AT, Problem::TransactionSize { size, length });
    }
}
