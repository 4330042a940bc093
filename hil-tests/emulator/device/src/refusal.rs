//! The reasons why the device refuses a request, their parameters, and the syndromes of their completions.

use core::fmt;
use mlx5_mkey::wire::cqe::Syndrome;

/// The kind of reason why a request was refused.
///
/// Its number is the vendor syndrome of the error completion, unless a public source shows the value of a
/// real device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// No mkey has the index of the key.
    UnknownKey = 0x01,
    /// The tag of the key is not the current tag of its mkey.
    KeyTag = 0x02,
    /// The key is free: never configured, or invalidated.
    KeyFree = 0x03,
    /// The key belongs to another protection domain.
    ProtectionDomain = 0x04,
    /// The key is bound to another queue pair.
    QueuePair = 0x05,
    /// The key does not give the right that the access needs.
    Right = 0x06,
    /// The range is outside of the key's space, or the key's layout has too few bytes for it.
    Bounds = 0x07,
    /// The key is reached through too many levels of other keys.
    Depth = 0x08,
    /// A data segment falls into too many ranges of memory ([`crate::DeviceProfile::max_ranges`]).
    Ranges = 0x09,
    /// The key leads to an address outside of the memory.
    MemoryFault = 0x0a,
    /// An entry of an mkey names a key that has BSFs of its own.
    NestedTransform = 0x0b,
    /// The queue pair forbids this access of its peer (PRM `rre`, `rwe`, `rae`).
    QueuePairRight = 0x0c,
    /// The message is longer than its buffer or than the device allows.
    Length = 0x10,
    /// The start of the transfer is inside a block or data unit.
    Alignment = 0x11,
    /// The end of the transfer is inside a protected block ([`crate::PartialBlocks::Refuse`]), or the
    /// transfer is a part of a transaction.
    PartialBlock = 0x12,
    /// AES-XTS cannot take this length by the rule for job sizes.
    JobSize = 0x13,
    /// The transfer has more than one data unit, and the engine takes only one.
    SingleBlock = 0x14,
    /// The device cannot allocate memory for the message.
    NoRoom = 0x15,
    /// The BSF is missing, malformed or asks for something unknown.
    Bsf = 0x20,
    /// No UMR has written the crypto attributes of a crypto mkey.
    CryptoUnconfigured = 0x21,
    /// The DEK does not exist, or is in another protection domain.
    Dek = 0x22,
    /// The keytag in the BSF is not the keytag of the DEK.
    Keytag = 0x23,
    /// A signature PSV is missing or in another protection domain.
    Psv = 0x24,
    /// The request is malformed.
    Malformed = 0x30,
    /// The address of an atomic is no multiple of its length.
    Atomic = 0x31,
    /// A check of the UMR's flags failed (whether the mkey is free, or its bound queue pair), or the peer may
    /// not invalidate the key.
    UmrCheck = 0x40,
    /// This device does not support the change that the UMR asks for.
    UmrUnsupported = 0x41,
    /// The mkey has too little room for the UMR (DEVICE.md, "A UMR over the room of its mkey").
    UmrRoom = 0x42,
    /// A doorbell has announced more blocks than the ring has.
    RingOverrun = 0x50,
    /// The request was never executed.
    Flushed = 0xf9,
    /// The peer did not answer, refused the request, or gave a wrong answer.
    Peer = 0xfe,
}

/// The fields of an error completion: syndrome, vendor syndrome and hardware syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) syndrome: Syndrome,
    pub(crate) vendor: u8,
    pub(crate) hardware: u8,
}

impl Status {
    /// Returns the status with a syndrome. Some syndromes decide the vendor syndrome (DEVICE.md, "Vendor
    /// syndromes"). For all others, the vendor syndrome is `otherwise`.
    const fn of(syndrome: Syndrome, otherwise: u8) -> Self {
        let vendor = match syndrome {
            Syndrome::REMOTE_ACCESS => 0x88,
            Syndrome::RNR_RETRY => 0x87,
            Syndrome::REMOTE_OPERATION => 0x89,
            Syndrome::REMOTE_INVALID_REQUEST => 0x8a,
            Syndrome::TRANSPORT_RETRY => 0x81,
            Syndrome::FLUSHED => 0xf9,
            _ => otherwise,
        };
        Self { syndrome, vendor, hardware: 0 }
    }

    /// Returns the requester's status for a fault of its peer.
    pub(crate) const fn of_peer(syndrome: Syndrome) -> Self {
        Self::of(syndrome, 0)
    }
}

impl Refusal {
    /// Returns the status that the requester or the responder reports if its own key or request is at fault:
    /// the responder with `receives`, otherwise the requester.
    ///
    /// Assumption: a local protection error reports these vendor syndromes for these reasons (DEVICE.md,
    /// "Vendor syndromes").
    const fn local(self, receives: bool) -> Status {
        let syndrome = self.local_syndrome();
        let vendor = match self {
            Self::UnknownKey | Self::KeyTag | Self::KeyFree if receives => 0x32,
            Self::UnknownKey | Self::KeyTag | Self::KeyFree => 0x51,
            Self::ProtectionDomain | Self::QueuePair | Self::Right | Self::Bounds if receives => 0x56,
            Self::ProtectionDomain | Self::QueuePair | Self::Right => 0x52,
            Self::Bounds => 0x53,
            Self::UmrRoom => 0x78,
            other => other as u8,
        };
        let hardware = if matches!(self, Self::UmrRoom) { 0x0f } else { 0 };
        Status { hardware, ..Status::of(syndrome, vendor) }
    }

    const fn local_syndrome(self) -> Syndrome {
        match self {
            Self::Length | Self::Alignment | Self::PartialBlock | Self::JobSize | Self::SingleBlock => {
                Syndrome::LOCAL_LENGTH
            }
            Self::Malformed | Self::UmrUnsupported | Self::RingOverrun | Self::NoRoom | Self::Atomic => {
                Syndrome::LOCAL_QP_OPERATION
            }
            Self::UmrCheck | Self::UmrRoom => Syndrome::MW_BIND,
            Self::Flushed => Syndrome::FLUSHED,
            // Assumption: a missing DEK, a wrong keytag and unconfigured crypto are reported as protection
            // errors (measured by `gap07_how_keys_are_refused`).
            _ => Syndrome::LOCAL_PROTECTION,
        }
    }

    /// Returns the requester's syndrome for a fault of the responder's remote key.
    pub(crate) const fn remote(self) -> Syndrome {
        match self {
            Self::Length
            | Self::Alignment
            | Self::PartialBlock
            | Self::JobSize
            | Self::SingleBlock
            | Self::Malformed
            | Self::QueuePairRight
            | Self::Atomic => Syndrome::REMOTE_INVALID_REQUEST,
            // Assumption: other errors on the responder's side, such as a wrong BSF, are reported as
            // operation errors.
            Self::NoRoom
            | Self::Bsf
            | Self::CryptoUnconfigured
            | Self::Dek
            | Self::Keytag
            | Self::Psv
            | Self::MemoryFault => Syndrome::REMOTE_OPERATION,
            _ => Syndrome::REMOTE_ACCESS,
        }
    }
}

/// The cause of a request's error: the reason, and the key that the request named, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The key of the data segment, or the remote key.
    pub key: Option<u32>,
    /// The reason of the error.
    pub reason: Reason,
}

impl Cause {
    /// Returns the kind of reason.
    pub const fn refusal(&self) -> Refusal {
        self.reason.refusal()
    }

    /// Returns the status of the requester, for a fault of its own key or request.
    pub(crate) const fn local(&self) -> Status {
        self.status(false)
    }

    /// Returns the status of the responder, for a fault of its own receive request.
    pub(crate) const fn receive(&self) -> Status {
        self.status(true)
    }

    const fn status(&self, receives: bool) -> Status {
        match self.reason {
            Reason::OnPurpose { syndrome } => Status::of_peer(Syndrome(syndrome)),
            reason => reason.refusal().local(receives),
        }
    }
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        Self { key: None, reason }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, reason } = self;
        write!(f, "{reason}")?;
        match key {
            Some(key) => write!(f, " (the request names key {key:#010x})"),
            None => Ok(()),
        }
    }
}

macro_rules! reasons {
    ($($name:ident $({ $($field:ident: $type:ty),+ })? $refusal:ident $text:literal;)+) => {
        /// The reason of an error, with its parameters. `Display` shows the text of each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
            $(
                #[doc = concat!($text, ".")]
                $name $({ $(
                    #[doc = concat!("The `", stringify!($field), "` of the text.")]
                    $field: $type,
                )+ })?,
            )+
        }

        impl Reason {
            /// The names of all reasons.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            /// Returns the name of the reason.
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$name { .. } => stringify!($name),)+ }
            }

            /// Returns the kind of reason.
            pub const fn refusal(&self) -> Refusal {
                match self { $(Self::$name { .. } => Refusal::$refusal,)+ }
            }

            /// Returns the parameters of the reason, in the order of their declaration. Missing parameters
            /// are 0.
            #[allow(unused_mut)]
            pub fn values(&self) -> [u64; 3] {
                let mut values = [0; 3];
                match *self { $(Self::$name $({ $($field),+ })? => {
                    $(for (place, value) in values.iter_mut().zip([$(u64::from($field)),+]) {
                        *place = value;
                    })?
                })+ }
                values
            }

            /// Returns the reason with this name and these parameters. `None` if no reason has the name, or a
            /// parameter is too large.
            #[allow(unused_mut, unused_variables)]
            pub fn from_values(name: &str, values: [u64; 3]) -> Option<Self> {
                let mut values = values.into_iter();
                $(if name == stringify!($name) {
                    return Some(Self::$name $({ $($field: <$type>::try_from(values.next()?).ok()?),+ })?);
                })+
                None
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self { $(Self::$name $({ $($field),+ })? => write!(f, $text),)+ }
            }
        }
    };
}

reasons! {
    // Reasons about keys and their ranges.
    UnknownKey { key: u32 } UnknownKey "no mkey has the index of key {key:#010x}";
    KeyTag { key: u32, tag: u8 } KeyTag "the mkey of key {key:#010x} has another tag, {tag:#04x}";
    KeyFree { key: u32 } KeyFree "the mkey of key {key:#010x} is free: never configured, or invalidated";
    KeyDomain { key: u32, domain: u32, asked: u32 } ProtectionDomain
        "the mkey of key {key:#010x} is in protection domain {domain:#x}, the queue in {asked:#x}";
    KeyBound { key: u32, qpn: u32 } QueuePair "the mkey of key {key:#010x} is bound to queue pair {qpn:#x}";
    NoLocalRead { key: u32 } Right "key {key:#010x} does not allow local reads";
    NoLocalWrite { key: u32 } Right "key {key:#010x} does not allow local writes";
    NoRemoteRead { key: u32 } Right "key {key:#010x} does not allow remote reads";
    NoRemoteWrite { key: u32 } Right "key {key:#010x} does not allow remote writes";
    NoAtomic { key: u32 } Right "key {key:#010x} does not allow remote atomics";
    PageRight { key: u32, page: u64 } Right "the entry of page {page} of key {key:#010x} lacks the right";
    QueueForbidsRead { qpn: u32 } QueuePairRight "queue pair {qpn:#x} forbids its peer to read (rre)";
    QueueForbidsWrite { qpn: u32 } QueuePairRight "queue pair {qpn:#x} forbids its peer to write (rwe)";
    QueueForbidsAtomics { qpn: u32 } QueuePairRight "queue pair {qpn:#x} forbids its peer atomics (rae)";
    QueueForbidsMasked { qpn: u32 } QueuePairRight
        "queue pair {qpn:#x} forbids its peer masked atomics (atomic_mode)";
    BeforeStart { key: u32, address: u64, start: u64 } Bounds
        "address {address:#x} is before the first of key {key:#010x}, {start:#x}";
    BehindEnd { key: u32, end: u64, length: u64 } Bounds
        "the range ends at {end:#x}, the mkey of key {key:#010x} has {length:#x} bytes";
    BehindEntries { key: u32, end: u64, mapped: u64 } Bounds
        "the range ends at {end:#x}, the entries of key {key:#010x} map {mapped:#x} bytes";
    AddressOverflow { key: u32 } Bounds "an address of key {key:#010x} does not fit 64 bits";
    RangeOverflow { offset: u64, length: u64 } Bounds
        "{length} bytes from offset {offset:#x} on end beyond 2^64";
    StridedEntriesMissing { key: u32 } Bsf "the header of key {key:#010x} counts entries that are missing";
    TooDeep { key: u32 } Depth "key {key:#010x} stands under too many other keys";
    TooManyRanges { limit: u32 } Ranges
        "the data falls into more than {limit} ranges of memory; 16 entries without data count as a range";
    NoMemory { address: u64, length: u64 } MemoryFault "there is no memory of {length} bytes at {address:#x}";
    NestedBsf { key: u32 } NestedTransform "key {key:#010x} has BSFs, and stands under another key";

    // Reasons about lengths and offsets.
    MessageTooLong { length: u64, limit: u64 } Length "{length} bytes are longer than the limit, {limit}";
    BufferTooShort { length: u64, room: u64 } Length "{length} bytes do not fit the buffers, of {room} bytes";
    OffsetInBlock { offset: u64, block: u64 } Alignment
        "offset {offset} is not where a block or data unit of {block} bytes begins";
    EndInBlock { end: u64, block: u64 } PartialBlock
        "offset {end}, the end, is inside a block of {block} bytes";
    BehindTransaction { end: u64, all: u64 } Bounds
        "the range ends at {end}, the transaction has {all} bytes";
    PartOfTransaction { offset: u64, length: u64 } PartialBlock
        "{length} bytes from offset {offset} on are neither the transaction nor its CRC";
    JobSize { length: u64, unit: u64 } JobSize
        "{length} bytes cannot be encrypted in data units of {unit} bytes";
    TweakCarry JobSize "the upper half of the tweak would change";
    OneUnit { length: u64, unit: u64 } SingleBlock
        "{length} bytes exceed the data unit of {unit} bytes, the limit of this engine";
    NoRoom { length: u64 } NoRoom "the device has no room for {length} bytes";

    // Reasons about BSFs.
    BsfNeverWritten Bsf "BSFs are in force, and none was written";
    BothOutsideCipher Bsf "signatures in both domains, and the cipher is around neither";
    LeftoverRow Bsf "no table has this cipher and signature together";
    BlocksInShortBsf Bsf "a BSF of 32 bytes has no attributes of blocks";
    BlockSelector { selector: u8 } Bsf "block size selector {selector} is not known";
    CopyMaskStructure Bsf "a copy mask needs the same signature type in both domains";
    TransactionFormat { format: u8 } Bsf "transaction format {format:#x} is no CRC32C";
    TransactionEpilogue { size: u32 } Bsf "a transaction with an epilogue of {size} bytes";
    InlineMissing Bsf "a T10-DIF domain without a valid inline section";
    GuardType { code: u8 } Bsf "guard type {code} is not known";
    BlockFormat { format: u8 } Bsf "block format {format:#x} is not known";
    SignatureNotThere { format: u8 } Bsf "this device has no signatures of format {format:#x}";
    EncryptionOrder { order: u8 } Bsf "encryption order {order} is not known";
    EncryptionStandard { code: u8 } Bsf "encryption standard {code} is not AES-XTS";
    UnitSelector { selector: u8 } Bsf "data unit selector {selector} is not known";
    TwoTransactions Bsf "a message has data of two transactions";
    BsfInAtomic { key: u32 } Bsf "an atomic on key {key:#010x}, which has BSFs";
    BsfInCopy { key: u32 } Bsf "a copy with key {key:#010x}, which has BSFs";
    BsfUnderList { key: u32 } Bsf "a list of entries in memory of key {key:#010x}, which has BSFs";
    CryptoUnconfigured CryptoUnconfigured "a crypto mkey without crypto attributes";
    UnknownDek { dek: u32 } Dek "there is no DEK {dek:#x}";
    DekDomain { dek: u32, domain: u32 } Dek
        "DEK {dek:#x} is in protection domain {domain:#x}, the mkey is not";
    Keytag { dek: u32 } Keytag "the keytag is not that of DEK {dek:#x}";
    UnknownPsv { psv: u32 } Psv "there is no PSV {psv:#x}";
    PsvDomain { psv: u32, domain: u32 } Psv
        "PSV {psv:#x} is in protection domain {domain:#x}, its user is not";
    TransactionNotBegun { psv: u32 } Psv "PSV {psv:#x} carries no CRC: no transaction has begun";

    // Reasons about the bytes of a request.
    AnotherQueue { qpn: u32 } Malformed "the request names queue pair {qpn:#x}, which is not its own";
    AnotherIndex { index: u16, place: u16 } Malformed
        "the request names index {index}, and stands at {place}";
    Modifier { opmod: u8 } Malformed "opcode modifier {opmod:#04x} is not known";
    SizeField { octowords: u8 } Malformed
        "the size field says {octowords} octowords, from 1 to 63 are possible";
    LongerThanRung { blocks: u16, rung: u16 } Malformed "the request has {blocks} blocks, {rung} were rung";
    SegmentMissing { octowords: u64 } Malformed
        "the {octowords} octowords of the request end inside a segment";
    SegmentsLeft { octowords: u64 } Malformed "{octowords} octowords stand behind the last segment";
    Opcode { opcode: u8 } Malformed "opcode {opcode:#04x} is none that this queue pair executes";
    InlineInScatter Malformed "inline data in a request that brings data in";
    InlineOverrun { length: u64, room: u64 } Malformed
        "{length} bytes of inline data, the request has room for {room}";
    AddressVector Malformed "the address vector has no second half";
    RingUnreadable { address: u64 } MemoryFault "the ring at {address:#x} is no memory";
    AtomicAlignment { address: u64, bytes: u64 } Atomic
        "an atomic of {bytes} bytes at {address:#x}, which is no multiple of {bytes}";

    // Reasons about UMRs.
    CheckFree { key: u32 } UmrCheck "the mkey of key {key:#010x} is in use, and the flags ask for a free one";
    CheckUsed { key: u32 } UmrCheck "the mkey of key {key:#010x} is free, and the flags ask for one in use";
    CheckQpn { key: u32, qpn: u32 } UmrCheck
        "the flags check the queue pair, and the mkey of key {key:#010x} is bound to {qpn:#x}";
    NotInvalidable { key: u32 } UmrCheck "the peer may not invalidate key {key:#010x}";
    NoUmr { key: u32 } UmrUnsupported "the mkey of key {key:#010x} was created without umr_en";
    UmrReserved UmrUnsupported "reserved parts of the UMR control segment are not zero";
    UmrRelaxed UmrUnsupported "the mask relaxes the order of transfers, which this device cannot";
    UmrDomain { domain: u32 } UmrUnsupported "the mask moves the mkey into protection domain {domain:#x}";
    UmrBinding UmrUnsupported "the mask binds the mkey to a queue pair";
    BsfOctowords { octowords: u16 } UmrUnsupported "{octowords} octowords are no whole BSFs";
    PointerAlignment { address: u64 } UmrUnsupported
        "the lists are at {address:#x}, which is no multiple of 2048";
    ReplacedInBlock { first: u64 } UmrUnsupported "entry {first} is not the first in a block of 4";
    OffsetTooLarge { first: u64 } UmrUnsupported "an mkey cannot have entry {first}";
    StridedCount { entries: u16, octowords: u64 } UmrUnsupported
        "a header and {entries} entries do not fit {octowords} octowords";
    BsfOrder { count: u64 } UmrUnsupported
        "{count} BSFs are not a signature BSF, a crypto BSF, or both in this order";
    BsfNotThere UmrUnsupported "the mkey was created without the feature of a BSF";
    BsfSizeCode { wanted: u8 } UmrUnsupported "the size code of a BSF is not {wanted}";
    LengthOver32Bits { length: u64 } UmrUnsupported
        "{length} bytes are too long for an mkey with BSFs (32 bits)";
    EntriesOverRoom { entries: u64, room: u32 } UmrRoom "{entries} entries, the mkey has room for {room}";

    // Reasons that are no fault of the request itself.
    Flushed Flushed "the queue pair is in the error state: the request was never executed";
    ReceiverNotReady { attempts: u8 } Peer "the peer had no receive, after {attempts} repetitions";
    Unreachable Peer "no queue pair answers: none is there, or it cannot receive";
    BadResponse Peer "the peer's answer does not fit the request";
    OnPurpose { syndrome: u8 } Peer "a plan of faults has the request fail with syndrome {syndrome:#04x}";
    RefusedByPeer { syndrome: u8 } Peer "the peer refuses the request with syndrome {syndrome:#04x}";
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn reasons_survive_as_numbers() {
        for name in Reason::NAMES {
            let reason = Reason::from_values(name, [1, 2, 3]).unwrap();
            assert_eq!(reason.name(), *name);
            assert_eq!(Reason::from_values(name, reason.values()), Some(reason));
        }
        assert_eq!(Reason::from_values("Keytag", [1 << 32, 0, 0]), None);
        assert_eq!(Reason::from_values("", [0; 3]), None);
    }

    /// The text of each reason contains all its numbers, has one line, and differs from all other texts.
    #[test]
    fn each_reason_is_told_with_its_numbers() {
        let mut texts = alloc::collections::BTreeSet::new();
        for name in Reason::NAMES {
            let number = |at: u64| 0x51 + 0x11 * at;
            let reason = Reason::from_values(name, [number(0), number(1), number(2)]).unwrap();
            let text = reason.to_string();
            let values = reason.values();
            for value in values.into_iter().filter(|value| *value != 0) {
                let digits = |word: &str| {
                    let hex = word.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
                    hex.unwrap_or_else(|| word.parse()) == Ok(value)
                };
                let mut words = text.split(|one: char| !one.is_ascii_alphanumeric());
                assert!(words.any(digits), "{name} has {value:#x}: {text}");
            }
            assert!(text.split_whitespace().count() > 2 && text.len() <= 110, "{name}: {text}");
            assert!(!text.contains(['\n', '{', '}']) && !text.ends_with('.'), "{name}: {text}");
            // Other numbers give another text.
            let others = Reason::from_values(name, [number(3), number(4), number(5)]).unwrap();
            assert_eq!(others.to_string() == text, values == [0; 3], "{name}: {text}");
            assert!(texts.insert(text), "{name} has the text of another reason");
        }
    }

    #[test]
    fn a_cause_names_both_keys() {
        let cause = Cause { key: Some(0x500), reason: Reason::KeyFree { key: 0x700 } };
        assert_eq!(
            cause.to_string(),
            "the mkey of key 0x00000700 is free: never configured, or invalidated (the request names key \
             0x00000500)"
        );
    }
}
