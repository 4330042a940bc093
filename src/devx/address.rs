//! Addresses of queue pairs, which the two sides of a connection exchange before they connect.

use crate::command::{PathMtu, Psn};
use crate::types::{OutOfRange, Qpn};
use core::fmt;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

/// The address of a queue pair. The peer needs it to connect. The two sides exchange addresses by any means,
/// such as a socket.
///
/// ```
/// # use mlx5_mkey::devx::{ConnectOptions, DevxError, QpAddress, QueuePair};
/// # use std::io::{Read, Write};
/// fn connect(
///     queue: &QueuePair,
///     mut socket: impl Read + Write,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let options = ConnectOptions::default();
///     socket.write_all(&queue.control().address(&options)?.to_bytes())?;
///     let mut peer = [0; QpAddress::BYTES];
///     socket.read_exact(&mut peer)?;
///     queue.control().connect(&QpAddress::from_bytes(&peer)?, &options)?;
///     // The peer must say when it has connected as well. Requests that are sent earlier are retried.
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct QpAddress {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Number (PSN) of the first packet that the queue pair sends.
    pub first_psn: Psn,
    /// GID of the queue pair's port. An IPv4 address a.b.c.d is the GID `::ffff:a.b.c.d`.
    pub gid: [u8; 16],
    /// LID of the queue pair's port; 0 on Ethernet.
    pub lid: u16,
    /// Largest packet of the queue pair's port (`active_mtu`).
    pub mtu: PathMtu,
}

/// The bytes of a [`QpAddress`], in the order in which a program sends them to the peer.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AddressBytes {
    version: u8,
    mtu: u8,
    lid: U16,
    qpn: U32,
    first_psn: U32,
    gid: [u8; 16],
}

impl QpAddress {
    /// Length of an address that [`QpAddress::to_bytes`] encodes, in bytes.
    pub const BYTES: usize = size_of::<AddressBytes>();

    /// The version of the encoding. It is the first byte of an encoded address.
    const VERSION: u8 = 1;

    /// The GID in an empty entry of a GID table.
    pub(super) const NO_GID: [u8; 16] = [0; 16];

    /// Returns the address as bytes to send.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        transmute!(AddressBytes {
            version: Self::VERSION,
            mtu: self.mtu as u8,
            lid: U16::new(self.lid),
            qpn: U32::new(self.qpn.get()),
            first_psn: U32::new(self.first_psn.get()),
            gid: self.gid,
        })
    }

    /// Decodes the bytes that [`QpAddress::to_bytes`] made.
    ///
    /// # Errors
    /// [`AddressError`] for an unknown version, an invalid MTU code, or a number that does not fit its field.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, AddressError> {
        let AddressBytes { version, mtu, lid, qpn, first_psn, gid } = transmute!(*bytes);
        if version != Self::VERSION {
            return Err(AddressError::Version(version));
        }
        Ok(Self {
            qpn: Qpn::new(qpn.get())?,
            first_psn: Psn::new(first_psn.get())?,
            gid,
            lid: lid.get(),
            mtu: PathMtu::from_code(mtu).ok_or(AddressError::Mtu(mtu))?,
        })
    }
}

/// Reasons why bytes are no address, or why a queue pair cannot connect to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum AddressError {
    /// The first byte, the version of the format, has this value, which the library does not know. The bytes
    /// may be no address at all.
    Version(u8),
    /// The MTU code in the address has this value, which is invalid. The valid codes are 1 to 5, for 256 to
    /// 4096 bytes.
    Mtu(u8),
    /// A number in the address does not fit its field.
    OutOfRange(OutOfRange),
    /// The own port is on Ethernet, and the peer has no GID.
    NoGid,
    /// The own port is on InfiniBand, and the peer has no LID.
    NoLid,
}

impl From<OutOfRange> for AddressError {
    fn from(error: OutOfRange) -> Self {
        Self::OutOfRange(error)
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "the peer's address has version {version}, not {}", QpAddress::VERSION)
            }
            Self::Mtu(code) => write!(f, "the peer's address has packet size code {code}, not 1 to 5"),
            Self::OutOfRange(error) => write!(f, "the peer's address: {error}"),
            Self::NoGid => f.write_str("the port is on Ethernet, and the peer's address has no GID"),
            Self::NoLid => f.write_str("the port is on InfiniBand, and the peer's address has no LID"),
        }
    }
}

impl core::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const ADDRESS: QpAddress = QpAddress {
        qpn: Qpn::from_low_bits(0x12_3456),
        first_psn: Psn::MAX,
        gid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        lid: 0xbeef,
        mtu: PathMtu::B4096,
    };

    #[test]
    fn addresses_travel_as_bytes() {
        let bytes = ADDRESS.to_bytes();
        assert_eq!(bytes[..12], [1, 5, 0xbe, 0xef, 0, 0x12, 0x34, 0x56, 0, 0xff, 0xff, 0xff]);
        assert_eq!(bytes[12..], ADDRESS.gid);
        assert_eq!(QpAddress::from_bytes(&bytes), Ok(ADDRESS));
    }

    #[test]
    fn bytes_that_are_no_address_are_refused() {
        let with = |at: usize, byte: u8| {
            let mut bytes = ADDRESS.to_bytes();
            bytes[at] = byte;
            QpAddress::from_bytes(&bytes)
        };
        assert_eq!(with(0, 2), Err(AddressError::Version(2)));
        for code in [0, 6, 0xff] {
            assert_eq!(with(1, code), Err(AddressError::Mtu(code)));
        }
        assert!(matches!(with(4, 1), Err(AddressError::OutOfRange(_))), "a number of 25 bits");
        assert!(matches!(with(8, 0x80), Err(AddressError::OutOfRange(_))), "a packet number of 32 bits");
        let message = "the peer's address: queue pair number 17970262: 0 to 16777215 is allowed";
        assert_eq!(with(4, 1).unwrap_err().to_string(), message);
    }
}
