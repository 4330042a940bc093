//! What is wrong with a request: one table of problems, each with its severity, its source and its text.

use core::fmt;

/// How bad a [`Finding`] is.
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
    /// Worth knowing; nothing is wrong.
    Note,
    /// Not what this library, the reference provider or the drivers of DPDK and SPDK write; the device may do something else
    /// than was meant.
    Suspicious,
    /// The device, or the reference provider in its place, refuses it.
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

/// Something that was found in a work request or a completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Finding {
    /// Where it is, in bytes from the start.
    pub offset: usize,
    /// What it is.
    pub problem: Problem,
}

impl Finding {
    /// Returns how bad it is.
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
        /// What a [`Finding`] says. The text of each is its `Display`.
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
            /// Returns how bad it is.
            pub const fn severity(&self) -> Severity {
                match self { $(Self::$name { .. } => Severity::$severity,)+ }
            }

            /// Returns the requirement, the disagreement or the section of the device notes behind it: see `hil-tests/REQUIREMENTS.md` and
            /// `hil-tests/DEVICE.md` of the repository.
            pub const fn source(&self) -> &'static str {
                match self { $(Self::$name { .. } => $source,)+ }
            }
        }

        impl fmt::Display for Problem {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self { $(Self::$name $({ $($field),+ })? => write!(f, $text),)+ }
            }
        }
    };
}

problems! {
    // Any request.
    Truncated { needed: usize, have: usize } Refused "DEVICE.md 4.3" "the request says {needed} bytes, {have} are there";
    SizeZero Refused "DEVICE.md 4.3" "the size field is 0";
    SizeOverLimit { ds: u8 } Refused "DEVICE.md 4.3" "the size field says {ds} octowords, a request has at most 63";
    SizeMismatch { ds: usize, wanted: usize } Refused "DEVICE.md 4.3"
        "the segments of this request take {wanted} octowords, the size field says {ds}";
    UnknownOpcode { opcode: u8 } Suspicious "DEVICE.md 4.2" "opcode {opcode:#04x} is not one that this library knows";
    UnexpectedOpmod { opmod: u8 } Note "DEVICE.md 4.3" "opcode modifier {opmod:#04x}: this library posts 0";
    WqeSignature { found: u8, computed: u8 } Suspicious "DEVICE.md 4.3"
        "the request's signature byte is {found:#04x}, the bytes give {computed:#04x}";
    UnknownCode { name: &'static str, value: u64 } Refused "DEVICE.md 4.2" "{name}: code {value:#x} is not known";
    UnknownBits { name: &'static str, bits: u64 } Suspicious "DEVICE.md 4.3" "{name}: bits {bits:#x} are not known here";
    ReservedNotZero { name: &'static str } Suspicious "DEVICE.md 4.3" "{name} bytes are not zero";

    // UMR: control and context.
    ByPointer Note "DEVICE.md 7.13" "translation entries and BSFs are taken from memory, and not known here";
    PointerAlignment { address: u64 } Refused "DEVICE.md 7.13"
        "the lists are at {address:#x}, which is no multiple of 2048";
    ReplacedInBlock { first: u64 } Refused "DEVICE.md 8.10"
        "entry {first} is not the first in a block of 4, as which entries are replaced";
    EntryBehindAll { first: u64 } Refused "DEVICE.md 8.10" "entry {first}: an mkey has fewer than 2^32 entries";
    OffsetWithoutFlag { upper: u32 } Refused "DEVICE.md 7.11"
        "upper bits of a translation offset are given ({upper:#x}), which the flags do not say to be one";
    UmrReserved Refused "DEVICE.md 7.11" "reserved parts of the UMR control segment are not zero";
    CheckFree Note "D15" "the check-free flag is set: sources disagree on its sense";
    EntriesNotPadded { octowords: u16 } Refused "R38"
        "{octowords} octowords of translation entries are not whole 64-byte blocks";
    FieldWithoutMask { name: &'static str } Suspicious "R10"
        "{name} is given, but its mask bit is clear: it has no effect";
    MaskMissing { name: &'static str } Note "R10" "the mask lacks {name}, which this library writes each time";
    UnusualMask { name: &'static str } Note "DEVICE.md 4.3" "the mask writes {name}, which this library leaves alone";
    PartialAccessMask Suspicious "R27" "the mask replaces some access rights and leaves others";
    EntriesWithoutLength Suspicious "R10" "translation entries are given, but the mask leaves the length as it was";
    LengthWithoutEntries { length: u64 } Suspicious "R10"
        "the length becomes {length} bytes without translation entries";
    EmptyLayout Note "R33, R38" "an empty layout: the mkey maps nothing";
    BsfEnableKept Note "DEVICE.md 6.5" "BSFs are given, and are in force if they were before";
    BsfNotEnabled Suspicious "R10" "BSFs are given, and put out of force";
    EnabledWithoutBsf Suspicious "D20" "BSFs are put in force, but none is given";
    TagChange { from: u8, to: u8 } Note "R12" "the key's tag is {from:#04x} in imm and becomes {to:#04x}";
    BoundToQueuePair { qpn: u32 } Note "DEVICE.md 4.3" "the key is bound to queue pair {qpn:#x}";
    BoundWithSignature Note "DEVICE.md 7.15"
        "a bound mkey with a signature: ConnectX-6, ConnectX-6 Lx and BlueField-2 may fail to send such data again";
    FreesAndConfigures Suspicious "R12" "the request takes the key out of service and configures it too";
    NonZeroStart { address: u64 } Note "R35" "the mkey's space starts at {address:#x}, not at 0";

    // UMR: layout.
    EntryEmpty { index: usize } Refused "R38" "entry {index} has length 0";
    EntryTooLong { index: usize, length: u32 } Refused "DEVICE.md 4.3"
        "entry {index} has {length} bytes, an entry is limited to 2 GiB";
    ListTooShort { sum: u64, length: u64 } Refused "R38"
        "the entries map {sum} bytes, the length says {length}";
    ListTooLong { sum: u64, length: u64 } Note "DEVICE.md 6.5"
        "the entries map {sum} bytes, of which the mkey has {length}: those after are not used";
    PointerTooShort { octowords: u16, length: u64 } Refused "R38"
        "{octowords} octowords of entries in memory cannot map the length of {length} bytes";
    StridedOpcode { op: u32 } Refused "DEVICE.md 4.3"
        "this looks like the header of an interleaved layout, but its code is {op:#x}, not 0x400";
    StridedCount { entries: u16, octowords: u16 } Refused "R44"
        "a header and {entries} entries do not fill {octowords} octowords";
    StridedCycle { sum: u64, cycle: u32 } Refused "R46"
        "the entries give {sum} bytes in a cycle, the header says {cycle}";
    StridedLength { mapped: u64, length: u64 } Refused "R43"
        "the cycles map {mapped} bytes, the length says {length}";
    StrideTooSmall { index: usize, stride: u16, bytes: u16 } Refused "D13, R47"
        "entry {index} repeats {bytes} bytes every {stride}: the ranges overlap";
    StridedEntryEmpty { index: usize } Suspicious "R46" "entry {index} gives no bytes";
    RepeatZero Suspicious "R43" "the layout repeats 0 times";
    PaddingNotZero Suspicious "R38" "the padding after the last entry is not zero";

    // BSFs.
    LengthOver32Bits { length: u64 } Refused "R51" "{length} bytes are too long for an mkey with BSFs (32 bits)";
    BsfSizeCode { found: u8, wanted: u8, count: usize } Refused "DEVICE.md 4.2"
        "size code {found} in a BSF, {count} BSFs have {wanted}";
    BsfOrder Refused "DEVICE.md 4.2" "BSFs must be one signature BSF, one crypto BSF, or both in this order";
    RawDataSize { size: u32, length: u64 } Note "DEVICE.md gap 9"
        "raw data size {size} is neither the length, {length}, nor all ones";
    UnusedDomain { domain: &'static str } Suspicious "R70"
        "the {domain} domain has no block size, but a PSV, a format or an inline section";
    CheckMaskIrrelevant { bits: u8 } Note "R78" "check mask bits {bits:#04x} are no byte of these signatures";
    CopyMaskIrrelevant { bits: u8 } Note "R88" "copy mask bits {bits:#04x} are no byte of these signatures";
    CopyMaskStructure Refused "R89, R90, D22"
        "a copy mask needs the same signature type in both domains";
    AlikeButNotCopied Note "R84" "both domains have the same structure, but signatures are made anew, not copied";
    NotRepeated { domain: &'static str } Suspicious "R103"
        "the {domain} signature does not start anew in each block";
    InlineMissing { domain: &'static str } Refused "R106"
        "the {domain} domain is T10-DIF, but its inline section is not valid";
    InlineUnwanted { domain: &'static str } Suspicious "R106"
        "the {domain} domain is a CRC, but has an inline T10-DIF section";
    GuardType { code: u8 } Refused "R109" "guard type {code} is not known";
    AppTagMask { mask: u16 } Note "DEVICE.md 4.2" "only bits {mask:#06x} of the application tag are checked";
    BothEscapes Note "D10" "both escape flags are set: the reference provider writes one";
    CapabilityMissing { what: &'static str } Refused "R97, R102" "this device does not know {what}";
    PartialBlock { length: u64, stride: u32 } Suspicious "R186"
        "{length} bytes of memory are not whole blocks of {stride} bytes";
    PartialWireBlock { data: u64, block: u32 } Suspicious "R186"
        "{data} bytes of data are not whole blocks of {block} bytes for the wire";

    // Transactions.
    TransactionEmpty Note "DEVICE.md 6.6" "a BSF for a transaction, but no format: nothing is protected";
    TransactionInBothDomains Suspicious "DEVICE.md 6.6" "a CRC over a transaction in both domains";
    TransactionBits { domain: &'static str } Suspicious "DEVICE.md 6.6"
        "a transaction begins or ends in the {domain} domain, which has no format";
    TransactionCheckMask { mask: u8 } Suspicious "DEVICE.md 6.6"
        "check mask {mask:#04x}: a CRC over a transaction is written with 0xff";
    TransactionSize { size: u64, length: u64 } Suspicious "DEVICE.md 6.6"
        "the transaction has {size} bytes in memory, the mkey {length}";
    TransactionWithBlocks Suspicious "DEVICE.md 6.6" "block signatures beside a CRC over a transaction";
    TransactionOrder Suspicious "DEVICE.md 7.4"
        "a CRC over a transaction is on the wire with order 2 and in memory with order 3: no other form is known";

    // Crypto.
    BothOutsideCipher Refused "D4, R172" "signatures in both domains, but the cipher is not around either";
    RowHole Note "R153" "no row of the man page's table has this order with a signature on this side";
    DekTooLarge { dek: u32 } Refused "R126" "DEK {dek:#x} has more than 24 bits";
    KeytagGiven Note "R160" "a keytag is given: the DEK must have the same";
    UnitNotBlock { unit: u32, wanted: u32 } Note "DEVICE.md 4.2"
        "the data unit is {unit} bytes, a block inside the cipher has {wanted}";
    SingleUnitEngine { length: u64, unit: u32 } Refused "D6, R171"
        "{length} bytes exceed the data unit of {unit} bytes, the limit of this engine";
    JobSize { length: u64, unit: u32 } Suspicious "R166, D8"
        "{length} bytes at once, all of the mkey, cannot be encrypted in units of {unit}";
    TweakCarry { order: &'static str } Note "DEVICE.md 4.6"
        "the upper half of the tweak, read {order}, changes within the mkey";

    // SET_PSV and the data path.
    PsvTooLarge { psv: u32 } Refused "R176" "PSV {psv:#x} has more than 24 bits";
    PsvSyndrome { syndrome: u16 } Note "R176" "the PSV starts with syndrome {syndrome:#06x}";
    SegmentIs2Gib { index: usize } Suspicious "DEVICE.md 4.3" "data segment {index} has length 0, which the device reads as 2 GiB";
    InlineOverrun { length: u32, room: usize } Refused "DEVICE.md 4.3"
        "{length} bytes of inline data, the request has room for {room}";
    InlineNotAllowed Refused "DEVICE.md 4.3" "inline data in a request that brings data in";
    AtomicOperand Suspicious "DEVICE.md 4.3" "an atomic brings 8 bytes into one data segment";
    MemcpyLengths { from: u32, to: u32 } Suspicious "DEVICE.md 8.5"
        "a copy reads {from} bytes and writes {to}";
    DataInNop Note "M17, DEVICE.md 6.1" "a NOP with more than its control segment: a cancelled request, or padding";
    NopFlags { bits: u64 } Note "DEVICE.md 6.1" "bits {bits:#x} of the NOP's flags are not known: left from an older request";

    // Completions.
    UnknownCqeOpcode { opcode: u8 } Refused "DEVICE.md 4.5" "opcode {opcode} is not one of a completion";
    NotWritten Note "DEVICE.md 4.5" "the device has not written this entry";
    CqeFormat { format: u8 } Refused "M60" "format {format}: inline data or a compressed entry";
    UnknownSyndrome { syndrome: u8 } Suspicious "M61" "syndrome {syndrome:#04x} is not known here";
    SignatureSyndrome { syndrome: u16 } Suspicious "DEVICE.md 4.5"
        "syndrome {syndrome:#06x} does not name one part of a signature";
    SignatureType { code: u8 } Suspicious "DEVICE.md 4.5" "signature type {code} is neither block nor transaction";
    SignatureDomain { code: u8 } Refused "DEVICE.md 4.5" "domain {code} is neither wire nor memory";
}

/// Makes the finding of a code that is not known.
pub(super) fn unknown_code(offset: usize, name: &'static str, value: u8) -> Finding {
    Finding { offset, problem: Problem::UnknownCode { name, value: u64::from(value) } }
}
