//! The path to a peer on Ethernet, as the kernel resolves it.

#![allow(unsafe_code)]

use super::super::abi::{Described, IbvAhAttr, Mlx5dvAh, Mlx5dvObj, OBJ_AH};
use super::errno::{check, last_error};
use super::memory::Pd;
use crate::devx::error::{DevxError, drop_failed};
use core::ptr::{self, NonNull};

/// The input of [`Pd::resolve`]: the peer's GID, and the own port and GID from which packets go to the peer.
#[derive(Clone, Copy, Debug)]
pub(in crate::devx) struct Route {
    pub(in crate::devx) port: u8,
    pub(in crate::devx) source_gid_index: u8,
    pub(in crate::devx) gid: [u8; 16],
    pub(in crate::devx) hop_limit: u8,
    pub(in crate::devx) traffic_class: u8,
}

/// The next hop of packets to a peer: the peer or a router.
#[derive(Clone, Copy, Debug)]
pub(in crate::devx) struct NextHop {
    /// MAC address of the peer, or of a router to it.
    pub(in crate::devx) mac: [u8; 6],
    /// Whether packets have a UDP header (RoCE v2).
    pub(in crate::devx) is_udp: bool,
}

impl Pd {
    /// Finds the next hop on Ethernet. The function creates an address handle. To create it, libmlx5 asks the
    /// kernel for the next hop, which the kernel finds in its tables of routes and neighbours. With old
    /// kernels, libmlx5 reads these tables itself.
    pub(in crate::devx) fn resolve(&self, route: Route) -> Result<NextHop, DevxError> {
        let api = self.context.api;
        let mut attr = IbvAhAttr {
            gid: route.gid,
            source_gid_index: route.source_gid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
            is_global: 1,
            port: route.port,
            ..IbvAhAttr::default()
        };
        // SAFETY: the protection domain lives; the attributes are read during the call.
        let ah = unsafe { (api.ibv_create_ah)(self.raw.as_ptr(), &mut attr) };
        let ah = NonNull::new(ah).ok_or_else(|| last_error("ibv_create_ah"))?;
        let mut out = Mlx5dvAh { av: ptr::null_mut(), comp_mask: 0 };
        let mut obj = Mlx5dvObj { ah: Described { object: ah.as_ptr(), out: &mut out }, ..Mlx5dvObj::NONE };
        // SAFETY: with OBJ_AH the function accesses only the field `ah`. It names a live address handle and
        // memory for its description.
        let described = check("mlx5dv_init_obj", unsafe { (api.mlx5dv_init_obj)(&mut obj, OBJ_AH) });
        // SAFETY: the description points into the address handle, which still lives, or is null.
        let vector = unsafe { out.av.as_ref() };
        let hop = vector.map(|av| NextHop { mac: av.mac, is_udp: av.lid_or_port != [0; 2] });
        // SAFETY: the handle was created above, and no pointer into it is used from here on.
        let destroyed = check("ibv_destroy_ah", unsafe { (api.ibv_destroy_ah)(ah.as_ptr()) });
        destroyed.unwrap_or_else(|error| drop_failed(&error));
        described?;
        hop.ok_or_else(|| DevxError::call("mlx5dv_init_obj", std::io::ErrorKind::InvalidData.into()))
    }
}
