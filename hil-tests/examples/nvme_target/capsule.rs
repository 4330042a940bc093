//! The bytes of NVMe over fabrics on RDMA: commands, responses, and the private data of connections. The
//! fields have their names and offsets from the NVM Express Base Specification and its RDMA Transport
//! Specification.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a command, which has no data in its capsule.
pub(crate) const COMMAND: usize = size_of::<Command>();

/// A keyed SGL descriptor: the memory of the host that a command names.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct KeyedSgl {
    pub(crate) address: U64,
    length: [u8; 3],
    key: [u8; 4],
    /// Type and sub type of the descriptor, 4 bits each. The type is in the upper bits.
    kind: u8,
}

impl KeyedSgl {
    /// The descriptor type of a keyed data block.
    const KEYED: u8 = 4;
    /// The sub type that asks the target to invalidate the key with its response.
    const INVALIDATE: u8 = 0xf;

    pub(crate) fn length(&self) -> usize {
        let [low, middle, high] = self.length.map(usize::from);
        low | middle << 8 | high << 16
    }

    pub(crate) fn key(&self) -> u32 {
        u32::from_le_bytes(self.key)
    }

    pub(crate) const fn is_keyed(&self) -> bool {
        self.kind >> 4 == Self::KEYED && matches!(self.kind & 0xf, 0 | Self::INVALIDATE)
    }

    pub(crate) const fn is_invalidated(&self) -> bool {
        self.is_keyed() && self.kind & 0xf == Self::INVALIDATE
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Command {
    pub(crate) opcode: u8,
    flags: u8,
    pub(crate) id: U16,
    /// The number of the namespace. In a Fabrics command, the first byte of this field is the command's type.
    pub(crate) namespace: U32,
    reserved: [U32; 2],
    metadata: U64,
    pub(crate) data: KeyedSgl,
    /// Command dwords 10 to 15.
    words: [U32; 6],
}

const _: () = assert!(COMMAND == 64 && core::mem::offset_of!(Command, words) == 40);

impl Command {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const GET_LOG_PAGE: u8 = 0x02;
    pub(crate) const IDENTIFY: u8 = 0x06;
    pub(crate) const ABORT: u8 = 0x08;
    pub(crate) const SET_FEATURES: u8 = 0x09;
    pub(crate) const ASYNC_EVENT: u8 = 0x0c;
    pub(crate) const KEEP_ALIVE: u8 = 0x18;
    pub(crate) const FABRICS: u8 = 0x7f;
    pub(crate) const PROPERTY_SET: u8 = 0x00;
    pub(crate) const CONNECT: u8 = 0x01;
    pub(crate) const PROPERTY_GET: u8 = 0x04;

    /// Returns the type of a Fabrics command.
    pub(crate) fn fabrics_type(&self) -> Option<u8> {
        (self.opcode == Self::FABRICS).then_some(self.namespace.get() as u8)
    }

    /// Returns a command dword from 10 to 15.
    pub(crate) fn word(&self, number: usize) -> u32 {
        self.words.get(number.wrapping_sub(10)).map_or(0, |word| word.get())
    }

    /// Returns command dwords `number` and `number` + 1 as one number.
    pub(crate) fn long(&self, number: usize) -> u64 {
        u64::from(self.word(number)) | u64::from(self.word(number + 1)) << 32
    }
}

/// The status of a command: code, type, and the bit "do not retry".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(u16);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INVALID_OPCODE: Self = Self::of(0x001);
    pub(crate) const INVALID_FIELD: Self = Self::of(0x002);
    pub(crate) const INVALID_NAMESPACE: Self = Self::of(0x00b);
    pub(crate) const SEQUENCE: Self = Self::of(0x00c);
    pub(crate) const SGL_LENGTH: Self = Self::of(0x00f);
    pub(crate) const SGL_TYPE: Self = Self::of(0x011);
    pub(crate) const LBA_RANGE: Self = Self::of(0x080);
    pub(crate) const TOO_MANY_EVENTS: Self = Self::of(0x105);
    pub(crate) const INVALID_LOG_PAGE: Self = Self::of(0x109);
    pub(crate) const CONNECT_FORMAT: Self = Self::of(0x180);
    pub(crate) const INVALID_PROTECTION: Self = Self::of(0x181);
    pub(crate) const CONNECT_PARAMETERS: Self = Self::of(0x182);
    pub(crate) const WRITE_FAULT: Self = Self::of(0x280);
    pub(crate) const READ_ERROR: Self = Self::of(0x281);
    pub(crate) const GUARD: Self = Self::of(0x282);
    pub(crate) const APP_TAG: Self = Self::of(0x283);
    pub(crate) const REF_TAG: Self = Self::of(0x284);

    /// Returns a status with the bit "do not retry", because a repeated command would fail again.
    const fn of(type_and_code: u16) -> Self {
        Self(0x4000 | type_and_code)
    }

    /// Returns the status shifted left by one bit, as in responses and log pages. The lowest bit there is the
    /// phase bit.
    pub(crate) const fn field(self) -> u16 {
        self.0 << 1
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Response {
    pub(crate) result: U64,
    pub(crate) sq_head: U16,
    pub(crate) reserved: U16,
    pub(crate) id: U16,
    pub(crate) status: U16,
}

const _: () = assert!(size_of::<Response>() == 16);

/// The data of the command Connect.
#[derive(Clone, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ConnectData {
    pub(crate) host: [u8; 16],
    pub(crate) controller: U16,
    reserved: [u8; 238],
    subsystem: [u8; 256],
    host_name: [u8; 256],
    reserved_end: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == 1024);

impl ConnectData {
    /// The controller number with which a host asks for a new controller.
    pub(crate) const NEW: u16 = 0xffff;

    /// Returns whether the host asks for the subsystem of this name.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        self.subsystem.split(|byte| *byte == 0).next() == Some(name.as_bytes())
    }
}

/// The private data with which a host asks for a connection.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Request {
    pub(crate) format: U16,
    /// Number of the queue: 0 for the admin queue.
    pub(crate) queue: U16,
    /// `receives` is the size of the host's receive queue. `sends` is the size of its send queue minus 1.
    pub(crate) receives: U16,
    pub(crate) sends: U16,
}

/// The private data of a target that accepts a connection.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Accepted {
    pub(crate) format: U16,
    /// Entries of the target's receive queue.
    pub(crate) receives: U16,
    pub(crate) reserved: [u8; 28],
}

/// The private data of a target that rejects a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Rejected {
    format: U16,
    status: U16,
}

impl Rejected {
    const fn of(status: u16) -> Self {
        Self { format: U16::ZERO, status: U16::new(status) }
    }

    pub(crate) const LENGTH: Self = Self::of(1);
    pub(crate) const FORMAT: Self = Self::of(2);
    pub(crate) const QUEUE: Self = Self::of(3);
    pub(crate) const SENDS: Self = Self::of(4);
    pub(crate) const NO_RESOURCES: Self = Self::of(6);
}

impl Request {
    /// Reads the private data of a host that wants a queue of at most `depth` commands.
    pub(crate) fn read(private_data: &[u8], depth: u16) -> Result<Self, Rejected> {
        let (request, _) = Self::read_from_prefix(private_data).map_err(|_| Rejected::LENGTH)?;
        match request {
            Self { format, .. } if format != 0 => Err(Rejected::FORMAT),
            Self { queue, .. } if queue > 1 => Err(Rejected::QUEUE),
            Self { sends, .. } if sends >= depth => Err(Rejected::SENDS),
            request => Ok(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_linux_is_decoded() {
        // A command as Linux sends it: reads 8 blocks from block 8 on, and asks for checks of guard and
        // reference tag.
        let mut bytes = [0; COMMAND];
        bytes[..8].copy_from_slice(&[0x02, 0x40, 0x0f, 0x10, 1, 0, 0, 0]);
        bytes[24..40].copy_from_slice(&[0, 0x10, 0, 0, 0, 0, 0, 0, 0x40, 0x10, 0, 4, 3, 2, 1, 0x40]);
        bytes[40..52].copy_from_slice(&[8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0x14]);
        let command = Command::read_from_bytes(&bytes).unwrap();
        assert_eq!((command.id.get(), command.namespace.get()), (0x100f, 1));
        let KeyedSgl { address, .. } = command.data;
        assert_eq!((address.get(), command.data.length(), command.data.key()), (0x1000, 0x1040, 0x0102_0304));
        assert!(command.data.is_keyed() && !command.data.is_invalidated());
        assert_eq!((command.long(10), command.word(12)), (8, 0x1400_0007));
        assert_eq!((command.word(9), command.word(16)), (0, 0), "dwords that a command lacks");
    }

    #[test]
    fn a_connection_needs_right_private_data() {
        let read = |numbers: [u16; 4]| {
            Request::read(&numbers.map(u16::to_le_bytes).concat(), 32).map(|request| request.queue.get())
        };
        assert_eq!(read([0, 1, 32, 31]), Ok(1));
        assert_eq!(read([1, 0, 32, 31]), Err(Rejected::FORMAT));
        assert_eq!(read([0, 2, 32, 31]), Err(Rejected::QUEUE));
        assert_eq!(read([0, 0, 33, 32]), Err(Rejected::SENDS));
        assert_eq!(Request::read(&[0; 7], 32).map(drop), Err(Rejected::LENGTH));
        assert_eq!(Rejected::SENDS.as_bytes(), [0, 0, 4, 0]);
    }
}
