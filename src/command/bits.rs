//! Builds mailboxes from the bit positions of `mlx5_ifc.h`, for tests only. A test names each field by its
//! bit position, and compares the bytes with those that a command encodes. The positions count from the
//! highest bit of the mailbox's first byte. The functions share no arithmetic with the wire structs, so tests
//! notice a wrong offset in either of the two.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

extern crate std;

use super::{Command, EncodedRequest};
use crate::command::error::CommandError;
use std::vec;
use std::vec::Vec;

/// A field of a mailbox: position of its first bit, number of its bits, value.
pub(super) type Field = (usize, usize, u64);

/// A big-endian word of a mailbox: offset in bytes, value.
pub(super) type Word = (usize, u32);

/// Returns `length` bytes of zeros with these fields set.
pub(super) fn from_fields(length: usize, fields: &[Field]) -> Vec<u8> {
    let mut bytes = vec![0u8; length];
    for &(first, width, value) in fields {
        assert!(width == 64 || value >> width == 0, "{value:#x} has more than {width} bits");
        for bit in 0..width {
            if value >> (width - 1 - bit) & 1 != 0 {
                bytes[(first + bit) / 8] |= 0x80 >> ((first + bit) % 8);
            }
        }
    }
    bytes
}

/// Returns `length` bytes of zeros with these words set.
pub(super) fn from_words(length: usize, words: &[Word]) -> Vec<u8> {
    let mut bytes = vec![0u8; length];
    for &(offset, word) in words {
        bytes[offset..offset + 4].copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Encodes a command into a mailbox that was filled with a pattern, and compares every byte with `expected`.
/// Also checks that the bytes behind the request keep the pattern, that the bytes of a request with a secret
/// are wiped, and that a mailbox which is one byte too short is not written.
pub(super) fn assert_encodes<C: Command>(command: &C, expected: &[u8]) {
    let length = command.input_bytes();
    assert_eq!(length, expected.len());
    let mut mailbox = vec![0xa5u8; length + 16];
    let request = command.encode(&mut mailbox).unwrap();
    assert_eq!(request.is_secret(), C::SECRET);
    assert!(*request == *expected, "{}:\n{:02x?}\n{:02x?}", C::OPCODE, &request[..], expected);
    drop(request);
    if C::SECRET {
        assert!(mailbox[..length].iter().all(|byte| *byte == 0), "the mailbox keeps no key");
    } else {
        assert_eq!(mailbox[..length], *expected);
    }
    assert_eq!(mailbox[length..], [0xa5; 16]);

    let mut short = vec![0xa5u8; length - 1];
    let error = command.encode(&mut short).map(|request: EncodedRequest<'_>| request.len());
    let too_short = CommandError::MailboxTooShort { command: C::OPCODE, length: length - 1, needed: length };
    assert_eq!(error, Err(too_short));
    assert!(short.iter().all(|byte| *byte == 0xa5));
}
