//! Structures of calls for memory regions, memory windows and address handles.

#![allow(missing_docs)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

structures! {
    /// The input of REG_MR (`struct ib_uverbs_reg_mr`).
    RegisterRequest 40 {
        response: u64,
        start: u64,
        length: u64,
        hca_va: u64,
        pd: u32,
        access: u32,
    }

    /// The answer of REG_MR (`struct ib_uverbs_reg_mr_resp`).
    RegisterResponse 12 {
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// The input of REREG_MR (`struct ib_uverbs_rereg_mr`).
    ReregisterRequest 48 {
        response: u64,
        handle: u32,
        flags: u32,
        start: u64,
        length: u64,
        hca_va: u64,
        pd: u32,
        access: u32,
    }

    /// The input of ALLOC_MW (`struct ib_uverbs_alloc_mw`).
    AllocWindow 16 {
        response: u64,
        pd: u32,
        kind: u8,
        reserved: [u8; 3],
    }

    /// The driver's input of ALLOC_MW (`struct mlx5_ib_alloc_mw`).
    AllocWindowDriver 8 {
        comp_mask: u32,
        entries: u8,
        reserved0: u8,
        reserved1: u16,
    }

    /// The input of CREATE_AH (`struct ib_uverbs_create_ah`, which contains `struct ib_uverbs_ah_attr` and
    /// its route).
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

    /// The driver's answer of CREATE_AH (`struct mlx5_ib_create_ah_resp`).
    CreateAhResponse 16 {
        response_length: u32,
        mac: [u8; 6],
        reserved: [u8; 6],
    }
}
