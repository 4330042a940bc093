//! Why the device does not move data for a key.

use mlx5_mkey::wire::cqe::Syndrome;

/// The reason why an access was refused. Its number is the vendor syndrome of the error completion.
///
/// Assumption: vendor syndromes of real devices are not published; these are this device's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// No such key.
    UnknownKey = 0x01,
    /// The key's tag is not the current one.
    KeyTag = 0x02,
    /// The key is free: never configured, or invalidated.
    KeyFree = 0x03,
    /// The key belongs to another protection domain.
    ProtectionDomain = 0x04,
    /// The key is bound to another queue pair.
    QueuePair = 0x05,
    /// The key does not give the right.
    Right = 0x06,
    /// The range is outside of the key's space, or its layout ends before it.
    Bounds = 0x07,
    /// Keys under keys, too deep.
    Depth = 0x08,
    /// A data segment falls into too many ranges of memory ([`crate::DeviceProfile::max_ranges`]).
    Ranges = 0x09,
    /// The key's address is no memory.
    MemoryFault = 0x0a,
    /// A key with a BSF stands under another key.
    NestedTransform = 0x0b,
    /// The message is longer than its buffer or than the device allows.
    Length = 0x10,
    /// The start is not on a block or data unit boundary.
    Alignment = 0x11,
    /// The end is inside a protected block ([`crate::PartialBlocks::Refuse`]).
    PartialBlock = 0x12,
    /// AES-XTS cannot take this length by the rule for job sizes.
    JobSize = 0x13,
    /// More than one data unit on a single-block engine.
    SingleBlock = 0x14,
    /// The device has no room for the message.
    NoRoom = 0x15,
    /// The BSF is missing, malformed or asks for something unknown.
    Bsf = 0x20,
    /// A crypto mkey without crypto attributes.
    CryptoUnconfigured = 0x21,
    /// No such DEK, or in another protection domain.
    Dek = 0x22,
    /// The keytag is not the DEK's.
    Keytag = 0x23,
    /// A signature PSV is missing or in another protection domain.
    Psv = 0x24,
    /// The request is malformed.
    Malformed = 0x30,
    /// An atomic on an address that is no multiple of 8.
    Atomic = 0x31,
    /// A check of the UMR's flags failed: free state or bound queue pair.
    UmrCheck = 0x40,
    /// The UMR asks for what its mkey has no room for, or what this device does not do.
    UmrUnsupported = 0x41,
    /// More blocks rung than the ring has.
    RingOverrun = 0x50,
}

impl Refusal {
    /// Returns the vendor syndrome.
    pub const fn vendor(self) -> u8 {
        self as u8
    }

    /// Returns the syndrome at the side whose own key it was (requester's data, receive buffers).
    pub(crate) const fn local(self) -> Syndrome {
        match self {
            Self::Length | Self::Alignment | Self::PartialBlock | Self::JobSize | Self::SingleBlock => {
                Syndrome::LOCAL_LENGTH
            }
            Self::Malformed | Self::UmrUnsupported | Self::RingOverrun | Self::NoRoom | Self::Atomic => {
                Syndrome::LOCAL_QP_OPERATION
            }
            Self::UmrCheck => Syndrome::MW_BIND,
            // Assumption: missing DEK, keytag and unconfigured crypto report as protection errors (measured
            // by `gap07_how_keys_are_refused`).
            _ => Syndrome::LOCAL_PROTECTION,
        }
    }

    /// Returns the syndrome at the requester where the responder's remote key was at fault.
    pub(crate) const fn remote(self) -> Syndrome {
        match self {
            Self::Length
            | Self::Alignment
            | Self::PartialBlock
            | Self::JobSize
            | Self::SingleBlock
            | Self::Malformed
            | Self::Atomic => Syndrome::REMOTE_INVALID_REQUEST,
            // Assumption: as above, for the responder's side.
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
