//! Transaction signatures: one CRC32C behind all data of a transaction, which may pass several mkeys
//! (DEVICE.md, "Transaction signatures" and "Transaction signatures with AES-XTS").
//!
//! The PSV holds the CRC of the data transferred so far. The first mkey of a transaction starts the CRC, and
//! each mkey adds its data. The CRC stands behind the data of the last mkey.

use crate::refusal::Reason;
use crate::signature::{CrcKind, Mismatch, Part, Rule, crc32c_continued};
use crate::transfer::{BlockError, Side, SignatureType, Span, room};
use alloc::vec::Vec;

/// The number of bytes of a CRC32C.
pub(crate) const CRC_BYTES: u64 = 4;

/// The part of an mkey's data in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The side on which the CRC stands, and whose bytes the CRC covers.
    pub side: Side,
    /// The PSV that holds the CRC between mkeys.
    pub psv: u32,
    /// The start value of the CRC, if the transaction begins with the first byte of this mkey.
    pub start: Option<u32>,
    /// The CRC of the data transferred so far.
    pub running: Option<u32>,
    /// The number of bytes of data of the mkey, without the CRC.
    pub length: u64,
    /// Whether the CRC stands behind the data of this mkey. The device checks the CRC in bytes that come from
    /// its side (memory or wire), and generates it in bytes that go there.
    pub ends: bool,
}

/// The CRC of a transaction after a transfer, which the device writes back to the PSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The PSV.
    pub psv: u32,
    /// The CRC of the data transferred so far.
    pub crc: u32,
}

impl Transaction {
    /// Returns the CRC of the data before a request. `data` says whether the request has data, or the CRC
    /// alone.
    fn before(&self, data: bool) -> Result<u32, Reason> {
        self.start.filter(|_| data).or(self.running).ok_or(Reason::TransactionNotBegun { psv: self.psv })
    }

    const fn crc_bytes(&self) -> u64 {
        if self.ends { CRC_BYTES } else { 0 }
    }

    /// Returns the ranges of memory bytes and of data bytes that correspond to `length` wire bytes at
    /// `offset` of the mkey. A request covers all data of this mkey. If a CRC follows the data on the wire, a
    /// request may also cover the data and the CRC, or the CRC alone.
    ///
    /// Assumption: the device refuses requests for other ranges. Drivers request only these ranges.
    ///
    /// # Errors
    /// A [`Reason`] if the range is none of these, or if no transaction has begun.
    pub(crate) fn span(&self, offset: u64, length: u64) -> Result<Span, Reason> {
        let (on_wire, in_memory) = match self.side {
            Side::Wire => (self.crc_bytes(), 0),
            Side::Memory => (0, self.crc_bytes()),
        };
        let overflow = Reason::RangeOverflow { offset, length };
        let end = offset.checked_add(length).ok_or(overflow)?;
        let all = self.length.checked_add(on_wire).ok_or(overflow)?;
        if end > all {
            return Err(Reason::BehindTransaction { end, all });
        }
        let span = Span {
            wire_offset: offset,
            wire_length: length,
            data_offset: 0,
            memory_offset: 0,
            memory_length: self.length.checked_add(in_memory).ok_or(overflow)?,
        };
        let span = match (offset, end) {
            (0, end) if end == self.length || end == all => span,
            (offset, end) if offset == self.length && end == all => Span { memory_length: 0, ..span },
            _ => return Err(Reason::PartOfTransaction { offset, length }),
        };
        self.before(offset == 0)?;
        Ok(span)
    }

    /// Adds data to the CRC, and appends the CRC to the data if `length` includes it.
    ///
    /// # Errors
    /// [`Reason::NoRoom`], [`Reason::TransactionNotBegun`].
    pub(crate) fn generate(&self, mut bytes: Vec<u8>, length: u64) -> Result<(Vec<u8>, Running), Reason> {
        let crc = crc32c_continued(self.before(!bytes.is_empty())?, &bytes);
        if length > bytes.len() as u64 {
            bytes.try_reserve(CRC_BYTES as usize).map_err(|_| Reason::NoRoom { length })?;
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        Ok((bytes, Running { psv: self.psv, crc }))
    }

    /// Adds `data` bytes to the CRC, and compares the CRC behind them if there is one.
    ///
    /// Assumption: the offset of an error is the offset of the CRC's last byte, as for blocks.
    ///
    /// # Errors
    /// [`Reason::NoRoom`], [`Reason::TransactionNotBegun`].
    pub(crate) fn check(
        &self,
        bytes: &[u8],
        data: u64,
    ) -> Result<(Vec<u8>, Running, Option<BlockError>), Reason> {
        let data = usize::try_from(data).map_err(|_| Reason::NoRoom { length: data })?;
        let (data, found) = bytes.split_at_checked(data).unwrap_or((bytes, &[]));
        let crc = crc32c_continued(self.before(!data.is_empty())?, data);
        let error = match <[u8; CRC_BYTES as usize]>::try_from(found) {
            Ok(found) if found != crc.to_le_bytes() => {
                // Assumption: a completion shows the CRC of a transaction in the fields for the CRC of a
                // block.
                let rule = Rule::Crc { kind: CrcKind::Crc32c, seed_ones: true };
                Some(BlockError {
                    sig_type: SignatureType::Transaction,
                    side: self.side,
                    psv: self.psv,
                    offset: self.length.saturating_add(CRC_BYTES - 1),
                    mismatch: Mismatch {
                        part: Part::Guard,
                        found: rule.joined_bytes(&found),
                        computed: rule.joined_bytes(&crc.to_le_bytes()),
                    },
                })
            }
            _ => None,
        };
        let mut own = room(data.len())?;
        own.extend_from_slice(data);
        Ok((own, Running { psv: self.psv, crc }, error))
    }
}
