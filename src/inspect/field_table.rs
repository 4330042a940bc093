//! Which fields each segment has: tables in the order of the bytes, held to the sizes of the wire structs.

use super::segment_kind::SegmentKind;
use crate::mkey::XtsEngine;
use crate::wire::bsf::{CryptoBsf, InlineDif, SignatureBsf};
use crate::wire::cqe::{Cqe, ErrorCqe, SignatureErrorCqe};
use crate::wire::ctrl::ControlSegment;
use crate::wire::data::{AtomicSegment, DataSegment, RemoteAddressSegment};
use crate::wire::klm::Klm;
use crate::wire::mkey_context::MkeyContext;
use crate::wire::psv::SetPsvSegment;
use crate::wire::strided::{StridedEntry, StridedHeader};
use crate::wire::umr::UmrControlSegment;

/// A value or bit of a field and what it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// The bits of the field that are looked at.
    pub(super) mask: u64,
    /// Their value.
    pub(super) value: u64,
    /// What that means; nothing is printed for an empty one.
    pub(super) text: &'static str,
}

const fn flag(bit: u32, text: &'static str) -> Named {
    Named { mask: 1 << bit, value: 1 << bit, text }
}

const fn part(mask: u64, value: u64, text: &'static str) -> Named {
    Named { mask, value, text }
}

const fn code(value: u64, text: &'static str) -> Named {
    Named { mask: u64::MAX, value, text }
}

/// How a field is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// Should be zero; a field only where it is not.
    Reserved,
    /// A number to print in hexadecimal.
    Hex,
    /// A number of something.
    Count(&'static str),
    /// Octowords of 16 bytes.
    Octowords,
    /// A memory key.
    Key,
    /// A number, some of whose values have a name.
    Named(&'static [Named]),
    /// Independent bits and small parts.
    Bits(&'static [Named]),
    /// One of a closed set of codes.
    Codes(&'static [Named]),
    /// A work request opcode.
    Opcode,
    /// A completion syndrome.
    Syndrome,
    /// Length of inline data, with a flag in bit 31.
    InlineLength,
    /// A 128-bit tweak in the byte order of the engine, in both where that is not known.
    Tweak(Option<XtsEngine>),
    /// Bytes with no meaning here.
    Bytes,
}

/// One line of a segment's table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) bytes: usize,
    pub(super) name: &'static str,
    pub(super) meaning: Meaning,
}

/// Size of a field that takes what is left of its segment.
pub(super) const REST: usize = usize::MAX;

const fn spec(bytes: usize, name: &'static str, meaning: Meaning) -> Spec {
    Spec { bytes, name, meaning }
}

const fn reserved(bytes: usize) -> Spec {
    spec(bytes, "reserved", Meaning::Reserved)
}

/// Returns the size of a table's segment, to compare it with that of the wire struct.
const fn total(mut table: &[Spec]) -> usize {
    let mut sum = 0;
    while let [first, rest @ ..] = table {
        sum += first.bytes;
        table = rest;
    }
    sum
}

const FENCE_CE: &[Named] = &[
    part(0x0c, 0x04, "no completion when flushed"),
    part(0x0c, 0x08, "completion always"),
    part(0x0c, 0x0c, "completion and event"),
    part(0xe0, 0x20, "small fence"),
    part(0xe0, 0x60, "strong order"),
    part(0xe0, 0x80, "fence"),
    flag(1, "solicited"),
];
const CONTROL: &[Spec] = &[
    spec(1, "opmod", Meaning::Hex),
    spec(2, "wqe_index", Meaning::Count("(block)")),
    spec(1, "opcode", Meaning::Opcode),
    spec(3, "qpn", Meaning::Hex),
    spec(1, "ds", Meaning::Octowords),
    spec(1, "signature", Meaning::Hex),
    spec(2, "dci_stream_channel", Meaning::Hex),
    spec(1, "fm_ce_se", Meaning::Bits(FENCE_CE)),
    spec(4, "imm", Meaning::Hex),
];
const _: () = assert!(total(CONTROL) == size_of::<ControlSegment>());

const UMR_FLAGS: &[Named] =
    &[flag(3, "check QPN"), flag(4, "translation offset"), flag(5, "check free"), flag(7, "inline")];
const MKEY_MASK: &[Named] = &[
    flag(0, "LEN"),
    flag(1, "PAGE_SIZE"),
    flag(6, "START_ADDR"),
    flag(7, "PD"),
    flag(8, "EN_RINVAL"),
    flag(9, "SIG_ERR"),
    flag(12, "BSF_EN"),
    flag(13, "MKEY"),
    flag(14, "QPN"),
    flag(17, "LR"),
    flag(18, "LW"),
    flag(19, "RR"),
    flag(20, "RW"),
    flag(21, "A"),
    flag(23, "SMALL_FENCE"),
    flag(25, "RELAXED_WRITE"),
    flag(29, "FREE"),
    flag(47, "RELAXED_READ"),
];
const UMR_CONTROL: &[Spec] = &[
    spec(1, "flags", Meaning::Bits(UMR_FLAGS)),
    reserved(3),
    spec(2, "klm_octowords", Meaning::Octowords),
    spec(2, "bsf_octowords", Meaning::Octowords),
    spec(8, "mkey_mask", Meaning::Bits(MKEY_MASK)),
    reserved(8),
    reserved(8),
    reserved(8),
    reserved(8),
];
const _: () = assert!(total(UMR_CONTROL) == size_of::<UmrControlSegment>());

const ACCESS: &[Named] = &[
    flag(2, "local read"),
    flag(3, "local write"),
    flag(4, "remote read"),
    flag(5, "remote write"),
    flag(6, "atomic"),
];
const CONTEXT_FLAGS: &[Named] = &[
    flag(0, "remote invalidate"),
    part(0x04, 0x04, "signature error count 1"),
    flag(6, "BSF enabled"),
    flag(7, "length 64"),
];
const MKEY_CONTEXT: &[Spec] = &[
    spec(1, "free", Meaning::Bits(&[flag(6, "refuses all traffic")])),
    reserved(1),
    spec(1, "access", Meaning::Bits(ACCESS)),
    reserved(1),
    spec(3, "qpn", Meaning::Named(&[code(0xff_ffff, "any")])),
    spec(1, "mkey_7_0", Meaning::Hex),
    reserved(4),
    spec(1, "mkey_flags", Meaning::Bits(CONTEXT_FLAGS)),
    spec(3, "pd", Meaning::Hex),
    spec(8, "start_addr", Meaning::Hex),
    spec(8, "len", Meaning::Count("bytes")),
    spec(4, "bsf_octwords", Meaning::Octowords),
    reserved(8),
    reserved(8),
    spec(4, "translations_octwords", Meaning::Octowords),
    reserved(3),
    spec(1, "log_page_size", Meaning::Count("")),
    reserved(4),
];
const _: () = assert!(total(MKEY_CONTEXT) == size_of::<MkeyContext>());

const LIST_ENTRY: &[Spec] = &[
    spec(4, "byte_count", Meaning::Count("bytes")),
    spec(4, "mkey", Meaning::Key),
    spec(8, "address", Meaning::Hex),
];
const _: () = assert!(total(LIST_ENTRY) == size_of::<Klm>());

const STRIDED_HEADER: &[Spec] = &[
    spec(4, "bytes_per_cycle", Meaning::Count("bytes")),
    spec(4, "op", Meaning::Codes(&[code(0x400, "strided block")])),
    spec(4, "repeat_count", Meaning::Count("cycles")),
    reserved(2),
    spec(2, "num_entries", Meaning::Count("")),
];
const _: () = assert!(total(STRIDED_HEADER) == size_of::<StridedHeader>());

const STRIDED_ENTRY: &[Spec] = &[
    spec(2, "stride", Meaning::Count("bytes")),
    spec(2, "byte_count", Meaning::Count("bytes")),
    spec(4, "mkey", Meaning::Key),
    spec(8, "address", Meaning::Hex),
];
const _: () = assert!(total(STRIDED_ENTRY) == size_of::<StridedEntry>());

const PADDING: &[Spec] = &[spec(8, "padding", Meaning::Reserved), spec(8, "padding", Meaning::Reserved)];

const SIGNATURE_SIZE: &[Named] = &[
    part(0xc0, 0x00, "16 bytes"),
    part(0xc0, 0x40, "32 bytes"),
    part(0xc0, 0x80, "alone"),
    part(0xc0, 0xc0, "with crypto"),
    flag(4, "same structure"),
];
const SELECTOR: &[Named] = &[
    code(0, "none"),
    code(1, "512 bytes"),
    code(2, "520 bytes"),
    code(3, "4096 bytes"),
    code(4, "4160 bytes"),
    code(6, "4048 bytes"),
];
const BFS: &[Named] = &[
    code(0x00, "T10-DIF or none"),
    code(0x20, "CRC32, seed ones, once"),
    code(0x21, "CRC32, seed 0, once"),
    code(0x22, "CRC32, seed ones"),
    code(0x23, "CRC32, seed 0"),
    code(0x40, "CRC32C, seed ones, once"),
    code(0x41, "CRC32C, seed 0, once"),
    code(0x42, "CRC32C, seed ones"),
    code(0x43, "CRC32C, seed 0"),
    code(0x50, "CRC64-XP10, seed ones, once"),
    code(0x51, "CRC64-XP10, seed 0, once"),
    code(0x52, "CRC64-XP10, seed ones"),
    code(0x53, "CRC64-XP10, seed 0"),
];
const VALID: &[Named] = &[flag(15, "valid"), flag(14, "refresh")];
const SEED: &[Named] = &[flag(7, "repeat per block"), flag(3, "seed ones")];
const DIF_FLAGS: &[Named] =
    &[flag(6, "reference tag grows"), flag(0, "application escape"), flag(1, "application+reference escape")];

const WIRE_SELECTOR: Spec = spec(1, "w_bs_selector", Meaning::Codes(SELECTOR));
const WIRE_COPY_MASK: Spec = spec(1, "copy_byte_mask", Meaning::Hex);

const fn signature_table(wire: Spec) -> [Spec; 29] {
    [
        spec(1, "bsf_size_sbs", Meaning::Bits(SIGNATURE_SIZE)),
        spec(1, "check_byte_mask", Meaning::Hex),
        wire,
        spec(1, "m_bs_selector", Meaning::Codes(SELECTOR)),
        spec(4, "raw_data_size", Meaning::Hex),
        spec(1, "w_bfs", Meaning::Codes(BFS)),
        spec(3, "w_psv", Meaning::Hex),
        spec(1, "m_bfs", Meaning::Codes(BFS)),
        spec(3, "m_psv", Meaning::Hex),
        spec(4, "t_init_gen_pro_size", Meaning::Reserved),
        spec(4, "rsvd_epi_size", Meaning::Reserved),
        spec(4, "w_tfs_psv", Meaning::Reserved),
        spec(4, "m_tfs_psv", Meaning::Reserved),
        spec(2, "w_vld_refresh", Meaning::Bits(VALID)),
        spec(2, "w_app_tag", Meaning::Hex),
        spec(4, "w_ref_tag", Meaning::Hex),
        spec(1, "w_sig_type", Meaning::Codes(GUARD)),
        spec(1, "w_rp_inv_seed", Meaning::Bits(SEED)),
        reserved(3),
        spec(1, "w_dif_flags", Meaning::Bits(DIF_FLAGS)),
        spec(2, "w_app_bitmask", Meaning::Hex),
        spec(2, "m_vld_refresh", Meaning::Bits(VALID)),
        spec(2, "m_app_tag", Meaning::Hex),
        spec(4, "m_ref_tag", Meaning::Hex),
        spec(1, "m_sig_type", Meaning::Codes(GUARD)),
        spec(1, "m_rp_inv_seed", Meaning::Bits(SEED)),
        reserved(3),
        spec(1, "m_dif_flags", Meaning::Bits(DIF_FLAGS)),
        spec(2, "m_app_bitmask", Meaning::Hex),
    ]
}
const GUARD: &[Named] = &[code(0, "none"), code(1, "CRC"), code(2, "IP checksum")];
const SIGNATURE_BSF: &[Spec] = &signature_table(WIRE_SELECTOR);
const SIGNATURE_BSF_COPY: &[Spec] = &signature_table(WIRE_COPY_MASK);
const _: () = assert!(total(SIGNATURE_BSF) == size_of::<SignatureBsf>() && size_of::<InlineDif>() == 16);

const CRYPTO_SIZE: &[Named] =
    &[part(0x0f, 0x01, "crypto"), part(0xc0, 0x80, "alone"), part(0xc0, 0xc0, "with signature")];
const ENC_ORDER: &[Named] = &[
    code(0, "wire encrypted, its signature inside"),
    code(1, "memory encrypted, its signature inside"),
    code(2, "wire encrypted, its signature outside"),
    code(3, "memory encrypted, its signature outside"),
];
const DATA_UNIT: &[Named] = &[
    code(1, "512 bytes"),
    code(2, "520 bytes"),
    code(3, "4096 bytes"),
    code(4, "4160 bytes"),
    code(6, "4048 bytes"),
];
const CRYPTO_BSF: &[Spec] = &[
    spec(1, "bsf_size_type", Meaning::Bits(CRYPTO_SIZE)),
    spec(1, "enc_order", Meaning::Codes(ENC_ORDER)),
    reserved(1),
    spec(1, "enc_standard", Meaning::Codes(&[code(0, "AES-XTS")])),
    spec(4, "raw_data_size", Meaning::Hex),
    spec(1, "crypto_block_size_ptr", Meaning::Codes(DATA_UNIT)),
    reserved(7),
    spec(16, "xts_initial_tweak", Meaning::Tweak(None)),
    spec(4, "dek", Meaning::Hex),
    reserved(4),
    spec(8, "keytag", Meaning::Hex),
    reserved(8),
    reserved(8),
];
const _: () = assert!(total(CRYPTO_BSF) == size_of::<CryptoBsf>());

const SET_PSV: &[Spec] = &[
    spec(4, "psv_index", Meaning::Hex),
    spec(2, "syndrome", Meaning::Hex),
    reserved(2),
    spec(8, "transient_signature", Meaning::Hex),
];
const _: () = assert!(total(SET_PSV) == size_of::<SetPsvSegment>());

const REMOTE: &[Spec] = &[spec(8, "raddr", Meaning::Hex), spec(4, "rkey", Meaning::Key), reserved(4)];
const _: () = assert!(total(REMOTE) == size_of::<RemoteAddressSegment>());

const ATOMIC: &[Spec] = &[spec(8, "swap_add", Meaning::Hex), spec(8, "compare", Meaning::Hex)];
const _: () = assert!(total(ATOMIC) == size_of::<AtomicSegment>());

const DATA: &[Spec] = &[
    spec(4, "byte_count", Meaning::Count("bytes")),
    spec(4, "lkey", Meaning::Key),
    spec(8, "address", Meaning::Hex),
];
const _: () = assert!(total(DATA) == size_of::<DataSegment>());

const INLINE: &[Spec] =
    &[spec(4, "byte_count", Meaning::InlineLength), spec(REST, "inline data", Meaning::Bytes)];
const UNKNOWN: &[Spec] = &[spec(REST, "not decoded", Meaning::Bytes)];

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
const CQE: &[Spec] = &[
    spec(32, "packet fields", Meaning::Reserved),
    spec(4, "srqn_user_index", Meaning::Hex),
    spec(4, "imm_inval_pkey", Meaning::Hex),
    spec(4, "app", Meaning::Reserved),
    spec(4, "byte_cnt", Meaning::Count("bytes")),
    spec(8, "timestamp", Meaning::Hex),
    spec(1, "s_wqe_opcode", Meaning::Opcode),
    spec(3, "qpn", Meaning::Hex),
    spec(2, "wqe_counter", Meaning::Count("")),
    spec(1, "signature", Meaning::Hex),
    spec(1, "op_own", Meaning::Bits(OP_OWN)),
];
const _: () = assert!(total(CQE) == size_of::<Cqe>());

const ERROR_CQE: &[Spec] = &[
    spec(32, "reserved", Meaning::Reserved),
    spec(4, "srqn_user_index", Meaning::Hex),
    spec(16, "reserved", Meaning::Reserved),
    spec(1, "hw_error_syndrome", Meaning::Hex),
    spec(1, "hw_syndrome_type", Meaning::Hex),
    spec(1, "vendor_err_synd", Meaning::Named(&[code(0x93, "on-demand page fault")])),
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
const SIGNATURE_ERROR_CQE: &[Spec] = &[
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
    spec(14, "reserved", Meaning::Reserved),
    spec(1, "signature", Meaning::Hex),
    spec(1, "op_own", Meaning::Bits(OP_OWN)),
];
const _: () = assert!(total(SIGNATURE_ERROR_CQE) == size_of::<SignatureErrorCqe>());

/// Returns the table of a segment.
pub(super) const fn table(kind: SegmentKind) -> &'static [Spec] {
    match kind {
        SegmentKind::Control => CONTROL,
        SegmentKind::UmrControl => UMR_CONTROL,
        SegmentKind::MkeyContext => MKEY_CONTEXT,
        SegmentKind::ListEntry => LIST_ENTRY,
        SegmentKind::StridedHeader => STRIDED_HEADER,
        SegmentKind::StridedEntry => STRIDED_ENTRY,
        SegmentKind::Padding => PADDING,
        SegmentKind::SignatureBsf => SIGNATURE_BSF,
        SegmentKind::SignatureBsfCopy => SIGNATURE_BSF_COPY,
        SegmentKind::CryptoBsf => CRYPTO_BSF,
        SegmentKind::SetPsv => SET_PSV,
        SegmentKind::RemoteAddress => REMOTE,
        SegmentKind::Atomic => ATOMIC,
        SegmentKind::Data => DATA,
        SegmentKind::Inline => INLINE,
        SegmentKind::Unknown => UNKNOWN,
        SegmentKind::Cqe => CQE,
        SegmentKind::ErrorCqe => ERROR_CQE,
        SegmentKind::SignatureErrorCqe => SIGNATURE_ERROR_CQE,
    }
}
