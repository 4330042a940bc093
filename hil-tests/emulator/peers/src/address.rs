//! Addresses of ports.

/// A GID: an IPv6 address, or an IPv4 address mapped into one.
pub type Gid = [u8; 16];

/// A MAC address.
pub type Mac = [u8; 6];
