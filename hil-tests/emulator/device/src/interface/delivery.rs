//! Delivery of commands from the command queue: checks owner bits, tokens and signatures of its entries and
//! of mailbox blocks, and writes the replies.

use super::opcode;
use crate::commands::reply::LEAST;
use crate::commands::{Refused, Request};
use crate::device::Device;
use crate::gate::Course;
use crate::interface_state::Checksum;
use crate::memory::Memory;
use crate::tap::Seen;
use crate::wiped::Wiped;
use alloc::vec::Vec;
use zeroize::Zeroize;

/// Sizes in bytes: of a command queue entry, of the part of a request or reply that is in the entry, of the
/// part in a mailbox block, and of a mailbox block.
const ENTRY: usize = 64;
const INLINE: usize = 16;
const DATA: usize = 512;
const BLOCK: usize = 576;

/// The only transport type of a command queue entry that this device accepts: PCI.
const PCI: u8 = 7;

/// The most bytes of a request or a reply. No driver needs as many.
const LONGEST: u32 = 1 << 20;

/// The delivery status of a command that the device could not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Undelivered(u8);

impl Undelivered {
    const SIGNATURE: Self = Self(0x1);
    const TOKEN: Self = Self(0x2);
    const NUMBER: Self = Self(0x3);
    const OUTPUT_ALIGNMENT: Self = Self(0x4);
    const INPUT_ALIGNMENT: Self = Self(0x5);
    const FIRMWARE: Self = Self(0x6);
    const INPUT_LENGTH: Self = Self(0x7);
    const OUTPUT_LENGTH: Self = Self(0x8);
    const RESERVED: Self = Self(0x9);
    const TYPE: Self = Self(0x10);
}

/// The bytes of a command queue entry or of a mailbox block.
struct Bytes<const N: usize>([u8; N]);

impl<const N: usize> Bytes<N> {
    fn range(&self, from: usize, to: usize) -> &[u8] {
        self.0.get(from..to).unwrap_or_default()
    }

    fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn number(&self, from: usize, to: usize) -> u64 {
        self.range(from, to).iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Sets the byte at `at` so that the XOR of all bytes of the range is 0xff.
    fn sign(&mut self, from: usize, to: usize, at: usize) {
        let signature = self.byte(at) ^ xor(self.range(from, to)) ^ 0xff;
        self.put(at, &[signature]);
    }
}

/// Entries and mailbox blocks are wiped when dropped, since they may contain keys.
impl<const N: usize> Drop for Bytes<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// The mailbox blocks of a request or reply, with their addresses.
type Chain = Vec<(u64, Bytes<BLOCK>)>;

impl<M: Memory> Device<M> {
    /// Executes the command of the entry at address `at` if the device owns the entry, and gives the entry
    /// back to the host. Returns whether the entry was given back.
    pub(super) fn take_command(&mut self, at: u64) -> bool {
        let mut entry = Bytes([0; ENTRY]);
        let is_read = self.memory.read(at, &mut entry.0).is_ok();
        if !is_read || entry.byte(0x3f) & 1 == 0 {
            return false;
        }
        let delivered = self.read_command(&entry).map(|(request, room, chain)| {
            let mut reply = self.judged(&request);
            if reply.len() > room {
                reply = Refused::OUTPUT_LENGTH.reply();
            }
            self.show(&request, &reply);
            reply.resize(room, 0);
            (reply, chain)
        });
        let status = match delivered {
            Ok((reply, chain)) => self.answer(&mut entry, &Wiped::from(reply), chain),
            Err(Undelivered(status)) => status,
        };
        entry.put(0x3f, &[status << 1]);
        entry.sign(0, ENTRY, 0x3d);
        // The owner bit is written last: the host reads the rest when the bit changes.
        let given = self.memory.write(at, entry.range(0, ENTRY - 1));
        given.is_ok() && self.memory.publish(at.wrapping_add(0x3f), entry.byte(0x3f)).is_ok()
    }

    /// Carries out or refuses a command, as the gate (a function that tests set) decides, and returns the
    /// reply.
    fn judged(&mut self, request: &Request) -> Vec<u8> {
        let opcode = request.u16(0).unwrap_or_default();
        let course = self.gate.course(opcode, opcode::ended(opcode).is_some());
        if let Course::Refused(status) = course {
            return Refused::planned(status).reply();
        }
        let reply = self.carry_out(request).unwrap_or_else(Refused::reply);
        match course {
            Course::Unheard(status) => Refused::planned(status).reply(),
            _ => reply,
        }
    }

    /// Shows a command and its status to the device's observer (tap).
    fn show(&mut self, request: &Request, reply: &[u8]) {
        let word = |at| request.u16(at).unwrap_or_default();
        let syndrome = reply.get(4..8).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes);
        let status = reply.first().copied().unwrap_or_default();
        self.tap.show(Seen::Command { opcode: word(0), op_mod: word(6), status, syndrome });
    }

    /// Reads a command, and checks the blocks of its reply. Returns the request, the room for the reply in
    /// bytes, and the blocks of the reply. A malformed command changes nothing.
    fn read_command(&self, entry: &Bytes<ENTRY>) -> Result<(Request, usize, Chain), Undelivered> {
        if self.interface.checksum != Checksum::Off && xor(&entry.0) != 0xff {
            return Err(Undelivered::SIGNATURE);
        }
        if entry.byte(0) != PCI {
            return Err(Undelivered::TYPE);
        }
        if entry.number(1, 4) != 0 || entry.byte(0x3e) != 0 {
            return Err(Undelivered::RESERVED);
        }
        let length = |from, least: usize, error| match entry.number(from, from + 4) as u32 {
            length @ ..=LONGEST if length as usize >= least => Ok(length as usize),
            _ => Err(error),
        };
        let input = length(4, INLINE, Undelivered::INPUT_LENGTH)?;
        // The room for a reply without data may be smaller than the part of a reply in an entry: Linux gives
        // 12 bytes for ENABLE_HCA.
        let output = length(0x38, LEAST, Undelivered::OUTPUT_LENGTH)?;
        let token = entry.byte(0x3c);
        let inputs = self.chain(entry.number(8, 16), input, token, Undelivered::INPUT_ALIGNMENT)?;
        let outputs = self.chain(entry.number(0x30, 0x38), output, token, Undelivered::OUTPUT_ALIGNMENT)?;
        let mut request = Wiped::from(Vec::with_capacity(input.next_multiple_of(DATA) + INLINE));
        request.extend_from_slice(entry.range(0x10, 0x20));
        inputs.iter().for_each(|(_, block)| request.extend_from_slice(block.range(0, DATA)));
        request.truncate(input);
        Ok((Request(request), output, outputs))
    }

    /// Reads the chain of blocks of a request or a reply of `length` bytes. `misaligned` is the error for a
    /// misaligned block.
    fn chain(
        &self,
        first: u64,
        length: usize,
        token: u8,
        misaligned: Undelivered,
    ) -> Result<Chain, Undelivered> {
        let count = length.saturating_sub(INLINE).div_ceil(DATA);
        // The vector has its final capacity from the start, and blocks are read in place. A moved block would
        // leave a copy of its bytes, which may contain a key.
        let (mut at, mut chain) = (first, Chain::with_capacity(count));
        for number in 0..count {
            // Assumption: the address of a block is a multiple of 512, the bytes of its data. Linux aligns
            // blocks to 1024.
            if !at.is_multiple_of(DATA as u64) {
                return Err(misaligned);
            }
            chain.push((at, Bytes([0; BLOCK])));
            let Some((_, block)) = chain.last_mut() else { break };
            self.memory.read(at, &mut block.0).map_err(|_| Undelivered::FIRMWARE)?;
            let is_signed = xor(&block.0) == 0xff && xor(block.range(0x200, 0x23f)) == 0xff;
            let is_bare = block.byte(0x23e) == 0 && block.byte(0x23f) == 0;
            let is_taken = match self.interface.checksum {
                Checksum::Off => true,
                Checksum::Initial => is_signed || is_bare,
                Checksum::On => is_signed,
            };
            if !is_taken {
                return Err(Undelivered::SIGNATURE);
            }
            if block.byte(0x23d) != token {
                return Err(Undelivered::TOKEN);
            }
            if block.number(0x238, 0x23c) != number as u64 {
                return Err(Undelivered::NUMBER);
            }
            if block.range(0x200, 0x230).iter().any(|byte| *byte != 0) || block.byte(0x23c) != 0 {
                return Err(Undelivered::RESERVED);
            }
            at = block.number(0x230, 0x238);
        }
        Ok(chain)
    }

    /// Writes a reply into the entry and its blocks, and returns the delivery status.
    fn answer(&mut self, entry: &mut Bytes<ENTRY>, reply: &[u8], mut chain: Chain) -> u8 {
        let (begin, rest) = reply.split_at_checked(INLINE).unwrap_or((reply, &[]));
        entry.put(0x20, begin);
        for ((at, block), data) in chain.iter_mut().zip(rest.chunks(DATA)) {
            block.put(0, data);
            block.sign(0x200, 0x23f, 0x23e);
            block.sign(0, BLOCK, 0x23f);
            if self.memory.write(*at, &block.0).is_err() {
                return Undelivered::FIRMWARE.0;
            }
        }
        0
    }
}
