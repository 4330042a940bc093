//! Calls for address handles, and checks of the GIDs (network addresses) at both ends of a path.

use crate::command::call::Call;
use crate::command::numbers::{CORE_IN, CORE_OUT, UHW_OUT};
use crate::ground::abi::{CreateAh, CreateAhResponse};
use crate::ground::errno::Errno;
use crate::ground::port::{gid_of_lid, subnet};
use crate::state::object::Object;
use crate::state::{State, port};
use mlx5_mkey::wire::prm::qp_context::{AddressPath, PathFlags, PathHops, PathLid, PathPort};
use zerocopy::IntoBytes;

/// Carries out CREATE_AH: makes an address handle, and answers with the MAC address that belongs to the
/// handle's GID. The GID belongs to a port of this process or of another process. On InfiniBand, the answer
/// has no MAC address.
pub(super) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: CreateAh = call.request.structure(CORE_IN)?;
    call.pd(asked.pd)?;
    check_path(call.state, asked.port, asked.is_global, asked.source_gid_index)?;
    let mac = match call.state.port.is_infiniband() {
        true => [0; 6],
        false => call.state.resolve(asked.gid).ok_or(Errno::TIMEDOUT)?,
    };
    let length = call.request.room(UHW_OUT).min(size_of::<CreateAhResponse>()) as u32;
    call.publish(Object::AddressHandle, |request, handle| {
        request.answer(CORE_OUT, &handle.to_ne_bytes())?;
        let response = CreateAhResponse { response_length: length, mac, ..CreateAhResponse::default() };
        request.answer(UHW_OUT, response.as_bytes())
    })
}

/// Checks the path from this device to a peer as Linux does (`rdma_fill_sgid_attr`). A path of an Ethernet
/// port needs a GID. A path with a GID begins at an entry of the port's GID table that is in use.
///
/// # Errors
/// [`Errno::INVAL`] for a port that the device does not have, or for a path without a GID on Ethernet;
/// [`Errno::NODATA`] for an empty entry.
pub(super) fn check_path(state: &State, number: u8, is_global: u8, gid_index: u8) -> Result<(), Errno> {
    let by_lid = is_global == 0;
    if number != port::NUMBER || by_lid && !state.port.is_infiniband() {
        return Err(Errno::INVAL);
    }
    if by_lid || has_gid(state, gid_index) { Ok(()) } else { Err(Errno::NODATA) }
}

/// Returns whether the entry `index` of the port's GID table is in use.
fn has_gid(state: &State, index: u8) -> bool {
    usize::from(index) < state.port.entries.len()
}

/// Returns whether the path of a queue pair ends at a port of this process or of another process. Returns
/// `None` for an invalid path.
pub(super) fn leads_to_a_port(state: &mut State, path: &AddressPath) -> Option<bool> {
    let port = PathPort::from_bits(path.port.get()).vhca_port_num();
    // The flag `fl` forces loopback. Traffic that never leaves the device needs neither port nor address
    // (DEVICE.md, "Queue pairs moved by commands").
    if PathFlags::from_bits(path.flags.get()).fl() {
        return (port <= port::NUMBER).then_some(true);
    }
    let lid = PathLid::from_bits(path.lid.get());
    if port == port::NUMBER && state.port.is_infiniband() && !lid.grh() {
        return Some(gid_of_lid(lid.rlid()).is_some());
    }
    if port != port::NUMBER || !has_gid(state, PathHops::from_bits(path.hops.get()).src_addr_index()) {
        return None;
    }
    if state.port.is_infiniband() {
        return Some(subnet().contains(&path.rgid_rip));
    }
    // A MAC address of zeros is also allowed: programs such as pyverbs look the MAC address up at a network
    // interface, and find none.
    Some(state.resolve(path.rgid_rip).is_some_and(|mac| [[0; 6], mac].contains(&path.rmac)))
}
