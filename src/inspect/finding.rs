//! The problems that requests and completion entries can have. One table gives each problem its severity, its
//! source and its text.

use core::fmt;

/// The severity of a [`Finding`].
///
/// ```
/// use mlx5_mkey::inspect::{DeviceContext, Severity, WorkRequest};
/// fn is_refused(request: &WorkRequest<'_>) -> bool {
///     request.worst(&DeviceContext::UNKNOWN) == Some(Severity::Refused)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Severity {
    /// The finding is information only: the request or completion entry has no fault.
    Note,
    /// The request or completion entry differs from all that this library, the reference provider, and the
    /// drivers of DPDK and SPDK post or know. No public source says that a device refuses it. The device may
    /// do something unintended, and a transfer may fail.
    Suspicious,
    /// The device refuses the request, or each transfer through its mkey.
    Refused,
}

impl Severity {
    /// Returns the word by which the severity is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Suspicious => "suspicious",
            Self::Refused => "refused",
        }
    }
}

/// A problem in a work request or a completion entry, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Finding {
    /// Offset of the problem, in bytes from the start of the request or completion entry.
    pub offset: usize,
    /// The kind of problem, with its values.
    pub problem: Problem,
}

impl Finding {
    /// Returns the severity of the problem.
    pub const fn severity(&self) -> Severity {
        self.problem.severity()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, problem } = self;
        write!(f, "{} at {offset:#05x}: {problem} ({})", self.severity().name(), problem.source())
    }
}

impl core::error::Error for Finding {}

macro_rules! problems {
    ($($name:ident $({ $($field:ident: $type:ty),+ })? $severity:ident $source:literal $text:literal;)+) => {
        /// The problem of a [`Finding`]. The `Display` of each variant is its text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        pub enum Problem {
            $(
                #[doc = concat!(stringify!($severity), ": ", $text, ".")]
                $name $({ $(
                    #[doc = concat!("The `", stringify!($field), "` of the text.")]
                    $field: $type,
                )+ })?,
            )+
        }

        impl Problem {
            /// Returns the severity of the problem.
            pub const fn severity(&self) -> Severity {
                match self { $(Self::$name { .. } => Severity::$severity,)+ }
            }

            /// Returns the public source from which the problem is known: a structure, constant or function
            /// of rdma-core (`providers/mlx5`), SPDK, DPDK or the kernel, or a man page of rdma-core.
            pub const fn source(&self) -> &'static str {
                match self { $(Self::$name { .. } => $source,)+ }
            }
        }

        impl Problem {
            /// The names of all problems. A test of a device can compare the names with the problems that it
            /// has caused.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            /// Returns the name of the problem, as in [`Problem::NAMES`].
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$name { .. } => stringify!($name),)+ }
            }
        }

        /// The sources of all problems.
        #[cfg(test)]
        pub(super) const SOURCES: &[&str] = &[$($source),+];

        impl fmt::Display for Problem {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self { $(Self::$name $({ $($field),+ })? => write!(f, $text),)+ }
            }
        }
    };
}

problems! {
    // Problems that every kind of request can have.
    Truncated { needed: usize, have: usize } Refused "mlx5_wqe_ctrl_seg.qpn_ds"
        "the request says {needed} bytes, {have} are there";
    CutOff { needed: usize, have: usize } Note "mlx5_wqe_ctrl_seg.qpn_ds"
        "the bytes end within the request: it has {needed}, {have} are there";
    NeverWritten Note "libmlx5 mlx5_alloc_qp_buf, which zeroes the ring"
        "no request was ever written to this block";
    SizeZero Refused "mlx5_wqe_ctrl_seg.qpn_ds" "the size field is 0";
    SizeOverLimit { ds: u8 } Refused "mlx5_wqe_ctrl_seg.qpn_ds"
        "the size field says {ds} octowords, a request has at most 63";
    SizeMismatch { ds: usize, wanted: usize } Refused "mlx5_wqe_ctrl_seg.qpn_ds"
        "the segments of this request take {wanted} octowords, the size field says {ds}";
    UnknownOpcode { opcode: u8 } Refused "mlx5dv.h MLX5_OPCODE_NOP and others"
        "opcode {opcode:#04x} is none that a public source has";
    UnexpectedOpmod { opmod: u8 } Suspicious "mlx5_wqe_ctrl_seg.opmod_idx_opcode"
        "opcode modifier {opmod:#04x}: no driver posts another than 0 with this opcode";
    AnotherObject { opmod: u8 } Note "kernel MLX5_OPC_MOD_TLS_TIS_STATIC_PARAMS and others"
        "opcode modifier {opmod:#04x}: the request changes a TIS or TIR, and no mkey or PSV";
    WqeSignature { found: u8, computed: u8 } Suspicious "libmlx5 wq_sig"
        "the request's signature byte is {found:#04x}, the bytes give {computed:#04x}";
    UnknownCode { name: &'static str, value: u64 } Refused "libmlx5 wqe.h mlx5_bsf, mlx5_crypto_bsf"
        "{name}: code {value:#x} is not known";
    UnknownBits { name: &'static str, bits: u64 } Suspicious "structures of mlx5dv.h and libmlx5 wqe.h"
        "{name}: bits {bits:#x} are not known here";
    ReservedNotZero { name: &'static str } Suspicious "structures of mlx5dv.h and libmlx5 wqe.h"
        "{name} bytes are not zero";

    IndexOutOfOrder { found: u16, wanted: u16 } Suspicious "mlx5_wqe_ctrl_seg.opmod_idx_opcode"
        "wqe_index is {found}, behind the request before it is {wanted}";
    OtherLap Note "mlx5_wqe_ctrl_seg.opmod_idx_opcode"
        "from here on requests are of another lap of the ring";
    OtherQueuePair { qpn: u32, before: u32 } Suspicious "mlx5_wqe_ctrl_seg.qpn_ds"
        "the request is of queue pair {qpn:#x}, the one before it of {before:#x}";
    QueueKindMissing Note "mlx5dv.h mlx5_wqe_datagram_seg, mlx5_wqe_eth_seg"
        "no request of a connected queue pair: its parts depend on the kind of queue, which is not known \
         here";

    // Problems of UMRs: control segments and mkey context.
    ByPointer Note "kernel mlx5_wqe_umr_ctrl_seg.flags, MLX5_UMR_INLINE"
        "translation entries and BSFs are taken from memory, and not known here; the key of the first entry \
         tells an interleaved layout (0x400) from a list";
    PointerAlignment { address: u64 } Refused "DPDK MLX5_UMR_KLM_PTR_ALIGN"
        "the lists are at {address:#x}, which is no multiple of 2048";
    ReplacedInBlock { first: u64 } Refused "kernel MLX5_UMR_FLEX_ALIGNMENT"
        "entry {first} is not the first in a block of 4, as which entries are replaced";
    EntryBehindAll { first: u64 } Refused "kernel mlx5_wqe_umr_ctrl_seg.xlt_offset_47_16"
        "entry {first}: an mkey has fewer than 2^32 entries";
    OffsetWithoutFlag { upper: u32 } Refused "kernel mlx5_wqe_umr_ctrl_seg.xlt_offset_47_16"
        "upper bits of a translation offset are given ({upper:#x}), which the flags do not say to be one";
    UmrReserved Refused "mlx5_wqe_umr_ctrl_seg.rsvd0, rsvd1"
        "reserved parts of the UMR control segment are not zero";
    CheckFree Note "mlx5dv.h MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE, kernel MLX5_UMR_CHECK_NOT_FREE"
        "the check-free flag is set: the device refuses the request unless the mkey is free";
    EntriesNotPadded { octowords: u16 } Suspicious "libmlx5 umr_sg_list_create"
        "{octowords} octowords of translation entries are not whole 64-byte blocks";
    FieldWithoutMask { name: &'static str } Suspicious "mlx5_wqe_umr_ctrl_seg.mkey_mask"
        "{name} is given, but its mask bit is clear: it has no effect";
    MaskMissing { name: &'static str } Note "libmlx5 mlx5_send_wr_mkey_configure"
        "the mask lacks {name}, which this library writes each time";
    UnusualMask { name: &'static str } Note "libmlx5 mlx5_send_wr_mkey_configure"
        "the mask writes {name}, which this library leaves alone";
    PartialAccessMask Suspicious "libmlx5 mlx5_send_wr_set_mkey_access_flags"
        "the mask replaces some access rights and leaves others";
    EntriesWithoutLength Suspicious "libmlx5 mlx5_send_wr_set_mkey_layout"
        "translation entries are given, but the mask leaves the length as it was";
    LengthWithoutEntries { length: u64 } Suspicious "libmlx5 mlx5_send_wr_set_mkey_layout"
        "the length becomes {length} bytes without translation entries";
    EmptyLayout Note "man mlx5dv_wr_mkey_configure, mlx5dv_wr_set_mkey_layout_list"
        "an empty layout: the mkey maps nothing";
    BsfEnableKept Note "SPDK mlx5_set_umr_mkey_seg" "BSFs are given, and are in force if they were before";
    BsfNotEnabled Suspicious "libmlx5 umr_enable_bsf" "BSFs are given, and put out of force";
    EnabledWithoutBsf Suspicious "libmlx5 umr_wqe_finalize" "BSFs are put in force, but none is given";
    TagChange { from: u8, to: u8 } Note "mlx5_wqe_mkey_context_seg.qpn_mkey"
        "the key's tag is {from:#04x} in imm and becomes {to:#04x}";
    BoundToQueuePair { qpn: u32 } Note "mlx5_wqe_mkey_context_seg.qpn_mkey"
        "the key is bound to queue pair {qpn:#x}";
    BoundWithSignature Note "NVIDIA firmware issue 2878841"
        "a bound mkey with a signature: ConnectX-6, ConnectX-6 Lx and BlueField-2 may fail to send such \
         data again";
    FreesAndConfigures Suspicious "mlx5_wqe_mkey_context_seg.free"
        "the request takes the key out of service and configures it too";
    NonZeroStart { address: u64 } Note "man mlx5dv_wr_mkey_configure, layouts are zero-based"
        "the mkey's space starts at {address:#x}, not at 0";

    // Problems of UMRs: layout.
    EntryEmpty { index: usize } Suspicious "man mlx5dv_wr_mkey_configure, mlx5dv_wr_set_mkey_layout_list"
        "entry {index} has length 0";
    EntryTooLong { index: usize, length: u32 } Suspicious "mlx5_wqe_umr_klm_seg.byte_count"
        "entry {index} has {length} bytes, an entry is limited to 2 GiB";
    ListTooShort { sum: u64, length: u64 } Suspicious "libmlx5 umr_sg_list_create"
        "the entries map {sum} bytes, the length says {length}";
    ListTooLong { sum: u64, length: u64 } Note "SPDK spdk_mlx5_umr_configure"
        "the entries map {sum} bytes, of which the mkey has {length}: those after are not used";
    PointerTooShort { octowords: u16, length: u64 } Suspicious "mlx5_wqe_umr_ctrl_seg.klm_octowords"
        "{octowords} octowords of entries in memory cannot map the length of {length} bytes";
    StridedOpcode { op: u32 } Suspicious "mlx5_wqe_umr_repeat_block_seg.op"
        "this looks like the header of an interleaved layout, but its code is {op:#x}, not 0x400";
    StridedCount { entries: u16, octowords: u16 } Refused "mlx5_wqe_umr_repeat_block_seg.num_ent"
        "a header and {entries} entries do not fit {octowords} octowords";
    StridedSpare { entries: u16, octowords: u16 } Suspicious "mlx5_wqe_umr_repeat_block_seg.num_ent"
        "a header and {entries} entries leave some of {octowords} octowords unused";
    StridedCycle { sum: u64, cycle: u32 } Suspicious "mlx5_wqe_umr_repeat_block_seg.byte_count"
        "the entries give {sum} bytes in a cycle, the header says {cycle}";
    StridedLength { mapped: u64, length: u64 } Suspicious "mlx5_wqe_umr_repeat_block_seg.repeat_count"
        "the cycles map {mapped} bytes, the length says {length}";
    StrideTooSmall { index: usize, stride: u16, bytes: u16 } Suspicious "mlx5_wqe_umr_repeat_ent_seg.stride"
        "entry {index} repeats {bytes} bytes every {stride}: the ranges overlap";
    StridedEntryEmpty { index: usize } Suspicious "mlx5_wqe_umr_repeat_ent_seg.byte_count"
        "entry {index} gives no bytes";
    RepeatZero Suspicious "mlx5_wqe_umr_repeat_block_seg.repeat_count" "the layout repeats 0 times";
    PaddingNotZero Suspicious "libmlx5 umr_sg_list_create" "the padding after the last entry is not zero";

    // Problems of BSFs.
    LengthOver32Bits { length: u64 } Refused "libmlx5 umr_wqe_finalize"
        "{length} bytes are too long for an mkey with BSFs (32 bits)";
    BsfSizeCode { found: u8, wanted: u8, count: usize } Refused "libmlx5 wqe.h MLX5_BSF_SIZE_BASIC and others"
        "size code {found} in a BSF, {count} BSFs have {wanted}";
    BsfOrder Refused "libmlx5 umr_wqe_finalize"
        "BSFs must be one signature BSF, one crypto BSF, or both in this order";
    RawDataSize { size: u32, length: u64 } Note "mlx5_bsf_basic.raw_data_size"
        "raw data size {size} is neither the length, {length}, nor all ones";
    UnusedDomain { domain: &'static str } Suspicious "man mlx5dv_wr_set_mkey_sig_block, mem, wire"
        "the {domain} domain has no block size, but a PSV, a format or an inline section";
    CheckMaskIrrelevant { bits: u8 } Note "man mlx5dv_wr_set_mkey_sig_block, check_mask"
        "check mask bits {bits:#04x} are no byte of these signatures";
    CopyMaskIrrelevant { bits: u8 } Note "man mlx5dv_wr_set_mkey_sig_block, copy_mask"
        "copy mask bits {bits:#04x} are no byte of these signatures";
    CopyMaskStructure Refused "man mlx5dv_wr_set_mkey_sig_block, copy_mask"
        "a copy mask needs the same signature type in both domains";
    AlikeButNotCopied Note "libmlx5 mlx5_umr_fill_sig_bsf"
        "both domains have the same structure, but signatures are made anew, not copied";
    NotRepeated { domain: &'static str } Suspicious "libmlx5 mlx5_umr_crc_bfs"
        "the {domain} signature does not start anew in each block";
    InlineMissing { domain: &'static str } Refused "libmlx5 mlx5_umr_fill_inl_bsf_t10dif"
        "the {domain} domain is T10-DIF, but its inline section is not valid";
    InlineUnwanted { domain: &'static str } Suspicious "libmlx5 mlx5_umr_fill_sig_bsf"
        "the {domain} domain is a CRC, but has an inline T10-DIF section";
    GuardType { code: u8 } Refused "man mlx5dv_wr_set_mkey_sig_block, bg_type"
        "guard type {code} is not known";
    AppTagMask { mask: u16 } Note "mlx5_bsf_inl.dif_app_bitmask_check"
        "only bits {mask:#06x} of the application tag are checked";
    BothEscapes Note "libmlx5 mlx5_umr_fill_inl_bsf_t10dif"
        "both escape flags are set: the reference provider writes one";
    CapabilityMissing { what: &'static str } Refused "man mlx5dv_query_device, mlx5dv_sig_caps"
        "this device does not know {what}";
    PartialBlock { length: u64, stride: u32 } Suspicious "man mlx5dv_wr_set_mkey_sig_block, block_size"
        "{length} bytes of memory are not whole blocks of {stride} bytes";
    PartialWireBlock { data: u64, block: u32 } Suspicious "man mlx5dv_wr_set_mkey_sig_block, block_size"
        "{data} bytes of data are not whole blocks of {block} bytes for the wire";

    // Problems of CRCs over transactions.
    TransactionEmpty Note "SPDK mlx5_set_umr_sig_bsf_seg"
        "a BSF for a transaction, but no format: nothing is protected";
    TransactionInBothDomains Suspicious "SPDK mlx5_set_umr_sig_bsf_seg"
        "a CRC over a transaction in both domains";
    TransactionBits { domain: &'static str } Suspicious "SPDK mlx5_set_umr_sig_bsf_seg"
        "a transaction begins or ends in the {domain} domain, which has no format";
    TransactionCheckMask { mask: u8 } Suspicious "SPDK mlx5_set_umr_sig_bsf_seg"
        "check mask {mask:#04x}: a CRC over a transaction is written with 0xff";
    TransactionSize { size: u64, length: u64 } Suspicious "SPDK mlx5_set_umr_sig_bsf_seg"
        "the transaction has {size} bytes in memory, the mkey {length}";
    TransactionWithBlocks Suspicious "SPDK mlx5_set_umr_sig_bsf_seg"
        "block signatures beside a CRC over a transaction";
    TransactionOrder Suspicious "SPDK of NVIDIA, mlx5_umr.c"
        "a CRC over a transaction is on the wire with order 2 and in memory with order 3: no other form is \
         known";

    // Problems of crypto BSFs.
    BothOutsideCipher Refused "libmlx5 get_crypto_order"
        "signatures in both domains, but the cipher is not around either";
    RowHole Note "man mlx5dv_wr_set_mkey_crypto, table of signature_crypto_order"
        "no row of the man page's table has this order with a signature on this side";
    DekTooLarge { dek: u32 } Refused "libmlx5 mlx5_umr_fill_crypto_bsf" "DEK {dek:#x} has more than 24 bits";
    KeytagGiven Note "man mlx5dv_wr_set_mkey_crypto, keytag" "a keytag is given: the DEK must have the same";
    UnitNotBlock { unit: u32, wanted: u32 } Note "man mlx5dv_wr_set_mkey_crypto, data_unit_size"
        "the data unit is {unit} bytes, a block inside the cipher has {wanted}";
    SingleUnitEngine { length: u64, unit: u32 } Refused "libmlx5 crypto_umr_wqe_finalize"
        "{length} bytes exceed the data unit of {unit} bytes, the limit of this engine";
    JobSize { length: u64, unit: u32 } Suspicious "man mlx5dv_wr_set_mkey_crypto, job size"
        "{length} bytes at once, all of the mkey, cannot be encrypted in units of {unit}";
    TweakCarry { order: &'static str } Note "man mlx5dv_wr_set_mkey_crypto, initial_tweak"
        "the upper half of the tweak, read {order}, changes within the mkey";

    // Problems of SET_PSVs and of data-path requests.
    PsvTooLarge { psv: u32 } Refused "libmlx5 mlx5_umr_set_psv" "PSV {psv:#x} has more than 24 bits";
    PsvSyndrome { syndrome: u16 } Note "mlx5_wqe_set_psv_seg.syndrome"
        "the PSV starts with syndrome {syndrome:#06x}";
    SegmentIs2Gib { index: usize } Suspicious "mlx5_wqe_data_seg.byte_count"
        "data segment {index} has length 0, which the device reads as 2 GiB";
    InlineOverrun { length: u32, room: usize } Refused "mlx5_wqe_inl_data_seg.byte_count"
        "{length} bytes of inline data, the request has room for {room}";
    InlineNotAllowed Refused "libmlx5 _mlx5_send_wr_set_inline_data"
        "inline data in a request that brings data in";
    AtomicOperand { bytes: u64 } Suspicious "mlx5_wqe_atomic_seg, UCX UCT_IB_MLX5_OPMOD_EXT_ATOMIC"
        "this atomic brings {bytes} bytes into one data segment";
    MemcpyLengths { from: u32, to: u32 } Suspicious "libmlx5 mlx5_wr_memcpy"
        "a copy reads {from} bytes and writes {to}";
    DataInNop Note "libmlx5 mlx5dv_qp_cancel_posted_send_wrs"
        "a NOP with more than its control segment: a cancelled request, or padding";
    NopFlags { bits: u64 } Note "DPDK mlx5_crypto_xts.c, its padding"
        "bits {bits:#x} of the NOP's flags are not known: left from an older request";

    // Problems of completion entries.
    UnknownCqeOpcode { opcode: u8 } Refused "mlx5dv.h MLX5_CQE_REQ and others"
        "opcode {opcode} is not one of a completion";
    NotWritten Note "mlx5dv.h MLX5_CQE_INVALID" "the device has not written this entry";
    CqeInlineData { bytes: u32, room: u32 } Note "mlx5dv.h MLX5_INLINE_SCATTER_32, MLX5_INLINE_SCATTER_64"
        "the entry has room for {room} bytes of data, the message has {bytes}";
    CqeInlineHalf Note "mlx5dv.h MLX5_INLINE_SCATTER_64"
        "the data of the message is in the half before, which entries of 128 bytes have";
    CqeCompressed { count: u32 } Note "mlx5dv.h MLX5_CQE_FORMAT, DPDK mlx5_rxtx_vec.c"
        "the entry stands for {count} completions; those behind it are not expanded here";
    UnknownSyndrome { syndrome: u8 } Suspicious "mlx5dv.h MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR and others"
        "syndrome {syndrome:#04x} is not known here";
    SignatureSyndrome { syndrome: u16 } Suspicious "libmlx5 mlx5_sigerr_cqe.syndrome"
        "syndrome {syndrome:#06x} does not name one part of a signature";
    SignatureType { code: u8 } Suspicious "libmlx5 mlx5_sigerr_cqe.sig_type"
        "signature type {code} is neither block nor transaction";
    SignatureDomain { code: u8 } Refused "libmlx5 mlx5_sigerr_cqe.domain"
        "domain {code} is neither wire nor memory";
}

/// Returns the finding for an unknown code of the field `name`.
pub(super) fn unknown_code(offset: usize, name: &'static str, value: u8) -> Finding {
    Finding { offset, problem: Problem::UnknownCode { name, value: u64::from(value) } }
}
