//! Structures that travel in attributes, in the host's byte order (`ib_user_verbs.h`, `mlx5-abi.h`).

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

structures! {
    /// `struct mlx5_ib_alloc_ucontext_req_v2`.
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

    /// `struct mlx5_ib_alloc_ucontext_resp`.
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

    /// `struct ib_uverbs_query_device_resp`.
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

    /// `struct ib_uverbs_ex_query_device_resp`; what is not there yet is zero: no paging, no timestamps, no RSS.
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

    /// `struct ib_uverbs_query_port_resp_ex`.
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

    /// `struct ib_uverbs_gid_entry`.
    GidEntry 32 {
        gid: [u8; 16],
        index: u32,
        port: u32,
        kind: u32,
        interface: u32,
    }

    /// `struct ib_uverbs_reg_mr`.
    RegisterRequest 40 {
        response: u64,
        start: u64,
        length: u64,
        hca_va: u64,
        pd: u32,
        access: u32,
    }

    /// `struct ib_uverbs_reg_mr_resp`.
    RegisterResponse 12 {
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// `struct ib_uverbs_create_ah`, with `struct ib_uverbs_ah_attr` and its route.
    CreateAh 56 {
        response: u64,
        user_handle: u64,
        pd: u32,
        reserved: u32,
        gid: [u8; 16],
        flow_label: u32,
        source_gid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved1: u8,
        lid: u16,
        service_level: u8,
        path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port: u8,
        reserved2: u8,
    }

    /// `struct mlx5_ib_create_ah_resp`.
    CreateAhResponse 16 {
        response_length: u32,
        mac: [u8; 6],
        reserved: [u8; 6],
    }

    /// `struct mlx5_ib_create_cq`.
    CreateCq 32 {
        buffer: u64,
        doorbell_record: u64,
        cqe_size: u32,
        compression: u8,
        compression_format: u8,
        flags: u16,
        uar_page: u16,
        reserved0: u16,
        reserved1: u32,
    }

    /// `struct mlx5_ib_create_srq`.
    CreateSrq 32 {
        buffer: u64,
        doorbell_record: u64,
        flags: u32,
        reserved0: u32,
        user_index: u32,
        reserved1: u32,
    }

    /// `struct ib_uverbs_modify_srq`.
    ModifySrq 16 {
        handle: u32,
        mask: u32,
        receives: u32,
        limit: u32,
    }

    /// `struct ib_uverbs_query_srq`.
    QuerySrq 16 {
        response: u64,
        handle: u32,
        reserved: u32,
    }

    /// `struct ib_uverbs_query_srq_resp`.
    QuerySrqResponse 16 {
        receives: u32,
        segments: u32,
        limit: u32,
        reserved: u32,
    }

    /// `struct mlx5_ib_create_qp`.
    CreateQp 56 {
        buffer: u64,
        doorbell_record: u64,
        sq_blocks: u32,
        rq_slots: u32,
        rq_shift: u32,
        flags: u32,
        user_index: u32,
        bfreg: u32,
        sq_buffer: u64,
        ece_options: u32,
        dci_streams: u16,
        reserved: u16,
    }

    /// `struct mlx5_ib_create_qp_resp`.
    CreateQpResponse 40 {
        bfreg: u32,
        ece_options: u32,
        comp_mask: u32,
        tirn: u32,
        tisn: u32,
        rqn: u32,
        sqn: u32,
        reserved: u32,
        tir_icm_address: u64,
    }

    /// `struct ib_uverbs_qp_cap`.
    QpCapabilities 20 {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    /// `struct ib_uverbs_qp_dest`.
    Destination 32 {
        gid: [u8; 16],
        flow_label: u32,
        lid: u16,
        reserved: u16,
        source_gid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        service_level: u8,
        source_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port: u8,
    }

    /// `struct ib_uverbs_modify_qp`.
    ModifyQp 112 {
        destination: Destination,
        alternate: Destination,
        handle: u32,
        mask: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        destination_qpn: u32,
        access: u32,
        pkey_index: u16,
        alternate_pkey_index: u16,
        state: u8,
        current_state: u8,
        path_mtu: u8,
        migration: u8,
        sqd_notify: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port: u8,
        timeout: u8,
        retry_count: u8,
        rnr_retry: u8,
        alternate_port: u8,
        alternate_timeout: u8,
        reserved: [u8; 2],
    }

    /// `struct ib_uverbs_query_qp`.
    QueryQp 16 {
        response: u64,
        handle: u32,
        mask: u32,
    }

    /// `struct ib_uverbs_query_qp_resp`.
    QueryQpResponse 128 {
        destination: Destination,
        alternate: Destination,
        capabilities: QpCapabilities,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        destination_qpn: u32,
        access: u32,
        pkey_index: u16,
        alternate_pkey_index: u16,
        state: u8,
        current_state: u8,
        path_mtu: u8,
        migration: u8,
        draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port: u8,
        timeout: u8,
        retry_count: u8,
        rnr_retry: u8,
        alternate_port: u8,
        alternate_timeout: u8,
        signal_all: u8,
        reserved: [u8; 5],
    }

    /// `struct ib_uverbs_async_event_desc`.
    AsyncEvent 16 {
        element: u64,
        kind: u32,
        reserved: u32,
    }

    /// `struct ib_uverbs_destroy_cq_resp`.
    DestroyCqResponse 8 {
        completion_events: u32,
        async_events: u32,
    }
}
