//! Access rights of an mkey.

use crate::wire::mkey_context::AccessByte;
use core::ops::BitOr;

/// The access rights that an mkey grants to the memory that it maps (`ibv_access_flags`).
///
/// The owner may always read: this right is set when the mkey is created, and no request changes it. This
/// type has no place for other flags of `ibv_access_flags`, which mean nothing for an mkey.
///
/// ```
/// use mlx5_mkey::mkey::Access;
/// let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
/// assert!(rights.contains(Access::REMOTE_READ));
/// assert!(!rights.contains(Access::LOCAL_WRITE));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Access(AccessByte);

impl Access {
    /// No right except the owner's right to read, which every mkey has.
    pub const NONE: Self = Self(AccessByte::new());
    /// The owner may write: needed to receive into the mkey and to RDMA READ into it.
    pub const LOCAL_WRITE: Self = Self(AccessByte::new().with_local_write(true));
    /// The peer may RDMA READ.
    pub const REMOTE_READ: Self = Self(AccessByte::new().with_remote_read(true));
    /// The peer may RDMA WRITE.
    pub const REMOTE_WRITE: Self = Self(AccessByte::new().with_remote_write(true));
    /// The peer may use atomics.
    pub const REMOTE_ATOMIC: Self = Self(AccessByte::new().with_atomic(true));
    /// All rights.
    pub const ALL: Self =
        Self::LOCAL_WRITE.union(Self::REMOTE_READ).union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);

    /// Returns the union of both sets of rights.
    pub const fn union(self, other: Self) -> Self {
        Self(AccessByte::from_bits(self.0.into_bits() | other.0.into_bits()))
    }

    /// Returns whether `self` contains all rights of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0.into_bits() & other.0.into_bits() == other.0.into_bits()
    }

    /// Returns the rights as the byte of an mkey context.
    pub const fn to_wire(self) -> AccessByte {
        self.0
    }

    /// Creates the rights from the byte of an mkey context, without the bits that a UMR cannot change.
    pub const fn from_wire(byte: AccessByte) -> Self {
        Self(AccessByte::from_bits(byte.into_bits() & Self::ALL.0.into_bits()))
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}
