//! Structures that calls of the kernel's interface carry in their attributes, in the host's byte order
//! (`ib_user_verbs.h`, `mlx5-abi.h`).

#![allow(missing_docs)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident $size:literal { $($field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $kind,)* }
            const _: () = assert!(size_of::<$name>() == $size);

            impl Default for $name {
                fn default() -> Self {
                    zerocopy::FromZeros::new_zeroed()
                }
            }
        )*
    };
}

mod memory;
mod queues;

pub(crate) use memory::{
    AllocWindow, AllocWindowDriver, CreateAh, CreateAhResponse, RegisterRequest, RegisterResponse,
    ReregisterRequest,
};
pub(crate) use queues::{
    CreateCq, CreateQp, CreateQpResponse, CreateSrq, Destination, DestroyCqResponse, ModifyQp, ModifySrq,
    QpCapabilities, QpValues, QueryQp, QueryQpResponse, QuerySrq, QuerySrqResponse,
};

structures! {
    /// The driver's input of GET_CONTEXT (`struct mlx5_ib_alloc_ucontext_req_v2`).
    ContextRequest 32 {
        total_bfregs: u32,
        low_latency_bfregs: u32,
        flags: u32,
        comp_mask: u32,
        max_cqe_version: u8,
        reserved0: u8,
        reserved1: u16,
        reserved2: u32,
        lib_caps: u64,
    }

    /// The driver's answer of GET_CONTEXT (`struct mlx5_ib_alloc_ucontext_resp`).
    ContextResponse 72 {
        qp_table_size: u32,
        bf_reg_size: u32,
        total_bfregs: u32,
        cache_line_size: u32,
        max_sq_desc_size: u16,
        max_rq_desc_size: u16,
        max_send_wqebb: u32,
        max_recv_wr: u32,
        max_srq_recv_wr: u32,
        ports: u16,
        flow_action_flags: u16,
        comp_mask: u32,
        response_length: u32,
        cqe_version: u8,
        commands_with_uhw: u8,
        eth_min_inline: u8,
        clock_info_versions: u8,
        core_clock_offset: u64,
        log_uar_size: u32,
        uars_per_page: u32,
        dynamic_bfregs: u32,
        dump_fill_mkey: u32,
    }

    /// The answer of QUERY_DEVICE (`struct ib_uverbs_query_device_resp`).
    DeviceResponse 176 {
        firmware: u64,
        node_guid: [u8; 8],
        system_image_guid: [u8; 8],
        max_mr_size: u64,
        page_sizes: u64,
        vendor: u32,
        part: u32,
        hardware: u32,
        max_qp: u32,
        max_qp_wr: u32,
        capabilities: u32,
        max_sge: u32,
        max_sge_rd: u32,
        max_cq: u32,
        max_cqe: u32,
        max_mr: u32,
        max_pd: u32,
        max_qp_rd_atomic: u32,
        max_ee_rd_atomic: u32,
        max_res_rd_atomic: u32,
        max_qp_init_rd_atomic: u32,
        max_ee_init_rd_atomic: u32,
        atomic: u32,
        max_ee: u32,
        max_rdd: u32,
        max_mw: u32,
        max_raw_ipv6_qp: u32,
        max_raw_ethy_qp: u32,
        max_mcast_groups: u32,
        max_mcast_qp_attach: u32,
        max_total_mcast_qp_attach: u32,
        max_ah: u32,
        max_fmr: u32,
        max_map_per_fmr: u32,
        max_srq: u32,
        max_srq_wr: u32,
        max_srq_sge: u32,
        max_pkeys: u16,
        local_ack_delay: u8,
        ports: u8,
        reserved: [u8; 4],
    }

    /// The answer of the extended QUERY_DEVICE (`struct ib_uverbs_ex_query_device_resp`). Fields of missing
    /// features (paging, RSS) are zero.
    DeviceResponseExtended 304 {
        base: DeviceResponse,
        comp_mask: u32,
        response_length: u32,
        odp: [u8; 24],
        timestamp_mask: u64,
        core_clock_khz: u64,
        capabilities: u64,
        rss: [u8; 16],
        max_wq_type_rq: u32,
        raw_packet: u32,
        tag_matching: [u8; 24],
        moderation: [u8; 8],
        max_dm_size: u64,
        xrc_odp: u32,
        reserved: u32,
    }

    /// The answer of QUERY_PORT (`struct ib_uverbs_query_port_resp_ex`).
    PortResponse 48 {
        capabilities: u32,
        max_message: u32,
        bad_pkeys: u32,
        bad_qkeys: u32,
        gid_table: u32,
        pkey_table: u16,
        lid: u16,
        sm_lid: u16,
        state: u8,
        max_mtu: u8,
        active_mtu: u8,
        lmc: u8,
        max_vl: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        physical_state: u8,
        link_layer: u8,
        flags: u8,
        reserved: u8,
        capabilities2: u16,
        reserved2: [u8; 6],
    }

    /// An entry of the GID table in an answer (`struct ib_uverbs_gid_entry`).
    GidEntry 32 {
        gid: [u8; 16],
        index: u32,
        port: u32,
        kind: u32,
        interface: u32,
    }

    /// An asynchronous event on a channel (`struct ib_uverbs_async_event_desc`).
    AsyncEvent 16 {
        element: u64,
        kind: u32,
        reserved: u32,
    }
}
