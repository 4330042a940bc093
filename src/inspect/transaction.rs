//! Decodes a signature BSF whose signature is a digest: the CRC over a transaction (SPDK
//! `mlx5_set_umr_sig_bsf_seg`).

use super::finding::{Finding, Problem, unknown_code};
use crate::mkey::{Digest, DigestPart, DigestSpan};
use crate::types::{DomainKind, PsvIndex, Seed};
use crate::wire::bsf::{BfsPsv, SignatureBsf, TransactionBits};
use core::mem::offset_of;

/// How an mkey takes part in a CRC32C over the data of a transaction, which may pass through several mkeys.
///
/// ```
/// use mlx5_mkey::inspect::{Body, WorkRequest};
/// /// Prints the PSV that holds the CRC between two mkeys.
/// fn show(request: &WorkRequest<'_>) {
///     if let Body::Configure(umr) = request.body()
///         && let Ok(Some(crc)) = umr.transaction()
///     {
///         println!("{:?} holds the CRC of {} bytes more", crc.psv, crc.length);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TransactionCrc {
    /// The domain in which the CRC stands, and whose bytes it covers.
    pub domain: DomainKind,
    /// The PSV that holds the running CRC of the data that has passed through mkeys so far.
    pub psv: PsvIndex,
    /// The start value of the CRC. It has an effect only if the CRC begins with this mkey.
    pub seed: Seed,
    /// Whether the transaction begins with this mkey.
    pub begins: bool,
    /// Whether the transaction ends with this mkey. The CRC then stands behind the mkey's data.
    pub ends: bool,
    /// Number of data bytes of this mkey.
    pub length: u32,
}

/// Decodes the transaction fields (`ext_…`) of the BSF that begins at `offset`. Returns `None` if neither
/// domain has a format.
pub(super) fn transaction(offset: usize, bsf: &SignatureBsf) -> Result<Option<TransactionCrc>, Finding> {
    let bits = TransactionBits::from_bits(bsf.ext_init_gen_pro_size.get());
    let at = |field| offset + field;
    let (wire_at, memory_at) =
        (offset_of!(SignatureBsf, ext_wire_tfs_psv), offset_of!(SignatureBsf, ext_memory_tfs_psv));
    let (word, name, word_at, domain, begins, ends) =
        match (bsf.ext_wire_tfs_psv.get(), bsf.ext_memory_tfs_psv.get()) {
            (0, 0) => return Ok(None),
            (word, 0) => (word, "w_tfs", wire_at, DomainKind::Wire, bits.wire_init(), bits.wire_check_gen()),
            (0, word) => {
                (word, "m_tfs", memory_at, DomainKind::Memory, bits.memory_init(), bits.memory_check_gen())
            }
            _ => return Err(Finding { offset: at(memory_at), problem: Problem::TransactionInBothDomains }),
        };
    let word = BfsPsv::from_bits(word);
    let seed = match word.bfs() {
        BfsPsv::CRC32C => Seed::Ones,
        format if format == BfsPsv::CRC32C | BfsPsv::SEED_ZERO => Seed::Zeros,
        format => return Err(unknown_code(at(word_at), name, format)),
    };
    let psv = PsvIndex::from_low_bits(word.psv());
    let length = bsf.raw_data_size.get();
    Ok(Some(TransactionCrc { domain, psv, seed, begins, ends, length }))
}

impl TransactionCrc {
    /// Returns the digest that posting encodes as a BSF with these values.
    pub const fn digest(&self) -> Digest {
        let Self { domain, psv, seed, begins, ends, .. } = *self;
        let part = match (begins, ends) {
            (true, true) => DigestPart::Whole,
            (true, false) => DigestPart::First,
            (false, false) => DigestPart::Middle,
            (false, true) => DigestPart::Last,
        };
        Digest { domain, seed, span: DigestSpan::Transaction { part, psv } }
    }

    /// Returns how many bytes the mkey maps: the data, and the CRC if it is in memory.
    pub const fn memory_bytes(&self) -> u64 {
        let crc = match (self.domain, self.ends) {
            (DomainKind::Memory, true) => size_of::<u32>() as u64,
            _ => 0,
        };
        self.length as u64 + crc
    }
}
