//! Converts memory bytes to wire bytes and back, by a decoded [`Transform`]. These are pure functions over
//! whole transfers.
//!
//! A transfer takes these steps, in this order on transmit and reversed on receive. The encryption order
//! selects one of the three places of the cipher (DEVICE.md, "Crypto BSF and encryption order", rows A to J):
//!
//! ```text
//! memory ─▶ cipher over memory bytes (order 1) ─▶ strip memory signatures ─▶ cipher over data (orders 2, 3)
//!        ─▶ insert wire signatures ─▶ cipher over wire bytes (order 0) ─▶ wire
//! ```
//!
//! The CRC of a transaction covers all bytes of its side (memory or wire), in the form that they have there.
//! The CRC follows these bytes.

use crate::crypto::{Direction, Xts};
use crate::faults::Faults;
use crate::profile::PartialBlocks;
use crate::refusal::Reason;
use crate::signature::Rule;
use crate::transaction::{Running, Transaction};
use crate::transfer::room;
pub use crate::transfer::{BlockError, Side, SignatureType, Span};
use alloc::vec::Vec;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From memory to the wire.
    Transmit,
    /// From the wire to memory.
    Receive,
}

/// The signatures of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The number of bytes of data in a protected block, without the signature.
    pub block: u32,
    /// The rule that computes a signature.
    pub rule: Rule,
    /// The PSV. Its state decides whether errors are reported.
    pub psv: u32,
}

impl Domain {
    /// Returns the number of bytes of a block with its signature.
    fn stride(&self) -> u64 {
        u64::from(self.block).saturating_add(u64::from(self.rule.bytes()))
    }
}

/// The side that holds ciphertext, and whether its signatures are encrypted (`enc_order`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// 0: the wire is encrypted, with its signatures.
    WireSignature,
    /// 1: memory is encrypted, with its signatures.
    MemorySignature,
    /// 2: the wire is encrypted, its signatures are plain and cover ciphertext.
    RawWire,
    /// 3: memory is encrypted, its signatures are plain and cover ciphertext.
    RawMemory,
}

impl Order {
    /// Returns the code of the order in a BSF.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the side that holds ciphertext.
    pub const fn side(self) -> Side {
        match self {
            Self::WireSignature | Self::RawWire => Side::Wire,
            Self::MemorySignature | Self::RawMemory => Side::Memory,
        }
    }
}

/// The cipher of an mkey.
#[derive(Clone, Copy, Debug)]
pub struct Cipher<'a> {
    /// The expanded key.
    pub key: &'a Xts,
    /// The side that holds ciphertext, and whether its signatures are encrypted.
    pub order: Order,
    /// The number of bytes of a data unit.
    pub unit: u32,
    /// Tweak of the data unit at offset 0 of the mkey.
    pub tweak: u128,
    /// The increment of the tweak from one data unit to the next.
    pub step: u128,
    /// Whether the engine takes only one data unit in a transfer.
    pub single_block: bool,
}

/// The transform that an mkey applies to transferred bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transform<'a> {
    /// Signatures in memory.
    pub memory: Option<Domain>,
    /// Signatures on the wire.
    pub wire: Option<Domain>,
    /// Mask of the bytes that are checked in each signature of the input (the side that the transfer reads).
    pub check_mask: u8,
    /// Mask of the bytes that are copied from the input's signatures to the output's. 0 unless both have the
    /// same structure.
    pub copy_mask: u8,
    /// The cipher, if the mkey has one.
    pub cipher: Option<Cipher<'a>>,
    /// The signature over a whole transaction, instead of signatures of blocks.
    pub transaction: Option<Transaction>,
}

/// The result of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Wire bytes on transmit, memory bytes on receive.
    pub bytes: Vec<u8>,
    /// The first wrong signature of the input.
    pub error: Option<BlockError>,
    /// The CRC of a transaction, which the device writes to its PSV.
    pub running: Option<Running>,
}

/// Data, signatures, and the first wrong signature, if any.
type Stripped = (Vec<u8>, Vec<u8>, Option<BlockError>);

/// Converts an offset in a domain with signatures to an offset in bytes of data.
fn data_in(domain: Option<Domain>, offset: u64) -> u64 {
    let Some(domain) = domain else { return offset };
    let (blocks, rest) = (offset / domain.stride(), offset % domain.stride());
    let block = u64::from(domain.block.max(1));
    blocks.saturating_mul(block).saturating_add(rest.min(block))
}

/// Converts an offset in bytes of data to an offset in a domain with signatures.
fn domain_in(domain: Option<Domain>, data: u64) -> u64 {
    let Some(domain) = domain else { return data };
    let block = u64::from(domain.block.max(1));
    (data / block).saturating_mul(domain.stride()).saturating_add(data % block)
}

impl<'a> Transform<'a> {
    /// Returns the ranges of memory bytes and of data bytes that correspond to `length` wire bytes at
    /// `offset` of the mkey. `partial` says whether the range may end inside a block.
    ///
    /// # Errors
    /// [`Reason::OffsetInBlock`], [`Reason::EndInBlock`], [`Reason::RangeOverflow`]; with a transaction, also
    /// the reasons for ranges that a transaction cannot have.
    pub fn span(
        &self,
        offset: u64,
        length: u64,
        partial: PartialBlocks,
        faults: &Faults,
    ) -> Result<Span, Reason> {
        if let Some(transaction) = &self.transaction {
            return transaction.span(offset, length);
        }
        let starts = |domain: Option<Domain>, at: u64| domain.is_none_or(|d| at.is_multiple_of(d.stride()));
        let (from, to) = if faults.length_counts_memory_bytes {
            (self.memory, self.wire)
        } else {
            (self.wire, self.memory)
        };
        let end = offset.checked_add(length).ok_or(Reason::RangeOverflow { offset, length })?;
        let (data_offset, data_end) = (data_in(from, offset), data_in(from, end));
        let (other, other_end) = (domain_in(to, data_offset), domain_in(to, data_end));
        // A request has to start at the start of a block, in both domains: no signature covers a part of a
        // block.
        if !starts(from, offset) || !starts(to, other) {
            return Err(Reason::OffsetInBlock { offset, block: self.stride(from, to) });
        }
        if partial == PartialBlocks::Refuse && !(starts(from, end) && starts(to, other_end)) {
            return Err(Reason::EndInBlock { end, block: self.stride(from, to) });
        }
        let other_length = other_end.saturating_sub(other);
        Ok(if faults.length_counts_memory_bytes {
            Span {
                wire_offset: other,
                wire_length: other_length,
                data_offset,
                memory_offset: offset,
                memory_length: length,
            }
        } else {
            Span {
                wire_offset: offset,
                wire_length: length,
                data_offset,
                memory_offset: other,
                memory_length: other_length,
            }
        })
    }

    /// Returns the block size, with signature, that a refusal names: the block size of the first domain with
    /// blocks.
    fn stride(&self, from: Option<Domain>, to: Option<Domain>) -> u64 {
        from.or(to).map_or(1, |domain| domain.stride())
    }

    /// Turns the memory bytes of `span` into wire bytes.
    ///
    /// # Errors
    /// A [`Reason`] where a cipher cannot take the transfer, or memory runs out.
    pub fn transmit(&self, span: &Span, memory: Vec<u8>, faults: &Faults) -> Result<Output, Reason> {
        if let Some(transaction) = &self.transaction {
            return self.transmit_transaction(transaction, span, memory, faults);
        }
        let mut bytes = memory;
        self.run_cipher(Way::Transmit, &[Order::MemorySignature], span.memory_offset, &mut bytes, faults)?;
        let (mut data, signatures, error) = self.strip(Side::Memory, self.memory, span, bytes, faults)?;
        let raw = [Order::RawWire, Order::RawMemory];
        let over_plaintext = faults.signature_over_plaintext && self.wire.is_some();
        if !over_plaintext {
            self.run_cipher(Way::Transmit, &raw, span.data_offset, &mut data, faults)?;
        }
        let mut bytes = self.insert(self.wire, span, data, &signatures, faults)?;
        if over_plaintext {
            self.run_cipher_over_blocks(Way::Transmit, &raw, span, &mut bytes, faults)?;
        }
        fit(&mut bytes, span.wire_length)?;
        self.run_cipher(Way::Transmit, &[Order::WireSignature], span.wire_offset, &mut bytes, faults)?;
        Ok(Output { bytes, error, running: None })
    }

    /// Turns the wire bytes of `span` into memory bytes.
    ///
    /// # Errors
    /// A [`Reason`] where a cipher cannot take the transfer, or memory runs out.
    pub fn receive(&self, span: &Span, wire: Vec<u8>, faults: &Faults) -> Result<Output, Reason> {
        if let Some(transaction) = &self.transaction {
            return self.receive_transaction(transaction, span, wire, faults);
        }
        let mut bytes = wire;
        self.run_cipher(Way::Receive, &[Order::WireSignature], span.wire_offset, &mut bytes, faults)?;
        let raw = [Order::RawWire, Order::RawMemory];
        let over_plaintext = faults.signature_over_plaintext && self.wire.is_some();
        if over_plaintext {
            self.run_cipher_over_blocks(Way::Receive, &raw, span, &mut bytes, faults)?;
        }
        let (mut data, signatures, error) = self.strip(Side::Wire, self.wire, span, bytes, faults)?;
        if !over_plaintext {
            self.run_cipher(Way::Receive, &raw, span.data_offset, &mut data, faults)?;
        }
        let mut bytes = self.insert(self.memory, span, data, &signatures, faults)?;
        fit(&mut bytes, span.memory_length)?;
        self.run_cipher(Way::Receive, &[Order::MemorySignature], span.memory_offset, &mut bytes, faults)?;
        Ok(Output { bytes, error, running: None })
    }

    fn transmit_transaction(
        &self,
        transaction: &Transaction,
        span: &Span,
        memory: Vec<u8>,
        faults: &Faults,
    ) -> Result<Output, Reason> {
        match transaction.side {
            Side::Wire => {
                let mut bytes = memory;
                self.run_cipher(Way::Transmit, &[Order::RawWire], span.data_offset, &mut bytes, faults)?;
                let (bytes, running) = transaction.generate(bytes, span.wire_length)?;
                Ok(Output { bytes, error: None, running: Some(running) })
            }
            Side::Memory => {
                let (mut bytes, running, error) = transaction.check(&memory, span.wire_length)?;
                self.run_cipher(Way::Transmit, &[Order::RawMemory], span.data_offset, &mut bytes, faults)?;
                Ok(Output { bytes, error, running: Some(running) })
            }
        }
    }

    fn receive_transaction(
        &self,
        transaction: &Transaction,
        span: &Span,
        wire: Vec<u8>,
        faults: &Faults,
    ) -> Result<Output, Reason> {
        match transaction.side {
            Side::Wire => {
                let (mut bytes, running, error) = transaction.check(&wire, span.memory_length)?;
                self.run_cipher(Way::Receive, &[Order::RawWire], span.data_offset, &mut bytes, faults)?;
                Ok(Output { bytes, error, running: Some(running) })
            }
            Side::Memory => {
                let mut bytes = wire;
                self.run_cipher(Way::Receive, &[Order::RawMemory], span.data_offset, &mut bytes, faults)?;
                let (bytes, running) = transaction.generate(bytes, span.memory_length)?;
                Ok(Output { bytes, error: None, running: Some(running) })
            }
        }
    }

    /// Runs the cipher over bytes at `offset` of the mkey, if its order is one of `orders`.
    fn run_cipher(
        &self,
        way: Way,
        orders: &[Order],
        offset: u64,
        bytes: &mut [u8],
        faults: &Faults,
    ) -> Result<(), Reason> {
        let Some(cipher) = self.cipher.filter(|cipher| orders.contains(&cipher.order)) else { return Ok(()) };
        let unit = u64::from(cipher.unit.max(1));
        if !offset.is_multiple_of(unit) {
            return Err(Reason::OffsetInBlock { offset, block: unit });
        }
        let length = bytes.len() as u64;
        // Assumption: a single-block engine refuses a transfer that exceeds its first unit. Real engines
        // produce non-standard bytes.
        if cipher.single_block && (length > unit || offset != 0) {
            return Err(Reason::OneUnit { length: length.saturating_add(offset), unit });
        }
        let step = if faults.tweak_not_advancing { 0 } else { cipher.step };
        // Assumption: unit k of the mkey has the tweak `tweak + k * step`, independent of the start of the
        // transfer.
        let before = if faults.tweak_of_each_transfer { 0 } else { offset / unit };
        let tweak = cipher.tweak.wrapping_add(step.wrapping_mul(u128::from(before)));
        let behind = tweak.wrapping_add(step.wrapping_mul(u128::from(length / unit)));
        if faults.tweak_carry_refused && behind >> 64 != tweak >> 64 {
            return Err(Reason::TweakCarry);
        }
        let direction = match (cipher.order.side(), way) {
            (Side::Wire, Way::Transmit) | (Side::Memory, Way::Receive) => Direction::Encrypt,
            (Side::Wire, Way::Receive) | (Side::Memory, Way::Transmit) => Direction::Decrypt,
        };
        let done = cipher.key.apply(direction, bytes, cipher.unit, tweak, step);
        done.or(if faults.job_size_ignored { Ok(()) } else { Err(Reason::JobSize { length, unit }) })
    }

    /// Runs the cipher over the data between the wire signatures. Only the fault `signature_over_plaintext`
    /// needs this function.
    fn run_cipher_over_blocks(
        &self,
        way: Way,
        orders: &[Order],
        span: &Span,
        bytes: &mut [u8],
        faults: &Faults,
    ) -> Result<(), Reason> {
        let Some(domain) = self.wire else { return Ok(()) };
        let mut offset = span.data_offset;
        for chunk in bytes.chunks_mut(domain.stride() as usize) {
            let end = chunk.len().min(domain.block as usize);
            let data = chunk.get_mut(..end).unwrap_or_default();
            self.run_cipher(way, orders, offset, data, faults)?;
            offset = offset.saturating_add(end as u64);
        }
        Ok(())
    }

    /// Separates a stream into data and the signatures of a domain, and checks the signatures.
    fn strip(
        &self,
        side: Side,
        domain: Option<Domain>,
        span: &Span,
        stream: Vec<u8>,
        faults: &Faults,
    ) -> Result<Stripped, Reason> {
        let Some(domain) = domain else { return Ok((stream, Vec::new(), None)) };
        let mut data = room(stream.len())?;
        let mut signatures =
            room(stream.len() / domain.block.max(1) as usize * domain.rule.bytes() as usize)?;
        let mut error = None;
        let mask = if faults.check_mask_ignored { 0xff } else { self.check_mask };
        let mask = if faults.masks_number_the_value { domain.rule.mask_of_value(mask) } else { mask };
        let first = span.data_offset / u64::from(domain.block.max(1));
        for (number, chunk) in stream.chunks(domain.stride() as usize).enumerate() {
            let Some((block, signature)) = chunk.split_at_checked(domain.block as usize) else {
                data.extend_from_slice(chunk);
                break;
            };
            data.extend_from_slice(block);
            if signature.len() < domain.rule.bytes() as usize {
                break;
            }
            signatures.extend_from_slice(signature);
            // Blocks are numbered from the start of the mkey's space, not from the start of the request.
            let index = first.saturating_add(number as u64);
            let step = if faults.ref_tag_not_advancing { 0 } else { index };
            if error.is_none() || faults.error_not_kept_first {
                let mismatch = domain.rule.check(block, step, signature, mask, !faults.escapes_ignored);
                let end = index.saturating_add(1).saturating_mul(domain.stride());
                error = mismatch
                    .map(|mismatch| BlockError {
                        sig_type: SignatureType::Block,
                        side,
                        psv: domain.psv,
                        offset: end.saturating_sub(1),
                        mismatch,
                    })
                    .or(error);
            }
        }
        Ok((data, signatures, error))
    }

    /// Inserts the signatures of a domain into data, after each whole block. The bytes of the copy mask come
    /// from the input's signatures.
    fn insert(
        &self,
        domain: Option<Domain>,
        span: &Span,
        data: Vec<u8>,
        input: &[u8],
        faults: &Faults,
    ) -> Result<Vec<u8>, Reason> {
        let Some(domain) = domain else { return Ok(data) };
        let length = usize::try_from(domain_in(Some(domain), data.len() as u64))
            .map_err(|_| Reason::NoRoom { length: data.len() as u64 })?;
        let mut stream = room(length)?;
        let mut copies = input.chunks(domain.rule.bytes() as usize);
        let mask = if faults.copy_mask_ignored { 0 } else { self.copy_mask };
        let mask = if faults.masks_number_the_value { domain.rule.mask_of_value(mask) } else { mask };
        let first = span.data_offset / u64::from(domain.block.max(1));
        for (number, block) in data.chunks(domain.block.max(1) as usize).enumerate() {
            stream.extend_from_slice(block);
            if block.len() < domain.block as usize {
                break;
            }
            let index = if faults.ref_tag_not_advancing { 0 } else { first.saturating_add(number as u64) };
            let own = domain.rule.compute(block, index);
            let signature = copies.next().map_or(own, |copy| own.merged(copy, mask));
            stream.extend_from_slice(signature.as_bytes());
        }
        Ok(stream)
    }
}

/// Truncates a stream to the requested length. A transfer may end before or inside its last signature.
fn fit(bytes: &mut Vec<u8>, length: u64) -> Result<(), Reason> {
    bytes.truncate(usize::try_from(length).map_err(|_| Reason::NoRoom { length })?);
    Ok(())
}
