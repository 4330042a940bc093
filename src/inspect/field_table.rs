//! Tables of the fields of a request's segments, in the order of the bytes. Assertions compare their sizes
//! with the sizes of the wire structs.

use super::cqe_table::{COMPRESSED_CQE, CQE, ERROR_CQE, INLINE_CQE, SIGNATURE_ERROR_CQE};
use super::foreign_table::*;
use super::segment_kind::SegmentKind;
use super::spec::{Meaning, Named, REST, Spec, code, flag, part, reserved, spec, total};
use crate::wire::bsf::{CryptoBsf, InlineDif, SignatureBsf};
use crate::wire::ctrl::ControlSegment;
use crate::wire::data::{AtomicSegment, DataSegment, MmoMetadataSegment, RemoteAddressSegment};
use crate::wire::klm::Klm;
use crate::wire::mkey_context::MkeyContext;
use crate::wire::psv::SetPsvSegment;
use crate::wire::strided::{StridedEntry, StridedHeader};
use crate::wire::umr::UmrControlSegment;

const FENCE_CE: &[Named] = &[
    part(0x0c, 0x04, "no completion when flushed"),
    part(0x0c, 0x08, "completion always"),
    part(0x0c, 0x0c, "completion and event"),
    part(0xe0, 0x20, "small fence"),
    part(0xe0, 0x40, "fence alone"),
    part(0xe0, 0x60, "strong ordering"),
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
    spec(4, "translation_offset_47_16", Meaning::Hex),
    reserved(4),
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
    spec(1, "relaxed_ordering_write", Meaning::Bits(&[flag(2, "writes may pass one another")])),
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
    spec(1, "log_page_size", Meaning::Named(&[part(0x40, 0x40, "reads may pass writes")])),
    reserved(4),
];
const _: () = assert!(total(MKEY_CONTEXT) == size_of::<MkeyContext>());

const LIST_ENTRY: &[Spec] = &[
    spec(4, "byte_count", Meaning::Count("bytes")),
    spec(4, "mkey", Meaning::Key),
    spec(8, "address", Meaning::Hex),
];
const _: () = assert!(total(LIST_ENTRY) == size_of::<Klm>());

const PAGES: &[Spec] = &[spec(8, "page", Meaning::Hex), spec(8, "page", Meaning::Hex)];

const ENTRIES_POINTER: &[Spec] =
    &[spec(4, "byte_count", Meaning::Hex), spec(4, "mkey", Meaning::Key), spec(8, "address", Meaning::Hex)];
const _: () = assert!(total(ENTRIES_POINTER) == size_of::<Klm>());

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
        spec(4, "raw_data_size", Meaning::RawSize),
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

const TRANSACTION_BITS: &[Named] = &[
    flag(29, "begins on the wire"),
    flag(28, "ends on the wire"),
    flag(25, "begins in memory"),
    flag(24, "ends in memory"),
];
const TRANSACTION_FORMAT: &[Named] =
    &[code(0, "none"), code(0x40, "CRC32C, seed ones"), code(0x41, "CRC32C, seed 0")];
const TRANSACTION_BSF: &[Spec] = &[
    spec(1, "bsf_size_sbs", Meaning::Bits(SIGNATURE_SIZE)),
    spec(1, "check_byte_mask", Meaning::Hex),
    WIRE_SELECTOR,
    spec(1, "m_bs_selector", Meaning::Codes(SELECTOR)),
    spec(4, "raw_data_size", Meaning::RawSize),
    spec(1, "w_bfs", Meaning::Codes(BFS)),
    spec(3, "w_psv", Meaning::Hex),
    spec(1, "m_bfs", Meaning::Codes(BFS)),
    spec(3, "m_psv", Meaning::Hex),
    spec(4, "t_init_gen_pro_size", Meaning::Bits(TRANSACTION_BITS)),
    spec(4, "rsvd_epi_size", Meaning::Reserved),
    spec(1, "w_tfs", Meaning::Codes(TRANSACTION_FORMAT)),
    spec(3, "w_tfs_psv", Meaning::Hex),
    spec(1, "m_tfs", Meaning::Codes(TRANSACTION_FORMAT)),
    spec(3, "m_tfs_psv", Meaning::Hex),
    reserved(8),
    reserved(8),
    reserved(8),
    reserved(8),
];
const _: () = assert!(total(TRANSACTION_BSF) == size_of::<SignatureBsf>());

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
    code(5, "1 MiB"),
    code(6, "4048 bytes"),
];
const CRYPTO_BSF: &[Spec] = &[
    spec(1, "bsf_size_type", Meaning::Bits(CRYPTO_SIZE)),
    spec(1, "enc_order", Meaning::Codes(ENC_ORDER)),
    reserved(1),
    spec(1, "enc_standard", Meaning::Codes(&[code(0, "AES-XTS")])),
    spec(4, "raw_data_size", Meaning::RawSize),
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

const MMO_METADATA: &[Spec] = &[
    spec(4, "mmo_control_31_0", Meaning::Hex),
    spec(4, "opaque_lkey", Meaning::Key),
    spec(8, "opaque_address", Meaning::Hex),
];
const _: () = assert!(total(MMO_METADATA) == size_of::<MmoMetadataSegment>());

const DATA: &[Spec] = &[
    spec(4, "byte_count", Meaning::Count("bytes")),
    spec(4, "lkey", Meaning::Key),
    spec(8, "address", Meaning::Hex),
];
const _: () = assert!(total(DATA) == size_of::<DataSegment>());

const INLINE: &[Spec] =
    &[spec(4, "byte_count", Meaning::InlineLength), spec(REST, "inline data", Meaning::Bytes)];
const UNKNOWN: &[Spec] = &[spec(REST, "not decoded", Meaning::Bytes)];

/// Returns the table of the fields of a segment.
pub(super) const fn table(kind: SegmentKind) -> &'static [Spec] {
    match kind {
        SegmentKind::Control => CONTROL,
        SegmentKind::UmrControl => UMR_CONTROL,
        SegmentKind::MkeyContext => MKEY_CONTEXT,
        SegmentKind::ListEntry => LIST_ENTRY,
        SegmentKind::Pages => PAGES,
        SegmentKind::StridedHeader => STRIDED_HEADER,
        SegmentKind::StridedEntry => STRIDED_ENTRY,
        SegmentKind::Padding => PADDING,
        SegmentKind::EntriesPointer => ENTRIES_POINTER,
        SegmentKind::SignatureBsf => SIGNATURE_BSF,
        SegmentKind::SignatureBsfCopy => SIGNATURE_BSF_COPY,
        SegmentKind::TransactionBsf => TRANSACTION_BSF,
        SegmentKind::CryptoBsf => CRYPTO_BSF,
        SegmentKind::SetPsv => SET_PSV,
        SegmentKind::RemoteAddress => REMOTE,
        SegmentKind::Atomic => ATOMIC,
        SegmentKind::MmoMetadata => MMO_METADATA,
        SegmentKind::MaskedSwap32 => MASKED_SWAP_32,
        SegmentKind::MaskedSwap64 => MASKED_SWAP_64,
        SegmentKind::MaskedAdd32 => MASKED_ADD_32,
        SegmentKind::MaskedAdd64 => MASKED_ADD_64,
        SegmentKind::Address => ADDRESS,
        SegmentKind::SharedReceiveQueue => SHARED_RECEIVE_QUEUE,
        SegmentKind::Ethernet => ETHERNET,
        SegmentKind::EthernetHeader | SegmentKind::InlineHalf => DATA_BYTES,
        SegmentKind::Wait => WAIT,
        SegmentKind::WaitForValue => WAIT_FOR_VALUE,
        SegmentKind::TagMatching => TAG_MATCHING,
        SegmentKind::Transpose => TRANSPOSE,
        SegmentKind::Data => DATA,
        SegmentKind::Inline => INLINE,
        SegmentKind::Unknown => UNKNOWN,
        SegmentKind::Cqe => CQE,
        SegmentKind::InlineCqe => INLINE_CQE,
        SegmentKind::CompressedCqe => COMPRESSED_CQE,
        SegmentKind::ErrorCqe => ERROR_CQE,
        SegmentKind::SignatureErrorCqe => SIGNATURE_ERROR_CQE,
    }
}
