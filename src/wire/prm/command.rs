//! Parts that all commands share: opcodes, status, and the headers of requests and replies.

use crate::wire::codes::{codes, debug_by_name};
use core::fmt;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

codes! {
    /// A command (PRM `opcode`). The type can also hold codes without a name, because a request may contain
    /// any code.
    Opcode(u16), "command {:#x}";

    /// Ask for capabilities of the device.
    QUERY_HCA_CAP = 0x100, "QUERY_HCA_CAP";
    /// Start the device.
    INIT_HCA = 0x102, "INIT_HCA";
    /// Stop the device.
    TEARDOWN_HCA = 0x103, "TEARDOWN_HCA";
    /// Enable a PCI function of the device. The device then accepts other commands from this function.
    ENABLE_HCA = 0x104, "ENABLE_HCA";
    /// Disable a PCI function of the device.
    DISABLE_HCA = 0x105, "DISABLE_HCA";
    /// Ask how many pages of memory the firmware wants.
    QUERY_PAGES = 0x107, "QUERY_PAGES";
    /// Give pages to the firmware, or take them back.
    MANAGE_PAGES = 0x108, "MANAGE_PAGES";
    /// Ask which versions of the interface between driver and firmware (ISSI) the firmware supports.
    QUERY_ISSI = 0x10a, "QUERY_ISSI";
    /// Choose a version of the interface between driver and firmware (ISSI).
    SET_ISSI = 0x10b, "SET_ISSI";
    /// Create an mkey.
    CREATE_MKEY = 0x200, "CREATE_MKEY";
    /// Destroy an mkey.
    DESTROY_MKEY = 0x202, "DESTROY_MKEY";
    /// Create an event queue.
    CREATE_EQ = 0x301, "CREATE_EQ";
    /// Destroy an event queue.
    DESTROY_EQ = 0x302, "DESTROY_EQ";
    /// Create a completion queue.
    CREATE_CQ = 0x400, "CREATE_CQ";
    /// Destroy a completion queue.
    DESTROY_CQ = 0x401, "DESTROY_CQ";
    /// Create a queue pair.
    CREATE_QP = 0x500, "CREATE_QP";
    /// Destroy a queue pair.
    DESTROY_QP = 0x501, "DESTROY_QP";
    /// Take a queue pair from reset to initialised.
    RST2INIT_QP = 0x502, "RST2INIT_QP";
    /// Make a queue pair ready to receive.
    INIT2RTR_QP = 0x503, "INIT2RTR_QP";
    /// Make a queue pair ready to send.
    RTR2RTS_QP = 0x504, "RTR2RTS_QP";
    /// Change a queue pair that is ready to send.
    RTS2RTS_QP = 0x505, "RTS2RTS_QP";
    /// Make a queue pair ready to send again after its send queue failed.
    SQERR2RTS_QP = 0x506, "SQERR2RTS_QP";
    /// Put a queue pair into the error state (`2ERR_QP`).
    TO_ERR_QP = 0x507, "2ERR_QP";
    /// Reset a queue pair (`2RST_QP`).
    TO_RST_QP = 0x50a, "2RST_QP";
    /// Ask for the context of a queue pair.
    QUERY_QP = 0x50b, "QUERY_QP";
    /// Make a queue pair ready to send again after its send queue was drained.
    SQD_RTS_QP = 0x50c, "SQD_RTS_QP";
    /// Change a queue pair that is initialised.
    INIT2INIT_QP = 0x50e, "INIT2INIT_QP";
    /// Create protection signature values.
    CREATE_PSV = 0x600, "CREATE_PSV";
    /// Destroy a protection signature value.
    DESTROY_PSV = 0x601, "DESTROY_PSV";
    /// Allocate a protection domain.
    ALLOC_PD = 0x800, "ALLOC_PD";
    /// Free a protection domain.
    DEALLOC_PD = 0x801, "DEALLOC_PD";
    /// Allocate a UAR page.
    ALLOC_UAR = 0x802, "ALLOC_UAR";
    /// Free a UAR page.
    DEALLOC_UAR = 0x803, "DEALLOC_UAR";
    /// Create a general object.
    CREATE_GENERAL_OBJECT = 0xa00, "CREATE_GENERAL_OBJECT";
    /// Change a general object.
    MODIFY_GENERAL_OBJECT = 0xa01, "MODIFY_GENERAL_OBJECT";
    /// Ask for the fields of a general object.
    QUERY_GENERAL_OBJECT = 0xa02, "QUERY_GENERAL_OBJECT";
    /// Destroy a general object.
    DESTROY_GENERAL_OBJECT = 0xa03, "DESTROY_GENERAL_OBJECT";
    /// Make the device forget the values of the DEKs that it has used.
    SYNC_CRYPTO = 0xb12, "SYNC_CRYPTO";
}

/// The result of a command (PRM `status`, `MLX5_CMD_STAT_*`). The type can also hold codes without a name,
/// because a reply may contain any code.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Status(pub u8);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $prm:literal, $text:literal;)+) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($code);)+

            /// Returns the PRM name, `None` for a code that is not known here.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($prm),)+
                    _ => None,
                }
            }

            /// Returns a short description, `None` for a code that is not known here.
            pub const fn description(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($text),)+
                    _ => None,
                }
            }
        }

        debug_by_name! { Status: $($name)+ }
    };
}

statuses! {
    /// The command succeeded.
    OK = 0x0, "OK", "success";
    /// The device failed.
    INTERNAL = 0x1, "INT_ERR", "internal error";
    /// The command is not known or not allowed.
    BAD_OPERATION = 0x2, "BAD_OP_ERR", "command not known or not allowed";
    /// A field has a value that the device does not accept.
    BAD_PARAMETER = 0x3, "BAD_PARAM_ERR", "bad parameter";
    /// The device is not in a state for this command.
    BAD_SYSTEM_STATE = 0x4, "BAD_SYS_STATE_ERR", "device not in a state for this command";
    /// The request names an object that does not exist.
    BAD_RESOURCE = 0x5, "BAD_RES_ERR", "no such object";
    /// An object is in use.
    BUSY = 0x6, "RES_BUSY", "object busy";
    /// A limit is exceeded.
    LIMIT = 0x8, "LIM_ERR", "limit exceeded";
    /// An object is not in a state for this command.
    BAD_RESOURCE_STATE = 0x9, "BAD_RES_STATE_ERR", "object not in a state for this command";
    /// An index is out of range.
    BAD_INDEX = 0xa, "IX_ERR", "index out of range";
    /// The device is out of resources.
    NO_RESOURCES = 0xf, "NO_RES_ERR", "out of resources";
    /// The queue pair is not in a state for this command.
    BAD_QP_STATE = 0x10, "BAD_QP_STATE_ERR", "queue pair not in a state for this command";
    /// A packet is malformed.
    BAD_PACKET = 0x30, "BAD_PKT_ERR", "bad packet";
    /// The new size of the completion queue has no room for the outstanding entries.
    OUTSTANDING_CQES = 0x40, "BAD_SIZE_OUTS_CQES_ERR", "too many outstanding completion entries";
    /// The request has a wrong length.
    BAD_INPUT_LENGTH = 0x50, "BAD_INP_LEN_ERR", "bad request length";
    /// There is too little room for the reply.
    BAD_OUTPUT_LENGTH = 0x51, "BAD_OUTP_LEN_ERR", "bad reply length";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.description(), self.name()) {
            (Some(description), Some(name)) => write!(f, "{description} ({name}, {:#04x})", self.0),
            _ => write!(f, "unknown status {:#04x}", self.0),
        }
    }
}

/// The header of a request, 8 bytes (PRM `mbox_in`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RequestHeader {
    /// The command, see [`Opcode`].
    pub opcode: U16,
    /// User id of a DEVX context, which the kernel fills in.
    pub uid: U16,
    /// Reserved.
    pub reserved: U16,
    /// Variant of the command, such as the kind of capabilities that QUERY_HCA_CAP asks for.
    pub op_mod: U16,
}

impl RequestHeader {
    /// Creates the header of a command whose variant (`op_mod`) is 0.
    pub const fn new(opcode: Opcode) -> Self {
        Self { opcode: U16::new(opcode.0), uid: U16::ZERO, reserved: U16::ZERO, op_mod: U16::ZERO }
    }
}

/// The header of a reply, 8 bytes (PRM `mbox_out`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReplyHeader {
    /// The result of the command, see [`Status`].
    pub status: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// The reason of a failure, as a number that only the vendor can interpret; 0 on success.
    pub syndrome: U32,
}

/// A request that names one object by a 24-bit number, or none: 16 bytes (PRM `destroy_mkey_in` and many
/// others).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NumberRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// The object's number, in the low 24 bits; 0 if the request names none.
    pub number: U32,
    /// Reserved.
    pub reserved: U32,
}

/// A reply that names one object by a 24-bit number, or none: 16 bytes (PRM `create_mkey_out` and many
/// others).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NumberReply {
    /// Status of the command.
    pub header: ReplyHeader,
    /// The object's number, in the low 24 bits; 0 if the reply names none.
    pub number: U32,
    /// Reserved.
    pub reserved: U32,
}

crate::fmt::defmt_as_bytes!(RequestHeader, ReplyHeader, NumberRequest, NumberReply);

const _: () = assert!(size_of::<RequestHeader>() == 8 && size_of::<ReplyHeader>() == 8);
const _: () = assert!(core::mem::offset_of!(RequestHeader, op_mod) == 6);
const _: () = assert!(core::mem::offset_of!(ReplyHeader, syndrome) == 4);
const _: () = assert!(size_of::<NumberRequest>() == 16 && size_of::<NumberReply>() == 16);
const _: () = assert!(core::mem::offset_of!(NumberReply, number) == 8);
