//! Tables of the fields of completion entries, in the order of the bytes. Assertions compare their sizes with
//! the sizes of the wire structs.

use super::spec::{Meaning, Named, Spec, flag, part, spec, total};
use crate::wire::cqe::{Cqe, ErrorCqe, SignatureErrorCqe};

const OP_OWN: &[Named] = &[
    part(0xf0, 0x00, "REQ"),
    part(0xf0, 0x10, "RESP_WR_IMM"),
    part(0xf0, 0x20, "RESP_SEND"),
    part(0xf0, 0x30, "RESP_SEND_IMM"),
    part(0xf0, 0x40, "RESP_SEND_INV"),
    part(0xf0, 0x50, "RESIZE_CQ"),
    part(0xf0, 0xc0, "SIG_ERR"),
    part(0xf0, 0xd0, "REQ_ERR"),
    part(0xf0, 0xe0, "RESP_ERR"),
    part(0xf0, 0xf0, "INVALID"),
    part(0x0c, 0x04, "inline data, 32 bytes"),
    part(0x0c, 0x08, "inline data, 64 bytes"),
    part(0x0c, 0x0c, "compressed"),
    flag(1, "solicited"),
    part(0x01, 0x01, "owner 1"),
    part(0x01, 0x00, "owner 0"),
];
const fn success_table(first: Spec, count: Spec) -> [Spec; 11] {
    [
        first,
        spec(4, "srqn_user_index", Meaning::Hex),
        spec(4, "imm_inval_pkey", Meaning::Hex),
        spec(4, "app", Meaning::Unused),
        count,
        spec(8, "timestamp", Meaning::Hex),
        spec(1, "s_wqe_opcode", Meaning::Opcode),
        spec(3, "qpn", Meaning::Hex),
        spec(2, "wqe_counter", Meaning::Count("")),
        spec(1, "signature", Meaning::Hex),
        spec(1, "op_own", Meaning::Bits(OP_OWN)),
    ]
}
const PACKET: Spec = spec(32, "packet fields", Meaning::Unused);
const BYTES: Spec = spec(4, "byte_cnt", Meaning::Count("bytes"));
pub(super) const CQE: &[Spec] = &success_table(PACKET, BYTES);
/// The table of an entry with 32 bytes of data (`MLX5_INLINE_SCATTER_32`).
pub(super) const INLINE_CQE: &[Spec] = &success_table(spec(32, "inline data", Meaning::Bytes), BYTES);
/// The table of the first of several compressed entries (DPDK `rxq_cq_decompress_v`, kernel
/// `mlx5e_read_title_slot`). Its field `byte_cnt` is the number of completions.
pub(super) const COMPRESSED_CQE: &[Spec] =
    &success_table(PACKET, spec(4, "byte_cnt", Meaning::Count("completions")));
const _: () = assert!(total(CQE) == size_of::<Cqe>());

pub(super) const ERROR_CQE: &[Spec] = &[
    spec(32, "reserved", Meaning::Reserved),
    spec(4, "srqn_user_index", Meaning::Hex),
    spec(16, "reserved", Meaning::Reserved),
    spec(1, "hw_error_syndrome", Meaning::Hex),
    spec(1, "hw_syndrome_type", Meaning::Hex),
    spec(1, "vendor_err_synd", Meaning::Hex),
    spec(1, "syndrome", Meaning::Syndrome),
    spec(1, "s_wqe_opcode", Meaning::Opcode),
    spec(3, "qpn", Meaning::Hex),
    spec(2, "wqe_counter", Meaning::Count("")),
    spec(1, "signature", Meaning::Hex),
    spec(1, "op_own", Meaning::Bits(OP_OWN)),
];
const _: () = assert!(total(ERROR_CQE) == size_of::<ErrorCqe>());

const SIGNATURE_SYNDROME: &[Named] =
    &[flag(13, "guard"), flag(12, "application tag"), flag(11, "reference tag")];
pub(super) const SIGNATURE_ERROR_CQE: &[Spec] = &[
    spec(16, "reserved", Meaning::Reserved),
    spec(4, "expected_trans_sig", Meaning::Hex),
    spec(4, "actual_trans_sig", Meaning::Hex),
    spec(4, "expected_ref_tag", Meaning::Hex),
    spec(4, "actual_ref_tag", Meaning::Hex),
    spec(2, "syndrome", Meaning::Bits(SIGNATURE_SYNDROME)),
    spec(1, "sig_type", Meaning::Bits(&[part(7, 0, "block"), part(7, 1, "transaction")])),
    spec(1, "domain", Meaning::Bits(&[part(7, 0, "wire"), part(7, 1, "memory")])),
    spec(4, "mkey", Meaning::Key),
    spec(8, "sig_err_offset", Meaning::Count("bytes")),
    spec(8, "reserved", Meaning::Reserved),
    spec(1, "reserved", Meaning::Reserved),
    spec(3, "qpn", Meaning::Hex),
    spec(2, "reserved", Meaning::Reserved),
    spec(1, "signature", Meaning::Hex),
    spec(1, "op_own", Meaning::Bits(OP_OWN)),
];
const _: () = assert!(total(SIGNATURE_ERROR_CQE) == size_of::<SignatureErrorCqe>());
