//! The network interfaces of this process's namespace, with their addresses, and notifications of their
//! changes.
//!
//! The kernel sends the interfaces by rtnetlink. The C library's functions are not used, because they would
//! call the program's allocator.

use crate::ground::netlink::{self, u16_at, u32_at};
use crate::ground::{descriptors, sys};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// Types of rtnetlink messages (`linux/rtnetlink.h`).
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;

/// The groups of notifications that a socket subscribes to: changes of links, of IPv4 addresses, of IPv6
/// addresses (`RTMGRP_*`).
const NEWS: u32 = 1 | 0x10 | 0x100;

/// Bytes of `struct ifinfomsg` and of `struct ifaddrmsg`.
const LINK: usize = 16;
const ADDRESS: usize = 8;

/// Flags of an interface: up, loopback, with a carrier (`IFF_UP`, `IFF_LOOPBACK`, `IFF_LOWER_UP`).
const UP: u32 = 1;
const LOOPBACK: u32 = 1 << 3;
const CARRIER: u32 = 1 << 16;

/// Flags of an address that cannot be used: another host has it, or may have it (`IFA_F_DADFAILED`,
/// `IFA_F_TENTATIVE`).
const UNUSABLE: u32 = 0x08 | 0x40;

/// The hardware type of an Ethernet interface (`ARPHRD_ETHER`).
const ETHERNET: u16 = 1;

/// The longest wait for an answer of the kernel, which usually answers at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Netdev {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// The MAC address; zeros for the loopback interface.
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
    pub(crate) is_up: bool,
    pub(crate) has_carrier: bool,
    pub(crate) is_loopback: bool,
    /// Whether the interface's packets are Ethernet frames.
    pub(crate) is_ethernet: bool,
    /// The interface's IPv4 addresses, then its IPv6 addresses, in the kernel's order.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Returns all interfaces, sorted by their index. Returns an empty list if the kernel does not answer.
pub(crate) fn all() -> Vec<Netdev> {
    asked().unwrap_or_default()
}

fn asked() -> Option<Vec<Netdev>> {
    let mut socket = sys::netlink(None, 0).ok()?;
    let mut netdevs = Vec::new();
    dump(&mut socket, GET_LINK, LINK, |message| {
        if message.kind == NEW_LINK {
            netdevs.extend(link(message.body));
        }
    })?;
    netdevs.sort_by_key(|netdev| netdev.index);
    dump(&mut socket, GET_ADDRESS, ADDRESS, |message| {
        if message.kind == NEW_ADDRESS
            && let Some((index, address)) = address(message.body)
            && let Some(netdev) = netdevs.iter_mut().find(|netdev| netdev.index == index)
        {
            netdev.addresses.push(address);
        }
    })?;
    netdevs.iter_mut().for_each(|netdev| netdev.addresses.sort_by_key(IpAddr::is_ipv6));
    Some(netdevs)
}

/// Requests all objects of a kind, with `length` zeros as the body of the request. Hands each message of the
/// answer to `take`.
fn dump(
    socket: &mut File,
    kind: u16,
    length: usize,
    mut take: impl FnMut(netlink::Message<'_>),
) -> Option<()> {
    let mut request = Vec::new();
    let flags = netlink::REQUEST | netlink::DUMP;
    netlink::message(&mut request, kind, flags, [1, 0], |out| out.resize(out.len() + length, 0));
    socket.write_all(&request).ok()?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        if sys::wait(&[socket.as_raw_fd()], Some(PATIENCE)) != [true] {
            return None;
        }
        let length = socket.read(&mut buffer).ok()?;
        for message in netlink::messages(buffer.get(..length)?) {
            match message.kind {
                netlink::DONE => return Some(()),
                netlink::ERROR => return None,
                _ => take(message),
            }
        }
    }
}

fn link(body: &[u8]) -> Option<Netdev> {
    let flags = u32_at(body, 8)?;
    let mut netdev = Netdev {
        index: u32_at(body, 4)?,
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        is_up: flags & UP != 0,
        has_carrier: flags & CARRIER != 0,
        is_loopback: flags & LOOPBACK != 0,
        is_ethernet: u16_at(body, 2)? == ETHERNET,
        addresses: Vec::new(),
    };
    for (kind, value) in netlink::attributes(body.get(LINK..)?) {
        match (kind, value) {
            // The kinds are IFLA_ADDRESS, IFLA_IFNAME and IFLA_MTU.
            (1, value) => netdev.mac = value.try_into().unwrap_or_default(),
            (3, [name @ .., 0]) => netdev.name = String::from_utf8_lossy(name).into_owned(),
            (4, value) => netdev.mtu = u32_at(value, 0)?,
            _ => {}
        }
    }
    Some(netdev)
}

/// Returns the address in a message with the index of its interface, or `None` for an address that this host
/// cannot use ([`UNUSABLE`]).
fn address(body: &[u8]) -> Option<(u32, IpAddr)> {
    let family = i32::from(*body.first()?);
    let (mut flags, mut local, mut other) = (u32::from(*body.get(2)?), None, None);
    for (kind, value) in netlink::attributes(body.get(ADDRESS..)?) {
        match kind {
            // 1 is IFA_ADDRESS, on a point-to-point interface the peer's address. 2 is IFA_LOCAL, the
            // interface's own address. 8 is IFA_FLAGS.
            1 => other = Some(value),
            2 => local = Some(value),
            8 => flags = u32_at(value, 0)?,
            _ => {}
        }
    }
    let bytes = local.or(other).filter(|_| flags & UNUSABLE == 0)?;
    let address = match family {
        libc::AF_INET => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        libc::AF_INET6 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some((u32_at(body, 4)?, address))
}

/// A subscription to the kernel's notifications of changed interfaces and addresses.
#[derive(Debug)]
pub(crate) struct Watch(File);

impl Watch {
    /// Subscribes to the notifications. Returns `None` if the kernel sends none.
    pub(crate) fn new() -> Option<Self> {
        let socket = sys::netlink(None, NEWS).ok()?;
        descriptors::keep(&socket);
        Some(Self(socket))
    }

    /// Returns the descriptor that becomes readable when a notification has arrived.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Returns whether a notification has arrived since the last call. The notification's content is dropped:
    /// the caller asks for all interfaces anew.
    pub(crate) fn has_news(&mut self) -> bool {
        let (mut any, mut buffer) = (false, [0; 1 << 12]);
        // A socket that had no room for a notification reports ENOBUFS once. The error counts as a
        // notification.
        while sys::wait(&[self.0.as_raw_fd()], Some(Duration::ZERO)) == [true] {
            any = true;
            let _ = self.0.read(&mut buffer);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_among_them() {
        let netdevs = all();
        let Some(lo) = netdevs.iter().find(|netdev| netdev.is_loopback) else {
            assert!(netdevs.is_empty(), "the kernel tells of nothing, or of all");
            return;
        };
        assert_eq!((lo.name.as_str(), lo.mac, lo.is_ethernet), ("lo", [0; 6], false));
        assert!(!lo.is_up || lo.addresses.contains(&IpAddr::from(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn an_address_that_is_not_in_use_is_none() {
        let body = |flags: u8| {
            let mut body = vec![libc::AF_INET as u8, 24, flags, 0, 3, 0, 0, 0];
            netlink::attribute(&mut body, 1, &[10, 0, 0, 9]);
            netlink::attribute(&mut body, 2, &[10, 0, 0, 1]);
            body
        };
        assert_eq!(address(&body(0x80)), Some((3, IpAddr::from([10, 0, 0, 1]))));
        assert_eq!(address(&body(0x40)), None);
        for length in 0..body(0).len() - 8 {
            assert_eq!(address(body(0).get(..length).unwrap()), None);
        }
    }
}
