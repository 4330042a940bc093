//! Network addresses. All processes of a fabric share one port, which has one GID and one MAC address.

use crate::command::call::Call;
use crate::command::numbers::{CORE_IN, CORE_OUT, UHW_OUT};
use crate::ground::abi::{CreateAh, CreateAhResponse};
use crate::ground::errno::Errno;
use crate::ground::sysfs;
use crate::state::object::Object;
use mlx5_mkey::wire::prm::qp_context::{AddressPath, PathFlags, PathHops, PathPort};
use zerocopy::IntoBytes;

/// CREATE_AH: on mlx5, this call also resolves a GID. Only the port's own GID gets an answer.
pub(super) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: CreateAh = call.request.structure(CORE_IN)?;
    call.pd(asked.pd).map_err(|_| Errno::INVAL)?;
    // An Ethernet port has only global addresses.
    if asked.port != 1 || asked.is_global == 0 || asked.source_gid_index != 0 {
        return Err(Errno::INVAL);
    }
    if asked.gid != sysfs::gid() {
        return Err(Errno::TIMEDOUT);
    }
    let length = call.request.room(UHW_OUT).min(size_of::<CreateAhResponse>()) as u32;
    call.publish(Object::AddressHandle, |request, handle| {
        request.answer(CORE_OUT, &handle.to_ne_bytes())?;
        let response =
            CreateAhResponse { response_length: length, mac: sysfs::mac(), ..CreateAhResponse::default() };
        request.answer(UHW_OUT, response.as_bytes())
    })
}

/// AH_DESTROY.
pub(super) fn destroy(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.request.handle(0)?;
    call.destroy(handle, |object| matches!(object, Object::AddressHandle))
}

/// Returns `None` for an invalid path, otherwise whether the path ends at the port.
pub(super) fn leads_to_a_port(path: &AddressPath) -> Option<bool> {
    let port = PathPort::from_bits(path.port.get()).vhca_port_num();
    // Traffic that never leaves the device needs neither port nor address (DEVICE.md, "Queue pairs moved by
    // commands").
    if PathFlags::from_bits(path.flags.get()).fl() {
        return (port <= 1).then_some(true);
    }
    if port != 1 {
        return None;
    }
    let own = PathHops::from_bits(path.hops.get()).src_addr_index() == 0;
    // A zero MAC address is allowed too: programs such as pyverbs look it up at a network interface, and find
    // none.
    own.then(|| path.rgid_rip == sysfs::gid() && [[0; 6], sysfs::mac()].contains(&path.rmac))
}
