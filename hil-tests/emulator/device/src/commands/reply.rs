//! Builds replies to commands, including refusals.

use crate::device::Error;
use alloc::vec;
use alloc::vec::Vec;

/// The number of bytes before the data of a reply.
pub const HEADER: usize = 16;

/// The number of bytes of status and syndrome, which every reply has.
pub(crate) const LEAST: usize = 8;

/// A refusal of a command: status and syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(u8, u32);

impl Refused {
    /// The device does not know the command.
    pub const OPCODE: Self = Self(0x2, 0x1);
    /// A field has a wrong value.
    pub const PARAMETER: Self = Self(0x3, 0x2);
    /// The state of the device does not allow the command.
    pub const STATE: Self = Self(0x4, 0x3);
    /// A named object does not exist.
    pub const RESOURCE: Self = Self(0x5, 0x4);
    /// The request is too short.
    pub const INPUT_LENGTH: Self = Self(0x50, 0x5);
    /// There is too little room for the reply.
    pub const OUTPUT_LENGTH: Self = Self(0x51, 0x6);
    /// The state of the queue pair does not allow the command.
    pub const QP_STATE: Self = Self(0x10, 0x13);

    /// No further object of the kind can be created.
    pub const LIMIT: Self = Self(0x8, 0x19);

    /// Returns the refusal with a status that a test has chosen.
    pub const fn planned(status: u8) -> Self {
        Self(status, 0x7)
    }

    /// Returns the status.
    pub const fn status(self) -> u8 {
        self.0
    }

    /// Returns the reply that reports this refusal.
    pub fn reply(self) -> Vec<u8> {
        let mut reply = vec![self.0, 0, 0, 0];
        reply.extend(self.1.to_be_bytes());
        reply
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSuchObject { .. } => Self(0x5, 0x10),
            Error::BadAttribute(_) => Self(0x3, 0x11),
            Error::InUse => Self(0x6, 0x12),
            Error::BadTransition { .. } => Self::QP_STATE,
            Error::CryptoMode => Self(0x2, 0x14),
            Error::NoLogin => Self(0x3, 0x15),
            Error::BadKey => Self(0x3, 0x16),
            Error::Exhausted => Self(0xf, 0x17),
            Error::AtomicOverRelaxed => Self(0x3, 0x0045_d3a4),
        }
    }
}

/// Returns a successful reply of `length` bytes, with `bytes` at offset `at`.
pub fn with(length: usize, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; length];
    if let Some(place) = reply.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
    reply
}

/// Returns a successful reply with the number of an object.
pub fn number(number: u32) -> Vec<u8> {
    with(HEADER, 8, &number.to_be_bytes())
}

/// Returns a successful reply without data.
pub fn done() -> Vec<u8> {
    vec![0; LEAST]
}

/// Returns the first unused number of a range.
///
/// # Errors
/// [`Refused`] if all numbers are in use.
pub(crate) fn free(mut range: core::ops::Range<u32>, is_used: impl Fn(&u32) -> bool) -> Result<u32, Refused> {
    Ok(range.find(|number| !is_used(number)).ok_or(Error::Exhausted)?)
}
