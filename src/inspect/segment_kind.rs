//! The kinds of segments, and their names.

/// The kind of a segment of a request or of a completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SegmentKind {
    /// The control segment, with which each request begins.
    Control,
    /// The UMR control segment: the mask of changed fields, and the sizes of the lists.
    UmrControl,
    /// The mkey context: the new values of an mkey's fields.
    MkeyContext,
    /// An entry of a list layout.
    ListEntry,
    /// Two addresses of pages, with access rights in their low bits.
    Pages,
    /// The header of an interleaved layout.
    StridedHeader,
    /// An entry of an interleaved layout.
    StridedEntry,
    /// Zeros that pad the translation entries to a multiple of 64 bytes.
    Padding,
    /// The pointer to translation entries and BSFs in memory.
    EntriesPointer,
    /// A signature BSF whose field `wire` contains a block size.
    SignatureBsf,
    /// A signature BSF whose field `wire` contains a copy mask.
    SignatureBsfCopy,
    /// A signature BSF with a CRC over a transaction.
    TransactionBsf,
    /// A crypto BSF.
    CryptoBsf,
    /// The new value of a PSV.
    SetPsv,
    /// A place in the peer's memory.
    RemoteAddress,
    /// The operands of an atomic without masks.
    Atomic,
    /// The operands of a masked compare and swap of 4 bytes.
    MaskedSwap32,
    /// The operands of a masked compare and swap of 8 bytes.
    MaskedSwap64,
    /// The operands of a masked fetch and add of 4 bytes.
    MaskedAdd32,
    /// The operands of a masked fetch and add of 8 bytes.
    MaskedAdd64,
    /// The destination of a datagram, or of a request of a dynamically connected queue.
    Address,
    /// The shared receive queue of the peer (XRC).
    SharedReceiveQueue,
    /// The Ethernet segment: services of the device for a packet, and the first bytes of the packet header.
    Ethernet,
    /// The rest of the packet header, after the Ethernet segment.
    EthernetHeader,
    /// The completion queue that a request waits for, or the send queue that it enables.
    Wait,
    /// The value in memory, or the time, that a request waits for.
    WaitForValue,
    /// A change of the tag list of a shared receive queue (tag matching).
    TagMatching,
    /// The matrix that a request transposes.
    Transpose,
    /// The parameters of a memory-to-memory operation.
    MmoMetadata,
    /// A range of local memory.
    Data,
    /// Data inside the request.
    Inline,
    /// Bytes whose meaning is unknown.
    Unknown,
    /// A completion entry in the plain format. The entry reports a request that succeeded or a resize of the
    /// queue, has an unknown opcode, or is not written yet.
    Cqe,
    /// The data of a message in the first half of a completion entry of 128 bytes.
    InlineHalf,
    /// A completion entry with 32 bytes of data.
    InlineCqe,
    /// The first of several compressed completion entries.
    CompressedCqe,
    /// A completion entry of a failed request.
    ErrorCqe,
    /// A completion entry of a signature error.
    SignatureErrorCqe,
}

impl SegmentKind {
    /// Returns the name by which the segment is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control segment",
            Self::UmrControl => "UMR control segment",
            Self::MkeyContext => "mkey context",
            Self::ListEntry => "list entry",
            Self::Pages => "pages",
            Self::StridedHeader => "interleaved header",
            Self::StridedEntry => "interleaved entry",
            Self::Padding => "padding",
            Self::EntriesPointer => "pointer to entries",
            Self::SignatureBsf | Self::SignatureBsfCopy => "signature BSF",
            Self::TransactionBsf => "transaction BSF",
            Self::CryptoBsf => "crypto BSF",
            Self::SetPsv => "SET_PSV segment",
            Self::RemoteAddress => "remote address segment",
            Self::Atomic => "atomic segment",
            Self::MaskedSwap32 | Self::MaskedSwap64 => "masked compare and swap segment",
            Self::MaskedAdd32 | Self::MaskedAdd64 => "masked fetch and add segment",
            Self::Address => "address segment",
            Self::SharedReceiveQueue => "XRC segment",
            Self::Ethernet => "Ethernet segment",
            Self::EthernetHeader => "rest of the header",
            Self::Wait | Self::WaitForValue => "wait segment",
            Self::TagMatching => "tag matching segment",
            Self::Transpose => "transpose segment",
            Self::MmoMetadata => "MMO metadata segment",
            Self::Data => "data segment",
            Self::Inline => "inline data segment",
            Self::Unknown => "unknown",
            Self::Cqe => "completion entry",
            Self::InlineHalf => "inline data",
            Self::InlineCqe => "completion entry with data",
            Self::CompressedCqe => "compressed completion entry",
            Self::ErrorCqe => "error completion entry",
            Self::SignatureErrorCqe => "signature error completion entry",
        }
    }

    /// Returns whether segments of this kind are printed with their number, because a request usually has
    /// several.
    pub const fn is_numbered(self) -> bool {
        matches!(self, Self::ListEntry | Self::StridedEntry | Self::Pages | Self::Data)
    }
}
