//! The state of mkeys after the requests that were decoded so far: their memory, and its form on the wire.

use super::memory::{MOST, Memory};
use super::tape::{Cell, Tape};
use mlx5_mkey::inspect::{TransactionCrc, Umr};
use mlx5_mkey::mkey::{BlockSignature, Signature};
use mlx5_mkey::types::DomainKind;
use mlx5_mkey::wire::bsf::EncryptionOrder;

/// The size of a transaction's CRC, in bytes.
const CRC: u64 = 4;

/// The state of an mkey, as far as the decoded requests show it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The number on the page of the last request that configured the mkey, for links.
    pub(super) request: usize,
    /// The low byte of the mkey's key.
    pub(super) tag: u8,
    /// Length of the mkey's memory in bytes.
    pub(super) length: Option<u64>,
    /// The ranges of memory that the mkey maps, if the layout is a list.
    pub(super) ranges: Vec<Range>,
    blocks: Option<BlockSignature>,
    transaction: Option<TransactionCrc>,
    cipher: Option<Cipher>,
}

/// The memory range of one list entry. The last range ends at the length of the mkey.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) bytes: u64,
    pub(super) key: u32,
    pub(super) address: u64,
}

/// The AES-XTS properties of an mkey.
#[derive(Clone, Copy, Debug)]
struct Cipher {
    order: EncryptionOrder,
    unit: u32,
}

impl Cipher {
    /// Returns whether the data of a domain are ciphertext, and whether its signatures are.
    const fn covers(self, domain: DomainKind) -> (bool, bool) {
        match (self.order, domain) {
            (EncryptionOrder::WIRE_SIGNATURE, DomainKind::Wire)
            | (EncryptionOrder::MEMORY_SIGNATURE, DomainKind::Memory) => (true, true),
            (EncryptionOrder::RAW_WIRE, DomainKind::Wire)
            | (EncryptionOrder::RAW_MEMORY, DomainKind::Memory) => (true, false),
            _ => (false, false),
        }
    }
}

const fn name(signature: &Signature) -> &'static str {
    match signature {
        Signature::T10Dif(_) => "T10-DIF",
        Signature::Crc32(_) => "CRC32",
        Signature::Crc32c(_) => "CRC32C",
        Signature::Crc64Xp10(_) => "CRC64",
    }
}

impl Known {
    /// Records a configuration. `request` is the number of its request on the page.
    pub(super) fn change(&mut self, umr: &Umr<'_>, request: usize) {
        (self.request, self.tag) = (request, umr.tag().unwrap_or(umr.key().tag()));
        self.length = umr.length().or(self.length);
        if let Some(layout) = umr.layout() {
            let mut left = self.length.unwrap_or_default();
            self.ranges.clear();
            for entry in layout.list_entries() {
                let bytes = u64::from(entry.length).min(left);
                left -= bytes;
                // Entries beyond the mkey's length may be left from an earlier configuration.
                if bytes > 0 {
                    self.ranges.push(Range { bytes, key: entry.key.get(), address: entry.address });
                }
            }
        } else if umr.pointer().is_some() {
            self.ranges.clear();
        }
        if umr.signature_bsf().is_some() || umr.crypto_bsf().is_some() {
            self.blocks = umr.signature().unwrap_or_default();
            self.transaction = umr.transaction().unwrap_or_default();
            let order = umr.crypto_bsf().map(|(_, bsf)| EncryptionOrder(bsf.enc_order));
            self.cipher = order.zip(umr.data_unit()).map(|(order, unit)| Cipher { order, unit });
        }
        if umr.bsf_enable() == Some(false) {
            (self.blocks, self.transaction, self.cipher) = (None, None, None);
        }
    }

    /// Returns whether the wire has other bytes than memory: signatures, a CRC or ciphertext.
    pub(super) const fn transforms(&self) -> bool {
        self.blocks.is_some() || self.transaction.is_some() || self.cipher.is_some()
    }

    /// Returns the number of wire bytes of the whole mkey. Returns `None` if the mkey's length is unknown, or
    /// no multiple of its block size.
    pub(super) fn wire_bytes(&self) -> Option<u64> {
        let length = self.length?;
        match (&self.transaction, &self.blocks) {
            (Some(crc), _) => Some(u64::from(crc.length) + self.crc_bytes(DomainKind::Wire)),
            (None, Some(blocks)) => blocks.wire_bytes(length),
            (None, None) => Some(length),
        }
    }

    /// Returns the number of bytes that the transaction's CRC has in a domain of this mkey: 4 or 0.
    fn crc_bytes(&self, domain: DomainKind) -> u64 {
        let ends = self.transaction.is_some_and(|crc| crc.domain == domain && crc.ends);
        if ends { CRC } else { 0 }
    }

    /// Returns start and length of the memory bytes that correspond to a range of wire bytes, or `None` if
    /// there are none, for example because the range ends inside of a block.
    pub(super) fn place(&self, offset: u64, wire: u64) -> Option<(u64, u64)> {
        if offset == 0 && Some(wire) == self.wire_bytes() {
            return Some((0, self.length?));
        }
        match (&self.transaction, &self.blocks) {
            (Some(crc), _) if offset == u64::from(crc.length) => Some((offset, 0)),
            (Some(crc), _) if offset == 0 && wire == u64::from(crc.length) => Some((0, self.length?)),
            (Some(_), _) => None,
            (None, Some(blocks)) => Some((blocks.memory_bytes(offset)?, blocks.memory_bytes(wire)?)),
            (None, None) => Some((offset, wire)),
        }
    }

    /// Returns the first bytes of a range of the mkey's memory, as many as the page shows, or `None` if the
    /// copies of memory lack some of them.
    pub(super) fn held(&self, memory: &Memory, (start, length): (u64, u64)) -> Option<Vec<u8>> {
        let shown = length.min(MOST as u64);
        let end = start.checked_add(shown)?;
        let (mut held, mut at) = (Vec::new(), 0_u64);
        for range in &self.ranges {
            let (from, to) = (start.max(at), end.min(at.checked_add(range.bytes)?));
            if from < to {
                held.extend_from_slice(memory.bytes(range.address.checked_add(from - at)?, to - from)?);
            }
            at += range.bytes;
        }
        (held.len() as u64 == shown).then_some(held)
    }

    /// Returns the tape (a drawing of consecutive bytes) of `bytes` bytes in a domain.
    pub(super) fn tape(&self, domain: DomainKind, bytes: u64) -> Tape {
        let (data, signatures) = self.cipher.map_or((false, false), |cipher| cipher.covers(domain));
        let own = self.blocks.as_ref().and_then(|blocks| blocks.domain(domain));
        let crc = self.crc_bytes(domain).min(bytes);
        let mut tape = match own {
            Some(own) => {
                let block = own.block_size.bytes();
                let signature = (u64::from(own.stride() - block), name(&own.signature));
                Tape::of_blocks(bytes, u64::from(block), signature, (data, signatures))
            }
            None => Tape::of_data(bytes - crc, data),
        };
        if crc > 0 {
            tape.cells.push(Cell::signature(crc, "CRC32C of the transaction", false));
            tape.notes.push(format!("{} + {crc} CRC32C", bytes - crc));
        }
        if let Some(cipher) = self.cipher.filter(|_| data) {
            tape.notes.push(format!("AES-XTS in units of {}", cipher.unit));
        }
        tape
    }

    /// Returns the tape (a drawing of consecutive bytes) of `bytes` wire bytes from `offset` on.
    pub(super) fn wire_tape(&self, offset: u64, bytes: u64) -> Tape {
        match &self.transaction {
            Some(crc) if offset == u64::from(crc.length) => {
                let cell = Cell::signature(bytes, "CRC32C of the transaction", false);
                Tape { cells: vec![cell], notes: vec!["the CRC alone".into()] }
            }
            Some(crc) if bytes == u64::from(crc.length) => {
                Tape::of_data(bytes, self.cipher.is_some_and(|cipher| cipher.covers(DomainKind::Wire).0))
            }
            _ => self.tape(DomainKind::Wire, bytes),
        }
    }
}
