//! One call of the kernel's interface: a header, attributes, and their data (`rdma_user_ioctl_cmds.h`).

use crate::ground::errno::Errno;
use crate::ground::process_memory::ProcessMemory;
use mlx5_softdev::Memory;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The request number of an `ioctl` that carries a call of the kernel's interface for RDMA
/// (`RDMA_VERBS_IOCTL`).
pub(crate) const VERBS_IOCTL: u64 = 0xc018_1b01;

/// The driver number of an mlx5 device (`RDMA_DRIVER_MLX5`).
const DRIVER_MLX5: u32 = 1;

/// The most bytes of a call's header and attributes: a page.
const LONGEST: u16 = 4096;

/// The program's flag for an attribute that must not be skipped (`UVERBS_ATTR_F_MANDATORY`).
const MANDATORY: u16 = 1;
/// The kernel's mark on an output that it has written (`UVERBS_ATTR_F_VALID_OUTPUT`).
const VALID_OUTPUT: u16 = 2;

/// The header of a call (`struct ib_uverbs_ioctl_hdr`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    length: u16,
    object: u16,
    method: u16,
    attributes: u16,
    reserved1: u64,
    driver: u32,
    reserved2: u32,
}
const _: () = assert!(size_of::<Header>() == 24);

/// An attribute of a call (`struct ib_uverbs_attr`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Attribute {
    id: u16,
    length: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}
const _: () = assert!(size_of::<Attribute>() == 16);

/// Kind and length of an attribute (`include/rdma/uverbs_ioctl.h` of the kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Input of at least and at most these numbers of bytes.
    In(u16, u16),
    /// Input of 4 or 8 bytes whose bits are flags (`UVERBS_ATTR_FLAGS_IN`).
    Flags,
    /// Room for an answer of at least and at most these numbers of bytes.
    Out(u16, u16),
    /// The handle or file descriptor of an object.
    Object,
    /// The place for the handle or file descriptor of a new object.
    NewObject,
}

impl Kind {
    /// A constant, which always has 8 bytes (`UVERBS_ATTR_CONST_IN`).
    pub(crate) const CONSTANT: Self = input(8);

    /// Returns whether an attribute of this kind may have this length.
    const fn may_have(self, length: u16) -> bool {
        match self {
            Self::In(least, most) | Self::Out(least, most) => least <= length && length <= most,
            Self::Flags => matches!(length, 4 | 8),
            Self::Object | Self::NewObject => length == 0,
        }
    }
}

/// Returns the kind of an input of exactly this number of bytes (`UVERBS_ATTR_TYPE`).
pub(crate) const fn input(bytes: u16) -> Kind {
    Kind::In(bytes, bytes)
}

/// Returns the kind of an input of at least this number of bytes (`UVERBS_ATTR_MIN_SIZE`,
/// `UVERBS_ATTR_STRUCT`). Bytes that the method does not know must be zero.
pub(crate) const fn input_from(bytes: u16) -> Kind {
    Kind::In(bytes, u16::MAX)
}

/// Returns the kind of an answer with room for exactly this number of bytes.
pub(crate) const fn output(bytes: u16) -> Kind {
    Kind::Out(bytes, bytes)
}

/// Returns the kind of an answer with room for at least this number of bytes.
pub(crate) const fn output_from(bytes: u16) -> Kind {
    Kind::Out(bytes, u16::MAX)
}

/// The specification of an attribute of a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// The number of the attribute.
    pub(crate) id: u16,
    /// The attribute's kind and length.
    pub(crate) kind: Kind,
    /// Whether a call without the attribute is refused.
    pub(crate) required: bool,
}

/// Returns the specification of a required attribute.
pub(crate) const fn needs(id: u16, kind: Kind) -> Spec {
    Spec { id, kind, required: true }
}

/// Returns the specification of an optional attribute.
pub(crate) const fn takes(id: u16, kind: Kind) -> Spec {
    Spec { id, kind, required: false }
}

/// A call as the program made it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) object: u16,
    pub(crate) method: u16,
    address: u64,
    attributes: Vec<Attribute>,
}

impl Request {
    /// Reads the call at `address`.
    ///
    /// # Errors
    /// [`Errno::FAULT`] for an unmapped address, [`Errno::INVAL`] for a wrong length or driver,
    /// [`Errno::PROTONOSUPPORT`] for reserved fields that are not zero.
    pub(crate) fn read(address: u64) -> Result<Self, Errno> {
        let header: Header = load(address)?;
        let length = size_of::<Header>() + usize::from(header.attributes) * size_of::<Attribute>();
        if header.length > LONGEST || usize::from(header.length) != length {
            return Err(Errno::INVAL);
        }
        if header.reserved1 != 0 || header.reserved2 != 0 {
            return Err(Errno::PROTONOSUPPORT);
        }
        if header.driver != DRIVER_MLX5 {
            return Err(Errno::INVAL);
        }
        let first = address.wrapping_add(size_of::<Header>() as u64);
        let mut bytes = vec![0; usize::from(header.attributes) * size_of::<Attribute>()];
        ProcessMemory.read(first, &mut bytes).map_err(|_| Errno::FAULT)?;
        let attributes =
            bytes.chunks_exact(size_of::<Attribute>()).flat_map(Attribute::read_from_bytes).collect();
        Ok(Self { object: header.object, method: header.method, address, attributes })
    }

    /// Checks all attributes of the call against the specifications of the method's attributes, as Linux does
    /// (`uverbs_set_attr`, `uverbs_process_attr`).
    ///
    /// # Errors
    /// The errno of the kernel: [`Errno::PROTONOSUPPORT`] for an unknown attribute that is marked as
    /// mandatory, else [`Errno::INVAL`].
    pub(crate) fn check(&self, specs: &[Spec]) -> Result<(), Errno> {
        for (index, attribute) in self.attributes.iter().enumerate() {
            let Some(spec) = specs.iter().find(|spec| spec.id == attribute.id) else {
                match attribute.flags & MANDATORY {
                    0 => continue,
                    _ => return Err(Errno::PROTONOSUPPORT),
                }
            };
            let is_first = self.find(attribute.id).is_some_and(|(first, _)| first == index);
            if !is_first || attribute.reserved != 0 || !spec.kind.may_have(attribute.length) {
                return Err(Errno::INVAL);
            }
        }
        let missing = specs.iter().any(|spec| spec.required && !self.has(spec.id));
        if missing { Err(Errno::INVAL) } else { Ok(()) }
    }

    fn find(&self, id: u16) -> Option<(usize, &Attribute)> {
        self.attributes.iter().enumerate().find(|(_, attribute)| attribute.id == id)
    }

    /// Returns whether the call has the attribute.
    pub(crate) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Returns the bytes of an input. Returns no bytes if the attribute is missing.
    ///
    /// # Errors
    /// [`Errno::FAULT`] for an unmapped address.
    pub(crate) fn bytes(&self, id: u16) -> Result<Vec<u8>, Errno> {
        let Some((_, attribute)) = self.find(id) else { return Ok(Vec::new()) };
        let length = usize::from(attribute.length);
        if let Some(inline) = attribute.data.to_ne_bytes().get(..length) {
            return Ok(inline.to_vec());
        }
        let mut bytes = vec![0; length];
        ProcessMemory.read(attribute.data, &mut bytes).map_err(|_| Errno::FAULT)?;
        Ok(bytes)
    }

    /// Returns an input as a structure. Missing bytes read as zero. Surplus bytes must be zero.
    ///
    /// # Errors
    /// [`Errno::FAULT`] for an unmapped address, [`Errno::OPNOTSUPP`] for fields of a later version.
    pub(crate) fn structure<T: FromBytes + IntoBytes>(&self, id: u16) -> Result<T, Errno> {
        let mut bytes = self.bytes(id)?;
        if bytes.iter().skip(size_of::<T>()).any(|byte| *byte != 0) {
            return Err(Errno::OPNOTSUPP);
        }
        bytes.resize(size_of::<T>(), 0);
        T::read_from_bytes(&bytes).map_err(|_| Errno::INVAL)
    }

    /// Returns an input number of 4 or 8 bytes, or 0 if the attribute is missing.
    pub(crate) fn number(&self, id: u16) -> u64 {
        match self.find(id) {
            None => 0,
            Some((_, attribute)) if attribute.length == 4 => attribute.data & 0xffff_ffff,
            Some((_, attribute)) => attribute.data,
        }
    }

    /// Returns the object handle that an attribute holds.
    ///
    /// # Errors
    /// [`Errno::NOENT`] if the attribute is missing, or for a number of more than 32 bits; [`Errno::INVAL`]
    /// for a negative number.
    pub(crate) fn handle(&self, id: u16) -> Result<u32, Errno> {
        let (_, attribute) = self.find(id).ok_or(Errno::NOENT)?;
        let number = u64::try_from(attribute.data.cast_signed()).map_err(|_| Errno::INVAL)?;
        u32::try_from(number).map_err(|_| Errno::NOENT)
    }

    /// Returns the file descriptor that an attribute holds, or `None` if the attribute is missing.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for a number of more than 32 bits.
    pub(crate) fn descriptor(&self, id: u16) -> Result<Option<i32>, Errno> {
        let number = |(_, attribute): (usize, &Attribute)| i32::try_from(attribute.data.cast_signed());
        self.find(id).map(number).transpose().map_err(|_| Errno::INVAL)
    }

    /// Returns the room for an output in bytes, or 0 if the attribute is missing.
    pub(crate) fn room(&self, id: u16) -> usize {
        self.find(id).map_or(0, |(_, attribute)| attribute.length.into())
    }

    /// Writes an output, cut off if it does not fit. Does nothing if the attribute is missing.
    ///
    /// # Errors
    /// [`Errno::FAULT`] for an unmapped address.
    pub(crate) fn answer(&self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        let Some((index, attribute)) = self.find(id) else { return Ok(()) };
        let fits = bytes.get(..bytes.len().min(attribute.length.into())).unwrap_or_default();
        ProcessMemory.write(attribute.data, fits).map_err(|_| Errno::FAULT)?;
        let flags = attribute.flags | VALID_OUTPUT;
        ProcessMemory
            .write(self.attribute_address(index).wrapping_add(4), &flags.to_ne_bytes())
            .map_err(|_| Errno::FAULT)
    }

    /// Writes the handle or file descriptor of a new object.
    ///
    /// # Errors
    /// [`Errno::FAULT`] for an unmapped address; [`Errno::INVAL`] if the attribute is missing.
    pub(crate) fn answer_object(&self, id: u16, number: i64) -> Result<(), Errno> {
        let (index, _) = self.find(id).ok_or(Errno::INVAL)?;
        ProcessMemory
            .write(self.attribute_address(index).wrapping_add(8), &number.to_ne_bytes())
            .map_err(|_| Errno::FAULT)
    }

    fn attribute_address(&self, index: usize) -> u64 {
        self.address.wrapping_add((size_of::<Header>() + index * size_of::<Attribute>()) as u64)
    }
}

/// Reads the structure at `address`.
fn load<T: FromBytes + IntoBytes>(address: u64) -> Result<T, Errno> {
    let mut bytes = vec![0; size_of::<T>()];
    ProcessMemory.read(address, &mut bytes).map_err(|_| Errno::FAULT)?;
    T::read_from_bytes(&bytes).map_err(|_| Errno::INVAL)
}
