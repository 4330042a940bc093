//! Messages of vfio-user, version 0.1, in the layout of the protocol (`docs/interop/vfio-user.rst` of QEMU).
//! Both sides run on one machine and use its byte order.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

// The structures below are little endian. This is the machine's byte order, since all supported machines are
// little endian.
const _: () = assert!(cfg!(target_endian = "little"));

macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal { $($field:ident: $type:ty,)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)+
            }
            const _: () = assert!(size_of::<$name>() == $bytes);
        )+
    };
}

structs! {
    /// The start of each message. The size includes these bytes.
    Header: 16 { id: U16, command: U16, size: U32, flags: U32, error: U32, }
    /// The body of VERSION, before the capabilities.
    Version: 4 { major: U16, minor: U16, }
    /// The body of DMA_MAP.
    DmaMap: 32 { argsz: U32, flags: U32, offset: U64, address: U64, length: U64, }
    /// The body of DMA_UNMAP and of its reply.
    DmaUnmap: 24 { argsz: U32, flags: U32, address: U64, length: U64, }
    /// The body of DEVICE_GET_INFO and of its reply.
    DeviceInfo: 16 { argsz: U32, flags: U32, regions: U32, interrupts: U32, }
    /// The body of DEVICE_GET_REGION_INFO and of its reply.
    RegionInfo: 32 { argsz: U32, flags: U32, index: U32, capabilities: U32, length: U64, offset: U64, }
    /// The body of DEVICE_GET_IRQ_INFO and of its reply.
    InterruptInfo: 16 { argsz: U32, flags: U32, index: U32, count: U32, }
    /// The body of DEVICE_SET_IRQS.
    SetInterrupts: 20 { argsz: U32, flags: U32, index: U32, start: U32, count: U32, }
    /// The body of REGION_READ and REGION_WRITE, before the data.
    Access: 16 { offset: U64, region: U32, count: U32, }
}

/// The number of bytes of a header.
pub(crate) const HEADER: usize = size_of::<Header>();

/// The most bytes of data in an access.
pub(crate) const MOST_DATA: usize = 1 << 20;

/// The most bytes of a message.
pub(crate) const LONGEST: usize = HEADER + size_of::<Access>() + MOST_DATA;

/// The numbers of commands.
pub(crate) mod command {
    pub(crate) const VERSION: u16 = 1;
    pub(crate) const DMA_MAP: u16 = 2;
    pub(crate) const DMA_UNMAP: u16 = 3;
    pub(crate) const DEVICE_GET_INFO: u16 = 4;
    pub(crate) const DEVICE_GET_REGION_INFO: u16 = 5;
    pub(crate) const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub(crate) const DEVICE_SET_IRQS: u16 = 8;
    pub(crate) const REGION_READ: u16 = 9;
    pub(crate) const REGION_WRITE: u16 = 10;
    pub(crate) const DEVICE_RESET: u16 = 13;
}

/// Bits of a header's flags.
pub(crate) mod flag {
    pub(crate) const TYPE: u32 = 0xf;
    pub(crate) const REPLY: u32 = 1;
    pub(crate) const NO_REPLY: u32 = 1 << 4;
    pub(crate) const ERROR: u32 = 1 << 5;
}

/// Flags of DMA_MAP and DMA_UNMAP.
pub(crate) const MAP_READ: u32 = 1;
pub(crate) const MAP_WRITE: u32 = 2;
pub(crate) const UNMAP_ALL: u32 = 1 << 1;

/// Flags of DEVICE_GET_INFO: the device can be reset, and is a PCI device.
pub(crate) const DEVICE_FLAGS: u32 = 1 | 1 << 1;
/// Flags of DEVICE_GET_REGION_INFO: the region can be read and written.
pub(crate) const REGION_FLAGS: u32 = 1 | 1 << 1;
/// Flag of DEVICE_GET_IRQ_INFO: the interrupt is signalled by an eventfd.
pub(crate) const INTERRUPT_FLAGS: u32 = 1;

/// Flags of DEVICE_SET_IRQS: the kind of data in the message, and the action.
pub(crate) mod set {
    pub(crate) const DATA_NONE: u32 = 1;
    pub(crate) const DATA_DESCRIPTORS: u32 = 1 << 2;
    pub(crate) const ACTION_MASK: u32 = 1 << 3;
    pub(crate) const ACTION_UNMASK: u32 = 1 << 4;
    pub(crate) const ACTION_TRIGGER: u32 = 1 << 5;
}

/// The server's capabilities, sent after the version.
pub(crate) const CAPABILITIES: &[u8] =
    b"{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576}}\0";
