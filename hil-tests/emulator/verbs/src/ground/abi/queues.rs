//! Structures of calls for queue pairs, completion queues and shared receive queues.

#![allow(missing_docs)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

structures! {
    /// The driver's input of CQ_CREATE (`struct mlx5_ib_create_cq`).
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

    /// The driver's input of SRQ_CREATE (`struct mlx5_ib_create_srq`).
    CreateSrq 32 {
        buffer: u64,
        doorbell_record: u64,
        flags: u32,
        reserved0: u32,
        user_index: u32,
        reserved1: u32,
    }

    /// The input of MODIFY_SRQ (`struct ib_uverbs_modify_srq`).
    ModifySrq 16 {
        handle: u32,
        mask: u32,
        receives: u32,
        limit: u32,
    }

    /// The input of QUERY_SRQ (`struct ib_uverbs_query_srq`).
    QuerySrq 16 {
        response: u64,
        handle: u32,
        reserved: u32,
    }

    /// The answer of QUERY_SRQ (`struct ib_uverbs_query_srq_resp`).
    QuerySrqResponse 16 {
        receives: u32,
        segments: u32,
        limit: u32,
        reserved: u32,
    }

    /// The driver's input of QP_CREATE (`struct mlx5_ib_create_qp`).
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

    /// The driver's answer of QP_CREATE (`struct mlx5_ib_create_qp_resp`).
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

    /// The limits of a queue pair (`struct ib_uverbs_qp_cap`).
    QpCapabilities 20 {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    /// The network address of a queue pair's peer (`struct ib_uverbs_qp_dest`).
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

    /// The values of a queue pair that MODIFY_QP takes and QUERY_QP answers with (a part of both structures).
    /// Only QUERY_QP has `signal_all`.
    QpValues 40 {
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
        signal_all: u8,
        reserved: u8,
    }

    /// The input of MODIFY_QP (`struct ib_uverbs_modify_qp`).
    ModifyQp 112 {
        destination: Destination,
        alternate: Destination,
        handle: u32,
        mask: u32,
        values: QpValues,
    }

    /// The input of QUERY_QP (`struct ib_uverbs_query_qp`).
    QueryQp 16 {
        response: u64,
        handle: u32,
        mask: u32,
    }

    /// The answer of QUERY_QP (`struct ib_uverbs_query_qp_resp`).
    QueryQpResponse 128 {
        destination: Destination,
        alternate: Destination,
        capabilities: QpCapabilities,
        values: QpValues,
        reserved: u32,
    }

    /// The answer of CQ_DESTROY (`struct ib_uverbs_destroy_cq_resp`).
    DestroyCqResponse 8 {
        completion_events: u32,
        async_events: u32,
    }
}
