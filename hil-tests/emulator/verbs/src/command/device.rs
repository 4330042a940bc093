//! Calls that open a context, and calls that query device and port.

use super::shared_receive::{MAX_RECEIVES, MAX_SEGMENTS};
use crate::command::call::Call;
use crate::command::numbers::{CORE_IN, CORE_OUT, UHW_IN, UHW_OUT};
use crate::ground::abi::{
    ContextRequest, ContextResponse, DeviceResponse, DeviceResponseExtended, GidEntry, PortResponse,
};
use crate::ground::errno::Errno;
use crate::ground::port::{self, Port, Version};
use crate::ground::sysfs;
use crate::state::channel::Kind;
use crate::state::clock;
use crate::state::port::NUMBER;
use mlx5_softdev::DeviceProfile;
use zerocopy::IntoBytes;

/// The only flag of GET_CONTEXT: `MLX5_IB_ALLOC_UCTX_DEVX`.
const DEVX: u32 = 1;

/// The bit of `lib_caps` for programs that allocate all doorbell pages themselves (`MLX5_LIB_CAP_DYN_UAR`).
const DYNAMIC_PAGES: u64 = 1 << 1;

/// The number of doorbell registers in a page, and the largest number of registers that GET_CONTEXT may ask
/// for.
const REGISTERS: u32 = 2;
const MAX_REGISTERS: u32 = 512;

/// The mask of the optional parts in the answer of GET_CONTEXT:
/// `MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET`, `_SQD2RTS` and `_MKEY_UPDATE_TAG`.
const RESPONSE_MASK: u32 = 1 << 0 | 1 << 3 | 1 << 5;

/// The versions of the clock's information page: a bit for `MLX5_IB_CLOCK_INFO_V1`.
const CLOCK_INFO_VERSIONS: u8 = 1 << 0;

/// The flag in the answer of GET_CONTEXT by which the kernel says that it accepts optional access flags such
/// as relaxed ordering, and drops the flags that a device lacks
/// (`IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS`).
const CORE_SUPPORT: u64 = 1;

/// The MTU code of 4096 bytes (`IBV_MTU_4096`), the largest MTU of the port.
const MTU_4096: u8 = 5;

/// The port's capability flags: GIDs are formed from IP addresses (`IB_UVERBS_PCF_IP_BASED_GIDS`), and the
/// port supports connection management.
const PORT_CAPABILITIES: u32 = 1 << 26 | sysfs::CONNECTION_MANAGEMENT;

/// Carries out GET_CONTEXT: opens the context, and answers with the limits and features that the mlx5 driver
/// reports.
pub(super) fn get_context(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: ContextRequest = call.request.structure(UHW_IN)?;
    // The first version of the input has 8 bytes. The second version needs 16 bytes: all fields up to
    // `max_cqe_version`, and the padding behind this field.
    if (9..16).contains(&call.request.room(UHW_IN)) {
        return Err(Errno::INVAL);
    }
    if asked.flags & !DEVX != 0 || asked.comp_mask != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if asked.reserved0 != 0 || asked.reserved1 != 0 || asked.reserved2 != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if call.context()?.opened {
        return Err(Errno::INVAL);
    }
    // Linux rounds the number of registers up to whole pages (`calc_total_bfregs`).
    let registers = asked.total_bfregs.checked_next_multiple_of(REGISTERS).ok_or(Errno::NOMEM)?;
    if asked.low_latency_bfregs > registers.wrapping_sub(1) {
        return Err(Errno::INVAL);
    }
    let static_pages = match (asked.lib_caps & DYNAMIC_PAGES, registers) {
        (0, 0) => return Err(Errno::INVAL),
        (0, 1..=MAX_REGISTERS) => Some(registers / REGISTERS),
        (0, _) => return Err(Errno::NOMEM),
        _ => None,
    };
    let room = call.request.room(UHW_OUT).min(size_of::<ContextResponse>());
    let response = ContextResponse {
        qp_table_size: 1 << 17,
        // The size 0 tells libmlx5 that the kernel cannot map BlueFlame (write-combining) pages
        // (`set_ucontext_resp`).
        bf_reg_size: if call.state.write_combining { 512 } else { 0 },
        total_bfregs: static_pages.map_or(0, |pages| pages * REGISTERS),
        cache_line_size: 64,
        max_sq_desc_size: 1024,
        max_rq_desc_size: 512,
        max_send_wqebb: 32768,
        max_recv_wr: 32768,
        max_srq_recv_wr: MAX_RECEIVES,
        ports: 1,
        comp_mask: RESPONSE_MASK,
        response_length: room as u32,
        cqe_version: asked.max_cqe_version.min(u8::from(call.state.device.profile().user_indices)),
        // Bit 0 is QUERY_DEVICE, bit 1 CREATE_AH. These two commands also carry structures of the driver.
        commands_with_uhw: 3,
        eth_min_inline: 1,
        clock_info_versions: CLOCK_INFO_VERSIONS,
        // The clock register is at the start of its page.
        core_clock_offset: 0,
        log_uar_size: 12,
        uars_per_page: 1,
        dynamic_bfregs: 1024,
        ..ContextResponse::default()
    };
    call.request.answer(0, &1u32.to_ne_bytes())?;
    call.request.answer(1, &CORE_SUPPORT.to_ne_bytes())?;
    call.request.answer(UHW_OUT, response.as_bytes())?;
    let context = call.context()?;
    (context.opened, context.devx) = (true, asked.flags & DEVX != 0);
    (context.cqe_version, context.static_pages) = (response.cqe_version, static_pages);
    Ok(())
}

/// The device's capability flags: `IBV_DEVICE_SYS_IMAGE_GUID`, `_RC_RNR_NAK_GEN`, `_MEM_MGT_EXTENSIONS`.
const CAPABILITIES: u32 = 1 << 11 | 1 << 12 | 1 << 21;

/// The capability flags of a device with memory windows: `IBV_DEVICE_MEM_WINDOW`, `_MEM_WINDOW_TYPE_2B`.
const WINDOWS: u32 = 1 << 17 | 1 << 24;

fn description(profile: &DeviceProfile, guid: [u8; 8]) -> DeviceResponse {
    // A memory window may grant remote rights that its region lacks. A device that also checks the region's
    // remote rights (`inner_remote_rights`) therefore offers no windows.
    let windows = !profile.inner_remote_rights;
    DeviceResponse {
        firmware: 22 << 32 | 99 << 16,
        node_guid: guid,
        system_image_guid: guid,
        max_mr_size: u64::MAX,
        page_sizes: 0xffff_ffff_ffff_f000,
        vendor: 0x02c9,
        part: sysfs::PART,
        hardware: 0,
        max_qp: 1 << 15,
        max_qp_wr: 32768,
        capabilities: CAPABILITIES | if windows { WINDOWS } else { 0 },
        max_mw: if windows { 1 << 24 } else { 0 },
        max_sge: 30,
        max_sge_rd: 30,
        max_cq: 1 << 16,
        max_cqe: (1 << 22) - 1,
        max_mr: 1 << 24,
        max_pd: 1 << 24,
        max_qp_rd_atomic: 1 << profile.log_max_reads,
        max_res_rd_atomic: 1 << 19,
        max_qp_init_rd_atomic: 1 << profile.log_max_reads,
        // The value 1 is IBV_ATOMIC_HCA: operations are atomic among requests, but not against the processor.
        // The value 0 means no atomics.
        atomic: profile.atomic.into(),
        max_pkeys: 1,
        max_ah: 1 << 24,
        max_srq: 1 << 15,
        max_srq_wr: MAX_RECEIVES,
        max_srq_sge: MAX_SEGMENTS,
        local_ack_delay: 16,
        ports: 1,
        ..DeviceResponse::default()
    }
}

/// Carries out QUERY_DEVICE: answers with the device's limits and capabilities.
pub(super) fn query_device(call: &mut Call<'_>) -> Result<(), Errno> {
    call.request.structure::<u64>(CORE_IN)?;
    call.request.answer(CORE_OUT, description(call.state.device.profile(), call.state.guid()).as_bytes())
}

/// Carries out the extended QUERY_DEVICE. In the answer, the fields of missing features are zero.
pub(super) fn query_device_extended(call: &mut Call<'_>) -> Result<(), Errno> {
    // The input has only a mask and a reserved field.
    if call.request.structure::<u64>(CORE_IN)? != 0 {
        return Err(Errno::INVAL);
    }
    let base = description(call.state.device.profile(), call.state.guid());
    let response = DeviceResponseExtended {
        base,
        response_length: call.request.room(CORE_OUT).min(size_of::<DeviceResponseExtended>()) as u32,
        // The kernel reports a mask of 63 bits for every device, whatever the width of the device's clock
        // (kernel `mlx5_ib_query_device`).
        timestamp_mask: i64::MAX as u64,
        core_clock_khz: clock::KILOHERTZ,
        capabilities: base.capabilities.into(),
        ..DeviceResponseExtended::default()
    };
    call.request.answer(CORE_OUT, response.as_bytes())?;
    // The driver's answer is `struct mlx5_ib_query_device_resp`: an empty mask, and the length of the filled
    // part.
    let mut driver = vec![0; call.request.room(UHW_OUT)];
    let length = (driver.len() as u32).to_ne_bytes();
    if let Some(place) = driver.get_mut(4..8) {
        place.copy_from_slice(&length);
    }
    call.request.answer(UHW_OUT, &driver)
}

fn known_port(call: &Call<'_>, attribute: u16) -> Result<(), Errno> {
    if call.request.number(attribute) == 1 { Ok(()) } else { Err(Errno::INVAL) }
}

/// Carries out QUERY_PORT: answers with the port's attributes.
pub(super) fn query_port(call: &mut Call<'_>) -> Result<(), Errno> {
    known_port(call, 0)?;
    let port = &call.state.port;
    let (state, physical_state) = port.states();
    let response = PortResponse {
        capabilities: PORT_CAPABILITIES,
        max_message: call.state.device.profile().max_message_bytes,
        gid_table: port.gids() as u32,
        pkey_table: 1,
        lid: port.lid,
        sm_lid: if port.is_infiniband() { port::SUBNET_MANAGER } else { 0 },
        state,
        max_mtu: MTU_4096,
        active_mtu: port.mtu,
        max_vl: 1,
        active_width: 2,  // 4X
        active_speed: 32, // EDR
        physical_state,
        // The link layer is 1 for InfiniBand and 2 for Ethernet. Flag 1 says that each address needs a GID (a
        // global route), as on Ethernet.
        link_layer: if port.is_infiniband() { 1 } else { 2 },
        flags: if port.is_infiniband() { 0 } else { 1 },
        ..PortResponse::default()
    };
    call.request.answer(1, response.as_bytes())
}

/// Returns an entry of the port's GID table, or `None` for an empty entry.
fn gid_entry(port: &Port, index: usize) -> Option<GidEntry> {
    let entry = port.entries.get(index)?;
    let kind = match entry.version {
        _ if port.is_infiniband() => 0, // IB_UVERBS_GID_TYPE_IB
        Version::V1 => 1,               // IB_UVERBS_GID_TYPE_ROCE_V1
        Version::V2 => 2,               // IB_UVERBS_GID_TYPE_ROCE_V2
    };
    let interface = entry.interface.index;
    Some(GidEntry { gid: entry.gid, index: index as u32, port: NUMBER.into(), kind, interface })
}

/// Carries out QUERY_GID_TABLE: answers with the entries that are in use.
pub(super) fn query_gid_table(call: &mut Call<'_>) -> Result<(), Errno> {
    let size = usize::try_from(call.request.number(0)).map_err(|_| Errno::INVAL)?;
    let port = &call.state.port;
    let room = call.request.room(2).checked_div(size).ok_or(Errno::INVAL)?;
    if call.request.number(1) != 0 || size < size_of::<GidEntry>() || room < port.entries.len() {
        return Err(Errno::INVAL);
    }
    let mut table = Vec::new();
    for entry in (0..port.entries.len()).filter_map(|index| gid_entry(port, index)) {
        table.extend_from_slice(entry.as_bytes());
        table.resize(table.len().next_multiple_of(size), 0);
    }
    call.request.answer(2, &table)?;
    call.request.answer(3, &(port.entries.len() as u64).to_ne_bytes())
}

/// Carries out QUERY_GID_ENTRY: answers with one entry of the GID table.
pub(super) fn query_gid_entry(call: &mut Call<'_>) -> Result<(), Errno> {
    known_port(call, 0)?;
    let index = call.request.number(1) as usize;
    if index >= call.state.port.gids() || call.request.number(2) != 0 {
        return Err(Errno::INVAL);
    }
    let entry = gid_entry(&call.state.port, index).ok_or(Errno::NODATA)?;
    call.request.answer(3, entry.as_bytes())
}

/// Carries out ASYNC_EVENT_ALLOC: makes a channel for asynchronous events.
pub(super) fn alloc_async_event(call: &mut Call<'_>) -> Result<(), Errno> {
    let (number, descriptor) = call.open_channel(Kind::Asynchronous)?;
    // The context's first channel serves all objects that name no channel.
    call.context()?.async_channel.get_or_insert(number);
    call.request.answer_object(0, descriptor.into())
}
