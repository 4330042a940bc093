//! Tables of the fields of segments that this library does not post, in the order of the bytes, like the
//! tables of [`super::field_table`].

use super::spec::{Meaning, Named, REST, Spec, flag, part, spec, total, unused};
use crate::wire::OCTOWORD_BYTES;
use crate::wire::datagram::{BaseAddress, RouteAddress};
use crate::wire::ethernet::EthernetSegment;

/// The operands of a masked compare and swap of 4 bytes (UCX `uct_ib_mlx5_atomic_masked_cswap32_seg`).
pub(super) const MASKED_SWAP_32: &[Spec] = &[
    spec(4, "swap", Meaning::Hex),
    spec(4, "compare", Meaning::Hex),
    spec(4, "swap_mask", Meaning::Hex),
    spec(4, "compare_mask", Meaning::Hex),
];
const _: () = assert!(total(MASKED_SWAP_32) == OCTOWORD_BYTES);

/// The operands of a masked compare and swap of 8 bytes (kernel `mlx5_wqe_masked_atomic_seg`).
pub(super) const MASKED_SWAP_64: &[Spec] = &[
    spec(8, "swap", Meaning::Hex),
    spec(8, "compare", Meaning::Hex),
    spec(8, "swap_mask", Meaning::Hex),
    spec(8, "compare_mask", Meaning::Hex),
];
const _: () = assert!(total(MASKED_SWAP_64) == 2 * OCTOWORD_BYTES);

/// The operands of a masked fetch and add of 4 bytes (UCX `uct_ib_mlx5_atomic_masked_fadd32_seg`).
pub(super) const MASKED_ADD_32: &[Spec] =
    &[spec(4, "add", Meaning::Hex), spec(4, "field_boundary", Meaning::Hex), unused(8)];
const _: () = assert!(total(MASKED_ADD_32) == OCTOWORD_BYTES);

/// The operands of a masked fetch and add of 8 bytes (UCX `uct_ib_mlx5_atomic_masked_fadd64_seg`).
pub(super) const MASKED_ADD_64: &[Spec] =
    &[spec(8, "add", Meaning::Hex), spec(8, "field_boundary", Meaning::Hex)];
const _: () = assert!(total(MASKED_ADD_64) == OCTOWORD_BYTES);

/// The address of a datagram or of a dynamically connected queue. A compact address ends after `rlid`.
pub(super) const ADDRESS: &[Spec] = &[
    spec(8, "qkey_or_dc_key", Meaning::Hex),
    spec(4, "dqp_dct", Meaning::Named(&[part(1 << 31, 1 << 31, "with route")])),
    spec(1, "stat_rate_sl", Meaning::Hex),
    spec(1, "fl_mlid", Meaning::Named(&[part(0x80, 0x80, "force loopback")])),
    spec(2, "rlid", Meaning::Hex),
    unused(4),
    spec(6, "rmac", Meaning::Hex),
    spec(1, "tclass", Meaning::Hex),
    spec(1, "hop_limit", Meaning::Count("")),
    spec(4, "grh_gid_fl", Meaning::Named(&[part(1 << 30, 1 << 30, "global route")])),
    spec(16, "rgid", Meaning::Hex),
];
const _: () = assert!(total(ADDRESS) == size_of::<BaseAddress>() + size_of::<RouteAddress>());

/// The shared receive queue of the peer (kernel `mlx5_wqe_xrc_seg`).
pub(super) const SHARED_RECEIVE_QUEUE: &[Spec] = &[spec(4, "xrc_srqn", Meaning::Hex), unused(12)];
const _: () = assert!(total(SHARED_RECEIVE_QUEUE) == OCTOWORD_BYTES);

const CHECKSUMS: &[Named] = &[
    flag(6, "L3 checksum"),
    flag(7, "L4 checksum"),
    flag(4, "inner L3 checksum"),
    flag(5, "inner L4 checksum"),
];
const PARSER_FLAGS: &[Named] =
    &[flag(0, "inner IPv6"), flag(1, "inner UDP"), flag(4, "outer IPv6"), flag(5, "outer UDP")];
const HEADER_SIZE: &[Named] = &[flag(15, "inserts a VLAN tag"), flag(14, "inserts a trailer")];
pub(super) const ETHERNET: &[Spec] = &[
    spec(1, "swp_outer_l4_offset", Meaning::Hex),
    spec(1, "swp_outer_l3_offset", Meaning::Hex),
    spec(1, "swp_inner_l4_offset", Meaning::Hex),
    spec(1, "swp_inner_l3_offset", Meaning::Hex),
    spec(1, "cs_flags", Meaning::Named(CHECKSUMS)),
    spec(1, "swp_flags", Meaning::Named(PARSER_FLAGS)),
    spec(2, "mss", Meaning::Count("bytes")),
    spec(4, "flow_table_metadata", Meaning::Hex),
    spec(2, "inline_hdr_sz", Meaning::Named(HEADER_SIZE)),
    spec(2, "inline_hdr_start", Meaning::Hex),
];
const _: () = assert!(total(ETHERNET) == size_of::<EthernetSegment>());

/// A segment that consists of data.
pub(super) const DATA_BYTES: &[Spec] = &[spec(REST, "data", Meaning::Bytes)];

/// The completion queue that a request waits for, or the send queue that a request enables, and an index in
/// that queue (DPDK `mlx5_wqe_qseg`).
pub(super) const WAIT: &[Spec] =
    &[unused(8), spec(4, "max_index", Meaning::Hex), spec(4, "qpn_cqn", Meaning::Hex)];
const _: () = assert!(total(WAIT) == OCTOWORD_BYTES);

/// The value in memory that a request waits for (DPDK `mlx5_wqe_wseg`).
pub(super) const WAIT_FOR_VALUE: &[Spec] = &[
    spec(4, "operation", Meaning::Hex),
    spec(4, "lkey", Meaning::Key),
    spec(8, "address", Meaning::Hex),
    spec(8, "value", Meaning::Hex),
    spec(8, "mask", Meaning::Hex),
];
const _: () = assert!(total(WAIT_FOR_VALUE) == 2 * OCTOWORD_BYTES);

const TAG_OPERATION: &[Named] =
    &[part(0xf0, 0, "nothing"), part(0xf0, 0x10, "append"), part(0xf0, 0x20, "remove")];
/// A change of the tag list of a shared receive queue (tag matching, `struct mlx5_wqe_tm_seg`).
pub(super) const TAG_MATCHING: &[Spec] = &[
    spec(1, "opcode", Meaning::Named(TAG_OPERATION)),
    spec(1, "flags", Meaning::Named(&[flag(7, "signalled"), flag(6, "counter is given")])),
    spec(2, "index", Meaning::Hex),
    unused(2),
    spec(2, "sw_cnt", Meaning::Count("")),
    unused(8),
    spec(8, "append_tag", Meaning::Hex),
    spec(8, "append_mask", Meaning::Hex),
];
const _: () = assert!(total(TAG_MATCHING) == 2 * OCTOWORD_BYTES);

/// The matrix that a request transposes (`struct flexio_dev_wqe_transpose_seg` of DOCA).
pub(super) const TRANSPOSE: &[Spec] = &[
    spec(4, "element_size", Meaning::Count("bytes")),
    spec(2, "num_of_cols", Meaning::Count("")),
    spec(2, "num_of_rows", Meaning::Count("")),
    unused(8),
];
const _: () = assert!(total(TRANSPOSE) == OCTOWORD_BYTES);
