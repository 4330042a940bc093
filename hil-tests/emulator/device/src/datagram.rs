//! The address of a datagram: the address vector of the work request, and the route that the receiver gets
//! before the data.

use crate::gids::Gids;
use crate::profile::Port;
use crate::refusal::Reason;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The most bytes of data in a datagram: the MTU of the port.
pub(crate) const MAX_BYTES: usize = 4096;

/// The next header of the route: UDP, since packets are RoCEv2.
const UDP: u8 = 17;
/// The number of bytes of a packet beside its data: the headers UDP, BTH and DETH, and the ICRC.
const HEADERS: usize = 8 + 12 + 8 + 4;
/// The number of additional bytes of a packet with immediate data.
const IMMEDIATE: usize = 4;

/// The fields of a datagram beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The Q_Key. The receiving queue pair must have the same Q_Key.
    pub qkey: u32,
    /// The global route header: the IPv6 header of the datagram's packet.
    pub route: [u8; 40],
}

/// Address vector of a datagram (PRM `ud_adrs_vector`, `struct mlx5_wqe_av`; DEVICE.md, "Datagrams").
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct AddressVector {
    qkey: U32,
    reserved0: U32,
    destination_qpn: U32,
    rate_and_service_level: u8,
    path_bits: u8,
    /// On Ethernet, the UDP source port of the RoCE packet. On InfiniBand, the LID of the destination.
    udp_source_port_or_lid: U16,
    reserved1: [u8; 4],
    mac: [u8; 6],
    traffic_class: u8,
    hop_limit: u8,
    /// The index of the sender's address (8 bits) above the flow label (20 bits).
    index_and_flow: U32,
    gid: [u8; 16],
}
const _: () = assert!(size_of::<AddressVector>() == 48 && core::mem::offset_of!(AddressVector, gid) == 32);

/// The flag beside the destination queue pair says that the address vector has its second half, which
/// Ethernet requires (`MLX5_EXTENDED_UD_AV`).
const EXTENDED: u32 = 1 << 31;
/// The flag beside the flow label says that, on InfiniBand, the datagram has a route in addition to its LID
/// (`grh`).
const GLOBAL: u32 = 1 << 30;
/// A Q_Key with this bit means the Q_Key of the sending queue pair (InfiniBand 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// The global route header (InfiniBand 8.3).
#[derive(Clone, Copy, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Route {
    version_class_flow: U32,
    payload_bytes: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}

/// The port that a datagram goes to, with the number of the destination queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The sender's port, or a port that shares its GID.
    Own(u32),
    /// The port of another device.
    Other(u32),
    /// No known port.
    Nowhere,
}

impl AddressVector {
    /// Returns the destination of the datagram.
    ///
    /// # Errors
    /// [`Reason::AddressVector`] for a vector without its second half.
    pub(crate) fn destination(&self, port: Port, gids: &Gids) -> Result<Destination, Reason> {
        let word = self.destination_qpn.get();
        if word & EXTENDED == 0 {
            return Err(Reason::AddressVector);
        }
        let (gid, number) = (self.port_gid(port, gids), word & 0x00ff_ffff);
        Ok(match gids.is_own(gid) {
            true => Destination::Own(number),
            false if gids.is_others(gid) => Destination::Other(number),
            false => Destination::Nowhere,
        })
    }

    /// Returns the GID of the destination's port.
    fn port_gid(&self, port: Port, gids: &Gids) -> [u8; 16] {
        let is_global = port == Port::Ethernet || self.index_and_flow.get() & GLOBAL != 0;
        if is_global { self.gid } else { gids.of_lid(self.udp_source_port_or_lid.get()) }
    }

    /// Returns the fields of a datagram from this port with `bytes` bytes of data.
    pub(crate) fn datagram(
        &self,
        (port, gids): (Port, &Gids),
        own_qkey: u32,
        bytes: usize,
        immediate: bool,
    ) -> Datagram {
        let index = (self.index_and_flow.get() >> 20) as u8;
        let length = HEADERS + bytes.next_multiple_of(4) + if immediate { IMMEDIATE } else { 0 };
        let flow = self.index_and_flow.get() & 0x000f_ffff;
        let route = Route {
            version_class_flow: U32::new(6 << 28 | u32::from(self.traffic_class) << 20 | flow),
            payload_bytes: U16::new(length as u16),
            next_header: UDP,
            hop_limit: self.hop_limit,
            source: gids.at(index.into()),
            destination: self.port_gid(port, gids),
        };
        let qkey = match self.qkey.get() {
            key if key & OWN_QKEY != 0 => own_qkey,
            key => key,
        };
        Datagram { qkey, route: zerocopy::transmute!(route) }
    }
}
